/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Room tensors: PyTorch's tensors and calls in the words of the C library. Uses base. Begin with request.hpp: a Request
 * is what a rank asks for, a Call (here) how the library is to carry it out. */

#include "base/compat.hpp"
#include "base/process.hpp"
#include "tensors/request.hpp"

#include <c10/util/SmallVector.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace tutti_torch
{

struct Staged;

/* All that a launch has to pass on to the library. */
struct Start {
    tutti_comm *comm = nullptr;
    const tutti_call_options *options = nullptr;
    tutti_work **work = nullptr;         /* null: it is part of a group, or a device's stream orders it */
    c10::SmallVector<void *, 2> in, out; /* most calls have one of each: nothing is allocated */
    tutti_message *message = nullptr;    /* recv on the host: what came is written there */
    bool has_windows = false;            /* on the device of the call, on all ranks */
};

/* Starts the call in the library: exactly one public call. */
using Launch = std::function<tutti_status(const Start &)>;

/* The launch of a public call that begins with a buffer to send and one to receive, which are null where this rank has
 * none; `arguments` are what follows them. */
template <auto function, typename... Arguments> Launch launch_of(Arguments... arguments)
{
    return [arguments...](const Start &s) {
        return function(s.in.empty() ? nullptr : s.in[0], s.out.empty() ? nullptr : s.out[0], arguments..., s.comm,
                        s.options, s.work);
    };
}

/* What a request becomes. */
struct Call {
    c10d::OpType type;
    const char *name;        /* "all_reduce": the word of traces and profiles */
    Tensors inputs, outputs; /* dense; what the launch reads and writes, in the order of Start. In place: the same */
    Launch launch;
    bool async = true;
    bool recorded = true;                   /* the flight recorder has it */
    bool counted = true;                    /* it has a number in the sequence of the group's collectives */
    milliseconds timeout{0};                /* 0: the group's */
    std::function<void()> unpack;           /* copies flat results to the user's tensors, after success */
    std::function<void()> first;            /* what has to be over before this call is, after success */
    Tensors results;                        /* what Work.result() shows; empty: the outputs */
    size_t results_a_list = 0;              /* futures show the results as lists of this many; 0: as one list */
    Tensor factor;                          /* PREMUL_SUM */
    int peer = -1;                          /* send, recv: the other rank, -1 any; collectives: the root, -1 none */
    std::shared_ptr<tutti_message> message; /* recv: where the sender is written */
    std::optional<c10::Device> device;      /* barrier: whose stream it follows */
    bool on_host = false;                   /* it is the host's, whatever its tensors are on */
    std::shared_ptr<Staged> staged;         /* set where tensors go through the host (device/staging.hpp) */
    std::string algorithm;                  /* empty: as the library chooses */
    Quantised quantised;

    bool is_p2p() const { return c10d::isP2POp(type); }
    const Tensors &shown() const { return results.empty() ? outputs : results; }
};

/* The call of a request; takes what the request has. Throws a Refusal where its arguments are wrong. */
Call call_of(Request &&request, const Seat &seat);
/* The parts that are the same for every call. */
Call begin_call(Request &request);
/* The name of the variable that asks for a search for NaN in what calls are given; null: none does. */
const char *nan_check_variable();
/* RuntimeError where an input has a NaN; `asked_by` is who asked for the check. Waits for the current stream of a
 * device. */
void check_numbers(const Call &call, const char *asked_by);

/* What the library is told of the call besides its arguments; the label lives as long as the call. */
inline tutti_call_options options_of(const Call &call, const char *label)
{
    tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.timeout_ns = to_ns(call.timeout);
    options.label = label;
    if (C10_UNLIKELY(!call.algorithm.empty())) options.algorithm = call.algorithm.c_str();
    if (C10_UNLIKELY(call.quantised.wire)) {
        options.wire = call.quantised.wire;
        options.wire_block = call.quantised.block;
        options.wire_seed = call.quantised.seed;
        if (call.quantised.seeds.defined()) options.wire_seeds = call.quantised.seeds.data_ptr();
    }
    if (call.factor.defined()) options.premul = call.factor.data_ptr();
    return options;
}

} // namespace tutti_torch
