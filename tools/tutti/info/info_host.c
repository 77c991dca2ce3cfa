/* SPDX-License-Identifier: BSD-3-Clause */

/* The host: its processors, what they share, which of them this process may use, and how many ranks that is enough for.
 */

#include "info.h"

#include "topo/topo.h"

#include <string.h>
#include <sys/utsname.h>

static const char host[] = "host";

/* The CPUs of each group, "0-3 | 4-7", or those of them that are allowed, "0: 2-3"; cut off if need be. */
static void groups_gather(struct info *info, const struct tutti_topo *topo, const char *name, uint32_t n_groups,
                          enum tutti_topo_level level, bool allowed_only)
{
    char text[200] = "", list[200];
    uint32_t *ids = tutti_alloc_array(topo->n_cpus, sizeof *ids);
    for (uint32_t group = 0; ids && group < n_groups; group++) {
        size_t n = 0;
        for (uint32_t i = 0; i < topo->n_cpus; i++)
            if (tutti_topo_group(&topo->cpus[i], level) == group && (topo->cpus[i].allowed || !allowed_only))
                ids[n++] = topo->cpus[i].id;
        if (n == 0) continue;
        if (text[0]) tutti_append(text, sizeof text, " | ");
        if (allowed_only) tutti_append(text, sizeof text, "%u: ", group);
        tutti_append(text, sizeof text, "%s", tutti_topo_list_format(ids, n, list, sizeof list));
    }
    info_text(info, host, name, NULL, "%s", text);
    tutti_free(ids);
}

static void cpus_gather(struct info *info, const struct tutti_topo *topo)
{
    info_text(info, host, "processor", NULL, "%s", topo->model);
    info_text(info, host, "topology", "who tells what CPUs share", "%s", topo->source);
    info_number(info, host, "packages", NULL, topo->n_packages);
    info_number(info, host, "numa_nodes", NULL, topo->n_nodes);
    groups_gather(info, topo, "cpus_of_numa_nodes", topo->n_nodes, TUTTI_TOPO_NODE, false);
    info_number(info, host, "l3_groups", NULL, topo->n_l3);
    groups_gather(info, topo, "cpus_of_l3_groups", topo->n_l3, TUTTI_TOPO_L3, false);
    if (topo->l3_bytes) info_bytes(info, host, "l3_size", "of one group", topo->l3_bytes);
    info_number(info, host, "cores", NULL, topo->n_cores);
    info_number(info, host, "cpus", "online", topo->n_cpus);
}

/* What this process may use: ranks that are started as it was may use the same. */
static void allowed_gather(struct info *info, const struct tutti_topo *topo)
{
    uint32_t *ids = tutti_alloc_array(topo->n_cpus, sizeof *ids);
    char list[200];
    size_t n = 0;
    for (uint32_t i = 0; ids && i < topo->n_cpus; i++)
        if (topo->cpus[i].allowed) ids[n++] = topo->cpus[i].id;
    info_text(info, host, "cpus_allowed", "by affinity", "%s",
              ids ? tutti_topo_list_format(ids, n, list, sizeof list) : "");
    tutti_free(ids);
    groups_gather(info, topo, "allowed_by_package", topo->n_packages, TUTTI_TOPO_PACKAGE, true);
    groups_gather(info, topo, "allowed_by_node", topo->n_nodes, TUTTI_TOPO_NODE, true);
    groups_gather(info, topo, "allowed_by_l3", topo->n_l3, TUTTI_TOPO_L3, true);
    const uint32_t usable = tutti_cpus_allowed();
    info_number(info, host, "cpus_usable", usable < topo->n_allowed ? "a cgroup's quota allows no more" : NULL, usable);
    info_number(info, host, "ranks_uncrowded", "ranks beyond that, on these CPUs, sleep where they would spin", usable);
}

void info_host_gather(struct info *info)
{
    struct utsname system;
    struct tutti_topo topo;
    if (uname(&system) == 0) info_text(info, host, "kernel", NULL, "%s %s", system.sysname, system.release);
    if (tutti_topo_init(&topo) < 0) {
        info_text(info, host, "topology", NULL, "%s", tutti_last_error()->text);
        return;
    }
    info_text(info, host, "name", NULL, "%s", topo.host);
    info_text(info, host, "boot_id", NULL, "%s", topo.boot_id);
    cpus_gather(info, &topo);
    allowed_gather(info, &topo);
    tutti_topo_fini(&topo);
}
