/* SPDX-License-Identifier: BSD-3-Clause */
/* A bundle as SVG: a vertical line for each rank, rounds downwards, a slanted arrow for each message (blue: stored,
 * orange: reduced), a dot for each copy or reduction. Each shape has a title that says what it is, which browsers show
 * under the pointer. */

#include "sched.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define WRONG "#c92a2a" /* the step that is marked */

enum { LEFT = 70, TOP = 92, BOTTOM = 40, HEIGHT = 900, LEAST_UNIT = 12, MOST_UNIT = 110, MOST_LABELS = 600 };

struct picture {
    FILE *file;
    const struct sched_bundle *bundle;
    struct sched_mark mark;
    uint32_t n_rounds;
    double column, unit; /* pixels between ranks, and of a round */
    bool labels;
};

/* Names come from users' plug-ins. */
static void escaped_write(FILE *file, const char *text)
{
    static const char *const names[256] = {['<'] = "&lt;", ['>'] = "&gt;", ['&'] = "&amp;", ['"'] = "&quot;"};
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (names[c])
            fputs(names[c], file);
        else if (c >= 0x20)
            fputc(c, file);
    }
}

static double x_of(const struct picture *picture, uint32_t rank)
{
    return LEFT + picture->column * (rank + 0.5);
}

static double y_of(const struct picture *picture, double round)
{
    return TOP + picture->unit * round;
}

static void head_write(const struct picture *picture)
{
    const struct tutti_schedule *first = picture->bundle->slots[0];
    const double width = LEFT + picture->column * picture->bundle->n + 30;
    const double height = y_of(picture, picture->n_rounds) + BOTTOM;
    char levels[96];
    fprintf(picture->file,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
            "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"11\">\n",
            width < 480 ? 480 : width, height, width < 480 ? 480 : width, height);
    fputs("<defs>\n", picture->file);
    static const char *const markers[][2] = {{"store", "#2c6fbb"}, {"reduce", "#d9730d"}, {"wrong", WRONG}};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(markers); i++) {
        fprintf(picture->file,
                "<marker id=\"%s\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" "
                "orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\" fill=\"%s\"/></marker>\n",
                markers[i][0], markers[i][1]);
    }
    fputs("</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n<text x=\"16\" y=\"24\" font-size=\"16\" "
          "font-weight=\"bold\">",
          picture->file);
    escaped_write(picture->file, first->algorithm->name);
    fprintf(picture->file, " %s, %u rank%s", tutti_kind_name(first->kind), picture->bundle->n,
            tutti_plural(picture->bundle->n));
    if (tutti_kind_info(first->kind)->rooted) fprintf(picture->file, ", root %u", first->shape.root);
    tutti_shape_levels_text(&first->shape, levels, sizeof levels);
    if (levels[0]) fprintf(picture->file, ", levels %s", levels);
    fprintf(picture->file, "</text>\n<text x=\"16\" y=\"42\" fill=\"#666666\">%u chunk%s, %u round%s</text>\n",
            first->n_chunks, first->n_chunks == 1 ? "" : "s", first->n_rounds, first->n_rounds == 1 ? "" : "s");
    fputs("<g><line x1=\"16\" y1=\"56\" x2=\"46\" y2=\"56\" stroke=\"#2c6fbb\" marker-end=\"url(#store)\"/>"
          "<text x=\"52\" y=\"60\">stored</text><line x1=\"110\" y1=\"56\" x2=\"140\" y2=\"56\" stroke=\"#d9730d\" "
          "marker-end=\"url(#reduce)\"/><text x=\"146\" y=\"60\">reduced</text><circle cx=\"214\" cy=\"56\" r=\"3\" "
          "fill=\"#3a7d44\"/><text x=\"222\" y=\"60\">copy or reduction</text></g>\n",
          picture->file);
}

/* A line for each round, and for each rank. */
static void axes_write(const struct picture *picture)
{
    const double right = LEFT + picture->column * picture->bundle->n;
    const uint32_t every = picture->n_rounds > 200 ? 10 : 1;
    for (uint32_t t = 0; t <= picture->n_rounds; t += every) {
        fprintf(picture->file,
                "<line x1=\"%d\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#eeeeee\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" fill=\"#999999\">%u</text>\n",
                LEFT, y_of(picture, t), right, y_of(picture, t), LEFT - 10, y_of(picture, t) + 4, t);
    }
    for (uint32_t r = 0; r < picture->bundle->n; r++) {
        const double x = x_of(picture, r);
        fprintf(picture->file,
                "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>"
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" font-weight=\"bold\">%u</text>\n",
                x, TOP - 8, x, y_of(picture, picture->n_rounds) + 8, r == picture->mark.rank ? WRONG : "#bbbbbb", x,
                TOP - 14, r);
    }
}

