/* SPDX-License-Identifier: BSD-3-Clause */
/* More sockets of a peer: bytes and order, paths that stand still, nonsense, ends, and how much each takes. */

#include "transport/tcp/lone_test.h"

#include "base/session.h"
#include "transport/tcp/peer.h"

static struct tutti_tcp_stripes *stripes_of(struct tutti_transport *t, uint32_t peer)
{
    struct tutti_tcp_peer *p = tutti_tcp_of(t)->members[peer].peer;
    return p ? p->stripes : NULL;
}

/* The test's end of one more socket of member 0 to member 1. */
static int lone_path(struct lone *lone)
{
    int fds[2];
    pairs_connect(AF_INET, fds);
    tutti_tcp_path_connected(lone->t, 1, fds[0], NULL);
    test_expect_nothing(lone->t);
    return fds[1];
}

static void write_head(int fd, uint32_t bytes, uint64_t seq)
{
    uint8_t head[TUTTI_PACKET_WIRE_BYTES];
    struct tutti_packet packet = test_packet(bytes, seq);
    packet.version = TUTTI_WIRE_VERSION;
    tutti_packet_encode(&packet, head);
    head[1] |= TUTTI_TCP_STRIPED;
    assert_int_equal(send(fd, head, sizeof head, MSG_NOSIGNAL), sizeof head);
}

static void write_piece(int fd, uint64_t packet, const uint8_t *payload, uint32_t at, uint32_t bytes, uint32_t only)
{
    uint8_t head[TUTTI_TCP_PIECE_HEAD];
    tutti_le_store(head, 8, packet), tutti_le_store(head + 8, 4, at), tutti_le_store(head + 12, 4, bytes);
    assert_int_equal(send(fd, head, sizeof head, MSG_NOSIGNAL), sizeof head);
    if (only > 0) assert_int_equal(send(fd, payload + at, only, MSG_NOSIGNAL), only);
}

/* ---- bytes and order ---- */

enum { N = 400, PLACES = 64 };
struct arrivals { /* at member 1 */
    unsigned char *place[N], *expected;
    uint64_t random;
    uint32_t n_headed, n_whole; /* packets that came so far, and are whole */
};

static void header_comes(struct tutti_transport *t, struct arrivals *a, const struct tutti_event *e)
{
    assert_int_equal(e->packet.seq, a->n_headed); /* in the order of the sends */
    if (tutti_random64(&a->random) % 4 == 0) {
        t->ops->place(t, NULL, 0, 0); /* it comes as an arrival, before any later one */
        return;
    }
    const uint32_t bytes = e->packet.bytes, first = (uint32_t)(tutti_random64(&a->random) % bytes);
    unsigned char *place = a->place[a->n_headed] = malloc(bytes);
    const struct tutti_target targets[3] = {{place, first}, {place + first, 0}, {place + first, bytes - first}};
    t->ops->place(t, targets, 3, 1000 + a->n_headed++);
}

static void event_comes(struct tutti_transport *t, struct arrivals *a, const struct tutti_event *e,
                        const uint32_t *sizes)
{
    const void *payload = e->payload;
    uint64_t seq = e->packet.seq;
    if (e->type == TUTTI_EVENT_HEADER) {
        header_comes(t, a, e);
        return;
    }
    if (e->type == TUTTI_EVENT_ARRIVAL) {
        assert_int_equal(seq, a->n_headed++);
    } else {
        assert_int_equal(e->status, TUTTI_OK);
        seq = e->token - 1000;
        payload = a->place[seq];
    }
    test_payload(a->expected, sizes[seq], seq);
    assert_memory_equal(payload, a->expected, sizes[seq]);
    if (e->type == TUTTI_EVENT_ARRIVAL) t->ops->release(t);
    free(a->place[seq]);
    a->place[seq] = NULL;
    a->n_whole++;
}

