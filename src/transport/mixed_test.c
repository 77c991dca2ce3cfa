/* SPDX-License-Identifier: BSD-3-Clause */
/* "mixed" over two transports that are unlike: peers of one host by "self", all others by "late", which borrows,
 * places and completes late. What any transport must do is asked of "mixed" in contract_test.c. */

#include "test.h"

#include "transport/late_test.h"
#include "transport/world_test.h"

/* Two hosts of two members. The numbers in both inner worlds are unlike those of the world. */
enum { N = 4, BYTES = 100000, LATENCY_NS = 1000 };

struct hand {
    struct tutti_clock clock; /* first */
    uint64_t now_ns;
};
static uint64_t hand_now(const struct tutti_clock *clock)
{
    return ((const struct hand *)(const void *)clock)->now_ns;
}

struct hosts {
    struct hand hand;
    struct late_net *net;
    struct tutti_segment *segment[2];
    struct tutti_transport *t[N], *self[N], *late[N];
};

static struct tutti_mixed_peer way_to(uint32_t me, uint32_t peer)
{
    return me / 2 == peer / 2 ? (struct tutti_mixed_peer){0, 1 - peer % 2} : (struct tutti_mixed_peer){1, N - 1 - peer};
}

static void hosts_open(struct hosts *h)
{
    const struct tutti_segment_config config = {.n = 2, .staging_bytes = 2 << 20, .heap_bytes = UINT64_C(1) << 30};
    *h = (struct hosts){.hand = {.clock = {.now_ns = hand_now}, .now_ns = 1}};
    h->net = late_net_make(N, &h->hand.clock, LATENCY_NS);
    for (uint32_t i = 0; i < 2; i++) assert_int_equal(tutti_segment_create(&config, false, &h->segment[i]), TUTTI_OK);
    for (uint32_t i = 0; i < N; i++) {
        struct tutti_mixed_peer peers[N];
        struct tutti_segment *handle;
        assert_int_equal(tutti_segment_share(h->segment[i / 2], &handle), TUTTI_OK);
        assert_int_equal(tutti_transport_open("self", handle, 1 - i % 2, &h->self[i]), TUTTI_OK);
        h->late[i] = late_wire_open(h->net, N - 1 - i);
        for (uint32_t p = 0; p < N; p++) peers[p] = way_to(i, p);
        struct tutti_transport *const inner[2] = {h->self[i], h->late[i]};
        assert_int_equal(tutti_mixed_open(inner, 2, peers, N, i, &h->t[i]), TUTTI_OK);
    }
}

static void hosts_close(struct hosts *h)
{
    for (uint32_t i = 0; i < N; i++)
        if (h->t[i]) h->t[i]->ops->close(h->t[i]);
    for (uint32_t i = 0; i < 2; i++) tutti_segment_release(h->segment[i]);
    late_net_free(h->net);
}

static unsigned char from[BYTES], to[BYTES];
static enum tutti_status send_large(struct tutti_transport *t, uint32_t peer, uint64_t token)
{
    test_payload(from, BYTES, token);
    const struct tutti_packet packet = test_packet(BYTES, token);
    const struct tutti_span span = {from, BYTES};
    return t->ops->send(t, peer, &packet, &span, 1, token);
}

/* The next event within a thousand steps of time. */
static void expect(struct hosts *h, uint32_t member, enum tutti_event_type type, struct tutti_event *out)
{
    enum tutti_status status = TUTTI_AGAIN;
    for (int i = 0; i < 1000 && status == TUTTI_AGAIN; i++) {
        status = h->t[member]->ops->poll(h->t[member], out);
        h->hand.now_ns += LATENCY_NS / 10;
    }
    assert_int_equal(status, TUTTI_OK);
    assert_int_equal(out->type, type);
}

static void expect_nothing(struct hosts *h, uint32_t member)
{
    h->hand.now_ns += 3 * LATENCY_NS;
    test_expect_nothing(h->t[member]);
}

static void limits_are_the_smallest(void **state)
{
    (void)state;
    struct hosts h;
    hosts_open(&h);
    assert_int_equal(h.t[0]->n, N);
    assert_int_equal(h.t[3]->me, 3);
    assert_int_equal(h.t[0]->copied, LATE_COPIED);
    assert_int_equal(h.t[0]->max_payload,
                     LATE_PAYLOAD < h.self[0]->max_payload ? LATE_PAYLOAD : h.self[0]->max_payload);
    hosts_close(&h);
}

