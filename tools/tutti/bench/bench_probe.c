/* SPDX-License-Identifier: BSD-3-Clause */
/* The latency of a cache line between two ranks, since a shared machine changes under the benchmark. */

#include "bench.h"

#include "base/base.h"

#include <sched.h>
#include <stdatomic.h>

#define PROBE_BATCH 64
#define PROBE_HOPS (32 * PROBE_BATCH)
#define PROBE_LIMIT_NS 30000000u

/* Ranks 0 and 1 pass a number to and fro in rank 0's line; the best batch counts, since a busy machine takes one of
 * them off its core now and then. Gives up after a while: with more ranks than cores they may never run at once. */
static double pass_line(_Atomic uint64_t *line, uint64_t rank)
{
    uint64_t start = tutti_now_ns(), batch_start = start, best = UINT64_MAX;
    for (uint64_t hop = 0; hop < PROBE_HOPS; hop++) {
        if ((hop & 1) == rank) {
            atomic_store_explicit(line, hop + 1, memory_order_release);
        } else {
            uint32_t spins = 0;
            while (atomic_load_explicit(line, memory_order_acquire) < hop + 1)
                if ((++spins & 1023) == 0) {
                    if (tutti_now_ns() - start > PROBE_LIMIT_NS) goto done;
                    sched_yield(); /* they may share a core; then that is what is measured */
                }
        }
        if ((hop + 1) % PROBE_BATCH) continue;
        uint64_t now = tutti_now_ns();
        if (now - batch_start < best) best = now - batch_start;
        batch_start = now;
    }
done:
    return best == UINT64_MAX ? 0 : (double)best / PROBE_BATCH;
}

double bench_probe_ns(struct bench_run *run)
{
    int32_t rank = tutti_comm_rank(run->comm);
    double result = 0;
    if (!run->window) return 0;
    _Atomic uint64_t *line = tutti_window_peer(run->window, 0, NULL);
    if (line && rank == 0) atomic_store(line, 0);
    if (tutti_barrier(run->comm, NULL, NULL) < 0) return 0;
    if (line && rank < 2) result = pass_line(line, (uint64_t)rank);
    return tutti_barrier(run->comm, NULL, NULL) < 0 ? 0 : result;
}
