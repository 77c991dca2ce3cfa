/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract of transport.h, asked of every transport, every decorator and a mixed one inside one process. What needs
 * several processes is in process_test.c. */

#include "world_test.h"

#include <pthread.h>
#include <stdatomic.h>

#define BARE(name, spans, max_members, help) {#name, #name, "", false, 0, NULL},
#define NETWORK(name, max_members, help) BARE(name, , , )
#define DECORATED(name, help) {#name, "self", #name, false, 0, NULL},
static const struct backend backends[] = {
    TUTTI_HOST_TRANSPORTS(BARE) TUTTI_NETWORKS(NETWORK) TUTTI_DECORATORS(DECORATED) /* whatever is in the lists */
    {"shm, own mappings", "shm", "", true, 0, NULL},
    {"trace,fault,delay over shm", "shm", "trace,fault,delay", true, 20000, NULL},
    {"late", "late", "", false, 0, NULL},
    {"tcp over IPv6", "tcp6", "", false, 0, NULL},
    {"tcp with more sockets", "tcp*", "", false, 0, NULL},
    {"trace,fault,delay over tcp", "tcp", "trace,fault,delay", false, 20000, NULL},
    {"ofi over tcp", "ofi:tcp", "", false, 0, NULL},
    {"ofi over tcp and rxm", "ofi:tcp;ofi_rxm", "", false, 0, NULL},
    {"ofi over tcp and rxm with writes", "ofi=tcp;ofi_rxm", "", false, 0, NULL},
    {"ofi over net", "ofi:net", "", false, 0, NULL},
    {"ofi over net with writes", "ofi+net", "", false, 0, NULL},
    {"ofi over two rails", "ofi|net", "", false, 0, NULL},
    {"ofi over sockets", "ofi:sockets", "", false, 0, NULL},
    {"ofi over udp", "ofi:udp;ofi_rxd", "", false, 0, NULL},
    {"ofi over udp with writes", "ofi=udp;ofi_rxd", "", false, 0, NULL},
    {"ofi over a card", "ofi:pinned", "", false, 0, NULL}, /* tests/standin/fabric */
    {"ofi over a card with writes", "ofi=pinned", "", false, 0, NULL},
    {"trace,fault,delay over ofi", "ofi:net", "trace,fault,delay", false, 20000, NULL},
    {"mixed over self twice", "self", "", false, 0, "self"},
    {"trace over mixed", "self", "trace", false, 0, "self"},
    {"mixed over shm and tcp", "shm", "", false, 0, "tcp"},
    {"mixed over shm and tcp with more sockets", "shm", "", false, 0, "tcp*"},
};

static bool is_of_one_host(const struct backend *backend)
{
    return !test_is_network(backend->transport) && strcmp(backend->transport, "late") != 0 &&
           (!backend->second || strcmp(backend->second, "self") == 0);
}

/* ---- payloads ---- */

/* Member 0 sends, member 1 receives, the rings are kept full. */
static void stream(struct world *world, const uint32_t *sizes, uint32_t n)
{
    struct tutti_transport *from = world->members[0], *to = world->members[1];
    uint32_t n_sent = 0;
    for (uint32_t n_received = 0; n_received < n; n_received++) {
        enum tutti_status status = TUTTI_OK;
        while (n_sent < n && (status = test_send(from, 1, sizes[n_sent], n_sent)) == TUTTI_OK) n_sent++;
        assert_true(status == TUTTI_OK || status == TUTTI_AGAIN);
        struct tutti_event arrival;
        assert_int_equal(test_wait_from(to, from, &arrival), TUTTI_OK);
        assert_true(test_arrival_is(&arrival, 0, sizes[n_received], n_received));
        to->ops->release(to);
    }
    test_expect_nothing(to);
    assert_true(test_is_written(from));
}

