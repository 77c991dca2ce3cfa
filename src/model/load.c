/* SPDX-License-Identifier: BSD-3-Clause */
/* What each algorithm asks of a machine: a row a kind and algorithm, which names the few patterns of messages that it
 * is made of, one after another. Patterns are formulas and not a walk over sealed schedules, which would take every
 * rank milliseconds at 64 ranks and minutes at some thousands; a test compares both. Sizes that are no power of the
 * radix round up, so formulas are upper bounds there. */

#include "algo/algo.h"
#include "model/cost.h"

struct ask {
    double p, b;           /* ranks, bytes of a block, or of its part where the pattern is one of parts */
    double r, d;           /* radix, and levels of a tree of it */
    double tree_r, tree_d; /* radix and depth of the tree that is meant: this one, or that of the levels of the shape */
    bool down;             /* from the root to all; else to the root */
    double log;            /* levels of a binary one */
    double fan;            /* messages of a rank to those j * r^k further on, for j < r */
    double children;       /* children of the root of a tree of radix r */
    double moves;          /* digits that are not 0 in the numbers below p, base r */
    double depth;          /* the depth of all levels of the shape together, as binary trees */
    double g, parts;       /* ranks of a group of the first level; parts that the levels are crossed in */
};

/* ---- patterns ---- */

/* All p ranks send to all others, at once. */
static struct tutti_load exchange(const struct ask *q)
{
    double peers = q->p - 1;
    return (struct tutti_load){.hops = peers > 0,
                               .chain = peers > 0 ? q->b : 0,
                               .messages = 2 * peers,
                               .sent = peers * q->b,
                               .received = peers * q->b,
                               .waits = peers > 0 ? q->p : 0,
                               .all_messages = q->p * peers,
                               .all_bytes = q->p * peers * q->b,
                               .largest = q->b};
}

/* Along the order of ranks: the last takes from all others, the first sends to all. */
static struct tutti_load to_later(const struct ask *q)
{
    struct tutti_load load = exchange(q);
    load.messages /= 2;
    load.sent = 0;
    load.waits = q->p - 1;
    load.all_messages /= 2;
    load.all_bytes /= 2;
    return load;
}

/* `rounds` times each sends a message and then waits for one; they carry `bytes` together, the largest `largest`. */
static struct tutti_load rounds(const struct ask *q, double n, double bytes, double largest)
{
    return (struct tutti_load){.hops = n,
                               .chain = bytes,
                               .messages = 2 * n,
                               .sent = bytes,
                               .received = bytes,
                               .waits = q->p * n,
                               .all_messages = q->p * n,
                               .all_bytes = q->p * bytes,
                               .largest = largest};
}

static struct tutti_load ring(const struct ask *q)
{
    return rounds(q, q->p - 1, (q->p - 1) * q->b, q->b);
}

/* All of it, each time. */
static struct tutti_load exchanges(const struct ask *q)
{
    return rounds(q, q->log, q->log * q->b, q->b);
}

static struct tutti_load halving(const struct ask *q)
{
    return rounds(q, q->log, (q->p - 1) * q->b, q->p / 2 * q->b);
}

/* Blocks are messages of their own. */
static struct tutti_load side_by_side(const struct ask *q)
{
    struct tutti_load load = rounds(q, q->log, (q->p - 1) * q->b, q->b);
    load.messages = 2 * (q->p - 1);
    load.all_messages = q->p * (q->p - 1);
    return load;
}

/* A run of blocks is one message, two where it passes the last slot. */
static struct tutti_load bruck_runs(const struct ask *q)
{
    struct tutti_load load = rounds(q, q->d, (q->p - 1) * q->b, q->p * q->b / q->r);
    load.messages = 2 * q->fan + (q->r - 1) * (q->d - 1);
    load.all_messages = q->p * q->fan + q->p - 1 - q->fan;
    return load;
}

