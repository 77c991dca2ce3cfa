/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_NET_TEST_H
#define TUTTI_CONTROL_NET_TEST_H

/* Members of a world for tests of the net: each has a listener and a net, and writes down what it is told. They may be
 * of one process or of many: each process has the table of all. */

#include "control/net/net.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define WORLD_MAX 8
#define WORLD_ROLES (3 + TUTTI_NET_PATHS)
#define WORLD_PATIENCE_NS (30 * TUTTI_NS_PER_S)

struct world_told { /* one peer's in one role */
    int fd;         /* the newest; -1: none */
    struct tutti_stream *stream;
    uint32_t n_opened, n_failed;
    struct tutti_error error; /* the last failure */
};
struct world_member {
    struct world *world;
    uint32_t me;
    struct tutti_listener *listener;
    struct tutti_net *net;
    pthread_mutex_t mutex;                          /* guards what was told */
    struct world_told told[WORLD_ROLES][WORLD_MAX]; /* by role_row */
    _Atomic uint32_t dead;                          /* bits of members that it refuses */
};
struct world {
    uint32_t n;
    uint64_t number, dial_ns;
    uint32_t encrypt;
    const char *secret[WORLD_MAX];
    struct tutti_hosts hosts; /* a host each */
    struct tutti_host_row host_rows[WORLD_MAX];
    struct tutti_member_row member_rows[WORLD_MAX];
    struct world_member members[WORLD_MAX];
};

static inline int role_row(enum tutti_net_role role)
{
    return role >= TUTTI_NET_PATH ? 3 + (int)role - TUTTI_NET_PATH : (int)role;
}

static inline void told_opened(void *arg, enum tutti_net_role role, uint32_t peer, int fd, struct tutti_stream *stream)
{
    struct world_member *m = arg;
    pthread_mutex_lock(&m->mutex);
    struct world_told *told = &m->told[role_row(role)][peer];
    tutti_stream_close(told->stream);
    if (told->fd >= 0) close(told->fd);
    told->fd = fd, told->stream = stream, told->n_opened++;
    pthread_mutex_unlock(&m->mutex);
}

static inline void told_failed(void *arg, enum tutti_net_role role, uint32_t peer, const struct tutti_error *error)
{
    struct world_member *m = arg;
    pthread_mutex_lock(&m->mutex);
    m->told[role_row(role)][peer].error = *error;
    m->told[role_row(role)][peer].n_failed++;
    pthread_mutex_unlock(&m->mutex);
}

static inline bool told_dead(void *arg, uint32_t peer)
{
    struct world_member *m = arg;
    return atomic_load(&m->dead) >> peer & 1;
}

/* Listeners are open, no net yet. */
static inline void world_init(struct world *world, uint32_t n, const char *address)
{
    const struct tutti_listener_config config = {.interface = address};
    memset(world, 0, sizeof *world);
    world->n = n, world->number = 0x1234567890abcdef, world->dial_ns = WORLD_PATIENCE_NS;
    world->hosts =
        (struct tutti_hosts){.n_hosts = n, .n_members = n, .hosts = world->host_rows, .members = world->member_rows};
    for (uint32_t i = 0; i < n; i++) {
        struct world_member *m = &world->members[i];
        m->world = world, m->me = i;
        pthread_mutex_init(&m->mutex, NULL);
        for (int role = 0; role < WORLD_ROLES; role++)
            for (uint32_t peer = 0; peer < WORLD_MAX; peer++) m->told[role][peer].fd = -1;
        assert_int_equal(tutti_listener_open(&config, &m->listener), TUTTI_OK);
        world->host_rows[i] = (struct tutti_host_row){.id = i, .leader = i, .n = 1};
        snprintf(world->host_rows[i].name, sizeof world->host_rows[i].name, "host-%u", i);
        assert_true(tutti_net_address_parse(address, &world->host_rows[i].address));
        world->member_rows[i] = (struct tutti_member_row){.host = i, .port = tutti_listener_port(m->listener)};
    }
}

static inline void world_open(struct world *world, uint32_t member)
{
    struct world_member *m = &world->members[member];
    const struct tutti_net_config config = {.me = member,
                                            .hosts = &world->hosts,
                                            .world = world->number,
                                            .secret = world->secret[member],
                                            .interface = "",
                                            .listener = m->listener,
                                            .encrypt = world->encrypt,
                                            .dial_ns = world->dial_ns,
                                            .arg = m,
                                            .opened = told_opened,
                                            .failed = told_failed,
                                            .is_dead = told_dead};
    assert_int_equal(tutti_net_open(&config, &m->net), TUTTI_OK);
    assert_int_equal(tutti_net_start(m->net), TUTTI_OK);
    m->listener = NULL;
}

static inline void world_open_all(struct world *world)
{
    for (uint32_t i = 0; i < world->n; i++) world_open(world, i);
}

