/* SPDX-License-Identifier: BSD-3-Clause */
/* The latency of a cache line between two ranks, since a shared machine changes under the benchmark. */

#include "bench.h"
#include "tools/tutti/measure.h"

double bench_probe_ns(struct bench_run *run)
{
    static const struct tutti_relay relay = {TUTTI_SPIN, .batches = 32, .hops = 64, .limit_ns = 30 * TUTTI_NS_PER_MS};
    int32_t rank = tutti_comm_rank(run->comm);
    double result = 0;
    if (!run->window) return 0;
    struct tutti_baton *baton = tutti_window_peer(run->window, 0, NULL);
    if (baton && rank == 0) atomic_store(&baton->turn, 0);
    if (tutti_barrier(run->comm, NULL, NULL) < 0) return 0;
    if (baton && rank < 2) result = tutti_relay_ns(baton, (uint32_t)rank, &relay);
    return tutti_barrier(run->comm, NULL, NULL) < 0 ? 0 : result;
}
