/* SPDX-License-Identifier: BSD-3-Clause */

/* The CPUs of a topology, before a source has told what they share. */

#include "topo/source.h"

enum tutti_status tutti_topo_cpus_make(struct tutti_topo *topo, uint32_t n)
{
    topo->cpus = tutti_alloc_array(n, sizeof *topo->cpus);
    if (!topo->cpus) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory while reading the topology of %u CPUs", n);
    topo->n_cpus = n;
    return TUTTI_OK;
}

struct tutti_topo_cpu *tutti_topo_cpu(const struct tutti_topo *topo, uint32_t id)
{
    for (uint32_t i = 0; i < topo->n_cpus; i++)
        if (topo->cpus[i].id == id) return &topo->cpus[i];
    return NULL;
}
