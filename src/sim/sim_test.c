/* SPDX-License-Identifier: BSD-3-Clause */
/* Simulated times against those that LogGOPSim printed and against closed forms; GOAL text that must be refused, with
 * the line; programs that can not end; and text written and read again. */
#include "test.h"

#include "algo/algo.h"
#include "sim/network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tutti_sim_loggops rule;
static uint32_t calls = 1; /* for what ns_of simulates */

static void parse(const char *text, struct tutti_sim_program *program)
{
    if (tutti_sim_goal_read("t", text, strlen(text), program) < 0) fail_msg("%s", tutti_last_error()->text);
}

static enum tutti_status run(const struct tutti_sim_program *program, struct tutti_sim_result *result)
{
    struct tutti_sim_network *network;
    assert_int_equal(tutti_sim_loggops_open(&rule, program, &network), TUTTI_OK);
    enum tutti_status status = tutti_sim_run(program, network, result);
    network->ops->close(network);
    return status;
}

/* Ends of all ranks, in nanoseconds, under the default parameters but for S. */
static void expect_ends(const char *text, uint64_t S, const uint64_t *ends)
{
    struct tutti_sim_program program;
    struct tutti_sim_result result;
    rule = TUTTI_SIM_LOGGOPS_DEFAULT;
    rule.S = S;
    parse(text, &program);
    if (run(&program, &result) < 0) fail_msg("%s", tutti_last_error()->text);
    for (uint32_t r = 0; r < program.n_ranks; r++) assert_int_equal(result.rank_end_ps[r] / 1000, ends[r]);
    tutti_sim_result_fini(&result);
    tutti_sim_program_fini(&program);
}

/* What LogGOPSim prints for these. */
static void test_as_loggopsim(void **state)
{
    (void)state;
    expect_ends("num_ranks 2\nrank 0 {\na: calc 100\nb: send 1000b to 1\nb requires a\n}\n"
                "rank 1 {\na: recv 1000b from 0\nb: calc 200\nb requires a\n}\n",
                65535, (const uint64_t[]){1600, 11794});
    expect_ends("num_ranks 3\nrank 0 {\nsend 1000b to 1\nsend 1000b to 2\n}\nrank 1 {\nrecv 1000b from 0\n}\n"
                "rank 2 {\nrecv 1000b from 0\n}\n",
                65535, (const uint64_t[]){8494, 11494, 18488});
    expect_ends("num_ranks 3\nrank 0 {\nrecv 1000b from 1\nrecv 1000b from -1 tag -1\n}\nrank 1 {\nsend 1000b to 0\n}\n"
                "rank 2 {\nsend 1000b to 0 tag 9\n}\n",
                65535, (const uint64_t[]){18988, 1500, 1500});
    const char *rendezvous = "num_ranks 2\nrank 0 {\ns: send 1000b to 1\nc: calc 10\nc requires s\n}\n"
                             "rank 1 {\nc: calc 50000\nr: recv 1000b from 0\nr requires c\n}\n";
    expect_ends(rendezvous, 65535, (const uint64_t[]){1510, 57494});
    expect_ends(rendezvous, 100, (const uint64_t[]){50010, 57494});
    expect_ends("num_ranks 2\n/* empty\n messages */ rank 0 {\nsend 0b to 1\n}\nrank 1 { // one\nrecv 0b from 0\n}\n",
                65535, (const uint64_t[]){1500, 5494});
    expect_ends("num_ranks 1\nrank 0 {\na: calc 1000 cpu 0\nb: calc 1000 cpu 1\nb irequires a\n}\n", 65535,
                (const uint64_t[]){1000});
}

