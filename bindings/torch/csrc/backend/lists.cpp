/* SPDX-License-Identifier: BSD-3-Clause */

/* Collectives on lists of tensors, one a rank: one flat tensor goes through the library. When the list is a tensor's
 * chunks in order, that is the tensor's own memory; else elements are copied to and from it. */

#include "backend/backend.hpp"
#include "base/errors.hpp"

#include <ATen/core/LegacyTypeDispatch.h>

namespace tutti_torch
{

using c10d::OpType;

namespace
{

void check_own_block(const char *collective, const Tensor &own, const Tensor &block)
{
    check_same_type(collective, own, block);
    TUTTI_CHECK_VALUE(own.numel() == block.numel(), collective, ": invalid tensor size: this rank's tensor has ",
                      own.numel(), " elements, its place in the list ", block.numel());
}

/* The root passes one list of a tensor for each rank, the others none (or an empty one); argument: "input", "output".
 */
Tensors *list_at_root(const char *collective, const char *argument, Backend::TensorLists &lists, bool is_root, int size)
{
    if (!is_root) {
        TUTTI_CHECK_VALUE(lists.empty() || lists[0].empty(), collective, ": requires empty ", argument, " on non-root");
        return nullptr;
    }
    TUTTI_CHECK_VALUE(lists.size() == 1, collective, ": requires a single-element ", argument, " list, it has ",
                      lists.size());
    TUTTI_CHECK_VALUE(lists[0].size() == size_t(size), collective, ": Incorrect ", argument, " list size ",
                      lists[0].size(), ". ", *argument == 'i' ? "Input" : "Output", " list size should be ", size,
                      ", same as size of the process group.");
    return &lists[0];
}

/* The result goes to the tensors of the list, in the end or at once. */
void receive_into(Call &call, const Tensors &list)
{
    Tensor flat = flat_for(list);
    call.outputs = {flat};
    call.results = list;
    if (!list.empty() && !flat.is_alias_of(list[0])) call.unpack = [flat, list] { unflatten(flat, list); };
}

} // namespace

/* outputs[r] gets what rank r has as its input. */
static void gather_lists(Call &call, const Tensors &outputs, const Tensor &input, int rank, int size)
{
    check_list(call.name, "outputs", outputs, size_t(size));
    check_strided(call.name, "input", input);
    check_own_block(call.name, input, outputs[size_t(rank)]);
    call.inputs = {packed(input)};
    receive_into(call, outputs);
    tutti_dtype dtype = wire_of(input).dtype;
    if (is_even(outputs)) {
        call.launch = launch_of<tutti_all_gather>(wire_of(input).count, dtype);
    } else {
        call.launch = [dtype, counts = counts_of(outputs)](const Start &s) {
            return tutti_all_gather_v(s.in[0], s.out[0], counts.data(), nullptr, dtype, s.comm, s.options, s.work);
        };
    }
}

static Call all_gather_list_call(Tensors &outputs, Tensor &input, int rank, int size,
                                 const c10d::AllgatherOptions &options)
{
    Call call = call_of(OpType::ALLGATHER, "all_gather", options);
    gather_lists(call, outputs, input, rank, size);
    return call;
}

/* Several inputs of a rank are one, and each list of outputs is a copy of the first. */
Backend::WorkPtr Backend::allgather(TensorLists &outputs, Tensors &inputs, const c10d::AllgatherOptions &options)
{
    const char *name = "all_gather";
    const size_t n = inputs.size();
    check_alike(name, "input", inputs);
    TUTTI_CHECK_VALUE(outputs.size() == n, name, ": requires input/output tensor lists to have the same length: ",
                      "one list of outputs for each input, ", n, " expected, got ", outputs.size());
    for (size_t i = 0; i < n; i++)
        TUTTI_CHECK_VALUE(outputs[i].size() == n * size_t(size_), name, ": invalid output tensor list at index ", i,
                          " (expected length ", n * size_t(size_), ", got ", outputs[i].size(), "): outputs has ",
                          outputs[i].size(), " tensors, ", n * size_t(size_), " expected");
    if (C10_LIKELY(n == 1)) return submit(all_gather_list_call(outputs[0], inputs[0], rank_, size_, options));
    for (Tensors &list : outputs) {
        check_list(name, "outputs", list, n * size_t(size_));
        for (Tensor &tensor : list) check_own_block(name, inputs[0], tensor);
    }
    at::AutoDispatchBelowAutograd guard;
    const Tensor all = at::empty({int64_t(n) * size_ * inputs[0].numel()}, inputs[0].options());
    Tensor flat = flatten(inputs);
    Tensors blocks = all.split_with_sizes(std::vector<int64_t>(size_t(size_), flat.numel()));
    Call call = all_gather_list_call(blocks, flat, rank_, size_, options);
    call.results.clear();
    for (const Tensors &list : outputs) call.results.insert(call.results.end(), list.begin(), list.end());
    call.unpack = [all, outputs] {
        for (const Tensors &list : outputs) unflatten(all, list);
    };
    return submit(std::move(call));
}

/* outputs[r][i] is what rank r passed as inputs[i]. */
Backend::WorkPtr Backend::allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                                              const c10d::AllgatherOptions &options)
{
    const char *name = "all_gather_coalesced";
    TUTTI_CHECK_VALUE(outputs.size() == size_t(size_), name, ": ", outputs.size(), " lists of outputs, ", size_,
                      " expected");
    std::vector<Call> calls;
    for (size_t i = 0; i < inputs.size(); i++) {
        Tensors column;
        for (Tensors &list : outputs) {
            check_list(name, "a list of outputs", list, inputs.size(), false);
            column.push_back(list[i]);
        }
        calls.push_back(all_gather_list_call(column, inputs[i], rank_, size_, options));
    }
    return submit_all(OpType::ALLGATHER_COALESCED, name, std::move(calls));
}

