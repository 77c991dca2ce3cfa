/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_SCHED_SCHED_H
#define TUTTI_SCHED_SCHED_H

/* Shapes and sealed schedules: what the checker proves, the engine runs and the tools draw. Pure: no bytes, no pointers
 * to users' memory. This room may use base alone. Begin with kind.h, then struct tutti_step below; emit.c records what
 * an algorithm emits, seal.c makes a schedule of it. Thread: a sealed schedule is immutable and may be shared. */

#include "sched/kind.h"

#define TUTTI_WINDOW 64 /* S9: step i is considered once step i - 64 is complete */

/* ---- shapes (shape.c) ---- */
/* Parses "8,8,7,8;2,2" into levels; ARGUMENT with a sentence when sizes do not add up to the shape's size, which is
 * filled in where it is 0. */
enum tutti_status tutti_shape_parse_levels(struct tutti_shape *shape, const char *text);
void tutti_shape_levels_text(const struct tutti_shape *shape, char *out, size_t capacity);
uint32_t tutti_level_groups(const struct tutti_level *level);
/* Group of unit `index` at this level: its number, first unit and size. */
void tutti_level_find(const struct tutti_level *level, uint32_t index, uint32_t *group, uint32_t *first,
                      uint32_t *size);
/* Equal but for the slot. */
bool tutti_shape_same_world(const struct tutti_shape *a, const struct tutti_shape *b);

/* A group of slots whose calls somebody carries out whole: base + i * stride for i < size. */
struct tutti_lane {
    uint32_t base, stride, size;
    uint32_t kinds; /* bit k: calls of kind k */
};
/* The lanes that one slot is in. Several may have the same slots: then they take the calls in turn, one each. */
#define TUTTI_MAX_LANES 12
struct tutti_lanes {
    struct tutti_lane lanes[TUTTI_MAX_LANES];
    uint32_t n;
};
#define TUTTI_NO_LANE UINT32_MAX
/* What the slot's group at a level looks like to calls: the slots with its place in the group's units (at level 0 all
 * slots of the group). It is the same for all of them. False: the slot is alone, or the units are not equally large. */
bool tutti_shape_lane(const struct tutti_shape *shape, uint32_t slot, uint32_t level, struct tutti_lane *out);

/* ---- sealed schedules (emit.c, seal.c) ---- */
enum tutti_step_op {
    TUTTI_STEP_SEND,
    TUTTI_STEP_RECV,
    TUTTI_STEP_RECV_REDUCE,
    TUTTI_STEP_COPY,
    TUTTI_STEP_REDUCE,
    TUTTI_STEP_CALL
};
enum tutti_step_flag {
    TUTTI_STEP_LEFT = 1,      /* dst = in op dst */
    TUTTI_STEP_SRC_INPUT = 2, /* the source chunks are read from the user's input (first touch) */
    TUTTI_STEP_DST_INPUT = 4, /* the destination's old value is read from the user's input: dst = input op in */
};
struct tutti_step { /* 40 bytes, no pointer, no byte count */
    uint64_t wait;  /* bit j: step i-1-j must be complete first */
    uint8_t op;     /* enum tutti_step_op */
    uint8_t flags;
    uint8_t src_buffer, dst_buffer; /* enum tutti_buffer */
    uint32_t peer;                  /* send, recv; CALL: index of the view */
    uint32_t src, dst, n;           /* chunks */
    uint32_t fifo;                  /* number of this message among those to (or from) the same peer, from 0 */
    uint32_t round;                 /* for sentences and drawings */
    uint32_t extent; /* the n chunks are as large as DATA chunks extent, extent + 1, ...: the one rule for bytes, for
                        SCRATCH too (the sealer infers it from where the chunks come from or go to). Reads of IN: as
                        large as IN chunks src, src + 1, ... TUTTI_NO_EXTENT: never tied to DATA, so all are as large
                        as the largest chunk (only where all are equal: NEEDS_EQUAL_BLOCKS). */
};
#define TUTTI_NO_EXTENT UINT32_MAX
static inline bool tutti_step_sends(const struct tutti_step *step)
{
    return step->op == TUTTI_STEP_SEND;
}
static inline bool tutti_step_receives(const struct tutti_step *step)
{
    return step->op == TUTTI_STEP_RECV || step->op == TUTTI_STEP_RECV_REDUCE;
}
static inline bool tutti_step_is_message(const struct tutti_step *step)
{
    return tutti_step_sends(step) || tutti_step_receives(step);
}
static inline bool tutti_step_reduces(const struct tutti_step *step)
{
    return step->op == TUTTI_STEP_REDUCE || step->op == TUTTI_STEP_RECV_REDUCE;
}
static inline bool tutti_step_reads_src(const struct tutti_step *step)
{
    return step->op == TUTTI_STEP_SEND || step->op == TUTTI_STEP_COPY || step->op == TUTTI_STEP_REDUCE;
}
static inline bool tutti_step_writes_dst(const struct tutti_step *step)
{
    return step->op != TUTTI_STEP_SEND && step->op != TUTTI_STEP_CALL;
}
struct tutti_schedule {
    struct tutti_shape shape;
    enum tutti_kind kind;
    const struct tutti_algorithm *algorithm;
    uint32_t n_chunks, n_scratch, n_rounds, n_steps;
    uint32_t n_calls;
    struct tutti_lane_call {
        enum tutti_kind kind;
        struct tutti_view view;
        uint32_t lane, number, step; /* its lane, its number among the lane's calls, its step */
    } * calls;                       /* unexpanded calls, in program order */
    struct tutti_lanes lanes;        /* what it was sealed for */
    uint64_t hash;                   /* over the algorithm's name, kind, shape without slot (equal on all slots) */
    struct tutti_step *steps;
    char *defect; /* NULL, or a sentence: the algorithm emitted something impossible (peer or chunk out of range,
                     reading what was never written, too many steps); such a schedule is never run */
};

