/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_WORLD_TEST_H
#define TUTTI_TRANSPORT_WORLD_TEST_H

/* What the tests of transports share: worlds of each kind inside one process, packets whose content follows from a
 * seed, and waiting with a deadline. */

#include "test.h"

#include "transport/host/layout.h"
#include "transport/mixed.h"
#include "transport/open.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TEST_TSAN 0
#ifdef __SANITIZE_THREAD__
#undef TEST_TSAN
#define TEST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#undef TEST_TSAN
#define TEST_TSAN 1
#endif
#endif

#ifndef TEST_CONTROL_BYTES
#define TEST_CONTROL_BYTES(n) 0 /* the tests of control want room for it */
#endif
#define TEST_DEADLINE_NS (30 * TUTTI_NS_PER_S)

struct backend {
    const char *name, *transport, *decorators;
    bool attach;       /* each member maps the segment by itself, at its own address */
    uint64_t delay_ns; /* of the delay decorator */
    bool mixed;        /* two worlds of this transport, and "mixed" over both: peers take turns */
};

struct world {
    const struct backend *backend;
    uint32_t n;
    struct tutti_segment *segment; /* the test's own handle */
    struct tutti_segment *second;  /* ... of the other world under "mixed"; NULL: none */
    struct tutti_transport **members;
};

static inline struct tutti_segment *test_handle(const struct world *world)
{
    struct tutti_segment *handle = NULL;
    if (world->backend->attach) {
        int control, heap;
        tutti_segment_fds(world->segment, &control, &heap);
        assert_int_equal(
            tutti_segment_attach(fcntl(control, F_DUPFD_CLOEXEC, 0), fcntl(heap, F_DUPFD_CLOEXEC, 0), &handle),
            TUTTI_OK);
    } else {
        assert_int_equal(tutti_segment_share(world->segment, &handle), TUTTI_OK);
    }
    return handle;
}

/* Member i of a mixed world: on even distances peers meet in the first world, on odd ones in the second. */
static inline struct tutti_transport *test_mixed_open(struct world *world, struct tutti_transport *first, uint32_t i)
{
    struct tutti_mixed_peer *peers = calloc(world->n, sizeof(*peers));
    struct tutti_transport *inner[2] = {first}, *mixed;
    struct tutti_segment *handle;
    assert_non_null(peers);
    assert_int_equal(tutti_segment_share(world->second, &handle), TUTTI_OK);
    assert_int_equal(tutti_transport_open(world->backend->transport, handle, i, &inner[1]), TUTTI_OK);
    for (uint32_t p = 0; p < world->n; p++) peers[p] = (struct tutti_mixed_peer){(p + i) % 2, p};
    assert_int_equal(tutti_mixed_open(inner, 2, peers, world->n, i, &mixed), TUTTI_OK);
    free(peers);
    return mixed;
}

/* Opens member i. */
static inline void test_member_open(struct world *world, uint32_t i)
{
    const struct tutti_decorator_options options = {.fault = "seed=1,drop=0,duplicate=0,delay=0",
                                                    .delay_ns = world->backend->delay_ns};
    struct tutti_transport *bare;
    assert_int_equal(tutti_transport_open(world->backend->transport, test_handle(world), i, &bare), TUTTI_OK);
    if (world->second) bare = test_mixed_open(world, bare, i);
    assert_int_equal(tutti_transport_decorate(bare, world->backend->decorators, &options, &world->members[i]),
                     TUTTI_OK);
}

static inline void test_member_close(struct world *world, uint32_t i)
{
    if (world->members[i]) world->members[i]->ops->close(world->members[i]);
    world->members[i] = NULL;
}

/* staging 0: the smallest rings. Members are opened unless `empty`. */
static inline struct world test_world_make(const struct backend *backend, uint32_t n, size_t staging, bool empty)
{
    struct world world = {.backend = backend, .n = n};
    const struct tutti_segment_config config = {
        .n = n,
        .staging_bytes = staging,
        .heap_bytes = UINT64_C(1) << 30,
        .control_bytes = TEST_CONTROL_BYTES(n),
    };
    const char *name;
    bool spans;
    assert_int_equal(tutti_transport_choose(backend->transport, false, n, &name, &spans), TUTTI_OK);
    assert_int_equal(tutti_segment_create(&config, spans, &world.segment), TUTTI_OK);
    if (backend->mixed) assert_int_equal(tutti_segment_create(&config, spans, &world.second), TUTTI_OK);
    world.members = calloc(n, sizeof(struct tutti_transport *));
    assert_non_null(world.members);
    for (uint32_t i = 0; i < n && !empty; i++) test_member_open(&world, i);
    return world;
}

static inline void test_world_free(struct world *world)
{
    for (uint32_t i = 0; i < world->n; i++) test_member_close(world, i);
    tutti_segment_release(world->segment);
    if (world->second) tutti_segment_release(world->second);
    free(world->members);
}

/* ---- packets ---- */

