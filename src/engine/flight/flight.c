/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives in flight. The owner takes them over in the order of the calls and cuts them into slices; the oldest
 * slices are active. */
#include "engine/flight/flight.h"
#include "device/cpu/copy.h"
#include "engine/team/report.h"

#include <string.h>

/* The last call before the oldest one in flight. */
static uint64_t completed_up_to(const struct tutti_team *team)
{
    if (team->n_active > 0) return team->order[0]->flight->work.seq - 1;
    return team->pending ? team->pending->work.seq - 1 : team->started;
}

void tutti_flight_show_end(struct tutti_team *team)
{
    team->board.completed = completed_up_to(team);
    team->board.step = team->board.n_steps = 0;
    team->board.peer = -1;
    team->board.since_ns = tutti_owner_now(team->engine->owner);
    tutti_team_publish(team);
}

void tutti_flight_end(struct tutti_team *team, struct tutti_flight *flight, const struct tutti_error *error)
{
    if (error && flight->runner) flight->runner->ops->cancel(flight->runner);
    tutti_bind_release(&flight->bind);
    tutti_region_give(team, flight->region);
    flight->region = (struct tutti_region){NULL, 0};
    if (flight->bind.gate && flight->bind.gate->over) flight->bind.gate->over(flight->bind.gate->arg);
    if (!error) tutti_flight_show_end(team);
    tutti_team_complete(&flight->work, error);
}

/* ---- calls whose input comes bit by bit ---- */

static bool has_input(const struct tutti_flight *flight)
{
    return !flight->bind.gate || flight->next_slice < atomic_load(&flight->bind.gate->n_open);
}

void tutti_gate_open(struct tutti_team *team, struct tutti_gate *gate, uint32_t n)
{
    atomic_store(&gate->n_open, n);
    tutti_owner_kick(team->engine->owner);
}

bool tutti_flights_may_begin(const struct tutti_team *team)
{
    const struct tutti_flight *flight = team->pending;
    return flight && flight->bind.gate && team->n_active < TUTTI_ACTIVE && has_input(flight);
}

static void tell_passed(const struct tutti_team *team, const struct tutti_flight *flight)
{
    const struct tutti_slice *oldest = tutti_flight_oldest(team, flight);
    flight->bind.gate->passed(flight->bind.gate->arg, oldest ? oldest->index : flight->next_slice);
}

/* ---- slices ---- */

/* Keeps the oldest slices active. A barrier waits until those before it are over: whoever passes it knows that they are
 * over on all ranks. */
static void activate(struct tutti_team *team)
{
    while (team->pending && team->n_active < TUTTI_ACTIVE) {
        struct tutti_flight *flight = team->pending;
        uint32_t i = 0;
        if (flight->info.kind == TUTTI_BARRIER && team->n_active > 0) break;
        if (!has_input(flight)) break;
        while (team->slices[i].flight) i++;
        team->slices[i] = (struct tutti_slice){.flight = flight, .index = flight->next_slice++, .dirty = true};
        team->order[team->n_active++] = &team->slices[i];
        if (flight->runner) team->n_runners++;
        if (flight->next_slice < flight->layout.n_slices) continue;
        team->pending = flight->next;
        if (!team->pending) team->pending_end = &team->pending;
    }
}

void tutti_flight_show_begin(struct tutti_team *team, struct tutti_flight *flight)
{
    struct tutti_engine *engine = team->engine;
    uint64_t half = flight->work.timeout_ns / 2, after = engine->config.compare_after_ns;

    flight->compare_ns = flight->work.start_ns + (half < after ? half : after);
    tutti_engine_watch_by(engine, flight->compare_ns < flight->work.deadline_ns ? flight->compare_ns
                                                                                : flight->work.deadline_ns);
    tutti_board_fill(&team->board, flight);
    team->board.called_ns = team->board.since_ns = flight->work.start_ns;
    team->board.completed = completed_up_to(team); /* those past the engine, too */
    tutti_team_publish(team);
}

