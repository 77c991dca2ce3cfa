/* SPDX-License-Identifier: BSD-3-Clause */

#include "gradients/gradients.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace tutti_torch
{

using at::Tensor;
using torch::autograd::variable_list;

static constexpr size_t alignment = 16; /* bytes: of what a launch copies at once */

Gradients::Gradients(c10::intrusive_ptr<c10d::ProcessGroup> group, Shape shape)
    : group_(std::move(group)), shape_(shape)
{
}

std::shared_ptr<Gradients> Gradients::make(c10::intrusive_ptr<c10d::ProcessGroup> group, std::vector<Tensor> parameters,
                                           std::vector<std::string> names, Shape shape)
{
    TORCH_CHECK_VALUE(parameters.size() == names.size() && !parameters.empty(), "Gradients: ", parameters.size(),
                      " parameters and ", names.size(), " names");
    std::shared_ptr<Gradients> made(new Gradients(std::move(group), shape));
    for (size_t i = 0; i < parameters.size(); i++) made->add(std::move(parameters[i]), std::move(names[i]));
    std::vector<size_t> backwards(made->parameters_.size());
    std::iota(backwards.rbegin(), backwards.rend(), size_t(0));
    made->lay_out(backwards);
    made->hang_hooks();
    return made;
}

Gradients::~Gradients()
{
    for (Parameter &parameter : parameters_) parameter.accumulator->del_post_hook(parameter.hook);
}

void Gradients::add(Tensor tensor, std::string name)
{
    TORCH_CHECK_VALUE(tensor.requires_grad() && tensor.is_leaf(), "Gradients: ", name, " is no parameter");
    TORCH_CHECK_VALUE(parameters_.empty() || tensor.device() == parameters_[0].tensor.device(), "Gradients: ", name,
                      " is on ", tensor.device(), ", others on ", parameters_[0].tensor.device());
    parameters_.emplace_back();
    Parameter &made = parameters_.back();
    made.accumulator = torch::autograd::impl::grad_accumulator(tensor);
    made.tensor = std::move(tensor), made.name = std::move(name);
}

void Gradients::hang_hooks()
{
    for (size_t i = 0; i < parameters_.size(); i++)
        parameters_[i].hook =
            parameters_[i].accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
                [weak = weak_from_this(), i](const variable_list &outputs, const variable_list &) {
                    if (const auto self = weak.lock()) self->is_there(i);
                    return outputs;
                }));
}

/* ---- buckets ---- */

size_t Gradients::bytes_of(const Parameter &parameter) const
{
    const size_t bytes = parameter.tensor.nbytes();
    return (bytes + alignment - 1) / alignment * alignment;
}

/* One after another: a bucket ends where the next one would be too long, or of another type. */
void Gradients::lay_out(const std::vector<size_t> &order)
{
    buckets_.clear();
    size_t left = 0;
    for (const size_t i : order) {
        Parameter &parameter = parameters_[i];
        const size_t bytes = bytes_of(parameter);
        const auto alike = [&](size_t other) {
            return parameters_[other].tensor.scalar_type() == parameter.tensor.scalar_type();
        };
        if (buckets_.empty() || bytes > left || !alike(buckets_.back().parameters.back())) {
            left = std::max(buckets_.empty() ? shape_.first_bytes : shape_.bytes, bytes);
            buckets_.emplace_back();
        }
        left -= bytes;
        parameter.bucket = buckets_.size() - 1;
        buckets_.back().parameters.push_back(i);
    }
    for (size_t b = 0; b < buckets_.size(); b++) fill_bucket(b);
}

/* What is between gradients stays zero. */
void Gradients::fill_bucket(size_t index)
{
    Bucket &bucket = buckets_[index];
    const Tensor &any = parameters_[bucket.parameters[0]].tensor;
    const size_t element = any.element_size();
    int64_t n = 0;
    for (const size_t i : bucket.parameters) n += int64_t(bytes_of(parameters_[i]) / element);
    bucket.flat = at::zeros({n}, any.options().requires_grad(false));
    n = 0;
    for (const size_t i : bucket.parameters) {
        Parameter &parameter = parameters_[i];
        const Tensor part = bucket.flat.narrow(0, n, parameter.tensor.numel());
        const bool dense = parameter.tensor.is_non_overlapping_and_dense();
        parameter.view = dense ? part.as_strided(parameter.tensor.sizes(), parameter.tensor.strides())
                               : part.view(parameter.tensor.sizes());
        n += int64_t(bytes_of(parameter) / element);
    }
    bucket.n_missing = bucket.parameters.size();
}

