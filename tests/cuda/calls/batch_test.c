/* SPDX-License-Identifier: BSD-3-Clause */
/* What the back end `cuda` makes of groups, without a device: which calls it fuses, alike on all ranks; and batches
 * carried out in plain C on ordinary memory, unit by unit in any order that kernels might take, where the calls of each
 * rank depend on one another in its own way. */

#include "test.h"

#include "cuda/support/group_calls.h"
#include "reference.h"

#include "backend/gpu/gpu_backend.h"
#include "device/cpu/reduce.h"

#include <string.h>

static uint64_t seed;
static uint64_t below(uint64_t n)
{
    uint64_t drawn = tutti_random64(&seed);
    return n > 0 ? drawn % n : 0;
}

static void make_site(uint32_t n, uint32_t me, struct gpu_site *site)
{
    *site = (struct gpu_site){.n = n, .me = me, .speed = gpu_speed_known("", n)};
    memset(site->has, true, sizeof site->has);
    assert_true(gpu_layout(n, GPU_SCRATCH_DEFAULT, 64, &site->layout, &site->bounce_bytes));
}

static struct tutti_backend_call call_of(enum tutti_kind kind, enum tutti_dtype dtype, enum tutti_op op, size_t count)
{
    const bool reduces = tutti_kind_info(kind)->reduces;
    struct tutti_backend_call call = {
        .bind = {.dtype = dtype, .count = count, .divisor = 1},
        .info = {.kind = kind, .dtype = dtype, .op = reduces ? (int32_t)op : -1, .root = -1, .count = count}};
    if (reduces && op == TUTTI_PREMUL_SUM) call.bind.scale = tutti_scale_find(dtype);
    return call;
}

/* ---- what is fused ---- */

static size_t run_of(const struct tutti_backend_call *calls, size_t n, const char *wanted)
{
    struct gpu_site site;
    struct gpu_run run;
    make_site(2, 0, &site);
    gpu_run_plan(&site, calls, n, wanted, &run);
    assert_true(run.n >= 1 && run.n <= n);
    return run.n;
}

static void alike_and_small(void **state)
{
    enum { N = 100 };
    struct tutti_backend_call calls[N];
    (void)state;
    for (size_t i = 0; i < N; i++) calls[i] = call_of(TUTTI_ALL_REDUCE, TUTTI_FLOAT32, TUTTI_SUM, 1 + i);
    assert_int_equal(run_of(calls, N, ""), GPU_SEGMENTS);
    assert_int_equal(run_of(calls, 1, ""), 1);
    assert_int_equal(run_of(calls, 2, ""), 2);
    assert_int_equal(run_of(calls, N, "tiles"), 1); /* the option says otherwise */
    for (size_t i = 0; i < N; i += 2) calls[i].bind.count = 0;
    assert_int_equal(run_of(calls, N, ""), N); /* nothing takes no segment */
}

static void what_differs(void **state)
{
    const struct tutti_backend_call first = call_of(TUTTI_REDUCE, TUTTI_FLOAT32, TUTTI_SUM, 50);
    struct tutti_backend_call others[7];
    (void)state;
    for (size_t i = 0; i < 7; i++) others[i] = first;
    others[0] = call_of(TUTTI_SCAN, TUTTI_FLOAT32, TUTTI_SUM, 50);
    others[1] = call_of(TUTTI_REDUCE, TUTTI_FLOAT16, TUTTI_SUM, 50);
    others[2] = call_of(TUTTI_REDUCE, TUTTI_FLOAT32, TUTTI_MAX, 50);
    others[3].info.root = 1;
    others[4].method = "tiles";
    others[5].bind.v = true;
    others[6].bind.count = (size_t)1 << 26;
    for (size_t i = 0; i < 7; i++) {
        const struct tutti_backend_call calls[] = {first, others[i], first};
        const struct tutti_backend_call after[] = {others[i], first};
        assert_int_equal(run_of(calls, 3, "batch"), 1);
        assert_int_equal(run_of(after, 2, "batch"), 1);
    }
    const struct tutti_backend_call same[] = {first, first, first};
    assert_int_equal(run_of(same, 3, "batch"), 3);
}

static double alone(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    double ns;
    assert_non_null(gpu_choose(site, call, "", &ns));
    return ns;
}

/* Never slower than one by one, as far as it is predicted, and no longer than the rings have room. */
static void no_slower(void **state)
{
    enum { N = 40 };
    (void)state;
    for (uint32_t i = 0; i < 2000; i++) {
        struct tutti_backend_call calls[N];
        struct gpu_site site;
        struct gpu_run run;
        double ns = 0;
        const enum tutti_kind kind = (enum tutti_kind)below(TUTTI_N_KINDS);
        if (kind == TUTTI_BARRIER) continue;
        make_site((uint32_t)(2 + below(15)), 0, &site);
        const uint64_t most = UINT64_C(1) << below(24);
        for (size_t k = 0; k < N; k++) calls[k] = call_of(kind, TUTTI_BFLOAT16, TUTTI_SUM, 1 + below(most));
        gpu_run_plan(&site, calls, N, "", &run);
        if (run.n == 1) continue;
        for (size_t k = 0; k < run.n; k++) ns += alone(&site, &calls[k]);
        assert_true(run.method->cost_ns(&site, &run.whole) <= ns);
        assert_true(run.method->fits(&site, &run.whole));
    }
}

