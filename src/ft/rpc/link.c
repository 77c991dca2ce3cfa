/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes between a socket and nghttp2. */
#include "ft/rpc/link.h"

#include <errno.h>
#include <sys/socket.h>

#define READ_BYTES (64 << 10)

static bool would_block(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK;
}

static void want(struct rpc_link *link, bool room)
{
    if (link->writes == room) return;
    link->writes = room;
    tutti_loop_change(link->loop, &link->watch, room ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* Writes until nghttp2 has nothing more to say, or there is no room. */
static void drain(struct rpc_link *link)
{
    while (!link->broken) {
        if (link->n_out == 0) {
            const ssize_t n = nghttp2_session_mem_send(link->session, &link->out);
            if (n < 0) link->broken = true;
            if (n <= 0) break;
            link->n_out = (size_t)n;
        }
        const ssize_t n = send(link->watch.fd, link->out, link->n_out, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && would_block()) break;
        if (n < 0)
            link->broken = true;
        else
            link->out += n, link->n_out -= (size_t)n;
    }
    if (!link->broken) want(link, link->n_out > 0);
}

void rpc_link_flush(struct rpc_link *link)
{
    if (link->inside || link->broken || !link->session) return;
    link->inside = true;
    drain(link);
    link->inside = false;
    if (link->broken) shutdown(link->watch.fd, SHUT_RDWR);
}

static void fill(struct rpc_link *link)
{
    uint8_t bytes[READ_BYTES];
    ssize_t n;

    do n = recv(link->watch.fd, bytes, sizeof bytes, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n == 0 || (n < 0 && !would_block())) link->broken = true;
    if (n > 0 && nghttp2_session_mem_recv(link->session, bytes, (size_t)n) < 0) link->broken = true;
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
