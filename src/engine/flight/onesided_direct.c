/* SPDX-License-Identifier: BSD-3-Clause */
/* Accesses whose bytes go by puts and gets of the wire, where it has them (transport.h). The first access to a part
 * asks its owner for a key, by a packet without a number, and goes on by messages; the owner registers the part then
 * and remembers who has the key. It takes the key back before its window ends: who has it gives it back when nothing of
 * his flies any more. These packets may come late, twice or not at all: who waits asks again.
 *
 * Words keep going by messages, which move them as one, and small puts, which are one packet. */
#include "engine/flight/onesided_access.h"
#include "engine/team/report.h"

#include "base/session.h"

#include <string.h>

enum { ASK, BACK, WITHDRAW }; /* `call` of a packet; an answer has the key, or is empty: there is none */

#define KEY_WIRE (16 + TUTTI_KEY_BYTES)
#define ASK_AGAIN 64 /* accesses after an asking that came to nothing */
#define WITHDRAW_NS (2 * TUTTI_NS_PER_S)
#define LOOK_NS (10 * TUTTI_NS_PER_MS)

static enum tutti_status say(struct tutti_team *team, struct tutti_one_pair *pair, uint32_t window, uint64_t what)
{
    struct tutti_packet packet = {.type = TUTTI_PACKET_ONE, .flags = TUTTI_ONE_KEY, .slice = window, .call = what};

    return tutti_one_send(team, pair, &packet, NULL, NULL);
}

/* ---- keys that this rank has ---- */

static struct tutti_one_key *key_find(const struct tutti_one_pair *pair, uint32_t window)
{
    struct tutti_one_key *key = pair->keys;

    while (key && key->window != window) key = key->next;
    return key;
}

static void key_free(struct tutti_one_pair *pair, struct tutti_one_key *gone)
{
    struct tutti_one_key **at = &pair->keys;

    while (*at != gone) at = &(*at)->next;
    *at = gone->next;
    tutti_free(gone);
}

/* The key of a window, asked for if nobody has; NULL: not now. */
static struct tutti_one_key *key_want(struct tutti_team *team, struct tutti_one_pair *pair, uint32_t window)
{
    struct tutti_one_key *key = key_find(pair, window);

    if (!key) {
        key = tutti_alloc(sizeof(*key));
        if (!key) return NULL;
        key->window = window;
        key->next = pair->keys, pair->keys = key;
    }
    if (key->there && !key->withdrawn) return key;
    if (key->refused || key->withdrawn || key->n_asked++ % ASK_AGAIN != 0) return NULL;
    if (say(team, pair, window, ASK) != TUTTI_OK) key->n_asked = 0;
    return NULL;
}

/* It goes back once nothing flies. */
static void key_settle(struct tutti_team *team, struct tutti_one_pair *pair, struct tutti_one_key *key)
{
    if (!key->withdrawn || key->n_flying > 0) return;
    (void)say(team, pair, key->window, BACK); /* if it gets lost, the owner asks again */
    key_free(pair, key);
}

void tutti_keys_drop(struct tutti_team *team, uint32_t window)
{
    for (struct tutti_one_pair *pair = team->ones->known; pair; pair = pair->next) {
        struct tutti_one_key *key = key_find(pair, window);
        if (!key) continue;
        key->withdrawn = true;
        key_settle(team, pair, key);
    }
}

void tutti_key_answer_take(struct tutti_team *team, struct tutti_one_pair *pair, const struct tutti_packet *packet,
                           const void *payload)
{
    struct tutti_one_key *key = key_find(pair, packet->slice);
    const unsigned char *wire = payload;

    if (packet->seq != 0 || (packet->bytes != 0 && packet->bytes != KEY_WIRE)) {
        tutti_report_protocol(team, pair->slot, NULL, "a key that can not be");
        return;
    }
    if (!key || key->there || tutti_one_lost(team->ones, pair->slot, packet->slice)) return;
    key->refused = packet->bytes == 0;
    if (key->refused) return;
    key->key = (struct tutti_key){.address = tutti_le_load(wire, 8), .bytes = tutti_le_load(wire + 8, 8)};
    memcpy(key->key.key, wire + 16, TUTTI_KEY_BYTES);
    key->there = true;
}

