/* SPDX-License-Identifier: BSD-3-Clause */
/* One-sided calls on windows of device memory: each is enqueued on its stream, and ordered by it alone; so flush and
 * fence have nothing to do. And the window as kernels of users have it. */
#include "comm/window/window.h"

#include <tutti/device.h>

/* A call on its way. */
struct on_device {
    struct tutti_window *window;
    struct tutti_comm *comm;
    const struct tutti_access *access;
    struct tutti_backend *backend;
    void *stream;
};

static void *there(const struct on_device *call)
{
    return call->window->peers[call->access->peer].address + call->access->offset;
}

static uint64_t *signal_of(const struct on_device *call, uint32_t rank)
{
    return call->window->peers[rank].words + call->access->signal->index;
}

/* A word that this device can not change is changed by its owner's, when a message comes; the stream waits. */
static enum tutti_status by_message(const struct on_device *call, const struct tutti_backend_access *what)
{
    const struct tutti_access *a = call->access;
    const uint64_t words = tutti_window_words_at(&call->window->peers[a->peer]);
    const struct tutti_access access = {.kind = what->change == TUTTI_WORD_ADD ? TUTTI_ACCESS_ADD : TUTTI_ACCESS_SWAP,
                                        .peer = a->peer,
                                        .offset =
                                            a->signal ? (size_t)words + a->signal->index * sizeof(uint64_t) : a->offset,
                                        .value = what->value,
                                        .expected = what->expected,
                                        .before = what->before,
                                        .options = a->options};
    return tutti_window_stream_ops.run(call->window, call->comm, &access);
}

static enum tutti_status enqueue(const struct on_device *call, const struct tutti_backend_access *what)
{
    const enum tutti_status status = call->backend->ops->access(call->backend, what, call->stream);
    struct tutti_backend_access data = *what;
    if (status != TUTTI_ERR_UNSUPPORTED || !what->word || !call->window->mover) return status;
    data.word = NULL;
    if (what->bytes > 0) TUTTI_TRY(call->backend->ops->access(call->backend, &data, call->stream));
    return by_message(call, what);
}

/* ---- the kinds ---- */

static enum tutti_status put(const struct on_device *call)
{
    const struct tutti_access *a = call->access;
    if (a->bytes == 0) return TUTTI_OK;
    return enqueue(call, &(struct tutti_backend_access){.dest = there(call), .source = a->source, .bytes = a->bytes});
}

static enum tutti_status get(const struct on_device *call)
{
    const struct tutti_access *a = call->access;
    if (a->bytes == 0) return TUTTI_OK;
    return enqueue(call, &(struct tutti_backend_access){.dest = a->dest, .source = there(call), .bytes = a->bytes});
}

/* put_signal, too. */
static enum tutti_status signal(const struct on_device *call)
{
    const struct tutti_access *a = call->access;
    struct tutti_backend_access what = {.word = signal_of(call, (uint32_t)a->peer),
                                        .peer = (uint32_t)a->peer,
                                        .change = a->signal->op == TUTTI_SIGNAL_SET ? TUTTI_WORD_SET : TUTTI_WORD_ADD,
                                        .value = a->signal->value};
    if (a->bytes > 0) what.dest = there(call), what.source = a->source, what.bytes = a->bytes;
    return enqueue(call, &what);
}

static enum tutti_status await(const struct on_device *call)
{
    const struct tutti_access *a = call->access;
    const struct tutti_backend_await what = {.word = signal_of(call, call->window->me),
                                             .index = a->signal->index,
                                             .compare = (uint32_t)a->compare,
                                             .value = a->signal->value,
                                             .from = a->peer,
                                             .timeout_ns = tutti_access_timeout(call->comm, a)};
    return call->backend->ops->await(call->backend, &what, call->stream);
}

static enum tutti_status read(const struct on_device *call)
{
    const uint64_t deadline_ns = tutti_deadline_ns(tutti_access_timeout(call->comm, call->access));
    return call->backend->ops->read_word(call->backend, signal_of(call, call->window->me), call->stream, deadline_ns,
                                         call->access->before);
}

static enum tutti_status write(const struct on_device *call)
{
    return enqueue(call, &(struct tutti_backend_access){.word = signal_of(call, call->window->me),
                                                        .change = TUTTI_WORD_SET,
                                                        .value = call->access->signal->value});
}

static enum tutti_status change(const struct on_device *call)
{
    const struct tutti_access *a = call->access;
    const bool swaps = a->kind == TUTTI_ACCESS_SWAP;
    return enqueue(call, &(struct tutti_backend_access){.word = there(call),
                                                        .peer = (uint32_t)a->peer,
                                                        .change = swaps ? TUTTI_WORD_SWAP : TUTTI_WORD_ADD,
                                                        .value = a->value,
                                                        .expected = a->expected,
                                                        .before = a->before});
}

static enum tutti_status nothing(const struct on_device *call)
{
    (void)call;
    return TUTTI_OK;
}

