/* SPDX-License-Identifier: BSD-3-Clause */

/* Collectives in flight: started by any thread, numbered in the order of the calls, taken over by the owner, cut into
 * slices of which the oldest are active. All memory of a call is taken when it starts and kept for the next one. */

#include "device/cpu/copy.h"
#include "engine/flight/call.h"
#include "engine/core.h"
#include "engine/work/follow.h"

#include <string.h>

/* Regions that a team keeps hold their pages, so what is much too large is not taken. */
#define SPARE_WASTE 4
#define SPARE_MOST (UINT64_C(256) << 20)

static void *region_take(struct tutti_team *team, size_t bytes, struct tutti_region *out)
{
    struct tutti_region *best = NULL;

    *out = (struct tutti_region){NULL, 0};
    if (bytes == 0) return NULL;
    size_t wanted = 4096;
    while (wanted < bytes) wanted *= 2;
    pthread_mutex_lock(&team->engine->lock);
    for (uint32_t i = 0; i < TUTTI_ARRAY_LEN(team->spare); i++) {
        struct tutti_region *spare = &team->spare[i];
        if (spare->bytes >= wanted && spare->bytes / SPARE_WASTE <= wanted && (!best || spare->bytes < best->bytes))
            best = spare;
    }
    if (best) *out = *best, *best = (struct tutti_region){NULL, 0};
    pthread_mutex_unlock(&team->engine->lock);
    if (!out->base) out->base = tutti_map_lazy(wanted), out->bytes = out->base ? wanted : 0;
    return out->base;
}

static void region_give(struct tutti_team *team, struct tutti_region region)
{
    if (!region.base) return;
    pthread_mutex_lock(&team->engine->lock);
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
    pthread_mutex_unlock(&team->engine->lock);
    tutti_unmap(region.base, region.bytes);
}

/* Reductions read again what they wrote. */
static bool goes_past_cache(const struct tutti_flight *flight)
{
    const struct tutti_layout *l = &flight->layout;
    return !tutti_kind_info(flight->info.kind)->reduces &&
           l->largest * l->per_block >= TUTTI_PAST_CACHE_BYTES / l->element / l->n_blocks;
}

static void schedule_give(const struct tutti_bind *bind)
{
    if (bind->cache) tutti_cache_release(bind->cache, bind->schedule);
}

struct tutti_flight *tutti_flight_new(struct tutti_team *team, enum tutti_work_type type,
                                      const struct tutti_call_info *info)
{
    struct tutti_flight *flight = tutti_work_new(team->engine, type);

    if (!flight) {
        tutti_fail(TUTTI_ERR_MEMORY, "%s: out of memory", tutti_kind_name(info->kind));
        return NULL;
    }
    flight->next = NULL;
    flight->runner = NULL;
    flight->region = (struct tutti_region){NULL, 0};
    flight->next_slice = flight->n_finished = flight->n_compared = 0;
    flight->told_missing = flight->in_vain = flight->blocked = false;
    flight->info = *info;
    flight->work.team = team;
    flight->work.tag = info->tag;
    flight->work.timeout_ns = info->timeout_ns ? info->timeout_ns : team->timeout_ns;
    return flight;
}

enum tutti_status tutti_engine_start(struct tutti_team *team, const struct tutti_bind *bind,
                                     const struct tutti_call_info *info, bool helper, struct tutti_work **work)
{
    struct tutti_need need = {0};
    enum tutti_status status;
    struct tutti_flight *flight = tutti_flight_new(team, TUTTI_WORK_FLIGHT, info);

    if (!flight) {
        schedule_give(bind);
        return TUTTI_ERR_MEMORY;
    }
    flight->bind = *bind;
    if (bind->schedule->lanes.n > team->n_lanes) {
        status = tutti_fail(TUTTI_ERR_INTERNAL, "%s: its schedule has calls of %u lanes, its team has %u",
                            tutti_kind_name(info->kind), bind->schedule->lanes.n, team->n_lanes);
        goto err_work;
    }
    TUTTI_TRY_GOTO(status, tutti_layout_init(&flight->layout, bind, team->engine->config.slice_bytes, &need), err_work);
    if (need.bytes > 0 && !region_take(team, need.bytes, &flight->region)) {
        status = tutti_fail(TUTTI_ERR_MEMORY, "%s: out of memory for %zu bytes of scratch", tutti_kind_name(info->kind),
                            need.bytes);
        goto err_work;
    }
    tutti_layout_fill(&flight->layout, bind, &need, flight->region.base);
    flight->past_cache = goes_past_cache(flight);
    struct tutti_board board = {0};
    tutti_board_fill(&board, flight);
    flight->packed_call = tutti_call_pack(&board), flight->packed_count = board.count;
    TUTTI_TRY_GOTO(status, tutti_work_submit(&flight->work, helper), err_region);
    *work = &flight->work;
    return TUTTI_OK;
err_region:
    region_give(team, flight->region);
err_work:
    tutti_work_drop(&flight->work);
    schedule_give(bind);
    return status;
}