Backend::WorkPtr Backend::reduce_scatter(Tensors &outputs, TensorLists &inputs,
                                         const c10d::ReduceScatterOptions &options)
{
    Call call = call_of(OpType::REDUCE_SCATTER, "reduce_scatter", options);
    Tensor &output = only(call.name, "output", outputs);
    TUTTI_CHECK_VALUE(inputs.size() == 1, call.name, ": one list of inputs expected, got ", inputs.size());
    const Tensors &list = inputs[0];
    check_list(call.name, "inputs", list, size_t(size_));
    check_own_block(call.name, output, list[size_t(rank_)]);
    Reduction reduction = reduction_of(call.name, options.reduceOp, output);
    call.factor = reduction.factor;
    call.inputs = {reduction.scaled(flatten(list))};
    receive_into(call, {output});
    tutti_dtype dtype = reduced_dtype(call.name, output);
    if (is_even(list)) {
        call.launch = launch_of<tutti_reduce_scatter>(size_t(output.numel()), dtype, reduction.op);
    } else {
        call.launch = [dtype, op = reduction.op, counts = counts_of(list)](const Start &s) {
            return tutti_reduce_scatter_v(s.in[0], s.out[0], counts.data(), dtype, op, s.comm, s.options, s.work);
        };
    }
    return submit(std::move(call));
}

/* Only the root knows all sizes, so gather and scatter are always the v forms. */

Backend::WorkPtr Backend::gather(TensorLists &outputs, Tensors &inputs, const c10d::GatherOptions &options)
{
    Call call = call_of(OpType::GATHER, "gather", options);
    check_root(call.name, options.rootRank, size_);
    Tensor &input = only(call.name, "input", inputs);
    check_strided(call.name, "input", input);
    call.peer = int(options.rootRank);
    call.inputs = {packed(input)};
    std::vector<size_t> counts;
    if (Tensors *list = list_at_root(call.name, "output", outputs, call.peer == rank_, size_)) {
        check_list(call.name, "outputs", *list, size_t(size_));
        check_own_block(call.name, input, (*list)[size_t(rank_)]);
        counts = counts_of(*list);
        receive_into(call, *list);
    }
    call.launch = [wire = wire_of(input), root = call.peer, counts = std::move(counts)](const Start &s) {
        return tutti_gather_v(s.in[0], wire.count, s.out.empty() ? nullptr : s.out[0],
                              counts.empty() ? nullptr : counts.data(), nullptr, wire.dtype, root, s.comm, s.options,
                              s.work);
    };
    return submit(std::move(call));
}