/* ---- accesses ---- */

struct tutti_one_key *tutti_direct_takes(struct tutti_team *team, struct tutti_one_pair *pair,
                                         const struct tutti_one_access *access)
{
    struct tutti_transport *t = team->port->transport;
    const struct tutti_one_info *info = &access->info;
    const uint64_t at = info->offset + access->sent, bytes = info->bytes - access->sent;

    if (t->max_direct == 0 || info->kind > TUTTI_ONE_GET || bytes == 0 || pair->gone) return NULL;
    const bool on_host = info->maker == TUTTI_MAKER_HOST;
    if (on_host && info->kind == TUTTI_ONE_PUT ? bytes <= t->copied && access->sent == 0
                                               : on_host && info->bytes <= sizeof(uint64_t))
        return NULL;
    if (!t->ops->direct(t, team->members[pair->slot])) return NULL;
    struct tutti_one_key *key = key_want(team, pair, info->window);
    if (!key || at > key->key.bytes || bytes > key->key.bytes - at) return NULL; /* the owner refuses it */
    return key;
}

/* A provider that says that it reaches memory of devices may be built without its maker's driver: it is tried once. */
static bool reaches_devices(struct tutti_team *team, const struct tutti_one_info *info)
{
    struct tutti_transport *t = team->port->transport;
    struct tutti_ones *ones = team->ones;
    const void *memory = info->kind == TUTTI_ONE_PUT ? info->source : info->dest;
    const struct tutti_range range = {(void *)(uintptr_t)memory, info->bytes, info->maker, info->device};
    struct tutti_key key;
    void *registration = NULL;

    if (ones->devices != TUTTI_DEVICES_UNTRIED) return ones->devices == TUTTI_DEVICES_REACHED;
    ones->devices =
        t->ops->reg(t, &range, &key, &registration) == TUTTI_OK ? TUTTI_DEVICES_REACHED : TUTTI_DEVICES_UNREACHED;
    if (registration) t->ops->unreg(t, registration);
    return ones->devices == TUTTI_DEVICES_REACHED;
}

bool tutti_engine_one_reaches(struct tutti_team *team, const struct tutti_one_info *info)
{
    struct tutti_transport *t = team->port->transport;

    if (!t->devices || info->bytes <= t->copied || !atomic_load(&team->ones)) return false;
    tutti_owner_enter(team->engine->owner);
    const struct tutti_one_key *key = key_find(tutti_one_pair(team, info->peer), info->window);
    const bool reaches = key && key->there && !key->withdrawn && info->offset <= key->key.bytes &&
                         info->bytes <= key->key.bytes - info->offset && reaches_devices(team, info);
    tutti_owner_leave(team->engine->owner);
    return reaches;
}

bool tutti_direct_refused(struct tutti_one_access *access)
{
    const struct tutti_one_info *info = &access->info;

    if (info->maker == TUTTI_MAKER_HOST || access->sent == info->bytes) return false;
    access->why = TUTTI_ONE_GONE;
    access->left = true;
    return true;
}

enum tutti_status tutti_direct_send(struct tutti_team *team, struct tutti_one_pair *pair,
                                    struct tutti_one_access *access, struct tutti_one_key *key)
{
    struct tutti_transport *t = team->port->transport;
    const struct tutti_one_info *info = &access->info;
    const bool put = info->kind == TUTTI_ONE_PUT;
    const uint64_t left = info->bytes - access->sent;
    const unsigned char *memory = put ? info->source : info->dest;
    const struct tutti_range range = {.base = (unsigned char *)(uintptr_t)memory + access->sent,
                                      .bytes = left < t->max_direct ? left : t->max_direct,
                                      .maker = info->maker,
                                      .device = info->device};
    struct tutti_loan loan = {.team = team, .of = access, .step = TUTTI_LOAN_DIRECT, .peer = pair->slot};
    uint64_t token;

