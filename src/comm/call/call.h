/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_CALL_CALL_H
#define TUTTI_COMM_CALL_CALL_H

/* A call, from the public function to whoever carries it out: one struct. The public functions (coll.c) set its
 * arguments; check.c refuses what can not be, in a sentence, or silently for the short way; choose.c decides, once, by
 * what it goes; run.c has both ways: the short one, on the caller's thread, and the long one, through groups and
 * recordings (group.c) if one is open. Calls on memory of devices: device.h. Begin with struct tutti_call, then coll.c
 * and run.c. The room may use comm.h and all below comm.
 *
 * Threads: a call belongs to one thread. Ownership: buffers and tables are the caller's, borrowed until the call is
 * complete; what keeps a call longer than that owns a copy of its tables (tutti_call_own, _disown). */

#include "backend/backend.h"
#include "comm/comm.h"

#include <string.h>

/* By what a call goes. */
enum tutti_via {
    TUTTI_VIA_BACKEND, /* a back end of the communicator carries it out, on host memory */
    TUTTI_VIA_ENGINE,  /* the engine does: a schedule, or messages */
    TUTTI_VIA_PACKED,  /* two calls of the engine, on packed data (packed.h) */
    TUTTI_VIA_DEVICE,  /* a back end of devices enqueues it */
    TUTTI_VIA_STAGING, /* device memory goes through the host: copied in, carried out as on CPUs, copied out */
};

enum tutti_call_type { TUTTI_CALL_COLLECTIVE, TUTTI_CALL_SEND, TUTTI_CALL_RECV, TUTTI_CALL_SENDRECV };

struct tutti_call {
    /* What is to be done: kind, type, operation, root, counts, tables, buffers. A call with one buffer has it as input
     * and output; the count of gather_v and scatter_v is the own one, that of messages what is sent. The checks and
     * tutti_call_ready add kernels, deadline, label and signature, and then this is what the work is done by. */
    struct tutti_backend_call job;
    enum tutti_call_type type;
    const char *name; /* "all_gather_v", static */
    struct tutti_comm *comm;
    struct tutti_work **work;                 /* NULL: the caller waits */
    size_t recv_count;                        /* messages: capacity */
    int32_t dest, send_tag, source, recv_tag; /* messages */
    struct tutti_message *message;
    struct tutti_call_options options;
    bool quiet;       /* refusals are a status without a sentence */
    bool collected;   /* a group or a recording holds it: its number is not known yet */
    bool staged;      /* its buffers are pinned copies of a device's: they are not looked for on devices again */
    size_t place;     /* in its group */
    uint64_t purpose; /* it is a step of another call: a hash of what all ranks must agree on of that; else 0 */
    /* Chosen (choose.c). */
    enum tutti_via via;
    struct tutti_backend *backend;           /* BACKEND, DEVICE */
    const struct tutti_algorithm *algorithm; /* ENGINE, collectives; DEVICE without a back end */
    /* Taken by tutti_call_prepare, beside the schedule in job.bind. */
    struct tutti_packed_call *packed;
    size_t *tables;           /* a copy that the call owns: of groups and persistent calls */
    struct tutti_shape shape; /* the algorithm's. Last: tutti_call_begin leaves it as it is */
};
/* The arguments of a collective of equal blocks; the rest is as it was (tutti_call_begin). */
static inline void tutti_call_set(struct tutti_call *call, enum tutti_kind kind, enum tutti_dtype dtype, int32_t op,
                                  int32_t root, size_t count, const void *input, void *output)
{
    call->job.info.kind = kind, call->job.info.dtype = dtype, call->job.info.op = op, call->job.info.root = root;
    call->job.bind.count = count, call->job.bind.input = input, call->job.bind.output = output;
}
/* Sets all but these arguments to nothing. */
void tutti_call_begin(struct tutti_call *call, struct tutti_comm *comm, struct tutti_work **work);
/* Whether it is enqueued on a stream, not started on the host. */
static inline bool tutti_call_enqueues(const struct tutti_call *call)
{
    return call->via >= TUTTI_VIA_DEVICE;
}
/* The job for who carries it out now: pointers into the call are those of this copy of it. */
static inline struct tutti_backend_call *tutti_call_job(struct tutti_call *call)
{
    call->job.bind.factor = call->job.factor;
    return &call->job;
}

/* ---- checks (check.c) ---- */
/* Refuses the call: a sentence that names rank, collective and number, "all_reduce #4 on rank 3: ..."; none if it is
 * quiet. Returns the status. */
enum tutti_status tutti_call_fail(const struct tutti_call *call, enum tutti_status status, const char *format, ...)
    TUTTI_PRINTF(3, 4);
/* The call's options into the call; ARGUMENT when they are not a tutti_call_options. */
enum tutti_status tutti_call_options(struct tutti_call *call, const struct tutti_call_options *options);
/* All arguments. */
enum tutti_status tutti_call_check(struct tutti_call *call);

