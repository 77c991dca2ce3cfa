/* SPDX-License-Identifier: BSD-3-Clause */

/* What each algorithm asks of a machine: one row a kind and algorithm, which puts patterns of messages together. */

#include "algo/algo.h"
#include "model/pattern.h"

static struct tutti_load direct_all_reduce(const struct ask *q)
{
    return load_folding_late(load_exchange(q->p, q->p - 1, q->b));
}
static struct tutti_load direct_blocks(const struct ask *q)
{
    return load_exchange(q->p, q->p - 1, q->b);
}
static struct tutti_load pairwise_reduce_scatter(const struct ask *q)
{
    return load_folding(load_exchange(q->p, q->p - 1, q->b));
}
static struct tutti_load direct_reduce(const struct ask *q)
{
    return load_folding(load_star(q, true));
}
static struct tutti_load direct_gather(const struct ask *q)
{
    return load_star(q, true);
}
static struct tutti_load direct_scatter(const struct ask *q)
{
    return load_star(q, false);
}
static struct tutti_load direct_barrier(const struct ask *q)
{
    return load_exchange(q->p, q->p - 1, 0);
}
/* The last rank takes from all others, the first one sends to all. */
static struct tutti_load direct_scan(const struct ask *q)
{
    struct tutti_load load = load_folding_late(load_exchange(q->p, q->p - 1, q->b));
    load.messages /= 2;
    load.sent = 0;
    load.waits = q->p - 1;
    load.all_messages /= 2;
    load.all_bytes /= 2;
    load.all_folded /= 2;
    return load;
}

static struct tutti_load two_shot_all_reduce(const struct ask *q)
{
    double part = q->b / q->p;
    return load_both(load_folding_late(load_exchange(q->p, q->p - 1, part)), load_exchange(q->p, q->p - 1, part));
}
static struct tutti_load two_shot_reduce(const struct ask *q)
{
    struct ask part = *q;
    part.b = q->b / q->p;
    return load_both(load_folding_late(load_exchange(q->p, q->p - 1, part.b)), load_star(&part, true));
}
static struct tutti_load two_shot_broadcast(const struct ask *q)
{
    struct ask part = *q;
    part.b = q->b / q->p;
    struct tutti_load load =
        load_both(load_star(&part, false), load_star(&part, false)); /* the root, which owns a part, too */
    double others = (q->p - 1) * (q->p - 2);
    if (q->p <= 2) load.hops = 1;
    load.waits += others;
    load.all_messages += others;
    load.all_bytes += others * part.b;
    return load;
}

static struct tutti_load ring_all_gather(const struct ask *q)
{
    return load_rounds(q->p, q->p - 1, (q->p - 1) * q->b, q->b);
}
static struct tutti_load ring_reduce_scatter(const struct ask *q)
{
    return load_folding(ring_all_gather(q));
}
static struct tutti_load ring_all_reduce(const struct ask *q)
{
    struct ask part = *q;
    part.b = q->b / q->p;
    return load_both(ring_reduce_scatter(&part), ring_all_gather(&part));
}
static struct tutti_load ring_broadcast(const struct ask *q)
{
    return load_chain(q->p, q->b);
}
static struct tutti_load ring_scan(const struct ask *q)
{
    return load_folding(load_chain(q->p, q->b));
}
/* The last one has the result, which goes to the root. */
static struct tutti_load ring_reduce(const struct ask *q)
{
    struct tutti_load load = load_folding(load_chain(q->p + 1, q->b));
    load.all_folded = load.all_early = (q->p - 1) * q->b;
    return load;
}

static struct tutti_load halving_all_gather(const struct ask *q)
{
    return load_rounds(q->p, q->log, (q->p - 1) * q->b, q->p / 2 * q->b);
}
static struct tutti_load halving_reduce_scatter(const struct ask *q)
{
    return load_folding(halving_all_gather(q));
}
static struct tutti_load halving_all_reduce(const struct ask *q)
{
    struct ask part = *q;
    part.b = q->b / q->p;
    return load_both(halving_reduce_scatter(&part), halving_all_gather(&part));
}

static struct tutti_load tree_reduce(const struct ask *q)
{
    return load_folding(load_up(q, q->r, q->d));
}
static struct tutti_load tree_broadcast(const struct ask *q)
{
    return load_down(q, q->r, q->d);
}
static struct tutti_load tree_all_reduce(const struct ask *q)
{
    return load_both(tree_reduce(q), tree_broadcast(q));
}
static struct tutti_load tree_gather(const struct ask *q)
{
    return load_of_blocks(q, load_up(q, q->r, q->d), q->r);
}
static struct tutti_load tree_scatter(const struct ask *q)
{
    return load_of_blocks(q, load_down(q, q->r, q->d), q->r);
}
static struct tutti_load tree_barrier(const struct ask *q)
{
    struct ask token = *q;
    token.b = 0;
    return load_both(load_up(&token, q->r, q->d), load_down(&token, q->r, q->d));
}

