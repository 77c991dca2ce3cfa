/* SPDX-License-Identifier: BSD-3-Clause */
/* Runners: in the order of the calls, handed over in the middle, counted past the engine, without an allocation. When
 * things go wrong, every rank returns in time, with one sentence that names rank, collective and number, after the back
 * end has cancelled what was in flight. With a real back end: tests/flat, tests/faults. */
#include "engine/flight/runner_fake_test.h"
#include "engine/team/team.h"

#define MS TUTTI_NS_PER_MS
#define COMPARE_LATE_NS (20 * TUTTI_NS_PER_S)

static struct fake_lane lane, other_lane;

/* What the ranks of a run were told, compared by the main thread afterwards. */
static struct tutti_error told[FAKE_RANKS];

static void run(struct rig *rig)
{
    memset(&lane, 0, sizeof(lane));
    memset(&other_lane, 0, sizeof(other_lane));
    memset(told, 0, sizeof(told));
    rig_run(rig);
    fake_check(&lane, rig->n);
    fake_check(&other_lane, rig->n);
}

/* What rank `me` gives to call i, and what all give. */
static uint64_t given(uint32_t me, uint64_t i)
{
    return tutti_mix64(test_seed() ^ (me + 1) * 1000003 ^ i) >> 8;
}

static uint64_t total(uint32_t n, uint64_t i)
{
    uint64_t sum = 0;
    for (uint32_t r = 0; r < n; r++) sum += given(r, i);
    return sum;
}

/* ---- a barrier begins when the calls before it are over, whichever of the two is a runner ---- */
static void ordered(struct rig_rank *rank)
{
    struct tutti_work *first = NULL, *second = NULL;
    uint64_t data[500] = {0};
    struct tutti_call_info info = fake_info(TUTTI_BARRIER, 0, 0);

    for (int round = 0; round < 20 && !rank->wrong[0]; round++) {
        struct rig_call sum = {.kind = TUTTI_ALL_REDUCE,
                               .dtype = TUTTI_UINT64,
                               .op = TUTTI_SUM,
                               .count = 500,
                               .input = data,
                               .output = data};
        struct rig_call meet = {.kind = TUTTI_BARRIER, .op = -1};
        if (rank->me == (uint32_t)round % rank->n) tutti_sleep_ns(MS);
        RIG_OK(rank, rig_start(rank, rank->team, &sum, false, &first));
        struct fake fake = fake_make(rank, &lane, &info, 0, NULL);
        fake.before = &first->done;
        RIG_OK(rank, tutti_engine_run(rank->team, &fake.runner, sizeof(fake), &info, true, &second));
        RIG_OK(rank, tutti_work_wait(second, 0));
        RIG_CHECK(rank, tutti_work_test(first) == TUTTI_OK, "the barrier was faster");
        tutti_work_free(first), tutti_work_free(second);
        if (rank->me == (uint32_t)round % rank->n) tutti_sleep_ns(MS);
        RIG_OK(rank, fake_start(rank, &lane, 1, NULL, true, &first));
        RIG_OK(rank, rig_start(rank, rank->team, &meet, true, &second));
        RIG_OK(rank, tutti_work_wait(second, 0));
        RIG_CHECK(rank, tutti_work_test(first) == TUTTI_OK, "the barrier was faster");
        for (uint32_t i = 0; i < rank->n; i++)
            RIG_CHECK(rank, lane.ranks[i].n_over == 3 * (uint32_t)round + 2, "not over on rank %u", i);
        tutti_work_free(first), tutti_work_free(second);
        RIG_OK(rank, fake_call(rank, &lane, TUTTI_BARRIER, 0, 0)); /* nobody begins the next round before */
        tutti_schedule_destroy(sum.schedule), tutti_schedule_destroy(meet.schedule);
    }
}

static void test_ordered(void **state)
{
    (void)state;
    struct rig rig = {.n = 3, .main = ordered, .slice_bytes = 1024};
    run(&rig);
}

