/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports of simulated training jobs: a table, JSON, a picture. */

#include "job_report.h"

#include "tools/tutti/json.h"

#include <math.h>
#include <string.h>

static const char *const parallels[TUTTI_JOB_PARALLELS] = {"data", "hsdp", "pipeline"};

static uint64_t bytes_of(const struct tutti_job *job)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < job->n_tensors; i++) bytes += job->tensors[i].bytes;
    return bytes;
}

/* NAN: nobody published it. */
static double published_at(const struct tutti_job *job, uint32_t nodes)
{
    for (uint32_t i = 0; i < job->n_published; i++)
        if (job->published[i].nodes == nodes) return job->published[i].efficiency;
    return NAN;
}

/* ---- the table ---- */

enum { WIDEST = 64 }; /* label */

static const char *percent(double share, bool possible, char out[16])
{
    if (possible && !isnan(share))
        snprintf(out, 16, "%.2f %%", 100 * share);
    else
        snprintf(out, 16, "-");
    return out;
}

static void show_point(const struct job_run *run, uint32_t i, FILE *out)
{
    const struct tutti_job_point *weak = &run->weak[i], *strong = &run->strong[i];
    char a[16], b[16], c[16];
    if (weak->possible)
        fprintf(out, "  %7u %8u %6u %11.3f %11.3f %11.3f %11.3f", weak->nodes, weak->ranks, weak->calls,
                1e3 * weak->called_s, 1e3 * weak->exposed_s, 1e3 * weak->waited_s, 1e3 * weak->step_s);
    else
        fprintf(out, "  %7u %8u %6s %11s %11s %11s %11s", weak->nodes, weak->ranks, "-", "-", "-", "-", "-");
    fprintf(out, " %10s %10s", percent(weak->efficiency, weak->possible, a),
            percent(strong->efficiency, strong->possible, b));
    if (run->job.n_published > 0) fprintf(out, " %10s", percent(published_at(&run->job, weak->nodes), true, c));
    fputc('\n', out);
}

static void show_all(const struct job_run *runs, size_t n, FILE *out)
{
    const struct tutti_job *job = &runs[0].job;
    char text[16];
    int width = 12;
    for (size_t r = 0; r < n; r++)
        if ((int)strnlen(runs[r].label, WIDEST) > width) width = (int)strnlen(runs[r].label, WIDEST);
    fprintf(out, "\n  weak efficiency by nodes\n  %-*s", width, "");
    for (uint32_t i = 0; i < job->n_nodes; i++) fprintf(out, " %8u", job->nodes[i]);
    fputc('\n', out);
    for (size_t r = 0; r < n; r++) {
        fprintf(out, "  %-*.*s", width, width, runs[r].label);
        for (uint32_t i = 0; i < job->n_nodes; i++)
            fprintf(out, " %8s", percent(runs[r].weak[i].efficiency, runs[r].weak[i].possible, text));
        fputc('\n', out);
    }
}

/* The numbers of nodes that have no efficiency, and why: their ranks make no whole shards or pipelines, or the work of
 * strong_from nodes makes no whole microbatches for each. */
static void show_impossible(const struct job_run *run, bool strong, FILE *out)
{
    const struct tutti_job *job = &run->job;
    const bool pipes = job->parallel == TUTTI_JOB_PIPELINE;
    uint32_t n = 0;
    for (uint32_t i = 0; i < job->n_nodes; i++) {
        if (run->weak[i].possible ? run->strong[i].possible || !strong : strong) continue;
        fprintf(out, "%s%u", n++ ? ", " : strong ? "\n  no strong scaling to " : "\n  nothing for ", job->nodes[i]);
    }
    if (n == 0) return;
    const char *nodes = job->n_nodes == 1 ? "node" : "nodes";
    if (strong)
        fprintf(out, " %s: %u microbatch%s of %u node%s can not be shared so\n", nodes, job->microbatches,
                job->microbatches == 1 ? "" : "es", job->strong_from, tutti_plural(job->strong_from));
    else
        fprintf(out, " %s: the ranks are no whole number of %s of %u\n", nodes, pipes ? "pipelines" : "shards",
                pipes        ? job->stages
                : job->shard ? job->shard
                             : job->ranks_per_node);
}

void job_report_show(const struct job_run *runs, size_t n, FILE *out)
{
    const struct tutti_job *job = &runs[0].job;
    fprintf(out, "%s: %s, %u tensor%s of %.3f MB, %u rank%s a node, network %s, algorithm %s\n",
            job->name[0] ? job->name : "job", parallels[job->parallel], job->n_tensors, tutti_plural(job->n_tensors),
            (double)bytes_of(job) / 1e6, job->ranks_per_node, tutti_plural(job->ranks_per_node), job->net,
            job->algorithm);
    fprintf(out, "a rank alone: %.3f ms a step\n\n", 1e3 * runs[0].weak[0].ideal_s);
    fprintf(out, "  %7s %8s %6s %11s %11s %11s %11s %10s %10s%s\n", "nodes", "ranks", "calls", "called ms",
            "exposed ms", "waited ms", "step ms", "weak", "strong", job->n_published > 0 ? "  published" : "");
    for (uint32_t i = 0; i < job->n_nodes; i++) show_point(&runs[0], i, out);
    show_impossible(&runs[0], false, out);
    show_impossible(&runs[0], true, out);
    if (n > 1) show_all(runs, n, out);
    fprintf(out,
            "\n  called: all collectives, one after another; exposed: by which they lengthen a step of equal ranks;\n"
            "  waited: by which the slowest rank does, the mean of %u steps; all but strong: weak scaling\n",
            job->steps);
}

