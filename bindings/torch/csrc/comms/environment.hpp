/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* What a communicator is told by its launcher: which rank it is, and where the ranks meet. */

#include "base/process.hpp"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>
#include <utility>

namespace tutti_torch
{

using StorePtr = c10::intrusive_ptr<c10d::Store>;

/* Empty when it is not set, or blank. */
std::string variable_of(const char *name);
/* RuntimeError naming the variable when it is no such thing. */
bool flag_of(const char *name, bool otherwise);
int64_t number_of(const char *name, int64_t otherwise);

/* {rank, size}, as TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD says: "auto" (all of these, in this order), "mpi" (Open
 * MPI, then PMI), "pals" or "torchrun"; TORCHCOMM_RANK and TORCHCOMM_SIZE come first in each. */
std::pair<int, int> rank_and_size();

/* The store of the environment: a file that TORCHCOMM_STORE_PATH names; else a TCPStore of rank 0 at a free port, of
 * which the others learn at MASTER_ADDR:MASTER_PORT. That port is used but once in the life of a process, and only
 * until all have come: whoever wants it afterwards finds it free. */
StorePtr store_of_environment(int rank, int size, milliseconds timeout);

/* The keys of this communicator: the nth of this name that this rank makes with the store. */
StorePtr store_for(const StorePtr &store, const std::string &name, int rank);

/* A store that this process serves, and the address at which others reach it. */
std::pair<StorePtr, std::string> serve_store(const std::string &hostname, milliseconds timeout);
/* That of another process (or the own one) by its address. */
StorePtr connect_store(const std::string &address, milliseconds timeout);

} // namespace tutti_torch
