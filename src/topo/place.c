/* SPDX-License-Identifier: BSD-3-Clause */

/* Places of ranks on their host, and whether they are crowded. */

#include "topo/topo.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- places ---- */

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

/* ---- crowds ---- */

#define N_WORDS (TUTTI_CPU_SET_BITS / 64)

struct seats {
    const struct tutti_allowance *first;
    size_t stride;
    struct tutti_cpu_set taken;
    uint16_t owner[TUTTI_CPU_SET_BITS]; /* CPU -> the rank that has it */
    uint16_t held[TUTTI_CPU_SET_BITS];  /* rank -> the CPU that it has */
    uint16_t via[TUTTI_CPU_SET_BITS];   /* CPU -> the rank that would take it from its owner */
    uint16_t queue[TUTTI_CPU_SET_BITS]; /* ranks that would move */
};

static const struct tutti_allowance *allowance(const struct tutti_allowance *first, size_t stride, uint32_t rank)
{
    return (const struct tutti_allowance *)(const void *)((const char *)first + rank * stride);
}

/* The rank takes the CPU; what it leaves goes to the rank that wanted it, and so on to the newcomer. */
static void chain_move(struct seats *seats, uint32_t rank, uint32_t cpu, uint32_t newcomer)
{
    seats->taken.words[cpu / 64] |= UINT64_C(1) << cpu % 64;
    for (;;) {
        const uint32_t left = seats->held[rank];
        seats->owner[cpu] = (uint16_t)rank;
        seats->held[rank] = (uint16_t)cpu;
        if (rank == newcomer) return;
        cpu = left;
        rank = seats->via[cpu];
    }
}

/* Breadth first over the CPUs that become free when their owners move. False: there is none. */
static bool seat_find(struct seats *seats, uint32_t newcomer)
{
    struct tutti_cpu_set seen = {.words = {0}};
    uint32_t n_queued = 1;
    seats->queue[0] = (uint16_t)newcomer;
    for (uint32_t next = 0; next < n_queued; next++) {
        const uint32_t rank = seats->queue[next];
        const struct tutti_cpu_set *cpus = &allowance(seats->first, seats->stride, rank)->cpus;
        for (uint32_t word = 0; word < N_WORDS; word++) {
            uint64_t fresh = cpus->words[word] & ~seen.words[word];
            const uint64_t open = fresh & ~seats->taken.words[word];
            if (open) {
                chain_move(seats, rank, word * 64 + (uint32_t)__builtin_ctzll(open), newcomer);
                return true;
            }
            seen.words[word] |= fresh;
            for (; fresh; fresh &= fresh - 1) {
                const uint32_t cpu = word * 64 + (uint32_t)__builtin_ctzll(fresh);
                seats->via[cpu] = (uint16_t)rank;
                seats->queue[n_queued++] = seats->owner[cpu];
            }
        }
    }
    return false;
}

/* Some quota pays for fewer CPUs than there are ranks that live on it. */
static bool quota_exceeded(const struct tutti_allowance *first, size_t stride, uint32_t n)
{
    for (uint32_t rank = 0; rank < n; rank++) {
        const struct tutti_allowance *its = allowance(first, stride, rank);
        if (its->quota >= n) continue;
        uint32_t n_sharers = 0;
        for (uint32_t other = 0; other < n && n_sharers <= its->quota; other++)
            n_sharers += allowance(first, stride, other)->payer == its->payer;
        if (n_sharers > its->quota) return true;
    }
    return false;
}

bool tutti_topo_crowded(const struct tutti_allowance *first, size_t stride, uint32_t n)
{
    struct seats seats = {.first = first, .stride = stride};
    struct tutti_cpu_set all = {.words = {0}};
    for (uint32_t rank = 0; rank < n; rank++)
        for (uint32_t word = 0; word < N_WORDS; word++)
            all.words[word] |= allowance(first, stride, rank)->cpus.words[word];
    if (n > tutti_cpu_set_count(&all) || quota_exceeded(first, stride, n)) return true;
    for (uint32_t rank = 0; rank < n; rank++)
        if (!seat_find(&seats, rank)) return true;
    return false;
}