static void bytes_and_order(void **state)
{
    static const struct backend wide = {"tcp*", "tcp*", "", false, 0, NULL};
    struct world world = test_world_make(&wide, 2, 0, false);
    struct tutti_transport *from = world.members[0], *to = world.members[1];
    struct arrivals a = {.random = test_seed(), .expected = malloc(LARGE)};
    uint32_t sizes[N], n_sent = 0;
    const uint64_t deadline = tutti_deadline_ns(TEST_DEADLINE_NS);
    (void)state;
    for (uint32_t i = 0; i < N; i++)
        sizes[i] = (uint32_t)(tutti_random64(&a.random) % (i % 3 ? LARGE + 1 : TUTTI_TCP_COPIED));
    while (a.n_whole < N && tutti_now_ns() < deadline) {
        struct tutti_event e;
        while (n_sent < N && test_send(from, 1, sizes[n_sent], n_sent) == TUTTI_OK) n_sent++;
        assert_int_equal(test_poll(from, &e), TUTTI_AGAIN);
        for (int i = 0; i < 20 && to->ops->poll(to, &e) == TUTTI_OK; i++) event_comes(to, &a, &e, sizes);
    }
    assert_int_equal(a.n_whole, N);
    const struct tutti_tcp_stripes *s = stripes_of(from, 1);
    assert_int_equal(s->n_live, 3);
    for (uint32_t i = 0; i < s->n_paths; i++) assert_true(s->paths[i].n_out > LARGE);
    assert_true(test_is_written(from));
    test_world_free(&world);
    free(a.expected);
}

/* ---- one path does not hold the others ---- */

/* Reads what is there, at most so much; returns the bytes. */
static size_t swallow(int fd, size_t most)
{
    static uint8_t bytes[1 << 16];
    size_t sum = 0;
    for (ssize_t n; sum < most && (n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0;) sum += (size_t)n;
    return sum;
}

/* The slow one is read a little for each of the many bytes that came by the other. */
static void a_slow_one_does_not_hold_the_others(void **state)
{
    enum { PACKETS = 200 };
    struct lone lone = lone_open(2, true);
    const int far = lone_connect(&lone, 1), slow = lone_path(&lone), quick = lone_path(&lone);
    unsigned char *payload = calloc(1, LARGE);
    const uint64_t deadline = tutti_deadline_ns(TEST_DEADLINE_NS);
    size_t came = 0, slowly = 0;
    uint32_t n_sent = 0;
    struct tutti_event e;
    (void)state;
    while (came < (size_t)PACKETS * LARGE && tutti_now_ns() < deadline) {
        const enum tutti_status status = test_send_lent(lone.t, 1, LARGE, n_sent, payload, 7);
        n_sent += status >= 0 && status != TUTTI_AGAIN;
        while (lone.t->ops->poll(lone.t, &e) == TUTTI_OK) assert_int_equal(e.type, TUTTI_EVENT_DONE);
        came += swallow(quick, SIZE_MAX), swallow(far, SIZE_MAX);
        if (slowly < came / 16) slowly += swallow(slow, 1 << 16);
    }
    const struct tutti_tcp_stripes *s = stripes_of(lone.t, 1);
    assert_true(came >= (size_t)PACKETS * LARGE);
    assert_true(s->paths[0].n_out < came / 8);
    lone_close(&lone);
    close(far), close(slow), close(quick);
    free(payload);
}

/* A table of paths: rate in MB/s, bytes that are queued; and what each takes of what waits. */
static void shares(void **state)
{
    enum { K = 1024 };
    static const struct {
        size_t waiting;
        double rate[3];
        size_t queued[3];
        size_t least[3], most[3];
    } cases[] = {
        {1024 * K, {100, 100}, {0, 0}, {256 * K, 256 * K}, {256 * K, 256 * K}},
        {512 * K, {125, 25}, {0, 0}, {256 * K, 80 * K}, {256 * K, 88 * K}}, /* as their rates */
        {128 * K, {125, 25}, {0, 0}, {100 * K, 0}, {108 * K, 0}},           /* the slow one would be late */
        {128 * K, {125, 25}, {256 * K, 0}, {60 * K, 60 * K}, {64 * K, 64 * K}},
        {1024 * K, {125, 25}, {0, 300 * K}, {256 * K, 0}, {256 * K, 0}}, /* enough to do */
        {10 * K, {125, 25}, {0, 0}, {10 * K, 0}, {10 * K, 0}},
        {1024 * K, {1, 1, 1}, {128 * K, 128 * K, 128 * K}, {0}, {0}},
    };
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(cases); i++) {
        struct tutti_tcp_stripes *s = calloc(1, sizeof *s);
        s->waiting = cases[i].waiting;
        for (; s->n_paths < 3; s->n_paths++)
            s->paths[s->n_paths] = (struct tutti_tcp_path){.fd = cases[i].rate[s->n_paths] > 0 ? 0 : -1,
                                                           .rate = 1e6 * cases[i].rate[s->n_paths],
                                                           .queued = cases[i].queued[s->n_paths]};
        for (uint32_t p = 0; p < 3 && s->paths[p].fd >= 0; p++) {
            const size_t share = tutti_tcp_path_share(s, &s->paths[p]);
            if (share < cases[i].least[p] || share > cases[i].most[p])
                fail_msg("case %zu: path %u takes %zu", i, p, share);
        }
        free(s);
    }
}