/* Each to each, several times: each pair in order, from the right source, and no inner transport waits for the other.
 */
static void all_to_all_in_order(void **state)
{
    (void)state;
    enum { EACH = 8 };
    struct hosts h;
    hosts_open(&h);
    for (uint64_t seq = 0; seq < EACH; seq++)
        for (uint32_t i = 0; i < N * N; i++) assert_int_equal(test_send(h.t[i / N], i % N, 64 + i, seq), TUTTI_OK);
    h.hand.now_ns += 2 * LATENCY_NS;
    for (uint32_t i = 0; i < N; i++) {
        uint64_t next[N] = {0}, n_by[2] = {0};
        struct tutti_event e;
        for (uint32_t k = 0; k < N * EACH; k++) {
            expect(&h, i, TUTTI_EVENT_ARRIVAL, &e);
            const uint32_t source = e.packet.source;
            assert_in_range(source, 0, N - 1);
            assert_true(test_arrival_is(&e, source, 64 + source * N + i, next[source]++));
            assert_int_equal(h.t[i]->ops->poll(h.t[i], &e), TUTTI_ERR_INTERNAL); /* not yet released */
            h.t[i]->ops->release(h.t[i]);
            n_by[way_to(i, source).inner]++;
            assert_in_range(n_by[0] + 1 - n_by[1], 0, 2); /* they take turns */
        }
        expect_nothing(&h, i);
    }
    hosts_close(&h);
}

static void a_payload_is_placed(void **state)
{
    (void)state;
    struct hosts h;
    struct tutti_event e;
    hosts_open(&h);
    assert_int_equal(send_large(h.t[0], 2, 71), TUTTI_PENDING);
    expect_nothing(&h, 0);
    expect(&h, 2, TUTTI_EVENT_HEADER, &e);
    assert_int_equal(e.packet.source, 0);
    const struct tutti_target target = {to, BYTES};
    h.t[2]->ops->place(h.t[2], &target, 1, 9);
    assert_int_equal(test_send(h.t[3], 2, 100, 5), TUTTI_OK); /* the other inner one goes on meanwhile */
    expect(&h, 2, TUTTI_EVENT_ARRIVAL, &e);
    assert_true(test_arrival_is(&e, 3, 100, 5));
    h.t[2]->ops->release(h.t[2]);
    expect(&h, 2, TUTTI_EVENT_DONE, &e);
    assert_int_equal(e.token, 9);
    assert_int_equal(e.status, TUTTI_OK);
    assert_memory_equal(to, from, BYTES);
    expect(&h, 0, TUTTI_EVENT_DONE, &e);
    assert_int_equal(e.token, 71);

    assert_int_equal(send_large(h.t[0], 2, 72), TUTTI_PENDING); /* and into the transport's memory */
    expect(&h, 2, TUTTI_EVENT_HEADER, &e);
    h.t[2]->ops->place(h.t[2], NULL, 0, 0);
    expect(&h, 2, TUTTI_EVENT_ARRIVAL, &e);
    assert_true(test_arrival_is(&e, 0, BYTES, 72));
    h.t[2]->ops->release(h.t[2]);
    expect(&h, 0, TUTTI_EVENT_DONE, &e);
    assert_int_equal(e.token, 72);
    hosts_close(&h);
}

static void tokens_are_taken_back(void **state)
{
    (void)state;
    struct hosts h;
    struct tutti_event e;
    hosts_open(&h);
    assert_int_equal(send_large(h.t[0], 2, 71), TUTTI_PENDING);
    h.t[0]->ops->cancel(h.t[0], 1234); /* not out: nothing */
    expect(&h, 2, TUTTI_EVENT_HEADER, &e);
    const struct tutti_target target = {to, BYTES};
    h.t[2]->ops->place(h.t[2], &target, 1, 9);
    h.t[2]->ops->cancel(h.t[2], 9);
    memset(to, 7, BYTES);
    expect_nothing(&h, 2);
    for (size_t i = 0; i < BYTES; i++) assert_int_equal(to[i], 7); /* nobody writes there any more */
    expect(&h, 0, TUTTI_EVENT_DONE, &e);
    assert_int_equal(send_large(h.t[0], 2, 72), TUTTI_PENDING);
    h.t[0]->ops->cancel(h.t[0], 72);
    memset(from, 0, BYTES); /* ours again */
    expect_nothing(&h, 0);
    hosts_close(&h);
}

