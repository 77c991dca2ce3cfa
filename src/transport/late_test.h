/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_LATE_TEST_H
#define TUTTI_TRANSPORT_LATE_TEST_H

/* "late": a transport that is unlike those of one host, for the tests of the contract and of the engine. Its members
 * are threads of one process. A payload above LATE_COPIED bytes is borrowed from the sender until the receiver has
 * placed it, and is read at the last moment: whoever writes to it too early breaks the sum. A target holds nonsense
 * until its completion: whoever reads it too early breaks the sum, too. Heads go through the codec. No peer's memory
 * can be reached. Time is that of a clock, which may be virtual. */

#include "base/clock.h"
#include "transport/transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { LATE_COPIED = 4096, LATE_PAYLOAD = 1 << 18, LATE_ROOM = 64 /* packets from one member under way to another */ };

enum late_state { LATE_SENT, LATE_GIVEN, LATE_PLACED, LATE_OVER };
struct late_message {
    struct late_message *next;
    uint8_t head[TUTTI_PACKET_WIRE_BYTES];
    uint32_t from, to, bytes, n_spans, n_targets;
    enum late_state state;
    bool borrowed, whole;                /* whole: the receiver wants it as an arrival */
    uint64_t due_ns, token, place_token; /* the sender's completion; the receiver's */
    enum tutti_status status;            /* both ends' */
    struct tutti_span spans[64];
    struct tutti_target targets[64];
    _Alignas(16) unsigned char payload[]; /* copied, or as an arrival */
};
struct late_member;
struct late_net {
    pthread_mutex_t lock;
    const struct tutti_clock *clock;
    uint64_t latency_ns;
    uint32_t n;
    struct late_member **members; /* NULL: not open */
    bool *left, *dead;
    uint32_t *n_under_way; /* from * n + to */
    struct late_message *first, **end;
};
struct late_member {
    struct tutti_transport base; /* first */
    struct late_net *net;
    struct late_message *given; /* unreleased arrival or unanswered header */
    _Atomic uint32_t word;
    bool woken, wants_room;
    uint32_t cursor; /* peers take turns */
};

static inline struct late_member *late_wire_of(struct tutti_transport *t)
{
    return (struct late_member *)(void *)t;
}

/* With the lock. */
static inline void late_ring(struct late_net *net, uint32_t member)
{
    if (!net->members[member]) return;
    atomic_fetch_add(&net->members[member]->word, 1);
    tutti_futex_wake(&net->members[member]->word, 1);
}

static inline void late_copy(struct late_message *m, bool nonsense)
{
    size_t i = 0, at = 0;
    for (uint32_t k = 0; k < m->n_targets; k++) {
        unsigned char *to = m->targets[k].base;
        for (size_t done = 0; done < m->targets[k].bytes;) {
            size_t n = m->targets[k].bytes - done;
            if (nonsense) {
                memset(to, 0xa5, n);
                break;
            }
            if (m->spans[i].bytes - at < n) n = m->spans[i].bytes - at;
            if (n > 0) memmove(to + done, (const unsigned char *)m->spans[i].base + at, n);
            done += n, at += n;
            if (at == m->spans[i].bytes && done < m->targets[k].bytes) i++, at = 0;
        }
    }
}

static inline enum tutti_status late_gone(const struct late_net *net, uint32_t peer)
{
    if (net->dead[peer]) return TUTTI_ERR_PEER_DEAD;
    return net->left[peer] ? TUTTI_ERR_PEER_LEFT : TUTTI_OK;
}

