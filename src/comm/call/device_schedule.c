/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedules, those of users' files too, carried out on device memory. They are enqueued on the caller's stream, stage
 * by stage (sched/stages.c): the stage's messages, by a back end of the device, then its copies and folds. They begin
 * with a meeting of all ranks, which has the call's number and says when ranks called different things. Nothing waits
 * on the host, so they can be captured.
 *
 * A message travels as one for each chunk, since chunks that are one run of memory here may be several at the peer;
 * what is empty does not travel. */
#include "comm/call/device.h"
#include "engine/bind.h"
#include "load/load.h"

#include <string.h>

#define KEPT 32 /* schedules of a communicator */

/* A schedule as this rank carries it out, whatever the bytes. */
struct tutti_scheduled {
    struct tutti_scheduled *next;
    const struct tutti_algorithm *algorithm;
    struct tutti_schedule *schedule; /* this rank's */
    struct tutti_stages stages;
    uint32_t n_messages; /* at most so many chunks are sent and received */
};

/* ---- what was made of schedules ---- */

static void scheduled_destroy(struct tutti_scheduled *s)
{
    tutti_stages_fini(&s->stages);
    tutti_schedule_destroy(s->schedule);
    tutti_free(s);
}

void tutti_scheduled_free(struct tutti_comm_device *device)
{
    while (device->scheduled) {
        struct tutti_scheduled *first = device->scheduled;
        device->scheduled = first->next;
        scheduled_destroy(first);
    }
}

/* Seals the schedules of all slots, of which this rank's stays. */
static enum tutti_status scheduled_make(const struct tutti_call *call, struct tutti_scheduled *out)
{
    struct tutti_shape shape = call->shape;
    const uint32_t n = shape.size, me = shape.slot;
    struct tutti_schedule **all = tutti_alloc_array(n, sizeof *all);
    enum tutti_status status = all ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "out of memory for %u schedules", n);
    for (shape.slot = 0; status >= 0 && shape.slot < n; shape.slot++)
        status = tutti_schedule_seal(call->algorithm, call->job.info.kind, &shape, true, &all[shape.slot]);
    for (uint32_t r = 0; status >= 0 && r < n; r++)
        if (all[r]->defect) status = tutti_fail(TUTTI_ERR_INTERNAL, "%s", all[r]->defect);
    if (status >= 0) status = tutti_stages_make((const struct tutti_schedule *const *)all, n, me, &out->stages);
    if (status >= 0) out->schedule = all[me], all[me] = NULL;
    for (uint32_t r = 0; all && r < n; r++) tutti_schedule_destroy(all[r]);
    tutti_free(all);
    for (uint32_t i = 0; status >= 0 && i < out->schedule->n_steps; i++)
        if (tutti_step_is_message(&out->schedule->steps[i])) out->n_messages += out->schedule->steps[i].n;
    return status;
}

static bool is_it(const struct tutti_scheduled *s, const struct tutti_call *call)
{
    const struct tutti_shape *a = &s->schedule->shape, *b = &call->shape;
    return s->algorithm == call->algorithm && s->schedule->kind == call->job.info.kind && a->root == b->root &&
           a->radix == b->radix && tutti_shape_same_world(a, b);
}

/* The one of the call, which becomes the first; the last goes where there are too many. */
static enum tutti_status scheduled_find(const struct tutti_call *call, struct tutti_scheduled **out)
{
    struct tutti_scheduled **first = &call->comm->device->scheduled, **at = first, *found;
    uint32_t n = 0;
    for (; *at && !is_it(*at, call); at = &(*at)->next) {
        if (++n < KEPT || !(*at)->next) continue;
        scheduled_destroy((*at)->next);
        (*at)->next = NULL;
    }
    found = *at;
    if (found) {
        *at = found->next;
    } else {
        found = tutti_alloc(sizeof *found);
        if (!found) return tutti_call_fail(call, TUTTI_ERR_MEMORY, "out of memory for a schedule");
        found->algorithm = call->algorithm;
        if (scheduled_make(call, found) < 0) {
            const struct tutti_error why = *tutti_last_error();
            scheduled_destroy(found);
            return tutti_call_fail(call, why.status, "%s", why.text);
        }
    }
    found->next = *first;
    *first = found;
    *out = found;
    return TUTTI_OK;
}

