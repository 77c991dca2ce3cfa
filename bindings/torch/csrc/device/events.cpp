/* SPDX-License-Identifier: BSD-3-Clause */

/* Events, streams, and the progress of calls on a device. */

#include "device/events.hpp"

#include "base/native.hpp"
#include "record/recorder.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

namespace tutti_torch
{

using c10::impl::VirtualGuardImpl;

bool is_over(const c10::Event &event) noexcept
try {
    return event.query();
} catch (...) {
    return false;
}

c10::Stream current_stream(c10::Device device)
{
    return VirtualGuardImpl(device.type()).getStream(device);
}

c10::Stream side_stream(c10::Device device)
try {
    return VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
} catch (const c10::Error &) {
    return current_stream(device);
}

c10::Event Events::take()
{
    std::lock_guard<std::mutex> guard(mutex_);
    if (idle_.empty()) return c10::Event(type_, c10::EventFlag::PYTORCH_DEFAULT);
    c10::Event event = std::move(idle_.back());
    idle_.pop_back();
    return event;
}

void Events::give(c10::Event event)
{
    constexpr size_t enough = 64;
    std::lock_guard<std::mutex> guard(mutex_);
    if (idle_.size() < enough) idle_.push_back(std::move(event));
}

void Progress::retire(size_t n)
{
    if (n == 0) return;
    Recorder::get().completed(calls_, n);
    calls_.erase(calls_.begin(), calls_.begin() + std::ptrdiff_t(n));
}

void Progress::add(uint64_t record_id, const c10::Stream &stream)
{
    constexpr auto pause = std::chrono::microseconds(500);
    if (record_id == 0) return;
    const auto now = std::chrono::steady_clock::now();
    {
        std::lock_guard<std::mutex> guard(mutex_);
        calls_.push_back(record_id);
        if (now - looked_ < pause) return;
    }
    look(0);
    std::lock_guard<std::mutex> guard(mutex_);
    if (n_marked_ > 0) return;
    if (!mark_) mark_.emplace(stream.device_type());
    mark_->record(stream);
    n_marked_ = calls_.size();
}

uint64_t Progress::last() const
{
    std::lock_guard<std::mutex> guard(mutex_);
    return calls_.empty() ? 0 : calls_.back();
}

void Progress::look(uint64_t over)
{
    BesideCaptures beside;
    std::lock_guard<std::mutex> guard(mutex_);
    looked_ = std::chrono::steady_clock::now();
    if (n_marked_ > 0 && is_over(*mark_)) retire(std::exchange(n_marked_, 0));
    const auto end = std::upper_bound(calls_.begin(), calls_.end(), over);
    const auto n = size_t(end - calls_.begin());
    n_marked_ -= std::min(n_marked_, n);
    retire(n);
}

} // namespace tutti_torch
