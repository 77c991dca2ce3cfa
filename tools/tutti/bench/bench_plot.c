/* SPDX-License-Identifier: BSD-3-Clause */
/* Draws the points of `tutti bench --plot`: time against size, both logarithmic, one line for each collective, type and
 * operation; in place dashed. */

#include "bench.h"

#include <math.h>

#define WIDTH 900.0
#define HEIGHT 560.0
#define LEFT 80.0
#define RIGHT 230.0
#define TOP 40.0
#define BOTTOM 60.0

struct axes {
    double x_min, x_max, y_min, y_max; /* log10 */
};

static double x_of(const struct axes *a, double bytes)
{
    double span = a->x_max > a->x_min ? a->x_max - a->x_min : 1;
    return LEFT + (log10(bytes) - a->x_min) / span * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct axes *a, double us)
{
    double span = a->y_max > a->y_min ? a->y_max - a->y_min : 1;
    return HEIGHT - BOTTOM - (log10(us) - a->y_min) / span * (HEIGHT - TOP - BOTTOM);
}

static bool drawable(const struct bench_point *p, int form)
{
    return p->has[form] && p->c.bytes > 0 && p->time[form].median_us > 0;
}

static struct axes axes_of(const struct bench_point *points, size_t n)
{
    struct axes a = {INFINITY, -INFINITY, INFINITY, -INFINITY};
    for (size_t i = 0; i < n; i++) {
        for (int form = 0; form < 2; form++) {
            if (!drawable(&points[i], form)) continue;
            double x = log10((double)points[i].c.bytes), y = log10(points[i].time[form].median_us);
            a.x_min = fmin(a.x_min, x), a.x_max = fmax(a.x_max, x);
            a.y_min = fmin(a.y_min, y), a.y_max = fmax(a.y_max, y);
        }
    }
    a.y_min = floor(a.y_min), a.y_max = ceil(a.y_max);
    return a;
}

static void grid(FILE *out, const struct axes *a)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    for (int decade = (int)a->y_min; decade <= (int)a->y_max; decade++) {
        double y = y_of(a, pow(10, decade));
        fprintf(out, "<line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' stroke='#ddd'/>\n", LEFT, y, WIDTH - RIGHT, y);
        fprintf(out, "<text x='%.1f' y='%.1f' text-anchor='end'>%g us</text>\n", LEFT - 8, y + 4, pow(10, decade));
    }
    for (int exponent = 0; exponent < 40; exponent += 2) {
        double bytes = ldexp(1, exponent);
        if (log10(bytes) < a->x_min - 1e-9 || log10(bytes) > a->x_max + 1e-9) continue;
        double x = x_of(a, bytes);
        fprintf(out, "<line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' stroke='#eee'/>\n", x, TOP, x, HEIGHT - BOTTOM);
        fprintf(out, "<text x='%.1f' y='%.1f' text-anchor='middle'>%g %s</text>\n", x, HEIGHT - BOTTOM + 18,
                ldexp(1, exponent % 10), units[exponent / 10]);
    }
}

static bool same_line(const struct bench_case *a, const struct bench_case *b)
{
    return a->op == b->op && a->dtype == b->dtype && a->reduction == b->reduction;
}

struct plot {
    FILE *out;
    struct axes axes;
    const struct bench_point *points;
    size_t n;
};

static void line(const struct plot *plot, size_t first, int form, const char *colour)
{
    const struct bench_point *points = plot->points;
    fprintf(plot->out, "<polyline fill='none' stroke='%s' stroke-width='2'%s points='", colour,
            form ? " stroke-dasharray='6 4'" : "");
    for (size_t i = first; i < plot->n; i++) {
        if (!same_line(&points[i].c, &points[first].c) || !drawable(&points[i], form)) continue;
        fprintf(plot->out, "%.1f,%.1f ", x_of(&plot->axes, (double)points[i].c.bytes),
                y_of(&plot->axes, points[i].time[form].median_us));
    }
    fprintf(plot->out, "'/>\n");
}

int bench_plot(const char *path, const struct bench_point *points, size_t n)
{
    static const char *const colours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b"};
    struct axes a = axes_of(points, n);
    size_t n_lines = 0;
    FILE *out = fopen(path, "w");
    if (!out) return -1;
    fprintf(out,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%.0f' font-family='sans-serif' "
            "font-size='12'>\n<rect width='100%%' height='100%%' fill='white'/>\n",
            WIDTH, HEIGHT);
    fprintf(out, "<text x='%.1f' y='22' font-size='15'>time against size, %d ranks (in place dashed)</text>\n", LEFT,
            n ? points[0].c.n_ranks : 0);
    if (n && isfinite(a.x_min)) grid(out, &a);
    for (size_t i = 0; i < n && isfinite(a.x_min); i++) {
        bool seen = false;
        for (size_t j = 0; j < i; j++) seen = seen || same_line(&points[j].c, &points[i].c);
        if (seen) continue;
        const char *colour = colours[n_lines % (sizeof colours / sizeof colours[0])];
        for (int form = 0; form < 2; form++) line(&(struct plot){out, a, points, n}, i, form, colour);
        double y = TOP + 18 * (double)n_lines++;
        fprintf(out, "<text x='%.1f' y='%.1f' fill='%s'>%s %s%s%s</text>\n", WIDTH - RIGHT + 12, y, colour,
                points[i].c.op->info->name, tutti_dtype_name(points[i].c.dtype),
                points[i].c.op->info->reduces ? " " : "",
                points[i].c.op->info->reduces ? tutti_op_name(points[i].c.reduction) : "");
    }
    fprintf(out, "</svg>\n");
    return fclose(out);
}
