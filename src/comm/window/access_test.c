/* SPDX-License-Identifier: BSD-3-Clause */

/* All one-sided calls against a copy of all parts that each rank keeps: 1, 2 and 4 ranks, threads and processes, memory
 * that peers map and ordinary memory, odd sizes and offsets, blocking and by works. */

#include "ranks.h"
#include "test.h"

#include <string.h>

#define BYTES 5003                          /* rank 0's; others have some more */
#define ROUNDS (ranks_can_fork() ? 60 : 10) /* ThreadSanitizer is slow */

struct scene {
    struct rank *rank;
    struct tutti_window *window;
    unsigned char *memory;
    bool async;
};

static size_t bytes_of(int32_t rank)
{
    return BYTES + (size_t)rank * 1000;
}

/* What rank `from` puts at byte i in a round: all ranks can tell. */
static unsigned char byte_of(int32_t from, int round, size_t i)
{
    return (unsigned char)(from * 31 + round * 7 + (int)(i % 251) + 1);
}

/* Waits for what was started, and says how it ended. */
static enum tutti_status finish(enum tutti_status status, struct tutti_work *work)
{
    if (status < 0 || !work) return status;
    status = tutti_work_wait(work, 0);
    tutti_work_free(work);
    return status;
}

#define CALL(s, call_with_work)                                                                                        \
    do {                                                                                                               \
        struct tutti_work *started = NULL, **work = (s)->async ? &started : NULL;                                      \
        enum tutti_status got = (call_with_work);                                                                      \
        RANK_CHECK_OK((s)->rank, finish(got, started));                                                                \
    } while (0)

/* Each rank writes its own stripe of every part, at odd places, reads it back, and looks at what came. */
static void puts_and_gets(struct scene *s)
{
    struct rank *rank = s->rank;
    const int32_t n = rank->n, me = rank->index;
    const size_t stripe = BYTES / (size_t)n;
    unsigned char *data = rank_alloc(rank, BYTES + 9000), *back = rank_alloc(rank, BYTES + 9000);

    for (int round = 0; round < ROUNDS; round++) {
        for (int32_t to = 0; to < n; to++) {
            const size_t shift = rank_random(rank) % 9;
            const size_t at = (size_t)me * stripe;
            const size_t bytes = round % 4 == 0 ? 8 : stripe;
            for (size_t i = 0; i < bytes; i++) data[shift + i] = byte_of(me, round, i);
            CALL(s, tutti_put(data + shift, bytes, to, at, s->window, NULL, work));
            CALL(s, tutti_flush(to, s->window, NULL, work));
            CALL(s, tutti_get(back + shift, bytes, to, at, s->window, NULL, work));
            RANK_CHECK(rank, memcmp(data + shift, back + shift, bytes) == 0);
            CALL(s, tutti_put(NULL, 0, to, bytes_of(to), s->window, NULL, work)); /* nothing, at the very end */
        }
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
        for (int32_t from = 0; from < n; from++)
            for (size_t i = 0; i < (round % 4 == 0 ? 8 : stripe); i++)
                RANK_CHECK(rank, s->memory[(size_t)from * stripe + i] == byte_of(from, round, i));
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    }
    /* The last byte of every part is its right neighbour's. */
    const int32_t left = (me + n - 1) % n;
    data[0] = (unsigned char)(200 + me);
    CALL(s, tutti_put(data, 1, left, bytes_of(left) - 1, s->window, NULL, work));
    CALL(s, tutti_flush(TUTTI_ALL_PEERS, s->window, NULL, work));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    RANK_CHECK(rank, s->memory[bytes_of(me) - 1] == 200 + (me + 1) % n);
}

