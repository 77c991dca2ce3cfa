/* SPDX-License-Identifier: BSD-3-Clause */

/* The net between threads and between processes: members find one another whoever dials, once for each pair and role;
 * who can not be reached is told why. */

#include "test.h"

#include "control/net/net_test.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#define MS TUTTI_NS_PER_MS

static struct world world;

static void one_dials_and_both_are_told(void **state)
{
    (void)state;
    static const char *const addresses[] = {"127.0.0.1", "::1"};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(addresses); i++) {
        world_init(&world, 2, addresses[i]);
        for (uint32_t m = 0; m < 2; m++) world.secret[m] = i ? "a secret" : NULL;
        world_open_all(&world);
        for (uint32_t from = 0; from < 2; from++) { /* either may */
            const enum tutti_net_role role = from ? TUTTI_NET_DATA : TUTTI_NET_CONTROL;
            world_dial(&world, from, role, 1 - from);
            for (uint32_t m = 0; m < 2; m++) assert_true(world_wait_opened(&world, m, role, 1 - m, 1));
            assert_true(world_talks(&world, 0, role, 1));
            for (uint32_t m = 0; m < 2; m++) {
                const int fd = world_told(&world, m, role, 1 - m).fd;
                int on = 0;
                socklen_t n = sizeof on;
                assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
                assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
                assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &n), 0);
                assert_true(on);
            }
        }
        world_fini(&world);
    }
}

static void all_dial_all(uint32_t only)
{
    for (int role = TUTTI_NET_CONTROL; role <= TUTTI_NET_DATA; role++)
        for (uint32_t a = 0; a < world.n; a++)
            for (uint32_t b = 0; b < world.n; b++)
                if (a != b && (only == UINT32_MAX || only == a)) world_want(&world, a, role, b);
}

static void all_pairs_of_threads_dial_at_once(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        world_init(&world, WORLD_MAX, "127.0.0.1");
        world_open_all(&world);
        all_dial_all(UINT32_MAX);
        for (int role = TUTTI_NET_CONTROL; role <= TUTTI_NET_DATA; role++)
            for (uint32_t a = 0; a < world.n; a++)
                for (uint32_t b = 0; b < world.n; b++)
                    if (a != b) assert_true(world_wait_opened(&world, a, role, b, 1));
        tutti_sleep_ns(20 * MS); /* for what should not come */
        for (int role = TUTTI_NET_CONTROL; role <= TUTTI_NET_DATA; role++)
            for (uint32_t a = 0; a < world.n; a++)
                for (uint32_t b = 0; b < a; b++) {
                    assert_int_equal(world_told(&world, a, role, b).n_opened, 1);
                    assert_int_equal(world_told(&world, b, role, a).n_opened, 1);
                    assert_int_equal(world_told(&world, a, role, b).n_failed, 0);
                    assert_true(world_talks(&world, a, role, b));
                }
        world_fini(&world);
    }
}

/* One member in a process of its own: says its number to each peer, and reads that of the peer, on each socket. */
#define CHILD_CHECK(claim)                                                                                             \
    if (!(claim)) return __LINE__ % 255
static int member_run(uint32_t me)
{
    for (uint32_t i = 0; i < world.n; i++)
        if (i != me) world_close(&world, i);
    world_open(&world, me);
    all_dial_all(me);
    for (int role = TUTTI_NET_CONTROL; role <= TUTTI_NET_DATA; role++)
        for (uint32_t peer = 0; peer < world.n; peer++) {
            const char mine = (char)(16 * role + (int)me);
            if (peer == me) continue;
            CHILD_CHECK(world_wait_opened(&world, me, role, peer, 1));
            CHILD_CHECK(send(world_told(&world, me, role, peer).fd, &mine, 1, MSG_NOSIGNAL) == 1);
        }
    for (int role = TUTTI_NET_CONTROL; role <= TUTTI_NET_DATA; role++)
        for (uint32_t peer = 0; peer < world.n; peer++) {
            struct pollfd wait = {.fd = world_told(&world, me, role, peer).fd, .events = POLLIN};
            char theirs = 0;
            if (peer == me) continue;
            CHILD_CHECK(poll(&wait, 1, 20000) == 1 && recv(wait.fd, &theirs, 1, 0) == 1);
            CHILD_CHECK(theirs == (char)(16 * role + (int)peer));
            CHILD_CHECK(world_told(&world, me, role, peer).n_opened == 1);
        }
    tutti_sleep_ns(100 * MS); /* the others read */
    world_fini(&world);
    return 0;
}

