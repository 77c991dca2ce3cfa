/* SPDX-License-Identifier: BSD-3-Clause */

/* Calls on the host's memory that block: no handle of them is made, so nothing that serves one is either. Most
 * synchronous calls are such. */

#include "backend/backend.hpp"
#include "base/errors.hpp"
#include "record/recorder.hpp"

#include <ATen/record_function.h>

#include <algorithm>

namespace tutti_torch
{

/* The wait was interrupted: the library borrows the tensors until the call has
 * ended. */
static void keep_until_end(tutti_work *work, const Call &call)
{
    auto kept = std::make_unique<std::pair<Tensors, Tensors>>(call.inputs, call.outputs);
    auto let_go = [](void *pair) { delete static_cast<std::pair<Tensors, Tensors> *>(pair); };
    if (tutti_work_notify(work, let_go, kept.get()) < 0)
        TORCH_WARN("tutti: ", call.name, " can not be watched, its memory is lost: ", tutti_last_error()->text);
    (void)kept.release();
}

static tutti_status await_at_once(tutti_work *work, const Call &call)
{
    const WithoutGil without_gil;
    try {
        for (;;) {
            const tutti_status status = tutti_work_wait(work, to_ns(signals_every));
            if (C10_LIKELY(status != TUTTI_PENDING)) return status;
            stay_if_program_ends();
            check_signals();
        }
    } catch (...) {
        keep_until_end(work, call);
        tutti_work_free(work);
        throw;
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
    const tutti_status status = await_at_once(work, call);
    tutti_error error;
    if (C10_UNLIKELY(status < 0)) tutti_work_error(work, &error);
    tutti_work_free(work);
    if (C10_LIKELY(status >= 0)) return Recorder::get().completed(id), true;
    Recorder::get().failed(id);
    if (recorded && tutti_status_scope(status) >= TUTTI_SCOPE_PEER) Recorder::get().dump_on_error(*recorded);
    raise(error);
}

} // namespace tutti_torch
