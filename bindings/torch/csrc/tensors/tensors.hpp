/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Tensors as the C library sees them: a type, a count, a pointer. */

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <tutti/types.h>

#include <variant>
#include <vector>

namespace tutti_torch
{

using Tensor = at::Tensor;
using Tensors = std::vector<at::Tensor>;

/* How a tensor travels: in its own type where the library has it, else (quantized, 4-bit, other 8-bit floats) as bytes,
 * which is enough for all that does not reduce. */
struct Wire {
    tutti_dtype dtype;
    size_t count; /* elements of dtype */
};
Wire wire_of(const Tensor &tensor);
/* The type for a reduction; ValueError naming it when the library does not reduce it. */
tutti_dtype reduced_dtype(const char *collective, const Tensor &tensor);

class ReduceOp
{
  public:
    enum class Type { SUM, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM, AVG };
    using Factor = std::variant<Tensor, double>;

    ReduceOp(Type of = Type::SUM) : type(of) { TORCH_CHECK(of != Type::PREMUL_SUM, "PREMUL_SUM needs a factor"); }
    static ReduceOp premul_sum(Factor factor);
    static ReduceOp of(const char *call, const c10d::ReduceOp &op);

    Type type;
    Factor factor = 1.0; /* PREMUL_SUM's */
};

struct Reduction {
    tutti_op op;
    Tensor factor; /* PREMUL_SUM: one element of the call's type on the CPU; else undefined */
    Tensor scale;  /* the same, on a CUDA device: the input is multiplied there, for reading it would wait */
    Tensor scaled(const Tensor &input) const; /* what is to be reduced */
};
Reduction reduction_of(const ReduceOp &op, const Tensor &tensor);

/* ValueError unless the tensor has strides at all (is not sparse); fills its memory without holes, so that its elements
 * can be sent in storage order (every rank has to use the same strides); is contiguous, in any memory format. */
void check_strided(const char *collective, const char *argument, const Tensor &tensor);
void check_dense(const char *collective, const char *argument, const Tensor &tensor);
void check_contiguous(const char *collective, const char *argument, const Tensor &tensor);
/* TypeError unless they have one type, ValueError unless they are on one device. */
void check_same_type(const char *collective, const Tensor &one, const Tensor &other);
/* For tensors of which one holds blocks of the other: contiguous, and in one memory format. */
void check_pair(const char *collective, const Tensor &output, const Tensor &input);
/* Exactly one tensor. */
Tensor &only(const char *collective, const char *argument, Tensors &tensors);
/* n strided tensors, on one device and, unless told, of one type. */
void check_list(const char *collective, const char *argument, const Tensors &tensors, size_t n, bool one_type = true);

/* A contiguous tensor with the same elements: itself when it is. */
Tensor packed(const Tensor &tensor);
/* The tensors of a list as one flat tensor: an alias when they lie one after the other in one storage (chunks of a
 * tensor), else undefined. */
Tensor flat_alias(const Tensors &list);
/* A flat tensor with the list's elements in order: the alias, or a copy. */
Tensor flatten(const Tensors &list);
/* The list's elements as they are now, unless `flat` is the alias. */
void refill(const Tensor &flat, const Tensors &list);
/* The alias, or new memory of that size, to be scattered to the list by unflatten. */
Tensor flat_for(const Tensors &list);
void unflatten(const Tensor &flat, const Tensors &list);

/* Elements of each tensor, as counts of the wire's type; true from is_even when all are equal. */
std::vector<size_t> counts_of(const Tensors &list);
bool is_even(const Tensors &list);

} // namespace tutti_torch
