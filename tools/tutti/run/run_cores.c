/* SPDX-License-Identifier: BSD-3-Clause */

/* Which CPUs each rank is bound to: none in particular, all that are allowed spread over the ranks so that a rank keeps
 * whole cores and neighbours share caches, or those of a list. */

#include "run.h"

#include "topo/topo.h"

#include <string.h>

#define MAX_LIST 4096

void run_cores_split(size_t n, uint32_t n_ranks, uint32_t rank, size_t *first, size_t *count)
{
    const size_t begin = (size_t)((unsigned __int128)n * rank / n_ranks);
    const size_t end = (size_t)((unsigned __int128)n * (rank + 1u) / n_ranks);
    *first = begin;
    *count = end > begin ? end - begin : 1;
}

static bool set_add(cpu_set_t *set, uint32_t cpu)
{
    if (cpu >= CPU_SETSIZE) return false;
    CPU_SET(cpu, set);
    return true;
}

/* In order of the list, which may well be out of order. */
static bool bind_list(struct run_options *options, const struct tutti_topo *topo, uint32_t *ids)
{
    const size_t n = tutti_topo_list_parse(options->cores, ids, MAX_LIST);
    if (n == SIZE_MAX || n == 0) {
        run_say("--cores %s is no list of CPUs: write spread, none, or a list such as 0-3,8", options->cores);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const struct tutti_topo_cpu *cpu = tutti_topo_cpu(topo, ids[i]);
        if (cpu && cpu->allowed && ids[i] < CPU_SETSIZE) continue;
        uint32_t usable[CPU_SETSIZE];
        char text[256];
        size_t n_usable = 0;
        for (uint32_t k = 0; k < topo->n_cpus && n_usable < CPU_SETSIZE; k++)
            if (topo->cpus[k].allowed) usable[n_usable++] = topo->cpus[k].id;
        run_say("--cores %s: CPU %u %s; there are %s", options->cores, ids[i],
                cpu ? "may not be used by this process" : "does not exist or is offline",
                tutti_topo_list_format(usable, n_usable, text, sizeof text));
        return false;
    }
    for (uint32_t rank = 0; rank < options->n_ranks; rank++) {
        size_t first, count;
        run_cores_split(n, options->n_ranks, rank, &first, &count);
        for (size_t i = 0; i < count; i++) set_add(&options->cpus[rank], ids[first + i]);
    }
    return true;
}

/* By cores while there are as many as ranks, else by hardware threads. */
static bool bind_spread(struct run_options *options, const struct tutti_topo *topo, uint32_t *order)
{
    const size_t n = tutti_topo_order(topo, order);
    size_t n_cores = 0;
    for (size_t i = 0; i < n; i++) n_cores += i == 0 || topo->cpus[order[i]].core != topo->cpus[order[i - 1]].core;
    const bool whole_cores = options->n_ranks <= n_cores;
    for (uint32_t rank = 0; rank < options->n_ranks; rank++) {
        size_t first, count, unit = 0;
        run_cores_split(whole_cores ? n_cores : n, options->n_ranks, rank, &first, &count);
        for (size_t i = 0; i < n; i++) {
            if (i && (!whole_cores || topo->cpus[order[i]].core != topo->cpus[order[i - 1]].core)) unit++;
            if (unit >= first && unit < first + count) set_add(&options->cpus[rank], topo->cpus[order[i]].id);
        }
    }
    return true;
}

bool run_cores_read(struct run_options *options)
{
    struct tutti_topo topo;
    bool ok = false;
    if (strcmp(options->cores, "none") == 0) return true;
    if (tutti_topo_init(&topo) < 0) {
        run_say("--cores %s: %s", options->cores, tutti_last_error()->text);
        return false;
    }
    uint32_t *ids = tutti_alloc_array(topo.n_cpus > MAX_LIST ? topo.n_cpus : MAX_LIST, sizeof *ids);
    options->cpus = tutti_alloc_array(options->n_ranks, sizeof *options->cpus);
    if (!ids || !options->cpus) {
        run_say("out of memory");
    } else if (strcmp(options->cores, "spread") == 0) {
        ok = bind_spread(options, &topo, ids);
    } else {
        ok = bind_list(options, &topo, ids);
    }
    tutti_free(ids);
    tutti_topo_fini(&topo);
    return ok;
}
