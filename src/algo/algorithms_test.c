/* SPDX-License-Identifier: BSD-3-Clause */

/* Every algorithm, run for every slot of small worlds by an interpreter of a page that takes steps in program order.
 * Values are chosen so that what an algorithm promises shows: a sum where operands must commute, a fold that does not
 * commute but associates (words over the slots, hashed) where it keeps their order, and one that does neither where it
 * folds from left to right. (That steps may overlap is the sealer's test; deadlock is the checker's.) */

#include "algo/algo.h"
#include "sched/sched.h"

#include <stdio.h>
#include <string.h>

#include "test.h"

/* ---- values ---- */

struct value {
    uint64_t hash, power; /* of a word: its hash, and the base to its length */
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

static struct world run(const struct tutti_algorithm *algorithm, enum tutti_kind kind, const struct tutti_shape *any)
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

/* ---- all of them ---- */

static void run_radices(const struct tutti_algorithm *algorithm, enum tutti_kind kind, struct tutti_shape shape)
{
    const uint32_t radices[] = {0, 3, 5};
    size_t n = algorithm->kinds[kind]->default_radix > 1 && shape.size <= 33 ? TUTTI_ARRAY_LEN(radices) : 1;

    for (size_t r = 0; r < n; r++) {
        shape.radix = radices[r];
        run(algorithm, kind, &shape);
    }
}

static void run_all(const struct tutti_algorithm *algorithm, enum tutti_kind kind, uint32_t last)
{
    for (uint32_t size = 1; size <= last; size++) {
        const uint32_t roots[] = {0, size - 1, size / 3};
        uint32_t n = tutti_kind_info(kind)->rooted ? 3 : 1;
        for (uint32_t r = 0; r < n; r++) {
            struct tutti_shape shape = {.size = size, .root = roots[r]};
            run_radices(algorithm, kind, shape);
        }
    }
}

static void test_every_algorithm_is_right(void **state)
{
    (void)state;
    for (size_t a = 0; a < tutti_n_algorithms; a++)
        for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++)
            if (tutti_algorithms[a]->kinds[kind] && !(tutti_algorithms[a]->kinds[kind]->needs & TUTTI_NEEDS_LEVELS))
                run_all(tutti_algorithms[a], (enum tutti_kind)kind, 64);
}

static void test_ragged_levels_are_right(void **state)
{
    const struct {
        uint32_t size;
        const char *levels;
    } worlds[] = {{31, "8,8,7,8"},     {31, "8,8,7,8;2,2"},
                  {24, "4x6;2x3"},     {24, "4x6;3,2,1;2,1"},
                  {13, "1,5,1,1,5"},   {17, "16,1"},
                  {9, "1x9"},          {9, "9"},
                  {40, "8,4,8,4,8,8"}, {12, "3x4;1,3;1,1"},
                  {45, "5x9;3x3;2,1"}, {22, "2,3,2,3,2,3,2,5;3,5"},
                  {2, "1,1"},          {1, "1"}};

    (void)state;
    for (size_t w = 0; w < TUTTI_ARRAY_LEN(worlds); w++) {
        for (uint32_t k = 0; k < TUTTI_N_KINDS; k++) {
            if (!tutti_algorithm_hierarchical.kinds[k]) continue;
            struct tutti_shape shape = {.size = worlds[w].size};
            assert_int_equal(tutti_shape_parse_levels(&shape, worlds[w].levels), TUTTI_OK);
            uint32_t last = tutti_kind_info((enum tutti_kind)k)->rooted ? shape.size : 1;
            for (shape.root = 0; shape.root < last; shape.root++)
                run(&tutti_algorithm_hierarchical, (enum tutti_kind)k, &shape);
            shape.root = 0;
            for (shape.radix = 1; shape.radix < 5 && k == TUTTI_ALL_REDUCE; shape.radix++)
                run(&tutti_algorithm_hierarchical, (enum tutti_kind)k, &shape);
        }
    }
}

/* ---- what all of them offer together ---- */

static bool offered(enum tutti_kind kind, uint32_t with, uint32_t without)
{
    for (size_t a = 0; a < tutti_n_algorithms; a++) {
        const struct tutti_schedule_ops *ops = tutti_algorithms[a]->kinds[kind];
        uint32_t restrictions = TUTTI_NEEDS_LEVELS | TUTTI_NEEDS_POWER_OF_TWO | without;
        if (ops && (ops->needs & with) == with && !(ops->needs & restrictions)) return true;
    }
    return false;
}

