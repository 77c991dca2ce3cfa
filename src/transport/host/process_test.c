/* SPDX-License-Identifier: BSD-3-Clause */
/* shm between processes: packets both ways, sleeping, and memory that is mapped, read and given back.
 * A child reports by its exit status: asserts belong to the parent. */

#include "transport/world_test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const struct backend backends[] = {
    {"shm", "shm", "", true, 0, NULL},
    {"trace,fault,delay over shm", "shm", "trace,fault,delay", true, 0, NULL},
};

/* Forks a member of the world, which opens itself and runs body; 0 from it is success. */
static pid_t member_fork(struct world *world, uint32_t me, int (*body)(struct tutti_transport *t, void *arg), void *arg)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    test_member_open(world, me);
    int rc = body(world->members[me], arg);
    test_member_close(world, me);
    _exit(rc);
}

static void member_join(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("a child ended with status %x", (unsigned)status);
}

/* ---- packets ---- */

enum { N = 4, ROUNDS = 1500 };

static uint32_t size_of_packet(uint64_t seq, uint32_t max)
{
    const uint64_t r = tutti_mix64(seq * 77 + test_seed());
    return (uint32_t)(r % 3 == 0 ? (r >> 8) % (max + 1) : (r >> 8) % 300);
}

/* Everybody sends ROUNDS packets to everybody, itself too, and sleeps when it can do nothing else. */
static int all_to_all(struct tutti_transport *t, void *arg)
{
    (void)arg;
    uint64_t n_sent[N] = {0}, n_received[N] = {0};
    uint32_t n_done = 0;
    while (n_done < 2 * N) {
        bool moved = false;
        for (uint32_t peer = 0; peer < N; peer++) {
            if (n_sent[peer] == ROUNDS) continue;
            const uint64_t seq = n_sent[peer] * N + peer;
            enum tutti_status status = test_send(t, peer, size_of_packet(seq, (uint32_t)t->max_payload), seq);
            if (status < 0) return 1;
            if (status == TUTTI_AGAIN) continue;
            moved = true;
            n_done += ++n_sent[peer] == ROUNDS;
        }
        struct tutti_event arrival;
        enum tutti_status status = t->ops->poll(t, &arrival);
        if (status < 0) return 2;
        if (status == TUTTI_OK) {
            const uint32_t source = arrival.packet.source;
            const uint64_t seq = n_received[source] * N + t->me;
            if (!test_arrival_is(&arrival, source, size_of_packet(seq, (uint32_t)t->max_payload), seq)) return 3;
            t->ops->release(t);
            n_done += ++n_received[source] == ROUNDS;
        } else if (!moved && n_done < 2 * N && !test_sleep(t, tutti_deadline_ns(TEST_DEADLINE_NS))) {
            return 4; /* a wake-up was lost, or room that nobody told of */
        }
    }
    return 0;
}

static void all_send_to_all(void **state)
{
    struct world world = test_world_make(*state, N, 0, true);
    pid_t children[N];
    for (uint32_t i = 1; i < N; i++) children[i] = member_fork(&world, i, all_to_all, NULL);
    test_member_open(&world, 0);
    assert_int_equal(all_to_all(world.members[0], NULL), 0);
    for (uint32_t i = 1; i < N; i++) member_join(children[i]);
    for (uint32_t i = 1; i < N; i++) assert_int_equal(test_send(world.members[0], i, 8, 0), TUTTI_ERR_PEER_LEFT);
    test_world_free(&world);
}

enum { PINGS = 100000 };

static int echo(struct tutti_transport *t, void *arg)
{
    (void)arg;
    for (uint64_t seq = 0; seq < PINGS; seq++) {
        struct tutti_event arrival;
        while (t->ops->poll(t, &arrival) == TUTTI_AGAIN)
            if (!test_sleep(t, tutti_deadline_ns(TEST_DEADLINE_NS))) return 1;
        if (arrival.packet.seq != seq) return 2;
        t->ops->release(t);
        if (test_send(t, 0, 8, seq) != TUTTI_OK) return 3;
    }
    return 0;
}