static uint64_t ns_of(const char *algorithm, enum tutti_kind kind, uint32_t n, uint64_t block, uint64_t slice,
                      bool ports)
{
    struct tutti_shape shape = {.size = n};
    const struct tutti_sim_work work = {
        .block_bytes = block, .element_bytes = 1, .slice_bytes = slice, .active = 4, .calls = calls};
    const struct tutti_sim_ports alpha_beta = {.alpha_ps = 2000000, .beta_fs = 40000};
    struct tutti_sim_program program;
    struct tutti_sim_network *network;
    struct tutti_sim_result result;
    rule = TUTTI_SIM_LOGGOPS_DEFAULT;
    const struct tutti_algorithm *found = tutti_algorithm_find(algorithm, &shape.radix);
    if (tutti_sim_program_make(found, kind, &shape, &work, &program) < 0) fail_msg("%s", tutti_last_error()->text);
    if (ports)
        assert_int_equal(tutti_sim_ports_open(&alpha_beta, &program, &network), TUTTI_OK);
    else
        assert_int_equal(tutti_sim_loggops_open(&rule, &program, &network), TUTTI_OK);
    if (tutti_sim_run(&program, network, &result) < 0) fail_msg("%s", tutti_last_error()->text);
    network->ops->close(network);
    uint64_t ns = result.end_ps / 1000;
    tutti_sim_result_fini(&result);
    tutti_sim_program_fini(&program);
    return ns;
}

/* One message with nothing in its way. */
static uint64_t E(uint64_t bytes)
{
    return 2 * 1500 + 2500 + (bytes - 1) * 6;
}

/* Exact times of algorithms that keep step. */
static void test_closed_forms(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 64; n *= 2) {
        uint64_t halves = 0, log = (uint64_t)__builtin_ctz(n);
        for (uint32_t part = n / 2; part >= 1; part /= 2) halves += E(4096 * part);
        assert_int_equal(ns_of("ring", TUTTI_ALL_REDUCE, n, 4096 * n, 0, false), 2 * (n - 1) * E(4096));
        assert_int_equal(ns_of("ring", TUTTI_ALL_GATHER, n, 4096, 0, false), (n - 1) * E(4096));
        assert_int_equal(ns_of("halving_doubling", TUTTI_ALL_REDUCE, n, 4096 * n, 0, false), 2 * halves);
        assert_int_equal(ns_of("halving_doubling", TUTTI_ALL_GATHER, n, 4096, 0, false), halves);
        assert_int_equal(ns_of("tree:2", TUTTI_BROADCAST, n, 4096, 0, false), log * E(4096));
        assert_int_equal(ns_of("dissemination:2", TUTTI_BARRIER, n, 0, 0, false), log * E(1));
        assert_int_equal(ns_of("ring", TUTTI_ALL_REDUCE, n, 250 * n, 0, true), 2 * (n - 1) * (2000 + 10));
        assert_int_equal(ns_of("halving_doubling", TUTTI_ALL_REDUCE, n, 250 * n, 0, true),
                         2 * (log * 2000 + (n - 1) * 10));
    }
    assert_int_equal(ns_of("ring", TUTTI_ALL_REDUCE, 16, 65536, 0, false), 902100);
}

/* A receive that is posted while its message comes in ends with the last byte, not before. */
static void test_posted_late(void **state)
{
    static const char text[] =
        "num_ranks 2\nrank 0 {\nsend 100b to 1\n}\nrank 1 {\nc: calc 3\nr: recv 100b from 0\nr requires c\n}";
    const struct tutti_sim_ports rule_of_ports = {.alpha_ps = 2000, .beta_fs = 40000};
    struct tutti_sim_program program;
    struct tutti_sim_network *network;
    struct tutti_sim_result result;
    (void)state;
    parse(text, &program);
    assert_int_equal(tutti_sim_ports_open(&rule_of_ports, &program, &network), TUTTI_OK);
    const struct tutti_sim_watch watch = {.traced = true};
    assert_int_equal(tutti_sim_run_watched(&program, network, &watch, &result), TUTTI_OK);
    assert_int_equal(result.moments[2].begin_ps, 3000);
    assert_int_equal(result.moments[2].end_ps, 2000 + 100 * 40);
    network->ops->close(network);
    tutti_sim_result_fini(&result);
    tutti_sim_program_fini(&program);
}

/* A chain that is cut into slices is a pipeline: its time nears that of one hop, and never beats the port. */
static void test_slices_overlap(void **state)
{
    (void)state;
    uint64_t bytes = 1 << 20, port = bytes * 40 / 1000;
    uint64_t whole = ns_of("ring", TUTTI_BROADCAST, 8, bytes, 0, true);
    uint64_t sliced = ns_of("ring", TUTTI_BROADCAST, 8, bytes, bytes / 32, true);
    assert_int_equal(whole, 7 * (2000 + port));
    assert_true(sliced < whole / 3);
    assert_true(sliced > port + 7 * 2000);
}

