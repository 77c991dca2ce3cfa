/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows over a card that writes and reads by itself, and late (tests/standin/fabric): what is put is there when its
 * signal is, or after the flush; fences hold; a window that ends takes its keys back, and its memory may change then.
 */

#include "ranks.h"
#include "test.h"

#include "fabric/counts_test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PART ((size_t)9 << 20)
#define ROUNDS 12

static unsigned char byte_of(int32_t from, int round, size_t i)
{
    return (unsigned char)(from * 37 + round * 11 + (int)(i % 253) + 1);
}

static void fill(unsigned char *at, size_t bytes, int32_t from, int round)
{
    for (size_t i = 0; i < bytes; i++) at[i] = byte_of(from, round, i);
}

static bool is_filled(const unsigned char *at, size_t bytes, int32_t from, int round)
{
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != byte_of(from, round, i)) return false;
    return true;
}

static unsigned char *map_part(struct rank *rank, void *at)
{
    void *made = mmap(at, PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
    if (made != MAP_FAILED) return made;
    rank_fail(rank, __FILE__, __LINE__, "no memory");
    return NULL;
}

/* Puts to the next rank, which looks as soon as the signal is there, and says so by a signal of its own. */
static void put_and_signal(struct rank *rank, struct tutti_window *window, unsigned char *part)
{
    const int32_t n = rank->n, next = (rank->index + 1) % n, last = (rank->index + n - 1) % n;
    unsigned char *source = rank_alloc(rank, PART);
    for (int round = 1; round <= ROUNDS; round++) {
        const size_t bytes = round % 3 == 0 ? PART - 7 : 20000 + (size_t)round * 31337;
        const struct tutti_signal_info full = {0, TUTTI_SIGNAL_SET, (uint64_t)round};
        const struct tutti_signal_info seen = {1, TUTTI_SIGNAL_ADD, 1};
        fill(source, bytes, rank->index, round);
        RANK_CHECK_OK(rank, tutti_put_signal(source, bytes, next, 7, &full, window, NULL, NULL));
        memset(source, 0, bytes);
        RANK_CHECK_OK(rank, tutti_wait_signal(0, TUTTI_COMPARE_GE, (uint64_t)round, last, window, NULL, NULL));
        RANK_CHECK(rank, is_filled(part + 7, bytes, last, round));
        RANK_CHECK_OK(rank, tutti_signal(&seen, last, window, NULL, NULL));
        RANK_CHECK_OK(rank, tutti_wait_signal(1, TUTTI_COMPARE_GE, (uint64_t)round, next, window, NULL, NULL));
    }
}

/* Many at once, then a flush, a fence, an atomic. */
static void put_and_flush(struct rank *rank, struct tutti_window *window, unsigned char *part)
{
    enum { N = 40, BYTES = 70001 };
    const int32_t n = rank->n, next = (rank->index + 1) % n, last = (rank->index + n - 1) % n;
    unsigned char *source = rank_alloc(rank, N * BYTES), *back = rank_alloc(rank, N * BYTES);
    struct tutti_work *works[N];
    uint64_t before;
    memset(part, 0, PART);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    fill(source, N * BYTES, rank->index, 77);
    for (size_t i = 0; i < N; i++)
        RANK_CHECK_OK(rank, tutti_put(source + i * BYTES, BYTES, next, 64 + i * BYTES, window, NULL, &works[i]));
    RANK_CHECK_OK(rank, tutti_fence(window, NULL));
    RANK_CHECK_OK(rank, tutti_get(back, N * BYTES, next, 64, window, NULL, NULL));
    RANK_CHECK(rank, memcmp(back, source, N * BYTES) == 0);
    for (size_t i = 0; i < N; i++) {
        RANK_CHECK_OK(rank, tutti_work_wait(works[i], 0));
        tutti_work_free(works[i]);
    }
    fill(source, N * BYTES, rank->index, 78);
    RANK_CHECK_OK(rank, tutti_put(source, N * BYTES, next, 64, window, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_fetch_add(5, &before, next, 0, window, NULL, NULL)); /* after the put */
    RANK_CHECK(rank, before == 0);
    RANK_CHECK_OK(rank, tutti_flush(next, window, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    RANK_CHECK(rank, is_filled(part + 64, N * BYTES, last, 78));
    RANK_CHECK_OK(rank, tutti_get(back, 9, next, 70, window, NULL, NULL));
    RANK_CHECK(rank, memcmp(back, source + 6, 9) == 0);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
}

static void calls(struct rank *rank)
{
    const struct tutti_window_config config = {.size = sizeof(config), .n_signals = 2};
    const int32_t next = (rank->index + 1) % rank->n;
    unsigned char *part = map_part(rank, NULL), byte[20000] = {0};
    struct tutti_window *window;
    for (int use = 0; use < 2 && part; use++) {
        RANK_CHECK_OK(rank, tutti_window_create(rank->comm, part, PART, &config, &window));
        put_and_signal(rank, window, part);
        if (rank->failure[0]) return;
        put_and_flush(rank, window, part);
        if (rank->failure[0]) return;
        if (rank->index == 1) tutti_window_destroy(window);
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
        if (next == 1)
            RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "destroyed",
                             tutti_put(byte, sizeof(byte), 1, 0, window, NULL, NULL));
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
        if (rank->index != 1) tutti_window_destroy(window);
        part = map_part(rank, part); /* other pages, where the last window was */
    }
    munmap(part, PART);
}

static void bytes_go_by_themselves(void **state)
{
    const uint32_t a_host = (uint32_t)atoi(getenv("RANKS_A_HOST"));
    (void)state;
    for (uint32_t n = 2 * a_host; n <= 4; n += 2) {
        const struct fabric_standin_counts before = counts_now();
        assert_int_equal(ranks_threads(n, calls, NULL), 0);
        const struct fabric_standin_counts after = counts_now();
        assert_true(after.bytes_written - before.bytes_written > n / a_host * 2 * (ROUNDS / 3) * (PART - 7));
        assert_true(after.bytes_read - before.bytes_read > n / a_host * 2 * 40 * 70001);
        assert_int_equal(after.refused, before.refused);
        assert_int_equal(after.open, before.open); /* no registration is left */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bytes_go_by_themselves)};
    return cmocka_run_group_tests_name("fabric.window", tests, NULL, NULL);
}
