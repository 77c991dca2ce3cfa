/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_JOB_REPORT_H
#define TUTTI_TOOLS_JOB_REPORT_H

/* What `tutti sched job` found out, and the ways to show it. */

#include "sim/job.h"

#include <stdio.h>

/* A job, as it is or with other keys, at all its numbers of nodes. */
struct job_run {
    const char *label; /* "as described", or the keys that differ */
    struct tutti_job job;
    struct tutti_job_point weak[TUTTI_JOB_MOST_POINTS], strong[TUTTI_JOB_MOST_POINTS];
};

/* The first run in full, then, where there are more, the efficiency of all. */
void job_report_show(const struct job_run *runs, size_t n, FILE *out);
void job_report_json(const struct job_run *runs, size_t n, FILE *out);
/* Efficiency by nodes, weak and strong, and what was published. False when the file refuses. */
bool job_report_svg(const struct job_run *runs, size_t n, FILE *out);

#endif
