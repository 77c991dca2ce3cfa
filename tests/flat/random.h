/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_FLAT_RANDOM_H
#define TUTTI_TESTS_FLAT_RANDOM_H

/* Random calls of all kinds: a plan says what all ranks call, drawn alike by all of them from one seed; a slot is one
 * rank's buffers for a call in flight. After the call every byte of the buffers is compared with an image that is made
 * from the plan alone. Which rank sends and gets which blocks comes from the table of kinds. */

#include "ranks.h"
#include "sched/kind.h"

/* Whether a rank is in place, or a buffer mapped: none, all, or some ranks. */
enum random_which { RANDOM_NO, RANDOM_YES, RANDOM_SOME, RANDOM_N_WHICH };

#define RANDOM_MAX_RANKS 20
#define RANDOM_ARENA ((size_t)1 << 20) /* bytes of a buffer, guards included */
#define RANDOM_GUARD 64

struct random_plan {
    enum tutti_kind kind;
    bool v;
    enum tutti_dtype dtype;
    int op;         /* enum tutti_op; -1: the user's, which does not commute */
    bool any_order; /* inputs whose reduction is exact whatever the order; else results are folded from left to right */
    size_t count;
    int32_t root;
    const char *method; /* "flat:stage"; NULL: chosen */
    enum random_which in_place, send_mapped, recv_mapped;
    bool async;
    uint64_t seed;
    size_t counts[RANDOM_MAX_RANKS][RANDOM_MAX_RANKS]; /* [from][to]: elements of a block */
};

struct random_draw {
    uint32_t n;
    size_t chunk;       /* bytes of a slot of staging, around which sizes are interesting */
    size_t most;        /* bytes of a call; 0: what a buffer holds */
    bool rooted;        /* only kinds in which ranks wait for one at most */
    bool left_to_right; /* the ranks' results are folded so */
};
uint64_t random_next(uint64_t *state);
void random_plan(uint64_t *random, const struct random_draw *draw, struct random_plan *out);
void random_print(const struct random_plan *plan, char *out, size_t capacity);

struct random_slot {
    unsigned char *arenas[4];                             /* private and mapped, for sending and for receiving */
    unsigned char *send, *recv, *send_arena, *recv_arena; /* send, recv: NULL where the rank passes none */
    size_t bytes;                                         /* each arena's that are compared */
    size_t send_displs[RANDOM_MAX_RANKS], recv_displs[RANDOM_MAX_RANKS];
    unsigned char *image[2]; /* what the arenas are to hold afterwards: of send, of recv; the first alone in place */
    struct tutti_work *work;
};
bool random_slot_open(struct rank *rank, struct random_slot *slot);
void random_slot_close(struct rank *rank, struct random_slot *slot);
/* Fills the buffers, and the image of what they are to hold. */
void random_prepare(const struct rank *rank, const struct random_plan *plan, struct random_slot *slot);
enum tutti_status random_start(struct rank *rank, const struct random_plan *plan, enum tutti_op user,
                               struct random_slot *slot);
/* Where the buffers differ from the image; NULL: nowhere. */
const char *random_compare(const struct random_plan *plan, const struct random_slot *slot);
/* The user's operation: composes affine maps of 32-bit integers, two in a uint64. */
void random_compose(const void *left, const void *right, void *out, size_t count, enum tutti_dtype dtype, void *arg);

#endif
