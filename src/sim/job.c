/* SPDX-License-Identifier: BSD-3-Clause */
/* A step of a training job, by recurrences over buckets, layers or microbatches. Ranks are alike but for the delays of
 * job_noise.c: a step's computing is stretched to that of the slowest rank, since all of them wait for it in the first
 * collective. A rank has one stream that computes and, beside it, streams that communicate, each one call at a time. */

#include "sim/job.h"

#include <math.h>
#include <string.h>

/* A step at one world, before noise. */
struct step {
    const struct tutti_job *job;
    uint32_t ranks_per_node, ranks;
    double scale; /* the part of its work that a rank has: below 1 where the job's work is shared by more ranks */
    uint32_t microbatches; /* a pipeline's */
    /* By bucket (data, and pipelines: of stage s those from first[s] on), or by unit (HSDP). */
    uint32_t n, *first, *ends;
    double *ready, *seconds;             /* data: buckets; pipeline: ready counts from the last backward pass's begin */
    double *forward, *backward;          /* by unit, or by stage: one microbatch */
    double *gather, *scatter, *replicas; /* by unit; pipeline: gather is the message to the next stage, by stage */
    double *f_end, *b_end;               /* pipeline: by stage and microbatch */
    uint32_t *done;
};

static double later(double a, double b)
{
    return a > b ? a : b;
}

uint32_t tutti_job_buckets(const struct tutti_job *job, const uint32_t *order, uint32_t n, uint32_t *ends)
{
    uint64_t size = 0;
    uint32_t n_buckets = 0;
    for (uint32_t i = 0; i < n; i++) {
        size += job->tensors[order[i]].bytes;
        if (size < (n_buckets == 0 ? job->first_bucket : job->bucket) && i + 1 < n) continue;
        ends[n_buckets++] = i + 1;
        size = 0;
    }
    return n_buckets;
}

static enum tutti_status call_seconds(const struct step *step, const struct tutti_job_times *times,
                                      const struct tutti_job_call *what, bool gradients, double *out)
{
    const struct tutti_job *job = step->job;
    struct tutti_job_call call = *what;
    double extra = job->call_overhead_s;
    *out = 0;
    if (call.size < 2 || call.bytes == 0) return TUTTI_OK;
    call.ranks_per_node = step->ranks_per_node;
    if (gradients && job->compression != 1) {
        if (job->compression_rate > 0) extra += (double)call.bytes / (job->compression_rate * 1e9);
        call.bytes = (uint64_t)ceil((double)call.bytes / job->compression);
    }
    TUTTI_TRY(times->seconds(times->argument, &call, out));
    *out += extra;
    return TUTTI_OK;
}

static double forward_of(const struct tutti_job *job)
{
    double seconds = job->forward_s;
    for (uint32_t i = 0; i < job->n_tensors; i++) seconds += job->tensors[i].forward_s;
    return seconds;
}

static double *numbers(uint32_t n)
{
    return tutti_alloc_array(n > 0 ? n : 1, sizeof(double));
}

/* ---- data: all gradients are reduced by all ranks, bucket by bucket, while the backward pass goes on ---- */

/* When work that begins now is over, if communication slows it until then. */
static double work_until(double now, double work, double busy_until, double interference)
{
    double beside = busy_until > now ? (busy_until - now) / (1 + interference) : 0;
    if (work <= beside) return now + work * (1 + interference);
    return later(now, busy_until) + work - beside;
}

/* Buckets [first, last), of a backward pass of so many seconds that begins at `start`. When all are reduced. */
static double run_buckets(const struct step *step, uint32_t first, uint32_t last, double start, double backward,
                          double stretch)
{
    const struct tutti_job *job = step->job;
    double now = start, quiet = start, before = 0, owed = 0;
    for (uint32_t k = first; k < last; k++) {
        now = work_until(now, (step->ready[k] - before) * stretch, quiet, job->interference);
        before = step->ready[k];
        if (job->overlap)
            quiet = later(now, quiet) + step->seconds[k];
        else
            owed += step->seconds[k];
    }
    now = work_until(now, (backward - before) * stretch, quiet, job->interference);
    return later(now, quiet) + owed;
}

