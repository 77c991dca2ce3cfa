/* SPDX-License-Identifier: BSD-3-Clause */
/* What `tutti bench` can measure: one row a collective, with the size rules and bus factors of nccl-tests. */

#include "bench.h"

#include <string.h>

static size_t n_of(const struct bench_case *c)
{
    return (size_t)c->n_ranks;
}

static size_t count_all(size_t elements, size_t n_ranks)
{
    return (void)n_ranks, elements;
}
static size_t count_share(size_t elements, size_t n_ranks)
{
    return elements / n_ranks;
}
static size_t count_none(size_t elements, size_t n_ranks)
{
    return (void)elements, (void)n_ranks, 0;
}

static size_t one_block(const struct bench_case *c)
{
    return c->count;
}
static size_t all_blocks(const struct bench_case *c)
{
    return c->count * n_of(c);
}
static size_t at_root(const struct bench_case *c)
{
    return c->rank == c->root ? c->count : 0;
}
static size_t all_at_root(const struct bench_case *c)
{
    return c->rank == c->root ? all_blocks(c) : 0;
}

static size_t in_place_front(const struct bench_case *c)
{
    return (void)c, 0;
}
static size_t in_place_block(const struct bench_case *c)
{
    return c->count * (size_t)c->rank;
}
static size_t in_place_never(const struct bench_case *c)
{
    return (void)c, SIZE_MAX;
}

static double factor_one(size_t n)
{
    return (void)n, 1.0;
}
static double factor_share(size_t n)
{
    return (double)(n - 1) / (double)n;
}
static double factor_twice(size_t n)
{
    return 2.0 * factor_share(n);
}

#define CALL(name)                                                                                                     \
    static enum tutti_status call_##name(const struct bench_case *c, const void *send, void *recv,                     \
                                         struct tutti_comm *comm, const struct tutti_call_options *o)
#define PLAIN_CALL(name, ...)                                                                                          \
    CALL(name)                                                                                                         \
    {                                                                                                                  \
        return tutti_##name(send, recv, c->count, c->dtype, __VA_ARGS__, o, NULL);                                     \
    }
/* clang-format off */
PLAIN_CALL(all_reduce, c->reduction, comm)
PLAIN_CALL(reduce, c->reduction, c->root, comm)
PLAIN_CALL(all_gather, comm)
PLAIN_CALL(gather, c->root, comm)
PLAIN_CALL(scatter, c->root, comm)
PLAIN_CALL(reduce_scatter, c->reduction, comm)
PLAIN_CALL(all_to_all, comm)
PLAIN_CALL(scan, c->reduction, comm)
PLAIN_CALL(exscan, c->reduction, comm)
/* clang-format on */
CALL(broadcast)
{
    /* One buffer by nature: the root's out of place form sends from its input. */
    void *buffer = c->rank == c->root ? (void *)(uintptr_t)send : recv;
    return tutti_broadcast(buffer, c->count, c->dtype, c->root, comm, o, NULL);
}
CALL(barrier)
{
    (void)c, (void)send, (void)recv;
    return tutti_barrier(comm, o, NULL);
}
CALL(sendrecv)
{
    int32_t n = c->n_ranks;
    return tutti_sendrecv(send, c->count, (c->rank + 1) % n, 0, recv, c->count, (c->rank + n - 1) % n, 0, c->dtype,
                          comm, o, NULL, NULL);
}

static void set_origin(int32_t *from, size_t *index, size_t *n_from, int32_t rank, size_t i, size_t n)
{
    *from = rank;
    *index = i;
    *n_from = n;
}
#define ORIGIN(name)                                                                                                   \
    static void origin_##name(const struct bench_case *c, size_t i, int32_t *from, size_t *index, size_t *n_from)
ORIGIN(all)
{
    set_origin(from, index, n_from, -1, i, n_of(c));
}
ORIGIN(prefix)
{
    set_origin(from, index, n_from, -1, i, (size_t)c->rank + 1);
}
ORIGIN(before)
{
    set_origin(from, index, n_from, -1, i, (size_t)c->rank);
}
ORIGIN(own_block)
{
    set_origin(from, index, n_from, -1, c->count * (size_t)c->rank + i, n_of(c));
}
/* The root's own out of place buffer is not touched by a broadcast. */
ORIGIN(root)
{
    set_origin(from, index, n_from, c->root, i, c->rank != c->root || c->in_place);
}
ORIGIN(block)
{
    set_origin(from, index, n_from, (int32_t)(i / c->count), i % c->count, 1);
}
ORIGIN(root_block)
{
    set_origin(from, index, n_from, c->root, c->count * (size_t)c->rank + i, 1);
}
ORIGIN(transposed)
{
    set_origin(from, index, n_from, (int32_t)(i / c->count), c->count * (size_t)c->rank + i % c->count, 1);
}
ORIGIN(left)
{
    set_origin(from, index, n_from, (c->rank + c->n_ranks - 1) % c->n_ranks, i, 1);
}
ORIGIN(nothing)
{
    set_origin(from, index, n_from, c->rank, i, 0);
}

const struct bench_op bench_ops[] = {
    {"all_reduce", true, false, count_all, one_block, one_block, in_place_front, factor_twice, call_all_reduce,
     origin_all},
    {"reduce", true, true, count_all, one_block, at_root, in_place_front, factor_one, call_reduce, origin_all},
    {"broadcast", false, true, count_all, one_block, one_block, in_place_front, factor_one, call_broadcast,
     origin_root},
    {"all_gather", false, false, count_share, one_block, all_blocks, in_place_block, factor_share, call_all_gather,
     origin_block},
    {"gather", false, true, count_share, one_block, all_at_root, in_place_block, factor_share, call_gather,
     origin_block},
    {"scatter", false, true, count_share, all_at_root, one_block, in_place_block, factor_share, call_scatter,
     origin_root_block},
    {"reduce_scatter", true, false, count_share, all_blocks, one_block, in_place_block, factor_share,
     call_reduce_scatter, origin_own_block},
    {"all_to_all", false, false, count_share, all_blocks, all_blocks, in_place_front, factor_share, call_all_to_all,
     origin_transposed},
    {"scan", true, false, count_all, one_block, one_block, in_place_front, factor_one, call_scan, origin_prefix},
    {"exscan", true, false, count_all, one_block, one_block, in_place_front, factor_one, call_exscan, origin_before},
    {"sendrecv", false, false, count_all, one_block, one_block, in_place_never, factor_one, call_sendrecv, origin_left},
    {"barrier", false, false, count_none, one_block, one_block, in_place_never, factor_one, call_barrier,
     origin_nothing},
};
const size_t bench_n_ops = sizeof(bench_ops) / sizeof(bench_ops[0]);
