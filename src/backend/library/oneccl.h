/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_LIBRARY_ONECCL_H
#define TUTTI_BACKEND_LIBRARY_ONECCL_H

/* The back end `oneccl`: Intel's library, opened with dlopen (the C interface of 2022.0 or later), on host memory, and,
 * with a table of its own, on memory of Intel GPUs (oneccl_device.h).
 * oneCCL waits for ever, for peers that died or never called, and takes calls that do not fit one another for one. So:
 *  - members meet before each call: on one host on boards that all map, where they post what they called; between hosts
 *    by an exchange of oneCCL's own that looks the same whatever was called. What differs is found before it can harm.
 *  - a thread of its own, the carrier, is within oneCCL, and works on memory of its own. The runner of a call waits for
 *    it under the engine's watch; when the team fails, it leaves the carrier where it is, and the communicator is lost.
 *
 * Its communicator is made by the first call that comes to it. It may use the engine and all below it. Begin with
 * oneccl_op.c: a call from its begin to its end. oneccl_kinds.c: what oneCCL does right, and what is left to others.
 * oneccl_carrier.c: the thread. oneccl_library.c: finding the library. oneccl_open.c: opening and closing.
 * oneccl_enqueue.c: calls on devices. */

#include "backend/backend.h"
#include "base/bell.h"

#include <stdatomic.h>

/* ---- the library, in declarations of our own: handles are void pointers, results and enumerations int ---- */
#define ONECCL_NEEDED 20220000
#define ONECCL_ID_BYTES 4096
#define ONECCL_ID_TOLD 256 /* of these, an address as text; the rest are zeros */
enum oneccl_result { ONECCL_OK = 0 };
enum oneccl_operation { ONECCL_SUM, ONECCL_PROD, ONECCL_MAX, ONECCL_MIN };
struct oneccl_id { /* passed by value */
    char bytes[ONECCL_ID_BYTES];
};

/* X(member, symbol, parameters); the stream is NULL on host memory, else the address of a sycl::queue. */
#define ONECCL_CALLS(X)                                                                                                \
    X(comm_init, onecclCommInitRank, (void **comm, size_t n, struct oneccl_id id, int rank)) /* the first one asked */ \
    X(version_get, onecclGetVersion, (int *version))                                                                   \
    X(id_get, onecclGetUniqueId, (struct oneccl_id * id))                                                              \
    X(comm_destroy, onecclCommDestroy, (void *comm))                                                                   \
    X(all_reduce, onecclAllReduce, (void *in, void *out, size_t count, int type, int op, void *comm, void *stream))    \
    X(reduce, onecclReduce,                                                                                            \
      (const void *in, void *out, size_t count, int type, int op, int root, void *comm, void *stream))                 \
    X(broadcast, onecclBroadcast,                                                                                      \
      (const void *in, void *out, size_t count, int type, int root, void *comm, void *stream))                         \
    X(all_gather, onecclAllGather, (const void *in, void *out, size_t count, int type, void *comm, void *stream))      \
    X(reduce_scatter, onecclReduceScatter,                                                                             \
      (const void *in, void *out, size_t count, int type, int op, void *comm, void *stream))                           \
    X(all_to_all, onecclAllToAll, (const void *in, void *out, size_t count, int type, void *comm, void *stream))       \
    X(send, onecclSend, (const void *in, size_t count, int type, int peer, void *comm, void *stream))                  \
    X(recv, onecclRecv, (void *out, size_t count, int type, int peer, void *comm, void *stream))                       \
    X(group_start, onecclGroupStart, (void))                                                                           \
    X(group_end, onecclGroupEnd, (void))                                                                               \
    X(device_set, onecclSetDevice, (uint32_t device)) /* for the thread */
/* From 2022.2 on; NULL where they are not there. */
#define ONECCL_CALLS_LATER(X)                                                                                          \
    X(scatter, onecclScatter, (const void *in, void *out, size_t count, int type, int root, void *comm, void *stream))

