/* SPDX-License-Identifier: BSD-3-Clause */

/* Launchers' variables, and stores made of them. */

#include "comms/environment.hpp"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unistd.h>

namespace tutti_torch
{

using std::chrono::steady_clock;

/* ---- variables ---- */

std::string variable_of(const char *name)
{
    const char *value = std::getenv(name);
    const std::string text = value ? value : "";
    const size_t first = text.find_first_not_of(" \t\r\n"), last = text.find_last_not_of(" \t\r\n");
    return first == std::string::npos ? std::string() : text.substr(first, last - first + 1);
}

static std::string lower(std::string text)
{
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return char(std::tolower(c)); });
    return text;
}

bool flag_of(const char *name, bool otherwise)
{
    const std::string value = lower(variable_of(name));
    if (value.empty()) return otherwise;
    for (const char *yes : {"1", "true", "yes", "y"})
        if (value == yes) return true;
    for (const char *no : {"0", "false", "no", "n"})
        if (value == no) return false;
    TORCH_CHECK(false, "tutti: ", name, "=", value, " is neither true nor false");
}

int64_t number_of(const char *name, int64_t otherwise)
{
    const std::string value = variable_of(name);
    if (value.empty()) return otherwise;
    char *end = nullptr;
    const long long number = std::strtoll(value.c_str(), &end, 10);
    TORCH_CHECK(*end == '\0', "tutti: ", name, "=", value, " is not a number");
    return number;
}

/* ---- rank and size ---- */

