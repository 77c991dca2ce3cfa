/* SPDX-License-Identifier: BSD-3-Clause */
/* The furthest step, as a lighthouse shows it: tutti's by /metrics, torchft's by its page. */
#include "chaos.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER 65536
#define WAIT_MS 200

static const struct {
    const char *path, *before; /* the number stands behind this; the greatest counts */
} pages[] = {{"/metrics", "\ntutti_lighthouse_max_step{job=\"default\"}"}, {"/status", "Step: "}};

static int dial(const char *host, const char *port)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int fd = -1;

    if (getaddrinfo(host, port, &hints, &found) != 0) return -1;
    for (const struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
        struct pollfd ready = {.events = POLLOUT};
        int error = 0;
        fd = ready.fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0) continue;
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0) break;
        if (errno == EINPROGRESS && poll(&ready, 1, WAIT_MS) == 1 &&
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error}) == 0 && error == 0)
            break;
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

/* Sends the request and reads until the end, or until nothing comes for a while. False: no answer of status 200. */
static bool get(int fd, const char *host, const char *path, char *answer)
{
    char request[256];
    size_t n = 0;
    const int length =
        snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, host);
    struct pollfd ready = {.fd = fd, .events = POLLIN};

    if (length < 0 || (size_t)length >= sizeof request || send(fd, request, (size_t)length, MSG_NOSIGNAL) != length)
        return false;
    while (n + 1 < ANSWER && poll(&ready, 1, WAIT_MS) == 1) {
        const ssize_t got = recv(fd, answer + n, ANSWER - 1 - n, 0);
        if (got <= 0) break;
        n += (size_t)got;
    }
    answer[n] = '\0';
    return n > 12 && strncmp(answer + 8, " 200", 4) == 0;
}

static bool greatest(const char *text, const char *before, int64_t *out)
{
    bool found = false;

    for (const char *at = text; (at = strstr(at, before)) != NULL;) {
        char *end;
        at += strlen(before);
        const long long value = strtoll(at, &end, 10);
        if (end == at) continue;
        if (!found || value > *out) *out = value;
        found = true;
    }
    return found;
}

static bool ask_one(char *address, int64_t *step)
{
    static char answer[ANSWER];
    char *host = strstr(address, "://") ? strstr(address, "://") + 3 : address;
    char *port = strrchr(host, ':');
    bool found = false;

    if (strchr(host, '@')) host = strchr(host, '@') + 1;
    if (!port) return false;
    *port++ = '\0';
    port[strspn(port, "0123456789")] = '\0';
    if (host[0] == '[') host++, host[strcspn(host, "]")] = '\0';
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(pages) && !found; i++) {
        const int fd = dial(host, port);
        if (fd < 0) return false;
        found = get(fd, host, pages[i].path, answer) && greatest(answer, pages[i].before, step);
        close(fd);
    }
    return found;
}

bool chaos_ask_step(const char *addresses, int64_t *step)
{
    char copy[CHAOS_ADDRESSES], *rest = copy;

    snprintf(copy, sizeof copy, "%s", addresses);
    for (char *one; (one = strsep(&rest, ",")) != NULL;)
        if (one[0] && ask_one(one, step)) return true;
    return false;
}
