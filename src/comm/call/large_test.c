/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that are too large for the caches, on processes: results, odd sizes and unaligned memory included, byte by byte
 * against what each rank is known to have sent, and nothing written beside. */
#include "ranks.h"
#include "test.h"

#include <stdlib.h>
#include <tutti/tutti.h>

#define BLOCK ((size_t)3 << 20 | 77) /* for 4 ranks: 12 MiB */
#define ALL (4 * BLOCK)
#define AT 3 /* unaligned */
#define GUARD 0xc3

static unsigned char value(int32_t rank, size_t i)
{
    return (unsigned char)((uint32_t)rank * 97 + i * 31 + (i >> 8));
}

static unsigned char *fresh(size_t n)
{
    unsigned char *memory = malloc(AT + n + 1);
    for (size_t i = 0; memory && i < AT + n + 1; i++) memory[i] = GUARD;
    return memory;
}

/* Elements [0, n) are what `from` sent from `first` on. */
static bool holds(const unsigned char *x, int32_t from, size_t first, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (x[i] != value(from, first + i)) return false;
    return true;
}

static bool guarded(const unsigned char *memory, size_t n)
{
    return memory[AT - 1] == GUARD && memory[AT + n] == GUARD;
}

struct large {
    unsigned char *in, *out; /* ALL bytes each; in holds what this rank sends */
};

static void broadcast(struct rank *rank, const struct large *l)
{
    unsigned char *x = rank->index == 2 ? l->in : l->out;
    RANK_CHECK_OK(rank, tutti_broadcast(x, ALL, TUTTI_UINT8, 2, rank->comm, NULL, NULL));
    RANK_CHECK(rank, holds(x, 2, 0, ALL));
}

static void all_gather(struct rank *rank, const struct large *l)
{
    RANK_CHECK_OK(rank, tutti_all_gather(l->in, l->out, BLOCK, TUTTI_UINT8, rank->comm, NULL, NULL));
    for (int32_t r = 0; r < rank->n; r++) RANK_CHECK(rank, holds(l->out + (size_t)r * BLOCK, r, 0, BLOCK));
}

static void all_to_all(struct rank *rank, const struct large *l)
{
    RANK_CHECK_OK(rank, tutti_all_to_all(l->in, l->out, BLOCK, TUTTI_UINT8, rank->comm, NULL, NULL));
    for (int32_t r = 0; r < rank->n; r++)
        RANK_CHECK(rank, holds(l->out + (size_t)r * BLOCK, r, (size_t)rank->index * BLOCK, BLOCK));
}

static void send_recv(struct rank *rank, const struct large *l)
{
    int32_t next = (rank->index + 1) % rank->n, before = (rank->index + rank->n - 1) % rank->n;
    RANK_CHECK_OK(
        rank, tutti_sendrecv(l->in, ALL, next, 5, l->out, ALL, before, 5, TUTTI_UINT8, rank->comm, NULL, NULL, NULL));
    RANK_CHECK(rank, holds(l->out, before, 0, ALL));
}

static void all_reduce(struct rank *rank, const struct large *l)
{
    RANK_CHECK_OK(rank, tutti_all_reduce(l->in, l->out, ALL, TUTTI_UINT8, TUTTI_SUM, rank->comm, NULL, NULL));
    bool right = true;
    for (size_t i = 0; i < ALL; i++) {
        unsigned char sum = 0;
        for (int32_t r = 0; r < rank->n; r++) sum = (unsigned char)(sum + value(r, i));
        right = right && l->out[i] == sum;
    }
    RANK_CHECK(rank, right);
}

static void each(struct rank *rank)
{
    static void (*const calls[])(struct rank *, const struct large *) = {broadcast, all_gather, all_to_all, send_recv,
                                                                         all_reduce};
    unsigned char *in = fresh(ALL), *out = fresh(ALL);
    RANK_CHECK(rank, in && out);
    struct large l = {.in = in + AT, .out = out + AT};
    for (size_t i = 0; i < ALL; i++) l.in[i] = value(rank->index, i);
    for (size_t c = 0; c < sizeof calls / sizeof *calls && !rank->failure[0]; c++) {
        for (size_t i = 0; i < ALL; i++) l.out[i] = 0;
        calls[c](rank, &l);
    }
    bool untouched = guarded(in, ALL) && guarded(out, ALL) && holds(l.in, rank->index, 0, ALL);
    free(in);
    free(out);
    RANK_CHECK(rank, untouched);
}

static void large(void **state)
{
    (void)state;
    assert_int_equal(ranks_forked(4, each, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(large)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
