/* SPDX-License-Identifier: BSD-3-Clause */
/* Points of one process: what device/device.h promises, on the first device. */
#include "prove.h"

#include "device/cpu/reduce.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES ((size_t)1 << 20)
#define ODD 4099 /* elements of a fold */
#define WAIT_NS (10 * TUTTI_NS_PER_S)

static enum tutti_status wrong(const char *what)
{
    return tutti_fail(TUTTI_ERR_INTERNAL, "%s", what);
}

static void fill(unsigned char *at, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i++) at[i] = (unsigned char)(tutti_mix64(seed + i / 8) >> i % 8 * 8);
}

/* A device, a stream, and memory on both sides: of two such pieces. */
struct bed {
    const struct tutti_device_ops *ops;
    struct tutti_device *device;
    void *stream;
    unsigned char *host, *at; /* 2 * BYTES each; host: pinned */
};

static void bed_close(struct bed *bed)
{
    if (!bed->device) return;
    if (bed->at) bed->ops->free(bed->device, bed->at);
    if (bed->host) bed->ops->free_host(bed->device, bed->host);
    if (bed->stream) bed->ops->stream_destroy(bed->device, bed->stream);
    bed->ops->close(bed->device);
}

static enum tutti_status bed_open(const struct tutti_device_ops *kind, int32_t ordinal, struct bed *bed)
{
    void *memory = NULL;
    *bed = (struct bed){.ops = kind};
    TUTTI_TRY(kind->open(ordinal, &bed->device));
    enum tutti_status status = kind->stream_create(bed->device, &bed->stream);
    if (status >= 0) status = kind->alloc_host(bed->device, 2 * BYTES, &memory), bed->host = memory, memory = NULL;
    if (status >= 0) status = kind->alloc(bed->device, 2 * BYTES, &memory), bed->at = memory;
    if (status < 0) bed_close(bed);
    return status;
}

enum tutti_status prove_driver(const struct tutti_device_ops *kind, struct prove_finding *out)
{
    struct tutti_device_facts facts;
    struct bed bed;
    TUTTI_TRY(kind->facts(0, &facts));
    TUTTI_TRY(bed_open(kind, 0, &bed));
    snprintf(out->text, sizeof out->text, "%u devices, driver %d; %s, %u units, %.1f GiB", kind->count(),
             kind->driver_version(), facts.name, facts.n_sms, (double)facts.memory_bytes / 0x1p30);
    bed_close(&bed);
    return TUTTI_OK;
}

static enum tutti_status memory_of(const struct bed *bed)
{
    const struct tutti_device_ops *ops = bed->ops;
    unsigned char *back = bed->host + BYTES;
    fill(bed->host, BYTES, 1);
    if (ops->of(bed->at + 100) != bed->device->ordinal) return wrong("a pointer to its memory is not known as such");
    if (ops->of(bed->host) != -1) return wrong("pinned memory of the host is taken for the device's");
    TUTTI_TRY(ops->holds(bed->device, bed->at, BYTES));
    TUTTI_TRY(ops->copy_now(bed->device, bed->at + 3, bed->host, BYTES));
    TUTTI_TRY(ops->copy_now(bed->device, back, bed->at + 3, BYTES));
    if (memcmp(bed->host, back, BYTES) != 0) return wrong("what was copied there and back is not the same");
    TUTTI_TRY(ops->set(bed->device, bed->at, 0xa5, BYTES));
    TUTTI_TRY(ops->copy_now(bed->device, back, bed->at, BYTES));
    for (size_t i = 0; i < BYTES; i++)
        if (back[i] != 0xa5) return wrong("memory that was set has other bytes");
    return TUTTI_OK;
}

static enum tutti_status on_bed(const struct tutti_device_ops *kind, enum tutti_status (*point)(const struct bed *bed))
{
    struct bed bed;
    TUTTI_TRY(bed_open(kind, 0, &bed));
    const enum tutti_status status = point(&bed);
    bed_close(&bed);
    return status;
}

enum tutti_status prove_memory(const struct tutti_device_ops *kind, struct prove_finding *out)
{
    snprintf(out->text, sizeof out->text, "1 MiB there and back, what a pointer is");
    return on_bed(kind, memory_of);
}

/* ---- order ---- */

