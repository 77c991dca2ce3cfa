/* SPDX-License-Identifier: BSD-3-Clause */

/* The flight recorder: from requests to entries of a Recorder, and from those to files. */

#include "hooks/hooks.hpp"

#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/control_plane/Handlers.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace tutti_torch
{
namespace
{

bool fr_flag(const char *name)
{
    const char *value = std::getenv(name);
    return value && std::strchr("1tTyY", value[0]) && value[0];
}

long fr_number(const char *name, long otherwise)
{
    const char *value = std::getenv(name);
    return value ? std::atol(value) : otherwise;
}

std::shared_ptr<Recorder> new_recorder(size_t max_entries)
{
    return std::make_shared<Recorder>(max_entries, false, fr_flag("TORCHCOMM_FR_CPP_STACK"));
}

/* Left: calls end while the process does. */
std::shared_ptr<Recorder> *process_recorder;
std::atomic<int> process_rank{-1};

std::string fr_path(int rank)
{
    const char *given = std::getenv("TORCHCOMM_FR_DUMP_TEMP_FILE");
    if (given && fr_flag("TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME")) return given;
    return c10::str(given ? given : default_trace_prefix("comm_lib_trace_rank_"), rank);
}

std::string write_dump(Recorder &recorder, int rank, bool only_active)
{
    const std::string path = fr_path(rank);
    TORCH_CHECK(write_whole(path, recorder.dump(only_active)), "tutti: the last calls of rank ", rank,
                " can not be written to ", path);
    return path;
}

/* What PyTorch's debug server may ask of a process: the recorder of the process, as JSON or in a file. */
void answer_json(const c10d::control_plane::Request &request, c10d::control_plane::Response &response)
{
    bool only_active = false;
    for (const auto &[name, value] : request.params()) {
        if ((name != "onlyactive" && name != "includecollectives") || (value != "true" && value != "false")) {
            response.setStatus(400);
            response.setContent("onlyactive and includecollectives are true or false", "text/plain");
            return;
        }
        if (name == "onlyactive") only_active = value == "true";
    }
    response.setStatus(200);
    response.setContent((*process_recorder)->dump_json(only_active), "application/json");
}

void answer_file(const c10d::control_plane::Request &, c10d::control_plane::Response &response)
{
    const int rank = process_rank;
    response.setStatus(rank < 0 ? 503 : 200);
    if (rank < 0)
        response.setContent("no communicator is registered with the flight recorder", "text/plain");
    else
        response.setContent(write_dump(**process_recorder, rank, false), "text/plain");
}

std::shared_ptr<Recorder> recorder_of_process(size_t max_entries)
{
    static std::once_flag once;
    std::call_once(once, [max_entries] {
        const long given = fr_number("TORCHCOMM_FR_BUFFER_SIZE", long(max_entries));
        process_recorder = new std::shared_ptr<Recorder>(new_recorder(size_t(std::max(0L, given))));
        try {
            c10d::control_plane::registerHandler("torchcomms_fr_trace_json", answer_json);
            c10d::control_plane::registerHandler("torchcomms_fr_dump_file", answer_file);
        } catch (const std::exception &) {
            /* torchcomms itself is in this process, and answers */
        }
    });
    return *process_recorder;
}

/* fr_trace compares what goes in with what comes out: a list is one tensor for it. */
RecordedTensors recorded_list(const Tensors &list)
{
    RecordedTensors noted = recorded(list);
    const bool even = noted.size() > 1 && std::all_of(noted.begin(), noted.end(), [&](const RecordedTensor &tensor) {
                          return tensor.sizes == noted[0].sizes;
                      });
    if (!even) return noted;
    noted[0].sizes.insert(noted[0].sizes.begin(), int64_t(noted.size()));
    noted.resize(1);
    return noted;
}

c10d::OpType fr_type(OpName name)
{
    if (name == OpName::send) return c10d::OpType::SEND;
    return name == OpName::recv ? c10d::OpType::RECV : c10d::OpType::UNKNOWN;
}

/* Each rank's part of these differs, and that is no mistake; fr_trace thinks it is. */
RecordedCall call_of_request(const Request &request)
{
    RecordedCall call{fr_type(request.name), text_of(request.name), request.peer, recorded_list(request.inputs),
                      recorded_list(request.outputs)};
    if (request.name == OpName::all_gather_v) call.inputs.clear();
    if (request.name == OpName::reduce_scatter_v) call.outputs.clear();
    return call;
}

} // namespace

FlightRecorderHook::FlightRecorderHook(size_t max_entries, bool isolated)
    : recorder_(isolated ? new_recorder(max_entries) : recorder_of_process(max_entries))
{
    if (isolated) reset_op_ids();
}

void FlightRecorderHook::register_with_comm(const TorchComm::Ptr &comm)
{
    const std::vector<int> ranks = comm->ranks();
    const int rank = comm->rank();
    auto member = std::make_shared<Member>();
    member->timeout = comm->options().timeout;
    member->group = recorder_->add_group(comm->name(), comm->backend_name(),
                                         std::vector<uint64_t>(ranks.begin(), ranks.end()), rank);
    const int global = rank >= 0 && size_t(rank) < ranks.size() ? ranks[size_t(rank)] : rank;
    process_rank = global;
    auto self = shared_from_this();
    comm->register_pre_hook(
        [self, member](uint64_t op_id, const Request &request) { self->before(*member, op_id, request); });
    comm->register_post_hook([self](uint64_t op_id, const Outcome &outcome) { self->after(op_id, outcome); });
    comm->register_abort_hook([self, global] {
        LOG(WARNING) << "tutti: the last calls of this rank are in " << self->dump_file(global, true)
                     << ", to be read with torchfrtrace";
        const long wait_ms = fr_number("TORCHCOMM_HEALTH_CHECK_WAIT_MS", 0);
        if (wait_ms > 0) std::this_thread::sleep_for(milliseconds(wait_ms));
    });
    enabled_ = true;
}

/* Its sends and receives, and the batch that ends them. */
void FlightRecorderHook::note_batch(Member &member, const Request &request, milliseconds timeout)
{
    for (const Request &part : request.parts) {
        const uint64_t id =
            recorder_->record(member.group, call_of_request(part), member.seq, member.p2p_seq + 1, timeout);
        recorder_->started(id);
        recorder_->completed(id); /* what is asked is when the batch is over */
    }
}

void FlightRecorderHook::before(Member &member, uint64_t op_id, const Request &request)
{
    if (request.name == OpName::finalize || !recorder_->enabled()) return;
    look(false);
    const milliseconds timeout = request.timeout.count() > 0 ? request.timeout : member.timeout;
    if (request.name == OpName::batch_op_issue) note_batch(member, request, timeout);
    const bool p2p =
        request.name == OpName::send || request.name == OpName::recv || request.name == OpName::batch_op_issue;
    if (p2p)
        ++member.p2p_seq;
    else
        ++member.seq;
    const uint64_t id =
        recorder_->record(member.group, call_of_request(request), member.seq, member.p2p_seq, timeout, true);
    if (std::optional<uint64_t> failed = begun_.put(this, op_id, id)) recorder_->failed(*failed);
}

void FlightRecorderHook::after(uint64_t op_id, const Outcome &outcome)
{
    if (outcome.name == OpName::finalize) {
        look(true);
        return;
    }
    const std::optional<uint64_t> id = begun_.take(this, op_id);
    if (outcome.name == OpName::split && outcome.comm) register_with_comm(outcome.comm);
    if (!id) return;
    Flying call{*id, outcome.work};
    if (landed(call)) return;
    std::lock_guard<std::mutex> guard(mutex_);
    flying_.push_back(std::move(call));
    n_flying_ = flying_.size();
}

bool FlightRecorderHook::landed(const Flying &call)
{
    const TorchWork::Status status = call.work ? call.work->status() : TorchWork::Status::COMPLETED;
    if (status < TorchWork::Status::COMPLETED) return false;
    if (status == TorchWork::Status::COMPLETED)
        recorder_->completed(call.id);
    else
        recorder_->failed(call.id);
    return true;
}

/* Those that are looked at belong to nobody else meanwhile: to ask may be to end them, and to end one may run hooks. */
void FlightRecorderHook::look(bool at_all)
{
    if (n_flying_.load(std::memory_order_relaxed) == 0) return;
    std::vector<Flying> calls;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        calls.swap(flying_);
    }
    bool waits = false; /* for one that is not over; later ones mostly are not either */
    auto is_over = [&](const Flying &call) {
        if (waits && !at_all) return false;
        const bool over = landed(call);
        waits = waits || !over;
        return over;
    };
    calls.erase(std::remove_if(calls.begin(), calls.end(), is_over), calls.end());
    std::lock_guard<std::mutex> guard(mutex_);
    calls.insert(calls.end(), std::make_move_iterator(flying_.begin()), std::make_move_iterator(flying_.end()));
    flying_.swap(calls);
    n_flying_ = flying_.size();
}

std::string FlightRecorderHook::dump_json(bool include_completed)
{
    look(true);
    return recorder_->dump_json(!include_completed);
}

std::string FlightRecorderHook::dump_file(int rank, bool include_completed)
{
    look(true);
    return write_dump(*recorder_, rank, !include_completed);
}

} // namespace tutti_torch
