/* SPDX-License-Identifier: BSD-3-Clause */
/* Computes the hazards of every step anew and refuses a mask that lacks one, so that a broken sealer is found, too.
 *
 * A hazard (read after write, write after read, write after write on one chunk) is covered when the later step waits
 * for the earlier one, or waits for a step that does (so transitively), or when it lies out of the window: step i
 * starts only when all steps up to i - 64 are complete. In place, input and DATA are the same memory, so that a read
 * from the input counts as a read of DATA. IN is never written and has no hazards. */

#include "verify/bundle.h"

#include <string.h>

/* The steps that touched a chunk: the last writer, and the readers since then as a mask relative to the last of them.
 */
struct touch {
    uint32_t writer;  /* step + 1; 0: none */
    uint32_t reader;  /* step + 1 of the last reader since; 0: none */
    uint64_t readers; /* bit j: step reader - 1 - j read it */
};

struct scan {
    const struct tutti_bundle *bundle;
    uint32_t slot;
    bool by_window; /* steps of so many chunks that looking at each costs more than comparing steps */
    struct touch *data, *scratch;
    uint64_t closed[TUTTI_WINDOW]; /* step i's at i % 64: the mask with all it implies */
};

static struct touch *touch_of(struct scan *scan, uint8_t buffer, uint32_t chunk)
{
    if (buffer == TUTTI_IN) return NULL;
    return buffer == TUTTI_DATA ? &scan->data[chunk] : &scan->scratch[chunk];
}

/* Mask of a step seen from step i: nothing when it is out of the window. */
static uint64_t mask_of(uint32_t i, uint32_t step)
{
    return i - 1 - step < TUTTI_WINDOW ? UINT64_C(1) << (i - 1 - step) : 0;
}

static uint64_t readers_seen(const struct touch *touch, uint32_t i)
{
    if (!touch->reader) return 0;
    const uint32_t last = touch->reader - 1; /* < i, or i itself, which does not hinder itself */
    if (last == i) return touch->readers >> 1;
    const uint32_t shift = i - 1 - last;
    return shift < TUTTI_WINDOW ? touch->readers << shift : 0;
}

/* What step i must wait for to read or write n chunks; adds itself to the readers, or becomes the writer. */
static uint64_t touch_chunks(struct scan *scan, uint32_t i, uint8_t buffer, uint32_t chunk, uint32_t n, bool writes)
{
    uint64_t needed = 0;
    for (uint32_t c = chunk; c < chunk + n; c++) {
        struct touch *touch = touch_of(scan, buffer, c);
        if (!touch) return 0;
        if (touch->writer) needed |= mask_of(i, touch->writer - 1);
        const uint64_t before = readers_seen(touch, i);
        if (writes) {
            needed |= before;
            *touch = (struct touch){.writer = i + 1};
        } else { /* relative to step i as the last reader: bit 0 is i itself */
            touch->readers = before << 1 | 1;
            touch->reader = i + 1;
        }
    }
    return needed;
}

static bool overlap(uint8_t buffer, uint32_t chunk, uint32_t n, uint8_t other_buffer, uint32_t other, uint32_t other_n)
{
    return buffer != TUTTI_IN && buffer == other_buffer && chunk < other + other_n && other < chunk + n;
}

/* The same for steps of many chunks: compared as ranges with all steps in the window. It asks for more than the last
 * writer and the readers since, but for nothing that a mask with all it implies does not have. */
static uint64_t needed_in_window(const struct scan *scan, uint32_t i)
{
    const struct tutti_step *a = tutti_bundle_step(scan->bundle, scan->slot, i);
    const bool reads = tutti_step_reads_src(a), writes = tutti_step_writes_dst(a);
    uint64_t needed = 0;
    for (uint32_t j = 0; j < TUTTI_WINDOW && j < i; j++) {
        const struct tutti_step *b = tutti_bundle_step(scan->bundle, scan->slot, i - 1 - j);
        const bool b_reads = tutti_step_reads_src(b), b_writes = tutti_step_writes_dst(b);
        const bool hazard = (writes && b_writes && overlap(a->dst_buffer, a->dst, a->n, b->dst_buffer, b->dst, b->n)) ||
                            (writes && b_reads && overlap(a->dst_buffer, a->dst, a->n, b->src_buffer, b->src, b->n)) ||
                            (reads && b_writes && overlap(a->src_buffer, a->src, a->n, b->dst_buffer, b->dst, b->n));
        needed |= (uint64_t)hazard << j;
    }
    return needed;
}