/* ---- one that was advanced before it was handed over, from nothing to all ---- */
static void advanced(struct rig_rank *rank)
{
    struct tutti_call_info info = fake_info(TUTTI_ALL_REDUCE, 1, 0);
    struct tutti_work *work;

    for (uint64_t i = 0; i < 200; i++) {
        uint64_t sum = 0, turns = tutti_random64(&rank->random) % 5;
        struct fake fake = fake_make(rank, &lane, &info, given(rank->me, i), &sum);
        enum tutti_advance outcome = TUTTI_RUN_MOVED;
        RIG_CHECK(rank, tutti_team_quiet(rank->team) && tutti_team_next(rank->team) == i + 1, "not my turn");
        while (turns-- > 0 && outcome != TUTTI_RUN_DONE) outcome = fake_advance(&fake.runner);
        if (outcome == TUTTI_RUN_DONE) {
            tutti_team_count(rank->team);
        } else {
            RIG_OK(rank, tutti_engine_run(rank->team, &fake.runner, sizeof(fake), &info, false, &work));
            RIG_CHECK(rank, tutti_work_sequence(work) == i + 1, "#%" PRIu64, tutti_work_sequence(work));
            memset(&fake, 0xff, sizeof(fake)); /* the engine has a copy */
            RIG_OK(rank, tutti_work_finish(work));
        }
        RIG_CHECK(rank, sum == total(rank->n, i), "call %" PRIu64, i);
    }
}

static void test_advanced(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 3; n++) {
        struct rig rig = {.n = n, .main = advanced, .spin_ns = n == 2 ? 20000 : 0};
        run(&rig);
    }
}

/* ---- steady state allocates nothing ---- */
static void frugal(struct rig_rank *rank)
{
    for (int i = 0; i < 40; i++) {
        if (i == 20) tutti_alloc_fail_at(0);
        RIG_OK(rank, fake_call(rank, &lane, i % 2 ? TUTTI_BARRIER : TUTTI_ALL_REDUCE, i % 2 ? 0 : 5, 0));
    }
    RIG_CHECK(rank, tutti_alloc_fail_at(0) == 0, "something was allocated");
}

static void test_frugal(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = frugal};
    run(&rig);
}

/* ---- where this rank is, in calls that the engine did not see ---- */
static void overlay(void *arg, uint32_t peer, struct tutti_board *board)
{
    const struct fake_rank *from = &((const struct fake_lane *)arg)->ranks[peer];
    uint64_t seq = atomic_load(&from->seq), completed = atomic_load(&from->completed);

    if (seq > board->seq) {
        board->seq = seq, board->count = 0, board->root = -1;
        board->peer = completed < seq ? (int32_t)peer + 1 : -1;
        board->kind = TUTTI_BARRIER, board->dtype = 0, board->op = 255;
    }
    if (completed > board->completed) board->completed = completed;
}

static void where_is(struct rig_rank *rank, const char *text, uint64_t seq)
{
    char where[256];
    uint64_t at = tutti_team_where(rank->team, where, sizeof(where));

    RIG_CHECK(rank, at == seq && strcmp(where, text) == 0, "#%" PRIu64 ": \"%s\"", at, where);
}

static void where(struct rig_rank *rank)
{
    struct fake_rank *me = &lane.ranks[rank->me];
    struct tutti_work *work;

    where_is(rank, "before any call on communicator 4f2a", 0);
    tutti_team_count(rank->team);
    where_is(rank, "after call #1 on communicator 4f2a", 1);
    RIG_OK(rank, fake_start(rank, &lane, 0, NULL, true, &work));
    tutti_owner_enter(rank->engine->owner);
    RIG_CHECK(rank, rank->team->board.completed >= 1, "what was counted is not complete");
    tutti_owner_leave(rank->engine->owner);
    RIG_OK(rank, tutti_work_finish(work));
    where_is(rank, "after all_reduce #2 on communicator 4f2a", 2);
    tutti_team_set_overlay(rank->team, overlay, &lane);
    where_is(rank, "after all_reduce #2 on communicator 4f2a", 2);
    atomic_store(&me->completed, 2), atomic_store(&me->seq, 3);
    where_is(rank, "in barrier #3 on communicator 4f2a", 3);
    atomic_store(&me->completed, 3), tutti_team_count(rank->team);
    where_is(rank, "after barrier #3 on communicator 4f2a", 3);
    RIG_OK(rank, fake_call(rank, &lane, TUTTI_ALL_REDUCE, 3, 0));
    where_is(rank, "after all_reduce #4 on communicator 4f2a", 4);
    tutti_team_set_overlay(rank->team, NULL, NULL);
    RIG_CHECK(rank, rank->team->board.completed == 4, "complete up to %" PRIu64, rank->team->board.completed);
}

static void test_where(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = where};
    run(&rig);
}

