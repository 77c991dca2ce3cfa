/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory of a communicator for calls that consist of several steps (device_steps.c). Such calls use
 * it one after another, whatever their streams: by an event after each, and within a capture by its nodes. It grows and
 * never shrinks, and what was outgrown stays: graphs that were captured with it may be launched at any time. */
#include "comm/call/device.h"
#include "comm/call/packed.h"

#include <string.h>

struct outgrown {
    struct outgrown *next;
    void *memory;
};

struct tutti_device_space {
    void *memory;
    size_t bytes;
    struct outgrown *outgrown;
    void *event; /* behind the last call outside captures; */
    void *stream;
    bool used;        /* there was one */
    uint64_t capture; /* the last capture that had such a call, */
    void *capture_stream, *node;
};

static enum tutti_status space_open(struct tutti_comm *comm)
{
    struct tutti_comm_device *device = comm->device;
    if (device->space) return TUTTI_OK;
    struct tutti_device_space *space = tutti_alloc(sizeof(*space));
    if (!space) return tutti_fail(TUTTI_ERR_MEMORY, "rank %d: out of memory", (int)comm->rank);
    enum tutti_status status = device->device->ops->event_create(device->device, false, &space->event);
    if (status < 0) {
        tutti_free(space);
        return status;
    }
    pthread_mutex_lock(&device->lock); /* others ask for its event */
    device->space = space;
    pthread_mutex_unlock(&device->lock);
    return TUTTI_OK;
}

static enum tutti_status space_grow(struct tutti_comm *comm, size_t bytes)
{
    struct tutti_device *dev = comm->device->device;
    struct tutti_device_space *space = comm->device->space;
    if (bytes <= space->bytes) return TUTTI_OK;
    struct outgrown *old = tutti_alloc(sizeof(*old));
    void *memory = NULL;
    if (!old) return tutti_fail(TUTTI_ERR_MEMORY, "rank %d: out of memory", (int)comm->rank);
    if (bytes < 2 * space->bytes) bytes = 2 * space->bytes;
    enum tutti_status status = dev->ops->alloc(dev, bytes, &memory);
    if (status < 0) {
        tutti_free(old);
        return status;
    }
    *old = (struct outgrown){space->outgrown, space->memory};
    space->outgrown = old;
    space->memory = memory, space->bytes = bytes;
    return TUTTI_OK;
}

enum tutti_status tutti_device_space_begin(struct tutti_comm *comm, void *stream, size_t bytes, char **out)
{
    struct tutti_device *dev = comm->device->device;
    uint64_t capture = 0;
    TUTTI_TRY(space_open(comm));
    TUTTI_TRY(space_grow(comm, bytes));
    struct tutti_device_space *space = comm->device->space;
    TUTTI_TRY(tutti_device_capturing(dev, stream, &capture));
    if (capture && capture == space->capture && !tutti_device_one_stream(dev, stream, space->capture_stream))
        TUTTI_TRY(dev->ops->capture_after(dev, stream, space->node));
    if (!capture && space->used && !tutti_device_one_stream(dev, stream, space->stream))
        TUTTI_TRY(dev->ops->stream_wait(dev, stream, space->event));
    *out = space->memory;
    return TUTTI_OK;
}

enum tutti_status tutti_device_space_end(struct tutti_comm *comm, void *stream)
{
    struct tutti_device *dev = comm->device->device;
    struct tutti_device_space *space = comm->device->space;
    uint64_t capture = 0;
    TUTTI_TRY(tutti_device_capturing(dev, stream, &capture));
    if (capture) {
        space->capture = capture, space->capture_stream = stream;
        return dev->ops->capture_mark(dev, stream, &space->node);
    }
    TUTTI_TRY(dev->ops->event_record(dev, space->event, stream));
    space->stream = stream, space->used = true;
    return TUTTI_OK;
}

void *tutti_device_space_event(const struct tutti_comm_device *device)
{
    return device->space && device->space->used ? device->space->event : NULL;
}

void tutti_device_space_free(struct tutti_comm_device *device)
{
    struct tutti_device_space *space = device->space;
    if (!space) return;
    while (space->outgrown) {
        struct outgrown *old = space->outgrown;
        space->outgrown = old->next;
        device->device->ops->free(device->device, old->memory);
        tutti_free(old);
    }
    device->device->ops->free(device->device, space->memory);
    device->device->ops->event_destroy(device->device, space->event);
    tutti_free(space);
    device->space = NULL;
}