/* Between two elements. */
static enum tutti_op fold_of(const struct tutti_call_info *info)
{
    const bool sums = info->op < 0 || info->op == (int32_t)TUTTI_AVG || info->op == (int32_t)TUTTI_PREMUL_SUM;
    return sums ? TUTTI_SUM : (enum tutti_op)info->op;
}

bool tutti_scheduled_takes(const struct tutti_call *call)
{
    const struct tutti_comm_device *device = call->comm->device;
    const struct tutti_call_info *info = &call->job.info;
    const struct tutti_bind *bind = &call->job.bind;
    if (call->type != TUTTI_CALL_COLLECTIVE || bind->user || !device->backends[0]->ops->messages) return false;
    if (!tutti_kind_info(info->kind)->reduces) return true;
    if (bind->divide && bind->scale) return false; /* averages whose sums leave the type's range */
    const struct tutti_fold fold = {.dtype = info->dtype, .op = fold_of(info)};
    return device->device->ops->fold(device->device, &fold, NULL) >= 0;
}

/* ---- one call ---- */

static size_t aligned(size_t bytes)
{
    return (bytes + 255) & ~(size_t)255;
}

struct run {
    struct tutti_call *call;
    struct tutti_device *dev;
    void *stream;
    struct tutti_backend *backend; /* for messages */
    const struct tutti_scheduled *what;
    struct tutti_bind bind;
    struct tutti_layout layout;
    enum tutti_op op;                       /* between two elements */
    size_t *aside;                          /* by step: where what it receives lies */
    char *region;                           /* the device's memory */
    struct tutti_backend_message *messages; /* a stage's */
    size_t n_messages;
};

static enum tutti_status copy_block(void *arg, const struct tutti_bind *bind, void *to, const void *from, size_t n)
{
    const struct run *run = arg;
    if (!bind->scale) return run->dev->ops->copy(run->dev, to, from, n * tutti_dtype_bytes(bind->dtype), run->stream);
    const struct tutti_fold fold = {
        .dtype = bind->dtype, .op = TUTTI_SUM, .dst = to, .left = from, .n = n, .factor = bind->factor};
    return run->dev->ops->fold(run->dev, &fold, run->stream);
}

/* Room for what is received aside and taken in a later stage (kept), from `first` on; else what is taken in its stage,
 * which leaves its room to the next one. Returns the end. */
static size_t place_aside(struct run *run, enum tutti_act which, size_t first)
{
    const struct tutti_stages *stages = &run->what->stages;
    size_t at = first, end = first;
    for (uint32_t i = 0; i < stages->n; i++) {
        const struct tutti_stage_act *act = &stages->acts[i];
        if (which == TUTTI_ACT_ASIDE && i > 0 && act->stage != act[-1].stage) at = first;
        if (act->act != which) continue;
        const struct tutti_operand dst = tutti_operand_dst(&run->what->schedule->steps[act->step]);
        run->aside[act->step] = at;
        at = aligned(at + tutti_layout_bytes(&run->layout, &dst, 0));
        if (at > end) end = at;
    }
    return end;
}

/* A chunk of an operand. */
static struct tutti_operand chunk_of(struct tutti_operand all, uint32_t i)
{
    all.chunk += i, all.n = 1;
    if (all.extent != TUTTI_NO_EXTENT) all.extent += i;
    return all;
}

static void add_message(struct run *run, const struct tutti_stage_act *act)
{
    const struct tutti_step *step = &run->what->schedule->steps[act->step];
    const bool sends = tutti_step_sends(step);
    const struct tutti_operand all = sends ? tutti_operand_src(step) : tutti_operand_dst(step);
    char *aside = run->region + run->aside[act->step];
    for (uint32_t i = 0; i < step->n; i++) {
        const struct tutti_operand chunk = chunk_of(all, i);
        unsigned char *at;
        const size_t bytes = tutti_layout_bytes(&run->layout, &chunk, 0);
        if (bytes == 0) continue;
        (void)tutti_layout_run(&run->layout, &chunk, 0, 0, bytes, &at);
        run->messages[run->n_messages++] =
            (struct tutti_backend_message){.peer = step->peer,
                                           .send = sends,
                                           .buffer = act->act == TUTTI_ACT_MESSAGE ? (void *)at : aside,
                                           .bytes = bytes};
        aside += bytes;
    }
}

