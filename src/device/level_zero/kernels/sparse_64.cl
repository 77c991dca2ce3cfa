/* SPDX-License-Identifier: BSD-3-Clause */
/* Sparse blocks of float64. */
#define XPU_DOUBLE
#include "numbers_64.clh"
#include "sparse.clh"

XPU_IS(uint64_t, add_float64, (uint64_t a, uint64_t b), double_code(xpu_add64(xpu_double(a), xpu_double(b))))

SPARSE(float64, 64, add_float64)
