/* SPDX-License-Identifier: BSD-3-Clause */
/* The checks of one-sided calls, by a table of what each kind has. */
#include "comm/window/window.h"

#include <stdio.h>

#define ANY (-1) /* TUTTI_ANY_SOURCE, TUTTI_ALL_PEERS */
#define ELSEWHERE "%s is memory of a device, and the communicator has none on this rank (tutti_comm_set_device)"

static const struct {
    const char *name;
    bool peer, any; /* it has one; which may also be ANY */
    bool writes, signals;
    const char *pointer; /* to bytes of the caller */
    bool before, word, compares;
} kinds[TUTTI_N_ACCESSES] = {
    [TUTTI_ACCESS_PUT] = {"put", .peer = true, .writes = true, .pointer = "source"},
    [TUTTI_ACCESS_PUT_SIGNAL] = {"put_signal", .peer = true, .writes = true, .signals = true, .pointer = "source"},
    [TUTTI_ACCESS_GET] = {"get", .peer = true, .writes = true, .pointer = "dest"},
    [TUTTI_ACCESS_SIGNAL] = {"signal", .peer = true, .writes = true, .signals = true},
    [TUTTI_ACCESS_WAIT] = {"wait_signal", .peer = true, .any = true, .signals = true, .compares = true},
    [TUTTI_ACCESS_READ] = {"signal_read", .signals = true, .before = true},
    [TUTTI_ACCESS_WRITE] = {"signal_write", .signals = true},
    [TUTTI_ACCESS_ADD] = {"fetch_add", .peer = true, .writes = true, .before = true, .word = true},
    [TUTTI_ACCESS_SWAP] = {"compare_swap", .peer = true, .writes = true, .before = true, .word = true},
    [TUTTI_ACCESS_FLUSH] = {"flush", .peer = true, .any = true},
    [TUTTI_ACCESS_FENCE] = {.name = "fence"},
};

const char *tutti_access_name(enum tutti_access_kind kind)
{
    return kinds[kind].name;
}

#define REFUSE(...) refuse(comm, access, __VA_ARGS__)

TUTTI_PRINTF(3, 4)
static enum tutti_status refuse(const struct tutti_comm *comm, const struct tutti_access *access, const char *format,
                                ...)
{
    char text[TUTTI_ERROR_TEXT - 64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tutti_fail(TUTTI_ERR_ARGUMENT, "%s on rank %d: %s", kinds[access->kind].name, (int)comm->rank, text);
}

static enum tutti_status check_peer(const struct tutti_window *window, const struct tutti_comm *comm,
                                    const struct tutti_access *access)
{
    const bool any = kinds[access->kind].any;
    if (any && access->peer == ANY) return TUTTI_OK;
    if ((uint32_t)access->peer >= window->n)
        return REFUSE("%s is %d but the ranks are 0 to %d%s", access->kind == TUTTI_ACCESS_WAIT ? "from" : "peer",
                      (int)access->peer, (int)comm->size - 1, any ? ", or -1" : "");
    const struct tutti_pad *pad = window->peers[access->peer].pad;
    if (kinds[access->kind].writes && pad && atomic_load_explicit(&pad->gone, memory_order_acquire))
        return REFUSE("peer %d has destroyed the window", (int)access->peer);
    return TUTTI_OK;
}

static enum tutti_status check_range(const struct tutti_window *window, const struct tutti_comm *comm,
                                     const struct tutti_access *access)
{
    const struct tutti_window_peer *peer = &window->peers[access->peer];
    if (access->offset > peer->bytes || access->bytes > peer->bytes - access->offset)
        return REFUSE("offset %zu and %zu bytes reach past the part of rank %d, which has %zu bytes", access->offset,
                      access->bytes, (int)access->peer, peer->bytes);
    if (kinds[access->kind].word && (peer->align + access->offset) % sizeof(uint64_t))
        return REFUSE("offset %zu in the part of rank %d is not aligned to 8 bytes", access->offset, (int)access->peer);
    return TUTTI_OK;
}

static enum tutti_status check_signal(const struct tutti_window *window, const struct tutti_comm *comm,
                                      const struct tutti_access *access)
{
    const struct tutti_signal_info *signal = access->signal;
    if (!signal) return REFUSE("signal is NULL");
    if (signal->index >= window->n_signals)
        return REFUSE("signal %u is none: the window has signals 0 to %u", signal->index, window->n_signals - 1);
    if (signal->op != TUTTI_SIGNAL_SET && signal->op != TUTTI_SIGNAL_ADD)
        return REFUSE("op %d of the signal is neither TUTTI_SIGNAL_SET nor TUTTI_SIGNAL_ADD", (int)signal->op);
    return TUTTI_OK;
}

static bool is_on_device(const struct tutti_comm *comm, const void *pointer)
{
    return (comm->device || comm->guarded) && tutti_device_of(pointer) != -1;
}

/* Memory of devices is for calls that are enqueued, which a device does. */
static bool is_elsewhere(const struct tutti_comm *comm, const void *pointer)
{
    return !(comm->device && comm->device->device) && is_on_device(comm, pointer);
}

static enum tutti_status check_pointer(const struct tutti_comm *comm, const struct tutti_access *access,
                                       const char *name)
{
    const void *pointer = access->source ? access->source : access->dest;
    if (access->bytes == 0) return TUTTI_OK;
    if (!pointer) return REFUSE("%s is NULL but bytes is %zu", name, access->bytes);
    if ((uintptr_t)pointer > UINTPTR_MAX - access->bytes)
        return REFUSE("%s and its %zu bytes reach past the end of the address space", name, access->bytes);
    if (is_elsewhere(comm, pointer)) return REFUSE(ELSEWHERE, name);
    return TUTTI_OK;
}

static enum tutti_status check_before(const struct tutti_comm *comm, const struct tutti_access *access)
{
    const bool reads = access->kind == TUTTI_ACCESS_READ;
    const char *name = reads ? "value" : "before";
    if (!access->before) return REFUSE("%s is NULL", name);
    if (reads && is_on_device(comm, access->before)) return REFUSE("value is memory of a device");
    if (is_elsewhere(comm, access->before)) return REFUSE(ELSEWHERE, name);
    return TUTTI_OK;
}

enum tutti_status tutti_access_check(const struct tutti_window *window, const struct tutti_comm *comm,
                                     const struct tutti_access *access)
{
    if (access->options && access->options->size < offsetof(struct tutti_call_options, attended))
        return REFUSE("options.size is %zu: begin with TUTTI_CALL_OPTIONS_INIT", access->options->size);
    if (kinds[access->kind].peer) TUTTI_TRY(check_peer(window, comm, access));
    if (kinds[access->kind].pointer || kinds[access->kind].word) TUTTI_TRY(check_range(window, comm, access));
    if (kinds[access->kind].pointer) TUTTI_TRY(check_pointer(comm, access, kinds[access->kind].pointer));
    if (kinds[access->kind].signals) TUTTI_TRY(check_signal(window, comm, access));
    if (kinds[access->kind].before) TUTTI_TRY(check_before(comm, access));
    if (kinds[access->kind].compares && (unsigned)access->compare > TUTTI_COMPARE_GE)
        return REFUSE("compare %d is no comparison", (int)access->compare);
    return TUTTI_OK;
}
