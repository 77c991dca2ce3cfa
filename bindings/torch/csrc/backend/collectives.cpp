/* SPDX-License-Identifier: BSD-3-Clause */

/* Collectives on single tensors: each checks its arguments, and says how the library is to be called. */

#include "backend/backend.hpp"
#include "base/errors.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/DeviceAccelerator.h>

#include <unordered_map>
#include <unordered_set>

namespace tutti_torch
{

using c10d::OpType;

namespace
{

void check_elements(const char *collective, const Tensor &output, int64_t expected, const char *why)
{
    TUTTI_CHECK_VALUE(output.numel() == expected, collective, ": output has ", output.numel(), " elements, ", expected,
                      " expected: ", why);
}

} // namespace

static Call all_reduce_call(Tensor &tensor, const c10d::AllreduceOptions &options)
{
    Call call = call_of(OpType::ALLREDUCE, "all_reduce", options);
    check_dense(call.name, "tensor", tensor);
    Reduction reduction = reduction_of(call.name, options.reduceOp, tensor);
    call.inputs.push_back(reduction.scaled(tensor));
    call.outputs.push_back(tensor);
    call.factor = reduction.factor;
    call.launch = launch_of<tutti_all_reduce>(size_t(tensor.numel()), reduced_dtype(call.name, tensor), reduction.op);
    return call;
}

/* What several tensors of this rank come to. */
static Tensor reduced_here(const Tensors &tensors, const c10d::ReduceOp &op)
{
    using Op = c10d::ReduceOp;
    static const std::unordered_map<int, Tensor (*)(const Tensor &, const Tensor &)> folds = {
        {Op::SUM, [](const Tensor &a, const Tensor &b) { return a.add(b); }},
        {Op::PRODUCT, [](const Tensor &a, const Tensor &b) { return a.mul(b); }},
        {Op::MIN, [](const Tensor &a, const Tensor &b) { return at::minimum(a, b); }},
        {Op::MAX, [](const Tensor &a, const Tensor &b) { return at::maximum(a, b); }},
        {Op::BAND, [](const Tensor &a, const Tensor &b) { return a.bitwise_and(b); }},
        {Op::BOR, [](const Tensor &a, const Tensor &b) { return a.bitwise_or(b); }},
        {Op::BXOR, [](const Tensor &a, const Tensor &b) { return a.bitwise_xor(b); }},
    };
    const auto fold = folds.find(int(op.op_));
    TUTTI_CHECK_VALUE(fold != folds.end(),
                      "all_reduce: several tensors of a rank are not reduced by this operation: ", "pass one");
    at::AutoDispatchBelowAutograd guard;
    Tensor result = tensors[0].clone();
    for (size_t i = 1; i < tensors.size(); i++) result = fold->second(result, tensors[i]);
    return result;
}

/* Copies a result to all tensors of this rank, when it is there. */
static void spread(Call &call, const Tensor &result, const Tensors &tensors)
{
    call.results = tensors;
    call.unpack = [result, tensors] {
        at::AutoDispatchBelowADInplaceOrView guard;
        for (Tensor tensor : tensors)
            if (!tensor.is_same(result)) tensor.copy_(result);
    };
}

Backend::WorkPtr Backend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options)
{
    check_alike("all_reduce", "", tensors);
    if (tensors[0].layout() == at::kSparse) return allreduce_sparse(tensors, options);
    if (C10_LIKELY(tensors.size() == 1)) return submit(all_reduce_call(tensors[0], options));
    Tensor here = reduced_here(tensors, options.reduceOp);
    Call call = all_reduce_call(here, options);
    spread(call, here, tensors);
    return submit(std::move(call));
}

/* A tensor that is in the list again is reduced once: for the second call there is a copy of it as it was, whose result
 * is the one that stays, as with gloo. The number of calls is that of the list, for on other ranks it may be two. */
Backend::WorkPtr Backend::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options)
{
    std::vector<Call> calls;
    std::unordered_set<const void *> seen;
    for (Tensor &tensor : tensors) {
        if (tensor.layout() != at::kStrided || tensor.numel() == 0 || seen.insert(tensor.data_ptr()).second) {
            calls.push_back(all_reduce_call(tensor, options));
            continue;
        }
        at::AutoDispatchBelowAutograd guard;
        Tensor copy = tensor.clone();
        calls.push_back(all_reduce_call(copy, options));
        calls.back().results = {tensor};
        calls.back().unpack = [tensor, copy] { Tensor(tensor).copy_(copy); };
    }
    return submit_all(OpType::ALLREDUCE_COALESCED, "all_reduce_coalesced", std::move(calls));
}

