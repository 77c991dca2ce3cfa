/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* The handle that a call returns: a c10d::Work over an operation. Dropping it early is safe: the operation goes on. */

#include "operation.hpp"

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace tutti_torch
{

class Work : public c10d::Work
{
  public:
    Work(c10::intrusive_ptr<Operation> operation, int rank);
    ~Work() override;

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    int sourceRank() const override;
    std::vector<at::Tensor> result() override;
    void synchronize() override;
    bool wait(milliseconds timeout = kNoTimeout) override;
    void abort() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
    float getDuration() const override;
    uint64_t getSequencenumber() const override;
    void blockCurrentStream();       /* not in every version */
    milliseconds getTimeout() const; /* not in every version */

  private:
    Operation &here() const; /* throws in a process that was forked by the one that called */

    c10::intrusive_ptr<Operation> operation_;
    const Origin origin_;
};

} // namespace tutti_torch
