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
#define FEW_OPS 2e6                       /* so many of all ranks are simulated as they are */
#define MOST_COMPARED (UINT64_C(1) << 24) /* steps */

struct estimate {
    double ops, bytes, seconds;
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

static void refuse(const struct sim_call *call, const struct estimate *estimate, const char *why,
                   struct sim_report *report)
{
    char time[32];
    const struct tutti_schedule_ops *ops = call->algorithm->kinds[call->kind];
    bool takes_radix = ops->default_radix > 0 || (ops->needs & TUTTI_TAKES_RADIX);
    snprintf(report->refused, sizeof(report->refused),
             "%.40s %s on all %u ranks takes about %.2g events, %.1f GiB of memory and %s%s%.200s: give fewer ranks%s, "
             "or --full "
             "to run it all the same",
             call->algorithm->name, tutti_kind_name(call->kind), call->shape->size, estimate->ops * OP_EVENTS,
             estimate->bytes / 1073741824, seconds_text(estimate->seconds, time), why[0] ? ", and " : "", why,
             call->work->slice_bytes > 0 ? " or larger slices"
             : takes_radix               ? " or another radix"
                                         : "");
}

static bool make_few(const struct sim_call *call, struct sim_report *report, struct tutti_sim_program *out)
{
    if (tutti_sim_program_reduce(call->algorithm, call->kind, call->shape, call->work, MOST_COMPARED, true, out,
                                 &report->symmetry) < 0)
        return false;
    report->classes = out->turn.classes;
    return true;
}

bool sim_program_open(const struct sim_call *call, struct sim_report *report, struct tutti_sim_program *out)
{
    struct estimate estimate;
    enum tutti_status status = estimate_of(call, &estimate);
    const char *why = "";
    if (status >= 0 && !call->full && estimate.ops > FEW_OPS) {
        report->all_fit = !too_large(&estimate);
        if (sched_network_alike() && make_few(call, report, out)) return true;
        why = sched_network_alike() ? tutti_last_error()->text : "on this network no rank stands for others";
        if (!report->all_fit) {
            refuse(call, &estimate, why, report);
            return false;
        }
    }
    if (status >= 0) status = tutti_sim_program_make(call->algorithm, call->kind, call->shape, call->work, out);
    if (status < 0) snprintf(report->refused, sizeof(report->refused), "%s", tutti_last_error()->text);
    return status >= 0;
}
