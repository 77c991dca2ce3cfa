/* SPDX-License-Identifier: BSD-3-Clause */
/* Draws a run as SVG: steps over time beside the undisturbed rate, a line for each blow, and below, for each group,
 * when it took part. */
#include "chaos.h"

#include <inttypes.h>
#include <math.h>

#define WIDTH 900.0
#define LEFT 70.0
#define RIGHT 20.0
#define TOP 50.0
#define HEIGHT 300.0 /* of the steps */
#define LANE 18.0    /* of a group */
#define PAUSES 3.0   /* a group stands still that has no step for so many usual times */

struct plot {
    FILE *out;
    const struct chaos_told *told;
    const struct chaos_record *record;
    double seconds, low, high; /* the axes */
};

static double at_s(const struct plot *p, uint64_t at_ns)
{
    return ((double)at_ns - (double)p->record->calm_ns) / 1e9;
}

static double x_of(const struct plot *p, double seconds)
{
    return LEFT + fmin(fmax(seconds, 0), p->seconds) / p->seconds * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct plot *p, double step)
{
    return TOP + HEIGHT - (fmin(fmax(step, p->low), p->high) - p->low) / (p->high - p->low) * HEIGHT;
}

/* 1, 2 or 5 of a power of ten: some six of it make the span. */
static double tick_of(double span)
{
    const double power = pow(10, floor(log10(span / 6))), share = span / 6 / power;
    return power * (share < 2 ? 2 : share < 5 ? 5 : 10);
}

static void grid(const struct plot *p)
{
    const double bottom = TOP + HEIGHT, x_tick = tick_of(p->seconds), y_tick = tick_of(p->high - p->low);
    for (double s = 0; s <= p->seconds; s += x_tick)
        fprintf(p->out,
                "<line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' stroke='#eee'/>\n"
                "<text x='%.1f' y='%.1f' text-anchor='middle'>%g s</text>\n",
                x_of(p, s), TOP, x_of(p, s), bottom, x_of(p, s), bottom + LANE * (p->record->n_groups + 1) + 12, s);
    for (double step = ceil(p->low / y_tick) * y_tick; step <= p->high; step += y_tick)
        fprintf(p->out,
                "<line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' stroke='#ddd'/>\n"
                "<text x='%.1f' y='%.1f' text-anchor='end'>%g</text>\n",
                LEFT, y_of(p, step), WIDTH - RIGHT, y_of(p, step), LEFT - 6, y_of(p, step) + 4, step);
}

static void blows(const struct plot *p)
{
    const struct chaos_record *r = p->record;
    for (size_t i = 0; i < r->n_struck; i++) {
        const struct chaos_struck *s = &r->struck[i];
        const bool group = chaos_rows[s->kind].whom != A_LIGHTHOUSE;
        const double x = x_of(p, at_s(p, s->at_ns)), end = TOP + HEIGHT + LANE * (group ? s->member + 1.5 : 0.2);
        fprintf(p->out,
                "<line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' stroke='#d62728' stroke-dasharray='3 2'/>\n"
                "<text x='%.1f' y='%.1f' fill='#d62728' font-size='10'>%s %u</text>\n",
                x, TOP, x, end, x + 2, TOP + 10 + (i % 2 ? 11 : 0), chaos_rows[s->kind].name, s->member);
    }
}

static void curve(const struct plot *p)
{
    const struct chaos_record *r = p->record;
    const double rate = p->told->verdict.calm_rate;
    double last = p->low;

    fprintf(p->out, "<line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' stroke='#999' stroke-dasharray='6 4'/>\n",
            x_of(p, 0), y_of(p, p->low), x_of(p, p->seconds), y_of(p, p->low + rate * p->seconds));
    fprintf(p->out, "<polyline fill='none' stroke='#1f77b4' stroke-width='2' points='");
    for (size_t i = 0; i < r->n; i++) {
        const double s = at_s(p, r->steps[i].at_ns), step = (double)r->steps[i].step;
        if (s < 0 || s > p->seconds) continue;
        fprintf(p->out, "%.1f,%.1f %.1f,%.1f ", x_of(p, s), y_of(p, last), x_of(p, s), y_of(p, step));
        last = step;
    }
    fprintf(p->out, "%.1f,%.1f'/>\n", x_of(p, p->seconds), y_of(p, last));
}

static void lane(const struct plot *p, uint32_t group)
{
    const struct chaos_record *r = p->record;
    const double y = TOP + HEIGHT + LANE * (group + 1), longest = PAUSES * p->told->verdict.calm_gap_s + 0.05;
    double from = -1, until = -1;

    fprintf(p->out, "<text x='%.1f' y='%.1f' text-anchor='end'>group %u</text>\n", LEFT - 6, y + LANE / 2 + 4, group);
    for (size_t i = 0; i <= r->n; i++) {
        const bool in = i < r->n && r->steps[i].groups >> group & 1;
        const double s = i < r->n ? at_s(p, r->steps[i].at_ns) : INFINITY;
        if (i < r->n && (!in || s < 0)) continue;
        if (until >= 0 && s - until <= longest) {
            until = s;
            continue;
        }
        if (until > from)
            fprintf(p->out, "<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' fill='#2ca02c'/>\n", x_of(p, from),
                    y + 3, x_of(p, until) - x_of(p, from), LANE - 6);
        from = until = s;
    }
}

void chaos_plot(FILE *out, const struct chaos_told *told)
{
    const struct chaos_record *r = told->record;
    const struct chaos_verdict *v = &told->verdict;
    struct plot p = {out, told, r, fmax(((double)r->end_ns - (double)r->calm_ns) / 1e9, 1e-3), 0, 1};
    const double height = TOP + HEIGHT + LANE * (r->n_groups + 2) + 10;

    for (size_t i = 0; i < r->n && r->steps[i].at_ns <= r->calm_ns; i++) p.low = (double)r->steps[i].step;
    p.high = p.low + fmax(v->calm_rate * p.seconds, 1);
    if (r->n > 0) p.high = fmax(p.high, (double)r->steps[r->n - 1].step);
    fprintf(out,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%.0f' font-family='sans-serif' "
            "font-size='12'>\n<rect width='100%%' height='100%%' fill='white'/>\n",
            WIDTH, height);
    fprintf(out,
            "<text x='%.1f' y='20' font-size='15'>steps over time: goodput %.3f of the samples, stall %.2f s in the "
            "median (seed %" PRIu64 ")</text>\n<text x='%.1f' y='38' fill='#555'>dashed: the undisturbed rate; red: "
            "blows; green: a group takes part</text>\n",
            LEFT, v->due > 0 ? v->samples / v->due : 0, v->stall_s.median, told->options->seed, LEFT);
    grid(&p);
    curve(&p);
    for (uint32_t g = 0; g < r->n_groups; g++) lane(&p, g);
    blows(&p);
    fprintf(out, "</svg>\n");
}
