/* SPDX-License-Identifier: BSD-3-Clause */
/* <tutti/accelerator.h>: devices of the table for programs without a framework; memory of communicators. An
 * accelerator is a struct tutti_device. */
#include "comm/call/device.h"

#include <tutti/accelerator.h>
#include <tutti/comm.h>

static struct tutti_device *of(const struct tutti_accelerator *accelerator)
{
    return (struct tutti_device *)(uintptr_t)accelerator;
}

#define GIVEN(call, what)                                                                                              \
    do {                                                                                                               \
        if (!(what)) return tutti_fail(TUTTI_ERR_ARGUMENT, "accelerator_" call ": " #what " is NULL");                 \
    } while (0)

enum tutti_status tutti_accelerator_open(const char *kind, int32_t ordinal, struct tutti_accelerator **out)
{
    const struct tutti_device_ops *ops;
    struct tutti_device *device = NULL;
    GIVEN("open", out);
    TUTTI_TRY(tutti_device_use(kind, &ops));
    TUTTI_TRY(ops->open(ordinal, &device));
    *out = (struct tutti_accelerator *)device;
    return TUTTI_OK;
}

void tutti_accelerator_close(struct tutti_accelerator *accelerator)
{
    if (accelerator) of(accelerator)->ops->close(of(accelerator));
}

const char *tutti_accelerator_kind(const struct tutti_accelerator *accelerator)
{
    return accelerator ? of(accelerator)->ops->name : "";
}

const char *tutti_accelerator_name(const struct tutti_accelerator *accelerator)
{
    return accelerator ? of(accelerator)->name : "";
}

int32_t tutti_accelerator_count(const struct tutti_accelerator *accelerator)
{
    return accelerator ? (int32_t)of(accelerator)->ops->count() : 0;
}

int32_t tutti_accelerator_device(const struct tutti_accelerator *accelerator)
{
    return accelerator && !of(accelerator)->ops->on_host ? of(accelerator)->ordinal : TUTTI_DEVICE_NONE;
}

void *tutti_accelerator_context(const struct tutti_accelerator *accelerator)
{
    return accelerator ? of(accelerator)->context : NULL;
}

int32_t tutti_accelerator_current(void)
{
    return tutti_device_current();
}

enum tutti_status tutti_accelerator_alloc(struct tutti_accelerator *accelerator, size_t bytes, void **out)
{
    GIVEN("alloc", accelerator);
    GIVEN("alloc", out);
    return of(accelerator)->ops->alloc(of(accelerator), bytes, out);
}

void tutti_accelerator_free(struct tutti_accelerator *accelerator, void *memory)
{
    if (accelerator && memory) of(accelerator)->ops->free(of(accelerator), memory);
}

enum tutti_status tutti_accelerator_copy(struct tutti_accelerator *accelerator, void *dst, const void *src,
                                         size_t bytes, void *stream)
{
    GIVEN("copy", accelerator);
    if (bytes == 0) return TUTTI_OK;
    GIVEN("copy", dst);
    GIVEN("copy", src);
    return of(accelerator)->ops->copy(of(accelerator), dst, src, bytes, stream);
}

/* ---- streams ---- */

enum tutti_status tutti_accelerator_stream_create(struct tutti_accelerator *accelerator, void **out)
{
    GIVEN("stream_create", accelerator);
    GIVEN("stream_create", out);
    return of(accelerator)->ops->stream_create(of(accelerator), out);
}

enum tutti_status tutti_accelerator_stream_adopt(struct tutti_accelerator *accelerator, enum tutti_native kind,
                                                 void *native, void **out)
{
    GIVEN("stream_adopt", accelerator);
    GIVEN("stream_adopt", native);
    GIVEN("stream_adopt", out);
    if ((unsigned)kind > TUTTI_NATIVE_QUEUE)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "accelerator_stream_adopt: kind is %d: a list or a queue", (int)kind);
    const struct tutti_device_ops *ops = of(accelerator)->ops;
    if (!ops->stream_adopt)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "accelerator_stream_adopt: %s has no such handles", ops->name);
    return ops->stream_adopt(of(accelerator), kind, native, out);
}

void tutti_accelerator_stream_destroy(struct tutti_accelerator *accelerator, void *stream)
{
    if (accelerator && stream) of(accelerator)->ops->stream_destroy(of(accelerator), stream);
}

enum tutti_status tutti_accelerator_stream_sync(struct tutti_accelerator *accelerator, void *stream)
{
    GIVEN("stream_sync", accelerator);
    return of(accelerator)->ops->stream_sync(of(accelerator), stream);
}

enum tutti_status tutti_accelerator_stream_wait(struct tutti_accelerator *accelerator, void *stream, void *event)
{
    GIVEN("stream_wait", accelerator);
    GIVEN("stream_wait", event);
    return of(accelerator)->ops->stream_wait(of(accelerator), stream, event);
}

/* ---- events ---- */

enum tutti_status tutti_accelerator_event_create(struct tutti_accelerator *accelerator, void **out)
{
    GIVEN("event_create", accelerator);
    GIVEN("event_create", out);
    return of(accelerator)->ops->event_create(of(accelerator), true, out);
}

void tutti_accelerator_event_destroy(struct tutti_accelerator *accelerator, void *event)
{
    if (accelerator && event) of(accelerator)->ops->event_destroy(of(accelerator), event);
}

enum tutti_status tutti_accelerator_event_record(struct tutti_accelerator *accelerator, void *event, void *stream)
{
    GIVEN("event_record", accelerator);
    GIVEN("event_record", event);
    return of(accelerator)->ops->event_record(of(accelerator), event, stream);
}

enum tutti_status tutti_accelerator_event_query(struct tutti_accelerator *accelerator, void *event)
{
    GIVEN("event_query", accelerator);
    GIVEN("event_query", event);
    return of(accelerator)->ops->event_query(of(accelerator), event);
}

enum tutti_status tutti_accelerator_elapsed(struct tutti_accelerator *accelerator, void *from, void *to, double *us)
{
    GIVEN("elapsed", accelerator);
    GIVEN("elapsed", from);
    GIVEN("elapsed", to);
    GIVEN("elapsed", us);
    return of(accelerator)->ops->elapsed(of(accelerator), from, to, us);
}

/* Memory for zero-copy: of the communicator's device, if it has one, else of the host. What the user does not free goes
 * with the communicator's family. */

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