static void every_size_in_order(void **state)
{
    struct world world = test_world_make(*state, 3, 0, false);
    const uint32_t max = 4096; /* which all take */
    if (is_of_one_host(*state)) assert_int_equal(world.members[0]->max_payload, 4096);
    uint32_t *sizes = malloc((max + 1) * sizeof(*sizes));
    for (uint32_t i = 0; i <= max; i++) sizes[i] = i;
    stream(&world, sizes, max + 1);
    free(sizes);
    test_world_free(&world);
}

static void large_sizes_in_order(void **state)
{
    struct world world = test_world_make(*state, 2, 2 << 20, false);
    const uint32_t max = (uint32_t)world.members[0]->max_payload;
    if (is_of_one_host(*state)) assert_int_equal(max, 256 << 10);
    uint32_t sizes[60] = {0, max, 1, max - 1, max, 63, 64, 65, max - 63, 4097};
    uint64_t random = test_seed();
    for (size_t i = 10; i < TUTTI_ARRAY_LEN(sizes); i++) sizes[i] = (uint32_t)(tutti_random64(&random) % (max + 1));
    stream(&world, sizes, TUTTI_ARRAY_LEN(sizes));
    test_world_free(&world);
}

static void spans_are_gathered(void **state)
{
    struct world world = test_world_make(*state, 2, 0, false);
    struct tutti_transport *from = world.members[0], *to = world.members[1];
    uint64_t random = test_seed();
    unsigned char payload[3000];
    for (uint64_t seq = 0; seq < 200; seq++) {
        struct tutti_span spans[17];
        uint32_t at = 0, n_spans = (uint32_t)(tutti_random64(&random) % 18);
        test_payload(payload, sizeof(payload), seq);
        for (uint32_t i = 0; i < n_spans; i++) {
            size_t bytes = tutti_random64(&random) % 4 == 0 ? 0 : tutti_random64(&random) % 170;
            spans[i] = (struct tutti_span){bytes > 0 ? payload + at : NULL, bytes};
            at += (uint32_t)bytes;
        }
        const struct tutti_packet packet = test_packet(at, seq);
        assert_int_equal(from->ops->send(from, 1, &packet, spans, n_spans, 0), TUTTI_OK);
        struct tutti_event arrival;
        assert_int_equal(test_wait(to, &arrival), TUTTI_OK);
        assert_int_equal(arrival.packet.bytes, at);
        if (at > 0) assert_memory_equal(arrival.payload, payload, at);
        to->ops->release(to);
    }
    test_world_free(&world);
}

static void bad_sends_are_refused(void **state)
{
    struct world world = test_world_make(*state, 2, 0, false);
    struct tutti_transport *t = world.members[0];
    const uint32_t too_long = (uint32_t)t->max_payload + 1;
    char *payload = calloc(1, too_long);
    struct tutti_packet packet = test_packet(too_long, 0);
    struct tutti_span span = {payload, too_long};
    assert_int_equal(t->ops->send(t, 1, &packet, &span, 1, 0), TUTTI_ERR_ARGUMENT); /* too long */
    packet.bytes = 100;
    span.bytes = 99;
    assert_int_equal(t->ops->send(t, 1, &packet, &span, 1, 0), TUTTI_ERR_ARGUMENT); /* spans do not add up */
    span.bytes = 100;
    assert_int_equal(t->ops->send(t, 2, &packet, &span, 1, 0), TUTTI_ERR_ARGUMENT); /* nobody there */
    assert_int_equal(t->ops->send(t, 1, &packet, &span, 1, 0), TUTTI_OK);
    free(payload);
    test_world_free(&world);
}

static void oneself_can_be_sent_to(void **state)
{
    struct world world = test_world_make(*state, 2, 0, false);
    struct tutti_transport *t = world.members[1];
    for (uint64_t seq = 0; seq < 300; seq++) {
        struct tutti_event arrival;
        assert_int_equal(test_send(t, 1, (uint32_t)seq * 13, seq), TUTTI_OK);
        assert_int_equal(test_wait(t, &arrival), TUTTI_OK);
        assert_true(test_arrival_is(&arrival, 1, (uint32_t)seq * 13, seq));
        t->ops->release(t);
    }
    test_world_free(&world);
}

