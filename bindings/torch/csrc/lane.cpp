/* SPDX-License-Identifier: BSD-3-Clause */

/* The lane's thread. It neither has nor wants the GIL. */

#include "lane.hpp"

#include "errors.hpp"

#include <torch/csrc/utils/pybind.h>

#include <deque>
#include <optional>
#include <pthread.h>
#include <thread>
#include <unistd.h>

namespace tutti_torch
{

struct Lane::State {
    struct Turn {
        c10::intrusive_ptr<Operation> operation;
        std::shared_ptr<Comm> comm;
    };
    std::mutex mutex;
    std::condition_variable wake, drained;
    std::deque<Turn> queue;
    std::atomic<size_t> n{0}; /* of the queue and the one that is being started */
    bool closing = false;
    std::thread thread;
    pid_t pid = 0; /* whose thread it is */
};

Lane::Lane() : state_(std::make_shared<State>()) {}

bool Lane::busy() const
{
    return state_->n.load(std::memory_order_acquire) > 0;
}

void Lane::run(const std::shared_ptr<State> &state)
{
    pthread_setname_np(pthread_self(), "tutti-lane");
    std::unique_lock<std::mutex> lock(state->mutex);
    for (;;) {
        state->wake.wait(lock, [&] { return state->closing || !state->queue.empty(); });
        if (state->queue.empty()) return;
        {
            State::Turn turn = std::move(state->queue.front());
            state->queue.pop_front();
            lock.unlock();
            turn.operation->start_in_turn(turn.comm->handle());
        } /* what it held goes before anybody is told that nothing is left */
        lock.lock();
        if (state->n.fetch_sub(1, std::memory_order_release) == 1) state->drained.notify_all();
    }
}

void Lane::push(c10::intrusive_ptr<Operation> operation, std::shared_ptr<Comm> comm)
{
    std::lock_guard<std::mutex> lock(state_->mutex);
    if (!state_->thread.joinable()) {
        state_->thread = std::thread([state = state_] { run(state); });
        state_->pid = getpid();
    }
    state_->queue.push_back({std::move(operation), std::move(comm)});
    state_->n.fetch_add(1, std::memory_order_release);
    state_->wake.notify_one();
}

bool Lane::drained_within(milliseconds time)
{
    std::unique_lock<std::mutex> lock(state_->mutex);
    if (state_->thread.get_id() == std::this_thread::get_id()) return true; /* what it holds goes: not a call */
    return state_->drained.wait_for(lock, time, [this] { return state_->n == 0; });
}

Lane::~Lane()
{
    std::thread &thread = state_->thread;
    if (!thread.joinable()) return;
    if (state_->pid != getpid()) { /* the parent's */
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
    std::optional<pybind11::gil_scoped_release> release;
    if (holds_gil()) release.emplace();
    thread.join();
}

} // namespace tutti_torch
