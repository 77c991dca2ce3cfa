/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_OBJECT_COMM_H
#define TUTTI_COMM_OBJECT_COMM_H

/* Contexts, worlds and communicators as objects: what each holds, who keeps it, entering and leaving it, and what its
 * members agree on. This is the lowest room of comm: it may use all below comm, and knows neither calls (request, call)
 * nor how communicators are made and end (life). Begin with struct tutti_comm.
 *
 * Lifetimes: a communicator holds its world and its context; the last communicator of a family closes the world; a
 * context's struct outlives its last communicator, so that handles stay valid until they are destroyed. Threads: every
 * function may be called by any thread, except where a comment says who holds what. */

#include "backend/backend.h"
#include "base/config.h"
#include "control/meet/bootstrap.h"
#include "device/cpu/cpu.h"
#include "device/device.h"
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
    struct tutti_machine machine;            /* this host's, as far as this rank knows */
    struct tutti_found_list found;           /* algorithms of the same file */
    const struct tutti_cpu_kernels *kernels; /* by the option simd */
    struct tutti_engine *engine;             /* NULL once the context was destroyed */
    struct tutti_cache *cache;
    const struct tutti_algorithm *own[TUTTI_N_KINDS]; /* option algorithms: the only one for the kind, or NULL */
    _Atomic bool crowded;                             /* some world of this context is or was */
    pthread_mutex_t lock;                             /* all below */
    struct tutti_comm *comms;                         /* alive or shut, linked by next and previous */
    struct tutti_user_op *ops;
    size_t n_ops;
    uint32_t refs;    /* the user's handle, if there is one, and each communicator */
    bool held;        /* there is a user's handle */
    uint32_t n_forks; /* tutti_n_forks when it was made */
};
/* ARGUMENT: it is that of the process that this one was forked off from. */
enum tutti_status tutti_context_check(const struct tutti_context *context, const char *call);
void tutti_context_enlist(struct tutti_context *context, struct tutti_comm *comm);
/* Takes the communicator off the list and drops its reference; the last one frees. */
void tutti_context_delist(struct tutti_context *context, struct tutti_comm *comm);
/* A copy of a user's operation; false if op is not one (context.c). */
bool tutti_context_find_op(struct tutti_context *context, enum tutti_op op, struct tutti_user_op *out);
/* Ends engine and cache: no communicator of it is in use any more. */
void tutti_context_close(struct tutti_context *context);
/* Drops the user's reference alone: the context goes with its last communicator. */
void tutti_context_release(struct tutti_context *context);

/* ---- worlds (context.c): one bootstrap, shared by the communicators that come from one another ---- */
struct tutti_block;   /* memory given out by tutti_mem_alloc (memory.c) */
struct tutti_own_pad; /* pad.h */
struct tutti_family {
    struct tutti_world world;
    struct tutti_engine *engine;
    _Atomic uint32_t refs;
    _Atomic size_t staging_used; /* by back ends, of this rank */
    _Atomic uint32_t agreeing;   /* boards that its shrinks use now, a bit each */
    _Atomic uint32_t n_agreed;   /* how many shrinks began */
    struct tutti_backend_host backends;
    pthread_mutex_t lock;
    struct tutti_block *blocks;
    struct tutti_own_pad *pads; /* pad.h: given, and peers may be late */
};
enum tutti_status tutti_family_open(struct tutti_context *context, const struct tutti_bootstrap *bootstrap,
                                    struct tutti_family **out);
struct tutti_family *tutti_family_hold(struct tutti_family *family);
void tutti_family_drop(struct tutti_family *family);

/* ---- blocks of memory that a family has given out (memory.c) ---- */
/* Takes `bytes` of the device that dev is, or of the host's memory where it is NULL. */
enum tutti_status tutti_block_take(struct tutti_family *family, const struct tutti_device *dev,
                                   enum tutti_device_share share, size_t bytes, void **out);