/* A ring: rank r waits for what its left neighbour puts, and passes it on. */
static void signals(struct scene *s)
{
    struct rank *rank = s->rank;
    const int32_t n = rank->n, me = rank->index, right = (me + 1) % n, left = (me + n - 1) % n;
    unsigned char *data = rank_alloc(rank, 4096);

    for (int round = 1; round <= ROUNDS; round++) {
        const size_t bytes = rank_random(rank) % 700;
        const struct tutti_signal_info set = {5, TUTTI_SIGNAL_SET, (uint64_t)round};
        const struct tutti_signal_info add = {6, TUTTI_SIGNAL_ADD, (uint64_t)me + 1};
        for (size_t i = 0; i < bytes; i++) data[i] = byte_of(me, round, i);
        if (round % 2) {
            CALL(s, tutti_put_signal(data, bytes, right, 1, &set, s->window, NULL, work));
        } else {
            CALL(s, tutti_put(data, bytes, right, 1, s->window, NULL, work));
            CALL(s, tutti_signal(&set, right, s->window, NULL, work));
        }
        CALL(s, tutti_wait_signal(5, TUTTI_COMPARE_EQ, (uint64_t)round, left, s->window, NULL, work));
        for (int32_t to = 0; to < n; to++) CALL(s, tutti_signal(&add, to, s->window, NULL, work));
        CALL(s, tutti_wait_signal(6, TUTTI_COMPARE_GE, (uint64_t)(round * n * (n + 1) / 2), TUTTI_ANY_SOURCE, s->window,
                                  NULL, work));
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
        uint64_t sum = 0;
        RANK_CHECK_OK(rank, tutti_signal_read(6, &sum, s->window, NULL));
        RANK_CHECK(rank, sum == (uint64_t)(round * n * (n + 1) / 2));
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    }
    RANK_CHECK_OK(rank, tutti_signal_write(6, 77, s->window, NULL));
    CALL(s, tutti_wait_signal(6, TUTTI_COMPARE_LT, 78, me, s->window, NULL, work));
    CALL(s, tutti_wait_signal(6, TUTTI_COMPARE_LE, 77, me, s->window, NULL, work));
    CALL(s, tutti_wait_signal(6, TUTTI_COMPARE_GT, 76, me, s->window, NULL, work));
    CALL(s, tutti_wait_signal(6, TUTTI_COMPARE_NE, 76, me, s->window, NULL, work));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
}

/* All count in one word of rank 0, and add to a plain word of it under a lock. */
static void atomics(struct scene *s)
{
    struct rank *rank = s->rank;
    const int32_t n = rank->n;
    const size_t word = 64, lock = 128, plain = 192; /* the part of rank 0 begins on a page */
    uint64_t before = 0, last = 0, value = 0;

    if (rank->index == 0) memset(s->memory, 0, 1024);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    for (int i = 0; i < ROUNDS; i++) {
        CALL(s, tutti_fetch_add(3, &before, 0, word, s->window, NULL, work));
        RANK_CHECK(rank, before % 3 == 0 && (i == 0 || before > last) && before < (uint64_t)(3 * n * ROUNDS));
        last = before;
        do {
            CALL(s, tutti_compare_swap(0, (uint64_t)rank->index + 1, &before, 0, lock, s->window, NULL, work));
        } while (before != 0);
        CALL(s, tutti_get(&value, sizeof value, 0, plain, s->window, NULL, work));
        value++;
        CALL(s, tutti_put(&value, sizeof value, 0, plain, s->window, NULL, work));
        CALL(s, tutti_compare_swap((uint64_t)rank->index + 1, 0, &before, 0, lock, s->window, NULL, work));
        RANK_CHECK(rank, before == (uint64_t)rank->index + 1);
        RANK_CHECK_OK(rank, tutti_fence(s->window, NULL));
    }
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    CALL(s, tutti_fetch_add(0, &before, 0, word, s->window, NULL, work));
    RANK_CHECK(rank, before == (uint64_t)(3 * n * ROUNDS));
    CALL(s, tutti_fetch_add(0, &before, 0, plain, s->window, NULL, work));
    RANK_CHECK(rank, before == (uint64_t)(n * ROUNDS));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
}

