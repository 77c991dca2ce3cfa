/* SPDX-License-Identifier: BSD-3-Clause */
/* One-sided calls: copies by copy engines between mapped addresses, changes of words and waits by kernels of one block.
 * They are ordered by their stream alone, with one another and with collectives: a wait on one stream must not hold up
 * the call on another one that its peer waits for. So nothing here takes a turn; what is enqueued is known by an event
 * for each stream (gpu_tracks.c). What a stream did before a kernel is visible to who acquires what the kernel
 * releases (as in meet.h): that is what puts data before signals. */
#include "backend/gpu/gpu_backend.h"
#include "device/accesses.h"

#include <tutti/window.h>

/* Up to here a kernel of one block copies and changes the word sooner than a copy and a kernel are begun. */
#define TOGETHER_BYTES ((size_t)32 << 10)
#define SPIN_NS (UINT64_C(50) * 1000)
#define NAP_NS (UINT64_C(20) * 1000)

/* ---- one call ---- */

struct enqueuing {
    struct gpu_backend *b;
    void *stream;
    struct tutti_device_scope scope;
    struct gpu_track *track; /* NULL: in a capture */
};

static enum tutti_status begin(struct enqueuing *e)
{
    struct gpu_backend *b = e->b;
    TUTTI_TRY(gpu_state(b));
    TUTTI_TRY(tutti_device_enter(b->gpu, &e->scope));
    if (gpu_track_begin(b, e->stream, &e->track) >= 0) return TUTTI_OK;
    tutti_device_leave(b->gpu, &e->scope);
    return tutti_last_error()->status;
}

/* half: of a call that failed, something was enqueued. */
static enum tutti_status end(struct enqueuing *e, enum tutti_status status, bool half,
                             const struct tutti_backend_await *await)
{
    struct gpu_backend *b = e->b;
    const struct tutti_error why = *tutti_last_error();
    enum tutti_status ended = TUTTI_OK;
    if (status >= 0 || half) {
        ended = e->track ? gpu_track_end(b, e->track, await) : TUTTI_OK;
        if (!e->track && !atomic_exchange(&b->watched.captured, true)) watch_wake(&b->watched);
    } else if (e->track) {
        gpu_track_drop(b, e->track);
    }
    tutti_device_leave(b->gpu, &e->scope);
    if (status < 0) tutti_fail_record(&why);
    return (status < 0 && half) || ended < 0 ? gpu_give_up(b, "a one-sided call", 0) : status;
}

/* ---- accesses ---- */

static enum tutti_status launch(struct gpu_backend *b, const struct tutti_backend_access *access, bool copies,
                                struct gpu_cell *cell, void *stream)
{
    struct gpu_one_access x = {.word = access->word,
                               .value = access->value,
                               .expected = access->expected,
                               .before = cell ? &cell->value : access->before,
                               .there = cell ? &cell->there : NULL,
                               .change = (uint32_t)access->change};
    gpu_alarm(&b->base, &x.alarm);
    if (copies) x.to = access->dest, x.from = access->source, x.bytes = access->bytes;
    const uint64_t units = (x.bytes / 16 + 31) / 32 * 32;
    const struct tutti_gpu_launch how = {.kernel = b->one.access,
                                         .args_bytes = sizeof(x),
                                         .stream = stream,
                                         .blocks = 1,
                                         .threads = units < 32                   ? 32
                                                    : units > GPU_ACCESS_THREADS ? GPU_ACCESS_THREADS
                                                                                 : (uint32_t)units};
    return b->gpu->ops->gpu->launch(b->gpu, &how, &x);
}

/* Runs on a thread of the driver, when the stream has come past the change of the word. */
static void bring(void *arg)
{
    struct gpu_cell *cell = arg;
    *cell->to = cell->value;
    if (!cell->kept) gpu_cell_give(cell);
}

/* What the word was goes to memory of the device at once, to memory of the host by a cell. */
static enum tutti_status change(struct enqueuing *e, const struct tutti_backend_access *access, bool copies, bool *half)
{
    struct gpu_backend *b = e->b;
    struct gpu_cell *cell = NULL;
    if (access->before && b->gpu->ops->of(access->before) < 0 && !(cell = gpu_cell_take(b)))
        return tutti_last_error()->status;
    enum tutti_status status = launch(b, access, copies, cell, e->stream);
    if (!cell) return status;
    cell->to = access->before, cell->kept = e->track == NULL;
    if (status < 0) {
        gpu_cell_give(cell);
        return status;
    }
    *half = true;
    return b->gpu->ops->host_call(b->gpu, e->stream, bring, cell);
}

