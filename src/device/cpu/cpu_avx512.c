/* SPDX-License-Identifier: BSD-3-Clause */

/* Kernels for x86-64 with AVX-512 F, BW, DQ and VL; compiled with -mavx512f ... (folder.cmake). */

#if defined(__x86_64__)
#define VECTOR_BYTES 64
#define KERNEL_TABLE tutti_cpu_avx512
#include "device/cpu/cpu_vector.h"

#include <immintrin.h>

FORCE bool widen_half(const unsigned char *p, v_f32 *out)
{
    for (int k = 0; k < 2; k++) {
        __m256i codes;
        memcpy(&codes, p + (size_t)k * sizeof codes, sizeof codes);
        out[k] = (v_f32)_mm512_cvtph_ps(codes);
    }
    return true;
}

FORCE bool narrow_half(unsigned char *p, const v_f32 *in)
{
    for (int k = 0; k < 2; k++) {
        const __m256i codes = _mm512_cvtps_ph((__m512)canonical_f32(in[k]), _MM_FROUND_TO_NEAREST_INT);
        memcpy(p + (size_t)k * sizeof codes, &codes, sizeof codes);
    }
    return true;
}

#include "device/cpu/cpu_kernels.h"
#endif
