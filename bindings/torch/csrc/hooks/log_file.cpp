/* SPDX-License-Identifier: BSD-3-Clause */

/* Files of lines, by mapped pieces. */

#include "hooks/log_file.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cerrno>
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

} // namespace tutti_torch
