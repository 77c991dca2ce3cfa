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

/* The library borrows the tensors until the end: somebody has to keep them until then. */
Work::~Work()
{
    try {
        operation_->watch();
    } catch (const std::exception &error) {
        TORCH_WARN("tutti: ", operation_->call.name, " can not be watched after its Work was dropped: ", error.what());
        operation_.release(); /* better leaked than written to after it was freed */
    }
}

bool Work::isCompleted()
{
    return operation_->test();
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
    return operation_->future();
}
c10::intrusive_ptr<c10::ivalue::Future> Work::getFutureResult()
{
    return operation_->result_future();
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
    operation_->wait(timeout);
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
