/* SPDX-License-Identifier: BSD-3-Clause */

/* Operations on the host: start, wait, and the one end. */

#include "work/host.hpp"

#include "base/process.hpp"
#include "record/recorder.hpp"
#include "work/worker.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <utility>

namespace tutti_torch
{

using std::chrono::duration_cast;
using std::chrono::steady_clock;

/* This thread runs callbacks of futures: until they return, no other notice comes. */
static thread_local bool in_notice = false;

HostOperation::HostOperation(Call what, uint64_t number, GroupName of)
    : Operation(std::move(what), number, std::move(of), State::finished)
{
}

HostOperation::~HostOperation()
{
    tutti_work_free(work_);
}

Operation::Ptr HostOperation::nothing()
{
    Call call{};
    call.type = c10d::OpType::COALESCED;
    call.name = "coalesced";
    auto operation = c10::make_intrusive<HostOperation>(std::move(call), 0, std::make_shared<const std::string>());
    operation->set_state(State::finished);
    return operation;
}

/* ---- the start ---- */

Start HostOperation::start_of(tutti_comm *comm) const
{
    Start start;
    start.comm = comm;
    for (const Tensor &tensor : call.inputs) start.in.push_back(tensor.data_ptr());
    for (const Tensor &tensor : call.outputs) start.out.push_back(tensor.data_ptr());
    start.message = call.message.get();
    return start;
}

/* Attended: attend() waits for it at once. */
tutti_call_options HostOperation::options() const
{
    tutti_call_options options = options_of(call, group->c_str());
    options.attended = !(leader_ ? leader_->call.async : call.async) && state() != State::queued;
    return options;
}

void HostOperation::launch_members(tutti_comm *comm)
{
    std::vector<Start> starts; /* all of them before the group begins: this may throw */
    for (const Ptr &member : members_) starts.push_back(host(member).start_of(comm));
    check(tutti_group_start());
    for (size_t i = 0; i < members_.size(); i++) {
        const tutti_call_options options = host(members_[i]).options();
        starts[i].options = &options;
        (void)members_[i]->call.launch(starts[i]); /* the end of the group tells */
    }
    check(tutti_group_end(&work_));
}

void HostOperation::start(tutti_comm *comm)
{
    if (members_.empty()) {
        const tutti_call_options options = this->options();
        Start start = start_of(comm);
        start.options = &options;
        start.work = &work_;
        check(call.launch(start));
    } else {
        launch_members(comm);
    }
    for (const Ptr &member : members_) {
        Recorder::get().started(member->record_id);
        host(member).set_state(State::started);
    }
    Recorder::get().started(record_id);
    set_state(State::started);
}

void HostOperation::begin(const std::shared_ptr<Comm> &comm, Worker &worker)
{
    span_ = begin_span(call); /* on the caller's thread, which is the one that is profiled */
    if (C10_LIKELY(staged_.empty() && !worker.busy())) return start(comm->handle());
    for (const Ptr &member : members_) host(member).set_state(State::queued);
    set_state(State::queued);
    worker.push([self = c10::intrusive_ptr<HostOperation>::reclaim_copy(this), comm] {
        return self->start_in_turn(comm->handle());
    });
}

/* The device is asked again and again: neither a deadline nor an abort could end a wait inside its driver. */
bool HostOperation::inputs_arrived(tutti_comm *comm)
{
    tutti_error error;
    if (tutti_comm_state(comm, &error) < 0) raise(error);
    auto arrived = [](const auto &staged) { return staged->arrived.query(); };
    const uint64_t limit = call.timeout.count() > 0 ? to_ns(call.timeout) : tutti_comm_timeout(comm);
    try {
        if (std::all_of(staged_.begin(), staged_.end(), arrived)) return true;
        if (steady_clock::now() - *turn_ > std::chrono::nanoseconds(limit))
            C10_THROW_ERROR(DistBackendError,
                            c10::str("tutti: ", call.name, " of group ", *group, " timed out after ", limit / 1'000'000,
                                     " ms: its device has not computed the inputs"));
    } catch (const c10::Error &failed) {
        tutti_comm_abort(comm, failed.what_without_backtrace()); /* the others would wait for this rank's part */
        throw;
    }
    return false;
}

/* By the worker; true when it has started, or failed. */
bool HostOperation::start_in_turn(tutti_comm *comm) noexcept
{
    try {
        if (!turn_) turn_ = steady_clock::now();
        if (!inputs_arrived(comm)) return false;
        start(comm);
    } catch (...) {
        fail(std::current_exception());
        return true;
    }
    {
        std::lock_guard<std::mutex> guard(mutex_); /* nobody is between a look at the state and a wait */
    }
    moved_.notify_all();
    let_go(); /* nobody else may watch it */
    return true;
}

/* When the wait is interrupted, the operation goes on, and somebody has to keep the tensors. */
void HostOperation::attend()
{
    if (call.async) {
        if (span_ || unpacks() || wants_end()) watch();
        return;
    }
    try {
        wait(milliseconds(0));
    } catch (...) {
        let_go();
        throw;
    }
}

/* ---- the end ---- */

void HostOperation::take_apart(tutti_status status)
{
    status_ = status;
    if (status < 0) {
        tutti_error record;
        tutti_work_error(work_, &record);
        error_ = exception_of(record);
        return;
    }
    if (!call.unpack) return;
    auto any_inference = [](const Tensors &tensors) {
        return std::any_of(tensors.begin(), tensors.end(), [](const Tensor &tensor) { return tensor.is_inference(); });
    };
    try {
        at::AutoDispatchBelowAutograd guard;
        /* Tensors that were made in inference mode can be written in it alone, and this may be any thread. */
        c10::InferenceMode mode(any_inference(call.outputs) || any_inference(call.results));
        call.unpack();
    } catch (...) {
        error_ = std::current_exception();
    }
}

/* The results, and then the state, of this and its members; false when another thread did it. */
bool HostOperation::finish_once(tutti_status status)
{
    std::lock_guard<std::mutex> guard(mutex_);
    if (finished()) return false;
    if (leader_) {
        status_ = host(leader_).status_;
        error_ = host(leader_).error_;
    }
    if (!leader_ || status_ == TUTTI_OK) take_apart(status);
    for (const Ptr &member : members_) {
        host(member).finish_once(status);
        if (!error_) error_ = host(member).error_;
    }
    conclude();
    return true;
}

void HostOperation::finish(tutti_status status)
{
    if (status == TUTTI_OK && call.first) call.first();
    if (!finish_once(status)) return;
    for (const Ptr &member : std::exchange(members_, {})) host(member).announce();
    announce();
}

bool HostOperation::test()
{
    if (finished()) return true;
    if (state() != State::started) return false;
    if (leader_) return leader_->test() && (finish(host(leader_).status_), true);
    const tutti_status status = tutti_work_test(work_);
    if (status == TUTTI_PENDING) return false;
    finish(status);
    return true;
}

void HostOperation::await_end(milliseconds timeout)
{
    const bool forever = timeout.count() <= 0;
    const auto until = moment_in(timeout);
    while (!finished()) {
        const auto rest = duration_cast<milliseconds>(until - steady_clock::now());
        const milliseconds slice = forever ? signals_every : std::clamp(rest, milliseconds(1), signals_every);
        if (state() == State::queued) {
            std::unique_lock<std::mutex> lock(mutex_);
            moved_.wait_for(lock, slice, [this] { return state() != State::queued; });
        } else {
            const tutti_status status = tutti_work_wait(work_, to_ns(slice));
            if (!in_notice) stay_if_program_ends();
            if (status != TUTTI_PENDING) return finish(status);
        }
        check_signals();
        if (!forever && steady_clock::now() >= until && !finished()) give_up(timeout);
    }
}

void HostOperation::wait(milliseconds timeout)
{
    const WithoutGil without_gil; /* callbacks of futures need it, and are waited for */
    /* Inside a coalesced region the call has not begun: the region's own Work is what one waits for. */
    if (state() == State::waiting) return;
    if (leader_) {
        leader_->wait(timeout);
        finish(host(leader_).status_);
    } else {
        await_end(timeout);
    }
    await_settling();
    if (error_) std::rethrow_exception(error_);
    for (const auto &staged : staged_) staged->block_current_stream();
}

float HostOperation::duration_ms() const
{
    if (leader_) return leader_->duration_ms();
    return finished() && work_ ? float(double(tutti_work_duration_ns(work_)) * 1e-6) : 0.0F;
}

/* ---- notices ---- */

void HostOperation::on_notice(void *self)
{
    auto operation = c10::intrusive_ptr<HostOperation>::reclaim(static_cast<HostOperation *>(self));
    const bool outer = std::exchange(in_notice, true);
    operation->test();
    in_notice = outer;
}

/* A callback may start a call and wait for that one's future (PowerSGD's hook does), whose notice would come after the
 * callback: the future that it gets is complete already. An error is the future's. */
void HostOperation::before_future()
{
    if (!in_notice) return;
    try {
        wait(milliseconds(0));
    } catch (...) {
    }
}

void HostOperation::watch()
{
    if (state() != State::started) return; /* a worker watches what it starts */
    if (leader_) return leader_->watch();
    if (watched_.exchange(true)) return;
    auto self = c10::intrusive_ptr<HostOperation>::reclaim_copy(this);
    check(tutti_work_notify(work_, on_notice, self.get()));
    self.release(); /* on_notice takes it back */
}

/* The library borrows the tensors until the end: somebody has to keep them until then. */
void HostOperation::let_go() noexcept
try {
    watch();
} catch (const std::exception &error) {
    TORCH_WARN("tutti: ", call.name, " can not be watched, its memory is lost: ", error.what());
    c10::intrusive_ptr<HostOperation>::reclaim_copy(this).release(); /* better than written to after it was freed */
}

} // namespace tutti_torch