static uint64_t needed_by(struct scan *scan, uint32_t i)
{
    const struct tutti_step *step = tutti_bundle_step(scan->bundle, scan->slot, i);
    uint64_t needed = 0;
    if (scan->by_window) return needed_in_window(scan, i);
    if (tutti_step_reads_src(step)) needed |= touch_chunks(scan, i, step->src_buffer, step->src, step->n, false);
    if (tutti_step_reduces(step)) needed |= touch_chunks(scan, i, step->dst_buffer, step->dst, step->n, false);
    if (tutti_step_writes_dst(step)) needed |= touch_chunks(scan, i, step->dst_buffer, step->dst, step->n, true);
    return needed;
}

/* The mask with what it implies: a step that is complete had waited for its own. */
static uint64_t close_mask(const struct scan *scan, uint32_t i, uint64_t wait)
{
    uint64_t closed = wait;
    for (uint64_t rest = wait; rest; rest &= rest - 1) {
        const uint32_t j = (uint32_t)__builtin_ctzll(rest);
        if (j + 1 < TUTTI_WINDOW) closed |= scan->closed[(i - 1 - j) % TUTTI_WINDOW] << (j + 1);
    }
    return closed;
}

static void check_slot(struct scan *scan)
{
    const struct tutti_bundle *bundle = scan->bundle;
    for (uint32_t i = 0; i < bundle->schedules[scan->slot]->n_steps; i++) {
        const uint64_t closed = close_mask(scan, i, tutti_bundle_step(bundle, scan->slot, i)->wait);
        const uint64_t by_window = UINT64_C(1) << (TUTTI_WINDOW - 1);
        const uint64_t missing = needed_by(scan, i) & ~(closed | by_window);
        scan->closed[i % TUTTI_WINDOW] = closed;
        if (!missing) continue;
        const uint32_t earlier = i - 1 - (uint32_t)__builtin_ctzll(missing);
        char text[128], other[128];
        tutti_step_text(tutti_bundle_step(bundle, scan->slot, i), text, sizeof text);
        tutti_step_text(tutti_bundle_step(bundle, scan->slot, earlier), other, sizeof other);
        tutti_bundle_refuse(bundle, scan->slot, i, "%s without waiting for step %u, which %s: its mask lacks a hazard",
                            text, earlier, other);
        return;
    }
}

/* Whether a slot has few steps for so many chunks. */
static bool is_wide(const struct tutti_bundle *bundle, uint32_t slot, size_t n_touch)
{
    const struct tutti_schedule *schedule = bundle->schedules[slot];
    const uint64_t by_window = (uint64_t)schedule->n_steps * TUTTI_WINDOW;
    uint64_t by_chunk = n_touch;
    for (uint32_t i = 0; i < schedule->n_steps && by_chunk <= by_window; i++) by_chunk += schedule->steps[i].n;
    return by_chunk > by_window;
}

enum tutti_status tutti_bundle_check_hazards(struct tutti_bundle *bundle)
{
    uint32_t n_scratch = 0;
    for (uint32_t s = 0; s < bundle->n; s++) {
        if (bundle->schedules[s]->n_scratch > n_scratch) n_scratch = bundle->schedules[s]->n_scratch;
    }
    const size_t n_touch = (size_t)bundle->n_chunks + n_scratch;
    struct touch *touches = tutti_alloc_array(n_touch, sizeof *touches);
    if (!touches) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to check %zu chunks", n_touch);
    for (uint32_t s = 0; s < bundle->n && bundle->verdict->ok; s++) {
        struct scan scan = {.bundle = bundle, .slot = s, .data = touches, .scratch = touches + bundle->n_chunks};
        scan.by_window = is_wide(bundle, s, n_touch);
        if (!scan.by_window) memset(touches, 0, n_touch * sizeof *touches);
        check_slot(&scan);
    }
    tutti_free(touches);
    return TUTTI_OK;
}
