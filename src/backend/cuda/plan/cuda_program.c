/* SPDX-License-Identifier: BSD-3-Clause */
/* Sealed schedules as programs of devices: steps with the hazards as kernels ask for them, the channels as lists, and
 * what a call's buffers and sizes make of them. */
#include "backend/cuda/plan/cuda_program.h"

#include "engine/bind/bind.h"

#include <string.h>

#define SLICE_UNKNOWN ((uint64_t)64 << 10) /* bytes, where no rank knows the size of all blocks */

/* ---- steps ---- */

struct making {
    struct cuda_program *program;
    uint32_t n;
    uint16_t last[2 * CUDA_MAX_RANKS]; /* step of each channel so far */
    bool full;
};

static uint64_t reversed(uint64_t bits)
{
    uint64_t out = 0;
    for (uint32_t i = 0; i < 64; i++) out |= (bits >> i & 1) << (63 - i);
    return out;
}

/* channel: of its channel; UINT32_MAX for local steps. */
static void add(struct making *m, struct cuda_plan_step step, uint32_t channel)
{
    if (m->n == CUDA_PLAN_STEPS) {
        m->full = true;
        return;
    }
    step.next = CUDA_PLAN_NONE;
    m->program->steps[m->n] = step;
    if (channel != UINT32_MAX) {
        uint16_t before = m->last[channel];
        *(before == CUDA_PLAN_NONE ? &m->program->first[channel] : &m->program->steps[before].next) = (uint16_t)m->n;
        m->last[channel] = (uint16_t)m->n;
    }
    m->n++;
}

static uint8_t buffer_of(uint8_t buffer)
{
    static const uint8_t buffers[] = {
        [TUTTI_DATA] = CUDA_PLAN_DATA, [TUTTI_SCRATCH] = CUDA_PLAN_SCRATCH, [TUTTI_IN] = CUDA_PLAN_KEPT};
    return buffers[buffer];
}

static void add_step(struct making *m, const struct tutti_step *from)
{
    bool receives = from->op == TUTTI_STEP_RECV || from->op == TUTTI_STEP_RECV_REDUCE;
    bool sends = from->op == TUTTI_STEP_SEND;
    struct cuda_plan_step step = {.need = reversed(from->wait),
                                  .src = from->src,
                                  .dst = from->dst,
                                  .n = from->n,
                                  .extent = from->extent,
                                  .src_buffer = buffer_of(from->src_buffer),
                                  .dst_buffer = buffer_of(from->dst_buffer)};
    step.act = sends ? CUDA_PLAN_SEND : receives ? CUDA_PLAN_RECV : CUDA_PLAN_LOCAL;
    if (from->op == TUTTI_STEP_RECV_REDUCE || from->op == TUTTI_STEP_REDUCE) step.flags |= CUDA_PLAN_FOLDS;
    if (from->flags & TUTTI_STEP_SRC_INPUT) step.flags |= CUDA_PLAN_SRC_INPUT;
    if (from->flags & TUTTI_STEP_DST_INPUT) step.flags |= CUDA_PLAN_OLD_INPUT;
    add(m, step, sends ? from->peer : receives ? CUDA_MAX_RANKS + from->peer : UINT32_MAX);
}

/* Before anything else IN is copied where it is one with the output: the first 64 steps wait for that, and with them
 * all that follow. */
static void keep_input(struct making *m, const struct tutti_schedule *s)
{
    struct cuda_plan_step copy = {.n = s->n_chunks,
                                  .extent = UINT32_MAX,
                                  .act = CUDA_PLAN_LOCAL,
                                  .src_buffer = CUDA_PLAN_IN,
                                  .dst_buffer = CUDA_PLAN_KEPT};
    add(m, copy, UINT32_MAX);
}

static void wait_for_input(struct making *m)
{
    for (uint32_t i = 1; i < m->n && i <= CUDA_PLAN_WINDOW; i++)
        m->program->steps[i].need |= UINT64_C(1) << (CUDA_PLAN_WINDOW - i);
}

/* Averages are divided when all else is over, since what others were sent is the sum. */
static void divide(struct making *m, const struct tutti_schedule *s)
{
    uint32_t n_blocks = tutti_kind_blocks(s->kind, s->shape.size), per_block = s->n_chunks / n_blocks;
    for (uint32_t b = 0; b < n_blocks; b++) {
        if (tutti_kind_after(s->kind, &s->shape, b) == TUTTI_HOLDS_NOTHING) continue;
        struct cuda_plan_step step = {.need = UINT64_MAX,
                                      .src = b * per_block,
                                      .dst = b * per_block,
                                      .n = per_block,
                                      .extent = b * per_block,
                                      .act = CUDA_PLAN_LOCAL,
                                      .flags = CUDA_PLAN_DIVIDES,
                                      .src_buffer = CUDA_PLAN_DATA,
                                      .dst_buffer = CUDA_PLAN_DATA};
        add(m, step, UINT32_MAX);
    }
}

