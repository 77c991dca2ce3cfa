/* SPDX-License-Identifier: BSD-3-Clause */
/* What the methods cost, predicted from the constants of the machine: how often ranks wait for one another, and how the
 * bytes of the busiest rank move. Staging moves them through the caches: in, folded, out. Calls that are larger than
 * the cache bring them from memory and back as well. */
#include "backend/flat.h"

#include <math.h>

#define CALL_NS 20.0  /* of a call itself: next to nothing, but ties are decided by what is done at all */
#define ROUND_NS 60.0 /* of a round of staging: posts, flags, loops */

/* Blocks: so many whatever the number of ranks, and so many for each rank. */
struct blocks {
    double once, each;
};
/* Of the busiest rank: what it takes in, folds (as one operand each) and gives out. */
static const struct {
    struct blocks in, fold, out;
} flows[TUTTI_N_KINDS] = {
    [TUTTI_ALL_REDUCE] = {{1, 0}, {1, 0}, {1, 0}},     [TUTTI_REDUCE] = {{1, 0}, {1, 0}, {1, 0}},
    [TUTTI_BROADCAST] = {{1, 0}, {0, 0}, {1, 0}},      [TUTTI_ALL_GATHER] = {{1, 0}, {0, 0}, {0, 1}},
    [TUTTI_GATHER] = {{1, 0}, {0, 0}, {0, 1}},         [TUTTI_SCATTER] = {{0, 1}, {0, 0}, {1, 0}},
    [TUTTI_REDUCE_SCATTER] = {{0, 1}, {0, 1}, {1, 0}}, [TUTTI_ALL_TO_ALL] = {{0, 1}, {0, 0}, {0, 1}},
    [TUTTI_SCAN] = {{1, 0}, {0, 0.5}, {1, 0}},         [TUTTI_EXSCAN] = {{1, 0}, {0, 0.5}, {1, 0}},
};

struct bytes {
    double in, fold, out; /* of the busiest rank */
    double far;           /* time of a byte from memory or to it; 0: all stays in the cache */
};

static double blocks_bytes(const struct blocks *blocks, double block, double n)
{
    return block * (blocks->once + blocks->each * n);
}

static struct bytes bytes_of(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    const struct tutti_machine *m = &lane->machine;
    enum tutti_kind kind = call->info.kind;
    double n = lane->n, block = (double)call->bind.count * (double)tutti_dtype_bytes(call->info.dtype);
    struct bytes bytes = {
        .in = blocks_bytes(&flows[kind].in, block, n),
        .fold = blocks_bytes(&flows[kind].fold, block, n),
        .out = blocks_bytes(&flows[kind].out, block, n),
    };
    double touched = n * (bytes.in + bytes.out);
    if (touched > (double)m->cache_kib * 1024) bytes.far = 0.5 / tutti_machine_memory(m, n);
    return bytes;
}

/* Of bytes that lie with all ranks alike: the own part is copied, the rest pulled. */
static double spread_ns(const struct flat_lane *lane, double bytes, double own_gbs)
{
    double own = bytes / lane->n, pull = tutti_machine_pull(&lane->machine, lane->n);
    return own / own_gbs + (bytes - own) / (pull < own_gbs ? pull : own_gbs);
}

/* Each level of the butterfly is a line's way, and the other ranks' lines are read one after another. */
double flat_cost_line(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    const struct tutti_machine *m = &lane->machine;
    double bytes = (double)call->bind.count * (double)tutti_dtype_bytes(call->info.dtype);
    double lines = ceil(bytes / FLAT_LINE_BYTES), readers = 0;
    for (uint32_t l = 0; l < lane->n_factors; l++) readers += lane->factors[l] - 1;
    if (lines < 1) lines = 1;
    if (lane->crowded) return CALL_NS + lane->n * (double)m->yield_ns;
    return CALL_NS + lane->n_factors * (double)m->line_ns + readers * lines * (double)m->line_ns / 4;
}

double flat_cost_stage(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    const struct tutti_machine *m = &lane->machine;
    const struct bytes bytes = bytes_of(lane, call);
    double rounds = ceil((bytes.in > bytes.out ? bytes.in : bytes.out) / (double)(lane->chunk ? lane->chunk : 1));
    double copy = m->copy_gbs, ns = CALL_NS + 2 * (double)m->line_ns + rounds * ROUND_NS;
    if (lane->crowded) ns += 2 * lane->n * (double)m->yield_ns * rounds;
    ns += bytes.in / copy + spread_ns(lane, bytes.fold, (double)m->fold_gbs) + spread_ns(lane, bytes.out, copy);
    return ns + (bytes.in + bytes.out) * bytes.far;
}

/* Nothing is staged: what comes from peers is pulled or folded straight into place; all meet at the end. */
double flat_cost_mapped(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    const struct tutti_machine *m = &lane->machine;
    const struct bytes bytes = bytes_of(lane, call);
    double moved = bytes.fold > bytes.out ? bytes.fold : bytes.out;
    double ns = CALL_NS + 3 * (double)m->line_ns, cached = spread_ns(lane, moved, (double)m->copy_gbs);
    double far = (bytes.in + bytes.out) * bytes.far;
    if (lane->crowded) ns += 3 * lane->n * (double)m->yield_ns;
    return ns + (far > cached ? far : cached);
}