/* ---- many peers ---- */

static void peers_take_turns(void **state)
{
    enum { N = 70, EACH = 10 }; /* more than one word of the bitmap */
    struct world world = test_world_make(*state, N, 0, false);
    struct tutti_transport *to = world.members[5];
    uint32_t n_from[N] = {0};
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t k = 0; k < EACH * (i == 3 ? 5 : 1); k++) /* a greedy one among them */
            assert_int_equal(test_send(world.members[i], 5, 100, k), TUTTI_OK);
    for (uint32_t i = 0; i < N && test_looked_after.n > 0; i++) /* connections come at different times */
        for (const uint64_t end = tutti_deadline_ns(TEST_DEADLINE_NS); !to->ops->holds(to, i) && tutti_now_ns() < end;)
            test_look_after(to);
    for (uint32_t i = 0; i < N; i++) /* the greedy one waits for room */
        assert_true(test_looked_after.n == 0 || i == 3 || test_is_written(world.members[i]));
    for (uint32_t lap = 0; lap < EACH; lap++) {
        for (uint32_t k = 0; k < N; k++) {
            struct tutti_event arrival;
            assert_int_equal(test_wait(to, &arrival), TUTTI_OK);
            const uint32_t source = arrival.packet.source;
            assert_in_range(source, 0, N - 1);
            assert_true(test_arrival_is(&arrival, source, 100, n_from[source]));
            assert_in_range(++n_from[source], lap > 0 ? lap - 1 : 0, lap + 2); /* nobody is a lap ahead */
            to->ops->release(to);
        }
    }
    test_world_free(&world);
}

/* RSS of this process, in bytes. */
static size_t resident_bytes(void)
{
    unsigned long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu %lu", &size, &resident), 2);
    fclose(f);
    return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* Threads or not, a member costs what it uses. */
static void a_thousand_members(void **state)
{
    enum { N = 1000, PEERS = 10 };
    const size_t bound = (size_t)(TEST_TSAN ? 2048 : 64) << 20; /* shadow memory counts, too */
    const size_t before = resident_bytes();
    struct world world = test_world_make(*state, N, 4 << 20, false);
    const size_t opened = resident_bytes();
    assert_true(opened < before + bound); /* nobody has met anybody yet */
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t k = 0; k < PEERS; k++)
            assert_int_equal(test_send(world.members[i], (i + (1U << k)) % N, 200, i + k), TUTTI_OK);
    for (uint32_t i = 0; i < N; i++) {
        struct tutti_transport *t = world.members[i];
        bool seen[PEERS] = {false};
        for (uint32_t n = 0; n < PEERS; n++) {
            struct tutti_event arrival;
            assert_int_equal(test_wait(t, &arrival), TUTTI_OK);
            uint32_t k = 0;
            while (k < PEERS && (arrival.packet.source + (1U << k)) % N != i) k++;
            assert_true(k < PEERS && !seen[k]);
            seen[k] = true;
            assert_true(test_arrival_is(&arrival, arrival.packet.source, 200, arrival.packet.source + k));
            t->ops->release(t);
        }
        test_expect_nothing(t);
    }
    test_world_free(&world);
}

/* ---- full rings, sleeping, waking ---- */

static void full_then_told_of_room(void **state)
{
    struct world world = test_world_make(*state, 2, 0, false);
    struct tutti_transport *from = world.members[0], *to = world.members[1];
    for (int round = 0; round < 20; round++) {
        uint64_t n_sent = 0;
        while (test_send(from, 1, 1000, n_sent) == TUTTI_OK) n_sent++;
        assert_true(n_sent >= 10);
        if (is_of_one_host(*state)) assert_true(n_sent <= 16);
        assert_int_equal(test_send(from, 1, 1000, n_sent), TUTTI_AGAIN);
        assert_true(test_may_sleep(from)); /* nothing to do but wait */
        for (uint64_t seq = 0; seq < n_sent; seq++) {
            struct tutti_event arrival;
            assert_int_equal(test_wait_from(to, from, &arrival), TUTTI_OK);
            assert_true(test_arrival_is(&arrival, 0, 1000, seq));
            to->ops->release(to);
        }
        assert_false(test_may_sleep(from)); /* there is room: send, do not sleep */
        assert_true(test_may_sleep(from));  /* told once */
    }
    test_world_free(&world);
}

