/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_LOAD_MSCCLPP_H
#define TUTTI_LOAD_MSCCLPP_H

/* MSCCL++'s execution plans (JSON): thread blocks as in MSCCL, but one-sided. An operation adds up what it reads, here
 * or in a peer's memory, and writes that to any number of places, here or there. Blocks are ordered by semaphores (the
 * k-th wait on a channel follows the k-th signal of the peer) and by packets, whose reader waits until they are there.
 *
 * mscclpp_read.c has the text; mscclpp_plan.c runs it, proves that what two blocks touch is ordered, and writes the
 * same as a plan of ours: each access to a peer's memory becomes a message, sent and received at that point of both
 * programs. Read are memory channels, without switches, pipelines and barriers. Source of the format:
 * microsoft/mscclpp. */

#include "load/msccl.h"

struct tutti_pp_access {
    uint32_t gpu;   /* the owner */
    uint8_t buffer; /* enum tutti_msccl_buffer */
    bool packet;
    uint32_t chunk;
};
enum tutti_pp_what { TUTTI_PP_MOVE, TUTTI_PP_SIGNAL, TUTTI_PP_WAIT };
struct tutti_pp_op {
    uint32_t line;
    uint8_t what;   /* enum tutti_pp_what */
    bool relaxed;   /* signals and waits that order no memory */
    uint32_t end;   /* signals and waits: which end of a channel */
    uint32_t n;     /* chunks */
    uint32_t first; /* its accesses: n_src that are added up, then n_dst */
    uint32_t n_src, n_dst;
};
struct tutti_pp_block {
    uint32_t gpu, id, first, n; /* its operations */
};
struct tutti_pp_end {
    uint32_t gpu, peer, other;  /* the end at the peer */
    uint32_t signaller, waiter; /* blocks; NONE */
};
struct tutti_pp {
    const char *file;
    char name[64];
    enum tutti_kind kind;
    bool in_place;
    uint32_t n_gpus, n_chunks, n_in, n_out;
    uint32_t scale; /* chunks of ours for one of the file, since blocks of a group share it */
    uint32_t *n_scratch;
    struct tutti_pp_block *blocks;
    struct tutti_pp_op *ops;
    struct tutti_pp_access *accesses;
    struct tutti_pp_end *ends;
    uint32_t n_blocks, n_ops, n_accesses, n_ends;
    uint32_t block_capacity, op_capacity, access_capacity, end_capacity;
};

/* Reads the text, and writes into it. ARGUMENT with a sentence "FILE:LINE: ..."; MEMORY. */
enum tutti_status tutti_pp_read(const char *file, char *text, size_t bytes, struct tutti_pp *out);
void tutti_pp_fini(struct tutti_pp *plan);
/* The plan, or why there is none: deadlock, race, a read of nothing. */
enum tutti_status tutti_pp_plan(const struct tutti_pp *plan, struct tutti_plan *out);
/* All of it. name: 64 bytes, the algorithm's. */
enum tutti_status tutti_pp_load(const char *file, char *text, size_t bytes, struct tutti_plan *out, char *name);

#endif
