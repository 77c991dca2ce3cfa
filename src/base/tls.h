/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BASE_TLS_H
#define TUTTI_BASE_TLS_H

/* TLS 1.3 on a socket, with fresh keys of the traffic (ECDHE). The two ends prove one another by a key that both have
 * (PSK), or by certificates that one CA, the job's, has signed. Both ways end alike: each end has secrets that the
 * other end alone has, too. tls_openssl.c, or tls_none.c where OpenSSL is missing. What both ends
 * agree on gives the keys of the records that follow (control/net/cipher.h), or of the frames that are signed
 * (session.h). */

#include "base/base.h"
#include "base/config.h"
#include "base/stream.h"

#define TUTTI_TLS_RECORD 16384
#define TUTTI_TLS_SESSION_TEXT (2 * TUTTI_HMAC_BYTES + 1)

/* ---- certificates ---- */
/* By which this process proves itself, with its key, and the CA by which it knows the others. */
struct tutti_certificate;
/* By options tls_ca, tls_cert, tls_key and tls_name; config NULL: of the environment. NULL: none is named. One object
 * for each set of files, which lives as long as the process; files that were renewed are read again. CONFIG: a file
 * that can not be used, with its name and why, or a secret beside it. UNSUPPORTED: built without OpenSSL. */
enum tutti_status tutti_certificate_of(const struct tutti_config *config, struct tutti_certificate **out);
/* The same of four texts, of which name alone may be "". */
enum tutti_status tutti_certificate_find(const char *ca, const char *cert, const char *key, const char *name,
                                         struct tutti_certificate **out);
/* For calls that take a secret: the environment's certificate where there is no secret. */
enum tutti_status tutti_certificate_beside(const char *secret, struct tutti_certificate **out);

/* ---- connections ---- */
struct tutti_tls;
bool tutti_tls_available(void);
/* By which the two ends prove one another. */
struct tutti_tls_proof {
    const uint8_t *key;                    /* TUTTI_HMAC_BYTES that both have, copied; NULL: */
    struct tutti_certificate *certificate; /* this */
};
/* fd: non-blocking, stays the caller's. UNSUPPORTED, MEMORY, CONFIG. */
enum tutti_status tutti_tls_open(int fd, bool client, const struct tutti_tls_proof *proof, struct tutti_tls **out);
/* OK: each end knows that the other one has accepted its proof; both have the same keys, and not a byte was read that
 * follows. PENDING. AUTH: the other end does not prove itself, or does not accept this one's proof. PEER_LEFT: it has
 * closed the connection before. PROTOCOL. Reading and writing agree by themselves, too, where a key is the proof. */
enum tutti_status tutti_tls_agree(struct tutti_tls *tls);
/* The same, waiting until the deadline: TIMEOUT without a record. cancel may be NULL; it is looked at often. */
enum tutti_status tutti_tls_agree_by(struct tutti_tls *tls, int fd, uint64_t deadline_ns, const _Atomic bool *cancel);
/* Once they agree: secrets that both ends know, for what comes in here, and for what goes out. MEMORY. */
enum tutti_status tutti_tls_secrets(struct tutti_tls *tls, uint8_t in[TUTTI_HMAC_BYTES], uint8_t out[TUTTI_HMAC_BYTES]);
/* The same as one secret, for a session that signs its frames (session.h). MEMORY. */
enum tutti_status tutti_tls_session(struct tutti_tls *tls, char out[TUTTI_TLS_SESSION_TEXT]);
/* OK: *n bytes came; capacity at least TUTTI_TLS_RECORD. PENDING. PEER_LEFT: the other end has said that no more comes.
 * PROTOCOL: the connection is broken, or not what it should be. */
enum tutti_status tutti_tls_read(struct tutti_tls *tls, void *out, size_t capacity, size_t *n);
/* OK: *n of the bytes are on their way. PENDING: call again with the same bytes. PROTOCOL. */
enum tutti_status tutti_tls_write(struct tutti_tls *tls, const void *bytes, size_t n_bytes, size_t *n);
bool tutti_tls_wants_room(const struct tutti_tls *tls); /* the last call waits for room in the socket */
void tutti_tls_finish(struct tutti_tls *tls);           /* says that no more comes */
void tutti_tls_close(struct tutti_tls *tls);            /* NULL is ignored */

/* ---- for those who do not speak it ---- */
/* NULL, or what bytes that came first say of the peer, as a sentence: a handshake of TLS begins, or an alert refuses.
 */
const char *tutti_tls_shows(const uint8_t *bytes, size_t n);
/* Tells a peer that begins TLS that this end does not: it hears an error at once, and does not dial again. */
void tutti_tls_refuse(int fd);

#endif
