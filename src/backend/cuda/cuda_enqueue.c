/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls: the chosen method's steps, enqueued one by one. Kernels of one communicator never run at the same time, so
 * calls on different streams are tied together: by an event after each, and within a capture by its nodes. Nothing is
 * allocated, nothing waits. */
#include "backend/cuda/cuda.h"

#include <inttypes.h>
#include <string.h>

#define MEET_THREADS 32

/* ---- order ---- */

enum tutti_status cuda_order_begin(struct cuda_backend *b, void *stream, uint64_t *capture)
{
    TUTTI_TRY(tutti_gpu_capturing(b->gpu, stream, capture));
    b->lane = b->lanes[*capture != 0]; /* of what is captured until the capture ends */
    if (*capture) {
        /* Calls before the capture, and other captures, are ordered by who launches the graph. */
        bool chained = *capture == b->capture && !cuda_one_stream(stream, b->capture_stream);
        return chained ? tutti_gpu_capture_after(b->gpu, stream, b->node) : TUTTI_OK;
    }
    if (atomic_load_explicit(&b->n_enqueued, memory_order_relaxed) == 0 || cuda_one_stream(stream, b->stream))
        return TUTTI_OK;
    return tutti_gpu_stream_wait(b->gpu, stream, b->event);
}

enum tutti_status cuda_order_end(struct cuda_backend *b, void *stream, uint64_t capture)
{
    if (capture) {
        TUTTI_TRY(tutti_gpu_capture_mark(b->gpu, stream, &b->node));
        b->capture = capture;
        b->capture_stream = stream;
        if (!atomic_exchange(&b->captured, true)) cuda_watch_wake();
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_gpu_event_record(b->gpu, b->event, stream));
    b->stream = stream;
    atomic_store(&b->last_seq, b->posted_seq);
    atomic_store(&b->last_items, atomic_load(&b->logs[b->me]->n_items));
    atomic_fetch_add(&b->n_enqueued, 1);
    cuda_watch_wake();
    return TUTTI_OK;
}

enum tutti_status cuda_state(struct cuda_backend *b)
{
    struct tutti_error error;
    if (!tutti_team_failed(b->team) && !__atomic_load_n(&b->control->stop, __ATOMIC_RELAXED)) return TUTTI_OK;
    /* A kernel has given up: the watch says why, soon. */
    cuda_watch_now(b);
    if (tutti_team_state(b->team, &error) < 0) return tutti_fail_record(&error);
    return tutti_fail(TUTTI_ERR_ABORTED, "the communicator was stopped on the device");
}

/* ---- steps ---- */

static void fill_call(struct cuda_call *out, const struct tutti_backend_call *call, const struct cuda_step *step,
                      uint64_t timeout_ns)
{
    out->seq = call->seq;
    out->timeout_ns = timeout_ns;
    out->op = step->folds ? (uint32_t)call->info.op : 0;
    out->divisor = step->divisor;
    out->scales = step->scales;
    if (step->scales) memcpy(out->factor, call->bind.factor, tutti_dtype_bytes(call->info.dtype));
}

/* Sums have kernels of their own for the types that are summed most; they divide and scale, too. */
static void *kernel_of(const struct cuda_backend *b, const struct tutti_backend_call *call,
                       const struct cuda_step *step)
{
    uint32_t reducer = step->folds ? (uint32_t)call->info.dtype : (uint32_t)CUDA_MOVE;
    void *sum = b->kernels[step->protocol][reducer].sum;
    return step->folds && cuda_sums(call) && sum ? sum : b->kernels[step->protocol][reducer].any;
}

/* Small launches may take their places before what is ahead of them is over: they leave room for all others. */
static bool overlaps(const struct cuda_backend *b, const struct cuda_step *step)
{
    return step->protocol <= CUDA_BATCH_SENTINEL && b->alone && step->blocks * step->threads <= 16384;
}

