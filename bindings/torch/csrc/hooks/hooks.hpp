/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Room hooks: what can be hung on a communicator of torchcomms' API: the log of calls (Clog) and the flight recorder
 * (FlightRecorderHook). Uses comms and record. */

#include "comms/comms.hpp"
#include "record/recorder.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tutti_torch
{

/* What the half before a call leaves for the half after it, on the same thread: a thread makes one call at a time, but
 * several hooks may be told of it. */
template <typename Note> class Begun
{
  public:
    /* Returns what was left of an earlier call, which failed: nobody was told of its end. */
    std::optional<Note> put(const void *hook, uint64_t op_id, Note note)
    {
        std::optional<Note> left = take(hook);
        all().push_back({hook, op_id, note});
        return left;
    }
    std::optional<Note> take(const void *hook, uint64_t op_id)
    {
        for (size_t i = all().size(); i-- > 0;)
            if (all()[i].hook == hook && all()[i].op_id == op_id) return remove(i);
        return std::nullopt;
    }

  private:
    struct Item {
        const void *hook;
        uint64_t op_id;
        Note note;
    };

    static std::vector<Item> &all()
    {
        thread_local std::vector<Item> items;
        return items;
    }
    std::optional<Note> take(const void *hook)
    {
        for (size_t i = 0; i < all().size(); i++)
            if (all()[i].hook == hook) return remove(i);
        return std::nullopt;
    }
    static Note remove(size_t i)
    {
        Note note = all()[i].note;
        all()[i] = all().back();
        all().pop_back();
        return note;
    }
};

/* A file to which lines are appended, as cheap as memory: it is mapped, and grows by pieces of empty lines, so that
 * each line is there for readers at once, and still there when the process dies. Closing cuts off the empty lines. Not
 * thread-safe. */

class LogFile
{
  public:
    explicit LogFile(const std::string &path); /* empties it; RuntimeError when it can not be written */
    ~LogFile();
    LogFile(const LogFile &) = delete;
    LogFile &operator=(const LogFile &) = delete;

    void line(std::string_view text); /* nothing more once the disk is full, which a warning says */

  private:
    bool grow(size_t bytes);

    const std::string path_;
    int fd_ = -1;
    char *memory_ = nullptr; /* the piece that is being filled */
    size_t base_ = 0, piece_ = 0, used_ = 0;
};

/* torchcomms' log of calls (version 1 of its format): a line for each kind of call, once, and lines for each call: that
 * it was asked for, began, ended, was waited for. docs/torchcomms.md says what the lines mean.
 *
 * A call on the host begins when it is handed to the library, and ends when the library says so; one on a device, when
 * it is enqueued. The line of an end is written when it is seen, by who waits or asks, or by the next call: a notice of
 * each would cost more than all else. Its time is that of the end. */

class Clog : public std::enable_shared_from_this<Clog>
{
  public:
    Clog(const std::string &output, const std::vector<std::string> &events, const std::vector<std::string> &verbose);

    void register_with_comm(const TorchComm::Ptr &comm);

  private:
    using Clock = std::chrono::system_clock;
    struct Logged { /* what is kept of a call */
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

/* The flight recorder of torchcomms' API: the last calls of the communicators that it was registered with, and of those
 * that are split from them, in the format that PyTorch's fr_trace reads. A call costs a lock or two and some copies;
 * those in flight are asked whether they are over at the next call, and at the dump.
 *
 * Variables, as torchcomms': TORCHCOMM_FR_BUFFER_SIZE (calls that the recorder of the process keeps; 0: none),
 * TORCHCOMM_FR_CPP_STACK, TORCHCOMM_FR_DUMP_TEMP_FILE (a file a rank: this and the rank),
 * TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME=1 (the one before is the whole name, and read at each dump),
 * TORCHCOMM_HEALTH_CHECK_WAIT_MS (after the dump of an abort, so that others can ask for theirs). */

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
