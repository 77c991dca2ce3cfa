/* SPDX-License-Identifier: BSD-3-Clause */

/* Kernels for x86-64 with AVX2 and F16C; compiled with -mavx2 -mf16c (folder.cmake). */

#if defined(__x86_64__)
#define VECTOR_BYTES 32
#define KERNEL_TABLE tutti_cpu_avx2
#include "device/cpu/cpu_vector.h"

#include <immintrin.h>

FORCE bool widen_half(const unsigned char *p, v_f32 *out)
{
    for (int k = 0; k < 2; k++) {
        __m128i codes;
        memcpy(&codes, p + (size_t)k * sizeof codes, sizeof codes);
        out[k] = (v_f32)_mm256_cvtph_ps(codes);
    }
    return true;
}

FORCE bool narrow_half(unsigned char *p, const v_f32 *in)
{
    for (int k = 0; k < 2; k++) {
        const __m128i codes = _mm256_cvtps_ph((__m256)canonical_f32(in[k]), _MM_FROUND_TO_NEAREST_INT);
        memcpy(p + (size_t)k * sizeof codes, &codes, sizeof codes);
    }
    return true;
}

#include "device/cpu/cpu_kernels.h"
#endif
