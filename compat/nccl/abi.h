/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_NCCL_ABI_H
#define TUTTI_NCCL_ABI_H

/* NCCL's binary interface as of 2.30.7, in declarations of our own: what has to have NCCL's number, size or name, and
 * the one table of the functions that the library exports. Enumerations travel as int, streams as void pointers. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NCCL_VERSION 23007

enum nccl_result {
    NCCL_SUCCESS,
    NCCL_UNHANDLED_CUDA_ERROR,
    NCCL_SYSTEM_ERROR,
    NCCL_INTERNAL_ERROR,
    NCCL_INVALID_ARGUMENT,
    NCCL_INVALID_USAGE,
    NCCL_REMOTE_ERROR,
    NCCL_IN_PROGRESS,
    NCCL_TIMEOUT,
    NCCL_N_RESULTS
};
enum nccl_op { NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN, NCCL_AVG, NCCL_N_OPS }; /* from N_OPS on: handles */
enum nccl_residence { NCCL_SCALAR_DEVICE, NCCL_SCALAR_HOST };

#define NCCL_CONFIG_MAGIC 0xcafebeefU
#define NCCL_SIMULATION_MAGIC 0x74685283U
#define NCCL_UNDEFINED INT32_MIN
#define NCCL_NO_COLOUR (-1)
#define NCCL_WINDOW_SYMMETRIC 1
#define NCCL_WINDOW_FLAGS 15 /* all that are known */
#define NCCL_SHRINK_ABORT 1
#define NCCL_SUSPEND_MEMORY 1

struct nccl_id {
    char bytes[128];
};
/* Grows by version; who reads it looks at size and version. */
struct nccl_config {
    size_t size;
    uint32_t magic, version;
    int blocking, cluster, min_ctas, max_ctas;
    const char *net_name;
    int split_share, traffic_class;
    const char *comm_name;
    int collnet, cta_policy, shrink_share, nvls_ctas;
    int channels_per_peer, nvlink_centric;
    int graph_usage, n_rma_contexts;
    int max_p2p_peers, graph_stream_ordering;
};
struct nccl_simulation {
    size_t size;
    uint32_t magic, version;
    float time_us;
};
struct nccl_wait {
    int n, peer, signal, context;
};
struct nccl_properties {
    size_t size;
    uint32_t magic, version;
    int rank, n_ranks, device, nvml_device;
    bool device_api, multimem;
    int gin;
    int n_lsa_teams; /* from 2.29.3 on, as what follows */
    bool host_rma;
    int railed_gin;
};
struct nccl_team {
    int n_ranks, rank, stride;
};
struct nccl_multimem {
    void *base; /* never filled here */
};
_Static_assert(sizeof(struct nccl_config) == 96, "NCCL's size");
_Static_assert(sizeof(struct nccl_simulation) == 24, "NCCL's size");
_Static_assert(sizeof(struct nccl_properties) == 56, "NCCL's size");

struct ncclComm;
struct ncclWindow;
struct ncclParamHandle;

/* X(type, name, parameters): nccl<name>, which a profiler may define itself, and its strong twin pnccl<name>. */
#define NCCL_FUNCTIONS_OF_COMMUNICATORS(X)                                                                             \
    X(int, GetVersion, (int *version))                                                                                 \
    X(int, GetUniqueId, (struct nccl_id * id))                                                                         \
    X(const char *, GetErrorString, (int result))                                                                      \
    X(const char *, GetLastError, (struct ncclComm * comm))                                                            \
    X(void, ResetDebugInit, (void))                                                                                    \
    X(int, CommInitRank, (struct ncclComm * *out, int n_ranks, struct nccl_id id, int rank))                           \
    X(int, CommInitAll, (struct ncclComm * *out, int n, const int *devices))                                           \
    X(int, CommInitRankConfig,                                                                                         \
      (struct ncclComm * *out, int n_ranks, struct nccl_id id, int rank, struct nccl_config *config))                  \
    X(int, CommInitRankScalable,                                                                                       \
      (struct ncclComm * *out, int n_ranks, int rank, int n_ids, struct nccl_id *ids, struct nccl_config *config))     \
    X(int, CommSplit,                                                                                                  \
      (struct ncclComm * comm, int colour, int key, struct ncclComm **out, struct nccl_config *config))                \
    X(int, CommShrink,                                                                                                 \
      (struct ncclComm * comm, int *leave, int n, struct ncclComm **out, struct nccl_config *config, int flags))       \
    X(int, CommGetUniqueId, (struct ncclComm * comm, struct nccl_id * id))                                             \
    X(int, CommGrow,                                                                                                   \
      (struct ncclComm * comm, int n_ranks, const struct nccl_id *id, int rank, struct ncclComm **out,                 \
       struct nccl_config *config))                                                                                    \
    X(int, CommFinalize, (struct ncclComm * comm))                                                                     \
    X(int, CommDestroy, (struct ncclComm * comm))                                                                      \
    X(int, CommAbort, (struct ncclComm * comm))                                                                        \
    X(int, CommRevoke, (struct ncclComm * comm, int flags))                                                            \
    X(int, CommGetAsyncError, (struct ncclComm * comm, int *error))                                                    \
    X(int, CommCount, (struct ncclComm * comm, int *n))                                                                \
    X(int, CommCuDevice, (struct ncclComm * comm, int *device))                                                        \
    X(int, CommUserRank, (struct ncclComm * comm, int *rank))                                                          \
    X(int, CommQueryProperties, (struct ncclComm * comm, struct nccl_properties * properties))                         \
    X(int, CommSuspend, (struct ncclComm * comm, int flags))                                                           \
    X(int, CommResume, (struct ncclComm * comm))                                                                       \
    X(int, CommMemStats, (struct ncclComm * comm, int which, uint64_t *bytes))