static void a_cut_is_of_one_peer(void **state)
{
    (void)state;
    struct hosts h;
    struct tutti_event e;
    hosts_open(&h);
    assert_int_equal(send_large(h.t[0], 2, 71), TUTTI_PENDING);
    h.t[0]->ops->cut(h.t[0], 2);
    expect(&h, 0, TUTTI_EVENT_DONE, &e);
    assert_int_equal(e.token, 71);
    assert_int_equal(e.status, TUTTI_ERR_PEER_DEAD);
    assert_int_equal(test_send(h.t[0], 2, 8, 0), TUTTI_ERR_PEER_DEAD);
    assert_int_equal(test_send(h.t[0], 3, 8, 0), TUTTI_OK);
    assert_int_equal(test_send(h.t[0], 1, 8, 0), TUTTI_OK);
    h.t[0]->ops->cut(h.t[0], 1);
    assert_int_equal(test_send(h.t[0], 1, 8, 0), TUTTI_ERR_PEER_DEAD);
    h.t[0]->ops->cut(h.t[0], N); /* nobody */
    h.t[3]->ops->close(h.t[3]);  /* leaves both worlds */
    h.t[3] = NULL;
    assert_int_equal(test_send(h.t[0], 3, 8, 0), TUTTI_ERR_PEER_LEFT);
    assert_int_equal(test_send(h.t[2], 3, 8, 0), TUTTI_ERR_PEER_LEFT);
    hosts_close(&h);
}

/* What either inner transport has ends the sleep; a wake ends one sleep, not one for each. */
static void sleep_ends_by_either(void **state)
{
    (void)state;
    struct hosts h;
    struct tutti_event e;
    hosts_open(&h);
    struct tutti_transport *t = h.t[1];
    static const uint32_t by[2] = {0, 2};
    for (uint32_t k = 0; k < 2; k++) {
        struct tutti_sources sources;
        tutti_sources_init(&sources);
        assert_true(t->ops->sleep_begin(t, &sources));
        assert_int_equal(sources.n, 2);
        assert_false(test_fired(&sources));
        assert_int_equal(test_send(h.t[by[k]], 1, 8, 0), TUTTI_OK);
        assert_true(test_fired(&sources));
        t->ops->sleep_end(t);
        h.hand.now_ns += 2 * LATENCY_NS;
        assert_false(test_may_sleep(t));
        expect(&h, 1, TUTTI_EVENT_ARRIVAL, &e);
        assert_int_equal(e.packet.source, by[k]);
        t->ops->release(t);
        expect_nothing(&h, 1);
    }
    t->ops->wake(t);
    assert_false(test_may_sleep(t));
    assert_true(test_may_sleep(t));
    hosts_close(&h);
}

static bool held_by_late(struct tutti_transport *t, uint32_t peer)
{
    (void)t;
    return peer == N - 1 - 2;
}

static void holds_is_asked_of_the_peers_own(void **state)
{
    (void)state;
    struct hosts h;
    hosts_open(&h);
    struct tutti_transport_ops ops = *h.late[0]->ops;
    ops.holds = held_by_late;
    h.late[0]->ops = &ops;
    for (uint32_t p = 0; p <= N; p++) assert_int_equal(h.t[0]->ops->holds(h.t[0], p), p == 2);
    hosts_close(&h);
}

static void memory_is_of_the_own_host(void **state)
{
    (void)state;
    struct hosts h;
    uint64_t where;
    void *p;
    hosts_open(&h);
    struct tutti_memory *owner = h.t[0]->memory, *reader = h.t[1]->memory;
    for (uint32_t i = 0; i <= N; i++) assert_int_equal(tutti_memory_reaches(owner, i), i < 2);
    assert_int_equal(owner->ops->alloc(owner, 5000, &p), TUTTI_OK);
    assert_true(owner->ops->locate(owner, p, 5000, &where));
    assert_ptr_equal(reader->ops->map(reader, 0, where, 5000), p);
    assert_null(h.t[2]->memory->ops->map(h.t[2]->memory, 0, where, 5000));
    assert_null(reader->ops->map(reader, N, where, 5000));
    assert_int_equal(owner->ops->free(owner, p), TUTTI_OK);
    hosts_close(&h);
}

