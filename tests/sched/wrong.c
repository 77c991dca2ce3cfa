/* SPDX-License-Identifier: BSD-3-Clause */
/* A plug-in whose ring forgets what comes in the last round, from three ranks on: the checker must say so. */

#include <tutti/schedule.h>

static uint32_t rounds(const struct tutti_shape *s)
{
    return s->size - 1;
}

static void round_steps(const struct tutti_shape *s, uint32_t k, struct tutti_emit *e)
{
    const uint32_t p = s->size, right = (s->slot + 1) % p, left = (s->slot + p - 1) % p;
    const uint32_t late = k == p - 2 && p > 2 ? 1 : 0; /* the fault: the last block again */
    tutti_emit_send(e, right, TUTTI_DATA, (s->slot + p - k + late) % p, 1);
    tutti_emit_recv(e, left, TUTTI_DATA, (left + p - k + late) % p, 1);
}

static const struct tutti_schedule_ops all_gather = {.rounds = rounds, .round = round_steps};
const struct tutti_algorithm tutti_algorithm = {.name = "wrong", .kinds = {[TUTTI_ALL_GATHER] = &all_gather}};
