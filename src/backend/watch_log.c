/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks called on the device, in memory that their peers map: kernels carry no signatures, so that ranks differ is
 * found by comparing what they enqueued, and told with both calls. A rank may be far ahead of another: entries are kept
 * for a while, and a hash of all that came before tells whether two ranks have agreed up to there. */

#include "backend/watch_log.h"

static void post_item(struct watch_log *log, uint64_t launch, uint64_t with, uint64_t nth, size_t bytes,
                      uint64_t timeout_ns)
{
    uint64_t n = WATCH_LOAD(log->n_items);
    struct watch_item *item = &log->items[n % WATCH_LOG_ITEMS];
    atomic_thread_fence(memory_order_release);
    WATCH_STORE(item->launch, launch);
    WATCH_STORE(item->with, with);
    WATCH_STORE(item->nth, nth);
    WATCH_STORE(item->bytes, bytes);
    WATCH_STORE(item->timeout_ns, timeout_ns);
    atomic_store_explicit(&log->n_items, n + 1, memory_order_release);
}

void watch_log_post(struct watch_log *log, const struct tutti_backend_call *call, uint64_t where, uint64_t timeout_ns)
{
    const struct tutti_call_info *info = &call->info;
    uint64_t signature = info->signature ^ where;
    uint64_t n = WATCH_LOAD(log->n), before = n > 0 ? WATCH_LOAD(watch_log_entry(log, n - 1)->hash) : 0;
    struct watch_entry *entry = &log->entries[n % WATCH_LOG_ENTRIES];
    atomic_thread_fence(memory_order_release); /* a reader of what is written now sees this n, too: watch_log_keeps */
    WATCH_STORE(entry->seq, call->seq);
    WATCH_STORE(entry->signature, signature);
    WATCH_STORE(entry->call, call->within ? call->outer_call
                                          : tutti_call_word((uint32_t)info->kind, (uint32_t)info->dtype,
                                                            (uint32_t)info->op, info->root));
    WATCH_STORE(entry->count, call->within ? call->outer_count : info->count);
    WATCH_STORE(entry->hash, tutti_mix64(before ^ tutti_mix64(signature ^ tutti_mix64(call->seq))));
    atomic_store_explicit(&log->n, n + 1, memory_order_release);
    post_item(log, call->seq, 0, 0, 0, timeout_ns);
}

uint64_t watch_log_round(const struct watch_log *log)
{
    return WATCH_MESSAGES | WATCH_LOAD(log->n_items);
}

void watch_log_message(struct watch_log *log, uint64_t launch, uint32_t peer, bool sends, size_t bytes,
                       uint64_t timeout_ns)
{
    struct watch_messages *letters = sends ? &log->sent[peer] : &log->received[peer];
    const uint64_t n = WATCH_LOAD(letters->n);
    post_item(log, launch, 2 * peer + sends, n + 1, bytes, timeout_ns);
    atomic_thread_fence(memory_order_release); /* a reader of what is written now sees this n, too: read_letters */
    WATCH_STORE(letters->hash[(n + 1) % 2], tutti_mix64(WATCH_LOAD(letters->hash[n % 2]) ^ tutti_mix64(bytes + 1)));
    atomic_store_explicit(&letters->n, n + 1, memory_order_release);
}

static void read_entry(const struct watch_log *log, uint64_t i, struct tutti_board *out)
{
    const struct watch_entry *entry = watch_log_entry(log, i);
    *out = (struct tutti_board){.seq = WATCH_LOAD(entry->seq), .signature = WATCH_LOAD(entry->signature), .peer = -1};
    tutti_call_unpack(WATCH_LOAD(entry->call), WATCH_LOAD(entry->count), out);
}

bool watch_log_last(const struct watch_log *log, struct tutti_board *out)
{
    for (;;) {
        uint64_t n = atomic_load_explicit(&log->n, memory_order_acquire);
        if (n == 0) return false;
        read_entry(log, n - 1, out);
        if (watch_log_keeps(log, n - 1)) return true;
    }
}

bool watch_log_find(const struct watch_log *log, uint64_t seq, struct tutti_board *out)
{
    uint64_t n = atomic_load_explicit(&log->n, memory_order_acquire);
    for (uint64_t i = n; i > 0 && watch_log_keeps(log, i - 1); i--) {
        read_entry(log, i - 1, out);
        if (out->seq == seq) return watch_log_keeps(log, i - 1);
    }
    return false;
}

