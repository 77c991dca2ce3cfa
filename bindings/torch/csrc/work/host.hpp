/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* An operation on the host: the library carries it out, borrows the tensors' memory until its end, and tells of that
 * end whoever waits, or by a notice. An operation whose inputs a device has yet to compute waits for its turn at a
 * worker, and all later ones of the group behind it, so that all ranks start the same calls in the same order. */

#include "work/operation.hpp"

namespace tutti_torch
{

class HostOperation final : public Operation
{
  public:
    HostOperation(Call what, uint64_t number, GroupName of);
    ~HostOperation() override;
    /* One that has finished: what an empty region ends with. */
    static Ptr nothing();

    void begin(const std::shared_ptr<Comm> &comm, Worker &worker) override;
    void attend() override;
    bool test() override;
    void wait(milliseconds timeout) override;
    void watch() override;
    void let_go() noexcept override;
    float duration_ms() const override;
    bool is_on_host() const override { return true; }
    const tutti_work *handle() const override { return work_; }

  private:
    static void on_notice(void *self);
    void before_future() override;
    bool inputs_arrived(tutti_comm *comm);
    bool start_in_turn(tutti_comm *comm) noexcept;
    void start(tutti_comm *comm);
    void launch_members(tutti_comm *comm);
    Start start_of(tutti_comm *comm) const;
    tutti_call_options options() const;
    HostOperation &host(const Ptr &other) const { return static_cast<HostOperation &>(*other); }

    void await_end(milliseconds timeout);
    void finish(tutti_status status);
    bool finish_once(tutti_status status);
    void take_apart(tutti_status status);

    tutti_work *work_ = nullptr;
    std::optional<std::chrono::steady_clock::time_point> turn_; /* when the worker first looked at it */
};

} // namespace tutti_torch
