/* SPDX-License-Identifier: BSD-3-Clause */

/* What operations of both kinds have in common: groups, futures, and those who want to hear of the end. */

#include "work/operation.hpp"

#include "base/process.hpp"

#include <c10/core/StreamGuard.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <unistd.h>
#include <utility>

namespace tutti_torch
{

using c10::ivalue::Future;

Operation::Operation(Call what, uint64_t number, GroupName of, State results_known)
    : call(std::move(what)), seq(number), group(std::move(of)), results_known_(results_known)
{
    if (call.staged) staged_.push_back(call.staged);
}

/* A weak pointer to it keeps neither tensors nor a group. */
void Operation::release_resources()
{
    call = {};
    finished_hook = nullptr;
}

void Operation::lead(std::vector<Ptr> members)
{
    members_ = std::move(members);
    for (const Ptr &member : members_) {
        member->leader_ = Ptr::reclaim_copy(this);
        staged_.insert(staged_.end(), member->staged_.begin(), member->staged_.end());
    }
}

bool Operation::is_back() const
{
    return std::all_of(staged_.begin(), staged_.end(), [](const auto &staged) { return staged->back.query(); });
}

bool Operation::unpacks() const
{
    auto unpacks = [](const Ptr &member) { return member->unpacks(); };
    return call.unpack || std::any_of(members_.begin(), members_.end(), unpacks);
}

std::exception_ptr Operation::error() const
{
    std::lock_guard<std::mutex> guard(mutex_);
    return error_;
}

tutti_status Operation::status() const
{
    std::lock_guard<std::mutex> guard(mutex_);
    return status_;
}

void Operation::give_up(milliseconds timeout) const
{
    C10_THROW_ERROR(DistBackendError, c10::str("tutti: ", call.name, " timed out after ", timeout.count(),
                                               " ms given to wait; it goes on"));
}

/* ---- the end ---- */

void Operation::conclude()
{
    if (error_)
        Recorder::get().failed(record_id);
    else
        Recorder::get().completed(record_id);
    span_.reset();
    settler_ = std::this_thread::get_id();
    settling_.store(!promises_.empty(), std::memory_order_release);
    set_state(State::finished);
}

void Operation::fail(std::exception_ptr error)
{
    {
        std::lock_guard<std::mutex> guard(mutex_);
        if (finished()) return;
        status_ = TUTTI_ERR_CANCELLED;
        error_ = error;
        conclude();
    }
    moved_.notify_all();
    for (const Ptr &member : std::exchange(members_, {})) member->fail(error);
    announce();
}

void Operation::announce()
{
    if (record_id != 0 && tutti_status_scope(status_) >= TUTTI_SCOPE_PEER) Recorder::get().dump_on_error(*recorded);
    settle_promises(true);
    if (auto hook = std::exchange(finished_hook, nullptr)) hook(*this);
}

/* ---- futures ---- */

bool Operation::wants_end() const
{
    auto wants = [](const Ptr &member) { return member->wants_end(); };
    if (finished_hook || std::any_of(members_.begin(), members_.end(), wants)) return true;
    std::lock_guard<std::mutex> guard(mutex_);
    return !promises_.empty();
}

std::vector<c10::Stream> Operation::streams() const
{
    std::vector<c10::Stream> found;
    for (const auto &staged : staged_)
        if (std::find(found.begin(), found.end(), staged->stream) == found.end()) found.push_back(staged->stream);
    return found;
}

static c10::TypePtr type_of_results(const Call &call)
{
    const c10::TypePtr list = c10::ListType::create(c10::TensorType::get());
    return call.results_a_list ? c10::ListType::create(list) : list;
}

static c10::IValue value_of_results(const Call &call)
{
    if (!call.results_a_list) return c10::IValue(call.shown());
    c10::List<c10::List<Tensor>> lists;
    for (auto first = call.shown().begin(); first != call.shown().end(); first += ptrdiff_t(call.results_a_list))
        lists.push_back(c10::List<Tensor>(at::ArrayRef<Tensor>(&*first, call.results_a_list)));
    return c10::IValue(std::move(lists));
}

void Operation::settle(const Promise &promise) const
{
    if (promise.outcome) {
        const c10d::WorkResult result = status_ == TUTTI_OK && !error() ? c10d::WorkResult::SUCCESS
                                        : status_ == TUTTI_ERR_TIMEOUT  ? c10d::WorkResult::TIMEOUT
                                                                        : c10d::WorkResult::COMM_ERROR;
        return promise.future->markCompleted(c10::IValue(int64_t(result)));
    }
    if (std::exception_ptr failed = error()) return promise.future->setError(failed);
    c10::MultiStreamGuard on(streams());
    promise.future->markCompleted(value_of_results(call));
}

void Operation::settle_promises(bool outcomes)
{
    std::vector<Promise> due;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        auto later = [outcomes](const Promise &promise) { return promise.outcome && !outcomes; };
        auto first_due = std::partition(promises_.begin(), promises_.end(), later);
        due.assign(std::make_move_iterator(first_due), std::make_move_iterator(promises_.end()));
        promises_.erase(first_due, promises_.end());
    }
    for (const Promise &promise : due) settle(promise);
    if (!settling_.load(std::memory_order_relaxed)) return;
    {
        std::lock_guard<std::mutex> guard(mutex_); /* nobody is between a look and a wait */
        settling_.store(false, std::memory_order_release);
    }
    moved_.notify_all();
}

