/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* What a rank asks for, whichever API it came by: torch.distributed's backend, torchcomms' API and its plug-in all make
 * a Request, and Backend::run carries it out.
 *
 * The table below has a row for each operation. Enumerators, methods of Python, requests, names in logs, traces and
 * hooks are derived from it. */

#include "base/process.hpp"
#include "tensors/tensors.hpp"

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <tutti/tutti.h>

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti_torch
{

/* X(name, form, name in torch.distributed, OpType, doc, argument names...). A letter of `form` is an argument:
 *   t  a tensor that is input and output          p  the other rank: destination, source or root
 *   i  an input tensor      I  a list of them     r  the reduction
 *   o  an output tensor     O  a list of them     s  rows of the output for each rank   S  rows of the input */
#define TUTTI_TORCH_OPERATIONS(X)                                                                                      \
    X(send, "ip", "send", SEND, "Sends the tensor to rank dst, which receives it.", "tensor", "dst")                   \
    X(recv, "op", "recv", RECV, "Receives into the tensor what rank src sends.", "tensor", "src")                      \
    X(broadcast, "tp", "broadcast", BROADCAST, "Every rank's tensor becomes root's.", "tensor", "root")                \
    X(all_reduce, "tr", "all_reduce", ALLREDUCE, "Every rank's tensor becomes the reduction of all.", "tensor", "op")  \
    X(reduce, "tpr", "reduce", REDUCE, "root's tensor becomes the reduction of all.", "tensor", "root", "op")          \
    X(all_gather, "Oi", "all_gather", ALLGATHER, "tensor_list[r] becomes rank r's tensor.", "tensor_list", "tensor")   \
    X(all_gather_v, "Oi", "all_gather", ALLGATHER, "all_gather of tensors that differ in size.", "tensor_list",        \
      "tensor")                                                                                                        \
    X(all_gather_single, "oi", "all_gather_into_tensor", _ALLGATHER_BASE,                                              \
      "output becomes the inputs of all ranks, one after the other.", "output", "input")                               \
    X(reduce_scatter, "oIr", "reduce_scatter", REDUCE_SCATTER,                                                         \
      "output becomes the reduction of input_list[rank] of all ranks.", "output", "input_list", "op")                  \
    X(reduce_scatter_v, "oIr", "reduce_scatter", REDUCE_SCATTER, "reduce_scatter of tensors that differ in size.",     \
      "output", "input_list", "op")                                                                                    \
    X(reduce_scatter_single, "oir", "reduce_scatter_tensor", _REDUCE_SCATTER_BASE,                                     \
      "output becomes the reduction of this rank's part of all inputs.", "output", "input", "op")                      \
    X(all_to_all_single, "oi", "all_to_all_single", ALLTOALL_BASE,                                                     \
      "Part r of input becomes part `rank` of rank r's output.", "output", "input")                                    \
    X(all_to_all_v_single, "oisS", "all_to_all_single", ALLTOALL_BASE,                                                 \
      "all_to_all_single of parts that differ in size: rows of dimension 0 for each rank.", "output", "input",         \
      "output_split_sizes", "input_split_sizes")                                                                       \
    X(all_to_all, "OI", "all_to_all", ALLTOALL, "input_tensor_list[r] becomes rank r's output [rank].",                \
      "output_tensor_list", "input_tensor_list")                                                                       \
    X(barrier, "", "barrier", BARRIER, "Waits until all ranks have called it.", nullptr)                               \
    X(scatter, "oIp", "scatter", SCATTER, "output_tensor becomes root's input_tensor_list[rank].", "output_tensor",    \
      "input_tensor_list", "root")                                                                                     \
    X(gather, "Oip", "gather", GATHER, "root's output_tensor_list[r] becomes rank r's input_tensor.",                  \
      "output_tensor_list", "input_tensor", "root")                                                                    \
    X(gather_single, "oip", "gather_into_tensor", GATHER,                                                              \
      "root's output becomes the inputs of all ranks, one after the other.", "output", "input", "root")                \
    /* what hooks are told of, too, and is no call */                                                                  \
    X(split, "", nullptr, UNKNOWN, nullptr, nullptr)                                                                   \
    X(new_window, "", nullptr, UNKNOWN, nullptr, nullptr)                                                              \
    X(batch_op_issue, "", "batch_op_issue", COALESCED, nullptr, nullptr)                                               \
    X(finalize, "", nullptr, UNKNOWN, nullptr, nullptr)

enum class OpName {
#define TUTTI_TORCH_ENUMERATOR(name, ...) name,
    TUTTI_TORCH_OPERATIONS(TUTTI_TORCH_ENUMERATOR)
#undef TUTTI_TORCH_ENUMERATOR
};

struct OpRow {
    const char *name; /* "all_reduce": torchcomms' */
    const char *form;
    const char *distributed; /* the name in torch.distributed, of traces and profiles, too */
    c10d::OpType type;
    const char *doc;
    std::array<const char *, 4> arguments;

    constexpr bool has(char letter) const { return std::string_view(form).find(letter) != std::string_view::npos; }
};

inline constexpr OpRow op_rows[] = {
#define TUTTI_TORCH_ROW(name, form, distributed, type, doc, ...)                                                       \
    {#name, form, distributed, c10d::OpType::type, doc, {__VA_ARGS__}},
    TUTTI_TORCH_OPERATIONS(TUTTI_TORCH_ROW)
#undef TUTTI_TORCH_ROW
};
inline constexpr size_t n_op_names = std::size(op_rows);

constexpr const OpRow &row_of(OpName name)
{
    return op_rows[size_t(name)];
}

constexpr bool is_message(OpName name)
{
    return name <= OpName::recv;
}

/* A call of the backend, and no batch of them. */
constexpr bool is_call(OpName name)
{
    return name < OpName::split;
}

inline const char *text_of(OpName name)
{
    return row_of(name).name;
}

using Hints = std::unordered_map<std::string, std::string>; /* comms/hints.hpp has the table of them */
using Splits = std::vector<uint64_t>;

/* How the data of a quantised call travels (tutti_call_options.wire and what follows it). */
struct Quantised {
    tutti_wire wire = TUTTI_WIRE_NONE;
    uint32_t block = 0;
    uint64_t seed = 0;
    Tensor seeds{}; /* one int64 where the call's tensors are, or undefined */
};

struct Call;
struct Seat { /* this rank's in its group */
    int rank, size;
};

struct Request {
    OpName name;
    Tensors inputs{}, outputs{}; /* in place: the same tensor in both */
    int peer = -1;               /* dst, src, root; -1: none, or any source */
    ReduceOp op{};
    Splits output_splits{}, input_splits{}; /* all_to_all_v_single: rows of dimension 0 */
    std::vector<int> ranks{};               /* split */
    std::string new_name{};                 /* split */
    std::vector<Request> parts{};           /* batch_op_issue */
    int tag = 0;                            /* send, recv */
    Quantised quantised{};
    std::string algorithm{}; /* empty: as the library chooses */
    /* How it becomes a call, in place of what its name stands for. */
    Call (*special)(Request &, const Seat &) = nullptr;
    bool async_op = false;
    Hints hints{};
    milliseconds timeout{0}; /* 0: the communicator's */
};

/* The argument of a letter: its type, and where a request has it. */
template <char letter> struct Slot;
template <> struct Slot<'t'> {
    using Type = Tensor;
    static void put(Request &r, Type &&v) { r.inputs.push_back(v), r.outputs.push_back(std::move(v)); }
};
template <> struct Slot<'i'> {
    using Type = Tensor;
    static void put(Request &r, Type &&v) { r.inputs.push_back(std::move(v)); }
};
template <> struct Slot<'o'> {
    using Type = Tensor;
    static void put(Request &r, Type &&v) { r.outputs.push_back(std::move(v)); }
};
template <> struct Slot<'I'> {
    using Type = Tensors;
    static void put(Request &r, Type &&v) { r.inputs = std::move(v); }
};
template <> struct Slot<'O'> {
    using Type = Tensors;
    static void put(Request &r, Type &&v) { r.outputs = std::move(v); }
};
template <> struct Slot<'p'> {
    using Type = int;
    static void put(Request &r, Type &&v) { r.peer = v; }
};
template <> struct Slot<'r'> {
    using Type = ReduceOp;
    static void put(Request &r, Type &&v) { r.op = std::move(v); }
};
template <> struct Slot<'s'> {
    using Type = Splits;
    static void put(Request &r, Type &&v) { r.output_splits = std::move(v); }
};
template <> struct Slot<'S'> {
    using Type = Splits;
    static void put(Request &r, Type &&v) { r.input_splits = std::move(v); }
};

template <OpName name, size_t k> using Argument = Slot<row_of(name).form[k]>;
template <OpName name> using Arguments = std::make_index_sequence<std::string_view(row_of(name).form).size()>;

template <OpName name, size_t... k, typename... Values>
Request request_of(std::index_sequence<k...>, bool async_op, Values &&...values)
{
    Request made{name};
    made.async_op = async_op;
    (Argument<name, k>::put(made, typename Argument<name, k>::Type(std::forward<Values>(values))), ...);
    return made;
}

/* The request with these arguments, in the order of the table. */
template <OpName name, typename... Values> Request request(bool async_op, Values &&...values)
{
    return request_of<name>(Arguments<name>(), async_op, std::forward<Values>(values)...);
}

} // namespace tutti_torch
