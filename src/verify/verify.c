/* SPDX-License-Identifier: BSD-3-Clause */
/* The checker's two doors: a bundle of sealed schedules, and an algorithm whose schedules it seals itself. What is
 * proved and how stands with each check; bundle.h has their order. */

#include "verify/column.h"

#include <stdio.h>
#include <string.h>

typedef enum tutti_status (*check_function)(struct tutti_bundle *bundle);

static enum tutti_status bundle_check(struct tutti_bundle *bundle)
{
    static const struct {
        check_function check;
        enum tutti_finding finding;
    } checks[] = {{tutti_bundle_check_steps, TUTTI_FOUND_STEP},     {tutti_bundle_match, TUTTI_FOUND_UNMATCHED},
                  {tutti_bundle_check_hazards, TUTTI_FOUND_HAZARD}, {tutti_bundle_check_deadlock, TUTTI_FOUND_DEADLOCK},
                  {tutti_bundle_check_values, TUTTI_FOUND_CONTENT}, {tutti_bundle_check_barrier, TUTTI_FOUND_BARRIER}};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(checks) && bundle->verdict->ok; i++) {
        bundle->finding = checks[i].finding;
        TUTTI_TRY(checks[i].check(bundle));
    }
    return TUTTI_OK;
}

static void count_steps(const struct tutti_bundle *bundle)
{
    for (uint32_t s = 0; s < bundle->n; s++) {
        const struct tutti_schedule *schedule = bundle->schedules[s];
        bundle->verdict->n_steps += schedule->n_steps;
        for (uint32_t i = 0; i < schedule->n_steps; i++)
            bundle->verdict->n_messages += tutti_step_sends(&schedule->steps[i]);
    }
}

/* sampled: as in struct tutti_bundle. */
static enum tutti_status verify_bundle(const struct tutti_schedule *const *schedules, uint32_t n, uint32_t sampled,
                                       struct tutti_verdict *verdict)
{
    struct tutti_bundle bundle = {0};
    enum tutti_status status;
    *verdict = (struct tutti_verdict){.ok = n > 0};
    if (n == 0) return tutti_fail(TUTTI_ERR_ARGUMENT, "a bundle of no schedules can not be checked");
    TUTTI_TRY_GOTO(status, tutti_bundle_init(&bundle, schedules, n, verdict), err_bundle);
    bundle.sampled = sampled;
    if (verdict->ok) status = bundle_check(&bundle);
    count_steps(&bundle);
err_bundle:
    tutti_bundle_fini(&bundle);
    if (status < 0) verdict->ok = false;
    return status;
}

enum tutti_status tutti_verify_bundle(const struct tutti_schedule *const *schedules, uint32_t n,
                                      struct tutti_verdict *verdict)
{
    return verify_bundle(schedules, n, 0, verdict);
}

/* A round must give the same steps whenever it is asked for: no state, no clock, no chance (S7, S10). */
static enum tutti_status check_pure(const struct tutti_schedule *const *schedules, uint32_t slot,
                                    struct tutti_verdict *verdict)
{
    const struct tutti_schedule *first = schedules[slot];
    struct tutti_schedule *again;
    TUTTI_TRY(tutti_schedule_seal(first->algorithm, first->kind, &first->shape, true, &again));
    const uint32_t n = first->n_steps < again->n_steps ? first->n_steps : again->n_steps;
    uint32_t step = 0;
    while (step < n && memcmp(&first->steps[step], &again->steps[step], sizeof *first->steps) == 0) step++;
    const bool same = step == first->n_steps && step == again->n_steps && first->n_chunks == again->n_chunks &&
                      first->n_scratch == again->n_scratch && !again->defect;
    if (!same) {
        const struct tutti_bundle bundle = {.schedules = schedules,
                                            .n = first->shape.size,
                                            .info = tutti_kind_info(first->kind),
                                            .shape = &first->shape,
                                            .finding = TUTTI_FOUND_IMPURE,
                                            .verdict = verdict};
        tutti_bundle_refuse(
            &bundle, slot, step < first->n_steps ? step : TUTTI_NO_INDEX,
            "is other when the same rounds are asked for a second time: a round must be a pure function "
            "of the shape");
    }
    tutti_schedule_destroy(again);
    return TUTTI_OK;
}

enum tutti_status tutti_seal_all(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                 const struct tutti_shape *shape, bool expand, struct tutti_schedule **schedules)
{
    for (uint32_t s = 0; s < shape->size; s++) {
        struct tutti_shape own = *shape;
        own.slot = s;
        TUTTI_TRY(tutti_schedule_seal(algorithm, kind, &own, expand, &schedules[s]));
    }
    return TUTTI_OK;
}

enum tutti_status tutti_verify(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                               const struct tutti_shape *shape, struct tutti_verdict *verdict)
{
    /* Slots that are sealed once more, after all others: all where it costs little. */
    enum { SMALL = 12, AGAIN = 3 };
    const uint32_t n_again = shape->size <= SMALL ? shape->size : AGAIN;
    struct tutti_schedule **schedules = tutti_alloc_array(shape->size, sizeof(struct tutti_schedule *));
    enum tutti_status status;
    *verdict = (struct tutti_verdict){.ok = false};
    if (!schedules) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to check %u ranks", shape->size);
    const struct tutti_schedule *const *sealed = (const struct tutti_schedule *const *)schedules;
    TUTTI_TRY_GOTO(status, tutti_seal_all(algorithm, kind, shape, true, schedules), err_schedules);
    TUTTI_TRY_GOTO(status, tutti_verify_bundle(sealed, shape->size, verdict), err_schedules);
    for (uint32_t k = 0; k < n_again && verdict->ok; k++) {
        const uint32_t stride = n_again == shape->size ? 1 : shape->size / AGAIN + 1;
        const uint32_t slot = (shape->root + k * stride) % shape->size;
        TUTTI_TRY_GOTO(status, check_pure(sealed, slot, verdict), err_schedules);
    }
err_schedules:
    if (status < 0) verdict->ok = false; /* not refused, but not proved */
    for (uint32_t s = 0; s < shape->size; s++) tutti_schedule_destroy(schedules[s]);
    tutti_free(schedules);
    return status;
}

