/* SPDX-License-Identifier: BSD-3-Clause */

/* How each request becomes a call: its arguments are checked, and the launch says how the library is to be called.
 *
 * Of a list of tensors, one a rank, one flat tensor goes through the library. When the list is a tensor's chunks in
 * order, that is the tensor's own memory; else elements are copied to and from it. */

#include "tensors/call.hpp"

#include "base/process.hpp"

#include <ATen/core/LegacyTypeDispatch.h>

#include <cstdlib>
#include <cstring>
#include <limits>

namespace tutti_torch
{
namespace
{

/* ---- what several have in common ---- */

void check_elements(const char *collective, const char *argument, const Tensor &tensor, int64_t expected,
                    const char *why)
{
    TUTTI_CHECK_VALUE(tensor.numel() == expected, collective, ": ", argument, " has ", tensor.numel(), " elements, ",
                      expected, " expected: ", why);
}

void check_own_block(const char *collective, const Tensor &own, const Tensor &block)
{
    check_same_type(collective, own, block);
    TUTTI_CHECK_VALUE(own.numel() == block.numel(), collective, ": invalid tensor size: this rank's tensor has ",
                      own.numel(), " elements, its place in the list ", block.numel());
}

void check_root(const Call &call, const Seat &seat)
{
    TUTTI_CHECK_VALUE(call.peer >= 0 && call.peer < seat.size, call.name, ": invalid root rank: ", call.peer,
                      ", the group has ", seat.size, " ranks");
}

/* The result goes to the tensors of the list, in the end or at once. */
void receive_into(Call &call, const Tensors &list)
{
    Tensor flat = flat_for(list);
    call.outputs = {flat};
    call.results = list;
    if (!list.empty() && !flat.is_alias_of(list[0])) call.unpack = [flat, list] { unflatten(flat, list); };
}

/* The library takes an input that lies in the output, or around it, only `in_place`: so far before the output. Where
 * the two overlap in another way, the input is a copy, as if it had been read first. */
constexpr ptrdiff_t never_in_place = std::numeric_limits<ptrdiff_t>::max();

void keep_apart(Call &call, ptrdiff_t in_place)
{
    if (call.inputs.empty() || call.outputs.empty()) return;
    Tensor &input = call.inputs[0];
    const Tensor &output = call.outputs[0];
    const auto from = reinterpret_cast<uintptr_t>(input.const_data_ptr());
    const auto to = reinterpret_cast<uintptr_t>(output.const_data_ptr());
    if (from + input.nbytes() <= to || to + output.nbytes() <= from || ptrdiff_t(to - from) == in_place) return;
    at::AutoDispatchBelowAutograd guard;
    input = input.clone();
}

/* Bytes before the block of a rank in a list. */
ptrdiff_t bytes_before(const Tensors &list, int rank)
{
    size_t bytes = 0;
    for (int r = 0; r < rank; r++) bytes += list[size_t(r)].nbytes();
    return ptrdiff_t(bytes);
}

/* ---- of single tensors ---- */

Call make_send(Request &request, const Seat &)
{
    Call call = begin_call(request);
    const Tensor &tensor = only(call.name, "tensors", request.inputs);
    check_dense(call.name, "tensor", tensor);
    TUTTI_CHECK_VALUE(request.tag >= 0, call.name, ": tag ", request.tag, " is negative");
    call.inputs = call.results = {tensor};
    call.launch = [wire = wire_of(tensor), to = call.peer, tag = request.tag](const Start &s) {
        return tutti_send(s.in[0], wire.count, wire.dtype, to, tag, s.comm, s.options, s.work);
    };
    return call;
}

Call make_recv(Request &request, const Seat &)
{
    Call call = begin_call(request);
    const Tensor &tensor = only(call.name, "tensors", request.outputs);
    check_dense(call.name, "tensor", tensor);
    TUTTI_CHECK_VALUE(request.tag >= 0, call.name, ": tag ", request.tag, " is negative");
    call.outputs = {tensor};
    call.message = std::make_shared<tutti_message>(tutti_message{call.peer, request.tag, 0});
    call.launch = [wire = wire_of(tensor), source = call.peer, tag = request.tag](const Start &s) {
        return tutti_recv(s.out[0], wire.count, wire.dtype, source, tag, s.comm, s.options, s.message, s.work);
    };
    return call;
}

Call make_broadcast(Request &request, const Seat &seat)
{
    Call call = begin_call(request);
    check_root(call, seat);
    const Tensor &tensor = only(call.name, "tensors", request.outputs);
    check_dense(call.name, "tensor", tensor);
    call.results = {tensor};
    (call.peer == seat.rank ? call.inputs : call.outputs) = {tensor};
    call.launch = [wire = wire_of(tensor), root = call.peer](const Start &s) {
        void *buffer = s.in.empty() ? s.out[0] : s.in[0];
        return tutti_broadcast(buffer, wire.count, wire.dtype, root, s.comm, s.options, s.work);
    };
    return call;
}

/* What is to be reduced, one tensor, and its factor, in the call; returns the operation. */
tutti_op reduce_in(Call &call, const ReduceOp &op, Tensors inputs)
{
    call.inputs = std::move(inputs);
    Reduction reduction = reduction_of(op, call.inputs[0]);
    if (C10_UNLIKELY(reduction.scale.defined())) call.inputs[0] = reduction.scaled(call.inputs[0]);
    call.factor = std::move(reduction.factor);
    return reduction.op;
}

Call make_all_reduce(Request &request, const Seat &)
{
    Call call = begin_call(request);
    const Tensor &tensor = only(call.name, "tensors", request.outputs);
    check_dense(call.name, "tensor", tensor);
    const tutti_op op = reduce_in(call, request.op, std::move(request.inputs));
    call.launch = launch_of<tutti_all_reduce>(size_t(tensor.numel()), reduced_dtype(call.name, tensor), op);
    call.outputs = std::move(request.outputs);
    return call;
}

Call make_reduce(Request &request, const Seat &seat)
{
    Call call = begin_call(request);
    check_root(call, seat);
    TUTTI_CHECK_VALUE(request.outputs.size() == 1, call.name, ": requires a single-element tensor list, it has ",
                      request.outputs.size());
    const Tensor &tensor = request.outputs[0];
    check_dense(call.name, "tensor", tensor);
    const tutti_op op = reduce_in(call, request.op, std::move(request.inputs));
    call.results = {tensor};
    if (call.peer == seat.rank) call.outputs = {tensor};
    call.launch = launch_of<tutti_reduce>(size_t(tensor.numel()), reduced_dtype(call.name, tensor), op, call.peer);
    return call;
}

Call make_all_gather_single(Request &request, const Seat &seat)
{
    Call call = begin_call(request);
    const Tensor &input = request.inputs[0], &output = request.outputs[0];
    check_pair(call.name, output, input);
    check_elements(call.name, "output", output, input.numel() * seat.size, "the input's for each rank");
    const Wire wire = wire_of(input);
    call.launch = launch_of<tutti_all_gather>(wire.count, wire.dtype);
    const auto before = ptrdiff_t(input.nbytes()) * seat.rank;
    call.inputs = std::move(request.inputs);
    call.outputs = std::move(request.outputs);
    keep_apart(call, -before);
    return call;
}

Call make_reduce_scatter_single(Request &request, const Seat &seat)
{
    Call call = begin_call(request);
    const Tensor &input = request.inputs[0], &output = request.outputs[0];
    check_pair(call.name, output, input);
    check_elements(call.name, "input", input, output.numel() * seat.size, "the output's for each rank");
    const tutti_dtype dtype = reduced_dtype(call.name, input);
    const tutti_op op = reduce_in(call, request.op, std::move(request.inputs));
    call.launch = launch_of<tutti_reduce_scatter>(size_t(output.numel()), dtype, op);
    const auto before = ptrdiff_t(output.nbytes()) * seat.rank;
    call.outputs = std::move(request.outputs);
    keep_apart(call, before);
    return call;
}

Call make_gather_single(Request &request, const Seat &seat)
{
    Call call = begin_call(request);
    check_root(call, seat);
    const Tensor &input = request.inputs[0], &output = request.outputs[0];
    check_contiguous(call.name, "input", input);
    const Wire wire = wire_of(input);
    call.launch = launch_of<tutti_gather>(wire.count, wire.dtype, call.peer);
    call.inputs = {input};
    if (call.peer != seat.rank) return call;
    check_pair(call.name, output, input);
    check_elements(call.name, "output", output, input.numel() * seat.size, "the input's for each rank");
    call.outputs = {output};
    keep_apart(call, -ptrdiff_t(input.nbytes()) * seat.rank);
    return call;
}

Call make_barrier(Request &request, const Seat &)
{
    Call call = begin_call(request);
    call.launch = [](const Start &s) {
        if (s.in.empty()) return tutti_barrier(s.comm, s.options, s.work);
        /* on a device: a sum that says that all have come this far */
        return tutti_all_reduce(s.in[0], s.out[0], 1, TUTTI_INT32, TUTTI_SUM, s.comm, s.options, s.work);
    };
    return call;
}

/* ---- all_to_all ---- */

/* Rows of dimension 0 for each rank, as counts of the wire's type. */
std::vector<size_t> split_counts(const char *argument, const Tensor &tensor, const Splits &splits, int size)
{
    constexpr const char *name = "all_to_all_single: ";
    TUTTI_CHECK_VALUE(tensor.dim() > 0, name, argument, " is a scalar, which has no rows");
    const int64_t rows = tensor.size(0);
    TUTTI_CHECK_VALUE(splits.empty() || int64_t(splits.size()) == size, name, argument, " has ", splits.size(),
                      " splits, ", size, " expected");
    TUTTI_CHECK_VALUE(!splits.empty() || rows % size == 0, name, "the ", rows, " rows of ", argument,
                      " do not divide by ", size, " ranks: pass the splits");
    std::vector<size_t> counts;
    const size_t row = rows > 0 ? wire_of(tensor).count / size_t(rows) : 0;
    int64_t total = 0;
    for (int r = 0; r < size; r++) {
        const int64_t n = splits.empty() ? rows / size : int64_t(splits[size_t(r)]);
        TUTTI_CHECK_VALUE(n >= 0, name, argument, " has a negative split, ", n);
        total += n;
        counts.push_back(size_t(n) * row);
    }
    TUTTI_CHECK_VALUE(total == rows, name, "the splits of ", argument, " add up to ", total, ", it has ", rows,
                      " rows");
    return counts;
}

/* A rank without splits does not know whether the others have some, and need not: it is always the v form, whose sizes
 * are compared by pair. But windows serve only calls of equal blocks: where a group has some, calls without splits stay
 * what they are (docs/torch.md). */
Call make_all_to_all_single(Request &request, const Seat &seat)
{
    Call call = begin_call(request);
    const Tensor &input = request.inputs[0], &output = request.outputs[0];
    check_pair(call.name, output, input);
    std::vector<size_t> in = split_counts("input", input, request.input_splits, seat.size);
    std::vector<size_t> out = split_counts("output", output, request.output_splits, seat.size);
    const bool even = request.output_splits.empty() && request.input_splits.empty();
    if (even) check_elements(call.name, "output", output, input.numel(), "as many as the input");
    call.launch = [even, dtype = wire_of(input).dtype, in = std::move(in), out = std::move(out)](const Start &s) {
        if (even && s.has_windows) return tutti_all_to_all(s.in[0], s.out[0], in[0], dtype, s.comm, s.options, s.work);
        return tutti_all_to_all_v(s.in[0], in.data(), nullptr, s.out[0], out.data(), nullptr, dtype, s.comm, s.options,
                                  s.work);
    };
    call.inputs = std::move(request.inputs);
    call.outputs = std::move(request.outputs);
    keep_apart(call, never_in_place);
    return call;
}

Call make_all_to_all(Request &request, const Seat &seat)
{
    Call call = begin_call(request);
    const Tensors &inputs = request.inputs, &outputs = request.outputs;
    check_list(call.name, "outputs", outputs, size_t(seat.size));
    check_list(call.name, "inputs", inputs, size_t(seat.size));
    check_own_block(call.name, inputs[size_t(seat.rank)], outputs[size_t(seat.rank)]);
    call.inputs = {flatten(inputs)};
    receive_into(call, outputs);
    call.launch = [dtype = wire_of(inputs[0]).dtype, in = counts_of(inputs), out = counts_of(outputs)](const Start &s) {
        return tutti_all_to_all_v(s.in[0], in.data(), nullptr, s.out[0], out.data(), nullptr, dtype, s.comm, s.options,
                                  s.work);
    };
    keep_apart(call, never_in_place);
    return call;
}

/* ---- lists ---- */

/* Rank r's tensors come to outputs[r * n] and those behind it, where each rank has n. */
Call make_all_gather(Request &request, const Seat &seat)
{
    Call call = begin_call(request);
    const Tensors &inputs = request.inputs, &outputs = request.outputs;
    const size_t n = inputs.size(), own = size_t(seat.rank) * n;
    check_list(call.name, "outputs", outputs, size_t(seat.size) * n);
    for (size_t i = 0; i < n; i++) {
        check_strided(call.name, "input", inputs[i]);
        check_own_block(call.name, inputs[i], outputs[own + i]);
    }
    call.inputs = {n == 1 ? packed(inputs[0]) : flatten(inputs)};
    receive_into(call, outputs);
    const Wire wire = wire_of(call.inputs[0]);
    if (is_even(outputs)) {
        call.launch = launch_of<tutti_all_gather>(wire.count, wire.dtype);
    } else {
        TUTTI_CHECK_VALUE(n == 1, call.name, ": invalid tensor size: several tensors of a rank are of one size");
        call.launch = [dtype = wire.dtype, counts = counts_of(outputs)](const Start &s) {
            return tutti_all_gather_v(s.in[0], s.out[0], counts.data(), nullptr, dtype, s.comm, s.options, s.work);
        };
    }
    keep_apart(call, -bytes_before(outputs, int(own)));
    return call;
}

Call make_reduce_scatter(Request &request, const Seat &seat)
{
    Call call = begin_call(request);
    const Tensors &list = request.inputs;
    const Tensor &output = only(call.name, "output", request.outputs);
    check_list(call.name, "inputs", list, size_t(seat.size));
    check_own_block(call.name, output, list[size_t(seat.rank)]);
    const tutti_op op = reduce_in(call, request.op, {flatten(list)});
    receive_into(call, {output});
    const tutti_dtype dtype = reduced_dtype(call.name, output);
    if (is_even(list)) {
        call.launch = launch_of<tutti_reduce_scatter>(size_t(output.numel()), dtype, op);
    } else {
        call.launch = [dtype, op, counts = counts_of(list)](const Start &s) {
            return tutti_reduce_scatter_v(s.in[0], s.out[0], counts.data(), dtype, op, s.comm, s.options, s.work);
        };
    }
    keep_apart(call, bytes_before(list, seat.rank));
    return call;
}

/* Only the root knows all sizes, so gather and scatter are always the v forms. */

void check_root_list(const char *call, const char *side, const Tensors &list, int size)
{
    TUTTI_CHECK_VALUE(list.size() == size_t(size), call, ": Incorrect ", side, " list size ", list.size(), ". ",
                      side[0] == 'i' ? "Input" : "Output", " list size should be ", size,
                      ", same as size of the process group: ", side, "s");
    check_list(call, side[0] == 'i' ? "inputs" : "outputs", list, size_t(size));
}

Call make_gather(Request &request, const Seat &seat)
{
    Call call = begin_call(request);
    check_root(call, seat);
    const Tensor &input = request.inputs[0];
    check_strided(call.name, "input", input);
    call.inputs = {packed(input)};
    std::vector<size_t> counts;
    if (call.peer == seat.rank) {
        check_root_list(call.name, "output", request.outputs, seat.size);
        check_own_block(call.name, input, request.outputs[size_t(seat.rank)]);
        counts = counts_of(request.outputs);
        receive_into(call, request.outputs);
        keep_apart(call, -bytes_before(request.outputs, seat.rank));
    }
    call.launch = [wire = wire_of(input), root = call.peer, counts = std::move(counts)](const Start &s) {
        return tutti_gather_v(s.in[0], wire.count, s.out.empty() ? nullptr : s.out[0],
                              counts.empty() ? nullptr : counts.data(), nullptr, wire.dtype, root, s.comm, s.options,
                              s.work);
    };
    return call;
}

Call make_scatter(Request &request, const Seat &seat)
{
    Call call = begin_call(request);
    check_root(call, seat);
    const Tensor &output = request.outputs[0];
    check_strided(call.name, "output", output);
    receive_into(call, {output});
    std::vector<size_t> counts;
    if (call.peer == seat.rank) {
        check_root_list(call.name, "input", request.inputs, seat.size);
        check_own_block(call.name, output, request.inputs[size_t(seat.rank)]);
        counts = counts_of(request.inputs);
        call.inputs = {flatten(request.inputs)};
        keep_apart(call, bytes_before(request.inputs, seat.rank));
    }
    call.launch = [wire = wire_of(output), root = call.peer, counts = std::move(counts)](const Start &s) {
        return tutti_scatter_v(s.in.empty() ? nullptr : s.in[0], counts.empty() ? nullptr : counts.data(), nullptr,
                               s.out[0], wire.count, wire.dtype, root, s.comm, s.options, s.work);
    };
    return call;
}

/* ---- the choice ---- */

using Maker = Call (*)(Request &, const Seat &);

constexpr Maker make_all_gather_v = make_all_gather, make_reduce_scatter_v = make_reduce_scatter,
                make_all_to_all_v_single = make_all_to_all_single;
constexpr Maker make_split = nullptr, make_new_window = nullptr, make_batch_op_issue = nullptr, make_finalize = nullptr;

constexpr Maker makers[] = {
#define TUTTI_TORCH_MAKER(name, ...) make_##name,
    TUTTI_TORCH_OPERATIONS(TUTTI_TORCH_MAKER)
#undef TUTTI_TORCH_MAKER
};

} // namespace

Call begin_call(Request &request)
{
    const OpRow &row = row_of(request.name);
    Call call{};
    call.type = row.type;
    call.name = row.distributed;
    call.async = request.async_op;
    call.timeout = request.timeout;
    call.peer = request.peer;
    call.algorithm = std::move(request.algorithm);
    call.quantised = std::move(request.quantised);
    return call;
}

Call call_of(Request &&request, const Seat &seat)
{
    return (request.special ? request.special : makers[size_t(request.name)])(request, seat);
}

/* ---- the search for NaN ---- */

const char *nan_check_variable()
{
    for (const char *name : {"TORCH_XCCL_NAN_CHECK", "TORCH_NCCL_NAN_CHECK"}) {
        const char *value = std::getenv(name);
        if (value && std::strcmp(value, "1") == 0) return name;
    }
    return nullptr;
}

void check_numbers(const Call &call, const char *asked_by)
{
    at::AutoDispatchBelowAutograd guard;
    for (size_t i = 0; i < call.inputs.size(); i++) {
        const Tensor &input = call.inputs[i];
        if (!input.is_floating_point() && !input.is_complex()) continue;
        TORCH_CHECK(!at::isnan(input).any().item<bool>(), "tutti: ", call.name, ": input ", i, " of sizes ",
                    input.sizes(), " has a NaN, and ", asked_by, " asks for this check");
    }
}

} // namespace tutti_torch
