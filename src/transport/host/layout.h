/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_HOST_LAYOUT_H
#define TUTTI_TRANSPORT_HOST_LAYOUT_H

/* The layout of the segment: the memory that the members of one host share. It holds no pointers, every part is found
 * by arithmetic from the number of members and the size of a ring, and whatever one member writes is read with
 * suspicion by the others. Pages that nobody touches cost nothing, so n x n rings are cheap.
 *
 * The limit of members: 4,096 x 4,096 rings of 16 KiB take 260 GiB of address space, which is little beside the 128 TiB
 * of a process.
 *
 *   header | cards[n] | members[n] | doorbells[n] | control | rings[receiver][sender]
 *
 * The part "control" belongs to control/host, which alone knows what lies there; the others only keep its room. */

#include "transport/host/ring.h"
#include "transport/host/segment.h"
#include "transport/open.h"
#include "transport/transport.h"

#define TUTTI_SEGMENT_MAGIC UINT64_C(0x6765736974747574) /* "tuttiseg" */
#define TUTTI_SEGMENT_VERSION 5
#define TUTTI_SEGMENT_HEADER_BYTES 4096
#define TUTTI_RING_MIN_BYTES (UINT32_C(16) << 10)
#define TUTTI_RING_MAX_BYTES (UINT32_C(1) << 20)
#define TUTTI_HEAP_MAX_BYTES (UINT64_C(1) << 40)

struct tutti_segment_header {
    uint64_t magic;
    uint32_t version, packet_bytes; /* must be equal: else the two builds do not understand one another */
    uint32_t n, ring_bytes;
    uint64_t control_bytes, heap_bytes, total_bytes;
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint32_t n_arrived;
};

enum tutti_member_state { TUTTI_MEMBER_ABSENT, TUTTI_MEMBER_OPEN, TUTTI_MEMBER_LEFT };
/* Written at open and close, so the line stays in every sender's cache. */
struct tutti_member {
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint32_t state;
    _Atomic uint32_t arrived;
};

/* What wakes a member. */
struct tutti_doorbell {
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint32_t ring; /* the futex */
    _Atomic uint32_t sleeping;
    _Atomic uint32_t room;    /* a ring that this member found full has been emptied */
    _Atomic uint64_t ready[]; /* bit i: member i has put something into its ring to this member */
};

struct tutti_segment_layout {
    uint64_t cards, members, doorbells, control, rings; /* offsets */
    uint64_t doorbell_stride, ring_stride;
    uint64_t total;
};

struct tutti_segment {
    _Atomic uint32_t handles;
    uint32_t n, ring_bytes;
    uint64_t control_bytes, heap_bytes;
    int control_fd, heap_fd; /* -1: plain memory */
    _Atomic int lives_fd;    /* plus one: holds the locks of tutti_segment_hold; 0: none */
    char *base;
    struct tutti_segment_layout layout;
};

/* n and ring_bytes are in range. Pure. */
struct tutti_segment_layout tutti_segment_layout(uint32_t n, uint32_t ring_bytes, uint64_t control_bytes);

static inline struct tutti_segment_header *tutti_segment_header(const struct tutti_segment *s)
{
    return (struct tutti_segment_header *)(void *)s->base;
}
static inline struct tutti_member *tutti_segment_member(const struct tutti_segment *s, uint32_t member)
{
    return (struct tutti_member *)(void *)(s->base + s->layout.members) + member;
}
static inline struct tutti_doorbell *tutti_segment_doorbell(const struct tutti_segment *s, uint32_t member)
{
    return (struct tutti_doorbell *)(void *)(s->base + s->layout.doorbells + member * s->layout.doorbell_stride);
}
/* Wakes the member if it sleeps. The writer of something for a member rings. */
void tutti_doorbell_ring(struct tutti_doorbell *doorbell);
static inline struct tutti_ring_shared *tutti_segment_ring(const struct tutti_segment *s, uint32_t receiver,
                                                           uint32_t sender)
{
    return (struct tutti_ring_shared *)(void *)(s->base + s->layout.rings +
                                                ((uint64_t)receiver * s->n + sender) * s->layout.ring_stride);
}

#endif
