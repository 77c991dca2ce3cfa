/* SPDX-License-Identifier: BSD-3-Clause */
/* Points of kernels: what they compute, and whether all blocks of a launch run at once. */
#include "prove.h"

#include "backend/gpu/gpu_plan.h"
#include "device/cpu/reduce.h"
#include "device/gpu.h"
#include "device/roll_call.h"

#include <stdio.h>
#include <string.h>

#define ODD 4099                  /* elements of a fold */
#define LOOKS ((uint64_t)1 << 26) /* of a block in vain, where it does not see the host's word */
#define PATIENCE_NS TUTTI_NS_PER_S
#define WAIT_NS (60 * TUTTI_NS_PER_S)

/* ---- folds ---- */

static size_t fold_bytes(enum tutti_dtype dtype)
{
    return ODD * tutti_dtype_bytes(dtype);
}

/* Values whose result is the same however a NaN is written. */
static void operands(enum tutti_dtype dtype, unsigned char *left, unsigned char *right)
{
    const size_t size = tutti_dtype_bytes(dtype);
    for (size_t i = 0; i < ODD; i++) {
        tutti_factor_encode(dtype, (double)(i % 13) + 1, left + i * size);
        tutti_factor_encode(dtype, (double)(i % 7) + 1, right + i * size);
    }
}

static enum tutti_status fold_one(const struct prove_bed *bed, enum tutti_dtype dtype, enum tutti_op op)
{
    static unsigned char expected[ODD * 16];
    const size_t bytes = fold_bytes(dtype);
    unsigned char *left = bed->host, *right = bed->host + PROVE_BYTES / 2, *got = bed->host + PROVE_BYTES;
    const struct tutti_fold fold = {.dtype = dtype,
                                    .op = op,
                                    .dst = bed->at + PROVE_BYTES,
                                    .left = bed->at,
                                    .right = bed->at + PROVE_BYTES / 2,
                                    .n = ODD};
    operands(dtype, left, right);
    TUTTI_TRY(bed->ops->copy(bed->device, bed->at, left, bytes, bed->stream));
    TUTTI_TRY(bed->ops->copy(bed->device, bed->at + PROVE_BYTES / 2, right, bytes, bed->stream));
    TUTTI_TRY(bed->ops->fold(bed->device, &fold, bed->stream));
    TUTTI_TRY(bed->ops->copy(bed->device, got, bed->at + PROVE_BYTES, bytes, bed->stream));
    TUTTI_TRY(bed->ops->stream_sync(bed->device, bed->stream));
    tutti_reduce_find(dtype, op, "auto")(expected, left, right, ODD);
    if (memcmp(expected, got, bytes) == 0) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_INTERNAL, "%s of %s is not what CPUs compute", tutti_op_name(op),
                      tutti_dtype_name(dtype));
}

enum tutti_status prove_folds(const struct tutti_device_ops *kind, struct prove_finding *out)
{
    struct prove_bed bed;
    uint32_t n = 0, n_missing = 0;
    enum tutti_status status = prove_bed_open(kind, 0, &bed);
    if (status < 0) return status;
    for (int dtype = 0; tutti_dtype_is((enum tutti_dtype)dtype) && status >= 0; dtype++) {
        for (int op = 0; op < TUTTI_AVG && status >= 0; op++) {
            if (!tutti_reduce_find((enum tutti_dtype)dtype, (enum tutti_op)op, "auto")) continue;
            status = fold_one(&bed, (enum tutti_dtype)dtype, (enum tutti_op)op);
            n += status >= 0, n_missing += status == TUTTI_ERR_UNSUPPORTED;
            if (status == TUTTI_ERR_UNSUPPORTED) status = TUTTI_OK;
        }
    }
    prove_bed_close(&bed);
    if (status >= 0 && n == 0) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "this build has no kernels");
    snprintf(out->text, sizeof out->text, "%u pairs of a type and an operation as CPUs compute them; %u have no kernel",
             n, n_missing);
    return status;
}

