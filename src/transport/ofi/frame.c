/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames: kind u8, rail u8, zero u16, member u32, number u32, ack u32 (frames of the receiver that are used), secret
 * u64, then for a GO word u64, address u64, ticket u64 (little endian); then the packet's head and its payload. A
 * control frame ends before the packet. A frame may come twice: all that it says is said in whole, not as a change. */

#include "transport/ofi/state.h"

#include "base/session.h"

#include <string.h>

#define ACK_AT 12
#define SECRET_AT 16
#define RETRY_NS (2 * TUTTI_NS_PER_MS) /* after a frame that the provider failed to send */
#define FAILS_NS (5 * TUTTI_NS_PER_S)  /* so long a peer may be out of reach while its socket lives */

enum { DATA = 1, OUTSIDE, ACK, GO };

struct frame {
    uint8_t kind, rail;
    uint32_t member, number, ack;
    uint64_t secret, word, address, ticket;
};

static void encode(const struct frame *f, uint8_t *out)
{
    out[0] = f->kind, out[1] = f->rail, out[2] = out[3] = 0;
    tutti_le_store(out + 4, 4, f->member);
    tutti_le_store(out + 8, 4, f->number);
    tutti_le_store(out + ACK_AT, 4, f->ack);
    tutti_le_store(out + SECRET_AT, 8, f->secret);
    tutti_le_store(out + 24, 8, f->word);
    tutti_le_store(out + 32, 8, f->address);
    tutti_le_store(out + 40, 8, f->ticket);
}

static struct frame decode(const uint8_t *bytes)
{
    return (struct frame){.kind = bytes[0],
                          .rail = bytes[1],
                          .member = (uint32_t)tutti_le_load(bytes + 4, 4),
                          .number = (uint32_t)tutti_le_load(bytes + 8, 4),
                          .ack = (uint32_t)tutti_le_load(bytes + ACK_AT, 4),
                          .secret = tutti_le_load(bytes + SECRET_AT, 8),
                          .word = tutti_le_load(bytes + 24, 8),
                          .address = tutti_le_load(bytes + 32, 8),
                          .ticket = tutti_le_load(bytes + 40, 8)};
}

/* ---- out ---- */

bool tutti_ofi_has_room(const struct tutti_ofi *ofi, const struct tutti_ofi_peer *peer)
{
    const uint32_t n = peer->filled - peer->acked;
    return peer == ofi->self ? n < TUTTI_OFI_CREDITS : n < TUTTI_OFI_WINDOW && peer->free;
}

static void check_room(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer)
{
    if (peer->free && peer->filled - peer->acked <= TUTTI_OFI_WINDOW / 2) tutti_ofi_room(ofi, peer);
}

static struct tutti_ofi_tx *take(struct tutti_ofi_tx **list)
{
    struct tutti_ofi_tx *tx = *list;
    if (tx) *list = tx->next;
    return tx;
}

/* The provider failed. The frame is sent again, until the peer's socket or control says that it is gone. */
static void fails(struct tutti_ofi *ofi, struct tutti_ofi_tx *tx, ssize_t error)
{
    struct tutti_ofi_peer *peer = tx->op.peer;
    const uint64_t now = tutti_now_ns();
    if (!tx->failing_ns)
        tutti_log(TUTTI_LOG_DEBUG, "transport ofi: to member %u: %s", peer->member, tutti_ofi_says(error));
    if (!tx->failing_ns) tx->failing_ns = now;
    tx->next = peer->failed, peer->failed = tx;
    ofi->retry_ns = now + RETRY_NS;
    tutti_ofi_peer_waits(ofi, peer);
    if (now - tx->failing_ns > FAILS_NS) tutti_ofi_peer_ends(ofi, peer, TUTTI_ERR_PEER_DEAD);
}

/* False: not now. */
static bool post(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, struct tutti_ofi_tx *tx)
{
    struct fid_ep *ep = ofi->rails[0].ep;
    tutti_le_store(tx->data + ACK_AT, 4, peer->used);
    tutti_le_store(tx->data + SECRET_AT, 8, peer->secret_out);
    const ssize_t rc = fi_tsend(ep, tx->data, tx->bytes, tx->desc, peer->addresses[0], 0, &tx->op);
    if (rc == -FI_EAGAIN) return false;
    peer->told = peer->used;
    if (rc < 0)
        fails(ofi, tx, rc);
    else
        ofi->n_flying++;
    return true;
}

