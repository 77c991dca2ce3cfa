/* SPDX-License-Identifier: BSD-3-Clause */

/* Kernels for aarch64, whose baseline has NEON with conversions of float16. */

#if defined(__aarch64__)
#define VECTOR_BYTES 16
#define KERNEL_TABLE tutti_cpu_neon
#include "device/cpu/cpu_vector.h"

#include <arm_neon.h>

FORCE bool widen_half(const unsigned char *p, v_f32 *out)
{
    for (int k = 0; k < 2; k++) {
        float16x4_t codes;
        memcpy(&codes, p + (size_t)k * sizeof codes, sizeof codes);
        out[k] = (v_f32)vcvt_f32_f16(codes);
    }
    return true;
}

FORCE bool narrow_half(unsigned char *p, const v_f32 *in)
{
    for (int k = 0; k < 2; k++) {
        const float16x4_t codes = vcvt_f16_f32((float32x4_t)canonical_f32(in[k]));
        memcpy(p + (size_t)k * sizeof codes, &codes, sizeof codes);
    }
    return true;
}

#include "device/cpu/cpu_kernels.h"
#endif
