/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TRANSPORT_WORLD_TEST_H
#define TUTTI_TRANSPORT_WORLD_TEST_H

/* What the tests of transports share: worlds of each kind inside one process, packets whose content follows from a
 * seed, and waiting with a deadline. */

#include "test.h"

#include "base/poller.h"
#include "transport/host/layout.h"
#include "transport/late_test.h"
#include "transport/mixed.h"
#include "transport/open.h"
#include "transport/pairs_test.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
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
    const char *name, *transport, *decorators; /* transport: of one host, "late", "tcp", "tcp6", "ofi" */
    bool attach;                               /* each member maps the segment by itself, at its own address */
    uint64_t delay_ns;                         /* for the delay decorator */
    const char *second; /* a mixed over `transport` and this one: peers take turns. NULL: one alone */
};

/* What a transport is opened with. */
struct medium {
    const char *transport;
    struct tutti_segment *segment; /* the test's own handle */
    struct late_net *late;
    struct pairs *pairs;
};
struct world {
    const struct backend *backend;
    uint32_t n;
    struct medium first, second;   /* second: of the other transport under a mixed one */
    struct tutti_segment *segment; /* the first one's; NULL: not of one host */
    struct tutti_transport **members;
};

static inline struct tutti_segment *test_segment_handle(const struct world *world, struct tutti_segment *segment)
{
    struct tutti_segment *handle = NULL;
    if (world->backend->attach) {
        int control, heap;
        tutti_segment_fds(segment, &control, &heap);
        assert_int_equal(
            tutti_segment_attach(fcntl(control, F_DUPFD_CLOEXEC, 0), fcntl(heap, F_DUPFD_CLOEXEC, 0), &handle),
            TUTTI_OK);
    } else {
        assert_int_equal(tutti_segment_share(segment, &handle), TUTTI_OK);
    }
    return handle;
}

static inline struct tutti_segment *test_handle(const struct world *world)
{
    return test_segment_handle(world, world->segment);
}

/* "tcp", "tcp6", "tcp*": with three more sockets, "ofi", "ofi:PROVIDER"; "ofi=...": with writes, "ofi+...": and all
 * memory registered, "ofi|...": two rails. */
static inline bool test_is_network(const char *transport)
{
    return strncmp(transport, "tcp", 3) == 0 || strncmp(transport, "ofi", 3) == 0;
}

static inline void test_medium_make(struct medium *medium, const char *transport, uint32_t n, size_t staging)
{
    const struct tutti_segment_config config = {
        .n = n,
        .staging_bytes = staging,
        .heap_bytes = UINT64_C(1) << 30,
        .control_bytes = TEST_CONTROL_BYTES(n),
    };
    const char *name;
    bool spans;
    medium->transport = transport;
    if (strcmp(transport, "late") == 0) {
        medium->late = late_net_make(n, NULL, 0);
    } else if (test_is_network(transport)) {
        medium->pairs = pairs_new(n, strcmp(transport, "tcp6") == 0 ? AF_INET6 : AF_INET);
        if (strcmp(transport, "tcp*") == 0) medium->pairs->paths = 3;
        if (transport[0] == 'o') medium->pairs->provider = transport[3] ? transport + 4 : "auto";
        medium->pairs->registers = strncmp(transport, "ofi+", 4) == 0;
        medium->pairs->writes = strncmp(transport, "ofi=", 4) == 0 || medium->pairs->registers;
        if (strncmp(transport, "ofi|", 4) == 0) medium->pairs->domain = "lo,lo";
    } else {
        assert_int_equal(tutti_transport_choose(transport, false, n, &name, &spans), TUTTI_OK);
        assert_int_equal(tutti_segment_create(&config, spans, &medium->segment), TUTTI_OK);
    }
}

static inline void test_medium_free(struct medium *medium)
{
    if (medium->late) late_net_free(medium->late);
    if (medium->pairs) pairs_free(medium->pairs);
    if (medium->segment) tutti_segment_release(medium->segment);
}

static inline struct tutti_transport *test_bare_open(const struct world *world, const struct medium *medium, uint32_t i)
{
    struct tutti_transport *bare = NULL;
    if (medium->late) return late_wire_open(medium->late, i);
    if (medium->pairs)
        assert_int_equal(pairs_open(medium->pairs, i, &bare), TUTTI_OK);
    else
        assert_int_equal(tutti_transport_open(medium->transport, test_segment_handle(world, medium->segment), i, &bare),
                         TUTTI_OK);
    return bare;
}

