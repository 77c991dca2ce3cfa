/* SPDX-License-Identifier: BSD-3-Clause */

/* Hardware queues of streams. The driver gives a stream one for kernels, and one for copies each way, when something
 * of the kind is first enqueued on it, and two threads that come to that at the same time can get the same one, however
 * many are free (driver 580: two threads one time in ten, eight nine times in ten). What is on a queue waits for what
 * is ahead of it, so two ranks that are threads of a process and share a device then wait for one another for ever.
 * Hence threads enqueue one at a time what may be the first of its kind on a stream. */

#include "device/cuda/driver.h"

#include <time.h>

#define KNOWN 8 /* streams of a thread that it remembers, of each use */
#define PATIENCE_NS (10 * TUTTI_NS_PER_MS)

struct known {
    void *streams[KNOWN];
    unsigned next;
};

static _Thread_local struct known known[CUDA_N_USES];

static bool is_known(struct known *of_use, void *stream)
{
    for (unsigned i = 0; i < KNOWN; i++)
        if (of_use->streams[i] == stream) return true;
    of_use->streams[of_use->next++ % KNOWN] = stream;
    return false;
}

/* The driver keeps who enqueues waiting where a queue is full, until peers have come, maybe those that wait here: so
 * not for long. */
static bool lock_soon(pthread_mutex_t *mutex)
{
    struct timespec until;
    if (pthread_mutex_trylock(mutex) == 0) return true;
    clock_gettime(CLOCK_REALTIME, &until); /* as timedlock wants it */
    until.tv_nsec += PATIENCE_NS;
    until.tv_sec += until.tv_nsec / (long)TUTTI_NS_PER_S;
    until.tv_nsec %= (long)TUTTI_NS_PER_S;
    return pthread_mutex_timedlock(mutex, &until) == 0;
}

bool cuda_queue_begin(struct tutti_gpu *gpu, void *stream, enum cuda_use use)
{
    /* Copies go either way, and the stream does not say which it has known. */
    if (use != CUDA_USE_COPY && is_known(&known[use], stream)) return false;
    return lock_soon(&cuda_gpu_of(gpu)->queues);
}

void cuda_queue_end(struct tutti_gpu *gpu, bool locked)
{
    if (locked) pthread_mutex_unlock(&cuda_gpu_of(gpu)->queues);
}

void cuda_queue_forget(void)
{
    for (unsigned use = 0; use < CUDA_N_USES; use++) known[use] = (struct known){.next = 0};
}
