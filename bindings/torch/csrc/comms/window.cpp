/* SPDX-License-Identifier: BSD-3-Clause */

/* Windows: each method is one call of the library, on the way that all calls of the backend take. */

#include "comms/window.hpp"

#include "base/errors.hpp"
#include "comms/hints.hpp"
#include "comms/told.hpp"

#include <ATen/core/LegacyTypeDispatch.h>

namespace tutti_torch
{

TorchCommWindow::Shown::~Shown()
{
    const WithoutGil without_gil;
    tutti_window_destroy(window);
}

/* ---- what is shown ---- */

std::shared_ptr<TorchCommWindow> TorchCommWindow::create(std::shared_ptr<TorchComm> comm,
                                                         const std::optional<Tensor> &tensor)
{
    TorchComm &in = *comm;
    return in.told(Request{OpName::new_window, {}, {}}, [&] {
        auto made = std::make_shared<TorchCommWindow>(std::move(comm));
        if (tensor) made->tensor_register(*tensor, true);
        return made;
    });
}

void TorchCommWindow::tensor_register(const Tensor &tensor, bool owning)
{
    const WithoutGil without_gil;
    comm_->in_words("tensor_register", [&] {
        {
            std::lock_guard<std::mutex> guard(mutex_);
            TORCH_CHECK(!shown_, "double registration: the window has a tensor already");
        }
        TORCH_CHECK(tensor.is_contiguous(), "tensor must be contiguous");
        TORCH_CHECK(tensor.device().is_cpu() || tensor.is_cuda(), "windows are of the host or of CUDA devices, not of ",
                    tensor.device());
        auto made = std::make_shared<Shown>();
        made->comm = comm_->backend()->comm_of(tensor.device());
        if (owning) made->kept = tensor;
        made->dtype = tensor.scalar_type();
        made->shape = tensor.sizes().vec();
        made->device = tensor.device();
        made->bytes = tensor.nbytes();
        made->taken.resize(size_t(comm_->size()));
        check(tutti_window_create(made->comm->handle(), tensor.data_ptr(), made->bytes, nullptr, &made->window));
        std::lock_guard<std::mutex> guard(mutex_);
        shown_ = std::move(made);
    });
}

/* Nobody's window ends before all have called this: so what others put here is here. */
void TorchCommWindow::tensor_deregister()
{
    const WithoutGil without_gil;
    comm_->in_words("tensor_deregister", [&] {
        const std::shared_ptr<Shown> last = shown("tensor_deregister");
        if (!last->device.is_cpu()) /* what is on any stream has started: it waits for that */
            check(tutti_barrier(last->comm->handle(), nullptr, nullptr));
        check(tutti_flush(TUTTI_ALL_PEERS, last->window, nullptr, nullptr));
        check(tutti_barrier(last->comm->handle(), nullptr, nullptr));
        std::lock_guard<std::mutex> guard(mutex_);
        shown_.reset();
    });
}

TorchCommWindow::~TorchCommWindow() = default;

std::shared_ptr<TorchCommWindow::Shown> TorchCommWindow::shown(const char *call) const
{
    std::lock_guard<std::mutex> guard(mutex_);
    TORCH_CHECK(shown_, "tutti: ", call, " on communicator '", comm_->name(), "': no tensor is registered");
    return shown_;
}

/* ---- calls ---- */

TorchCommWindow::WorkPtr TorchCommWindow::submit(const char *name, const std::shared_ptr<Shown> &what, Tensors tensors,
                                                 const How &how, Launcher launcher)
{
    check_hints(name, how.hints, with_call);
    Call call{};
    call.type = c10d::OpType::UNKNOWN;
    call.name = name;
    call.inputs = std::move(tensors);
    call.results = call.inputs;
    call.async = how.async_op;
    call.counted = call.recorded = false;
    call.timeout = how.timeout;
    call.device = what->device;
    call.launch = [what, launcher = std::move(launcher)](const Start &s) { return launcher(s.options, s.work); };
    Request request{OpName::new_window, {}, call.inputs};
    request.async_op = how.async_op;
    return comm_->in_words(name, [&] { return comm_->handle_of(comm_->backend()->submit(std::move(call)), request); });
}

TorchCommWindow::WorkPtr TorchCommWindow::move(const char *call, const Tensor &tensor, int rank, const How &how,
                                               Launcher launcher)
{
    const std::shared_ptr<Shown> what = shown(call);
    TORCH_CHECK(tensor.is_contiguous(), "tutti: ", call, " on ", comm_->described(), ": tensor must be contiguous");
    TORCH_CHECK(tensor.scalar_type() == what->dtype, "tutti: ", call, " on ", comm_->described(),
                ": tensor is of type ", tensor.scalar_type(), ", the window of ", what->dtype);
    TORCH_CHECK(tensor.device() == what->device, "tutti: ", call, " on ", comm_->described(), ": tensor is on ",
                tensor.device(), ", the window on ", what->device, " (rank ", rank, ")");
    return submit(call, what, {tensor}, how, std::move(launcher));
}

TorchCommWindow::WorkPtr TorchCommWindow::put(const Tensor &tensor, int dst_rank, size_t offset, const How &how)
{
    const std::shared_ptr<Shown> to = shown("put");
    const size_t at = offset * tensor.element_size();
    return move("put", tensor, dst_rank, how, [=](const tutti_call_options *options, tutti_work **work) {
        return tutti_put(tensor.data_ptr(), tensor.nbytes(), dst_rank, at, to->window, options, work);
    });
}

TorchCommWindow::WorkPtr TorchCommWindow::get(const Tensor &tensor, int src_rank, size_t offset, const How &how)
{
    const std::shared_ptr<Shown> from = shown("get");
    const size_t at = offset * tensor.element_size();
    return move("get", tensor, src_rank, how, [=](const tutti_call_options *options, tutti_work **work) {
        return tutti_get(tensor.data_ptr(), tensor.nbytes(), src_rank, at, from->window, options, work);
    });
}

TorchCommWindow::WorkPtr TorchCommWindow::put_signal(const Tensor &tensor, int dst_rank, size_t offset, const How &how)
{
    const std::shared_ptr<Shown> to = shown("put_signal");
    const size_t at = offset * tensor.element_size();
    const tutti_signal_info one = {uint32_t(comm_->rank()), TUTTI_SIGNAL_ADD, 1};
    return move("put_signal", tensor, dst_rank, how, [=](const tutti_call_options *options, tutti_work **work) {
        return tutti_put_signal(tensor.data_ptr(), tensor.nbytes(), dst_rank, at, &one, to->window, options, work);
    });
}

TorchCommWindow::WorkPtr TorchCommWindow::signal(int peer_rank, const How &how)
{
    const std::shared_ptr<Shown> to = shown("signal");
    const tutti_signal_info one = {uint32_t(comm_->rank()), TUTTI_SIGNAL_ADD, 1};
    return submit("signal", to, {}, how, [=](const tutti_call_options *options, tutti_work **work) {
        return tutti_signal(&one, peer_rank, to->window, options, work);
    });
}

TorchCommWindow::WorkPtr TorchCommWindow::wait_signal(int peer_rank, const How &how)
{
    const std::shared_ptr<Shown> on = shown("wait_signal");
    TORCH_CHECK(peer_rank >= 0 && size_t(peer_rank) < on->taken.size(), "tutti: wait_signal on ", comm_->described(),
                ": peer_rank must be in range [0, ", on->taken.size(), "), but got ", peer_rank);
    uint64_t next = 0;
    {
        std::lock_guard<std::mutex> guard(on->mutex);
        next = ++on->taken[size_t(peer_rank)];
    }
    return submit("wait_signal", on, {}, how, [=](const tutti_call_options *options, tutti_work **work) {
        return tutti_wait_signal(uint32_t(peer_rank), TUTTI_COMPARE_GE, next, peer_rank, on->window, options, work);
    });
}

int64_t TorchCommWindow::fetch_add(int rank, size_t offset, int64_t value)
{
    const std::shared_ptr<Shown> on = shown("fetch_add");
    auto before = std::make_shared<uint64_t>(0);
    submit("fetch_add", on, {}, {}, [=](const tutti_call_options *options, tutti_work **work) {
        return tutti_fetch_add(uint64_t(value), before.get(), rank, offset * 8, on->window, options, work);
    })->wait_blocking();
    return int64_t(*before);
}

int64_t TorchCommWindow::compare_swap(int rank, size_t offset, int64_t expected, int64_t desired)
{
    const std::shared_ptr<Shown> on = shown("compare_swap");
    auto before = std::make_shared<uint64_t>(0);
    submit("compare_swap", on, {}, {}, [=](const tutti_call_options *options, tutti_work **work) {
        return tutti_compare_swap(uint64_t(expected), uint64_t(desired), before.get(), rank, offset * 8, on->window,
                                  options, work);
    })->wait_blocking();
    return int64_t(*before);
}

TorchCommWindow::WorkPtr TorchCommWindow::flush(std::optional<int> rank, const How &how)
{
    const std::shared_ptr<Shown> on = shown("flush");
    return submit("flush", on, {}, how, [=](const tutti_call_options *options, tutti_work **work) {
        return tutti_flush(rank.value_or(TUTTI_ALL_PEERS), on->window, options, work);
    });
}

void TorchCommWindow::fence()
{
    const std::shared_ptr<Shown> on = shown("fence");
    comm_->in_words("fence", [&] { check(tutti_fence(on->window, nullptr)); });
}

/* ---- what it is ---- */

Tensor TorchCommWindow::map_remote_tensor(int rank)
{
    const std::shared_ptr<Shown> of = shown("map_remote_tensor");
    size_t bytes = 0;
    void *address = tutti_window_peer(of->window, rank, &bytes);
    TORCH_CHECK(address, "tutti: map_remote_tensor on ", comm_->described(), ": the part of rank ", rank,
                " can not be mapped here (get_attr tells)");
    const auto options = at::TensorOptions().dtype(of->dtype).device(of->device);
    const int64_t count = int64_t(bytes / c10::elementSize(of->dtype));
    const std::vector<int64_t> shape = bytes == of->bytes ? of->shape : std::vector<int64_t>{count};
    at::AutoDispatchBelowAutograd guard;
    return at::from_blob(
        address, shape, [of](void *) {}, options);
}

TorchCommWindow::Access TorchCommWindow::access(int peer_rank)
{
    const std::shared_ptr<Shown> of = shown("get_attr");
    TORCH_CHECK(peer_rank >= 0 && size_t(peer_rank) < of->taken.size(), "tutti: get_attr on ", comm_->described(),
                ": peer_rank must be in range [0, ", of->taken.size(), "), but got ", peer_rank);
    return tutti_window_peer(of->window, peer_rank, nullptr) ? Access::unified : Access::separate;
}

size_t TorchCommWindow::bytes() const
{
    std::lock_guard<std::mutex> guard(mutex_);
    return shown_ ? shown_->bytes : 0;
}

std::optional<Tensor> TorchCommWindow::tensor() const
{
    std::lock_guard<std::mutex> guard(mutex_);
    return shown_ && shown_->kept.defined() ? std::make_optional(shown_->kept) : std::nullopt;
}

at::ScalarType TorchCommWindow::dtype() const
{
    return shown("dtype")->dtype;
}

std::vector<int64_t> TorchCommWindow::shape() const
{
    return shown("shape")->shape;
}

c10::Device TorchCommWindow::device() const
{
    return shown("device")->device;
}

} // namespace tutti_torch
