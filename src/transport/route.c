/* SPDX-License-Identifier: BSD-3-Clause */
/* A table says for each peer which inner transport carries its packets, and one table for each inner transport leads
 * back from a number there to the member of the world. Tokens are the caller's and pass through as they are. */

#include "transport/route.h"

#define NO_MEMBER UINT32_MAX

struct route {
    struct tutti_transport base; /* first */
    struct tutti_memory memory;
    struct tutti_memory *shared; /* the inner memory that alloc, free and locate use. NULL: none */
    struct tutti_route_peer *peers;
    struct tutti_transport *inner[TUTTI_ROUTE_MAX_INNER];
    uint32_t *members[TUTTI_ROUTE_MAX_INNER]; /* number there -> member of the world, or NO_MEMBER */
    uint32_t n_inner;
    uint32_t cursor;               /* the inner transport that is polled first */
    struct tutti_transport *given; /* gave the ARRIVAL or HEADER that is not released or answered. NULL: none */
};

static struct route *route_of(struct tutti_transport *t)
{
    return (struct route *)(void *)t;
}

static struct tutti_transport *inner_of(const struct route *route, uint32_t peer)
{
    return route->inner[route->peers[peer].inner];
}

/* ---- packets ---- */

static enum tutti_status route_send(struct tutti_transport *t, uint32_t peer, const struct tutti_packet *packet,
                                    const struct tutti_span *spans, uint32_t n_spans, uint64_t token)
{
    struct route *route = route_of(t);
    if (peer >= t->n) return tutti_fail(TUTTI_ERR_ARGUMENT, "a packet to member %u of %u", peer, t->n);
    if (packet->bytes > t->max_payload)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "a packet of %u bytes (at most %zu) to member %u", packet->bytes,
                          t->max_payload, peer);
    struct tutti_transport *inner = inner_of(route, peer);
    return inner->ops->send(inner, route->peers[peer].member, packet, spans, n_spans, token);
}

/* Writes the sender's number in the world into the packet. PROTOCOL, and the packet is on its way out of the inner
 * transport, if it may not come this way. */
static enum tutti_status admit(struct route *route, uint32_t i, struct tutti_event *event)
{
    struct tutti_transport *inner = route->inner[i];
    const uint32_t there = event->packet.source;
    const uint32_t member = there < inner->n ? route->members[i][there] : NO_MEMBER;
    if (member != NO_MEMBER && event->packet.bytes <= route->base.max_payload) {
        event->packet.source = member;
        route->given = inner;
        return TUTTI_OK;
    }
    if (event->type == TUTTI_EVENT_HEADER)
        inner->ops->place(inner, NULL, 0, 0); /* it comes again as an arrival, which is dropped then */
    else
        inner->ops->release(inner);
    if (member == NO_MEMBER)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "member %u of transport %s sent to member %u, which has no route to it",
                          there, inner->name, route->base.me);
    return tutti_fail(TUTTI_ERR_PROTOCOL, "member %u sent a packet of %u bytes to member %u, which takes %zu", member,
                      event->packet.bytes, route->base.me, route->base.max_payload);
}

/* The inner transports take turns, and each one is fair between its own peers. */
static enum tutti_status route_poll(struct tutti_transport *t, struct tutti_event *out)
{
    struct route *route = route_of(t);
    if (route->given) return tutti_fail(TUTTI_ERR_INTERNAL, "poll before the last event was released or answered");
    for (uint32_t k = 0; k < route->n_inner; k++) {
        const uint32_t i = route->cursor;
        route->cursor = i + 1 < route->n_inner ? i + 1 : 0;
        enum tutti_status status = route->inner[i]->ops->poll(route->inner[i], out);
        if (status == TUTTI_AGAIN) continue;
        return status == TUTTI_OK && out->type != TUTTI_EVENT_DONE ? admit(route, i, out) : status;
    }
    return TUTTI_AGAIN;
}

static void route_release(struct tutti_transport *t)
{
    struct tutti_transport *inner = route_of(t)->given;
    route_of(t)->given = NULL;
    if (inner) inner->ops->release(inner);
}

