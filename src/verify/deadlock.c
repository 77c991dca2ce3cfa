/* SPDX-License-Identifier: BSD-3-Clause */
/* No deadlock. The rules of the engine, as far as they decide who waits for whom:
 *
 *   start     A step may start when every step in its mask is complete and every step up to 64 before it is (window).
 *   channel   The messages of one (sender, receiver) start in the order of the sender's program.
 *   receive   A receive completes when it and its send have both started. A receive that has started is a grant.
 *   send      A long message is complete when its receive has started (rendezvous). A short one takes the channel's
 *             credit and is complete at once; the credit comes back when the receive starts, and until then the next
 *             short message of the channel does not start.
 *   local     Copies and reductions complete when they start.
 *
 * Modes: RENDEZVOUS takes all messages for long. CREDIT takes all for short, with one credit a channel; more credits
 * only help. SINGLE is the worst of both: a channel carries one message at a time, and each waits for its receive.
 *
 * What SINGLE is for. Which messages are short depends on the user's sizes, so the collective has to complete for
 * *every* assignment of its messages to short and long. It does if and only if SINGLE completes:
 *   - Each assignment only takes constraints of SINGLE away, and constraints only delay (nothing is disabled by
 *     progress), so what completes under SINGLE completes under all.
 *   - If SINGLE does not complete, its constraints contain a cycle; take a shortest one. SINGLE's own constraints are
 *     (a) a send completes after its receive starts, true of long messages, (b) a message starts after the receive of
 *     the one before has started, true of short ones. Were one message to need both, being long for (a) and short for
 *     (b), the cycle would pass its start and, later, its completion; but the start leads to the completion directly,
 *     so the cycle would not be shortest. So one assignment has the whole cycle, and the collective hangs for it.
 *
 * The second collective. Let two be in flight, even ranks having issued A then B, odd ranks B then A.
 *   - On two communicators each has its own channels and credits, so each runs as if alone. On one communicator the
 *     order of calls is the same everywhere (anything else is a mismatch, and reported); the last credit of a channel
 *     is kept for the oldest call in flight, so that the oldest never waits for a younger one and completes; then the
 *     next is the oldest. Neither can starve the other.
 *   - Were there but one credit for both, used by whoever comes first, with messages that find it taken moving by
 *     grant (which are consumed on arrival and so hold nothing), then the other collective could turn any of our
 *     messages from short to long, at any time. That is one more assignment, and SINGLE covers it.
 * deadlock_test.c tests all of this: SINGLE against an exhaustive search over assignments, and two copies issued in
 * opposite orders that share one credit a channel, under random scheduling.
 *
 * So the check runs SINGLE; when that stops, the other two tell which sentence to write. */

#include "verify/bundle.h"

#include <stdio.h>
#include <string.h>

enum step_state { IDLE, STARTED, COMPLETE };

struct run {
    struct tutti_bundle *bundle;
    enum tutti_channel_mode mode;
    uint8_t *state;   /* by step of the bundle: enum step_state */
    uint32_t *oldest; /* by slot: first incomplete step */
    uint64_t *idle;   /* by slot: bit j: step oldest + j is idle (within the window) */
    uint64_t *open;   /* by slot: bit j: step oldest + j is not complete */
    uint32_t *queue;  /* slots to look at, a ring of n */
    bool *queued;
    uint32_t head, n_queued;
};

static enum tutti_status run_init(struct run *run, struct tutti_bundle *bundle, enum tutti_channel_mode mode)
{
    *run = (struct run){.bundle = bundle, .mode = mode};
    run->state = tutti_alloc_array((size_t)bundle->n_steps + 1, sizeof *run->state);
    run->oldest = tutti_alloc_array(bundle->n, sizeof *run->oldest);
    run->idle = tutti_alloc_array(bundle->n, sizeof *run->idle);
    run->open = tutti_alloc_array(bundle->n, sizeof *run->open);
    run->queue = tutti_alloc_array(bundle->n, sizeof *run->queue);
    run->queued = tutti_alloc_array(bundle->n, sizeof *run->queued);
    if (run->state && run->oldest && run->idle && run->open && run->queue && run->queued) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_MEMORY, "no memory to run %u steps", bundle->n_steps);
}

static void run_fini(struct run *run)
{
    tutti_free(run->state);
    tutti_free(run->oldest);
    tutti_free(run->idle);
    tutti_free(run->open);
    tutti_free(run->queue);
    tutti_free(run->queued);
}

static void look_at(struct run *run, uint32_t slot)
{
    if (run->queued[slot]) return;
    run->queued[slot] = true;
    run->queue[(run->head + run->n_queued++) % run->bundle->n] = slot;
}

