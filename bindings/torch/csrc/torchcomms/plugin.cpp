/* SPDX-License-Identifier: BSD-3-Clause */

/* How torchcomms gets at the backend: tutti_torch/torchcomms.py, which its entry point loads, says where this library
 * is and registers the rest; torchcomms then opens it and calls create_dynamic_loader_tutti.
 *
 * The library holds none of the classes that do the work: it is linked to the extension _C, which exports them, so that
 * both have one C library, one context and one list of groups. A table of functions would do as well, and be one more
 * interface to keep. */

#include "comms/comms.hpp"
#include "torchcomms/plug.hpp"

namespace tutti_torch
{
namespace
{

torch::comms::TorchCommBackend *new_comm()
{
    return new PluggedBackend("tutti");
}

void destroy_comm(torch::comms::TorchCommBackend *backend)
{
    delete backend;
}

const char *supported_version()
{
    return torch::comms::abi_version;
}

} // namespace
} // namespace tutti_torch

extern "C" [[gnu::visibility("default")]] torch::comms::DynamicLoaderInterface create_dynamic_loader_tutti()
{
    return {&tutti_torch::new_comm, &tutti_torch::destroy_comm, &tutti_torch::supported_version};
}

/* What gives memory, by the names of the entry points; and those that force a way ("tutti:flat"), which are no names of
 * functions, and so can not be looked up like the one above. */
extern "C" [[gnu::visibility("default")]] void tutti_torchcomms_register(const char *known)
{
    const std::string name = known;
    auto &factory = torch::comms::TorchCommFactory::get();
    factory.register_allocator_factory(name, &tutti_torch::memory_of_last_communicator);
    if (name == "tutti") return;
    factory.register_backend(name, [name] { return std::make_shared<tutti_torch::PluggedBackend>(name); });
}
