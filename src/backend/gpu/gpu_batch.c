/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups of calls: runs of small ones that are alike become one exchange each, all else is enqueued as if there were no
 * group. What is fused is decided by what is equal on all members. Whether calls depend on one another is not: a rank
 * whose calls do launches its side of a run in pieces, which the others need not know (struct gpu_batch). */
#include "backend/gpu/gpu_backend.h"

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

static enum tutti_status enqueue_in(struct gpu_backend *b, const struct gpu_run *run,
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
    enum tutti_status status = enqueue_in(b, run, calls, stream);
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