static void no_sleep_with_work_left(void **state)
{
    struct world world = test_world_make(*state, 2, 0, false);
    struct tutti_transport *t = world.members[1];
    struct tutti_event arrival;
    struct tutti_sources sources;
    tutti_sources_init(&sources);
    assert_true(t->ops->sleep_begin(t, &sources));
    assert_false(test_fired(&sources));
    assert_int_equal(test_send(world.members[0], 1, 10, 0), TUTTI_OK);
    assert_true(test_fired(&sources)); /* for it said that it sleeps */
    t->ops->sleep_end(t);
    assert_false(test_may_sleep(t));
    assert_int_equal(test_wait(t, &arrival), TUTTI_OK);
    t->ops->release(t);
    test_expect_nothing(t);
    t->ops->wake(t); /* before the sleep, and not lost */
    assert_false(test_may_sleep(t));
    assert_true(test_may_sleep(t));
    test_world_free(&world);
}

static void *wake_later(void *arg)
{
    struct tutti_transport *t = arg;
    tutti_sleep_ns(30 * TUTTI_NS_PER_MS);
    t->ops->wake(t);
    return NULL;
}

static void woken_by_another_thread(void **state)
{
    struct world world = test_world_make(*state, 1, 0, false);
    for (int i = 0; i < 5; i++) {
        pthread_t waker;
        assert_int_equal(pthread_create(&waker, NULL, wake_later, world.members[0]), 0);
        assert_true(test_sleep(world.members[0], tutti_deadline_ns(TEST_DEADLINE_NS)));
        pthread_join(waker, NULL);
        test_sleep(world.members[0], 0); /* the kernel may have ended the sleep early: drop the wake that is left */
    }
    test_world_free(&world);
}

/* Two threads that sleep whenever they find nothing, after a random number of looks: a lost wake-up is a timeout. */
struct pinger {
    struct tutti_transport *t;
    uint32_t peer, n_rounds;
    bool starts;
    const char *failed;
};

static bool pinger_wait(struct pinger *p, uint64_t *random, uint64_t seq)
{
    struct tutti_event arrival;
    for (uint32_t looks = (uint32_t)(tutti_random64(random) % 64);; looks--) {
        enum tutti_status status = test_poll(p->t, &arrival);
        if (status == TUTTI_OK) break;
        if (status < 0) p->failed = "poll failed";
        if (looks == 0 && !test_sleep(p->t, tutti_deadline_ns(TEST_DEADLINE_NS))) p->failed = "a wake-up was lost";
        if (p->failed) return false;
        if (looks == 0) looks = 1;
    }
    bool right = arrival.packet.seq == seq && arrival.packet.source == p->peer;
    p->t->ops->release(p->t);
    if (!right) p->failed = "another packet came";
    return right;
}

static void *ping_pong(void *arg)
{
    struct pinger *p = arg;
    uint64_t random = test_seed() + p->peer;
    for (uint64_t seq = 0; seq < p->n_rounds; seq++) {
        if (p->starts && test_send(p->t, p->peer, 8, seq) != TUTTI_OK) p->failed = "send failed";
        if (!pinger_wait(p, &random, seq)) return NULL;
        if (!p->starts && test_send(p->t, p->peer, 8, seq) != TUTTI_OK) p->failed = "send failed";
    }
    return NULL;
}

