/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Calls on the tensors of an accelerator that the library does not know go through the host: each tensor gets a copy in
 * pinned memory, and the call is one on those copies. Every transfer is made on a stream of its own, which events order
 * with the caller's stream. Nothing here waits for a device, and no line knows which device it is (c10 does).
 *
 * The library has such a staging of its own (src/comm/device), for memory of devices in its own table. PyTorch's
 * accelerators are not in that table: only c10 has their streams, events and allocators. */

#include "device/device_comm.hpp"
#include "tensors/call.hpp"

#include <optional>

namespace tutti_torch
{

/* The order of one staged call with the streams of its device. */
struct Staged {
    explicit Staged(const c10::Stream &back_on)
        : stream(back_on), arrived(stream.device_type()), back(stream.device_type())
    {
    }
    /* What is enqueued on the caller's current stream from now on comes after the results. */
    void block_current_stream() const;

    const c10::Stream stream; /* on which results come back */
    c10::Event arrived;       /* the inputs are on the host */
    c10::Event back;          /* the results are on the device; never recorded (and over) when the call failed */
    Tensors made;             /* results whose memory was taken on the way back */
};

/* The accelerator whose tensors a call is about; none for calls on the host. ValueError when they are on several. */
std::optional<c10::Device> device_of(const Call &call);
/* The allocator may not hand the tensor's memory out again before the stream has come this far. */
void record_on_stream(const Tensor &tensor, const c10::Stream &stream);

/* Makes a call on tensors of an accelerator one on their copies on the host: enqueues the copies of the inputs behind
 * the caller's current stream; call.unpack then enqueues the way back. Calls on the host stay as they are. */
void stage(Call &call);

} // namespace tutti_torch
