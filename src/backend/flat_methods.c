/* SPDX-License-Identifier: BSD-3-Clause */
/* The one table of methods, and the choice among those that need nothing of the buffers: the cheapest, or the one that
 * is forced where it fits. */
#include "backend/flat.h"

#include <math.h>

#define FLAT_METHODS(X)                                                                                                \
    X(line_all_reduce)                                                                                                 \
    X(line_barrier)                                                                                                    \
    X(stage_all_reduce)                                                                                                \
    X(mapped_all_reduce)

#define DECLARE(name) extern const struct flat_method flat_##name;
FLAT_METHODS(DECLARE)
#define ENTRY(name) &flat_##name,
const struct flat_method *const flat_methods[] = {FLAT_METHODS(ENTRY)};
const size_t flat_n_methods = TUTTI_ARRAY_LEN(flat_methods);

const struct flat_method *flat_choose(const struct flat_lane *lane, const struct tutti_backend_call *call,
                                      double *cost_ns)
{
    const struct flat_method *best = NULL;
    double least = HUGE_VAL;

    const char *wanted = call->method ? call->method : lane->forced;
    for (size_t i = 0; i < flat_n_methods; i++) {
        const struct flat_method *m = flat_methods[i];
        if (m->kind != call->info.kind || m->needs || !m->fits(lane, call)) continue;
        bool forced = strcmp(m->name, wanted) == 0;
        double ns = forced ? 0 : m->cost_ns(lane, call);
        if (best && ns >= least) continue;
        best = m, least = ns;
    }
    if (cost_ns) *cost_ns = least;
    return best;
}

void flat_choose_plain(struct flat_lane *lane)
{
    for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++) {
        for (uint32_t c = 0; c < FLAT_SIZE_CLASSES; c++) {
            struct tutti_backend_call call = {.bind = {.count = flat_size_least(c), .dtype = TUTTI_UINT8},
                                              .info = {.kind = (enum tutti_kind)kind, .dtype = TUTTI_UINT8},
                                              .commutative = true};
            lane->plain[kind][c] = flat_choose(lane, &call, NULL);
        }
    }
}
