/* SPDX-License-Identifier: BSD-3-Clause */
/* What a search tries: the table, compositions over groups, and small changes to plans. Everything that is kept was
 * proved for this world. */

#include "search.h"

#include "algo/algo.h"
#include "verify/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOCAL_RANKS = 8, COMPOSED_RANKS = 256, COMPOSED_STEPS = 1 << 18 };

struct search_plan {               /* an algorithm that is a plan */
    struct tutti_schedule_ops ops; /* first: the plan is found from it */
    struct tutti_plan plan;
    struct tutti_algorithm algorithm;
};

static const struct tutti_plan *plan_of(const struct tutti_schedule_ops *ops, const struct tutti_shape *shape)
{
    (void)shape;
    return &((const struct search_plan *)(const void *)ops)->plan;
}

const struct tutti_plan *search_plan_of(const struct search_entry *entry)
{
    return entry->planned ? &entry->planned->plan : NULL;
}

static void planned_destroy(struct search_plan *planned)
{
    if (planned) tutti_plan_fini(&planned->plan);
    tutti_free(planned);
}

void search_fini(struct search *search)
{
    for (size_t i = 0; i < search->n; i++) planned_destroy(search->entries[i].planned);
    tutti_free(search->entries);
    search->entries = NULL, search->n = 0;
}

static struct search_plan *planned_create(enum tutti_kind kind, uint32_t n_slots, uint32_t n_chunks, uint32_t n_scratch)
{
    struct search_plan *planned = tutti_alloc(sizeof *planned);
    if (!planned) return NULL;
    /* What a loaded plan claims, too: see the form .plan of src/load. */
    planned->ops =
        (struct tutti_schedule_ops){.needs = TUTTI_NEEDS_COMMUTATIVE | TUTTI_NEEDS_EQUAL_BLOCKS, .plan = plan_of};
    planned->algorithm.name = "found";
    planned->algorithm.kinds[kind] = &planned->ops;
    if (tutti_plan_init(&planned->plan, kind, n_slots, n_chunks, n_scratch) >= 0) return planned;
    planned_destroy(planned);
    return NULL;
}

/* ---- entries ---- */

static int by_time(const void *a, const void *b)
{
    const struct search_entry *x = a, *y = b;
    if (x->ps != y->ps) return x->ps < y->ps ? -1 : 1;
    if (!x->planned != !y->planned) return x->planned ? 1 : -1; /* where both are as fast, the table's */
    return strcmp(x->label, y->label);
}

void search_sort(struct search *search)
{
    if (search->n > 1) qsort(search->entries, search->n, sizeof *search->entries, by_time);
}

/* Proves, times and keeps one; its plan is the search's then, or destroyed. */
static enum tutti_status keep(struct search *search, struct search_entry *entry, uint64_t most_ps, bool *kept)
{
    struct tutti_verdict verdict;
    *kept = false;
    search->n_tried++;
    TUTTI_TRY(tutti_verify(entry->algorithm, search->kind, &entry->shape, &verdict));
    search->n_refused += !verdict.ok;
    if (verdict.ok) entry->ps = search->time(search->argument, entry);
    if (!verdict.ok || entry->ps >= most_ps) {
        planned_destroy(entry->planned);
        return TUTTI_OK;
    }
    if (search->n == search->capacity) {
        const size_t capacity = search->capacity ? 2 * search->capacity : 64;
        struct search_entry *grown = tutti_alloc_array(capacity, sizeof *grown);
        if (!grown) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a search");
        if (search->n > 0) memcpy(grown, search->entries, search->n * sizeof *grown);
        tutti_free(search->entries);
        search->entries = grown, search->capacity = capacity;
    }
    search->entries[search->n++] = *entry;
    *kept = true;
    return TUTTI_OK;
}

/* ---- the table ---- */

enum tutti_status search_table(struct search *search, uint64_t slice_bytes)
{
    static const uint32_t radices[] = {0, 1, 2, 3, 4, 6, 8, 16, 32};
    for (size_t i = 0; i < tutti_n_algorithms; i++) {
        const struct tutti_schedule_ops *ops = tutti_algorithms[i]->kinds[search->kind];
        for (size_t j = 0; ops && j < TUTTI_ARRAY_LEN(radices); j++) {
            struct search_entry entry = {
                .algorithm = tutti_algorithms[i], .shape = search->world, .slice_bytes = slice_bytes};
            const uint32_t radix = radices[j];
            bool kept;
            if (radix > search->world.size || (radix && radix == ops->default_radix)) continue;
            if (!(ops->needs & TUTTI_NEEDS_LEVELS)) entry.shape.n_levels = 0;
            entry.shape.radix = radix;
            if (!tutti_algorithm_fits(entry.algorithm, search->kind, &entry.shape, NULL, 0)) continue;
            snprintf(entry.label, sizeof entry.label, radix ? "%s:%u" : "%s", entry.algorithm->name, radix);
            TUTTI_TRY(keep(search, &entry, TUTTI_NEVER, &kept));
        }
    }
    return TUTTI_OK;
}

