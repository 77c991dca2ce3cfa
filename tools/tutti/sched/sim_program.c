/* SPDX-License-Identifier: BSD-3-Clause */
/* How much a simulation would take, and what is simulated instead where that is too much. */

#include "sim_program.h"

#include "sim_network.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Measured: bytes of an operation at the worst time, events of an operation, events and steps of one core a second. */
#define OP_BYTES 130.0
#define OP_EVENTS 1.5
#define EVENTS_A_SECOND 4e6
#define STEPS_A_SECOND 8e6
#define MOST_SECONDS 60                   /* that a rank which stands for others may take */
#define FEW_OPS 2e6                       /* so many of all ranks are simulated as they are */
#define MOST_COMPARED (UINT64_C(1) << 24) /* steps */

#define SAMPLED_OPS 9e6 /* so many of the first rounds are simulated where all are too many: */
enum {
    LEAST_SAMPLED = 8,
    MULTIPLE = 16
}; /* rounds; a multiple, lest the second half sees more slow hops than the first */

struct estimate {
    double ops, bytes, seconds;
    uint32_t rounds, slices;
};

/* What all ranks would take, if all do as much as the first or the middle one, whichever does more. */
static enum tutti_status estimate_of(const struct sim_call *call, struct estimate *out)
{
    struct tutti_shape shape = *call->shape;
    double most = 0;
    for (int i = 0; i < 2; i++) {
        struct tutti_schedule *schedule;
        shape.slot = i * (shape.size / 2);
        TUTTI_TRY(tutti_schedule_seal(call->algorithm, call->kind, &shape, true, &schedule));
        double ops = schedule->defect ? 0 : (double)schedule->n_steps * tutti_sim_slices_of(call->work, schedule);
        if (call->work->fold_fs > 0) ops *= 1.5;
        if (ops > most) most = ops;
        out->rounds = schedule->n_rounds;
        out->slices = schedule->defect ? 1 : tutti_sim_slices_of(call->work, schedule);
        tutti_schedule_destroy(schedule);
    }
    out->ops = most * shape.size;
    out->bytes = out->ops * OP_BYTES;
    out->seconds = out->ops * OP_EVENTS / EVENTS_A_SECOND + out->ops / STEPS_A_SECOND;
    return TUTTI_OK;
}

static double memory_of_machine(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && bytes > 0 ? (double)pages * (double)bytes : 1e18;
}

static bool too_large(const struct estimate *estimate)
{
    return estimate->bytes > memory_of_machine() / 2 || estimate->ops >= TUTTI_SIM_MOST_OPS;
}

static const char *seconds_text(double seconds, char out[32])
{
    if (seconds < 600)
        snprintf(out, 32, "%.0f seconds", seconds);
    else if (seconds < 36000)
        snprintf(out, 32, "%.0f minutes", seconds / 60);
    else
        snprintf(out, 32, "%.0f hours", seconds / 3600);
    return out;
}

static void tell(const struct sim_call *call, const struct estimate *estimate, char *out, size_t capacity)
{
    char time[32];
    snprintf(out, capacity, "All %u ranks take about %.2g events, %.1f GiB of memory and %s: --full runs them",
             call->shape->size, estimate->ops * OP_EVENTS, estimate->bytes / 1073741824,
             seconds_text(estimate->seconds, time));
}

static void refuse(const struct sim_call *call, const char *why, struct sim_report *report)
{
    const struct tutti_schedule_ops *ops = call->algorithm->kinds[call->kind];
    bool takes_radix = ops->default_radix > 0 || (ops->needs & TUTTI_TAKES_RADIX);
    snprintf(report->refused, sizeof(report->refused), "%.191s. Give fewer ranks%s. It can not be made smaller: %.200s",
             report->all,
             call->work->slice_bytes > 0 ? ", or larger slices"
             : takes_radix               ? ", or another radix"
                                         : "",
             why);
}

