/* SPDX-License-Identifier: BSD-3-Clause */
/* Mail of the stand-in for NCCL: see mail.h. */

#include "mail.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

namespace standin
{
enum { ring_bytes = 1 << 16 };
struct mail::ring {
    std::atomic<uint64_t> written, read;
    char bytes[ring_bytes];
};
struct mail::page {
    std::atomic<uint32_t> n_here;
};

void nap()
{
    std::this_thread::sleep_for(std::chrono::microseconds(20));
}

std::string mail::make()
{
    const int file = memfd_create("nccl-standin", MFD_CLOEXEC);
    return file < 0 ? "" : "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file);
}

bool mail::open(const std::string &its_name, unsigned n_ranks, unsigned rank)
{
    const int file = ::open(its_name.c_str(), O_RDWR | O_CLOEXEC);
    name = its_name, n = n_ranks, me = rank, size = 4096 + (size_t)n * n * sizeof(ring);
    if (file < 0) return false;
    void *mapped = MAP_FAILED;
    if (ftruncate(file, (off_t)size) == 0) mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (mapped == MAP_FAILED) return false;
    base = static_cast<page *>(mapped);
    base->n_here++;
    return true;
}

bool mail::meet(const std::atomic<bool> &aborted)
{
    int maker, file;
    while (base->n_here < n && !aborted) nap();
    if (aborted) return false;
    if (me == 0 && sscanf(name.c_str(), "/proc/%d/fd/%d", &maker, &file) == 2 && maker == getpid()) ::close(file);
    return true;
}

void mail::close()
{
    munmap(base, size);
}

mail::ring *mail::ring_of(unsigned from, unsigned to) const
{
    char *rings = reinterpret_cast<char *>(base) + 4096;
    return reinterpret_cast<ring *>(rings) + ((size_t)from * n + to);
}

static void copy_in(char *ring, uint64_t at, const void *from, size_t bytes)
{
    const size_t first = std::min(bytes, (size_t)(ring_bytes - at % ring_bytes));
    memcpy(ring + at % ring_bytes, from, first);
    memcpy(ring, static_cast<const char *>(from) + first, bytes - first);
}

static void copy_out(void *to, const char *ring, uint64_t at, size_t bytes)
{
    const size_t first = std::min(bytes, (size_t)(ring_bytes - at % ring_bytes));
    memcpy(to, ring + at % ring_bytes, first);
    memcpy(static_cast<char *>(to) + first, ring, bytes - first);
}

bool mail::move(message *one) const
{
    ring *by = one->sends ? ring_of(me, one->peer) : ring_of(one->peer, me);
    const uint64_t at = one->sends ? by->written.load() : by->read.load();
    size_t room = one->sends ? ring_bytes - (at - by->read.load()) : by->written.load() - at;
    uint64_t length = one->bytes;
    if (one->done == 0) {
        if (room < sizeof length) return false;
        if (one->sends) copy_in(by->bytes, at, &length, sizeof length);
        if (!one->sends) copy_out(&length, by->bytes, at, sizeof length);
        if (length != one->bytes) return false;
        room = sizeof length;
    } else {
        char *from = one->at + (one->done - sizeof length);
        room = std::min(room, one->bytes + sizeof length - one->done);
        if (room == 0) return false;
        if (one->sends) copy_in(by->bytes, at, from, room);
        if (!one->sends) copy_out(from, by->bytes, at, room);
    }
    one->done += room;
    (one->sends ? by->written : by->read).store(at + room);
    return true;
}

/* Receives first: what is sent from where something is received to is gone, as with kernels it may be. */
bool mail::exchange(std::vector<message> messages, const std::atomic<bool> &aborted)
{
    std::stable_partition(messages.begin(), messages.end(), [](const message &one) { return !one.sends; });
    for (bool left = true; left && !aborted;) {
        std::set<std::pair<bool, unsigned>> busy; /* the first one of a pair's that is left */
        bool moved = false;
        left = false;
        for (message &one : messages) {
            if (one.done == one.bytes + sizeof(uint64_t)) continue;
            left = true;
            if (busy.insert({one.sends, one.peer}).second) moved |= move(&one);
        }
        if (left && !moved) nap();
    }
    return !aborted;
}
} // namespace standin