static inline enum tutti_status late_send(struct tutti_transport *t, uint32_t peer, const struct tutti_packet *packet,
                                          const struct tutti_span *spans, uint32_t n_spans, uint64_t token)
{
    struct late_net *net = late_wire_of(t)->net;
    size_t bytes = 0;
    if (peer >= t->n) return tutti_fail(TUTTI_ERR_ARGUMENT, "a packet to member %u of %u", peer, t->n);
    for (uint32_t i = 0; i < n_spans; i++) bytes += spans[i].bytes;
    if (bytes != packet->bytes || bytes > t->max_payload || n_spans > 64)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "a packet of %u bytes with %zu bytes of payload", packet->bytes, bytes);
    struct late_message *m = calloc(1, sizeof(*m) + LATE_PAYLOAD);
    if (!m) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a packet");
    pthread_mutex_lock(&net->lock);
    enum tutti_status status = late_gone(net, peer);
    if (status < 0) {
        tutti_fail(status, "member %u is gone", peer);
    } else if (net->n_under_way[t->me * net->n + peer] >= LATE_ROOM) {
        late_wire_of(t)->wants_room = true;
        status = TUTTI_AGAIN;
    }
    if (status != TUTTI_OK) {
        pthread_mutex_unlock(&net->lock);
        free(m);
        return status;
    }
    struct tutti_packet stamped = *packet;
    stamped.version = TUTTI_WIRE_VERSION, stamped.source = t->me;
    tutti_packet_encode(&stamped, m->head);
    m->from = t->me, m->to = peer, m->bytes = (uint32_t)bytes, m->token = token;
    m->borrowed = bytes > t->copied;
    m->due_ns = tutti_clock_deadline(net->clock, net->latency_ns);
    m->n_spans = n_spans;
    if (n_spans > 0) memcpy(m->spans, spans, n_spans * sizeof(*spans));
    if (!m->borrowed && bytes > 0) {
        m->targets[0] = (struct tutti_target){m->payload, bytes}, m->n_targets = 1;
        late_copy(m, false);
    }
    *net->end = m, net->end = &m->next;
    net->n_under_way[t->me * net->n + peer]++;
    late_ring(net, peer);
    status = m->borrowed ? TUTTI_PENDING : TUTTI_OK; /* without the lock its receiver may free it */
    pthread_mutex_unlock(&net->lock);
    return status;
}

/* With the lock: takes *at off the list. */
static inline void late_drop(struct late_net *net, struct late_message **at)
{
    struct late_message *m = *at;
    *at = m->next;
    if (net->end == &m->next) net->end = at;
    free(m);
}

static inline void late_room(struct late_net *net, const struct late_message *m)
{
    net->n_under_way[m->from * net->n + m->to]--;
    late_ring(net, m->from);
}

/* With the lock: what a message has for this member now. True: *out is filled in. */
static inline bool late_event(struct late_member *me, struct late_message *m, struct tutti_event *out)
{
    struct late_net *net = me->net;
    const bool due = m->due_ns <= tutti_clock_now(net->clock);
    if (m->state == LATE_OVER && m->from == me->base.me && m->borrowed) {
        *out = (struct tutti_event){.type = TUTTI_EVENT_DONE, .token = m->token, .status = m->status};
        m->borrowed = false;
        return true;
    }
    if (m->to != me->base.me || !due) return false;
    if (m->state == LATE_SENT) {
        if (tutti_packet_decode(m->head, sizeof(m->head), &out->packet) < 0) abort();
        out->type = m->borrowed ? TUTTI_EVENT_HEADER : TUTTI_EVENT_ARRIVAL;
        out->payload = m->payload;
        m->state = LATE_GIVEN, me->given = m;
        return true;
    }
    if (m->state == LATE_PLACED) {
        late_copy(m, false);
        m->state = m->whole ? LATE_GIVEN : LATE_OVER;
        out->type = m->whole ? TUTTI_EVENT_ARRIVAL : TUTTI_EVENT_DONE;
        if (m->whole && tutti_packet_decode(m->head, sizeof(m->head), &out->packet) < 0) abort();
        out->payload = m->payload, out->token = m->place_token, out->status = m->status;
        if (m->whole) me->given = m;
        if (!m->whole) late_room(net, m);
        return true;
    }
    return false;
}

/* With the lock: drops a message that is over. */
static inline void late_drop_over(struct late_net *net)
{
    for (struct late_message **at = &net->first; *at;)
        if ((*at)->state == LATE_OVER && !(*at)->borrowed)
            late_drop(net, at);
        else
            at = &(*at)->next;
}

