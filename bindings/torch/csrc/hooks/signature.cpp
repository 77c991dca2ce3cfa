/* SPDX-License-Identifier: BSD-3-Clause */

/* Signatures: one table of which fields each call has. */

#include "hooks/signature.hpp"

#include <algorithm>
#include <charconv>

namespace tutti_torch
{
namespace
{

/* How one side of a call is counted. */
enum class Side { none, zero, one, list, splits };

struct Fields {
    Side in, out;
    bool reduces;
    const char *peer; /* the field's name; null: it has none */
    bool in_place;
};

constexpr Fields fields_of[n_op_names] = {
    {Side::one, Side::zero, false, "peer", false},       /* send */
    {Side::zero, Side::one, false, "peer", false},       /* recv */
    {Side::one, Side::one, false, "root", true},         /* broadcast */
    {Side::one, Side::one, true, nullptr, true},         /* all_reduce */
    {Side::one, Side::one, true, "root", true},          /* reduce */
    {Side::one, Side::list, false, nullptr, false},      /* all_gather */
    {Side::one, Side::list, false, nullptr, false},      /* all_gather_v */
    {Side::one, Side::one, false, nullptr, false},       /* all_gather_single */
    {Side::list, Side::one, true, nullptr, false},       /* reduce_scatter */
    {Side::list, Side::one, true, nullptr, false},       /* reduce_scatter_v */
    {Side::one, Side::one, true, nullptr, false},        /* reduce_scatter_single */
    {Side::one, Side::one, false, nullptr, false},       /* all_to_all_single */
    {Side::splits, Side::splits, false, nullptr, false}, /* all_to_all_v_single */
    {Side::list, Side::list, false, nullptr, false},     /* all_to_all */
    {Side::none, Side::none, false, nullptr, false},     /* barrier */
    {Side::list, Side::one, false, "root", false},       /* scatter */
    {Side::one, Side::list, false, "root", false},       /* gather */
    {Side::one, Side::one, false, "root", false},        /* gather_single */
};

constexpr const char *log_ops[] = {"sum", "prod", "min", "max", "band", "bor", "bxor", "premul_sum", "avg"};

const char *log_type(const Request &request)
{
    static const std::pair<c10::ScalarType, const char *> types[] = {
        {c10::kFloat, "f32"},
        {c10::kDouble, "f64"},
        {c10::kHalf, "f16"},
        {c10::kBFloat16, "bf16"},
        {c10::kInt, "i32"},
        {c10::kLong, "i64"},
        {c10::kShort, "i16"},
        {c10::kChar, "i8"},
        {c10::kByte, "u8"},
        {c10::kBool, "bool"},
        {c10::kFloat8_e4m3fn, "fp8e4m3"},
        {c10::kFloat8_e5m2, "fp8e5m2"},
    };
    const Tensors &tensors = request.inputs.empty() ? request.outputs : request.inputs;
    if (tensors.empty()) return "other";
    const c10::ScalarType wanted = tensors[0].scalar_type();
    const auto *found =
        std::find_if(std::begin(types), std::end(types), [&](const auto &row) { return row.first == wanted; });
    return found == std::end(types) ? "other" : found->second;
}

template <typename Items, typename Put> void put_items(std::string &out, const Items &items, Put put)
{
    bool first = true;
    for (const auto &item : items) {
        if (!first) out += ',';
        put(item);
        first = false;
    }
}

void put_side(std::string &out, const char *word, Side side, const Tensors &tensors, const Splits &splits)
{
    static constexpr const char *kinds[] = {"", "_count=", "_count=", "_counts=", "_splits="};
    if (side == Side::none) return;
    out += '|';
    out += word;
    out += kinds[size_t(side)];
    if (side == Side::splits)
        put_items(out, splits, [&](uint64_t n) { put_number(out, n); });
    else if (side == Side::list)
        put_items(out, tensors, [&](const Tensor &tensor) { put_number(out, uint64_t(tensor.numel())); });
    else
        put_number(out, side == Side::zero || tensors.empty() ? 0 : uint64_t(tensors[0].numel()));
}

void put_addresses(std::string &out, const char *word, const Tensors &tensors)
{
    if (tensors.empty()) return;
    out += '|';
    out += word;
    put_items(out, tensors, [&](const Tensor &tensor) {
        char digits[20];
        const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
        out += "0x";
        out.append(digits, size_t(std::to_chars(digits, digits + sizeof digits, address, 16).ptr - digits));
    });
}

} // namespace

void put_number(std::string &out, uint64_t number)
{
    char digits[24];
    out.append(digits, size_t(std::to_chars(digits, digits + sizeof digits, number).ptr - digits));
}

std::string name_in_log(const std::string &name)
{
    std::string clean = name;
    for (char &c : clean)
        if (c == '|' || c == '\n' || c == '\r') c = '_';
    return clean;
}

void put_signature(std::string &out, const Request &request, bool buffers)
{
    const Fields &fields = fields_of[size_t(request.name)];
    out += text_of(request.name);
    if (request.name == OpName::batch_op_issue) {
        out += "|num_ops=";
        put_number(out, request.parts.size());
    }
    put_side(out, "in", fields.in, request.inputs, request.input_splits);
    put_side(out, "out", fields.out, request.outputs, request.output_splits);
    if (fields.in != Side::none) (out += "|dtype=") += log_type(request);
    if (fields.reduces) (out += "|red_op=") += log_ops[size_t(request.op.type)];
    if (fields.peer) {
        ((out += '|') += fields.peer) += '=';
        put_number(out, uint64_t(std::max(0, request.peer)));
    }
    out += request.async_op ? "|async_op=t" : "|async_op=f";
    if (!buffers) return;
    put_addresses(out, fields.in_place ? "buf=" : "in=", request.inputs);
    if (!fields.in_place) put_addresses(out, "out=", request.outputs);
}

} // namespace tutti_torch
