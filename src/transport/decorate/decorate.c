/* SPDX-License-Identifier: BSD-3-Clause */
/* Decorators: how a list such as "trace,fault" becomes a stack, and the calls that pass on. The list of those there are
 * is in transport.h. */

#include "transport/decorate/decorate.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/config.h"

enum { NAME_MAX_BYTES = 16, STACK_MAX = 8 };

static const struct {
    const char *name;
    enum tutti_status (*open)(struct tutti_transport *inner, const struct tutti_decorator_options *options,
                              struct tutti_transport **out);
} decorators[] = {
#define TUTTI_DECORATOR_ROW(name, help) {#name, tutti_##name##_open},
    TUTTI_DECORATORS(TUTTI_DECORATOR_ROW)
#undef TUTTI_DECORATOR_ROW
};

/* ---- passing on ---- */

static enum tutti_status pass_send(struct tutti_transport *t, uint32_t peer, const struct tutti_packet *packet,
                                   const struct tutti_span *spans, uint32_t n_spans)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    return inner->ops->send(inner, peer, packet, spans, n_spans);
}

static enum tutti_status pass_poll(struct tutti_transport *t, struct tutti_arrival *out)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    return inner->ops->poll(inner, out);
}

static void pass_release(struct tutti_transport *t)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    inner->ops->release(inner);
}

static bool pass_sleep_begin(struct tutti_transport *t, uint32_t *expected)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    return inner->ops->sleep_begin(inner, expected);
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

static enum tutti_status pass_heap_alloc(struct tutti_transport *t, size_t bytes, void **out)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    return inner->ops->heap_alloc(inner, bytes, out);
}

static enum tutti_status pass_heap_free(struct tutti_transport *t, void *pointer)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    return inner->ops->heap_free(inner, pointer);
}

static bool pass_locate(struct tutti_transport *t, const void *pointer, size_t bytes, uint64_t *offset)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    return inner->ops->locate(inner, pointer, bytes, offset);
}

static void *pass_map(struct tutti_transport *t, uint32_t peer, uint64_t offset, size_t bytes)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    return inner->ops->map(inner, peer, offset, bytes);
}

uint64_t tutti_decorator_next_event(struct tutti_transport *t)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    return inner->ops->next_event_ns ? inner->ops->next_event_ns(inner) : TUTTI_NEVER;
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
        PASS_IF_THERE(heap_alloc),
        PASS_IF_THERE(heap_free),
        PASS_IF_THERE(locate),
        PASS_IF_THERE(map),
        .next_event_ns = changes->next_event_ns ? changes->next_event_ns
                         : has->next_event_ns   ? tutti_decorator_next_event
                                                : NULL,
        .holds = changes->holds ? changes->holds
                 : has->holds   ? tutti_decorator_holds
                                : NULL,
        PASS_IF_THERE(failed),
    };
#undef PASS
#undef PASS_IF_THERE
    d->base = *inner; /* caps, n, me, max_payload, doorbell */
    d->base.ops = &d->ops;
    d->base.name = name;
    d->inner = inner;
}

void tutti_decorator_close_inner(struct tutti_decorator *d)
{
    if (d->inner) d->inner->ops->close(d->inner);
}

/* ---- lists ---- */

static enum tutti_status unknown_decorator(const char *name)
{
    const char *names[TUTTI_ARRAY_LEN(decorators)];
    char all[128] = "";
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(decorators); i++) {
        names[i] = decorators[i].name;
        snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i > 0 ? ", " : "", names[i]);
    }
    const char *near = tutti_nearest(name, names, TUTTI_ARRAY_LEN(names));
    return tutti_fail(TUTTI_ERR_ARGUMENT, "option decorators: there is no '%s'; %s%s", name,
                      near ? "did you mean " : "there are ", near ? near : all);
}

/* The rows that a list names, outermost first. */
static enum tutti_status list_parse(const char *list, size_t rows[STACK_MAX], size_t *n)
{
    *n = 0;
    for (const char *at = list; *at;) {
        char name[NAME_MAX_BYTES];
        const size_t length = strcspn(at, ",");
        if (length == 0 || (at[length] == ',' && at[length + 1] == '\0'))
            return tutti_fail(TUTTI_ERR_ARGUMENT, "option decorators: a name is missing beside a comma in '%.64s'",
                              list);
        snprintf(name, sizeof(name), "%.*s", (int)(length < sizeof(name) ? length : sizeof(name) - 1), at);
        size_t row = 0;
        while (row < TUTTI_ARRAY_LEN(decorators) && strcmp(name, decorators[row].name) != 0) row++;
        if (row == TUTTI_ARRAY_LEN(decorators)) return unknown_decorator(name);
        if (*n == STACK_MAX)
            return tutti_fail(TUTTI_ERR_ARGUMENT,
                              "option decorators: at most %d may be stacked, but the list is '%.128s'", STACK_MAX,
                              list);
        rows[(*n)++] = row;
        at += length;
        if (*at == ',') at++;
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
