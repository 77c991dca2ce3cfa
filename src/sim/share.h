/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_SIM_SHARE_H
#define TUTTI_SIM_SHARE_H

/* Max-min fair rates of flows over links: all rates are filled equally until a link is full, its flows keep theirs, the
 * rest goes on. Equivalently, each flow has a link that is full and on which no other flow is faster: that is what is
 * looked at when flows start and end, so that only those are anew whose link changed.
 *
 * D. Bertsekas, R. Gallager: Data Networks, 2nd ed. (1992), section 6.5.2. */

#include "base/base.h"

struct tutti_sim_share_link {
    double capacity; /* bytes a picosecond; above 0 */
    double used;     /* by flows whose rate is not asked for */
    double level;    /* the rate of the flows that it limits */
    uint32_t first;  /* its first node, in a list of those that cross it */
    uint32_t n;      /* flows on it */
    uint32_t n_held; /* those that it limits */
    /* In a solve: */
    uint32_t round;           /* the one that touched it last */
    double rest;              /* what the flows that have a rate leave of it */
    double fastest;           /* the largest rate that was given on it */
    uint32_t n_limited;       /* flows that are asked for and that it limits */
    uint32_t members;         /* where the flows on it that are asked for begin in the share's list */
    uint32_t n_asked, n_open; /* their number; those without a rate yet */
};
/* A flow on a link. A flow's nodes are consecutive. */
struct tutti_sim_share_node {
    uint32_t link, flow, next, prior;
};
struct tutti_sim_share_flow {
    double rate;
    uint32_t node, n; /* its nodes */
    uint32_t limit;   /* the link that limits it */
    bool used, asked; /* there is such a flow; its rate is asked for */
};
struct tutti_sim_share_level {
    double level; /* bytes a picosecond of each flow without a rate */
    uint32_t link;
};

struct tutti_sim_share {
    struct tutti_sim_share_link *links;
    struct tutti_sim_share_flow *flows;
    struct tutti_sim_share_node *nodes;
    uint32_t n_links, n_flows, flow_capacity;
    uint32_t n_nodes, node_capacity;
    uint32_t *free_flows, n_free_flows;
    uint32_t *free_nodes; /* by length: the first of a list of runs of nodes, linked by `next` */
    uint32_t most_hops, round;
    uint32_t *asked, n_asked; /* flows */
    uint32_t *members;        /* flows that are asked for, by touched link */
    uint32_t *touched, n_touched;
    uint32_t *freed, n_freed; /* links that limited a flow that ended */
    struct tutti_sim_share_level *heap;
    uint64_t n_solved; /* flows whose rate was worked out, over all solves */
};

/* A share of n links whose capacities are set before the first flow. MEMORY. */
enum tutti_status tutti_sim_share_open(uint32_t n_links, uint32_t most_hops, struct tutti_sim_share *out);
void tutti_sim_share_close(struct tutti_sim_share *share);
/* A flow over n links, all different; its rate is known after the next solve. MEMORY. */
enum tutti_status tutti_sim_share_start(struct tutti_sim_share *share, const uint32_t *links, uint32_t n,
                                        uint32_t *flow);
/* Ends one whose rate is known. */
void tutti_sim_share_end(struct tutti_sim_share *share, uint32_t flow);
/* Whether rates are to be worked out. */
bool tutti_sim_share_stale(const struct tutti_sim_share *share);
/* Works out rates; then asked[0 .. n_asked) are the flows that may have a new one, until a flow starts or ends. */
void tutti_sim_share_solve(struct tutti_sim_share *share);

#endif
