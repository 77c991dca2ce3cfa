/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* PyTorch hands collectives to a group's backend by operators ("c10d::allreduce_"), which a build has for some types of
 * devices. Those for "xpu" come with XCCL, from 2.8 on; before, and in builds without it, there are none. */

namespace tutti_torch
{

/* Gives "xpu" those operators that it lacks; once. */
void complete_operators();

} // namespace tutti_torch
