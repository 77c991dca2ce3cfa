/* SPDX-License-Identifier: BSD-3-Clause */

/* Staging: host memory and streams for copies, and the copies of one call. */

#include "staging.hpp"

#include "operation.hpp"

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>

namespace tutti_torch
{

using c10::impl::VirtualGuardImpl;

/* What is kept though no call uses it. */
static constexpr size_t max_idle_blocks = 16, max_idle_bytes = size_t(512) << 20;

/* ---- what a backend keeps ---- */

/* Devices that have no pool of streams are served on the caller's. */
static c10::Stream side_stream(const VirtualGuardImpl &guard, c10::Device device)
{
    try {
        return guard.getStreamFromGlobalPool(device);
    } catch (const c10::Error &) {
        return guard.getStream(device);
    }
}

Staging::Streams Staging::streams(c10::Device device)
{
    std::lock_guard<std::mutex> lock(mutex_);
    auto known = streams_.find(device);
    if (known != streams_.end()) return known->second;
    VirtualGuardImpl guard(device.type());
    return streams_.emplace(device, Streams{side_stream(guard, device), side_stream(guard, device)}).first->second;
}

/* Pinned memory is a matter of the device's hooks; not every device has them, or any left. */
static c10::DataPtr host_memory(c10::DeviceType type, size_t bytes, c10::Allocator *&allocator)
{
    try {
        allocator = at::globalContext().getPinnedMemoryAllocator(type);
        return allocator->allocate(bytes);
    } catch (const c10::Error &) {
        allocator = c10::GetCPUAllocator();
        return allocator->allocate(bytes);
    }
}

/* Few sizes, so that blocks fit later calls. */
static size_t rounded(size_t bytes)
{
    constexpr size_t large = size_t(1) << 20;
    if (bytes > large) return (bytes + large - 1) / large * large;
    size_t size = 4096;
    while (size < bytes) size *= 2;
    return size;
}

Tensor Staging::take(c10::DeviceType type, size_t bytes)
{
    size_t size = rounded(bytes);
    {
        std::lock_guard<std::mutex> lock(mutex_);
        for (auto block = idle_.begin(); block != idle_.end(); ++block) {
            if (block->type != type || block->memory.nbytes() != size || !block->busy->query()) continue;
            Tensor memory = std::move(block->memory);
            idle_.erase(block);
            return memory;
        }
    }
    c10::Allocator *allocator = nullptr;
    c10::DataPtr memory = host_memory(type, size, allocator);
    c10::Storage storage(c10::Storage::use_byte_size_t(), size, std::move(memory), allocator, false);
    return at::empty({0}, at::TensorOptions().dtype(at::kByte).device(at::kCPU)).set_(storage, 0, {int64_t(size)}, {1});
}

void Staging::give(Tensor block, c10::DeviceType type, std::shared_ptr<c10::Event> busy)
{
    std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back({std::move(block), type, std::move(busy)});
    size_t bytes = 0;
    for (const Block &idle : idle_) bytes += idle.memory.nbytes();
    /* The oldest go first, but none that a device may still read or write. */
    for (auto old = idle_.begin(); old != idle_.end();) {
        if (idle_.size() <= max_idle_blocks && bytes <= max_idle_bytes) break;
        if (!old->busy->query()) {
            ++old;
            continue;
        }
        bytes -= old->memory.nbytes();
        old = idle_.erase(old);
    }
}

static bool is_over(const c10::Event &event) noexcept
{
    try {
        return event.query();
    } catch (...) {
        return false; /* the device has failed, and says nothing more */
    }
}

/* Memory that a device may still write is better leaked than freed. */
Staging::~Staging()
{
    for (Block &block : idle_)
        if (!is_over(*block.busy)) block.memory.unsafeReleaseTensorImpl();
}

/* ---- one call ---- */

std::optional<c10::Device> device_of(const Call &call)
{
    const Tensor *first = nullptr;
    for (const Tensors *list : {&call.inputs, &call.outputs}) {
        for (const Tensor &tensor : *list) {
            if (!first) first = &tensor;
            TORCH_CHECK_VALUE(tensor.device() == first->device(), "tutti: ", call.name,
                              ": tensors on different devices, ", first->device(), " and ", tensor.device());
        }
    }
    std::optional<c10::Device> device = first ? first->device() : call.device;
    if (!device || device->is_cpu()) return std::nullopt;
    return device->has_index() ? device : VirtualGuardImpl(device->type()).getDevice();
}

std::shared_ptr<Twins> Twins::of(const std::shared_ptr<Staging> &staging, const Call &call)
{
    std::optional<c10::Device> device = device_of(call);
    return device ? std::make_shared<Twins>(staging, call, *device) : nullptr;
}

void record_on_stream(const Tensor &tensor, const c10::Stream &stream)
{
    if (!tensor.defined() || tensor.device() != stream.device()) return;
    if (tensor.layout() == at::kSparse) {
        record_on_stream(tensor._indices(), stream);
        record_on_stream(tensor._values(), stream);
    } else if (tensor.has_storage() && tensor.storage().nbytes() > 0) {
        VirtualGuardImpl(stream.device_type()).recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
    }
}

Twins::Twins(std::shared_ptr<Staging> staging, const Call &call, c10::Device device)
    : staging_(std::move(staging)), streams_(staging_->streams(device)),
      arrived_(std::make_shared<c10::Event>(device.type())), back_(std::make_shared<c10::Event>(device.type()))
{
    c10::DeviceGuard on(device);
    at::AutoDispatchBelowAutograd below;
    for (const Tensor &tensor : call.inputs) buffers_.in.push_back(add(tensor));
    n_inputs_ = pairs_.size();
    for (const Tensor &tensor : call.outputs) buffers_.out.push_back(add(tensor));

    VirtualGuardImpl guard(device.type());
    c10::Event begin(device.type());
    c10::Stream caller = guard.getStream(device);
    begin.record(caller);
    begin.block(streams_.to_device); /* the outputs may be in use until then */
    if (n_inputs_ > 0) {
        begin.block(streams_.to_host);
        copy_in();
    } else if (pairs_.empty()) {
        arrived_->record(caller); /* a barrier, or empty tensors: it begins when the stream is there */
    }
}

Twins::~Twins()
{
    give_blocks();
}

Twins::Pair *Twins::find(const Tensor &tensor)
{
    for (Pair &pair : pairs_) {
        if (pair.tensor.data_ptr() == tensor.data_ptr() && pair.tensor.nbytes() == tensor.nbytes()) return &pair;
    }
    return nullptr;
}

/* Called with a tensor in place twice, it has one twin. */
void *Twins::add(const Tensor &tensor)
{
    if (tensor.numel() == 0) return nullptr;
    if (Pair *known = find(tensor)) return known->twin.data_ptr();
    Tensor block = staging_->take(tensor.device().type(), tensor.nbytes());
    Tensor twin = block.narrow(0, 0, int64_t(tensor.nbytes())).view(tensor.scalar_type());
    Tensor flat = tensor.as_strided({tensor.numel()}, {1}, tensor.storage_offset());
    pairs_.push_back({std::move(flat), twin, std::move(block)});
    return twin.data_ptr();
}

void Twins::copy_in()
{
    c10::StreamGuard on(streams_.to_host);
    for (size_t i = 0; i < n_inputs_; i++) pairs_[i].twin.copy_(pairs_[i].tensor, true);
    arrived_->record(streams_.to_host);
}

/* A message may be shorter than the tensor that receives it. */
static int64_t n_received(const Call &call, const Tensor &tensor)
{
    if (!call.message) return tensor.numel();
    int64_t size = int64_t(tensor.element_size());
    return std::min(tensor.numel(), (int64_t(call.message->bytes) + size - 1) / size);
}

void Twins::copy_back(const Call &call)
{
    for (const Tensor &output : call.outputs) {
        Pair *pair = output.numel() > 0 ? find(output) : nullptr;
        if (!pair) continue;
        int64_t n = n_received(call, output);
        pair->tensor.narrow(0, 0, n).copy_(pair->twin.narrow(0, 0, n), true);
        record_on_stream(output, streams_.to_device);
    }
    if (call.unpack) call.unpack();
    for (const Tensor &result : call.results) {
        record_on_stream(result, streams_.to_device);
        if (result.layout() == at::kSparse) made_.push_back(result);
    }
}

void Twins::send_back(const Call &call)
{
    c10::StreamGuard on(streams_.to_device);
    at::AutoDispatchBelowAutograd below;
    std::exception_ptr error;
    try {
        copy_back(call);
    } catch (...) {
        error = std::current_exception();
    }
    back_->record(streams_.to_device);
    give_blocks();
    if (error) std::rethrow_exception(error);
}

/* The tensors are held until the host has seen the inputs arrive; a call that failed did not look. */
void Twins::give_blocks() noexcept
try {
    if (!is_over(*arrived_))
        for (size_t i = 0; i < n_inputs_ && i < pairs_.size(); i++)
            record_on_stream(pairs_[i].tensor, streams_.to_host);
    const auto &busy = back_->was_marked_for_recording() ? back_ : arrived_;
    for (Pair &pair : pairs_) staging_->give(std::move(pair.block), streams_.to_host.device_type(), busy);
    pairs_.clear();
} catch (...) {
    TORCH_WARN("tutti: memory of a failed device is lost");
}

void Twins::block_current_stream() const
{
    c10::Stream current = VirtualGuardImpl(back_->device_type()).getStream(streams_.to_device.device());
    back_->block(current);
    for (const Tensor &result : made_) record_on_stream(result, current);
}

} // namespace tutti_torch
