/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_NET_TLS_H
#define TUTTI_CONTROL_NET_TLS_H

/* TLS 1.3 on a socket, with a key that both ends have from their proof, so without certificates; keys of the traffic
 * are fresh (ECDHE). tls_openssl.c, or tls_none.c where OpenSSL is missing. The calling thread has SIGPIPE blocked.
 * What both ends agree on gives the keys of the records that follow (cipher.h). */

#include "base/base.h"
#include "base/stream.h"

#define TUTTI_TLS_RECORD 16384

struct tutti_tls;
bool tutti_tls_available(void);
/* fd: non-blocking, stays the caller's. UNSUPPORTED, MEMORY. */
enum tutti_status tutti_tls_open(int fd, bool client, const uint8_t key[TUTTI_HMAC_BYTES], struct tutti_tls **out);
/* OK: both ends have the same keys, and not a byte was read that follows. PENDING. AUTH: the other end says that it
 * has another key, or none. PROTOCOL. Reading and writing agree by themselves, too. */
enum tutti_status tutti_tls_agree(struct tutti_tls *tls);
/* Once they agree: secrets that both ends know, for what comes in here, and for what goes out. MEMORY. */
enum tutti_status tutti_tls_secrets(struct tutti_tls *tls, uint8_t in[TUTTI_HMAC_BYTES], uint8_t out[TUTTI_HMAC_BYTES]);
/* OK: *n bytes came; capacity at least TUTTI_TLS_RECORD. PENDING. PEER_LEFT: the other end has said that no more comes.
 * PROTOCOL: the connection is broken, or not what it should be. */
enum tutti_status tutti_tls_read(struct tutti_tls *tls, void *out, size_t capacity, size_t *n);
/* OK: *n of the bytes are on their way. PENDING: call again with the same bytes. PROTOCOL. */
enum tutti_status tutti_tls_write(struct tutti_tls *tls, const void *bytes, size_t n_bytes, size_t *n);
bool tutti_tls_wants_room(const struct tutti_tls *tls); /* the last call waits for room in the socket */
void tutti_tls_finish(struct tutti_tls *tls);           /* says that no more comes */
void tutti_tls_close(struct tutti_tls *tls);

#endif
