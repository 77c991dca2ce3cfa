/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_DEVICE_H
#define TUTTI_COMM_DEVICE_H

/* What a communicator knows of devices, and the two ways that calls on device memory take: a device back end, which
 * enqueues them on the caller's stream (device_call.c), or through the host (device_host.c): copies to pinned twins,
 * the call as on CPUs, and copies back, in the stream's order. A communicator of which no member has a device has none
 * of this: comm->device is NULL.
 *
 * Either all members have devices that reach one another; then `n` back ends are open on all of them, and calls on
 * device memory are the devices' (a user-defined operation, and what no back end takes, go through the host). Or n is
 * 0 on all: device memory goes through the host, and meets host memory of other ranks in the same calls. */

#include "backend/device.h"
#include "comm/comm.h"

#define TUTTI_DEVICE_COUNT(name) +1
enum { TUTTI_MAX_DEVICE_BACKENDS = 0 TUTTI_DEVICE_BACKENDS(TUTTI_DEVICE_COUNT) };
#undef TUTTI_DEVICE_COUNT

struct tutti_through; /* device_host.c */

/* Events that works wait for; of those the communicator keeps some (device_work.c). */
#define TUTTI_DEVICE_EVENTS 16

struct tutti_comm_device {
    struct tutti_gpu *gpu;                                            /* NULL: this member has none, others have */
    int32_t ordinal;                                                  /* of gpu, else TUTTI_DEVICE_NONE */
    struct tutti_device_backend *backends[TUTTI_MAX_DEVICE_BACKENDS]; /* the same on all members, in the list's order */
    uint32_t n;
    struct tutti_through *through; /* NULL: not opened, nothing goes through the host */
    pthread_mutex_t lock;          /* of events */
    void *events[TUTTI_DEVICE_EVENTS];
    uint32_t n_events;
};

/* ---- the device of a communicator (device.c) ---- */
/* Collective, after the team and the back ends of CPUs, before any call: `wanted` as in tutti_comm_config. Sets
 * comm->device, or leaves it NULL on all members. A device that can not be used is a failure of this member alone when
 * it was named, and tells the others. */
enum tutti_status tutti_comm_open_device(struct tutti_comm *comm, int32_t wanted);
/* What children ask for. */
int32_t tutti_comm_device_wanted(const struct tutti_comm *comm);
/* Waits for what is enqueued, until deadline_ns, stops the rest, frees. The team is still there. */
void tutti_comm_close_device(struct tutti_comm *comm, uint64_t deadline_ns);
/* Stops all that waits on the device: the team has failed. Any thread. */
void tutti_comm_stop_device(struct tutti_comm *comm);
/* Whether all that was enqueued is over; waits for it until until_ns. */
bool tutti_comm_wait_device(struct tutti_comm *comm, uint64_t until_ns);

/* ---- calls (device_call.c) ---- */
enum tutti_route {
    TUTTI_ROUTE_HOST,    /* no device memory: as ever */
    TUTTI_ROUTE_DEVICE,  /* a device back end enqueues it */
    TUTTI_ROUTE_THROUGH, /* through the host */
};
/* Where the request's significant buffers are, after its checks. ARGUMENT: mixed, or of another device. */
enum tutti_status tutti_request_route(struct tutti_request *request);

/* ---- through the host (device_host.c) ---- */
/* Collective: all members call it, also those without a device, once it is known which back ends are open (device->n).
 * Host memory for twins, streams and threads may be taken at the first call. */
enum tutti_status tutti_through_open(struct tutti_comm *comm, struct tutti_through **out);
/* Nothing is enqueued any more, or the team has failed and what was is stopped. The team is still there. */
void tutti_through_close(struct tutti_through *through);
/* Enqueues n checked requests of one communicator, all on options.stream of the first, that run together (a group, or
 * one). Returns at once; the stream goes on when they are complete. The buffers are of device->gpu or empty; tables may
 * go when it returns. Called with the communicator's turn held, in the order of the calls, which is the order in which
 * they are carried out: with request.staged set, through tutti_request_prepare and _start as ever, on twins.
 *
 * Where device->n is 0 their numbers are those that they get when they start, so that they meet the others' calls on
 * host memory. Else all members' calls are such calls: they are carried out on a team (or communicator) of their own,
 * in the order of the calls, and each collective takes a number of comm at once (tutti_team_count).
 *
 * In a capture: ARGUMENT. On failure nothing was enqueued, or the team has failed. */
enum tutti_status tutti_through_enqueue(struct tutti_through *through, struct tutti_request *requests, size_t n);
/* Returns when all that was enqueued has started on the host, since calls on host memory come after it: before each of
 * them, without the turn. The team's failure ends it, too. */
enum tutti_status tutti_through_settle(struct tutti_through *through);
/* Stops what waits on the device or the host: the team has failed. Any thread. */
void tutti_through_stop(struct tutti_through *through);
/* Whether all that was enqueued is over on its streams. Any thread. */
bool tutti_through_idle(struct tutti_through *through);

#endif
