/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Room device: what the shim does with accelerators: its way to native devices (device_comm.hpp), copies through the
 * host for all others (staging.hpp), memory for PyTorch's pools (device_memory.hpp). Uses base, tensors, comm and
 * record. */

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

namespace tutti_torch
{

/* The event is over. False, too, for a device that failed for good: it answers nothing any more. */
bool is_over(const c10::Event &event) noexcept;

/* The stream on which the caller enqueues. */
c10::Stream current_stream(c10::Device device);
/* One of the device's pool; the caller's, where the device has none. */
c10::Stream side_stream(c10::Device device);

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

} // namespace tutti_torch
