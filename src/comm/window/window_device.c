/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows of device memory: each rank tells where its part lies in an allocation that others can map, and its words: a
 * small one of the back end's for signals. The back ends of devices map the others', and know from then on that the
 * same offset is there on all ranks. Calls on them: device_access.c. */
#include "comm/window/mover.h"
#include "comm/window/stream.h"
#include "comm/window/window.h"

bool tutti_window_on_device(const struct tutti_comm *comm, const void *base)
{
    const struct tutti_comm_device *device = comm->device;
    return base && device && device->device && device->device->ops->of(base) == device->ordinal;
}

/* The back end that carries out one-sided calls: the first one that does. NULL: none. */
static struct tutti_backend *backend_of(const struct tutti_comm *comm)
{
    const struct tutti_comm_device *device = comm->device;
    for (uint32_t b = 0; device && b < device->n; b++)
        if (device->backends[b]->ops->access) return device->backends[b];
    return NULL;
}

bool tutti_window_device_reach(const struct tutti_comm *comm)
{
    const struct tutti_comm_device *device = comm->device;
    for (uint32_t b = 0; device && b < device->n; b++)
        if (device->backends[b]->ops->window_add) return true;
    return false;
}

/* ---- what this rank brings ---- */

/* Others can map what holds the range: by its address in this process, else by a handle. Where they do not reach it
 * anyhow they need none. */
static enum tutti_status card_fill(const struct tutti_comm *comm, void *base, size_t bytes,
                                   struct tutti_window_card *card)
{
    struct tutti_device *dev = comm->device->device;
    bool addresses = tutti_memory_is_one(comm->family->world.transport->memory);

    card->bytes = bytes;
    card->address = (uint64_t)(uintptr_t)base;
    if (addresses || comm->size == 1 || !tutti_window_device_reach(comm)) return dev->ops->holds(dev, base, bytes);
    if (!dev->ops->export_memory)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "memory of device %d is this process's alone", (int)dev->ordinal);
    return dev->ops->export_memory(dev, base, bytes, card->handle, &card->offset);
}

void tutti_window_device_part(const struct tutti_comm *comm, void *base, size_t bytes, struct tutti_window_part *out)
{
    out->memory = TUTTI_WINDOW_DEVICE;
    out->align = (uintptr_t)base % sizeof(uint64_t);
    out->status = card_fill(comm, base, bytes, &out->card);
    out->apart = out->status == TUTTI_ERR_UNSUPPORTED;
    if (out->apart) out->status = TUTTI_OK;
}

static size_t word_bytes(uint32_t n_signals)
{
    return n_signals * sizeof(uint64_t) + (TUTTI_DEVICE_RANKS + 1) * TUTTI_DEVICE_BARRIERS * sizeof(uint32_t);
}

enum tutti_status tutti_window_device_words(const struct tutti_comm *comm, struct tutti_window_part *part)
{
    struct tutti_backend *backend = backend_of(comm);
    void *words = NULL;
    if (!backend) return TUTTI_OK;
    TUTTI_TRY(backend->ops->words_take(backend, word_bytes(part->n_signals), &words));
    part->words.address = (uint64_t)(uintptr_t)words;
    return card_fill(comm, words, word_bytes(part->n_signals), &part->words);
}

bool tutti_window_plain_links(const struct tutti_comm *comm)
{
    const struct tutti_backend *backend = backend_of(comm);
    return backend && backend->plain_links;
}

/* Where the link of some ranks has no atomics: their changes of words go by messages. */
enum tutti_status tutti_window_device_words_far(struct tutti_comm *comm, void *base, struct tutti_window *window)
{
    const struct tutti_mover_words words = {.backend = window->backend,
                                            .words = window->words,
                                            .at = tutti_window_words_at(&window->peers[window->me]),
                                            .bytes = window->peers[window->me].bytes,
                                            .me = window->me};
    struct tutti_streams *streams = NULL;
    window->far = true;
    TUTTI_TRY(tutti_streams_open(comm, window, &streams));
    atomic_store(&window->streams, streams);
    TUTTI_TRY(tutti_mover_open(comm->device->pinned, comm->team, base, sizeof(uint64_t), &words, &window->mover));
    return tutti_window_expose(window, comm, base, window->peers[window->me].bytes);
}

void tutti_window_device_withdraw(const struct tutti_comm *comm, const struct tutti_window_part *part, bool kept)
{
    const struct tutti_device *dev = comm->device ? comm->device->device : NULL;
    struct tutti_backend *backend = backend_of(comm);
    if (!dev) return;
    if (dev->ops->unexport_memory && part->memory == TUTTI_WINDOW_DEVICE) dev->ops->unexport_memory(part->card.handle);
    if (!backend || !part->words.address) return;
    if (dev->ops->unexport_memory) dev->ops->unexport_memory(part->words.handle);
    if (!kept) backend->ops->words_give(backend, (void *)(uintptr_t)part->words.address);
}