static void test_every_kind_is_offered(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < TUTTI_N_KINDS; k++) {
        enum tutti_kind kind = (enum tutti_kind)k;
        assert_true(offered(kind, 0, TUTTI_NEEDS_EQUAL_BLOCKS | TUTTI_NEEDS_COMMUTATIVE));
        if (tutti_kind_info(kind)->reduces) assert_true(offered(kind, TUTTI_KEEPS_RANK_ORDER, 0));
        if (kind == TUTTI_GATHER || kind == TUTTI_SCATTER || kind == TUTTI_ALL_TO_ALL)
            assert_true(offered(kind, TUTTI_OWN_COUNTS_ONLY, TUTTI_NEEDS_EQUAL_BLOCKS));
    }
}

/* OWN_COUNTS_ONLY: a message between a and b is block a or b, a copy is the own block. */
static void test_own_counts_are_enough(void **state)
{
    (void)state;
    for (size_t a = 0; a < tutti_n_algorithms; a++) {
        for (uint32_t k = 0; k < TUTTI_N_KINDS; k++) {
            const struct tutti_schedule_ops *ops = tutti_algorithms[a]->kinds[k];
            if (!ops || !(ops->needs & TUTTI_OWN_COUNTS_ONLY)) continue;
            for (uint32_t slot = 0; slot < 11; slot++) {
                struct tutti_shape shape = {.slot = slot, .size = 11, .root = k == TUTTI_ALL_TO_ALL ? 0 : 4};
                struct tutti_schedule *schedule = NULL;
                assert_int_equal(tutti_schedule_seal(tutti_algorithms[a], (enum tutti_kind)k, &shape, true, &schedule),
                                 TUTTI_OK);
                for (uint32_t i = 0; i < schedule->n_steps; i++) {
                    const struct tutti_step *step = &schedule->steps[i];
                    uint32_t block = step->op == TUTTI_STEP_SEND ? step->src : step->dst;
                    assert_true(step->op == TUTTI_STEP_COPY ||
                                (step->n == 1 && (block == slot || block == step->peer)));
                    assert_int_not_equal(step->src_buffer, TUTTI_SCRATCH);
                }
                tutti_schedule_destroy(schedule);
            }
        }
    }
}

/* ---- costs, as the sources give them ---- */

static uint32_t log2_up(uint32_t n)
{
    uint32_t log = 0;

    while ((UINT64_C(1) << log) < n) log++;
    return log;
}

static void test_costs(void **state)
{
    (void)state;
    for (uint32_t p = 2; p <= 40; p++) {
        struct tutti_shape shape = {.size = p};
        uint32_t log = log2_up(p);
        assert_int_equal(run(&tutti_algorithm_tree, TUTTI_ALL_REDUCE, &shape).n_messages, 2 * (p - 1));
        assert_int_equal(run(&tutti_algorithm_tree, TUTTI_BROADCAST, &shape).n_messages, p - 1);
        assert_int_equal(run(&tutti_algorithm_ring, TUTTI_ALL_REDUCE, &shape).n_chunks_sent, 2 * p * (p - 1));
        assert_int_equal(run(&tutti_algorithm_halving_doubling, TUTTI_ALL_REDUCE, &shape).n_chunks_sent,
                         2 * p * (p - 1));
        assert_true(run(&tutti_algorithm_halving_doubling, TUTTI_ALL_REDUCE, &shape).n_messages <= 2 * p * log);
        assert_int_equal(run(&tutti_algorithm_double_tree, TUTTI_ALL_REDUCE, &shape).n_chunks_sent, 4 * (p - 1));
        assert_int_equal(run(&tutti_algorithm_bruck, TUTTI_ALL_GATHER, &shape).n_chunks_sent, p * (p - 1));
        assert_int_equal(run(&tutti_algorithm_bruck, TUTTI_ALL_TO_ALL, &shape).n_messages, p * log);
        assert_int_equal(run(&tutti_algorithm_dissemination, TUTTI_BARRIER, &shape).n_messages, p * log);
        assert_int_equal(run(&tutti_algorithm_pairwise, TUTTI_ALL_TO_ALL, &shape).n_messages, p * (p - 1));
        assert_int_equal(run(&tutti_algorithm_direct_two_shot, TUTTI_ALL_REDUCE, &shape).n_chunks_sent,
                         2 * p * (p - 1));
    }
}

