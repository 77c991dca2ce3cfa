/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps: kernels, copies, meetings, and where the own stream leaves and joins the caller's. */
#include "backend/cuda/run/cuda_backend.h"

#include <string.h>

#define MEET_THREADS 32

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

/* Small launches may overlap predecessors: together they leave enough SMs for every other launch. */
static bool overlaps(const struct cuda_backend *b, const struct cuda_step *step)
{
    return step->protocol <= CUDA_BATCH_SENTINEL && b->alone && step->blocks * step->threads <= 16384;
}

/* The parameter of the step's kernel, which begins with its call. */
static struct cuda_call *parameter_of(struct cuda_backend *b, struct cuda_step *step)
{
    struct cuda_exchange *x = &step->exchange;
    switch (step->protocol) {
    case CUDA_DIRECT:
        return &step->direct.call;
    case CUDA_SENTINEL2:
        b->two_shot.in = x->in, b->two_shot.out = x->out;
        b->two_shot.bytes = x->result_bytes, b->two_shot.shard_bytes = x->send[0].bytes;
        b->two_shot.units = x->units;
        cuda_two_shot_seal(&b->two_shot);
        return &b->two_shot.call;
    case CUDA_BATCH_LINES:
    case CUDA_BATCH_SENTINEL:
        b->batch.units = x->units;
        return &b->batch.call;
    case CUDA_FOLD:
        memcpy(b->fold.from, step->from, sizeof(b->fold.from));
        b->fold.out = x->out, b->fold.bytes = x->result_bytes;
        return &b->fold.call;
    case CUDA_LINES:
    case CUDA_SENTINEL:
        cuda_exchange_seal(x);
        return &x->call;
    default:
        return &x->call;
    }
}

static enum tutti_status launch(struct cuda_backend *b, const struct tutti_backend_call *call, void *stream)
{
    struct cuda_step *step = &b->step;
    if (step->blocks == 0) return TUTTI_OK;
    struct cuda_call *parameter = parameter_of(b, step);
    fill_call(parameter, call, step, cuda_timeout_ns(b));
    const struct tutti_gpu_launch how = {.kernel = kernel_of(b, call, step),
                                         .stream = stream,
                                         .blocks = step->blocks,
                                         .threads = step->threads,
                                         .overlaps = overlaps(b, step)};
    return tutti_gpu_launch(b->gpu, &how, parameter);
}

static enum tutti_status meet(struct cuda_backend *b, const struct tutti_backend_call *call, void *stream)
{
    struct tutti_gpu_launch how = {.kernel = b->meet, .stream = stream, .blocks = 1, .threads = MEET_THREADS};
    b->meeting.call.seq = call->seq;
    b->meeting.call.timeout_ns = cuda_timeout_ns(b);
    return tutti_gpu_launch(b->gpu, &how, &b->meeting);
}

enum tutti_status cuda_step_run(struct cuda_backend *b, const struct tutti_backend_call *call, void *stream)
{
    const struct cuda_step *step = &b->step;
    void *on = step->stream == CUDA_OWN ? b->own_stream : stream;
    switch (step->act) {
    case CUDA_LAUNCH:
        return launch(b, call, on);
    case CUDA_COPY:
        return tutti_gpu_copy(b->gpu, step->dst, step->src, step->bytes, on);
    case CUDA_MEET:
        return meet(b, call, on);
    case CUDA_FORK:
        return cuda_tie(b, stream, b->own_stream, b->forked);
    case CUDA_JOIN:
        return cuda_tie(b, b->own_stream, stream, b->joined);
    }
    return tutti_fail(TUTTI_ERR_INTERNAL, "a step of cuda that does not exist");
}
