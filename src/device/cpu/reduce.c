/* SPDX-License-Identifier: BSD-3-Clause */

/* Chooses the kernels' instruction set, looks kernels up, and says which pairs of type and operation are defined. */

#include "device/cpu/cpu.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static bool always(void)
{
    return true;
}

#if defined(__x86_64__)
/* Not every compiler's builtin knows f16c. Asked once: under a hypervisor cpuid takes tens of microseconds. */
static bool has_f16c(void)
{
    enum { UNKNOWN, NO, YES };
    static _Atomic int known = UNKNOWN;
    if (known == UNKNOWN) {
        unsigned a = 0, b = 0, c = 0, d = 0;
        known = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) ? YES : NO;
    }
    return known == YES;
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && has_f16c();
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

/* Best first; the last one runs everywhere. */
static const struct {
    const char *name;
    const struct tutti_cpu_kernels *kernels;
    bool (*available)(void);
} sets[] = {
#if defined(__x86_64__)
    {"avx512", &tutti_cpu_avx512, has_avx512},
    {"avx2", &tutti_cpu_avx2, has_avx2},
#elif defined(__aarch64__)
    {"neon", &tutti_cpu_neon, always},
#endif
    {"scalar", &tutti_cpu_scalar, always},
};

static size_t choose_set(const char *isa)
{
    for (size_t i = 0; isa && i < TUTTI_ARRAY_LEN(sets); i++)
        if (strcmp(sets[i].name, isa) == 0 && sets[i].available()) return i;
    size_t best = 0;
    while (!sets[best].available()) best++;
    return best;
}

const struct tutti_cpu_kernels *tutti_kernels_find(const char *isa)
{
    return sets[choose_set(isa)].kernels;
}

tutti_reduce_kernel tutti_reduce_find(enum tutti_dtype dtype, enum tutti_op op, const char *isa)
{
    if ((unsigned)dtype >= TUTTI_N_DTYPES || (unsigned)op >= TUTTI_N_OPS) return NULL;
    return sets[choose_set(isa)].kernels->reduce[dtype][op];
}

tutti_divide_kernel tutti_divide_find(enum tutti_dtype dtype)
{
    return (unsigned)dtype < TUTTI_N_DTYPES ? sets[choose_set(NULL)].kernels->divide[dtype] : NULL;
}

tutti_scale_kernel tutti_scale_find(enum tutti_dtype dtype)
{
    return (unsigned)dtype < TUTTI_N_DTYPES ? sets[choose_set(NULL)].kernels->scale[dtype] : NULL;
}

const char *tutti_reduce_isa(void)
{
    return sets[choose_set(NULL)].name;
}

#define NOT_DEFINED(op, dtype) #op " is not defined on " #dtype
#define NO_BITS(dtype)                                                                                                 \
    [TUTTI_BAND] = NOT_DEFINED(band, dtype), [TUTTI_BOR] = NOT_DEFINED(bor, dtype),                                    \
    [TUTTI_BXOR] = NOT_DEFINED(bxor, dtype)
#define NO_ORDER(dtype) [TUTTI_MIN] = NOT_DEFINED(min, dtype), [TUTTI_MAX] = NOT_DEFINED(max, dtype)

static const char *const refusals[TUTTI_N_DTYPES][TUTTI_N_OPS] = {
    [TUTTI_BOOL] = {[TUTTI_AVG] = NOT_DEFINED(avg, bool), [TUTTI_PREMUL_SUM] = NOT_DEFINED(premul_sum, bool)},
    [TUTTI_FLOAT8_E4M3FN] = {NO_BITS(float8_e4m3fn)},
    [TUTTI_FLOAT8_E5M2] = {NO_BITS(float8_e5m2)},
    [TUTTI_FLOAT16] = {NO_BITS(float16)},
    [TUTTI_BFLOAT16] = {NO_BITS(bfloat16)},
    [TUTTI_FLOAT32] = {NO_BITS(float32)},
    [TUTTI_FLOAT64] = {NO_BITS(float64)},
    [TUTTI_COMPLEX64] = {NO_BITS(complex64), NO_ORDER(complex64)},
    [TUTTI_COMPLEX128] = {NO_BITS(complex128), NO_ORDER(complex128)},
};

const char *tutti_reduce_refusal(enum tutti_dtype dtype, enum tutti_op op)
{
    if ((unsigned)dtype >= TUTTI_N_DTYPES) return "the element type is unknown";
    if ((unsigned)op >= TUTTI_N_OPS) return "the operation is not a built-in one";
    return refusals[dtype][op];
}