static void ping_pong_loses_no_wake_up(void **state)
{
    const struct backend *backend = *state;
    struct world world = test_world_make(backend, 2, 0, false);
    const uint32_t n_rounds = backend->decorators[0] || backend->second || !is_of_one_host(backend) ? 5000
                              : backend->attach                                                     ? 20000
                                                                                                    : 100000;
    struct pinger a = {world.members[0], 1, n_rounds, true, NULL}, b = {world.members[1], 0, n_rounds, false, NULL};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, ping_pong, &b), 0);
    ping_pong(&a);
    pthread_join(thread, NULL);
    if (a.failed || b.failed) fail_msg("%s, %s", a.failed ? a.failed : "-", b.failed ? b.failed : "-");
    test_world_free(&world);
}

/* ---- life ---- */

/* Sends until it is known that the peer is gone: a network tells when it has read to the end of what came from there.
 * It looks first: providers drop what is there when a send finds the connection closed. Returns whether the packet
 * (44, 1) of member 1 came meanwhile, which is there before. */
static bool gone(struct tutti_transport *t, uint32_t peer, enum tutti_status how)
{
    const uint64_t deadline = tutti_deadline_ns(TEST_DEADLINE_NS);
    bool came = false;
    for (enum tutti_status status = TUTTI_OK; status != how;) {
        struct tutti_event arrival;
        const bool polled = test_poll(t, &arrival) == TUTTI_OK;
        if (polled) {
            assert_true(!came && test_arrival_is(&arrival, 1, 44, 1));
            t->ops->release(t);
        }
        came |= polled;
        status = test_send(t, peer, 8, 0);
        if (status != how) assert_true(status >= 0 && tutti_now_ns() < deadline);
    }
    return came;
}

static void leaving_is_seen(void **state)
{
    struct world world = test_world_make(*state, 3, 0, true);
    test_member_open(&world, 0);
    struct tutti_transport *t = world.members[0];
    assert_int_equal(test_send(t, 1, 33, 0), TUTTI_OK); /* not there yet, but can be sent to already */
    test_member_open(&world, 1);
    struct tutti_event arrival;
    assert_int_equal(test_wait(world.members[1], &arrival), TUTTI_OK);
    assert_true(test_arrival_is(&arrival, 0, 33, 0));
    world.members[1]->ops->release(world.members[1]);

    assert_int_equal(test_send(world.members[1], 0, 44, 1), TUTTI_OK);
    assert_true(test_is_written(world.members[1])); /* providers may need both ends for that, and this one waits now */
    test_member_close(&world, 1);
    bool came = gone(t, 1, TUTTI_ERR_PEER_LEFT);
    assert_int_equal(test_send(t, 2, 8, 0), TUTTI_OK);
    t->ops->cut(t, 2); /* a wire that notices deaths says so */
    assert_int_equal(test_send(t, 2, 8, 0), TUTTI_ERR_PEER_DEAD);
    if (!came) { /* what it sent before still comes */
        assert_int_equal(test_wait(t, &arrival), TUTTI_OK);
        assert_true(test_arrival_is(&arrival, 1, 44, 1));
        t->ops->release(t);
    }
    test_world_free(&world);
}

static void nobody_opens_twice(void **state)
{
    const struct backend *backend = *state;
    struct world world = test_world_make(backend, 3, 0, false);
    struct tutti_transport *again = NULL;
    if (world.segment) {
        struct tutti_segment *handle = test_handle(&world);
        assert_int_equal(tutti_transport_open(backend->transport, handle, 1, &again), TUTTI_ERR_ARGUMENT);
        assert_int_equal(tutti_transport_open(backend->transport, handle, 3, &again), TUTTI_ERR_ARGUMENT);
        tutti_segment_release(handle); /* a failed open leaves it to the caller */
    }
    if (world.first.pairs) assert_int_equal(pairs_open(world.first.pairs, 3, &again), TUTTI_ERR_ARGUMENT);
    assert_null(again);
    test_world_free(&world);
}

/* ---- memory ---- */