static enum tutti_status make_buckets(struct step *step, const struct tutti_job_times *times, const uint32_t *order,
                                      uint32_t n, uint32_t group, double base)
{
    const struct tutti_job *job = step->job;
    uint32_t from = 0, n_buckets = tutti_job_buckets(job, order, n, step->ends);
    for (uint32_t k = 0; k < n_buckets; k++) {
        struct tutti_job_call call = {.kind = TUTTI_ALL_REDUCE, .size = group, .stride = 1};
        for (; from < step->ends[k]; from++) call.bytes += job->tensors[order[from]].bytes;
        step->ready[step->n] = (job->tensors[order[from - 1]].ready_s - base) * step->scale;
        TUTTI_TRY(call_seconds(step, times, &call, true, &step->seconds[step->n++]));
    }
    return TUTTI_OK;
}

static enum tutti_status data_make(struct step *step, const struct tutti_job_times *times)
{
    return make_buckets(step, times, step->job->by_ready, step->job->n_tensors, step->ranks, 0);
}

static double data_seconds(const struct step *step, double stretch)
{
    const struct tutti_job *job = step->job;
    double forward = forward_of(job) * step->scale, backward = job->backward_s * step->scale;
    double silent = job->input_s * step->scale + forward * job->accumulate + backward * (job->accumulate - 1);
    return run_buckets(step, 0, step->n, silent * stretch, backward, stretch) + job->optimizer_s * stretch;
}

/* ---- hsdp: parameters are sharded by `shard` ranks, shards are replicated ---- */

static enum tutti_status unit_make(struct step *step, const struct tutti_job_times *times, uint64_t bytes)
{
    const struct tutti_job *job = step->job;
    uint32_t i = step->n++, shard = job->shard ? job->shard : step->ranks_per_node;
    struct tutti_job_call call = {.kind = TUTTI_ALL_GATHER, .size = shard, .stride = 1};
    call.bytes = (uint64_t)((double)bytes * job->gather);
    TUTTI_TRY(call_seconds(step, times, &call, false, &step->gather[i]));
    call = (struct tutti_job_call){.kind = TUTTI_REDUCE_SCATTER, .bytes = bytes, .size = shard, .stride = 1};
    TUTTI_TRY(call_seconds(step, times, &call, true, &step->scatter[i]));
    call = (struct tutti_job_call){
        .kind = TUTTI_ALL_REDUCE, .bytes = (bytes + shard - 1) / shard, .size = step->ranks / shard, .stride = shard};
    return call_seconds(step, times, &call, true, &step->replicas[i]);
}

/* Tensors that follow one another are one unit until it has job->unit bytes. */
static enum tutti_status hsdp_make(struct step *step, const struct tutti_job_times *times)
{
    const struct tutti_job *job = step->job;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < job->n_tensors; i++) {
        const struct tutti_job_tensor *tensor = &job->tensors[i];
        step->forward[step->n] += tensor->forward_s * step->scale;
        step->backward[step->n] += tensor->backward_s * step->scale;
        bytes += tensor->bytes;
        if (bytes < job->unit && i + 1 < job->n_tensors) continue;
        TUTTI_TRY(unit_make(step, times, bytes));
        bytes = 0;
    }
    /* What is not a tensor's goes with all units evenly. */
    double forward = job->forward_s * step->scale, backward = job->backward_s * step->scale;
    for (uint32_t i = 0; i < step->n; i++) backward -= step->backward[i];
    for (uint32_t i = 0; i < step->n; i++) {
        step->forward[i] += forward / step->n;
        step->backward[i] += backward / step->n;
    }
    return TUTTI_OK;
}

/* Shards within a node and their replicas on other nodes have links of their own. Where a shard has ranks of several
 * nodes both go by the nodes' network, which carries out one call at a time, in the order in which they may begin: as
 * if they shared it, but for which of two is over first. */
struct streams {
    double compute, gather, scatter, replicas; /* when each is free */
    double began;                              /* when the last unit began to compute */
    double network;                            /* when it is free, if there is but one */
    bool shared;
};

static double call_until(struct streams *at, double from, double seconds)
{
    if (at->shared && seconds > 0) from = later(from, at->network), at->network = from + seconds;
    return from + seconds;
}

/* A unit's parameters are gathered while the one before it computes, as FSDP does; without overlap after it. */
static void unit_gather(const struct step *step, uint32_t unit, struct streams *at)
{
    double from = step->job->overlap ? at->began : at->compute;
    at->gather = call_until(at, later(at->gather, from), step->gather[unit]);
}

static void unit_compute(double work, struct streams *at)
{
    at->began = later(at->compute, at->gather);
    at->compute = at->began + work;
}

/* ended: when its backward pass did. */
static void unit_reduce(const struct step *step, uint32_t unit, double ended, struct streams *at)
{
    at->scatter = call_until(at, later(at->scatter, ended), step->scatter[unit]);
    at->replicas = call_until(at, later(at->replicas, at->scatter), step->replicas[unit]);
    if (!step->job->overlap) at->compute = at->replicas;
}

