/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Calls as PyTorch's profilers see them: what a call is, and a span from the start of a call to its end, whichever
 * thread ends it. */

#include "tensors/call.hpp"

#include <ATen/record_function.h>

#include <memory>

namespace tutti_torch
{

/* Begins the span "tutti:all_reduce" with the shapes of the tensors; null, and nearly free, while nobody profiles.
 * Destroying it ends it. */
std::unique_ptr<at::RecordFunction> begin_span(const Call &call);

struct RecordedGroup;
/* The event "record_param_comms" with what PyTorch's profilers tell of a collective: name, elements, type, group and
 * sequence number. Nearly free while nobody profiles. */
void describe_call(const Call &call, uint64_t seq, const RecordedGroup &group);

} // namespace tutti_torch
