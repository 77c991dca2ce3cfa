/* SPDX-License-Identifier: BSD-3-Clause */

/* oneCCL on devices: opening and closing, and what the watch is told. A card says which oneCCL a member has, which
 * process it is, and where its log is. */

#include "backend/library/oneccl_device.h"
#include "device/level_zero/xpu.h"
#include "model/costs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CARD_VERSION 1

struct oneccl_device_card {
    struct oneccl_about about;
    uint64_t log;
};
_Static_assert(sizeof(struct oneccl_device_card) <= TUTTI_BACKEND_CARD_MOST, "a card holds what is told");

/* ---- the watch ---- */

/* What oneCCL has enqueued can not be ended; who waits for it in the driver would wait for ever. */
static void left_behind(struct oneccl_device *d)
{
    if (atomic_exchange(&d->l.marks.stopped, true)) return;
    void *event = watch_marks_last(&d->l.marks);
    const bool within = atomic_load(&d->l.marks.within_ns) != 0; /* what it enqueues has no event yet */
    if (!within && (!event || d->l.gpu->ops->event_query(d->l.gpu, event) == TUTTI_OK)) return;
    oneccl_lose();
    tutti_xpu_leave(d->l.gpu);
}

static bool stop(struct library *l)
{
    left_behind(oneccl_device_of(l));
    return true;
}

static enum tutti_status make(struct library *l, uint64_t timeout_ns)
{
    (void)timeout_ns; /* the carrier does, with the first call */
    if (l->watched.listed || watch_add(&l->watched) == TUTTI_OK) return TUTTI_OK;
    return library_fail(l, "the first call by oneCCL", 0);
}

static void release(struct library *l)
{
    struct oneccl_device *d = oneccl_device_of(l);
    for (struct oneccl_aside *aside = d->aside, *before; aside; aside = before) {
        before = aside->before;
        l->gpu->ops->free(l->gpu, aside->memory);
        tutti_free(aside);
    }
}

static void end(struct library *l, bool over, uint64_t deadline_ns)
{
    struct oneccl_device *d = oneccl_device_of(l);
    const struct watched *w = &l->watched;
    const struct oneccl_end all = {w->control, w->members, w->n, w->me, &oneccl_log_of(d, 0)->ended};
    if (!d->carrier && over) return;
    if (!over) oneccl_end_early(&all);
    const bool together = over && oneccl_all_end(&all, deadline_ns);
    if (d->carrier) oneccl_carrier_end(d->carrier, together, deadline_ns);
}

static const struct library_ops library_ops = {.accepts = oneccl_accepts,
                                               .make = make,
                                               .run = oneccl_run,
                                               .stop = stop,
                                               .end = end,
                                               .release = release,
                                               .closes_in_time = true};

/* ---- opening ---- */

static enum tutti_status device_open(const struct tutti_backend_config *config, void *out_card,
                                     struct tutti_backend **out)
{
    if (config->n > 1 && tutti_memory_is_one(config->transport->memory))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "the ranks are of one process, for which oneCCL hangs");
    if (oneccl_is_lost()) return tutti_fail(TUTTI_ERR_ABORTED, ONECCL_IS_LOST);
    if (strcmp(config->options->text[TUTTI_OPT_gpu], "oneccl") != 0 && !tutti_xpu_has_sycl())
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "this process has no SYCL, whose queues oneCCL takes");
    const struct oneccl_library *library = oneccl_library(config->options, true);
    if (!library) return tutti_last_error()->status;
    struct oneccl_device *d = tutti_alloc(sizeof *d);
    if (!d) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a device back end");
    struct oneccl_device_card card = {.about = {CARD_VERSION, (uint32_t)library->version, oneccl_process_number()}};
    d->l.base.ops = &tutti_backend_oneccl_device;
    d->l.ops = &library_ops;
    d->library = d->like.library = library;
    d->like.n = config->n, d->like.me = config->me;
    d->like.on_device = true, d->like.device = (uint32_t)config->device->ordinal;
    TUTTI_TRY(library_open(&d->l, config, sizeof(struct oneccl_log), &card.log));
    memcpy(out_card, &card, sizeof card);
    *out = &d->l.base;
    return TUTTI_OK;
}

static enum tutti_status device_connect(struct tutti_backend *backend, const void *cards, size_t stride)
{
    struct library *l = library_of(backend);
    enum tutti_status status = library_map(l, cards, stride, offsetof(struct oneccl_device_card, log));
    if (status == TUTTI_OK) status = oneccl_members_check(cards, stride, l->watched.n);
    if (status < 0) library_discard(l);
    return status;
}

/* ---- the rest ---- */

static double device_score(const struct tutti_backend *backend, const struct tutti_backend_call *call)
{
    const struct oneccl_device *d = oneccl_device_of(library_of(backend));
    const uint32_t n = d->l.watched.n;
    if (n == 1 || !oneccl_can(d->library, call, n, true)) return HUGE_VAL; /* alone there is nothing that it could do */
    if (d->l.reproducible && tutti_kind_info(call->info.kind)->reduces) return HUGE_VAL;
    return library_cost_ns(&call->info, tutti_kinds[call->info.kind].block_a_slot ? n : 2,
                           COST_ONECCL_DEVICE_LATENCY_NS, COST_ONECCL_DEVICE_BYTES_A_NS);
}

static void device_stop(struct tutti_backend *backend)
{
    left_behind(oneccl_device_of(library_of(backend)));
}

static size_t device_memory_used(const struct tutti_backend *backend)
{
    size_t bytes = 0;
    for (const struct oneccl_aside *aside = oneccl_device_of(library_of(backend))->aside; aside; aside = aside->before)
        bytes += aside->bytes;
    return bytes; /* ours; oneCCL does not say how much it takes */
}

static void device_describe(const struct tutti_backend *backend, char *out, size_t capacity)
{
    const int version = oneccl_device_of(library_of(backend))->library->version;
    snprintf(out, capacity, "oneCCL %d.%d", version / 10000, version / 100 % 100);
}

const struct tutti_backend_ops tutti_backend_oneccl_device = {
    .name = "oneccl",
    .help = "Intel GPUs, by Intel's library, where it is installed",
    .device = &tutti_device_xpu,
    .card_bytes = sizeof(struct oneccl_device_card),
    .open = device_open,
    .connect = device_connect,
    .connected = library_connected,
    .close = library_close,
    .score = device_score,
    .enqueue = library_enqueue,
    .messages = library_messages,
    .stop = device_stop,
    .failed = library_failed,
    .last_event = library_last_event,
    .memory_used = device_memory_used,
    .describe = device_describe,
};