/* AGAIN: no block begins there. */
enum tutti_status tutti_block_give(struct tutti_family *family, const void *pointer);
/* Whether the range lies in one block. */
bool tutti_block_holds(struct tutti_family *family, const void *pointer, size_t bytes);
void tutti_block_give_all(struct tutti_family *family);
void tutti_pads_end(struct tutti_family *family); /* pad.c */

/* ---- communicators (comm.c) ---- */
enum tutti_comm_phase { TUTTI_COMM_CREATING, TUTTI_COMM_READY, TUTTI_COMM_FAILED, TUTTI_COMM_SHUT };

/* Things that refer to a communicator and may outlive it: they are told when it goes. */
struct tutti_attached {
    struct tutti_attached *next, *previous;
    uint32_t n_forks;                              /* the communicator's */
    pthread_mutex_t lock;                          /* comm; taken after the communicator's lock */
    struct tutti_comm *comm;                       /* NULL once the communicator was destroyed */
    void (*gone)(struct tutti_attached *attached); /* may be NULL; told, under lock, before comm becomes NULL */
};

struct tutti_comm_device; /* device.h */
struct tutti_call;        /* call/call.h */
struct tutti_survive;     /* life/survive.c */
struct tutti_backend;

/* A call as its caller made it, but for its options. */
struct tutti_made {
    enum tutti_kind kind;
    enum tutti_dtype dtype;
    int32_t op, root;
    const void *send;
    void *recv;
    size_t count;
};
struct tutti_kept {
    struct tutti_made call;
    struct tutti_flight *flight; /* NULL: none is kept */
};

struct tutti_comm {
    struct tutti_context *context;
    uint32_t n_forks; /* the context's */
    struct tutti_comm *next, *previous;
    struct tutti_family *family;
    struct tutti_team *team;
    struct tutti_backend *backend;                          /* tutti's own back end; NULL: the engine runs all, */
    struct tutti_backend *library;                          /* but for what this one does; NULL: there is none */
    bool library_first;                                     /* it is asked before the other one, else by name alone */
    struct tutti_lanes lanes;                               /* this rank's lanes, for calls of schedules, */
    struct tutti_backend *lane_backends[TUTTI_MAX_LANES];   /* and who serves them */
    struct tutti_comm_device *device;                       /* NULL: no member has one (device.h) */
    struct tutti_survive *survive;                          /* NULL: the death of a rank ends it */
    enum tutti_status (*survive_call)(struct tutti_call *); /* then carries out its calls (comm/life), once checked */
    struct tutti_names *names;  /* its team's, where it is a view of one that survives; NULL: its own */
    int32_t wanted_device;      /* at its creation: as this process counts, or TUTTI_DEVICE_NONE */
    bool named_device;          /* not merely the current one */
    uint32_t n_devices;         /* times that a device was opened, equal on all */
    bool guarded;               /* this communicator has no device, but the process has some: memory of these is
                                 * refused */
    bool quick[TUTTI_N_KINDS];  /* plain calls of the kind go to the back end, whatever their size; */
    size_t tiny[TUTTI_N_KINDS]; /* with smaller blocks than this, as tiny calls */
    uint64_t id;
    uint32_t epoch;
    int32_t rank, size;
    uint32_t *members; /* slot -> member of the world */
    struct tutti_facts facts;
    struct tutti_memo memo; /* for the facts */
#define TUTTI_COMM_FILES 64
    _Atomic uint64_t files[TUTTI_COMM_FILES]; /* algorithms from files that all members have alike, by contents and kind
                                               */
    _Atomic uint64_t timeout_ns;
    uint64_t create_timeout_ns;

    _Atomic int phase;        /* enum tutti_comm_phase */
    _Atomic uint32_t users;   /* calls that are inside, so that destroy waits for them */
    _Atomic bool cancel;      /* ends a creation in progress */
    struct tutti_error error; /* in FAILED and SHUT; written before the phase is */
    bool has_thread;
    pthread_t thread; /* a non-blocking creation's */

