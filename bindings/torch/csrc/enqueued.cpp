/* SPDX-License-Identifier: BSD-3-Clause */

/* Calls on CUDA devices: start, and what is left to do for those who wait. */

#include "enqueued.hpp"

#include "cuda.hpp"
#include "errors.hpp"
#include "recorder.hpp"
#include "watcher.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

namespace tutti_torch
{

using c10::ivalue::Future;
using std::chrono::steady_clock;

Enqueued::Enqueued(std::shared_ptr<Channel> of, Call head, std::vector<Call> parts, uint64_t number,
                   std::shared_ptr<const std::string> in)
    : type(head.type), name(head.name), seq(number), group(std::move(in)), channel(std::move(of)),
      timeout(head.timeout), peer(head.peer), async(head.async), barrier(head.type == c10d::OpType::BARRIER),
      calls_(std::move(parts))
{
    if (calls_.empty()) calls_.push_back(std::move(head));
    for (const Call &call : calls_) {
        const Tensors &shown = call.results.empty() ? call.outputs : call.results;
        results.insert(results.end(), shown.begin(), shown.end());
    }
}

/* Nobody has waited for an asynchronous call whose tensors are still here. */
Enqueued::~Enqueued()
{
    if (!started_ || leader_) return;
    if (async && !calls_.empty()) tell_allocator();
    if (end_ && !timed && !captured_) channel->events.give(std::move(*end_));
}

/* ---- the start ---- */

using Group = std::shared_ptr<const std::string>;

static tutti_status launch_one(Channel &channel, const Call &call, tutti_comm *comm, const Group &group, void *native)
{
    tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.timeout_ns = to_ns(call.timeout);
    options.tag = channel.label(group);
    options.stream = native;
    if (call.factor.defined()) options.premul = call.factor.data_ptr();
    return call.launch(comm, channel.buffers(call), &options, nullptr);
}

void Enqueued::launch(void *native)
{
    tutti_comm *handle = channel->handle();
    if (calls_.size() == 1) return check(launch_one(*channel, calls_[0], handle, group, native));
    check(tutti_group_start());
    for (const Call &call : calls_) (void)launch_one(*channel, call, handle, group, native); /* the end tells */
    check(tutti_group_end(nullptr));
}

/* Copies to the user's tensors, behind the call. */
void Enqueued::unpack(const c10::Stream &current)
{
    auto packs = [](const Call &call) { return bool(call.unpack); };
    if (std::none_of(calls_.begin(), calls_.end(), packs)) return;
    std::optional<c10::StreamGuard> on;
    if (*stream_ != current) on.emplace(*stream_);
    at::AutoDispatchBelowAutograd below;
    for (const Call &call : calls_)
        if (call.unpack) call.unpack();
}

void Enqueued::start()
{
    caller_ = current_stream(channel->device);
    stream_ = async ? channel->stream : *caller_;
    captured_ = is_captured(native_stream(*caller_));
    if (async) channel->follow(*caller_, true);
    if (timed && !captured_ && (async || barrier)) {
        begin_.emplace(c10::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
        begin_->record(*stream_);
    }
    launch(native_stream(*stream_));
    started_.store(true, std::memory_order_release); /* from here on the device uses the tensors */
    unpack(*caller_);
    if (async || barrier) {
        if (begin_)
            end_.emplace(c10::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
        else
            end_.emplace(channel->events.take());
        end_->record(*stream_);
    }
    if (!async) calls_.clear();
}

void Enqueued::begin_with(const Ptr &leader)
{
    std::vector<FuturePtr> futures;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        leader_ = leader;
        stream_ = leader->stream_;
        captured_ = leader->captured_;
        calls_.clear(); /* the leader's now */
        futures = std::exchange(futures_, {});
        started_.store(true, std::memory_order_release);
    }
    for (const FuturePtr &future : futures) settle(*future);
    watch_if_wanted();
}

void Enqueued::fail(std::exception_ptr error)
{
    std::vector<FuturePtr> futures;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        error_ = error;
        status_ = TUTTI_ERR_CANCELLED;
        calls_.clear();
        futures = std::exchange(futures_, {});
    }
    for (const FuturePtr &future : futures) settle(*future);
    for (uint64_t id : record_ids) Recorder::get().failed(id);
    finish();
}

/* Calls in a graph run again and again, or never: the recorder does not wait for them. */
static void tell_recorder_of(uint64_t id, Channel &channel, const c10::Stream &stream, bool captured)
{
    if (id == 0) return;
    if (captured)
        Recorder::get().failed(id);
    else
        channel.progress.add(id, stream);
}

void Enqueued::tell_recorder() const
{
    for (uint64_t id : record_ids) tell_recorder_of(id, *channel, *stream_, captured_);
}

void enqueue_and_forget(Channel &channel, const Call &call, uint64_t record_id, const Group &group)
{
    const c10::Stream stream = current_stream(channel.device);
    void *native = native_stream(stream);
    const bool captured = record_id != 0 && is_captured(native);
    check(launch_one(channel, call, channel.handle(), group, native));
    if (call.unpack) {
        at::AutoDispatchBelowAutograd below;
        call.unpack();
    }
    tell_recorder_of(record_id, channel, stream, captured);
}

/* ---- the tensors ---- */

/* Who waited on the stream of the call is ordered behind its end, as the tensors' memory is; on another one, the
 * allocator has to know. */
void Enqueued::let_go(const c10::Stream &current)
{
    if (current != *caller_) return tell_allocator();
    std::vector<Call> calls;
    std::lock_guard<std::mutex> guard(mutex_);
    calls.swap(calls_);
}

void Enqueued::tell_allocator() noexcept
try {
    std::vector<Call> calls;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        calls.swap(calls_);
    }
    for (const Call &call : calls) {
        for (const Tensors *list : {&call.inputs, &call.outputs, &call.results})
            for (const Tensor &tensor : *list) record_on_stream(tensor, *stream_);
    }
} catch (const std::exception &error) {
    TORCH_WARN("tutti: the memory of ", name, " may be used again too early: ", error.what());
}

