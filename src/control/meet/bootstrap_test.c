/* SPDX-License-Identifier: BSD-3-Clause */

/* Whole bootstraps of threads, processes and both; and what contradicts is a sentence on every rank.
 */

#include "control/meet/acts_test.h"

/* ---- worlds ---- */

static void test_threads(void **state)
{
    static const size_t sizes[] = {1, 2, 3, 17};
    (void)state;
    for (size_t s = 0; s < TUTTI_ARRAY_LEN(sizes); s++) {
        plan(sizes[s]);
        run_threads(0, sizes[s]);
        expect_world(sizes[s], "self", false);
    }
}

static void test_200_threads(void **state)
{
    (void)state;
    plan(200);
    run_threads(0, 200);
    expect_world(200, "self", false);
}

static void test_processes(void **state)
{
    static const size_t sizes[] = {2, 3, 17};
    (void)state;
    for (size_t s = 0; s < TUTTI_ARRAY_LEN(sizes); s++) {
        plan(sizes[s]);
        run_processes(sizes[s]);
        expect_world(sizes[s], "shm", false);
    }
}

/* Two processes of three threads and one of one. */
static void test_mixed(void **state)
{
    (void)state;
    plan(7);
    pid_t a = spawn(0, 3), b = spawn(3, 3), c = spawn(6, 1);
    reap(a);
    reap(b);
    reap(c);
    expect_world(7, "shm", false);
}

/* Quick ranks are at the next meeting of the same name while slow ones are still at the last. */
static void test_again_and_again(void **state)
{
    (void)state;
    for (int process = 0; process < 2; process++) {
        for (int round = 0; round < 20; round++) {
            plan(4);
            if (process)
                run_processes(4);
            else
                run_threads(0, 4);
            expect_world(4, process ? "shm" : "self", false);
        }
    }
}

/* A rank that is in another crowded world makes this one crowded. */
static void test_crowded_elsewhere(void **state)
{
    (void)state;
    uint64_t payer;
    struct tutti_cpu_set all;
    if (!tutti_cpus_affinity(&all) || tutti_cpu_set_count(&all) < 2 || tutti_cpus_quota(&payer) < 2) skip();
    for (int crowded = 0; crowded < 2; crowded++) {
        plan(2);
        acts[1].was_crowded = crowded;
        run_processes(2);
        expect_world(2, "shm", false);
        assert_int_equal(acts[0].crowded, crowded);
    }
}

/* ---- missing ranks ---- */

static void test_missing(void **state)
{
    (void)state;
    for (int process = 0; process < 2; process++) {
        plan(4);
        acts[1] = acts[2]; /* ranks 0 and 2 come */
        acts[0].timeout_ms = 600;
        acts[1].timeout_ms = 20000; /* the member with the first deadline speaks for all */
        if (process)
            run_processes(2);
        else
            run_threads(0, 2);
        expect_error(0, TUTTI_ERR_TIMEOUT, "ranks 1 and 3 did not arrive: timed out after 6");
        expect_error(1, TUTTI_ERR_TIMEOUT, "ranks 1 and 3 did not arrive: timed out after 6");
        assert_true(acts[1].took_ns < 10 * TUTTI_NS_PER_S);
    }
    plan(2);
    acts[0].timeout_ms = 200;
    run_threads(0, 1);
    expect_error(0, TUTTI_ERR_TIMEOUT, "rank 1 did not arrive: timed out after 2");
}

static bool flag_of(const void *arg, uint32_t rank)
{
    return ((const bool *)arg)[rank];
}

static void test_missing_text(void **state)
{
    bool here[100] = {false};
    char text[160];
    (void)state;
    assert_int_equal(tutti_meeting_missing_text(1, flag_of, here, text, sizeof text), 1);
    assert_string_equal(text, "rank 0");
    assert_int_equal(tutti_meeting_missing_text(3, flag_of, here, text, sizeof text), 3);
    assert_string_equal(text, "ranks 0, 1 and 2");
    assert_int_equal(tutti_meeting_missing_text(100, flag_of, here, text, sizeof text), 100);
    assert_string_equal(text, "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 92 more");
    here[0] = here[2] = true;
    assert_int_equal(tutti_meeting_missing_text(11, flag_of, here, text, sizeof text), 9);
    assert_string_equal(text, "ranks 1, 3, 4, 5, 6, 7, 8, 9 and 10");
    tutti_meeting_missing_text(100, flag_of, here, text, 9); /* cut, never overrun */
    assert_true(strlen(text) < 9);
}