/* Moves a slot's window over its complete steps. */
static void advance(struct run *run, uint32_t slot)
{
    const uint32_t n_steps = run->bundle->schedules[slot]->n_steps;
    const uint32_t done = run->open[slot] ? (uint32_t)__builtin_ctzll(run->open[slot]) : TUTTI_WINDOW;
    if (done == 0) return;
    const uint32_t from = run->oldest[slot];
    const uint32_t step = done < n_steps - from ? done : n_steps - from;
    if (step == 0) return;
    run->oldest[slot] = from + step;
    run->open[slot] = step < TUTTI_WINDOW ? run->open[slot] >> step : 0;
    run->idle[slot] = step < TUTTI_WINDOW ? run->idle[slot] >> step : 0;
    for (uint32_t j = TUTTI_WINDOW - step; j < TUTTI_WINDOW && from + step + j < n_steps; j++) {
        run->open[slot] |= UINT64_C(1) << j;
        run->idle[slot] |= UINT64_C(1) << j;
    }
}

static void complete(struct run *run, uint32_t slot, uint32_t index)
{
    struct tutti_bundle *bundle = run->bundle;
    const uint32_t number = bundle->base[slot] + index;
    run->state[number] = COMPLETE;
    run->open[slot] &= ~(UINT64_C(1) << (index - run->oldest[slot]));
    if (run->mode == TUTTI_CHANNEL_SINGLE && !tutti_step_sends(tutti_bundle_step(bundle, slot, index))) {
        bundle->order_slot[bundle->n_order] = slot;
        bundle->order[bundle->n_order++] = number;
    }
    advance(run, slot);
    look_at(run, slot);
}

/* Whether the channel lets a send start. */
static bool channel_free(const struct run *run, uint32_t number)
{
    const uint32_t previous = run->bundle->previous[number];
    if (previous == TUTTI_NO_INDEX) return true;
    switch (run->mode) {
    case TUTTI_CHANNEL_SINGLE:
        return run->state[previous] == COMPLETE;
    case TUTTI_CHANNEL_CREDIT:
        return run->state[previous] != IDLE && run->state[run->bundle->match[previous]] != IDLE;
    default:
        return run->state[previous] != IDLE;
    }
}

/* The earliest incomplete step in the mask of a step within the window, or TUTTI_NO_INDEX. */
static uint32_t awaited(const struct run *run, uint32_t slot, uint32_t index)
{
    const uint32_t ahead = index - run->oldest[slot]; /* steps in the window before this one */
    uint64_t rest = tutti_bundle_step(run->bundle, slot, index)->wait;
    if (ahead < TUTTI_WINDOW) rest &= (UINT64_C(1) << ahead) - 1;
    while (rest) {
        const uint32_t j = (uint32_t)(63 - __builtin_clzll(rest));
        if (run->open[slot] >> (ahead - 1 - j) & 1) return index - 1 - j;
        rest &= ~(UINT64_C(1) << j);
    }
    return TUTTI_NO_INDEX;
}

static void start(struct run *run, uint32_t slot, uint32_t index)
{
    const struct tutti_bundle *bundle = run->bundle;
    const struct tutti_step *step = tutti_bundle_step(bundle, slot, index);
    const uint32_t number = bundle->base[slot] + index, match = bundle->match[number];
    run->state[number] = STARTED;
    run->idle[slot] &= ~(UINT64_C(1) << (index - run->oldest[slot]));
    if (match == TUTTI_NO_INDEX) {
        complete(run, slot, index);
        return;
    }
    const uint32_t other = match - bundle->base[step->peer];
    if (tutti_step_sends(step)) {
        const bool granted = run->state[match] == STARTED;
        if (granted || run->mode == TUTTI_CHANNEL_CREDIT) complete(run, slot, index);
        if (granted) complete(run, step->peer, other);
    } else if (run->state[match] != IDLE) {
        if (run->state[match] == STARTED) complete(run, step->peer, other);
        complete(run, slot, index);
    }
    look_at(run, step->peer); /* its channel may be free */
}

/* Starts what may start at a slot. */
static void visit(struct run *run, uint32_t slot)
{
    uint32_t index = run->oldest[slot];
    while (index - run->oldest[slot] < TUTTI_WINDOW || index < run->oldest[slot]) {
        if (index < run->oldest[slot]) index = run->oldest[slot];
        const uint64_t rest = run->idle[slot] >> (index - run->oldest[slot]);
        if (!rest) break;
        index += (uint32_t)__builtin_ctzll(rest);
        if (awaited(run, slot, index) == TUTTI_NO_INDEX && channel_free(run, run->bundle->base[slot] + index)) {
            start(run, slot, index);
        }
        index++;
    }
}

