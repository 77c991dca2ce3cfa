/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* A thread that looks, again and again, at things that can not tell of themselves: whether a device has come so far
 * that a call can start, or is over. It neither has nor wants the GIL. */

#include "base/process.hpp"

#include <functional>
#include <memory>

namespace tutti_torch
{

class Worker
{
  public:
    /* True: it is over, and is not looked at any more. Must not throw. */
    using Look = std::function<bool()>;

    /* in_order: each is looked at only when those before it are over; else all are, in turns. It pauses between rounds
     * in which nothing was over, each time for longer. */
    Worker(const char *name, bool in_order, std::chrono::microseconds longest_pause = std::chrono::microseconds(500));
    /* Returns when all are over. */
    ~Worker();
    Worker(const Worker &) = delete;
    Worker &operator=(const Worker &) = delete;

    /* Some are not over. */
    bool busy() const;
    /* The first one starts the thread. */
    void push(Look look);
    /* Until it is not busy, or for this long. */
    bool drained_within(milliseconds time);

  private:
    struct State;
    static void run(const std::shared_ptr<State> &state);
    std::shared_ptr<State> state_; /* also the thread's, which outlives this where it is what destroys this */
};

} // namespace tutti_torch
