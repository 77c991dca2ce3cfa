/* SPDX-License-Identifier: BSD-3-Clause */

/* Runners: in the order of the calls, many in flight, alone and among schedules, messages and barriers, awake, asleep
 * and left alone, handed over in the middle, and counted past the engine. */

#include "engine/flight/runner_fake_test.h"
#include "engine/team/team.h"

#define MS TUTTI_NS_PER_MS

static struct fake_lane lane;

static void run(struct rig *rig)
{
    memset(&lane, 0, sizeof(lane));
    rig_run(rig);
    fake_check(&lane, rig->n);
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

/* ---- more in flight than are active, ended in any order ---- */
static void many(struct rig_rank *rank)
{
    enum { N = 300 };
    struct tutti_work *works[N];
    uint64_t sums[N] = {0};

    for (uint64_t i = 0; i < N; i++) {
        RIG_CHECK(rank, tutti_team_next(rank->team) == i + 1, "next is %" PRIu64, tutti_team_next(rank->team));
        RIG_OK(rank, fake_start(rank, &lane, given(rank->me, i), &sums[i], i % 3 == 0, &works[i]));
        RIG_CHECK(rank, tutti_work_sequence(works[i]) == i + 1, "#%" PRIu64, tutti_work_sequence(works[i]));
        if (tutti_random64(&rank->random) % 64 == 0) tutti_sleep_ns(MS / 2);
    }
    for (uint32_t i = N; i-- > 0;) RIG_OK(rank, tutti_work_finish(works[i]));
    for (uint32_t i = 0; i < N; i++) RIG_CHECK(rank, sums[i] == total(rank->n, i), "call %u is %" PRIu64, i, sums[i]);
    RIG_CHECK(rank, tutti_team_quiet(rank->team), "something is in flight");
}

static void test_many(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 5; n += 2) {
        struct rig rig = {.n = n, .main = many, .spin_ns = n == 3 ? 20000 : 0};
        run(&rig);
    }
}

/* ---- among schedules and messages of the same team ---- */
static void mixed(struct rig_rank *rank)
{
    enum { N = 120 };
    struct tutti_work *works[N];
    static uint64_t in[FAKE_RANKS][N][400];
    uint64_t sums[N] = {0};
    struct tutti_cache *cache;

    RIG_OK(rank, tutti_cache_create(8, &cache));
    for (uint32_t i = 0; i < N; i++) {
        uint64_t *data = in[rank->me][i];
        struct rig_call call = {.kind = TUTTI_ALL_REDUCE,
                                .dtype = TUTTI_UINT64,
                                .op = TUTTI_SUM,
                                .count = i % 8 < 4 ? 4 : 400,
                                .input = data,
                                .output = data,
                                .cache = cache};
        for (uint32_t k = 0; k < 400; k++) data[k] = given(rank->me, i + k);
        if (i % 7 == 6 && rank->me == 0)
            RIG_OK(rank, tutti_engine_send(
                             rank->team,
                             &(struct tutti_p2p_message_info){.send = data, .bytes = 8, .peer = 1, .tag = (int32_t)i},
                             true, &works[i]));
        else if (i % 7 == 6 && rank->me == 1)
            RIG_OK(rank, tutti_engine_recv(rank->team,
                                           &(struct tutti_p2p_message_info){
                                               .recv = &sums[i], .bytes = 8, .peer = 0, .tag = (int32_t)i},
                                           true, &works[i]));
        else if (i % 7 == 6)
            works[i] = NULL;
        else if (i % 2)
            RIG_OK(rank, fake_start(rank, &lane, data[0], &sums[i], true, &works[i]));
        else
            RIG_OK(rank, rig_start(rank, rank->team, &call, true, &works[i]));
    }
    for (uint32_t i = 0; i < N; i++) {
        if (works[i]) RIG_OK(rank, tutti_work_finish(works[i]));
        if (i % 7 != 6 && i % 2) RIG_CHECK(rank, sums[i] == total(rank->n, i), "call %u", i);
        if (i % 7 == 6 && rank->me == 1) RIG_CHECK(rank, sums[i] == given(0, i), "message %u", i);
        for (uint32_t k = 0; i % 7 != 6 && i % 2 == 0 && k < (i % 8 < 4 ? 4 : 400); k++)
            RIG_CHECK(rank, in[rank->me][i][k] == total(rank->n, i + k), "call %u [%u]", i, k);
    }
    tutti_cache_destroy(cache);
}

static void test_mixed(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 4; n++) {
        struct rig rig = {.n = n, .main = mixed, .slice_bytes = 1024, .spin_ns = n == 2 ? 20000 : 0};
        run(&rig);
    }
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

