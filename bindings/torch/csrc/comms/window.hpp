/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* One-sided communication: a window is a tensor of each rank that the others write into and read from. Offsets and
 * sizes of tensors are elements of the window's type. Each rank has one signal for each other rank, a number: signal()
 * adds one to it, wait_signal() waits for one, and takes it. */

#include "comms/comms.hpp"

#include <tutti/window.h>

#include <optional>

namespace tutti_torch
{

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

    /* Collective when there is a tensor. */
    static std::shared_ptr<TorchCommWindow> create(std::shared_ptr<TorchComm> comm,
                                                   const std::optional<Tensor> &tensor);
    explicit TorchCommWindow(std::shared_ptr<TorchComm> comm) : comm_(std::move(comm)) {}
    ~TorchCommWindow();
    TorchCommWindow(const TorchCommWindow &) = delete;
    TorchCommWindow &operator=(const TorchCommWindow &) = delete;

    /* Collective. owning: the window keeps the tensor. */
    void tensor_register(const Tensor &tensor, bool owning);
    void tensor_deregister();

    WorkPtr put(const Tensor &tensor, int dst_rank, size_t offset, const How &how);
    WorkPtr get(const Tensor &tensor, int src_rank, size_t offset, const How &how);
    WorkPtr put_signal(const Tensor &tensor, int dst_rank, size_t offset, const How &how);
    WorkPtr signal(int peer_rank, const How &how);
    WorkPtr wait_signal(int peer_rank, const How &how);
    /* Of a 64-bit integer in the rank's part; what was there before. */
    int64_t fetch_add(int rank, size_t offset, int64_t value);
    int64_t compare_swap(int rank, size_t offset, int64_t expected, int64_t desired);
    /* All that was called before for the rank (nullopt: for all) has taken effect there. */
    WorkPtr flush(std::optional<int> rank, const How &how);
    void fence();

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
        size_t bytes = 0;
        std::mutex mutex;            /* below */
        std::vector<uint64_t> taken; /* of each rank's signals */
        ~Shown();
    };
    using Launcher = std::function<tutti_status(const tutti_call_options *, tutti_work **)>;

    std::shared_ptr<Shown> shown(const char *call) const;
    WorkPtr move(const char *call, const Tensor &tensor, int rank, const How &how, Launcher launcher);
    WorkPtr submit(const char *call, const std::shared_ptr<Shown> &what, Tensors tensors, const How &how,
                   Launcher launcher);

    const std::shared_ptr<TorchComm> comm_;
    mutable std::mutex mutex_; /* below */
    std::shared_ptr<Shown> shown_;
};

} // namespace tutti_torch