/* Member i of a mixed one: on even distances peers meet in the first world, on odd ones in the second. */
static inline struct tutti_transport *test_mixed_open(struct world *world, struct tutti_transport *first, uint32_t i)
{
    struct tutti_mixed_peer *peers = calloc(world->n, sizeof(*peers));
    struct tutti_transport *inner[2] = {first, test_bare_open(world, &world->second, i)}, *mixed;
    assert_non_null(peers);
    for (uint32_t p = 0; p < world->n; p++) peers[p] = (struct tutti_mixed_peer){(p + i) % 2, p};
    assert_int_equal(tutti_mixed_open(inner, 2, peers, world->n, i, &mixed), TUTTI_OK);
    free(peers);
    return mixed;
}

/* Providers of libfabric move bytes only while both ends are polled: waiting for one member looks after all. */
static struct world test_looked_after;
static inline void test_look_after(const struct tutti_transport *but)
{
    for (uint32_t i = 0; i < test_looked_after.n; i++) {
        struct tutti_transport *t = test_looked_after.members[i];
        if (t && t != but && t->ops->holds) t->ops->holds(t, 0);
    }
}

/* Whether all that was sent is written; a network may hear of it a little later. */
static inline bool test_is_written(struct tutti_transport *t)
{
    const uint64_t end = tutti_deadline_ns(test_looked_after.n > 0 ? TEST_DEADLINE_NS : 0);
    if (!t->ops->owes) return true;
    while (t->ops->owes(t)) {
        if (tutti_now_ns() > end) return false;
        test_look_after(t);
    }
    return true;
}

/* Opens member i. */
static inline void test_member_open(struct world *world, uint32_t i)
{
    const struct tutti_decorator_options options = {.fault = "seed=1,drop=0,duplicate=0,delay=0",
                                                    .delay_ns = world->backend->delay_ns};
    struct tutti_transport *bare = test_bare_open(world, &world->first, i);
    if (world->backend->second) bare = test_mixed_open(world, bare, i);
    assert_int_equal(tutti_transport_decorate(bare, world->backend->decorators, &options, &world->members[i]),
                     TUTTI_OK);
}

static inline void test_member_leave(struct world *world, uint32_t i)
{
    if (world->first.pairs) pairs_leave(world->first.pairs, i);
    if (world->second.pairs) pairs_leave(world->second.pairs, i);
}

static inline void test_member_close(struct world *world, uint32_t i)
{
    if (!world->members[i]) return;
    test_member_leave(world, i);
    world->members[i]->ops->close(world->members[i]);
    world->members[i] = NULL;
}

/* staging 0: the smallest rings. Members are opened unless `empty`. */
static inline struct world test_world_make(const struct backend *backend, uint32_t n, size_t staging, bool empty)
{
    struct world world = {.backend = backend, .n = n};
    test_medium_make(&world.first, backend->transport, n, staging);
    if (backend->second) test_medium_make(&world.second, backend->second, n, staging);
    world.segment = world.first.segment;
    world.members = calloc(n, sizeof(struct tutti_transport *));
    assert_non_null(world.members);
    for (uint32_t i = 0; i < n && !empty; i++) test_member_open(&world, i);
    if (strncmp(backend->transport, "ofi", 3) == 0) test_looked_after = world;
    return world;
}

static inline void *test_close_one(void *transport)
{
    struct tutti_transport *t = transport;
    t->ops->close(t);
    return NULL;
}

