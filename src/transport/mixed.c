/* SPDX-License-Identifier: BSD-3-Clause */
/* A table says for each peer which inner transport carries its packets, and one table for each inner transport leads
 * back from a number there to the member of the world. Tokens are the caller's and pass through as they are. */

#include "transport/mixed.h"

#define NO_MEMBER UINT32_MAX

struct mixed {
    struct tutti_transport base; /* first */
    struct tutti_memory memory;
    struct tutti_memory *shared; /* the inner memory that alloc, free and locate use. NULL: none */
    struct tutti_mixed_peer *peers;
    struct tutti_transport *inner[TUTTI_MIXED_MAX_INNER];
    uint32_t *members[TUTTI_MIXED_MAX_INNER]; /* number there -> member of the world, or NO_MEMBER */
    uint32_t n_inner;
    uint32_t cursor;               /* the inner transport that is polled first */
    struct tutti_transport *given; /* gave the ARRIVAL or HEADER that is not released or answered. NULL: none */
};

static struct mixed *mixed_of(struct tutti_transport *t)
{
    return (struct mixed *)(void *)t;
}

static struct tutti_transport *inner_of(const struct mixed *mixed, uint32_t peer)
{
    return mixed->inner[mixed->peers[peer].inner];
}

/* ---- packets ---- */

static enum tutti_status mixed_send(struct tutti_transport *t, uint32_t peer, const struct tutti_packet *packet,
                                    const struct tutti_span *spans, uint32_t n_spans, uint64_t token)
{
    struct mixed *mixed = mixed_of(t);
    if (peer >= t->n) return tutti_fail(TUTTI_ERR_ARGUMENT, "a packet to member %u of %u", peer, t->n);
    if (packet->bytes > t->max_payload)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "a packet of %u bytes (at most %zu) to member %u", packet->bytes,
                          t->max_payload, peer);
    struct tutti_transport *inner = inner_of(mixed, peer);
    return inner->ops->send(inner, mixed->peers[peer].member, packet, spans, n_spans, token);
}

/* Writes the sender's number in the world into the packet. PROTOCOL, and the packet is on its way out of the inner
 * transport, if it may not come this way. */
static enum tutti_status admit(struct mixed *mixed, uint32_t i, struct tutti_event *event)
{
    struct tutti_transport *inner = mixed->inner[i];
    const uint32_t there = event->packet.source;
    const uint32_t member = there < inner->n ? mixed->members[i][there] : NO_MEMBER;
    if (member != NO_MEMBER && event->packet.bytes <= mixed->base.max_payload) {
        event->packet.source = member;
        mixed->given = inner;
        return TUTTI_OK;
    }
    if (event->type == TUTTI_EVENT_HEADER)
        inner->ops->place(inner, NULL, 0, 0); /* it comes again as an arrival, which is dropped then */
    else
        inner->ops->release(inner);
    if (member == NO_MEMBER)
        return tutti_fail(TUTTI_ERR_PROTOCOL, "member %u of transport %s sent to member %u, which reaches it otherwise",
                          there, inner->name, mixed->base.me);
    return tutti_fail(TUTTI_ERR_PROTOCOL, "member %u sent a packet of %u bytes to member %u, which takes %zu", member,
                      event->packet.bytes, mixed->base.me, mixed->base.max_payload);
}

/* The inner transports take turns, and each one is fair between its own peers. */
static enum tutti_status mixed_poll(struct tutti_transport *t, struct tutti_event *out)
{
    struct mixed *mixed = mixed_of(t);
    if (mixed->given) return tutti_fail(TUTTI_ERR_INTERNAL, "poll before the last event was released or answered");
    for (uint32_t k = 0; k < mixed->n_inner; k++) {
        const uint32_t i = mixed->cursor;
        mixed->cursor = i + 1 < mixed->n_inner ? i + 1 : 0;
        enum tutti_status status = mixed->inner[i]->ops->poll(mixed->inner[i], out);
        if (status == TUTTI_AGAIN) continue;
        return status == TUTTI_OK && out->type != TUTTI_EVENT_DONE ? admit(mixed, i, out) : status;
    }
    return TUTTI_AGAIN;
}

