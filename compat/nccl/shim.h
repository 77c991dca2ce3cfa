/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_NCCL_SHIM_H
#define TUTTI_NCCL_SHIM_H

/* libnccl.so.2 over the public calls of tutti: a communicator of NCCL is one of tutti's, a call becomes one call, a
 * group one group. Loading it does nothing; the first call that needs a device opens the driver.
 *
 * abi.h: NCCL's numbers, structures and names. errors.c: codes, sentences, the log. config.c: what configurations say.
 * meeting.c: unique ids, and where ranks meet. comm.c: communicators from their making to their end; derive.c: those
 * that are made from others; retire.c: their end. group.c: groups, and the jobs in them that wait for other ranks.
 * calls.c: collectives and messages. memory.c: memory and windows; signals.c: one-sided calls. device.c: what kernels
 * of users would ask for. params.c: parameters. */

#include "abi.h"

#include <pthread.h>
#include <stdatomic.h>
#include <tutti/tutti.h>

#define NCCL_COUNT(array) (sizeof(array) / sizeof *(array))
#define NCCL_TRY(call)                                                                                                 \
    do {                                                                                                               \
        const int result_ = (call);                                                                                    \
        if (result_ != NCCL_SUCCESS) return result_;                                                                   \
    } while (0)

/* ---- errors.c ---- */
/* Keeps the sentence for ncclGetLastError, logs it, returns the code. */
int nccl_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What a status of tutti is here; of an error the sentence is kept, too. */
int nccl_told(enum tutti_status status);
int nccl_code(enum tutti_status status);
/* "NCCL_DEBUG=INFO" or more. */
void nccl_log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void nccl_log_version(void); /* once */

/* ---- config.c ---- */
struct nccl_settings {
    bool blocking;
    uint32_t gpu_blocks; /* 0: as is fastest */
    bool efficient;      /* SMs are left to computation beside (NCCL_CTA_POLICY_EFFICIENCY, _ZERO) */
    char name[64];
};
/* config NULL: those of the parent, or the defaults where there is none. */
int nccl_settings_read(const char *call, const struct nccl_config *config, const struct nccl_settings *parent,
                       struct nccl_settings *out);
/* A sentence for each variable that names a plug-in; NCCL, too, goes on without one that it can not load. */
void nccl_plugins_tell(void);
/* Nanoseconds; UINT64_MAX: no deadline. */
uint64_t nccl_timeout_ns(void);

/* ---- meeting.c ---- */
int nccl_id_make(struct nccl_id *out);
int nccl_id_check(const char *call, const struct nccl_id *id);
/* The name that ranks with this id meet by, and their secret. store: that of the id, if there is one. */
#define NCCL_NAME_BYTES 56
int nccl_id_names(const struct nccl_id *id, int rank, const struct tutti_store *store, char name[NCCL_NAME_BYTES],
                  char secret[NCCL_NAME_BYTES]);
/* The store of the process that made the id. rank 0 serves it itself where NCCL_COMM_ID says where. */
int nccl_id_store(const struct nccl_id *id, int rank, struct tutti_store *out);

/* ---- comm.c ---- */
#define NCCL_COMM_MAGIC UINT64_C(0x74757474694e4343)
/* What a communicator shares with those made from it. */
struct nccl_family {
    _Atomic uint32_t refs;
    struct tutti_context *context;
    struct tutti_accelerator *accelerator; /* NULL: there is no device, so buffers are host memory */
    int device;                            /* -1 then */
};
struct nccl_factor {
    bool alive;
    int type;
    const void *at; /* device memory; NULL: value */
    unsigned char value[8];
};
struct nccl_beside { /* calls.c; NULL: not needed yet */
    void *stream, *begin, *end;
};
struct nccl_registration { /* what ncclCommRegister made; its address is the handle */
    struct tutti_mem *memory;
    struct nccl_registration *next;
};
struct ncclComm {
    uint64_t magic;
    _Atomic uint32_t refs; /* the handle's, and each job's */
    _Atomic int state;     /* enum nccl_result; of a job that is under way: IN_PROGRESS */
    _Atomic bool ended;    /* finalized or revoked: no more calls */
    _Atomic bool dropped;  /* aborted or destroyed while a job is under way */
    struct tutti_comm *_Atomic comm;
    struct nccl_family *family;
    struct nccl_settings settings;
    int rank, n_ranks;
    bool finalized, revoked, suspended;
    pthread_mutex_t lock; /* for what follows */
    struct nccl_beside beside;
    struct nccl_factor *factors;
    int n_factors;
    struct ncclWindow *windows;
    struct nccl_registration *registrations;
    struct nccl_signals *signals; /* signals.c; NULL: no window was registered yet */
    struct tutti_comm *apart;     /* for windows that collectives leave alone; NULL: there was none yet */
    struct ncclComm *next;        /* retire.c, as the three behind it */
    uint64_t id;
    bool listed, retired;
    bool growing; /* CommGetUniqueId gave an id, which was not used yet */
};
/* NULL: it is not made yet. */
static inline struct tutti_comm *nccl_tutti(const struct ncclComm *comm)
{
    return atomic_load_explicit(&comm->comm, memory_order_acquire);
}
/* Sentences name the call. READY: INVALID_ARGUMENT for no handle, and what it failed with; not finalized or revoked. */
int nccl_comm_check(const char *call, const struct ncclComm *comm);
int nccl_comm_ready(const char *call, const struct ncclComm *comm);
int nccl_comm_new(const struct nccl_settings *settings, int rank, int n_ranks, struct nccl_family *family,
                  struct ncclComm **out);
