/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that transport tcp has borrowed: payloads go where they were placed, what is lent is taken back, and all comes
 * back when a peer leaves, is cut, or vanishes. */

#include "transport/tcp/lone_test.h"

/* ---- payloads are lent and placed ---- */

/* Two members; `from` has sent until its queue is full of borrowed payloads, n_sent in all. Returns how many are
 * pending. */
static uint32_t fill(struct world *world, unsigned char *payload, uint32_t bytes, uint32_t *n_sent)
{
    struct tutti_transport *t = world->members[0];
    enum tutti_status status;
    uint32_t n_pending = 0;
    *n_sent = 0;
    while ((status = test_send_lent(t, 1, bytes, *n_sent, payload, 1000 + *n_sent)) != TUTTI_AGAIN) {
        assert_true(status == TUTTI_OK || status == TUTTI_PENDING);
        assert_true(status == TUTTI_PENDING || n_pending == 0);
        n_pending += status == TUTTI_PENDING;
        assert_true(++*n_sent < 100000);
    }
    return n_pending;
}

static const struct backend tcp = {"tcp", "tcp", "", false, 0, NULL};

static void payloads_go_into_their_places(void **state)
{
    (void)state;
    enum { N = 200 };
    struct world world = test_world_make(&tcp, 2, 0, false);
    struct tutti_transport *from = world.members[0], *to = world.members[1];
    unsigned char *payload = malloc(LARGE), *place = malloc(LARGE);
    uint64_t random = test_seed();
    uint32_t n_sent = 0, n_received = 0, n_pending = 0, n_back = 0;
    bool placed = false;
    struct tutti_packet packet = {0};
    test_payload(payload, LARGE, 5);
    while (n_received < N || n_back < n_pending) {
        struct tutti_event e;
        /* large, small and in between, by turns */
        const uint32_t bytes = n_sent % 3 == 0 ? LARGE - n_sent : n_sent % 3 == 1 ? n_sent : 70000 + n_sent;
        enum tutti_status status =
            n_sent < N ? test_send_lent(from, 1, bytes, n_sent, payload, n_sent + 1) : TUTTI_AGAIN;
        n_sent += status != TUTTI_AGAIN, n_pending += status == TUTTI_PENDING;
        assert_true(status >= 0 && (status != TUTTI_PENDING || bytes > from->copied));
        if (from->ops->poll(from, &e) == TUTTI_OK) {
            assert_int_equal(e.type, TUTTI_EVENT_DONE);
            assert_int_equal(e.status, TUTTI_OK);
            n_back++;
        }
        if (to->ops->poll(to, &e) != TUTTI_OK) continue;
        if (e.type == TUTTI_EVENT_HEADER) {
            struct tutti_target targets[3] = {{place, 0}};
            assert_false(placed);
            packet = e.packet;
            targets[0].bytes = tutti_random64(&random) % 100000 % packet.bytes;
            targets[2].bytes = packet.bytes - targets[0].bytes;
            targets[1].base = targets[2].base = place + targets[0].bytes;
            memset(place, 0, packet.bytes);
            to->ops->place(to, targets, 3, 77);
            placed = true;
            continue;
        }
        assert_int_equal(e.type == TUTTI_EVENT_DONE, placed);
        if (e.type == TUTTI_EVENT_DONE) assert_int_equal(e.token, 77);
        if (e.type == TUTTI_EVENT_ARRIVAL) packet = e.packet;
        assert_int_equal(packet.seq, n_received);
        assert_memory_equal(e.type == TUTTI_EVENT_DONE ? place : e.payload, payload, packet.bytes);
        if (e.type == TUTTI_EVENT_ARRIVAL) to->ops->release(to);
        placed = false;
        n_received++;
    }
    assert_true(n_pending > 0);
    test_world_free(&world);
    free(payload), free(place);
}