/* Calls follow one another on each rank: those of which no rank is ahead take so many times as long; a root is ahead.
 */
static void test_calls(void **state)
{
    (void)state;
    const uint64_t bytes = 1000000, port = bytes * 40 / 1000, hops = 7 * (2000 + port);
    for (uint64_t slice = 0; slice <= bytes / 8; slice += bytes / 8) {
        calls = 1;
        const uint64_t one = ns_of("ring", TUTTI_ALL_REDUCE, 8, bytes, slice / 8, true);
        calls = 5;
        assert_int_equal(ns_of("ring", TUTTI_ALL_REDUCE, 8, bytes, slice / 8, true), 5 * one);
    }
    assert_int_equal(ns_of("ring", TUTTI_BROADCAST, 8, bytes, 0, true), hops + 4 * port);
    assert_int_equal(ns_of("tree:2", TUTTI_BROADCAST, 1, bytes, 0, true), 0);
    calls = 1;
}

static void test_refused(void **state)
{
    static const char *const texts[][2] = {
        {"num_ranks", "t:1: the text ends where number of ranks is expected"},
        {"num_ranks 0", "t:1: a program has at least one rank"},
        {"num_ranks 99999999", "t:1: number of ranks 99999999 is out of range"},
        {"num_ranks 2\nrank 1 {\n}", "t:2: rank 1 where rank 0 is expected"},
        {"num_ranks 1\nrank 0 {\ncalc 5", "t:3: the text ends within the block of rank 0"},
        {"num_ranks 1\nrank 0 {\nsend 5 to 0\n}", "t:3: '5' where a size with the unit b (1000b) is expected"},
        {"num_ranks 1\nrank 0 {\nsend 5b to 1\n}", "t:3: rank 1 is out of range: at most 0"},
        {"num_ranks 1\nrank 0 {\nsend 5b to -1\n}", "t:3: '-1' where rank is expected"},
        {"num_ranks 1\nrank 0 {\ncalc 99999999999999999999\n}", "is too large"},
        {"num_ranks 1\nrank 0 {\na: calc 1\na: calc 1\n}", "t:4: label 'a' is defined twice in rank 0"},
        {"num_ranks 2\nrank 0 {\na: calc 1\n}\nrank 1 {\nb: calc 1\nb requires a\n}",
         "t:7: label 'a' is not defined above"},
        {"num_ranks 1\nrank 0 {\na: calc 1\na needs a\n}", "t:4: 'needs' where ':', requires or irequires is expected"},
        {"num_ranks 1\nrank 0 {\ncalc 1 cpu 256\n}", "t:3: cpu 256 is out of range: at most 255"},
        {"num_ranks 1\nrank 0 {\n/* no end\n}", "a comment does not end"},
        {"num_ranks 1\nrank 0 {\n}\n7", "t:4: '7' after the block of the last rank"},
        {"num_ranks 1\nrank 0 {\n%\n}", "t:3: '%' where an operation or a label is expected"},
    };
    struct tutti_sim_program program;
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(texts); i++) {
        assert_int_equal(tutti_sim_goal_read("t", texts[i][0], strlen(texts[i][0]), &program), TUTTI_ERR_ARGUMENT);
        if (!strstr(tutti_last_error()->text, texts[i][1]))
            fail_msg("\"%s\" instead of \"%s\"", tutti_last_error()->text, texts[i][1]);
    }
}

/* Every beginning of a right text is refused by a sentence. */
static void test_truncated(void **state)
{
    static const char text[] =
        "num_ranks 2\nrank 0 {\nl: send 10b to 1 tag 3 cpu 1 nic 1\n}\n/* c */ rank 1 {\nr: recv 10b "
        "from 0 tag 3\nc: calc 5\nc requires r\n}";
    struct tutti_sim_program program;
    (void)state;
    for (size_t n = 0; n < sizeof(text) - 1; n++)
        assert_int_equal(tutti_sim_goal_read("t", text, n, &program), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_sim_goal_read("t", text, sizeof(text) - 1, &program), TUTTI_OK);
    tutti_sim_program_fini(&program);
}

