/* SPDX-License-Identifier: BSD-3-Clause */

/* The segments that PyTorch's allocator has, and their windows. */

#include "device_memory.hpp"

#include "cuda.hpp"
#include "errors.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>

namespace tutti_torch
{
namespace
{

/* A segment holds its communicator: it can be given back when its group is gone. */
struct Segment {
    std::shared_ptr<Comm> comm;
    uint64_t number; /* in the order in which they were taken */
    tutti_window *window;
};

struct Segments {
    std::mutex mutex;
    std::map<int, std::weak_ptr<Comm>> serving; /* by device */
    std::unordered_map<uintptr_t, Segment> taken;
    uint64_t n_taken = 0;
};

/* Never destroyed: PyTorch's allocator gives back what it has when it is destroyed itself. */
Segments &segments()
{
    static auto *found = new Segments();
    return *found;
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
    segments().taken[uintptr_t(memory)] = {std::move(comm), segments().n_taken++, nullptr};
    return memory;
}

void device_memory_give(void *memory, size_t, int, void *)
{
    BesideCaptures beside;
    std::lock_guard<std::mutex> guard(segments().mutex);
    auto found = segments().taken.find(uintptr_t(memory));
    if (found == segments().taken.end()) return;
    Segment segment = std::move(found->second);
    segments().taken.erase(found);
    tutti_window_destroy(segment.window);
    if (tutti_mem_free(segment.comm->handle(), memory) < 0) TORCH_WARN(tutti_last_error()->text);
}

void device_memory_add_windows(Comm &comm, std::vector<std::pair<uintptr_t, size_t>> pieces)
{
    std::vector<std::pair<uint64_t, std::pair<uintptr_t, size_t>>> ordered;
    {
        std::lock_guard<std::mutex> guard(segments().mutex);
        for (const auto &piece : pieces) {
            auto known = segments().taken.find(piece.first);
            TORCH_CHECK_VALUE(known != segments().taken.end(),
                              "tutti: the pool has memory that is not from this allocator");
            if (!known->second.window) ordered.emplace_back(known->second.number, piece);
        }
    }
    std::sort(ordered.begin(), ordered.end());
    for (const auto &[number, piece] : ordered) {
        tutti_window *window = nullptr; /* without the lock: the others may be late */
        check(tutti_window_create(comm.handle(), reinterpret_cast<void *>(piece.first), piece.second, &window));
        std::unique_lock<std::mutex> guard(segments().mutex);
        auto known = segments().taken.find(piece.first);
        if (known != segments().taken.end()) {
            known->second.window = window;
            continue;
        }
        guard.unlock();
        tutti_window_destroy(window);
        TORCH_CHECK_VALUE(false, "tutti: memory of the pool was freed while it was being registered");
    }
}

} // namespace tutti_torch
