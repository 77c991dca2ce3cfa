/* SPDX-License-Identifier: BSD-3-Clause */
/* Critical paths: one that is known, and for every algorithm that its shares add up to the time, that it goes forwards
 * from operation to operation, and that no time beats the lower bound. */
#include "test.h"

#include "algo/algo.h"
#include "sim/network.h"

#include <string.h>

struct ran {
    struct tutti_sim_program program;
    struct tutti_sim_network *network;
    struct tutti_sim_result result;
    struct tutti_sim_critical critical;
};

static void run(struct ran *ran, bool ports)
{
    const struct tutti_sim_loggops loggops = TUTTI_SIM_LOGGOPS_DEFAULT;
    const struct tutti_sim_ports alpha_beta = {.alpha_ps = 2000000, .beta_fs = 76923};
    const struct tutti_sim_watch watch = {.traced = true};
    if (ports)
        assert_int_equal(tutti_sim_ports_open(&alpha_beta, &ran->program, &ran->network), TUTTI_OK);
    else
        assert_int_equal(tutti_sim_loggops_open(&loggops, &ran->program, &ran->network), TUTTI_OK);
    if (tutti_sim_run_watched(&ran->program, ran->network, &watch, &ran->result) < 0)
        fail_msg("%s", tutti_last_error()->text);
    assert_int_equal(tutti_sim_critical_find(&ran->program, ran->network, &ran->result, &ran->critical), TUTTI_OK);
}

static void end(struct ran *ran)
{
    ran->network->ops->close(ran->network);
    tutti_sim_critical_fini(&ran->critical);
    tutti_sim_result_fini(&ran->result);
    tutti_sim_program_fini(&ran->program);
}

/* A calc, the message that waits for it, and a calc that waits for the message; the third rank is no part of it. */
static void test_known(void **state)
{
    static const char text[] = "num_ranks 3\nrank 0 {\na: calc 100\nb: send 1000b to 1\nb requires a\n}\n"
                               "rank 1 {\na: recv 1000b from 0\nb: calc 200\nb requires a\n}\nrank 2 {\ncalc 2000\n}\n";
    static const uint32_t path[] = {0, 1, 2, 3};
    struct ran ran;
    (void)state;
    for (int ports = 0; ports < 2; ports++) {
        assert_int_equal(tutti_sim_goal_read("t", text, strlen(text), &ran.program), TUTTI_OK);
        run(&ran, ports);
        assert_int_equal(ran.critical.n, 4);
        assert_memory_equal(ran.critical.ops, path, sizeof(path));
        assert_int_equal(ran.critical.computing_ps, 300000);
        /* Under loggops a byte is in the latency: 2o + L + 999 G. */
        assert_int_equal(ran.critical.latency_ps, ports ? 2000000 : 5500000 - 6000);
        assert_int_equal(ran.critical.bandwidth_ps, ports ? 76923 : 1000 * 6000);
        assert_int_equal(ran.critical.n_messages, 1);
        assert_int_equal(ran.critical.n_ranks, 2);
        end(&ran);
    }
}

static void check(const struct ran *ran, enum tutti_kind kind, uint64_t bytes, const char *what)
{
    const struct tutti_sim_critical *critical = &ran->critical;
    const struct tutti_sim_limits *limits = &ran->network->limits;
    uint64_t end_ps = ran->result.end_ps, before = 0;
    struct tutti_sim_bounds bounds = tutti_sim_bounds_of(kind, ran->program.n_ranks, bytes, limits);
    double idle = -1;
    if (end_ps < bounds.most_ps)
        fail_msg("%s: %llu ps beat the lower bound of %llu", what, (unsigned long long)end_ps,
                 (unsigned long long)bounds.most_ps);
    if (critical->latency_ps + critical->bandwidth_ps + critical->computing_ps != end_ps)
        fail_msg("%s: the shares of the path are not the whole", what);
    for (uint32_t i = 0; i < critical->n; i++) {
        const struct tutti_sim_op *op = &ran->program.ops[critical->ops[i]];
        uint64_t end = ran->result.moments[critical->ops[i]].end_ps;
        /* A send may end after its message was received, where the port is faster than the NIC is free again. */
        if (op->type == TUTTI_SIM_SEND) end = ran->result.moments[critical->ops[i]].begin_ps;
        if (end < before) fail_msg("%s: operation %u of the path ends before the one that it waits for", what, i);
        before = end;
    }
    assert_int_equal(tutti_sim_idle(&ran->program, ran->network, &ran->result, &idle), TUTTI_OK);
    assert_true(idle >= 0 && idle < 1);
}

static void check_all(uint32_t n, uint64_t slice, bool ports)
{
    for (size_t a = 0; a < tutti_n_algorithms; a++) {
        for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++) {
            struct tutti_shape shape = {.size = n};
            struct ran ran;
            char what[96];
            if (n % 4 == 0)
                assert_int_equal(tutti_shape_parse_levels(&shape, n == 4 ? "4" : n == 8 ? "4x2" : "4x4"), TUTTI_OK);
            if (!tutti_algorithm_fits(tutti_algorithms[a], (enum tutti_kind)kind, &shape, NULL, 0)) continue;
            uint64_t block = kind == TUTTI_BARRIER ? 0 : 6012 / tutti_kind_blocks((enum tutti_kind)kind, n) / 4 * 4;
            const struct tutti_sim_work work = {.block_bytes = block,
                                                .element_bytes = 4,
                                                .slice_bytes = slice,
                                                .active = 3,
                                                .copy_fs = 10000,
                                                .fold_fs = 20000};
            snprintf(what, sizeof(what), "%s %s of %u ranks, slices of %u, %s", tutti_algorithms[a]->name,
                     tutti_kind_name((enum tutti_kind)kind), n, (uint32_t)slice, ports ? "ports" : "loggops");
            if (tutti_sim_program_make(tutti_algorithms[a], (enum tutti_kind)kind, &shape, &work, &ran.program) < 0)
                fail_msg("%s: %s", what, tutti_last_error()->text);
            run(&ran, ports);
            check(&ran, (enum tutti_kind)kind, block * tutti_kind_blocks((enum tutti_kind)kind, n), what);
            end(&ran);
        }
    }
}

static void test_all_algorithms(void **state)
{
    static const uint32_t sizes[] = {2, 3, 4, 5, 8, 13, 16};
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(sizes); i++)
        for (int form = 0; form < 4; form++) check_all(sizes[i], form & 1 ? 100 : 0, form & 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_known), cmocka_unit_test(test_all_algorithms)};
    tutti_algorithms_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
