/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_TCP_LONE_TEST_H
#define TUTTI_TRANSPORT_TCP_LONE_TEST_H

/* A member whose peers are the test. */

#include "transport/world_test.h"

enum { LARGE = TUTTI_TCP_PAYLOAD };

/* Member 0 of n, and the far ends of its sockets, which the test holds. */
struct lone {
    struct pairs *pairs;
    struct tutti_transport *t;
};
static inline struct lone lone_open(uint32_t n, bool mute)
{
    struct lone lone = {.pairs = pairs_new(n, AF_INET)};
    lone.pairs->mute = mute;
    assert_int_equal(pairs_open(lone.pairs, 0, &lone.t), TUTTI_OK);
    return lone;
}
static inline void lone_close(struct lone *lone)
{
    pairs_leave(lone->pairs, 0);
    lone->t->ops->close(lone->t);
    pairs_free(lone->pairs);
}
/* The far end of the socket to `peer`, which stays with the test. */
static inline int lone_connect(struct lone *lone, uint32_t peer)
{
    pairs_make(lone->pairs, 0, peer);
    int *fd = &lone->pairs->fds[peer * lone->pairs->n], far = *fd - 1;
    *fd = -1;
    return far;
}

static inline void write_packet(int fd, uint32_t bytes, uint64_t seq, size_t only)
{
    uint8_t *all = malloc(TUTTI_PACKET_WIRE_BYTES + bytes);
    struct tutti_packet packet = test_packet(bytes, seq);
    packet.version = TUTTI_WIRE_VERSION;
    tutti_packet_encode(&packet, all);
    test_payload(all + TUTTI_PACKET_WIRE_BYTES, bytes, seq);
    size_t n = TUTTI_PACKET_WIRE_BYTES + bytes;
    if (only < n) n = only;
    assert_int_equal(send(fd, all, n, MSG_NOSIGNAL), n);
    free(all);
}

static inline enum tutti_status wait_event(struct tutti_transport *t, struct tutti_event *out)
{
    const uint64_t deadline = tutti_deadline_ns(TEST_DEADLINE_NS);
    enum tutti_status status;
    while ((status = t->ops->poll(t, out)) == TUTTI_AGAIN && tutti_now_ns() < deadline) sched_yield();
    return status;
}

static inline enum tutti_status send_until(struct tutti_transport *t, uint32_t peer, enum tutti_status wanted)
{
    const uint64_t deadline = tutti_deadline_ns(TEST_DEADLINE_NS);
    enum tutti_status status;
    while ((status = test_send(t, peer, 8, 0)) != wanted && tutti_now_ns() < deadline) {
        struct tutti_event e;
        if (test_poll(t, &e) == TUTTI_OK) t->ops->release(t);
    }
    return status;
}

#endif
