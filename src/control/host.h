/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_HOST_H
#define TUTTI_CONTROL_HOST_H

/* The control of one host: who lives, boards and failures, all in the memory that the members share, so every question
 * is answered at once. It uses the segment of transport/host and keeps its own part of it, whose layout is below; what
 * a member writes there is read with suspicion by the others. Begin with board.c.
 *
 *     lives[n] | boards[n][TUTTI_BOARD_ALL] | failures[n] | asks[n] | claims */

#include "control/control.h"
#include "transport/host/layout.h"

/* The identity of a member: written at open and close, so the line stays in every reader's cache. */
struct tutti_host_life {
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint32_t state; /* enum tutti_member_state */
    _Atomic int32_t pid;
    _Atomic uint64_t start; /* when the process began, in clock ticks after boot: tells a reused pid */
    _Atomic uint64_t pid_namespace;
    _Atomic uint64_t world; /* asks.h: struct tutti_who */
    _Atomic uint32_t member, n_members;
    _Atomic uint64_t host[13];
    _Atomic uint32_t held; /* it has its lock of the segment (tutti_segment_hold) */
};

/* Two copies. The writer fills the copy that `sequence` does not point to, then moves `sequence` on. So a writer that
 * dies halfway leaves the last whole board behind. */
#define TUTTI_BOARD_WORDS (sizeof(struct tutti_board) / 8)
struct tutti_board_row {
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint64_t sequence; /* boards published so far */
    _Atomic uint64_t counted;
    _Atomic uint64_t words[2][TUTTI_BOARD_WORDS];
};
_Static_assert(sizeof(struct tutti_board) % 8 == 0, "boards are copied word by word");

/* The part of a failure that is written for others. */
struct tutti_failure_record {
    uint64_t comm, seq;
    uint32_t epoch, culprit, step;
    int32_t status, peer, os_errno;
    char text[TUTTI_ERROR_TEXT];
};
#define TUTTI_FAILURE_WORDS (sizeof(struct tutti_failure_record) / 8)
_Static_assert(sizeof(struct tutti_failure_record) % 8 == 0, "failures are copied word by word");

/* Failure k of a member is in slot k % SLOTS. `stamp` is 2k + 1 while it is written and 2k + 2 after; `n_raised` is
 * counted last. So a writer that dies halfway has raised nothing. There are many slots: a rank that computes reads no
 * failures, and its peers may end very many communicators meanwhile. */
#define TUTTI_FAILURE_SLOTS 512
struct tutti_failure_slot {
    _Atomic uint64_t stamp;
    _Atomic uint64_t words[TUTTI_FAILURE_WORDS];
};
struct tutti_failure_row {
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint64_t n_raised;
    struct tutti_failure_slot slots[TUTTI_FAILURE_SLOTS];
};

/* What all members share. Each word says whose failure of a communicator counts. */
#define TUTTI_CLAIMS 384
struct tutti_claims {
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint32_t hint; /* failures raised so far, by all */
    /* The member whose failure of a communicator counts: a hash of it and its epoch, and 1 + the member, in 48 and 16
     * bits. */
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint64_t words[TUTTI_CLAIMS];
};

/* What this member knows of one peer. */
struct tutti_host_known {
    uint64_t failures_read;
    _Atomic bool dead;
    _Atomic int32_t pidfd_plus_one; /* 0: not opened yet */
};

struct tutti_host_control {
    struct tutti_control base;
    struct tutti_segment *segment;
    struct tutti_host_life *lives;      /* n */
    struct tutti_board_row *boards;     /* n times TUTTI_BOARD_ALL */
    struct tutti_failure_row *failures; /* n */
    struct tutti_asks *asks;            /* n; asks.h */
    struct tutti_claims *claims;
    struct tutti_host_known *known; /* n */
    int32_t pid;
    uint64_t pid_namespace;
    uint32_t hint_seen; /* failures raised by all when this member last read them all */
    _Atomic uint32_t n_pidfds;
    _Atomic uint32_t publishing; /* spin lock: publish and raise may be called by any thread */
};
static inline struct tutti_host_control *tutti_host_control_of(struct tutti_control *c)
{
    return (struct tutti_host_control *)(void *)c;
}

/* The room in a segment of n members: `control_bytes` of its configuration. */
uint64_t tutti_host_control_bytes(uint32_t n);
/* Opens member `me`; takes over the handle on success. ARGUMENT: it was opened before. PROTOCOL: the segment was made
 * by another build. */
enum tutti_status tutti_host_control_open(struct tutti_segment *segment, uint32_t me, struct tutti_control **out);
/* For who is no member: lives and boards can be read, and asks made (asks.h); `publish`, `raise` and `failure` do
 * nothing. Takes over the handle on success. PROTOCOL. */
enum tutti_status tutti_host_control_observe(struct tutti_segment *segment, struct tutti_host_control **out);

/* board.c */
void tutti_host_publish(struct tutti_control *c, uint32_t slot, const struct tutti_board *board);
enum tutti_status tutti_host_peek(struct tutti_control *c, uint32_t peer, uint32_t slot, struct tutti_board *out);
_Atomic uint64_t *tutti_host_counter(struct tutti_control *c, uint32_t slot);
void tutti_host_raise(struct tutti_control *c, const struct tutti_failure *failure);
enum tutti_status tutti_host_failure(struct tutti_control *c, struct tutti_failure *out);

#endif
