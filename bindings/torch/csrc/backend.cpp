/* SPDX-License-Identifier: BSD-3-Clause */

/* The backend's life: creation, the one way a call starts, and the end. */

#include "backend.hpp"

#include "errors.hpp"
#include "profile.hpp"
#include "recorder.hpp"
#include "work.hpp"

#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <optional>
#include <utility>

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
    return end_with_program(c10::make_intrusive<Backend>(store, rank, size, std::move(options), std::move(comm)));
}

Backend::~Backend()
{
    try {
        shutdown();
    } catch (pybind11::error_already_set &) {
        PyErr_SetInterrupt(); /* a destructor can not throw it: whoever runs Python next sees it */
    }
}

/* A copy: splitGroup writes the child's timeout and name into what it gets. */
c10::intrusive_ptr<c10d::Backend::Options> Backend::getBackendOptions()
{
    return options_->clone();
}

std::shared_ptr<Comm> Backend::comm() const
{
    std::lock_guard<std::mutex> guard(mutex_);
    return comm_;
}

const std::shared_ptr<Comm> &Backend::live() const
{
    if (C10_UNLIKELY(!origin_.is_here()))
        C10_THROW_ERROR(DistBackendError,
                        "tutti: this process was forked by the one that the process group belongs to; "
                        "it can make its own, not use the parent's");
    if (C10_UNLIKELY(!comm_))
        C10_THROW_ERROR(DistBackendError, c10::str("tutti: the process group '", *group_, "' was destroyed"));
    return comm_;
}

void Backend::setTimeout(milliseconds timeout)
{
    std::lock_guard<std::mutex> guard(mutex_);
    options_->timeout = timeout;
    if (comm_) tutti_comm_set_timeout(comm_->handle(), to_ns(timeout));
    for (const auto &[key, channel] : channels_)
        if (channel) channel->set_timeout(timeout);
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
    const bool counts = call.counted && !call.is_p2p() && coalescing_ == 0;
    const uint64_t seq = seq_ + (counts ? 1 : 0); /* taken when it has begun */
    auto operation = c10::make_intrusive<Operation>(std::move(call), seq, group_);
    operation->timed = timed_.load(std::memory_order_relaxed);
    return operation;
}

void Backend::note(Operation &operation)
{
    operation.record_id = note(operation.call, operation.seq);
    operation.recorded = recorded_;
}

/* The calls of a coalesced region have the number of the region, which is the next one. */
uint64_t Backend::note(const Call &call, uint64_t number, bool begun)
{
    if (!recorded_) {
        std::vector<uint64_t> ranks;
#if TUTTI_TORCH_AT_LEAST(2, 9)
        ranks = options_->global_ranks_in_group;
#endif
        for (uint64_t r = 0; ranks.size() < size_t(size_); r++) ranks.push_back(r);
        recorded_ = Recorder::get().add_group(*group_, getGroupDesc(), std::move(ranks), rank_);
    }
    const bool region = coalescing_ > 0, p2p = call.is_p2p();
    if (p2p && !region) p2p_seq_++;
    const uint64_t seq = region && !p2p ? seq_ + 1 : number;
    const uint64_t p2p_seq = p2p_seq_ + (region && p2p ? 1 : 0);
    const milliseconds timeout = call.timeout.count() > 0 ? call.timeout : options_->timeout;
    describe_call(call, p2p ? p2p_seq : seq, *recorded_);
    return Recorder::get().record(recorded_, call, seq, p2p_seq, timeout, begun);
}

template <typename Started> void Backend::hook(Started &started)
{
    if (!hasHooks()) return;
    {
        std::lock_guard<std::mutex> guard(pending_mutex_);
        n_hooked_++;
    }
    auto self = c10::intrusive_ptr<Backend>::unsafe_reclaim_from_nonowning(this);
    started.finished_hook = [self](Started &done) {
        using Time = decltype(c10d::WorkInfo::timeStarted);
        auto now = std::chrono::steady_clock::now();
        auto wall = Time::clock::now();
        auto begun = wall - std::chrono::duration_cast<typename Time::duration>(now - done.created);
        try {
            self->onCompletionHook_(std::make_shared<c10d::WorkInfo>(
                done.kind(), done.seq, begun, wall, std::chrono::duration<float>(done.duration_ms() * 1e-3F)));
        } catch (const std::exception &e) { /* nobody is there to catch it */
            TORCH_WARN("tutti: the completion hook of group '", *self->group_, "' failed: ", e.what());
        }
        std::lock_guard<std::mutex> guard(self->pending_mutex_);
        if (--self->n_hooked_ == 0) self->pending_none_.notify_all();
    };
}

template void Backend::hook(Enqueued &);

void Backend::remember_unpacking(const OperationPtr &operation)
{
    if (C10_LIKELY(!operation->call.async || !operation->call.unpack)) return;
    auto over = [](const c10::weak_intrusive_ptr<Operation> &weak) {
        OperationPtr known = weak.lock();
        return !known || known->finished();
    };
    unpacking_.erase(std::remove_if(unpacking_.begin(), unpacking_.end(), over), unpacking_.end());
    unpacking_.emplace_back(operation);
}

/* For a barrier: when it is complete, so are the calls before it, but for what nobody has unpacked. */
std::function<void()> Backend::finish_unpacking()
{
    std::lock_guard<std::mutex> guard(mutex_);
    if (unpacking_.empty()) return {};
    return [calls = std::exchange(unpacking_, {})] {
        for (const auto &weak : calls)
            if (OperationPtr operation = weak.lock()) operation->test();
    };
}