static void all_calls_on(struct rank *rank, unsigned char *memory)
{
    struct scene s = {.rank = rank, .memory = memory};
    struct tutti_window_config config = TUTTI_WINDOW_CONFIG_INIT;
    config.n_signals = 7;
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, memory, bytes_of(rank->index), &config, &s.window));
    RANK_CHECK(rank, tutti_window_n_signals(s.window) == 7);
    for (int way = 0; way < 2; way++) {
        s.async = way == 1;
        RANK_CHECK_OK(rank, tutti_signal_write(5, 0, s.window, NULL));
        RANK_CHECK_OK(rank, tutti_signal_write(6, 0, s.window, NULL));
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
        puts_and_gets(&s);
        if (!rank->failure[0]) signals(&s);
        if (!rank->failure[0]) atomics(&s);
        if (rank->failure[0]) return;
    }
    tutti_window_destroy(s.window);
}

static void mapped_memory(struct rank *rank)
{
    void *memory = NULL;
    RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, bytes_of(rank->index) + 8, &memory));
    all_calls_on(rank, (unsigned char *)memory + rank->index % 2);
}

/* Between processes it is reached by messages. */
static void ordinary_memory(struct rank *rank)
{
    unsigned char *memory = NULL;
    RANK_CHECK(rank, posix_memalign((void **)&memory, 64, bytes_of(rank->index) + 64) == 0);
    if (memory) all_calls_on(rank, memory + rank->index % 2);
    if (!rank->failure[0]) free(memory);
}

/* Some ranks have the one, some the other. */
static void any_memory(struct rank *rank)
{
    (rank->index % 2 ? ordinary_memory : mapped_memory)(rank);
}

static void all_calls(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4; n += n) {
        assert_int_equal(ranks_threads(n, mapped_memory, NULL), 0);
        assert_int_equal(ranks_forked(n, mapped_memory, NULL), 0);
    }
}

static void unmapped_calls(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 4; n += n) {
        assert_int_equal(ranks_threads(n, ordinary_memory, NULL), 0);
        /* ThreadSanitizer does not know that two addresses are one memory, by which messages go from rank to rank of a
         * host: it takes what they put in order for a race. Sockets it knows. */
        if (!ranks_can_fork() && !ranks_on_hosts()) continue;
        assert_int_equal(ranks_forked(n, ordinary_memory, NULL), 0);
        assert_int_equal(ranks_forked(n, any_memory, NULL), 0);
    }
}

/* ---- wrong arguments ---- */

