/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Room comms: torchcomms' API in C++, over the backend: communicators that are objects, without a default group. Uses
 * all other rooms but python, which binds it.
 *
 * Begin here. A call is data: its caller makes a Request, by one of the functions in `requests`, and TorchComm::run
 * (comms.hpp) checks it, shows it to the hooks (hooks.hpp) and hands it to the backend. Names and meanings are
 * torchcomms'. */

#include "base/process.hpp"
#include "tensors/call.hpp"
#include "tensors/tensors.hpp"

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace tutti_torch
{

using Hints = std::unordered_map<std::string, std::string>; /* hints.hpp has the table of them */
using Splits = std::vector<uint64_t>;

/* The names of calls, as hooks are told. */
enum class OpName {
    send,
    recv,
    broadcast,
    all_reduce,
    reduce,
    all_gather,
    all_gather_v,
    all_gather_single,
    reduce_scatter,
    reduce_scatter_v,
    reduce_scatter_single,
    all_to_all_single,
    all_to_all_v_single,
    all_to_all,
    barrier,
    scatter,
    gather,
    gather_single,
    split,
    new_window,
    batch_op_issue,
    finalize,
};
inline constexpr size_t n_op_names = size_t(OpName::finalize) + 1;
const char *text_of(OpName name); /* "all_reduce" */

class Backend;

class ReduceOp
{
  public:
    enum class Type { SUM, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM, AVG };
    using Factor = std::variant<Tensor, double>;

    ReduceOp(Type of = Type::SUM) : type(of) { TORCH_CHECK(of != Type::PREMUL_SUM, "PREMUL_SUM needs a factor"); }
    static ReduceOp premul_sum(Factor factor);
    c10d::ReduceOp as_c10d() const;

    Type type;
    Factor factor = 1.0; /* for PREMUL_SUM */
};

/* What one rank asks for. */
struct Request {
    OpName name;
    Tensors inputs, outputs; /* in place: the same tensor in both */
    int peer = -1;           /* dst, src, root */
    ReduceOp op{};
    Splits input_splits{}, output_splits{}; /* all_to_all_v_single: rows of dimension 0 */
    std::vector<int> ranks{};               /* split */
    std::string new_name{};                 /* split */
    std::vector<Request> parts{};           /* batch_op_issue */
    int tag = 0;                            /* send, recv */
    Quantised quantised{};
    /* Starts it in place of what its name stands for. */
    c10::intrusive_ptr<c10d::Work> (*special)(Backend &, struct Request &) = nullptr;
    bool async_op = false;
    Hints hints{};
    milliseconds timeout{0}; /* 0: the communicator's */
};

/* One function a call, with torchcomms' order of arguments. */
namespace requests
{

inline Request in_place(OpName name, const Tensor &tensor, int peer, const ReduceOp &op, bool async_op)
{
    Request made{name, {tensor}, {tensor}, peer, op};
    made.async_op = async_op;
    return made;
}

inline Request between(OpName name, Tensors outputs, Tensors inputs, int peer, const ReduceOp &op, bool async_op)
{
    Request made{name, std::move(inputs), std::move(outputs), peer, op};
    made.async_op = async_op;
    return made;
}

inline Request send(const Tensor &tensor, int dst, bool async_op)
{
    return between(OpName::send, {}, {tensor}, dst, {}, async_op);
}

inline Request recv(const Tensor &tensor, int src, bool async_op)
{
    return between(OpName::recv, {tensor}, {}, src, {}, async_op);
}

inline Request broadcast(const Tensor &tensor, int root, bool async_op)
{
    return in_place(OpName::broadcast, tensor, root, {}, async_op);
}

inline Request all_reduce(const Tensor &tensor, const ReduceOp &op, bool async_op)
{
    return in_place(OpName::all_reduce, tensor, -1, op, async_op);
}

inline Request reduce(const Tensor &tensor, int root, const ReduceOp &op, bool async_op)
{
    return in_place(OpName::reduce, tensor, root, op, async_op);
}

inline Request all_gather(Tensors tensor_list, const Tensor &tensor, bool async_op)
{
    return between(OpName::all_gather, std::move(tensor_list), {tensor}, -1, {}, async_op);
}

inline Request all_gather_v(Tensors tensor_list, const Tensor &tensor, bool async_op)
{
    return between(OpName::all_gather_v, std::move(tensor_list), {tensor}, -1, {}, async_op);
}

inline Request all_gather_single(const Tensor &output, const Tensor &input, bool async_op)
{
    return between(OpName::all_gather_single, {output}, {input}, -1, {}, async_op);
}

inline Request reduce_scatter(const Tensor &output, Tensors input_list, const ReduceOp &op, bool async_op)
{
    return between(OpName::reduce_scatter, {output}, std::move(input_list), -1, op, async_op);
}

inline Request reduce_scatter_v(const Tensor &output, Tensors input_list, const ReduceOp &op, bool async_op)
{
    return between(OpName::reduce_scatter_v, {output}, std::move(input_list), -1, op, async_op);
}

inline Request reduce_scatter_single(const Tensor &output, const Tensor &input, const ReduceOp &op, bool async_op)
{
    return between(OpName::reduce_scatter_single, {output}, {input}, -1, op, async_op);
}

inline Request all_to_all_single(const Tensor &output, const Tensor &input, bool async_op)
{
    return between(OpName::all_to_all_single, {output}, {input}, -1, {}, async_op);
}

inline Request all_to_all_v_single(const Tensor &output, const Tensor &input, Splits output_splits, Splits input_splits,
                                   bool async_op)
{
    Request made = between(OpName::all_to_all_v_single, {output}, {input}, -1, {}, async_op);
    made.output_splits = std::move(output_splits);
    made.input_splits = std::move(input_splits);
    return made;
}

inline Request all_to_all(Tensors output_list, Tensors input_list, bool async_op)
{
    return between(OpName::all_to_all, std::move(output_list), std::move(input_list), -1, {}, async_op);
}

inline Request barrier(bool async_op)
{
    return between(OpName::barrier, {}, {}, -1, {}, async_op);
}

inline Request scatter(const Tensor &output, Tensors input_list, int root, bool async_op)
{
    return between(OpName::scatter, {output}, std::move(input_list), root, {}, async_op);
}

inline Request gather(Tensors output_list, const Tensor &input, int root, bool async_op)
{
    return between(OpName::gather, std::move(output_list), {input}, root, {}, async_op);
}

inline Request gather_single(const Tensor &output, const Tensor &input, int root, bool async_op)
{
    return between(OpName::gather_single, {output}, {input}, root, {}, async_op);
}

} // namespace requests
} // namespace tutti_torch
