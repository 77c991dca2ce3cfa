/* SPDX-License-Identifier: BSD-3-Clause */
/* Works of a team, and what anybody asks of it. */
#include "engine/team/team.h"

#include <string.h>

/* ---- works ---- */

enum tutti_status tutti_team_submit(struct tutti_work *work, bool helper)
{
    struct tutti_team *team = work->team;

    if (team->failed) return tutti_fail_record(&team->error);
    atomic_fetch_add(&team->n_open, 1);
    enum tutti_status status = tutti_work_submit(work, tutti_work_flies(work->type) ? &team->seq : NULL, helper);
    if (status < 0) atomic_fetch_sub(&team->n_open, 1);
    return status;
}

void tutti_team_begin_work(struct tutti_team *team)
{
    struct tutti_engine *engine = team->engine;

    team->n_work++;
    if (team->busy) return;
    tutti_engine_watch_by(engine, tutti_owner_now(engine->owner) + engine->tick_ns);
    team->busy = true;
    team->port->n_busy++;
    team->next = engine->busy;
    team->previous = NULL;
    if (engine->busy) engine->busy->previous = team;
    engine->busy = team;
}

void tutti_team_complete(struct tutti_work *work, const struct tutti_error *error)
{
    struct tutti_team *team = work->team;

    team->n_work--;
    team->engine->stats.calls_completed++;
    tutti_work_complete(work, error);
    atomic_fetch_sub(&team->n_open, 1);
}

void tutti_team_rest(struct tutti_team *team)
{
    if (!team->busy) return;
    team->busy = false;
    team->port->n_busy--;
    if (team->next) team->next->previous = team->previous;
    *(team->previous ? &team->previous->next : &team->engine->busy) = team->next;
}

enum tutti_status tutti_work_past(struct tutti_team *team, uint64_t seq, uint64_t start_ns, struct tutti_work **out)
{
    return tutti_works_past(team->engine->works, team, seq, start_ns, out);
}

enum tutti_status tutti_work_promise(struct tutti_team *team, uint64_t seq, const char *label, struct tutti_work **out)
{
    return tutti_works_promise(team->engine->works, team, seq, label, out);
}

/* ---- where it is found ---- */

struct tutti_team **tutti_team_bucket(struct tutti_port *port, uint64_t id, uint32_t epoch)
{
    return &port->buckets[tutti_mix64(id ^ epoch) % TUTTI_TEAM_BUCKETS];
}

struct tutti_team *tutti_team_find(struct tutti_port *port, uint64_t id, uint32_t epoch)
{
    struct tutti_team *team = *tutti_team_bucket(port, id, epoch);

    while (team && (team->id != id || team->epoch != epoch)) team = team->hash_next;
    return team;
}

void tutti_team_list(struct tutti_team *team, uint32_t slot)
{
    struct tutti_channel *channel = &team->channels[slot];

    if (channel->listed) return;
    channel->listed = true;
    channel->next_listed = team->listed;
    team->listed = slot + 1;
}

/* ---- any thread ---- */

static bool team_idle(const void *arg)
{
    return atomic_load(&((const struct tutti_team *)arg)->n_open) == 0;
}

bool tutti_team_wait(struct tutti_team *team, uint64_t until_ns)
{
    tutti_owner_wait(team->engine->owner, team_idle, team, NULL, until_ns);
    return team_idle(team);
}

uint64_t tutti_team_next(const struct tutti_team *team)
{
    return atomic_load_explicit(&team->seq, memory_order_relaxed) + 1;
}

void tutti_team_count(struct tutti_team *team)
{
    const uint64_t next = tutti_team_next(team);
    atomic_store_explicit(&team->seq, next, memory_order_relaxed);
    atomic_store_explicit(team->shown, team->shown_tag | next, memory_order_relaxed);
}

bool tutti_team_quiet(const struct tutti_team *team)
{
    return atomic_load_explicit(&team->n_open, memory_order_acquire) == 0 &&
           !tutti_control_alarmed(team->port->control);
}

bool tutti_team_well(const struct tutti_team *team)
{
    return !atomic_load_explicit(&team->failed, memory_order_acquire) && !tutti_control_alarmed(team->port->control);
}

