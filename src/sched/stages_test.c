/* SPDX-License-Identifier: BSD-3-Clause */
/* Stages of random worlds, which are free of deadlock since all ranks have their steps in one global order: both ends
 * of a message are in one stage, messages of a pair stay in order, no act comes before what it waits for, by hazard or
 * by the window; a world whose ranks wait for one another is refused. */

#include "sched/sched.h"

#include "test.h"

enum { RANKS = 5, CHUNKS = 6, MOST = 400 };

struct event { /* from == to: a copy */
    uint32_t from, to, src, dst, n;
    bool reduces;
};
static struct event events[MOST];
static uint32_t n_events;
static bool crossed; /* receives first, on both of two ranks */

static uint32_t chunks(const struct tutti_shape *shape)
{
    (void)shape;
    return CHUNKS;
}

static uint32_t one(const struct tutti_shape *shape)
{
    (void)shape;
    return 1;
}

static void emit_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    const uint32_t me = shape->slot;
    (void)round;
    if (crossed && me < 2) tutti_emit_recv(emit, 1 - me, TUTTI_DATA, 0, 1);
    if (crossed && me < 2) tutti_emit_send(emit, 1 - me, TUTTI_DATA, 0, 1);
    for (uint32_t i = 0; i < n_events; i++) {
        const struct event *e = &events[i];
        if (e->from == me && e->to == me)
            tutti_emit_copy(emit, TUTTI_DATA, e->dst, TUTTI_DATA, e->src, e->n);
        else if (e->from == me)
            tutti_emit_send(emit, e->to, TUTTI_DATA, e->src, e->n);
        else if (e->to == me && e->reduces)
            tutti_emit_recv_reduce(emit, e->from, TUTTI_DATA, e->dst, e->n, TUTTI_RIGHT);
        else if (e->to == me)
            tutti_emit_recv(emit, e->from, TUTTI_DATA, e->dst, e->n);
    }
}

static const struct tutti_schedule_ops ops = {.chunks = chunks, .rounds = one, .round = emit_round};
static const struct tutti_algorithm algorithm = {.name = "random", .kinds = {[TUTTI_ALL_REDUCE] = &ops}};

static void random_world(uint64_t *random, uint32_t n)
{
    for (n_events = 0; n_events < n;) {
        struct event e = {.from = (uint32_t)(tutti_random64(random) % RANKS),
                          .to = (uint32_t)(tutti_random64(random) % RANKS),
                          .src = (uint32_t)(tutti_random64(random) % CHUNKS),
                          .dst = (uint32_t)(tutti_random64(random) % CHUNKS),
                          .reduces = tutti_random64(random) % 2};
        e.n = 1 + (uint32_t)(tutti_random64(random) % (CHUNKS - (e.src > e.dst ? e.src : e.dst)));
        if (e.from == e.to && e.src < e.dst + e.n && e.dst < e.src + e.n) continue;
        events[n_events++] = e;
    }
}

static void seal_all(struct tutti_schedule **out)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        const struct tutti_shape shape = {.size = RANKS, .slot = r};
        assert_int_equal(tutti_schedule_seal(&algorithm, TUTTI_ALL_REDUCE, &shape, true, &out[r]), TUTTI_OK);
        assert_null(out[r]->defect);
    }
}

/* Places of a step's acts in the order; of its message the stage, and of its end. */
struct placed {
    uint32_t begins, ends, meets;
};

static void place(const struct tutti_schedule *s, const struct tutti_stages *stages, struct placed *out)
{
    for (uint32_t i = 0; i < s->n_steps; i++) out[i] = (struct placed){UINT32_MAX, UINT32_MAX, UINT32_MAX};
    for (uint32_t k = 0; k < stages->n; k++) {
        const struct tutti_stage_act *act = &stages->acts[k];
        if (act->act != TUTTI_ACT_HERE) out[act->step].meets = act->stage;
        /* What comes aside touches nothing of the schedule's before it is taken. */
        if (act->act == TUTTI_ACT_MESSAGE || act->act == TUTTI_ACT_HERE) out[act->step].begins = k;
        out[act->step].ends = k;
        if (k > 0)
            assert_true(act[-1].stage < act->stage || act[-1].act != TUTTI_ACT_HERE || act->act == TUTTI_ACT_HERE);
        if (k > 0) assert_true(act[-1].stage <= act->stage);
    }
}

static void check_hazards(const struct tutti_schedule *s, const struct tutti_stages *stages, const struct placed *at)
{
    for (uint32_t i = 0; i < s->n_steps; i++) {
        assert_true(at[i].begins != UINT32_MAX);
        for (uint32_t d = 0; d < i; d++) {
            if (i - d < TUTTI_WINDOW && !(s->steps[i].wait >> (i - d - 1) & 1)) continue;
            assert_true(at[d].ends < at[i].begins);
            /* A message is under way with all others of its stage. */
            const struct tutti_stage_act *first = &stages->acts[at[i].begins], *last = &stages->acts[at[d].ends];
            assert_true(first->act == TUTTI_ACT_HERE || last->stage < first->stage);
        }
    }
}

static void check_messages(struct tutti_schedule *const *all, struct placed at[RANKS][2 * MOST])
{
    for (uint32_t r = 0; r < RANKS; r++)
        for (uint32_t i = 0; i < all[r]->n_steps; i++) {
            const struct tutti_step *recv = &all[r]->steps[i];
            if (!tutti_step_receives(recv)) continue;
            const struct tutti_schedule *from = all[recv->peer];
            for (uint32_t k = 0; k < from->n_steps; k++) {
                const struct tutti_step *send = &from->steps[k];
                if (!tutti_step_sends(send) || send->peer != r) continue;
                if (send->fifo == recv->fifo) assert_int_equal(at[recv->peer][k].meets, at[r][i].meets);
                if (send->fifo < recv->fifo) assert_true(at[recv->peer][k].meets <= at[r][i].meets);
            }
        }
}

static void test_random(void **state)
{
    (void)state;
    static struct placed at[RANKS][2 * MOST];
    uint64_t random = test_seed() + 5;
    for (int round = 0; round < 60; round++) {
        struct tutti_schedule *all[RANKS];
        random_world(&random, (uint32_t)(tutti_random64(&random) % MOST));
        seal_all(all);
        for (uint32_t r = 0; r < RANKS; r++) {
            struct tutti_stages stages;
            assert_int_equal(tutti_stages_make((const struct tutti_schedule *const *)all, RANKS, r, &stages), TUTTI_OK);
            place(all[r], &stages, at[r]);
            check_hazards(all[r], &stages, at[r]);
            tutti_stages_fini(&stages);
        }
        check_messages(all, at);
        for (uint32_t r = 0; r < RANKS; r++) tutti_schedule_destroy(all[r]);
    }
}

static void test_crossed(void **state)
{
    (void)state;
    struct tutti_schedule *all[RANKS];
    struct tutti_stages stages;
    n_events = 0, crossed = true;
    seal_all(all);
    assert_int_equal(tutti_stages_make((const struct tutti_schedule *const *)all, RANKS, 2, &stages),
                     TUTTI_ERR_INTERNAL);
    assert_null(stages.acts);
    for (uint32_t r = 0; r < RANKS; r++) tutti_schedule_destroy(all[r]);
    crossed = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_crossed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
