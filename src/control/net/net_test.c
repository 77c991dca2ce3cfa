/* SPDX-License-Identifier: BSD-3-Clause */

/* The net between threads of one process: members find one another whoever dials, once for each pair and role; who is
 * no member gets nowhere, and keeps nobody from getting there. */

#include "test.h"

#include "control/net/proof.h"
#include "net_test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS TUTTI_NS_PER_MS
#define PATIENCE_NS (30 * TUTTI_NS_PER_S)

/* ---- a world ---- */

static void told_opened(void *arg, enum tutti_net_role role, uint32_t peer, int fd)
{
    struct world_member *m = arg;
    pthread_mutex_lock(&m->mutex);
    struct world_told *told = &m->told[role][peer];
    if (told->fd >= 0) close(told->fd);
    told->fd = fd, told->n_opened++;
    pthread_mutex_unlock(&m->mutex);
}

static void told_failed(void *arg, enum tutti_net_role role, uint32_t peer, const struct tutti_error *error)
{
    struct world_member *m = arg;
    pthread_mutex_lock(&m->mutex);
    m->told[role][peer].error = *error;
    m->told[role][peer].n_failed++;
    pthread_mutex_unlock(&m->mutex);
}

static bool told_dead(void *arg, uint32_t peer)
{
    struct world_member *m = arg;
    return atomic_load(&m->dead) >> peer & 1;
}

void world_init(struct world *world, uint32_t n, const char *address)
{
    const struct tutti_listener_config config = {.interface = address};
    memset(world, 0, sizeof *world);
    world->n = n, world->number = 0x1234567890abcdef, world->dial_ns = PATIENCE_NS;
    world->hosts = (struct tutti_hosts){n, n, world->host_rows, world->member_rows};
    for (uint32_t i = 0; i < n; i++) {
        struct world_member *m = &world->members[i];
        m->world = world, m->me = i;
        pthread_mutex_init(&m->mutex, NULL);
        for (int role = 0; role < 3; role++)
            for (uint32_t peer = 0; peer < WORLD_MAX; peer++) m->told[role][peer].fd = -1;
        assert_int_equal(tutti_listener_open(&config, &m->listener), TUTTI_OK);
        world->host_rows[i] = (struct tutti_host_row){.id = i, .leader = i, .n = 1};
        snprintf(world->host_rows[i].name, sizeof world->host_rows[i].name, "host-%u", i);
        assert_true(tutti_net_address_parse(address, &world->host_rows[i].address));
        world->member_rows[i] = (struct tutti_member_row){.host = i, .port = tutti_listener_port(m->listener)};
    }
}

void world_open(struct world *world, uint32_t member)
{
    struct world_member *m = &world->members[member];
    const struct tutti_net_config config = {.me = member,
                                            .hosts = &world->hosts,
                                            .world = world->number,
                                            .secret = world->secret[member],
                                            .interface = "",
                                            .listener = m->listener,
                                            .dial_ns = world->dial_ns,
                                            .arg = m,
                                            .opened = told_opened,
                                            .failed = told_failed,
                                            .is_dead = told_dead};
    assert_int_equal(tutti_net_open(&config, &m->net), TUTTI_OK);
    m->listener = NULL;
}

void world_open_all(struct world *world)
{
    for (uint32_t i = 0; i < world->n; i++) world_open(world, i);
}

void world_close(struct world *world, uint32_t member)
{
    struct world_member *m = &world->members[member];
    if (m->net) tutti_net_close(m->net);
    if (m->listener) tutti_listener_close(m->listener);
    m->net = NULL, m->listener = NULL;
    for (int role = 0; role < 3; role++)
        for (uint32_t peer = 0; peer < WORLD_MAX; peer++) {
            if (m->told[role][peer].fd >= 0) close(m->told[role][peer].fd);
            m->told[role][peer].fd = -1;
        }
}

void world_fini(struct world *world)
{
    for (uint32_t i = 0; i < world->n; i++) {
        world_close(world, i);
        pthread_mutex_destroy(&world->members[i].mutex);
    }
}

