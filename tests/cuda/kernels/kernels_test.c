/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels of lines and sentinels: every type and operation bit for bit, every kind of exchange, sizes around units and
 * blocks, any address, calls in a row without a pause, words that are all ones, counts that wrap, and ranks that are
 * missing. */
#include "cuda/support/line_calls.h"
#include "reference.h"

#include "base/base.h"

#include <string.h>

enum { BLOCKS = 4, BLOCK_BYTES = 8192, SLOT_BYTES = 2 * BLOCK_BYTES }; /* a slot of sentinels has two phases */
static uint64_t seed;

static uint64_t below(uint64_t n)
{
    return tutti_random64(&seed) % n;
}

static uint32_t n_protocols = 3; /* for floats: there may be no kernels `sentinel2` */

static void open_rig(struct rig *rig, uint32_t n)
{
    rig_open(rig, &(struct rig_shape){.n = n,
                                      .n_blocks = BLOCKS,
                                      .line_bytes = BLOCK_BYTES,
                                      .sentinel_bytes = SLOT_BYTES,
                                      .tile_bytes = GPU_LEAST_TILE,
                                      .n_tiles = 2,
                                      .n_devices = n > 1 ? rig_devices() : 1});
    if (!rig->gpus[0]->ops->gpu->kernel(rig->gpus[0], "sentinel2_float32_16")) n_protocols = 2;
}

/* How many units of warps have left exceptions, on all ranks. */
static size_t count_exceptions(const struct rig *rig)
{
    const size_t bytes = (size_t)2 * (rig->n - 1) * BLOCKS * SLOT_BYTES / 32;
    uint64_t *got = malloc(bytes);
    size_t n = 0;
    assert_non_null(got);
    for (uint32_t r = 0; r < rig->n; r++) {
        rig_copy(rig, r, got, rig->scratch[r] + rig->layout.exceptions, bytes);
        for (size_t i = 0; i < bytes / 8; i += 2) n += got[i] || got[i + 1];
    }
    free(got);
    return n;
}

static bool is_float(enum tutti_dtype dtype)
{
    return dtype >= TUTTI_FLOAT8_E4M3FN;
}

static bool has_sum(enum tutti_dtype dtype, enum tutti_op op)
{
    return (dtype == TUTTI_FLOAT32 || dtype == TUTTI_FLOAT16 || dtype == TUTTI_BFLOAT16) &&
           (op == TUTTI_SUM || op == TUTTI_AVG || op == TUTTI_PREMUL_SUM);
}

static const char *const protocols[] = {"lines", "sentinel", "sentinel2"}; /* the last one for floats alone */
static const char relay[] = "sentinel_relay";                              /* there if that is */

/* All bits that there are, and those around the ends of a type's range. */
static void test_every_type_and_operation(void **state)
{
    (void)state;
    struct rig rig;
    open_rig(&rig, 3);
    for (int t = 0; t < TUTTI_N_DTYPES; t++) {
        for (int op = 0; op < TUTTI_N_OPS; op++) {
            if (!ref_defined((enum tutti_dtype)t, (enum tutti_op)op)) continue;
            for (size_t k = 0; k < (is_float((enum tutti_dtype)t) ? 2 * n_protocols : 4); k++) {
                struct line_spec spec = {.protocol = protocols[k / 2],
                                         .dtype = (enum tutti_dtype)t,
                                         .op = (enum tutti_op)op,
                                         .threads = 32,
                                         .units = 1,
                                         .values = k % 2 ? REF_EDGES : REF_BITS,
                                         .seed = tutti_random64(&seed)};
                spec.count = 1 + (size_t)below(2 * 32 * 16) / ref_bytes(spec.dtype);
                line_call_run(&rig, &spec);
                spec.fast = has_sum(spec.dtype, spec.op);
                if (spec.fast) line_call_run(&rig, &spec);
            }
        }
    }
    rig_close_clean(&rig);
}

/* What a block has in its slot, in each exchange. */
static uint32_t room(const char *protocol)
{
    return strcmp(protocol, "sentinel") == 0 || protocol == relay ? SLOT_BYTES : BLOCK_BYTES;
}

