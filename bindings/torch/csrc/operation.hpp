/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* An operation is a call from its start to its end, whoever still looks at it. It keeps the tensors alive while the
 * library borrows their memory, learns of completion from whoever waits or from the library's notice, and then, once,
 * takes its result apart, tells the recorder, futures and hooks. Work (work.hpp) is the handle that users hold. */

#include "comm.hpp"
#include "tensors.hpp"

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace tutti_torch
{

/* Where the memory of a call's inputs and outputs is: the tensors' own, or their twins on the host. */
struct Buffers {
    std::vector<void *> in, out;
};

/* Starts the call in the library: exactly one public call with these options and this work. */
using Launch = std::function<tutti_status(tutti_comm *, const Buffers &, const tutti_call_options *, tutti_work **)>;

/* What a method of the backend asks for. */
struct Call {
    c10d::OpType type;
    const char *name;        /* "all_reduce": the word of traces and profiles */
    Tensors inputs, outputs; /* dense; what the launch reads and writes, in the order of Buffers. In place: the same */
    Launch launch;
    bool async = true;
    milliseconds timeout{0};                /* 0: the group's */
    std::function<void()> unpack;           /* copies flat results to the user's tensors, after success */
    Tensors results;                        /* what Work.result() shows; empty: the outputs */
    Tensor factor;                          /* PREMUL_SUM */
    int peer = -1;                          /* send, recv: the other rank, -1 any; collectives: the root, -1 none */
    std::shared_ptr<tutti_message> message; /* recv: where the sender is written */

    bool is_p2p() const { return c10d::isP2POp(type); }
};

class Operation : public c10::intrusive_ptr_target
{
  public:
    Operation(Call what, uint64_t number, std::shared_ptr<const std::string> of)
        : call(std::move(what)), seq(number), group(std::move(of))
    {
    }
    ~Operation() override;
    /* One that has finished: what an empty region ends with. */
    static c10::intrusive_ptr<Operation> nothing();

    Call call;
    const uint64_t seq;                             /* of the collective in its group; 0 for send and recv */
    const std::shared_ptr<const std::string> group; /* names the group in the library's sentences */
    const std::chrono::steady_clock::time_point created = std::chrono::steady_clock::now();
    bool timed = false; /* the user asked for durations before it began */
    /* Runs once when the operation has finished, after futures: the recorder's and the group's business. */
    std::function<void(Operation &)> finished_hook;

    /* Starts it on the communicator. Throws, and then nothing was started. */
    void start(tutti_comm *comm);
    /* Starts all of them as one group; their end is this one's. */
    void start_group(tutti_comm *comm, std::vector<c10::intrusive_ptr<Operation>> members);
    /* Ends an operation that never began. */
    void fail(std::exception_ptr error);

    bool test();
    /* Until it has finished; rethrows its error. timeout 0: its own deadline. Throws DistBackendError when the timeout
     * passes first (the operation goes on), and what Python's signal handlers throw. */
    void wait(milliseconds timeout);
    /* Somebody profiles it: its end has to be seen when it comes. */
    bool is_profiled() const { return profiled_; }
    bool finished() const { return state_.load(std::memory_order_acquire) == State::finished; }
    bool failed() const { return finished() && error_; }
    std::exception_ptr error() const { return finished() ? error_ : nullptr; }
    tutti_status status() const { return status_; }
    float duration_ms() const;
    const Tensors &results() const { return call.results.empty() ? call.outputs : call.results; }

    /* From now on it finishes without anybody who waits. */
    void watch();
    /* Completed with the results, or the error. */
    c10::intrusive_ptr<c10::ivalue::Future> future();
    /* Completed with a c10d::WorkResult, never with an error. */
    c10::intrusive_ptr<c10::ivalue::Future> result_future();

  private:
    enum class State { waiting, started, finished };

    static void on_notice(void *self);
    void finish(tutti_status status);
    void take_apart(tutti_status status);
    void settle_futures();
    Buffers buffers() const;
    tutti_call_options options() const;

    std::atomic<State> state_{State::waiting}; /* waiting: inside a coalesced region that has not ended */
    std::atomic<bool> watched_{false};
    tutti_work *work_ = nullptr;
    bool profiled_ = false;
    std::unique_ptr<at::RecordFunction> span_; /* in the profiler; ends before the state says that it has */
    tutti_status status_ = TUTTI_OK;
    std::exception_ptr error_;
    std::vector<c10::intrusive_ptr<Operation>> members_; /* of a group, until it has finished */
    c10::intrusive_ptr<Operation> leader_;               /* of a member: the group */
    std::mutex mutex_;                                   /* the lists below, and who finishes */
    std::vector<c10::intrusive_ptr<c10::ivalue::Future>> futures_, result_futures_;
};

} // namespace tutti_torch