/* ---- owner ---- */

struct tutti_flight *tutti_flight_find(const struct tutti_team *team, uint64_t seq)
{
    for (uint32_t i = 0; i < team->n_active; i++)
        if (team->order[i]->flight->work.seq == seq) return team->order[i]->flight;
    for (struct tutti_flight *f = team->pending; f && f->work.seq <= seq; f = f->next)
        if (f->work.seq == seq) return f;
    return NULL;
}

const char *tutti_flight_name(const struct tutti_team *team, uint64_t seq)
{
    const struct tutti_flight *flight = tutti_flight_find(team, seq);
    return flight ? tutti_kind_name(flight->info.kind) : "";
}

/* The last call before the oldest one in flight. */
static uint64_t completed_up_to(const struct tutti_team *team)
{
    if (team->n_active > 0) return team->order[0]->flight->work.seq - 1;
    return team->pending ? team->pending->work.seq - 1 : team->started;
}

static void flight_end(struct tutti_team *team, struct tutti_flight *flight, const struct tutti_error *error)
{
    if (error && flight->runner) flight->runner->ops->cancel(flight->runner);
    schedule_give(&flight->bind);
    region_give(team, flight->region);
    flight->region = (struct tutti_region){NULL, 0};
    if (!error) {
        team->board.completed = completed_up_to(team);
        team->board.step = team->board.n_steps = 0;
        team->board.peer = -1;
        tutti_team_publish(team);
    }
    tutti_work_complete(&flight->work, error);
}

/* Keeps the oldest slices active. A barrier waits until those before it are over: whoever passes it knows that they are
 * over on all ranks. */
static void activate(struct tutti_team *team)
{
    while (team->pending && team->n_active < TUTTI_ACTIVE) {
        struct tutti_flight *flight = team->pending;
        uint32_t i = 0;
        if (flight->info.kind == TUTTI_BARRIER && team->n_active > 0) break;
        while (team->slices[i].flight) i++;
        team->slices[i] = (struct tutti_slice){.flight = flight, .index = flight->next_slice++, .dirty = true};
        team->order[team->n_active++] = &team->slices[i];
        if (flight->runner) team->n_runners++;
        if (flight->next_slice < flight->layout.n_slices) continue;
        team->pending = flight->next;
        if (!team->pending) team->pending_end = &team->pending;
    }
}

static void flight_begin(struct tutti_team *team, struct tutti_flight *flight)
{
    struct tutti_engine *engine = team->engine;
    uint64_t half = flight->work.timeout_ns / 2, after = engine->config.compare_after_ns;

    flight->compare_ns = flight->work.start_ns + (half < after ? half : after);
    tutti_engine_watch_by(engine, flight->compare_ns < flight->work.deadline_ns ? flight->compare_ns
                                                                                : flight->work.deadline_ns);
    team->started = flight->work.seq;
    *team->pending_end = flight;
    team->pending_end = &flight->next;
    tutti_board_fill(&team->board, flight);
    team->board.completed = completed_up_to(team); /* those past the engine, too */
    tutti_team_publish(team);
    if (tutti_held_check(team, flight)) activate(team);
}