static void route_place(struct tutti_transport *t, const struct tutti_target *targets, uint32_t n, uint64_t token)
{
    struct tutti_transport *inner = route_of(t)->given;
    route_of(t)->given = NULL;
    if (inner) inner->ops->place(inner, targets, n, token);
}

/* Who has the token is not remembered: for the others it is a token that is not out. */
static void route_cancel(struct tutti_transport *t, uint64_t token)
{
    struct route *route = route_of(t);
    for (uint32_t i = 0; i < route->n_inner; i++)
        if (route->inner[i]->ops->cancel) route->inner[i]->ops->cancel(route->inner[i], token);
}

/* ---- sleep ---- */

/* Asks all, even after a no: a wake was told to all of them, and is over for all of them with this sleep. */
static bool route_sleep_begin(struct tutti_transport *t, struct tutti_sources *sources)
{
    struct route *route = route_of(t);
    bool quiet = true;
    for (uint32_t i = 0; i < route->n_inner; i++)
        if (!route->inner[i]->ops->sleep_begin(route->inner[i], sources)) quiet = false;
    return quiet;
}

static void route_sleep_end(struct tutti_transport *t)
{
    struct route *route = route_of(t);
    for (uint32_t i = 0; i < route->n_inner; i++) route->inner[i]->ops->sleep_end(route->inner[i]);
}

static void route_wake(struct tutti_transport *t)
{
    struct route *route = route_of(t);
    for (uint32_t i = 0; i < route->n_inner; i++) route->inner[i]->ops->wake(route->inner[i]);
}

/* ---- peers ---- */

static void route_cut(struct tutti_transport *t, uint32_t peer)
{
    if (peer >= t->n) return;
    struct tutti_transport *inner = inner_of(route_of(t), peer);
    inner->ops->cut(inner, route_of(t)->peers[peer].member);
}

static bool route_holds(struct tutti_transport *t, uint32_t peer)
{
    if (peer >= t->n) return false;
    struct tutti_transport *inner = inner_of(route_of(t), peer);
    return inner->ops->holds && inner->ops->holds(inner, route_of(t)->peers[peer].member);
}

static void route_failed(struct tutti_transport *t, const char *why)
{
    struct route *route = route_of(t);
    for (uint32_t i = 0; i < route->n_inner; i++)
        if (route->inner[i]->ops->failed) route->inner[i]->ops->failed(route->inner[i], why);
}

/* ---- memory ---- */

static struct route *memory_route(const struct tutti_memory *m)
{
    return (struct route *)(void *)((uintptr_t)m - offsetof(struct route, memory));
}

static enum tutti_status route_alloc(struct tutti_memory *m, size_t bytes, void **out)
{
    struct tutti_memory *shared = memory_route(m)->shared;
    return shared->ops->alloc(shared, bytes, out);
}

static enum tutti_status route_free(struct tutti_memory *m, void *pointer)
{
    struct tutti_memory *shared = memory_route(m)->shared;
    return shared->ops->free(shared, pointer);
}

static bool route_locate(struct tutti_memory *m, const void *pointer, size_t bytes, uint64_t *where)
{
    struct tutti_memory *shared = memory_route(m)->shared;
    return shared->ops->locate(shared, pointer, bytes, where);
}

static bool route_reaches(const struct tutti_memory *m, uint32_t peer)
{
    const struct route *route = memory_route(m);
    if (peer >= route->base.n) return false;
    const struct tutti_memory *inner = inner_of(route, peer)->memory;
    const bool one = inner == route->shared || (tutti_memory_is_one(inner) && tutti_memory_is_one(route->shared));
    return one && tutti_memory_reaches(inner, route->peers[peer].member);
}

static void *route_map(struct tutti_memory *m, uint32_t peer, uint64_t where, size_t bytes)
{
    const struct route *route = memory_route(m);
    if (!route_reaches(m, peer)) return NULL;
    struct tutti_memory *inner = inner_of(route, peer)->memory;
    return inner->ops->map(inner, route->peers[peer].member, where, bytes);
}

/* ---- open and close ---- */

static void tables_free(struct route *route)
{
    for (uint32_t i = 0; i < TUTTI_ROUTE_MAX_INNER; i++) tutti_free(route->members[i]);
    tutti_free(route->peers);
    tutti_free(route);
}