static void memory_is_read_in_place(void **state)
{
    struct world world = test_world_make(*state, 3, 0, false);
    if (!world.members[1]->memory || world.second.pairs) {
        test_world_free(&world); /* peers' memory, or that of some, can not be reached */
        return;
    }
    struct tutti_memory *owner = world.members[1]->memory, *reader = world.members[2]->memory;
    assert_true(tutti_memory_reaches_all(owner, (const uint32_t[]){0, 1, 2}, 3));
    void *a, *b;
    uint64_t offset;
    assert_int_equal(owner->ops->alloc(owner, 100000, &a), TUTTI_OK);
    assert_int_equal(owner->ops->alloc(owner, 1, &b), TUTTI_OK);
    assert_int_equal((uintptr_t)a % (uintptr_t)sysconf(_SC_PAGESIZE), 0);
    for (size_t i = 0; i < 100000; i++) assert_int_equal(((unsigned char *)a)[i], 0);
    test_payload(a, 100000, 9);
    assert_true(owner->ops->locate(owner, (char *)a + 777, 90000, &offset));
    const void *there = reader->ops->map(reader, 1, offset, 90000);
    assert_non_null(there);
    assert_memory_equal(there, (char *)a + 777, 90000);
    ((char *)a)[777] = 42; /* one memory, not a copy */
    assert_int_equal(*(const char *)there, 42);
    assert_ptr_equal(reader->ops->map(reader, 1, offset, 90000), there);
    assert_null(reader->ops->map(reader, 3, offset, 90000));
    assert_null(reader->ops->map(reader, 1, UINT64_MAX - 5, 90000));
    assert_int_equal(owner->ops->free(owner, (char *)a + 4096), TUTTI_ERR_ARGUMENT);
    assert_int_equal(owner->ops->free(owner, a), TUTTI_OK);
    assert_int_equal(owner->ops->free(owner, a), TUTTI_ERR_ARGUMENT);
    assert_int_equal(owner->ops->free(owner, b), TUTTI_OK);
    assert_int_equal(owner->ops->alloc(owner, 0, &a), TUTTI_ERR_ARGUMENT);
    test_world_free(&world);
}

/* Until a put or get of member 0 is over. */
static enum tutti_status access_ends(struct tutti_transport *t)
{
    const uint64_t deadline = tutti_deadline_ns(TEST_DEADLINE_NS);
    struct tutti_event event = {.status = TUTTI_ERR_TIMEOUT};
    while (tutti_now_ns() < deadline) {
        test_look_after(t);
        if (t->ops->poll(t, &event) == TUTTI_OK && event.type == TUTTI_EVENT_DONE && event.token == 5) break;
    }
    return event.status;
}

static void memory_is_written_and_read_without_help(void **state)
{
    struct world world = test_world_make(*state, 2, 0, false);
    struct tutti_transport *t = world.members[0], *owner = world.members[1];
    const size_t bytes = 200001;
    unsigned char *part = calloc(1, bytes), *mine = malloc(bytes);
    struct tutti_event arrival;
    struct tutti_key key, none = {.bytes = bytes};
    void *registration;
    assert_int_equal(test_send(t, 1, 8, 0), TUTTI_OK); /* they meet */
    assert_int_equal(test_wait(owner, &arrival), TUTTI_OK);
    owner->ops->release(owner);
    if (t->max_direct > 0 && t->ops->direct(t, 1)) {
        const struct tutti_range all = {.base = part, .bytes = bytes}, range = {.base = mine, .bytes = bytes - 3};
        assert_int_equal(owner->ops->reg(owner, &all, &key, &registration), TUTTI_OK);
        test_payload(mine, bytes, 4);
        assert_int_equal(t->ops->put(t, 1, &key, 3, &range, 5), TUTTI_PENDING);
        assert_int_equal(access_ends(t), TUTTI_OK);
        assert_memory_equal(part + 3, mine, bytes - 3);
        assert_int_equal(part[2], 0);
        test_payload(part, bytes, 6);
        assert_int_equal(t->ops->get(t, 1, &key, 1, &range, 5), TUTTI_PENDING);
        assert_int_equal(access_ends(t), TUTTI_OK);
        assert_memory_equal(mine, part + 1, bytes - 3);
        assert_int_equal(t->ops->put(t, 1, &key, 4, &range, 5), TUTTI_ERR_ARGUMENT); /* one byte too far */
        assert_int_equal(t->ops->get(t, 1, &key, UINT64_MAX, &range, 5), TUTTI_ERR_ARGUMENT);
        assert_int_equal(t->ops->get(t, 1, &none, 0, &range, 5), TUTTI_ERR_ARGUMENT);
        owner->ops->unreg(owner, registration);
    }
    test_world_free(&world);
    free(part), free(mine);
}

