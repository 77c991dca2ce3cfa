/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows: every rank tells where its part lies in its heap; each maps the others'. */
#include "comm/comm.h"

struct part {
    uint64_t offset, bytes;
    int64_t status;
};

struct peer {
    void *address; /* NULL: another host */
    size_t bytes;
};

struct tutti_window {
    struct tutti_attached attached; /* first */
    uint32_t n;
    struct peer *peers;
};

/* Offers of one address space are addresses. */
static bool locate(struct tutti_transport *transport, const void *base, size_t bytes, uint64_t *offset)
{
    if (transport->caps & TUTTI_CAP_ADDRESSES) {
        *offset = (uint64_t)(uintptr_t)base;
        return true;
    }
    return transport->ops->locate && transport->ops->locate(transport, base, bytes, offset);
}

static void *map(struct tutti_transport *transport, uint32_t member, const struct part *part)
{
    if (transport->caps & TUTTI_CAP_ADDRESSES) return (void *)(uintptr_t)part->offset;
    return transport->ops->map ? transport->ops->map(transport, member, part->offset, (size_t)part->bytes) : NULL;
}

static struct part own_part(struct tutti_comm *comm, void *base, size_t bytes)
{
    struct part part = {.bytes = bytes, .status = TUTTI_OK};
    struct tutti_transport *transport = comm->family->world.transport;
    if (bytes == 0) return part;
    if (!base || !tutti_mem_holds(comm->family, base, bytes)) part.status = TUTTI_ERR_ARGUMENT;
    /* Alone, there is nobody to map it. */
    else if (comm->size > 1 && !locate(transport, base, bytes, &part.offset))
        part.status = TUTTI_ERR_UNSUPPORTED;
    return part;
}

static enum tutti_status refused_by(const struct tutti_comm *comm, const struct part *parts)
{
    for (int32_t r = 0; r < comm->size; r++) {
        if (parts[r].status >= 0) continue;
        if (parts[r].status == TUTTI_ERR_ARGUMENT)
            return tutti_fail(TUTTI_ERR_ARGUMENT,
                              "window_create on rank %d: base and bytes of rank %d are not inside memory of "
                              "tutti_mem_alloc",
                              (int)comm->rank, (int)r);
        return tutti_fail((enum tutti_status)parts[r].status,
                          "window_create on rank %d: the memory of rank %d can not be mapped by others",
                          (int)comm->rank, (int)r);
    }
    return TUTTI_OK;
}

static enum tutti_status window_make(struct tutti_comm *comm, const struct part *parts, void *base,
                                     struct tutti_window **out)
{
    struct tutti_window *window = tutti_alloc(sizeof(*window));
    struct peer *peers = tutti_alloc_array((size_t)comm->size, sizeof(*peers));
    if (!window || !peers) {
        tutti_free(window);
        tutti_free(peers);
        return tutti_fail(TUTTI_ERR_MEMORY, "window_create on rank %d: out of memory", (int)comm->rank);
    }
    window->n = (uint32_t)comm->size;
    window->peers = peers;
    for (int32_t r = 0; r < comm->size; r++) {
        peers[r].bytes = (size_t)parts[r].bytes;
        if (parts[r].bytes == 0) continue;
        peers[r].address = r == comm->rank ? base : map(comm->family->world.transport, comm->members[r], &parts[r]);
    }
    *out = window;
    return TUTTI_OK;
}

static void window_free(struct tutti_window *window)
{
    tutti_free(window->peers);
    tutti_free(window);
}

static enum tutti_status window_create(struct tutti_comm *comm, void *base, size_t bytes, struct tutti_window **out)
{
    struct part mine = own_part(comm, base, bytes);
    if (!out) mine.status = TUTTI_ERR_ARGUMENT;
    struct tutti_window *window = NULL;
    struct part *parts = tutti_alloc_array((size_t)comm->size, sizeof(*parts));
    enum tutti_status status = tutti_agree_gather(comm, "window_create", &mine, sizeof(mine), parts, NULL);
    if (status >= 0) status = refused_by(comm, parts);
    if (status >= 0) {
        enum tutti_status made = window_make(comm, parts, base, &window);
        status = tutti_agree_verdict(comm, "window_create", made);
    }
    tutti_free(parts);
    if (status >= 0) {
        tutti_comm_attach(comm, &window->attached);
        *out = window;
    } else if (window) {
        window_free(window);
    }
    return status;
}

enum tutti_status tutti_window_create(struct tutti_comm *comm, void *base, size_t bytes, struct tutti_window **out)
{
    TUTTI_TRY(tutti_call_alone("window_create"));
    TUTTI_TRY(tutti_comm_enter(comm, "window_create"));
    enum tutti_status status = window_create(comm, base, bytes, out);
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
    tutti_comm_leave(comm);
    if (bytes) *bytes = window->peers[rank].bytes;
    return window->peers[rank].address;
}

void tutti_window_destroy(struct tutti_window *window)
{
    if (!window) return;
    tutti_comm_detach(&window->attached);
    window_free(window);
}
