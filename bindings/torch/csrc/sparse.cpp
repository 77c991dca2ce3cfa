/* SPDX-License-Identifier: BSD-3-Clause */

/* Sums of sparse tensors: every rank gathers the indices and values of all, and adds them up. The sizes are exchanged
 * first, so the call waits for the others; what follows is asynchronous. */

#include "backend.hpp"
#include "calls.hpp"

#include <ATen/core/LegacyTypeDispatch.h>

namespace tutti_torch
{
namespace
{

/* Columns of each rank: a gather of the numbers of non-zero elements. */
std::vector<int64_t> gather_nnz(Backend &backend, int size, int64_t own, const c10d::AllreduceOptions &options)
{
    Tensor mine = at::full({1}, own, at::kLong), all = at::empty({size}, at::kLong);
    c10d::AllgatherOptions gather;
    gather.timeout = options.timeout;
    auto work = backend._allgather_base(all, mine, gather);
    if (work) work->wait();
    return {all.data_ptr<int64_t>(), all.data_ptr<int64_t>() + size};
}

/* Parts of all ranks, as an all_gather_v of rows. */
Call gather_rows(const char *name, const Tensor &rows, const Tensor &all, const std::vector<int64_t> &n_rows)
{
    Call call{};
    call.type = c10d::OpType::_ALLREDUCE_SPARSE;
    call.name = name;
    call.inputs = {rows};
    call.outputs = {all};
    int64_t row = 1;
    for (int64_t d = 1; d < rows.dim(); d++) row *= rows.size(d);
    std::vector<size_t> counts;
    Wire wire = wire_of(rows);
    size_t unit = size_t(row) * wire.per_element;
    for (int64_t n : n_rows) counts.push_back(size_t(n) * unit);
    call.launch = [dtype = wire.dtype, counts](tutti_comm *comm, const Buffers &b, const tutti_call_options *o,
                                               tutti_work **w) {
        return tutti_all_gather_v(b.in[0], b.out[0], counts.data(), nullptr, dtype, comm, o, w);
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
    const char *name = "all_reduce (sparse)";
    Tensor &tensor = only(name, "tensors", tensors);
    TORCH_CHECK_VALUE(tensor.layout() == at::kSparse, "tutti: ", name, ": the tensor is not sparse");
    TORCH_CHECK_VALUE(options.reduceOp == c10d::ReduceOp::SUM, "tutti: ", name, ": only sums are defined");
    TORCH_CHECK(!is_coalescing(), "tutti: ", name, " waits for the other ranks, so it can not be coalesced");
    at::AutoDispatchBelowAutograd guard;
    Tensor own = tensor.coalesce();
    /* One row a non-zero element, so that the ranks' parts follow one another. */
    Tensor indices = own.indices().t().contiguous(), values = own.values().contiguous();
    std::vector<int64_t> n_rows = gather_nnz(*this, size_, values.size(0), options);
    int64_t total = 0;
    for (int64_t n : n_rows) total += n;
    Tensor all_indices = empty_rows(indices, total), all_values = empty_rows(values, total);

    std::vector<Call> calls = {gather_rows(name, indices, all_indices, n_rows),
                               gather_rows(name, values, all_values, n_rows)};
    for (Call &call : calls) {
        call.async = is_async(options);
        call.timeout = timeout_of(options.timeout);
        call.results = {tensor};
    }
    calls[1].unpack = [tensor, all_indices, all_values] {
        Tensor sum = at::sparse_coo_tensor(all_indices.t(), all_values, tensor.sizes(), tensor.options()).coalesce();
        Tensor target = tensor;
        target.copy_(sum);
    };
    return submit_all(c10d::OpType::_ALLREDUCE_SPARSE, name, std::move(calls));
}

} // namespace tutti_torch