static void expect(struct rig_rank *rank, enum tutti_status status)
{
    told[rank->me] = *tutti_last_error();
    RIG_CHECK(rank, told[rank->me].status == status, "%s", told[rank->me].text);
    RIG_CHECK(rank, told[rank->me].step == TUTTI_NO_STEP && !strstr(told[rank->me].text, " step"), "\"%s\"",
              told[rank->me].text);
    RIG_CHECK(rank, fake_call(rank, &lane, TUTTI_ALL_REDUCE, 1, 0) == status, "the team goes on");
    RIG_CHECK(rank, strcmp(tutti_last_error()->text, told[rank->me].text) == 0, "%s", tutti_last_error()->text);
}

/* All ranks but `but` were told the same, which has all these parts. */
static void same_sentence(uint32_t n, uint32_t but, const char *const *parts)
{
    uint32_t first = but == 0 ? 1 : 0;

    for (uint32_t i = 0; i < n; i++)
        if (i != but) assert_string_equal(told[i].text, told[first].text);
    for (; *parts; parts++)
        if (!strstr(told[first].text, *parts)) fail_msg("\"%s\" is not in \"%s\"", *parts, told[first].text);
}

static void wait_for_failure(struct rig_rank *rank)
{
    uint64_t deadline = tutti_deadline_ns(20 * TUTTI_NS_PER_S);

    while (tutti_team_state(rank->team, NULL) == TUTTI_OK && tutti_now_ns() < deadline) tutti_sleep_ns(MS);
    RIG_CHECK(rank, tutti_team_failed(rank->team), "the team lives");
}

/* ---- a deadline that passes before the call begins ---- */
static void behind(struct rig_rank *rank)
{
    struct tutti_work *first;

    if (rank->me == 1) {
        wait_for_failure(rank);
        return;
    }
    RIG_OK(rank, fake_start(rank, &lane, 1, NULL, false, &first));
    RIG_CHECK(rank, fake_call(rank, &lane, TUTTI_ALL_REDUCE, 2, 500 * MS) == TUTTI_ERR_TIMEOUT, "no timeout");
    RIG_CHECK(rank, lane.ranks[rank->me].n_cancelled == 2, "%u cancelled", lane.ranks[rank->me].n_cancelled);
    RIG_CHECK(rank, tutti_work_finish(first) == TUTTI_ERR_TIMEOUT, "no timeout");
    expect(rank, TUTTI_ERR_TIMEOUT);
}

static void test_behind(void **state)
{
    static const char *const parts[] = {"all_reduce #2 (uint64, 2 elements, sum, label 'lane') on communicator 4f2a",
                                        ": rank ", " timed out after 500 ms behind the calls before it", NULL};
    (void)state;
    struct rig rig = {.n = 3, .main = behind};
    run(&rig);
    same_sentence(3, 1, parts);
}

/* ---- different calls: seen by the runner, by packets, or on the boards ---- */
enum difference { BY_KIND, BY_COUNT, BY_BOARD, BY_SCHEDULE, BY_ROOT_OF_SCHEDULE };
static const struct mismatch {
    enum difference difference;
    const char *parts[4];
} mismatches[] = {
    {BY_KIND, {"rank 2 called barrier()", "rank", "called all_reduce(uint64, 7 elements, sum)", NULL}},
    {BY_COUNT, {"rank 2 called all_reduce(uint64, unequal blocks, sum)", "called all_reduce(uint64, 7 elements, sum)"}},
    {BY_BOARD, {"called broadcast(uint64, 7 elements, root 0)", "called all_reduce(uint64, 7 elements, sum)", NULL}},
    {BY_SCHEDULE, {"called all_reduce(uint64, 7 elements, sum)", "with another algorithm, other tables", NULL}},
    {BY_ROOT_OF_SCHEDULE, {"called broadcast(uint64, 7 elements, root 2)", "called all_reduce(uint64, 7 el", NULL}},
};

/* The same signature, even, but a schedule. */
static enum tutti_status all_reduce_by_schedule(struct rig_rank *rank)
{
    struct tutti_shape shape = {.slot = rank->me, .size = rank->n};
    struct tutti_call_info info = fake_info(TUTTI_ALL_REDUCE, 7, 0);
    struct tutti_schedule *schedule = NULL;
    struct tutti_work *work = NULL;
    uint64_t data[7] = {0};
    struct tutti_bind bind = {.input = data,
                              .output = data,
                              .count = 7,
                              .dtype = TUTTI_UINT64,
                              .reduce = tutti_reduce_find(TUTTI_UINT64, TUTTI_SUM, "auto")};

