/* SPDX-License-Identifier: BSD-3-Clause */

/* Envelopes that nobody asked for yet: a table that was reserved with the team, a share for each peer, and a few slots
 * for small payloads. A message keeps its place among those of its sender even if a transport disorders them. */

#include "engine/p2p/p2p.h"

#include <string.h>

static unsigned char *slot_at(const struct tutti_team *team, uint32_t peer, uint32_t i)
{
    return team->p2p_hold + ((size_t)peer * TUTTI_CREDITS + i) * team->hold_stride;
}

const unsigned char *tutti_envelope_payload(const struct tutti_team *team, const struct tutti_envelope *envelope)
{
    return envelope->payload ? slot_at(team, envelope->source, envelope->payload - 1) : NULL;
}

/* An envelope with the payload kept; NULL: the sender broke the rules. */
static struct tutti_envelope *envelope_new(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                                           const void *payload, uint32_t *index)
{
    struct tutti_channel *channel = &team->channels[source];
    uint32_t slot = 0;

    if (packet->bytes > 0) {
        while (slot < TUTTI_CREDITS && (channel->p2p_used >> slot & 1)) slot++;
        if (slot == TUTTI_CREDITS || packet->bytes > team->eager) return NULL;
    }
    if (team->envelope_free) {
        *index = team->envelope_free;
        team->envelope_free = team->envelopes[*index].next;
    } else {
        if (team->envelope_used == team->size * team->envelope_share) return NULL;
        *index = ++team->envelope_used;
    }
    struct tutti_envelope *envelope = &team->envelopes[*index];
    *envelope = (struct tutti_envelope){.source = source,
                                        .tag = (int32_t)packet->slice,
                                        .payload = packet->bytes > 0 ? slot + 1 : 0,
                                        .number = packet->seq,
                                        .total = packet->total};
    if (packet->bytes > 0) {
        channel->p2p_used |= UINT32_C(1) << slot;
        memcpy(slot_at(team, source, slot), payload, packet->bytes);
    }
    team->engine->stats.held++;
    return envelope;
}

bool tutti_envelope_keep(struct tutti_team *team, uint32_t source, const struct tutti_packet *packet,
                         const void *payload, bool early)
{
    uint32_t index;

    if (!envelope_new(team, source, packet, payload, &index)) return false;
    if (early) {
        team->envelopes[index].next = team->envelope_early;
        team->envelope_early = index;
        return true;
    }
    if (team->envelope_last)
        team->envelopes[team->envelope_last].next = index;
    else
        team->envelope_first = index;
    team->envelope_last = index;
    return true;
}

struct tutti_envelope *tutti_envelope_find(struct tutti_team *team, int32_t source, int32_t tag)
{
    for (uint32_t i = team->envelope_first; i; i = team->envelopes[i].next) {
        struct tutti_envelope *e = &team->envelopes[i];
        if ((source < 0 || e->source == (uint32_t)source) && (tag < 0 || e->tag == tag)) return e;
    }
    return NULL;
}

struct tutti_envelope *tutti_envelope_find_early(struct tutti_team *team, uint32_t source, uint64_t number)
{
    for (uint32_t i = team->envelope_early; i; i = team->envelopes[i].next)
        if (team->envelopes[i].source == source && team->envelopes[i].number == number) return &team->envelopes[i];
    return NULL;
}

/* Unlinks from one of the two lists; returns the one before it. */
static uint32_t unlink_from(struct tutti_team *team, uint32_t *first, uint32_t index)
{
    uint32_t before = 0;

    if (*first == index) {
        *first = team->envelopes[index].next;
        return 0;
    }
    for (before = *first; before && team->envelopes[before].next != index; before = team->envelopes[before].next)
        continue;
    if (before) team->envelopes[before].next = team->envelopes[index].next;
    return before;
}

void tutti_envelope_promote(struct tutti_team *team, struct tutti_envelope *envelope)
{
    uint32_t index = (uint32_t)(envelope - team->envelopes);

    unlink_from(team, &team->envelope_early, index);
    envelope->next = 0;
    if (team->envelope_last)
        team->envelopes[team->envelope_last].next = index;
    else
        team->envelope_first = index;
    team->envelope_last = index;
}

void tutti_envelope_drop(struct tutti_team *team, struct tutti_envelope *envelope)
{
    uint32_t index = (uint32_t)(envelope - team->envelopes);
    struct tutti_channel *channel = &team->channels[envelope->source];

    uint32_t before = unlink_from(team, &team->envelope_first, index);
    if (team->envelope_last == index) team->envelope_last = before;
    if (envelope->payload) {
        channel->p2p_used &= ~(UINT32_C(1) << (envelope->payload - 1));
        channel->p2p_paid_freed++;
    }
    envelope->next = team->envelope_free;
    team->envelope_free = index;
}

enum tutti_status tutti_engine_probe(struct tutti_team *team, int32_t source, int32_t tag, struct tutti_message *out)
{
    struct tutti_owner *owner = team->engine->owner;
    enum tutti_status status = TUTTI_AGAIN;

    tutti_owner_enter(owner);
    tutti_owner_pass(owner);
    if (team->halted) {
        status = tutti_fail_record(&team->error);
    } else {
        const struct tutti_envelope *e = tutti_envelope_find(team, source, tag);
        if (e) {
            *out = (struct tutti_message){(int32_t)e->source, e->tag, (size_t)e->total};
            status = TUTTI_OK;
        }
    }
    tutti_owner_leave(owner);
    return status;
}
