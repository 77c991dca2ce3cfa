/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls: the chosen method's steps, enqueued one by one. Nothing is allocated, nothing waits. */

#include "backend/gpu/gpu_backend.h"

#include <inttypes.h>
#include <string.h>

/* *half: it failed, and not at its first step. */
static enum tutti_status run_steps(struct gpu_backend *b, const struct gpu_method *method, const struct gpu_site *site,
                                   const struct tutti_backend_call *call, void *stream, bool *half)
{
    for (uint32_t i = 0; method->step(site, call, i, &b->step); i++) {
        *half = i > 0;
        TUTTI_TRY(gpu_step_run(b, call, stream));
    }
    *half = call->gate != NULL;
    return call->gate ? gpu_gate_run(b, call, stream) : TUTTI_OK;
}

/* What ranks have to agree on beyond the call: a method for windows, which of them, where in it. */
static uint64_t where_by(const struct gpu_method *method, const struct gpu_site *site)
{
    return method->in_windows ? tutti_hash64(method->name, strlen(method->name), site->where) : 0;
}

static enum tutti_status enqueue_in(struct gpu_backend *b, const struct gpu_method *method, const struct gpu_site *site,
                                    const struct tutti_backend_call *call, void *stream)
{
    uint64_t capture;
    bool half = false;
    TUTTI_TRY(gpu_order_begin(b, stream, &capture));
    enum tutti_status status = run_steps(b, method, site, call, stream, &half);
    if (status < 0)
        return half ? gpu_give_up_half(b, tutti_kind_name(call->info.kind), call->seq, stream, capture) : status;
    watch_log_post(gpu_log(b), call, where_by(method, site), b->timeout_ns);
    b->posted_seq = call->seq;
    status = gpu_order_end(b, stream, capture);
    return status < 0 ? gpu_give_up(b, tutti_kind_name(call->info.kind), call->seq) : TUTTI_OK;
}

/* The key by which a method is chosen: the signature, and what windows add to it. Of a place only its offset within 16
 * bytes counts. */
static uint64_t choice_of(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    uintptr_t places = 0, apart = 0;
    if (!site->own) return call->info.signature;
    for (uint32_t q = 0; q < site->n; q++) {
        places |= (uintptr_t)gpu_site_there(site, call, q, 0);
        apart |= (uintptr_t)site->peers[q] ^ (uintptr_t)site->own;
    }
    const uint64_t in_place = gpu_call_in_place(site, call);
    return tutti_mix64(call->info.signature ^ (1 | in_place << 1 | (places & 15) << 2 | (apart & 15) << 6));
}

/* Once for each of those; but v forms hide more. */
static const struct gpu_method *choose(struct gpu_backend *b, const struct gpu_site *site,
                                       const struct tutti_backend_call *call)
{
    if (call->method || call->bind.v) return gpu_choose(site, call, call->method ? call->method : b->forced, NULL);
    const uint64_t by = choice_of(site, call);
    struct gpu_choice *known = &b->choices[by % GPU_CHOICES];
    if (!known->method || known->by != by) *known = (struct gpu_choice){by, gpu_choose(site, call, b->forced, NULL)};
    return known->method;
}

enum tutti_status gpu_enqueue(struct tutti_backend *backend, const struct tutti_backend_call *call, void *stream)
{
    struct gpu_backend *b = gpu_of(backend);
    struct gpu_site site = b->site;
    struct tutti_device_scope scope;
    TUTTI_TRY(gpu_state(b));
    if (call->counted) return gpu_counted_enqueue(b, call, stream);
    gpu_window_site(b, call, &site);
    const struct gpu_method *method = choose(b, &site, call);
    if (!method)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s can not run %s of %s", b->base.ops->name,
                          tutti_kind_name(call->info.kind), tutti_dtype_name(call->info.dtype));
    b->timeout_ns = call->info.timeout_ns ? call->info.timeout_ns : tutti_team_timeout(b->watched.team);
    TUTTI_TRY(tutti_device_enter(b->gpu, &scope));
    const bool stale = method->in_windows && gpu_window_check(b, &site) < 0;
    const enum tutti_status status = stale ? gpu_give_up(b, tutti_kind_name(call->info.kind), call->seq)
                                           : enqueue_in(b, method, &site, call, stream);
    atomic_store_explicit(&b->maps.placing, false, memory_order_release);
    tutti_device_leave(b->gpu, &scope);
    return status;
}

