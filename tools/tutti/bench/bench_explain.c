/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti bench --explain`: every way in which a call could go, predicted and measured, and whether the one that is
 * chosen is as good as the best. The ways take turns, in short rounds, and the best round of each counts: what else a
 * shared machine does only ever makes a round longer, and when it changes its speed, it does so for all ways. A call
 * that names its way takes longer to begin. So the chosen way is measured by calls that name none, as users make them,
 * and by calls that name it, too; the difference is taken off the other ways of its back end. */

#include "bench.h"

#include <math.h>
#include <string.h>

#define TURNS 4            /* rounds of a method for each that the user asks for */
#define ROUND_US 400.0     /* a round's calls last so long */
#define BRIEF_TURNS 4      /* rounds in brief */
#define BRIEF_TURNS_LONG 2 /* where one call lasts longer than a round */
#define CALLS_MOST 1000.0
#define CALLS_TRIED 64
#define HOPELESS 2.0 /* and only a few for a way that takes so many times as long as the best */
#define TURNS_HOPELESS 3

struct trial {
    struct bench_way *way;
    struct bench_series series;
    double best_us;
};

static uint8_t way_is_in(const struct bench_cell *cell, const char *name)
{
    for (size_t i = 0; i < cell->n_ways; i++)
        if (strcmp(cell->ways[i].name, name) == 0) return 1;
    return 0;
}

/* The ways that all ranks have, in the root's order: a rank knows only its own buffers, so its list may differ. */
static enum tutti_status ways_find(struct bench_run *run, const struct bench_case *c, const struct bench_buffers *b,
                                   struct bench_cell *cell)
{
    struct bench_cell agreed;
    uint8_t mine[TUTTI_ARRAY_LEN(cell->ways)], all[TUTTI_ARRAY_LEN(cell->ways)];
    TUTTI_TRY(bench_ways_list(run->sides[0].comm, c, b, cell));
    agreed = *cell;
    TUTTI_TRY(tutti_broadcast(&agreed, sizeof agreed, TUTTI_UINT8, c->root, run->comm, NULL, NULL));
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(mine); i++)
        mine[i] = i < agreed.n_ways && way_is_in(cell, agreed.ways[i].name);
    TUTTI_TRY(tutti_all_reduce(mine, all, TUTTI_ARRAY_LEN(mine), TUTTI_UINT8, TUTTI_MIN, run->comm, NULL, NULL));
    const char *only = run->settings->only ? run->settings->only : "";
    cell->n_ways = 0;
    for (size_t i = 0; i < agreed.n_ways; i++)
        if (all[i] && strncmp(agreed.ways[i].name, only, strlen(only)) == 0)
            cell->ways[cell->n_ways++] = agreed.ways[i];
    return TUTTI_OK;
}

/* How many calls make a round, by the fastest of some short ones: the first calls are slow, and a few that were
 * disturbed would leave rounds too short to tell anything. Equal on all ranks, since times are the slowest rank's. */
static enum tutti_status calls_find(struct trial *trial, double *calls)
{
    double best = HUGE_VAL, us;
    for (uint32_t few = 1; few <= CALLS_TRIED && !(few > 1 && few * best > ROUND_US); few *= 2) {
        trial->series.calls = few;
        TUTTI_TRY(bench_series_round(&trial->series, &us));
        if (us < best) best = us;
    }
    *calls = ROUND_US / best < 1 ? 1 : ROUND_US / best > CALLS_MOST ? CALLS_MOST : ROUND_US / best;
    return TUTTI_OK;
}

/* On devices there are as many calls as the user says. */
static enum tutti_status trial_begin(struct trial *trial)
{
    const struct bench_run *run = trial->series.run;
    double calls = bench_calls(run->settings, trial->series.c->bytes), us;
    if (!run->settings->device) TUTTI_TRY(calls_find(trial, &calls));
    TUTTI_TRY(bench_series_begin(&trial->series, (uint32_t)calls));
    if (run->settings->device) TUTTI_TRY(bench_series_round(&trial->series, &us)); /* warms up */
    return bench_series_round(&trial->series, &trial->best_us);
}

static enum tutti_status trials_run(struct bench_run *run, struct trial *trials, size_t n)
{
    const uint32_t more = run->settings->brief ? BRIEF_TURNS : TURNS * run->settings->rounds;
    const uint32_t turns = run->settings->device ? run->settings->rounds - 1 : more;
    const uint32_t hopeless = run->settings->brief ? 0 : TURNS_HOPELESS;
    double best = HUGE_VAL, us;
    for (size_t i = 0; i < n; i++) TUTTI_TRY(trial_begin(&trials[i]));
    for (uint32_t turn = 0; turn < turns; turn++) {
        for (size_t i = 0; i < n; i++)
            if (trials[i].best_us < best) best = trials[i].best_us;
        for (size_t i = 0; i < n; i++) {
            struct trial *trial = &trials[(i + turn) % n];
            if (turn >= hopeless && !trial->way->chosen && trial->best_us > HOPELESS * best) continue;
            if (run->settings->brief && turn >= BRIEF_TURNS_LONG && trial->best_us > ROUND_US) continue;
            TUTTI_TRY(bench_series_round(&trial->series, &us));
            if (us < trial->best_us) trial->best_us = us;
        }
    }
    return TUTTI_OK;
}

static size_t chosen_of(const struct bench_cell *cell)
{
    size_t i = 0;
    while (i < cell->n_ways && !cell->ways[i].chosen) i++;
    return i;
}

/* "flat:line" and "flat:stage" */
static bool are_alike(const struct bench_way *a, const struct bench_way *b)
{
    const size_t n = strcspn(a->name, ":");
    return a->name[n] && strncmp(a->name, b->name, n + 1) == 0;
}

static size_t trials_make(struct bench_run *run, const struct bench_buffers *b, struct bench_cell *cell,
                          struct trial *trials)
{
    const size_t chosen = chosen_of(cell);
    size_t n = 0;
    for (; n < cell->n_ways; n++) {
        const char *name = n == chosen && !run->settings->device ? NULL : cell->ways[n].name;
        trials[n] = (struct trial){.way = &cell->ways[n], .series = bench_series(run, &cell->c, b, 0, name)};
    }
    if (chosen == cell->n_ways || run->settings->device) return n;
    trials[n] = (struct trial){.way = &cell->ways[chosen],
                               .series = bench_series(run, &cell->c, b, 0, cell->ways[chosen].name)};
    return n + 1;
}

static void times_take(struct bench_cell *cell, const struct trial *trials, size_t n)
{
    const size_t chosen = chosen_of(cell);
    const double naming = n > cell->n_ways ? trials[n - 1].best_us - trials[chosen].best_us : 0;
    for (size_t i = 0; i < cell->n_ways; i++) {
        struct bench_way *way = &cell->ways[i];
        const bool named = n > cell->n_ways && i != chosen && are_alike(&cell->ways[chosen], way);
        way->measured_us = trials[i].best_us;
        if (named && naming > 0) way->measured_us -= fmin(naming, way->measured_us / 2);
    }
}

static enum tutti_status cell_measure(struct bench_run *run, const struct bench_buffers *b, struct bench_cell *cell)
{
    struct trial trials[TUTTI_ARRAY_LEN(cell->ways) + 1];
    TUTTI_TRY(ways_find(run, &cell->c, b, cell));
    if (!run->settings->device) bench_fill(&cell->c, b->send, bench_send_elements(&cell->c), cell->c.rank, 0);
    cell->probe_before_ns = bench_probe_ns(run);
    const size_t n = trials_make(run, b, cell, trials);
    const enum tutti_status status = trials_run(run, trials, n);
    times_take(cell, trials, n);
    for (size_t i = 0; i < n; i++) bench_series_end(&trials[i].series);
    cell->probe_after_ns = bench_probe_ns(run);
    if (status >= 0) bench_ways_compare(cell);
    return status;
}

enum tutti_status bench_explain(struct bench_run *run, const struct bench_case *c, struct bench_cell *out)
{
    struct bench_buffers b;
    memset(out, 0, sizeof *out);
    out->c = *c;
    out->c.in_place |= bench_one_place(run, c);
    if (run->settings->device && c->bytes == 0)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s moves nothing: there is nothing to choose", c->op->info->name);
    enum tutti_status status = bench_buffers_open(run, &out->c, &b);
    if (status >= 0) status = cell_measure(run, &b, out);
    struct tutti_error why = *tutti_last_error();
    bench_buffers_close(run, &b);
    return status < 0 ? tutti_fail_record(&why) : status;
}
