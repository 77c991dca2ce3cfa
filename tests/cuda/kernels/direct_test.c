/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels that store to where peers are to have it: sizes around all edges, grids of every shape, calls behind one
 * another, counts that wrap, and ranks that come late or never. */
#include "cuda/support/direct_calls.h"
#include "cuda/support/line_calls.h"
#include "reference.h"

#include "base/base.h"

#include <unistd.h>

enum { TILE = GPU_LEAST_TILE, WARPS = GPU_DIRECT_THREADS / 32, PIECE = GPU_PIECE, ROUND = WARPS * PIECE };

#define LATE_NS (UINT64_C(1000000) * (rig_is_slow() ? 400 : 50))

static uint64_t seed;

static uint64_t below(uint64_t n)
{
    return tutti_random64(&seed) % n;
}

static void move(struct rig *rig, enum direct_kind kind, uint32_t root, size_t bytes)
{
    struct direct_call call;
    direct_call_move(&call, rig, kind, root, bytes, &seed);
    direct_call_run(&call);
}

static void reduce(struct rig *rig, const struct direct_reduction *f)
{
    struct direct_call call;
    direct_call_reduce(&call, rig, f, &seed);
    direct_call_run(&call);
}

/* Rings of tiles are smaller than the messages. */
static void open_ranks(struct rig *rig, uint32_t n)
{
    const struct rig_shape shape = {.n = n,
                                    .n_blocks = n > 8 ? 1 : 3 - n / 5,
                                    .line_bytes = 1024,
                                    .sentinel_bytes = 2048,
                                    .tile_bytes = n % 2 ? 2 * TILE : TILE,
                                    .n_tiles = 2 + n % 3 / 2,
                                    .n_devices = n % 2 ? 1 : rig_devices()};
    rig_open(rig, &shape);
}

/* Around the edges of units, of what a warp takes at once, and of rounds of the grid. */
static const size_t sizes[] = {
    0, 1, 15, 16, 17, 511, 512, 513, PIECE, 3 * PIECE + 5, ROUND / 8 + 512, 70001, 2 * ROUND + 333};

static void test_every_move_and_root(void **state)
{
    (void)state;
    size_t turn = below(TUTTI_ARRAY_LEN(sizes));
    for (uint32_t n = 2; n <= 8; n += rig_times(1, 1, 2)) {
        struct rig rig;
        open_ranks(&rig, n);
        for (int kind = 0; kind < DIRECT_REDUCE; kind++) {
            const uint32_t slow = direct_is_broadcast((enum direct_kind)kind) ? n : 5;
            const uint32_t tries = rig_times(2 * TUTTI_ARRAY_LEN(sizes), slow, 1);
            for (uint32_t i = 0; i < tries; i++)
                move(&rig, (enum direct_kind)kind, i % n, sizes[turn++ % TUTTI_ARRAY_LEN(sizes)]);
        }
        rig_close(&rig);
    }
}

/* Through none, one, and many that relay. */
static void test_chains_of_every_size(void **state)
{
    static const uint32_t numbers[] = {2, 3, 4, 8};
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(numbers); i++) {
        struct rig rig;
        if (test_is_sampled() && (i + test_seed()) % 2) continue;
        open_ranks(&rig, numbers[i]);
        for (size_t k = 0; k < TUTTI_ARRAY_LEN(sizes); k++)
            move(&rig, DIRECT_CHAIN, (uint32_t)below(numbers[i]), sizes[k]);
        rig_close(&rig);
    }
}

static struct direct_reduction any_sum(void)
{
    static const struct {
        enum tutti_dtype dtype;
        const char *kernel;
    } fast[] = {{TUTTI_FLOAT32, "float32_sum"}, {TUTTI_FLOAT16, "float16_sum"}, {TUTTI_BFLOAT16, "bfloat16_sum"}};
    static const enum tutti_op ops[] = {TUTTI_SUM, TUTTI_AVG, TUTTI_PREMUL_SUM};
    const size_t t = below(TUTTI_ARRAY_LEN(fast));
    return (struct direct_reduction){.dtype = fast[t].dtype,
                                     .op = ops[below(TUTTI_ARRAY_LEN(ops))],
                                     .kernel = fast[t].kernel,
                                     .count = 1 + below(24 * TILE) / ref_bytes(fast[t].dtype),
                                     .exact = below(2),
                                     .in_place = below(2)};
}

/* Shards that are short, empty, and of more tiles than a ring has. */
static void test_sums(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= GPU_MAX_RANKS; n += n < 8 ? 1 : 8) {
        struct rig rig;
        open_ranks(&rig, n);
        for (int k = 0; k < (int)rig_times(24, 3, 2); k++) {
            struct direct_reduction f = any_sum();
            f.in_place = k % 2;
            if (k == 0) f.count = 1 + below(8 * (size_t)n);
            reduce(&rig, &f);
        }
        rig_close(&rig);
    }
}