/* All at once, as ranks do: a network waits for peers to take what was sent. */
static inline void test_world_free(struct world *world)
{
    pthread_t *threads = calloc(world->n, sizeof *threads);
    assert_non_null(threads);
    test_looked_after.n = 0;
    for (uint32_t i = 0; i < world->n; i++) {
        if (!world->members[i]) continue;
        test_member_leave(world, i);
        assert_int_equal(pthread_create(&threads[i], NULL, test_close_one, world->members[i]), 0);
    }
    for (uint32_t i = 0; i < world->n; i++)
        if (world->members[i]) pthread_join(threads[i], NULL);
    free(threads);
    test_medium_free(&world->first);
    test_medium_free(&world->second);
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

/* What is above t->copied must stay until the completion with `token`. */
static inline enum tutti_status test_send_lent(struct tutti_transport *t, uint32_t peer, uint32_t bytes, uint64_t seq,
                                               const void *payload, uint64_t token)
{
    const struct tutti_packet packet = test_packet(bytes, seq);
    const struct tutti_span span = {payload, bytes};
    return t->ops->send(t, peer, &packet, &span, bytes > 0 ? 1 : 0, token);
}

static inline enum tutti_status test_send_bytes(struct tutti_transport *t, uint32_t peer, uint32_t bytes, uint64_t seq,
                                                const void *payload)
{
    return test_send_lent(t, peer, bytes, seq, payload, 0);
}

/* A packet whose payload follows from seq. OK, too, if it is pending: its memory is freed by test_poll. */
static inline enum tutti_status test_send(struct tutti_transport *t, uint32_t peer, uint32_t bytes, uint64_t seq)
{
    static _Thread_local unsigned char small[TUTTI_RING_MAX_BYTES / 4];
    unsigned char *payload = bytes > t->copied || bytes > sizeof(small) ? malloc(bytes) : small;
    test_payload(payload, bytes, seq);
    enum tutti_status status = test_send_lent(t, peer, bytes, seq, payload, (uint64_t)(uintptr_t)payload);
    if (payload != small && status != TUTTI_PENDING) free(payload);
    return status == TUTTI_PENDING ? TUTTI_OK : status;
}

/* Polls for an arrival: all payloads come whole, and what test_send lent is freed. */
static inline enum tutti_status test_poll(struct tutti_transport *t, struct tutti_event *out)
{
    for (;;) {
        enum tutti_status status = t->ops->poll(t, out);
        if (status != TUTTI_OK || out->type == TUTTI_EVENT_ARRIVAL) return status;
        if (out->type == TUTTI_EVENT_HEADER) t->ops->place(t, NULL, 0, 0);
        if (out->type == TUTTI_EVENT_DONE) free((void *)(uintptr_t)out->token);
    }
}

/* True if the arrival is the packet (bytes, seq) from source, to the last bit. */
static inline bool test_arrival_is(const struct tutti_event *arrival, uint32_t source, uint32_t bytes, uint64_t seq)
{
    static _Thread_local unsigned char expected[TUTTI_TCP_PAYLOAD];
    struct tutti_packet packet = test_packet(bytes, seq);
    packet.version = TUTTI_WIRE_VERSION;
    packet.source = source;
    test_payload(expected, bytes, seq);
    return memcmp(&arrival->packet, &packet, sizeof(packet)) == 0 && (uintptr_t)arrival->payload % 16 == 0 &&
           (bytes == 0 || memcmp(arrival->payload, expected, bytes) == 0);
}

/* Polls until something comes; AGAIN at the deadline. from: a sender, to which nothing comes, and which may owe; NULL.
 */
static inline enum tutti_status test_wait_from(struct tutti_transport *t, struct tutti_transport *from,
                                               struct tutti_event *out)
{
    const uint64_t deadline = tutti_deadline_ns(TEST_DEADLINE_NS);
    for (;;) {
        if (from) assert_int_equal(test_poll(from, out), TUTTI_AGAIN);
        enum tutti_status status = test_poll(t, out);
        if (status != TUTTI_AGAIN || tutti_now_ns() > deadline) return status;
        test_look_after(t);
        sched_yield();
    }
}
static inline enum tutti_status test_wait(struct tutti_transport *t, struct tutti_event *out)
{
    return test_wait_from(t, NULL, out);
}

/* Whether one of the sources would end a sleep now. */
static inline bool test_fired(const struct tutti_sources *sources)
{
    for (uint32_t i = 0; i < sources->n; i++) {
        struct pollfd fd = {.fd = sources->at[i].fd, .events = POLLIN};
        if (sources->at[i].word ? *sources->at[i].word != sources->at[i].expected : poll(&fd, 1, 0) > 0) return true;
    }
    return sources->due_ns <= tutti_now_ns();
}

/* Sleeps as the engine does, until a wake-up or until until_ns. True if it was told not to sleep or woken. */
static inline bool test_sleep(struct tutti_transport *t, uint64_t until_ns)
{
    struct tutti_sources sources;
    bool woken = true;
    tutti_sources_init(&sources);
    tutti_sources_until(&sources, until_ns);
    if (t->ops->sleep_begin(t, &sources)) {
        tutti_poller_wait(NULL, &sources);
        woken = tutti_now_ns() < until_ns;
    }
    t->ops->sleep_end(t);
    return woken;
}

static inline void test_expect_nothing(struct tutti_transport *t)
{
    struct tutti_event arrival;
    assert_int_equal(test_poll(t, &arrival), TUTTI_AGAIN);
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
