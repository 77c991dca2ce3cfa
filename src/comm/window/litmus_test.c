/* SPDX-License-Identifier: BSD-3-Clause */

/* The order that window.h promises, as small races that would show it broken, with random delays in them: a put and
 * its signal, from one thread and from two; a chain through three ranks; fences; flush on both sides. With
 * ThreadSanitizer the same show whether the library's own accesses race. */

#include "ranks.h"
#include "test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define ROUNDS (ranks_can_fork() ? 400 : 60) /* ThreadSanitizer is slow */
#define PART ((size_t)4096)

struct scene {
    struct rank *rank;
    struct tutti_window *window;
    unsigned char *memory;
    bool ordinary;
};

/* Nothing, a few loads, a turn given up, or a sleep. */
static void delay(struct rank *rank)
{
    const uint64_t random = rank_random(rank);
    const struct timespec nap = {0, (long)(random >> 8) % 20000};
    volatile int n = 0;

    if (random % 4 == 0)
        for (uint64_t i = 0; i < (random >> 8) % 300; i++) n++;
    if (random % 64 == 1) sched_yield();
    if (random % 64 == 2) nanosleep(&nap, NULL);
}

/* arg: whether in memory that other processes do not map. */
static void scene_begin(struct scene *s, struct rank *rank, size_t bytes)
{
    void *memory = NULL;
    *s = (struct scene){.rank = rank, .ordinary = *(const bool *)rank->arg};
    if (s->ordinary)
        memory = rank_alloc(rank, bytes);
    else
        RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, bytes, &memory));
    s->memory = memory;
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, memory, bytes, NULL, &s->window));
}

static void scene_end(struct scene *s)
{
    if (s->rank->failure[0]) return;
    RANK_CHECK_OK(s->rank, tutti_barrier(s->rank->comm, NULL, NULL));
    tutti_window_destroy(s->window);
    if (!s->ordinary) RANK_CHECK_OK(s->rank, tutti_mem_free(s->rank->comm, s->memory));
}

static void fill(unsigned char *data, size_t bytes, int round)
{
    for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)(round * 13 + (int)i);
}

static bool is_filled(const unsigned char *data, size_t bytes, int round)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != (unsigned char)(round * 13 + (int)i)) return false;
    return true;
}

static size_t bytes_in(int round)
{
    static const size_t sizes[] = {1, 8, 9, 64, 700, 3000};
    return sizes[round % 6];
}

/* ---- a put and its signal: rank 0 to rank 1, which answers when it has looked ---- */

struct two {
    struct scene *s;
    const unsigned char *data;
    atomic_int put, told; /* rounds */
    int rounds;
};

static void wait_until(atomic_int *word, int value)
{
    while (atomic_load_explicit(word, memory_order_acquire) < value) sched_yield();
}

/* The other thread of rank 0: signals what the first one has put. */
static void *signaller(void *arg)
{
    struct two *two = arg;
    for (int round = 1; round <= two->rounds; round++) {
        const struct tutti_signal_info set = {0, TUTTI_SIGNAL_SET, (uint64_t)round};
        wait_until(&two->put, round);
        if (tutti_signal(&set, 1, two->s->window, NULL, NULL) < 0) break;
        atomic_store_explicit(&two->told, round, memory_order_release);
    }
    return NULL;
}

static void send_rounds(struct scene *s, struct two *two, int way)
{
    struct rank *rank = s->rank;
    unsigned char *data = rank_alloc(rank, PART);
    for (int round = 1; round <= ROUNDS; round++) {
        const struct tutti_signal_info set = {0, TUTTI_SIGNAL_SET, (uint64_t)round}, add = {0, TUTTI_SIGNAL_ADD, 1};
        const size_t bytes = bytes_in(round);
        fill(data, bytes, round);
        delay(rank);
        if (way == 0) {
            RANK_CHECK_OK(rank, tutti_put_signal(data, bytes, 1, 8, &set, s->window, NULL, NULL));
        } else {
            RANK_CHECK_OK(rank, tutti_put(data, bytes, 1, 8, s->window, NULL, NULL));
            delay(rank);
            if (way == 1) RANK_CHECK_OK(rank, tutti_signal(&add, 1, s->window, NULL, NULL));
            if (way == 2) atomic_store_explicit(&two->put, round, memory_order_release);
        }
        memset(data, 0, bytes); /* it may be used again */
        RANK_CHECK_OK(rank, tutti_wait_signal(1, TUTTI_COMPARE_GE, (uint64_t)round, 1, s->window, NULL, NULL));
    }
}