/* ---- compositions ---- */

/* One stage of a composition: an algorithm on the slots base + i * stride for i < size, whose chunk c is chunks
 * chunk + c * width, ... of the whole. */
struct stage {
    const struct tutti_algorithm *algorithm;
    enum tutti_kind kind;
    uint32_t base, stride, size, place; /* place: of the slot in it */
    uint32_t chunk, n_chunks;           /* all that it is given */
};

static uint32_t chunks_of(const struct tutti_algorithm *algorithm, enum tutti_kind kind, uint32_t size)
{
    struct tutti_rounds rounds = {0};
    const struct tutti_shape shape = {.size = size};
    uint32_t n = 0;
    if (tutti_algorithm_fits(algorithm, kind, &shape, NULL, 0) &&
        tutti_schedule_rounds(algorithm, kind, &shape, 0, 0, &rounds) >= 0)
        n = rounds.n_chunks;
    tutti_rounds_fini(&rounds);
    return n;
}

static uint32_t scratch_of(const struct stage *stage, uint32_t width)
{
    struct tutti_rounds rounds = {0};
    const struct tutti_shape shape = {.size = stage->size};
    tutti_schedule_rounds(stage->algorithm, stage->kind, &shape, 0, UINT32_MAX, &rounds);
    const uint32_t n = rounds.n_scratch * width;
    tutti_rounds_fini(&rounds);
    return n;
}

static uint32_t place_of(uint8_t buffer, const struct stage *stage, uint32_t width, uint32_t chunk)
{
    return (buffer == TUTTI_DATA ? stage->chunk : 0) + chunk * width;
}

/* Adds what the stage's slot does, in rounds from `round` on; the next free round goes to *round. */
static enum tutti_status stage_add(const struct stage *stage, uint32_t slot, uint32_t *round, struct tutti_plan *plan)
{
    struct tutti_rounds rounds = {0};
    const struct tutti_shape shape = {.slot = stage->place, .size = stage->size};
    enum tutti_status status = tutti_schedule_rounds(stage->algorithm, stage->kind, &shape, 0, UINT32_MAX, &rounds);
    const uint32_t width = rounds.n_chunks ? stage->n_chunks / rounds.n_chunks : 1;
    for (uint32_t i = 0; i < rounds.n && status >= 0; i++) {
        const struct tutti_step *step = &rounds.steps[i];
        const struct tutti_plan_step add = {.op = step->op,
                                            .dst_buffer = step->dst_buffer,
                                            .src_buffer = step->src_buffer,
                                            .side = step->flags & TUTTI_STEP_LEFT ? TUTTI_LEFT : TUTTI_RIGHT,
                                            .slot = slot,
                                            .round = *round + step->round,
                                            .peer = stage->base + step->peer * stage->stride,
                                            .dst = place_of(step->dst_buffer, stage, width, step->dst),
                                            .src = place_of(step->src_buffer, stage, width, step->src),
                                            .n = step->n * width};
        status = tutti_plan_add(plan, &add);
    }
    *round += rounds.n_rounds;
    tutti_rounds_fini(&rounds);
    return status;
}

/* Slots are in groups of g that follow one another. */
static enum tutti_status compose(const struct search *search, const struct tutti_algorithm *const *parts, uint32_t g,
                                 struct search_plan **out)
{
    const uint32_t n = search->world.size, m = n / g;
    const uint32_t a = chunks_of(parts[0], TUTTI_REDUCE_SCATTER, g), b = chunks_of(parts[1], TUTTI_ALL_REDUCE, m);
    const uint32_t c = chunks_of(parts[2], TUTTI_ALL_GATHER, g);
    *out = NULL;
    if (!a || !b || !c) return TUTTI_OK;
    uint32_t n_chunks = g * b;
    while (n_chunks % a || n_chunks % c) n_chunks += g * b;
    const uint32_t own = n_chunks / g;
    if ((uint64_t)n * n_chunks > COMPOSED_STEPS) return TUTTI_OK;
    const struct stage first = {parts[0], TUTTI_REDUCE_SCATTER, 0, 1, g, 0, 0, n_chunks};
    const struct stage second = {parts[1], TUTTI_ALL_REDUCE, 0, g, m, 0, 0, own};
    const uint32_t s1 = scratch_of(&first, n_chunks / a), s2 = scratch_of(&second, own / b);
    *out = planned_create(search->kind, n, n_chunks, s1 > s2 ? s1 : s2);
    if (!*out) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a plan");
    for (uint32_t slot = 0; slot < n; slot++) {
        const uint32_t node = slot / g, local = slot % g;
        const struct stage stages[] = {
            {parts[0], TUTTI_REDUCE_SCATTER, node * g, 1, g, local, 0, n_chunks},
            {parts[1], TUTTI_ALL_REDUCE, local, g, m, node, local * own, own},
            {parts[2], TUTTI_ALL_GATHER, node * g, 1, g, local, 0, n_chunks},
        };
        uint32_t round = 0;
        for (size_t i = 0; i < TUTTI_ARRAY_LEN(stages); i++)
            TUTTI_TRY(stage_add(&stages[i], slot, &round, &(*out)->plan));
    }
    return tutti_plan_seal(&(*out)->plan);
}

