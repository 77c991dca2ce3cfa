/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_HOST_RING_H
#define TUTTI_TRANSPORT_HOST_RING_H

/* A ring of packets from one producer to one consumer, in memory that both map. A record is a head of 96 bytes and the
 * payload, contiguous, in multiples of a cache line; what does not fit before the end is padded. Positions count bytes
 * from the ring's creation and never wrap. Each side keeps its own position in private memory and trusts nothing that
 * it reads from the other. */

#include "transport/transport.h"

#define TUTTI_RING_HEAD_BYTES 96 /* {length and kind, stamp, packet}; a payload after it is 32-byte aligned */

struct tutti_ring_shared {
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint64_t tail; /* the producer's line */
    _Atomic uint32_t stalled;                         /* the producer found no room and wants to hear of some */
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint64_t head; /* the consumer's line */
    _Alignas(TUTTI_CACHE_LINE) char data[];           /* ring_bytes */
};
struct tutti_ring_out {
    uint64_t tail, head; /* own; the consumer's, as last seen */
};
struct tutti_ring_in {
    uint64_t head, tail; /* own; the producer's, as last seen */
};
struct tutti_ring_record {
    const struct tutti_packet *packet;
    uint64_t stamp; /* passes through */
    const struct tutti_span *spans;
    uint32_t n_spans;
};
struct tutti_ring_view {
    struct tutti_packet packet; /* a copy, checked */
    uint64_t stamp;
    const void *payload;
    uint64_t next; /* what pop needs */
};

/* For a ring of ring_bytes, a power of two of at least 16 KiB. */
static inline size_t tutti_ring_max_payload(size_t ring_bytes)
{
    return ring_bytes / 4;
}
static inline size_t tutti_ring_memory(size_t ring_bytes)
{
    return sizeof(struct tutti_ring_shared) + ring_bytes;
}

/* These return PROTOCOL without a record when the other side wrote nonsense: the caller knows whose ring it is. */

/* packet->bytes is the sum of the spans, and at most the maximum. AGAIN: there is no room; pop tells when there is. */
enum tutti_status tutti_ring_put(struct tutti_ring_shared *ring, size_t ring_bytes, struct tutti_ring_out *out,
                                 const struct tutti_ring_record *record);
/* The oldest record, which stays; AGAIN when there is none. */
enum tutti_status tutti_ring_peek(struct tutti_ring_shared *ring, size_t ring_bytes, struct tutti_ring_in *in,
                                  struct tutti_ring_view *out);
/* Gives the record's room back. True when the producer waits for room. */
bool tutti_ring_pop(struct tutti_ring_shared *ring, struct tutti_ring_in *in, uint64_t next);

#endif