static inline void test_payload(unsigned char *payload, size_t bytes, uint64_t seed)
{
    uint64_t state = seed;
    size_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        uint64_t word = tutti_random64(&state);
        memcpy(payload + i, &word, 8);
    }
    for (; i < bytes; i++) payload[i] = (unsigned char)tutti_random64(&state);
}

static inline struct tutti_packet test_packet(uint32_t bytes, uint64_t seq)
{
    return (struct tutti_packet){.type = TUTTI_PACKET_DATA,
                                 .flags = TUTTI_PACKET_LAST,
                                 .credits = 3,
                                 .source = 77, /* the transport knows better */
                                 .comm = tutti_mix64(seq + 1),
                                 .epoch = (uint32_t)seq * 3,
                                 .bytes = bytes,
                                 .seq = seq,
                                 .slice = (uint32_t)seq + 1,
                                 .fifo = (uint32_t)seq + 2,
                                 .signature = tutti_mix64(seq + 2),
                                 .total = bytes + seq,
                                 .offset = seq * 5,
                                 .count = tutti_mix64(seq + 3),
                                 .call = tutti_mix64(seq + 4)};
}

static inline enum tutti_status test_send_bytes(struct tutti_transport *t, uint32_t peer, uint32_t bytes, uint64_t seq,
                                                const void *payload)
{
    const struct tutti_packet packet = test_packet(bytes, seq);
    const struct tutti_span span = {payload, bytes};
    return t->ops->send(t, peer, &packet, &span, bytes > 0 ? 1 : 0, 0);
}

/* A packet whose payload follows from seq. */
static inline enum tutti_status test_send(struct tutti_transport *t, uint32_t peer, uint32_t bytes, uint64_t seq)
{
    static _Thread_local unsigned char payload[TUTTI_RING_MAX_BYTES / 4];
    test_payload(payload, bytes, seq);
    return test_send_bytes(t, peer, bytes, seq, payload);
}

/* True if the arrival is the packet (bytes, seq) from source, to the last bit. */
static inline bool test_arrival_is(const struct tutti_event *arrival, uint32_t source, uint32_t bytes, uint64_t seq)
{
    static _Thread_local unsigned char expected[TUTTI_RING_MAX_BYTES / 4];
    struct tutti_packet packet = test_packet(bytes, seq);
    packet.version = TUTTI_WIRE_VERSION;
    packet.source = source;
    test_payload(expected, bytes, seq);
    return memcmp(&arrival->packet, &packet, sizeof(packet)) == 0 && (uintptr_t)arrival->payload % 16 == 0 &&
           (bytes == 0 || memcmp(arrival->payload, expected, bytes) == 0);
}

/* Polls until something comes; AGAIN at the deadline. */
static inline enum tutti_status test_wait(struct tutti_transport *t, struct tutti_event *out)
{
    const uint64_t deadline = tutti_deadline_ns(TEST_DEADLINE_NS);
    for (;;) {
        enum tutti_status status = t->ops->poll(t, out);
        if (status != TUTTI_AGAIN || tutti_now_ns() > deadline) return status;
        sched_yield();
    }
}

/* Whether one of the sources would end a sleep now. */
static inline bool test_fired(const struct tutti_sources *sources)
{
    for (uint32_t i = 0; i < sources->n; i++)
        if (sources->at[i].word && *sources->at[i].word != sources->at[i].expected) return true;
    return sources->due_ns <= tutti_now_ns();
}

static inline void test_wait_for(const struct tutti_sources *sources)
{
    _Atomic uint32_t *words[TUTTI_SOURCES_MAX];
    uint32_t expected[TUTTI_SOURCES_MAX];
    for (uint32_t i = 0; i < sources->n; i++) words[i] = sources->at[i].word, expected[i] = sources->at[i].expected;
    tutti_futex_wait_any(words, expected, sources->n, sources->due_ns);
}

/* Sleeps as the engine does, until a wake-up or until until_ns. True if it was told not to sleep or woken. */
static inline bool test_sleep(struct tutti_transport *t, uint64_t until_ns)
{
    struct tutti_sources sources;
    bool woken = true;
    tutti_sources_init(&sources);
    tutti_sources_until(&sources, until_ns);
    if (t->ops->sleep_begin(t, &sources)) {
        test_wait_for(&sources);
        woken = tutti_now_ns() < until_ns;
    }
    t->ops->sleep_end(t);
    return woken;
}

static inline void test_expect_nothing(struct tutti_transport *t)
{
    struct tutti_event arrival;
    assert_int_equal(t->ops->poll(t, &arrival), TUTTI_AGAIN);
}

/* Announces a sleep and does not sleep: whether it would have been right to. */
static inline bool test_may_sleep(struct tutti_transport *t)
{
    struct tutti_sources sources;
    tutti_sources_init(&sources);
    bool may = t->ops->sleep_begin(t, &sources);
    t->ops->sleep_end(t);
    return may;
}

/* Descriptors open in this process. */
static inline int test_n_fds(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

#endif
