/* SPDX-License-Identifier: BSD-3-Clause */
/* What happens when, what was seen, and what it cost: without processes and clocks. */
#include "chaos.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- what was seen ---- */

/* Where that step is, or belongs. Steps come nearly in order. */
static size_t place_of(const struct chaos_record *r, int64_t step)
{
    size_t at = r->n;
    while (at > 0 && r->steps[at - 1].step >= step) at--;
    return at;
}

static bool make_room(struct chaos_record *r)
{
    if (r->n < r->capacity) return true;
    const size_t capacity = r->capacity > 0 ? 2 * r->capacity : 256;
    struct chaos_step *more = realloc(r->steps, capacity * sizeof *more);
    if (!more) return false;
    r->steps = more, r->capacity = capacity;
    return true;
}

bool chaos_note(struct chaos_record *r, const struct chaos_step *step)
{
    const size_t at = place_of(r, step->step);

    if (at < r->n && r->steps[at].step == step->step) {
        struct chaos_step *known = &r->steps[at];
        if ((step->groups & ~known->groups) == 0) return true;
        known->groups |= step->groups, known->samples += step->samples;
        if (step->told > known->told) known->told = step->told;
        if (step->at_ns < known->at_ns) known->at_ns = step->at_ns;
        return true;
    }
    if (!make_room(r)) return false;
    memmove(r->steps + at + 1, r->steps + at, (r->n - at) * sizeof *r->steps);
    r->steps[at] = *step;
    r->n++;
    return true;
}

static bool strikes_group(const struct chaos_struck *s)
{
    return chaos_rows[s->kind].whom != A_LIGHTHOUSE;
}