static enum tutti_status launch(struct cuda_backend *b, const struct tutti_backend_call *call, void *stream)
{
    struct cuda_step *step = &b->step;
    struct cuda_exchange *x = &step->exchange;
    uint64_t timeout_ns = b->timeout_ns == TUTTI_NEVER ? 0 : b->timeout_ns;
    const void *args = x;
    if (step->blocks == 0) return TUTTI_OK;
    fill_call(&x->call, call, step, timeout_ns);
    if (step->protocol == CUDA_DIRECT) {
        fill_call(&step->direct.call, call, step, timeout_ns);
        args = &step->direct;
    } else if (step->protocol == CUDA_SENTINEL2) {
        fill_call(&b->two_shot.call, call, step, timeout_ns);
        b->two_shot.in = x->in, b->two_shot.out = x->out;
        b->two_shot.bytes = x->result_bytes, b->two_shot.shard_bytes = x->send[0].bytes;
        b->two_shot.units = x->units;
        cuda_two_shot_seal(&b->two_shot);
        args = &b->two_shot;
    } else if (step->protocol == CUDA_BATCH_LINES || step->protocol == CUDA_BATCH_SENTINEL) {
        fill_call(&b->batch.call, call, step, timeout_ns);
        b->batch.units = x->units;
        args = &b->batch;
    } else if (step->protocol == CUDA_FOLD) {
        fill_call(&b->fold.call, call, step, timeout_ns);
        memcpy(b->fold.from, step->from, sizeof(b->fold.from));
        b->fold.out = x->out, b->fold.bytes = x->result_bytes;
        args = &b->fold;
    } else if (step->protocol != CUDA_TILES) {
        cuda_exchange_seal(x);
    }
    struct tutti_gpu_launch how = {.kernel = kernel_of(b, call, step),
                                   .stream = stream,
                                   .blocks = step->blocks,
                                   .threads = step->threads,
                                   .overlaps = overlaps(b, step)};
    return tutti_gpu_launch(b->gpu, &how, args);
}

static enum tutti_status meet(struct cuda_backend *b, const struct tutti_backend_call *call, void *stream)
{
    struct tutti_gpu_launch how = {.kernel = b->meet, .stream = stream, .blocks = 1, .threads = MEET_THREADS};
    b->meeting.call.seq = call->seq;
    b->meeting.call.timeout_ns = b->timeout_ns == TUTTI_NEVER ? 0 : b->timeout_ns;
    return tutti_gpu_launch(b->gpu, &how, &b->meeting);
}

/* One stream goes on when the other has come here. */
static enum tutti_status tie(struct cuda_backend *b, void *before, void *after, void *event)
{
    TUTTI_TRY(tutti_gpu_event_record(b->gpu, event, before));
    return tutti_gpu_stream_wait(b->gpu, after, event);
}

enum tutti_status cuda_step_run(struct cuda_backend *b, const struct tutti_backend_call *call, void *stream)
{
    const struct cuda_step *step = &b->step;
    void *on = step->lane ? b->lane : stream;
    switch (step->act) {
    case CUDA_LAUNCH:
        return launch(b, call, on);
    case CUDA_COPY:
        return tutti_gpu_copy(b->gpu, step->dst, step->src, step->bytes, on);
    case CUDA_MEET:
        return meet(b, call, on);
    case CUDA_FORK:
        return tie(b, stream, b->lane, b->forked);
    case CUDA_JOIN:
        return tie(b, b->lane, stream, b->joined);
    }
    return tutti_fail(TUTTI_ERR_INTERNAL, "a step of cuda that does not exist");
}

/* ---- calls ---- */

enum tutti_status cuda_give_up(struct cuda_backend *b, const char *what, uint64_t seq)
{
    struct tutti_error error = *tutti_last_error(), told;
    tutti_error_set(&told, error.status, "%s after call #%" PRIu64 " failed on rank %u: %.300s", what,
                    tutti_team_next(b->team) - 1, b->me, error.text);
    told.peer = -1;
    told.step = TUTTI_NO_STEP;
    told.seq = seq;
    tutti_team_fail(b->team, &told, true);
    cuda_stop(&b->base);
    return tutti_fail_record(&told);
}

enum tutti_status cuda_give_up_half(struct cuda_backend *b, const char *what, uint64_t seq, void *stream,
                                    uint64_t capture)
{
    struct tutti_error why = *tutti_last_error();
    if (!capture) (void)tie(b, b->lane, stream, b->joined); /* steps may have been between a fork and a join */
    (void)cuda_order_end(b, stream, capture);
    tutti_fail_record(&why);
    return cuda_give_up(b, what, seq);
}

