/* SPDX-License-Identifier: BSD-3-Clause */

/* The backend's calls on CUDA tensors: which channel they take, and how they begin. */

#include "backend.hpp"
#include "device_memory.hpp"
#include "errors.hpp"
#include "profile.hpp"
#include "recorder.hpp"

#include <algorithm>
#include <utility>

namespace tutti_torch
{

/* ---- channels ---- */

static bool is_on_cuda(const Call &call)
{
    const Tensors &tensors = call.inputs.empty() ? call.outputs : call.inputs;
    return tensors.empty() ? call.device && call.device->is_cuda() : tensors[0].is_cuda();
}

/* Between two ranks alone goes a single message, of which the others know nothing. Where the whole group has met
 * anyway, when it was made, and in coalesced regions, messages go where the collectives go. */
int Backend::peer_of_channel(const Call &call) const
{
    const bool alone = call.is_p2p() && coalescing_ == 0 && !eager_ && size_ > 2;
    return alone ? call.peer : whole_group;
}

/* It has been found that tensors of this device do. */
bool Backend::goes_through_host(c10::Device device) const
{
    return std::any_of(channels_.begin(), channels_.end(),
                       [device](const auto &known) { return known.first.first == device.index() && !known.second; });
}

std::shared_ptr<Channel> Backend::channel_of(const Call &call, std::unique_lock<std::mutex> &guard)
{
    if (!is_on_cuda(call)) return nullptr;
    const c10::Device device = *device_of(call);
    guard.lock();
    live();
    TORCH_CHECK_VALUE(call.type != c10d::OpType::RECVANYSOURCE || goes_through_host(device), "tutti: ", call.name,
                      ": tensors of ", device, " are received from a rank that is named");
    const int peer = peer_of_channel(call);
    auto known = channels_.find({device.index(), peer});
    std::shared_ptr<Channel> channel;
    if (known != channels_.end()) {
        channel = known->second;
    } else {
        guard.unlock();
        channel = open_channel(device, peer);
        guard.lock();
        live();
    }
    if (!channel) guard.unlock();
    return channel;
}

std::shared_ptr<Channel> Backend::open_channel(c10::Device device, int peer)
{
    std::lock_guard<std::mutex> one_at_a_time(opening_);
    std::string name;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        auto known = channels_.find({device.index(), peer});
        if (known != channels_.end()) return known->second;
        /* Ranks count their devices in the order of use: their numbers differ. */
        auto same = [peer](const auto &other) { return other.first.second == peer; };
        const auto nth = std::count_if(channels_.begin(), channels_.end(), same);
        const std::string who =
            peer == whole_group ? "all" : c10::str(std::min(rank_, peer), "-", std::max(rank_, peer));
        name = c10::str("torch.device.", tutti_comm_id(live()->handle()), ".", who, ".", nth);
    }
    const bool pair = peer != whole_group;
    std::shared_ptr<Channel> channel =
        Channel::open(*store_, pair ? int(rank_ > peer) : rank_, pair ? 2 : size_, name, device, options_->timeout);
    std::lock_guard<std::mutex> guard(mutex_);
    live();
    channels_[{device.index(), peer}] = channel;
    if (channel)
        Recorder::get().add_source([weak = std::weak_ptr<Channel>(channel)] {
            std::shared_ptr<Channel> known = weak.lock();
            if (known) known->look();
            return known != nullptr;
        });
    return channel;
}

std::vector<std::shared_ptr<Channel>> Backend::channels() const
{
    std::lock_guard<std::mutex> guard(mutex_);
    std::vector<std::shared_ptr<Channel>> found;
    for (const auto &[key, channel] : channels_)
        if (channel) found.push_back(channel);
    return found;
}

std::shared_ptr<Channel> Backend::channel_to(c10::Device device)
{
    Call call{};
    call.device = device;
    std::unique_lock<std::mutex> guard(mutex_, std::defer_lock);
    return channel_of(call, guard);
}

void Backend::eagerConnectSingleDevice(at::Device device)
{
    if (!device.is_cuda()) return;
    eager_ = true;
    channel_to(device);
}

/* ---- memory ---- */

std::shared_ptr<Comm> Backend::comm_of_device(c10::DeviceIndex index)
{
    std::shared_ptr<Channel> channel = channel_to(c10::Device(c10::kCUDA, index));
    std::shared_ptr<Comm> comm = channel ? channel->comm() : nullptr;
    TORCH_CHECK(comm, "tutti: the group has no memory of CUDA device ", int(index),
                ": its tensors go through the host");
    return comm;
}

void Backend::serve_memory(c10::DeviceIndex index)
{
    device_memory_serve(index, comm_of_device(index));
}

void Backend::add_windows(c10::DeviceIndex index, const std::vector<uintptr_t> &pieces)
{
    device_memory_add_windows(comm_of_device(index), pieces);
}

/* ---- calls ---- */

/* What the recorder and the profilers are told of several calls that begin as one. */
static Call head_of(c10d::OpType type, const char *name, const std::vector<Call> &parts)
{
    Call head{};
    head.type = type;
    head.name = name;
    head.async = std::any_of(parts.begin(), parts.end(), [](const Call &part) { return part.async; });
    head.timeout = parts[0].timeout;
    for (const Call &part : parts) {
        head.inputs.insert(head.inputs.end(), part.inputs.begin(), part.inputs.end());
        head.outputs.insert(head.outputs.end(), part.outputs.begin(), part.outputs.end());
    }
    return head;
}

/* The handle of a call in a region has none of its tensors but the results. */
static Call handle_of(const Call &call)
{
    Call handle{};
    handle.type = call.type;
    handle.name = call.name;
    handle.async = call.async;
    handle.timeout = call.timeout;
    handle.peer = call.peer;
    handle.results = call.results.empty() ? call.outputs : call.results;
    return handle;
}

