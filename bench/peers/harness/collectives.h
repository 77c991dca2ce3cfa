/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BENCH_COLLECTIVES_H
#define TUTTI_BENCH_COLLECTIVES_H

/* The harness in which bench/cpu_peers.py measures the collectives of several libraries by one method, and what it asks
 * of a peer: one file a peer (mpi.c, tutti.c, ...) defines `peer`. Each rank is a process that sleeps in a read of its
 * socket until the script tells it what to measure. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PEER_MAX_RANKS 256
#define PEER_MAX_BATCHES 64

enum peer_operation {
    PEER_ALL_REDUCE,
    PEER_REDUCE_SCATTER,
    PEER_ALL_GATHER,
    PEER_ALL_TO_ALL,
    PEER_BROADCAST,
    PEER_REDUCE,
    PEER_GATHER,
    PEER_SCATTER,
    PEER_SCAN,
    PEER_BARRIER,
    PEER_SEND_RECV, /* ranks 2k and 2k + 1: a message there, and then one back; who is left over does nothing */
    PEER_N_OPERATIONS
};

/* One call: `count` floats, or floats a block where the operation has blocks; a broadcast reads `send` at the root and
 * writes `recv` elsewhere. */
struct peer_call {
    const float *send;
    float *recv;
    size_t count;
    int rank, n, root;
};

/* Functions return 0, or another number when they failed and said why on stderr. */
struct peer {
    int (*open)(int rank, int n);
    void (*close)(void);
    void *(*alloc)(size_t bytes); /* memory that the other ranks can map; NULL: there is no such thing */
    void (*free)(void *memory);
    int (*calls[PEER_N_OPERATIONS])(const struct peer_call *call); /* NULL: not offered */
};
extern const struct peer peer;

/* ---- collectives.c ---- */
/* Serves the script until it closes the socket; the exit status of the process. */
int peer_serve(const struct peer *p);

/* ---- cases.c: what goes in and what must come out ---- */
struct peer_case {
    const char *name;
    size_t send, recv; /* floats of this rank's buffers */
    size_t count;
    int operation; /* PEER_N_OPERATIONS and above: the harness's own (peer_own_call) */
};
/* false: there is no operation of this name. `bytes` is the larger side of the call, as nccl-tests counts. */
bool peer_case_make(const char *name, size_t bytes, int rank, int n, struct peer_case *out);
/* The harness's own operations, for the limits of the machine: "copy" by memcpy, "stream" past the caches. */
int (*peer_own_call(int operation))(const struct peer_call *call);
void peer_fill(float *out, size_t n, int rank);
/* Floats of recv that are wrong among those looked at: all, or of every `stride` blocks one. */
size_t peer_wrong(const struct peer_case *c, const struct peer_call *call, size_t stride);

/* ---- control.c: memory that the ranks of one peer share, whatever the peer is ---- */
/* Maps it, by the variables PEERS_CONTROL, PEERS_CPUS and PEERS_PINNED; pins this rank. */
int peer_control_open(int rank, int n);
/* All ranks have come. Sleeps, also when a rank is late. */
void peer_meet(void);
/* Rank 0's bytes, at most 1 KiB, at all ranks. */
void peer_share(void *bytes, size_t n);
/* This rank's figure number i, and the largest of all ranks (after peer_meet). */
void peer_tell(size_t i, double value);
double peer_largest(size_t i);
/* All ranks together leave at one instant, which is returned, in ns; where ranks share CPUs they just leave. */
uint64_t peer_start(void);
/* One way of a cache line between ranks 0 and 1 in ns, at rank 0; 0 with one rank or one CPU. */
double peer_probe(void);
uint64_t peer_now_ns(void);
void peer_relax(void);

#ifdef __cplusplus
}
#endif

#endif