static void test_every_type_and_operation(void **state)
{
    (void)state;
    struct rig rig;
    open_ranks(&rig, 3);
    for (int t = 0; t < TUTTI_N_DTYPES; t++) {
        for (int op = 0; op < TUTTI_N_OPS; op++) {
            struct direct_reduction f = {.dtype = (enum tutti_dtype)t, .op = (enum tutti_op)op, .exact = true};
            if (!ref_defined(f.dtype, f.op)) continue;
            f.kernel = tutti_dtype_name(f.dtype);
            f.count = 1 + below(4 * TILE) / ref_bytes(f.dtype);
            f.in_place = below(2);
            reduce(&rig, &f);
        }
    }
    rig_close(&rig);
}

/* ---- one behind another ---- */
static void any_call_of(struct direct_call *call, struct rig *rig, enum direct_kind kind)
{
    struct direct_reduction f = any_sum();
    f.alone = kind > DIRECT_REDUCE;
    if (kind >= DIRECT_REDUCE) return direct_call_reduce(call, rig, &f, &seed);
    direct_call_move(call, rig, kind, (uint32_t)below(rig->n), below(3) ? 1 + below(3 * TILE) : sizes[1 + below(8)],
                     &seed);
}

/* Counts and slots go on, without a pause, whatever else lies between. */
static void test_calls_in_a_row(void **state)
{
    (void)state;
    enum { CALLS = 12 };
    static struct direct_call calls[CALLS];
    static struct line_call lines[CALLS];
    for (uint32_t n = 2; n <= 8; n += n < 5 ? 1 : 3) {
        struct rig rig;
        open_ranks(&rig, n);
        for (uint32_t c = 0; c < CALLS; c++) {
            const struct line_spec spec = {.kind = c % 2 ? KIND_ALL_GATHER : KIND_ALL_TO_ALL,
                                           .protocol = c % 4 < 2 ? "lines" : "sentinel",
                                           .count = 1 + below(500),
                                           .threads = 64,
                                           .units = 1,
                                           .seed = tutti_random64(&seed)};
            any_call_of(&calls[c], &rig, (enum direct_kind)below(DIRECT_REDUCE + 2));
            line_call_open(&lines[c], &rig, &spec);
        }
        for (uint32_t i = 0; i < n * CALLS; i++) { /* call by call, or rank by rank */
            const uint32_t c = n % 2 ? i % CALLS : i / n, r = n % 2 ? i / CALLS : i % n;
            direct_call_launch(&calls[c], r);
            if (c % 3 == 0) line_call_launch(&lines[c], r);
        }
        rig_sync(&rig);
        for (uint32_t c = 0; c < CALLS; c++) {
            direct_call_check(&calls[c]);
            direct_call_close(&calls[c]);
            if (c % 3 == 0) line_call_check(&lines[c]);
            line_call_close(&lines[c]);
        }
        rig_close(&rig);
    }
}

static void set_words(const struct rig *rig, uint32_t r, uint64_t at, size_t n, uint64_t value, size_t each)
{
    for (size_t i = 0; i < n; i++) rig_copy(rig, r, rig->scratch[r] + at + i * each, &value, each);
}

/* After so many calls; `relayed`: the last one had relays, else none ever had. */
static void set_counts(const struct rig *rig, uint32_t count, bool relayed)
{
    const struct gpu_layout *l = &rig->layout;
    const uint64_t pieces = relayed ? (uint64_t)(count - 1) << 32 | 9 : 0;
    for (uint32_t r = 0; r < rig->n; r++) {
        set_words(rig, r, l->directs, l->n_blocks, count, sizeof(uint32_t));
        set_words(rig, r, l->landed, (size_t)rig->n * l->n_blocks, 2 * count, sizeof(uint32_t));
        set_words(rig, r, l->relayed, (size_t)l->n_blocks * WARPS, pieces, sizeof(uint64_t));
    }
}

static void test_counts_wrap(void **state)
{
    (void)state;
    static const uint32_t counts[] = {INT32_MAX - 2, UINT32_MAX - 2};
    for (int k = 0; k < 4; k++) {
        struct rig rig;
        open_ranks(&rig, 4);
        set_counts(&rig, counts[k / 2], k % 2);
        for (int c = 0; c < 6; c++) {
            struct direct_reduction f = any_sum();
            move(&rig, (enum direct_kind)(c % DIRECT_REDUCE), 0, 9000);
            if (c % 2 == 0) reduce(&rig, &f);
            if (c % 2 == 1)
                move(&rig, c % 4 == 1 ? DIRECT_SHARES : DIRECT_CHAIN, (uint32_t)below(4),
                     3 * GPU_PIECE * (size_t)c + 20000);
        }
        rig_close(&rig);
    }
}

