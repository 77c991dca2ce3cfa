/* SPDX-License-Identifier: BSD-3-Clause */

/* A store of PyTorch behind tutti's table of functions. Clients of TCPStore serve one request at a time: a request that
 * waits in one thread would keep the others out, and with them the key that it waits for. So waiting is polling. */

#include "comm/store.hpp"

#include "comm/own_store.hpp"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace tutti_torch
{
namespace
{

using std::chrono::nanoseconds;

c10d::Store &of(void *table)
{
    return static_cast<StoreTable *>(table)->store;
}

uint64_t now_ns()
{
    return uint64_t(nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

template <typename Function> tutti_status guarded(void *table, Function function)
{
    try {
        return function();
    } catch (const std::exception &error) {
        return static_cast<StoreTable *>(table)->caught(error);
    }
}

tutti_status set(void *store, const char *key, const void *value, size_t bytes)
{
    return guarded(store, [&] {
        const auto *first = static_cast<const uint8_t *>(value);
        of(store).set(key, std::vector<uint8_t>(first, first + bytes));
        return TUTTI_OK;
    });
}

tutti_status wait(void *store, const char *key, uint64_t deadline_ns)
{
    return guarded(store, [&] {
        nanoseconds pause(20'000);
        while (!of(store).check({key})) {
            if (now_ns() >= deadline_ns) return TUTTI_ERR_TIMEOUT;
            std::this_thread::sleep_for(pause);
            pause = std::min(pause * 2, nanoseconds(5'000'000));
        }
        return TUTTI_OK;
    });
}

tutti_status get(void *store, const char *key, void *value, size_t capacity, size_t *bytes, uint64_t deadline_ns)
{
    tutti_status status = wait(store, key, deadline_ns);
    if (status != TUTTI_OK) return status;
    return guarded(store, [&] {
        std::vector<uint8_t> found = of(store).get(key);
        *bytes = found.size();
        std::memcpy(value, found.data(), std::min(capacity, found.size()));
        return found.size() <= capacity ? TUTTI_OK : TUTTI_ERR_TRUNCATED;
    });
}

tutti_status add(void *store, const char *key, int64_t delta, int64_t *value)
{
    return guarded(store, [&] {
        *value = of(store).add(key, delta);
        return TUTTI_OK;
    });
}

tutti_status remove(void *store, const char *key, bool *existed)
{
    return guarded(store, [&] {
        bool there = of(store).deleteKey(key);
        if (existed) *existed = there;
        return TUTTI_OK;
    });
}

const tutti_store_ops store_ops = {sizeof(tutti_store_ops), set, get, wait, add, remove, nullptr};

} // namespace

tutti_store StoreTable::table()
{
    if (auto *own = dynamic_cast<OwnStore *>(&store)) return own->table();
    return {&store_ops, this};
}

tutti_status StoreTable::caught(const std::exception &error)
{
    std::lock_guard<std::mutex> guard(mutex_);
    if (why_.empty()) why_ = error.what();
    return TUTTI_ERR_BOOTSTRAP;
}

std::string StoreTable::why()
{
    std::lock_guard<std::mutex> guard(mutex_);
    return why_;
}

} // namespace tutti_torch