void tutti_team_absorb(struct tutti_team *team, struct tutti_work *work)
{
    tutti_team_work_begin(team);
    if (work->type == TUTTI_WORK_FOLLOWED) {
        tutti_follow_begin(team, (struct tutti_followed *)work);
        if (team->failed) tutti_follow_fail(team, &team->error);
    } else if (team->failed) {
        if (tutti_work_flies(work->type))
            flight_end(team, (struct tutti_flight *)work, &team->error);
        else
            tutti_work_complete(work, &team->error);
    } else if (tutti_work_flies(work->type)) {
        flight_begin(team, (struct tutti_flight *)work);
    } else {
        tutti_letter_begin(team, (struct tutti_letter *)work);
    }
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
    if (++flight->n_finished == flight->layout.n_slices) flight_end(team, flight, NULL);
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

bool tutti_team_run(struct tutti_team *team)
{
    bool moved = false, retry;

    do {
        retry = team->retry || team->again;
        team->retry = team->again = false;
        for (uint32_t i = 0; i < team->n_active && !team->failed;) {
            struct tutti_slice *slice = team->order[i];
            if (slice->flight->runner) {
                i++;
                continue;
            }
            if (slice->dirty || (slice->stalled && (retry || i == 0))) moved |= tutti_slice_issue(team, slice);
            if (team->failed) return true;
            if (tutti_slice_over(slice)) {
                slice_end(team, i);
                moved = true;
            } else {
                i++;
            }
        }
        if (team->n_runners > 0) moved |= tutti_team_run_runners(team);
        if (team->n_lanes > 0 && !team->failed) moved |= tutti_team_call(team);
        if (team->failed) return true;
        moved |= tutti_letters_run(team, retry);
        if (team->followed) moved |= tutti_follow_run(team);
    } while (team->retry && !team->failed);
    if (team->owing && !team->failed) tutti_team_flush(team);
    return moved;
}

/* Sends the credits that are due: two, or one when messages held here keep so many others that the sender may need it.
 * A packet of credits may have to wake its receiver, so none is sent in vain. */
bool tutti_team_flush(struct tutti_team *team)
{
    uint32_t *at = &team->listed;

    team->owing = false;
    while (*at) {
        uint32_t peer = *at - 1;
        struct tutti_channel *channel = &team->channels[peer];
        uint8_t owed = (uint8_t)(channel->consumed - channel->told);
        bool letters = tutti_letters_owe(team, channel);
        if (owed >= 2 || (owed > 0 && owed + channel->n_held >= TUTTI_CREDITS - 1) || letters) {
            struct tutti_packet packet = {
                .type = TUTTI_PACKET_CREDIT, .fifo = channel->p2p_paid_freed, .seq = channel->p2p_freed};
            enum tutti_status status = tutti_team_send(team, peer, &packet, NULL, 0);
            if (status == TUTTI_AGAIN) {
                team->owing = true;
            } else { /* a peer that is gone needs none */
                channel->told = channel->consumed;
                channel->p2p_paid_told = channel->p2p_paid_freed, channel->p2p_told = channel->p2p_freed;
            }
        }
        if (channel->consumed == channel->told && channel->n_held == 0 && channel->n_grants == 0 &&
            channel->p2p_told == channel->p2p_freed) {
            *at = channel->next_listed;
            channel->listed = false;
        } else {
            at = &channel->next_listed;
        }
    }
    return true;
}

void tutti_team_apply(struct tutti_team *team, const struct tutti_error *error)
{
    struct tutti_flight *pending = team->pending, *before = NULL;

    if (team->failed) return;
    team->error = *error;
    atomic_store(&team->failed, true);
    team->pending = NULL, team->pending_end = &team->pending;
    tutti_team_cancel_calls(team);
    /* Slices of one flight follow one another; the last active flight may be the first pending one. */
    for (uint32_t i = 0; i < team->n_active; i++) {
        struct tutti_flight *flight = team->order[i]->flight;
        team->order[i]->flight = NULL;
        if (flight != before && flight != pending) flight_end(team, flight, error);
        before = flight;
    }
    team->n_active = team->n_runners = 0;
    while (pending) {
        struct tutti_flight *flight = pending;
        pending = flight->next;
        flight_end(team, flight, error);
    }
    tutti_letters_fail(team, error);
    tutti_follow_fail(team, error);
}
