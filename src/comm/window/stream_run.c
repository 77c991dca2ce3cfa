/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that go by messages, from a stream: what streams call and what the engine's owner calls, and their life.
 * Nothing here calls the driver but opening and closing. */
#include "comm/window/stream.h"

#include <string.h>

#define LARGE_PIECES 4 /* pieces of gpu_piece bytes that can be in flight from the start */

#define CLOSE_NS (10 * TUTTI_NS_PER_S) /* for streams that go on after a failure */

/* ---- who waits for one that is over ---- */

static void ring(struct tutti_streams *streams)
{
    atomic_fetch_add(&streams->bell, 1);
    if (atomic_load(&streams->n_listening)) tutti_futex_wake(&streams->bell, UINT32_MAX);
}

/* Until it holds, the communicator has failed, or until_ns; whether it holds. */
static bool await(struct tutti_streams *streams, bool (*holds)(const void *arg), const void *arg, uint64_t until_ns)
{
    bool over = false, held;
    atomic_fetch_add(&streams->n_listening, 1);
    for (;;) {
        const uint32_t bell = atomic_load(&streams->bell);
        if ((held = holds(arg)) || over) break;
        const uint64_t look_ns = tutti_deadline_ns(TUTTI_NS_PER_S / 10);
        tutti_futex_wait(&streams->bell, bell, look_ns < until_ns ? look_ns : until_ns);
        over = tutti_team_failed(streams->comm->team) || tutti_now_ns() >= until_ns;
    }
    atomic_fetch_sub(&streams->n_listening, 1);
    return held;
}

/* ---- one that is under way ---- */

static struct tutti_streamed *take_idle(struct tutti_streams *streams)
{
    pthread_mutex_lock(&streams->lock);
    struct tutti_streamed *streamed = streams->idle;
    if (streamed) {
        streams->idle = streamed->next;
        atomic_fetch_add(&streams->n_used, 1);
        atomic_fetch_add(&streams->pool->n_pending, 1);
    }
    pthread_mutex_unlock(&streams->lock);
    return streamed;
}

static bool has_idle(const void *streams)
{
    return atomic_load(&((const struct tutti_streams *)streams)->n_used) < TUTTI_STREAMED_MOST;
}

enum tutti_status tutti_streamed_take(struct tutti_streams *streams, bool now, uint64_t timeout_ns,
                                      struct tutti_streamed **out)
{
    const uint64_t until_ns = tutti_deadline_ns(timeout_ns);
    struct tutti_streamed *streamed;
    struct tutti_error error;
    while (!(streamed = take_idle(streams))) {
        if (now) return TUTTI_PENDING;
        if (await(streams, has_idle, streams, until_ns)) continue;
        if (tutti_team_state(streams->comm->team, &error) < 0) return tutti_fail_record(&error);
        return tutti_fail(TUTTI_ERR_TIMEOUT, "%d calls before it are under way on streams, and none is over after %g s",
                          TUTTI_STREAMED_MOST, (double)timeout_ns / 1e9);
    }
    streamed->turn++;
    atomic_store(&streamed->n_holds, 1);
    *out = streamed;
    return TUTTI_OK;
}

void tutti_streamed_drop(struct tutti_streamed *streamed)
{
    struct tutti_streams *streams = streamed->of;
    if (atomic_fetch_sub(&streamed->n_holds, 1) != 1) return;
    tutti_pinned_give(streams->pool, streamed->pinned);
    streamed->pinned = NULL;
    pthread_mutex_lock(&streams->lock);
    streamed->next = streams->idle;
    streams->idle = streamed;
    atomic_fetch_sub(&streams->n_used, 1);
    atomic_fetch_sub(&streams->pool->n_pending, 1);
    ring(streams); /* with the lock held: who closes takes it last */
    pthread_mutex_unlock(&streams->lock);
}

static bool tutti_streamed_is_over(const struct tutti_streamed *streamed)
{
    return atomic_load_explicit(&streamed->word->go, memory_order_acquire) == streamed->turn;
}

static bool is_over(const void *streamed)
{
    return tutti_streamed_is_over(streamed);
}

bool tutti_streamed_wait(struct tutti_streamed *streamed, uint64_t timeout_ns)
{
    return await(streamed->of, is_over, streamed, tutti_deadline_ns(timeout_ns));
}

