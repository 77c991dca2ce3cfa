/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* The handle that a call returns: a c10d::Work over an operation. Dropping it early is safe: the operation goes on. */

#include "work/operation.hpp"

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace tutti_torch
{

class Work : public c10d::Work
{
  public:
    Work(Operation::Ptr operation, int rank);
    ~Work() override;

    bool isCompleted() override { return here().test() && operation_->is_back(); }
    bool isSuccess() const override { return !operation_->error(); }
    std::exception_ptr exception() const override { return operation_->error(); }
    tutti_status status() const { return operation_->status(); }
    int sourceRank() const override;
    std::vector<at::Tensor> result() override { return operation_->call.shown(); }
    void synchronize() override { wait(kNoTimeout); }
    bool wait(milliseconds timeout = kNoTimeout) override;
    void abort() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return here().future(false); }
    c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override { return here().future(true); }
    float getDuration() const override;
    float duration_ms() const { return operation_->duration_ms(); } /* 0: it has not ended, or nobody knows */
    uint64_t getSequencenumber() const override { return operation_->seq; }
    void blockCurrentStream() { wait(kNoTimeout); }                      /* not in every version */
    milliseconds getTimeout() const { return operation_->call.timeout; } /* not in every version */

  private:
    Operation &here() const; /* throws in a process that was forked by the one that called */

    Operation::Ptr operation_;
    const Origin origin_;
};

} // namespace tutti_torch
