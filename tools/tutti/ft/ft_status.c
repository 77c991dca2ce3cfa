/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti ft status`: what a lighthouse knows, as a table. It asks for /status.json, and reads of it what it shows. */
#include "ft.h"

#include "base/base.h"
#include "base/config.h"
#include "ft/serve/serve.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define PATIENCE_S 10
#define MOST_BYTES ((size_t)64 << 20)

/* ---- the text ---- */
static int dial(const char *host, const char *port)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const struct timeval most = {PATIENCE_S, 0};
    struct addrinfo *all = NULL;
    int fd = -1;

    if (getaddrinfo(host, port, &hints, &all) != 0) return -1;
    for (struct addrinfo *one = all; one && fd < 0; one = one->ai_next) {
        fd = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0) continue;
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
        if (connect(fd, one->ai_addr, one->ai_addrlen) == 0) continue;
        close(fd);
        fd = -1;
    }
    freeaddrinfo(all);
    return fd;
}

/* All that comes until the other end closes; NULL: it does not come whole. */
static char *read_all(int fd)
{
    size_t n = 0, room = 1 << 16;
    char *text = malloc(room + 1);
    ssize_t got = 0;

    while (text && (got = recv(fd, text + n, room - n, 0)) > 0) {
        n += (size_t)got;
        if (n < room) continue;
        char *more = room < MOST_BYTES ? realloc(text, 2 * room + 1) : NULL;
        if (!more) break;
        text = more, room *= 2;
    }
    if (!text || got != 0) {
        free(text);
        return NULL;
    }
    text[n] = '\0';
    return text;
}

/* "http://JOB@host:port", as clients have it. */
struct where {
    char host[256], port[6], job[65];
};
static bool read_address(const char *text, struct where *where)
{
    const char *at = strncmp(text, "http://", 7) == 0 ? text + 7 : text, *job = strchr(at, '@');
    const char *end = at + strcspn(at, "/,"), *host = job && job < end ? job + 1 : at, *colon = end;

    *where = (struct where){.job = "default"};
    if (host > at) snprintf(where->job, sizeof where->job, "%.*s", (int)(host - 1 - at), at);
    while (colon > host && *colon != ':') colon--;
    if (colon == host || end - colon < 2 || end - colon > 6 || colon - host >= (ptrdiff_t)sizeof where->host)
        return false;
    memcpy(where->port, colon + 1, (size_t)(end - colon - 1));
    const bool brackets = host[0] == '[' && colon[-1] == ']';
    memcpy(where->host, host + brackets, (size_t)(colon - host) - (size_t)(2 * brackets));
    return true;
}

/* The body; NULL: a sentence was printed. */
static char *fetch(const char *address, const char *token)
{
    struct where where;
    char request[1024];

    if (!read_address(address, &where)) {
        fprintf(stderr, "tutti ft status: \"%s\" is no address: write http://HOST:PORT\n", address);
        return NULL;
    }
    const int fd = dial(where.host, where.port);
    snprintf(request, sizeof request, "GET /status.json?job=%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s%s%s\r\n",
             where.job, where.host, token[0] ? "Authorization: Bearer " : "", token, token[0] ? "\r\n" : "");
    const bool sent = fd >= 0 && send(fd, request, strlen(request), MSG_NOSIGNAL) == (ssize_t)strlen(request);
    char *text = sent ? read_all(fd) : NULL, *body = text ? strstr(text, "\r\n\r\n") : NULL;
    if (fd >= 0) close(fd);
    if (!body)
        fprintf(stderr, "tutti ft status: no answer from %s port %s: %s\n", where.host, where.port, strerror(errno));
    else if (strncmp(text, "HTTP/1.1 200", 12) != 0)
        fprintf(stderr, "tutti ft status: %s", body + 4), body = NULL;
    char *copy = body ? strdup(body + 4) : NULL;
    free(text);
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
    char name[200], state[16], step[32], age[32], address[200];

    if (!end) return;
    printf("%-40s %-8s %10s %10s  %s\n", "group", "state", "step", "heard ms", "manager");
    while ((at = strstr(at, "\n  {")) && at < end) {
        const char *stop = strchr(at + 1, '\n');
        if (!stop || stop > end) stop = end;
        printf("%-40s %-8s %10s %10s  %s\n", value(at, stop, "replica_id", name, sizeof name),
               value(at, stop, "state", state, sizeof state), value(at, stop, "step", step, sizeof step),
               value(at, stop, "heartbeat_age_ms", age, sizeof age),
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
    bool json = false;
    const struct tutti_arg args[] = {{"json", 0, TUTTI_ARG_FLAG, &json, NULL, "as JSON, with the last events"}};
    const struct tutti_args spec = {
        .command = "tutti ft status",
        .usage = "ADDRESS [--json]",
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
    const int status = show(argv[argc - 1], config.text[TUTTI_OPT_secret], json);
    tutti_config_fini(&config);
    return status;
}
