/* SPDX-License-Identifier: BSD-3-Clause */

/* The flight recorder's ring, and its pickle; dump.cpp writes it to files. */

#include "record/recorder.hpp"

#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <torch/csrc/jit/serialization/pickler.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <tuple>

namespace tutti_torch
{

namespace
{

using Dict = c10::Dict<c10::IValue, c10::IValue>;
using List = c10::List<c10::IValue>;

/* The format's version, not torch's: fr_trace compares the versions of the ranks' files with one another. */
constexpr const char *format_version = "2.10";

Dict new_dict()
{
    return Dict(c10::AnyType::get(), c10::AnyType::get());
}

List new_list()
{
    return List(c10::AnyType::get());
}

int64_t wall_ns()
{
    using namespace std::chrono;
    return duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
}

/* fr_trace knows the collectives by these names, where ours differ. */
constexpr const char *other_names[][2] = {
    {"all_gather_into_tensor", "_all_gather_base"},
    {"reduce_scatter_tensor", "_reduce_scatter_base"},
    {"all_to_all_single", "all_to_all"},
    {"gather_into_tensor", "gather"},
    {"all_gather_single", "_all_gather_base"},
    {"reduce_scatter_single", "_reduce_scatter_base"},
    {"all_to_all_v_single", "all_to_all"},
    {"gather_single", "gather"},
    {"batch_op_issue", "coalesced"},
    {"all_reduce_coalesced", "allreduce_coalesced"},
    {"all_gather_coalesced", "ALLGATHER_coalesced"},
    {"all_reduce_sparse", "all_reduce"},
};

/* Every version of fr_trace takes names that begin with "nccl:", older ones no others. */
std::string traced_name(c10d::OpType type, const char *name, int rank, int peer)
{
    switch (type) {
    case c10d::OpType::SEND:
        return c10::str("nccl:send ", rank, "->", peer);
    case c10d::OpType::RECV:
        return c10::str("nccl:recv ", rank, "<-", peer);
    case c10d::OpType::RECVANYSOURCE: /* from whom is not known yet */
        return c10::str("nccl:recv ", rank, "<-", rank);
    default:
        break;
    }
    for (const auto &[ours, theirs] : other_names)
        if (std::strcmp(ours, name) == 0) return c10::str("nccl:", theirs);
    return c10::str("nccl:", name);
}

/* It is not one of its group's calls: it stands for those of the region before it. */
bool ends_region(const RecordedCall &call)
{
    return call.type == c10d::OpType::COALESCED &&
           (std::strcmp(call.name, "coalesced") == 0 || std::strcmp(call.name, "batch_op_issue") == 0);
}

/* A call without tensors has one, too, empty: fr_trace looks at the first. */
List sizes_list(const RecordedTensors &tensors)
{
    List all = new_list();
    if (tensors.empty()) all.push_back(new_list());
    for (const RecordedTensor &tensor : tensors) {
        List dims = new_list();
        for (int64_t dim : tensor.sizes) dims.push_back(dim);
        all.push_back(dims);
    }
    return all;
}

List dtypes_list(const RecordedTensors &tensors)
{
    List all = new_list();
    for (const RecordedTensor &tensor : tensors) all.push_back(std::string(c10::toString(tensor.dtype)));
    return all;
}

c10::IValue time_or_none(int64_t ns)
{
    return ns ? c10::IValue(ns) : c10::IValue();
}

} // namespace

const char *variable(std::initializer_list<const char *> names, const char *otherwise)
{
    for (const char *name : names)
        if (const char *value = std::getenv(name)) return value;
    return otherwise;
}

bool flag(std::initializer_list<const char *> names, bool otherwise)
{
    std::string value = variable(names, otherwise ? "1" : "0");
    return value == "1" || value == "true" || value == "True" || value == "y" || value == "Y";
}

RecordedTensors recorded(const Tensors &tensors)
{
    RecordedTensors noted(tensors.size());
    for (size_t i = 0; i < tensors.size(); i++) {
        noted[i].sizes.assign(tensors[i].sizes().begin(), tensors[i].sizes().end());
        noted[i].dtype = tensors[i].scalar_type();
    }
    return noted;
}

static size_t capacity_of_process()
{
    const char *calls = variable({"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}, "2000");
    return size_t(std::max(0L, std::atol(calls)));
}

Recorder &Recorder::get()
{
    static auto *recorder = new Recorder(capacity_of_process(), flag({"TORCH_INCLUDE_STACK_TRACE"}, false),
                                         flag({"TORCH_FR_CPP_STACK", "TORCH_NCCL_TRACE_CPP_STACK"}, false));
    return *recorder; /* left: calls end while the process does */
}

Recorder::Recorder(size_t capacity, bool with_frames, bool with_cpp_frames)
    : capacity_(capacity), with_frames_(with_frames), with_cpp_frames_(with_cpp_frames)
{
    constexpr size_t at_once = 20000;
    ring_.resize(std::min(capacity_, at_once)); /* call by call, new memory would cost more than all else here */
}

std::shared_ptr<RecordedGroup> Recorder::add_group(std::string name, std::string desc, std::vector<uint64_t> ranks,
                                                   int rank)
{
    std::lock_guard<std::mutex> guard(mutex_);
    auto group = std::make_shared<RecordedGroup>();
    group->id = int64_t(groups_.size());
    group->name = std::move(name);
    group->desc = desc.empty() ? "undefined" : std::move(desc);
    group->ranks = std::move(ranks);
    group->rank = rank;
    groups_.push_back(group);
    return group;
}

uint64_t Recorder::record(const std::shared_ptr<RecordedGroup> &group, const Call &call, uint64_t seq, uint64_t p2p_seq,
                          milliseconds timeout, bool begun)
{
    if (!enabled()) return 0;
    RecordedCall noted{call.type, call.name, call.peer, recorded(call.inputs), recorded(call.outputs)};
    if (call.is_p2p()) /* one tensor, on both sides, as PyTorch's recorder has it */
        (noted.inputs.empty() ? noted.inputs : noted.outputs) = noted.inputs.empty() ? noted.outputs : noted.inputs;
    return record(group, std::move(noted), seq, p2p_seq, timeout, begun);
}

uint64_t Recorder::record(const std::shared_ptr<RecordedGroup> &group, RecordedCall call, uint64_t seq,
                          uint64_t p2p_seq, milliseconds timeout, bool begun)
{
    if (!enabled()) return 0;
    std::shared_ptr<torch::CapturedTraceback> frames;
    std::array<char, 16> thread{};
    if (with_frames_ || with_cpp_frames_) {
        frames = torch::CapturedTraceback::gather(with_frames_, false, with_cpp_frames_);
        pthread_getname_np(pthread_self(), thread.data(), thread.size());
    }
    std::lock_guard<std::mutex> guard(mutex_);
    uint64_t id = ++n_recorded_;
    if (ring_.size() < std::min<uint64_t>(id, capacity_)) ring_.emplace_back();
    Entry &entry = ring_[(id - 1) % capacity_];
    entry.id = id;
    entry.group = group;
    entry.call = std::move(call);
    entry.seq = seq;
    entry.p2p_seq = p2p_seq;
    entry.retired = false;
    entry.number = group->n_calls += ends_region(entry.call) ? 0 : 1;
    entry.created_ns = wall_ns();
    entry.started_ns = entry.completed_ns = 0;
    entry.reach(group->last_called);
    if (begun) entry.begin(entry.created_ns);
    entry.timeout_ms = timeout.count();
    entry.frames = std::move(frames);
    if (entry.frames) {
        entry.thread_id = std::to_string(pthread_self());
        entry.thread_name = thread.data();
    }
    return id;
}

Recorder::Entry *Recorder::find(uint64_t id)
{
    Entry &entry = ring_[(id - 1) % capacity_];
    return entry.id == id && id > n_forgotten_ ? &entry : nullptr;
}

template <typename Change> void Recorder::change(uint64_t id, Change f)
{
    if (id == 0) return;
    std::lock_guard<std::mutex> guard(mutex_);
    if (Entry *entry = find(id)) f(*entry);
}

void Recorder::started(uint64_t id)
{
    change(id, [](Entry &entry) { entry.begin(wall_ns()); });
}

void Recorder::completed(uint64_t id)
{
    change(id, [](Entry &entry) { entry.complete(wall_ns()); });
}

void Recorder::completed(const std::deque<uint64_t> &ids, size_t n)
{
    const int64_t now = wall_ns();
    std::lock_guard<std::mutex> guard(mutex_);
    for (size_t i = 0; i < n; i++)
        if (Entry *entry = find(ids[i])) entry->complete(now);
}

void Recorder::failed(uint64_t id, bool before_start)
{
    change(id, [before_start](Entry &entry) {
        if (before_start) entry.started_ns = 0;
        entry.retired = true;
    });
}

/* ---- the pickle ---- */

c10::IValue Recorder::describe(const Entry &e) const
{
    Dict dict = new_dict();
    dict.insert("record_id", int64_t(e.id - 1 - n_forgotten_));
    dict.insert("pg_id", e.group->id);
    dict.insert("process_group", c10::ivalue::Tuple::create({e.group->name, e.group->desc}));
    dict.insert("collective_seq_id", int64_t(e.seq));
    dict.insert("p2p_seq_id", int64_t(e.p2p_seq));
    dict.insert("op_id", e.number);
    dict.insert("profiling_name", traced_name(e.call.type, e.call.name, e.group->rank, e.call.peer));
    dict.insert("time_created_ns", e.created_ns);
    if (e.completed_ns) dict.insert("duration_ms", double(e.completed_ns - e.started_ns) * 1e-6);
    dict.insert("input_sizes", sizes_list(e.call.inputs));
    dict.insert("input_dtypes", dtypes_list(e.call.inputs));
    dict.insert("output_sizes", sizes_list(e.call.outputs));
    dict.insert("output_dtypes", dtypes_list(e.call.outputs));
    dict.insert("state", e.completed_ns ? "completed" : e.started_ns ? "started" : "scheduled");
    dict.insert("time_discovered_started_ns", time_or_none(e.started_ns));
    dict.insert("time_discovered_completed_ns", time_or_none(e.completed_ns));
    dict.insert("retired", e.retired);
    dict.insert("timeout_ms", e.timeout_ms);
    dict.insert("is_p2p", c10d::isP2POp(e.call.type));
    if (e.frames) {
        dict.insert("thread_id", e.thread_id);
        dict.insert("thread_name", e.thread_name);
    }
    return dict;
}

/* Frames of all entries, symbolized together, one list an entry. */
static std::vector<List> frame_lists(const std::vector<torch::CapturedTraceback *> &tracebacks)
{
    std::vector<List> lists;
    torch::SymbolizedTracebacks symbolized = torch::symbolize(tracebacks);
    for (const auto &traceback : symbolized.tracebacks) {
        List frames = new_list();
        for (uint64_t index : traceback) {
            const auto &frame = symbolized.all_frames.at(index);
            Dict dict = new_dict();
            dict.insert("name", frame.funcname);
            dict.insert("filename", frame.filename);
            dict.insert("line", int64_t(frame.lineno));
            frames.push_back(dict);
        }
        lists.push_back(frames);
    }
    return lists;
}

c10::IValue Recorder::entries(bool only_active)
{
    std::vector<Entry> kept;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        const uint64_t n = std::min<uint64_t>(n_recorded_ - n_forgotten_, capacity_);
        for (uint64_t i = n_recorded_ - n; i < n_recorded_; i++) {
            const Entry &entry = ring_[i % capacity_];
            if (!only_active || !entry.completed_ns) kept.push_back(entry);
        }
    }
    std::vector<torch::CapturedTraceback *> tracebacks;
    for (const Entry &entry : kept)
        if (entry.frames) tracebacks.push_back(entry.frames.get());
    std::vector<List> frames = tracebacks.empty() ? std::vector<List>() : frame_lists(tracebacks);
    List list = new_list();
    size_t next = 0;
    for (const Entry &entry : kept) {
        Dict dict = describe(entry).toGenericDict();
        dict.insert("frames", entry.frames ? frames[next++] : new_list());
        list.push_back(dict);
    }
    return list;
}

c10::IValue Recorder::groups()
{
    std::lock_guard<std::mutex> guard(mutex_);
    Dict dict = new_dict();
    for (const auto &group : groups_) {
        std::string ranks;
        for (uint64_t rank : group->ranks) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
        Dict info = new_dict();
        info.insert("name", group->name);
        info.insert("desc", group->desc);
        info.insert("ranks", "[" + ranks + "]");
        dict.insert(group->name, info);
    }
    return dict;
}

/* How far each is, though its calls may have been overwritten. */
c10::IValue Recorder::states()
{
    std::lock_guard<std::mutex> guard(mutex_);
    Dict dict = new_dict();
    for (const auto &group : groups_) {
        Dict state = new_dict();
        state.insert("last_enqueued_collective", group->last_called);
        state.insert("last_started_collective", group->last_begun);
        state.insert("last_completed_collective", group->last_complete);
        dict.insert(group->name, state);
    }
    return dict;
}

void Recorder::add_source(std::function<bool()> look)
{
    std::lock_guard<std::mutex> guard(sources_mutex_);
    sources_.push_back(std::move(look));
}

void Recorder::reset()
{
    std::lock_guard<std::mutex> guard(mutex_);
    n_forgotten_ = n_recorded_;
}

uint64_t Recorder::size()
{
    std::lock_guard<std::mutex> guard(mutex_);
    return n_recorded_ - n_forgotten_;
}

c10::IValue Recorder::trace(bool only_active, bool with_calls)
{
    {
        std::lock_guard<std::mutex> guard(sources_mutex_);
        auto gone = [](const std::function<bool()> &look) { return !look(); };
        sources_.erase(std::remove_if(sources_.begin(), sources_.end(), gone), sources_.end());
    }
    Dict dict = new_dict();
    dict.insert("version", format_version);
    dict.insert("pg_config", groups());
    dict.insert("pg_status", states());
    dict.insert("comm_lib_version", c10::str("tutti ", tutti_version_text()));
    if (with_calls) dict.insert("entries", entries(only_active));
    return dict;
}

std::string Recorder::dump_json(bool only_active)
{
    return json_of(trace(only_active, true));
}

std::string Recorder::dump(bool only_active, bool with_calls)
{
    std::string bytes;
    torch::jit::Pickler pickler([&](const char *data, size_t size) { bytes.append(data, size); }, nullptr, nullptr,
                                nullptr, nullptr, false);
    pickler.protocol();
    pickler.pushIValue(trace(only_active, with_calls));
    pickler.stop();
    return bytes;
}

/* Spans in PyTorch's profilers. */

/* As PyTorch's own backends call theirs. */
static const char *title_of(const Call &call)
{
    return call.type == c10d::OpType::RECVANYSOURCE ? "recvAnySource" : call.name;
}

std::unique_ptr<at::RecordFunction> begin_span(const Call &call)
{
    auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
    if (C10_LIKELY(!callbacks)) return nullptr;
    auto span = std::make_unique<at::RecordFunction>(std::move(*callbacks));
    span->_setAsync();
    const Tensors &tensors = call.inputs.empty() ? call.outputs : call.inputs;
    std::vector<c10::IValue> shown(tensors.begin(), tensors.end());
    span->before("tutti:" + std::string(title_of(call)), c10::ArrayRef<const c10::IValue>(shown.data(), shown.size()));
    return span;
}

static int64_t elements_of(const Tensors &tensors)
{
    int64_t n = 0;
    for (const Tensor &tensor : tensors) n += tensor.numel();
    return n;
}

/* Not in every version. */
template <typename Info>
static auto tell_sequence(Info &info, int64_t seq, bool p2p, int) -> decltype(info.setSequenceInfo(seq, p2p))
{
    info.setSequenceInfo(seq, p2p);
}
template <typename Info> static void tell_sequence(Info &, int64_t, bool, long) {}

void describe_call(const Call &call, uint64_t seq, const RecordedGroup &group)
{
    auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
    if (C10_LIKELY(!callbacks)) return;
    const Tensors &tensors = call.inputs.empty() ? call.outputs : call.inputs;
    const std::tuple<std::string, std::string> name(group.name, group.desc);
    const int start = int(group.ranks.front()), size = int(group.ranks.size());
    const int stride = size > 1 ? int(group.ranks[1] - group.ranks[0]) : 0;
    auto info = std::make_shared<torch::ParamCommsDebugInfo>(
        name, group.rank, std::string(title_of(call)), elements_of(call.inputs), elements_of(call.outputs),
        tensors.empty() ? at::kByte : tensors[0].scalar_type(), std::vector<int64_t>(), std::vector<int64_t>(), start,
        stride, size);
    tell_sequence(*info, int64_t(seq), call.is_p2p(), 0);
    c10::DebugInfoGuard told(c10::DebugInfoKind::PARAM_COMMS_INFO, info);
    const std::vector<c10::IValue> shown = {c10::IValue(c10::ivalue::Tuple::create({int64_t(seq), call.is_p2p()})),
                                            c10::IValue(name), int64_t(group.rank), std::string(title_of(call)),
                                            int64_t(size)};
    at::RecordFunction event(std::move(*callbacks));
    event.before(at::kParamCommsCallName, c10::ArrayRef<const c10::IValue>(shown.data(), shown.size()));
}

} // namespace tutti_torch
