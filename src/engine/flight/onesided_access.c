/* SPDX-License-Identifier: BSD-3-Clause */
/* Accesses to parts of peers: how they start, and what a pass does with all pairs. */
#include "engine/flight/onesided_access.h"
#include "engine/team/report.h"

#include <string.h>

/* ---- any thread ---- */

enum tutti_status tutti_engine_one(struct tutti_team *team, const struct tutti_one_info *info, bool helper,
                                   struct tutti_work **work)
{
    const bool all = info->kind == TUTTI_ONE_FLUSH && info->peer == TUTTI_NO_SLOT;

    if (info->kind > TUTTI_ONE_FLUSH || (info->peer >= team->size && !all))
        return tutti_fail(TUTTI_ERR_INTERNAL, "%s: an access of kind %d to rank %u of %u", info->name, (int)info->kind,
                          info->peer, team->size);
    TUTTI_TRY(tutti_ones_need(team));
    struct tutti_one_access *access = tutti_work_new(team->engine->works, TUTTI_WORK_ACCESS);
    if (!access) return tutti_fail(TUTTI_ERR_MEMORY, "%s: out of memory", info->name);
    access->next = access->previous = access->queued = NULL;
    access->info = *info;
    access->fence = atomic_load(&team->ones->fence);
    access->sent = 0;
    access->n_open = access->n_lent = 0;
    access->left = false;
    access->why = TUTTI_ONE_FINE;
    access->work.team = team;
    access->work.label = info->label;
    access->work.timeout_ns = info->timeout_ns ? info->timeout_ns : team->timeout_ns;
    enum tutti_status status = tutti_team_submit(&access->work, helper);
    if (status < 0) {
        tutti_work_drop(&access->work);
        return status;
    }
    *work = &access->work;
    return TUTTI_OK;
}

void tutti_engine_one_fence(struct tutti_team *team)
{
    if (team->ones) atomic_fetch_add(&team->ones->fence, 1);
}

/* ---- begin, and end with a failure ---- */

void tutti_access_begin(struct tutti_team *team, struct tutti_one_access *access)
{
    struct tutti_ones *ones = team->ones;
    const struct tutti_one_info *info = &access->info;

    if (team->failed) { /* its queues end in accesses that have ended */
        if (info->end) info->end(info->arg, &team->error);
        tutti_team_complete(&access->work, &team->error);
        return;
    }
    access->previous = ones->last;
    *(ones->last ? &ones->last->next : &ones->first) = access;
    ones->last = access;
    access->order = ++ones->order;
    tutti_engine_watch_by(team->engine, access->work.deadline_ns);
    if (info->kind == TUTTI_ONE_FLUSH) {
        tutti_flush_begin(team, access);
        return;
    }
    struct tutti_one_pair *pair = tutti_one_pair(team, info->peer);
    if (tutti_one_lost(ones, info->peer, info->window)) access->why = TUTTI_ONE_GONE;
    access->left =
        access->why != TUTTI_ONE_FINE || (info->kind <= TUTTI_ONE_GET && info->bytes == 0 && !info->has_signal);
    if (access->left) {
        tutti_access_finish(team, access);
        return;
    }
    *pair->end = access;
    pair->end = &access->queued;
    tutti_pair_ready(ones, pair);
}

void tutti_one_leave(struct tutti_port *port, const struct tutti_packet *packet)
{
    const struct tutti_packet answer = {.version = TUTTI_WIRE_VERSION,
                                        .type = TUTTI_PACKET_ONE_ANSWER,
                                        .flags = TUTTI_ONE_REFUSED,
                                        .comm = packet->comm,
                                        .epoch = packet->epoch,
                                        .seq = packet->seq,
                                        .call = TUTTI_ONE_LEFT};

    /* Where there is no room, its board tells. */
    if (packet->source < port->transport->n)
        (void)port->transport->ops->send(port->transport, packet->source, &answer, NULL, 0, 0);
}

void tutti_ones_fail(struct tutti_team *team, const struct tutti_error *error)
{
    struct tutti_ones *ones = team->ones;

    if (!ones) return;
    while (ones->first) tutti_access_end(team, ones->first, error);
}

/* ---- a pass ---- */

