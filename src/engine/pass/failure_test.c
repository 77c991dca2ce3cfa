/* SPDX-License-Identifier: BSD-3-Clause */

/* When things go wrong: every rank returns in time, with one sentence that names rank, collective and number. */

#include "engine/pass/death_test.h"

#define MS TUTTI_NS_PER_MS

/* What the ranks of a run were told, compared by the main thread afterwards. */
static struct tutti_error told[64];

static enum tutti_status all_reduce(struct rig_rank *rank, struct tutti_team *team, size_t count, uint64_t timeout_ns)
{
    int32_t *data = calloc(count, sizeof(*data));
    struct rig_call call = {.kind = TUTTI_ALL_REDUCE,
                            .dtype = TUTTI_INT32,
                            .op = TUTTI_SUM,
                            .count = count,
                            .input = data,
                            .output = data,
                            .timeout_ns = timeout_ns,
                            .label = "grad"};
    enum tutti_status status = rig_call(rank, team, &call);
    free(data);
    return status;
}

static enum tutti_status broadcast(struct rig_rank *rank, struct tutti_team *team, size_t count, uint32_t root)
{
    int32_t *data = calloc(count, sizeof(*data));
    struct rig_call call = {.kind = TUTTI_BROADCAST,
                            .dtype = TUTTI_INT32,
                            .op = -1,
                            .root = root,
                            .count = count,
                            .input = rank->me == root ? data : NULL,
                            .output = data};
    enum tutti_status status = rig_call(rank, team, &call);
    free(data);
    return status;
}

static void same_sentence(uint32_t n, enum tutti_status status)
{
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(told[i].status, status);
        assert_string_equal(told[i].text, told[0].text);
    }
}

static void expect(struct rig_rank *rank, enum tutti_status status, const char *const *parts)
{
    told[rank->me] = *tutti_last_error();
    RIG_CHECK(rank, told[rank->me].status == status, "%s", told[rank->me].text);
    for (; *parts; parts++) RIG_CHECK(rank, strstr(told[rank->me].text, *parts), "\"%s\"", told[rank->me].text);
}

/* ---- a rank that never calls ---- */
static void silent(struct rig_rank *rank)
{
    static const char *const parts[] = {"all_reduce #2 (int32, 5000 elements, sum, label 'grad') on communicator 4f2a",
                                        ": rank ",
                                        "timed out after 900 ms",
                                        "at step",
                                        "rank 2 has not called it",
                                        "its last call is all_reduce #1, complete",
                                        NULL};
    static const char *const less[] = {"all_reduce #2 (int32, 5000 elements, sum, label 'grad') on communicator 4f2a",
                                       "timed out after 900 ms", " is doing is not known", NULL};
    const bool mute = rig_control == RIG_MUTE;
    uint64_t start;

    RIG_OK(rank, all_reduce(rank, rank->team, 10, 0));
    start = rig_now();
    while (rank->me == 2 && tutti_team_state(rank->team, NULL) == TUTTI_OK && rig_now() - start < 20000 * MS)
        rig_sleep(MS);
    RIG_CHECK(rank, all_reduce(rank, rank->team, 5000, 900 * MS) < 0, "no error");
    expect(rank, TUTTI_ERR_TIMEOUT, mute ? less : parts);
    RIG_CHECK(rank, told[rank->me].seq == 2, "seq %" PRIu64, told[rank->me].seq);
    RIG_CHECK(rank, mute ? told[rank->me].peer >= 0 : told[rank->me].peer == 2, "peer %d", (int)told[rank->me].peer);
    RIG_CHECK(rank, rig_now() - start < 15000 * MS, "late");
    /* and every call after it is told the same */
    RIG_CHECK(rank, all_reduce(rank, rank->team, 1, 0) == TUTTI_ERR_TIMEOUT, "no error");
    RIG_CHECK(rank, strcmp(tutti_last_error()->text, told[rank->me].text) == 0, "%s", tutti_last_error()->text);
    struct tutti_error state;
    RIG_CHECK(rank, tutti_team_state(rank->team, &state) == TUTTI_ERR_TIMEOUT, "state");
    RIG_CHECK(rank, strcmp(state.text, told[rank->me].text) == 0, "%s", state.text);
}

static void test_silent(void **state)
{
    (void)state;
    struct rig rig = {.n = 4, .main = silent};
    rig_run(&rig); /* on a busy machine two deadlines pass at once: then each of these ranks has its own sentence */
}

