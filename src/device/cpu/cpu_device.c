/* SPDX-License-Identifier: BSD-3-Clause */
/* The host's CPUs as a device: work is done when it is enqueued, so that streams are empty and events are over when
 * they are recorded. What waits for a word makes the caller wait. */
#include "device/cpu/cpu.h"
#include "device/device.h"

#include <stdatomic.h>
#include <string.h>

struct cpu_event {
    uint64_t ns; /* time of the last record */
};

static const char *absence(void)
{
    return NULL;
}

static uint32_t count(void)
{
    return 1;
}

static int driver_version(void)
{
    return 0;
}

static enum tutti_status facts(int32_t ordinal, struct tutti_device_facts *out)
{
    if (ordinal != 0) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "there is no CPU device %d: there is one, 0", ordinal);
    *out = (struct tutti_device_facts){.name = "cpu", .n_sms = 1};
    return TUTTI_OK;
}

static bool reaches(int32_t ordinal, int32_t other)
{
    return ordinal == 0 && other == 0;
}

static struct tutti_device device = {.ops = &tutti_device_cpu, .name = "cpu", .n_sms = 1};

static enum tutti_status cpu_open(int32_t ordinal, struct tutti_device **out)
{
    struct tutti_device_facts unused;
    TUTTI_TRY(facts(ordinal, &unused));
    *out = &device;
    return TUTTI_OK;
}

static void cpu_close(struct tutti_device *cpu)
{
    (void)cpu;
}

static int32_t none(void)
{
    return -1;
}

static bool in_use(void)
{
    return true;
}

static int32_t of(const void *pointer)
{
    (void)pointer;
    return -1;
}

/* ---- memory ---- */

static enum tutti_status alloc(struct tutti_device *cpu, size_t bytes, void **out)
{
    (void)cpu;
    void *pointer = tutti_alloc(bytes ? bytes : 1);
    if (!pointer) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %zu bytes", bytes);
    *out = pointer;
    return TUTTI_OK;
}

static enum tutti_status alloc_shared(struct tutti_device *cpu, enum tutti_device_share share, size_t bytes, void **out)
{
    (void)share; /* among the threads of this process: see transport/memory */
    return alloc(cpu, bytes, out);
}

static void free_any(struct tutti_device *cpu, void *pointer)
{
    (void)cpu;
    tutti_free(pointer);
}

static enum tutti_status set(struct tutti_device *cpu, void *pointer, unsigned char value, size_t bytes)
{
    (void)cpu;
    if (bytes) memset(pointer, value, bytes);
    return TUTTI_OK;
}

static enum tutti_status copy_now(struct tutti_device *cpu, void *dst, const void *src, size_t bytes)
{
    (void)cpu;
    if (bytes) memmove(dst, src, bytes);
    return TUTTI_OK;
}

static enum tutti_status holds(struct tutti_device *cpu, const void *pointer, size_t bytes)
{
    (void)cpu, (void)bytes;
    return pointer ? TUTTI_OK : tutti_fail(TUTTI_ERR_ARGUMENT, "the pointer is NULL");
}

/* ---- streams ---- */

static enum tutti_status stream_create(struct tutti_device *cpu, void **out)
{
    *out = cpu; /* all are alike */
    return TUTTI_OK;
}

static void stream_destroy(struct tutti_device *cpu, void *stream)
{
    (void)cpu, (void)stream;
}

static enum tutti_status stream_sync(struct tutti_device *cpu, void *stream)
{
    (void)cpu, (void)stream;
    return TUTTI_OK;
}

static enum tutti_status stream_wait(struct tutti_device *cpu, void *stream, void *event)
{
    (void)cpu, (void)stream, (void)event;
    return TUTTI_OK;
}

static enum tutti_status wait_word(struct tutti_device *cpu, void *stream, const uint32_t *word, uint32_t value)
{
    (void)cpu, (void)stream;
    const _Atomic uint32_t *at = (const _Atomic uint32_t *)(const void *)word;
    while ((int32_t)(atomic_load_explicit(at, memory_order_acquire) - value) < 0) tutti_sleep_ns(UINT64_C(20000));
    return TUTTI_OK;
}

static enum tutti_status copy(struct tutti_device *cpu, void *dst, const void *src, size_t bytes, void *stream)
{
    (void)stream;
    return copy_now(cpu, dst, src, bytes);
}

static enum tutti_status host_call(struct tutti_device *cpu, void *stream, void (*function)(void *arg), void *arg)
{
    (void)cpu, (void)stream;
    function(arg);
    return TUTTI_OK;
}

static enum tutti_status fold(struct tutti_device *cpu, const struct tutti_fold *f, void *stream)
{
    (void)cpu, (void)stream;
    return tutti_fold_on_cpu(f);
}

static enum tutti_status recode(struct tutti_device *cpu, const struct tutti_recode *job, void *stream)
{
    (void)cpu, (void)stream;
    tutti_recode_on_cpu(job, NULL);
    return TUTTI_OK;
}

/* ---- events ---- */

static enum tutti_status event_create(struct tutti_device *cpu, bool timed, void **out)
{
    (void)timed;
    return alloc(cpu, sizeof(struct cpu_event), out);
}

static enum tutti_status event_record(struct tutti_device *cpu, void *event, void *stream)
{
    (void)cpu, (void)stream;
    ((struct cpu_event *)event)->ns = tutti_now_ns();
    return TUTTI_OK;
}

static enum tutti_status event_query(struct tutti_device *cpu, void *event)
{
    (void)cpu, (void)event;
    return TUTTI_OK;
}

static enum tutti_status elapsed(struct tutti_device *cpu, void *from, void *to, double *us)
{
    (void)cpu;
    *us = (double)(((struct cpu_event *)to)->ns - ((struct cpu_event *)from)->ns) / 1e3;
    return TUTTI_OK;
}

const struct tutti_device_ops tutti_device_cpu = {
    .name = "cpu",
    .on_host = true,
    .absence = absence,
    .count = count,
    .driver_version = driver_version,
    .built_for = tutti_reduce_isa,
    .facts = facts,
    .reaches = reaches,
    .open = cpu_open,
    .close = cpu_close,
    .current = none,
    .in_use = in_use,
    .of = of,
    .alloc = alloc,
    .alloc_shared = alloc_shared,
    .free = free_any,
    .alloc_host = alloc,
    .free_host = free_any,
    .set = set,
    .copy_now = copy_now,
    .holds = holds,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_sync = stream_sync,
    .stream_wait = stream_wait,
    .stream_wait_word = wait_word,
    .copy = copy,
    .host_call = host_call,
    .fold = fold,
    .recode = recode,
    .event_create = event_create,
    .event_destroy = free_any,
    .event_record = event_record,
    .event_query = event_query,
    .elapsed = elapsed,
};
