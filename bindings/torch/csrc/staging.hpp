/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Tensors of accelerators on their way through the host, which is where the library works. Every copy is made on a
 * stream of its own, ordered with the caller's by events: nothing here waits for a device, and no line knows which
 * device it is (c10's guards, streams and events do). */

#include "tensors.hpp"

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/util/SmallVector.h>
#include <tutti/tutti.h>

#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace tutti_torch
{

struct Call;

/* Where the memory of a call's inputs and outputs is: the tensors' own, or their twins on the host. */
struct Buffers {
    c10::SmallVector<void *, 2> in, out; /* most calls have one of each: nothing is allocated */
    tutti_message *message = nullptr;    /* recv: what came is written there, where the host learns of it */
};

/* The accelerator whose tensors a call is about; none for calls on the host. ValueError when they are on several. */
std::optional<c10::Device> device_of(const Call &call);
/* The allocator may not hand the tensor's memory out again before the stream has come this far. */
void record_on_stream(const Tensor &tensor, const c10::Stream &stream);

/* What a backend keeps for its copies: streams of each device, and host memory that is used again. */
class Staging
{
  public:
    ~Staging();
    /* One for each direction: a result does not wait behind inputs that are still being computed. */
    struct Streams {
        c10::Stream to_host, to_device;
    };
    Streams streams(c10::Device device);

    /* Bytes on the host, pinned where the device offers that. */
    Tensor take(c10::DeviceType type, size_t bytes);
    /* Back for another call, once the event is over. */
    void give(Tensor block, c10::DeviceType type, std::shared_ptr<c10::Event> busy);

  private:
    struct Block {
        Tensor memory;
        c10::DeviceType type;
        std::shared_ptr<c10::Event> busy;
    };
    std::mutex mutex_;
    std::unordered_map<c10::Device, Streams> streams_;
    std::vector<Block> idle_;
};

/* The tensors of one call on the host, and the events that order it with its device's streams. */
class Twins
{
  public:
    /* Begins where the caller's current stream is now: enqueues the copies of the inputs. Null when all is on the host;
     * ValueError when the call's tensors are on several devices. */
    static std::shared_ptr<Twins> of(const std::shared_ptr<Staging> &staging, const Call &call);
    Twins(std::shared_ptr<Staging> staging, const Call &call, c10::Device device);
    ~Twins();
    Twins(const Twins &) = delete;
    Twins &operator=(const Twins &) = delete;

    const Buffers &buffers() const { return buffers_; }
    /* The inputs are on the host. */
    bool arrived() const { return arrived_->query(); }

    /* Enqueues the way back: the outputs, and what the call has to unpack. */
    void send_back(const Call &call);
    /* After send_back: the results are on the device. Before it, and after a failure, there is nothing to wait for. */
    bool is_back() const { return back_->query(); }
    /* What is enqueued on the caller's current stream from now on comes after the results. */
    void block_current_stream() const;
    /* Where the results come back: current while callbacks run that use them. */
    c10::Stream stream() const { return streams_.to_device; }

  private:
    struct Pair {
        Tensor tensor, twin; /* flat, of one type */
        Tensor block;        /* the twin's memory, to be given back */
    };
    Pair *find(const Tensor &tensor);
    void *add(const Tensor &tensor);
    void copy_in();
    void copy_back(const Call &call);
    void give_blocks() noexcept;

    std::shared_ptr<Staging> staging_;
    Staging::Streams streams_;
    std::shared_ptr<c10::Event> arrived_, back_;
    std::vector<Pair> pairs_;
    size_t n_inputs_ = 0; /* the first of the pairs */
    Tensors made_;        /* results whose memory was taken on the way back */
    Buffers buffers_;
};

} // namespace tutti_torch