static void test_programs_without_end(void **state)
{
    static const char *const texts[][2] = {
        {"num_ranks 2\nrank 0 {\n}\nrank 1 {\nrecv 8b from 0\n}",
         "deadlock: rank 1, line 5: this receive of 8 bytes from rank 0"},
        {"num_ranks 2\nrank 0 {\nsend 8b to 1\n}\nrank 1 {\n}",
         "rank 0, line 3 sends 8 bytes to rank 1, tag 0, that nobody"},
        {"num_ranks 2\nrank 0 {\nsend 9b to 1\n}\nrank 1 {\nrecv 8b from 0\n}",
         "sends 9 bytes to rank 1, whose receive, line 6 takes 8"},
        {"num_ranks 2\nrank 0 {\na: recv 8b from 1\nb: send 8b to 1\nb requires a\n}\n"
         "rank 1 {\na: recv 8b from 0\nb: send 8b to 0\nb requires a\n}",
         "deadlock: rank 0, line 3: this receive of 8 bytes from rank 1 waits for ever; 4 of 4"},
        {"num_ranks 1\nrank 0 {\na: calc 1\nb: calc 1\na requires b\nb requires a\n}",
         "this calc waits for operations that wait for it"},
    };
    (void)state;
    rule = TUTTI_SIM_LOGGOPS_DEFAULT;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(texts); i++) {
        struct tutti_sim_program program;
        struct tutti_sim_result result;
        parse(texts[i][0], &program);
        assert_int_equal(run(&program, &result), TUTTI_ERR_ARGUMENT);
        if (!strstr(tutti_last_error()->text, texts[i][1]))
            fail_msg("\"%s\" instead of \"%s\"", tutti_last_error()->text, texts[i][1]);
        tutti_sim_program_fini(&program);
    }
}

/* A program that was written is read as the same one. */
static void test_written(void **state)
{
    struct tutti_shape shape = {.size = 6};
    const struct tutti_sim_work work = {.block_bytes = 6000, .element_bytes = 4, .slice_bytes = 300, .active = 2};
    struct tutti_sim_program program, again;
    struct tutti_sim_result one, two;
    char *text;
    size_t n;
    (void)state;
    rule = TUTTI_SIM_LOGGOPS_DEFAULT;
    assert_int_equal(
        tutti_sim_program_make(tutti_algorithm_find("ring", &shape.radix), TUTTI_ALL_REDUCE, &shape, &work, &program),
        TUTTI_OK);
    FILE *file = open_memstream(&text, &n);
    assert_true(tutti_sim_goal_write(&program, file));
    fclose(file);
    assert_int_equal(tutti_sim_goal_read("t", text, n, &again), TUTTI_OK);
    free(text);
    assert_int_equal(again.n_ops, program.n_ops);
    assert_int_equal(again.n_edges, program.n_edges);
    assert_int_equal(run(&program, &one), TUTTI_OK);
    assert_int_equal(run(&again, &two), TUTTI_OK);
    assert_memory_equal(one.rank_end_ps, two.rank_end_ps, program.n_ranks * sizeof(*one.rank_end_ps));
    tutti_sim_result_fini(&one);
    tutti_sim_result_fini(&two);
    tutti_sim_program_fini(&program);
    tutti_sim_program_fini(&again);
}

/* Memory that runs out at any allocation is an error, and nothing leaks (the sanitizers look). */
static void test_out_of_memory(void **state)
{
    static const char text[] =
        "num_ranks 2\nrank 0 {\na: send 8b to 1\nb: calc 1\nb requires a\n}\nrank 1 {\nrecv 8b from 0\n}";
    struct tutti_sim_program program;
    bool failed = true;
    (void)state;
    for (uint64_t at = 1; failed; at++) {
        tutti_alloc_fail_at(at);
        failed = tutti_sim_goal_read("t", text, sizeof(text) - 1, &program) < 0;
        tutti_alloc_fail_at(0);
        if (failed) assert_int_equal(tutti_last_error()->status, TUTTI_ERR_MEMORY);
    }
    tutti_sim_program_fini(&program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_loggopsim), cmocka_unit_test(test_posted_late),
        cmocka_unit_test(test_closed_forms), cmocka_unit_test(test_slices_overlap),
        cmocka_unit_test(test_calls),        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_truncated),    cmocka_unit_test(test_programs_without_end),
        cmocka_unit_test(test_written),      cmocka_unit_test(test_out_of_memory),
    };
    tutti_algorithms_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
