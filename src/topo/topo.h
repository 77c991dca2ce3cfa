/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOPO_TOPO_H
#define TUTTI_TOPO_TOPO_H

/* The processors of this host and what they share: hardware thread, core, L3 cache, NUMA node, package. This room may
 * use base alone. Begin here, then topo.c: hwloc tells, where the build found it (hwloc.c), else the kernel's /sys
 * (linux.c); for tests either can be given the description of another host. place.c says where ranks are, and
 * whether there are more ranks than CPUs for them. */

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
    uint64_t l3_bytes;  /* the first L3's, 0 if unknown */
    const char *source; /* "hwloc 2.9.0" or "/sys", static */
    char model[96];     /* "Intel(R) Xeon(R) ...", "" if unknown */
    char host[65];      /* host name */
    char boot_id[37];   /* differs for every boot of every host: tells hosts of one name apart; "" if unknown */
};

/* This host, by hwloc or else by /sys. SYSTEM if not even the CPUs are known, MEMORY. */
enum tutti_status tutti_topo_init(struct tutti_topo *topo);
/* root: "" for this host, else a directory that holds sys/ and proc/. What the kernel does not say is taken as one
 * group. */
enum tutti_status tutti_topo_init_sys(struct tutti_topo *topo, const char *root);
/* synthetic: a host in hwloc's notation, all of it allowed; NULL: this one. UNSUPPORTED in a build without hwloc. */
enum tutti_status tutti_topo_init_hwloc(struct tutti_topo *topo, const char *synthetic);
const char *tutti_topo_hwloc(void); /* "hwloc 2.9.0", NULL in a build without it */
void tutti_topo_fini(struct tutti_topo *topo);

struct tutti_topo_cpu *tutti_topo_cpu(const struct tutti_topo *topo, uint32_t id); /* NULL: none, or offline */

/* Reads the kernel's "0-3,8,10-11" into at most capacity ids, ascending as written; the number of ids, SIZE_MAX if text
 * is not of this form or has more. */
size_t tutti_topo_list_parse(const char *text, uint32_t *ids, size_t capacity);
/* Writes ids, which must ascend, in that form, cut off if need be. Returns out. */
char *tutti_topo_list_format(const uint32_t *ids, size_t n, char *out, size_t capacity);

/* Writes to indices (room for n_cpus) the places in cpus of those that are allowed, neighbours together: by package,
 * node, L3, core and id. Returns how many there are. */
size_t tutti_topo_order(const struct tutti_topo *topo, uint32_t *indices);

/* ---- ranks on a host (place.c): each rank tells the others which CPUs it may use and where they are, and all
 * come to the same conclusions. Pure, but for tutti_topo_host. ---- */

/* What a rank may use. Plain data: it travels in cards. */
struct tutti_allowance {
    struct tutti_cpu_set cpus;
    uint64_t payer; /* ranks with the same one share the quota */
    uint32_t quota; /* whole CPUs, UINT32_MAX: without limit */
};
/* True if n ranks can not have a CPU each, by the CPUs that they may use or by a quota. Their allowances are `stride`
 * bytes apart. */
bool tutti_topo_crowded(const struct tutti_allowance *first, size_t stride, uint32_t n);

enum tutti_topo_level { TUTTI_TOPO_PACKAGE, TUTTI_TOPO_NODE, TUTTI_TOPO_L3, TUTTI_TOPO_N_LEVELS };
static inline uint32_t tutti_topo_group(const struct tutti_topo_cpu *cpu, enum tutti_topo_level level)
{
    return level == TUTTI_TOPO_PACKAGE ? cpu->package : level == TUTTI_TOPO_NODE ? cpu->node : cpu->l3;
}
/* Where a rank is: the group of each level, -1 if it may run in several or nobody knows. Plain data. */
struct tutti_cpu_place {
    int16_t group[TUTTI_TOPO_N_LEVELS];
};
struct tutti_cpu_place tutti_topo_place(const struct tutti_topo *topo, const struct tutti_cpu_set *cpus);
/* This host's topology, read once by a process and never freed. Errors as of tutti_topo_init. */
enum tutti_status tutti_topo_host(const struct tutti_topo **out);

/* The ranks of a communicator as n domains of `size` ranks each; the ranks of a domain share a group of some level. n =
 * 0: they are not so regular, or there is but one domain, or each rank is alone in its own. No table is needed: ranks
 * that follow one another fill a domain, or (cyclic) each is in another domain than the one before it. */
struct tutti_domains {
    uint32_t n, size;
    bool cyclic;
};
/* places[members[slot]] is where a slot is; members may be NULL: places[slot]. */
struct tutti_domains tutti_topo_domains(const struct tutti_cpu_place *places, const uint32_t *members, uint32_t n,
                                        enum tutti_topo_level level);
/* The slot that is `index` in its domain. */
static inline uint32_t tutti_domain_slot(const struct tutti_domains *domains, uint32_t domain, uint32_t index)
{
    return domains->cyclic ? index * domains->n + domain : domain * domains->size + index;
}

#endif