bool tutti_ones_run(struct tutti_team *team, bool retry)
{
    struct tutti_ones *ones = team->ones;
    struct tutti_one_pair *stalled = NULL, *pair;

    if (!ones) return false;
    const uint64_t before = ones->n_moves;
    if (tutti_moves_any(ones)) tutti_moves_take(team);
    for (int list = 0; list < 2; list++) {
        struct tutti_one_pair **from = list == 0 ? &ones->ready : &ones->stalled;
        if (list == 1 && !retry) break;
        while ((pair = *from) != NULL && !team->halted) {
            *from = pair->next_ready;
            pair->ready = false;
            if (tutti_pair_serve(team, pair) && tutti_pair_ask(team, pair)) continue;
            pair->ready = true;
            pair->next_ready = stalled;
            stalled = pair;
        }
    }
    while ((pair = stalled) != NULL) {
        stalled = pair->next_ready;
        pair->next_ready = ones->stalled;
        ones->stalled = pair;
    }
    if (ones->flushed && !team->halted) tutti_flushes_check(team);
    return ones->n_moves != before;
}

/* ---- events of the wire ---- */

void tutti_ones_deliver(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                        const void *payload)
{
    struct tutti_one_pair *pair = tutti_one_source(team, source, packet);

    if (!pair) return;
    if (packet->type == TUTTI_PACKET_ONE && packet->flags == TUTTI_ONE_KEY)
        tutti_key_take(team, pair, packet);
    else if (packet->type == TUTTI_PACKET_ONE)
        tutti_admit_take(team, pair, packet, payload);
    else if (packet->flags == TUTTI_ONE_KEY)
        tutti_key_answer_take(team, pair, packet, payload);
    else
        tutti_answer_take(team, pair, packet, payload);
}

bool tutti_ones_place(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                      struct tutti_target *target, struct tutti_loan *what)
{
    struct tutti_one_pair *pair = tutti_one_source(team, source, packet);

    if (!pair) return false;
    *what = (struct tutti_loan){.team = team, .peer = source};
    if (packet->type == TUTTI_PACKET_ONE) return tutti_admit_place(team, pair, packet, target, what);
    return tutti_answer_place(team, pair, packet, target, what);
}

void tutti_ones_back(struct tutti_team *team, const struct tutti_loan *loan, enum tutti_status status)
{
    struct tutti_one_access *access = loan->of;

    if (loan->step == TUTTI_LOAN_PART) {
        tutti_part_back(team, loan, status);
        return;
    }
    if (loan->step == TUTTI_LOAN_DIRECT) tutti_direct_back(team, loan, status);
    access->n_lent--;
    if (status < 0)
        tutti_access_unsent(team, access, loan->peer, status);
    else
        tutti_access_finish(team, access);
}

/* ---- What asking and serving share: pairs, their packets, and how an access ends. ---- */

struct tutti_one_pair *tutti_one_pair(struct tutti_team *team, uint32_t slot)
{
    struct tutti_ones *ones = team->ones;
    struct tutti_one_pair *pair = &ones->pairs[slot];

    if (pair->known) return pair;
    pair->known = true;
    pair->slot = slot;
    pair->end = &pair->first;
    *ones->known_end = pair;
    ones->known_end = &pair->next;
    return pair;
}

void tutti_pair_ready(struct tutti_ones *ones, struct tutti_one_pair *pair)
{
    if (pair->ready) return;
    pair->ready = true;
    pair->next_ready = ones->ready;
    ones->ready = pair;
}

enum tutti_status tutti_one_send(struct tutti_team *team, struct tutti_one_pair *pair, struct tutti_packet *packet,
                                 const struct tutti_span *span, const struct tutti_loan *what)
{
    packet->count = pair->applied;
    enum tutti_status status = tutti_team_lend(team, pair->slot, packet, span, span != NULL, what);
    if (status != TUTTI_OK && status != TUTTI_PENDING) return status;
    pair->acknowledged = pair->applied;
    pair->owes = false;
    team->ones->n_moves++;
    return status;
}

bool tutti_one_lost(const struct tutti_ones *ones, uint32_t slot, uint32_t window)
{
    for (uint32_t i = 0; i < ones->n_lost && i < TUTTI_ONE_GONE_KEPT; i++)
        if (ones->lost[i].slot == slot && ones->lost[i].window == window) return true;
    return false;
}

