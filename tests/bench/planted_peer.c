/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer that does not communicate at all, whose calls are wrong in ways that the harness has to see. */

#include "bench/peers/harness/collectives.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *spin(void *arg)
{
    for (;;) peer_relax();
    return arg;
}

static int open_planted(int rank, int n)
{
    pthread_t thread;
    (void)rank, (void)n;
    return getenv("PLANTED_SPIN") ? pthread_create(&thread, NULL, spin, NULL) : 0;
}

static void close_planted(void) {}

/* Every element lacks the other ranks'; as a scan it is right at rank 0. */
static int all_reduce(const struct peer_call *c)
{
    memcpy(c->recv, c->send, c->count * sizeof *c->recv);
    return 0;
}

/* Right but for the last element. */
static int broadcast(const struct peer_call *c)
{
    if (c->rank == c->root) return 0;
    peer_fill(c->recv, c->count, c->root);
    c->recv[c->count - 1] += 1;
    return 0;
}

static int refuses(const struct peer_call *c)
{
    return (void)c, 1;
}

static int fails(const struct peer_call *c)
{
    fprintf(stderr, "planted failure of rank %d\n", c->rank);
    return -1;
}

static int hangs(const struct peer_call *c)
{
    return (void)c, (void)pause(), 0;
}

const struct peer peer = {.open = open_planted,
                          .close = close_planted,
                          .calls = {[PEER_ALL_REDUCE] = all_reduce,
                                    [PEER_BROADCAST] = broadcast,
                                    [PEER_REDUCE] = hangs,
                                    [PEER_SCATTER] = refuses,
                                    [PEER_SCAN] = all_reduce,
                                    [PEER_BARRIER] = fails}};