static bool run_all(struct run *run)
{
    const struct tutti_bundle *bundle = run->bundle;
    if (run->mode == TUTTI_CHANNEL_SINGLE) run->bundle->n_order = 0;
    for (uint32_t s = 0; s < bundle->n; s++) {
        const uint32_t n = bundle->schedules[s]->n_steps;
        run->open[s] = run->idle[s] = n >= TUTTI_WINDOW ? UINT64_MAX : (UINT64_C(1) << n) - 1;
        look_at(run, s);
    }
    while (run->n_queued) {
        const uint32_t slot = run->queue[run->head];
        run->head = (run->head + 1) % bundle->n;
        run->n_queued--;
        run->queued[slot] = false;
        visit(run, slot);
    }
    for (uint32_t s = 0; s < bundle->n; s++) {
        if (run->oldest[s] < bundle->schedules[s]->n_steps) return false;
    }
    return true;
}

/* ---- the sentence ---- */

/* The step without which an incomplete step can not go on. */
static uint32_t blocker(const struct run *run, uint32_t number)
{
    const struct tutti_bundle *bundle = run->bundle;
    const uint32_t slot = tutti_bundle_slot(bundle, number), index = number - bundle->base[slot];
    const uint32_t match = bundle->match[number], previous = bundle->previous[number];
    if (run->state[number] == STARTED) return match;
    if (index - run->oldest[slot] >= TUTTI_WINDOW) return bundle->base[slot] + run->oldest[slot];
    const uint32_t step = awaited(run, slot, index);
    if (step != TUTTI_NO_INDEX) return bundle->base[slot] + step;
    if (run->state[previous] == IDLE) return previous;
    return bundle->match[previous];
}

/* Appends "step 3 of rank 1 (sends chunk 0 to rank 2)". */
static void cycle_append(const struct tutti_bundle *bundle, uint32_t number, char *out, size_t capacity)
{
    const uint32_t slot = tutti_bundle_slot(bundle, number), index = number - bundle->base[slot];
    char text[128];
    tutti_step_text(tutti_bundle_step(bundle, slot, index), text, sizeof text);
    tutti_append(out, capacity, ", which waits for step %u of rank %u (%s)", index, slot, text);
}

static void report_cycle(const struct run *run)
{
    static const char *const when[TUTTI_N_CHANNEL_MODES] = {
        [TUTTI_CHANNEL_SINGLE] = "when some messages find no credit, as beside a second collective",
        [TUTTI_CHANNEL_RENDEZVOUS] = "when messages wait for their receives (long messages)",
        [TUTTI_CHANNEL_CREDIT] = "when a channel has one credit (short messages)",
    };
    enum { SHOWN = 3 };
    const struct tutti_bundle *bundle = run->bundle;
    uint32_t s = 0, length = 1;
    while (run->oldest[s] == bundle->schedules[s]->n_steps) s++;
    uint32_t number = bundle->base[s] + run->oldest[s];
    for (uint32_t i = 0; i < bundle->n_steps; i++) number = blocker(run, number); /* now on the cycle */
    const uint32_t slot = tutti_bundle_slot(bundle, number);
    char text[128], chain[384] = "";
    tutti_step_text(tutti_bundle_step(bundle, slot, number - bundle->base[slot]), text, sizeof text);
    for (uint32_t at = blocker(run, number); at != number; at = blocker(run, at), length++) {
        if (length <= SHOWN) cycle_append(bundle, at, chain, sizeof chain);
    }
    if (length == 1) snprintf(chain, sizeof chain, ", which waits for itself");
    tutti_bundle_refuse(bundle, slot, number - bundle->base[slot], "deadlock %s: %s%s%s (a circle of %u steps)",
                        when[run->mode], text, chain, length > SHOWN + 1 ? ", and so on round" : "", length);
}

enum tutti_status tutti_bundle_run(struct tutti_bundle *bundle, enum tutti_channel_mode mode, bool report, bool *done)
{
    struct run run;
    enum tutti_status status;
    TUTTI_TRY_GOTO(status, run_init(&run, bundle, mode), err_run);
    *done = run_all(&run);
    if (!*done && report) report_cycle(&run);
err_run:
    run_fini(&run);
    return status;
}

enum tutti_status tutti_bundle_check_deadlock(struct tutti_bundle *bundle)
{
    static const enum tutti_channel_mode modes[] = {TUTTI_CHANNEL_RENDEZVOUS, TUTTI_CHANNEL_CREDIT,
                                                    TUTTI_CHANNEL_SINGLE};
    bool done;
    TUTTI_TRY(tutti_bundle_run(bundle, TUTTI_CHANNEL_SINGLE, false, &done));
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(modes) && !done && bundle->verdict->ok; i++) {
        bool simpler;
        TUTTI_TRY(tutti_bundle_run(bundle, modes[i], true, &simpler));
    }
    return TUTTI_OK;
}
