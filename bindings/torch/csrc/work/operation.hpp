/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Room work: a call from its start to its end. Uses base, tensors, comm, record and device.
 *
 * Begin here. An Operation is one call, or a group of calls that begin as one; it lives until its end, whoever still
 * looks at it. How it is carried out, and how one learns of its end, is the matter of its kind: on the host by the
 * library (host.hpp), on a CUDA device by a stream (device.hpp). Work (below) is the handle that users hold, for
 * both; a Worker (worker.hpp) is a thread that starts or watches what can not tell of itself.
 *
 * What is promised of an operation comes in two steps: its results, and its outcome. On the host both are known at the
 * end; on a device the results are there for streams as soon as it is enqueued. */

#include "comm/comm.hpp"
#include "device/staging.hpp"
#include "record/recorder.hpp"
#include "tensors/call.hpp"

#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace tutti_torch
{

class Worker;

class Operation : public c10::intrusive_ptr_target
{
  public:
    using Ptr = c10::intrusive_ptr<Operation>;
    using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;
    using GroupName = std::shared_ptr<const std::string>;

    Call call;
    const uint64_t seq;    /* the collective's number in its group; a message's: that of the last collective */
    const GroupName group; /* names the group in the library's sentences */
    const std::chrono::steady_clock::time_point created = std::chrono::steady_clock::now();
    bool timed = false;                      /* the user asked for durations before it began */
    std::shared_ptr<RecordedGroup> recorded; /* where the flight recorder has it, and as what; 0: not at all */
    uint64_t record_id = 0;
    /* Runs once, when it has finished, after the futures. */
    std::function<void(Operation &)> finished_hook;

    void release_resources() override;

    /* Makes it the group of these: they begin as one, and end with it. */
    void lead(std::vector<Ptr> members);
    /* Starts it, or leaves that to the worker. Throws, and then nothing was started. One at a time in a group. */
    virtual void begin(const std::shared_ptr<Comm> &comm, Worker &worker) = 0;
    /* After begin, without locks: waits for a synchronous call, and sees to it that an end that somebody wants to hear
     * of is seen. */
    virtual void attend() = 0;
    /* Ends an operation that never began, and its members. */
    void fail(std::exception_ptr error);

    /* Whether it has finished. */
    virtual bool test() = 0;
    /* Until it has finished; rethrows its error. timeout 0: for as long as its own deadline. Throws DistBackendError
     * when the timeout passes first (the operation goes on), and what Python's signal handlers throw. The current
     * stream of a device then waits for the results. */
    virtual void wait(milliseconds timeout) = 0;
    /* From now on somebody sees its end. */
    virtual void watch() = 0;
    /* Its last handle goes. */
    virtual void let_go() noexcept {}
    virtual float duration_ms() const = 0;
    /* A wait for it is one of this thread. */
    virtual bool is_on_host() const = 0;
    /* The library's own, if it has one; belongs to this. */
    virtual const tutti_work *handle() const { return nullptr; }

    /* Staged results have come back to their device; to be asked when it has finished. */
    bool is_back() const;
    /* Results are still to be copied to the user's tensors when the library is done. */
    bool unpacks() const;
    std::exception_ptr error() const;
    tutti_status status() const; /* OK until it has ended with an error */
    bool finished() const { return state_.load(std::memory_order_acquire) == State::finished; }

    /* With the results, or the error. With `outcome`: with a c10d::WorkResult, never with an error. */
    FuturePtr future(bool outcome);

  protected:
    enum class State { waiting, queued, started, finished }; /* waiting: in a coalesced region; queued: at a worker */
    struct Promise {
        FuturePtr future;
        bool outcome;
    };

    Operation(Call what, uint64_t number, GroupName of, State results_known);

    State state() const { return state_.load(std::memory_order_acquire); }
    void set_state(State to) { state_.store(to, std::memory_order_release); }
    [[noreturn]] void give_up(milliseconds timeout) const;
    /* The streams on which results come, one of a device. */
    virtual std::vector<c10::Stream> streams() const;
    virtual void before_future() {}
    /* With mutex_ held: its end is here. */
    void conclude();
    bool wants_end() const; /* somebody wants to hear of the end */
    void settle_promises(bool outcomes);
    /* Tells all who want to hear of the end; they may call everything. */
    void announce();
    /* A caller that has waited finds the futures done, with their callbacks; but for the callbacks themselves. */
    void await_settling();

    const State results_known_;
    std::atomic<State> state_{State::waiting};
    std::atomic<bool> watched_{false};
    std::vector<Ptr> members_;                    /* a group's members, until it has finished */
    Ptr leader_;                                  /* the group of a member */
    std::vector<std::shared_ptr<Staged>> staged_; /* its call's, or those of the members' calls */
    std::unique_ptr<at::RecordFunction> span_;    /* in the profiler; ends before the state says that it has */
    mutable std::mutex mutex_;                    /* what follows, and who finishes */
    std::condition_variable moved_;               /* from queued to another state; settled */
    tutti_status status_ = TUTTI_OK;
    std::exception_ptr error_;
    std::vector<Promise> promises_;

  private:
    void settle(const Promise &promise) const;

    std::atomic<bool> settling_{false}; /* from the end until the futures that there were are done */
    std::thread::id settler_;
};

/* The handle that a call returns: a c10d::Work over an operation. Dropping it early is safe: the operation goes on. */

class Work : public c10d::Work
{
  public:
    Work(Operation::Ptr operation, int rank);
    ~Work() override;

    bool isCompleted() override { return here().test() && operation_->is_back(); }
    bool isSuccess() const override { return !operation_->error(); }
    std::exception_ptr exception() const override { return operation_->error(); }
    tutti_status status() const { return operation_->status(); }
    const tutti_work *handle() const { return operation_->handle(); }
    int sourceRank() const override;
    std::vector<at::Tensor> result() override { return operation_->call.shown(); }
    void synchronize() override { wait(kNoTimeout); }
    bool wait(milliseconds timeout = kNoTimeout) override;
    void abort() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override { return here().future(true); }
    float getDuration() const override;
    float duration_ms() const { return operation_->duration_ms(); } /* 0: it has not ended, or nobody knows */
    uint64_t getSequencenumber() const override { return operation_->seq; }
    void blockCurrentStream() { wait(kNoTimeout); }                      /* not in every version */
    milliseconds getTimeout() const { return operation_->call.timeout; } /* not in every version */

  private:
    Operation &here() const; /* throws in a process that was forked by the one that called */

    Operation::Ptr operation_;
    const Origin origin_;
};

} // namespace tutti_torch
