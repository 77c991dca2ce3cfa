/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_CALL_CALL_H
#define TUTTI_COMM_CALL_CALL_H

/* A request is one call of the user as data. The public wrappers (call/coll.c, call/coll.c) fill it, check.c checks it,
 * it gets its route, and then it is started, at once or by a group. This room knows requests on host memory, from their
 * checks to their start; the rooms above (device, call) carry out those on devices. It may use object, and all below
 * comm. Begin with struct tutti_request, then read request.c.
 *
 * Order of the functions: _options, _check, a route (tutti_route of call, or tutti_route_host here), _prepare, _start.
 * Threads: a request belongs to one thread. Ownership: buffers and tables are the caller's, borrowed until the call is
 * complete; who keeps a request longer than the call lasts owns a copy of its tables (_own, _disown). */

#include "comm/comm.h"

struct tutti_backend;

/* Which way a request goes (decided in call.h). Calls that go the short way never become requests. */
enum tutti_via {
    TUTTI_VIA_BACKEND, /* a back end of the communicator carries it out, on host memory */
    TUTTI_VIA_ENGINE,  /* the engine does: a schedule, or messages */
    TUTTI_VIA_PACKED,  /* two calls of the engine, on packed data (packed.h) */
    TUTTI_VIA_DEVICE,  /* a back end of devices enqueues it */
    TUTTI_VIA_STAGING, /* device memory goes through the host: copied in, carried out as on CPUs, copied out */
};
struct tutti_route {
    enum tutti_via via;
    struct tutti_backend *backend;           /* BACKEND, DEVICE: who carries it out */
    const struct tutti_algorithm *algorithm; /* ENGINE, collectives */
    struct tutti_shape shape;                /* the algorithm's */
};

enum tutti_request_type { TUTTI_REQUEST_COLLECTIVE, TUTTI_REQUEST_SEND, TUTTI_REQUEST_RECV, TUTTI_REQUEST_SENDRECV };

struct tutti_request {
    enum tutti_request_type type;
    const char *name; /* "all_gather_v", static */
    struct tutti_comm *comm;
    enum tutti_kind kind;
    bool v;
    const void *send; /* a call with one buffer passes it as both */
    void *recv;
    size_t count;                        /* a block's; gather_v, scatter_v: the own one; send: what is sent */
    size_t recv_count;                   /* recv: capacity */
    const size_t *counts, *displs;       /* v forms: blocks of the larger side (all_to_all_v: of recv) */
    const size_t *in_counts, *in_displs; /* all_to_all_v: of send */
    enum tutti_dtype dtype;
    int op; /* enum tutti_op or a handle; -1: none */
    int32_t root;
    int32_t dest, send_tag, source, recv_tag; /* point-to-point */
    struct tutti_message *message;
    struct tutti_call_options options;
    uint8_t factor[16]; /* premul_sum: read at the call */
    struct tutti_work **work;
    bool collected;          /* a group or a recording holds it: its number is not known yet */
    bool staged;             /* its buffers are pinned copies of a device's: nobody looks for device memory again, */
    struct tutti_gate *gate; /* and what has come to them; NULL: all */
    size_t place;            /* in its group */
    /* Filled by the checks. */
    struct tutti_user_op user;
    /* Filled when it gets its route. */
    struct tutti_route route;
    uint64_t purpose; /* it is a step of another call: a hash of what all ranks must agree on of that; else 0 */
    /* Filled by tutti_request_prepare. */
    const struct tutti_schedule *schedule;
    struct tutti_packed_call *packed;
    size_t *tables; /* a copy that the request owns: of groups and persistent calls */
};
/* Whether it is enqueued on a stream, not started on the host. */
static inline bool tutti_request_enqueues(const struct tutti_request *request)
{
    return request->route.via >= TUTTI_VIA_DEVICE;
}

/* ---- checks (check.c); the sentences name argument, rank and collective ---- */
/* "all_reduce on rank 3: ..." */
enum tutti_status tutti_request_fail(const struct tutti_request *request, enum tutti_status status, const char *format,
                                     ...) TUTTI_PRINTF(3, 4);
/* The call's options into the request; ARGUMENT when they are not a tutti_call_options. */
enum tutti_status tutti_request_options(struct tutti_request *request, const struct tutti_call_options *options);
/* All arguments. */
enum tutti_status tutti_request_check(struct tutti_request *request);

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
struct tutti_call_side tutti_request_side(const struct tutti_request *request, bool sending);

/* ---- what a checked request is, for who carries it out (request.c) ---- */
void tutti_request_question(const struct tutti_request *request, struct tutti_question *out);
void tutti_request_bind(const struct tutti_request *request, struct tutti_bind *bind); /* where things are */
void tutti_request_info(const struct tutti_request *request, struct tutti_call_info *info);
void tutti_request_call(const struct tutti_request *request, struct tutti_backend_call *call); /* both */
uint64_t tutti_request_timeout(const struct tutti_request *request);
/* Replaces the borrowed tables by a copy, so that the request outlives the call. */
enum tutti_status tutti_request_own(struct tutti_request *request);
void tutti_request_disown(struct tutti_request *request);

/* ---- on host memory (start.c, ways.c) ---- */
/* The route of a request on host memory: its back end, or the engine with an algorithm. ARGUMENT when the call asks for
 * what can not be. */
