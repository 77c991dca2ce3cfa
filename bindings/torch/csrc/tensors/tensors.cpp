/* SPDX-License-Identifier: BSD-3-Clause */

/* Types, operations and layouts: PyTorch's words for them in tutti's, and what is refused. */

#include "tensors/tensors.hpp"

#include "base/native.hpp"
#include "base/process.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include <array>
#include <optional>
#include <utility>

namespace tutti_torch
{
namespace
{

#define TUTTI_TORCH_DTYPE(id, name, class, bits, mantissa, bias, infinity, torch) {at::ScalarType::torch, TUTTI_##id},
constexpr std::pair<at::ScalarType, tutti_dtype> dtypes[] = {TUTTI_DTYPES(TUTTI_TORCH_DTYPE)};
#undef TUTTI_TORCH_DTYPE

std::optional<tutti_dtype> dtype_of(at::ScalarType type)
{
    for (const auto &[torch, tutti] : dtypes)
        if (torch == type) return tutti;
    return std::nullopt;
}

/* In the order of ReduceOp::Type. */
constexpr std::pair<c10d::ReduceOp::RedOpType, tutti_op> reduce_ops[] = {
    {c10d::ReduceOp::SUM, TUTTI_SUM},   {c10d::ReduceOp::PRODUCT, TUTTI_PROD},
    {c10d::ReduceOp::MIN, TUTTI_MIN},   {c10d::ReduceOp::MAX, TUTTI_MAX},
    {c10d::ReduceOp::BAND, TUTTI_BAND}, {c10d::ReduceOp::BOR, TUTTI_BOR},
    {c10d::ReduceOp::BXOR, TUTTI_BXOR}, {c10d::ReduceOp::PREMUL_SUM, TUTTI_PREMUL_SUM},
    {c10d::ReduceOp::AVG, TUTTI_AVG},
};

/* Integers would be multiplied by what is left of another one: 0 of a half. */
void check_factor(at::ScalarType type, bool fits)
{
    TUTTI_CHECK_VALUE(fits || !c10::isIntegralType(type, /*includeBool=*/false), "PREMUL_SUM of ", type,
                      ": the factor must be a number of that type");
}

/* The factor came as a number or as a tensor of any type on any device. */
Tensor factor_of(const ReduceOp::Factor &given, at::ScalarType type)
{
    at::AutoDispatchBelowAutograd guard;
    const Tensor *tensor = std::get_if<Tensor>(&given);
    const Tensor wide = tensor ? tensor->to(at::kCPU).reshape({1})
                               : at::full({1}, std::get<double>(given), at::TensorOptions().dtype(at::kDouble));
    Tensor factor = wide.to(type);
    check_factor(type, factor.to(wide.scalar_type()).equal(wide));
    return factor;
}

} // namespace

Wire wire_of(const Tensor &tensor)
{
    size_t n = size_t(tensor.numel());
    if (auto dtype = dtype_of(tensor.scalar_type())) return {*dtype, n};
    return {TUTTI_UINT8, n * tensor.element_size()};
}

tutti_dtype reduced_dtype(const char *collective, const Tensor &tensor)
{
    auto dtype = dtype_of(tensor.scalar_type());
    TUTTI_CHECK_VALUE(dtype, collective, " does not reduce tensors of type ", tensor.scalar_type());
    return *dtype;
}

ReduceOp ReduceOp::premul_sum(Factor factor)
{
    ReduceOp op;
    op.type = Type::PREMUL_SUM;
    op.factor = std::move(factor);
    return op;
}

ReduceOp ReduceOp::of(const char *call, const c10d::ReduceOp &op)
{
    if (op.op_ == c10d::ReduceOp::PREMUL_SUM) {
        const auto *supplement = static_cast<const c10d::NCCLPreMulSumSupplement *>(op.supplement_.get());
        TUTTI_CHECK_VALUE(supplement, call, ": PREMUL_SUM without a factor");
        if (supplement->tensor_factor.defined()) return premul_sum(supplement->tensor_factor);
        return premul_sum(supplement->double_factor);
    }
    for (size_t i = 0; i < std::size(reduce_ops); i++)
        if (reduce_ops[i].first == op.op_) return Type(i);
    TUTTI_CHECK_VALUE(false, call, ": unknown reduce operation ", int(op.op_));
    return {};
}

Tensor Reduction::scaled(const Tensor &input) const
{
    if (C10_LIKELY(!scale.defined())) return input;
    at::AutoDispatchBelowAutograd guard;
    return input.mul(scale.to(input.scalar_type()).reshape({}));
}

/* A factor on the tensor's own kind of device stays there. */
Reduction reduction_of(const ReduceOp &op, const Tensor &tensor)
{
    const tutti_op known = reduce_ops[size_t(op.type)].second;
    if (C10_LIKELY(known != TUTTI_PREMUL_SUM)) return {known, {}, {}};
    const Tensor *scale = std::get_if<Tensor>(&op.factor);
    if (!scale || !is_native(tensor.device()) || !is_native(scale->device()))
        return {known, factor_of(op.factor, tensor.scalar_type()), {}};
    check_factor(tensor.scalar_type(), c10::isIntegralType(scale->scalar_type(), true));
    return {TUTTI_SUM, {}, *scale};
}

void check_strided(const char *collective, const char *argument, const Tensor &tensor)
{
    TUTTI_CHECK_VALUE(tensor.layout() == at::kStrided, collective, ": ", argument,
                      " is a sparse tensor (invalid tensor layout, unsupported layout), a dense one is expected");
}

/* A conjugate or negative view says by a bit that its memory means something else. */
static bool means_its_memory(const Tensor &tensor)
{
    return !tensor.is_conj() && !tensor.is_neg();
}

static void check_memory(const char *collective, const char *argument, const Tensor &tensor)
{
    check_strided(collective, argument, tensor);
    TUTTI_CHECK_VALUE(means_its_memory(tensor), collective, ": ", argument,
                      " is a view of conjugate or negated elements: pass resolve_conj() or resolve_neg() of it");
}

void check_dense(const char *collective, const char *argument, const Tensor &tensor)
{
    check_memory(collective, argument, tensor);
    TUTTI_CHECK_VALUE(tensor.is_non_overlapping_and_dense(), collective, ": Tensors must be contiguous: ", argument,
                      " has holes, strides ", tensor.strides(), " for sizes ", tensor.sizes());
}

void check_contiguous(const char *collective, const char *argument, const Tensor &tensor)
{
    check_memory(collective, argument, tensor);
    TUTTI_CHECK_VALUE(tensor.is_contiguous() || tensor.is_contiguous(tensor.suggest_memory_format()), collective,
                      ": Tensors must be contiguous: ", argument, " has strides ", tensor.strides(), " for sizes ",
                      tensor.sizes());
}

void check_same_type(const char *collective, const Tensor &one, const Tensor &other)
{
    TUTTI_CHECK_TYPE(one.scalar_type() == other.scalar_type(), collective,
                     ": invalid tensor type: tensors of different types, ", one.scalar_type(), " and ",
                     other.scalar_type());
    TUTTI_CHECK_VALUE(one.device() == other.device(), collective, ": tensors on different devices, ", one.device(),
                      " and ", other.device());
}

void check_pair(const char *collective, const Tensor &output, const Tensor &input)
{
    check_contiguous(collective, "output", output);
    check_contiguous(collective, "input", input);
    check_same_type(collective, output, input);
    bool alike = (output.is_contiguous() && input.is_contiguous()) ||
                 (output.dim() == input.dim() && output.suggest_memory_format() == input.suggest_memory_format());
    TUTTI_CHECK_VALUE(alike, collective, ": Tensors must be contiguous in one memory format: output has strides ",
                      output.strides(), ", input ", input.strides());
}

Tensor &only(const char *collective, const char *argument, Tensors &tensors)
{
    TUTTI_CHECK_VALUE(!tensors.empty(), collective, ": requires non-empty tensor list: ", argument, " is empty");
    TUTTI_CHECK_VALUE(tensors.size() == 1, collective, ": ", argument, " must be one tensor, it has ", tensors.size());
    return tensors[0];
}

void check_list(const char *collective, const char *argument, const Tensors &tensors, size_t n, bool one_type)
{
    TUTTI_CHECK_VALUE(tensors.size() == n, collective, ": ", argument, " has ", tensors.size(), " tensors, ", n,
                      " expected");
    for (const Tensor &tensor : tensors) {
        check_strided(collective, argument, tensor);
        if (one_type) check_same_type(collective, tensors[0], tensor);
    }
}

/* ---- lists ---- */

Tensor packed(const Tensor &tensor)
{
    if (tensor.is_contiguous() && means_its_memory(tensor)) return tensor;
    at::AutoDispatchBelowAutograd guard;
    return tensor.resolve_conj().resolve_neg().contiguous();
}

Tensor flat_alias(const Tensors &list)
{
    const Tensor &first = list[0];
    int64_t offset = first.storage_offset();
    for (const Tensor &tensor : list) {
        if (!tensor.is_contiguous() || !means_its_memory(tensor)) return {};
        if (!tensor.is_alias_of(first) || tensor.storage_offset() != offset) return {};
        offset += tensor.numel();
    }
    at::AutoDispatchBelowAutograd guard;
    return first.as_strided({offset - first.storage_offset()}, {1}, first.storage_offset());
}

static int64_t numel_of(const Tensors &list)
{
    int64_t n = 0;
    for (const Tensor &tensor : list) n += tensor.numel();
    return n;
}

Tensor flat_for(const Tensors &list)
{
    Tensor alias = flat_alias(list);
    if (alias.defined()) return alias;
    at::AutoDispatchBelowAutograd guard;
    return at::empty({numel_of(list)}, list[0].options().memory_format(std::nullopt));
}

/* Blocks of `flat` in the shapes of the list; f(block, tensor). */
template <typename Function> static void each_block(const Tensor &flat, const Tensors &list, Function f)
{
    int64_t offset = flat.storage_offset();
    at::AutoDispatchBelowAutograd guard;
    for (const Tensor &tensor : list) {
        if (tensor.numel() > 0) f(flat.as_strided({tensor.numel()}, {1}, offset).view(tensor.sizes()), tensor);
        offset += tensor.numel();
    }
}

void refill(const Tensor &flat, const Tensors &list)
{
    if (!flat.is_alias_of(list[0])) each_block(flat, list, [](Tensor block, const Tensor &t) { block.copy_(t); });
}

Tensor flatten(const Tensors &list)
{
    Tensor flat = flat_for(list);
    refill(flat, list);
    return flat;
}

/* As if the library had written there: views are not asked whether that is so (autograd refuses it for those that came
 * from one function), and versions do not count up. */
void unflatten(const Tensor &flat, const Tensors &list)
{
    if (flat.is_alias_of(list[0])) return;
    at::AutoDispatchBelowADInplaceOrView guard;
    each_block(flat, list, [](const Tensor &block, Tensor t) { t.copy_(block); });
}

std::vector<size_t> counts_of(const Tensors &list)
{
    std::vector<size_t> counts;
    for (const Tensor &tensor : list) counts.push_back(wire_of(tensor).count);
    return counts;
}

bool is_even(const Tensors &list)
{
    for (const Tensor &tensor : list)
        if (tensor.numel() != list[0].numel()) return false;
    return true;
}

} // namespace tutti_torch
