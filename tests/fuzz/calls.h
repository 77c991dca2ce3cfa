/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_FUZZ_CALLS_H
#define TUTTI_TESTS_FUZZ_CALLS_H

/* What strangers send to a port where calls are answered: bytes, and the message of a call in frames that are right. */

#include "fuzz.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#define CALLS_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

static inline size_t calls_put(uint8_t *out, size_t at, const void *bytes, size_t n)
{
    memcpy(out + at, bytes, n);
    return at + n;
}

static inline size_t calls_add_frame(uint8_t *out, size_t at, const uint8_t head[2], const void *bytes, size_t n)
{
    const uint8_t frame[9] = {(uint8_t)(n >> 16),  (uint8_t)(n >> 8), (uint8_t)n, head[0], head[1], 0, 0, 0,
                              head[0] == 4 ? 0 : 1};
    at = calls_put(out, at, frame, sizeof frame);
    return calls_put(out, at, bytes, n);
}

/* The call of one message, uncompressed headers. */
static inline size_t calls_add(uint8_t *out, size_t at, const char *path, const uint8_t *message, size_t n)
{
    static uint8_t body[1 << 14], block[256];
    const uint8_t settings[2] = {4, 0}, headers[2] = {1, 4}, data[2] = {0, 1};
    const uint8_t prefix[5] = {0, 0, 0, (uint8_t)(n >> 8), (uint8_t)n};
    const size_t n_path = strlen(path);
    size_t n_block = calls_put(block, 0, "\x83\x86", 2); /* POST, http */
    block[n_block++] = 0x04, block[n_block++] = (uint8_t)n_path;
    n_block = calls_put(block, n_block, path, n_path);
    n_block = calls_put(block, n_block, "\x01\x01x", 3); /* :authority */
    at = calls_add_frame(out, at, settings, "", 0);
    at = calls_add_frame(out, at, headers, block, n_block);
    memcpy(body, prefix, 5), memcpy(body + 5, message, n);
    return calls_add_frame(out, at, data, body, n + 5);
}

static inline int calls_dial(uint16_t port, bool raw)
{
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval most = {raw ? 0 : 20, raw ? 1000 : 0};
    const struct linger at_once = {1, 0}; /* no port waits after its end */
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&at, sizeof at) < 0) abort();
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    return fd;
}

/* Sends, says that nothing more comes, and reads to the end. */
static inline size_t calls_exchange(uint16_t port, bool raw, const uint8_t *bytes, size_t n, char *out, size_t capacity)
{
    const int fd = calls_dial(port, raw);
    size_t n_got = 0;
    ssize_t got;
    while (n > 0) {
        const ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent <= 0) break; /* it has closed already */
        bytes += sent, n -= (size_t)sent;
    }
    shutdown(fd, SHUT_WR);
    while ((got = recv(fd, out + n_got % capacity, capacity - n_got % capacity, 0)) > 0) n_got += (size_t)got;
    FUZZ_CHECK(got == 0 || errno != EAGAIN || raw); /* it ended, and in time */
    close(fd);
    return n_got;
}

/* The one call of a new connection. */
static inline size_t calls_make(uint16_t port, const char *path, const uint8_t *message, size_t n)
{
    static uint8_t out[1 << 16];
    static char answer[1 << 16];
    size_t at = calls_put(out, 0, CALLS_PREFACE, sizeof CALLS_PREFACE - 1);

    at = calls_add(out, at, path, message, n);
    return calls_exchange(port, false, out, at, answer, sizeof answer);
}

#endif