static void all_pairs_of_processes_dial_at_once(void **state)
{
    (void)state;
    pid_t children[WORLD_MAX];
    world_init(&world, WORLD_MAX, "127.0.0.1");
    for (uint32_t i = 0; i < world.n; i++) {
        world.secret[i] = "a secret";
        assert_true((children[i] = fork()) >= 0);
        if (children[i] == 0) _exit(member_run(i));
    }
    for (uint32_t i = 0; i < world.n; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
    }
    world_fini(&world);
}

static void dials_of_who_is_being_dialed_are_one(void **state)
{
    (void)state;
    world_init(&world, 2, "127.0.0.1");
    world_open(&world, 0);
    for (int i = 0; i < 3; i++) world_dial(&world, 0, TUTTI_NET_DATA, 1);
    tutti_sleep_ns(20 * MS);
    world_open(&world, 1); /* it comes late, and is reached */
    for (uint32_t m = 0; m < 2; m++) assert_true(world_wait_opened(&world, m, TUTTI_NET_DATA, 1 - m, 1));
    /* Later, one more is one more, whoever dials. */
    for (uint32_t n = 2; n < 6; n++) {
        tutti_sleep_ns(5 * MS);
        for (uint32_t m = 0; m < 2; m++) assert_int_equal(world_told(&world, m, TUTTI_NET_DATA, 1 - m).n_opened, n - 1);
        world_dial(&world, n % 2, TUTTI_NET_DATA, 1 - n % 2);
        for (uint32_t m = 0; m < 2; m++) assert_true(world_wait_opened(&world, m, TUTTI_NET_DATA, 1 - m, n));
        assert_true(world_talks(&world, 0, TUTTI_NET_DATA, 1));
    }
    assert_int_equal(tutti_net_dial(world.members[0].net, TUTTI_NET_DATA, 0), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_net_dial(world.members[0].net, TUTTI_NET_DATA, 2), TUTTI_ERR_ARGUMENT);
    tutti_alloc_fail_at(1);
    assert_int_equal(tutti_net_dial(world.members[0].net, TUTTI_NET_CONTROL, 1), TUTTI_ERR_MEMORY);
    tutti_alloc_fail_at(0);
    world_fini(&world);
}

#define ORDER_MAX 400
static struct order { /* connections in the order in which a member was notified of them */
    pthread_mutex_t mutex;
    int fds[ORDER_MAX];
    uint32_t n;
    struct tutti_net *net;
    uint32_t peer;
    uint64_t seed;
} orders[2];

static void order_opened(void *arg, enum tutti_net_role role, uint32_t peer, int fd, struct tutti_stream *stream)
{
    struct order *order = arg;
    (void)role, (void)peer, (void)stream;
    pthread_mutex_lock(&order->mutex);
    order->fds[order->n++] = fd;
    pthread_mutex_unlock(&order->mutex);
}

static void order_failed(void *arg, enum tutti_net_role role, uint32_t peer, const struct tutti_error *error)
{
    (void)arg, (void)role, (void)peer;
    fprintf(stderr, "%s\n", error->text);
    abort();
}

static bool order_dead(void *arg, uint32_t peer)
{
    (void)arg, (void)peer;
    return false;
}

static void *order_dial(void *arg)
{
    struct order *order = arg;
    for (int i = 0; i < ORDER_MAX / 4; i++) {
        tutti_net_dial(order->net, TUTTI_NET_DATA, order->peer);
        tutti_sleep_ns(tutti_random64(&order->seed) % (2 * MS));
    }
    return NULL;
}

