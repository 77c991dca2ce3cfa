/* SPDX-License-Identifier: BSD-3-Clause */

/* Followed works: over one after another, beside the calls of the team and in nobody's way, waited for, tested, told
 * of, left alone, and ended by a failure of their own or of the team. */

#include "engine/pass/rig_test.h"
#include "engine/team/team.h"

#define MS TUTTI_NS_PER_MS

/* Something elsewhere. */
struct thing {
    _Atomic int outcome; /* enum tutti_status */
    _Atomic uint32_t looks, stops, ends;
    bool ends_when_stopped;
};

static enum tutti_status thing_look(void *arg)
{
    struct thing *thing = arg;
    enum tutti_status status = (enum tutti_status)thing->outcome;
    thing->looks++;
    return status < 0 ? tutti_fail(status, "the thing broke") : status;
}

static void thing_stop(void *arg)
{
    struct thing *thing = arg;
    thing->stops++;
    if (thing->ends_when_stopped) thing->outcome = TUTTI_OK;
}

static void thing_end(void *arg)
{
    ((struct thing *)arg)->ends++;
}

static const struct tutti_followed_ops ops = {thing_look, thing_stop, thing_end};

static struct tutti_work *follow(struct rig_rank *rank, struct thing *thing, uint64_t seq)
{
    struct tutti_work *work = NULL;
    *thing = (struct thing){.outcome = TUTTI_PENDING};
    RIG_OK(rank, tutti_engine_follow(rank->team, &ops, thing, seq, "tag", &work));
    return work;
}

static void count_up(void *arg)
{
    atomic_fetch_add((_Atomic uint32_t *)arg, 1);
}

/* ---- in order, whoever asks ---- */
static void in_order(struct rig_rank *rank)
{
    enum { N = 20 };
    struct thing things[N];
    struct tutti_work *works[N];
    uint64_t next = tutti_team_next(rank->team);

    for (uint32_t i = 0; i < N; i++) works[i] = follow(rank, &things[i], 100 + i);
    RIG_CHECK(rank, tutti_team_next(rank->team) == next, "they take numbers");
    RIG_CHECK(rank, !tutti_team_wait(rank->team, tutti_deadline_ns(2 * MS)), "nothing is in flight");
    for (uint32_t i = N; i-- > 1;) things[i].outcome = TUTTI_OK;
    RIG_CHECK(rank, tutti_work_wait(works[N - 1], 3 * MS) == TUTTI_PENDING, "one before it is not over");
    RIG_CHECK(rank, things[N - 1].looks == 0 && things[0].looks > 1, "%u looks", things[N - 1].looks);
    RIG_CHECK(rank, tutti_work_test(works[0]) == TUTTI_PENDING, "the first is over");
    things[0].outcome = TUTTI_OK;
    for (uint32_t i = 0; i < N; i++) {
        RIG_CHECK(rank, tutti_work_sequence(works[i]) == 100 + i, "#%" PRIu64, tutti_work_sequence(works[i]));
        RIG_OK(rank, i % 2 ? tutti_work_wait(works[i], 0) : tutti_work_wait(works[i], 100 * MS));
        RIG_CHECK(rank, things[i].ends == 1 && things[i].stops == 0, "%u ends", things[i].ends);
        RIG_CHECK(rank, tutti_work_duration_ns(works[i]) >= 5 * MS, "%" PRIu64 " ns", tutti_work_duration_ns(works[i]));
        tutti_work_free(works[i]);
    }
    RIG_CHECK(rank, tutti_team_wait(rank->team, tutti_deadline_ns(MS)), "something is in flight");
}

/* Ever less often. */
static void seldom(struct rig_rank *rank)
{
    struct thing thing;
    struct tutti_work *work = follow(rank, &thing, 1);

    RIG_CHECK(rank, tutti_work_wait(work, 60 * MS) == TUTTI_PENDING, "it is over");
    uint32_t looks = thing.looks;
    RIG_CHECK(rank, looks < 500, "%u looks in 60 ms", looks);
    RIG_CHECK(rank, tutti_work_wait(work, 60 * MS) == TUTTI_PENDING, "it is over");
    RIG_CHECK(rank, thing.looks - looks < 100 && thing.looks > looks, "%u looks more", thing.looks - looks);
    thing.outcome = TUTTI_OK;
    RIG_OK(rank, tutti_work_finish(work));
}

