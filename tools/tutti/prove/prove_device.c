/* SPDX-License-Identifier: BSD-3-Clause */
/* Points of one process: what device/device.h promises, on the first device. */
#include "prove.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define WAIT_NS (10 * TUTTI_NS_PER_S)

enum tutti_status prove_driver(const struct tutti_device_ops *kind, struct prove_finding *out)
{
    struct tutti_device_facts facts;
    struct prove_bed bed;
    TUTTI_TRY(kind->facts(0, &facts));
    TUTTI_TRY(prove_bed_open(kind, 0, &bed));
    snprintf(out->text, sizeof out->text, "%u devices, driver %d; %s, %u units, %.1f GiB", kind->count(),
             kind->driver_version(), facts.name, facts.n_sms, (double)facts.memory_bytes / 0x1p30);
    prove_bed_close(&bed);
    return TUTTI_OK;
}

static enum tutti_status memory_of(const struct prove_bed *bed)
{
    const struct tutti_device_ops *ops = bed->ops;
    unsigned char *back = bed->host + PROVE_BYTES;
    prove_fill(bed->host, 1);
    if (ops->of(bed->at + 100) != bed->device->ordinal)
        return prove_wrong("a pointer to its memory is not known as such");
    if (ops->of(bed->host) != -1) return prove_wrong("pinned memory of the host is taken for the device's");
    TUTTI_TRY(ops->holds(bed->device, bed->at, PROVE_BYTES));
    TUTTI_TRY(ops->copy_now(bed->device, bed->at + 3, bed->host, PROVE_BYTES));
    TUTTI_TRY(ops->copy_now(bed->device, back, bed->at + 3, PROVE_BYTES));
    if (memcmp(bed->host, back, PROVE_BYTES) != 0) return prove_wrong("what was copied there and back is not the same");
    TUTTI_TRY(ops->set(bed->device, bed->at, 0xa5, PROVE_BYTES));
    TUTTI_TRY(ops->copy_now(bed->device, back, bed->at, PROVE_BYTES));
    for (size_t i = 0; i < PROVE_BYTES; i++)
        if (back[i] != 0xa5) return prove_wrong("memory that was set has other bytes");
    return TUTTI_OK;
}

enum tutti_status prove_memory(const struct tutti_device_ops *kind, struct prove_finding *out)
{
    snprintf(out->text, sizeof out->text, "1 MiB there and back, what a pointer is");
    return prove_on_bed(kind, memory_of);
}

/* ---- order ---- */

/* A copy, a kernel (where there is one) or a copy behind it, and on another stream behind an event a copy. */
static enum tutti_status tied(const struct prove_bed *bed, void *other, void *event)
{
    const struct tutti_device_ops *ops = bed->ops;
    for (uint64_t turn = 0; turn < 50; turn++) {
        prove_fill(bed->host, turn);
        memset(bed->host + PROVE_BYTES, 0, PROVE_BYTES);
        TUTTI_TRY(ops->copy(bed->device, bed->at, bed->host, PROVE_BYTES, bed->stream));
        TUTTI_TRY(prove_move(bed, turn % 5 == 4, bed->at + PROVE_BYTES, bed->at, bed->stream));
        TUTTI_TRY(ops->event_record(bed->device, event, bed->stream));
        TUTTI_TRY(ops->stream_wait(bed->device, other, event));
        TUTTI_TRY(ops->copy(bed->device, bed->host + PROVE_BYTES, bed->at + PROVE_BYTES, PROVE_BYTES, other));
        TUTTI_TRY(ops->event_record(bed->device, event, other));
        TUTTI_TRY(prove_until_over(bed, event));
        if (memcmp(bed->host, bed->host + PROVE_BYTES, PROVE_BYTES) != 0)
            return prove_wrong(turn % 5 == 4 ? "a kernel between two copies did not come in its order"
                                             : "copies did not come in their order");
    }
    return TUTTI_OK;
}

static enum tutti_status order_of(const struct prove_bed *bed)
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
    snprintf(out->text, sizeof out->text, "50 times copies and kernels on two streams, tied by an event");
    return prove_on_bed(kind, order_of);
}

