/* SPDX-License-Identifier: BSD-3-Clause */

/* The backend's life: creation, the one way a call starts, and the end. */

#include "backend/backend.hpp"

#include "base/process.hpp"
#include "record/recorder.hpp"
#include "work/device.hpp"
#include "work/host.hpp"

#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <utility>

namespace tutti_torch
{

Backend::Options::Options(milliseconds timeout, const std::string &name) : c10d::Backend::Options(name, timeout) {}

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
    TUTTI_CHECK_VALUE(rank >= 0 && rank < size, "rank ", rank, " is not in a group of ", size);
    std::shared_ptr<Comm> comm = Comm::create(*store, rank, size, "torch", options->timeout, options->place);
    return end_with_program(c10::make_intrusive<Backend>(store, rank, size, std::move(options), std::move(comm)));
}

Backend::~Backend()
{
    try {
        shutdown();
    } catch (pybind11::error_already_set &) {
        PyErr_SetInterrupt(); /* a destructor can not throw it: whoever runs Python next sees it */
    } catch (const std::exception &error) {
        TORCH_WARN("tutti: the process group '", *group_, "' did not end well: ", error.what());
    }
}

/* A copy: splitGroup writes the child's timeout and name into what it gets. */
c10::intrusive_ptr<c10d::Backend::Options> Backend::getBackendOptions()
{
    return options_->clone();
}

std::vector<std::shared_ptr<Comm>> Backend::comms() const
{
    std::vector<std::shared_ptr<Comm>> found;
    std::lock_guard<std::mutex> guard(mutex_);
    if (comm_) found.push_back(comm_);
    for (const auto &[key, device] : devices_)
        if (std::shared_ptr<Comm> comm = device ? device->comm() : nullptr) found.push_back(std::move(comm));
    return found;
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
    {
        std::lock_guard<std::mutex> guard(mutex_);
        options_->timeout = timeout;
    }
    for (const auto &comm : comms()) tutti_comm_set_timeout(comm->handle(), to_ns(timeout));
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

Operation::Ptr Backend::make_operation(Call call, const Device &device, bool is_member)
{
    live();
    const bool counts = call.counted && !call.is_p2p() && !is_member;
    const uint64_t seq = seq_ + (counts ? 1 : 0); /* taken when it has begun */
    Operation::Ptr operation;
    if (device)
        operation = c10::make_intrusive<DeviceOperation>(std::move(call), seq, group_, device);
    else
        operation = c10::make_intrusive<HostOperation>(std::move(call), seq, group_);
    operation->timed = timed_.load(std::memory_order_relaxed);
    return operation;
}

void Backend::note(Operation &operation)
{
    if (!operation.call.recorded) return;
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
        recorded_->dumped = !options_->dumps && !dump_is_asked_for();
        serve_dump_pipe(recorded_->ranks.at(size_t(rank_)));
    }
    const bool region = coalescing_ > 0, p2p = call.is_p2p();
    if (p2p && !region) p2p_seq_++;
    const uint64_t seq = region && !p2p ? seq_ + 1 : number;
    const uint64_t p2p_seq = p2p_seq_ + (region && p2p ? 1 : 0);
    const milliseconds timeout = call.timeout.count() > 0 ? call.timeout : options_->timeout;
    describe_call(call, p2p ? p2p_seq : seq, *recorded_);
    return Recorder::get().record(recorded_, call, seq, p2p_seq, timeout, begun);
}

void Backend::hook(Operation &operation)
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
        auto begun = wall - std::chrono::duration_cast<typename Time::duration>(now - done.created);
        try {
            self->onCompletionHook_(std::make_shared<c10d::WorkInfo>(
                done.call.type, done.seq, begun, wall, std::chrono::duration<float>(done.duration_ms() * 1e-3F)));
        } catch (const std::exception &e) { /* nobody is there to catch it */
            TORCH_WARN("tutti: the completion hook of group '", *self->group_, "' failed: ", e.what());
        }
        std::lock_guard<std::mutex> guard(self->pending_mutex_);
        if (--self->n_hooked_ == 0) self->pending_none_.notify_all();
    };
}

/* It did not begin: nobody is told of its end. */
void Backend::unhook(Operation &operation)
{
    if (!std::exchange(operation.finished_hook, nullptr)) return;
    std::lock_guard<std::mutex> guard(pending_mutex_);
    if (--n_hooked_ == 0) pending_none_.notify_all();
}

void Backend::remember_unpacking(const Operation::Ptr &operation)
{
    if (C10_LIKELY(!operation->call.async || !operation->unpacks())) return;
    auto over = [](const c10::weak_intrusive_ptr<Operation> &weak) {
        Operation::Ptr known = weak.lock();
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
            if (Operation::Ptr operation = weak.lock()) operation->test();
    };
}