Backend::WorkPtr Backend::scatter(Tensors &outputs, TensorLists &inputs, const c10d::ScatterOptions &options)
{
    Call call = call_of(OpType::SCATTER, "scatter", options);
    check_root(call.name, options.rootRank, size_);
    Tensor &output = only(call.name, "output", outputs);
    check_strided(call.name, "output", output);
    call.peer = int(options.rootRank);
    receive_into(call, {output});
    std::vector<size_t> counts;
    if (Tensors *list = list_at_root(call.name, "input", inputs, call.peer == rank_, size_)) {
        check_list(call.name, "inputs", *list, size_t(size_));
        check_own_block(call.name, output, (*list)[size_t(rank_)]);
        counts = counts_of(*list);
        call.inputs = {flatten(*list)};
    }
    call.launch = [wire = wire_of(output), root = call.peer, counts = std::move(counts)](const Start &s) {
        return tutti_scatter_v(s.in.empty() ? nullptr : s.in[0], counts.empty() ? nullptr : counts.data(), nullptr,
                               s.out[0], wire.count, wire.dtype, root, s.comm, s.options, s.work);
    };
    return submit(std::move(call));
}

Backend::WorkPtr Backend::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options)
{
    Call call = call_of(OpType::ALLTOALL, "all_to_all", options);
    check_list(call.name, "outputs", outputs, size_t(size_));
    check_list(call.name, "inputs", inputs, size_t(size_));
    check_own_block(call.name, inputs[size_t(rank_)], outputs[size_t(rank_)]);
    call.inputs = {flatten(inputs)};
    receive_into(call, outputs);
    call.launch = [dtype = wire_of(inputs[0]).dtype, in = counts_of(inputs), out = counts_of(outputs)](const Start &s) {
        return tutti_all_to_all_v(s.in[0], in.data(), nullptr, s.out[0], out.data(), nullptr, dtype, s.comm, s.options,
                                  s.work);
    };
    return submit(std::move(call));
}

/* ---- sums of sparse tensors ---- */

/* Every rank gathers the indices and values of all, and adds them up: one row a non-zero element, so that the ranks'
 * parts follow one another. How many rows each rank has is exchanged first, so the call waits for the others; the
 * values come asynchronously. All gathers are parts of the user's call, and have no numbers of their own. */
Backend::WorkPtr Backend::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &options)
{
    constexpr const char *name = "all_reduce (sparse)";
    Tensor &tensor = only(name, "", tensors);
    TUTTI_CHECK_VALUE(tensor.layout() == at::kSparse, name, ": the tensor is not sparse");
    TUTTI_CHECK_VALUE(options.reduceOp == c10d::ReduceOp::SUM, name, ": only sums are defined");
    TORCH_CHECK(!is_coalescing(), "tutti: ", name, " waits for the other ranks, so it can not be coalesced");
    at::AutoDispatchBelowAutograd guard;
    auto gather = [&](const Tensor &rows, const Tensor &all, at::IntArrayRef n_rows) {
        Call call = call_of(OpType::_ALLREDUCE_SPARSE, name, options);
        gather_lists(call, all.split_with_sizes(n_rows), rows, rank_, size_);
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
    const Tensor own = tensor.coalesce();
    const Tensor indices = own.indices().t().contiguous(), values = own.values().contiguous();
    const Tensor n_own = at::full({1}, values.size(0), at::kLong), n_all = at::empty({size_}, at::kLong);
    submit_part(gather(n_own, n_all, std::vector<int64_t>(size_t(size_), 1)));
    const std::vector<int64_t> n_rows(n_all.data_ptr<int64_t>(), n_all.data_ptr<int64_t>() + size_);
    const int64_t total = n_all.sum().item<int64_t>();

    const Tensor all_indices = rows_for(indices, total), all_values = rows_for(values, total);
    submit_part(gather(indices, all_indices, n_rows));
    Call call = gather(values, all_values, n_rows);
    call.results = {tensor};
    call.unpack = [tensor, all_indices, all_values, gathered = std::move(call.unpack)] {
        if (gathered) gathered();
        Tensor sum = at::sparse_coo_tensor(all_indices.t(), all_values, tensor.sizes(), tensor.options()).coalesce();
        Tensor target = tensor;
        target.copy_(sum);
    };
    return submit(std::move(call));
}

} // namespace tutti_torch
