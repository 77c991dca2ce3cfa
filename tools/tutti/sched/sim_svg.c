/* SPDX-License-Identifier: BSD-3-Clause */
/* A run as SVG: a row for each rank (of many, some, evenly chosen), time from left to right, bars for what it sends,
 * what it receives and what it computes, and the critical path as a line. Bars that lie nearer than half a pixel are
 * one, so that a picture stays small whatever the run. */

#include "sim_report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 48, WIDTH = 1200, LEFT = 90, RIGHT = 30, TOP = 86, BOTTOM = 40, MOST_POINTS = 4000 };
#define LEAST 0.5 /* pixels */

struct picture {
    FILE *file;
    const struct sim_report *report;
    const struct tutti_sim_program *program;
    const struct tutti_sim_network *network;
    uint32_t n_rows;
    double row;      /* height */
    uint64_t end_ps; /* the last one's, which may be a sample's */
};

/* What a rank does: in which part of its row, in which colour. */
static const struct {
    const char *name, *colour;
    double top, height; /* parts of the row */
} lanes[] = {
    [TUTTI_SIM_SEND] = {"sends", "#2c6fbb", 0.08, 0.36},
    [TUTTI_SIM_RECV] = {"receives", "#d9730d", 0.46, 0.36},
    [TUTTI_SIM_CALC] = {"computes", "#3a7d44", 0.36, 0.18},
};

/* Names are those of users' files. */
static void escaped_write(FILE *file, const char *text)
{
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c >= 0x7f)
            fputc('?', file); /* what is no ASCII may be no UTF-8 either */
        else if (strchr("<>&\"", c))
            fprintf(file, "&#%u;", c);
        else
            fputc(c, file);
    }
}

static double x_of(const struct picture *picture, uint64_t ps)
{
    double end = picture->end_ps > 0 ? (double)picture->end_ps : 1;
    return LEFT + (WIDTH - LEFT - RIGHT) * (double)ps / end;
}

static double y_of(const struct picture *picture, double row)
{
    return TOP + picture->row * row;
}

static uint32_t rank_of(const struct picture *picture, uint32_t row)
{
    return (uint32_t)((uint64_t)row * picture->program->n_ranks / picture->n_rows);
}

/* ---- frame ---- */

static void head_write(const struct picture *picture)
{
    const struct sim_report *report = picture->report;
    const double height = y_of(picture, picture->n_rows) + BOTTOM;
    fprintf(picture->file,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
            "height=\"%.0f\" viewBox=\"0 0 %d %.0f\" font-family=\"sans-serif\" font-size=\"11\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n"
            "<text x=\"16\" y=\"24\" font-size=\"16\" font-weight=\"bold\">",
            WIDTH, height, WIDTH, height);
    escaped_write(picture->file, report->name);
    if (!report->goal)
        fprintf(picture->file, " %s, %llu bytes", tutti_kind_name(report->kind), (unsigned long long)report->bytes);
    fprintf(picture->file, ", %u rank%s, network %s: %.3f us</text>\n<text x=\"16\" y=\"42\" fill=\"#666666\">",
            report->n_ranks, tutti_plural(report->n_ranks), report->network, (double)picture->end_ps / 1e6);
    if (report->classes > 0)
        fprintf(picture->file, "%u rank%s for all %u; ", report->classes, report->classes == 1 ? " stands" : "s stand",
                report->n_ranks);
    if (report->sampled > 0)
        fprintf(picture->file, "the first %u of %u %s; ", report->sampled, report->sampled_of,
                report->by_slices ? "slices" : "rounds");
    if (picture->n_rows < picture->program->n_ranks)
        fprintf(picture->file, "%u of the ranks are shown; ", picture->n_rows);
    fprintf(picture->file, "critical path: %u message%s over %u rank%s</text>\n", report->critical.n_messages,
            tutti_plural(report->critical.n_messages), report->critical.n_ranks,
            tutti_plural(report->critical.n_ranks));
    double x = 16;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(lanes); i++, x += 90)
        fprintf(
            picture->file,
            "<rect x=\"%.0f\" y=\"52\" width=\"18\" height=\"10\" fill=\"%s\"/><text x=\"%.0f\" y=\"61\">%s</text>\n",
            x, lanes[i].colour, x + 24, lanes[i].name);
    fprintf(picture->file,
            "<line x1=\"%.0f\" y1=\"57\" x2=\"%.0f\" y2=\"57\" stroke=\"#c0272d\" stroke-width=\"2\"/>"
            "<text x=\"%.0f\" y=\"61\">critical path</text>\n",
            x, x + 18, x + 24);
}

static void axes_write(const struct picture *picture)
{
    static const char *const units[] = {"ps", "ns", "us", "ms", "s"};
    const uint64_t end = picture->end_ps;
    double scale = 1;
    size_t unit = 0;
    for (; unit + 1 < TUTTI_ARRAY_LEN(units) && (double)end >= 1000 * scale; unit++) scale *= 1000;
    const double bottom = y_of(picture, picture->n_rows);
    for (uint64_t i = 0; i <= 10; i++) {
        double x = x_of(picture, (uint64_t)((double)end / 10 * (double)i));
        fprintf(picture->file,
                "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#eeeeee\"/>"
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"#666666\">%.4g %s</text>\n",
                x, TOP, x, bottom, x, bottom + 16, (double)end / 10 * (double)i / scale, units[unit]);
    }
    for (uint32_t row = 0; row < picture->n_rows; row++) {
        double y = y_of(picture, row);
        fprintf(picture->file, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#eeeeee\"/>", LEFT, y,
                WIDTH - RIGHT, y);
        fprintf(picture->file, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">rank %u</text>\n", LEFT - 8,
                y + picture->row * 0.45 + 4, rank_of(picture, row));
    }
}

