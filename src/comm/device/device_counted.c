/* SPDX-License-Identifier: BSD-3-Clause */
/* An all_to_all_v whose counts are in the device's memory, where a back end can read them there: the ranks' rows are
 * gathered, then moved by them; all on the caller's stream. */
#include "comm/device/counted.h"

#include <string.h>

static struct tutti_backend *backend_of(const struct tutti_comm_device *device)
{
    for (uint32_t b = 0; b < device->n; b++)
        if (device->backends[b]->ops->counts_on_device) return device->backends[b];
    return NULL;
}

bool tutti_counted_on_device(const struct tutti_comm *comm)
{
    const struct tutti_comm_device *device = comm->device;
    return device && device->device && device->device->ops->counted_row && backend_of(device);
}

/* The gathering of rows, and the exchange behind it, as requests: of equal blocks, and of blocks that nobody knows. */
static struct tutti_request request_of(const struct tutti_counted_call *call, enum tutti_kind kind)
{
    return (struct tutti_request){.type = TUTTI_REQUEST_COLLECTIVE,
                                  .name = "all_to_all_v_dynamic",
                                  .comm = call->comm,
                                  .kind = kind,
                                  .dtype = call->dtype,
                                  .op = -1,
                                  .options = call->options,
                                  .purpose = tutti_hash64("dynamic", 7, (uint64_t)call->dtype) | 1};
}

static enum tutti_status gather(const struct tutti_counted_call *call, uint64_t *rows)
{
    struct tutti_request request = request_of(call, TUTTI_ALL_GATHER);
    const uint32_t words = counted_words((uint32_t)call->comm->size);
    request.dtype = TUTTI_UINT64;
    request.send = rows + (size_t)call->comm->rank * words;
    request.recv = rows;
    request.count = words;
    return tutti_device_step(&request);
}

static enum tutti_status exchange(const struct tutti_counted_call *call, const uint64_t *rows)
{
    struct tutti_request request = request_of(call, TUTTI_ALL_TO_ALL);
    struct tutti_backend *backend = backend_of(call->comm->device);
    const size_t most =
        call->row.send_capacity > call->row.recv_capacity ? call->row.send_capacity : call->row.recv_capacity;
    const struct tutti_backend_counted counted = {.rows = rows,
                                                  .send_displs = call->row.send_displs,
                                                  .recv_counts = call->recv_counts,
                                                  .status = call->status,
                                                  .most_bytes = most * tutti_dtype_bytes(call->dtype)};
    struct tutti_backend_call step;
    request.send = call->send, request.recv = call->recv;
    tutti_request_call(&request, &step);
    step.counted = &counted;
    return tutti_device_enqueue(call->comm, backend, &step, call->options.stream);
}

static enum tutti_status enqueue(const struct tutti_counted_call *call)
{
    struct tutti_comm *comm = call->comm;
    struct tutti_device *dev = comm->device->device;
    const uint32_t n = (uint32_t)comm->size;
    const struct tutti_request request = request_of(call, TUTTI_ALL_TO_ALL);
    struct tutti_counted_row row = call->row;
    char *memory;
    TUTTI_TRY(
        tutti_device_space_begin(comm, call->options.stream, (size_t)n * counted_words(n) * sizeof(*row.row), &memory));
    uint64_t *rows = (uint64_t *)(void *)memory;
    row.n = n;
    row.row = rows + (size_t)comm->rank * counted_words(n);
    TUTTI_TRY(dev->ops->counted_row(dev, &row, call->options.stream));
    enum tutti_status status = gather(call, rows);
    if (status >= 0) status = exchange(call, rows);
    if (status >= 0) status = tutti_device_space_end(comm, call->options.stream);
    if (status < 0) tutti_request_give_up(&request, NULL, 0);
    return status;
}

enum tutti_status tutti_counted_enqueue(const struct tutti_counted_call *call)
{
    tutti_comm_turn_take(call->comm);
    const enum tutti_status status = enqueue(call);
    tutti_comm_turn_give(call->comm);
    return status;
}
