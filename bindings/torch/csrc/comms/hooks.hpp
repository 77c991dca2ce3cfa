/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Functions that are told of a communicator's calls: before each (what is asked for) and after each (what came of it).
 * They run on the caller's thread, with the GIL if it has it. While there are none a call reads one word of each kind.
 * Thread-safe: a hook that is removed during a call may be told of that one. */

#include "comms/torch_work.hpp"
#include "tensors/request.hpp"

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace tutti_torch
{

class TorchComm;
class TorchCommWindow;

/* What came of a call: a handle, a communicator (split) or a window (new_window). */
struct Outcome {
    OpName name;
    c10::intrusive_ptr<TorchWork> work{};
    std::shared_ptr<TorchComm> comm{};
    std::shared_ptr<TorchCommWindow> window{};
};

/* op_id: one number for all communicators of this process; SIZE_MAX for finalize, which is no call. */
using PreHook = std::function<void(uint64_t op_id, const Request &)>;
using PostHook = std::function<void(uint64_t op_id, const Outcome &)>;

uint64_t next_op_id();
void reset_op_ids();

template <typename Hook> class Hooks
{
  public:
    uint64_t add(Hook hook)
    {
        std::shared_ptr<const List> last; /* let go without the lock, as hooks are */
        std::lock_guard<std::mutex> guard(mutex_);
        List next = list_ ? *list_ : List();
        next.emplace_back(++last_id_, std::move(hook));
        last = publish(std::move(next));
        return last_id_;
    }
    void remove(uint64_t id)
    {
        std::shared_ptr<const List> last;
        std::lock_guard<std::mutex> guard(mutex_);
        List next;
        for (const auto &known : list_ ? *list_ : List())
            if (known.first != id) next.push_back(known);
        last = publish(std::move(next));
    }
    bool any() const { return any_.load(std::memory_order_relaxed); }
    template <typename Told> void tell(uint64_t op_id, const Told &what)
    {
        std::shared_ptr<const List> known;
        {
            std::lock_guard<std::mutex> guard(mutex_);
            known = list_;
        }
        if (!known) return;
        for (const auto &[id, hook] : *known) hook(op_id, what);
    }

  private:
    using List = std::vector<std::pair<uint64_t, Hook>>;
    std::shared_ptr<const List> publish(List next)
    {
        any_.store(!next.empty(), std::memory_order_relaxed);
        return std::exchange(list_, std::make_shared<const List>(std::move(next)));
    }

    std::atomic<bool> any_{false};
    std::mutex mutex_; /* below */
    std::shared_ptr<const List> list_;
    uint64_t last_id_ = 0;
};

/* The handle of a registered hook; dropping it leaves the hook where it is. */
class RemovableHandle
{
  public:
    explicit RemovableHandle(std::function<void()> remove) : remove_(std::move(remove)) {}
    void remove()
    {
        if (auto once = std::exchange(remove_, nullptr)) once();
    }

  private:
    std::function<void()> remove_;
};

} // namespace tutti_torch
