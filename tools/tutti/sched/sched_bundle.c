/* SPDX-License-Identifier: BSD-3-Clause */
/* The schedules of all slots, for drawings; and how chunks are named in them. */

#include "sched.h"

#include "verify/verify.h"

#include <stdio.h>

enum tutti_status sched_bundle_seal(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                    const struct tutti_shape *shape, bool expand, struct sched_bundle *out)
{
    out->n = shape->size;
    out->slots = tutti_alloc_array(shape->size, sizeof(struct tutti_schedule *));
    if (!out->slots) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %u ranks", shape->size);
    const enum tutti_status status = tutti_seal_all(algorithm, kind, shape, expand, out->slots);
    if (status < 0) sched_bundle_free(out);
    return status;
}

void sched_bundle_free(struct sched_bundle *bundle)
{
    for (uint32_t s = 0; bundle->slots && s < bundle->n; s++) tutti_schedule_destroy(bundle->slots[s]);
    tutti_free(bundle->slots);
    bundle->slots = NULL;
}

const struct tutti_step *sched_bundle_message(const struct sched_bundle *bundle, uint32_t slot, bool sends,
                                              uint32_t peer, uint32_t fifo)
{
    const struct tutti_schedule *schedule = bundle->slots[slot];
    for (uint32_t i = 0; i < schedule->n_steps; i++) {
        const struct tutti_step *step = &schedule->steps[i];
        if ((sends ? tutti_step_sends(step) : tutti_step_receives(step)) && step->peer == peer && step->fifo == fifo)
            return step;
    }
    return NULL;
}

void sched_chunks_label(uint8_t buffer, uint32_t chunk, uint32_t n, char *out, size_t capacity)
{
    static const char *const prefix[] = {[TUTTI_DATA] = "", [TUTTI_SCRATCH] = "s", [TUTTI_IN] = "i"};
    if (n == 1) snprintf(out, capacity, "%s%u", prefix[buffer], chunk);
    if (n != 1) snprintf(out, capacity, "%s%u-%u", prefix[buffer], chunk, chunk + n - 1);
}
