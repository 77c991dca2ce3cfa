/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* An operation is a call from its start to its end, whoever still looks at it. It keeps the tensors alive while the
 * library borrows their memory, learns of completion from whoever waits or from the library's notice, and then, once,
 * takes its result apart, tells the recorder, futures and hooks. Work (work.hpp) is the handle that users hold. */

#include "comm.hpp"
#include "staging.hpp"
#include "tensors.hpp"

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace tutti_torch
{

struct RecordedGroup;

/* Starts the call in the library: exactly one public call with these options and this work. */
using Launch = std::function<tutti_status(tutti_comm *, const Buffers &, const tutti_call_options *, tutti_work **)>;

/* What a method of the backend asks for. */
struct Call {
    c10d::OpType type;
    const char *name;        /* "all_reduce": the word of traces and profiles */
    Tensors inputs, outputs; /* dense; what the launch reads and writes, in the order of Buffers. In place: the same */
    Launch launch;
    bool async = true;
    bool counted = true;                    /* a collective of the user's, which has a number in the group's sequence */
    milliseconds timeout{0};                /* 0: the group's */
    std::function<void()> unpack;           /* copies flat results to the user's tensors, after success */
    std::function<void()> first;            /* what has to be over before this is, after success */
    Tensors results;                        /* what Work.result() shows; empty: the outputs */
    Tensor factor;                          /* PREMUL_SUM */
    int peer = -1;                          /* send, recv: the other rank, -1 any; collectives: the root, -1 none */
    std::shared_ptr<tutti_message> message; /* recv: where the sender is written */
    std::optional<c10::Device> device;      /* barrier: whose stream it follows */
    std::shared_ptr<Twins> twins;           /* of tensors on a device */

    bool is_p2p() const { return c10d::isP2POp(type); }
};

class Operation : public c10::intrusive_ptr_target
{
  public:
    Operation(Call what, uint64_t number, std::shared_ptr<const std::string> of);
    ~Operation() override;
    void release_resources() override;
    /* One that has finished: what an empty region ends with. */
    static c10::intrusive_ptr<Operation> nothing();

    Call call;
    const uint64_t seq;                             /* of the collective in its group; send and recv: of the last one */
    const std::shared_ptr<const std::string> group; /* names the group in the library's sentences */
    const std::chrono::steady_clock::time_point created = std::chrono::steady_clock::now();
    bool timed = false;                      /* the user asked for durations before it began */
    std::shared_ptr<RecordedGroup> recorded; /* where the flight recorder has it, and as what; 0: not at all */
    uint64_t record_id = 0;
    /* Runs once when the operation has finished, after futures: the recorder's and the group's business. */
    std::function<void(Operation &)> finished_hook;

    /* Makes it the group of these: they start as one, and end with it. */
    void lead(std::vector<c10::intrusive_ptr<Operation>> members);
    /* Starts it on the communicator. Throws, and then nothing was started. */
    void start(tutti_comm *comm);
    /* It will be started by a lane: what waits for it, waits. */
    void queue();
    /* By the lane: starts it as soon as its device has come this far, or fails. Somebody watches it from then on. */
    void start_in_turn(tutti_comm *comm) noexcept;
    /* Ends an operation that never began, and its members. */
    void fail(std::exception_ptr error);
    /* It uses the streams of a device. */
    bool on_device() const { return !twins_.empty(); }
    /* What is on a device has come back there; to be asked when finished. */
    bool is_back() const;

    bool test();
    /* Until it has finished; rethrows its error. timeout 0: its own deadline. Throws DistBackendError when the timeout
     * passes first (the operation goes on), and what Python's signal handlers throw. On a device the current stream
     * then waits for the results. */
    void wait(milliseconds timeout);
    /* Somebody profiles it: its end has to be seen when it comes. */
    bool is_profiled() const { return profiled_; }
    /* Somebody got a future of it, which in a coalesced region one may before it begins. */
    bool has_futures();
    bool finished() const { return state_.load(std::memory_order_acquire) == State::finished; }
    bool failed() const { return finished() && error_; }
    std::exception_ptr error() const { return finished() ? error_ : nullptr; }
    tutti_status status() const { return status_; }
    float duration_ms() const;
    c10d::OpType kind() const { return call.type; }
    const Tensors &results() const { return call.results.empty() ? call.outputs : call.results; }

    /* From now on it finishes without anybody who waits. */
    void watch();
    /* The same for one whose last holder goes. */
    void watch_or_leak() noexcept;
    /* Completed with the results, or the error. */
    c10::intrusive_ptr<c10::ivalue::Future> future();
    /* Completed with a c10d::WorkResult, never with an error. */
    c10::intrusive_ptr<c10::ivalue::Future> result_future();

  private:
    using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;
    enum class State { waiting, queued, started, finished };

    static void on_notice(void *self);
    void finish_within_notice();
    void open_span();
    void launch_members(tutti_comm *comm);
    void await_inputs(tutti_comm *comm);
    void join_streams() const;
    std::vector<c10::Stream> streams() const; /* on which results come back, one of a device */
    [[noreturn]] void give_up(milliseconds timeout) const;
    void finish(tutti_status status);
    bool conclude(tutti_status status);
    void take_apart(tutti_status status);
    void record_end();
    void announce();
    bool enlist(FuturePtr future, std::vector<FuturePtr> &futures);
    void settle(c10::ivalue::Future &future) const;
    void settle_result(c10::ivalue::Future &future) const;
    void expect_settling();
    void settle_futures();
    void await_settling();
    Buffers buffers() const;
    tutti_call_options options() const;

    /* waiting: inside a coalesced region that has not ended; queued: in a lane */
    std::atomic<State> state_{State::waiting};
    std::atomic<bool> watched_{false};
    tutti_work *work_ = nullptr;
    bool profiled_ = false;
    std::unique_ptr<at::RecordFunction> span_; /* in the profiler; ends before the state says that it has */
    tutti_status status_ = TUTTI_OK;
    std::exception_ptr error_;
    std::vector<c10::intrusive_ptr<Operation>> members_; /* of a group, until it has finished */
    c10::intrusive_ptr<Operation> leader_;               /* of a member: the group */
    std::vector<std::shared_ptr<Twins>> twins_;          /* its call's, or those of the members' calls */
    std::condition_variable moved_;                      /* from queued to another state; settled */
    std::mutex mutex_;                                   /* the lists below, and who finishes */
    std::vector<FuturePtr> futures_, result_futures_;
    std::atomic<bool> settling_{false}; /* from the end until the futures that there were are done */
    std::thread::id settler_;
};

} // namespace tutti_torch
