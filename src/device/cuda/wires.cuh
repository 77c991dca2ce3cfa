/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_WIRES_CUH
#define TUTTI_DEVICE_CUDA_WIRES_CUH

/* The two ways in which a unit of 16 bytes tells by itself that it has arrived. A wire puts units into a slot (of one
 * source and block), looks for them, and says whether what it saw is there; unit u of a thread lies so that the threads
 * of a warp touch neighbouring 16 bytes.
 *
 * Both rest on one promise of the memory model: a vector access is one access a word, each of them atomic. A line is
 * two words of 8 bytes with 4 bytes of data and a flag each: a flag of this call comes with data of this call. A
 * sentinel is a word that is all ones: data are never all ones, and a slot is nothing but ones when a call begins to
 * use it, so what is not all ones has arrived. The reader writes the ones back after it has read, in the order in which
 * one thread's accesses to one place happen; turn.cuh says why the next writer comes after that. */

#include "turn.cuh"

struct cuda_lines {
    struct seen {
        cuda_pair a, b;
    };
    CUDA_DEVICE uint64_t slot(const struct cuda_call &call, uint32_t, uint32_t count, uint32_t source)
    {
        return cuda_slot(call, call.layout.lines, (uint64_t)2 * call.layout.line_bytes, count, source);
    }
    CUDA_DEVICE uint32_t place(uint32_t u) { return 16 * (2 * u * cuda_threads() + cuda_thread()); }
    CUDA_DEVICE cuda_words proper(cuda_words unit) { return unit; }
    CUDA_DEVICE uint64_t word(uint32_t data, uint32_t flag) { return data | (uint64_t)flag << 32; }
    CUDA_DEVICE void put(char *p, cuda_words unit, uint32_t flag)
    {
        cuda_store_pair(p, cuda_pair{word(unit.x, flag), word(unit.y, flag)});
        cuda_store_pair(p + 16 * cuda_threads(), cuda_pair{word(unit.z, flag), word(unit.w, flag)});
    }
    CUDA_DEVICE seen look(const char *p) { return seen{cuda_load_pair(p), cuda_load_pair(p + 16 * cuda_threads())}; }
    CUDA_DEVICE bool there(seen s, uint32_t flag)
    {
        return (uint32_t)(s.a.x >> 32) == flag && (uint32_t)(s.a.y >> 32) == flag && (uint32_t)(s.b.x >> 32) == flag &&
               (uint32_t)(s.b.y >> 32) == flag;
    }
    CUDA_DEVICE cuda_words unit(seen s)
    {
        return cuda_words{(uint32_t)s.a.x, (uint32_t)s.a.y, (uint32_t)s.b.x, (uint32_t)s.b.y};
    }
    CUDA_DEVICE void empty(char *) {} /* flags age by themselves */
};

/* WORD: 4, or 8 for types of which 4 bytes of ones may be half of a number. All ones is a NaN, or several, in every
 * floating-point type; another one takes its place. */
template <uint32_t WORD> struct cuda_sentinel {
    using seen = cuda_pair;
    static constexpr uint64_t ones = ~UINT64_C(0);
    static constexpr uint32_t ones32 = ~0u, other = 0x7fffffffu;

    CUDA_DEVICE uint64_t slot(const struct cuda_call &call, uint32_t phase, uint32_t count, uint32_t source)
    {
        return cuda_slot(call, call.layout.sentinel[phase], call.layout.sentinel_bytes, count, source);
    }
    CUDA_DEVICE uint32_t place(uint32_t u) { return 16 * (u * cuda_threads() + cuda_thread()); }
    CUDA_DEVICE cuda_words proper(cuda_words unit)
    {
        if constexpr (WORD == 8)
            return cuda_words{unit.x, (unit.x & unit.y) == ones32 ? other : unit.y, unit.z,
                              (unit.z & unit.w) == ones32 ? other : unit.w};
        return cuda_words{unit.x == ones32 ? other : unit.x, unit.y == ones32 ? other : unit.y,
                          unit.z == ones32 ? other : unit.z, unit.w == ones32 ? other : unit.w};
    }
    CUDA_DEVICE void put(char *p, cuda_words unit, uint32_t)
    {
        cuda_store_pair(p, cuda_pair{unit.x | (uint64_t)unit.y << 32, unit.z | (uint64_t)unit.w << 32});
    }
    CUDA_DEVICE seen look(const char *p) { return cuda_load_pair(p); }
    CUDA_DEVICE bool there(seen s, uint32_t)
    {
        if constexpr (WORD == 8) return s.x != ones && s.y != ones;
        return (uint32_t)s.x != ones32 && (uint32_t)(s.x >> 32) != ones32 && (uint32_t)s.y != ones32 &&
               (uint32_t)(s.y >> 32) != ones32;
    }
    CUDA_DEVICE cuda_words unit(seen s)
    {
        return cuda_words{(uint32_t)s.x, (uint32_t)(s.x >> 32), (uint32_t)s.y, (uint32_t)(s.y >> 32)};
    }
    CUDA_DEVICE void empty(char *p) { cuda_store_pair(p, cuda_pair{ones, ones}); }
};

#endif
