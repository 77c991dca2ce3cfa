/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_SCHEDULE_H
#define TUTTI_SCHEDULE_H

/* How to write a collective: a pure function from (shape, round) to steps. No bytes, no pointers, no waiting, no tags:
 * see docs/schedules.md (rules S1-S10). What a function emits for one rank means what it means in program order; the
 * sealer infers what may overlap. */

#include <tutti/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tutti_kind {
    TUTTI_ALL_REDUCE,
    TUTTI_REDUCE,
    TUTTI_BROADCAST,
    TUTTI_ALL_GATHER,
    TUTTI_GATHER,
    TUTTI_SCATTER,
    TUTTI_REDUCE_SCATTER,
    TUTTI_ALL_TO_ALL,
    TUTTI_BARRIER,
    TUTTI_SCAN,
    TUTTI_EXSCAN,
    TUTTI_N_KINDS
};

/* A level groups consecutive units of the level below (level 0: slots; level 1: groups of level 0; ...) as runs:
 * 8,8,7,8 is {8,2},{7,1},{8,1}. The sizes of level 0 add up to the shape's size. */
#define TUTTI_MAX_RUNS 8
#define TUTTI_MAX_LEVELS 3
struct tutti_run {
    uint32_t size, repeat;
};
struct tutti_level {
    uint32_t n_runs;
    struct tutti_run runs[TUTTI_MAX_RUNS];
};

struct tutti_shape {
    uint32_t slot;     /* the slot whose steps are emitted */
    uint32_t size;     /* number of slots */
    uint32_t root;     /* rooted kinds; else 0 */
    uint32_t radix;    /* for trees, dissemination, Bruck; 0: the algorithm's default */
    uint32_t n_levels; /* 0: flat */
    struct tutti_level levels[TUTTI_MAX_LEVELS];
};

/* DATA is input and output as one (first touch reads the user's input); SCRATCH starts undefined; IN is read-only and
 * exists for all_to_all, whose chunk space is [destination] there and [source] in DATA. */
enum tutti_buffer { TUTTI_DATA, TUTTI_SCRATCH, TUTTI_IN };

/* Which side of the operation the incoming operand is on: dst = dst op in (RIGHT), dst = in op dst (LEFT). */
enum tutti_side { TUTTI_RIGHT, TUTTI_LEFT };

struct tutti_emit; /* where steps go */

/* n: number of consecutive chunks, >= 1. A send matches the receive with the same number of chunks that the peer emits
 * for it, k-th with k-th for each ordered pair. */
TUTTI_API void tutti_emit_send(struct tutti_emit *emit, uint32_t peer, enum tutti_buffer buffer, uint32_t chunk,
                               uint32_t n);
TUTTI_API void tutti_emit_recv(struct tutti_emit *emit, uint32_t peer, enum tutti_buffer buffer, uint32_t chunk,
                               uint32_t n);
/* Receives and combines into buffer[chunk..chunk+n). */
TUTTI_API void tutti_emit_recv_reduce(struct tutti_emit *emit, uint32_t peer, enum tutti_buffer buffer, uint32_t chunk,
                                      uint32_t n, enum tutti_side side);
TUTTI_API void tutti_emit_copy(struct tutti_emit *emit, enum tutti_buffer dst_buffer, uint32_t dst,
                               enum tutti_buffer src_buffer, uint32_t src, uint32_t n);
TUTTI_API void tutti_emit_reduce(struct tutti_emit *emit, enum tutti_buffer dst_buffer, uint32_t dst,
                                 enum tutti_buffer src_buffer, uint32_t src, uint32_t n, enum tutti_side side);

/* A whole collective on a sub-shape as one step. Slot s of the sub-shape is slot view->base + s * view->stride here;
 * the caller's slot must be one of them. Chunk c of the sub-collective (it is cut into view->n_chunks) is chunks [chunk
 * + c * width, ... + width) of DATA here. Checker, simulator and engine expand it into its reference schedule. */
struct tutti_view {
    uint32_t base, stride, size;     /* slots */
    uint32_t chunk, n_chunks, width; /* chunks of DATA */
    uint32_t root;                   /* slot of the sub-shape */
};
TUTTI_API void tutti_emit_call(struct tutti_emit *emit, enum tutti_kind kind, const struct tutti_view *view);

