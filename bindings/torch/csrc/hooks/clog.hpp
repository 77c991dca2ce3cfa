/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* torchcomms' log of calls (version 1 of its format): a line for each kind of call, once, and lines for each call: that
 * it was asked for, began, ended, was waited for. docs/torchcomms.md says what the lines mean.
 *
 * A call on the host begins when it is handed to the library, and ends when the library says so; one on a device, when
 * it is enqueued. The line of an end is written when it is seen, by who waits or asks, or by the next call: a notice of
 * each would cost more than all else. Its time is that of the end. */

#include "comms/comms.hpp"
#include "hooks/begun.hpp"
#include "hooks/log_file.hpp"

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace tutti_torch
{

class Clog : public std::enable_shared_from_this<Clog>
{
  public:
    Clog(const std::string &output, const std::vector<std::string> &events, const std::vector<std::string> &verbose);

    void register_with_comm(const TorchComm::Ptr &comm);

  private:
    using Clock = std::chrono::system_clock;
    struct Logged { /* a call in the log */
        uint64_t kind, work;
        Clock::time_point begun;
    };
    struct Awaited { /* which events of an asynchronous call are still to come */
        Logged call;
        bool end, wait;
    };
    struct Member {
        std::string name;
        std::weak_ptr<TorchComm> comm;
        bool introduced; /* the file says of how many ranks it is */
    };

    void watch(const TorchComm::Ptr &comm, bool introduced);
    void introduce(Member &member);
    void before(Member &member, uint64_t op_id, const Request &request);
    void after(uint64_t op_id, const Outcome &outcome);
    void follow(const Logged &call, const TorchComm::WorkPtr &work);
    void look();                                                                 /* for ends that nobody has seen */
    void put_event(uint64_t kind, std::string_view event, Clock::time_point at); /* with mutex_ held */
    void put_late(uint64_t work, bool Awaited::*which, std::string_view event, Clock::time_point at);
    void finish(const std::string &comm);

    bool lifecycle_ = false, buffers_ = false;
    const Clock::time_point base_ = Clock::now();
    Begun<Logged> begun_;
    std::mutex mutex_; /* below */
    LogFile file_;
    std::unordered_map<std::string, uint64_t> kinds_;
    std::unordered_map<uint64_t, Awaited> awaited_;         /* by work */
    std::deque<c10::weak_intrusive_ptr<TorchWork>> flying_; /* in the order of their beginnings */
    std::atomic<bool> any_flying_{false};
    std::vector<std::weak_ptr<TorchComm>> comms_;
    uint64_t n_works_ = 0;
    size_t n_alive_ = 0;
    std::string line_; /* memory of the next one */
};

} // namespace tutti_torch
