/* SPDX-License-Identifier: BSD-3-Clause */
/* tutti as a peer: rank, number of ranks and job come from the variables that `tutti run` would set. */

#include "collectives.h"

#include <stdio.h>
#include <tutti/tutti.h>

static struct tutti_comm *world;

static int failed(enum tutti_status status)
{
    if (status >= 0) return 0;
    fprintf(stderr, "%s\n", tutti_last_error()->text);
    return -1;
}

static int open_tutti(int rank, int n)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    config.rank = rank;
    config.n_ranks = n;
    if (failed(tutti_comm_create(NULL, &config, &world))) return -1;
    return failed(tutti_barrier(world, NULL, NULL));
}

static void close_tutti(void)
{
    (void)tutti_barrier(world, NULL, NULL);
    tutti_comm_destroy(world);
}

static void *mapped_alloc(size_t bytes)
{
    void *memory = NULL;
    return failed(tutti_mem_alloc(world, bytes, &memory)) ? NULL : memory;
}

static void mapped_free(void *memory)
{
    (void)failed(tutti_mem_free(world, memory));
}

static int all_reduce(const struct peer_call *c)
{
    return failed(tutti_all_reduce(c->send, c->recv, c->count, TUTTI_FLOAT32, TUTTI_SUM, world, NULL, NULL));
}

static int reduce_scatter(const struct peer_call *c)
{
    return failed(tutti_reduce_scatter(c->send, c->recv, c->count, TUTTI_FLOAT32, TUTTI_SUM, world, NULL, NULL));
}

static int all_gather(const struct peer_call *c)
{
    return failed(tutti_all_gather(c->send, c->recv, c->count, TUTTI_FLOAT32, world, NULL, NULL));
}

static int all_to_all(const struct peer_call *c)
{
    return failed(tutti_all_to_all(c->send, c->recv, c->count, TUTTI_FLOAT32, world, NULL, NULL));
}

static int broadcast(const struct peer_call *c)
{
    void *buffer = c->rank == c->root ? (void *)(uintptr_t)c->send : c->recv;
    return failed(tutti_broadcast(buffer, c->count, TUTTI_FLOAT32, c->root, world, NULL, NULL));
}

static int reduce(const struct peer_call *c)
{
    return failed(tutti_reduce(c->send, c->recv, c->count, TUTTI_FLOAT32, TUTTI_SUM, c->root, world, NULL, NULL));
}

static int gather(const struct peer_call *c)
{
    return failed(tutti_gather(c->send, c->recv, c->count, TUTTI_FLOAT32, c->root, world, NULL, NULL));
}

static int scatter(const struct peer_call *c)
{
    return failed(tutti_scatter(c->send, c->recv, c->count, TUTTI_FLOAT32, c->root, world, NULL, NULL));
}

static int scan(const struct peer_call *c)
{
    return failed(tutti_scan(c->send, c->recv, c->count, TUTTI_FLOAT32, TUTTI_SUM, world, NULL, NULL));
}

static int barrier(const struct peer_call *c)
{
    (void)c;
    return failed(tutti_barrier(world, NULL, NULL));
}

static int one_way(const struct peer_call *c, bool sends)
{
    const int32_t other = c->rank ^ 1;
    if (sends) return failed(tutti_send(c->send, c->count, TUTTI_FLOAT32, other, 0, world, NULL, NULL));
    return failed(tutti_recv(c->recv, c->count, TUTTI_FLOAT32, other, 0, world, NULL, NULL, NULL));
}

static int send_recv(const struct peer_call *c)
{
    const bool first = c->rank % 2 == 0;
    if ((c->rank ^ 1) >= c->n) return 0;
    return one_way(c, first) != 0 ? -1 : one_way(c, !first);
}

const struct peer peer = {.open = open_tutti,
                          .close = close_tutti,
                          .alloc = mapped_alloc,
                          .free = mapped_free,
                          .calls = {[PEER_ALL_REDUCE] = all_reduce,
                                    [PEER_REDUCE_SCATTER] = reduce_scatter,
                                    [PEER_ALL_GATHER] = all_gather,
                                    [PEER_ALL_TO_ALL] = all_to_all,
                                    [PEER_BROADCAST] = broadcast,
                                    [PEER_REDUCE] = reduce,
                                    [PEER_GATHER] = gather,
                                    [PEER_SCATTER] = scatter,
                                    [PEER_SCAN] = scan,
                                    [PEER_BARRIER] = barrier,
                                    [PEER_SEND_RECV] = send_recv}};