struct oneccl_library {
#define ONECCL_MEMBER(member, symbol, parameters) int(*member) parameters;
    ONECCL_CALLS(ONECCL_MEMBER)
    ONECCL_CALLS_LATER(ONECCL_MEMBER)
#undef ONECCL_MEMBER
    const char *(*last_error)(void *comm); /* NULL comm: of the thread */
    int version;                           /* 20220200: 2022.2 */
};
/* Opens it at first use, by the options oneccl_library and interface, for host memory or for devices: its plug-in is of
 * one of them. NULL and a record that says why (UNSUPPORTED). What was found first stays. */
const struct oneccl_library *oneccl_library(const struct tutti_config *options, bool devices);
/* Round calls that change what oneCCL has for the whole process, which it does not lock. Two communicators that are
 * made at once wait for a second at most, since their members may make them in different orders. True: it is held. */
bool oneccl_lock(void);
void oneccl_unlock(bool held);

/* ---- the carrier ---- */
/* A call as oneCCL gets it, on the carrier's memory, or on the caller's on a device. */
struct oneccl_job {
    int (*run)(const struct oneccl_library *library, const struct oneccl_job *job, void *comm);
    const char *name;
    int type, op, root;
    size_t count;
    char *in, *out;
    void *stream;
    uint64_t said[4];  /* between hosts: what all must agree on */
    size_t n_messages; /* in the carrier's memory: what is sent comes first */
};
enum { ONECCL_SAID = 4 };
/* The carrier rests until it is asked to carry out its job; then it rests again, unless it was left meanwhile: for
 * then it stays for ever. ENDS: it destroys the communicator, and is OVER. */
enum { ONECCL_RESTS, ONECCL_ASKED, ONECCL_LEFT, ONECCL_ENDS, ONECCL_OVER, ONECCL_QUITS };
struct oneccl_carrier {
    const struct oneccl_library *library;
    struct oneccl_id id;
    uint32_t n, me;
    bool compares; /* members have no boards */
    bool spins;    /* there are CPUs to spare */
    bool on_device;
    uint32_t device;
    void *comm; /* NULL: not made yet */
    struct oneccl_job job;
    char *memory;
    size_t bytes;
    uint64_t *heard;    /* n times ONECCL_SAID, and the own ones before */
    int result;         /* the last job's */
    const char *failed; /* the call that it is of */
    char text[200];     /* oneCCL's words */
    uint32_t differs;   /* the rank that said something else, n: none */
    pthread_t thread;
    uintptr_t stack[2];                                /* what oneCCL uses of it, from and to; 0: not known */
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint32_t state; /* a thread that waits for a change sleeps on it, */
    _Atomic uint32_t caller_sleeps, carrier_sleeps;    /* and says so */
};
enum tutti_status oneccl_carrier_start(struct oneccl_carrier **out, const struct oneccl_carrier *like);
/* Memory for a job, kept for the next one. MEMORY. The carrier rests. */
enum tutti_status oneccl_carrier_room(struct oneccl_carrier *carrier, size_t bytes);
void oneccl_carrier_ask(struct oneccl_carrier *carrier);
/* Ends it, within two seconds and by the deadline: the communicator is destroyed if all is well, and it rests; else
 * not, and nothing waits. A thread that is within oneCCL is left there, with what it works on. */
void oneccl_carrier_end(struct oneccl_carrier *carrier, bool well, uint64_t deadline_ns);
uint64_t oneccl_sooner(uint64_t timeout_ns, uint64_t deadline_ns); /* the deadline that comes first */
/* One was left within oneCCL: this process has no oneCCL any more. */
#define ONECCL_IS_LOST "a call of this process was left behind within oneCCL, which serves it no more"
bool oneccl_is_lost(void);
void oneccl_lose(void);
/* The carrier's result as an error record. */
enum tutti_status oneccl_carrier_refused(const struct oneccl_carrier *carrier);

/* ---- oneccl_carrier.c ---- */
void oneccl_stack_find(struct oneccl_carrier *carrier); /* by the carrier itself */
void oneccl_stack_below(struct oneccl_carrier *carrier, void (*function)(struct oneccl_carrier *carrier));
/* Stops a carrier that does not rest, soon, and until it is thawed; its thread must not end meanwhile. -1: this kernel
 * can not. */
int oneccl_freeze(const struct oneccl_carrier *carrier);
void oneccl_thaw(int frozen);