bool tutti_team_failed(const struct tutti_team *team)
{
    return atomic_load_explicit(&team->failed, memory_order_acquire);
}

size_t tutti_team_slice_bytes(const struct tutti_team *team)
{
    return team->slice_bytes;
}

uint64_t tutti_team_timeout(const struct tutti_team *team)
{
    return team->timeout_ns;
}

void tutti_team_set_overlay(struct tutti_team *team, tutti_overlay overlay, void *arg)
{
    tutti_owner_enter(team->engine->owner);
    team->overlay = overlay, team->overlay_arg = arg;
    tutti_owner_leave(team->engine->owner);
}

/* ---- Boards: what this rank shows of its calls, and what the others show. ---- */

static uint32_t board_slot(const struct tutti_team *team)
{
    return (uint32_t)(team->id % TUTTI_BOARD_SLOTS);
}

_Atomic uint64_t *tutti_team_counter(struct tutti_team *team)
{
    struct tutti_control *control = team->port->control;
    return control->ops->counter ? control->ops->counter(control, board_slot(team)) : NULL;
}

void tutti_team_publish(struct tutti_team *team)
{
    struct tutti_control *control = team->port->control;
    control->ops->publish(control, board_slot(team), &team->board);
}

/* The signature is that of the published call. */
void tutti_team_complete_board(struct tutti_team *team, uint32_t peer, struct tutti_board *board)
{
    uint64_t seq = board->seq;

    if (!team->overlay) return;
    team->overlay(team->overlay_arg, peer, board);
    if (board->seq != seq) board->signature = 0;
}

enum tutti_status tutti_team_peek(struct tutti_team *team, uint32_t peer, struct tutti_board *out)
{
    struct tutti_control *control = team->port->control;
    enum tutti_status status = control->ops->peek(control, team->members[peer], board_slot(team), out);

    if (status != TUTTI_OK) return status;
    if (out->comm != team->id || out->state == TUTTI_BOARD_EMPTY) return TUTTI_AGAIN;
    tutti_team_complete_board(team, peer, out);
    return TUTTI_OK;
}

uint64_t tutti_team_reached(const struct tutti_team *team, uint32_t peer)
{
    struct tutti_control *control = team->port->control;
    struct tutti_board board;

    if (control->ops->peek(control, team->members[peer], board_slot(team), &board) != TUTTI_OK) return 0;
    return board.comm == team->id && board.state == TUTTI_BOARD_IN_USE ? board.seq : 0;
}

enum tutti_life tutti_team_life(struct tutti_team *team, uint32_t peer)
{
    struct tutti_transport *t = team->port->transport;
    struct tutti_control *control = team->port->control;
    uint32_t member = team->members[peer];
    enum tutti_life life = control->ops->life(control, member);

    if (life == TUTTI_LIFE_DEAD) t->ops->cut(t, member);
    return life;
}

void tutti_board_fill(struct tutti_board *board, const struct tutti_flight *flight)
{
    const struct tutti_call_info *info = &flight->info;

    board->seq = flight->work.seq;
    board->signature = info->signature;
    board->count = info->reduced ? info->reduced : flight->bind.v ? info->count | TUTTI_COUNT_UNEQUAL : info->count;
    board->step = 0, board->n_steps = flight->bind.schedule ? flight->bind.schedule->n_steps : 0;
    board->peer = -1;
    board->root = info->root;
    board->kind = (uint8_t)tutti_shown_kind(info);
    board->dtype = (uint8_t)info->dtype;
    board->op = info->op < 0 ? TUTTI_BOARD_NO_OP : info->op < TUTTI_N_OPS ? (uint8_t)info->op : TUTTI_BOARD_USER_OP;
}

uint64_t tutti_call_pack(const struct tutti_board *b)
{
    return tutti_call_word(b->kind, b->dtype, b->op, b->root);
}

void tutti_call_unpack(uint64_t call, uint64_t count, struct tutti_board *b)
{
    b->kind = (uint8_t)call, b->dtype = (uint8_t)(call >> 8), b->op = (uint8_t)(call >> 16);
    b->root = (int32_t)(uint32_t)(call >> 32);
    b->count = count;
}

/* ---- What is in progress in a team, and whom it waits for: questions that change nothing. ---- */

