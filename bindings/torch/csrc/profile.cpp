/* SPDX-License-Identifier: BSD-3-Clause */

/* Spans in PyTorch's profilers. */

#include "profile.hpp"

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

} // namespace tutti_torch
