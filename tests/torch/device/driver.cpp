/* SPDX-License-Identifier: BSD-3-Clause */

/* Threads and mappings. Nothing here is ever destroyed: streams may outlive everything but the process. */

#include "driver.hpp"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <stdexcept>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

namespace tuttidev
{
namespace
{

constexpr size_t arena_bytes = size_t(1) << 32;

[[noreturn]] void stop(const char *reason)
{
    std::fprintf(stderr, "tuttidev: %s\n", reason);
    std::abort();
}

/* The memory of a device at its two addresses. */
struct Arena {
    char *shown, *real;
    std::atomic<size_t> used{0};

    Arena()
    {
        int file = memfd_create("tuttidev", MFD_CLOEXEC);
        if (file < 0 || ftruncate(file, arena_bytes) != 0) stop("no memory");
        shown = static_cast<char *>(mmap(nullptr, arena_bytes, PROT_NONE, MAP_SHARED, file, 0));
        real = static_cast<char *>(mmap(nullptr, arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
        if (shown == MAP_FAILED || real == MAP_FAILED) stop("no addresses");
        close(file);
    }
};

struct Queue {
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::function<void()>> work;
    bool started = false, working = false;
};

struct Machine {
    const pid_t pid = getpid();
    std::array<Arena, n_devices> arenas;
    std::array<std::array<Queue, n_streams>, n_devices> queues;
    std::array<std::atomic<int64_t>, n_devices> n_handed_out{};
    std::mutex pinned_mutex;
    std::map<const char *, size_t> pinned;
    std::atomic<int64_t> copy_delay{0};
};

thread_local bool is_stream = false;
thread_local int device_now = 0;
thread_local std::array<int64_t, n_devices> streams_now{};

Machine &machine()
{
    static Machine *the = new Machine;
    if (the->pid != getpid()) stop("used before and after a fork");
    return *the;
}

Queue &queue_of(int device, int64_t stream)
{
    return machine().queues.at(size_t(device)).at(size_t(stream));
}

void run(Queue &queue)
{
    is_stream = true;
    std::unique_lock<std::mutex> lock(queue.mutex);
    for (;;) {
        queue.working = false;
        queue.wake.wait(lock, [&] { return !queue.work.empty(); });
        queue.working = true;
        std::function<void()> work = std::move(queue.work.front());
        queue.work.pop_front();
        lock.unlock();
        work();
        work = nullptr;
        lock.lock();
    }
}

} // namespace

bool is_broken(const char *what)
{
    const char *broken = std::getenv("TUTTIDEV_BREAK");
    return broken && std::strcmp(broken, what) == 0;
}

/* ---- memory ---- */

void *reserve(int device, size_t bytes)
{
    Arena &arena = machine().arenas.at(size_t(device));
    size_t offset = arena.used.fetch_add((bytes + 511) / 512 * 512);
    if (offset + bytes > arena_bytes) throw std::bad_alloc();
    return arena.shown + offset;
}

c10::DataPtr take_from_pool(size_t, int)
{
    return {}; /* it has none */
}

int device_of(const void *address)
{
    for (int device = 0; device < n_devices; device++) {
        const Arena &arena = machine().arenas[size_t(device)];
        if (address >= arena.shown && address < arena.shown + arena_bytes) return device;
    }
    return -1;
}

void *resolve(void *address)
{
    if (!is_stream) stop("memory of the device is used by a thread of the host");
    int device = device_of(address);
    if (device < 0) stop("a stream was given an address that is not the device's");
    const Arena &arena = machine().arenas[size_t(device)];
    return arena.real + (static_cast<char *>(address) - arena.shown);
}

void *take_pinned(size_t bytes)
{
    void *address = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!address) throw std::bad_alloc();
    Machine &m = machine();
    std::lock_guard<std::mutex> guard(m.pinned_mutex);
    m.pinned[static_cast<char *>(address)] = bytes;
    return address;
}

void give_pinned(void *address)
{
    Machine &m = machine();
    {
        std::lock_guard<std::mutex> guard(m.pinned_mutex);
        m.pinned.erase(static_cast<char *>(address));
    }
    std::free(address);
}

bool is_pinned(const void *address)
{
    Machine &m = machine();
    std::lock_guard<std::mutex> guard(m.pinned_mutex);
    auto after = m.pinned.upper_bound(static_cast<const char *>(address));
    if (after == m.pinned.begin()) return false;
    --after;
    return address < after->first + after->second;
}

/* ---- streams ---- */

Mark::~Mark() = default;

void Mark::reach()
{
    {
        std::lock_guard<std::mutex> guard(mutex_);
        reached_ = true;
    }
    changed_.notify_all();
}

bool Mark::is_reached() const
{
    std::lock_guard<std::mutex> guard(mutex_);
    return reached_ || is_broken("query");
}

void Mark::wait() const
{
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return reached_; });
}

void enqueue(int device, int64_t stream, std::function<void()> work)
{
    Queue &queue = queue_of(device, stream);
    std::lock_guard<std::mutex> guard(queue.mutex);
    if (!queue.started) std::thread([&queue] { run(queue); }).detach();
    queue.started = true;
    queue.work.push_back(std::move(work));
    queue.wake.notify_one();
}

MarkPtr mark(int device, int64_t stream)
{
    auto point = std::make_shared<Mark>();
    enqueue(device, stream, [point] { point->reach(); });
    return point;
}

void wait_for(int device, int64_t stream, MarkPtr event)
{
    if (is_broken("wait")) return;
    enqueue(device, stream, [event = std::move(event)] { event->wait(); });
}

void synchronize(int device, int64_t stream)
{
    mark(device, stream)->wait();
}

bool is_idle(int device, int64_t stream)
{
    Queue &queue = queue_of(device, stream);
    std::lock_guard<std::mutex> guard(queue.mutex);
    return queue.work.empty() && !queue.working;
}

int64_t next_stream(int device)
{
    return 1 + machine().n_handed_out.at(size_t(device))++ % (n_streams - 1);
}

/* Without graphs. */
void begin_capture(int64_t, int64_t)
{
    stop("there are no graphs");
}

int64_t end_capture(int64_t, int64_t)
{
    stop("there are no graphs");
}

void replay(int64_t, int64_t, int64_t)
{
    stop("there are no graphs");
}

int current_device()
{
    return device_now;
}

void set_current_device(int device)
{
    if (device < 0 || device >= n_devices) throw std::out_of_range("tuttidev: no such device");
    device_now = device;
}

int64_t current_stream(int device)
{
    return streams_now.at(size_t(device));
}

void set_current_stream(int device, int64_t stream)
{
    streams_now.at(size_t(device)) = stream;
}

void set_copy_delay(int64_t milliseconds)
{
    machine().copy_delay = milliseconds;
}

void delay_copy()
{
    std::this_thread::sleep_for(std::chrono::milliseconds(machine().copy_delay.load()));
}

} // namespace tuttidev
