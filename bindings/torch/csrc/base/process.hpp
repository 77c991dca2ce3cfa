/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Room base: what all of the shim stands on: the process and exceptions (this file), versions of torch
 * (compat.hpp), the devices that libtutti works on itself (native.hpp). It uses nothing else of the shim.
 *
 * What happens to the process: it forks, signals interrupt its waits, its program ends. */

#include <c10/util/Exception.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>

namespace tutti_torch
{

using std::chrono::milliseconds;

/* Times of centuries saturate: nanoseconds from now on have to fit, and Python's largest ones have wrapped below 0 when
 * they come here (-1 is "not set"). */
inline milliseconds saturated(milliseconds time)
{
    constexpr milliseconds longest(INT64_MAX / 2'000'000);
    return time.count() < -1 ? longest : std::min(time, longest);
}

/* 0 (tutti's default) for times that are not set; never wraps. */
inline uint64_t to_ns(milliseconds time)
{
    return uint64_t(std::max<int64_t>(saturated(time).count(), 0)) * 1'000'000;
}

inline std::chrono::steady_clock::time_point moment_in(milliseconds time)
{
    return std::chrono::steady_clock::now() + saturated(time);
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
    uint64_t interrupts_; /* the process's, when this was made */
    std::atomic<bool> failing_{false};
};

/* This thread ends the program. */
void begin_end_of_program();
/* For other threads' waits, whose calls end with the program: they stay here for good. Only daemon threads are left by
 * then, and Python ends those where they take its lock again, in the midst of what C++ must not leave that way. */
void stay_if_program_ends();

/* ---- exceptions ---- */

/* Statuses of tutti as the exceptions that PyTorch's users expect: a Refusal for what the caller passed, else
 * torch.distributed.DistBackendError, each with tutti's sentence. */

/* What the caller passed is wrong: in Python a ValueError (TypeError), as users of NCCL's backend expect, and a
 * RuntimeError, as those of gloo do. */
class Refusal : public c10::ValueError
{
    using c10::ValueError::ValueError;
};
class TypeRefusal : public c10::TypeError
{
    using c10::TypeError::TypeError;
};

#define TUTTI_CHECK_AS(kind, condition, ...)                                                                           \
    do {                                                                                                               \
        if (C10_UNLIKELY(!(condition)))                                                                                \
            throw kind({__func__, __FILE__, uint32_t(__LINE__)}, c10::str("tutti: ", __VA_ARGS__));                    \
    } while (false)
#define TUTTI_CHECK_VALUE(condition, ...) TUTTI_CHECK_AS(tutti_torch::Refusal, condition, __VA_ARGS__)
#define TUTTI_CHECK_TYPE(condition, ...) TUTTI_CHECK_AS(tutti_torch::TypeRefusal, condition, __VA_ARGS__)

[[noreturn]] void raise(const tutti_error &error);
std::exception_ptr exception_of(const tutti_error &error);

/* For calls that return TUTTI_OK or leave their record on this thread. */
inline void check(tutti_status status)
{
    if (C10_UNLIKELY(status < 0)) raise(*tutti_last_error());
}

} // namespace tutti_torch
