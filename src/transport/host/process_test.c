/* SPDX-License-Identifier: BSD-3-Clause */
/* shm between processes: memory that is mapped, read and given back.
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
        ON_ALL(memory_is_shared_and_given_back),
    };
    tutti_log_threshold = TUTTI_LOG_ERROR; /* the trace decorator speaks up at each failure */
    return cmocka_run_group_tests_name("transport.process", tests, NULL, NULL);
}
