/* SPDX-License-Identifier: BSD-3-Clause */
/* Lower bounds. Nothing reaches a part of the world before one message's latency is over; from then on the part must
 * take in (or, until then, let out) what the kind asks for. If the n ranks are m equal parts, each of them is like one
 * rank of m: all_reduce brings in 2(m-1)/m of the buffer, kinds of one block a rank (m-1)/m, all others all of it; so
 * the factors are those of bus bandwidth. all_to_all counts what one rank sends, of which a part has as many as it has
 * ranks. Sources: P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC
 * 2009; E. Chan et al., "Collective communication: theory, practice, and experience", CCPE 2007. */

#include "sim/sim.h"

struct tutti_sim_bounds tutti_sim_bounds_of(enum tutti_kind kind, uint32_t n_ranks, uint64_t bytes,
                                            const struct tutti_sim_limits *limits)
{
    struct tutti_sim_bounds bounds = {0};
    if (n_ranks < 2 || (bytes == 0 && kind != TUTTI_BARRIER)) return bounds;
    bounds.latency_ps = bounds.most_ps = limits->latency_ps;
    for (uint32_t i = 0; i < limits->n_parts && kind != TUTTI_BARRIER; i++) {
        const struct tutti_sim_part *part = &limits->parts[i];
        uint32_t m = n_ranks / part->ranks;
        if (m < 2 || n_ranks % part->ranks != 0) continue;
        double share = tutti_kind_bus_factor(tutti_kind_info(kind), m) * (kind == TUTTI_ALL_TO_ALL ? part->ranks : 1);
        bounds.parts_ps[i] = limits->latency_ps + (uint64_t)(share * (double)bytes * part->fs_per_byte / 1000);
        if (bounds.parts_ps[i] <= bounds.most_ps) continue;
        bounds.most_ps = bounds.parts_ps[i];
        bounds.ranks = part->ranks;
    }
    return bounds;
}
