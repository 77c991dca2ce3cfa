/* SPDX-License-Identifier: BSD-3-Clause */

/* Pools of memory as torch.cuda.MemPool has them: segments that come from, and go back to, functions of somebody
 * else's, and are cut into tensors. What was cut off is not used again; a segment goes back when its pool and the
 * tensors in it are gone. */

#include "driver.hpp"

#include <torch/library.h>

#include <map>
#include <vector>

namespace tuttidev
{
namespace
{

using Take = void *(size_t, int, void *);
using Give = void(void *, size_t, int, void *);

constexpr size_t segment_unit = size_t(2) << 20, tensor_unit = 512;

size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

class Segment
{
  public:
    Segment(Take *take, Give *give, size_t size, int device)
        : bytes(size), memory(static_cast<char *>(take(size, device, nullptr))), give_(give), device_(device)
    {
        TORCH_CHECK(memory, "tuttidev: the pool has no memory");
    }
    ~Segment()
    {
        for (int64_t stream = 0; stream < n_streams; stream++) synchronize(device_, stream);
        give_(memory, bytes, device_, nullptr);
    }
    Segment(const Segment &) = delete;
    Segment &operator=(const Segment &) = delete;

    /* Null when it does not fit. */
    void *cut(size_t size, int device)
    {
        if (device != device_ || size > bytes - used_) return nullptr;
        used_ += size;
        return memory + used_ - size;
    }

    const size_t bytes;
    char *const memory;

  private:
    Give *const give_;
    const int device_;
    size_t used_ = 0;
};
using SegmentPtr = std::shared_ptr<Segment>;

struct Pool {
    Take *take;
    Give *give;
    std::vector<SegmentPtr> segments;
};

std::mutex lock;
std::map<int64_t, Pool> pools;
int64_t n_pools = 0;
thread_local int64_t pool_now = 0; /* none */

int64_t make_pool(int64_t take, int64_t give)
{
    std::lock_guard<std::mutex> guard(lock);
    pools[++n_pools] = {reinterpret_cast<Take *>(take), reinterpret_cast<Give *>(give), {}};
    return n_pools;
}

void drop_pool(int64_t pool)
{
    std::vector<SegmentPtr> ended; /* without the lock */
    std::lock_guard<std::mutex> guard(lock);
    ended = std::move(pools.at(pool).segments);
    pools.erase(pool);
}

int64_t use_pool(int64_t pool)
{
    return std::exchange(pool_now, pool);
}

/* Address and size of each. */
std::vector<int64_t> segments_of(int64_t pool)
{
    std::lock_guard<std::mutex> guard(lock);
    std::vector<int64_t> found;
    for (const SegmentPtr &segment : pools.at(pool).segments)
        found.insert(found.end(), {int64_t(segment->memory), int64_t(segment->bytes)});
    return found;
}

} // namespace

c10::DataPtr take_from_pool(size_t bytes, int device)
{
    if (pool_now == 0) return {};
    std::lock_guard<std::mutex> guard(lock);
    Pool &pool = pools.at(pool_now);
    bytes = round_up(bytes, tensor_unit);
    void *memory = pool.segments.empty() ? nullptr : pool.segments.back()->cut(bytes, device);
    if (!memory) {
        const size_t whole = round_up(bytes, segment_unit);
        pool.segments.push_back(std::make_shared<Segment>(pool.take, pool.give, whole, device));
        memory = pool.segments.back()->cut(bytes, device);
    }
    auto let_go = [](void *held) { delete static_cast<SegmentPtr *>(held); };
    return {memory, new SegmentPtr(pool.segments.back()), let_go, c10::Device(kind, c10::DeviceIndex(device))};
}

TORCH_LIBRARY_FRAGMENT(tuttidev, m)
{
    m.def("make_pool(int take, int give) -> int", make_pool);
    m.def("drop_pool(int pool) -> ()", drop_pool);
    m.def("use_pool(int pool) -> int", use_pool);
    m.def("segments_of(int pool) -> int[]", segments_of);
}

} // namespace tuttidev
