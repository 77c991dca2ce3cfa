/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_GPU_H
#define TUTTI_DEVICE_CUDA_GPU_H

/* CUDA devices through the driver, which is opened with dlopen at first use: one binary runs with or without a GPU, and
 * without the toolkit's headers. This room may use base, device/device.h, and the kernels' header. Begin with
 * cuda_device.c: functions that stand in its table do what device/device.h says of their entries; the others, for the
 * back end cuda and tests, are described here.
 *
 * Everything works in the device's primary context, which frameworks share. Functions that take a gpu make its context
 * current for the call and put the caller's back. A device stays open with the process for who opens it next: loading
 * kernels takes long, and unloading would wait for whatever runs on the device. Kernels are loaded when it is opened,
 * all of them, since loading one later could wait for another that spins. */

#include "device/device.h"

/* ---- of the table ---- */
/* The functions that stand in the table of struct tutti_device_ops, as tutti_gpu_NAME. */
/* clang-format off */
#define TUTTI_GPU_TABLE(X) \
    X(absence) X(count) X(driver_version) X(built_for) X(facts) X(reaches) X(open) X(close) X(current) X(in_use) \
    X(of) X(enter) X(leave) \
    X(alloc) X(alloc_shared) X(free) X(alloc_ordered) X(free_ordered) X(alloc_host) X(free_host) X(set) X(copy_now) \
    X(holds) \
    X(export_memory) X(unexport_memory) X(import_memory) X(unimport_memory) X(reach) \
    X(stream_create) X(stream_destroy) X(stream_sync) X(stream_wait) X(stream_wait_word) X(copy) X(host_call) \
    X(fold) X(counted_row) X(sparse) X(recode) \
    X(event_create) X(event_destroy) X(event_record) X(event_query) X(elapsed) \
    X(capturing) X(capture_mark) X(capture_after) X(graph_begin) X(graph_end) X(graph_launch) X(graph_destroy)
/* clang-format on */
#define TUTTI_GPU_DECLARE(name) __typeof__(*((struct tutti_device_ops *)NULL)->name) tutti_gpu_##name;
TUTTI_GPU_TABLE(TUTTI_GPU_DECLARE)
#undef TUTTI_GPU_DECLARE
/* What is CUDA's own in them.
 * absence: no driver, no device, a driver that is too old. open: UNSUPPORTED, too, where there are no kernels for it.
 * of: managed memory is of a device, too.
 * alloc_shared: ipc is memory that has a legacy handle; fd is memory with descriptors (UNSUPPORTED where there is no
 * such thing); auto is by handles, where the driver refuses them by descriptors, where it has neither, not at all.
 * export_memory: by a legacy handle, or, for memory of the virtual memory API (several allocations mapped one after
 * another, too), by descriptors, which stay open until unexport_memory. Taking descriptors needs the permission to
 * trace the exporter. What is imported is mapped once a handle and process, also of a device that this process does not
 * see. */

/* ---- more of memory ---- */
/* The allocation that holds the pointer, and an identity that no later allocation at the same address has. */
struct tutti_gpu_block {
    void *base;
    size_t bytes;
    uint64_t id;
};
enum tutti_status tutti_gpu_block(const void *pointer, struct tutti_gpu_block *out);
/* The identity alone, 0: the driver knows no such memory. In a scope; as fast as tutti_gpu_of. */
enum tutti_status tutti_gpu_block_id(const struct tutti_device *gpu, const void *pointer, uint64_t *out);
/* As tutti_gpu_reach for memory of the virtual memory API, which is told one by one who reaches it; of other memory
 * there is nothing to do. */
enum tutti_status tutti_gpu_reach_memory(struct tutti_device *gpu, const void *pointer, size_t bytes);
/* Whether gpu could reach a device of that uuid; true where this process does not see it, since only trying tells. */
bool tutti_gpu_may_reach(struct tutti_device *gpu, const unsigned char uuid[16]);
/* Whether gpu's atomics on memory of the device of that uuid are atomic, as its link may not have them; true where this
 * process does not see it. */
bool tutti_gpu_has_atomics(struct tutti_device *gpu, const unsigned char uuid[16]);

/* ---- kernels ---- */
/* A kernel by its name in the .cu files, NULL if there is none; loaded already. Look up once, not per launch. */
void *tutti_gpu_kernel(struct tutti_device *gpu, const char *name);
struct tutti_gpu_launch {
    void *kernel, *stream;
    uint32_t blocks, threads, shared_bytes;
    bool overlaps; /* the kernel itself waits for all before it in the stream: where the device knows how, its blocks
                      take their places before that is over */
};
/* args: the kernel's one parameter, a struct by value. The caller's context must be the gpu's (tutti_gpu_enter). */
enum tutti_status tutti_gpu_launch(struct tutti_device *gpu, const struct tutti_gpu_launch *launch, const void *args);
/* ---- more of streams ---- */
enum tutti_status tutti_gpu_stream_query(struct tutti_device *gpu, void *stream); /* as event_query */
/* Until nothing is left of what this process has enqueued on the device, on whatever stream. Ends captures. */
enum tutti_status tutti_gpu_sync(struct tutti_device *gpu);

#endif
