/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of the contract, but those of turn.c. */

#include "transport/network.h"
#include "transport/ofi/state.h"

#include <sched.h>
#include <unistd.h>

#define DIRECT ((size_t)4 << 20) /* bytes of a put or get: what the provider may have at once of a peer is bounded */
#define CANCEL_NS (10 * TUTTI_NS_PER_MS) /* for the provider to give memory back that was taken back */
#define FLUSH_NS TUTTI_NS_PER_S          /* that close gives peers to take what was sent: who computes does not poll */

/* ---- send ---- */

/* Nothing was sent to it yet, and it did not come. What is sent waits in its queue until it is met. */
static enum tutti_status reach(struct tutti_ofi *ofi, uint32_t member)
{
    struct tutti_ofi_member *m = &ofi->members[member];
    struct tutti_ofi_peer *peer;
    if (m->status < 0) return tutti_send_gone(member, m->status, 0);
    if (!m->peer) TUTTI_TRY(tutti_ofi_peer_make(ofi, member, &peer));
    if (member == ofi->base.me || m->dialed) return TUTTI_OK;
    m->dialed = true;
    ofi->dialer->dial(ofi->dialer, member);
    if (tutti_notices_any(&ofi->notices)) tutti_ofi_news(ofi);
    return TUTTI_OK;
}

static enum tutti_status try_send(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, const struct tutti_packet *packet,
                                  const struct tutti_span *spans, uint32_t n_spans, uint64_t token)
{
    if (!tutti_ofi_has_room(ofi, peer)) return TUTTI_AGAIN;
    if (packet->bytes > ofi->base.copied) return tutti_ofi_large_add(ofi, peer, packet, spans, n_spans, token);
    tutti_ofi_frame_add(ofi, peer, packet, spans, n_spans, false);
    return TUTTI_OK;
}

static enum tutti_status ofi_send(struct tutti_transport *t, uint32_t member, const struct tutti_packet *packet,
                                  const struct tutti_span *spans, uint32_t n_spans, uint64_t token)
{
    struct tutti_ofi *ofi = tutti_ofi_of(t);
    TUTTI_TRY(tutti_send_check(t, member, packet, spans, n_spans));
    struct tutti_ofi_member *m = &ofi->members[member];
    if (tutti_notices_is_cut(&ofi->notices, member))
        return tutti_fail(TUTTI_ERR_PEER_DEAD, TUTTI_SAYS_CLOSED ": the process of member %u died", member);
    if (!m->peer || (m->peer->fd < 0 && !m->dialed && !m->peer->ended)) TUTTI_TRY(reach(ofi, member));
    struct tutti_ofi_peer *peer = m->peer;
    if (peer->ended) return tutti_send_gone(member, peer->status, 0);
    enum tutti_status status = peer->ending ? TUTTI_AGAIN : try_send(ofi, peer, packet, spans, n_spans, token);
    if (status != TUTTI_AGAIN) return status;
    tutti_ofi_progress(ofi); /* credits may be here */
    if (!peer->ending && !peer->ended) status = try_send(ofi, peer, packet, spans, n_spans, token);
    if (status == TUTTI_AGAIN) peer->wants_room = true;
    return status;
}

/* ---- events that were given out ---- */

static void ofi_release(struct tutti_transport *t)
{
    struct tutti_ofi *ofi = tutti_ofi_of(t);
    if (!ofi->given) return;
    if (ofi->given_rx)
        tutti_ofi_frame_used(ofi, ofi->given, ofi->given_rx);
    else
        tutti_ofi_large_over(ofi, ofi->given_large);
    ofi->given = NULL;
}

static void ofi_place(struct tutti_transport *t, const struct tutti_target *targets, uint32_t n, uint64_t token)
{
    struct tutti_ofi *ofi = tutti_ofi_of(t);
    struct tutti_ofi_peer *peer = ofi->given;
    if (!peer || !ofi->given_large) return;
    ofi->given = NULL;
    tutti_ofi_frame_used(ofi, peer, ofi->given_rx);
    tutti_ofi_large_place(ofi, peer, ofi->given_large, targets, n, token);
}

/* ---- cancel ---- */

static void wait_for(struct tutti_ofi *ofi, const struct tutti_ofi_large *large, uint32_t number)
{
    const uint64_t until_ns = tutti_deadline_ns(CANCEL_NS);
    while (large->stage == TUTTI_OFI_FLIES && large->number == number && ofi->open && tutti_now_ns() < until_ns)
        tutti_ofi_progress(ofi);
}

/* The provider has it, or the peer was told of it: it is soon over, since both look after it. Memory of a receiver that
 * does not come back is revoked, which may cost the connection to that peer; where nobody can revoke, the endpoint
 * ends. What a sender lent is only read, for a peer that is out: that harms nobody. */
