/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* A group's way to one CUDA device: a communicator with that device, apart from the group's own, which is the host's.
 * Calls on the device's tensors are enqueued through it on a stream, and nothing waits. */

#include "comm.hpp"
#include "staging.hpp"
#include "tensors.hpp"

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/util/ArrayRef.h>

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace tutti_torch
{

struct Call;

/* Events that are used again. */
class Events
{
  public:
    explicit Events(c10::EventFlag flag) : flag_(flag) {}
    c10::Event take();
    void give(c10::Event event);

  private:
    const c10::EventFlag flag_;
    std::mutex mutex_;
    std::vector<c10::Event> idle_;
};

/* Which calls are over, for the flight recorder. An event for each would cost a tenth of the call; so one is recorded
 * now and then, and when it is over, so are the calls before it, which run one after another. */
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

/* The stream on which the caller enqueues. */
c10::Stream current_stream(c10::Device device);

class Channel
{
  public:
    /* Collective: meets the others through the store. Null, on all ranks, when one of them can not use its device; then
     * the tensors go through the host. Throws as Comm::create. */
    static std::shared_ptr<Channel> open(c10d::Store &store, int rank, int size, const std::string &name,
                                         c10::Device device, milliseconds timeout);
    Channel(std::shared_ptr<Comm> comm, c10::Device device);

    /* Null after close. */
    std::shared_ptr<Comm> comm() const;
    /* For a group that has not begun to close it. */
    tutti_comm *handle() const { return comm_->handle(); }
    tutti_status state() const;
    void set_timeout(milliseconds timeout);
    /* With the reason of an abort, ends what waits on the device. */
    void abort(const char *reason) const;
    /* Tells the recorder what is over. */
    void look();
    /* Waits for what is enqueued, while there is patience; then the others know that this rank left. */
    void close(bool failing);

    /* What is enqueued from now on comes after what is on these streams: on the channel's own stream, or on the current
     * one. */
    void follow(c10::ArrayRef<c10::Stream> streams, bool on_own);

    /* Where a call's tensors are. Empty ones have an address, too: it says that the call is the device's. */
    Buffers buffers(const Call &call) const;
    /* One number on the device, for barriers. */
    const Tensor &one() const { return one_; }
    /* The library's labels of calls live as long as the channel. By one thread at a time, as calls are enqueued. */
    const char *label(const std::shared_ptr<const std::string> &group);

    const c10::Device device;
    const c10::Stream stream; /* of asynchronous calls */
    Events events{c10::EventFlag::PYTORCH_DEFAULT};
    Progress progress;

  private:
    mutable std::mutex mutex_;
    std::shared_ptr<Comm> comm_;
    Tensor memory_, one_;
    char *nowhere_ = nullptr; /* in memory_ */
    std::vector<std::shared_ptr<const std::string>> labels_;
};

} // namespace tutti_torch