    TUTTI_TRY(tutti_schedule_seal(&rig_linear, TUTTI_ALL_REDUCE, &shape, true, &schedule));
    bind.schedule = schedule;
    enum tutti_status status = tutti_engine_start(rank->team, &bind, &info, false, &work);
    if (status == TUTTI_OK) status = tutti_work_finish(work);
    tutti_schedule_destroy(schedule);
    return status;
}

static enum tutti_status broadcast_by_schedule(struct rig_rank *rank)
{
    uint64_t data[7] = {0};
    struct rig_call call = {
        .kind = TUTTI_BROADCAST, .dtype = TUTTI_UINT64, .op = -1, .root = 2, .count = 7, .input = data, .output = data};
    return rig_call(rank, rank->team, &call);
}

static void differing(struct rig_rank *rank)
{
    const struct mismatch *m = rank->rig->arg;
    enum tutti_status status = TUTTI_OK;
    uint64_t start = tutti_now_ns();

    /* A root that only sends is ahead of the others by all of its credits at most. */
    for (int i = 0; i < 2 * TUTTI_CREDITS && status == TUTTI_OK; i++) {
        if (rank->me != 2)
            status = fake_call(rank, &lane, TUTTI_ALL_REDUCE, 7, 0);
        else if (m->difference == BY_KIND)
            status = fake_call(rank, &lane, TUTTI_BARRIER, 0, 0);
        else if (m->difference == BY_COUNT)
            status = fake_call(rank, &lane, TUTTI_ALL_REDUCE, 7 | TUTTI_COUNT_UNEQUAL, 0);
        else if (m->difference == BY_BOARD)
            status = fake_call(rank, &other_lane, TUTTI_BROADCAST, 7, 0);
        else
            status = m->difference == BY_SCHEDULE ? all_reduce_by_schedule(rank) : broadcast_by_schedule(rank);
    }
    RIG_CHECK(rank, status == TUTTI_ERR_MISMATCH, "%s", tutti_last_error()->text);
    RIG_CHECK(rank, tutti_now_ns() - start < COMPARE_LATE_NS, "found on the boards alone");
    expect(rank, TUTTI_ERR_MISMATCH);
}

static void test_mismatch(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(mismatches); i++) {
        struct mismatch m = mismatches[i];
        struct rig rig = {.n = 3, .main = differing, .arg = &m, .compare_after_ns = COMPARE_LATE_NS};
        if (m.difference == BY_BOARD) rig.compare_after_ns = 200 * MS;
        run(&rig);
        same_sentence(3, FAKE_RANKS, m.parts);
        assert_non_null(strstr(told[0].text, "#1 on communicator 4f2a"));
    }
}

/* ---- abort from another thread: what was begun and what was not is cancelled, then complete ---- */
static void *aborter(void *arg)
{
    struct rig_rank *rank = arg;
    struct tutti_error error;

    tutti_sleep_ns(30 * MS);
    tutti_error_set(&error, TUTTI_ERR_ABORTED, "rank %u aborted: enough", rank->me);
    tutti_team_fail(rank->team, &error, true);
    return NULL;
}

static void abandoned(struct rig_rank *rank)
{
    enum { N = 70 }; /* more than are active */
    struct tutti_work *works[N];
    pthread_t thread;

    if (rank->me == 2) {
        wait_for_failure(rank);
        return;
    }
    for (uint32_t i = 0; i < N; i++) RIG_OK(rank, fake_start(rank, &lane, 1, NULL, i % 2, &works[i]));
    if (rank->me == 0) RIG_CHECK(rank, pthread_create(&thread, NULL, aborter, rank) == 0, "no thread");
    for (uint32_t i = 0; i < N; i++) {
        RIG_CHECK(rank, tutti_work_wait(works[i], 0) == TUTTI_ERR_ABORTED, "call %u", i);
        RIG_CHECK(rank, lane.ranks[rank->me].n_over > i, "call %u was complete before it was cancelled", i);
        tutti_work_free(works[i]);
    }
    if (rank->me == 0) pthread_join(thread, NULL);
    RIG_CHECK(rank, lane.ranks[rank->me].n_cancelled == N, "%u cancelled", lane.ranks[rank->me].n_cancelled);
    expect(rank, TUTTI_ERR_ABORTED);
    RIG_CHECK(rank, lane.ranks[rank->me].n_cancelled == N + 1, "%u cancelled", lane.ranks[rank->me].n_cancelled);
}

