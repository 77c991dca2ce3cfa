/* SPDX-License-Identifier: BSD-3-Clause */

/* The flight recorder's files: written when a group fails, and when somebody asks for it at the process's pipe; and its
 * dump as JSON. */

#include "record/recorder.hpp"

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <poll.h>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace tutti_torch
{

namespace
{

class JsonText
{
  public:
    std::string out;

    void put(const c10::IValue &value)
    {
        if (value.isNone()) {
            out += "null";
        } else if (value.isBool()) {
            out += value.toBool() ? "true" : "false";
        } else if (value.isInt()) {
            out += std::to_string(value.toInt());
        } else if (value.isDouble()) {
            number(value.toDouble());
        } else if (value.isString()) {
            text(value.toStringRef());
        } else if (value.isTuple()) {
            items(value.toTupleRef().elements());
        } else if (value.isList()) {
            items(value.toListRef());
        } else {
            TORCH_CHECK(value.isGenericDict(), "no JSON for a ", value.tagKind());
            dict(value.toGenericDict());
        }
    }

  private:
    void text(const std::string &plain)
    {
        out += '"';
        for (const char c : plain) {
            char coded[8];
            std::snprintf(coded, sizeof coded, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
            if (c == '"' || c == '\\') {
                out += '\\';
                out += c;
            } else if (static_cast<unsigned char>(c) < 0x20) {
                out += coded;
            } else {
                out += c;
            }
        }
        out += '"';
    }

    void number(double given)
    {
        char digits[32];
        std::snprintf(digits, sizeof digits, "%.9g", given);
        out += std::isfinite(given) ? digits : "null";
    }

    template <typename Items> void items(const Items &all)
    {
        const char *before = "";
        out += '[';
        for (const auto &item : all) {
            out += before;
            put(item);
            before = ", ";
        }
        out += ']';
    }

    void dict(const c10::Dict<c10::IValue, c10::IValue> &all)
    {
        const char *before = "";
        out += '{';
        for (const auto &item : all) {
            out += before;
            text(item.key().toStringRef());
            out += ": ";
            put(item.value());
            before = ", ";
        }
        out += '}';
    }
};

} // namespace

std::string json_of(const c10::IValue &value)
{
    JsonText json;
    json.put(value);
    return std::move(json.out);
}

/* The flight recorder's files: written when a group fails, and when somebody asks for it at the process's pipe. */

/* A folder of the user's own: names in /tmp can be anybody's. */
std::string default_trace_prefix(const char *file)
{
    const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
    std::filesystem::path folder = cache  ? std::filesystem::path(cache) / "torch"
                                   : home ? std::filesystem::path(home) / ".cache" / "torch"
                                          : std::filesystem::path("/tmp");
    std::error_code ignored; /* seen when the file can not be opened */
    std::filesystem::create_directories(folder, ignored);
    return folder / file;
}

/* Under its name there is all of it, or nothing: somebody may wait for the name. */
bool write_whole(const std::string &path, const std::string &bytes)
{
    const std::string part = path + ".part";
    std::ofstream file(part, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), std::streamsize(bytes.size()));
    file.close();
    if (file && std::rename(part.c_str(), path.c_str()) == 0) return true;
    std::remove(part.c_str());
    return false;
}

static void write_file(Recorder &recorder, uint64_t rank)
{
    const char *given = variable({"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}, nullptr);
    const std::string path = c10::str(given ? given : default_trace_prefix("tutti_trace_rank_"), rank);
    if (write_whole(path, recorder.dump(flag({"TORCH_INCLUDE_ONLY_ACTIVE"}, false)))) {
        LOG(WARNING) << "tutti: the last calls of this rank are in " << path << ", to be read with torchfrtrace";
    } else {
        LOG(WARNING) << "tutti: the last calls of this rank can not be written to " << path;
    }
}

bool dump_is_asked_for()
{
    return flag({"TORCH_NCCL_DUMP_ON_TIMEOUT"}, false) ||
           variable({"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}, nullptr);
}

void Recorder::dump_on_error(RecordedGroup &group)
{
    if (!enabled() || !flag({"TORCH_NCCL_DUMP_ON_TIMEOUT"}, true) || group.dumped.exchange(true)) return;
    write_file(*this, group.ranks.at(size_t(group.rank)));
}

/* ---- the pipe ---- */

/* -1: it can not be made. Open for writing, too, so that it does not end when a writer goes. */
static int open_pipe(const std::string &path)
{
    struct stat there = {};
    if (lstat(path.c_str(), &there) == 0 && S_ISFIFO(there.st_mode)) unlink(path.c_str());
    if (mkfifo(path.c_str(), 0600) != 0) return -1;
    return open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
}

/* As long as the process lives: whatever is written, the file is. */
static void serve_pipe(int pipe, uint64_t rank)
{
    std::array<char, 256> words;
    for (;;) {
        pollfd wanted = {pipe, POLLIN, 0};
        if (poll(&wanted, 1, -1) < 0 && errno != EINTR) return;
        if (read(pipe, words.data(), words.size()) > 0) write_file(Recorder::get(), rank);
    }
}

void serve_dump_pipe(uint64_t rank)
{
    static std::atomic<pid_t> served{0};
    const char *given = variable({"TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"}, nullptr);
    if (!given || !*given || !Recorder::get().enabled() || served.exchange(getpid()) == getpid()) return;
    const std::string path = c10::str(given, rank, ".pipe");
    const int pipe = open_pipe(path);
    if (pipe < 0) {
        LOG(WARNING) << "tutti: the pipe " << path << " can not be made: " << std::generic_category().message(errno);
        return;
    }
    std::thread(serve_pipe, pipe, rank).detach();
}

} // namespace tutti_torch
