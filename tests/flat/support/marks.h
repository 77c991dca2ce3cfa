/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_FLAT_MARKS_H
#define TUTTI_TESTS_FLAT_MARKS_H

/* Calls whose data are fingerprints: every word of every input is a random number of 64 bits that follows from seed,
 * rank, block and place, and reductions add them up. So each word of an output tells exactly whose words it is made of,
 * and a wrong one can be told by what it lacks or has twice. A plan says what all ranks call; a sheet is one rank's
 * buffers for one call, compared byte by byte, guards included. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/tutti.h>

#include "sched/sched.h"

#define MARK_MAX_RANKS 256
#define MARK_GUARD 64 /* bytes around buffers that nobody may write */

struct mark_plan {
    enum tutti_kind kind;
    bool v;             /* unequal blocks, for the kinds that have such a form */
    bool scaled;        /* inputs are multiplied first (premul_sum) */
    char algorithm[24]; /* "flat:stage", as calls name it; "": chosen. It outlives the call */
    size_t count;       /* words of a block; v: of the longest that can be */
    uint32_t n, root;
    uint64_t in_place, send_mapped, recv_mapped; /* by rank: bit rank % 64 */
    uint64_t seed;
};

uint64_t mark_random(uint64_t *state);
bool mark_has_v(enum tutti_kind kind);
/* Words of the larger side of a call, at most. */
size_t mark_words(enum tutti_kind kind, uint32_t n, size_t count);
void mark_print(const struct mark_plan *plan, char *out, size_t capacity);

/* What random calls are drawn from. */
struct mark_mix {
    uint32_t n;
    size_t chunk;      /* bytes of a slot of staging, around which sizes are interesting */
    size_t words_most; /* the larger side's */
    bool small;        /* blocks of some lines at most */
    bool rooted;       /* only kinds with a root */
    bool ahead;        /* only broadcasts of rank 0, which never waits but for room */
    bool named;        /* half of them by a method that is named, of those in flat's table */
};
void mark_draw(uint64_t *random, const struct mark_mix *mix, struct mark_plan *out);
/* A call of `count` words a block that this method carries out where it can: root, and what else does not matter, are
 * drawn. */
struct flat_method;
void mark_suit(uint64_t *random, const struct flat_method *method, uint32_t n, size_t count, struct mark_plan *out);

/* One side of a call: blocks, in words from where the buffer begins. */
struct mark_side {
    uint32_t n;
    size_t words;
    size_t count[MARK_MAX_RANKS], at[MARK_MAX_RANKS];
};
struct mark_sheet {
    size_t capacity;         /* bytes of an arena */
    unsigned char *arena[4]; /* private and mapped: send, recv, send, recv. The caller's, at least two */
    unsigned char *image;    /* owned */
    struct mark_side in, out;
    unsigned char *used[2];     /* arenas of this call: of send and of recv, or one of both */
    unsigned char *send, *recv; /* NULL where the rank has none */
    size_t used_bytes[2];
    bool scribbled;
};
/* Bytes of an arena for so many words of a side. */
size_t mark_arena_bytes(size_t words);
/* arenas: as above; without mapped ones the private serve for both. False: no memory. */
bool mark_sheet_open(struct mark_sheet *sheet, size_t capacity, unsigned char *const arenas[4]);
void mark_sheet_close(struct mark_sheet *sheet);

/* Fills the buffers for rank `me`. */
void mark_prepare(const struct mark_plan *plan, uint32_t me, struct mark_sheet *sheet);
/* Starts the call on a communicator: work NULL blocks. */
enum tutti_status mark_start(const struct mark_plan *plan, struct mark_sheet *sheet, struct tutti_comm *comm,
                             struct tutti_work **work);
/* After the call: false and why the buffers are not what they have to be. If all is well they are scribbled over, since
 * they are the caller's again; who touches them later is found out by mark_touched. */
bool mark_check(const struct mark_plan *plan, uint32_t me, struct mark_sheet *sheet, char *why, size_t capacity);
void mark_scribble(struct mark_sheet *sheet); /* the same after a call that failed */
bool mark_touched(const struct mark_sheet *sheet);

#endif
