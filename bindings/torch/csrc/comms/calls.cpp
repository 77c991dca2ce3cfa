/* SPDX-License-Identifier: BSD-3-Clause */

/* How a request becomes a call of the backend, between the hooks, and its errors this API's. */

#include "comms/comms.hpp"
#include "comms/follow.hpp"
#include "comms/hints.hpp"
#include "comms/quantized.hpp"
#include "comms/told.hpp"

#include <array>
#include <atomic>

namespace tutti_torch
{

/* ---- words ---- */

static constexpr const char *op_names[] = {
    "send",
    "recv",
    "broadcast",
    "all_reduce",
    "reduce",
    "all_gather",
    "all_gather_v",
    "all_gather_single",
    "reduce_scatter",
    "reduce_scatter_v",
    "reduce_scatter_single",
    "all_to_all_single",
    "all_to_all_v_single",
    "all_to_all",
    "barrier",
    "scatter",
    "gather",
    "gather_single",
    "split",
    "new_window",
    "batch_op_issue",
    "finalize",
};
static_assert(std::size(op_names) == n_op_names);

const char *text_of(OpName name)
{
    return op_names[size_t(name)];
}

ReduceOp ReduceOp::premul_sum(Factor factor)
{
    ReduceOp op;
    op.type = Type::PREMUL_SUM;
    op.factor = std::move(factor);
    return op;
}

c10d::ReduceOp ReduceOp::as_c10d() const
{
    using Word = c10d::ReduceOp::RedOpType;
    constexpr Word words[] = {Word::SUM, Word::PRODUCT, Word::MIN,        Word::MAX, Word::BAND,
                              Word::BOR, Word::BXOR,    Word::PREMUL_SUM, Word::AVG};
    if (type != Type::PREMUL_SUM) return c10d::ReduceOp(words[size_t(type)]);
    c10d::ReduceOp op;
    op.op_ = Word::PREMUL_SUM;
    op.supplement_ =
        std::visit([](const auto &given) { return c10::make_intrusive<c10d::NCCLPreMulSumSupplement>(given); }, factor);
    return op;
}

/* ---- from requests to calls of the backend ---- */

namespace
{

using Started = c10::intrusive_ptr<c10d::Work>;
using Starter = Started (*)(Backend &, Request &);

template <typename Options> void set_async(Options &options, bool async_op, decltype(options.asyncOp) *)
{
    options.asyncOp = async_op;
}
template <typename Options> void set_async(Options &, bool, ...)
{
    /* options without the field predate it: their calls are asynchronous */
}

template <typename Options> Options options_for(const Request &request)
{
    Options options;
    set_async(options, request.async_op, nullptr);
    if (request.timeout.count() > 0) options.timeout = request.timeout;
    return options;
}

template <typename Options> Options reducing(const Request &request)
{
    Options options = options_for<Options>(request);
    options.reduceOp = request.op.as_c10d();
    return options;
}

template <typename Options> Options rooted(const Request &request)
{
    Options options = options_for<Options>(request);
    options.rootRank = request.peer;
    return options;
}

Started start_message(Backend &backend, Request &request)
{
    return backend.submit(backend.message(request.name == OpName::send,
                                          request.name == OpName::send ? request.inputs : request.outputs, request.peer,
                                          request.tag, request.async_op, request.timeout));
}

Started start_broadcast(Backend &backend, Request &request)
{
    return backend.broadcast(request.outputs, rooted<c10d::BroadcastOptions>(request));
}

Started start_all_reduce(Backend &backend, Request &request)
{
    return backend.allreduce(request.outputs, reducing<c10d::AllreduceOptions>(request));
}

Started start_reduce(Backend &backend, Request &request)
{
    c10d::ReduceOptions options = reducing<c10d::ReduceOptions>(request);
    options.rootRank = request.peer;
    return backend.reduce(request.outputs, options);
}

Started start_all_gather(Backend &backend, Request &request)
{
    std::vector<Tensors> outputs = {request.outputs};
    return backend.allgather(outputs, request.inputs, options_for<c10d::AllgatherOptions>(request));
}

Started start_all_gather_single(Backend &backend, Request &request)
{
    return backend._allgather_base(request.outputs[0], request.inputs[0], options_for<c10d::AllgatherOptions>(request));
}

Started start_reduce_scatter(Backend &backend, Request &request)
{
    std::vector<Tensors> inputs = {request.inputs};
    return backend.reduce_scatter(request.outputs, inputs, reducing<c10d::ReduceScatterOptions>(request));
}

Started start_reduce_scatter_single(Backend &backend, Request &request)
{
    return backend._reduce_scatter_base(request.outputs[0], request.inputs[0],
                                        reducing<c10d::ReduceScatterOptions>(request));
}

/* Without splits: equal ones. */
Started start_all_to_all_single(Backend &backend, Request &request)
{
    std::vector<int64_t> out(request.output_splits.begin(), request.output_splits.end());
    std::vector<int64_t> in(request.input_splits.begin(), request.input_splits.end());
    return backend.alltoall_base(request.outputs[0], request.inputs[0], out, in,
                                 options_for<c10d::AllToAllOptions>(request));
}

Started start_all_to_all(Backend &backend, Request &request)
{
    return backend.alltoall(request.outputs, request.inputs, options_for<c10d::AllToAllOptions>(request));
}

Started start_barrier(Backend &backend, Request &request)
{
    c10d::BarrierOptions options = options_for<c10d::BarrierOptions>(request);
    options.device = backend.own_device();
    return backend.barrier(options);
}

/* Only the root's list counts. */
Started start_scatter(Backend &backend, Request &request)
{
    std::vector<Tensors> inputs;
    if (request.peer == backend.getRank()) inputs.push_back(request.inputs);
    return backend.scatter(request.outputs, inputs, rooted<c10d::ScatterOptions>(request));
}

Started start_gather(Backend &backend, Request &request)
{
    std::vector<Tensors> outputs;
    if (request.peer == backend.getRank()) outputs.push_back(request.outputs);
    return backend.gather(outputs, request.inputs, rooted<c10d::GatherOptions>(request));
}

Started start_gather_single(Backend &backend, Request &request)
{
    return backend.gather_into_tensor(request.outputs[0], request.inputs[0], rooted<c10d::GatherOptions>(request));
}

/* In the order of OpName; the last four are no calls of the backend. */
constexpr Starter starters[n_op_names] = {
    start_message,
    start_message,
    start_broadcast,
    start_all_reduce,
    start_reduce,
    start_all_gather,
    start_all_gather,
    start_all_gather_single,
    start_reduce_scatter,
    start_reduce_scatter,
    start_reduce_scatter_single,
    start_all_to_all_single,
    start_all_to_all_single,
    start_all_to_all,
    start_barrier,
    start_scatter,
    start_gather,
    start_gather_single,
};

c10::Device place_of_tensors(const Request &request)
{
    const Tensors &tensors = request.outputs.empty() ? request.inputs : request.outputs;
    return tensors.empty() ? c10::Device(c10::kCPU) : tensors[0].device();
}

bool is_on_device(const Request &request)
{
    return !place_of_tensors(request).is_cpu();
}

/* A collective on the host's memory that is a single call of the library. */
bool is_of_one_call(const Request &request)
{
    if (size_t(request.name) < 2 || is_on_device(request)) return false;
    auto strided = [](const Tensor &tensor) { return tensor.layout() == at::kStrided; };
    return std::all_of(request.outputs.begin(), request.outputs.end(), strided);
}

} // namespace

/* ---- a call ---- */

std::string TorchComm::described() const
{
    std::lock_guard<std::mutex> guard(mutex_);
    return c10::str("rank ", rank_, " of communicator '", name_, "'");
}

void TorchComm::check_peer(const Request &request) const
{
    static constexpr const char *words[] = {"dst", "src", "root"};
    const char *word = words[std::min(size_t(request.name), size_t(2))];
    const int n = size();
    TORCH_CHECK(request.peer >= 0 && request.peer < n, "tutti: ", text_of(request.name), " on ", described(), ": ",
                word, " must be in range [0, ", n, "), but got ", request.peer);
}

void TorchComm::fail_in_words(const char *call, const std::exception &error) const
{
    const auto *known = dynamic_cast<const c10::Error *>(&error);
    const std::string text =
        c10::str(known ? known->what_without_backtrace() : error.what(), " [", call, " on ", described(), "]");
    c10::intrusive_ptr<Backend> backend;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        backend = backend_;
    }
    if (dynamic_cast<const c10::DistError *>(&error) && backend && backend->state() < 0) fate_->failed(text);
    if (dynamic_cast<const c10::OutOfMemoryError *>(&error)) C10_THROW_ERROR(OutOfMemoryError, text);
    if (dynamic_cast<const c10::DistError *>(&error)) C10_THROW_ERROR(DistBackendError, text);
    TORCH_CHECK(false, text);
}

