/* SPDX-License-Identifier: BSD-3-Clause */
/* The levels (hosts, racks) of a group of ranks: from the table of hosts, or from those of the communicator it comes
 * from. Pure, and the same on
 * all members. A group whose ranks are not in the levels' order, or whose runs do not fit the table, is flat. */
#include "comm/object/comm.h"

#include <string.h>

/* Appends a group of `size` units, as one more of the last run if it can. */
static bool level_append(struct tutti_level *level, uint32_t size)
{
    if (level->n_runs && level->runs[level->n_runs - 1].size == size) {
        level->runs[level->n_runs - 1].repeat++;
        return true;
    }
    if (level->n_runs == TUTTI_MAX_RUNS) return false;
    level->runs[level->n_runs++] = (struct tutti_run){.size = size, .repeat = 1};
    return true;
}

/* unit[i] is the parent's unit that the child's unit i lies in; it becomes the parent's group of each child group,
 * whose number is returned. 0: not regular. */
static uint32_t level_derive(const struct tutti_level *parent, uint32_t *unit, uint32_t n, struct tutti_level *child)
{
    uint32_t n_groups = 0;
    for (uint32_t i = 0; i < n;) {
        uint32_t group, first, size, count = 0;
        tutti_level_find(parent, unit[i], &group, &first, &size);
        while (i < n && unit[i] >= first && unit[i] - first < size) i++, count++;
        if (n_groups && unit[n_groups - 1] >= group) return 0; /* the group was there before, or out of order */
        if (!level_append(child, count)) return 0;
        unit[n_groups++] = group;
    }
    return n_groups;
}

enum tutti_status tutti_levels_derive(const struct tutti_shape *parent, const uint32_t *slots, uint32_t n,
                                      struct tutti_shape *child)
{
    memset(child, 0, sizeof(*child));
    child->size = n;
    if (!parent->n_levels || n < 3) return TUTTI_OK; /* a level is two groups, one of them of two */
    uint32_t *unit = tutti_alloc_array(n, sizeof(*unit));
    if (!unit) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for the levels of a communicator of %u ranks", n);
    memcpy(unit, slots, n * sizeof(*unit));
    for (uint32_t level = 0, n_units = n; level < parent->n_levels; level++) {
        struct tutti_level derived = {0};
        uint32_t n_groups = level_derive(&parent->levels[level], unit, n_units, &derived);
        if (n_groups < 2) break;                                            /* irregular, or nothing above it */
        if (n_groups < n_units) child->levels[child->n_levels++] = derived; /* else each is alone in its group */
        n_units = n_groups;
    }
    tutti_free(unit);
    return TUTTI_OK;
}

void tutti_levels_of_hosts(const struct tutti_hosts *hosts, struct tutti_shape *shape)
{
    struct tutti_level level = {0};
    if (hosts->n_hosts == hosts->n_members) return;
    for (uint32_t i = 1; i < hosts->n_members; i++)
        if (hosts->members[i].host < hosts->members[i - 1].host) return; /* not neighbours */
    for (uint32_t h = 0; h < hosts->n_hosts; h++)
        if (!level_append(&level, hosts->hosts[h].n)) return;
    shape->levels[shape->n_levels++] = level;
}
