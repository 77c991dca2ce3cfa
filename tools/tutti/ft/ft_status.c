/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti ft status`: what a lighthouse knows, as a table. It asks for /status.json, and reads of it what it shows. */
#include "ft.h"

#include "base/base.h"
#include "base/config.h"
#include "ft/serve/serve.h"
#include "ft/serve/text.h"
#include "tools/tutti/http.h"

#include <tutti/ft.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- --follow: a line for each group that is not heard any more ---- */
#define PATIENCE_NS (10 * TUTTI_NS_PER_S)

static void print(const char *replica_id)
{
    const time_t now = time(NULL);
    struct tm local;
    char text[64];

    strftime(text, sizeof text, "%F %T", localtime_r(&now, &local));
    printf("%s  ", text);
    serve_text_put(stdout, replica_id);
    printf(" is not heard any more\n");
    fflush(stdout);
}

/* Until it is told no more; the record says why. */
static void follow(struct tutti_ft_failures *failures)
{
    char *replica_id;

    for (;;) {
        const enum tutti_status status = tutti_ft_failures_next(failures, PATIENCE_NS, &replica_id);
        if (status < 0 && status != TUTTI_ERR_TIMEOUT) return;
        if (status < 0) continue;
        print(replica_id);
        free(replica_id);
    }
}

static int ft_follow(const char *address)
{
    struct tutti_ft_lighthouse_client *client = NULL;
    struct tutti_ft_failures *failures = NULL;

    fflush(stdout);
    if (tutti_ft_lighthouse_client_open(address, PATIENCE_NS, &client) >= 0 &&
        tutti_ft_failures_open(client, &failures) >= 0)
        follow(failures);
    fprintf(stderr, "tutti ft status: %s\n", tutti_last_error()->text);
    tutti_ft_failures_close(failures);
    tutti_ft_lighthouse_client_close(client);
    return TUTTI_EXIT_WRONG;
}

/* ---- the table ---- */
#define PATIENCE_MS 10000

/* The body; NULL: a sentence was printed. */
static char *fetch(const char *address, const char *token)
{
    struct tutti_http_where where;
    char path[128];

    if (!tutti_http_where(address, &where)) {
        fprintf(stderr, "tutti ft status: \"%s\" is no address: write http://HOST:PORT\n", address);
        return NULL;
    }
    snprintf(path, sizeof path, "/status.json?job=%s", where.job);
    char *answer = tutti_http_get(&where, path, token, PATIENCE_MS);
    const char *body = answer ? tutti_http_body(answer) : NULL;
    if (!body)
        fprintf(stderr, "tutti ft status: no answer from %s port %s: %s\n", where.host, where.port, strerror(errno));
    else if (!tutti_http_is_ok(answer))
        fprintf(stderr, "tutti ft status: %s",
                body[0] ? body : "it has no /status.json: it is no lighthouse of tutti\n"),
            body = NULL;
    char *copy = body ? strdup(body) : NULL;
    free(answer);
    return copy;
}

/* ---- the table: /status.json has one group a line, and its names' characters are escaped ---- */
/* The value of a key in an object that ends at `end`, without quotes; "" if there is none. */
static const char *value(const char *object, const char *end, const char *key, char *out, size_t capacity)
{
    char quoted[64];

    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(object, quoted);
    size_t n = 0;
    out[0] = '\0';
    if (!at || at >= end) return out;
    at += strlen(quoted);
    const bool text = *at == '"';
    for (at += text; at < end && (text ? *at != '"' : !strchr(",}]\n", *at)); at++) {
        if (n + 3 > capacity) break;
        if (*at == '\\') out[n++] = *at++;
        out[n++] = *at;
    }
    out[n] = '\0';
    return out;
}

static void print_quorum(const char *text)
{
    const char *quorum = strstr(text, "\n \"quorum\":"), *end = quorum ? strchr(quorum + 1, '\n') : NULL;
    char id[32], n[32], step[32], healing[32], reason[600], known[32], heard[32];

    printf("job %s, %s\n", value(text, quorum ? quorum : text, "job", id, sizeof id),
           strstr(text, "\"authenticated\":true") ? "authenticated" : "unauthenticated");
    if (end && value(quorum, end, "quorum_id", id, sizeof id)[0])
        printf("quorum %s of %s groups at step %s, %s healing\n", id, value(quorum, end, "groups", n, sizeof n),
               value(quorum, end, "max_step", step, sizeof step),
               value(text, quorum, "healing", healing, sizeof healing));
    else
        printf("no quorum yet\n");
    if (!quorum) return;
    printf("groups known %s, heard %s\n", value(text, quorum, "known", known, sizeof known),
           value(text, quorum, "heard", heard, sizeof heard));
    printf("next: %s\n", value(text, quorum, "reason", reason, sizeof reason));
}

static void print_groups(const char *text)
{
    const char *at = strstr(text, "\n \"groups\":["), *end = at ? strstr(at, "\n \"events\":") : NULL;
    char name[200], state[16], step[32], age[32], still[32], address[200];

    if (!end) return;
    printf("%-40s %-8s %10s %10s %10s  %s\n", "group", "state", "step", "heard ms", "still ms", "manager");
    while ((at = strstr(at, "\n  {")) && at < end) {
        const char *stop = strchr(at + 1, '\n');
        if (!stop || stop > end) stop = end;
        printf("%-40s %-8s %10s %10s %10s  %s\n", value(at, stop, "replica_id", name, sizeof name),
               value(at, stop, "state", state, sizeof state), value(at, stop, "step", step, sizeof step),
               value(at, stop, "heartbeat_age_ms", age, sizeof age), value(at, stop, "since_ms", still, sizeof still),
               value(at, stop, "address", address, sizeof address));
        at = stop;
    }
}

static int show(const char *address, const char *secret, bool json)
{
    char token[TUTTI_SERVE_TOKEN] = "";

    if (secret && secret[0] && tutti_serve_token(secret, token) < 0) {
        fprintf(stderr, "tutti ft status: %s\n", tutti_last_error()->text);
        return TUTTI_EXIT_WRONG;
    }
    char *text = fetch(address, token);
    for (const char *next = strchr(address, ','); !text && next; next = strchr(next + 1, ','))
        text = fetch(next + 1, token); /* the list of those that stand for one another: who leads knows */
    if (!text) return TUTTI_EXIT_WRONG;
    if (json) {
        fputs(text, stdout);
    } else {
        print_quorum(text);
        print_groups(text);
    }
    free(text);
    return TUTTI_EXIT_OK;
}

int ft_cmd_status(int argc, char **argv)
{
    bool json = false, follow = false;
    const struct tutti_arg args[] = {
        {"json", 0, TUTTI_ARG_FLAG, &json, NULL, "as JSON, with the last events"},
        {"follow", 'f', TUTTI_ARG_FLAG, &follow, NULL, "then a line for each group that is not heard any more"}};
    const struct tutti_args spec = {
        .command = "tutti ft status",
        .usage = "ADDRESS [--json] [--follow]",
        .about = "Prints what the lighthouse at ADDRESS (http://HOST:PORT, or http://JOB@HOST:PORT) knows of a job: "
                 "groups,\n"
                 "their steps, who is healing, the quorum, and why there is no next one yet. From another host it "
                 "takes the\n"
                 "secret (TUTTI_SECRET, TUTTI_SECRET_FILE).",
        .args = args,
        .n_args = TUTTI_ARRAY_LEN(args),
    };
    struct tutti_config config;
    int n_positional;
    const enum tutti_args_result result = tutti_args_parse(&spec, argc, argv, &n_positional);

    if (result != TUTTI_ARGS_OK) return (int)result;
    if (n_positional != 1) return tutti_args_fail(&spec, "one ADDRESS is wanted");
    if (tutti_config_init(&config, NULL, 0) < 0) {
        fprintf(stderr, "tutti ft status: %s\n", tutti_last_error()->text);
        return TUTTI_EXIT_WRONG;
    }
    int status = show(argv[argc - 1], config.text[TUTTI_OPT_secret], json);
    if (status == TUTTI_EXIT_OK && follow) status = ft_follow(argv[argc - 1]);
    tutti_config_fini(&config);
    return status;
}