static void sleepers_are_woken_across_processes(void **state)
{
    struct world world = test_world_make(*state, 2, 0, true);
    pid_t child = member_fork(&world, 1, echo, NULL);
    test_member_open(&world, 0);
    struct tutti_transport *t = world.members[0];
    for (uint64_t seq = 0; seq < PINGS; seq++) {
        struct tutti_event arrival;
        assert_int_equal(test_send(t, 1, 8, seq), TUTTI_OK);
        while (t->ops->poll(t, &arrival) == TUTTI_AGAIN)
            assert_true(test_sleep(t, tutti_deadline_ns(TEST_DEADLINE_NS)));
        assert_int_equal(arrival.packet.seq, seq);
        t->ops->release(t);
    }
    member_join(child);
    test_world_free(&world);
}

/* ---- memory ---- */

enum { HEAP_BYTES = 32 << 20 };

/* Fills an allocation, offers it, waits for the answer, frees it. */
static int offer_memory(struct tutti_transport *t, void *arg)
{
    (void)arg;
    struct tutti_event arrival;
    for (uint64_t round = 0; round < 3; round++) {
        void *p;
        uint64_t offset;
        if (t->memory->ops->alloc(t->memory, HEAP_BYTES, &p) != TUTTI_OK) return 1;
        for (size_t i = 0; i < HEAP_BYTES; i += 4096)
            if (((unsigned char *)p)[i] != 0) return 2; /* zeros, the second time, too */
        test_payload(p, HEAP_BYTES, round);
        if (!t->memory->ops->locate(t->memory, p, HEAP_BYTES, &offset) ||
            t->memory->ops->locate(t->memory, p, HEAP_BYTES + 1, &offset))
            return 3;
        if (test_send_bytes(t, 0, sizeof(offset), round, &offset) != TUTTI_OK) return 4;
        if (test_wait(t, &arrival) != TUTTI_OK) return 5;
        t->ops->release(t);
        if (t->memory->ops->free(t->memory, p) != TUTTI_OK) return 6;
        if (t->memory->ops->locate(t->memory, p, 1, &offset)) return 7;
        if (test_send(t, 0, 0, round) != TUTTI_OK || test_wait(t, &arrival) != TUTTI_OK) return 8;
        t->ops->release(t);
    }
    return 0;
}

static uint64_t heap_blocks(const struct world *world)
{
    int control, heap;
    tutti_segment_fds(world->segment, &control, &heap);
    struct stat st;
    assert_int_equal(fstat(heap, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

static void memory_is_shared_and_given_back(void **state)
{
    struct world world = test_world_make(*state, 2, 0, true);
    pid_t child = member_fork(&world, 1, offer_memory, NULL);
    test_member_open(&world, 0);
    struct tutti_transport *t = world.members[0];
    unsigned char *expected = malloc(HEAP_BYTES);
    for (uint64_t round = 0; round < 3; round++) {
        struct tutti_event arrival;
        uint64_t offset;
        assert_int_equal(test_wait(t, &arrival), TUTTI_OK);
        assert_int_equal(arrival.packet.bytes, sizeof(offset));
        memcpy(&offset, arrival.payload, sizeof(offset));
        t->ops->release(t);
        const void *there = t->memory->ops->map(t->memory, 1, offset, HEAP_BYTES);
        assert_non_null(there);
        test_payload(expected, HEAP_BYTES, round);
        assert_memory_equal(there, expected, HEAP_BYTES);
        assert_true(heap_blocks(&world) >= HEAP_BYTES);
        assert_int_equal(test_send(t, 1, 0, round), TUTTI_OK);
        assert_int_equal(test_wait(t, &arrival), TUTTI_OK);
        t->ops->release(t);
        assert_true(heap_blocks(&world) < 1 << 20); /* back to the system, though it is still mapped here */
        assert_int_equal(test_send(t, 1, 0, round), TUTTI_OK);
    }
    free(expected);
    member_join(child);
    test_world_free(&world);
}

#define ON_ALL(test)                                                                                                   \
    {#test " (shm)", test, NULL, NULL, (void *)&backends[0]},                                                          \
    {                                                                                                                  \
#test " (decorated)", test, NULL, NULL, (void *)&backends[1]                                                   \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_ALL(all_send_to_all),
        ON_ALL(memory_is_shared_and_given_back),
        {"sleepers_are_woken_across_processes", sleepers_are_woken_across_processes, NULL, NULL, (void *)&backends[0]},
    };
    tutti_log_threshold = TUTTI_LOG_ERROR; /* the trace decorator speaks up at each failure */
    return cmocka_run_group_tests_name("transport.process", tests, NULL, NULL);
}