/* ---- all blocks at once ---- */

struct roll {
    const struct prove_bed *bed;
    void *kernel, *event;
    uint32_t blocks, threads;
};

/* The host's word ends it; then the bound on looks; then the driver is left alone. */
static enum tutti_status roll_wait(const struct roll *roll)
{
    const struct prove_bed *bed = roll->bed;
    const uint64_t began_ns = tutti_now_ns();
    enum tutti_status status;
    while ((status = bed->ops->event_query(bed->device, roll->event)) == TUTTI_PENDING) {
        const uint64_t took_ns = tutti_now_ns() - began_ns;
        if (took_ns > PATIENCE_NS) __atomic_store_n((uint32_t *)(void *)bed->host, 1, __ATOMIC_RELEASE);
        if (took_ns > WAIT_NS) return prove_wrong("a kernel that ends by itself had not ended after a minute");
        tutti_sleep_ns(TUTTI_NS_PER_MS);
    }
    return status;
}

/* *least: of the blocks that the others saw. */
static enum tutti_status roll_call(const struct roll *roll, uint64_t *least)
{
    const struct prove_bed *bed = roll->bed;
    const size_t bytes = roll->blocks * sizeof(uint64_t);
    uint64_t *seen = (uint64_t *)(void *)(bed->host + 64);
    const struct gpu_roll_call x = {.here = (uint64_t *)(void *)bed->at,
                                    .seen = (uint64_t *)(void *)(bed->at + 64),
                                    .stop = (const uint32_t *)(const void *)bed->host,
                                    .looks = LOOKS};
    const struct tutti_gpu_launch launch = {.kernel = roll->kernel,
                                            .stream = bed->stream,
                                            .blocks = roll->blocks,
                                            .threads = roll->threads,
                                            .args_bytes = sizeof x};
    struct tutti_device_scope scope;
    memset(bed->host, 0, 64 + bytes);
    TUTTI_TRY(bed->ops->set(bed->device, bed->at, 0, 64 + bytes));
    TUTTI_TRY(tutti_device_enter(bed->device, &scope));
    const enum tutti_status launched = bed->ops->gpu->launch(bed->device, &launch, &x);
    tutti_device_leave(bed->device, &scope);
    TUTTI_TRY(launched);
    TUTTI_TRY(bed->ops->event_record(bed->device, roll->event, bed->stream));
    TUTTI_TRY(roll_wait(roll));
    TUTTI_TRY(bed->ops->copy_now(bed->device, seen, bed->at + 64, bytes));
    for (uint32_t b = 0; b < roll->blocks; b++) *least = seen[b] < *least ? seen[b] : *least;
    return TUTTI_OK;
}

static enum tutti_status resident_of(const struct prove_bed *bed, struct prove_finding *out)
{
    const struct tutti_gpu_ops *gpu = bed->ops->gpu;
    struct roll roll = {.bed = bed, .kernel = gpu ? gpu->kernel(bed->device, "roll_call") : NULL};
    uint64_t least = UINT64_MAX;
    if (!roll.kernel) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "this build has no kernels");
    roll.blocks = gpu_blocks_for(bed->device->n_sms, 1), roll.threads = gpu->tile_threads;
    TUTTI_TRY(bed->ops->event_create(bed->device, false, &roll.event));
    enum tutti_status status = roll_call(&roll, &least);
    bed->ops->event_destroy(bed->device, roll.event);
    if (status < 0) return status;
    snprintf(out->text, sizeof out->text, "%u groups of %u threads on %u units", roll.blocks, roll.threads,
             bed->device->n_sms);
    if (least >= roll.blocks) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_INTERNAL, "of %s %u ran at once", out->text, (unsigned)least);
}

enum tutti_status prove_resident(const struct tutti_device_ops *kind, struct prove_finding *out)
{
    struct prove_bed bed;
    TUTTI_TRY(prove_bed_open(kind, 0, &bed));
    const enum tutti_status status = resident_of(&bed, out);
    prove_bed_close(&bed);
    return status;
}