/* ---- deadlines of half an hour pass in no time, and in their order ---- */
static void long_wait(struct rig_rank *rank)
{
    const uint64_t start = rig_now(), hour = 3600 * TUTTI_NS_PER_S;

    if (rank->me == 0) {
        enum tutti_status status = all_reduce(rank, rank->team, 10, hour / 2);
        RIG_CHECK(rank, status == TUTTI_ERR_TIMEOUT, "%s: %s", tutti_status_name(status), tutti_last_error()->text);
        RIG_CHECK(rank, strstr(tutti_last_error()->text, "timed out after 1800000 ms"), "%s", tutti_last_error()->text);
        RIG_CHECK(rank, rig_now() - start >= hour / 2 && rig_now() - start < hour / 2 + TUTTI_NS_PER_S, "when");
    } else {
        rig_sleep(hour);
        RIG_CHECK(rank, tutti_team_state(rank->team, NULL) == TUTTI_ERR_TIMEOUT, "it is not told");
    }
}

static void test_long_wait(void **state)
{
    (void)state;
    struct rig rig = {.n = 3, .main = long_wait, .compare_after_ns = 7200 * TUTTI_NS_PER_S};
    rig_run(&rig);
}

/* ---- different calls ---- */
static const struct mismatch {
    const char *parts[4];
    int variant;
    uint64_t within_ns;
} mismatches[] = {
    {{"rank 2 called broadcast(int32, 7 elements, root 0)", "called all_reduce(int32, 7 elements, sum)", NULL},
     0,
     10000 * MS},
    {{"rank 2 called all_reduce(int32, 8 elements, sum)", "called all_reduce(int32, 7 elements, sum)", NULL},
     1,
     10000 * MS},
    {{"called broadcast(int32, 7 elements, root 1)", "called broadcast(int32, 7 elements, root 0)", NULL},
     2,
     10000 * MS},
    {{"called all_reduce(int32, 7000 elements, sum)", "called all_reduce(int32, 7 elements, sum)", NULL},
     3,
     10000 * MS},
};

static void differing(struct rig_rank *rank)
{
    const struct mismatch *m = rank->rig->arg;
    uint64_t start = rig_now();
    bool odd = rank->me == 2;
    enum tutti_status status = TUTTI_OK;

    /* A rank that only sends is ahead of the others by all of its credits at most. */
    for (int i = 0; i < 2 * TUTTI_CREDITS && status == TUTTI_OK; i++) {
        if (m->variant == 0 && odd)
            status = broadcast(rank, rank->team, 7, 0);
        else if (m->variant == 2)
            status = broadcast(rank, rank->team, 7, odd ? 1 : 0);
        else
            status = all_reduce(rank, rank->team, m->variant == 1 && odd ? 8 : m->variant == 3 && odd ? 7000 : 7, 0);
    }
    /* What messages do not show, boards do: without them such calls just time out. */
    RIG_CHECK(rank, status == TUTTI_ERR_MISMATCH || (rig_control == RIG_MUTE && status == TUTTI_ERR_TIMEOUT), "%s",
              tutti_last_error()->text);
    RIG_CHECK(rank, rig_now() - start < m->within_ns, "after %" PRIu64 " ms", (rig_now() - start) / MS);
    told[rank->me] = *tutti_last_error();
}

static void test_mismatch(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(mismatches); i++) {
        struct mismatch m = mismatches[i];
        struct rig rig = {.n = 3, .main = differing, .arg = &m, .compare_after_ns = 200 * MS};
        if (rig_control == RIG_MUTE) rig.timeout_ns = 400 * MS;
        rig_run(&rig);
        same_sentence(3, told[0].status);
        if (told[0].status == TUTTI_ERR_TIMEOUT) continue;
        assert_non_null(strstr(told[0].text, "#1 on communicator 4f2a"));
        for (const char **part = m.parts; *part; part++)
            if (!strstr(told[0].text, *part)) fail_msg("\"%s\" is not in \"%s\"", *part, told[0].text);
    }
}