/* The stream may go on. */
static void finish(struct tutti_streamed *streamed)
{
    atomic_store_explicit(&streamed->word->go, streamed->turn, memory_order_release);
    ring(streamed->of);
    tutti_streamed_drop(streamed);
}

/* ---- the engine's owner ---- */

/* There is nobody to whom an error could be returned: it ends the communicator. */
static void on_end(void *arg, const struct tutti_error *error)
{
    struct tutti_streamed *streamed = arg;
    if (error) tutti_team_break(streamed->of->comm->team, error->status, error->peer, NULL, TUTTI_NO_STEP, error->text);
    finish(streamed);
}

static void on_wait_end(void *arg, const struct tutti_error *error)
{
    struct tutti_streamed *streamed = arg;
    struct tutti_own_pad *pad = streamed->of->pad;
    on_end(arg, error);
    tutti_pad_drop(pad);
}

/* ---- the stream ---- */

/* The team can not be ended from here: the next caller does that. */
static void not_started(struct tutti_streamed *streamed)
{
    struct tutti_streams *streams = streamed->of;
    pthread_mutex_lock(&streams->lock);
    if (streams->error.status == TUTTI_OK) streams->error = *tutti_last_error();
    pthread_mutex_unlock(&streams->lock);
    finish(streamed);
}

/* The caller's process maps the memory: the driver's thread copies. */
static void access_in_place(struct tutti_streamed *streamed)
{
    const struct tutti_one_info *info = &streamed->info;
    const struct tutti_signal_info signal = {info->signal, info->signal_add ? TUTTI_SIGNAL_ADD : TUTTI_SIGNAL_SET,
                                             info->value};
    const bool last = streamed->kind != TUTTI_ACCESS_PUT_SIGNAL || info->has_signal; /* the last piece */
    const struct tutti_access access = {.kind = last ? streamed->kind : TUTTI_ACCESS_PUT,
                                        .peer = (int32_t)info->peer,
                                        .offset = info->offset,
                                        .bytes = info->bytes,
                                        .source = info->source,
                                        .dest = info->dest,
                                        .signal = &signal,
                                        .value = info->value,
                                        .expected = info->expected,
                                        .before = info->before};
    tutti_window_direct(streamed->of->window, &access);
    finish(streamed);
}

/* Whether nobody else is needed; what is for a rank that died is the engine's to tell. */
static bool is_in_place(const struct tutti_streamed *streamed)
{
    const struct tutti_streams *streams = streamed->of;
    const uint32_t peer = streamed->info.peer;
    if (peer >= streams->window->n) return !streams->window->far; /* flush of all peers */
    return tutti_window_in_place(streams->window, peer) &&
           tutti_team_life(streams->comm->team, peer) != TUTTI_LIFE_DEAD;
}

static void start_access(struct tutti_streamed *streamed)
{
    struct tutti_work *work = NULL;
    if (is_in_place(streamed)) {
        access_in_place(streamed);
        return;
    }
    streamed->info.end = on_end;
    streamed->info.arg = streamed;
    if (tutti_engine_one(streamed->of->comm->team, &streamed->info, false, &work) < 0)
        not_started(streamed);
    else
        tutti_work_free(work);
}

static void start_wait(struct tutti_streamed *streamed)
{
    struct tutti_own_pad *pad = streamed->of->pad;
    struct tutti_work *work = NULL;
    streamed->wait.end = on_wait_end;
    streamed->wait.arg = streamed;
    tutti_pad_hold(pad);
    if (tutti_engine_wait_word(streamed->of->comm->team, &streamed->wait, false, &work) < 0) {
        tutti_pad_drop(pad);
        not_started(streamed);
    } else {
        tutti_work_free(work);
    }
}

static _Atomic uint64_t *signal_of(const struct tutti_streamed *streamed)
{
    const struct tutti_window *window = streamed->of->window;
    return tutti_signal_of(window, window->me, streamed->on.index);
}

static void read_signal(struct tutti_streamed *streamed)
{
    streamed->word->before = atomic_load_explicit(signal_of(streamed), memory_order_acquire);
    finish(streamed);
}

static void write_signal(struct tutti_streamed *streamed)
{
    atomic_store_explicit(signal_of(streamed), streamed->on.value, memory_order_release);
    tutti_bell_ring(&streamed->of->pad->pad->bell);
    finish(streamed);
}

static void fence(struct tutti_streamed *streamed)
{
    tutti_engine_one_fence(streamed->of->comm->team);
    finish(streamed);
}

