/* SPDX-License-Identifier: BSD-3-Clause */

/* The thread that looks at calls. It sleeps while there are none. */

#include "comms/follow.hpp"

#include <algorithm>
#include <condition_variable>
#include <thread>

namespace tutti_torch
{
namespace
{

using WeakWork = c10::weak_intrusive_ptr<TorchWork>;

class Follower
{
  public:
    void add(const c10::intrusive_ptr<TorchWork> &work)
    {
        std::lock_guard<std::mutex> guard(mutex_);
        works_.emplace_back(work);
        if (works_.size() == 1) some_.notify_one();
        if (!std::exchange(started_, true)) std::thread([this] { run(); }).detach();
    }
    bool is_here() const { return origin_.is_here(); }

  private:
    static bool has_ended(const WeakWork &weak)
    {
        const c10::intrusive_ptr<TorchWork> work = weak.lock();
        return !work || work->is_completed();
    }
    void run()
    {
        for (;;) {
            std::vector<WeakWork> works;
            {
                std::unique_lock<std::mutex> lock(mutex_);
                some_.wait(lock, [this] { return !works_.empty(); });
            }
            std::this_thread::sleep_for(milliseconds(50));
            stay_if_program_ends();
            {
                std::lock_guard<std::mutex> guard(mutex_);
                works.swap(works_);
            }
            works.erase(std::remove_if(works.begin(), works.end(), has_ended), works.end());
            std::lock_guard<std::mutex> guard(mutex_);
            works_.insert(works_.end(), std::make_move_iterator(works.begin()), std::make_move_iterator(works.end()));
        }
    }

    const Origin origin_;
    std::mutex mutex_; /* below */
    std::condition_variable some_;
    std::vector<WeakWork> works_;
    bool started_ = false;
};

/* Left, as its thread never ends; a forked process has one of its own. */
Follower &follower()
{
    static std::mutex mutex;
    static Follower *one = nullptr;
    std::lock_guard<std::mutex> guard(mutex);
    if (!one || !one->is_here()) one = new Follower();
    return *one;
}

} // namespace

void follow(const c10::intrusive_ptr<TorchWork> &work)
{
    follower().add(work);
}

} // namespace tutti_torch