void tutti_flight_begin(struct tutti_team *team, struct tutti_flight *flight)
{
    team->started = flight->work.seq;
    *team->pending_end = flight;
    team->pending_end = &flight->next;
    tutti_flight_show_begin(team, flight);
    if (tutti_held_check(team, flight)) activate(team);
}

/* Ends the i-th active slice, and with the last one its flight. */
static void slice_end(struct tutti_team *team, uint32_t i)
{
    struct tutti_slice *slice = team->order[i];
    struct tutti_flight *flight = slice->flight;

    if (flight->runner)
        team->n_runners--;
    else
        tutti_slice_finish(slice);
    slice->flight = NULL;
    team->n_active--;
    memmove(&team->order[i], &team->order[i + 1], (team->n_active - i) * sizeof(team->order[0]));
    flight->n_finished++;
    if (flight->bind.gate) tell_passed(team, flight);
    if (flight->n_finished == flight->layout.n_slices) tutti_flight_end(team, flight, NULL);
    activate(team);
    if (i == 0) team->retry = true; /* the oldest slice has a credit of its own */
}

bool tutti_team_run_runners(struct tutti_team *team)
{
    bool moved = false;

    while (team->n_runners > 0) {
        uint32_t i = tutti_runner_oldest(team);
        bool done = tutti_runner_advance(team, team->order[i]->flight, &moved);
        if (!done) break;
        slice_end(team, i);
    }
    return moved;
}

bool tutti_flights_run(struct tutti_team *team, bool retry)
{
    bool moved = false;

    if (tutti_flights_may_begin(team)) activate(team);
    for (uint32_t i = 0; i < team->n_active;) {
        struct tutti_slice *slice = team->order[i];
        if (slice->flight->runner) {
            i++;
            continue;
        }
        if (slice->dirty || (slice->stalled && (retry || i == 0))) moved |= tutti_slice_issue(team, slice);
        if (team->halted) return true;
        if (tutti_slice_over(slice)) {
            slice_end(team, i);
            moved = true;
        } else {
            i++;
        }
    }
    if (team->n_runners > 0) moved |= tutti_team_run_runners(team);
    if (team->n_lanes > 0 && !team->halted) moved |= tutti_team_call(team);
    return moved;
}

void tutti_flights_fail(struct tutti_team *team, const struct tutti_error *error)
{
    struct tutti_flight *pending = team->pending, *before = NULL;

    team->pending = NULL, team->pending_end = &team->pending;
    tutti_team_cancel_calls(team);
    /* Slices of one flight follow one another; the last active flight may be the first pending one. */
    for (uint32_t i = 0; i < team->n_active; i++) {
        struct tutti_flight *flight = team->order[i]->flight;
        team->order[i]->flight = NULL;
        if (flight != before && flight != pending) tutti_flight_end(team, flight, error);
        before = flight;
    }
    team->n_active = team->n_runners = 0;
    team->board.failed = true;
    tutti_team_publish(team);
    while (pending) {
        struct tutti_flight *flight = pending;
        pending = flight->next;
        tutti_flight_end(team, flight, error);
    }
}

/* ---- How a collective starts, by any thread: all memory that it needs is taken here, so that nothing is allocated on
 * the progress path. ---- */

/* Reductions read again what they wrote. */
static bool goes_past_cache(const struct tutti_flight *flight)
{
    const struct tutti_layout *l = &flight->layout;
    return !tutti_kind_info(flight->info.kind)->reduces &&
           l->largest * l->per_block >= TUTTI_PAST_CACHE_BYTES / l->element / l->n_blocks;
}

