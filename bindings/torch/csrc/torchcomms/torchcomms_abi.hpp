/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Room torchcomms: the plug-in for the package torchcomms, a library of its own that torchcomms opens (plugin.cpp).
 * Uses comms.
 *
 * This file is the only one that knows torchcomms: its wheel has no headers, so what crosses the border is declared
 * here, as torchcomms 0.3.0 of August 2026 has it. It is an ABI: names of types, the order of virtual functions, the
 * order and types of members. One that says another `abi_version` is refused by torchcomms itself, as the 0.3.0 of June
 * is; other versions by tutti_torch/torchcomms.py. Functions without a body are in libtorchcomms.so; virtual functions
 * for which torchcomms has a default are pure here, since the plug-in has all of them. */

#include <ATen/core/ivalue.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#pragma GCC visibility push(default)

namespace torch::comms
{

inline constexpr const char *abi_version = "1.3";

using Milliseconds = std::chrono::milliseconds;
using Hints = std::unordered_map<std::string, std::string>;
using Handle = std::string;
using TensorList = std::vector<at::Tensor>;
using SplitSizes = std::vector<uint64_t>;

/* ---- what calls are given ---- */

/* One type a call in torchcomms, with the same members: to the ABI they are one. timeout 0: the communicator's. */
struct CallOptions {
    Hints hints;
    Milliseconds timeout;
};

struct MessageOptions : CallOptions {
    int tag;
};

/* Copies are made by torchcomms' functions, as it makes them. */
class CommOptions
{
  public:
    CommOptions();
    ~CommOptions();
    CommOptions(const CommOptions &);
    CommOptions &operator=(const CommOptions &);

    bool abort_process_on_timeout_or_error;
    Milliseconds timeout;
    bool is_high_priority_stream;
    c10::intrusive_ptr<c10d::Store> store;
    bool enable_reconfigure;
    Hints hints;
};

struct ReconfigureOptions {
    int64_t uuid;
    std::variant<std::unordered_set<Handle>, std::vector<Handle>> handles; /* a set leaves the order to us */
    std::optional<Milliseconds> timeout;
    Hints hints;
};

class ReduceOp
{
  public:
    enum class RedOpType { SUM, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM, AVG };
    using Factor = std::variant<at::Tensor, double>;

    RedOpType type_;
    std::optional<const Factor> factor_; /* for PREMUL_SUM */
};

class BatchSendRecv
{
  public:
    class P2POp
    {
      public:
        enum class OpType { SEND, RECV };
        OpType type;
        at::Tensor tensor;
        int peer;
    };
};

/* ---- handles ---- */

class TorchWork : public c10::intrusive_ptr_target
{
  public:
    enum class WorkStatus { NOT_STARTED, INPROGRESS, COMPLETED, TIMEDOUT, ERROR };
    using WorkHook = std::function<void()>;

    TorchWork() = default;
    ~TorchWork() override = default;
    virtual void wait() = 0;
    virtual Milliseconds getTimeout() const = 0;
    virtual void hostSynchronize() = 0;
    virtual void waitBlocking() = 0;

  protected:
    virtual void markCompleted(c10::intrusive_ptr<c10::ivalue::Future> future, std::vector<at::Tensor> outputs);

    /* torchcomms reads the status, and appends to the vectors, in functions that are compiled into its callers. */
    std::atomic<WorkStatus> status_{WorkStatus::NOT_STARTED};
    bool end_hooks_fired_{false};
    std::vector<WorkHook> start_hooks_, end_hooks_, wait_pre_hooks_, wait_post_hooks_;
};
using WorkPtr = c10::intrusive_ptr<TorchWork>;

/* ---- windows ---- */

struct RegisteredBuffer {
    void *base_ptr;
    size_t size;
    void *backend_window;
    uint32_t lkeys[2];
    int n_lkeys;
};

enum class TorchCommWinAccessType { WIN_ACCESS_TYPE_UNIFIED, WIN_ACCESS_TYPE_SEPARATE };

class TorchCommWindowAttr
{
  public:
    TorchCommWinAccessType accessType;
};

class TorchCommWindow
{
  public:
    TorchCommWindow() = default;
    virtual ~TorchCommWindow() = default;
    TorchCommWindow(const TorchCommWindow &) = delete;
    TorchCommWindow &operator=(const TorchCommWindow &) = delete;

    virtual void tensor_register(const at::Tensor &tensor, bool owning) = 0;
    virtual void tensor_deregister() = 0;
    virtual std::shared_ptr<TorchCommWindow> clone() = 0;
    virtual WorkPtr put(const at::Tensor &, int dst, size_t offset, bool async, const CallOptions &) = 0;
    virtual at::Tensor map_remote_tensor(int rank) = 0;
    virtual WorkPtr signal(int peer, bool async, const CallOptions &) = 0;
    virtual WorkPtr wait_signal(int peer, bool async, const CallOptions &) = 0;
    virtual std::shared_ptr<TorchCommWindowAttr> get_attr(int peer) = 0;
    virtual void *get_device_window(int n_signals, int n_counters, int n_barriers) = 0;
    virtual RegisteredBuffer register_local_buffer(const at::Tensor &) = 0;
    virtual void deregister_local_buffer(RegisteredBuffer &) = 0;
    virtual int64_t register_local_buffer_handle(const at::Tensor &) = 0;
    virtual void deregister_local_buffer_handle(int64_t handle) = 0;

