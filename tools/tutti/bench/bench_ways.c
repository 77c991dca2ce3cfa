/* SPDX-License-Identifier: BSD-3-Clause */
/* How `tutti bench --explain` shows the ways of a call. */

#include "bench.h"

static void json_show(FILE *out, const struct bench_settings *settings, const struct bench_cell *cell, bool first)
{
    const struct bench_case *c = &cell->c;
    fprintf(out, "%s\n{\"op\":\"%s\",\"bytes\":%zu,\"count\":%zu,\"type\":\"%s\",\"in_place\":%s,\"behind_best\":%.4f,",
            first ? "" : ",", c->op->info->name, c->bytes, c->count, tutti_dtype_name(c->dtype),
            c->in_place ? "true" : "false", cell->worst);
    fprintf(out, "\"probe_ns\":[%.1f,%.1f],\"ways\":[", cell->probe_before_ns, cell->probe_after_ns);
    for (size_t i = 0; i < cell->n_ways; i++) {
        const struct bench_way *way = &cell->ways[i];
        fprintf(out, "%s{\"name\":\"%s\",\"predicted_us\":%.4f,\"measured_us\":%.4f,\"chosen\":%s", i ? "," : "",
                way->name, way->predicted_us, way->measured_us, way->chosen ? "true" : "false");
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
        fprintf(out, "  %c %-22s %12.2f %12.2f %6.2f", way->chosen ? '*' : ' ', way->name, way->predicted_us,
                way->measured_us, way->behind);
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
