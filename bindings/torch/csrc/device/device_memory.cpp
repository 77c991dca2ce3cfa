/* SPDX-License-Identifier: BSD-3-Clause */

/* The segments that PyTorch's allocator has, and their windows. */

#include "device/device_memory.hpp"

#include "base/native.hpp"
#include "base/process.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace tutti_torch
{
namespace
{

/* A communicator's, over a segment. It does not hold the communicator, which takes its mappings along when it goes. */
struct MemoryWindow {
    struct Destroy {
        void operator()(tutti_window *window) const { tutti_window_destroy(window); }
    };
    std::weak_ptr<Comm> comm;
    std::unique_ptr<tutti_window, Destroy> handle;
};

/* It holds the communicator that it was taken from: it can be given back when its group is gone. */
struct Segment {
    Segment(std::shared_ptr<Comm> from, uint64_t nth, void *at, size_t size)
        : comm(std::move(from)), number(nth), memory(at), bytes(size)
    {
    }
    ~Segment()
    {
        windows.clear();
        if (tutti_mem_free(comm->handle(), memory) < 0) TORCH_WARN(tutti_last_error()->text);
    }
    Segment(const Segment &) = delete;
    Segment &operator=(const Segment &) = delete;

    const std::shared_ptr<Comm> comm;
    const uint64_t number; /* in the order in which they were taken */
    void *const memory;
    const size_t bytes;
    std::vector<MemoryWindow> windows;
};
using SegmentPtr = std::shared_ptr<Segment>; /* what is being registered stays until that is over */

struct Segments {
    std::mutex mutex;
    std::map<int, std::weak_ptr<Comm>> serving; /* by device */
    std::unordered_map<uintptr_t, SegmentPtr> taken;
    uint64_t n_taken = 0;
};

/* Never destroyed: PyTorch's allocator gives back what it has when it is destroyed itself. */
Segments &segments()
{
    static auto *found = new Segments();
    return *found;
}

/* ---- registration ---- */

bool has_window(Segment &segment, const std::shared_ptr<Comm> &comm)
{
    auto &windows = segment.windows;
    auto is_over = [](const MemoryWindow &window) { return window.comm.expired(); };
    windows.erase(std::remove_if(windows.begin(), windows.end(), is_over), windows.end());
    auto is_of = [&comm](const MemoryWindow &window) {
        return !window.comm.owner_before(comm) && !comm.owner_before(window.comm);
    };
    return std::any_of(windows.begin(), windows.end(), is_of);
}

/* Those of the pieces in which the communicator has no window, as they were taken; *n_foreign are not ours. */
std::vector<SegmentPtr> without_window(const std::shared_ptr<Comm> &comm, const std::vector<uintptr_t> &pieces,
                                       int64_t *n_foreign)
{
    std::vector<SegmentPtr> found;
    std::lock_guard<std::mutex> guard(segments().mutex);
    for (uintptr_t piece : pieces) {
        auto known = segments().taken.find(piece);
        if (known == segments().taken.end())
            ++*n_foreign;
        else if (!has_window(*known->second, comm))
            found.push_back(known->second);
    }
    std::sort(found.begin(), found.end(), [](const auto &a, const auto &b) { return a->number < b->number; });
    return found;
}

/* The same number of values of each rank, one rank after the other. */
std::vector<int64_t> gather(Comm &comm, const std::vector<int64_t> &mine)
{
    std::vector<int64_t> all(mine.size() * size_t(tutti_comm_size(comm.handle())));
    check(tutti_all_gather(mine.data(), all.data(), mine.size(), TUTTI_INT64, comm.handle(), nullptr, nullptr));
    return all;
}

/* Each window is a call of all ranks: that they are about to make the same ones is found first, and where they are
 * not, all of them refuse. */
void agree(Comm &comm, const std::vector<SegmentPtr> &found, int64_t n_foreign)
{
    constexpr char hint[] = ": all ranks of the group allocate the same from the pool, in the same order";
    const std::vector<int64_t> counts = gather(comm, {n_foreign, int64_t(found.size())});
    for (size_t r = 0; r < counts.size() / 2; r++)
        TUTTI_CHECK_VALUE(counts[2 * r] == 0, "register_mem_pool: the pool of rank ", r,
                          " has memory that is not from the allocator of a tutti group");
    for (size_t r = 0; r < counts.size() / 2; r++)
        TUTTI_CHECK_VALUE(counts[2 * r + 1] == counts[1], "register_mem_pool: rank ", r, " has ", counts[2 * r + 1],
                          " segments to register, rank 0 has ", counts[1], hint);
    if (found.empty()) return;
    std::vector<int64_t> mine;
    for (const SegmentPtr &segment : found) mine.push_back(int64_t(segment->bytes));
    const std::vector<int64_t> sizes = gather(comm, mine);
    for (size_t i = 0; i < sizes.size(); i++)
        TUTTI_CHECK_VALUE(sizes[i] == sizes[i % mine.size()], "register_mem_pool: of the segments to register, ",
                          "number ", i % mine.size(), " has ", sizes[i], " bytes on rank ", i / mine.size(), " and ",
                          sizes[i % mine.size()], " on rank 0", hint);
}

} // namespace

void device_memory_serve(int device, const std::shared_ptr<Comm> &comm)
{
    std::lock_guard<std::mutex> guard(segments().mutex);
    segments().serving[device] = comm;
}

void *device_memory_take(size_t bytes, int device, void *)
{
    BesideCaptures beside;
    std::lock_guard<std::mutex> guard(segments().mutex);
    std::shared_ptr<Comm> comm = segments().serving[device].lock();
    if (!comm) {
        TORCH_WARN("tutti: the process group that served the memory of device ", device, " was destroyed");
        return nullptr;
    }
    void *memory = nullptr;
    if (tutti_mem_alloc(comm->handle(), bytes, &memory) < 0) {
        TORCH_WARN(tutti_last_error()->text);
        return nullptr;
    }
    segments().taken[uintptr_t(memory)] =
        std::make_shared<Segment>(std::move(comm), segments().n_taken++, memory, bytes);
    return memory;
}

void device_memory_give(void *memory, size_t, int, void *)
{
    BesideCaptures beside;
    SegmentPtr segment; /* ends without the lock: that may take a while */
    std::lock_guard<std::mutex> guard(segments().mutex);
    auto found = segments().taken.find(uintptr_t(memory));
    if (found == segments().taken.end()) return;
    segment = std::move(found->second);
    segments().taken.erase(found);
}

void device_memory_add_windows(const std::shared_ptr<Comm> &comm, const std::vector<uintptr_t> &pieces)
{
    BesideCaptures beside;
    int64_t n_foreign = 0;
    const std::vector<SegmentPtr> found = without_window(comm, pieces, &n_foreign);
    agree(*comm, found, n_foreign);
    for (const SegmentPtr &segment : found) {
        tutti_window *window = nullptr; /* without the lock: the others may be late */
        check(tutti_window_create(comm->handle(), segment->memory, segment->bytes, nullptr, &window));
        std::lock_guard<std::mutex> guard(segments().mutex);
        segment->windows.push_back({comm, decltype(MemoryWindow::handle)(window)});
    }
}

} // namespace tutti_torch