struct tutti_flight *tutti_flight_find(const struct tutti_team *team, uint64_t seq)
{
    for (uint32_t i = 0; i < team->n_active; i++)
        if (team->order[i]->flight->work.seq == seq) return team->order[i]->flight;
    for (struct tutti_flight *f = team->pending; f && f->work.seq <= seq; f = f->next)
        if (f->work.seq == seq) return f;
    return NULL;
}

/* "all_reduce", static; "" if no such call is in flight. */
static const char *tutti_flight_name(const struct tutti_team *team, uint64_t seq)
{
    const struct tutti_flight *flight = tutti_flight_find(team, seq);
    return flight ? tutti_kind_name(tutti_shown_kind(&flight->info)) : "";
}

const struct tutti_slice *tutti_flight_oldest(const struct tutti_team *team, const struct tutti_flight *flight)
{
    for (uint32_t i = 0; i < team->n_active; i++)
        if (team->order[i]->flight == flight) return team->order[i];
    return NULL;
}

uint32_t tutti_runner_oldest(const struct tutti_team *team)
{
    uint32_t i = 0;

    while (i < team->n_active && !team->order[i]->flight->runner) i++;
    return i;
}

int32_t tutti_runner_awaits(const struct tutti_flight *flight)
{
    return flight->blocked ? (int32_t)flight->runner->ops->awaits(flight->runner) : -1;
}

bool tutti_team_is_calling(const struct tutti_team *team)
{
    for (uint32_t l = 0; l < team->n_lanes; l++)
        if (team->lanes[l].slice) return true;
    return false;
}

int32_t tutti_calling_awaits(const struct tutti_calling *calling)
{
    const struct tutti_runner *runner = (const struct tutti_runner *)(const void *)calling->room;

    if (!calling->slice || !calling->blocked) return -1;
    return (int32_t)(calling->group.base + runner->ops->awaits(runner) * calling->group.stride);
}

static const struct tutti_calling *calling_find(const struct tutti_team *team, const struct tutti_slice *slice,
                                                uint32_t step)
{
    const struct tutti_lane_call *calls = slice->flight->bind.schedule->calls;

    for (uint32_t l = 0; l < team->n_lanes; l++)
        if (team->lanes[l].slice == slice && calls[team->lanes[l].call].step == step) return &team->lanes[l];
    return NULL;
}

int32_t tutti_slice_awaits(const struct tutti_slice *slice)
{
    if (slice->flight->runner) return tutti_runner_awaits(slice->flight);
    const struct tutti_step *step = &slice->flight->bind.schedule->steps[slice->base];
    if (step->op == TUTTI_STEP_CALL) {
        const struct tutti_calling *calling = calling_find(slice->flight->work.team, slice, slice->base);
        return calling ? tutti_calling_awaits(calling) : -1;
    }
    return tutti_step_is_message(step) ? (int32_t)step->peer : -1;
}

/* ---- A team's first failure ends it. The rank that finds a failure raises it to control, then takes what control
 * gives back. Several ranks may raise at once: control lets one of them count, so all ranks end with the same sentence.
 * Here the team is only marked; the pass ends its works. ---- */

#define VERDICT_NS (300 * TUTTI_NS_PER_MS) /* so long control may take to say whose failure counts */

/* Stops at once what the team only follows on a device. The pass looks at a team only after all failing teams were
 * stopped: its question about one team may wait in the driver for another team's work. */
void tutti_team_apply(struct tutti_team *team, const struct tutti_error *error)
{
    if (team->failed) return;
    team->error = *error;
    team->halted = true;
    atomic_store(&team->failed, true);
    team->engine->failing = true;
    tutti_loans_cancel(team);
    if (team->followed) team->followed->ops->stop(team->followed->arg);
}

static bool concerns(const struct tutti_team *team, const struct tutti_failure *failure)
{
    if (failure->comm != 0) return team->id == failure->comm && team->epoch == failure->epoch;
    return failure->culprit < team->port->transport->n && team->slots[failure->culprit] != TUTTI_NO_SLOT;
}

static void apply_failure(struct tutti_team *team, const struct tutti_failure *failure)
{
    struct tutti_error error = failure->error;

    if (!concerns(team, failure)) return;
    error.collective = tutti_flight_name(team, error.seq);
    if (failure->comm == 0) error.peer = (int32_t)team->slots[failure->culprit];
    tutti_team_apply(team, &error);
}

