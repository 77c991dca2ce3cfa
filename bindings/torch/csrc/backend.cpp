/* SPDX-License-Identifier: BSD-3-Clause */

/* The backend's life: creation, the one way a call starts, and the end. */

#include "backend.hpp"

#include "errors.hpp"
#include "work.hpp"

namespace tutti_torch
{

using OperationPtr = c10::intrusive_ptr<Operation>;

Backend::Options::Options(milliseconds timeout) : c10d::Backend::Options("tutti", timeout) {}

c10::intrusive_ptr<c10d::Backend::Options> Backend::Options::clone() const
{
    return c10::make_intrusive<Options>(*this);
}

Backend::Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, c10::intrusive_ptr<Options> options,
                 std::shared_ptr<Comm> comm)
    : c10d::Backend(rank, size), store_(std::move(store)), options_(std::move(options)), comm_(std::move(comm)),
      group_(std::make_shared<const std::string>())
{
    init();
}

c10::intrusive_ptr<Backend> Backend::create(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                                            c10::intrusive_ptr<Options> options)
{
    TORCH_CHECK_VALUE(rank >= 0 && rank < size, "tutti: rank ", rank, " is not in a group of ", size);
    std::shared_ptr<Comm> comm = Comm::create(*store, rank, size, "torch", options->timeout);
    return c10::make_intrusive<Backend>(store, rank, size, std::move(options), std::move(comm));
}

Backend::~Backend() = default;

c10::intrusive_ptr<c10d::Backend::Options> Backend::getBackendOptions()
{
    return options_;
}

std::shared_ptr<Comm> Backend::comm() const
{
    std::lock_guard<std::mutex> guard(mutex_);
    return comm_;
}

Comm &Backend::live() const
{
    if (C10_UNLIKELY(!comm_))
        C10_THROW_ERROR(DistBackendError, c10::str("tutti: the process group", *group_, " was destroyed"));
    return *comm_;
}

void Backend::setTimeout(milliseconds timeout)
{
    std::lock_guard<std::mutex> guard(mutex_);
    options_->timeout = timeout;
    if (comm_) tutti_comm_set_timeout(comm_->handle(), to_ns(timeout));
}

void Backend::setGroupUid(const std::string &uid)
{
    pg_uid_ = uid;
    std::lock_guard<std::mutex> guard(mutex_);
    group_ = std::make_shared<const std::string>(uid);
}

uint64_t Backend::getSequenceNumberForGroup()
{
    std::lock_guard<std::mutex> guard(mutex_);
    return seq_;
}

/* ---- how a call starts ---- */

OperationPtr Backend::make_operation(Call call)
{
    live();
    uint64_t seq = call.is_p2p() || coalescing_ > 0 ? seq_ : ++seq_;
    auto operation = c10::make_intrusive<Operation>(std::move(call), seq, group_);
    operation->timed = timed_.load(std::memory_order_relaxed);
    return operation;
}

void Backend::watch_for_hook(Operation &operation)
{
    if (!hasHooks()) return;
    {
        std::lock_guard<std::mutex> guard(pending_mutex_);
        n_hooked_++;
    }
    auto self = c10::intrusive_ptr<Backend>::unsafe_reclaim_from_nonowning(this);
    operation.finished_hook = [self](Operation &done) {
        using Time = decltype(c10d::WorkInfo::timeStarted);
        auto now = std::chrono::steady_clock::now();
        auto wall = Time::clock::now();
        auto started = wall - std::chrono::duration_cast<typename Time::duration>(now - done.created);
        self->onCompletionHook_(std::make_shared<c10d::WorkInfo>(
            done.call.type, done.seq, started, wall, std::chrono::duration<float>(done.duration_ms() * 1e-3F)));
        std::lock_guard<std::mutex> guard(self->pending_mutex_);
        if (--self->n_hooked_ == 0) self->pending_none_.notify_all();
    };
    operation.watch();
}

Backend::WorkPtr Backend::hand_out(const OperationPtr &operation)
{
    watch_for_hook(*operation);
    if (!operation->call.async)
        operation->wait(milliseconds(0));
    else if (operation->call.unpack || operation->is_profiled())
        operation->watch();
    if (!operation->call.async && sync_returns_none) return nullptr;
    return c10::make_intrusive<Work>(operation, rank_);
}

Backend::WorkPtr Backend::completed_work() const
{
    return c10::make_intrusive<Work>(Operation::nothing(), rank_);
}

Backend::WorkPtr Backend::submit(Call call)
{
    std::unique_lock<std::mutex> guard(mutex_);
    OperationPtr operation = make_operation(std::move(call));
    if (coalescing_ > 0) {
        coalesced_.push_back(operation);
        return c10::make_intrusive<Work>(operation, rank_);
    }
    operation->start(live().handle());
    guard.unlock();
    return hand_out(operation);
}

