/* SPDX-License-Identifier: BSD-3-Clause */
/* From nghttp2 to the socket. */
#include "ft/rpc/server.h"

#include <errno.h>
#include <sys/socket.h>

static void want(struct rpc_conn *conn, bool room)
{
    if (conn->writes == room) return;
    conn->writes = room;
    tutti_loop_change(conn->server->config.loop, &conn->watch, room ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void rpc_conn_drain(struct rpc_conn *conn)
{
    for (;;) {
        if (conn->n_out == 0) {
            const ssize_t n = nghttp2_session_mem_send(conn->session, &conn->out);
            if (n < 0) conn->broken = true;
            if (n <= 0) break;
            conn->n_out = (size_t)n;
        }
        const ssize_t n = send(conn->watch.fd, conn->out, conn->n_out, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        if (n < 0) {
            conn->broken = true;
            break;
        }
        conn->out += n, conn->n_out -= (size_t)n;
    }
    if (!conn->broken) want(conn, conn->n_out > 0);
}

void rpc_conn_flush(struct rpc_conn *conn)
{
    if (conn->inside || conn->broken) return;
    conn->inside = true;
    rpc_conn_drain(conn);
    conn->inside = false;
    if (conn->broken) shutdown(conn->watch.fd, SHUT_RDWR); /* the loop hears of it, and closes it */
}
