/* SPDX-License-Identifier: BSD-3-Clause */
/* "delay": every packet is given out a fixed time after it came, in order, as over a link with that latency. */

#include "transport/decorate/decorate.h"
#include "transport/open.h"

struct delay {
    struct tutti_decorator decorator;
    struct tutti_delay_queue queue;
    uint64_t delay_ns;
    uint32_t source; /* of the unreleased arrival */
    bool arrival_open;
};

static struct delay *delay_of(struct tutti_transport *t)
{
    return (struct delay *)(void *)t;
}

static void delay_close(struct tutti_transport *t)
{
    struct delay *delay = delay_of(t);
    tutti_delay_queue_fini(&delay->queue);
    tutti_decorator_close_inner(&delay->decorator);
    tutti_free(delay);
}

/* Moves what has come into the queue. When that is full the rest waits in the rings, and senders see AGAIN. OK: *out is
 * a completion, which nobody delays. */
static enum tutti_status take_arrivals(struct delay *delay, struct tutti_event *out)
{
    struct tutti_transport *inner = delay->decorator.inner;
    while (tutti_delay_queue_has_room(&delay->queue)) {
        enum tutti_status status = tutti_decorator_poll_whole(inner, out);
        if (status != TUTTI_OK || out->type == TUTTI_EVENT_DONE) return status;
        tutti_delay_queue_put(&delay->queue, out, tutti_deadline_ns(delay->delay_ns));
        inner->ops->release(inner);
    }
    return TUTTI_AGAIN;
}

static bool is_due(struct delay *delay)
{
    const uint64_t due = tutti_delay_queue_due(&delay->queue);
    return due != TUTTI_NEVER && due <= tutti_now_ns();
}

static enum tutti_status delay_poll(struct tutti_transport *t, struct tutti_event *out)
{
    struct delay *delay = delay_of(t);
    enum tutti_status status = take_arrivals(delay, out);
    if (status != TUTTI_AGAIN) return status;
    if (!is_due(delay)) return TUTTI_AGAIN;
    tutti_delay_queue_peek(&delay->queue, out);
    delay->source = out->packet.source;
    delay->arrival_open = true;
    return TUTTI_OK;
}

static void delay_release(struct tutti_transport *t)
{
    struct delay *delay = delay_of(t);
    if (delay->arrival_open) tutti_delay_queue_pop(&delay->queue, delay->source);
    delay->arrival_open = false;
}

static bool delay_sleep_begin(struct tutti_transport *t, struct tutti_sources *sources)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    tutti_sources_until(sources, tutti_delay_queue_due(&delay_of(t)->queue));
    return inner->ops->sleep_begin(inner, sources) && !is_due(delay_of(t));
}

static bool delay_holds(struct tutti_transport *t, uint32_t peer)
{
    return tutti_delay_queue_holds(&delay_of(t)->queue, peer) || tutti_decorator_holds(t, peer);
}

enum tutti_status tutti_delay_open(struct tutti_transport *inner, const struct tutti_decorator_options *options,
                                   struct tutti_transport **out)
{
    static const struct tutti_transport_ops changes = {
        .close = delay_close,
        .poll = delay_poll,
        .release = delay_release,
        .sleep_begin = delay_sleep_begin,
        .holds = delay_holds,
    };
    struct delay *delay = tutti_alloc(sizeof(*delay));
    if (!delay) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a decorator");
    delay->delay_ns = options ? options->delay_ns : 0;
    if (delay->delay_ns == 0)
        tutti_log(TUTTI_LOG_WARN, "decorator delay does nothing: set option delay to a time such as 1ms");
    enum tutti_status status = tutti_delay_queue_init(&delay->queue, inner->n, inner->max_payload);
    if (status < 0) {
        tutti_free(delay);
        return status;
    }
    tutti_decorator_init(&delay->decorator, "delay", &changes, inner);
    *out = &delay->decorator.base;
    return TUTTI_OK;
}