void Operation::await_settling()
{
    while (settling_.load(std::memory_order_acquire)) {
        {
            std::unique_lock<std::mutex> lock(mutex_);
            if (settler_ == std::this_thread::get_id()) return;
            if (moved_.wait_for(lock, signals_every, [this] { return !settling_.load(); })) return;
        }
        check_signals();
    }
}

Operation::FuturePtr Operation::future(bool outcome)
{
    std::vector<c10::Device> devices;
    for (const c10::Stream &stream : streams()) devices.push_back(stream.device());
    Promise promise{outcome ? c10::make_intrusive<Future>(c10::IntType::get())
                            : c10::make_intrusive<Future>(type_of_results(call), devices),
                    outcome};
    before_future();
    {
        std::unique_lock<std::mutex> lock(mutex_);
        if (state() < (outcome ? State::finished : results_known_)) {
            promises_.push_back(promise);
            lock.unlock();
            watch();
            return promise.future;
        }
    }
    settle(promise);
    return promise.future;
}

/* Work: what users wait on. */

Work::Work(Operation::Ptr operation, int rank)
    : c10d::Work(rank, operation->call.type), operation_(std::move(operation))
{
}

/* In a forked process nobody can end the operation, or take back what the library borrowed. */
Work::~Work()
{
    if (origin_.is_here())
        operation_->let_go();
    else
        operation_.release();
}

Operation &Work::here() const
{
    if (C10_UNLIKELY(!origin_.is_here()))
        C10_THROW_ERROR(DistBackendError, c10::str("tutti: this process was forked by the one that called ",
                                                   operation_->call.name, "; it can not wait for the call"));
    return *operation_;
}

float Work::getDuration() const
{
    TORCH_CHECK(operation_->timed, "tutti: durations are those of calls made after enable_collectives_timing");
    return operation_->duration_ms();
}

int Work::sourceRank() const
{
    TORCH_CHECK(operation_->call.message, "tutti: only a receive has a source rank, this is ", operation_->call.name);
    return operation_->call.message->source;
}

bool Work::wait(milliseconds timeout)
{
    if (c10d::allow_inflight_collective_as_graph_input())
        c10d::unregister_work(c10::intrusive_ptr<c10d::Work>::unsafe_reclaim_from_nonowning(this));
    here().wait(saturated(timeout));
    return true;
}

/* Waits of futures do not look for signals. A backward pass that runs on the main thread, as DDP's of CPU tensors does,
 * ends with such waits: before them it waits for the operation as Work does. An error of the operation is the future's.
 */
static void wait_within_backward(const Operation::Ptr &operation)
{
    if (operation->finished() || gettid() != getpid() || torch::autograd::get_current_graph_task_id() < 0) return;
    if (!operation->is_on_host()) return;
    torch::autograd::Engine::get_default_engine().queue_callback([operation] {
        try {
            operation->wait(milliseconds(0));
        } catch (const c10::Error &) {
        }
    });
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture()
{
    auto future = here().future(false);
    wait_within_backward(operation_);
    return future;
}

void Work::abort()
{
    TORCH_CHECK(false, "tutti: a single call can not be aborted; abort its process group");
}

} // namespace tutti_torch
