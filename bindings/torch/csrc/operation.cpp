/* SPDX-License-Identifier: BSD-3-Clause */

/* Operations: start, wait, and the one end. */

#include "operation.hpp"

#include "errors.hpp"
#include "profile.hpp"
#include "recorder.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

namespace tutti_torch
{

using c10::ivalue::Future;
using std::chrono::steady_clock;

/* How long a wait goes without a look at signals. */
static constexpr milliseconds signals_every(50);

/* This thread runs callbacks of futures: until they return, no other notice comes. */
static thread_local bool in_notice = false;

Operation::Operation(Call what, uint64_t number, std::shared_ptr<const std::string> of)
    : call(std::move(what)), seq(number), group(std::move(of))
{
    if (call.twins) twins_ = {call.twins};
}

Operation::~Operation()
{
    tutti_work_free(work_);
}

/* Who remembers it by a weak pointer keeps neither tensors nor a group. */
void Operation::release_resources()
{
    call = {};
    finished_hook = nullptr;
}

c10::intrusive_ptr<Operation> Operation::nothing()
{
    Call call{};
    call.type = c10d::OpType::COALESCED;
    call.name = "coalesced";
    auto operation = c10::make_intrusive<Operation>(std::move(call), 0, std::make_shared<const std::string>());
    operation->state_.store(State::finished);
    return operation;
}

Buffers Operation::buffers() const
{
    Buffers buffers;
    if (call.twins) {
        buffers = call.twins->buffers();
    } else {
        for (const Tensor &tensor : call.inputs) buffers.in.push_back(tensor.data_ptr());
        for (const Tensor &tensor : call.outputs) buffers.out.push_back(tensor.data_ptr());
    }
    buffers.message = call.message.get();
    return buffers;
}

tutti_call_options Operation::options() const
{
    tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.timeout_ns = to_ns(call.timeout);
    options.tag = group->c_str();
    /* hand_out waits for it; a lane does not */
    options.attended = !(leader_ ? leader_->call.async : call.async) && state_.load() != State::queued;
    if (call.factor.defined()) options.premul = call.factor.data_ptr();
    return options;
}

/* On the caller's thread, which is the one that is profiled. */
void Operation::open_span()
{
    span_ = begin_span(call);
    profiled_ = span_ != nullptr;
}

void Operation::lead(std::vector<c10::intrusive_ptr<Operation>> members)
{
    members_ = std::move(members);
    for (const auto &member : members_) {
        member->leader_ = c10::intrusive_ptr<Operation>::reclaim_copy(this);
        twins_.insert(twins_.end(), member->twins_.begin(), member->twins_.end());
    }
}

void Operation::launch_members(tutti_comm *comm)
{
    std::vector<Buffers> buffers; /* all of them before the group begins: this may throw */
    for (const auto &member : members_) buffers.push_back(member->buffers());
    check(tutti_group_start());
    tutti_status first = TUTTI_OK;
    for (size_t i = 0; i < members_.size(); i++) {
        tutti_call_options options = members_[i]->options();
        tutti_status status = members_[i]->call.launch(comm, buffers[i], &options, nullptr);
        if (status < 0 && first == TUTTI_OK) first = status;
    }
    check(tutti_group_end(&work_)); /* fails when a member did, with its record */
    TORCH_INTERNAL_ASSERT(first == TUTTI_OK);
}

void Operation::start(tutti_comm *comm)
{
    if (state_.load(std::memory_order_relaxed) == State::waiting) open_span();
    if (members_.empty()) {
        tutti_call_options options = this->options();
        check(call.launch(comm, buffers(), &options, &work_));
    } else {
        launch_members(comm);
    }
    for (const auto &member : members_) {
        Recorder::get().started(member->record_id);
        member->state_.store(State::started, std::memory_order_release);
    }
    Recorder::get().started(record_id);
    state_.store(State::started, std::memory_order_release);
}

/* ---- calls in a lane ---- */

void Operation::queue()
{
    open_span();
    for (const auto &member : members_) member->state_.store(State::queued, std::memory_order_release);
    state_.store(State::queued, std::memory_order_release);
}

/* Devices are asked again and again: a wait that they do could be ended neither by a deadline nor by an abort. */
void Operation::await_inputs(tutti_comm *comm)
{
    const auto begin = steady_clock::now();
    const auto limit =
        std::chrono::nanoseconds(call.timeout.count() > 0 ? to_ns(call.timeout) : tutti_comm_timeout(comm));
    auto pause = std::chrono::microseconds(5);
    for (const auto &twins : twins_) {
        while (!twins->arrived()) {
            tutti_error error;
            if (tutti_comm_state(comm, &error) < 0) raise(error);
            if (steady_clock::now() - begin > limit)
                C10_THROW_ERROR(DistBackendError,
                                c10::str("tutti: Timed out waiting: ", call.name, " of group ", *group,
                                         " did not begin: its device has not computed the inputs within ",
                                         std::chrono::duration_cast<milliseconds>(limit).count(), " ms"));
            std::this_thread::sleep_for(pause);
            pause = std::min(pause * 2, std::chrono::microseconds(500));
        }
    }
}

void Operation::start_in_turn(tutti_comm *comm) noexcept
{
    try {
        await_inputs(comm);
    } catch (const c10::Error &error) {
        tutti_comm_abort(comm, error.what_without_backtrace()); /* the others would wait for this rank's part */
        return fail(std::current_exception());
    }
    try {
        start(comm);
    } catch (...) {
        return fail(std::current_exception());
    }
    {
        std::lock_guard<std::mutex> guard(mutex_); /* nobody is between its look at the state and its wait */
    }
    moved_.notify_all();
    watch_or_leak();
}

/* ---- the end ---- */

void Operation::take_apart(tutti_status status)
{
    status_ = status;
    if (status < 0) {
        tutti_error record;
        tutti_work_error(work_, &record);
        error_ = exception_of(record);
        return;
    }
    auto any_inference = [](const Tensors &tensors) {
        return std::any_of(tensors.begin(), tensors.end(), [](const Tensor &tensor) { return tensor.is_inference(); });
    };
    try {
        at::AutoDispatchBelowAutograd guard;
        /* Tensors that were made in inference mode can be written in it alone, and this may be any thread. */
        c10::InferenceMode mode(any_inference(call.outputs) || any_inference(call.results));
        if (call.twins)
            call.twins->send_back(call);
        else if (call.unpack)
            call.unpack();
    } catch (...) {
        error_ = std::current_exception();
    }
}

void Operation::record_end()
{
    if (record_id == 0) return;
    if (error_)
        Recorder::get().failed(record_id);
    else
        Recorder::get().completed(record_id);
}

/* The results, and then the state, of this and its members; false when another thread did it. */
bool Operation::conclude(tutti_status status)
{
    std::lock_guard<std::mutex> guard(mutex_);
    if (finished()) return false;
    if (leader_) {
        status_ = leader_->status_;
        error_ = leader_->error_;
    }
    if (!leader_ || status_ == TUTTI_OK) take_apart(status);
    for (const auto &member : members_) {
        member->conclude(status);
        if (!error_) error_ = member->error_;
    }
    record_end();
    span_.reset();
    expect_settling();
    state_.store(State::finished, std::memory_order_release);
    return true;
}

/* Those who want to know of the end; they may call everything. */
void Operation::announce()
{
    if (record_id != 0 && tutti_status_scope(status_) >= TUTTI_SCOPE_PEER) Recorder::get().dump_on_error(*recorded);
    settle_futures();
    if (finished_hook) finished_hook(*this);
}

void Operation::finish(tutti_status status)
{
    if (status == TUTTI_OK && call.first) call.first();
    if (!conclude(status)) return;
    for (const auto &member : std::exchange(members_, {})) member->announce();
    announce();
}

void Operation::fail(std::exception_ptr error)
{
    {
        std::lock_guard<std::mutex> guard(mutex_);
        if (finished()) return;
        status_ = TUTTI_ERR_CANCELLED;
        error_ = error;
        record_end();
        span_.reset();
        expect_settling();
        state_.store(State::finished, std::memory_order_release);
    }
    moved_.notify_all();
    for (const auto &member : std::exchange(members_, {})) member->fail(error);
    announce();
}

bool Operation::test()
{
    if (finished()) return true;
    if (state_.load(std::memory_order_acquire) != State::started) return false;
    if (leader_) return leader_->test() && (finish(leader_->status_), true);
    tutti_status status = tutti_work_test(work_);
    if (status == TUTTI_PENDING) return false;
    finish(status);
    return true;
}

void Operation::give_up(milliseconds timeout) const
{
    C10_THROW_ERROR(DistBackendError, c10::str("tutti: ", call.name, " is not complete after the ", timeout.count(),
                                               " ms given to wait; it goes on"));
}

void Operation::wait(milliseconds timeout)
{
    bool forever = timeout.count() <= 0;
    auto until = steady_clock::now() + (forever ? milliseconds(0) : timeout);
    std::optional<pybind11::gil_scoped_release> release; /* callbacks of futures need it, and are waited for */
    if (holds_gil()) release.emplace();

    /* Inside a coalesced region the call has not begun: the region's own Work is what one waits for. */
    if (!finished() && state_.load(std::memory_order_acquire) == State::waiting) return;
    if (leader_) {
        leader_->wait(timeout);
        finish(leader_->status_);
    }
    while (!finished()) {
        auto rest = std::chrono::duration_cast<milliseconds>(until - steady_clock::now());
        milliseconds slice = forever ? signals_every : std::clamp(rest, milliseconds(1), signals_every);
        if (state_.load(std::memory_order_acquire) == State::queued) {
            std::unique_lock<std::mutex> lock(mutex_);
            moved_.wait_for(lock, slice, [this] { return state_.load() != State::queued; });
        } else {
            tutti_status status = tutti_work_wait(work_, to_ns(slice));
            if (!in_notice) stay_if_program_ends();
            if (status != TUTTI_PENDING) {
                finish(status);
                break;
            }
        }
        check_signals();
        if (!forever && steady_clock::now() >= until && !finished()) give_up(timeout);
    }
    await_settling();
    if (error_) std::rethrow_exception(error_);
    join_streams();
}

void Operation::join_streams() const
{
    for (const auto &twins : twins_) twins->block_current_stream();
}

bool Operation::is_back() const
{
    return std::all_of(twins_.begin(), twins_.end(), [](const auto &twins) { return twins->is_back(); });
}

float Operation::duration_ms() const
{
    if (leader_) return leader_->duration_ms();
    return finished() && work_ ? float(double(tutti_work_duration_ns(work_)) * 1e-6) : 0.0F;
}

/* ---- notices, futures ---- */

void Operation::on_notice(void *self)
{
    auto operation = c10::intrusive_ptr<Operation>::reclaim(static_cast<Operation *>(self));
    bool outer = std::exchange(in_notice, true);
    operation->test();
    in_notice = outer;
}

/* A callback may start a call and wait for that one's future (PowerSGD's hook does), whose notice would come after the
 * callback: what it gets is complete already. The error, if there is one, is the future's. */
void Operation::finish_within_notice()
{
    std::optional<pybind11::gil_scoped_release> release;
    if (holds_gil()) release.emplace();
    try {
        wait(milliseconds(0));
    } catch (...) {
    }
}

void Operation::watch()
{
    if (state_.load(std::memory_order_acquire) != State::started) return; /* a lane watches what it starts */
    if (leader_) return leader_->watch();
    if (watched_.exchange(true)) return;
    auto self = c10::intrusive_ptr<Operation>::reclaim_copy(this);
    check(tutti_work_notify(work_, on_notice, self.get()));
    self.release(); /* on_notice takes it back */
}

/* The library borrows the tensors until the end: somebody has to keep them until then. */
void Operation::watch_or_leak() noexcept
try {
    watch();
} catch (const std::exception &error) {
    TORCH_WARN("tutti: ", call.name, " can not be watched, its memory is lost: ", error.what());
    c10::intrusive_ptr<Operation>::reclaim_copy(this).release(); /* better than written to after it was freed */
}

std::vector<c10::Stream> Operation::streams() const
{
    std::vector<c10::Stream> streams;
    for (const auto &twins : twins_) {
        c10::Stream stream = twins->stream();
        if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
    }
    return streams;
}

/* False when the operation has finished, so that the caller settles the future itself. */
bool Operation::enlist(FuturePtr future, std::vector<FuturePtr> &futures)
{
    std::lock_guard<std::mutex> guard(mutex_);
    if (finished()) return false;
    futures.push_back(std::move(future));
    return true;
}

bool Operation::has_futures()
{
    std::lock_guard<std::mutex> guard(mutex_);
    return !futures_.empty() || !result_futures_.empty();
}

void Operation::settle(Future &future) const
{
    if (error_) return future.setError(error_);
    c10::MultiStreamGuard on(streams());
    future.markCompleted(c10::IValue(results()));
}

void Operation::settle_result(Future &future) const
{
    c10d::WorkResult result = !error_                        ? c10d::WorkResult::SUCCESS
                              : status_ == TUTTI_ERR_TIMEOUT ? c10d::WorkResult::TIMEOUT
                                                             : c10d::WorkResult::COMM_ERROR;
    future.markCompleted(c10::IValue(int64_t(result)));
}

/* By the thread that finished it, alone: no future is enlisted any more. */
void Operation::settle_futures()
{
    if (!settling_.load(std::memory_order_relaxed)) return;
    for (const FuturePtr &future : std::exchange(futures_, {})) settle(*future);
    for (const FuturePtr &future : std::exchange(result_futures_, {})) settle_result(*future);
    {
        std::lock_guard<std::mutex> guard(mutex_);
        settling_.store(false, std::memory_order_release);
    }
    moved_.notify_all();
}

/* With mutex_ held, by the thread that will do it. */
void Operation::expect_settling()
{
    settler_ = std::this_thread::get_id();
    settling_.store(!futures_.empty() || !result_futures_.empty(), std::memory_order_release);
}

/* Who has waited finds the futures done, with their callbacks, as with PyTorch's own backends; but for the callbacks
 * themselves, when they wait for their call. */
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

c10::intrusive_ptr<Future> Operation::future()
{
    std::vector<c10::Device> devices;
    for (const c10::Stream &stream : streams()) devices.push_back(stream.device());
    auto future = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()), std::move(devices));
    if (in_notice) finish_within_notice();
    if (enlist(future, futures_))
        watch();
    else
        settle(*future);
    return future;
}

c10::intrusive_ptr<Future> Operation::result_future()
{
    auto future = c10::make_intrusive<Future>(c10::IntType::get());
    if (in_notice) finish_within_notice();
    if (enlist(future, result_futures_))
        watch();
    else
        settle_result(*future);
    return future;
}

} // namespace tutti_torch