Backend::WorkPtr Backend::begin(std::unique_lock<std::mutex> &guard, const Operation::Ptr &operation)
{
    note(*operation);
    hook(*operation); /* its end may come before begin returns */
    try {
        operation->begin(live(), worker_);
    } catch (...) {
        unhook(*operation);
        operation->fail(std::current_exception());
        throw;
    }
    remember_unpacking(operation);
    seq_ = operation->seq;
    guard.unlock();
    operation->attend();
    if (!operation->call.async && sync_returns_none) return nullptr;
    return c10::make_intrusive<Work>(operation, rank_);
}

Backend::WorkPtr Backend::completed_work() const
{
    return c10::make_intrusive<Work>(HostOperation::nothing(), rank_);
}

bool Backend::leaves_nothing(const Call &call) const
{
    return sync_returns_none && !call.async && coalescing_ == 0 && call.type != c10d::OpType::BARRIER && !hasHooks();
}

/* What is left of a synchronous call on a device when all that serves its handle is taken away. Most calls are such. */
void Backend::leave_nothing(DeviceComm &device, const Call &call)
{
    const uint64_t seq = seq_ + (call.counted && !call.is_p2p() ? 1 : 0);
    const uint64_t record_id = call.recorded ? note(call, seq, true) : 0;
    const auto span = begin_span(call);
    try {
        enqueue_and_forget(device, call, record_id, group_);
    } catch (...) {
        Recorder::get().failed(record_id, true);
        throw;
    }
    seq_ = seq;
}

Call Backend::prepare(Request &&request)
{
    Call call = call_of(std::move(request), seat());
    if (C10_LIKELY(call.type != c10d::OpType::BARRIER)) return call;
    if (!mixed_) call.device = own_device_;
    call.first = finish_unpacking();
    return call;
}

Backend::WorkPtr Backend::submit(Call call)
{
    if (const char *asked_by = numbers_checked_by_.load(std::memory_order_relaxed); C10_UNLIKELY(asked_by))
        check_numbers(call, asked_by);
    std::unique_lock<std::mutex> guard(mutex_, std::defer_lock);
    const Device device = device_of_call(call, guard);
    if (!device) {
        if (sync_returns_none && !call.async && at_once(call)) return nullptr;
        stage(call);
        guard.lock();
    } else {
        if (call.type == c10d::OpType::BARRIER) call.inputs = call.outputs = {device->one()};
        if (leaves_nothing(call)) {
            leave_nothing(*device, call);
            return nullptr;
        }
    }
    if (C10_LIKELY(coalescing_ == 0)) return begin(guard, make_operation(std::move(call), device));
    std::vector<Call> calls;
    calls.push_back(std::move(call));
    return join_region(device, std::move(calls));
}

/* ---- several calls as one ---- */

/* `head` says what the group is called. The recorder and the profilers are shown the members' tensors. */
Backend::WorkPtr Backend::begin_group(std::unique_lock<std::mutex> &guard, Call head, const Device &device,
                                      std::vector<Operation::Ptr> members)
{
    auto append = [](Tensors &to, const Tensors &from) { to.insert(to.end(), from.begin(), from.end()); };
    head.async = head.counted = false;
    head.timeout = members[0]->call.timeout;
    for (const Operation::Ptr &member : members) {
        const Call &part = member->call;
        append(head.inputs, part.inputs);
        append(head.outputs, part.outputs);
        append(head.results, part.shown());
        if (part.first) head.first = part.first;
        head.async = head.async || part.async;
        head.counted = head.counted || !part.is_p2p();
    }
    if (!head.counted) p2p_seq_++;
    Operation::Ptr group = make_operation(std::move(head), device);
    group->lead(std::move(members));
    return begin(guard, group);
}

Backend::WorkPtr Backend::join_region(const Device &device, std::vector<Call> calls)
{
    TORCH_CHECK_VALUE(region_.calls.empty() || region_.device == device, "tutti: ", calls[0].name,
                      ": the calls of a coalesced region are on tensors of one device, or of the host");
    region_.device = device;
    if (device) {
        const c10::Stream stream = current_stream(device->device);
        auto &known = region_.streams;
        if (std::find(known.begin(), known.end(), stream) == known.end()) known.push_back(stream);
    }
    for (Call &call : calls) {
        region_.calls.push_back(make_operation(std::move(call), device, true));
        note(*region_.calls.back());
    }
    return c10::make_intrusive<Work>(region_.calls.back(), rank_);
}