void tutti_one_lose(struct tutti_ones *ones, uint32_t slot, uint32_t window)
{
    if (tutti_one_lost(ones, slot, window)) return;
    uint32_t i = ones->n_lost++ % TUTTI_ONE_GONE_KEPT;
    ones->lost[i].slot = slot, ones->lost[i].window = window;
}

/* ---- ends ---- */

void tutti_access_end(struct tutti_team *team, struct tutti_one_access *access, const struct tutti_error *error)
{
    struct tutti_ones *ones = team->ones;

    *(access->previous ? &access->previous->next : &ones->first) = access->next;
    *(access->next ? &access->next->previous : &ones->last) = access->previous;
    if (access->info.end) access->info.end(access->info.arg, error);
    tutti_team_complete(&access->work, error);
}

static void end_refused(struct tutti_team *team, struct tutti_one_access *access)
{
    const struct tutti_one_info *info = &access->info;
    const struct tutti_one_refusal refusal = {info->name, info->offset, info->bytes, info->window, access->why};
    struct tutti_error error;

    tutti_refusal_error(team, info->peer, &refusal, &error);
    tutti_access_end(team, access, &error);
}

void tutti_access_finish(struct tutti_team *team, struct tutti_one_access *access)
{
    if (!access->left || access->n_open > 0 || access->n_lent > 0) return;
    if (access->why == TUTTI_ONE_FINE)
        tutti_access_end(team, access, NULL);
    else
        end_refused(team, access);
}

/* ---- What leaves for a peer: the packets of accesses, one after another, while it has fewer than TUTTI_ONE_OPEN that
 * may not have taken effect. Where a fence was called, data waits until all before has taken effect; where that matters
 * to somebody (a fence, a flush), a packet of its own asks for it. ---- */

/* Whether there is a number for one more packet. If not, an answer is on its way. */
static bool has_number(struct tutti_one_pair *pair)
{
    uint64_t number = pair->sent + 1;
    return number - pair->answered <= TUTTI_ONE_OPEN && !tutti_one_open(pair, number)->access;
}

/* Whether a fence holds it back. */
static bool is_held(struct tutti_one_pair *pair, const struct tutti_one_access *access)
{
    if (access->fence > pair->fence) {
        pair->fence = access->fence;
        pair->hold = pair->sent;
        pair->direct_holds = pair->n_direct > 0;
    }
    return access->info.kind <= TUTTI_ONE_GET && access->info.bytes > 0 &&
           (pair->answered < pair->hold || pair->direct_holds);
}

/* Whether its next packet takes effect after all before it: then what goes without packets has to be there. */
static bool has_order(const struct tutti_team *team, const struct tutti_one_access *access)
{
    const struct tutti_one_info *info = &access->info;
    return info->kind > TUTTI_ONE_GET ||
           (info->has_signal && info->bytes - access->sent <= team->port->transport->max_payload);
}

/* Its next packet, with `bytes` of its data. */
static struct tutti_packet packet_of(const struct tutti_one_access *access, uint64_t number, size_t bytes)
{
    const struct tutti_one_info *info = &access->info;
    const bool put = info->kind == TUTTI_ONE_PUT, signals = info->has_signal && access->sent + bytes == info->bytes;
    struct tutti_packet packet = {.type = TUTTI_PACKET_ONE,
                                  .flags = (uint8_t)info->kind,
                                  .slice = info->window,
                                  .seq = number,
                                  .bytes = put ? (uint32_t)bytes : 0,
                                  .total = bytes,
                                  .offset = info->offset + access->sent};
    if (signals) packet.flags |= TUTTI_ONE_HAS_SIGNAL | (info->signal_add ? TUTTI_ONE_SIGNAL_ADD : 0);
    if (signals) packet.fifo = info->signal;
    if (!put || signals) packet.call = info->value;
    if (info->kind == TUTTI_ONE_SWAP) packet.signature = info->expected;
    return packet;
}