    while (pair->direct[loan.number].key) loan.number++;
    if (!tutti_loan_take(team->port, &loan, &token)) {
        team->again = true;
        return TUTTI_AGAIN;
    }
    enum tutti_status status = (put ? t->ops->put : t->ops->get)(t, team->members[pair->slot], &key->key,
                                                                 info->offset + access->sent, &range, token);
    if (status != TUTTI_PENDING) {
        if (status == TUTTI_AGAIN) team->again = true;
        tutti_loan_end(team->port, token, &loan);
        return status;
    }
    pair->direct[loan.number] = (struct tutti_one_piece){key, access->order};
    pair->n_direct++;
    key->n_flying++;
    access->n_lent++;
    access->sent += range.bytes;
    access->left = access->sent == info->bytes && !info->has_signal;
    team->ones->n_moves++;
    return TUTTI_OK;
}

void tutti_direct_back(struct tutti_team *team, const struct tutti_loan *loan, enum tutti_status status)
{
    struct tutti_one_pair *pair = &team->ones->pairs[loan->peer];
    struct tutti_one_piece *piece = &pair->direct[loan->number];

    if (status < 0) pair->gone = true;
    piece->key->n_flying--;
    key_settle(team, pair, piece->key);
    piece->key = NULL;
    if (--pair->n_direct == 0) pair->direct_holds = false;
    team->ones->flushed = true;
    tutti_pair_ready(team->ones, pair);
}

/* ---- keys that this rank gives ---- */

static uint64_t holder_bit(uint32_t slot)
{
    return UINT64_C(1) << slot % 64;
}

static void holder_set(struct tutti_part *part, uint32_t slot, bool holds)
{
    if (!part->holders || !!(part->holders[slot / 64] & holder_bit(slot)) == holds) return;
    part->holders[slot / 64] ^= holder_bit(slot);
    part->n_holders += holds ? 1 : UINT32_MAX;
}

/* Whether the part has a key, which it gets now if it can. */
static bool is_registered(struct tutti_team *team, struct tutti_part *part)
{
    struct tutti_transport *t = team->port->transport;
    const struct tutti_exposed *exposed = &part->exposed;
    const struct tutti_range range = {exposed->base, exposed->bytes, exposed->maker, exposed->device};
    const bool reachable = exposed->maker == TUTTI_MAKER_HOST ? !exposed->move : t->devices;

    if (part->registration || part->closed) return !part->closed;
    part->closed = true;
    if (t->max_direct == 0 || exposed->bytes == 0 || !reachable) return false;
    part->holders = tutti_alloc_array((team->size + 63) / 64, sizeof(*part->holders));
    if (!part->holders) return false;
    if (t->ops->reg(t, &range, &part->key, &part->registration) < 0) {
        tutti_log(TUTTI_LOG_INFO, "a window of %zu bytes is reached by messages alone: %s", exposed->bytes,
                  tutti_last_error()->text);
        return false;
    }
    part->closed = false;
    return true;
}

static void key_give(struct tutti_team *team, struct tutti_one_pair *pair, uint32_t window)
{
    struct tutti_part *part = tutti_part_find(team->ones, window);
    const bool there = part && is_registered(team, part);
    struct tutti_packet packet = {.type = TUTTI_PACKET_ONE_ANSWER,
                                  .flags = TUTTI_ONE_KEY,
                                  .slice = window,
                                  .bytes = there ? KEY_WIRE : 0,
                                  .total = there ? KEY_WIRE : 0};
    unsigned char wire[KEY_WIRE];
    const struct tutti_span span = {wire, sizeof(wire)};
    const struct tutti_loan none = {.team = team};

    if (there) {
        tutti_le_store(wire, 8, part->key.address);
        tutti_le_store(wire + 8, 8, part->key.bytes);
        memcpy(wire + 16, part->key.key, TUTTI_KEY_BYTES);
        holder_set(part, pair->slot, true);
    }
    (void)tutti_one_send(team, pair, &packet, there ? &span : NULL, &none); /* if it gets lost, it is asked for again */
}

