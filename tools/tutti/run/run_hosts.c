/* SPDX-License-Identifier: BSD-3-Clause */

#include "run_hosts.h"

#include "base/base.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool wrong(struct run_hosts *hosts, const char *format, ...) TUTTI_PRINTF(2, 3);
static bool wrong(struct run_hosts *hosts, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(hosts->why, sizeof hosts->why, format, ap);
    va_end(ap);
    return false;
}

/* What a remote shell can not take for an option, nor a shell for more than a name. */
static bool is_name(const char *name, size_t n)
{
    if (n == 0 || n >= RUN_HOST_NAME || name[0] == '-') return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("._-@:%", name[i])) return false;
    return true;
}

/* n 0: not said. */
static bool host_add(struct run_hosts *hosts, const char *name, size_t length, uint32_t n)
{
    if (!is_name(name, length)) return wrong(hosts, "'%.*s' is no name of a host", (int)length, name);
    for (size_t i = 0; i < hosts->n; i++) {
        struct run_host *host = &hosts->hosts[i];
        if (strlen(host->name) != length || memcmp(host->name, name, length) != 0) continue;
        host->n = (host->n ? host->n : 1) + (n ? n : 1);
        return true;
    }
    if (hosts->n == RUN_MAX_HOSTS) return wrong(hosts, "there are more than %d hosts", RUN_MAX_HOSTS);
    if (hosts->n == hosts->capacity) {
        const size_t capacity = hosts->capacity ? 2 * hosts->capacity : 16;
        struct run_host *more = realloc(hosts->hosts, capacity * sizeof *more);
        if (!more) return wrong(hosts, "out of memory");
        hosts->hosts = more, hosts->capacity = capacity;
    }
    struct run_host *host = &hosts->hosts[hosts->n++];
    *host = (struct run_host){.n = n};
    memcpy(host->name, name, length);
    return true;
}

static bool count_read(const char *text, size_t n, uint32_t *out)
{
    if (n == 0 || n > 5) return false;
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isdigit((unsigned char)text[i])) return false;
        *out = *out * 10 + (uint32_t)(text[i] - '0');
    }
    return *out > 0 && *out <= RUN_MAX_RANKS;
}

/* "a", "a:4", "[fd00::1]", "[fd00::1]:4". */
static bool entry_read(struct run_hosts *hosts, const char *text, size_t n)
{
    const char *end = text + n, *name = text, *after;
    uint32_t count = 0;
    if (n > 0 && text[0] == '[') {
        name++;
        after = memchr(text, ']', n);
        if (!after) return wrong(hosts, "'%.*s' has no ']'", (int)n, text);
        n = (size_t)(after++ - name);
    } else {
        after = memchr(text, ':', n);
        if (!after) after = end;
        n = (size_t)(after - name);
    }
    if (after < end && (*after != ':' || !count_read(after + 1, (size_t)(end - after - 1), &count)))
        return wrong(hosts, "'%.*s': write HOST:RANKS, such as a:4, and [ADDRESS]:4 for an address of IPv6",
                     (int)(end - text), text);
    return host_add(hosts, name, n, count);
}

bool run_hosts_list(struct run_hosts *hosts, const char *text)
{
    for (;; text++) {
        const size_t n = strcspn(text, ",");
        if (!entry_read(hosts, text, n)) return false;
        text += n;
        if (*text == '\0') return true;
    }
}

/* Without the comment; words are at blanks. */
static bool line_read(struct run_hosts *hosts, const char *line, size_t n)
{
    const char *words[3];
    size_t lengths[3], n_words = 0;
    for (size_t i = 0; i < n;) {
        if (isspace((unsigned char)line[i])) {
            i++;
            continue;
        }
        const size_t begin = i;
        while (i < n && !isspace((unsigned char)line[i])) i++;
        if (n_words == 2) return wrong(hosts, "'%.*s': write HOST, HOST:RANKS or HOST slots=RANKS", (int)n, line);
        words[n_words] = line + begin, lengths[n_words++] = i - begin;
    }
    if (n_words == 0) return true;
    if (n_words == 1) return entry_read(hosts, words[0], lengths[0]);
    uint32_t count;
    const size_t prefix = strlen("slots=");
    if (lengths[1] <= prefix || memcmp(words[1], "slots=", prefix) != 0 ||
        !count_read(words[1] + prefix, lengths[1] - prefix, &count))
        return wrong(hosts, "'%.*s': write HOST, HOST:RANKS or HOST slots=RANKS", (int)n, line);
    return host_add(hosts, words[0], lengths[0], count);
}

bool run_hosts_file(struct run_hosts *hosts, const char *text)
{
    for (;; text++) {
        const size_t n = strcspn(text, "\n"), used = strcspn(text, "\n#");
        if (!line_read(hosts, text, used)) return false;
        text += n;
        if (*text == '\0') break;
    }
    return hosts->n > 0 || wrong(hosts, "it names no host");
}

/* ---- Slurm ---- */