/* ---- bars ---- */

static int span_compare(const void *a, const void *b)
{
    uint64_t x = ((const struct tutti_sim_span *)a)->begin_ps, y = ((const struct tutti_sim_span *)b)->begin_ps;
    return x < y ? -1 : x > y;
}

static void bar_write(const struct picture *picture, double y, double height, double from, double to)
{
    if (to - from < LEAST) to = from + LEAST;
    fprintf(picture->file, "M%.1f %.1fh%.1fv%.1fh%.1fz", from, y, to - from, height, from - to);
}

/* One lane of a row as one path. */
static void lane_write(const struct picture *picture, uint32_t row, uint8_t type, struct tutti_sim_span *spans)
{
    const struct tutti_sim_program *program = picture->program;
    uint32_t rank = rank_of(picture, row), n = 0;
    for (uint32_t op = program->first[rank]; op < program->first[rank + 1]; op++) {
        if (program->ops[op].type != type) continue;
        spans[n] = tutti_sim_span_of(program, picture->network, &picture->report->result, op);
        if (spans[n].end_ps > spans[n].begin_ps) n++;
    }
    if (n == 0) return;
    qsort(spans, n, sizeof(*spans), span_compare);
    double y = y_of(picture, row + lanes[type].top), height = picture->row * lanes[type].height;
    double from = x_of(picture, spans[0].begin_ps), to = from;
    fprintf(picture->file, "<path fill=\"%s\" d=\"", lanes[type].colour);
    for (uint32_t i = 0; i < n; i++) {
        double begin = x_of(picture, spans[i].begin_ps), end = x_of(picture, spans[i].end_ps);
        if (begin > to + LEAST) {
            bar_write(picture, y, height, from, to);
            from = begin;
        }
        if (end > to) to = end;
    }
    bar_write(picture, y, height, from, to);
    fprintf(picture->file, "\"><title>rank %u %s</title></path>\n", rank, lanes[type].name);
}

static bool rows_write(const struct picture *picture)
{
    const struct tutti_sim_program *program = picture->program;
    uint32_t most = 1;
    for (uint32_t r = 0; r < program->n_ranks; r++)
        if (program->first[r + 1] - program->first[r] > most) most = program->first[r + 1] - program->first[r];
    struct tutti_sim_span *spans = tutti_alloc_array(most, sizeof(*spans));
    if (!spans) return false;
    for (uint32_t row = 0; row < picture->n_rows; row++)
        for (uint8_t type = TUTTI_SIM_SEND; type <= TUTTI_SIM_CALC; type++) lane_write(picture, row, type, spans);
    tutti_free(spans);
    return true;
}

/* The path passes the rows of ranks that are not shown where they would be. */
static void critical_write(const struct picture *picture)
{
    const struct tutti_sim_critical *critical = &picture->report->critical;
    const uint32_t every = critical->n / MOST_POINTS + 1;
    if (critical->n == 0) return;
    fputs("<polyline fill=\"none\" stroke=\"#c0272d\" stroke-width=\"1.5\" stroke-linejoin=\"round\" points=\"",
          picture->file);
    for (uint32_t i = 0; i < critical->n; i += every) {
        uint32_t op = critical->ops[i];
        struct tutti_sim_span span =
            tutti_sim_span_of(picture->program, picture->network, &picture->report->result, op);
        double row = (double)picture->program->ops[op].rank / picture->program->n_ranks * picture->n_rows;
        if (picture->n_rows == picture->program->n_ranks) row = picture->program->ops[op].rank;
        double y = y_of(picture, row + 0.45);
        fprintf(picture->file, "%.1f,%.1f ", x_of(picture, span.begin_ps), y);
        if (picture->program->ops[op].type != TUTTI_SIM_SEND)
            fprintf(picture->file, "%.1f,%.1f ", x_of(picture, span.end_ps), y);
    }
    fputs("\"><title>critical path</title></polyline>\n", picture->file);
}

bool sim_draw(const struct sim_report *report, const struct tutti_sim_program *program,
              const struct tutti_sim_network *network, const char *path)
{
    struct picture picture = {.report = report, .program = program, .network = network, .file = fopen(path, "w")};
    bool written = picture.file != NULL;
    for (uint32_t r = 0; r < program->n_ranks; r++)
        if (report->result.rank_end_ps[r] > picture.end_ps) picture.end_ps = report->result.rank_end_ps[r];
    picture.n_rows = program->n_ranks < MOST_ROWS ? program->n_ranks : MOST_ROWS;
    picture.row = picture.n_rows <= 16 ? 36 : 20;
    if (written) {
        head_write(&picture);
        axes_write(&picture);
        written = rows_write(&picture);
        critical_write(&picture);
        fputs("</svg>\n", picture.file);
        if (ferror(picture.file)) written = false;
        if (fclose(picture.file) != 0) written = false;
    }
    if (!written) fprintf(stderr, "tutti sched sim: cannot write %s: %s\n", path, strerror(errno));
    return written;
}
