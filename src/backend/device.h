/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_DEVICE_H
#define TUTTI_BACKEND_DEVICE_H

/* Back ends of devices: they enqueue whole collectives on a stream of the caller, and return. A communicator has one of
 * each that all its members can open, and asks their scores call by call. Opening is a collective in two steps, as for
 * other back ends (backend.h): open and a card, then connect with all cards. What one member can not open, no member
 * uses. Calls of one instance are enqueued by one thread at a time (the communicator's turn), in the same order on all
 * members.
 *
 * Failures on the device, and peers that die, are not seen by calls, which are long gone: the instance's watch (a
 * thread, every few milliseconds) fails the team with the sentence that engines make, and stops what waits on the
 * device; so calls after that return the error, and `failed` tells who asks. */

#include "backend/backend.h"
#include "device/cuda/gpu.h"

struct tutti_device_backend;

#define TUTTI_DEVICE_CARD_BYTES 384
struct tutti_device_config {
    struct tutti_backend_host *host;
    struct tutti_gpu *gpu; /* the caller's, open for longer than the back end */
    struct tutti_transport *transport;
    struct tutti_control *control; /* of the same members */
    struct tutti_team *team;
    const uint32_t *members;    /* slot -> member of the transport; borrowed */
    uint32_t n, me;             /* slots, the own one */
    uint64_t id;                /* of the communicator */
    size_t scratch_bytes;       /* device memory that this instance may take */
    uint32_t blocks;            /* of a launch, at most; 0: as many as are best; equal on all */
    enum tutti_gpu_share share; /* how others get at it */
    uint64_t timeout_ns;        /* that others wait for a step of opening */
    const char *tuning;         /* cuda: what was measured, "auto", "off" or a file */
    const char *library;        /* nccl: the file to open, "": found */
    const char *method;         /* "": chosen; else the one method to use where it can; equal on all */
    uint64_t nonce;             /* of the world; equal on all members, unlike any other's */
};

/* A window over device memory: a collective registration (tutti_window_create). The same offset into it on all ranks is
 * what kernels and copy engines need: they write where the own host says, without asking a peer. */
struct tutti_device_window_card {
    unsigned char handle[TUTTI_GPU_HANDLE_BYTES];
    uint64_t offset, bytes; /* of the window in the exported allocation; bytes 0: none */
    uint64_t address;       /* where the exporting process has it */
};

/* One message of a batch of point-to-point calls. */
struct tutti_device_message {
    uint32_t peer;
    bool send;
    void *buffer;
    size_t bytes;
};

struct tutti_device_backend {
    const struct tutti_device_backend_ops *ops;
};
struct tutti_device_backend_ops {
    const char *name, *help;
    bool schedules; /* it carries out calls whose schedule is named: bind.schedule, which may go when enqueue returns */
    /* UNSUPPORTED with the reason when it can not serve this member. */
    enum tutti_status (*open)(const struct tutti_device_config *config, void *card, struct tutti_device_backend **out);
    /* The cards of all n members, `stride` bytes from one to the next. UNSUPPORTED when these members can not reach one
     * another: tell the others (the caller compares the outcomes of all). Closes itself when it fails. */
    enum tutti_status (*connect)(struct tutti_device_backend *backend, const void *cards, size_t stride);
    /* As all members know, all have connected, or nobody goes on and close follows: what was kept for that can go.
     * NULL: nothing was. */
    void (*connected)(struct tutti_device_backend *backend);
    /* Waits for what is enqueued, until `deadline_ns`; then stops it. Frees what no peer can touch any more. */
    void (*close)(struct tutti_device_backend *backend, uint64_t deadline_ns);
    /* Predicted nanoseconds of the call on the device; HUGE_VAL: it can not. Pure over what is equal on all members. */
    double (*score)(const struct tutti_device_backend *backend, const struct tutti_backend_call *call);
    /* Enqueues a call that score accepted. bind.input and bind.output are memory of the gpu; tables of v forms may go
     * when it returns. In a capture: becomes part of it. On failure nothing was enqueued (ARGUMENT, SYSTEM, MEMORY), or
     * the team has failed. */
    enum tutti_status (*enqueue)(struct tutti_device_backend *backend, const struct tutti_backend_call *call,
                                 void *stream);
    /* Enqueues messages as one: none waits for another of the batch. In order between two ranks. */
    enum tutti_status (*messages)(struct tutti_device_backend *backend, const struct tutti_device_message *messages,
                                  size_t n, void *stream, uint64_t timeout_ns);
    /* Several collectives as one (a group): NULL, or as n times enqueue. */
    enum tutti_status (*batch)(struct tutti_device_backend *backend, const struct tutti_backend_call *calls, size_t n,
                               void *stream);
    /* Collective windows; NULL: there is no use for them. peers: the window of each slot as mapped here. */
    enum tutti_status (*window_add)(struct tutti_device_backend *backend, const struct tutti_device_window_card *cards,
                                    size_t stride, void *own, size_t bytes, void **peers);
    void (*window_remove)(struct tutti_device_backend *backend, void *own);
    /* Stops all that waits on the device, at once: the team has failed. Any thread. */
    void (*stop)(struct tutti_device_backend *backend);
    /* Everything enqueued so far is over: an event's handle to wait for or query, NULL if nothing was enqueued. */
    void *(*last_event)(struct tutti_device_backend *backend);
    size_t (*scratch_used)(const struct tutti_device_backend *backend); /* bytes of device memory */
    /* What it has opened, in few words, for the log. NULL: there is nothing to tell. */
    void (*describe)(const struct tutti_device_backend *backend, char *out, size_t capacity);
    /* The methods that can carry out a call that score accepts; at most `capacity`, their number. For `tutti bench
     * --explain`. NULL: it has but one. */
    size_t (*candidates)(const struct tutti_device_backend *backend, const struct tutti_backend_call *call,
                         struct tutti_backend_candidate *out, size_t capacity);
    /* Whether the device has reported a failure that the team may not know yet: what is over then is not done. Cheap,
     * any thread. NULL: such a thing can not be. */
    bool (*failed)(struct tutti_device_backend *backend);
};

/* Whether an option of this text is one that `tuning` can be. ARGUMENT, SYSTEM: the file is not right. */
enum tutti_status tutti_device_tuning_check(const char *tuning);

/* Whether an option of this text names a method of the first back end of the list; empty: none. ARGUMENT. */
enum tutti_status tutti_device_method_check(const char *method);

/* Before the transport closes: back ends that were opened over it are closed, but peers may still touch memory of this
 * rank's device that they left. Waits for a second at most; what is not given back then stays taken. */
void tutti_device_sweep(struct tutti_backend_host *host);

/* The one list: X(name). A back end defines `const struct tutti_device_backend_ops tutti_device_NAME`. The first is the
 * one whose loss is reported: the others need not be there. */
#define TUTTI_DEVICE_BACKENDS(X) X(cuda) X(nccl)
#define TUTTI_DEVICE_DECLARE(name) extern const struct tutti_device_backend_ops tutti_device_##name;
TUTTI_DEVICE_BACKENDS(TUTTI_DEVICE_DECLARE)
#undef TUTTI_DEVICE_DECLARE

#endif