/* ---- waiting ---- */

bool Enqueued::is_over() const
{
    if (leader_) return leader_->is_over();
    BesideCaptures beside;
    return end_ ? end_->query() : c10::impl::VirtualGuardImpl(c10::kCUDA).queryStream(*stream_);
}

bool Enqueued::look_for_failure()
{
    tutti_error found;
    std::shared_ptr<Comm> comm = channel->comm();
    if (C10_LIKELY(!comm || tutti_comm_state(comm->handle(), &found) >= 0)) return error() != nullptr;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        if (error_) return true;
        error_ = exception_of(found);
        status_ = found.status;
    }
    for (uint64_t id : record_ids) Recorder::get().failed(id);
    if (recorded && tutti_status_scope(found.status) >= TUTTI_SCOPE_PEER) Recorder::get().dump_on_error(*recorded);
    return true;
}

std::exception_ptr Enqueued::error() const
{
    std::lock_guard<std::mutex> guard(mutex_);
    return error_;
}

bool Enqueued::test()
{
    if (!started_.load(std::memory_order_acquire)) return error() != nullptr;
    TORCH_CHECK(!captured_, "tutti: ", name, " is part of a graph: whether it is complete can not be asked");
    return look_for_failure() || is_over();
}

/* As PyTorch's backend for NCCL: waits for the host, too, where the environment says so. */
static bool waits_block()
{
    static const char *const value = std::getenv("TORCH_NCCL_BLOCKING_WAIT");
    static const bool blocking = value && (std::strcmp(value, "1") == 0 || std::strcmp(value, "true") == 0);
    return blocking;
}

void Enqueued::await(milliseconds limit)
{
    std::optional<pybind11::gil_scoped_release> release;
    if (holds_gil()) release.emplace();
    const auto begin = steady_clock::now();
    auto looked = begin;
    auto pause = std::chrono::microseconds(1);
    while (!is_over() && !look_for_failure()) {
        const auto now = steady_clock::now();
        if (limit.count() > 0 && now - begin >= limit)
            C10_THROW_ERROR(DistBackendError, c10::str("tutti: ", name, " is not complete after the ", limit.count(),
                                                       " ms given to wait; it goes on"));
        if (now - looked > milliseconds(50)) {
            stay_if_program_ends();
            check_signals();
            looked = now;
        }
        if (now - begin < std::chrono::microseconds(50)) continue; /* most are over by then */
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::microseconds(200));
    }
}

void Enqueued::wait(milliseconds limit)
{
    if (!started_.load(std::memory_order_acquire)) { /* a region's own Work is what one waits for */
        if (std::exception_ptr failed = error()) std::rethrow_exception(failed);
        return;
    }
    if (leader_) return leader_->wait(limit);
    const c10::Stream current = current_stream(channel->device);
    if (async) {
        end_->block(current);
        let_go(current);
    }
    if (captured_) return;
    if (limit.count() > 0 || barrier || waits_block()) await(limit);
    if (look_for_failure()) std::rethrow_exception(error());
}

