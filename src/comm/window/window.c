/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows as objects: every rank tells where its part and its pad (pad.h) lie; each maps the others'. Those of device
 * memory: window_device.c. */
#include "comm/window/window.h"
#include "comm/window/mover.h"
#include "comm/window/stream.h"

#define SIGNALS_LEAST 64
#define SIGNALS_MOST (UINT32_C(1) << 24)
#define NAP_NS (20 * UINT64_C(1000))
#define FENCED_RANKS 16 /* so many and more do not interrupt one another for each sleep: see flat_instance.c */

static bool locate(const struct tutti_comm *comm, const void *base, size_t bytes, uint64_t *where)
{
    struct tutti_memory *m = comm->family->world.transport->memory;
    return m && m->ops->locate(m, base, bytes, where);
}

static void *map(const struct tutti_comm *comm, int32_t rank, uint64_t where, size_t bytes)
{
    struct tutti_memory *m = comm->family->world.transport->memory;
    if (!tutti_memory_reaches(m, comm->members[rank])) return NULL;
    return m->ops->map(m, comm->members[rank], where, bytes);
}

/* ---- what this rank brings ---- */

static size_t pad_bytes(uint32_t n_signals)
{
    return n_signals * tutti_signal_step(n_signals) * sizeof(uint64_t);
}

static enum tutti_status config_read(const struct tutti_comm *comm, const struct tutti_window_config *config,
                                     struct tutti_window_part *part)
{
    const uint32_t n = (uint32_t)comm->size;
    part->n_signals = n > SIGNALS_LEAST ? n : SIGNALS_LEAST;
    if (!config) return TUTTI_OK;
    if (config->size < sizeof(*config))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "config.size is %zu: begin with TUTTI_WINDOW_CONFIG_INIT", config->size);
    if (config->n_signals) part->n_signals = config->n_signals;
    if (config->n_signals > SIGNALS_MOST)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "n_signals is %u, and can be %u at most", config->n_signals,
                          SIGNALS_MOST);
    return TUTTI_OK;
}

static enum tutti_status pad_make(struct tutti_comm *comm, struct tutti_window_part *part, struct tutti_own_pad **out)
{
    const bool alone = comm->size >= FENCED_RANKS || comm->family->world.crowded;
    TUTTI_TRY(tutti_pad_take(comm, pad_bytes(part->n_signals), out));
    part->pad_located = locate(comm, (*out)->pad, (*out)->bytes, &part->pad);
    part->fences = alone || !tutti_fence_all_available();
    return TUTTI_OK;
}

static enum tutti_status part_of_host(struct tutti_comm *comm, const void *base, size_t bytes,
                                      struct tutti_window_part *part)
{
    part->memory = TUTTI_WINDOW_HOST;
    part->align = (uintptr_t)base % sizeof(uint64_t);
    const int32_t device = tutti_device_of(base);
    if (!base) return tutti_fail(TUTTI_ERR_ARGUMENT, "base is NULL but bytes is %zu", bytes);
    if (device != -1)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "base is memory of device %d, which is not the communicator's",
                          (int)device);
    if (bytes > UINTPTR_MAX - (uintptr_t)base)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "base and its %zu bytes reach past the end of the address space", bytes);
    if (tutti_block_holds(comm->family, base, 1) && !tutti_block_holds(comm->family, base, bytes))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%zu bytes at base reach past the end of their memory of tutti_mem_alloc",
                          bytes);
    part->located = locate(comm, base, bytes, &part->offset);
    return TUTTI_OK;
}

static void say_apart(const struct tutti_comm *comm)
{
    tutti_log(TUTTI_LOG_WARN, "window_create on rank %d: calls on the window go by messages: %s", (int)comm->rank,
              tutti_last_error()->text);
}

static enum tutti_status own_part(struct tutti_comm *comm, void *base, size_t bytes,
                                  const struct tutti_window_config *config, struct tutti_window_part *part,
                                  struct tutti_own_pad **pad)
{
    TUTTI_TRY(config_read(comm, config, part));
    part->plain_links = tutti_window_plain_links(comm);
    if (bytes > 0 && tutti_window_on_device(comm, base)) {
        tutti_window_device_part(comm, base, bytes, part);
        if (part->status < 0) return (enum tutti_status)part->status;
        if (part->apart) say_apart(comm);
    }
    if (bytes > 0 && part->memory != TUTTI_WINDOW_DEVICE)
        TUTTI_TRY(part_of_host(comm, base, bytes, part));
    else
        TUTTI_TRY(tutti_window_device_words(comm, part)); /* without a part it is of what the others bring */
    return pad_make(comm, part, pad);                     /* nor is it known what these bring */
}

