/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_LOAD_MSCCL_H
#define TUTTI_LOAD_MSCCL_H

/* MSCCL's XML: one file is one algorithm for one number of GPUs. Each GPU has thread blocks, which run at once; each is
 * a sequence of steps, receives from at most one peer and sends to at most one, on one channel. A connection (from, to,
 * channel) is a queue with places for a few messages, by the protocol. Steps of different blocks of a GPU are ordered
 * only by what a step waits for (depid, deps) and by messages.
 *
 * From file to plan: msccl_read.c has the text, msccl_check.c what must hold for the whole, msccl_order.c runs the
 * blocks, which gives an order of all steps or the deadlock, msccl_race.c proves that any other order gives the same,
 * msccl_plan.c writes what the order does as a plan of ours. msccl_write.c goes the other way. Source of the format:
 * the runtime microsoft/msccl and the converter microsoft/msccl-tools. */

#include "load/load.h"

#include <stdio.h>

/* What the runtimes allow: a plan beyond it is read here, and told of in the log. */
enum {
    TUTTI_MSCCL_MOST_STEPS = 256,
    TUTTI_MSCCL_MOST_BLOCKS = 216,
    TUTTI_MSCCL_MOST_CHANNELS = 32,
    TUTTI_MSCCL_MOST_PEERS = 32, /* to send to on a channel; to receive from */
    TUTTI_MSCCL_MOST_COUNT = 71,
    TUTTI_MSCCL_MOST_SLOTS = 8 /* messages under way on a connection: of LL; a power of two */
};
#define TUTTI_MSCCL_NONE UINT32_MAX

enum tutti_msccl_buffer { TUTTI_MSCCL_INPUT, TUTTI_MSCCL_OUTPUT, TUTTI_MSCCL_SCRATCH, TUTTI_MSCCL_N_BUFFERS };

/* What a step does, as bits. Its word in the file is a row of a table in msccl_read.c. */
enum tutti_msccl_does {
    TUTTI_MSCCL_RECEIVES = 1,
    TUTTI_MSCCL_SENDS = 2,
    TUTTI_MSCCL_READS = 4,    /* src; with RECEIVES it is combined with what comes in */
    TUTTI_MSCCL_WRITES = 8,   /* dst */
    TUTTI_MSCCL_ADDS_DST = 16 /* dst is read, too */
};

struct tutti_msccl_step {
    uint32_t line;
    uint8_t does;
    uint8_t src_buffer, dst_buffer;
    bool signals;              /* others may wait for it */
    uint32_t signal;           /* the first step from this on that does, whose end a wait for this one ends; NONE */
    uint32_t src, dst, n;      /* chunks */
    uint32_t wait_block, wait; /* a block of the GPU, and the number of its step; NONE */
};
struct tutti_msccl_block {
    uint32_t line, gpu, id;
    uint32_t send, recv, channel; /* peers; NONE */
    uint32_t first, n;            /* its steps */
    uint32_t out, in;             /* its connections; NONE */
};
struct tutti_msccl_gpu {
    uint32_t line;     /* 0: it was not there yet */
    uint32_t first, n; /* its blocks, by id */
    uint32_t n_scratch;
};
/* One block sends and one receives. */
struct tutti_msccl_connection {
    uint32_t from, to, channel;
    uint32_t sender, receiver; /* blocks */
    uint32_t pair;             /* its two GPUs' number among all pairs that have connections */
};
struct tutti_msccl {
    const char *file;
    char name[64];
    enum tutti_kind kind;
    uint32_t n_gpus, n_chunks, n_in, n_out; /* chunks: of a loop, of a GPU's input and output */
    uint32_t n_slots;                       /* messages under way on a connection: Simple has 2, LL and LL128 8 */
    bool in_place;                          /* input and output are one memory */
    struct tutti_msccl_gpu *gpus;
    struct tutti_msccl_block *blocks;
    struct tutti_msccl_step *steps;
    struct tutti_msccl_connection *connections;
    uint32_t n_blocks, n_steps, n_connections, n_pairs;
    uint32_t block_capacity, step_capacity;
};

