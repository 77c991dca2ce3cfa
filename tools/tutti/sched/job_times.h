/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_JOB_TIMES_H
#define TUTTI_TOOLS_JOB_TIMES_H

/* Times of a job's collectives from the simulator: round by round, on the network that the job names, kept by (network,
 * algorithm, kind, group). Algorithms of the list: one that goes round by round, or `auto`. Then a group of whole nodes
 * takes two levels: within nodes, across nodes by ranks of equal place, within nodes; any other group the fastest of
 * those that fit. */

#include "tools/tutti/cmd.h"

#include "sim/job.h"

struct job_times;
struct job_times *job_times_open(const struct tutti_args *spec);
void job_times_close(struct job_times *times);
/* Times for this job, which is borrowed until the next call. */
void job_times_use(struct job_times *times, const struct tutti_job *job, struct tutti_job_times *out);
/* How many runs of the simulator it took so far. */
uint32_t job_times_runs(const struct job_times *times);

#endif
