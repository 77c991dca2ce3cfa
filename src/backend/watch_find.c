/* SPDX-License-Identifier: BSD-3-Clause */
/* What two ranks' logs tell: which call waits for whom, who is behind, who is gone, who called what else. */
#include "backend/watch_log.h"

#define GONE_GRACE_NS (80 * TUTTI_NS_PER_MS)

void watch_log_board(const struct watch_log *log, struct tutti_board *out)
{
    if (!watch_log_last(log, out)) *out = (struct tutti_board){.peer = -1, .kind = TUTTI_N_KINDS};
    out->state = atomic_load(&log->closed) ? TUTTI_BOARD_LEFT : TUTTI_BOARD_IN_USE;
    out->completed = atomic_load(&log->over);
}

/* The call of that number, or, where it is forgotten, its number alone. */
static void call_of(const struct watch_log *log, uint64_t seq, struct tutti_board *out)
{
    if (seq > 0 && watch_log_find(log, seq, out)) return;
    *out = (struct tutti_board){.seq = seq, .kind = TUTTI_N_KINDS, .op = 255, .root = -1, .peer = -1};
}

static bool is_message(const struct watch_item *item)
{
    return WATCH_LOAD(item->launch) & WATCH_MESSAGES;
}

static void item_board(const struct watch_log *log, const struct watch_item *item, struct tutti_board *out)
{
    const uint64_t with = WATCH_LOAD(item->with);
    call_of(log, watch_launch_seq(WATCH_LOAD(item->launch)), out);
    if (!is_message(item)) return;
    out->kind = with & 1 ? TUTTI_TOLD_SEND : TUTTI_TOLD_RECV;
    out->peer = (int32_t)(with / 2);
    out->count = WATCH_LOAD(item->bytes);
}

/* Whether the peer has made its part of what this rank did, a message between the two or a collective. */
static bool has_made(const struct watch_pair *pair, const struct watch_item *item)
{
    const struct watch_log *theirs = pair->theirs;
    struct tutti_board last;
    if (!is_message(item)) return watch_log_last(theirs, &last) && last.seq >= WATCH_LOAD(item->launch);
    const struct watch_letters *letters =
        WATCH_LOAD(item->with) & 1 ? &theirs->received[pair->me] : &theirs->sent[pair->me];
    return atomic_load(&letters->n) >= WATCH_LOAD(item->nth);
}

/* Whether the peer knows that part to be over; what it has forgotten, it has done long ago. */
static bool has_done(const struct watch_pair *pair, const struct watch_item *item)
{
    const struct watch_log *theirs = pair->theirs;
    const uint64_t n = atomic_load(&theirs->n_items), with = 2 * pair->me + !(WATCH_LOAD(item->with) & 1);
    for (uint64_t i = n; i > 0 && watch_log_keeps_item(theirs, i - 1); i--) {
        const struct watch_item *part = watch_log_item(theirs, i - 1);
        const bool same = is_message(item) ? is_message(part) && WATCH_LOAD(part->with) == with &&
                                                 WATCH_LOAD(part->nth) == WATCH_LOAD(item->nth)
                                           : WATCH_LOAD(part->launch) == WATCH_LOAD(item->launch);
        if (same) return i <= atomic_load(&theirs->items_over);
    }
    return true;
}

void watch_log_launched(const struct watch_pair *pair, uint64_t launch, struct tutti_board *out)
{
    const struct watch_log *mine = pair->mine;
    const struct watch_item *found = NULL;
    const uint64_t n = atomic_load(&mine->n_items);
    call_of(mine, watch_launch_seq(launch), out);
    for (uint64_t i = n; (launch & WATCH_MESSAGES) && i > 0 && watch_log_keeps_item(mine, i - 1); i--) {
        const struct watch_item *item = watch_log_item(mine, i - 1);
        if (WATCH_LOAD(item->launch) != launch || WATCH_LOAD(item->with) / 2 != pair->peer) continue;
        if (!found || has_made(pair, found) || !has_made(pair, item)) found = item;
        item_board(mine, found, out);
    }
}

bool watch_log_behind(const struct watch_pair *pair)
{
    const struct watch_log *mine = pair->mine, *theirs = pair->theirs;
    return atomic_load(&theirs->n) < atomic_load(&mine->n) ||
           atomic_load(&theirs->received[pair->me].n) < atomic_load(&mine->sent[pair->peer].n) ||
           atomic_load(&theirs->sent[pair->me].n) < atomic_load(&mine->received[pair->peer].n);
}

static bool is_with(const struct watch_pair *pair, const struct watch_item *item)
{
    return !is_message(item) || WATCH_LOAD(item->with) / 2 == pair->peer;
}

bool watch_log_made(const struct watch_pair *pair, uint64_t launch)
{
    const struct watch_log *mine = pair->mine;
    for (uint64_t i = atomic_load(&mine->n_items); i > 0 && watch_log_keeps_item(mine, i - 1); i--) {
        const struct watch_item *item = watch_log_item(mine, i - 1);
        if (WATCH_LOAD(item->launch) == launch && is_with(pair, item) && !has_made(pair, item)) return false;
    }
    return true;
}

