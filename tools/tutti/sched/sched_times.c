/* SPDX-License-Identifier: BSD-3-Clause */
/* When steps would run if messages took one unit of time, under the engine's rules (waits, window, order in channels,
 * rendezvous): the vertical axis of the drawing. */

#include "sched.h"

#include "verify/bundle.h"

static const double MESSAGE = 1.0, LOCAL = 0.3, BETWEEN_SENDS = 0.25;

struct clockwork {
    const struct tutti_bundle *bundle;
    struct sched_times *times;
    double *last_send; /* by slot */
};

/* The end of all that a step waits for at its rank. */
static double ready(const struct clockwork *clock, uint32_t slot, uint32_t index)
{
    const double *end = clock->times->end + clock->times->base[slot];
    double time = 0;
    for (uint32_t j = 0; j < TUTTI_WINDOW && j < index; j++) {
        const bool awaited = tutti_bundle_step(clock->bundle, slot, index)->wait >> j & 1;
        if ((awaited || j + 1 == TUTTI_WINDOW) && end[index - 1 - j] > time) time = end[index - 1 - j];
    }
    return time;
}

static void time_message(const struct clockwork *clock, uint32_t slot, uint32_t number)
{
    const struct tutti_bundle *bundle = clock->bundle;
    struct sched_times *times = clock->times;
    const uint32_t send = bundle->match[number], from = tutti_bundle_slot(bundle, send);
    double begin = ready(clock, from, send - bundle->base[from]);
    if (begin < clock->last_send[from] + BETWEEN_SENDS) begin = clock->last_send[from] + BETWEEN_SENDS;
    times->start[number] = ready(clock, slot, number - bundle->base[slot]);
    /* The message leaves when both are ready. */
    if (begin < times->start[number]) begin = times->start[number];
    clock->last_send[from] = times->start[send] = begin;
    times->end[send] = times->end[number] = begin + MESSAGE;
}

static enum tutti_status times_fill(struct tutti_bundle *bundle, struct sched_times *times)
{
    struct clockwork clock = {.bundle = bundle, .times = times};
    clock.last_send = tutti_alloc_array(bundle->n, sizeof *clock.last_send);
    if (!clock.last_send) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to draw %u ranks", bundle->n);
    for (uint32_t s = 0; s < bundle->n; s++) clock.last_send[s] = -BETWEEN_SENDS;
    for (uint32_t i = 0; i < bundle->n_order; i++) {
        const uint32_t number = bundle->order[i], slot = tutti_bundle_slot(bundle, number);
        if (bundle->match[number] != TUTTI_NO_INDEX) {
            time_message(&clock, slot, number);
        } else {
            times->start[number] = ready(&clock, slot, number - bundle->base[slot]);
            times->end[number] = times->start[number] + LOCAL;
        }
        if (times->end[number] > times->last) times->last = times->end[number];
    }
    tutti_free(clock.last_send);
    return TUTTI_OK;
}

enum tutti_status sched_times_make(const struct sched_bundle *sealed, struct sched_times *out)
{
    struct tutti_verdict verdict = {.ok = true};
    struct tutti_bundle bundle;
    struct sched_times times = {0};
    enum tutti_status status;
    TUTTI_TRY_GOTO(status,
                   tutti_bundle_init(&bundle, (const struct tutti_schedule *const *)sealed->slots, sealed->n, &verdict),
                   err_bundle);
    if (verdict.ok) TUTTI_TRY_GOTO(status, tutti_bundle_check_steps(&bundle), err_bundle);
    if (verdict.ok) TUTTI_TRY_GOTO(status, tutti_bundle_match(&bundle), err_bundle);
    if (verdict.ok) TUTTI_TRY_GOTO(status, tutti_bundle_check_deadlock(&bundle), err_bundle);
    if (!verdict.ok) {
        status = tutti_fail(TUTTI_ERR_ARGUMENT, "%s", verdict.text);
        goto err_bundle;
    }
    times.start = tutti_alloc_array((size_t)bundle.n_steps + 1, sizeof *times.start);
    times.end = tutti_alloc_array((size_t)bundle.n_steps + 1, sizeof *times.end);
    if (!times.start || !times.end) {
        status = tutti_fail(TUTTI_ERR_MEMORY, "no memory to draw %u steps", bundle.n_steps);
        goto err_times;
    }
    times.base = bundle.base;
    TUTTI_TRY_GOTO(status, times_fill(&bundle, &times), err_times);
    bundle.base = NULL; /* the caller's now */
    *out = times;
    tutti_bundle_fini(&bundle);
    return TUTTI_OK;
err_times:
    tutti_free(times.start);
    tutti_free(times.end);
err_bundle:
    tutti_bundle_fini(&bundle);
    return status;
}

void sched_times_free(struct sched_times *times)
{
    tutti_free(times->start);
    tutti_free(times->end);
    tutti_free(times->base);
}
