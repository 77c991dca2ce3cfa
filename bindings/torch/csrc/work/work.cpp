/* SPDX-License-Identifier: BSD-3-Clause */

/* Work: what users wait on. */

#include "work/work.hpp"

#include "base/errors.hpp"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace tutti_torch
{

Work::Work(Operation::Ptr operation, int rank)
    : c10d::Work(rank, operation->call.type), operation_(std::move(operation))
{
}

/* In a forked process nobody can end the operation, or take back what the library borrowed. */
Work::~Work()
{
    if (origin_.is_here())
        operation_->let_go();
    else
        operation_.release();
}

Operation &Work::here() const
{
    if (C10_UNLIKELY(!origin_.is_here()))
        C10_THROW_ERROR(DistBackendError, c10::str("tutti: this process was forked by the one that called ",
                                                   operation_->call.name, "; it can not wait for the call"));
    return *operation_;
}

float Work::getDuration() const
{
    TORCH_CHECK(operation_->timed, "tutti: durations are those of calls made after enable_collectives_timing");
    return operation_->duration_ms();
}

int Work::sourceRank() const
{
    TORCH_CHECK(operation_->call.message, "tutti: only a receive has a source rank, this is ", operation_->call.name);
    return operation_->call.message->source;
}

bool Work::wait(milliseconds timeout)
{
    if (c10d::allow_inflight_collective_as_graph_input())
        c10d::unregister_work(c10::intrusive_ptr<c10d::Work>::unsafe_reclaim_from_nonowning(this));
    here().wait(timeout);
    return true;
}

void Work::abort()
{
    TORCH_CHECK(false, "tutti: a single call can not be aborted; abort its process group");
}

} // namespace tutti_torch
