/* SPDX-License-Identifier: BSD-3-Clause */

/* What leaves for a peer: the packets of accesses, one after another, while it has fewer than TUTTI_ONE_OPEN that may
 * not have taken effect. Where a fence was called, data waits until all before has taken effect; where that matters to
 * somebody (a fence, a flush), a packet of its own asks for it. */

#include "engine/onesided/access.h"

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
    }
    return access->info.kind <= TUTTI_ONE_GET && access->info.bytes > 0 && pair->answered < pair->hold;
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

    if (order <= pair->asked || tutti_pair_pending(pair) > order || !has_number(pair)) return TUTTI_OK;
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

    while ((access = pair->first) != NULL && has_number(pair) && !is_held(pair, access)) {
        status = send_next(team, pair, access);
        if (status != TUTTI_OK) break;
        if (!access->left) continue;
        pair->first = access->queued;
        if (!pair->first) pair->end = &pair->first;
        tutti_access_settle(team, access);
    }
    if (status == TUTTI_OK) status = ask(team, pair);
    if (status < 0) tutti_access_unsent(team, pair->first, pair->slot, status);
    return status != TUTTI_AGAIN;
}