bool watch_log_done(const struct watch_pair *pair)
{
    const struct watch_log *mine = pair->mine;
    for (uint64_t i = atomic_load(&mine->n_items); i > 0 && watch_log_keeps_item(mine, i - 1); i--) {
        const struct watch_item *item = watch_log_item(mine, i - 1);
        if (!is_with(pair, item)) continue;
        if (is_message(item) ? !has_made(pair, item) || !has_done(pair, item)
                             : atomic_load(&pair->theirs->over) < WATCH_LOAD(item->launch))
            return false;
    }
    return true;
}

/* The first collective, of those not known to be over, that the peer has not made; where it is forgotten, its number
 * alone, counted back from the oldest that is kept. */
static bool lacks(const struct watch_pair *pair, struct tutti_board *out)
{
    const struct watch_log *mine = pair->mine;
    const uint64_t first = atomic_load(&pair->theirs->n), over = atomic_load(&mine->over);
    uint64_t seq = 0;
    for (uint64_t i = atomic_load(&mine->n); i > first; i--) {
        const uint64_t at = WATCH_LOAD(watch_log_entry(mine, i - 1)->seq);
        const bool kept = watch_log_keeps(mine, i - 1);
        if (!kept) seq = seq > over + (i - first) ? seq - (i - first) : over + 1;
        if (!kept || at <= over) break;
        seq = at;
    }
    call_of(mine, seq, out);
    return seq > 0;
}

bool watch_log_awaits(const struct watch_pair *pair, bool died, struct tutti_board *out)
{
    const struct watch_log *mine = pair->mine;
    const uint64_t n = atomic_load(&mine->n_items), over = atomic_load(&mine->items_over);
    struct tutti_board first;
    uint64_t oldest = UINT64_MAX; /* collective that is kept here and not made there */
    bool found = false;
    call_of(mine, 0, out);
    for (uint64_t i = n; i > over; i--) {
        const struct watch_item *item = watch_log_item(mine, i - 1);
        const bool made = has_made(pair, item), within = made && died && !has_done(pair, item);
        if (!watch_log_keeps_item(mine, i - 1)) {
            if (lacks(pair, &first) && first.seq < oldest) *out = first;
            return found || watch_log_behind(pair);
        }
        if (!is_with(pair, item) || (made && !died)) continue;
        if (!made || within) item_board(mine, item, out), found = true;
        if (made) break; /* what is before it may be over */
        if (!is_message(item)) oldest = WATCH_LOAD(item->launch);
    }
    return found;
}

enum tutti_life watch_log_life(const struct watch_pair *pair, enum tutti_life life, struct tutti_board *out)
{
    const bool died = life == TUTTI_LIFE_DEAD;
    if (!tutti_life_gone(life) && !atomic_load(&pair->theirs->closed)) return TUTTI_LIFE_ALIVE;
    const bool awaits = watch_log_awaits(pair, died, out);
    if (!awaits && died) (void)watch_log_last(pair->mine, out);
    if (died) return life;
    return awaits ? TUTTI_LIFE_LEFT : TUTTI_LIFE_ALIVE;
}

/* A peer that has numbered a call of mine and not made it here made it on the host. Its number is read first: who makes
 * a call here writes that down before it counts. */
static bool is_elsewhere(struct tutti_team *team, const struct watch_pair *pair, struct tutti_board *call)
{
    const uint64_t reached = tutti_team_reached(team, pair->peer);
    return reached > 0 && watch_log_ahead(pair->mine, pair->theirs, call) && call->seq <= reached;
}

bool watch_log_mismatch(struct tutti_team *team, const struct watch_pair *pair, struct watch_mismatch *out)
{
    if (watch_log_differ(pair->mine, pair->theirs, &out->mine, &out->theirs))
        out->what = WATCH_CALLS_DIFFER;
    else if (is_elsewhere(team, pair, &out->mine))
        out->what = WATCH_CALLED_ELSEWHERE;
    else if (watch_log_letters(pair, &out->n))
        out->what = WATCH_SIZES_DIFFER;
    else
        return false;
    return true;
}

void watch_log_tell(struct tutti_team *team, const struct watch_pair *pair, const struct watch_mismatch *found)
{
    if (found->what == WATCH_CALLS_DIFFER)
        tutti_team_tell_mismatch(team, &found->mine, pair->peer, &found->theirs);
    else if (found->what == WATCH_CALLED_ELSEWHERE)
        tutti_team_tell_elsewhere(team, &found->mine, pair->peer);
    else
        tutti_team_tell_messages(team, pair->peer, found->n);
}

bool watch_log_gone(uint64_t *since_ns, enum tutti_life life, uint64_t now)
{
    if (life == TUTTI_LIFE_ALIVE)
        *since_ns = 0;
    else if (*since_ns == 0)
        *since_ns = now;
    return *since_ns != 0 && now - *since_ns >= GONE_GRACE_NS;
}
