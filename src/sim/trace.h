/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_SIM_TRACE_H
#define TUTTI_SIM_TRACE_H

/* What a run keeps of its operations, where it is asked to: the notes that run.c makes as things happen. trace.c reads
 * them after the run. Until a message is met, `mate` of its send tells what held it up at its arrival. */

#include "sim/network.h"

#define TUTTI_SIM_DELAYED (UINT32_MAX - 1) /* in mate: by something that is not known yet */
#define TUTTI_SIM_MOMENT_NONE                                                                                          \
    ((struct tutti_sim_moment){.cause = TUTTI_SIM_NONE, .mate = TUTTI_SIM_NONE, .order = TUTTI_SIM_NONE})

/* Nothing keeps the operation any more but a CPU or a port: begin_ps is that time until it begins. */
static inline void tutti_sim_moment_freed(struct tutti_sim_moment *moment, uint32_t cause, uint64_t now)
{
    moment->begin_ps = now;
    moment->cause = cause;
}

static inline uint32_t tutti_sim_holder(const struct tutti_sim_network *network, uint32_t op, bool arrives,
                                        uint64_t now)
{
    if (!network->ops->holder) return TUTTI_SIM_NONE;
    return network->ops->holder(network, &network->program->ops[op], arrives, now);
}

static inline void tutti_sim_moment_begins(struct tutti_sim_moment *moment, const struct tutti_sim_network *network,
                                           uint32_t op, uint64_t now)
{
    if (now > moment->begin_ps && network->program->ops[op].type != TUTTI_SIM_RECV) {
        uint32_t holder = tutti_sim_holder(network, op, false, now);
        if (holder != TUTTI_SIM_NONE) moment->cause = holder;
    }
    moment->begin_ps = now;
}

/* The message of this send is taken in from now on. */
static inline void tutti_sim_moment_arrives(struct tutti_sim_moment *moment, const struct tutti_sim_network *network,
                                            uint32_t send, uint64_t now)
{
    moment->order = tutti_sim_holder(network, send, true, now);
}

/* late: the message was the last to come, not its receive. */
static inline void tutti_sim_moments_meet(struct tutti_sim_moment *moments, uint32_t recv, uint32_t send, bool late)
{
    uint32_t held_by = moments[send].order;
    if (late) moments[recv].cause = held_by != TUTTI_SIM_NONE ? held_by : send | TUTTI_SIM_BY_MESSAGE;
    moments[send].mate = recv;
    moments[recv].mate = send;
}

#endif
