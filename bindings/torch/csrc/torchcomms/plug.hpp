/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* The backend "tutti" of torchcomms: every virtual function of its interface, handed to a TorchComm of ours, in this
 * API's words. Hooks before and after calls are torchcomms' own; abort hooks are ours, which learn of failures first.
 * Begin with plugin.cpp, which says how one is made. */

#include "comms/comms.hpp"
#include "comms/torch_work.hpp"
#include "comms/window.hpp"
#include "torchcomms/torchcomms_abi.hpp"

#include <map>
#include <mutex>

namespace tutti_torch
{

class PluggedBackend : public torch::comms::TorchCommBackend
{
  public:
    using Options = torch::comms::CallOptions;
    using MessageOptions = torch::comms::MessageOptions;
    using CommOptionsThere = torch::comms::CommOptions;
    using OpThere = torch::comms::ReduceOp;
    using WorkThere = torch::comms::WorkPtr;
    using P2POps = std::vector<torch::comms::BatchSendRecv::P2POp>;

    /* which: the name that new_comm was given. */
    explicit PluggedBackend(std::string which) : which_(std::move(which)) {}
    PluggedBackend(std::string which, TorchComm::Ptr comm, const CommOptionsThere &options);

    void init(at::Device device, const std::string &name, const CommOptionsThere &options) override;
    void finalize() override { comm_->finalize(); }
    int getRank() const override { return comm_->rank(); }
    int getSize() const override { return comm_->size(); }
    std::string_view getBackendName() const override { return which_; }
    std::string_view getBackendVersion() const override { return comm_->backend_version(); }
    std::string_view getCommName() const override { return comm_ ? std::string_view(comm_->name()) : ""; }

    /* ---- calls (plug_backend.cpp) ---- */
    WorkThere send(const Tensor &, int dst, bool async, const MessageOptions &) override;
    WorkThere recv(Tensor &, int src, bool async, const MessageOptions &) override;
    WorkThere batch_op_issue(const P2POps &, bool async, const Options &) override;
    WorkThere broadcast(Tensor &, int root, bool async, const Options &) override;
    WorkThere all_reduce(Tensor &, const OpThere &, bool async, const Options &) override;
    WorkThere reduce(const Tensor &, int root, const OpThere &, bool async, const Options &) override;
    WorkThere all_gather(const Tensors &, const Tensor &, bool async, const Options &) override;
    WorkThere all_gather_v(const Tensors &, const Tensor &, bool async, const Options &) override;
    WorkThere all_gather_single(Tensor &, const Tensor &, bool async, const Options &) override;
    WorkThere reduce_scatter(Tensor &, const Tensors &, const OpThere &, bool async, const Options &) override;
    WorkThere reduce_scatter_v(Tensor &, const Tensors &, const OpThere &, bool async, const Options &) override;
    WorkThere reduce_scatter_single(Tensor &, const Tensor &, const OpThere &, bool async, const Options &) override;
    WorkThere all_to_all_single(Tensor &, const Tensor &, bool async, const Options &) override;
    WorkThere all_to_all_v_single(Tensor &, const Tensor &, const Splits &output, const Splits &input, bool async,
                                  const Options &) override;
    WorkThere all_to_all(const Tensors &, const Tensors &, bool async, const Options &) override;
    WorkThere barrier(bool async, const Options &) override;
    WorkThere scatter(Tensor &, const Tensors &, int root, bool async, const Options &) override;
    WorkThere gather(const Tensors &, const Tensor &, int root, bool async, const Options &) override;
    WorkThere gather_single(Tensor &, const Tensor &, int root, bool async, const Options &) override;
    AllGatherPHandle all_gather_p_init(Tensor &output, const Options &) override;
    WorkThere all_gather_p_exec(AllGatherPHandle, const Tensor &input, bool async, const Options &) override;
    void all_gather_p_free(AllGatherPHandle) override;

    /* ---- the communicator ---- */
    std::shared_ptr<TorchCommBackend> split(const std::vector<int> &ranks, const std::string &name,
                                            const CommOptionsThere &options) override;
    const CommOptionsThere &getOptions() const override { return options_; }
    const at::Device &getDevice() const override { return device_; }
    bool supportsWindow() const override { return true; }
    std::shared_ptr<torch::comms::TorchCommWindow> new_window(const std::optional<Tensor> &tensor) override;
    void registerAbortHook(int64_t id, torch::comms::AbortHook hook) override;
    void unregisterAbortHook(int64_t id) override;
    void registerGraphReplayHook(int64_t id, torch::comms::GraphReplayHook hook) override;
    void unregisterGraphReplayHook(int64_t id) override;
    bool supportsReconfigure() const override { return true; }
    bool isAbortSupported() const override { return true; }
    bool isAborted() const override { return comm_->is_aborted(); }
    void setTimeout(milliseconds timeout) override;
    void setHints(Hints hints) override { comm_->set_hints(hints); }
    bool isInitialized() const override { return comm_ && comm_->rank() >= 0 && !comm_->is_finalized(); }
    InitHandle getInitHandle() const override { return comm_->init_handle(); }
    WorkThere reconfigure(const torch::comms::ReconfigureOptions &options) override;
    void abort() override { comm_->abort(); }
    int64_t get_device_transport() override;
    void tensor_register(const Tensor &tensor) override { comm_->tensor_register(tensor); }
    void tensor_deregister(const Tensor &tensor) override { comm_->tensor_deregister(tensor); }

  private:
    WorkThere run(Request request, const Options &options);
    WorkThere handle_of(TorchComm::WorkPtr work, const Options &options) const;

    const std::string which_;
    TorchComm::Ptr comm_; /* from init on */
    CommOptionsThere options_;
    at::Device device_{at::kCPU};
    std::mutex hooks_mutex_; /* below */
    std::map<int64_t, RemovableHandle> abort_handles_;
};

/* Memory that the ranks of the communicator which was made last can map: torchcomms asks for a back end's, not for a
 * communicator's. */
std::shared_ptr<c10::Allocator> memory_of_last_communicator();

/* A window as torchcomms knows it, over one of ours. */

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

/* A call's handle as torchcomms knows it, over one of ours.
 *
 * torchcomms reads the status of a handle as a word, and puts functions that are to run at the end into a vector,
 * without a lock, after the call has returned; but the call may end at any moment, on another thread. So the end first
 * writes the status: who asks from then on runs its function itself. The vector has room from the start, and is only
 * read here; a function that came in between is found by who waits, and by a thread that looks once more a moment
 * later, for somebody may wait for that very function. */

class PluggedWork : public torch::comms::TorchWork
{
  public:
    using Ours = c10::intrusive_ptr<tutti_torch::TorchWork>; /* the base has the same name */

    /* The handle of a call that was made just now. */
    static torch::comms::WorkPtr of(Ours work, milliseconds timeout);
    PluggedWork(Ours work, milliseconds timeout);

    void wait() override;
    void waitBlocking() override;
    void hostSynchronize() override { work_->wait_blocking(); }
    milliseconds getTimeout() const override { return timeout_; }

    void tell_end(); /* runs functions that have not been run */
    void release_resources() override;

  private:
    void end();
    template <typename Wait> void await(Wait how);

    const Ours work_;
    const milliseconds timeout_;
    std::mutex telling_;
    size_t n_told_ = 0; /* how many of end_hooks_ have run */
};

} // namespace tutti_torch
