/* SPDX-License-Identifier: BSD-3-Clause */

/* The backend's ways to native devices: which one a call takes, and how one is opened. */

#include "backend/backend.hpp"
#include "base/errors.hpp"
#include "base/native.hpp"
#include "device/device_memory.hpp"
#include "record/recorder.hpp"

#include <algorithm>

namespace tutti_torch
{

static bool is_on_native(const Call &call)
{
    const Tensors &tensors = call.inputs.empty() ? call.outputs : call.inputs;
    return tensors.empty() ? call.device && is_native(*call.device) : is_native(tensors[0].device());
}

/* Between two ranks alone goes a single message, of which the others know nothing. Where the whole group has met
 * anyway, when it was made, and in coalesced regions, messages go where the collectives go. */
int Backend::peer_of(const Call &call) const
{
    const bool alone = call.is_p2p() && coalescing_ == 0 && !eager_ && size_ > 2;
    return alone ? call.peer : whole_group;
}

/* It has been found that tensors of this device do. */
bool Backend::goes_through_host(c10::Device device) const
{
    return std::any_of(devices_.begin(), devices_.end(),
                       [device](const auto &known) { return known.first.device == device && !known.second; });
}

Backend::Device Backend::device_of_call(const Call &call, std::unique_lock<std::mutex> &guard)
{
    if (!is_on_native(call)) return nullptr;
    const c10::Device device = *device_of(call);
    guard.lock();
    live();
    TUTTI_CHECK_VALUE(call.type != c10d::OpType::RECVANYSOURCE || goes_through_host(device), call.name, ": tensors of ",
                      device, " are received from a rank that is named");
    const int peer = peer_of(call);
    const auto known = devices_.find({device, peer});
    Device comm;
    if (known != devices_.end()) {
        comm = known->second;
    } else {
        guard.unlock();
        comm = open_device(device, peer);
        guard.lock();
        live();
    }
    if (!comm) guard.unlock();
    return comm;
}

Backend::Device Backend::open_device(c10::Device device, int peer)
{
    std::lock_guard<std::mutex> one_at_a_time(opening_);
    std::string name;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        auto known = devices_.find({device, peer});
        if (known != devices_.end()) return known->second;
        /* Ranks count their devices in the order of use: their numbers differ. */
        auto same = [peer](const auto &other) { return other.first.peer == peer; };
        const auto nth = std::count_if(devices_.begin(), devices_.end(), same);
        const std::string who =
            peer == whole_group ? "all" : c10::str(std::min(rank_, peer), "-", std::max(rank_, peer));
        name = c10::str("torch.device.", tutti_comm_id(live()->handle()), ".", who, ".", nth);
    }
    const bool pair = peer != whole_group;
    Device comm = DeviceComm::open(*store_, pair ? int(rank_ > peer) : rank_, pair ? 2 : size_, name, device,
                                   options_->timeout, options_->place);
    std::lock_guard<std::mutex> guard(mutex_);
    live();
    devices_[{device, peer}] = comm;
    if (comm)
        Recorder::get().add_source([weak = std::weak_ptr<DeviceComm>(comm)] {
            Device known = weak.lock();
            if (known) known->look();
            return known != nullptr;
        });
    return comm;
}

Backend::Device Backend::device_comm(c10::Device device)
{
    Call call{};
    call.device = device;
    std::unique_lock<std::mutex> guard(mutex_, std::defer_lock);
    return device_of_call(call, guard);
}

void Backend::eagerConnectSingleDevice(at::Device device)
{
    if (!is_native(device)) return;
    eager_ = true;
    device_comm(device);
}

/* ---- one device a rank, for a communicator whose ranks all say which ---- */

static bool is_native_type(int32_t type)
{
    return native_kind(c10::DeviceType(type)) != nullptr;
}

static std::vector<int32_t> kinds_of_devices(tutti_comm *comm, int size, c10::Device device)
{
    const int32_t mine = int32_t(device.type());
    std::vector<int32_t> all{mine};
    all.resize(size_t(size), mine);
    check(tutti_all_gather(&mine, all.data(), 1, TUTTI_INT32, comm, nullptr, nullptr));
    return all;
}

/* Some ranks are on native devices, others on others or on none: the one communicator serves all. */
void Backend::mix_devices(c10::Device device)
{
    const std::shared_ptr<Comm> comm = host_comm();
    mixed_ = true;
    const std::string why = DeviceComm::take_device(*comm, device);
    if (!is_native(device)) return;
    if (!why.empty()) {
        TORCH_WARN_ONCE("tutti: tensors of ", device, " go through the host: ", why);
    }
    Device shared = why.empty() ? std::make_shared<DeviceComm>(comm, device) : nullptr;
    std::lock_guard<std::mutex> guard(mutex_);
    eager_ = true;
    devices_[{device, whole_group}] = std::move(shared);
}

void Backend::settle_device(c10::Device device)
{
    const WithoutGil without_gil;
    own_device_ = device;
    const std::vector<int32_t> kinds = kinds_of_devices(host_comm()->handle(), size_, device);
    /* Nobody goes on before all know: so who aborts at once takes it from nobody. That others did is for later calls.
     */
    (void)tutti_barrier(host_comm()->handle(), nullptr, nullptr);
    if (std::none_of(kinds.begin(), kinds.end(), is_native_type)) return;
    if (std::count(kinds.begin(), kinds.end(), kinds[0]) < size_) return mix_devices(device);
    eagerConnectSingleDevice(device);
    TORCH_CHECK(options_->place.option != "gpu" || options_->place.value == "host" || !goes_through_host(device),
                "tutti: calls on ", device, " can not go by '", options_->place.value, "': ", tutti_last_error()->text);
}

std::shared_ptr<Comm> Backend::comm_of(c10::Device device)
{
    const Device found = is_native(device) ? device_comm(device) : nullptr;
    return found ? found->live() : host_comm();
}

std::optional<c10::Device> Backend::own_device() const
{
    return own_device_;
}

/* ---- memory ---- */

Backend::Device Backend::device_with_memory(c10::DeviceIndex index)
{
    Device comm = device_comm(c10::Device(c10::kCUDA, index));
    TORCH_CHECK(comm, "tutti: the group has no memory of CUDA device ", int(index),
                ": its tensors go through the host");
    return comm;
}

void Backend::serve_memory(c10::DeviceIndex index)
{
    device_memory_serve(index, device_with_memory(index)->live());
}

void Backend::add_windows(c10::DeviceIndex index, const std::vector<uintptr_t> &pieces)
{
    const Device device = device_with_memory(index);
    device_memory_add_windows(device->live(), pieces);
    device->has_windows = true;
}

} // namespace tutti_torch