static bool control(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, struct frame frame)
{
    struct tutti_ofi_tx *tx = take(&peer->free_control);
    if (!tx) return false; /* when one is complete */
    frame.member = ofi->base.me;
    encode(&frame, tx->data);
    tx->bytes = TUTTI_OFI_CONTROL_HEAD;
    if (post(ofi, peer, tx)) return true;
    tx->next = peer->free_control, peer->free_control = tx;
    return false;
}

bool tutti_ofi_go_tell(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, const struct tutti_ofi_large *in)
{
    return control(ofi, peer,
                   (struct frame){.kind = GO,
                                  .rail = in->rail,
                                  .number = in->number,
                                  .word = ofi->writes ? in->key : in->tag,
                                  .address = in->address,
                                  .ticket = in->ticket});
}

/* False: some failed, and it is not yet time; or not now. */
static bool submit_failed(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer)
{
    if (!peer->failed) return true;
    if (tutti_now_ns() < ofi->retry_ns) return false;
    struct tutti_ofi_tx *tx, *failed = peer->failed;
    peer->failed = NULL;
    while ((tx = take(&failed))) {
        if (post(ofi, peer, tx)) continue;
        tx->next = peer->failed, peer->failed = tx;
    }
    return !peer->failed;
}

bool tutti_ofi_frames_submit(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer)
{
    if (!peer->met || peer->ended || !ofi->open) return true;
    if (!submit_failed(ofi, peer)) return false;
    while (peer->submitted != peer->filled && peer->submitted - peer->acked < TUTTI_OFI_CREDITS) {
        if (!post(ofi, peer, peer->window[peer->submitted % TUTTI_OFI_WINDOW])) return false;
        peer->submitted++;
    }
    return peer->used - peer->told < TUTTI_OFI_CREDITS / 2 || control(ofi, peer, (struct frame){.kind = ACK});
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
                         const struct tutti_span *spans, uint32_t n_spans, bool outside)
{
    const struct frame frame = {.kind = outside ? OUTSIDE : DATA, .member = ofi->base.me, .number = peer->filled};
    const uint32_t bytes = TUTTI_OFI_HEAD + (outside ? 0 : packet->bytes);
    struct tutti_ofi_tx *tx = peer == ofi->self ? NULL : take(&peer->free);
    uint8_t *data = tx ? tx->data : self_buffer(peer, bytes), *at = data + TUTTI_OFI_HEAD;
    struct tutti_packet stamped = *packet;
    stamped.version = TUTTI_WIRE_VERSION, stamped.source = ofi->base.me;
    encode(&frame, data);
    tutti_packet_encode(&stamped, data + TUTTI_OFI_CONTROL_HEAD);
    for (uint32_t i = 0; i < n_spans && !outside; at += spans[i++].bytes)
        if (spans[i].bytes > 0) memcpy(at, spans[i].base, spans[i].bytes);
    if (tx) {
        tx->bytes = bytes;
        peer->window[peer->filled % TUTTI_OFI_WINDOW] = tx;
    }
    peer->filled++;
    if (!tx)
        tutti_ofi_peer_ready(ofi, peer);
    else if (!tutti_ofi_frames_submit(ofi, peer))
        tutti_ofi_peer_waits(ofi, peer);
}

void tutti_ofi_frame_sent(struct tutti_ofi *ofi, struct tutti_ofi_tx *tx, int error)
{
    struct tutti_ofi_peer *peer = tx->op.peer;
    struct tutti_ofi_tx **list = tx->op.kind == TUTTI_OFI_FRAME ? &peer->free : &peer->free_control;
    ofi->n_flying--;
    if (error && !peer->ended) {
        fails(ofi, tx, error);
        return;
    }
    if (tx->op.kind == TUTTI_OFI_CONTROL && !*list) tutti_ofi_peer_waits(ofi, peer); /* one may wait for it */
    tx->failing_ns = 0;
    tx->next = *list, *list = tx;
    check_room(ofi, peer);
}

/* ---- in ---- */

/* The member that sent it, if it bears what was told to that member. */
static struct tutti_ofi_peer *sender(struct tutti_ofi *ofi, const struct frame *f, size_t bytes)
{
    struct tutti_ofi_peer *peer =
        bytes >= TUTTI_OFI_CONTROL_HEAD && f->member < ofi->base.n ? ofi->members[f->member].peer : NULL;
    if (peer && peer != ofi->self && f->secret == peer->secret_in) return peer;
    if (!ofi->strangers)
        tutti_log(TUTTI_LOG_WARN, "transport ofi: member %u got a packet of nobody it knows, and drops such ones",
                  ofi->base.me);
    ofi->strangers = true;
    return NULL;
}

