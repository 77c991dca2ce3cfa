/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_NCCL_ABI_NCCL_H
#define TUTTI_TESTS_NCCL_ABI_NCCL_H

/* NCCL's binary interface as a program sees it that was compiled against NVIDIA's header of 2.30.7: declared once more,
 * so that a number or a size that is wrong in the library is wrong here alone. The library is opened by its file. Ranks
 * are threads, or all of one thread. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    OK = 0,
    CUDA_ERROR = 1,
    SYSTEM_ERROR = 2,
    INVALID_ARGUMENT = 4,
    INVALID_USAGE = 5,
    REMOTE_ERROR = 6,
    IN_PROGRESS = 7,
    TIMED_OUT = 8,
};
enum { INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16, E4M3, E5M2, N_TYPES };
enum { SUM, PROD, MAX, MIN, AVG };

typedef struct comm *comm_t;
typedef struct window *window_t;
typedef struct {
    char bytes[128];
} unique_id;
struct config { /* 96 bytes: 2.30.5 and later */
    size_t size;
    uint32_t magic, version;
    int blocking, cluster, min_ctas, max_ctas;
    const char *net;
    int split_share, traffic_class;
    const char *name;
    int collnet, cta_policy, shrink_share, nvls, per_peer, nvlink, graph_usage, rma, p2p_peers, stream_ordering;
};
#define UNDEFINED INT32_MIN
#define CONFIG_INIT                                                                                                    \
    {                                                                                                                  \
        sizeof(struct config), 0xcafebeef, 23007, UNDEFINED, UNDEFINED, UNDEFINED, UNDEFINED, NULL, UNDEFINED,         \
            UNDEFINED, NULL, UNDEFINED, UNDEFINED, UNDEFINED, UNDEFINED, UNDEFINED, UNDEFINED, UNDEFINED, UNDEFINED,   \
            UNDEFINED, UNDEFINED                                                                                       \
    }
struct simulation {
    size_t size;
    uint32_t magic, version;
    float us;
};
struct properties {
    size_t size;
    uint32_t magic, version;
    int rank, n, device, nvml;
    bool device_api, multimem;
    int gin, lsa_teams;
    bool host_rma;
    int railed;
};
struct wait {
    int n, peer, signal, context;
};
struct team {
    int n, rank, stride;
};
struct multimem {
    void *base;
};