namespace
{

struct Launcher {
    const char *method; /* nullptr: of all methods */
    const char *rank;
    std::initializer_list<const char *> size; /* the first that is set */
};

const Launcher launchers[] = {
    {nullptr, "TORCHCOMM_RANK", {"TORCHCOMM_SIZE"}},
    {"mpi", "OMPI_COMM_WORLD_RANK", {"OMPI_COMM_WORLD_SIZE"}},
    {"mpi", "PMI_RANK", {"PMI_SIZE"}},
    {"pals", "PALS_RANKID", {"PALS_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "WORLD_SIZE"}},
    {"torchrun", "RANK", {"WORLD_SIZE"}},
};

constexpr const char *query_method = "TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD";

std::optional<std::pair<int, int>> asked(const Launcher &launcher)
{
    const int64_t rank = number_of(launcher.rank, -1);
    for (const char *name : launcher.size) {
        const int64_t size = number_of(name, -1);
        if (rank < 0 || size <= 0) continue;
        TORCH_CHECK(rank < size, "tutti: ", launcher.rank, "=", rank, ", but ", name, "=", size);
        return std::make_pair(int(rank), int(size));
    }
    return std::nullopt;
}

} // namespace

std::pair<int, int> rank_and_size()
{
    const std::string given = variable_of(query_method), method = given.empty() ? "auto" : lower(given);
    bool known = method == "auto";
    for (const Launcher &launcher : launchers) {
        const bool named = launcher.method && method == launcher.method;
        known = known || named;
        if (launcher.method && !named && method != "auto") continue;
        if (auto found = asked(launcher)) return *found;
    }
    TORCH_CHECK(known, "tutti: ", query_method, "=", given, " is none of auto, mpi, pals, torchrun");
    TORCH_CHECK(false,
                "tutti: new_comm: neither the rank nor the size is known: start the program with tutti run, "
                "torchrun or mpirun, or set TORCHCOMM_RANK and TORCHCOMM_SIZE, or give the hints \"rank\" and "
                "\"size\" (",
                query_method, " is ", method, ")");
}

/* ---- stores ---- */

namespace
{

c10d::TCPStoreOptions store_options(int port, bool serves, milliseconds timeout)
{
    c10d::TCPStoreOptions options;
    options.port = uint16_t(port);
    options.isServer = serves;
    options.waitWorkers = false;
    options.timeout = timeout;
    return options;
}

StorePtr tcp_store(const std::string &host, int port, bool serves, milliseconds timeout)
{
    return c10::make_intrusive<c10d::TCPStore>(host, store_options(port, serves, timeout));
}

/* The one at MASTER_PORT: rank 0 serves it, unless somebody does already (torchrun's agent, or the program). */
StorePtr master_store(const std::string &host, int port, int rank, milliseconds timeout)
{
    if (rank == 0 && !flag_of("TORCHELASTIC_USE_AGENT_STORE", false)) {
        try {
            return tcp_store(host, port, true, timeout);
        } catch (const std::exception &) {
            /* in use */
        }
    }
    return tcp_store(host, port, false, timeout);
}

std::vector<uint8_t> bytes_of(const std::string &text)
{
    return {text.begin(), text.end()};
}

/* Waits as a rank does: interruptible. */
void await(const std::function<bool()> &done, milliseconds timeout, const std::string &what)
{
    const auto until = moment_in(timeout);
    auto pause = std::chrono::microseconds(50);
    auto looked = steady_clock::now();
    while (!done()) {
        const auto now = steady_clock::now();
        TORCH_CHECK(now < until, "tutti: new_comm: ", what, " within ", timeout.count(), " ms");
        if (now - looked > signals_every) {
            check_signals();
            looked = now;
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::microseconds(5000));
    }
}

/* All have connected to the own store before the master's goes: no other rank gets on without rank 0. */
StorePtr meet_at_master(const std::string &host, int port, int rank, int size, milliseconds timeout)
{
    const std::string attempt = variable_of("TORCHELASTIC_RESTART_COUNT"), key = "tutti/comms/" + attempt;
    const StorePtr master = master_store(host, port, rank, timeout);
    if (rank > 0) {
        await([&] { return master->check({key}); }, timeout,
              c10::str("rank 0 did not say where it is at ", host, ":", port));
        const std::vector<uint8_t> said = master->get(key);
        const StorePtr own = tcp_store(host, std::atoi(std::string(said.begin(), said.end()).c_str()), false, timeout);
        own->add("came", 1);
        return own;
    }
    auto own = c10::make_intrusive<c10d::TCPStore>(host, store_options(0, true, timeout));
    master->set(key, bytes_of(std::to_string(own->getPort())));
    int64_t came = 0;
    await([&] { return (came = own->add("came", 0)) >= size - 1; }, timeout,
          c10::str("of ", size, " ranks not all came to ", host, ":", port, " (MASTER_ADDR, MASTER_PORT)"));
    master->deleteKey(key);
    return own;
}

/* A file goes with its last store, although other ranks may be opening it: so this process keeps one until it ends. */
StorePtr file_store(const std::string &path, int rank, int size)
{
    static std::mutex lock;
    static std::map<std::string, StorePtr> all;
    std::lock_guard<std::mutex> guard(lock);
    StorePtr &store = all[c10::str(path, " ", rank, "/", size)];
    if (!store) store = c10::make_intrusive<c10d::FileStore>(path, size);
    return store;
}

} // namespace

StorePtr store_of_environment(int rank, int size, milliseconds timeout)
{
    struct Known { /* several ranks of a process, as threads, meet here at one time */
        std::mutex lock;
        StorePtr store;
    };
    static std::mutex lock;
    static auto *all = new std::map<std::string, Known>(); /* left: others may still use the stores */

    const std::string path = variable_of("TORCHCOMM_STORE_PATH"), host = variable_of("MASTER_ADDR");
    const int64_t port = number_of("MASTER_PORT", -1);
    if (!path.empty()) return file_store(path, rank, size);
    if (size == 1) return c10::make_intrusive<c10d::HashStore>();
    TORCH_CHECK(!host.empty() && port >= 0,
                "tutti: new_comm: there is no store: pass `store`, or set MASTER_ADDR and MASTER_PORT, or "
                "TORCHCOMM_STORE_PATH");
    const std::string which = c10::str(getpid(), " ", host, ":", port, " ", rank, "/", size);
    Known *known = nullptr;
    {
        std::lock_guard<std::mutex> guard(lock);
        known = &(*all)[which];
    }
    std::lock_guard<std::mutex> guard(known->lock);
    if (!known->store) known->store = meet_at_master(host, int(port), rank, size, timeout);
    return known->store;
}

StorePtr store_for(const StorePtr &store, const std::string &name, int rank)
{
    const std::string prefix = "tutti/comms/" + name + "/";
    const int64_t nth = store->add(c10::str(prefix, "uses/", rank), 1);
    return c10::make_intrusive<c10d::PrefixStore>(c10::str(prefix, nth), store);
}

/* ---- stores of single processes ---- */

static std::string host_name()
{
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    return name;
}

/* "name|port" of a host that is found by its name, "address|port" where one was given. */
std::pair<StorePtr, std::string> serve_store(const std::string &hostname, milliseconds timeout)
{
    const std::string local = hostname.empty() ? "127.0.0.1" : hostname;
    auto store = c10::make_intrusive<c10d::TCPStore>(local, store_options(0, true, timeout));
    const std::string address = c10::str(hostname.empty() ? host_name() : hostname, ":", store->getPort());
    return {store, address};
}

StorePtr connect_store(const std::string &address, milliseconds timeout)
{
    const size_t colon = address.rfind(':');
    TORCH_CHECK(colon != std::string::npos, "tutti: reconfigure: '", address, "' is no address");
    const std::string host = address.substr(0, colon);
    const int port = std::atoi(address.c_str() + colon + 1);
    TORCH_CHECK(port > 0 && port < 65536, "tutti: reconfigure: '", address, "' has no port");
    return tcp_store(host == host_name() ? "127.0.0.1" : host, port, false, timeout);
}

} // namespace tutti_torch
