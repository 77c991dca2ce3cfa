/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_OBJECT_COMM_H
#define TUTTI_COMM_OBJECT_COMM_H

/* What the files of this folder share: contexts, worlds, communicators and the one path of every call. Lifetimes: a
 * communicator holds its world and its context; the last communicator of a family closes the world; a context's struct
 * outlives its last communicator, so that handles stay valid until they are destroyed. */

#include "backend/backend.h"
#include "base/config.h"
#include "control/bootstrap.h"
#include "device/cpu/cpu.h"
#include "engine/engine.h"
#include "model/choose.h"

#include <pthread.h>
#include <stdatomic.h>
#include <tutti/coll.h>

/* ---- contexts (context.c) ---- */
struct tutti_user_op {
    tutti_op_function function; /* NULL: free */
    void *arg;
    bool commutes;
};
struct tutti_context {
    struct tutti_config config;
    struct tutti_machine machine;            /* of this host, as far as this rank knows */
    const struct tutti_cpu_kernels *kernels; /* of the option simd */
    struct tutti_engine *engine;             /* NULL once the context was destroyed */
    struct tutti_cache *cache;
    _Atomic bool crowded;     /* some world of this context is or was */
    pthread_mutex_t lock;     /* all below */
    struct tutti_comm *comms; /* alive or shut, linked by next and previous */
    struct tutti_user_op *ops;
    size_t n_ops;
    uint32_t refs; /* the user's handle, if there is one, and each communicator */
    bool held;     /* there is a user's handle */
};
void tutti_context_enlist(struct tutti_context *context, struct tutti_comm *comm);
/* Takes the communicator off the list and drops its reference; the last one frees. */
void tutti_context_delist(struct tutti_context *context, struct tutti_comm *comm);
/* A copy of a user's operation; false if op is not one. */
bool tutti_context_find_op(struct tutti_context *context, enum tutti_op op, struct tutti_user_op *out);
/* Drops the user's reference alone: the context goes with its last communicator. */
void tutti_context_release(struct tutti_context *context);

/* ---- worlds (world.c): one bootstrap, shared by the communicators that come from one another ---- */
struct tutti_mem_block; /* memory given out by tutti_mem_alloc (mem.c) */
struct tutti_family {
    struct tutti_world world;
    struct tutti_engine *engine;
    _Atomic uint32_t refs;
    _Atomic size_t staging_used; /* by back ends, of this rank */
    _Atomic uint32_t agreeing;   /* boards that its shrinks use now, a bit each */
    _Atomic uint32_t n_agreed;   /* how many shrinks began */
    struct tutti_backend_host backends;
    pthread_mutex_t lock;
    struct tutti_mem_block *blocks;
};
enum tutti_status tutti_family_open(struct tutti_context *context, const struct tutti_bootstrap *bootstrap,
                                    struct tutti_family **out);
struct tutti_family *tutti_family_hold(struct tutti_family *family);
void tutti_family_drop(struct tutti_family *family);
void tutti_mem_drop_all(struct tutti_family *family);

/* ---- communicators (comm_create.c) ---- */
enum tutti_comm_phase { TUTTI_COMM_CREATING, TUTTI_COMM_READY, TUTTI_COMM_FAILED, TUTTI_COMM_SHUT };

/* Things that refer to a communicator and may outlive it: they are told when it goes. */
struct tutti_attached {
    struct tutti_attached *next, *previous;
    pthread_mutex_t lock;                          /* comm; taken after the communicator's lock */
    struct tutti_comm *comm;                       /* NULL once the communicator was destroyed */
    void (*gone)(struct tutti_attached *attached); /* may be NULL; told, under lock, before comm becomes NULL */
};

/* ---- the short way (quick.c) ---- */
struct tutti_range {
    uintptr_t at;
    size_t bytes;
};
/* A blocking call without options. The last fields are there once its arguments were found right. */
struct tutti_plain {
    enum tutti_kind kind;
    enum tutti_dtype dtype;
    enum tutti_op op;
    int32_t root;
    size_t count;
    const void *send;
    void *recv;
    size_t bytes; /* of a block */
    struct tutti_range in, out;
};

struct tutti_comm_device; /* device.h */
struct tutti_device_backend;

