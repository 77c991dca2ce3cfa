/* SPDX-License-Identifier: BSD-3-Clause */
/* One request, one connection. */
#include "http.h"

#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define MOST_BYTES ((size_t)64 << 20)

bool tutti_http_where(const char *text, struct tutti_http_where *where)
{
    const char *at = strncmp(text, "http://", 7) == 0 ? text + 7 : text, *job = strchr(at, '@');
    const char *end = at + strcspn(at, "/,"), *host = job && job < end ? job + 1 : at, *colon = end;

    *where = (struct tutti_http_where){.job = "default"};
    if (host > at) snprintf(where->job, sizeof where->job, "%.*s", (int)(host - 1 - at), at);
    while (colon > host && *colon != ':') colon--;
    if (colon == host || end - colon < 2 || end - colon > 6 || colon - host >= (ptrdiff_t)sizeof where->host)
        return false;
    memcpy(where->port, colon + 1, (size_t)(end - colon - 1));
    if (strspn(where->port, "0123456789") != strlen(where->port) || atoi(where->port) > UINT16_MAX) return false;
    const bool brackets = host[0] == '[' && colon[-1] == ']';
    memcpy(where->host, host + brackets, (size_t)(colon - host) - (size_t)(2 * brackets));
    return true;
}

static int dial(const struct tutti_http_where *where, uint32_t patience_ms)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const struct timeval most = {patience_ms / 1000, (suseconds_t)(patience_ms % 1000) * 1000};
    struct addrinfo *all = NULL;
    int fd = -1;

    if (getaddrinfo(where->host, where->port, &hints, &all) != 0) return -1;
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

char *tutti_http_get(const struct tutti_http_where *where, const char *path, const char *token, uint32_t patience_ms)
{
    char request[1024];
    const int n = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s%s%s\r\n",
                           path, where->host, token[0] ? "Authorization: Bearer " : "", token, token[0] ? "\r\n" : "");
    const int fd = dial(where, patience_ms);
    const bool sent = fd >= 0 && n > 0 && (size_t)n < sizeof request && send(fd, request, (size_t)n, MSG_NOSIGNAL) == n;
    char *answer = sent ? read_all(fd) : NULL;

    if (fd >= 0) close(fd);
    return answer;
}

bool tutti_http_is_ok(const char *answer)
{
    return strncmp(answer, "HTTP/1.1 200", 12) == 0;
}

const char *tutti_http_body(const char *answer)
{
    const char *end = strstr(answer, "\r\n\r\n");
    return end ? end + 4 : NULL;
}
