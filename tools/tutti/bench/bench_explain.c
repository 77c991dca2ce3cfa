/* SPDX-License-Identifier: BSD-3-Clause */
/* `tutti bench --explain`: every way in which a call could go, predicted and measured, and whether the one that is
 * chosen is as good as the best. The ways take turns, in short rounds, and the best round of each counts: what else a
 * shared machine does only ever makes a round longer, and when it changes its speed, it does so for all ways. */

#include "bench.h"

#include "comm/call/explain.h"

#include <math.h>
#include <string.h>

#define TURNS 4        /* rounds of a way for each that the user asks for, */
#define ROUND_US 400.0 /* of calls for that long, */
#define CALLS_MOST 1000.0
#define HOPELESS 2.0 /* and only a few for a way that takes so many times as long as the best */
#define TURNS_HOPELESS 3

struct trial {
    struct bench_way *way;
    uint32_t calls; /* of a round */
    double best_us;
};

enum tutti_status bench_ways_list(struct tutti_comm *comm, const struct bench_case *c, const struct bench_buffers *b,
                                  struct bench_cell *cell)
{
    struct tutti_way ways[TUTTI_ARRAY_LEN(cell->ways)];
    bool broadcast = strcmp(c->op->name, "broadcast") == 0;
    struct tutti_request request = {.name = c->op->name,
                                    .comm = comm,
                                    .send = broadcast ? NULL : b->send,
                                    .recv = broadcast && c->rank == c->root ? b->send : b->recv,
                                    .count = c->count,
                                    .dtype = c->dtype,
                                    .op = (int)c->reduction,
                                    .root = c->root};
    if (!tutti_kind_parse(c->op->name, &request.kind))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s is no collective: there is nothing to choose", c->op->name);
    TUTTI_TRY(tutti_explain(&request, ways, TUTTI_ARRAY_LEN(ways), &cell->n_ways));
    for (size_t i = 0; i < cell->n_ways; i++) {
        struct bench_way *way = &cell->ways[i];
        memcpy(way->name, ways[i].name, sizeof way->name);
        way->chosen = ways[i].chosen;
        way->n_sms = ways[i].n_sms;
        way->predicted_us = ways[i].ns / 1e3;
    }
    return TUTTI_OK;
}

static uint8_t way_is_in(const struct bench_cell *cell, const char *name)
{
    for (size_t i = 0; i < cell->n_ways; i++)
        if (strcmp(cell->ways[i].name, name) == 0) return 1;
    return 0;
}

/* Ranks see their own buffers alone: what counts are the root's ways, those that all ranks have. */
static enum tutti_status ways_find(struct bench_run *run, const struct bench_case *c, const struct bench_buffers *b,
                                   struct bench_cell *cell)
{
    struct bench_cell agreed;
    uint8_t mine[TUTTI_ARRAY_LEN(cell->ways)], all[TUTTI_ARRAY_LEN(cell->ways)];
    TUTTI_TRY(bench_ways_list(run->comm, c, b, cell));
    agreed = *cell;
    TUTTI_TRY(tutti_broadcast(&agreed, sizeof agreed, TUTTI_UINT8, c->root, run->comm, NULL, NULL));
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(mine); i++)
        mine[i] = i < agreed.n_ways && way_is_in(cell, agreed.ways[i].name);
    TUTTI_TRY(tutti_all_reduce(mine, all, TUTTI_ARRAY_LEN(mine), TUTTI_UINT8, TUTTI_MIN, run->comm, NULL, NULL));
    cell->n_ways = 0;
    for (size_t i = 0; i < agreed.n_ways; i++)
        if (all[i]) cell->ways[cell->n_ways++] = agreed.ways[i];
    return TUTTI_OK;
}

static enum tutti_status trial_round(struct bench_run *run, const struct bench_case *c, const struct bench_buffers *b,
                                     struct trial *trial, uint32_t calls, double *us)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.algorithm = trial->way->name;
    options.premul_value = BENCH_FACTOR;
    return bench_round(run, c, b, &options, calls, us);
}

/* Some calls to warm up, and how many make a round: equal on all ranks, since times are the slowest rank's. */
static enum tutti_status trial_begin(struct bench_run *run, const struct bench_case *c, const struct bench_buffers *b,
                                     struct trial *trial)
{
    double us;
    TUTTI_TRY(trial_round(run, c, b, trial, 1, &us));
    TUTTI_TRY(trial_round(run, c, b, trial, 2, &us));
    double calls = ROUND_US / us;
    trial->calls = calls < 1 ? 1 : calls > CALLS_MOST ? (uint32_t)CALLS_MOST : (uint32_t)calls;
    return trial_round(run, c, b, trial, trial->calls, &trial->best_us);
}

static enum tutti_status trials_run(struct bench_run *run, const struct bench_case *c, const struct bench_buffers *b,
                                    struct trial *trials, size_t n)
{
    double best = HUGE_VAL, us;
    for (size_t i = 0; i < n; i++) TUTTI_TRY(trial_begin(run, c, b, &trials[i]));
    for (uint32_t turn = 0; turn < TURNS * run->settings->rounds; turn++) {
        for (size_t i = 0; i < n; i++)
            if (trials[i].best_us < best) best = trials[i].best_us;
        for (size_t i = 0; i < n; i++) {
            struct trial *trial = &trials[(i + turn) % n];
            if (turn >= TURNS_HOPELESS && !trial->way->chosen && trial->best_us > HOPELESS * best) continue;
            TUTTI_TRY(trial_round(run, c, b, trial, trial->calls, &us));
            if (us < trial->best_us) trial->best_us = us;
        }
    }
    return TUTTI_OK;
}

