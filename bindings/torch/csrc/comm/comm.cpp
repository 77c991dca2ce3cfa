/* SPDX-License-Identifier: BSD-3-Clause */

/* Contexts and communicators: making them, and letting go of them in a process that may be interrupted, fork or hold
 * the GIL. */

#include "comm/comm.hpp"

#include "base/process.hpp"
#include "comm/store.hpp"

#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti_torch
{

/* The context of this place in the process; made by the first group, gone with the last. A child that was forked makes
 * its own: it has the parent's handles, but neither its threads nor a seat, and leaves them alone. */
static std::shared_ptr<tutti_context> context_of(const Place &place)
{
    struct Known {
        std::weak_ptr<tutti_context> context;
        Origin origin;
    };
    static std::mutex lock;
    static std::map<Place, Known> all;

    std::lock_guard<std::mutex> guard(lock);
    Known &known = all[place];
    std::shared_ptr<tutti_context> context = known.context.lock();
    if (context && known.origin.is_here()) return context;
    std::vector<tutti_option> options;
    for (const auto &[name, value] : place.options) options.push_back({name.c_str(), value.c_str()});
    if (place.seat >= 0) options.push_back({"survives", "1"}); /* its process goes on after failures */
    tutti_context *made = nullptr;
    check(tutti_context_create(options.data(), options.size(), &made));
    known.origin = Origin();
    context.reset(made, [here = known.origin](tutti_context *handle) {
        if (here.is_here()) tutti_context_destroy(handle);
    });
    known.context = context;
    return context;
}

Comm::Comm(std::shared_ptr<tutti_context> context, tutti_comm *handle) : context_(std::move(context)), handle_(handle)
{
}

std::shared_ptr<Comm> Comm::adopt(const Comm &parent, tutti_comm *handle)
{
    return std::shared_ptr<Comm>(new Comm(parent.context_, handle));
}

/* Polls a communicator that is being made, so that signals are seen, and that it was given up. */
static tutti_status until_ready(tutti_comm *comm, tutti_error *error)
{
    auto pause = std::chrono::microseconds(20);
    auto looked = std::chrono::steady_clock::now();
    for (;;) {
        tutti_status status = tutti_comm_state(comm, error);
        if (status != TUTTI_PENDING) return status;
        if (UntilGivenUp::is_given_up()) C10_THROW_ERROR(DistBackendError, "tutti: the creation was given up");
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::microseconds(1000));
        auto now = std::chrono::steady_clock::now();
        if (now - looked < signals_every) continue;
        looked = now;
        check_signals();
    }
}

/* What the store threw is said behind what it kept the library from. */
static tutti_error with_reason(tutti_error error, const std::string &why)
{
    const size_t n = std::strlen(error.text);
    if (!why.empty()) std::snprintf(error.text + n, sizeof error.text - n, " (%s)", why.c_str());
    return error;
}

std::shared_ptr<Comm> Comm::create(c10d::Store &store, int rank, int size, const std::string &name,
                                   milliseconds timeout, const Place &place)
{
    std::shared_ptr<tutti_context> context = context_of(place);
    StoreTable table(store);
    tutti_store over = table.table();
    tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    config.rank = rank;
    config.n_ranks = size;
    config.store = &over;
    config.name = name.c_str();
    config.timeout_ns = to_ns(timeout);
    config.survive = place.survive;
    config.nonblocking = !place.survive; /* one that survives is made by a call that blocks */
    config.device = TUTTI_DEVICE_NONE; /* DeviceComm has devices */

    tutti_comm *handle = nullptr;
    check(tutti_comm_create(context.get(), &config, &handle));
    tutti_error error;
    try {
        /* The others may have begun, and failed, before this rank looked: that is an error of their calls. */
        if (until_ready(handle, &error) != TUTTI_OK && tutti_comm_id(handle) == 0)
            raise(with_reason(error, table.why()));
    } catch (...) {
        tutti_comm_abort(handle, "the creation was given up");
        tutti_comm_destroy(handle);
        throw;
    }
    return std::shared_ptr<Comm>(new Comm(std::move(context), handle));
}

void Comm::drain(const std::function<bool(milliseconds)> &more, bool failing)
{
    constexpr milliseconds slice(50);
    bool ended = false;
    patience_.shorten(failing);
    while (!more(slice) || tutti_comm_flush(handle_, to_ns(slice)) == TUTTI_PENDING) {
        if (ended) continue; /* what was aborted ends by itself */
        const char *why = patience_.lost();
        ended = why != nullptr;
        if (ended) tutti_comm_abort(handle_, why);
        try {
            check_signals();
        } catch (...) {
            tutti_comm_abort(handle_, "it was interrupted while it destroyed the group");
            throw;
        }
    }
}

/* The threads that end here may need the GIL before they do. */
Comm::~Comm()
{
    if (!origin_.is_here()) return;
    const WithoutGil without_gil;
    tutti_comm_destroy(handle_);
    context_.reset();
}

} // namespace tutti_torch
