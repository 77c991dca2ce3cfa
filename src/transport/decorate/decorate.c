/* SPDX-License-Identifier: BSD-3-Clause */

/* Decorators: transports around a transport, by their names; delaying is one of them. */

#include "transport/decorate/decorate.h"

#include "transport/open.h"

#include <string.h>

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
PASS_ON(void, , expect, (struct tutti_transport *t, uint32_t peer), (inner, peer))
PASS_ON(bool, return, direct, (struct tutti_transport *t, uint32_t peer), (inner, peer))
PASS_ON(enum tutti_status, return, reg,
        (struct tutti_transport *t, const struct tutti_range *memory, struct tutti_key *key, void **registration),
        (inner, memory, key, registration))
PASS_ON(void, , unreg, (struct tutti_transport *t, void *registration), (inner, registration))
PASS_ON(enum tutti_status, return, put,
        (struct tutti_transport *t, uint32_t peer, const struct tutti_key *key, uint64_t offset,
         const struct tutti_range *from, uint64_t token),
        (inner, peer, key, offset, from, token))
PASS_ON(enum tutti_status, return, get,
        (struct tutti_transport *t, uint32_t peer, const struct tutti_key *key, uint64_t offset,
         const struct tutti_range *to, uint64_t token),
        (inner, peer, key, offset, to, token))
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
        PASS_IF_THERE(direct),
        PASS_IF_THERE(reg),
        PASS_IF_THERE(unreg),
        PASS_IF_THERE(put),
        PASS_IF_THERE(get),
        .holds = changes->holds ? changes->holds
                 : has->holds   ? tutti_decorator_holds
                                : NULL,
        PASS_IF_THERE(failed),
        PASS_IF_THERE(owes),
        PASS_IF_THERE(expect),
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

/* ---- the list ---- */

enum { STACK_MAX = 8 };

static const struct {
    const char *name;
    enum tutti_status (*open)(struct tutti_transport *inner, const struct tutti_decorator_options *options,
                              struct tutti_transport **out);
} decorators[] = {
#define TUTTI_DECORATOR_ROW(name, help) {#name, tutti_##name##_open},
    TUTTI_DECORATORS(TUTTI_DECORATOR_ROW)
#undef TUTTI_DECORATOR_ROW
};

/* The rows that a list names, outermost first. */
static enum tutti_status list_parse(const char *list, size_t rows[STACK_MAX], size_t *n)
{
#define TUTTI_DECORATOR_NAME(name, help) " " #name
    static const char names[] = TUTTI_DECORATORS(TUTTI_DECORATOR_NAME);
#undef TUTTI_DECORATOR_NAME
    *n = 0;
    for (const char *at = list; *list; at++) {
        const size_t length = strcspn(at, ",");
        size_t row = 0;
        while (row < TUTTI_ARRAY_LEN(decorators) &&
               !(strlen(decorators[row].name) == length && memcmp(decorators[row].name, at, length) == 0))
            row++;
        if (row == TUTTI_ARRAY_LEN(decorators) || *n == STACK_MAX)
            return tutti_fail(TUTTI_ERR_ARGUMENT,
                              "option decorators: '%.128s' is no list of at most %d, with commas, of:%s", list,
                              STACK_MAX, names);
        rows[(*n)++] = row;
        at += length;
        if (*at == '\0') break;
    }
    return TUTTI_OK;
}

enum tutti_status tutti_transport_decorate(struct tutti_transport *inner, const char *list,
                                           const struct tutti_decorator_options *options, struct tutti_transport **out)
{
    size_t rows[STACK_MAX], n;
    TUTTI_TRY(list_parse(list ? list : "", rows, &n));
    struct tutti_transport *top = inner;
    enum tutti_status status;
    for (size_t i = n; i-- > 0;) TUTTI_TRY_GOTO(status, decorators[rows[i]].open(top, options, &top), err_undecorate);
    *out = top;
    return TUTTI_OK;

err_undecorate: /* the caller keeps the innermost */
    while (top != inner) {
        struct tutti_decorator *d = (struct tutti_decorator *)(void *)top;
        top = d->inner;
        d->inner = NULL;
        d->base.ops->close(&d->base);
    }
    return status;
}
