/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* PyTorch's store as the place where tutti's ranks meet. */

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <tutti/store.h>

namespace tutti_torch
{

/* The table of functions over `store`, which must outlive its use. Exceptions of the store become statuses. */
tutti_store store_over(c10d::Store *store);

} // namespace tutti_torch
