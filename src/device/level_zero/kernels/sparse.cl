/* SPDX-License-Identifier: BSD-3-Clause */
/* Sparse blocks of the floats that are summed, but float64. */
#include "sparse.clh"

XPU_IS(uint32_t, add_float32, (uint32_t a, uint32_t b), xpu_bits(recode_canonical(xpu_add(xpu_float(a), xpu_float(b)))))
XPU_IS(uint16_t, add_float16, (uint32_t a, uint32_t b),
       (uint16_t)recode_to_float16(xpu_add(recode_from_float16(a), recode_from_float16(b))))
XPU_IS(uint16_t, add_bfloat16, (uint32_t a, uint32_t b),
       (uint16_t)recode_to_bfloat16(xpu_add(xpu_float(a << 16), xpu_float(b << 16)), false, 0))

SPARSE(float32, 32, add_float32)
SPARSE(float16, 16, add_float16)
SPARSE(bfloat16, 16, add_bfloat16)
