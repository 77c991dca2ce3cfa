/* SPDX-License-Identifier: BSD-3-Clause */

/* Operations on native devices: start, and what is left to do for those who wait. */

#include "work/device.hpp"

#include "base/native.hpp"
#include "base/process.hpp"
#include "record/recorder.hpp"
#include "work/worker.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

namespace tutti_torch
{

using std::chrono::steady_clock;

DeviceOperation::DeviceOperation(Call what, uint64_t number, GroupName of, std::shared_ptr<DeviceComm> comm)
    : Operation(std::move(what), number, std::move(of), State::started), comm_(std::move(comm)),
      barrier_(call.type == c10d::OpType::BARRIER)
{
    if (call.results.empty()) call.results = call.outputs; /* they stay when the tensors are let go */
}

/* Nobody has waited for an asynchronous operation whose tensors are still here. */
DeviceOperation::~DeviceOperation()
{
    if (call.async && !kept_.empty()) tell_allocator();
    if (end_ && !begin_ && !captured_) comm_->events.give(std::move(*end_));
}

/* ---- the start ---- */

static tutti_status launch_one(DeviceComm &comm, const Call &call, const Operation::GroupName &group, void *native)
{
    tutti_call_options options = options_of(call, comm.label(group));
    options.stream = native;
    options.overlap = call.async;
    Start start = comm.start_of(call);
    start.options = &options;
    return call.launch(start);
}

void DeviceOperation::launch(void *native)
{
    if (members_.empty()) return check(launch_one(*comm_, call, group, native));
    check(tutti_group_start());
    for (const Ptr &member : members_) (void)launch_one(*comm_, member->call, group, native); /* the end tells */
    check(tutti_group_end(nullptr));
}

/* Calls in a graph run again and again, or never: the recorder does not wait for them. */
static void tell_recorder(uint64_t id, DeviceComm &comm, const c10::Stream &stream, bool captured)
{
    if (id == 0) return;
    if (captured)
        Recorder::get().failed(id);
    else
        comm.progress.add(id, stream);
}

/* Copies to the user's tensors, behind the operation; then the calls have no tensors any more but the results. */
void DeviceOperation::unpack()
{
    std::vector<Call *> calls;
    if (members_.empty()) calls.push_back(&call);
    for (const Ptr &member : members_) calls.push_back(&member->call);
    if (call.async)
        for (const Call *each : calls)
            for (const Tensors *list : {&each->inputs, &each->outputs, &each->results})
                kept_.insert(kept_.end(), list->begin(), list->end());
    std::optional<c10::StreamGuard> on;
    at::AutoDispatchBelowAutograd below;
    for (Call *each : calls) {
        if (each->unpack && !on && *stream_ != *caller_) on.emplace(*stream_);
        if (each->unpack) std::exchange(each->unpack, nullptr)();
        each->inputs.clear();
        each->outputs.clear();
    }
}

void DeviceOperation::started_with(const DeviceOperation &leader)
{
    caller_ = leader.caller_;
    stream_ = leader.stream_;
    captured_ = leader.captured_;
    Recorder::get().started(record_id);
    set_state(State::started);
}

void DeviceOperation::begin(const std::shared_ptr<Comm> &, Worker &)
{
    const auto span = begin_span(call); /* until it is enqueued */
    caller_ = current_stream(comm_->device);
    stream_ = call.async ? comm_->stream : *caller_;
    captured_ = is_captured(*caller_);
    const bool has_end = call.async || barrier_;
    if (call.async) comm_->follow(*caller_, true);
    if (timed && !captured_ && has_end) {
        begin_.emplace(comm_->device.type(), c10::EventFlag::BACKEND_DEFAULT);
        begin_->record(*stream_);
    }
    launch(native_stream(*stream_)); /* from here on the device uses the tensors */
    Recorder::get().started(record_id);
    for (const Ptr &member : members_) {
        record_ids_.push_back(member->record_id); /* first, for they are older: Progress wants them in order */
        device(member).started_with(*this);
    }
    record_ids_.push_back(record_id);
    set_state(State::started);
    unpack();
    if (has_end) {
        if (begin_)
            end_.emplace(comm_->device.type(), c10::EventFlag::BACKEND_DEFAULT);
        else
            end_.emplace(comm_->events.take());
        end_->record(*stream_);
    }
    for (uint64_t id : record_ids_) tell_recorder(id, *comm_, *stream_, captured_);
}

void DeviceOperation::attend()
{
    for (const Ptr &member : std::exchange(members_, {})) {
        device(member).settle_promises(false); /* callbacks may call the group */
        member->watch();
    }
    watch();
    if (!barrier_ || call.async) return;
    wait(milliseconds(0));
    if (call.first) call.first();
}

void enqueue_and_forget(DeviceComm &comm, const Call &call, uint64_t record_id, const Operation::GroupName &group)
{
    const c10::Stream stream = current_stream(comm.device);
    const bool captured = record_id != 0 && is_captured(stream);
    check(launch_one(comm, call, group, native_stream(stream)));
    if (call.unpack) {
        at::AutoDispatchBelowAutograd below;
        call.unpack();
    }
    tell_recorder(record_id, comm, stream, captured);
}

/* ---- waiting ---- */

Tensors DeviceOperation::take_kept()
{
    std::lock_guard<std::mutex> guard(mutex_);
    return std::exchange(kept_, {});
}

void DeviceOperation::tell_allocator() noexcept
try {
    for (const Tensor &tensor : take_kept()) record_on_stream(tensor, *stream_);
} catch (const std::exception &error) {
    TORCH_WARN("tutti: the memory of ", call.name, " may be used again too early: ", error.what());
}

bool DeviceOperation::is_over() const
{
    if (leader_) return device(leader_).is_over();
    BesideCaptures beside;
    return end_ ? end_->query() : c10::impl::VirtualGuardImpl(stream_->device_type()).queryStream(*stream_);
}

/* The communicator ended with an error, from now on also this operation's. */
bool DeviceOperation::has_failed()
{
    if (finished()) return error() != nullptr;
    tutti_error found;
    const std::shared_ptr<Comm> comm = comm_->comm();
    if (C10_LIKELY(!comm || tutti_comm_state(comm->handle(), &found) >= 0)) return false;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        if (finished()) return error_ != nullptr;
        error_ = exception_of(found);
        status_ = found.status;
        set_state(State::finished);
    }
    for (uint64_t id : record_ids_) Recorder::get().failed(id);
    if (recorded && tutti_status_scope(found.status) >= TUTTI_SCOPE_PEER) Recorder::get().dump_on_error(*recorded);
    return true;
}

