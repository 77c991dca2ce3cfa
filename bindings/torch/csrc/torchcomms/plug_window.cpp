/* SPDX-License-Identifier: BSD-3-Clause */

/* Windows, and the persistent all_gather. */

#include "torchcomms/plug_window.hpp"

#include "comms/persistent.hpp"
#include "torchcomms/plug_backend.hpp"
#include "torchcomms/plug_work.hpp"

namespace tutti_torch
{

static tutti_torch::TorchCommWindow::How how_of(bool async, const torch::comms::CallOptions &options)
{
    return {async, options.hints, options.timeout};
}

PluggedWindow::PluggedWindow(TorchComm::Ptr comm, const std::optional<Tensor> &tensor, milliseconds timeout)
    : timeout_(timeout), ours_(tutti_torch::TorchCommWindow::create(std::move(comm), tensor))
{
    if (!tensor) return;
    describe();
    buf_tensor_ = tensor;
}

void PluggedWindow::describe()
{
    win_size_ = ours_->bytes();
    buf_dtype_ = ours_->dtype();
    buf_shape_ = ours_->shape();
    buf_device_ = ours_->device();
}

void PluggedWindow::tensor_register(const Tensor &tensor, bool owning)
{
    ours_->tensor_register(tensor, owning);
    describe();
    if (owning) buf_tensor_ = tensor;
}

void PluggedWindow::tensor_deregister()
{
    ours_->tensor_deregister();
    win_size_ = 0;
    buf_tensor_.reset();
    buf_shape_.clear();
}

std::shared_ptr<torch::comms::TorchCommWindow> PluggedWindow::clone()
{
    std::optional<Tensor> copy;
    if (buf_tensor_) copy = buf_tensor_->clone();
    return std::make_shared<PluggedWindow>(ours_->comm(), copy, timeout_);
}

PluggedWindow::WorkThere PluggedWindow::handle_of(TorchComm::WorkPtr work, const Options &options) const
{
    return PluggedWork::of(std::move(work), options.timeout.count() > 0 ? options.timeout : timeout_);
}

PluggedWindow::WorkThere PluggedWindow::put(const Tensor &tensor, int dst, size_t offset, bool async,
                                            const Options &options)
{
    return handle_of(ours_->put(tensor, dst, offset, how_of(async, options)), options);
}

PluggedWindow::WorkThere PluggedWindow::signal(int peer, bool async, const Options &options)
{
    return handle_of(ours_->signal(peer, how_of(async, options)), options);
}

PluggedWindow::WorkThere PluggedWindow::wait_signal(int peer, bool async, const Options &options)
{
    return handle_of(ours_->wait_signal(peer, how_of(async, options)), options);
}

std::shared_ptr<torch::comms::TorchCommWindowAttr> PluggedWindow::get_attr(int peer)
{
    using Type = torch::comms::TorchCommWinAccessType;
    auto attr = std::make_shared<torch::comms::TorchCommWindowAttr>();
    attr->accessType = ours_->access(peer) == tutti_torch::TorchCommWindow::Access::unified
                           ? Type::WIN_ACCESS_TYPE_UNIFIED
                           : Type::WIN_ACCESS_TYPE_SEPARATE;
    return attr;
}

void PluggedWindow::not_for_kernels(const char *call) const
{
    TORCH_CHECK(false, "tutti: ", call, " on ", ours_->comm()->described(),
                ": torchcomms' kernels know no window of tutti; tutti/device.cuh has functions for kernels");
}

/* ---- of the backend ---- */

std::shared_ptr<torch::comms::TorchCommWindow> PluggedBackend::new_window(const std::optional<Tensor> &tensor)
{
    return std::make_shared<PluggedWindow>(comm_, tensor, options_.timeout);
}

PluggedBackend::AllGatherPHandle PluggedBackend::all_gather_p_init(Tensor &output, const Options &options)
{
    return new AllGatherP(comm_, {output}, false, options.hints, options.timeout);
}

PluggedBackend::WorkThere PluggedBackend::all_gather_p_exec(AllGatherPHandle handle, const Tensor &input, bool async,
                                                            const Options &options)
{
    TORCH_CHECK(handle, "tutti: all_gather_p_exec on ", comm_->described(), ": the handle is null");
    return handle_of(static_cast<AllGatherP *>(handle)->start(input, async), options);
}

void PluggedBackend::all_gather_p_free(AllGatherPHandle handle)
{
    delete static_cast<AllGatherP *>(handle);
}

} // namespace tutti_torch
