/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of a library on streams: with events around them, and tied together where they are on different streams, so
 * that all members run them in one order. The first ones wait: for the communicator, and for connections that a library
 * makes while it enqueues. */
#include "backend/library/library.h"

#include <string.h>

#define NAP_NS UINT64_C(50000)
#define FAREWELL_NS (2 * TUTTI_NS_PER_S) /* for peers to be done with what this member has done */

/* ---- types ---- */
const struct library_dtype library_dtypes[TUTTI_N_DTYPES] = {
    [TUTTI_INT8] = {LIBRARY_INT8, 1},         [TUTTI_UINT8] = {LIBRARY_UINT8, 1},
    [TUTTI_INT32] = {LIBRARY_INT32, 1},       [TUTTI_UINT32] = {LIBRARY_UINT32, 1},
    [TUTTI_INT64] = {LIBRARY_INT64, 1},       [TUTTI_UINT64] = {LIBRARY_UINT64, 1},
    [TUTTI_FLOAT16] = {LIBRARY_FLOAT16, 1},   [TUTTI_BFLOAT16] = {LIBRARY_BFLOAT16, 1},
    [TUTTI_FLOAT32] = {LIBRARY_FLOAT32, 1},   [TUTTI_FLOAT64] = {LIBRARY_FLOAT64, 1},
    [TUTTI_COMPLEX64] = {LIBRARY_FLOAT32, 2}, [TUTTI_COMPLEX128] = {LIBRARY_FLOAT64, 2},
};

bool library_reduces(const struct tutti_call_info *info, uint32_t set)
{
    if (!tutti_kind_info(info->kind)->reduces) return true;
    return (uint32_t)info->op < TUTTI_N_OPS && (set & LIBRARY_OP(info->op)) != 0;
}

/* ---- the watch ---- */
static struct library *watching(const struct watched *w)
{
    return (struct library *)(uintptr_t)((const char *)w - offsetof(struct library, watched));
}

static bool watch_stop(struct watched *w)
{
    return watching(w)->ops->stop(watching(w));
}

static bool watch_look(struct watched *w, uint64_t now)
{
    struct library *l = watching(w);
    return (l->ops->look && l->ops->look(l, now)) || watch_marks_late(&l->marks, now);
}

static void watch_ask(struct watched *w)
{
    watch_marks_ask(&watching(w)->marks);
}

static bool watch_waits(const struct watched *w)
{
    const struct library *l = watching(w);
    return atomic_load(&l->marks.within_ns) || (l->ops->waits && l->ops->waits(l));
}

static const struct watch_ops library_watch_ops = {
    .stop = watch_stop, .look = watch_look, .ask = watch_ask, .waits = watch_waits, .life = watch_library_life};

/* ---- opening ---- */
void library_discard(struct library *l)
{
    const struct watch_remains nothing = {0};
    watch_marks_free(&l->marks);
    watch_member_close(&l->watched, nothing);
    if (l->ops->release) l->ops->release(l);
    tutti_free(l);
}

enum tutti_status library_open(struct library *l, const struct tutti_backend_config *config, size_t log_bytes,
                               uint64_t *log)
{
    l->watched.ops = &library_watch_ops;
    l->gpu = config->device;
    l->reproducible = config->reproducible;
    l->marks.watched = &l->watched, l->marks.gpu = l->gpu, l->marks.name = l->base.ops->name;
    const enum tutti_status status = watch_member_open(&l->watched, config, l->base.ops->name, log_bytes, log);
    if (status < 0) {
        l->watched.agreed = true; /* nobody has heard of it */
        library_discard(l);
    }
    return status;
}

enum tutti_status library_map(struct library *l, const void *cards, size_t stride, size_t log_at)
{
    l->watched.seen = true;
    for (uint32_t r = 0; r < l->watched.n; r++) {
        uint64_t log;
        memcpy(&log, (const char *)cards + r * stride + log_at, sizeof log);
        TUTTI_TRY(watch_member_map(&l->watched, r, log));
    }
    return TUTTI_OK;
}

void library_connected(struct tutti_backend *backend)
{
    library_of(backend)->watched.agreed = true;
}

/* ---- the end ---- */
void library_close(struct tutti_backend *backend, uint64_t deadline_ns)
{
    struct library *l = library_of(backend);
    const bool over = watch_marks_over(&l->marks, deadline_ns);
    uint64_t until = tutti_deadline_ns(FAREWELL_NS);
    if (l->ops->closes_in_time && deadline_ns < until) until = deadline_ns;
    if (!over) { /* what the watch may be waiting for in the driver ends */
        l->ops->stop(l);
        if (l->ops->failed) l->ops->failed(l);
    }
    watch_remove(&l->watched);
    atomic_store(&watch_own_log(&l->watched)->closed, 1);
    while (over && library_made(l) && !watch_peers_done(&l->watched) && tutti_now_ns() < until) tutti_sleep_ns(NAP_NS);
    l->ops->end(l, over, deadline_ns);
    library_discard(l);
}

