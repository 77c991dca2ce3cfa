/* SPDX-License-Identifier: BSD-3-Clause */

/* A schedule from its beginning to its end: whether an algorithm fits a shape, the run of its rounds through emit.c and
 * seal.c, and what a schedule owns. */

#include "sched/emit.h"
#include "sched/plan.h"

#include <stdio.h>
#include <string.h>

static bool groups_are_equal(const struct tutti_shape *shape)
{
    for (uint32_t l = 0; l < shape->n_levels; l++)
        for (uint32_t r = 1; r < shape->levels[l].n_runs; r++)
            if (shape->levels[l].runs[r].size != shape->levels[l].runs[0].size) return false;
    return true;
}

bool tutti_algorithm_fits(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                          const struct tutti_shape *shape, char *reason, size_t capacity)
{
    const struct tutti_schedule_ops *ops = (uint32_t)kind < TUTTI_N_KINDS ? algorithm->kinds[kind] : NULL;
    const char *why = NULL;

    if (!ops || (!ops->plan && (!ops->rounds || !ops->round)))
        why = "it does not offer it";
    else if (shape->size == 0 || shape->slot >= shape->size)
        why = "there is no such rank";
    else if (shape->root >= shape->size)
        why = "the root is none of them";
    else if (!tutti_shape_levels_valid(shape))
        why = "the levels of the shape do not add up to its size";
    else if ((ops->needs & TUTTI_NEEDS_POWER_OF_TWO) && (shape->size & (shape->size - 1)) != 0)
        why = "the number of ranks must be a power of two";
    else if ((ops->needs & TUTTI_NEEDS_LEVELS) && shape->n_levels == 0)
        why = "it needs levels (hosts of several ranks): see the option levels";
    else if ((ops->needs & TUTTI_NEEDS_EQUAL_GROUPS) && !groups_are_equal(shape))
        why = "the groups of a level must be equally large";
    else if (shape->radix != 0 && ops->default_radix == 0 && !(ops->needs & TUTTI_TAKES_RADIX))
        why = "it has no radix";
    else if (shape->radix == 1 && ops->default_radix > 1)
        why = "the radix must be at least 2";
    else if (ops->plan && !ops->plan(ops, shape) && tutti_last_error()->status == TUTTI_ERR_UNSUPPORTED)
        why = tutti_last_error()->text;
    if (why && reason && capacity > 0)
        snprintf(reason, capacity, "%s can not run %s with %u rank%s: %s", algorithm->name, tutti_kind_name(kind),
                 shape->size, shape->size == 1 ? "" : "s", why);
    return !why;
}

static uint64_t hash_of(const struct tutti_algorithm *algorithm, enum tutti_kind kind, const struct tutti_shape *shape)
{
    char levels[640];
    uint32_t facts[] = {(uint32_t)kind, shape->size, shape->root, shape->radix};

    tutti_shape_levels_text(shape, levels, sizeof(levels));
    uint64_t hash = tutti_hash64(algorithm->name, strlen(algorithm->name), TUTTI_WINDOW ^ algorithm->identity);
    hash = tutti_hash64(levels, strlen(levels), hash);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(facts); i++) { /* as bytes in one order on all machines */
        uint8_t bytes[4] = {(uint8_t)facts[i], (uint8_t)(facts[i] >> 8), (uint8_t)(facts[i] >> 16),
                            (uint8_t)(facts[i] >> 24)};
        hash = tutti_hash64(bytes, sizeof(bytes), hash);
    }
    return hash;
}

/* Chunks, scratch and rounds, checked; the state that depends on them. plan: NULL for steps that are code. */
static void prepare(struct tutti_emit *emit, const struct tutti_schedule_ops *ops, const struct tutti_plan *plan)
{
    struct tutti_schedule *schedule = emit->schedule;
    const struct tutti_shape *shape = &emit->shape;
    uint32_t blocks = tutti_kind_blocks(schedule->kind, shape->size);
    uint32_t n_scratch = plan ? plan->n_scratch : ops->scratch ? ops->scratch(shape) : 0;

    schedule->n_chunks = plan ? plan->n_chunks : ops->chunks ? ops->chunks(shape) : blocks;
    schedule->n_rounds = plan ? plan->n_rounds : ops->rounds(shape);
    if (plan && (plan->kind != schedule->kind || plan->n_slots != shape->size))
        tutti_sealer_defect(emit, "can not be: its plan is one of %s for %u ranks", tutti_kind_name(plan->kind),
                            plan->n_slots);
    if (schedule->n_chunks == 0 || schedule->n_chunks % blocks != 0 || schedule->n_chunks > TUTTI_MAX_CHUNKS)
        tutti_sealer_defect(emit, "can not be: %u chunks do not make %u blocks (at most %u chunks)", schedule->n_chunks,
                            blocks, TUTTI_MAX_CHUNKS);
    if (schedule->n_rounds > TUTTI_MAX_STEPS)
        tutti_sealer_defect(emit, "can not be: %u rounds, at most %u are allowed", schedule->n_rounds, TUTTI_MAX_STEPS);
    if (tutti_sealer_stopped(emit)) return;
    emit->frame = (struct tutti_frame){.kind = schedule->kind,
                                       .size = shape->size,
                                       .slot = shape->slot,
                                       .stride = 1,
                                       .n_chunks = schedule->n_chunks,
                                       .width = 1,
                                       .n_scratch = n_scratch};
    if (emit->only) {
        schedule->n_scratch = n_scratch;
        return;
    }
    emit->touched = tutti_alloc(schedule->n_chunks);
    if (!emit->touched)
        emit->status = tutti_fail(TUTTI_ERR_MEMORY, "no memory to seal %s %s of %u ranks", schedule->algorithm->name,
                                  tutti_kind_name(schedule->kind), shape->size);
    tutti_sealer_grow_scratch(emit, emit->frame.n_scratch);
}

