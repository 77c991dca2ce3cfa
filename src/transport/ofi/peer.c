/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers: their buffers, and the lists that they stand in. */

#include "transport/ofi/state.h"

#include <string.h>

#define LEAVES_NS (2 * TUTTI_NS_PER_S) /* for what a peer sent before its goodbye: it is on its way */
#define DIES_NS (50 * TUTTI_NS_PER_MS) /* for what a peer sent before it died: it may be here */

/* ---- lists ---- */

void tutti_ofi_peer_ready(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer)
{
    if (peer->ready) return;
    peer->ready = true, peer->next_ready = NULL;
    *(ofi->first_ready ? &ofi->last_ready->next_ready : &ofi->first_ready) = peer;
    ofi->last_ready = peer;
}

struct tutti_ofi_peer *tutti_ofi_ready_take(struct tutti_ofi *ofi)
{
    struct tutti_ofi_peer *peer = ofi->first_ready;
    if (peer) ofi->first_ready = peer->next_ready, peer->ready = false;
    return peer;
}

void tutti_ofi_peer_waits(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer)
{
    if (peer->waits) return;
    peer->waits = true, peer->next_waits = ofi->waiting;
    ofi->waiting = peer;
}

void tutti_ofi_room(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer)
{
    if (peer->wants_room) peer->wants_room = false, ofi->room = true;
}

/* ---- buffers ---- */

static size_t buffers_at(void)
{
    return (sizeof(struct tutti_ofi_peer) + 4095) / 4096 * 4096;
}

static void buffers_divide(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer)
{
    uint8_t *at = (uint8_t *)peer + buffers_at();
    void *desc = peer->memory.desc;
    for (uint32_t i = 0; i < TUTTI_ARRAY_LEN(peer->tx); i++, at += ofi->frame_bytes) {
        peer->tx[i] = (struct tutti_ofi_tx){
            .op = {.kind = TUTTI_OFI_FRAME, .peer = peer}, .next = peer->free, .data = at, .desc = desc};
        peer->free = &peer->tx[i];
    }
    for (uint32_t i = 0; i < TUTTI_OFI_RECEIVES; i++, at += ofi->frame_bytes)
        peer->rx[i] = (struct tutti_ofi_rx){.op = {.kind = TUTTI_OFI_RECEIVE}, .data = at, .desc = desc};
    for (uint32_t i = 0; i < TUTTI_OFI_CONTROLS; i++, at += TUTTI_CACHE_LINE) {
        peer->control[i] = (struct tutti_ofi_tx){
            .op = {.kind = TUTTI_OFI_CONTROL, .peer = peer}, .next = peer->free_control, .data = at, .desc = desc};
        peer->free_control = &peer->control[i];
    }
    peer->out = peer->lent, peer->in = peer->out + TUTTI_OFI_LARGE, peer->accesses = peer->in + TUTTI_OFI_LARGE;
    for (uint32_t i = 0; i < TUTTI_OFI_LARGE; i++) {
        peer->out[i].op = (struct tutti_ofi_op){.kind = TUTTI_OFI_LARGE_OUT, .peer = peer};
        peer->in[i].op = (struct tutti_ofi_op){.kind = TUTTI_OFI_LARGE_IN, .peer = peer};
    }
    for (uint32_t i = 0; i < TUTTI_OFI_ACCESSES; i++) peer->accesses[i].op.peer = peer;
}

enum tutti_status tutti_ofi_peer_make(struct tutti_ofi *ofi, uint32_t member, struct tutti_ofi_peer **out)
{
    const size_t buffers = (TUTTI_OFI_WINDOW + 2 + TUTTI_OFI_RECEIVES) * ofi->frame_bytes + 4096;
    const size_t bytes = buffers_at() + buffers + 2 * TUTTI_OFI_PAYLOAD;
    const bool self = member == ofi->base.me;
    enum tutti_status status = TUTTI_OK;
    if (!ofi->open)
        return tutti_fail(TUTTI_ERR_SYSTEM, "transport ofi: the endpoint of member %u is closed", ofi->base.me);
    struct tutti_ofi_peer *peer = tutti_map_lazy(bytes);
    if (!peer) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the buffers of member %u", member);
    peer->member = member, peer->fd = -1, peer->mapped = bytes;
    peer->out_slab = (uint8_t *)peer + buffers_at() + buffers, peer->in_slab = peer->out_slab + TUTTI_OFI_PAYLOAD;
    status = tutti_random_bytes(&peer->secret_in, sizeof(peer->secret_in));
    if (status == TUTTI_OK && !self)
        status = tutti_ofi_register(&ofi->rails[0],
                                    &(struct tutti_range){.base = (uint8_t *)peer + buffers_at(), .bytes = buffers},
                                    &peer->memory);
    if (status != TUTTI_OK) {
        tutti_unmap(peer, bytes);
        return status < 0 ? status : tutti_fail(TUTTI_ERR_SYSTEM, "transport ofi: no room to register buffers");
    }
    peer->scratch = peer->out_slab - TUTTI_OFI_ACCESSES;
    buffers_divide(ofi, peer);
    peer->next = ofi->peers, ofi->peers = peer;
    ofi->members[member].peer = peer;
    if (self)
        ofi->self = peer;
    else
        for (uint32_t i = 0; i < TUTTI_OFI_RECEIVES; i++) tutti_ofi_post(ofi, &peer->rx[i]);
    *out = peer;
    return TUTTI_OK;
}

void tutti_ofi_peer_free(struct tutti_ofi_peer *peer)
{
    tutti_ofi_unregister(&peer->memory);
    for (uint32_t i = 0; i < TUTTI_OFI_LENT; i++) tutti_free(peer->lent[i].copy);
    tutti_unmap(peer, peer->mapped);
}

void tutti_ofi_post(struct tutti_ofi *ofi, struct tutti_ofi_rx *rx)
{
    if (!ofi->open) return;
    const ssize_t rc = fi_trecv(ofi->rails[0].ep, rx->data, ofi->frame_bytes, rx->desc, FI_ADDR_UNSPEC, 0, 0, &rx->op);
    if (rc == 0) return;
    if (rc != -FI_EAGAIN && !ofi->errors) {
        tutti_log(TUTTI_LOG_WARN, "transport ofi: a buffer can not be posted: %s", tutti_ofi_says(rc));
        ofi->errors = true;
    }
    rx->next = ofi->unposted, ofi->unposted = rx;
}

/* ---- ends ---- */

void tutti_ofi_peer_ends(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, enum tutti_status status)
{
    const bool left = status == TUTTI_ERR_PEER_LEFT; /* it said so: a provider may have told of a broken end before */
    if (peer->ended || (peer->ending && (!left || peer->status == TUTTI_ERR_PEER_LEFT))) return;
    if (!peer->ending) ofi->n_ending++;
    peer->ending = true, peer->status = status;
    peer->until_ns = tutti_deadline_ns(left ? LEAVES_NS : DIES_NS);
}

void tutti_ofi_nonsense(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, const char *what)
{
    tutti_log(TUTTI_LOG_WARN, "transport ofi: member %u sent to member %u what can not be: %s", peer->member,
              ofi->base.me, what);
    if (!peer->ending && !peer->ended) ofi->n_ending++;
    peer->ending = true, peer->status = TUTTI_ERR_PROTOCOL, peer->until_ns = 0;
    ofi->nonsense = peer->member;
}