/* ---- every rank finds something wrong at once: one of them is heard by all ---- */
static void at_once(struct rig_rank *rank)
{
    for (uint32_t round = 0; round < (rig_control == RIG_AT_ONCE ? 20 : 4); round++) {
        struct tutti_team *team = rig_team(rank, RIG_TEAM + 1 + round, round);
        enum tutti_status status = TUTTI_OK;
        rig_meet(rank);
        for (int i = 0; i < 3 && status == TUTTI_OK; i++) status = all_reduce(rank, team, 10 + rank->me, 0);
        RIG_CHECK(rank, status == TUTTI_ERR_MISMATCH, "round %u: %s", round, tutti_last_error()->text);
        told[rank->me] = *tutti_last_error();
        rig_meet(rank);
        for (uint32_t i = 0; i < rank->n; i++)
            RIG_CHECK(rank, strcmp(told[i].text, told[0].text) == 0, "\"%s\" but \"%s\"", told[i].text, told[0].text);
        rig_meet(rank);
        tutti_team_destroy(team);
    }
}

static void test_at_once(void **state)
{
    (void)state;
    struct rig rig = {.n = 8, .main = at_once, .compare_after_ns = 100 * MS};
    rig_run(&rig);
}

/* ---- blocks that sender and receiver see differently ---- */
static void unequal(struct rig_rank *rank)
{
    static const char *const parts[] = {"all_to_all #1 (int32, unequal blocks)", "rank 1 sends 4000 bytes to rank 0",
                                        "which expects 2000", NULL};
    size_t in_counts[2] = {1000, 1000}, counts[2] = {1000, rank->me == 0 ? 500 : 1000};
    int32_t in[2000] = {0}, out[2000];
    struct rig_call call = {.kind = TUTTI_ALL_TO_ALL,
                            .dtype = TUTTI_INT32,
                            .op = -1,
                            .input = in,
                            .output = out,
                            .counts = counts,
                            .in_counts = in_counts};

    enum tutti_status status = rig_call(rank, rank->team, &call);
    /* Rank 1, whose message went on credit, may be complete before rank 0 has seen it. */
    if (rank->me == 1 && status == TUTTI_OK) status = rig_call(rank, rank->team, &call);
    RIG_CHECK(rank, status == TUTTI_ERR_MISMATCH, "%s", tutti_last_error()->text);
    expect(rank, TUTTI_ERR_MISMATCH, parts);
}

static void test_unequal(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = unequal, .eager_bytes = 64};
    rig_run(&rig);
    same_sentence(2, TUTTI_ERR_MISMATCH);
    rig.eager_bytes = 8192;
    rig_run(&rig);
    same_sentence(2, TUTTI_ERR_MISMATCH);
}

/* ---- a rank that leaves cleanly while others wait ---- */
static void leaving(struct rig_rank *rank)
{
    static const char *const parts[] = {"connection closed by peer: rank 1 left the communicator while rank",
                                        "all_reduce #2", "4f2a", NULL};
    static const char *const less[] = {"timed out after 400 ms", "all_reduce #2", "4f2a", " is doing is not known",
                                       NULL};

    RIG_OK(rank, all_reduce(rank, rank->team, 10, 0));
    if (rank->me == 1) {
        tutti_team_destroy(rank->team);
        rank->team = NULL;
        return;
    }
    uint64_t start = rig_now();
    /* That it left this communicator, but not the world, is only on its board. */
    const bool mute = rig_control == RIG_MUTE;
    const enum tutti_status expected = mute ? TUTTI_ERR_TIMEOUT : TUTTI_ERR_PEER_LEFT;
    RIG_CHECK(rank, all_reduce(rank, rank->team, 10, 0) == expected, "%s", tutti_last_error()->text);
    RIG_CHECK(rank, rig_now() - start < 15000 * MS, "late");
    expect(rank, expected, mute ? less : parts);
}

static void test_leaving(void **state)
{
    (void)state;
    struct rig rig = {.n = 3, .main = leaving, .timeout_ns = rig_control == RIG_MUTE ? 400 * MS : 0};
    memset(told, 0, sizeof(told));
    rig_run(&rig);
    assert_string_equal(told[0].text, told[2].text);
}

/* ---- abort from another thread; the buffer is the caller's again; a new epoch works ---- */
static _Atomic bool aborter_runs;

static void *aborter(void *arg)
{
    struct rig_rank *rank = arg;
    struct tutti_error error;

    if (rig_time) virtual_join(rig_time);
    atomic_store(&aborter_runs, true);
    rig_sleep(50 * MS);
    tutti_error_set(&error, TUTTI_ERR_ABORTED, "rank %u aborted: enough", rank->me);
    tutti_team_fail(rank->team, &error, true);
    return NULL;
}

