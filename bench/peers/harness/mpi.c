/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI as a peer, compiled once for each implementation. */

#include "collectives.h"

#include <mpi.h>
#include <stdio.h>

static int failed(int status)
{
    return status == MPI_SUCCESS ? 0 : -1;
}

static int open_mpi(int rank, int n)
{
    int my_rank = -1, size = -1;
    if (MPI_Init(NULL, NULL) != MPI_SUCCESS) return -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &my_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (my_rank == rank && size == n) return failed(MPI_Barrier(MPI_COMM_WORLD));
    fprintf(stderr, "MPI says rank %d of %d, the launcher's variables %d of %d\n", my_rank, size, rank, n);
    return -1;
}

static void close_mpi(void)
{
    MPI_Finalize();
}

static int all_reduce(const struct peer_call *c)
{
    return failed(MPI_Allreduce(c->send, c->recv, (int)c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
}

static int reduce_scatter(const struct peer_call *c)
{
    return failed(MPI_Reduce_scatter_block(c->send, c->recv, (int)c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
}

static int all_gather(const struct peer_call *c)
{
    int count = (int)c->count;
    return failed(MPI_Allgather(c->send, count, MPI_FLOAT, c->recv, count, MPI_FLOAT, MPI_COMM_WORLD));
}

static int all_to_all(const struct peer_call *c)
{
    int count = (int)c->count;
    return failed(MPI_Alltoall(c->send, count, MPI_FLOAT, c->recv, count, MPI_FLOAT, MPI_COMM_WORLD));
}

static int broadcast(const struct peer_call *c)
{
    void *buffer = c->rank == c->root ? (void *)(uintptr_t)c->send : c->recv;
    return failed(MPI_Bcast(buffer, (int)c->count, MPI_FLOAT, c->root, MPI_COMM_WORLD));
}

static int reduce(const struct peer_call *c)
{
    return failed(MPI_Reduce(c->send, c->recv, (int)c->count, MPI_FLOAT, MPI_SUM, c->root, MPI_COMM_WORLD));
}

static int gather(const struct peer_call *c)
{
    int count = (int)c->count;
    return failed(MPI_Gather(c->send, count, MPI_FLOAT, c->recv, count, MPI_FLOAT, c->root, MPI_COMM_WORLD));
}

static int scatter(const struct peer_call *c)
{
    int count = (int)c->count;
    return failed(MPI_Scatter(c->send, count, MPI_FLOAT, c->recv, count, MPI_FLOAT, c->root, MPI_COMM_WORLD));
}

static int scan(const struct peer_call *c)
{
    return failed(MPI_Scan(c->send, c->recv, (int)c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
}

static int barrier(const struct peer_call *c)
{
    (void)c;
    return failed(MPI_Barrier(MPI_COMM_WORLD));
}

static int one_way(const struct peer_call *c, bool sends)
{
    const int other = c->rank ^ 1, count = (int)c->count;
    if (sends) return failed(MPI_Send(c->send, count, MPI_FLOAT, other, 0, MPI_COMM_WORLD));
    return failed(MPI_Recv(c->recv, count, MPI_FLOAT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

static int send_recv(const struct peer_call *c)
{
    const bool first = c->rank % 2 == 0;
    if ((c->rank ^ 1) >= c->n) return 0;
    return one_way(c, first) != 0 ? -1 : one_way(c, !first);
}

const struct peer peer = {.open = open_mpi,
                          .close = close_mpi,
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
