/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Requests that torchcomms has in its backend ncclx alone (quantized.cpp). */

#include "tensors/request.hpp"

namespace tutti_torch
{

/* Throws, with the names that there are, when none is this one. */
tutti_wire wire_named(const char *call, const char *argument, const std::string &name);
/* What the request and its hints say. */
Quantised quantised_for(const Request &request);

namespace requests
{

/* bfloat16 with stochastic rounding, unless a hint says otherwise. seed: one int64, on the host or beside output. */
Request reduce_scatter_quantized(const Tensor &output, const Tensor &input, const ReduceOp &op, const Tensor &seed,
                                 bool async_op);
/* Counts are rows of dimension 0, int64, one a rank; status: one int32. All where the data is. */
Request all_to_all_v_dynamic(const Tensor &output, const Tensor &input, const Tensor &output_counts,
                             const Tensor &input_counts, const Tensor &status, bool async_op);
/* values: equal blocks, as many as there are indices, which are numbers of blocks of output. */
Request all_reduce_sparse_block(const Tensor &output, const Tensor &values, const Tensor &indices, const ReduceOp &op,
                                const Tensor &status, bool async_op);

} // namespace requests
} // namespace tutti_torch
