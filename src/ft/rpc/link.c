/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes between a socket and nghttp2. */
#include "ft/rpc/link.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#define READ_BYTES (64 << 10)

static bool would_block(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK;
}

enum tutti_status rpc_proof_init(const char *secret, struct tutti_certificate *certificate, struct rpc_proof *out)
{
    static const char purpose[] = "tutti ft rpc 1";

    *out = (struct rpc_proof){.certificate = certificate, .has_key = secret != NULL};
    if (!secret) return TUTTI_OK;
    if (!tutti_tls_available())
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "a secret needs OpenSSL: install libssl-dev, then build again");
    return tutti_hmac(secret, strlen(secret), purpose, sizeof purpose - 1, out->key);
}

enum tutti_status rpc_link_secure(struct rpc_link *link, bool client, const struct rpc_proof *proof)
{
    const struct tutti_tls_proof by = {.key = proof->has_key ? proof->key : NULL, .certificate = proof->certificate};
    return tutti_tls_open(link->watch.fd, client, &by, &link->tls);
}

void rpc_link_tune(int fd)
{
    static const struct {
        int level, name, value;
    } rows[] = {{IPPROTO_TCP, TCP_NODELAY, 1},   {SOL_SOCKET, SO_KEEPALIVE, 1}, {IPPROTO_TCP, TCP_KEEPIDLE, 5},
                {IPPROTO_TCP, TCP_KEEPINTVL, 5}, {IPPROTO_TCP, TCP_KEEPCNT, 3}, {IPPROTO_TCP, TCP_USER_TIMEOUT, 20000}};

    for (size_t i = 0; i < TUTTI_ARRAY_LEN(rows); i++)
        setsockopt(fd, rows[i].level, rows[i].name, &rows[i].value, sizeof rows[i].value);
}

static void watch(struct rpc_link *link)
{
    const uint32_t in = link->paused ? 0 : EPOLLIN, out = link->writes ? EPOLLOUT : 0;

    tutti_loop_change(link->loop, &link->watch, in | out);
}

static void watch_writing(struct rpc_link *link, bool writes)
{
    if (link->writes == writes) return;
    link->writes = writes;
    watch(link);
}

void rpc_link_pause(struct rpc_link *link, bool paused)
{
    link->paused = paused;
    watch(link);
}

enum tutti_status rpc_link_agree(struct rpc_link *link)
{
    const enum tutti_status status = tutti_tls_agree(link->tls);

    if (status >= 0) watch_writing(link, tutti_tls_wants_room(link->tls));
    return status;
}

/* Returns how many bytes were sent; 0: the socket is full; -1: the link is broken. */
static ssize_t put(struct rpc_link *link, const uint8_t *bytes, size_t n)
{
    size_t written = 0;
    ssize_t sent;

    if (link->tls) {
        const enum tutti_status status = tutti_tls_write(link->tls, bytes, n, &written);
        return status < 0 ? -1 : status == TUTTI_PENDING ? 0 : (ssize_t)written;
    }
    do sent = send(link->watch.fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent < 0 && would_block() ? 0 : sent;
}

/* The same of bytes that came. */
static ssize_t get(struct rpc_link *link, uint8_t *bytes, size_t capacity)
{
    size_t n = 0;
    ssize_t got;

    if (link->tls) {
        const enum tutti_status status = tutti_tls_read(link->tls, bytes, capacity, &n);
        return status < 0 ? -1 : status == TUTTI_PENDING ? 0 : (ssize_t)n;
    }
    do got = recv(link->watch.fd, bytes, capacity, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    return got == 0 || (got < 0 && !would_block()) ? -1 : got < 0 ? 0 : got;
}

/* Writes until nghttp2 has nothing more to say, or the socket is full. */
static void drain(struct rpc_link *link)
{
    while (!link->broken) {
        if (link->n_out == 0) {
            const ssize_t n = nghttp2_session_mem_send(link->session, &link->out);
            if (n < 0) link->broken = true;
            if (n <= 0) break;
            link->n_out = (size_t)n;
        }
        const ssize_t n = put(link, link->out, link->n_out);
        if (n == 0) break;
        if (n < 0)
            link->broken = true;
        else
            link->out += n, link->n_out -= (size_t)n;
    }
    if (!link->broken) watch_writing(link, link->n_out > 0);
}

void rpc_link_flush(struct rpc_link *link)
{
    if (link->inside || link->broken || !link->session) return;
    link->inside = true;
    drain(link);
    link->inside = false;
    if (link->broken) shutdown(link->watch.fd, SHUT_RDWR);
}

/* All that TLS has, as the kernel does not tell of what it holds; else one piece. */
static void fill(struct rpc_link *link)
{
    uint8_t bytes[READ_BYTES];
    ssize_t n;

    do {
        n = get(link, bytes, sizeof bytes);
        if (n < 0 || (n > 0 && nghttp2_session_mem_recv(link->session, bytes, (size_t)n) < 0)) link->broken = true;
    } while (link->tls && n > 0 && !link->broken);
}

bool rpc_link_run(struct rpc_link *link, uint32_t events)
{
    link->inside = true;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) fill(link);
    drain(link);
    link->inside = false;
    return !link->broken &&
           (nghttp2_session_want_read(link->session) || nghttp2_session_want_write(link->session) || link->n_out > 0);
}
