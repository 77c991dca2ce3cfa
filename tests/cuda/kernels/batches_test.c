/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels of batches: every kind, type and operation, grids of all shapes, each rank's side in one launch or in pieces
 * of its own, calls in a row without a pause, and counts that wrap. */
#include "cuda/support/group_calls.h"
#include "cuda/support/rig.h"
#include "reference.h"

#include "backend/gpu/gpu_backend.h"

#include <stdio.h>
#include <string.h>

enum { BLOCKS = 4, BLOCK_BYTES = 8192, SLOT_BYTES = 2 * BLOCK_BYTES, UNIT = 16, MOST_CALLS = 20, ROW = 8 };
static uint64_t seed;

static uint64_t below(uint64_t n)
{
    return tutti_random64(&seed) % n;
}

static void open_rig(struct rig *rig, uint32_t n)
{
    rig_open(rig, &(struct rig_shape){.n = n,
                                      .n_blocks = BLOCKS,
                                      .line_bytes = BLOCK_BYTES,
                                      .sentinel_bytes = SLOT_BYTES,
                                      .tile_bytes = GPU_LEAST_TILE,
                                      .n_tiles = 2,
                                      .n_devices = rig_devices()});
}

/* ---- one batch ---- */

struct trial {
    struct group_plan plan;
    uint64_t of_plan;
    const char *protocol;
    char reducer[32];
    uint32_t threads, units, blocks;
    unsigned char *device[GROUP_RANKS];
    struct tutti_backend_call calls[GROUP_RANKS][MOST_CALLS];
    struct gpu_batch batch[GROUP_RANKS];
};

static bool reduces(const struct trial *t)
{
    return tutti_kind_info(t->plan.calls[0].kind)->reduces;
}

static void draw_kernel(struct trial *t)
{
    const struct group_call *c = &t->plan.calls[0];
    const bool sums = c->op == TUTTI_SUM || c->op == TUTTI_AVG || c->op == TUTTI_PREMUL_SUM;
    const bool fast =
        sums && (c->dtype == TUTTI_FLOAT32 || c->dtype == TUTTI_FLOAT16 || c->dtype == TUTTI_BFLOAT16) && below(4);
    const bool sentinels = !reduces(t) || c->dtype >= TUTTI_FLOAT8_E4M3FN;
    t->protocol = sentinels && below(3) ? "batch_sentinel" : "batch_lines";
    snprintf(t->reducer, sizeof t->reducer, "%s%s", reduces(t) ? tutti_dtype_name(c->dtype) : "move",
             reduces(t) && fast ? "_sum" : "");
}

/* Any grid that has room for the units. */
static void draw_grid(struct trial *t, uint32_t units)
{
    const uint32_t room = strcmp(t->protocol, "batch_sentinel") == 0 ? SLOT_BYTES : BLOCK_BYTES;
    do {
        t->threads = 32u << below(4);
        t->units = 1u << below(4);
        t->blocks = (units + t->threads * t->units - 1) / (t->threads * t->units);
    } while (t->threads * t->units * UNIT > room || t->blocks > BLOCKS);
}

static void open_trial(struct trial *t, const struct rig *rig)
{
    const struct group_shape shape = {.ranks = rig->n, .most_calls = MOST_CALLS, .most_bytes = 1500, .alike = true};
    t->of_plan = tutti_random64(&seed);
    assert_true(group_plan_draw(&t->plan, &shape, t->of_plan));
    group_plan_fill(&t->plan, t->of_plan);
    for (uint32_t r = 0; r < rig->n; r++) {
        const struct gpu_site site = {.n = rig->n, .me = r};
        struct gpu_batch *b = &t->batch[r];
        t->device[r] = rig_alloc(rig, r, t->plan.bytes);
        rig_copy(rig, r, t->device[r], t->plan.memory[r], t->plan.bytes);
        for (size_t i = 0; i < t->plan.n; i++)
            group_call_bind(&t->plan.calls[i], &t->plan, r, t->device[r], &t->calls[r][i]);
        gpu_run_fill(&site, t->calls[r], t->plan.n, b);
        b->call = rig_call(rig, r);
        b->call.op = t->plan.calls[0].op;
        b->call.divisor = t->calls[r][0].bind.divide ? t->calls[r][0].bind.divisor : 0;
        b->call.scales = t->calls[r][0].bind.scale != NULL;
    }
    draw_kernel(t);
    draw_grid(t, t->batch[0].first[GPU_SEGMENTS]);
    for (uint32_t r = 0; r < rig->n; r++) t->batch[r].units = t->units;
    group_plan_apply(&t->plan);
}