#define TUTTI_MSCCL_MOST_CHUNKS (1 << 24) /* in all buffers, and moved by all steps */
/* Reads the text, and writes into it. ARGUMENT with a sentence "FILE:LINE: ..."; MEMORY. */
enum tutti_status tutti_msccl_read(const char *file, char *text, size_t bytes, struct tutti_msccl *out);
void tutti_msccl_fini(struct tutti_msccl *plan);
/* Checks the whole, and fills its connections; last_line: the text's (msccl_check.c). */
enum tutti_status tutti_msccl_check(struct tutti_msccl *plan, uint32_t last_line);
/* The DATA chunk that chunk 0 of the GPU's input or output is. */
uint32_t tutti_msccl_base(const struct tutti_msccl *plan, uint32_t gpu, enum tutti_msccl_buffer buffer);
/* The kind of a word in files; false: the result is not known. */
bool tutti_msccl_kind(const char *coll, enum tutti_kind *out);
/* A name for an algorithm, of characters that options and lists have no other use for; out: 64 bytes. */
void tutti_msccl_name(const char *from, char *out);
enum tutti_status tutti_msccl_grow(void **array, uint32_t n, uint32_t *capacity, size_t bytes);
/* The word of the kind in files; NULL: the format has none. */
const char *tutti_msccl_coll(enum tutti_kind kind);
/* "gpu 3 tb 1 step 4 (line 17)". */
#define TUTTI_MSCCL_WHERE 80
const char *tutti_msccl_where(const struct tutti_msccl *plan, uint32_t block, uint32_t step, char *out);

/* ---- the order (msccl_order.c) ---- */
/* A step, or what of it: that which comes in may be stored before it is asked for, where messages of two channels
 * overtake one another, and is then taken from there. */
enum tutti_msccl_act { TUTTI_MSCCL_ALL, TUTTI_MSCCL_STORE, TUTTI_MSCCL_TAKE };
struct tutti_msccl_event {
    uint32_t block, step; /* the step's number in the plan */
    uint32_t depth;       /* how many steps it comes after, along the longest way */
    uint32_t spill;       /* STORE, TAKE: the first of its chunks of the GPU's extra SCRATCH */
    uint8_t act;          /* enum tutti_msccl_act */
};
struct tutti_msccl_order {
    struct tutti_msccl_event *events;
    uint32_t n, capacity;
    uint32_t *spilled; /* by GPU: chunks of extra SCRATCH */
};
/* An order of all steps in which everything a step waits for is before it; for each two GPUs the messages are received
 * in the order in which they are sent, whatever their channels. ARGUMENT: a deadlock; MEMORY. */
enum tutti_status tutti_msccl_order(const struct tutti_msccl *plan, struct tutti_msccl_order *out);
void tutti_msccl_order_fini(struct tutti_msccl_order *order);

/* ---- races (msccl_race.c) ---- */
/* Whatever two blocks of a GPU touch, one of them writing, is ordered by waits and messages; nothing is read that was
 * never written; out of place, every chunk of the result is written. ARGUMENT with a sentence; MEMORY. */
enum tutti_status tutti_msccl_race(const struct tutti_msccl *plan, const struct tutti_msccl_order *order);

/* ---- the plan (msccl_plan.c) ---- */
enum tutti_status tutti_msccl_plan(const struct tutti_msccl *plan, const struct tutti_msccl_order *order,
                                   struct tutti_plan *out);
/* All of it from a text, into which it writes. name: 64 bytes, the algorithm's. */
enum tutti_status tutti_msccl_load(const char *file, char *text, size_t bytes, struct tutti_plan *out, char *name);

/* ---- the other way (msccl_write.c) ---- */
/* Writes the sealed schedules of all slots (without calls) as a file. UNSUPPORTED: a kind or root that the format does
 * not have, or more steps, blocks or channels than its runtimes take; ARGUMENT: a schedule with a defect; MEMORY,
 * SYSTEM. */
enum tutti_status tutti_msccl_write(const struct tutti_schedule *const *schedules, uint32_t n, FILE *file);

#endif
