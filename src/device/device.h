/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_DEVICE_H
#define TUTTI_DEVICE_DEVICE_H

/* The contract of devices: what runs kernels and moves bytes, behind one table of functions. This room may use base
 * alone. Begin with struct tutti_device_ops. Implementations: cpu/ (host memory, work is done at once), cuda/
 * (NVIDIA's driver, opened with dlopen) and level_zero/ (Intel's, the same way); one for tests is tests/fake_device.c.
 *
 * To add one: a folder here, with a table `const struct tutti_device_ops tutti_device_NAME`; the word X(NAME) in
 * TUTTI_GPUS below; a row of the folder in src/rooms.txt. The contract suite (contract_test.c) takes it from the
 * list. Calls on its memory then work through the host; what gpu.h asks for makes them fast. docs/gpu.md says more.
 *
 * Handles: streams and events are void pointers of the device's maker (a CUstream, a CUevent). A stream may be made
 *   here or by the caller's framework. NULL is the device's default stream. A device that needs to know more of a
 *   stream than its handle keeps a table of its own.
 * Order: what is enqueued on one stream is carried out in that order. Streams are tied by events.
 * Threads: any thread may call any function, unless said otherwise. The fields of a device do not change.
 * Blocking: a function that takes a stream only enqueues, and returns before the work is done (it may also do the work
 *   at once, as cpu does); it waits only where the maker's queue is full. `free`, `stream_sync`, `set` and `copy_now`
 *   wait for the device. All others return soon.
 * Ownership: who creates something destroys it. `free` and the like take NULL. A device stays open until as many
 *   closes as opens; implementations may keep it open longer.
 * Errors: OK, or a status below zero with the thread's error record, which names the maker's call and its error.
 *   UNSUPPORTED: there is no such device or it can not do this; MEMORY; ARGUMENT: a wrong pointer; SYSTEM: all else.
 *   A device that has failed keeps returning errors.
 * Captures: what is enqueued on a stream that is captured becomes part of the graph; everything else steps aside.
 *
 * Example: sums two arrays, with `ops` one of the table.
 *     ops->open(0, &device);
 *     ops->alloc(device, bytes, &a); ops->copy(device, a, host, bytes, stream);   (the same for b)
 *     ops->fold(device, &(struct tutti_fold){TUTTI_FLOAT32, TUTTI_SUM, a, a, b, n}, stream);
 *     ops->copy(device, host, a, bytes, stream);
 *     ops->event_create(device, false, &event); ops->event_record(device, event, stream);
 *     while (ops->event_query(device, event) == TUTTI_PENDING) ...; */

#include "base/base.h"
#include "device/counted.h"
#include "device/recode.h"
#include "device/sparse.h"

#include <tutti/accelerator.h>

/* One device as this process uses it; shared by all who open it. */
struct tutti_device {
    const struct tutti_device_ops *ops;
    int32_t ordinal; /* as this process counts */
    unsigned char uuid[16];
    char name[64];
    uint32_t n_sms;      /* units that run blocks of kernels */
    uint32_t capability; /* as the maker counts: 90 is CUDA's compute capability 9.0 */
    void *context;       /* the maker's handle, in which the maker's libraries work */
};

/* What a device is, without opening it. */
struct tutti_device_facts {
    char name[64];
    unsigned char uuid[16];
    uint32_t n_sms, capability;
    size_t memory_bytes;
};

/* How memory is offered to other processes: by handles of the maker, by file descriptors, or by whichever works. */
enum tutti_device_share { TUTTI_DEVICE_SHARE_AUTO, TUTTI_DEVICE_SHARE_IPC, TUTTI_DEVICE_SHARE_FD };
/* "auto", "ipc", "fd"; false: no such name. */
bool tutti_device_share_named(const char *name, enum tutti_device_share *out);

#define TUTTI_DEVICE_HANDLE_BYTES 88

#define TUTTI_DEVICE_PINNED (-2)

/* The device made current for several calls in a row. */
struct tutti_device_scope {
    void *before;
    bool changed;
};

/* dst[i] = left[i] op right[i]; dst may equal left or right, no other overlap. Built-in operations but avg and
 * premul_sum. right NULL: dst[i] = left[i] times *factor (NULL: 1), divided by `divisor` (0: not); what these two are
 * made of. n 0: only asks whether it can be done. */
