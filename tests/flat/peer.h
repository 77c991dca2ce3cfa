/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_FLAT_PEER_H
#define TUTTI_TESTS_FLAT_PEER_H

/* Random calls of the kinds without a root: a plan says what all ranks call, drawn alike by all of them from one seed;
 * a slot is one rank's buffers for a call in flight. After the call every byte of the buffers is compared with an image
 * that is made from the plan alone. */

#include "ranks.h"

enum peer_kind {
    PEER_ALL_GATHER,
    PEER_REDUCE_SCATTER,
    PEER_ALL_TO_ALL,
    PEER_ALL_REDUCE, /* some of the other kinds, so that slots pass from one to the next, */
    PEER_BARRIER,
    PEER_BROADCAST, /* and so that ranks run ahead of one another */
    PEER_GATHER,
    PEER_N_KINDS
};
/* Whether a rank is in place, or a buffer mapped: none, all, and so from rank to rank. */
enum peer_which { PEER_NO, PEER_YES, PEER_SOME, PEER_N_WHICH };

#define PEER_MAX_RANKS 20
#define PEER_ARENA ((size_t)1 << 20) /* bytes of a buffer, guards included */
#define PEER_GUARD 64

struct peer_plan {
    enum peer_kind kind;
    bool v;
    enum tutti_dtype dtype;
    int op; /* enum tutti_op; -1: the user's, which does not commute */
    size_t count;
    int32_t root;
    const char *method; /* "flat:stage"; NULL: chosen */
    enum peer_which in_place, send_mapped, recv_mapped;
    bool async;
    uint64_t seed;
    size_t counts[PEER_MAX_RANKS][PEER_MAX_RANKS]; /* [from][to]: elements that one rank has for another */
};
/* chunk: bytes of a slot of staging, around which sizes are interesting. */
void peer_plan(uint64_t *random, uint32_t n, size_t chunk, struct peer_plan *out);
void peer_print(const struct peer_plan *plan, char *out, size_t capacity);
uint64_t peer_random(uint64_t *state);

struct peer_slot {
    unsigned char *arenas[4]; /* private and mapped, for sending and for receiving */
    unsigned char *send, *recv, *send_arena, *recv_arena;
    size_t send_bytes, recv_bytes; /* the arenas', from their start to the end of the guard behind the data */
    size_t send_displs[PEER_MAX_RANKS], recv_displs[PEER_MAX_RANKS];
    unsigned char *image[2]; /* what the arenas are to hold afterwards: of send, of recv; the first alone in place */
    struct tutti_work *work;
};
bool peer_slot_open(struct rank *rank, struct peer_slot *slot);
void peer_slot_close(struct rank *rank, struct peer_slot *slot);
/* Fills the buffers, and the image of what they are to hold. */
void peer_prepare(const struct rank *rank, const struct peer_plan *plan, struct peer_slot *slot);
enum tutti_status peer_start(struct rank *rank, const struct peer_plan *plan, enum tutti_op user,
                             struct peer_slot *slot);
/* Where the buffers differ from the image; NULL: nowhere. */
const char *peer_compare(const struct rank *rank, const struct peer_plan *plan, const struct peer_slot *slot);
/* The user's operation: composes affine maps of 32-bit integers, two in a uint64. */
void peer_compose(const void *left, const void *right, void *out, size_t count, enum tutti_dtype dtype, void *arg);

#endif
