/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* The driver of the test device: memory, streams and events as an accelerator has them, made of threads. Device memory
 * has two addresses. Programs see the first, where any access faults; only the threads of streams know the second. So
 * whoever touches device memory other than through a stream dies.
 *
 * TUTTIDEV_BREAK names what this device does wrong, so that tests can show that they would notice:
 *   wait     streams do not wait for events
 *   query    events are over as soon as they are recorded
 *   record   the allocator does not hear of other streams that use a block
 *   pinned   there is no pinned memory (which is not wrong) */

#include <c10/core/Allocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/Stream.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

namespace tuttidev
{

/* Built with TUTTIDEV_CUDA or TUTTIDEV_XPU it plays the part of CUDA's or Intel's devices in a PyTorch without them, on
 * the stand-in for their driver (driver_standin.cpp); else it is a device of its own, made of threads (driver.cpp). */
#if defined(TUTTIDEV_CUDA)
#define TUTTIDEV_KEY CUDA
#elif defined(TUTTIDEV_XPU)
#define TUTTIDEV_KEY XPU
#else
#define TUTTIDEV_KEY PrivateUse1
#endif
#if defined(TUTTIDEV_CUDA) || defined(TUTTIDEV_XPU)
#define TUTTIDEV_STANDIN
#endif
constexpr c10::DeviceType kind = c10::DeviceType::TUTTIDEV_KEY;

constexpr int n_devices = 2, n_streams = 32; /* stream 0 is the default one */

bool is_broken(const char *what);
/* From now on the device has failed for good: events, when asked, throw as CUDA's do after an illegal access. */
void fail_for_good();
void check_device();

/* Memory that is never given back: the allocator's to hand out. */
void *reserve(int device, size_t bytes);
/* From the pool that this thread uses (pools.cpp); null: it uses none. */
c10::DataPtr take_from_pool(size_t bytes, int device);
/* -1: not a device's. */
int device_of(const void *address);
/* Where a stream's thread finds it; any other thread that asks is stopped. */
void *resolve(void *address);

/* A point in a stream: everything before it is done, or not yet. */
class Mark
{
  public:
    void reach();
    bool is_reached() const;
    void wait() const;

  private:
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    bool reached_ = false;

  public:
    void *event = nullptr, *pool = nullptr; /* an event of a driver that has events itself */
    ~Mark();
};
using MarkPtr = std::shared_ptr<Mark>;
void *native_of(const c10::Stream &stream);                    /* for a driver whose streams PyTorch may ask for */
double milliseconds_between(const Mark &from, const Mark &to); /* for a driver that has times */

/* In order, one after the other, on the stream's own thread, which the first work starts. */
void enqueue(int device, int64_t stream, std::function<void()> work);
MarkPtr mark(int device, int64_t stream);
void wait_for(int device, int64_t stream, MarkPtr event);
void synchronize(int device, int64_t stream);
bool is_idle(int device, int64_t stream);
int64_t next_stream(int device);

/* The calling thread's. */
int current_device();
void set_current_device(int device);
int64_t current_stream(int device);
void set_current_stream(int device, int64_t stream);

/* Graphs, of a driver that has them. */
void begin_capture(int64_t device, int64_t stream);
int64_t end_capture(int64_t device, int64_t stream);
void replay(int64_t graph, int64_t device, int64_t stream);

/* Memory of the host that may be copied to and from while the host goes on. */
void *take_pinned(size_t bytes);
void give_pinned(void *address);
bool is_pinned(const void *address);

/* ---- on a stand-in for a driver: what driver_cuda.cpp and driver_xpu.cpp give driver_standin.cpp ---- */

[[noreturn]] void stop(const char *what, int result);
/* The library named so, or stops. */
void *open_library(const char *name);
/* Once for each device, in their order: its memory, and the driver's handles of its streams. */
char *open_device(int device, size_t bytes);
void *open_stream(int device, int64_t stream);
void enter_device(int device);     /* by this thread */
int owner_of(const void *address); /* the device of memory that is none of reserve's; -1: no device's */
void *stream_of(int device, int64_t stream);
void *handle_of(int device, int64_t stream); /* the same, for a thread that enters the device */

/* ---- */

/* Milliseconds that every copy between host and device takes. */
void set_copy_delay(int64_t milliseconds);
void delay_copy();

} // namespace tuttidev