/* ---- who comes late, or never ---- */
static void test_nobody_ends_before_all_have_come(void **state)
{
    (void)state;
    struct rig rig;
    open_ranks(&rig, 4);
    for (uint32_t kind = 0; kind <= DIRECT_REDUCE; kind++) {
        struct direct_call call;
        const uint32_t first = (uint32_t)below(rig.n), step = below(2) ? 1 : rig.n - 1;
        any_call_of(&call, &rig, (enum direct_kind)kind);
        call.bare = false;
        for (uint32_t k = 0; k < rig.n; k++) {
            for (uint32_t i = 0; i < k; i++) {
                const uint32_t r = (first + i * step) % rig.n;
                assert_int_equal(tutti_cuda_stream_query(rig.gpus[r], rig.streams[r]), TUTTI_PENDING);
            }
            direct_call_launch(&call, (first + k * step) % rig.n);
            usleep(rig_is_slow() ? 20000 : 2000);
        }
        rig_sync(&rig);
        direct_call_check(&call);
        direct_call_close(&call);
    }
    rig_close(&rig);
}

/* The one who has a deadline comes last, so that it is not late for others, but for whom is missing. */
static void launch_for_report(struct direct_call *call, uint32_t reporter, uint32_t missing)
{
    for (uint32_t k = 1; k <= call->rig->n; k++) {
        const uint32_t r = (reporter + k) % call->rig->n;
        struct direct_side *side = &call->sides[r];
        side->direct.call.seq = side->tiles.call.seq = 77;
        side->direct.call.timeout_ns = side->tiles.call.timeout_ns = 0;
        if (r == reporter) side->direct.call.timeout_ns = side->tiles.call.timeout_ns = LATE_NS;
        if (r != missing) direct_call_launch(call, r);
    }
    rig_await(call->rig);
}

static void expect_report(const struct rig *rig, uint32_t peer)
{
    assert_int_equal(rig->control->stop, GPU_TIMEOUT);
    assert_int_equal(rig->control->report, GPU_REPORT(77, peer));
}

/* Nothing is stored anywhere. */
static void expect_absence(struct direct_call *call, uint32_t missing)
{
    call->bare = true;
    launch_for_report(call, (missing + call->rig->n - 1) % call->rig->n, missing);
    expect_report(call->rig, missing);
    direct_call_check_untouched(call);
    direct_call_launch(call, missing); /* too late: it leaves, whatever it finds */
    rig_await(call->rig);
    direct_call_close(call);
    rig_close(call->rig);
}

static void test_who_waits_in_vain_says_so(void **state)
{
    (void)state;
    struct direct_call call;
    struct rig rig;
    for (uint32_t kind = 0; kind < DIRECT_REDUCE; kind++) {
        open_ranks(&rig, 5);
        direct_call_move(&call, &rig, (enum direct_kind)kind, (uint32_t)below(5), 50000, &seed);
        expect_absence(&call, (uint32_t)below(5));
    }
    const struct direct_reduction f = {
        .dtype = TUTTI_FLOAT32, .op = TUTTI_SUM, .kernel = "float32_sum", .count = 60 * TILE, .in_place = below(2)};
    open_ranks(&rig, 3);
    direct_call_reduce(&call, &rig, &f, &seed);
    expect_absence(&call, 0);
}

/* A rank that has begun, and then tells nobody what it stores: one behind it says so. */
static void expect_silence(enum direct_kind kind, uint32_t silent, uint32_t behind)
{
    struct direct_call call;
    struct rig rig;
    open_ranks(&rig, 4);
    direct_call_move(&call, &rig, kind, (uint32_t)below(4), 50000, &seed);
    silent = (call.root + silent) % rig.n;
    assert_int_equal(call.sides[silent].direct.relayed, 1);
    call.sides[silent].direct.relayed = 0;
    launch_for_report(&call, (silent + behind) % rig.n, rig.n);
    expect_report(&rig, silent);
    direct_call_close(&call);
    rig_close(&rig);
}

static void test_relays_wait_for_who_is_before_them(void **state)
{
    (void)state;
    expect_silence(DIRECT_SHARES, 0, 1 + (uint32_t)below(3));
    expect_silence(DIRECT_CHAIN, 0, 1);
    expect_silence(DIRECT_CHAIN, 1, 1);
}

static void test_the_host_stops_all(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind <= DIRECT_REDUCE; kind++) {
        struct direct_call call;
        struct rig rig;
        open_ranks(&rig, 3);
        any_call_of(&call, &rig, (enum direct_kind)kind);
        const uint32_t missing = (uint32_t)below(3);
        for (uint32_t r = 0; r < rig.n; r++) {
            call.sides[r].direct.call.timeout_ns = call.sides[r].tiles.call.timeout_ns = 0;
            if (r != missing) direct_call_launch(&call, r);
        }
        __atomic_store_n(&rig.control->stop, GPU_STOPPED, __ATOMIC_RELEASE);
        rig_await(&rig);
        assert_int_equal(rig.control->report, 0);
        direct_call_close(&call);
        rig_close(&rig);
    }
}

int main(void)
{
    seed = rig_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_move_and_root),
        cmocka_unit_test(test_chains_of_every_size),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_every_type_and_operation),
        cmocka_unit_test(test_calls_in_a_row),
        cmocka_unit_test(test_counts_wrap),
        cmocka_unit_test(test_nobody_ends_before_all_have_come),
        cmocka_unit_test(test_who_waits_in_vain_says_so),
        cmocka_unit_test(test_relays_wait_for_who_is_before_them),
        cmocka_unit_test(test_the_host_stops_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
