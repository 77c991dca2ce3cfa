/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BASE_STREAM_H
#define TUTTI_BASE_STREAM_H

/* The bytes of a connection, in the clear or encrypted (base/tls.h): its users read and write by the
 * functions below and need not know which. The owner of the socket sleeps on it and closes it. One thread at a time; no
 * call blocks. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

struct tutti_stream;
struct tutti_stream_ops {
    /* As recvmsg and sendmsg of a socket that does not block: bytes, 0 at the end that the other end has said, or -1
     * with errno. A recv that gives less than was asked for has emptied the socket. What a send did not take is
     * offered again, the same bytes: a part of them may be on its way. */
    ssize_t (*recv)(struct tutti_stream *stream, const struct iovec *iov, size_t n_iov);
    ssize_t (*send)(struct tutti_stream *stream, const struct iovec *iov, size_t n_iov);
    bool (*holds)(const struct tutti_stream *stream); /* something was read from the socket, and not given by recv */
    void (*finish)(struct tutti_stream *stream);      /* says that no more comes */
    void (*close)(struct tutti_stream *stream);       /* frees it; not the socket */
};
struct tutti_stream {
    const struct tutti_stream_ops *ops;
};

/* The calls of the table, by the socket itself where the stream is NULL. */
static inline ssize_t tutti_stream_recv(struct tutti_stream *stream, int fd, struct iovec *iov, size_t n_iov)
{
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = n_iov};
    if (stream) return stream->ops->recv(stream, iov, n_iov);
    if (n_iov == 1) return recv(fd, iov[0].iov_base, iov[0].iov_len, MSG_DONTWAIT);
    return recvmsg(fd, &message, MSG_DONTWAIT);
}
static inline ssize_t tutti_stream_send(struct tutti_stream *stream, int fd, struct iovec *iov, size_t n_iov)
{
    const struct msghdr message = {.msg_iov = iov, .msg_iovlen = n_iov};
    if (stream) return stream->ops->send(stream, iov, n_iov);
    if (n_iov == 1) return send(fd, iov[0].iov_base, iov[0].iov_len, MSG_DONTWAIT | MSG_NOSIGNAL);
    return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}
static inline bool tutti_stream_holds(const struct tutti_stream *stream)
{
    return stream && stream->ops->holds(stream);
}
static inline void tutti_stream_close(struct tutti_stream *stream) /* NULL is ignored */
{
    if (stream) stream->ops->close(stream);
}

#endif