/* Its end is told, and seen when nobody waits. */
static void told(struct rig_rank *rank)
{
    struct thing thing, other;
    _Atomic uint32_t n = 0;
    struct tutti_work *work = follow(rank, &thing, 1), *left = NULL;

    RIG_OK(rank, tutti_work_notify(work, count_up, (void *)&n));
    tutti_sleep_ns(2 * MS);
    RIG_CHECK(rank, n == 0, "told too early");
    thing.outcome = TUTTI_OK;
    for (int i = 0; i < 2000 && n == 0; i++) tutti_sleep_ns(MS);
    RIG_CHECK(rank, n == 1, "not told");
    tutti_work_free(work);
    left = follow(rank, &other, 2);
    tutti_work_free(left);
    other.outcome = TUTTI_OK;
    for (int i = 0; i < 2000 && other.ends == 0; i++) tutti_sleep_ns(MS);
    RIG_CHECK(rank, other.ends == 1, "left alone");
}

/* ---- failures ---- */
static void broken(struct rig_rank *rank)
{
    struct thing things[2], late;
    struct tutti_work *works[2], *work = NULL;
    struct tutti_error error;

    for (uint32_t i = 0; i < 2; i++) works[i] = follow(rank, &things[i], i), things[i].ends_when_stopped = true;
    things[0].outcome = TUTTI_ERR_SYSTEM;
    for (uint32_t i = 0; i < 2; i++) {
        RIG_CHECK(rank, tutti_work_finish(works[i]) == TUTTI_ERR_SYSTEM, "it is no failure");
        RIG_CHECK(rank, strstr(tutti_last_error()->text, "the thing broke") != NULL, "%s", tutti_last_error()->text);
        RIG_CHECK(rank, things[i].ends == 1, "%u ends", things[i].ends);
    }
    RIG_CHECK(rank, things[0].stops == 2, "%u stops", things[0].stops);
    RIG_CHECK(rank, tutti_team_state(rank->team, &error) == TUTTI_ERR_SYSTEM, "the team goes on");
    late = (struct thing){.outcome = TUTTI_PENDING};
    RIG_CHECK(rank, tutti_engine_follow(rank->team, &ops, &late, 3, NULL, &work) == TUTTI_ERR_SYSTEM, "it is followed");
    RIG_CHECK(rank, late.ends == 0, "it was taken over");
}

/* What does not stop is waited for, but not for ever. */
static void stopped(struct rig_rank *rank)
{
    struct thing stubborn, willing;
    struct tutti_error why;
    struct tutti_work *first = follow(rank, &stubborn, 1), *second = follow(rank, &willing, 2);

    RIG_CHECK(rank, tutti_work_test(first) == TUTTI_PENDING, "it is over"); /* it came to the owner */
    tutti_error_set(&why, TUTTI_ERR_ABORTED, "enough");
    uint64_t start = tutti_now_ns();
    tutti_team_fail(rank->team, &why, true);
    RIG_CHECK(rank, tutti_now_ns() - start < 5 * TUTTI_NS_PER_S, "it was waited for");
    RIG_CHECK(rank, stubborn.stops == 2 && stubborn.looks > 1, "%u looks", stubborn.looks);
    RIG_CHECK(rank, tutti_work_finish(first) == TUTTI_ERR_ABORTED, "it is no failure");
    RIG_CHECK(rank, tutti_work_finish(second) == TUTTI_ERR_ABORTED, "it is no failure");
    RIG_CHECK(rank, stubborn.ends == 1 && willing.ends == 1, "taken back %u times", stubborn.ends);
}

static void run(void (*main)(struct rig_rank *rank))
{
    for (uint64_t spin_ns = 0; spin_ns <= 20000; spin_ns += 20000) {
        struct rig rig = {.n = 1, .main = main, .spin_ns = spin_ns};
        rig_run(&rig);
    }
}

#define TEST(name)                                                                                                     \
    static void test_##name(void **state)                                                                              \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        run(name);                                                                                                     \
    }
TEST(in_order)
TEST(seldom)
TEST(told)
TEST(broken)
TEST(stopped)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_order), cmocka_unit_test(test_seldom),  cmocka_unit_test(test_told),
        cmocka_unit_test(test_broken),   cmocka_unit_test(test_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
