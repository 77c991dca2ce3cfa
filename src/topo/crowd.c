/* SPDX-License-Identifier: BSD-3-Clause */

/* Whether ranks are crowded: there are more ranks than CPUs for them, so a rank that spins may keep another from
 * answering it. Each rank gets a CPU of its own as far as that goes (a matching of ranks to CPUs). The answer is exact
 * for any masks: each rank bound, all free, or some of both. Linear in the number of ranks unless ranks have to move
 * for others. */

#include "topo/topo.h"

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
