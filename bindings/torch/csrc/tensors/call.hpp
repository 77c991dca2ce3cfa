/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Room tensors: PyTorch's tensors and calls in the words of the C library. Uses base. Begin here: every method of the
 * backend makes a Call. */

#include "base/compat.hpp"
#include "base/process.hpp"
#include "tensors/tensors.hpp"

#include <c10/util/SmallVector.h>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <tutti/tutti.h>

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

/* While one lives, calls that this thread makes are carried out so: a name that the library knows. Empty: as it
 * chooses. */
class WithAlgorithm
{
  public:
    explicit WithAlgorithm(const std::string &name) : before_(current_) { current_ = name.empty() ? nullptr : &name; }
    ~WithAlgorithm() { current_ = before_; }
    WithAlgorithm(const WithAlgorithm &) = delete;
    WithAlgorithm &operator=(const WithAlgorithm &) = delete;
    static std::string current() { return C10_LIKELY(!current_) ? std::string() : *current_; }

  private:
    inline static thread_local const std::string *current_ = nullptr;
    const std::string *before_;
};

/* How the data of a quantised call travels (tutti_call_options.wire and what follows it). */
struct Quantised {
    tutti_wire wire = TUTTI_WIRE_NONE;
    uint32_t block = 0;
    uint64_t seed = 0;
    Tensor seeds; /* one int64 where the call's tensors are, or undefined */
};

/* While one lives, calls that this thread makes are quantised so. */
class WithQuantised
{
  public:
    explicit WithQuantised(const Quantised &how) : before_(current_) { current_ = how.wire ? &how : nullptr; }
    ~WithQuantised() { current_ = before_; }
    WithQuantised(const WithQuantised &) = delete;
    WithQuantised &operator=(const WithQuantised &) = delete;
    static Quantised current() { return C10_LIKELY(!current_) ? Quantised() : *current_; }

  private:
    inline static thread_local const Quantised *current_ = nullptr;
    const Quantised *before_;
};

/* What a method of the backend asks for. */
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
    Tensor factor;                          /* PREMUL_SUM */
    int peer = -1;                          /* send, recv: the other rank, -1 any; collectives: the root, -1 none */
    std::shared_ptr<tutti_message> message; /* recv: where the sender is written */
    std::optional<c10::Device> device;      /* barrier: whose stream it follows */
    std::shared_ptr<Staged> staged;         /* of tensors that go through the host (device/staging.hpp) */
    std::string algorithm;                  /* empty: as the library chooses */
    Quantised quantised;

    bool is_p2p() const { return c10d::isP2POp(type); }
    const Tensors &shown() const { return results.empty() ? outputs : results; }
};

/* Whether TORCH_XCCL_NAN_CHECK or TORCH_NCCL_NAN_CHECK asks for it. */
bool numbers_are_to_be_checked();
/* RuntimeError where an input has a NaN. Waits for the current stream of a device. */
void check_numbers(const Call &call);

/* While one lives, the next call that this thread would start is put here instead. */
class TakeCall
{
  public:
    TakeCall() { current_ = this; }
    ~TakeCall() { current_ = nullptr; }
    TakeCall(const TakeCall &) = delete;
    TakeCall &operator=(const TakeCall &) = delete;
    /* True: it was taken. */
    static bool take(Call &call)
    {
        if (C10_LIKELY(!current_)) return false;
        current_->taken = std::move(call);
        return true;
    }
    std::optional<Call> taken;

  private:
    inline static thread_local TakeCall *current_ = nullptr;
};

/* A Call with what the options say. A timeout that the caller did not set is the group's. */
template <typename Options> Call call_of(c10d::OpType type, const char *name, const Options &options)
{
    Call call{};
    call.type = type;
    call.name = name;
    call.async = is_async(options);
    call.algorithm = WithAlgorithm::current();
    call.quantised = WithQuantised::current();
    if (options.timeout != c10d::kUnsetTimeout) call.timeout = options.timeout;
    return call;
}

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