/* What the communicator's hints say of all calls, and what the call's say of this one. */
void TorchComm::complete_hints(Request &request) const
{
    check_hints(text_of(request.name), request.hints, with_call);
    request.tag = int(number_hint(text_of(request.name), request.hints, "tag", 0, INT32_MAX, request.tag));
}

std::string TorchComm::algorithm_for(const Request &request) const
{
    if (C10_UNLIKELY(!request.hints.empty())) {
        std::string own = hint_of(request.hints, "algorithm");
        if (!own.empty()) return own;
    }
    std::lock_guard<std::mutex> guard(mutex_);
    return C10_LIKELY(algorithms_.empty()) ? std::string() : algorithm_of(algorithms_, request.name);
}

c10::Device TorchComm::place_for(const Request &request) const
{
    return request.name == OpName::barrier ? device_ : place_of_tensors(request);
}

TorchComm::WorkPtr TorchComm::handle_of(Started work, bool async_op, c10::Device place)
{
    if (work && !async_op) { /* of a version whose calls are all asynchronous */
        work->wait();
        if (place.is_cpu()) work = nullptr;
    }
    if (work) {
        auto made = c10::make_intrusive<TorchWork>(std::move(work), fate_,
                                                   place.is_cpu() ? std::nullopt : std::make_optional(place));
        if (C10_UNLIKELY(made->is_followed()) && !made->is_completed()) follow(made);
        return made;
    }
    if (!place.is_cpu()) return c10::make_intrusive<TorchWork>(current_stream(place));
    return TorchWork::complete();
}

