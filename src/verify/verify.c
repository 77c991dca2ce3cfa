/* SPDX-License-Identifier: BSD-3-Clause */
/* The checker's two doors: a bundle of sealed schedules, and an algorithm whose schedules it seals itself. What is
 * proved and how stands with each check; bundle.h has their order. */

#include "verify/bundle.h"

#include <stdio.h>
#include <string.h>

typedef enum tutti_status (*check_function)(struct tutti_bundle *bundle);

static enum tutti_status bundle_check(struct tutti_bundle *bundle)
{
    static const check_function checks[] = {
        tutti_bundle_check_steps,    tutti_bundle_match,        tutti_bundle_check_hazards,
        tutti_bundle_check_deadlock, tutti_bundle_check_values, tutti_bundle_check_barrier,
    };
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(checks) && bundle->verdict->ok; i++) TUTTI_TRY(checks[i](bundle));
    return TUTTI_OK;
}

enum tutti_status tutti_verify_bundle(const struct tutti_schedule *const *schedules, uint32_t n,
                                      struct tutti_verdict *verdict)
{
    struct tutti_bundle bundle = {0};
    enum tutti_status status;
    *verdict = (struct tutti_verdict){.ok = n > 0};
    if (n == 0) return tutti_fail(TUTTI_ERR_ARGUMENT, "a bundle of no schedules can not be checked");
    TUTTI_TRY_GOTO(status, tutti_bundle_init(&bundle, schedules, n, verdict), err_bundle);
    if (verdict->ok) status = bundle_check(&bundle);
err_bundle:
    tutti_bundle_fini(&bundle);
    if (status < 0) verdict->ok = false;
    return status;
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
