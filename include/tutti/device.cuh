/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUH
#define TUTTI_DEVICE_CUH

/* One-sided communication from kernels: a window (tutti_window_device) in the hands of threads, warps and blocks. For
 * nvcc, compute capability 7.0 and later, C++17; needs nothing but <tutti/device.h>.
 *
 *     __global__ void halo(const __grid_constant__ tutti::device_window w, const float *row, size_t bytes, size_t at)
 *     {
 *         const int right = (w.rank() + 1) % w.num_ranks(), left = (w.rank() + w.num_ranks() - 1) % w.num_ranks();
 *         w.put_signal(at, row, right, bytes, 0, TUTTI_SIGNAL_ADD, 1, tutti::scope::block);
 *         if (w.wait_signal_from(left, 0, TUTTI_COMPARE_GE, 1, tutti::scope::block)) return;
 *         ... // what came lies at w.base() + at
 *     }
 *
 * Scope. With `thread` each thread's call is one of its own; with `warp` and `block` all threads of the warp (all 32)
 * or block make the call together, with the same arguments, and it is one call.
 *
 * Order. signal, put_signal and barrier come after everything that the callers stored before, at any peer; who has seen
 * the signal, or left the barrier, sees that. So does a whole block after a wait of scope block. Without one of them
 * puts have no order, and are there when the kernel is over, or after flush. Accesses of 4 and 8 bytes are whole,
 * others are not.
 *
 * TUTTI_SIGNAL_ADD, fetch_add and compare_swap at a peer on another GPU need a link with atomics, as NVLink is.
 *
 * Waits. Kernels that wait for one another have to be on the device at the same time: also those of ranks that share
 * one. A wait ends after timeout_ns, or when the communicator fails (a peer died, another deadline passed, abort). It
 * then returns -1, as does from then on what would have to wait: leave the kernel; the host has the sentence
 * (tutti_comm_state).
 * Calls return 0, or -1 too where a peer, an offset or an index is out of range: nothing was done. fetch_add,
 * compare_swap and read_signal then return all ones. */

#include <tutti/device.h>

#include <cstddef>
#include <cstdint>

#ifndef __CUDACC__
#include TUTTI_DEVICE_INTRINSICS /* for host compilers: what stands below, for tests */
#else

#define TUTTI_DEVICE_IS static __device__ __forceinline__
#define TUTTI_DEVICE_COLD static __device__ __noinline__
#define TUTTI_DEVICE_MEMBER __device__ __forceinline__
#define TUTTI_DEVICE_SPINS 1024 /* turns of a wait between two looks at the clock */

