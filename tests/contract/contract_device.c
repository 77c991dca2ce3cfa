/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract's buffers on devices. */

#include "contract.h"

#include "device/cuda/gpu.h"

static void *put(const struct contract_memory *memory, struct tutti_comm *comm, bool mapped, const void *arena,
                 size_t bytes)
{
    void *device = NULL;
    enum tutti_status status =
        mapped ? tutti_mem_alloc(comm, bytes, &device) : tutti_gpu_alloc(memory->gpu, bytes, &device);
    if (status == TUTTI_OK && tutti_gpu_copy_now(memory->gpu, device, arena, bytes) < 0) {
        memory->release(memory, comm, mapped, device);
        return NULL;
    }
    return status == TUTTI_OK ? device : NULL;
}

static bool get(const struct contract_memory *memory, void *device, void *arena, size_t bytes)
{
    return tutti_gpu_stream_sync(memory->gpu, memory->stream) == TUTTI_OK &&
           tutti_gpu_copy_now(memory->gpu, arena, device, bytes) == TUTTI_OK;
}

static void release(const struct contract_memory *memory, struct tutti_comm *comm, bool mapped, void *device)
{
    if (mapped)
        (void)tutti_mem_free(comm, device);
    else
        tutti_gpu_free(memory->gpu, device);
}

void contract_memory_init(struct contract_memory *memory, void *gpu, void *stream)
{
    *memory = (struct contract_memory){gpu, stream, put, get, release};
}