static void test_abort(void **state)
{
    static const char *const parts[] = {"rank 0 aborted: enough", NULL};
    (void)state;
    struct rig rig = {.n = 3, .main = abandoned};
    run(&rig);
    same_sentence(3, 2, parts);
}

/* ---- a back end that can not go on, and a runner that can not be handed over ---- */
static void failing(struct rig_rank *rank)
{
    struct tutti_call_info info = fake_info(TUTTI_ALL_REDUCE, 1, 0);
    struct fake fake = fake_make(rank, &lane, &info, 1, NULL);
    struct tutti_work *work;

    fake.fails = rank->me == 1;
    RIG_OK(rank, tutti_engine_run(rank->team, &fake.runner, sizeof(fake), &info, false, &work));
    RIG_CHECK(rank, tutti_work_finish(work) == TUTTI_ERR_SYSTEM, "no failure");
    expect(rank, TUTTI_ERR_SYSTEM);
}

static void refused(struct rig_rank *rank)
{
    struct tutti_call_info info = fake_info(TUTTI_ALL_REDUCE, 1, 0);
    struct fake fake = fake_make(rank, &lane, &info, 1, NULL);
    struct tutti_work *work = NULL;
    size_t bytes = rank->me == 1 ? TUTTI_RUNNER_BYTES + 1 : sizeof(fake);

    if (rank->me == 1) tutti_sleep_ns(20 * MS);
    enum tutti_status status = tutti_engine_run(rank->team, &fake.runner, bytes, &info, false, &work);
    RIG_CHECK(rank, (status < 0) == !work, "status %d", (int)status);
    if (work) status = tutti_work_finish(work);
    RIG_CHECK(rank, status == TUTTI_ERR_INTERNAL, "%s", tutti_last_error()->text);
    RIG_CHECK(rank, lane.ranks[rank->me].n_cancelled == 1, "%u cancelled", lane.ranks[rank->me].n_cancelled);
    expect(rank, TUTTI_ERR_INTERNAL);
}

static void test_failing(void **state)
{
    static const char *const fire[] = {"all_reduce #1 (uint64, 1 element, sum, label 'lane') on communicator 4f2a "
                                       "failed on rank 1: the lane is on fire",
                                       NULL};
    static const char *const large[] = {"all_reduce: a runner of 769 bytes", NULL};
    (void)state;
    struct rig rig = {.n = 3, .main = failing};
    run(&rig);
    same_sentence(3, FAKE_RANKS, fire);
    rig.main = refused;
    run(&rig);
    same_sentence(3, FAKE_RANKS, large);
}

/* ---- what others do past the engine is in the sentences, and is no different call while it is not known whole ---- */
static void overlaid(struct rig_rank *rank)
{
    struct fake_rank *me = &lane.ranks[rank->me];

    RIG_OK(rank, fake_call(rank, &lane, TUTTI_ALL_REDUCE, 9, 0));
    tutti_team_set_overlay(rank->team, overlay, &lane);
    for (int i = 0; i < 3; i++) tutti_team_count(rank->team);
    atomic_store(&me->completed, 4), atomic_store(&me->seq, rank->me == 2 ? 5 : 4);
    pthread_barrier_wait(&rank->rig->barrier);
    if (rank->me >= 2) wait_for_failure(rank);
    RIG_CHECK(rank, fake_call(rank, &lane, TUTTI_BARRIER, 0, 400 * MS) == TUTTI_ERR_TIMEOUT, "no timeout");
    RIG_CHECK(rank, tutti_last_error()->seq == 5 && tutti_last_error()->peer == 3, "%s", tutti_last_error()->text);
    expect(rank, TUTTI_ERR_TIMEOUT);
}

static void test_overlay(void **state)
{
    static const char *const parts[] = {
        "barrier #5 (label 'lane') on communicator 4f2a: rank ",
        " timed out after 400 ms, waiting for rank 2; that one waits in turn, in the end for rank "
        "3; rank 3 has not called it (its last call is barrier #4, complete)",
        NULL};
    (void)state;
    struct rig rig = {.n = 4, .main = overlaid, .compare_after_ns = 50 * MS};
    run(&rig);
    same_sentence(4, FAKE_RANKS, parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ordered), cmocka_unit_test(test_advanced), cmocka_unit_test(test_frugal),
        cmocka_unit_test(test_where),   cmocka_unit_test(test_behind),   cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_abort),   cmocka_unit_test(test_failing),  cmocka_unit_test(test_overlay)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
