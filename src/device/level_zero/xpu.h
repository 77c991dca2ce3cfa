/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_LEVEL_ZERO_XPU_H
#define TUTTI_DEVICE_LEVEL_ZERO_XPU_H

/* Intel GPUs ("xpu", as PyTorch calls them) through Level Zero, whose loader is opened with dlopen at first use: one
 * binary runs with or without a GPU, and without Intel's headers. This room may use base, device/device.h, and the
 * kernels' header. Begin with xpu_device.c: functions that stand in its table do what device/device.h says of their
 * entries; the others, for a back end and tests, are described here.
 *
 * Everything lives in one context of the driver: SYCL's default one where a SYCL library is in the process (PyTorch's,
 * dpctl's), so that its memory and ours are of one context; else one of our own. Devices stay open with the process,
 * and have their kernels loaded by then.
 *
 * A stream of the caller may be
 *   - one of stream_create, or NULL: an immediate command list of ours;
 *   - a sycl::queue * of a SYCL library of this process: asked for its native list or queue at each call;
 *   - what stream_adopt made of a raw command list or queue.
 * Whatever it is, what is enqueued is barrier, work, barrier: in order whether the list is in order or not. Command
 * lists are not thread-safe: calls here lock one another out, but not the caller's own ones and SYCL's; one thread at a
 * time uses a stream.
 *
 * What is imported from other processes comes by a descriptor of theirs: see xpu_share.c. */

#include "device/gpu.h"

/* The functions that stand in the table of struct tutti_device_ops, as tutti_xpu_NAME. */
/* clang-format off */
#define TUTTI_XPU_TABLE(X) \
    X(absence) X(count) X(driver_version) X(built_for) X(facts) X(reaches) X(open) X(close) X(current) X(in_use) X(of) \
    X(alloc) X(alloc_shared) X(free) X(alloc_host) X(free_host) X(set) X(copy_now) X(holds) \
    X(export_memory) X(unexport_memory) X(import_memory) X(unimport_memory) X(reach) \
    X(stream_create) X(stream_adopt) X(stream_destroy) X(stream_sync) X(stream_wait) X(stream_wait_word) X(copy) X(host_call) \
    X(event_create) X(event_destroy) X(event_record) X(event_query) X(elapsed)
/* clang-format on */
#define TUTTI_XPU_DECLARE(name) __typeof__(*((struct tutti_device_ops *)NULL)->name) tutti_xpu_##name;
TUTTI_XPU_TABLE(TUTTI_XPU_DECLARE)
#undef TUTTI_XPU_DECLARE

/* ---- for a library of Intel's that takes SYCL queues ---- */
/* Whether the stream is a queue of SYCL's that tutti can follow: OK, else why not. */
bool tutti_xpu_has_sycl(void); /* a SYCL library is in this process */
enum tutti_status tutti_xpu_stream_is_sycl(struct tutti_device *xpu, void *stream);
/* Something was enqueued that may never be over: from now on memory is not given back, which would wait for it. */
void tutti_xpu_leave(struct tutti_device *xpu);

/* ---- kernels (device/gpu.h says what these do) ---- */
void *tutti_xpu_kernel(struct tutti_device *xpu, const char *name);
enum tutti_status tutti_xpu_launch(struct tutti_device *xpu, const struct tutti_gpu_launch *launch, const void *args);

#endif
