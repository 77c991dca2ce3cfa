/* SPDX-License-Identifier: BSD-3-Clause */
/* Packets that wait for their time, in a ring of private memory: the record's stamp is the time. */

#include "transport/decorate/decorate.h"

#include <stdatomic.h>

#define QUEUE_MIN_BYTES (UINT64_C(8) << 20) /* at 1 ms of latency, 8 GB/s */

enum tutti_status tutti_delay_queue_init(struct tutti_delay_queue *queue, uint32_t n, size_t max_payload)
{
    *queue = (struct tutti_delay_queue){.ring_bytes = QUEUE_MIN_BYTES, .n = n};
    while (tutti_ring_max_payload(queue->ring_bytes) < max_payload) queue->ring_bytes *= 2;
    queue->ring = tutti_map_lazy(tutti_ring_memory(queue->ring_bytes));
    queue->held = tutti_map_lazy(n * sizeof(*queue->held));
    if (queue->ring && queue->held) return TUTTI_OK;
    tutti_delay_queue_fini(queue);
    return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a queue of delayed packets");
}

void tutti_delay_queue_fini(struct tutti_delay_queue *queue)
{
    tutti_unmap(queue->ring, tutti_ring_memory(queue->ring_bytes));
    tutti_unmap(queue->held, queue->n * sizeof(*queue->held));
    queue->ring = NULL, queue->held = NULL;
}

bool tutti_delay_queue_has_room(const struct tutti_delay_queue *queue)
{
    /* A record of the greatest size and the padding that may come before it. */
    const uint64_t most = 2 * (tutti_ring_max_payload(queue->ring_bytes) + TUTTI_RING_HEAD_BYTES + TUTTI_CACHE_LINE);
    return queue->ring_bytes - (queue->out.tail - queue->in.head) >= most;
}

bool tutti_delay_queue_put(struct tutti_delay_queue *queue, const struct tutti_event *arrival, uint64_t due_ns)
{
    const struct tutti_span span = {arrival->payload, arrival->packet.bytes};
    const struct tutti_ring_record record = {&arrival->packet, due_ns, &span, 1};
    if (tutti_ring_put(queue->ring, queue->ring_bytes, &queue->out, &record) != TUTTI_OK) return false;
    queue->held[arrival->packet.source]++;
    return true;
}

uint64_t tutti_delay_queue_due(struct tutti_delay_queue *queue)
{
    struct tutti_ring_view view;
    if (tutti_ring_peek(queue->ring, queue->ring_bytes, &queue->in, &view) != TUTTI_OK) return TUTTI_NEVER;
    return view.stamp;
}

void tutti_delay_queue_peek(struct tutti_delay_queue *queue, struct tutti_event *out)
{
    struct tutti_ring_view view;
    if (tutti_ring_peek(queue->ring, queue->ring_bytes, &queue->in, &view) != TUTTI_OK) return;
    out->type = TUTTI_EVENT_ARRIVAL;
    out->packet = view.packet;
    out->payload = view.payload;
    queue->next = view.next;
}

void tutti_delay_queue_pop(struct tutti_delay_queue *queue, uint32_t source)
{
    tutti_ring_pop(queue->ring, &queue->in, queue->next);
    queue->held[source]--;
}

bool tutti_delay_queue_holds(const struct tutti_delay_queue *queue, uint32_t peer)
{
    return peer < queue->n && queue->held[peer] > 0;
}
