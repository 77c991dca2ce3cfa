# SPDX-License-Identifier: BSD-3-Clause
# cmake/TuttiCuda.cmake has the compiler, for programs of users' kernels, too.
tutti_cuda_kernels(tutti_device ${CMAKE_CURRENT_LIST_DIR}/kernels)
