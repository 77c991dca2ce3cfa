/* SPDX-License-Identifier: BSD-3-Clause */
/* What `tutti chaos` tells of a run: as text, as JSON, and as a table of all steps and blows. */
#include "chaos.h"

#include <inttypes.h>
#include <string.h>

static double run_s(const struct chaos_told *told)
{
    return (double)(told->record->end_ns - told->record->begin_ns) / 1e9;
}

static unsigned times(const struct chaos_record *record, enum chaos_kind kind)
{
    unsigned n = 0;
    for (size_t i = 0; i < record->n_struck; i++) n += record->struck[i].kind == kind;
    return n;
}

static double goodput(const struct chaos_verdict *v)
{
    return v->due > 0 ? v->samples / v->due : 0;
}

static double lost(const struct chaos_verdict *v)
{
    return v->due > v->samples ? v->due - v->samples : 0;
}

/* ---- text ---- */
static void text_spread(FILE *out, const char *name, const struct chaos_spread *s)
{
    if (s->n == 0) return;
    fprintf(out, "%-12s %10.2f s in the median, %.2f s in 9 of 10, %.2f s at most\n", name, s->median, s->most_of_them,
            s->worst);
}

static void text(FILE *out, const struct chaos_told *told)
{
    const struct chaos_options *o = told->options;
    const struct chaos_verdict *v = &told->verdict;
    const size_t n = told->record->n_struck;

    fprintf(out, "# seed %" PRIu64 ": %zu blows in %.0f s (", o->seed, n, run_s(told));
    for (uint32_t i = 0; i < o->n_kinds; i++)
        fprintf(out, "%s%u %s", i ? ", " : "", times(told->record, o->kinds[i]), chaos_rows[o->kinds[i]].name);
    fprintf(out, "); steps as the %s\n", told->by_programs ? "groups tell them" : "lighthouse shows them");
    fprintf(out, "undisturbed  %10.2f steps/s, one in %.3f s; %.2f %s/s of a group\n", v->calm_rate, v->calm_gap_s,
            v->calm_samples, told->by_programs ? "samples" : "batches");
    fprintf(out, "disturbed    %10.2f steps/s\n", v->chaos_rate);
    fprintf(out, "goodput      %10.2f of the steps, %.3f of the samples of the groups that live\n", v->goodput,
            goodput(v));
    fprintf(out, "lost         %10.1f %s, %.1f by each blow\n", lost(v), told->by_programs ? "samples" : "batches",
            n > 0 ? lost(v) / (double)n : 0);
    text_spread(out, "stall", &v->stall_s);
    text_spread(out, "... joining", &v->rejoin_s);
    fprintf(out, "... in all   %10.2f s, %.1f %% of the time\n", v->still_s, 100 * v->still_s / run_s(told));
    text_spread(out, "back after", &v->away_s);
    if (v->apart > 0) fprintf(out, "apart        %10zu steps that groups did each without the other\n", v->apart);
    if (told->ended > 0) fprintf(out, "%u times a group ended by itself\n", told->ended);
}

/* ---- JSON: one line ---- */
static void json_spread(FILE *out, const char *name, const struct chaos_spread *s)
{
    fprintf(out, ",\"%s_median_s\":%.4f,\"%s_p90_s\":%.4f,\"%s_worst_s\":%.4f", name, s->median, name, s->most_of_them,
            name, s->worst);
}

static void json(FILE *out, const struct chaos_told *told)
{
    const struct chaos_verdict *v = &told->verdict;

    fprintf(out, "{\"seed\":%" PRIu64 ",\"blows\":%zu", told->options->seed, told->record->n_struck);
    for (enum chaos_kind i = 0; i < CHAOS_KINDS; i++)
        fprintf(out, ",\"%s\":%u", chaos_rows[i].name, times(told->record, i));
    fprintf(out, ",\"seconds\":%.3f,\"undisturbed_per_s\":%.4f,\"step_s\":%.4f,\"disturbed_per_s\":%.4f", run_s(told),
            v->calm_rate, v->calm_gap_s, v->chaos_rate);
    fprintf(out, ",\"goodput\":%.4f,\"goodput_samples\":%.4f,\"group_samples_per_s\":%.4f,\"samples\":%.2f", v->goodput,
            goodput(v), v->calm_samples, v->samples);
    fprintf(out, ",\"samples_due\":%.2f,\"samples_lost\":%.2f,\"told_by\":\"%s\"", v->due, lost(v),
            told->by_programs ? "groups" : "lighthouse");
    json_spread(out, "stall", &v->stall_s);
    json_spread(out, "rejoin", &v->rejoin_s);
    json_spread(out, "away", &v->away_s);
    fprintf(out, ",\"still_s\":%.4f", v->still_s);
    fprintf(out, ",\"apart\":%zu,\"ended\":%u,\"calm_ns\":%" PRIu64 "}\n", v->apart, told->ended,
            told->record->calm_ns);
}

/* ---- all steps and blows, by time ---- */
static double since_calm(const struct chaos_record *record, uint64_t at_ns)
{
    return ((double)at_ns - (double)record->calm_ns) / 1e9;
}

static void row_of_step(FILE *out, const struct chaos_record *record, const struct chaos_step *step)
{
    const char *between = "";

    fprintf(out, "%.4f,step,%" PRId64 ",%.10g,", since_calm(record, step->at_ns), step->step, step->samples);
    for (uint32_t g = 0; g < record->n_groups; g++)
        if (step->groups >> g & 1) fprintf(out, "%s%u", between, g), between = " ";
    fputc('\n', out);
}

static void csv(FILE *out, const struct chaos_told *told)
{
    const struct chaos_record *r = told->record;
    size_t i = 0, k = 0;

    fputs("seconds,what,step,samples,members\n", out);
    while (i < r->n || k < r->n_struck) {
        const struct chaos_struck *s = &r->struck[k];
        if (k == r->n_struck || (i < r->n && r->steps[i].at_ns <= s->at_ns)) {
            row_of_step(out, r, &r->steps[i++]);
            continue;
        }
        fprintf(out, "%.4f,%s,,,%u\n", since_calm(r, s->at_ns), chaos_rows[s->kind].name, s->member);
        if (s->again_ns > 0) fprintf(out, "%.4f,again,,,%u\n", since_calm(r, s->again_ns), s->member);
        k++;
    }
}

/* ---- all of it ---- */
static bool write_file(const char *path, void (*write)(FILE *out, const struct chaos_told *told),
                       const struct chaos_told *told)
{
    const bool out = strcmp(path, "-") == 0;
    FILE *file = out ? stdout : fopen(path, "we");

    if (file) write(file, told);
    if (!file || (out ? fflush(file) : fclose(file)) != 0) return chaos_say("%s can not be written", path), false;
    return true;
}

bool chaos_show(const struct chaos_told *told)
{
    const struct chaos_options *o = told->options;

    text(stdout, told);
    return (!o->csv || write_file(o->csv, csv, told)) && (!o->svg || write_file(o->svg, chaos_plot, told)) &&
           (!o->json || write_file(o->json, json, told));
}
