/* SPDX-License-Identifier: BSD-3-Clause */

/* The job that `tutti info --job` is started in: its ranks meet as those of a program would, and what they agree on is
 * told: crowding, places, back ends and the memory that they take. */

#include "info.h"

#include "comm/call/device.h"
#include "comm/comm.h"
#include "transport/host/segment.h"

#include <string.h>

#define PATIENCE_NS (10 * TUTTI_NS_PER_S)

static const char job[] = "job";

static void domains_gather(struct info *info, const struct tutti_facts *facts)
{
    static const char *const names[TUTTI_TOPO_N_LEVELS] = {
        [TUTTI_TOPO_PACKAGE] = "by_package", [TUTTI_TOPO_NODE] = "by_numa_node", [TUTTI_TOPO_L3] = "by_l3_group"};
    for (enum tutti_topo_level level = 0; level < TUTTI_TOPO_N_LEVELS; level++) {
        const struct tutti_domains *domains = &facts->domains[level];
        if (domains->n == 0)
            info_text(info, job, names[level], "but one, or not alike, or ranks that may be in several", "no domains");
        else
            info_text(info, job, names[level], domains->cyclic ? "ranks take turns" : "ranks follow one another",
                      "%u domains of %u ranks", domains->n, domains->size);
    }
}

static void staging_gather(struct info *info, const struct tutti_comm *comm)
{
    const uint32_t n = comm->family->world.n;
    const uint64_t rings = (uint64_t)(n - 1) * tutti_segment_ring_bytes(n, tutti_rings_staging(info->config));
    const uint64_t backend = comm->backend ? comm->backend->ops->memory_used(comm->backend) : 0;
    info_text(info, job, "back_end", NULL, "%s", comm->backend ? comm->backend->ops->name : "none");
    info_bytes(info, job, "staging_of_back_end", "of each rank", backend);
    info_bytes(info, job, "staging_of_rings", "of each rank, as far as pairs send messages", rings);
    info_bytes(info, job, "staging", "of each rank, at most", backend + rings);
}

static void comm_gather(struct info *info, const struct tutti_comm *comm)
{
    const struct tutti_facts *facts = &comm->facts;
    info_number(info, job, "ranks", NULL, (uint64_t)comm->size);
    info_text(info, job, "transport", NULL, "%s", comm->family->world.transport->name);
    info_number(info, job, "ranks_of_a_host", NULL, facts->n_host);
    info_number(info, job, "cpus_of_a_rank", "the least that one may use", facts->min_cpus);
    info_flag(info, job, "crowded",
              facts->crowded ? "ranks outnumber the CPUs that they may use: they sleep where they would spin"
                             : "each rank can have a CPU of its own",
              facts->crowded);
    domains_gather(info, facts);
    staging_gather(info, comm);
}

/* As a program would that gives its ranks the devices in turns. */
static void device_gather(struct info *info, struct tutti_comm *comm, bool speaks)
{
    const int32_t n = (int32_t)tutti_device_kind()->count();
    const int32_t mine = n > 0 ? tutti_comm_rank(comm) % n : TUTTI_DEVICE_NONE;
    const enum tutti_status status = tutti_comm_set_device(comm, mine);
    const struct tutti_comm_device *device = comm->device;
    char names[200] = "none";
    uint64_t scratch = 0;
    if (!speaks) return;
    if (status < 0) snprintf(names, sizeof names, "none: %.180s", tutti_last_error()->text);
    for (uint32_t b = 0; device && b < device->n; b++) {
        if (b == 0) names[0] = '\0';
        tutti_append(names, sizeof names, "%s%s", b ? ", " : "", device->backends[b]->ops->name);
        scratch += device->backends[b]->ops->memory_used(device->backends[b]);
    }
    info_text(info, job, "device_back_ends", NULL, "%s", names);
    info_bytes(info, job, "scratch_of_device", "of each rank's device", scratch);
}

bool info_job_gather(struct info *info, bool *speaks)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    const uint64_t patience = info->config->number[TUTTI_OPT_timeout_create];
    struct tutti_launch launch;
    struct tutti_comm *comm = NULL;
    if (tutti_launch_read(info->config, &launch) >= 0) info_text(info, job, "launcher", NULL, "%s", launch.launcher);
    config.name = "tutti info";
    config.timeout_ns = patience < PATIENCE_NS ? patience : PATIENCE_NS;
    if (tutti_comm_create(NULL, &config, &comm) < 0) {
        info_text(info, job, "meeting", NULL, "%s", tutti_last_error()->text);
        return false;
    }
    *speaks = tutti_comm_rank(comm) == 0;
    if (*speaks) comm_gather(info, comm);
    device_gather(info, comm, *speaks);
    tutti_comm_destroy(comm);
    return true;
}