static enum tutti_status send_next(struct tutti_team *team, struct tutti_one_pair *pair,
                                   struct tutti_one_access *access)
{
    const struct tutti_one_info *info = &access->info;
    const struct tutti_loan what = {.team = team, .of = access, .step = TUTTI_LOAN_ACCESS, .peer = pair->slot};
    size_t bytes = info->kind <= TUTTI_ONE_GET ? info->bytes - access->sent : 0;
    if (bytes > team->port->transport->max_payload) bytes = team->port->transport->max_payload;
    struct tutti_packet packet = packet_of(access, pair->sent + 1, bytes);
    const struct tutti_span span = {(const unsigned char *)info->source + access->sent, bytes};
    enum tutti_status status = tutti_one_send(team, pair, &packet, packet.bytes > 0 ? &span : NULL, &what);

    if (status != TUTTI_OK && status != TUTTI_PENDING) return status;
    pair->sent++;
    *tutti_one_open(pair, pair->sent) = (struct tutti_one_open){.access = info->kind != TUTTI_ONE_PUT ? access : NULL,
                                                                .number = pair->sent,
                                                                .order = access->order,
                                                                .at = access->sent,
                                                                .bytes = bytes,
                                                                .offset = packet.offset,
                                                                .name = info->name,
                                                                .window = info->window};
    if (info->kind != TUTTI_ONE_PUT) access->n_open++;
    if (status == TUTTI_PENDING) access->n_lent++;
    access->sent += bytes;
    access->left = info->kind > TUTTI_ONE_GET || access->sent == info->bytes;
    return TUTTI_OK;
}

/* The lowest order of an access that has not left, or whose packets may not have taken effect. */
static uint64_t unanswered(const struct tutti_one_pair *pair)
{
    if (pair->answered < pair->sent) return pair->open[(pair->answered + 1) % TUTTI_ONE_OPEN].order;
    return pair->first ? pair->first->order : UINT64_MAX;
}

/* The place in the order up to which somebody waits that accesses take effect, once all these have left; 0: not now. */
static uint64_t awaited(struct tutti_one_pair *pair)
{
    if (pair->first && is_held(pair, pair->first)) return pair->first->order - 1;
    return pair->first && pair->first->order <= pair->ask ? 0 : pair->ask;
}

/* Asks for an answer to all that has left, if somebody waits for it. */
static enum tutti_status ask(struct tutti_team *team, struct tutti_one_pair *pair)
{
    struct tutti_packet packet = {.type = TUTTI_PACKET_ONE, .flags = TUTTI_ONE_FLUSH, .seq = pair->sent + 1};
    const uint64_t order = awaited(pair);

    if (order <= pair->asked || unanswered(pair) > order || !has_number(pair)) return TUTTI_OK;
    enum tutti_status status = tutti_one_send(team, pair, &packet, NULL, NULL);
    if (status != TUTTI_OK) return status;
    pair->asked = order;
    pair->sent++;
    *tutti_one_open(pair, pair->sent) = (struct tutti_one_open){.number = pair->sent, .order = order, .name = "flush"};
    return TUTTI_OK;
}

bool tutti_pair_ask(struct tutti_team *team, struct tutti_one_pair *pair)
{
    enum tutti_status status = TUTTI_OK;
    struct tutti_one_access *access;

    while ((access = pair->first) != NULL && !is_held(pair, access)) {
        struct tutti_one_key *key = tutti_direct_takes(team, pair, access);
        if (key ? pair->n_direct == TUTTI_ONE_DIRECT
                : !has_number(pair) || (pair->n_direct > 0 && has_order(team, access)))
            break;
        if (!key && tutti_direct_refused(access))
            status = TUTTI_OK;
        else
            status = key ? tutti_direct_send(team, pair, access, key) : send_next(team, pair, access);
        if (status != TUTTI_OK) break;
        if (!access->left) continue;
        pair->first = access->queued;
        if (!pair->first) pair->end = &pair->first;
        tutti_access_finish(team, access);
    }
    if (status == TUTTI_OK) status = ask(team, pair);
    if (status < 0) tutti_access_unsent(team, pair->first, pair->slot, status);
    return status != TUTTI_AGAIN;
}

/* ---- Flushes: when all that was called before has taken effect. Accesses of a team are numbered in the order of their
 * calls, so a flush knows by one number for each peer what it waits for. ---- */

