/* SPDX-License-Identifier: BSD-3-Clause */

/* Operations: start, wait, and the one end. */

#include "operation.hpp"

#include "errors.hpp"
#include "profile.hpp"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>

namespace tutti_torch
{

using c10::ivalue::Future;
using std::chrono::steady_clock;

/* How long a wait goes without a look at signals. */
static constexpr milliseconds signals_every(50);

Operation::~Operation()
{
    tutti_work_free(work_);
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
    for (const Tensor &tensor : call.inputs) buffers.in.push_back(tensor.data_ptr());
    for (const Tensor &tensor : call.outputs) buffers.out.push_back(tensor.data_ptr());
    return buffers;
}

tutti_call_options Operation::options() const
{
    tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.timeout_ns = to_ns(call.timeout);
    options.tag = group->c_str();
    if (call.factor.defined()) options.premul = call.factor.data_ptr();
    return options;
}

void Operation::start(tutti_comm *comm)
{
    tutti_call_options options = this->options();
    span_ = begin_span(call);
    profiled_ = span_ != nullptr;
    check(call.launch(comm, buffers(), &options, &work_));
    state_.store(State::started, std::memory_order_release);
}

void Operation::start_group(tutti_comm *comm, std::vector<c10::intrusive_ptr<Operation>> members)
{
    span_ = begin_span(call);
    profiled_ = span_ != nullptr;
    check(tutti_group_start());
    tutti_status first = TUTTI_OK;
    for (const auto &member : members) {
        tutti_call_options options = member->options();
        tutti_status status = member->call.launch(comm, member->buffers(), &options, nullptr);
        if (status < 0 && first == TUTTI_OK) first = status;
    }
    check(tutti_group_end(&work_)); /* fails when a member did, with its record */
    TORCH_INTERNAL_ASSERT(first == TUTTI_OK);
    members_ = std::move(members);
    for (const auto &member : members_) {
        member->leader_ = c10::intrusive_ptr<Operation>::reclaim_copy(this);
        member->state_.store(State::started, std::memory_order_release);
    }
    state_.store(State::started, std::memory_order_release);
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
    try {
        at::AutoDispatchBelowAutograd guard;
        if (call.unpack) call.unpack();
    } catch (...) {
        error_ = std::current_exception();
    }
}

void Operation::finish(tutti_status status)
{
    std::vector<c10::intrusive_ptr<Operation>> members;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        if (finished()) return;
        if (leader_) {
            status_ = leader_->status_;
            error_ = leader_->error_;
        }
        if (!leader_ || status_ == TUTTI_OK) take_apart(status);
        members = std::move(members_);
        members_.clear();
        span_.reset();
        state_.store(State::finished, std::memory_order_release);
    }
    for (const auto &member : members) member->finish(status);
    settle_futures();
    if (finished_hook) finished_hook(*this);
}

void Operation::fail(std::exception_ptr error)
{
    {
        std::lock_guard<std::mutex> guard(mutex_);
        if (finished()) return;
        status_ = TUTTI_ERR_CANCELLED;
        error_ = std::move(error);
        members_.clear();
        span_.reset();
        state_.store(State::finished, std::memory_order_release);
    }
    settle_futures();
    if (finished_hook) finished_hook(*this);
}

bool Operation::test()
{
    if (finished()) return true;
    if (state_.load(std::memory_order_acquire) == State::waiting) return false;
    if (leader_) return leader_->test() && (finish(leader_->status_), true);
    tutti_status status = tutti_work_test(work_);
    if (status == TUTTI_PENDING) return false;
    finish(status);
    return true;
}

void Operation::wait(milliseconds timeout)
{
    bool forever = timeout.count() <= 0;
    auto until = steady_clock::now() + (forever ? milliseconds(0) : timeout);

    /* Inside a coalesced region the call has not begun: the region's own Work is what one waits for. */
    if (!finished() && state_.load(std::memory_order_acquire) == State::waiting) return;
    if (leader_) {
        leader_->wait(timeout);
        finish(leader_->status_);
    }
    while (!finished()) {
        auto rest = std::chrono::duration_cast<milliseconds>(until - steady_clock::now());
        milliseconds slice = forever ? signals_every : std::clamp(rest, milliseconds(1), signals_every);
        tutti_status status = tutti_work_wait(work_, to_ns(slice));
        if (status != TUTTI_PENDING) {
            finish(status);
            break;
        }
        check_signals();
        if (!forever && steady_clock::now() >= until)
            C10_THROW_ERROR(DistBackendError, c10::str("tutti: ", call.name, " is not complete after the ",
                                                       timeout.count(), " ms given to wait; it goes on"));
    }
    if (error_) std::rethrow_exception(error_);
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
    operation->test();
}

void Operation::watch()
{
    if (finished() || state_.load(std::memory_order_acquire) == State::waiting) return;
    if (leader_) return leader_->watch();
    if (watched_.exchange(true)) return;
    auto self = c10::intrusive_ptr<Operation>::reclaim_copy(this);
    check(tutti_work_notify(work_, on_notice, self.get()));
    self.release(); /* on_notice takes it back */
}

void Operation::settle_futures()
{
    std::vector<c10::intrusive_ptr<Future>> futures, result_futures;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        futures.swap(futures_);
        result_futures.swap(result_futures_);
    }
    for (const auto &future : futures) {
        if (error_)
            future->setError(error_);
        else
            future->markCompleted(c10::IValue(results()));
    }
    c10d::WorkResult result = !error_                        ? c10d::WorkResult::SUCCESS
                              : status_ == TUTTI_ERR_TIMEOUT ? c10d::WorkResult::TIMEOUT
                                                             : c10d::WorkResult::COMM_ERROR;
    for (const auto &future : result_futures) future->markCompleted(c10::IValue(int64_t(result)));
}

c10::intrusive_ptr<Future> Operation::future()
{
    auto future = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
    {
        std::lock_guard<std::mutex> guard(mutex_);
        futures_.push_back(future);
    }
    if (finished())
        settle_futures();
    else
        watch();
    return future;
}

c10::intrusive_ptr<Future> Operation::result_future()
{
    auto future = c10::make_intrusive<Future>(c10::IntType::get());
    {
        std::lock_guard<std::mutex> guard(mutex_);
        result_futures_.push_back(future);
    }
    if (finished())
        settle_futures();
    else
        watch();
    return future;
}

} // namespace tutti_torch
