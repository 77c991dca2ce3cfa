/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Calls whose failure somebody wants to hear of although nobody waits for them: a thread of the process looks at them
 * twenty times a second, so that a call costs no more than a line in a list. */

#include "comms/torch_work.hpp"

namespace tutti_torch
{

/* Until it has ended; asking for its status is what tells of a failure. */
void follow(const c10::intrusive_ptr<TorchWork> &work);

} // namespace tutti_torch
