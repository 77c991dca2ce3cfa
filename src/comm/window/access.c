/* SPDX-License-Identifier: BSD-3-Clause */
/* The public one-sided calls: each becomes an access, is checked, and goes to its window's way. Most are carried out in
 * place, on the caller's thread: then nothing is locked, allocated or timed. */
#include "comm/window/window.h"

/* The sentence of a communicator that can not be used. It takes locks that the window must not be held for. */
static enum tutti_status refuse(struct tutti_window *window, const char *name)
{
    struct tutti_comm *comm = NULL;
    TUTTI_TRY(tutti_comm_enter_attached(&window->attached, name, &comm));
    tutti_comm_leave(comm);
    return tutti_fail(TUTTI_ERR_ARGUMENT, "%s: its communicator was not ready", name);
}

/* What may wait for a peer holds the communicator, and the window no more. */
static enum tutti_status run_slowly(struct tutti_window *window, struct tutti_comm *comm,
                                    const struct tutti_access *access)
{
    tutti_comm_hold(comm);
    atomic_fetch_sub(&window->users, 1);
    enum tutti_status status = window->ops->run(window, comm, access);
    tutti_comm_leave(comm);
    return status;
}

/* A failure that ended the communicator, of which peers may have been told before. */
static enum tutti_status is_well(struct tutti_comm *comm)
{
    struct tutti_error error;
    if (tutti_team_well(comm->team)) return TUTTI_OK;
    return tutti_team_state(comm->team, &error) < 0 ? tutti_fail_record(&error) : TUTTI_OK;
}

static enum tutti_status call(struct tutti_window *window, const struct tutti_access *access)
{
    if (!window) return tutti_fail(TUTTI_ERR_ARGUMENT, "%s: window is NULL", tutti_access_name(access->kind));
    if (tutti_n_collecting > 0) TUTTI_TRY(tutti_call_alone(tutti_access_name(access->kind)));
    atomic_fetch_add(&window->users, 1); /* before comm is read: who ends that writes it, then reads this */
    struct tutti_comm *comm = atomic_load(&window->comm);
    if (!comm || atomic_load(&comm->phase) != TUTTI_COMM_READY || tutti_comm_is_inherited(comm)) {
        atomic_fetch_sub(&window->users, 1);
        return refuse(window, tutti_access_name(access->kind));
    }
    enum tutti_status status = is_well(comm);
    if (status >= 0) status = tutti_access_check(window, comm, access);
    if (status >= 0) {
        status = window->ops->quick ? window->ops->quick(window, comm, access) : TUTTI_AGAIN;
        if (status == TUTTI_AGAIN) return run_slowly(window, comm, access);
    }
    atomic_fetch_sub(&window->users, 1);
    return status;
}

enum tutti_status tutti_put(const void *source, size_t bytes, int32_t peer, size_t offset, struct tutti_window *window,
                            const struct tutti_call_options *options, struct tutti_work **work)
{
    const struct tutti_access access = {.kind = TUTTI_ACCESS_PUT,
                                        .source = source,
                                        .bytes = bytes,
                                        .peer = peer,
                                        .offset = offset,
                                        .options = options,
                                        .work = work};
    return call(window, &access);
}

enum tutti_status tutti_get(void *dest, size_t bytes, int32_t peer, size_t offset, struct tutti_window *window,
                            const struct tutti_call_options *options, struct tutti_work **work)
{
    const struct tutti_access access = {.kind = TUTTI_ACCESS_GET,
                                        .dest = dest,
                                        .bytes = bytes,
                                        .peer = peer,
                                        .offset = offset,
                                        .options = options,
                                        .work = work};
    return call(window, &access);
}

enum tutti_status tutti_signal(const struct tutti_signal_info *signal, int32_t peer, struct tutti_window *window,
                               const struct tutti_call_options *options, struct tutti_work **work)
{
    const struct tutti_access access = {
        .kind = TUTTI_ACCESS_SIGNAL, .signal = signal, .peer = peer, .options = options, .work = work};
    return call(window, &access);
}

enum tutti_status tutti_put_signal(const void *source, size_t bytes, int32_t peer, size_t offset,
                                   const struct tutti_signal_info *signal, struct tutti_window *window,
                                   const struct tutti_call_options *options, struct tutti_work **work)
{
    const struct tutti_access access = {.kind = TUTTI_ACCESS_PUT_SIGNAL,
                                        .source = source,
                                        .bytes = bytes,
                                        .peer = peer,
                                        .offset = offset,
                                        .signal = signal,
                                        .options = options,
                                        .work = work};
    return call(window, &access);
}

enum tutti_status tutti_wait_signal(uint32_t index, enum tutti_compare compare, uint64_t value, int32_t from,
                                    struct tutti_window *window, const struct tutti_call_options *options,
                                    struct tutti_work **work)
{
    const struct tutti_signal_info signal = {index, TUTTI_SIGNAL_SET, value};
    const struct tutti_access access = {.kind = TUTTI_ACCESS_WAIT,
                                        .signal = &signal,
                                        .compare = compare,
                                        .peer = from,
                                        .options = options,
                                        .work = work};
    return call(window, &access);
}

enum tutti_status tutti_signal_read(uint32_t index, uint64_t *value, struct tutti_window *window,
                                    const struct tutti_call_options *options)
{
    const struct tutti_signal_info signal = {index, TUTTI_SIGNAL_SET, 0};
    const struct tutti_access access = {
        .kind = TUTTI_ACCESS_READ, .signal = &signal, .before = value, .options = options};
    return call(window, &access);
}

enum tutti_status tutti_signal_write(uint32_t index, uint64_t value, struct tutti_window *window,
                                     const struct tutti_call_options *options)
{
    const struct tutti_signal_info signal = {index, TUTTI_SIGNAL_SET, value};
    const struct tutti_access access = {.kind = TUTTI_ACCESS_WRITE, .signal = &signal, .options = options};
    return call(window, &access);
}

enum tutti_status tutti_fetch_add(uint64_t value, uint64_t *before, int32_t peer, size_t offset,
                                  struct tutti_window *window, const struct tutti_call_options *options,
                                  struct tutti_work **work)
{
    const struct tutti_access access = {.kind = TUTTI_ACCESS_ADD,
                                        .value = value,
                                        .before = before,
                                        .bytes = sizeof(value),
                                        .peer = peer,
                                        .offset = offset,
                                        .options = options,
                                        .work = work};
    return call(window, &access);
}

enum tutti_status tutti_compare_swap(uint64_t expected, uint64_t desired, uint64_t *before, int32_t peer, size_t offset,
                                     struct tutti_window *window, const struct tutti_call_options *options,
                                     struct tutti_work **work)
{
    const struct tutti_access access = {.kind = TUTTI_ACCESS_SWAP,
                                        .expected = expected,
                                        .value = desired,
                                        .before = before,
                                        .bytes = sizeof(desired),
                                        .peer = peer,
                                        .offset = offset,
                                        .options = options,
                                        .work = work};
    return call(window, &access);
}

enum tutti_status tutti_flush(int32_t peer, struct tutti_window *window, const struct tutti_call_options *options,
                              struct tutti_work **work)
{
    const struct tutti_access access = {.kind = TUTTI_ACCESS_FLUSH, .peer = peer, .options = options, .work = work};
    return call(window, &access);
}

enum tutti_status tutti_fence(struct tutti_window *window, const struct tutti_call_options *options)
{
    const struct tutti_access access = {.kind = TUTTI_ACCESS_FENCE, .options = options};
    return call(window, &access);
}
