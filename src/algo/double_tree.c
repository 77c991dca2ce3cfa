/* SPDX-License-Identifier: BSD-3-Clause */

/* Two binary trees at once, each for one half of the data: a slot that is an inner node of one tree is a leaf of the
 * other, so every slot sends and receives the data about once, in log2 p steps of latency.
 *
 * The slots but the root are numbered 1..n. The first tree is the search tree over them: node i is as high as its
 * lowest set bit, so odd nodes are leaves. The second tree is the first one mirrored (i -> n + 1 - i) if n is even,
 * shifted by one if n is odd; both make odd nodes of even ones. The root feeds, or drains, both trees.
 *
 *     n = 6           4               first tree; second tree: the same with 7 - i
 *                 2       6
 *               1   3   5
 *
 * Operands are folded as the trees join them, and the second tree of an odd n starts elsewhere: they must commute.
 *
 * Sanders, Speck, Träff: Two-tree algorithms for full bandwidth broadcast, reduction and scan (Parallel Computing 35,
 * 2009). */

#include "algo/parts.h"

#define NOBODY UINT32_MAX

struct node {
    uint32_t parent, left, right; /* slots, or NOBODY */
};

/* Number in the tree -> slot; number 0 is the root. */
static uint32_t slot_of(const struct tutti_shape *shape, uint32_t tree, uint32_t number)
{
    uint32_t n = shape->size - 1;

    if (tree == 1 && number > 0) number = n % 2 == 0 ? n + 1 - number : number % n + 1;
    return (shape->root + number) % shape->size;
}

static uint32_t number_of(const struct tutti_shape *shape, uint32_t tree)
{
    uint32_t n = shape->size - 1, number = (shape->slot + shape->size - shape->root) % shape->size;

    if (tree == 1 && number > 0) number = n % 2 == 0 ? n + 1 - number : (number + n - 2) % n + 1;
    return number;
}

/* Node number i, 1..n, of the search tree. */
static struct node find_node(const struct tutti_shape *shape, uint32_t tree, uint32_t i)
{
    uint32_t n = shape->size - 1, low = i & (~i + 1), below = low / 2, up = (i ^ low) | (low << 1);
    struct node node = {.parent = slot_of(shape, tree, up <= n ? up : i ^ low), .left = NOBODY, .right = NOBODY};

    if (below > 0) node.left = slot_of(shape, tree, i - below);
    while (below > 0 && i + below > n) below /= 2;
    if (below > 0) node.right = slot_of(shape, tree, i + below);
    return node;
}

/* The highest node: the largest power of two. */
static uint32_t top(const struct tutti_shape *shape, uint32_t tree)
{
    uint32_t power = 1;

    while (2 * power <= shape->size - 1) power *= 2;
    return slot_of(shape, tree, power);
}

static void up(const struct tutti_shape *shape, uint32_t tree, struct tutti_emit *emit)
{
    uint32_t number = number_of(shape, tree);

    if (number == 0) {
        tutti_emit_recv_reduce(emit, top(shape, tree), TUTTI_DATA, tree, 1, TUTTI_RIGHT);
        return;
    }
    struct node node = find_node(shape, tree, number);
    if (node.left != NOBODY) tutti_emit_recv_reduce(emit, node.left, TUTTI_DATA, tree, 1, TUTTI_LEFT);
    if (node.right != NOBODY) tutti_emit_recv_reduce(emit, node.right, TUTTI_DATA, tree, 1, TUTTI_RIGHT);
    tutti_emit_send(emit, node.parent, TUTTI_DATA, tree, 1);
}

static void down(const struct tutti_shape *shape, uint32_t tree, struct tutti_emit *emit)
{
    uint32_t number = number_of(shape, tree);

    if (number == 0) {
        tutti_emit_send(emit, top(shape, tree), TUTTI_DATA, tree, 1);
        return;
    }
    struct node node = find_node(shape, tree, number);
    tutti_emit_recv(emit, node.parent, TUTTI_DATA, tree, 1);
    if (node.left != NOBODY) tutti_emit_send(emit, node.left, TUTTI_DATA, tree, 1);
    if (node.right != NOBODY) tutti_emit_send(emit, node.right, TUTTI_DATA, tree, 1);
}

static uint32_t two_chunks(const struct tutti_shape *shape)
{
    (void)shape;
    return 2;
}

/* A round is one pass through one tree. */
static uint32_t two_rounds(const struct tutti_shape *shape)
{
    return shape->size > 1 ? 2 : 0;
}

static uint32_t four_rounds(const struct tutti_shape *shape)
{
    return shape->size > 1 ? 4 : 0;
}

static void all_reduce_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    if (round < 2)
        up(shape, round, emit);
    else
        down(shape, round - 2, emit);
}

const struct tutti_algorithm tutti_algorithm_double_tree = {
    .name = "double_tree",
    .help = "two binary trees, half of the data each; leaves of one are inner nodes of the other",
    .source = "Sanders, Speck and Träff, Parallel Computing 35 (2009)",
    .kinds = {[TUTTI_ALL_REDUCE] = TUTTI_OPS(.needs = TUTTI_NEEDS_COMMUTATIVE, .chunks = two_chunks,
                                             .rounds = four_rounds, .round = all_reduce_round),
              [TUTTI_REDUCE] =
                  TUTTI_OPS(.needs = TUTTI_NEEDS_COMMUTATIVE, .chunks = two_chunks, .rounds = two_rounds, .round = up),
              [TUTTI_BROADCAST] = TUTTI_OPS(.chunks = two_chunks, .rounds = two_rounds, .round = down)},
};
