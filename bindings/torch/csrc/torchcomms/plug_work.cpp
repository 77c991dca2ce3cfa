/* SPDX-License-Identifier: BSD-3-Clause */

/* Handles. */

#include "torchcomms/plug_work.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <thread>

namespace tutti_torch
{
namespace
{

using std::chrono::steady_clock;
using Status = PluggedWork::WorkStatus;
using WeakWork = c10::weak_intrusive_ptr<PluggedWork>;

constexpr size_t n_hooks_expected = 8; /* a flight recorder, a log and a future are three */
constexpr milliseconds second_look(2); /* by then the caller has said all that it wants to know */

/* Looks again at handles that have ended, on a thread that never ends. */
class Lookout
{
  public:
    /* A child that was forked has no such thread, and perhaps a mutex that nobody gives back: it makes its own. */
    static Lookout &of_process()
    {
        static std::atomic<Lookout *> current{nullptr};
        Lookout *known = current.load();
        if (known && known->origin_.is_here()) return *known;
        auto *made = new Lookout();
        if (!current.compare_exchange_strong(known, made)) {
            delete made;
            return *known;
        }
        std::thread(&Lookout::run, made).detach();
        return *made;
    }
    void add(WeakWork work)
    {
        std::lock_guard<std::mutex> guard(mutex_);
        ended_.emplace_back(steady_clock::now() + second_look, std::move(work));
        moved_.notify_one();
    }

  private:
    using Ended = std::deque<std::pair<steady_clock::time_point, WeakWork>>;

    void run()
    {
        std::unique_lock<std::mutex> guard(mutex_);
        for (;;) {
            moved_.wait(guard, [this] { return !ended_.empty(); });
            const auto due = ended_.front().first;
            if (steady_clock::now() < due) {
                guard.unlock();
                std::this_thread::sleep_until(due);
                guard.lock();
            }
            Ended looked;
            looked.swap(ended_);
            while (!looked.empty() && looked.back().first > due + second_look) { /* too fresh */
                ended_.push_front(std::move(looked.back()));
                looked.pop_back();
            }
            guard.unlock();
            for (auto &[at, weak] : looked)
                if (auto work = weak.lock()) work->tell_end();
            looked.clear();
            guard.lock();
        }
    }

    const Origin origin_;
    std::mutex mutex_; /* below */
    std::condition_variable moved_;
    Ended ended_;
};

Status status_of(TorchWork &work)
{
    return static_cast<Status>(static_cast<int>(work.status())); /* the same words in the same order */
}

bool is_end(Status status)
{
    return status != Status::NOT_STARTED && status != Status::INPROGRESS;
}

void run_hooks(const std::vector<PluggedWork::WorkHook> &hooks)
{
    for (const auto &hook : hooks) hook();
}

} // namespace

PluggedWork::PluggedWork(Ours work, milliseconds timeout) : work_(std::move(work)), timeout_(timeout)
{
    end_hooks_.reserve(n_hooks_expected);
    status_ = Status::INPROGRESS;
}

torch::comms::WorkPtr PluggedWork::of(Ours work, milliseconds timeout)
{
    auto plugged = c10::make_intrusive<PluggedWork>(std::move(work), timeout);
    plugged->status_ = status_of(*plugged->work_);
    if (is_end(plugged->status_)) return plugged;
    plugged->work_->on_end([plugged] {
        plugged->end();
        Lookout::of_process().add(WeakWork(plugged));
    });
    return plugged;
}

void PluggedWork::end()
{
    status_ = status_of(*work_);
    tell_end();
}

void PluggedWork::tell_end()
{
    for (;;) {
        WorkHook hook;
        {
            std::lock_guard<std::mutex> guard(telling_);
            if (n_told_ == end_hooks_.size() || !end_hooks_[n_told_]) return;
            hook = end_hooks_[n_told_++];
        }
        hook();
    }
}

template <typename Wait> void PluggedWork::await(Wait how)
{
    run_hooks(wait_pre_hooks_);
    try {
        how();
    } catch (...) {
        if (is_end(status_of(*work_))) end();
        throw;
    }
    if (is_end(status_of(*work_))) end();
    run_hooks(wait_post_hooks_);
}

void PluggedWork::wait()
{
    await([this] { work_->wait(); });
}

void PluggedWork::waitBlocking()
{
    await([this] { work_->wait_blocking(); });
}

/* Functions may hold this very handle. */
void PluggedWork::release_resources()
{
    for (auto *hooks : {&start_hooks_, &end_hooks_, &wait_pre_hooks_, &wait_post_hooks_}) hooks->clear();
}

} // namespace tutti_torch
