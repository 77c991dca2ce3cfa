/* SPDX-License-Identifier: BSD-3-Clause */
/* Packed data of all wire formats. */
#include "device/cuda/kernels/recode.cuh"

CUDA_RECODE(bfloat16, TUTTI_WIRE_BFLOAT16)
CUDA_RECODE(float8_e4m3, TUTTI_WIRE_FLOAT8_E4M3)
CUDA_RECODE(float8_e5m2, TUTTI_WIRE_FLOAT8_E5M2)
CUDA_RECODE(int8, TUTTI_WIRE_INT8)