/* ---- what all ranks agree on ---- */

static enum tutti_status refusal(const struct tutti_comm *comm, int32_t rank, const struct tutti_window_part *part)
{
    const enum tutti_status status = (enum tutti_status)part->status;
    if (part->memory != TUTTI_WINDOW_DEVICE || status != TUTTI_ERR_ARGUMENT)
        return tutti_fail(status, "window_create on rank %d: rank %d failed: %s", (int)comm->rank, (int)rank,
                          tutti_status_text(status));
    return tutti_fail(status,
                      "window_create on rank %d: base and bytes of rank %d are not inside one allocation of its device",
                      (int)comm->rank, (int)rank);
}

static enum tutti_status refused_by(const struct tutti_comm *comm, const struct tutti_window_part *parts)
{
    for (int32_t r = 0; r < comm->size; r++)
        if (parts[r].status < 0) return refusal(comm, r, &parts[r]);
    for (int32_t r = 1; r < comm->size; r++)
        if (parts[r].n_signals != parts[0].n_signals)
            return tutti_fail(
                TUTTI_ERR_ARGUMENT,
                "window_create on rank %d: n_signals is %u on rank 0 and %u on rank %d: it is to be equal",
                (int)comm->rank, parts[0].n_signals, parts[r].n_signals, (int)r);
    return TUTTI_OK;
}

static bool some_bring(const struct tutti_comm *comm, const struct tutti_window_part *parts,
                       enum tutti_window_memory memory)
{
    for (int32_t r = 0; r < comm->size; r++)
        if (parts[r].memory == memory) return true;
    return false;
}

/* ---- made ---- */

static struct tutti_window *window_new(const struct tutti_comm *comm)
{
    struct tutti_window *window = tutti_alloc(sizeof(*window));
    if (!window) return NULL;
    window->n = (uint32_t)comm->size, window->me = (uint32_t)comm->rank;
    window->peers = tutti_alloc_array(window->n, sizeof(*window->peers));
    if (window->peers) return window;
    tutti_free(window);
    return NULL;
}

static void window_free(struct tutti_window *window)
{
    tutti_free(window->peers);
    tutti_free(window);
}

static void map_host(struct tutti_comm *comm, const struct tutti_window_part *parts, void *base,
                     struct tutti_window *window)
{
    const size_t head = tutti_pad_head(window->n), bytes = head + pad_bytes(window->n_signals);
    window->pad->unseen = false;
    for (int32_t r = 0; r < comm->size; r++) {
        struct tutti_window_peer *peer = &window->peers[r];
        const bool own = r == comm->rank;
        if (own) peer->pad = window->pad->pad, peer->address = parts[r].bytes ? base : NULL;
        if (!own && parts[r].pad_located) peer->pad = map(comm, r, parts[r].pad, bytes);
        if (!own && parts[r].located) peer->address = map(comm, r, parts[r].offset, (size_t)parts[r].bytes);
        if (peer->pad && (peer->address || parts[r].bytes == 0))
            peer->signals = (_Atomic uint64_t *)(void *)((char *)peer->pad + head);
        else
            window->far = true;
        if (own && comm->size > 1) window->far |= !parts[r].pad_located || (parts[r].bytes > 0 && !parts[r].located);
        window->pad->pad->bell.fences |= parts[r].fences;
    }
    window->ops = &tutti_window_host_ops;
}

/* All parts are on devices that reach one another. UNSUPPORTED on all ranks, and nothing is mapped: some rank's memory
 * can not be. */