uint64_t tutti_pair_pending(const struct tutti_one_pair *pair)
{
    uint64_t lowest = unanswered(pair);

    for (uint32_t i = 0; pair->n_direct > 0 && i < TUTTI_ONE_DIRECT; i++)
        if (pair->direct[i].key && pair->direct[i].order < lowest) lowest = pair->direct[i].order;
    return lowest;
}

static void want(struct tutti_ones *ones, struct tutti_one_pair *pair, uint64_t order)
{
    if (tutti_pair_pending(pair) > order) return;
    pair->ask = order;
    tutti_pair_ready(ones, pair);
}

void tutti_flush_begin(struct tutti_team *team, struct tutti_one_access *access)
{
    struct tutti_ones *ones = team->ones;

    access->at = NULL;
    if (access->info.peer != TUTTI_NO_SLOT) {
        want(ones, tutti_one_pair(team, access->info.peer), access->order);
    } else {
        access->at = ones->known;
        for (struct tutti_one_pair *pair = ones->known; pair; pair = pair->next) want(ones, pair, access->order);
    }
    *ones->flushes_end = access;
    ones->flushes_end = &access->queued;
    ones->flushed = true;
}

static bool is_flushed(struct tutti_ones *ones, struct tutti_one_access *access)
{
    if (access->info.peer != TUTTI_NO_SLOT) return tutti_pair_pending(&ones->pairs[access->info.peer]) > access->order;
    while (access->at && tutti_pair_pending(access->at) > access->order) access->at = access->at->next;
    return access->at == NULL;
}

/* A refusal that came after its access was complete; NULL: there is none. */
static struct tutti_one_pair *refused(struct tutti_ones *ones, const struct tutti_one_access *access)
{
    const uint32_t peer = access->info.peer;

    if (peer != TUTTI_NO_SLOT) return ones->pairs[peer].refusal.name ? &ones->pairs[peer] : NULL;
    struct tutti_one_pair *pair = ones->known;
    while (pair && !pair->refusal.name) pair = pair->next;
    return pair;
}

static void flush_end(struct tutti_team *team, struct tutti_one_access *access)
{
    struct tutti_one_pair *pair = refused(team->ones, access);
    struct tutti_error error;

    if (pair) {
        tutti_refusal_error(team, pair->slot, &pair->refusal, &error);
        pair->refusal.name = NULL;
    }
    tutti_access_end(team, access, pair ? &error : NULL);
}

void tutti_flushes_check(struct tutti_team *team)
{
    struct tutti_ones *ones = team->ones;

    ones->flushed = false;
    for (struct tutti_one_access **at = &ones->flushes; *at;) {
        struct tutti_one_access *access = *at;
        if (!is_flushed(ones, access)) {
            at = &access->queued;
            continue;
        }
        *at = access->queued;
        if (!*at) ones->flushes_end = at;
        flush_end(team, access);
    }
}

/* ---- What peers answer to the accesses of this rank. Nothing is believed that does not fit what was asked. ---- */

/* All accesses of this rank up to this number have taken effect, says the peer. */
static bool count_take(struct tutti_team *team, struct tutti_one_pair *pair, uint64_t count)
{
    if (count > pair->sent) {
        tutti_report_protocol(team, pair->slot, NULL, "an answer to more accesses than it has made");
        return false;
    }
    if (count <= pair->answered) return true;
    pair->answered = count;
    team->ones->flushed = true;
    tutti_pair_ready(team->ones, pair);
    return true;
}

struct tutti_one_pair *tutti_one_source(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet)
{
    if (!team->ones) {
        tutti_report_protocol(team, source, NULL, "an access before there was a window");
        return NULL;
    }
    struct tutti_one_pair *pair = tutti_one_pair(team, source);
    return count_take(team, pair, packet->count) ? pair : NULL;
}

/* The packet of this rank that an answer is for. *wrong: there can be no such answer. NULL otherwise: it came before.
 */
static struct tutti_one_open *open_find(struct tutti_one_pair *pair, const struct tutti_packet *packet, bool *wrong)
{
    const uint8_t kind = packet->flags & TUTTI_ONE_KIND;
    struct tutti_one_open *open = tutti_one_open(pair, packet->seq);

