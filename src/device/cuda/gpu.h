/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_GPU_H
#define TUTTI_DEVICE_CUDA_GPU_H

/* CUDA devices through the driver, which is opened with dlopen at first use: one binary runs with or without a GPU, and
 * without the toolkit's headers. Everything works in the device's primary context, which frameworks share. Failures
 * leave a record that names the driver's call and its error. Any thread, unless said otherwise; functions that take a
 * gpu make its context current for the call and put the caller's back. */

#include "base/base.h"

/* One device as this process uses it; shared by all who open it. The fields do not change. */
struct tutti_gpu {
    int32_t ordinal; /* as this process counts */
    unsigned char uuid[16];
    char name[64];
    uint32_t n_sms, capability; /* 90: compute capability 9.0 */
    bool integrated;
    void *context;
};

/* Why there is no CUDA device here, as a sentence: no driver, no device, a driver that is too old; NULL if there is. */
const char *tutti_gpu_absence(void);
uint32_t tutti_gpu_count(void); /* visible devices, 0 without a driver */
/* What a device is, without opening it. */
struct tutti_gpu_facts {
    char name[64];
    unsigned char uuid[16];
    uint32_t n_sms, capability;
    bool integrated;
    size_t memory_bytes;
};
enum tutti_status tutti_gpu_facts(int32_t ordinal, struct tutti_gpu_facts *out);
bool tutti_gpu_reaches(int32_t ordinal, int32_t other); /* the one the other's memory */
/* Of CUDA, for which the driver is: 13000 is 13.0; 0 without one. */
int tutti_gpu_driver_version(void);
/* Retains the primary context and loads the kernels that were built in, all of them, since loading one later could wait
 * for another that spins. UNSUPPORTED: none is there, or no kernels for it were built; SYSTEM, MEMORY. */
enum tutti_status tutti_gpu_open(int32_t ordinal, struct tutti_gpu **out);
/* Context and kernels stay with the process for who opens it next: loading takes long, and unloading would wait for
 * whatever runs on the device. */
void tutti_gpu_close(struct tutti_gpu *gpu);
/* The device of the calling thread's current context, -1 if there is none. Never opens a driver that nobody uses: where
 * the process has not loaded it, the answer is -1. */
int32_t tutti_gpu_current(void);
/* Whether this process uses the driver already, so that pointers may be of devices. */
bool tutti_gpu_in_use(void);
/* Whether tutti was built with kernels for devices, and the architectures that they are for ("80 90 100"). */
const char *tutti_gpu_built_for(void);

/* ---- pointers ---- */
/* Device whose memory it is (managed memory too), -1: host memory, pinned or not, or nothing that the driver knows.
 * Some 50 ns. */
int32_t tutti_gpu_of(const void *pointer);
/* The allocation that holds the pointer, and an identity that no later allocation at the same address has. */
struct tutti_gpu_block {
    void *base;
    size_t bytes;
    uint64_t id;
};
enum tutti_status tutti_gpu_block(const void *pointer, struct tutti_gpu_block *out);
/* The identity alone, 0: the driver knows no such memory. In a scope; as fast as tutti_gpu_of. */
enum tutti_status tutti_gpu_block_id(const struct tutti_gpu *gpu, const void *pointer, uint64_t *out);

/* ---- memory ---- */
enum tutti_status tutti_gpu_alloc(struct tutti_gpu *gpu, size_t bytes, void **out);
/* The same for memory that other processes are to map: it can be exported by legacy IPC handles, or by descriptors
 * (UNSUPPORTED where there is no such thing); auto: by handles, where the driver refuses them by descriptors, where it
 * has neither, not at all. */