static void mixed_release(struct tutti_transport *t)
{
    struct tutti_transport *inner = mixed_of(t)->given;
    mixed_of(t)->given = NULL;
    if (inner) inner->ops->release(inner);
}

static void mixed_place(struct tutti_transport *t, const struct tutti_target *targets, uint32_t n, uint64_t token)
{
    struct tutti_transport *inner = mixed_of(t)->given;
    mixed_of(t)->given = NULL;
    if (inner) inner->ops->place(inner, targets, n, token);
}

/* The wire that has the token is not remembered: for the others it is a token that is not out. */
static void mixed_cancel(struct tutti_transport *t, uint64_t token)
{
    struct mixed *mixed = mixed_of(t);
    for (uint32_t i = 0; i < mixed->n_inner; i++)
        if (mixed->inner[i]->ops->cancel) mixed->inner[i]->ops->cancel(mixed->inner[i], token);
}

/* ---- sleep ---- */

/* Asks all, even after a no: a wake was told to all of them, and is over for all of them with this sleep. */
static bool mixed_sleep_begin(struct tutti_transport *t, struct tutti_sources *sources)
{
    struct mixed *mixed = mixed_of(t);
    bool quiet = true;
    for (uint32_t i = 0; i < mixed->n_inner; i++)
        if (!mixed->inner[i]->ops->sleep_begin(mixed->inner[i], sources)) quiet = false;
    return quiet;
}

static void mixed_sleep_end(struct tutti_transport *t)
{
    struct mixed *mixed = mixed_of(t);
    for (uint32_t i = 0; i < mixed->n_inner; i++) mixed->inner[i]->ops->sleep_end(mixed->inner[i]);
}

static void mixed_wake(struct tutti_transport *t)
{
    struct mixed *mixed = mixed_of(t);
    for (uint32_t i = 0; i < mixed->n_inner; i++) mixed->inner[i]->ops->wake(mixed->inner[i]);
}

/* ---- peers ---- */

static void mixed_cut(struct tutti_transport *t, uint32_t peer)
{
    if (peer >= t->n) return;
    struct tutti_transport *inner = inner_of(mixed_of(t), peer);
    inner->ops->cut(inner, mixed_of(t)->peers[peer].member);
}

static bool mixed_holds(struct tutti_transport *t, uint32_t peer)
{
    if (peer >= t->n) return false;
    struct tutti_transport *inner = inner_of(mixed_of(t), peer);
    return inner->ops->holds && inner->ops->holds(inner, mixed_of(t)->peers[peer].member);
}

static void mixed_expect(struct tutti_transport *t, uint32_t peer)
{
    struct tutti_transport *inner = inner_of(mixed_of(t), peer);
    if (inner->ops->expect) inner->ops->expect(inner, mixed_of(t)->peers[peer].member);
}

static bool mixed_owes(struct tutti_transport *t)
{
    struct mixed *mixed = mixed_of(t);
    bool owes = false;
    for (uint32_t i = 0; i < mixed->n_inner; i++)
        owes |= mixed->inner[i]->ops->owes && mixed->inner[i]->ops->owes(mixed->inner[i]);
    return owes;
}

/* ---- puts and gets: of the one inner transport that has them, for the peers there ---- */

static struct tutti_transport *direct_of(const struct mixed *mixed)
{
    for (uint32_t i = 0; i < mixed->n_inner; i++)
        if (mixed->inner[i]->max_direct > 0) return mixed->inner[i];
    return NULL;
}

static bool mixed_direct(struct tutti_transport *t, uint32_t peer)
{
    const struct mixed *mixed = mixed_of(t);
    struct tutti_transport *inner = direct_of(mixed);
    return inner && peer < t->n && inner == inner_of(mixed, peer) &&
           inner->ops->direct(inner, mixed->peers[peer].member);
}

static enum tutti_status mixed_reg(struct tutti_transport *t, const struct tutti_range *memory, struct tutti_key *key,
                                   void **registration)
{
    struct tutti_transport *inner = direct_of(mixed_of(t));
    if (!inner) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "no transport of member %u registers memory", t->me);
    return inner->ops->reg(inner, memory, key, registration);
}

static void mixed_unreg(struct tutti_transport *t, void *registration)
{
    struct tutti_transport *inner = direct_of(mixed_of(t));
    if (inner) inner->ops->unreg(inner, registration);
}