enum tutti_status tutti_verify_estimate(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                        const struct tutti_shape *shape, uint64_t *n_steps, bool *too_wide)
{
    const uint32_t slots[] = {0, 1 % shape->size, shape->root, shape->size / 2, shape->size - 1};
    struct tutti_rounds rounds = {0};
    enum tutti_status status = TUTTI_OK;
    *n_steps = 0, *too_wide = false;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(slots) && status >= 0; i++) {
        struct tutti_shape own = *shape;
        own.slot = slots[i];
        status = tutti_schedule_rounds(algorithm, kind, &own, 0, UINT32_MAX, &rounds);
        const bool rare = i == 2 && tutti_kind_info(kind)->rooted; /* the root counts once */
        if (!rare && rounds.n * (uint64_t)shape->size > *n_steps) *n_steps = rounds.n * (uint64_t)shape->size;
        if (rare) *n_steps += rounds.n;
        if (((uint64_t)rounds.n_chunks + rounds.n_scratch) * shape->size > TUTTI_MOST_CELLS) *too_wide = true;
    }
    if (kind == TUTTI_BARRIER && shape->size > 4096) *too_wide = true; /* sets of ranks, for each step */
    tutti_rounds_fini(&rounds);
    return status;
}

/* All steps of all ranks, and the contents of some columns. */
static enum tutti_status sample_sealed(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                       const struct tutti_shape *shape, const struct tutti_sampling *sampling,
                                       struct tutti_verdict *verdict, struct tutti_coverage *coverage)
{
    enum { PASSES = 1 };
    struct tutti_schedule **schedules = tutti_alloc_array(shape->size, sizeof(struct tutti_schedule *));
    struct tutti_supply supply = {0};
    enum tutti_status status;
    if (!schedules) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to check %u ranks", shape->size);
    const struct tutti_schedule *const *sealed = (const struct tutti_schedule *const *)schedules;
    TUTTI_TRY_GOTO(status, tutti_seal_all(algorithm, kind, shape, true, schedules), err_schedules);
    TUTTI_TRY_GOTO(status, verify_bundle(sealed, shape->size, PASSES, verdict), err_schedules);
    coverage->all_steps = true;
    if (!verdict->ok || kind == TUTTI_BARRIER) goto err_schedules;
    TUTTI_TRY_GOTO(status, tutti_supply_init(&supply, algorithm, kind, shape, sealed), err_schedules);
    status = tutti_verify_columns(&supply, sampling->n_columns, sampling->most_work, verdict, coverage);
    tutti_supply_fini(&supply);
err_schedules:
    for (uint32_t s = 0; s < shape->size; s++) tutti_schedule_destroy(schedules[s]);
    tutti_free(schedules);
    return status;
}

enum tutti_status tutti_verify_sample(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                      const struct tutti_shape *shape, const struct tutti_sampling *sampling,
                                      struct tutti_verdict *verdict, struct tutti_coverage *coverage)
{
    const uint64_t most_of_barrier = UINT64_C(24) << 20; /* it has no columns: all steps are checked, or none */
    const uint64_t most_for_one = UINT64_C(1) << 30;     /* half a minute */
    struct tutti_supply supply = {0};
    uint64_t n_steps;
    bool too_wide;
    enum tutti_status status;
    *verdict = (struct tutti_verdict){.ok = true};
    *coverage = (struct tutti_coverage){0};
    TUTTI_TRY_GOTO(status, tutti_verify_estimate(algorithm, kind, shape, &n_steps, &too_wide), err_verdict);
    const uint64_t most_sealed = kind == TUTTI_BARRIER ? most_of_barrier : sampling->most_sealed;
    if (n_steps <= most_sealed) {
        status = sample_sealed(algorithm, kind, shape, sampling, verdict, coverage);
        goto err_verdict;
    }
    if (kind == TUTTI_BARRIER) {
        status = tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s barrier of %u ranks has some %.3g steps, and no part to prove",
                            algorithm->name, shape->size, (double)n_steps);
        goto err_verdict;
    }
    TUTTI_TRY_GOTO(status, tutti_supply_init(&supply, algorithm, kind, shape, NULL), err_blocks);
    supply.for_one = 2 * n_steps < most_for_one ? 2 * n_steps : most_for_one;
    status = tutti_verify_columns(&supply, sampling->n_columns, sampling->most_work, verdict, coverage);
err_blocks:
    if (supply.defect[0]) {
        *verdict = (struct tutti_verdict){
            .ok = false, .finding = TUTTI_FOUND_EMITTED, .rank = TUTTI_NO_INDEX, .step = TUTTI_NO_INDEX};
        memcpy(verdict->text, supply.defect, sizeof verdict->text);
        status = TUTTI_OK;
    }
    tutti_supply_fini(&supply);
    verdict->n_steps = coverage->n_steps, verdict->n_messages = coverage->n_messages;
err_verdict:
    if (status < 0) verdict->ok = false;
    return status;
}