/* What the tests call. X(name, result, parameters) */
#define NCCL_CALLED(X)                                                                                                 \
    X(GetVersion, int, (int *))                                                                                        \
    X(GetUniqueId, int, (unique_id *))                                                                                 \
    X(GetErrorString, const char *, (int))                                                                             \
    X(GetLastError, const char *, (comm_t))                                                                            \
    X(CommInitRank, int, (comm_t *, int, unique_id, int))                                                              \
    X(CommInitAll, int, (comm_t *, int, const int *))                                                                  \
    X(CommInitRankConfig, int, (comm_t *, int, unique_id, int, struct config *))                                       \
    X(CommInitRankScalable, int, (comm_t *, int, int, int, unique_id *, struct config *))                              \
    X(CommSplit, int, (comm_t, int, int, comm_t *, struct config *))                                                   \
    X(CommShrink, int, (comm_t, int *, int, comm_t *, struct config *, int))                                           \
    X(CommGetUniqueId, int, (comm_t, unique_id *))                                                                     \
    X(CommGrow, int, (comm_t, int, const unique_id *, int, comm_t *, struct config *))                                 \
    X(CommFinalize, int, (comm_t))                                                                                     \
    X(CommDestroy, int, (comm_t))                                                                                      \
    X(CommAbort, int, (comm_t))                                                                                        \
    X(CommRevoke, int, (comm_t, int))                                                                                  \
    X(CommGetAsyncError, int, (comm_t, int *))                                                                         \
    X(CommCount, int, (comm_t, int *))                                                                                 \
    X(CommCuDevice, int, (comm_t, int *))                                                                              \
    X(CommUserRank, int, (comm_t, int *))                                                                              \
    X(CommQueryProperties, int, (comm_t, struct properties *))                                                         \
    X(CommSuspend, int, (comm_t, int))                                                                                 \
    X(CommResume, int, (comm_t))                                                                                       \
    X(CommMemStats, int, (comm_t, int, uint64_t *))                                                                    \
    X(GroupStart, int, (void))                                                                                         \
    X(GroupEnd, int, (void))                                                                                           \
    X(GroupSimulateEnd, int, (struct simulation *))                                                                    \
    X(RedOpCreatePreMulSum, int, (int *, void *, int, int, comm_t))                                                    \
    X(RedOpDestroy, int, (int, comm_t))                                                                                \
    X(AllReduce, int, (const void *, void *, size_t, int, int, comm_t, void *))                                        \
    X(Reduce, int, (const void *, void *, size_t, int, int, int, comm_t, void *))                                      \
    X(Bcast, int, (void *, size_t, int, int, comm_t, void *))                                                          \
    X(Broadcast, int, (const void *, void *, size_t, int, int, comm_t, void *))                                        \
    X(AllGather, int, (const void *, void *, size_t, int, comm_t, void *))                                             \
    X(ReduceScatter, int, (const void *, void *, size_t, int, int, comm_t, void *))                                    \
    X(AlltoAll, int, (const void *, void *, size_t, int, comm_t, void *))                                              \
    X(Gather, int, (const void *, void *, size_t, int, int, comm_t, void *))                                           \
    X(Scatter, int, (const void *, void *, size_t, int, int, comm_t, void *))                                          \
    X(Send, int, (const void *, size_t, int, int, comm_t, void *))                                                     \
    X(Recv, int, (void *, size_t, int, int, comm_t, void *))                                                           \
    X(MemAlloc, int, (void **, size_t))                                                                                \
    X(MemFree, int, (void *))                                                                                          \
    X(CommRegister, int, (comm_t, void *, size_t, void **))                                                            \
    X(CommDeregister, int, (comm_t, void *))                                                                           \
    X(CommWindowRegister, int, (comm_t, void *, size_t, window_t *, int))                                              \
    X(CommWindowDeregister, int, (comm_t, window_t))                                                                   \
    X(WinGetUserPtr, int, (comm_t, window_t, void **))                                                                 \
    X(PutSignal, int, (const void *, size_t, int, int, window_t, size_t, int, int, unsigned, comm_t, void *))          \
    X(Signal, int, (int, int, int, unsigned, comm_t, void *))                                                          \
    X(WaitSignal, int, (int, struct wait *, comm_t, void *))                                                           \
    X(ParamBind, int, (void **, const char *))                                                                         \
    X(ParamGetI32, int, (void *, int32_t *))                                                                           \
    X(ParamGetU8, int, (void *, uint8_t *))                                                                            \
    X(ParamGetStr, int, (void *, const char **))                                                                       \
    X(ParamGet, int, (void *, void *, int, int *))                                                                     \
    X(ParamGetParameter, int, (const char *, const char **, int *))                                                    \
    X(ParamGetAllParameterKeys, int, (const char ***, int *))                                                          \
    X(DevCommCreate, int, (comm_t, const void *, void *))                                                              \
    X(DevCommDestroy, int, (comm_t, const void *))                                                                     \
    X(TeamWorld, struct team, (comm_t))                                                                                \
    X(TeamLsa, struct team, (comm_t))                                                                                  \
    X(TeamRail, struct team, (comm_t))                                                                                 \
    X(TeamRankToWorld, int, (comm_t, struct team, int))                                                                \
    X(TeamRankToLsa, int, (comm_t, struct team, int))                                                                  \
    X(LsaBarrierCreateRequirement, int, (struct team, int, void *, void *))                                            \
    X(GinBarrierCreateRequirement, int, (comm_t, struct team, int, void *, void *))                                    \
    X(GinOutboxCreateRequirement, int, (int, int, void *, void *))                                                     \
    X(GinInboxA2ACreateRequirement, int, (struct team, int, int, void *, void *))                                      \
    X(LLA2ACalcSlots, int, (int, int))                                                                                 \
    X(LLA2ACreateRequirement, int, (int, int, void *, void *))                                                         \
    X(GetLsaDevicePointer, int, (window_t, size_t, int, void **))                                                      \
    X(GetLsaMultimemDevicePointer, int, (window_t, size_t, void **))                                                   \
    X(GetMultimemDevicePointer, int, (window_t, size_t, struct multimem, void **))                                     \
    X(ResetDebugInit, void, (void))                                                                                    \
    X(GetPeerDevicePointer, int, (window_t, size_t, int, void **))

