/* SPDX-License-Identifier: BSD-3-Clause */
/* What is tcp's own: sockets that come late or twice, peers that write nonsense or byte by byte, a million members.
 * The other end of a socket is often the test itself. */

#include "transport/tcp/lone_test.h"

#include <netinet/tcp.h>

/* ---- sockets come ---- */

static void a_socket_comes_late(void **state)
{
    (void)state;
    struct lone lone = lone_open(3, true);
    struct tutti_transport *t = lone.t;
    assert_int_equal(test_send(t, 1, 8, 0), TUTTI_AGAIN);
    assert_int_equal(test_send(t, 1, 8, 0), TUTTI_AGAIN);
    assert_int_equal(lone.pairs->ends[0].n_dials, 1); /* wanted once */
    assert_true(test_may_sleep(t));
    int far = lone_connect(&lone, 1);
    assert_false(test_may_sleep(t)); /* there is room now */
    assert_true(test_may_sleep(t));
    assert_int_equal(test_send(t, 1, 8, 0), TUTTI_OK);

    struct tutti_sources sources; /* the socket ends a sleep */
    tutti_sources_init(&sources);
    assert_int_equal(test_send(t, 2, 8, 0), TUTTI_AGAIN);
    assert_true(t->ops->sleep_begin(t, &sources));
    assert_false(test_fired(&sources));
    tutti_tcp_failed(t, 2, TUTTI_ERR_TIMEOUT);
    assert_true(test_fired(&sources));
    t->ops->sleep_end(t);
    assert_false(test_may_sleep(t));
    assert_int_equal(test_send(t, 2, 8, 0), TUTTI_ERR_TIMEOUT);
    int late = lone_connect(&lone, 2); /* it comes by itself */
    write_packet(late, 100, 3, SIZE_MAX);
    struct tutti_event e;
    assert_int_equal(test_wait(t, &e), TUTTI_OK);
    assert_true(test_arrival_is(&e, 2, 100, 3));
    t->ops->release(t);
    assert_int_equal(test_send(t, 2, 8, 0), TUTTI_OK);
    lone_close(&lone);
    close(far), close(late);
}

static void a_second_socket_is_closed(void **state)
{
    (void)state;
    struct lone lone = lone_open(2, true);
    int fds[2], far = lone_connect(&lone, 1);
    char byte;
    struct tutti_event e;
    assert_int_equal(test_send(lone.t, 1, 8, 0), TUTTI_OK);
    pairs_connect(AF_INET, fds);
    tutti_tcp_connected(lone.t, 1, fds[0], NULL);
    test_expect_nothing(lone.t);
    assert_int_equal(recv(fds[1], &byte, 1, 0), 0);
    write_packet(far, 10, 1, SIZE_MAX); /* the first one goes on */
    assert_int_equal(test_wait(lone.t, &e), TUTTI_OK);
    lone.t->ops->release(lone.t);
    const int open = test_n_fds();
    pairs_connect(AF_INET, fds + 0);
    tutti_tcp_connected(lone.t, 7, fds[0], NULL); /* nobody */
    close(fds[1]);
    assert_int_equal(test_n_fds(), open);
    lone_close(&lone);
    close(far), close(fds[1]);
}

static void a_dead_one_is_not_let_in(void **state)
{
    (void)state;
    struct lone lone = lone_open(2, true);
    char byte;
    lone.t->ops->cut(lone.t, 1);
    int far = lone_connect(&lone, 1);
    test_expect_nothing(lone.t);
    assert_int_equal(recv(far, &byte, 1, 0), 0);
    assert_int_equal(test_send(lone.t, 1, 8, 0), TUTTI_ERR_PEER_DEAD);
    assert_int_equal(lone.pairs->ends[0].n_dials, 0);
    lone_close(&lone);
    close(far);
}

/* What a peer wrote that can not be: told once, and the socket is closed. */
static void nonsense_is_refused(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct lone lone = lone_open(2, true);
        struct tutti_transport *t = lone.t;
        struct tutti_event e;
        uint8_t head[TUTTI_PACKET_WIRE_BYTES];
        int far = lone_connect(&lone, 1);
        struct tutti_packet packet = test_packet(i == 3 ? LARGE + 1 : 10, 1);
        packet.version = TUTTI_WIRE_VERSION;
        if (i == 1) packet.version++;
        if (i == 2) packet.type = 99;
        tutti_packet_encode(&packet, head);
        if (i == 0) memset(head, 'G', sizeof(head)); /* "GET / HTTP" and the like */
        write_packet(far, 33, 5, SIZE_MAX);          /* what came before is good */
        assert_int_equal(send(far, head, sizeof(head), MSG_NOSIGNAL), sizeof(head));
        assert_int_equal(test_wait(t, &e), TUTTI_OK);
        assert_true(test_arrival_is(&e, 1, 33, 5));
        t->ops->release(t);
        assert_int_equal(test_wait(t, &e), TUTTI_ERR_PROTOCOL);
        assert_non_null(strstr(tutti_last_error()->text, "member 1 "));
        test_expect_nothing(t); /* once */
        assert_int_equal(test_send(t, 1, 8, 0), TUTTI_ERR_PROTOCOL);
        char byte;
        assert_true(recv(far, &byte, 1, 0) <= 0);
        lone_close(&lone);
        close(far);
    }
}

