/* SPDX-License-Identifier: BSD-3-Clause */

/* The owner's look-out: this is what notices a deadline that passed, a peer that is gone, and ranks that called
 * something else. Ten times a second, and whenever a deadline is near, the owner looks at the calls in flight. */

#include "engine/flight/flight.h"
#include "engine/flight/onesided_access.h"
#include "engine/pass/pass.h"
#include "engine/team/report.h"

/* A peer that is gone may have sent something before. The owner reads that first: within the grace after a leave, or as
 * long as there is something to read; but it tells a death within a second. */
#define GONE_GRACE_NS (80 * TUTTI_NS_PER_MS)
#define ATTENTIVE_GRACE_NS (5 * TUTTI_NS_PER_MS) /* where all agree on what the dead one did */
#define DEAD_GRACE_NS (600 * TUTTI_NS_PER_MS)
#define COMPARE_AGAIN_NS TUTTI_NS_PER_S
/* How many boards all ranks together look at in COMPARE_AGAIN_NS. If each rank looked at all boards, a thousand ranks
 * would soon do nothing else. So each rank looks at some, first at those behind it; together they look at all. */
#define COMPARE_BOARDS 8192
#define ASK_NS (250 * TUTTI_NS_PER_MS) /* so long a sentence waits for boards that were asked for */
#define ASK_AGAIN_NS (10 * TUTTI_NS_PER_MS)
#define PENDING_AGAIN_NS (100 * TUTTI_NS_PER_MS) /* then a board that was asked for is looked at again */
#define LETTER_SHOWN_NS (100 * TUTTI_NS_PER_MS)  /* younger messages are not worth a board */
#define VAIN_AGAIN_NS (100 * TUTTI_NS_PER_MS)    /* the second look comes soon, since the deadline may be near */
/* Ranks whose deadlines pass together should not all find it out at once: the first one tells. */
#define STAGGER_NS TUTTI_NS_PER_MS
#define STAGGER_SLOTS 16

/* ---- deadlines ---- */

static uint64_t deadline_of(const struct tutti_team *team, const struct tutti_work *work)
{
    uint64_t deadline = work->deadline_ns + team->slot % STAGGER_SLOTS * STAGGER_NS;
    return deadline < work->deadline_ns ? TUTTI_NEVER : deadline;
}

/* Whether some rank was asked for its board and has not answered: the sentence waits a little for what it can say. */
static bool awaits_boards(struct tutti_team *team)
{
    struct tutti_board board;
    bool awaits = false;

    if (team->port->control->answers_at_once) return false;
    for (uint32_t i = 0; i < team->size && i < COMPARE_BOARDS / team->size + 2; i++)
        if (i != team->slot) awaits |= tutti_team_peek(team, i, &board) == TUTTI_PENDING;
    return awaits;
}

/* Whether it is over; else the engine looks again by then. */
static bool is_over(struct tutti_team *team, const struct tutti_work *work, uint64_t now)
{
    uint64_t deadline = deadline_of(team, work);

    tutti_engine_watch_by(team->engine, deadline);
    if (deadline > now) return false;
    if (now - deadline >= ASK_NS || !awaits_boards(team)) return true;
    tutti_engine_watch_by(team->engine, now + ASK_AGAIN_NS);
    return false;
}

static void watch_deadlines(struct tutti_team *team, uint64_t now)
{
    const struct tutti_flight *before = NULL;

    for (uint32_t i = 0; i < team->n_active; i++) {
        const struct tutti_flight *flight = team->order[i]->flight;
        if (flight != before && is_over(team, &flight->work, now)) {
            tutti_report_timeout(team, flight);
            return;
        }
        before = flight;
    }
    for (const struct tutti_flight *flight = team->pending; flight; flight = flight->next) {
        if (!is_over(team, &flight->work, now)) continue;
        tutti_report_timeout(team, flight);
        return;
    }
    const struct tutti_p2p_message *lists[2] = {team->sends, team->recvs};
    for (int l = 0; l < 2; l++) {
        for (const struct tutti_p2p_message *msg = lists[l]; msg; msg = msg->next) {
            if (!is_over(team, &msg->work, now)) continue;
            tutti_report_message_timeout(team, msg);
            return;
        }
    }
    for (const struct tutti_word_wait *wait = team->waits; wait; wait = wait->next) {
        if (!is_over(team, &wait->work, now)) continue;
        tutti_report_wait_timeout(team, wait);
        return;
    }
    for (const struct tutti_one_access *access = team->ones ? team->ones->first : NULL; access; access = access->next) {
        if (!is_over(team, &access->work, now)) continue;
        tutti_access_timeout(team, access);
        return;
    }
}

