/* SPDX-License-Identifier: BSD-3-Clause */

/* Work: what users wait on. */

#include "work.hpp"

#include "errors.hpp"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace tutti_torch
{

Work::Work(c10::intrusive_ptr<Operation> operation, int rank)
    : c10d::Work(rank, operation->call.type), operation_(std::move(operation))
{
}

/* In a forked process nobody can end it, or take back what the library borrowed. */
Work::~Work()
{
    if (origin_.is_here())
        operation_->watch_or_leak();
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

bool Work::isCompleted()
{
    return here().test() && operation_->is_back();
}
bool Work::isSuccess() const
{
    return !operation_->failed();
}
std::exception_ptr Work::exception() const
{
    return operation_->error();
}
std::vector<at::Tensor> Work::result()
{
    return operation_->results();
}
float Work::getDuration() const
{
    TORCH_CHECK(operation_->timed, "tutti: durations are those of calls made after enable_collectives_timing");
    return operation_->duration_ms();
}
uint64_t Work::getSequencenumber() const
{
    return operation_->seq;
}
milliseconds Work::getTimeout() const
{
    return operation_->call.timeout;
}
c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture()
{
    return here().future();
}
c10::intrusive_ptr<c10::ivalue::Future> Work::getFutureResult()
{
    return here().result_future();
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

void Work::synchronize()
{
    wait(kNoTimeout);
}
void Work::blockCurrentStream()
{
    wait(kNoTimeout);
}

void Work::abort()
{
    TORCH_CHECK(false, "tutti: a single call can not be aborted; abort its process group");
}

} // namespace tutti_torch