void bench_ways_compare(struct bench_cell *cell)
{
    double chosen_us = 0;
    for (size_t i = 0; i < cell->n_ways; i++)
        if (cell->ways[i].chosen) chosen_us = cell->ways[i].measured_us;
    for (size_t i = 0; i < cell->n_ways; i++) {
        cell->ways[i].behind = chosen_us / cell->ways[i].measured_us;
        if (cell->ways[i].behind > cell->worst) cell->worst = cell->ways[i].behind;
    }
}

static enum tutti_status cell_measure(struct bench_run *run, const struct bench_buffers *b, struct bench_cell *cell)
{
    struct trial trials[TUTTI_ARRAY_LEN(cell->ways)];
    for (size_t i = 0; i < cell->n_ways; i++) trials[i] = (struct trial){.way = &cell->ways[i]};
    TUTTI_TRY(trials_run(run, &cell->c, b, trials, cell->n_ways));
    for (size_t i = 0; i < cell->n_ways; i++) cell->ways[i].measured_us = trials[i].best_us;
    bench_ways_compare(cell);
    return TUTTI_OK;
}

enum tutti_status bench_explain(struct bench_run *run, const struct bench_case *c, struct bench_cell *out)
{
    struct bench_buffers b;
    if (run->gpu) return bench_gpu_explain(run->gpu, run->settings, c, out);
    memset(out, 0, sizeof *out);
    out->c = *c;
    enum tutti_status status = bench_buffers_open(run, c, &b);
    if (status >= 0) status = ways_find(run, c, &b, out);
    if (status >= 0) {
        bench_fill(c, b.send, c->op->send_elements(c), c->rank, 0);
        out->probe_before_ns = bench_probe_ns(run);
        status = cell_measure(run, &b, out);
        out->probe_after_ns = bench_probe_ns(run);
    }
    bench_buffers_close(run, &b);
    return status;
}

/* ---- showing ---- */

static void json_show(FILE *out, const struct bench_settings *settings, const struct bench_cell *cell, bool first)
{
    const struct bench_case *c = &cell->c;
    fprintf(out, "%s\n{\"op\":\"%s\",\"bytes\":%zu,\"count\":%zu,\"type\":\"%s\",\"in_place\":%s,\"behind_best\":%.4f,",
            first ? "" : ",", c->op->name, c->bytes, c->count, tutti_dtype_name(c->dtype),
            c->in_place ? "true" : "false", cell->worst);
    fprintf(out, "\"probe_ns\":[%.1f,%.1f],\"ways\":[", cell->probe_before_ns, cell->probe_after_ns);
    for (size_t i = 0; i < cell->n_ways; i++) {
        const struct bench_way *way = &cell->ways[i];
        fprintf(out, "%s{\"name\":\"%s\",\"predicted_us\":%.4f,\"measured_us\":%.4f,\"chosen\":%s", i ? "," : "",
                way->name, way->predicted_us, way->measured_us, way->chosen ? "true" : "false");
        if (settings->cuda && way->n_sms >= 0) fprintf(out, ",\"sms\":%d", way->n_sms);
        fputc('}', out);
    }
    fprintf(out, "]}");
}

void bench_explain_show(FILE *out, const struct bench_settings *settings, const struct bench_cell *cell, bool first)
{
    const struct bench_case *c = &cell->c;
    if (settings->json) {
        json_show(out, settings, cell, first);
        return;
    }
    fprintf(out, "%s %zu bytes, %s%s: chosen %.2f of the best%s", c->op->name, c->bytes, tutti_dtype_name(c->dtype),
            c->in_place ? ", in place" : "", cell->worst, cell->worst > BENCH_NEAR ? " (!)" : "");
    if (!settings->cuda) fprintf(out, "; probe %.0f/%.0f", cell->probe_before_ns, cell->probe_after_ns);
    fputc('\n', out);
    for (size_t i = 0; i < cell->n_ways; i++) {
        const struct bench_way *way = &cell->ways[i];
        fprintf(out, "  %c %-22s %12.2f %12.2f %6.2f", way->chosen ? '*' : ' ', way->name, way->predicted_us,
                way->measured_us, way->behind);
        if (settings->cuda && way->n_sms >= 0) fprintf(out, " %6d", way->n_sms);
        fputc('\n', out);
    }
    fflush(out);
}

void bench_explain_footer(FILE *out, const struct bench_settings *settings, size_t n_near, size_t n_cells)
{
    double share = n_cells ? 100.0 * (double)n_near / (double)n_cells : 0;
    if (settings->json)
        fprintf(out, "\n],\"near\":%zu,\"cells\":%zu}\n", n_near, n_cells);
    else
        fprintf(out,
                "# the chosen way takes at most %.1f times as long as the best one in %zu of %zu cells (%.0f %%)\n",
                BENCH_NEAR, n_near, n_cells, share);
}