    *wrong = packet->seq > pair->sent || packet->flags != kind || (packet->bytes > 0 && kind != TUTTI_ONE_GET) ||
             (kind == TUTTI_ONE_REFUSED && (packet->call == TUTTI_ONE_FINE || packet->call >= TUTTI_N_ONE_REASONS));
    if (*wrong || open->number != packet->seq || open->answered) return NULL;
    const struct tutti_one_access *access = open->access;
    *wrong = kind != TUTTI_ONE_REFUSED && (!access || access->info.kind != (enum tutti_one_kind)kind ||
                                           (kind == TUTTI_ONE_GET && packet->bytes != open->bytes));
    return *wrong ? NULL : open;
}

/* The answer is here, or on the way into its place. */
static struct tutti_one_access *open_end(struct tutti_ones *ones, struct tutti_one_pair *pair,
                                         struct tutti_one_open *open)
{
    struct tutti_one_access *access = open->access;

    open->answered = true;
    open->access = NULL;
    if (access) access->n_open--;
    tutti_pair_ready(ones, pair); /* its number may be used again */
    return access;
}

/* The peer has ended the communicator: who waits for it waits in vain. */
static void leave_take(struct tutti_team *team, const struct tutti_one_pair *pair)
{
    for (const struct tutti_one_access *access = team->ones->first; access; access = access->next) {
        if (tutti_access_awaits(access) != (int32_t)pair->slot) continue;
        tutti_access_lost(team, access, pair->slot, TUTTI_LIFE_LEFT);
        return;
    }
}

static void refusal_take(struct tutti_team *team, struct tutti_one_pair *pair, struct tutti_one_open *open,
                         enum tutti_one_reason why)
{
    const struct tutti_one_refusal refusal = {open->name, open->offset, open->bytes, open->window, why};
    struct tutti_one_access *access = open_end(team->ones, pair, open);

    if (why == TUTTI_ONE_GONE) tutti_one_lose(team->ones, pair->slot, open->window);
    if (access) {
        if (access->why == TUTTI_ONE_FINE) access->why = why;
        tutti_access_finish(team, access);
    } else if (!pair->refusal.name) {
        pair->refusal = refusal;
    }
}

bool tutti_answer_place(struct tutti_team *team, struct tutti_one_pair *pair, const struct tutti_packet *packet,
                        struct tutti_target *target, struct tutti_loan *what)
{
    bool wrong;

    if (packet->seq == 0 || packet->flags != TUTTI_ONE_GET) return false;
    struct tutti_one_open *open = open_find(pair, packet, &wrong);
    if (!open) return false;
    const uint64_t at = open->at;
    struct tutti_one_access *access = open_end(team->ones, pair, open);
    *target = (struct tutti_target){(unsigned char *)access->info.dest + at, packet->bytes};
    what->of = access;
    what->step = TUTTI_LOAN_ACCESS;
    access->n_lent++;
    return true;
}

void tutti_answer_take(struct tutti_team *team, struct tutti_one_pair *pair, const struct tutti_packet *packet,
                       const void *payload)
{
    bool wrong;

    if (packet->seq == 0 && packet->flags == TUTTI_ONE_REFUSED && packet->call == TUTTI_ONE_LEFT)
        tutti_keys_left(team, pair);
    if (packet->seq == 0 && packet->bytes == 0) return;
    struct tutti_one_open *open = open_find(pair, packet, &wrong);
    if (wrong) tutti_report_protocol(team, pair->slot, NULL, "an answer to an access that it did not make");
    if (!open && !wrong) team->engine->stats.duplicates_dropped++;
    if (!open) return;
    if (packet->flags == TUTTI_ONE_REFUSED && packet->call == TUTTI_ONE_LEFT) {
        leave_take(team, pair);
        return;
    }
    if (packet->flags == TUTTI_ONE_REFUSED) {
        refusal_take(team, pair, open, (enum tutti_one_reason)packet->call);
        return;
    }
    const uint64_t at = open->at;
    struct tutti_one_access *access = open_end(team->ones, pair, open);
    if (packet->bytes > 0) memcpy((unsigned char *)access->info.dest + at, payload, packet->bytes);
    if (access->info.kind != TUTTI_ONE_GET) *access->info.before = packet->call;
    tutti_access_finish(team, access);
}
