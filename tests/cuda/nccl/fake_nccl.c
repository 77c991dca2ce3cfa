/* SPDX-License-Identifier: BSD-3-Clause */
/* A library that calls itself NCCL and moves nothing: calls are over at once, but those of FAKE_NCCL_STUCK elements
 * wait on their stream until the communicator is aborted. For what tutti makes of NCCL's failures. */

#include "fake_nccl.h"

#include "backend/library/nccl.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static struct fake_comm { /* never used again: who waits on a stream looks at it */
    _Atomic bool aborted;
} comms[64];
static _Atomic unsigned n_comms;

static void wait_for_abort(void *arg)
{
    struct fake_comm *comm = arg;
    while (!atomic_load(&comm->aborted)) tutti_sleep_ns(TUTTI_NS_PER_MS);
}

static int run(void *comm, size_t count, void *stream)
{
    const char *named = getenv("TUTTI_CUDA_DRIVER");
    int (*launch_host)(void *stream, void (*function)(void *arg), void *arg);
    if (count != FAKE_NCCL_STUCK) return NCCL_OK;
    void *driver = dlopen(named ? named : "libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *symbol = driver ? dlsym(driver, "cuLaunchHostFunc") : NULL;
    if (!symbol) return 1;
    memcpy(&launch_host, &symbol, sizeof(symbol));
    return launch_host(stream, wait_for_abort, comm) ? 1 : NCCL_OK;
}

#define DECLARE(member, symbol, parameters) EXPORT int symbol parameters;
NCCL_CALLS(DECLARE)
#undef DECLARE

int ncclGetVersion(int *version)
{
    const char *text = getenv("TEST_FAKE_NCCL_VERSION");
    *version = text ? atoi(text) : 23000;
    return NCCL_OK;
}

int ncclGetUniqueId(struct nccl_id *id)
{
    memset(id, 1, sizeof(*id));
    return NCCL_OK;
}

int ncclCommInitRankConfig(void **comm, int n, struct nccl_id id, int rank, const struct nccl_config *config)
{
    (void)n, (void)id, (void)rank, (void)config;
    const unsigned i = atomic_fetch_add(&n_comms, 1);
    if (i >= TUTTI_ARRAY_LEN(comms)) return 1;
    *comm = &comms[i];
    return NCCL_OK;
}

int ncclCommAbort(void *comm)
{
    atomic_store(&((struct fake_comm *)comm)->aborted, true);
    return NCCL_OK;
}

int ncclCommDestroy(void *comm)
{
    return ncclCommAbort(comm);
}

int ncclCommGetAsyncError(void *comm, int *state)
{
    (void)comm;
    *state = NCCL_OK;
    return NCCL_OK;
}

int ncclGroupStart(void)
{
    return NCCL_OK;
}

int ncclGroupEnd(void)
{
    return NCCL_OK;
}

int ncclRedOpCreatePreMulSum(int *op, void *factor, int type, int residence, void *comm)
{
    (void)factor, (void)type, (void)residence, (void)comm;
    *op = 0;
    return NCCL_OK;
}

int ncclRedOpDestroy(int op, void *comm)
{
    (void)op, (void)comm;
    return NCCL_OK;
}

int ncclAllReduce(const void *in, void *out, size_t count, int type, int op, void *comm, void *stream)
{
    (void)in, (void)out, (void)type, (void)op;
    return run(comm, count, stream);
}

int ncclReduce(const void *in, void *out, size_t count, int type, int op, int root, void *comm, void *stream)
{
    (void)in, (void)out, (void)type, (void)op, (void)root;
    return run(comm, count, stream);
}

int ncclBroadcast(const void *in, void *out, size_t count, int type, int root, void *comm, void *stream)
{
    (void)in, (void)out, (void)type, (void)root;
    return run(comm, count, stream);
}

int ncclAllGather(const void *in, void *out, size_t count, int type, void *comm, void *stream)
{
    (void)in, (void)out, (void)type;
    return run(comm, count, stream);
}

int ncclReduceScatter(const void *in, void *out, size_t count, int type, int op, void *comm, void *stream)
{
    (void)in, (void)out, (void)type, (void)op;
    return run(comm, count, stream);
}

int ncclSend(const void *in, size_t count, int type, int peer, void *comm, void *stream)
{
    (void)in, (void)type, (void)peer;
    return run(comm, count, stream);
}

int ncclRecv(void *out, size_t count, int type, int peer, void *comm, void *stream)
{
    (void)out, (void)type, (void)peer;
    return run(comm, count, stream);
}

EXPORT const char *ncclGetErrorString(int result);
const char *ncclGetErrorString(int result)
{
    return result == NCCL_OK ? "no error" : "a fake error";
}

EXPORT const char *ncclGetLastError(void *comm);
const char *ncclGetLastError(void *comm)
{
    (void)comm;
    return "";
}