/* One of all calls that there are: mostly sums, which have the most kernels. */
static struct line_spec any_call(uint32_t n)
{
    static const enum tutti_dtype dtypes[] = {TUTTI_FLOAT32, TUTTI_FLOAT16, TUTTI_BFLOAT16,  TUTTI_UINT64,
                                              TUTTI_FLOAT64, TUTTI_INT8,    TUTTI_COMPLEX128};
    static const enum tutti_op ops[] = {TUTTI_SUM, TUTTI_SUM, TUTTI_AVG, TUTTI_PREMUL_SUM};
    static void (*const paints[])(unsigned char *, size_t, uint64_t) = {NULL, line_paint_runs, line_paint_ones};
    struct line_spec spec = {.kind = (enum line_kind)below(N_KINDS),
                             .dtype = dtypes[below(TUTTI_ARRAY_LEN(dtypes))],
                             .op = ops[below(TUTTI_ARRAY_LEN(ops))],
                             .threads = 32u << below(3),
                             .values = REF_BITS,
                             .seed = tutti_random64(&seed),
                             .paint = paints[below(TUTTI_ARRAY_LEN(paints))]};
    if (spec.kind == KIND_RELAY && (n == 1 || n_protocols == 2)) spec.kind = KIND_BROADCAST;
    if (below(2)) spec.skew_in = (uint32_t)below(16), spec.skew_out = (uint32_t)below(16);
    spec.protocol = protocols[below(spec.kind == KIND_ALL_REDUCE && is_float(spec.dtype) ? n_protocols : 2)];
    if (spec.kind == KIND_RELAY) spec.protocol = relay;
    spec.units = 1 + (uint32_t)below(room(spec.protocol) / (16 * spec.threads));
    spec.fast = has_sum(spec.dtype, spec.op) && below(4) > 0;
    spec.in_place = spec.kind == KIND_RELAY || (spec.kind != KIND_ALL_TO_ALL_V && below(2));
    const size_t size = spec.kind < KIND_ALL_GATHER ? ref_bytes(spec.dtype) : 1;
    const size_t block = (size_t)16 * spec.threads * spec.units;
    const size_t edges[] = {0, 16, block, 2 * block, 3 * block, below(4 * block - 64)};
    const size_t ends = edges[below(TUTTI_ARRAY_LEN(edges))] + below(32);
    spec.count = ends > 16 ? (ends - 16) / size : 1 + below(3); /* up to 16 bytes before and after */
    if (spec.kind == KIND_ALL_TO_ALL_V && n > 1) spec.count = spec.count / 2 + 1;
    return spec;
}

static void test_every_kind_and_size(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 2, 3, 4, 8, 16};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(sizes); i++) {
        struct rig rig;
        open_rig(&rig, sizes[i]);
        for (int k = 0; k < (int)rig_times(600, 300, 80) / (sizes[i] > 8 ? 4 : 1); k++) {
            const struct line_spec spec = any_call(rig.n);
            line_call_run(&rig, &spec);
        }
        rig_close_clean(&rig);
    }
}

/* The same call at every pair of addresses. */
static void test_every_alignment(void **state)
{
    (void)state;
    struct rig rig;
    open_rig(&rig, 2);
    for (uint32_t in = 0; in < 16; in++) {
        for (uint32_t out = 0; out < 16; out++) {
            if (test_is_sampled() && below(4)) continue;
            const bool reduces = (in + out) % 2;
            const struct line_spec spec = {.kind = reduces ? KIND_ALL_REDUCE : KIND_ALL_GATHER,
                                           .protocol = protocols[in % (reduces ? n_protocols : 2)],
                                           .fast = true,
                                           .dtype = TUTTI_BFLOAT16,
                                           .count = 500 + below(40),
                                           .threads = 32,
                                           .units = 1,
                                           .skew_in = in,
                                           .skew_out = out,
                                           .values = REF_FINITE,
                                           .seed = tutti_random64(&seed)};
            line_call_run(&rig, &spec);
        }
    }
    rig_close_clean(&rig);
}

