/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_HOST_SEGMENT_H
#define TUTTI_TRANSPORT_HOST_SEGMENT_H

/* The layout of the memory that the members of one host share. It holds no pointers, every part is found by arithmetic
 * from the number of members and the size of a ring, and whatever one member writes is read with suspicion by the
 * others. Pages that nobody touches cost nothing, so n x n rings are cheap.
 *
 *   header | cards[n] | members[n] | doorbells[n] | boards[n][64] | failures[n] | rings[receiver][sender] */

#include "transport/host/ring.h"
#include "transport/transport.h"

#define TUTTI_SEGMENT_MAGIC UINT64_C(0x6765736974747574) /* "tuttiseg" */
#define TUTTI_SEGMENT_VERSION 2
#define TUTTI_SEGMENT_MAX_MEMBERS 1024
#define TUTTI_SEGMENT_HEADER_BYTES 4096
#define TUTTI_CLAIMS 384
#define TUTTI_RING_MIN_BYTES (UINT32_C(16) << 10)
#define TUTTI_RING_MAX_BYTES (UINT32_C(1) << 20)
#define TUTTI_HEAP_MAX_BYTES (UINT64_C(1) << 40)

struct tutti_segment_header {
    uint64_t magic;
    uint32_t version, packet_bytes, error_bytes; /* equal, or the two builds do not understand one another */
    uint32_t n, ring_bytes;
    uint64_t heap_bytes, total_bytes;
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint32_t n_arrived;
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint32_t hint; /* failures raised so far, by all */
    /* Whose failure of a communicator counts: a hash of it and its epoch, and 1 + the member, in 48 and 16 bits. */
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint64_t claims[TUTTI_CLAIMS];
};

enum tutti_member_state { TUTTI_MEMBER_ABSENT, TUTTI_MEMBER_OPEN, TUTTI_MEMBER_LEFT };
/* Who a member is: written at open and close, so the line stays in every reader's cache. */
struct tutti_member {
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint32_t state;
    _Atomic uint32_t arrived;
    _Atomic int32_t pid;
    _Atomic uint64_t start; /* of the process, in clock ticks after boot: tells a reused pid */
    _Atomic uint64_t pid_namespace;
};

/* What wakes a member. */
struct tutti_doorbell {
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint32_t ring; /* the futex */
    _Atomic uint32_t sleeping;
    _Atomic uint32_t room;    /* a ring that this member found full has been emptied */
    _Atomic uint64_t ready[]; /* bit i: member i has put something into its ring to this member */
};

/* Two copies: the one that `sequence` does not point to is written, then `sequence` moves on. So a writer that dies
 * halfway leaves the last whole board behind. */
#define TUTTI_BOARD_WORDS (sizeof(struct tutti_board) / 8)
struct tutti_board_row {
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint64_t sequence; /* boards published so far */
    _Atomic uint64_t words[2][TUTTI_BOARD_WORDS];
};
_Static_assert(sizeof(struct tutti_board) % 8 == 0, "boards are copied word by word");

/* What of a failure is carried. */
struct tutti_failure_wire {
    uint64_t comm, seq;
    uint32_t epoch, culprit, step;
    int32_t status, peer, os_errno;
    char text[TUTTI_ERROR_TEXT];
};
#define TUTTI_FAILURE_WORDS (sizeof(struct tutti_failure_wire) / 8)
_Static_assert(sizeof(struct tutti_failure_wire) % 8 == 0, "failures are copied word by word");

/* Failure k of a member is in slot k % SLOTS. `stamp` is 2k + 1 while it is written and 2k + 2 after, and `n_raised`
 * is counted last: a writer that dies halfway has raised nothing. A rank that computes looks at none, and its peers may
 * end very many communicators meanwhile. */
#define TUTTI_FAILURE_SLOTS 512
struct tutti_failure_slot {
    _Atomic uint64_t stamp;
    _Atomic uint64_t words[TUTTI_FAILURE_WORDS];
};
struct tutti_failure_row {
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint64_t n_raised;
    struct tutti_failure_slot slots[TUTTI_FAILURE_SLOTS];
};

struct tutti_segment_layout {
    uint64_t cards, members, doorbells, boards, failures, rings; /* offsets */
    uint64_t doorbell_stride, ring_stride;
    uint64_t total;
};

struct tutti_segment {
    _Atomic uint32_t handles;
    uint32_t n, ring_bytes;
    uint64_t heap_bytes;
    int control_fd, heap_fd; /* -1: plain memory */
    char *base;
    struct tutti_segment_layout layout;
};

/* n and ring_bytes are in range. Pure. */
struct tutti_segment_layout tutti_segment_layout(uint32_t n, uint32_t ring_bytes);

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
static inline struct tutti_board_row *tutti_segment_board(const struct tutti_segment *s, uint32_t member, uint32_t slot)
{
    return (struct tutti_board_row *)(void *)(s->base + s->layout.boards) + member * TUTTI_BOARD_ALL + slot;
}
static inline struct tutti_failure_row *tutti_segment_failures(const struct tutti_segment *s, uint32_t member)
{
    return (struct tutti_failure_row *)(void *)(s->base + s->layout.failures) + member;
}
static inline struct tutti_ring_shared *tutti_segment_ring(const struct tutti_segment *s, uint32_t receiver,
                                                           uint32_t sender)
{
    return (struct tutti_ring_shared *)(void *)(s->base + s->layout.rings +
                                                ((uint64_t)receiver * s->n + sender) * s->layout.ring_stride);
}

#endif
