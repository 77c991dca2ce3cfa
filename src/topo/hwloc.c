/* SPDX-License-Identifier: BSD-3-Clause */

/* The topology as hwloc tells it, which knows hosts that /sys describes in odd ways: caches from firmware tables,
 * memory without CPUs, groups of cores that share what no file mentions. */

#include "topo/source.h"

#include <hwloc.h>

const char *tutti_topo_hwloc(void)
{
    return "hwloc " HWLOC_VERSION;
}

/* The group's number, or `otherwise` where the CPU has none of this type. */
static uint32_t group_of(hwloc_topology_t host, hwloc_obj_t cpu, hwloc_obj_type_t type, uint32_t otherwise)
{
    const struct hwloc_obj *group = hwloc_get_ancestor_obj_by_type(host, type, cpu);
    return group ? group->logical_index : otherwise;
}

/* The node with the fewest CPUs beside this one: memory without CPUs of its own is near a whole package, or all. */
static uint32_t node_of(hwloc_topology_t host, hwloc_obj_t cpu)
{
    hwloc_obj_t node = NULL, nearest = NULL;
    while ((node = hwloc_get_next_obj_by_type(host, HWLOC_OBJ_NUMANODE, node))) {
        if (!hwloc_bitmap_isset(node->cpuset, cpu->os_index)) continue;
        if (!nearest || hwloc_bitmap_weight(node->cpuset) < hwloc_bitmap_weight(nearest->cpuset)) nearest = node;
    }
    return nearest ? nearest->os_index : 0;
}

static void cpu_fill(hwloc_topology_t host, hwloc_obj_t obj, struct tutti_topo_cpu *cpu)
{
    cpu->id = obj->os_index;
    cpu->core = group_of(host, obj, HWLOC_OBJ_CORE, TUTTI_TOPO_UNKNOWN - obj->os_index);
    cpu->l3 = group_of(host, obj, HWLOC_OBJ_L3CACHE, TUTTI_TOPO_UNKNOWN);
    cpu->package = group_of(host, obj, HWLOC_OBJ_PACKAGE, 0);
    cpu->node = node_of(host, obj);
}

static enum tutti_status host_fill(hwloc_topology_t host, struct tutti_topo *topo)
{
    const hwloc_const_bitmap_t online = hwloc_topology_get_topology_cpuset(host);
    const int n = hwloc_bitmap_weight(online);
    if (n <= 0) return tutti_fail(TUTTI_ERR_SYSTEM, "hwloc finds no CPU on this host");
    TUTTI_TRY(tutti_topo_cpus_make(topo, (uint32_t)n));
    struct tutti_topo_cpu *cpu = topo->cpus;
    unsigned id;
    hwloc_bitmap_foreach_begin(id, online) cpu_fill(host, hwloc_get_pu_obj_by_os_index(host, id), cpu++);
    hwloc_bitmap_foreach_end();
    const struct hwloc_obj *l3 = hwloc_get_next_obj_by_type(host, HWLOC_OBJ_L3CACHE, NULL);
    if (l3) topo->l3_bytes = l3->attr->cache.size;
    return TUTTI_OK;
}

enum tutti_status tutti_topo_read_hwloc(struct tutti_topo *topo, const char *synthetic)
{
    hwloc_topology_t host;
    if (hwloc_topology_init(&host) != 0) return tutti_fail_errno(TUTTI_ERR_SYSTEM, "hwloc can not be initialised");
    /* Its x86 part moves the calling thread from CPU to CPU, and tells nothing that Linux would not. */
    hwloc_topology_set_components(host, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
    enum tutti_status status;
    if ((synthetic && hwloc_topology_set_synthetic(host, synthetic) != 0) ||
        hwloc_topology_set_flags(host, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) != 0 || hwloc_topology_load(host) != 0)
        status = tutti_fail_errno(TUTTI_ERR_SYSTEM, "hwloc can not read %s", synthetic ? synthetic : "this host");
    else if (!synthetic && !hwloc_topology_is_thissystem(host)) /* HWLOC_XMLFILE and the like */
        status = tutti_fail(TUTTI_ERR_SYSTEM, "hwloc was told to describe another host than this one");
    else
        status = host_fill(host, topo);
    hwloc_topology_destroy(host);
    return status;
}