/* Nobody waits between calls, and some ranks are far ahead. */
static void test_calls_in_a_row(void **state)
{
    (void)state;
    enum { ROW = 12 };
    for (uint32_t n = 2; n <= 8; n *= 2) {
        struct rig rig;
        open_rig(&rig, n);
        struct line_call *calls = malloc(ROW * sizeof *calls);
        assert_non_null(calls);
        for (int round = 0; round < (int)rig_times(30, 10, 4); round++) {
            for (int k = 0; k < ROW; k++) {
                const struct line_spec spec = any_call(n);
                line_call_open(&calls[k], &rig, &spec);
            }
            for (uint32_t i = 0; i < n * ROW; i++) {
                const uint32_t r = round % 2 ? i / ROW : i % n, k = round % 2 ? i % ROW : i / n;
                line_call_launch(&calls[k], (r + (uint32_t)round) % n);
            }
            rig_sync(&rig);
            for (int k = 0; k < ROW; k++) {
                line_call_check(&calls[k]);
                line_call_close(&calls[k]);
            }
        }
        free(calls);
        rig_close_clean(&rig);
    }
}

/* Inputs of nothing but ones, which no sentinel of floating point may be: another NaN goes in their place, and nothing
 * else. */
static void test_not_a_number(void **state)
{
    (void)state;
    struct rig rig;
    open_rig(&rig, 2);
    for (int t = TUTTI_FLOAT8_E4M3FN; t < TUTTI_N_DTYPES; t++) {
        for (int k = 0; k < 4; k++) {
            const struct line_spec spec = {.protocol = protocols[n_protocols == 3 ? 1 + k % 2 : 1],
                                           .fast = k / 2 && has_sum((enum tutti_dtype)t, TUTTI_SUM),
                                           .dtype = (enum tutti_dtype)t,
                                           .count = 100,
                                           .threads = 32,
                                           .units = 4,
                                           .paint = line_paint_ones};
            line_call_run(&rig, &spec);
        }
    }
    assert_int_equal(count_exceptions(&rig), 0);
    rig_close_clean(&rig);
}

/* One word of 8 bytes of an input, or all but one, or the half of each. */
static void paint_word(unsigned char *input, size_t bytes, uint64_t word)
{
    memset(input + word % (bytes / 8) * 8, 0xff, 8);
}

static void paint_others(unsigned char *input, size_t bytes, uint64_t word)
{
    memset(input, 0xff, bytes);
    input[word % (bytes / 8) * 8 + word % 8] = 0xfe;
}

static void paint_halves(unsigned char *input, size_t bytes, uint64_t seed_of)
{
    for (size_t at = 0; at < bytes; at += 8) {
        const size_t half = tutti_random64(&seed_of) % 2 * 4;
        memset(input + at + half, 0xff, 4);
        input[at + 4 - half] &= 0x7f;
    }
}

/* Calls of one exchange that take whole slots, moves of nothing but ones among them, between calls of two phases:
 * nobody waits in between, so a slot serves one way and the other in turns, and exceptions of all of it are there. */
static void test_slots_change_hands(void **state)
{
    (void)state;
    enum { ROW = 20, KINDS = 5, PARTS = BLOCKS * SLOT_BYTES };
    static struct line_call calls[ROW];
    for (uint32_t n = 2; n <= 8; n += n < 4 ? 1 : 4) {
        struct rig rig;
        open_rig(&rig, n);
        for (int round = 0; round < (int)rig_times(4, 2, 1); round++) {
            for (int k = 0; k < ROW; k++) {
                int kind = (k + k / KINDS) % KINDS; /* both slots get all kinds */
                if ((kind == 1 || kind == 4) && n_protocols == 2) kind = 0;
                const struct line_spec specs[KINDS] = {
                    {.kind = KIND_ALL_GATHER, .protocol = "sentinel", .units = 16, .paint = line_paint_ones},
                    {.protocol = "sentinel2", .units = 8, .dtype = TUTTI_FLOAT32, .fast = true},
                    {.kind = KIND_REDUCE_SCATTER, .protocol = "sentinel", .units = 16, .dtype = TUTTI_FLOAT64},
                    {.kind = KIND_ALL_TO_ALL, .protocol = "sentinel", .units = 16, .paint = line_paint_runs},
                    {.kind = KIND_RELAY, .protocol = relay, .units = 16, .paint = line_paint_runs, .in_place = true}};
                struct line_spec spec = specs[kind];
                spec.threads = 64, spec.values = REF_BITS, spec.seed = tutti_random64(&seed);
                spec.count = PARTS - below(BLOCK_BYTES / 2); /* the last block's second half, too */
                if (kind == 1) spec.count = n * (PARTS / 2 - 32 - below(BLOCK_BYTES / 2)) / 4;
                if (kind == 2) spec.count /= 8;
                line_call_open(&calls[k], &rig, &spec);
                assert_int_equal(calls[k].blocks, BLOCKS);
            }
            for (uint32_t i = 0; i < n * ROW; i++) line_call_launch(&calls[i % ROW], (i / ROW + (uint32_t)round) % n);
            rig_sync(&rig);
            for (int k = 0; k < ROW; k++) {
                line_call_check(&calls[k]);
                line_call_close(&calls[k]);
            }
        }
        rig_close_clean(&rig);
    }
}

