/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts: where they are found, and what is done to their memory. */
#include "engine/flight/onesided_access.h"

#include <string.h>

/* ---- what a team has ---- */

static struct tutti_ones *ones_create(const struct tutti_team *team)
{
    struct tutti_ones *ones = tutti_alloc(sizeof(*ones));

    if (!ones) return NULL;
    ones->map_bytes = team->size * sizeof(*ones->pairs);
    ones->pairs = tutti_map_lazy(ones->map_bytes);
    ones->known_end = &ones->known;
    ones->flushes_end = &ones->flushes;
    if (ones->pairs) return ones;
    tutti_free(ones);
    return NULL;
}

static void tutti_ones_free(struct tutti_ones *ones)
{
    for (uint32_t b = 0; b < TUTTI_PART_BUCKETS; b++) {
        while (ones->parts[b]) {
            struct tutti_part *part = ones->parts[b];
            ones->parts[b] = part->next;
            tutti_free(part->holders);
            tutti_free(part);
        }
    }
    while (ones->made) {
        struct tutti_move *move = ones->made;
        ones->made = move->made;
        tutti_free(move);
    }
    tutti_unmap(ones->pairs, ones->map_bytes);
    tutti_free(ones);
}

enum tutti_status tutti_ones_need(struct tutti_team *team)
{
    if (atomic_load(&team->ones)) return TUTTI_OK;
    struct tutti_ones *ones = ones_create(team), *none = NULL;
    if (!ones) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for accesses to %u ranks", team->size);
    if (!atomic_compare_exchange_strong(&team->ones, &none, ones)) tutti_ones_free(ones);
    return TUTTI_OK;
}

/* ---- parts ---- */

struct tutti_part *tutti_part_find(const struct tutti_ones *ones, uint32_t window)
{
    struct tutti_part *part = ones->parts[window % TUTTI_PART_BUCKETS];

    while (part && part->window != window) part = part->next;
    return part;
}

/* Words are put and got as one, as in place: who races for them sees the old one or the new one. */
bool tutti_part_is_word(const struct tutti_part *part, uint64_t offset, uint64_t bytes)
{
    const uintptr_t at = (uintptr_t)part->exposed.base + offset;
    return bytes == sizeof(uint64_t) && at % sizeof(uint64_t) == 0;
}

/* ---- what is done to one ---- */

void tutti_part_write(const struct tutti_part *part, uint64_t offset, const void *from, size_t bytes)
{
    unsigned char *to = (unsigned char *)part->exposed.base + offset;
    uint64_t word;

    if (!tutti_part_is_word(part, offset, bytes)) {
        memcpy(to, from, bytes);
        return;
    }
    memcpy(&word, from, sizeof(word));
    atomic_store_explicit((_Atomic uint64_t *)(void *)to, word, memory_order_relaxed);
}

void tutti_part_change(const struct tutti_part *part, const struct tutti_packet *packet, uint64_t *before)
{
    _Atomic uint64_t *word = (_Atomic uint64_t *)(void *)((unsigned char *)part->exposed.base + packet->offset);
    const uint64_t value = packet->call, expected = packet->signature;

    if ((packet->flags & TUTTI_ONE_KIND) != TUTTI_ONE_SWAP) {
        *before = atomic_fetch_add(word, value);
    } else {
        *before = expected;
        atomic_compare_exchange_strong(word, before, value);
    }
}

void tutti_part_signal(const struct tutti_part *part, const struct tutti_packet *packet)
{
    _Atomic uint64_t *word = part->exposed.signals + (size_t)packet->fifo * part->exposed.signal_step;

    if (packet->flags & TUTTI_ONE_SIGNAL_ADD)
        atomic_fetch_add(word, packet->call);
    else
        atomic_store(word, packet->call);
}

/* ---- What this rank exposes, and takes back. Once there was something, somebody owns the engine until the team ends,
 * to carry out what peers send or to refuse it. ---- */

#define REMOVE_NS (2 * TUTTI_NS_PER_S) /* that peers have to take what is on its way out of a part */
#define LOOK_NS (10 * TUTTI_NS_PER_MS)

