/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* The head of every method: a Call with what the options say. */

#include "compat.hpp"
#include "operation.hpp"

namespace tutti_torch
{

/* Timeouts that the caller did not set are the group's (0). */
inline milliseconds timeout_of(milliseconds timeout)
{
    return timeout == c10d::kUnsetTimeout ? milliseconds(0) : timeout;
}

template <typename Options> Call call_of(c10d::OpType type, const char *name, const Options &options)
{
    Call call{};
    call.type = type;
    call.name = name;
    call.async = is_async(options);
    call.timeout = timeout_of(options.timeout);
    return call;
}

} // namespace tutti_torch