struct tutti_fold {
    enum tutti_dtype dtype;
    enum tutti_op op;
    void *dst;
    const void *left, *right;
    size_t n;
    const void *factor; /* one element; taken at once */
    uint32_t divisor;
};
/* A function that "may be NULL" is one that a device can do without: callers ask first. All others are there, if only
 * to return UNSUPPORTED. */
struct tutti_gpu_ops;
/* What people are told of such devices. */
struct tutti_device_about {
    const char *maker;           /* "NVIDIA" */
    const char *interface;       /* "CUDA" */
    const char *get_driver;      /* what is to be installed where there is such a device, */
    const char *get_open;        /* where one does not open, */
    const char *get_kernels;     /* and where the library has no kernels for it, */
    const char *without_kernels; /* which means this for calls on its memory */
    const char *uuid_prefix;     /* "GPU-", as the maker's tools write it, or "" */
    /* "for CUDA 12.4"; "compute capability 9.0, 132 SMs". */
    void (*say_version)(int version, char *out, size_t room);
    void (*say_units)(const struct tutti_device_facts *facts, char *out, size_t room);
};
struct tutti_device_ops {
    const char *name;                       /* "cuda" */
    const struct tutti_device_about *about; /* NULL: there is nothing to be said (cpu) */
    const struct tutti_gpu_ops *gpu; /* gpu.h: what the back end of GPUs needs besides; NULL: it can not serve it */
    bool on_host;      /* its memory is host memory: calls on it are calls on host memory, and need no device */
    bool handles_move; /* a handle may be another stream by the next call: it is an object of the caller's */

    /* ---- which devices there are ---- */
    const char *(*absence)(void); /* why there is none here, as a sentence; NULL: there is one */
    uint32_t (*count)(void);
    int (*driver_version)(void);    /* as the maker counts: 13000 is CUDA's 13.0; 0 without a driver */
    const char *(*built_for)(void); /* the architectures that kernels were built for ("80 90"); empty: none */
    enum tutti_status (*facts)(int32_t ordinal, struct tutti_device_facts *out);
    bool (*reaches)(int32_t ordinal, int32_t other); /* whether kernels of `ordinal` can use memory of `other` */
    enum tutti_status (*open)(int32_t ordinal, struct tutti_device **out);
    void (*close)(struct tutti_device *device);
    /* The device that the calling thread works on, -1 if there is none. Never opens a driver that nobody uses. */
    int32_t (*current)(void);
    bool (*in_use)(void); /* whether this process uses such devices, so that pointers may be of them */
    /* The owner of the memory: the ordinal of a device; TUTTI_DEVICE_PINNED for memory of the host that devices reach;
     * -1 for other and for unknown memory. Some 50 ns. */
    int32_t (*of)(const void *pointer);
    /* Called before and after several calls in a row, which are cheaper then. Both may be NULL. */
    enum tutti_status (*enter)(struct tutti_device *device, struct tutti_device_scope *scope);
    void (*leave)(const struct tutti_device_scope *scope);

    /* ---- memory ---- */
    enum tutti_status (*alloc)(struct tutti_device *device, size_t bytes, void **out);
    /* The same for memory that other processes are to map. */
    enum tutti_status (*alloc_shared)(struct tutti_device *device, enum tutti_device_share share, size_t bytes,
                                      void **out);
    void (*free)(struct tutti_device *device, void *pointer); /* both kinds */
    /* In the order of a stream: nothing waits. Both may be NULL. */
    enum tutti_status (*alloc_ordered)(struct tutti_device *device, size_t bytes, void *stream, void **out);
    enum tutti_status (*free_ordered)(struct tutti_device *device, void *pointer, void *stream);
    /* Host memory: pinned, zeroed, at the same address on all devices. */
    enum tutti_status (*alloc_host)(struct tutti_device *device, size_t bytes, void **out);
    void (*free_host)(struct tutti_device *device, void *pointer);
    enum tutti_status (*set)(struct tutti_device *device, void *pointer, unsigned char value, size_t bytes);
    /* Between host and device: tests, tools, small tables. */
    enum tutti_status (*copy_now)(struct tutti_device *device, void *dst, const void *src, size_t bytes);

