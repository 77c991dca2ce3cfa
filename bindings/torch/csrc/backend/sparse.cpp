/* SPDX-License-Identifier: BSD-3-Clause */

/* Sums of sparse tensors: every rank gathers the indices and values of all, and adds them up. Sizes and indices are
 * exchanged first, so the call waits for the others; what follows is asynchronous. */

#include "backend/backend.hpp"

#include <ATen/core/LegacyTypeDispatch.h>

namespace tutti_torch
{
namespace
{

constexpr const char *name = "all_reduce (sparse)";

/* What goes before the user's call, and is a part of it. */
Call part(Call call)
{
    call.async = false;
    call.counted = false;
    return call;
}

Call gather_call(const Tensor &mine, const Tensor &all, const c10d::AllreduceOptions &options)
{
    Call call = call_of(c10d::OpType::_ALLREDUCE_SPARSE, name, options);
    call.inputs = {mine};
    call.outputs = {all};
    return call;
}

/* How many non-zero elements each rank has. */
Call gather_sizes(const Tensor &mine, const Tensor &all, const c10d::AllreduceOptions &options)
{
    Call call = gather_call(mine, all, options);
    call.launch = [](const Start &s) {
        return tutti_all_gather(s.in[0], s.out[0], 1, TUTTI_INT64, s.comm, s.options, s.work);
    };
    return call;
}

/* Rows of all ranks, n_rows[r] from rank r. */
Call gather_rows(const Tensor &rows, const Tensor &all, const std::vector<int64_t> &n_rows,
                 const c10d::AllreduceOptions &options)
{
    Call call = gather_call(rows, all, options);
    int64_t row = 1;
    for (int64_t d = 1; d < rows.dim(); d++) row *= rows.size(d);
    const Wire wire = wire_of(rows);
    std::vector<size_t> counts;
    for (int64_t n : n_rows) counts.push_back(size_t(n * row) * wire.per_element);
    call.launch = [dtype = wire.dtype, counts](const Start &s) {
        return tutti_all_gather_v(s.in[0], s.out[0], counts.data(), nullptr, dtype, s.comm, s.options, s.work);
    };
    return call;
}

Tensor empty_rows(const Tensor &like, int64_t n)
{
    std::vector<int64_t> sizes = like.sizes().vec();
    sizes[0] = n;
    return at::empty(sizes, like.options());
}

} // namespace

Backend::WorkPtr Backend::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &options)
{
    Tensor &tensor = only(name, "tensors", tensors);
    TORCH_CHECK_VALUE(tensor.layout() == at::kSparse, "tutti: ", name, ": the tensor is not sparse");
    TORCH_CHECK_VALUE(options.reduceOp == c10d::ReduceOp::SUM, "tutti: ", name, ": only sums are defined");
    TORCH_CHECK(!is_coalescing(), "tutti: ", name, " waits for the other ranks, so it can not be coalesced");
    at::AutoDispatchBelowAutograd guard;
    Tensor own = tensor.coalesce();
    /* One row a non-zero element, so that the ranks' parts follow one another. */
    Tensor indices = own.indices().t().contiguous(), values = own.values().contiguous();
    Tensor n_own = at::full({1}, values.size(0), at::kLong), n_all = at::empty({size_}, at::kLong);
    submit(part(gather_sizes(n_own, n_all, options)));
    std::vector<int64_t> n_rows(n_all.data_ptr<int64_t>(), n_all.data_ptr<int64_t>() + size_);
    int64_t total = n_all.sum().item<int64_t>();

    Tensor all_indices = empty_rows(indices, total), all_values = empty_rows(values, total);
    submit(part(gather_rows(indices, all_indices, n_rows, options)));
    Call call = gather_rows(values, all_values, n_rows, options);
    call.results = {tensor};
    call.unpack = [tensor, all_indices, all_values] {
        Tensor sum = at::sparse_coo_tensor(all_indices.t(), all_values, tensor.sizes(), tensor.options()).coalesce();
        Tensor target = tensor;
        target.copy_(sum);
    };
    return submit(std::move(call));
}

} // namespace tutti_torch
