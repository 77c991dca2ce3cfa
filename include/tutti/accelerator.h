/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_ACCELERATOR_H
#define TUTTI_ACCELERATOR_H

/* Memory, streams and events of a device, by the same calls for every kind of them: a program that takes the kind as a
 * word runs on CPUs, NVIDIA's and Intel's GPUs. Who has a framework (PyTorch, CUDA, SYCL) needs none of this: its
 * memory and streams go into calls as they are.
 *
 *     tutti_accelerator_open("cuda", 0, &acc);                        // or "xpu", or "cpu"
 *     config.device = tutti_accelerator_device(acc);                  // in struct tutti_comm_config
 *     tutti_accelerator_alloc(acc, bytes, &buffer);
 *     tutti_accelerator_stream_create(acc, &options.stream);          // in struct tutti_call_options
 *     tutti_accelerator_copy(acc, buffer, host, bytes, options.stream);
 *     tutti_all_reduce(buffer, buffer, n, TUTTI_FLOAT32, TUTTI_SUM, comm, &options, NULL);
 *     tutti_accelerator_copy(acc, host, buffer, bytes, options.stream);
 *     tutti_accelerator_stream_sync(acc, options.stream);
 *
 * What is enqueued on one stream is carried out in that order; streams are tied by events. On "cpu" it is carried out
 * at once. Threads: any thread may call any function. Blocking: alloc, free, open and stream_sync may wait for the
 * device, the others only enqueue. Errors: ARGUMENT (a NULL, an unknown kind, memory that is not the device's),
 * UNSUPPORTED with the reason (there is no such device), MEMORY, SYSTEM (what the driver said). */

#include <tutti/status.h>

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tutti_accelerator;

/* NULL in place of a kind: the first one that is here, else "cpu". A process works with one kind beside the CPU: the
 * one that it opened first, that the option `devices` names, or the first one that is here. Close as often as opened;
 * NULL is ignored. */
TUTTI_API enum tutti_status tutti_accelerator_open(const char *kind, int32_t ordinal,
                                                   struct tutti_accelerator **out) TUTTI_MUST_USE;
TUTTI_API void tutti_accelerator_close(struct tutti_accelerator *accelerator);
/* "cpu", "cuda", "xpu". */
TUTTI_API const char *tutti_accelerator_kind(const struct tutti_accelerator *accelerator);
/* As the maker calls it. */
TUTTI_API const char *tutti_accelerator_name(const struct tutti_accelerator *accelerator);
/* How many there are of its kind. */
TUTTI_API int32_t tutti_accelerator_count(const struct tutti_accelerator *accelerator);
/* For tutti_comm_config.device and tutti_comm_set_device: TUTTI_DEVICE_NONE for "cpu". */
TUTTI_API int32_t tutti_accelerator_device(const struct tutti_accelerator *accelerator);

/* The device that the calling thread works on, of whichever kind this process uses; -1: there is none, or none yet. */
TUTTI_API int32_t tutti_accelerator_current(void);

/* What the maker calls a context, in which all of this is: a CUcontext, a ze_context_handle_t; NULL for "cpu". */
TUTTI_API void *tutti_accelerator_context(const struct tutti_accelerator *accelerator);

TUTTI_API enum tutti_status tutti_accelerator_alloc(struct tutti_accelerator *accelerator, size_t bytes,
                                                    void **out) TUTTI_MUST_USE;
TUTTI_API void tutti_accelerator_free(struct tutti_accelerator *accelerator, void *memory);
/* Between any two addresses, of the device or of the host. Host memory stays as it is until the stream has come past.
 */
TUTTI_API enum tutti_status tutti_accelerator_copy(struct tutti_accelerator *accelerator, void *dst, const void *src,
                                                   size_t bytes, void *stream);

/* A stream NULL is the device's default one. */
TUTTI_API enum tutti_status tutti_accelerator_stream_create(struct tutti_accelerator *accelerator,
                                                            void **out) TUTTI_MUST_USE;
/* What a program made of the driver itself, on "xpu": an immediate command list or a command queue of Level Zero, in
 * the context that tutti_accelerator_context names. The stream ends with stream_destroy, what it was made of stays the
 * caller's. One thread at a time uses it, through tutti or else. UNSUPPORTED: on "cpu", and on "cuda", where a CUstream
 * is a stream as it is. So is, on "xpu", the address of a sycl::queue. */
enum tutti_native { TUTTI_NATIVE_LIST, TUTTI_NATIVE_QUEUE };
TUTTI_API enum tutti_status tutti_accelerator_stream_adopt(struct tutti_accelerator *accelerator,
                                                           enum tutti_native kind, void *native,
                                                           void **out) TUTTI_MUST_USE;
TUTTI_API void tutti_accelerator_stream_destroy(struct tutti_accelerator *accelerator, void *stream);
TUTTI_API enum tutti_status tutti_accelerator_stream_sync(struct tutti_accelerator *accelerator, void *stream);
/* The stream goes on when the event, as last recorded, is over. */
TUTTI_API enum tutti_status tutti_accelerator_stream_wait(struct tutti_accelerator *accelerator, void *stream,
                                                          void *event);

TUTTI_API enum tutti_status tutti_accelerator_event_create(struct tutti_accelerator *accelerator,
                                                           void **out) TUTTI_MUST_USE;
TUTTI_API void tutti_accelerator_event_destroy(struct tutti_accelerator *accelerator, void *event);
TUTTI_API enum tutti_status tutti_accelerator_event_record(struct tutti_accelerator *accelerator, void *event,
                                                           void *stream);
/* OK: over, or never recorded; PENDING. */
TUTTI_API enum tutti_status tutti_accelerator_event_query(struct tutti_accelerator *accelerator, void *event);
/* Microseconds between two events that are over. */
TUTTI_API enum tutti_status tutti_accelerator_elapsed(struct tutti_accelerator *accelerator, void *from, void *to,
                                                      double *us);

#ifdef __cplusplus
}
#endif

#endif