static void route_close(struct tutti_transport *t)
{
    struct route *route = route_of(t);
    for (uint32_t i = 0; i < route->n_inner; i++) route->inner[i]->ops->close(route->inner[i]);
    tables_free(route);
}

static const struct tutti_transport_ops route_ops = {.size = sizeof(route_ops),
                                                     .close = route_close,
                                                     .send = route_send,
                                                     .poll = route_poll,
                                                     .release = route_release,
                                                     .place = route_place,
                                                     .cancel = route_cancel,
                                                     .sleep_begin = route_sleep_begin,
                                                     .sleep_end = route_sleep_end,
                                                     .wake = route_wake,
                                                     .cut = route_cut,
                                                     .holds = route_holds,
                                                     .failed = route_failed};
static const struct tutti_memory_ops route_memory_ops = {.size = sizeof(route_memory_ops),
                                                         .alloc = route_alloc,
                                                         .free = route_free,
                                                         .locate = route_locate,
                                                         .map = route_map,
                                                         .reaches = route_reaches};

static enum tutti_status add_inner(struct route *route, struct tutti_transport *inner)
{
    const uint32_t i = route->n_inner++;
    struct tutti_transport *base = &route->base;
    route->inner[i] = inner;
    route->members[i] = tutti_alloc_array(inner->n, sizeof(uint32_t));
    if (!route->members[i]) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a route to %u members", inner->n);
    for (uint32_t there = 0; there < inner->n; there++) route->members[i][there] = NO_MEMBER;
    if (i == 0 || inner->max_payload < base->max_payload) base->max_payload = inner->max_payload;
    if (i == 0 || inner->copied < base->copied) base->copied = inner->copied;
    if (!route->shared) route->shared = inner->memory;
    return TUTTI_OK;
}

static enum tutti_status add_peer(struct route *route, uint32_t member, struct tutti_route_peer peer)
{
    if (peer.inner >= route->n_inner || peer.member >= route->inner[peer.inner]->n)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "the route to member %u is by member %u of transport %u: there is none",
                          member, peer.member, peer.inner);
    uint32_t *taken = &route->members[peer.inner][peer.member];
    if (*taken != NO_MEMBER)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "members %u and %u have one route: member %u of transport %u", *taken,
                          member, peer.member, peer.inner);
    if ((peer.member == route->inner[peer.inner]->me) != (member == route->base.me))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "the route to member %u is by member %u of transport %u, where %u is %u",
                          member, peer.member, peer.inner, route->base.me, route->inner[peer.inner]->me);
    *taken = member;
    route->peers[member] = peer;
    return TUTTI_OK;
}

enum tutti_status tutti_route_open(struct tutti_transport *const *inner, uint32_t n_inner,
                                   const struct tutti_route_peer *peers, uint32_t n, uint32_t me,
                                   struct tutti_transport **out)
{
    if (n_inner == 0 || n_inner > TUTTI_ROUTE_MAX_INNER || me >= n)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "a route of member %u of %u by %u transports (at least 1, at most %d)",
                          me, n, n_inner, TUTTI_ROUTE_MAX_INNER);
    struct route *route = tutti_alloc(sizeof(*route));
    if (!route) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a transport");
    enum tutti_status status = TUTTI_OK;
    route->base = (struct tutti_transport){.ops = &route_ops, .name = "route", .n = n, .me = me};
    route->peers = tutti_alloc_array(n, sizeof(*route->peers));
    if (!route->peers) status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for the routes to %u members", n);
    for (uint32_t i = 0; i < n_inner && status == TUTTI_OK; i++) status = add_inner(route, inner[i]);
    for (uint32_t i = 0; i < n && status == TUTTI_OK; i++) status = add_peer(route, i, peers[i]);
    if (status < 0) {
        tables_free(route);
        return status;
    }
    route->memory = (struct tutti_memory){.ops = &route_memory_ops, .addresses = tutti_memory_is_one(route->shared)};
    if (route->shared) route->base.memory = &route->memory;
    *out = &route->base;
    return TUTTI_OK;
}