/* ---- who sleeps is woken through the word of the runner, while another thread may want to own ---- */
static void in_turns(struct rig_rank *rank, uint32_t round, uint64_t nap_ns)
{
    enum { N = 40 };
    struct tutti_work *work;
    uint32_t n_late = 0;

    for (uint64_t i = round * N; i < (round + 1) * N; i++) {
        uint64_t sum = 0, start = tutti_now_ns();
        if (i % 2 == rank->me) tutti_sleep_ns(nap_ns);
        RIG_OK(rank, fake_start(rank, &lane, given(rank->me, i), &sum, false, &work));
        RIG_OK(rank, tutti_work_finish(work));
        RIG_CHECK(rank, sum == total(2, i), "call %" PRIu64, i);
        n_late += tutti_now_ns() - start > nap_ns + 60 * MS;
    }
    /* A wake-up that is lost lasts until the owner's next look at the clock, a tenth of a second. */
    RIG_CHECK(rank, n_late < N / 3, "%u calls took long", n_late);
}

/* A rank that is off its CPU while the other one naps does not sleep: then they take longer naps. */
static void asleep(struct rig_rank *rank)
{
    const struct fake_rank *me = &lane.ranks[rank->me];
    bool both = false;

    for (uint32_t round = 0; round < 10 && !both; round++) {
        if (!rank->wrong[0]) in_turns(rank, round, (UINT64_C(2) << (round < 4 ? round : 4)) * MS);
        pthread_barrier_wait(&rank->rig->barrier);
        both = lane.ranks[0].n_woken > 0 && lane.ranks[1].n_woken > 0;
        pthread_barrier_wait(&rank->rig->barrier);
    }
    RIG_CHECK(rank, me->n_woken > 0 && me->n_asleep >= me->n_woken, "woken %u times of %u", me->n_woken, me->n_asleep);
}

static void test_asleep(void **state)
{
    (void)state;
    struct rig rig = {.n = 2, .main = asleep};
    run(&rig);
    rig.spin_ns = 20000;
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

/* ---- left alone: the helper ends it, nobody touches the engine meanwhile ---- */
static void alone(struct rig_rank *rank)
{
    struct tutti_work *work;

    for (uint64_t i = 0; i < 10; i++) {
        uint64_t sum = 0, deadline = tutti_deadline_ns(20 * TUTTI_NS_PER_S);
        if (i % rank->n == rank->me) tutti_sleep_ns(3 * MS);
        RIG_OK(rank, fake_start(rank, &lane, given(rank->me, i), &sum, true, &work));
        while (!atomic_load(&work->done) && tutti_now_ns() < deadline) tutti_sleep_ns(MS / 10);
        RIG_CHECK(rank, atomic_load(&work->done), "left alone");
        RIG_OK(rank, tutti_work_finish(work));
        RIG_CHECK(rank, sum == total(rank->n, i), "call %" PRIu64, i);
    }
}

static void test_alone(void **state)
{
    (void)state;
    struct rig rig = {.n = 3, .main = alone};
    run(&rig);
    rig.spin_ns = 20000;
    run(&rig);
}

/* ---- two teams, each with its lane, in opposite orders, waited for by a thread each ---- */
static struct fake_lane other_lane;

struct caller {
    struct rig_rank rank; /* the other team's; `wrong` is its own */
    struct fake_lane *lane;
};

static void *caller_main(void *arg)
{
    struct caller *c = arg;

    for (uint64_t i = 0; i < 150; i++) {
        struct tutti_work *work;
        uint64_t sum = 0;
        RIG_OK(&c->rank, fake_start(&c->rank, c->lane, given(c->rank.me, i), &sum, i % 2, &work));
        RIG_OK(&c->rank, tutti_work_finish(work));
        RIG_CHECK(&c->rank, sum == total(c->rank.n, i), "call %" PRIu64, i);
    }
    return NULL;
}

static void two_teams(struct rig_rank *rank)
{
    struct caller callers[2] = {{*rank, &lane}, {*rank, &other_lane}};
    pthread_t thread;

    callers[1].rank.team = rig_team(rank, RIG_TEAM + 1, 0);
    RIG_CHECK(rank, pthread_create(&thread, NULL, caller_main, &callers[1]) == 0, "no thread");
    caller_main(&callers[0]);
    pthread_join(thread, NULL);
    for (int i = 0; i < 2; i++) RIG_CHECK(rank, !callers[i].rank.wrong[0], "%s", callers[i].rank.wrong);
    tutti_team_destroy(callers[1].rank.team);
}

static void test_two_teams(void **state)
{
    (void)state;
    struct rig rig = {.n = 3, .main = two_teams};
    memset(&other_lane, 0, sizeof(other_lane));
    run(&rig);
    fake_check(&other_lane, 3);
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
        board->seq = seq, board->count = 0, board->root = -1, board->peer = -1;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many),      cmocka_unit_test(test_mixed),    cmocka_unit_test(test_ordered),
        cmocka_unit_test(test_asleep),    cmocka_unit_test(test_advanced), cmocka_unit_test(test_alone),
        cmocka_unit_test(test_two_teams), cmocka_unit_test(test_frugal),   cmocka_unit_test(test_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
