/* SPDX-License-Identifier: BSD-3-Clause */

/* The methods that PyTorch calls: each makes requests of its arguments. What is PyTorch's alone is here, too: several
 * tensors a rank, coalesced lists, sums of sparse tensors. */

#include "backend/backend.hpp"
#include "base/process.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/DeviceAccelerator.h>

#include <unordered_set>

namespace tutti_torch
{

using c10d::OpType;

thread_local const Quantised *QuantisedRegion::current = nullptr;
thread_local const AlgorithmRegion *AlgorithmRegion::current = nullptr;

namespace
{

/* The region's, where it has the kind, which is the call's name but for the form of its tensors. */
std::string algorithm_for(OpName name)
{
    std::string kind = text_of(name);
    const size_t end = kind.rfind("_single");
    if (end != std::string::npos) kind.resize(end);
    const std::string &algorithm = AlgorithmRegion::current->name;
    return tutti_algorithm_offers(algorithm.c_str(), kind.c_str()) ? algorithm : std::string();
}

/* A request with what the options say. A timeout that the caller did not set is the group's. */
template <OpName name, typename Options, typename... Values> Request asked(const Options &options, Values &&...values)
{
    Request made = request<name>(is_async(options), std::forward<Values>(values)...);
    if (options.timeout != c10d::kUnsetTimeout) made.timeout = saturated(options.timeout);
    if (C10_UNLIKELY(QuantisedRegion::current)) made.quantised = *QuantisedRegion::current;
    if (C10_UNLIKELY(AlgorithmRegion::current)) made.algorithm = algorithm_for(name);
    return made;
}

int root_of(const char *name, int64_t root, int size)
{
    TUTTI_CHECK_VALUE(root >= 0 && root < size, name, ": invalid root rank: ", root, ", the group has ", size,
                      " ranks");
    return int(root);
}

/* ---- several tensors a rank ---- */

void check_alike(const char *name, const Tensors &tensors)
{
    TUTTI_CHECK_VALUE(!tensors.empty(), name, ": requires non-empty tensor list");
    for (size_t i = 1; i < tensors.size(); i++) {
        TUTTI_CHECK_VALUE(tensors[i].layout() == tensors[0].layout(), name, ": invalid tensor layout at index ", i);
        TUTTI_CHECK_TYPE(tensors[i].scalar_type() == tensors[0].scalar_type(), name, ": invalid tensor type at index ",
                         i, ": tensors of different types, ", tensors[0].scalar_type(), " and ",
                         tensors[i].scalar_type());
        TUTTI_CHECK_VALUE(tensors[i].sizes() == tensors[0].sizes(), name, ": invalid tensor size at index ", i, ": ",
                          tensors[i].sizes(), ", the first has ", tensors[0].sizes());
    }
}

/* What the call leaves in one of the tensors comes to all of them. */
void copy_to_all(Call &call, size_t from, const Tensors &tensors)
{
    call.results = tensors;
    call.unpack = [from, tensors, before = std::move(call.unpack)] {
        if (before) before();
        for (size_t i = 0; i < tensors.size(); i++)
            if (i != from) Tensor(tensors[i]).copy_(tensors[from]);
    };
}

/* The own tensors as one. */
Tensor reduced(const char *name, const Tensors &tensors, const ReduceOp &op)
{
    using Type = ReduceOp::Type;
    at::AutoDispatchBelowAutograd guard;
    TUTTI_CHECK_VALUE(op.type != Type::PREMUL_SUM, name, ": PREMUL_SUM is of one tensor a rank");
    Tensor all = tensors[0].clone();
    for (size_t i = 1; i < tensors.size(); i++) {
        const Tensor &next = tensors[i];
        switch (op.type) {
        case Type::PRODUCT:
            all = all.mul(next);
            break;
        case Type::MIN:
            all = at::minimum(all, next);
            break;
        case Type::MAX:
            all = at::maximum(all, next);
            break;
        case Type::BAND:
            all = all.bitwise_and(next);
            break;
        case Type::BOR:
            all = all.bitwise_or(next);
            break;
        case Type::BXOR:
            all = all.bitwise_xor(next);
            break;
        default:
            all = all.add(next);
        }
    }
    return op.type == Type::AVG ? all.div(double(tensors.size())).to(all.scalar_type()) : all;
}

/* ---- lists that the root alone has ---- */

/* The root passes one list, the others none (or an empty one). */
Tensors list_at_root(const char *name, const char *side, Backend::TensorLists &lists, bool is_root)
{
    if (is_root) {
        TUTTI_CHECK_VALUE(lists.size() == 1, name, ": requires a single-element ", side, " list, it has ",
                          lists.size());
        return std::move(lists[0]);
    }
    TUTTI_CHECK_VALUE(lists.empty() || lists[0].empty(), name, ": requires empty ", side, " on non-root");
    return {};
}

Tensor single(const char *name, const char *side, const Tensors &tensors)
{
    TUTTI_CHECK_VALUE(tensors.size() == 1, name, ": requires a single-element ", side, " tensor list, it has ",
                      tensors.size());
    return tensors[0];
}

} // namespace

/* ---- reductions, broadcast ---- */

Backend::WorkPtr Backend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options)
{
    const ReduceOp op = ReduceOp::of("all_reduce", options.reduceOp);
    if (C10_LIKELY(tensors.size() == 1)) return run(asked<OpName::all_reduce>(options, tensors[0], op));
    check_alike("all_reduce", tensors);
    Request request = asked<OpName::all_reduce>(options, reduced("all_reduce", tensors, op), op);
    if (tensors[0].layout() == at::kSparse) return run_sparse(std::move(request), tensors);
    Call call = prepare(std::move(request));
    call.outputs = {tensors[0]};
    check_dense(call.name, "tensor", tensors[0]);
    copy_to_all(call, 0, tensors);
    return submit(std::move(call));
}