/* ---- peers ---- */

static enum tutti_life life_of(struct tutti_team *team, uint32_t peer)
{
    struct tutti_transport *t = team->port->transport;
    enum tutti_life life = tutti_team_life(team, peer);
    struct tutti_board board;

    if (tutti_life_gone(life) && t->ops->holds && t->ops->holds(t, team->members[peer])) return TUTTI_LIFE_ALIVE;
    if (tutti_life_gone(life)) return life;
    bool *has_left = &team->channels[peer].has_left; /* a board has to be asked for, and is not always there */
    *has_left = *has_left || (tutti_team_peek(team, peer, &board) == TUTTI_OK && board.state == TUTTI_BOARD_LEFT);
    return *has_left ? TUTTI_LIFE_LEFT : life;
}

/* Between hosts the last messages of one that left in order may come over a connection that is still being made. */
static uint64_t grace_of(const struct tutti_team *team, enum tutti_life life, bool read)
{
    if (life != TUTTI_LIFE_DEAD) return team->port->control->answers_at_once ? GONE_GRACE_NS : DEAD_GRACE_NS;
    if (!read) return DEAD_GRACE_NS;
    return atomic_load(&team->engine->attentive) ? ATTENTIVE_GRACE_NS : GONE_GRACE_NS;
}

/* Whether an awaited peer is gone for good; looks at each one once a tick. */
static bool is_gone(struct tutti_team *team, uint32_t peer, uint64_t now, enum tutti_life *life)
{
    struct tutti_channel *channel = &team->channels[peer];

    if (channel->seen_tick == team->engine->tick || peer == team->slot) return false;
    channel->seen_tick = team->engine->tick;
    *life = life_of(team, peer);
    if (!tutti_life_gone(*life)) {
        channel->gone_ns = 0;
        return false;
    }
    if (channel->gone_ns == 0) channel->gone_ns = now, channel->gone_pass = team->engine->pass;
    bool read = team->port->drained > channel->gone_pass;
    const uint64_t grace = grace_of(team, *life, read);
    if (now - channel->gone_ns >= grace) return read || *life == TUTTI_LIFE_DEAD;
    tutti_engine_watch_by(team->engine, channel->gone_ns + (read ? grace : GONE_GRACE_NS));
    return false;
}

static void watch_runner(struct tutti_team *team, const struct tutti_flight *flight, uint64_t now)
{
    int32_t peer = tutti_runner_awaits(flight);
    enum tutti_life life;

    if (peer >= 0 && is_gone(team, (uint32_t)peer, now, &life))
        tutti_report_flight_lost(team, flight, (uint32_t)peer, life, TUTTI_NO_STEP);
}

static void watch_calling(struct tutti_team *team, const struct tutti_calling *calling, uint64_t now)
{
    int32_t peer = tutti_calling_awaits(calling);
    enum tutti_life life;

    if (peer < 0 || !is_gone(team, (uint32_t)peer, now, &life)) return;
    const struct tutti_flight *flight = calling->slice->flight;
    tutti_report_flight_lost(team, flight, (uint32_t)peer, life, flight->bind.schedule->calls[calling->call].step);
}

/* The peers that the steps of a slice wait for. */
static void watch_slice(struct tutti_team *team, const struct tutti_slice *slice, uint64_t now)
{
    const struct tutti_schedule *schedule = slice->flight->bind.schedule;
    uint32_t left = schedule->n_steps - slice->base;
    enum tutti_life life;

    for (uint32_t k = 0; k < left && k < TUTTI_WINDOW; k++) {
        const struct tutti_step *step = &schedule->steps[slice->base + k];
        if (!tutti_step_is_message(step)) continue;
        if ((slice->done & tutti_slice_bit(k)) || !tutti_step_ready(slice, k)) continue;
        if (!is_gone(team, step->peer, now, &life)) continue;
        tutti_report_flight_lost(team, slice->flight, step->peer, life, slice->base + k);
        return;
    }
}

/* A call that any rank may end waits for all: one that died may be the one; it is in vain once all have left. Returns
 * the lost one, TUTTI_NO_SLOT: none. */
static uint32_t any_lost(struct tutti_team *team, uint64_t now, enum tutti_life *life)
{
    uint32_t n_left = 0;

    for (uint32_t i = 0; i < team->size; i++) {
        team->channels[i].seen_tick = 0;
        if (!is_gone(team, i, now, life)) continue;
        n_left++;
        if (*life == TUTTI_LIFE_DEAD || n_left + 1 == team->size) return i;
    }
    return TUTTI_NO_SLOT;
}

