/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that go by messages, from a stream: the caller's side. It returns at once, unless too many are under way. */
#include "comm/window/stream.h"

#define AHEAD 8 /* pieces of a get that are asked for before the first one is copied out */

/* A call on its way to its stream. */
struct streaming {
    struct tutti_streams *streams;
    struct tutti_comm *comm;
    const struct tutti_access *access;
    struct tutti_device *device;
    void *stream;
    struct tutti_one_info info; /* the whole call's */
    uint32_t n;                 /* that the stream has */
};

static bool is_on_device(const void *pointer)
{
    return tutti_device_of(pointer) != -1;
}

static void *stream_of(const struct tutti_access *access)
{
    const struct tutti_call_options *options = access->options;
    return options && options->size >= sizeof(*options) ? options->stream : NULL;
}

bool tutti_access_is_streamed(const struct tutti_comm *comm, const struct tutti_access *access)
{
    const void *pointer = access->source ? access->source : access->dest ? access->dest : access->before;
    if (!comm->device || !comm->device->device) return false;
    return stream_of(access) || (pointer && is_on_device(pointer));
}

/* ---- pieces ---- */

static enum tutti_status take(const struct streaming *call, bool now, struct tutti_streamed **out)
{
    struct tutti_streamed *streamed = NULL;
    const enum tutti_status status =
        tutti_streamed_take(call->streams, now, tutti_access_timeout(call->comm, call->access), &streamed);
    if (status != TUTTI_OK) return status;
    streamed->kind = call->access->kind;
    streamed->info = call->info;
    *out = streamed;
    return TUTTI_OK;
}

/* The stream starts it. On failure it is given back, but for its memory, which a copy may be using. */
static enum tutti_status begin(struct streaming *call, struct tutti_streamed *streamed)
{
    const enum tutti_status status =
        call->device->ops->host_call(call->device, call->stream, tutti_streamed_arrived, streamed);
    if (status < 0) {
        streamed->pinned = NULL;
        atomic_store(&streamed->n_holds, 1);
        tutti_streamed_drop(streamed);
        return status;
    }
    call->n++;
    return TUTTI_OK;
}

/* The stream waits until it is over. */
static enum tutti_status await(const struct streaming *call, const struct tutti_streamed *streamed, uint32_t turn)
{
    const uint32_t *go = (const uint32_t *)(const void *)&streamed->word->go;
    return call->device->ops->stream_wait_word(call->device, call->stream, go, turn);
}

/* ... and copies what it brought; streamed is held for that. On failure as begin. */
static enum tutti_status bring(const struct streaming *call, struct tutti_streamed *streamed, void *to,
                               const void *from, size_t bytes)
{
    const struct tutti_device_ops *ops = call->device->ops;
    enum tutti_status status = await(call, streamed, streamed->turn);
    if (status >= 0) status = ops->copy(call->device, to, from, bytes, call->stream);
    if (status >= 0) status = ops->host_call(call->device, call->stream, tutti_streamed_passed, streamed);
    if (status >= 0) return status;
    streamed->pinned = NULL;
    tutti_streamed_drop(streamed);
    return status;
}

/* A whole call, for which the stream waits or does not. */
static enum tutti_status pass(struct streaming *call, bool waits)
{
    struct tutti_streamed *streamed = NULL;
    TUTTI_TRY(take(call, false, &streamed));
    const uint32_t turn = streamed->turn; /* it may be over, and another one's, at once */
    TUTTI_TRY(begin(call, streamed));
    return waits ? await(call, streamed, turn) : TUTTI_OK;
}

/* ---- the kinds ---- */

static size_t piece_of(const struct streaming *call, size_t at)
{
    const size_t left = call->access->bytes - at;
    return left < call->streams->piece_bytes ? left : call->streams->piece_bytes;
}

/* Whether the wire moves the whole call from or into memory of this rank's device by itself. */
static bool is_straight(struct streaming *call, const void *pointer)
{
    struct tutti_one_info info = call->info;
    info.maker = tutti_device_maker(call->comm);
    info.device = call->device->ordinal;
    if (tutti_device_of(pointer) != call->device->ordinal || !tutti_engine_one_reaches(call->comm->team, &info))
        return false;
    call->info = info;
    return true;
}

/* The bytes from `at` on, and with the last ones the signal. */
static enum tutti_status put_piece(struct streaming *call, size_t at, size_t bytes)
{
    const struct tutti_access *a = call->access;
    struct tutti_streamed *streamed = NULL;
    TUTTI_TRY(take(call, false, &streamed));
    enum tutti_status status = tutti_pinned_take(call->streams->pool, bytes, &streamed->pinned);
    if (status < 0) {
        tutti_streamed_drop(streamed);
        return status;
    }
    streamed->info.source = streamed->pinned->at;
    streamed->info.offset += at;
    streamed->info.bytes = bytes;
    streamed->info.has_signal = call->info.has_signal && at + bytes == a->bytes;
    status =
        call->device->ops->copy(call->device, streamed->pinned->at, (const char *)a->source + at, bytes, call->stream);
    if (status >= 0) return begin(call, streamed);
    streamed->pinned = NULL; /* as in begin */
    tutti_streamed_drop(streamed);
    return status;
}

