/* SPDX-License-Identifier: BSD-3-Clause */
/* What disturbs a run: ranks that are late or slow, noise by seed, links that are slow or failed; and what is refused.
 */
#include "test.h"

#include "algo/algo.h"
#include "sim/noise.h"
#include "sim/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void parse(const char *text, struct tutti_sim_program *program)
{
    if (tutti_sim_goal_read("t", text, strlen(text), program) < 0) fail_msg("%s", tutti_last_error()->text);
}

/* A run on ports of no latency, a byte a nanosecond, under noise (NULL: none); ends in nanoseconds. */
static void ends_of(const struct tutti_sim_program *program, const struct tutti_sim_noise *noise, uint64_t *ends)
{
    const struct tutti_sim_ports rule = {.alpha_ps = 0, .beta_fs = 1000000};
    struct tutti_sim_network *network, *outer;
    struct tutti_sim_result result;
    assert_int_equal(tutti_sim_ports_open(&rule, program, &network), TUTTI_OK);
    outer = network;
    if (noise) assert_int_equal(tutti_sim_noise_open(noise, network, &outer), TUTTI_OK);
    if (tutti_sim_run(program, outer, &result) < 0) fail_msg("%s", tutti_last_error()->text);
    for (uint32_t r = 0; r < program->n_ranks; r++) ends[r] = result.rank_end_ps[r] / 1000;
    outer->ops->close(outer);
    tutti_sim_result_fini(&result);
}

static void test_stragglers(void **state)
{
    static const char text[] =
        "num_ranks 3\nrank 0 {\na: calc 100\nb: send 1000b to 1\nb requires a\n}\n"
        "rank 1 {\na: recv 1000b from 0\nb: calc 200\nb requires a\nc: send 10b to 2\nc requires b\n}\n"
        "rank 2 {\nrecv 10b from 1\n}\n";
    static const struct {
        const char *straggler;
        uint64_t ends[3];
    } cases[] = {{"2:slow=9", {1100, 1310, 1310}},   {"0:slow=3", {1300, 1510, 1510}},
                 {"1:slow=2.5", {1100, 1610, 1610}}, {"0-1:slow=2", {1200, 1610, 1610}},
                 {"0:late=5us", {6100, 6310, 6310}}, {"1:late=5us", {1100, 5210, 5210}},
                 {"2:late=5us", {1100, 1310, 5000}}, {"100%:slow=2", {1200, 1610, 1610}}};
    struct tutti_sim_program program;
    (void)state;
    parse(text, &program);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(cases); i++) {
        struct tutti_sim_noise noise = {0};
        uint64_t ends[3];
        assert_int_equal(tutti_sim_straggler_add(&noise, cases[i].straggler), TUTTI_OK);
        ends_of(&program, &noise, ends);
        for (uint32_t r = 0; r < 3; r++)
            if (ends[r] != cases[i].ends[r])
                fail_msg("%s: rank %u ends at %llu", cases[i].straggler, r, (unsigned long long)ends[r]);
    }
    tutti_sim_program_fini(&program);
}

/* A long calc is lengthened by as much as its rank is held: 2 % of the time; ranks differ, unless they are held
 * together; a seed gives the same again. */
static void test_noise(void **state)
{
    static const char text[] = "num_ranks 3\nrank 0 {\ncalc 1000000000\n}\nrank 1 {\ncalc 1000000000\n}\nrank 2 {\n}\n";
    struct tutti_sim_program program;
    struct tutti_sim_noise noise = {.seed = test_seed()};
    uint64_t ends[4][3];
    (void)state;
    parse(text, &program);
    assert_int_equal(tutti_sim_noise_set(&noise, "every=1ms,length=20us"), TUTTI_OK);
    ends_of(&program, &noise, ends[0]);
    ends_of(&program, &noise, ends[1]);
    assert_memory_equal(ends[0], ends[1], sizeof(ends[0]));
    noise.seed++;
    ends_of(&program, &noise, ends[2]);
    noise.is.together = 1;
    ends_of(&program, &noise, ends[3]);
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t r = 0; r < 2; r++) {
            double held = (double)ends[i][r] - 1e9;
            assert_true(held > 0.8 * 20.4e6 && held < 1.2 * 20.4e6);
        }
    assert_int_not_equal(ends[0][0], ends[0][1]);
    assert_int_not_equal(ends[0][0], ends[2][0]);
    assert_int_equal(ends[3][0], ends[3][1]);
    tutti_sim_program_fini(&program);
}