/* A tensor that is in the list again is reduced once: for the second call there is a copy of it as it was, whose result
 * is the one that stays, as with gloo. The number of calls is that of the list, for on other ranks it may be two. */
Backend::WorkPtr Backend::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options)
{
    constexpr const char *name = "all_reduce_coalesced";
    TUTTI_CHECK_VALUE(!tensors.empty(), name, ": the list of tensors is empty: requires non-empty tensor list");
    const ReduceOp op = ReduceOp::of("all_reduce", options.reduceOp);
    std::vector<Call> calls;
    std::unordered_set<const void *> seen;
    for (size_t i = 0; i < tensors.size(); i++) {
        const Tensor &tensor = tensors[i];
        TUTTI_CHECK_VALUE(tensor.layout() == at::kStrided, name, ": invalid tensor layout at index ", i,
                          " (unsupported layout): all_reduce of a sparse tensor can not be coalesced");
        const bool again = tensor.numel() > 0 && !seen.insert(tensor.data_ptr()).second;
        at::AutoDispatchBelowAutograd guard;
        const Tensor reduced = again ? tensor.clone() : tensor;
        calls.push_back(prepare(asked<OpName::all_reduce>(options, reduced, op)));
        if (!again) continue;
        calls.back().results = {tensor};
        calls.back().unpack = [tensor, reduced] { Tensor(tensor).copy_(reduced); };
    }
    return submit_all(OpType::ALLREDUCE_COALESCED, name, std::move(calls));
}

Backend::WorkPtr Backend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options)
{
    const int root = root_of("broadcast", options.rootRank, size_);
    TUTTI_CHECK_VALUE(options.rootTensor >= 0 && options.rootTensor < int64_t(tensors.size()),
                      "broadcast: invalid root tensor: ", options.rootTensor, " of ", tensors.size());
    const auto from = size_t(options.rootTensor);
    Request request = asked<OpName::broadcast>(options, tensors[from], root);
    if (C10_LIKELY(tensors.size() == 1)) return run(std::move(request));
    check_alike("broadcast", tensors);
    Call call = prepare(std::move(request));
    copy_to_all(call, from, tensors);
    return submit(std::move(call));
}

