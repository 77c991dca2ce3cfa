/* SPDX-License-Identifier: BSD-3-Clause */

/* The life of a communicator behind torchcomms, and its calls. */

#include "torchcomms/plug.hpp"

#include <torch/csrc/utils/pybind.h>

#include <future>
#include <thread>
#include <utility>

namespace tutti_torch
{

namespace
{

struct Last {
    std::mutex mutex;
    std::weak_ptr<TorchComm> comm;
};

Last &last()
{
    static auto *found = new Last(); /* programs may end while communicators are made */
    return *found;
}

} // namespace

std::shared_ptr<c10::Allocator> memory_of_last_communicator()
{
    std::lock_guard<std::mutex> guard(last().mutex);
    const TorchComm::Ptr comm = last().comm.lock();
    TORCH_CHECK(comm, "tutti: get_mem_allocator: memory belongs to a communicator, and there is none: make one first");
    return comm->mem_allocator();
}

/* That a failure ends the process is torchcomms' default, which can not be told from a wish: here, as with torchcomms'
 * gloo, it is an error, unless the environment asks for the end, too. */
static CommOptions options_from(const torch::comms::CommOptions &options)
{
    CommOptions ours; /* as the environment says */
    ours.abort_process_on_timeout_or_error &= options.abort_process_on_timeout_or_error;
    ours.timeout = options.timeout;
    ours.is_high_priority_stream = options.is_high_priority_stream;
    ours.store = options.store;
    ours.enable_reconfigure = options.enable_reconfigure;
    ours.hints = options.hints;
    return ours;
}

PluggedBackend::PluggedBackend(std::string which, TorchComm::Ptr comm, const CommOptionsThere &options)
    : which_(std::move(which)), comm_(std::move(comm)), options_(options), device_(comm_->device())
{
    options_.store = nullptr; /* its maker may end it */
}

void PluggedBackend::init(at::Device device, const std::string &name, const CommOptionsThere &options)
{
    TORCH_CHECK(!comm_, "tutti: communicator '", name, "' is initialized already");
    comm_ = TorchComm::create(which_, device, name, options_from(options));
    options_ = options;
    options_.store = nullptr;
    device_ = comm_->device();
    std::lock_guard<std::mutex> guard(last().mutex);
    last().comm = comm_;
}

std::shared_ptr<torch::comms::TorchCommBackend>
PluggedBackend::split(const std::vector<int> &ranks, const std::string &name, const CommOptionsThere &options)
{
    TorchComm::Ptr child = comm_->split(ranks, name, options_from(options));
    return child ? std::make_shared<PluggedBackend>(which_, std::move(child), options) : nullptr;
}

void PluggedBackend::setTimeout(milliseconds timeout)
{
    comm_->set_timeout(timeout);
    options_.timeout = timeout;
}

/* ---- hooks ---- */

/* Hooks may be functions of Python, which are copied and let go with the GIL alone: one is kept for all who copy. */
using KeptHook = std::shared_ptr<const torch::comms::AbortHook>;

static KeptHook kept(torch::comms::AbortHook hook)
{
    return KeptHook(new torch::comms::AbortHook(std::move(hook)), [](const torch::comms::AbortHook *last) {
        if (!Py_IsInitialized()) return;
        pybind11::gil_scoped_acquire gil;
        delete last;
    });
}

/* torchcomms' hooks take their time, since the process is about to end: its flight recorder sleeps for 15 s. Where it
 * goes on, its error does not wait for that. */
static void run_in_short(const KeptHook &hook)
{
    auto over = std::make_shared<std::promise<void>>();
    std::future<void> told = over->get_future();
    std::thread([hook, over] {
        try {
            (*hook)();
            over->set_value();
        } catch (...) {
            over->set_exception(std::current_exception());
        }
    }).detach();
    if (told.wait_for(std::chrono::seconds(2)) == std::future_status::ready) told.get();
}

void PluggedBackend::registerAbortHook(int64_t id, torch::comms::AbortHook hook)
{
    const bool ends = comm_->options().abort_process_on_timeout_or_error;
    auto run = [one = kept(std::move(hook)), ends] { ends ? (*one)() : run_in_short(one); };
    std::lock_guard<std::mutex> guard(hooks_mutex_);
    abort_handles_.emplace(id, comm_->register_abort_hook(std::move(run)));
}

void PluggedBackend::unregisterAbortHook(int64_t id)
{
    std::lock_guard<std::mutex> guard(hooks_mutex_);
    auto found = abort_handles_.find(id);
    if (found == abort_handles_.end()) return;
    found->second.remove();
    abort_handles_.erase(found);
}

/* They are kept, and never called: a graph that is replayed is the device's matter alone, no thread of ours sees it.
 * Logs register one with every communicator: where there are no graphs, that is nobody's loss. */
void PluggedBackend::registerGraphReplayHook(int64_t id, torch::comms::GraphReplayHook hook)
{
    if (device_.is_cuda()) {
        TORCH_WARN_ONCE("tutti: registerGraphReplayHook on ", comm_->described(),
                        ": hooks of graph replays are never called; those of calls are, when a graph is captured");
    }
    graphReplayHooks_.emplace(id, std::move(hook));
}

void PluggedBackend::unregisterGraphReplayHook(int64_t id)
{
    graphReplayHooks_.erase(id);
}

/* ---- reconfiguration ---- */

PluggedBackend::WorkThere PluggedBackend::reconfigure(const torch::comms::ReconfigureOptions &options)
{
    ReconfigureOptions ours;
    ours.uuid = options.uuid;
    ours.timeout = options.timeout;
    ours.hints = options.hints;
    std::visit([&](const auto &handles) { ours.handles.assign(handles.begin(), handles.end()); }, options.handles);
    ours.ordered = std::holds_alternative<std::vector<InitHandle>>(options.handles);
    auto work = comm_->reconfigure(std::move(ours));
    return PluggedWork::of(std::move(work), options.timeout.value_or(options_.timeout));
}

int64_t PluggedBackend::get_device_transport()
{
    refuse_device_transport(*comm_);
}

/* Calls. */

using WorkThere = PluggedBackend::WorkThere;

static ReduceOp op_from(const torch::comms::ReduceOp &op)
{
    if (op.factor_) return ReduceOp::premul_sum(*op.factor_);
    return ReduceOp(static_cast<ReduceOp::Type>(static_cast<int>(op.type_))); /* the same words in the same order */
}

WorkThere PluggedBackend::run(Request request, const Options &options)
{
    request.hints = options.hints;
    request.timeout = options.timeout;
    return handle_of(comm_->run(std::move(request)), options);
}

/* What it says of its deadline is the call's, or the communicator's. */
WorkThere PluggedBackend::handle_of(TorchComm::WorkPtr work, const Options &options) const
{
    return PluggedWork::of(std::move(work), options.timeout.count() > 0 ? options.timeout : options_.timeout);
}

/* ---- messages ---- */

static Request tagged(Request request, int tag)
{
    request.tag = tag;
    return request;
}

WorkThere PluggedBackend::send(const Tensor &tensor, int dst, bool async, const MessageOptions &options)
{
    return run(tagged(request<OpName::send>(async, tensor, dst), options.tag), options);
}

WorkThere PluggedBackend::recv(Tensor &tensor, int src, bool async, const MessageOptions &options)
{
    return run(tagged(request<OpName::recv>(async, tensor, src), options.tag), options);
}

WorkThere PluggedBackend::batch_op_issue(const P2POps &ops, bool async, const Options &options)
{
    using Op = torch::comms::BatchSendRecv::P2POp;
    std::vector<Request> batch;
    for (const Op &op : ops) {
        const bool sends = op.type == Op::OpType::SEND;
        batch.push_back(sends ? request<OpName::send>(async, op.tensor, op.peer)
                              : request<OpName::recv>(async, op.tensor, op.peer));
    }
    return handle_of(comm_->run_batch(std::move(batch), async, options.hints, options.timeout), options);
}

/* ---- collectives ---- */

WorkThere PluggedBackend::broadcast(Tensor &tensor, int root, bool async, const Options &options)
{
    return run(request<OpName::broadcast>(async, tensor, root), options);
}

WorkThere PluggedBackend::all_reduce(Tensor &tensor, const OpThere &op, bool async, const Options &options)
{
    return run(request<OpName::all_reduce>(async, tensor, op_from(op)), options);
}

WorkThere PluggedBackend::reduce(const Tensor &tensor, int root, const OpThere &op, bool async, const Options &options)
{
    return run(request<OpName::reduce>(async, tensor, root, op_from(op)), options);
}

WorkThere PluggedBackend::all_gather(const Tensors &list, const Tensor &tensor, bool async, const Options &options)
{
    return run(request<OpName::all_gather>(async, list, tensor), options);
}

WorkThere PluggedBackend::all_gather_v(const Tensors &list, const Tensor &tensor, bool async, const Options &options)
{
    return run(request<OpName::all_gather_v>(async, list, tensor), options);
}

WorkThere PluggedBackend::all_gather_single(Tensor &output, const Tensor &input, bool async, const Options &options)
{
    return run(request<OpName::all_gather_single>(async, output, input), options);
}

WorkThere PluggedBackend::reduce_scatter(Tensor &output, const Tensors &list, const OpThere &op, bool async,
                                         const Options &options)
{
    return run(request<OpName::reduce_scatter>(async, output, list, op_from(op)), options);
}

WorkThere PluggedBackend::reduce_scatter_v(Tensor &output, const Tensors &list, const OpThere &op, bool async,
                                           const Options &options)
{
    return run(request<OpName::reduce_scatter_v>(async, output, list, op_from(op)), options);
}

WorkThere PluggedBackend::reduce_scatter_single(Tensor &output, const Tensor &input, const OpThere &op, bool async,
                                                const Options &options)
{
    return run(request<OpName::reduce_scatter_single>(async, output, input, op_from(op)), options);
}

WorkThere PluggedBackend::all_to_all_single(Tensor &output, const Tensor &input, bool async, const Options &options)
{
    return run(request<OpName::all_to_all_single>(async, output, input), options);
}

WorkThere PluggedBackend::all_to_all_v_single(Tensor &output, const Tensor &input, const Splits &output_splits,
                                              const Splits &input_splits, bool async, const Options &options)
{
    return run(request<OpName::all_to_all_v_single>(async, output, input, output_splits, input_splits), options);
}

WorkThere PluggedBackend::all_to_all(const Tensors &outputs, const Tensors &inputs, bool async, const Options &options)
{
    return run(request<OpName::all_to_all>(async, outputs, inputs), options);
}

WorkThere PluggedBackend::barrier(bool async, const Options &options)
{
    return run(request<OpName::barrier>(async), options);
}

WorkThere PluggedBackend::scatter(Tensor &output, const Tensors &list, int root, bool async, const Options &options)
{
    return run(request<OpName::scatter>(async, output, list, root), options);
}

WorkThere PluggedBackend::gather(const Tensors &list, const Tensor &input, int root, bool async, const Options &options)
{
    return run(request<OpName::gather>(async, list, input, root), options);
}

WorkThere PluggedBackend::gather_single(Tensor &output, const Tensor &input, int root, bool async,
                                        const Options &options)
{
    return run(request<OpName::gather_single>(async, output, input, root), options);
}

} // namespace tutti_torch