/* The order of calls. Kernels of one communicator never run at the same time, so calls on different streams are tied
 * together: by an event after each, and within a capture by its nodes. And what becomes of a call that fails half way.
 */

/* ---- order ---- */

enum tutti_status gpu_order_begin(struct gpu_backend *b, void *stream, uint64_t *capture)
{
    TUTTI_TRY(tutti_device_capturing(b->gpu, stream, capture));
    b->captures = *capture != 0;
    b->own_stream = b->own_streams[*capture != 0]; /* the stream of what is captured until the capture ends */
    if (*capture) {
        /* Calls before the capture, and other captures, are ordered by who launches the graph. */
        bool chained = *capture == b->capture && !tutti_device_one_stream(b->gpu, stream, b->capture_stream);
        return chained ? b->gpu->ops->capture_after(b->gpu, stream, b->node) : TUTTI_OK;
    }
    if (atomic_load_explicit(&b->watched.n_enqueued, memory_order_relaxed) == 0 ||
        tutti_device_one_stream(b->gpu, stream, b->stream))
        return TUTTI_OK;
    return b->gpu->ops->stream_wait(b->gpu, stream, b->event);
}

enum tutti_status gpu_order_end(struct gpu_backend *b, void *stream, uint64_t capture)
{
    if (capture) {
        TUTTI_TRY(b->gpu->ops->capture_mark(b->gpu, stream, &b->node));
        b->capture = capture;
        b->capture_stream = stream;
        if (!atomic_exchange(&b->watched.captured, true) || atomic_load(&b->watched.tends)) watch_wake(&b->watched);
        return TUTTI_OK;
    }
    TUTTI_TRY(b->gpu->ops->event_record(b->gpu, b->event, stream));
    b->stream = stream;
    atomic_store(&b->last_seq, b->posted_seq);
    atomic_store(&b->last_items, atomic_load(&gpu_log(b)->n_items));
    atomic_fetch_add(&b->watched.n_enqueued, 1);
    watch_wake(&b->watched);
    return TUTTI_OK;
}

/* One stream goes on when the other has come here. */
enum tutti_status gpu_tie(struct gpu_backend *b, void *before, void *after, void *event)
{
    TUTTI_TRY(b->gpu->ops->event_record(b->gpu, event, before));
    return b->gpu->ops->stream_wait(b->gpu, after, event);
}

/* ---- failures ---- */

void gpu_stop(struct gpu_backend *b)
{
    uint32_t running = 0;
    (void)__atomic_compare_exchange_n(&b->control->stop, &running, GPU_STOPPED, false, __ATOMIC_SEQ_CST,
                                      __ATOMIC_SEQ_CST);
}

void gpu_freeze(struct tutti_backend *backend)
{
    struct gpu_backend *b = gpu_of(backend);
    const uint32_t stopped = GPU_STOPPED;
    gpu_stop(b);
    (void)b->gpu->ops->copy_now(b->gpu, b->scratch + b->site.layout.stopped, &stopped, sizeof(stopped));
}

enum tutti_status gpu_state(struct gpu_backend *b)
{
    struct tutti_error error;
    if (!tutti_team_failed(b->watched.team) && !__atomic_load_n(&b->control->stop, __ATOMIC_RELAXED)) return TUTTI_OK;
    /* A kernel has given up: the watch says why, soon. */
    watch_now(&b->watched);
    if (tutti_team_state(b->watched.team, &error) < 0) return tutti_fail_record(&error);
    return tutti_fail(TUTTI_ERR_ABORTED, "the communicator was stopped on the device");
}

