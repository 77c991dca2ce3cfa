/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that may speak, and how far each is. */
#include "ft/manager/ranks.h"

#include <inttypes.h>
#include <stdio.h>

bool manager_admits(struct tutti_manager *m, uint32_t rank, uint64_t request)
{
    char text[MANAGER_TEXT];

    if (rank >= m->options.world_size) {
        snprintf(text, sizeof text, "group_rank is %" PRIu32 ", but %s has %" PRIu32 " ranks", rank, m->replica_id,
                 m->options.world_size);
        m->out.refused(m->out.arg, request, TUTTI_MANAGER_ARGUMENT, text);
        return false;
    }
    if (m->ranks[rank].dead) m->ranks[rank].dead = false, m->n_dead--;
    if (m->n_dead == 0) return true;
    m->out.refused(m->out.arg, request, TUTTI_MANAGER_DEAD, m->dead);
    return false;
}

void manager_note(struct rank *rank, int64_t step, uint64_t collective)
{
    rank->said = true;
    rank->step = step;
    rank->collective = collective;
}

bool tutti_manager_progress(struct tutti_manager *m, uint32_t group_rank, int64_t step, uint64_t collective)
{
    if (group_rank >= m->options.world_size) return false;
    manager_note(&m->ranks[group_rank], step, collective);
    return true;
}