/* ---- what waits for the host, and calls it ---- */

static void count(void *arg)
{
    atomic_fetch_add((_Atomic uint32_t *)arg, 1);
}

static enum tutti_status gated(const struct prove_bed *bed, uint32_t *word, _Atomic uint32_t *called)
{
    const uint64_t until_ns = tutti_deadline_ns(WAIT_NS);
    TUTTI_TRY(bed->ops->stream_wait_word(bed->device, bed->stream, word, 1));
    TUTTI_TRY(bed->ops->host_call(bed->device, bed->stream, count, called));
    tutti_sleep_ns(20 * TUTTI_NS_PER_MS);
    if (atomic_load(called) != 0) return prove_wrong("a stream went on before the word that it was to wait for");
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    while (atomic_load(called) == 0)
        if (tutti_now_ns() > until_ns) return prove_wrong("a stream does not see a word that the host wrote");
    return bed->ops->stream_sync(bed->device, bed->stream);
}

static enum tutti_status words_of(const struct prove_bed *bed)
{
    _Atomic uint32_t called = 0;
    memset(bed->host, 0, 64);
    return gated(bed, (uint32_t *)(void *)bed->host, &called);
}

enum tutti_status prove_words(const struct tutti_device_ops *kind, struct prove_finding *out)
{
    snprintf(out->text, sizeof out->text, "a stream waits for a word of the host, and calls a function of it");
    return prove_on_bed(kind, words_of);
}

/* ---- other devices of this process ---- */

/* By copies, or by a kernel: written there, read back, and read where it is. */
static enum tutti_status peer_move(const struct prove_bed *one, const struct prove_bed *two, bool by_kernel)
{
    static const char *const says[2][2] = {
        {"what a copy wrote to the other device is not there", "what a copy read from the other device differs"},
        {"what a kernel wrote to the other device is not there", "what a kernel read from the other device differs"}};
    prove_fill(one->host, (uint64_t)one->device->ordinal << 8 | (uint64_t)two->device->ordinal << 1 | by_kernel);
    TUTTI_TRY(one->ops->copy(one->device, one->at, one->host, PROVE_BYTES, one->stream));
    TUTTI_TRY(prove_move(one, by_kernel, two->at, one->at, one->stream));
    TUTTI_TRY(prove_move(one, by_kernel, one->at + PROVE_BYTES, two->at, one->stream));
    TUTTI_TRY(one->ops->stream_sync(one->device, one->stream));
    TUTTI_TRY(two->ops->copy_now(two->device, two->host, two->at, PROVE_BYTES));
    TUTTI_TRY(one->ops->copy_now(one->device, one->host + PROVE_BYTES, one->at + PROVE_BYTES, PROVE_BYTES));
    if (memcmp(one->host, two->host, PROVE_BYTES) != 0) return prove_wrong(says[by_kernel][0]);
    if (memcmp(one->host, one->host + PROVE_BYTES, PROVE_BYTES) != 0) return prove_wrong(says[by_kernel][1]);
    return TUTTI_OK;
}

static enum tutti_status peer_moves(const struct prove_bed *one, const struct prove_bed *two)
{
    TUTTI_TRY(one->ops->reach(one->device, two->device));
    TUTTI_TRY(peer_move(one, two, false));
    return peer_move(one, two, true);
}

static enum tutti_status pair(const struct tutti_device_ops *kind, int32_t one, int32_t two)
{
    struct prove_bed a, b;
    TUTTI_TRY(prove_bed_open(kind, one, &a));
    enum tutti_status status = prove_bed_open(kind, two, &b);
    if (status >= 0) {
        status = peer_moves(&a, &b);
        prove_bed_close(&b);
    }
    prove_bed_close(&a);
    return status >= 0 ? status : prove_is_wrong("device %d and device %d", (int)one, (int)two);
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
    snprintf(out->text, sizeof out->text,
             "%u pairs of devices wrote and read 1 MiB of one another, by copies and by kernels", n_pairs);
    return TUTTI_OK;
}
