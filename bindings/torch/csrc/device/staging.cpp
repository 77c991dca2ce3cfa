/* SPDX-License-Identifier: BSD-3-Clause */

/* Staging: copies on the host, and their way there and back. */

#include "device/staging.hpp"
#include "base/process.hpp"

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace tutti_torch
{

using c10::impl::VirtualGuardImpl;

std::optional<c10::Device> device_of(const Call &call)
{
    const Tensor *first = nullptr;
    for (const Tensors *list : {&call.inputs, &call.outputs}) {
        for (const Tensor &tensor : *list) {
            if (!first) first = &tensor;
            TUTTI_CHECK_VALUE(tensor.device() == first->device(), call.name, ": tensors on different devices, ",
                              first->device(), " and ", tensor.device());
        }
    }
    std::optional<c10::Device> device = first ? first->device() : call.device;
    if (!device || device->is_cpu()) return std::nullopt;
    return device->has_index() ? device : VirtualGuardImpl(device->type()).getDevice();
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

void Staged::block_current_stream() const
{
    const c10::Stream current = current_stream(stream.device());
    back.block(current);
    for (const Tensor &result : made) record_on_stream(result, current);
}

namespace
{

/* What all staged calls of the process share. Never destroyed: a device may still write into the copies. */
struct Shared {
    /* One for each direction: a result does not wait behind inputs that are still being computed. */
    struct Streams {
        c10::Stream to_host, to_device;
    };
    Streams streams(c10::Device device)
    {
        std::lock_guard<std::mutex> guard(mutex);
        auto known = of_device.find(device);
        if (known == of_device.end())
            known = of_device.emplace(device, Streams{side_stream(device), side_stream(device)}).first;
        return known->second;
    }
    /* Holds the copies until the call has ended and the device is done with them. */
    void keep(Tensors copies, const std::shared_ptr<Staged> &staged)
    {
        auto done = [](const auto &kept) {
            return kept.second.use_count() == 1 && is_over(kept.second->arrived) && is_over(kept.second->back);
        };
        std::lock_guard<std::mutex> guard(mutex);
        in_use.erase(std::remove_if(in_use.begin(), in_use.end(), done), in_use.end());
        in_use.emplace_back(std::move(copies), staged);
    }

    std::mutex mutex;
    std::unordered_map<c10::Device, Streams> of_device;
    std::vector<std::pair<Tensors, std::shared_ptr<Staged>>> in_use;
};

Shared &shared()
{
    static auto *found = new Shared();
    return *found;
}

/* Pinned memory is a matter of the device's hooks; not every device has them, or any memory left. */
c10::DataPtr host_memory(c10::DeviceType type, size_t bytes)
try {
    return at::globalContext().getPinnedMemoryAllocator(type)->allocate(bytes);
} catch (const c10::Error &) {
    return c10::GetCPUAllocator()->allocate(bytes);
}

Tensor copy_for(const Tensor &tensor)
{
    const size_t bytes = tensor.nbytes();
    c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                         bytes ? host_memory(tensor.device().type(), bytes) : c10::DataPtr(), nullptr, false);
    return at::empty({0}, tensor.options().device(at::kCPU)).set_(storage, 0, tensor.sizes(), tensor.strides());
}

/* The first n elements, in the order of the memory. */
Tensor flat(const Tensor &tensor, int64_t n)
{
    return tensor.as_strided({n}, {1}, tensor.storage_offset());
}

/* A message may be shorter than the tensor that receives it. */
int64_t n_received(const tutti_message *message, const Tensor &tensor)
{
    if (!message) return tensor.numel();
    const auto size = int64_t(tensor.element_size());
    return std::min(tensor.numel(), (int64_t(message->bytes) + size - 1) / size);
}

/* The way back of a call: its outputs and results on the device, and the copies of the outputs. */
struct Return {
    std::shared_ptr<Staged> staged;
    Tensors outputs, copies, results;
    std::shared_ptr<tutti_message> message;
    std::function<void()> unpack;

    void run() const
    {
        for (size_t i = 0; i < outputs.size(); i++) {
            const int64_t n = n_received(message.get(), outputs[i]);
            flat(outputs[i], n).copy_(flat(copies[i], n), true);
            record_on_stream(outputs[i], staged->stream);
        }
        if (unpack) unpack();
        for (const Tensor &result : results) {
            record_on_stream(result, staged->stream);
            if (result.layout() == at::kSparse) staged->made.push_back(result);
        }
    }
    void operator()() const
    {
        c10::StreamGuard on(staged->stream);
        at::AutoDispatchBelowAutograd below;
        try {
            run();
        } catch (...) {
            staged->back.record(staged->stream);
            throw;
        }
        staged->back.record(staged->stream);
    }
};

/* An output that is an input, too, has the same copy. */
Tensor known_copy(const Tensor &output, const Tensors &inputs, const Tensors &copies)
{
    for (size_t i = 0; i < inputs.size(); i++)
        if (inputs[i].data_ptr() == output.data_ptr() && inputs[i].nbytes() == output.nbytes()) return copies[i];
    return copy_for(output);
}

} // namespace

void stage(Call &call)
{
    const std::optional<c10::Device> device = device_of(call);
    if (!device) return;
    c10::DeviceGuard on(*device);
    at::AutoDispatchBelowAutograd below;
    const Shared::Streams streams = shared().streams(*device);
    const auto staged = std::make_shared<Staged>(streams.to_device);
    c10::Event begin(device->type());
    begin.record(current_stream(*device));
    begin.block(streams.to_host);
    begin.block(streams.to_device); /* the outputs may be in use until then */

    Tensors inputs, outputs;
    {
        c10::StreamGuard to_host(streams.to_host);
        for (const Tensor &input : call.inputs) {
            inputs.push_back(copy_for(input));
            flat(inputs.back(), input.numel()).copy_(flat(input, input.numel()), true);
            record_on_stream(input, streams.to_host);
        }
        if (!call.inputs.empty() || call.outputs.empty()) staged->arrived.record(streams.to_host);
    }
    for (const Tensor &output : call.outputs) outputs.push_back(known_copy(output, call.inputs, inputs));
    Tensors copies = inputs;
    copies.insert(copies.end(), outputs.begin(), outputs.end());
    shared().keep(std::move(copies), staged);

    call.results = call.shown();
    call.unpack = Return{staged, call.outputs, outputs, call.results, call.message, std::move(call.unpack)};
    call.inputs = std::move(inputs);
    call.outputs = std::move(outputs);
    call.staged = staged;
}

} // namespace tutti_torch
