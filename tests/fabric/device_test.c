/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows of device memory over a card that reaches it (FI_HMEM; tests/standin/fabric): puts and gets between two
 * devices go from one to the other, with no copy in memory of the host, once the first one has found the way. */

#include "cuda/support/gpu_ranks.h"
#include "cuda/support/mixed.h"
#include "test.h"

#include "fabric/counts_test.h"

#include <stdlib.h>
#include <string.h>

#define PART ((size_t)3 << 20)
#define ROUNDS 6

static void fill(unsigned char *at, size_t bytes, int32_t from, int round)
{
    for (size_t i = 0; i < bytes; i++) at[i] = (unsigned char)(from * 37 + round * 11 + (int)(i % 253));
}

/* Each rank puts what is on its device to the other's, and reads it back from there. */
static void puts_and_gets(struct rank *rank, struct mixed *m, struct tutti_window *window, unsigned char *part)
{
    const int32_t other = 1 - rank->index;
    unsigned char *want = rank_alloc(rank, PART), *got = rank_alloc(rank, PART);
    for (int round = 1; round <= ROUNDS; round++) {
        const struct tutti_signal_info full = {0, TUTTI_SIGNAL_SET, (uint64_t)round};
        fill(want, PART, rank->index, round);
        unsigned char *source = mixed_put(m, want, PART), *back = mixed_put(m, NULL, PART);
        if (!source || !back) return;
        RANK_CHECK_OK(rank, tutti_put_signal(source, PART - 5, other, 5, &full, window, &m->on[0], NULL));
        RANK_CHECK_OK(rank, tutti_wait_signal(0, TUTTI_COMPARE_GE, (uint64_t)round, other, window, &m->on[0], NULL));
        RANK_CHECK_OK(rank, tutti_flush(other, window, &m->on[0], NULL));
        RANK_CHECK_OK(rank, tutti_get(back, PART - 5, other, 5, window, &m->on[0], NULL));
        RANK_CHECK(rank, mixed_get(m, got, back, PART - 5) && memcmp(got, want, PART - 5) == 0);
        fill(want, PART, other, round);
        RANK_CHECK(rank, mixed_get(m, got, part + 5, PART - 5) && memcmp(got, want, PART - 5) == 0);
        RANK_CHECK_OK(rank, tutti_barrier(m->beside, NULL, NULL)); /* before the next put */
        mixed_free(m, source), mixed_free(m, back);
    }
}

static void window_on_devices(struct rank *rank)
{
    struct tutti_window *window;
    struct mixed m;
    void *part;
    if (!mixed_open(rank, &m)) return;
    RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, PART, &part));
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, part, PART, NULL, &window));
    puts_and_gets(rank, &m, window, part);
    if (rank->failure[0]) return;
    tutti_window_destroy(window);
    RANK_CHECK_OK(rank, tutti_mem_free(rank->comm, part));
    mixed_close(&m);
}

static void bytes_go_from_device_to_device(void **state)
{
    static const struct mixed_world world = {.n = 2, .devices = 0x3, .host = true};
    struct tutti_device *gpu;
    const rank_function functions[] = {window_on_devices};
    (void)state;
    assert_int_equal(tutti_cuda_open(0, &gpu), TUTTI_OK); /* the process uses devices when the world is made */
    assert_int_equal(mixed_run(&world, functions, 1), 0);
    const struct fabric_standin_counts counts = counts_now();
    /* both ends of each: ROUNDS puts and gets of two ranks; the first put may be ahead of the key */
    assert_true(counts.device_bytes >= 2 * 2 * 2 * (ROUNDS - 1) * (PART - 5));
    assert_int_equal(counts.refused, 0);
    assert_int_equal(counts.open, 0);
    tutti_cuda_close(gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bytes_go_from_device_to_device)};
    gpu_ranks_need_device();
    return cmocka_run_group_tests_name("fabric.device", tests, NULL, NULL);
}
