/* SPDX-License-Identifier: BSD-3-Clause */
/* What stands around copy engines: meetings of all ranks, and folds of chunks that lie on one device. */
#include "cuda/support/rig.h"
#include "reference.h"

#include "base/base.h"

#include <string.h>

enum { BYTES = 3000, ROUNDS = 5, THREADS = 96, BLOCKS = 3, EDGE = 32 };

static uint64_t seed;
static const uint32_t teams[] = {1, 2, 3, 4, 8, 16};

static void open_rig(struct rig *rig, uint32_t n, uint32_t n_devices)
{
    rig_open(rig, &(struct rig_shape){
                      .n = n, .n_blocks = 1, .tile_bytes = GPU_LEAST_TILE, .n_tiles = 2, .n_devices = n_devices});
}

static void copy(const struct rig *rig, uint32_t r, void *dst, const void *src)
{
    struct tutti_device_scope scope;
    assert_int_equal(tutti_device_enter(rig->gpus[r], &scope), TUTTI_OK);
    assert_int_equal(rig->gpus[r]->ops->copy(rig->gpus[r], dst, src, BYTES, rig->streams[r]), TUTTI_OK);
    tutti_device_leave(rig->gpus[r], &scope);
}

/* In each round all write to the next rank's mailbox, meet, read their own, and meet again before the next round. */
static void meet_in_rounds(struct rig *rig)
{
    char *mailbox[GPU_MAX_RANKS], *letters[GPU_MAX_RANKS], *kept[GPU_MAX_RANKS];
    unsigned char text[BYTES], got[BYTES];
    for (uint32_t r = 0; r < rig->n; r++) {
        mailbox[r] = rig_alloc(rig, r, BYTES);
        letters[r] = rig_alloc(rig, r, BYTES * ROUNDS);
        kept[r] = rig_alloc(rig, r, BYTES * ROUNDS);
        for (int i = 0; i < ROUNDS; i++) {
            memset(text, (int)(17 * r) + i + 1, BYTES);
            rig_copy(rig, r, letters[r] + i * BYTES, text, BYTES);
        }
    }
    for (int i = 0; i < ROUNDS; i++) {
        for (uint32_t r = 0; r < rig->n; r++) {
            const struct gpu_meeting x = {.call = rig_call(rig, r)};
            void *kernel = rig->gpus[r]->ops->gpu->kernel(rig->gpus[r], "meet");
            copy(rig, r, mailbox[(r + 1) % rig->n], letters[r] + i * BYTES);
            rig_launch(rig, r, kernel, 1, 32, &x);
            copy(rig, r, kept[r] + i * BYTES, mailbox[r]);
            rig_launch(rig, r, kernel, 1, 32, &x);
        }
    }
    rig_sync(rig);
    for (uint32_t r = 0; r < rig->n; r++) {
        for (int i = 0; i < ROUNDS; i++) {
            memset(text, (int)(17 * ((r + rig->n - 1) % rig->n)) + i + 1, BYTES);
            rig_copy(rig, r, got, kept[r] + i * BYTES, BYTES);
            assert_memory_equal(got, text, BYTES);
        }
        rig_free(rig, r, mailbox[r]);
        rig_free(rig, r, letters[r]);
        rig_free(rig, r, kept[r]);
    }
}

static void test_meetings_order_copies(void **state)
{
    (void)state;
    if (rig_is_instrumented()) skip(); /* there, who enqueues a copy waits for the kernels before it */
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(teams); i++) {
        struct rig rig;
        open_rig(&rig, teams[i], teams[i] % 2 ? 1 : rig_devices());
        const uint32_t late = UINT32_MAX - 2; /* the counts wrap on the way */
        for (uint32_t r = 0; r < rig.n; r++) {
            rig_copy(&rig, r, rig.scratch[r] + rig.layout.met_own, &late, sizeof late);
            for (uint32_t q = 0; q < rig.n; q++)
                rig_copy(&rig, r, rig.scratch[r] + rig.layout.met + q * sizeof late, &late, sizeof late);
        }
        meet_in_rounds(&rig);
        rig_close(&rig);
    }
}

static void test_who_does_not_come_is_named(void **state)
{
    (void)state;
    struct rig rig;
    open_rig(&rig, 3, 1);
    for (uint32_t r = 0; r < 2; r++) {
        struct gpu_meeting x = {.call = rig_call(&rig, r)};
        x.call.timeout_ns = 1000 * 1000000; /* the other one of the two has come by then */
        rig_launch(&rig, r, rig.gpus[r]->ops->gpu->kernel(rig.gpus[r], "meet"), 1, 32, &x);
    }
    rig_await(&rig);
    assert_int_equal(rig.control->stop, GPU_TIMEOUT);
    assert_int_equal(GPU_REPORT_PEER(rig.control->report), 2);
    rig_close(&rig);
}

