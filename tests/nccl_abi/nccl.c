/* SPDX-License-Identifier: BSD-3-Clause */
/* The library and the driver as tests open them, ranks as threads, and numbers of all types. */
#include "nccl_abi/nccl.h"

#include "test.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- the library ---- */

struct nccl nccl;
void *nccl_library;

static void find(void *library, const char *name, void *out)
{
    void *symbol = dlsym(library, name);
    if (!symbol) {
        fprintf(stderr, "there is no %s: %s\n", name, dlerror());
        exit(1);
    }
    memcpy(out, &symbol, sizeof symbol);
}

void nccl_open(void)
{
    nccl_library = dlopen(TEST_NCCL, RTLD_NOW | RTLD_LOCAL);
    if (!nccl_library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
#define NCCL_FIND(name, result, parameters) find(nccl_library, "nccl" #name, &nccl.name);
    NCCL_CALLED(NCCL_FIND)
#undef NCCL_FIND
}

/* ---- the driver ---- */

struct driver driver;

void driver_open(void)
{
    const char *named = getenv("TUTTI_CUDA_DRIVER");
    void *library = dlopen(named && *named ? named : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const struct {
        const char *name;
        void *at;
    } calls[] = {
        {"cuInit", &driver.init},
        {"cuDeviceGetCount", &driver.count},
        {"cuDevicePrimaryCtxRetain", &driver.retain},
        {"cuDevicePrimaryCtxRelease_v2", &driver.release},
        {"cuCtxSetCurrent", &driver.current},
        {"cuMemAlloc_v2", &driver.alloc},
        {"cuMemFree_v2", &driver.free},
        {"cuMemHostAlloc", &driver.alloc_host},
        {"cuMemFreeHost", &driver.free_host},
        {"cuMemcpyAsync", &driver.copy},
        {"cuStreamCreate", &driver.stream_create},
        {"cuStreamDestroy_v2", &driver.stream_destroy},
        {"cuStreamSynchronize", &driver.stream_sync},
        {"cuStreamBeginCapture_v2", &driver.capture_begin},
        {"cuStreamEndCapture", &driver.capture_end},
        {"cuGraphInstantiateWithFlags", &driver.instantiate},
        {"cuGraphLaunch", &driver.launch},
        {"cuGraphDestroy", &driver.graph_destroy},
        {"cuGraphExecDestroy", &driver.exec_destroy},
    };
    if (!library) return;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) find(library, calls[i].name, calls[i].at);
    driver.here = driver.init(0) == 0 && driver.count(&driver.n) == 0 && driver.n > 0;
}

void *device_alloc(size_t bytes)
{
    uint64_t address = 0;
    return driver.alloc(&address, bytes) == 0 ? (void *)(uintptr_t)address : NULL;
}

/* Ranks that share a device share what carries out its copies: one that waits behind a call would keep those of a peer
 * waiting that the call waits for. So the stream is idle before. */
static bool copy(const struct rank *rank, uint64_t to, uint64_t from, size_t bytes)
{
    return driver.stream_sync(rank->stream) == 0 && driver.copy(to, from, bytes, rank->stream) == 0 &&
           driver.stream_sync(rank->stream) == 0;
}

/* The driver may give streams of threads that first use them at the same time the same queue. */
static bool stream_open(struct rank *rank)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    unsigned char word[8] = {0};
    void *device = device_alloc(sizeof word);
    pthread_mutex_lock(&lock);
    const bool made = device && driver.stream_create(&rank->stream, 1) == 0 &&
                      device_write(rank, device, word, sizeof word) && device_read(rank, word, device, sizeof word);
    pthread_mutex_unlock(&lock);
    driver.free((uint64_t)(uintptr_t)device);
    return made;
}

/* The driver may wait for all of the device, and whoever calls it in the meantime for the driver. */
bool device_free(struct rank *rank, size_t n, void *const memory[])
{
    bool freed = driver.stream_sync(rank->stream) == 0;
    if (rank->all) ranks_meet(rank);
    for (size_t i = 0; i < n; i++) freed = driver.free((uint64_t)(uintptr_t)memory[i]) == 0 && freed;
    return freed;
}

bool device_read(struct rank *rank, void *host, const void *device, size_t bytes)
{
    return copy(rank, (uint64_t)(uintptr_t)host, (uint64_t)(uintptr_t)device, bytes);
}

bool device_write(struct rank *rank, void *device, const void *host, size_t bytes)
{
    return copy(rank, (uint64_t)(uintptr_t)device, (uint64_t)(uintptr_t)host, bytes);
}

/* ---- ranks ---- */

struct ranks {
    pthread_barrier_t meeting;
    rank_function function;
    bool made;
};
static _Atomic unsigned n_failures;

void rank_fail(const char *file, int line, int rank, const char *claim, const char *sentence)
{
    fprintf(stderr, "%s:%d: rank %d: %s: %s\n", file, line, rank, claim, sentence);
    atomic_fetch_add(&n_failures, 1);
}

bool ranks_can_fork(void)
{
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
    return false;
#endif
#elif defined(__SANITIZE_THREAD__)
    return false;
#endif
    return true;
}

