/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* A call's handle as torchcomms knows it, over one of ours.
 *
 * torchcomms reads the status of a handle as a word, and puts functions that are to run at the end into a vector,
 * without a lock, after the call has returned; but the call may end at any moment, on another thread. So the end first
 * writes the status: who asks from then on runs its function itself. The vector has room from the start, and is only
 * read here; a function that came in between is found by who waits, and by a thread that looks once more a moment
 * later, for somebody may wait for that very function. */

#include "comms/torch_work.hpp"
#include "torchcomms/torchcomms_abi.hpp"

#include <mutex>

namespace tutti_torch
{

class PluggedWork : public torch::comms::TorchWork
{
  public:
    using Ours = c10::intrusive_ptr<tutti_torch::TorchWork>; /* the base has the same name */

    /* The work of a call that was made just now. */
    static torch::comms::WorkPtr of(Ours work, milliseconds timeout);
    PluggedWork(Ours work, milliseconds timeout);

    void wait() override;
    void waitBlocking() override;
    void hostSynchronize() override { work_->wait_blocking(); }
    milliseconds getTimeout() const override { return timeout_; }

    void tell_end(); /* runs functions that have not been run */
    void release_resources() override;

  private:
    void end();
    template <typename Wait> void await(Wait how);

    const Ours work_;
    const milliseconds timeout_;
    std::mutex telling_;
    size_t n_told_ = 0; /* entries of end_hooks_ that were called */
};

} // namespace tutti_torch