struct tutti_comm {
    struct tutti_context *context;
    struct tutti_comm *next, *previous;
    struct tutti_family *family;
    struct tutti_team *team;
    struct tutti_backend *backend;                        /* NULL: the engine runs all */
    struct tutti_lanes lanes;                             /* of this rank, for calls of schedules, */
    struct tutti_backend *lane_backends[TUTTI_MAX_LANES]; /* and who serves them */
    struct tutti_comm_device *device;                     /* NULL: no member has one (device.h) */
    int32_t wanted_device;      /* at its creation: as this process counts, or TUTTI_DEVICE_NONE */
    bool named_device;          /* not merely the current one */
    uint32_t n_devices;         /* times that a device was opened, equal on all */
    bool guarded;               /* no device, but this process has some: their memory is refused */
    bool quick[TUTTI_N_KINDS];  /* plain calls of the kind go to the back end whatever their size, */
    size_t tiny[TUTTI_N_KINDS]; /* and those with blocks of less bytes as tiny ones */
    uint64_t id;
    uint32_t epoch;
    int32_t rank, size;
    uint32_t *members; /* slot -> member of the world */
    struct tutti_facts facts;
    struct tutti_memo memo; /* of the facts */
    _Atomic uint64_t timeout_ns;
    uint64_t create_timeout_ns;

    _Atomic int phase;        /* enum tutti_comm_phase */
    _Atomic uint32_t users;   /* calls that are inside, so that destroy waits for them */
    _Atomic bool cancel;      /* of a creation under way */
    struct tutti_error error; /* of FAILED and SHUT; written before the phase is */
    bool has_thread;
    pthread_t thread; /* of a non-blocking creation */

    struct { /* the last tiny call; the turn's */
        struct tutti_plain plain;
        struct tutti_tiny tiny;
    } repeat;
    _Atomic uint32_t turn; /* 1: a call is being numbered and started, or carried out past the engine */
    _Atomic uint64_t sequence;
    pthread_mutex_t lock; /* the error and what is attached */
    _Atomic uint64_t n_shrinks;
    struct tutti_attached attached; /* head of a ring; under lock */
};

/* Allocates and enlists a communicator without a team, in phase CREATING. */
enum tutti_status tutti_comm_new(struct tutti_context *context, int32_t rank, int32_t size, struct tutti_comm **out);
/* Gives back one that was never handed out. */
void tutti_comm_discard(struct tutti_comm *comm);
/* The team of a communicator whose family, members, id, epoch and facts are set. */
enum tutti_status tutti_comm_open_team(struct tutti_comm *comm);
/* Collective, after all members have their teams: the back end that all can open, if there is one, and those that all
 * of a group can open, for the calls of hierarchical schedules (backends.c). */
enum tutti_status tutti_comm_open_backend(struct tutti_comm *comm);
void tutti_comm_close_backend(struct tutti_comm *comm);
/* Who starts a collective takes the turn: so all numbers and starts are in one order. */
static inline bool tutti_comm_turn_try(struct tutti_comm *comm)
{
    uint32_t free_word = 0;
    return atomic_compare_exchange_strong_explicit(&comm->turn, &free_word, 1, memory_order_seq_cst,
                                                   memory_order_relaxed);
}
void tutti_comm_turn_take(struct tutti_comm *comm);
static inline void tutti_comm_turn_give(struct tutti_comm *comm)
{
    atomic_store_explicit(&comm->turn, 0, memory_order_release);
}
/* From now on calls may be made. */
void tutti_comm_ready(struct tutti_comm *comm);
/* A communicator made from another: slots[i] is the parent's slot of the new slot i. */
enum tutti_status tutti_comm_new_child(struct tutti_comm *parent, const uint32_t *slots, uint32_t n, uint32_t me,
                                       uint64_t id, uint32_t epoch, struct tutti_comm **out);

/* Inside a call: keeps the communicator from going. ARGUMENT when it is NULL, still being created or destroyed. `call`
 * is for the sentence. */
enum tutti_status tutti_comm_enter(struct tutti_comm *comm, const char *call);
void tutti_comm_leave(struct tutti_comm *comm);
/* Ends team, world and attachments (comm_abort.c); the handle stays. error: what later calls are told. */
void tutti_comm_shut(struct tutti_comm *comm, const struct tutti_error *error);

void tutti_comm_attach(struct tutti_comm *comm, struct tutti_attached *attached);
void tutti_comm_detach(struct tutti_attached *attached);
void tutti_comm_detach_all(struct tutti_comm *comm);
/* Enters the communicator of an attachment; ARGUMENT when it is gone. */
enum tutti_status tutti_comm_enter_attached(struct tutti_attached *attached, const char *call, struct tutti_comm **out);

/* Levels of the group that slots[] of the parent form, if they are as regular there; else none (comm_levels.c). */
enum tutti_status tutti_levels_derive(const struct tutti_shape *parent, const uint32_t *slots, uint32_t n,
                                      struct tutti_shape *child);

