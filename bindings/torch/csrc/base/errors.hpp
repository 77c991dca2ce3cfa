/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Statuses of tutti as the exceptions that PyTorch's users expect: ValueError for what the caller passed, else
 * torch.distributed.DistBackendError, each with tutti's sentence. */

#include "base/process.hpp"

#include <c10/util/Exception.h>
#include <tutti/tutti.h>

#include <exception>

namespace tutti_torch
{

[[noreturn]] void raise(const tutti_error &error);
std::exception_ptr exception_of(const tutti_error &error);

/* For calls that return TUTTI_OK or leave their record on this thread. */
inline void check(tutti_status status)
{
    if (C10_UNLIKELY(status < 0)) raise(*tutti_last_error());
}

} // namespace tutti_torch