/* Keeps a frame with a packet. False: one that came before. */
static bool keep(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, struct tutti_ofi_rx *rx, const struct frame *f)
{
    struct tutti_ofi_rx **slot = &peer->slots[f->number % TUTTI_OFI_CREDITS];
    if (f->number - peer->taken >= TUTTI_OFI_CREDITS || *slot) return false;
    *slot = rx;
    while (peer->came - peer->taken < TUTTI_OFI_CREDITS && peer->slots[peer->came % TUTTI_OFI_CREDITS]) peer->came++;
    tutti_ofi_peer_ready(ofi, peer);
    return true;
}

bool tutti_ofi_frame_came(struct tutti_ofi *ofi, struct tutti_ofi_rx *rx, size_t bytes, struct tutti_ofi_peer **from,
                          struct tutti_ofi_go *go)
{
    const struct frame f = decode(rx->data);
    struct tutti_ofi_peer *peer = sender(ofi, &f, bytes);
    const uint32_t acked = peer ? f.ack - peer->acked : 0, late = peer ? peer->acked - f.ack : 0;
    const bool packet = f.kind == DATA || f.kind == OUTSIDE;
    bool sound = true, kept = false;
    if (peer && !peer->ended) {
        sound = packet ? bytes >= TUTTI_OFI_HEAD : f.kind == ACK || f.kind == GO;
        sound = sound && (acked <= peer->submitted - peer->acked || late <= TUTTI_OFI_WINDOW);
        if (sound && acked <= peer->submitted - peer->acked) peer->acked = f.ack;
        rx->bytes = (uint32_t)bytes;
        kept = sound && packet && keep(ofi, peer, rx, &f);
    }
    if (!kept) tutti_ofi_post(ofi, rx);
    if (!peer || peer->ended) return false;
    if (!sound) tutti_ofi_nonsense(ofi, peer, "a frame");
    if (sound && peer->submitted != peer->filled) tutti_ofi_peer_waits(ofi, peer);
    check_room(ofi, peer);
    *from = peer;
    *go = (struct tutti_ofi_go){f.number, f.rail, f.word, f.address, f.ticket};
    return sound && f.kind == GO;
}

void tutti_ofi_frame_used(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, struct tutti_ofi_rx *rx)
{
    peer->used++;
    if (peer == ofi->self) {
        peer->acked++;
        tutti_ofi_room(ofi, peer);
        return;
    }
    tutti_ofi_post(ofi, rx);
    if (peer->used - peer->told >= TUTTI_OFI_CREDITS / 2) tutti_ofi_peer_waits(ofi, peer);
}

/* The packet of a frame, checked. */
static bool packet_of(struct tutti_ofi *ofi, const struct tutti_ofi_peer *peer, const struct tutti_ofi_rx *rx,
                      bool outside, struct tutti_packet *out)
{
    if (tutti_packet_decode(rx->data + TUTTI_OFI_CONTROL_HEAD, TUTTI_PACKET_WIRE_BYTES, out) < 0 ||
        !tutti_packet_valid(out, ofi->base.max_payload))
        return false;
    out->source = peer->member;
    if (outside) return rx->bytes == TUTTI_OFI_HEAD && out->bytes > ofi->base.copied;
    return rx->bytes == TUTTI_OFI_HEAD + out->bytes;
}

enum tutti_status tutti_ofi_frame_next(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, struct tutti_packet *packet,
                                       struct tutti_ofi_rx **rx, bool *outside)
{
    *rx = peer->slots[peer->taken % TUTTI_OFI_CREDITS];
    if (!*rx) return TUTTI_AGAIN;
    *outside = (*rx)->data[0] == OUTSIDE;
    if (packet_of(ofi, peer, *rx, *outside, packet)) return TUTTI_OK;
    if (!peer->ended && peer->status != TUTTI_ERR_PROTOCOL) tutti_ofi_nonsense(ofi, peer, "a packet");
    return TUTTI_AGAIN;
}

void tutti_ofi_frame_take(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer)
{
    peer->slots[peer->taken++ % TUTTI_OFI_CREDITS] = NULL;
    if (peer->slots[peer->taken % TUTTI_OFI_CREDITS]) tutti_ofi_peer_ready(ofi, peer);
}