static enum tutti_status (*const ways[TUTTI_N_ACCESSES])(const struct on_device *call) = {
    [TUTTI_ACCESS_PUT] = put,       [TUTTI_ACCESS_PUT_SIGNAL] = signal, [TUTTI_ACCESS_GET] = get,
    [TUTTI_ACCESS_SIGNAL] = signal, [TUTTI_ACCESS_WAIT] = await,        [TUTTI_ACCESS_READ] = read,
    [TUTTI_ACCESS_WRITE] = write,   [TUTTI_ACCESS_ADD] = change,        [TUTTI_ACCESS_SWAP] = change,
    [TUTTI_ACCESS_FLUSH] = nothing, [TUTTI_ACCESS_FENCE] = nothing,
};

/* ---- one call ---- */

static enum tutti_status refuse(const struct on_device *call, enum tutti_status status, const char *why)
{
    return tutti_fail(status, "%s on rank %d: %s", tutti_access_name(call->access->kind), (int)call->comm->rank, why);
}

static enum tutti_status may_follow(const struct on_device *call)
{
    uint64_t capture = 0;
    TUTTI_TRY(tutti_device_capturing(call->comm->device->device, call->stream, &capture));
    if (!capture) return TUTTI_OK;
    return refuse(call, TUTTI_ERR_ARGUMENT, "work must be NULL while its stream is captured: a replay has no work");
}

/* Names the call, unless it is the communicator that has failed. */
static enum tutti_status run(const struct on_device *call)
{
    const enum tutti_status status = ways[call->access->kind](call);
    if (status >= 0 || tutti_team_failed(call->comm->team)) return status;
    const struct tutti_error why = *tutti_last_error();
    return refuse(call, status, why.text);
}

static enum tutti_status device_run(struct tutti_window *window, struct tutti_comm *comm,
                                    const struct tutti_access *access)
{
    const struct tutti_call_options *options = access->options;
    const struct on_device call = {.window = window,
                                   .comm = comm,
                                   .access = access,
                                   .backend = window->backend,
                                   .stream = options && options->size >= sizeof(*options) ? options->stream : NULL};
    struct tutti_work *work = NULL;
    if (!tutti_window_device_lives(comm, window))
        return refuse(&call, TUTTI_ERR_ARGUMENT, "the communicator has another device now");
    if (!call.backend)
        return refuse(&call, TUTTI_ERR_UNSUPPORTED,
                      "no back end of this communicator has one-sided calls on devices: use the option gpu=cuda, or a "
                      "window of the host's memory");
    if (access->work) TUTTI_TRY(may_follow(&call));
    TUTTI_TRY(run(&call));
    if (!access->work) return TUTTI_OK;
    if (tutti_device_follow(comm, call.stream, tutti_access_label(access), &work) < 0) {
        tutti_comm_fail_in_part(comm, tutti_access_name(access->kind)); /* nobody would know when buffers are free */
        return tutti_last_error()->status;
    }
    *access->work = work;
    return TUTTI_OK;
}

const struct tutti_window_ops tutti_window_device_ops = {.run = device_run};

/* ---- for kernels of users ---- */

static enum tutti_status device_window(const struct tutti_window *window, const struct tutti_comm *comm,
                                       struct tutti_device_window *out)
{
    const uint64_t timeout_ns = atomic_load(&comm->timeout_ns);
    if (!out || out->size != sizeof(*out))
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "window_device on rank %d: %s: begin with TUTTI_DEVICE_WINDOW_INIT of this version",
                          (int)comm->rank, out ? "out->size is wrong" : "out is NULL");
    if (!window->on_device || !window->backend)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                          "window_device on rank %d: the window is not one of memory of devices that reach one another",
                          (int)comm->rank);
    if (!tutti_window_device_lives(comm, window))
        return tutti_fail(TUTTI_ERR_ARGUMENT, "window_device on rank %d: the communicator has another device now",
                          (int)comm->rank);
    struct tutti_device_window w = {.size = sizeof(w),
                                    .me = comm->rank,
                                    .n = comm->size,
                                    .n_signals = window->n_signals,
                                    .timeout_ns = timeout_ns == TUTTI_NEVER ? 0 : timeout_ns};
    for (uint32_t r = 0; r < window->n; r++) {
        w.parts[r] = (char *)window->peers[r].address;
        w.bytes[r] = window->peers[r].bytes;
        w.signals[r] = window->peers[r].words;
    }
    window->backend->ops->alarm(window->backend, &w.alarm);
    *out = w;
    return TUTTI_OK;
}

enum tutti_status tutti_window_device(struct tutti_window *window, struct tutti_device_window *out)
{
    struct tutti_comm *comm = NULL;
    if (!window) return tutti_fail(TUTTI_ERR_ARGUMENT, "window_device: window is NULL");
    TUTTI_TRY(tutti_comm_enter_attached(&window->attached, "window_device", &comm));
    const enum tutti_status status = device_window(window, comm, out);
    tutti_comm_leave(comm);
    return status;
}
