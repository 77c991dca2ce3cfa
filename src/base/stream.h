/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BASE_STREAM_H
#define TUTTI_BASE_STREAM_H

/* What passes the bytes of a connection in place of its socket, because it encrypts them (control/net/tls.h). Who owns
 * the socket still sleeps on it and closes it. One thread at a time; no call blocks. */

#include <stdbool.h>
#include <stddef.h>
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

#endif