/* With the lock: the next event with this peer, in the order of its sends. */
static inline bool late_poll_peer(struct late_member *me, uint32_t peer, struct tutti_event *out)
{
    bool waits = false; /* something of the peer is under way: nothing may overtake it */
    for (struct late_message *m = me->net->first; m; m = m->next) {
        const bool comes = m->to == me->base.me && m->from == peer;
        if (!comes && !(m->from == me->base.me && m->to == peer)) continue;
        if (!(comes && m->state == LATE_SENT && waits) && late_event(me, m, out)) return true;
        waits |= comes && (m->state == LATE_SENT || (m->state == LATE_PLACED && m->whole));
    }
    return false;
}

static inline enum tutti_status late_poll(struct tutti_transport *t, struct tutti_event *out)
{
    struct late_member *me = late_wire_of(t);
    struct late_net *net = me->net;
    bool any = false;
    if (me->given) return tutti_fail(TUTTI_ERR_INTERNAL, "poll before the last event was answered");
    pthread_mutex_lock(&net->lock);
    for (uint32_t k = 0; k < net->n && !any; k++) {
        const uint32_t peer = (me->cursor + k) % net->n;
        any = late_poll_peer(me, peer, out);
        if (any) me->cursor = peer + 1;
    }
    late_drop_over(net);
    pthread_mutex_unlock(&net->lock);
    return any ? TUTTI_OK : TUTTI_AGAIN;
}

static inline void late_release(struct tutti_transport *t)
{
    struct late_member *me = late_wire_of(t);
    if (!me->given) return;
    pthread_mutex_lock(&me->net->lock);
    me->given->state = LATE_OVER;
    late_room(me->net, me->given);
    me->given = NULL;
    pthread_mutex_unlock(&me->net->lock);
}

static inline void late_place(struct tutti_transport *t, const struct tutti_target *targets, uint32_t n, uint64_t token)
{
    struct late_member *me = late_wire_of(t);
    struct late_message *m = me->given;
    pthread_mutex_lock(&me->net->lock);
    m->state = LATE_PLACED, m->place_token = token, m->whole = n == 0;
    m->due_ns = tutti_clock_deadline(me->net->clock, me->net->latency_ns);
    m->targets[0] = (struct tutti_target){m->payload, m->bytes}, m->n_targets = n ? n : 1;
    if (n > 0) memcpy(m->targets, targets, n * sizeof(*targets));
    late_copy(m, true);
    me->given = NULL;
    pthread_mutex_unlock(&me->net->lock);
}

/* With the lock: gives a sender its spans back; what it sent gets there from a copy. */
static inline void late_withdraw(struct late_message *m)
{
    size_t at = 0;
    for (uint32_t i = 0; m->state != LATE_OVER && i < m->n_spans; at += m->spans[i++].bytes)
        memcpy(m->payload + at, m->spans[i].base, m->spans[i].bytes);
    m->spans[0] = (struct tutti_span){m->payload, m->bytes}, m->n_spans = 1;
    m->borrowed = false;
}

static inline void late_cancel(struct tutti_transport *t, uint64_t token)
{
    struct late_net *net = late_wire_of(t)->net;
    pthread_mutex_lock(&net->lock);
    for (struct late_message *m = net->first; m; m = m->next) {
        if (m->from == t->me && m->borrowed && m->token == token) late_withdraw(m);
        if (m->to == t->me && m->state == LATE_PLACED && !m->whole && m->place_token == token) {
            m->state = LATE_OVER;
            late_room(net, m);
        }
    }
    pthread_mutex_unlock(&net->lock);
}

static inline bool late_sleep_begin(struct tutti_transport *t, struct tutti_sources *sources)
{
    struct late_member *me = late_wire_of(t);
    struct late_net *net = me->net;
    const uint64_t now = tutti_clock_now(net->clock);
    pthread_mutex_lock(&net->lock);
    bool quiet = !me->woken, full = false;
    for (uint32_t peer = 0; peer < net->n; peer++) full |= net->n_under_way[t->me * net->n + peer] >= LATE_ROOM;
    if (me->wants_room && !full) quiet = false, me->wants_room = false;
    me->woken = false;
    tutti_sources_add_word(sources, &me->word, atomic_load(&me->word));
    for (struct late_message *m = net->first; m; m = m->next) {
        if (m->state == LATE_OVER && m->from == t->me && m->borrowed) quiet = false;
        if (m->to != t->me || (m->state != LATE_SENT && m->state != LATE_PLACED)) continue;
        tutti_sources_until(sources, m->due_ns);
        if (m->due_ns <= now) quiet = false;
    }
    pthread_mutex_unlock(&net->lock);
    return quiet;
}