static enum tutti_status until_over(const struct bed *bed, void *event)
{
    const uint64_t until_ns = tutti_deadline_ns(WAIT_NS);
    enum tutti_status status;
    while ((status = bed->ops->event_query(bed->device, event)) == TUTTI_PENDING)
        if (tutti_now_ns() > until_ns) return wrong("an event does not come to its end");
    return status;
}

/* Copies one behind another, and on another stream behind an event. */
static enum tutti_status tied(const struct bed *bed, void *other, void *event)
{
    const struct tutti_device_ops *ops = bed->ops;
    for (uint64_t turn = 0; turn < 50; turn++) {
        fill(bed->host, BYTES, turn);
        memset(bed->host + BYTES, 0, BYTES);
        TUTTI_TRY(ops->copy(bed->device, bed->at, bed->host, BYTES, bed->stream));
        TUTTI_TRY(ops->copy(bed->device, bed->at + BYTES, bed->at, BYTES, bed->stream));
        TUTTI_TRY(ops->event_record(bed->device, event, bed->stream));
        TUTTI_TRY(ops->stream_wait(bed->device, other, event));
        TUTTI_TRY(ops->copy(bed->device, bed->host + BYTES, bed->at + BYTES, BYTES, other));
        TUTTI_TRY(ops->event_record(bed->device, event, other));
        TUTTI_TRY(until_over(bed, event));
        if (memcmp(bed->host, bed->host + BYTES, BYTES) != 0) return wrong("copies did not come in their order");
    }
    return TUTTI_OK;
}

static enum tutti_status order_of(const struct bed *bed)
{
    void *other = NULL, *event = NULL;
    enum tutti_status status = bed->ops->stream_create(bed->device, &other);
    if (status >= 0) status = bed->ops->event_create(bed->device, false, &event);
    if (status >= 0) status = tied(bed, other, event);
    if (event) bed->ops->event_destroy(bed->device, event);
    if (other) bed->ops->stream_destroy(bed->device, other);
    return status;
}

enum tutti_status prove_order(const struct tutti_device_ops *kind, struct prove_finding *out)
{
    snprintf(out->text, sizeof out->text, "50 times three copies on two streams, tied by an event");
    return on_bed(kind, order_of);
}

/* ---- what waits for the host, and calls it ---- */

static void count(void *arg)
{
    atomic_fetch_add((_Atomic uint32_t *)arg, 1);
}

static enum tutti_status gated(const struct bed *bed, uint32_t *word, _Atomic uint32_t *called)
{
    const uint64_t until_ns = tutti_deadline_ns(WAIT_NS);
    TUTTI_TRY(bed->ops->stream_wait_word(bed->device, bed->stream, word, 1));
    TUTTI_TRY(bed->ops->host_call(bed->device, bed->stream, count, called));
    tutti_sleep_ns(20 * TUTTI_NS_PER_MS);
    if (atomic_load(called) != 0) return wrong("a stream went on before the word that it was to wait for");
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    while (atomic_load(called) == 0)
        if (tutti_now_ns() > until_ns) return wrong("a stream does not see a word that the host wrote");
    return bed->ops->stream_sync(bed->device, bed->stream);
}

static enum tutti_status words_of(const struct bed *bed)
{
    _Atomic uint32_t called = 0;
    memset(bed->host, 0, 64);
    return gated(bed, (uint32_t *)(void *)bed->host, &called);
}

enum tutti_status prove_words(const struct tutti_device_ops *kind, struct prove_finding *out)
{
    snprintf(out->text, sizeof out->text, "a stream waits for a word of the host, and calls a function of it");
    return on_bed(kind, words_of);
}

/* ---- kernels ---- */

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

static enum tutti_status fold_one(const struct bed *bed, enum tutti_dtype dtype, enum tutti_op op)
{
    static unsigned char expected[ODD * 16];
    const size_t bytes = fold_bytes(dtype);
    unsigned char *left = bed->host, *right = bed->host + BYTES / 2, *got = bed->host + BYTES;
    const struct tutti_fold fold = {dtype, op, bed->at + BYTES, bed->at, bed->at + BYTES / 2, ODD};
    operands(dtype, left, right);
    TUTTI_TRY(bed->ops->copy(bed->device, bed->at, left, bytes, bed->stream));
    TUTTI_TRY(bed->ops->copy(bed->device, bed->at + BYTES / 2, right, bytes, bed->stream));
    TUTTI_TRY(bed->ops->fold(bed->device, &fold, bed->stream));
    TUTTI_TRY(bed->ops->copy(bed->device, got, bed->at + BYTES, bytes, bed->stream));
    TUTTI_TRY(bed->ops->stream_sync(bed->device, bed->stream));
    tutti_reduce_find(dtype, op, "auto")(expected, left, right, ODD);
    if (memcmp(expected, got, bytes) == 0) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_INTERNAL, "%s of %s is not what CPUs compute", tutti_op_name(op),
                      tutti_dtype_name(dtype));
}