static void aborted(struct rig_rank *rank)
{
    int32_t *data = calloc(200000, sizeof(*data));
    pthread_t thread;
    struct rig_call call = {.kind = TUTTI_ALL_REDUCE,
                            .dtype = TUTTI_INT32,
                            .op = TUTTI_SUM,
                            .count = 200000,
                            .input = data,
                            .output = data};
    uint64_t start = rig_now();

    if (rank->me == 0) {
        atomic_store(&aborter_runs, false);
        pthread_create(&thread, NULL, aborter, rank);
        while (!atomic_load(&aborter_runs)) sched_yield(); /* no time passes before it takes part */
    }
    if (rank->me == 2) rig_sleep(100 * MS); /* the others wait for it */
    RIG_CHECK(rank, rig_call(rank, rank->team, &call) == TUTTI_ERR_ABORTED, "%s", tutti_last_error()->text);
    told[rank->me] = *tutti_last_error();
    if (rank->me != 2) RIG_CHECK(rank, rig_now() - start < 15000 * MS, "late");
    for (size_t i = 0; i < 200000; i++) data[i] = -1;
    if (rank->me == 0) pthread_join(thread, NULL);
    struct tutti_team *team = rig_team(rank, RIG_TEAM, 1);
    RIG_OK(rank, all_reduce(rank, team, 3000, 0));
    for (size_t i = 0; i < 200000; i++) RIG_CHECK(rank, data[i] == -1, "[%zu] was written after the abort", i);
    tutti_team_destroy(team);
    free(data);
}

static void test_abort(void **state)
{
    (void)state;
    for (int zero_copy = 0; zero_copy < 2; zero_copy++) {
        struct rig rig = {.n = 3, .main = aborted, .slice_bytes = 8192, .zero_copy_bytes = zero_copy ? 4096 : SIZE_MAX};
        rig_run(&rig);
        same_sentence(3, TUTTI_ERR_ABORTED);
        assert_string_equal(told[0].text, "rank 0 aborted: enough");
    }
}

/* ---- lost packets end in a deadline, never in a hang ---- */
static void lossy(struct rig_rank *rank)
{
    uint64_t start = rig_now();
    enum tutti_status status = TUTTI_OK;

    for (int i = 0; i < 100 && status == TUTTI_OK; i++) status = all_reduce(rank, rank->team, 2000, 200 * MS);
    RIG_CHECK(rank, status == TUTTI_ERR_TIMEOUT || status == TUTTI_ERR_PEER_LEFT, "%s", tutti_last_error()->text);
    RIG_CHECK(rank, rig_now() - start < 20 * TUTTI_NS_PER_S, "late");
}

static void test_lossy(void **state)
{
    (void)state;
    struct rig rig = {.n = 3, .main = lossy, .decorators = "fault", .fault = "seed=5,drop=0.05"};
    rig_run(&rig);
}

/* ---- deadlines of point-to-point, and a wait that is over before the call ---- */
static void msgs(struct rig_rank *rank)
{
    static const char *const parts[] = {"recv from rank 1 (tag 5, 4 bytes)", ": rank 0 timed out after 1000 ms", NULL};
    struct tutti_work *work;
    int32_t x;

    if (rank->me == 0) {
        RIG_OK(rank, tutti_engine_recv(rank->team,
                                       &(struct tutti_p2p_message_info){
                                           .recv = &x, .bytes = 4, .peer = 1, .tag = 5, .timeout_ns = 1000 * MS},
                                       false, &work));
        RIG_CHECK(rank, tutti_work_wait(work, 20 * MS) == TUTTI_PENDING, "not pending");
        RIG_CHECK(rank, tutti_work_test(work) == TUTTI_PENDING, "not pending");
        RIG_CHECK(rank, tutti_work_finish(work) == TUTTI_ERR_TIMEOUT, "no error");
    } else {
        RIG_OK(rank, tutti_engine_recv(rank->team,
                                       &(struct tutti_p2p_message_info){.recv = &x, .bytes = 4, .peer = 0, .tag = 6},
                                       false, &work));
        RIG_CHECK(rank, tutti_work_finish(work) == TUTTI_ERR_TIMEOUT, "no error");
    }
    expect(rank, TUTTI_ERR_TIMEOUT, parts);
}

static void test_messages(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = msgs};
    rig_run(&rig);
    same_sentence(2, TUTTI_ERR_TIMEOUT);
}

/* ---- a process that dies ---- */
static enum tutti_status sum_of_100(struct rig_rank *rank, void *memory)
{
    (void)memory;
    return all_reduce(rank, rank->team, 100, 0);
}