/* Kinds in which some rank's output has not all blocks of DATA. */
static bool is_private(enum tutti_kind kind)
{
    const struct tutti_kind_info *info = tutti_kind_info(kind);
    bool gathers_all = kind == TUTTI_ALL_GATHER || kind == TUTTI_ALL_TO_ALL;
    return kind == TUTTI_REDUCE || kind == TUTTI_EXSCAN || (info->block_a_slot && !gathers_all);
}

enum tutti_status cuda_program_make(const struct tutti_schedule *s, struct cuda_program *out,
                                    struct cuda_program_facts *facts)
{
    const struct tutti_kind_info *kind = tutti_kind_info(s->kind);
    struct making m = {.program = out};
    memset(out->first, 0xff, sizeof(out->first));
    memset(m.last, 0xff, sizeof(m.last));
    if (s->defect) return tutti_fail(TUTTI_ERR_INTERNAL, "%s", s->defect);
    if (s->n_calls > 0 || s->shape.size > CUDA_MAX_RANKS)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "cuda runs schedules of up to %d ranks, without calls",
                          CUDA_MAX_RANKS);
    if (kind->separate_in) keep_input(&m, s);
    for (uint32_t i = 0; i < s->n_steps; i++) add_step(&m, &s->steps[i]);
    if (kind->reduces) divide(&m, s);
    if (kind->separate_in) wait_for_input(&m);
    if (m.full)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "cuda runs schedules of up to %d steps, and %s %s has %u on rank %u",
                          CUDA_PLAN_STEPS, s->algorithm ? s->algorithm->name : "", tutti_kind_name(s->kind), s->n_steps,
                          s->shape.slot);
    facts->hash = s->hash;
    facts->n_steps = m.n;
    facts->own_data = s->n_scratch;
    facts->own_kept = facts->own_data + (is_private(s->kind) ? s->n_chunks : 0);
    facts->n_private = facts->own_kept + (kind->separate_in ? s->n_chunks : 0);
    return TUTTI_OK;
}

/* ---- what is kept ---- */

/* What the slot's program needs. */
static enum tutti_status ask(const struct tutti_schedule *mine, uint32_t slot, struct cuda_program *room,
                             struct cuda_program_facts *out)
{
    struct tutti_shape shape = mine->shape;
    struct tutti_schedule *schedule;
    shape.slot = slot;
    TUTTI_TRY(tutti_schedule_seal(mine->algorithm, mine->kind, &shape, true, &schedule));
    enum tutti_status status = cuda_program_make(schedule, room, out);
    tutti_schedule_destroy(schedule);
    return status;
}

static size_t program_bytes(uint32_t n_steps)
{
    return (offsetof(struct cuda_program, steps) + n_steps * sizeof(struct cuda_plan_step) + 63) / 64 * 64;
}

/* All ranks take as much room, so that all of them have it, or none. */
static enum tutti_status make(struct cuda_programs *p, const struct tutti_schedule *schedule, struct cuda_program *room)
{
    struct cuda_program_facts facts, other;
    uint32_t most_steps = 0, most_private = 0;
    for (uint32_t slot = 0; slot < schedule->shape.size; slot++) {
        TUTTI_TRY(ask(schedule, slot, room, &other));
        if (other.n_steps > most_steps) most_steps = other.n_steps;
        if (other.n_private > most_private) most_private = other.n_private;
    }
    if (p->n == CUDA_PROGRAMS || program_bytes(most_steps) > CUDA_PROGRAM_BYTES - p->used)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                          "a communicator keeps %zu KiB of schedules for graphs, which %u schedules have filled",
                          CUDA_PROGRAM_BYTES >> 10, p->n);
    TUTTI_TRY(cuda_program_make(schedule, room, &facts));
    char *at = p->memory + p->used;
    memcpy(at, room, offsetof(struct cuda_program, steps) + facts.n_steps * sizeof(struct cuda_plan_step));
    facts.program = (const struct cuda_program *)(const void *)at;
    facts.n_private = most_private;
    p->used += program_bytes(most_steps);
    p->facts[p->n++] = facts;
    return TUTTI_OK;
}

