/* SPDX-License-Identifier: BSD-3-Clause */

/* Windows: each method is one call of the library, on the way that all calls of the backend take. */

#include "comms/window.hpp"

#include "base/native.hpp"
#include "base/process.hpp"
#include "comms/hints.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <tutti/device.h>

#include <algorithm>

namespace tutti_torch
{

TorchCommWindow::Shown::~Shown()
{
    const WithoutGil without_gil;
    tutti_window_destroy(window);
}

/* ---- what is shown ---- */

std::shared_ptr<TorchCommWindow> TorchCommWindow::create(std::shared_ptr<TorchComm> comm,
                                                         const std::optional<Tensor> &tensor, uint32_t n_signals)
{
    TorchComm &in = *comm;
    return in.between_hooks(Request{OpName::new_window}, [&] {
        auto made = std::make_shared<TorchCommWindow>(std::move(comm), n_signals);
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
        TORCH_CHECK(tensor.device().is_cpu() || is_native(tensor.device()),
                    "windows are of the host or of CUDA and XPU devices, not of ", tensor.device());
        auto made = std::make_shared<Shown>();
        Backend::WindowPlace place = comm_->backend()->place_of_window(tensor.device());
        made->comm = std::move(place.comm);
        made->parts = std::move(place.parts);
        if (owning) made->kept = tensor;
        made->dtype = tensor.scalar_type();
        made->shape = tensor.sizes().vec();
        made->device = tensor.device();
        made->bytes = tensor.nbytes();
        made->taken.resize(size_t(comm_->size()));
        tutti_window_config config = TUTTI_WINDOW_CONFIG_INIT;
        config.n_signals = uint32_t(std::min<uint64_t>(uint64_t(comm_->size()) + n_signals_, UINT32_MAX));
        check(tutti_window_create(made->comm->handle(), tensor.data_ptr(), made->bytes, &config, &made->window));
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
        tutti_comm *comm = last->comm->handle();
        auto on_host = [](c10::DeviceType type) { return type == c10::kCPU; };
        const bool streams = !std::all_of(last->parts.begin(), last->parts.end(), on_host);
        /* What is on any stream has started: a barrier waits for that. Failed or not, another tensor may be next. */
        tutti_status status = streams ? tutti_barrier(comm, nullptr, nullptr) : TUTTI_OK;
        if (status == TUTTI_OK) status = tutti_flush(TUTTI_ALL_PEERS, last->window, nullptr, nullptr);
        if (status == TUTTI_OK) status = tutti_barrier(comm, nullptr, nullptr);
        std::lock_guard<std::mutex> guard(mutex_);
        shown_.reset();
        check(status);
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

TorchCommWindow::WorkPtr TorchCommWindow::submit(const char *name, const std::shared_ptr<Shown> &what, const How &how,
                                                 Launch launch, Tensors inputs, Tensors outputs)
{
    check_hints(name, how.hints, with_call);
    Call call{};
    call.type = c10d::OpType::UNKNOWN;
    call.name = name;
    call.inputs = std::move(inputs);
    call.outputs = std::move(outputs);
    call.results = call.outputs.empty() ? call.inputs : call.outputs;
    call.async = how.async_op;
    call.counted = call.recorded = false;
    call.timeout = how.timeout;
    call.device = what->device;
    call.on_host = what->device.is_cpu();
    call.launch = [what, launch = std::move(launch)](const Start &s) { return launch(s); };
    const c10::Device place = call.results.empty() ? what->device : call.results[0].device();
    return comm_->in_words(
        name, [&] { return comm_->handle_of(comm_->backend()->submit(std::move(call)), how.async_op, place); });
}

/* Tensors of devices go to and from a window whose own part is on the host by a copy, and the call is the host's;
 * tensors of the host to one on a device by a copy there. */
TorchCommWindow::WorkPtr TorchCommWindow::move(const char *call, const Tensor &tensor, Way way, int rank,
                                               const How &how, Launch launch)
{
    const std::shared_ptr<Shown> what = shown(call);
    TORCH_CHECK(tensor.is_contiguous(), "tutti: ", call, " on ", comm_->described(), ": tensor must be contiguous");
    TORCH_CHECK(tensor.scalar_type() == what->dtype, "tutti: ", call, " on ", comm_->described(),
                ": tensor is of type ", tensor.scalar_type(), ", the window of ", what->dtype);
    const bool copied = way == Way::to_peer && tensor.device().is_cpu() && !what->device.is_cpu();
    TORCH_CHECK(copied || what->device.is_cpu() || tensor.device() == what->device, "tutti: ", call, " on ",
                comm_->described(), ": tensor is on ", tensor.device(), ", the window on ", what->device, " (rank ",
                rank, ")");
    at::AutoDispatchBelowAutograd below;
    const Tensors one = {copied ? tensor.to(what->device) : tensor};
    return submit(call, what, how, std::move(launch), way == Way::to_peer ? one : Tensors(),
                  way == Way::to_peer ? Tensors() : one);
}

/* An offset of elements in bytes; one that no part can have stays too large for all of them. */
static size_t in_bytes(size_t offset, size_t element)
{
    return element > 0 && offset > SIZE_MAX / element ? SIZE_MAX : offset * element;
}

TorchCommWindow::WorkPtr TorchCommWindow::put(const Tensor &tensor, int dst_rank, size_t offset, const How &how)
{
    const std::shared_ptr<Shown> to = shown("put");
    const size_t at = in_bytes(offset, tensor.element_size()), bytes = tensor.nbytes();
    return move("put", tensor, Way::to_peer, dst_rank, how,
                [=](const Start &s) { return tutti_put(s.in[0], bytes, dst_rank, at, to->window, s.options, s.work); });
}

/* It is there when this returns. */
TorchCommWindow::WorkPtr TorchCommWindow::get_to_host(const Tensor &tensor, int src_rank, size_t offset, How how)
{
    at::AutoDispatchBelowAutograd below;
    TORCH_CHECK(tensor.is_contiguous(), "tutti: get on ", comm_->described(), ": tensor must be contiguous");
    const Tensor there = at::empty_like(tensor, tensor.options().device(shown("get")->device));
    how.async_op = false;
    get(there, src_rank, offset, how)->wait();
    tensor.copy_(there);
    return TorchWork::complete();
}

TorchCommWindow::WorkPtr TorchCommWindow::get(const Tensor &tensor, int src_rank, size_t offset, const How &how)
{
    const std::shared_ptr<Shown> from = shown("get");
    if (tensor.device().is_cpu() && !from->device.is_cpu()) return get_to_host(tensor, src_rank, offset, how);
    const size_t at = in_bytes(offset, tensor.element_size()), bytes = tensor.nbytes();
    return move("get", tensor, Way::from_peer, src_rank, how, [=](const Start &s) {
        return tutti_get(s.out[0], bytes, src_rank, at, from->window, s.options, s.work);
    });
}

/* ---- signals: words of all ranks, and behind them those that have an index ---- */

uint32_t TorchCommWindow::word_of(const char *call, uint32_t index) const
{
    TORCH_CHECK(index < n_signals_, "tutti: ", call, " on ", comm_->described(), ": index must be in range [0, ",
                n_signals_, "), but got ", index, " (new_window(n_signals=...) says how many there are)");
    return uint32_t(comm_->size()) + index;
}

tutti_signal_info TorchCommWindow::info_of(const char *call, const Signal &signal) const
{
    TORCH_CHECK(signal.index || signal.op == TUTTI_SIGNAL_ADD, "tutti: ", call, " on ", comm_->described(),
                ": a signal that is set, and not added to, needs an index");
    const uint32_t word = signal.index ? word_of(call, *signal.index) : uint32_t(comm_->rank());
    return {word, signal.op, signal.value};
}

TorchCommWindow::WorkPtr TorchCommWindow::put_signal(const Tensor &tensor, int dst_rank, size_t offset, const How &how,
                                                     const Signal &signal)
{
    const std::shared_ptr<Shown> to = shown("put_signal");
    const size_t at = in_bytes(offset, tensor.element_size()), bytes = tensor.nbytes();
    const tutti_signal_info info = info_of("put_signal", signal);
    return move("put_signal", tensor, Way::to_peer, dst_rank, how, [=](const Start &s) {
        return tutti_put_signal(s.in[0], bytes, dst_rank, at, &info, to->window, s.options, s.work);
    });
}

TorchCommWindow::WorkPtr TorchCommWindow::signal(int peer_rank, const How &how, const Signal &signal)
{
    const std::shared_ptr<Shown> to = shown("signal");
    const tutti_signal_info info = info_of("signal", signal);
    return submit("signal", to, how,
                  [=](const Start &s) { return tutti_signal(&info, peer_rank, to->window, s.options, s.work); });
}

TorchCommWindow::WorkPtr TorchCommWindow::wait_signal(int peer_rank, const How &how, const Until &until)
{
    const std::shared_ptr<Shown> on = shown("wait_signal");
    const bool any = until.index && peer_rank == -1;
    TORCH_CHECK(any || (peer_rank >= 0 && size_t(peer_rank) < on->taken.size()), "tutti: wait_signal on ",
                comm_->described(), ": peer_rank must be in range [0, ", on->taken.size(), "), but got ", peer_rank);
    TORCH_CHECK(until.index || (until.value == 1 && until.compare == TUTTI_COMPARE_GE), "tutti: wait_signal on ",
                comm_->described(), ": a signal that is compared needs an index");
    uint32_t word = uint32_t(peer_rank);
    uint64_t value = until.value;
    if (until.index) {
        word = word_of("wait_signal", *until.index);
    } else {
        std::lock_guard<std::mutex> guard(on->mutex);
        value = ++on->taken[size_t(peer_rank)];
    }
    const int32_t from = any ? TUTTI_ANY_SOURCE : peer_rank;
    return submit("wait_signal", on, how, [=, compare = until.compare](const Start &s) {
        return tutti_wait_signal(word, compare, value, from, on->window, s.options, s.work);
    });
}

uint64_t TorchCommWindow::read_signal(uint32_t index)
{
    const std::shared_ptr<Shown> on = shown("read_signal");
    const uint32_t word = word_of("read_signal", index);
    uint64_t value = 0;
    comm_->in_words("read_signal", [&] { check(tutti_signal_read(word, &value, on->window, nullptr)); });
    return value;
}

void TorchCommWindow::write_signal(uint32_t index, uint64_t value)
{
    const std::shared_ptr<Shown> on = shown("write_signal");
    const uint32_t word = word_of("write_signal", index);
    comm_->in_words("write_signal", [&] { check(tutti_signal_write(word, value, on->window, nullptr)); });
}

/* ---- atomics ---- */

void TorchCommWindow::check_result(const char *call, const Shown &on, const Tensor &result) const
{
    TORCH_CHECK(result.scalar_type() == at::kLong && result.numel() == 1, "tutti: ", call, " on ", comm_->described(),
                ": result must be one int64, it has ", result.numel(), " elements of ", result.scalar_type());
    TORCH_CHECK(result.device() == on.device, "tutti: ", call, " on ", comm_->described(), ": result is on ",
                result.device(), ", the window on ", on.device);
}

TorchCommWindow::WorkPtr TorchCommWindow::fetch_add_into(const Tensor &result, int rank, size_t offset, int64_t value,
                                                         const How &how)
{
    const std::shared_ptr<Shown> on = shown("fetch_add_into");
    check_result("fetch_add_into", *on, result);
    auto launch = [=](const Start &s) {
        return tutti_fetch_add(uint64_t(value), static_cast<uint64_t *>(s.out[0]), rank, in_bytes(offset, 8),
                               on->window, s.options, s.work);
    };
    return submit("fetch_add", on, how, launch, {}, {result});
}

TorchCommWindow::WorkPtr TorchCommWindow::compare_swap_into(const Tensor &result, int rank, size_t offset,
                                                            int64_t expected, int64_t desired, const How &how)
{
    const std::shared_ptr<Shown> on = shown("compare_swap_into");
    check_result("compare_swap_into", *on, result);
    auto launch = [=](const Start &s) {
        return tutti_compare_swap(uint64_t(expected), uint64_t(desired), static_cast<uint64_t *>(s.out[0]), rank,
                                  in_bytes(offset, 8), on->window, s.options, s.work);
    };
    return submit("compare_swap", on, how, launch, {}, {result});
}

int64_t TorchCommWindow::fetch_add(int rank, size_t offset, int64_t value)
{
    const std::shared_ptr<Shown> on = shown("fetch_add");
    auto before = std::make_shared<uint64_t>(0);
    submit("fetch_add", on, {}, [=](const Start &s) {
        return tutti_fetch_add(uint64_t(value), before.get(), rank, in_bytes(offset, 8), on->window, s.options, s.work);
    })->wait_blocking();
    return int64_t(*before);
}

int64_t TorchCommWindow::compare_swap(int rank, size_t offset, int64_t expected, int64_t desired)
{
    const std::shared_ptr<Shown> on = shown("compare_swap");
    auto before = std::make_shared<uint64_t>(0);
    submit("compare_swap", on, {}, [=](const Start &s) {
        return tutti_compare_swap(uint64_t(expected), uint64_t(desired), before.get(), rank, in_bytes(offset, 8),
                                  on->window, s.options, s.work);
    })->wait_blocking();
    return int64_t(*before);
}

/* ---- order ---- */

TorchCommWindow::WorkPtr TorchCommWindow::flush(std::optional<int> rank, const How &how)
{
    const std::shared_ptr<Shown> on = shown("flush");
    return submit("flush", on, how, [=](const Start &s) {
        return tutti_flush(rank.value_or(TUTTI_ALL_PEERS), on->window, s.options, s.work);
    });
}

void TorchCommWindow::fence()
{
    const std::shared_ptr<Shown> on = shown("fence");
    comm_->in_words("fence", [&] { check(tutti_fence(on->window, nullptr)); });
}

/* ---- for kernels ---- */

/* "ranks 0 to 3, 5" */
static std::string named(const std::vector<int> &ranks)
{
    std::string text = ranks.empty() ? "no rank" : ranks.size() == 1 ? "rank " : "ranks ";
    for (size_t i = 0; i < ranks.size(); i++) {
        size_t last = i;
        while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) last++;
        text += c10::str(i == 0 ? "" : ", ", ranks[i]);
        if (last > i) text += c10::str(last == i + 1 ? ", " : " to ", ranks[last]);
        i = last;
    }
    return text;
}

void refuse_device_transport(TorchComm &comm)
{
    const std::shared_ptr<Comm> on = comm.backend()->comm_of(comm.device());
    std::vector<int> by_kernels, in_place, by_messages;
    for (int r = 0; r < comm.size(); r++) {
        const uint32_t reach = tutti_window_reach(on->handle(), r);
        if (reach & TUTTI_REACH_DEVICE) by_kernels.push_back(r);
        if (reach & TUTTI_REACH_HOST) in_place.push_back(r);
        if (!reach) by_messages.push_back(r);
    }
    std::string text = "kernels of torchcomms have none here. In place new_window(tensor) reaches the devices of ";
    text += named(by_kernels);
    if (!by_kernels.empty()) text += ", as kernels do (get_device_window(), tutti/device.cuh)";
    text += ", and memory of the host that allocate_tensor gave to " + named(in_place) + "; by messages ";
    text += (by_messages.empty() ? "" : named(by_messages) + " and ") + "all other memory";
    TORCH_CHECK(false, "tutti: get_device_transport on ", comm.described(), ": ", text);
}

int64_t TorchCommWindow::device_window(int n_signals, int n_counters, int n_barriers)
{
    const std::shared_ptr<Shown> of = shown("get_device_window");
    const std::string who = comm_->described();
    const int all = comm_->size() + int(n_signals_);
    TORCH_CHECK(n_signals <= all, "tutti: get_device_window on ", who, ": signal_count is ", n_signals,
                ", but the window has ", all, " signals (new_window(n_signals=...) says how many)");
    TORCH_CHECK(n_counters <= 0, "tutti: get_device_window on ", who, ": counter_count is ", n_counters,
                ", but windows have no counters: puts of kernels are complete at the next signal or flush");
    TORCH_CHECK(n_barriers <= TUTTI_DEVICE_BARRIERS, "tutti: get_device_window on ", who, ": barrier_count is ",
                n_barriers, ", but there are ", TUTTI_DEVICE_BARRIERS);
    return comm_->in_words("get_device_window", [&] {
        std::lock_guard<std::mutex> guard(of->mutex);
        if (!of->for_kernels.defined()) {
            tutti_device_window made{};
            made.size = sizeof made;
            check(tutti_window_device(of->window, &made));
            at::AutoDispatchBelowAutograd below;
            of->for_kernels = at::from_blob(&made, {int64_t(sizeof made)}, at::kByte).to(of->device);
        }
        return int64_t(reinterpret_cast<intptr_t>(of->for_kernels.data_ptr()));
    });
}

int64_t TorchCommWindow::register_local_buffer(const Tensor &tensor)
{
    const std::shared_ptr<Shown> of = shown("register_local_buffer");
    const std::string who = comm_->described();
    TORCH_CHECK(of->device.is_cuda(), "tutti: register_local_buffer on ", who, ": the window is on ", of->device,
                ": kernels use windows of CUDA devices");
    TORCH_CHECK(tensor.device() == of->device, "tutti: register_local_buffer on ", who, ": tensor is on ",
                tensor.device(), ", the window on ", of->device);
    TORCH_CHECK(tensor.is_contiguous(), "tutti: register_local_buffer on ", who, ": tensor must be contiguous");
    std::lock_guard<std::mutex> guard(mutex_);
    local_buffers_.push_back(tensor);
    return int64_t(reinterpret_cast<intptr_t>(tensor.data_ptr()));
}

void TorchCommWindow::deregister_local_buffer(int64_t handle)
{
    const std::string who = comm_->described();
    auto is_it = [handle](const Tensor &known) {
        return int64_t(reinterpret_cast<intptr_t>(known.data_ptr())) == handle;
    };
    std::lock_guard<std::mutex> guard(mutex_);
    auto found = std::find_if(local_buffers_.begin(), local_buffers_.end(), is_it);
    TORCH_CHECK(found != local_buffers_.end(), "tutti: deregister_local_buffer on ", who, ": no tensor at ", handle,
                " is registered");
    local_buffers_.erase(found);
}

/* ---- what it is ---- */

Tensor TorchCommWindow::map_remote_tensor(int rank)
{
    const std::shared_ptr<Shown> of = shown("map_remote_tensor");
    size_t bytes = 0;
    void *address = tutti_window_peer(of->window, rank, &bytes);
    TORCH_CHECK(address, "tutti: map_remote_tensor on ", comm_->described(), ": the part of rank ", rank,
                " can not be mapped here (get_attr tells)");
    const bool on_host = of->parts.at(size_t(rank)) == c10::kCPU;
    const c10::Device place = on_host ? c10::Device(c10::kCPU) : of->device;
    const auto options = at::TensorOptions().dtype(of->dtype).device(place);
    const int64_t count = int64_t(bytes / c10::elementSize(of->dtype));
    const std::vector<int64_t> shape = bytes == of->bytes ? of->shape : std::vector<int64_t>{count};
    at::AutoDispatchBelowAutograd guard;
    return at::for_blob(address, shape)
        .deleter([of](void *) {})
        .options(options)
        .target_device(place) /* memory of a peer may be another device's */
        .make_tensor();
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