/* ---- JSON ---- */

static void json_points(const char *name, const struct tutti_job_point *points, uint32_t n, FILE *out)
{
    fprintf(out, ",\"%s\":[", name);
    for (uint32_t i = 0; i < n; i++) {
        const struct tutti_job_point *point = &points[i];
        fprintf(out, "%s{\"nodes\":%u,\"ranks\":%u", i ? "," : "", point->nodes, point->ranks);
        if (point->possible)
            fprintf(out,
                    ",\"calls\":%u,\"ideal_ms\":%.6f,\"called_ms\":%.6f,\"exposed_ms\":%.6f,\"waited_ms\":%.6f,"
                    "\"step_ms\":%.6f,\"efficiency\":%.6f",
                    point->calls, 1e3 * point->ideal_s, 1e3 * point->called_s, 1e3 * point->exposed_s,
                    1e3 * point->waited_s, 1e3 * point->step_s, point->efficiency);
        fputc('}', out);
    }
    fputc(']', out);
}

void job_report_json(const struct job_run *runs, size_t n, FILE *out)
{
    const struct tutti_job *job = &runs[0].job;
    fprintf(out, "{\"job\":");
    tutti_json_string(out, job->name);
    fprintf(out, ",\"parallel\":\"%s\",\"tensors\":%u,\"bytes\":%llu,\"ranks_per_node\":%u,\"network\":",
            parallels[job->parallel], job->n_tensors, (unsigned long long)bytes_of(job), job->ranks_per_node);
    tutti_json_string(out, job->net);
    fprintf(out, ",\"published\":[");
    for (uint32_t i = 0; i < job->n_published; i++)
        fprintf(out, "%s{\"nodes\":%u,\"efficiency\":%.6f}", i ? "," : "", job->published[i].nodes,
                job->published[i].efficiency);
    fprintf(out, "],\"runs\":[");
    for (size_t r = 0; r < n; r++) {
        fprintf(out, "%s{\"with\":", r ? ",\n" : "");
        tutti_json_string(out, runs[r].label);
        json_points("weak", runs[r].weak, job->n_nodes, out);
        json_points("strong", runs[r].strong, job->n_nodes, out);
        fputc('}', out);
    }
    fprintf(out, "]}\n");
}

/* ---- the picture: efficiency over the logarithm of nodes; a panel for weak scaling, one for strong ---- */

enum { WIDTH = 1040, PANEL = 400, HEIGHT = 300, LEFT = 70, TOP = 60, GAP = 110, LEGEND = 18 };

struct panel {
    const struct job_run *runs;
    size_t n;
    bool strong;
    double x0, lowest; /* its left side; the efficiency at its bottom */
    FILE *out;
};

static const char *const colors[] = {"#2c6fbb", "#d9730d", "#3a7d44", "#8e44ad",
                                     "#c0392b", "#16a085", "#7f8c8d", "#b7950b"};

static const struct tutti_job_point *points_of(const struct panel *panel, size_t run)
{
    return panel->strong ? panel->runs[run].strong : panel->runs[run].weak;
}

static double x_of(const struct panel *panel, uint32_t nodes)
{
    const struct tutti_job *job = &panel->runs[0].job;
    double first = log2(job->nodes[0]), last = log2(job->nodes[job->n_nodes - 1]);
    return panel->x0 + (last > first ? PANEL * (log2(nodes) - first) / (last - first) : PANEL / 2.0);
}

static double y_of(const struct panel *panel, double efficiency)
{
    double share = (efficiency - panel->lowest) / (1 - panel->lowest);
    return TOP + HEIGHT * (1 - (share > 0 ? share : 0));
}

static void text_write(FILE *out, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '<' || *c == '>' || *c == '&' || *c >= 0x7f) /* what is no ASCII may be no UTF-8 either */
            fprintf(out, "&#%d;", *c);
        else if (*c >= 0x20)
            fputc(*c, out);
    }
}

/* The bottom is the largest of these that is below all points. */
static double bottom_of(const struct panel *panel)
{
    static const double steps[] = {0.9, 0.8, 0.5, 0};
    const struct tutti_job *job = &panel->runs[0].job;
    double least = 1;
    for (size_t r = 0; r < panel->n; r++)
        for (uint32_t i = 0; i < job->n_nodes; i++)
            if (points_of(panel, r)[i].possible) least = fmin(least, points_of(panel, r)[i].efficiency);
    for (uint32_t i = 0; i < job->n_published; i++) least = fmin(least, job->published[i].efficiency);
    size_t k = 0;
    while (k + 1 < sizeof(steps) / sizeof(steps[0]) && steps[k] > least) k++;
    return steps[k];
}