/* Size of the groups of the lowest level, where all are equal; 0: they are not. */
static uint32_t group_of(const struct tutti_shape *world)
{
    const struct tutti_level *level = &world->levels[0];
    if (world->n_levels == 0 || level->n_runs != 1 || level->runs[0].repeat < 2) return 0;
    return level->runs[0].size > 1 ? level->runs[0].size : 0;
}

enum tutti_status search_composed(struct search *search, uint64_t slice_bytes)
{
    const uint32_t g = group_of(&search->world);
    const size_t n = tutti_n_algorithms;
    if (search->kind != TUTTI_ALL_REDUCE || g == 0 || search->world.size > COMPOSED_RANKS) return TUTTI_OK;
    for (size_t i = 0; i < n * n * n; i++) {
        const struct tutti_algorithm *const parts[] = {tutti_algorithms[i / n / n], tutti_algorithms[i / n % n],
                                                       tutti_algorithms[i % n]};
        struct search_entry entry = {.shape.size = search->world.size, .slice_bytes = slice_bytes};
        bool kept;
        TUTTI_TRY(compose(search, parts, g, &entry.planned));
        if (!entry.planned) continue;
        entry.algorithm = &entry.planned->algorithm;
        snprintf(entry.label, sizeof entry.label, "%s / %s / %s", parts[0]->name, parts[1]->name, parts[2]->name);
        TUTTI_TRY(keep(search, &entry, TUTTI_NEVER, &kept));
    }
    return TUTTI_OK;
}

/* ---- small changes ---- */

/* The steps of an algorithm as a plan. */
static enum tutti_status plan_make(const struct search *search, const struct search_entry *from,
                                   struct search_plan **out)
{
    const struct stage stage = {from->algorithm, search->kind, 0, 1, search->world.size, 0, 0, 0};
    struct tutti_rounds rounds = {0};
    enum tutti_status status = TUTTI_OK;
    *out = NULL;
    for (uint32_t slot = 0; slot < search->world.size && status >= 0; slot++) {
        struct tutti_shape shape = from->shape;
        shape.slot = slot;
        status = tutti_schedule_rounds(from->algorithm, search->kind, &shape, 0, UINT32_MAX, &rounds);
        if (status >= 0 && !*out) *out = planned_create(search->kind, stage.size, rounds.n_chunks, rounds.n_scratch);
        if (!*out) status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for a plan");
        if (status >= 0 && rounds.n_scratch > (*out)->plan.n_scratch) (*out)->plan.n_scratch = rounds.n_scratch;
        for (uint32_t i = 0; i < rounds.n && status >= 0; i++) {
            const struct tutti_step *step = &rounds.steps[i];
            const struct tutti_plan_step add = {.op = step->op,
                                                .dst_buffer = step->dst_buffer,
                                                .src_buffer = step->src_buffer,
                                                .side = step->flags & TUTTI_STEP_LEFT ? TUTTI_LEFT : TUTTI_RIGHT,
                                                .slot = slot,
                                                .round = step->round,
                                                .peer = step->peer,
                                                .dst = step->dst,
                                                .src = step->src,
                                                .n = step->n};
            status = tutti_plan_add(&(*out)->plan, &add);
        }
    }
    if (status >= 0) status = tutti_plan_seal(&(*out)->plan);
    tutti_rounds_fini(&rounds);
    return status;
}

static enum tutti_status plan_copy(const struct tutti_plan *from, struct search_plan **out)
{
    *out = planned_create(from->kind, from->n_slots, from->n_chunks, from->n_scratch);
    if (!*out) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a plan");
    for (uint32_t i = 0; i < from->n_steps; i++) TUTTI_TRY(tutti_plan_add(&(*out)->plan, &from->steps[i]));
    return tutti_plan_seal(&(*out)->plan);
}

