/* SPDX-License-Identifier: BSD-3-Clause */
/* The one table of methods and the choice among them: the cheapest, or the one that is forced where it fits. */
#include "backend/gpu/gpu_plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const struct gpu_method *const gpu_methods[] = {&gpu_alone, &gpu_lines,  &gpu_sentinel, &gpu_sentinel2, &gpu_sentinels,
                                                &gpu_tiles, &gpu_tiles2, &gpu_relay,    &gpu_direct,    &gpu_engines};
const size_t gpu_n_methods = TUTTI_ARRAY_LEN(gpu_methods);

/* "batch": calls of a group as one, wherever that can be done. */
static enum tutti_status method_check(const char *method)
{
    char names[200] = "batch";
    size_t at = strlen(names);
    if (!method[0] || strcmp(method, names) == 0) return TUTTI_OK;
    for (size_t i = 0; i < gpu_n_methods; i++) {
        if (strcmp(method, gpu_methods[i]->name) == 0) return TUTTI_OK;
        at += (size_t)snprintf(names + at, sizeof names - at, ", %s", gpu_methods[i]->name);
    }
    return tutti_fail(TUTTI_ERR_ARGUMENT, "option gpu_method is \"%s\" but can be %s", method, names);
}

enum tutti_status gpu_options_check(const struct tutti_config *options)
{
    TUTTI_TRY(method_check(options->text[TUTTI_OPT_gpu_method]));
    return gpu_tuning_check(options->text[TUTTI_OPT_gpu_tuning]);
}

/* User-defined operations run on hosts; a barrier moves nothing and is the engine's. */
static bool serves(const struct tutti_backend_call *call)
{
    return call->info.kind != TUTTI_BARRIER && !call->bind.user && !call->within && call->info.op < TUTTI_N_OPS;
}

const struct gpu_method *gpu_choose(const struct gpu_site *site, const struct tutti_backend_call *call,
                                    const char *wanted, double *ns)
{
    const struct gpu_method *best = NULL;
    double least = HUGE_VAL;
    for (size_t i = 0; i < gpu_n_methods && serves(call); i++) {
        const struct gpu_method *m = gpu_methods[i];
        if (!m->fits(site, call)) continue;
        bool forced = wanted[0] && strcmp(m->name, wanted) == 0;
        double cost = forced ? 0 : m->cost_ns(site, call);
        if (best && cost >= least) continue;
        best = m, least = cost;
    }
    if (ns) *ns = best && least == 0 ? best->cost_ns(site, call) : least;
    return best;
}

/* A block takes an SM; copies take none. */
static uint32_t sms_of(const struct gpu_method *method, const struct gpu_site *site,
                       const struct tutti_backend_call *call)
{
    struct gpu_step step = {.act = GPU_LAUNCH};
    uint32_t most = 0;
    for (uint32_t i = 0; method->step(site, call, i, &step); i++) {
        const uint32_t blocks = step.act == GPU_LAUNCH ? step.blocks : step.act == GPU_MEET;
        if (blocks > most) most = blocks;
    }
    return most;
}

size_t gpu_candidates(const struct gpu_site *site, const struct tutti_backend_call *call, const char *wanted,
                      struct tutti_backend_candidate *out, size_t capacity)
{
    const struct gpu_method *chosen = gpu_choose(site, call, wanted, NULL);
    size_t n = 0;
    for (size_t i = 0; i < gpu_n_methods && n < capacity && chosen; i++) {
        const struct gpu_method *m = gpu_methods[i];
        if (!m->fits(site, call)) continue;
        out[n++] =
            (struct tutti_backend_candidate){m->name, m->cost_ns(site, call), m == chosen, sms_of(m, site, call)};
    }
    return n;
}