static void watch_messages(struct tutti_team *team, uint64_t now)
{
    const struct tutti_p2p_message *lists[2] = {team->sends, team->recvs}, *any = NULL;
    enum tutti_life life;

    for (int l = 0; l < 2; l++) {
        for (const struct tutti_p2p_message *msg = lists[l]; msg; msg = msg->next) {
            if (msg->peer < 0) any = any ? any : msg;
            if (msg->peer < 0 || !is_gone(team, (uint32_t)msg->peer, now, &life)) continue;
            tutti_report_message_lost(team, msg, (uint32_t)msg->peer, life);
            return;
        }
    }
    const uint32_t lost = any ? any_lost(team, now, &life) : TUTTI_NO_SLOT;
    if (lost != TUTTI_NO_SLOT) tutti_report_message_lost(team, any, lost, life);
}

/* What a peer changed before it was gone has been seen, or is seen now. */
static void watch_waits(struct tutti_team *team, uint64_t now)
{
    const struct tutti_word_wait *any = NULL;
    enum tutti_life life;

    tutti_waits_run(team);
    for (const struct tutti_word_wait *wait = team->waits; wait; wait = wait->next) {
        if (wait->what.from < 0) any = any ? any : wait;
        if (wait->what.from < 0 || !is_gone(team, (uint32_t)wait->what.from, now, &life)) continue;
        tutti_report_wait_lost(team, wait, (uint32_t)wait->what.from, life);
        return;
    }
    const uint32_t lost = any ? any_lost(team, now, &life) : TUTTI_NO_SLOT;
    if (lost != TUTTI_NO_SLOT) tutti_report_wait_lost(team, any, lost, life);
}

static void watch_accesses(struct tutti_team *team, uint64_t now)
{
    enum tutti_life life;

    for (const struct tutti_one_access *access = team->ones->first; access; access = access->next) {
        int32_t peer = tutti_access_awaits(access);
        if (peer < 0 || !is_gone(team, (uint32_t)peer, now, &life)) continue;
        tutti_access_lost(team, access, (uint32_t)peer, life);
        return;
    }
}

/* ---- what others called ---- */

/* Publishes where the oldest call is. */
static void watch_board(struct tutti_team *team, uint64_t now)
{
    const struct tutti_slice *slice = team->n_active > 0 ? team->order[0] : NULL;
    struct tutti_board *board = &team->board;

    if (!slice || slice->flight->work.seq != board->seq || tutti_slice_over(slice)) return;
    int32_t peer = tutti_slice_awaits(slice);
    if (board->step == slice->base && board->peer == peer) return;
    board->step = slice->base, board->peer = peer, board->since_ns = now;
    tutti_team_publish(team);
}

/* Shows the oldest wait for a signal that lasts for long, where no send or recv does. */
static void watch_wait_board(struct tutti_team *team, uint64_t now)
{
    const struct tutti_word_wait *oldest = team->waits;

    if (!oldest || team->board.message || now - oldest->work.start_ns < LETTER_SHOWN_NS) return;
    team->board.message = TUTTI_BOARD_WAIT;
    team->board.message_peer = oldest->what.from, team->board.message_tag = (int32_t)oldest->what.signal;
    team->board.message_since_ns = oldest->work.start_ns;
    tutti_team_publish(team);
}

/* Shows the oldest send or recv that waits for long. */
static void watch_message_board(struct tutti_team *team, uint64_t now)
{
    const struct tutti_p2p_message *oldest = team->recvs;

    if (!oldest || (team->sends && team->sends->work.start_ns < oldest->work.start_ns)) oldest = team->sends;
    if (!oldest || now - oldest->work.start_ns < LETTER_SHOWN_NS ||
        oldest->work.start_ns == team->board.message_since_ns)
        return;
    team->board.message = oldest->work.type == TUTTI_WORK_SEND ? TUTTI_BOARD_SEND : TUTTI_BOARD_RECV;
    team->board.message_peer = oldest->peer < 0 ? -1 : oldest->peer, team->board.message_tag = oldest->tag;
    team->board.message_since_ns = oldest->work.start_ns;
    tutti_team_publish(team);
}

/* A rank that has completed a call has sent all that it ever will: where counts are not all in the signature, or one is
 * 0, the two sides may disagree on whether there is a message. Found at two looks in a row, since what was on its way
 * at the first one has arrived before the second. True when the team broke. */
