/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_FT_RPC_LINK_H
#define TUTTI_FT_RPC_LINK_H

/* A socket with HTTP/2 on it: bytes between it and nghttp2, for servers and clients. Private to this folder, on the
 * loop's thread. */

#include "base/loop.h"
#include "base/tls.h"

#include <nghttp2/nghttp2.h>

struct rpc_link {
    struct tutti_loop_fd watch; /* first */
    struct tutti_loop *loop;
    struct tutti_tls *tls;    /* NULL: in the clear */
    nghttp2_session *session; /* NULL: nothing is spoken yet */
    const uint8_t *out;       /* nghttp2's, still to be written */
    size_t n_out;
    bool writes; /* is watched for writing */
    bool paused; /* does not read */
    bool inside; /* nghttp2 is on the stack: what it is told is sent when it returns */
    bool broken;
};

/* By what the two ends of connections prove one another. */
struct rpc_proof {
    uint8_t key[TUTTI_HMAC_BYTES]; /* made of the secret */
    struct tutti_certificate *certificate;
    bool has_key;
};
/* secret, certificate: at most one is not NULL. UNSUPPORTED. */
enum tutti_status rpc_proof_init(const char *secret, struct tutti_certificate *certificate, struct rpc_proof *out);
static inline bool rpc_proves(const struct rpc_proof *proof)
{
    return proof->has_key || proof->certificate;
}
/* Begins TLS on the link's socket. */
enum tutti_status rpc_link_secure(struct rpc_link *link, bool client, const struct rpc_proof *proof);
/* Goes on with the TLS handshake. OK: both ends have proved themselves. PENDING: call again when the socket is ready.
 * AUTH, PROTOCOL. */
enum tutti_status rpc_link_agree(struct rpc_link *link);
/* Small pieces go at once, and a host that vanishes is lost within some 20 s. */
void rpc_link_tune(int fd);
/* Passes what the socket has, up to a bound, to nghttp2, and its output to the socket. False: the link is over, and its
 * owner closes it. */
bool rpc_link_run(struct rpc_link *link, uint32_t events);
void rpc_link_pause(struct rpc_link *link, bool paused);
/* Writes what nghttp2 has to say, unless it is on the stack. Where that breaks the link the loop runs it soon. */
void rpc_link_flush(struct rpc_link *link);

static inline nghttp2_nv rpc_header(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, __builtin_strlen(name),
                        __builtin_strlen(value), NGHTTP2_NV_FLAG_NONE};
}

#endif