static struct tutti_load double_reduce(const struct ask *q)
{
    return load_folding(load_double_pass(q, true));
}
static struct tutti_load double_broadcast(const struct ask *q)
{
    return load_double_pass(q, false);
}
static struct tutti_load double_all_reduce(const struct ask *q)
{
    return load_both(double_reduce(q), double_broadcast(q));
}

/* A run of blocks is one message, two where it passes the last slot. */
static struct tutti_load bruck_all_gather(const struct ask *q)
{
    struct tutti_load load = load_rounds(q->p, q->d, (q->p - 1) * q->b, q->p * q->b / q->r);
    load.messages = 2 * q->fan + (q->r - 1) * (q->d - 1);
    load.all_messages = q->p * q->fan + q->p - 1 - q->fan;
    return load;
}
/* Packed and unpacked as well. */
static struct tutti_load bruck_all_to_all(const struct ask *q)
{
    struct tutti_load load = load_rounds(q->p, q->d, q->moves * q->b, q->p * q->b / q->r);
    load.messages = 2 * q->fan;
    load.all_messages = q->p * q->fan;
    load.copied = 2 * q->p * q->b;
    return load;
}

static struct tutti_load dissemination_barrier(const struct ask *q)
{
    struct tutti_load load = load_rounds(q->p, q->d, 0, 0);
    load.messages = 2 * q->fan;
    load.all_messages = q->p * q->fan;
    return load;
}
static struct tutti_load dissemination_scan(const struct ask *q)
{
    struct tutti_load load = load_folding_late(load_rounds(q->p, q->log, q->log * q->b, q->b));
    double none = q->p - 1; /* in the round of distance d, d ranks have nobody to send to */
    load.messages -= 1;
    load.sent -= q->b;
    load.waits -= none;
    load.all_messages -= none;
    load.all_bytes -= none * q->b;
    load.all_folded -= none * q->b;
    return load;
}

/* Hierarchical: on each level the units but one send to it; parts with roots of their own share the work. */
static struct tutti_load levels_pass(const struct ask *q, double bytes)
{
    struct tutti_load load = load_exchange(q->p, q->p - 1, bytes);
    load.hops = q->depth;
    load.chain = q->depth * bytes;
    load.waits = q->p * q->depth;
    return load;
}
static struct tutti_load levels_all_reduce(const struct ask *q)
{
    return load_both(load_folding(levels_pass(q, q->b / q->p)), levels_pass(q, q->b / q->p));
}
static struct tutti_load levels_reduce(const struct ask *q)
{
    return load_folding(load_up(q, 2, q->depth));
}
static struct tutti_load levels_broadcast(const struct ask *q)
{
    return load_down(q, 2, q->depth);
}
static struct tutti_load levels_all_gather(const struct ask *q)
{
    return levels_pass(q, q->b);
}
static struct tutti_load levels_reduce_scatter(const struct ask *q)
{
    return load_folding(levels_pass(q, q->b));
}
static struct tutti_load levels_gather(const struct ask *q)
{
    struct ask deep = *q;
    deep.d = q->depth;
    return load_of_blocks(&deep, load_up(q, 2, q->depth), 2);
}
static struct tutti_load levels_scatter(const struct ask *q)
{
    struct ask deep = *q;
    deep.d = q->depth;
    return load_of_blocks(&deep, load_down(q, 2, q->depth), 2);
}
static struct tutti_load levels_barrier(const struct ask *q)
{
    struct ask token = *q;
    token.b = 0;
    struct tutti_load once = load_both(load_up(&token, 2, q->depth), load_down(&token, 2, q->depth));
    return load_both(once, once); /* each group meets on the way up and on the way down */
}

/* ---- the table ---- */

#define ROW(kind, name, load, ...)                                                                                     \
    {                                                                                                                  \
        TUTTI_##kind, &tutti_algorithm_##name, {__VA_ARGS__}, load                                                     \
    }
