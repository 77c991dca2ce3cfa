/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_PACKET_H
#define TUTTI_TRANSPORT_PACKET_H

/* The packet: the head of everything that one member sends to another. This is wire format: it holds no pointers, and
 * any change of it moves TUTTI_WIRE_VERSION. Members of one host copy the struct; a network encodes it field by field
 * (packet.c). Whoever takes a packet from another process asks tutti_packet_valid before it believes it. */

#include "base/base.h"

#define TUTTI_WIRE_VERSION 5

enum tutti_packet_type {
    TUTTI_PACKET_DATA = 1, /* a part of a message of a schedule; payload, or an offer (flags) */
    TUTTI_PACKET_GRANT,    /* the receiver is ready for the message of this identity */
    TUTTI_PACKET_CREDIT,   /* eager credits given back (credits, modulo 256; fifo and count as point-to-point) */
    TUTTI_PACKET_READ,     /* an offered message has been read: the sender may go on */
    TUTTI_PACKET_P2P,      /* point-to-point: envelope, with payload when small */
    TUTTI_PACKET_P2P_GRANT,
    TUTTI_PACKET_P2P_DATA,
    TUTTI_PACKET_P2P_READ,
    TUTTI_PACKET_ONE,        /* one-sided: an access; the payload of a put */
    TUTTI_PACKET_ONE_ANSWER, /* ... and what became of accesses; the payload of a get */
};
enum tutti_packet_flag { TUTTI_PACKET_OFFER = 1, TUTTI_PACKET_EAGER = 2, TUTTI_PACKET_LAST = 4 };

/* 80 bytes without padding. Every number of a member has 32 bits: a world may have more than a million.
 *
 * The identity of a message is what `source` sends under (comm, epoch, call, seq, slice, fifo). Two messages of one
 * world never share it. So a message that is late, repeated or of an older epoch is recognised. All of it is computed:
 * nobody writes tags.
 *
 * One-sided packets (engine/flight/onesided.h) use the same fields: flags: what it is; slice: the window; seq: number
 * of the access in its pair; count: all accesses of the receiver up to this number have taken effect; fifo: number of a
 * signal; total: bytes of the access; offset: in the window's part; call, signature: values. */
struct tutti_packet {
    uint8_t version, type, flags, credits;
    uint32_t source; /* member index of the sender; the receiving transport writes it: no peer speaks for another */
    /* the identity */
    uint64_t comm;  /* communicator id */
    uint32_t epoch; /* the communicator's: moves when its members change */
    uint32_t slice; /* the operation's. Point-to-point: the user's tag */
    uint64_t seq;   /* number of the operation in its communicator. Point-to-point: of the message in its pair */
    uint64_t call;  /* the operation: kind, dtype, op and root (tutti_call_word). Point-to-point: 0 */
    uint32_t fifo;  /* number of the message between this pair in this slice. Point-to-point: envelopes of the receiver
                     * with payload that are gone, so far; of all: count */
    /* the message */
    uint32_t bytes;     /* payload of this packet */
    uint64_t signature; /* the operation's: kind, dtype, op, root, count, algorithm: equal, or the ranks disagree */
    uint64_t total;     /* bytes of the whole message */
    uint64_t offset; /* where this payload begins in the message. Offers: where the message is in the sender's memory */
    uint64_t count;  /* the operation's: what a mismatch is told with */
};
/* Whether fifo and count are credits for envelopes. */
static inline bool tutti_packet_pays(const struct tutti_packet *packet)
{
    return packet->type == TUTTI_PACKET_CREDIT ||
           (packet->type >= TUTTI_PACKET_P2P && packet->type <= TUTTI_PACKET_P2P_READ);
}

#define TUTTI_PACKET_WIRE_BYTES 80
/* Little endian, field after field in the order of the struct. Any thread; never blocks. */
void tutti_packet_encode(const struct tutti_packet *packet, uint8_t out[TUTTI_PACKET_WIRE_BYTES]);
/* From the first TUTTI_PACKET_WIRE_BYTES of n bytes: on a stream the payload follows. PROTOCOL, and out is untouched,
 * when there are fewer, or when version, type or size can not be. */
enum tutti_status tutti_packet_decode(const uint8_t *bytes, size_t n, struct tutti_packet *out);
/* Whether there can be such a packet, with a payload of at most max_payload bytes. */
bool tutti_packet_valid(const struct tutti_packet *packet, size_t max_payload);
const char *tutti_packet_type_name(uint8_t type); /* "data"; "?" if unknown */

#endif