static void receive_rounds(struct scene *s)
{
    struct rank *rank = s->rank;
    for (int round = 1; round <= ROUNDS; round++) {
        const struct tutti_signal_info answer = {1, TUTTI_SIGNAL_SET, (uint64_t)round};
        delay(rank);
        RANK_CHECK_OK(rank, tutti_wait_signal(0, TUTTI_COMPARE_EQ, (uint64_t)round, 0, s->window, NULL, NULL));
        RANK_CHECK(rank, is_filled(s->memory + 8, bytes_in(round), round));
        RANK_CHECK_OK(rank, tutti_signal(&answer, 0, s->window, NULL, NULL));
    }
}

static void put_then_signal(struct rank *rank)
{
    struct scene s;
    for (int way = 0; way < 3 && !rank->failure[0]; way++) {
        struct two two = {.s = &s, .rounds = ROUNDS};
        pthread_t thread;
        scene_begin(&s, rank, PART);
        if (rank->failure[0]) return;
        const bool helped = way == 2 && rank->index == 0;
        if (helped) RANK_CHECK(rank, pthread_create(&thread, NULL, signaller, &two) == 0);
        if (rank->index == 0) send_rounds(&s, &two, way);
        if (rank->index == 1) receive_rounds(&s);
        if (helped) atomic_store(&two.put, ROUNDS); /* also after a failure */
        if (helped) pthread_join(thread, NULL);
        scene_end(&s);
    }
}

/* ---- past the caches: data that are larger than these ---- */
static void large_puts(struct rank *rank)
{
    enum { N = 3 };
    const size_t bytes = ((size_t)9 << 20) + 5;
    struct scene s;
    scene_begin(&s, rank, bytes + 64);
    unsigned char *data = rank_alloc(rank, bytes);
    for (int round = 1; round <= N && !rank->failure[0]; round++) {
        const struct tutti_signal_info add = {0, TUTTI_SIGNAL_ADD, 1};
        if (rank->index == 0) {
            fill(data, bytes, round);
            RANK_CHECK_OK(rank, tutti_put_signal(data, bytes, 1, 3, &add, s.window, NULL, NULL));
            RANK_CHECK_OK(rank, tutti_wait_signal(0, TUTTI_COMPARE_EQ, (uint64_t)round, 1, s.window, NULL, NULL));
        } else {
            RANK_CHECK_OK(rank, tutti_wait_signal(0, TUTTI_COMPARE_EQ, (uint64_t)round, 0, s.window, NULL, NULL));
            RANK_CHECK(rank, is_filled(s.memory + 3, bytes, round));
            RANK_CHECK_OK(rank, tutti_get(data, bytes, 1, 3, s.window, NULL, NULL));
            RANK_CHECK(rank, is_filled(data, bytes, round));
            RANK_CHECK_OK(rank, tutti_signal(&add, 0, s.window, NULL, NULL));
        }
    }
    scene_end(&s);
}

/* ---- a chain: rank 0 puts at rank 2, and when that has taken effect tells rank 1, who tells rank 2 ---- */
static void chain(struct rank *rank)
{
    struct scene s;
    scene_begin(&s, rank, PART);
    unsigned char *data = rank_alloc(rank, PART);
    for (int round = 1; round <= ROUNDS && !rank->failure[0]; round++) {
        const struct tutti_signal_info set = {2, TUTTI_SIGNAL_SET, (uint64_t)round};
        const int32_t before = (rank->index + 2) % 3;
        delay(rank);
        if (rank->index == 0) {
            fill(data, bytes_in(round), round);
            RANK_CHECK_OK(rank, tutti_put(data, bytes_in(round), 2, 0, s.window, NULL, NULL));
            RANK_CHECK_OK(rank, tutti_flush(round % 2 ? 2 : TUTTI_ALL_PEERS, s.window, NULL, NULL));
            RANK_CHECK_OK(rank, tutti_signal(&set, 1, s.window, NULL, NULL));
        }
        RANK_CHECK_OK(rank, tutti_wait_signal(2, TUTTI_COMPARE_EQ, (uint64_t)round, before, s.window, NULL, NULL));
        if (rank->index == 2) RANK_CHECK(rank, is_filled(s.memory, bytes_in(round), round));
        delay(rank);
        if (rank->index > 0) RANK_CHECK_OK(rank, tutti_signal(&set, (rank->index + 1) % 3, s.window, NULL, NULL));
    }
    scene_end(&s);
}