/* Packed and unpacked as well. */
static struct tutti_load bruck_packs(const struct ask *q)
{
    struct tutti_load load = rounds(q, q->d, q->moves * q->b, q->p * q->b / q->r);
    load.messages = 2 * q->fan;
    load.all_messages = q->p * q->fan;
    load.copied = 2 * q->p * q->b;
    return load;
}

static struct tutti_load dissemination(const struct ask *q)
{
    struct tutti_load load = rounds(q, q->d, 0, 0);
    load.messages = 2 * q->fan;
    load.all_messages = q->p * q->fan;
    return load;
}

/* In the round of distance d, d ranks have nobody to send to. */
static struct tutti_load doubling(const struct ask *q)
{
    struct tutti_load load = rounds(q, q->log, q->log * q->b, q->b);
    double none = q->p - 1;
    load.messages -= 1;
    load.sent -= q->b;
    load.waits -= none;
    load.all_messages -= none;
    load.all_bytes -= none * q->b;
    return load;
}

static struct tutti_load links(const struct ask *q, double n)
{
    return (struct tutti_load){.hops = n,
                               .chain = n * q->b,
                               .messages = n > 1 ? 2 : 1,
                               .sent = n > 1 ? q->b : 0,
                               .received = q->b,
                               .waits = n,
                               .all_messages = n,
                               .all_bytes = n * q->b,
                               .largest = q->b};
}

/* From each to the next, from first to last. */
static struct tutti_load chain(const struct ask *q)
{
    return links(q, q->p - 1);
}

/* The same, and from the last one to the root, which folds nothing. */
static struct tutti_load loop(const struct ask *q)
{
    return links(q, q->p);
}

static struct tutti_load star(const struct ask *q)
{
    double others = (q->p - 1) * q->b;
    return (struct tutti_load){.hops = q->p > 1,
                               .chain = q->b,
                               .messages = q->p - 1,
                               .sent = q->down ? others : 0,
                               .received = q->down ? 0 : others,
                               .waits = q->down ? q->p - 1 : 1,
                               .all_messages = q->p - 1,
                               .all_bytes = others,
                               .largest = q->b};
}

/* Each owner of a part sends it to all; the root owns one, too. */
static struct tutti_load spread(const struct ask *q)
{
    struct tutti_load load = star(q);
    double others = (q->p - 1) * (q->p - 2);
    load.hops = q->p != 2;
    load.waits += others;
    load.all_messages += others;
    load.all_bytes += others * q->b;
    return load;
}

/* A tree of d levels of radix r: heads collect from r - 1 others at each level, the root is a head of all; and back. */
static struct tutti_load tree(const struct ask *q)
{
    double r = q->tree_r, d = q->tree_d, children = r == q->r && d == q->d ? q->children : d * (r - 1);
    return (struct tutti_load){.hops = d,
                               .chain = d * q->b,
                               .messages = children,
                               .sent = q->down ? children * q->b : 0,
                               .received = q->down ? 0 : children * q->b,
                               .waits = q->down ? q->p - 1 : (q->p - 1) / (r - 1),
                               .all_messages = q->p - 1,
                               .all_bytes = (q->p - 1) * q->b,
                               .largest = q->b};
}

/* Blocks that go with such a tree: the root's parts hold all others', and each block moves once a level. */
static struct tutti_load tree_blocks(const struct ask *q)
{
    struct tutti_load load = tree(q);
    double others = (q->p - 1) * q->b;
    if (load.sent > 0) load.sent = others;
    if (load.received > 0) load.received = others;
    load.chain = others;
    load.all_bytes = q->p * q->tree_d * q->b * (q->tree_r - 1) / q->tree_r;
    load.largest = q->p * q->b / q->tree_r;
    return load;
}

/* Two trees for one half each: every rank is an inner node, of three links, in one of them. */
static struct tutti_load two_trees(const struct ask *q)
{
    double hops = q->p > 2 ? q->log + 1 : 1;
    return (struct tutti_load){.hops = hops,
                               .chain = q->p > 2 ? hops * q->b / 2 : q->b, /* both halves go the same way */
                               .messages = q->p > 2 ? 4 : 2,
                               .sent = q->p > 2 ? q->b : 0,
                               .received = q->b,
                               .waits = q->down ? 2 * (q->p - 1) : q->p,
                               .all_messages = 2 * (q->p - 1),
                               .all_bytes = (q->p - 1) * q->b,
                               .largest = q->b / 2};
}

