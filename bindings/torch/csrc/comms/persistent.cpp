/* SPDX-License-Identifier: BSD-3-Clause */

/* Calls that are recorded once. */

#include "comms/persistent.hpp"

#include "base/native.hpp"
#include "base/process.hpp"
#include "device/device_comm.hpp"

#include <algorithm>

namespace tutti_torch
{

Persistent::Persistent(std::shared_ptr<TorchComm> comm, Request request)
    : comm_(std::move(comm)), request_(std::move(request))
{
}

/* What copies the user's tensors to where the call reads them; null: it reads them where they are. */
static std::function<void()> packing(const Call &call, const Request &request)
{
    if (call.inputs.empty() || request.inputs.empty() || call.inputs[0].is_alias_of(request.inputs[0])) return {};
    TORCH_CHECK(request.op.type != ReduceOp::Type::PREMUL_SUM || call.factor.defined(),
                "the factor of a persistent call is a number, or a tensor of the host");
    return [flat = call.inputs[0], list = request.inputs] { refill(flat, list); };
}

static bool is_on_host(const Call &call)
{
    auto on_host = [](const Tensor &tensor) { return tensor.device().is_cpu(); };
    return std::all_of(call.inputs.begin(), call.inputs.end(), on_host) &&
           std::all_of(call.outputs.begin(), call.outputs.end(), on_host) && !(call.device && !call.device->is_cpu());
}

/* In a graph, the graph's order is all there is. */
static bool is_in_capture(c10::Device place)
{
    return is_native(place) && is_captured(current_stream(place));
}

static std::shared_ptr<tutti_persistent> record_call(const Call &call, tutti_comm *comm)
{
    Start start;
    start.comm = comm;
    for (const Tensor &tensor : call.inputs) start.in.push_back(tensor.data_ptr());
    for (const Tensor &tensor : call.outputs) start.out.push_back(tensor.data_ptr());
    const tutti_call_options options = options_of(call, nullptr);
    start.options = &options;
    tutti_persistent *made = nullptr;
    check(tutti_persistent_record());
    (void)call.launch(start); /* the end tells */
    check(tutti_persistent_end(&made));
    return {made, tutti_persistent_destroy};
}

std::shared_ptr<Persistent> Persistent::record(std::shared_ptr<TorchComm> comm, Request request)
{
    TORCH_CHECK(is_call(request.name) && !is_message(request.name), "tutti: ", text_of(request.name),
                " can not be made persistent");
    if (request.peer != -1) comm->check_peer(request);
    std::shared_ptr<Persistent> made(new Persistent(std::move(comm), std::move(request)));
    made->comm_->in_words(text_of(made->request_.name), [&] {
        made->request_.async_op = true;
        auto strided = [](const Tensor &tensor) { return tensor.layout() == at::kStrided; };
        TORCH_CHECK(std::all_of(made->request_.outputs.begin(), made->request_.outputs.end(), strided),
                    "a persistent call takes no sparse tensors");
        Request once = made->request_;
        made->call_ = made->comm_->call_of(once);
        made->of_ = made->comm_->backend()->host_comm();
        made->call_->first = nullptr; /* what it found under way now */
        made->pack_ = packing(*made->call_, made->request_);
        made->on_host_ = is_on_host(*made->call_);
        if (!made->on_host_) return;
        made->call_->launch = [recorded = record_call(*made->call_, made->of_->handle())](const Start &s) {
            return tutti_persistent_start(recorded.get(), s.work);
        };
    });
    return made;
}

TorchComm::WorkPtr Persistent::start(bool async_op)
{
    Request request = request_;
    request.async_op = async_op;
    return comm_->between_hooks(request, [&] {
        return comm_->in_words(text_of(request.name), [&] {
            const c10::intrusive_ptr<Backend> backend = comm_->backend();
            const c10::Device place = comm_->place_for(request);
            std::lock_guard<std::mutex> guard(mutex_);
            TORCH_CHECK(call_, "the persistent call was freed");
            TORCH_CHECK(backend->host_comm() == of_, "the persistent call is of before the reconfiguration");
            const bool keeps = on_host_ || (pack_ && !is_in_capture(place));
            if (keeps) await_last();
            if (pack_) pack_();
            Call call = *call_;
            call.async = async_op;
            c10::intrusive_ptr<c10d::Work> work = backend->submit(std::move(call));
            last_ = keeps ? work : nullptr;
            return comm_->handle_of(std::move(work), async_op, place);
        });
    });
}

/* Its error is told by its own handle. */
void Persistent::await_last()
{
    if (!last_) return;
    try {
        last_->wait();
    } catch (const c10::Error &) {
    }
    last_ = nullptr;
}

void Persistent::follow_last()
{
    std::lock_guard<std::mutex> guard(mutex_);
    await_last();
}

void Persistent::release()
{
    std::lock_guard<std::mutex> guard(mutex_);
    TORCH_CHECK(call_, "tutti: ", text_of(request_.name), ": the persistent call was freed already");
    call_.reset(); /* what is queued has its own */
    pack_ = nullptr;
    last_ = nullptr;
    of_.reset();
}

std::shared_ptr<Persistent> TorchComm::persist(Request request)
{
    return Persistent::record(shared_from_this(), std::move(request));
}

/* ---- all_gather ---- */

TorchComm::WorkPtr AllGatherP::start(const Tensor &input, bool async_op)
{
    std::shared_ptr<Persistent> call;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        TORCH_CHECK(!outputs_.empty(), "tutti: all_gather_p_exec: the handle was freed");
        const Tensor last = last_ ? last_->request().inputs[0] : Tensor();
        const bool same = last.defined() && last.data_ptr() == input.data_ptr() && last.sizes() == input.sizes() &&
                          last.scalar_type() == input.scalar_type() && last.strides() == input.strides();
        if (!same) {
            Request request = is_list_ ? tutti_torch::request<OpName::all_gather>(async_op, outputs_, input)
                                       : tutti_torch::request<OpName::all_gather_single>(async_op, outputs_[0], input);
            request.hints = hints_;
            request.timeout = timeout_;
            if (last_) last_->follow_last();
            last_ = comm_->persist(std::move(request));
        }
        call = last_;
    }
    return call->start(async_op);
}

void AllGatherP::release()
{
    std::lock_guard<std::mutex> guard(mutex_);
    TORCH_CHECK(!outputs_.empty(), "tutti: all_gather_p_free: the handle was freed already");
    outputs_.clear();
    last_.reset();
}

} // namespace tutti_torch
