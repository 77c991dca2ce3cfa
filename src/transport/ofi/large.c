/* SPDX-License-Identifier: BSD-3-Clause */
/* Payloads that are not copied. The sender lends its memory and waits for GO; the receiver prepares the place, by a
 * tagged receive or by exposing its memory, and says GO; then the payload moves. So the provider has the sender's
 * memory only while the receiver waits for it, and what is taken back before is simply copied. Tags and tickets begin
 * at a random number: nobody else hits a place by chance. More parts than the provider takes go through a slab of the
 * peer. */

#include "transport/ofi/state.h"

#include <string.h>

#define TAG_BITS 40 /* bits that all providers have */
/* A ticket: slot, uses of the slot, member; where the provider carries only 32 bits, as many members as fit. */
#define SLOT_BITS 2
#define USE_BITS 10
#define MEMBER_BITS 20

struct tutti_ofi_large *tutti_ofi_large_free(struct tutti_ofi_large *first, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (first[i].stage == TUTTI_OFI_FREE) return &first[i];
    return NULL;
}

static void clear(struct tutti_ofi_large *large)
{
    large->stage = TUTTI_OFI_FREE, large->status = TUTTI_OK;
    large->told = large->silent = large->slab = large->whole = large->again = false;
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
    const struct fi_info *info = ofi->rails[0].info;
    const size_t limit = out ? info->tx_attr->iov_limit : ofi->writes ? 1 : info->rx_attr->iov_limit;
    return limit < 1 ? 1 : limit > TUTTI_OFI_PARTS ? TUTTI_OFI_PARTS : (uint32_t)limit;
}

enum tutti_status tutti_ofi_large_add(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer,
                                      const struct tutti_packet *packet, const struct tutti_span *spans, uint32_t n,
                                      uint64_t token)
{
    struct tutti_ofi_large *out = tutti_ofi_large_free(peer->out, TUTTI_OFI_LARGE);
    if (!out) return TUTTI_AGAIN;
    clear(out);
    for (uint32_t i = 0; i < n; i++) keep(out, spans[i].base, spans[i].bytes);
    if (out->n > parts_max(ofi, true) && peer != ofi->self) {
        if (peer->out_slab_used) return TUTTI_AGAIN;
        gather(peer->out_slab, out->parts, out->n);
        out->slab = peer->out_slab_used = true;
        out->parts[0] = (struct iovec){peer->out_slab, packet->bytes}, out->n = 1;
    }
    out->stage = TUTTI_OFI_WAITS, out->token = token, out->bytes = packet->bytes, out->number = peer->filled;
    tutti_ofi_frame_add(ofi, peer, packet, NULL, 0, true);
    return TUTTI_PENDING;
}

bool tutti_ofi_large_go(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, const struct tutti_ofi_go *go)
{
    if (go->rail >= peer->n_rails) return false;
    for (uint32_t i = 0; i < TUTTI_OFI_LARGE; i++) {
        struct tutti_ofi_large *out = &peer->out[i];
        if (out->stage != TUTTI_OFI_WAITS || out->number != go->number) continue;
        out->rail = go->rail, out->tag = out->key = go->word, out->address = go->address, out->ticket = go->ticket;
        out->stage = TUTTI_OFI_GOES;
        tutti_ofi_peer_waits(ofi, peer);
        return true;
    }
    return peer->submitted - go->number - 1 < UINT32_MAX / 2; /* said twice, and done */
}

/* ---- to the provider ---- */

static void unregister(struct tutti_ofi_large *large)
{
    for (uint32_t i = 0; i < TUTTI_OFI_PARTS; i++) tutti_ofi_unregister(&large->memory[i]);
}

/* The memory that the payload comes from, or goes to. */
static const struct iovec *place_of(struct tutti_ofi_large *large, struct iovec *whole, uint32_t *n)
{
    const bool in = large->op.kind == TUTTI_OFI_LARGE_IN;
    *n = large->n;
    if (!large->copy && !(in && large->slab)) return large->parts;
    *whole = (struct iovec){large->copy ? large->copy : large->op.peer->in_slab, large->bytes};
    *n = 1;
    return whole;
}