/* ---- a fence: rank 0 writes x, then y; who sees y sees x ---- */
static void fences(struct rank *rank)
{
    enum { X = 0, Y = 128 };
    const uint64_t last = (uint64_t)20 * ROUNDS;
    struct scene s;
    uint64_t x = 0, y = 0;
    scene_begin(&s, rank, PART);
    if (rank->index == 0) {
        for (uint64_t i = 1; i <= last; i++) {
            RANK_CHECK_OK(rank, tutti_put(&i, sizeof i, 1, X, s.window, NULL, NULL));
            RANK_CHECK_OK(rank, tutti_fence(s.window, NULL));
            if (i % 50 == 0) delay(rank);
            RANK_CHECK_OK(rank, tutti_put(&i, sizeof i, 1, Y, s.window, NULL, NULL));
            RANK_CHECK_OK(rank, tutti_fence(s.window, NULL));
        }
        RANK_CHECK_OK(rank, tutti_flush(1, s.window, NULL, NULL));
    } else {
        while (y < last) {
            RANK_CHECK_OK(rank, tutti_fetch_add(0, &y, 1, Y, s.window, NULL, NULL));
            RANK_CHECK_OK(rank, tutti_fetch_add(0, &x, 1, X, s.window, NULL, NULL));
            RANK_CHECK(rank, x >= y);
        }
    }
    scene_end(&s);
}

/* ---- flush on both sides: each writes at the other, waits until that is there, then looks at what it has: at least
 * one of them sees the other's ---- */
static void both_flush(struct rank *rank)
{
    struct scene s;
    scene_begin(&s, rank, PART);
    for (int round = 1; round <= ROUNDS && !rank->failure[0]; round++) {
        const int32_t other = 1 - rank->index;
        const size_t at = (size_t)(round % 32) * 64;
        const uint64_t value = (uint64_t)round;
        uint64_t seen = 0, both[2];
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
        delay(rank);
        RANK_CHECK_OK(rank, tutti_put(&value, sizeof value, other, at, s.window, NULL, NULL));
        RANK_CHECK_OK(rank, tutti_flush(other, s.window, NULL, NULL));
        RANK_CHECK_OK(rank, tutti_get(&seen, sizeof seen, rank->index, at, s.window, NULL, NULL));
        RANK_CHECK_OK(rank, tutti_all_gather(&seen, both, 1, TUTTI_UINT64, rank->comm, NULL, NULL));
        RANK_CHECK(rank, both[0] == value || both[1] == value);
    }
    scene_end(&s);
}

/* ThreadSanitizer does not know that two addresses are one memory, by which messages go from rank to rank of a host: it
 * takes what they put in order for a race. Sockets it knows. */
static bool may_be_seen(void)
{
    return ranks_can_fork() || ranks_on_hosts();
}

static void on_threads_and_processes(uint32_t n, rank_function function)
{
    bool ordinary = false;
    assert_int_equal(ranks_threads(n, function, &ordinary), 0);
    assert_int_equal(ranks_forked(n, function, &ordinary), 0);
    ordinary = true;
    if (may_be_seen()) assert_int_equal(ranks_forked(n, function, &ordinary), 0);
}

static void test_put_then_signal(void **state)
{
    (void)state;
    on_threads_and_processes(2, put_then_signal);
}
static void test_large_puts(void **state)
{
    (void)state;
    on_threads_and_processes(2, large_puts);
}
static void test_chain(void **state)
{
    (void)state;
    on_threads_and_processes(3, chain);
}
static void test_fences(void **state)
{
    (void)state;
    on_threads_and_processes(2, fences);
}
static void test_both_flush(void **state)
{
    (void)state;
    on_threads_and_processes(2, both_flush);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put_then_signal), cmocka_unit_test(test_large_puts), cmocka_unit_test(test_chain),
        cmocka_unit_test(test_fences),          cmocka_unit_test(test_both_flush),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
