/* SPDX-License-Identifier: BSD-3-Clause */

/* Chooses the kernels' instruction set, looks kernels up, and says which pairs of type and operation are defined. */

#include "device/cpu/cpu.h"
#include "device/device.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static bool always(void)
{
    return true;
}

#if defined(__x86_64__)
/* What the processor has and the system saves, asked once: under a hypervisor cpuid takes tens of microseconds. Not by
 * __builtin_cpu_supports, which is always 0 with zig's run time. */
enum { ASKED = 1, AVX2 = 2, AVX512 = 4 };

static unsigned features(void)
{
    static _Atomic unsigned known = 0;
    const unsigned ymm = 0x06, zmm = 0xe6, wide = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    unsigned a = 0, b = 0, c = 0, d = 0, saved = 0, found = ASKED;
    if (known) return known;
    if (__get_cpuid(1, &a, &b, &c, &d) && (c & bit_OSXSAVE) && (c & bit_F16C)) {
        __asm__("xgetbv" : "=a"(saved), "=d"(d) : "c"(0));
        const bool more = __get_cpuid_count(7, 0, &a, &b, &c, &d);
        if (more && (saved & ymm) == ymm && (b & bit_AVX2)) found |= AVX2;
        if (more && (saved & zmm) == zmm && (b & wide) == wide) found |= AVX512;
    }
    known = found;
    return found;
}

static bool has_avx2(void)
{
    return features() & AVX2;
}

static bool has_avx512(void)
{
    return features() & AVX512;
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
    if (!tutti_dtype_is(dtype) || (unsigned)op >= TUTTI_N_OPS) return NULL;
    return sets[choose_set(isa)].kernels->reduce[dtype][op];
}

enum tutti_status tutti_fold_on_cpu(const struct tutti_fold *f)
{
    const struct tutti_cpu_kernels *kernels = tutti_kernels_find(NULL);
    const char *refusal = tutti_reduce_refusal(f->dtype, f->op);
    const void *from = f->left;
    if (refusal) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s", refusal);
    if (f->right) {
        kernels->reduce[f->dtype][f->op](f->dst, f->left, f->right, f->n);
        return TUTTI_OK;
    }
    if (f->factor) kernels->scale[f->dtype](f->dst, from, f->n, f->factor), from = f->dst;
    if (f->divisor) kernels->divide[f->dtype](f->dst, from, f->n, f->divisor);
    return TUTTI_OK;
}

tutti_divide_kernel tutti_divide_find(enum tutti_dtype dtype)
{
    return tutti_dtype_is(dtype) ? sets[choose_set(NULL)].kernels->divide[dtype] : NULL;
}

tutti_scale_kernel tutti_scale_find(enum tutti_dtype dtype)
{
    return tutti_dtype_is(dtype) ? sets[choose_set(NULL)].kernels->scale[dtype] : NULL;
}

uint32_t tutti_average_shift(enum tutti_dtype dtype, uint32_t n_ranks)
{
    const struct tutti_dtype_info *type = &tutti_dtypes[dtype];
    const uint32_t most = type->mantissa_bits + type->bias - 1; /* 2^-most is the least subnormal */
    uint32_t shift = 0;
    if (type->class != TUTTI_SMALL_FLOAT || type->bias >= 127) return 0; /* bfloat16 has the range of float32 */
    while (shift < most && UINT32_C(1) << shift < n_ranks) shift++;
    return shift > 0 && shift < most ? shift + 1 : shift; /* a sum may be rounded up at every hop */
}

const char *tutti_reduce_isa(void)
{
    return sets[choose_set(NULL)].name;
}

#define NOT_DEFINED(op, name) #op " is not defined on " name
#define NO_BITS(name)                                                                                                  \
    [TUTTI_BAND] = NOT_DEFINED(band, name), [TUTTI_BOR] = NOT_DEFINED(bor, name), [TUTTI_BXOR] = NOT_DEFINED(bxor, name)
#define REFUSALS_SIGNED(name)                                                                                          \
    {                                                                                                                  \
        NULL                                                                                                           \
    }
#define REFUSALS_UNSIGNED(name)                                                                                        \
    {                                                                                                                  \
        NULL                                                                                                           \
    }
#define REFUSALS_BOOLEAN(name)                                                                                         \
    {                                                                                                                  \
        [TUTTI_AVG] = NOT_DEFINED(avg, name), [TUTTI_PREMUL_SUM] = NOT_DEFINED(premul_sum, name),                      \
    }
#define REFUSALS_SMALL_FLOAT(name)                                                                                     \
    {                                                                                                                  \
        NO_BITS(name)                                                                                                  \
    }
#define REFUSALS_FLOAT(name)                                                                                           \
    {                                                                                                                  \
        NO_BITS(name)                                                                                                  \
    }
#define REFUSALS_COMPLEX(name)                                                                                         \
    {                                                                                                                  \
        NO_BITS(name), [TUTTI_MIN] = NOT_DEFINED(min, name), [TUTTI_MAX] = NOT_DEFINED(max, name),                     \
    }
#define REFUSALS(id, name, class, bits, mantissa, bias, infinity, torch) [TUTTI_##id] = REFUSALS_##class(#name),

static const char *const refusals[][TUTTI_N_OPS] = {TUTTI_DTYPES(REFUSALS)};

const char *tutti_reduce_refusal(enum tutti_dtype dtype, enum tutti_op op)
{
    if (!tutti_dtype_is(dtype)) return "the element type is unknown";
    if ((unsigned)op >= TUTTI_N_OPS) return "the operation is not a built-in one";
    return refusals[dtype][op];
}
