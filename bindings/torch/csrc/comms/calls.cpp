/* SPDX-License-Identifier: BSD-3-Clause */

/* A request on its way to the backend, between the hooks; and its errors in this API's words. */

#include "comms/comms.hpp"
#include "comms/hints.hpp"
#include "comms/quantized.hpp"
#include "work/worker.hpp"

#include <array>
#include <atomic>

namespace tutti_torch
{

static c10::Device place_of_tensors(const Request &request)
{
    const Tensors &tensors = request.outputs.empty() ? request.inputs : request.outputs;
    return tensors.empty() ? c10::Device(c10::kCPU) : tensors[0].device();
}

std::string TorchComm::described() const
{
    std::lock_guard<std::mutex> guard(mutex_);
    return c10::str("rank ", rank_, " of communicator '", name_, "'");
}

void TorchComm::check_peer(const Request &request) const
{
    static constexpr const char *words[] = {"dst", "src", "root"};
    const char *word = words[std::min(size_t(request.name), size_t(2))];
    const int n = size();
    TORCH_CHECK(request.peer >= 0 && request.peer < n, "tutti: ", text_of(request.name), " on ", described(), ": ",
                word, " must be in range [0, ", n, "), but got ", request.peer);
}

void TorchComm::fail_in_words(const char *call, const std::exception &error) const
{
    const auto *known = dynamic_cast<const c10::Error *>(&error);
    const std::string text =
        c10::str(known ? known->what_without_backtrace() : error.what(), " [", call, " on ", described(), "]");
    c10::intrusive_ptr<Backend> backend;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        backend = backend_;
    }
    if (dynamic_cast<const c10::DistError *>(&error) && backend && backend->state() < 0) fate_->failed(text);
    if (dynamic_cast<const c10::OutOfMemoryError *>(&error)) C10_THROW_ERROR(OutOfMemoryError, text);
    if (dynamic_cast<const c10::DistError *>(&error)) C10_THROW_ERROR(DistBackendError, text);
    TORCH_CHECK(false, text);
}

/* What the call's hints say. */
void TorchComm::complete_hints(Request &request) const
{
    if (C10_LIKELY(request.hints.empty())) return;
    const char *name = text_of(request.name);
    check_hints(name, request.hints, with_call);
    request.tag = int(number_hint(name, request.hints, "tag", 0, INT32_MAX, request.tag));
    request.algorithm = hint_of(request.hints, "algorithm");
    request.quantised = quantised_for(request);
}

Call TorchComm::call_of(Request &request)
{
    complete_hints(request);
    if (request.algorithm.empty()) {
        std::lock_guard<std::mutex> guard(mutex_);
        if (C10_UNLIKELY(!algorithms_.empty())) request.algorithm = algorithm_of(algorithms_, request.name);
    }
    return backend()->prepare(std::move(request));
}

c10::Device TorchComm::place_for(const Request &request) const
{
    return request.name == OpName::barrier ? device_ : place_of_tensors(request);
}

/* Calls whose failure somebody wants to hear of although nobody waits for them: they are asked twenty times a second,
 * so that a call costs no more than a line in a list. To ask for its status is what tells of a failure. */
static void follow(const c10::intrusive_ptr<TorchWork> &work)
{
    static auto *const follower = new Worker("tutti-follower", false, milliseconds(50)); /* left, as its thread is */
    follower->push([weak = c10::weak_intrusive_ptr<TorchWork>(work)] {
        const c10::intrusive_ptr<TorchWork> known = weak.lock();
        stay_if_program_ends();
        return !known || known->is_completed();
    });
}

TorchComm::WorkPtr TorchComm::handle_of(Started work, bool async_op, c10::Device place)
{
    if (work && !async_op) { /* a version whose calls are all asynchronous made it */
        work->wait();
        if (place.is_cpu()) work = nullptr;
    }
    if (work) {
        auto made = c10::make_intrusive<TorchWork>(std::move(work), fate_,
                                                   place.is_cpu() ? std::nullopt : std::make_optional(place));
        if (C10_UNLIKELY(made->is_followed()) && !made->is_completed()) follow(made);
        return made;
    }
    if (!place.is_cpu()) return c10::make_intrusive<TorchWork>(current_stream(place));
    return TorchWork::complete();
}

Started TorchComm::start(Request &request)
{
    const bool sparse = request.name == OpName::all_reduce && request.outputs[0].layout() == at::kSparse;
    if (C10_UNLIKELY(sparse)) return backend()->run(std::move(request));
    const c10::intrusive_ptr<Backend> backend = this->backend();
    return backend->submit(call_of(request));
}

TorchComm::WorkPtr TorchComm::run(Request request)
{
    return between_hooks(request, [&]() -> WorkPtr {
        if (request.peer != -1 || is_message(request.name)) check_peer(request);
        if (C10_UNLIKELY(foreign_)) return foreign_->run(request);
        const bool async_op = request.async_op;
        const c10::Device place = place_for(request);
        return in_words(text_of(request.name), [&] { return handle_of(start(request), async_op, place); });
    });
}

TorchComm::WorkPtr TorchComm::run_batch(std::vector<Request> requests, bool async_op, const Hints &hints,
                                        milliseconds timeout)
{
    Request whole{OpName::batch_op_issue};
    whole.parts = std::move(requests);
    whole.async_op = async_op;
    whole.hints = hints;
    whole.timeout = timeout;
    TORCH_CHECK(!whole.parts.empty(), "tutti: batch_op_issue on ", described(), ": the batch is empty");
    return between_hooks(whole, [&]() -> WorkPtr {
        TORCH_CHECK(!foreign_, "tutti: batch_op_issue: backend '", backend_name_, "' has no batches");
        complete_hints(whole);
        for (const Request &part : whole.parts) check_peer(part);
        return in_words("batch_op_issue", [&] {
            const c10::intrusive_ptr<Backend> backend = this->backend();
            const c10::Device place = place_for(whole.parts[0]);
            std::vector<Call> calls;
            for (Request &part : whole.parts) {
                part.async_op = async_op;
                part.tag = whole.tag;
                part.timeout = timeout;
                calls.push_back(backend->prepare(std::move(part)));
            }
            Started work = backend->submit_all(c10d::OpType::COALESCED, "batch_op_issue", std::move(calls));
            return handle_of(std::move(work), async_op, place);
        });
    });
}

/* ---- hooks ---- */

static std::atomic<uint64_t> last_op_id{0};

uint64_t next_op_id()
{
    return last_op_id.fetch_add(1, std::memory_order_relaxed);
}

void reset_op_ids()
{
    last_op_id = 0;
}

RemovableHandle TorchComm::register_pre_hook(PreHook hook)
{
    const uint64_t id = pre_hooks_.add(std::move(hook));
    return RemovableHandle([weak = weak_from_this(), id] {
        if (Ptr self = weak.lock()) self->pre_hooks_.remove(id);
    });
}

RemovableHandle TorchComm::register_post_hook(PostHook hook)
{
    const uint64_t id = post_hooks_.add(std::move(hook));
    return RemovableHandle([weak = weak_from_this(), id] {
        if (Ptr self = weak.lock()) self->post_hooks_.remove(id);
    });
}

RemovableHandle TorchComm::register_abort_hook(Fate::Hook hook)
{
    const uint64_t id = fate_->add(std::move(hook));
    return RemovableHandle([fate = fate_, id] { fate->remove(id); });
}

} // namespace tutti_torch