static enum tutti_status map_devices(struct tutti_comm *comm, const struct tutti_window_part *parts, void *base,
                                     struct tutti_window *window)
{
    const enum tutti_status mine = tutti_window_device_map(comm, parts, base, window);
    const bool apart = mine == TUTTI_ERR_UNSUPPORTED;
    if (apart) say_apart(comm);
    enum tutti_status status = tutti_agree_verdict(comm, "window_create", apart ? TUTTI_OK : mine);
    if (status >= 0) status = tutti_agree_verdict(comm, "window_create", apart ? mine : TUTTI_OK);
    if (status < 0) tutti_window_device_forget(comm, window);
    window->ops = &tutti_window_device_ops;
    bool plain = false;
    for (uint32_t r = 0; r < window->n; r++) plain |= parts[r].plain_links;
    if (status < 0 || !plain) return status;
    return tutti_agree_verdict(comm, "window_create", tutti_window_device_words_far(comm, base, window));
}

/* Some parts are on devices, where not all ranks reach them: all of them are accessed by messages. */
static enum tutti_status map_apart(struct tutti_comm *comm, const struct tutti_window_part *parts, void *base,
                                   struct tutti_window *window)
{
    const enum tutti_window_memory memory = parts[comm->rank].memory;
    struct tutti_streams *streams = NULL;
    window->far = true;
    if (!comm->device->device) return TUTTI_OK;
    TUTTI_TRY(tutti_streams_open(comm, window, &streams)); /* now: see there */
    atomic_store(&window->streams, streams);
    if (memory == TUTTI_WINDOW_HOST) return TUTTI_OK;
    window->ops = &tutti_window_stream_ops;
    if (memory == TUTTI_WINDOW_NONE) return TUTTI_OK;
    return tutti_mover_open(comm->device->pinned, comm->team, base, comm->family->world.transport->max_payload, NULL,
                            &window->mover);
}

static void let_go_pads(struct tutti_comm *comm, struct tutti_window *window)
{
    for (uint32_t r = 0; r < window->n; r++)
        if (r != window->me && window->peers[r].pad) tutti_pad_let_go(comm, window->peers[r].pad);
    if (window->pad) tutti_pad_drop(window->pad);
    window->pad = NULL;
}

/* Takes the window away from the communicator, which is still there; not what devices have mapped. */
static void window_end(struct tutti_window *window, struct tutti_comm *comm)
{
    const uint64_t deadline_ns = tutti_deadline_ns(atomic_load(&comm->timeout_ns));
    tutti_streams_close(atomic_load(&window->streams), deadline_ns); /* they may access the own part */
    tutti_window_hide(window, comm);
    tutti_mover_close(window->mover);
    window->mover = NULL;
    atomic_store(&window->streams, NULL);
    let_go_pads(comm, window);
}

/* What all ranks learned of one another is a window, or the same refusal on all. */
static enum tutti_status window_agree(struct tutti_comm *comm, const struct tutti_window_part *parts, void *base,
                                      struct tutti_window *window)
{
    if (window && window->pad) window->pad->unseen = true;
    TUTTI_TRY(refused_by(comm, parts));
    const bool host = some_bring(comm, parts, TUTTI_WINDOW_HOST), device = some_bring(comm, parts, TUTTI_WINDOW_DEVICE);
    bool apart = !tutti_window_device_reach(comm);
    for (uint32_t r = 0; r < window->n; r++) apart |= parts[r].apart;
    for (uint32_t r = 0; r < window->n; r++)
        window->peers[r].bytes = (size_t)parts[r].bytes, window->peers[r].align = parts[r].align;
    window->n_signals = parts[0].n_signals;
    window->n_devices = comm->n_devices;
    enum tutti_status status = TUTTI_ERR_UNSUPPORTED;
    if (device && !host && !apart) status = map_devices(comm, parts, base, window);
    if (status != TUTTI_ERR_UNSUPPORTED) return status;
    map_host(comm, parts, base, window);
    status = device ? map_apart(comm, parts, base, window) : TUTTI_OK;
    if (status >= 0) status = tutti_window_expose(window, comm, base, (size_t)parts[comm->rank].bytes);
    return tutti_agree_verdict(comm, "window_create", status);
}

static enum tutti_status window_create(struct tutti_comm *comm, void *base, const struct tutti_window_part *part,
                                       struct tutti_window *window)
{
    struct tutti_window_part *parts = tutti_alloc_array((size_t)comm->size, sizeof(*parts));
    uint64_t number = 0;
    enum tutti_status status = tutti_agree_gather(comm, "window_create", part, sizeof(*part), parts, &number);
    if (window) window->number = (uint32_t)number;
    if (status >= 0) status = window_agree(comm, parts, base, window);
    tutti_free(parts);
    tutti_window_device_withdraw(
        comm, part, window && window->on_device); /* a rank that could map it has, or knows that it is refused */
    return status;
}

