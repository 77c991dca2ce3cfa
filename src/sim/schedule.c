/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs from sealed schedules, by the engine's own rule: a step starts when its hazards are clear and the step 64
 * before it is complete, messages of a slice leave for a peer in program order, a chunk is cut into slices that go on
 * independently, and only so many slices are under way at once. A step becomes one operation; where folding costs time,
 * a receive that folds becomes two. Ranks are sealed one after another, so that only the program stays in memory. */

#include "sim/making.h"

#include <string.h>

/* The i-th of `parts` even parts of n. */
static uint64_t part_of(uint64_t n, uint64_t parts, uint64_t i)
{
    return n / parts + (i < n % parts ? 1 : 0);
}

static uint32_t slices_of(const struct tutti_sim_work *work, uint64_t elements, uint32_t per_block)
{
    uint64_t chunk = part_of(elements, per_block, 0) * work->element_bytes;
    if (work->slice_bytes == 0 || chunk <= work->slice_bytes) return 1;
    return (uint32_t)((chunk + work->slice_bytes - 1) / work->slice_bytes);
}

/* Bytes that the step moves in a slice. Where a chunk is as large as any other, they are not added up. */
static uint64_t bytes_of(const struct making *m, const struct tutti_step *step, uint32_t slice)
{
    uint32_t per_block = m->schedule->n_chunks / m->blocks, first = step->extent;
    bool even = m->elements % per_block == 0;
    uint64_t elements = 0;
    if (tutti_step_reads_src(step) && step->src_buffer == TUTTI_IN) first = step->src;
    if (even || first == TUTTI_NO_EXTENT)
        return step->n * part_of(part_of(m->elements, per_block, 0), m->n_slices, slice) * m->work->element_bytes;
    for (uint32_t c = first; c < first + step->n; c++)
        elements += part_of(part_of(m->elements, per_block, c % per_block), m->n_slices, slice);
    return elements * m->work->element_bytes;
}

/* ---- one slice ---- */

static enum tutti_status add(struct making *m, enum tutti_sim_type type, const struct tutti_step *step, uint64_t size,
                             uint32_t slice, uint32_t *out)
{
    const struct tutti_sim_op op = {.type = (uint8_t)type,
                                    .size = size,
                                    .peer = step->peer,
                                    .tag = step->fifo * m->n_slices + slice,
                                    .place = step->round};
    return tutti_sim_program_add(m->program, &op, out);
}

/* Femtoseconds a byte to picoseconds. */
static uint64_t time_of(uint64_t fs_per_byte, uint64_t bytes)
{
    return (uint64_t)((double)fs_per_byte * (double)bytes / 1000);
}

static enum tutti_status add_step(struct making *m, uint32_t i, uint32_t slice)
{
    const struct tutti_step *step = &m->schedule->steps[i];
    const struct tutti_sim_work *work = m->work;
    uint64_t bytes = bytes_of(m, step, slice);
    uint64_t fold = time_of(work->fold_fs, bytes);
    /* The messages of a barrier hold nothing, and are sent. */
    if (tutti_step_is_message(step) && bytes == 0 && m->schedule->kind == TUTTI_BARRIER) bytes = 1;
    if (!tutti_step_is_message(step) || bytes == 0) {
        uint64_t time = step->op == TUTTI_STEP_REDUCE ? fold : time_of(work->copy_fs, bytes);
        TUTTI_TRY(add(m, TUTTI_SIM_CALC, step, tutti_step_is_message(step) ? 0 : time, slice, &m->begin[i]));
        m->end[i] = m->begin[i];
        return TUTTI_OK;
    }
    enum tutti_sim_type type = tutti_step_sends(step) ? TUTTI_SIM_SEND : TUTTI_SIM_RECV;
    TUTTI_TRY(add(m, type, step, bytes, slice, &m->begin[i]));
    m->end[i] = m->begin[i];
    if (step->op != TUTTI_STEP_RECV_REDUCE || fold == 0) return TUTTI_OK;
    TUTTI_TRY(add(m, TUTTI_SIM_CALC, step, fold, slice, &m->end[i]));
    return tutti_sim_program_after(m->program, m->begin[i], m->end[i], false);
}