static void (*const starts[TUTTI_N_ACCESSES])(struct tutti_streamed *streamed) = {
    [TUTTI_ACCESS_PUT] = start_access,   [TUTTI_ACCESS_PUT_SIGNAL] = start_access,
    [TUTTI_ACCESS_GET] = start_access,   [TUTTI_ACCESS_SIGNAL] = start_access,
    [TUTTI_ACCESS_WAIT] = start_wait,    [TUTTI_ACCESS_READ] = read_signal,
    [TUTTI_ACCESS_WRITE] = write_signal, [TUTTI_ACCESS_ADD] = start_access,
    [TUTTI_ACCESS_SWAP] = start_access,  [TUTTI_ACCESS_FLUSH] = start_access,
    [TUTTI_ACCESS_FENCE] = fence,
};

void tutti_streamed_arrived(void *arg)
{
    struct tutti_streamed *streamed = arg;
    struct tutti_streams *streams = streamed->of;
    atomic_fetch_add(&streams->n_starting, 1); /* before closed is read: who closes writes that, then reads this */
    if (atomic_load(&streams->closed))
        finish(streamed);
    else
        starts[streamed->kind](streamed);
    atomic_fetch_sub(&streams->n_starting, 1);
}

void tutti_streamed_passed(void *streamed)
{
    tutti_streamed_drop(streamed);
}

/* ---- life ---- */

static void streams_free(struct tutti_streams *streams)
{
    tutti_pinned_give(streams->pool, streams->words);
    tutti_pinned_drop(streams->pool);
    pthread_mutex_destroy(&streams->lock);
    tutti_free(streams);
}

/* Memory is pinned now and not when calls come: streams may wait for signals then, and the driver for the streams. */
enum tutti_status tutti_streams_open(struct tutti_comm *comm, struct tutti_window *window, struct tutti_streams **out)
{
    const size_t bytes = TUTTI_STREAMED_MOST * sizeof(struct tutti_streamed_word);
    struct tutti_streams *streams = tutti_alloc(sizeof(*streams));
    if (!streams) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a window");
    streams->comm = comm;
    streams->window = window;
    streams->pad = window->pad;
    streams->piece_bytes = (size_t)comm->context->config.number[TUTTI_OPT_gpu_piece];
    pthread_mutex_init(&streams->lock, NULL);
    streams->pool = tutti_pinned_hold(comm->device->pinned);
    if (tutti_engine_serve(comm->team) < 0 || tutti_pinned_reserve(streams->pool, TUTTI_STREAMED_MOST, 1) < 0 ||
        tutti_pinned_reserve(streams->pool, LARGE_PIECES, streams->piece_bytes) < 0 ||
        tutti_pinned_take(streams->pool, bytes, &streams->words) < 0) {
        streams_free(streams);
        return tutti_last_error()->status;
    }
    memset(streams->words->at, 0, bytes);
    for (uint32_t i = 0; i < TUTTI_STREAMED_MOST; i++) {
        struct tutti_streamed *streamed = &streams->calls[i];
        streamed->of = streams;
        streamed->word = (struct tutti_streamed_word *)(void *)streams->words->at + i;
        streamed->next = streams->idle;
        streams->idle = streamed;
    }
    *out = streams;
    return TUTTI_OK;
}

static bool is_idle(const void *streams)
{
    return atomic_load(&((const struct tutti_streams *)streams)->n_used) == 0;
}

void tutti_streams_close(struct tutti_streams *streams, uint64_t deadline_ns)
{
    if (!streams) return;
    bool idle = await(streams, is_idle, streams, deadline_ns);
    const uint64_t until_ns = tutti_deadline_ns(CLOSE_NS);
    atomic_store(&streams->closed, true);
    while (atomic_load(&streams->n_starting) ||
           (!idle && tutti_team_failed(streams->comm->team) && !is_idle(streams) && tutti_now_ns() < until_ns))
        tutti_sleep_ns(TUTTI_NS_PER_MS);
    pthread_mutex_lock(&streams->lock); /* the last one has left */
    idle = is_idle(streams);
    pthread_mutex_unlock(&streams->lock);
    if (idle)
        streams_free(streams);
    else /* streams may still come to it, and copy */
        tutti_log(TUTTI_LOG_WARN, "a stream has not come past calls on a window that is gone: memory is left to it");
}