    /* ---- memory of other processes ---- */
    /* ARGUMENT: the range is not in one allocation of the device. */
    enum tutti_status (*holds)(struct tutti_device *device, const void *pointer, size_t bytes);
    /* Offers the allocation that holds the range; *offset: where the pointer is in what others map. ARGUMENT as for
     * holds; UNSUPPORTED: such memory is this process's alone. The offer stands until `unexport_memory`; withdrawing
     * what was never offered does nothing. All four may be NULL: nothing is shared. */
    enum tutti_status (*export_memory)(struct tutti_device *device, const void *pointer, size_t bytes,
                                       unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES], uint64_t *offset);
    void (*unexport_memory)(const unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES]);
    /* Maps another process's allocation. UNSUPPORTED, with the reason, where the system refuses that. TIMEOUT: what lay
     * there before and was freed is still mapped by this process; it can be when that is unmapped. */
    enum tutti_status (*import_memory)(struct tutti_device *device,
                                       const unsigned char handle[TUTTI_DEVICE_HANDLE_BYTES], void **out);
    void (*unimport_memory)(struct tutti_device *device, void *pointer); /* nothing that is enqueued uses it any more */
    /* Within one process: from now on the device reaches the other's memory. UNSUPPORTED when it can not. May be NULL.
     */
    enum tutti_status (*reach)(struct tutti_device *device, struct tutti_device *other);

    /* ---- streams ---- */
    enum tutti_status (*stream_create)(struct tutti_device *device, void **out); /* not tied to the default stream */
    /* A stream of what the caller made of the driver itself (tutti/accelerator.h). NULL: it has no such handles. */
    enum tutti_status (*stream_adopt)(struct tutti_device *device, enum tutti_native kind, void *native, void **out);
    void (*stream_destroy)(struct tutti_device *device, void *stream);
    enum tutti_status (*stream_sync)(struct tutti_device *device, void *stream);
    /* The stream goes on when the event, as last recorded, is over; */
    enum tutti_status (*stream_wait)(struct tutti_device *device, void *stream, void *event);
    /* when the word, in memory of alloc_host, has come to value or past it (modulo 2^32). Not captured. */
    enum tutti_status (*stream_wait_word)(struct tutti_device *device, void *stream, const uint32_t *word,
                                          uint32_t value);
    /* Between any two addresses that the device reaches. */
    enum tutti_status (*copy)(struct tutti_device *device, void *dst, const void *src, size_t bytes, void *stream);
    /* The function runs when the stream comes to it; it must call nothing of the device. */
    enum tutti_status (*host_call)(struct tutti_device *device, void *stream, void (*function)(void *arg), void *arg);
    /* UNSUPPORTED: operation and type do not go together, or no kernel for them was built. */
    enum tutti_status (*fold)(struct tutti_device *device, const struct tutti_fold *fold, void *stream);
    /* Writes a row (counted.h). NULL: there is no kernel for it. */
    enum tutti_status (*counted_row)(struct tutti_device *device, const struct tutti_counted_row *row, void *stream);
    /* Blocks into a dense buffer (sparse.h). NULL: there is no kernel for it. */
    enum tutti_status (*sparse)(struct tutti_device *device, const struct tutti_sparse *sparse, void *stream);
    /* Elements to packed data, and back (recode.h). As fold. NULL: there is none. */
    enum tutti_status (*recode)(struct tutti_device *device, const struct tutti_recode *recode, void *stream);

    /* ---- events ---- */
    enum tutti_status (*event_create)(struct tutti_device *device, bool timed, void **out);
    void (*event_destroy)(struct tutti_device *device, void *event);
    enum tutti_status (*event_record)(struct tutti_device *device, void *event, void *stream);
    /* OK: over (or never recorded), PENDING, else what the device failed with. */
    enum tutti_status (*event_query)(struct tutti_device *device, void *event);
    /* Between two timed events that are over. */
    enum tutti_status (*elapsed)(struct tutti_device *device, void *from, void *to, double *us);

    /* ---- graphs; all may be NULL: nothing can be captured ---- */
    /* The identity of the capture that the stream is part of, 0 if it is in none. SYSTEM: the capture is invalid. */
    enum tutti_status (*capturing)(struct tutti_device *device, void *stream, uint64_t *id);
    /* In a capture: what is captured on the stream from now on comes after *node, too: the last thing that
     * `capture_mark` found on some stream of the same capture. */
    enum tutti_status (*capture_mark)(struct tutti_device *device, void *stream, void **node);
    enum tutti_status (*capture_after)(struct tutti_device *device, void *stream, void *node);
    enum tutti_status (*graph_begin)(struct tutti_device *device, void *stream); /* on a stream of stream_create */
    enum tutti_status (*graph_end)(struct tutti_device *device, void *stream, void **graph); /* ready to be launched */
    enum tutti_status (*graph_launch)(struct tutti_device *device, void *graph, void *stream);
    void (*graph_destroy)(struct tutti_device *device, void *graph);
};

