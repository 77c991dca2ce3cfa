/* SPDX-License-Identifier: BSD-3-Clause */
/* Counts beyond 32 bits: an all_reduce, in place, of 5 GiB of int8 on two ranks, every value checked. */

#include "test.h"

#include "ranks.h"

#include <sys/mman.h>

#define BYTES ((size_t)5 << 30)

/* Differs between ranks, and between places that are 2^32 bytes apart. */
static int8_t value(size_t i, int32_t rank)
{
    uint64_t x = (i + (uint64_t)rank * 7919) * UINT64_C(0x9e3779b97f4a7c15);
    return (int8_t)(x >> 56);
}

static void all_reduce(struct rank *rank)
{
    int8_t *data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    RANK_CHECK(rank, data != MAP_FAILED);
    for (size_t i = 0; i < BYTES; i++) data[i] = value(i, rank->index);
    RANK_CHECK_OK(rank, tutti_all_reduce(data, data, BYTES, TUTTI_INT8, TUTTI_SUM, rank->comm, NULL, NULL));
    size_t wrong = 0;
    for (size_t i = 0; i < BYTES; i++) wrong += data[i] != (int8_t)(value(i, 0) + value(i, 1));
    munmap(data, BYTES);
    RANK_CHECK(rank, wrong == 0);
}

static void five_gibibytes(void **state)
{
    (void)state;
    struct ranks_config config = {.n = 2, .forked = true, .deadline_s = 550, .timeout_ns = UINT64_C(500000000000)};
    assert_int_equal(ranks_run(&config, all_reduce), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(five_gibibytes)};
    return cmocka_run_group_tests_name("scale.huge", tests, NULL, NULL);
}