enum tutti_status prove_folds(const struct tutti_device_ops *kind, struct prove_finding *out)
{
    struct bed bed;
    uint32_t n = 0, n_missing = 0;
    enum tutti_status status = bed_open(kind, 0, &bed);
    if (status < 0) return status;
    for (int dtype = 0; dtype < TUTTI_N_DTYPES && status >= 0; dtype++) {
        for (int op = 0; op < TUTTI_AVG && status >= 0; op++) {
            if (!tutti_reduce_find((enum tutti_dtype)dtype, (enum tutti_op)op, "auto")) continue;
            status = fold_one(&bed, (enum tutti_dtype)dtype, (enum tutti_op)op);
            n += status >= 0, n_missing += status == TUTTI_ERR_UNSUPPORTED;
            if (status == TUTTI_ERR_UNSUPPORTED) status = TUTTI_OK;
        }
    }
    bed_close(&bed);
    if (status >= 0 && n == 0) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "this build has no kernels");
    snprintf(out->text, sizeof out->text, "%u pairs of a type and an operation as CPUs compute them; %u have no kernel",
             n, n_missing);
    return status;
}

/* ---- other devices of this process ---- */

static enum tutti_status peer_copy(const struct bed *one, const struct bed *two)
{
    fill(one->host, BYTES, (uint64_t)one->device->ordinal << 8 | (uint64_t)two->device->ordinal);
    TUTTI_TRY(one->ops->reach(one->device, two->device));
    TUTTI_TRY(one->ops->copy(one->device, one->at, one->host, BYTES, one->stream));
    TUTTI_TRY(one->ops->copy(one->device, two->at, one->at, BYTES, one->stream));
    TUTTI_TRY(one->ops->copy(one->device, one->at + BYTES, two->at, BYTES, one->stream));
    TUTTI_TRY(one->ops->stream_sync(one->device, one->stream));
    TUTTI_TRY(two->ops->copy_now(two->device, two->host, two->at, BYTES));
    TUTTI_TRY(one->ops->copy_now(one->device, one->host + BYTES, one->at + BYTES, BYTES));
    if (memcmp(one->host, two->host, BYTES) != 0) return wrong("what was written to the other device is not there");
    if (memcmp(one->host, one->host + BYTES, BYTES) != 0) return wrong("what was read from the other device differs");
    return TUTTI_OK;
}

static enum tutti_status pair(const struct tutti_device_ops *kind, int32_t one, int32_t two)
{
    struct bed a, b;
    TUTTI_TRY(bed_open(kind, one, &a));
    enum tutti_status status = bed_open(kind, two, &b);
    if (status >= 0) {
        status = peer_copy(&a, &b);
        bed_close(&b);
    }
    bed_close(&a);
    if (status >= 0) return status;
    const struct tutti_error why = *tutti_last_error();
    return tutti_fail(why.status == TUTTI_ERR_UNSUPPORTED ? TUTTI_ERR_INTERNAL : why.status,
                      "device %d and device %d: %.200s", (int)one, (int)two, why.text);
}

enum tutti_status prove_peers(const struct tutti_device_ops *kind, struct prove_finding *out)
{
    const int32_t n = (int32_t)kind->count();
    uint32_t n_pairs = 0;
    if (n < 2) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "there is one device");
    for (int32_t one = 0; one < n; one++) {
        for (int32_t two = 0; two < n; two++) {
            if (one == two || !kind->reaches(one, two)) continue;
            TUTTI_TRY(pair(kind, one, two));
            n_pairs++;
        }
    }
    if (n_pairs == 0) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "no device reaches another one, as the driver says");
    snprintf(out->text, sizeof out->text, "%u pairs of devices wrote and read 1 MiB of one another", n_pairs);
    return TUTTI_OK;
}