/* *half: it failed, and not at its first step. */
static enum tutti_status run_steps(struct cuda_backend *b, const struct cuda_method *method,
                                   const struct cuda_place *place, const struct tutti_backend_call *call, void *stream,
                                   bool *half)
{
    for (uint32_t i = 0; method->step(place, call, i, &b->step); i++) {
        *half = i > 0;
        TUTTI_TRY(cuda_step_run(b, call, stream));
    }
    return TUTTI_OK;
}

/* What ranks have to agree on beyond the call: a method for windows, which of them, where in it. */
static uint64_t where_by(const struct cuda_method *method, const struct cuda_place *place)
{
    return method && method->in_windows ? tutti_hash64(method->name, strlen(method->name), place->where) : 0;
}

/* method NULL: by the schedule that the call names. */
static enum tutti_status enqueue_in(struct cuda_backend *b, const struct cuda_method *method,
                                    const struct cuda_place *place, const struct tutti_backend_call *call, void *stream)
{
    uint64_t capture;
    bool half = false;
    TUTTI_TRY(cuda_order_begin(b, stream, &capture));
    enum tutti_status status =
        method ? run_steps(b, method, place, call, stream, &half) : cuda_schedule_run(b, call, stream);
    if (status < 0)
        return half ? cuda_give_up_half(b, tutti_kind_name(call->info.kind), call->seq, stream, capture) : status;
    cuda_log_post(b->logs[b->me], call, where_by(method, place), b->timeout_ns);
    b->posted_seq = call->seq;
    status = cuda_order_end(b, stream, capture);
    return status < 0 ? cuda_give_up(b, tutti_kind_name(call->info.kind), call->seq) : TUTTI_OK;
}

/* What methods are chosen by: the signature, and what windows add to it, of which places count by where they are within
 * 16 bytes. */
static uint64_t choice_of(const struct cuda_place *place, const struct tutti_backend_call *call)
{
    uintptr_t places = 0, apart = 0;
    if (!place->own) return call->info.signature;
    for (uint32_t q = 0; q < place->n; q++) {
        places |= (uintptr_t)cuda_place_there(place, call, q, 0);
        apart |= (uintptr_t)place->peers[q] ^ (uintptr_t)place->own;
    }
    const uint64_t in_place = cuda_call_in_place(place, call);
    return tutti_mix64(call->info.signature ^ (1 | in_place << 1 | (places & 15) << 2 | (apart & 15) << 6));
}

/* Once for each of those; but v forms hide more. */
static const struct cuda_method *choose(struct cuda_backend *b, const struct cuda_place *place,
                                        const struct tutti_backend_call *call)
{
    if (call->method || call->bind.v) return cuda_choose(place, call, call->method ? call->method : b->forced, NULL);
    const uint64_t by = choice_of(place, call);
    struct cuda_choice *known = &b->choices[by % CUDA_CHOICES];
    if (!known->method || known->by != by) *known = (struct cuda_choice){by, cuda_choose(place, call, b->forced, NULL)};
    return known->method;
}

enum tutti_status cuda_enqueue(struct tutti_device_backend *backend, const struct tutti_backend_call *call,
                               void *stream)
{
    struct cuda_backend *b = (struct cuda_backend *)backend;
    struct cuda_place place = b->place;
    struct tutti_gpu_scope scope;
    TUTTI_TRY(cuda_state(b));
    cuda_window_place(b, call, &place);
    const struct cuda_method *method = call->bind.schedule ? NULL : choose(b, &place, call);
    if (!method && !call->bind.schedule)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "cuda can not run %s of %s", tutti_kind_name(call->info.kind),
                          tutti_dtype_name(call->info.dtype));
    b->timeout_ns = call->info.timeout_ns ? call->info.timeout_ns : tutti_team_timeout(b->team);
    TUTTI_TRY(tutti_gpu_enter(b->gpu, &scope));
    const bool stale = method && method->in_windows && cuda_window_check(b, &place) < 0;
    const enum tutti_status status = stale ? cuda_give_up(b, tutti_kind_name(call->info.kind), call->seq)
                                           : enqueue_in(b, method, &place, call, stream);
    tutti_gpu_leave(&scope);
    return status;
}
