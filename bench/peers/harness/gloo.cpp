/* SPDX-License-Identifier: BSD-3-Clause */
/* Gloo as a peer, by its C++ library: TCP over the loopback interface, as PyTorch uses it on one host, or over the
 * interface of the variable PEERS_INTERFACE. */

#include "collectives.h"

#include <cstdio>
#include <cstdlib>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace
{
std::shared_ptr<gloo::rendezvous::Context> world;

/* What throws is told and returned. */
template <typename Function> int guarded(Function function)
{
    try {
        function();
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return -1;
    }
}

/* Older versions take the store by reference, newer ones share it. */
template <typename Context, typename Store, typename Device>
void connect(Context &context, std::shared_ptr<Store> store, Device &device)
{
    if constexpr (std::is_invocable_v<decltype(&Context::connectFullMesh), Context &, Store &, Device &>)
        context.connectFullMesh(*store, device);
    else
        context.connectFullMesh(store, device);
}

void make_world(int rank, int n)
{
    const char *folder = std::getenv("PEERS_FOLDER");
    const char *interface = std::getenv("PEERS_INTERFACE");
    gloo::transport::tcp::attr attributes(interface ? "" : "localhost");
    if (interface) attributes.iface = interface;
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    auto store = std::make_shared<gloo::rendezvous::FileStore>(std::string(folder ? folder : "."));
    world = std::make_shared<gloo::rendezvous::Context>(rank, n);
    connect(*world, store, device);
}

int open_gloo(int rank, int n)
{
    return guarded([=] { make_world(rank, n); });
}

void close_gloo()
{
    world.reset();
}

float *input(const peer_call *c)
{
    return const_cast<float *>(c->send);
}

void (*const sum)(void *, const void *, const void *, size_t) = &gloo::sum<float>;

int all_reduce(const peer_call *c)
{
    return guarded([=] {
        gloo::AllreduceOptions options(world);
        options.setInput(input(c), c->count);
        options.setOutput(c->recv, c->count);
        options.setReduceFunction(sum);
        gloo::allreduce(options);
    });
}

int all_gather(const peer_call *c)
{
    return guarded([=] {
        gloo::AllgatherOptions options(world);
        options.setInput(input(c), c->count);
        options.setOutput(c->recv, c->count * static_cast<size_t>(c->n));
        gloo::allgather(options);
    });
}

int all_to_all(const peer_call *c)
{
    return guarded([=] {
        gloo::AlltoallOptions options(world);
        options.setInput(input(c), c->count * static_cast<size_t>(c->n));
        options.setOutput(c->recv, c->count * static_cast<size_t>(c->n));
        gloo::alltoall(options);
    });
}

int broadcast(const peer_call *c)
{
    return guarded([=] {
        gloo::BroadcastOptions options(world);
        options.setRoot(c->root);
        options.setOutput(c->rank == c->root ? input(c) : c->recv, c->count);
        gloo::broadcast(options);
    });
}

/* Every rank gives an output, which is scratch but at the root. */
int reduce(const peer_call *c)
{
    return guarded([=] {
        static std::vector<float> scratch;
        gloo::ReduceOptions options(world);
        bool root = c->rank == c->root;
        if (!root && scratch.size() < c->count) scratch.resize(c->count);
        options.setRoot(c->root);
        options.setInput(input(c), c->count);
        options.setOutput(root ? c->recv : scratch.data(), c->count);
        options.setReduceFunction(sum);
        gloo::reduce(options);
    });
}

int gather(const peer_call *c)
{
    return guarded([=] {
        gloo::GatherOptions options(world);
        options.setRoot(c->root);
        options.setInput(input(c), c->count);
        if (c->rank == c->root) options.setOutput(c->recv, c->count * static_cast<size_t>(c->n));
        gloo::gather(options);
    });
}

int scatter(const peer_call *c)
{
    return guarded([=] {
        gloo::ScatterOptions options(world);
        options.setRoot(c->root);
        if (c->rank == c->root) {
            std::vector<float *> blocks;
            for (size_t r = 0; r < static_cast<size_t>(c->n); r++) blocks.push_back(input(c) + r * c->count);
            options.setInputs(blocks, c->count);
        }
        options.setOutput(c->recv, c->count);
        gloo::scatter(options);
    });
}

int barrier(const peer_call *)
{
    return guarded([] {
        gloo::BarrierOptions options(world);
        gloo::barrier(options);
    });
}
} // namespace

/* In the order of enum peer_operation; the library has no scan, and no reduce_scatter of this interface. */
const struct peer peer = {
    open_gloo,
    close_gloo,
    nullptr,
    nullptr,
    {all_reduce, nullptr, all_gather, all_to_all, broadcast, reduce, gather, scatter, nullptr, barrier},
};