/* ---- calls ---- */
enum tutti_request_type { TUTTI_REQUEST_COLLECTIVE, TUTTI_REQUEST_SEND, TUTTI_REQUEST_RECV, TUTTI_REQUEST_SENDRECV };

/* One call of the user, as data: filled by the public wrappers (coll.c, p2p.c), checked (check.c), then started at
 * once, collected by a group or recorded. */
struct tutti_request {
    enum tutti_request_type type;
    const char *name; /* "all_gather_v", static */
    struct tutti_comm *comm;
    enum tutti_kind kind;
    bool v;
    const void *send;
    void *recv;
    size_t count;                        /* of a block; gather_v, scatter_v: the own one; send: what is sent */
    size_t recv_count;                   /* p2p: capacity */
    const size_t *counts, *displs;       /* v forms: blocks of the larger side (all_to_all_v: of recv) */
    const size_t *in_counts, *in_displs; /* all_to_all_v: of send */
    enum tutti_dtype dtype;
    int op; /* enum tutti_op or a handle; -1: none */
    int32_t root;
    int32_t dest, send_tag, source, recv_tag; /* p2p */
    struct tutti_message *message;
    struct tutti_call_options options;
    uint8_t factor[16]; /* premul_sum: read at the call */
    struct tutti_work **work;
    bool grouped;  /* of a group: its number follows from those before it */
    bool internal; /* the library's own: the algorithm's overrides do not apply */
    bool staged;   /* its buffers are host memory that stands for a device's: device memory is looked for no more */
    int route;     /* enum tutti_route (device.h), after the checks */
    size_t place;  /* in its group */
    struct tutti_device_backend *device; /* route DEVICE: who enqueues it */
    /* Filled by tutti_request_choose, checked requests only. */
    const struct tutti_algorithm *algorithm;
    struct tutti_shape shape;
    struct tutti_user_op user;
    bool on_backend; /* else algorithm and shape are filled */
    /* Filled by tutti_request_prepare. */
    const struct tutti_schedule *schedule;
    size_t *tables; /* a copy that the request owns: of groups and persistent calls */
};

/* One side of a collective at this rank: a pointer and where its blocks are. */
struct tutti_call_side {
    const char *name;
    const char *base;
    size_t n_blocks, block_bytes, element; /* equal blocks; with counts only n_blocks and element; 0: nothing */
    const size_t *counts, *displs;
    const char *counts_name, *displs_name;
    size_t bytes; /* from base to the end of the last block */
    size_t total; /* elements in all */
};
/* What this rank passes on one side; block_bytes and what follows from it are the checks' to fill. */
struct tutti_call_side tutti_request_side(const struct tutti_request *request, bool sending);
/* All argument checks (check.c); the sentences name argument, rank and collective. */
enum tutti_status tutti_request_check(struct tutti_request *request);
/* "all_reduce on rank 3: ..." */
enum tutti_status tutti_request_fail(const struct tutti_request *request, enum tutti_status status, const char *format,
                                     ...) TUTTI_PRINTF(3, 4);
/* What follows a checked request, in this order (request.c). */
enum tutti_status tutti_request_choose(struct tutti_request *request);
enum tutti_status tutti_request_prepare(struct tutti_request *request);
enum tutti_status tutti_request_seal(struct tutti_request *request); /* the schedule of what was chosen */
/* *work is always written on success. helper: nobody waits at once. Takes over the prepared schedule. */
enum tutti_status tutti_request_start(struct tutti_request *request, bool helper, struct tutti_work **work);
void tutti_request_release(struct tutti_request *request); /* prepared but not started */
void tutti_request_question(const struct tutti_request *request, struct tutti_question *out);
/* The parts that both ways need: where things are, and what the call is. */
void tutti_request_bind(const struct tutti_request *request, struct tutti_bind *bind);
void tutti_request_info(const struct tutti_request *request, struct tutti_call_info *info);
void tutti_request_call(const struct tutti_request *request, struct tutti_backend_call *call);
/* Of all that must be equal on all ranks. ordered: the operation does not commute. */
static inline uint64_t tutti_sign(const struct tutti_call_info *info, bool v, bool ordered, uint64_t schedule,
                                  uint64_t purpose)
{
    uint64_t call = (uint64_t)info->kind | (uint64_t)v << 8 | (uint64_t)ordered << 9 | (uint64_t)info->dtype << 16 |
                    (uint64_t)(uint8_t)info->op << 24 | (uint64_t)(uint32_t)info->root << 32;
    uint64_t rest = schedule | purpose ? tutti_mix64(schedule + 3 * purpose) : 0;
    return tutti_mix64(call ^ tutti_mix64(info->count + rest));
}
/* Whether a call's option names this back end: "flat", or "flat:METHOD", of which *method is what follows, else NULL.
 */