enum tutti_gpu_share { TUTTI_GPU_SHARE_AUTO, TUTTI_GPU_SHARE_IPC, TUTTI_GPU_SHARE_FD };
enum tutti_status tutti_gpu_alloc_shared(struct tutti_gpu *gpu, enum tutti_gpu_share share, size_t bytes, void **out);
/* "auto", "ipc", "fd"; false: no such name. */
bool tutti_gpu_share_named(const char *name, enum tutti_gpu_share *out);
void tutti_gpu_free(struct tutti_gpu *gpu, void *pointer); /* of all three; waits for the device */
/* In the order of a stream, as part of a capture, too: nothing waits. UNSUPPORTED: not here. */
enum tutti_status tutti_gpu_alloc_ordered(struct tutti_gpu *gpu, size_t bytes, void *stream, void **out);
enum tutti_status tutti_gpu_free_ordered(struct tutti_gpu *gpu, void *pointer, void *stream);
/* Host memory that is pinned, zeroed and mapped at the same address on all devices. */
enum tutti_status tutti_gpu_alloc_host(struct tutti_gpu *gpu, size_t bytes, void **out);
void tutti_gpu_free_host(struct tutti_gpu *gpu, void *pointer);
/* Sets bytes and waits until they are. */
enum tutti_status tutti_gpu_set(struct tutti_gpu *gpu, void *pointer, unsigned char value, size_t bytes);
/* Copies between host and device and waits: tests, tools, small tables. */
enum tutti_status tutti_gpu_copy_now(struct tutti_gpu *gpu, void *dst, const void *src, size_t bytes);

/* ---- memory of other processes ---- */
#define TUTTI_GPU_HANDLE_BYTES 80
/* Offers the allocation that holds the range to other processes; *offset: where the pointer is in what they map. By a
 * legacy IPC handle, or, for memory of the virtual memory API (several allocations mapped one after another, too), by
 * descriptors, which stay open until `unexport`. ARGUMENT: not all of it is device memory, or it is of two legacy
 * allocations; UNSUPPORTED: such memory is this process's alone. */
enum tutti_status tutti_gpu_export(struct tutti_gpu *gpu, const void *pointer, size_t bytes,
                                   unsigned char handle[TUTTI_GPU_HANDLE_BYTES], uint64_t *offset);
/* All who are to import it have done so, or never will; once more, or of what was never exported: nothing happens. */
void tutti_gpu_unexport(const unsigned char handle[TUTTI_GPU_HANDLE_BYTES]);
/* Maps another process's allocation, also one of a device that this process does not see. Once a handle and process.
 * Of descriptors the memory stays until the last one unmaps it; taking them needs the permission to trace the exporter:
 * UNSUPPORTED, with the reason, where the system refuses that. */
enum tutti_status tutti_gpu_import(struct tutti_gpu *gpu, const unsigned char handle[TUTTI_GPU_HANDLE_BYTES],
                                   void **out);
/* Nothing that is enqueued uses it any more. */
void tutti_gpu_unimport(struct tutti_gpu *gpu, void *pointer);
/* ARGUMENT as for export. */
enum tutti_status tutti_gpu_holds(struct tutti_gpu *gpu, const void *pointer, size_t bytes);
/* Within one process: from now on gpu reaches the other's memory. UNSUPPORTED when it can not. Itself: nothing to do.
 */
enum tutti_status tutti_gpu_reach(struct tutti_gpu *gpu, struct tutti_gpu *other);
/* The same for memory of the virtual memory API, which is told one by one who reaches it; of other memory there is
 * nothing to do. */
enum tutti_status tutti_gpu_reach_memory(struct tutti_gpu *gpu, const void *pointer, size_t bytes);
/* Whether gpu could reach a device of that uuid; true where this process does not see it, since only trying tells. */
bool tutti_gpu_may_reach(struct tutti_gpu *gpu, const unsigned char uuid[16]);

