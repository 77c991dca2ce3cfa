/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_CONTROL_MEET_ACTS_TEST_H
#define TUTTI_CONTROL_MEET_ACTS_TEST_H

/* Ranks that open a world, as threads, processes or both, and what came of it: for the tests of the bootstrap. */

#include "test.h"

#include "control/meet/bootstrap.h"
#include "control/meet/meeting.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_RANKS 256
#define ACTS_JOB "bootstrap-test"

/* What a rank does, and what came of it. In memory that threads and processes share. */
struct act {
    int32_t rank, n_ranks;
    const char *name, *secret;
    struct tutti_option option;
    uint64_t delay_ms, timeout_ms;
    uint64_t fail_at; /* where the bootstrap fails: see tutti_alloc_fail_at */
    uint32_t cpu;     /* to be bound to, and one more; 0: none in particular */
    bool was_crowded; /* in another world */
    /* outcome */
    enum tutti_status status;
    char text[TUTTI_ERROR_TEXT];
    uint64_t nonce, took_ns, ended_ns;
    uint32_t n, me, n_host, min_cpus;
    char transport[16];
    bool authenticated, heard, crowded;
    uint64_t places; /* a hash */
};
static struct act *acts;
static char unique[64];

static inline int acts_setup(void **state)
{
    static unsigned serial;
    (void)state;
    acts = mmap(NULL, MAX_RANKS * sizeof *acts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (acts == MAP_FAILED) return -1;
    snprintf(unique, sizeof unique, "bootstrap-test-%d-%u", (int)getpid(), serial++);
    return 0;
}

static inline int acts_teardown(void **state)
{
    (void)state;
    return munmap(acts, MAX_RANKS * sizeof *acts);
}

/* Sends one packet to the right neighbour, and hears from the left one. */
static inline bool greet(struct tutti_transport *t)
{
    struct tutti_packet packet = {.type = TUTTI_PACKET_DATA, .comm = 1, .seq = t->me};
    struct tutti_event arrival;
    uint64_t deadline = tutti_deadline_ns(10 * TUTTI_NS_PER_S);
    bool sent = false, heard = false;
    while (!(sent && heard) && tutti_now_ns() < deadline) {
        if (!sent) sent = t->ops->send(t, (t->me + 1) % t->n, &packet, NULL, 0, 0) == TUTTI_OK;
        if (!heard && t->ops->poll(t, &arrival) == TUTTI_OK) {
            heard = arrival.packet.source == (t->me + t->n - 1) % t->n && arrival.packet.seq == arrival.packet.source;
            t->ops->release(t);
        }
        if (!(sent && heard)) tutti_sleep_ns(100000);
    }
    return sent && heard;
}

static inline void cpu_bind(uint32_t cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) abort();
}

static inline void act_open(struct act *act, const struct tutti_config *config, const struct tutti_store *store)
{
    struct tutti_world world;
    const struct tutti_bootstrap bootstrap = {
        .rank = act->rank,
        .n_ranks = act->n_ranks,
        .name = act->name ? act->name : unique,
        .store = store,
        .job = ACTS_JOB,
        .secret = act->secret,
        .deadline_ns = tutti_deadline_ns((act->timeout_ms ? act->timeout_ms : 30000) * TUTTI_NS_PER_MS),
        .config = config,
        .crowded = act->was_crowded,
    };
    if (act->cpu) cpu_bind(act->cpu - 1);
    uint64_t start = tutti_now_ns();
    tutti_alloc_fail_at(act->fail_at);
    act->status = tutti_world_open(&bootstrap, &world);
    tutti_alloc_fail_at(0);
    act->ended_ns = tutti_now_ns();
    act->took_ns = act->ended_ns - start;
    if (act->status < 0) {
        snprintf(act->text, sizeof act->text, "%s", tutti_last_error()->text);
        return;
    }
    act->nonce = world.nonce;
    act->n = world.n, act->me = world.me, act->n_host = world.n_host, act->min_cpus = world.min_cpus;
    act->authenticated = world.authenticated;
    act->crowded = world.crowded;
    act->places = tutti_hash64(world.places, world.n * sizeof *world.places, 0);
    snprintf(act->transport, sizeof act->transport, "%s", world.transport->name);
    act->heard = greet(world.transport);
    tutti_world_close(&world);
}

/* address: of a store, NULL: without one. */
static inline void act_run_by(struct act *act, const char *address)
{
    struct tutti_config config;
    struct tutti_store store = {NULL, NULL};
    tutti_sleep_ns(act->delay_ms * TUTTI_NS_PER_MS);
    act->status = tutti_config_init(&config, &act->option, act->option.name != NULL);
    if (act->status < 0) return;
    if (address) act->status = tutti_store_open(address, NULL, tutti_deadline_ns(5 * TUTTI_NS_PER_S), &store);
    if (act->status >= 0) act_open(act, &config, address ? &store : NULL);
    tutti_store_close(&store);
    tutti_config_fini(&config);
}

static inline void act_run(struct act *act)
{
    act_run_by(act, NULL);
}

static inline void *act_thread(void *arg)
{
    act_run(arg);
    return NULL;
}

