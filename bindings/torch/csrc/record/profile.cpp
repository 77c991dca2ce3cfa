/* SPDX-License-Identifier: BSD-3-Clause */

/* Spans in PyTorch's profilers. */

#include "record/profile.hpp"

#include "record/recorder.hpp"

#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

#include <tuple>

namespace tutti_torch
{

/* As PyTorch's own backends call theirs. */
static const char *title_of(const Call &call)
{
    return call.type == c10d::OpType::RECVANYSOURCE ? "recvAnySource" : call.name;
}

std::unique_ptr<at::RecordFunction> begin_span(const Call &call)
{
    auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
    if (C10_LIKELY(!callbacks)) return nullptr;
    auto span = std::make_unique<at::RecordFunction>(std::move(*callbacks));
    span->_setAsync();
    const Tensors &tensors = call.inputs.empty() ? call.outputs : call.inputs;
    std::vector<c10::IValue> shown(tensors.begin(), tensors.end());
    span->before("tutti:" + std::string(title_of(call)), c10::ArrayRef<const c10::IValue>(shown.data(), shown.size()));
    return span;
}

static int64_t elements_of(const Tensors &tensors)
{
    int64_t n = 0;
    for (const Tensor &tensor : tensors) n += tensor.numel();
    return n;
}

/* Not in every version. */
template <typename Info>
static auto tell_sequence(Info &info, int64_t seq, bool p2p, int) -> decltype(info.setSequenceInfo(seq, p2p))
{
    info.setSequenceInfo(seq, p2p);
}
template <typename Info> static void tell_sequence(Info &, int64_t, bool, long) {}

void describe_call(const Call &call, uint64_t seq, const RecordedGroup &group)
{
    auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
    if (C10_LIKELY(!callbacks)) return;
    const Tensors &tensors = call.inputs.empty() ? call.outputs : call.inputs;
    const std::tuple<std::string, std::string> name(group.name, group.desc);
    const int start = int(group.ranks.front()), size = int(group.ranks.size());
    const int stride = size > 1 ? int(group.ranks[1] - group.ranks[0]) : 0;
    auto info = std::make_shared<torch::ParamCommsDebugInfo>(
        name, group.rank, std::string(title_of(call)), elements_of(call.inputs), elements_of(call.outputs),
        tensors.empty() ? at::kByte : tensors[0].scalar_type(), std::vector<int64_t>(), std::vector<int64_t>(), start,
        stride, size);
    tell_sequence(*info, int64_t(seq), call.is_p2p(), 0);
    c10::DebugInfoGuard told(c10::DebugInfoKind::PARAM_COMMS_INFO, info);
    const std::vector<c10::IValue> shown = {c10::IValue(c10::ivalue::Tuple::create({int64_t(seq), call.is_p2p()})),
                                            c10::IValue(name), int64_t(group.rank), std::string(title_of(call)),
                                            int64_t(size)};
    at::RecordFunction event(std::move(*callbacks));
    event.before(at::kParamCommsCallName, c10::ArrayRef<const c10::IValue>(shown.data(), shown.size()));
}

} // namespace tutti_torch