/* Hierarchical: on each level the units but one send to it; parts with roots of their own share the work. */
static struct tutti_load levels(const struct ask *q)
{
    struct tutti_load load = exchange(q);
    load.hops = q->depth;
    load.chain = q->depth * q->b;
    load.waits = q->p * q->depth;
    return load;
}

/* all_reduce over levels, of parts, each with a lead in every group. Inside the groups: a tree in each for each part,
 * to the lead or from it; a lead may be that of one part alone, so ranks send as much as they receive. */
static struct tutti_load within(const struct ask *q)
{
    double depth = q->tree_d, even = q->parts * (q->g - 1) / q->g, lead = depth > even ? depth : even;
    double other = q->parts > 1 ? even : 0;
    return (struct tutti_load){.hops = depth,
                               .chain = depth * q->b,
                               .messages = lead + other,
                               .sent = (q->down ? lead : other) * q->b,
                               .received = (q->down ? other : lead) * q->b,
                               .waits = q->parts * (q->p - q->p / q->g),
                               .all_messages = q->parts * (q->p - q->p / q->g),
                               .all_bytes = q->parts * (q->p - q->p / q->g) * q->b,
                               .largest = q->b,
                               .calls = q->parts};
}

/* The same where all of a group exchange what they have. */
static struct tutti_load inside(const struct ask *q)
{
    return (struct tutti_load){.hops = q->tree_d,
                               .chain = q->tree_d * q->b,
                               .messages = 2 * q->tree_d,
                               .sent = q->tree_d * q->b,
                               .received = q->tree_d * q->b,
                               .waits = q->p * q->tree_d,
                               .all_messages = q->p * q->tree_d,
                               .all_bytes = q->p * q->tree_d * q->b,
                               .largest = q->b,
                               .calls = 1};
}

/* Parts of which a rank is a lead, if it is one. */
static double led(const struct ask *q)
{
    return q->parts > q->g ? q->parts / q->g : 1;
}

static double beside(const struct ask *q)
{
    return q->parts < q->g ? q->parts : q->g;
}

/* Between the groups: the leads of a part exchange it. */
static struct tutti_load between(const struct ask *q)
{
    double groups = q->p / q->g, hops = q->depth - q->tree_d, own = led(q) * hops, all = q->parts * groups * hops;
    if (groups > TUTTI_EXCHANGING_GROUPS) hops *= 2, all = 2 * q->parts * (groups - 1); /* up, and down */
    return (struct tutti_load){.hops = hops,
                               .chain = hops * q->b,
                               .messages = 2 * own,
                               .sent = own * q->b,
                               .received = own * q->b,
                               .waits = all,
                               .all_messages = all,
                               .all_bytes = all * q->b,
                               .largest = q->b,
                               .beside = beside(q)};
}

/* The same to a root of each part, or from it; roots are spread over the groups. */
static struct tutti_load to_roots(const struct ask *q)
{
    double groups = q->p / q->g, hops = q->depth - q->tree_d, own = led(q) * (groups - 1) / groups;
    return (struct tutti_load){.hops = hops,
                               .chain = hops * q->b,
                               .messages = 2 * own,
                               .sent = own * q->b,
                               .received = own * q->b,
                               .waits = q->parts * hops,
                               .all_messages = q->parts * (groups - 1),
                               .all_bytes = q->parts * (groups - 1) * q->b,
                               .largest = q->b,
                               .beside = beside(q)};
}

/* From the leads of the root's group to those of all others, along trees. */
static struct tutti_load from_leads(const struct ask *q)
{
    double hops = q->depth - q->tree_d, all = q->parts * (q->p / q->g - 1);
    return (struct tutti_load){.hops = hops,
                               .chain = hops * q->b,
                               .messages = hops,
                               .sent = hops * q->b,
                               .waits = all,
                               .all_messages = all,
                               .all_bytes = all * q->b,
                               .largest = q->b};
}

