/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_MEET_CODEC_H
#define TUTTI_CONTROL_MEET_CODEC_H

/* The messages of a meeting as bytes, a frame each. All types have the same fields; those that a type does not use are
 * zero. Integers are little-endian.
 *
 *   0  magic "TUMT"   4  version u8   5  type u8   6  flags u8   7  zero
 *   8  build u64     16  release, 16 bytes of text
 *  32  rank i32  n_ranks i32  pid i32  status i32  peer i32  patience in ms u32
 *  56  host u64      64  world u64   72  nonce, 16 bytes
 *  88  lost: rank i32, pid i32, start u64, ms that its seat is still kept u32
 * 108  bytes of payload u16    110  bytes of text u16
 * 112  payload, text; then, with flag SIGNED, an HMAC-SHA256 of 32 bytes
 *
 * In a VERDICT that is far, `lost: ms` is the number of bytes of the table, and the payload its digest.
 *
 * The first 32 bytes are the same in every version, so that two builds understand that they do not understand.
 * HELLO carries the member's nonce, CHALLENGE the leader's. With a secret all frames from CHALLENGE on are signed over
 * (direction, both nonces, number of the frame in its direction, frame): nothing can be altered, replayed, reordered or
 * reflected. */

#include "base/session.h"

#define TUTTI_MEETING_VERSION 3
#define TUTTI_MEETING_PAYLOAD 8192 /* at most, of one frame */
#define TUTTI_MEETING_HEAD_BYTES 112
#define TUTTI_MEETING_FRAME_MAX (TUTTI_MEETING_HEAD_BYTES + TUTTI_MEETING_PAYLOAD + TUTTI_ERROR_TEXT + TUTTI_HMAC_BYTES)

enum tutti_meeting_type {
    TUTTI_MEETING_HELLO = 1, /* member: who I am */
    TUTTI_MEETING_CHALLENGE, /* leader: who I am; signed */
    TUTTI_MEETING_PROOF,     /* member: signed; its payload is the member's card */
    TUTTI_MEETING_VERDICT, /* leader: status and sentence; when OK memory comes along: the segment, or (far) a table */
    TUTTI_MEETING_ACK,     /* member: has the memory, or why not */
    TUTTI_MEETING_ASK,     /* member: its time is over; who is missing? */
    TUTTI_MEETING_N_TYPES
};

/* A rank that had come, and went. */
struct tutti_meeting_loss {
    int32_t rank, pid; /* pid 0: nobody */
    uint64_t start,
        until_ns; /* when the process began; its seat is kept so long (in a message: for so long from now) */
};
struct tutti_meeting_message {
    enum tutti_meeting_type type;
    bool has_secret, shared, far, is_signed;
    uint64_t build;
    char release[16];
    int32_t rank, n_ranks, pid;
    int32_t status, peer; /* as in struct tutti_error */
    uint32_t patience_ms;
    uint64_t host, world; /* world: equal on all members, random */
    uint8_t nonce[TUTTI_NONCE_BYTES];
    struct tutti_meeting_loss lost;
    uint32_t total;         /* VERDICT, far: bytes of the table */
    const uint8_t *payload; /* borrowed: from whoever encodes, or from the decoded bytes */
    size_t n_payload;
    char text[TUTTI_ERROR_TEXT];
};
/* Pure; trusts no byte. OK. CONFIG: a frame of another version; build and release are filled in. PROTOCOL: no frame. */
enum tutti_status tutti_meeting_decode(const uint8_t *bytes, size_t n, struct tutti_meeting_message *out);
/* Encodes and, when the session is ready, signs. out has room for TUTTI_MEETING_FRAME_MAX. */
enum tutti_status tutti_meeting_encode(struct tutti_session *session, const struct tutti_meeting_message *message,
                                       uint8_t *out, size_t *bytes);
/* AUTH when a decoded frame is not signed as the session asks. Counts the frame. */
enum tutti_status tutti_meeting_verify(struct tutti_session *session, const uint8_t *bytes, size_t n,
                                       const struct tutti_meeting_message *message);

#endif