void nccl_comm_drop(struct ncclComm *comm); /* one reference */
/* Makes a handle, and submits the job that makes its communicator. */
int nccl_comm_init(const char *call, struct ncclComm **out, int n_ranks, const struct nccl_id *id, int rank,
                   const struct nccl_config *config, int device);
/* Meets the others by the id; the whole creation. */
int nccl_comm_meet(struct ncclComm *comm, const struct nccl_id *id);
struct nccl_family *nccl_family_hold(struct nccl_family *family);
int nccl_family_new(const struct nccl_settings *settings, int device, struct nccl_family **out);
void nccl_family_drop(struct nccl_family *family);
#define NCCL_DEVICE_CURRENT (-1)

/* ---- retire.c ---- */
void nccl_comm_enlist(struct ncclComm *comm); /* it was made */
void nccl_comm_retire(struct ncclComm *comm); /* nobody refers to it any more */

/* ---- group.c ---- */
int nccl_thread_start(pthread_t *thread, void *(*function)(void *), void *arg);
/* What waits for other ranks. `subject` is in progress until it is over; `made` becomes *out, or is dropped. */
struct nccl_job {
    int (*run)(struct nccl_job *job);
    const char *call;
    struct ncclComm *subject, *made, **out;
    struct nccl_settings settings; /* for what is made */
    struct nccl_id id;
    int colour, key, n, flags;
    int *leave;
    void *base;
    size_t bytes;
    struct ncclWindow **window;
    struct nccl_job *next; /* group.c */
};
/* Runs it, or starts it where the subject is not blocking, or keeps it for the end of the group. */
int nccl_job_submit(const struct nccl_job *job);
/* Inside a group the outermost end returns it again. */
int nccl_group_note(int result);

/* ---- calls.c ---- */
struct nccl_call {
    enum tutti_status (*start)(const struct nccl_call *call, const struct tutti_call_options *options);
    struct ncclComm *comm;
    const void *send;
    void *recv;
    size_t count;
    enum tutti_dtype type;
    enum tutti_op op;
    int peer; /* root or peer */
    void *stream;
    struct nccl_factor factor;
};
/* Starts calls that were checked, as one group; one call: without. */
int nccl_calls_start(const struct nccl_call *calls, size_t n);
/* What the calls of a group would take, microseconds. */
float nccl_calls_estimate(const struct nccl_call *calls, size_t n);
/* Keeps the call for the group's end; false: there is no group. */
bool nccl_group_takes(const struct nccl_call *call, int *result);
int nccl_type_check(const char *call, int type, enum tutti_dtype *out);

/* ---- memory.c, signals.c ---- */
#define NCCL_WINDOW_MAGIC UINT64_C(0x74757474694e5749)
struct ncclWindow {
    uint64_t magic;
    struct ncclWindow *next;
    struct ncclComm *comm;
    struct tutti_window *window;
    void *base;
    size_t bytes;
};
int nccl_window_check(const char *call, const struct ncclWindow *window);
void nccl_memory_close(struct ncclComm *comm); /* all that are left */
int nccl_signals_open(struct ncclComm *comm);  /* collective */
void nccl_signals_close(struct ncclComm *comm);

#endif
