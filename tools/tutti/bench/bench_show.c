/* SPDX-License-Identifier: BSD-3-Clause */
/* The tables of `tutti bench`: the columns of nccl-tests, with the spread of the rounds and the probe, or JSON. */

#include "bench.h"

#include <math.h>

void bench_show_header(FILE *out, const struct bench_settings *settings, int32_t n_ranks)
{
    if (settings->json) {
        fprintf(out,
                "{\"version\":\"%s\",\"ranks\":%d,\"device\":\"%s\",\"calls\":%u,\"rounds\":%u,\"fresh\":%s,"
                "\"mapped\":%s,\"group\":%u,\"%s\":[",
                tutti_version_text(), n_ranks, settings->device ? settings->device : "cpu", settings->iterations,
                settings->rounds, settings->fresh ? "true" : "false", settings->mapped ? "true" : "false",
                settings->group, settings->explain ? "explained" : "points");
        return;
    }
    fprintf(out, "# tutti %s, %d rank%s, median of %u round%s of up to %u call%s%s%s\n", tutti_version_text(), n_ranks,
            tutti_plural((uint64_t)n_ranks), settings->rounds, tutti_plural(settings->rounds), settings->iterations,
            tutti_plural(settings->iterations), settings->fresh ? ", inputs rewritten before each call" : "",
            settings->mapped && !settings->device ? ", memory from tutti_mem_alloc" : "");
    if (settings->explain) {
        fprintf(out, "# * chosen; us predicted, us measured, the chosen one's time over this one's%s\n",
                settings->device ? ", SMs taken" : "");
        return;
    }
    if (settings->device)
        fprintf(out, "# device memory%s, %s\n", settings->mapped ? " in windows" : "",
                settings->eager ? "call by call, launches included" : "replayed from graphs");
    if (settings->group > 1) fprintf(out, "# groups of %u calls; time: of a call\n", settings->group);
    if (settings->peer)
        fprintf(out, "# %s: its time in us and, behind the stroke, how many times the one before\n", settings->peer);
    if (settings->survive)
        fprintf(out,
                "# a communicator that survives; at the end of a line, for each form: the time of one that does "
                "not, what\n# surviving costs in us and in percent (medians over rounds that follow one another)\n");
    fprintf(out, "# time: us (spread: (max - min) / median of the rounds); algbw, busbw: GB/s; probe: ns one way of a "
                 "cache line, before/after\n");
    fprintf(out, "#\n# %-14s %53s %39s\n", "", "out of place", "in place");
    fprintf(out, "# %-14s %11s %11s %8s %6s %4s %9s %6s %6s %6s %5s %9s %6s %6s %6s %5s %9s\n", "op", "bytes", "count",
            "type", "redop", "root", "time", "spread", "algbw", "busbw", "wrong", "time", "spread", "algbw", "busbw",
            "wrong", "probe");
}

static void text_time(FILE *out, const struct bench_time *t, bool has)
{
    char wrong[24] = "-";
    if (!has) {
        fprintf(out, " %9s %6s %6s %6s %5s", "-", "-", "-", "-", "-");
        return;
    }
    if (t->wrong != SIZE_MAX) snprintf(wrong, sizeof wrong, "%zu", t->wrong);
    double spread = t->median_us > 0 ? 100 * (t->max_us - t->min_us) / t->median_us : 0;
    fprintf(out, " %9.2f %5.0f%% %6.2f %6.2f %5s", t->median_us, spread, t->algbw, t->busbw, wrong);
}

static void text_peer(FILE *out, const struct bench_settings *settings, const struct bench_time *t, bool has)
{
    if (!has) return;
    if (settings->survive) fprintf(out, "  %9.2f %+8.2f %+7.1f%%", t->peer_us, t->cost_us, 100 * (t->ratio - 1));
    if (!settings->peer) return;
    if (t->peer_us == 0) {
        fprintf(out, "  %s -", settings->peer);
        return;
    }
    fprintf(out, "  %s %.2f/%.3f", settings->peer, t->peer_us, t->median_us > 0 ? t->peer_us / t->median_us : 0);
}

static void json_time(FILE *out, const char *name, const struct bench_time *t)
{
    fprintf(out, ",\"%s\":{\"time_us\":%.3f,\"min_us\":%.3f,\"max_us\":%.3f,\"algbw\":%.4f,\"busbw\":%.4f", name,
            t->median_us, t->min_us, t->max_us, t->algbw, t->busbw);
    if (t->wrong != SIZE_MAX) fprintf(out, ",\"wrong\":%zu", t->wrong);
    if (t->peer_us > 0)
        fprintf(out, ",\"peer_us\":%.3f,\"cost_us\":%.3f,\"ratio\":%.4f", t->peer_us, t->cost_us, t->ratio);
    fputc('}', out);
}

