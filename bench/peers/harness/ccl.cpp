/* SPDX-License-Identifier: BSD-3-Clause */
/* oneCCL as a peer, on host memory, through its C++ interface (the one in C serves GPUs). */

#include "collectives.h"

#include <cstdio>
#include <cstring>
#include <memory>
#include <oneapi/ccl.hpp>

namespace
{
std::unique_ptr<ccl::communicator> world;

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

void make_world(int rank, int n)
{
    ccl::kvs::address_type address{};
    ccl::shared_ptr_class<ccl::kvs> store;
    ccl::init();
    if (rank == 0) {
        store = ccl::create_main_kvs();
        address = store->get_address();
    }
    peer_share(address.data(), address.size());
    if (rank != 0) store = ccl::create_kvs(address);
    world.reset(new ccl::communicator(ccl::create_communicator(n, rank, store)));
    ccl::barrier(*world).wait();
}

int open_ccl(int rank, int n)
{
    return guarded([=] { make_world(rank, n); });
}

void close_ccl()
{
    world.reset();
}

constexpr auto type = ccl::datatype::float32;
constexpr auto sum = ccl::reduction::sum;

int all_reduce(const peer_call *c)
{
    return guarded([=] { ccl::allreduce(c->send, c->recv, c->count, type, sum, *world).wait(); });
}

int reduce_scatter(const peer_call *c)
{
    return guarded([=] { ccl::reduce_scatter(c->send, c->recv, c->count, type, sum, *world).wait(); });
}

int all_gather(const peer_call *c)
{
    return guarded([=] { ccl::allgather(c->send, c->recv, c->count, type, *world).wait(); });
}

int all_to_all(const peer_call *c)
{
    return guarded([=] { ccl::alltoall(c->send, c->recv, c->count, type, *world).wait(); });
}

int broadcast(const peer_call *c)
{
    void *buffer = c->rank == c->root ? const_cast<float *>(c->send) : c->recv;
    return guarded([=] { ccl::broadcast(buffer, c->count, type, c->root, *world).wait(); });
}

int reduce(const peer_call *c)
{
    return guarded([=] { ccl::reduce(c->send, c->recv, c->count, type, sum, c->root, *world).wait(); });
}

int barrier(const peer_call *)
{
    return guarded([] { ccl::barrier(*world).wait(); });
}
} // namespace

/* In the order of enum peer_operation; on hosts it has no gather, scatter and scan. */
const struct peer peer = {
    open_ccl,
    close_ccl,
    nullptr,
    nullptr,
    {all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, reduce, nullptr, nullptr, nullptr, barrier},
};