/* No slot of the double tree sends, or receives, more than the data twice (once up, once down) and a half. */
static void test_double_tree_is_balanced(void **state)
{
    (void)state;
    for (uint32_t p = 3; p <= 200; p++) {
        for (uint32_t slot = 0; slot < p; slot++) {
            struct tutti_shape shape = {.slot = slot, .size = p};
            struct tutti_schedule *schedule = NULL;
            uint32_t sent = 0, received = 0;
            assert_int_equal(
                tutti_schedule_seal(&tutti_algorithm_double_tree, TUTTI_ALL_REDUCE, &shape, true, &schedule), TUTTI_OK);
            for (uint32_t i = 0; i < schedule->n_steps; i++) {
                if (schedule->steps[i].op == TUTTI_STEP_SEND) sent++;
                if (schedule->steps[i].op <= TUTTI_STEP_RECV_REDUCE && schedule->steps[i].op != TUTTI_STEP_SEND)
                    received++;
            }
            assert_true(sent <= 4 && received <= 4); /* of two chunks */
            tutti_schedule_destroy(schedule);
        }
    }
}

/* Groups keep to themselves: one rank of a group, per part, talks to other groups, and each part crosses once a group.
 */
static void test_hierarchy_keeps_traffic_inside(void **state)
{
    struct tutti_shape shape = {.size = 31, .radix = 1};
    uint32_t crossing = 0;

    (void)state;
    assert_int_equal(tutti_shape_parse_levels(&shape, "8,8,7,8"), TUTTI_OK);
    for (shape.slot = 0; shape.slot < shape.size; shape.slot++) {
        struct tutti_schedule *schedule = NULL;
        assert_int_equal(tutti_schedule_seal(&tutti_algorithm_hierarchical, TUTTI_ALL_REDUCE, &shape, true, &schedule),
                         TUTTI_OK);
        for (uint32_t i = 0; i < schedule->n_steps; i++) {
            uint32_t own, peer, first, size;
            if (schedule->steps[i].op != TUTTI_STEP_SEND) continue;
            tutti_level_find(&shape.levels[0], shape.slot, &own, &first, &size);
            tutti_level_find(&shape.levels[0], schedule->steps[i].peer, &peer, &first, &size);
            crossing += own != peer;
        }
        tutti_schedule_destroy(schedule);
    }
    assert_int_equal(crossing, 2 * 3);
}

/* ---- sealing at scale ---- */

static void test_large_worlds_seal_fast(void **state)
{
    const struct {
        const struct tutti_algorithm *algorithm;
        enum tutti_kind kind;
        uint32_t size;
        const char *levels;
    } worlds[] = {
        {&tutti_algorithm_ring, TUTTI_ALL_REDUCE, 4096, ""},
        {&tutti_algorithm_direct, TUTTI_ALL_TO_ALL, 4096, ""},
        {&tutti_algorithm_direct_two_shot, TUTTI_ALL_REDUCE, 4096, ""},
        {&tutti_algorithm_bruck, TUTTI_ALL_TO_ALL, 4096, ""},
        {&tutti_algorithm_tree, TUTTI_ALL_REDUCE, 131072, ""},
        {&tutti_algorithm_halving_doubling, TUTTI_ALL_REDUCE, 131072, ""},
        {&tutti_algorithm_double_tree, TUTTI_ALL_REDUCE, 131072, ""},
        {&tutti_algorithm_dissemination, TUTTI_BARRIER, 131072, ""},
        {&tutti_algorithm_hierarchical, TUTTI_ALL_REDUCE, 1024, "8x128;16x8"},
    };

    (void)state;
    for (size_t w = 0; w < TUTTI_ARRAY_LEN(worlds); w++) {
        struct tutti_shape shape = {.slot = 5, .size = worlds[w].size};
        struct tutti_schedule *schedule = NULL;
        assert_int_equal(tutti_shape_parse_levels(&shape, worlds[w].levels), TUTTI_OK);
        uint64_t start = tutti_now_ns();
        assert_int_equal(tutti_schedule_seal(worlds[w].algorithm, worlds[w].kind, &shape, true, &schedule), TUTTI_OK);
        uint64_t ns = tutti_now_ns() - start;
        assert_null(schedule->defect);
        print_message("%s %s, %u ranks: %u steps sealed in %.1f ms\n", worlds[w].algorithm->name,
                      tutti_kind_name(worlds[w].kind), shape.size, schedule->n_steps, (double)ns / 1e6);
        assert_true(ns <
                    5 * TUTTI_NS_PER_S); /* generous: sanitizers, busy machines; a search over pairs takes longer */
        tutti_schedule_destroy(schedule);
    }
}