/* One side of a call at this rank: a pointer and where its blocks are. A message is one block. */
struct tutti_call_side {
    const char *name;
    const char *base;
    size_t n_blocks, block_bytes, element; /* equal blocks; with counts only n_blocks and element; 0: nothing */
    const size_t *counts, *displs;
    const char *counts_name, *displs_name;
    size_t bytes; /* from base to the end of the last block */
    size_t total; /* elements in all */
};
/* What this rank passes on one side. The checks fill in bytes and total, and find out whether block_bytes overflowed.
 */
struct tutti_call_side tutti_call_side(const struct tutti_call *call, bool sending);

/* ---- the choice (choose.c) ---- */
/* Decides by what a checked call goes: by where its buffers are, what the communicator has, and what back ends can do.
 * All of that but the buffers is equal on all members, so all members decide alike. ARGUMENT: buffers of several kinds,
 * or of another device, or the call asks for what can not be. UNSUPPORTED. */
enum tutti_status tutti_call_choose(struct tutti_call *call);
/* The same for a call on host memory, a step of another one or a copy of it. */
enum tutti_status tutti_call_choose_host(struct tutti_call *call);
/* The one choice of a back end: on host memory the first one of the communicator that takes the job; on memory of
 * devices the one of the least score. The turn is held for devices. NULL: none takes it. */
struct tutti_backend *tutti_backend_choose(struct tutti_comm *comm, const struct tutti_backend_call *job,
                                           bool on_device);
/* What follows from the arguments of a call that was checked: kernels, deadline, label, signature; buffers that are not
 * significant here become NULL. A second time changes nothing. */
void tutti_call_ready(struct tutti_call *call);
/* Signs the call anew: schedule or back end are chosen. */
void tutti_call_sign(struct tutti_call *call);

/* A call that names an algorithm has been chosen so, or refused. The first time that it comes from a file, all ranks
 * say whether they have it and have proved it: then the call is refused on all of them, or on none (file.c). Blocks
 * until all have come. ARGUMENT, UNSUPPORTED: what this rank or another one says; else as a collective's. */
enum tutti_status tutti_file_agree(const struct tutti_call *call, enum tutti_status chosen);

/* What could carry out a collective, for `tutti bench --explain`. Its options are ignored. Errors as the call's. */
#define TUTTI_MAX_WAYS 24
struct tutti_way {
    char name[40]; /* as in tutti_call_options.algorithm */
    double ns;     /* predicted; HUGE_VAL: nobody knows */
    bool chosen;   /* where the call does not say */
    int32_t n_sms; /* a device's, the most that one launch takes; -1: nobody knows */
};
enum tutti_status tutti_explain(const struct tutti_call *call, struct tutti_way *out, size_t capacity, size_t *n);

/* ---- the two ways (run.c) ---- */
/* A collective of equal blocks, whose arguments are set: the short way if it may, else as submitted. */
enum tutti_status tutti_call_collective(struct tutti_call *call, struct tutti_comm *comm,
                                        const struct tutti_call_options *options, struct tutti_work **work);
/* Any call: enters the communicator, checks, then dispatches. */
enum tutti_status tutti_call_submit(struct tutti_call *call, const struct tutti_call_options *options);
/* Chooses for a checked call, then carries it out, or hands it to the group or recording of this thread. */
enum tutti_status tutti_call_dispatch(struct tutti_call *call);

/* Calls on host memory, when they are chosen. prepare takes the schedule, or what else is needed before; release gives
 * back what was not started; start takes it over, also when it fails. */
enum tutti_status tutti_call_prepare(struct tutti_call *call);
void tutti_call_release(struct tutti_call *call);
enum tutti_start {
    TUTTI_START_INLINE, /* the caller waits now: a back end may carry it out on this thread; then *work is NULL */
    TUTTI_START,        /* the caller waits soon */
    TUTTI_START_HELPER, /* nobody waits at once */
};
enum tutti_status tutti_call_start(struct tutti_call *call, enum tutti_start how, struct tutti_work **work);
/* A part of the call (or group) could not be started, and the other ranks would wait for it: so the communicator fails,
 * here and elsewhere. The n parts that were started are waited for. Keeps the thread's error record. */
void tutti_call_give_up(const struct tutti_call *call, struct tutti_work **started, size_t n);
/* Replaces the borrowed tables by a copy, so that the call can be kept. */
enum tutti_status tutti_call_own(struct tutti_call *call);
void tutti_call_disown(struct tutti_call *call);

/* ---- groups and recordings of this thread (group.c) ---- */
enum tutti_status tutti_group_add(const struct tutti_call *call);
void tutti_group_spoil(void); /* a call inside the group failed */
enum tutti_status tutti_record_add(const struct tutti_call *call);
void tutti_record_spoil(void);

#endif