/* A put or get: the caller has the rest of what it needs. */
static ssize_t move_access(struct tutti_ofi *ofi, struct tutti_ofi_large *access)
{
    const struct fi_rma_iov there = {.addr = access->address, .len = access->bytes, .key = access->key};
    const struct fi_msg_rma message = {.msg_iov = access->parts,
                                       .desc = &access->memory[0].desc,
                                       .iov_count = 1,
                                       .addr = access->op.peer->addresses[access->rail],
                                       .rma_iov = &there,
                                       .rma_iov_count = 1,
                                       .context = &access->op};
    struct fid_ep *ep = ofi->rails[access->rail].ep;
    if (access->op.kind == TUTTI_OFI_GET) return fi_readmsg(ep, &message, FI_COMPLETION);
    return fi_writemsg(ep, &message, FI_COMPLETION | (ofi->delivers ? FI_DELIVERY_COMPLETE : 0));
}

static ssize_t move(struct tutti_ofi *ofi, struct tutti_ofi_large *large, const struct iovec *parts, uint32_t n)
{
    struct tutti_ofi_peer *peer = large->op.peer;
    struct fid_ep *ep = ofi->rails[large->rail].ep;
    const bool out = large->op.kind == TUTTI_OFI_LARGE_OUT;
    void *desc[TUTTI_OFI_PARTS];
    for (uint32_t i = 0; i < n; i++) desc[i] = large->memory[i].desc;
    if (out && ofi->writes) {
        const struct fi_rma_iov target = {.addr = large->address, .len = large->bytes, .key = large->key};
        const struct fi_msg_rma write = {.msg_iov = parts,
                                         .desc = desc,
                                         .iov_count = n,
                                         .addr = peer->addresses[large->rail],
                                         .rma_iov = &target,
                                         .rma_iov_count = 1,
                                         .context = &large->op,
                                         .data = large->ticket};
        return fi_writemsg(ep, &write, FI_COMPLETION | FI_REMOTE_CQ_DATA);
    }
    const struct fi_msg_tagged message = {.msg_iov = parts,
                                          .desc = desc,
                                          .iov_count = n,
                                          .addr = out ? peer->addresses[large->rail] : FI_ADDR_UNSPEC,
                                          .tag = large->tag,
                                          .context = &large->op};
    return out ? fi_tsendmsg(ep, &message, FI_COMPLETION) : fi_trecvmsg(ep, &message, FI_COMPLETION);
}

/* True: it flies, or failed. */
static bool post(struct tutti_ofi *ofi, struct tutti_ofi_large *large)
{
    struct tutti_ofi_peer *peer = large->op.peer;
    struct tutti_ofi_rail *rail = &ofi->rails[large->rail];
    const bool in = large->op.kind == TUTTI_OFI_LARGE_IN, exposed = in && ofi->writes;
    const bool access = large->op.kind >= TUTTI_OFI_PUT;
    struct iovec whole;
    uint32_t n;
    const struct iovec *parts = place_of(large, &whole, &n);
    enum tutti_status status = TUTTI_OK;
    for (uint32_t i = 0; i < n && status == TUTTI_OK; i++) {
        const struct tutti_range range = {parts[i].iov_base, parts[i].iov_len, large->maker, large->device};
        status = exposed ? tutti_ofi_expose(rail, &range, false, &large->memory[i], &large->address, &large->key)
                         : tutti_ofi_register(rail, &range, &large->memory[i]);
    }
    ssize_t rc = status == TUTTI_OK ? 0 : status == TUTTI_AGAIN ? -FI_EAGAIN : -FI_ENOMEM;
    if (rc == 0 && !exposed) rc = access ? move_access(ofi, large) : move(ofi, large, parts, n);
    if (rc == 0) {
        large->stage = TUTTI_OFI_FLIES;
        if (!in) ofi->n_flying++;
        return true;
    }
    unregister(large);
    if (rc == -FI_EAGAIN) return false;
    tutti_log(TUTTI_LOG_WARN, "transport ofi: a payload of %zu bytes with member %u: %s", (size_t)large->bytes,
              peer->member, tutti_ofi_says(rc));
    tutti_ofi_large_done(ofi, large, TUTTI_ERR_PEER_DEAD);
    tutti_ofi_peer_ends(ofi, peer, TUTTI_ERR_PEER_DEAD);
    return true;
}

