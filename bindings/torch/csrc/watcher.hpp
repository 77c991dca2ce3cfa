/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Sees the ends of calls on devices of which somebody wants to be told: hooks, and futures of the outcome. One thread a
 * process, which lives while there are any and looks every half millisecond; nothing else needs it. */

#include "enqueued.hpp"

#include <mutex>
#include <vector>

namespace tutti_torch
{

class Watcher
{
  public:
    static Watcher &get();
    void add(Enqueued::Ptr call);

  private:
    void run();
    std::mutex mutex_;
    std::vector<Enqueued::Ptr> calls_;
    bool running_ = false;
    Origin origin_; /* whose thread runs */
};

} // namespace tutti_torch