static double hsdp_seconds(const struct step *step, double stretch)
{
    const struct tutti_job *job = step->job;
    double input = job->input_s * step->scale * stretch;
    const uint32_t shard = job->shard ? job->shard : step->ranks_per_node;
    struct streams at = {.compute = input, .shared = shard > step->ranks_per_node};
    for (uint32_t pass = 1; pass <= job->accumulate; pass++) {
        const bool reduces = pass == job->accumulate;
        for (uint32_t i = 0; i < step->n; i++) {
            unit_gather(step, i, &at);
            unit_compute(step->forward[i] * stretch, &at);
        }
        for (uint32_t i = step->n; i-- > 0;) {
            /* The next unit is gathered while this one computes, so before what this one brings is reduced. */
            const double ended = at.compute;
            const bool behind = reduces && i + 1 < step->n;
            if (behind && !job->overlap) unit_reduce(step, i + 1, ended, &at);
            unit_gather(step, i, &at);
            if (behind && job->overlap) unit_reduce(step, i + 1, ended, &at);
            unit_compute(step->backward[i] * stretch, &at);
        }
        if (reduces && step->n > 0) unit_reduce(step, 0, at.compute, &at);
    }
    return later(at.compute, later(at.scatter, at.replicas)) + job->optimizer_s * stretch;
}

/* ---- pipeline: stages of layers, microbatches through them; replicas of a stage reduce their gradients ---- */

/* ends[s]: the tensor behind the last one of stage s. Each stage gets its share of the computing, as near as whole
 * tensors allow. */
static void stages_cut(const struct tutti_job *job, uint32_t *ends)
{
    double all = 0, sum = 0;
    uint32_t stage = 0;
    for (uint32_t i = 0; i < job->n_tensors; i++) all += job->tensors[i].forward_s + job->tensors[i].backward_s;
    for (uint32_t i = 0; i < job->n_tensors && stage + 1 < job->stages; i++) {
        double own = job->tensors[i].forward_s + job->tensors[i].backward_s;
        uint32_t rest = job->n_tensors - i, stages_after = job->stages - 1 - stage;
        bool begun = i > (stage ? ends[stage - 1] : 0);
        /* The tensor is this stage's when more than half of it lies before the cut. */
        if (begun && (sum + own / 2 > all * (stage + 1) / job->stages || rest <= stages_after)) ends[stage++] = i;
        sum += own;
    }
    while (stage < job->stages) ends[stage++] = job->n_tensors;
}

static enum tutti_status stage_make(struct step *step, const struct tutti_job_times *times, uint32_t stage,
                                    uint32_t from, uint32_t to)
{
    const struct tutti_job *job = step->job;
    uint32_t group = step->ranks / job->stages, n = to - from;
    uint32_t *order = tutti_alloc_array(n, sizeof(*order));
    double base = INFINITY;
    if (!order) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a stage of %u tensors", n);
    for (uint32_t i = 0, k = 0; i < job->n_tensors; i++) {
        uint32_t tensor = job->by_ready[i];
        if (tensor < from || tensor >= to) continue;
        order[k++] = tensor;
        step->forward[stage] += job->tensors[tensor].forward_s;
        step->backward[stage] += job->tensors[tensor].backward_s;
        base = fmin(base, job->tensors[tensor].ready_s - job->tensors[tensor].backward_s);
    }
    struct tutti_job_call call = {
        .kind = TUTTI_BROADCAST, .bytes = job->tensors[to - 1].activation, .size = 2, .stride = group};
    enum tutti_status status = TUTTI_OK;
    if (stage + 1 < job->stages) status = call_seconds(step, times, &call, false, &step->gather[stage]);
    step->first[stage] = step->n;
    if (status >= 0) status = make_buckets(step, times, order, n, group, base);
    step->first[stage + 1] = step->n;
    tutti_free(order);
    return status;
}

