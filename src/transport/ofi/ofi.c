/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of the contract. */

#include "transport/ofi/state.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define POLLS 64                         /* that found nothing, between two looks at the sockets */
#define FLUSH_NS (100 * TUTTI_NS_PER_MS) /* that close gives what was sent */
#define LINGER_NS (20 * TUTTI_NS_PER_MS) /* ... and peers to take it */
#define NAP_NS TUTTI_NS_PER_MS           /* where the provider has no descriptor to sleep on */

/* ---- send ---- */

static enum tutti_status gone(uint32_t peer, enum tutti_status status)
{
    if (status == TUTTI_ERR_PEER_LEFT) return tutti_fail(status, TUTTI_SAYS_CLOSED ": member %u has left", peer);
    if (status == TUTTI_ERR_PROTOCOL) return tutti_fail(status, "member %u broke the protocol before", peer);
    if (status != TUTTI_ERR_PEER_DEAD) return tutti_fail(status, "member %u can not be reached", peer);
    return tutti_fail(status, TUTTI_SAYS_CLOSED ": the socket of member %u ended", peer);
}

static enum tutti_status check_send(const struct tutti_transport *t, uint32_t peer, const struct tutti_packet *packet,
                                    const struct tutti_span *spans, uint32_t n_spans)
{
    size_t bytes = 0;
    if (peer >= t->n) return tutti_fail(TUTTI_ERR_ARGUMENT, "a packet to member %u of %u", peer, t->n);
    for (uint32_t i = 0; i < n_spans; i++) bytes += spans[i].bytes;
    if (bytes != packet->bytes || bytes > t->max_payload || n_spans > TUTTI_SPANS_MAX)
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "a packet of %u bytes (at most %zu) with %zu bytes of payload in %u spans", packet->bytes,
                          t->max_payload, bytes, n_spans);
    return TUTTI_OK;
}

/* Nothing was sent to it yet, and it did not come. What is sent waits in its queue until it is met. */
static enum tutti_status reach(struct tutti_ofi *ofi, uint32_t member)
{
    struct tutti_ofi_member *m = &ofi->members[member];
    struct tutti_ofi_peer *peer;
    if (m->status < 0) return gone(member, m->status);
    if (!m->peer) TUTTI_TRY(tutti_ofi_peer_make(ofi, member, &peer));
    if (member == ofi->base.me || m->dialed) return TUTTI_OK;
    m->dialed = true;
    ofi->dialer->dial(ofi->dialer, member);
    if (atomic_load(&ofi->news)) tutti_ofi_news(ofi);
    return TUTTI_OK;
}

static enum tutti_status try_send(struct tutti_ofi *ofi, struct tutti_ofi_peer *peer, const struct tutti_packet *packet,
                                  const struct tutti_span *spans, uint32_t n_spans, uint64_t token)
{
    const bool room = peer == ofi->self ? peer->filled - peer->acked < TUTTI_OFI_CREDITS : tutti_ofi_has_room(peer);
    if (!room) return TUTTI_AGAIN;
    if (packet->bytes > ofi->base.copied) return tutti_ofi_large_add(ofi, peer, packet, spans, n_spans, token);
    tutti_ofi_frame_add(ofi, peer, packet, spans, n_spans, NULL);
    return TUTTI_OK;
}

static enum tutti_status ofi_send(struct tutti_transport *t, uint32_t member, const struct tutti_packet *packet,
                                  const struct tutti_span *spans, uint32_t n_spans, uint64_t token)
{
    struct tutti_ofi *ofi = tutti_ofi_of(t);
    TUTTI_TRY(check_send(t, member, packet, spans, n_spans));
    struct tutti_ofi_member *m = &ofi->members[member];
    if (atomic_load_explicit(&m->cut, memory_order_relaxed))
        return tutti_fail(TUTTI_ERR_PEER_DEAD, TUTTI_SAYS_CLOSED ": the process of member %u died", member);
    if (!m->peer || (m->peer->fd < 0 && !m->dialed && !m->peer->ended)) TUTTI_TRY(reach(ofi, member));
    struct tutti_ofi_peer *peer = m->peer;
    if (peer->ended) return gone(member, peer->status);
    enum tutti_status status = peer->ending ? TUTTI_AGAIN : try_send(ofi, peer, packet, spans, n_spans, token);
    if (status != TUTTI_AGAIN) return status;
    tutti_ofi_progress(ofi); /* credits may be here */
    if (!peer->ending && !peer->ended) status = try_send(ofi, peer, packet, spans, n_spans, token);
    if (status == TUTTI_AGAIN) peer->wants_room = true;
    return status;
}

