/* SPDX-License-Identifier: BSD-3-Clause */
/* What can be seen wrong in a step without looking at any other rank: operation, buffers, ranges, peers, flags,
 * message numbers, waits that reach before the first step, and operands that overlap. */

#include "verify/bundle.h"

struct numbering { /* messages so far by peer */
    uint32_t *sent, *received;
};

/* Chunks that a slot's buffer has. */
static uint32_t buffer_chunks(const struct tutti_bundle *bundle, uint32_t slot, uint8_t buffer)
{
    switch (buffer) {
    case TUTTI_DATA:
        return bundle->n_chunks;
    case TUTTI_SCRATCH:
        return bundle->schedules[slot]->n_scratch;
    case TUTTI_IN:
        return bundle->info->separate_in ? bundle->n_chunks : 0;
    default:
        return 0;
    }
}

static void check_range(const struct tutti_bundle *bundle, uint32_t slot, uint32_t index, const char *verb,
                        uint8_t buffer, uint32_t chunk)
{
    const uint32_t n = tutti_bundle_step(bundle, slot, index)->n;
    const uint32_t limit = buffer_chunks(bundle, slot, buffer);
    if (n >= 1 && chunk < limit && n <= limit - chunk) return;
    char chunks[48];
    tutti_chunks_text(buffer, chunk, n, chunks, sizeof chunks);
    if (n == 0) {
        tutti_bundle_refuse(bundle, slot, index, "%s no chunk at all (n is 0)", verb);
    } else if (limit == 0) {
        tutti_bundle_refuse(bundle, slot, index, "%s %s, a buffer that does not exist here", verb, chunks);
    } else {
        tutti_bundle_refuse(bundle, slot, index, "%s %s, out of range: there are %u", verb, chunks, limit);
    }
}

static void check_operands(const struct tutti_bundle *bundle, uint32_t slot, uint32_t index)
{
    const struct tutti_step *step = tutti_bundle_step(bundle, slot, index);
    const bool reads = tutti_step_reads_src(step), writes = tutti_step_writes_dst(step);
    if (step->op > TUTTI_STEP_CALL) {
        tutti_bundle_refuse(bundle, slot, index, "has the unknown operation %u", step->op);
        return;
    }
    if (step->op == TUTTI_STEP_CALL) {
        tutti_bundle_refuse(bundle, slot, index, "is a call that was not expanded");
        return;
    }
    if (tutti_step_reduces(step) && !bundle->info->reduces) {
        tutti_bundle_refuse(bundle, slot, index, "reduces, but %s has no operation", bundle->info->name);
    }
    if (reads) check_range(bundle, slot, index, "reads", step->src_buffer, step->src);
    if (writes) check_range(bundle, slot, index, "writes", step->dst_buffer, step->dst);
    if (writes && step->dst_buffer == TUTTI_IN) {
        tutti_bundle_refuse(bundle, slot, index, "writes the user's input (input chunk %u)", step->dst);
    }
}

static void check_flags(const struct tutti_bundle *bundle, uint32_t slot, uint32_t index)
{
    const struct tutti_step *step = tutti_bundle_step(bundle, slot, index);
    const uint8_t flags = step->flags;
    if (flags & ~(TUTTI_STEP_LEFT | TUTTI_STEP_SRC_INPUT | TUTTI_STEP_DST_INPUT)) {
        tutti_bundle_refuse(bundle, slot, index, "has unknown flags %#x", flags);
    }
    if ((flags & TUTTI_STEP_SRC_INPUT) && (!tutti_step_reads_src(step) || step->src_buffer != TUTTI_DATA)) {
        tutti_bundle_refuse(bundle, slot, index, "is flagged to read DATA from the input, but does not read DATA");
    }
    if ((flags & TUTTI_STEP_DST_INPUT) && (!tutti_step_reduces(step) || step->dst_buffer != TUTTI_DATA)) {
        tutti_bundle_refuse(bundle, slot, index, "is flagged to reduce into the input, but does not reduce into DATA");
    }
    if ((flags & TUTTI_STEP_LEFT) && !tutti_step_reduces(step)) {
        tutti_bundle_refuse(bundle, slot, index, "names the side of an operand, but does not reduce");
    }
}