static struct tutti_flight *flight_new(struct tutti_team *team, enum tutti_work_type type,
                                       const struct tutti_call_info *info)
{
    struct tutti_flight *flight = tutti_work_new(team->engine->works, type);

    if (!flight) {
        tutti_fail(TUTTI_ERR_MEMORY, "%s: out of memory", tutti_kind_name(info->kind));
        return NULL;
    }
    flight->next = NULL;
    flight->runner = NULL;
    flight->region = (struct tutti_region){NULL, 0};
    flight->next_slice = flight->n_finished = flight->n_compared = 0;
    flight->reported_missing = flight->in_vain = flight->blocked = false;
    flight->info = *info;
    flight->work.team = team;
    flight->work.label = info->label;
    flight->work.timeout_ns = info->timeout_ns ? info->timeout_ns : team->timeout_ns;
    return flight;
}

enum tutti_status tutti_flight_create(struct tutti_team *team, const struct tutti_bind *bind,
                                      const struct tutti_call_info *info, struct tutti_flight **out)
{
    struct tutti_need need = {0};
    enum tutti_status status;
    struct tutti_flight *flight = flight_new(team, TUTTI_WORK_FLIGHT, info);

    if (!flight) {
        tutti_bind_release(bind);
        return TUTTI_ERR_MEMORY;
    }
    flight->bind = *bind;
    if (bind->schedule->lanes.n > team->n_lanes) {
        status = tutti_fail(TUTTI_ERR_INTERNAL, "%s: its schedule has calls of %u lanes, its team has %u",
                            tutti_kind_name(info->kind), bind->schedule->lanes.n, team->n_lanes);
        goto err_work;
    }
    TUTTI_TRY_GOTO(status, tutti_layout_init(&flight->layout, bind, team->slice_bytes, &need), err_work);
    if (need.bytes > 0 && !tutti_region_take(team, need.bytes, &flight->region)) {
        status = tutti_fail(TUTTI_ERR_MEMORY, "%s: out of memory for %zu bytes of scratch", tutti_kind_name(info->kind),
                            need.bytes);
        goto err_work;
    }
    tutti_layout_fill(&flight->layout, bind, &need, flight->region.base);
    flight->need = need;
    flight->past_cache = goes_past_cache(flight);
    struct tutti_board board = {0};
    tutti_board_fill(&board, flight);
    flight->packed_call = tutti_call_pack(&board), flight->packed_count = board.count;
    *out = flight;
    return TUTTI_OK;
err_work:
    tutti_work_drop(&flight->work);
    tutti_bind_release(bind);
    return status;
}

void tutti_flight_drop(struct tutti_flight *flight)
{
    if (!flight) return;
    tutti_region_give(flight->work.team, flight->region);
    tutti_bind_release(&flight->bind);
    tutti_work_drop(&flight->work);
}

enum tutti_status tutti_engine_start(struct tutti_team *team, const struct tutti_bind *bind,
                                     const struct tutti_call_info *info, bool helper, struct tutti_work **work)
{
    struct tutti_flight *flight;
    TUTTI_TRY(tutti_flight_create(team, bind, info, &flight));
    enum tutti_status status = tutti_team_submit(&flight->work, helper);
    if (status < 0)
        tutti_flight_drop(flight);
    else
        *work = &flight->work;
    return status;
}

/* ---- runners ---- */

/* The others have this call in their order, so there is no going on without it. */
static enum tutti_status give_up(struct tutti_team *team, struct tutti_runner *runner)
{
    struct tutti_error error = *tutti_last_error();

    tutti_team_fail(team, &error, true);
    tutti_owner_enter(team->engine->owner);
    runner->ops->cancel(runner);
    tutti_owner_leave(team->engine->owner);
    return tutti_fail_record(&error);
}