/* ---- every test on every backend ---- */

static const struct {
    const char *name;
    CMUnitTestFunction function;
    bool bare; /* not over decorators */
} cases[] = {
    {"every_size_in_order", every_size_in_order, false},
    {"large_sizes_in_order", large_sizes_in_order, false},
    {"spans_are_gathered", spans_are_gathered, false},
    {"bad_sends_are_refused", bad_sends_are_refused, false},
    {"oneself_can_be_sent_to", oneself_can_be_sent_to, false},
    {"peers_take_turns", peers_take_turns, false},
    {"a_thousand_members", a_thousand_members, true},
    {"full_then_told_of_room", full_then_told_of_room, false},
    {"no_sleep_with_work_left", no_sleep_with_work_left, false},
    {"woken_by_another_thread", woken_by_another_thread, false},
    {"ping_pong_loses_no_wake_up", ping_pong_loses_no_wake_up, false},
    {"leaving_is_seen", leaving_is_seen, false},
    {"nobody_opens_twice", nobody_opens_twice, true},
    {"memory_is_read_in_place", memory_is_read_in_place, false},
    {"memory_is_written_and_read_without_help", memory_is_written_and_read_without_help, false},
};

static bool is_ofi(const char *transport)
{
    return strncmp(transport, "ofi", 3) == 0;
}

/* Whether the backend is there; says why not. */
static bool is_there(const struct backend *backend)
{
    struct pairs *pairs = pairs_new(1, AF_INET);
    struct tutti_transport *t = NULL;
    bool there = !is_ofi(backend->transport);
    if (!there) {
        pairs->provider = backend->transport[3] ? backend->transport + 4 : "auto";
        there = pairs_open(pairs, 0, &t) == TUTTI_OK;
        if (!there) printf("skipped: %s: %s\n", backend->name, tutti_last_error()->text);
        if (t) t->ops->close(t);
    }
    pairs_free(pairs);
    return there;
}

/* Arguments: a pattern of the tests to run. Without one those over libfabric are left out: its providers are slow to
 * open and to end. */
int main(int argc, char **argv)
{
    static char names[TUTTI_ARRAY_LEN(cases) * TUTTI_ARRAY_LEN(backends)][80];
    static struct CMUnitTest tests[TUTTI_ARRAY_LEN(names)];
    bool there[TUTTI_ARRAY_LEN(backends)];
    size_t n = 0;
    for (size_t b = 0; b < TUTTI_ARRAY_LEN(backends); b++) there[b] = is_there(&backends[b]);
    for (size_t c = 0; c < TUTTI_ARRAY_LEN(cases); c++) {
        for (size_t b = 0; b < TUTTI_ARRAY_LEN(backends); b++) {
            if (!there[b]) continue;
            if (argc <= 1 && is_ofi(backends[b].transport)) continue;
            if (cases[c].bare && (backends[b].decorators[0] || backends[b].attach || backends[b].second)) continue;
            if (cases[c].function == a_thousand_members && !is_of_one_host(&backends[b])) continue; /* sockets */
            snprintf(names[n], sizeof(names[n]), "%s (%s)", cases[c].name, backends[b].name);
            tests[n] = (struct CMUnitTest){
                .name = names[n], .test_func = cases[c].function, .initial_state = (void *)(uintptr_t)&backends[b]};
            n++;
        }
    }
    tutti_log_threshold = TUTTI_LOG_ERROR; /* decorators speak up: trace at each failure, others when they do nothing */
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return _cmocka_run_group_tests("transport.contract", tests, n, NULL, NULL);
}
