/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti lighthouse`: serves until it is told to end. Options have torchft_lighthouse's names, with - or _. */
#include "tools/tutti/cmd.h"

#include "base/base.h"
#include "base/config.h"
#include "base/tls.h"
#include "ft/serve/serve.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Each option, by torchft's name of it; the file of options may have it, too. */
enum {
    BIND,
    MIN_REPLICAS,
    JOIN_TIMEOUT,
    QUORUM_TICK,
    HEARTBEAT_TIMEOUT,
    RATE,
    MAX_GROUPS,
    NUMBER,
    STATE,
    PEERS,
    N_OPTIONS
};

/* ---- the file of options, read whole: lines "name = value", # begins a comment ---- */
#define LIGHTHOUSE_WORDS 256

struct lighthouse_words {
    struct tutti_serve_word words[LIGHTHOUSE_WORDS];
    size_t n;
    char *text; /* what the words point into */
};
#define MOST_BYTES (1 << 20)

static char *read_all(const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = file ? calloc(1, MOST_BYTES + 1) : NULL;
    const size_t n = text ? fread(text, 1, MOST_BYTES, file) : 0;

    if (!text || ferror(file) || n == MOST_BYTES || strlen(text) != n) {
        fprintf(stderr, "tutti lighthouse: --config: %s: %s\n", path,
                !text || ferror(file) ? strerror(errno) : "it is longer than 1 MiB, or no text");
        free(text);
        text = NULL;
    }
    if (file) fclose(file);
    return text;
}

static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    for (size_t n = strlen(text); n > 0 && strchr(" \t\r", text[n - 1]); n--) text[n - 1] = '\0';
    return text;
}

/* NULL: there is none of this name. */
static const char *lighthouse_word(const struct lighthouse_words *words, const char *name)
{
    for (size_t i = 0; i < words->n; i++)
        if (strcmp(words->words[i].name, name) == 0) return words->words[i].value;
    return NULL;
}

/* In the place of the one of this name, or after all. */
static void lighthouse_word_set(struct lighthouse_words *words, const char *name, const char *value)
{
    size_t i = 0;

    while (i < words->n && strcmp(words->words[i].name, name) != 0) i++;
    if (i == LIGHTHOUSE_WORDS) return;
    words->words[i] = (struct tutti_serve_word){name, value};
    if (i == words->n) words->n++;
}

/* False: a sentence was printed. NULL is a file without words. */
static bool lighthouse_words_read(struct lighthouse_words *words, const char *path)
{
    unsigned number = 0;
    char *rest;

    *words = (struct lighthouse_words){0};
    if (!path) return true;
    words->text = rest = read_all(path);
    if (!rest) return false;
    for (char *line; (line = strsep(&rest, "\n"));) {
        number++;
        line[strcspn(line, "#")] = '\0';
        char *value = strchr(line, '=');
        if (!*trim(line)) continue;
        if (!value || words->n == LIGHTHOUSE_WORDS - N_OPTIONS) { /* the rest is for options of the command line */
            fprintf(stderr, "tutti lighthouse: --config: %s:%u: %s\n", path, number,
                    value ? "these are too many lines" : "this is no \"name = value\"");
            return false;
        }
        *value = '\0';
        char *name = trim(line);
        for (char *at = name; *at; at++)
            if (*at == '-') *at = '_'; /* one spelling: torchft's */
        lighthouse_word_set(words, name, trim(value + 1));
    }
    return true;
}

static void lighthouse_words_fini(struct lighthouse_words *words)
{
    free(words->text);
}

/* ---- the command ---- */
static const struct {
    const char *name, *fallback, *value, *help; /* fallback NULL: none; value: what the help calls it */
} table[N_OPTIONS] = {
    [BIND] = {"bind", NULL, "ADDRESS",
              "host:port to listen at (with a secret [::]:29510, all addresses; else localhost:29510)"},
    [MIN_REPLICAS] = {"min_replicas", NULL, "N", "so many groups make a quorum at least; required"},
    [JOIN_TIMEOUT] = {"join_timeout_ms", "60000", "MS", "how long to wait for groups that live and do not ask (60000)"},
    [QUORUM_TICK] = {"quorum_tick_ms", "100", "MS", "who was left out is looked at again so much later (100)"},
    [HEARTBEAT_TIMEOUT] = {"heartbeat_timeout_ms", "5000", "MS", "a group not heard for so long is dead (5000)"},
    [NUMBER] = {"number", "0", "I", "which of --peers this one is, from 0"},
    [STATE] = {"state", NULL, "DIR", "keeps the numbers of quorums there, so that they grow across restarts"},
    [PEERS] = {"peers", NULL, "LIST", "addresses of all lighthouses that stand for one another, this one too"},
    [MAX_GROUPS] = {"max_groups", "65536", "N", "of one job, at once; 0: any (65536)"},
    [RATE] = {"rate", "10000", "N", "calls and reads a second for one peer address; 0: any (10000)"},
};
struct options {
    const char *text[N_OPTIONS];
    uint64_t number[N_OPTIONS];
    struct lighthouse_words words;
};

static bool read_number(const char *text, uint64_t *out)
{
    char *end;

    if (!text[0] || strspn(text, "0123456789") != strlen(text)) return false;
    *out = strtoull(text, &end, 10);
    return *out <= UINT32_MAX;
}

/* Serves until SIGINT or SIGTERM, which were blocked before any thread was started. */
static int serve(const struct options *options, const char *secret, struct tutti_certificate *certificate,
                 const sigset_t *signals)
{
    const uint64_t *number = options->number;
    const struct tutti_serve_config config = {
        .bind = options->text[BIND],
        .secret = secret,
        .certificate = certificate,
        .rate = (uint32_t)number[RATE],
        .state = options->text[STATE],
        .peers = options->text[PEERS],
        .number = (uint32_t)number[NUMBER],
        .words = options->words.words,
        .n_words = options->words.n,
        .options = {.min_replicas = number[MIN_REPLICAS],
                    .join_timeout_ns = number[JOIN_TIMEOUT] * TUTTI_NS_PER_MS,
                    .heartbeat_timeout_ns = number[HEARTBEAT_TIMEOUT] * TUTTI_NS_PER_MS,
                    .tick_ns = number[QUORUM_TICK] * TUTTI_NS_PER_MS,
                    .forget_ns = number[HEARTBEAT_TIMEOUT] * TUTTI_NS_PER_MS + TUTTI_SERVE_FORGET_NS,
                    .max_groups = (uint32_t)number[MAX_GROUPS]}};
    struct tutti_serve *served;
    int got;

    if (tutti_serve_open(&config, &served) < 0) {
        fprintf(stderr, "tutti lighthouse: %s\n", tutti_last_error()->text);
        return TUTTI_EXIT_WRONG;
    }
    printf("lighthouse at %s (%s)\n", tutti_serve_address(served),
           secret || certificate ? "authenticated" : "unauthenticated");
    fflush(stdout);
    while (sigwait(signals, &got) != 0) continue;
    tutti_serve_close(served);
    return TUTTI_EXIT_OK;
}

/* With the secret or the certificate of environment and files, as all of tutti reads them. */
static int serve_job(const struct options *options, const sigset_t *signals)
{
    struct tutti_config config;

    if (tutti_config_init(&config, NULL, 0) < 0) {
        fprintf(stderr, "tutti lighthouse: %s\n", tutti_last_error()->text);
        return TUTTI_EXIT_WRONG;
    }
    const char *secret = config.text[TUTTI_OPT_secret];
    struct tutti_certificate *certificate;
    int status = TUTTI_EXIT_WRONG;
    if (tutti_certificate_of(&config, &certificate) < 0)
        fprintf(stderr, "tutti lighthouse: %s\n", tutti_last_error()->text);
    else
        status = serve(options, secret && secret[0] ? secret : NULL, certificate, signals);
    tutti_config_fini(&config);
    return status;
}

/* What the command line does not say is in the file, or has a fallback; groups are told all of it. */
static int complete(struct options *options, const struct tutti_args *spec)
{
    for (int i = 0; i < N_OPTIONS; i++) {
        if (!options->text[i]) options->text[i] = lighthouse_word(&options->words, table[i].name);
        if (!options->text[i]) options->text[i] = table[i].fallback;
        if (i == BIND || i >= STATE) continue;
        if (!options->text[i]) return tutti_args_fail(spec, "--min-replicas is missing");
        if (!read_number(options->text[i], &options->number[i]))
            return tutti_args_fail(spec, "--%s: \"%s\" is no number", table[i].name, options->text[i]);
        lighthouse_word_set(&options->words, table[i].name, options->text[i]);
    }
    return TUTTI_ARGS_OK;
}

/* Each connection is a descriptor; and who ends the lighthouse ends its threads by a signal that they do not see. */
static void prepare(sigset_t *signals)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    sigemptyset(signals);
    sigaddset(signals, SIGINT), sigaddset(signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, signals, NULL);
}

int tutti_cmd_lighthouse(int argc, char **argv)
{
    const char *file = NULL;
    struct options options = {0};
    struct tutti_arg args[N_OPTIONS + 1];
    const struct tutti_args spec = {
        .command = "tutti lighthouse",
        .usage = "--min-replicas N [options]",
        .about = "Says which replica groups take part in the next step, in torchft's protocol: its managers and\n"
                 "clients are told this address by TORCHFT_LIGHTHOUSE. Options may be written with _, too. With a\n"
                 "secret (TUTTI_SECRET, TUTTI_SECRET_FILE) it believes only who knows it, with a certificate "
                 "(TUTTI_TLS_CA)\n"
                 "only who has one of its CA.",
        .args = args,
        .n_args = TUTTI_ARRAY_LEN(args),
        .no_positional = true,
    };
    char names[N_OPTIONS][32];
    int n_positional;
    sigset_t signals;

    for (int i = 0; i < N_OPTIONS; i++) {
        snprintf(names[i], sizeof names[i], "%s", table[i].name);
        for (char *at = names[i]; *at; at++)
            if (*at == '_') *at = '-';
        args[i] = (struct tutti_arg){names[i], 0, TUTTI_ARG_TEXT, &options.text[i], table[i].value, table[i].help};
    }
    args[N_OPTIONS] = (struct tutti_arg){
        "config", 0, TUTTI_ARG_TEXT, &file, "FILE", "lines \"option = value\", and others, of which groups are told"};
    for (int i = 1; i < argc; i++) /* torchft's spelling */
        for (char *at = strncmp(argv[i], "--", 2) == 0 ? argv[i] : NULL; at && *at && *at != '='; at++)
            if (*at == '_') *at = '-';
    const enum tutti_args_result result = tutti_args_parse(&spec, argc, argv, &n_positional);
    if (result != TUTTI_ARGS_OK) return (int)result;
    int status = lighthouse_words_read(&options.words, file) ? complete(&options, &spec) : TUTTI_EXIT_USAGE;
    if (status == TUTTI_ARGS_OK) {
        prepare(&signals);
        status = serve_job(&options, &signals);
    }
    lighthouse_words_fini(&options.words);
    return status;
}