/* How many of n parts are simulated where `fit` of them fit; 0: too few to tell the rest. */
static uint32_t sampled_of(double fit, uint32_t n, uint32_t multiple)
{
    uint32_t some = fit > n / 2 ? n / 2 : (uint32_t)fit;
    some = some >= 2 * multiple ? some / (2 * multiple) * (2 * multiple) : LEAST_SAMPLED;
    return fit < LEAST_SAMPLED || some > n / 2 ? 0 : some;
}

/* The first rounds of all ranks, or the first slices, as many as fit; false: they are too few to tell the rest. */
static bool make_sample(const struct sim_call *call, const struct estimate *estimate, struct sim_report *report,
                        struct tutti_sim_program *out)
{
    struct tutti_sim_work work = *call->work;
    double share = SAMPLED_OPS / estimate->ops;
    uint32_t rounds = sampled_of(share * estimate->rounds, estimate->rounds, MULTIPLE), slices = 0;
    if (call->rounds > 0) rounds = call->rounds <= estimate->rounds / 2 ? call->rounds : 0;
    if (call->rounds == 0 && rounds == 0) slices = sampled_of(2 * share * estimate->slices, estimate->slices, 1);
    if (slices < 2 * work.active) slices = 0; /* the second half begins when as many are under way as can be */
    if (rounds == 0 && slices == 0) return false;
    work.rounds = rounds;
    if (slices > 0)
        work.block_bytes = work.block_bytes / estimate->slices * slices / work.element_bytes * work.element_bytes;
    if (tutti_sim_program_make(call->algorithm, call->kind, call->shape, &work, out) < 0) return false;
    report->sampled = slices > 0 ? slices : rounds;
    report->sampled_of = slices > 0 ? estimate->slices : estimate->rounds;
    report->by_slices = slices > 0;
    return true;
}

static bool make_few(const struct sim_call *call, struct sim_report *report, struct tutti_sim_program *out)
{
    if (tutti_sim_program_reduce(call->algorithm, call->kind, call->shape, call->work, MOST_COMPARED, true, out,
                                 &report->symmetry) < 0)
        return false;
    report->classes = out->turn.classes;
    return true;
}

/* One rank for many: worth while only where that one can be simulated soon. */
static bool make_few_soon(const struct sim_call *call, const struct estimate *all, struct sim_report *report,
                          struct tutti_sim_program *out, char *why, size_t capacity)
{
    char time[32];
    struct estimate one = *all;
    one.ops /= call->shape->size, one.bytes /= call->shape->size, one.seconds /= call->shape->size;
    if (!sched_network_alike()) {
        snprintf(why, capacity, "on this network no rank stands for others");
    } else if (too_large(&one) || one.seconds > MOST_SECONDS) {
        snprintf(why, capacity, "one rank alone has %.2g events and takes %.1f GiB of memory and %s",
                 one.ops * OP_EVENTS, one.bytes / 1073741824, seconds_text(one.seconds, time));
    } else {
        if (make_few(call, report, out)) return true;
        snprintf(why, capacity, "%s", tutti_last_error()->text);
    }
    return false;
}

bool sim_program_open(const struct sim_call *call, struct sim_report *report, struct tutti_sim_program *out)
{
    struct estimate estimate;
    enum tutti_status status = estimate_of(call, &estimate);
    if (status >= 0 && call->rounds > 0 && make_sample(call, &estimate, report, out)) return true;
    if (status >= 0 && !call->full && estimate.ops > FEW_OPS) {
        char why[TUTTI_ERROR_TEXT];
        report->all_fit = !too_large(&estimate);
        if (make_few_soon(call, &estimate, report, out, why, sizeof why)) return true;
        if (!report->all_fit) {
            tell(call, &estimate, report->all, sizeof(report->all));
            if (make_sample(call, &estimate, report, out)) return true;
            refuse(call, why, report);
            return false;
        }
    }
    if (status >= 0) status = tutti_sim_program_make(call->algorithm, call->kind, call->shape, call->work, out);
    if (status < 0) snprintf(report->refused, sizeof(report->refused), "%s", tutti_last_error()->text);
    return status >= 0;
}