static void axes_write(const struct panel *panel)
{
    const struct tutti_job *job = &panel->runs[0].job;
    fprintf(panel->out, "<text x=\"%.1f\" y=\"%d\" font-weight=\"bold\">%s scaling</text>\n", panel->x0, TOP - 14,
            panel->strong ? "strong" : "weak");
    for (int tick = 0; tick <= 5; tick++) {
        double at = panel->lowest + (1 - panel->lowest) * tick / 5, y = y_of(panel, at);
        fprintf(panel->out,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#e4e4e4\"/><text x=\"%.1f\" y=\"%.1f\" "
                "text-anchor=\"end\" fill=\"#666666\">%.0f %%</text>\n",
                panel->x0, y, panel->x0 + PANEL, y, panel->x0 - 8, y + 4, 100 * at);
    }
    for (uint32_t i = 0; i < job->n_nodes; i++)
        fprintf(panel->out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" fill=\"#666666\">%u</text>\n",
                x_of(panel, job->nodes[i]), TOP + HEIGHT + 18, job->nodes[i]);
    fprintf(panel->out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" fill=\"#666666\">nodes of %u ranks</text>\n",
            panel->x0 + PANEL / 2.0, TOP + HEIGHT + 36, job->ranks_per_node);
}

static void run_write(const struct panel *panel, size_t run)
{
    const struct tutti_job *job = &panel->runs[0].job;
    const struct tutti_job_point *points = points_of(panel, run);
    const char *color = colors[run % (sizeof(colors) / sizeof(colors[0]))];
    fprintf(panel->out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", color);
    for (uint32_t i = 0; i < job->n_nodes; i++)
        if (points[i].possible)
            fprintf(panel->out, "%.1f,%.1f ", x_of(panel, job->nodes[i]), y_of(panel, points[i].efficiency));
    fputs("\"/>\n", panel->out);
    for (uint32_t i = 0; i < job->n_nodes; i++) {
        if (!points[i].possible) continue;
        fprintf(panel->out,
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"><title>%u nodes: %.2f %%</title></circle>\n",
                x_of(panel, job->nodes[i]), y_of(panel, points[i].efficiency), color, points[i].nodes,
                100 * points[i].efficiency);
    }
}

static void published_write(const struct panel *panel)
{
    const struct tutti_job *job = &panel->runs[0].job;
    for (uint32_t i = 0; i < job->n_published; i++) {
        double x = x_of(panel, job->published[i].nodes), y = y_of(panel, job->published[i].efficiency);
        if (x < panel->x0 - 1 || x > panel->x0 + PANEL + 1) continue;
        fprintf(panel->out,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"10\" height=\"10\" fill=\"none\" stroke=\"#000000\" "
                "stroke-width=\"2\"><title>published, %u nodes: %.2f %%</title></rect>\n",
                x - 5, y - 5, job->published[i].nodes, 100 * job->published[i].efficiency);
    }
}

static void legend_write(const struct job_run *runs, size_t n, FILE *out)
{
    int y = TOP + HEIGHT + 62;
    for (size_t r = 0; r < n; r++, y += LEGEND) {
        fprintf(
            out,
            "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"%s\" stroke-width=\"2\"/><text x=\"%d\" y=\"%d\">",
            LEFT, y, LEFT + 26, y, colors[r % (sizeof(colors) / sizeof(colors[0]))], LEFT + 34, y + 4);
        text_write(out, runs[r].label);
        fputs("</text>\n", out);
    }
    if (runs[0].job.n_published > 0)
        fprintf(
            out,
            "<rect x=\"%d\" y=\"%d\" width=\"10\" height=\"10\" fill=\"none\" stroke=\"#000000\" stroke-width=\"2\"/>"
            "<text x=\"%d\" y=\"%d\">published by others</text>\n",
            LEFT + 8, y - 5, LEFT + 34, y + 4);
}

bool job_report_svg(const struct job_run *runs, size_t n, FILE *out)
{
    int height = TOP + HEIGHT + 70 + LEGEND * ((int)n + 1);
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
            "height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n<text x=\"%d\" y=\"26\" font-size=\"16\" "
            "font-weight=\"bold\">",
            WIDTH, height, WIDTH, height, LEFT);
    text_write(out, runs[0].job.name[0] ? runs[0].job.name : "job");
    fputs(": efficiency of a step</text>\n", out);
    for (int strong = 0; strong < 2; strong++) {
        struct panel panel = {
            .runs = runs, .n = n, .strong = strong == 1, .x0 = LEFT + strong * (PANEL + GAP), .out = out};
        panel.lowest = bottom_of(&panel);
        axes_write(&panel);
        for (size_t r = 0; r < n; r++) run_write(&panel, r);
        if (!panel.strong) published_write(&panel);
    }
    legend_write(runs, n, out);
    fputs("</svg>\n", out);
    return !ferror(out);
}
