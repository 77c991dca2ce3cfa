/* SPDX-License-Identifier: BSD-3-Clause */

/* Memory of other processes, by the driver's legacy IPC handles. Each is mapped once a process and device, however
 * often it is imported: the driver counts, too, but says so only of some versions. */

#include "device/cuda/driver.h"

#include <string.h>

enum tutti_status tutti_gpu_export(struct tutti_gpu *gpu, void *base, unsigned char handle[TUTTI_GPU_HANDLE_BYTES])
{
    struct cuda_aside aside;
    struct cuda_ipc_handle made;
    TUTTI_TRY(cuda_aside_enter(gpu, &aside));
    const int result = cuda_calls(gpu)->ipc_get(&made, (uint64_t)(uintptr_t)base);
    TUTTI_TRY(cuda_aside_done(gpu, &aside, result, "cuIpcGetMemHandle"));
    memcpy(handle, made.bytes, sizeof made.bytes);
    return TUTTI_OK;
}

/* ---- the table of what is imported; under the lock ---- */

static struct cuda_import *import_by_handle(struct cuda_gpu *gpu, const struct cuda_ipc_handle *handle)
{
    for (size_t i = 0; i < gpu->n_imports; i++)
        if (memcmp(&gpu->imports[i].handle, handle, sizeof *handle) == 0) return &gpu->imports[i];
    return NULL;
}

static struct cuda_import *import_by_pointer(struct cuda_gpu *gpu, uint64_t pointer)
{
    for (size_t i = 0; i < gpu->n_imports; i++)
        if (gpu->imports[i].pointer == pointer) return &gpu->imports[i];
    return NULL;
}

/* So that what is mapped can be entered. */
static enum tutti_status imports_reserve(struct cuda_gpu *gpu)
{
    if (gpu->n_imports < gpu->import_capacity) return TUTTI_OK;
    const size_t capacity = gpu->import_capacity ? 2 * gpu->import_capacity : 16;
    struct cuda_import *larger = tutti_alloc_array(capacity, sizeof *larger);
    if (!larger) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %zu imported allocations", capacity);
    if (gpu->n_imports) memcpy(larger, gpu->imports, gpu->n_imports * sizeof *larger);
    tutti_free(gpu->imports);
    gpu->imports = larger;
    gpu->import_capacity = capacity;
    return TUTTI_OK;
}

static enum tutti_status import_map(struct cuda_gpu *gpu, const struct cuda_ipc_handle *handle,
                                    struct cuda_import **out)
{
    struct cuda_aside aside;
    uint64_t pointer = 0;
    TUTTI_TRY(imports_reserve(gpu));
    TUTTI_TRY(cuda_aside_enter(&gpu->seen, &aside));
    const int result = gpu->driver->ipc_open(&pointer, *handle, CUDA_IPC_LAZY_PEER_ACCESS);
    TUTTI_TRY(cuda_aside_done(&gpu->seen, &aside, result, "cuIpcOpenMemHandle"));
    *out = &gpu->imports[gpu->n_imports++];
    **out = (struct cuda_import){.handle = *handle, .pointer = pointer};
    return TUTTI_OK;
}

enum tutti_status tutti_gpu_import(struct tutti_gpu *gpu, const unsigned char handle[TUTTI_GPU_HANDLE_BYTES],
                                   void **out)
{
    struct cuda_gpu *own = cuda_gpu_of(gpu);
    struct cuda_ipc_handle wanted;
    memcpy(wanted.bytes, handle, sizeof wanted.bytes);
    cuda_lock();
    struct cuda_import *import = import_by_handle(own, &wanted);
    const enum tutti_status status = import ? TUTTI_OK : import_map(own, &wanted, &import);
    if (status == TUTTI_OK) {
        import->n_uses++;
        *out = (void *)(uintptr_t)import->pointer;
    }
    cuda_unlock();
    return status;
}

void tutti_gpu_unimport(struct tutti_gpu *gpu, void *pointer)
{
    struct cuda_gpu *own = cuda_gpu_of(gpu);
    struct cuda_aside aside;
    if (!pointer || cuda_forked()) return;
    cuda_lock();
    struct cuda_import *import = import_by_pointer(own, (uint64_t)(uintptr_t)pointer);
    if (import && --import->n_uses == 0) {
        if (cuda_aside_enter(gpu, &aside) == TUTTI_OK)
            cuda_aside_done(gpu, &aside, own->driver->ipc_close(import->pointer), "cuIpcCloseMemHandle");
        *import = own->imports[--own->n_imports];
    }
    cuda_unlock();
}
