/* SPDX-License-Identifier: BSD-3-Clause */
/* What a decorator does not change it passes on. */

#include "transport/decorate/decorate.h"

/* pass_NAME: the same call of the inner transport; `give` is `return` where it gives something. */
#define PASS_ON(type, give, name, parameters, arguments)                                                               \
    static type pass_##name parameters                                                                                 \
    {                                                                                                                  \
        struct tutti_transport *inner = tutti_decorator_inner(t);                                                      \
        give inner->ops->name arguments;                                                                               \
    }
/* clang-format off */
PASS_ON(enum tutti_status, return, send,
        (struct tutti_transport *t, uint32_t peer, const struct tutti_packet *packet, const struct tutti_span *spans,
         uint32_t n, uint64_t token),
        (inner, peer, packet, spans, n, token))
PASS_ON(enum tutti_status, return, poll, (struct tutti_transport *t, struct tutti_event *out), (inner, out))
PASS_ON(void, , release, (struct tutti_transport *t), (inner))
PASS_ON(void, , place, (struct tutti_transport *t, const struct tutti_target *targets, uint32_t n, uint64_t token),
        (inner, targets, n, token))
PASS_ON(void, , cancel, (struct tutti_transport *t, uint64_t token), (inner, token))
PASS_ON(bool, return, sleep_begin, (struct tutti_transport *t, struct tutti_sources *sources), (inner, sources))
PASS_ON(void, , sleep_end, (struct tutti_transport *t), (inner))
PASS_ON(void, , wake, (struct tutti_transport *t), (inner))
PASS_ON(void, , cut, (struct tutti_transport *t, uint32_t peer), (inner, peer))
PASS_ON(void, , failed, (struct tutti_transport *t, const char *why), (inner, why))
PASS_ON(bool, return, owes, (struct tutti_transport *t), (inner))
PASS_ON(enum tutti_status, return, reg,
        (struct tutti_transport *t, void *base, size_t bytes, struct tutti_key *key, void **registration),
        (inner, base, bytes, key, registration))
PASS_ON(void, , unreg, (struct tutti_transport *t, void *registration), (inner, registration))
PASS_ON(enum tutti_status, return, put,
        (struct tutti_transport *t, uint32_t peer, const struct tutti_key *key, uint64_t offset,
         const struct tutti_span *spans, uint32_t n, uint64_t token),
        (inner, peer, key, offset, spans, n, token))
PASS_ON(enum tutti_status, return, get,
        (struct tutti_transport *t, uint32_t peer, const struct tutti_key *key, uint64_t offset,
         const struct tutti_target *targets, uint32_t n, uint64_t token),
        (inner, peer, key, offset, targets, n, token))
/* clang-format on */
#undef PASS_ON

bool tutti_decorator_holds(struct tutti_transport *t, uint32_t peer)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    return inner->ops->holds && inner->ops->holds(inner, peer);
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
