/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* The handle of a call of this API, and what becomes of a communicator whose calls fail (Fate). */

#include "base/process.hpp"

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <c10/core/Stream.h>

#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace tutti_torch
{

/* The first failure of a communicator runs its abort hooks, and ends the process where that was asked for. */
class Fate
{
  public:
    using Hook = std::function<void()>;

    /* kills: who asked that a failure ends the process; null: nobody did. */
    explicit Fate(const char *kills) : kills_(kills) {}
    uint64_t add(Hook hook);
    void remove(uint64_t id);
    /* Somebody wants to hear of failures as they happen, and not when he waits for the call. */
    bool listens() const { return kills_ || n_hooks_.load(std::memory_order_relaxed) > 0; }
    /* Once in the life of a group: another one begins with renew. */
    void failed(const std::string &why) noexcept;
    void tell_hooks() noexcept; /* reports an abort that was asked for */
    void renew() { told_.store(false); }

  private:
    const char *const kills_;
    std::atomic<bool> told_{false};
    std::atomic<size_t> n_hooks_{0};
    std::mutex mutex_;                                      /* below */
    std::map<uint64_t, std::shared_ptr<const Hook>> hooks_; /* a copy of a hook may be a matter of its owner's locks */
    uint64_t last_id_ = 0;
};

class TorchWork : public c10::intrusive_ptr_target
{
  public:
    enum class Status { NOT_STARTED, INPROGRESS, COMPLETED, TIMEDOUT, ERROR };
    using Callback = std::function<void()>;

    /* For a call that is complete for the host; `stream`: the one on which it was enqueued. */
    explicit TorchWork(std::optional<c10::Stream> stream = std::nullopt) : stream_(stream) {}
    /* `device`: of its tensors. */
    TorchWork(c10::intrusive_ptr<c10d::Work> work, std::shared_ptr<Fate> fate,
              std::optional<c10::Device> device = std::nullopt);
    /* One for all calls that are complete, and of which nobody asks more. */
    static const c10::intrusive_ptr<TorchWork> &complete();
    ~TorchWork() override { let_go(); }
    void release_resources() override { let_go(); } /* while somebody knows it weakly */

    /* Never block. */
    virtual Status status();
    bool is_completed();
    /* Until it is complete; on a device, the current stream then waits for the results, and the host does not. Rethrows
     * the call's error. */
    virtual void wait();
    /* The same, and the host waits, too. */
    virtual void wait_blocking();
    /* Runs once, when it has ended, failed or not: at once, if it has; on a thread of the library, else. */
    virtual void on_end(Callback callback);
    /* Runs once, when somebody has seen that it has ended: who waited or asked, else as on_end. It costs less. It is
     * told how long the call took; 0: nobody knows. */
    using EndCallback = std::function<void(std::chrono::nanoseconds)>;
    void on_seen_end(EndCallback callback);
    /* Runs before each wait. */
    void on_wait(Callback callback);
    /* Somebody wants to hear of its failure, whether it is waited for or not: see follow.hpp. */
    bool is_followed() const { return work_ && fate_ && fate_->listens(); }
    const c10::intrusive_ptr<c10d::Work> &c10d_work() const { return work_; } /* null: it is complete */

  protected:
    void tell_waits();

  private:
    void await(milliseconds timeout);
    std::vector<EndCallback> take_ends();
    void tell_end();
    void let_go() noexcept;

    c10::intrusive_ptr<c10d::Work> work_;
    const std::shared_ptr<Fate> fate_;
    const std::optional<c10::Stream> stream_;
    const std::optional<c10::Device> device_;
    std::mutex mutex_; /* below */
    std::vector<Callback> before_waits_;
    std::vector<EndCallback> at_end_;
    std::atomic<bool> has_waits_{false}, has_ends_{false};
};

} // namespace tutti_torch
