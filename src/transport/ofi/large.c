/* SPDX-License-Identifier: BSD-3-Clause */
/* Payloads that are not copied. The sender lends its memory and waits for GO; the receiver posts a tagged receive into
 * the place, and then says GO with its tag; then the payload moves. So the provider has the sender's memory only while
 * the receiver waits for it, and what is taken back before is simply copied. Tags begin at a random number: nobody else
 * hits a posted receive by chance. More parts than the provider gathers go through a slab of the peer. */

#include "transport/ofi/state.h"

#include <string.h>

#define TAG_BITS 40 /* of those that all providers have */
#define CANCEL_NS (10 * TUTTI_NS_PER_MS)
#define PARTS_MAX 8u

struct tutti_ofi_large *tutti_ofi_large_free(struct tutti_ofi_large larges[TUTTI_OFI_LARGE])
{
    for (uint32_t i = 0; i < TUTTI_OFI_LARGE; i++)
        if (larges[i].stage == TUTTI_OFI_FREE) return &larges[i];
    return NULL;
}

static void clear(struct tutti_ofi_large *large)
{
    large->stage = TUTTI_OFI_FREE, large->status = TUTTI_OK;
    large->told = large->silent = large->slab = large->whole = false;
    large->n = 0, large->token = 0;
}

/* The lent memory as parts: empty ones are left out. */
static void keep(struct tutti_ofi_large *large, const void *base, size_t bytes)
{
    if (bytes > 0) large->parts[large->n++] = (struct iovec){(void *)(uintptr_t)base, bytes};
}

static void gather(uint8_t *to, const struct iovec *parts, uint32_t n)
{
    for (uint32_t i = 0; i < n; to += parts[i++].iov_len) memcpy(to, parts[i].iov_base, parts[i].iov_len);
}

static void scatter(const uint8_t *from, const struct iovec *parts, uint32_t n)
{
    for (uint32_t i = 0; i < n; from += parts[i++].iov_len) memcpy(parts[i].iov_base, from, parts[i].iov_len);
}

static uint32_t parts_max(const struct tutti_ofi *ofi, bool out)
{
    const size_t limit = out ? ofi->info->tx_attr->iov_limit : ofi->info->rx_attr->iov_limit;
    return limit < 1 ? 1 : limit > PARTS_MAX ? PARTS_MAX : (uint32_t)limit;
}

enum tutti_status tutti_ofi_large_add(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer,
                                      const struct tutti_packet *packet, const struct tutti_span *spans, uint32_t n,
                                      uint64_t token)
{
    struct tutti_ofi_large *out = tutti_ofi_large_free(peer->out);
    if (!out) return TUTTI_AGAIN;
    clear(out);
    out->stage = TUTTI_OFI_WAITS, out->token = token, out->bytes = packet->bytes, out->id = ++peer->large_id;
    for (uint32_t i = 0; i < n; i++) keep(out, spans[i].base, spans[i].bytes);
    if (out->n > parts_max(ofi, true) && peer != ofi->self) {
        if (peer->out_slab_used) {
            clear(out);
            return TUTTI_AGAIN;
        }
        gather(peer->out_slab, out->parts, out->n);
        out->slab = peer->out_slab_used = true;
        out->parts[0] = (struct iovec){peer->out_slab, packet->bytes}, out->n = 1;
    }
    tutti_ofi_frame_add(ofi, peer, packet, NULL, 0, out);
    return TUTTI_PENDING;
}

bool tutti_ofi_large_go(struct tutti_ofi_peer *peer, uint32_t id, uint64_t tag)
{
    for (uint32_t i = 0; i < TUTTI_OFI_LARGE; i++) {
        struct tutti_ofi_large *out = &peer->out[i];
        if (out->stage != TUTTI_OFI_WAITS || out->id != id) continue;
        out->tag = tag, out->stage = TUTTI_OFI_GOES;
        return true;
    }
    return false;
}

/* ---- to the provider ---- */

static void unregister(struct tutti_ofi_large *large)
{
    for (uint32_t i = 0; i < PARTS_MAX; i++) {
        if (large->mr[i]) fi_close(&large->mr[i]->fid);
        large->mr[i] = NULL, large->desc[i] = NULL;
    }
}

