/* SPDX-License-Identifier: BSD-3-Clause */
/* Proofs by sample: right schedules of many rounds pass, and what is planted in a column that is looked at is refused;
 * a refusal of a large shape is made small. */

#include "verify/sweep.h"

#include "algo/algo.h"

#include "test.h"

#include <string.h>

enum { SIZE = 300 };
static const struct tutti_sampling sampling = {.n_columns = 3, .most_sealed = 0, .most_work = 1 << 24};

static void right(void **state)
{
    static const struct {
        const char *name;
        enum tutti_kind kind;
        const char *levels;
    } cases[] = {
        {"ring", TUTTI_ALL_REDUCE, NULL},
        {"ring", TUTTI_ALL_GATHER, NULL},
        {"pairwise", TUTTI_REDUCE_SCATTER, NULL},
        {"pairwise", TUTTI_ALL_TO_ALL, NULL},
        {"bruck", TUTTI_ALL_TO_ALL, NULL},
        {"hierarchical", TUTTI_ALL_REDUCE, "8x37,4"},
        {"direct", TUTTI_EXSCAN, NULL},
        {"direct_two_shot", TUTTI_BROADCAST, NULL},
        {"tree", TUTTI_SCATTER, NULL},
    };
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(cases); i++) {
        struct tutti_shape shape = {.size = SIZE};
        struct tutti_verdict verdict;
        struct tutti_coverage coverage;
        uint32_t radix;
        const struct tutti_algorithm *algorithm = tutti_algorithm_find(cases[i].name, &radix);
        if (cases[i].levels) assert_int_equal(tutti_shape_parse_levels(&shape, cases[i].levels), TUTTI_OK);
        assert_int_equal(tutti_verify_sample(algorithm, cases[i].kind, &shape, &sampling, &verdict, &coverage),
                         TUTTI_OK);
        if (!verdict.ok) fail_msg("%s", verdict.text);
        assert_true(coverage.n_results > 0 && !coverage.all_steps && coverage.n_columns > 0);
    }
}

/* ---- a ring with one fault, in chunk 0 ---- */

enum fault { NONE, STORE, SKIP, ELSEWHERE, LATE_WRITE, CIRCLE };
static enum fault fault;

static uint32_t ring_rounds(const struct tutti_shape *s)
{
    return 2 * s->size - 2;
}

static uint32_t one_a_slot(const struct tutti_shape *s)
{
    return s->size;
}

static void ring_round(const struct tutti_shape *s, uint32_t k, struct tutti_emit *e)
{
    const uint32_t p = s->size, right_of = (s->slot + 1) % p, left = (s->slot + p - 1) % p;
    const uint32_t out = (s->slot + 2 * p - k) % p, in = (s->slot + 2 * p - k - 1) % p;
    const bool here = s->slot == p / 2 && in == 0;
    const bool circle = fault == CIRCLE && k == 3; /* receives that its sends wait for */
    if (!circle) tutti_emit_send(e, right_of, TUTTI_DATA, out, 1);
    if (k >= p - 1 || (here && fault == STORE))
        tutti_emit_recv(e, left, TUTTI_DATA, in, 1);
    else if (here && fault == ELSEWHERE)
        tutti_emit_recv_reduce(e, left, TUTTI_DATA, 1, 1, TUTTI_RIGHT);
    else if (!(here && fault == SKIP))
        tutti_emit_recv_reduce(e, left, TUTTI_DATA, in, 1, TUTTI_RIGHT);
    if (circle) tutti_emit_send(e, right_of, TUTTI_DATA, in, 1);
    if (here && fault == LATE_WRITE && k >= p - 1) tutti_emit_copy(e, TUTTI_DATA, 0, TUTTI_DATA, 1, 1);
}

static const struct tutti_schedule_ops ring_ops = {
    .needs = TUTTI_NEEDS_COMMUTATIVE, .chunks = one_a_slot, .rounds = ring_rounds, .round = ring_round};
static const struct tutti_algorithm ring = {.name = "faulty", .kinds = {[TUTTI_ALL_REDUCE] = &ring_ops}};

static void wrong(void **state)
{
    static const struct {
        enum fault fault;
        const char *word;
    } cases[] = {{NONE, NULL},
                 {STORE, "wrong chunk 0"},
                 {SKIP, "faulty all_reduce"},
                 {ELSEWHERE, "wrong chunk 0"},
                 {LATE_WRITE, "wrong chunk 0"},
                 {CIRCLE, "a circle"}};
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(cases); i++) {
        const struct tutti_shape shape = {.size = SIZE};
        struct tutti_verdict verdict;
        struct tutti_coverage coverage;
        fault = cases[i].fault;
        assert_int_equal(tutti_verify_sample(&ring, TUTTI_ALL_REDUCE, &shape, &sampling, &verdict, &coverage),
                         TUTTI_OK);
        if (fault == NONE && !verdict.ok) fail_msg("%s", verdict.text);
        if (fault != NONE && (verdict.ok || !strstr(verdict.text, cases[i].word)))
            fail_msg("fault %d: %s", (int)fault, verdict.ok ? "accepted" : verdict.text);
    }
}

/* Refused at 40 ranks; the same kind of defect is there from 3 ranks on. */
static void shrunk(void **state)
{
    struct tutti_sweep sweep = {.first.ok = true};
    const struct tutti_sweep_depth depth = TUTTI_SWEEP_FULL;
    const struct tutti_shape shape = {.size = 40};
    (void)state;
    fault = STORE;
    assert_int_equal(tutti_sweep_check(&ring, TUTTI_ALL_REDUCE, &shape, &depth, &sweep), TUTTI_OK);
    assert_int_equal(sweep.refused.size, 40);
    const enum tutti_finding finding = sweep.first.finding;
    assert_int_equal(tutti_sweep_shrink(&ring, TUTTI_ALL_REDUCE, UINT32_MAX, &sweep), TUTTI_OK);
    assert_int_equal(sweep.refused.size, 2);
    assert_int_equal(sweep.first.finding, finding);
    assert_true(sweep.first.rank < 2 && !sweep.first.ok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(right), cmocka_unit_test(wrong), cmocka_unit_test(shrunk)};
    tutti_algorithms_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
