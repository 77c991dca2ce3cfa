/* SPDX-License-Identifier: BSD-3-Clause */

/* The watcher's thread. It neither has nor wants the GIL. */

#include "watcher.hpp"

#include "cuda.hpp"

#include <algorithm>
#include <chrono>
#include <pthread.h>
#include <thread>
#include <utility>

namespace tutti_torch
{

Watcher &Watcher::get()
{
    static auto *watcher = new Watcher(); /* left: calls end while the process does */
    return *watcher;
}

void Watcher::add(Enqueued::Ptr call)
{
    std::lock_guard<std::mutex> guard(mutex_);
    if (!origin_.is_here()) { /* the parent's calls, and its thread */
        for (Enqueued::Ptr &known : calls_) known.release();
        calls_.clear();
        running_ = false;
        origin_ = Origin();
    }
    calls_.push_back(std::move(call));
    if (running_) return;
    std::thread([this] { run(); }).detach();
    running_ = true;
}

/* A call whose device does not answer any more has ended, too. */
static bool has_ended(const Enqueued::Ptr &call)
{
    try {
        return call->test();
    } catch (const std::exception &) {
        return true;
    }
}

void Watcher::run()
{
    pthread_setname_np(pthread_self(), "tutti-watcher");
    BesideCaptures beside;
    for (;;) {
        std::vector<Enqueued::Ptr> ended;
        {
            std::lock_guard<std::mutex> guard(mutex_);
            auto end = std::stable_partition(calls_.begin(), calls_.end(),
                                             [](const Enqueued::Ptr &call) { return !has_ended(call); });
            ended.assign(std::make_move_iterator(end), std::make_move_iterator(calls_.end()));
            calls_.erase(end, calls_.end());
            running_ = !calls_.empty() || !ended.empty();
            if (!running_) return;
        }
        for (const Enqueued::Ptr &call : ended) call->finish();
        if (!ended.empty()) continue;
        stay_if_program_ends();
        std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
}

} // namespace tutti_torch