/* OK: the provider has it. */
static enum tutti_status post(struct tutti_ofi *ofi, struct tutti_ofi_large *large)
{
    struct tutti_ofi_peer *peer = large->op.peer;
    const bool out = large->op.kind == TUTTI_OFI_LARGE_OUT;
    struct iovec whole = {large->copy ? large->copy : peer->in_slab, large->bytes};
    const bool one = large->copy || (large->slab && !out);
    struct fi_msg_tagged message = {.msg_iov = one ? &whole : large->parts,
                                    .desc = large->desc,
                                    .iov_count = one ? 1 : large->n,
                                    .addr = out ? peer->address : FI_ADDR_UNSPEC,
                                    .tag = large->tag,
                                    .context = &large->op};
    enum tutti_status status = TUTTI_OK;
    for (size_t i = 0; i < message.iov_count && status == TUTTI_OK; i++)
        status = tutti_ofi_register(ofi, message.msg_iov[i].iov_base, message.msg_iov[i].iov_len, &large->mr[i],
                                    &large->desc[i]);
    ssize_t rc = status == TUTTI_OK ? 0 : status == TUTTI_AGAIN ? -FI_EAGAIN : -FI_ENOMEM;
    if (rc == 0)
        rc = out ? fi_tsendmsg(ofi->ep, &message, FI_COMPLETION) : fi_trecvmsg(ofi->ep, &message, FI_COMPLETION);
    if (rc == 0) {
        large->stage = TUTTI_OFI_FLIES;
        if (out) ofi->n_flying++;
        return TUTTI_OK;
    }
    unregister(large);
    ofi->waits = true;
    if (rc == -FI_EAGAIN) return TUTTI_AGAIN;
    tutti_log(TUTTI_LOG_WARN, "transport ofi: a payload of %u bytes with member %u: %s", (uint32_t)large->bytes,
              peer->member, tutti_ofi_library()->strerror((int)-rc));
    tutti_ofi_peer_ends(ofi, peer, TUTTI_ERR_PEER_DEAD);
    return TUTTI_AGAIN;
}

void tutti_ofi_large_submit(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer)
{
    for (uint32_t i = 0; i < TUTTI_OFI_LARGE; i++) {
        struct tutti_ofi_large *in = &peer->in[i], *out = &peer->out[i];
        if (in->stage == TUTTI_OFI_WAITS && post(ofi, in) != TUTTI_OK) return;
        if (in->stage == TUTTI_OFI_FLIES && !in->told) in->told = tutti_ofi_go_tell(ofi, peer, in);
        if (out->stage == TUTTI_OFI_GOES && post(ofi, out) != TUTTI_OK) return;
    }
}

/* ---- its end ---- */

void tutti_ofi_large_over(struct tutti_ofi *ofi, struct tutti_ofi_large *large)
{
    struct tutti_ofi_peer *peer = large->op.peer;
    if (large->op.kind == TUTTI_OFI_LARGE_OUT) {
        if (large->slab) peer->out_slab_used = false;
        if (peer->wants_room) peer->wants_room = false, ofi->room = true;
    } else {
        if (large->slab) peer->in_slab_used = false;
        if (large->whole) peer->blocked = false;
        tutti_ofi_peer_ready(ofi, peer); /* the next one may have waited */
    }
    clear(large);
}

void tutti_ofi_large_done(struct tutti_ofi *ofi, struct tutti_ofi_large *large, enum tutti_status status)
{
    struct tutti_ofi_peer *peer = large->op.peer;
    const bool in = large->op.kind == TUTTI_OFI_LARGE_IN;
    if (!in && large->stage == TUTTI_OFI_FLIES && ofi->n_flying > 0) ofi->n_flying--;
    unregister(large);
    if (in && large->slab && !large->whole && !large->silent && status == TUTTI_OK)
        scatter(peer->in_slab, large->parts, large->n);
    tutti_free(large->copy);
    large->copy = NULL;
    large->status = status, large->stage = TUTTI_OFI_ENDED;
    if (large->whole && status == TUTTI_OK)
        tutti_ofi_peer_ready(ofi, peer);
    else if (large->silent)
        tutti_ofi_large_over(ofi, large);
    else
        ofi->n_over++;
}

/* To oneself: what was lent for it is here. */
static void place_self(struct tutti_ofi *ofi, struct tutti_ofi_peer *self, struct tutti_ofi_large *in)
{
    for (uint32_t i = 0; i < TUTTI_OFI_LARGE; i++) {
        struct tutti_ofi_large *out = &self->out[i];
        if (out->stage != TUTTI_OFI_WAITS || out->id != in->id) continue;
        if (out->copy)
            memcpy(self->in_slab, out->copy, out->bytes);
        else
            gather(self->in_slab, out->parts, out->n);
        tutti_ofi_large_done(ofi, out, TUTTI_OK);
        tutti_ofi_large_done(ofi, in, TUTTI_OK);
        return;
    }
}