Backend::WorkPtr Backend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options)
{
    Call call = call_of(OpType::BROADCAST, "broadcast", options);
    check_root(call.name, options.rootRank, size_);
    TUTTI_CHECK_VALUE(options.rootTensor >= 0 && size_t(options.rootTensor) < tensors.size(), call.name,
                      ": invalid root tensor: ", options.rootTensor, " of a list of ", tensors.size());
    check_alike(call.name, "", tensors);
    const Tensor tensor = tensors[options.rootRank == rank_ ? size_t(options.rootTensor) : 0];
    check_dense(call.name, "tensor", tensor);
    call.peer = int(options.rootRank);
    if (C10_LIKELY(tensors.size() == 1))
        call.results = {tensor};
    else
        spread(call, tensor, tensors);
    (options.rootRank == rank_ ? call.inputs : call.outputs) = {tensor};
    call.launch = [wire = wire_of(tensor), root = call.peer](const Start &s) {
        void *buffer = s.in.empty() ? s.out[0] : s.in[0];
        return tutti_broadcast(buffer, wire.count, wire.dtype, root, s.comm, s.options, s.work);
    };
    return submit(std::move(call));
}

Backend::WorkPtr Backend::reduce(Tensors &tensors, const c10d::ReduceOptions &options)
{
    Call call = call_of(OpType::REDUCE, "reduce", options);
    check_root(call.name, options.rootRank, size_);
    TUTTI_CHECK_VALUE(options.rootTensor == 0, call.name, ": invalid root tensor: ", options.rootTensor,
                      " of a list of one");
    Tensor &tensor = only(call.name, "", tensors);
    check_dense(call.name, "tensor", tensor);
    Reduction reduction = reduction_of(call.name, options.reduceOp, tensor);
    call.peer = int(options.rootRank);
    call.factor = reduction.factor;
    call.inputs = {reduction.scaled(tensor)};
    call.results = {tensor};
    if (options.rootRank == rank_) call.outputs = {tensor};
    call.launch =
        launch_of<tutti_reduce>(size_t(tensor.numel()), reduced_dtype(call.name, tensor), reduction.op, call.peer);
    return submit(std::move(call));
}

static Call all_gather_call(Tensor &output, Tensor &input, int size, const c10d::AllgatherOptions &options)
{
    Call call = call_of(OpType::_ALLGATHER_BASE, "all_gather_into_tensor", options);
    check_pair(call.name, output, input);
    check_elements(call.name, output, input.numel() * size, "the input's for each rank");
    call.inputs = {input};
    call.outputs = {output};
    const Wire wire = wire_of(input);
    call.launch = launch_of<tutti_all_gather>(wire.count, wire.dtype);
    return call;
}

Backend::WorkPtr Backend::_allgather_base(Tensor &output, Tensor &input, const c10d::AllgatherOptions &options)
{
    return submit(all_gather_call(output, input, size_, options));
}

Backend::WorkPtr Backend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                          const c10d::AllgatherOptions &options)
{
    check_list("all_gather_into_tensor_coalesced", "outputs", outputs, inputs.size(), false);
    std::vector<Call> calls;
    for (size_t i = 0; i < inputs.size(); i++) calls.push_back(all_gather_call(outputs[i], inputs[i], size_, options));
    return submit_all(OpType::COALESCED, "all_gather_into_tensor_coalesced", std::move(calls));
}

static Call reduce_scatter_call(Tensor &output, Tensor &input, int size, const c10d::ReduceScatterOptions &options)
{
    Call call = call_of(OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor", options);
    check_pair(call.name, output, input);
    TUTTI_CHECK_VALUE(input.numel() == output.numel() * size, call.name, ": input has ", input.numel(), " elements, ",
                      output.numel() * size, " expected: the output's for each rank");
    Reduction reduction = reduction_of(call.name, options.reduceOp, input);
    call.factor = reduction.factor;
    call.inputs = {reduction.scaled(input)};
    call.outputs = {output};
    call.launch =
        launch_of<tutti_reduce_scatter>(size_t(output.numel()), reduced_dtype(call.name, input), reduction.op);
    return call;
}

Backend::WorkPtr Backend::_reduce_scatter_base(Tensor &output, Tensor &input, const c10d::ReduceScatterOptions &options)
{
    return submit(reduce_scatter_call(output, input, size_, options));
}

Backend::WorkPtr Backend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                          const c10d::ReduceScatterOptions &options)
{
    check_list("reduce_scatter_tensor_coalesced", "outputs", outputs, inputs.size(), false);
    std::vector<Call> calls;
    for (size_t i = 0; i < inputs.size(); i++)
        calls.push_back(reduce_scatter_call(outputs[i], inputs[i], size_, options));
    return submit_all(OpType::COALESCED, "reduce_scatter_tensor_coalesced", std::move(calls));
}