enum tutti_status tutti_engine_serve(struct tutti_team *team)
{
    struct tutti_owner *owner = team->engine->owner;

    TUTTI_TRY(tutti_ones_need(team));
    TUTTI_TRY(tutti_helper_start(owner));
    tutti_owner_enter(owner);
    if (!team->ones->serves) {
        team->ones->serves = true;
        tutti_team_begin_work(team);
        atomic_fetch_add(&owner->n_serving, 1);
    }
    tutti_owner_leave(owner);
    return TUTTI_OK;
}

enum tutti_status tutti_exposed_add(struct tutti_team *team, uint32_t window, const struct tutti_exposed *exposed)
{
    struct tutti_owner *owner = team->engine->owner;
    struct tutti_part *part = tutti_alloc(sizeof(*part));

    if (!part) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a window");
    part->exposed = *exposed;
    part->window = window;
    const enum tutti_status status = tutti_engine_serve(team);
    if (status < 0) {
        tutti_free(part);
        return status;
    }
    tutti_owner_enter(owner);
    struct tutti_ones *ones = team->ones;
    part->next = ones->parts[window % TUTTI_PART_BUCKETS];
    ones->parts[window % TUTTI_PART_BUCKETS] = part;
    tutti_owner_leave(owner);
    return TUTTI_OK;
}

struct leaving {
    struct tutti_team *team;
    const struct tutti_part *part;
};

static bool is_free(const void *arg)
{
    const struct leaving *leaving = arg;
    if (leaving->part->n_moving > 0) return false;
    return leaving->part->n_lent == 0 || atomic_load(&leaving->team->failed);
}

/* Until nobody touches the part, or until_ns; moves come back in any case. The owner's. */
static void await_free(struct tutti_team *team, const struct tutti_part *part)
{
    struct tutti_owner *owner = team->engine->owner;
    const uint64_t until_ns = tutti_owner_deadline(owner, REMOVE_NS);
    const struct leaving leaving = {team, part};

    for (;;) {
        tutti_moves_take(team); /* a pass does not, of a team that has failed */
        if (is_free(&leaving) || (part->n_moving == 0 && tutti_owner_now(owner) >= until_ns)) return;
        tutti_owner_own(owner, is_free, &leaving, tutti_owner_deadline(owner, LOOK_NS));
        tutti_owner_leave(owner); /* somebody else may want to own */
        tutti_owner_enter(owner);
    }
}

static void take_back(struct tutti_team *team, const struct tutti_part *part)
{
    struct tutti_port *port = team->port;
    struct tutti_loan loan;

    for (uint32_t i = 0; part->n_lent > 0 && i < TUTTI_LOANS; i++) {
        if (port->loans[i].team != team || port->loans[i].of != part) continue;
        const uint64_t token = tutti_loan_token(port, &port->loans[i]);
        port->transport->ops->cancel(port->transport, token);
        if (tutti_loan_end(port, token, &loan)) tutti_part_back(team, &loan, TUTTI_ERR_ABORTED);
    }
}

void tutti_exposed_remove(struct tutti_team *team, uint32_t window)
{
    struct tutti_owner *owner = team->engine->owner;
    struct tutti_part **at, *part;

    tutti_owner_enter(owner);
    tutti_keys_drop(team, window);
    part = tutti_part_find(team->ones, window);
    if (part) tutti_part_withdraw(team, part);
    at = &team->ones->parts[window % TUTTI_PART_BUCKETS];
    while (*at && (*at)->window != window) at = &(*at)->next;
    part = *at;
    if (part) *at = part->next;
    if (part) await_free(team, part);
    if (part && !team->failed) take_back(team, part);
    tutti_owner_leave(owner);
    if (part) tutti_free(part->holders);
    tutti_free(part);
}

void tutti_ones_destroy(struct tutti_team *team)
{
    struct tutti_ones *ones = team->ones;

    if (!ones) return;
    tutti_loans_cancel(team);
    tutti_direct_free(team);
    if (ones->serves) {
        team->n_work--;
        atomic_fetch_sub(&team->engine->owner->n_serving, 1);
    }
    tutti_ones_free(ones);
    team->ones = NULL;
}