void Backend::begin(const OperationPtr &operation)
{
    note(*operation);
    remember_unpacking(operation);
    if (C10_LIKELY(!operation->on_device() && !lane_.busy())) {
        operation->start(live()->handle());
        return hook(*operation);
    }
    hook(*operation); /* its end may come before this returns */
    operation->queue();
    try {
        lane_.push(operation, live());
    } catch (...) {
        operation->fail(std::current_exception());
        throw;
    }
}

/* The operation goes on when the wait is interrupted, so that somebody has to keep the tensors. */
static void complete(const OperationPtr &operation)
{
    try {
        operation->wait(milliseconds(0));
    } catch (...) {
        operation->watch_or_leak();
        throw;
    }
}

Backend::WorkPtr Backend::hand_out(const OperationPtr &operation)
{
    if (!operation->call.async)
        complete(operation);
    else if (operation->call.unpack || operation->is_profiled() || operation->finished_hook)
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
    std::unique_lock<std::mutex> guard(mutex_, std::defer_lock);
    if (std::shared_ptr<Channel> channel = channel_of(call, guard)) return enqueue(guard, channel, std::move(call));
    call.twins = Twins::of(staging_, call);
    guard.lock();
    OperationPtr operation = make_operation(std::move(call));
    if (coalescing_ > 0) {
        check_region(operation->call.name);
        note(*operation);
        coalesced_.push_back(operation);
        return c10::make_intrusive<Work>(operation, rank_);
    }
    begin(operation);
    seq_ = operation->seq;
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
        /* The members' own; hand_out has to know that somebody has to see the end. */
        if (part.unpack || member->has_futures()) head.unpack = [] {};
        if (part.first) head.first = part.first;
        p2p = p2p && part.is_p2p();
    }
    OperationPtr group = c10::make_intrusive<Operation>(std::move(head), seq_ + (p2p ? 0 : 1), group_);
    group->timed = timed_.load(std::memory_order_relaxed);
    group->lead(std::move(members));
    if (p2p) p2p_seq_++;
    try {
        begin(group);
    } catch (...) {
        group->fail(std::current_exception());
        throw;
    }
    seq_ = group->seq;
    guard.unlock();
    return hand_out(group);
}

Backend::WorkPtr Backend::submit_all(c10d::OpType type, const char *name, std::vector<Call> calls)
{
    TORCH_CHECK_VALUE(!calls.empty(), "tutti: ", name, ": the list of tensors is empty");
    if (calls.size() == 1) return submit(std::move(calls[0]));
    std::unique_lock<std::mutex> guard(mutex_, std::defer_lock);
    if (std::shared_ptr<Channel> channel = channel_of(calls[0], guard))
        return enqueue_all(guard, channel, type, name, std::move(calls));
    for (Call &call : calls) call.twins = Twins::of(staging_, call);
    guard.lock();
    Call head{};
    head.type = type;
    head.name = name;
    head.async = calls[0].async;
    bool coalescing = coalescing_ > 0;
    std::vector<OperationPtr> members;
    live();        /* throws, if at all, before the count is raised */
    coalescing_++; /* one number for all of them */
    for (Call &call : calls) members.push_back(make_operation(std::move(call)));
    coalescing_--;
    if (!coalescing) return start_group(guard, std::move(head), std::move(members));
    check_region(name);
    for (const OperationPtr &member : members) note(*member);
    coalesced_.insert(coalesced_.end(), members.begin(), members.end());
    return c10::make_intrusive<Work>(members.back(), rank_);
}

void Backend::check_region(const char *name) const
{
    TORCH_CHECK_VALUE(!region_.channel, "tutti: ", name,
                      ": the calls of a coalesced region are on tensors of one device, or of the host");
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
    if (region_.channel) return end_region(guard);
    std::vector<OperationPtr> members = std::move(coalesced_);
    coalesced_.clear();
    if (members.empty()) return completed_work();
    Call head{};
    head.type = c10d::OpType::COALESCED;
    head.name = "coalesced";
    return start_group(guard, std::move(head), std::move(members));
}

void Backend::drop_coalescing()
{
    std::vector<OperationPtr> members;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        coalescing_ = 0;
        members.swap(coalesced_);
    }
    const std::string why = c10::str("tutti: not started: an error left the coalesced region of group '", *group_, "'");
    auto error = std::make_exception_ptr(C10_BUILD_ERROR(DistBackendError, why));
    for (const OperationPtr &member : members) member->fail(error);
    fail_region(error);
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
    const std::string why = c10::str("rank ", rank_, " aborted the process group");
    if (comm) tutti_comm_abort(comm->handle(), why.c_str());
    for (const auto &channel : channels()) channel->abort(why.c_str());
}

/* What is queued starts first. */
void Backend::shutdown()
{
    if (!origin_.is_here()) return;
    std::optional<pybind11::gil_scoped_release> release;
    if (holds_gil()) release.emplace();
    std::shared_ptr<Comm> comm;
    std::vector<std::shared_ptr<Channel>> open = channels();
    {
        std::lock_guard<std::mutex> guard(mutex_);
        comm.swap(comm_);
        coalesced_.clear();
        channels_.clear();
        region_ = {};
    }
    if (!comm) return;
    const bool failing = handles_exception(); /* the others may never come */
    try {
        comm->drain([this](milliseconds slice) { return lane_.drained_within(slice); }, failing);
        for (const auto &channel : open) channel->close(failing);
    } catch (...) {
        for (const auto &channel : open) channel->abort("its group was destroyed, and that was interrupted");
        throw;
    }
}

#if TUTTI_TORCH_AT_LEAST(2, 7)
c10d::ErrorType Backend::getError()
{
    std::shared_ptr<Comm> comm = this->comm();
    tutti_status status = comm ? tutti_comm_state(comm->handle(), nullptr) : TUTTI_OK;
    for (const auto &channel : channels())
        if (status >= TUTTI_OK) status = channel->state();
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
