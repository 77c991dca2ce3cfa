/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows: every rank tells where its part lies in its heap; each maps the others'. Those of device memory:
 * window_device.c. */
#include "comm/memory/window.h"

static bool locate(struct tutti_transport *transport, const void *base, size_t bytes, uint64_t *where)
{
    struct tutti_memory *m = transport->memory;
    return m && m->ops->locate(m, base, bytes, where);
}

static void *map(struct tutti_transport *transport, uint32_t member, const struct tutti_window_part *part)
{
    struct tutti_memory *m = transport->memory;
    if (!tutti_memory_reaches(m, member)) return NULL;
    return m->ops->map(m, member, part->offset, (size_t)part->bytes);
}

static struct tutti_window_part own_part(struct tutti_comm *comm, void *base, size_t bytes)
{
    struct tutti_window_part part = {.bytes = bytes, .status = TUTTI_OK};
    struct tutti_transport *transport = comm->family->world.transport;
    if (bytes == 0) return part;
    if (tutti_window_on_device(comm, base)) {
        tutti_window_device_part(comm, base, bytes, &part);
        return part;
    }
    part.memory = TUTTI_WINDOW_HOST;
    if (!base || !tutti_block_holds(comm->family, base, bytes)) part.status = TUTTI_ERR_ARGUMENT;
    /* Alone, there is nobody to map it. */
    else if (comm->size > 1 && !locate(transport, base, bytes, &part.offset))
        part.status = TUTTI_ERR_UNSUPPORTED;
    return part;
}

static const char *wrong_place(const struct tutti_window_part *part)
{
    return part->memory == TUTTI_WINDOW_DEVICE ? "one allocation of its device" : "memory of tutti_mem_alloc";
}

static enum tutti_status refused_by(const struct tutti_comm *comm, const struct tutti_window_part *parts)
{
    for (int32_t r = 0; r < comm->size; r++) {
        if (parts[r].status >= 0) continue;
        if (parts[r].status == TUTTI_ERR_ARGUMENT)
            return tutti_fail(TUTTI_ERR_ARGUMENT,
                              "window_create on rank %d: base and bytes of rank %d are not inside %s", (int)comm->rank,
                              (int)r, wrong_place(&parts[r]));
        return tutti_fail((enum tutti_status)parts[r].status,
                          "window_create on rank %d: the memory of rank %d can not be mapped by others",
                          (int)comm->rank, (int)r);
    }
    return TUTTI_OK;
}

/* Device memory on all ranks that bring some, or on none. */
static enum tutti_status agree_memory(const struct tutti_comm *comm, const struct tutti_window_part *parts,
                                      bool *on_device)
{
    int32_t first = -1;
    for (int32_t r = 0; r < comm->size; r++) {
        if (parts[r].memory == TUTTI_WINDOW_NONE) continue;
        if (first < 0) first = r;
        if (parts[r].memory == parts[first].memory) continue;
        bool here = parts[r].memory == TUTTI_WINDOW_DEVICE;
        return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                          "window_create on rank %d: rank %d brings device memory and rank %d host memory: a window is "
                          "of one kind",
                          (int)comm->rank, (int)(here ? r : first), (int)(here ? first : r));
    }
    *on_device = first >= 0 && parts[first].memory == TUTTI_WINDOW_DEVICE;
    return TUTTI_OK;
}

static void window_free(struct tutti_window *window)
{
    tutti_free(window->peers);
    tutti_free(window);
}

static void map_all(struct tutti_comm *comm, const struct tutti_window_part *parts, void *base,
                    struct tutti_window *window)
{
    for (int32_t r = 0; r < comm->size; r++) {
        if (parts[r].bytes == 0) continue;
        window->peers[r].address =
            r == comm->rank ? base : map(comm->family->world.transport, comm->members[r], &parts[r]);
    }
}

static enum tutti_status window_make(struct tutti_comm *comm, const struct tutti_window_part *parts, bool on_device,
                                     void *base, struct tutti_window **out)
{
    struct tutti_window *window = tutti_alloc(sizeof(*window));
    struct tutti_window_peer *peers = tutti_alloc_array((size_t)comm->size, sizeof(*peers));
    if (!window || !peers) {
        tutti_free(window);
        tutti_free(peers);
        return tutti_fail(TUTTI_ERR_MEMORY, "window_create on rank %d: out of memory", (int)comm->rank);
    }
    window->n = (uint32_t)comm->size;
    window->peers = peers;
    for (int32_t r = 0; r < comm->size; r++) peers[r].bytes = (size_t)parts[r].bytes;
    if (!on_device) {
        map_all(comm, parts, base, window);
    } else if (tutti_window_device_map(comm, parts, base, window) < 0) {
        window_free(window);
        return tutti_last_error()->status;
    }
    *out = window;
    return TUTTI_OK;
}