/* Chunks of rank `me` and of others, at any address, folded by rank `me`'s device; exact data. */
static void fold(const struct rig *rig, enum tutti_dtype dtype, enum tutti_op op, const char *reducer)
{
    static unsigned char host[GPU_MAX_RANKS][BYTES], want[BYTES + 2 * EDGE], got[BYTES + 2 * EDGE];
    static const unsigned char ones[16] = {1};
    unsigned char factor[16];
    const size_t size = ref_bytes(dtype), n = 1 + tutti_random64(&seed) % (BYTES / size);
    const uint64_t data = tutti_random64(&seed);
    const void *inputs[GPU_MAX_RANKS];
    struct gpu_fold x = {.call = rig_call(rig, rig->n - 1), .bytes = n * size};
    memcpy(factor, ones, sizeof factor);
    if (dtype > TUTTI_BOOL && dtype < TUTTI_COMPLEX64) ref_encode(dtype, 2, factor);
    if (dtype >= TUTTI_COMPLEX64) {
        memset(factor, 0, sizeof factor);
        ref_encode(dtype == TUTTI_COMPLEX64 ? TUTTI_FLOAT32 : TUTTI_FLOAT64, 2, factor);
    }
    char *chunks = rig_alloc(rig, x.call.me, rig->n * (BYTES + 16)), *out = rig_alloc(rig, x.call.me, sizeof got);
    x.call.op = op;
    x.call.divisor = op == TUTTI_AVG ? rig->n : 0;
    x.call.scales = op == TUTTI_PREMUL_SUM;
    memcpy(x.call.factor, factor, sizeof factor);
    for (uint32_t q = 0; q < rig->n; q++) {
        char *at = chunks + q * (BYTES + 16) + tutti_random64(&seed) % (16 / size) * size;
        ref_fill_exact(dtype, op, data, q, rig->n, host[q], n);
        rig_copy(rig, x.call.me, at, host[q], n * size);
        /* the others have multiplied theirs before: they sent what the copies brought */
        if (x.call.scales && q != x.call.me) {
            ref_scale(dtype, host[q], n, factor);
            rig_copy(rig, x.call.me, at, host[q], n * size);
        }
        inputs[q] = host[q];
        x.from[q] = at;
    }
    memset(want, 0x5a, sizeof want);
    rig_copy(rig, x.call.me, out, want, sizeof want);
    x.out = out + EDGE;
    if (x.call.scales) ref_scale(dtype, host[x.call.me], n, factor);
    ref_reduce(dtype, x.call.scales ? TUTTI_SUM : op, inputs, rig->n, n, factor, want + EDGE);
    rig_launch(rig, x.call.me, rig_kernel(rig, x.call.me, "fold", reducer), BLOCKS, THREADS, &x);
    assert_int_equal(rig->gpus[x.call.me]->ops->stream_sync(rig->gpus[x.call.me], rig->streams[x.call.me]), TUTTI_OK);
    rig_copy(rig, x.call.me, got, out, sizeof got);
    for (size_t i = 0; i < sizeof got; i++) {
        if (got[i] != want[i])
            fail_msg("%s, %s of %u: byte %zd of %zu is %u, not %u", reducer, tutti_op_name(op), rig->n,
                     (ptrdiff_t)i - EDGE, n * size, got[i], want[i]);
    }
    rig_free(rig, x.call.me, chunks);
    rig_free(rig, x.call.me, out);
}

static void test_folds(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(teams); i++) {
        struct rig rig;
        open_rig(&rig, teams[i], 1);
        for (int t = 0; t < TUTTI_N_DTYPES; t++) {
            for (int op = 0; op < TUTTI_N_OPS; op++) {
                const enum tutti_dtype dtype = (enum tutti_dtype)t;
                if (ref_defined(dtype, (enum tutti_op)op))
                    fold(&rig, dtype, (enum tutti_op)op, tutti_dtype_name(dtype));
            }
        }
        fold(&rig, TUTTI_FLOAT32, TUTTI_SUM, "float32_sum");
        fold(&rig, TUTTI_FLOAT16, TUTTI_AVG, "float16_sum");
        fold(&rig, TUTTI_BFLOAT16, TUTTI_PREMUL_SUM, "bfloat16_sum");
        rig_close(&rig);
    }
}

int main(void)
{
    seed = rig_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meetings_order_copies),
        cmocka_unit_test(test_who_does_not_come_is_named),
        cmocka_unit_test(test_folds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
