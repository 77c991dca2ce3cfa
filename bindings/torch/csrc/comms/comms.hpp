/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Room comms: torchcomms' API in C++, over the backend: communicators that are objects, without a default group. Uses
 * all other rooms but python, which binds it. Begin here. A call is a Request (tensors/request.hpp): TorchComm::run
 * shows it to the hooks (hooks.hpp) and hands it to the backend.
 *
 * A communicator of torchcomms' API: one name, one device, an ordered set of ranks. It owns a Backend, which carries
 * the calls out, and replaces it when it is reconfigured. All methods may be called from any thread; calls of one
 * communicator are made in the same order on all ranks. Errors are c10::Errors (RuntimeError in Python), and name the
 * rank, the communicator and the argument. */

#include "backend/backend.hpp"
#include "comms/hooks.hpp"
#include "comms/torch_work.hpp"
#include "tensors/request.hpp"

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tutti_torch
{

using StorePtr = c10::intrusive_ptr<c10d::Store>;
using InitHandle = std::string;
using Started = c10::intrusive_ptr<c10d::Work>; /* null: it is complete, or on its stream */

struct CommOptions {
    CommOptions(); /* as the environment says: TORCHCOMM_ABORT_ON_ERROR, TORCHCOMM_TIMEOUT_SECONDS */

    bool abort_process_on_timeout_or_error;
    const char *abort_asked_by = "TORCHCOMM_ABORT_ON_ERROR=1";
    milliseconds timeout;
    bool is_high_priority_stream = false;
    StorePtr store; /* null: from the environment */
    std::string name;
    bool enable_reconfigure = false;
    Hints hints;
};

struct ReconfigureOptions {
    int64_t uuid = 0;
    std::vector<InitHandle> handles; /* rank r is handles[r] ... */
    bool ordered = true;             /* ... or this is a set, and ranks are in the order of the sorted handles */
    std::optional<milliseconds> timeout;
    Hints hints;
};

/* A backend that is not this library's, such as one that a program wrote in Python. */
class ForeignBackend
{
  public:
    virtual ~ForeignBackend() = default;
    virtual c10::intrusive_ptr<TorchWork> run(const Request &request) = 0;
    /* Null: this rank is in none. */
    virtual std::shared_ptr<ForeignBackend> split(const std::vector<int> &ranks, const std::string &name,
                                                  const CommOptions &options) = 0;
    virtual void finalize() = 0;
    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual void set_timeout(milliseconds timeout) = 0;
};
/* By the name that new_comm is given. Names of this library's can not be taken. */
using ForeignFactory = std::function<std::shared_ptr<ForeignBackend>(c10::Device device, const std::string &name,
                                                                     const CommOptions &options)>;
void register_backend(const std::string &name, ForeignFactory factory);
bool is_backend_registered(const std::string &name);
std::vector<std::string> registered_backends();
/* That of this process's newest communicator, as each time it is asked for memory. */
std::shared_ptr<c10::Allocator> mem_allocator_of(const std::string &backend);
/* "tutti", and "tutti:" with each way that can be forced here. */
std::vector<std::string> built_backends();

class Persistent;

class TorchComm : public std::enable_shared_from_this<TorchComm>
{
  public:
    using Ptr = std::shared_ptr<TorchComm>;
    using WorkPtr = c10::intrusive_ptr<TorchWork>;
    struct Made; /* what a communicator is made of (below) */

    /* Collective over all ranks of the environment, or of the hints "rank" and "size". With enable_reconfigure it has
     * no members, and returns at once. */
    static Ptr create(const std::string &backend, c10::Device device, const std::string &name, CommOptions options);
    static Ptr newest(); /* the newest of this process that is not finalized; null: none is there */
    explicit TorchComm(Made made);
    ~TorchComm(); /* warns when it was not finalized */
    TorchComm(const TorchComm &) = delete;
    TorchComm &operator=(const TorchComm &) = delete;

    /* ---- calls ---- */
    WorkPtr run(Request request);
    /* One after the other in the order of the requests, which are sends and receives; they begin together. */
    WorkPtr run_batch(std::vector<Request> requests, bool async_op, const Hints &hints, milliseconds timeout);
    /* Collective over the ranks that it names. [] gives null. */
    Ptr split(const std::vector<int> &ranks, const std::string &name, CommOptions options);
    /* The call is recorded once, and started again and again (persistent.hpp); on devices it is kept, and made anew. */
    std::shared_ptr<Persistent> persist(Request request);

    /* ---- who it is ---- */
    int rank() const; /* -1 before the first reconfigure */
    int size() const;
    std::vector<int> ranks() const; /* as the communicator it was first split from counts */
    const std::string &name() const { return name_; }
    const c10::Device &device() const { return device_; }
    const std::string &backend_name() const { return backend_name_; }
    const char *backend_version() const;
    CommOptions options() const;
    /* A c10d::Backend of the same ranks; waits for a reconfiguration that is under way. Throws after finalize. */
    c10::intrusive_ptr<Backend> backend() const;
    const std::shared_ptr<ForeignBackend> &foreign() const { return foreign_; }
    std::shared_ptr<c10::Allocator> mem_allocator();

    /* ---- settings ---- */
    void set_timeout(milliseconds timeout);
    void set_hints(const Hints &hints); /* an unknown one is an error, which names the nearest that is known */
    void tensor_register(const Tensor &tensor);
    void tensor_deregister(const Tensor &tensor);

    /* ---- ends, and new beginnings ---- */
    void finalize();
    bool is_finalized() const;
    bool is_abort_supported() const { return !foreign_; }
    void abort();            /* ends a reconfiguration that is under way, too */
    bool is_aborted() const; /* or failed otherwise: calls return errors */
    InitHandle init_handle();
    /* Collective over the owners of the handles. Returns at once; calls that follow wait for it. */
    WorkPtr reconfigure(ReconfigureOptions options);

    /* ---- hooks ---- */
    bool has_hooks() const { return pre_hooks_.any() || post_hooks_.any(); } /* then run() lets go of the GIL itself */
    RemovableHandle register_pre_hook(PreHook hook);
    RemovableHandle register_post_hook(PostHook hook);
    RemovableHandle register_abort_hook(Fate::Hook hook);

    /* ---- for windows and persistent calls ---- */
    const std::shared_ptr<Fate> &fate() const { return fate_; }
    std::string described() const; /* "rank 1 of communicator 'x'" */
    /* Runs `body` between the hooks of a call, with its errors in this API's words. */
    template <typename Body> auto between_hooks(const Request &request, Body body);
    template <typename Body> auto in_words(const char *call, Body body) const;

    /* RuntimeError unless its root, source or destination is a rank. */
    void check_peer(const Request &request) const;
    /* Completes the request by the hints, and makes the backend's call of it. */
    Call call_of(Request &request);
    WorkPtr handle_of(Started work, bool async_op, c10::Device place);
    c10::Device place_for(const Request &request) const; /* the one whose stream the call follows; the host */

  private:
    friend struct Made;
    Started start(Request &request);
    void complete_hints(Request &request) const;
    [[noreturn]] void fail_in_words(const char *call, const std::exception &error) const;
    static Ptr born(Made made);
    Ptr child(const std::vector<int> &ranks, const std::string &name, CommOptions options);
    void deregister_all();
    struct Change; /* a reconfiguration: reconfigure.cpp */
    std::unique_lock<std::mutex> settled() const;
    std::shared_ptr<Change> begin_change(int64_t uuid);
    c10::intrusive_ptr<Backend> new_members(const ReconfigureOptions &options, size_t place, Change &change);
    bool end_change(const std::shared_ptr<Change> &change, c10::intrusive_ptr<Backend> made);

    const std::string backend_name_, name_;
    const c10::Device device_;
    const std::shared_ptr<ForeignBackend> foreign_;
    const std::shared_ptr<Fate> fate_;
    const Place place_;
    Hooks<PreHook> pre_hooks_;
    Hooks<PostHook> post_hooks_;

    mutable std::mutex mutex_; /* below */
    CommOptions options_;
    c10::intrusive_ptr<Backend> backend_; /* null before the first reconfigure, and after finalize */
    std::vector<int> ranks_;
    int rank_ = -1, size_ = -1;
    bool finalized_ = false;
    std::string algorithms_;  /* as a hint says */
    std::set<int64_t> uuids_; /* the reconfigurations' so far */
    StorePtr own_store_;      /* where others meet this rank; serves from the first init_handle on */
    InitHandle init_handle_;
    std::shared_ptr<Change> change_; /* under way, and whoever needs the members waits; null: none is */
    struct Registered {
        Tensor tensor;
        std::shared_ptr<Comm> comm;
        tutti_mem *memory;
    };
    std::vector<Registered> registered_;
    std::atomic<bool> aborted_{false}; /* by this rank, since it has these members */
};

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

/* ---- what is around each call ---- */

inline Outcome outcome_of(OpName name, const TorchComm::WorkPtr &work)
{
    return {name, work};
}

inline Outcome outcome_of(OpName name, const TorchComm::Ptr &comm)
{
    return {name, {}, comm};
}

inline Outcome outcome_of(OpName name, const std::shared_ptr<TorchCommWindow> &window)
{
    return {name, {}, {}, window};
}

template <typename Body> auto TorchComm::between_hooks(const Request &request, Body body)
{
    if (C10_LIKELY(!pre_hooks_.any() && !post_hooks_.any())) return body();
    const uint64_t op_id = next_op_id();
    pre_hooks_.tell(op_id, request);
    auto made = [&] {
        const WithoutGil without_gil; /* hooks of Python would have to take it twice more */
        return body();
    }();
    post_hooks_.tell(op_id, outcome_of(request.name, made));
    return made;
}

template <typename Body> auto TorchComm::in_words(const char *call, Body body) const
{
    try {
        return body();
    } catch (const c10::Error &error) {
        fail_in_words(call, error);
    }
}

} // namespace tutti_torch