/* A local step's operands must be apart; only a copy of the input to its own place may be one and the same. */
static void check_overlap(const struct tutti_bundle *bundle, uint32_t slot, uint32_t index)
{
    const struct tutti_step *step = tutti_bundle_step(bundle, slot, index);
    if (!tutti_step_reads_src(step) || !tutti_step_writes_dst(step) || step->src_buffer != step->dst_buffer) return;
    const uint32_t distance = step->src < step->dst ? step->dst - step->src : step->src - step->dst;
    if (distance >= step->n) return;
    if (distance == 0 && step->op == TUTTI_STEP_COPY && (step->flags & TUTTI_STEP_SRC_INPUT)) return;
    char text[128];
    tutti_step_text(step, text, sizeof text);
    tutti_bundle_refuse(bundle, slot, index, "%s, which overlap", text);
}

/* The sealer's word on the size of the chunks. */
static void check_extent(const struct tutti_bundle *bundle, uint32_t slot, uint32_t index)
{
    const struct tutti_step *step = tutti_bundle_step(bundle, slot, index);
    if (step->op == TUTTI_STEP_CALL || step->extent == TUTTI_NO_EXTENT) return;
    if (tutti_step_reads_src(step) && step->src_buffer == TUTTI_IN) return; /* says its size itself */
    if (step->extent < bundle->n_chunks && step->n <= bundle->n_chunks - step->extent) return;
    tutti_bundle_refuse(bundle, slot, index, "takes its size from chunk %u, out of range: there are %u", step->extent,
                        bundle->n_chunks);
}

static void check_message(const struct tutti_bundle *bundle, uint32_t slot, uint32_t index, struct numbering *numbers)
{
    const struct tutti_step *step = tutti_bundle_step(bundle, slot, index);
    const bool sends = tutti_step_sends(step);
    if (!sends && !tutti_step_receives(step)) return;
    const char *verb = sends ? "sends to" : "receives from";
    if (step->peer >= bundle->n) {
        tutti_bundle_refuse(bundle, slot, index, "%s rank %u, but there are only %u ranks", verb, step->peer,
                            bundle->n);
        return;
    }
    if (step->peer == slot) {
        tutti_bundle_refuse(bundle, slot, index, "%s itself, which no transport carries: use a copy", verb);
        return;
    }
    uint32_t *next = sends ? &numbers->sent[step->peer] : &numbers->received[step->peer];
    if (step->fifo != *next) {
        tutti_bundle_refuse(bundle, slot, index,
                            "%s rank %u message %u, expected message %u (they are numbered in order)", verb, step->peer,
                            step->fifo, *next);
    }
    ++*next;
}

static void check_wait(const struct tutti_bundle *bundle, uint32_t slot, uint32_t index)
{
    const uint64_t wait = tutti_bundle_step(bundle, slot, index)->wait;
    if (index < TUTTI_WINDOW && wait >> index) {
        tutti_bundle_refuse(bundle, slot, index, "waits for a step before the first (mask %#llx)",
                            (unsigned long long)wait);
    }
}

enum tutti_status tutti_bundle_check_steps(struct tutti_bundle *bundle)
{
    struct numbering numbers = {.sent = tutti_alloc_array(bundle->n, 2 * sizeof(uint32_t))};
    if (!numbers.sent) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to check %u ranks", bundle->n);
    numbers.received = numbers.sent + bundle->n;
    for (uint32_t s = 0; s < bundle->n && bundle->verdict->ok; s++) {
        for (uint32_t i = 0; i < bundle->schedules[s]->n_steps && bundle->verdict->ok; i++) {
            check_operands(bundle, s, i);
            check_flags(bundle, s, i);
            check_overlap(bundle, s, i);
            check_extent(bundle, s, i);
            check_message(bundle, s, i, &numbers);
            check_wait(bundle, s, i);
        }
        for (uint32_t i = 0; i < bundle->schedules[s]->n_steps && bundle->verdict->ok; i++) {
            const struct tutti_step *step = tutti_bundle_step(bundle, s, i);
            if (tutti_step_is_message(step)) numbers.sent[step->peer] = numbers.received[step->peer] = 0;
        }
    }
    tutti_free(numbers.sent);
    return TUTTI_OK;
}
