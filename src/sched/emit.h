/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_SCHED_EMIT_H
#define TUTTI_SCHED_EMIT_H

/* Inside src/sched alone: what an algorithm's steps run into. emit.c checks them and maps them through the views of
 * the calls they come from, seal.c gives them first touch, hazards and numbers, extent.c their sizes; schedule.c runs
 * an algorithm's rounds through all of that. */

#include "sched/sched.h"

#define TUTTI_MAX_STEPS (UINT32_C(1) << 24)
#define TUTTI_MAX_CHUNKS (UINT32_C(1) << 24)
#define TUTTI_MAX_DEPTH 8 /* of calls in calls */

/* Whether each level holds exactly the units of the one below (shape.c). */
bool tutti_shape_levels_valid(const struct tutti_shape *shape);

/* ---- sizes of SCRATCH chunks (extent.c) ---- */
/* Each write that replaces a SCRATCH chunk starts a new version of it. Versions that meet in a reduce or copy have one
 * size (union-find), and one that meets DATA has the size of that chunk. */
struct tutti_extents {
    uint32_t *current;  /* SCRATCH chunk -> its version */
    uint32_t n_current; /* SCRATCH chunks that current has room for */
    uint32_t *parent, *extent;
    uint32_t n_versions, capacity;
    uint32_t like; /* one more than the DATA chunk that what is stored now is as large as; 0: it is found out */
};
enum tutti_status tutti_extents_add(struct tutti_extents *extents, struct tutti_step *step);
void tutti_extents_resolve(struct tutti_extents *extents, struct tutti_schedule *schedule);
void tutti_extents_fini(struct tutti_extents *extents);

/* ---- peers (seal.c) ---- */
/* Messages so far to and from each peer that there is one with: a hash table, for of many ranks a schedule has few. */
struct tutti_peer {
    uint32_t key; /* the peer, plus one; 0: the place is free */
    uint32_t sent, received;
};
struct tutti_peers {
    struct tutti_peer *table;
    uint32_t n, capacity; /* a power of two */
};

/* ---- the sealer ---- */
/* Where the (sub-)collective that is being emitted lives in the whole: affine in slots, DATA and SCRATCH. */
struct tutti_frame {
    enum tutti_kind kind;
    uint32_t size, slot;             /* the sub-shape's */
    uint32_t base, stride;           /* slot s is base + s * stride */
    uint32_t chunk, n_chunks, width; /* DATA chunk c is chunk + c * width and the width - 1 after it */
    uint32_t scratch, n_scratch;     /* SCRATCH chunk c is scratch + c * width ... */
    uint32_t depth;
};

/* What the last 64 steps read and wrote, step i at index 63 - i % 64: places [from, to) of DATA and, behind it, of
 * SCRATCH. Arrays, so that a step is compared with all of them at once. */
struct tutti_spans {
    uint32_t read_from[TUTTI_WINDOW], read_to[TUTTI_WINDOW];
    uint32_t written_from[TUTTI_WINDOW], written_to[TUTTI_WINDOW];
};

struct tutti_emit {
    struct tutti_schedule *schedule;
    struct tutti_shape shape;  /* the schedule's with the radix filled in */
    struct tutti_rounds *only; /* steps go there as they are, and are not sealed; NULL: sealed */
    bool expand;
    const struct tutti_lanes *lanes; /* the lanes whose calls are kept all the same; NULL: none */
    uint32_t n_on_lane[TUTTI_MAX_LANES];
    enum tutti_status status; /* MEMORY; a defect is in schedule->defect */
    uint32_t round;
    bool rounds_over; /* the sealer adds steps now: the author has no such round */
    struct tutti_frame frame;
    uint32_t step_capacity, call_capacity;
    struct tutti_peers peers;
    struct tutti_spans spans;
    uint8_t *touched; /* DATA chunks this slot wrote */
    uint8_t *written; /* SCRATCH chunks this slot wrote */
    uint32_t scratch_capacity;
    struct tutti_extents extents;
};

bool tutti_sealer_stopped(const struct tutti_emit *emit);
/* At the end: a required chunk that was never written is what the input holds. */
void tutti_sealer_finish(struct tutti_emit *emit);
/* Writes the defect (the first one stays): where it happened, then the sentence. */
void tutti_sealer_defect(struct tutti_emit *emit, const char *format, ...) TUTTI_PRINTF(2, 3);
/* Makes SCRATCH reach to n chunks. */
void tutti_sealer_grow_scratch(struct tutti_emit *emit, uint64_t n);
/* A step in chunks and slots of the whole: first touch, scratch and number. */
void tutti_sealer_add(struct tutti_emit *emit, struct tutti_step step);
/* The lane that carries out the call of a (mapped) view, TUTTI_NO_LANE: none. */
uint32_t tutti_sealer_lane(const struct tutti_emit *emit, enum tutti_kind kind, const struct tutti_view *view);
/* Keeps a call as a step; sub: the shape of the view, with this slot. */
void tutti_sealer_add_call(struct tutti_emit *emit, enum tutti_kind kind, const struct tutti_view *view, uint32_t lane,
                           const struct tutti_shape *sub);

#endif
