/* SPDX-License-Identifier: BSD-3-Clause */
/* One-sided calls on memory that this process does not map: by the engine, in messages. Where some rank of a window
 * needs them, its ranks expose their parts to the engine. */
#include "comm/window/mover.h"
#include "comm/window/window.h"

#include <string.h>

static void changed(void *window)
{
    tutti_bell_ring(&((struct tutti_window *)window)->pad->pad->bell);
}

static void move(void *window, struct tutti_move *what)
{
    tutti_mover_begin(((struct tutti_window *)window)->mover, what);
}

enum tutti_maker tutti_device_maker(const struct tutti_comm *comm)
{
    return strcmp(comm->device->device->ops->name, "cuda") == 0 ? TUTTI_MAKER_CUDA : TUTTI_MAKER_XPU;
}

enum tutti_status tutti_window_expose(struct tutti_window *window, struct tutti_comm *comm, void *base, size_t bytes)
{
    const struct tutti_window_peer *mine = &window->peers[window->me];
    const size_t words = window->n_signals * sizeof(uint64_t); /* behind a part in memory of a device */
    const struct tutti_exposed part = {.base = base,
                                       .bytes = window->on_device ? tutti_window_words_at(mine) + words : bytes,
                                       .signals = mine->signals,
                                       .n_signals = window->on_device ? 0 : window->n_signals,
                                       .signal_step = (uint32_t)tutti_signal_step(window->n_signals),
                                       .changed = changed,
                                       .move = window->mover ? move : NULL,
                                       .arg = window,
                                       .maker = window->mover && !window->on_device ? tutti_device_maker(comm) : 0,
                                       .device = window->mover ? comm->device->device->ordinal : 0};
    if (!window->far) return TUTTI_OK;
    TUTTI_TRY(tutti_exposed_add(comm->team, window->number, &part));
    window->exposed = true;
    return TUTTI_OK;
}

void tutti_window_hide(struct tutti_window *window, struct tutti_comm *comm)
{
    if (window->exposed) tutti_exposed_remove(comm->team, window->number);
    window->exposed = false;
}

static const enum tutti_one_kind kinds[TUTTI_N_ACCESSES] = {
    [TUTTI_ACCESS_PUT] = TUTTI_ONE_PUT,     [TUTTI_ACCESS_PUT_SIGNAL] = TUTTI_ONE_PUT,
    [TUTTI_ACCESS_GET] = TUTTI_ONE_GET,     [TUTTI_ACCESS_SIGNAL] = TUTTI_ONE_PUT,
    [TUTTI_ACCESS_ADD] = TUTTI_ONE_ADD,     [TUTTI_ACCESS_SWAP] = TUTTI_ONE_SWAP,
    [TUTTI_ACCESS_FLUSH] = TUTTI_ONE_FLUSH,
};

struct tutti_one_info tutti_window_one_info(const struct tutti_window *window, const struct tutti_comm *comm,
                                            const struct tutti_access *access)
{
    const struct tutti_signal_info *signal = access->signal;
    struct tutti_one_info info = {.kind = kinds[access->kind],
                                  .window = window->number,
                                  .peer = access->peer == TUTTI_ALL_PEERS ? UINT32_MAX : (uint32_t)access->peer,
                                  .offset = access->offset,
                                  .source = access->source,
                                  .dest = access->dest,
                                  .bytes = kinds[access->kind] <= TUTTI_ONE_GET ? access->bytes : 0,
                                  .expected = access->expected,
                                  .value = access->value,
                                  .before = access->before,
                                  .timeout_ns = tutti_access_timeout(comm, access),
                                  .name = tutti_access_name(access->kind),
                                  .label = tutti_access_label(access)};
    if (signal) {
        info.has_signal = true;
        info.signal = signal->index;
        info.signal_add = signal->op == TUTTI_SIGNAL_ADD;
        info.value = signal->value;
    }
    return info;
}

enum tutti_status tutti_window_far(struct tutti_window *window, struct tutti_comm *comm,
                                   const struct tutti_access *access)
{
    const bool attended = access->options && access->options->attended;
    const struct tutti_one_info info = tutti_window_one_info(window, comm, access);
    struct tutti_work *work = NULL;
    if (access->kind == TUTTI_ACCESS_FENCE) {
        tutti_engine_one_fence(comm->team);
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_engine_one(comm->team, &info, access->work && !attended, &work));
    if (!access->work) return tutti_work_finish(work);
    *access->work = work;
    return TUTTI_OK;
}
