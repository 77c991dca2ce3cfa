/* SPDX-License-Identifier: BSD-3-Clause */

/* Handles of calls, and the first failure of a communicator. */

#include "comms/torch_work.hpp"

#include "device/events.hpp"
#include "work/work.hpp"

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
    hooks_.emplace(++last_id_, std::move(hook));
    n_hooks_ = hooks_.size();
    return last_id_;
}

void Fate::remove(uint64_t id)
{
    std::lock_guard<std::mutex> guard(mutex_);
    hooks_.erase(id);
    n_hooks_ = hooks_.size();
}

void Fate::tell_hooks() noexcept
{
    if (told_.exchange(true)) return;
    std::map<uint64_t, Hook> hooks;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        hooks = hooks_;
    }
    for (const auto &[id, hook] : hooks) {
        try {
            hook();
        } catch (const std::exception &error) {
            TORCH_WARN("tutti: an abort hook failed: ", error.what());
        }
    }
}

void Fate::failed(const std::string &why) noexcept
{
    tell_hooks();
    if (!kills_) return;
    std::fprintf(stderr, "Aborting process due to timeout or error: %s\n", why.c_str());
    std::fflush(stderr);
    std::abort();
}

/* ---- works ---- */

TorchWork::TorchWork(c10::intrusive_ptr<c10d::Work> work, std::shared_ptr<Fate> fate)
    : work_(std::move(work)), fate_(std::move(fate))
{
    if (!work_ || !fate_ || !fate_->listens()) return;
    on_end([work = work_, fate = fate_] {
        try {
            if (std::exception_ptr failed = work->exception()) std::rethrow_exception(failed);
        } catch (const c10::DistBackendError &error) {
            fate->failed(error.what_without_backtrace());
        } catch (const std::exception &) {
            /* of the call alone */
        }
    });
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
    if (!work_->exception()) return Status::COMPLETED;
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
        if (fate_ && work_->isCompleted()) fate_->failed(error.what_without_backtrace());
        throw;
    }
}

void TorchWork::wait()
{
    await(milliseconds(0));
}

/* With a timeout, the host waits for devices, too. The call has a deadline of its own. */
void TorchWork::wait_blocking()
{
    if (work_) return await(milliseconds(INT64_MAX / 2'000'000));
    tell_waits();
    if (!stream_) return;
    const WithoutGil without_gil;
    c10::impl::VirtualGuardImpl(stream_->device_type()).synchronizeStream(*stream_);
}

void TorchWork::on_end(Callback callback)
{
    if (!work_) return callback();
    work_->getFutureResult()->addCallback([callback = std::move(callback)](c10::ivalue::Future &) { callback(); });
}

void TorchWork::on_wait(Callback callback)
{
    if (this == complete().get()) return; /* who wants to know registers a hook, and gets one of its own */
    std::lock_guard<std::mutex> guard(mutex_);
    before_waits_.push_back(std::move(callback));
    has_waits_ = true;
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
