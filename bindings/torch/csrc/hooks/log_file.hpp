/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* A file to which lines are appended, as cheap as memory: it is mapped, and grows by pieces of empty lines, so that
 * each line is there for readers at once, and still there when the process dies. Closing cuts off the empty lines. Not
 * thread-safe. */

#include <cstddef>
#include <string>
#include <string_view>

namespace tutti_torch
{

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

} // namespace tutti_torch