float Enqueued::duration_ms() const
{
    if (leader_) return leader_->duration_ms();
    return begin_ && end_ ? float(begin_->elapsedTime(*end_)) : 0.0F;
}

/* ---- those who want to be told ---- */

/* In the stream's order: callbacks run at once, on streams behind the call. */
void Enqueued::settle(Future &future) const
{
    if (std::exception_ptr failed = error()) return future.setError(failed);
    c10::StreamGuard on(*stream_);
    future.markCompleted(c10::IValue(results));
}

c10::intrusive_ptr<Future> Enqueued::future()
{
    auto future = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()),
                                              std::vector<c10::Device>{channel->device});
    {
        std::lock_guard<std::mutex> guard(mutex_);
        if (!started_ && !error_) {
            futures_.push_back(future);
            return future;
        }
    }
    settle(*future);
    return future;
}

void Enqueued::settle_result(Future &future) const
{
    c10d::WorkResult result = status_ == TUTTI_OK            ? c10d::WorkResult::SUCCESS
                              : status_ == TUTTI_ERR_TIMEOUT ? c10d::WorkResult::TIMEOUT
                                                             : c10d::WorkResult::COMM_ERROR;
    future.markCompleted(c10::IValue(int64_t(result)));
}

c10::intrusive_ptr<Future> Enqueued::result_future()
{
    auto future = c10::make_intrusive<Future>(c10::IntType::get());
    bool over = false;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        over = error_ != nullptr;
        if (!over) result_futures_.push_back(future);
    }
    if (over)
        settle_result(*future);
    else
        watch_if_wanted();
    return future;
}

void Enqueued::watch_if_wanted()
{
    {
        std::lock_guard<std::mutex> guard(mutex_);
        if (captured_ || !started_ || (!finished_hook && result_futures_.empty())) return;
    }
    Watcher::get().add(Ptr::reclaim_copy(this));
}

void Enqueued::finish()
{
    if (started_) look_for_failure();
    std::vector<FuturePtr> futures;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        futures = std::exchange(result_futures_, {});
    }
    for (const FuturePtr &future : futures) settle_result(*future);
    if (auto hook = std::exchange(finished_hook, nullptr)) hook(*this);
}

/* ---- the handle ---- */

EnqueuedWork::EnqueuedWork(Enqueued::Ptr call, int rank) : c10d::Work(rank, call->type), call_(std::move(call)) {}

bool EnqueuedWork::isCompleted()
{
    return call_->test();
}
bool EnqueuedWork::isSuccess() const
{
    return !call_->error();
}
std::exception_ptr EnqueuedWork::exception() const
{
    return call_->error();
}
std::vector<at::Tensor> EnqueuedWork::result()
{
    return call_->results;
}
int EnqueuedWork::sourceRank() const
{
    TORCH_CHECK(call_->type == c10d::OpType::RECV, "tutti: only a receive has a source rank, this is ", call_->name);
    return call_->peer;
}
float EnqueuedWork::getDuration() const
{
    TORCH_CHECK(call_->timed, "tutti: durations are those of calls made after enable_collectives_timing");
    return call_->duration_ms();
}
uint64_t EnqueuedWork::getSequencenumber() const
{
    return call_->seq;
}
milliseconds EnqueuedWork::getTimeout() const
{
    return call_->timeout;
}
c10::intrusive_ptr<Future> EnqueuedWork::getFuture()
{
    return call_->future();
}
c10::intrusive_ptr<Future> EnqueuedWork::getFutureResult()
{
    return call_->result_future();
}

bool EnqueuedWork::wait(milliseconds timeout)
{
    if (c10d::allow_inflight_collective_as_graph_input())
        c10d::unregister_work(c10::intrusive_ptr<c10d::Work>::unsafe_reclaim_from_nonowning(this));
    call_->wait(timeout);
    return true;
}
void EnqueuedWork::synchronize()
{
    wait(kNoTimeout);
}
void EnqueuedWork::blockCurrentStream()
{
    wait(kNoTimeout);
}

void EnqueuedWork::abort()
{
    TORCH_CHECK(false, "tutti: a single call can not be aborted; abort its process group");
}

} // namespace tutti_torch