static uint32_t order_count(struct order *order)
{
    pthread_mutex_lock(&order->mutex);
    const uint32_t n = order->n;
    pthread_mutex_unlock(&order->mutex);
    return n;
}

/* Two members dial each other again and again, at random times: the k-th connection of one is that of the other. */
static void both_are_told_in_the_same_order(void **state)
{
    (void)state;
    pthread_t threads[2];
    world_init(&world, 2, "127.0.0.1");
    for (uint32_t m = 0; m < 2; m++) {
        const struct tutti_net_config config = {.me = m,
                                                .hosts = &world.hosts,
                                                .world = world.number,
                                                .interface = "",
                                                .listener = world.members[m].listener,
                                                .dial_ns = WORLD_PATIENCE_NS,
                                                .arg = &orders[m],
                                                .opened = order_opened,
                                                .failed = order_failed,
                                                .is_dead = order_dead};
        orders[m] = (struct order){.peer = 1 - m, .seed = test_seed() + m};
        pthread_mutex_init(&orders[m].mutex, NULL);
        assert_int_equal(tutti_net_open(&config, &orders[m].net), TUTTI_OK);
        assert_int_equal(tutti_net_start(orders[m].net), TUTTI_OK);
        world.members[m].listener = NULL;
    }
    for (int m = 0; m < 2; m++) assert_int_equal(pthread_create(&threads[m], NULL, order_dial, &orders[m]), 0);
    for (int m = 0; m < 2; m++) pthread_join(threads[m], NULL);
    for (uint32_t quiet = 0, last = 0; quiet < 100; tutti_sleep_ns(10 * MS)) { /* tries are up to 640 ms apart */
        const uint32_t n = order_count(&orders[0]) + order_count(&orders[1]);
        quiet = n == last ? quiet + 1 : 0;
        last = n;
    }
    const uint32_t n = order_count(&orders[0]);
    assert_int_equal(order_count(&orders[1]), n);
    assert_true(n > 1);
    for (uint32_t k = 0; k < n; k++) {
        assert_true(passes(orders[0].fds[k], orders[1].fds[k], (char)k));
        assert_true(passes(orders[1].fds[k], orders[0].fds[k], (char)k));
    }
    for (uint32_t m = 0; m < 2; m++) {
        tutti_net_close(orders[m].net);
        for (uint32_t k = 0; k < n; k++) close(orders[m].fds[k]);
        pthread_mutex_destroy(&orders[m].mutex);
    }
    world_fini(&world);
}

/* The failure that member 0 hears of its dial of member 1. */
static struct tutti_error failure_of(enum tutti_net_role role, enum tutti_status status, const char *says)
{
    world_dial(&world, 0, role, 1);
    assert_true(world_wait_failed(&world, 0, role, 1, 1));
    const struct tutti_error error = world_told(&world, 0, role, 1).error;
    if (error.status != status || !strstr(error.text, says)) fprintf(stderr, "%d %s\n", error.status, error.text);
    assert_int_equal(error.status, status);
    assert_int_equal(error.peer, 1);
    assert_non_null(strstr(error.text, says));
    assert_non_null(strstr(error.text, "rank 1 on host host-1 (127.0.0.1 port "));
    return error;
}

