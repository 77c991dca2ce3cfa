/* SPDX-License-Identifier: BSD-3-Clause */

/* Events, streams, the progress of calls on a device; DeviceComms: how one is opened, and what it keeps. */

#include "device/device_comm.hpp"

#include "base/native.hpp"
#include "base/process.hpp"
#include "record/recorder.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
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

c10::Stream side_stream(c10::Device device, bool high_priority)
try {
    return VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, high_priority);
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

/* DeviceComms: how one is opened, and what it keeps. */

/* What each keeps on its device: an address for empty inputs, one for empty outputs, and the
 * number of barriers. */
static constexpr int64_t place_bytes = 256, n_places = 3;

DeviceComm::DeviceComm(std::shared_ptr<Comm> comm, c10::Device on, bool high_priority)
    : device(on), stream(side_stream(on, high_priority)), events(on.type()), comm_(std::move(comm))
{
    at::AutoDispatchBelowAutograd below;
    memory_ = at::empty({n_places * place_bytes}, at::TensorOptions().dtype(at::kByte).device(device));
    one_ = memory_.narrow(0, 2 * place_bytes, 4).view(at::kInt);
    nowhere_ = static_cast<char *>(memory_.data_ptr());
}

/* From the first one on this process works with devices of one kind; the communicator holds what it uses. */
static tutti_status set_device(Comm &comm, c10::Device device)
{
    if (!is_native(device)) return tutti_comm_set_device(comm.handle(), TUTTI_DEVICE_NONE);
    tutti_accelerator *of_kind = nullptr;
    tutti_status status = tutti_accelerator_open(native_kind(device.type()), device.index(), &of_kind);
    if (status == TUTTI_OK) status = tutti_comm_set_device(comm.handle(), device.index());
    tutti_accelerator_close(of_kind);
    return status;
}

std::string DeviceComm::take_device(Comm &comm, c10::Device device)
{
    const tutti_status status = set_device(comm, device);
    if (status == TUTTI_ERR_UNSUPPORTED) return tutti_last_error()->text;
    check(status);
    const bool goes = !is_native(device) || tutti_comm_device(comm.handle()) == device.index();
    return goes ? "" : "its options do";
}

/* Whether all ranks can use their devices. */
static bool all_agree(tutti_comm *comm, bool able)
{
    int32_t mine = able, all = 0;
    check(tutti_all_reduce(&mine, &all, 1, TUTTI_INT32, TUTTI_MIN, comm, nullptr, nullptr));
    return all != 0;
}

std::shared_ptr<DeviceComm> DeviceComm::open(c10d::Store &store, int rank, int size, const std::string &name,
                                             c10::Device device, milliseconds timeout, const Place &place)
{
    const WithoutGil without_gil;
    BesideCaptures beside; /* the first call of a group may be part of a graph */
    std::shared_ptr<Comm> comm = Comm::create(store, rank, size, name, timeout, place);
    const std::string why = take_device(*comm, device);
    if (all_agree(comm->handle(), why.empty()))
        return std::make_shared<DeviceComm>(std::move(comm), device, place.high_priority);
    if (!why.empty()) {
        TORCH_WARN_ONCE("tutti: tensors of ", device, " go through the host: ", why);
    }
    return nullptr;
}

std::shared_ptr<Comm> DeviceComm::comm() const
{
    std::lock_guard<std::mutex> guard(mutex_);
    return comm_;
}

std::shared_ptr<Comm> DeviceComm::live() const
{
    std::shared_ptr<Comm> comm = this->comm();
    if (!comm) C10_THROW_ERROR(DistBackendError, "tutti: the process group was destroyed");
    return comm;
}

void DeviceComm::look()
{
    std::shared_ptr<Comm> comm = this->comm();
    const uint64_t last = progress.last();
    const bool idle = comm && tutti_comm_state(comm->handle(), nullptr) == TUTTI_OK &&
                      tutti_comm_flush(comm->handle(), 1) == TUTTI_OK;
    progress.look(idle ? last : 0);
}

void DeviceComm::close(bool failing)
{
    std::shared_ptr<Comm> comm = this->comm();
    if (!comm) return;
    comm->drain([](milliseconds) { return true; }, failing);
    look();
    std::lock_guard<std::mutex> guard(mutex_);
    comm_.reset();
}

void DeviceComm::follow(c10::ArrayRef<c10::Stream> streams, bool on_own)
{
    const c10::Stream to = on_own ? stream : current_stream(device);
    for (const c10::Stream &from : streams) {
        if (from == to) continue;
        c10::Event event = events.take();
        event.record(from);
        event.block(to);
        if (!is_captured(from)) events.give(std::move(event)); /* a graph keeps those of its own */
    }
}

Start DeviceComm::start_of(const Call &call) const
{
    auto address = [](const Tensor &tensor, char *otherwise) {
        return tensor.numel() > 0 ? tensor.data_ptr() : static_cast<void *>(otherwise);
    };
    Start start;
    start.comm = comm_->handle();
    start.has_windows = has_windows;
    for (const Tensor &tensor : call.inputs) start.in.push_back(address(tensor, nowhere_));
    for (const Tensor &tensor : call.outputs) start.out.push_back(address(tensor, nowhere_ + place_bytes));
    return start;
}

const char *DeviceComm::label(const std::shared_ptr<const std::string> &group)
{
    if (labels_.empty() || labels_.back() != group) labels_.push_back(group);
    return group->c_str();
}

} // namespace tutti_torch
