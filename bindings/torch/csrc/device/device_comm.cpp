/* SPDX-License-Identifier: BSD-3-Clause */

/* DeviceComms: how one is opened, and what it keeps. */

#include "device/device_comm.hpp"

#include "base/errors.hpp"
#include "base/native.hpp"

#include <ATen/core/LegacyTypeDispatch.h>

#include <utility>

namespace tutti_torch
{

/* What each keeps on its device: an address for empty inputs, one for empty outputs, and the
 * number of barriers. */
static constexpr int64_t place_bytes = 256, n_places = 3;

DeviceComm::DeviceComm(std::shared_ptr<Comm> comm, c10::Device on)
    : device(on), stream(side_stream(on)), events(on.type()), comm_(std::move(comm))
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
    if (all_agree(comm->handle(), why.empty())) return std::make_shared<DeviceComm>(std::move(comm), device);
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
