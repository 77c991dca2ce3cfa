/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_BACKEND_LIBRARY_ONECCL_DEVICE_H
#define TUTTI_BACKEND_LIBRARY_ONECCL_DEVICE_H

/* oneCCL on memory of Intel GPUs, by the name of the same back end: calls are enqueued on the caller's sycl::queue,
 * in its order. As for nccl, ranks log what they call (backend/watch.h), events say what is over, and the watch finds
 * who died, did not come, or called something else. oneCCL's communicator is made by the first call.
 *
 * oneCCL may wait for peers while it enqueues, and then nothing ends it: so a carrier is within it, as on host memory,
 * and is left there when the team fails. What it has enqueued can not be ended either. The queue stays where it is, and
 * the process has no oneCCL any more. */

#include "backend/library/oneccl.h"
#include "backend/watch_library.h"

/* What a member shows the others. */
struct oneccl_log {
    struct watch_log log;   /* first */
    _Atomic uint32_t ready; /* slot 0's: the id is there; */
    _Atomic uint32_t ended; /* and who has come to the end (struct oneccl_end) */
    char id[ONECCL_ID_TOLD];
};
/* Memory of the device in which copies of buffers stand in; calls use it one after the other. */
struct oneccl_aside {
    struct oneccl_aside *before; /* a smaller one, that calls may still use */
    char *memory;
    size_t bytes;
};
struct oneccl_device {
    struct tutti_backend base;
    struct watched watched;
    struct watch_marks marks;
    const struct oneccl_library *library;
    struct tutti_device *gpu; /* the caller's */
    struct oneccl_carrier like;
    struct oneccl_carrier *carrier; /* NULL: no call was made yet, or it was left behind */
    struct oneccl_aside *aside;
    bool reproducible;
};
static inline struct oneccl_device *oneccl_device_of(const struct tutti_backend *backend)
{
    return (struct oneccl_device *)(uintptr_t)backend; /* its first member */
}
static inline struct oneccl_device *oneccl_watching(const struct watched *w)
{
    return (struct oneccl_device *)(uintptr_t)((const char *)w - offsetof(struct oneccl_device, watched));
}
static inline struct oneccl_log *oneccl_log_of(const struct oneccl_device *d, uint32_t r)
{
    return (struct oneccl_log *)(void *)d->watched.logs[r];
}
extern const struct tutti_backend_ops tutti_backend_oneccl_device;

/* ---- oneccl_enqueue.c ---- */
enum tutti_status oneccl_enqueue(struct tutti_backend *backend, const struct tutti_backend_call *call, void *stream);
enum tutti_status oneccl_messages(struct tutti_backend *backend, const struct tutti_backend_message *messages, size_t n,
                                  void *stream, uint64_t timeout_ns);

#endif