    /* The last call that went the short way by the back end, and such by the engine, each where tutti_kept_at says; the
     * turn's. A tiny one has no job. */
    struct tutti_tiny last_call;
    bool last_is_tiny;
    struct tutti_backend_call last_job;
#define TUTTI_COMM_KEPT 16 /* a power of two */
    struct tutti_kept kept[TUTTI_COMM_KEPT];
    _Atomic uintptr_t turn; /* the thread (address of tutti_inside) that numbers and starts a call, or carries one out
                               past the engine; 0: none does */
    _Atomic uint64_t sequence;
    pthread_mutex_t lock; /* the error and what is attached */
    _Atomic uint64_t n_shrinks;
    bool was_let;                   /* by the arbiter: its side shrinks, and no other */
    struct tutti_attached attached; /* head of a ring; under lock */
    char *spare; /* memory of the last quantised call, kept for the next one (packed.c); under lock */
    size_t spare_bytes;
};

/* Allocates and enlists a communicator without a team, in phase CREATING. */
enum tutti_status tutti_comm_new(struct tutti_context *context, int32_t rank, int32_t size, struct tutti_comm **out);
/* Lets nobody enter any more: the phase is SHUT, what is attached is told, and those who were inside have left when it
 * returns. False: the phase was SHUT before. */
bool tutti_comm_empty(struct tutti_comm *comm);
/* Frees one that has no device and no back end any more, with its team and its family. */
void tutti_comm_free(struct tutti_comm *comm);
/* The team of a communicator whose family, members, id, epoch and facts are set. */
enum tutti_status tutti_comm_open_team(struct tutti_comm *comm);
/* Collective, after all members have their teams: the back end that all can open, if there is one, and those that all
 * of a group can open, for the calls of hierarchical schedules (backends.c). */
enum tutti_status tutti_comm_open_backend(struct tutti_comm *comm);
void tutti_comm_close_backend(struct tutti_comm *comm, uint64_t deadline_ns);
/* Gives back the calls that are kept, before the team goes. */
void tutti_comm_forget(struct tutti_comm *comm);

/* A thread that starts a collective takes the turn, so numbers and starts are in one order. */
static inline bool tutti_comm_turn_try(struct tutti_comm *comm)
{
    uintptr_t nobody = 0;
    return atomic_compare_exchange_strong_explicit(&comm->turn, &nobody, (uintptr_t)&tutti_inside, memory_order_seq_cst,
                                                   memory_order_relaxed);
}
void tutti_comm_turn_take(struct tutti_comm *comm);
static inline void tutti_comm_turn_give(struct tutti_comm *comm)
{
    atomic_store_explicit(&comm->turn, 0, memory_order_release);
}
/* From now on calls may be made. */
void tutti_comm_ready(struct tutti_comm *comm);
/* A communicator made from another, in phase CREATING, with a team. */
struct tutti_child {
    const uint32_t *slots; /* slots[i] is the parent's slot of the new slot i */
    uint32_t n, me;        /* slots, the own one */
    uint64_t id;
    uint32_t epoch;
};
enum tutti_status tutti_comm_new_child(struct tutti_comm *parent, const struct tutti_child *child,
                                       struct tutti_comm **out);

/* The communicator is of the process that this one was forked off from. */
static inline bool tutti_comm_is_inherited(const struct tutti_comm *comm)
{
    return comm->n_forks != tutti_n_forks;
}
/* Inside a call: keeps the communicator from going. ARGUMENT when it is NULL, inherited, still being created or
 * destroyed. `call` is for the sentence. */
