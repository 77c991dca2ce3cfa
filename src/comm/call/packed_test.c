/* SPDX-License-Identifier: BSD-3-Clause */
/* Quantised calls against sums in float64: every element within the bound that docs/quantized.md derives, the same bits
 * on all ranks, no bias over seeds, and what NaN, infinities, zeroes and tiny numbers become. */
#include "ranks.h"
#include "reference.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>

#define RANKS_MOST 8

/* A call as the test sees it: every rank knows the inputs of all. */
struct quantised {
    enum tutti_wire wire;
    enum tutti_dtype dtype;
    enum tutti_op op;
    bool all, v, in_place;
    size_t count; /* all_reduce: elements; else of a block */
    uint32_t block;
    uint64_t seed;
    double spread; /* the range of magnitudes, as a power of two */
};

static const enum tutti_wire wires[] = {TUTTI_WIRE_BFLOAT16, TUTTI_WIRE_FLOAT8_E4M3, TUTTI_WIRE_FLOAT8_E5M2,
                                        TUTTI_WIRE_INT8};
static const enum tutti_dtype dtypes[] = {TUTTI_FLOAT32, TUTTI_FLOAT16, TUTTI_BFLOAT16, TUTTI_FLOAT64};
#define LEN(array) (sizeof(array) / sizeof((array)[0]))

/* ---- inputs ---- */

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33, x *= UINT64_C(0xff51afd7ed558ccd), x ^= x >> 33, x *= UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ x >> 33;
}

static double element_of(const struct quantised *q, uint64_t seed, int32_t rank, size_t i)
{
    const uint64_t bits = mix(seed * 1000003 + (uint64_t)rank * 7919 + i * 104729 + 1);
    const double value = (double)(int64_t)(bits >> 11) * 0x1p-52 - 1, power = (double)(bits & 0xff) / 255 * q->spread;
    return value * exp2(-power);
}

static void fill(const struct quantised *q, uint64_t seed, int32_t rank, size_t n, unsigned char *out)
{
    for (size_t i = 0; i < n; i++) ref_encode(q->dtype, element_of(q, seed, rank, i), out + i * ref_bytes(q->dtype));
}

/* ---- the bound ---- */

/* How far one element may be from its code, in a group of so large a magnitude. Twice that when it is rounded by
 * chance. */
static double code_error(const struct quantised *q, double x, double most)
{
    double error = 0;
    if (most < 0x1p-100 && q->wire != TUTTI_WIRE_BFLOAT16) return most;
    if (q->wire == TUTTI_WIRE_BFLOAT16) error = fmax(fabs(x) * 0x1p-8, 0x1p-134);
    if (q->wire == TUTTI_WIRE_FLOAT8_E4M3) error = fmax(fabs(x) * 0x1p-4, most / 448 * 0x1p-10);
    if (q->wire == TUTTI_WIRE_FLOAT8_E5M2) error = fmax(fabs(x) * 0x1p-3, most / 57344 * 0x1p-17);
    if (q->wire == TUTTI_WIRE_INT8) error = most / 127 / 2;
    return (q->seed ? 2 : 1) * error * (1 + 0x1p-14) + most * 0x1p-22;
}

