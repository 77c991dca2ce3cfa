/* SPDX-License-Identifier: BSD-3-Clause */
/* Progress, poll and sleep. */

#include "transport/ofi/state.h"

#include <sys/ioctl.h>

#define POLLS 64               /* that found nothing, between two looks at the sockets */
#define NAP_NS TUTTI_NS_PER_MS /* where the provider has no descriptor to sleep on, or something is due */
#define COMPLETIONS 64         /* at once, before what they brought is given out */

/* ---- progress ---- */

static void frame_completed(struct tutti_ofi *ofi, struct tutti_ofi_rx *rx, const struct tutti_ofi_completion *c)
{
    struct tutti_ofi_peer *from = NULL;
    struct tutti_ofi_go go;
    if (c->error) {
        tutti_ofi_post(ofi, rx);
        return;
    }
    if (!tutti_ofi_frame_came(ofi, rx, c->bytes, &from, &go)) return;
    if (!tutti_ofi_large_go(ofi, from, &go)) tutti_ofi_nonsense(ofi, from, "a place for a payload that it has");
}

static void large_completed(struct tutti_ofi *ofi, struct tutti_ofi_large *large, const struct tutti_ofi_completion *c)
{
    const bool in = large->op.kind == TUTTI_OFI_LARGE_IN;
    if (large->stage != TUTTI_OFI_FLIES) return;
    if (c->error == FI_ECANCELED && tutti_ofi_large_again(ofi, large)) return;
    if (!c->error && tutti_ofi_large_confirm(ofi, large)) return;
    const bool whole = !in || c->bytes == large->bytes;
    tutti_ofi_large_done(ofi, large, c->error ? TUTTI_ERR_PEER_DEAD : whole ? TUTTI_OK : TUTTI_ERR_PROTOCOL);
    if (!c->error || c->error == FI_ECANCELED) return; /* we asked for that */
    tutti_log(TUTTI_LOG_DEBUG, "transport ofi: a payload with member %u: %s", large->op.peer->member,
              tutti_ofi_says(c->error));
    tutti_ofi_peer_ends(ofi, large->op.peer, TUTTI_ERR_PEER_DEAD);
}

static void completed(struct tutti_ofi *ofi, const struct tutti_ofi_completion *c)
{
    if (!c->op) {
        if (!c->error) tutti_ofi_large_written(ofi, c->ticket);
    } else if (c->op->kind == TUTTI_OFI_RECEIVE) {
        frame_completed(ofi, (struct tutti_ofi_rx *)(void *)c->op, c);
    } else if (c->op->kind == TUTTI_OFI_FRAME || c->op->kind == TUTTI_OFI_CONTROL) {
        tutti_ofi_frame_sent(ofi, (struct tutti_ofi_tx *)(void *)c->op, c->error);
    } else {
        large_completed(ofi, (struct tutti_ofi_large *)(void *)c->op, c);
    }
}

static void submit_waiting(struct tutti_ofi *ofi)
{
    struct tutti_ofi_peer *peer = ofi->waiting;
    ofi->waiting = NULL;
    for (struct tutti_ofi_rx *rx; (rx = ofi->unposted);) {
        ofi->unposted = rx->next;
        tutti_ofi_post(ofi, rx);
        if (ofi->unposted == rx) break; /* the provider has enough: as one is used, another one is posted */
    }
    while (peer) {
        struct tutti_ofi_peer *next = peer->next_waits;
        peer->waits = false;
        const bool frames = tutti_ofi_frames_submit(ofi, peer), payloads = tutti_ofi_large_submit(ofi, peer);
        if (!frames || !payloads) tutti_ofi_peer_waits(ofi, peer);
        peer = next;
    }
}

void tutti_ofi_progress(struct tutti_ofi *ofi)
{
    struct tutti_ofi_completion completion;
    for (uint32_t i = 0; i < ofi->n_rails && ofi->open; i++)
        for (uint32_t n = 0; n < COMPLETIONS && tutti_ofi_rail_read(&ofi->rails[i], &completion); n++)
            completed(ofi, &completion);
    if (ofi->open && (ofi->waiting || ofi->unposted)) submit_waiting(ofi);
    tutti_ofi_endings(ofi);
}

/* ---- poll ---- */

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

/* The next event of a peer. AGAIN: none. */
static enum tutti_status deliver(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, struct tutti_event *out)
{
    if (peer->blocked) return deliver_whole(ofi, peer, out);
    struct tutti_ofi_large *in = NULL;
    struct tutti_ofi_rx *rx;
    struct tutti_packet packet;
    bool outside;
    TUTTI_TRY(tutti_ofi_frame_next(ofi, peer, &packet, &rx, &outside));
    if (!rx) return TUTTI_AGAIN;
    if (outside && (peer->in_slab_used || !(in = tutti_ofi_large_free(peer->in, TUTTI_OFI_LARGE)))) return TUTTI_AGAIN;
    if (outside && peer->ended) return TUTTI_AGAIN; /* its payload does not come any more */
    if (in) in->number = peer->taken, in->packet = packet, in->bytes = packet.bytes;
    tutti_ofi_frame_take(ofi, peer);
    ofi->given = peer, ofi->given_rx = rx, ofi->given_large = in;
    *out = (struct tutti_event){.type = in ? TUTTI_EVENT_HEADER : TUTTI_EVENT_ARRIVAL,
                                .packet = packet,
                                .payload = in ? NULL : rx->data + TUTTI_OFI_HEAD};
    return TUTTI_OK;
}

