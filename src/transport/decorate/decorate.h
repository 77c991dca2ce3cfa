/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_DECORATE_DECORATE_H
#define TUTTI_TRANSPORT_DECORATE_DECORATE_H

/* Decorators: transports around another transport, which change one thing of it and pass on all else (trace.c; fault.c,
 * which makes delays too). This room may use base, transport and transport/host. Begin here: what decorators have in
 * common, and a queue of packets that wait for their time. decorate.c makes a stack of a list of names. */

#include "transport/host/ring.h"
#include "transport/transport.h"

struct tutti_decorator {
    struct tutti_transport base;
    struct tutti_transport_ops ops; /* this instance's: NULL where the inner one lacks a call */
    struct tutti_transport *inner;
};

/* changes: the calls that differ, NULL elsewhere; close is among them. */
void tutti_decorator_init(struct tutti_decorator *d, const char *name, const struct tutti_transport_ops *changes,
                          struct tutti_transport *inner);
void tutti_decorator_close_inner(struct tutti_decorator *d);
/* Whether the inner transport holds packets of this peer. */
bool tutti_decorator_holds(struct tutti_transport *t, uint32_t peer);
static inline struct tutti_transport *tutti_decorator_inner(struct tutti_transport *t)
{
    return ((struct tutti_decorator *)(void *)t)->inner;
}
/* The inner transport's next event that is whole: payloads that are still outside are told to come in. */
enum tutti_status tutti_decorator_poll_whole(struct tutti_transport *inner, struct tutti_event *out);

/* ---- packets that wait (delay_queue.c): bounded, first in, first out, nothing is allocated after init ---- */
struct tutti_delay_queue {
    struct tutti_ring_shared *ring; /* private memory */
    size_t ring_bytes;
    struct tutti_ring_out out;
    struct tutti_ring_in in;
    uint64_t next;  /* the arrival given out last */
    uint32_t n;     /* members */
    uint32_t *held; /* packets, by source */
};
enum tutti_status tutti_delay_queue_init(struct tutti_delay_queue *queue, uint32_t n, size_t max_payload);
void tutti_delay_queue_fini(struct tutti_delay_queue *queue);
/* Copies an ARRIVAL, to be given out at due_ns, which never decreases. False when the queue is full. */
bool tutti_delay_queue_put(struct tutti_delay_queue *queue, const struct tutti_event *arrival, uint64_t due_ns);
/* There is room for one more of any size. */
bool tutti_delay_queue_has_room(const struct tutti_delay_queue *queue);
uint64_t tutti_delay_queue_due(struct tutti_delay_queue *queue); /* the oldest's; TUTTI_NEVER when empty */
/* The oldest, which is there and stays until pop. */
void tutti_delay_queue_peek(struct tutti_delay_queue *queue, struct tutti_event *out);
void tutti_delay_queue_pop(struct tutti_delay_queue *queue, uint32_t source);
/* Whether packets of this peer wait here. */
bool tutti_delay_queue_holds(const struct tutti_delay_queue *queue, uint32_t peer);

#endif