  protected:
    /* torchcomms answers questions about the registered tensor from these. */
    size_t win_size_{0};
    std::optional<at::Tensor> buf_tensor_;
    at::ScalarType buf_dtype_{at::kFloat};
    c10::Device buf_device_{c10::kCUDA};
    std::vector<int64_t> buf_shape_;
};

/* ---- a backend ---- */

using AbortHook = std::function<void()>;
using GraphReplayHook =
    std::function<void(uint64_t graph, uint64_t replay, void *stream, size_t index, std::string_view event)>;

class TorchCommBackend
{
  public:
    using AllGatherPHandle = void *;

    virtual ~TorchCommBackend() = default;
    virtual void init(at::Device device, const std::string &name, const CommOptions &) = 0;
    virtual void finalize() = 0;
    virtual int getRank() const = 0;
    virtual int getSize() const = 0;
    virtual std::string_view getBackendName() const = 0;
    virtual std::string_view getBackendVersion() const = 0;
    virtual std::string_view getCommName() const = 0;

    virtual WorkPtr send(const at::Tensor &, int dst, bool async, const MessageOptions &) = 0;
    virtual WorkPtr recv(at::Tensor &, int src, bool async, const MessageOptions &) = 0;
    virtual WorkPtr batch_op_issue(const std::vector<BatchSendRecv::P2POp> &, bool async, const CallOptions &) = 0;
    virtual WorkPtr broadcast(at::Tensor &, int root, bool async, const CallOptions &) = 0;
    virtual WorkPtr all_reduce(at::Tensor &, const ReduceOp &, bool async, const CallOptions &) = 0;
    virtual WorkPtr reduce(const at::Tensor &, int root, const ReduceOp &, bool async, const CallOptions &) = 0;
    virtual WorkPtr all_gather(const TensorList &, const at::Tensor &, bool async, const CallOptions &) = 0;
    virtual WorkPtr all_gather_v(const TensorList &, const at::Tensor &, bool async, const CallOptions &) = 0;
    virtual WorkPtr all_gather_single(at::Tensor &, const at::Tensor &, bool async, const CallOptions &) = 0;
    virtual WorkPtr reduce_scatter(at::Tensor &, const TensorList &, const ReduceOp &, bool async,
                                   const CallOptions &) = 0;
    virtual WorkPtr reduce_scatter_v(at::Tensor &, const TensorList &, const ReduceOp &, bool async,
                                     const CallOptions &) = 0;
    virtual WorkPtr reduce_scatter_single(at::Tensor &, const at::Tensor &, const ReduceOp &, bool async,
                                          const CallOptions &) = 0;
    virtual WorkPtr all_to_all_single(at::Tensor &, const at::Tensor &, bool async, const CallOptions &) = 0;
    virtual WorkPtr all_to_all_v_single(at::Tensor &output, const at::Tensor &input, const SplitSizes &output_splits,
                                        const SplitSizes &input_splits, bool async, const CallOptions &) = 0;
    virtual WorkPtr all_to_all(const TensorList &outputs, const TensorList &inputs, bool async,
                               const CallOptions &) = 0;
    virtual WorkPtr barrier(bool async, const CallOptions &) = 0;
    virtual WorkPtr scatter(at::Tensor &, const TensorList &, int root, bool async, const CallOptions &) = 0;
    virtual WorkPtr gather(const TensorList &, const at::Tensor &, int root, bool async, const CallOptions &) = 0;
    virtual WorkPtr gather_single(at::Tensor &, const at::Tensor &, int root, bool async, const CallOptions &) = 0;

    virtual std::shared_ptr<TorchCommBackend> split(const std::vector<int> &ranks, const std::string &name,
                                                    const CommOptions &) = 0;
    virtual const CommOptions &getOptions() const = 0;
    virtual const at::Device &getDevice() const = 0;
    virtual bool supportsWindow() const = 0;
    virtual std::shared_ptr<TorchCommWindow> new_window(const std::optional<at::Tensor> &) = 0;

    virtual void registerAbortHook(int64_t id, AbortHook) = 0;
    virtual void unregisterAbortHook(int64_t id) = 0;
    std::unordered_map<int64_t, AbortHook> abortHooks_;
    virtual void registerGraphReplayHook(int64_t id, GraphReplayHook) = 0;
    virtual void unregisterGraphReplayHook(int64_t id) = 0;
    std::unordered_map<int64_t, GraphReplayHook> graphReplayHooks_;

    virtual AllGatherPHandle all_gather_p_init(at::Tensor &output, const CallOptions &) = 0;
    virtual WorkPtr all_gather_p_exec(AllGatherPHandle, const at::Tensor &input, bool async, const CallOptions &) = 0;
    virtual void all_gather_p_free(AllGatherPHandle) = 0;

    virtual bool supportsReconfigure() const = 0;
    virtual bool isAbortSupported() const = 0;
    virtual bool isAborted() const = 0;
    virtual void setTimeout(Milliseconds) = 0;
    virtual void setHints(Hints) = 0;
    virtual bool isInitialized() const = 0;
    virtual Handle getInitHandle() const = 0;
    virtual WorkPtr reconfigure(const ReconfigureOptions &) = 0;
    virtual void abort() = 0;
    virtual int64_t get_device_transport() = 0;
    virtual void tensor_register(const at::Tensor &) = 0;
    virtual void tensor_deregister(const at::Tensor &) = 0;
};

/* ---- how it gets in ---- */

struct DynamicLoaderInterface {
    TorchCommBackend *(*new_comm)();
    void (*destroy_comm)(TorchCommBackend *);
    const char *(*get_supported_version)();
};

class TorchCommFactory
{
  public:
    static TorchCommFactory &get();
    void register_backend(const std::string &name, const std::function<std::shared_ptr<TorchCommBackend>()> &make);
    void register_allocator_factory(const std::string &name,
                                    const std::function<std::shared_ptr<c10::Allocator>()> &make);
};

} // namespace torch::comms

#pragma GCC visibility pop
