/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ALGO_INTERPRETER_TEST_H
#define TUTTI_ALGO_INTERPRETER_TEST_H

/* For the tests beside it: runs an algorithm for every slot of a small world, taking steps in program order, and checks
 * the result. It shares nothing with the checker. Values are chosen so that what an algorithm promises shows: a sum
 * where operands must commute, a fold that associates but does not commute (words over the slots, hashed) where it
 * keeps their order, and one that does neither where it folds from left to right. (That steps may overlap is the
 * sealer's test; deadlock is the checker's.) */

#include "algo/algo.h"
#include "sched/sched.h"

#include "test.h"

/* ---- values ---- */

struct value {
    uint64_t hash, power; /* a word's hash, and the base to its length */
};

enum algebra { SUM, WORDS, LEFT_FOLD };

static struct value combine(enum algebra algebra, struct value a, struct value b)
{
    if (algebra == SUM) return (struct value){a.hash + b.hash, 1};
    if (algebra == WORDS) return (struct value){a.hash * b.power + b.hash, a.power * b.power};
    return (struct value){tutti_mix64(a.hash * 5 + tutti_mix64(b.hash + 7)), 1};
}

/* What slot contributes to a chunk. */
static struct value contribution(uint32_t slot, uint32_t chunk)
{
    return (struct value){tutti_mix64(((uint64_t)slot << 32) + chunk + 1), UINT64_C(0x9e3779b97f4a7c15)};
}

static bool same(struct value a, struct value b)
{
    return a.hash == b.hash && a.power == b.power;
}

/* The reduction of chunk over slots 0..n - 1, in order. */
static struct value reduced(enum algebra algebra, uint32_t chunk, uint32_t n)
{
    struct value value = contribution(0, chunk);

    for (uint32_t s = 1; s < n; s++) value = combine(algebra, value, contribution(s, chunk));
    return value;
}

/* ---- a world ---- */

struct rank {
    struct tutti_schedule *schedule;
    struct value *input, *data, *scratch, *in;
    uint32_t at; /* next step */
};

struct mail { /* a message in flight: chunks of one (sender, receiver, number) */
    uint32_t from, to, fifo, n;
    struct value *values;
    struct mail *next;
};

struct world {
    uint32_t size;
    enum tutti_kind kind;
    enum algebra algebra;
    struct rank *ranks;
    struct mail **mail; /* by receiver */
    uint64_t n_messages, n_chunks_sent;
};

static struct value *place(struct rank *rank, uint32_t buffer, bool input, uint32_t chunk)
{
    if (buffer == TUTTI_IN) return &rank->in[chunk];
    if (buffer == TUTTI_SCRATCH) return &rank->scratch[chunk];
    return input ? &rank->input[chunk] : &rank->data[chunk];
}

static void send_mail(struct world *world, uint32_t from, const struct tutti_step *step)
{
    struct mail *mail = tutti_alloc(sizeof(*mail));

    *mail = (struct mail){from,
                          step->peer,
                          step->fifo,
                          step->n,
                          tutti_alloc_array(step->n, sizeof(struct value)),
                          world->mail[step->peer]};
    for (uint32_t i = 0; i < step->n; i++)
        mail->values[i] =
            *place(&world->ranks[from], step->src_buffer, step->flags & TUTTI_STEP_SRC_INPUT, step->src + i);
    world->mail[step->peer] = mail;
    world->n_messages++;
    world->n_chunks_sent += step->n;
}

/* Takes the message out; NULL when it is not there yet. */
static struct mail *take_mail(struct world *world, uint32_t to, const struct tutti_step *step)
{
    for (struct mail **at = &world->mail[to]; *at; at = &(*at)->next) {
        struct mail *mail = *at;
        if (mail->from != step->peer || mail->fifo != step->fifo) continue;
        *at = mail->next;
        return mail;
    }
    return NULL;
}

static void free_mail(struct mail *mail)
{
    tutti_free(mail->values);
    tutti_free(mail);
}

/* A token says who has arrived: a set, which only grows. */
static struct value joined(struct value a, struct value b)
{
    return (struct value){a.hash | b.hash, 1};
}

static bool run_step(struct world *world, uint32_t slot, const struct tutti_step *step)
{
    struct rank *rank = &world->ranks[slot];
    struct mail *mail = NULL;
    bool receives = step->op == TUTTI_STEP_RECV || step->op == TUTTI_STEP_RECV_REDUCE;
    bool reduces = step->op == TUTTI_STEP_REDUCE || step->op == TUTTI_STEP_RECV_REDUCE;

    if (step->op == TUTTI_STEP_SEND) {
        send_mail(world, slot, step);
        return true;
    }
    if (receives && !(mail = take_mail(world, slot, step))) return false;
    if (mail) assert_int_equal(mail->n, step->n);
    for (uint32_t i = 0; i < step->n; i++) {
        struct value *dst = place(rank, step->dst_buffer, false, step->dst + i), old, in;
        old = *place(rank, step->dst_buffer, step->flags & TUTTI_STEP_DST_INPUT, step->dst + i);
        in = mail ? mail->values[i] : *place(rank, step->src_buffer, step->flags & TUTTI_STEP_SRC_INPUT, step->src + i);
        if (reduces)
            in = step->flags & TUTTI_STEP_LEFT ? combine(world->algebra, in, old) : combine(world->algebra, old, in);
        *dst = world->kind == TUTTI_BARRIER ? joined(*dst, in) : in;
    }
    if (mail) free_mail(mail);
    return true;
}

