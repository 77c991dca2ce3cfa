/* SPDX-License-Identifier: BSD-3-Clause */

/* Hardware queues of streams. The driver gives a stream one for kernels, and one for copies each way, when something
 * of the kind is first enqueued on it, and two threads that come to that at the same time can get the same one, however
 * many are free (driver 580: two threads one time in ten, eight nearly always). What is on a queue waits for what is
 * ahead of it, so two ranks that are threads of a process and share a device then wait for one another until their
 * deadline. Hence threads enqueue one at a time what may be the first of its kind on a stream. */

#include "device/cuda/driver.h"

#include <string.h>

#define KNOWN 8 /* streams that a thread remembers, of each use */
#define PATIENCE_NS (10 * TUTTI_NS_PER_MS)

static _Atomic uint32_t n_made; /* streams, by tutti: a new one may have the handle of one that was destroyed */

static _Thread_local struct {
    uint32_t n_made; /* as many were when it was last looked at */
    struct {
        void *streams[KNOWN];
        unsigned next;
    } of[CUDA_N_USES];
} known;

static bool is_known(enum cuda_use use, void *stream)
{
    const uint32_t n = atomic_load_explicit(&n_made, memory_order_relaxed);
    if (known.n_made != n) memset(&known, 0, sizeof known), known.n_made = n;
    for (unsigned i = 0; i < KNOWN; i++)
        if (known.of[use].streams[i] == stream) return true;
    return false;
}

/* The driver keeps who enqueues waiting where a queue is full, until peers have come, maybe those that wait here: so
 * not for long, of each who has the lock. */
static bool lock_soon(struct cuda_gpu *gpu)
{
    uint32_t turns;
    do {
        turns = atomic_load(&gpu->queue_turns);
        if (tutti_mutex_lock_within(&gpu->queues, PATIENCE_NS)) return true;
    } while (atomic_load(&gpu->queue_turns) != turns);
    return false;
}

bool cuda_queue_begin(struct tutti_device *gpu, void *stream, enum cuda_use use)
{
    /* Copies go either way, and the stream does not say which it has known. */
    if (use != CUDA_USE_COPY) {
        uint64_t capture = 0;
        if (is_known(use, stream)) return false;
        if (tutti_cuda_capturing(gpu, stream, &capture) == TUTTI_OK && capture) return false; /* nothing is enqueued */
        known.of[use].streams[known.of[use].next++ % KNOWN] = stream;
    }
    return lock_soon(cuda_gpu_of(gpu));
}

void cuda_queue_end(struct tutti_device *gpu, bool locked)
{
    if (!locked) return;
    atomic_fetch_add(&cuda_gpu_of(gpu)->queue_turns, 1);
    pthread_mutex_unlock(&cuda_gpu_of(gpu)->queues);
}

void cuda_queue_made(void)
{
    atomic_fetch_add(&n_made, 1);
}
