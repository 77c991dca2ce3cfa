/* SPDX-License-Identifier: BSD-3-Clause */

/* What algorithms cost: messages and chunks as their sources give them, an even load, traffic that stays inside groups,
 * and sealing at scale. */

#include "algo/interpreter_test.h"

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
            assert_true(sent <= 4 && received <= 4); /* two chunks */
            tutti_schedule_destroy(schedule);
        }
    }
}

/* Groups keep to themselves: one rank of a group, per part, talks to other groups, and each part crosses once a group.
 */
static uint32_t crossing_of(const char *levels, uint32_t size, uint32_t radix)
{
    struct tutti_shape shape = {.size = size, .radix = radix};
    uint32_t crossing = 0;

    assert_int_equal(tutti_shape_parse_levels(&shape, levels), TUTTI_OK);
    for (shape.slot = 0; shape.slot < shape.size; shape.slot++) {
        struct tutti_schedule *schedule = NULL;
        assert_int_equal(tutti_schedule_seal(&tutti_algorithm_hierarchical, TUTTI_ALL_REDUCE, &shape, true, &schedule),
                         TUTTI_OK);
        for (uint32_t i = 0; i < schedule->n_steps; i++) {
            uint32_t own, peer, first, width;
            if (schedule->steps[i].op != TUTTI_STEP_SEND) continue;
            tutti_level_find(&shape.levels[0], shape.slot, &own, &first, &width);
            tutti_level_find(&shape.levels[0], schedule->steps[i].peer, &peer, &first, &width);
            crossing += own != peer;
        }
        tutti_schedule_destroy(schedule);
    }
    return crossing;
}

static void test_hierarchy_keeps_traffic_inside(void **state)
{
    (void)state;
    assert_int_equal(crossing_of("8,8,7,8", 31, 1), 2 * 3);
    assert_int_equal(crossing_of("8x4", 32, 1), 4 * 2); /* equal groups, not too many: two exchanges of all leads */
    assert_int_equal(crossing_of("2x2", 4, 2), 2 * 2);  /* each slot is the lead of a part */
    assert_int_equal(crossing_of("2x80", 160, 1), 2 * 79);
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
            const uint32_t needs = tutti_algorithms[a]->kinds[k]->needs;
            const bool equal = needs & TUTTI_NEEDS_EQUAL_GROUPS;
            if (needs & TUTTI_NEEDS_LEVELS)
                assert_int_equal(tutti_shape_parse_levels(&shape, equal ? "8x125;5x25" : "8x62,7x4,8x59,4;6x21"),
                                 TUTTI_OK);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_costs),
        cmocka_unit_test(test_double_tree_is_balanced),
        cmocka_unit_test(test_hierarchy_keeps_traffic_inside),
        cmocka_unit_test(test_large_worlds_seal_fast),
        cmocka_unit_test(test_thousand_ranks_seal),
    };
    tutti_algorithms_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