/* An edge from the earlier step i - 1 - j, unless others say as much: the nearest are asked for first. */
static enum tutti_status wait_for(struct making *m, uint32_t i, uint32_t j)
{
    uint32_t earlier = i - 1 - j;
    if (m->reached[i] >> j & 1) return TUTTI_OK;
    m->reached[i] |= UINT64_C(1) << j | (j < 63 ? m->reached[earlier] << (j + 1) : 0);
    m->waited_for[earlier] = true;
    return tutti_sim_program_after(m->program, m->end[earlier], m->begin[i], false);
}

static enum tutti_status add_waits(struct making *m, uint32_t i)
{
    const struct tutti_step *steps = m->schedule->steps;
    m->reached[i] = 0;
    for (uint64_t wait = steps[i].wait; wait; wait &= wait - 1)
        TUTTI_TRY(wait_for(m, i, (uint32_t)__builtin_ctzll(wait)));
    if (i >= TUTTI_WINDOW) TUTTI_TRY(wait_for(m, i, TUTTI_WINDOW - 1));
    if (!tutti_step_sends(&steps[i])) return TUTTI_OK;
    for (uint32_t j = 0; j < i && j < TUTTI_WINDOW; j++) {
        const struct tutti_step *earlier = &steps[i - 1 - j];
        if (!tutti_step_sends(earlier) || earlier->peer != steps[i].peer) continue;
        if (m->reached[i] >> j & 1) break;
        return tutti_sim_program_after(m->program, m->begin[i - 1 - j], m->begin[i], true);
    }
    return TUTTI_OK;
}

static enum tutti_status add_slice(struct making *m, uint32_t slice)
{
    uint32_t n = m->schedule->n_steps, active = m->work->active;
    bool joins = active > 0 && m->n_slices > active;
    memset(m->waited_for, 0, n * sizeof(*m->waited_for));
    for (uint32_t i = 0; i < n; i++) {
        TUTTI_TRY(add_step(m, i, slice));
        TUTTI_TRY(add_waits(m, i));
        if (joins && slice >= active && m->program->ops[m->begin[i]].before == 0)
            TUTTI_TRY(tutti_sim_program_after(m->program, m->joins[slice % active], m->begin[i], false));
        if (m->over != TUTTI_SIM_NONE && m->program->ops[m->begin[i]].before == 0)
            TUTTI_TRY(tutti_sim_program_after(m->program, m->over, m->begin[i], false));
    }
    for (uint32_t i = 0; i < n && m->ends != TUTTI_SIM_NONE; i++)
        if (!m->waited_for[i]) TUTTI_TRY(tutti_sim_program_after(m->program, m->end[i], m->ends, false));
    if (!joins) return TUTTI_OK;
    const struct tutti_step nothing = {.round = m->schedule->n_rounds};
    TUTTI_TRY(add(m, TUTTI_SIM_CALC, &nothing, 0, slice, &m->joins[slice % active]));
    for (uint32_t i = 0; i < n; i++)
        if (!m->waited_for[i])
            TUTTI_TRY(tutti_sim_program_after(m->program, m->end[i], m->joins[slice % active], false));
    return TUTTI_OK;
}

/* ---- one rank ---- */

static enum tutti_status make_room(struct making *m, uint32_t n_steps)
{
    if (n_steps <= m->capacity) return TUTTI_OK;
    tutti_free(m->begin);
    tutti_free(m->end);
    tutti_free(m->waited_for);
    tutti_free(m->reached);
    m->begin = tutti_alloc_array(n_steps, sizeof(*m->begin));
    m->end = tutti_alloc_array(n_steps, sizeof(*m->end));
    m->waited_for = tutti_alloc_array(n_steps, sizeof(*m->waited_for));
    m->reached = tutti_alloc_array(n_steps, sizeof(*m->reached));
    m->capacity = m->begin && m->end && m->waited_for && m->reached ? n_steps : 0;
    return m->capacity ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "no memory for %u steps", n_steps);
}

