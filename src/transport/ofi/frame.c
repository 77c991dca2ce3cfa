/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames: kind u8, credits u8, zero u16, member u32, number u32, id u32, secret u64, tag u64 (little endian), then the
 * packet's head and its payload. A control frame ends before the packet. */

#include "transport/ofi/state.h"

#include "base/session.h"

#include <string.h>

#define EAGER_TAG UINT64_C(0)
#define CONTROL_BYTES 32u

enum { DATA = 1, OUTSIDE, CREDIT, GO };

struct frame {
    uint8_t kind, credits;
    uint32_t member, number, id;
    uint64_t secret, tag;
};

static void encode(const struct frame *f, uint8_t *out)
{
    memset(out, 0, CONTROL_BYTES);
    out[0] = f->kind, out[1] = f->credits;
    tutti_le_store(out + 4, 4, f->member);
    tutti_le_store(out + 8, 4, f->number);
    tutti_le_store(out + 12, 4, f->id);
    tutti_le_store(out + 16, 8, f->secret);
    tutti_le_store(out + 24, 8, f->tag);
}

static struct frame decode(const uint8_t *bytes)
{
    return (struct frame){.kind = bytes[0],
                          .credits = bytes[1],
                          .member = (uint32_t)tutti_le_load(bytes + 4, 4),
                          .number = (uint32_t)tutti_le_load(bytes + 8, 4),
                          .id = (uint32_t)tutti_le_load(bytes + 12, 4),
                          .secret = tutti_le_load(bytes + 16, 8),
                          .tag = tutti_le_load(bytes + 24, 8)};
}

/* ---- out ---- */

bool tutti_ofi_has_room(const struct tutti_ofi_peer *peer)
{
    return peer->filled - peer->acked < (peer->free ? TUTTI_OFI_WINDOW : 0);
}

static void check_room(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer)
{
    if (!peer->wants_room || !peer->free || peer->filled - peer->acked > TUTTI_OFI_WINDOW / 2) return;
    peer->wants_room = false;
    ofi->room = true;
}

static struct tutti_ofi_tx *take(struct tutti_ofi_tx **list)
{
    struct tutti_ofi_tx *tx = *list;
    if (tx) *list = tx->next;
    return tx;
}

/* OK: the provider has it. AGAIN. */
static enum tutti_status post(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, struct tutti_ofi_tx *tx)
{
    const ssize_t rc = fi_tsend(ofi->ep, tx->data, tx->bytes, tx->desc, peer->address, EAGER_TAG, &tx->op);
    if (rc == 0) {
        ofi->n_flying++;
        return TUTTI_OK;
    }
    if (rc != -FI_EAGAIN) {
        tutti_log(TUTTI_LOG_DEBUG, "transport ofi: nothing can be sent to member %u: %s", peer->member,
                  tutti_ofi_library()->strerror((int)-rc));
        tutti_ofi_peer_ends(ofi, peer, TUTTI_ERR_PEER_DEAD);
    }
    ofi->waits = true;
    return TUTTI_AGAIN;
}

static bool control(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, struct frame frame)
{
    struct tutti_ofi_tx *tx = take(&peer->free_control);
    if (!tx) return false; /* when one is complete */
    frame.member = ofi->base.me, frame.secret = peer->secret_out;
    encode(&frame, tx->data);
    tx->bytes = CONTROL_BYTES;
    if (post(ofi, peer, tx) == TUTTI_OK) return true;
    tx->next = peer->free_control, peer->free_control = tx;
    return false;
}

bool tutti_ofi_go_tell(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, struct tutti_ofi_large *in)
{
    return control(ofi, peer, (struct frame){.kind = GO, .id = in->id, .tag = in->tag});
}

void tutti_ofi_frames_submit(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer)
{
    if (!peer->met || peer->ended || peer->ending || !ofi->ep) return;
    while (peer->submitted != peer->filled && peer->submitted - peer->acked < TUTTI_OFI_CREDITS) {
        struct tutti_ofi_tx *tx = peer->window[peer->submitted % TUTTI_OFI_WINDOW];
        tx->data[1] = (uint8_t)peer->owed;
        tutti_le_store(tx->data + 16, 8, peer->secret_out);
        if (post(ofi, peer, tx) != TUTTI_OK) return;
        peer->owed = 0, peer->submitted++;
    }
    if (peer->owed >= TUTTI_OFI_CREDITS / 2 &&
        control(ofi, peer, (struct frame){.kind = CREDIT, .credits = (uint8_t)peer->owed}))
        peer->owed = 0;
    tutti_ofi_large_submit(ofi, peer);
}

