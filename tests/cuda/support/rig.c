/* SPDX-License-Identifier: BSD-3-Clause */
/* See rig.h. */
#include "test.h"

#include "cuda/support/rig.h"

#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SKIPPED = 77, MOST_DEVICES = 2 };
#define TIMEOUT_NS (UINT64_C(20) * 1000000000)

static void check(enum tutti_status status, const char *what)
{
    if (status == TUTTI_OK) return;
    fail_msg("%s: %s", what, tutti_last_error()->text);
}
#define OK(call) check(call, #call)

static const struct tutti_device_ops *ops = &tutti_device_cuda;

uint64_t rig_begin(void)
{
    const char *name = getenv("RIG_DEVICE");
    if (name) ops = tutti_device_named(name);
    if (!ops) fail_msg("RIG_DEVICE is %s, which is no kind of devices", name);
    if (ops->absence() != NULL) {
        printf("skipped: no %s device (%s)\n", ops->name, ops->absence());
        exit(SKIPPED);
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* so that a log says in which test a program was ended */
    printf("seed %llu\n", (unsigned long long)test_seed());
    return test_seed();
}

bool rig_is_instrumented(void)
{
    return getenv("TUTTI_TEST_SLOW");
}

bool rig_is_slow(void)
{
    return getenv("TUTTI_CUDA_DRIVER") || getenv("TUTTI_LEVEL_ZERO_LIBRARY") || rig_is_instrumented();
}

uint32_t rig_times(uint32_t on_device, uint32_t slow, uint32_t sampled)
{
    return !rig_is_slow() ? on_device : test_is_sampled() ? sampled : slow;
}

uint32_t rig_devices(void)
{
    if (ops->count() < MOST_DEVICES) return 1;
    struct tutti_device *a, *b;
    OK(ops->open(0, &a));
    OK(ops->open(1, &b));
    const bool both = ops->gpu->may_reach(a, b->uuid) && ops->gpu->may_reach(b, a->uuid);
    ops->close(b);
    ops->close(a);
    return both ? MOST_DEVICES : 1;
}

static uint64_t take(uint64_t *end, uint64_t bytes)
{
    const uint64_t at = *end;
    *end = (at + bytes + 255) / 256 * 256;
    return at;
}

void rig_lay_out(const struct rig_shape *shape, struct gpu_layout *l)
{
    const uint64_t cells = (uint64_t)shape->n * shape->n_blocks;
    const uint64_t rings = shape->n > 1 ? cells - shape->n_blocks : shape->n_blocks; /* the others' */
    uint64_t end = 0;
    *l = (struct gpu_layout){.n_blocks = shape->n_blocks,
                             .line_bytes = shape->line_bytes,
                             .sentinel_bytes = shape->sentinel_bytes,
                             .tile_bytes = shape->tile_bytes,
                             .n_tiles = shape->n_tiles};
    l->sentinels = take(&end, 2 * rings * shape->sentinel_bytes);
    l->lines = take(&end, 2 * rings * 2 * shape->line_bytes);
    l->exceptions = take(&end, 2 * rings * shape->sentinel_bytes / 32);
    l->tiles = take(&end, rings * shape->n_tiles * shape->tile_bytes);
    l->begun = take(&end, cells * sizeof(uint32_t));
    l->called = take(&end, shape->n_blocks * sizeof(uint64_t));
    l->arrived = take(&end, cells * sizeof(uint32_t));
    l->returned = take(&end, cells * sizeof(uint32_t));
    l->sent = take(&end, cells * sizeof(uint64_t));
    l->received = take(&end, cells * sizeof(uint64_t));
    l->directs = take(&end, shape->n_blocks * sizeof(uint32_t));
    l->landed = take(&end, cells * sizeof(uint32_t));
    l->relayed = take(&end, (uint64_t)shape->n_blocks * (GPU_DIRECT_THREADS / 32) * sizeof(uint64_t));
    l->agreements = take(&end, shape->n_blocks * sizeof(uint32_t));
    l->ways = take(&end, 2 * sizeof(uint64_t));
    l->posts = take(&end, (uint64_t)2 * shape->n * GPU_POST_BYTES);
    l->met = take(&end, shape->n * sizeof(uint32_t));
    l->met_own = take(&end, sizeof(uint32_t));
    l->asked = take(&end, sizeof(uint64_t));
    l->stopped = take(&end, sizeof(uint32_t));
    l->bytes = end;
}

/* What the host's watch does for devices that have no clock. */
static void *tick(void *arg)
{
    struct rig *rig = arg;
    while (!atomic_load(&rig->over)) {
        __atomic_store_n(&rig->control->now_ns, tutti_now_ns(), __ATOMIC_RELEASE);
        tutti_sleep_ns(TUTTI_NS_PER_MS);
    }
    return NULL;
}

void rig_open(struct rig *rig, const struct rig_shape *shape)
{
    *rig = (struct rig){.n = shape->n};
    rig_lay_out(shape, &rig->layout);
    const uint32_t n_devices = shape->n_devices ? shape->n_devices : 1;
    for (uint32_t r = 0; r < rig->n; r++) {
        OK(ops->open((int32_t)(r % n_devices), &rig->gpus[r]));
        for (uint32_t q = 0; q < r; q++) {
            OK(ops->reach(rig->gpus[r], rig->gpus[q]));
            OK(ops->reach(rig->gpus[q], rig->gpus[r]));
        }
        void *scratch;
        OK(ops->alloc(rig->gpus[r], rig->layout.bytes, &scratch));
        OK(ops->set(rig->gpus[r], scratch, 0, rig->layout.bytes));
        OK(ops->set(rig->gpus[r], scratch, 0xff, rig->layout.lines)); /* sentinels come first */
        rig->scratch[r] = scratch;
        OK(ops->stream_create(rig->gpus[r], &rig->streams[r]));
    }
    void *control;
    OK(ops->alloc_host(rig->gpus[0], sizeof *rig->control, &control));
    rig->control = control;
    assert_int_equal(pthread_create(&rig->clock, NULL, tick, rig), 0);
}

void rig_close(struct rig *rig)
{
    atomic_store(&rig->over, true);
    pthread_join(rig->clock, NULL);
    ops->free_host(rig->gpus[0], rig->control);
    for (uint32_t r = 0; r < rig->n; r++) {
        ops->stream_destroy(rig->gpus[r], rig->streams[r]);
        ops->free(rig->gpus[r], rig->scratch[r]);
    }
    for (uint32_t r = 0; r < rig->n; r++) ops->close(rig->gpus[r]);
}

void rig_close_clean(struct rig *rig)
{
    const size_t slot = rig->layout.sentinel_bytes, bytes = (size_t)2 * (rig->n - 1) * rig->layout.n_blocks * slot;
    unsigned char *got = malloc(bytes + 1);
    assert_non_null(got);
    for (uint32_t r = 0; r < rig->n; r++) {
        rig_copy(rig, r, got, rig->scratch[r] + rig->layout.sentinels, bytes);
        for (size_t i = 0; i < bytes; i++)
            if (got[i] != 0xff) fail_msg("something is left at byte %zu of a slot of rank %u", i % slot, r);
    }
    free(got);
    rig_close(rig);
}

struct gpu_call rig_call(const struct rig *rig, uint32_t me)
{
    struct gpu_call call = {.control = rig->control,
                            .layout = rig->layout,
                            .n = rig->n,
                            .me = me,
                            .seq = rig->seq,
                            .timeout_ns = rig_is_slow() ? TIMEOUT_NS * 10 : TIMEOUT_NS};
    memcpy(call.base, rig->scratch, sizeof call.base);
    return call;
}

void *rig_kernel(const struct rig *rig, uint32_t me, const char *protocol, const char *reducer)
{
    for (uint32_t most = 2; most <= GPU_MAX_RANKS; most *= 2) {
        char name[64];
        snprintf(name, sizeof name, "%s_%s_%u", protocol, reducer, most);
        void *kernel = most >= rig->n ? ops->gpu->kernel(rig->gpus[me], name) : NULL;
        if (kernel) return kernel;
    }
    fail_msg("there is no kernel %s_%s for %u ranks", protocol, reducer, rig->n);
    return NULL;
}

void rig_launch_as(const struct rig *rig, uint32_t me, struct tutti_gpu_launch launch, const void *args)
{
    struct tutti_device_scope scope;
    launch.stream = rig->streams[me];
    assert_non_null(launch.kernel);
    OK(tutti_device_enter(rig->gpus[me], &scope));
    OK(ops->gpu->launch(rig->gpus[me], &launch, args));
    tutti_device_leave(rig->gpus[me], &scope);
}

static void widen(uint32_t *blocks, const struct gpu_exchange *x, uint64_t bytes)
{
    const uint32_t needed = gpu_tile_blocks(bytes, x->call.layout.tile_bytes, x->call.layout.n_blocks);
    if (needed > *blocks) *blocks = needed;
}

void rig_launch_tiles(const struct rig *rig, const struct gpu_exchange *x, const char *reducer)
{
    uint32_t blocks = 0;
    for (uint32_t q = 0; q < rig->n; q++) {
        widen(&blocks, x, x->send[q].bytes);
        widen(&blocks, x, x->recv[q].bytes);
    }
    if (blocks == 0) return;
    rig_launch(rig, x->call.me, rig_kernel(rig, x->call.me, "tiles", reducer), blocks, GPU_TILE_THREADS, x);
}

void rig_await(const struct rig *rig)
{
    for (uint32_t r = 0; r < rig->n; r++) OK(ops->stream_sync(rig->gpus[r], rig->streams[r]));
}

void rig_sync(struct rig *rig)
{
    rig_await(rig);
    if (rig->control->stop)
        fail_msg("a wait for rank %u ended with %u in call %llu", GPU_REPORT_PEER(rig->control->report),
                 rig->control->stop, (unsigned long long)GPU_REPORT_SEQ(rig->control->report));
    rig->seq++;
}

void *rig_alloc(const struct rig *rig, uint32_t me, size_t bytes)
{
    void *pointer;
    OK(ops->alloc(rig->gpus[me], bytes, &pointer));
    return pointer;
}

void rig_free(const struct rig *rig, uint32_t me, void *pointer)
{
    ops->free(rig->gpus[me], pointer);
}

void rig_copy(const struct rig *rig, uint32_t me, void *dst, const void *src, size_t bytes)
{
    OK(ops->copy_now(rig->gpus[me], dst, src, bytes));
}

void rig_set_counts(const struct rig *rig, uint32_t count)
{
    const struct gpu_layout *layout = &rig->layout;
    const uint64_t called = count;
    for (uint32_t r = 0; r < rig->n; r++) {
        for (uint32_t b = 0; b < layout->n_blocks; b++) {
            rig_copy(rig, r, rig->scratch[r] + layout->called + 8 * b, &called, 8);
            for (uint32_t q = 0; q < rig->n; q++)
                rig_copy(rig, r, rig->scratch[r] + layout->begun + 4 * (q * layout->n_blocks + b), &count, 4);
        }
    }
}

void rig_plant_lines(const struct rig *rig, uint32_t slot, uint32_t flag, uint64_t *seed)
{
    const size_t bytes = (size_t)(rig->n - 1) * rig->layout.n_blocks * 2 * rig->layout.line_bytes;
    uint32_t *words = malloc(bytes);
    assert_non_null(words);
    for (size_t i = 0; i < bytes / 4; i++) words[i] = i % 2 ? flag : (uint32_t)tutti_random64(seed);
    for (uint32_t r = 0; r < rig->n; r++)
        rig_copy(rig, r, rig->scratch[r] + rig->layout.lines + slot * bytes, words, bytes);
    free(words);
}