/* ---- batches in plain C ---- */

enum { UNIT = 16, MOST_UNITS = 4096 };

struct unit {
    bool sent, done;
    unsigned char own[UNIT];
};
struct side { /* a rank's */
    struct gpu_site site;
    struct tutti_backend_call calls[64];
    unsigned char *memory;
    struct gpu_batch batch;
    size_t first, n; /* calls of the launch under way; n 0: all are over */
    struct unit units[MOST_UNITS];
};
static struct side sides[GROUP_RANKS];
static struct {
    bool full;
    unsigned char bytes[UNIT];
} slots[GROUP_RANKS][GROUP_RANKS][MOST_UNITS]; /* from, to */

/* Which segment a unit is of, by looking at all; false: none, it is beyond the end of one. */
static bool find(const struct gpu_batch *b, uint32_t unit, const struct gpu_segment **segment, size_t *at)
{
    for (uint32_t s = 0; s < GPU_SEGMENTS; s++) {
        if (unit < b->first[s] || unit >= b->first[s + 1]) continue;
        *segment = &b->segments[s];
        *at = (size_t)UNIT * (unit - b->first[s]);
        assert_int_equal(b->first[s] % GPU_SEGMENT_UNITS, 0);
        return *at < (*segment)->bytes;
    }
    return false;
}

static size_t length(const struct gpu_segment *segment, size_t at)
{
    return segment->bytes - at < UNIT ? segment->bytes - at : UNIT;
}

static void send_unit(uint32_t n, uint32_t me, uint32_t unit, const struct gpu_segment *segment, size_t at)
{
    struct side *side = &sides[me];
    const struct gpu_batch *b = &side->batch;
    for (uint32_t q = 0; q < n; q++) {
        if (!(b->sends >> q & 1)) continue;
        const char *from = segment->in + (b->sends_each ? q * segment->bytes : 0) + at;
        unsigned char *to = q == me ? side->units[unit].own : slots[me][q][unit].bytes;
        assert_false(q != me && slots[me][q][unit].full);
        memcpy(to, from, length(segment, at));
        if (side->calls[0].bind.scale) /* the launch has one factor */
            ref_scale(TUTTI_UINT32, to, length(segment, at) / 4, side->calls[side->first].bind.factor);
        slots[me][q][unit].full = true;
    }
    side->units[unit].sent = true;
}

static void receive_unit(uint32_t n, uint32_t me, uint32_t unit, const struct gpu_segment *segment, size_t at)
{
    struct side *side = &sides[me];
    const struct gpu_batch *b = &side->batch;
    const bool folds = tutti_kind_info(side->calls[0].info.kind)->reduces;
    unsigned char total[UNIT];
    bool any = false;
    for (uint32_t q = 0; q < n; q++) {
        if (!(b->receives >> q & 1)) continue;
        const unsigned char *from = q == me ? side->units[unit].own : slots[q][me][unit].bytes;
        if (!folds)
            memcpy(segment->out + (b->receives_each ? q * segment->bytes : 0) + at, from, length(segment, at));
        else if (any)
            ref_hop(TUTTI_UINT32, (enum tutti_op)side->calls[0].info.op, total, total, from, length(segment, at) / 4);
        else
            memcpy(total, from, UNIT);
        slots[q][me][unit].full = false;
        any = true;
    }
    if (any && folds) memcpy(segment->out + at, total, length(segment, at));
    side->units[unit].done = true;
}

/* What a thread with that unit does next. False: it waits, or is done. */
static bool step_unit(uint32_t n, uint32_t me, uint32_t unit)
{
    struct side *side = &sides[me];
    const struct gpu_segment *segment;
    size_t at;
    if (side->units[unit].done) return false;
    if (!find(&side->batch, unit, &segment, &at)) return side->units[unit].done = true;
    if (!side->units[unit].sent) {
        send_unit(n, me, unit, segment, at);
        return true;
    }
    for (uint32_t q = 0; q < n; q++)
        if (q != me && (side->batch.receives >> q & 1) && !slots[q][me][unit].full) return false;
    receive_unit(n, me, unit, segment, at);
    return true;
}

static uint32_t units_of(const struct tutti_backend_call *call)
{
    const uint32_t bytes = (uint32_t)call->bind.count * 4, each = UNIT * GPU_SEGMENT_UNITS;
    return (bytes + each - 1) / each * GPU_SEGMENT_UNITS;
}

