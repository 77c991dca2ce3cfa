/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_COMM_CALL_DEVICE_H
#define TUTTI_COMM_CALL_DEVICE_H

/* What a communicator knows of devices, and the two ways that calls on device memory take: a device back end, which
 * enqueues them on the caller's stream (device_start.c), or staging (staging_enqueue.c): copies to pinned memory, the
 * call as on CPUs, and copies back, in the stream's order. A communicator of which no member has a device has none
 * of this: comm->device is NULL.
 *
 * Either all members have devices that reach one another; then `n` back ends are open on all of them, and calls on
 * device memory are the devices' (a user-defined operation, and what no back end takes, go through the host). Or n is
 * 0 on all: device memory goes through the host, and meets host memory of other ranks in the same calls. */

#include "backend/backend.h"
#include "comm/call/call.h"
#include "comm/call/device.h"
#include "device/counted.h"

struct tutti_staging;      /* staging.h */
struct tutti_pinned_pool;  /* pinned.h */
struct tutti_device_event; /* below */

/* What was chosen for a call; all that scores look at is in its signature, but for what v forms hide, and windows. */
#define TUTTI_DEVICE_CHOICES 64
struct tutti_device_choice {
    uint64_t signature;
    struct tutti_backend *backend;
};

struct tutti_comm_device {
    struct tutti_device *device;                      /* NULL: this member has none, others have */
    int32_t ordinal;                                  /* the device's, else TUTTI_DEVICE_NONE */
    struct tutti_backend *backends[TUTTI_N_BACKENDS]; /* the same on all members, in the list's order */
    uint32_t n;
    struct tutti_pinned_pool *pinned;                         /* NULL: there is no device */
    struct tutti_staging *staging;                            /* NULL: not opened, nothing is staged */
    struct tutti_device_choice choices[TUTTI_DEVICE_CHOICES]; /* the turn's */
    /* The next line; and n and staging, where works that are not over meet tutti_comm_close_device. Who holds it waits
     * for no ownership of the engine, whose owner takes it. */
    pthread_mutex_t lock;
    struct tutti_device_event *events; /* idle ones */
    struct tutti_device_space *space;  /* NULL: no call needed it */
    struct tutti_scheduled *scheduled; /* what was made of schedules, the last one first. The turn's */
};

/* ---- the device of a communicator (device.c; its end: device.c) ---- */
/* ARGUMENT: the option gpu_share is none. */
enum tutti_status tutti_device_option_check(const struct tutti_config *config);
enum tutti_device_share
tutti_device_share_option(const struct tutti_config *config); /* from options that were checked */
/* The device that config.device stands for on this thread, TUTTI_DEVICE_NONE if there is none. It is not opened. */
int32_t tutti_device_resolve(const struct tutti_config *config, int64_t wanted);
/* Collective, after the team and the back ends of CPUs, when no call is under way; `wanted` is a device or NONE. Sets
 * comm->device, or leaves it NULL on all members. UNSUPPORTED on all when one of them can not use a device that was
 * named. */
enum tutti_status tutti_comm_open_device(struct tutti_comm *comm, const char *name, int32_t wanted, bool named);
/* Waits for what is enqueued, until deadline_ns, stops the rest, closes the back ends. The team is still there; when it
 * is gone, and with it the works, free. */
void tutti_comm_close_device(struct tutti_comm *comm, uint64_t deadline_ns);
void tutti_comm_free_device(struct tutti_comm *comm);
/* Stops all that waits on the device: the team has failed. Any thread; owned: the engine's owner. */
void tutti_comm_stop_device(struct tutti_comm *comm, bool owned);
/* Waits until all that was enqueued is over, the team has failed, or until_ns; whether it is over. */
bool tutti_comm_wait_device(struct tutti_comm *comm, uint64_t until_ns);
/* Whether a device has reported a failure; what was enqueued then may be over, and is not done. */
bool tutti_device_has_failed(const struct tutti_comm_device *device);
/* Where a device has reported a failure: returns when the team knows it. */
void tutti_comm_hear_device(struct tutti_comm *comm);

/* ---- one call (device_start.c) ---- */
/* The stream comes after the calls of others than this back end. The turn is held. */
enum tutti_status tutti_device_come_after(const struct tutti_comm *comm, const struct tutti_backend *backend,
                                          void *stream);
/* Gives the call its number and enqueues it. The turn is held. */
enum tutti_status tutti_device_enqueue(struct tutti_comm *comm, struct tutti_backend *backend,
                                       struct tutti_backend_call *call, void *stream);
/* Enqueues a step of a call, of equal or known blocks, whichever way it goes. The turn is held. */
enum tutti_status tutti_device_step(struct tutti_call *step);

/* ---- starting (device_start.c) ---- */
/* Into the order in which all members enqueue what a group holds. */
void tutti_device_order(struct tutti_call *calls, size_t n);
/* Enqueues prepared calls of routes DEVICE and STAGING, neighbours that may run together as one. works[i], NULL
 * before: of calls that want one; wanted: also such that all of them are covered. After a failure *n_started of them
 * are enqueued. */
enum tutti_status tutti_device_start(struct tutti_call *calls, size_t n, bool wanted, struct tutti_work **works,
                                     size_t *n_started);
/* The end of all that is on the stream by now, as a work. */
enum tutti_status tutti_device_follow(struct tutti_comm *comm, void *stream, const char *label,
                                      struct tutti_work **work);