static enum tutti_status pipeline_make(struct step *step, const struct tutti_job_times *times)
{
    const struct tutti_job *job = step->job;
    size_t n = (size_t)job->stages * step->microbatches;
    double rest_forward = job->forward_s, rest_backward = job->backward_s;
    uint32_t *cuts = tutti_alloc_array(job->stages, sizeof(*cuts));
    step->f_end = tutti_alloc_array(n, sizeof(double));
    step->b_end = tutti_alloc_array(n, sizeof(double));
    step->done = tutti_alloc_array(job->stages, sizeof(*step->done));
    enum tutti_status status = cuts && step->f_end && step->b_end && step->done
                                   ? TUTTI_OK
                                   : tutti_fail(TUTTI_ERR_MEMORY, "no memory for %zu microbatches of stages", n);
    if (status >= 0) stages_cut(job, cuts);
    for (uint32_t s = 0; s < job->stages && status >= 0; s++)
        status = stage_make(step, times, s, s ? cuts[s - 1] : 0, cuts[s]);
    for (uint32_t i = 0; i < job->n_tensors; i++) rest_backward -= job->tensors[i].backward_s;
    for (uint32_t s = 0; s < job->stages; s++) {
        step->forward[s] += rest_forward / job->stages;
        step->backward[s] += rest_backward / job->stages;
    }
    tutti_free(cuts);
    return status;
}

/* Which pass a stage takes as its k-th: 1F1B fills the pipeline, then goes on by one forward and one backward. */
static bool pass_of(const struct step *step, uint32_t stage, uint32_t k, uint32_t *microbatch)
{
    uint32_t m = step->microbatches, warm = step->job->order == TUTTI_JOB_GPIPE ? m : step->job->stages - stage - 1;
    if (warm > m) warm = m;
    if (k < warm) return *microbatch = k, true;
    if (k >= 2 * m - warm) return *microbatch = k - m, false;
    bool forward = (k - warm) % 2 == 0;
    *microbatch = (k - warm) / 2 + (forward ? warm : 0);
    return forward;
}

/* Runs the stage's next pass if what it waits for is there. */
static bool pass_run(const struct step *step, uint32_t stage, double stretch, double *free)
{
    uint32_t m = step->microbatches, i, p = step->job->stages;
    bool forward = pass_of(step, stage, step->done[stage], &i);
    double *f = step->f_end, *b = step->b_end, begin = *free;
    if (forward && stage > 0) {
        if (f[(stage - 1) * m + i] < 0) return false;
        begin = later(begin, f[(stage - 1) * m + i] + step->gather[stage - 1]);
    } else if (!forward && stage + 1 < p) {
        if (b[(stage + 1) * m + i] < 0) return false;
        begin = later(begin, b[(stage + 1) * m + i] + step->gather[stage]);
    }
    *free = begin + (forward ? step->forward[stage] : step->backward[stage]) * stretch;
    (forward ? f : b)[stage * m + i] = *free;
    step->done[stage]++;
    return true;
}

static double pipeline_seconds(const struct step *step, double stretch)
{
    const struct tutti_job *job = step->job;
    uint32_t p = job->stages, m = step->microbatches;
    double free[TUTTI_JOB_MOST_STAGES], end = 0;
    for (size_t i = 0; i < (size_t)p * m; i++) step->f_end[i] = step->b_end[i] = -1;
    for (uint32_t s = 0; s < p; s++) step->done[s] = 0, free[s] = job->input_s * stretch;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t s = 0; s < p; s++)
            while (step->done[s] < 2 * m && pass_run(step, s, stretch, &free[s])) moved = true;
    }
    for (uint32_t s = 0; s < p; s++)
        end = later(end, run_buckets(step, step->first[s], step->first[s + 1], free[s] - step->backward[s] * stretch,
                                     step->backward[s], stretch));
    return end + job->optimizer_s * stretch;
}

/* ---- all of them ---- */

static const struct {
    enum tutti_status (*make)(struct step *step, const struct tutti_job_times *times);
    double (*seconds)(const struct step *step, double stretch);
} ways[TUTTI_JOB_PARALLELS] = {
    [TUTTI_JOB_DATA] = {data_make, data_seconds},
    [TUTTI_JOB_HSDP] = {hsdp_make, hsdp_seconds},
    [TUTTI_JOB_PIPELINE] = {pipeline_make, pipeline_seconds},
};

/* A rank's computing, with nobody to wait for. */
static double ideal_of(const struct step *step, double scale, uint32_t microbatches)
{
    const struct tutti_job *job = step->job;
    double pass = forward_of(job) + job->backward_s;
    if (job->parallel == TUTTI_JOB_PIPELINE) return job->input_s + pass * microbatches / job->stages + job->optimizer_s;
    return (job->input_s + pass * job->accumulate) * scale + job->optimizer_s;
}