static enum tutti_status seal(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                              const struct tutti_shape *shape, uint32_t most_rounds, bool expand,
                              const struct tutti_lanes *lanes, struct tutti_schedule **out)
{
    char reason[640];

    if (!tutti_algorithm_fits(algorithm, kind, shape, reason, sizeof(reason)))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s", reason);
    struct tutti_schedule *schedule = tutti_alloc(sizeof(*schedule));
    if (!schedule) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a schedule of %s", algorithm->name);
    const struct tutti_schedule_ops *ops = algorithm->kinds[kind];
    struct tutti_emit emit = {.schedule = schedule, .shape = *shape, .expand = expand, .lanes = lanes};

    if (emit.shape.radix == 0) emit.shape.radix = ops->default_radix;
    schedule->shape = *shape;
    schedule->kind = kind;
    schedule->algorithm = algorithm;
    schedule->hash = hash_of(algorithm, kind, &emit.shape);
    if (lanes) schedule->lanes = *lanes;
    const struct tutti_plan *plan = ops->plan ? ops->plan(ops, &emit.shape) : NULL;
    if (ops->plan && !plan) tutti_sealer_defect(&emit, "is not there, since %s", tutti_last_error()->text);
    if (plan) schedule->hash = tutti_hash64(plan->steps, plan->n_steps * sizeof *plan->steps, schedule->hash);
    if (plan || !ops->plan) prepare(&emit, ops, plan);
    uint32_t n_rounds = schedule->n_rounds < most_rounds ? schedule->n_rounds : most_rounds;
    for (; emit.round < n_rounds && !tutti_sealer_stopped(&emit); emit.round++) {
        if (plan)
            tutti_plan_emit(plan, shape->slot, emit.round, &emit);
        else
            ops->round(&emit.shape, emit.round, &emit);
    }
    if (!tutti_sealer_stopped(&emit) && n_rounds == schedule->n_rounds) tutti_sealer_finish(&emit);
    if (!tutti_sealer_stopped(&emit)) tutti_extents_resolve(&emit.extents, schedule);
    tutti_extents_fini(&emit.extents);
    tutti_free(emit.touched);
    tutti_free(emit.written);
    tutti_free(emit.peers.table);
    if (emit.status < 0) {
        tutti_schedule_destroy(schedule);
        return emit.status;
    }
    *out = schedule;
    return TUTTI_OK;
}

enum tutti_status tutti_schedule_rounds(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                        const struct tutti_shape *shape, uint32_t first, uint32_t n,
                                        struct tutti_rounds *out)
{
    const struct tutti_schedule_ops *ops = algorithm->kinds[kind];
    struct tutti_schedule schedule = {.shape = *shape, .kind = kind, .algorithm = algorithm};
    struct tutti_emit emit = {.schedule = &schedule, .shape = *shape, .only = out, .expand = true, .round = first};

    if (emit.shape.radix == 0) emit.shape.radix = ops->default_radix;
    const struct tutti_plan *plan = ops->plan ? ops->plan(ops, &emit.shape) : NULL;
    out->n = 0;
    out->defect[0] = '\0';
    if (ops->plan && !plan) tutti_sealer_defect(&emit, "is not there, since %s", tutti_last_error()->text);
    if (plan || !ops->plan) prepare(&emit, ops, plan);
    for (; emit.round < schedule.n_rounds && emit.round - first < n && !tutti_sealer_stopped(&emit); emit.round++) {
        if (plan)
            tutti_plan_emit(plan, shape->slot, emit.round, &emit);
        else
            ops->round(&emit.shape, emit.round, &emit);
    }
    out->n_chunks = schedule.n_chunks, out->n_scratch = schedule.n_scratch, out->n_rounds = schedule.n_rounds;
    if (schedule.defect) snprintf(out->defect, sizeof(out->defect), "%s", schedule.defect);
    tutti_free(schedule.defect);
    return emit.status;
}

void tutti_rounds_fini(struct tutti_rounds *rounds)
{
    tutti_free(rounds->steps);
    *rounds = (struct tutti_rounds){0};
}

enum tutti_status tutti_schedule_seal(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                      const struct tutti_shape *shape, bool expand, struct tutti_schedule **out)
{
    return seal(algorithm, kind, shape, UINT32_MAX, expand, NULL, out);
}

enum tutti_status tutti_schedule_seal_rounds(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                             const struct tutti_shape *shape, uint32_t most_rounds,
                                             struct tutti_schedule **out)
{
    return seal(algorithm, kind, shape, most_rounds, true, NULL, out);
}

enum tutti_status tutti_schedule_seal_lanes(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                            const struct tutti_shape *shape, const struct tutti_lanes *lanes,
                                            struct tutti_schedule **out)
{
    return seal(algorithm, kind, shape, UINT32_MAX, true, lanes, out);
}

void tutti_schedule_destroy(struct tutti_schedule *schedule)
{
    if (!schedule) return;
    tutti_free(schedule->steps);
    tutti_free(schedule->calls);
    tutti_free(schedule->defect);
    tutti_free(schedule);
}