/* In a ring each disturbance can only delay, messages as well as folds: no rank ends before it would. */
static void test_noise_delays(void **state)
{
    struct tutti_sim_noise noise = {.seed = test_seed()};
    (void)state;
    assert_int_equal(tutti_sim_noise_set(&noise, "every=20us,length=3us"), TUTTI_OK);
    for (uint64_t fold_fs = 0; fold_fs <= 500000; fold_fs += 500000) {
        const struct tutti_sim_work work = {.block_bytes = 16000, .element_bytes = 1, .fold_fs = fold_fs};
        struct tutti_shape shape = {.size = 16};
        struct tutti_sim_program program;
        uint64_t quiet[16], noisy[16], n_later = 0;
        const struct tutti_algorithm *ring = tutti_algorithm_find("ring", &shape.radix);
        assert_int_equal(tutti_sim_program_make(ring, TUTTI_ALL_REDUCE, &shape, &work, &program), TUTTI_OK);
        ends_of(&program, NULL, quiet);
        ends_of(&program, &noise, noisy);
        for (uint32_t r = 0; r < 16; r++) {
            assert_true(noisy[r] >= quiet[r]);
            n_later += noisy[r] > quiet[r];
        }
        assert_int_equal(n_later, 16);
        tutti_sim_program_fini(&program);
    }
}

static void test_samples(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++)
        for (uint64_t n = 1; n < 300; n += 37) {
            struct tutti_sim_sample sample = tutti_sim_sample_of(0.1, n, seed);
            uint64_t taken = 0, expected = (n + 5) / 10;
            for (uint64_t i = 0; i < n; i++) taken += tutti_sim_sample_takes(&sample);
            assert_int_equal(taken, expected > 0 ? expected : 1);
        }
}

/* ---- links ---- */

struct damage {
    const char *which;
    double factor;
};

/* The end of one message of a million bytes from rank 0 to the last one, in nanoseconds; 0, and a sentence: none. */
static uint64_t message_on(const char *net, uint32_t n, const struct damage *damages, size_t n_damages)
{
    const struct tutti_shape shape = {.size = n};
    struct tutti_sim_topology topology;
    struct tutti_sim_program program;
    struct tutti_sim_network *network;
    struct tutti_sim_result result;
    struct tutti_sim_link link;
    char text[4096] = "";
    tutti_append(text, sizeof(text), "num_ranks %u\nrank 0 {\nsend 1000000b to %u\n}\n", n, n - 1);
    for (uint32_t r = 1; r < n; r++)
        tutti_append(text, sizeof(text), "rank %u {\n%s}\n", r, r == n - 1 ? "recv 1000000b from 0\n" : "");
    parse(text, &program);
    if (tutti_sim_topology_open(net, &shape, &topology) < 0) fail_msg("%s", tutti_last_error()->text);
    for (size_t i = 0; i < n_damages; i++)
        if (tutti_sim_topology_damage(&topology, damages[i].which, damages[i].factor, 1) < 0)
            fail_msg("%s", tutti_last_error()->text);
    assert_int_equal(tutti_sim_flows_open(&topology, &program, &network), TUTTI_OK);
    enum tutti_status status = tutti_sim_run(&program, network, &result);
    for (uint32_t i = 0; network->ops->link(network, i, &link, NULL, 0); i++)
        assert_true(link.bandwidth > 0 || link.bytes == 0);
    network->ops->close(network);
    tutti_sim_program_fini(&program);
    uint64_t end = status >= 0 ? result.end_ps / 1000 : 0;
    if (status >= 0) tutti_sim_result_fini(&result);
    return end;
}

static void test_damage(void **state)
{
    static const char ring[] = "torus:dims=4,latency=0ns,hop=1us,inject=100",
                      fly[] =
                          "dragonfly:ranks=1,nics=1,switches=2,nodes=1,routing=minimal,latency=0ns,hop=1us,globals=2";
    static const struct {
        const char *net;
        uint32_t n;
        struct damage damages[4];
        size_t n_damages;
        uint64_t end; /* 0: cut off */
    } cases[] = {
        {ring, 4, {{"", 1}}, 0, 42000},            /* one link back */
        {ring, 4, {{"wire:0.0-", 0.5}}, 1, 82000}, /* half as fast */
        {ring, 4, {{"wire:0.0-", 0}}, 1, 44000},   /* three links the other way */
        {ring, 4, {{"wire:0.0-", 0}, {"nic:3.0.in", 0.1}}, 2, 104000},
        {ring, 4, {{"wire:0.0-", 0}, {"wire:1.0+", 0}}, 2, 0},
        {ring, 4, {{"nic:3.0.in", 0}}, 1, 0},
        {ring, 4, {{"wire", 0.5}}, 1, 82000},
        {ring, 4, {{"100%", 0.5}}, 1, 82000},
        {fly, 6, {{"", 1}}, 0, 43000},             /* to the switch with global link 1, over it, and there */
        {fly, 6, {{"global:0-2.1", 0}}, 1, 43000}, /* over link 0, to the other switch */
        {fly, 6, {{"global:0-2.1", 0}, {"local:0.0-1.0", 0}}, 2, 43000},
        {fly, 6, {{"global:0-2.0", 0}, {"global:0-2.1", 0}}, 2, 46000}, /* by the third group */
        {fly, 6, {{"global:0-2.0", 0}, {"global:0-2.1", 0}, {"global:1-2.0", 0}, {"global:1-2.1", 0}}, 4, 0},
        {"fat_tree:ranks=1,hosts=1,taper=0.5,hop=0ns,latency=0ns", 2, {{"up:0.0", 0}, {"down:1.0", 0}}, 2, 40000},
        {"fat_tree:ranks=1,hosts=1,taper=0.5,hop=0ns,latency=0ns", 2, {{"up:0.0", 0}, {"down:1.1", 0}}, 2, 0},
    };
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(cases); i++) {
        uint64_t end = message_on(cases[i].net, cases[i].n, cases[i].damages, cases[i].n_damages);
        if (end != cases[i].end)
            fail_msg("case %zu: %llu instead of %llu", i, (unsigned long long)end, (unsigned long long)cases[i].end);
        if (end == 0 && !strstr(tutti_last_error()->text, "rank 0 is cut off from rank"))
            fail_msg("\"%s\"", tutti_last_error()->text);
    }
}