static void what_is_lent_is_taken_back(void **state)
{
    (void)state;
    enum { LENT = 100000 }; /* some of them wait at once */
    struct world world = test_world_make(&tcp, 2, 0, false);
    struct tutti_transport *from = world.members[0], *to = world.members[1];
    unsigned char *payload = malloc(LARGE), *expected = malloc(LARGE), *place = calloc(1, LARGE);
    struct tutti_event e;
    test_payload(payload, LARGE, 5);
    memcpy(expected, payload, LARGE);
    uint32_t n_sent = 0;
    assert_true(fill(&world, payload, LENT, &n_sent) > 2);
    /* All are taken back, among them one that is half written: what was sent gets there all the same. */
    for (uint64_t token = 1000; token < 1000 + n_sent; token++) from->ops->cancel(from, token);
    from->ops->cancel(from, 5); /* not out */
    memset(payload, 0, LARGE);
    for (uint32_t n = 0; n < n_sent; n++) {
        assert_int_equal(test_wait_from(to, from, &e), TUTTI_OK);
        assert_int_equal(e.packet.seq, n);
        assert_memory_equal(e.payload, expected, LENT);
        to->ops->release(to);
    }
    test_expect_nothing(to);
    test_expect_nothing(from); /* no token came back */
    /* A placement is taken back: nobody writes there any more, and what comes after it does come. */
    assert_true(test_send_lent(from, 1, LARGE, 70, payload, 9) >= 0);
    assert_int_equal(wait_event(to, &e), TUTTI_OK);
    assert_int_equal(e.type, TUTTI_EVENT_HEADER);
    const struct tutti_target target = {place, LARGE};
    to->ops->place(to, &target, 1, 11);
    to->ops->cancel(to, 11);
    memset(place, 3, LARGE);
    from->ops->cancel(from, 9); /* its rest goes out by and by */
    assert_int_equal(test_send(from, 1, 10, 71), TUTTI_OK);
    assert_int_equal(test_wait_from(to, from, &e), TUTTI_OK);
    assert_int_equal(e.packet.seq, 71);
    to->ops->release(to);
    for (size_t i = 0; i < LARGE; i++) assert_int_equal(place[i], 3);
    test_world_free(&world);
    free(payload), free(expected), free(place);
}

/* Both send until all is full, and only then read: nobody waits for the other. */
static void both_ways_full(void **state)
{
    (void)state;
    struct world world = test_world_make(&tcp, 2, 0, false);
    uint32_t n_sent[2] = {0}, n_received[2] = {0};
    for (uint32_t i = 0; i < 2; i++)
        while (test_send(world.members[i], 1 - i, 300000, n_sent[i]) == TUTTI_OK) n_sent[i]++;
    while (n_received[0] < n_sent[1] || n_received[1] < n_sent[0]) {
        for (uint32_t i = 0; i < 2; i++) {
            struct tutti_event e;
            if (test_poll(world.members[i], &e) != TUTTI_OK) continue;
            assert_true(test_arrival_is(&e, 1 - i, 300000, n_received[i]++));
            world.members[i]->ops->release(world.members[i]);
        }
    }
    test_world_free(&world);
}

/* ---- peers end ---- */

static void tokens_come_back_when_it_ends(struct world *world, enum tutti_status status)
{
    struct tutti_transport *t = world->members[0];
    struct tutti_event e;
    bool bad = false;
    for (uint64_t n = 0; !bad || t->ops->poll(t, &e) == TUTTI_OK; n++) {
        if (!bad) assert_int_equal(wait_event(t, &e), TUTTI_OK);
        assert_int_equal(e.type, TUTTI_EVENT_DONE);
        bad |= e.status == status;
        if (bad) assert_int_equal(e.status, status);
    }
    assert_int_equal(test_send(t, 1, 8, 0), status);
    assert_false(t->ops->owes(t));
}

static void who_leaves_gives_tokens_back(void **state)
{
    (void)state;
    struct world world = test_world_make(&tcp, 2, 0, false);
    unsigned char *payload = calloc(1, LARGE);
    uint32_t n_sent;
    fill(&world, payload, LARGE, &n_sent);
    test_member_close(&world, 1);
    tokens_come_back_when_it_ends(&world, TUTTI_ERR_PEER_LEFT);
    test_world_free(&world);
    free(payload);
}