bool DeviceOperation::test()
{
    if (state() == State::waiting) return false;
    TORCH_CHECK(!captured_, "tutti: ", call.name, " is part of a graph: whether it is complete can not be asked");
    return has_failed() || finished() || is_over();
}

/* As PyTorch's backend for NCCL: waits for the host, too, where the environment says so. */
static bool waits_block()
{
    static const char *const value = std::getenv("TORCH_NCCL_BLOCKING_WAIT");
    static const bool blocking = value && (std::strcmp(value, "1") == 0 || std::strcmp(value, "true") == 0);
    return blocking;
}

void DeviceOperation::await(milliseconds limit)
{
    const WithoutGil without_gil;
    const auto begin = steady_clock::now(), until = moment_in(limit);
    auto looked = begin;
    auto pause = std::chrono::microseconds(1);
    while (!is_over() && !has_failed()) {
        const auto now = steady_clock::now();
        if (limit.count() > 0 && now >= until) give_up(limit);
        if (now - looked > signals_every) {
            stay_if_program_ends();
            check_signals();
            looked = now;
        }
        if (now - begin < std::chrono::microseconds(50)) continue; /* most are over by then */
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::microseconds(200));
    }
}

/* A wait on the stream of the call is ordered behind its end, as the tensors' memory is; after one on another stream
 * the allocator has to be told. */
void DeviceOperation::wait(milliseconds limit)
{
    if (leader_ && state() != State::waiting && !(finished() && error())) return leader_->wait(limit);
    if (state() == State::started || end_) {
        const c10::Stream current = current_stream(comm_->device);
        if (call.async) {
            end_->block(current);
            if (current != *caller_)
                tell_allocator();
            else
                take_kept();
        }
        if (captured_) return;
        if (limit.count() > 0 || barrier_ || waits_block()) await(limit);
        has_failed();
    } /* else a coalesced region's own Work is what one waits for */
    if (std::exception_ptr failed = error()) std::rethrow_exception(failed);
}

float DeviceOperation::duration_ms() const
{
    if (leader_) return leader_->duration_ms();
    return begin_ && end_ ? float(begin_->elapsedTime(*end_)) : 0.0F;
}

/* In the stream's order: callbacks of futures run at once, on streams behind the call. */
std::vector<c10::Stream> DeviceOperation::streams() const
{
    return {stream_.value_or(comm_->stream)};
}

/* ---- those who want to hear of the end: hooks, and futures of the outcome ---- */

/* By the watcher. An operation whose device does not answer any more has ended, too. */
bool DeviceOperation::look_in_turn() noexcept
{
    BesideCaptures beside;
    try {
        if (!test()) return false;
    } catch (const std::exception &) {
    }
    stay_if_program_ends();
    has_failed();
    {
        std::lock_guard<std::mutex> guard(mutex_);
        set_state(State::finished);
    }
    announce();
    return true;
}

void DeviceOperation::watch()
{
    static auto *const watcher = new Worker("tutti-watcher", false); /* left: calls end while the process does */
    if (captured_ || state() != State::started || !wants_end() || watched_.exchange(true)) return;
    watcher->push([self = c10::intrusive_ptr<DeviceOperation>::reclaim_copy(this)] { return self->look_in_turn(); });
}

} // namespace tutti_torch
