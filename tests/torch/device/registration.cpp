/* SPDX-License-Identifier: BSD-3-Clause */

/* The test device as PyTorch's "PrivateUse1", or as CUDA's or Intel's: its caching allocator, its guard (streams,
 * events) and its hooks. */

#include "driver.hpp"

#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/detail/XPUHooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace tuttidev
{

static std::atomic<bool> failed{false};

void fail_for_good()
{
    failed = true;
}

void check_device()
{
    TORCH_CHECK(!failed, "CUDA error: an illegal memory access was encountered");
}

namespace
{

constexpr auto type = kind;

int index_of(c10::Device device)
{
    return device.has_index() ? device.index() : current_device();
}

/* ---- device memory: freed blocks are used again at once, by the stream that they were taken on ---- */

struct Block {
    void *address;
    size_t bytes;
    int device;
    int64_t stream;
    std::set<int64_t> others; /* streams that use it too */
};

class Allocator final : public c10::Allocator
{
  public:
    c10::DataPtr allocate(size_t bytes) override
    {
        int device = current_device();
        if (bytes == 0) return {nullptr, c10::Device(type, c10::DeviceIndex(device))};
        if (c10::DataPtr given = take_from_pool(bytes, device)) return given;
        Block *block = take(device, current_stream(device), (bytes + 511) / 512 * 512);
        return {block->address, block, let_go, c10::Device(type, c10::DeviceIndex(device))};
    }

    c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

    void copy_data(void *to, const void *from, size_t bytes) const override
    {
        int device = device_of(to);
        int64_t stream = current_stream(device);
        enqueue(device, stream, [=] { std::memcpy(resolve(to), resolve(const_cast<void *>(from)), bytes); });
        synchronize(device, stream);
    }

    void record(const c10::DataPtr &data, const c10::Stream &stream)
    {
        if (data.get_deleter() != let_go || is_broken("record")) return; /* pools wait for all streams */
        auto *block = static_cast<Block *>(data.get_context());
        std::lock_guard<std::mutex> guard(mutex_);
        if (stream.id() != block->stream) block->others.insert(stream.id());
    }

    static Allocator &get()
    {
        static Allocator *the = new Allocator;
        return *the;
    }

  private:
    using Key = std::tuple<int, int64_t, size_t>;

    static void let_go(void *block) { get().release(static_cast<Block *>(block)); }

    Block *take(int device, int64_t stream, size_t bytes)
    {
        std::lock_guard<std::mutex> guard(mutex_);
        settle();
        std::vector<Block *> &free = free_[Key(device, stream, bytes)];
        if (free.empty()) return new Block{reserve(device, bytes), bytes, device, stream, {}};
        Block *block = free.back();
        free.pop_back();
        return block;
    }

    void release(Block *block)
    {
        std::lock_guard<std::mutex> guard(mutex_);
        std::vector<MarkPtr> marks;
        for (int64_t stream : block->others) marks.push_back(mark(block->device, stream));
        block->others.clear();
        in_use_.emplace_back(block, std::move(marks));
        settle();
    }

    /* Blocks that no stream uses any more are free. */
    void settle()
    {
        for (auto entry = in_use_.begin(); entry != in_use_.end();) {
            auto &[block, marks] = *entry;
            while (!marks.empty() && marks.back()->is_reached()) marks.pop_back();
            if (marks.empty()) {
                free_[Key(block->device, block->stream, block->bytes)].push_back(block);
                entry = in_use_.erase(entry);
            } else {
                ++entry;
            }
        }
    }

    std::mutex mutex_;
    std::map<Key, std::vector<Block *>> free_;
    std::vector<std::pair<Block *, std::vector<MarkPtr>>> in_use_;
};

/* ---- host memory ---- */

class PinnedAllocator final : public c10::Allocator
{
  public:
    c10::DataPtr allocate(size_t bytes) override
    {
        if (is_broken("pinned")) TORCH_CHECK(false, "tuttidev: no pinned memory is left");
        void *address = take_pinned(bytes);
        return {address, address, give_pinned, c10::Device(c10::kCPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return give_pinned; }
    void copy_data(void *to, const void *from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

/* ---- streams and events ---- */

struct Event {
    MarkPtr mark;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override { return tuttidev::type; }

    c10::Device getDevice() const override { return {tuttidev::type, c10::DeviceIndex(current_device())}; }
    void setDevice(c10::Device device) const override { set_current_device(device.index()); }
    void uncheckedSetDevice(c10::Device device) const noexcept override { set_current_device(device.index()); }
    c10::Device exchangeDevice(c10::Device device) const override
    {
        c10::Device before = getDevice();
        setDevice(device);
        return before;
    }
    c10::DeviceIndex deviceCount() const noexcept override { return n_devices; }

    static c10::Stream stream(c10::Device device, int64_t id)
    {
        c10::Device exact(tuttidev::type, c10::DeviceIndex(index_of(device)));
        return c10::Stream(c10::Stream::UNSAFE, exact, id);
    }
    c10::Stream getStream(c10::Device device) const override
    {
        return stream(device, current_stream(index_of(device)));
    }
    c10::Stream getDefaultStream(c10::Device device) const override { return stream(device, 0); }
    c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override
    {
        return stream(device, next_stream(index_of(device)));
    }
    c10::Stream getNewStream(c10::Device device, int) const override
    {
        return stream(device, next_stream(index_of(device)));
    }
    c10::Stream exchangeStream(c10::Stream to) const override
    {
        c10::Stream before = getStream(to.device());
        set_current_stream(to.device_index(), to.id());
        return before;
    }
#ifdef TUTTIDEV_XPU
    /* From 2.11 on; versions before, and TUTTIDEV_HANDLES=no, leave it to the method of XPUStream. */
    void *getStreamNativeHandle(const c10::Stream stream) const
    {
        const char *told = std::getenv("TUTTIDEV_HANDLES");
        return told && std::strcmp(told, "no") == 0 ? nullptr : native_of(stream);
    }
#endif
    bool queryStream(const c10::Stream &stream) const override
    {
        return is_idle(stream.device_index(), stream.id());
    }
    void synchronizeStream(const c10::Stream &stream) const override
    {
        synchronize(stream.device_index(), stream.id());
    }
    void synchronizeDevice(c10::DeviceIndex device) const override
    {
        for (int64_t id = 0; id < n_streams; id++) synchronize(device, id);
    }

    void record(void **event, const c10::Stream &stream, c10::DeviceIndex, c10::EventFlag) const override
    {
        if (!*event) *event = new Event;
        static_cast<Event *>(*event)->mark = mark(stream.device_index(), stream.id());
    }
    void block(void *event, const c10::Stream &stream) const override
    {
        wait_for(stream.device_index(), stream.id(), static_cast<Event *>(event)->mark);
    }
    bool queryEvent(void *event) const override
    {
        check_device();
        return static_cast<Event *>(event)->mark->is_reached();
    }
    void synchronizeEvent(void *event) const override
    {
        static_cast<Event *>(event)->mark->wait();
    }
#ifdef TUTTIDEV_STANDIN
    double elapsedTime(void *from, void *to, c10::DeviceIndex) const override
    {
        return milliseconds_between(*static_cast<Event *>(from)->mark, *static_cast<Event *>(to)->mark);
    }
#endif
    void destroyEvent(void *event, c10::DeviceIndex) const noexcept override
    {
        delete static_cast<Event *>(event);
    }

    void recordDataPtrOnStream(const c10::DataPtr &data, const c10::Stream &stream) const override
    {
        Allocator::get().record(data, stream);
    }
};

/* ---- hooks ---- */

/* Methods that a version of PyTorch lacks are simply not virtual there. */
template <typename Interface> struct HooksOf : Interface {
    bool isBuilt() const { return true; }
    bool isAvailable() const { return true; }
    bool hasPrimaryContext(c10::DeviceIndex) const { return true; }
    c10::DeviceIndex deviceCount() const { return n_devices; }
    c10::DeviceIndex getCurrentDevice() const { return c10::DeviceIndex(current_device()); }
    void setCurrentDevice(c10::DeviceIndex device) const { set_current_device(device); }
    c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const
    {
        c10::DeviceIndex before = getCurrentDevice();
        set_current_device(device);
        return before;
    }
    c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const { return exchangeDevice(device); }
    at::Device getDeviceFromPtr(void *data) const { return {type, c10::DeviceIndex(device_of(data))}; }
    bool isPinnedPtr(const void *data) const { return is_pinned(data); }
    c10::Allocator *getPinnedMemoryAllocator() const
    {
        static auto *the = new PinnedAllocator;
        return the;
    }
};

#if defined(TUTTIDEV_XPU)
struct XPUHooks final : HooksOf<at::XPUHooksInterface> {
    explicit XPUHooks(at::XPUHooksArgs = {}) {}
    void init() const {}
    bool hasXPU() const { return true; }
    std::string showConfig() const { return "stand-in"; }
    int32_t getGlobalIdxFromDevice(const at::Device &device) const { return device.index(); }
    c10::DeviceIndex getNumGPUs() const { return n_devices; }
    c10::DeviceIndex current_device() const { return getCurrentDevice(); }
    void deviceSynchronize(c10::DeviceIndex device) const { Guard().synchronizeDevice(device); }
};
#elif defined(TUTTIDEV_CUDA)
struct CUDAHooks final : HooksOf<at::CUDAHooksInterface> {
    explicit CUDAHooks(at::CUDAHooksArgs = {}) {}
    void init() const {}
    bool hasCUDA() const { return true; }
    int getNumGPUs() const { return n_devices; }
    c10::DeviceIndex current_device() const { return getCurrentDevice(); }
    void deviceSynchronize(c10::DeviceIndex device) const { Guard().synchronizeDevice(device); }
};
#else
struct Hooks final : HooksOf<at::PrivateUse1HooksInterface> {
    void resizePrivateUse1Bytes(const c10::Storage &storage, size_t bytes) const
    {
        size_t kept = std::min(bytes, storage.nbytes());
        set_current_device(storage.device().index());
        c10::DataPtr data = Allocator::get().allocate(bytes);
        if (kept > 0) Allocator::get().copy_data(data.get(), storage.data(), kept);
        storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(data));
        storage.unsafeGetStorageImpl()->set_nbytes(bytes);
    }
};
#endif

const c10::impl::DeviceGuardImplRegistrar guard(type, new Guard);
const bool registered = [] {
    c10::SetAllocator(type, &Allocator::get());
#ifndef TUTTIDEV_STANDIN
    at::RegisterPrivateUse1HooksInterface(new Hooks);
#endif
    return true;
}();

} // namespace
} // namespace tuttidev

#ifdef TUTTIDEV_STANDIN
/* What DDP measures its steps by: here the host's times. */
namespace c10d
{
namespace
{
class HostTimer final : public Timer
{
  public:
    explicit HostTimer(c10::Device) {}
    std::optional<int64_t> measureDifference(Event begin, Event end) override
    {
        const int64_t from = getTimeRef(begin), to = getTimeRef(end);
        return from < to ? std::optional<int64_t>(to - from) : std::nullopt;
    }
};
C10_REGISTER_TYPED_CLASS(TimerRegistry, tuttidev::kind, HostTimer);
} // namespace
} // namespace c10d

namespace at
{
namespace
{
#ifdef TUTTIDEV_CUDA
using tuttidev::CUDAHooks; /* PyTorch asks for this name */
REGISTER_CUDA_HOOKS(CUDAHooks);
#else
using tuttidev::XPUHooks;
REGISTER_XPU_HOOKS(XPUHooks);
#endif
} // namespace
} // namespace at
#endif