/* To oneself: straight into a buffer that waits to be given out. */
static uint8_t *self_buffer(struct tutti_ofi_peer *peer, uint32_t bytes)
{
    struct tutti_ofi_rx *rx = &peer->rx[peer->filled % TUTTI_OFI_CREDITS];
    peer->slots[peer->filled % TUTTI_OFI_CREDITS] = rx;
    rx->bytes = bytes;
    return rx->data;
}

void tutti_ofi_frame_add(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, const struct tutti_packet *packet,
                         const struct tutti_span *spans, uint32_t n_spans, const struct tutti_ofi_large *large)
{
    const struct frame frame = {
        .kind = large ? OUTSIDE : DATA, .member = ofi->base.me, .number = peer->filled, .id = large ? large->id : 0};
    const uint32_t bytes = TUTTI_OFI_HEAD + (large ? 0 : packet->bytes);
    struct tutti_ofi_tx *tx = peer == ofi->self ? NULL : take(&peer->free);
    uint8_t *data = tx ? tx->data : self_buffer(peer, bytes), *at = data + TUTTI_OFI_HEAD;
    struct tutti_packet stamped = *packet;
    stamped.version = TUTTI_WIRE_VERSION, stamped.source = ofi->base.me;
    encode(&frame, data);
    tutti_packet_encode(&stamped, data + CONTROL_BYTES);
    for (uint32_t i = 0; i < n_spans && !large; at += spans[i++].bytes)
        if (spans[i].bytes > 0) memcpy(at, spans[i].base, spans[i].bytes);
    if (tx) {
        tx->bytes = bytes;
        peer->window[peer->filled % TUTTI_OFI_WINDOW] = tx;
    }
    peer->filled++;
    if (tx)
        tutti_ofi_frames_submit(ofi, peer);
    else
        tutti_ofi_peer_ready(ofi, peer);
}

void tutti_ofi_frame_sent(struct tutti_ofi *ofi, struct tutti_ofi_tx *tx)
{
    struct tutti_ofi_peer *peer = tx->op.peer;
    struct tutti_ofi_tx **list = tx->op.kind == TUTTI_OFI_FRAME ? &peer->free : &peer->free_control;
    if (tx->op.kind == TUTTI_OFI_CONTROL && !*list) ofi->waits = true; /* one may wait for it */
    tx->next = *list, *list = tx;
    ofi->n_flying--;
    check_room(ofi, peer);
}

/* ---- in ---- */

void tutti_ofi_post(struct tutti_ofi *ofi, struct tutti_ofi_rx *rx)
{
    if (!ofi->ep) return;
    const ssize_t rc = fi_trecv(ofi->ep, rx->data, ofi->frame_bytes, rx->desc, FI_ADDR_UNSPEC, EAGER_TAG, 0, &rx->op);
    if (rc == 0) return;
    if (rc != -FI_EAGAIN)
        tutti_log(TUTTI_LOG_WARN, "transport ofi: a buffer can not be posted: %s",
                  tutti_ofi_library()->strerror((int)-rc));
    rx->next = ofi->unposted, ofi->unposted = rx;
    ofi->waits = true;
}

static void nonsense(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, const char *what)
{
    tutti_log(TUTTI_LOG_WARN, "transport ofi: member %u sent to member %u what can not be: %s", peer->member,
              ofi->base.me, what);
    peer->status = TUTTI_ERR_PROTOCOL;
    tutti_ofi_peer_end(ofi, peer, TUTTI_ERR_PROTOCOL);
}

/* Who sent it, if it bears what was told to that member. */
static struct tutti_ofi_peer *sender(struct tutti_ofi *ofi, const struct frame *f, size_t bytes)
{
    struct tutti_ofi_peer *peer =
        bytes >= CONTROL_BYTES && f->member < ofi->base.n ? ofi->members[f->member].peer : NULL;
    if (peer && peer != ofi->self && f->secret == peer->secret_in) return peer;
    if (!ofi->strangers)
        tutti_log(TUTTI_LOG_WARN, "transport ofi: member %u got a packet of nobody it knows, and drops such ones",
                  ofi->base.me);
    ofi->strangers = true;
    return NULL;
}

