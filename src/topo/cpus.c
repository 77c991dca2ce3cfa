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