/* The one list of devices: X(name). A device defines `const struct tutti_device_ops tutti_device_NAME`. Those of
 * TUTTI_GPUS have memory of their own, and are back ends, too: backend/gpu on their `gpu`. */
#define TUTTI_GPUS(X) X(cuda) X(xpu)
#define TUTTI_DEVICES(X) TUTTI_GPUS(X) X(cpu)
#define TUTTI_DEVICE_TEXT(name) ", " #name
#define TUTTI_DEVICE_NAMES (&(TUTTI_DEVICES(TUTTI_DEVICE_TEXT))[2]) /* "cuda, xpu, cpu" */
#define TUTTI_DEVICE_DECLARE(name) extern const struct tutti_device_ops tutti_device_##name;
TUTTI_DEVICES(TUTTI_DEVICE_DECLARE)
#undef TUTTI_DEVICE_DECLARE
#define TUTTI_DEVICE_INDEX(name) TUTTI_DEVICE_##name,
enum { TUTTI_DEVICES(TUTTI_DEVICE_INDEX) TUTTI_N_DEVICES };
#undef TUTTI_DEVICE_INDEX
/* The list as a table. Tests put others in their places. */
extern const struct tutti_device_ops *tutti_devices[TUTTI_N_DEVICES];

/* The kind of devices that communicators of this process use: the one that was chosen, else the first of the list that
 * has memory of its own and is present, else the first. */
const struct tutti_device_ops *tutti_device_kind(void);
const struct tutti_device_ops *tutti_device_named(const char *name); /* NULL: there is no such kind */
/* A kind by its name; NULL: the first one that is present, else cpu. One with memory of its own is from then on the
 * only one of this process. ARGUMENT: there is no such name; UNSUPPORTED: no such device, or another kind is used. */
enum tutti_status tutti_device_use(const char *name, const struct tutti_device_ops **out);
/* As ops->of and ops->current, of whatever kind with memory of its own that may be in use; -1 for all memory of the
 * host, of which tutti_device_pins tells the pinned. */
int32_t tutti_device_of(const void *pointer);
bool tutti_device_pins(const void *pointer);
int32_t tutti_device_current(void);
bool tutti_device_in_use(void); /* any such kind */

/* Whether two handles that live at the same time are one stream: the default stream of a thread (2) is another one in
 * each thread. */
static inline bool tutti_device_one_handle(const void *a, const void *b)
{
    return a == b && (uintptr_t)a != 2;
}
/* The same of a handle of this call and one of an earlier call. */
static inline bool tutti_device_one_stream(const struct tutti_device *device, const void *a, const void *b)
{
    return tutti_device_one_handle(a, b) && (!a || !device->ops->handles_move);
}
/* 0 where the device captures nothing. */
static inline enum tutti_status tutti_device_capturing(struct tutti_device *device, void *stream, uint64_t *id)
{
    *id = 0;
    return device->ops->capturing ? device->ops->capturing(device, stream, id) : TUTTI_OK;
}
static inline enum tutti_status tutti_device_enter(struct tutti_device *device, struct tutti_device_scope *scope)
{
    scope->changed = false;
    return device->ops->enter ? device->ops->enter(device, scope) : TUTTI_OK;
}
static inline void tutti_device_leave(const struct tutti_device *device, const struct tutti_device_scope *scope)
{
    if (device->ops->leave) device->ops->leave(scope);
}

#endif
