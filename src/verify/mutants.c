/* SPDX-License-Identifier: BSD-3-Clause */
/* The run of mutants: for each algorithm and kind a small world, right as it stands; for each rule some faults in it;
 * for each of these the checker's verdict and, where it accepts, the plain engine's. */

#include "verify/mutant_rules.h"

#include "sched/plan.h"
#include "verify/executor.h"

#include <stdio.h>
#include <string.h>

enum { RUNS = 48 };

/* An algorithm whose steps are a mutant's. */
struct mutant {
    struct tutti_schedule_ops ops; /* first: the plan is found from it */
    struct tutti_plan plan;
    struct tutti_algorithm algorithm;
    struct tutti_schedule *slots[TUTTI_MUTANT_RANKS];
};

static const struct tutti_plan *plan_of(const struct tutti_schedule_ops *ops, const struct tutti_shape *shape)
{
    (void)shape;
    return &((const struct mutant *)(const void *)ops)->plan;
}

static enum tutti_status plan_make(const struct tutti_mutant_book *book, struct tutti_plan *plan)
{
    TUTTI_TRY(tutti_plan_init(plan, book->kind, book->shape.size, book->n_chunks, book->n_scratch));
    for (uint32_t r = 0; r < book->shape.size; r++) {
        for (uint32_t i = 0; i < book->ranks[r].n; i++) {
            const struct tutti_step *step = &book->ranks[r].steps[i];
            const struct tutti_plan_step add = {.op = step->op,
                                                .dst_buffer = step->dst_buffer,
                                                .src_buffer = step->src_buffer,
                                                .side = step->flags & TUTTI_STEP_LEFT ? TUTTI_LEFT : TUTTI_RIGHT,
                                                .slot = r,
                                                .round = step->round,
                                                .peer = step->peer,
                                                .dst = step->dst,
                                                .src = step->src,
                                                .n = step->n};
            TUTTI_TRY(tutti_plan_add(plan, &add));
        }
    }
    return tutti_plan_seal(plan);
}

/* Seals the book's steps, as they are now. */
static enum tutti_status mutant_init(struct mutant *mutant, const struct tutti_mutant_book *book)
{
    const struct tutti_schedule_ops *base = book->algorithm->kinds[book->kind];
    const uint32_t about_shapes =
        TUTTI_NEEDS_POWER_OF_TWO | TUTTI_NEEDS_LEVELS | TUTTI_NEEDS_EQUAL_GROUPS | TUTTI_TAKES_RADIX;
    const struct tutti_shape shape = {.size = book->shape.size, .root = book->shape.root};
    *mutant = (struct mutant){.ops = {.needs = base->needs & ~about_shapes, .plan = plan_of}};
    mutant->algorithm.name = book->algorithm->name;
    mutant->algorithm.kinds[book->kind] = &mutant->ops;
    TUTTI_TRY(plan_make(book, &mutant->plan));
    return tutti_seal_all(&mutant->algorithm, book->kind, &shape, true, mutant->slots);
}

static void mutant_fini(struct mutant *mutant)
{
    for (uint32_t r = 0; r < TUTTI_MUTANT_RANKS; r++) tutti_schedule_destroy(mutant->slots[r]);
    tutti_plan_fini(&mutant->plan);
}

/* What becomes of a mutant. */
static enum tutti_status judge(const struct mutant *mutant, uint32_t n, uint32_t rule, uint64_t seed,
                               struct tutti_mutants *out)
{
    const struct tutti_schedule *const *slots = (const struct tutti_schedule *const *)mutant->slots;
    struct tutti_verdict verdict;
    bool right = true;
    char why[128] = "";
    out->rules[rule].n++;
    TUTTI_TRY(tutti_verify_bundle(slots, n, &verdict));
    if (!verdict.ok) {
        if (out->rules[rule].n_caught++ == 0) memcpy(out->rules[rule].caught, verdict.text, sizeof verdict.text);
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_execute(slots, n, RUNS, seed, &right, why, sizeof why));
    out->rules[rule].n_same += right;
    if (right || out->rules[rule].n_missed++ > 0) return TUTTI_OK;
    snprintf(out->rules[rule].missed, sizeof out->rules[rule].missed, "%s %s, size %u: %s", slots[0]->algorithm->name,
             tutti_kind_name(slots[0]->kind), n, why);
    return TUTTI_OK;
}

static enum tutti_status plant(struct tutti_mutant_book *book, uint32_t rule, struct tutti_mutants *out)
{
    struct mutant mutant = {0};
    enum tutti_status status;
    bool planted = true;
    TUTTI_TRY(tutti_mutant_book_write(book));
    if (!tutti_mutant_rule(rule)->sealed && !tutti_mutant_apply(book, rule)) return TUTTI_OK;
    TUTTI_TRY_GOTO(status, mutant_init(&mutant, book), err_mutant);
    book->sealed = mutant.slots;
    if (tutti_mutant_rule(rule)->sealed) planted = tutti_mutant_apply(book, rule);
    if (planted) status = judge(&mutant, book->shape.size, rule, book->random, out);
err_mutant:
    mutant_fini(&mutant);
    return status;
}

/* A small world that the algorithm fits; false: none. */
static bool world_of(const struct tutti_algorithm *algorithm, enum tutti_kind kind, struct tutti_shape *out)
{
    static const struct tutti_shape worlds[] = {
        {.size = 5},
        {.size = 5, .n_levels = 1, .levels = {{.n_runs = 2, .runs = {{3, 1}, {2, 1}}}}},
        {.size = 8},
    };
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(worlds); i++) {
        *out = worlds[i];
        out->root = tutti_kind_info(kind)->rooted ? 1 : 0;
        if (tutti_algorithm_fits(algorithm, kind, out, NULL, 0)) return true;
    }
    return false;
}

enum tutti_status tutti_mutants_run(const struct tutti_algorithm *const *algorithms, size_t n_algorithms,
                                    uint32_t n_sites, uint64_t seed, struct tutti_mutants *out)
{
    struct tutti_mutant_book book = {.random = seed};
    enum tutti_status status = TUTTI_OK;
    *out = (struct tutti_mutants){0};
    for (size_t i = 0; i < n_algorithms * TUTTI_N_KINDS && status >= 0; i++) {
        book.algorithm = algorithms[i / TUTTI_N_KINDS];
        book.kind = (enum tutti_kind)(i % TUTTI_N_KINDS);
        if (!book.algorithm->kinds[book.kind] || !world_of(book.algorithm, book.kind, &book.shape)) continue;
        out->n_pairs++;
        for (uint32_t k = 0; k < TUTTI_MUTANT_RULES * n_sites && status >= 0; k++)
            status = plant(&book, k / n_sites, out);
    }
    tutti_mutant_book_fini(&book);
    return status;
}