#define NCCL_FUNCTIONS_OF_CALLS(X)                                                                                     \
    X(int, GroupStart, (void))                                                                                         \
    X(int, GroupEnd, (void))                                                                                           \
    X(int, GroupSimulateEnd, (struct nccl_simulation * out))                                                           \
    X(int, RedOpCreatePreMulSum, (int *op, void *factor, int type, int residence, struct ncclComm *comm))              \
    X(int, RedOpDestroy, (int op, struct ncclComm *comm))                                                              \
    X(int, AllReduce,                                                                                                  \
      (const void *send, void *recv, size_t count, int type, int op, struct ncclComm *comm, void *stream))             \
    X(int, Reduce,                                                                                                     \
      (const void *send, void *recv, size_t count, int type, int op, int root, struct ncclComm *comm, void *stream))   \
    X(int, Bcast, (void *buffer, size_t count, int type, int root, struct ncclComm *comm, void *stream))               \
    X(int, Broadcast,                                                                                                  \
      (const void *send, void *recv, size_t count, int type, int root, struct ncclComm *comm, void *stream))           \
    X(int, AllGather, (const void *send, void *recv, size_t count, int type, struct ncclComm *comm, void *stream))     \
    X(int, ReduceScatter,                                                                                              \
      (const void *send, void *recv, size_t count, int type, int op, struct ncclComm *comm, void *stream))             \
    X(int, AlltoAll, (const void *send, void *recv, size_t count, int type, struct ncclComm *comm, void *stream))      \
    X(int, Gather,                                                                                                     \
      (const void *send, void *recv, size_t count, int type, int root, struct ncclComm *comm, void *stream))           \
    X(int, Scatter,                                                                                                    \
      (const void *send, void *recv, size_t count, int type, int root, struct ncclComm *comm, void *stream))           \
    X(int, Send, (const void *buffer, size_t count, int type, int peer, struct ncclComm *comm, void *stream))          \
    X(int, Recv, (void *buffer, size_t count, int type, int peer, struct ncclComm *comm, void *stream))
#define NCCL_FUNCTIONS_OF_MEMORY(X)                                                                                    \
    X(int, MemAlloc, (void **out, size_t bytes))                                                                       \
    X(int, MemFree, (void *memory))                                                                                    \
    X(int, CommRegister, (struct ncclComm * comm, void *base, size_t bytes, void **handle))                            \
    X(int, CommDeregister, (struct ncclComm * comm, void *handle))                                                     \
    X(int, CommWindowRegister, (struct ncclComm * comm, void *base, size_t bytes, struct ncclWindow **out, int flags)) \
    X(int, CommWindowDeregister, (struct ncclComm * comm, struct ncclWindow * window))                                 \
    X(int, WinGetUserPtr, (struct ncclComm * comm, struct ncclWindow * window, void **out))                            \
    X(int, PutSignal,                                                                                                  \
      (const void *local, size_t count, int type, int peer, struct ncclWindow *window, size_t offset, int signal,      \
       int context, unsigned flags, struct ncclComm *comm, void *stream))                                              \
    X(int, Signal, (int peer, int signal, int context, unsigned flags, struct ncclComm *comm, void *stream))           \
    X(int, WaitSignal, (int n, struct nccl_wait *waits, struct ncclComm *comm, void *stream))
