/* SPDX-License-Identifier: BSD-3-Clause */

/* The build without hwloc: topologies come from /sys. */

#include "topo/source.h"

const char *tutti_topo_hwloc(void)
{
    return NULL;
}

enum tutti_status tutti_topo_read_hwloc(struct tutti_topo *topo, const char *synthetic)
{
    (void)topo, (void)synthetic;
    return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                      "this tutti was built without hwloc: install libhwloc-dev and build again");
}