static bool watch_vain(struct tutti_team *team, struct tutti_flight *flight, uint64_t now)
{
    const struct tutti_schedule *schedule = flight->bind.schedule;
    const struct tutti_slice *slice = tutti_flight_oldest(team, flight);
    struct tutti_board board;

    for (uint32_t k = 0; slice && k < TUTTI_WINDOW && slice->base + k < schedule->n_steps; k++) {
        const struct tutti_step *step = &schedule->steps[slice->base + k];
        if (!tutti_step_is_message(step)) continue;
        if ((slice->done & tutti_slice_bit(k)) || !tutti_step_ready(slice, k)) continue;
        if (step->op != TUTTI_STEP_SEND && (slice->busy & tutti_slice_bit(k)))
            tutti_recv_ask(team, slice, slice->base + k);
        if (tutti_team_peek(team, step->peer, &board) != TUTTI_OK || board.completed < flight->work.seq) continue;
        bool again = flight->in_vain;
        flight->in_vain = true;
        flight->compare_ns = now + VAIN_AGAIN_NS;
        tutti_engine_watch_by(team->engine, flight->compare_ns);
        if (again) tutti_report_in_vain(team, slice, slice->base + k);
        return again;
    }
    flight->in_vain = false;
    return false;
}

/* A call that differs is a failure now; one that is merely missing is one at the deadline only. */
static void watch_calls(struct tutti_team *team, uint64_t now)
{
    struct tutti_flight *oldest = team->n_active > 0 ? team->order[0]->flight : NULL;
    struct tutti_board board;
    uint32_t n_missing = 0, missing = 0;

    if (!oldest) return;
    if (now < oldest->compare_ns) {
        tutti_engine_watch_by(team->engine, oldest->compare_ns);
        return;
    }
    oldest->compare_ns = now + COMPARE_AGAIN_NS;
    for (uint32_t k = 0; k <= COMPARE_BOARDS / team->size && k + 1 < team->size; k++) {
        uint32_t i = (team->slot + 1 + oldest->n_compared++ % (team->size - 1)) % team->size;
        enum tutti_status status = tutti_team_peek(team, i, &board);
        if (status == TUTTI_PENDING) oldest->compare_ns = now + PENDING_AGAIN_NS;
        if (status != TUTTI_OK) continue;
        if (board.seq < oldest->work.seq && n_missing++ == 0) missing = i;
        if (board.seq < oldest->work.seq) continue;
        const struct tutti_flight *flight = tutti_flight_find(team, board.seq);
        if (!flight || board.signature == 0 || flight->info.signature == board.signature) continue;
        tutti_report_mismatch(team, flight, i, board.count, tutti_call_pack(&board));
        return;
    }
    tutti_engine_watch_by(team->engine, oldest->compare_ns);
    if (!oldest->runner && watch_vain(team, oldest, now)) return;
    if (n_missing == 0 || oldest->reported_missing) return;
    char call[TUTTI_CALL_TEXT];
    oldest->reported_missing = true;
    tutti_say_flight(oldest, call, sizeof(call));
    tutti_log(TUTTI_LOG_INFO, "%s: rank %u and %u others have not called it yet, rank %u waits", call,
              tutti_said_rank(team, missing), n_missing - 1, tutti_said_rank(team, team->slot));
}

/* What this rank raised is not back yet. */
static void watch_verdict(struct tutti_team *team, uint64_t now)
{
    const struct tutti_error own = team->error;

    if (now >= team->verdict_ns)
        tutti_team_apply(team, &own);
    else
        tutti_engine_watch_by(team->engine, team->verdict_ns);
}

void tutti_engine_watch(struct tutti_engine *engine, uint64_t now_ns)
{
    engine->tick++;
    engine->next_watch_ns = now_ns + engine->tick_ns;
    for (struct tutti_team *team = engine->busy, *next; team; team = next) {
        next = team->next;
        if (team->halted && !team->failed) watch_verdict(team, now_ns);
        if (!team->halted) watch_board(team, now_ns);
        if (!team->halted) watch_message_board(team, now_ns);
        if (!team->halted) watch_wait_board(team, now_ns);
        for (uint32_t i = 0; i < team->n_active && !team->halted; i++) {
            const struct tutti_slice *slice = team->order[i];
            if (slice->flight->runner)
                watch_runner(team, slice->flight, now_ns);
            else
                watch_slice(team, slice, now_ns);
        }
        for (uint32_t l = 0; l < team->n_lanes && !team->halted; l++) watch_calling(team, &team->lanes[l], now_ns);
        if (!team->halted) watch_messages(team, now_ns);
        if (!team->halted && team->waits) watch_waits(team, now_ns);
        if (!team->halted && team->ones) watch_accesses(team, now_ns);
        if (!team->halted) watch_calls(team, now_ns);
        if (!team->halted) watch_deadlines(team, now_ns);
    }
}
