/* SPDX-License-Identifier: BSD-3-Clause */

/* The test device's operators. Those that programs order by streams are work of the current stream; all others are done
 * on the host, between copies through the stream. */

#include "driver.hpp"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <chrono>
#include <thread>

namespace tuttidev
{
namespace
{

using at::Tensor;

/* A tensor as a stream's thread sees it. Like a real device, it does not keep the memory from being freed. */
class View
{
  public:
    explicit View(const Tensor &tensor)
        : data_(tensor.data_ptr()), sizes_(tensor.sizes().vec()), strides_(tensor.strides().vec()),
          type_(tensor.scalar_type()), on_device_(tensor.device().type() == kind), conj_(tensor.is_conj())
    {
    }
    Tensor get() const
    {
        Tensor tensor = at::from_blob(on_device_ ? resolve(data_) : data_, sizes_, strides_, at::dtype(type_));
        return conj_ ? tensor.conj() : tensor;
    }

  private:
    void *data_;
    std::vector<int64_t> sizes_, strides_;
    at::ScalarType type_;
    bool on_device_, conj_;
};

template <typename Function> void launch(c10::Device device, Function function)
{
    enqueue(device.index(), current_stream(device.index()), [function] {
        at::AutoDispatchBelowAutograd guard;
        function();
    });
}

void synchronize_current(c10::Device device)
{
    synchronize(device.index(), current_stream(device.index()));
}

/* ---- memory ---- */

Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
             std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format)
{
    c10::OptionalDeviceGuard guard(device);
    return at::detail::empty_generic(sizes, c10::GetAllocator(kind),
                                     c10::DispatchKeySet(c10::DispatchKey::TUTTIDEV_KEY), at::dtype_or_default(type),
                                     format);
}

Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                     std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>)
{
    c10::OptionalDeviceGuard guard(device);
    return at::detail::empty_strided_generic(sizes, strides, c10::GetAllocator(kind),
                                             c10::DispatchKeySet(c10::DispatchKey::TUTTIDEV_KEY),
                                             at::dtype_or_default(type));
}

Tensor as_strided(const Tensor &self, at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<int64_t> offset)
{
    return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}

const Tensor &resize(const Tensor &self, at::IntArrayRef sizes, std::optional<at::MemoryFormat> format)
{
    return at::native::resize_(self, sizes, format);
}

Tensor &set_storage(Tensor &self, at::Storage source, int64_t offset, at::IntArrayRef sizes, at::IntArrayRef strides)
{
    return at::native::set_storage_cpu_(self, std::move(source), offset, sizes, strides);
}

Tensor &set_whole_storage(Tensor &self, at::Storage source)
{
    const auto n = int64_t(source.nbytes() / self.element_size());
    return set_storage(self, std::move(source), 0, {n}, {1});
}

/* ---- copies ---- */

/* The host goes on only while it may not touch the memory that is copied: which is what pinned memory is for. */
Tensor copy_from(const Tensor &from, const Tensor &to, bool non_blocking)
{
    if (to.numel() == 0) return to;
    Tensor source = from.expand(to.sizes());
    c10::Device device = from.device().type() == kind ? from.device() : to.device();
    bool through_host = from.is_cpu() || to.is_cpu();
    const Tensor &host = from.is_cpu() ? from : to;
    launch(device, [source = View(source), target = View(to), through_host] {
        if (through_host) delay_copy();
        target.get().copy_(source.get());
    });
    bool same_device = from.device() == to.device();
    if (!same_device && !(non_blocking && through_host && is_pinned(host.data_ptr()))) synchronize_current(device);
    return to;
}

Tensor copy_from_and_resize(const Tensor &from, const Tensor &to)
{
    at::native::resize_(to, from.sizes(), std::nullopt);
    return copy_from(from, to, false);
}

at::Scalar local_scalar(const Tensor &self)
{
    return self.cpu().item();
}

/* ---- arithmetic ---- */

Tensor &fill(Tensor &self, const at::Scalar &value)
{
    if (self.numel() > 0) launch(self.device(), [self = View(self), value] { self.get().fill_(value); });
    return self;
}

