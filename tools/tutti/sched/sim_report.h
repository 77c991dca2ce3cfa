/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_SIM_REPORT_H
#define TUTTI_TOOLS_SIM_REPORT_H

/* What `tutti sched sim` found out of one program, and the ways to show it. */

#include "sim/network.h"

#include <stdio.h>

struct sim_report {
    const char *name, *network, *levels; /* levels: NULL without */
    bool goal;                           /* text: no kind, no bytes, no bounds */
    enum tutti_kind kind;
    uint64_t bytes; /* the whole buffer, as the call counts it */
    uint32_t n_ranks, n_steps, n_rounds, n_slices, n_ops;
    struct tutti_sim_result result;
    struct tutti_sim_bounds bounds;
    struct tutti_sim_link link; /* the busiest */
    char link_name[96];         /* empty: the network has no links */
    double idle;                /* share of the time in which a rank does nothing; below 0: not known */
    struct tutti_sim_critical critical;
    struct sim_hop {            /* a part of the critical path: its begin, and its end */
        struct tutti_sim_op op; /* rank and peer are those of the world */
        uint64_t begin_ps, end_ps;
    } hops[6];
    uint32_t n_hops;
    uint32_t sampled, sampled_of; /* rounds that were simulated; the time is an estimate from them. 0: all */
    bool by_slices;               /* not rounds but slices */
    char all[192];                /* what all would have taken; empty: not too much */
    uint32_t classes;             /* so many ranks stood for all; 0: each for itself */
    bool all_fit;                 /* and all could be simulated, too */
    struct tutti_sim_symmetry symmetry;
    double seconds[2];  /* to make the program, and to run it */
    double cpu_seconds; /* the run's, of one core */
    char refused[512];  /* a sentence when there is no result; else empty */
};

/* What the network tells after the run: bounds and the busiest link. */
void sim_report_network(struct sim_report *report, const struct tutti_sim_network *network);
/* What the moments of the run tell: idle share and critical path. */
enum tutti_status sim_report_moments(struct sim_report *report, const struct tutti_sim_program *program,
                                     const struct tutti_sim_network *network);
/* Where only the first rounds or slices were simulated: the time of all, if the rest goes on as the second half of
 * them. */
void sim_report_extrapolate(struct sim_report *report, const struct tutti_sim_program *program);
void sim_report_fini(struct sim_report *report);

/* One report as sentences; several as a table, with ratios to the first; any number as JSON. */
void sim_report_show(const struct sim_report *report, FILE *out);
void sim_report_compare(const struct sim_report *reports, size_t n, FILE *out);
void sim_report_json(const struct sim_report *reports, size_t n, FILE *out);
/* Draws ranks over time (sim_svg.c). False and a sentence when the file can not be written. */
bool sim_draw(const struct sim_report *report, const struct tutti_sim_program *program,
              const struct tutti_sim_network *network, const char *path);

#endif
