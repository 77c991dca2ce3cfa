/* SPDX-License-Identifier: BSD-3-Clause */
/* Who measures with whom at once: pure, so that every rank comes to the same. */

#include "info_cluster.h"

#include <string.h>

/* One round: takes each pair that is left whose hosts are idle. Returns how many. */
static uint32_t round_fill(const uint32_t *hosts, uint32_t n, uint32_t round, uint32_t *rounds, bool *busy)
{
    uint32_t taken = 0;
    memset(busy, 0, n * sizeof *busy);
    for (uint32_t a = 0; a < n; a++)
        for (uint32_t b = a + 1; b < n; b++) {
            if (rounds[a * n + b] != UINT32_MAX || busy[hosts[a]] || busy[hosts[b]]) continue;
            rounds[a * n + b] = round;
            busy[hosts[a]] = busy[hosts[b]] = true;
            taken++;
        }
    return taken;
}

uint32_t cluster_rounds(const uint32_t *hosts, uint32_t n, uint32_t *rounds)
{
    bool busy[CLUSTER_MOST];
    uint32_t round = 0;
    for (uint32_t i = 0; i < n * n; i++) rounds[i] = UINT32_MAX;
    while (round_fill(hosts, n, round, rounds, busy) > 0) round++;
    return round;
}
