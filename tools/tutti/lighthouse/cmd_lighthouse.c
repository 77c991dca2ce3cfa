/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti lighthouse`: serves until it is told to end. Options have torchft_lighthouse's names, with - or _. */
#include "tools/tutti/cmd.h"

#include "base/config.h"
#include "ft/serve/serve.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

struct options {
    const char *bind;
    uint64_t min_replicas, join_timeout_ms, quorum_tick_ms, heartbeat_timeout_ms, rate;
};

static bool read_number(const char *text, uint64_t *out)
{
    char *end;

    if (!text[0] || strspn(text, "0123456789") != strlen(text)) return false;
    *out = strtoull(text, &end, 10);
    return *out <= UINT32_MAX;
}

/* Serves until SIGINT or SIGTERM, which were blocked before any thread was started. */
static int serve(const struct options *options, const char *secret, const sigset_t *signals)
{
    const struct tutti_serve_config config = {
        .bind = options->bind ? options->bind
                : secret      ? "[::]:29510"
                              : "localhost:29510",
        .secret = secret,
        .rate = (uint32_t)options->rate,
        .options = {.min_replicas = options->min_replicas,
                    .join_timeout_ns = options->join_timeout_ms * TUTTI_NS_PER_MS,
                    .heartbeat_timeout_ns = options->heartbeat_timeout_ms * TUTTI_NS_PER_MS,
                    .tick_ns = options->quorum_tick_ms * TUTTI_NS_PER_MS,
                    .forget_ns = options->heartbeat_timeout_ms * TUTTI_NS_PER_MS + 3600 * TUTTI_NS_PER_S}};
    struct tutti_serve *served;
    int number;

    if (tutti_serve_open(&config, &served) < 0) {
        fprintf(stderr, "tutti lighthouse: %s\n", tutti_last_error()->text);
        return TUTTI_EXIT_WRONG;
    }
    printf("lighthouse at %s (%s)\n", tutti_serve_address(served), secret ? "authenticated" : "unauthenticated");
    fflush(stdout);
    while (sigwait(signals, &number) != 0) continue;
    tutti_serve_close(served);
    return TUTTI_EXIT_OK;
}

/* With the secret of environment and files, as all of tutti reads it. */
static int serve_job(const struct options *options, const sigset_t *signals)
{
    struct tutti_config config;

    if (tutti_config_init(&config, NULL, 0) < 0) {
        fprintf(stderr, "tutti lighthouse: %s\n", tutti_last_error()->text);
        return TUTTI_EXIT_WRONG;
    }
    const char *secret = config.text[TUTTI_OPT_secret];
    const int status = serve(options, secret && secret[0] ? secret : NULL, signals);
    tutti_config_fini(&config);
    return status;
}

int tutti_cmd_lighthouse(int argc, char **argv)
{
    const char *min = NULL, *join = "60000", *tick = "100", *heartbeat = "5000", *rate = "10000";
    struct options options = {0};
    const struct tutti_arg args[] = {
        {"bind", 0, TUTTI_ARG_TEXT, &options.bind, "ADDRESS",
         "host:port to listen at (with a secret [::]:29510, all addresses; else localhost:29510)"},
        {"min-replicas", 0, TUTTI_ARG_TEXT, &min, "N", "so many groups make a quorum at least; required"},
        {"join-timeout-ms", 0, TUTTI_ARG_TEXT, &join, "MS",
         "how long to wait for groups that live and do not ask (60000)"},
        {"quorum-tick-ms", 0, TUTTI_ARG_TEXT, &tick, "MS", "who was left out is looked at again so much later (100)"},
        {"heartbeat-timeout-ms", 0, TUTTI_ARG_TEXT, &heartbeat, "MS", "a group not heard for so long is dead (5000)"},
        {"rate", 0, TUTTI_ARG_TEXT, &rate, "N", "calls and reads a second for one peer address; 0: any (10000)"},
    };
    const struct tutti_args spec = {
        .command = "tutti lighthouse",
        .usage = "--min-replicas N [options]",
        .about = "Says which replica groups take part in the next step, in torchft's protocol: its managers and\n"
                 "clients are told this address by TORCHFT_LIGHTHOUSE. Options may be written with _, too. With a\n"
                 "secret (TUTTI_SECRET, TUTTI_SECRET_FILE) it believes only who knows it.",
        .args = args,
        .n_args = TUTTI_ARRAY_LEN(args),
        .no_positional = true,
    };
    const struct {
        const char *name, **text;
        uint64_t *out;
    } numbers[] = {{"min-replicas", &min, &options.min_replicas},
                   {"join-timeout-ms", &join, &options.join_timeout_ms},
                   {"quorum-tick-ms", &tick, &options.quorum_tick_ms},
                   {"heartbeat-timeout-ms", &heartbeat, &options.heartbeat_timeout_ms},
                   {"rate", &rate, &options.rate}};
    int n_positional;
    sigset_t signals;

    for (int i = 1; i < argc; i++) /* torchft's spelling */
        for (char *at = strncmp(argv[i], "--", 2) == 0 ? argv[i] : NULL; at && *at && *at != '='; at++)
            if (*at == '_') *at = '-';
    const enum tutti_args_result result = tutti_args_parse(&spec, argc, argv, &n_positional);
    if (result != TUTTI_ARGS_OK) return (int)result;
    if (!min) return tutti_args_fail(&spec, "--min-replicas is missing");
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(numbers); i++)
        if (!read_number(*numbers[i].text, numbers[i].out))
            return tutti_args_fail(&spec, "--%s: \"%s\" is no number", numbers[i].name, *numbers[i].text);
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) { /* one for each connection */
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT), sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    return serve_job(&options, &signals);
}
