/* SPDX-License-Identifier: BSD-3-Clause */

/* oneCCL on devices: opening and closing, and what the watch is told. A card says which oneCCL a member has, which
 * process it is, and where its log is. */

#include "backend/library/oneccl_device.h"
#include "device/level_zero/xpu.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CARD_VERSION 1
#define NAP_NS UINT64_C(50000)
#define FAREWELL_NS (2 * TUTTI_NS_PER_S) /* for peers to be done with what this member has done */
/* Guesses, since no such device was at hand: never better than tutti's own kernels, where these are. */
#define LATENCY_NS 60000.
#define BYTES_A_NS 5.

struct oneccl_device_card {
    struct oneccl_about about;
    uint64_t log;
};
_Static_assert(sizeof(struct oneccl_device_card) <= TUTTI_BACKEND_CARD_MOST, "a card holds what is told");

/* ---- the watch ---- */

/* What oneCCL has enqueued can not be ended; who waits for it in the driver would wait for ever. */
static void left_behind(struct oneccl_device *d)
{
    if (atomic_exchange(&d->marks.stopped, true)) return;
    void *event = watch_marks_last(&d->marks);
    const bool within = atomic_load(&d->marks.within_ns) != 0; /* what it enqueues has no event yet */
    if (!within && (!event || d->gpu->ops->event_query(d->gpu, event) == TUTTI_OK)) return;
    oneccl_lose();
    tutti_xpu_leave(d->gpu);
}

static bool stop(struct watched *w)
{
    left_behind(oneccl_watching(w));
    return true;
}

static bool look(struct watched *w, uint64_t now)
{
    return watch_marks_late(&oneccl_watching(w)->marks, now);
}

static bool waits(const struct watched *w)
{
    return atomic_load(&oneccl_watching(w)->marks.within_ns) != 0;
}

static void ask(struct watched *w)
{
    watch_marks_ask(&oneccl_watching(w)->marks);
}

static const struct watch_ops watch_ops = {
    .stop = stop, .look = look, .ask = ask, .waits = waits, .life = watch_library_life};

/* ---- opening ---- */

static void discard(struct oneccl_device *d)
{
    const struct watch_remains nothing = {0};
    watch_marks_free(&d->marks);
    watch_member_close(&d->watched, nothing);
    for (struct oneccl_aside *aside = d->aside, *before; aside; aside = before) {
        before = aside->before;
        d->gpu->ops->free(d->gpu, aside->memory);
        tutti_free(aside);
    }
    tutti_free(d);
}

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
    d->base.ops = &tutti_backend_oneccl_device;
    d->watched.ops = &watch_ops;
    d->library = d->like.library = library;
    d->gpu = d->marks.gpu = config->device;
    d->reproducible = config->reproducible;
    d->marks.watched = &d->watched, d->marks.name = "oneccl";
    d->like.n = config->n, d->like.me = config->me;
    d->like.on_device = true, d->like.device = (uint32_t)config->device->ordinal;
    const enum tutti_status status =
        watch_member_open(&d->watched, config, "oneccl", sizeof(struct oneccl_log), &card.log);
    if (status < 0) {
        d->watched.agreed = true; /* nobody has heard of it */
        discard(d);
        return status;
    }
    memcpy(out_card, &card, sizeof card);
    *out = &d->base;
    return TUTTI_OK;
}

static enum tutti_status logs_map(struct oneccl_device *d, const void *cards, size_t stride)
{
    d->watched.seen = true;
    for (uint32_t r = 0; r < d->watched.n; r++) {
        struct oneccl_device_card card;
        memcpy(&card, (const char *)cards + r * stride, sizeof card);
        TUTTI_TRY(watch_member_map(&d->watched, r, card.log));
    }
    return TUTTI_OK;
}

static enum tutti_status device_connect(struct tutti_backend *backend, const void *cards, size_t stride)
{
    struct oneccl_device *d = oneccl_device_of(backend);
    /* First, so that all members let go of all logs, however it ends. */
    enum tutti_status status = logs_map(d, cards, stride);
    if (status == TUTTI_OK) status = oneccl_members_check(cards, stride, d->watched.n);
    if (status < 0) discard(d);
    return status;
}

static void device_connected(struct tutti_backend *backend)
{
    oneccl_device_of(backend)->watched.agreed = true;
}

/* ---- the end ---- */

static void device_close(struct tutti_backend *backend, uint64_t deadline_ns)
{
    struct oneccl_device *d = oneccl_device_of(backend);
    struct watched *w = &d->watched;
    const bool over = watch_marks_over(&d->marks, deadline_ns);
    if (!over) left_behind(d);
    watch_remove(w);
    atomic_store(&watch_own_log(w)->closed, 1);
    const uint64_t until = oneccl_sooner(FAREWELL_NS, deadline_ns);
    while (over && d->carrier && !watch_peers_done(w) && tutti_now_ns() < until) tutti_sleep_ns(NAP_NS);
    if (d->carrier || !over) {
        const struct oneccl_end end = {w->control, w->members, w->n, w->me, &oneccl_log_of(d, 0)->ended};
        if (!over) oneccl_end_early(&end);
        const bool together = over && oneccl_all_end(&end, deadline_ns);
        if (d->carrier) oneccl_carrier_end(d->carrier, together, deadline_ns);
    }
    discard(d);
}

/* ---- the rest ---- */

static double device_score(const struct tutti_backend *backend, const struct tutti_backend_call *call)
{
    const struct oneccl_device *d = oneccl_device_of(backend);
    const uint32_t n = d->watched.n;
    if (n == 1 || !oneccl_can(d->library, call, n, true)) return HUGE_VAL; /* alone there is nothing that it could do */
    if (d->reproducible && tutti_kind_info(call->info.kind)->reduces) return HUGE_VAL;
    const double bytes = (double)call->info.count * (double)tutti_dtype_bytes(call->info.dtype);
    return LATENCY_NS + bytes * (tutti_kinds[call->info.kind].block_a_slot ? n : 2) / BYTES_A_NS;
}

static void device_stop(struct tutti_backend *backend)
{
    left_behind(oneccl_device_of(backend));
}

static bool device_failed(struct tutti_backend *backend)
{
    return atomic_load(&oneccl_device_of(backend)->marks.stopped);
}

static void *device_last_event(struct tutti_backend *backend)
{
    return watch_marks_last(&oneccl_device_of(backend)->marks);
}

static size_t device_memory_used(const struct tutti_backend *backend)
{
    size_t bytes = 0;
    for (const struct oneccl_aside *aside = oneccl_device_of(backend)->aside; aside; aside = aside->before)
        bytes += aside->bytes;
    return bytes; /* ours; oneCCL does not say how much it takes */
}

static void device_describe(const struct tutti_backend *backend, char *out, size_t capacity)
{
    const int version = oneccl_device_of(backend)->library->version;
    snprintf(out, capacity, "oneCCL %d.%d", version / 10000, version / 100 % 100);
}

const struct tutti_backend_ops tutti_backend_oneccl_device = {
    .name = "oneccl",
    .help = "Intel GPUs, by Intel's library, where it is installed",
    .device = &tutti_device_xpu,
    .card_bytes = sizeof(struct oneccl_device_card),
    .open = device_open,
    .connect = device_connect,
    .connected = device_connected,
    .close = device_close,
    .score = device_score,
    .enqueue = oneccl_enqueue,
    .messages = oneccl_messages,
    .stop = device_stop,
    .failed = device_failed,
    .last_event = device_last_event,
    .memory_used = device_memory_used,
    .describe = device_describe,
};