/* ---- pieces, by hand ---- */

static void pieces_in_any_order(void **state)
{
    enum { BYTES = 200001, HALF = 90000 };
    struct lone lone = lone_open(2, true);
    struct tutti_transport *t = lone.t;
    const int far = lone_connect(&lone, 1), a = lone_path(&lone), b = lone_path(&lone);
    unsigned char *payload = malloc(BYTES), *place = calloc(1, BYTES);
    const struct tutti_target target = {place, BYTES};
    struct tutti_event e;
    (void)state;
    test_payload(payload, BYTES, 3);
    write_piece(a, 0, payload, HALF, BYTES - HALF, BYTES - HALF); /* before anybody knows of the packet */
    test_expect_nothing(t);
    assert_true(test_may_sleep(t));
    write_head(far, BYTES, 3);
    write_packet(far, 10, 4, SIZE_MAX);
    write_packet(far, 0, 0, 0);
    assert_int_equal(wait_event(t, &e), TUTTI_OK);
    assert_int_equal(e.type, TUTTI_EVENT_HEADER);
    assert_int_equal(e.packet.bytes, BYTES);
    assert_int_equal(e.packet.type, TUTTI_PACKET_DATA);
    t->ops->place(t, &target, 1, 55);
    assert_int_equal(wait_event(t, &e), TUTTI_OK); /* the one behind it does not wait */
    assert_true(test_arrival_is(&e, 1, 10, 4));
    t->ops->release(t);
    uint8_t goodbye[TUTTI_PACKET_WIRE_BYTES] = {TUTTI_WIRE_VERSION, TUTTI_TCP_GOODBYE};
    assert_int_equal(send(far, goodbye, sizeof goodbye, MSG_NOSIGNAL), sizeof goodbye);
    test_expect_nothing(t); /* it leaves: not before what it sent is here */
    write_piece(b, 0, payload, 0, HALF, HALF);
    assert_int_equal(wait_event(t, &e), TUTTI_OK);
    assert_int_equal(e.type, TUTTI_EVENT_DONE);
    assert_int_equal(e.token, 55);
    assert_int_equal(e.status, TUTTI_OK);
    assert_memory_equal(place, payload, BYTES);
    assert_int_equal(send_until(t, 1, TUTTI_ERR_PEER_LEFT), TUTTI_ERR_PEER_LEFT);
    lone_close(&lone);
    close(far), close(a), close(b);
    free(payload), free(place);
}

