/* SPDX-License-Identifier: BSD-3-Clause */
/* A plug-in that hangs: rank 0 wants the fold of the chain back before it has sent its own part. */

#include <tutti/schedule.h>

static uint32_t rounds(const struct tutti_shape *s)
{
    return s->size > 1 ? 1 : 0;
}

static uint32_t scratch(const struct tutti_shape *s)
{
    return s->size > 0 ? 1 : 0;
}

static void round_steps(const struct tutti_shape *s, uint32_t k, struct tutti_emit *e)
{
    const uint32_t p = s->size;
    (void)k;
    if (s->slot == 0) { /* a fold along the chain, wanted back before it was sent */
        tutti_emit_recv(e, p - 1, TUTTI_SCRATCH, 0, 1);
        tutti_emit_copy(e, TUTTI_DATA, 0, TUTTI_SCRATCH, 0, 1);
        tutti_emit_send(e, 1, TUTTI_DATA, 0, 1);
        return;
    }
    tutti_emit_recv_reduce(e, s->slot - 1, TUTTI_DATA, 0, 1, TUTTI_LEFT);
    tutti_emit_send(e, (s->slot + 1) % p, TUTTI_DATA, 0, 1);
}

static const struct tutti_schedule_ops all_reduce = {.scratch = scratch, .rounds = rounds, .round = round_steps};
const struct tutti_algorithm tutti_algorithm = {.name = "hangs", .kinds = {[TUTTI_ALL_REDUCE] = &all_reduce}};
