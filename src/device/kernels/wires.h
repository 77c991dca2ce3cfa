/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_WIRES_CUH
#define TUTTI_DEVICE_CUDA_WIRES_CUH

/* The ways in which a unit of 16 bytes tells by itself that it has arrived. A wire puts units into a slot (of one
 * source and block), looks for them, and says whether what it saw is there; unit u of a thread lies so that the threads
 * of a warp touch neighbouring 16 bytes.
 *
 * All rest on one promise of the memory model: a vector access is one access a word, each of them atomic. A line is
 * two words of 8 bytes with 4 bytes of data and a flag each: a flag of this call comes with data of this call. A
 * sentinel is a word that is all ones: a slot is nothing but ones when a call begins to use it, so what is not all ones
 * has arrived. The reader writes the ones back after it has read, in the order in which one thread's accesses to one
 * place happen; turn.h says why the next writer comes after that.
 *
 * Floating point is never sent as all ones. Of data that may be, words of 8 bytes that are become *exceptions*: of each
 * unit of a warp, the sender stores two words beside the rings if there is an exception, each a mask of lanes and a
 * flag of this call. A word that reads as ones is there if its exception is, and nothing else need be ordered: the mask
 * says what the word is, whether or not its own store has come; that store writes ones over ones, and precedes the
 * sender's next one to that place, in a later kernel. Words of exceptions age by their flags, like lines. One with a
 * lane in it is waited for by that lane, so it is there before the call ends; one with none is the same as no
 * exception, whenever it comes. */

#include "device/kernels/turn.h"

/* Where a thread finds a unit in row 0, and how far it is from there to the next row. */
struct gpu_inbox {
    char *slot;
    uint64_t stride;
    const char *exceptions; /* for wires that have them; a 32nd as far apart */

    __device__ __forceinline__ char *row(uint32_t r) const { return slot + r * stride; }
};

/* As many bytes further on; a multiple of a warp's units. */
GPU_DEVICE struct gpu_inbox gpu_inbox_on(const struct gpu_inbox &inbox, uint64_t by)
{
    return gpu_inbox{inbox.slot + by, inbox.stride, inbox.exceptions + by / GPU_WARP};
}

struct gpu_lines {
    static constexpr bool lags = false, excepts = false;
    struct seen {
        gpu_pair a, b;
    };
    GPU_DEVICE uint64_t block_bytes(const struct gpu_call &call) { return (uint64_t)2 * call.layout.line_bytes; }
    GPU_DEVICE uint64_t slot(const struct gpu_call &call, uint32_t, uint32_t count)
    {
        return gpu_slot(call, call.layout.lines, block_bytes(call), count);
    }
    GPU_DEVICE uint32_t place(uint32_t u) { return 16 * (2 * u * gpu_threads() + gpu_thread()); }
    GPU_DEVICE gpu_words proper(gpu_words unit) { return unit; }
    GPU_DEVICE uint64_t word(uint32_t data, uint32_t flag) { return data | (uint64_t)flag << 32; }
    GPU_DEVICE void put(char *p, gpu_words unit, uint32_t flag)
    {
        gpu_store_pair(p, gpu_pair{word(unit.x, flag), word(unit.y, flag)});
        gpu_store_pair(p + 16 * gpu_threads(), gpu_pair{word(unit.z, flag), word(unit.w, flag)});
    }
    GPU_DEVICE seen look(const gpu_inbox &inbox, uint32_t row)
    {
        const char *p = inbox.row(row);
        return seen{gpu_load_pair(p), gpu_load_pair(p + 16 * gpu_threads())};
    }
    GPU_DEVICE bool there(seen s, uint32_t flag)
    {
        return (uint32_t)(s.a.x >> 32) == flag && (uint32_t)(s.a.y >> 32) == flag && (uint32_t)(s.b.x >> 32) == flag &&
               (uint32_t)(s.b.y >> 32) == flag;
    }
    GPU_DEVICE gpu_words unit(seen s)
    {
        return gpu_words{(uint32_t)s.a.x, (uint32_t)s.a.y, (uint32_t)s.b.x, (uint32_t)s.b.y};
    }
    GPU_DEVICE void empty(char *) {} /* flags age by themselves */
};

/* What all sentinels share. */
struct gpu_ones {
    static constexpr uint64_t ones = ~UINT64_C(0);
    static constexpr uint32_t ones32 = ~0u;