/* Every word of a warp's unit by itself, and what is sent beside the units: as much as there are units of warps with
 * such a word, and nothing for halves. */
static void test_exceptions(void **state)
{
    (void)state;
    enum { PART = 2 * 64 * 16, WORDS = PART / 8 };
    struct line_spec spec = {
        .kind = KIND_ALL_GATHER, .protocol = "sentinel", .count = PART, .threads = 64, .units = 2, .paint = paint_word};
    for (uint32_t n = 2; n <= 8; n *= 2) {
        struct rig rig;
        open_rig(&rig, n);
        for (spec.seed = 0; spec.seed < WORDS; spec.seed += rig_times(1, 1, 7)) { /* in the end words of all kinds */
            spec.paint = paint_others;
            line_call_run(&rig, &spec);
            spec.paint = paint_word;
            line_call_run(&rig, &spec);
        }
        rig_close_clean(&rig);
    }
    struct rig rig;
    open_rig(&rig, 2);
    spec.paint = paint_halves;
    line_call_run(&rig, &spec);
    assert_int_equal(count_exceptions(&rig), 0);
    spec.paint = paint_word, spec.seed = tutti_random64(&seed);
    line_call_run(&rig, &spec);
    assert_int_equal(count_exceptions(&rig), 2); /* one of each rank, at the other */
    spec.paint = line_paint_ones;
    line_call_run(&rig, &spec);
    assert_int_equal(count_exceptions(&rig), 2 + 2 * PART / 512);
    /* All of all slots. */
    spec.units = SLOT_BYTES / (16 * 64), spec.count = BLOCKS * SLOT_BYTES;
    for (int slot = 0; slot < 2; slot++) line_call_run(&rig, &spec);
    assert_int_equal(count_exceptions(&rig), 2 * 2 * BLOCKS * SLOT_BYTES / 512);
    rig_close_clean(&rig);
}

/* As rig_plant_lines, exceptions of all words. */
static void plant_exceptions(struct rig *rig, uint32_t slot, uint32_t flag)
{
    const size_t bytes = (size_t)(rig->n - 1) * BLOCKS * SLOT_BYTES / 32;
    uint32_t *words = malloc(bytes);
    assert_non_null(words);
    for (size_t i = 0; i < bytes / 4; i++) words[i] = i % 2 ? flag : ~0u;
    for (uint32_t r = 0; r < rig->n; r++)
        rig_copy(rig, r, rig->scratch[r] + rig->layout.exceptions + slot * bytes, words, bytes);
    free(words);
}

static void test_counts_wrap(void **state)
{
    (void)state;
    static const uint32_t starts[] = {UINT32_C(0x7ffffffe), UINT32_C(0xfffffffe)};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(starts); i++) {
        for (uint32_t n = 2; n <= 4; n++) {
            struct rig rig;
            open_rig(&rig, n);
            rig_set_counts(&rig, starts[i]);
            rig_plant_lines(&rig, 0, 1, &seed);
            rig_plant_lines(&rig, 1, 2, &seed);
            plant_exceptions(&rig, 0, 1);
            plant_exceptions(&rig, 1, 2);
            for (int k = 0; k < 6; k++) {
                const char *protocol = protocols[(k + (int)n) % 2];
                const struct line_spec spec = {.kind = KIND_ALL_TO_ALL,
                                               .protocol = protocol,
                                               .count = k < 2 ? 8 : room(protocol), /* what is small leaves the rest */
                                               .threads = 32,
                                               .units = room(protocol) / (16 * 32),
                                               .seed = tutti_random64(&seed)};
                line_call_run(&rig, &spec);
            }
            for (int k = 0; k < 10; k++) {
                const struct line_spec spec = any_call(n);
                line_call_run(&rig, &spec);
            }
            rig_close_clean(&rig);
        }
    }
}

