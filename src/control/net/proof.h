/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_NET_PROOF_H
#define TUTTI_CONTROL_NET_PROOF_H

/* The proof of a connection, as bytes: pure, without sockets, times and random numbers of its own.
 *
 *     dialer                                          acceptor
 *     tutti_proof_dial    -> HELLO     -------------> tutti_proof_received
 *     tutti_proof_received             <- CHALLENGE   (its own nonce; signed)
 *                         -> PROOF     -------------> tutti_proof_received: proved, PROVED
 *     tutti_proof_received             <- READY       tutti_proof_answer: OK, AGAIN or why not
 *
 * All frames have one layout, of integers in little-endian:
 *     magic 4, version 1, type 1, role 1, flags 1, from 4, to 4, world 8, nonce 16, status 4, accepted 4
 * and, but for HELLO, a MAC of 32 bytes. `world` is a number made from the key by HMAC: it tells the jobs apart, and
 * nothing of the key. Each frame repeats role, from and to, so that the signed ones cover what HELLO said. */

#include "control/net/net.h"

#include "base/session.h"

#define TUTTI_PROOF_BYTES ((size_t)48)
#define TUTTI_PROOF_SIGNED (TUTTI_PROOF_BYTES + TUTTI_HMAC_BYTES)

enum tutti_proof_type { TUTTI_PROOF_HELLO = 1, TUTTI_PROOF_CHALLENGE, TUTTI_PROOF_PROOF, TUTTI_PROOF_READY };

struct tutti_proof_frame {
    enum tutti_proof_type type;
    enum tutti_net_role role;
    bool has_secret;   /* its sender has one; only for sentences: the key decides */
    uint32_t from, to; /* members: who sends it, and to whom */
    uint64_t world;
    uint8_t nonce[TUTTI_NONCE_BYTES]; /* HELLO, CHALLENGE: that of who sends it; else zero */
    int32_t status;                   /* READY */
    uint32_t accepted;                /* PROOF: connections of this role that the dialer has accepted from `to` */
};
void tutti_proof_encode(const struct tutti_proof_frame *frame, uint8_t out[TUTTI_PROOF_BYTES]);
/* Reads the bytes before the MAC. PROTOCOL: what can not be, with a sentence. */
enum tutti_status tutti_proof_decode(const uint8_t bytes[TUTTI_PROOF_BYTES], struct tutti_proof_frame *out);
/* Whether bytes that came may be the front of a frame: else there is no need to wait for the rest. */
bool tutti_proof_may_be(const uint8_t *bytes, size_t n);

/* What a member signs with, made once; secret NULL: the world's number alone, and what certificates agree on for each
 * connection. UNSUPPORTED: built without HMAC. */
struct tutti_proof_key {
    char text[2 * TUTTI_HMAC_BYTES + 1];
    uint64_t world; /* as it is shown */
    bool has_secret;
};
enum tutti_status tutti_proof_key_init(struct tutti_proof_key *key, const char *secret, uint64_t world);
void tutti_proof_key_fini(struct tutti_proof_key *key);

/* One end of one connection. */
struct tutti_proof {
    const struct tutti_proof_key *key;   /* borrowed */
    char text[2 * TUTTI_HMAC_BYTES + 1]; /* what the session signs with: the key's, bound to certificates if they are */
    struct tutti_session session;
    enum tutti_proof_type due; /* the frame that this end waits for */
    bool proved;               /* acceptor: `answer` is due; dialer: READY has come */
    enum tutti_net_role role;
    uint32_t me, peer, n_members;
    uint32_t accepted;        /* the dialer's, of its PROOF */
    enum tutti_status status; /* READY's */
};
/* Bytes of the frame that is due. */
static inline size_t tutti_proof_due(const struct tutti_proof *proof)
{
    return proof->due == TUTTI_PROOF_HELLO ? TUTTI_PROOF_BYTES : TUTTI_PROOF_SIGNED;
}
struct tutti_proof_out {
    uint8_t bytes[TUTTI_PROOF_SIGNED];
    size_t n; /* 0: nothing to send */
};
/* nonce: random, of this connection alone. */
void tutti_proof_dial(struct tutti_proof *proof, const struct tutti_proof_key *key, enum tutti_net_role role,
                      uint32_t me, uint32_t peer, const uint8_t nonce[TUTTI_NONCE_BYTES], struct tutti_proof_out *out);
void tutti_proof_accept(struct tutti_proof *proof, const struct tutti_proof_key *key, uint32_t me, uint32_t n_members,
                        const uint8_t nonce[TUTTI_NONCE_BYTES]);
/* The certificates of both ends were good: agreed, which both have and nobody else (tutti_tls_session), signs as well
 * as the key from now on. Before any frame. */
enum tutti_status tutti_proof_bind(struct tutti_proof *proof, const char *agreed);
/* The frame that is due, whole. `accepted` is what a dialer says in its PROOF. PROTOCOL, AUTH: what is in `out` is sent
 * nevertheless, and the connection closed; the record says why. */
enum tutti_status tutti_proof_received(struct tutti_proof *proof, const uint8_t *bytes, uint32_t accepted,
                                       struct tutti_proof_out *out);
/* A key that both ends of this connection have, and nobody else: for what comes after the proof. */
enum tutti_status tutti_proof_channel_key(const struct tutti_proof *proof, uint8_t out[TUTTI_HMAC_BYTES]);
/* READY of an acceptor whose dialer is proved. */
enum tutti_status tutti_proof_answer(struct tutti_proof *proof, enum tutti_status status, struct tutti_proof_out *out);

#endif
