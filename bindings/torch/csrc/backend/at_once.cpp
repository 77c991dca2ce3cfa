/* SPDX-License-Identifier: BSD-3-Clause */

/* Calls on the host's memory that block: nobody gets a handle, so nothing that serves one is made. Most synchronous
 * calls are such. */

#include "backend/backend.hpp"
#include "base/process.hpp"
#include "record/recorder.hpp"

#include <ATen/record_function.h>

#include <algorithm>

namespace tutti_torch
{

/* A call whose wait was interrupted: the library borrows the tensors until the call has ended, and its end is recorded.
 */
struct Interrupted {
    Tensors inputs, outputs;
    std::shared_ptr<RecordedGroup> recorded;
    uint64_t record_id;
    tutti_work *work;
};

static void record_end(uint64_t id, tutti_status status, const std::shared_ptr<RecordedGroup> &group)
{
    if (C10_LIKELY(status >= 0)) return Recorder::get().completed(id);
    Recorder::get().failed(id);
    if (group && tutti_status_scope(status) >= TUTTI_SCOPE_PEER) Recorder::get().dump_on_error(*group);
}

static void end_interrupted(void *self)
{
    const std::unique_ptr<Interrupted> call(static_cast<Interrupted *>(self));
    record_end(call->record_id, tutti_work_test(call->work), call->recorded);
    tutti_work_free(call->work);
}

/* Without memory for a notice the wait goes on: the tensors can not be let go. */
static void leave_interrupted(std::unique_ptr<Interrupted> call)
{
    if (tutti_work_notify(call->work, end_interrupted, call.get()) >= 0) {
        (void)call.release();
        return;
    }
    while (tutti_work_wait(call->work, to_ns(signals_every)) == TUTTI_PENDING) stay_if_program_ends();
    end_interrupted(call.release());
}

static tutti_status await_at_once(tutti_work *work)
{
    const WithoutGil without_gil;
    for (;;) {
        const tutti_status status = tutti_work_wait(work, to_ns(signals_every));
        if (C10_LIKELY(status != TUTTI_PENDING)) return status;
        stay_if_program_ends();
        check_signals();
    }
}

static bool are_on_host(const Tensors &tensors)
{
    return std::all_of(tensors.begin(), tensors.end(), [](const Tensor &tensor) { return tensor.device().is_cpu(); });
}

/* On the host alone; nobody profiles, and nothing is to be done when it has ended. */
static bool is_plain(const Call &call)
{
    if (!are_on_host(call.inputs) || !are_on_host(call.outputs) || (call.device && !call.device->is_cpu()))
        return false;
    return !call.unpack && !call.first && !call.message && !call.factor.defined() && !at::hasCallbacks();
}

bool Backend::at_once(const Call &call)
{
    if (!is_plain(call) || hasHooks()) return false;
    std::unique_lock<std::mutex> guard(mutex_);
    if (coalescing_ > 0 || worker_.busy()) return false;
    const std::shared_ptr<Comm> comm = live();
    const Operation::GroupName label = group_;
    const uint64_t seq = seq_ + (call.counted && !call.is_p2p() ? 1 : 0);
    const uint64_t id = call.recorded ? note(call, seq, true) : 0;
    const std::shared_ptr<RecordedGroup> recorded = recorded_;
    tutti_call_options options = options_of(call, label->c_str());
    options.attended = true;
    tutti_work *work = nullptr;
    Start start;
    start.comm = comm->handle();
    for (const Tensor &tensor : call.inputs) start.in.push_back(tensor.data_ptr());
    for (const Tensor &tensor : call.outputs) start.out.push_back(tensor.data_ptr());
    start.options = &options;
    start.work = &work;
    if (call.launch(start) < 0) {
        const tutti_error error = *tutti_last_error();
        Recorder::get().failed(id, true);
        raise(error);
    }
    seq_ = seq;
    guard.unlock();
    tutti_status status = TUTTI_OK;
    try {
        status = await_at_once(work);
    } catch (...) {
        leave_interrupted(std::unique_ptr<Interrupted>(new Interrupted{call.inputs, call.outputs, recorded, id, work}));
        throw;
    }
    tutti_error error;
    if (C10_UNLIKELY(status < 0)) tutti_work_error(work, &error);
    tutti_work_free(work);
    record_end(id, status, recorded);
    if (C10_LIKELY(status >= 0)) return true;
    raise(error);
}

} // namespace tutti_torch
