/* SPDX-License-Identifier: BSD-3-Clause */

/* A store of PyTorch behind tutti's table of functions. Clients of TCPStore serve one request at a time: a request that
 * waits in one thread would keep the others out, and with them the key that it waits for. So waiting is polling. */

#include "comm/store.hpp"

#include "base/process.hpp"

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

static const char *or_null(const std::string &secret)
{
    return secret.empty() ? nullptr : secret.c_str();
}

static uint64_t deadline_in(milliseconds timeout)
{
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return uint64_t(std::chrono::nanoseconds(now).count()) + to_ns(timeout);
}

StoreServer::StoreServer(const std::string &host, uint16_t port, const std::string &secret)
{
    tutti_store_server *made = nullptr;
    check(tutti_store_server_open(host.empty() ? nullptr : host.c_str(), port, or_null(secret), &made));
    server_.reset(made);
}

OwnStore::OwnStore(const std::string &host, uint16_t port, std::string prefix, milliseconds timeout,
                   const std::string &secret)
    : c10d::Store(timeout), client_(std::make_shared<Client>()), prefix_(std::move(prefix))
{
    const std::string bracketed = host.find(':') == std::string::npos ? host : "[" + host + "]";
    const std::string address = "tcp://" + bracketed + ":" + std::to_string(port);
    tutti_store made = {};
    tutti_torch::check(tutti_store_open(address.c_str(), or_null(secret), deadline_in(timeout), &made));
    client_->store = made;
}

/* ---- the library's table ---- */

struct OwnStoreTable {
    static const OwnStore &of(void *self) { return *static_cast<const OwnStore *>(self); }
    static const tutti_store &inner(void *self) { return of(self).client_->store; }
    static std::string full(void *self, const char *key) { return of(self).prefix_ + key; }

    static tutti_status set(void *self, const char *key, const void *value, size_t bytes)
    {
        return inner(self).ops->set(inner(self).self, full(self, key).c_str(), value, bytes);
    }
    static tutti_status get(void *self, const char *key, void *value, size_t capacity, size_t *bytes, uint64_t deadline)
    {
        return inner(self).ops->get(inner(self).self, full(self, key).c_str(), value, capacity, bytes, deadline);
    }
    static tutti_status wait(void *self, const char *key, uint64_t deadline)
    {
        return inner(self).ops->wait(inner(self).self, full(self, key).c_str(), deadline);
    }
    static tutti_status add(void *self, const char *key, int64_t delta, int64_t *value)
    {
        return inner(self).ops->add(inner(self).self, full(self, key).c_str(), delta, value);
    }
    static tutti_status remove(void *self, const char *key, bool *existed)
    {
        return inner(self).ops->remove(inner(self).self, full(self, key).c_str(), existed);
    }
};

tutti_store OwnStore::table()
{
    static const tutti_store_ops ops = {sizeof(tutti_store_ops),
                                        OwnStoreTable::set,
                                        OwnStoreTable::get,
                                        OwnStoreTable::wait,
                                        OwnStoreTable::add,
                                        OwnStoreTable::remove,
                                        nullptr};
    return {&ops, this};
}

/* ---- PyTorch's ---- */

c10::intrusive_ptr<c10d::Store> OwnStore::clone()
{
    return c10::make_intrusive<OwnStore>(*this);
}

void OwnStore::set(const std::string &key, const Bytes &value)
{
    tutti_torch::check(OwnStoreTable::set(this, key.c_str(), value.data(), value.size()));
}

OwnStore::Bytes OwnStore::get(const std::string &key)
{
    Bytes value(TUTTI_STORE_VALUE_MAX);
    size_t bytes = 0;
    tutti_torch::check(
        OwnStoreTable::get(this, key.c_str(), value.data(), value.size(), &bytes, deadline_in(getTimeout())));
    value.resize(bytes);
    return value;
}

int64_t OwnStore::add(const std::string &key, int64_t delta)
{
    int64_t value = 0;
    tutti_torch::check(OwnStoreTable::add(this, key.c_str(), delta, &value));
    return value;
}

bool OwnStore::deleteKey(const std::string &key)
{
    bool existed = false;
    tutti_torch::check(OwnStoreTable::remove(this, key.c_str(), &existed));
    return existed;
}

bool OwnStore::check(const std::vector<std::string> &keys)
{
    return std::all_of(keys.begin(), keys.end(), [this](const std::string &key) {
        const tutti_status status = OwnStoreTable::wait(this, key.c_str(), deadline_in(milliseconds(0)));
        if (status != TUTTI_ERR_TIMEOUT) tutti_torch::check(status);
        return status == TUTTI_OK;
    });
}

int64_t OwnStore::getNumKeys()
{
    C10_THROW_ERROR(NotImplementedError, "tutti: its store does not count its keys");
}

void OwnStore::wait(const std::vector<std::string> &keys)
{
    wait(keys, getTimeout());
}

void OwnStore::wait(const std::vector<std::string> &keys, const milliseconds &timeout)
{
    const uint64_t deadline = deadline_in(timeout);
    for (const std::string &key : keys) tutti_torch::check(OwnStoreTable::wait(this, key.c_str(), deadline));
}

} // namespace tutti_torch
