/* SPDX-License-Identifier: BSD-3-Clause */

/* A topology as an object: read from a source, its groups numbered, its CPUs ordered. */

#include "topo/source.h"

#include <stdlib.h>

static uint32_t *group_of(const struct tutti_topo *topo, uint32_t i, size_t offset)
{
    return (uint32_t *)(void *)((unsigned char *)&topo->cpus[i] + offset);
}

/* Renumbers one kind of group from 0, in order of the least CPU; returns how many there are. */
static uint32_t groups_number(struct tutti_topo *topo, size_t offset, uint32_t *old)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < topo->n_cpus; i++) old[i] = *group_of(topo, i, offset);
    for (uint32_t i = 0; i < topo->n_cpus; i++) {
        uint32_t first = 0;
        while (old[first] != old[i]) first++;
        *group_of(topo, i, offset) = first == i ? n++ : *group_of(topo, first, offset);
    }
    return n;
}

/* What follows from the source: numbers of groups. */
static enum tutti_status topo_number(struct tutti_topo *topo)
{
    uint32_t *old = tutti_alloc_array(topo->n_cpus, sizeof *old);
    if (!old) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory while reading the topology of this host");
    topo->n_cores = groups_number(topo, offsetof(struct tutti_topo_cpu, core), old);
    topo->n_l3 = groups_number(topo, offsetof(struct tutti_topo_cpu, l3), old);
    topo->n_nodes = groups_number(topo, offsetof(struct tutti_topo_cpu, node), old);
    topo->n_packages = groups_number(topo, offsetof(struct tutti_topo_cpu, package), old);
    tutti_free(old);
    return TUTTI_OK;
}

static enum tutti_status topo_complete(struct tutti_topo *topo, const char *root, enum tutti_status status)
{
    if (status >= 0) status = topo_number(topo);
    if (status >= 0) status = tutti_topo_read_proc(topo, root);
    if (status < 0) tutti_topo_fini(topo);
    return status;
}

enum tutti_status tutti_topo_init_sys(struct tutti_topo *topo, const char *root)
{
    *topo = (struct tutti_topo){.source = "/sys"};
    return topo_complete(topo, root, tutti_topo_read_sys(topo, root));
}

enum tutti_status tutti_topo_init_hwloc(struct tutti_topo *topo, const char *synthetic)
{
    *topo = (struct tutti_topo){.source = tutti_topo_hwloc()};
    const enum tutti_status status = topo_complete(topo, "", tutti_topo_read_hwloc(topo, synthetic));
    if (status >= 0 && synthetic) { /* this process is not there */
        for (uint32_t i = 0; i < topo->n_cpus; i++) topo->cpus[i].allowed = true;
        topo->n_allowed = topo->n_cpus;
    }
    return status;
}

enum tutti_status tutti_topo_init(struct tutti_topo *topo)
{
    if (tutti_topo_hwloc()) {
        const enum tutti_status status = tutti_topo_init_hwloc(topo, NULL);
        if (status >= 0 || status == TUTTI_ERR_MEMORY) return status;
        tutti_log(TUTTI_LOG_INFO, "%s", tutti_last_error()->text);
    }
    return tutti_topo_init_sys(topo, "");
}

void tutti_topo_fini(struct tutti_topo *topo)
{
    tutti_free(topo->cpus);
    *topo = (struct tutti_topo){.cpus = NULL};
}

static int order_compare(const void *left, const void *right, void *context)
{
    const struct tutti_topo *topo = context;
    const struct tutti_topo_cpu *a = &topo->cpus[*(const uint32_t *)left], *b = &topo->cpus[*(const uint32_t *)right];
    const uint32_t x[] = {a->package, a->node, a->l3, a->core, a->id},
                   y[] = {b->package, b->node, b->l3, b->core, b->id};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(x); i++)
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    return 0;
}

size_t tutti_topo_order(const struct tutti_topo *topo, uint32_t *indices)
{
    size_t n = 0;
    for (uint32_t i = 0; i < topo->n_cpus; i++)
        if (topo->cpus[i].allowed) indices[n++] = i;
    qsort_r(indices, n, sizeof *indices, order_compare, (void *)topo);
    return n;
}
