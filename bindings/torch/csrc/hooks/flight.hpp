/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* The flight recorder of torchcomms' API: the last calls of the communicators that it was registered with, and of those
 * that are split from them, in the format that PyTorch's fr_trace reads. A call costs a lock or two and some copies;
 * those in flight are asked whether they are over at the next call, and at the dump.
 *
 * Variables, as torchcomms': TORCHCOMM_FR_BUFFER_SIZE (calls that the recorder of the process keeps; 0: none),
 * TORCHCOMM_FR_CPP_STACK, TORCHCOMM_FR_DUMP_TEMP_FILE (a file a rank: this and the rank),
 * TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME=1 (the one before is the whole name, and read at each dump),
 * TORCHCOMM_HEALTH_CHECK_WAIT_MS (after the dump of an abort, so that others can ask for theirs). */

#include "comms/comms.hpp"
#include "hooks/begun.hpp"
#include "record/recorder.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tutti_torch
{

class FlightRecorderHook : public std::enable_shared_from_this<FlightRecorderHook>
{
  public:
    /* isolated: with a recorder of its own, and operations numbered from 0; else all hooks of the process share one,
     * which the first makes. */
    FlightRecorderHook(size_t max_entries, bool isolated);

    void register_with_comm(const TorchComm::Ptr &comm);
    std::string dump_json(bool include_completed);
    /* Returns the file's name. */
    std::string dump_file(int rank, bool include_completed);
    void reset() { recorder_->reset(); }
    bool is_enabled() const { return enabled_; }
    uint64_t size() { return recorder_->size(); }

  private:
    struct Member {
        std::shared_ptr<RecordedGroup> group;
        milliseconds timeout;
        std::atomic<uint64_t> seq{0}, p2p_seq{0};
    };
    struct Flying {
        uint64_t id;
        TorchComm::WorkPtr work;
    };

    void before(Member &member, uint64_t op_id, const Request &request);
    void after(uint64_t op_id, const Outcome &outcome);
    void note_batch(Member &member, const Request &request, milliseconds timeout);
    /* Whether it is over; if so, tells the recorder. */
    bool landed(const Flying &call);
    void look(bool at_all);

    const std::shared_ptr<Recorder> recorder_;
    std::atomic<bool> enabled_{false};
    Begun<uint64_t> begun_;
    std::atomic<size_t> n_flying_{0};
    std::mutex mutex_; /* below */
    std::vector<Flying> flying_;
};

} // namespace tutti_torch
