/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Room comm: the library's communicators, and PyTorch's store as the place where ranks meet (store.hpp). Uses base.
 *
 * Ownership of what the C library creates: one context a process (see Place), shared by its groups; a communicator a
 * group, kept alive by whoever still uses its memory. */

#include "base/process.hpp"

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <tutti/tutti.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>

namespace tutti_torch
{

/* Which context of this process. Ranks of one communicator need one each: threads that are ranks have seats. */
struct Place {
    int seat = -1;
    std::map<std::string, std::string> options; /* the library's, that its calls have, such as "backends" */
    bool high_priority = false;                 /* streams of its groups' own; contexts do not differ by it */
    bool survive = false;                       /* calls survive the death of ranks; as the one before */

    bool operator<(const Place &other) const { return std::tie(seat, options) < std::tie(other.seat, other.options); }
};

/* While one lives, this thread makes no communicator any more once the flag is set: that ends with an error. */
class UntilGivenUp
{
  public:
    explicit UntilGivenUp(const std::atomic<bool> &flag) : before_(current_) { current_ = &flag; }
    ~UntilGivenUp() { current_ = before_; }
    UntilGivenUp(const UntilGivenUp &) = delete;
    UntilGivenUp &operator=(const UntilGivenUp &) = delete;
    static bool is_given_up() { return current_ && *current_; }

  private:
    inline static thread_local const std::atomic<bool> *current_ = nullptr;
    const std::atomic<bool> *before_;
};

class Comm
{
  public:
    /* Meets the other ranks through the store: returns when all are there. Interruptible. Throws DistBackendError. */
    static std::shared_ptr<Comm> create(c10d::Store &store, int rank, int size, const std::string &name,
                                        milliseconds timeout, const Place &place = {});
    /* Takes over a handle that a call on `parent` made. */
    static std::shared_ptr<Comm> adopt(const Comm &parent, tutti_comm *handle);
    ~Comm();
    Comm(const Comm &) = delete;
    Comm &operator=(const Comm &) = delete;

    tutti_comm *handle() const { return handle_; }
    /* Waits for the calls in flight, until there is nothing that `more`, given a slice of time to wait, waits for
     * either. When patience is lost, or a signal's handler throws, they are aborted: the others learn why. */
    void drain(const std::function<bool(milliseconds)> &more, bool failing);

  private:
    Comm(std::shared_ptr<tutti_context> context, tutti_comm *handle);
    std::shared_ptr<tutti_context> context_;
    tutti_comm *handle_;
    Origin origin_;
    Patience patience_;
};

} // namespace tutti_torch