/* Messages of a stage, which are under way together. */
static enum tutti_status exchange(struct run *run)
{
    const size_t n = run->n_messages;
    run->n_messages = 0;
    return n == 0 ? TUTTI_OK
                  : run->backend->ops->messages(run->backend, run->messages, n, run->stream,
                                                run->call->job.info.timeout_ns);
}

/* The longest run of memory that begins so far into an operand. */
static size_t run_at(const struct run *run, const struct tutti_operand *operand, size_t at, size_t limit, char **out)
{
    unsigned char *found = NULL;
    const size_t bytes = tutti_layout_run(&run->layout, operand, 0, at, limit, &found);
    *out = (char *)found;
    return bytes;
}

/* What a step does by itself: dst = src, or old op src; src of a receive lies aside. */
static enum tutti_status act_here(const struct run *run, const struct tutti_stage_act *act)
{
    const struct tutti_step *step = &run->what->schedule->steps[act->step];
    const struct tutti_operand dst = tutti_operand_dst(step), old = tutti_operand_old(step),
                               src = tutti_operand_src(step);
    const bool reduces = tutti_step_reduces(step), left = step->flags & TUTTI_STEP_LEFT;
    const size_t total = tutti_layout_bytes(&run->layout, &dst, 0);
    for (size_t at = 0, bytes; at < total; at += bytes) {
        char *to, *was = NULL, *from = run->region + run->aside[act->step] + at;
        bytes = run_at(run, &dst, at, total - at, &to);
        if (reduces) bytes = run_at(run, &old, at, bytes, &was);
        if (!tutti_step_receives(step)) bytes = run_at(run, &src, at, bytes, &from);
        if (bytes == 0) return tutti_fail(TUTTI_ERR_INTERNAL, "step %u has no memory", act->step);
        const struct tutti_fold fold = {.dtype = run->bind.dtype,
                                        .op = run->op,
                                        .dst = to,
                                        .left = left ? from : was,
                                        .right = left ? was : from,
                                        .n = bytes / run->layout.element};
        if (reduces)
            TUTTI_TRY(run->dev->ops->fold(run->dev, &fold, run->stream));
        else if (to != from)
            TUTTI_TRY(run->dev->ops->copy(run->dev, to, from, bytes, run->stream));
    }
    return TUTTI_OK;
}

/* Averages are divided at last: what others were sent is the sum. */
static enum tutti_status divide(const struct run *run)
{
    const struct tutti_layout *l = &run->layout;
    for (uint32_t b = 0; b < l->n_blocks && run->bind.divide; b++) {
        const struct tutti_operand all = {.buffer = TUTTI_DATA, .chunk = b * l->per_block, .n = l->per_block};
        const size_t total = tutti_layout_visible(l, b) ? tutti_layout_bytes(l, &all, 0) : 0;
        for (size_t at = 0, bytes; at < total; at += bytes) {
            char *to;
            bytes = run_at(run, &all, at, total - at, &to);
            const struct tutti_fold fold = {.dtype = run->bind.dtype,
                                            .op = TUTTI_SUM,
                                            .dst = to,
                                            .left = to,
                                            .n = bytes / l->element,
                                            .divisor = tutti_divisor_contributors(run->bind.divisor)};
            TUTTI_TRY(run->dev->ops->fold(run->dev, &fold, run->stream));
        }
    }
    return TUTTI_OK;
}