/* ---- an instance ---- */
struct oneccl_post {
    _Atomic uint64_t number; /* among the instance's calls, written last */
    _Atomic uint64_t seq, signature, call, count;
};
/* What a member shows the others of its host. A member posts a call when all have posted the one before, so two posts
 * are enough. */
struct oneccl_board {
    _Alignas(TUTTI_CACHE_LINE) struct tutti_bell bell;
    _Atomic uint64_t done, done_seq; /* the last call that is over */
    struct oneccl_post posts[2];
};
struct oneccl_boards {
    _Alignas(TUTTI_CACHE_LINE) _Atomic uint32_t users;
    _Atomic uint32_t ended; /* members that have come to the end (struct oneccl_end) */
    struct oneccl_board of[];
};
struct oneccl_backend {
    struct tutti_backend base;
    const struct oneccl_library *library;
    struct tutti_transport *transport;
    struct tutti_control *control;
    struct tutti_team *team;
    uint32_t *members;
    uint32_t n, me;
    bool reproducible;
    bool connected;
    struct oneccl_boards *boards; /* NULL: the members are on several hosts */
    size_t boards_bytes;
    struct oneccl_carrier *carrier; /* NULL: no call was made yet, or it was left behind */
    struct oneccl_carrier like;     /* what a carrier begins with */
    bool lost;                      /* a call has failed */
    uint64_t number;                /* the last call's */
};
static inline struct oneccl_backend *oneccl_of(const struct tutti_backend *backend)
{
    return (struct oneccl_backend *)(uintptr_t)backend; /* its first member */
}
extern const struct tutti_backend_ops tutti_backend_oneccl;

/* ---- oneccl_open.c ---- */
/* A number of this process that no other one has. 0: there is none. */
uint64_t oneccl_process_number(void);
/* Refuses members with another oneCCL, and two of one process. */
struct oneccl_about { /* what each member's card begins with */
    uint32_t card, oneccl;
    uint64_t process;
};
enum tutti_status oneccl_members_check(const void *cards, size_t stride, uint32_t n);
/* Ranks that end together: whether all have come to the end before one gave up waiting; equal on all who live. */
struct oneccl_end {
    struct tutti_control *control;
    const uint32_t *members;
    uint32_t n, me;
    _Atomic uint32_t *ended; /* that all map; the highest bit: one did not wait for all */
};
bool oneccl_all_end(const struct oneccl_end *end, uint64_t deadline_ns);
void oneccl_end_early(const struct oneccl_end *end); /* this member does not wait, so nobody does */

/* ---- oneccl_op.c ---- */
enum tutti_status oneccl_begin(struct tutti_backend *backend, struct tutti_backend_op *op);
enum tutti_advance oneccl_run_inline(struct tutti_backend_op *op, const struct tutti_team *team);
void oneccl_overlay(struct tutti_backend *backend, uint32_t peer, struct tutti_board *board);

/* Slot 0's id for the others. UNSUPPORTED: oneCCL can not, or its id is longer than what is told. */
enum tutti_status oneccl_id_make(const struct oneccl_library *library, struct oneccl_id *out);

/* ---- oneccl_kinds.c ---- */
/* Whether oneCCL has the call among n ranks, with the meaning that tutti gives it. */
bool oneccl_can(const struct oneccl_library *library, const struct tutti_backend_call *call, uint32_t n, bool devices);
double oneccl_cost_ns(const struct tutti_backend_call *call, uint32_t n);
/* Fills in a job for the call, but for where its memory is. */
void oneccl_job_of(const struct tutti_backend_call *call, struct oneccl_job *job);
/* The messages of the carrier's memory as a job, from and to other ranks. */
void oneccl_job_of_messages(struct oneccl_job *job, size_t n);
/* What oneCCL serves, and what is left to tutti's own ways; for `tutti info`. */
struct oneccl_left {
    const char *what, *why;
};
#define ONECCL_LEFT_MOST 64
void oneccl_say_served(const struct oneccl_library *library, char *out, size_t capacity);
size_t oneccl_list_left(const struct oneccl_library *library, struct oneccl_left *out, size_t capacity);

#endif