/* What all ranks learned of one another is a window, or the same refusal on all. */
static enum tutti_status window_agree(struct tutti_comm *comm, const struct tutti_window_part *parts, void *base,
                                      struct tutti_window **out)
{
    bool on_device = false;
    struct tutti_window *window = NULL;
    TUTTI_TRY(refused_by(comm, parts));
    TUTTI_TRY(agree_memory(comm, parts, &on_device));
    enum tutti_status made = window_make(comm, parts, on_device, base, &window);
    enum tutti_status status = tutti_agree_verdict(comm, "window_create", made);
    if (status < 0 && window) {
        struct tutti_error why = *tutti_last_error();
        if (window->on_device) tutti_window_device_unmap(comm, window);
        window_free(window);
        tutti_fail_record(&why);
    }
    if (status >= 0) *out = window;
    return status;
}

static enum tutti_status window_create(struct tutti_comm *comm, void *base, size_t bytes, struct tutti_window **out)
{
    struct tutti_window_part mine = own_part(comm, base, bytes);
    struct tutti_error own = *tutti_last_error();
    if (!out) mine.status = TUTTI_ERR_ARGUMENT;
    struct tutti_window *window = NULL;
    struct tutti_window_part *parts = tutti_alloc_array((size_t)comm->size, sizeof(*parts));
    enum tutti_status status = tutti_agree_gather(comm, "window_create", &mine, sizeof(mine), parts, NULL);
    if (status >= 0) status = window_agree(comm, parts, base, &window);
    tutti_free(parts);
    tutti_window_device_withdraw(comm, &mine); /* whoever could map it has, or knows that it is refused */
    if (status < 0) {
        if (!out) return tutti_fail(TUTTI_ERR_ARGUMENT, "window_create on rank %d: out is NULL", (int)comm->rank);
        if (mine.memory == TUTTI_WINDOW_DEVICE && mine.status < 0 && own.status == (enum tutti_status)mine.status)
            return tutti_fail(own.status, "window_create on rank %d: %.400s", (int)comm->rank, own.text);
        return status;
    }
    tutti_comm_attach(comm, &window->attached);
    if (out) *out = window; /* without it all were refused */
    return TUTTI_OK;
}

enum tutti_status tutti_window_create(struct tutti_comm *comm, void *base, size_t bytes,
                                      const struct tutti_window_config *config, struct tutti_window **out)
{
    TUTTI_TRY(tutti_call_alone("window_create"));
    TUTTI_TRY(tutti_comm_enter(comm, "window_create"));
    enum tutti_status status = tutti_staging_settle(comm);
    if (status >= 0) status = window_create(comm, base, bytes, out);
    tutti_comm_leave(comm);
    return status;
}

void *tutti_window_peer(struct tutti_window *window, int32_t rank, size_t *bytes)
{
    if (!window || rank < 0 || (uint32_t)rank >= window->n) {
        tutti_fail(TUTTI_ERR_ARGUMENT, "window_peer: rank %d is not in the window", (int)rank);
        return NULL;
    }
    struct tutti_comm *comm;
    if (tutti_comm_enter_attached(&window->attached, "window_peer", &comm) < 0) return NULL; /* mapped no more */
    bool mapped = !window->on_device || tutti_window_device_lives(comm, window);
    tutti_comm_leave(comm);
    if (!mapped) {
        tutti_fail(TUTTI_ERR_ARGUMENT, "window_peer: the communicator has another device now");
        return NULL;
    }
    if (bytes) *bytes = window->peers[rank].bytes;
    return window->peers[rank].address;
}

void tutti_window_destroy(struct tutti_window *window)
{
    struct tutti_comm *comm;
    if (!window) return;
    if (window->on_device && tutti_comm_enter_attached(&window->attached, "window_destroy", &comm) >= 0) {
        tutti_window_device_unmap(comm, window);
        tutti_comm_leave(comm);
    }
    tutti_comm_detach(&window->attached);
    window_free(window);
}
