/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Calls that are made again and again on the same tensors: checked, looked up and recorded once, then started. On the
 * host they are the library's persistent collectives; on devices, the call is kept. Lists, and what is not contiguous,
 * are copied to and from one flat tensor each time. */

#include "comms/comms.hpp"

#include <optional>

namespace tutti_torch
{

class Persistent
{
  public:
    static std::shared_ptr<Persistent> record(std::shared_ptr<TorchComm> comm, Request request);
    Persistent(const Persistent &) = delete;
    Persistent &operator=(const Persistent &) = delete;

    /* As the call itself. It reads and writes the same tensors each time, so it follows what was started before. */
    TorchComm::WorkPtr start(bool async_op);
    void follow_last(); /* waits for that: on a device, its current stream does */
    void release();     /* RuntimeError afterwards */
    const Request &request() const { return request_; }

  private:
    Persistent(std::shared_ptr<TorchComm> comm, Request request);
    void await_last(); /* with mutex_ */

    const std::shared_ptr<TorchComm> comm_;
    Request request_;
    bool on_host_ = false;
    std::mutex mutex_; /* below */
    std::optional<Call> call_;
    std::function<void()> pack_;          /* before each start; null: the call reads the tensors themselves */
    std::shared_ptr<Comm> of_;            /* the communicator it was recorded on */
    c10::intrusive_ptr<c10d::Work> last_; /* null: nobody has to wait for it */
};

/* torchcomms' own: the output (or a list of them) is known beforehand, the input comes with each start. */
class AllGatherP
{
  public:
    AllGatherP(std::shared_ptr<TorchComm> comm, Tensors outputs, bool is_list, Hints hints, milliseconds timeout)
        : comm_(std::move(comm)), is_list_(is_list), hints_(std::move(hints)), timeout_(timeout),
          outputs_(std::move(outputs))
    {
        TORCH_CHECK(!outputs_.empty(), "tutti: all_gather_p_init: the list of outputs is empty");
    }
    TorchComm::WorkPtr start(const Tensor &input, bool async_op);
    void release();

  private:
    const std::shared_ptr<TorchComm> comm_;
    const bool is_list_;
    const Hints hints_;
    const milliseconds timeout_;
    std::mutex mutex_; /* below */
    Tensors outputs_;  /* none when it was released */
    std::shared_ptr<Persistent> last_;
};

} // namespace tutti_torch