void tutti_ofi_frame_came(struct tutti_ofi *ofi, struct tutti_ofi_rx *rx, size_t bytes)
{
    const struct frame f = decode(rx->data);
    struct tutti_ofi_peer *peer = sender(ofi, &f, bytes);
    if (!peer || peer->ended) {
        tutti_ofi_post(ofi, rx);
        return;
    }
    bool sound = f.credits <= peer->submitted - peer->acked, kept = false;
    if (sound) peer->acked += f.credits;
    if (f.kind == DATA || f.kind == OUTSIDE) {
        struct tutti_ofi_rx **slot = &peer->slots[f.number % TUTTI_OFI_CREDITS];
        sound = sound && bytes >= TUTTI_OFI_HEAD && f.number - peer->taken < TUTTI_OFI_CREDITS && !*slot;
        if (sound) rx->bytes = (uint32_t)bytes, *slot = rx, kept = true;
    } else if (f.kind == GO) {
        sound = sound && tutti_ofi_large_go(peer, f.id, f.tag);
    } else {
        sound = sound && f.kind == CREDIT;
    }
    if (!kept) tutti_ofi_post(ofi, rx);
    if (!sound) {
        nonsense(ofi, peer, "a frame out of order, or credits that it did not have");
        return;
    }
    tutti_ofi_frames_submit(ofi, peer);
    check_room(ofi, peer);
    if (kept) tutti_ofi_peer_ready(ofi, peer);
}

void tutti_ofi_frame_used(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, struct tutti_ofi_rx *rx)
{
    if (peer == ofi->self) {
        peer->acked++;
        if (peer->wants_room) peer->wants_room = false, ofi->room = true;
        return;
    }
    tutti_ofi_post(ofi, rx);
    if (++peer->owed >= TUTTI_OFI_CREDITS / 2) tutti_ofi_frames_submit(ofi, peer);
}

/* The packet of a frame, checked. */
static bool packet_of(struct tutti_ofi *ofi, const struct tutti_ofi_peer *peer, const struct tutti_ofi_rx *rx,
                      bool outside, struct tutti_packet *out)
{
    if (tutti_packet_decode(rx->data + CONTROL_BYTES, TUTTI_PACKET_WIRE_BYTES, out) < 0 ||
        !tutti_packet_valid(out, ofi->base.max_payload))
        return false;
    out->source = peer->member;
    if (outside) return rx->bytes == TUTTI_OFI_HEAD && out->bytes > ofi->base.copied;
    return rx->bytes == TUTTI_OFI_HEAD + out->bytes;
}

static enum tutti_status deliver_whole(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, struct tutti_event *out)
{
    for (uint32_t i = 0; i < TUTTI_OFI_LARGE; i++) {
        struct tutti_ofi_large *in = &peer->in[i];
        if (in->stage != TUTTI_OFI_ENDED || !in->whole) continue;
        *out = (struct tutti_event){.type = TUTTI_EVENT_ARRIVAL, .packet = in->packet, .payload = peer->in_slab};
        ofi->given = peer, ofi->given_large = in, ofi->given_rx = NULL;
        return TUTTI_OK;
    }
    return TUTTI_AGAIN;
}

static void over_if_last(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer)
{
    if (peer->ending && peer->status == TUTTI_ERR_PEER_LEFT && peer->leaves_at == peer->taken)
        tutti_ofi_peer_end(ofi, peer, TUTTI_ERR_PEER_LEFT);
}

enum tutti_status tutti_ofi_deliver(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, struct tutti_event *out)
{
    if (peer->blocked) return deliver_whole(ofi, peer, out);
    struct tutti_ofi_rx **slot = &peer->slots[peer->taken % TUTTI_OFI_CREDITS], *rx = *slot;
    struct tutti_ofi_large *in = NULL;
    struct tutti_packet packet;
    if (!rx) return TUTTI_AGAIN;
    const bool outside = rx->data[0] == OUTSIDE;
    if (outside && (peer->in_slab_used || !(in = tutti_ofi_large_free(peer->in)))) return TUTTI_AGAIN;
    if (outside && peer->ended) return TUTTI_AGAIN; /* its payload does not come any more */
    if (!packet_of(ofi, peer, rx, outside, &packet)) {
        if (peer->ended) return TUTTI_AGAIN;
        nonsense(ofi, peer, "a packet");
        return tutti_fail(TUTTI_ERR_PROTOCOL, "member %u sent to member %u what can not be", peer->member,
                          ofi->base.me);
    }
    *slot = NULL, peer->taken++;
    ofi->given = peer, ofi->given_rx = rx, ofi->given_large = in;
    *out = (struct tutti_event){.type = in ? TUTTI_EVENT_HEADER : TUTTI_EVENT_ARRIVAL,
                                .packet = packet,
                                .payload = in ? NULL : rx->data + TUTTI_OFI_HEAD};
    if (in) in->id = decode(rx->data).id, in->packet = packet, in->bytes = packet.bytes;
    over_if_last(ofi, peer);
    if (peer->slots[peer->taken % TUTTI_OFI_CREDITS]) tutti_ofi_peer_ready(ofi, peer);
    return TUTTI_OK;
}
