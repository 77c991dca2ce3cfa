/* SPDX-License-Identifier: BSD-3-Clause */

/* Calls that torchcomms has in its backend ncclx alone: data that travels in fewer bits, counts that only tensors know,
 * sparse blocks. */

#include "comms/quantized.hpp"
#include "base/process.hpp"

#include "tensors/call.hpp"
#include "comms/hints.hpp"

namespace tutti_torch
{

tutti_wire wire_named(const char *call, const char *argument, const std::string &name)
{
    std::string all;
    for (int wire = TUTTI_WIRE_NONE; wire < TUTTI_N_WIRES; wire++) {
        const std::string known = tutti_wire_name(tutti_wire(wire));
        if (name == known) return tutti_wire(wire);
        all += (wire ? ", " : "") + known;
    }
    TORCH_CHECK(false, "tutti: ", call, ": ", argument, " is '", name, "'; it is one of ", all);
}

Quantised quantised_for(const Request &request)
{
    Quantised found = request.quantised;
    if (C10_LIKELY(request.hints.empty())) return found;
    const char *call = text_of(request.name);
    const std::string wire = hint_of(request.hints, "wire");
    if (!wire.empty()) found.wire = wire_named(call, "hint 'wire'", wire);
    found.block = uint32_t(number_hint(call, request.hints, "wire_block", 0, 1024, found.block));
    found.seed = uint64_t(number_hint(call, request.hints, "wire_seed", 0, INT64_MAX, int64_t(found.seed)));
    return found;
}

/* A seed on the host is a number; it is odd, so that it rounds stochastically. */
static Quantised seeded(const Tensor &output, const Tensor &seed)
{
    TUTTI_CHECK_VALUE(seed.numel() == 1 && seed.scalar_type() == at::kLong,
                      "reduce_scatter_quantized: seed is one int64, but got ", seed.numel(), " of ",
                      seed.scalar_type());
    TUTTI_CHECK_VALUE(seed.is_cpu() || seed.device() == output.device(), "reduce_scatter_quantized: seed is on ",
                      seed.device(), ", output on ", output.device());
    Quantised quantised;
    quantised.wire = TUTTI_WIRE_BFLOAT16;
    if (seed.is_cpu())
        quantised.seed = uint64_t(seed.item<int64_t>()) * 2 + 1;
    else
        quantised.seeds = seed;
    return quantised;
}

namespace
{

void check_words(const char *call, const char *name, const Tensor &tensor, int64_t n, at::ScalarType type)
{
    TUTTI_CHECK_VALUE(tensor.numel() == n && tensor.scalar_type() == type && tensor.is_contiguous(), call, ": ", name,
                      " is ", n, " of ", type, ", contiguous, but got ", tensor.numel(), " of ", tensor.scalar_type());
}

Call begin_special(Request &request, const char *name)
{
    Call call = begin_call(request);
    call.name = name;
    call.inputs = request.inputs;
    call.outputs = request.outputs;
    return call;
}

/* Elements of a row of dimension 0. */
int64_t elements_a_row(const Tensor &tensor)
{
    return tensor.dim() > 1 && tensor.size(0) > 0 ? tensor.numel() / tensor.size(0) : 1;
}

/* The library counts elements, the caller rows. */
void count_elements(Call &call, int64_t row)
{
    const Tensor rows = call.outputs[1], elements = at::empty_like(rows);
    call.inputs[1] = call.inputs[1] * row;
    call.outputs[1] = elements;
    call.unpack = [rows, elements, row] { rows.copy_(at::div(elements, row, "floor")); };
}

Call make_dynamic(Request &request, const Seat &seat)
{
    const char *name = "all_to_all_v_dynamic";
    Call call = begin_special(request, name);
    const Tensor &input = request.inputs[0], &output = request.outputs[0];
    check_pair(name, output, input);
    check_words(name, "the counts of what is sent", request.inputs[1], seat.size, at::kLong);
    check_words(name, "the counts of what comes", request.outputs[1], seat.size, at::kLong);
    check_words(name, "status", request.outputs[2], 1, at::kInt);
    const Wire sent = wire_of(input), room = wire_of(output);
    const int64_t row = elements_a_row(input.numel() > 0 ? input : output);
    if (row > 1) count_elements(call, row);
    call.launch = [sent, room](const Start &s) {
        struct tutti_all_to_all_v_dynamic what {
        }; /* a function has that name, too */
        what.size = sizeof what;
        what.send = s.in[0], what.send_capacity = sent.count;
        what.send_counts = static_cast<const uint64_t *>(s.in[1]);
        what.recv = s.out[0], what.recv_capacity = room.count;
        what.recv_counts = static_cast<uint64_t *>(s.out[1]);
        what.status = static_cast<int32_t *>(s.out[2]);
        what.dtype = sent.dtype;
        return tutti_all_to_all_v_dynamic(&what, s.comm, s.options, s.work);
    };
    return call;
}

Call make_sparse_block(Request &request, const Seat &)
{
    const char *name = "all_reduce_sparse_block";
    Call call = begin_special(request, name);
    const Tensor &values = request.inputs[0], &indices = request.inputs[1], &output = request.outputs[0];
    check_pair(name, output, values);
    check_words(name, "indices", indices, indices.numel(), at::kLong);
    check_words(name, "status", request.outputs[1], 1, at::kInt);
    const size_t n = size_t(indices.numel()), block = n ? size_t(values.numel()) / n : size_t(output.numel());
    TUTTI_CHECK_VALUE(size_t(values.numel()) == n * block && (n == 0 || block > 0), name, ": values has ",
                      values.numel(), " elements, which are not ", n, " equal blocks");
    Reduction reduction = reduction_of(request.op, output);
    call.launch = [n, block, room = wire_of(output), op = reduction.op](const Start &s) {
        return tutti_all_reduce_sparse_block(s.in[0], static_cast<const int64_t *>(s.in[1]), n, block, s.out[0],
                                             room.count, room.dtype, op, static_cast<int32_t *>(s.out[1]), s.comm,
                                             s.options, s.work);
    };
    return call;
}

} // namespace

namespace requests
{

Request reduce_scatter_quantized(const Tensor &output, const Tensor &input, const ReduceOp &op, const Tensor &seed,
                                 bool async_op)
{
    Request made = request<OpName::reduce_scatter_single>(async_op, output, input, op);
    made.quantised = seeded(output, seed);
    return made;
}

Request all_to_all_v_dynamic(const Tensor &output, const Tensor &input, const Tensor &output_counts,
                             const Tensor &input_counts, const Tensor &status, bool async_op)
{
    Request made{OpName::all_to_all_v_single, {input, input_counts}, {output, output_counts, status}};
    made.async_op = async_op;
    made.special = make_dynamic;
    return made;
}

Request all_reduce_sparse_block(const Tensor &output, const Tensor &values, const Tensor &indices, const ReduceOp &op,
                                const Tensor &status, bool async_op)
{
    Request made{OpName::all_reduce, {values, indices}, {output, status}, -1, op};
    made.async_op = async_op;
    made.special = make_sparse_block;
    return made;
}

} // namespace requests
} // namespace tutti_torch
