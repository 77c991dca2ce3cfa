/* SPDX-License-Identifier: BSD-3-Clause */
/* The short way of a schedule: a call of one slice, all of whose messages are sent before anybody asks for them, on the
 * thread of its caller. The call is a flight as any other, with the same packets, so that a peer can not tell by which
 * way it came; but the flight is made once and kept for the next call that is alike, and while it is under way it is no
 * work: nobody else has to know of it. The caller owns the engine, sends, and takes event after event of the wire, the
 * awaited peer's first. If that lasts, or anything happens that a pass has to see to, the flight becomes a work. */
#include "engine/flight/flight.h"
#include "engine/flight/onesided_access.h"
#include "engine/pass/pass.h"

#include <sched.h>
#include <string.h>

/* The awaited rank may be on this CPU: a rank looks without a break for a part of the time for which it spins. */
#define SPIN_ALONE 2
#define YIELD_NS (200 * UINT64_C(1000)) /* where ranks outnumber CPUs: it gives up turns for so long, then sleeps */
#define LOOKS_MOST 4096                 /* whatever the clock says */
#define LOOKS_A_CLOCK 16                /* at the memory of a group, for each look at the clock, */
#define LOOKS_A_POLL 16                 /* and of these for each look at the wire */

struct tutti_flight *tutti_short_keep(struct tutti_team *team, const struct tutti_bind *bind,
                                      const struct tutti_call_info *info)
{
    struct tutti_flight *flight;

    if (tutti_flight_create(team, bind, info, &flight) < 0) return NULL;
    const struct tutti_layout *l = &flight->layout;
    if (bind->scale) memcpy(flight->factor, bind->factor, tutti_dtype_bytes(bind->dtype));
    flight->bind.factor = flight->factor;
    if (l->n_slices == 1 && l->n_blocks * l->per_block * l->largest * l->element <= team->eager) return flight;
    tutti_flight_drop(flight);
    return NULL;
}

/* ---- patience ---- */

struct patience {
    uint64_t since_ns; /* when the first look was in vain; 0: none was */
    uint32_t n_looks;
};

/* Whether to look again after a look in vain. */
static bool is_patient(struct patience *patience, const struct tutti_engine *engine)
{
    const struct tutti_owner *owner = engine->owner;
    const uint64_t spin = atomic_load_explicit(&owner->spin_ns, memory_order_relaxed), now = tutti_owner_now(owner);

    if (patience->since_ns == 0) patience->since_ns = now;
    if (atomic_load_explicit(&owner->want, memory_order_relaxed) > 0 ||
        atomic_load_explicit(&engine->works->has_submitted, memory_order_relaxed) || ++patience->n_looks > LOOKS_MOST)
        return false;
    const uint64_t waited = now - patience->since_ns;
    if (waited >= (spin ? spin : YIELD_NS)) return false;
    if (waited >= spin / SPIN_ALONE) sched_yield();
    return true;
}

/* ---- a flight that is no work ---- */

static void begin(struct tutti_team *team, struct tutti_flight *flight)
{
    struct tutti_slice *slice = &team->slices[0];

    flight->work.seq = tutti_team_next(team);
    flight->next_slice = 1, flight->n_finished = flight->n_compared = 0;
    flight->reported_missing = flight->in_vain = false;
    if (flight->need.copy_bytes > 0) { /* what the input holds now */
        flight->layout.input = flight->bind.input;
        tutti_layout_fill(&flight->layout, &flight->bind, &flight->need, flight->region.base);
    }
    *slice = (struct tutti_slice){.flight = flight, .dirty = true};
    team->order[0] = slice, team->n_active = 1;
    team->started = flight->work.seq;
    team->n_work++;
}

/* Teams that are busy have no calls, but windows that peers may have accessed just now. */
static void serve(const struct tutti_engine *engine)
{
    for (struct tutti_team *team = engine->busy; team; team = team->next)
        if (!team->halted && team->ones) tutti_ones_run(team, false);
}

/* Whether its group is awaited, which a look at memory shows: the wire is asked seldom then. */
static bool awaits_group(const struct tutti_slice *slice)
{
    return slice->flight->bind.schedule->steps[slice->base].op == TUTTI_STEP_CALL;
}

/* What calls of groups can do now; whether anything happened. */
static bool call_groups(struct tutti_team *team, const struct tutti_slice *slice)
{
    const bool spins = atomic_load_explicit(&team->engine->owner->spin_ns, memory_order_relaxed) > 0;

    for (int looks = spins && awaits_group(slice) ? LOOKS_A_CLOCK : 1; looks > 0 && !team->halted; looks--) {
        if (tutti_team_call(team)) return true;
        if (looks > 1) tutti_cpu_relax();
    }
    return false;
}

