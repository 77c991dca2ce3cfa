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
const char *tutti_gpu_absence(void); /* no driver, no device, a driver that is too old */
uint32_t tutti_gpu_count(void);
int tutti_gpu_driver_version(void);
const char *tutti_gpu_built_for(void);
enum tutti_status tutti_gpu_facts(int32_t ordinal, struct tutti_device_facts *out);
bool tutti_gpu_reaches(int32_t ordinal, int32_t other);
enum tutti_status tutti_gpu_open(int32_t ordinal, struct tutti_device **out); /* UNSUPPORTED: no kernels for it, too */
void tutti_gpu_close(struct tutti_device *gpu);
int32_t tutti_gpu_current(void);
bool tutti_gpu_in_use(void);
int32_t tutti_gpu_of(const void *pointer); /* managed memory is of a device, too */
enum tutti_status tutti_gpu_enter(struct tutti_device *gpu, struct tutti_device_scope *scope);
void tutti_gpu_leave(const struct tutti_device_scope *scope);
enum tutti_status tutti_gpu_alloc(struct tutti_device *gpu, size_t bytes, void **out);
/* ipc: memory that has a legacy handle. fd: memory with descriptors (UNSUPPORTED where there is no such thing). auto:
 * by handles, where the driver refuses them by descriptors, where it has neither, not at all. */
enum tutti_status tutti_gpu_alloc_shared(struct tutti_device *gpu, enum tutti_device_share share, size_t bytes,
                                         void **out);
void tutti_gpu_free(struct tutti_device *gpu, void *pointer);
enum tutti_status tutti_gpu_alloc_ordered(struct tutti_device *gpu, size_t bytes, void *stream, void **out);
enum tutti_status tutti_gpu_free_ordered(struct tutti_device *gpu, void *pointer, void *stream);
enum tutti_status tutti_gpu_alloc_host(struct tutti_device *gpu, size_t bytes, void **out);
void tutti_gpu_free_host(struct tutti_device *gpu, void *pointer);
enum tutti_status tutti_gpu_set(struct tutti_device *gpu, void *pointer, unsigned char value, size_t bytes);
enum tutti_status tutti_gpu_copy_now(struct tutti_device *gpu, void *dst, const void *src, size_t bytes);
enum tutti_status tutti_gpu_holds(struct tutti_device *gpu, const void *pointer, size_t bytes);
/* By a legacy handle, or, for memory of the virtual memory API (several allocations mapped one after another, too), by
 * descriptors, which stay open until `unexport`. Taking descriptors needs the permission to trace the exporter. What is
 * imported is mapped once a handle and process, also of a device that this process does not see. */
enum tutti_status tutti_gpu_export(struct tutti_device *gpu, const void *pointer, size_t bytes,
                                   unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES], uint64_t *offset);
void tutti_gpu_unexport(const unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES]);
enum tutti_status tutti_gpu_import(struct tutti_device *gpu, const unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES],
                                   void **out);
void tutti_gpu_unimport(struct tutti_device *gpu, void *pointer);
enum tutti_status tutti_gpu_reach(struct tutti_device *gpu, struct tutti_device *other);
enum tutti_status tutti_gpu_stream_create(struct tutti_device *gpu, void **out);
void tutti_gpu_stream_destroy(struct tutti_device *gpu, void *stream);
enum tutti_status tutti_gpu_stream_sync(struct tutti_device *gpu, void *stream);
enum tutti_status tutti_gpu_stream_wait(struct tutti_device *gpu, void *stream, void *event);
enum tutti_status tutti_gpu_stream_wait_word(struct tutti_device *gpu, void *stream, const uint32_t *word,
                                             uint32_t value);
enum tutti_status tutti_gpu_copy(struct tutti_device *gpu, void *dst, const void *src, size_t bytes, void *stream);
enum tutti_status tutti_gpu_host(struct tutti_device *gpu, void *stream, void (*function)(void *arg), void *arg);
enum tutti_status tutti_gpu_event_create(struct tutti_device *gpu, bool timed, void **out);
void tutti_gpu_event_destroy(struct tutti_device *gpu, void *event);
enum tutti_status tutti_gpu_event_record(struct tutti_device *gpu, void *event, void *stream);
enum tutti_status tutti_gpu_event_query(struct tutti_device *gpu, void *event);
enum tutti_status tutti_gpu_elapsed(struct tutti_device *gpu, void *from, void *to, double *us);
enum tutti_status tutti_gpu_capturing(struct tutti_device *gpu, void *stream, uint64_t *id);
enum tutti_status tutti_gpu_capture_mark(struct tutti_device *gpu, void *stream, void **node);
enum tutti_status tutti_gpu_capture_after(struct tutti_device *gpu, void *stream, void *node);
enum tutti_status tutti_gpu_graph_begin(struct tutti_device *gpu, void *stream);
enum tutti_status tutti_gpu_graph_end(struct tutti_device *gpu, void *stream, void **graph);
enum tutti_status tutti_gpu_graph_launch(struct tutti_device *gpu, void *graph, void *stream);
void tutti_gpu_graph_destroy(struct tutti_device *gpu, void *graph);

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