void world_dial(struct world *world, uint32_t from, enum tutti_net_role role, uint32_t to)
{
    assert_int_equal(tutti_net_dial(world->members[from].net, role, to), TUTTI_OK);
}

struct world_told world_told(struct world *world, uint32_t member, enum tutti_net_role role, uint32_t peer)
{
    struct world_member *m = &world->members[member];
    pthread_mutex_lock(&m->mutex);
    const struct world_told told = m->told[role][peer];
    pthread_mutex_unlock(&m->mutex);
    return told;
}

static bool wait_told(struct world *world, uint32_t member, enum tutti_net_role role, uint32_t peer, uint32_t n_opened,
                      uint32_t n_failed)
{
    const uint64_t due = tutti_deadline_ns(PATIENCE_NS);
    for (;;) {
        const struct world_told told = world_told(world, member, role, peer);
        if (told.n_opened >= n_opened && told.n_failed >= n_failed) return true;
        if (tutti_now_ns() > due) {
            fprintf(stderr, "rank %u was told of rank %u: opened %u, failed %u: %s\n", member, peer, told.n_opened,
                    told.n_failed, told.error.text);
            return false;
        }
        tutti_sleep_ns(MS);
    }
}

bool world_wait_opened(struct world *world, uint32_t member, enum tutti_net_role role, uint32_t peer, uint32_t n)
{
    return wait_told(world, member, role, peer, n, 0);
}

bool world_wait_failed(struct world *world, uint32_t member, enum tutti_net_role role, uint32_t peer, uint32_t n)
{
    return wait_told(world, member, role, peer, 0, n);
}

static bool passes(int from, int to, char byte)
{
    struct pollfd wait = {.fd = to, .events = POLLIN};
    char got = 0;
    return send(from, &byte, 1, MSG_NOSIGNAL) == 1 && poll(&wait, 1, 10000) == 1 && recv(to, &got, 1, 0) == 1 &&
           got == byte;
}

bool world_talks(struct world *world, uint32_t a, enum tutti_net_role role, uint32_t b)
{
    const int fd_a = world_told(world, a, role, b).fd, fd_b = world_told(world, b, role, a).fd;
    return passes(fd_a, fd_b, 'x') && passes(fd_b, fd_a, 'y');
}

int world_call(struct world *world, uint32_t member)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(world->member_rows[member].port)};
    memcpy(&to.sin_addr, world->host_rows[member].address.bytes, 4);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (connect(fd, (const struct sockaddr *)&to, sizeof to) == 0) return fd;
    close(fd);
    return -1;
}

uint32_t world_descriptors(void)
{
    uint32_t n = 0;
    for (int fd = 0; fd < 4096; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* ---- the tests ---- */

static struct world world;

static void one_dials_and_both_are_told(void **state)
{
    (void)state;
    static const char *const addresses[] = {"127.0.0.1", "::1"};
    const uint32_t before = world_descriptors();
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
    assert_int_equal(world_descriptors(), before);
}

static void all_pairs_dial_at_once(void **state)
{
    (void)state;
    const uint32_t before = world_descriptors();
    for (int round = 0; round < 20; round++) {
        world_init(&world, WORLD_MAX, "127.0.0.1");
        world_open_all(&world);
        for (int role = TUTTI_NET_CONTROL; role <= TUTTI_NET_DATA; role++)
            for (uint32_t a = 0; a < world.n; a++)
                for (uint32_t b = 0; b < world.n; b++)
                    if (a != b) world_dial(&world, a, role, b);
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
    assert_int_equal(world_descriptors(), before);
}

static int hmac_needed(void **state)
{
    (void)state;
    tutti_log_threshold = TUTTI_LOG_ERROR; /* refusals are the rule here */
    if (!tutti_hmac_available()) {
        fprintf(stderr, "skipped: built without OpenSSL\n");
        exit(77);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_dials_and_both_are_told),
        cmocka_unit_test(all_pairs_dial_at_once),
    };
    return cmocka_run_group_tests(tests, hmac_needed, NULL);
}