Backend::WorkPtr Backend::gather_into_tensor(Tensor &output, Tensor &input, const c10d::GatherOptions &options)
{
    Call call = call_of(OpType::GATHER, "gather_into_tensor", options);
    check_root(call.name, options.rootRank, size_);
    check_contiguous(call.name, "input", input);
    call.peer = int(options.rootRank);
    call.inputs = {input};
    if (options.rootRank == rank_) {
        check_pair(call.name, output, input);
        check_elements(call.name, output, input.numel() * size_, "the input's for each rank");
        call.outputs = {output};
    }
    const Wire wire = wire_of(input);
    call.launch = launch_of<tutti_gather>(wire.count, wire.dtype, call.peer);
    return submit(std::move(call));
}

/* ---- all_to_all_single ---- */

/* Rows of dimension 0 for each rank, as counts of the wire's type. */
static std::vector<size_t> split_counts(const char *argument, const Tensor &tensor, const std::vector<int64_t> &splits,
                                        int size)
{
    TUTTI_CHECK_VALUE(tensor.dim() > 0, "all_to_all_single: ", argument, " is a scalar, which has no rows");
    int64_t rows = tensor.size(0);
    TUTTI_CHECK_VALUE(splits.empty() || int64_t(splits.size()) == size, "all_to_all_single: ", argument, " has ",
                      splits.size(), " splits, ", size, " expected");
    TUTTI_CHECK_VALUE(!splits.empty() || rows % size == 0, "all_to_all_single: the ", rows, " rows of ", argument,
                      " do not divide by ", size, " ranks: pass the splits");
    std::vector<size_t> counts;
    size_t row = rows > 0 ? wire_of(tensor).count / size_t(rows) : 0;
    int64_t total = 0;
    for (int r = 0; r < size; r++) {
        int64_t n = splits.empty() ? rows / size : splits[size_t(r)];
        TUTTI_CHECK_VALUE(n >= 0, "all_to_all_single: ", argument, " has a negative split, ", n);
        total += n;
        counts.push_back(size_t(n) * row);
    }
    TUTTI_CHECK_VALUE(total == rows, "all_to_all_single: the splits of ", argument, " add up to ", total, ", it has ",
                      rows, " rows");
    return counts;
}

/* A rank without splits does not know whether the others have some, and need not: it is always the v form, whose sizes
 * are compared by pair. But windows serve only calls of equal blocks: where a group has some, calls without splits stay
 * what they are (docs/torch.md). */
Backend::WorkPtr Backend::alltoall_base(Tensor &output, Tensor &input, std::vector<int64_t> &output_splits,
                                        std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &options)
{
    Call call = call_of(OpType::ALLTOALL_BASE, "all_to_all_single", options);
    check_pair(call.name, output, input);
    call.inputs = {input};
    call.outputs = {output};
    std::vector<size_t> in = split_counts("input", input, input_splits, size_);
    std::vector<size_t> out = split_counts("output", output, output_splits, size_);
    const bool even = output_splits.empty() && input_splits.empty();
    if (even) check_elements(call.name, output, input.numel(), "as many as the input");
    std::unique_lock<std::mutex> guard(mutex_, std::defer_lock);
    const Device device = device_of_call(call, guard);
    const tutti_dtype dtype = wire_of(input).dtype;
    if (even && device && device->has_windows) {
        call.launch = launch_of<tutti_all_to_all>(in[0], dtype);
    } else {
        part_overlaps(call);
        call.launch = [dtype, in = std::move(in), out = std::move(out)](const Start &s) {
            return tutti_all_to_all_v(s.in[0], in.data(), nullptr, s.out[0], out.data(), nullptr, dtype, s.comm,
                                      s.options, s.work);
        };
    }
    return submit_to(device, guard, std::move(call));
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
    Call call = call_of(OpType::BARRIER, "barrier", options);
    if (!mixed_) call.device = barrier_device(options, getBoundDeviceId());
    call.first = finish_unpacking();
    call.launch = [](const Start &s) { return tutti_barrier(s.comm, s.options, s.work); };
    std::unique_lock<std::mutex> guard(mutex_, std::defer_lock);
    const Device device = device_of_call(call, guard);
    if (!device) return submit_to(device, guard, std::move(call));
    call.inputs = call.outputs = {device->one()}; /* a sum that says that all have come this far */
    call.launch = launch_of<tutti_all_reduce>(size_t(1), TUTTI_INT32, TUTTI_SUM);
    return submit_to(device, guard, std::move(call));
}

} // namespace tutti_torch
