/* SPDX-License-Identifier: BSD-3-Clause */

/* The sealer turns the steps of an algorithm into a schedule. Each step passes once, in program order:
 *   first touch  a DATA chunk that this slot has not written is read from the user's input; a step over chunks of both
 *                sorts is made uniform by copying the untouched ones first (S2);
 *   hazards      the step is compared with the 64 before it, no more, since all older ones are complete before it may
 *                start (S9); so sealing costs O(64) a step and keeps O(64 + chunks) state (S7);
 *   numbers      the k-th message to a peer meets the k-th that the peer expects;
 * and at the end each required chunk that was never written gets its copy of the input. In place, input and output are
 * one, so a read of the input has the hazards of a read of DATA. */

#include "sched/emit.h"

#include <stdio.h>
#include <string.h>

/* ---- what went wrong ---- */

bool tutti_sealer_stopped(const struct tutti_emit *emit)
{
    return emit->status < 0 || emit->schedule->defect;
}

void tutti_sealer_defect(struct tutti_emit *emit, const char *format, ...)
{
    struct tutti_schedule *schedule = emit->schedule;
    const struct tutti_shape *shape = &emit->shape;
    char levels[64], where[64] = "after the last round", text[400];
    va_list args;

    if (tutti_sealer_stopped(emit)) return;
    tutti_shape_levels_text(shape, levels, sizeof(levels));
    if (!emit->rounds_over) snprintf(where, sizeof(where), "round %u, step %u", emit->round, schedule->n_steps);
    int n = snprintf(text, sizeof(text), "%s %s, size %u, root %u, radix %u%s%s: rank %u, %s ",
                     schedule->algorithm->name, tutti_kind_name(schedule->kind), shape->size, shape->root, shape->radix,
                     levels[0] ? ", levels " : "", levels, shape->slot, where);
    size_t used = n < 0 ? 0 : (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1;
    va_start(args, format);
    vsnprintf(text + used, sizeof(text) - used, format, args);
    va_end(args);
    size_t bytes = strlen(text) + 1;
    schedule->defect = tutti_alloc(bytes);
    if (!schedule->defect)
        emit->status =
            tutti_fail(TUTTI_ERR_MEMORY, "no memory to say what is wrong with %s", schedule->algorithm->name);
    else
        memcpy(schedule->defect, text, bytes);
}

/* Doubles an array in place; false when out of memory. */
static bool grow(struct tutti_emit *emit, void **array, uint32_t n, uint32_t *capacity, uint32_t least, size_t bytes)
{
    uint32_t room = *capacity ? 2 * *capacity : 64;
    if (room < least) room = least;
    void *grown = tutti_alloc_array(room, bytes);

    if (!grown) {
        emit->status =
            tutti_fail(TUTTI_ERR_MEMORY, "no memory to seal %s %s of %u ranks", emit->schedule->algorithm->name,
                       tutti_kind_name(emit->schedule->kind), emit->shape.size);
        return false;
    }
    if (n > 0) memcpy(grown, *array, n * bytes);
    tutti_free(*array);
    *array = grown;
    *capacity = room;
    return true;
}

void tutti_sealer_grow_scratch(struct tutti_emit *emit, uint64_t n)
{
    struct tutti_schedule *schedule = emit->schedule;

    if (n <= schedule->n_scratch || tutti_sealer_stopped(emit)) return;
    if (emit->only && n <= TUTTI_MAX_CHUNKS) {
        schedule->n_scratch = (uint32_t)n;
        return;
    }
    if (n > TUTTI_MAX_CHUNKS) {
        tutti_sealer_defect(emit, "wants %llu chunks of SCRATCH, at most %u are allowed", (unsigned long long)n,
                            TUTTI_MAX_CHUNKS);
        return;
    }
    void *written = emit->written;
    if (n > emit->scratch_capacity &&
        !grow(emit, &written, schedule->n_scratch, &emit->scratch_capacity, (uint32_t)n, sizeof(*emit->written)))
        return;
    emit->written = written;
    schedule->n_scratch = (uint32_t)n;
}

/* ---- peers ---- */

static struct tutti_peer *peer_place(const struct tutti_peers *peers, uint32_t peer)
{
    uint32_t at = (uint32_t)tutti_mix64(peer + UINT64_C(1)) & (peers->capacity - 1);
    while (peers->table[at].key && peers->table[at].key != peer + 1) at = (at + 1) & (peers->capacity - 1);
    return &peers->table[at];
}

/* The row of a peer, at most half of all being taken; NULL: out of memory. */
static struct tutti_peer *peer_row(struct tutti_emit *emit, uint32_t peer)
{
    struct tutti_peers *peers = &emit->peers, old = *peers;

    if (2 * (peers->n + 1) > peers->capacity) {
        peers->capacity = old.capacity ? 2 * old.capacity : 32;
        peers->table = tutti_alloc_array(peers->capacity, sizeof(*peers->table));
        if (!peers->table) {
            *peers = old;
            emit->status =
                tutti_fail(TUTTI_ERR_MEMORY, "no memory to seal %s %s of %u ranks", emit->schedule->algorithm->name,
                           tutti_kind_name(emit->schedule->kind), emit->shape.size);
            return NULL;
        }
        for (uint32_t i = 0; i < old.capacity; i++)
            if (old.table[i].key) *peer_place(peers, old.table[i].key - 1) = old.table[i];
        tutti_free(old.table);
    }
    struct tutti_peer *row = peer_place(peers, peer);
    if (!row->key) row->key = peer + 1, peers->n++;
    return row;
}

/* ---- hazards ---- */

struct span {
    uint32_t buffer, first, n; /* n is 0: nothing */
};

static struct span span_read(const struct tutti_step *step)
{
    return (struct span){step->src_buffer, step->src,
                         tutti_step_reads_src(step) && step->src_buffer != TUTTI_IN ? step->n : 0};
}

static struct span span_written(const struct tutti_step *step)
{
    return (struct span){step->dst_buffer, step->dst, step->op == TUTTI_STEP_SEND ? 0 : step->n};
}

struct places {
    uint32_t from, to;
};

/* Where a span lies: DATA first, behind it SCRATCH. Nothing ends before everything and begins behind it. */
static struct places places_of(struct span span)
{
    const uint32_t from = (span.buffer == TUTTI_DATA ? 0 : TUTTI_MAX_CHUNKS) + span.first;
    return span.n ? (struct places){from, from + span.n} : (struct places){UINT32_MAX, 0};
}

/* Eight bytes that are 0 or 1 as eight bits, the first as the lowest. */
static uint64_t gather_bits(const uint8_t *bytes)
{
    uint64_t word = 0;
    for (uint32_t j = 0; j < 8; j++) word |= (uint64_t)bytes[j] << (8 * j);
    return (word * UINT64_C(0x0102040810204080)) >> 56;
}

/* The step is compared with the 64 before it at once, and takes the place of the oldest. Steps that reduce read what
 * they write, which is the hazard of the write already. */
static uint64_t hazards(struct tutti_spans *spans, uint32_t i, const struct tutti_step *step)
{
    const struct places read = places_of(span_read(step)), written = places_of(span_written(step));
    const uint32_t at = TUTTI_WINDOW - 1 - i % TUTTI_WINDOW, turn = (at + 1) % TUTTI_WINDOW;
    uint8_t hits[TUTTI_WINDOW];
    uint64_t wait = 0;

    for (uint32_t p = 0; p < TUTTI_WINDOW; p++) {
        const uint32_t from = spans->written_from[p], to = spans->written_to[p];
        hits[p] = (uint8_t)(((written.from < to) & (from < written.to)) | ((read.from < to) & (from < read.to)) |
                            ((written.from < spans->read_to[p]) & (spans->read_from[p] < written.to)));
    }
    for (uint32_t p = 0; p < TUTTI_WINDOW; p += 8) wait |= gather_bits(hits + p) << p;
    spans->read_from[at] = read.from, spans->read_to[at] = read.to;
    spans->written_from[at] = written.from, spans->written_to[at] = written.to;
    return turn ? wait >> turn | wait << (TUTTI_WINDOW - turn) : wait; /* bit 0 is the step before */
}

/* Calls mark what they write themselves. */
static void mark(struct tutti_emit *emit, const struct tutti_step *step)
{
    struct span written = span_written(step);

    if (written.n > 0 && step->op != TUTTI_STEP_CALL)
        memset((written.buffer == TUTTI_DATA ? emit->touched : emit->written) + written.first, 1, written.n);
}

/* The step as it is: number, hazards, size. */
static void push(struct tutti_emit *emit, struct tutti_step *step)
{
    struct tutti_schedule *schedule = emit->schedule;
    void *steps = schedule->steps;

    if (tutti_sealer_stopped(emit)) return;
    if (schedule->n_steps == TUTTI_MAX_STEPS) {
        tutti_sealer_defect(emit, "is one too many: at most %u are allowed", TUTTI_MAX_STEPS);
        return;
    }
    if (schedule->n_steps == emit->step_capacity &&
        !grow(emit, &steps, schedule->n_steps, &emit->step_capacity, 0, sizeof(*step)))
        return;
    schedule->steps = steps;
    step->round = emit->round;
    if (tutti_step_is_message(step)) {
        struct tutti_peer *peer = peer_row(emit, step->peer);
        if (!peer) return;
        step->fifo = tutti_step_sends(step) ? peer->sent++ : peer->received++;
    }
    step->wait = hazards(&emit->spans, schedule->n_steps, step);
    if (step->op == TUTTI_STEP_CALL)
        step->extent = step->dst;
    else if ((emit->status = tutti_extents_add(&emit->extents, step)) < 0)
        return;
    schedule->steps[schedule->n_steps++] = *step;
    mark(emit, step);
}

/* ---- first touch ---- */

static bool block_is_empty(const struct tutti_emit *emit, uint32_t chunk)
{
    const struct tutti_schedule *schedule = emit->schedule;
    uint32_t blocks = tutti_kind_blocks(schedule->kind, emit->shape.size);

    return tutti_kind_before(schedule->kind, &emit->shape, chunk / (schedule->n_chunks / blocks)) ==
           TUTTI_HOLDS_NOTHING;
}

/* Copies the untouched chunks of the range from the input. */
static void copy_untouched(struct tutti_emit *emit, uint32_t chunk, uint32_t n)
{
    for (uint32_t end = chunk + n; chunk < end && !tutti_sealer_stopped(emit);) {
        uint32_t first = chunk;
        bool touched = emit->touched[chunk];
        while (chunk < end && emit->touched[chunk] == touched) chunk++;
        if (touched) continue;
        struct tutti_step copy = {.op = TUTTI_STEP_COPY,
                                  .flags = TUTTI_STEP_SRC_INPUT,
                                  .src_buffer = TUTTI_DATA,
                                  .dst_buffer = TUTTI_DATA,
                                  .src = first,
                                  .dst = first,
                                  .n = chunk - first};
        push(emit, &copy);
    }
}

/* Readies n chunks of DATA to be read as one: flag is returned when all come from the input, 0 when all are written. */
static uint8_t touch(struct tutti_emit *emit, uint32_t chunk, uint32_t n, enum tutti_step_flag flag)
{
    const uint32_t end = chunk + n, blocks = tutti_kind_blocks(emit->schedule->kind, emit->shape.size);
    const uint32_t width = emit->schedule->n_chunks / blocks;
    uint32_t untouched = n;

    for (uint32_t c = chunk; c < end; c++) untouched -= emit->touched[c];
    if (untouched == 0) return 0;
    for (uint32_t c = chunk; c < end; c = (c / width + 1) * width) { /* one of each block */
        const uint32_t last = end - c < width - c % width ? end : (c / width + 1) * width;
        const uint8_t *hole = block_is_empty(emit, c) ? memchr(emit->touched + c, 0, last - c) : NULL;
        if (hole) {
            tutti_sealer_defect(emit, "reads chunk %u of DATA, which holds nothing before it is written",
                                (uint32_t)(hole - emit->touched));
            return 0;
        }
    }
    if (untouched == n) return (uint8_t)flag;
    if (untouched > 0) copy_untouched(emit, chunk, n);
    return 0;
}

static void check_written(struct tutti_emit *emit, uint32_t chunk, uint32_t n)
{
    const uint8_t *hole = memchr(emit->written + chunk, 0, n);

    if (hole)
        tutti_sealer_defect(emit, "reads chunk %u of SCRATCH before it is written", (uint32_t)(hole - emit->written));
}

/* Keeps a step as it is. */
static void keep(struct tutti_emit *emit, struct tutti_step *step)
{
    struct tutti_rounds *only = emit->only;
    void *steps = only->steps;

    if (only->n == only->capacity && !grow(emit, &steps, only->n, &only->capacity, 0, sizeof(*step))) return;
    only->steps = steps;
    step->round = emit->round;
    only->steps[only->n++] = *step;
}

void tutti_sealer_add(struct tutti_emit *emit, struct tutti_step step)
{
    struct span read = span_read(&step);
    bool combines = tutti_step_reduces(&step);

    if (emit->only) {
        keep(emit, &step);
        return;
    }
    if (read.n > 0 && read.buffer == TUTTI_SCRATCH) check_written(emit, step.src, step.n);
    if (read.n > 0 && read.buffer == TUTTI_DATA) step.flags |= touch(emit, step.src, step.n, TUTTI_STEP_SRC_INPUT);
    if (combines && step.dst_buffer == TUTTI_SCRATCH) check_written(emit, step.dst, step.n);
    if (combines && step.dst_buffer == TUTTI_DATA) step.flags |= touch(emit, step.dst, step.n, TUTTI_STEP_DST_INPUT);
    push(emit, &step);
}

/* ---- calls that are kept ---- */

/* Whatever the slice, each block is one run of memory: it is one chunk, and several lie as the blocks of the whole do.
 */
static bool in_one_piece(const struct tutti_emit *emit, enum tutti_kind kind, const struct tutti_view *view)
{
    const struct tutti_schedule *schedule = emit->schedule;

    if (!tutti_kind_info(kind)->block_a_slot) return view->n_chunks * view->width == 1;
    return kind == schedule->kind && schedule->n_chunks == emit->shape.size && view->n_chunks == view->size &&
           view->width == 1;
}

uint32_t tutti_sealer_lane(const struct tutti_emit *emit, enum tutti_kind kind, const struct tutti_view *view)
{
    uint32_t best = TUTTI_NO_LANE;

    if (!emit->lanes || !in_one_piece(emit, kind, view)) return TUTTI_NO_LANE;
    for (uint32_t l = 0; l < emit->lanes->n; l++) {
        const struct tutti_lane *lane = &emit->lanes->lanes[l];
        bool serves = lane->base == view->base && lane->stride == view->stride && lane->size == view->size &&
                      (lane->kinds >> kind & 1);
        if (serves && (best == TUTTI_NO_LANE || emit->n_on_lane[l] < emit->n_on_lane[best])) best = l;
    }
    return best;
}

/* The blocks of which the slot holds something, before or after the call; they follow one another. */
static uint32_t held(enum tutti_content (*holds)(enum tutti_kind, const struct tutti_shape *, uint32_t),
                     enum tutti_kind kind, const struct tutti_shape *sub, uint32_t *first)
{
    uint32_t n = 0, blocks = tutti_kind_blocks(kind, sub->size);

    for (uint32_t b = 0; b < blocks; b++)
        if (holds(kind, sub, b) != TUTTI_HOLDS_NOTHING && n++ == 0) *first = b;
    return n;
}

/* A call reads what its kind holds before it and writes what it holds after it; a broadcast's root keeps what it has
 * where it is. Its hazards are those of a step that writes all of the view. */
void tutti_sealer_add_call(struct tutti_emit *emit, enum tutti_kind kind, const struct tutti_view *view, uint32_t lane,
                           const struct tutti_shape *sub)
{
    struct tutti_schedule *schedule = emit->schedule;
    void *calls = schedule->calls;
    uint32_t per_block = view->n_chunks / tutti_kind_blocks(kind, sub->size) * view->width, first = 0;
    struct tutti_step step = {.op = TUTTI_STEP_CALL,
                              .src_buffer = TUTTI_DATA,
                              .dst_buffer = TUTTI_DATA,
                              .peer = schedule->n_calls,
                              .src = view->chunk,
                              .dst = view->chunk,
                              .n = view->n_chunks * view->width};

    if (schedule->n_calls == emit->call_capacity &&
        !grow(emit, &calls, schedule->n_calls, &emit->call_capacity, 0, sizeof(*schedule->calls)))
        return;
    schedule->calls = calls;
    uint32_t n = held(tutti_kind_before, kind, sub, &first);
    if (n > 0) step.flags = touch(emit, view->chunk + first * per_block, n * per_block, TUTTI_STEP_SRC_INPUT);
    if (tutti_sealer_stopped(emit)) return;
    schedule->calls[schedule->n_calls++] = (struct tutti_lane_call){
        kind, *view, lane, lane == TUTTI_NO_LANE ? 0 : emit->n_on_lane[lane]++, schedule->n_steps};
    push(emit, &step);
    bool keeps = kind == TUTTI_BROADCAST && sub->slot == sub->root;
    n = keeps ? 0 : held(tutti_kind_after, kind, sub, &first);
    if (n > 0) memset(emit->touched + view->chunk + first * per_block, 1, n * per_block);
}

void tutti_sealer_finish(struct tutti_emit *emit)
{
    const struct tutti_schedule *schedule = emit->schedule;
    const struct tutti_kind_info *info = tutti_kind_info(schedule->kind);
    const uint32_t slot = emit->shape.slot,
                   width = schedule->n_chunks / tutti_kind_blocks(schedule->kind, emit->shape.size);
    const bool own_alone = info->block_a_slot && info->recv.blocks == TUTTI_ONE_BLOCK;
    uint32_t chunk = own_alone ? slot * width : 0;
    const uint32_t end = own_alone ? chunk + width : schedule->n_chunks;

    emit->round = schedule->n_rounds;
    emit->rounds_over = true;
    if (!tutti_side_is_at(info->recv, slot, emit->shape.root)) return;
    while (chunk < end && !tutti_sealer_stopped(emit)) {
        const uint8_t *hole = memchr(emit->touched + chunk, 0, end - chunk);
        if (!hole) return;
        const uint32_t b = (uint32_t)(hole - emit->touched) / width;
        if (block_is_empty(emit, b * width))
            tutti_sealer_defect(emit, "(%u steps): chunk %u of DATA was never written", schedule->n_steps,
                                (uint32_t)(hole - emit->touched));
        else
            copy_untouched(emit, b * width, width);
        chunk = (b + 1) * width;
    }
}
