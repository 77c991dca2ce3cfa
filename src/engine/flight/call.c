/* SPDX-License-Identifier: BSD-3-Clause */

/* Call steps. A lane is a group of slots for which a back end was opened; it carries out a call step as a whole. A lane
 * has one call at a time; a group may have several lanes, which take its calls in turn. All slots of a lane must begin
 * their calls in one order, whatever slices and messages do. The order is: calls of the team, then slices, then the
 * program. A call step begins when all earlier calls of its lane are over and its own hazards are clear.
 *
 * Why nothing waits for ever:
 * - Slices have one order on all slots, and a call step waits only for calls of its own slice or of older ones. So the
 *   oldest slice that is not over anywhere waits for no other slice: its messages have a credit of their own (S8), and
 *   younger slices hold no lane before it.
 * - So it is enough that one slice alone comes to its end. Think of a run in which every slot takes its steps one by
 *   one, each send waits for its receive, and each call for all slots of its group. If that run ends, the slice ends:
 *   hazards, the window (S9), the order of channels and the order of lanes only make a step wait for earlier steps of
 *   its slot, so a circle among them would be a circle in that run.
 * - That run must end for all schedules with calls; src/verify/call_order_test.c tests it.
 *
 * What is lost: the calls of a slice do not pass those of older slices that still wait for messages. Messages do pass.
 * So while one slice is on the lane, those before it travel; and the calls of one slice, if it has many (one a part),
 * overlap. */

#include "engine/flight/flight.h"
#include "engine/team/report.h"

enum tutti_status tutti_team_set_lanes(struct tutti_team *team, const struct tutti_lanes *lanes, tutti_lane_begin begin,
                                       void *arg)
{
    struct tutti_calling *calling = tutti_alloc_array(lanes->n, sizeof(*calling));

    if (!calling) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the lanes of a communicator");
    for (uint32_t l = 0; l < lanes->n; l++) calling[l].group = lanes->lanes[l];
    tutti_owner_enter(team->engine->owner);
    team->lanes = calling, team->n_lanes = lanes->n;
    team->call_begin = begin, team->call_arg = arg;
    tutti_owner_leave(team->engine->owner);
    return TUTTI_OK;
}

/* ---- what a call is ---- */

static size_t block_bytes(const struct tutti_slice *slice, const struct tutti_lane_call *call)
{
    const struct tutti_operand block = {.buffer = TUTTI_DATA, .chunk = call->view.chunk, .n = 1};
    return tutti_layout_bytes(&slice->flight->layout, &block, slice->index);
}

/* Where the slot's side of a call lies; NULL: it has none. */
static unsigned char *side_at(const struct tutti_slice *slice, const struct tutti_lane_call *call,
                              struct tutti_kind_side side, uint32_t me, bool input, size_t *stride)
{
    const struct tutti_layout *l = &slice->flight->layout;
    struct tutti_operand place = {.buffer = TUTTI_DATA, .input = input, .chunk = call->view.chunk, .n = 1};
    unsigned char *at = NULL;

    if (side.blocks == TUTTI_NO_BLOCK || !tutti_side_is_at(side, me, call->view.root)) return NULL;
    if (side.blocks == TUTTI_ALL_BLOCKS) return tutti_layout_blocks(l, &place, slice->index, stride);
    if (tutti_kind_info(call->kind)->block_a_slot) place.chunk += me;
    tutti_layout_run(l, &place, slice->index, 0, 1, &at);
    return at;
}

static void bind_call(const struct tutti_slice *slice, const struct tutti_lane_call *call, uint32_t me,
                      struct tutti_call_step *out)
{
    const struct tutti_flight *flight = slice->flight;
    const struct tutti_kind_info *kind = tutti_kind_info(call->kind);
    bool input = (flight->bind.schedule->steps[call->step].flags & TUTTI_STEP_SRC_INPUT) != 0;
    bool root = me == call->view.root;
    size_t bytes = block_bytes(slice, call), stride = flight->layout.count * flight->layout.element;
    unsigned char *in = side_at(slice, call, kind->send, me, input, &stride);
    unsigned char *at = side_at(slice, call, kind->recv, me, false, &stride);

    if (call->kind == TUTTI_BROADCAST && root) at = in;                       /* it keeps what it has where it is, */
    if (call->kind == TUTTI_SCATTER && root && !input) at = in + me * stride; /* and its own block lies apart */
    out->stride = kind->block_a_slot && bytes != stride ? stride : 0;
    out->bind = (struct tutti_bind){.input = in,
                                    .output = at,
                                    .v = out->stride > 0 && kind->rooted,
                                    .count = call->kind == TUTTI_BARRIER ? 0 : bytes / flight->layout.element,
                                    .dtype = flight->bind.dtype,
                                    .divisor = 1};
    if (!kind->reduces) return;
    out->bind.reduce = flight->bind.reduce;
    out->bind.user = flight->bind.user, out->bind.user_arg = flight->bind.user_arg;
}