/* A group of the part that belongs to `owner`: exact sums, and how far results may be from them. */
static void group_bound(const struct quantised *q, int32_t ranks, int32_t owner, const double *const *inputs,
                        size_t from, size_t n, double *exact, double *bound)
{
    double most_sum = 0;
    for (size_t i = 0; i < n; i++) exact[i] = bound[i] = 0;
    for (int32_t r = 0; r < ranks; r++) {
        double most = 0;
        for (size_t i = 0; i < n; i++) most = fmax(most, fabs(inputs[r][from + i]));
        for (size_t i = 0; i < n; i++) {
            const double x = inputs[r][from + i];
            exact[i] += x;
            bound[i] += fabs(x) * ranks * 0x1p-23;
            if (r != owner) bound[i] += code_error(q, x, most);
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (q->op == TUTTI_AVG) exact[i] /= ranks, bound[i] /= ranks;
        most_sum = fmax(most_sum, fabs(exact[i]) + bound[i]);
    }
    for (size_t i = 0; i < n; i++) {
        const double last = q->dtype == TUTTI_FLOAT16 ? 0x1p-11 : q->dtype == TUTTI_BFLOAT16 ? 0x1p-8 : 0x1p-23;
        if (q->all) bound[i] += code_error(q, fabs(exact[i]) + bound[i], most_sum);
        bound[i] += (fabs(exact[i]) + bound[i]) * last + 0x1p-24 * (q->dtype == TUTTI_FLOAT16);
    }
}

/* ---- one call ---- */

/* Elements of the r-th part, and where it begins: as the documentation says. */
static size_t part_of(const struct quantised *q, int32_t ranks, int32_t r, size_t *first)
{
    size_t part = q->count;
    if (q->v) {
        *first = 0;
        for (int32_t i = 0; i < r; i++) *first += (q->count * (size_t)(i + 1)) % 777;
        return (q->count * (size_t)(r + 1)) % 777;
    }
    if (q->all) part = ((q->count + (size_t)ranks - 1) / (size_t)ranks + 31) / 32 * 32;
    *first = part * (size_t)r;
    if (!q->all) return part;
    return *first >= q->count ? 0 : q->count - *first < part ? q->count - *first : part;
}

static size_t elements_of(const struct quantised *q, int32_t ranks)
{
    size_t first, n = part_of(q, ranks, ranks - 1, &first);
    return q->all ? q->count : first + n;
}

static void check_part(struct rank *rank, const struct quantised *q, const double *const *inputs, int32_t owner,
                       const unsigned char *got)
{
    const uint32_t block = q->block ? q->block : 256;
    double exact[1024], bound[1024];
    size_t first, n = part_of(q, rank->n, owner, &first);
    for (size_t at = 0; at < n; at += block) {
        const size_t some = n - at < block ? n - at : block;
        group_bound(q, rank->n, owner, inputs, first + at, some, exact, bound);
        for (size_t i = 0; i < some; i++) {
            const double value = ref_decode(q->dtype, got + (at + i) * ref_bytes(q->dtype));
            if (fabs(value - exact[i]) <= bound[i]) continue;
            rank_fail(rank, __FILE__, __LINE__,
                      "%s of %s, %s, %zu elements, block %u, seed %llu: element %zu of part %d is %g, not %g +- %g",
                      q->all ? "all_reduce"
                      : q->v ? "reduce_scatter_v"
                             : "reduce_scatter",
                      tutti_dtype_name(q->dtype), tutti_wire_name(q->wire), q->count, block,
                      (unsigned long long)q->seed, at + i, (int)owner, value, exact[i], bound[i]);
            return;
        }
    }
}

static struct tutti_call_options options_of(const struct quantised *q)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.wire = q->wire;
    options.wire_block = q->block;
    options.wire_seed = q->seed;
    return options;
}

static enum tutti_status start(struct rank *rank, const struct quantised *q, const void *send, void *recv,
                               struct tutti_work **work)
{
    const struct tutti_call_options options = options_of(q);
    size_t counts[RANKS_MOST], first;
    for (int32_t r = 0; r < rank->n; r++) counts[r] = part_of(q, rank->n, r, &first);
    if (q->all) return tutti_all_reduce(send, recv, q->count, q->dtype, q->op, rank->comm, &options, work);
    if (q->v) return tutti_reduce_scatter_v(send, recv, counts, q->dtype, q->op, rank->comm, &options, work);
    return tutti_reduce_scatter(send, recv, q->count, q->dtype, q->op, rank->comm, &options, work);
}

/* What a call under way has. */
struct running {
    struct quantised q;
    unsigned char *send, *recv;
    double *inputs[RANKS_MOST];
};

static void prepare(struct rank *rank, const struct quantised *q, uint64_t seed, struct running *out)
{
    const size_t n = elements_of(q, rank->n), element = ref_bytes(q->dtype);
    size_t first;
    out->q = *q;
    out->send = rank_alloc(rank, n * element + 1);
    for (int32_t r = 0; r < rank->n; r++) {
        out->inputs[r] = rank_alloc(rank, (n + 1) * sizeof(double));
        fill(q, seed, r, n, out->send);
        for (size_t i = 0; i < n; i++) out->inputs[r][i] = ref_decode(q->dtype, out->send + i * element);
    }
    fill(q, seed, rank->index, n, out->send);
    part_of(q, rank->n, rank->index, &first);
    out->recv = q->in_place ? out->send + (q->all ? 0 : first * element) : rank_alloc(rank, n * element + 1);
}

