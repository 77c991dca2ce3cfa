/* SPDX-License-Identifier: BSD-3-Clause */
/* A reduced run against the run of all ranks, to the picosecond, for every algorithm and kind over shapes, sizes and
 * both rules; that those are reduced which should be; and schedules that look symmetric at first but are not. */
#include "test.h"

#include "algo/algo.h"
#include "sim/network.h"

#include <stdio.h>
#include <string.h>

static enum tutti_status run(const struct tutti_sim_program *program, bool ports, uint64_t alpha_ps,
                             struct tutti_sim_result *result)
{
    const struct tutti_sim_loggops loggops = {.L = alpha_ps, .o = 1500000, .g = 1000000, .G = 6000, .S = UINT64_MAX};
    const struct tutti_sim_ports alpha_beta = {.alpha_ps = alpha_ps, .beta_fs = 40000};
    struct tutti_sim_network *network;
    if (ports)
        assert_int_equal(tutti_sim_ports_open(&alpha_beta, program, &network), TUTTI_OK);
    else
        assert_int_equal(tutti_sim_loggops_open(&loggops, program, &network), TUTTI_OK);
    enum tutti_status status = tutti_sim_run(program, network, result);
    network->ops->close(network);
    return status;
}

struct counts {
    uint32_t n, n_reduced, n_clear;
};

struct call {
    const struct tutti_algorithm *algorithm;
    enum tutti_kind kind;
    struct tutti_shape shape;
    struct tutti_sim_work work;
    const char *what;
};

/* Runs the call both ways; equal wherever the run says that its order is clear. */
static void compare(const struct call *call, bool ports, uint64_t alpha_ps, struct counts *counts)
{
    struct tutti_sim_program whole, few;
    struct tutti_sim_result one, all;
    struct tutti_sim_symmetry symmetry;
    counts->n++;
    enum tutti_status status = tutti_sim_program_reduce(call->algorithm, call->kind, &call->shape, &call->work,
                                                        UINT64_MAX, false, &few, &symmetry);
    if (status == TUTTI_ERR_UNSUPPORTED) return;
    if (status < 0) fail_msg("%s: %s", call->what, tutti_last_error()->text);
    counts->n_reduced++;
    assert_int_equal(symmetry.n_compared, call->shape.size);
    assert_int_equal(tutti_sim_program_make(call->algorithm, call->kind, &call->shape, &call->work, &whole), TUTTI_OK);
    assert_int_equal((uint64_t)few.n_ops * call->shape.size, (uint64_t)whole.n_ops * few.n_ranks);
    if (run(&few, ports, alpha_ps, &one) < 0 || run(&whole, ports, alpha_ps, &all) < 0)
        fail_msg("%s: %s", call->what, tutti_last_error()->text);
    if (one.n_unclear == 0) {
        counts->n_clear++;
        for (uint32_t r = 0; r < call->shape.size; r++)
            if (one.rank_end_ps[r % few.n_ranks] != all.rank_end_ps[r])
                fail_msg("%s, %s, alpha %llu: rank %u ends at %llu, not at %llu", call->what,
                         ports ? "ports" : "loggops", (unsigned long long)alpha_ps, r,
                         (unsigned long long)all.rank_end_ps[r], (unsigned long long)one.rank_end_ps[r % few.n_ranks]);
        assert_int_equal(one.n_messages * (call->shape.size / few.n_ranks), all.n_messages);
    }
    tutti_sim_result_fini(&one);
    tutti_sim_result_fini(&all);
    tutti_sim_program_fini(&few);
    tutti_sim_program_fini(&whole);
}

/* Forms of work: slices and costs, and latencies that make events meet. */
static void compare_forms(struct call *call, uint64_t block, struct counts *counts)
{
    static const uint64_t alphas[] = {0, 2000000, 40 * 256, 40 * 128};
    for (int form = 0; form < 4; form++) {
        call->work = (struct tutti_sim_work){.block_bytes = block, .element_bytes = 4};
        if (form & 1) call->work.slice_bytes = 128, call->work.active = 2;
        if (form & 2) call->work.copy_fs = 7000, call->work.fold_fs = 40000;
        for (size_t a = 0; a < TUTTI_ARRAY_LEN(alphas); a++) compare(call, true, alphas[a], counts);
        compare(call, false, 2500000, counts);
    }
}

