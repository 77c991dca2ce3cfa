/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* A window as torchcomms knows it, over one of ours. */

#include "comms/window.hpp"
#include "torchcomms/torchcomms_abi.hpp"

namespace tutti_torch
{

class PluggedWindow : public torch::comms::TorchCommWindow
{
  public:
    using Options = torch::comms::CallOptions;
    using WorkThere = torch::comms::WorkPtr;

    /* timeout: of calls that have none of their own. */
    PluggedWindow(TorchComm::Ptr comm, const std::optional<Tensor> &tensor, milliseconds timeout);

    void tensor_register(const Tensor &tensor, bool owning) override;
    void tensor_deregister() override;
    std::shared_ptr<torch::comms::TorchCommWindow> clone() override;
    WorkThere put(const Tensor &tensor, int dst, size_t offset, bool async, const Options &options) override;
    Tensor map_remote_tensor(int rank) override { return ours_->map_remote_tensor(rank); }
    WorkThere signal(int peer, bool async, const Options &options) override;
    WorkThere wait_signal(int peer, bool async, const Options &options) override;
    std::shared_ptr<torch::comms::TorchCommWindowAttr> get_attr(int peer) override;

    /* For kernels: tutti's own window for them has another layout (tutti/device.cuh). */
    void *get_device_window(int, int, int) override { not_for_kernels("get_device_window"); }
    torch::comms::RegisteredBuffer register_local_buffer(const Tensor &) override
    {
        not_for_kernels("register_local_buffer");
    }
    void deregister_local_buffer(torch::comms::RegisteredBuffer &) override
    {
        not_for_kernels("deregister_local_buffer");
    }
    int64_t register_local_buffer_handle(const Tensor &) override { not_for_kernels("register_local_buffer_handle"); }
    void deregister_local_buffer_handle(int64_t) override { not_for_kernels("deregister_local_buffer_handle"); }

  private:
    [[noreturn]] void not_for_kernels(const char *call) const;
    void describe(); /* in the words that torchcomms looks at */
    WorkThere handle_of(TorchComm::WorkPtr work, const Options &options) const;

    const milliseconds timeout_;
    const std::shared_ptr<tutti_torch::TorchCommWindow> ours_; /* the base has the same name */
};

} // namespace tutti_torch