void bench_show_point(FILE *out, const struct bench_settings *settings, const struct bench_point *point, bool first)
{
    const struct bench_case *c = &point->c;
    const char *redop = c->op->info->reduces ? tutti_op_name(c->reduction) : "none";
    int root = c->op->info->rooted ? c->root : -1;
    if (settings->json) {
        fprintf(out, "%s\n{\"op\":\"%s\",\"bytes\":%zu,\"count\":%zu,\"type\":\"%s\",\"redop\":\"%s\",\"root\":%d",
                first ? "" : ",", c->op->info->name, c->bytes, c->count, tutti_dtype_name(c->dtype), redop, root);
        if (point->has[0]) json_time(out, "out_of_place", &point->time[0]);
        if (point->has[1]) json_time(out, "in_place", &point->time[1]);
        fprintf(out, ",\"probe_ns\":[%.1f,%.1f]}", point->probe_before_ns, point->probe_after_ns);
        return;
    }
    fprintf(out, "  %-14s %11zu %11zu %8s %6s %4d", c->op->info->name, c->bytes, c->count, tutti_dtype_name(c->dtype),
            redop, root);
    text_time(out, &point->time[0], point->has[0]);
    text_time(out, &point->time[1], point->has[1]);
    if (!settings->device) fprintf(out, " %4.0f/%.0f", point->probe_before_ns, point->probe_after_ns);
    for (int form = 0; form < 2; form++) text_peer(out, settings, &point->time[form], point->has[form]);
    fputc('\n', out);
    fflush(out);
}

#define LARGE ((size_t)1 << 20)

/* What surviving costs at most: at the smallest size in us, at large ones in percent. */
static void text_cost(FILE *out, const struct bench_point *points, size_t n)
{
    size_t least = SIZE_MAX;
    double us = -INFINITY, ratio = -INFINITY;
    for (size_t i = 0; i < n; i++)
        if (points[i].c.bytes < least) least = points[i].c.bytes;
    for (size_t i = 0; i < n; i++) {
        for (int form = 0; form < 2; form++) {
            const struct bench_time *t = &points[i].time[form];
            if (!points[i].has[form]) continue;
            if (points[i].c.bytes == least) us = fmax(us, t->cost_us);
            if (points[i].c.bytes >= LARGE) ratio = fmax(ratio, t->ratio);
        }
    }
    if (n == 0) return;
    fprintf(out, "# surviving costs at most %.2f us at %zu bytes", us, least);
    if (isfinite(ratio)) fprintf(out, ", and %.1f %% from 1 MiB on", 100 * (ratio - 1));
    fputc('\n', out);
}

void bench_show_footer(FILE *out, const struct bench_settings *settings, const struct bench_point *points, size_t n)
{
    size_t wrong = 0;
    double busbw = 0;
    for (size_t i = 0; i < n; i++) {
        for (int form = 0; form < 2; form++) {
            if (!points[i].has[form]) continue;
            busbw += points[i].time[form].busbw / (double)(n * (points[i].has[0] + points[i].has[1]));
            if (points[i].time[form].wrong != SIZE_MAX) wrong += points[i].time[form].wrong;
        }
    }
    if (settings->json)
        fprintf(out, "\n],\"wrong\":%zu,\"mean_busbw\":%.4f}\n", wrong, busbw);
    else
        fprintf(out, "# mean bus bandwidth: %.3f GB/s; wrong values: %zu%s\n", busbw, wrong,
                settings->check ? "" : " (not checked: --check)");
    if (settings->survive && !settings->json) text_cost(out, points, n);
}

/* How `tutti bench --explain` shows the ways of a call. */

/* The number, or what stands for one that nobody knows. */
static const char *prediction(const struct bench_way *way, int digits, const char *unknown, char out[32])
{
    if (isinf(way->predicted_us))
        snprintf(out, 32, "%s", unknown);
    else
        snprintf(out, 32, "%.*f", digits, way->predicted_us);
    return out;
}

static void json_show(FILE *out, const struct bench_settings *settings, const struct bench_cell *cell, bool first)
{
    const struct bench_case *c = &cell->c;
    fprintf(out, "%s\n{\"op\":\"%s\",\"bytes\":%zu,\"count\":%zu,\"type\":\"%s\",\"in_place\":%s,\"behind_best\":%.4f,",
            first ? "" : ",", c->op->info->name, c->bytes, c->count, tutti_dtype_name(c->dtype),
            c->in_place ? "true" : "false", cell->worst);
    fprintf(out, "\"probe_ns\":[%.1f,%.1f],\"ways\":[", cell->probe_before_ns, cell->probe_after_ns);
    for (size_t i = 0; i < cell->n_ways; i++) {
        const struct bench_way *way = &cell->ways[i];
        char predicted[32];
        fprintf(out, "%s{\"name\":\"%s\",\"predicted_us\":%s,\"measured_us\":%.4f,\"chosen\":%s", i ? "," : "",
                way->name, prediction(way, 4, "null", predicted), way->measured_us, way->chosen ? "true" : "false");
        if (settings->device && way->n_sms >= 0) fprintf(out, ",\"sms\":%d", way->n_sms);
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
    fprintf(out, "%s %zu bytes, %s%s: chosen %.2f of the best%s", c->op->info->name, c->bytes,
            tutti_dtype_name(c->dtype), c->in_place ? ", in place" : "", cell->worst,
            cell->worst > BENCH_NEAR ? " (!)" : "");
    if (!settings->device) fprintf(out, "; probe %.0f/%.0f", cell->probe_before_ns, cell->probe_after_ns);
    fputc('\n', out);
    for (size_t i = 0; i < cell->n_ways; i++) {
        const struct bench_way *way = &cell->ways[i];
        char predicted[32];
        fprintf(out, "  %c %-22s %12s %12.2f %6.2f", way->chosen ? '*' : ' ', way->name,
                prediction(way, 2, "-", predicted), way->measured_us, way->behind);
        if (settings->device && way->n_sms >= 0) fprintf(out, " %6d", way->n_sms);
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