/* For how long the last survivor was not told. */
static uint64_t death_told_after_ns(void)
{
    struct death *death = death_run(sum_of_100, 0);
    uint64_t latest_ns = 0;
    assert_non_null(strstr(death->error[0].text, "rank 1 died"));
    assert_non_null(strstr(death->error[0].text, "all_reduce #2"));
    for (uint32_t i = 0; i < DEATH_RANKS; i += 2) {
        uint64_t late_ns = death->returned_ns[i] - death->died_ns;
        if (late_ns > latest_ns) latest_ns = late_ns;
    }
    death_free(death);
    return latest_ns;
}

/* Within a second; which a busy machine may miss, but not thrice. */
static void test_death(void **state)
{
    uint64_t late_ns = TUTTI_NEVER;
    (void)state;
    for (int i = 0; i < 3 && late_ns > TUTTI_NS_PER_S; i++) late_ns = death_told_after_ns();
    if (late_ns > TUTTI_NS_PER_S) fail_msg("told after %" PRIu64 " ms", late_ns / MS);
}

/* ---- a rank that dies, of which control hears late ---- */
static void dies(struct rig_rank *rank)
{
    static const char *const parts[] = {"rank 1 died", "all_reduce #2", "4f2a", NULL};

    RIG_OK(rank, all_reduce(rank, rank->team, 10, 0));
    uint64_t start = rig_now();
    if (rank->me == 1) { /* as if it did: it does nothing more until the others are through */
        late_kill(rank->control);
        rig_sleep(1200 * MS);
        return;
    }
    RIG_CHECK(rank, all_reduce(rank, rank->team, 10, 0) == TUTTI_ERR_PEER_DEAD, "%s", tutti_last_error()->text);
    RIG_CHECK(rank, rig_now() - start < 15000 * MS, "late");
    expect(rank, TUTTI_ERR_PEER_DEAD, parts);
}

static void test_late_death(void **state)
{
    (void)state;
    struct rig rig = {.n = 3, .main = dies};
    rig_run(&rig);
    assert_string_equal(told[0].text, told[2].text);
}

/* ---- whose question is never answered ---- */
static void never_answered(struct rig_rank *rank)
{
    static const char *const parts[] = {"timed out after 300 ms", " has not been heard of for long", NULL};

    RIG_OK(rank, all_reduce(rank, rank->team, 10, 0));
    uint64_t start = rig_now();
    if (rank->me == 1) rig_sleep(800 * MS);
    RIG_CHECK(rank, all_reduce(rank, rank->team, 10, 300 * MS) == TUTTI_ERR_TIMEOUT, "%s", tutti_last_error()->text);
    RIG_CHECK(rank, rig_now() - start < 15000 * MS, "late");
    expect(rank, TUTTI_ERR_TIMEOUT, parts);
}

/* The sentence waits for the answer no longer than a moment, and says what is known. */
static void test_never_answered(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = never_answered, .late_ns = 100 * TUTTI_NS_PER_S};
    rig_run(&rig);
}

int main(void)
{
    rig_virtual = true;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_death),    cmocka_unit_test(test_long_wait), cmocka_unit_test(test_silent),
        cmocka_unit_test(test_mismatch), cmocka_unit_test(test_at_once),   cmocka_unit_test(test_unequal),
        cmocka_unit_test(test_leaving),  cmocka_unit_test(test_abort),     cmocka_unit_test(test_lossy),
        cmocka_unit_test(test_messages),
    };
    const struct CMUnitTest late[] = {
        cmocka_unit_test(test_late_death), cmocka_unit_test(test_silent),   cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_at_once),    cmocka_unit_test(test_unequal),  cmocka_unit_test(test_leaving),
        cmocka_unit_test(test_abort),      cmocka_unit_test(test_messages),
    };
    const struct CMUnitTest never[] = {cmocka_unit_test(test_never_answered)};
    int n_failed = cmocka_run_group_tests_name("failure", tests, NULL, NULL);
    rig_control = RIG_LATE;
    n_failed += cmocka_run_group_tests_name("failure, control answers late", late, NULL, NULL);
    n_failed += cmocka_run_group_tests_name("failure, control never answers", never, NULL, NULL);
    rig_control = RIG_MUTE;
    n_failed += cmocka_run_group_tests_name("failure, control knows no boards", late, NULL, NULL);
    return n_failed;
}
