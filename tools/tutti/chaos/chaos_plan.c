/* SPDX-License-Identifier: BSD-3-Clause */
/* What happens when: from the seed alone, so that a run can be repeated. */
#include "chaos.h"

const struct chaos_row chaos_rows[CHAOS_KINDS] = {
    [CHAOS_KILL] = {"kill", A_GROUP, BY_KILL},
    [CHAOS_STOP] = {"stop", A_GROUP, BY_STOP},
    [CHAOS_CUT] = {"cut", A_GROUP, BY_CUT},
    [CHAOS_RANK] = {"rank", A_RANK, BY_KILL},
    [CHAOS_RANK_STOP] = {"rank-stop", A_RANK, BY_STOP},
    [CHAOS_LIGHTHOUSE] = {"lighthouse", A_LIGHTHOUSE, BY_KILL},
    [CHAOS_LIGHTHOUSE_STOP] = {"lighthouse-stop", A_LIGHTHOUSE, BY_STOP},
    [CHAOS_LIGHTHOUSE_CUT] = {"lighthouse-cut", A_LIGHTHOUSE, BY_CUT},
};

static uint64_t below(uint64_t *state, uint64_t n)
{
    return tutti_random64(state) % n;
}

struct chaos_blow chaos_next(const struct chaos_options *options, uint64_t *state, const struct chaos_blow *last,
                             uint32_t number)
{
    const uint64_t turn = tutti_mix64(options->seed) + number;
    const enum chaos_kind kind = options->kinds[turn % options->n_kinds];
    const uint32_t n = chaos_rows[kind].whom == A_LIGHTHOUSE ? options->n_lighthouses : options->n_groups;
    const uint64_t quarter = options->every_ns / 4;
    struct chaos_blow blow = {.kind = kind, .member = (uint32_t)below(state, n)};

    if (last && last->kind == kind && n > 1 && blow.member == last->member)
        blow.member = (uint32_t)((blow.member + 1 + below(state, n - 1)) % n);
    if (chaos_rows[kind].whom == A_RANK) blow.rank = (uint32_t)below(state, options->n_ranks);
    blow.at_ns = (number + 1) * options->every_ns - quarter + (quarter > 0 ? below(state, 2 * quarter) : 0);
    return blow;
}