/* What an algorithm needs, as bits. */
enum tutti_needs {
    TUTTI_NEEDS_COMMUTATIVE = 1, /* does not keep the operands' order */
    TUTTI_NEEDS_POWER_OF_TWO = 2,
    TUTTI_NEEDS_LEVELS = 4,         /* at least one level */
    TUTTI_NEEDS_EQUAL_BLOCKS = 8,   /* not for v forms */
    TUTTI_KEEPS_RANK_ORDER = 16,    /* folds 0..p-1 from left to right, so results are equal whatever the algorithm */
    TUTTI_OWN_COUNTS_ONLY = 32,     /* v forms: each slot touches only blocks of its own row and column */
    TUTTI_TAKES_RADIX = 64,         /* takes a radix, but without a fixed default: 0 is left as it is */
    TUTTI_NEEDS_EQUAL_GROUPS = 128, /* on each level */
};

struct tutti_plan;

/* One kind's schedule of an algorithm. Blocks: all_gather, gather, scatter, reduce_scatter and all_to_all have one
 * block a slot; all others one block. chunks() must be a multiple of the number of blocks; chunk c belongs to block c /
 * (chunks / blocks). NULL chunks: one chunk a block; NULL scratch: none. */
struct tutti_schedule_ops {
    uint32_t needs;
    uint32_t default_radix; /* what 0 in a shape becomes; 0: the algorithm takes none (but see TUTTI_TAKES_RADIX) */
    uint32_t (*chunks)(const struct tutti_shape *shape);
    uint32_t (*scratch)(const struct tutti_shape *shape); /* SCRATCH chunks, sized as the largest chunk */
    uint32_t (*rounds)(const struct tutti_shape *shape);
    void (*round)(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit);
    /* For steps that are data (traced from Python, read from plans of others): the library sets it, and calls none of
     * the four above then. NULL, and an error, when there is no plan for the shape: UNSUPPORTED where it does not fit,
     * any other where it is wrong. Borrowed for as long as the algorithm. */
    const struct tutti_plan *(*plan)(const struct tutti_schedule_ops *ops, const struct tutti_shape *shape);
};

struct tutti_algorithm {
    const char *name;                                      /* "ring" */
    const char *help;                                      /* one line */
    const char *source;                                    /* paper or specification */
    const struct tutti_schedule_ops *kinds[TUTTI_N_KINDS]; /* NULL: not offered */
    uint64_t identity; /* leave it out: the library sets a hash of the file that an algorithm comes from */
};

/* A file of one function is an algorithm: this macro, and below it the body of a function that emits the steps of
 * shape->slot in `round`. CHUNKS, SCRATCH and ROUNDS are expressions of `shape`; all steps may be in
 * one round. The same struct may be written out where a file offers several kinds:
 *
 *     #include <tutti/schedule.h>
 *     TUTTI_COLLECTIVE(TUTTI_BROADCAST, "star", 0, 1, 0, 1)
 *     {
 *         for (uint32_t s = 0; shape->slot == shape->root && s < shape->size; s++)
 *             if (s != shape->root) tutti_emit_send(emit, s, TUTTI_DATA, 0, 1);
 *         if (shape->slot != shape->root) tutti_emit_recv(emit, shape->root, TUTTI_DATA, 0, 1);
 *     } */
#define TUTTI_COLLECTIVE(KIND, NAME, NEEDS, CHUNKS, SCRATCH, ROUNDS)                                                   \
    static uint32_t tutti_own_chunks(const struct tutti_shape *shape)                                                  \
    {                                                                                                                  \
        (void)shape;                                                                                                   \
        return (CHUNKS);                                                                                               \
    }                                                                                                                  \
    static uint32_t tutti_own_scratch(const struct tutti_shape *shape)                                                 \
    {                                                                                                                  \
        (void)shape;                                                                                                   \
        return (SCRATCH);                                                                                              \
    }                                                                                                                  \
    static uint32_t tutti_own_rounds(const struct tutti_shape *shape)                                                  \
    {                                                                                                                  \
        (void)shape;                                                                                                   \
        return (ROUNDS);                                                                                               \
    }                                                                                                                  \
    static void tutti_own_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit);             \
    static const struct tutti_schedule_ops tutti_own_ops = {                                                           \
        (NEEDS), 0, tutti_own_chunks, tutti_own_scratch, tutti_own_rounds, tutti_own_round, 0};                        \
    const struct tutti_algorithm tutti_algorithm = {                                                                   \
        .name = NAME, .help = "", .source = __FILE__, .kinds = {[KIND] = &tutti_own_ops}};                             \
    static void tutti_own_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)

TUTTI_API const char *tutti_kind_name(enum tutti_kind kind); /* "all_reduce" */

#ifdef __cplusplus
}
#endif

#endif