static void test_cancel(void **state)
{
    (void)state;
    struct tutti_config config;
    struct tutti_world world;
    static _Atomic bool cancel = true;
    assert_int_equal(tutti_config_init(&config, NULL, 0), TUTTI_OK);
    const struct tutti_bootstrap bootstrap = {.rank = 0,
                                              .n_ranks = 2,
                                              .name = unique,
                                              .job = "j",
                                              .deadline_ns = TUTTI_NEVER,
                                              .config = &config,
                                              .cancel = &cancel};
    assert_int_equal(tutti_world_open(&bootstrap, &world), TUTTI_ERR_CANCELLED);
    tutti_config_fini(&config);
}

/* ---- secrets and strangers ---- */

static void test_secret(void **state)
{
    (void)state;
    if (!tutti_hmac_available()) skip(); /* built without OpenSSL */
    for (int process = 0; process < 2; process++) {
        plan(3);
        for (size_t i = 0; i < 3; i++) acts[i].secret = "sesame";
        if (process)
            run_processes(3);
        else
            run_threads(0, 3);
        expect_world(3, process ? "shm" : "self", true);
    }
}

/* The rank with the wrong secret is refused and does not end the meeting: the right one may still come. */
static void test_wrong_secret(void **state)
{
    static const char *const secrets[] = {"simsim", NULL};
    (void)state;
    if (!tutti_hmac_available()) skip();            /* built without OpenSSL */
    for (int process = 0; process < 2; process++) { /* all orders are in machine_test.c */
        plan(3);
        for (size_t i = 0; i < 3; i++) acts[i].secret = "sesame", acts[i].delay_ms = 100 * i;
        acts[3] = acts[2];
        acts[2].secret = secrets[process];
        acts[3].delay_ms = 500;
        if (process)
            run_processes(4);
        else
            run_threads(0, 4);
        expect_error(2, TUTTI_ERR_AUTH, "secret");
        acts[2] = acts[3];
        expect_world(3, process ? "shm" : "self", true);
    }
    /* Nobody else comes: the sentence of the others says who was refused. */
    plan(2);
    acts[0].secret = "sesame", acts[0].timeout_ms = 1500;
    acts[1].secret = "simsim", acts[1].delay_ms = 150;
    run_processes(2);
    expect_error(0, TUTTI_ERR_TIMEOUT, " ms; refused: process ");
    expect_error(1, TUTTI_ERR_AUTH, "does not know rank 1's secret");
}

/* ---- deaths among those who have the segment ---- */

static const struct tutti_card_record first_card = {.cpus = 1};
static const struct tutti_meeting_request first_of_two = {
    .card = &first_card, .rank = 0, .n_ranks = 2, .version = "1.2.3", .transport = "self", .deadline_ns = TUTTI_NEVER};

/* A segment of two, and a process that is gone as its second member. */
static pid_t segment_with_dead(struct tutti_segment **out)
{
    const struct tutti_segment_config config = {.n = 2, .staging_bytes = 1 << 16};
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(0);
    reap(pid);
    assert_int_equal(tutti_segment_create(&config, false, out), TUTTI_OK);
    tutti_card_expect(*out, 0, (int32_t)getpid());
    tutti_card_expect(*out, 1, (int32_t)pid);
    return pid;
}

static void test_death_at_cards(void **state)
{
    struct tutti_segment *segment;
    struct tutti_world_facts facts;
    char sentence[128];
    (void)state;
    for (int arrived = 0; arrived < 2; arrived++) {
        pid_t pid = segment_with_dead(&segment);
        snprintf(sentence, sizeof sentence,
                 "rank 1 (process %d) died while the ranks were meeting: connection closed by peer", (int)pid);
        if (arrived) tutti_segment_arrive(segment, 1);
        assert_int_equal(arrived ? tutti_card_wait_open(segment, &first_of_two)
                                 : tutti_card_exchange(segment, &first_of_two, NULL, &facts),
                         TUTTI_ERR_PEER_DEAD);
        assert_string_equal(tutti_last_error()->text, sentence);
        assert_int_equal(tutti_last_error()->peer, 1);
        tutti_segment_release(segment);
    }
}

/* A rank that hears of a death from another rank gets the same error; after another failure, who failed and why. */
static void test_failure_at_cards(void **state)
{
    struct tutti_segment *segment;
    struct tutti_error why;
    (void)state;
    for (int dead = 0; dead < 2; dead++) {
        segment_with_dead(&segment);
        tutti_error_set(&why, dead ? TUTTI_ERR_PEER_DEAD : TUTTI_ERR_MEMORY, "seven swans a-swimming");
        why.peer = dead ? 7 : -1;
        tutti_card_fail(segment, 1, &why);
        assert_int_equal(tutti_card_wait_open(segment, &first_of_two),
                         dead ? TUTTI_ERR_PEER_DEAD : TUTTI_ERR_BOOTSTRAP);
        assert_string_equal(tutti_last_error()->text,
                            dead ? "seven swans a-swimming" : "rank 1 can not go on: seven swans a-swimming");
        assert_int_equal(tutti_last_error()->peer, dead ? 7 : 1);
        tutti_segment_release(segment);
    }
}

