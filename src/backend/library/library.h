/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_LIBRARY_LIBRARY_H
#define TUTTI_BACKEND_LIBRARY_LIBRARY_H

/* The back end over another maker's library, on devices: its calls on streams, in one order, with events around them
 * (backend/watch_library.h), logged before they are made; opening, closing, and what the watch is told. A library is a
 * table of its entry points (nccl.h, oneccl.h), a table of what it does right (nccl_kinds.c, oneccl_kinds.c), and a
 * struct library_ops of what only it does. oneCCL on host memory is a back end of its own (oneccl_op.c).
 *
 * It may use the engine and all below it. Begin with library.c; then nccl.h, oneccl.h. */

#include "backend/shared.h"
#include "backend/watch_library.h"
#include "device/device.h"

/* ---- element types, which both libraries number alike ---- */
enum library_type {
    LIBRARY_INT8,
    LIBRARY_UINT8,
    LIBRARY_INT32,
    LIBRARY_UINT32,
    LIBRARY_INT64,
    LIBRARY_UINT64,
    LIBRARY_FLOAT16,
    LIBRARY_FLOAT32,
    LIBRARY_FLOAT64,
    LIBRARY_BFLOAT16
};
struct library_dtype {
    uint32_t type;     /* enum library_type, which reductions go by; what only moves travels as bytes */
    uint32_t elements; /* those of that type in one of ours; 0: there is none */
};
extern const struct library_dtype library_dtypes[TUTTI_N_DTYPES];
/* Sets of operations. */
#define LIBRARY_OP(op) (1u << (op))
#define LIBRARY_ORDERED (LIBRARY_OP(TUTTI_SUM) | LIBRARY_OP(TUTTI_PROD) | LIBRARY_OP(TUTTI_MIN) | LIBRARY_OP(TUTTI_MAX))
/* Whether the operation is in the set: all do, for a kind that reduces nothing. */
bool library_reduces(const struct tutti_call_info *info, uint32_t set);
/* A fixed time, and the bytes that pass one link: `blocks` is how many blocks of the call's those are. */
static inline double library_cost_ns(const struct tutti_call_info *info, double blocks, double latency_ns,
                                     double bytes_a_ns)
{
    return latency_ns + (double)info->count * (double)tutti_dtype_bytes(info->dtype) * blocks / bytes_a_ns;
}

/* ---- an instance on devices ---- */
struct library;
struct library_item {                      /* what is enqueued: a collective, or messages */
    const struct tutti_backend_call *call; /* NULL: messages */
    const struct tutti_backend_message *messages;
    size_t n;
};
struct library_ops {
    /* Whether calls can be enqueued on the stream. NULL: on any. */
    enum tutti_status (*accepts)(struct library *l, void *stream);
    /* Makes the communicator, at the first call; fails the team when it can not. */
    enum tutti_status (*make)(struct library *l, uint64_t timeout_ns);
    /* Enqueues the item. */
    enum tutti_status (*run)(struct library *l, const struct library_item *item, void *stream, uint64_t timeout_ns);
    /* Waits for what stops after a failure. NULL: nothing does. */
    void (*failed)(struct library *l);
    /* Stops all that waits on the device, as struct watch_ops has it. */
    bool (*stop)(struct library *l);
    /* Finds an error of the library's own; true: the team has failed. NULL: it says nothing by itself. */
    bool (*look)(struct library *l, uint64_t now_ns);
    /* Whether there is something to look after besides calls. NULL: no. */
    bool (*waits)(const struct library *l);
    /* Ends the communicator; over: all that was enqueued is, and well. */
    void (*end)(struct library *l, bool over, uint64_t deadline_ns);
    /* Frees what the instance has besides. */
    void (*release)(struct library *l);
    bool closes_in_time; /* peers are waited for until the deadline of closing at most */
};
struct library {
    struct tutti_backend base; /* first */
    const struct library_ops *ops;
    struct watched watched;
    struct watch_marks marks;
    struct tutti_device *gpu; /* the caller's */
    bool reproducible;
    uint64_t capture; /* the last call was captured in it, at node */
    void *capture_stream, *node;
};
static inline struct library *library_of(const struct tutti_backend *backend)
{
    return (struct library *)(uintptr_t)backend;
}
/* Whether this member has the communicator, or had it. */
static inline bool library_made(const struct library *l)
{
    return atomic_load(&watch_own_log(&l->watched)->made);
}

/* ---- for its open and connect ---- */
/* Fills the instance, and opens its log: log_bytes, which begin with a struct watch_log; *log is for the card. Frees
 * the instance when it fails. */
enum tutti_status library_open(struct library *l, const struct tutti_backend_config *config, size_t log_bytes,
                               uint64_t *log);
/* Maps the members' logs, whose places are at `log_at` in each card. First of all, so that all members let go of all
 * logs, however connecting ends. */
enum tutti_status library_map(struct library *l, const void *cards, size_t stride, size_t log_at);
void library_discard(struct library *l);
/* As watch_fail; then waits for what stops. */
enum tutti_status library_fail(struct library *l, const char *what, uint64_t seq);

/* ---- entries of struct tutti_backend_ops ---- */
void library_connected(struct tutti_backend *backend);
void library_close(struct tutti_backend *backend, uint64_t deadline_ns);
enum tutti_status library_enqueue(struct tutti_backend *backend, const struct tutti_backend_call *call, void *stream);
enum tutti_status library_messages(struct tutti_backend *backend, const struct tutti_backend_message *messages,
                                   size_t n, void *stream, uint64_t timeout_ns);
bool library_failed(struct tutti_backend *backend);
void *library_last_event(struct tutti_backend *backend);

#endif