/* ARGUMENT in a capture. */
enum tutti_status tutti_device_may_follow(const struct tutti_call *call);
/* Compares neighbours in tutti_device_order's order, both prepared, of routes DEVICE and STAGING. ARGUMENT: they run
 * together and are on two streams, not both of one capture or of none; the driver would draw the other one into the
 * capture. */
enum tutti_status tutti_device_may_join(const struct tutti_call *before, const struct tutti_call *call);
/* Before a call on host memory starts, without the turn: waits for what must come first. */
enum tutti_status tutti_device_before(const struct tutti_call *call);
/* Events that are used again (device_start.c). */
struct tutti_device_event {
    struct tutti_device_event *next;
    struct tutti_comm *comm;
    void *event;
    uint32_t staged; /* so many calls through the host come before it */
};
struct tutti_device_event *tutti_device_event_take(struct tutti_comm *comm); /* NULL: the record says why */
void tutti_device_event_give(void *event);
void tutti_device_free_events(struct tutti_comm_device *device);

/* ---- calls of several steps. The turn is held ---- */
/* Memory for a call, which the stream reaches when the calls before it have passed. */
enum tutti_status tutti_device_space_begin(struct tutti_comm *comm, void *stream, size_t bytes, char **out);
/* The stream has passed the call: its memory is free. */
enum tutti_status tutti_device_space_end(struct tutti_comm *comm, void *stream);
/* The event behind the last of them; NULL: there was none. */
void *tutti_device_space_event(const struct tutti_comm_device *device);
void tutti_device_space_free(struct tutti_comm_device *device);
/* Calls of premul_sum with a factor on the device, of both routes. */
static inline bool tutti_call_is_scaled(const struct tutti_call *call)
{
    return call->type == TUTTI_CALL_COLLECTIVE && call->job.info.op == (int)TUTTI_PREMUL_SUM && call->options.premul;
}
enum tutti_status tutti_scaled_enqueue(struct tutti_call *call);
/* Quantised calls, of routes DEVICE and STAGING (device_steps.c). UNSUPPORTED: the device has no kernels for them. */
enum tutti_status tutti_packed_refusal(const struct tutti_call *call);
enum tutti_status tutti_packed_enqueue(struct tutti_call *call);
/* Calls by schedules, of route DEVICE without a back end (device_schedule.c). takes: whether the device has kernels for
 * the call; equal on all ranks. */
bool tutti_scheduled_takes(const struct tutti_call *call);
enum tutti_status tutti_scheduled_enqueue(struct tutti_call *call);
void tutti_scheduled_free(struct tutti_comm_device *device);

/* ---- through the host (staging.h) ---- */
/* device->staging, of a communicator whose device this is to be. Threads and memory are taken at the first call. */
enum tutti_status tutti_staging_open(struct tutti_comm *comm, struct tutti_comm_device *device);
/* Nothing is enqueued any more, or the team has failed and what was is stopped. The team is still there. */
void tutti_staging_close(struct tutti_staging *staging);
/* Enqueues n checked calls of one communicator, all on options.stream of the first, that run together (a group, or
 * one). Returns at once; the stream goes on when they are complete. The buffers are of device->device or empty; tables
 * may go when it returns. Called with the communicator's turn held, in the order of the calls, which is the order in
 * which they are carried out: with call.staged set, by tutti_call_prepare and _start as ever, on pinned copies.
 *
 * Where device->n is 0 their numbers are those that they get when they start, so that they meet the others' calls on
 * host memory. Else all members' calls are such calls: they are carried out on a team (or communicator) of their own,
 * in the order of the calls, and each collective takes a number of comm at once (tutti_team_count).
 *
 * In a capture: ARGUMENT. On failure nothing was enqueued, or the team has failed. */
enum tutti_status tutti_staging_enqueue(struct tutti_staging *staging, struct tutti_call *calls, size_t n);
/* Returns when all that was enqueued has started on the host, since calls on host memory come after it: before each of
 * them, without the turn. The team's failure ends it, too. Where devices carry out all, there is nothing to wait for.
 */
enum tutti_status tutti_staging_settle(const struct tutti_comm *comm);
/* Stops what waits on the device or the host: the team has failed. Any thread; owned: the engine's owner. */
void tutti_staging_stop(struct tutti_staging *staging, bool owned);
/* The event behind the last call that was enqueued; NULL: there was none. */
void *tutti_staging_last_event(const struct tutti_staging *staging);
/* How many were enqueued, modulo 2^32; whether as many are over, since they end in order. Any thread. */
uint32_t tutti_staging_enqueued(const struct tutti_staging *staging);
bool tutti_staging_is_over(const struct tutti_staging *staging, uint32_t n);
/* Whether all that was enqueued is over on its streams. Any thread. */
bool tutti_staging_idle(const struct tutti_staging *staging);

/* An all_to_all_v whose counts only the senders know (call/dynamic.c), on the device. */

struct tutti_counted_call {
    struct tutti_comm *comm;
    const void *send;
    void *recv;
    struct tutti_counted_row row; /* but for n and row */
    uint64_t *recv_counts;
    int32_t *status;
    enum tutti_dtype dtype;
    struct tutti_call_options options;
};
/* Whether counts can be read on the communicator's device; equal on all ranks. */
bool tutti_counted_on_device(const struct tutti_comm *comm);
/* All memory is of the device. Takes the turn. */
enum tutti_status tutti_counted_enqueue(const struct tutti_counted_call *call);

#endif