enum tutti_status gpu_give_up(struct gpu_backend *b, const char *what, uint64_t seq)
{
    struct tutti_error error = *tutti_last_error(), told;
    tutti_error_set(&told, error.status, "%s after call #%" PRIu64 " failed on rank %u: %.300s", what,
                    tutti_team_next(b->watched.team) - 1, b->site.me, error.text);
    told.peer = -1;
    told.step = TUTTI_NO_STEP;
    told.seq = seq;
    tutti_team_fail(b->watched.team, &told, true);
    gpu_stop(b);
    return tutti_fail_record(&told);
}

enum tutti_status gpu_give_up_half(struct gpu_backend *b, const char *what, uint64_t seq, void *stream,
                                   uint64_t capture)
{
    struct tutti_error why = *tutti_last_error();
    if (!capture)
        (void)gpu_tie(b, b->own_stream, stream, b->joined); /* steps may have been between a fork and a join */
    (void)gpu_order_end(b, stream, capture);
    tutti_fail_record(&why);
    return gpu_give_up(b, what, seq);
}

/* Groups of calls: runs of small ones that are alike become one exchange each, all else is enqueued as if there were no
 * group. What is fused is decided by what is equal on all members. Whether calls depend on one another is not: a rank
 * whose calls do launches its side of a run in pieces, which the others need not know (struct gpu_batch). */

static uint64_t least_timeout(const struct gpu_backend *b, const struct tutti_backend_call *calls, size_t n)
{
    uint64_t least = TUTTI_NEVER;
    for (size_t i = 0; i < n; i++) {
        uint64_t timeout = calls[i].info.timeout_ns ? calls[i].info.timeout_ns : tutti_team_timeout(b->watched.team);
        if (timeout < least) least = timeout;
    }
    return least;
}

/* A part of a group was not enqueued, and others were. */
static enum tutti_status give_up(struct gpu_backend *b, const struct tutti_backend_call *call, enum tutti_status status)
{
    return tutti_team_failed(b->watched.team) ? status : gpu_give_up(b, tutti_kind_name(call->info.kind), call->seq);
}

/* One launch, or as many as dependent calls ask for. */
static enum tutti_status launch_run(struct gpu_backend *b, const struct gpu_run *run,
                                    const struct tutti_backend_call *calls, void *stream, uint64_t capture)
{
    if (!run->method->step(&b->site, &run->whole, 0, &b->step)) return TUTTI_OK;
    b->step.protocol = run->protocol;
    gpu_run_fill(&b->site, calls, run->n, &b->batch);
    b->batch.begin = 0;
    for (size_t i = 0; i < run->n;) {
        size_t n = gpu_run_independent(&b->site, &calls[i], run->n - i);
        b->batch.end = b->batch.begin + (uint32_t)gpu_run_units(&calls[i], n);
        if (b->batch.end > b->batch.begin) {
            enum tutti_status status = gpu_step_run(b, &calls[i], stream);
            if (status < 0 && b->batch.begin > 0)
                return gpu_give_up_half(b, tutti_kind_name(calls[i].info.kind), calls[i].seq, stream, capture);
            TUTTI_TRY(status);
        }
        b->batch.begin = b->batch.end;
        i += n;
    }
    return TUTTI_OK;
}

static enum tutti_status enqueue_alike(struct gpu_backend *b, const struct gpu_run *run,
                                       const struct tutti_backend_call *calls, void *stream)
{
    uint64_t capture;
    TUTTI_TRY(gpu_order_begin(b, stream, &capture));
    TUTTI_TRY(launch_run(b, run, calls, stream, capture));
    for (size_t i = 0; i < run->n; i++) watch_log_post(gpu_log(b), &calls[i], 0, b->timeout_ns);
    b->posted_seq = calls[run->n - 1].seq;
    enum tutti_status status = gpu_order_end(b, stream, capture);
    return status < 0 ? give_up(b, calls, status) : TUTTI_OK;
}