static double called_of(const struct step *step)
{
    const struct tutti_job *job = step->job;
    double all = 0;
    bool pipeline = job->parallel == TUTTI_JOB_PIPELINE;
    for (uint32_t i = 0; i < step->n; i++) all += step->seconds[i] + step->scatter[i] + step->replicas[i];
    for (uint32_t i = 0; i < step->n && !pipeline; i++) all += 2 * job->accumulate * step->gather[i];
    /* A stage in the middle, on average. */
    for (uint32_t s = 0; s + 1 < job->stages && pipeline; s++) all += 2 * step->gather[s] * step->microbatches;
    return pipeline ? all / job->stages : all;
}

static uint32_t calls_of(const struct step *step)
{
    const struct tutti_job *job = step->job;
    if (job->parallel == TUTTI_JOB_HSDP) return step->n * (2 * job->accumulate + 2);
    return job->parallel == TUTTI_JOB_DATA ? step->n : step->n / job->stages;
}

static enum tutti_status open_step(struct step *step)
{
    uint32_t n = step->job->n_tensors > step->job->stages ? step->job->n_tensors : step->job->stages;
    step->ends = tutti_alloc_array(n, sizeof(*step->ends));
    step->first = tutti_alloc_array((size_t)step->job->stages + 1, sizeof(*step->first));
    double **arrays[] = {&step->ready,  &step->seconds, &step->forward, &step->backward,
                         &step->gather, &step->scatter, &step->replicas};
    bool full = step->ends && step->first;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(arrays); i++) full = (*arrays[i] = numbers(n)) && full;
    return full ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "no memory for a step of %u tensors", n);
}

static void close_step(struct step *step)
{
    void *arrays[] = {step->ready,    step->seconds, step->forward, step->backward, step->gather, step->scatter,
                      step->replicas, step->f_end,   step->b_end,   step->done,     step->ends,   step->first};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(arrays); i++) tutti_free(arrays[i]);
}

/* The mean over steps: the computing of each is as much longer as the slowest rank's. */
static enum tutti_status noisy_seconds(const struct step *step, double ideal, double *out)
{
    const struct tutti_job *job = step->job;
    double sum = 0, *delays = numbers(job->steps);
    if (!delays) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %u steps", job->steps);
    enum tutti_status status = tutti_job_delays(job, step->ranks, ideal, delays);
    for (uint32_t i = 0; i < job->steps && status >= 0; i++)
        sum += ways[job->parallel].seconds(step, ideal > 0 ? 1 + delays[i] / ideal : 1);
    tutti_free(delays);
    *out = sum / job->steps;
    return status;
}

enum tutti_status tutti_job_step(const struct tutti_job *job, uint32_t nodes, bool strong,
                                 const struct tutti_job_times *times, struct tutti_job_point *out)
{
    struct step step = {.job = job, .ranks_per_node = job->ranks_per_node, .ranks = nodes * job->ranks_per_node};
    double share = strong ? (double)job->strong_from / nodes : 1;
    *out = (struct tutti_job_point){.nodes = nodes, .ranks = step.ranks};
    step.scale = job->parallel == TUTTI_JOB_PIPELINE ? 1 : share;
    step.microbatches = (uint32_t)(job->microbatches * share + 1e-9);
    uint32_t parts = job->parallel == TUTTI_JOB_PIPELINE ? job->stages
                     : job->parallel == TUTTI_JOB_HSDP   ? (job->shard ? job->shard : job->ranks_per_node)
                                                         : 1;
    if (step.ranks % parts != 0) return TUTTI_OK;
    if (job->parallel == TUTTI_JOB_PIPELINE && step.microbatches < job->microbatches * share - 1e-9) return TUTTI_OK;
    enum tutti_status status = open_step(&step);
    if (status >= 0) status = ways[job->parallel].make(&step, times);
    double quiet = 0, full = 0; /* full: a rank's work where it is not shared */
    if (status >= 0) {
        out->ideal_s = ideal_of(&step, step.scale, step.microbatches);
        full = ideal_of(&step, 1, job->microbatches);
        out->called_s = called_of(&step);
        out->calls = calls_of(&step);
        quiet = ways[job->parallel].seconds(&step, 1);
        status = job->n_noises > 0 || job->slow_share > 0 ? noisy_seconds(&step, out->ideal_s, &out->step_s)
                                                          : (out->step_s = quiet, TUTTI_OK);
    }
    if (status >= 0) {
        out->possible = true;
        out->exposed_s = quiet - out->ideal_s;
        out->waited_s = fabs(out->step_s - quiet) > 1e-9 * quiet ? out->step_s - quiet : 0;
        out->efficiency = out->step_s > 0 ? (1 - job->drop) * share * full / out->step_s : 1;
    }
    close_step(&step);
    return status;
}