/* ---- names ---- */

void tutti_team_set_names(struct tutti_team *team, const struct tutti_names *names)
{
    atomic_store(&team->names, names);
}

uint32_t tutti_said_rank(const struct tutti_team *team, uint32_t slot)
{
    const struct tutti_names *names = atomic_load(&team->names);
    return names && slot < team->size ? names->ranks[slot] : slot;
}

uint64_t tutti_said_call(const struct tutti_team *team, uint64_t seq)
{
    const struct tutti_names *names = atomic_load(&team->names);
    const uint64_t said =
        names ? atomic_load_explicit(&names->calls[seq % TUTTI_NAMED_CALLS], memory_order_relaxed) : 0;
    return said ? said : seq;
}

uint64_t tutti_said_comm(const struct tutti_team *team)
{
    const struct tutti_names *names = atomic_load(&team->names);
    return names ? names->comm : team->id;
}

bool tutti_port_failures(struct tutti_port *port)
{
    struct tutti_failure failure;
    bool any = false;

    while (port->control->ops->failure(port->control, &failure) == TUTTI_OK) {
        any = true;
        if (port->transport->ops->failed) port->transport->ops->failed(port->transport, failure.error.text);
        if (failure.error.status >= 0) continue; /* nonsense */
        for (uint32_t b = 0; b < TUTTI_TEAM_BUCKETS; b++)
            for (struct tutti_team *team = port->buckets[b]; team; team = team->hash_next)
                apply_failure(team, &failure);
    }
    return any;
}

/* Tells all, then listens. */
static void raise_failure(struct tutti_team *team, const struct tutti_error *error)
{
    struct tutti_port *port = team->port;
    struct tutti_failure failure = {.comm = team->id, .epoch = team->epoch, .culprit = UINT32_MAX, .error = *error};

    tutti_port_failures(port); /* another member may have been faster */
    if (team->failed) return;
    if (error->peer >= 0 && (uint32_t)error->peer < team->size) failure.culprit = team->members[error->peer];
    port->control->ops->raise(port->control, &failure);
    tutti_port_failures(port);
}

void tutti_team_break(struct tutti_team *team, enum tutti_status status, int32_t peer,
                      const struct tutti_flight *flight, uint32_t step, const char *text)
{
    struct tutti_error error;

    if (team->halted) return;
    tutti_error_set(&error, status, "%s", text);
    error.peer = peer;
    error.step = step;
    error.seq = flight ? flight->work.seq : 0;
    error.collective = flight ? tutti_kind_name(tutti_shown_kind(&flight->info)) : "";
    raise_failure(team, &error);
    if (team->failed || team->port->control->answers_at_once || team->n_work == 0) {
        tutti_team_apply(team, &error);
    } else { /* one of several that were raised at once comes back to all; if none does, this one stands */
        team->error = error;
        team->halted = true;
        team->verdict_ns = tutti_owner_now(team->engine->owner) + VERDICT_NS;
        tutti_engine_watch_by(team->engine, team->verdict_ns);
    }
    if (strcmp(team->error.text, error.text) == 0) tutti_log(TUTTI_LOG_WARN, "%s", error.text);
}

void tutti_team_fail(struct tutti_team *team, const struct tutti_error *error, bool tell)
{
    struct tutti_owner *owner = team->engine->owner;

    tutti_owner_enter(owner);
    if (tell && !team->failed) raise_failure(team, error);
    tutti_team_apply(team, error);
    if (team->engine->failing) tutti_owner_pass(owner);
    tutti_owner_leave(owner);
}

enum tutti_status tutti_team_state(struct tutti_team *team, struct tutti_error *error)
{
    struct tutti_owner *owner = team->engine->owner;

    /* A rank that waits for nothing has not listened for a while. */
    if (!team->failed && tutti_owner_try(owner)) {
        tutti_port_failures(team->port);
        if (team->engine->failing) tutti_owner_pass(owner);
        tutti_owner_leave(owner);
    }
    if (!team->failed) return TUTTI_OK;
    if (error) *error = team->error;
    return team->error.status;
}