static void who_is_cut_gives_tokens_back(void **state)
{
    (void)state;
    struct world world = test_world_make(&tcp, 2, 0, false);
    unsigned char *payload = calloc(1, LARGE);
    uint32_t n_sent;
    fill(&world, payload, LARGE, &n_sent);
    world.members[0]->ops->cut(world.members[0], 1);
    tokens_come_back_when_it_ends(&world, TUTTI_ERR_PEER_DEAD);
    test_world_free(&world);
    free(payload);
}

/* It wrote two packets and a half, and its process died: the two come, then sends fail. */
static void who_vanishes_is_dead(void **state)
{
    const bool reset = *state != NULL;
    struct lone lone = lone_open(2, true);
    struct tutti_transport *t = lone.t;
    struct tutti_event e;
    int far = lone_connect(&lone, 1);
    const struct linger at_once = {1, 0};
    assert_int_equal(test_send(t, 1, 8, 0), TUTTI_OK);
    write_packet(far, 20, 0, SIZE_MAX), write_packet(far, 5000, 1, SIZE_MAX), write_packet(far, 50000, 2, 60);
    tutti_sleep_ns(5 * TUTTI_NS_PER_MS);
    assert_true(t->ops->holds(t, 1));
    if (reset) setsockopt(far, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close(far);
    for (uint64_t seq = 0; seq < 2; seq++) {
        assert_int_equal(test_wait(t, &e), TUTTI_OK);
        assert_true(test_arrival_is(&e, 1, seq ? 5000 : 20, seq));
        t->ops->release(t);
    }
    assert_int_equal(send_until(t, 1, TUTTI_ERR_PEER_DEAD), TUTTI_ERR_PEER_DEAD);
    assert_non_null(strstr(tutti_last_error()->text, TUTTI_SAYS_CLOSED));
    assert_non_null(strstr(tutti_last_error()->text, "member 1"));
    assert_false(t->ops->holds(t, 1));
    lone_close(&lone);
}

/* ... and what was being placed is told as lost. */
static void a_placement_is_lost(void **state)
{
    (void)state;
    struct lone lone = lone_open(2, true);
    struct tutti_transport *t = lone.t;
    struct tutti_event e;
    unsigned char *place = malloc(LARGE);
    int far = lone_connect(&lone, 1);
    write_packet(far, LARGE, 2, 60000);
    assert_int_equal(wait_event(t, &e), TUTTI_OK);
    assert_int_equal(e.type, TUTTI_EVENT_HEADER);
    assert_int_equal(e.packet.source, 1);
    const struct tutti_target target = {place, LARGE};
    t->ops->place(t, &target, 1, 42);
    test_expect_nothing(t);
    close(far);
    assert_int_equal(wait_event(t, &e), TUTTI_OK);
    assert_int_equal(e.type, TUTTI_EVENT_DONE);
    assert_int_equal(e.token, 42);
    assert_int_equal(e.status, TUTTI_ERR_PEER_DEAD);
    test_expect_nothing(t);
    lone_close(&lone);
    free(place);
}

/* Arguments: a pattern of the tests to run. */
int main(int argc, char **argv)
{
    static char with_reset[] = "reset";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(payloads_go_into_their_places),
        cmocka_unit_test(what_is_lent_is_taken_back),
        cmocka_unit_test(both_ways_full),
        cmocka_unit_test(who_leaves_gives_tokens_back),
        cmocka_unit_test(who_is_cut_gives_tokens_back),
        cmocka_unit_test(who_vanishes_is_dead),
        {"who_vanishes_is_dead, with a reset", who_vanishes_is_dead, NULL, NULL, with_reset},
        cmocka_unit_test(a_placement_is_lost),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("transport.tcp.lent", tests, NULL, NULL);
}