#define NCCL_FUNCTIONS_OF_PARAMETERS(X)                                                                                \
    X(int, ParamBind, (struct ncclParamHandle * *out, const char *key))                                                \
    X(int, ParamGetI8, (struct ncclParamHandle * handle, int8_t * out))                                                \
    X(int, ParamGetI16, (struct ncclParamHandle * handle, int16_t * out))                                              \
    X(int, ParamGetI32, (struct ncclParamHandle * handle, int32_t * out))                                              \
    X(int, ParamGetI64, (struct ncclParamHandle * handle, int64_t * out))                                              \
    X(int, ParamGetU8, (struct ncclParamHandle * handle, uint8_t * out))                                               \
    X(int, ParamGetU16, (struct ncclParamHandle * handle, uint16_t * out))                                             \
    X(int, ParamGetU32, (struct ncclParamHandle * handle, uint32_t * out))                                             \
    X(int, ParamGetU64, (struct ncclParamHandle * handle, uint64_t * out))                                             \
    X(int, ParamGetStr, (struct ncclParamHandle * handle, const char **out))                                           \
    X(int, ParamGet, (struct ncclParamHandle * handle, void *out, int capacity, int *length))                          \
    X(int, ParamGetParameter, (const char *key, const char **value, int *length))                                      \
    X(int, ParamGetAllParameterKeys, (const char ***keys, int *n))                                                     \
    X(void, ParamDumpAll, (void))
#define NCCL_FUNCTIONS_OF_DEVICES(X)                                                                                   \
    X(int, DevCommCreate, (struct ncclComm * comm, const void *requirements, void *out))                               \
    X(int, DevCommDestroy, (struct ncclComm * comm, const void *device_comm))                                          \
    X(struct nccl_team, TeamWorld, (struct ncclComm * comm))                                                           \
    X(struct nccl_team, TeamLsa, (struct ncclComm * comm))                                                             \
    X(struct nccl_team, TeamRail, (struct ncclComm * comm))                                                            \
    X(int, TeamRankToWorld, (struct ncclComm * comm, struct nccl_team team, int rank))                                 \
    X(int, TeamRankToLsa, (struct ncclComm * comm, struct nccl_team team, int rank))                                   \
    X(int, LsaBarrierCreateRequirement, (struct nccl_team team, int n, void *handle, void *requirements))              \
    X(int, GinBarrierCreateRequirement,                                                                                \
      (struct ncclComm * comm, struct nccl_team team, int n, void *handle, void *requirements))                        \
    X(int, GinOutboxCreateRequirement, (int n_blocks, int size_log2, void *handle, void *requirements))                \
    X(int, GinInboxA2ACreateRequirement,                                                                               \
      (struct nccl_team peers, int n_blocks, int size_log2, void *handle, void *requirements))                         \
    X(int, LLA2ACalcSlots, (int n_elements, int element_bytes))                                                        \
    X(int, LLA2ACreateRequirement, (int n_blocks, int n_slots, void *handle, void *requirements))                      \
    X(int, GetLsaDevicePointer, (struct ncclWindow * window, size_t offset, int rank, void **out))                     \
    X(int, GetPeerDevicePointer, (struct ncclWindow * window, size_t offset, int peer, void **out))                    \
    X(int, GetLsaMultimemDevicePointer, (struct ncclWindow * window, size_t offset, void **out))                       \
    X(int, GetMultimemDevicePointer,                                                                                   \
      (struct ncclWindow * window, size_t offset, struct nccl_multimem multimem, void **out))
#define NCCL_FUNCTIONS(X)                                                                                              \
    NCCL_FUNCTIONS_OF_COMMUNICATORS(X)                                                                                 \
    NCCL_FUNCTIONS_OF_CALLS(X)                                                                                         \
    NCCL_FUNCTIONS_OF_MEMORY(X) NCCL_FUNCTIONS_OF_PARAMETERS(X) NCCL_FUNCTIONS_OF_DEVICES(X)

#define NCCL_EXPORT __attribute__((visibility("default")))
#define NCCL_DECLARE(type, name, parameters)                                                                           \
    NCCL_EXPORT type nccl##name parameters;                                                                            \
    NCCL_EXPORT type pnccl##name parameters;
NCCL_FUNCTIONS(NCCL_DECLARE)
#undef NCCL_DECLARE
NCCL_EXPORT void ncclResetDebugInitInternal(void); /* has no twin */

/* Beside the definition of pnccl<name>: the other name. */
#define NCCL_TWIN(name)                                                                                                \
    extern __typeof__(pnccl##name) nccl##name __attribute__((weak, visibility("default"), alias("pnccl" #name)))

#endif
