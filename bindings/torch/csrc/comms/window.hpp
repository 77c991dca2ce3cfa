/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* One-sided communication: a window is a tensor of each rank that the others write into and read from. Offsets and
 * sizes of tensors are elements of the window's type. Each rank has one signal for each other rank, a number: signal()
 * adds one to it, wait_signal() waits for one, and takes it. Beside them it has signals that have an index: whoever
 * likes adds to them or sets them, and waiting leaves them as they are. */

#include "comms/comms.hpp"

#include <tutti/window.h>

#include <optional>

namespace tutti_torch
{

/* Without an index: that of the caller. */
struct WindowSignal {
    std::optional<uint32_t> index{};
    uint64_t value = 1;
    tutti_signal_op op = TUTTI_SIGNAL_ADD;
};
/* Without an index: one more from the peer. */
struct WindowUntil {
    std::optional<uint32_t> index{};
    uint64_t value = 1;
    tutti_compare compare = TUTTI_COMPARE_GE;
};

/* What torchcomms' kernels would use, which is not here: RuntimeError that says what of which rank is reached by
 * kernels of tutti/device.cuh, in place, and by messages. */
[[noreturn]] void refuse_device_transport(TorchComm &comm);

class TorchCommWindow : public std::enable_shared_from_this<TorchCommWindow>
{
  public:
    enum class Access { unified, separate }; /* peers' parts are addresses here, or not */
    using WorkPtr = TorchComm::WorkPtr;
    struct How {
        bool async_op = false;
        Hints hints{};
        milliseconds timeout{0};
    };

    using Signal = WindowSignal;
    using Until = WindowUntil;

    /* Collective when there is a tensor. n_signals: those that have an index; equal on all ranks. */
    static std::shared_ptr<TorchCommWindow> create(std::shared_ptr<TorchComm> comm, const std::optional<Tensor> &tensor,
                                                   uint32_t n_signals = few_signals);
    static constexpr uint32_t few_signals = 16;
    explicit TorchCommWindow(std::shared_ptr<TorchComm> comm, uint32_t n_signals = few_signals)
        : comm_(std::move(comm)), n_signals_(n_signals)
    {
    }
    ~TorchCommWindow();
    TorchCommWindow(const TorchCommWindow &) = delete;
    TorchCommWindow &operator=(const TorchCommWindow &) = delete;

    /* Collective. owning: the window keeps the tensor. */
    void tensor_register(const Tensor &tensor, bool owning);
    void tensor_deregister();

    WorkPtr put(const Tensor &tensor, int dst_rank, size_t offset, const How &how);
    WorkPtr get(const Tensor &tensor, int src_rank, size_t offset, const How &how);
    WorkPtr put_signal(const Tensor &tensor, int dst_rank, size_t offset, const How &how, const Signal &signal = {});
    WorkPtr signal(int peer_rank, const How &how, const Signal &signal = {});
    /* peer_rank, for a signal that has an index: who is to give it, or -1. */
    WorkPtr wait_signal(int peer_rank, const How &how, const Until &until = {});
    /* One of the own that have an index. No peer changes it meanwhile. */
    uint64_t read_signal(uint32_t index);
    void write_signal(uint32_t index, uint64_t value);
    uint32_t n_signals() const { return n_signals_; }
    /* Acts on a 64-bit integer in the rank's part; returns what was there before. */
    int64_t fetch_add(int rank, size_t offset, int64_t value);
    int64_t compare_swap(int rank, size_t offset, int64_t expected, int64_t desired);
    /* The same, into an int64 of the host or of the window's device. */
    WorkPtr fetch_add_into(const Tensor &result, int rank, size_t offset, int64_t value, const How &how);
    WorkPtr compare_swap_into(const Tensor &result, int rank, size_t offset, int64_t expected, int64_t desired,
                              const How &how);
    /* All that was called before for the rank (nullopt: for all) has taken effect there. */
    WorkPtr flush(std::optional<int> rank, const How &how);
    void fence();

    /* ---- for kernels (tutti/device.cuh) ---- */
    /* Address on the device of a tutti_device_window, good as long as the window; -1: as many as there are. */
    int64_t device_window(int n_signals, int n_counters, int n_barriers);
    /* Kernels put from any memory of their device: what is registered is kept, and its address is the handle. */
    int64_t register_local_buffer(const Tensor &tensor);
    void deregister_local_buffer(int64_t handle);

    Tensor map_remote_tensor(int rank);
    Access access(int peer_rank);
    size_t bytes() const; /* 0: nothing is registered */
    std::optional<Tensor> tensor() const;
    at::ScalarType dtype() const;
    std::vector<int64_t> shape() const;
    c10::Device device() const;
    const std::shared_ptr<TorchComm> &comm() const { return comm_; }

  private:
    /* A tensor that is shown, and all that is of its window. Calls keep it until they are over. */
    struct Shown {
        std::shared_ptr<Comm> comm;
        tutti_window *window = nullptr;
        Tensor kept; /* undefined: the user keeps it */
        at::ScalarType dtype;
        std::vector<int64_t> shape;
        c10::Device device = c10::kCPU;
        std::vector<c10::DeviceType> parts; /* what the ranks' parts are on */
        size_t bytes = 0;
        std::mutex mutex;            /* below */
        std::vector<uint64_t> taken; /* each rank's signals that were taken */
        Tensor for_kernels;          /* a tutti_device_window */
        ~Shown();
    };
    enum class Way { to_peer, from_peer };

    std::shared_ptr<Shown> shown(const char *call) const;
    WorkPtr move(const char *call, const Tensor &tensor, Way way, int rank, const How &how, Launch launch);
    WorkPtr get_to_host(const Tensor &tensor, int src_rank, size_t offset, How how);
    WorkPtr submit(const char *call, const std::shared_ptr<Shown> &what, const How &how, Launch launch,
                   Tensors inputs = {}, Tensors outputs = {});
    uint32_t word_of(const char *call, uint32_t index) const;
    tutti_signal_info info_of(const char *call, const Signal &signal) const;
    void check_result(const char *call, const Shown &on, const Tensor &result) const;

    const std::shared_ptr<TorchComm> comm_;
    const uint32_t n_signals_;
    mutable std::mutex mutex_; /* below */
    std::shared_ptr<Shown> shown_;
    std::vector<Tensor> local_buffers_;
};

} // namespace tutti_torch
