/* SPDX-License-Identifier: BSD-3-Clause */

/* Servers and clients of fault tolerance, with the names and arguments of torchft's compiled part (its _torchft.pyi of
 * 2026-10), so that its Python runs on them. As there, a deadline that passes is a TimeoutError, all else a
 * RuntimeError. */

#include "python/python.hpp"

#include <tutti/ft.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <vector>

namespace tutti_torch
{
namespace
{

using Duration = std::chrono::nanoseconds;
using Numbers = std::vector<int64_t>;
using Texts = std::vector<std::string>;

uint64_t nanoseconds_of(Duration duration)
{
    return duration.count() > 0 ? uint64_t(duration.count()) : 1;
}

void check_ft(tutti_status status)
{
    if (status >= 0) return;
    if (status != TUTTI_ERR_TIMEOUT) throw std::runtime_error(tutti_last_error()->text);
    PyErr_SetString(PyExc_TimeoutError, tutti_last_error()->text);
    throw py::error_already_set();
}

template <typename Call> void without_gil(Call call)
{
    tutti_status status;
    {
        py::gil_scoped_release release;
        status = call();
    }
    check_ft(status);
}

/* Checks the making of a client or a server: there every failure is a RuntimeError. */
template <typename Call> void make(Call call)
{
    tutti_status status;
    {
        py::gil_scoped_release release;
        status = call();
    }
    if (status < 0) throw std::runtime_error(tutti_last_error()->text);
}

template <typename T, void (*close)(T *)> struct Close {
    void operator()(T *object) const
    {
        py::gil_scoped_release release; /* it waits for its thread */
        close(object);
    }
};
template <typename T, void (*close)(T *)> using Owned = std::unique_ptr<T, Close<T, close>>;

/* Its destructor, too, runs with the GIL. */
template <typename T, void (*close)(T *)> struct Server {
    Owned<T, close> server;
    std::string address;
};
using LighthouseServer = Server<tutti_ft_lighthouse, tutti_ft_lighthouse_close>;
using ManagerServer = Server<tutti_ft_manager, tutti_ft_manager_close>;
using OwnedLighthouseClient = Owned<tutti_ft_lighthouse_client, tutti_ft_lighthouse_client_close>;
struct LighthouseClient {
    std::string addr;
    Duration connect_timeout;
    std::shared_ptr<OwnedLighthouseClient> client; /* failures need it, too */
};
struct FailureNotification {
    std::string replica_id;
};
/* An iterator that another thread may close. */
struct FailureStream {
    std::shared_ptr<OwnedLighthouseClient> client; /* first: it goes last */
    std::optional<Duration> timeout;               /* for each notification */
    std::atomic<bool> closed{false};
    std::mutex mutex; /* guards what follows */
    Owned<tutti_ft_failures, tutti_ft_failures_close> failures;
};
struct ManagerClient {
    Owned<tutti_ft_client, tutti_ft_client_close> client;
};

/* ---- data ---- */
struct Timestamp {
    int64_t seconds = 0;
    int32_t nanos = 0;
};
struct QuorumMember {
    std::string replica_id, address, store_address;
    int64_t step = 0;
    uint64_t world_size = 0;
    bool shrink_only = false;
    py::object data = py::none();
};
struct Quorum {
    int64_t quorum_id = 0;
    std::vector<QuorumMember> participants;
    Timestamp created;
};
struct QuorumResult {
    int64_t quorum_id = 0, replica_rank = 0, replica_world_size = 1;
    std::string recover_src_manager_address;
    std::optional<int64_t> recover_src_replica_rank;
    Numbers recover_dst_replica_ranks;
    std::string store_address;
    int64_t max_step = 0;
    std::optional<int64_t> max_replica_rank;
    int64_t max_world_size = 1;
    bool heal = false;
    int64_t commit_failures = 0;
    Texts replica_ids, reconfigure_handles;
    Texts recover_src_manager_addresses; /* this and the next are not torchft's */
    bool offers = false;
};

void define_data(py::module_ &module)
{
    py::class_<Timestamp>(module, "Timestamp")
        .def(py::init([](int64_t seconds, int32_t nanos) {
                 return Timestamp{seconds, nanos};
             }),
             py::arg("seconds"), py::arg("nanos"))
        .def_readwrite("seconds", &Timestamp::seconds)
        .def_readwrite("nanos", &Timestamp::nanos);
    py::class_<QuorumMember>(module, "QuorumMember")
        .def(py::init([](std::string replica_id, std::string address, std::string store_address, int64_t step,
                         uint64_t world_size, bool shrink_only, py::object data) {
                 return QuorumMember{replica_id, address, store_address, step, world_size, shrink_only, data};
             }),
             py::arg("replica_id"), py::arg("address"), py::arg("store_address"), py::arg("step"),
             py::arg("world_size"), py::arg("shrink_only"), py::arg("data") = py::none())
        .def_readwrite("replica_id", &QuorumMember::replica_id)
        .def_readwrite("address", &QuorumMember::address)
        .def_readwrite("store_address", &QuorumMember::store_address)
        .def_readwrite("step", &QuorumMember::step)
        .def_readwrite("world_size", &QuorumMember::world_size)
        .def_readwrite("shrink_only", &QuorumMember::shrink_only)
        .def_readwrite("data", &QuorumMember::data);
    py::class_<Quorum>(module, "Quorum")
        .def(py::init([](int64_t quorum_id, std::vector<QuorumMember> participants, Timestamp created) {
                 return Quorum{quorum_id, participants, created};
             }),
             py::arg("quorum_id"), py::arg("participants"), py::arg("created"))
        .def_readwrite("quorum_id", &Quorum::quorum_id)
        .def_readwrite("participants", &Quorum::participants)
        .def_readwrite("created", &Quorum::created);
    py::class_<QuorumResult>(module, "QuorumResult")
        .def(py::init<>())
        .def_readwrite("quorum_id", &QuorumResult::quorum_id)
        .def_readwrite("replica_rank", &QuorumResult::replica_rank)
        .def_readwrite("replica_world_size", &QuorumResult::replica_world_size)
        .def_readwrite("recover_src_manager_address", &QuorumResult::recover_src_manager_address)
        .def_readwrite("recover_src_replica_rank", &QuorumResult::recover_src_replica_rank)
        .def_readwrite("recover_dst_replica_ranks", &QuorumResult::recover_dst_replica_ranks)
        .def_readwrite("store_address", &QuorumResult::store_address)
        .def_readwrite("max_step", &QuorumResult::max_step)
        .def_readwrite("max_replica_rank", &QuorumResult::max_replica_rank)
        .def_readwrite("max_world_size", &QuorumResult::max_world_size)
        .def_readwrite("heal", &QuorumResult::heal)
        .def_readwrite("commit_failures", &QuorumResult::commit_failures)
        .def_readwrite("replica_ids", &QuorumResult::replica_ids)
        .def_readwrite("reconfigure_handles", &QuorumResult::reconfigure_handles)
        .def_readwrite("recover_src_manager_addresses", &QuorumResult::recover_src_manager_addresses)
        .def_readwrite("offers", &QuorumResult::offers);
}

/* ---- the lighthouse ---- */
std::unique_ptr<LighthouseServer> lighthouse_open(const std::string &bind, uint64_t min_replicas,
                                                  std::optional<uint64_t> join_timeout_ms,
                                                  std::optional<uint64_t> quorum_tick_ms,
                                                  std::optional<uint64_t> heartbeat_timeout_ms)
{
    const auto ns = [](std::optional<uint64_t> ms, uint64_t otherwise) {
        uint64_t out = 0;
        return __builtin_mul_overflow(ms.value_or(otherwise), 1000000, &out) ? UINT64_MAX : out;
    };
    tutti_ft_lighthouse_config config = TUTTI_FT_LIGHTHOUSE_CONFIG_INIT;
    tutti_ft_lighthouse *made = nullptr;

    config.bind = bind.c_str();
    config.min_replicas = min_replicas;
    config.join_timeout_ns = ns(join_timeout_ms, 100);
    config.tick_ns = ns(quorum_tick_ms, 100);
    config.heartbeat_timeout_ns = ns(heartbeat_timeout_ms, 5000);
    make([&] { return tutti_ft_lighthouse_open(&config, &made); });
    auto server = std::make_unique<LighthouseServer>();
    server->server.reset(made);
    server->address = tutti_ft_lighthouse_address(made);
    return server;
}

std::unique_ptr<LighthouseClient> lighthouse_client(const std::string &addr, Duration connect_timeout)
{
    tutti_ft_lighthouse_client *made = nullptr;

    make([&] { return tutti_ft_lighthouse_client_open(addr.c_str(), nanoseconds_of(connect_timeout), &made); });
    auto client = std::make_unique<LighthouseClient>();
    client->addr = addr;
    client->connect_timeout = connect_timeout;
    client->client = std::make_shared<OwnedLighthouseClient>(made);
    return client;
}

Quorum quorum_of(const tutti_ft_quorum &read)
{
    constexpr int64_t second = 1000000000;
    Quorum quorum;

    quorum.quorum_id = read.id;
    quorum.created = Timestamp{read.created_ns / second, int32_t(read.created_ns % second)};
    for (uint32_t i = 0; i < read.n_members; i++) {
        const tutti_ft_member &m = read.members[i];
        QuorumMember member{m.replica_id, m.address, m.store_address, m.step, m.world_size, m.shrink_only, py::none()};
        if (m.data[0]) member.data = py::module_::import("json").attr("loads")(m.data);
        quorum.participants.push_back(std::move(member));
    }
    return quorum;
}

Quorum lighthouse_quorum(LighthouseClient &self, const std::string &replica_id, Duration timeout,
                         std::optional<std::string> address, std::optional<std::string> store_address,
                         std::optional<int64_t> step, std::optional<uint64_t> world_size,
                         std::optional<bool> shrink_only, const py::object &data)
{
    tutti_ft_member member{};
    tutti_ft_quorum *read = nullptr;
    std::string json;

    if (!data.is_none()) json = py::str(py::module_::import("json").attr("dumps")(data));
    member.replica_id = replica_id.c_str();
    member.address = address ? address->c_str() : "";
    member.store_address = store_address ? store_address->c_str() : "";
    member.data = json.c_str();
    member.step = step.value_or(0);
    member.world_size = world_size.value_or(0);
    member.shrink_only = shrink_only.value_or(false);
    without_gil(
        [&] { return tutti_ft_lighthouse_client_quorum(self.client->get(), &member, nanoseconds_of(timeout), &read); });
    const std::unique_ptr<tutti_ft_quorum, decltype(&tutti_ft_quorum_free)> owned(read, tutti_ft_quorum_free);
    return quorum_of(*read);
}

std::unordered_map<std::string, std::string> lighthouse_config(LighthouseClient &self, Duration timeout)
{
    tutti_ft_settings *read = nullptr;
    std::unordered_map<std::string, std::string> config;

    without_gil(
        [&] { return tutti_ft_lighthouse_client_settings(self.client->get(), nanoseconds_of(timeout), &read); });
    const std::unique_ptr<tutti_ft_settings, decltype(&tutti_ft_settings_free)> owned(read, tutti_ft_settings_free);
    for (uint32_t i = 0; i < read->n; i++) config[read->list[i].name] = read->list[i].value;
    return config;
}

std::unique_ptr<FailureStream> lighthouse_failures(LighthouseClient &self, std::optional<Duration> timeout)
{
    tutti_ft_failures *made = nullptr;

    without_gil([&] { return tutti_ft_failures_open(self.client->get(), &made); });
    auto stream = std::make_unique<FailureStream>();
    stream->client = self.client;
    stream->timeout = timeout;
    stream->failures.reset(made);
    return stream;
}

/* In slices, between which a signal, or another thread, may end it. */
FailureNotification next_failure(FailureStream &self)
{
    constexpr auto slice = std::chrono::milliseconds(100);
    const auto begun = std::chrono::steady_clock::now();

    for (;;) {
        char *name = nullptr;
        tutti_status status = TUTTI_ERR_TIMEOUT;
        {
            const py::gil_scoped_release release;
            const std::lock_guard<std::mutex> lock(self.mutex);
            if (!self.closed) status = tutti_ft_failures_next(self.failures.get(), nanoseconds_of(slice), &name);
        }
        if (self.closed) throw py::stop_iteration();
        const std::unique_ptr<char, decltype(&free)> owned(name, free);
        if (status >= 0) return FailureNotification{name};
        if (status != TUTTI_ERR_TIMEOUT || (self.timeout && std::chrono::steady_clock::now() - begun > *self.timeout))
            check_ft(status);
        if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
}

void close_failures(FailureStream &self)
{
    self.closed = true;
    const py::gil_scoped_release release;
    const std::lock_guard<std::mutex> lock(self.mutex);
    const py::gil_scoped_acquire acquire; /* its end lets go of it again */
    self.failures.reset();
}

void define_failures(py::module_ &module)
{
    py::class_<FailureNotification>(module, "FailureNotification")
        .def_readonly("replica_id", &FailureNotification::replica_id);
    py::class_<FailureStream>(module, "FailureStream")
        .def("__iter__", [](const py::object &self) { return self; })
        .def("__next__", &next_failure)
        .def("close", &close_failures);
}

void define_lighthouse(py::module_ &module)
{
    define_failures(module);
    py::class_<LighthouseServer>(module, "LighthouseServer")
        .def(py::init(&lighthouse_open), py::arg("bind"), py::arg("min_replicas"),
             py::arg("join_timeout_ms") = py::none(), py::arg("quorum_tick_ms") = py::none(),
             py::arg("heartbeat_timeout_ms") = py::none())
        .def("address", [](const LighthouseServer &self) { return self.address; })
        .def("shutdown", [](LighthouseServer &self) { self.server.reset(); });
    py::class_<LighthouseClient>(module, "LighthouseClient")
        .def(py::init(&lighthouse_client), py::arg("addr"), py::arg("connect_timeout"))
        .def_readonly("addr", &LighthouseClient::addr)
        .def_readonly("connect_timeout", &LighthouseClient::connect_timeout)
        .def("quorum", &lighthouse_quorum, py::arg("replica_id"), py::arg("timeout"), py::arg("address") = py::none(),
             py::arg("store_address") = py::none(), py::arg("step") = py::none(), py::arg("world_size") = py::none(),
             py::arg("shrink_only") = py::none(), py::arg("data") = py::none())
        .def(
            "heartbeat",
            [](LighthouseClient &self, const std::string &replica_id, Duration timeout) {
                without_gil([&] {
                    return tutti_ft_lighthouse_client_heartbeat(self.client->get(), replica_id.c_str(),
                                                                nanoseconds_of(timeout));
                });
            },
            py::arg("replica_id"), py::arg("timeout") = Duration(std::chrono::seconds(5)))
        .def("get_config", &lighthouse_config, py::arg("timeout") = Duration(std::chrono::seconds(5)))
        .def("subscribe_failures", &lighthouse_failures, py::arg("timeout") = py::none());
}

/* ---- the manager ---- */
std::unique_ptr<ManagerServer> manager_open(const std::string &replica_id, const std::string &lighthouse_addr,
                                            const std::string &hostname, const std::string &bind,
                                            const std::string &store_addr, uint32_t world_size,
                                            Duration heartbeat_interval, Duration connect_timeout,
                                            uint32_t quorum_retries)
{
    tutti_ft_manager_config config = TUTTI_FT_MANAGER_CONFIG_INIT;
    tutti_ft_manager *made = nullptr;

    config.replica_id = replica_id.c_str();
    config.lighthouse = lighthouse_addr.c_str();
    config.hostname = hostname.c_str();
    config.bind = bind.c_str();
    config.store_address = store_addr.c_str();
    config.world_size = world_size;
    config.heartbeat_interval_ns = nanoseconds_of(heartbeat_interval);
    config.connect_timeout_ns = nanoseconds_of(connect_timeout);
    config.quorum_retries = quorum_retries;
    make([&] { return tutti_ft_manager_open(&config, &made); });
    auto server = std::make_unique<ManagerServer>();
    server->server.reset(made);
    server->address = tutti_ft_manager_address(made);
    return server;
}

std::unique_ptr<ManagerClient> manager_client(const std::string &addr, Duration connect_timeout)
{
    tutti_ft_client *made = nullptr;

    make([&] { return tutti_ft_client_open(addr.c_str(), nanoseconds_of(connect_timeout), &made); });
    auto client = std::make_unique<ManagerClient>();
    client->client.reset(made);
    return client;
}

std::optional<int64_t> rank_or_none(uint32_t rank)
{
    return rank == UINT32_MAX ? std::nullopt : std::optional<int64_t>(rank);
}

QuorumResult result_of(const tutti_ft_place &place)
{
    QuorumResult result;

    result.quorum_id = place.quorum_id;
    result.replica_rank = place.replica_rank;
    result.replica_world_size = place.replica_world_size;
    result.recover_src_manager_address = place.source_manager_address;
    result.recover_src_replica_rank = rank_or_none(place.source_rank);
    result.recover_dst_replica_ranks = Numbers(place.targets, place.targets + place.n_targets);
    result.store_address = place.store_address;
    result.max_step = place.max_step;
    result.max_replica_rank = rank_or_none(place.max_replica_rank);
    result.max_world_size = place.max_world_size;
    result.heal = place.heal;
    result.commit_failures = place.commit_failures;
    result.replica_ids = Texts(place.replica_ids, place.replica_ids + place.n_replicas);
    result.recover_src_manager_addresses = Texts(place.sources, place.sources + place.n_sources);
    result.offers = place.offers;
    if (place.handles) result.reconfigure_handles = Texts(place.handles, place.handles + place.replica_world_size);
    return result;
}

QuorumResult manager_quorum(ManagerClient &self, uint32_t group_rank, int64_t step,
                            const std::string &checkpoint_metadata, bool shrink_only, Duration timeout,
                            int64_t commit_failures, const std::string &reconfigure_handle, bool init_sync)
{
    tutti_ft_request request{};
    tutti_ft_place *read = nullptr;

    request.group_rank = group_rank;
    request.step = step;
    request.checkpoint_metadata = checkpoint_metadata.c_str();
    request.shrink_only = shrink_only;
    request.init_sync = init_sync;
    request.commit_failures = commit_failures;
    request.reconfigure_handle = reconfigure_handle.c_str();
    without_gil([&] { return tutti_ft_client_quorum(self.client.get(), &request, nanoseconds_of(timeout), &read); });
    const std::unique_ptr<tutti_ft_place, decltype(&tutti_ft_place_free)> owned(read, tutti_ft_place_free);
    return result_of(*read);
}

std::string manager_metadata(ManagerClient &self, uint32_t rank, Duration timeout)
{
    char *read = nullptr;

    without_gil(
        [&] { return tutti_ft_client_checkpoint_metadata(self.client.get(), rank, nanoseconds_of(timeout), &read); });
    const std::unique_ptr<char, decltype(&free)> owned(read, free);
    return read;
}

bool manager_should_commit(ManagerClient &self, uint32_t group_rank, int64_t step, bool should_commit, Duration timeout)
{
    bool commit = false;

    without_gil([&] {
        return tutti_ft_client_should_commit(self.client.get(), group_rank, step, should_commit,
                                             nanoseconds_of(timeout), &commit);
    });
    return commit;
}

void define_manager(py::module_ &module)
{
    py::class_<ManagerServer>(module, "ManagerServer")
        .def(py::init(&manager_open), py::arg("replica_id"), py::arg("lighthouse_addr"), py::arg("hostname"),
             py::arg("bind"), py::arg("store_addr"), py::arg("world_size"), py::arg("heartbeat_interval"),
             py::arg("connect_timeout"), py::arg("quorum_retries"))
        .def("address", [](const ManagerServer &self) { return self.address; })
        .def("shutdown", [](ManagerServer &self) { self.server.reset(); });
    py::class_<ManagerClient>(module, "ManagerClient")
        .def(py::init(&manager_client), py::arg("addr"), py::arg("connect_timeout"))
        .def("_quorum", &manager_quorum, py::arg("group_rank"), py::arg("step"), py::arg("checkpoint_metadata"),
             py::arg("shrink_only"), py::arg("timeout"), py::arg("commit_failures"), py::arg("reconfigure_handle") = "",
             py::arg("init_sync") = true)
        .def("_checkpoint_metadata", &manager_metadata, py::arg("rank"), py::arg("timeout"))
        .def("should_commit", &manager_should_commit, py::arg("group_rank"), py::arg("step"), py::arg("should_commit"),
             py::arg("timeout"))
        /* What torchft's has not. */
        .def(
            "progress",
            [](ManagerClient &self, uint32_t group_rank, int64_t step, uint64_t collective) {
                return tutti_ft_client_progress(self.client.get(), group_rank, step, collective) >= 0;
            },
            py::arg("group_rank"), py::arg("step"), py::arg("collective") = 0)
        .def(
            "kill",
            [](ManagerClient &self, const std::string &why, Duration timeout) {
                without_gil(
                    [&] { return tutti_ft_client_kill(self.client.get(), why.c_str(), nanoseconds_of(timeout)); });
            },
            py::arg("why"), py::arg("timeout") = Duration(std::chrono::seconds(5)));
}

} // namespace

void define_ft(py::module_ &module)
{
    define_data(module);
    define_lighthouse(module);
    define_manager(module);
}

} // namespace tutti_torch