/* ---- Moves: what is done to parts that the engine does not touch itself. Each has memory for one payload, in which a
 * put waits until it is written, and what a get has read until it has left. There are as many as were ever under way at
 * once, which is at most TUTTI_ONE_OPEN a peer. ---- */

struct tutti_move *tutti_move_take(struct tutti_team *team)
{
    struct tutti_ones *ones = team->ones;
    struct tutti_move *move = ones->idle;

    if (move) {
        ones->idle = move->next;
        return move;
    }
    move = tutti_alloc(sizeof(*move) + team->port->transport->max_payload);
    if (!move) {
        tutti_fail(TUTTI_ERR_MEMORY, "rank %u: out of memory for an access to a window of a device", team->slot);
        return NULL;
    }
    move->memory = move + 1;
    move->made = ones->made;
    ones->made = move;
    return move;
}

void tutti_move_give(struct tutti_ones *ones, struct tutti_one_held *held)
{
    if (!held->move) return;
    held->move->next = ones->idle;
    ones->idle = held->move;
    held->move = NULL;
}

/* ---- there ---- */

static const enum tutti_move_kind kinds[] = {
    [TUTTI_ONE_PUT] = TUTTI_MOVE_WRITE,
    [TUTTI_ONE_GET] = TUTTI_MOVE_READ,
    [TUTTI_ONE_ADD] = TUTTI_MOVE_ADD,
    [TUTTI_ONE_SWAP] = TUTTI_MOVE_SWAP,
};

void tutti_move_begin(struct tutti_team *team, struct tutti_one_pair *pair, struct tutti_part *part,
                      struct tutti_one_held *held)
{
    const struct tutti_packet *packet = &held->packet;
    struct tutti_move *move = held->move;

    move->kind = kinds[packet->flags & TUTTI_ONE_KIND];
    move->offset = packet->offset;
    move->bytes = packet->total;
    move->value = packet->call;
    move->expected = packet->signature;
    move->error.status = TUTTI_OK;
    move->team = team;
    move->part = part;
    move->peer = pair->slot;
    move->number = packet->seq;
    held->state = TUTTI_ONE_MOVING;
    part->n_moving++;
    part->exposed.move(part->exposed.arg, move);
}

/* ---- and back ---- */

void tutti_move_over(struct tutti_move *move)
{
    struct tutti_owner *owner = move->team->engine->owner;
    struct tutti_ones *ones = move->team->ones;

    move->next = atomic_load(&ones->over);
    while (!atomic_compare_exchange_weak(&ones->over, &move->next, move)) {
    }
    tutti_owner_kick(
        owner); /* a thread that is about to sleep looks after it said so, this thread asks after it put the move */
}

static void over(struct tutti_team *team, struct tutti_one_pair *pair, struct tutti_one_held *held)
{
    const struct tutti_move *move = held->move;

    if (move->error.status < 0) {
        tutti_access_unsent(team, NULL, pair->slot, tutti_fail_record(&move->error));
        return;
    }
    if (move->kind == TUTTI_MOVE_READ) {
        held->state = TUTTI_ONE_DUE;
        pair->gets |= UINT64_C(1) << move->number % TUTTI_ONE_OPEN;
    } else {
        held->before = move->before;
        held->state = held->done ? TUTTI_ONE_DUE : tutti_one_rest(&held->packet);
        tutti_move_give(team->ones, held);
    }
    tutti_pair_ready(team->ones, pair);
}

void tutti_moves_take(struct tutti_team *team)
{
    struct tutti_ones *ones = team->ones;
    struct tutti_move *move = atomic_exchange(&ones->over, NULL), *first = NULL;

    while (move) {
        struct tutti_move *next = move->next;
        move->next = first;
        first = move;
        move = next;
    }
    while ((move = first) != NULL) {
        struct tutti_one_pair *pair = &ones->pairs[move->peer];
        first = move->next;
        move->part->n_moving--;
        if (!team->halted) over(team, pair, tutti_one_held(pair, move->number));
    }
}