/* Two steps of a slot exchange places; rounds stay where they are. */
static void swap(struct tutti_plan_step *a, struct tutti_plan_step *b)
{
    const struct tutti_plan_step step = *a;
    const uint32_t round_a = a->round, round_b = b->round;
    *a = *b, *b = step;
    a->round = round_a, b->round = round_b;
}

/* A step moves some places in its slot. */
static void move_step(struct tutti_plan *plan, uint64_t *state)
{
    const uint32_t slot = (uint32_t)(tutti_random64(state) % plan->n_slots);
    const uint32_t first = plan->first[slot], n = plan->first[slot + 1] - first;
    if (n < 2) return;
    uint32_t from = first + (uint32_t)(tutti_random64(state) % n);
    const uint32_t to = first + (uint32_t)(tutti_random64(state) % n);
    for (; from < to; from++) swap(&plan->steps[from], &plan->steps[from + 1]);
    for (; from > to; from--) swap(&plan->steps[from], &plan->steps[from - 1]);
}

/* Two ranks do what the other did, where ranks are alike. */
static void relabel(struct tutti_plan *plan, uint64_t *state)
{
    const uint32_t n = plan->n_slots, a = (uint32_t)(tutti_random64(state) % n),
                   b = (uint32_t)(tutti_random64(state) % n);
    if (tutti_kind_info(plan->kind)->block_a_slot || tutti_kind_info(plan->kind)->rooted) return;
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        struct tutti_plan_step *step = &plan->steps[i];
        step->peer = step->peer == a ? b : step->peer == b ? a : step->peer;
        step->slot = step->slot == a ? b : step->slot == b ? a : step->slot;
    }
    tutti_plan_seal(plan);
}

/* Two chunks exchange names, at all ranks: what goes first goes later. */
static void rename_chunks(struct tutti_plan *plan, uint64_t *state)
{
    const uint32_t n = plan->n_chunks, a = (uint32_t)(tutti_random64(state) % n),
                   b = (uint32_t)(tutti_random64(state) % n);
    if (tutti_kind_info(plan->kind)->block_a_slot) return;
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        struct tutti_plan_step *step = &plan->steps[i];
        if (step->n != 1) continue;
        if (step->dst_buffer == TUTTI_DATA) step->dst = step->dst == a ? b : step->dst == b ? a : step->dst;
        if (step->src_buffer == TUTTI_DATA) step->src = step->src == a ? b : step->src == b ? a : step->src;
    }
}

static void mutate(struct tutti_plan *plan, uint64_t *state)
{
    const uint64_t n = 1 + tutti_random64(state) % 3;
    for (uint64_t k = 0; k < n; k++) {
        const uint64_t what = tutti_random64(state) % 8;
        if (what == 0)
            relabel(plan, state);
        else if (what == 1)
            rename_chunks(plan, state);
        else
            move_step(plan, state);
    }
}

/* One more plan from one that is there, kept when it is faster. */
static enum tutti_status step_on(struct search *search, size_t at, uint64_t *state)
{
    const struct search_entry best = search->entries[at];
    struct search_entry entry = {.shape.size = search->world.size, .slice_bytes = best.slice_bytes};
    struct search_plan *from = best.planned;
    bool kept;
    if (!from) TUTTI_TRY(plan_make(search, &best, &from));
    const enum tutti_status status = plan_copy(&from->plan, &entry.planned);
    if (from != best.planned) planned_destroy(from);
    TUTTI_TRY(status);
    mutate(&entry.planned->plan, state);
    entry.algorithm = &entry.planned->algorithm;
    const bool altered = strchr(best.label, '*');
    snprintf(entry.label, sizeof entry.label, "%.90s%s", best.label, altered ? "" : " *");
    TUTTI_TRY(keep(search, &entry, best.ps - best.ps / 2000, &kept)); /* less is not worth a file */
    if (!kept || !altered) return TUTTI_OK;
    planned_destroy(best.planned); /* the new one stands for it */
    search->entries[at] = search->entries[--search->n];
    return TUTTI_OK;
}

enum tutti_status search_local(struct search *search, uint64_t deadline_ns)
{
    enum { STARTS = 4 };
    uint64_t state = search->seed;
    if (search->world.size > LOCAL_RANKS || search->world.size < 2) return TUTTI_OK;
    for (uint32_t k = 0; tutti_now_ns() < deadline_ns; k++) {
        if (k % 64 == 0) search_sort(search);
        const size_t n = search->n < STARTS ? search->n : STARTS;
        if (n == 0) return TUTTI_OK;
        TUTTI_TRY(step_on(search, (size_t)(tutti_random64(&state) % n), &state));
    }
    search_sort(search);
    return TUTTI_OK;
}