/* Nobody gets a handle of it, and nobody wants to be told of its end. */
bool Backend::leaves_nothing(const Call &call) const
{
    return sync_returns_none && !call.async && coalescing_ == 0 && call.type != c10d::OpType::BARRIER && !hasHooks();
}

/* What is left of a synchronous call when all that serves its handle is taken away: most calls are such. */
void Backend::leave_nothing(Channel &channel, const Call &call)
{
    const uint64_t seq = seq_ + (call.counted && !call.is_p2p() ? 1 : 0);
    const uint64_t record_id = note(call, seq, true);
    const auto span = begin_span(call);
    try {
        enqueue_and_forget(channel, call, record_id, group_);
    } catch (...) {
        Recorder::get().refused(record_id);
        throw;
    }
    seq_ = seq;
}

Backend::WorkPtr Backend::enqueue(std::unique_lock<std::mutex> &guard, const std::shared_ptr<Channel> &channel,
                                  Call &&call)
{
    if (leaves_nothing(call)) {
        leave_nothing(*channel, call);
        return nullptr;
    }
    if (coalescing_ == 0) return begin_enqueued(guard, channel, std::move(call), {});
    std::vector<Call> calls;
    calls.push_back(std::move(call));
    return join_region(channel, std::move(calls));
}

Backend::WorkPtr Backend::enqueue_all(std::unique_lock<std::mutex> &guard, const std::shared_ptr<Channel> &channel,
                                      c10d::OpType type, const char *name, std::vector<Call> calls)
{
    for (const Call &call : calls)
        TORCH_CHECK_VALUE(device_of(call) == channel->device, "tutti: ", name, ": tensors on different devices, ",
                          channel->device, " and ", device_of(call).value_or(c10::Device(c10::kCPU)));
    if (coalescing_ > 0) return join_region(channel, std::move(calls));
    Call head = head_of(type, name, calls);
    return begin_enqueued(guard, channel, std::move(head), std::move(calls));
}

Backend::WorkPtr Backend::join_region(const std::shared_ptr<Channel> &channel, std::vector<Call> calls)
{
    TORCH_CHECK_VALUE(coalesced_.empty() && (!region_.channel || region_.channel == channel), "tutti: ", calls[0].name,
                      ": the calls of a coalesced region are on tensors of one device, or of the host");
    region_.channel = channel;
    const c10::Stream stream = current_stream(channel->device);
    if (std::find(region_.streams.begin(), region_.streams.end(), stream) == region_.streams.end())
        region_.streams.push_back(stream);
    for (Call &call : calls) {
        auto part = c10::make_intrusive<Enqueued>(channel, handle_of(call), std::vector<Call>(), seq_, group_);
        part->timed = timed_.load(std::memory_order_relaxed);
        part->record_ids.push_back(note(call, seq_));
        part->recorded = recorded_;
        region_.parts.push_back(std::move(part));
        region_.calls.push_back(std::move(call));
    }
    return c10::make_intrusive<EnqueuedWork>(region_.parts.back(), rank_);
}

Backend::WorkPtr Backend::end_region(std::unique_lock<std::mutex> &guard)
{
    Region region = std::exchange(region_, {});
    Call head = head_of(c10d::OpType::COALESCED, "coalesced", region.calls);
    auto is_p2p = [](const Call &call) { return call.is_p2p(); };
    head.counted = !std::all_of(region.calls.begin(), region.calls.end(), is_p2p);
    if (!head.counted) p2p_seq_++;
    try {
        region.channel->follow(region.streams, head.async);
        return begin_enqueued(guard, region.channel, std::move(head), std::move(region.calls), region.parts);
    } catch (...) {
        for (const Enqueued::Ptr &part : region.parts) part->fail(std::current_exception());
        throw;
    }
}

/* Releases the guard before it waits. */
Backend::WorkPtr Backend::begin_enqueued(std::unique_lock<std::mutex> &guard, const std::shared_ptr<Channel> &channel,
                                         Call head, std::vector<Call> calls, const std::vector<Enqueued::Ptr> &parts)
{
    const uint64_t seq = seq_ + (head.counted && !head.is_p2p() ? 1 : 0);
    const uint64_t record_id = note(head, seq, true);
    const auto span = begin_span(head);
    std::function<void()> first = std::move(head.first);
    auto call = c10::make_intrusive<Enqueued>(channel, std::move(head), std::move(calls), seq, group_);
    call->timed = timed_.load(std::memory_order_relaxed);
    call->record_ids.push_back(record_id);
    call->recorded = recorded_;
    try {
        call->start();
    } catch (...) {
        Recorder::get().refused(record_id);
        throw;
    }
    seq_ = seq;
    for (const Enqueued::Ptr &part : parts) {
        Recorder::get().started(part->record_ids[0]);
        call->record_ids.push_back(part->record_ids[0]);
    }
    call->tell_recorder();
    hook(*call);
    call->watch_if_wanted();
    guard.unlock();
    for (const Enqueued::Ptr &part : parts) part->begin_with(call); /* callbacks of futures may call the group */
    if (call->barrier && !call->async) call->wait(kNoTimeout);
    if (call->barrier && !call->async && first) first();
    if (!call->async && sync_returns_none) return nullptr;
    return c10::make_intrusive<EnqueuedWork>(call, rank_);
}

void Backend::fail_region(std::exception_ptr error)
{
    Region region;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        region = std::exchange(region_, {});
    }
    for (const Enqueued::Ptr &part : region.parts) part->fail(error);
}

} // namespace tutti_torch