enum tutti_status tutti_comm_enter(struct tutti_comm *comm, const char *call);
void tutti_comm_leave(struct tutti_comm *comm);
/* UNSUPPORTED where it survives: its members change, so nothing else is made from it. */
enum tutti_status tutti_survive_refuse(const struct tutti_comm *comm, const char *call);
/* The same in whatever phase it is, when it is known not to be inherited. */
static inline void tutti_comm_hold(struct tutti_comm *comm)
{
    tutti_inside++;
    atomic_fetch_add(&comm->users, 1);
}

void tutti_comm_attach(struct tutti_comm *comm, struct tutti_attached *attached);
void tutti_comm_detach(struct tutti_attached *attached);
/* Enters the communicator of an attachment; ARGUMENT when it is gone. */
enum tutti_status tutti_comm_enter_attached(struct tutti_attached *attached, const char *call, struct tutti_comm **out);

/* One level, the hosts, if the members of each are neighbours, and more than one is on some host (comm.c). */
void tutti_levels_of_hosts(const struct tutti_hosts *hosts, struct tutti_shape *shape);
/* Levels of the group that slots[] of the parent form, if they are as regular there; else none (comm.c). */
enum tutti_status tutti_levels_derive(const struct tutti_shape *parent, const uint32_t *slots, uint32_t n,
                                      struct tutti_shape *child);

/* ---- what all members agree on (agree.c): by the engine alone, whatever carries out the communicator's calls ---- */
/* Gathers one record of each rank; all NULL (out of memory) or any other failure to take part is told to the others. */
enum tutti_status tutti_agree_gather(struct tutti_comm *comm, const char *name, const void *mine, size_t bytes,
                                     void *all, uint64_t *sequence);
/* OK if all ranks pass OK; else each gets its own error, or a sentence that names the rank that failed. */
enum tutti_status tutti_agree_verdict(struct tutti_comm *comm, const char *name, enum tutti_status mine);
/* The same for who opens back ends (struct tutti_openers), also before the communicator is used: then each call has a
 * team of its own, so that the communicator's own calls count from 1 afterwards. `arg` is a tutti_gathering. */
struct tutti_gathering {
    struct tutti_comm *comm;
    const char *call;
    uint64_t salt; /* what it is about, and how many there were */
};
enum tutti_status tutti_gathering_gather(void *arg, const void *mine, size_t bytes, void *all);
enum tutti_status tutti_gathering_verdict(struct tutti_gathering *gathering, enum tutti_status mine);

/* A call could be started in part only, for the reason in the thread's record, which stays: the communicator fails,
 * here and elsewhere, for the others would wait for the rest. */
void tutti_comm_fail_in_part(struct tutti_comm *comm, const char *name);

/* The signature: a hash of all that must be equal on all ranks. ordered: the operation does not commute. */
static inline uint64_t tutti_sign(const struct tutti_call_info *info, bool v, bool ordered, uint64_t schedule,
                                  uint64_t purpose)
{
    uint64_t call = (uint64_t)info->kind | (uint64_t)v << 8 | (uint64_t)ordered << 9 | (uint64_t)info->dtype << 16 |
                    (uint64_t)(uint8_t)info->op << 24 | (uint64_t)(uint32_t)info->root << 32;
    uint64_t rest = schedule | purpose ? tutti_mix64(schedule + 3 * purpose) : 0;
    if (info->reduced) rest ^= tutti_mix64(info->reduced);
    return tutti_mix64(call ^ tutti_mix64(info->count + rest));
}

/* ---- what a thread does with calls instead of starting them (comm.c) ---- */
enum tutti_collecting { TUTTI_COLLECTS_NOTHING, TUTTI_COLLECTS_GROUP, TUTTI_COLLECTS_RECORD };
enum tutti_collecting tutti_collects(void);
void tutti_collect(enum tutti_collecting what);
/* How many threads of this process collect something: while it is 0, which is nearly always, no thread needs to look
 * at its own variable, which costs a call in a shared library. */
extern _Atomic uint32_t tutti_n_collecting;
/* ARGUMENT for calls that can not be collected. */
enum tutti_status tutti_call_alone(const char *call);

#endif