/* ---- events ---- */

static enum tutti_status ofi_poll(struct tutti_transport *t, struct tutti_event *out)
{
    struct tutti_ofi *ofi = tutti_ofi_of(t);
    if (ofi->given) return tutti_fail(TUTTI_ERR_INTERNAL, "poll before the last event was released or answered");
    if (atomic_load_explicit(&ofi->news, memory_order_relaxed)) tutti_ofi_news(ofi);
    for (bool looked = false;; looked = true) {
        struct tutti_ofi_peer *peer;
        if (ofi->n_over > 0 && tutti_ofi_large_tell(ofi, out)) return TUTTI_OK;
        while ((peer = tutti_ofi_ready_take(ofi))) {
            enum tutti_status status = tutti_ofi_deliver(ofi, peer, out);
            if (status != TUTTI_AGAIN) return status;
        }
        if (looked) return TUTTI_AGAIN;
        tutti_ofi_progress(ofi);
        if (++ofi->n_polls >= POLLS) tutti_ofi_sockets(ofi);
    }
}

static void ofi_release(struct tutti_transport *t)
{
    struct tutti_ofi *ofi = tutti_ofi_of(t);
    struct tutti_ofi_peer *peer = ofi->given;
    if (!peer) return;
    if (ofi->given_rx) {
        tutti_ofi_frame_used(ofi, peer, ofi->given_rx);
    } else {
        tutti_ofi_large_over(ofi, ofi->given_large);
    }
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

static void ofi_cancel(struct tutti_transport *t, uint64_t token)
{
    tutti_ofi_large_cancel(tutti_ofi_of(t), token);
}

static bool ofi_holds(struct tutti_transport *t, uint32_t member)
{
    struct tutti_ofi *ofi = tutti_ofi_of(t);
    if (atomic_load(&ofi->news)) tutti_ofi_news(ofi);
    tutti_ofi_sockets(ofi);
    tutti_ofi_progress(ofi);
    const struct tutti_ofi_peer *peer = member < t->n ? ofi->members[member].peer : NULL;
    return peer && !peer->ended && peer->slots[peer->taken % TUTTI_OFI_CREDITS];
}

static bool ofi_owes(struct tutti_transport *t)
{
    struct tutti_ofi *ofi = tutti_ofi_of(t);
    if (ofi->n_flying == 0 && !ofi->waits) return false;
    tutti_ofi_progress(ofi);
    return ofi->n_flying > 0 || ofi->waits;
}

/* ---- sleep ---- */

static bool ofi_sleep_begin(struct tutti_transport *t, struct tutti_sources *sources)
{
    struct tutti_ofi *ofi = tutti_ofi_of(t);
    struct fid *queue = ofi->cq ? &ofi->cq->fid : NULL;
    tutti_sources_add_fd(sources, ofi->epoll);
    atomic_store(&ofi->sleeping, true);
    const bool news = atomic_load(&ofi->news);
    if (news) tutti_ofi_news(ofi);
    tutti_ofi_sockets(ofi);
    tutti_ofi_progress(ofi);
    bool quiet = !news && !ofi->first_ready && ofi->n_over == 0 && !ofi->room;
    ofi->room = false;
    if (ofi->cq_fd < 0 || ofi->waits || ofi->n_ending > 0)
        tutti_sources_until(sources, tutti_deadline_ns(NAP_NS));
    else if (quiet && ofi->ep)
        quiet = fi_trywait(ofi->fabric, &queue, 1) == 0; /* else something came since */
    return !atomic_exchange(&ofi->woken, false) && !atomic_load(&ofi->news) && quiet;
}

static void ofi_sleep_end(struct tutti_transport *t)
{
    struct tutti_ofi *ofi = tutti_ofi_of(t);
    atomic_store_explicit(&ofi->sleeping, false, memory_order_relaxed);
    ofi->n_polls = POLLS; /* a socket may have ended the sleep */
}

/* ---- close ---- */

static bool is_flushed(const struct tutti_ofi *ofi)
{
    for (const struct tutti_ofi_peer *peer = ofi->peers; peer; peer = peer->next)
        if (peer != ofi->self && peer->fd >= 0 && !peer->ended && !peer->ending && peer->submitted != peer->filled)
            return false;
    return ofi->n_flying == 0;
}

/* Whether somebody may still have to take what was sent. */
static bool is_awaited(const struct tutti_ofi *ofi)
{
    for (const struct tutti_ofi_peer *peer = ofi->peers; peer; peer = peer->next)
        if (peer != ofi->self && peer->met && !peer->ended && !peer->ending && peer->acked != peer->submitted)
            return true;
    return false;
}

static void ofi_close(struct tutti_transport *t)
{
    struct tutti_ofi *ofi = tutti_ofi_of(t);
    const uint64_t flush_ns = tutti_deadline_ns(FLUSH_NS);
    tutti_ofi_news(ofi);
    while (ofi->ep && !is_flushed(ofi) && tutti_now_ns() < flush_ns) tutti_ofi_sockets(ofi), tutti_ofi_progress(ofi);
    for (struct tutti_ofi_peer *peer = ofi->peers; peer; peer = peer->next) tutti_ofi_goodbye(ofi, peer);
    const uint64_t linger_ns = tutti_deadline_ns(LINGER_NS);
    while (ofi->ep && is_awaited(ofi) && tutti_now_ns() < linger_ns) tutti_ofi_sockets(ofi), tutti_ofi_progress(ofi);
    tutti_ofi_break(ofi, NULL);
    while (ofi->peers) {
        struct tutti_ofi_peer *peer = ofi->peers;
        ofi->peers = peer->next;
        tutti_ofi_peer_free(ofi, peer);
    }
    tutti_ofi_endpoint_close(ofi);
    tutti_unmap(ofi->members, t->n * sizeof(*ofi->members));
    close(ofi->event);
    close(ofi->epoll);
    pthread_mutex_destroy(&ofi->lock);
    tutti_free(ofi);
}

/* ---- open ---- */

static const struct tutti_transport_ops ofi_ops = {
    .size = sizeof(ofi_ops),
    .close = ofi_close,
    .send = ofi_send,
    .poll = ofi_poll,
    .release = ofi_release,
    .place = ofi_place,
    .cancel = ofi_cancel,
    .sleep_begin = ofi_sleep_begin,
    .sleep_end = ofi_sleep_end,
    .wake = tutti_ofi_wake,
    .cut = tutti_ofi_cut,
    .holds = ofi_holds,
    .owes = ofi_owes,
};

static enum tutti_status open_epoll(struct tutti_ofi *ofi)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    ofi->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (ofi->epoll < 0) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "transport ofi: no epoll");
    ofi->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ofi->event >= 0 && epoll_ctl(ofi->epoll, EPOLL_CTL_ADD, ofi->event, &event) == 0) return TUTTI_OK;
    tutti_fail_errno(TUTTI_ERR_SYSTEM, "transport ofi: no eventfd");
    if (ofi->event >= 0) close(ofi->event);
    close(ofi->epoll);
    return TUTTI_ERR_SYSTEM;
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
    ofi->first_told = TUTTI_OFI_NOBODY;
    ofi->members = tutti_map_lazy(config->n * sizeof(*ofi->members));
    if (!ofi->members) {
        status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for a table of %u members", config->n);
        goto err_free;
    }
    TUTTI_TRY_GOTO(status, tutti_random_bytes(&ofi->next_tag, sizeof(ofi->next_tag)), err_unmap);
    TUTTI_TRY_GOTO(status, open_epoll(ofi), err_unmap);
    TUTTI_TRY_GOTO(status, tutti_ofi_endpoint_open(ofi, config), err_epoll);
    ofi->base.copied = ofi->local ? TUTTI_OFI_COPIED_LOCAL : TUTTI_OFI_COPIED;
    ofi->frame_bytes = (TUTTI_OFI_HEAD + ofi->base.copied + 63) / 64 * 64;
    pthread_mutex_init(&ofi->lock, NULL);
    *out = &ofi->base;
    return TUTTI_OK;

err_epoll:
    close(ofi->event);
    close(ofi->epoll);
err_unmap:
    tutti_unmap(ofi->members, config->n * sizeof(*ofi->members));
err_free:
    tutti_free(ofi);
    return status;
}
