/* SPDX-License-Identifier: BSD-3-Clause */
/* Quantised calls on device memory (request/packed.h): kernels pack, sum and unpack, and the steps between them are
 * calls of their own on packed data, all on the caller's stream. Nothing waits, so they can be captured. */
#include "comm/device/device.h"
#include "comm/request/packed.h"

static enum tutti_status recode(const struct tutti_request *request, const struct tutti_recode *job)
{
    struct tutti_device *dev = request->comm->device->device;
    return dev->ops->recode(dev, job, request->options.stream);
}

static enum tutti_status pack(const struct tutti_request *request, const struct tutti_packed_shape *shape, char *region)
{
    struct tutti_recode job;
    for (uint32_t i = 0; i < tutti_packed_inputs(request); i++) {
        tutti_packed_input(request, shape, i, region, &job);
        if (job.n_parts > 1 || job.skip != 0) TUTTI_TRY(recode(request, &job));
    }
    return TUTTI_OK;
}

/* From the first step on the others count on the rest. */
static enum tutti_status exchange(const struct tutti_request *request, const struct tutti_packed_shape *shape,
                                  char *region, size_t *tables)
{
    struct tutti_request step;
    struct tutti_recode job;
    tutti_packed_step(request, shape, TUTTI_PACKED_COLLECT, region, tables, &step);
    TUTTI_TRY(tutti_device_step(&step));
    tutti_packed_sum(request, shape, region, &job);
    TUTTI_TRY(recode(request, &job));
    if (!shape->all) return TUTTI_OK;
    tutti_packed_step(request, shape, TUTTI_PACKED_SPREAD, region, NULL, &step);
    TUTTI_TRY(tutti_device_step(&step));
    tutti_packed_result(request, shape, region, &job);
    return recode(request, &job);
}

enum tutti_status tutti_packed_refusal(const struct tutti_request *request)
{
    if (request->comm->device->device->ops->recode) return TUTTI_OK;
    return tutti_request_fail(request, TUTTI_ERR_UNSUPPORTED, "the device can not pack data");
}

enum tutti_status tutti_packed_enqueue(struct tutti_request *request)
{
    struct tutti_comm *comm = request->comm;
    struct tutti_packed_shape shape;
    size_t *tables = NULL;
    char *region;
    TUTTI_TRY(tutti_packed_shape(request, &shape));
    if (request->v && !(tables = tutti_alloc_array(2 * (size_t)comm->size, sizeof(*tables))))
        return tutti_request_fail(request, TUTTI_ERR_MEMORY, "out of memory for the tables of the call");
    enum tutti_status status = tutti_device_space_begin(comm, request->options.stream, shape.bytes, &region);
    if (status >= 0) status = pack(request, &shape, region);
    if (status >= 0) {
        status = exchange(request, &shape, region, tables);
        if (status >= 0) status = tutti_device_space_end(comm, request->options.stream);
        if (status < 0) tutti_request_give_up(request, NULL, 0);
    }
    tutti_free(tables);
    return status;
}