static void who_does_not_answer_is_told_after_the_time(void **state)
{
    (void)state;
    int calls[8];
    world_init(&world, 2, "127.0.0.1");
    world.dial_ns = 300 * MS;
    world_open(&world, 0);
    const uint64_t begin = tutti_now_ns();
    failure_of(TUTTI_NET_DATA, TUTTI_ERR_TIMEOUT, "timed out after 300 ms: it does not answer");
    assert_true(tutti_now_ns() - begin >= 300 * MS);
    /* A host that drops what comes: here, a socket whose queue is full. */
    const int full = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    assert_int_equal(bind(full, (struct sockaddr *)&at, n), 0);
    assert_int_equal(listen(full, 0), 0);
    assert_int_equal(getsockname(full, (struct sockaddr *)&at, &n), 0);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(calls); i++) {
        calls[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        connect(calls[i], (struct sockaddr *)&at, n);
    }
    world.member_rows[1].port = ntohs(at.sin_port);
    failure_of(TUTTI_NET_CONTROL, TUTTI_ERR_TIMEOUT, "timed out after 300 ms: no connection comes to be");
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(calls); i++) close(calls[i]);
    close(full);
    world_fini(&world);
}

static void who_is_gone_is_told_at_once(void **state)
{
    (void)state;
    world_init(&world, 2, "127.0.0.1");
    world_open(&world, 0);
    world_close(&world, 1);
    failure_of(TUTTI_NET_DATA, TUTTI_ERR_PEER_DEAD, "nobody listens there");
    world_fini(&world);
}

/* A firewall that is just being loaded, or a port that opens late: it is asked again before a death is told. On a
 * machine that is busy the port may open too late; not every time. */
static void a_refusal_that_passes_is_no_death(void **state)
{
    (void)state;
    bool came = false;
    for (int i = 0; i < 20 && !came; i++) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
        socklen_t n = sizeof at;
        world_init(&world, 2, "127.0.0.1");
        world_open(&world, 0);
        struct pollfd late = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .events = POLLIN};
        assert_int_equal(bind(late.fd, (struct sockaddr *)&at, n), 0); /* it refuses until it listens */
        assert_int_equal(getsockname(late.fd, (struct sockaddr *)&at, &n), 0);
        world.member_rows[1].port = ntohs(at.sin_port);
        world_dial(&world, 0, TUTTI_NET_CONTROL, 1);
        tutti_sleep_ns(30 * MS);
        assert_int_equal(listen(late.fd, 1), 0);
        came = poll(&late, 1, 500) == 1 && world_told(&world, 0, TUTTI_NET_CONTROL, 1).n_failed == 0;
        close(late.fd);
        world_fini(&world);
    }
    assert_true(came);
}

static void the_dead_are_refused(void **state)
{
    (void)state;
    world_init(&world, 2, "127.0.0.1");
    world_open_all(&world);
    atomic_store(&world.members[0].dead, 2); /* rank 0 was told that rank 1 is dead: */
    failure_of(TUTTI_NET_DATA, TUTTI_ERR_PEER_DEAD, "it was told dead");
    world_dial(&world, 1, TUTTI_NET_DATA, 0); /* ... and rank 1 hears it when it comes back */
    assert_true(world_wait_failed(&world, 1, TUTTI_NET_DATA, 0, 1));
    const struct tutti_error error = world_told(&world, 1, TUTTI_NET_DATA, 0).error;
    assert_int_equal(error.status, TUTTI_ERR_PEER_DEAD);
    assert_non_null(strstr(error.text, "rank 0 on host host-0"));
    assert_non_null(strstr(error.text, "refuses this rank, which it was told is dead"));
    for (uint32_t m = 0; m < 2; m++) assert_int_equal(world_told(&world, m, TUTTI_NET_DATA, 1 - m).n_opened, 0);
    world_fini(&world);
    /* A peer is declared dead while it is being dialed. */
    world_init(&world, 2, "127.0.0.1");
    world_open(&world, 0);
    world_dial(&world, 0, TUTTI_NET_DATA, 1);
    tutti_sleep_ns(20 * MS);
    atomic_store(&world.members[0].dead, 2);
    assert_true(world_wait_failed(&world, 0, TUTTI_NET_DATA, 1, 1));
    assert_int_equal(world_told(&world, 0, TUTTI_NET_DATA, 1).error.status, TUTTI_ERR_PEER_DEAD);
    world_fini(&world);
}

