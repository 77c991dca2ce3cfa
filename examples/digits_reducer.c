/* SPDX-License-Identifier: BSD-3-Clause */

/* The reducer cuts the gradient into buckets. As soon as the backward pass has completed a bucket, its average over the
 * ranks starts, in place and asynchronously; the pass goes on meanwhile. All ranks complete buckets in the same order,
 * so all call in the same order. What remains is to wait for at the end, and usually little. */

#include "digits.h"

#include <stdlib.h>
#include <time.h>

uint64_t digits_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

bool reducer_init(struct reducer *reducer, struct tutti_comm *comm, float *gradient, size_t n, size_t bucket)
{
    *reducer = (struct reducer){.comm = comm, .gradient = gradient, .n = n, .bucket = bucket};
    reducer->n_buckets = (n + bucket - 1) / bucket;
    reducer->works = calloc(reducer->n_buckets, sizeof *reducer->works);
    return reducer->works != NULL;
}

void reducer_free(struct reducer *reducer)
{
    free(reducer->works);
    *reducer = (struct reducer){0};
}

void reducer_ready(void *arg, size_t n)
{
    struct reducer *reducer = arg;
    while (reducer->status == TUTTI_OK && reducer->n_started < reducer->n_buckets) {
        size_t first = reducer->n_started * reducer->bucket;
        size_t count = reducer->n - first < reducer->bucket ? reducer->n - first : reducer->bucket;
        if (first + count > n) return;
        float *values = reducer->gradient + first;
        if (reducer->n_started == 0) reducer->started_ns = digits_now_ns();
        reducer->status = tutti_all_reduce(values, values, count, TUTTI_FLOAT32, TUTTI_AVG, reducer->comm, NULL,
                                           &reducer->works[reducer->n_started]);
        if (reducer->status == TUTTI_OK) reducer->n_started++;
    }
}

/* Also after an error every call that was started is waited for: its buffer is not ours before that. */
enum tutti_status reducer_wait(struct reducer *reducer)
{
    enum tutti_status status = reducer->status;
    uint64_t begin = digits_now_ns();
    for (size_t i = 0; i < reducer->n_started; i++) {
        enum tutti_status ended = tutti_work_wait(reducer->works[i], 0);
        tutti_work_free(reducer->works[i]);
        if (status == TUTTI_OK) status = ended;
    }
    uint64_t end = digits_now_ns();
    reducer->waited_ns += end - begin;
    if (reducer->n_started > 0) reducer->flying_ns += end - reducer->started_ns;
    reducer->n_started = 0;
    return status;
}
