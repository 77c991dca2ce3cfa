/* SPDX-License-Identifier: BSD-3-Clause */

/* Trees: binomial (radix 2) and k-nomial. The slots are cut into `radix` nearly equal ranges, each of these again, down
 * to single slots. Every range has a head: the head of the whole is the root, a part that contains the head of its
 * range keeps it, and any other part has the slot at the same offset (or its last one). So heads are spread over the
 * slots as the root changes, every part is a run of consecutive slots, and a fold keeps the operands' order for any
 * root.
 *
 *     0 1 2 3 | 4 5 6 7    root 5: head of the left half is 1
 *     0 1|2 3 | 4 5|6 7    heads 1, 3, 5, 7
 *
 * reduce, gather: from the deepest cut up, the heads of the parts send to the head of the range. broadcast, scatter:
 * the same backwards. all_reduce and barrier: up to slot 0 and down again, 2 (p - 1) messages in all, which is the
 * fewest, so it is the latency form where ranks outnumber cores.
 *
 * Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH (IJHPCA 19, 2005). */

#include "algo/parts.h"

struct range {
    uint32_t first, n, head;
};

/* Part j of the range: the first n % parts of them have one slot more. */
static struct range part_of(const struct range *range, uint32_t parts, uint32_t j)
{
    /* A range is not empty, so that parts >= 1. NOLINTNEXTLINE(clang-analyzer-core.DivideZero) */
    uint32_t width = range->n / parts, more = range->n % parts;
    struct range part = {.first = range->first + j * width + (j < more ? j : more), .n = width + (j < more)};

    return part;
}

static uint32_t n_parts(const struct range *range, uint32_t radix)
{
    return range->n < radix ? range->n : radix;
}

/* The part that slot is in. */
static uint32_t index_of(const struct range *range, uint32_t parts, uint32_t slot)
{
    /* A range is not empty, so that parts >= 1. NOLINTNEXTLINE(clang-analyzer-core.DivideZero) */
    uint32_t width = range->n / parts, more = range->n % parts, at = slot - range->first;

    return at < more * (width + 1) ? at / (width + 1) : more + (at - more * (width + 1)) / width;
}

/* Part j with its head. */
static struct range headed_part(const struct range *range, uint32_t parts, uint32_t j)
{
    uint32_t home = index_of(range, parts, range->head);
    struct range part = part_of(range, parts, j);
    uint32_t offset = range->head - part_of(range, parts, home).first;

    part.head = part.first + (offset < part.n ? offset : part.n - 1);
    return part;
}

/* The range of the shape's slot after `depth` cuts; n is 1 when the slot was alone before. */
static struct range descend(const struct tutti_shape *shape, uint32_t root, uint32_t depth)
{
    struct range range = {.first = 0, .n = shape->size, .head = root};

    for (uint32_t d = 0; d < depth && range.n > 1; d++) {
        uint32_t parts = n_parts(&range, shape->radix);
        range = headed_part(&range, parts, index_of(&range, parts, shape->slot));
    }
    return range;
}

/* Cuts until all slots are alone; the largest part of each cut decides. */
static uint32_t depth_of(const struct tutti_shape *shape)
{
    uint32_t depth = 0;

    for (uint32_t n = shape->size; n > 1; n = (n + shape->radix - 1) / shape->radix) depth++;
    return depth;
}

enum content { WHOLE, BLOCKS }; /* one chunk, or the chunks of the part's slots */

static uint32_t first_chunk(const struct range *part, enum content content)
{
    return content == BLOCKS ? part->first : 0;
}

static uint32_t n_chunks(const struct range *part, enum content content)
{
    return content == BLOCKS ? part->n : 1;
}

/* Parts to the right of the head's come in order, then those to the left from the nearest on, so each operand meets its
 * neighbour. */
static void collect(const struct range *range, uint32_t parts, enum content content, bool combine,
                    struct tutti_emit *emit)
{
    uint32_t home = index_of(range, parts, range->head);

