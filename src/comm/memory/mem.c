/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory for zero-copy: of the communicator's device, if it has one, else of the host. What the user does not free goes
 * with the communicator's family. */
#include "comm/device/device.h"

struct tutti_mem {
    char nothing; /* so far: see below */
};

enum tutti_status tutti_mem_alloc(struct tutti_comm *comm, size_t bytes, void **out)
{
    if (!out) return tutti_fail(TUTTI_ERR_ARGUMENT, "mem_alloc: out is NULL");
    if (bytes == 0 || bytes > (size_t)PTRDIFF_MAX)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "mem_alloc: bytes is %zu", bytes);
    TUTTI_TRY(tutti_comm_enter(comm, "mem_alloc"));
    const struct tutti_device *dev = comm->device ? comm->device->device : NULL;
    enum tutti_status status =
        tutti_block_take(comm->family, dev, tutti_device_share_option(&comm->context->config), bytes, out);
    tutti_comm_leave(comm);
    return status;
}

enum tutti_status tutti_mem_free(struct tutti_comm *comm, void *pointer)
{
    if (!pointer) return TUTTI_OK;
    TUTTI_TRY(tutti_comm_enter(comm, "mem_free"));
    enum tutti_status status = tutti_block_give(comm->family, pointer);
    if (status == TUTTI_AGAIN)
        status = tutti_fail(TUTTI_ERR_ARGUMENT,
                            "mem_free on rank %d: the pointer is not from tutti_mem_alloc, or was freed before",
                            (int)comm->rank);
    tutti_comm_leave(comm);
    return status;
}

/* No call uses registered memory yet: the arguments are checked, so that programs can be written for those that will.
 */
enum tutti_status tutti_mem_register(struct tutti_comm *comm, void *pointer, size_t bytes, struct tutti_mem **out)
{
    if (!out) return tutti_fail(TUTTI_ERR_ARGUMENT, "mem_register: out is NULL");
    if (!pointer || !bytes)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "mem_register: pointer is %s and bytes is %zu",
                          pointer ? "given" : "NULL", bytes);
    if ((uintptr_t)pointer > UINTPTR_MAX - bytes)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "mem_register: %zu bytes reach past the end of the address space", bytes);
    TUTTI_TRY(tutti_comm_enter(comm, "mem_register"));
    tutti_comm_leave(comm);
    struct tutti_mem *mem = tutti_alloc(sizeof(*mem));
    if (!mem) return tutti_fail(TUTTI_ERR_MEMORY, "mem_register: out of memory");
    *out = mem;
    return TUTTI_OK;
}

void tutti_mem_deregister(struct tutti_mem *mem)
{
    tutti_free(mem);
}