/* ---- several calls as one ---- */

/* `head` says what the group is called; its tensors are those of the members. Releases the guard before it waits. */
Backend::WorkPtr Backend::start_group(std::unique_lock<std::mutex> &guard, Call head, std::vector<OperationPtr> members)
{
    bool p2p = true;
    for (const OperationPtr &member : members) {
        const Call &part = member->call;
        head.inputs.insert(head.inputs.end(), part.inputs.begin(), part.inputs.end());
        head.outputs.insert(head.outputs.end(), part.outputs.begin(), part.outputs.end());
        head.results.insert(head.results.end(), member->results().begin(), member->results().end());
        if (part.unpack) head.unpack = [] {}; /* the members' own; hand_out has to know that there is some */
        p2p = p2p && part.is_p2p();
    }
    if (!p2p) seq_++;
    OperationPtr group = c10::make_intrusive<Operation>(std::move(head), seq_, group_);
    group->timed = timed_.load(std::memory_order_relaxed);
    try {
        group->start_group(live().handle(), members);
    } catch (...) {
        for (const OperationPtr &member : members) member->fail(std::current_exception());
        throw;
    }
    guard.unlock();
    return hand_out(group);
}

Backend::WorkPtr Backend::submit_all(c10d::OpType type, const char *name, std::vector<Call> calls)
{
    TORCH_CHECK_VALUE(!calls.empty(), "tutti: ", name, ": the list of tensors is empty");
    if (calls.size() == 1) return submit(std::move(calls[0]));
    std::unique_lock<std::mutex> guard(mutex_);
    Call head{};
    head.type = type;
    head.name = name;
    head.async = calls[0].async;
    bool coalescing = coalescing_ > 0;
    std::vector<OperationPtr> members;
    coalescing_++; /* one number for all of them */
    for (Call &call : calls) members.push_back(make_operation(std::move(call)));
    coalescing_--;
    if (!coalescing) return start_group(guard, std::move(head), std::move(members));
    coalesced_.insert(coalesced_.end(), members.begin(), members.end());
    return c10::make_intrusive<Work>(members.back(), rank_);
}

bool Backend::is_coalescing() const
{
    std::lock_guard<std::mutex> guard(mutex_);
    return coalescing_ > 0;
}

void Backend::startCoalescing()
{
    std::lock_guard<std::mutex> guard(mutex_);
    coalescing_++;
}

Backend::WorkPtr Backend::endCoalescing()
{
    std::unique_lock<std::mutex> guard(mutex_);
    TORCH_CHECK(coalescing_ > 0, "tutti: end of a coalesced region that never began");
    if (--coalescing_ > 0) return nullptr;
    std::vector<OperationPtr> members = std::move(coalesced_);
    coalesced_.clear();
    if (members.empty()) return completed_work();
    Call head{};
    head.type = c10d::OpType::COALESCED;
    head.name = "coalesced";
    return start_group(guard, std::move(head), std::move(members));
}

/* ---- hooks ---- */

void Backend::registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)> &&hook)
{
    TORCH_CHECK(!onCompletionHook_, "tutti: this group has a completion hook already");
    onCompletionHook_ = std::move(hook);
}

void Backend::waitForPendingWorks()
{
    std::unique_lock<std::mutex> guard(pending_mutex_);
    while (!pending_none_.wait_for(guard, milliseconds(50), [this] { return n_hooked_ == 0; })) {
        guard.unlock();
        check_signals();
        guard.lock();
    }
}

/* ---- errors, the end ---- */

void Backend::abort()
{
    std::shared_ptr<Comm> comm = this->comm();
    if (comm) tutti_comm_abort(comm->handle(), c10::str("rank ", rank_, " aborted the process group").c_str());
}

void Backend::shutdown()
{
    std::shared_ptr<Comm> comm;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        comm.swap(comm_);
        coalesced_.clear();
    }
}

#if TUTTI_TORCH_AT_LEAST(2, 7)
c10d::ErrorType Backend::getError()
{
    std::shared_ptr<Comm> comm = this->comm();
    tutti_status status = comm ? tutti_comm_state(comm->handle(), nullptr) : TUTTI_OK;
    switch (status) {
    case TUTTI_OK:
        return c10d::ErrorType::SUCCESS;
    case TUTTI_ERR_TIMEOUT:
        return c10d::ErrorType::TIMEOUT;
    case TUTTI_ERR_PEER_DEAD:
    case TUTTI_ERR_PEER_LEFT:
        return c10d::ErrorType::REMOTE_ERROR;
    default:
        return c10d::ErrorType::COMM_ERROR;
    }
}
#endif

} // namespace tutti_torch