/* The communicator goes: calls that hold the window alone end soon, and no new ones begin. */
static void gone(struct tutti_attached *attached)
{
    struct tutti_window *window = (struct tutti_window *)(void *)attached;
    struct tutti_comm *comm = atomic_exchange(&window->comm, NULL);
    while (atomic_load(&window->users)) tutti_sleep_ns(NAP_NS);
    if (comm) window_end(window, comm);
}

static enum tutti_status create(struct tutti_comm *comm, void *base, size_t bytes,
                                const struct tutti_window_config *config, struct tutti_window **out)
{
    struct tutti_window_part part = {.bytes = bytes};
    struct tutti_window *window = window_new(comm);
    enum tutti_status own = !out      ? tutti_fail(TUTTI_ERR_ARGUMENT, "out is NULL")
                            : !window ? tutti_fail(TUTTI_ERR_MEMORY, "out of memory")
                                      : own_part(comm, base, bytes, config, &part, &window->pad);
    struct tutti_error why = *tutti_last_error();
    part.status = own;
    enum tutti_status status = window_create(comm, base, &part, window);
    if (status >= 0) {
        window->attached.gone = gone;
        atomic_store(&window->comm, comm);
        tutti_comm_attach(comm, &window->attached);
        *out = window;
        return status;
    }
    if (own >= 0) why = *tutti_last_error();
    if (window) {
        if (window->on_device) tutti_window_device_unmap(comm, window);
        window_end(window, comm);
        window_free(window);
    }
    return own >= 0 ? tutti_fail_record(&why)
                    : tutti_fail(own, "window_create on rank %d: %.400s", (int)comm->rank, why.text);
}

enum tutti_status tutti_window_create(struct tutti_comm *comm, void *base, size_t bytes,
                                      const struct tutti_window_config *config, struct tutti_window **out)
{
    TUTTI_TRY(tutti_call_alone("window_create"));
    if (comm) TUTTI_TRY(tutti_survive_refuse(comm, "window_create"));
    TUTTI_TRY(tutti_comm_enter(comm, "window_create"));
    enum tutti_status status = tutti_staging_settle(comm);
    if (status >= 0) status = create(comm, base, bytes, config, out);
    tutti_comm_leave(comm);
    return status;
}

/* ---- what it tells, and its end ---- */

uint32_t tutti_window_reach(struct tutti_comm *comm, int32_t rank)
{
    if (tutti_comm_enter(comm, "window_reach") < 0) return 0;
    const struct tutti_memory *memory = comm->family->world.transport->memory;
    const bool known = rank >= 0 && rank < comm->size;
    const bool host = known && (rank == comm->rank || tutti_memory_reaches(memory, comm->members[rank]));
    const bool device = known && tutti_window_device_reach(comm);
    tutti_comm_leave(comm);
    if (!known) tutti_fail(TUTTI_ERR_ARGUMENT, "window_reach: rank %d is not in the communicator", (int)rank);
    return (host ? TUTTI_REACH_HOST : 0) | (device ? TUTTI_REACH_DEVICE : 0);
}

uint32_t tutti_window_n_signals(const struct tutti_window *window)
{
    return window ? window->n_signals : 0;
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
    if (!window || window->attached.n_forks != tutti_n_forks) return;
    if (window->on_device && tutti_comm_enter_attached(&window->attached, "window_destroy", &comm) >= 0) {
        tutti_window_hide(window, comm); /* what a peer still asks for is refused, before the words are others' */
        tutti_window_device_unmap(comm, window);
        tutti_comm_leave(comm);
    }
    /* Once: here, or by the communicator, which goes at the same time and waits for this lock. */
    pthread_mutex_lock(&window->attached.lock);
    comm = atomic_exchange(&window->comm, NULL);
    if (comm) window_end(window, comm);
    pthread_mutex_unlock(&window->attached.lock);
    tutti_comm_detach(&window->attached);
    window_free(window);
}
