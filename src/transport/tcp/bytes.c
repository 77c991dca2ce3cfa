/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes of a peer: by its socket, or by what encrypts them. */

#include "transport/tcp/peer.h"

#include <sys/socket.h>

ssize_t tutti_tcp_peer_recv(struct tutti_tcp_peer *peer, struct iovec *iov, size_t n_iov)
{
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = n_iov};
    if (peer->stream) return peer->stream->ops->recv(peer->stream, iov, n_iov);
    if (n_iov == 1) return recv(peer->fd, iov[0].iov_base, iov[0].iov_len, MSG_DONTWAIT);
    return recvmsg(peer->fd, &message, MSG_DONTWAIT);
}

ssize_t tutti_tcp_peer_send(struct tutti_tcp_peer *peer, struct iovec *iov, size_t n_iov)
{
    const struct msghdr message = {.msg_iov = iov, .msg_iovlen = n_iov};
    if (peer->stream) return peer->stream->ops->send(peer->stream, iov, n_iov);
    if (n_iov == 1) return send(peer->out_fd, iov[0].iov_base, iov[0].iov_len, MSG_DONTWAIT | MSG_NOSIGNAL);
    return sendmsg(peer->out_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}
