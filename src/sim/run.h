/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_SIM_RUN_H
#define TUTTI_SIM_RUN_H

/* Inside src/sim alone: what a run holds. run.c says how it goes on, ahead.h fetches what it will touch. */

#include "sim/order.h"
#include "sim/queue.h"
#include "sim/trace.h"

enum kind { BEGIN, ARRIVE, TAKEN, FINISH };
enum { KIND_BITS = 2, AHEAD = 8 };

/* How an operation stands (`left`): how many it still waits for, then one of these. */
#define HELD (UINT32_MAX - 2) /* a send that is done when it meets its receive */
#define BEGUN (UINT32_MAX - 1)
#define DONE UINT32_MAX

/* Where messages meet receives: those that wait, linked by `mate`. As long as no receive is wild, a list holds receives
 * or messages, never both; else each rank has one for receives, and behind it one for messages. */
struct list {
    uint32_t first, last;
};

/* Where events wait for one CPU or port: but for the lowest order they are no events meanwhile. */
struct sim_gate {
    uint32_t first, last; /* by order, linked by `mate` */
    uint32_t front;       /* the order of the event that is in the queue for all; NONE: nothing waits here */
    uint32_t unused;      /* gates lie within lines of memory */
};

struct run {
    const struct tutti_sim_program *program;
    struct tutti_sim_network *network;
    const struct tutti_sim_network_ops *ops;
    struct tutti_sim_queue queue;
    uint32_t order; /* pushes so far: at most three an operation, so that they do not wrap */
    uint64_t now;
    struct tutti_sim_moment *moments; /* by operation */
    bool traced;                      /* they are kept */
    struct list *lists;
    struct sim_gate *gates;
    uint32_t *freed; /* by the event at hand */
    size_t n_freed, freed_capacity;
    uint32_t n_done;
    struct tutti_sim_births *births; /* NULL: each rank stands for itself */
    enum tutti_status status;
    struct tutti_sim_result *result;
};

static inline enum kind kind_of(struct tutti_sim_event event)
{
    return (enum kind)(event.what % (1u << KIND_BITS));
}

static inline struct list *list_of(const struct run *run, uint32_t list, enum tutti_sim_type type)
{
    return &run->lists[run->program->wild ? 2 * (size_t)list + (type == TUTTI_SIM_SEND) : list];
}

#endif
