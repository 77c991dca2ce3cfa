/* SPDX-License-Identifier: BSD-3-Clause */
/* The order of calls. Kernels of one communicator never run at the same time, so calls on different streams are tied
 * together: by an event after each, and within a capture by its nodes. And what becomes of a call that fails half way.
 */
#include "backend/gpu/gpu_backend.h"

#include <inttypes.h>

/* ---- order ---- */

enum tutti_status gpu_order_begin(struct gpu_backend *b, void *stream, uint64_t *capture)
{
    TUTTI_TRY(tutti_device_capturing(b->gpu, stream, capture));
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
        if (!atomic_exchange(&b->watched.captured, true)) watch_wake(&b->watched);
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
