/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_SIM_QUEUE_H
#define TUTTI_SIM_QUEUE_H

/* Events by time, and within one time by order: a radix heap (R. Ahuja et al., "Faster algorithms for the shortest path
 * problem", JACM 1990). Time never goes back, so that an event needs no place among all others: it waits in the bucket
 * of the highest bit in which its time differs from the instant at hand. The lowest bucket that holds anything holds
 * the next instant; it is spread over lower ones when its time comes. So events are read and written in long runs, and
 * those of one instant lie side by side before they are taken, which lets a run fetch ahead what they need.
 *
 * Functions are inline, for they are the inner loop of a run. Orders are those of pushes, so a bucket is in order but
 * for events that come back (the `mixed` ones), whose instant is sorted. */

#include "base/base.h"

#include <stdlib.h>
#include <string.h>

struct tutti_sim_event {
    uint64_t time;
    uint32_t order;
    uint32_t what; /* operation and kind, the run's */
};

struct tutti_sim_bucket {
    struct tutti_sim_event *events;
    size_t n, capacity;
    uint64_t least, most; /* times */
    bool mixed;           /* some order is lower than that before it */
};

/* Room for events that a bucket had, and another one will have. */
struct tutti_sim_spare {
    struct tutti_sim_event *events;
    size_t capacity;
};

struct tutti_sim_queue {
    uint64_t instant; /* the time of all events in `now` */
    size_t at;        /* those before it are over */
    struct tutti_sim_bucket now, later[64];
    uint64_t full; /* bit b: later[b] holds something */
    struct tutti_sim_spare spares[65];
    size_t n_spares;
};

static inline void tutti_sim_queue_fini(struct tutti_sim_queue *queue)
{
    free(queue->now.events);
    for (size_t b = 0; b < TUTTI_ARRAY_LEN(queue->later); b++) free(queue->later[b].events);
    for (size_t i = 0; i < queue->n_spares; i++) free(queue->spares[i].events);
}

/* False: no memory. */
static inline bool tutti_sim_bucket_grow(struct tutti_sim_queue *queue, struct tutti_sim_bucket *bucket)
{
    if (bucket->capacity == 0 && queue->n_spares > 0) {
        struct tutti_sim_spare spare = queue->spares[--queue->n_spares];
        bucket->events = spare.events;
        bucket->capacity = spare.capacity;
        return true;
    }
    size_t capacity = bucket->capacity ? 2 * bucket->capacity : 64;
    struct tutti_sim_event *grown = realloc(bucket->events, capacity * sizeof(*grown));
    if (!grown) return false;
    bucket->events = grown;
    bucket->capacity = capacity;
    return true;
}

/* The bucket is empty: what it had becomes a spare. */
static inline void tutti_sim_bucket_give(struct tutti_sim_queue *queue, struct tutti_sim_bucket *bucket)
{
    if (bucket->events) queue->spares[queue->n_spares++] = (struct tutti_sim_spare){bucket->events, bucket->capacity};
    *bucket = (struct tutti_sim_bucket){0};
}

/* False: no memory. */
static inline bool tutti_sim_bucket_add(struct tutti_sim_queue *queue, struct tutti_sim_bucket *bucket,
                                        struct tutti_sim_event event)
{
    if (bucket->n == bucket->capacity && !tutti_sim_bucket_grow(queue, bucket)) return false;
    if (bucket->n == 0) {
        bucket->least = bucket->most = event.time;
        bucket->mixed = false;
    } else {
        if (event.time < bucket->least) bucket->least = event.time;
        if (event.time > bucket->most) bucket->most = event.time;
        bucket->mixed |= event.order < bucket->events[bucket->n - 1].order;
    }
    bucket->events[bucket->n++] = event;
    return true;
}

/* Not before the instant. False: no memory. */
static inline bool tutti_sim_queue_push(struct tutti_sim_queue *queue, struct tutti_sim_event event)
{
    if (event.time == queue->instant) return tutti_sim_bucket_add(queue, &queue->now, event);
    int b = 63 - __builtin_clzll(event.time ^ queue->instant);
    queue->full |= UINT64_C(1) << b;
    return tutti_sim_bucket_add(queue, &queue->later[b], event);
}

static inline int tutti_sim_event_compare(const void *a, const void *b)
{
    uint32_t x = ((const struct tutti_sim_event *)a)->order, y = ((const struct tutti_sim_event *)b)->order;
    return x < y ? -1 : x > y;
}

/* Instants of a few events are the common ones that are mixed. */
static inline void tutti_sim_bucket_sort(struct tutti_sim_bucket *bucket)
{
    struct tutti_sim_event *events = bucket->events;
    if (bucket->n > 32) {
        qsort(events, bucket->n, sizeof(*events), tutti_sim_event_compare);
        return;
    }
    for (size_t i = 1; i < bucket->n; i++) {
        struct tutti_sim_event event = events[i];
        size_t at = i;
        for (; at > 0 && events[at - 1].order > event.order; at--) events[at] = events[at - 1];
        events[at] = event;
    }
}

/* The same for an event that was in the queue before: in the instant at hand it goes before those of higher order. */
static inline bool tutti_sim_queue_put_back(struct tutti_sim_queue *queue, struct tutti_sim_event event)
{
    if (!tutti_sim_queue_push(queue, event)) return false;
    if (event.time != queue->instant) return true;
    size_t i = queue->now.n - 1;
    for (; i > queue->at && queue->now.events[i - 1].order > event.order; i--)
        queue->now.events[i] = queue->now.events[i - 1];
    queue->now.events[i] = event;
    return true;
}

/* The time of the next event; TUTTI_NEVER: there is none. */
static inline uint64_t tutti_sim_queue_top(const struct tutti_sim_queue *queue)
{
    if (queue->at < queue->now.n) return queue->instant;
    return queue->full ? queue->later[__builtin_ctzll(queue->full)].least : TUTTI_NEVER;
}

/* Makes the time of the next event the instant, where all of the present one is over. False: no memory. */
static inline bool tutti_sim_queue_advance(struct tutti_sim_queue *queue)
{
    queue->now.n = queue->at = 0;
    if (!queue->full) return true;
    int b = __builtin_ctzll(queue->full);
    struct tutti_sim_bucket *next = &queue->later[b];
    queue->full &= queue->full - 1;
    queue->instant = next->least;
    if (next->least == next->most) {
        tutti_sim_bucket_give(queue, &queue->now);
        queue->now = *next;
        *next = (struct tutti_sim_bucket){0};
    } else {
        for (size_t i = 0; i < next->n; i++)
            if (!tutti_sim_queue_push(queue, next->events[i])) return false;
        tutti_sim_bucket_give(queue, next);
    }
    if (queue->now.mixed) tutti_sim_bucket_sort(&queue->now);
    return true;
}

#endif