static inline void run_threads(size_t from, size_t n)
{
    pthread_t threads[MAX_RANKS];
    pthread_attr_t small;
    assert_int_equal(pthread_attr_init(&small), 0);
    pthread_attr_setstacksize(&small, 256 << 10);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(pthread_create(&threads[i], &small, act_thread, &acts[from + i]), 0);
    for (size_t i = 0; i < n; i++) pthread_join(threads[i], NULL);
    pthread_attr_destroy(&small);
}

/* A process that runs n acts as threads (one: in its main thread). */
static inline pid_t spawn(size_t from, size_t n)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) return pid;
    if (n == 1)
        act_run(&acts[from]);
    else
        run_threads(from, n);
    _exit(0);
}

static inline void reap(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("process %d ended with status %x", (int)pid, status);
}

static inline void run_processes(size_t n)
{
    pid_t pids[MAX_RANKS];
    for (size_t i = 0; i < n; i++) pids[i] = spawn(i, 1);
    for (size_t i = 0; i < n; i++) reap(pids[i]);
}

static inline void plan(size_t n)
{
    memset(acts, 0, MAX_RANKS * sizeof *acts);
    for (size_t i = 0; i < n; i++) acts[i].rank = (int32_t)i, acts[i].n_ranks = (int32_t)n;
}

static inline void expect_world(size_t n, const char *transport, bool authenticated)
{
    for (size_t i = 0; i < n; i++) {
        if (acts[i].status != TUTTI_OK) fail_msg("rank %zu: %s", i, acts[i].text);
        assert_int_equal(acts[i].n, n);
        assert_int_equal(acts[i].me, i);
        assert_int_equal(acts[i].n_host, n);
        assert_true(acts[i].min_cpus >= 1);
        assert_true(acts[i].nonce == acts[0].nonce && acts[i].nonce != 0);
        assert_int_equal(acts[i].crowded, acts[0].crowded);
        assert_true(acts[i].places == acts[0].places);
        assert_string_equal(acts[i].transport, transport);
        assert_int_equal(acts[i].authenticated, authenticated);
        assert_true(acts[i].heard);
    }
}

static inline void expect_error(size_t i, enum tutti_status status, const char *part)
{
    if (acts[i].status != status || !strstr(acts[i].text, part))
        fail_msg("act %zu: %s \"%s\" instead of %s \"...%s...\"", i, tutti_status_name(acts[i].status), acts[i].text,
                 tutti_status_name(status), part);
}

/* ---- places ---- */

/* Where the ranks of this test meet. */
static inline void place_of_acts(char out[TUTTI_MEETING_PLACE])
{
    tutti_meeting_place(ACTS_JOB, unique, 0, out);
}

static inline int raw_connect(const char *place)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t n = strlen(place);
    memcpy(address.sun_path + 1, place, n);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (connect(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Waits until a leader listens at the place. */
static inline void await_leader(const char *place)
{
    uint64_t deadline = tutti_deadline_ns(10 * TUTTI_NS_PER_S);
    int fd = -1;
    while ((fd = raw_connect(place)) < 0 && tutti_now_ns() < deadline) tutti_sleep_ns(TUTTI_NS_PER_MS);
    assert_true(fd >= 0);
    close(fd);
}

/* How many are connected to who listens at the place. */
static inline size_t place_guests(const char *place)
{
    char line[512];
    size_t n = 0;
    FILE *sockets = fopen("/proc/net/unix", "re");
    assert_non_null(sockets);
    while (fgets(line, sizeof line, sockets)) {
        const char *name = strchr(line, '@');
        unsigned flags = 0;
        if (!name || strcspn(++name, "\n") != strlen(place) || strncmp(name, place, strlen(place)) != 0) continue;
        n += sscanf(line, "%*s %*s %*s %x", &flags) == 1 && !(flags & 0x10000); /* it does not listen itself */
    }
    fclose(sockets);
    return n;
}

/* ---- deaths ---- */

#define SEATED_NS (400 * TUTTI_NS_PER_MS)    /* after which a rank that was started, or has connected, is known */
#define TOLD_LATEST_NS (10 * TUTTI_NS_PER_S) /* in which a death is told; far from any timeout */

/* Waits until n ranks sit with the leader. */
static inline void await_seated(const char *place, size_t n)
{
    uint64_t deadline = tutti_deadline_ns(20 * TUTTI_NS_PER_S);
    while (place_guests(place) < n && tutti_now_ns() < deadline) tutti_sleep_ns(TUTTI_NS_PER_MS);
    if (place_guests(place) < n) fail_msg("%zu of %zu are there", place_guests(place), n);
    tutti_sleep_ns(SEATED_NS);
}

/* Kills the process of a rank; the sentence that the others shall get, and since when. */
struct death {
    uint64_t at_ns;
    char sentence[128];
};
static inline struct death kill_rank(size_t rank, pid_t pid)
{
    struct death death = {.at_ns = tutti_now_ns()};
    snprintf(death.sentence, sizeof death.sentence,
             "rank %zu (process %d) died while the ranks were meeting: connection closed by peer", rank, (int)pid);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return death;
}

static inline void expect_death(size_t i, const struct death *death)
{
    expect_error(i, TUTTI_ERR_PEER_DEAD, death->sentence);
    assert_true(acts[i].ended_ns >= death->at_ns);
    const uint64_t late_ns = acts[i].ended_ns - death->at_ns;
    if (late_ns > TOLD_LATEST_NS) fail_msg("act %zu: told after %d ms", i, (int)(late_ns / TUTTI_NS_PER_MS));
}

#endif