/* The bytes of all ranks are one another's. */
static void check_alike(struct rank *rank, const void *bytes, size_t n)
{
    unsigned char *all = rank_alloc(rank, n * (size_t)rank->n + 1);
    RANK_CHECK_OK(rank, tutti_all_gather(bytes, all, n, TUTTI_UINT8, rank->comm, NULL, NULL));
    for (int32_t r = 0; r < rank->n; r++)
        if (n) RANK_CHECK(rank, memcmp(all + (size_t)r * n, bytes, n) == 0);
}

static void check(struct rank *rank, struct running *run)
{
    const struct quantised *q = &run->q;
    const double *const *inputs = (const double *const *)run->inputs;
    size_t first;
    if (!q->all) {
        check_part(rank, q, inputs, rank->index, run->recv);
        return;
    }
    for (int32_t r = 0; r < rank->n && !rank->failure[0]; r++) {
        part_of(q, rank->n, r, &first);
        check_part(rank, q, inputs, r, run->recv + first * ref_bytes(q->dtype));
    }
    check_alike(rank, run->recv, q->count * ref_bytes(q->dtype));
}

static void one(struct rank *rank, const struct quantised *q, uint64_t seed)
{
    struct running run;
    prepare(rank, q, seed, &run);
    RANK_CHECK_OK(rank, start(rank, q, run.send, run.recv, NULL));
    check(rank, &run);
}

/* ---- within the bound ---- */

static void bounded(struct rank *rank)
{
    static const size_t counts[] = {1, 2, 31, 33, 255, 257, 1000, 4099};
    for (size_t w = 0; w < LEN(wires); w++)
        for (size_t c = 0; c < LEN(counts); c++)
            for (int form = 0; form < 3 && !rank->failure[0]; form++) {
                const uint64_t seed = mix(test_seed() + w * 100 + c * 10 + (uint64_t)form);
                const struct quantised q = {.wire = wires[w],
                                            .dtype = dtypes[seed % 4],
                                            .op = seed >> 8 & 1 ? TUTTI_AVG : TUTTI_SUM,
                                            .all = form == 0,
                                            .v = form == 2,
                                            .in_place = seed >> 9 & 1,
                                            .count = counts[c],
                                            .block = (uint32_t[]){0, 32, 96, 1024}[seed >> 10 & 3],
                                            .seed = seed >> 12 & 1 ? seed : 0,
                                            .spread = seed >> 13 & 1 ? 12 : 0};
                one(rank, &q, seed);
            }
}

static void within_the_bound(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= RANKS_MOST; n += n < 4 ? 1 : 2) assert_int_equal(ranks_threads(n, bounded, NULL), 0);
    assert_int_equal(ranks_forked(3, bounded, NULL), 0);
}

/* Several slices of the engine, and messages that are granted. */
static void large(struct rank *rank)
{
    for (size_t w = 0; w < LEN(wires) && !rank->failure[0]; w++) {
        struct quantised q = {.wire = wires[w], .op = TUTTI_SUM, .dtype = TUTTI_FLOAT32, .all = true, .count = 3000001};
        q.seed = w & 1, q.in_place = w & 1, q.spread = 8;
        one(rank, &q, w + 1);
        q.all = false, q.count = 700001;
        one(rank, &q, w + 11);
    }
}

static void large_ones(void **state)
{
    (void)state;
    struct ranks_config config = {.n = 2, .deadline_s = 120};
    assert_int_equal(ranks_run(&config, large), 0);
    config.n = 3;
    assert_int_equal(ranks_run(&config, large), 0);
}

/* ---- rounding ---- */

