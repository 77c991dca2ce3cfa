/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_RUN_HOSTS_H
#define TUTTI_TOOLS_RUN_HOSTS_H

/* Which hosts, and how many ranks on each: read from text, without a look at the world. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RUN_MAX_HOSTS 4096
#define RUN_MAX_RANKS 65536 /* per job */
#define RUN_HOST_NAME 256
#define RUN_HOSTS_WHY 512

struct run_host {
    char name[RUN_HOST_NAME];
    uint32_t n, first; /* ranks; n 0: not said */
    bool here;         /* this machine: no remote shell is needed */
};
struct run_hosts {
    struct run_host *hosts;
    size_t n, capacity;
    char why[RUN_HOSTS_WHY]; /* what a false answer means */
};

/* "a:4,b:4", "a,b", "user@a:2", "[fd00::1]:4". A host that is named again gets more ranks. */
bool run_hosts_list(struct run_hosts *hosts, const char *text);
/* The text of a file: a host a line, "a:4", "a slots=4" or "a"; # begins a comment. */
bool run_hosts_file(struct run_hosts *hosts, const char *text);
/* Slurm's list of nodes, "a[1-3,07],b", and its tasks of nodes, "4(x2),3" (NULL: not said). */
bool run_hosts_slurm(struct run_hosts *hosts, const char *nodes, const char *tasks);
/* Says how many ranks each host has: n_ranks of all, 0: as many as the hosts say, one where one says nothing. Hosts
 * without a rank are left out. */
bool run_hosts_share(struct run_hosts *hosts, uint32_t n_ranks);
uint32_t run_hosts_ranks(const struct run_hosts *hosts); /* ranks of all hosts */
/* The host of a rank; NULL: there are no hosts. */
const char *run_host_of(const struct run_hosts *hosts, uint32_t rank);
void run_hosts_fini(struct run_hosts *hosts);

#endif