static inline void late_sleep_end(struct tutti_transport *t)
{
    (void)t;
}

static inline void late_wake(struct tutti_transport *t)
{
    struct late_member *me = late_wire_of(t);
    pthread_mutex_lock(&me->net->lock);
    me->woken = true;
    late_ring(me->net, t->me);
    pthread_mutex_unlock(&me->net->lock);
}

/* With the lock: what `me` sent to the peer, which has not taken it, comes back with this status. */
static inline void late_end(struct late_net *net, uint32_t me, uint32_t peer, enum tutti_status status)
{
    for (struct late_message *m = net->first; m; m = m->next) {
        if (m->from != me || m->to != peer || !m->borrowed || m->state == LATE_OVER) continue;
        if (net->members[peer] && m->state != LATE_SENT) continue; /* it is about to be read: over soon */
        m->state = LATE_OVER, m->status = status;
        net->n_under_way[me * net->n + peer]--;
    }
}

static inline void late_cut(struct tutti_transport *t, uint32_t peer)
{
    struct late_net *net = late_wire_of(t)->net;
    if (peer >= net->n) return;
    pthread_mutex_lock(&net->lock);
    net->dead[peer] = true;
    late_end(net, t->me, peer, TUTTI_ERR_PEER_DEAD);
    late_ring(net, t->me);
    pthread_mutex_unlock(&net->lock);
}

static inline void late_wire_close(struct tutti_transport *t)
{
    struct late_net *net = late_wire_of(t)->net;
    pthread_mutex_lock(&net->lock);
    net->left[t->me] = true, net->members[t->me] = NULL;
    for (uint32_t i = 0; i < net->n; i++) {
        late_end(net, i, t->me, TUTTI_ERR_PEER_LEFT);
        late_ring(net, i);
    }
    for (struct late_message *m = net->first; m; m = m->next)
        if (m->from == t->me && m->borrowed) late_withdraw(m);
    for (struct late_message **at = &net->first; *at;)
        if ((*at)->to == t->me && (*at)->state != LATE_OVER)
            late_drop(net, at);
        else
            at = &(*at)->next;
    pthread_mutex_unlock(&net->lock);
    free(t);
}

static inline struct late_net *late_net_make(uint32_t n, const struct tutti_clock *clock, uint64_t latency_ns)
{
    struct late_net *net = calloc(1, sizeof(*net));
    net->members = calloc(n, sizeof(*net->members)), net->n_under_way = calloc((size_t)n * n, sizeof(uint32_t));
    net->left = calloc(n, 1), net->dead = calloc(n, 1);
    net->n = n, net->clock = clock, net->latency_ns = latency_ns, net->end = &net->first;
    pthread_mutex_init(&net->lock, NULL);
    return net;
}

static inline void late_net_free(struct late_net *net)
{
    while (net->first) late_drop(net, &net->first);
    pthread_mutex_destroy(&net->lock);
    free(net->members), free(net->n_under_way), free(net->left), free(net->dead);
    free(net);
}

/* A member opens once. */
static inline struct tutti_transport *late_wire_open(struct late_net *net, uint32_t me)
{
    static const struct tutti_transport_ops ops = {.size = sizeof(ops),
                                                   .close = late_wire_close,
                                                   .send = late_send,
                                                   .poll = late_poll,
                                                   .release = late_release,
                                                   .place = late_place,
                                                   .cancel = late_cancel,
                                                   .sleep_begin = late_sleep_begin,
                                                   .sleep_end = late_sleep_end,
                                                   .wake = late_wake,
                                                   .cut = late_cut};
    struct late_member *member = calloc(1, sizeof(*member));
    member->base = (struct tutti_transport){
        .ops = &ops, .name = "late", .n = net->n, .me = me, .max_payload = LATE_PAYLOAD, .copied = LATE_COPIED};
    member->net = net;
    net->members[me] = member;
    return &member->base;
}

#endif