/* put_signal, too. */
static enum tutti_status put(struct streaming *call)
{
    const struct tutti_access *a = call->access;
    if (a->bytes == 0) return call->info.has_signal ? pass(call, false) : TUTTI_OK;
    if (!is_on_device(a->source) || is_straight(call, a->source)) return pass(call, true);
    for (size_t at = 0; at < a->bytes; at += piece_of(call, at)) TUTTI_TRY(put_piece(call, at, piece_of(call, at)));
    return TUTTI_OK;
}

static enum tutti_status get_begin(struct streaming *call, size_t at, bool now, struct tutti_streamed **out)
{
    struct tutti_streamed *streamed = NULL;
    enum tutti_status status = take(call, now, &streamed);
    if (status != TUTTI_OK) return status;
    status = tutti_pinned_take(call->streams->pool, piece_of(call, at), &streamed->pinned);
    if (status < 0) {
        tutti_streamed_drop(streamed);
        return status;
    }
    streamed->info.dest = streamed->pinned->at;
    streamed->info.offset += at;
    streamed->info.bytes = piece_of(call, at);
    atomic_store(&streamed->n_holds, 2);
    *out = streamed;
    return begin(call, streamed);
}

/* Some pieces are asked for ahead; fewer where not so many can be under way. */
static enum tutti_status get(struct streaming *call)
{
    const struct tutti_access *a = call->access;
    const size_t piece = call->streams->piece_bytes;
    struct tutti_streamed *asked[AHEAD];
    size_t first = 0, next = 0; /* bytes */
    enum tutti_status status = TUTTI_OK;
    if (a->bytes == 0) return TUTTI_OK;
    if (!is_on_device(a->dest) || is_straight(call, a->dest)) return pass(call, true);
    while (first < a->bytes && status >= 0) {
        const bool any = next > first, may = next < a->bytes && (next - first) / piece < AHEAD;
        status = may ? get_begin(call, next, any, &asked[next / piece % AHEAD]) : TUTTI_PENDING;
        if (status == TUTTI_OK) next += piece_of(call, next);
        if (status != TUTTI_PENDING) continue;
        struct tutti_streamed *streamed = asked[first / piece % AHEAD];
        const size_t at = first;
        first += piece_of(call, at);
        status = bring(call, streamed, (char *)a->dest + at, streamed->pinned->at, first - at);
    }
    for (; first < next; first += piece_of(call, first)) tutti_streamed_drop(asked[first / piece % AHEAD]);
    return status < 0 ? status : TUTTI_OK;
}

static enum tutti_status change(struct streaming *call)
{
    uint64_t *before = call->access->before; /* NULL: nobody wants to know */
    struct tutti_streamed *streamed = NULL;
    if (before && !is_on_device(before)) return pass(call, true);
    TUTTI_TRY(take(call, false, &streamed));
    const uint32_t turn = streamed->turn;
    streamed->info.before = &streamed->word->before;
    if (!before) {
        TUTTI_TRY(begin(call, streamed));
        return await(call, streamed, turn);
    }
    atomic_store(&streamed->n_holds, 2);
    TUTTI_TRY(begin(call, streamed));
    return bring(call, streamed, before, &streamed->word->before, sizeof(*before));
}

static enum tutti_status wait_for(struct streaming *call)
{
    const struct tutti_access *a = call->access;
    const struct tutti_window *window = call->streams->window;
    struct tutti_streamed *streamed = NULL;
    TUTTI_TRY(take(call, false, &streamed));
    const uint32_t turn = streamed->turn;
    streamed->wait = (struct tutti_one_wait){.word = tutti_signal_of(window, window->me, a->signal->index),
                                             .compare = a->compare,
                                             .value = a->signal->value,
                                             .from = a->peer,
                                             .signal = a->signal->index,
                                             .timeout_ns = tutti_access_timeout(call->comm, a),
                                             .bell = &window->pad->pad->bell,
                                             .label = tutti_access_label(a)};
    TUTTI_TRY(begin(call, streamed));
    return await(call, streamed, turn);
}

static enum tutti_status signal(struct streaming *call)
{
    return pass(call, false);
}

static enum tutti_status flush(struct streaming *call)
{
    return pass(call, true);
}

static enum tutti_status write(struct streaming *call)
{
    struct tutti_streamed *streamed = NULL;
    TUTTI_TRY(take(call, false, &streamed));
    streamed->on = *call->access->signal;
    return begin(call, streamed);
}