Backend::WorkPtr Backend::reduce(Tensors &tensors, const c10d::ReduceOptions &options)
{
    const int root = root_of("reduce", options.rootRank, size_);
    TUTTI_CHECK_VALUE(options.rootTensor >= 0 && options.rootTensor < int64_t(tensors.size()),
                      "reduce: invalid root tensor: ", options.rootTensor, " of ", tensors.size());
    TUTTI_CHECK_VALUE(tensors.size() == 1, "reduce: requires a single-element tensor list, it has ", tensors.size());
    return run(asked<OpName::reduce>(options, tensors[0], root, ReduceOp::of("reduce", options.reduceOp)));
}

/* ---- gathers ---- */

Backend::WorkPtr Backend::_allgather_base(Tensor &output, Tensor &input, const c10d::AllgatherOptions &options)
{
    return run(asked<OpName::all_gather_single>(options, output, input));
}

Backend::WorkPtr Backend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                          const c10d::AllgatherOptions &options)
{
    check_list("all_gather_into_tensor_coalesced", "outputs", outputs, inputs.size(), false);
    std::vector<Call> calls;
    for (size_t i = 0; i < inputs.size(); i++)
        calls.push_back(prepare(asked<OpName::all_gather_single>(options, outputs[i], inputs[i])));
    return submit_all(OpType::COALESCED, "all_gather_into_tensor_coalesced", std::move(calls));
}

/* Each list of outputs gets the tensors of all ranks, those of a rank one after the other. */
Backend::WorkPtr Backend::allgather(TensorLists &outputs, Tensors &inputs, const c10d::AllgatherOptions &options)
{
    constexpr const char *name = "all_gather";
    TUTTI_CHECK_VALUE(!inputs.empty(), name, ": requires non-empty input tensor list: input must be one tensor");
    TUTTI_CHECK_VALUE(outputs.size() == inputs.size(), name,
                      ": requires input/output tensor lists to have the same length, they have ", inputs.size(),
                      " and ", outputs.size());
    const size_t n = inputs.size();
    for (size_t i = 0; i < n; i++)
        TUTTI_CHECK_VALUE(outputs[i].size() == size_t(size_) * n, name, ": invalid output tensor list at index ", i,
                          " (expected length ", size_t(size_) * n, ", got ", outputs[i].size(), ") of outputs");
    Request request = asked<OpName::all_gather>(options, outputs[0], inputs[0]);
    if (C10_LIKELY(n == 1)) return run(std::move(request));
    check_alike(name, inputs);
    request.inputs = inputs;
    Call call = prepare(std::move(request));
    Tensors all;
    for (const Tensors &list : outputs) {
        check_list(name, "outputs", list, size_t(size_) * n);
        check_same_type(name, inputs[0], list[0]);
        all.insert(all.end(), list.begin(), list.end());
    }
    call.unpack = [all, n_one = outputs[0].size(), before = std::move(call.unpack)] {
        if (before) before();
        for (size_t i = n_one; i < all.size(); i++) Tensor(all[i]).copy_(all[i % n_one]);
    };
    call.results_a_list = outputs[0].size();
    call.results = std::move(all);
    return submit(std::move(call));
}

/* outputs[r][i] is what rank r passed as inputs[i]. */
Backend::WorkPtr Backend::allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                                              const c10d::AllgatherOptions &options)
{
    constexpr const char *name = "all_gather_coalesced";
    TUTTI_CHECK_VALUE(outputs.size() == size_t(size_), name,
                      ": output lists should be equal to world size: ", outputs.size(), " lists of outputs, ", size_,
                      " expected");
    std::vector<Call> calls;
    for (size_t i = 0; i < inputs.size(); i++) {
        Tensors column;
        for (const Tensors &list : outputs) {
            check_list(name, "a list of outputs", list, inputs.size(), false);
            TUTTI_CHECK_VALUE(list[i].numel() == inputs[i].numel() || &list != &outputs[size_t(rank_)], name,
                              ": invalid size of output tensor at index ", i);
            column.push_back(list[i]);
        }
        calls.push_back(prepare(asked<OpName::all_gather>(options, std::move(column), inputs[i])));
    }
    return submit_all(OpType::ALLGATHER_COALESCED, name, std::move(calls));
}

