/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* A call on the tensors of a CUDA device, or several that began as one: what operation.hpp is for calls on the host.
 * Once it is enqueued the host has no part in it any more. Synchronous calls are on the caller's stream, and nothing of
 * them is left. Asynchronous ones are on the channel's: it waits for the caller's stream by an event, and whoever waits
 * for the call makes his stream wait for the event at its end. Until then the tensors are kept, so that their memory is
 * nobody else's; of a call for which nobody waits, the allocator is told. */

#include "channel.hpp"
#include "operation.hpp"

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace tutti_torch
{

class Enqueued : public c10::intrusive_ptr_target
{
  public:
    using Ptr = c10::intrusive_ptr<Enqueued>;
    using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

    /* `head` says what it is; with `parts` it is their group, and has none of their tensors. */
    Enqueued(std::shared_ptr<Channel> channel, Call head, std::vector<Call> parts, uint64_t seq,
             std::shared_ptr<const std::string> group);
    ~Enqueued() override;

    /* Enqueues it. Throws, and then nothing was. As for all that enqueues, the group keeps the channel open, and other
     * threads off it. */
    void start();
    /* For the handle of a part of a coalesced region, which began as `leader`, or will never begin. */
    void begin_with(const Ptr &leader);
    void fail(std::exception_ptr error);
    /* The flight recorder has its entries as begun; the channel will see them end. */
    void tell_recorder() const;

    /* What follows on the current stream comes after the call. With a timeout, and after a barrier, the host waits,
     * too: throws DistBackendError when the timeout passes first, and what Python's signal handlers throw. Throws the
     * error that ended the communicator, if it is known already. */
    void wait(milliseconds timeout);
    /* Its end has come, or the communicator's. Throws for a call that is part of a graph. */
    bool test();
    std::exception_ptr error() const;
    float duration_ms() const;
    c10d::OpType kind() const { return type; }

    FuturePtr future();
    FuturePtr result_future();

    const c10d::OpType type;
    const char *const name;
    const uint64_t seq;
    const std::shared_ptr<const std::string> group;
    const std::shared_ptr<Channel> channel;
    const std::chrono::steady_clock::time_point created = std::chrono::steady_clock::now();
    const milliseconds timeout;
    const int peer;
    const bool async, barrier;
    bool timed = false; /* the user asked for durations before it began */
    std::vector<uint64_t> record_ids;
    std::shared_ptr<RecordedGroup> recorded;
    Tensors results;
    /* Runs once, when it is over; somebody has to watch it then. */
    std::function<void(Enqueued &)> finished_hook;
    /* Lets the watcher see its end, if somebody wants to be told: hooks, and futures of the outcome. */
    void watch_if_wanted();
    /* By the watcher: once, when it is over. */
    void finish();

  private:
    bool is_over() const;
    void launch(void *native);
    void unpack(const c10::Stream &current);
    void settle(c10::ivalue::Future &future) const;
    void settle_result(c10::ivalue::Future &future) const;
    bool look_for_failure();
    void await(milliseconds limit);
    void let_go(const c10::Stream &current);
    void tell_allocator() noexcept;

    std::optional<c10::Stream> caller_, stream_;
    std::optional<c10::Event> begin_, end_;
    bool captured_ = false;
    std::atomic<bool> started_{false};
    Ptr leader_; /* of a part: set before it has started */

    mutable std::mutex mutex_; /* all below */
    std::vector<Call> calls_;  /* with their tensors, until somebody has waited */
    std::exception_ptr error_;
    tutti_status status_ = TUTTI_OK;
    std::vector<FuturePtr> futures_, result_futures_; /* futures_: until it starts */
};

/* A synchronous call on the caller's stream, of which nothing is left; its end is the matter of the flight recorder,
 * which has it as begun. Throws, and then nothing was enqueued. */
void enqueue_and_forget(Channel &channel, const Call &call, uint64_t record_id,
                        const std::shared_ptr<const std::string> &group);

/* The handle of such a call. Dropping it early is safe. */
class EnqueuedWork : public c10d::Work
{
  public:
    EnqueuedWork(Enqueued::Ptr call, int rank);

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    std::vector<at::Tensor> result() override;
    int sourceRank() const override;
    void synchronize() override;
    bool wait(milliseconds timeout = kNoTimeout) override;
    void abort() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
    float getDuration() const override;
    uint64_t getSequencenumber() const override;
    void blockCurrentStream();       /* not in every version */
    milliseconds getTimeout() const; /* not in every version */

  private:
    Enqueued::Ptr call_;
};

} // namespace tutti_torch
