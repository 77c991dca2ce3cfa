/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps: kernels, copies, meetings, and where the own stream leaves and joins the caller's. */
#include "backend/gpu/gpu_backend.h"

#include <string.h>

#define MEET_THREADS 32

static void fill_call(struct gpu_call *out, const struct tutti_backend_call *call, const struct gpu_step *step,
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
static void *kernel_of(const struct gpu_backend *b, const struct tutti_backend_call *call, const struct gpu_step *step)
{
    uint32_t reducer = step->folds ? (uint32_t)call->info.dtype : (uint32_t)GPU_MOVE;
    void *sum = b->kernels[step->protocol][reducer].sum;
    return step->folds && gpu_sums(call) && sum ? sum : b->kernels[step->protocol][reducer].any;
}

/* Small launches may overlap predecessors: together they leave enough SMs for every other launch. */
static bool overlaps(const struct gpu_backend *b, const struct gpu_step *step)
{
    return step->protocol <= GPU_BATCH_SENTINEL && b->alone && step->blocks * step->threads <= 16384;
}

static const uint32_t parameter_bytes[GPU_N_PROTOCOLS] = {
    [GPU_LINES] = sizeof(struct gpu_exchange),     [GPU_SENTINEL] = sizeof(struct gpu_exchange),
    [GPU_SENTINEL2] = sizeof(struct gpu_two_shot), [GPU_SENTINEL_RELAY] = sizeof(struct gpu_exchange),
    [GPU_BATCH_LINES] = sizeof(struct gpu_batch),  [GPU_BATCH_SENTINEL] = sizeof(struct gpu_batch),
    [GPU_TILES] = sizeof(struct gpu_exchange),     [GPU_DIRECT] = sizeof(struct gpu_direct),
    [GPU_MAPPED] = sizeof(struct gpu_mapped),      [GPU_FOLD] = sizeof(struct gpu_fold)};

/* Where peers have the call's buffers, and both ways of the step. */
static struct gpu_call *mapped_of(struct gpu_backend *b, const struct tutti_backend_call *call,
                                  const struct gpu_step *step)
{
    const enum tutti_kind kind = call->info.kind;
    const char *buffers[GPU_PLACES] = {call->bind.input, call->bind.output};
    const bool has_blocks = kind != TUTTI_ALL_REDUCE && kind != TUTTI_BROADCAST;
    const size_t bytes = gpu_call_bytes(call) * (has_blocks ? b->site.n : 1);
    struct gpu_mapped *m = &b->mapped;
    m->exchange = step->exchange, m->direct = step->direct;
    m->needs = step->needs, m->spreads = step->spreads;
    m->blocks = call->overlaps && b->overlap_blocks < step->straight ? b->overlap_blocks : step->straight;
    m->posted = call->overlaps; /* by the step before */
    for (uint32_t p = 0; p < GPU_PLACES; p++) {
        m->places[p] = (struct gpu_place){0};
        if ((step->needs >> p & 1) && !step->in_the_way)
            gpu_maps_place(b, buffers[p], bytes, b->captures, &m->places[p]);
    }
    m->direct.call.seq = call->seq;
    m->direct.call.timeout_ns = gpu_timeout_ns(b);
    return &m->exchange.call;
}

/* The parameter of the step's kernel, which begins with its call. */
static struct gpu_call *parameter_of(struct gpu_backend *b, const struct tutti_backend_call *call)
{
    struct gpu_step *step = &b->step;
    struct gpu_exchange *x = &step->exchange;
    switch (step->protocol) {
    case GPU_DIRECT:
        return &step->direct.call;
    case GPU_MAPPED:
        return mapped_of(b, call, step);
    case GPU_SENTINEL2:
        b->two_shot.in = x->in, b->two_shot.out = x->out;
        b->two_shot.bytes = x->result_bytes, b->two_shot.shard_bytes = x->send[0].bytes;
        b->two_shot.units = x->units;
        gpu_two_shot_seal(&b->two_shot);
        return &b->two_shot.call;
    case GPU_BATCH_LINES:
    case GPU_BATCH_SENTINEL:
        b->batch.units = x->units;
        return &b->batch.call;
    case GPU_FOLD:
        memcpy(b->fold.from, step->from, sizeof(b->fold.from));
        b->fold.out = x->out, b->fold.bytes = x->result_bytes;
        return &b->fold.call;
    case GPU_LINES:
    case GPU_SENTINEL:
    case GPU_SENTINEL_RELAY:
        gpu_exchange_seal(x);
        return &x->call;
    default:
        return &x->call;
    }
}

static enum tutti_status launch(struct gpu_backend *b, const struct tutti_backend_call *call, void *stream)
{
    struct gpu_step *step = &b->step;
    if (step->blocks == 0) return TUTTI_OK;
    struct gpu_call *parameter = parameter_of(b, call);
    fill_call(parameter, call, step, gpu_timeout_ns(b));
    const struct tutti_gpu_launch how = {.kernel = kernel_of(b, call, step),
                                         .stream = stream,
                                         .blocks = step->blocks,
                                         .threads = step->threads,
                                         .args_bytes = parameter_bytes[step->protocol],
                                         .overlaps = overlaps(b, step)};
    return b->gpu->ops->gpu->launch(b->gpu, &how, parameter);
}

/* One warp posts and waits. */
static enum tutti_status arrive(struct gpu_backend *b, const struct tutti_backend_call *call, void *stream)
{
    const struct tutti_gpu_launch how = {
        .kernel = b->arrive, .stream = stream, .blocks = 1, .threads = MEET_THREADS, .args_bytes = sizeof(b->mapped)};
    fill_call(mapped_of(b, call, &b->step), call, &b->step, gpu_timeout_ns(b));
    return b->gpu->ops->gpu->launch(b->gpu, &how, &b->mapped);
}

static enum tutti_status meet(struct gpu_backend *b, const struct tutti_backend_call *call, void *stream)
{
    struct tutti_gpu_launch how = {
        .kernel = b->meet, .stream = stream, .blocks = 1, .threads = MEET_THREADS, .args_bytes = sizeof(b->meeting)};
    b->meeting.call.seq = call->seq;
    b->meeting.call.timeout_ns = gpu_timeout_ns(b);
    return b->gpu->ops->gpu->launch(b->gpu, &how, &b->meeting);
}

enum tutti_status gpu_gate_run(struct gpu_backend *b, const struct tutti_backend_call *call, void *stream)
{
    const struct tutti_gpu_launch how = {.kernel = b->gate,
                                         .stream = stream,
                                         .blocks = 1,
                                         .threads = MEET_THREADS,
                                         .args_bytes = sizeof(b->gate_of),
                                         .overlaps = b->alone};
    b->gate_of.call.seq = call->seq;
    b->gate_of.call.timeout_ns = gpu_timeout_ns(b);
    b->gate_of.words = call->gate->words;
    b->gate_of.number = call->gate->number;
    return b->gpu->ops->gpu->launch(b->gpu, &how, &b->gate_of);
}

enum tutti_status gpu_step_run(struct gpu_backend *b, const struct tutti_backend_call *call, void *stream)
{
    const struct gpu_step *step = &b->step;
    void *on = step->stream == GPU_OWN ? b->own_stream : stream;
    switch (step->act) {
    case GPU_LAUNCH:
        return launch(b, call, on);
    case GPU_COPY:
        return b->gpu->ops->copy(b->gpu, step->dst, step->src, step->bytes, on);
    case GPU_MEET:
        return meet(b, call, on);
    case GPU_FORK:
        return gpu_tie(b, stream, b->own_stream, b->forked);
    case GPU_JOIN:
        return gpu_tie(b, b->own_stream, stream, b->joined);
    case GPU_ARRIVE:
        return arrive(b, call, on);
    }
    return tutti_fail(TUTTI_ERR_INTERNAL, "a step that does not exist");
}