Backend::WorkPtr Backend::gather(TensorLists &outputs, Tensors &inputs, const c10d::GatherOptions &options)
{
    const int root = root_of("gather", options.rootRank, size_);
    const Tensor input = single("gather", "input", inputs);
    return run(asked<OpName::gather>(options, list_at_root("gather", "output", outputs, root == rank_), input, root));
}

Backend::WorkPtr Backend::gather_into_tensor(Tensor &output, Tensor &input, const c10d::GatherOptions &options)
{
    const int root = root_of("gather_into_tensor", options.rootRank, size_);
    return run(asked<OpName::gather_single>(options, output, input, root));
}

/* ---- scatters ---- */

Backend::WorkPtr Backend::scatter(Tensors &outputs, TensorLists &inputs, const c10d::ScatterOptions &options)
{
    const int root = root_of("scatter", options.rootRank, size_);
    const Tensor output = single("scatter", "output", outputs);
    return run(asked<OpName::scatter>(options, output, list_at_root("scatter", "input", inputs, root == rank_), root));
}

Backend::WorkPtr Backend::reduce_scatter(Tensors &outputs, TensorLists &inputs,
                                         const c10d::ReduceScatterOptions &options)
{
    constexpr const char *name = "reduce_scatter";
    Tensor &output = only(name, "output", outputs);
    TUTTI_CHECK_VALUE(inputs.size() == 1, name, ": one list of inputs expected, got ", inputs.size());
    return run(asked<OpName::reduce_scatter>(options, output, inputs[0], ReduceOp::of(name, options.reduceOp)));
}

Backend::WorkPtr Backend::_reduce_scatter_base(Tensor &output, Tensor &input, const c10d::ReduceScatterOptions &options)
{
    return run(asked<OpName::reduce_scatter_single>(options, output, input,
                                                    ReduceOp::of("reduce_scatter_tensor", options.reduceOp)));
}

Backend::WorkPtr Backend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                          const c10d::ReduceScatterOptions &options)
{
    constexpr const char *name = "reduce_scatter_tensor_coalesced";
    check_list(name, "outputs", outputs, inputs.size(), false);
    const ReduceOp op = ReduceOp::of(name, options.reduceOp);
    std::vector<Call> calls;
    for (size_t i = 0; i < inputs.size(); i++)
        calls.push_back(prepare(asked<OpName::reduce_scatter_single>(options, outputs[i], inputs[i], op)));
    return submit_all(OpType::COALESCED, name, std::move(calls));
}

/* ---- all_to_all, barrier, messages ---- */

Backend::WorkPtr Backend::alltoall_base(Tensor &output, Tensor &input, std::vector<int64_t> &output_splits,
                                        std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &options)
{
    return run(asked<OpName::all_to_all_v_single>(options, output, input,
                                                  Splits(output_splits.begin(), output_splits.end()),
                                                  Splits(input_splits.begin(), input_splits.end())));
}

Backend::WorkPtr Backend::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options)
{
    return run(asked<OpName::all_to_all>(options, outputs, inputs));
}

/* PyTorch's dispatcher hands on the numbers alone of the devices that it was given. */
static std::optional<c10::Device> barrier_device(const c10d::BarrierOptions &options, std::optional<c10::Device> bound)
{
    if (options.device) return options.device;
    auto accelerator = at::getAccelerator();
    if (options.device_ids.empty() || !accelerator) return bound;
    return c10::Device(*accelerator, c10::DeviceIndex(options.device_ids[0]));
}

Backend::WorkPtr Backend::barrier(const c10d::BarrierOptions &options)
{
    Call call = prepare(asked<OpName::barrier>(options));
    if (!mixed_) call.device = barrier_device(options, getBoundDeviceId());
    return submit(std::move(call));
}

static Request message(OpName name, Tensors &tensors, int peer, int tag)
{
    Request made{name};
    (name == OpName::send ? made.inputs : made.outputs) = tensors;
    made.peer = peer;
    made.tag = tag;
    made.async_op = true;
    return made;
}

