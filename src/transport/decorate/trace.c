/* SPDX-License-Identifier: BSD-3-Clause */
/* "trace": keeps the last packets that were sent and received, and writes them to the log when a failure is seen
 * (warn) and at close (info), each once. */

#include "transport/decorate/decorate.h"
#include "transport/open.h"

#include <inttypes.h>

enum { DEFAULT_EVENTS = 1024 };

struct event {
    uint64_t time_ns;
    uint32_t peer;
    bool sent;
    struct tutti_packet packet;
};

struct trace {
    struct tutti_decorator decorator;
    struct event *events; /* a ring */
    size_t capacity;
    uint64_t n_recorded, n_dumped, n_lost; /* lost: overwritten before any dump */
};

static struct trace *trace_of(struct tutti_transport *t)
{
    return (struct trace *)(void *)t;
}

static void record(struct trace *trace, bool sent, uint32_t peer, const struct tutti_packet *packet)
{
    if (trace->n_recorded - trace->n_dumped == trace->capacity) trace->n_dumped++, trace->n_lost++;
    trace->events[trace->n_recorded++ % trace->capacity] =
        (struct event){.time_ns = tutti_now_ns(), .peer = peer, .sent = sent, .packet = *packet};
}

static void dump(struct trace *trace, enum tutti_log_level level, const char *why)
{
    const struct tutti_transport *t = &trace->decorator.base;
    if (trace->n_recorded == trace->n_dumped) return;
    tutti_log(level, "trace of member %u of %u, %s: the last %" PRIu64 " packets, %" PRIu64 " older ones are lost",
              t->me, t->n, why, trace->n_recorded - trace->n_dumped, trace->n_lost);
    for (; trace->n_dumped < trace->n_recorded; trace->n_dumped++) {
        const struct event *e = &trace->events[trace->n_dumped % trace->capacity];
        const struct tutti_packet *p = &e->packet;
        tutti_log(level,
                  "trace %" PRIu64 ".%06" PRIu64 " %u %s %u %s comm=%" PRIx64 " epoch=%u seq=%" PRIu64
                  " slice=%u fifo=%u bytes=%u offset=%" PRIu64 " total=%" PRIu64 " flags=%x credits=%u",
                  e->time_ns / TUTTI_NS_PER_S, e->time_ns % TUTTI_NS_PER_S / 1000, t->me, e->sent ? "->" : "<-",
                  e->peer, tutti_packet_type_name(p->type), p->comm, p->epoch, p->seq, p->slice, p->fifo, p->bytes,
                  p->offset, p->total, (unsigned)p->flags, (unsigned)p->credits);
    }
    trace->n_lost = 0;
}

static void trace_close(struct tutti_transport *t)
{
    struct trace *trace = trace_of(t);
    dump(trace, TUTTI_LOG_INFO, "at close");
    tutti_decorator_close_inner(&trace->decorator);
    tutti_free(trace->events);
    tutti_free(trace);
}

static enum tutti_status trace_send(struct tutti_transport *t, uint32_t peer, const struct tutti_packet *packet,
                                    const struct tutti_span *spans, uint32_t n_spans, uint64_t token)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    enum tutti_status status = inner->ops->send(inner, peer, packet, spans, n_spans, token);
    if (status == TUTTI_OK || status == TUTTI_PENDING) record(trace_of(t), true, peer, packet);
    if (status < 0) dump(trace_of(t), TUTTI_LOG_WARN, "after a send that failed");
    return status;
}

static enum tutti_status trace_poll(struct tutti_transport *t, struct tutti_event *out)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    enum tutti_status status = inner->ops->poll(inner, out);
    if (status == TUTTI_OK && out->type != TUTTI_EVENT_DONE)
        record(trace_of(t), false, out->packet.source, &out->packet);
    if (status < 0) dump(trace_of(t), TUTTI_LOG_WARN, "after a poll that failed");
    return status;
}

static void trace_failed(struct tutti_transport *t, const char *why)
{
    struct tutti_transport *inner = tutti_decorator_inner(t);
    dump(trace_of(t), TUTTI_LOG_WARN, why);
    if (inner->ops->failed) inner->ops->failed(inner, why);
}

enum tutti_status tutti_trace_open(struct tutti_transport *inner, const struct tutti_decorator_options *options,
                                   struct tutti_transport **out)
{
    static const struct tutti_transport_ops changes = {
        .close = trace_close,
        .send = trace_send,
        .poll = trace_poll,
        .failed = trace_failed,
    };
    struct trace *trace = tutti_alloc(sizeof(*trace));
    if (!trace) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a decorator");
    trace->capacity = options && options->trace_events > 0 ? options->trace_events : DEFAULT_EVENTS;
    trace->events = tutti_alloc_array(trace->capacity, sizeof(*trace->events));
    if (!trace->events) {
        enum tutti_status status =
            tutti_fail(TUTTI_ERR_MEMORY, "no memory for a trace of %zu packets", trace->capacity);
        tutti_free(trace);
        return status;
    }
    tutti_decorator_init(&trace->decorator, "trace", &changes, inner);
    *out = &trace->decorator.base;
    return TUTTI_OK;
}