/* The next event of the wire, that of the awaited peer first; AGAIN: none came. */
static enum tutti_status look(const struct tutti_team *team, const struct tutti_slice *slice, uint32_t n_looks)
{
    struct tutti_transport *t = team->port->transport;
    const bool grouped = awaits_group(slice);

    if (grouped && n_looks % LOOKS_A_POLL != LOOKS_A_POLL - 1) return TUTTI_AGAIN;
    const int32_t peer = grouped ? -1 : tutti_slice_awaits(slice);
    if (peer >= 0 && t->ops->expect) t->ops->expect(t, team->members[peer]);
    return tutti_port_event(team->engine, team->port);
}

/* Whether it came to its end. */
static bool fly(struct tutti_team *team, struct tutti_slice *slice, struct patience *patience)
{
    struct tutti_engine *engine = team->engine;
    const bool calls = slice->flight->bind.schedule->n_calls > 0;

    if (team->listed && !tutti_held_check(team, slice->flight)) return false;
    for (;;) {
        if (!team->halted && (slice->dirty || slice->stalled)) tutti_slice_issue(team, slice);
        if (team->halted) return false;
        if (tutti_slice_over(slice)) return true;
        if (calls && call_groups(team, slice)) {
            patience->since_ns = 0;
            continue;
        }
        const enum tutti_status status = look(team, slice, patience->n_looks);
        if (status < 0) return false;
        if (status == TUTTI_OK && engine->busy) serve(engine);
        if (status == TUTTI_OK)
            patience->since_ns = 0;
        else if (!is_patient(patience, engine))
            return false;
    }
}

static void end(struct tutti_team *team, struct tutti_flight *flight)
{
    struct tutti_engine *engine = team->engine;

    tutti_slice_finish(&team->slices[0]);
    team->slices[0].flight = NULL;
    team->n_active = 0, team->n_work--;
    team->retry = team->again = false;
    if (team->owing) tutti_team_flush(team);
    tutti_engine_count_owing(engine);
    engine->stats.calls_started++, engine->stats.calls_completed++;
    tutti_board_fill(&team->board, flight);
    tutti_flight_show_end(team);
    team->board.called_ns = team->board.since_ns;
    tutti_team_count(team);
}

/* From now on it is a work, as if it had been submitted when its caller began to wait. */
static void become_work(struct tutti_team *team, struct tutti_flight *flight, uint64_t start_ns)
{
    struct tutti_work *work = &flight->work;
    struct tutti_engine *engine = team->engine;

    team->n_work--;
    work->start_ns = start_ns ? start_ns : tutti_owner_now(engine->owner);
    work->deadline_ns =
        work->start_ns + work->timeout_ns < work->timeout_ns ? TUTTI_NEVER : work->start_ns + work->timeout_ns;
    work->home = team;
    atomic_fetch_add(&work->refs, 1);
    atomic_fetch_add(&team->n_open, 1);
    atomic_fetch_add(&engine->owner->n_inflight, 1);
    atomic_store_explicit(&team->seq, work->seq, memory_order_relaxed);
    engine->stats.calls_started++;
    tutti_team_begin_work(team);
    tutti_flight_show_begin(team, flight);
}

enum tutti_status tutti_short_run(struct tutti_flight *flight, uint64_t timeout_ns, const char *label,
                                  struct tutti_work **work)
{
    struct tutti_team *team = flight->work.team;
    struct tutti_engine *engine = team->engine;
    struct patience patience = {0};

    if (!tutti_team_quiet(team) || tutti_team_failed(team) || atomic_load(&engine->owner->n_inflight) > 0 ||
        !tutti_owner_try(engine->owner))
        return TUTTI_AGAIN;
    const bool busy = engine->failing || atomic_load(&engine->works->has_submitted);
    bool over = false;
    if (!busy) {
        flight->work.label = flight->info.label = label;
        flight->work.timeout_ns = flight->info.timeout_ns = timeout_ns ? timeout_ns : team->timeout_ns;
        begin(team, flight);
        over = fly(team, &team->slices[0], &patience);
        if (over)
            end(team, flight);
        else
            become_work(team, flight, patience.since_ns);
    }
    tutti_owner_leave(engine->owner);
    if (!busy && !over) *work = &flight->work;
    return busy ? TUTTI_AGAIN : over ? TUTTI_OK : TUTTI_PENDING;
}