bool library_failed(struct tutti_backend *backend)
{
    return atomic_load(&library_of(backend)->marks.stopped);
}

void *library_last_event(struct tutti_backend *backend)
{
    return watch_marks_last(&library_of(backend)->marks);
}

enum tutti_status library_fail(struct library *l, const char *what, uint64_t seq)
{
    const enum tutti_status status = watch_fail(&l->watched, what, seq);
    struct tutti_error told = *tutti_last_error();
    if (l->ops->failed) l->ops->failed(l);
    tutti_fail_record(&told);
    return status;
}

/* ---- order ---- */
static enum tutti_status order_begin(struct library *l, void *stream, uint64_t seq, uint64_t timeout_ns,
                                     uint64_t *capture)
{
    TUTTI_TRY(tutti_device_capturing(l->gpu, stream, capture));
    if (!*capture) TUTTI_TRY(watch_marks_wait(&l->marks, timeout_ns));
    watch_marks_next(&l->marks, seq, timeout_ns);
    if (!*capture) return watch_marks_begin(&l->marks, stream);
    if (!library_made(l))
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "the first call by %s on a communicator can not be captured: make one before", l->marks.name);
    const bool chained = *capture == l->capture && !tutti_device_one_stream(l->gpu, stream, l->capture_stream);
    return chained ? l->gpu->ops->capture_after(l->gpu, stream, l->node) : TUTTI_OK;
}

static enum tutti_status order_end(struct library *l, void *stream, uint64_t capture)
{
    if (!capture) return watch_marks_end(&l->marks, stream);
    TUTTI_TRY(l->gpu->ops->capture_mark(l->gpu, stream, &l->node));
    l->capture = capture;
    l->capture_stream = stream;
    if (!atomic_exchange(&l->watched.captured, true)) watch_wake(&l->watched);
    return TUTTI_OK;
}

/* ---- what is enqueued ---- */
/* Logged first, so that peers which wait for this rank see where it is while the library connects. */
static enum tutti_status item_enqueue(struct library *l, const struct library_item *item, void *stream,
                                      uint64_t timeout_ns)
{
    const uint64_t seq = item->call ? item->call->seq : 0;
    const char *what = item->call ? tutti_kind_name(item->call->info.kind) : "messages";
    uint64_t capture;
    enum tutti_status status = order_begin(l, stream, seq, timeout_ns, &capture);
    if (status == TUTTI_ERR_TIMEOUT) return library_fail(l, what, seq); /* peers may have made it */
    if (status < 0) return status;
    if (item->call) watch_log_post(watch_own_log(&l->watched), item->call, 0, timeout_ns);
    watch_marks_post(&l->marks, item->messages, item->n, timeout_ns);
    TUTTI_TRY(l->ops->make(l, timeout_ns));
    status = l->ops->run(l, item, stream, timeout_ns);
    if (status == TUTTI_OK) status = order_end(l, stream, capture);
    return status < 0 ? library_fail(l, what, seq) : TUTTI_OK;
}

static enum tutti_status item_enter(struct library *l, const struct library_item *item, void *stream,
                                    uint64_t timeout_ns)
{
    struct tutti_device_scope scope;
    TUTTI_TRY(watch_state(&l->watched));
    if (l->ops->accepts) TUTTI_TRY(l->ops->accepts(l, stream));
    TUTTI_TRY(tutti_device_enter(l->gpu, &scope));
    const enum tutti_status status =
        item_enqueue(l, item, stream, timeout_ns ? timeout_ns : tutti_team_timeout(l->watched.team));
    tutti_device_leave(l->gpu, &scope);
    return status;
}

enum tutti_status library_enqueue(struct tutti_backend *backend, const struct tutti_backend_call *call, void *stream)
{
    const struct library_item item = {.call = call};
    return item_enter(library_of(backend), &item, stream, call->info.timeout_ns);
}

/* Libraries refuse a message to oneself that is not received in the same group, and copy what is sent, however much
 * room there is. */
enum tutti_status library_messages(struct tutti_backend *backend, const struct tutti_backend_message *messages,
                                   size_t n, void *stream, uint64_t timeout_ns)
{
    const struct library_item item = {.messages = messages, .n = n};
    TUTTI_TRY(tutti_own_messages(NULL, messages, n, library_of(backend)->watched.me, NULL));
    return item_enter(library_of(backend), &item, stream, timeout_ns);
}
