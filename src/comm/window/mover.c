/* SPDX-License-Identifier: BSD-3-Clause */
/* Moves between a part in memory of a device and memory of the host: see mover.h. */
#include "comm/window/mover.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#define SPIN_NS (100 * UINT64_C(1000)) /* longer than most copies take; then it sleeps between two looks */
#define NAP_NS (20 * UINT64_C(1000))
#define STUCK_NS (10 * TUTTI_NS_PER_S) /* for a copy, once the communicator has failed */

struct tutti_mover {
    struct tutti_pinned_pool *pool; /* held */
    struct tutti_device *device;    /* its */
    struct tutti_team *team;
    char *base;
    struct tutti_mover_words words; /* backend NULL: there are none */
    void *stream, *event;
    struct tutti_pinned *pinned;
    pthread_t thread;
    pthread_mutex_t lock; /* the next line */
    struct tutti_move *first, **end;
    _Atomic uint32_t bell;
    _Atomic bool closing;
    bool stuck; /* a copy did not end: its memory is left to it */
};

/* ---- the engine's owner ---- */

static void ring(struct tutti_mover *mover)
{
    atomic_fetch_add(&mover->bell, 1);
    tutti_futex_wake(&mover->bell, 1);
}

void tutti_mover_begin(struct tutti_mover *mover, struct tutti_move *move)
{
    pthread_mutex_lock(&mover->lock);
    move->next = NULL;
    *mover->end = move;
    mover->end = &move->next;
    pthread_mutex_unlock(&mover->lock);
    ring(mover);
}

/* ---- the thread ---- */

static struct tutti_move *take(struct tutti_mover *mover)
{
    pthread_mutex_lock(&mover->lock);
    struct tutti_move *move = mover->first;
    if (move) mover->first = move->next;
    if (!mover->first) mover->end = &mover->first;
    pthread_mutex_unlock(&mover->lock);
    return move;
}

/* Until what is on the stream is over. Whoever asked for the move has a deadline; when that passes, the communicator
 * fails, here too. After a failure streams go on, so this ends unless the device is stuck. */
static enum tutti_status await(struct tutti_mover *mover)
{
    const struct tutti_device_ops *ops = mover->device->ops;
    enum tutti_status status;
    const uint64_t spin_ns = tutti_deadline_ns(SPIN_NS);
    uint64_t until_ns = TUTTI_NEVER;
    TUTTI_TRY(ops->event_record(mover->device, mover->event, mover->stream));
    while ((status = ops->event_query(mover->device, mover->event)) == TUTTI_PENDING) {
        const uint64_t now_ns = tutti_now_ns();
        if (until_ns == TUTTI_NEVER && tutti_team_failed(mover->team)) until_ns = tutti_deadline_ns(STUCK_NS);
        if (now_ns >= until_ns) break;
        if (now_ns < spin_ns)
            sched_yield();
        else
            tutti_sleep_ns(NAP_NS);
    }
    if (status != TUTTI_PENDING) return status;
    mover->stuck = true;
    return tutti_fail(TUTTI_ERR_SYSTEM, "a copy on device %d did not end", (int)mover->device->ordinal);
}

static enum tutti_status copy(struct tutti_mover *mover, void *to, const void *from, size_t bytes)
{
    TUTTI_TRY(mover->device->ops->copy(mover->device, to, from, bytes, mover->stream));
    return await(mover);
}

static enum tutti_status change(struct tutti_mover *mover, struct tutti_move *move)
{
    const bool adds = move->kind == TUTTI_MOVE_ADD;
    char *at = mover->base + move->offset;
    TUTTI_TRY(copy(mover, mover->pinned->at, at, sizeof(uint64_t)));
    memcpy(&move->before, mover->pinned->at, sizeof(uint64_t));
    if (!adds && move->before != move->expected) return TUTTI_OK;
    const uint64_t after = adds ? move->before + move->value : move->value;
    memcpy(mover->pinned->at, &after, sizeof(uint64_t));
    return copy(mover, at, mover->pinned->at, sizeof(uint64_t));
}

/* As one step among those that devices make in place. */
static enum tutti_status change_by_device(struct tutti_mover *mover, struct tutti_move *move)
{
    const struct tutti_mover_words *words = &mover->words;
    if (move->kind < TUTTI_MOVE_ADD || (move->offset < words->at && move->offset + sizeof(uint64_t) > words->bytes))
        return tutti_fail(TUTTI_ERR_PROTOCOL, "the window is reached in place, but for words");
    char *at = move->offset >= words->at ? words->words + (move->offset - words->at) : mover->base + move->offset;
    const struct tutti_backend_access what = {.word = (uint64_t *)(void *)at,
                                              .peer = words->me,
                                              .change = move->kind == TUTTI_MOVE_ADD ? TUTTI_WORD_ADD : TUTTI_WORD_SWAP,
                                              .value = move->value,
                                              .expected = move->expected,
                                              .before = (uint64_t *)mover->pinned->at};
    TUTTI_TRY(words->backend->ops->access(words->backend, &what, mover->stream));
    TUTTI_TRY(await(mover));
    memcpy(&move->before, mover->pinned->at, sizeof(uint64_t));
    return TUTTI_OK;
}

