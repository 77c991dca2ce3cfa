/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BASE_SESSION_H
#define TUTTI_BASE_SESSION_H

/* What codecs have in common: integers as little-endian bytes, and frames that are signed so that nothing can be
 * altered, replayed, reordered or reflected. */

#include "base/base.h"

#define TUTTI_NONCE_BYTES 16

static inline uint64_t tutti_le_load(const uint8_t *p, unsigned n)
{
    uint64_t x = 0;
    for (unsigned i = 0; i < n; i++) x |= (uint64_t)p[i] << (8 * i);
    return x;
}
static inline void tutti_le_store(uint8_t *p, unsigned n, uint64_t x)
{
    for (unsigned i = 0; i < n; i++) p[i] = (uint8_t)(x >> (8 * i));
}

/* What both ends of a connection know; the nonces are filled in as they pass. */
struct tutti_session {
    const char *secret;                   /* NULL: nothing is signed */
    uint8_t nonces[2][TUTTI_NONCE_BYTES]; /* the client's and the server's */
    uint64_t n_sent, n_received;          /* signed frames */
    bool server;                          /* this end is */
    bool ready;                           /* both nonces are there: for protocols that sign only then */
};
/* The MAC of a frame to be sent, bound to the protocol (at most 15 characters), direction, both nonces and the frame's
 * number in its direction; counts it. */
enum tutti_status tutti_session_sign(struct tutti_session *session, const char *protocol, const uint8_t *bytes,
                                     size_t n, uint8_t mac[TUTTI_HMAC_BYTES]);
/* mac NULL: the frame is not signed. AUTH: a frame is not signed that must be (`due`), or the other way round, or the
 * MAC is not that of the next frame. Else counts a signed frame. */
enum tutti_status tutti_session_check(struct tutti_session *session, bool due, const char *protocol,
                                      const uint8_t *bytes, size_t n, const uint8_t *mac);

#endif