/* The owner of a part wants its key back. */
static void key_return(struct tutti_team *team, struct tutti_one_pair *pair, uint32_t window)
{
    struct tutti_one_key *key = key_find(pair, window);

    tutti_one_lose(team->ones, pair->slot, window);
    if (key) {
        key->withdrawn = true;
        key_settle(team, pair, key);
    } else {
        (void)say(team, pair, window, BACK);
    }
}

void tutti_key_take(struct tutti_team *team, struct tutti_one_pair *pair, const struct tutti_packet *packet)
{
    struct tutti_part *part = tutti_part_find(team->ones, packet->slice);

    if (packet->seq != 0 || packet->bytes != 0 || packet->call > WITHDRAW)
        tutti_report_protocol(team, pair->slot, NULL, "a word of a key that can not be");
    else if (packet->call == ASK)
        key_give(team, pair, packet->slice);
    else if (packet->call == WITHDRAW)
        key_return(team, pair, packet->slice);
    else if (part)
        holder_set(part, pair->slot, false);
}

void tutti_keys_left(struct tutti_team *team, const struct tutti_one_pair *pair)
{
    for (uint32_t b = 0; b < TUTTI_PART_BUCKETS; b++)
        for (struct tutti_part *part = team->ones->parts[b]; part; part = part->next)
            holder_set(part, pair->slot, false);
}

/* ---- ends ---- */

static void unregister(struct tutti_team *team, struct tutti_part *part)
{
    struct tutti_transport *t = team->port->transport;

    if (part->registration) t->ops->unreg(t, part->registration);
    part->registration = NULL;
    part->closed = true;
}

struct withdrawal {
    struct tutti_team *team;
    const struct tutti_part *part;
};

static bool is_withdrawn(const void *arg)
{
    const struct withdrawal *withdrawal = arg;
    return withdrawal->part->n_holders == 0 || atomic_load(&withdrawal->team->failed);
}

void tutti_part_withdraw(struct tutti_team *team, struct tutti_part *part)
{
    struct tutti_owner *owner = team->engine->owner;
    const uint64_t until_ns = tutti_owner_deadline(owner, WITHDRAW_NS);
    const struct withdrawal withdrawal = {team, part};

    part->closed = true;
    while (!is_withdrawn(&withdrawal) && tutti_owner_now(owner) < until_ns) {
        for (uint32_t slot = 0; slot < team->size; slot++) {
            if (!(part->holders[slot / 64] & holder_bit(slot))) continue;
            struct tutti_one_pair *pair = tutti_one_pair(team, slot);
            if (pair->gone || tutti_status_is_gone(say(team, pair, part->window, WITHDRAW)))
                holder_set(part, slot, false);
        }
        tutti_owner_own(owner, is_withdrawn, &withdrawal, tutti_owner_deadline(owner, LOOK_NS));
        tutti_owner_leave(owner); /* somebody else may want to own */
        tutti_owner_enter(owner);
    }
    unregister(team, part);
}

void tutti_direct_free(struct tutti_team *team)
{
    for (uint32_t b = 0; b < TUTTI_PART_BUCKETS; b++)
        for (struct tutti_part *part = team->ones->parts[b]; part; part = part->next) unregister(team, part);
    for (struct tutti_one_pair *pair = team->ones->known; pair; pair = pair->next)
        while (pair->keys) key_free(pair, pair->keys);
}
