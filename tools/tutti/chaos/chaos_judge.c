/* SPDX-License-Identifier: BSD-3-Clause */
/* What happens when, and what it cost: without processes and clocks. */
#include "chaos.h"

#include <stdlib.h>

/* ---- what happens when: from the seed alone, so that a run can be repeated ---- */
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

/* ---- what it cost ---- */
bool chaos_note(struct chaos_record *record, uint64_t at_ns, int64_t step)
{
    if (record->n > 0 && record->samples[record->n - 1].step >= step) return true;
    if (record->n == record->capacity) {
        const size_t capacity = record->capacity > 0 ? 2 * record->capacity : 256;
        struct chaos_sample *more = realloc(record->samples, capacity * sizeof *more);
        if (!more) return false;
        record->samples = more, record->capacity = capacity;
    }
    record->samples[record->n++] = (struct chaos_sample){at_ns, step};
    return true;
}

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

/* The step at that time: of the last sample before. */
static int64_t step_at(const struct chaos_record *r, uint64_t at_ns)
{
    int64_t step = r->n > 0 ? r->samples[0].step : 0;

    for (size_t i = 0; i < r->n && r->samples[i].at_ns <= at_ns; i++) step = r->samples[i].step;
    return step;
}

static double rate(const struct chaos_record *r, uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(step_at(r, to_ns) - step_at(r, from_ns)) / seconds(to_ns - from_ns) : 0;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    if (n == 0) return 0;
    qsort(values, n, sizeof *values, by_size);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* The longest time without a step of which some lies in [from_ns, to_ns). */
static double longest_gap(const struct chaos_record *r, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t longest = 0;

    for (size_t i = 0; i < r->n; i++) {
        const uint64_t begin = r->samples[i].at_ns, end = i + 1 < r->n ? r->samples[i + 1].at_ns : r->end_ns;
        if (begin < to_ns && end > from_ns && end - begin > longest) longest = end - begin;
    }
    return seconds(longest);
}

static double calm_gap(const struct chaos_record *r)
{
    double *gaps = tutti_alloc_array(r->n + 1, sizeof *gaps), found;
    size_t n = 0;

    if (!gaps) return 0;
    for (size_t i = 1; i < r->n; i++)
        if (r->samples[i - 1].at_ns >= r->calm_ns && r->samples[i].at_ns < r->begin_ns)
            gaps[n++] = seconds(r->samples[i].at_ns - r->samples[i - 1].at_ns);
    found = median(gaps, n);
    tutti_free(gaps);
    return found;
}

struct chaos_verdict chaos_judge(const struct chaos_record *r)
{
    struct chaos_verdict v = {.calm_rate = rate(r, r->calm_ns, r->begin_ns),
                              .chaos_rate = rate(r, r->begin_ns, r->end_ns),
                              .calm_gap_s = calm_gap(r)};
    double stalls[TUTTI_ARRAY_LEN(r->blows)];

    v.goodput = v.calm_rate > 0 ? v.chaos_rate / v.calm_rate : 0;
    for (size_t i = 0; i < r->n_blows; i++) {
        const double gap = longest_gap(r, r->blows[i], i + 1 < r->n_blows ? r->blows[i + 1] : r->end_ns);
        stalls[i] = gap > v.calm_gap_s ? gap - v.calm_gap_s : 0;
        if (stalls[i] > v.worst_stall_s) v.worst_stall_s = stalls[i];
    }
    v.stall_s = median(stalls, r->n_blows);
    return v;
}