enum tutti_status tutti_engine_run(struct tutti_team *team, struct tutti_runner *runner, size_t bytes,
                                   const struct tutti_call_info *info, bool helper, struct tutti_work **work)
{
    if (bytes > TUTTI_RUNNER_BYTES) {
        tutti_fail(TUTTI_ERR_INTERNAL, "%s: a runner of %zu bytes", tutti_kind_name(info->kind), bytes);
        return give_up(team, runner);
    }
    struct tutti_flight *flight = flight_new(team, TUTTI_WORK_RUNNER, info);
    if (!flight) return give_up(team, runner);
    memcpy(flight->room, runner, bytes);
    flight->runner = (struct tutti_runner *)(void *)flight->room;
    flight->bind = (struct tutti_bind){.schedule = NULL};
    flight->layout.n_slices = 1;
    if (tutti_team_submit(&flight->work, helper) < 0) {
        tutti_work_drop(&flight->work);
        return give_up(team, runner);
    }
    *work = &flight->work;
    return TUTTI_OK;
}

/* ---- Private memory of calls: taken when a call starts, and kept by its team for the next one. ---- */

/* Regions that a team keeps hold their pages, so what is much too large is not taken. */
#define SPARE_WASTE 4
#define SPARE_MOST (UINT64_C(256) << 20)

void *tutti_region_take(struct tutti_team *team, size_t bytes, struct tutti_region *out)
{
    struct tutti_region *best = NULL;

    *out = (struct tutti_region){NULL, 0};
    if (bytes == 0) return NULL;
    size_t wanted = 4096;
    while (wanted < bytes) wanted *= 2;
    tutti_works_lock(team->engine->works);
    for (uint32_t i = 0; i < TUTTI_ARRAY_LEN(team->spare); i++) {
        struct tutti_region *spare = &team->spare[i];
        if (spare->bytes >= wanted && spare->bytes / SPARE_WASTE <= wanted && (!best || spare->bytes < best->bytes))
            best = spare;
    }
    if (best) *out = *best, *best = (struct tutti_region){NULL, 0};
    tutti_works_unlock(team->engine->works);
    if (!out->base) out->base = tutti_map_lazy(wanted), out->bytes = out->base ? wanted : 0;
    return out->base;
}

void tutti_region_give(struct tutti_team *team, struct tutti_region region)
{
    if (!region.base) return;
    tutti_works_lock(team->engine->works);
    for (uint32_t i = 0; i < TUTTI_ARRAY_LEN(team->spare) && region.base && region.bytes <= SPARE_MOST; i++) {
        if (team->spare[i].base) continue;
        team->spare[i] = region;
        region.base = NULL;
    }
    if (region.base && region.bytes <= SPARE_MOST) { /* full: the oldest makes room */
        struct tutti_region first = team->spare[0];
        memmove(&team->spare[0], &team->spare[1], sizeof(team->spare) - sizeof(first));
        team->spare[TUTTI_ARRAY_LEN(team->spare) - 1] = region;
        region = first;
    }
    tutti_works_unlock(team->engine->works);
    tutti_unmap(region.base, region.bytes);
}

/* ---- Runners: collectives that a back end carries out whole. One flies as a call of one slice without steps: it has
 * its number, its place in the order and its deadline as every call has, and it is advanced by the owner. What a rank
 * carries out past the engine, while nothing is in flight, is only counted. ---- */

/* Turns in a row; then other teams, messages and threads have theirs. */
#define TURNS 16

enum tutti_advance tutti_runner_turns(struct tutti_runner *runner, bool *moved)
{
    enum tutti_advance outcome = TUTTI_RUN_MOVED;
    int turns = 0;

    while (outcome == TUTTI_RUN_MOVED && turns < TURNS) outcome = runner->ops->advance(runner), turns++;
    *moved |= turns > 1 || outcome != TUTTI_RUN_BLOCKED;
    return outcome;
}

bool tutti_runner_advance(struct tutti_team *team, struct tutti_flight *flight, bool *moved)
{
    enum tutti_advance outcome = tutti_runner_turns(flight->runner, moved);

    flight->blocked = outcome == TUTTI_RUN_BLOCKED;
    if (outcome == TUTTI_RUN_MISMATCH)
        tutti_report_called(team, flight, flight->runner, flight->runner->ops->awaits(flight->runner));
    if (outcome == TUTTI_RUN_FAILED) tutti_report_failed(team, flight);
    return outcome == TUTTI_RUN_DONE;
}