/* ---- what is asked of the machine: words at system scope ---- */
namespace tutti::machine
{
TUTTI_DEVICE_IS uint32_t load(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
TUTTI_DEVICE_IS uint64_t load(const uint64_t *p)
{
    uint64_t v;
    asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
TUTTI_DEVICE_IS uint32_t acquire(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
TUTTI_DEVICE_IS uint64_t acquire(const uint64_t *p)
{
    uint64_t v;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
TUTTI_DEVICE_IS void store(uint32_t *p, uint32_t v)
{
    asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
TUTTI_DEVICE_IS void store(uint64_t *p, uint64_t v)
{
    asm volatile("st.relaxed.sys.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
TUTTI_DEVICE_IS uint64_t add(uint64_t *p, uint64_t v)
{
    uint64_t before;
    asm volatile("atom.add.relaxed.sys.u64 %0, [%1], %2;" : "=l"(before) : "l"(p), "l"(v) : "memory");
    return before;
}
TUTTI_DEVICE_IS uint64_t swap_if(uint64_t *p, uint64_t expected, uint64_t v)
{
    uint64_t before;
    asm volatile("atom.cas.relaxed.sys.b64 %0, [%1], %2, %3;"
                 : "=l"(before)
                 : "l"(p), "l"(expected), "l"(v)
                 : "memory");
    return before;
}
/* On memory of this device. */
TUTTI_DEVICE_IS uint32_t swap_if_here(uint32_t *p, uint32_t expected, uint32_t v)
{
    uint32_t before;
    asm volatile("atom.cas.relaxed.gpu.b32 %0, [%1], %2, %3;"
                 : "=r"(before)
                 : "l"(p), "r"(expected), "r"(v)
                 : "memory");
    return before;
}
TUTTI_DEVICE_IS void fence()
{
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}
TUTTI_DEVICE_IS uint64_t clock_ns()
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}
TUTTI_DEVICE_IS void spin() {}
TUTTI_DEVICE_IS uint32_t thread()
{
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
TUTTI_DEVICE_IS uint32_t threads()
{
    return blockDim.x * blockDim.y * blockDim.z;
}
TUTTI_DEVICE_IS void sync_warp()
{
    __syncwarp();
}
TUTTI_DEVICE_IS bool any_of_warp(bool flag)
{
    return __any_sync(0xffffffffu, flag) != 0;
}
TUTTI_DEVICE_IS void sync_block()
{
    __syncthreads();
}
TUTTI_DEVICE_IS bool any_of_block(bool flag)
{
    return __syncthreads_or(flag) != 0;
}
} // namespace tutti::machine
#endif

namespace tutti
{
enum class scope { thread, warp, block };

/* ---- how calls are made: for the library's own kernels, too ---- */
namespace inside
{
/* Which of how many threads of the scope this one is. */
TUTTI_DEVICE_IS uint32_t place(scope s)
{
    return s == scope::thread ? 0 : s == scope::warp ? machine::thread() % 32 : machine::thread();
}
TUTTI_DEVICE_IS uint32_t places(scope s)
{
    return s == scope::thread ? 1 : s == scope::warp ? 32 : machine::threads();
}
/* All of the scope have come here, and each sees what the others did before. */
TUTTI_DEVICE_IS void sync(scope s)
{
    if (s == scope::warp) machine::sync_warp();
    if (s == scope::block) machine::sync_block();
}
/* The same; whether `flag` holds for any of them. */
TUTTI_DEVICE_IS bool any(scope s, bool flag)
{
    if (s == scope::thread) return flag;
    if (s == scope::block) return machine::any_of_block(flag);
    const bool found = machine::any_of_warp(flag);
    machine::sync_warp();
    return found;
}

struct alignas(16) words {
    uint32_t at[4];
};
/* n elements by `count` threads, of which this one is the i-th. */
template <class T> TUTTI_DEVICE_IS void copy_elements(T *to, const T *from, size_t n, size_t i, size_t count)
{
    for (; i + 3 * count < n; i += 4 * count) {
        const T a = from[i], b = from[i + count], c = from[i + 2 * count], d = from[i + 3 * count];
        to[i] = a, to[i + count] = b, to[i + 2 * count] = c, to[i + 3 * count] = d;
    }
    for (; i < n; i += count) to[i] = from[i];
}
/* Both ends are the same number of bytes off a multiple of T's size. */
template <class T> TUTTI_DEVICE_IS void copy_by(char *to, const char *from, size_t bytes, uint32_t i, uint32_t count)
{
    size_t head = (sizeof(T) - (uintptr_t)to % sizeof(T)) % sizeof(T);
    if (head > bytes) head = bytes;
    const size_t body = (bytes - head) / sizeof(T), behind = head + body * sizeof(T);
    copy_elements<char>(to, from, head, i, count);
    copy_elements<T>(reinterpret_cast<T *>(to + head), reinterpret_cast<const T *>(from + head), body, i, count);
    copy_elements<char>(to + behind, from + behind, bytes - behind, i, count);
}
TUTTI_DEVICE_IS void copy(char *to, const char *from, size_t bytes, uint32_t i, uint32_t count)
{
    const uintptr_t apart = (uintptr_t)to ^ (uintptr_t)from;
    if (apart % sizeof(words) == 0)
        copy_by<words>(to, from, bytes, i, count);
    else if (apart % sizeof(uint32_t) == 0)
        copy_by<uint32_t>(to, from, bytes, i, count);
    else
        copy_elements<char>(to, from, bytes, i, count);
}

/* ---- waits ---- */
struct wanted {
    uint32_t index, compare; /* as in struct tutti_device_late */
    uint64_t value, timeout_ns;
    int32_t from; /* -1: any */
};
TUTTI_DEVICE_IS bool is_so(uint64_t seen, uint32_t compare, uint64_t value)
{
    const bool less = seen < value, same = seen == value;
    switch (compare) {
    case TUTTI_COMPARE_EQ:
        return same;
    case TUTTI_COMPARE_NE:
        return !same;
    case TUTTI_COMPARE_LT:
        return less;
    case TUTTI_COMPARE_LE:
        return less || same;
    case TUTTI_COMPARE_GT:
        return !less && !same;
    default:
        return !less;
    }
}

#define TUTTI_DEVICE_ASK_NS 50000 /* one thread a while goes and sees: many that ask the host hold one another up */
TUTTI_DEVICE_IS bool is_stopped(const tutti_device_alarm &alarm, uint64_t now)
{
    if (machine::load(alarm.stopped)) return true;
    const uint64_t asked = machine::load(alarm.asked);
    if ((int64_t)(now - asked) < TUTTI_DEVICE_ASK_NS) return false;
    machine::store(alarm.asked, now);
    if (!machine::load(alarm.stop)) return false;
    machine::store(alarm.stopped, 1u);
    return true;
}

/* The first one tells; the stop word comes last. */
TUTTI_DEVICE_COLD void tell_late(const tutti_device_alarm &alarm, const wanted &want, uint64_t seen)
{
    if (machine::swap_if_here(alarm.stopped, 0, 1) != 0) return;
    machine::store(&alarm.late->value, want.value);
    machine::store(&alarm.late->seen, seen);
    machine::store(&alarm.late->timeout_ns, want.timeout_ns);
    machine::store(&alarm.late->index, want.index);
    machine::store(&alarm.late->compare, want.compare);
    machine::fence();
    machine::store(alarm.report, alarm.code | (want.from < 0 ? 0x7fu : (uint32_t)want.from));
    machine::fence();
    machine::store(alarm.stop, 1u);
}

/* Since when it waits; ~0: leave. */
TUTTI_DEVICE_COLD uint64_t look_up(uint64_t since, const tutti_device_alarm &alarm, const wanted &want, uint64_t seen)
{
    const uint64_t now = machine::clock_ns(), leave = ~UINT64_C(0);
    if (is_stopped(alarm, now)) return leave;
    if (want.timeout_ns == 0) return since;
    if (since == 0) return now;
    if (now - since < want.timeout_ns) return since;
    tell_late(alarm, want, seen);
    return leave;
}

/* One thread. False: leave. */
TUTTI_DEVICE_IS bool wait(const uint64_t *word, const tutti_device_alarm &alarm, const wanted &want)
{
    uint64_t since = 0;
    for (uint32_t turn = 1;; turn++) {
        const uint64_t seen = machine::acquire(word);
        if (is_so(seen, want.compare, want.value)) return true;
        machine::spin();
        if (turn % TUTTI_DEVICE_SPINS != 0) continue;
        since = look_up(since, alarm, want, seen);
        if (since == ~UINT64_C(0)) return false;
    }
}
/* The same for a count of 32 bits that is to reach `now`, and may be one ahead. */
TUTTI_DEVICE_IS bool wait_count(const uint32_t *word, uint32_t now, const tutti_device_alarm &alarm, const wanted &want)
{
    uint64_t since = 0;
    for (uint32_t turn = 1;; turn++) {
        const uint32_t seen = machine::acquire(word);
        if ((int32_t)(seen - now) >= 0) return true;
        machine::spin();
        if (turn % TUTTI_DEVICE_SPINS != 0) continue;
        since = look_up(since, alarm, want, seen);
        if (since == ~UINT64_C(0)) return false;
    }
}

/* One thread, after a sync with those whose stores come before. */
TUTTI_DEVICE_IS void change(uint64_t *word, uint32_t op, uint64_t value)
{
    machine::fence();
    if (op == TUTTI_SIGNAL_SET)
        machine::store(word, value);
    else
        (void)machine::add(word, value);
}
} // namespace inside

/* ---- for users ---- */
class device_window : public tutti_device_window
{
  public:
    TUTTI_DEVICE_MEMBER int32_t rank() const { return me; }
    TUTTI_DEVICE_MEMBER int32_t num_ranks() const { return n; }
    TUTTI_DEVICE_MEMBER char *base() const { return parts[me]; }
    TUTTI_DEVICE_MEMBER size_t size() const { return bytes[me]; }
    /* The part of a rank, for plain loads and stores; NULL: there is none. */
    TUTTI_DEVICE_MEMBER char *peer(int32_t rank) const { return is_rank(rank) ? parts[rank] : nullptr; }

    /* ---- data ---- */
    TUTTI_DEVICE_MEMBER int put(size_t offset, const void *source, int32_t rank, size_t length,
                                scope s = scope::thread) const
    {
        if (!holds(rank, offset, length)) return -1;
        inside::copy(parts[rank] + offset, static_cast<const char *>(source), length, inside::place(s),
                     inside::places(s));
        return 0;
    }
    TUTTI_DEVICE_MEMBER int get(void *to, int32_t rank, size_t offset, size_t length, scope s = scope::thread) const
    {
        if (!holds(rank, offset, length)) return -1;
        inside::copy(static_cast<char *>(to), parts[rank] + offset, length, inside::place(s), inside::places(s));
        return 0;
    }
    TUTTI_DEVICE_MEMBER int put_signal(size_t offset, const void *source, int32_t rank, size_t length, uint32_t index,
                                       tutti_signal_op op = TUTTI_SIGNAL_ADD, uint64_t value = 1,
                                       scope s = scope::thread) const
    {
        if (index >= n_signals || put(offset, source, rank, length, s)) return -1;
        return signal(rank, index, op, value, s);
    }

    /* ---- signals ---- */
    TUTTI_DEVICE_MEMBER int signal(int32_t rank, uint32_t index, tutti_signal_op op = TUTTI_SIGNAL_ADD,
                                   uint64_t value = 1, scope s = scope::thread) const
    {
        if (!is_rank(rank) || index >= n_signals) return -1;
        inside::sync(s);
        if (inside::place(s) == 0) inside::change(&signals[rank][index], op, value);
        return 0;
    }
    /* Until the own signal compares so with the value. */
    TUTTI_DEVICE_MEMBER int wait_signal(uint32_t index, tutti_compare compare, uint64_t value,
                                        scope s = scope::thread) const
    {
        return wait_signal_from(-1, index, compare, value, s);
    }
    /* The same; `from` is to change it, for the sentence when it does not come. */
    TUTTI_DEVICE_MEMBER int wait_signal_from(int32_t from, uint32_t index, tutti_compare compare, uint64_t value,
                                             scope s = scope::thread) const
    {
        if (index >= n_signals) return -1;
        const inside::wanted want = {index, (uint32_t)compare, value, timeout_ns, from};
        const bool met = inside::place(s) != 0 || inside::wait(&signals[me][index], alarm, want);
        return inside::any(s, !met) ? -1 : 0;
    }
    TUTTI_DEVICE_MEMBER uint64_t read_signal(uint32_t index) const
    {
        return index < n_signals ? machine::acquire(&signals[me][index]) : ~UINT64_C(0);
    }
    /* To 0; no peer may change it at that time. */
    TUTTI_DEVICE_MEMBER int reset_signal(uint32_t index, scope s = scope::thread) const
    {
        if (index >= n_signals) return -1;
        inside::sync(s);
        if (inside::place(s) == 0) machine::store(&signals[me][index], (uint64_t)0);
        return 0;
    }

    /* ---- atomic, of one thread: 64-bit words in a part, at a multiple of 8; what was there before ---- */
    TUTTI_DEVICE_MEMBER uint64_t fetch_add(uint64_t value, int32_t rank, size_t offset) const
    {
        if (!has_word(rank, offset)) return ~UINT64_C(0);
        machine::fence();
        const uint64_t before = machine::add(word_at(rank, offset), value);
        machine::fence();
        return before;
    }
    TUTTI_DEVICE_MEMBER uint64_t compare_swap(uint64_t expected, uint64_t desired, int32_t rank, size_t offset) const
    {
        if (!has_word(rank, offset)) return ~UINT64_C(0);
        machine::fence();
        const uint64_t before = machine::swap_if(word_at(rank, offset), expected, desired);
        machine::fence();
        return before;
    }

    /* ---- order ---- */
    /* What the scope stored before comes before what it stores afterwards; flush: and is there. */
    TUTTI_DEVICE_MEMBER void fence(scope s = scope::thread) const
    {
        inside::sync(s);
        machine::fence();
        inside::sync(s);
    }
    TUTTI_DEVICE_MEMBER void flush(scope s = scope::thread) const { fence(s); }
    /* All ranks have come to their call for this barrier, one call of each: id below TUTTI_DEVICE_BARRIERS. */
    TUTTI_DEVICE_MEMBER int barrier(uint32_t id, scope s = scope::thread) const
    {
        if (id >= TUTTI_DEVICE_BARRIERS) return -1;
        uint32_t *own = barrier_words(me) + TUTTI_DEVICE_BARRIERS * TUTTI_DEVICE_RANKS + id;
        const uint32_t now = machine::load(own) + 1, count = inside::places(s), first = inside::place(s);
        inside::sync(s);
        if (first < (uint32_t)n) machine::fence();
        for (int32_t q = (int32_t)first; q < n; q += (int32_t)count)
            machine::store(barrier_words(q) + id * TUTTI_DEVICE_RANKS + me, now);
        bool met = true;
        for (int32_t q = (int32_t)first; q < n && met; q += (int32_t)count) {
            const inside::wanted want = {id, TUTTI_DEVICE_BARRIER, now, timeout_ns, q};
            met = inside::wait_count(barrier_words(me) + id * TUTTI_DEVICE_RANKS + q, now, alarm, want);
        }
        if (inside::any(s, !met)) return -1;
        if (first == 0) machine::store(own, now);
        inside::sync(s);
        return 0;
    }

  private:
    TUTTI_DEVICE_MEMBER bool is_rank(int32_t rank) const { return (uint32_t)rank < (uint32_t)n; }
    TUTTI_DEVICE_MEMBER bool holds(int32_t rank, size_t offset, size_t length) const
    {
        return is_rank(rank) && offset <= bytes[rank] && length <= bytes[rank] - offset;
    }
    TUTTI_DEVICE_MEMBER bool has_word(int32_t rank, size_t offset) const
    {
        return holds(rank, offset, sizeof(uint64_t)) && (uintptr_t)word_at(rank, offset) % sizeof(uint64_t) == 0;
    }
    TUTTI_DEVICE_MEMBER uint64_t *word_at(int32_t rank, size_t offset) const
    {
        return reinterpret_cast<uint64_t *>(parts[rank] + offset);
    }
    TUTTI_DEVICE_MEMBER uint32_t *barrier_words(int32_t rank) const
    {
        return reinterpret_cast<uint32_t *>(signals[rank] + n_signals);
    }
};
} // namespace tutti

#endif
