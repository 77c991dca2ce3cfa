/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* What calls are called in the log: "all_reduce|in_count=4|out_count=4|dtype=f32|red_op=sum|async_op=f". */

#include "comms/request.hpp"

#include <string>

namespace tutti_torch
{

/* Appends it. buffers: with the addresses of the tensors. */
void put_signature(std::string &out, const Request &request, bool buffers);
void put_number(std::string &out, uint64_t number);
/* Of a communicator, without what would end a field or a line. */
std::string name_in_log(const std::string &name);

} // namespace tutti_torch