Backend::WorkPtr Backend::send(Tensors &tensors, int dest, int tag)
{
    return run(message(OpName::send, tensors, dest, tag));
}

Backend::WorkPtr Backend::recv(Tensors &tensors, int source, int tag)
{
    TUTTI_CHECK_VALUE(source >= 0, "recv: source ", source, " is not a rank");
    return run(message(OpName::recv, tensors, source, tag));
}

Backend::WorkPtr Backend::recvAnysource(Tensors &tensors, int tag)
{
    Call call = prepare(message(OpName::recv, tensors, TUTTI_ANY_SOURCE, tag));
    call.type = OpType::RECVANYSOURCE;
    call.name = "recv_any_source";
    return submit(std::move(call));
}

/* ---- sums of sparse tensors ---- */

Backend::WorkPtr Backend::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &options)
{
    TUTTI_CHECK_VALUE(only("all_reduce (sparse)", "tensors", tensors).layout() == at::kSparse,
                      "all_reduce (sparse): the tensor is not sparse");
    return allreduce(tensors, options);
}

/* Every rank gathers the indices and values of all, and adds them up: one row a non-zero element, so that the ranks'
 * parts follow one another. How many rows each rank has is exchanged first, so the call waits for the others; the
 * values come asynchronously. All gathers are parts of the user's call, and have no numbers of their own. */
Backend::WorkPtr Backend::run_sparse(Request request, const Tensors &targets)
{
    constexpr const char *name = "all_reduce (sparse)";
    TUTTI_CHECK_VALUE(request.op.type == ReduceOp::Type::SUM, name,
                      ": unsupported reduction operation: only sums are defined");
    TORCH_CHECK(!is_coalescing(), "tutti: ", name, " waits for the other ranks, so it can not be coalesced");
    at::AutoDispatchBelowAutograd guard;
    auto gather = [&](const Tensor &rows, const Tensor &all, at::IntArrayRef n_rows) {
        Request part{OpName::all_gather, {rows}, all.split_with_sizes(n_rows)};
        part.async_op = request.async_op;
        part.timeout = request.timeout;
        Call call = prepare(std::move(part));
        call.type = OpType::_ALLREDUCE_SPARSE;
        call.name = name;
        return call;
    };
    auto submit_part = [&](Call call) {
        call.async = call.counted = false;
        submit(std::move(call));
    };
    auto rows_for = [](const Tensor &own, int64_t n) {
        std::vector<int64_t> sizes = own.sizes().vec();
        sizes[0] = n;
        return at::empty(sizes, own.options());
    };
    const Tensor own = request.inputs[0].coalesce();
    const Tensor indices = own.indices().t().contiguous(), values = own.values().contiguous();
    const Tensor n_own = at::full({1}, values.size(0), at::kLong), n_all = at::empty({size_}, at::kLong);
    submit_part(gather(n_own, n_all, std::vector<int64_t>(size_t(size_), 1)));
    const std::vector<int64_t> n_rows(n_all.data_ptr<int64_t>(), n_all.data_ptr<int64_t>() + size_);
    const int64_t total = n_all.sum().item<int64_t>();

    const Tensor all_indices = rows_for(indices, total), all_values = rows_for(values, total);
    submit_part(gather(indices, all_indices, n_rows));
    Call call = gather(values, all_values, n_rows);
    call.results = targets;
    call.unpack = [targets, all_indices, all_values, gathered = std::move(call.unpack)] {
        if (gathered) gathered();
        const Tensor &first = targets[0];
        Tensor sum = at::sparse_coo_tensor(all_indices.t(), all_values, first.sizes(), first.options()).coalesce();
        for (const Tensor &target : targets) Tensor(target).copy_(sum);
    };
    return submit(std::move(call));
}

Backend::WorkPtr Backend::run(Request &&request)
{
    const bool sparse =
        request.name == OpName::all_reduce && !request.outputs.empty() && request.outputs[0].layout() == at::kSparse;
    if (C10_LIKELY(!sparse)) return submit(prepare(std::move(request)));
    const Tensors targets = request.outputs;
    return run_sparse(std::move(request), targets);
}

} // namespace tutti_torch