/* Adds prefix + what the pattern in [text, end) stands for. */
static bool pattern_expand(struct run_hosts *hosts, const char *prefix, const char *text, const char *end)
{
    char name[RUN_HOST_NAME];
    const char *open = memchr(text, '[', (size_t)(end - text));
    const size_t plain = (size_t)((open ? open : end) - text), before = strlen(prefix);
    if (before + plain >= sizeof name) return wrong(hosts, "'%.60s' is too long for a name of a host", prefix);
    memcpy(name, prefix, before);
    memcpy(name + before, text, plain);
    if (!open) return host_add(hosts, name, before + plain, 0);
    const char *close = memchr(open, ']', (size_t)(end - open)), *at = open + 1;
    if (!close) return wrong(hosts, "'%.*s' has no ']'", (int)(end - text), text);
    while (at < close) {
        char *last;
        const unsigned long from = strtoul(at, &last, 10);
        const int width = (int)(last - at); /* with its zeros */
        unsigned long to = from;
        if (width == 0 || width > 9) return wrong(hosts, "'%.*s' is no list of nodes", (int)(end - text), text);
        if (*last == '-') {
            at = last + 1;
            to = strtoul(at, &last, 10);
            if (last == at || last - at > 9) to = 0;
        }
        if (to < from || to - from >= RUN_MAX_HOSTS || last > close || (*last != ',' && last != close))
            return wrong(hosts, "'%.*s' is no list of nodes", (int)(end - text), text);
        for (unsigned long i = from; i <= to; i++) {
            char longer[RUN_HOST_NAME + 16];
            const int n = snprintf(longer, sizeof longer, "%.*s%0*lu", (int)(before + plain), name, width, i);
            if (n >= RUN_HOST_NAME || !pattern_expand(hosts, longer, close + 1, end)) return false;
        }
        at = *last == ',' ? last + 1 : last;
    }
    return true;
}

static bool tasks_read(struct run_hosts *hosts, const char *text)
{
    size_t i = 0;
    while (*text && i < hosts->n) {
        char *end;
        unsigned long tasks = strtoul(text, &end, 10), times = 1;
        if (end[0] == '(' && end[1] == 'x') {
            times = strtoul(end + 2, &end, 10);
            if (*end++ != ')') break;
        }
        if (tasks < 1 || tasks > RUN_MAX_RANKS || times < 1 || (*end && *end != ',')) break;
        for (; times > 0 && i < hosts->n; times--) hosts->hosts[i++].n = (uint32_t)tasks;
        text = *end ? end + 1 : end;
    }
    return i == hosts->n || wrong(hosts, "the tasks of nodes do not suit the list of nodes");
}

bool run_hosts_slurm(struct run_hosts *hosts, const char *nodes, const char *tasks)
{
    while (*nodes) {
        const char *end = nodes;
        for (bool inside = false; *end && (inside || *end != ','); end++)
            if (*end == '[' || *end == ']') inside = *end == '[';
        if (!pattern_expand(hosts, "", nodes, end)) return false;
        nodes = *end ? end + 1 : end;
    }
    if (hosts->n == 0) return wrong(hosts, "the list of nodes is empty");
    return !tasks || tasks_read(hosts, tasks);
}

/* ---- ranks ---- */

/* Hosts say how many they take: they are filled in order. */
static bool fill(struct run_hosts *hosts, uint32_t n_ranks)
{
    uint32_t rest = n_ranks, room = 0;
    for (size_t i = 0; i < hosts->n; i++) {
        struct run_host *host = &hosts->hosts[i];
        if (host->n == 0) host->n = 1;
        room += host->n;
        if (n_ranks && host->n > rest) host->n = rest;
        rest -= n_ranks ? host->n : 0;
    }
    return rest == 0 || wrong(hosts, "-n %u: the hosts take %u ranks together", n_ranks, room);
}

bool run_hosts_share(struct run_hosts *hosts, uint32_t n_ranks)
{
    bool said = n_ranks == 0;
    uint32_t first = 0;
    size_t n = 0;
    for (size_t i = 0; i < hosts->n; i++) said = said || hosts->hosts[i].n > 0;
    for (size_t i = 0; !said && i < hosts->n; i++)
        hosts->hosts[i].n = n_ranks / (uint32_t)hosts->n + (i < n_ranks % hosts->n);
    if (said && !fill(hosts, n_ranks)) return false;
    for (size_t i = 0; i < hosts->n; i++) {
        if (hosts->hosts[i].n == 0) continue;
        if (hosts->hosts[i].n > RUN_MAX_RANKS - first)
            return wrong(hosts, "there are more than %d ranks", RUN_MAX_RANKS);
        hosts->hosts[n] = hosts->hosts[i];
        hosts->hosts[n].first = first;
        first += hosts->hosts[n++].n;
    }
    hosts->n = n;
    return true;
}

uint32_t run_hosts_ranks(const struct run_hosts *hosts)
{
    return hosts->n ? hosts->hosts[hosts->n - 1].first + hosts->hosts[hosts->n - 1].n : 0;
}

const char *run_host_of(const struct run_hosts *hosts, uint32_t rank)
{
    for (size_t i = hosts->n; i-- > 0;)
        if (rank >= hosts->hosts[i].first) return hosts->hosts[i].name;
    return NULL;
}

void run_hosts_fini(struct run_hosts *hosts)
{
    free(hosts->hosts);
    *hosts = (struct run_hosts){.n = 0};
}