static struct counts compare_all(const struct tutti_algorithm *algorithm, enum tutti_kind kind)
{
    static const struct {
        uint32_t size;
        const char *levels;
    } worlds[] = {{2, NULL}, {3, NULL}, {5, NULL}, {8, NULL}, {12, "4x3"}, {16, "4x4"}, {16, "2x8;2x4"}, {24, "8x3"}};
    struct counts counts = {0};
    for (size_t w = 0; w < TUTTI_ARRAY_LEN(worlds); w++) {
        struct call call = {.algorithm = algorithm, .kind = kind, .shape = {.size = worlds[w].size}};
        char what[96];
        if (worlds[w].levels) assert_int_equal(tutti_shape_parse_levels(&call.shape, worlds[w].levels), TUTTI_OK);
        if (!tutti_algorithm_fits(algorithm, kind, &call.shape, NULL, 0)) continue;
        snprintf(what, sizeof(what), "%s %s, %u ranks %s", algorithm->name, tutti_kind_name(kind), worlds[w].size,
                 worlds[w].levels ? worlds[w].levels : "");
        call.what = what;
        uint64_t block = kind == TUTTI_BARRIER ? 0 : tutti_kind_info(kind)->block_a_slot ? 512 : 512 * worlds[w].size;
        compare_forms(&call, block, &counts);
    }
    return counts;
}

static void test_equal(void **state)
{
    (void)state;
    for (size_t a = 0; a < tutti_n_algorithms; a++)
        for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++) compare_all(tutti_algorithms[a], (enum tutti_kind)kind);
}

/* Those that must be reduced in every world, and clear in most forms. */
static void test_reduced(void **state)
{
    static const struct {
        const char *name;
        enum tutti_kind kind;
    } rows[] = {{"ring", TUTTI_ALL_REDUCE},
                {"ring", TUTTI_REDUCE_SCATTER},
                {"dissemination", TUTTI_BARRIER},
                {"direct", TUTTI_ALL_GATHER},
                {"direct", TUTTI_ALL_TO_ALL}};
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(rows); i++) {
        uint32_t radix;
        struct counts counts = compare_all(tutti_algorithm_find(rows[i].name, &radix), rows[i].kind);
        assert_int_equal(counts.n_reduced, counts.n);
        assert_true(4 * counts.n_clear >= 3 * counts.n);
    }
}

/* An all_gather in which one rank receives before it sends, once. */
static uint32_t odd_rounds(const struct tutti_shape *shape)
{
    return shape->size - 1;
}

static void odd_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    uint32_t p = shape->size, right = (shape->slot + 1) % p, left = (shape->slot + p - 1) % p;
    uint32_t mine = (shape->slot + p - round) % p, theirs = (left + p - round) % p;
    bool odd = shape->slot == p / 2 + 1 && round == p - 2;
    if (odd) tutti_emit_recv(emit, left, TUTTI_DATA, theirs, 1);
    tutti_emit_send(emit, right, TUTTI_DATA, mine, 1);
    if (!odd) tutti_emit_recv(emit, left, TUTTI_DATA, theirs, 1);
}

static void test_not_alike(void **state)
{
    static const struct tutti_schedule_ops ops = {.rounds = odd_rounds, .round = odd_round};
    const struct tutti_algorithm odd = {.name = "odd", .kinds = {[TUTTI_ALL_GATHER] = &ops}};
    const struct tutti_shape shape = {.size = 9};
    struct tutti_sim_work work = {.block_bytes = 64, .element_bytes = 4};
    struct tutti_sim_program program;
    struct tutti_sim_symmetry symmetry;
    uint32_t radix;
    (void)state;
    assert_int_equal(
        tutti_sim_program_reduce(&odd, TUTTI_ALL_GATHER, &shape, &work, UINT64_MAX, true, &program, &symmetry),
        TUTTI_ERR_UNSUPPORTED);
    assert_non_null(strstr(tutti_last_error()->text, "of rank 5 is not that of rank 0"));
    const struct tutti_algorithm *ring = tutti_algorithm_find("ring", &radix);
    work.block_bytes = 4 * 9 * 16 + 4;
    assert_int_equal(
        tutti_sim_program_reduce(ring, TUTTI_ALL_REDUCE, &shape, &work, UINT64_MAX, false, &program, &symmetry),
        TUTTI_ERR_UNSUPPORTED);
    assert_int_equal(
        tutti_sim_program_reduce(ring, TUTTI_ALL_REDUCE, &shape, &work, UINT64_MAX, true, &program, &symmetry),
        TUTTI_OK);
    assert_true(symmetry.rounded);
    assert_int_equal(symmetry.block_bytes, 4 * 9 * 17);
    tutti_sim_program_fini(&program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_equal), cmocka_unit_test(test_reduced),
                                       cmocka_unit_test(test_not_alike)};
    tutti_algorithms_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