enum tutti_status tutti_route_host(const struct tutti_request *request, struct tutti_route *out);
/* A schedule for the route, of one call, and what gives it back; a second time does nothing. */
enum tutti_status tutti_request_seal(struct tutti_request *request);
void tutti_request_unseal(struct tutti_request *request);
/* Starts one call, prepared, of a route on host memory. *work is always written on success. helper: nobody waits at
 * once. The schedule is taken over, also on failure. */
enum tutti_status tutti_request_start_one(struct tutti_request *request, bool helper, struct tutti_work **work);
/* The same for requests of any route on host memory (ways.c): takes the schedule, or what else it needs; gives back
 * what was not started; starts. */
enum tutti_status tutti_request_prepare(struct tutti_request *request);
void tutti_request_release(struct tutti_request *request);
enum tutti_status tutti_request_start(struct tutti_request *request, bool helper, struct tutti_work **work);
/* The same for a caller who waits now, route BACKEND: the call is carried out on this thread if that is soon done, and
 * then *work is NULL. */
enum tutti_status tutti_request_start_hurried(struct tutti_request *request, struct tutti_work **work);
/* A part of the call (or group) could not be started, and the other ranks would wait for it: so the communicator fails,
 * here and elsewhere. The n parts that were started are waited for. Keeps the thread's error record. */
void tutti_request_give_up(const struct tutti_request *request, struct tutti_work **started, size_t n);

/* ---- the communicator's back end (hurry.c). The turn is held ---- */
struct tutti_backend_way {
    struct tutti_comm *comm;
    struct tutti_backend *backend;
    bool hurry;  /* the caller waits, so run the call inline if possible; then *work is NULL */
    bool helper; /* nobody waits at once */
};
enum tutti_status tutti_backend_start(const struct tutti_backend_way *way, struct tutti_backend_op *op,
                                      struct tutti_work **work);
/* Goes on with a tiny call that was begun: the engine drives the rest. */
enum tutti_status tutti_backend_resume(struct tutti_comm *comm, struct tutti_backend_op *op, struct tutti_work **work);

/* Which way a call goes, decided here and nowhere else. Most collectives are short: that is seen before there is a
 * request, from the arguments alone, and costs nearly nothing. All others get a request and, once it is checked, a
 * route, which one switch carries out (submit.c). */

/* Whether a collective of equal blocks may go the short way (short.c). The caller waits, now or at once. Its options
 * ask for nothing but a timeout and a label. There is data, and this thread collects no calls (group, recording). */
static inline bool tutti_route_is_short(const struct tutti_comm *comm, const struct tutti_args *args,
                                        const struct tutti_call_options *options, struct tutti_work *const *work)
{
    if (!comm || (args->count == 0 && args->kind != TUTTI_BARRIER)) return false;
    if (work && !(options && options->size == sizeof(*options) && options->attended)) return false;
    if (options && (options->size != sizeof(*options) || options->algorithm || options->wire)) return false;
    return atomic_load_explicit(&tutti_n_collecting, memory_order_relaxed) == 0;
}

/* The route of a checked request: by where its buffers are, what the communicator has, and what back ends can do. All
 * of that but the buffers is equal on all members, so all members go one way together. ARGUMENT: buffers of several
 * kinds, or of another device, or the call asks for what can not be. UNSUPPORTED. */
enum tutti_status tutti_route(const struct tutti_request *request, struct tutti_route *out);

/* The short way. AGAIN: nothing was done, because the arguments are unusual or the turn is taken; the call goes on as a
 * request, which also makes the sentences. out: NULL to block, else the work of an attended call, which may be complete
 * already. */
enum tutti_status tutti_short(struct tutti_comm *comm, const struct tutti_args *args,
                              const struct tutti_call_options *options, struct tutti_work **out);

/* How a call could be carried out, for `tutti bench --explain`. */

#define TUTTI_MAX_WAYS 24
struct tutti_way {
    char name[40]; /* as in tutti_call_options.algorithm */
    double ns;     /* predicted; HUGE_VAL: nobody knows */
    bool chosen;   /* where the call does not say */
    int32_t n_sms; /* SMs of a device, the most that one launch takes; -1: nobody knows */
};
/* The ways of a collective that is filled as by the public calls; its options are ignored. Errors as the call's. */
enum tutti_status tutti_explain(const struct tutti_request *request, struct tutti_way *out, size_t capacity, size_t *n);

/* Public calls: from the wrappers (coll.c, p2p.c) to whoever carries them out. This room may use object, request and
 * device of comm. Most calls take the short way (short.c), without a request; the others are submitted (submit.c): they
 * are checked, get their route (route.c), and one switch carries the route out. Groups (group.c) and persistent
 * collectives (group.c) keep requests for later. Begin with coll.c, then submit.c. */

/* The public wrappers end here: enter, check, then dispatch (submit.c). */
enum tutti_status tutti_request_submit(struct tutti_request *request, const struct tutti_call_options *options);
/* Gives a checked request its route, then carries it out, or hands it to the group or recording of this thread. */
enum tutti_status tutti_request_dispatch(struct tutti_request *request);

/* ---- groups (group.c) and recordings (group.c) of this thread ---- */
enum tutti_status tutti_group_add(const struct tutti_request *request);
void tutti_group_spoil(void); /* a call inside the group failed */
enum tutti_status tutti_record_add(const struct tutti_request *request);
void tutti_record_spoil(void);

#endif
