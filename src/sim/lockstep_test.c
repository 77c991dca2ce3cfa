/* SPDX-License-Identifier: BSD-3-Clause */
/* Times round by round against the run of all events, and groups against what one group takes alone. */
#include "test.h"

#include "algo/algo.h"
#include "sim/lockstep.h"
#include "sim/topology.h"

#include <string.h>

enum { BYTES = 3 << 20 };

static const char *net; /* NULL: ports */
static uint32_t per_node;

static enum tutti_status open_network(void *argument, const struct tutti_sim_program *program,
                                      struct tutti_sim_network **out)
{
    (void)argument;
    const struct tutti_sim_ports ports = {.alpha_ps = 2000000, .beta_fs = 40000};
    if (!net) return tutti_sim_ports_open(&ports, program, out);
    struct tutti_sim_topology topology;
    const struct tutti_shape shape = {
        .size = program->n_ranks, .n_levels = 1, .levels = {{1, {{per_node, program->n_ranks / per_node}}}}};
    TUTTI_TRY(tutti_sim_topology_open(net, &shape, &topology));
    return tutti_sim_flows_open(&topology, program, out);
}

static const struct tutti_sim_opener opener = {open_network, NULL};

static double by_rounds(const char *name, enum tutti_kind kind, uint32_t size, uint32_t stride, uint32_t n)
{
    uint32_t radix;
    const struct tutti_sim_groups groups = {tutti_algorithm_find(name, &radix), kind, size, stride, n};
    double seconds;
    if (tutti_sim_lockstep(&groups, BYTES, &opener, &seconds) < 0) fail_msg("%s", tutti_last_error()->text);
    return seconds;
}

static double by_events(const char *name, enum tutti_kind kind, uint32_t size)
{
    uint32_t radix;
    struct tutti_sim_program program;
    struct tutti_sim_network *network;
    struct tutti_sim_result result;
    const struct tutti_shape shape = {.size = size};
    const struct tutti_sim_work work = {.block_bytes = BYTES / tutti_kind_blocks(kind, size), .element_bytes = 4};
    assert_int_equal(tutti_sim_program_make(tutti_algorithm_find(name, &radix), kind, &shape, &work, &program), 0);
    assert_int_equal(open_network(NULL, &program, &network), TUTTI_OK);
    assert_int_equal(tutti_sim_run(&program, network, &result), TUTTI_OK);
    double seconds = (double)result.end_ps / 1e12;
    network->ops->close(network);
    tutti_sim_result_fini(&result);
    tutti_sim_program_fini(&program);
    return seconds;
}

static void check(const char *name, enum tutti_kind kind, uint32_t size, double least, double most)
{
    double ratio = by_rounds(name, kind, size, 1, size) / by_events(name, kind, size);
    if (ratio < least || ratio > most) fail_msg("%s on %u ranks: %g of the run of events", name, size, ratio);
}

static void test_against_events(void **state)
{
    (void)state;
    static const char *const names[] = {"ring", "halving_doubling"};
    static const enum tutti_kind kinds[] = {TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER, TUTTI_ALL_GATHER};
    static const double most[] = {1.75, 1.3}; /* in a ring, ranks within nodes get ahead */
    static const char *const nets[] = {NULL, "fat_tree:taper=2", "dragonfly:nics=2"};
    for (size_t t = 0; t < TUTTI_ARRAY_LEN(nets); t++) {
        net = nets[t];
        per_node = 4;
        for (size_t a = 0; a < TUTTI_ARRAY_LEN(names); a++)
            for (size_t k = 0; k < TUTTI_ARRAY_LEN(kinds); k++)
                for (uint32_t size = 4; size <= 64; size *= 2)
                    check(names[a], kinds[k], size, net ? 0.8 : 0.99999, net ? most[a] : 1.00001);
    }
    net = NULL;
    /* Where halves differ by a rank, that one waits within a round, or others get ahead of it. */
    for (uint32_t size = 2; size < 24; size++) {
        check("ring", TUTTI_ALL_REDUCE, size, 0.99, 1.01);
        check("halving_doubling", TUTTI_ALL_REDUCE, size, 0.8, 1.5);
    }
    check("direct", TUTTI_REDUCE_SCATTER, 12, 0.99, 1.01);
}

/* A ring of 300 ranks has more rounds than are run one by one; all are alike. */
static void test_many_rounds(void **state)
{
    (void)state;
    net = NULL;
    double alpha = 2e-6, seconds = by_rounds("ring", TUTTI_ALL_REDUCE, 300, 1, 300);
    double should = 2 * 299 * (alpha + (BYTES / 300 + 1) * 40e-12);
    assert_true(seconds / should > 0.999 && seconds / should < 1.001);
}

/* Ports are not shared, so groups side by side take what one takes; a NIC is, so four that cross nodes take more. */
static void test_groups(void **state)
{
    (void)state;
    net = NULL;
    double alone = by_rounds("halving_doubling", TUTTI_ALL_REDUCE, 8, 1, 8);
    assert_true(by_rounds("halving_doubling", TUTTI_ALL_REDUCE, 8, 4, 32) == alone);
    assert_true(by_rounds("halving_doubling", TUTTI_ALL_REDUCE, 8, 1, 32) == alone);
    net = "fat_tree:nics=1";
    per_node = 1;
    alone = by_rounds("halving_doubling", TUTTI_ALL_REDUCE, 8, 1, 8);
    per_node = 4;
    double four = by_rounds("halving_doubling", TUTTI_ALL_REDUCE, 8, 4, 32);
    assert_true(four > 3.5 * alone && four < 4.001 * alone);
}

int main(void)
{
    tutti_algorithms_init();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_events), cmocka_unit_test(test_many_rounds),
                                       cmocka_unit_test(test_groups)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