static Call take_call(Request &request, Backend &backend)
{
    TakeCall taker;
    starters[size_t(request.name)](backend, request);
    return std::move(*taker.taken);
}

Started TorchComm::start(Request &request)
{
    if (C10_UNLIKELY(!request.hints.empty())) complete_hints(request);
    const c10::intrusive_ptr<Backend> backend = this->backend();
    const std::string algorithm = algorithm_for(request);
    const WithAlgorithm with(algorithm);
    const Quantised quantised = quantised_for(request);
    const WithQuantised quantising(quantised);
    const Starter starter = request.special ? request.special : starters[size_t(request.name)];
    if (request.async_op || request.special || quantised.wire || !is_of_one_call(request))
        return starter(*backend, request);
    Call call = take_call(request, *backend);
    return backend->at_once(call) ? nullptr : backend->submit(std::move(call));
}

Call TorchComm::call_of(Request &request)
{
    if (request.peer != -1) check_peer(request);
    complete_hints(request);
    const std::string algorithm = algorithm_for(request);
    const WithAlgorithm with(algorithm);
    const Quantised quantised = quantised_for(request);
    const WithQuantised quantising(quantised);
    return take_call(request, *backend());
}

TorchComm::WorkPtr TorchComm::begin(Request &request)
{
    if (request.peer != -1 || size_t(request.name) < 2) check_peer(request);
    if (foreign_) return foreign_->run(request);
    return in_words(text_of(request.name),
                    [&] { return handle_of(start(request), request.async_op, place_for(request)); });
}

TorchComm::WorkPtr TorchComm::run(Request request)
{
    return told(request, [&] { return begin(request); });
}

TorchComm::WorkPtr TorchComm::run_batch(std::vector<Request> requests, bool async_op, const Hints &hints,
                                        milliseconds timeout)
{
    Request whole{OpName::batch_op_issue, {}, {}};
    whole.parts = std::move(requests);
    whole.async_op = async_op;
    whole.hints = hints;
    whole.timeout = timeout;
    TORCH_CHECK(!whole.parts.empty(), "tutti: batch_op_issue on ", described(), ": the batch is empty");
    return told(whole, [&]() -> WorkPtr {
        TORCH_CHECK(!foreign_, "tutti: batch_op_issue: backend '", backend_name_, "' has no batches");
        complete_hints(whole);
        for (const Request &part : whole.parts) check_peer(part);
        return in_words("batch_op_issue", [&] {
            const c10::intrusive_ptr<Backend> backend = this->backend();
            std::vector<Call> calls;
            for (Request &part : whole.parts) {
                const bool sends = part.name == OpName::send;
                calls.push_back(backend->message(sends, sends ? part.inputs : part.outputs, part.peer, whole.tag,
                                                 async_op, timeout));
            }
            Started work = backend->submit_all(c10d::OpType::COALESCED, "batch_op_issue", std::move(calls));
            return handle_of(std::move(work), async_op, place_for(whole.parts[0]));
        });
    });
}

/* ---- hooks ---- */

static std::atomic<uint64_t> last_op_id{0};

uint64_t next_op_id()
{
    return last_op_id.fetch_add(1, std::memory_order_relaxed);
}

void reset_op_ids()
{
    last_op_id = 0;
}

RemovableHandle TorchComm::register_pre_hook(PreHook hook)
{
    const uint64_t id = pre_hooks_.add(std::move(hook));
    return RemovableHandle([weak = weak_from_this(), id] {
        if (Ptr self = weak.lock()) self->pre_hooks_.remove(id);
    });
}

RemovableHandle TorchComm::register_post_hook(PostHook hook)
{
    const uint64_t id = post_hooks_.add(std::move(hook));
    return RemovableHandle([weak = weak_from_this(), id] {
        if (Ptr self = weak.lock()) self->post_hooks_.remove(id);
    });
}

RemovableHandle TorchComm::register_abort_hook(Fate::Hook hook)
{
    const uint64_t id = fate_->add(std::move(hook));
    return RemovableHandle([fate = fate_, id] { fate->remove(id); });
}

} // namespace tutti_torch
