/* SPDX-License-Identifier: BSD-3-Clause */
/* PAT, parallel aggregated trees: an all_gather of log2 p rounds for any number of ranks, in which little travels far.
 *
 * Every rank's block goes to all along a binomial tree, and the p trees run side by side. The first round crosses the
 * greatest distance, with one block a rank; each round after it goes half as far with twice as many, until neighbours
 * exchange half of everything. (Bruck's algorithm has the same rounds the other way round: half of everything goes
 * farthest.) A block that started o ranks back is what a rank has as "offset" o.
 *
 * S. Jeaugey: PAT: a new algorithm for all-gather and reduce-scatter operations at scale (2025, NCCL 2.23). */

#include <tutti/schedule.h>

static uint32_t rounds(const struct tutti_shape *shape)
{
    uint32_t n = 0;
    while (n < 31 && UINT32_C(1) << n < shape->size) n++;
    return n;
}

TUTTI_COLLECTIVE(TUTTI_ALL_GATHER, "my_pat", 0, shape->size, 0, rounds(shape))
{
    /* The offsets that a rank has are the multiples of 2 d. Those that are not known d further on yet go there. */
    const uint32_t p = shape->size, me = shape->slot, d = UINT32_C(1) << (rounds(shape) - 1 - round);
    for (uint32_t o = 0; o + d < p; o += 2 * d) {
        tutti_emit_send(emit, (me + d) % p, TUTTI_DATA, (me + p - o) % p, 1);
        tutti_emit_recv(emit, (me + p - d) % p, TUTTI_DATA, (me + p - (o + d)) % p, 1);
    }
}