void tutti_ofi_large_place(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, struct tutti_ofi_large *in,
                           const struct tutti_target *targets, uint32_t n, uint64_t token)
{
    const bool self = peer == ofi->self;
    in->token = token, in->n = 0;
    for (uint32_t i = 0; i < n && i < TUTTI_SPANS_MAX; i++) keep(in, targets[i].base, targets[i].bytes);
    in->whole = in->silent = n == 0;
    in->slab = self || n == 0 || in->n > parts_max(ofi, false);
    in->tag = UINT64_C(1) << TAG_BITS | (ofi->next_tag++ & ((UINT64_C(1) << TAG_BITS) - 1));
    in->stage = TUTTI_OFI_WAITS, in->told = false;
    if (in->slab) peer->in_slab_used = true;
    if (in->whole) peer->blocked = true;
    if (self)
        place_self(ofi, peer, in);
    else if (peer->ended)
        tutti_ofi_large_done(ofi, in, peer->status);
    else
        tutti_ofi_frames_submit(ofi, peer);
}

bool tutti_ofi_large_tell(struct tutti_ofi *ofi, struct tutti_event *out)
{
    for (struct tutti_ofi_peer *peer = ofi->peers; peer; peer = peer->next) {
        for (uint32_t i = 0; i < 2 * TUTTI_OFI_LARGE; i++) {
            struct tutti_ofi_large *large = i < TUTTI_OFI_LARGE ? &peer->out[i] : &peer->in[i - TUTTI_OFI_LARGE];
            if (large->stage != TUTTI_OFI_ENDED || large->silent) continue;
            *out = (struct tutti_event){.type = TUTTI_EVENT_DONE, .token = large->token, .status = large->status};
            ofi->n_over--;
            tutti_ofi_large_over(ofi, large);
            return true;
        }
    }
    ofi->n_over = 0;
    return false;
}

/* ---- taken back ---- */

static void wait_for(struct tutti_ofi *ofi, const struct tutti_ofi_large *large, uint32_t id)
{
    const uint64_t until_ns = tutti_deadline_ns(CANCEL_NS);
    while (large->stage == TUTTI_OFI_FLIES && large->id == id && ofi->ep && tutti_now_ns() < until_ns)
        tutti_ofi_progress(ofi);
}

/* The payload goes on, from or into a copy. False: there is no memory for it. */
static bool own(struct tutti_ofi_large *large)
{
    large->copy = tutti_alloc(large->bytes);
    if (large->copy && large->op.kind == TUTTI_OFI_LARGE_OUT) gather(large->copy, large->parts, large->n);
    return large->copy != NULL;
}

static void cancel(struct tutti_ofi *ofi, struct tutti_ofi_large *large)
{
    struct tutti_ofi_peer *peer = large->op.peer;
    const uint32_t id = large->id;
    if (large->stage == TUTTI_OFI_ENDED) {
        ofi->n_over--;
        tutti_ofi_large_over(ofi, large);
        return;
    }
    large->silent = true;
    if (large->slab && large->op.kind == TUTTI_OFI_LARGE_OUT) return; /* no memory is lent */
    if (large->slab) return;                                          /* silent: nothing is scattered */
    if (large->stage != TUTTI_OFI_FLIES) {
        if (!own(large)) tutti_ofi_peer_end(ofi, peer, TUTTI_ERR_PEER_DEAD);
        return;
    }
    if (large->op.kind == TUTTI_OFI_LARGE_OUT) {
        wait_for(ofi, large, id); /* the receiver awaits it: it is soon over */
    } else {
        large->again = true; /* what was not matched yet is received elsewhere */
        fi_cancel(&ofi->ep->fid, &large->op);
        wait_for(ofi, large, id);
        large->again = false;
    }
    if (large->stage == TUTTI_OFI_FLIES && large->id == id && large->silent && !large->copy)
        tutti_ofi_break(ofi, "its provider does not give memory back that was taken back");
}

bool tutti_ofi_large_again(struct tutti_ofi *ofi, struct tutti_ofi_large *large)
{
    if (!large->again || large->op.peer->ended) return false;
    large->again = false;
    unregister(large);
    if (!own(large)) return false;
    large->stage = TUTTI_OFI_WAITS;
    ofi->waits = true;
    return true;
}

void tutti_ofi_large_cancel(struct tutti_ofi *ofi, uint64_t token)
{
    for (struct tutti_ofi_peer *peer = ofi->peers; peer; peer = peer->next) {
        for (uint32_t i = 0; i < 2 * TUTTI_OFI_LARGE; i++) {
            struct tutti_ofi_large *large = i < TUTTI_OFI_LARGE ? &peer->out[i] : &peer->in[i - TUTTI_OFI_LARGE];
            if (large->stage == TUTTI_OFI_FREE || large->silent || large->token != token) continue;
            cancel(ofi, large);
            return;
        }
    }
}
