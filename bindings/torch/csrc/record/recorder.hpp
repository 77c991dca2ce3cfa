/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Room record: what is told of calls afterwards: the flight recorder, and PyTorch's profilers (below).
 * This room may use base and tensors. Begin here.
 *
 * The flight recorder keeps the last calls of this process, in the format of PyTorch's fr_trace. PyTorch's own recorder
 * is a template that some versions have, each a little different, with entries that hold events of a device. This one
 * is the same in all of them, and takes a lock and a few copies a call.
 *
 * One recorder has the calls of all process groups (get); others are made by who wants his own. Variables of that one,
 * as PyTorch's: TORCH_FR_BUFFER_SIZE (calls kept; 0: off), TORCH_FR_DUMP_TEMP_FILE (a file a rank: this and the rank),
 * TORCH_INCLUDE_STACK_TRACE=1 (where in Python each call was made: costs some microseconds a call), TORCH_FR_CPP_STACK,
 * TORCH_INCLUDE_ONLY_ACTIVE, TORCH_NCCL_DUMP_ON_TIMEOUT=0 (no dump on errors), TORCH_FR_DEBUG_INFO_PIPE_FILE (a pipe a
 * rank: whoever writes to it has the file written). */

#include "tensors/call.hpp"

#include <ATen/record_function.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tutti_torch
{

/* What the recorder has to know of a process group. */
struct RecordedGroup {
    int64_t id; /* in the order of creation in this process */
    std::string name, desc;
    std::vector<uint64_t> ranks; /* ranks of the world, by rank of the group */
    int rank;
    std::atomic<bool> dumped{false};
    /* The recorder's: calls, those in regions, too; the last collective that was called, begun, complete (-1: none). */
    int64_t n_calls = 0, last_called = -1, last_begun = -1, last_complete = -1;
};

/* What is kept of a tensor. Most calls have one on each side, of few dimensions: nothing is allocated for them. */
struct RecordedTensor {
    c10::SmallVector<int64_t, 4> sizes;
    c10::ScalarType dtype;
};
using RecordedTensors = c10::SmallVector<RecordedTensor, 1>;
RecordedTensors recorded(const Tensors &tensors);

/* What is kept of a call. */
struct RecordedCall {
    c10d::OpType type; /* SEND, RECV, RECVANYSOURCE, or what is none of them */
    const char *name;  /* the call's own: fr_trace's words are found when it is dumped */
    int peer;
    RecordedTensors inputs, outputs;
};

class Recorder
{
  public:
    static Recorder &get();
    Recorder(size_t capacity, bool with_frames, bool with_cpp_frames);

    bool enabled() const { return capacity_ > 0; }
    std::shared_ptr<RecordedGroup> add_group(std::string name, std::string desc, std::vector<uint64_t> ranks, int rank);
    /* A call that is about to start; returns its number, 0 when the recorder is off. seq: of the collective; the calls
     * of a coalesced region share it with the entry "coalesced" that ends them. begun: it starts at once. */
    uint64_t record(const std::shared_ptr<RecordedGroup> &group, RecordedCall call, uint64_t seq, uint64_t p2p_seq,
                    milliseconds timeout, bool begun = false);
    uint64_t record(const std::shared_ptr<RecordedGroup> &group, const Call &call, uint64_t seq, uint64_t p2p_seq,
                    milliseconds timeout, bool begun = false);
    void started(uint64_t id);
    void completed(uint64_t id);
    /* The first n of them. */
    void completed(const std::deque<uint64_t> &ids, size_t n);
    /* It ended with an error: no longer in flight, never completed; or has not even started. */
    void failed(uint64_t id, bool before_start = false);

    /* Before each dump: whoever knows of calls that are over says so now. False: it is gone. */
    void add_source(std::function<bool()> look);

    /* The pickle that fr_trace reads; without calls it says only how far each group is. Needs the GIL only where
     * Python's frames were recorded. */
    std::string dump(bool only_active, bool with_calls = true);
    /* The same as JSON, which fr_trace reads with -j. */
    std::string dump_json(bool only_active);
    /* Forgets all calls, and numbers those that follow from 0. */
    void reset();
    /* Calls since then. */
    uint64_t size();
    /* Writes the file, once a group; where that fails, says so in the log (dump.cpp). */
    void dump_on_error(RecordedGroup &group);

  private:
    struct Entry {
        uint64_t id = 0;
        std::shared_ptr<RecordedGroup> group;
        RecordedCall call;
        uint64_t seq, p2p_seq;
        int64_t number; /* in its group */
        bool retired;
        int64_t created_ns, started_ns, completed_ns, timeout_ms;
        std::shared_ptr<torch::CapturedTraceback> frames;
        std::string thread_id, thread_name; /* with the frames */

        void reach(int64_t &last) const
        {
            if (!c10d::isP2POp(call.type)) last = std::max(last, int64_t(seq));
        }
        void begin(int64_t at_ns)
        {
            started_ns = at_ns;
            reach(group->last_begun);
        }
        void complete(int64_t at_ns)
        {
            completed_ns = at_ns;
            retired = true;
            reach(group->last_complete);
        }
    };
    Entry *find(uint64_t id); /* null when it was overwritten, or forgotten; with mutex_ held */
    template <typename Change> void change(uint64_t id, Change f);
    c10::IValue trace(bool only_active, bool with_calls);
    c10::IValue entries(bool only_active);
    c10::IValue groups();
    c10::IValue states();
    c10::IValue describe(const Entry &entry) const;

    size_t capacity_;
    bool with_frames_, with_cpp_frames_;
    std::mutex sources_mutex_;
    std::vector<std::function<bool()>> sources_;
    std::mutex mutex_; /* below; taken after the other */
    std::vector<Entry> ring_;
    uint64_t n_recorded_ = 0;
    std::atomic<uint64_t> n_forgotten_{0}; /* how many of these are forgotten */
    std::vector<std::shared_ptr<RecordedGroup>> groups_;
};

/* The first of these variables that is set. */
const char *variable(std::initializer_list<const char *> names, const char *otherwise);
bool flag(std::initializer_list<const char *> names, bool otherwise);

/* Where files of traces go by default: a folder of the user's own, and how their names begin. */
std::string default_trace_prefix(const char *file);
/* False: the file can not be written, and is not there. */
bool write_whole(const std::string &path, const std::string &bytes);

/* A variable says that failures are to be written, or where to. */
bool dump_is_asked_for();
/* Values of PyTorch as JSON: nothing, bools, numbers, strings, lists, tuples and dictionaries of strings. */
std::string json_of(const c10::IValue &value);

/* From now on the pipe that a variable names is served in this process, which has this rank of the world. */
void serve_dump_pipe(uint64_t rank);

/* Calls as PyTorch's profilers see them: what a call is, and a span from the start of a call to its end, whichever
 * thread ends it. */

/* Begins the span "tutti:all_reduce" with the shapes of the tensors; null, and nearly free, while nobody profiles.
 * Destroying it ends it. */
std::unique_ptr<at::RecordFunction> begin_span(const Call &call);

struct RecordedGroup;
/* The event "record_param_comms" with what PyTorch's profilers tell of a collective: name, elements, type, group and
 * sequence number. Nearly free while nobody profiles. */
void describe_call(const Call &call, uint64_t seq, const RecordedGroup &group);

} // namespace tutti_torch