/* An all_to_all_v whose counts are in the device's memory, where a back end can read them there: the ranks' rows are
 * gathered, then moved by them; all on the caller's stream. */

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

/* The gathering of rows, and the exchange behind it, as calls: of equal blocks, and of blocks that nobody knows. */
static struct tutti_call call_of(const struct tutti_counted_call *counted, enum tutti_kind kind)
{
    return (struct tutti_call){.job = {.info = {.kind = kind, .dtype = counted->dtype}, .commutative = true},
                               .name = "all_to_all_v_dynamic",
                               .comm = counted->comm,
                               .options = counted->options,
                               .purpose = tutti_hash64("dynamic", 7, (uint64_t)counted->dtype) | 1};
}

static enum tutti_status gather(const struct tutti_counted_call *counted, uint64_t *rows)
{
    struct tutti_call call = call_of(counted, TUTTI_ALL_GATHER);
    const uint32_t words = counted_words((uint32_t)counted->comm->size);
    call.job.info.dtype = TUTTI_UINT64;
    call.job.bind.input = rows + (size_t)counted->comm->rank * words;
    call.job.bind.output = rows;
    call.job.bind.count = words;
    return tutti_device_step(&call);
}

static enum tutti_status exchange(const struct tutti_counted_call *counted, const uint64_t *rows)
{
    struct tutti_call call = call_of(counted, TUTTI_ALL_TO_ALL);
    struct tutti_backend *backend = backend_of(counted->comm->device);
    const size_t most = counted->row.send_capacity > counted->row.recv_capacity ? counted->row.send_capacity
                                                                                : counted->row.recv_capacity;
    const struct tutti_backend_counted what = {.rows = rows,
                                               .send_displs = counted->row.send_displs,
                                               .recv_counts = counted->recv_counts,
                                               .status = counted->status,
                                               .most_bytes = most * tutti_dtype_bytes(counted->dtype)};
    call.job.bind.input = counted->send, call.job.bind.output = counted->recv;
    call.job.counted = &what;
    tutti_call_ready(&call);
    return tutti_device_enqueue(counted->comm, backend, &call.job, counted->options.stream);
}

static enum tutti_status enqueue(const struct tutti_counted_call *counted)
{
    struct tutti_comm *comm = counted->comm;
    struct tutti_device *dev = comm->device->device;
    const uint32_t n = (uint32_t)comm->size;
    const struct tutti_call call = call_of(counted, TUTTI_ALL_TO_ALL);
    struct tutti_counted_row row = counted->row;
    char *memory;
    TUTTI_TRY(tutti_device_space_begin(comm, counted->options.stream, (size_t)n * counted_words(n) * sizeof(*row.row),
                                       &memory));
    uint64_t *rows = (uint64_t *)(void *)memory;
    row.n = n;
    row.row = rows + (size_t)comm->rank * counted_words(n);
    TUTTI_TRY(dev->ops->counted_row(dev, &row, counted->options.stream));
    enum tutti_status status = gather(counted, rows);
    if (status >= 0) status = exchange(counted, rows);
    if (status >= 0) status = tutti_device_space_end(comm, counted->options.stream);
    if (status < 0) tutti_call_give_up(&call, NULL, 0);
    return status;
}

enum tutti_status tutti_counted_enqueue(const struct tutti_counted_call *counted)
{
    tutti_comm_turn_take(counted->comm);
    const enum tutti_status status = enqueue(counted);
    tutti_comm_turn_give(counted->comm);
    return status;
}

/* Quantised calls on device memory (packed.h): kernels pack, sum and unpack, and the steps between them are
 * calls of their own on packed data, all on the caller's stream. Nothing waits, so they can be captured. */

static enum tutti_status recode(const struct tutti_call *call, const struct tutti_recode *job)
{
    struct tutti_device *dev = call->comm->device->device;
    return dev->ops->recode(dev, job, call->options.stream);
}

static enum tutti_status pack(const struct tutti_call *call, const struct tutti_packed_shape *shape, char *region)
{
    struct tutti_recode job;
    for (uint32_t i = 0; i < tutti_packed_inputs(call); i++) {
        tutti_packed_input(call, shape, i, region, &job);
        if (job.n_parts > 1 || job.skip != 0) TUTTI_TRY(recode(call, &job));
    }
    return TUTTI_OK;
}