/* The next launch of a rank in a run of so many calls. */
static void launch(uint32_t me, size_t n_calls)
{
    struct side *side = &sides[me];
    side->first += side->n;
    side->n =
        side->first < n_calls ? gpu_run_independent(&side->site, &side->calls[side->first], n_calls - side->first) : 0;
    side->batch.begin = side->batch.end;
    for (size_t i = 0; i < side->n; i++) side->batch.end += units_of(&side->calls[side->first + i]);
}

/* One unit's step of a launch, or the next launch. False: the rank waits for others. */
static bool step_rank(uint32_t n, uint32_t me, size_t n_calls)
{
    struct side *side = &sides[me];
    const uint32_t units = side->batch.end - side->batch.begin, at = units ? (uint32_t)below(units) : 0;
    bool over = true;
    if (side->n == 0) return false;
    for (uint32_t k = 0; k < units; k++) {
        const uint32_t unit = side->batch.begin + (at + k) % units;
        if (step_unit(n, me, unit)) return true;
        over &= side->units[unit].done;
    }
    if (over) launch(me, n_calls);
    return over;
}

static void run_batch(uint32_t n, size_t n_calls)
{
    memset(slots, 0, sizeof slots);
    for (uint32_t r = 0; r < n; r++) {
        struct side *side = &sides[r];
        memset(side->units, 0, sizeof side->units);
        gpu_run_fill(&side->site, side->calls, n_calls, &side->batch);
        assert_true(side->batch.first[GPU_SEGMENTS] <= MOST_UNITS);
        side->batch.begin = side->batch.end = 0;
        side->first = side->n = 0;
        launch(r, n_calls);
    }
    for (;;) {
        const uint32_t first = (uint32_t)below(n);
        uint32_t r = 0, left = 0;
        while (r < n && !step_rank(n, (first + r) % n, n_calls)) left += sides[(first + r++) % n].n > 0;
        if (r < n) continue;
        if (left) fail_msg("%u of %u ranks wait for one another", left, n);
        break;
    }
    for (uint32_t r = 0; r < n; r++) assert_int_equal(sides[r].batch.end, sides[r].batch.first[GPU_SEGMENTS]);
}

/* The calls of the plan from one on, as rank r sees them. */
static void bind_calls(const struct group_plan *plan, size_t from, uint32_t r)
{
    for (size_t i = from; i < plan->n; i++)
        group_call_bind(&plan->calls[i], plan, r, sides[r].memory, &sides[r].calls[i - from]);
}

/* One plan, run by run: what is planned as several calls is a batch, whatever else is applied as it is meant. */
static size_t try_plan(struct group_plan *plan)
{
    const uint32_t n = plan->shape.ranks;
    size_t n_fused = 0;
    for (uint32_t r = 0; r < n; r++) make_site(n, r, &sides[r].site), sides[r].memory = plan->memory[r];
    for (size_t at = 0, most; at < plan->n; at += most) {
        struct gpu_run run;
        most = plan->n - at;
        for (uint32_t r = 0; r < n; r++) {
            bind_calls(plan, at, r);
            gpu_run_plan(&sides[r].site, sides[r].calls, plan->n - at, "batch", &run);
            if (r > 0) assert_int_equal(run.n, most);
            most = run.n;
        }
        if (most > 1) {
            run_batch(n, most);
            n_fused += most;
            continue;
        }
        struct group_plan one = *plan;
        one.calls = &plan->calls[at], one.n = 1;
        group_plan_apply(&one);
    }
    return n_fused;
}

static void any_dependence(void **state)
{
    size_t n_fused = 0;
    (void)state;
    for (uint32_t i = 0; i < 300; i++) {
        const struct group_shape shape = {
            .ranks = 2 + i % (GROUP_RANKS - 1), .most_calls = 24, .most_bytes = i % 3 ? 256 : 1100, .depends = true};
        const uint64_t of_plan = tutti_random64(&seed);
        struct group_plan plan, want;
        char what[256];
        assert_true(group_plan_draw(&plan, &shape, of_plan) && group_plan_draw(&want, &shape, of_plan));
        group_plan_fill(&plan, of_plan);
        group_plan_fill(&want, of_plan);
        group_plan_apply(&want);
        n_fused += try_plan(&plan);
        for (uint32_t r = 0; r < shape.ranks; r++)
            if (group_plan_differs(&want, r, plan.memory[r], what, sizeof what))
                fail_msg("plan %llu of %u ranks, rank %u: %s", (unsigned long long)of_plan, shape.ranks, r, what);
        group_plan_free(&plan);
        group_plan_free(&want);
    }
    assert_true(n_fused > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(alike_and_small), cmocka_unit_test(what_differs),
                                       cmocka_unit_test(no_slower), cmocka_unit_test(any_dependence)};
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
