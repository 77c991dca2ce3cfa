/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_MODEL_PATTERN_H
#define TUTTI_MODEL_PATTERN_H

/* What the formulas of algorithms (load.c) are made of: patterns of messages, and how they are put together. */

#include "model/cost.h"

struct ask {
    double p, b;     /* ranks, bytes of a block */
    double r, d;     /* radix, and levels of a tree of it */
    double log;      /* levels of a binary one */
    double fan;      /* messages of a rank to those j * r^k further on, for j < r */
    double children; /* of the root of a tree of radix r */
    double moves;    /* digits that are not 0 in the numbers below p, base r */
    double depth;    /* of all levels of the shape together, as binary trees */
};

/* One after the other. */
struct tutti_load load_both(struct tutti_load a, struct tutti_load b);
/* What comes in is combined: where it lies in the ring; late: once all of it is there. */
struct tutti_load load_folding(struct tutti_load load);
struct tutti_load load_folding_late(struct tutti_load load);

/* All p ranks send `bytes` to `peers` others, at once. */
struct tutti_load load_exchange(double p, double peers, double bytes);
/* `rounds` times each sends a message and then waits for one; they carry `bytes` together, the largest `largest`. */
struct tutti_load load_rounds(double p, double rounds, double bytes, double largest);
/* From each to the next, from first to last. */
struct tutti_load load_chain(double p, double bytes);
/* A root and all others, one after another. */
struct tutti_load load_star(const struct ask *q, bool to_root);
/* A tree of d levels of radix r: heads collect from r - 1 others at each level, the root is a head of all; and back. */
struct tutti_load load_up(const struct ask *q, double r, double d);
struct tutti_load load_down(const struct ask *q, double r, double d);
/* Blocks that go with such a tree: the root's parts hold all others', and each block moves once a level. */
struct tutti_load load_of_blocks(const struct ask *q, struct tutti_load load, double r);
/* Two trees for one half each: every rank is an inner node, of three links, in one of them. */
struct tutti_load load_double_pass(const struct ask *q, bool to_root);

#endif