static enum tutti_status read(struct streaming *call)
{
    const uint64_t timeout_ns = tutti_access_timeout(call->comm, call->access);
    struct tutti_streamed *streamed = NULL;
    struct tutti_error error;
    TUTTI_TRY(take(call, false, &streamed));
    streamed->on = *call->access->signal;
    atomic_store(&streamed->n_holds, 2);
    TUTTI_TRY(begin(call, streamed));
    const bool over = tutti_streamed_wait(streamed, timeout_ns);
    if (over) *call->access->before = streamed->word->before;
    tutti_streamed_drop(streamed);
    call->n = 0; /* nothing is left behind */
    if (tutti_team_state(call->comm->team, &error) < 0) return tutti_fail_record(&error);
    if (over) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_TIMEOUT, "its stream has not come to it after %g s", (double)timeout_ns / 1e9);
}

static enum tutti_status (*const ways[TUTTI_N_ACCESSES])(struct streaming *call) = {
    [TUTTI_ACCESS_PUT] = put,       [TUTTI_ACCESS_PUT_SIGNAL] = put, [TUTTI_ACCESS_GET] = get,
    [TUTTI_ACCESS_SIGNAL] = signal, [TUTTI_ACCESS_WAIT] = wait_for,  [TUTTI_ACCESS_READ] = read,
    [TUTTI_ACCESS_WRITE] = write,   [TUTTI_ACCESS_ADD] = change,     [TUTTI_ACCESS_SWAP] = change,
    [TUTTI_ACCESS_FLUSH] = flush,   [TUTTI_ACCESS_FENCE] = signal,
};

/* ---- one call ---- */

static enum tutti_status refuse(const struct streaming *call, enum tutti_status status, const char *why)
{
    return tutti_fail(status, "%s on rank %d: %s", tutti_access_name(call->access->kind), (int)call->comm->rank, why);
}

/* A failure of a call that could not start when its stream came to it. */
static enum tutti_status hear(const struct streaming *call)
{
    struct tutti_streams *streams = call->streams;
    struct tutti_error error;
    pthread_mutex_lock(&streams->lock);
    error = streams->error;
    pthread_mutex_unlock(&streams->lock);
    if (error.status >= 0) return TUTTI_OK;
    tutti_team_fail(call->comm->team, &error, true);
    return tutti_fail_record(&error);
}

static enum tutti_status is_possible(const struct streaming *call, const struct tutti_window *window)
{
    uint64_t capture = 0;
    if (!tutti_window_device_lives(call->comm, window))
        return refuse(call, TUTTI_ERR_ARGUMENT, "the communicator has another device now");
    TUTTI_TRY(tutti_device_capturing(call->device, call->stream, &capture));
    if (!capture) return TUTTI_OK;
    return refuse(call, TUTTI_ERR_ARGUMENT, "the call goes through the host, which can not be captured in a graph");
}

static enum tutti_status enqueue(struct streaming *call)
{
    struct tutti_device_scope scope;
    TUTTI_TRY(tutti_device_enter(call->device, &scope));
    enum tutti_status status = ways[call->access->kind](call);
    struct tutti_error why = *tutti_last_error();
    tutti_device_leave(call->device, &scope);
    if (status >= 0) return status;
    if (call->n > 0) tutti_comm_fail_in_part(call->comm, tutti_access_name(call->access->kind));
    return tutti_team_failed(call->comm->team) ? tutti_fail_record(&why) : refuse(call, status, why.text);
}

/* A window whose parts are all of the host has them from the first call on that needs them. */
static enum tutti_status streams_need(struct tutti_window *window, struct tutti_comm *comm, struct tutti_streams **out)
{
    struct tutti_streams *made = NULL, *known = atomic_load(&window->streams);
    if (!known) {
        TUTTI_TRY(tutti_streams_open(comm, window, &made));
        if (atomic_compare_exchange_strong(&window->streams, &known, made))
            known = made;
        else
            tutti_streams_close(made, 0); /* another thread came first */
    }
    *out = known;
    return TUTTI_OK;
}

static enum tutti_status run(struct tutti_window *window, struct tutti_comm *comm, const struct tutti_access *access)
{
    struct streaming call = {.comm = comm,
                             .access = access,
                             .device = comm->device ? comm->device->device : NULL,
                             .stream = stream_of(access),
                             .info = tutti_window_one_info(window, comm, access)};
    struct tutti_work *work = NULL;
    TUTTI_TRY(is_possible(&call, window));
    TUTTI_TRY(streams_need(window, comm, &call.streams));
    TUTTI_TRY(hear(&call));
    TUTTI_TRY(enqueue(&call));
    if (!access->work) return TUTTI_OK;
    if (tutti_device_follow(comm, call.stream, tutti_access_label(access), &work) < 0) {
        tutti_comm_fail_in_part(comm, tutti_access_name(access->kind)); /* nobody would know when buffers are free */
        return tutti_last_error()->status;
    }
    *access->work = work;
    return TUTTI_OK;
}

const struct tutti_window_ops tutti_window_stream_ops = {.run = run};
