/* SPDX-License-Identifier: BSD-3-Clause */

/* A connection on its way to its proof: reads frame by frame, and not a byte more, since what follows belongs to who
 * gets the socket. */

#include "control/net/conn.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

enum tutti_status tutti_net_conn_read(struct tutti_net_conn *conn)
{
    const size_t due = tutti_proof_due(&conn->proof);
    while (conn->n_bytes < due) {
        const ssize_t n = recv(conn->watch.fd, conn->bytes + conn->n_bytes, due - conn->n_bytes, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return TUTTI_PENDING;
        if (n < 0) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "the connection broke before it was proved");
        if (n == 0) return tutti_fail(TUTTI_ERR_SYSTEM, "it closed the connection before it was proved");
        conn->n_bytes += (size_t)n;
        if (!tutti_proof_may_be(conn->bytes, conn->n_bytes))
            return tutti_fail(TUTTI_ERR_PROTOCOL, "it does not speak the protocol of tutti");
    }
    conn->n_bytes = 0;
    return TUTTI_OK;
}

enum tutti_status tutti_net_conn_send(struct tutti_net_conn *conn, const struct tutti_proof_out *out)
{
    if (out->n == 0) return TUTTI_OK;
    const ssize_t n = send(conn->watch.fd, out->bytes, out->n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n == (ssize_t)out->n) return TUTTI_OK;
    return tutti_fail_errno(TUTTI_ERR_SYSTEM, "the connection broke before it was proved");
}

int tutti_net_conn_take(struct tutti_net_conn *conn)
{
    const int fd = conn->watch.fd;
    tutti_loop_forget(conn->net->loop, &conn->watch);
    tutti_loop_stop(conn->net->loop, &conn->timer);
    conn->watch.fd = -1;
    return fd;
}

void tutti_net_conn_end(struct tutti_net_conn *conn)
{
    if (conn->watch.fd >= 0) close(tutti_net_conn_take(conn));
}
