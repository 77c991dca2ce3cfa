/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOPO_TOPO_H
#define TUTTI_TOPO_TOPO_H

/* The processors of this host and what they share: hardware thread, core, L3 cache, NUMA node, package. Read from the
 * kernel's /sys and /proc; the root of both is an argument, so that hosts which nobody here owns can be tested. */

#include "base/base.h"

/* Groups are numbered from 0 in order of their least CPU, whatever the kernel calls them. */
struct tutti_topo_cpu {
    uint32_t id; /* as the kernel counts */
    uint32_t core, l3, node, package;
    bool allowed; /* to this process */
};
struct tutti_topo {
    struct tutti_topo_cpu *cpus; /* those online, by id; owned */
    uint32_t n_cpus, n_allowed;
    uint32_t n_cores, n_l3, n_nodes, n_packages;
    uint64_t l3_bytes; /* of the first L3, 0 if unknown */
    char model[96];    /* "Intel(R) Xeon(R) ...", "" if unknown */
    char host[65];     /* host name */
    char boot_id[37];  /* differs for every boot of every host: tells hosts of one name apart; "" if unknown */
};

/* root: "" for this host, else a directory that holds sys/ and proc/. What the kernel does not say is taken as one
 * group. SYSTEM if not even the list of CPUs can be read, MEMORY. */
enum tutti_status tutti_topo_init(struct tutti_topo *topo, const char *root);
void tutti_topo_fini(struct tutti_topo *topo);

/* Reads the kernel's "0-3,8,10-11" into at most capacity ids, ascending as written; the number of ids, SIZE_MAX if text
 * is not of this form or has more. */
size_t tutti_topo_list_parse(const char *text, uint32_t *ids, size_t capacity);
/* Writes ids, which must ascend, in that form, cut off if need be. Returns out. */
char *tutti_topo_list_format(const uint32_t *ids, size_t n, char *out, size_t capacity);

/* Writes to indices (room for n_cpus) the places in cpus of those that are allowed, neighbours together: by package,
 * node, L3, core and id. Returns how many there are. */
size_t tutti_topo_order(const struct tutti_topo *topo, uint32_t *indices);

#endif
