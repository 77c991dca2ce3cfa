/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Device memory that the ranks of the host can map, for torch.cuda.MemPool: PyTorch's allocator takes whole segments of
 * it through two plain functions, which are given a device and nothing else. So each device has one group that serves
 * it, the last one that was asked to. */

#include "comm/comm.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tutti_torch
{

/* As PyTorch's pluggable allocators call them. Null when there is none. */
void *device_memory_take(size_t bytes, int device, void *stream);
void device_memory_give(void *memory, size_t bytes, int device, void *stream);

void device_memory_serve(int device, const std::shared_ptr<Comm> &comm);
/* Collective: the communicator gets a window over each of these segments (their addresses), in the order in which they
 * were taken; those in which it has one, keep it. A window ends with its segment or its communicator. ValueError, on
 * all ranks, where ranks have other numbers or sizes of segments. */
void device_memory_add_windows(const std::shared_ptr<Comm> &comm, const std::vector<uintptr_t> &pieces);

} // namespace tutti_torch
