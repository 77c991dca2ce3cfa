/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_MODEL_COSTS_H
#define TUTTI_MODEL_COSTS_H

/* All fixed numbers by which times of calls are predicted: those that differ little from machine to machine, or that
 * nobody has measured on this one. What `tutti tune` measures stands in machine.h, what is known of a GPU in
 * backend/gpu/gpu_methods.c. Times are nanoseconds. */

/* ---- the engine (cost.c) ---- */
#define COST_ENGINE_EAGER_BYTES 65536 /* where the facts do not say (tests) */
#define COST_ENGINE_SLICE_BYTES 131072
#define COST_ENGINE_PAGE_BYTES 4096.0
#define COST_ENGINE_CALLED 0.5        /* of a message: a call of a group, apart from what is moved */
#define COST_ENGINE_BESIDE 0.4        /* of a message: one more rank of the host sends at the same time */
#define COST_ENGINE_PAGES_CACHED 2048 /* pages that a CPU finds without a look at tables */

/* ---- back end flat (backend/flat/flat_cost.c) ---- */
#define COST_FLAT_CALL_NS 20.0   /* the call itself */
#define COST_FLAT_STEPS_NS 220.0 /* of a call of several steps */
/* In transfers of a line: */
#define COST_FLAT_LINE_READ 0.25       /* a line that is awaited when the one before it was */
#define COST_FLAT_LINE_READ_AHEAD 0.15 /* the same where ranks run ahead */
#define COST_FLAT_LINE_WRITTEN 0.1
#define COST_FLAT_LINES_NEAR 17.0  /* so many of a call; further ones take the time of a copy */
#define COST_FLAT_EXCHANGE 3.2     /* a hand-over where ranks wait for one another */
#define COST_FLAT_AHEAD 0.5        /* a hand-over of a rooted call, where they run ahead */
#define COST_FLAT_PEER_READ 0.3    /* a look at one more rank, prefetched */
#define COST_FLAT_PART_OF_LINE 0.5 /* for each peer, where their blocks in a mapped buffer share a line */
/* In turns of a CPU that ranks share: */
#define COST_FLAT_AHEAD_TURNS 0.06 /* where ranks run ahead as far as there are slots */
#define COST_FLAT_AHEAD_STAGED 0.3 /* of staging, likewise */
#define COST_FLAT_LAST_TURN 0.4    /* to see the last hand-over */
#define COST_FLAT_ATTACH_TURNS 4   /* posts, and all meet at the end */
#define COST_FLAT_LEAF_TURNS 0.6   /* leaves wait for the root's post, and it for them */
/* Copies: */
#define COST_FLAT_ATTACHED_NS 500.0      /* an operation whose bytes the kernel copies, apart from its calls */
#define COST_FLAT_ATTACH_QUEUE_NS 1500.0 /* one more rank copies to or from the root's memory at the same time */
#define COST_FLAT_PAST 0.6               /* of bytes that leave the cache: written past it, they are not read before */
#define COST_FLAT_OVERLAP 0.8            /* of the time of writers and readers of slots: calls overlap */
#define COST_FLAT_GIVEN_BACK 2.0         /* more of a line that its writer takes back from its only reader */
#define COST_FLAT_PAGES_CACHED 1024.0    /* pages of 4 KiB that a CPU finds without a look at tables */
#define COST_FLAT_UNKNOWN_BYTES ((size_t)64 << 10) /* of blocks that no rank knows all of */
#define COST_FLAT_CHAIN_PIECE 32768.0              /* bytes, about what a step of the chain hands over */

/* ---- libraries: a call alone, and the bytes that it moves a nanosecond then ---- */
#define COST_NCCL_LATENCY_NS 11000. /* measured on H200 */
#define COST_NCCL_BYTES_A_NS 300.
#define COST_NCCL_UNEQUAL_NS 1e9      /* v forms, whose size members do not all know: where nobody else can */
#define COST_ONECCL_LATENCY_NS 20000. /* measured between two processes of one host */
#define COST_ONECCL_BYTES_A_NS 1.4
#define COST_ONECCL_DEVICE_LATENCY_NS 60000. /* guessed: never better than tutti's own kernels, where these are */
#define COST_ONECCL_DEVICE_BYTES_A_NS 5.

#endif