/* The first step from that time on. */
static size_t first_from(const struct chaos_record *r, uint64_t at_ns)
{
    size_t low = 0, high = r->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (r->steps[middle].at_ns < at_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint64_t chaos_back(const struct chaos_record *r, size_t struck)
{
    const struct chaos_struck *s = &r->struck[struck];
    uint64_t end = r->end_ns;

    for (size_t i = r->n_struck; i-- > struck + 1;)
        if (strikes_group(&r->struck[i]) && r->struck[i].member == s->member) end = r->struck[i].at_ns;
    if (s->again_ns == 0) return end;
    for (size_t i = first_from(r, s->again_ns); i < r->n && r->steps[i].at_ns < end; i++)
        if (r->steps[i].groups >> s->member & 1) return r->steps[i].at_ns;
    return end;
}

uint64_t chaos_guess(const struct chaos_record *r, uint32_t n, uint64_t now_ns)
{
    uint64_t gone = 0, away = 0, groups = 0;
    struct chaos_record until = *r;

    until.end_ns = now_ns;
    for (size_t i = 0; i < r->n_struck; i++) {
        if (!strikes_group(&r->struck[i]) || chaos_back(&until, i) < now_ns) continue;
        const uint64_t bit = 1ull << r->struck[i].member;
        if (r->struck[i].again_ns > 0)
            away |= bit;
        else
            gone |= bit;
    }
    for (int back = 0; back < 2; back++)
        for (uint32_t g = 0; g < r->n_groups && n > 0; g++) {
            const uint64_t bit = 1ull << g;
            if ((gone | groups) & bit || (back == 0 && away & bit)) continue;
            groups |= bit, n--;
        }
    return groups;
}

/* ---- what it cost ---- */
static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

/* The step at that time: of the last one before. */
static int64_t step_at(const struct chaos_record *r, uint64_t at_ns)
{
    int64_t step = r->n > 0 ? r->steps[0].step : 0;

    for (size_t i = 0; i < r->n && r->steps[i].at_ns <= at_ns; i++) step = r->steps[i].step;
    return step;
}

static double rate(const struct chaos_record *r, uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(step_at(r, to_ns) - step_at(r, from_ns)) / seconds(to_ns - from_ns) : 0;
}

static double samples_in(const struct chaos_record *r, uint64_t from_ns, uint64_t to_ns)
{
    double samples = 0;

    for (size_t i = 0; i < r->n; i++)
        if (r->steps[i].at_ns > from_ns && r->steps[i].at_ns <= to_ns) samples += r->steps[i].samples;
    return samples;
}

/* Seconds that groups lived, summed over all groups. From a blow until it takes part again a group does not live. */
static double living_s(const struct chaos_record *r)
{
    double sum = r->n_groups * seconds(r->end_ns - r->begin_ns);

    for (size_t i = 0; i < r->n_struck; i++)
        if (strikes_group(&r->struck[i])) sum -= seconds(chaos_back(r, i) - r->struck[i].at_ns);
    return sum;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct chaos_spread spread(double *values, size_t n)
{
    if (n == 0) return (struct chaos_spread){0};
    qsort(values, n, sizeof *values, by_size);
    return (struct chaos_spread){.median = n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2,
                                 .most_of_them = values[(9 * n + 9) / 10 - 1],
                                 .worst = values[n - 1],
                                 .n = n};
}

/* Times from step to step, up to limit_ns. */
struct gap {
    uint64_t begin_ns, end_ns;
};
static struct gap gap_at(const struct chaos_record *r, size_t i, uint64_t limit_ns)
{
    const uint64_t end = i + 1 < r->n ? r->steps[i + 1].at_ns : r->end_ns;
    return (struct gap){r->steps[i].at_ns, end < limit_ns ? end : limit_ns};
}

/* The longest one that begins within that time, or, where before, lasts into it: what it is longer than the usual. */
static double stall(const struct chaos_record *r, struct gap within, bool before, uint64_t limit_ns, double usual_s)
{
    double longest = usual_s;

    for (size_t i = 0; i < r->n; i++) {
        const struct gap gap = gap_at(r, i, limit_ns);
        if (gap.begin_ns >= within.end_ns || gap.end_ns <= within.begin_ns || gap.end_ns <= gap.begin_ns) continue;
        if (!before && gap.begin_ns < within.begin_ns) continue;
        longest = fmax(longest, seconds(gap.end_ns - gap.begin_ns));
    }
    return longest - usual_s;
}

static double calm_gap(const struct chaos_record *r)
{
    double *gaps = tutti_alloc_array(r->n + 1, sizeof *gaps), found;
    size_t n = 0;

    if (!gaps) return 0;
    for (size_t i = 1; i < r->n; i++)
        if (r->steps[i - 1].at_ns >= r->calm_ns && r->steps[i].at_ns < r->begin_ns)
            gaps[n++] = seconds(r->steps[i].at_ns - r->steps[i - 1].at_ns);
    found = spread(gaps, n).median;
    tutti_free(gaps);
    return found;
}

static void stalls(const struct chaos_record *r, struct chaos_verdict *v)
{
    double lost[TUTTI_ARRAY_LEN(r->struck)], joined[TUTTI_ARRAY_LEN(r->struck)], away[TUTTI_ARRAY_LEN(r->struck)];
    size_t n_joined = 0, n_away = 0;

    for (size_t i = 0; i < r->n_struck; i++) {
        const struct chaos_struck *s = &r->struck[i];
        const uint64_t next = i + 1 < r->n_struck ? s[1].at_ns : r->end_ns;
        const bool again = s->again_ns > 0 && s->again_ns < next;
        const struct gap gone = {s->at_ns, again ? s->again_ns : next}, joins = {gone.end_ns, next};
        v->still_s += lost[i] = stall(r, gone, true, next, v->calm_gap_s);
        if (again) v->still_s += joined[n_joined++] = stall(r, joins, false, next, v->calm_gap_s);
        const uint64_t back = chaos_back(r, i);
        if (strikes_group(s) && s->again_ns > 0 && back < r->end_ns) away[n_away++] = seconds(back - s->again_ns);
    }
    v->stall_s = spread(lost, r->n_struck);
    v->rejoin_s = spread(joined, n_joined);
    v->away_s = spread(away, n_away);
}

static size_t steps_apart(const struct chaos_record *r)
{
    size_t n = 0;

    for (size_t i = 0; i < r->n; i++)
        n += r->steps[i].told > 0 && (uint32_t)__builtin_popcountll(r->steps[i].groups) > r->steps[i].told;
    return n;
}

struct chaos_verdict chaos_judge(const struct chaos_record *r)
{
    const double calm_s = r->begin_ns > r->calm_ns ? seconds(r->begin_ns - r->calm_ns) : 0;
    struct chaos_verdict v = {.calm_rate = rate(r, r->calm_ns, r->begin_ns),
                              .chaos_rate = rate(r, r->begin_ns, r->end_ns),
                              .calm_gap_s = calm_gap(r),
                              .samples = samples_in(r, r->begin_ns, r->end_ns),
                              .apart = steps_apart(r)};

    v.goodput = v.calm_rate > 0 ? v.chaos_rate / v.calm_rate : 0;
    if (calm_s > 0 && r->n_groups > 0) v.calm_samples = samples_in(r, r->calm_ns, r->begin_ns) / calm_s / r->n_groups;
    v.due = v.calm_samples * living_s(r);
    stalls(r, &v);
    return v;
}