    for (uint32_t i = 1; i < parts; i++) {
        uint32_t j = home + i < parts ? home + i : parts - 1 - i;
        struct range part = headed_part(range, parts, j);
        if (combine)
            tutti_emit_recv_reduce(emit, part.head, TUTTI_DATA, 0, 1, j > home ? TUTTI_RIGHT : TUTTI_LEFT);
        else
            tutti_emit_recv(emit, part.head, TUTTI_DATA, first_chunk(&part, content), n_chunks(&part, content));
    }
}

/* The cut at `depth`: heads of parts send to the head of the range. */
static void up(const struct tutti_shape *shape, uint32_t root, uint32_t depth, enum content content, bool combine,
               struct tutti_emit *emit)
{
    struct range range = descend(shape, root, depth);

    if (range.n == 1) return;
    uint32_t parts = n_parts(&range, shape->radix);
    struct range own = headed_part(&range, parts, index_of(&range, parts, shape->slot));
    if (shape->slot == range.head)
        collect(&range, parts, content, combine, emit);
    else if (shape->slot == own.head)
        tutti_emit_send(emit, range.head, TUTTI_DATA, first_chunk(&own, content), n_chunks(&own, content));
}

/* The same cut backwards. */
static void down(const struct tutti_shape *shape, uint32_t root, uint32_t depth, enum content content,
                 struct tutti_emit *emit)
{
    struct range range = descend(shape, root, depth);

    if (range.n == 1) return;
    uint32_t parts = n_parts(&range, shape->radix);
    struct range own = headed_part(&range, parts, index_of(&range, parts, shape->slot));
    if (shape->slot != range.head) {
        if (shape->slot == own.head)
            tutti_emit_recv(emit, range.head, TUTTI_DATA, first_chunk(&own, content), n_chunks(&own, content));
        return;
    }
    for (uint32_t j = 0; j < parts; j++) {
        struct range part = headed_part(&range, parts, j);
        if (part.head != range.head)
            tutti_emit_send(emit, part.head, TUTTI_DATA, first_chunk(&part, content), n_chunks(&part, content));
    }
}

static uint32_t up_and_down(const struct tutti_shape *shape)
{
    return 2 * depth_of(shape);
}

static void reduce_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    up(shape, shape->root, depth_of(shape) - 1 - round, WHOLE, true, emit);
}

static void gather_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    up(shape, shape->root, depth_of(shape) - 1 - round, BLOCKS, false, emit);
}

static void broadcast_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    down(shape, shape->root, round, WHOLE, emit);
}

static void scatter_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    down(shape, shape->root, round, BLOCKS, emit);
}

static void all_reduce_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    uint32_t depth = depth_of(shape);

    if (round < depth)
        up(shape, 0, depth - 1 - round, WHOLE, true, emit);
    else
        down(shape, 0, round - depth, WHOLE, emit);
}

/* The token of a part says that all its slots have arrived. */
static void barrier_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    uint32_t depth = depth_of(shape);

    if (round < depth)
        up(shape, 0, depth - 1 - round, WHOLE, false, emit);
    else
        down(shape, 0, round - depth, WHOLE, emit);
}

const struct tutti_algorithm tutti_algorithm_tree = {
    .name = "tree",
    .help = "binomial or, with a radix, k-nomial tree (tree:4); fewest messages: short messages",
    .source = "Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005)",
    .kinds = {[TUTTI_ALL_REDUCE] = TUTTI_OPS(.default_radix = 2, .rounds = up_and_down, .round = all_reduce_round),
              [TUTTI_REDUCE] = TUTTI_OPS(.default_radix = 2, .rounds = depth_of, .round = reduce_round),
              [TUTTI_BROADCAST] = TUTTI_OPS(.default_radix = 2, .rounds = depth_of, .round = broadcast_round),
              [TUTTI_GATHER] = TUTTI_OPS(.default_radix = 2, .rounds = depth_of, .round = gather_round),
              [TUTTI_SCATTER] = TUTTI_OPS(.default_radix = 2, .rounds = depth_of, .round = scatter_round),
              [TUTTI_BARRIER] = TUTTI_OPS(.default_radix = 2, .rounds = up_and_down, .round = barrier_round)},
};
