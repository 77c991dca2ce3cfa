/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Room base: what all of the shim stands on: the process (this file), exceptions (errors.hpp), versions of torch
 * (compat.hpp), the devices that libtutti works on itself (native.hpp). It uses nothing else of the shim.
 *
 * What happens to the process: it forks, signals interrupt its waits, its program ends. */

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace tutti_torch
{

using std::chrono::milliseconds;

/* 0 (tutti's default) for times that are not set; never wraps. */
inline uint64_t to_ns(milliseconds time)
{
    constexpr int64_t longest = INT64_MAX / 1'000'000;
    return time.count() <= 0 ? 0 : uint64_t(std::min<int64_t>(time.count(), longest)) * 1'000'000;
}

/* How long a wait goes without a look at signals. */
inline constexpr milliseconds signals_every(50);

/* Which process made an object. A child that was forked has the parent's objects, but none of their threads, and no
 * seat in their groups: it must neither use nor end them. */
class Origin
{
  public:
    Origin() : lineage_(current()) {}
    bool is_here() const { return lineage_ == current(); }

  private:
    static uint32_t current();
    uint32_t lineage_;
};

/* While one lives, this thread is without the GIL, which it may have had. Whatever waits for others has one. */
class WithoutGil
{
  public:
    WithoutGil();
    ~WithoutGil();
    WithoutGil(const WithoutGil &) = delete;
    WithoutGil &operator=(const WithoutGil &) = delete;

  private:
    void *thread_; /* Python's state of the thread; null: it had no GIL */
};

/* Runs Python's signal handlers, when this is the thread that may; throws what they throw (KeyboardInterrupt). Every
 * wait calls it now and then. */
void check_signals();

/* True in an except or finally block of this Python thread that handles an exception. Takes the GIL. */
bool handles_exception();

/* How long the end of a group may wait for calls in flight: until their deadlines, but only for a moment once a wait
 * was interrupted after the group was made, an exception is being handled, or the program ends. */
class Patience
{
  public:
    Patience();
    /* The waiting begins. failing: an exception is being handled. */
    void shorten(bool failing);
    /* Null, or why there is no more: the reason of an abort. */
    const char *lost() const;

  private:
    uint64_t interrupts_; /* of the process, when this was made */
    std::atomic<bool> failing_{false};
};

/* This thread ends the program. */
void begin_end_of_program();
/* For other threads' waits, whose calls end with the program: they stay here for good. Only daemon threads are left by
 * then, and Python ends those where they take its lock again, in the midst of what C++ must not leave that way. */
void stay_if_program_ends();

} // namespace tutti_torch
