/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ENGINE_FLIGHT_RUNNER_FAKE_TEST_H
#define TUTTI_ENGINE_FLIGHT_RUNNER_FAKE_TEST_H

/* The smallest back end, for tests: every rank posts a number, and waits for those of all others, whose sum is the
 * result. Ranks are threads, or processes that share the lane. It notes whatever the engine must not do. */

#include "engine/pass/rig_test.h"

#define FAKE_RANKS 8
#define FAKE_CALLS 512

struct fake_post {
    _Atomic uint64_t value; /* 1 more than it, 0: not posted; written last */
    uint64_t call, count;
};
struct fake_rank {
    struct fake_post posts[FAKE_CALLS];
    _Atomic uint32_t n_made, n_over, n_cancelled, n_wrong;
    _Atomic uint64_t seq, completed; /* what it carries out past the engine; for the overlay */
};
struct fake_lane { /* zeroed */
    _Atomic uint32_t event, sleepers;
    struct fake_rank ranks[FAKE_RANKS];
};
struct fake {
    struct tutti_runner runner; /* first */
    struct fake_lane *lane;
    uint32_t me, n, at, number;
    uint64_t call, count, value, sum;
    uint64_t *out;
    bool posted, fails;
    _Atomic uint32_t *before; /* must not be 0 when it begins */
};

static inline enum tutti_advance fake_advance(struct tutti_runner *runner)
{
    struct fake *f = (struct fake *)runner;
    struct fake_rank *me = &f->lane->ranks[f->me];
    bool moved = !f->posted;

    /* The oldest first, and what must be over before it is. */
    me->n_wrong += me->n_over != f->number || (f->before && atomic_load(f->before) == 0);
    if (f->fails) return tutti_fail(TUTTI_ERR_SYSTEM, "the lane is on fire"), TUTTI_RUN_FAILED;
    if (!f->posted) {
        struct fake_post *post = &me->posts[f->number];
        post->call = f->call, post->count = f->count;
        atomic_store(&post->value, f->value + 1);
        f->posted = true;
        if (atomic_load(&f->lane->sleepers) > 0) {
            atomic_fetch_add(&f->lane->event, 1);
            tutti_futex_wake(&f->lane->event, UINT32_MAX);
        }
    }
    for (; f->at < f->n; f->at++, moved = true) {
        const struct fake_post *post = &f->lane->ranks[f->at].posts[f->number];
        uint64_t value = atomic_load(&post->value);
        if (value == 0) return moved ? TUTTI_RUN_MOVED : TUTTI_RUN_BLOCKED;
        if (post->call != f->call || post->count != f->count) return TUTTI_RUN_MISMATCH;
        f->sum += value - 1;
    }
    if (f->out) *f->out = f->sum;
    atomic_fetch_add(&me->n_over, 1);
    return TUTTI_RUN_DONE;
}

static inline uint32_t fake_awaits(const struct tutti_runner *runner)
{
    return ((const struct fake *)runner)->at;
}

static inline void fake_called(const struct tutti_runner *runner, uint64_t *call, uint64_t *count)
{
    const struct fake *f = (const struct fake *)runner;
    const struct fake_post *post = &f->lane->ranks[f->at].posts[f->number];
    *call = post->call, *count = post->count;
}

static inline bool fake_sleep_begin(struct tutti_runner *runner, _Atomic uint32_t **word, uint32_t *expected)
{
    struct fake *f = (struct fake *)runner;

    atomic_fetch_add(&f->lane->sleepers, 1);
    *word = &f->lane->event, *expected = atomic_load(&f->lane->event);
    return f->posted && f->at < f->n && atomic_load(&f->lane->ranks[f->at].posts[f->number].value) == 0;
}

static inline void fake_sleep_end(struct tutti_runner *runner)
{
    atomic_fetch_sub(&((struct fake *)runner)->lane->sleepers, 1);
}

static inline void fake_cancel(struct tutti_runner *runner)
{
    struct fake *f = (struct fake *)runner;
    struct fake_rank *me = &f->lane->ranks[f->me];

    me->n_wrong += me->n_over != f->number; /* in the order of the calls, too */
    atomic_fetch_add(&me->n_over, 1);
    atomic_fetch_add(&me->n_cancelled, 1);
}

static const struct tutti_runner_ops fake_ops = {fake_advance,     fake_awaits,    fake_called,
                                                 fake_sleep_begin, fake_sleep_end, fake_cancel};

static inline struct tutti_call_info fake_info(enum tutti_kind kind, uint64_t count, uint64_t timeout_ns)
{
    bool reduces = tutti_kind_info(kind)->reduces;
    struct tutti_call_info info = {.kind = kind,
                                   .dtype = TUTTI_UINT64,
                                   .op = reduces ? TUTTI_SUM : -1,
                                   .root = tutti_kind_info(kind)->rooted ? 0 : -1,
                                   .count = count,
                                   .timeout_ns = timeout_ns,
                                   .label = "lane"};
    uint64_t facts[] = {kind, count};
    info.signature = tutti_hash64(facts, sizeof(facts), 3);
    return info;
}

static inline struct fake fake_make(const struct rig_rank *rank, struct fake_lane *lane,
                                    const struct tutti_call_info *info, uint64_t value, uint64_t *out)
{
    struct tutti_board board = {.kind = (uint8_t)info->kind,
                                .dtype = (uint8_t)info->dtype,
                                .op = info->op < 0 ? 255 : (uint8_t)info->op,
                                .root = info->root};
    return (struct fake){.runner = {&fake_ops},
                         .lane = lane,
                         .me = rank->me,
                         .n = rank->n,
                         .number = lane->ranks[rank->me].n_made++,
                         .call = tutti_call_pack(&board),
                         .count = info->count,
                         .value = value,
                         .out = out};
}

static inline enum tutti_status fake_start(struct rig_rank *rank, struct fake_lane *lane, uint64_t value, uint64_t *out,
                                           bool helper, struct tutti_work **work)
{
    struct tutti_call_info info = fake_info(TUTTI_ALL_REDUCE, 1, 0);
    struct fake fake = fake_make(rank, lane, &info, value, out);
    return tutti_engine_run(rank->team, &fake.runner, sizeof(fake), &info, helper, work);
}

/* Blocking. */
static inline enum tutti_status fake_call(struct rig_rank *rank, struct fake_lane *lane, enum tutti_kind kind,
                                          uint64_t count, uint64_t timeout_ns)
{
    struct tutti_call_info info = fake_info(kind, count, timeout_ns);
    struct fake fake = fake_make(rank, lane, &info, 1, NULL);
    struct tutti_work *work;

    TUTTI_TRY(tutti_engine_run(rank->team, &fake.runner, sizeof(fake), &info, false, &work));
    return tutti_work_finish(work);
}

/* After a run: nothing that must not be was seen, and every call ended. */
static inline void fake_check(const struct fake_lane *lane, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(lane->ranks[i].n_wrong, 0);
        assert_int_equal(lane->ranks[i].n_over, lane->ranks[i].n_made);
    }
    assert_int_equal(lane->sleepers, 0);
}

#endif