static void cancel_flying(struct tutti_ofi *ofi, struct tutti_ofi_large *large)
{
    struct tutti_ofi_peer *peer = large->op.peer;
    const uint32_t number = large->number;
    large->again =
        large->op.kind == TUTTI_OFI_LARGE_IN && !ofi->writes; /* what was not matched yet is received elsewhere */
    if (large->again) fi_cancel(&ofi->rails[large->rail].ep->fid, &large->op);
    wait_for(ofi, large, number);
    large->again = false;
    if (large->stage != TUTTI_OFI_FLIES || large->number != number || !large->silent || large->copy) return;
    tutti_log(TUTTI_LOG_INFO, "transport ofi: member %u is cut: a payload with it does not end", peer->member);
    if (tutti_ofi_fills(large) && !tutti_ofi_large_revoke(ofi, large))
        tutti_ofi_break(ofi, "its provider does not give memory back that was taken back");
    else
        tutti_ofi_peer_end(ofi, peer, TUTTI_ERR_PEER_DEAD);
}

static void cancel(struct tutti_ofi *ofi, struct tutti_ofi_large *large)
{
    large->silent = true; /* nothing is told of a message that has ended; nothing is scattered from the slab */
    if (large->stage == TUTTI_OFI_ENDED || large->slab) return;
    if (large->stage == TUTTI_OFI_FLIES)
        cancel_flying(ofi, large);
    else if (large->op.kind >= TUTTI_OFI_PUT)
        tutti_ofi_large_done(ofi, large, TUTTI_ERR_ABORTED);
    else if (!tutti_ofi_large_own(large))
        tutti_ofi_peer_end(ofi, large->op.peer, TUTTI_ERR_PEER_DEAD);
}

static void ofi_cancel(struct tutti_transport *t, uint64_t token)
{
    struct tutti_ofi *ofi = tutti_ofi_of(t);
    for (struct tutti_ofi_peer *peer = ofi->peers; peer; peer = peer->next) {
        for (uint32_t i = 0; i < TUTTI_OFI_LENT; i++) {
            struct tutti_ofi_large *large = &peer->lent[i];
            if (large->stage == TUTTI_OFI_FREE || large->silent || large->token != token) continue;
            cancel(ofi, large);
            return;
        }
    }
}

/* ---- what other threads tell ---- */

void tutti_ofi_connected(struct tutti_transport *t, uint32_t peer, int fd, struct tutti_stream *stream)
{
    tutti_notices_connected(&tutti_ofi_of(t)->notices, peer, fd, stream);
}

void tutti_ofi_failed(struct tutti_transport *t, uint32_t peer, enum tutti_status status)
{
    tutti_notices_failed(&tutti_ofi_of(t)->notices, peer, status);
}

static void ofi_cut(struct tutti_transport *t, uint32_t peer)
{
    tutti_notices_cut(&tutti_ofi_of(t)->notices, peer);
}

static void ofi_wake(struct tutti_transport *t)
{
    tutti_notices_wake(&tutti_ofi_of(t)->notices);
}

/* ---- close ---- */

static bool is_flushed(const struct tutti_ofi *ofi)
{
    for (const struct tutti_ofi_peer *peer = ofi->peers; peer; peer = peer->next)
        if (peer != ofi->self && peer->fd >= 0 && !peer->ended && (peer->submitted != peer->filled || peer->failed))
            return false;
    return ofi->n_flying == 0;
}

/* Whether somebody still has to take what was sent. */
static bool is_awaited(const struct tutti_ofi *ofi)
{
    for (const struct tutti_ofi_peer *peer = ofi->peers; peer; peer = peer->next)
        if (peer != ofi->self && peer->met && peer->fd >= 0 && !peer->ended && !peer->farewell) return true;
    return false;
}

static void drain(struct tutti_ofi *ofi, bool (*goes_on)(const struct tutti_ofi *ofi), bool on)
{
    const uint64_t until_ns = tutti_deadline_ns(FLUSH_NS);
    while (ofi->open && goes_on(ofi) == on && tutti_now_ns() < until_ns) {
        tutti_ofi_sockets(ofi);
        tutti_ofi_progress(ofi);
        sched_yield(); /* to those that it waits for */
    }
}

static void rails_close(struct tutti_ofi *ofi)
{
    for (uint32_t i = 0; i < ofi->n_rails; i++) tutti_ofi_rail_close(&ofi->rails[i]);
}