static enum tutti_status enqueue_run(struct gpu_backend *b, const struct gpu_run *run,
                                     const struct tutti_backend_call *calls, void *stream)
{
    struct tutti_device_scope scope;
    TUTTI_TRY(gpu_state(b));
    b->timeout_ns = least_timeout(b, calls, run->n);
    TUTTI_TRY(tutti_device_enter(b->gpu, &scope));
    enum tutti_status status = enqueue_alike(b, run, calls, stream);
    tutti_device_leave(b->gpu, &scope);
    return status;
}

enum tutti_status gpu_batch(struct tutti_backend *backend, const struct tutti_backend_call *calls, size_t n,
                            void *stream)
{
    struct gpu_backend *b = gpu_of(backend);
    struct gpu_run run;
    for (size_t i = 0; i < n; i += run.n) {
        gpu_run_plan(&b->site, &calls[i], n - i, b->forced, &run);
        enum tutti_status status =
            run.n > 1 ? enqueue_run(b, &run, &calls[i], stream) : gpu_enqueue(backend, &calls[i], stream);
        if (status < 0) return i == 0 ? status : give_up(b, &calls[i], status);
    }
    return TUTTI_OK;
}

/* An all_to_all_v whose counts are on the device: one launch, whose kernel reads them there. Its grid is what the most
 * bytes that may come or go would ask for; blocks that have nothing to do end at once. */

static uint32_t blocks_of(const struct gpu_backend *b, const struct tutti_backend_counted *counted)
{
    const struct gpu_layout *layout = &b->site.layout;
    const uint32_t blocks = gpu_tile_blocks(counted->most_bytes, layout->tile_bytes, layout->n_blocks);
    return blocks > 0 ? blocks : 1; /* which writes what came */
}

static enum tutti_status launch(struct gpu_backend *b, const struct tutti_backend_call *call, void *stream)
{
    const struct tutti_backend_counted *counted = call->counted;
    struct gpu_counted *x = &b->counted;
    const struct tutti_gpu_launch how = {.kernel = b->counted_tiles,
                                         .stream = stream,
                                         .blocks = blocks_of(b, counted),
                                         .threads = b->site.tile_threads,
                                         .args_bytes = sizeof(*x)};
    x->exchange.in = call->bind.input, x->exchange.out = call->bind.output;
    x->exchange.call.seq = call->seq;
    x->exchange.call.timeout_ns = gpu_timeout_ns(b);
    x->rows = counted->rows;
    x->send_displs = counted->send_displs;
    x->recv_counts = counted->recv_counts;
    x->status = counted->status;
    x->truncated = TUTTI_ERR_TRUNCATED;
    x->element = (uint32_t)tutti_dtype_bytes(call->info.dtype);
    return b->gpu->ops->gpu->launch(b->gpu, &how, x);
}

static enum tutti_status enqueue(struct gpu_backend *b, const struct tutti_backend_call *call, void *stream)
{
    uint64_t capture;
    TUTTI_TRY(gpu_order_begin(b, stream, &capture));
    TUTTI_TRY(launch(b, call, stream));
    watch_log_post(gpu_log(b), call, 0, b->timeout_ns);
    b->posted_seq = call->seq;
    const enum tutti_status status = gpu_order_end(b, stream, capture);
    return status < 0 ? gpu_give_up(b, "all_to_all_v_dynamic", call->seq) : TUTTI_OK;
}

enum tutti_status gpu_counted_enqueue(struct gpu_backend *b, const struct tutti_backend_call *call, void *stream)
{
    struct tutti_device_scope scope;
    if (!b->counted_tiles) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "there is no kernel tiles_counted_16");
    b->timeout_ns = call->info.timeout_ns ? call->info.timeout_ns : tutti_team_timeout(b->watched.team);
    TUTTI_TRY(tutti_device_enter(b->gpu, &scope));
    const enum tutti_status status = enqueue(b, call, stream);
    tutti_device_leave(b->gpu, &scope);
    return status;
}
