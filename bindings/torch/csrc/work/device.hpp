/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* An operation on a native device. Once it is enqueued the host has no part in it any more. A synchronous one is on the
 * caller's stream, and nothing of it is left. An asynchronous one is on the stream of the DeviceComm, which waits for
 * the caller's stream by an event; whoever waits for the operation makes his stream wait for the event at its end.
 * Until somebody has waited, the operation keeps the tensors, so that their memory is nobody else's; where nobody
 * waits, the allocator is told. */

#include "device/device_comm.hpp"
#include "work/operation.hpp"

#include <optional>

namespace tutti_torch
{

class DeviceOperation final : public Operation
{
  public:
    DeviceOperation(Call what, uint64_t number, GroupName of, std::shared_ptr<DeviceComm> comm);
    ~DeviceOperation() override;

    void begin(const std::shared_ptr<Comm> &, Worker &) override;
    void attend() override;
    bool test() override; /* throws for an operation that is part of a graph */
    /* With a timeout, and after a barrier, the host waits, too. Throws the error that ended the communicator, where
     * that is known already. */
    void wait(milliseconds timeout) override;
    void watch() override;
    float duration_ms() const override;
    bool is_on_host() const override { return false; }

  private:
    std::vector<c10::Stream> streams() const override;
    DeviceOperation &device(const Ptr &other) const { return static_cast<DeviceOperation &>(*other); }
    void launch(void *native);
    void started_with(const DeviceOperation &leader);
    void unpack();
    bool is_over() const;
    bool has_failed();
    bool look_in_turn() noexcept;
    void await(milliseconds limit);
    Tensors take_kept();
    void tell_allocator() noexcept;

    const std::shared_ptr<DeviceComm> comm_;
    const bool barrier_;
    std::optional<c10::Stream> caller_, stream_;
    std::optional<c10::Event> begin_, end_;
    bool captured_ = false;
    std::vector<uint64_t> record_ids_; /* its own, and those of its members */
    Tensors kept_;                     /* until somebody has waited; with mutex_ held */
};

/* A synchronous call on the caller's stream, of which nothing is left; its end is the matter of the flight recorder,
 * which has it as begun. Throws, and then nothing was enqueued. */
void enqueue_and_forget(DeviceComm &comm, const Call &call, uint64_t record_id, const Operation::GroupName &group);

} // namespace tutti_torch
