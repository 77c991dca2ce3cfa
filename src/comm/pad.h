/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_OBJECT_PAD_H
#define TUTTI_COMM_OBJECT_PAD_H

/* A pad is memory of one rank that its peers, which may be late, write in place: the signals of a window. It is given
 * back when its owner and all who reach it have let go of it, died or left: in one address space by the last of them,
 * else by its owner, when it takes or gives the next one, or at the end of its family. Where ranks do not agree whether
 * they made it, some never let go: in one address space it then stays. */

#include "base/bell.h"
#include "comm/comm.h"

struct tutti_pad { /* what is shared; the user's bytes begin behind tutti_pad_head */
    struct tutti_bell bell;
    _Atomic uint32_t gone;    /* its owner has let go */
    _Atomic uint32_t n_users; /* in one address space: who has not let go */
    uint64_t bytes;           /* ... and its size */
    _Atomic uint8_t let_go[]; /* by rank */
};
struct tutti_own_pad {
    struct tutti_own_pad *next; /* given, not back yet */
    struct tutti_family *family;
    struct tutti_pad *pad;
    size_t bytes;
    _Atomic uint32_t holds; /* its owner's, and one a call that waits for a word in it */
    bool unseen;            /* nobody has mapped it, nor will */
    uint32_t n, me;
    uint32_t members[];
};

/* Where the user's bytes begin, of n ranks. */
static inline size_t tutti_pad_head(uint32_t n)
{
    return (sizeof(struct tutti_pad) + n + TUTTI_CACHE_LINE - 1) / TUTTI_CACHE_LINE * TUTTI_CACHE_LINE;
}

/* A zeroed pad for `bytes`. MEMORY. */
enum tutti_status tutti_pad_take(struct tutti_comm *comm, size_t bytes, struct tutti_own_pad **out);
static inline void tutti_pad_hold(struct tutti_own_pad *own)
{
    atomic_fetch_add(&own->holds, 1);
}
/* The last one lets go; the family is still there. Any thread. */
void tutti_pad_drop(struct tutti_own_pad *own);
/* This rank uses a peer's pad no more. */
void tutti_pad_let_go(const struct tutti_comm *comm, struct tutti_pad *pad);

#endif