static void launch_but_last(struct rig *rig, struct line_call *call, const char *protocol, uint64_t timeout_ns)
{
    const struct line_spec spec = {
        .kind = KIND_ALL_GATHER, .protocol = protocol, .count = 3000, .threads = 64, .units = 1};
    line_call_open(call, rig, &spec);
    for (uint32_t r = 0; r < rig->n; r++) {
        call->sides[r].exchange.call.timeout_ns = timeout_ns;
        call->sides[r].exchange.call.seq = 77;
        if (r < rig->n - 1) line_call_launch(call, r);
    }
}

/* One call, the number `count` of all ranks, at whose beginning rank 0 finds that peer 2 has begun `begun`. */
static void call_after(uint32_t count, uint32_t begun, bool goes_on)
{
    const struct line_spec spec = {.kind = KIND_ALL_TO_ALL,
                                   .protocol = "lines",
                                   .count = 3 * 64 * 16,
                                   .threads = 64,
                                   .units = 1,
                                   .seed = tutti_random64(&seed)};
    struct rig rig;
    struct line_call call;
    open_rig(&rig, 3);
    rig_set_counts(&rig, count);
    for (uint32_t b = 0; b < BLOCKS; b++)
        rig_copy(&rig, 0, rig.scratch[0] + rig.layout.begun + 4 * (2 * BLOCKS + b), &begun, 4);
    line_call_open(&call, &rig, &spec);
    for (uint32_t r = 0; r < rig.n; r++) {
        call.sides[r].exchange.call.timeout_ns = r > 0 ? 0 : goes_on ? UINT64_C(10) * 1000000000 : 50 * 1000000;
        line_call_launch(&call, r);
    }
    if (goes_on) {
        rig_sync(&rig);
        line_call_check(&call);
    } else {
        rig_await(&rig);
        assert_int_equal(rig.control->stop, GPU_TIMEOUT);
        assert_int_equal(GPU_REPORT_PEER(rig.control->report), 2);
    }
    line_call_close(&call);
    rig_close(&rig);
}

/* The first warps of a block may have let a peer go on to the next call when the last ones ask; nobody is further. */
static void test_peers_are_a_call_behind_or_ahead(void **state)
{
    (void)state;
    static const uint32_t counts[] = {2, 0, UINT32_C(0x80000000)}; /* calls in which data are all that peers store */
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(counts); i++) {
        call_after(counts[i], counts[i] - 2, false);
        for (uint32_t begun = 0; begun < 3; begun++) call_after(counts[i], counts[i] - 1 + begun, true);
        call_after(counts[i], counts[i] + 2, false);
    }
}

static void test_who_waits_in_vain_says_so(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct rig rig;
        struct line_call call;
        open_rig(&rig, 3);
        launch_but_last(&rig, &call, protocols[k], 50 * 1000000);
        rig_await(&rig);
        assert_int_equal(rig.control->stop, GPU_TIMEOUT);
        assert_int_equal(rig.control->report, GPU_REPORT(77, 2));
        line_call_launch(&call, 2); /* too late: it leaves, whatever it finds */
        rig_await(&rig);
        line_call_close(&call);
        rig_close(&rig);
    }
}

static void test_the_host_stops_who_waits(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct rig rig;
        struct line_call call;
        open_rig(&rig, 3);
        launch_but_last(&rig, &call, protocols[k], 0);
        __atomic_store_n(&rig.control->stop, GPU_STOPPED, __ATOMIC_RELEASE);
        rig_await(&rig);
        assert_int_equal(rig.control->report, 0);
        line_call_close(&call);
        rig_close(&rig);
    }
}

int main(void)
{
    seed = rig_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_and_operation),
        cmocka_unit_test(test_every_kind_and_size),
        cmocka_unit_test(test_every_alignment),
        cmocka_unit_test(test_calls_in_a_row),
        cmocka_unit_test(test_not_a_number),
        cmocka_unit_test(test_slots_change_hands),
        cmocka_unit_test(test_exceptions),
        cmocka_unit_test(test_counts_wrap),
        cmocka_unit_test(test_peers_are_a_call_behind_or_ahead),
        cmocka_unit_test(test_who_waits_in_vain_says_so),
        cmocka_unit_test(test_the_host_stops_who_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
