/* SPDX-License-Identifier: BSD-3-Clause */
/* What a decorator does not change it passes on. */

#include "transport/decorate/decorate.h"

static enum tutti_status pass_send(struct tutti_transport *t, uint32_t peer, const struct tutti_packet *packet,
                                   const struct tutti_span *spans, uint32_t n_spans, uint64_t token)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    return inner->ops->send(inner, peer, packet, spans, n_spans, token);
}

static enum tutti_status pass_poll(struct tutti_transport *t, struct tutti_event *out)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    return inner->ops->poll(inner, out);
}

static void pass_release(struct tutti_transport *t)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    inner->ops->release(inner);
}

static void pass_place(struct tutti_transport *t, const struct tutti_target *targets, uint32_t n, uint64_t token)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    inner->ops->place(inner, targets, n, token);
}

static void pass_cancel(struct tutti_transport *t, uint64_t token)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    inner->ops->cancel(inner, token);
}

static bool pass_sleep_begin(struct tutti_transport *t, struct tutti_sources *sources)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    return inner->ops->sleep_begin(inner, sources);
}

static void pass_sleep_end(struct tutti_transport *t)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    inner->ops->sleep_end(inner);
}

static void pass_wake(struct tutti_transport *t)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    inner->ops->wake(inner);
}

static void pass_cut(struct tutti_transport *t, uint32_t peer)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    inner->ops->cut(inner, peer);
}

bool tutti_decorator_holds(struct tutti_transport *t, uint32_t peer)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    return inner->ops->holds && inner->ops->holds(inner, peer);
}

static void pass_failed(struct tutti_transport *t, const char *why)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    inner->ops->failed(inner, why);
}

static bool pass_owes(struct tutti_transport *t)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    return inner->ops->owes(inner);
}

static enum tutti_status pass_reg(struct tutti_transport *t, void *base, size_t bytes, struct tutti_key *key,
                                  void **registration)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    return inner->ops->reg(inner, base, bytes, key, registration);
}

static void pass_unreg(struct tutti_transport *t, void *registration)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    inner->ops->unreg(inner, registration);
}

static enum tutti_status pass_put(struct tutti_transport *t, uint32_t peer, const struct tutti_key *key,
                                  uint64_t offset, const struct tutti_span *spans, uint32_t n, uint64_t token)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    return inner->ops->put(inner, peer, key, offset, spans, n, token);
}

static enum tutti_status pass_get(struct tutti_transport *t, uint32_t peer, const struct tutti_key *key,
                                  uint64_t offset, const struct tutti_target *targets, uint32_t n, uint64_t token)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    return inner->ops->get(inner, peer, key, offset, targets, n, token);
}

enum tutti_status tutti_decorator_poll_whole(struct tutti_transport *inner, struct tutti_event *out)
{
    for (;;) {
        enum tutti_status status = inner->ops->poll(inner, out);
        if (status != TUTTI_OK || out->type != TUTTI_EVENT_HEADER) return status;
        inner->ops->place(inner, NULL, 0, 0);
    }
}

void tutti_decorator_init(struct tutti_decorator *d, const char *name, const struct tutti_transport_ops *changes,
                          struct tutti_transport *inner)
{
    const struct tutti_transport_ops *has = inner->ops;
#define PASS(call) .call = changes->call ? changes->call : pass_##call
#define PASS_IF_THERE(call) .call = changes->call ? changes->call : has->call ? pass_##call : NULL
    d->ops = (struct tutti_transport_ops){
        .size = sizeof(d->ops),
        .close = changes->close,
        PASS(send),
        PASS(poll),
        PASS(release),
        PASS(sleep_begin),
        PASS(sleep_end),
        PASS(wake),
        PASS(cut),
        PASS_IF_THERE(place),
        PASS_IF_THERE(cancel),
        PASS_IF_THERE(reg),
        PASS_IF_THERE(unreg),
        PASS_IF_THERE(put),
        PASS_IF_THERE(get),
        .holds = changes->holds ? changes->holds
                 : has->holds   ? tutti_decorator_holds
                                : NULL,
        PASS_IF_THERE(failed),
        PASS_IF_THERE(owes),
    };
#undef PASS
#undef PASS_IF_THERE
    d->base = *inner; /* n, me, max_payload, memory: that is not decorated */
    d->base.ops = &d->ops;
    d->base.name = name;
    d->inner = inner;
}

void tutti_decorator_close_inner(struct tutti_decorator *d)
{
    if (d->inner) d->inner->ops->close(d->inner);
}
