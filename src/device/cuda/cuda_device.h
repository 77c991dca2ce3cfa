/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_CUDA_DEVICE_H
#define TUTTI_DEVICE_CUDA_CUDA_DEVICE_H

/* CUDA devices through the driver, which is opened with dlopen at first use: one binary runs with or without a GPU, and
 * without the toolkit's headers. This room may use base, device/device.h, and the kernels' header. Begin with
 * cuda_device.c: functions that stand in its table do what device/device.h says of their entries; the others, for the
 * back end cuda and tests, are described here.
 *
 * Everything works in the device's primary context, which frameworks share. Functions that take a gpu make its context
 * current for the call and put the caller's back. A device stays open with the process for who opens it next: loading
 * kernels takes long, and unloading would wait for whatever runs on the device. Kernels are loaded when it is opened,
 * all of them, since loading one later could wait for another that spins. */

#include "device/gpu.h"

/* ---- of the table ---- */
/* The functions that stand in the table of struct tutti_device_ops, as tutti_cuda_NAME. */
/* clang-format off */
#define TUTTI_CUDA_TABLE(X) \
    X(absence) X(count) X(driver_version) X(built_for) X(facts) X(reaches) X(open) X(close) X(current) X(in_use) \
    X(of) X(enter) X(leave) \
    X(alloc) X(alloc_shared) X(free) X(alloc_ordered) X(free_ordered) X(alloc_host) X(free_host) X(set) X(copy_now) \
    X(holds) \
    X(export_memory) X(unexport_memory) X(import_memory) X(unimport_memory) X(reach) \
    X(stream_create) X(stream_destroy) X(stream_sync) X(stream_wait) X(stream_wait_word) X(copy) X(host_call) \
    X(event_create) X(event_destroy) X(event_record) X(event_query) X(elapsed) \
    X(capturing) X(capture_mark) X(capture_after) X(graph_begin) X(graph_end) X(graph_launch) X(graph_destroy)
/* clang-format on */
#define TUTTI_CUDA_DECLARE(name) __typeof__(*((struct tutti_device_ops *)NULL)->name) tutti_cuda_##name;
TUTTI_CUDA_TABLE(TUTTI_CUDA_DECLARE)
#undef TUTTI_CUDA_DECLARE
/* What is CUDA's own in them.
 * absence: no driver, no device, a driver that is too old. open: UNSUPPORTED, too, where there are no kernels for it.
 * of: managed memory is of a device, too.
 * alloc_shared: ipc is memory that has a legacy handle; fd is memory with descriptors (UNSUPPORTED where there is no
 * such thing); auto is by handles, where the driver refuses them by descriptors, where it has neither, not at all.
 * export_memory: by a legacy handle, or, for memory of the virtual memory API (several allocations mapped one after
 * another, too), by descriptors, which stay open until unexport_memory. Taking descriptors needs the permission to
 * trace the exporter. What is imported is mapped once a handle and process, also of a device that this process does not
 * see. */

/* ---- more of them, as in struct tutti_gpu_ops ---- */
/* reach_memory: of memory of the virtual memory API; of other memory there is nothing to do. */
/* range_open: an allocation by its identity, which the driver never gives twice; allocations of the virtual memory API
 * by their handles, which are kept: while one is, no other allocation has it. They stay taken for so long. */
/* clang-format off */
#define TUTTI_CUDA_GPU_TABLE(X) \
    X(kernel) X(launch) X(block_id) X(range_open) X(range_is) X(range_close) X(memory_left) X(reach_memory) \
    X(may_reach) X(has_atomics) X(sync)
/* clang-format on */
#define TUTTI_CUDA_GPU_DECLARE(name) __typeof__(*((struct tutti_gpu_ops *)NULL)->name) tutti_cuda_##name;
TUTTI_CUDA_GPU_TABLE(TUTTI_CUDA_GPU_DECLARE)
#undef TUTTI_CUDA_GPU_DECLARE

/* The allocation that holds the pointer, and its identity. */
struct tutti_cuda_block {
    void *base;
    size_t bytes;
    uint64_t id;
};
enum tutti_status tutti_cuda_block(const void *pointer, struct tutti_cuda_block *out);
enum tutti_status tutti_cuda_stream_query(struct tutti_device *gpu, void *stream); /* as event_query */

#endif
