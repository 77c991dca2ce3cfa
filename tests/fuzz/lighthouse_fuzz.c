/* SPDX-License-Identifier: BSD-3-Clause */

/* What strangers send to a lighthouse's port. The first byte says what the rest is: bytes as they are (HTTP, TLS,
 * nonsense), frames behind HTTP/2's preface, or the message of a call in frames that are right. The lighthouse ends
 * each connection whose peer has nothing more to say, and answers the next one who asks rightly. */

#include "ft/serve/serve.h"
#include "fuzz.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RAW, FRAMES, QUORUM, HEARTBEAT, N_KINDS };

static uint16_t port; /* of a lighthouse that this process serves; 0: it can not */

static void start(void)
{
    const struct tutti_serve_config config = {
        .bind = "127.0.0.1:0",
        .options = {1, 1, TUTTI_NS_PER_S, TUTTI_NS_PER_MS, TUTTI_NS_PER_S, 0},
    };
    struct tutti_serve *served;
    tutti_log_threshold = TUTTI_LOG_ERROR;
    if (port > 0 || tutti_serve_missing()[0]) return;
    if (tutti_serve_open(&config, &served) < 0) abort();
    port = (uint16_t)atoi(strrchr(tutti_serve_address(served), ':') + 1);
}

static size_t add(uint8_t *out, size_t at, const void *bytes, size_t n)
{
    memcpy(out + at, bytes, n);
    return at + n;
}

static size_t add_frame(uint8_t *out, size_t at, const uint8_t head[2], const void *bytes, size_t n)
{
    const uint8_t frame[9] = {(uint8_t)(n >> 16),  (uint8_t)(n >> 8), (uint8_t)n, head[0], head[1], 0, 0, 0,
                              head[0] == 4 ? 0 : 1};
    at = add(out, at, frame, sizeof frame);
    return add(out, at, bytes, n);
}

/* The call of one message, uncompressed headers. */
static size_t add_call(uint8_t *out, size_t at, const char *path, const uint8_t *message, size_t n)
{
    static uint8_t body[1 << 14], block[256];
    const uint8_t settings[2] = {4, 0}, headers[2] = {1, 4}, data[2] = {0, 1};
    const uint8_t prefix[5] = {0, 0, 0, (uint8_t)(n >> 8), (uint8_t)n};
    const size_t n_path = strlen(path);
    size_t n_block = add(block, 0, "\x83\x86", 2); /* POST, http */
    block[n_block++] = 0x04, block[n_block++] = (uint8_t)n_path;
    n_block = add(block, n_block, path, n_path);
    n_block = add(block, n_block, "\x01\x01x", 3); /* :authority */
    at = add_frame(out, at, settings, "", 0);
    at = add_frame(out, at, headers, block, n_block);
    memcpy(body, prefix, 5), memcpy(body + 5, message, n);
    return add_frame(out, at, data, body, n + 5);
}

static int dial(unsigned kind)
{
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval most = {kind == RAW ? 0 : 20, kind == RAW ? 1000 : 0};
    const struct linger at_once = {1, 0}; /* no port waits after its end */
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&at, sizeof at) < 0) abort();
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    return fd;
}

/* Sends, says that nothing more comes, and reads to the end. */
static size_t exchange(unsigned kind, const uint8_t *bytes, size_t n, char *out, size_t capacity)
{
    const int fd = dial(kind);
    size_t n_got = 0;
    ssize_t got;
    while (n > 0) {
        const ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent <= 0) break; /* it has closed already */
        bytes += sent, n -= (size_t)sent;
    }
    shutdown(fd, SHUT_WR);
    while ((got = recv(fd, out + n_got % capacity, capacity - n_got % capacity, 0)) > 0) n_got += (size_t)got;
    FUZZ_CHECK(got == 0 || errno != EAGAIN || kind == RAW); /* it ended, and in time */
    close(fd);
    return n_got;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    static const char *const paths[N_KINDS] = {
        [QUORUM] = "/torchft.LighthouseService/Quorum", [HEARTBEAT] = "/torchft.LighthouseService/Heartbeat"};
    static uint8_t out[1 << 16];
    static char answer[1 << 16];
    static unsigned n_inputs;
    size_t at = 0;
    start();
    if (port == 0 || n == 0 || n > 12000) return 0;
    const unsigned kind = bytes[0] % N_KINDS;
    if (kind != RAW) at = add(out, 0, preface, sizeof preface - 1);
    if (paths[kind])
        at = add_call(out, at, paths[kind], bytes + 1, n - 1);
    else
        at = add(out, at, bytes + 1, n - 1);
    exchange(kind, out, at, answer, sizeof answer);
    if (++n_inputs % 64 == 0) {
        at = add(out, 0, preface, sizeof preface - 1);
        at = add_call(out, at, paths[HEARTBEAT], (const uint8_t *)"\x0a\x01x", 3);
        FUZZ_CHECK(exchange(HEARTBEAT, out, at, answer, sizeof answer) > 9);
    }
    return 0;
}