Tensor &zero(Tensor &self)
{
    return fill(self, 0);
}

/* Operands on the host are numbers; they are read when the operation is enqueued. */
template <typename Function> void launch_binary(const Tensor &self, const Tensor &other, Function function)
{
    if (self.numel() == 0) return;
    if (other.is_cpu())
        launch(self.device(), [self = View(self), other = other.clone(), function] { function(self.get(), other); });
    else
        launch(self.device(),
               [self = View(self), other = View(other), function] { function(self.get(), other.get()); });
}

Tensor &add(Tensor &self, const Tensor &other, const at::Scalar &alpha)
{
    launch_binary(self, other, [alpha](Tensor a, const Tensor &b) { a.add_(b, alpha); });
    return self;
}

Tensor &mul(Tensor &self, const Tensor &other)
{
    launch_binary(self, other, [](Tensor a, const Tensor &b) { a.mul_(b); });
    return self;
}

void fall_back(const c10::OperatorHandle &op, torch::jit::Stack *stack)
{
    at::native::cpu_fallback(op, stack);
}

#ifdef TUTTIDEV_STANDIN
/* PyTorch copies with kernels of its own on a device that it knows. */
Tensor &copy(Tensor &to, const Tensor &from, bool non_blocking)
{
    copy_from(from, to, non_blocking);
    return to;
}
#endif

TORCH_LIBRARY_IMPL(aten, TUTTIDEV_KEY, m)
{
    m.impl("empty.memory_format", empty);
    m.impl("empty_strided", empty_strided);
    m.impl("as_strided", as_strided);
    m.impl("resize_", resize);
    m.impl("view", at::native::view);
    m.impl("view_as_real", at::native::view_as_real);
    m.impl("view_as_complex", at::native::view_as_complex);
    m.impl("_reshape_alias", at::native::_reshape_alias);
    m.impl("set_.source_Storage_storage_offset", set_storage);
    m.impl("set_.source_Storage", set_whole_storage);
    m.impl("_copy_from", copy_from);
    m.impl("_copy_from_and_resize", copy_from_and_resize);
    m.impl("_local_scalar_dense", local_scalar);
    m.impl("fill_.Scalar", fill);
    m.impl("zero_", zero);
    m.impl("add_.Tensor", add);
    m.impl("mul_.Tensor", mul);
#ifdef TUTTIDEV_STANDIN
    m.impl("copy_", copy);
#endif
}

TORCH_LIBRARY_IMPL(_, TUTTIDEV_KEY, m)
{
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>());
}

/* ---- what the module tuttidev.py calls ---- */

void sleep(int64_t milliseconds, int64_t device)
{
    enqueue(int(device), current_stream(int(device)),
            [=] { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); });
}

TORCH_LIBRARY(tuttidev, m)
{
    m.def("device_count() -> int", []() -> int64_t { return n_devices; });
    m.def("current_device() -> int", []() -> int64_t { return current_device(); });
    m.def("set_device(int device) -> ()", [](int64_t device) { set_current_device(int(device)); });
    m.def("sleep(int milliseconds, int device) -> ()", sleep);
    m.def("fail_for_good() -> ()", fail_for_good);
    m.def("set_copy_delay(int milliseconds) -> ()", set_copy_delay);
    m.def("current_stream(int device) -> int", [](int64_t device) { return current_stream(int(device)); });
    m.def("set_stream(int device, int stream) -> ()",
          [](int64_t device, int64_t stream) { set_current_stream(int(device), stream); });
    m.def("next_stream(int device) -> int", [](int64_t device) { return next_stream(int(device)); });
    m.def("synchronize(int device) -> ()", [](int64_t device) {
        for (int64_t stream = 0; stream < n_streams; stream++) synchronize(int(device), stream);
    });
    m.def("begin_capture(int device, int stream) -> ()", begin_capture);
    m.def("end_capture(int device, int stream) -> int", end_capture);
    m.def("replay(int graph, int device, int stream) -> ()", replay);
}

} // namespace
} // namespace tuttidev