static enum tutti_status enqueue(struct enqueuing *e, const struct tutti_backend_access *access, bool *half)
{
    const bool together =
        access->word && access->bytes > 0 && access->bytes <= TOGETHER_BYTES && e->b->gpu->ops->of(access->source) >= 0;
    if (access->bytes > 0 && !together) {
        TUTTI_TRY(e->b->gpu->ops->copy(e->b->gpu, access->dest, access->source, access->bytes, e->stream));
        *half = true;
    }
    return access->word ? change(e, access, together, half) : TUTTI_OK;
}

enum tutti_status gpu_access(struct tutti_backend *backend, const struct tutti_backend_access *access, void *stream)
{
    struct enqueuing e = {.b = gpu_of(backend), .stream = stream};
    bool half = false;
    if (!e.b->one.access && access->word)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s has no kernels for windows", e.b->base.ops->name);
    if (access->word && access->change != TUTTI_WORD_SET && e.b->no_atomics >> access->peer & 1)
        return tutti_fail(
            TUTTI_ERR_UNSUPPORTED,
            "the link between the GPUs of ranks %u and %u has no atomics: signals can be set, not added to",
            e.b->site.me, access->peer);
    TUTTI_TRY(begin(&e));
    const enum tutti_status status = enqueue(&e, access, &half);
    return end(&e, status, half, NULL);
}

/* ---- waits ---- */

enum tutti_status gpu_await(struct tutti_backend *backend, const struct tutti_backend_await *await, void *stream)
{
    struct gpu_backend *b = gpu_of(backend);
    struct enqueuing e = {.b = b, .stream = stream};
    struct gpu_one_await x = {.word = await->word,
                              .value = await->value,
                              .timeout_ns = await->timeout_ns == TUTTI_NEVER ? 0 : await->timeout_ns,
                              .index = await->index,
                              .compare = await->compare,
                              .from = await->from};
    const struct tutti_gpu_launch how = {
        .kernel = b->one.await, .stream = stream, .blocks = 1, .threads = 32, .args_bytes = sizeof(x)};
    if (!b->one.await) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s has no kernels for windows", b->base.ops->name);
    gpu_alarm(backend, &x.alarm);
    TUTTI_TRY(begin(&e));
    return end(&e, b->gpu->ops->gpu->launch(b->gpu, &how, &x), false, await);
}

/* ---- reading a word of this rank ---- */

static bool is_there(const struct gpu_cell *cell)
{
    return __atomic_load_n(&cell->there, __ATOMIC_ACQUIRE) != 0;
}

/* The device tells by the cell; what it may still write to stays until the end. */
static enum tutti_status wait_cell(struct gpu_backend *b, const struct gpu_cell *cell, uint64_t deadline_ns)
{
    struct tutti_error error;
    const uint64_t spin_until = tutti_deadline_ns(SPIN_NS);
    while (!is_there(cell)) {
        const uint64_t now = tutti_now_ns();
        if (tutti_team_state(b->watched.team, &error) < 0) return tutti_fail_record(&error);
        if (now >= deadline_ns)
            return tutti_fail(TUTTI_ERR_TIMEOUT, "the stream had not come to it when its time was up");
        if (now >= spin_until) tutti_sleep_ns(NAP_NS);
    }
    return TUTTI_OK;
}

enum tutti_status gpu_read_word(struct tutti_backend *backend, uint64_t *word, void *stream, uint64_t deadline_ns,
                                uint64_t *out)
{
    struct gpu_backend *b = gpu_of(backend);
    struct enqueuing e = {.b = b, .stream = stream};
    const struct tutti_backend_access access = {.word = word, .change = TUTTI_WORD_ADD};
    if (!b->one.access) return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s has no kernels for windows", b->base.ops->name);
    TUTTI_TRY(begin(&e));
    struct gpu_cell *cell = e.track ? gpu_cell_take(b) : NULL;
    enum tutti_status status = cell      ? launch(b, &access, false, cell, stream)
                               : e.track ? tutti_last_error()->status
                                         : tutti_fail(TUTTI_ERR_ARGUMENT, "the stream is being captured");
    if (!e.track) {
        tutti_device_leave(b->gpu, &e.scope);
        return status;
    }
    status = end(&e, status, false, NULL);
    if (status >= 0) status = wait_cell(b, cell, deadline_ns);
    if (status >= 0) {
        *out = cell->value;
        gpu_cell_give(cell);
    }
    return status;
}

/* ---- what kernels are told ---- */

void gpu_alarm(struct tutti_backend *backend, struct tutti_device_alarm *out)
{
    struct gpu_backend *b = gpu_of(backend);
    *out = (struct tutti_device_alarm){.asked = (uint64_t *)(void *)(b->scratch + b->site.layout.asked),
                                       .stopped = (uint32_t *)(void *)(b->scratch + b->site.layout.stopped),
                                       .stop = &b->control->stop,
                                       .report = &b->control->report,
                                       .late = &b->control->late,
                                       .code = GPU_REPORT(GPU_ONE_SIDED, 0)};
}