/* From the first step on the others count on the rest. */
static enum tutti_status exchange_packed(const struct tutti_call *call, const struct tutti_packed_shape *shape,
                                         char *region, size_t *tables)
{
    struct tutti_call step;
    struct tutti_recode job;
    tutti_packed_step(call, shape, TUTTI_PACKED_COLLECT, region, tables, &step);
    TUTTI_TRY(tutti_device_step(&step));
    tutti_packed_sum(call, shape, region, &job);
    TUTTI_TRY(recode(call, &job));
    if (!shape->all) return TUTTI_OK;
    tutti_packed_step(call, shape, TUTTI_PACKED_SPREAD, region, NULL, &step);
    TUTTI_TRY(tutti_device_step(&step));
    tutti_packed_result(call, shape, region, &job);
    return recode(call, &job);
}

enum tutti_status tutti_packed_refusal(const struct tutti_call *call)
{
    if (call->comm->device->device->ops->recode) return TUTTI_OK;
    return tutti_call_fail(call, TUTTI_ERR_UNSUPPORTED, "the device can not pack data");
}

enum tutti_status tutti_packed_enqueue(struct tutti_call *call)
{
    struct tutti_comm *comm = call->comm;
    struct tutti_packed_shape shape;
    size_t *tables = NULL;
    char *region;
    TUTTI_TRY(tutti_packed_shape(call, &shape));
    if (call->job.bind.v && !(tables = tutti_alloc_array(2 * (size_t)comm->size, sizeof(*tables))))
        return tutti_call_fail(call, TUTTI_ERR_MEMORY, "out of memory for the tables of the call");
    enum tutti_status status = tutti_device_space_begin(comm, call->options.stream, shape.bytes, &region);
    if (status >= 0) status = pack(call, &shape, region);
    if (status >= 0) {
        status = exchange_packed(call, &shape, region, tables);
        if (status >= 0) status = tutti_device_space_end(comm, call->options.stream);
        if (status < 0) tutti_call_give_up(call, NULL, 0);
    }
    tutti_free(tables);
    return status;
}

/* A factor on the device: what this rank gives is multiplied by a run of it, in memory of the communicator, before the
 * call, whose own factor is 1. The run is made by copies, each of twice as much. */

#define RUN_MOST ((size_t)16 << 20)

static enum tutti_status multiply(const struct tutti_call *call, char *region, size_t run, size_t bytes)
{
    struct tutti_device *dev = call->comm->device->device;
    void *stream = call->options.stream;
    const size_t element = tutti_dtype_bytes(call->job.info.dtype);
    TUTTI_TRY(dev->ops->copy(dev, region, call->options.premul, element, stream));
    for (size_t done = element; done < run; done *= 2)
        TUTTI_TRY(dev->ops->copy(dev, region + done, region, done < run - done ? done : run - done, stream));
    for (size_t at = 0; at < bytes; at += run) {
        const struct tutti_fold fold = {.dtype = call->job.info.dtype,
                                        .op = TUTTI_PROD,
                                        .dst = region + run + at,
                                        .left = (const char *)call->job.bind.input + at,
                                        .right = region,
                                        .n = (bytes - at < run ? bytes - at : run) / element};
        TUTTI_TRY(dev->ops->fold(dev, &fold, stream));
    }
    return TUTTI_OK;
}

enum tutti_status tutti_scaled_enqueue(struct tutti_call *call)
{
    const struct tutti_call_side side = tutti_call_side(call, true);
    const size_t bytes = side.n_blocks * side.block_bytes, whole = (bytes + 255) & ~(size_t)255;
    const size_t run = whole < RUN_MOST ? whole : RUN_MOST;
    struct tutti_call step = *call;
    char *region;
    TUTTI_TRY(tutti_device_space_begin(call->comm, call->options.stream, run + bytes, &region));
    enum tutti_status status = multiply(call, region, run, bytes);
    step.options.premul = NULL;
    step.job.bind.input = region + run;
    if (status >= 0) status = tutti_device_step(&step);
    if (status >= 0) status = tutti_device_space_end(call->comm, call->options.stream);
    if (status < 0) tutti_call_give_up(call, NULL, 0);
    return status;
}