void Gradients::arrange(const std::vector<int64_t> &order)
{
    std::lock_guard<std::mutex> guard(mutex_);
    std::vector<size_t> wanted(order.begin(), order.end()), all = wanted;
    std::sort(all.begin(), all.end());
    bool each_once = all.size() == parameters_.size();
    for (size_t i = 0; i < all.size() && each_once; i++) each_once = all[i] == i;
    TORCH_CHECK_VALUE(each_once, "Gradients: an order of ", order.size(), " of ", parameters_.size(),
                      " parameters, each of which has to be in it once");
    TORCH_CHECK(!armed_, "Gradients: a backward is under way");
    lay_out(wanted);
}

std::vector<int64_t> Gradients::order()
{
    std::lock_guard<std::mutex> guard(mutex_);
    return order_.size() == parameters_.size() ? order_ : std::vector<int64_t>();
}

/* ---- a backward ---- */

std::string Gradients::missing() const
{
    std::string names;
    size_t n = 0;
    for (const Parameter &parameter : parameters_)
        if (!parameter.ready && n++ < 8) names += (names.empty() ? "" : ", ") + parameter.name;
    return names + (n > 8 ? " and " + std::to_string(n - 8) + " more" : "");
}

void Gradients::arm()
{
    std::lock_guard<std::mutex> guard(mutex_);
    const bool has_begun = armed_ && !order_.empty();
    const std::string names = has_begun ? missing() : "";
    for (Parameter &parameter : parameters_) parameter.ready = false;
    for (Bucket &bucket : buckets_) bucket.n_missing = bucket.parameters.size();
    order_.clear();
    next_ = 0;
    armed_ = !has_begun;
    TORCH_CHECK(!has_begun, "the last backward brought no gradients of ", names,
                ": all parameters of the model have to have a part in the loss (find_unused_parameters=True of "
                "DistributedDataParallel asks PyTorch's reducer for those that do not)");
}

static c10::Stream current_stream_of(c10::Device device)
{
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

void Gradients::is_there(size_t index)
{
    std::lock_guard<std::mutex> guard(mutex_);
    if (!armed_) return;
    Parameter &parameter = parameters_[index];
    TORCH_CHECK(!parameter.ready, "the gradient of ", parameter.name,
                " came twice in a backward: the parameter is "
                "used by several backwards, of which the last one alone may be averaged (no_sync)");
    TORCH_CHECK(parameter.tensor.grad().defined() && !parameter.tensor.grad().is_sparse(), "the gradient of ",
                parameter.name, " is sparse: unset TUTTI_TORCH_DDP for this model");
    parameter.ready = true;
    parameter.stream = current_stream_of(parameter.tensor.device());
    order_.push_back(int64_t(index));
    buckets_[parameter.bucket].n_missing--;
    while (next_ < buckets_.size() && buckets_[next_].n_missing == 0) launch(buckets_[next_++]);
    if (next_ == buckets_.size())
        torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this()] {
            if (const auto self = weak.lock()) self->finish();
        });
}

/* Between gradients and the parts of the bucket, but of those that are these parts. */
void Gradients::copy(Bucket &bucket, bool back)
{
    std::vector<Tensor> to, from;
    for (const size_t i : bucket.parameters) {
        const Tensor &grad = parameters_[i].tensor.mutable_grad(), &view = parameters_[i].view;
        if (grad.is_alias_of(view)) continue;
        to.push_back(back ? grad : view);
        from.push_back(back ? view : grad);
    }
    if (!to.empty()) at::_foreach_copy_(to, from, true);
}

void Gradients::launch(Bucket &bucket)
{
    const at::NoGradGuard no_grad;
    const c10::Device device = bucket.flat.device();
    const c10::Stream current = current_stream_of(device);
    for (const size_t i : bucket.parameters) {
        const c10::Stream &written = *parameters_[i].stream;
        if (written == current) continue;
        c10::Event there(device.type());
        there.record(written);
        there.block(current);
    }
    copy(bucket, false);
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::AVG;
    std::vector<Tensor> tensors{bucket.flat};
    bucket.work = group_->allreduce(tensors, options);
}

/* At the end of the backward, on the streams of who called it. */
void Gradients::finish()
{
    std::lock_guard<std::mutex> guard(mutex_);
    const at::NoGradGuard no_grad;
    armed_ = false;
    for (Bucket &bucket : buckets_) {
        std::exchange(bucket.work, nullptr)->wait();
        if (!shape_.as_views) copy(bucket, true);
        for (const size_t i : bucket.parameters)
            if (shape_.as_views) parameters_[i].tensor.mutable_grad() = parameters_[i].view;
    }
}

} // namespace tutti_torch