/* Two heaps: what is located in one is nowhere in the other, so one of them alone is told of. */
static void memory_is_of_one_heap(void **state)
{
    (void)state;
    static const struct backend shm = {"shm", "shm", "", false, 0, NULL};
    struct world first = test_world_make(&shm, 2, 0, false), second = test_world_make(&shm, 2, 0, false);
    struct tutti_transport *const inner[2] = {first.members[0], second.members[0]};
    static const struct tutti_mixed_peer peers[] = {{0, 0}, {0, 1}, {1, 1}};
    struct tutti_transport *t;
    assert_int_equal(tutti_mixed_open(inner, 2, peers, 3, 0, &t), TUTTI_OK);
    for (uint32_t p = 0; p <= 3; p++) assert_int_equal(tutti_memory_reaches(t->memory, p), p < 2);
    t->ops->close(t);
    first.members[0] = second.members[0] = NULL; /* closed with t */
    test_world_free(&first);
    test_world_free(&second);
}

/* The peer sends by a transport by which this member does not know it. */
static void who_comes_another_way_is_refused(void **state)
{
    (void)state;
    struct hosts h;
    struct tutti_event e;
    hosts_open(&h);
    assert_int_equal(test_send(h.late[1], N - 1 - 0, 8, 0), TUTTI_OK); /* on one host, but by the other wire */
    h.hand.now_ns += 2 * LATENCY_NS;
    enum tutti_status status = TUTTI_AGAIN;
    for (int i = 0; i < 4 && status == TUTTI_AGAIN; i++) status = h.t[0]->ops->poll(h.t[0], &e);
    assert_int_equal(status, TUTTI_ERR_PROTOCOL);
    assert_int_equal(test_send(h.t[2], 0, 8, 0), TUTTI_OK); /* the others are served */
    expect(&h, 0, TUTTI_EVENT_ARRIVAL, &e);
    assert_int_equal(e.packet.source, 2);
    h.t[0]->ops->release(h.t[0]);
    hosts_close(&h);
}

static void bad_tables_are_refused(void **state)
{
    (void)state;
    struct hosts h;
    hosts_open(&h);
    struct tutti_transport *const inner[2] = {h.self[0], h.late[0]};
    struct tutti_transport *out = NULL;
    static const struct tutti_mixed_peer bad[][2] = {
        {{0, 1}, {0, 1}}, /* two peers with one number */
        {{0, 1}, {2, 0}}, /* no such transport */
        {{0, 1}, {0, 2}}, /* no such member */
        {{0, 0}, {1, 0}}, /* not this member's own number */
        {{0, 1}, {1, 3}}, /* this member, as another */
    };
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(bad); i++)
        assert_int_equal(tutti_mixed_open(inner, 2, bad[i], 2, 0, &out), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_mixed_open(inner, 0, bad[0], 2, 0, &out), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_mixed_open(inner, TUTTI_MIXED_MAX_INNER + 1, bad[0], 2, 0, &out), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_mixed_open(inner, 2, bad[0], 2, 2, &out), TUTTI_ERR_ARGUMENT);
    assert_null(out);
    hosts_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_are_the_smallest),
        cmocka_unit_test(all_to_all_in_order),
        cmocka_unit_test(a_payload_is_placed),
        cmocka_unit_test(tokens_are_taken_back),
        cmocka_unit_test(a_cut_is_of_one_peer),
        cmocka_unit_test(sleep_ends_by_either),
        cmocka_unit_test(holds_is_asked_of_the_peers_own),
        cmocka_unit_test(memory_is_of_the_own_host),
        cmocka_unit_test(memory_is_of_one_heap),
        cmocka_unit_test(who_comes_another_way_is_refused),
        cmocka_unit_test(bad_tables_are_refused),
    };
    tutti_log_threshold = TUTTI_LOG_ERROR;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
