/* SPDX-License-Identifier: BSD-3-Clause */

/* The operators of PyTorch's collectives for "xpu", where the build has none. Their arguments are not the same in all
 * versions. So each is the CPU's, which passes its arguments on to the backend of the group that serves the CPU: it is
 * given a group in which the backend that serves "xpu" stands there. */

#include "backend/operators.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>

namespace tutti_torch
{
namespace
{

using c10d::ProcessGroup;

constexpr const char *operators[] = {
    "allgather_",
    "_allgather_base_",
    "allgather_coalesced_",
    "allgather_into_tensor_coalesced_",
    "allreduce_",
    "allreduce_coalesced_",
    "alltoall_",
    "alltoall_base_",
    "barrier",
    "broadcast_",
    "gather_",
    "gather_into_tensor_",
    "recv_",
    "recv_any_source_",
    "reduce_",
    "reduce_scatter_",
    "_reduce_scatter_base_",
    "reduce_scatter_tensor_coalesced_",
    "scatter_",
    "send",
};

c10::intrusive_ptr<ProcessGroup> with_xpu_as_cpu(ProcessGroup &group)
{
    auto made = c10::make_intrusive<ProcessGroup>(group.getRank(), group.getSize());
    made->setBoundDeviceId(group.getBoundDeviceId()); /* which the next line tells the backend */
    made->setBackend(c10::kCPU, ProcessGroup::BackendType::CUSTOM, group.getBackend(c10::kXPU));
    return made;
}

void call_as_cpu(const c10::OperatorHandle &op, torch::jit::Stack *stack)
{
    const auto place = op.schema().argumentIndexWithName("process_group");
    TORCH_CHECK(place, "tutti: ", op.operator_name(), " has no argument process_group");
    c10::IValue &argument = torch::jit::peek(*stack, size_t(*place), op.schema().arguments().size());
    argument = with_xpu_as_cpu(*argument.toCustomClass<ProcessGroup>());
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

} // namespace

void complete_operators()
{
    static torch::Library *library = nullptr; /* stays: the operators end with it */
    if (library) return;
    library = new torch::Library(torch::Library::IMPL, "c10d", c10::DispatchKey::XPU, __FILE__, __LINE__);
    for (const char *name : operators) {
        const auto found = c10::Dispatcher::singleton().findOp({std::string("c10d::") + name, ""});
        const bool lacks = found && found->hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
                           !found->hasKernelForDispatchKey(c10::DispatchKey::XPU);
        if (lacks) library->impl(name, torch::CppFunction::makeFromBoxedFunction<&call_as_cpu>());
    }
}

} // namespace tutti_torch