/* ---- contradictions ---- */

static void test_config(void **state)
{
    (void)state;
    for (int process = 0; process < 2; process++) {
        plan(4);
        acts[2].option = (struct tutti_option){"slice", "64K"};
        if (process)
            run_processes(4);
        else
            run_threads(0, 4);
        for (size_t i = 0; i < 4; i++)
            expect_error(i, TUTTI_ERR_CONFIG,
                         i == 2 ? "rank 0 has slice=128K, this rank slice=64K"
                                : "rank 2 has slice=64K, this rank slice=128K");
    }
    /* Too much to fit on a card: still a sentence. */
    char levels[120] = "1";
    plan(2);
    while (strlen(levels) < 110) strcat(levels, ",1");
    acts[0].option = (struct tutti_option){"levels", levels};
    run_threads(0, 2);
    expect_error(0, TUTTI_ERR_CONFIG, "configurations differ: rank 1");
    expect_error(1, TUTTI_ERR_CONFIG, "configurations differ: rank 0");
    /* What need not agree may differ. */
    plan(2);
    acts[0].option = (struct tutti_option){"timeout", "7s"};
    run_threads(0, 2);
    expect_world(2, "self", false);
}

static void test_self_needs_one_process(void **state)
{
    (void)state;
    plan(2);
    for (size_t i = 0; i < 2; i++) acts[i].option = (struct tutti_option){"transport", "self"};
    run_processes(2);
    for (size_t i = 0; i < 2; i++) expect_error(i, TUTTI_ERR_CONFIG, "transport=self needs all ranks in one process");
    run_threads(0, 2);
    expect_world(2, "self", false);
}

static void test_decorators(void **state)
{
    (void)state;
    plan(2);
    for (size_t i = 0; i < 2; i++) acts[i].option = (struct tutti_option){"decorators", "trace"};
    run_threads(0, 2);
    expect_world(2, acts[0].transport, false);
    /* One rank can not open its transport: the others are told. */
    acts[1].option.value = "gold";
    run_threads(0, 2);
    assert_true(acts[1].status < 0);
    expect_error(0, TUTTI_ERR_BOOTSTRAP, "rank 1 can not go on: ");
    assert_true(acts[0].took_ns < 20 * TUTTI_NS_PER_S);
}

/* The launcher says that ranks are elsewhere: without a store there is no way to them. */
static void test_several_hosts(void **state)
{
    (void)state;
    plan(4);
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "4", 1);
    setenv("LOCAL_RANK", "0", 1);
    setenv("LOCAL_WORLD_SIZE", "2", 1);
    run_threads(0, 1);
    expect_error(0, TUTTI_ERR_BOOTSTRAP, "set TUTTI_STORE");
    unsetenv("RANK"), unsetenv("WORLD_SIZE"), unsetenv("LOCAL_RANK"), unsetenv("LOCAL_WORLD_SIZE");
}

static void test_arguments(void **state)
{
    (void)state;
    plan(2);
    acts[0].rank = 2;
    acts[1].rank = -1;
    run_threads(0, 2);
    expect_error(0, TUTTI_ERR_ARGUMENT, "rank 2 of 2");
    expect_error(1, TUTTI_ERR_ARGUMENT, "rank -1 of 2");
    acts[0].n_ranks = 100000; /* at once, not when somebody is missed */
    run_threads(0, 1);
    expect_error(0, TUTTI_ERR_ARGUMENT, "takes at most 4096 ranks of one host, but there are 100000");
}

#define ACT(test) cmocka_unit_test_setup_teardown(test, acts_setup, acts_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ACT(test_threads),
        ACT(test_200_threads),
        ACT(test_processes),
        ACT(test_mixed),
        ACT(test_again_and_again),
        ACT(test_crowded_elsewhere),
        ACT(test_missing),
        ACT(test_missing_text),
        ACT(test_cancel),
        ACT(test_secret),
        ACT(test_wrong_secret),
        ACT(test_config),
        ACT(test_self_needs_one_process),
        ACT(test_decorators),
        ACT(test_several_hosts),
        ACT(test_arguments),
        ACT(test_death_at_cards),
        ACT(test_failure_at_cards),
    };
    setenv("TUTTI_LOG", "error", 0); /* the refusals are on purpose */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
