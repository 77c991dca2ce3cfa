/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Room device: what the shim does with accelerators: its way to native devices (device_comm.hpp), copies through the
 * host for all others (staging.hpp), memory for PyTorch's pools (device_memory.hpp). Uses base, tensors, comm and
 * record. */

#include "comm/comm.hpp"
#include "tensors/call.hpp"

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/util/ArrayRef.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace tutti_torch
{

/* The event is over. False, too, for a device that failed for good: it answers nothing any more. */
bool is_over(const c10::Event &event) noexcept;

/* The stream on which the caller enqueues. */
c10::Stream current_stream(c10::Device device);
/* One of the device's pool; the caller's, where the device has none. */
c10::Stream side_stream(c10::Device device, bool high_priority = false);

/* Events of a device that are used again. */
class Events
{
  public:
    explicit Events(c10::DeviceType type) : type_(type) {}
    c10::Event take();
    void give(c10::Event event);

  private:
    const c10::DeviceType type_;
    std::mutex mutex_;
    std::vector<c10::Event> idle_;
};

/* Which calls are over, for the flight recorder. An event for each call would cost a tenth of the call. So one event is
 * recorded now and then; when it is over, so are all calls before it, since they run one after another. */
class Progress
{
  public:
    /* A call that was enqueued on the stream. */
    void add(uint64_t record_id, const c10::Stream &stream);
    /* The last call that was added, 0 when all are over. */
    uint64_t last() const;
    /* Tells the recorder what is over: what the mark says, and all up to the call `over`. */
    void look(uint64_t over);

  private:
    void retire(size_t n);
    mutable std::mutex mutex_;
    std::deque<uint64_t> calls_; /* that are not known to be over, in their order */
    std::optional<c10::Event> mark_;
    size_t n_marked_ = 0; /* the calls before the mark, 0: there is none */
    std::chrono::steady_clock::time_point looked_;
};

/* A group's communicator on one native device, apart from the group's own, which is the host's. Calls on the device's
 * tensors are enqueued through it on a stream, and nothing waits. */

class DeviceComm
{
  public:
    /* Collective: meets the others through the store. Null, on all ranks, when one of them can not use its device; then
     * the tensors go through the host. Throws as Comm::create. */
    static std::shared_ptr<DeviceComm> open(c10d::Store &store, int rank, int size, const std::string &name,
                                            c10::Device device, milliseconds timeout, const Place &place);
    DeviceComm(std::shared_ptr<Comm> comm, c10::Device device, bool high_priority);
    /* The communicator's calls are about memory of this device, or, where it is not native, of the host. Why
     * its tensors go through the host; empty: they do not. Throws what else goes wrong. */
    static std::string take_device(Comm &comm, c10::Device device);

    /* Null after close. */
    std::shared_ptr<Comm> comm() const;
    /* The same; throws after close. */
    std::shared_ptr<Comm> live() const;
    /* For a group that has not begun to close it. */
    tutti_comm *handle() const { return comm_->handle(); }
    /* Tells the recorder what is over. */
    void look();
    /* Waits for what is enqueued, while there is patience; then the others know that this rank left. */
    void close(bool failing);

    /* What is enqueued from now on comes after what is on these streams: on the own stream, or on the current
     * one. */
    void follow(c10::ArrayRef<c10::Stream> streams, bool on_own);

    /* Where a call's tensors are. Empty ones have an address, too: it says that the call is the device's. */
    Start start_of(const Call &call) const;
    /* One number on the device, for barriers. */
    const Tensor &one() const { return one_; }
    /* The library's labels of calls live as long as this. By one thread at a time, as calls are enqueued. */
    const char *label(const std::shared_ptr<const std::string> &group);

    const c10::Device device;
    const c10::Stream stream; /* for asynchronous calls */
    Events events;
    Progress progress;
    std::atomic<bool> has_windows{false}; /* on all ranks alike: a pool was registered */

  private:
    mutable std::mutex mutex_;
    std::shared_ptr<Comm> comm_;
    Tensor memory_, one_;
    char *nowhere_ = nullptr; /* in memory_ */
    std::vector<std::shared_ptr<const std::string>> labels_;
};

} // namespace tutti_torch
