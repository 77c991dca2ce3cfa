/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* PyTorch's store as the place where tutti's ranks meet. */

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <tutti/store.h>

#include <exception>
#include <mutex>
#include <string>

namespace tutti_torch
{

/* tutti's table of functions over a store, for as long as this is there. Exceptions of the store become statuses, of
 * which the first one's words are kept. */
class StoreTable
{
  public:
    explicit StoreTable(c10d::Store &store) : store(store) {}
    tutti_store table();
    std::string why(); /* empty: nothing was thrown */
    tutti_status caught(const std::exception &error);

    c10d::Store &store;

  private:
    std::mutex mutex_;
    std::string why_;
};

} // namespace tutti_torch