bool tutti_names_backend(const char *algorithm, const char *name, const char **method);
/* Whether the communicator's back end carries it out. ARGUMENT when the call asks for what can not be (backends.c). */
enum tutti_status tutti_request_choose_backend(struct tutti_request *request);
/* hurry: the caller waits, so it may be carried out at once, past the engine: then *work is NULL. */
enum tutti_status tutti_backend_resume(struct tutti_comm *comm, struct tutti_backend_op *op, struct tutti_work **work);
enum tutti_status tutti_backend_start(struct tutti_comm *comm, struct tutti_backend_op *op, bool hurry, bool helper,
                                      struct tutti_work **work); /* the turn is held */
enum tutti_status tutti_request_start_backend(struct tutti_request *request, bool hurry, bool helper,
                                              struct tutti_work **work);
/* A part of the call (or group) could not be started: the communicator fails, here and elsewhere, for the others would
 * wait for the rest; the n parts that were started are waited for. Keeps the thread's error record. */
void tutti_request_give_up(const struct tutti_request *request, struct tutti_work **started, size_t n);
/* Replaces the borrowed tables by a copy, so that the request outlives the call. */
enum tutti_status tutti_request_own(struct tutti_request *request);
void tutti_request_disown(struct tutti_request *request);

/* The public wrappers end here: enter, check, then dispatch (submit.c). */
enum tutti_status tutti_request_submit(struct tutti_request *request, const struct tutti_call_options *options);
/* Runs a checked request, or hands it to the group or recording of this thread. */
enum tutti_status tutti_request_dispatch(struct tutti_request *request);
/* The same past groups and recording, blocking: collectives that the library itself needs. */
enum tutti_status tutti_request_run(struct tutti_request *request, uint64_t *sequence);
/* The call's options into the request; ARGUMENT when they are not a tutti_call_options. */
enum tutti_status tutti_request_options(struct tutti_request *request, const struct tutti_call_options *options);

/* Collective creations (agree.c). Gathers one record of each rank; all NULL (out of memory) or any other failure to
 * take part is told to the others. */
enum tutti_status tutti_agree_gather(struct tutti_comm *comm, const char *name, const void *mine, size_t bytes,
                                     void *all, uint64_t *sequence);
/* OK if all ranks pass OK; else each gets its own error, or a sentence that names the rank that failed. */
enum tutti_status tutti_agree_verdict(struct tutti_comm *comm, const char *name, enum tutti_status mine);
/* The same before a communicator is used (apart.c): in between, its calls run on a team of their own. salt: what it is
 * about. */
struct tutti_apart {
    struct tutti_backend *backend;
    struct tutti_team *team;
    uint64_t timeout_ns;
};
enum tutti_status tutti_apart_begin(struct tutti_comm *comm, uint64_t salt, struct tutti_apart *out);
void tutti_apart_end(struct tutti_comm *comm, const struct tutti_apart *apart);
/* Whether the range lies in one block of tutti_mem_alloc (mem.c). */
bool tutti_mem_holds(struct tutti_family *family, const void *pointer, size_t bytes);

/* The caller waits, now or at once, and its options ask for nothing. */
static inline bool tutti_is_plain(const struct tutti_call_options *options, struct tutti_work **work)
{
    if (work && !(options && options->size == sizeof(*options) && options->attended)) return false;
    return !options || (options->size == sizeof(*options) && !options->algorithm);
}
/* The short way of a plain blocking collective, without a request: no options, no group, nothing unusual (quick.c).
 * On devices, where works and sentences are made elsewhere, timeouts and tags are not unusual.
 * AGAIN: not for this call; nothing was done.
 * out: NULL to block, else the work of an attended call, which may be complete already. */
enum tutti_status tutti_quick(enum tutti_kind kind, const void *send, void *recv, size_t count, enum tutti_dtype dtype,
                              enum tutti_op op, int32_t root, struct tutti_comm *comm,
                              const struct tutti_call_options *options, struct tutti_work **out);

/* Threads of this process that collect calls (group.c) or record one (persistent.c) now: 0 spares a look at which. */
extern _Atomic uint32_t tutti_collecting;
bool tutti_group_active(void);
enum tutti_status tutti_group_add(const struct tutti_request *request);
void tutti_group_spoil(void); /* a call inside the group failed */
bool tutti_record_active(void);
enum tutti_status tutti_record_add(const struct tutti_request *request);
void tutti_record_spoil(void);
/* ARGUMENT for calls that can not be collected or recorded. */
enum tutti_status tutti_call_alone(const char *call);

#endif