/* The transport that reaches the peer's memory, and the peer's number in it. NULL with a record: there is none. */
static struct tutti_transport *direct_to(struct tutti_transport *t, uint32_t *peer)
{
    const struct mixed *mixed = mixed_of(t);
    if (!mixed_direct(t, *peer)) {
        tutti_fail(TUTTI_ERR_ARGUMENT, "member %u takes no puts and gets of member %u", *peer, t->me);
        return NULL;
    }
    *peer = mixed->peers[*peer].member;
    return direct_of(mixed);
}

static enum tutti_status mixed_put(struct tutti_transport *t, uint32_t peer, const struct tutti_key *key,
                                   uint64_t offset, const struct tutti_range *from, uint64_t token)
{
    struct tutti_transport *inner = direct_to(t, &peer);
    return inner ? inner->ops->put(inner, peer, key, offset, from, token) : TUTTI_ERR_ARGUMENT;
}

static enum tutti_status mixed_get(struct tutti_transport *t, uint32_t peer, const struct tutti_key *key,
                                   uint64_t offset, const struct tutti_range *to, uint64_t token)
{
    struct tutti_transport *inner = direct_to(t, &peer);
    return inner ? inner->ops->get(inner, peer, key, offset, to, token) : TUTTI_ERR_ARGUMENT;
}

static void mixed_failed(struct tutti_transport *t, const char *why)
{
    struct mixed *mixed = mixed_of(t);
    for (uint32_t i = 0; i < mixed->n_inner; i++)
        if (mixed->inner[i]->ops->failed) mixed->inner[i]->ops->failed(mixed->inner[i], why);
}

/* ---- memory ---- */

static struct mixed *memory_mixed(const struct tutti_memory *m)
{
    return (struct mixed *)(void *)((uintptr_t)m - offsetof(struct mixed, memory));
}

static enum tutti_status mixed_alloc(struct tutti_memory *m, size_t bytes, void **out)
{
    struct tutti_memory *shared = memory_mixed(m)->shared;
    return shared->ops->alloc(shared, bytes, out);
}

static enum tutti_status mixed_free(struct tutti_memory *m, void *pointer)
{
    struct tutti_memory *shared = memory_mixed(m)->shared;
    return shared->ops->free(shared, pointer);
}

static bool mixed_locate(struct tutti_memory *m, const void *pointer, size_t bytes, uint64_t *where)
{
    struct tutti_memory *shared = memory_mixed(m)->shared;
    return shared->ops->locate(shared, pointer, bytes, where);
}

static bool mixed_reaches(const struct tutti_memory *m, uint32_t peer)
{
    const struct mixed *mixed = memory_mixed(m);
    if (peer >= mixed->base.n) return false;
    const struct tutti_memory *inner = inner_of(mixed, peer)->memory;
    const bool one = inner == mixed->shared || (tutti_memory_is_one(inner) && tutti_memory_is_one(mixed->shared));
    return one && tutti_memory_reaches(inner, mixed->peers[peer].member);
}

static void *mixed_map(struct tutti_memory *m, uint32_t peer, uint64_t where, size_t bytes)
{
    const struct mixed *mixed = memory_mixed(m);
    if (!mixed_reaches(m, peer)) return NULL;
    struct tutti_memory *inner = inner_of(mixed, peer)->memory;
    return inner->ops->map(inner, mixed->peers[peer].member, where, bytes);
}

/* ---- open and close ---- */

static void tables_free(struct mixed *mixed)
{
    for (uint32_t i = 0; i < TUTTI_MIXED_MAX_INNER; i++) tutti_free(mixed->members[i]);
    tutti_free(mixed->peers);
    tutti_free(mixed);
}

static void mixed_close(struct tutti_transport *t)
{
    struct mixed *mixed = mixed_of(t);
    for (uint32_t i = 0; i < mixed->n_inner; i++) mixed->inner[i]->ops->close(mixed->inner[i]);
    tables_free(mixed);
}

