/* SPDX-License-Identifier: BSD-3-Clause */

/* Calls. */

#include "torchcomms/plug_backend.hpp"
#include "torchcomms/plug_work.hpp"

#include <utility>

namespace tutti_torch
{

using WorkThere = PluggedBackend::WorkThere;

static ReduceOp op_from(const torch::comms::ReduceOp &op)
{
    if (op.factor_) return ReduceOp::premul_sum(*op.factor_);
    return ReduceOp(static_cast<ReduceOp::Type>(static_cast<int>(op.type_))); /* the same words in the same order */
}

WorkThere PluggedBackend::run(Request request, const Options &options)
{
    request.hints = options.hints;
    request.timeout = options.timeout;
    return handle_of(comm_->run(std::move(request)), options);
}

/* What it says of its deadline is the call's, or the communicator's. */
WorkThere PluggedBackend::handle_of(TorchComm::WorkPtr work, const Options &options) const
{
    return PluggedWork::of(std::move(work), options.timeout.count() > 0 ? options.timeout : options_.timeout);
}

/* ---- messages ---- */

static Request tagged(Request request, int tag)
{
    request.tag = tag;
    return request;
}

WorkThere PluggedBackend::send(const Tensor &tensor, int dst, bool async, const MessageOptions &options)
{
    return run(tagged(requests::send(tensor, dst, async), options.tag), options);
}

WorkThere PluggedBackend::recv(Tensor &tensor, int src, bool async, const MessageOptions &options)
{
    return run(tagged(requests::recv(tensor, src, async), options.tag), options);
}

WorkThere PluggedBackend::batch_op_issue(const P2POps &ops, bool async, const Options &options)
{
    using Op = torch::comms::BatchSendRecv::P2POp;
    std::vector<Request> batch;
    for (const Op &op : ops) {
        const bool sends = op.type == Op::OpType::SEND;
        batch.push_back((sends ? requests::send : requests::recv)(op.tensor, op.peer, async));
    }
    return handle_of(comm_->run_batch(std::move(batch), async, options.hints, options.timeout), options);
}

/* ---- collectives ---- */

WorkThere PluggedBackend::broadcast(Tensor &tensor, int root, bool async, const Options &options)
{
    return run(requests::broadcast(tensor, root, async), options);
}

WorkThere PluggedBackend::all_reduce(Tensor &tensor, const OpThere &op, bool async, const Options &options)
{
    return run(requests::all_reduce(tensor, op_from(op), async), options);
}

WorkThere PluggedBackend::reduce(const Tensor &tensor, int root, const OpThere &op, bool async, const Options &options)
{
    return run(requests::reduce(tensor, root, op_from(op), async), options);
}

WorkThere PluggedBackend::all_gather(const Tensors &list, const Tensor &tensor, bool async, const Options &options)
{
    return run(requests::all_gather(list, tensor, async), options);
}

WorkThere PluggedBackend::all_gather_v(const Tensors &list, const Tensor &tensor, bool async, const Options &options)
{
    return run(requests::all_gather_v(list, tensor, async), options);
}

WorkThere PluggedBackend::all_gather_single(Tensor &output, const Tensor &input, bool async, const Options &options)
{
    return run(requests::all_gather_single(output, input, async), options);
}

WorkThere PluggedBackend::reduce_scatter(Tensor &output, const Tensors &list, const OpThere &op, bool async,
                                         const Options &options)
{
    return run(requests::reduce_scatter(output, list, op_from(op), async), options);
}

WorkThere PluggedBackend::reduce_scatter_v(Tensor &output, const Tensors &list, const OpThere &op, bool async,
                                           const Options &options)
{
    return run(requests::reduce_scatter_v(output, list, op_from(op), async), options);
}

WorkThere PluggedBackend::reduce_scatter_single(Tensor &output, const Tensor &input, const OpThere &op, bool async,
                                                const Options &options)
{
    return run(requests::reduce_scatter_single(output, input, op_from(op), async), options);
}

WorkThere PluggedBackend::all_to_all_single(Tensor &output, const Tensor &input, bool async, const Options &options)
{
    return run(requests::all_to_all_single(output, input, async), options);
}

WorkThere PluggedBackend::all_to_all_v_single(Tensor &output, const Tensor &input, const Splits &output_splits,
                                              const Splits &input_splits, bool async, const Options &options)
{
    return run(requests::all_to_all_v_single(output, input, output_splits, input_splits, async), options);
}

WorkThere PluggedBackend::all_to_all(const Tensors &outputs, const Tensors &inputs, bool async, const Options &options)
{
    return run(requests::all_to_all(outputs, inputs, async), options);
}

WorkThere PluggedBackend::barrier(bool async, const Options &options)
{
    return run(requests::barrier(async), options);
}

WorkThere PluggedBackend::scatter(Tensor &output, const Tensors &list, int root, bool async, const Options &options)
{
    return run(requests::scatter(output, list, root, async), options);
}

WorkThere PluggedBackend::gather(const Tensors &list, const Tensor &input, int root, bool async, const Options &options)
{
    return run(requests::gather(list, input, root, async), options);
}

WorkThere PluggedBackend::gather_single(Tensor &output, const Tensor &input, int root, bool async,
                                        const Options &options)
{
    return run(requests::gather_single(output, input, root, async), options);
}

} // namespace tutti_torch
