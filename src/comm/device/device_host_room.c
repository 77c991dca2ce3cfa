/* SPDX-License-Identifier: BSD-3-Clause */
/* Rooms for twins: pinned memory, which is slow to get, and to give back waits for the device. So rooms are kept until
 * the communicator goes, in sizes that serve many calls. */
#include "comm/device/device_host.h"

#define ROOM_LEAST ((size_t)64 << 10)

/* Powers of two: what was too small at each growth is no more than the largest one. */
static size_t size_for(size_t bytes)
{
    size_t size = ROOM_LEAST;
    while (size < bytes && size <= SIZE_MAX / 4) size *= 2;
    return size < bytes ? bytes : size;
}

/* The smallest idle room that is large enough, NULL if there is none. */
static struct tutti_room *room_find(struct tutti_through *through, size_t bytes)
{
    struct tutti_room **best = NULL;

    for (struct tutti_room **at = &through->rooms; *at; at = &(*at)->next)
        if ((*at)->bytes >= bytes && (!best || (*at)->bytes < (*best)->bytes)) best = at;
    if (!best) return NULL;
    struct tutti_room *room = *best;
    *best = room->next;
    return room;
}

static enum tutti_status room_make(struct tutti_through *through, size_t bytes, struct tutti_room **out)
{
    struct tutti_room *room = tutti_alloc(sizeof(*room));
    void *at = NULL;

    if (!room) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for calls that go through the host");
    room->bytes = size_for(bytes);
    enum tutti_status status = through->device->ops->alloc_host(through->device, room->bytes, &at);
    if (status < 0) {
        tutti_free(room);
        return status;
    }
    room->at = at;
    *out = room;
    return TUTTI_OK;
}

enum tutti_status tutti_room_take(struct tutti_through *through, size_t bytes, struct tutti_room **out)
{
    pthread_mutex_lock(&through->lock);
    struct tutti_room *room = room_find(through, bytes);
    pthread_mutex_unlock(&through->lock);
    if (!room) TUTTI_TRY(room_make(through, bytes, &room));
    pthread_mutex_lock(&through->lock);
    through->used_bytes += room->bytes;
    pthread_mutex_unlock(&through->lock);
    *out = room;
    return TUTTI_OK;
}

void tutti_room_give(struct tutti_through *through, struct tutti_room *room)
{
    through->used_bytes -= room->bytes;
    room->next = through->rooms;
    through->rooms = room;
}

void tutti_rooms_free(struct tutti_through *through)
{
    while (through->rooms) {
        struct tutti_room *room = through->rooms;
        through->rooms = room->next;
        through->device->ops->free_host(through->device, room->at);
        tutti_free(room);
    }
}