Backend::WorkPtr Backend::submit_all(c10d::OpType type, const char *name, std::vector<Call> calls)
{
    TORCH_CHECK_VALUE(!calls.empty(), "tutti: ", name, ": the list of tensors is empty");
    if (calls.size() == 1) return submit(std::move(calls[0]));
    if (const char *asked_by = numbers_checked_by_.load(std::memory_order_relaxed); C10_UNLIKELY(asked_by))
        for (const Call &call : calls) check_numbers(call, asked_by);
    std::unique_lock<std::mutex> guard(mutex_, std::defer_lock);
    const Device device = device_of_call(calls[0], guard);
    for (Call &call : calls) {
        if (!device)
            stage(call);
        else
            TORCH_CHECK_VALUE(device_of(call) == device->device, "tutti: ", name, ": tensors on different devices, ",
                              device->device, " and ", device_of(call).value_or(c10::Device(c10::kCPU)));
    }
    if (!device) guard.lock();
    if (coalescing_ > 0) return join_region(device, std::move(calls));
    Call head{};
    head.type = type;
    head.name = name;
    std::vector<Operation::Ptr> members;
    for (Call &call : calls) members.push_back(make_operation(std::move(call), device, true));
    return begin_group(guard, std::move(head), device, std::move(members));
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
    Region region = std::exchange(region_, {});
    if (region.calls.empty()) return completed_work();
    Call head{};
    head.type = c10d::OpType::COALESCED;
    head.name = "coalesced";
    auto is_async = [](const Operation::Ptr &member) { return member->call.async; };
    if (region.device)
        region.device->follow(region.streams, std::any_of(region.calls.begin(), region.calls.end(), is_async));
    return begin_group(guard, std::move(head), region.device, std::move(region.calls));
}

void Backend::drop_coalescing()
{
    Region region;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        coalescing_ = 0;
        std::swap(region, region_);
    }
    const std::string why = c10::str("tutti: not started: an error left the coalesced region of group '", *group_, "'");
    auto error = std::make_exception_ptr(C10_BUILD_ERROR(DistBackendError, why));
    for (const Operation::Ptr &call : region.calls) call->fail(error);
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
    const std::string why = c10::str("rank ", rank_, " aborted the process group");
    for (const auto &comm : comms()) tutti_comm_abort(comm->handle(), why.c_str());
}

/* What is queued starts first. */
void Backend::shutdown()
{
    if (!origin_.is_here()) return;
    const WithoutGil without_gil;
    const std::vector<std::shared_ptr<Comm>> open = comms();
    std::shared_ptr<Comm> comm;
    decltype(devices_) devices;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        comm.swap(comm_);
        devices.swap(devices_);
        region_ = {};
    }
    if (!comm) return;
    const bool failing = handles_exception(); /* the others may never come */
    try {
        comm->drain([this](milliseconds slice) { return worker_.drained_within(slice); }, failing);
        for (const auto &[key, device] : devices)
            if (device) device->close(failing);
    } catch (...) {
        for (const auto &one : open)
            tutti_comm_abort(one->handle(), "its group was destroyed, and that was interrupted");
        throw;
    }
}

tutti_status Backend::state() const
{
    tutti_status status = TUTTI_OK;
    for (const auto &comm : comms())
        if (status >= TUTTI_OK) status = tutti_comm_state(comm->handle(), nullptr);
    return status;
}

std::string Backend::failure() const
{
    tutti_error error = {};
    for (const auto &comm : comms())
        if (tutti_comm_state(comm->handle(), &error) < TUTTI_OK) return error.text;
    return "";
}

std::vector<int> Backend::contributors(const WorkPtr &work) const
{
    const auto *own = dynamic_cast<const Work *>(work.get());
    TUTTI_CHECK_VALUE(!work || (own && own->handle()), "contributors: this is no call of tutti on the host's memory");
    std::vector<int32_t> ranks(static_cast<size_t>(size_));
    size_t n = 0;
    check(
        tutti_work_contributors(own ? own->handle() : nullptr, host_comm()->handle(), ranks.data(), ranks.size(), &n));
    return {ranks.begin(), ranks.begin() + ptrdiff_t(n)};
}

std::shared_ptr<Comm> Backend::host_comm() const
{
    std::lock_guard<std::mutex> guard(mutex_);
    return live();
}

bool Backend::flush_within(milliseconds time, const char *why_not_longer)
{
    const auto until = moment_in(time);
    bool all = worker_.drained_within(time);
    for (const auto &comm : comms()) {
        const auto rest = std::chrono::duration_cast<milliseconds>(until - std::chrono::steady_clock::now());
        all = tutti_comm_flush(comm->handle(), to_ns(std::max(rest, milliseconds(1)))) != TUTTI_PENDING && all;
    }
    if (!all)
        for (const auto &comm : comms()) tutti_comm_abort(comm->handle(), why_not_longer);
    return all;
}

#if TUTTI_TORCH_AT_LEAST(2, 7)
c10d::ErrorType Backend::getError()
{
    switch (state()) {
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