const struct tutti_load_row tutti_load_rows[] = {
    ROW(ALL_REDUCE, direct, direct_all_reduce),
    ROW(ALL_REDUCE, tree, tree_all_reduce, 2, 4, 8),
    ROW(ALL_REDUCE, halving_doubling, halving_all_reduce),
    ROW(ALL_REDUCE, ring, ring_all_reduce),
    ROW(ALL_REDUCE, direct_two_shot, two_shot_all_reduce),
    ROW(ALL_REDUCE, double_tree, double_all_reduce),
    ROW(ALL_REDUCE, hierarchical, levels_all_reduce),

    ROW(REDUCE, direct, direct_reduce),
    ROW(REDUCE, tree, tree_reduce, 2, 4, 8),
    ROW(REDUCE, ring, ring_reduce),
    ROW(REDUCE, direct_two_shot, two_shot_reduce),
    ROW(REDUCE, double_tree, double_reduce),
    ROW(REDUCE, hierarchical, levels_reduce),

    ROW(BROADCAST, tree, tree_broadcast, 2, 4, 8),
    ROW(BROADCAST, direct, direct_scatter),
    ROW(BROADCAST, ring, ring_broadcast),
    ROW(BROADCAST, direct_two_shot, two_shot_broadcast),
    ROW(BROADCAST, double_tree, double_broadcast),
    ROW(BROADCAST, hierarchical, levels_broadcast),

    ROW(ALL_GATHER, direct, direct_blocks),
    ROW(ALL_GATHER, bruck, bruck_all_gather, 2, 4),
    ROW(ALL_GATHER, halving_doubling, halving_all_gather),
    ROW(ALL_GATHER, ring, ring_all_gather),
    ROW(ALL_GATHER, pairwise, direct_blocks),
    ROW(ALL_GATHER, hierarchical, levels_all_gather),

    ROW(GATHER, direct, direct_gather),
    ROW(GATHER, tree, tree_gather, 2, 4, 8),
    ROW(GATHER, hierarchical, levels_gather),

    ROW(SCATTER, direct, direct_scatter),
    ROW(SCATTER, tree, tree_scatter, 2, 4, 8),
    ROW(SCATTER, hierarchical, levels_scatter),

    ROW(REDUCE_SCATTER, direct, direct_all_reduce),
    ROW(REDUCE_SCATTER, halving_doubling, halving_reduce_scatter),
    ROW(REDUCE_SCATTER, pairwise, pairwise_reduce_scatter),
    ROW(REDUCE_SCATTER, ring, ring_reduce_scatter),
    ROW(REDUCE_SCATTER, hierarchical, levels_reduce_scatter),

    ROW(ALL_TO_ALL, pairwise, direct_blocks),
    ROW(ALL_TO_ALL, direct, direct_blocks),
    ROW(ALL_TO_ALL, bruck, bruck_all_to_all, 2, 4),

    ROW(BARRIER, dissemination, dissemination_barrier, 2, 4),
    ROW(BARRIER, tree, tree_barrier, 2, 4, 8),
    ROW(BARRIER, direct, direct_barrier),
    ROW(BARRIER, hierarchical, levels_barrier),

    ROW(SCAN, dissemination, dissemination_scan),
    ROW(SCAN, ring, ring_scan),
    ROW(SCAN, direct, direct_scan),

    ROW(EXSCAN, dissemination, dissemination_scan),
    ROW(EXSCAN, ring, ring_scan),
    ROW(EXSCAN, direct, direct_scan),
};
#undef ROW
const size_t tutti_n_load_rows = TUTTI_ARRAY_LEN(tutti_load_rows);

/* ---- asking ---- */

static uint32_t log_up(uint32_t n, uint32_t radix)
{
    uint32_t log = 0;
    for (uint64_t reach = 1; reach < n; reach *= radix) log++;
    return log;
}

static void digits_count(struct ask *ask, uint64_t n, uint64_t radix)
{
    for (uint64_t left = n; left > 1; left = (left + radix - 1) / radix)
        ask->children += (double)((left < radix ? left : radix) - 1);
    for (uint64_t weight = 1; weight < n; weight *= radix) {
        uint64_t cycle = weight * radix, rest = n % cycle, reached = (n + weight - 1) / weight - 1;
        uint64_t zeros = n / cycle * weight + (rest < weight ? rest : weight);
        ask->fan += (double)(reached < radix - 1 ? reached : radix - 1);
        ask->moves += (double)(n - zeros);
    }
}

/* The largest group of each level, and of what is above all, as binary trees one after another. */
static uint32_t levels_depth(const struct tutti_shape *shape)
{
    uint32_t depth = 0, units = shape->size;
    for (uint32_t l = 0; l < shape->n_levels; l++) {
        uint32_t largest = 1;
        for (uint32_t r = 0; r < shape->levels[l].n_runs; r++)
            if (shape->levels[l].runs[r].size > largest) largest = shape->levels[l].runs[r].size;
        depth += log_up(largest, 2);
        units = tutti_level_groups(&shape->levels[l]);
    }
    return depth + log_up(units, 2);
}

struct tutti_load tutti_load_of(const struct tutti_load_row *row, const struct tutti_shape *shape, uint64_t bytes)
{
    uint32_t radix = shape->radix > 1 ? shape->radix : 2;
    struct ask ask = {
        .p = shape->size,
        .b = (double)bytes,
        .r = radix,
        .d = log_up(shape->size, radix),
        .log = log_up(shape->size, 2),
        .depth = levels_depth(shape),
    };
    digits_count(&ask, shape->size, radix);
    return row->load(&ask);
}
