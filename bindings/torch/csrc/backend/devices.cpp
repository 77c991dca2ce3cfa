/* SPDX-License-Identifier: BSD-3-Clause */

/* The backend's ways to native devices, memory that all ranks of the host can map, and operators that PyTorch lacks. */

#include "backend/backend.hpp"
#include "base/native.hpp"
#include "base/process.hpp"
#include "device/device_memory.hpp"
#include "record/recorder.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Allocator.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>

#include <algorithm>
#include <cstring>

namespace tutti_torch
{

static bool is_on_native(const Call &call)
{
    if (call.on_host) return false;
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
    if (!is_on_native(call) || options_->place.survive) return nullptr; /* which survives on the host's memory alone */
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
    Device shared = why.empty() ? std::make_shared<DeviceComm>(comm, device, options_->place.high_priority) : nullptr;
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
    const auto way = options_->place.options.find("gpu");
    TORCH_CHECK(way == options_->place.options.end() || way->second == "host" || !goes_through_host(device),
                "tutti: calls on ", device, " can not go by '", way->second, "': ", tutti_last_error()->text);
}

std::shared_ptr<Comm> Backend::comm_of(c10::Device device)
{
    const Device found = is_native(device) ? device_comm(device) : nullptr;
    return found ? found->live() : host_comm();
}

/* All of one kind: on the communicator of that kind. Else on the one that has a device where a rank has one. */
Backend::WindowPlace Backend::place_of_window(c10::Device device)
{
    const bool natives = own_device_ && is_native(*own_device_);
    std::vector<int32_t> kinds(size_t(size_), int32_t(device.type()));
    if (mixed_ || natives) kinds = kinds_of_devices(host_comm()->handle(), size_, device);
    const bool alike = size_t(std::count(kinds.begin(), kinds.end(), kinds[0])) == kinds.size();
    WindowPlace place{comm_of(alike || mixed_ ? device : *own_device_), {}};
    for (const int32_t kind : kinds) place.parts.push_back(c10::DeviceType(kind));
    return place;
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

/* Tensors in memory that all ranks of the host can map: collectives on them are zero-copy. */

namespace
{

class Allocator final : public c10::Allocator
{
  public:
    explicit Allocator(std::shared_ptr<Comm> comm) : comm_(std::move(comm)) {}

    c10::DataPtr allocate(size_t bytes) override
    {
        if (bytes == 0) return {nullptr, c10::Device(c10::kCPU)};
        std::shared_ptr<Comm> comm = comm_.lock();
        if (!comm) C10_THROW_ERROR(DistBackendError, "tutti: allocation from a process group that was destroyed");
        void *memory = nullptr;
        check(tutti_mem_alloc(comm->handle(), bytes, &memory));
        /* It holds its communicator: it can be given back whenever the last tensor goes. In a forked process it is the
         * parent's still. */
        auto give_back = [comm = std::move(comm), origin = Origin()](void *piece) {
            if (origin.is_here() && tutti_mem_free(comm->handle(), piece) < 0)
                TORCH_WARN("tutti: ", tutti_last_error()->text);
        };
        return c10::InefficientStdFunctionContext::makeDataPtr(memory, give_back, c10::Device(c10::kCPU));
    }

    c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
    void copy_data(void *to, const void *from, size_t bytes) const override { std::memcpy(to, from, bytes); }

  private:
    std::weak_ptr<Comm> comm_;
};

} // namespace

std::shared_ptr<c10::Allocator> Backend::getMemAllocator()
{
    const WithoutGil without_gil; /* a holder of mutex_ may want it, for frames of Python */
    std::lock_guard<std::mutex> guard(mutex_);
    live();
    if (!allocator_) allocator_ = std::make_shared<Allocator>(comm_);
    return allocator_;
}

/* The storage can not grow, so it needs no allocator of its own. */
at::Tensor Backend::allocateTensor(long size, at::TensorOptions options)
{
    if (!options.device().is_cpu()) return at::empty({size}, options);
    TORCH_CHECK_VALUE(size >= 0, "tutti: allocateTensor: size ", size, " is negative");
    std::shared_ptr<c10::Allocator> allocator = getMemAllocator();
    size_t bytes = size_t(size) * options.dtype().itemsize();
    c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, allocator->allocate(bytes), nullptr, false);
    return at::empty({0}, options).set_(storage, 0, {size}, {1});
}

/* The operators of PyTorch's collectives for "xpu", where the build has none. Their arguments are not the same in all
 * versions. So each is the CPU's, which passes its arguments on to the backend of the group that serves the CPU: it is
 * given a group in which the backend that serves "xpu" stands there. */

namespace
{

using c10d::ProcessGroup;

constexpr const char *operators[] = {
    "allgather_",
    "_allgather_base_",
    "allgather_coalesced_",
    "allgather_into_tensor_coalesced_",
    "allreduce_",
    "allreduce_coalesced_",
    "alltoall_",
    "alltoall_base_",
    "barrier",
    "broadcast_",
    "gather_",
    "gather_into_tensor_",
    "recv_",
    "recv_any_source_",
    "reduce_",
    "reduce_scatter_",
    "_reduce_scatter_base_",
    "reduce_scatter_tensor_coalesced_",
    "scatter_",
    "send",
};

c10::intrusive_ptr<ProcessGroup> with_xpu_as_cpu(ProcessGroup &group)
{
    auto made = c10::make_intrusive<ProcessGroup>(group.getRank(), group.getSize());
    made->setBoundDeviceId(group.getBoundDeviceId()); /* which the next line tells the backend */
    made->setBackend(c10::kCPU, ProcessGroup::BackendType::CUSTOM, group.getBackend(c10::kXPU));
    return made;
}

void call_as_cpu(const c10::OperatorHandle &op, torch::jit::Stack *stack)
{
    const auto place = op.schema().argumentIndexWithName("process_group");
    TORCH_CHECK(place, "tutti: ", op.operator_name(), " has no argument process_group");
    c10::IValue &argument = torch::jit::peek(*stack, size_t(*place), op.schema().arguments().size());
    argument = with_xpu_as_cpu(*argument.toCustomClass<ProcessGroup>());
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

} // namespace

void complete_operators()
{
    static torch::Library *library = nullptr; /* stays: the operators end with it */
    if (library) return;
    library = new torch::Library(torch::Library::IMPL, "c10d", c10::DispatchKey::XPU, __FILE__, __LINE__);
    for (const char *name : operators) {
        const auto found = c10::Dispatcher::singleton().findOp({std::string("c10d::") + name, ""});
        const bool lacks = found && found->hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
                           !found->hasKernelForDispatchKey(c10::DispatchKey::XPU);
        if (lacks) library->impl(name, torch::CppFunction::makeFromBoxedFunction<&call_as_cpu>());
    }
}

} // namespace tutti_torch
