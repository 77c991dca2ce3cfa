/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* A group's communicator on one native device, apart from the group's own, which is the host's. Calls on the device's
 * tensors are enqueued through it on a stream, and nothing waits. */

#include "comm/comm.hpp"
#include "device/events.hpp"
#include "tensors/call.hpp"

#include <c10/util/ArrayRef.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tutti_torch
{

class DeviceComm
{
  public:
    /* Collective: meets the others through the store. Null, on all ranks, when one of them can not use its device; then
     * the tensors go through the host. Throws as Comm::create. */
    static std::shared_ptr<DeviceComm> open(c10d::Store &store, int rank, int size, const std::string &name,
                                            c10::Device device, milliseconds timeout, const Place &place);
    DeviceComm(std::shared_ptr<Comm> comm, c10::Device device);
    /* The communicator's calls are about memory of this device, or, where it is not native, of the host. Why
     * its tensors go through the host; empty: they do not. Throws what else goes wrong. */
    static std::string take_device(Comm &comm, c10::Device device);

    /* Null after close. */
    std::shared_ptr<Comm> comm() const;
    /* The same; throws after close. */
    std::shared_ptr<Comm> live() const;
    /* For a group that has not begun to close it. */
    tutti_comm *handle() const { return comm_->handle(); }
    /* Tells the recorder what is over. */
    void look();
    /* Waits for what is enqueued, while there is patience; then the others know that this rank left. */
    void close(bool failing);

    /* What is enqueued from now on comes after what is on these streams: on the own stream, or on the current
     * one. */
    void follow(c10::ArrayRef<c10::Stream> streams, bool on_own);

    /* Where a call's tensors are. Empty ones have an address, too: it says that the call is the device's. */
    Start start_of(const Call &call) const;
    /* One number on the device, for barriers. */
    const Tensor &one() const { return one_; }
    /* The library's labels of calls live as long as this. By one thread at a time, as calls are enqueued. */
    const char *label(const std::shared_ptr<const std::string> &group);

    const c10::Device device;
    const c10::Stream stream; /* for asynchronous calls */
    Events events;
    Progress progress;
    std::atomic<bool> has_windows{false}; /* on all ranks alike: a pool was registered */

  private:
    mutable std::mutex mutex_;
    std::shared_ptr<Comm> comm_;
    Tensor memory_, one_;
    char *nowhere_ = nullptr; /* in memory_ */
    std::vector<std::shared_ptr<const std::string>> labels_;
};

} // namespace tutti_torch
