/* SPDX-License-Identifier: BSD-3-Clause */
/* What happens when: from the seed alone, so that a run can be repeated. */
#include "chaos.h"

const char *const chaos_names[CHAOS_KINDS] = {"kill", "stop", "cut", "lighthouse"};

static uint64_t below(uint64_t *state, uint64_t n)
{
    return tutti_random64(state) % n;
}

struct chaos_blow chaos_next(const struct chaos_options *options, uint64_t *state, const struct chaos_blow *last,
                             uint32_t number)
{
    const uint64_t turn = tutti_mix64(options->seed) + number;
    const enum chaos_kind kind = options->kinds[turn % options->n_kinds];
    const uint32_t n = kind == CHAOS_LIGHTHOUSE ? options->n_lighthouses : options->n_groups;
    const uint64_t quarter = options->every_ns / 4;
    struct chaos_blow blow = {.kind = kind, .member = (uint32_t)below(state, n)};

    if (last && last->kind == kind && n > 1 && blow.member == last->member)
        blow.member = (uint32_t)((blow.member + 1 + below(state, n - 1)) % n);
    blow.at_ns = (number + 1) * options->every_ns - quarter + (quarter > 0 ? below(state, 2 * quarter) : 0);
    return blow;
}
