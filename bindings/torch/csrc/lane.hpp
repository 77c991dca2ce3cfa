/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Where calls wait that can not start yet, because their device has not come this far: one thread a backend starts them
 * in the order of the calls. While it is busy, calls on host memory queue up behind the others, so that all ranks start
 * the same calls in the same order. */

#include "operation.hpp"

#include <memory>

namespace tutti_torch
{

class Lane
{
  public:
    Lane();
    /* Returns when all that is queued has started, or failed. */
    ~Lane();
    Lane(const Lane &) = delete;
    Lane &operator=(const Lane &) = delete;

    /* Calls are queued, or one is being started. */
    bool busy() const;
    /* The first one starts the thread. Calls of push come one at a time. */
    void push(c10::intrusive_ptr<Operation> operation, std::shared_ptr<Comm> comm);
    /* Until it is not busy, or for this long. */
    bool drained_within(milliseconds time);

  private:
    struct State;
    static void run(const std::shared_ptr<State> &state);
    std::shared_ptr<State> state_; /* also the thread's, which can outlive this where it is what destroys this */
};

} // namespace tutti_torch