static void another_secret_is_told_at_once(void **state)
{
    (void)state;
    static const struct {
        const char *secrets[2], *says;
    } cases[] = {
        {{"one", "two"}, "another secret"},
        {{NULL, "two"}, "it has a secret, this rank has none"},
        {{"one", NULL}, "it has no secret, this rank has one"},
    };
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(cases); i++) {
        world_init(&world, 3, "127.0.0.1");
        for (uint32_t m = 0; m < 3; m++) world.secret[m] = cases[i].secrets[m > 0];
        world_open_all(&world);
        failure_of(TUTTI_NET_DATA, TUTTI_ERR_AUTH, cases[i].says);
        assert_int_equal(world_told(&world, 1, TUTTI_NET_DATA, 0).n_opened, 0);
        world_dial(&world, 1, TUTTI_NET_DATA, 2); /* the others do not mind */
        assert_true(world_wait_opened(&world, 2, TUTTI_NET_DATA, 1, 1));
        world_fini(&world);
    }
}

/* Members that are reached, that do not answer, and that are gone, in all stages; nothing is called afterwards. */
static void a_net_may_close_while_it_dials(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 30; round++) {
        world_init(&world, WORLD_MAX, "127.0.0.1");
        for (uint32_t m = 0; m < 6; m++) world_open(&world, m);
        world_close(&world, 7); /* 6 never answers */
        for (uint32_t m = 0; m < 6; m++) all_dial_all(m);
        tutti_sleep_ns(round * MS / 4);
        tutti_net_close(world.members[0].net);
        world.members[0].net = NULL;
        const struct world_member before = world.members[0];
        tutti_sleep_ns(MS);
        assert_memory_equal(&before.told, &world.members[0].told, sizeof before.told);
        world_fini(&world);
    }
}

/* Without a route: in a network namespace of its own. Returns 0 or a line; 255: not allowed. */
static int without_route(void)
{
    if (unshare(CLONE_NEWNET) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0) return 255;
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    CHILD_CHECK(ioctl(fd, SIOCSIFFLAGS, &lo) == 0);
    close(fd);
    world_init(&world, 2, "127.0.0.1");
    world.dial_ns = 200 * MS;
    CHILD_CHECK(tutti_net_address_parse("10.11.12.13", &world.host_rows[1].address));
    world_open(&world, 0);
    world_dial(&world, 0, TUTTI_NET_DATA, 1);
    CHILD_CHECK(world_wait_failed(&world, 0, TUTTI_NET_DATA, 1, 1));
    const struct tutti_error error = world_told(&world, 0, TUTTI_NET_DATA, 1).error;
    CHILD_CHECK(error.status == TUTTI_ERR_SYSTEM && error.os_errno == ENETUNREACH);
    CHILD_CHECK(strstr(error.text, "rank 1 on host host-1 (10.11.12.13 port ") && strstr(error.text, "200 ms"));
    world_fini(&world);
    return 0;
}

static void a_missing_route_is_told(void **state)
{
    (void)state;
    int status;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(without_route());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 255) skip(); /* no namespaces for this user */
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_dials_and_both_are_told),
        cmocka_unit_test(all_pairs_of_threads_dial_at_once),
        cmocka_unit_test(all_pairs_of_processes_dial_at_once),
        cmocka_unit_test(dials_of_who_is_being_dialed_are_one),
        cmocka_unit_test(both_are_told_in_the_same_order),
        cmocka_unit_test(who_does_not_answer_is_told_after_the_time),
        cmocka_unit_test(who_is_gone_is_told_at_once),
        cmocka_unit_test(a_refusal_that_passes_is_no_death),
        cmocka_unit_test(the_dead_are_refused),
        cmocka_unit_test(another_secret_is_told_at_once),
        cmocka_unit_test(a_net_may_close_while_it_dials),
        cmocka_unit_test(a_missing_route_is_told),
    };
    if (!tutti_hmac_available()) return 0; /* built without OpenSSL: hosts do not talk */
    return cmocka_run_group_tests(tests, world_note_descriptors, world_check_descriptors);
}