static void nonsense_is_refused(void **state)
{
    enum { BYTES = 100000 };
    static const struct {
        uint64_t packet;
        uint32_t at, bytes;
    } pieces[] = {{0, 0, 0}, {0, 0, BYTES + 1}, {0, BYTES, 1}, {0, UINT32_MAX, UINT32_MAX}, {UINT64_MAX, 0, 1}};
    static uint8_t payload[BYTES], place[BYTES];
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(pieces); i++) {
        struct lone lone = lone_open(2, true);
        const int far = lone_connect(&lone, 1), path = lone_path(&lone);
        const struct tutti_target target = {place, BYTES};
        struct tutti_event e;
        write_head(far, BYTES, 0);
        assert_int_equal(wait_event(lone.t, &e), TUTTI_OK);
        lone.t->ops->place(lone.t, &target, 1, 9);
        write_piece(path, pieces[i].packet, payload, pieces[i].at, pieces[i].bytes, 0);
        assert_int_equal(wait_event(lone.t, &e), TUTTI_ERR_PROTOCOL);
        assert_non_null(strstr(tutti_last_error()->text, "member 1 "));
        assert_int_equal(wait_event(lone.t, &e), TUTTI_OK); /* the placement is told as lost */
        assert_int_equal(e.token, 9);
        assert_int_equal(e.status, TUTTI_ERR_PROTOCOL);
        assert_int_equal(test_send(lone.t, 1, 8, 0), TUTTI_ERR_PROTOCOL);
        lone_close(&lone);
        close(far), close(path);
    }
}

/* Two pieces that are read at once announce more than the packet has: the memory is given back when it is whole. */
static void pieces_are_of_one_packet(void **state)
{
    enum { BYTES = 100000 };
    static uint8_t payload[BYTES], place[BYTES];
    struct lone lone = lone_open(2, true);
    const int far = lone_connect(&lone, 1), path = lone_path(&lone), other = lone_path(&lone);
    const struct tutti_target target = {place, BYTES};
    struct tutti_event e;
    (void)state;
    write_head(far, BYTES, 0);
    assert_int_equal(wait_event(lone.t, &e), TUTTI_OK);
    lone.t->ops->place(lone.t, &target, 1, 9);
    write_piece(path, 0, payload, 0, BYTES, 1000);
    test_expect_nothing(lone.t);
    write_piece(other, 0, payload, 0, 1, 1);
    assert_int_equal(wait_event(lone.t, &e), TUTTI_ERR_PROTOCOL);
    lone_close(&lone);
    close(far), close(path), close(other);
}

/* ---- what is lent, when a path ends or the memory is taken back ---- */

static void a_path_that_breaks_ends_the_connection(void **state)
{
    enum { BYTES = 300000 };
    static uint8_t payload[BYTES], place[BYTES];
    (void)state;
    for (int mid_piece = 0; mid_piece < 2; mid_piece++) {
        struct lone lone = lone_open(2, true);
        const int far = lone_connect(&lone, 1), path = lone_path(&lone), other = lone_path(&lone);
        const struct tutti_target target = {place, BYTES};
        struct tutti_event e;
        write_head(far, BYTES, 0);
        assert_int_equal(wait_event(lone.t, &e), TUTTI_OK);
        lone.t->ops->place(lone.t, &target, 1, 9);
        if (mid_piece) write_piece(path, 0, payload, 0, 1000, 500);
        close(path);
        if (!mid_piece) { /* between pieces it may have done its work */
            test_expect_nothing(lone.t);
            write_piece(other, 0, payload, 0, BYTES, BYTES);
        }
        assert_int_equal(wait_event(lone.t, &e), TUTTI_OK);
        assert_int_equal(e.token, 9);
        assert_int_equal(e.status, mid_piece ? TUTTI_ERR_PEER_DEAD : TUTTI_OK);
        if (mid_piece) assert_int_equal(test_send(lone.t, 1, 8, 0), TUTTI_ERR_PEER_DEAD);
        lone_close(&lone);
        close(far), close(other);
    }
}

