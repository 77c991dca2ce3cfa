/* SPDX-License-Identifier: BSD-3-Clause */

/* Private memory of calls: taken when a call starts, and kept by its team for the next one. */

#include "engine/flight/flight.h"

#include <string.h>

/* Regions that a team keeps hold their pages, so what is much too large is not taken. */
#define SPARE_WASTE 4
#define SPARE_MOST (UINT64_C(256) << 20)

void *tutti_region_take(struct tutti_team *team, size_t bytes, struct tutti_region *out)
{
    struct tutti_region *best = NULL;

    *out = (struct tutti_region){NULL, 0};
    if (bytes == 0) return NULL;
    size_t wanted = 4096;
    while (wanted < bytes) wanted *= 2;
    tutti_works_lock(team->engine->works);
    for (uint32_t i = 0; i < TUTTI_ARRAY_LEN(team->spare); i++) {
        struct tutti_region *spare = &team->spare[i];
        if (spare->bytes >= wanted && spare->bytes / SPARE_WASTE <= wanted && (!best || spare->bytes < best->bytes))
            best = spare;
    }
    if (best) *out = *best, *best = (struct tutti_region){NULL, 0};
    tutti_works_unlock(team->engine->works);
    if (!out->base) out->base = tutti_map_lazy(wanted), out->bytes = out->base ? wanted : 0;
    return out->base;
}

void tutti_region_give(struct tutti_team *team, struct tutti_region region)
{
    if (!region.base) return;
    tutti_works_lock(team->engine->works);
    for (uint32_t i = 0; i < TUTTI_ARRAY_LEN(team->spare) && region.base && region.bytes <= SPARE_MOST; i++) {
        if (team->spare[i].base) continue;
        team->spare[i] = region;
        region.base = NULL;
    }
    if (region.base && region.bytes <= SPARE_MOST) { /* full: the oldest makes room */
        struct tutti_region first = team->spare[0];
        memmove(&team->spare[0], &team->spare[1], sizeof(team->spare) - sizeof(first));
        team->spare[TUTTI_ARRAY_LEN(team->spare) - 1] = region;
        region = first;
    }
    tutti_works_unlock(team->engine->works);
    tutti_unmap(region.base, region.bytes);
}
