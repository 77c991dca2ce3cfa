/* SPDX-License-Identifier: BSD-3-Clause */
/* plan_move_16: programs that fold nothing, whatever the type. */
#include "device/cuda/kernels/plan.cuh"

CUDA_PLAN(move, cuda_move)
