/* SPDX-License-Identifier: BSD-3-Clause */

/* Channels: how one is opened, and what it keeps. */

#include "channel.hpp"

#include "cuda.hpp"
#include "errors.hpp"
#include "operation.hpp"
#include "recorder.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <utility>

namespace tutti_torch
{

/* ---- events ---- */

c10::Event Events::take()
{
    std::lock_guard<std::mutex> guard(mutex_);
    if (idle_.empty()) return c10::Event(c10::kCUDA, flag_);
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

/* ---- progress ---- */

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
    if (!mark_) mark_.emplace(c10::kCUDA);
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
    if (n_marked_ > 0 && mark_->query()) retire(std::exchange(n_marked_, 0));
    const auto end = std::upper_bound(calls_.begin(), calls_.end(), over);
    const auto n = size_t(end - calls_.begin());
    n_marked_ -= std::min(n_marked_, n);
    retire(n);
}

/* ---- channels ---- */

/* Where the things lie that a channel needs on its device: an address for empty inputs, one for empty outputs, and the
 * number of barriers. */
static constexpr int64_t place_bytes = 256, n_places = 3;

c10::Stream current_stream(c10::Device device)
{
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

static c10::Stream stream_from_pool(c10::Device device)
{
    return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

Channel::Channel(std::shared_ptr<Comm> comm, c10::Device on)
    : device(on), stream(stream_from_pool(on)), comm_(std::move(comm))
{
    at::AutoDispatchBelowAutograd below;
    memory_ = at::empty({n_places * place_bytes}, at::TensorOptions().dtype(at::kByte).device(device));
    one_ = memory_.narrow(0, 2 * place_bytes, 4).view(at::kInt);
    nowhere_ = static_cast<char *>(memory_.data_ptr());
}

/* Whether all ranks can use their devices. */
static bool all_agree(tutti_comm *comm, bool able)
{
    int32_t mine = able, all = 0;
    check(tutti_all_reduce(&mine, &all, 1, TUTTI_INT32, TUTTI_MIN, comm, nullptr, nullptr));
    return all != 0;
}

std::shared_ptr<Channel> Channel::open(c10d::Store &store, int rank, int size, const std::string &name,
                                       c10::Device device, milliseconds timeout)
{
    std::optional<pybind11::gil_scoped_release> release;
    if (holds_gil()) release.emplace();
    BesideCaptures beside; /* the first call of a group may be part of a graph */
    std::shared_ptr<Comm> comm = Comm::create(store, rank, size, name, timeout);
    const tutti_status status = tutti_comm_set_device(comm->handle(), device.index());
    if (status < 0 && status != TUTTI_ERR_UNSUPPORTED) check(status);
    const std::string why = status < 0 ? tutti_last_error()->text : "its options do";
    const bool able = status == TUTTI_OK && tutti_comm_device(comm->handle()) == device.index();
    if (all_agree(comm->handle(), able)) return std::make_shared<Channel>(std::move(comm), device);
    if (!able) {
        TORCH_WARN_ONCE("tutti: tensors of ", device, " go through the host: ", why);
    }
    return nullptr;
}

std::shared_ptr<Comm> Channel::comm() const
{
    std::lock_guard<std::mutex> guard(mutex_);
    return comm_;
}

tutti_status Channel::state() const
{
    std::shared_ptr<Comm> comm = this->comm();
    return comm ? tutti_comm_state(comm->handle(), nullptr) : TUTTI_OK;
}

void Channel::set_timeout(milliseconds timeout)
{
    if (std::shared_ptr<Comm> comm = this->comm()) tutti_comm_set_timeout(comm->handle(), to_ns(timeout));
}

void Channel::abort(const char *reason) const
{
    if (std::shared_ptr<Comm> comm = this->comm()) tutti_comm_abort(comm->handle(), reason);
}

void Channel::look()
{
    std::shared_ptr<Comm> comm = this->comm();
    const uint64_t last = progress.last();
    const bool idle = comm && state() == TUTTI_OK && tutti_comm_flush(comm->handle(), 1) == TUTTI_OK;
    progress.look(idle ? last : 0);
}

void Channel::close(bool failing)
{
    std::shared_ptr<Comm> comm = this->comm();
    if (!comm) return;
    comm->drain([](milliseconds) { return true; }, failing);
    look();
    std::lock_guard<std::mutex> guard(mutex_);
    comm_.reset();
}

void Channel::follow(c10::ArrayRef<c10::Stream> streams, bool on_own)
{
    const c10::Stream to = on_own ? stream : current_stream(device);
    for (const c10::Stream &from : streams) {
        if (from == to) continue;
        c10::Event event = events.take();
        event.record(from);
        event.block(to);
        if (!is_captured(native_stream(from))) events.give(std::move(event)); /* a graph keeps those of its own */
    }
}

Buffers Channel::buffers(const Call &call) const
{
    auto address = [](const Tensor &tensor, char *otherwise) {
        return tensor.numel() > 0 ? tensor.data_ptr() : static_cast<void *>(otherwise);
    };
    Buffers buffers;
    for (const Tensor &tensor : call.inputs) buffers.in.push_back(address(tensor, nowhere_));
    for (const Tensor &tensor : call.outputs) buffers.out.push_back(address(tensor, nowhere_ + place_bytes));
    return buffers;
}

const char *Channel::label(const std::shared_ptr<const std::string> &group)
{
    if (labels_.empty() || labels_.back() != group) labels_.push_back(group);
    return group->c_str();
}

} // namespace tutti_torch
