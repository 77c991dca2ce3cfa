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

#include "backend/library/library.h"
#include "backend/library/oneccl.h"

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
    struct library l; /* first */
    const struct oneccl_library *library;
    struct oneccl_carrier like;
    struct oneccl_carrier *carrier; /* NULL: no call was made yet, or it was left behind */
    struct oneccl_aside *aside;
};
static inline struct oneccl_device *oneccl_device_of(const struct library *l)
{
    return (struct oneccl_device *)(uintptr_t)l;
}
static inline struct oneccl_log *oneccl_log_of(const struct oneccl_device *d, uint32_t r)
{
    return (struct oneccl_log *)(void *)d->l.watched.logs[r];
}
extern const struct tutti_backend_ops tutti_backend_oneccl_device;

/* ---- oneccl_enqueue.c ---- */
enum tutti_status oneccl_accepts(struct library *l, void *stream);
enum tutti_status oneccl_run(struct library *l, const struct library_item *item, void *stream, uint64_t timeout_ns);

#endif