/* Bytes as slow as they can come, and all at once: the same packets. */
static void any_cut_of_the_stream(void **state)
{
    (void)state;
    struct lone lone = lone_open(2, true);
    struct tutti_transport *t = lone.t;
    const uint32_t sizes[] = {0, 1, 7, 100, 0, 4096, 33000, 15, 70000, 3, 32688, 32689, 0};
    uint64_t random = test_seed();
    int far = lone_connect(&lone, 1);
    for (int round = 0; round < 20; round++) {
        uint8_t *all = malloc(1 << 18);
        size_t bytes = 0, sent = 0;
        for (size_t i = 0; i < TUTTI_ARRAY_LEN(sizes); i++) {
            struct tutti_packet packet = test_packet(sizes[i], i);
            packet.version = TUTTI_WIRE_VERSION;
            tutti_packet_encode(&packet, all + bytes);
            test_payload(all + bytes + TUTTI_PACKET_WIRE_BYTES, sizes[i], i);
            bytes += TUTTI_PACKET_WIRE_BYTES + sizes[i];
        }
        const size_t most = round == 0 ? 1 << 20 : round == 1 ? 40 : 20000;
        for (size_t n = 0; n < TUTTI_ARRAY_LEN(sizes);) {
            struct tutti_event e;
            size_t piece = 1 + tutti_random64(&random) % most;
            if (piece > bytes - sent) piece = bytes - sent;
            if (piece > 0) sent += (size_t)send(far, all + sent, piece, MSG_NOSIGNAL);
            while (test_poll(t, &e) == TUTTI_OK) {
                assert_true(test_arrival_is(&e, 1, sizes[n], n));
                t->ops->release(t);
                n++;
            }
        }
        free(all);
    }
    lone_close(&lone);
    close(far);
}

static void sockets_are_as_asked(void **state)
{
    (void)state;
    struct pairs *pairs = pairs_new(2, AF_INET);
    struct tutti_transport *t;
    socklen_t bytes = sizeof(int);
    int one = 0, fds[2], copy;
    unsigned vanish_ms = 0;
    struct tutti_tcp_config config = {
        .n = 2, .me = 0, .dialer = &pairs->ends[0].dialer, .vanish_ns = 7 * TUTTI_NS_PER_S};
    assert_int_equal(tutti_tcp_open(&config, &t), TUTTI_OK);
    pairs_connect(AF_INET, fds);
    copy = fcntl(fds[0], F_DUPFD_CLOEXEC, 0);
    tutti_tcp_connected(t, 1, fds[0], NULL);
    test_expect_nothing(t);
    assert_int_equal(getsockopt(copy, IPPROTO_TCP, TCP_NODELAY, &one, &bytes), 0);
    assert_int_equal(one, 1);
    bytes = sizeof(vanish_ms);
    assert_int_equal(getsockopt(copy, IPPROTO_TCP, TCP_USER_TIMEOUT, &vanish_ms, &bytes), 0);
    assert_int_equal(vanish_ms, 7000);
    close(copy);
    t->ops->close(t);
    close(fds[1]);
    config.me = 2;
    assert_int_equal(tutti_tcp_open(&config, &t), TUTTI_ERR_ARGUMENT);
    pairs_free(pairs);
}

/* A world of a million costs what it uses. */
static void a_million_members(void **state)
{
    (void)state;
    struct tutti_dialer nobody = {NULL};
    const struct tutti_tcp_config config = {.n = 1000000, .me = 999999, .dialer = &nobody};
    struct tutti_transport *t;
    struct tutti_event e;
    int fds[2];
    assert_int_equal(tutti_tcp_open(&config, &t), TUTTI_OK);
    pairs_connect(AF_INET, fds);
    tutti_tcp_connected(t, 123456, fds[0], NULL);
    write_packet(fds[1], 10, 1, SIZE_MAX);
    assert_int_equal(test_wait(t, &e), TUTTI_OK);
    assert_true(test_arrival_is(&e, 123456, 10, 1));
    t->ops->release(t);
    t->ops->close(t);
    close(fds[1]);
}

/* Arguments: a pattern of the tests to run. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_socket_comes_late),      cmocka_unit_test(a_second_socket_is_closed),
        cmocka_unit_test(a_dead_one_is_not_let_in), cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(any_cut_of_the_stream),    cmocka_unit_test(sockets_are_as_asked),
        cmocka_unit_test(a_million_members),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("transport.tcp", tests, NULL, NULL);
}