/* A thousand ranks: sound for a few slots, and what they send one another is what they expect. */
static void test_thousand_ranks_seal(void **state)
{
    const uint32_t slots[] = {0, 1, 333, 512, 999};
    enum { N = TUTTI_ARRAY_LEN(slots) };

    (void)state;
    for (size_t a = 0; a < tutti_n_algorithms; a++) {
        for (uint32_t k = 0; k < TUTTI_N_KINDS; k++) {
            if (!tutti_algorithms[a]->kinds[k]) continue;
            struct tutti_shape shape = {.size = 1000, .root = tutti_kind_info((enum tutti_kind)k)->rooted ? 333 : 0};
            uint64_t sent[N][N] = {{0}}, expected[N][N] = {{0}}; /* chunks, from and to */
            if (tutti_algorithms[a]->kinds[k]->needs & TUTTI_NEEDS_LEVELS)
                assert_int_equal(tutti_shape_parse_levels(&shape, "8x62,7x4,8x59,4;6x21"), TUTTI_OK);
            for (size_t i = 0; i < N; i++) {
                struct tutti_schedule *schedule = NULL;
                shape.slot = slots[i];
                assert_int_equal(tutti_schedule_seal(tutti_algorithms[a], (enum tutti_kind)k, &shape, true, &schedule),
                                 TUTTI_OK);
                if (schedule->defect) fail_msg("%s", schedule->defect);
                for (uint32_t s = 0; s < schedule->n_steps; s++) {
                    const struct tutti_step *step = &schedule->steps[s];
                    for (size_t j = 0; j < N && step->op <= TUTTI_STEP_RECV_REDUCE; j++)
                        if (step->peer == slots[j] && step->op == TUTTI_STEP_SEND)
                            sent[i][j] += step->n;
                        else if (step->peer == slots[j])
                            expected[j][i] += step->n;
                }
                tutti_schedule_destroy(schedule);
            }
            assert_memory_equal(sent, expected, sizeof(sent));
        }
    }
}

static void test_find(void **state)
{
    uint32_t radix = 77;

    (void)state;
    assert_ptr_equal(tutti_algorithm_find("ring", &radix), &tutti_algorithm_ring);
    assert_int_equal(radix, 0);
    assert_ptr_equal(tutti_algorithm_find("tree:4", &radix), &tutti_algorithm_tree);
    assert_int_equal(radix, 4);
    assert_ptr_equal(tutti_algorithm_find("direct_two_shot", NULL), &tutti_algorithm_direct_two_shot);
    const char *const unknown[] = {"",  "rin", "ringo", "tree:", "tree:0", "tree:x", "tree:4x", "tree:99999999999",
                                   ":4"};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(unknown); i++) assert_null(tutti_algorithm_find(unknown[i], &radix));
    for (size_t a = 0; a < tutti_n_algorithms; a++) {
        assert_ptr_equal(tutti_algorithm_find(tutti_algorithms[a]->name, NULL), tutti_algorithms[a]);
        assert_true(strlen(tutti_algorithms[a]->help) > 10 && strlen(tutti_algorithms[a]->source) > 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_algorithm_is_right),
        cmocka_unit_test(test_ragged_levels_are_right),
        cmocka_unit_test(test_every_kind_is_offered),
        cmocka_unit_test(test_own_counts_are_enough),
        cmocka_unit_test(test_costs),
        cmocka_unit_test(test_double_tree_is_balanced),
        cmocka_unit_test(test_hierarchy_keeps_traffic_inside),
        cmocka_unit_test(test_large_worlds_seal_fast),
        cmocka_unit_test(test_thousand_ranks_seal),
        cmocka_unit_test(test_find),
    };
    tutti_algorithms_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