    GPU_DEVICE uint64_t block_bytes(const struct gpu_call &call) { return call.layout.sentinel_bytes; }
    GPU_DEVICE uint64_t slot(const struct gpu_call &call, uint32_t phase, uint32_t count)
    {
        return gpu_slot(call, call.layout.sentinels, block_bytes(call), count) + phase * gpu_phase_bytes(&call.layout);
    }
    GPU_DEVICE uint32_t place(uint32_t u) { return 16 * (u * gpu_threads() + gpu_thread()); }
    GPU_DEVICE void put(char *p, gpu_words unit, uint32_t)
    {
        gpu_store_pair(p, gpu_pair{unit.x | (uint64_t)unit.y << 32, unit.z | (uint64_t)unit.w << 32});
    }
    GPU_DEVICE gpu_words words(gpu_pair s)
    {
        return gpu_words{(uint32_t)s.x, (uint32_t)(s.x >> 32), (uint32_t)s.y, (uint32_t)(s.y >> 32)};
    }
    GPU_DEVICE void empty(char *p) { gpu_store_pair(p, gpu_pair{ones, ones}); }
};

/* WORD: 4, or 8 for types of which 4 bytes of ones may be half of a number. All ones is a NaN, or several, in every
 * floating-point type; another one takes its place. 0: of all other types, and moves (below). */
template <uint32_t WORD> struct gpu_sentinel : gpu_ones {
    static constexpr bool lags = true, excepts = false;
    static constexpr uint32_t other = 0x7fffffffu;
    using seen = gpu_pair;

    GPU_DEVICE gpu_words proper(gpu_words unit)
    {
        if constexpr (WORD == 8)
            return gpu_words{unit.x, (unit.x & unit.y) == ones32 ? other : unit.y, unit.z,
                             (unit.z & unit.w) == ones32 ? other : unit.w};
        return gpu_words{unit.x == ones32 ? other : unit.x, unit.y == ones32 ? other : unit.y,
                         unit.z == ones32 ? other : unit.z, unit.w == ones32 ? other : unit.w};
    }
    GPU_DEVICE seen look(const gpu_inbox &inbox, uint32_t row) { return gpu_load_pair(inbox.row(row)); }
    GPU_DEVICE bool there(seen s, uint32_t)
    {
        if constexpr (WORD == 8) return s.x != ones && s.y != ones;
        const gpu_words w = words(s);
        return gpu_greatest(gpu_greatest(w.x, w.y), gpu_greatest(w.z, w.w)) != ones32;
    }
    GPU_DEVICE gpu_words unit(seen s) { return words(s); }
};

/* Any bits: with exceptions. */
template <> struct gpu_sentinel<0> : gpu_ones {
    static constexpr bool lags = true, excepts = true;
    struct seen {
        gpu_pair unit, exceptions;
    };

    /* From a rank's scratch to the exceptions of the unit at `at`. */
    GPU_DEVICE uint64_t exceptions(const struct gpu_call &call, uint64_t at)
    {
        return call.layout.exceptions + (at - call.layout.sentinels) / (16 * GPU_WARP) * 16;
    }
    GPU_DEVICE gpu_words proper(gpu_words unit) { return unit; }
    /* By whole warps; `any`: whether this thread puts the unit. */
    GPU_DEVICE void except(char *p, bool any, gpu_words unit, uint32_t flag)
    {
        const uint32_t x = gpu_ballot(any && (unit.x & unit.y) == ones32);
        const uint32_t y = gpu_ballot(any && (unit.z & unit.w) == ones32);
        if ((x | y) != 0 && gpu_lane() == 0)
            gpu_store_pair(p, gpu_pair{x | (uint64_t)flag << 32, y | (uint64_t)flag << 32});
    }
    /* Both at once: what is an exception comes no later than what is none. */
    GPU_DEVICE seen look(const gpu_inbox &inbox, uint32_t row)
    {
        const char *exceptions = inbox.exceptions + row * (inbox.stride / GPU_WARP);
        return seen{gpu_load_pair(inbox.row(row)), gpu_load_pair(exceptions)};
    }
    GPU_DEVICE bool is_there(uint64_t word, uint64_t exceptions, uint32_t flag)
    {
        return word != ones || ((uint32_t)(exceptions >> 32) == flag && ((uint32_t)exceptions >> gpu_lane() & 1));
    }
    GPU_DEVICE bool there(seen s, uint32_t flag)
    {
        return is_there(s.unit.x, s.exceptions.x, flag) && is_there(s.unit.y, s.exceptions.y, flag);
    }
    GPU_DEVICE gpu_words unit(seen s) { return words(s.unit); }
};

/* From one row of slots to the next. */
template <typename Wire> GPU_DEVICE uint64_t gpu_stride(const struct gpu_call &call)
{
    return call.layout.n_blocks * Wire::block_bytes(call);
}

#endif
