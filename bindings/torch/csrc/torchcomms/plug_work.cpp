/* SPDX-License-Identifier: BSD-3-Clause */

/* Handles, windows, and the persistent all_gather. */

#include "comms/persistent.hpp"
#include "torchcomms/plug.hpp"
#include "work/worker.hpp"

namespace tutti_torch
{

namespace
{

using std::chrono::steady_clock;
using Status = PluggedWork::WorkStatus;
using WeakWork = c10::weak_intrusive_ptr<PluggedWork>;

constexpr size_t n_hooks_expected = 8; /* a flight recorder, a log and a future are three */
constexpr milliseconds second_look(2); /* by then the caller has said all that it wants to know */

/* Looks again at handles that have ended, on a thread that never ends. */
void look_again(const c10::intrusive_ptr<PluggedWork> &work)
{
    static auto *const lookout = new Worker("tutti-lookout", false, milliseconds(1));
    lookout->push([weak = WeakWork(work), due = steady_clock::now() + second_look] {
        if (steady_clock::now() < due) return false;
        if (auto known = weak.lock()) known->tell_end();
        return true;
    });
}

Status status_of(TorchWork &work)
{
    return static_cast<Status>(static_cast<int>(work.status())); /* the same words in the same order */
}

bool is_end(Status status)
{
    return status != Status::NOT_STARTED && status != Status::INPROGRESS;
}

void run_hooks(const std::vector<PluggedWork::WorkHook> &hooks)
{
    for (const auto &hook : hooks) hook();
}

} // namespace

PluggedWork::PluggedWork(Ours work, milliseconds timeout) : work_(std::move(work)), timeout_(timeout)
{
    end_hooks_.reserve(n_hooks_expected);
    status_ = Status::INPROGRESS;
}

torch::comms::WorkPtr PluggedWork::of(Ours work, milliseconds timeout)
{
    auto plugged = c10::make_intrusive<PluggedWork>(std::move(work), timeout);
    plugged->status_ = status_of(*plugged->work_);
    if (is_end(plugged->status_)) return plugged;
    plugged->work_->on_end([plugged] {
        plugged->end();
        look_again(plugged);
    });
    return plugged;
}

void PluggedWork::end()
{
    status_ = status_of(*work_);
    tell_end();
}

void PluggedWork::tell_end()
{
    for (;;) {
        WorkHook hook;
        {
            std::lock_guard<std::mutex> guard(telling_);
            if (n_told_ == end_hooks_.size() || !end_hooks_[n_told_]) return;
            hook = end_hooks_[n_told_++];
        }
        hook();
    }
}

template <typename Wait> void PluggedWork::await(Wait how)
{
    run_hooks(wait_pre_hooks_);
    try {
        how();
    } catch (...) {
        if (is_end(status_of(*work_))) end();
        throw;
    }
    if (is_end(status_of(*work_))) end();
    run_hooks(wait_post_hooks_);
}

void PluggedWork::wait()
{
    await([this] { work_->wait(); });
}

void PluggedWork::waitBlocking()
{
    await([this] { work_->wait_blocking(); });
}

/* Functions may hold this very handle. */
void PluggedWork::release_resources()
{
    for (auto *hooks : {&start_hooks_, &end_hooks_, &wait_pre_hooks_, &wait_post_hooks_}) hooks->clear();
}

/* Windows, and the persistent all_gather. */

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