static enum tutti_status told_nonsense(struct tutti_ofi *ofi)
{
    const uint32_t member = ofi->nonsense;
    ofi->nonsense = TUTTI_OFI_NOBODY;
    return tutti_fail(TUTTI_ERR_PROTOCOL, "member %u sent to member %u what can not be", member, ofi->base.me);
}

enum tutti_status tutti_ofi_poll(struct tutti_transport *t, struct tutti_event *out)
{
    struct tutti_ofi *ofi = tutti_ofi_of(t);
    if (ofi->given) return tutti_fail(TUTTI_ERR_INTERNAL, "poll before the last event was released or answered");
    if (tutti_notices_any(&ofi->notices)) tutti_ofi_news(ofi);
    for (bool looked = false;; looked = true) {
        struct tutti_ofi_peer *peer;
        if (ofi->nonsense != TUTTI_OFI_NOBODY) return told_nonsense(ofi);
        if (ofi->first_over && tutti_ofi_large_tell(ofi, out)) return TUTTI_OK;
        while ((peer = tutti_ofi_ready_take(ofi)))
            if (deliver(ofi, peer, out) == TUTTI_OK) return TUTTI_OK;
        if (looked) return TUTTI_AGAIN;
        if (++ofi->n_polls >= POLLS) tutti_ofi_sockets(ofi);
        tutti_ofi_progress(ofi);
    }
}

bool tutti_ofi_holds(struct tutti_transport *t, uint32_t member)
{
    struct tutti_ofi *ofi = tutti_ofi_of(t);
    int bytes = 0;
    if (tutti_notices_any(&ofi->notices)) tutti_ofi_news(ofi);
    tutti_ofi_sockets(ofi);
    tutti_ofi_progress(ofi);
    const struct tutti_ofi_peer *peer = member < t->n ? ofi->members[member].peer : NULL;
    if (!peer || peer->ended) return false;
    if (peer->ending || peer->slots[peer->taken % TUTTI_OFI_CREDITS] || peer->blocked) return true;
    return peer->fd >= 0 && ioctl(peer->fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

/* Frames that wait to be sent, or to be sent again. */
static bool has_unsent(const struct tutti_ofi *ofi)
{
    for (const struct tutti_ofi_peer *peer = ofi->peers; peer; peer = peer->next)
        if (peer != ofi->self && !peer->ended && (peer->submitted != peer->filled || peer->failed)) return true;
    return false;
}

static bool owes(const struct tutti_ofi *ofi)
{
    return ofi->open && (ofi->n_flying > 0 || ofi->waiting || has_unsent(ofi));
}

bool tutti_ofi_owes(struct tutti_transport *t)
{
    struct tutti_ofi *ofi = tutti_ofi_of(t);
    if (!owes(ofi)) return false;
    tutti_ofi_progress(ofi); /* it may be over, and poll was not asked since */
    return owes(ofi);
}

/* ---- sleep ---- */

bool tutti_ofi_sleep_begin(struct tutti_transport *t, struct tutti_sources *sources)
{
    struct tutti_ofi *ofi = tutti_ofi_of(t);
    bool naps = !ofi->open;
    tutti_sources_add_fd(sources, ofi->notices.epoll);
    tutti_notices_sleep(&ofi->notices);
    const bool notices = tutti_notices_any(&ofi->notices);
    if (notices) tutti_ofi_news(ofi);
    tutti_ofi_sockets(ofi);
    tutti_ofi_progress(ofi);
    bool quiet = !notices && !ofi->first_ready && !ofi->first_over && !ofi->room && ofi->nonsense == TUTTI_OFI_NOBODY;
    ofi->room = false;
    for (uint32_t i = 0; i < ofi->n_rails && ofi->open; i++) naps |= ofi->rails[i].fd < 0;
    if (naps || ofi->waiting || ofi->n_ending > 0) tutti_sources_until(sources, tutti_deadline_ns(NAP_NS));
    for (uint32_t i = 0; i < ofi->n_rails && ofi->open && quiet; i++)
        quiet = tutti_ofi_rail_may_sleep(&ofi->rails[i]); /* else something came since */
    return tutti_notices_quiet(&ofi->notices) && quiet;
}

void tutti_ofi_sleep_end(struct tutti_transport *t)
{
    struct tutti_ofi *ofi = tutti_ofi_of(t);
    tutti_notices_awake(&ofi->notices);
    ofi->n_polls = POLLS; /* a socket may have ended the sleep */
}
