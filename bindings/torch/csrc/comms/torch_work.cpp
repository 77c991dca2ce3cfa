/* SPDX-License-Identifier: BSD-3-Clause */

/* Handles of calls, and the first failure of a communicator. */

#include "comms/torch_work.hpp"

#include "device/device_comm.hpp"
#include "work/operation.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdio>
#include <cstdlib>

namespace tutti_torch
{

/* ---- failures ---- */

uint64_t Fate::add(Hook hook)
{
    std::lock_guard<std::mutex> guard(mutex_);
    hooks_.emplace(++last_id_, std::make_shared<const Hook>(std::move(hook)));
    n_hooks_ = hooks_.size();
    return last_id_;
}

void Fate::remove(uint64_t id)
{
    std::shared_ptr<const Hook> last; /* let go without the lock */
    std::lock_guard<std::mutex> guard(mutex_);
    auto found = hooks_.find(id);
    if (found == hooks_.end()) return;
    last = std::move(found->second);
    hooks_.erase(found);
    n_hooks_ = hooks_.size();
}

void Fate::tell_hooks() noexcept
{
    if (told_.exchange(true)) return;
    std::map<uint64_t, std::shared_ptr<const Hook>> hooks;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        hooks = hooks_;
    }
    for (const auto &[id, hook] : hooks) {
        try {
            (*hook)();
        } catch (const std::exception &error) {
            TORCH_WARN("tutti: an abort hook failed: ", error.what());
        }
    }
}

void Fate::failed(const std::string &why) noexcept
{
    tell_hooks();
    if (!kills_) return;
    std::fprintf(stderr, "Aborting process due to timeout or error, as %s asks: %s\n", kills_, why.c_str());
    std::fflush(stderr);
    std::abort();
}

/* ---- works ---- */

TorchWork::TorchWork(c10::intrusive_ptr<c10d::Work> work, std::shared_ptr<Fate> fate, std::optional<c10::Device> device)
    : work_(std::move(work)), fate_(std::move(fate)), device_(device)
{
}

static void tell_failure_of(const c10d::Work &work, Fate &fate)
{
    try {
        if (std::exception_ptr failed = work.exception()) std::rethrow_exception(failed);
    } catch (const c10::DistBackendError &error) {
        fate.failed(error.what_without_backtrace());
    } catch (const std::exception &) {
        /* the call's alone */
    }
}

static void when_ended(c10d::Work &work, TorchWork::Callback callback)
{
    work.getFutureResult()->addCallback([callback = std::move(callback)](c10::ivalue::Future &) { callback(); });
}

static std::chrono::nanoseconds duration_of(const c10d::Work &work)
{
    const auto *own = dynamic_cast<const Work *>(&work);
    return std::chrono::nanoseconds(own ? int64_t(double(own->duration_ms()) * 1e6) : 0);
}

/* Its last handle goes: the call may go on. */
void TorchWork::let_go() noexcept
{
    const c10::intrusive_ptr<c10d::Work> work = std::exchange(work_, {});
    if (!work) return;
    try {
        for (EndCallback &callback : take_ends())
            when_ended(*work, [callback = std::move(callback), work] { callback(duration_of(*work)); });
        if (fate_ && fate_->listens() && !work->isCompleted())
            when_ended(*work, [work, fate = fate_] { tell_failure_of(*work, *fate); });
    } catch (const std::exception &error) {
        TORCH_WARN("tutti: nobody is told of the end of a call: ", error.what());
    }
}

const c10::intrusive_ptr<TorchWork> &TorchWork::complete()
{
    static const auto *const one = new c10::intrusive_ptr<TorchWork>(c10::make_intrusive<TorchWork>());
    return *one;
}

/* Its communicator's deadline, or the call's, has passed. */
static bool timed_out(const c10d::Work &work)
{
    const auto *own = dynamic_cast<const Work *>(&work);
    return own && own->status() == TUTTI_ERR_TIMEOUT;
}

TorchWork::Status TorchWork::status()
{
    if (!work_) return Status::COMPLETED;
    if (!work_->isCompleted()) return Status::INPROGRESS;
    tell_end();
    if (!work_->exception()) return Status::COMPLETED;
    if (is_followed()) tell_failure_of(*work_, *fate_);
    return timed_out(*work_) ? Status::TIMEDOUT : Status::ERROR;
}

bool TorchWork::is_completed()
{
    return status() >= Status::COMPLETED;
}

void TorchWork::await(milliseconds timeout)
{
    tell_waits();
    if (!work_) return;
    try {
        work_->wait(timeout);
    } catch (const c10::DistBackendError &error) {
        if (!work_->isCompleted()) throw;
        tell_end();
        if (fate_) fate_->failed(error.what_without_backtrace());
        throw;
    }
    tell_end();
}

void TorchWork::wait()
{
    await(milliseconds(0));
}

static void synchronize(const c10::Stream &stream)
{
    const WithoutGil without_gil;
    c10::impl::VirtualGuardImpl(stream.device_type()).synchronizeStream(stream);
}

/* With a timeout, the host waits for CUDA devices, too; of others, a copy may be under way for which the stream waits.
 * The call has a deadline of its own. */
void TorchWork::wait_blocking()
{
    if (!work_) {
        tell_waits();
        if (stream_) synchronize(*stream_);
        return;
    }
    await(milliseconds(INT64_MAX / 2'000'000));
    if (device_ && !work_->isCompleted()) synchronize(current_stream(*device_));
}

void TorchWork::on_end(Callback callback)
{
    if (!work_) return callback();
    when_ended(*work_, std::move(callback));
}

void TorchWork::on_wait(Callback callback)
{
    if (this == complete().get()) return; /* it is of many calls, all of them over */
    std::lock_guard<std::mutex> guard(mutex_);
    before_waits_.push_back(std::move(callback));
    has_waits_ = true;
}

void TorchWork::on_seen_end(EndCallback callback)
{
    if (!work_) return on_end([callback = std::move(callback)] { callback(std::chrono::nanoseconds(0)); });
    std::lock_guard<std::mutex> guard(mutex_);
    at_end_.push_back(std::move(callback));
    has_ends_ = true;
}

std::vector<TorchWork::EndCallback> TorchWork::take_ends()
{
    if (C10_LIKELY(!has_ends_.load(std::memory_order_relaxed))) return {};
    std::lock_guard<std::mutex> guard(mutex_);
    has_ends_ = false;
    return std::exchange(at_end_, {});
}

void TorchWork::tell_end()
{
    for (const EndCallback &callback : take_ends()) callback(duration_of(*work_));
}

void TorchWork::tell_waits()
{
    if (C10_LIKELY(!has_waits_.load(std::memory_order_relaxed))) return;
    std::vector<Callback> callbacks;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        callbacks = before_waits_;
    }
    for (const Callback &callback : callbacks) callback();
}

} // namespace tutti_torch
