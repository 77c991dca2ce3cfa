/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* PyTorch's store as the place where tutti's ranks meet, and tutti's own store over TCP as a store of PyTorch: ranks
 * that meet often meet faster there, since a request that waits neither polls nor keeps others of its client out. */

#include "base/process.hpp"

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <tutti/store.h>

#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

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

/* tutti's own store over TCP, as a store of PyTorch: ranks that meet often meet faster there, since a request that
 * waits neither polls nor keeps others of its client out. */

/* Serves from a thread of this process until it goes. */
class StoreServer
{
  public:
    StoreServer(const std::string &host, uint16_t port, const std::string &secret);
    uint16_t port() const { return tutti_store_server_port(server_.get()); }

  private:
    std::unique_ptr<tutti_store_server, void (*)(tutti_store_server *)> server_{nullptr, tutti_store_server_close};
};

/* A client; its keys begin with a prefix. */
class OwnStore final : public c10d::Store
{
  public:
    using Bytes = std::vector<uint8_t>;

    /* Waits for the server until the timeout. */
    OwnStore(const std::string &host, uint16_t port, std::string prefix, milliseconds timeout,
             const std::string &secret);

    /* The same as the library's table, for as long as this is there. */
    tutti_store table();

    c10::intrusive_ptr<c10d::Store> clone();
    void set(const std::string &key, const Bytes &value) override;
    Bytes get(const std::string &key) override;
    int64_t add(const std::string &key, int64_t value) override;
    bool deleteKey(const std::string &key) override;
    bool check(const std::vector<std::string> &keys) override;
    int64_t getNumKeys() override;
    void wait(const std::vector<std::string> &keys) override;
    void wait(const std::vector<std::string> &keys, const milliseconds &timeout) override;

  private:
    friend struct OwnStoreTable;
    struct Client {
        tutti_store store = {};
        ~Client() { tutti_store_close(&store); }
    };

    std::shared_ptr<Client> client_;
    std::string prefix_;
};

} // namespace tutti_torch
