/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract's buffers on devices. */

#include "contract.h"

#include "device/device.h"

#include <string.h>

#define ROOM_LEAST ((size_t)1 << 18)

static const struct tutti_device_ops *ops_of(const struct contract_memory *memory)
{
    return memory->device->ops;
}

static void *take(struct contract_memory *memory, struct tutti_comm *comm, bool mapped, size_t bytes)
{
    struct contract_room *room = memory->rooms, *end = room + CONTRACT_ROOMS;
    size_t size = ROOM_LEAST;
    while (size < bytes) size *= 2;
    while (room < end && room->at && (room->used || room->mapped != mapped || room->bytes < bytes)) room++;
    if (room == end) return NULL;
    if (!room->at) {
        enum tutti_status status =
            mapped ? tutti_mem_alloc(comm, size, &room->at) : ops_of(memory)->alloc(memory->device, size, &room->at);
        if (status < 0) return room->at = NULL;
        room->bytes = size, room->mapped = mapped;
    }
    room->used = true;
    return room->at;
}

static void release(struct contract_memory *memory, void *device)
{
    for (int i = 0; i < CONTRACT_ROOMS; i++)
        if (memory->rooms[i].at == device) memory->rooms[i].used = false;
}

static void *put(struct contract_memory *memory, struct tutti_comm *comm, bool mapped, const void *arena, size_t bytes)
{
    void *device = take(memory, comm, mapped, bytes);
    if (device && ops_of(memory)->copy_now(memory->device, device, arena, bytes) == TUTTI_OK) return device;
    if (device) release(memory, device);
    return NULL;
}

static bool get(struct contract_memory *memory, void *device, void *arena, size_t bytes)
{
    return ops_of(memory)->stream_sync(memory->device, memory->stream) == TUTTI_OK &&
           ops_of(memory)->copy_now(memory->device, arena, device, bytes) == TUTTI_OK;
}

void contract_memory_init(struct contract_memory *memory, struct tutti_device *device, void *stream)
{
    memset(memory, 0, sizeof *memory);
    memory->device = device, memory->stream = stream;
    memory->put = put, memory->get = get, memory->release = release;
}

enum tutti_status contract_memory_windows(struct contract_memory *memory, struct tutti_comm *comm, size_t bytes)
{
    for (int i = 0; i < 2; i++) { /* as many as a call has buffers; the first that are looked at */
        struct contract_room *room = &memory->rooms[i];
        enum tutti_status status = tutti_mem_alloc(comm, bytes, &room->at);
        if (status < 0) return status;
        room->bytes = bytes, room->mapped = true;
        status = tutti_window_create(comm, room->at, bytes, NULL, &room->window);
        if (status < 0) return status;
    }
    return TUTTI_OK;
}

void contract_memory_fini(struct contract_memory *memory, struct tutti_comm *comm)
{
    struct contract_room *end = memory->rooms + CONTRACT_ROOMS;
    for (struct contract_room *room = memory->rooms; room < end && room->at; room++) tutti_window_destroy(room->window);
    if (memory->rooms[0].window) (void)tutti_barrier(comm, NULL, NULL); /* the others have done so, too */
    for (struct contract_room *room = memory->rooms; room < end && room->at; room++) {
        if (room->mapped)
            (void)tutti_mem_free(comm, room->at);
        else
            ops_of(memory)->free(memory->device, room->at);
    }
    memset(memory->rooms, 0, sizeof memory->rooms);
}
