/* SPDX-License-Identifier: BSD-3-Clause */

/* The barrier that names who did not come. It goes through the store and not through the communicator, so that it works
 * beside calls that hang, and a rank that is missing costs no communicator. The sentences are those that PyTorch's
 * users and tests know from gloo. */

#include "backend/backend.hpp"
#include "base/process.hpp"

#include <algorithm>
#include <thread>

namespace tutti_torch
{
namespace
{

using Clock = std::chrono::steady_clock;

constexpr const char *passed = "passed";

/* Waits for the key; false when the time is up. */
bool await_key(c10d::Store &store, const std::string &key, Clock::time_point until)
{
    auto pause = std::chrono::microseconds(50);
    auto looked = Clock::now();
    while (!store.check({key})) {
        auto now = Clock::now();
        if (now >= until) return false;
        if (now - looked > milliseconds(50)) {
            check_signals();
            looked = now;
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::microseconds(2000));
    }
    return true;
}

[[noreturn]] void fail(const std::string &sentence)
{
    C10_THROW_ERROR(DistBackendError, sentence);
}

} // namespace

/* The keys of one barrier: "<group>/<number>/<rank>", and the verdict. A store can outlive the group, and serve the
 * next one of the same name. */
static std::string prefix_of(uint64_t group, uint64_t number)
{
    return c10::str("tutti/monitored/", group, "/", number, "/");
}

/* A rank that came to this barrier has read the verdict of the one before. */
static void forget(c10d::Store &store, const std::string &prefix, int size)
{
    try {
        for (int r = 1; r < size; r++) store.deleteKey(prefix + std::to_string(r));
        store.deleteKey(prefix + "verdict");
    } catch (const std::exception &) { /* not every store can */
    }
}

/* Rank 0 sees who has come, and tells the others. */
static void lead(c10d::Store &store, const std::string &prefix, int size, milliseconds timeout, bool wait_all_ranks)
{
    Clock::time_point until = moment_in(timeout);
    std::vector<int> missing;
    for (int r = 1; r < size; r++) {
        if (await_key(store, prefix + std::to_string(r), until)) continue;
        missing.push_back(r);
        if (!wait_all_ranks) break;
    }
    std::string names;
    for (int r : missing) names += (names.empty() ? "" : ", ") + std::to_string(r);
    std::string verdict = missing.empty() ? passed
                                          : c10::str(wait_all_ranks ? "Ranks " : "Rank ", names,
                                                     " failed to pass monitoredBarrier in ", timeout.count(), " ms");
    store.set(prefix + "verdict", verdict);
    if (!missing.empty()) fail(verdict);
}

static void follow(c10d::Store &store, const std::string &prefix, int rank, milliseconds timeout)
{
    store.set(prefix + std::to_string(rank), "here");
    Clock::time_point until = moment_in(timeout);
    std::string reason = "rank 0 gave no answer";
    if (await_key(store, prefix + "verdict", until)) {
        auto verdict = store.get(prefix + "verdict");
        reason.assign(verdict.begin(), verdict.end());
    }
    if (reason != passed)
        fail(c10::str("Rank ", rank,
                      " successfully reached monitoredBarrier, but received errors while waiting for "
                      "send/recv from rank 0. Please check rank 0 logs for faulty rank. (",
                      reason, ")"));
}

void Backend::monitoredBarrier(const c10d::BarrierOptions &options, bool wait_all_ranks)
{
    uint64_t group = 0, number = 0;
    milliseconds timeout = options.timeout;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        group = tutti_comm_id(live()->handle());
        number = n_monitored_++;
        if (timeout == c10d::kUnsetTimeout) timeout = options_->timeout;
    }
    timeout = saturated(timeout);
    if (timeout.count() <= 0)
        fail(c10::str("Rank ", rank_, " timed out in monitoredBarrier after ", timeout.count(), " ms"));
    if (rank_ != 0) return follow(*store_, prefix_of(group, number), rank_, timeout);
    lead(*store_, prefix_of(group, number), size_, timeout, wait_all_ranks);
    if (number > 0) forget(*store_, prefix_of(group, number - 1), size_);
}

} // namespace tutti_torch
