/* SPDX-License-Identifier: BSD-3-Clause */
/* How unequal ranks are: delays of every rank in every step by distributions, and of each step the last rank that
 * others wait for, which is the slowest unless some may be dropped. */

#include "sim/job.h"

#include <math.h>

/* Above 0, at most 1. */
static double uniform(uint64_t *state)
{
    return (double)((tutti_random64(state) >> 11) + 1) * 0x1p-53;
}

static double gaussian(uint64_t *state)
{
    double radius = sqrt(-2 * log(uniform(state)));
    return radius * cos(6.283185307179586 * uniform(state));
}

static double one_noise(const struct tutti_job *job, const struct tutti_job_noise *noise, uint64_t *state)
{
    switch (noise->kind) {
    case TUTTI_JOB_GAUSSIAN:
        return noise->amount * gaussian(state);
    case TUTTI_JOB_EXPONENTIAL:
        return -noise->amount * log(uniform(state));
    case TUTTI_JOB_SPIKES:
        return uniform(state) <= noise->probability ? noise->amount : 0;
    case TUTTI_JOB_TRACE:
        return job->n_samples ? job->samples[tutti_random64(state) % job->n_samples] : 0;
    }
    return 0;
}

static double delay_of(const struct tutti_job *job, uint32_t rank, double compute_s, uint64_t *state)
{
    double seconds = 0;
    for (uint32_t i = 0; i < job->n_noises; i++) {
        double one = one_noise(job, &job->noises[i], state);
        seconds += job->noises[i].relative ? one * compute_s : one;
    }
    uint64_t always = tutti_mix64(job->seed ^ tutti_mix64(rank + UINT64_C(1)));
    if (job->slow_share > 0 && uniform(&always) <= job->slow_share) seconds += (job->slow_factor - 1) * compute_s;
    return seconds > -compute_s ? seconds : -compute_s;
}

/* The k-th of n numbers in ascending order, k from 0; they change places (Hoare's quickselect). */
static double kth(double *x, uint32_t n, uint32_t k)
{
    uint32_t low = 0, high = n - 1;
    while (low < high) {
        double pivot = x[low + (high - low) / 2];
        uint32_t i = low, j = high;
        for (;; i++, j--) {
            while (x[i] < pivot) i++;
            while (x[j] > pivot) j--;
            if (i >= j) break;
            double other = x[i];
            x[i] = x[j];
            x[j] = other;
        }
        if (k <= j)
            high = j;
        else
            low = j + 1;
    }
    return x[k];
}

enum tutti_status tutti_job_delays(const struct tutti_job *job, uint32_t n_ranks, double compute_s, double *delays)
{
    uint32_t dropped = (uint32_t)(job->drop * n_ranks), awaited = n_ranks - 1 - (dropped < n_ranks ? dropped : 0);
    double *all = dropped > 0 ? tutti_alloc_array(n_ranks, sizeof(*all)) : NULL;
    if (dropped > 0 && !all) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the delays of %u ranks", n_ranks);
    for (uint32_t step = 0; step < job->steps; step++) {
        uint64_t state = tutti_mix64(job->seed + (UINT64_C(1) << 32)) ^ tutti_mix64(step);
        double most = -compute_s;
        for (uint32_t rank = 0; rank < n_ranks; rank++) {
            double one = delay_of(job, rank, compute_s, &state);
            if (all) all[rank] = one;
            if (one > most) most = one;
        }
        delays[step] = all ? kth(all, n_ranks, awaited) : most;
    }
    tutti_free(all);
    return TUTTI_OK;
}