/* The mean over many seeds comes to the exact sum, which rounding to nearest does not. */
static void mean_of(struct rank *rank, enum tutti_wire wire)
{
    enum { N = 96, SEEDS = 600 };
    struct quantised q = {.wire = wire, .dtype = TUTTI_FLOAT32, .op = TUTTI_SUM, .all = true, .count = N, .block = 32};
    double mean[N] = {0}, exact = 0, worst = 0;
    struct running run;
    prepare(rank, &q, 5, &run);
    float *out = (float *)(void *)run.recv, first[N];
    for (q.seed = 1; q.seed <= SEEDS; q.seed++) {
        RANK_CHECK_OK(rank, start(rank, &q, run.send, out, NULL));
        for (size_t i = 0; i < N; i++) mean[i] += (double)out[i] / SEEDS;
        if (q.seed == 1) memcpy(first, out, sizeof(first));
        if (q.seed == 2) RANK_CHECK(rank, memcmp(first, out, sizeof(first)) != 0);
    }
    q.seed = 1;
    RANK_CHECK_OK(rank, start(rank, &q, run.send, out, NULL));
    RANK_CHECK(rank, memcmp(first, out, sizeof(first)) == 0);
    for (size_t i = 0; i < N; i++) {
        double error = 0, size = 0;
        exact = 0;
        for (int32_t r = 0; r < rank->n; r++) exact += run.inputs[r][i], size += code_error(&q, run.inputs[r][i], 1);
        size += code_error(&q, exact, rank->n);
        error = fabs(mean[i] - exact) / (size / 2 / sqrt(SEEDS)); /* deviations, at most half a step each */
        worst = fmax(worst, error);
    }
    if (worst > 5.5)
        rank_fail(rank, __FILE__, __LINE__, "%s: a mean is off by %g deviations", tutti_wire_name(wire), worst);
}

static void unbiased(struct rank *rank)
{
    for (size_t w = 0; w < LEN(wires) && !rank->failure[0]; w++) mean_of(rank, wires[w]);
}

static void no_bias_over_seeds(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(2, unbiased, NULL), 0);
    assert_int_equal(ranks_threads(3, unbiased, NULL), 0);
}

/* A seed that is read at the call adds to the other one. */
static void seeds_from_memory(struct rank *rank)
{
    struct quantised q = {.wire = TUTTI_WIRE_INT8, .dtype = TUTTI_FLOAT32, .op = TUTTI_SUM, .all = true, .count = 999};
    struct tutti_call_options options = options_of(&q);
    uint64_t seed = 40;
    float want[999], got[999];
    struct running run;
    prepare(rank, &q, 9, &run);
    q.seed = 42;
    RANK_CHECK_OK(rank, start(rank, &q, run.send, want, NULL));
    options.wire_seed = 2, options.wire_seeds = &seed;
    RANK_CHECK_OK(rank, tutti_all_reduce(run.send, got, 999, TUTTI_FLOAT32, TUTTI_SUM, rank->comm, &options, NULL));
    RANK_CHECK(rank, memcmp(want, got, sizeof(got)) == 0);
}

/* ---- special numbers ---- */

/* A block with a NaN or an infinity is NaN as a whole, its neighbours are not; in bfloat16 each element is its own. */
static void special(struct rank *rank)
{
    for (size_t w = 0; w < LEN(wires); w++)
        for (int what = 0; what < 3; what++) {
            float in[256], out[256];
            struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
            options.wire = wires[w], options.wire_block = 32;
            for (size_t i = 0; i < 256; i++) in[i] = (float)i;
            if (rank->index == 0) in[40] = what == 0 ? NAN : what == 1 ? INFINITY : -INFINITY;
            RANK_CHECK_OK(rank, tutti_all_reduce(in, out, 256, TUTTI_FLOAT32, TUTTI_SUM, rank->comm, &options, NULL));
            const bool scaled = wires[w] != TUTTI_WIRE_BFLOAT16;
            for (size_t i = 0; i < 256; i++) {
                if (i == 40 && !scaled && what > 0)
                    RANK_CHECK(rank, out[i] == in[40] || (rank->index > 0 && isinf(out[i])));
                else if (i == 40 || (scaled && i / 32 == 1))
                    RANK_CHECK(rank, isnan(out[i]));
                else
                    RANK_CHECK(rank, isfinite(out[i]));
            }
            check_alike(rank, out, sizeof(out));
        }
}