/* Where the call's segment ends. */
static uint32_t end_of(const struct trial *t, size_t i)
{
    size_t segments = 0;
    for (size_t k = 0; k <= i; k++) segments += t->plan.calls[k].count > 0;
    return t->batch[0].first[segments];
}

/* In one launch, or in pieces at any places; in any case where factors change. */
static void launch_trial(struct trial *t, const struct rig *rig, uint32_t r)
{
    struct gpu_batch *b = &t->batch[r];
    void *kernel = rig_kernel(rig, r, t->protocol, t->reducer);
    const uint64_t cuts = below(2) ? 0 : 4;
    if (t->blocks == 0) return;
    b->end = 0;
    for (size_t i = 0, first = 0; i < t->plan.n; i++) {
        const bool last = i + 1 == t->plan.n;
        const bool factor = !last && t->plan.calls[i + 1].factor != t->plan.calls[i].factor;
        if (!last && !(b->call.scales && factor) && !(cuts && below(cuts) == 0)) continue;
        b->begin = b->end, b->end = end_of(t, i);
        memcpy(b->call.factor, t->calls[r][first].factor, sizeof b->call.factor);
        first = i + 1;
        if (b->begin < b->end) rig_launch(rig, r, kernel, t->blocks, t->threads, b);
    }
}

static void close_trial(struct trial *t, const struct rig *rig)
{
    unsigned char *got = malloc(t->plan.bytes);
    char what[256];
    assert_non_null(got);
    for (uint32_t r = 0; r < rig->n; r++) {
        rig_copy(rig, r, got, t->device[r], t->plan.bytes);
        if (group_plan_differs(&t->plan, r, got, what, sizeof what))
            fail_msg("%s_%s, %u ranks, %u x %u x %u, plan %llu, rank %u: %s", t->protocol, t->reducer, rig->n,
                     t->blocks, t->threads, t->units, (unsigned long long)t->of_plan, r, what);
        rig_free(rig, r, t->device[r]);
    }
    free(got);
    group_plan_free(&t->plan);
}

/* Nobody waits between the batches of a row, and some ranks are far ahead. */
static void run_row(struct rig *rig, struct trial *row)
{
    const uint32_t order = (uint32_t)below(2), first = (uint32_t)below(rig->n);
    for (int k = 0; k < ROW; k++) open_trial(&row[k], rig);
    for (uint32_t i = 0; i < rig->n * ROW; i++) {
        const uint32_t r = order ? i / ROW : i % rig->n, k = order ? i % ROW : i / rig->n;
        launch_trial(&row[k], rig, (r + first) % rig->n);
    }
    rig_sync(rig);
    for (int k = 0; k < ROW; k++) close_trial(&row[k], rig);
}

/* ---- the tests ---- */

static void test_any_batches(void **state)
{
    (void)state;
    struct trial *row = malloc(ROW * sizeof *row);
    assert_non_null(row);
    for (uint32_t n = 2; n <= GROUP_RANKS; n += n < 5 ? 1 : 3) {
        struct rig rig;
        open_rig(&rig, n);
        for (int k = 0; k < (int)rig_times(200, 25, 8); k++) run_row(&rig, row);
        rig_close_clean(&rig);
    }
    free(row);
}

/* All blocks take part in the last calls of an age, so that nothing of it is left. */
static void last_calls(struct rig *rig, struct trial *t)
{
    for (int k = 0; k < 2; k++) {
        do {
            open_trial(t, rig);
            if (t->blocks == BLOCKS) break;
            for (uint32_t r = 0; r < rig->n; r++) rig_free(rig, r, t->device[r]);
            group_plan_free(&t->plan);
        } while (true);
        for (uint32_t r = 0; r < rig->n; r++) launch_trial(t, rig, r);
        rig_sync(rig);
        close_trial(t, rig);
    }
}

static void test_counts_wrap(void **state)
{
    (void)state;
    static const uint32_t starts[] = {UINT32_C(0x7ffffffe), UINT32_C(0xfffffffe)};
    struct trial *row = malloc(ROW * sizeof *row);
    assert_non_null(row);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(starts); i++) {
        for (uint32_t n = 2; n <= 4; n++) {
            struct rig rig;
            open_rig(&rig, n);
            rig_set_counts(&rig, starts[i]);
            rig_plant_lines(&rig, 0, 1, &seed);
            rig_plant_lines(&rig, 1, 2, &seed);
            last_calls(&rig, row);
            run_row(&rig, row);
            rig_close_clean(&rig);
        }
    }
    free(row);
}

int main(void)
{
    seed = rig_begin();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_batches), cmocka_unit_test(test_counts_wrap)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
