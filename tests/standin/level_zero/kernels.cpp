/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels of the .cl files, by the grids of the stand-in of CUDA's driver: a work-item is a fiber. */
#include "standin/cuda/grid.h"

#include <cstring>
#include <vector>

static const std::vector<const cuda_standin_kernel *> &kernels()
{
    static const std::vector<const cuda_standin_kernel *> all = [] {
        std::vector<const cuda_standin_kernel *> found;
        for (const cuda_standin_kernel *k = cuda_standin_kernels(); k; k = k->next) found.push_back(k);
        return found;
    }();
    return all;
}

extern "C" {
size_t standin_n_kernels()
{
    return kernels().size();
}

const char *standin_kernel_name(size_t index)
{
    return kernels()[index]->name;
}

size_t standin_kernel_bytes(size_t index)
{
    return kernels()[index]->parameter_bytes;
}

void standin_kernel_run(size_t index, uint32_t groups, uint32_t group_size, const void *argument, uint32_t room)
{
    cuda_standin_run({kernels()[index], groups, group_size, 0, argument, room});
}
}