static const struct tutti_transport_ops mixed_ops = {.size = sizeof(mixed_ops),
                                                     .close = mixed_close,
                                                     .send = mixed_send,
                                                     .poll = mixed_poll,
                                                     .release = mixed_release,
                                                     .place = mixed_place,
                                                     .cancel = mixed_cancel,
                                                     .sleep_begin = mixed_sleep_begin,
                                                     .sleep_end = mixed_sleep_end,
                                                     .wake = mixed_wake,
                                                     .cut = mixed_cut,
                                                     .holds = mixed_holds,
                                                     .failed = mixed_failed,
                                                     .owes = mixed_owes,
                                                     .expect = mixed_expect,
                                                     .direct = mixed_direct,
                                                     .reg = mixed_reg,
                                                     .unreg = mixed_unreg,
                                                     .put = mixed_put,
                                                     .get = mixed_get};
static const struct tutti_memory_ops mixed_memory_ops = {.size = sizeof(mixed_memory_ops),
                                                         .alloc = mixed_alloc,
                                                         .free = mixed_free,
                                                         .locate = mixed_locate,
                                                         .map = mixed_map,
                                                         .reaches = mixed_reaches};

static enum tutti_status add_inner(struct mixed *mixed, struct tutti_transport *inner)
{
    const uint32_t i = mixed->n_inner++;
    struct tutti_transport *base = &mixed->base;
    mixed->inner[i] = inner;
    mixed->members[i] = tutti_alloc_array(inner->n, sizeof(uint32_t));
    if (!mixed->members[i]) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the table of %u members", inner->n);
    for (uint32_t there = 0; there < inner->n; there++) mixed->members[i][there] = NO_MEMBER;
    if (i == 0 || inner->max_payload < base->max_payload) base->max_payload = inner->max_payload;
    if (i == 0 || inner->copied < base->copied) base->copied = inner->copied;
    if (base->copied > base->max_payload) base->copied = base->max_payload;
    if (!mixed->shared) mixed->shared = inner->memory;
    if (!base->max_direct) base->max_direct = inner->max_direct, base->devices = inner->devices;
    return TUTTI_OK;
}

static enum tutti_status add_peer(struct mixed *mixed, uint32_t member, struct tutti_mixed_peer peer)
{
    if (peer.inner >= mixed->n_inner || peer.member >= mixed->inner[peer.inner]->n)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "member %u is to be reached as member %u of transport %u: there is none",
                          member, peer.member, peer.inner);
    uint32_t *taken = &mixed->members[peer.inner][peer.member];
    if (*taken != NO_MEMBER)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "members %u and %u are to be reached as one: member %u of transport %u",
                          *taken, member, peer.member, peer.inner);
    if ((peer.member == mixed->inner[peer.inner]->me) != (member == mixed->base.me))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "member %u is to be reached as member %u of transport %u, where %u is %u",
                          member, peer.member, peer.inner, mixed->base.me, mixed->inner[peer.inner]->me);
    *taken = member;
    mixed->peers[member] = peer;
    return TUTTI_OK;
}

enum tutti_status tutti_mixed_open(struct tutti_transport *const *inner, uint32_t n_inner,
                                   const struct tutti_mixed_peer *peers, uint32_t n, uint32_t me,
                                   struct tutti_transport **out)
{
    if (n_inner == 0 || n_inner > TUTTI_MIXED_MAX_INNER || me >= n)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "member %u of %u with %u mixed transports (at least 1, at most %d)", me,
                          n, n_inner, TUTTI_MIXED_MAX_INNER);
    struct mixed *mixed = tutti_alloc(sizeof(*mixed));
    if (!mixed) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a transport");
    enum tutti_status status = TUTTI_OK;
    mixed->base = (struct tutti_transport){.ops = &mixed_ops, .name = "mixed", .n = n, .me = me};
    mixed->peers = tutti_alloc_array(n, sizeof(*mixed->peers));
    if (!mixed->peers) status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for the table of %u peers", n);
    for (uint32_t i = 0; i < n_inner && status == TUTTI_OK; i++) status = add_inner(mixed, inner[i]);
    for (uint32_t i = 0; i < n && status == TUTTI_OK; i++) status = add_peer(mixed, i, peers[i]);
    if (status < 0) {
        tables_free(mixed);
        return status;
    }
    mixed->memory = (struct tutti_memory){.ops = &mixed_memory_ops, .addresses = tutti_memory_is_one(mixed->shared)};
    if (mixed->shared) mixed->base.memory = &mixed->memory;
    *out = &mixed->base;
    return TUTTI_OK;
}