/* Until nobody can go on. */
static void run_world(struct world *world)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t s = 0; s < world->size; s++) {
            struct rank *rank = &world->ranks[s];
            while (rank->at < rank->schedule->n_steps && run_step(world, s, &rank->schedule->steps[rank->at])) {
                rank->at++;
                moved = true;
            }
        }
    }
}

static enum algebra algebra_of(uint32_t needs)
{
    return needs & TUTTI_NEEDS_COMMUTATIVE ? SUM : needs & TUTTI_KEEPS_RANK_ORDER ? LEFT_FOLD : WORDS;
}

static void init_rank(struct world *world, const struct tutti_algorithm *algorithm, const struct tutti_shape *shape)
{
    struct rank *rank = &world->ranks[shape->slot];

    assert_int_equal(tutti_schedule_seal(algorithm, world->kind, shape, true, &rank->schedule), TUTTI_OK);
    if (rank->schedule->defect) fail_msg("%s", rank->schedule->defect);
    uint32_t n = rank->schedule->n_chunks, blocks = tutti_kind_blocks(world->kind, shape->size);
    rank->input = tutti_alloc_array(n, sizeof(*rank->input));
    rank->data = tutti_alloc_array(n, sizeof(*rank->data));
    rank->in = tutti_alloc_array(n, sizeof(*rank->in));
    rank->scratch = tutti_alloc_array(rank->schedule->n_scratch, sizeof(*rank->scratch));
    for (uint32_t c = 0; c < n; c++) {
        if (tutti_kind_before(world->kind, shape, c / (n / blocks)) != TUTTI_HOLDS_NOTHING)
            rank->input[c] = contribution(shape->slot, c);
        rank->in[c] = contribution(shape->slot, c);
    }
    if (world->kind == TUTTI_BARRIER) rank->input[0] = rank->data[0] = (struct value){UINT64_C(1) << shape->slot, 1};
}

/* By the meaning of the kind, which is written down here again. */
static struct value expected(const struct world *world, uint32_t slot, uint32_t root, uint32_t n_chunks, uint32_t chunk)
{
    uint32_t size = world->size, width = n_chunks / (tutti_kind_blocks(world->kind, size)), block = chunk / width;

    switch (world->kind) {
    case TUTTI_BARRIER:
        return (struct value){size == 64 ? UINT64_MAX : (UINT64_C(1) << size) - 1, 1};
    case TUTTI_BROADCAST:
    case TUTTI_SCATTER:
        return contribution(root, chunk);
    case TUTTI_ALL_GATHER:
    case TUTTI_GATHER:
        return contribution(block, chunk);
    case TUTTI_ALL_TO_ALL:
        return contribution(block, slot * width + chunk % width);
    case TUTTI_SCAN:
        return reduced(world->algebra, chunk, slot + 1);
    case TUTTI_EXSCAN:
        return reduced(world->algebra, chunk, slot);
    default:
        return reduced(world->algebra, chunk, size);
    }
}

static bool must_hold(enum tutti_kind kind, uint32_t slot, uint32_t root, uint32_t block)
{
    if (kind == TUTTI_REDUCE || kind == TUTTI_GATHER) return slot == root;
    if (kind == TUTTI_SCATTER || kind == TUTTI_REDUCE_SCATTER) return block == slot;
    return kind != TUTTI_EXSCAN || slot > 0;
}

static void check_result(const struct world *world, const struct tutti_algorithm *algorithm, uint32_t root)
{
    for (uint32_t s = 0; s < world->size; s++) {
        const struct rank *rank = &world->ranks[s];
        const char *name = tutti_kind_name(world->kind);
        uint32_t n = rank->schedule->n_chunks, width = n / tutti_kind_blocks(world->kind, world->size);
        if (rank->at != rank->schedule->n_steps)
            fail_msg("%s %s, %u ranks, root %u: rank %u waits in step %u", algorithm->name, name, world->size, root, s,
                     rank->at);
        if (world->mail[s])
            fail_msg("%s %s, %u ranks: a message to rank %u is left", algorithm->name, name, world->size, s);
        for (uint32_t c = 0; c < n; c++)
            if (must_hold(world->kind, s, root, c / width) && !same(rank->data[c], expected(world, s, root, n, c)))
                fail_msg("%s %s, %u ranks, root %u, radix %u: rank %u has a wrong chunk %u", algorithm->name, name,
                         world->size, root, rank->schedule->shape.radix, s, c);
    }
}

static inline struct world run(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                               const struct tutti_shape *any)
{
    struct world world = {.size = any->size, .kind = kind, .algebra = algebra_of(algorithm->kinds[kind]->needs)};
    struct tutti_shape shape = *any;

    world.ranks = tutti_alloc_array(world.size, sizeof(*world.ranks));
    world.mail = tutti_alloc_array(world.size, sizeof(struct mail *));
    for (shape.slot = 0; shape.slot < shape.size; shape.slot++) init_rank(&world, algorithm, &shape);
    run_world(&world);
    check_result(&world, algorithm, any->root);
    for (uint32_t s = 0; s < world.size; s++) {
        struct rank *rank = &world.ranks[s];
        tutti_schedule_destroy(rank->schedule);
        tutti_free(rank->input), tutti_free(rank->data), tutti_free(rank->in), tutti_free(rank->scratch);
    }
    tutti_free(world.ranks);
    tutti_free(world.mail);
    return world;
}

#endif