/* ---- Works that the engine only follows: what goes on elsewhere, on a device, and needs nobody here to go on. They
 * have no place in the order of the calls and no deadline: whoever carries them out sees to those. Of a team they are
 * over one after another, so only the oldest is looked at, ever less often. ---- */

/* A look costs about a microsecond. */
#define LOOK_FIRST_NS UINT64_C(5000)
#define LOOK_LONGEST_NS TUTTI_NS_PER_MS
#define LOOK_SHARE 8 /* so much of its age may be lost before its end is seen */
#define STOP_NS (100 * TUTTI_NS_PER_MS)

enum tutti_status tutti_engine_follow(struct tutti_team *team, const struct tutti_followed_ops *ops, void *arg,
                                      uint64_t seq, const char *label, struct tutti_work **work)
{
    struct tutti_followed *followed = tutti_work_new(team->engine->works, TUTTI_WORK_FOLLOWED);

    if (!followed) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the work of a call");
    followed->next = NULL;
    followed->ops = ops;
    followed->arg = arg;
    followed->work.team = team;
    followed->work.seq = seq;
    followed->work.label = label;
    followed->work.timeout_ns = TUTTI_NEVER;
    enum tutti_status status = tutti_team_submit(&followed->work, false);
    if (status < 0) {
        tutti_work_drop(&followed->work);
        return status;
    }
    *work = &followed->work;
    return TUTTI_OK;
}

/* ---- owner ---- */

static void look_later(struct tutti_team *team, uint64_t now)
{
    uint64_t age = now - team->followed->work.start_ns, ns = age / LOOK_SHARE;

    team->look_ns = now + (ns < LOOK_FIRST_NS ? LOOK_FIRST_NS : ns > LOOK_LONGEST_NS ? LOOK_LONGEST_NS : ns);
}

static void followed_end(struct tutti_team *team, const struct tutti_error *error)
{
    struct tutti_followed *followed = team->followed;

    team->followed = followed->next;
    if (!followed->next) team->followed_end = &team->followed;
    followed->ops->end(followed->arg);
    tutti_team_complete(&followed->work, error);
}

void tutti_follow_begin(struct tutti_team *team, struct tutti_followed *followed)
{
    *team->followed_end = followed;
    team->followed_end = &followed->next;
    if (team->followed == followed) look_later(team, tutti_owner_now(team->engine->owner));
}

bool tutti_follow_run(struct tutti_team *team)
{
    bool any = false;

    while (team->followed && !team->halted) {
        uint64_t now = tutti_owner_now(team->engine->owner);
        if (!any && now < team->look_ns) return false;
        enum tutti_status status = team->followed->ops->look(team->followed->arg);
        if (status == TUTTI_PENDING) {
            look_later(team, now);
            return any;
        }
        any = true;
        if (status < 0)
            tutti_team_break(team, status, -1, NULL, TUTTI_NO_STEP, tutti_last_error()->text);
        else
            followed_end(team, NULL);
    }
    return any;
}

/* Borrowed buffers are given back when this returns, unless the device hangs. */
void tutti_follow_fail(struct tutti_team *team, const struct tutti_error *error)
{
    uint64_t deadline = tutti_owner_deadline(team->engine->owner, STOP_NS);

    if (team->followed) team->followed->ops->stop(team->followed->arg);
    while (team->followed) {
        enum tutti_status status = team->followed->ops->look(team->followed->arg);
        if (status == TUTTI_PENDING && tutti_owner_now(team->engine->owner) < deadline)
            tutti_clock_sleep(team->engine->owner->clock, LOOK_FIRST_NS);
        else
            followed_end(team, error);
    }
}