uint64_t watch_log_timeout(const struct watch_log *log, uint64_t launch, uint64_t otherwise)
{
    uint64_t n = atomic_load_explicit(&log->n_items, memory_order_acquire);
    for (uint64_t i = n; i > 0 && watch_log_keeps_item(log, i - 1); i--) {
        uint64_t timeout_ns = WATCH_LOAD(watch_log_item(log, i - 1)->timeout_ns);
        if (WATCH_LOAD(watch_log_item(log, i - 1)->launch) == launch && watch_log_keeps_item(log, i - 1))
            return timeout_ns;
    }
    return otherwise;
}

bool watch_log_differ(const struct watch_log *mine, const struct watch_log *theirs, struct tutti_board *my_call,
                      struct tutti_board *their_call)
{
    uint64_t my_n = atomic_load_explicit(&mine->n, memory_order_acquire);
    uint64_t their_n = atomic_load_explicit(&theirs->n, memory_order_acquire), both = my_n < their_n ? my_n : their_n;
    bool differ = false;
    if (both == 0 ||
        WATCH_LOAD(watch_log_entry(mine, both - 1)->hash) == WATCH_LOAD(watch_log_entry(theirs, both - 1)->hash))
        return false;
    /* The oldest that differs is what went wrong; those before it agree. */
    for (uint64_t i = both; i > 0; i--) {
        struct tutti_board my_board, their_board;
        read_entry(mine, i - 1, &my_board);
        read_entry(theirs, i - 1, &their_board);
        bool same = WATCH_LOAD(watch_log_entry(mine, i - 1)->hash) == WATCH_LOAD(watch_log_entry(theirs, i - 1)->hash);
        if (!watch_log_keeps(mine, i - 1) || !watch_log_keeps(theirs, i - 1)) break;
        if (same) break;
        *my_call = my_board, *their_call = their_board;
        differ = true;
    }
    return differ;
}

bool watch_log_ahead(const struct watch_log *mine, const struct watch_log *theirs, struct tutti_board *out)
{
    uint64_t their_n = atomic_load_explicit(&theirs->n, memory_order_acquire);
    if (their_n >= atomic_load_explicit(&mine->n, memory_order_acquire)) return false;
    read_entry(mine, their_n, out);
    return watch_log_keeps(mine, their_n);
}

/* False: more came meanwhile. While message n + 1 is written down, the hash of the first n stays. */
static bool read_letters(const struct watch_messages *letters, uint64_t *n, uint64_t *hash)
{
    *n = atomic_load_explicit(&letters->n, memory_order_acquire);
    *hash = WATCH_LOAD(letters->hash[*n % 2]);
    atomic_thread_fence(memory_order_acquire);
    return WATCH_LOAD(letters->n) == *n;
}

/* Sizes of messages are compared where both sides have come equally far. */
static bool letters_differ(const struct watch_messages *sent, const struct watch_messages *received, uint64_t *n)
{
    uint64_t received_n, sent_hash, received_hash;
    return read_letters(sent, n, &sent_hash) && read_letters(received, &received_n, &received_hash) &&
           *n == received_n && sent_hash != received_hash;
}

bool watch_log_letters(const struct watch_pair *pair, uint64_t *n)
{
    return letters_differ(&pair->mine->sent[pair->peer], &pair->theirs->received[pair->me], n) ||
           letters_differ(&pair->theirs->sent[pair->me], &pair->mine->received[pair->peer], n);
}

/* What two ranks' logs tell: which call waits for whom, who is behind, who is gone, who called what else. */

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
    out->kind = with & 1 ? TUTTI_REPORT_SEND : TUTTI_REPORT_RECV;
    out->peer = (int32_t)(with / 2);
    out->count = WATCH_LOAD(item->bytes);
}

/* Whether the peer has made its part of what this rank did, a message between the two or a collective. */
static bool has_made(const struct watch_pair *pair, const struct watch_item *item)
{
    const struct watch_log *theirs = pair->theirs;
    struct tutti_board last;
    if (!is_message(item)) return watch_log_last(theirs, &last) && last.seq >= WATCH_LOAD(item->launch);
    const struct watch_messages *letters =
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
        tutti_team_report_mismatch(team, &found->mine, pair->peer, &found->theirs);
    else if (found->what == WATCH_CALLED_ELSEWHERE)
        tutti_team_report_elsewhere(team, &found->mine, pair->peer);
    else
        tutti_team_report_messages(team, pair->peer, found->n);
}

bool watch_log_gone(uint64_t *since_ns, enum tutti_life life, uint64_t now)
{
    if (life == TUTTI_LIFE_ALIVE)
        *since_ns = 0;
    else if (*since_ns == 0)
        *since_ns = now;
    return *since_ns != 0 && now - *since_ns >= GONE_GRACE_NS;
}
