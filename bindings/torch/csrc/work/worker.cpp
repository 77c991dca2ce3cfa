/* SPDX-License-Identifier: BSD-3-Clause */

/* The worker's thread. */

#include "work/worker.hpp"

#include "base/process.hpp"

#include <condition_variable>
#include <list>
#include <mutex>
#include <pthread.h>
#include <thread>

namespace tutti_torch
{

struct Worker::State {
    const char *name;
    bool in_order;
    std::chrono::microseconds longest_pause;
    std::mutex mutex;
    std::condition_variable wake, drained;
    std::list<Look> looks;
    std::atomic<size_t> n{0}; /* the length of the list */
    bool closing = false;
    std::thread thread;
    Origin origin; /* the process whose thread it is */
};

Worker::Worker(const char *name, bool in_order, std::chrono::microseconds longest_pause)
    : state_(std::make_shared<State>())
{
    state_->name = name;
    state_->in_order = in_order;
    state_->longest_pause = longest_pause;
}

bool Worker::busy() const
{
    return state_->n.load(std::memory_order_acquire) > 0;
}

void Worker::run(const std::shared_ptr<State> &state)
{
    constexpr auto shortest = std::chrono::microseconds(5);
    pthread_setname_np(pthread_self(), state->name);
    auto pause = shortest;
    std::unique_lock<std::mutex> lock(state->mutex);
    for (;;) {
        state->wake.wait(lock, [&] { return state->closing || !state->looks.empty(); });
        if (state->looks.empty()) return;
        bool moved = false;
        for (auto look = state->looks.begin(); look != state->looks.end();) {
            lock.unlock();
            const bool over = (*look)();
            if (over) *look = nullptr; /* what it holds goes before anybody is told that nothing is left */
            lock.lock();
            if (!over && state->in_order) break;
            look = over ? state->looks.erase(look) : std::next(look);
            moved = moved || over;
            if (over && state->n.fetch_sub(1, std::memory_order_release) == 1) state->drained.notify_all();
        }
        pause = moved ? shortest : std::min(pause * 2, state->longest_pause);
        lock.unlock();
        if (!moved) std::this_thread::sleep_for(pause);
        lock.lock();
    }
}

void Worker::push(Look look)
{
    if (!state_->origin.is_here()) { /* the parent's: its calls, and its thread, are left alone */
        auto *parents = new std::shared_ptr<State>(state_);
        state_ = std::make_shared<State>();
        state_->name = (*parents)->name;
        state_->in_order = (*parents)->in_order;
        state_->longest_pause = (*parents)->longest_pause;
    }
    std::lock_guard<std::mutex> lock(state_->mutex);
    if (!state_->thread.joinable()) state_->thread = std::thread([state = state_] { run(state); });
    state_->looks.push_back(std::move(look));
    state_->n.fetch_add(1, std::memory_order_release);
    state_->wake.notify_one();
}

bool Worker::drained_within(milliseconds time)
{
    std::unique_lock<std::mutex> lock(state_->mutex);
    if (state_->thread.get_id() == std::this_thread::get_id()) return true; /* what it holds goes: not a call */
    return state_->drained.wait_for(lock, time, [this] { return state_->n == 0; });
}

Worker::~Worker()
{
    std::thread &thread = state_->thread;
    if (!thread.joinable()) return;
    if (!state_->origin.is_here()) {
        thread.detach();
        return;
    }
    {
        std::lock_guard<std::mutex> lock(state_->mutex);
        state_->closing = true;
    }
    state_->wake.notify_one();
    if (thread.get_id() == std::this_thread::get_id()) {
        thread.detach();
        return;
    }
    const WithoutGil without_gil;
    thread.join();
}

} // namespace tutti_torch
