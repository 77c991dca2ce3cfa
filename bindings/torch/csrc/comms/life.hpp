/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* What communicators are made of, for those who make them: by creation, split (life.cpp) and reconfigure. */

#include "comms/comms.hpp"

namespace tutti_torch
{

struct TorchComm::Made {
    std::string backend_name;
    c10::Device device;
    CommOptions options;
    std::shared_ptr<ForeignBackend> foreign; /* one of the two; neither: it is not configured yet */
    c10::intrusive_ptr<Backend> backend;
    std::vector<int> ranks; /* empty: 0 and so on */
    Place place;
};

struct BackendFacts {
    std::string name;
    c10::Device device;
    milliseconds timeout;
    Place place;
};
/* Collective: meets the others in the store. */
c10::intrusive_ptr<Backend> backend_of(const StorePtr &store, int rank, int size, const BackendFacts &facts);

} // namespace tutti_torch