static enum tutti_status carry_out(struct tutti_mover *mover, struct tutti_move *move)
{
    char *at = mover->base + move->offset;
    if (mover->stuck) return tutti_fail(TUTTI_ERR_SYSTEM, "device %d is stuck", (int)mover->device->ordinal);
    if (mover->words.backend) return change_by_device(mover, move);
    if (move->kind >= TUTTI_MOVE_ADD) return change(mover, move);
    if (move->kind == TUTTI_MOVE_WRITE) {
        memcpy(mover->pinned->at, move->memory, move->bytes);
        return copy(mover, at, mover->pinned->at, move->bytes);
    }
    TUTTI_TRY(copy(mover, mover->pinned->at, at, move->bytes));
    memcpy(move->memory, mover->pinned->at, move->bytes);
    return TUTTI_OK;
}

static void run_one(struct tutti_mover *mover, struct tutti_move *move)
{
    static const char *const names[] = {[TUTTI_MOVE_WRITE] = "put",
                                        [TUTTI_MOVE_READ] = "get",
                                        [TUTTI_MOVE_ADD] = "fetch_add",
                                        [TUTTI_MOVE_SWAP] = "compare_swap"};
    const enum tutti_status status = carry_out(mover, move);
    if (status < 0)
        tutti_error_set(&move->error, status, "a %s of a peer in memory of device %d failed: %.300s", names[move->kind],
                        (int)mover->device->ordinal, tutti_last_error()->text);
    tutti_move_over(move);
}

static void *run(void *arg)
{
    struct tutti_mover *mover = arg;
    for (;;) {
        const uint32_t bell = atomic_load(&mover->bell);
        struct tutti_move *move = take(mover);
        if (move)
            run_one(mover, move);
        else if (atomic_load(&mover->closing))
            return NULL;
        else
            tutti_futex_wait(&mover->bell, bell, tutti_deadline_ns(TUTTI_NS_PER_S)); /* a second line only */
    }
}

/* ---- life ---- */

static void mover_free(struct tutti_mover *mover)
{
    const struct tutti_device_ops *ops = mover->device->ops;
    if (mover->event) ops->event_destroy(mover->device, mover->event);
    if (mover->stream) ops->stream_destroy(mover->device, mover->stream);
    tutti_pinned_give(mover->pool, mover->pinned);
    tutti_pinned_drop(mover->pool);
    pthread_mutex_destroy(&mover->lock);
    tutti_free(mover);
}

enum tutti_status tutti_mover_open(struct tutti_pinned_pool *pool, struct tutti_team *team, void *base,
                                   size_t piece_bytes, const struct tutti_mover_words *words, struct tutti_mover **out)
{
    const struct tutti_device_ops *ops = pool->device->ops;
    struct tutti_mover *mover = tutti_alloc(sizeof(*mover));
    enum tutti_status status;
    if (!mover) return tutti_fail(TUTTI_ERR_MEMORY, "out of memory for a window");
    mover->pool = tutti_pinned_hold(pool), mover->device = pool->device;
    mover->team = team, mover->base = base;
    if (words) mover->words = *words;
    mover->end = &mover->first;
    pthread_mutex_init(&mover->lock, NULL);
    TUTTI_TRY_GOTO(status, tutti_pinned_take(pool, piece_bytes, &mover->pinned), err);
    TUTTI_TRY_GOTO(status, ops->stream_create(mover->device, &mover->stream), err);
    TUTTI_TRY_GOTO(status, ops->event_create(mover->device, false, &mover->event), err);
    errno = tutti_thread_start(&mover->thread, 0, run, mover);
    if (errno) {
        status = tutti_fail_errno(TUTTI_ERR_SYSTEM, "no thread for a window of device memory");
        goto err;
    }
    *out = mover;
    return TUTTI_OK;
err:
    mover_free(mover);
    return status;
}

void tutti_mover_close(struct tutti_mover *mover)
{
    if (!mover) return;
    atomic_store(&mover->closing, true);
    ring(mover);
    pthread_join(mover->thread, NULL);
    if (!mover->stuck) mover_free(mover);
}