static bool is_marked(const struct picture *picture, uint32_t slot, const struct tutti_step *step)
{
    return slot == picture->mark.rank && (uint32_t)(step - picture->bundle->slots[slot]->steps) == picture->mark.step;
}

static void message_write(const struct picture *picture, uint32_t slot, const struct tutti_step *send)
{
    const struct tutti_step *recv = sched_bundle_message(picture->bundle, send->peer, false, slot, send->fifo);
    const double x1 = x_of(picture, slot), y1 = y_of(picture, send->round);
    const double x2 = x_of(picture, send->peer), y2 = y_of(picture, send->round + 0.8);
    const bool reduced = recv && recv->op == TUTTI_STEP_RECV_REDUCE;
    const bool marked = is_marked(picture, slot, send) || (recv && is_marked(picture, send->peer, recv));
    const char *color = marked ? WRONG : reduced ? "#d9730d" : "#2c6fbb";
    char src[24], dst[24] = "?";
    sched_chunks_label(send->src_buffer, send->src, send->n, src, sizeof src);
    if (recv) sched_chunks_label(recv->dst_buffer, recv->dst, recv->n, dst, sizeof dst);
    fprintf(picture->file,
            "<g><title>round %u: rank %u sends %s, rank %u %s %s</title><line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
            "y2=\"%.1f\" stroke=\"%s\" stroke-width=\"%d\" marker-end=\"url(#%s)\"/>",
            send->round, slot, src, send->peer, reduced ? "reduces it into" : "stores it as", dst, x1, y1, x2, y2,
            color, marked ? 3 : 1,
            marked    ? "wrong"
            : reduced ? "reduce"
                      : "store");
    if (picture->labels) {
        /* Near the sender, where arrows to different ranks are apart; a white rim lifts it off the lines. */
        fprintf(picture->file,
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"9\" fill=\"%s\" stroke=\"#ffffff\" "
                "stroke-width=\"2.5\" paint-order=\"stroke\">%s</text>",
                x1 + (x2 - x1) * 0.32, y1 + (y2 - y1) * 0.32 + 3, color, src);
    }
    fputs("</g>\n", picture->file);
}

static void local_write(const struct picture *picture, uint32_t slot, const struct tutti_step *step)
{
    char src[24], dst[24];
    sched_chunks_label(step->src_buffer, step->src, step->n, src, sizeof src);
    sched_chunks_label(step->dst_buffer, step->dst, step->n, dst, sizeof dst);
    fprintf(picture->file,
            "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"><title>round %u: rank %u %s %s %s "
            "%s</title></circle>\n",
            x_of(picture, slot), y_of(picture, step->round + 0.9), is_marked(picture, slot, step) ? WRONG : "#3a7d44",
            step->round, slot, step->op == TUTTI_STEP_COPY ? "copies" : "reduces", src,
            step->op == TUTTI_STEP_COPY ? "to" : "into", dst);
}

static void body_write(const struct picture *picture)
{
    for (uint32_t s = 0; s < picture->bundle->n; s++) {
        const struct tutti_schedule *schedule = picture->bundle->slots[s];
        for (uint32_t i = 0; i < schedule->n_steps; i++) {
            const struct tutti_step *step = &schedule->steps[i];
            if (step->op == TUTTI_STEP_SEND && step->peer < picture->bundle->n) message_write(picture, s, step);
            if (step->op == TUTTI_STEP_COPY || step->op == TUTTI_STEP_REDUCE) local_write(picture, s, step);
        }
    }
}

bool sched_draw_svg(const struct tutti_args *spec, const struct sched_bundle *bundle, struct sched_mark mark,
                    const char *path)
{
    struct picture picture = {.bundle = bundle, .mark = mark, .file = fopen(path, "w")};
    uint64_t n_messages = 0;
    bool written = picture.file != NULL;
    for (uint32_t s = 0; s < bundle->n; s++) {
        for (uint32_t i = 0; i < bundle->slots[s]->n_steps; i++) {
            const struct tutti_step *step = &bundle->slots[s]->steps[i];
            n_messages += step->op == TUTTI_STEP_SEND;
            if (step->round >= picture.n_rounds) picture.n_rounds = step->round + 1;
        }
    }
    picture.column = bundle->n <= 16 ? 72 : bundle->n <= 64 ? 36 : 14;
    picture.unit = HEIGHT / (picture.n_rounds + 0.1);
    picture.unit = picture.unit > MOST_UNIT ? MOST_UNIT : picture.unit < LEAST_UNIT ? LEAST_UNIT : picture.unit;
    picture.labels = n_messages <= MOST_LABELS;
    if (written) {
        head_write(&picture);
        axes_write(&picture);
        body_write(&picture);
        fputs("</svg>\n", picture.file);
        written = !ferror(picture.file);
        if (fclose(picture.file) != 0) written = false;
    }
    if (!written) fprintf(stderr, "%s: cannot write %s: %s\n", spec->command, path, strerror(errno));
    return written;
}