/* Reads a byte from where the put went. False: not now. */
static bool confirm(struct tutti_ofi *ofi, struct tutti_ofi_large *access)
{
    struct tutti_ofi_peer *peer = access->op.peer;
    const struct iovec byte = {peer->scratch + (access - peer->accesses), 1};
    const struct fi_rma_iov there = {.addr = access->address, .len = 1, .key = access->key};
    const struct fi_msg_rma message = {.msg_iov = &byte,
                                       .desc = &peer->memory.desc,
                                       .iov_count = 1,
                                       .addr = peer->addresses[access->rail],
                                       .rma_iov = &there,
                                       .rma_iov_count = 1,
                                       .context = &access->op};
    const ssize_t rc = fi_readmsg(ofi->rails[access->rail].ep, &message, FI_COMPLETION);
    if (rc == -FI_EAGAIN) return false;
    access->stage = TUTTI_OFI_FLIES;
    ofi->n_flying++;
    if (rc == 0) return true;
    tutti_ofi_large_done(ofi, access, TUTTI_ERR_PEER_DEAD);
    tutti_ofi_peer_ends(ofi, peer, TUTTI_ERR_PEER_DEAD);
    return true;
}

bool tutti_ofi_large_confirm(struct tutti_ofi *ofi, struct tutti_ofi_large *access)
{
    if (access->op.kind != TUTTI_OFI_PUT || ofi->delivers || access->confirms) return false;
    access->confirms = true;
    access->stage = TUTTI_OFI_GOES;
    ofi->n_flying--;
    if (!confirm(ofi, access)) tutti_ofi_peer_waits(ofi, access->op.peer);
    return true;
}

void tutti_ofi_large_start(struct tutti_ofi *ofi, struct tutti_ofi_large *access)
{
    access->stage = TUTTI_OFI_WAITS;
    if (!post(ofi, access)) tutti_ofi_peer_waits(ofi, access->op.peer);
}

bool tutti_ofi_large_submit(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer)
{
    bool all = true;
    if (!peer->met || peer->ended || !ofi->open) return true;
    for (uint32_t i = 0; i < TUTTI_OFI_LARGE; i++) {
        struct tutti_ofi_large *in = &peer->in[i], *out = &peer->out[i];
        if (in->stage == TUTTI_OFI_WAITS) all &= post(ofi, in);
        if (in->stage == TUTTI_OFI_FLIES && !in->told) all &= in->told = tutti_ofi_go_tell(ofi, peer, in);
        if (out->stage == TUTTI_OFI_GOES) all &= post(ofi, out);
    }
    for (uint32_t i = 0; i < TUTTI_OFI_ACCESSES; i++) {
        struct tutti_ofi_large *access = &peer->accesses[i];
        if (access->stage == TUTTI_OFI_WAITS) all &= post(ofi, access);
        if (access->stage == TUTTI_OFI_GOES) all &= confirm(ofi, access);
    }
    return all;
}

void tutti_ofi_large_written(struct tutti_ofi *ofi, uint64_t ticket)
{
    const uint32_t slot = ticket & ((1u << SLOT_BITS) - 1);
    const uint32_t member = (uint32_t)(ticket >> (SLOT_BITS + USE_BITS)) & ((1u << MEMBER_BITS) - 1);
    struct tutti_ofi_peer *peer = member < ofi->base.n ? ofi->members[member].peer : NULL;
    struct tutti_ofi_large *in = peer ? &peer->in[slot] : NULL;
    if (in && in->stage == TUTTI_OFI_FLIES && in->ticket == ticket) tutti_ofi_large_done(ofi, in, TUTTI_OK);
}

/* ---- its end ---- */

void tutti_ofi_large_over(struct tutti_ofi *ofi, struct tutti_ofi_large *large)
{
    struct tutti_ofi_peer *peer = large->op.peer;
    if (large->op.kind != TUTTI_OFI_LARGE_IN) {
        if (large->slab) peer->out_slab_used = false;
        tutti_ofi_room(ofi, peer);
    } else {
        if (large->slab) peer->in_slab_used = false;
        if (large->whole) peer->blocked = false;
        tutti_ofi_peer_ready(ofi, peer); /* the next one may have waited */
    }
    clear(large);
}