enum tutti_status cuda_programs_find(struct cuda_programs *p, const struct tutti_schedule *schedule,
                                     struct cuda_program_facts *out)
{
    uint32_t i = 0;
    while (i < p->n && p->facts[i].hash != schedule->hash) i++;
    if (i == p->n) {
        struct cuda_program *room = p->memory ? tutti_alloc(sizeof(*room)) : NULL;
        if (!room) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a schedule on a device");
        enum tutti_status status = make(p, schedule, room);
        tutti_free(room);
        if (status < 0) return status;
    }
    *out = p->facts[i];
    return TUTTI_OK;
}

/* ---- binding ---- */

/* How chunks are cut: equal on all ranks. */
struct cut {
    uint64_t slice_bytes;
    uint32_t blocks;
};

static uint64_t units_of(uint64_t bytes)
{
    return (bytes + CUDA_PLAN_UNIT - 1) / CUDA_PLAN_UNIT;
}

/* A slice a block, of a tile at least, unless private memory does not suffice: then shorter ones, one after another. */
static enum tutti_status cut_chunks(const struct cuda_program_facts *facts, const struct cuda_program_place *site,
                                    uint64_t chunk_bytes, struct cut *out)
{
    uint64_t tiles = (chunk_bytes + CUDA_LEAST_TILE - 1) / CUDA_LEAST_TILE;
    uint64_t room = site->own_bytes / CUDA_PLAN_UNIT, wanted = facts->n_private;
    uint32_t blocks = tiles < site->layout.n_blocks ? (uint32_t)tiles : site->layout.n_blocks;
    if (wanted > room)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED,
                          "the schedule has %u chunks of its own, and %zu bytes are there for them", facts->n_private,
                          site->own_bytes);
    if (blocks == 0) blocks = 1;
    while (blocks > 1 && wanted * blocks > room) blocks /= 2;
    uint64_t units = units_of((chunk_bytes + blocks - 1) / blocks);
    if (wanted > 0 && units > room / (wanted * blocks)) units = room / (wanted * blocks);
    *out = (struct cut){(units > 0 ? units : 1) * CUDA_PLAN_UNIT, blocks};
    return TUTTI_OK;
}

static void bind_blocks(const struct tutti_layout *l, struct cuda_plan *out)
{
    for (uint32_t b = 0; b < l->n_blocks; b++) {
        out->counts[b] = l->counts ? l->counts[b] : l->count;
        out->in_counts[b] = l->in_counts ? l->in_counts[b] : l->count;
        out->input[b] = (const char *)tutti_layout_input(l, b);
        out->output[b] = (char *)tutti_layout_output(l, b);
    }
}

enum tutti_status cuda_program_bind(const struct cuda_program_facts *facts, const struct cuda_program_place *site,
                                    const struct tutti_bind *bind, struct cuda_plan *out, uint32_t *blocks)
{
    size_t tables[TUTTI_LAYOUT_TABLES * CUDA_MAX_RANKS];
    struct tutti_layout l;
    struct tutti_need need;
    struct cut cut = {0};
    TUTTI_TRY(tutti_layout_init(&l, bind, 0, &need));
    bool known = !(bind->v || bind->counts) || l.kind == TUTTI_ALL_GATHER || l.kind == TUTTI_REDUCE_SCATTER;
    uint64_t chunk_bytes = l.largest * l.element;
    TUTTI_TRY(cut_chunks(facts, site, known ? chunk_bytes : SLICE_UNKNOWN * site->layout.n_blocks, &cut));
    if (need.n_tables > 0) tutti_layout_tables(&l, bind, tables);
    bind_blocks(&l, out);
    out->program = facts->program;
    out->n_steps = facts->n_steps;
    out->element = (uint32_t)l.element;
    out->per_block = l.per_block;
    out->kept = tutti_kind_info(l.kind)->separate_in && bind->input == bind->output;
    out->slice_bytes = cut.slice_bytes;
    out->n_slices = (chunk_bytes + cut.slice_bytes - 1) / cut.slice_bytes;
    out->stride = cut.blocks;
    out->largest = l.largest;
    out->own = site->own;
    out->own_bytes = facts->n_private * cut.slice_bytes;
    out->own_data = facts->own_data, out->own_kept = facts->own_kept;
    *blocks = out->n_slices < cut.blocks ? (uint32_t)out->n_slices : cut.blocks;
    if (facts->n_steps == 0) *blocks = 0;
    return TUTTI_OK;
}
