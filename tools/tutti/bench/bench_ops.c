/* SPDX-License-Identifier: BSD-3-Clause */
/* What `tutti bench` can measure: one row a collective. How large its buffers are, and what they hold, follows from the
 * table of kinds; sizes and bus factors are those of nccl-tests. */

#include "bench.h"

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

static const struct tutti_kind_info sendrecv = {
    .name = "sendrecv", .send = {TUTTI_ONE_BLOCK, TUTTI_EVERY_SLOT}, .recv = {TUTTI_ONE_BLOCK, TUTTI_EVERY_SLOT}};

const struct bench_op bench_ops[] = {
    {&tutti_kinds[TUTTI_ALL_REDUCE], call_all_reduce},
    {&tutti_kinds[TUTTI_REDUCE], call_reduce},
    {&tutti_kinds[TUTTI_BROADCAST], call_broadcast},
    {&tutti_kinds[TUTTI_ALL_GATHER], call_all_gather},
    {&tutti_kinds[TUTTI_GATHER], call_gather},
    {&tutti_kinds[TUTTI_SCATTER], call_scatter},
    {&tutti_kinds[TUTTI_REDUCE_SCATTER], call_reduce_scatter},
    {&tutti_kinds[TUTTI_ALL_TO_ALL], call_all_to_all},
    {&tutti_kinds[TUTTI_SCAN], call_scan},
    {&tutti_kinds[TUTTI_EXSCAN], call_exscan},
    {&sendrecv, call_sendrecv},
    {&tutti_kinds[TUTTI_BARRIER], call_barrier},
};
const size_t bench_n_ops = TUTTI_ARRAY_LEN(bench_ops);

size_t bench_count(const struct bench_op *op, size_t elements, size_t n_ranks)
{
    if (op->info->send.blocks == TUTTI_NO_BLOCK) return 0;
    return op->info->block_a_slot ? elements / n_ranks : elements;
}

/* Slots that a kind leaves out have a block all the same; only those beside a root have none. */
static size_t side_elements(const struct bench_case *c, struct tutti_kind_side side)
{
    if (side.at == TUTTI_THE_ROOT && c->rank != c->root) return 0;
    return side.blocks == TUTTI_ALL_BLOCKS ? c->count * (size_t)c->n_ranks : c->count;
}

void bench_case_size(struct bench_case *c, size_t bytes)
{
    const size_t esize = tutti_dtype_bytes(c->dtype), n = (size_t)c->n_ranks;
    c->count = bench_count(c->op, bytes / esize, n);
    c->bytes = (c->op->info->block_a_slot ? n : 1) * c->count * esize;
}

size_t bench_send_elements(const struct bench_case *c)
{
    return side_elements(c, c->op->info->send);
}

size_t bench_recv_elements(const struct bench_case *c)
{
    return side_elements(c, c->op->info->recv);
}

size_t bench_in_place_at(const struct bench_case *c)
{
    const enum tutti_in_place form = c->op->info->in_place;
    if (form == TUTTI_NEVER_IN_PLACE) return SIZE_MAX;
    return form == TUTTI_SEND_IN_RECV || form == TUTTI_RECV_IN_SEND ? c->count * (size_t)c->rank : 0;
}

struct bench_origin bench_origin(const struct bench_case *c, size_t i)
{
    const struct tutti_kind_info *info = c->op->info;
    const size_t own = info->send.blocks == TUTTI_ALL_BLOCKS ? c->count * (size_t)c->rank : 0;
    struct bench_origin origin = {.from = -1, .index = own + i % c->count, .n_from = 1};
    switch (info->result) {
    case TUTTI_GETS_ALL:
        origin.n_from = (size_t)c->n_ranks;
        break;
    case TUTTI_GETS_PREFIX:
        origin.n_from = (size_t)c->rank + 1;
        break;
    case TUTTI_GETS_BEFORE:
        origin.n_from = (size_t)c->rank;
        break;
    case TUTTI_GETS_ORIGIN:
        origin.from = info->send.at == TUTTI_THE_ROOT         ? c->root
                      : info->recv.blocks == TUTTI_ALL_BLOCKS ? (int32_t)(i / c->count)
                                                              : (c->rank + c->n_ranks - 1) % c->n_ranks;
        /* The root's own out of place buffer is not touched by a broadcast. */
        if (info->in_place == TUTTI_ONE_BUFFER && c->rank == c->root && !c->in_place) origin.n_from = 0;
        break;
    }
    return origin;
}