/* ---- mapped ---- */

static size_t n_windowed(const struct tutti_comm_device *device)
{
    size_t n = 0;
    for (uint32_t b = 0; b < device->n; b++) n += device->backends[b]->ops->window_add != NULL;
    return n;
}

static void remove_from(const struct tutti_comm_device *device, uint32_t n_backends, void *own)
{
    for (uint32_t b = 0; b < n_backends; b++) {
        struct tutti_backend *backend = device->backends[b];
        if (backend->ops->window_remove) backend->ops->window_remove(backend, own);
    }
}

/* To all back ends or none; the first one's mappings are what users see. */
static enum tutti_status add_to_all(struct tutti_comm *comm, const struct tutti_window_cards *cards,
                                    struct tutti_window_places places)
{
    const struct tutti_comm_device *device = comm->device;
    const size_t n = (size_t)comm->size;

    for (uint32_t b = 0; b < device->n; b++) {
        struct tutti_backend *backend = device->backends[b];
        if (!backend->ops->window_add) continue;
        if (backend->ops->window_add(backend, cards, &places) < 0) {
            struct tutti_error why = *tutti_last_error();
            remove_from(device, b, cards->own);
            return tutti_fail_record(&why);
        }
        places = (struct tutti_window_places){places.parts + n, places.words + n};
    }
    return TUTTI_OK;
}

static void keep(struct tutti_window *window, const struct tutti_comm *comm, const struct tutti_window_part *parts,
                 void *base, const struct tutti_window_places *places)
{
    for (uint32_t r = 0; r < window->n; r++) {
        struct tutti_window_peer *peer = &window->peers[r];
        peer->address = parts[r].bytes == 0 ? NULL : r == window->me ? base : places->parts[r];
        peer->words = places->words[r];
    }
    window->words = (void *)(uintptr_t)parts[window->me].words.address;
    window->backend = backend_of(comm);
    window->on_device = true;
}

enum tutti_status tutti_window_device_map(struct tutti_comm *comm, const struct tutti_window_part *parts, void *base,
                                          struct tutti_window *window)
{
    const struct tutti_window_part *mine = &parts[comm->rank];
    const size_t n = (size_t)comm->size, n_backends = n_windowed(comm->device);
    void **room = tutti_alloc_array(2 * n * n_backends, sizeof(void *));
    if (!room) return tutti_fail(TUTTI_ERR_MEMORY, "window_create on rank %d: out of memory", (int)comm->rank);
    const struct tutti_window_places places = {room, room + n * n_backends};
    window->own = mine->bytes ? base : window; /* another one may begin there */
    const struct tutti_window_cards cards = {.parts = &parts->card,
                                             .words = &parts->words,
                                             .stride = sizeof(*parts),
                                             .own = window->own,
                                             .own_words = (void *)(uintptr_t)mine->words.address,
                                             .bytes = (size_t)mine->bytes,
                                             .word_bytes = (size_t)mine->words.bytes};
    tutti_comm_turn_take(comm);
    enum tutti_status status = add_to_all(comm, &cards, places);
    tutti_comm_turn_give(comm);
    if (status >= 0) keep(window, comm, parts, base, &places);
    tutti_free(room);
    return status;
}

void tutti_window_device_forget(struct tutti_comm *comm, struct tutti_window *window)
{
    if (!window->on_device) return;
    tutti_comm_turn_take(comm);
    remove_from(comm->device, comm->device->n, window->own);
    tutti_comm_turn_give(comm);
    for (uint32_t r = 0; r < window->n; r++) window->peers[r].address = NULL, window->peers[r].words = NULL;
    window->on_device = false, window->backend = NULL, window->words = NULL;
}

bool tutti_window_device_lives(const struct tutti_comm *comm, const struct tutti_window *window)
{
    return comm->device && comm->n_devices == window->n_devices;
}

void tutti_window_device_unmap(struct tutti_comm *comm, const struct tutti_window *window)
{
    if (!tutti_window_device_lives(comm, window)) return; /* the back ends took them back */
    /* What does not end keeps its mappings until the back ends close. */
    if (!tutti_comm_wait_device(comm, tutti_deadline_ns(atomic_load(&comm->timeout_ns)))) return;
    tutti_comm_turn_take(comm);
    remove_from(comm->device, comm->device->n, window->own);
    tutti_comm_turn_give(comm);
    if (window->words) window->backend->ops->words_give(window->backend, window->words);
}