struct nccl {
#define NCCL_MEMBER(name, result, parameters) result(*name) parameters;
    NCCL_CALLED(NCCL_MEMBER)
#undef NCCL_MEMBER
};
extern struct nccl nccl;
extern void *nccl_library;
void nccl_open(void); /* ends the program where something is missing */

/* ---- ranks ---- */
struct ranks;
struct rank {
    int index, n;
    unique_id id;
    comm_t comm;
    void *stream; /* NULL without a device */
    void *arg;
    struct ranks *all;
    _Atomic(const char *) at; /* what it was about to check last */
    _Atomic bool returned;
};
typedef void (*rank_function)(struct rank *rank);
/* Each on a thread, with a communicator (made: else the function makes its own), on device index % devices. How many
 * failed. Past a deadline it says where each rank is that has not returned, and ends the program. */
unsigned ranks_run(int n, bool made, rank_function function, void *arg);
/* A test: what so many ranks do with a communicator, which is made for them or not. */
struct scene {
    int n;
    bool made;
    rank_function main;
};
void scene_play(void **scene);
void ranks_meet(struct rank *rank);
/* The sum over a communicator of 2^index, which shows who is in it; -1: the call failed. */
int members(comm_t comm, int index);
bool ranks_can_fork(void); /* ThreadSanitizer knows no threads after fork */
void rank_fail(const char *file, int line, int rank, const char *claim, const char *sentence);
unsigned ranks_deadline_s(void);
#define NCCL_TEXT(line) #line
#define NCCL_HERE(file, line) file ":" NCCL_TEXT(line)
#define CHECK(rank, claim)                                                                                             \
    do {                                                                                                               \
        atomic_store(&(rank)->at, NCCL_HERE(__FILE__, __LINE__));                                                      \
        if (!(claim)) {                                                                                                \
            rank_fail(__FILE__, __LINE__, (rank)->index, #claim, nccl.GetLastError(NULL));                             \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)
#define CHECK_RESULT(rank, expected, call) CHECK(rank, (call) == (expected))
#define CHECK_OK(rank, call) CHECK_RESULT(rank, OK, call)

/* ---- the device: the driver of TUTTI_CUDA_DRIVER, else the system's ---- */
struct driver {
    bool here;
    int n;
    int (*init)(unsigned);
    int (*count)(int *);
    int (*retain)(void **, int);
    int (*release)(int);
    int (*current)(void *);
    int (*alloc)(uint64_t *, size_t);
    int (*free)(uint64_t);
    int (*alloc_host)(void **, size_t, unsigned);
    int (*free_host)(void *);
    int (*copy)(uint64_t, uint64_t, size_t, void *);
    int (*stream_create)(void **, unsigned);
    int (*stream_destroy)(void *);
    int (*stream_sync)(void *);
    int (*capture_begin)(void *, int);
    int (*capture_end)(void *, void **);
    int (*instantiate)(void **, void *, unsigned long long);
    int (*launch)(void *, void *);
    int (*graph_destroy)(void *);
    int (*exec_destroy)(void *);
};
extern struct driver driver;
void driver_open(void);
/* The rank's own memory, by copies to and from the host that are over when they return. */
void *device_alloc(size_t bytes);
bool device_read(struct rank *rank, void *host, const void *device, size_t bytes);
bool device_write(struct rank *rank, void *device, const void *host, size_t bytes);
/* Once all ranks have come to it. */
bool device_free(struct rank *rank, size_t n, void *const memory[]);

/* ---- numbers ---- */
size_t type_bytes(int type);
/* A small integer as that type; what a number is that is not negative. */
void number_put(int type, void *array, size_t i, int value);
double number_get(int type, const void *array, size_t i);

#endif