/* A byte of each rank goes to all. */
static enum tutti_status meet(const struct run *run)
{
    const struct tutti_call *call = run->call;
    const struct tutti_call_info *info = &call->job.info;
    struct tutti_call step = {
        .job = {.info = {.kind = TUTTI_ALL_GATHER, .dtype = TUTTI_UINT8},
                .within = true,
                .outer_call =
                    tutti_call_word((uint32_t)info->kind, (uint32_t)info->dtype, (uint32_t)info->op, info->root),
                .outer_count = info->count,
                .bind = {.input = run->region + call->comm->rank, .output = run->region, .count = 1},
                .commutative = true},
        .name = call->name,
        .comm = call->comm,
        .options = call->options,
        .purpose = call->job.info.signature | 1,
    };
    step.options.algorithm = NULL;
    if (!step.options.label) step.options.label = call->algorithm->name;
    return tutti_device_step(&step);
}

static enum tutti_status run_stages(struct run *run)
{
    const struct tutti_stages *stages = &run->what->stages;
    TUTTI_TRY(tutti_device_come_after(run->call->comm, run->backend, run->stream));
    for (uint32_t i = 0; i < stages->n; i++) {
        const struct tutti_stage_act *act = &stages->acts[i];
        const bool here = act->act == TUTTI_ACT_HERE;
        if (here || (i > 0 && act->stage != act[-1].stage)) TUTTI_TRY(exchange(run));
        if (here)
            TUTTI_TRY(act_here(run, act));
        else
            add_message(run, act);
    }
    TUTTI_TRY(exchange(run));
    return divide(run);
}

/* ---- its memory ---- */

/* The device's: bytes to meet by, then what the layout needs, then what lies aside. */
static enum tutti_status enqueue(struct run *run, const struct tutti_need *need, size_t *tables)
{
    struct tutti_comm *comm = run->call->comm;
    const size_t own = aligned((size_t)comm->size), room = own + aligned(need->bytes);
    char *region;
    static unsigned char nothing; /* sizes are asked for before there are addresses */
    run->layout.private_data = run->layout.scratch = &nothing;
    const size_t kept = place_aside(run, TUTTI_ACT_KEPT, room), bytes = place_aside(run, TUTTI_ACT_ASIDE, kept);
    TUTTI_TRY(tutti_device_space_begin(comm, run->stream, bytes, &region));
    run->region = region;
    const struct tutti_layout_room place = {tables, (unsigned char *)region + own, copy_block, run};
    TUTTI_TRY(tutti_layout_place(&run->layout, &run->bind, need, &place));
    enum tutti_status status = meet(run);
    if (status >= 0) status = run_stages(run);
    if (status >= 0) status = tutti_device_space_end(comm, run->stream);
    if (status < 0) tutti_call_give_up(run->call, NULL, 0);
    return status;
}

/* The host's, for as long as it enqueues. */
static enum tutti_status run_call(struct run *run)
{
    struct tutti_need need;
    const size_t n_steps = run->what->schedule->n_steps;
    TUTTI_TRY(tutti_layout_init(&run->layout, &run->bind, 0, &need));
    size_t *tables = tutti_alloc_array((size_t)need.n_tables * run->layout.n_blocks + 1, sizeof *tables);
    run->aside = tutti_alloc_array(n_steps + 1, sizeof *run->aside);
    run->messages = tutti_alloc_array((size_t)run->what->n_messages + 1, sizeof *run->messages);
    const enum tutti_status status =
        tables && run->aside && run->messages
            ? enqueue(run, &need, tables)
            : tutti_call_fail(run->call, TUTTI_ERR_MEMORY, "out of memory for %zu steps", n_steps);
    tutti_free(tables);
    tutti_free(run->aside);
    tutti_free(run->messages);
    return status;
}

enum tutti_status tutti_scheduled_enqueue(struct tutti_call *call)
{
    struct tutti_comm *comm = call->comm;
    struct tutti_scheduled *what = NULL;
    struct tutti_error failure;
    if (tutti_team_state(comm->team, &failure) < 0) return tutti_fail_record(&failure);
    TUTTI_TRY(scheduled_find(call, &what));
    call->job.bind.schedule = what->schedule;
    tutti_call_sign(call);
    struct run run = {.call = call,
                      .dev = comm->device->device,
                      .stream = call->options.stream,
                      .backend = comm->device->backends[0],
                      .what = what,
                      .bind = tutti_call_job(call)->bind,
                      .op = fold_of(&call->job.info)};
    call->job.bind.schedule = NULL;
    return run_call(&run);
}