/* Seals the steps of shape->slot. expand: replace calls by their reference schedules (engine, checker) or keep them
 * (drawings). *out is destroyed with tutti_schedule_destroy. Errors: UNSUPPORTED (kind not offered, needs not met),
 * MEMORY. A defective algorithm is not an error here: out->defect says it. */
enum tutti_status tutti_schedule_seal(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                      const struct tutti_shape *shape, bool expand, struct tutti_schedule **out);
/* The beginning of what would be long: the steps of the first rounds alone, with calls replaced, and nothing that makes
 * the result whole. n_rounds is that of all. For looks at it; it is never run. */
enum tutti_status tutti_schedule_seal_rounds(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                             const struct tutti_shape *shape, uint32_t most_rounds,
                                             struct tutti_schedule **out);
/* The same for an engine: calls of these lanes (NULL: none) are kept where one call is one run of memory a block,
 * whatever the slice; all others are expanded. */
enum tutti_status tutti_schedule_seal_lanes(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                            const struct tutti_shape *shape, const struct tutti_lanes *lanes,
                                            struct tutti_schedule **out);
void tutti_schedule_destroy(struct tutti_schedule *schedule);

/* Some rounds of one slot, as they were emitted: calls are expanded, but nothing is sealed (no first touch, hazards,
 * numbers, sizes). For those who look at schedules that are too long to be sealed. */
struct tutti_rounds {
    uint32_t n_chunks, n_scratch, n_rounds; /* all rounds taken together; n_scratch: as far as was seen */
    struct tutti_step *steps;
    uint32_t n, capacity;
    char defect[512]; /* as in struct tutti_schedule; "": none */
};
/* Sets out to rounds [first, first + n) of the shape's slot, as far as there are; out is zeroed before its first use,
 * and its memory used again. The shape must fit the algorithm. Errors: MEMORY. */
enum tutti_status tutti_schedule_rounds(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                        const struct tutti_shape *shape, uint32_t first, uint32_t n,
                                        struct tutti_rounds *out);
void tutti_rounds_fini(struct tutti_rounds *rounds);
/* Whether the algorithm offers the kind for this shape; reason (may be NULL) gets a sentence when not. */
bool tutti_algorithm_fits(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                          const struct tutti_shape *shape, char *reason, size_t capacity);

/* The reference algorithm that expands a call of a kind: set once by src/algo's table (row 2) at load, so that row 1
 * does not look up. */
typedef const struct tutti_algorithm *(*tutti_reference_function)(enum tutti_kind kind, const struct tutti_shape *sub);
void tutti_schedule_set_reference(tutti_reference_function function);

/* ---- stages (stages.c): one rank's steps in an order in which they may be carried out one after another ---- */
enum tutti_act {
    TUTTI_ACT_MESSAGE, /* a send; a receive that goes to its place at once */
    TUTTI_ACT_ASIDE,   /* a receive into memory aside, from which HERE takes it in this stage, */
    TUTTI_ACT_KEPT,    /* or in a later one */
    TUTTI_ACT_HERE,    /* a copy, a reduction, or what came aside */
};
struct tutti_stage_act {
    uint32_t stage, step;
    enum tutti_act act;
};
/* By stage; in a stage messages first, which have nothing to do with one another; those to or from one peer are in
 * their order on both sides, and in the same stage. */
struct tutti_stages {
    struct tutti_stage_act *acts;
    uint32_t n;
};
/* schedules: expanded, all n slots' of one shape, matched and free of deadlock. MEMORY; INTERNAL: they are not. */
enum tutti_status tutti_stages_make(const struct tutti_schedule *const *schedules, uint32_t n, uint32_t slot,
                                    struct tutti_stages *out);
void tutti_stages_fini(struct tutti_stages *stages);

/* ---- cache (cache.c): (algorithm, kind, shape, lanes) -> sealed, shared, bounded (least recently used goes) ---- */
struct tutti_cache;
enum tutti_status tutti_cache_create(uint32_t capacity, struct tutti_cache **out);
void tutti_cache_destroy(struct tutti_cache *cache);
/* Borrowed until tutti_cache_release; thread-safe. lanes: NULL for none. */
enum tutti_status tutti_cache_get(struct tutti_cache *cache, const struct tutti_algorithm *algorithm,
                                  enum tutti_kind kind, const struct tutti_shape *shape,
                                  const struct tutti_lanes *lanes, const struct tutti_schedule **out);
void tutti_cache_release(struct tutti_cache *cache, const struct tutti_schedule *schedule);

#endif
