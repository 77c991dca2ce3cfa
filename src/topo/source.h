/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TOPO_SOURCE_H
#define TUTTI_TOPO_SOURCE_H

/* Where a topology comes from. A source fills in the CPUs that are online, by id, with groups in any numbering that
 * tells them apart, and l3_bytes. */

#include "topo/topo.h"

#define TUTTI_TOPO_UNKNOWN UINT32_MAX

/* Memory for n CPUs, zeroed. */
enum tutti_status tutti_topo_cpus_make(struct tutti_topo *topo, uint32_t n);
/* linux.c. What CPUs share, */
enum tutti_status tutti_topo_read_sys(struct tutti_topo *topo, const char *root);
/* and what this process may use, and where it is. */
enum tutti_status tutti_topo_read_proc(struct tutti_topo *topo, const char *root);
/* hwloc.c or hwloc_none.c. synthetic: a host in hwloc's notation, NULL: this one. */
enum tutti_status tutti_topo_read_hwloc(struct tutti_topo *topo, const char *synthetic);

#endif
