/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Statuses of tutti as the exceptions that PyTorch's users expect: ValueError (or TypeError) for what the caller
 * passed, else torch.distributed.DistBackendError, each with tutti's sentence. gloo says RuntimeError where others say
 * ValueError, so a refusal is both (python/module.cpp). */

#include "base/process.hpp"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <tutti/tutti.h>

#include <exception>

namespace tutti_torch
{

/* An argument that is refused: in Python an ArgumentError, which is a ValueError and a RuntimeError, or an
 * ArgumentTypeError. */
struct Refusal : c10::ValueError {
    using c10::ValueError::ValueError;
};
struct TypeRefusal : c10::TypeError {
    using c10::TypeError::TypeError;
};
#define TUTTI_CHECK_AS(exception, condition, ...)                                                                      \
    do                                                                                                                 \
        if (C10_UNLIKELY(!(condition)))                                                                                \
            throw ::tutti_torch::exception({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},                      \
                                           ::c10::str(__VA_ARGS__));                                                   \
    while (0)
#define TUTTI_CHECK_VALUE(condition, ...) TUTTI_CHECK_AS(Refusal, condition, "tutti: ", __VA_ARGS__)
#define TUTTI_CHECK_TYPE(condition, ...) TUTTI_CHECK_AS(TypeRefusal, condition, "tutti: ", __VA_ARGS__)

[[noreturn]] void raise(const tutti_error &error);
std::exception_ptr exception_of(const tutti_error &error);

/* For calls that return TUTTI_OK or leave their record on this thread. */
inline void check(tutti_status status)
{
    if (C10_UNLIKELY(status < 0)) raise(*tutti_last_error());
}

} // namespace tutti_torch