static void tell_later(struct tutti_ofi *ofi, struct tutti_ofi_large *large)
{
    large->next_over = NULL;
    *(ofi->first_over ? &ofi->last_over->next_over : &ofi->first_over) = large;
    ofi->last_over = large;
}

void tutti_ofi_large_done(struct tutti_ofi *ofi, struct tutti_ofi_large *large, enum tutti_status status)
{
    struct tutti_ofi_peer *peer = large->op.peer;
    const bool in = large->op.kind == TUTTI_OFI_LARGE_IN;
    if (!in && large->stage == TUTTI_OFI_FLIES) ofi->n_flying--;
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
        tell_later(ofi, large);
}

/* To oneself: what was lent for it is here. */
static void place_self(struct tutti_ofi *ofi, struct tutti_ofi_peer *self, struct tutti_ofi_large *in)
{
    for (uint32_t i = 0; i < TUTTI_OFI_LARGE; i++) {
        struct tutti_ofi_large *out = &self->out[i];
        if (out->stage != TUTTI_OFI_WAITS || out->number != in->number) continue;
        if (out->copy)
            memcpy(self->in_slab, out->copy, out->bytes);
        else
            gather(self->in_slab, out->parts, out->n);
        tutti_ofi_large_done(ofi, out, TUTTI_OK);
        tutti_ofi_large_done(ofi, in, TUTTI_OK);
        return;
    }
}

static uint64_t ticket_next(struct tutti_ofi *ofi, struct tutti_ofi_large *in)
{
    struct tutti_ofi_peer *peer = in->op.peer;
    const uint64_t use = in->n_uses++ & ((1u << USE_BITS) - 1);
    const uint64_t low =
        (uint64_t)(in - peer->in) | use << SLOT_BITS | (uint64_t)peer->member << (SLOT_BITS + USE_BITS);
    return ofi->ticket_wide ? low | ofi->next_tag << 32 : low;
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
    in->ticket = ticket_next(ofi, in);
    in->rail = peer->n_rails > 1 ? (uint8_t)(ofi->next_rail++ % peer->n_rails) : 0;
    in->stage = TUTTI_OFI_WAITS, in->told = false;
    if (in->slab) peer->in_slab_used = true;
    if (in->whole) peer->blocked = true;
    if (self)
        place_self(ofi, peer, in);
    else if (peer->ended)
        tutti_ofi_large_done(ofi, in, peer->status);
    else if (!tutti_ofi_large_submit(ofi, peer))
        tutti_ofi_peer_waits(ofi, peer);
}

bool tutti_ofi_large_tell(struct tutti_ofi *ofi, struct tutti_event *out)
{
    struct tutti_ofi_large *large;
    while ((large = ofi->first_over)) {
        ofi->first_over = large->next_over;
        const bool silent = large->silent; /* taken back meanwhile */
        *out = (struct tutti_event){.type = TUTTI_EVENT_DONE, .token = large->token, .status = large->status};
        tutti_ofi_large_over(ofi, large);
        if (!silent) return true;
    }
    return false;
}

/* ---- taken back ---- */

bool tutti_ofi_large_own(struct tutti_ofi_large *large)
{
    large->copy = tutti_alloc(large->bytes);
    if (large->copy && large->op.kind == TUTTI_OFI_LARGE_OUT) gather(large->copy, large->parts, large->n);
    return large->copy != NULL;
}

bool tutti_ofi_large_again(struct tutti_ofi *ofi, struct tutti_ofi_large *large)
{
    if (!large->again || large->op.peer->ended) return false;
    large->again = false;
    unregister(large);
    if (!tutti_ofi_large_own(large)) return false;
    large->stage = TUTTI_OFI_WAITS;
    tutti_ofi_peer_waits(ofi, large->op.peer);
    return true;
}

bool tutti_ofi_large_revoke(struct tutti_ofi *ofi, struct tutti_ofi_large *large)
{
    if (!ofi->rails[large->rail].enforced || !large->memory[0].mr) return false;
    unregister(large);
    return true;
}
