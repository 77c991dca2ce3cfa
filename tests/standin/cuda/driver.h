/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_STANDIN_CUDA_DRIVER_H
#define TUTTI_STANDIN_CUDA_DRIVER_H

/* The part of CUDA's driver that the stand-in plays: its objects, and what its files share. Results are the driver's
 * numbers. One lock guards all objects; work runs without it, each stream's on a thread of its own. */

#include "grid.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#define STANDIN_API extern "C" __attribute__((visibility("default")))

namespace standin
{
enum result {
    success = 0,
    invalid_value = 1,
    out_of_memory = 2,
    not_initialized = 3,
    no_device = 100,
    invalid_device = 101,
    invalid_context = 201,
    map_failed = 205,
    already_mapped = 208,
    peer_access_unsupported = 217,
    invalid_handle = 400,
    not_found = 500,
    not_ready = 600,
    launch_out_of_resources = 701,
    peer_access_already_enabled = 704,
    not_permitted = 800,
    not_supported = 801,
    capture_unsupported = 900,
    capture_invalidated = 901,
    capture_merge = 902,
    capture_unmatched = 903,
    capture_unjoined = 904,
    capture_isolation = 905,
    capture_implicit = 906,
    captured_event = 907,
    capture_wrong_thread = 908,
};

using work = std::function<void()>;

/* A point in a stream: done once all that came before it is. */
struct mark {
    std::mutex lock;
    std::condition_variable changed;
    bool done = false;
    uint64_t ns = 0; /* when */

    void finish();
    void wait();
    bool over();
};
using mark_pointer = std::shared_ptr<mark>;

struct node {
    std::vector<node *> after;
    work run; /* empty: nothing but an order */
};
struct graph {
    std::deque<node> nodes;                     /* each after those that it depends on */
    std::vector<std::shared_ptr<void>> objects; /* the application's, which hears when the graph is gone */
};
struct executable {
    std::shared_ptr<graph> made;
    mark_pointer last; /* launch, which the next one waits for */
};

struct stream;
struct capture {
    uint64_t id;
    int mode;
    std::thread::id thread;
    stream *origin;
    bool invalid = false;
    std::shared_ptr<graph> made = std::make_shared<graph>();
    std::set<stream *> streams;
};
using capture_pointer = std::shared_ptr<capture>;

struct context {
    int device; /* as this process counts */
    unsigned n_retained = 0;
    std::set<context *> reached;
    stream *legacy = nullptr;
    std::set<stream *> streams;
    mark_pointer copies[2]; /* the last one from the host, and to it */
};

struct queue; /* what a stream's thread works off */
struct stream {
    context *owner;
    bool blocking, legacy;
    std::shared_ptr<queue> queued;
    mark_pointer last; /* the last of what was enqueued */
    capture_pointer captured;
    std::vector<node *> tail; /* the end of the capture: what comes next is after these */
};
struct event {
    context *owner;
    bool timed;
    mark_pointer recorded;
    capture_pointer captured;
    std::vector<node *> tail;
};
struct function;
struct module {
    context *owner;
    std::vector<std::unique_ptr<function>> functions;
};
struct function {
    module *owner;
    const cuda_standin_kernel *kernel;
};

enum memory_kind {
    device_memory,
    pool_memory,
    managed_memory,
    host_memory,
    registered_memory,
    imported_memory,
    virtual_memory
};
/* An allocation of the virtual memory API: there as long as it is mapped, or somebody has a handle or a descriptor. */
struct physical {
    int fd, device, handle_types; /* device: the machine's */
    size_t bytes;
    int counts_for; /* the device whose bytes it takes, as this process counts; -1: another process allocated it */
    unsigned n_handles = 0;
    ~physical();
};
using physical_pointer = std::shared_ptr<physical>;
struct region {
    char *base;
    size_t bytes, mapped_bytes;
    memory_kind kind;
    int device;
    uint64_t id;
    int fd; /* -1: none */
    std::string handle;
    unsigned n_uses;                    /* uses of imported memory */
    physical_pointer backing = nullptr; /* under virtual memory, */
    std::set<int> allowed = {};         /* and the devices that may touch it */
};
struct reservation {
    size_t bytes;
    uint64_t id;
};

/* Everything there is; made at first use and never destroyed, since threads may outlive main. */
struct world {
    std::mutex lock;
    bool initialized = false;
    std::vector<int> devices; /* visible: which of the machine's */
    std::vector<std::unique_ptr<context>> contexts;
    std::set<stream *> streams;
    std::set<event *> events;
    std::set<module *> modules;
    std::set<function *> functions;
    std::set<capture *> captures;
    std::map<graph *, std::shared_ptr<graph>> graphs;
    std::set<executable *> executables;
    std::map<uintptr_t, region> regions;           /* by base */
    std::map<uintptr_t, reservation> reservations; /* reserved addresses */
    std::map<uint64_t, physical_pointer> handles;
    std::vector<size_t> bytes_used; /* each device's */
    uint64_t n_ids = 0;
    std::atomic<int> n_freeing{0}; /* threads that wait for devices to be idle */
};
world &all();
using guard = std::unique_lock<std::mutex>;

/* ---- context.cpp ---- */
extern thread_local context *current;
extern thread_local bool in_host_function;
int usable();            /* the driver may be called: initialized, not from a host function */
int usable_in_context(); /* and the thread has a context */
long from_environment(const char *name, long otherwise);
bool may_reach(int device, int other);
bool has_few_queues();

/* ---- memory.cpp; under the lock ---- */
region *region_of(uintptr_t pointer); /* NULL: not the driver's */

/* ---- virtual.cpp; under the lock ---- */
/* The reserved addresses around it: what the driver tells of a pointer's range. */
const reservation *reservation_of(uintptr_t pointer, uintptr_t *base);
/* To the same physical memory the same handle: whoever retains it has another reason to release it. */
uint64_t handle_to(const physical_pointer &what);

/* ---- stream.cpp; under the lock ---- */
stream *stream_of(void *handle); /* NULL: there is no such stream */
/* On a stream that exists: act(stream), under the lock. */
template <class F> int with_stream(void *handle, F act)
{
    const int status = usable_in_context();
    if (status) return status;
    guard held(all().lock);
    stream *of = stream_of(handle);
    return of ? act(of) : invalid_handle;
}
/* To the stream's end, or into the graph that is captured on it. */
int submit(stream *to, work run);
mark_pointer push(stream *to, work run); /* without regard to captures */
/* All that was enqueued in the context. */
std::vector<mark_pointer> pending(context *of);
void wait_for(const std::vector<mark_pointer> &marks); /* without the lock */
void wait_for_frees();                                 /* likewise */

/* ---- capture.cpp; under the lock ---- */
/* Whether a capture somewhere forbids this thread such a call, which ends that capture. */
int safe_call();
/* In an initialized driver, with a context, outside of captures that forbid it; act() under the lock. */
template <class F> int called(F act)
{
    const int status = usable_in_context();
    if (status) return status;
    guard held(all().lock);
    const int forbidden = safe_call();
    return forbidden ? forbidden : act();
}
void invalidate(capture *broken);
void add_node(stream *to, work run);
void run_graph(const graph &made);

/* An array or a word of the caller's, any type: the driver's void pointers. */
template <class T> void put(void *to, T value)
{
    *static_cast<T *>(to) = value;
}
} // namespace standin

#endif
