/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_SIM_AHEAD_H
#define TUTTI_SIM_AHEAD_H

/* A run of many ranks waits for memory, not for arithmetic. So what the next events of an instant touch is fetched some
 * events ahead. Functions are inline, for they are part of the inner loop. */

#include "sim/run.h"

static inline void fetch_op(const struct run *run, uint32_t op)
{
    __builtin_prefetch(&run->program->ops[op]);
    __builtin_prefetch(&run->program->ops[op + 1].after);
    __builtin_prefetch(&run->moments[op], 1);
}

static inline void fetch_edges(const struct run *run, uint32_t op)
{
    __builtin_prefetch(&run->program->edges[run->program->ops[op].after]);
}

/* What the end of the operation frees. */
static inline void fetch_freed(const struct run *run, uint32_t op)
{
    const struct tutti_sim_op *o = &run->program->ops[op];
    for (uint32_t e = o->after; e < o[1].after && e < o->after + 6; e++)
        fetch_op(run, run->program->edges[e] & ~TUTTI_SIM_ON_START);
}

/* What waits for the message of this send, its receive most likely; NONE: nothing. */
static inline uint32_t waits_for(const struct run *run, uint32_t send)
{
    return list_of(run, run->program->ops[send].list, TUTTI_SIM_RECV)->first;
}

static inline void fetch_places(const struct run *run, uint32_t op, enum kind kind)
{
    const struct tutti_sim_op *o = &run->program->ops[op];
    fetch_edges(run, op);
    if (o->type != TUTTI_SIM_CALC) __builtin_prefetch(list_of(run, o->list, TUTTI_SIM_RECV), 1);
    if (kind != BEGIN && kind != ARRIVE) return;
    if (run->ops->fetch) run->ops->fetch(run->network, o, kind == ARRIVE);
    uint32_t gate = run->gates ? run->ops->gate(run->network, o, kind == ARRIVE) : TUTTI_SIM_NONE;
    if (gate != TUTTI_SIM_NONE) __builtin_prefetch(&run->gates[gate], 1);
}

/* What goes on next: what the end of the operation frees, what waits behind it, the receive of its message. */
static inline void fetch_next(const struct run *run, uint32_t op, enum kind kind)
{
    uint32_t next = TUTTI_SIM_NONE, gate = TUTTI_SIM_NONE;
    if (kind == TAKEN) next = waits_for(run, op);
    if (kind != TAKEN) fetch_freed(run, op);
    if (run->gates && (kind == BEGIN || kind == ARRIVE))
        gate = run->ops->gate(run->network, &run->program->ops[op], kind == ARRIVE);
    if (gate != TUTTI_SIM_NONE) next = run->gates[gate].first;
    if (next != TUTTI_SIM_NONE) fetch_op(run, next);
}

/* Each event of this instant is looked at before its turn, some times, each time for what the last one brought: the
 * operation; its list, edges, CPU or port; what goes on next, and what that frees. */
static inline void look_ahead(const struct run *run)
{
    const struct tutti_sim_event *events = run->queue.now.events + run->queue.at;
    size_t n = run->queue.now.n - run->queue.at;
    if (n > 4 * AHEAD) fetch_op(run, events[4 * AHEAD].what >> KIND_BITS);
    if (n > 3 * AHEAD) fetch_places(run, events[3 * AHEAD].what >> KIND_BITS, kind_of(events[3 * AHEAD]));
    if (n > 2 * AHEAD) fetch_next(run, events[2 * AHEAD].what >> KIND_BITS, kind_of(events[2 * AHEAD]));
    for (size_t i = 1; i <= 2 && n > AHEAD / i; i++) {
        struct tutti_sim_event event = events[AHEAD / i];
        uint32_t recv = kind_of(event) == TAKEN ? waits_for(run, event.what >> KIND_BITS) : TUTTI_SIM_NONE;
        if (recv != TUTTI_SIM_NONE && i == 1) fetch_edges(run, recv);
        if (recv != TUTTI_SIM_NONE && i == 2) fetch_freed(run, recv);
    }
}

#endif
