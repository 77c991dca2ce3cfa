/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOOLS_INFO_CLUSTER_H
#define TUTTI_TOOLS_INFO_CLUSTER_H

/* `tutti info --cluster`: where the ranks of a job are, and how fast their links are. info_cluster.c meets and
 * measures, info_cluster_show.c writes page, JSON and heat map. */

#include "base/base.h"

#include <stdio.h>

#define CLUSTER_MOST 64 /* ranks whose links are measured; of more, the first of each host */
#define CLUSTER_SMALL 8
#define CLUSTER_MEDIUM ((size_t)1 << 20)
#define CLUSTER_LARGE ((size_t)16 << 20)

/* Plain data: it travels. */
struct cluster_rank {
    char host[64], address[48], device[96];
    int32_t pid, cpus;
    uint32_t host_index; /* hosts are counted by their first ranks */
    uint32_t unused;
};
/* From the rank of a row to that of a column. 0: not measured. */
struct cluster_link {
    double latency_us;    /* one way, 8 bytes */
    double medium, large; /* GB/s of 1 MiB and of 16 MiB */
};
struct cluster {
    uint32_t n, n_hosts, n_measured;
    struct cluster_rank *ranks;      /* n */
    uint32_t measured[CLUSTER_MOST]; /* ranks */
    struct cluster_link *links;      /* n_measured rows of n_measured */
};

/* All ranks meet and measure; *speaks on rank 0 alone. Failures are told on stderr. */
bool cluster_gather(struct cluster *cluster, bool *speaks);
void cluster_fini(struct cluster *cluster);

/* Pairs that measure at once: no host is in two of them, so nobody shares a link. hosts: of each of n. Writes a round
 * number for each pair (a < b) to rounds[a * n + b]; returns how many rounds there are. */
uint32_t cluster_rounds(const uint32_t *hosts, uint32_t n, uint32_t *rounds);

/* ---- info_cluster_show.c ---- */
void cluster_page_write(FILE *out, const struct cluster *cluster);
void cluster_json_write(FILE *out, const struct cluster *cluster);
void cluster_svg_write(FILE *out, const struct cluster *cluster);

#endif
