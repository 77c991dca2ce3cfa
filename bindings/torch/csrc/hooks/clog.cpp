/* SPDX-License-Identifier: BSD-3-Clause */

/* The log of calls: its file, what calls are called in it, and which lines are written when. */

#include "hooks/hooks.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace tutti_torch
{

static constexpr size_t log_piece = size_t(1) << 18; /* a multiple of all page sizes */

LogFile::LogFile(const std::string &path)
    : path_(path), fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666))
{
    TORCH_CHECK(fd_ >= 0, "tutti: the log ", path, " can not be written: ", std::strerror(errno));
}

LogFile::~LogFile()
{
    if (memory_) ::munmap(memory_, piece_);
    if (fd_ < 0) return;
    if (::ftruncate(fd_, off_t(base_ + used_)) != 0) { /* it ends with empty lines */
    }
    ::close(fd_);
}

/* The rest of a piece stays empty lines when the next line does not fit; that is seldom, and read as nothing. */
bool LogFile::grow(size_t bytes)
{
    if (fd_ < 0) return false;
    const size_t base = base_ + piece_, piece = (bytes + log_piece - 1) / log_piece * log_piece;
    void *memory = MAP_FAILED;
    const int error = ::posix_fallocate(fd_, off_t(base), off_t(piece)); /* else a full disk would be a signal */
    if (error == 0) memory = ::mmap(nullptr, piece, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, off_t(base));
    if (memory == MAP_FAILED) {
        TORCH_WARN("tutti: the log ", path_, " ends here: ", std::strerror(error ? error : errno));
        ::close(fd_);
        fd_ = -1;
        return false;
    }
    std::memset(memory, '\n', piece);
    if (memory_) ::munmap(memory_, piece_);
    memory_ = static_cast<char *>(memory);
    base_ = base;
    piece_ = piece;
    used_ = 0;
    return true;
}

void LogFile::line(std::string_view text)
{
    if (used_ + text.size() + 1 > piece_ && !grow(text.size() + 1)) return;
    std::memcpy(memory_ + used_, text.data(), text.size());
    used_ += text.size() + 1; /* its end is there already */
}

static void put_number(std::string &out, uint64_t number)
{
    char digits[24];
    out.append(digits, size_t(std::to_chars(digits, digits + sizeof digits, number).ptr - digits));
}

/* Signatures: the forms in the table of operations say which fields each call has. */

namespace
{

constexpr const char *log_ops[] = {"sum", "prod", "min", "max", "band", "bor", "bxor", "premul_sum", "avg"};

const char *log_type(const Request &request)
{
    static const std::pair<c10::ScalarType, const char *> types[] = {
        {c10::kFloat, "f32"},
        {c10::kDouble, "f64"},
        {c10::kHalf, "f16"},
        {c10::kBFloat16, "bf16"},
        {c10::kInt, "i32"},
        {c10::kLong, "i64"},
        {c10::kShort, "i16"},
        {c10::kChar, "i8"},
        {c10::kByte, "u8"},
        {c10::kBool, "bool"},
        {c10::kFloat8_e4m3fn, "fp8e4m3"},
        {c10::kFloat8_e5m2, "fp8e5m2"},
    };
    const Tensors &tensors = request.inputs.empty() ? request.outputs : request.inputs;
    if (tensors.empty()) return "other";
    const c10::ScalarType wanted = tensors[0].scalar_type();
    const auto *found =
        std::find_if(std::begin(types), std::end(types), [&](const auto &row) { return row.first == wanted; });
    return found == std::end(types) ? "other" : found->second;
}

template <typename Items, typename Put> void put_items(std::string &out, const Items &items, Put put)
{
    bool first = true;
    for (const auto &item : items) {
        if (!first) out += ',';
        put(item);
        first = false;
    }
}

/* How one side of a call is counted; `one` and `many` are the letters of its tensors in the form. */
void put_side(std::string &out, const char *word, const OpRow &row, char one, char many, const Tensors &tensors,
              const Splits &splits)
{
    if (*row.form == '\0') return; /* a barrier, or no call */
    const bool has_one = row.has(one) || row.has('t');
    out += '|';
    out += word;
    if (row.has('s')) {
        put_items(out += "_splits=", splits, [&](uint64_t n) { put_number(out, n); });
    } else if (row.has(many)) {
        put_items(out += "_counts=", tensors, [&](const Tensor &tensor) { put_number(out, uint64_t(tensor.numel())); });
    } else {
        put_number(out += "_count=", has_one && !tensors.empty() ? uint64_t(tensors[0].numel()) : 0);
    }
}

void put_addresses(std::string &out, const char *word, const Tensors &tensors)
{
    if (tensors.empty()) return;
    out += '|';
    out += word;
    put_items(out, tensors, [&](const Tensor &tensor) {
        char digits[20];
        const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
        out += "0x";
        out.append(digits, size_t(std::to_chars(digits, digits + sizeof digits, address, 16).ptr - digits));
    });
}

} // namespace

static std::string name_in_log(const std::string &name)
{
    std::string clean = name;
    for (char &c : clean)
        if (c == '|' || c == '\n' || c == '\r') c = '_';
    return clean;
}

static void put_signature(std::string &out, const Request &request, bool buffers)
{
    const OpRow &row = row_of(request.name);
    out += row.name;
    if (request.name == OpName::batch_op_issue) {
        out += "|num_ops=";
        put_number(out, request.parts.size());
    }
    put_side(out, "in", row, 'i', 'I', request.inputs, request.input_splits);
    put_side(out, "out", row, 'o', 'O', request.outputs, request.output_splits);
    if (*row.form) (out += "|dtype=") += log_type(request);
    if (row.has('r')) (out += "|red_op=") += log_ops[size_t(request.op.type)];
    if (row.has('p')) {
        out += is_message(request.name) ? "|peer=" : "|root=";
        put_number(out, uint64_t(std::max(0, request.peer)));
    }
    out += request.async_op ? "|async_op=t" : "|async_op=f";
    if (!buffers) return;
    put_addresses(out, row.has('t') ? "buf=" : "in=", request.inputs);
    if (!row.has('t')) put_addresses(out, "out=", request.outputs);
}

/* The log of calls: which lines are written when. */

static void check_words(const char *argument, const std::vector<std::string> &given,
                        std::initializer_list<const char *> known)
{
    for (const std::string &word : given) {
        const bool found = std::any_of(known.begin(), known.end(), [&](const char *each) { return word == each; });
        TORCH_CHECK_VALUE(found, "tutti: clog: ", argument, " has '", word, "'; it knows ", c10::Join(" and ", known));
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