static void describe(const struct tutti_slice *slice, const struct tutti_lane_call *call, uint32_t me,
                     struct tutti_call_step *out)
{
    const struct tutti_flight *flight = slice->flight;
    const struct tutti_kind_info *kind = tutti_kind_info(call->kind);
    uint64_t which = (uint64_t)slice->index << 32 | call->number;

    bind_call(slice, call, me, out);
    out->info = (struct tutti_call_info){.kind = call->kind,
                                         .dtype = out->bind.dtype,
                                         .op = kind->reduces ? flight->info.op : -1,
                                         .root = kind->rooted ? (int32_t)call->view.root : -1,
                                         .count = out->bind.count,
                                         .signature = tutti_mix64(flight->info.signature ^ tutti_mix64(which))};
    out->info.signature ^= tutti_mix64(flight->work.seq); /* a rank without data does not come to the lane at all */
    out->seq = flight->work.seq, out->call = flight->packed_call, out->count = flight->packed_count;
}

/* ---- in turn ---- */

/* The oldest slice that has calls of this lane left; NULL: none that is active. */
static struct tutti_slice *next_slice(const struct tutti_team *team, uint32_t l)
{
    for (uint32_t i = 0; i < team->n_active; i++) {
        struct tutti_slice *slice = team->order[i];
        const struct tutti_schedule *schedule = slice->flight->bind.schedule;
        if (!schedule) continue;
        while (slice->called[l] < schedule->n_calls && schedule->calls[slice->called[l]].lane != l) slice->called[l]++;
        if (slice->called[l] < schedule->n_calls) return slice;
    }
    return NULL;
}

static void end_call(struct tutti_team *team, uint32_t l, struct tutti_slice *slice)
{
    uint32_t step = slice->flight->bind.schedule->calls[slice->called[l]++].step;

    team->lanes[l].slice = NULL;
    tutti_slice_complete(slice, step);
    team->retry = true; /* for steps that waited for it */
}

/* Begins the next call if it is ready; those without data vanish on all slots. */
static bool begin(struct tutti_team *team, uint32_t l, bool *moved)
{
    struct tutti_calling *calling = &team->lanes[l];
    struct tutti_slice *slice;

    while ((slice = next_slice(team, l))) {
        const struct tutti_lane_call *call = &slice->flight->bind.schedule->calls[slice->called[l]];
        uint32_t k = call->step - slice->base;
        struct tutti_call_step step;
        if (k >= TUTTI_WINDOW || !tutti_step_ready(slice, k)) return false;
        *moved = true;
        if (block_bytes(slice, call) == 0) {
            end_call(team, l, slice);
            continue;
        }
        describe(slice, call, (team->slot - calling->group.base) / calling->group.stride, &step);
        if (team->call_begin(team->call_arg, l, &step, calling->room) < 0) {
            tutti_report_failed(team, slice->flight);
            return false;
        }
        calling->slice = slice, calling->call = slice->called[l];
        slice->busy |= tutti_slice_bit(k);
        return true;
    }
    return false;
}

/* Whether the lane is free again. */
static bool advance(struct tutti_team *team, uint32_t l, bool *moved)
{
    struct tutti_calling *calling = &team->lanes[l];
    enum tutti_advance outcome = tutti_runner_turns(tutti_calling_runner(calling), moved);

    calling->blocked = outcome == TUTTI_RUN_BLOCKED || outcome == TUTTI_RUN_MISMATCH;
    if (outcome == TUTTI_RUN_MISMATCH)
        tutti_report_called(team, calling->slice->flight, tutti_calling_runner(calling),
                            (uint32_t)tutti_calling_awaits(calling));
    if (outcome == TUTTI_RUN_FAILED) tutti_report_failed(team, calling->slice->flight);
    if (outcome != TUTTI_RUN_DONE) return false;
    team->engine->stats.call_steps++;
    end_call(team, l, calling->slice);
    return true;
}

bool tutti_team_call(struct tutti_team *team)
{
    bool moved = false;

    for (uint32_t l = 0; l < team->n_lanes && !team->halted; l++)
        while ((team->lanes[l].slice || begin(team, l, &moved)) && advance(team, l, &moved)) {
        }
    return moved;
}

void tutti_team_cancel_calls(struct tutti_team *team)
{
    for (uint32_t l = 0; l < team->n_lanes; l++) {
        struct tutti_calling *calling = &team->lanes[l];
        struct tutti_runner *runner = tutti_calling_runner(calling);
        if (!calling->slice) continue;
        runner->ops->cancel(runner);
        calling->slice = NULL;
    }
}