static void wrong_calls(struct rank *rank)
{
    struct tutti_comm *comm = rank->comm;
    struct tutti_window *window = NULL;
    void *memory = NULL;
    uint64_t word = 0;
    char bytes[16] = "";
    const struct tutti_signal_info good = {0, TUTTI_SIGNAL_SET, 1}, beyond = {64, TUTTI_SIGNAL_SET, 1},
                                   neither = {0, (enum tutti_signal_op)2, 1};
    struct tutti_call_options options = {.size = 1};
    RANK_CHECK_OK(rank, tutti_mem_alloc(comm, 4096, &memory));
    RANK_CHECK_OK(rank, tutti_window_create(comm, memory, 100, NULL, &window));
    RANK_CHECK(rank, tutti_window_n_signals(window) == 64 && tutti_window_n_signals(NULL) == 0);
#define REFUSED(part, call) RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, part, call)
    REFUSED("put: window is NULL", tutti_put(bytes, 1, 0, 0, NULL, NULL, NULL));
    REFUSED("put on rank", tutti_put(bytes, 1, 2, 0, window, NULL, NULL));
    REFUSED("peer is 2 but the ranks are 0 to 1", tutti_put(bytes, 1, 2, 0, window, NULL, NULL));
    REFUSED("peer is -1", tutti_get(bytes, 1, -1, 0, window, NULL, NULL));
    REFUSED("flush on rank", tutti_flush(-2, window, NULL, NULL));
    REFUSED("from is 9", tutti_wait_signal(0, TUTTI_COMPARE_EQ, 0, 9, window, NULL, NULL));
    REFUSED("offset 90 and 11 bytes reach past the part of rank 1, which has 100 bytes",
            tutti_put(bytes, 11, 1, 90, window, NULL, NULL));
    REFUSED("offset 18446744073709551615 and 2 bytes", tutti_get(bytes, 2, 1, SIZE_MAX, window, NULL, NULL));
    REFUSED("source is NULL but bytes is 3", tutti_put(NULL, 3, 1, 0, window, NULL, NULL));
    REFUSED("dest is NULL but bytes is 3", tutti_get(NULL, 3, 1, 0, window, NULL, NULL));
    REFUSED("signal is NULL", tutti_signal(NULL, 1, window, NULL, NULL));
    REFUSED("put_signal on rank", tutti_put_signal(bytes, 1, 1, 0, &beyond, window, NULL, NULL));
    REFUSED("signal 64 is none: the window has signals 0 to 63", tutti_signal(&beyond, 1, window, NULL, NULL));
    REFUSED("op 2 of the signal", tutti_signal(&neither, 1, window, NULL, NULL));
    REFUSED("signal 70 is none", tutti_signal_read(70, &word, window, NULL));
    REFUSED("value is NULL", tutti_signal_read(7, NULL, window, NULL));
    REFUSED("signal 70 is none", tutti_signal_write(70, 1, window, NULL));
    REFUSED("compare 6 is no comparison", tutti_wait_signal(0, (enum tutti_compare)6, 0, 1, window, NULL, NULL));
    REFUSED("offset 12 in the part of rank 1 is not aligned", tutti_fetch_add(1, &word, 1, 12, window, NULL, NULL));
    REFUSED("offset 96 and 8 bytes", tutti_compare_swap(1, 2, &word, 1, 96, window, NULL, NULL));
    REFUSED("before is NULL", tutti_fetch_add(1, NULL, 1, 8, window, NULL, NULL));
    REFUSED("options.size is 1", tutti_fence(window, &options));
    RANK_CHECK_OK(rank, tutti_group_start());
    REFUSED("put can not be called between group_start", tutti_put(bytes, 1, 1, 0, window, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_group_end(NULL));
    RANK_CHECK_OK(rank, tutti_barrier(comm, NULL, NULL));
    /* Nothing was done. */
    RANK_CHECK_OK(rank, tutti_signal_read(0, &word, window, NULL));
    RANK_CHECK(rank, word == 0);
    for (int i = 0; i < 100; i++) RANK_CHECK(rank, ((char *)memory)[i] == 0);
    RANK_CHECK_OK(rank, tutti_barrier(comm, NULL, NULL));
    /* Rank 1 has destroyed its window: rank 0 is told so. */
    if (rank->index == 1) tutti_window_destroy(window);
    RANK_CHECK_OK(rank, tutti_barrier(comm, NULL, NULL));
    if (rank->index == 0) {
        const bool far = !tutti_window_peer(window, 1, NULL); /* then it is known when an answer comes */
        if (far) RANK_CHECK_OK(rank, tutti_put(bytes, 1, 1, 0, window, NULL, NULL));
        if (far) REFUSED("has destroyed the window", tutti_flush(1, window, NULL, NULL));
        REFUSED("has destroyed the window", tutti_put(bytes, 1, 1, 0, window, NULL, NULL));
        REFUSED("has destroyed the window", tutti_signal(&good, 1, window, NULL, NULL));
        RANK_CHECK_OK(rank, tutti_put(bytes, 1, 0, 0, window, NULL, NULL));
        tutti_window_destroy(window);
    }
    /* A window that outlives its communicator. */
    struct tutti_comm *dup = NULL;
    RANK_CHECK_OK(rank, tutti_comm_dup(comm, &dup));
    RANK_CHECK_OK(rank, tutti_window_create(dup, memory, 100, NULL, &window));
    tutti_comm_destroy(dup);
    REFUSED("its communicator was destroyed", tutti_put(bytes, 1, 0, 0, window, NULL, NULL));
    tutti_window_destroy(window);
#undef REFUSED
}

static void wrong_arguments(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(2, wrong_calls, NULL), 0);
    assert_int_equal(ranks_forked(2, wrong_calls, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_calls), cmocka_unit_test(unmapped_calls),
                                       cmocka_unit_test(wrong_arguments)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