/* ---- streams and events: the driver's handles as void pointers; stream NULL is the legacy default stream ---- */
/* Whether two handles are one stream: the default stream of a thread (2) is another one in each thread. */
static inline bool tutti_gpu_one_stream(const void *a, const void *b)
{
    return a == b && (uintptr_t)a != 2;
}
enum tutti_status tutti_gpu_stream_create(struct tutti_gpu *gpu, void **out); /* does not wait for the default stream */
void tutti_gpu_stream_destroy(struct tutti_gpu *gpu, void *stream);
enum tutti_status tutti_gpu_event_create(struct tutti_gpu *gpu, void **out); /* without time */
void tutti_gpu_event_destroy(struct tutti_gpu *gpu, void *event);
enum tutti_status tutti_gpu_event_record(struct tutti_gpu *gpu, void *event, void *stream);
/* OK: over (or never recorded), PENDING, else what the device failed with. */
enum tutti_status tutti_gpu_event_query(struct tutti_gpu *gpu, void *event);
enum tutti_status tutti_gpu_stream_wait(struct tutti_gpu *gpu, void *stream, void *event);
enum tutti_status tutti_gpu_stream_query(struct tutti_gpu *gpu, void *stream); /* as event_query */
enum tutti_status tutti_gpu_stream_sync(struct tutti_gpu *gpu, void *stream);
/* Until nothing is left of what this process has enqueued on the device, on whatever stream. Ends captures. */
enum tutti_status tutti_gpu_sync(struct tutti_gpu *gpu);
/* The identity of the capture that the stream is part of, 0 if it is in none. SYSTEM: the capture is invalid. */
enum tutti_status tutti_gpu_capturing(struct tutti_gpu *gpu, void *stream, uint64_t *id);
/* Within a capture: what is captured on the stream from now on comes after *node (the last thing that `mark` found on
 * some stream of the same capture), too. */
enum tutti_status tutti_gpu_capture_mark(struct tutti_gpu *gpu, void *stream, void **node);
enum tutti_status tutti_gpu_capture_after(struct tutti_gpu *gpu, void *stream, void *node);

/* ---- work; all of it can be captured ---- */
/* A kernel by its name in the .cu files, NULL if there is none; loaded already. Look up once, not per launch. */
void *tutti_gpu_kernel(struct tutti_gpu *gpu, const char *name);
struct tutti_gpu_launch {
    void *kernel, *stream;
    uint32_t blocks, threads, shared_bytes;
    bool overlaps; /* the kernel itself waits for all before it in the stream: where the device knows how, its blocks
                      take their places before that is over */
};
/* args: the kernel's one parameter, a struct by value. The caller's context must be the gpu's (tutti_gpu_enter). */
enum tutti_status tutti_gpu_launch(struct tutti_gpu *gpu, const struct tutti_gpu_launch *launch, const void *args);
/* By a copy engine, between any addresses that the device reaches. */
enum tutti_status tutti_gpu_copy(struct tutti_gpu *gpu, void *dst, const void *src, size_t bytes, void *stream);
/* The stream goes on when the word, in memory of alloc_host, has come to value or past it (modulo 2^32). Not captured.
 */
enum tutti_status tutti_gpu_stream_wait_word(struct tutti_gpu *gpu, void *stream, const uint32_t *word, uint32_t value);
/* The host function runs when the stream comes to it; it must not call the driver. */
enum tutti_status tutti_gpu_host(struct tutti_gpu *gpu, void *stream, void (*function)(void *arg), void *arg);

/* ---- graphs and times, for tools and tests ---- */
enum tutti_status tutti_gpu_graph_begin(struct tutti_gpu *gpu, void *stream); /* of a stream of stream_create */
enum tutti_status tutti_gpu_graph_end(struct tutti_gpu *gpu, void *stream, void **graph); /* ready to be launched */
enum tutti_status tutti_gpu_graph_launch(struct tutti_gpu *gpu, void *graph, void *stream);
void tutti_gpu_graph_destroy(struct tutti_gpu *gpu, void *graph);
enum tutti_status tutti_gpu_event_create_timed(struct tutti_gpu *gpu, void **out);
/* Between two recorded timed events that are over. */
enum tutti_status tutti_gpu_elapsed(struct tutti_gpu *gpu, void *from, void *to, double *us);

/* Makes the device's context current for several calls in a row, which then need not. */
struct tutti_gpu_scope {
    void *before;
    bool changed;
};
enum tutti_status tutti_gpu_enter(struct tutti_gpu *gpu, struct tutti_gpu_scope *scope);
void tutti_gpu_leave(const struct tutti_gpu_scope *scope);

#endif
