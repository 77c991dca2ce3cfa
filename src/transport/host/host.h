/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_HOST_HOST_H
#define TUTTI_TRANSPORT_HOST_HOST_H

/* What the transports over a segment (self, shm) have in common: all but their memory beyond the rings. */

#include "transport/host/layout.h"
#include "transport/transport.h"

/* What this member knows of one peer: zero until they meet, so that a thousand members of one process, each with a few
 * active peers, touch only those lines. */
struct tutti_host_peer {
    _Alignas(TUTTI_CACHE_LINE) struct tutti_ring_out out;
    struct tutti_ring_in in;
    bool broken;       /* it wrote nonsense; its ring is read no more */
    _Atomic bool dead; /* cut; any thread */
};

/* The first member of each transport's own struct. */
struct tutti_host {
    struct tutti_transport base;
    struct tutti_segment *segment;
    struct tutti_doorbell *doorbell; /* own */
    struct tutti_host_peer *peers;   /* n */
    uint32_t n_ready_words;

    uint32_t cursor; /* the peer that poll looks at first */
    uint32_t arrival_peer;
    bool arrival_open;
    uint64_t arrival_next;
    uint64_t *ready; /* bits: peers whose rings may hold something */

    _Atomic uint32_t woken; /* wake was called since the last sleep */
};

static inline struct tutti_host *tutti_host_of(struct tutti_transport *t)
{
    return (struct tutti_host *)(void *)t;
}

/* Opens member `me` in zeroed memory of the caller; takes over `segment` on success. */
enum tutti_status tutti_host_init(struct tutti_host *host, const char *name, const struct tutti_transport_ops *ops,
                                  struct tutti_segment *segment, uint32_t me);
/* Marks it as having left and gives everything back but the caller's memory. */
void tutti_host_fini(struct tutti_host *host);

/* host.c */
enum tutti_status tutti_host_send(struct tutti_transport *t, uint32_t peer, const struct tutti_packet *packet,
                                  const struct tutti_span *spans, uint32_t n_spans, uint64_t token);
enum tutti_status tutti_host_poll(struct tutti_transport *t, struct tutti_event *out);
void tutti_host_release(struct tutti_transport *t);
bool tutti_host_sleep_begin(struct tutti_transport *t, struct tutti_sources *sources);
void tutti_host_sleep_end(struct tutti_transport *t);
void tutti_host_wake(struct tutti_transport *t);
void tutti_host_cut(struct tutti_transport *t, uint32_t peer);
bool tutti_host_reaches(const struct tutti_memory *m, uint32_t peer); /* all of the host */

#define TUTTI_HOST_OPS                                                                                                 \
    .size = sizeof(struct tutti_transport_ops), .send = tutti_host_send, .poll = tutti_host_poll,                      \
    .release = tutti_host_release, .sleep_begin = tutti_host_sleep_begin, .sleep_end = tutti_host_sleep_end,           \
    .wake = tutti_host_wake, .cut = tutti_host_cut

#endif