static void test_refused(void **state)
{
    static const char *const texts[][2] = {
        {"x:late=1ms", "straggler 'x:late=1ms': give a rank (7), ranks (8-15) or a share of all (1%)"},
        {"7", "give a rank (7)"},
        {"9-8:late=1ms", "give a rank (7)"},
        {"101%:late=1ms", "give a rank (7)"},
        {"7:late=1", "straggler: late=1: it takes a time such as 200ns or 1.5us, from 0 to 1000s"},
        {"7:slow=0.5", "straggler: slow=0.5: it takes a number, from 1"},
        {"7:fast=2", "straggler has no parameter 'fast'"},
    };
    static const char *const links[] = {"wires", "wire:9.9+", "0%", "101%", "wire:", "nic:x%", "5"};
    const struct tutti_shape shape = {.size = 8};
    struct tutti_sim_noise noise = {0};
    struct tutti_sim_topology topology;
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(texts); i++) {
        assert_int_equal(tutti_sim_straggler_add(&noise, texts[i][0]), TUTTI_ERR_ARGUMENT);
        if (!strstr(tutti_last_error()->text, texts[i][1])) fail_msg("\"%s\"", tutti_last_error()->text);
    }
    assert_int_equal(tutti_sim_noise_set(&noise, "every=0s"), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "noise: every=0s: it takes a time"));
    assert_int_equal(tutti_sim_topology_open("torus", &shape, &topology), TUTTI_OK);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(links); i++) {
        assert_int_equal(tutti_sim_topology_damage(&topology, links[i], 0, 1), TUTTI_ERR_ARGUMENT);
        assert_non_null(strstr(tutti_last_error()->text, "a name such as rank:0.out, nic:0.0.out, wire:0.0+"));
    }
    tutti_sim_topology_close(&topology);
}

/* Memory that runs out at any allocation is an error, and nothing leaks (the sanitizers look). */
static enum tutti_status run_all(const struct tutti_sim_program *program)
{
    const struct tutti_shape shape = {.size = program->n_ranks};
    struct tutti_sim_noise noise = {.n_stragglers = 1, .stragglers = {{.share = 0.5, .is = {.late = 1e-6, .slow = 2}}}};
    struct tutti_sim_topology topology;
    struct tutti_sim_network *inner, *outer;
    struct tutti_sim_result result;
    TUTTI_TRY(tutti_sim_topology_open("dragonfly:ranks=2", &shape, &topology));
    enum tutti_status status = tutti_sim_topology_damage(&topology, "nic", 0.5, 1);
    if (status >= 0) status = tutti_sim_flows_open(&topology, program, &inner);
    if (status < 0) {
        tutti_sim_topology_close(&topology);
        return status;
    }
    status = tutti_sim_noise_open(&noise, inner, &outer);
    if (status < 0) {
        inner->ops->close(inner);
        return status;
    }
    status = tutti_sim_run(program, outer, &result);
    outer->ops->close(outer);
    if (status >= 0) tutti_sim_result_fini(&result);
    return status;
}

static void test_out_of_memory(void **state)
{
    static const char text[] = "num_ranks 4\nrank 0 {\nsend 8b to 1\nsend 8b to 2\n}\nrank 1 {\nrecv 8b from 0\n}\n"
                               "rank 2 {\nrecv 8b from 0\ncalc 1\n}\nrank 3 {\n}\n";
    struct tutti_sim_program program;
    enum tutti_status status = TUTTI_ERR_MEMORY;
    uint64_t at = 0;
    (void)state;
    parse(text, &program);
    while (status < 0) {
        tutti_alloc_fail_at(++at);
        status = run_all(&program);
        tutti_alloc_fail_at(0);
        if (status < 0) assert_int_equal(status, TUTTI_ERR_MEMORY);
    }
    assert_true(at > 20);
    tutti_sim_program_fini(&program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stragglers),    cmocka_unit_test(test_noise),  cmocka_unit_test(test_noise_delays),
        cmocka_unit_test(test_samples),       cmocka_unit_test(test_damage), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_out_of_memory),
    };
    tutti_algorithms_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