/* Before it, from the root to those leads: a wait and nothing more, since `within` counts all groups. */
static struct tutti_load to_leads(const struct ask *q)
{
    return (struct tutti_load){.hops = q->tree_d, .chain = q->tree_d * q->b, .waits = q->g - 1};
}

/* ---- the table. Flags: each rank's PART of a block instead of the whole; from the root DOWN instead of to it; a tree
 * of the LEVELS of the shape instead of one of the radix; that of the groups of its first level, which its messages do
 * not leave (NEAR); a block cut into as many PARTS as the radix says, one a rank (FEW: of a group; WHOLE: of
 * all of the block each) where it says 0; the
 * blocks of ALL ranks as one. What comes in is folded as it comes (EARLY), or once all of it is there (LATE). ---- */

enum fold { NO_FOLD, EARLY, LATE };
enum { PART = 1, DOWN = 2, LEVELS = 4, ALL = 8, NEAR = 16, PARTS = 32, FEW = 64, WHOLE = 128 };
#define ROW(kind, name, radices, ...)                                                                                  \
    {                                                                                                                  \
        TUTTI_##kind, &tutti_algorithm_##name, {RADICES_##radices},                                                    \
        {                                                                                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
#define RADICES_1 0
#define RADICES_FEWEST 1 /* messages: a row of its own */
#define RADICES_4 2, 4
#define RADICES_8 2, 4, 8
#define RADICES_FEW 1, 2, 4, 8 /* the same where the radix is a number of parts: a row of its own */

/* clang-format off */
const struct tutti_load_row tutti_load_rows[] = {
    ROW(ALL_REDUCE, direct, 1, {exchange, LATE, 0}),
    ROW(ALL_REDUCE, tree, 8, {tree, EARLY, 0}, {tree, NO_FOLD, DOWN}),
    ROW(ALL_REDUCE, halving_doubling, 1, {halving, EARLY, PART}, {halving, NO_FOLD, PART}),
    ROW(ALL_REDUCE, recursive_doubling, 1, {exchanges, LATE, 0}),
    ROW(ALL_REDUCE, ring, 1, {ring, EARLY, PART}, {ring, NO_FOLD, PART}),
    ROW(ALL_REDUCE, direct_two_shot, 1, {exchange, LATE, PART}, {exchange, NO_FOLD, PART}),
    ROW(ALL_REDUCE, double_tree, 1, {two_trees, EARLY, 0}, {two_trees, NO_FOLD, DOWN}),
    ROW(ALL_REDUCE, hierarchical, 1, {within, EARLY, NEAR | PARTS}, {to_roots, EARLY, PARTS},
        {to_roots, NO_FOLD, PARTS}, {within, NO_FOLD, NEAR | PARTS | DOWN}),
    ROW(ALL_REDUCE, hierarchical, FEW, {within, EARLY, NEAR | PARTS}, {between, LATE, PARTS},
        {within, NO_FOLD, NEAR | PARTS | DOWN}),
    ROW(ALL_REDUCE, by_levels, 1, {inside, LATE, NEAR | PARTS | WHOLE}, {between, LATE, PARTS | WHOLE}),

    ROW(REDUCE, direct, 1, {star, EARLY, 0}),
    ROW(REDUCE, tree, 8, {tree, EARLY, 0}),
    ROW(REDUCE, ring, 1, {loop, EARLY, 0}),
    ROW(REDUCE, direct_two_shot, 1, {exchange, LATE, PART}, {star, NO_FOLD, PART}),
    ROW(REDUCE, double_tree, 1, {two_trees, EARLY, 0}),
    ROW(REDUCE, hierarchical, 1, {tree, EARLY, LEVELS}),

    ROW(BROADCAST, tree, 8, {tree, NO_FOLD, DOWN}),
    ROW(BROADCAST, direct, 1, {star, NO_FOLD, DOWN}),
    ROW(BROADCAST, ring, 1, {chain, NO_FOLD, 0}),
    ROW(BROADCAST, direct_two_shot, 1, {star, NO_FOLD, PART | DOWN}, {spread, NO_FOLD, PART | DOWN}),
    ROW(BROADCAST, double_tree, 1, {two_trees, NO_FOLD, DOWN}),
    ROW(BROADCAST, hierarchical, 1, {to_leads, NO_FOLD, NEAR | PARTS | FEW},
        {from_leads, NO_FOLD, PARTS | FEW}, {within, NO_FOLD, NEAR | PARTS | FEW | DOWN}),
    ROW(BROADCAST, hierarchical, FEWEST, {within, NO_FOLD, NEAR | PARTS | DOWN}, {from_leads, NO_FOLD, PARTS}),

    ROW(ALL_GATHER, direct, 1, {exchange, NO_FOLD, 0}),
    ROW(ALL_GATHER, bruck, 4, {bruck_runs, NO_FOLD, 0}),
    ROW(ALL_GATHER, halving_doubling, 1, {halving, NO_FOLD, 0}),
    ROW(ALL_GATHER, ring, 1, {ring, NO_FOLD, 0}),
    ROW(ALL_GATHER, pat, 1, {side_by_side, NO_FOLD, 0}),
    ROW(ALL_GATHER, pairwise, 1, {exchange, NO_FOLD, 0}),
    ROW(ALL_GATHER, hierarchical, 1, {levels, NO_FOLD, 0}),
    ROW(ALL_GATHER, hierarchical, FEWEST, {tree_blocks, NO_FOLD, LEVELS}, {tree, NO_FOLD, LEVELS | DOWN | ALL}),

    ROW(GATHER, direct, 1, {star, NO_FOLD, 0}),
    ROW(GATHER, tree, 8, {tree_blocks, NO_FOLD, 0}),
    ROW(GATHER, hierarchical, 1, {tree_blocks, NO_FOLD, LEVELS}),

    ROW(SCATTER, direct, 1, {star, NO_FOLD, DOWN}),
    ROW(SCATTER, tree, 8, {tree_blocks, NO_FOLD, DOWN}),
    ROW(SCATTER, hierarchical, 1, {tree_blocks, NO_FOLD, LEVELS | DOWN}),

    ROW(REDUCE_SCATTER, halving_doubling, 1, {halving, EARLY, 0}),
    ROW(REDUCE_SCATTER, pairwise, 1, {exchange, EARLY, 0}),
    ROW(REDUCE_SCATTER, direct, 1, {exchange, LATE, 0}),
    ROW(REDUCE_SCATTER, ring, 1, {ring, EARLY, 0}),
    ROW(REDUCE_SCATTER, pat, 1, {side_by_side, EARLY, 0}),
    ROW(REDUCE_SCATTER, hierarchical, 1, {levels, EARLY, 0}),

    ROW(ALL_TO_ALL, pairwise, 1, {exchange, NO_FOLD, 0}),
    ROW(ALL_TO_ALL, direct, 1, {exchange, NO_FOLD, 0}),
    ROW(ALL_TO_ALL, bruck, 4, {bruck_packs, NO_FOLD, 0}),

    ROW(BARRIER, dissemination, 4, {dissemination, NO_FOLD, 0}),
    ROW(BARRIER, tree, 8, {tree, NO_FOLD, 0}, {tree, NO_FOLD, DOWN}),
    ROW(BARRIER, direct, 1, {exchange, NO_FOLD, 0}),
    ROW(BARRIER, hierarchical, 1, /* each group meets on the way up and on the way down */
        {tree, NO_FOLD, LEVELS}, {tree, NO_FOLD, LEVELS | DOWN},
        {tree, NO_FOLD, LEVELS}, {tree, NO_FOLD, LEVELS | DOWN}),

    ROW(SCAN, dissemination, 1, {doubling, LATE, 0}),
    ROW(SCAN, ring, 1, {chain, EARLY, 0}),
    ROW(SCAN, direct, 1, {to_later, LATE, 0}),

    ROW(EXSCAN, dissemination, 1, {doubling, LATE, 0}),
    ROW(EXSCAN, ring, 1, {chain, EARLY, 0}),
    ROW(EXSCAN, direct, 1, {to_later, LATE, 0}),
};
/* clang-format on */
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

static uint32_t largest_group(const struct tutti_shape *shape)
{
    uint32_t largest = 1;
    for (uint32_t r = 0; shape->n_levels && r < shape->levels[0].n_runs; r++)
        if (shape->levels[0].runs[r].size > largest) largest = shape->levels[0].runs[r].size;
    return largest;
}

static void fold_add(const struct tutti_load_phase *phase, const struct ask *q, struct tutti_load *load)
{
    if (phase->fold == NO_FOLD) return;
    load->folded = load->received;
    load->all_folded = phase->pattern == loop ? (q->p - 1) * q->b : load->all_bytes;
    if (phase->fold == EARLY) load->early = load->folded, load->all_early = load->all_folded;
}

static void load_add(struct tutti_load *sum, const struct tutti_load *more)
{
    sum->hops += more->hops, sum->chain += more->chain;
    sum->messages += more->messages, sum->sent += more->sent, sum->received += more->received;
    sum->folded += more->folded, sum->early += more->early, sum->copied += more->copied;
    sum->waits += more->waits;
    sum->all_messages += more->all_messages, sum->all_bytes += more->all_bytes;
    sum->all_folded += more->all_folded, sum->all_early += more->all_early;
    sum->calls += more->calls;
    if (more->beside > sum->beside) sum->beside = more->beside;
    if (more->largest > sum->largest) sum->largest = more->largest;
}

static struct tutti_load phases_add(const struct tutti_load_row *row, const struct tutti_shape *shape, uint64_t bytes,
                                    int flags, int wanted)
{
    uint32_t radix = shape->radix > 1 ? shape->radix : 2;
    double block = row->kind == TUTTI_BARRIER ? 0 : (double)bytes;
    struct ask ask = {
        .p = shape->size,
        .r = radix,
        .d = log_up(shape->size, radix),
        .log = log_up(shape->size, 2),
        .depth = levels_depth(shape),
        .g = largest_group(shape),
    };
    struct tutti_load sum = {.hops = 0};
    digits_count(&ask, shape->size, radix);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(row->phases) && row->phases[i].pattern; i++) {
        const struct tutti_load_phase *phase = &row->phases[i];
        bool levels = phase->flags & LEVELS, parts = phase->flags & PARTS;
        if ((phase->flags & flags) != wanted) continue;
        ask.b = phase->flags & PART ? block / ask.p : phase->flags & ALL ? block * ask.p : block;
        ask.parts = phase->flags & (FEW | WHOLE) ? ask.g : ask.p;
        if (shape->radix && shape->radix < ask.parts) ask.parts = shape->radix;
        if (parts && !(phase->flags & WHOLE)) ask.b = block / ask.parts;
        ask.down = phase->flags & DOWN;
        ask.tree_r = levels ? 2 : ask.r;
        ask.tree_d = levels ? ask.depth : parts ? log_up((uint32_t)ask.g, 2) : ask.d;
        struct tutti_load load = phase->pattern(&ask);
        fold_add(phase, &ask, &load);
        load_add(&sum, &load);
    }
    return sum;
}

struct tutti_load tutti_load_of(const struct tutti_load_row *row, const struct tutti_shape *shape, uint64_t bytes)
{
    return phases_add(row, shape, bytes, 0, 0);
}

struct tutti_load tutti_load_at(const struct tutti_load_row *row, const struct tutti_shape *shape, uint64_t bytes,
                                bool near)
{
    return phases_add(row, shape, bytes, NEAR, near ? NEAR : 0);
}

bool tutti_load_is_near(const struct tutti_load_row *row)
{
    return row->phases[0].flags & NEAR;
}