void ranks_meet(struct rank *rank)
{
    pthread_barrier_wait(&rank->all->meeting);
}

static void in_comm(struct rank *rank)
{
    if (!rank->all->made) {
        rank->all->function(rank);
        return;
    }
    CHECK_OK(rank, nccl.CommInitRank(&rank->comm, rank->n, rank->id, rank->index));
    rank->all->function(rank);
    if (rank->comm) CHECK_OK(rank, nccl.CommDestroy(rank->comm));
}

static void on_device(struct rank *rank)
{
    const int device = rank->index % driver.n;
    void *context = NULL;
    CHECK(rank, driver.retain(&context, device) == 0 && driver.current(context) == 0);
    CHECK(rank, stream_open(rank));
    ranks_meet(rank);
    in_comm(rank);
    CHECK(rank, driver.stream_destroy(rank->stream) == 0);
}

static void *rank_thread(void *arg)
{
    struct rank *rank = arg;
    if (driver.here)
        on_device(rank);
    else
        in_comm(rank);
    atomic_store(&rank->returned, true);
    return NULL;
}

/* Nothing takes seconds on a device; the stand-in is slow, more so under a sanitizer. */
unsigned ranks_deadline_s(void)
{
    return getenv("TUTTI_CUDA_DRIVER") || !driver.here ? 200 : 20;
}

static void ranks_wait(struct rank *ranks, int n)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < n;) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (atomic_load(&ranks[i].returned))
            i++;
        else if (now.tv_sec - begin.tv_sec > (time_t)ranks_deadline_s())
            break;
        else
            nanosleep(&nap, NULL);
        if (i == n) return;
    }
    for (int i = 0; i < n; i++)
        if (!atomic_load(&ranks[i].returned))
            fprintf(stderr, "rank %d of %d did not return within %u s: it is at %s or behind\n", i, n,
                    ranks_deadline_s(), atomic_load(&ranks[i].at));
    _exit(1);
}

unsigned ranks_run(int n, bool made, rank_function function, void *arg)
{
    struct ranks all = {.function = function, .made = made};
    struct rank ranks[16];
    pthread_t threads[16];
    unique_id id;
    atomic_store(&n_failures, 0);
    pthread_barrier_init(&all.meeting, NULL, (unsigned)n);
    if (nccl.GetUniqueId(&id) != OK) return 1;
    for (int i = 0; i < n; i++) {
        ranks[i] = (struct rank){.index = i, .n = n, .id = id, .arg = arg, .all = &all, .at = "its start"};
        pthread_create(&threads[i], NULL, rank_thread, &ranks[i]);
    }
    ranks_wait(ranks, n);
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&all.meeting);
    return atomic_load(&n_failures);
}

void scene_play(void **scene)
{
    const struct scene *s = *scene;
    assert_int_equal(ranks_run(s->n, s->made, s->main, NULL), 0);
}

/* ---- numbers ---- */

static const struct {
    size_t bytes;
    int mantissa, bias; /* 0: an integer */
} types[N_TYPES] = {
    [INT8] = {1, 0, 0},        [UINT8] = {1, 0, 0},      [INT32] = {4, 0, 0},     [UINT32] = {4, 0, 0},
    [INT64] = {8, 0, 0},       [UINT64] = {8, 0, 0},     [FLOAT16] = {2, 10, 15}, [FLOAT32] = {4, 23, 127},
    [FLOAT64] = {8, 52, 1023}, [BFLOAT16] = {2, 7, 127}, [E4M3] = {1, 3, 7},      [E5M2] = {1, 2, 15},
};

size_t type_bytes(int type)
{
    return types[type].bytes;
}

void number_put(int type, void *array, size_t i, int value)
{
    uint64_t bits = (uint64_t)value;
    if (types[type].mantissa && value) {
        const int log = 31 - __builtin_clz((unsigned)value);
        const uint64_t fraction = (uint64_t)value ^ (UINT64_C(1) << log);
        const uint64_t shifted = log <= types[type].mantissa ? fraction << (types[type].mantissa - log)
                                                             : fraction >> (log - types[type].mantissa);
        bits = (uint64_t)(log + types[type].bias) << types[type].mantissa | shifted;
    }
    memcpy((char *)array + i * types[type].bytes, &bits, types[type].bytes);
}

double number_get(int type, const void *array, size_t i)
{
    const int mantissa = types[type].mantissa;
    uint64_t bits = 0;
    memcpy(&bits, (const char *)array + i * types[type].bytes, types[type].bytes);
    if (!mantissa || !bits) return (double)bits;
    const int log = (int)(bits >> mantissa) - types[type].bias;
    return ldexp((double)(bits & ((UINT64_C(1) << mantissa) - 1)) / (double)(UINT64_C(1) << mantissa) + 1, log);
}

/* ---- ranks, seen from outside ---- */

int members(comm_t comm, int index)
{
    int word = 1 << index, sum = -1;
    return nccl.AllReduce(&word, &sum, 1, INT32, SUM, comm, NULL) == OK ? sum : -1;
}
