/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Values of PyTorch as JSON: what a dump of the flight recorder is made of. */

#include <ATen/core/ivalue.h>

#include <string>

namespace tutti_torch
{

/* Writes None, bools, numbers, strings, lists, tuples and dictionaries of strings. */
std::string json_of(const c10::IValue &value);

} // namespace tutti_torch
