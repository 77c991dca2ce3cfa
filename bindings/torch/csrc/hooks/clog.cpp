/* SPDX-License-Identifier: BSD-3-Clause */

/* The log of calls: which lines are written when. */

#include "hooks/clog.hpp"
#include "base/errors.hpp"

#include "hooks/signature.hpp"

#include <algorithm>
#include <cstdio>

namespace tutti_torch
{

static void check_words(const char *argument, const std::vector<std::string> &given,
                        std::initializer_list<const char *> known)
{
    for (const std::string &word : given) {
        const bool found = std::any_of(known.begin(), known.end(), [&](const char *each) { return word == each; });
        TUTTI_CHECK_VALUE(found, "clog: ", argument, " has '", word, "'; it knows ", c10::Join(" and ", known));
    }
}

Clog::Clog(const std::string &output, const std::vector<std::string> &events, const std::vector<std::string> &verbose)
    : file_(output)
{
    check_words("events", events, {"LIFECYCLE", "ALL"});
    check_words("verbose", verbose, {"buffers"});
    lifecycle_ = !events.empty();
    buffers_ = !verbose.empty();
    const long long ms = std::chrono::duration_cast<milliseconds>(base_.time_since_epoch()).count();
    char first[64];
    std::snprintf(first, sizeof first, "V|1|base_timestamp=%lld.%03lld", ms / 1000, ms % 1000);
    file_.line(first);
}

/* ---- communicators ---- */

void Clog::register_with_comm(const TorchComm::Ptr &comm)
{
    watch(comm, false);
}

void Clog::watch(const TorchComm::Ptr &comm, bool introduced)
{
    auto member = std::make_shared<Member>(Member{name_in_log(comm->name()), comm, introduced});
    {
        std::lock_guard<std::mutex> guard(mutex_);
        for (const auto &known : comms_)
            TORCH_CHECK(known.lock() != comm, "tutti: clog is registered with communicator '", comm->name(),
                        "' already");
        comms_.push_back(comm);
        n_alive_++;
        if (comm->rank() >= 0) introduce(*member); /* else at the first call: it has no members yet */
    }
    auto self = shared_from_this();
    comm->register_pre_hook(
        [self, member](uint64_t op_id, const Request &request) { self->before(*member, op_id, request); });
    comm->register_post_hook([self, member](uint64_t op_id, const Outcome &outcome) {
        if (outcome.name == OpName::finalize)
            self->finish(member->name);
        else
            self->after(op_id, outcome);
    });
}

void Clog::introduce(Member &member)
{
    const TorchComm::Ptr comm = member.comm.lock();
    if (member.introduced || !comm) return;
    member.introduced = true;
    file_.line(c10::str("new_comm|comm=", member.name, "|rank=", comm->rank(), "|world_size=", comm->size()));
}

/* ---- calls ---- */

void Clog::put_event(uint64_t kind, std::string_view event, Clock::time_point at)
{
    const int64_t ms = std::chrono::duration_cast<milliseconds>(at - base_).count();
    const auto passed = uint64_t(std::max<int64_t>(0, ms)); /* clocks are set back */
    line_.assign(1, 'C');
    put_number(line_, kind);
    ((line_ += '|') += event) += "|+";
    put_number(line_, passed / 1000);
    const char part[] = {'.', char('0' + passed / 100 % 10), char('0' + passed / 10 % 10), char('0' + passed % 10)};
    line_.append(part, sizeof part);
    file_.line(line_);
}

void Clog::before(Member &member, uint64_t op_id, const Request &request)
{
    if (request.name == OpName::new_window || request.name == OpName::finalize) return;
    look();
    thread_local std::string signature;
    signature.clear();
    if (request.name == OpName::split) {
        std::lock_guard<std::mutex> guard(mutex_);
        file_.line(c10::str("split|parent=", member.name, "|child=", name_in_log(request.new_name),
                            "|ranks=", c10::Join(",", request.ranks)));
        return;
    }
    put_signature(signature, request, buffers_);
    (signature += "|comm=") += member.name;
    Logged logged{};
    {
        std::lock_guard<std::mutex> guard(mutex_);
        introduce(member);
        auto known = kinds_.find(signature);
        if (known == kinds_.end()) {
            known = kinds_.emplace(signature, kinds_.size() + 1).first;
            file_.line(c10::str("C", known->second, "|sig|", signature));
        }
        logged = {known->second, ++n_works_, Clock::now()};
        thread_local std::string asked;
        asked.assign("Q|work_id=");
        put_number(asked, logged.work);
        put_event(logged.kind, asked, logged.begun);
        if (lifecycle_) put_event(logged.kind, "S", logged.begun);
    }
    if (std::optional<Logged> failed = begun_.put(this, op_id, logged)) {
        std::lock_guard<std::mutex> guard(mutex_);
        file_.line(c10::str("WARN|failed work_id=", failed->work, "|corr_id=", failed->kind));
    }
}

void Clog::after(uint64_t op_id, const Outcome &outcome)
{
    if (outcome.name == OpName::split && outcome.comm) watch(outcome.comm, true);
    const std::optional<Logged> logged = begun_.take(this, op_id);
    if (!logged || !lifecycle_) return;
    if (outcome.work && outcome.work->c10d_work()) return follow(*logged, outcome.work);
    std::lock_guard<std::mutex> guard(mutex_);
    put_event(logged->kind, "E", Clock::now());
}

void Clog::follow(const Logged &call, const TorchComm::WorkPtr &work)
{
    {
        std::lock_guard<std::mutex> guard(mutex_);
        awaited_.emplace(call.work, Awaited{call, true, true});
        flying_.emplace_back(work);
        any_flying_ = true;
    }
    auto self = shared_from_this();
    work->on_wait([self, id = call.work] { self->put_late(id, &Awaited::wait, "W", Clock::now()); });
    work->on_seen_end([self, call](std::chrono::nanoseconds duration) {
        const auto took = std::chrono::duration_cast<Clock::duration>(duration);
        const Clock::time_point now = Clock::now(), end = call.begun + took;
        self->put_late(call.work, &Awaited::end, "E", took.count() > 0 ? std::min(now, end) : now);
    });
}

/* What is asked may be over, and then tells. */
void Clog::look()
{
    while (C10_UNLIKELY(any_flying_.load(std::memory_order_relaxed))) {
        TorchComm::WorkPtr first;
        {
            std::lock_guard<std::mutex> guard(mutex_);
            while (!flying_.empty() && !(first = flying_.front().lock())) flying_.pop_front();
            any_flying_ = !flying_.empty();
        }
        if (!first || !first->is_completed()) return;
        std::lock_guard<std::mutex> guard(mutex_);
        if (!flying_.empty() && flying_.front().lock() == first) flying_.pop_front();
        any_flying_ = !flying_.empty();
    }
}

void Clog::put_late(uint64_t work, bool Awaited::*which, std::string_view event, Clock::time_point at)
{
    std::lock_guard<std::mutex> guard(mutex_);
    auto found = awaited_.find(work);
    if (found == awaited_.end()) return;
    Awaited &awaited = found->second;
    if (std::exchange(awaited.*which, false)) put_event(awaited.call.kind, event, at);
    if (!awaited.end && !awaited.wait) awaited_.erase(found);
}

/* The last one's end tells of calls that nobody waited for, or that never ended. */
void Clog::finish(const std::string &comm)
{
    look();
    std::lock_guard<std::mutex> guard(mutex_);
    if (n_alive_ == 0 || --n_alive_ > 0) return;
    for (const auto &[work, awaited] : awaited_)
        file_.line(c10::str("WARN|comm=", comm, "|leaked work_id=", work, "|corr_id=", awaited.call.kind,
                            "|pending_events=", awaited.end ? "E" : "", awaited.end && awaited.wait ? "," : "",
                            awaited.wait ? "W" : ""));
    awaited_.clear();
}

} // namespace tutti_torch