static void what_is_lent_is_taken_back(void **state)
{
    static const struct backend wide = {"tcp*", "tcp*", "", false, 0, NULL};
    struct world world = test_world_make(&wide, 2, 0, false);
    struct tutti_transport *from = world.members[0], *to = world.members[1];
    unsigned char *payload = malloc(LARGE), *expected = malloc(LARGE), *place = calloc(1, LARGE);
    const struct tutti_target target = {place, LARGE};
    struct tutti_event e;
    uint32_t n = 0;
    (void)state;
    test_payload(payload, LARGE, 5);
    memcpy(expected, payload, LARGE);
    while (test_send_lent(from, 1, LARGE, n, payload, 100 + n) != TUTTI_AGAIN) n++;
    assert_true(n > 2);
    for (uint32_t i = 0; i < n; i++) from->ops->cancel(from, 100 + i);
    memset(payload, 0, LARGE);
    test_expect_nothing(from); /* no token comes back */
    while (to->ops->poll(to, &e) != TUTTI_OK || e.type != TUTTI_EVENT_HEADER) continue;
    to->ops->place(to, &target, 1, 11);
    to->ops->cancel(to, 11); /* nobody writes there any more */
    memset(place, 3, LARGE);
    for (uint32_t i = 1; i < n; i++) { /* the others get there all the same, as they were */
        assert_int_equal(test_wait_from(to, from, &e), TUTTI_OK);
        assert_int_equal(e.packet.seq, i);
        assert_memory_equal(e.payload, expected, LARGE);
        to->ops->release(to);
    }
    for (size_t i = 0; i < LARGE; i++) assert_int_equal(place[i], 3);
    test_world_free(&world);
    free(payload), free(expected), free(place);
}

/* ---- how they come to be ---- */

static uint32_t n_widened;
static size_t tell(struct tutti_dialer *dialer, uint32_t peer, uint8_t *out, size_t capacity)
{
    (void)dialer, (void)peer;
    assert_true(capacity >= 5);
    memcpy(out, "hello", 5);
    return 5;
}
static void widen(struct tutti_dialer *dialer, uint32_t peer, const uint8_t *told, size_t bytes)
{
    struct pairs_end *end = (struct pairs_end *)(void *)dialer;
    assert_int_equal(end->me, 0); /* the one of the least number dials */
    assert_int_equal(bytes, 5);
    assert_memory_equal(told, "hello", 5);
    n_widened++;
    pairs_path(end->pairs, 0, peer);
}

static void a_large_packet_brings_more_sockets(void **state)
{
    (void)state;
    for (uint32_t first = 0; first < 2; first++) { /* it does not matter which member sends it */
        static const struct backend tcp = {"tcp", "tcp", "", false, 0, NULL};
        struct world world = test_world_make(&tcp, 2, 0, false);
        struct tutti_event e;
        n_widened = 0;
        for (int i = 0; i < 2; i++) {
            struct tutti_dialer *dialer = &world.first.pairs->ends[i].dialer;
            dialer->tell = tell, dialer->widen = widen;
        }
        for (int large = 0; large < 3; large++) {
            const uint32_t bytes = large ? LARGE : 1000;
            assert_int_equal(test_send(world.members[first], 1 - first, bytes, 1), TUTTI_OK);
            assert_int_equal(test_wait_from(world.members[1 - first], world.members[first], &e), TUTTI_OK);
            assert_true(test_arrival_is(&e, first, bytes, 1));
            world.members[1 - first]->ops->release(world.members[1 - first]);
            test_expect_nothing(world.members[0]); /* it hears what it was told */
            test_expect_nothing(world.members[0]);
            assert_int_equal(n_widened, large > 0);
        }
        const struct tutti_tcp_stripes *s = stripes_of(world.members[first], 1 - first);
        assert_true(s && s->n_live == 1 && s->paths[0].n_out > LARGE);
        test_world_free(&world);
    }
}

/* Arguments: a pattern of the tests to run. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_and_order),
        cmocka_unit_test(a_slow_one_does_not_hold_the_others),
        cmocka_unit_test(shares),
        cmocka_unit_test(pieces_in_any_order),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(pieces_are_of_one_packet),
        cmocka_unit_test(a_path_that_breaks_ends_the_connection),
        cmocka_unit_test(what_is_lent_is_taken_back),
        cmocka_unit_test(a_large_packet_brings_more_sockets),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("transport.tcp.path", tests, NULL, NULL);
}