static void tiny(struct rank *rank)
{
    for (size_t w = 0; w < LEN(wires); w++)
        for (uint64_t seed = 0; seed < 2; seed++) {
            const float sizes[] = {0, -0.0f, 1e-45f, 1e-39f, 1e-31f, 0x1p-99f, 1e38f};
            for (size_t s = 0; s < LEN(sizes); s++) {
                struct quantised q = {.wire = wires[w],
                                      .dtype = TUTTI_FLOAT32,
                                      .op = TUTTI_AVG,
                                      .all = true,
                                      .count = 64 * RANKS_MOST,
                                      .block = 64,
                                      .seed = seed};
                struct running run;
                prepare(rank, &q, 3, &run);
                float *in = (float *)(void *)run.send;
                for (size_t i = 0; i < q.count; i++)
                    for (int32_t r = 0; r < rank->n; r++) {
                        const float value = (float)run.inputs[r][i] * sizes[s];
                        run.inputs[r][i] = (double)value;
                        if (r == rank->index) in[i] = value;
                    }
                RANK_CHECK_OK(rank, start(rank, &q, run.send, run.recv, NULL));
                check(rank, &run);
                if (rank->failure[0]) return;
            }
        }
}

static void special_numbers(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(3, special, NULL), 0);
    assert_int_equal(ranks_threads(3, tiny, NULL), 0);
    assert_int_equal(ranks_threads(3, seeds_from_memory, NULL), 0);
}

/* ---- many in flight, groups, recordings ---- */

static void many(struct rank *rank)
{
    enum { N = 24 };
    struct running runs[N];
    struct tutti_work *works[N], *all = NULL;
    for (int way = 0; way < 2; way++) {
        if (way) RANK_CHECK_OK(rank, tutti_group_start());
        for (uint64_t i = 0; i < N; i++) {
            const struct quantised q = {.wire = wires[i % 4],
                                        .dtype = dtypes[i / 4 % 4],
                                        .op = TUTTI_SUM,
                                        .all = i % 3 != 0,
                                        .v = i % 3 == 0 && i % 2,
                                        .count = 100 * i + 1,
                                        .seed = i % 5};
            prepare(rank, &q, i + 70, &runs[i]);
            RANK_CHECK_OK(rank, start(rank, &q, runs[i].send, runs[i].recv, way ? NULL : &works[i]));
        }
        if (way) {
            RANK_CHECK_OK(rank, tutti_group_end(&all));
            RANK_CHECK_OK(rank, tutti_work_wait(all, 0));
            tutti_work_free(all);
        }
        for (uint64_t i = N; i-- > 0;) {
            if (!way) RANK_CHECK_OK(rank, tutti_work_wait(works[i], 0));
            if (!way) tutti_work_free(works[i]);
        }
        for (uint64_t i = 0; i < N && !rank->failure[0]; i++) check(rank, &runs[i]);
    }
}

static void again(struct rank *rank)
{
    const struct quantised q = {
        .wire = TUTTI_WIRE_FLOAT8_E4M3, .dtype = TUTTI_FLOAT32, .op = TUTTI_AVG, .all = true, .count = 1234};
    struct tutti_persistent *persistent;
    struct running run;
    prepare(rank, &q, 1, &run);
    RANK_CHECK_OK(rank, tutti_persistent_record());
    RANK_CHECK_OK(rank, start(rank, &q, run.send, run.recv, NULL));
    RANK_CHECK_OK(rank, tutti_persistent_end(&persistent));
    for (int i = 0; i < 3 && !rank->failure[0]; i++) {
        struct tutti_work *work = NULL;
        memset(run.recv, 0, q.count * 4);
        RANK_CHECK_OK(rank, tutti_persistent_start(persistent, i ? &work : NULL));
        if (work) RANK_CHECK_OK(rank, tutti_work_wait(work, 0));
        tutti_work_free(work);
        check(rank, &run);
    }
    tutti_persistent_destroy(persistent);
}

static void in_flight(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(4, many, NULL), 0);
    assert_int_equal(ranks_threads(3, again, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(within_the_bound), cmocka_unit_test(large_ones), cmocka_unit_test(no_bias_over_seeds),
        cmocka_unit_test(special_numbers),  cmocka_unit_test(in_flight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