/* Its net or listener, and all that it was given. */
static inline void world_close(struct world *world, uint32_t member)
{
    struct world_member *m = &world->members[member];
    if (m->net) tutti_net_close(m->net);
    if (m->listener) tutti_listener_close(m->listener);
    m->net = NULL, m->listener = NULL;
    for (int role = 0; role < WORLD_ROLES; role++)
        for (uint32_t peer = 0; peer < WORLD_MAX; peer++) {
            struct world_told *told = &m->told[role][peer];
            tutti_stream_close(told->stream);
            if (told->fd >= 0) close(told->fd);
            told->fd = -1, told->stream = NULL;
        }
}

static inline void world_fini(struct world *world)
{
    for (uint32_t i = 0; i < world->n; i++) {
        world_close(world, i);
        pthread_mutex_destroy(&world->members[i].mutex);
    }
}

static inline void world_dial(struct world *world, uint32_t from, enum tutti_net_role role, uint32_t to)
{
    assert_int_equal(tutti_net_dial(world->members[from].net, role, to), TUTTI_OK);
}

/* As users do it: under the lock that `opened` takes, and only who is not connected yet. */
static inline void world_want(struct world *world, uint32_t from, enum tutti_net_role role, uint32_t to)
{
    struct world_member *m = &world->members[from];
    pthread_mutex_lock(&m->mutex);
    if (m->told[role_row(role)][to].n_opened == 0) world_dial(world, from, role, to);
    pthread_mutex_unlock(&m->mutex);
}

static inline struct world_told world_told(struct world *world, uint32_t member, enum tutti_net_role role,
                                           uint32_t peer)
{
    struct world_member *m = &world->members[member];
    pthread_mutex_lock(&m->mutex);
    const struct world_told told = m->told[role_row(role)][peer];
    pthread_mutex_unlock(&m->mutex);
    return told;
}

/* Waits until a member was told, opened and failed so many times. False: not in 30 s. */
static inline bool wait_told(struct world *world, uint32_t member, enum tutti_net_role role, uint32_t peer,
                             uint32_t n_opened, uint32_t n_failed)
{
    const uint64_t due = tutti_deadline_ns(WORLD_PATIENCE_NS);
    for (;;) {
        const struct world_told told = world_told(world, member, role, peer);
        if (told.n_opened >= n_opened && told.n_failed >= n_failed) return true;
        if (tutti_now_ns() > due) {
            fprintf(stderr, "rank %u was told of rank %u: opened %u, failed %u: %s\n", member, peer, told.n_opened,
                    told.n_failed, told.error.text);
            return false;
        }
        tutti_sleep_ns(TUTTI_NS_PER_MS);
    }
}

static inline bool world_wait_opened(struct world *world, uint32_t member, enum tutti_net_role role, uint32_t peer,
                                     uint32_t n)
{
    return wait_told(world, member, role, peer, n, 0);
}

static inline bool world_wait_failed(struct world *world, uint32_t member, enum tutti_net_role role, uint32_t peer,
                                     uint32_t n)
{
    return wait_told(world, member, role, peer, 0, n);
}

static inline bool passes(int from, int to, char byte)
{
    struct pollfd wait = {.fd = to, .events = POLLIN};
    char got = 0;
    return send(from, &byte, 1, MSG_NOSIGNAL) == 1 && poll(&wait, 1, 10000) == 1 && recv(to, &got, 1, 0) == 1 &&
           got == byte;
}

/* Whether bytes go both ways between the sockets that the two were told of. */
static inline bool world_talks(struct world *world, uint32_t a, enum tutti_net_role role, uint32_t b)
{
    const int fd_a = world_told(world, a, role, b).fd, fd_b = world_told(world, b, role, a).fd;
    return passes(fd_a, fd_b, 'x') && passes(fd_b, fd_a, 'y');
}

/* A stranger's socket at the member's port, blocking; -1: it is not accepted. */
static inline int world_call(struct world *world, uint32_t member)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(world->member_rows[member].port)};
    memcpy(&to.sin_addr, world->host_rows[member].address.bytes, 4);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (connect(fd, (const struct sockaddr *)&to, sizeof to) == 0) return fd;
    close(fd);
    return -1;
}

static inline uint32_t world_descriptors(void)
{
    uint32_t n = 0;
    for (int fd = 0; fd < 4096; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* ---- of all tests of a program: what was opened is closed at the end; refusals are the rule, and are not told ---- */
static uint32_t world_n_before;

static inline int world_note_descriptors(void **state)
{
    (void)state;
    tutti_log_threshold = TUTTI_LOG_ERROR;
    world_n_before = world_descriptors();
    return 0;
}

static inline int world_check_descriptors(void **state)
{
    (void)state;
    return world_descriptors() == world_n_before ? 0 : -1;
}

#endif