enum tutti_status tutti_sim_making_open(struct making *m, const struct tutti_sim_work *work,
                                        struct tutti_sim_program *program)
{
    *m = (struct making){.work = work, .program = program, .elements = work->block_bytes / work->element_bytes};
    m->joins = tutti_alloc_array(work->active ? work->active : 1, sizeof(*m->joins));
    return m->joins ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "no memory for a program");
}

void tutti_sim_making_close(struct making *m)
{
    tutti_free(m->begin);
    tutti_free(m->end);
    tutti_free(m->waited_for);
    tutti_free(m->reached);
    tutti_free(m->joins);
}

uint32_t tutti_sim_slices_of(const struct tutti_sim_work *work, const struct tutti_schedule *schedule)
{
    uint32_t per_block = schedule->n_chunks / tutti_kind_blocks(schedule->kind, schedule->shape.size);
    return slices_of(work, work->block_bytes / work->element_bytes, per_block);
}

enum tutti_status tutti_sim_making_add(struct making *m, const struct tutti_schedule *schedule, uint32_t rank)
{
    if (schedule->defect) return tutti_fail(TUTTI_ERR_ARGUMENT, "%s", schedule->defect);
    m->schedule = schedule;
    tutti_sim_program_rank(m->program, rank);
    m->blocks = tutti_kind_blocks(schedule->kind, schedule->shape.size);
    m->n_slices = slices_of(m->work, m->elements, schedule->n_chunks / m->blocks);
    if (schedule->n_steps > m->program->n_steps) m->program->n_steps = schedule->n_steps;
    if (m->n_slices > m->program->n_slices) m->program->n_slices = m->n_slices;
    m->program->n_rounds = schedule->n_rounds;
    TUTTI_TRY(make_room(m, schedule->n_steps ? schedule->n_steps : 1));
    m->over = TUTTI_SIM_NONE;
    for (uint32_t call = 0; call == 0 || call < m->work->calls; call++) {
        const struct tutti_step nothing = {.round = schedule->n_rounds};
        m->ends = TUTTI_SIM_NONE;
        if (call + 1 < m->work->calls) TUTTI_TRY(add(m, TUTTI_SIM_CALC, &nothing, 0, 0, &m->ends));
        if (call > 0 && m->ends != TUTTI_SIM_NONE) /* also of a rank that has no steps */
            TUTTI_TRY(tutti_sim_program_after(m->program, m->over, m->ends, false));
        for (uint32_t slice = 0; slice < m->n_slices; slice++) TUTTI_TRY(add_slice(m, slice));
        m->over = m->ends;
    }
    return TUTTI_OK;
}

enum tutti_status tutti_sim_program_make(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                         const struct tutti_shape *shape, const struct tutti_sim_work *work,
                                         struct tutti_sim_program *out)
{
    struct tutti_sim_program program;
    struct making m;
    struct tutti_shape own = *shape;
    TUTTI_TRY(tutti_sim_program_init(&program, shape->size));
    enum tutti_status status = tutti_sim_making_open(&m, work, &program);
    for (own.slot = 0; own.slot < shape->size && status >= 0; own.slot++) {
        struct tutti_schedule *schedule;
        uint32_t rounds = work->rounds > 0 ? work->rounds : UINT32_MAX;
        status = tutti_schedule_seal_rounds(algorithm, kind, &own, rounds, &schedule);
        if (status < 0) break;
        status = tutti_sim_making_add(&m, schedule, own.slot);
        tutti_schedule_destroy(schedule);
        if (work->progress) work->progress(work->argument, own.slot + 1, shape->size);
    }
    tutti_sim_making_close(&m);
    if (status >= 0) status = tutti_sim_program_seal(&program);
    if (status < 0)
        tutti_sim_program_fini(&program);
    else
        *out = program;
    return status;
}
