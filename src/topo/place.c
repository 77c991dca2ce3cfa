/* SPDX-License-Identifier: BSD-3-Clause */

/* Where ranks are on a host, and whether those of a communicator fill equal parts of it: packages, NUMA nodes or L3
 * caches, inside which data moves faster than between them. */

#include "topo/topo.h"

#include <pthread.h>
#include <stdatomic.h>

#define NOWHERE (-1)

struct tutti_cpu_place tutti_topo_place(const struct tutti_topo *topo, const struct tutti_cpu_set *cpus)
{
    struct tutti_cpu_place place;
    for (enum tutti_topo_level level = 0; level < TUTTI_TOPO_N_LEVELS; level++) {
        int16_t *const group = &place.group[level];
        bool found = false;
        *group = NOWHERE;
        for (uint32_t i = 0; i < topo->n_cpus; i++) {
            if (!tutti_cpu_set_has(cpus, topo->cpus[i].id)) continue;
            const uint32_t its = tutti_topo_group(&topo->cpus[i], level);
            if (its > INT16_MAX || (found && *group != (int16_t)its)) {
                *group = NOWHERE;
                break;
            }
            *group = (int16_t)its;
            found = true;
        }
    }
    return place;
}

enum tutti_status tutti_topo_host(const struct tutti_topo **out)
{
    static struct tutti_topo topo;
    static _Atomic bool ready;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    enum tutti_status status = TUTTI_OK;
    if (!atomic_load_explicit(&ready, memory_order_acquire)) {
        pthread_mutex_lock(&lock);
        if (!ready) status = tutti_topo_init(&topo);
        if (status == TUTTI_OK) atomic_store_explicit(&ready, true, memory_order_release);
        pthread_mutex_unlock(&lock);
    }
    if (status == TUTTI_OK) *out = &topo;
    return status;
}

/* ---- domains ---- */

struct plan {
    const struct tutti_cpu_place *places;
    const uint32_t *members;
    enum tutti_topo_level level;
};

static int16_t place_of(const struct plan *plan, uint32_t slot)
{
    return plan->places[plan->members ? plan->members[slot] : slot].group[plan->level];
}

/* Whether the domains fit the places: all slots of one are where its first is, and no two are at the same place. */
static bool domains_fit(const struct plan *plan, const struct tutti_domains *domains)
{
    if (domains->n < 2 || domains->size < 2) return false;
    for (uint32_t domain = 0; domain < domains->n; domain++) {
        const int16_t here = place_of(plan, tutti_domain_slot(domains, domain, 0));
        if (here == NOWHERE) return false;
        for (uint32_t index = 1; index < domains->size; index++)
            if (place_of(plan, tutti_domain_slot(domains, domain, index)) != here) return false;
        for (uint32_t other = 0; other < domain; other++)
            if (place_of(plan, tutti_domain_slot(domains, other, 0)) == here) return false;
    }
    return true;
}

struct tutti_domains tutti_topo_domains(const struct tutti_cpu_place *places, const uint32_t *members, uint32_t n,
                                        enum tutti_topo_level level)
{
    const struct plan plan = {places, members, level};
    const struct tutti_domains none = {.n = 0};
    uint32_t run = 1, period = 1; /* slots until the first one is elsewhere, and until it is back */
    if (n < 4) return none;
    while (run < n && place_of(&plan, run) == place_of(&plan, 0)) run++;
    while (period < n && place_of(&plan, period) != place_of(&plan, 0)) period++;
    const struct tutti_domains consecutive = {.n = n / run, .size = run};
    const struct tutti_domains cyclic = {.n = period, .size = n / period, .cyclic = true};
    if (n % run == 0 && domains_fit(&plan, &consecutive)) return consecutive;
    if (n % period == 0 && domains_fit(&plan, &cyclic)) return cyclic;
    return none;
}