static void ofi_close(struct tutti_transport *t)
{
    struct tutti_ofi *ofi = tutti_ofi_of(t);
    tutti_ofi_news(ofi);
    drain(ofi, is_flushed, false);
    for (struct tutti_ofi_peer *peer = ofi->peers; peer; peer = peer->next) tutti_ofi_goodbye(peer);
    drain(ofi, is_awaited, true);
    tutti_ofi_break(ofi, NULL);
    for (struct tutti_ofi_peer *peer = ofi->peers, *next; peer; peer = next) {
        next = peer->next;
        tutti_ofi_peer_free(peer);
    }
    rails_close(ofi);
    tutti_unmap(ofi->members, t->n * sizeof(*ofi->members));
    tutti_notices_close(&ofi->notices);
    tutti_free(ofi);
}

/* ---- open ---- */

static const struct tutti_transport_ops ofi_ops = {
    .size = sizeof(ofi_ops),
    .close = ofi_close,
    .send = ofi_send,
    .poll = tutti_ofi_poll,
    .release = ofi_release,
    .place = ofi_place,
    .cancel = ofi_cancel,
    .sleep_begin = tutti_ofi_sleep_begin,
    .sleep_end = tutti_ofi_sleep_end,
    .wake = ofi_wake,
    .cut = ofi_cut,
    .holds = tutti_ofi_holds,
    .owes = tutti_ofi_owes,
    .direct = tutti_ofi_direct,
    .reg = tutti_ofi_reg,
    .unreg = tutti_ofi_unreg,
    .put = tutti_ofi_put,
    .get = tutti_ofi_get,
};

static enum tutti_status rails_open(struct tutti_ofi *ofi, const struct tutti_ofi_config *config)
{
    struct fi_info *infos[TUTTI_OFI_RAILS];
    enum tutti_status status = TUTTI_OK;
    TUTTI_TRY(tutti_ofi_choose(config, infos, &ofi->n_rails));
    for (uint32_t i = 0; i < ofi->n_rails; i++) {
        ofi->rails[i].info = infos[i], ofi->rails[i].next_key = ofi->next_tag;
        ofi->rails[i].ports = config->ports;
    }
    for (uint32_t i = 0; i < ofi->n_rails && status == TUTTI_OK; i++)
        status = tutti_ofi_rail_open(&ofi->rails[i], ofi->notices.epoll, config->registers);
    if (status < 0) {
        rails_close(ofi);
        return status;
    }
    const struct tutti_ofi_rail *rail = &ofi->rails[0];
    const bool can = (rail->info->caps & FI_RMA) && rail->info->domain_attr->cq_data_size >= 4;
    ofi->writes = can && (config->writes < 0 ? rail->enforced : config->writes > 0);
    ofi->delivers = tutti_ofi_delivers(rail->info);
    if ((rail->info->caps & FI_RMA) && config->writes != 0 &&
        (ofi->delivers || (rail->info->tx_attr->msg_order & FI_ORDER_RAW)))
        ofi->base.max_direct = rail->info->ep_attr->max_msg_size < DIRECT ? rail->info->ep_attr->max_msg_size : DIRECT;
    ofi->base.devices = config->devices && ofi->base.max_direct > 0 && (rail->info->caps & FI_HMEM);
    ofi->ticket_wide = rail->info->domain_attr->cq_data_size >= 8;
    ofi->base.copied = rail->local ? TUTTI_OFI_COPIED_LOCAL : TUTTI_OFI_COPIED;
    ofi->frame_bytes = TUTTI_OFI_HEAD + ofi->base.copied;
    ofi->open = true;
    return TUTTI_OK;
}

enum tutti_status tutti_ofi_open(const struct tutti_ofi_config *config, struct tutti_transport **out)
{
    if (config->me >= config->n)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "member %u does not exist: the world has %u", config->me, config->n);
    struct tutti_ofi *ofi = tutti_alloc(sizeof(*ofi));
    if (!ofi) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a transport");
    enum tutti_status status;
    ofi->base = (struct tutti_transport){
        .ops = &ofi_ops, .name = "ofi", .n = config->n, .me = config->me, .max_payload = TUTTI_OFI_PAYLOAD};
    ofi->dialer = config->dialer;
    ofi->nonsense = TUTTI_OFI_NOBODY;
    ofi->members = tutti_map_lazy(config->n * sizeof(*ofi->members));
    if (!ofi->members) {
        status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for a table of %u members", config->n);
        goto err_free;
    }
    TUTTI_TRY_GOTO(status, tutti_random_bytes(&ofi->next_tag, sizeof(ofi->next_tag)), err_unmap);
    TUTTI_TRY_GOTO(status, tutti_notices_open(&ofi->notices, "ofi", config->n, config->me), err_unmap);
    TUTTI_TRY_GOTO(status, rails_open(ofi, config), err_news);
    *out = &ofi->base;
    return TUTTI_OK;

err_news:
    tutti_notices_close(&ofi->notices);
err_unmap:
    tutti_unmap(ofi->members, config->n * sizeof(*ofi->members));
err_free:
    tutti_free(ofi);
    return status;
}
