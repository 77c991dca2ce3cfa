/* SPDX-License-Identifier: BSD-3-Clause */
/* The drawing of a bundle in a terminal. Ranks are columns and rounds are rows; a round has as many lines as it takes
 * to place its messages, copies and calls without one crossing another on a line. */

#include "sched.h"

#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum item_type { ITEM_MESSAGE, ITEM_CALL, ITEM_LOCAL };
struct item {
    enum item_type type;
    uint32_t round, from, to; /* ranks */
    uint32_t line;
    bool reduced, marked;
    char label[48];
};
struct items {
    struct item *list;
    size_t n, capacity;
};
struct glyphs {
    const char *tail, *line, *left, *right, *reduce, *rank, *open, *close, *wrong, *wrong_line;
};
static const struct glyphs unicode_glyphs = {"●", "─", "◀", "▶", "⊕", "│", "╞", "╡", "✗", "═"};
static const struct glyphs ascii_glyphs = {"o", "-", "<", ">", "+", "|", "[", "]", "!", "="};

static bool items_add(struct items *items, const struct item *item)
{
    if (items->n == items->capacity) {
        const size_t capacity = items->capacity ? 2 * items->capacity : 256;
        struct item *grown = realloc(items->list, capacity * sizeof *grown);
        if (!grown) return false;
        items->list = grown;
        items->capacity = capacity;
    }
    items->list[items->n++] = *item;
    return true;
}

static uint32_t low(const struct item *item)
{
    return item->from < item->to ? item->from : item->to;
}

static uint32_t high(const struct item *item)
{
    return item->from < item->to ? item->to : item->from;
}

/* ---- what there is to draw ---- */

static void message_make(const struct sched_bundle *bundle, uint32_t slot, const struct tutti_step *step,
                         struct item *item)
{
    char to[24] = "?";
    const struct tutti_step *recv = sched_bundle_message(bundle, step->peer, false, slot, step->fifo);
    item->type = ITEM_MESSAGE;
    item->to = step->peer;
    sched_chunks_label(step->src_buffer, step->src, step->n, item->label, sizeof item->label);
    if (recv) sched_chunks_label(recv->dst_buffer, recv->dst, recv->n, to, sizeof to);
    item->reduced = recv && recv->op == TUTTI_STEP_RECV_REDUCE;
    if (strcmp(to, item->label) == 0) return;
    tutti_append(item->label, sizeof item->label, ":%s", to);
}

static void local_make(const struct tutti_step *step, struct item *item)
{
    char src[20], dst[20];
    sched_chunks_label(step->src_buffer, step->src, step->n, src, sizeof src);
    sched_chunks_label(step->dst_buffer, step->dst, step->n, dst, sizeof dst);
    item->type = ITEM_LOCAL;
    snprintf(item->label, sizeof item->label, "%s%s%s", dst, step->op == TUTTI_STEP_REDUCE ? "+=" : "=", src);
}

/* Drawn once, by the first of its ranks. */
static bool call_make(const struct tutti_schedule *schedule, uint32_t slot, const struct tutti_step *step,
                      struct item *item)
{
    const struct tutti_lane_call *call = &schedule->calls[step->peer];
    char chunks[24];
    if (slot != call->view.base) return false;
    sched_chunks_label(TUTTI_DATA, step->dst, step->n, chunks, sizeof chunks);
    item->type = ITEM_CALL;
    item->to = call->view.base + (call->view.size - 1) * call->view.stride;
    snprintf(item->label, sizeof item->label, "%s %s%s", tutti_kind_name(call->kind), chunks,
             call->view.stride > 1 ? " *" : "");
    return true;
}

/* A receive that no send meets, as a message that does not come. */
static void awaited_make(const struct tutti_step *step, uint32_t slot, struct item *item)
{
    item->type = ITEM_MESSAGE;
    item->from = step->peer, item->to = slot;
    item->reduced = step->op == TUTTI_STEP_RECV_REDUCE;
    snprintf(item->label, sizeof item->label, "none");
}

/* Whether the step is the marked one, or the other side of its message. */
static bool is_marked(const struct sched_bundle *bundle, struct sched_mark mark, uint32_t slot,
                      const struct tutti_step *step)
{
    if (mark.rank >= bundle->n || mark.step >= bundle->slots[mark.rank]->n_steps) return false;
    const struct tutti_step *marked = &bundle->slots[mark.rank]->steps[mark.step];
    if (step == marked) return true;
    return step->op == TUTTI_STEP_SEND && tutti_step_receives(marked) && step->peer == mark.rank &&
           marked->peer == slot && marked->fifo == step->fifo;
}

static bool items_collect(const struct sched_bundle *bundle, struct sched_mark mark, struct items *items)
{
    for (uint32_t s = 0; s < bundle->n; s++) {
        const struct tutti_schedule *schedule = bundle->slots[s];
        for (uint32_t i = 0; i < schedule->n_steps; i++) {
            const struct tutti_step *step = &schedule->steps[i];
            struct item item = {.round = step->round, .from = s, .to = s};
            item.marked = is_marked(bundle, mark, s, step);
            if (tutti_step_receives(step)) {
                if (step->peer >= bundle->n || sched_bundle_message(bundle, step->peer, true, s, step->fifo)) continue;
                awaited_make(step, s, &item);
            }
            if (step->op == TUTTI_STEP_SEND) message_make(bundle, s, step, &item);
            if (step->op == TUTTI_STEP_COPY || step->op == TUTTI_STEP_REDUCE) local_make(step, &item);
            if (step->op == TUTTI_STEP_CALL && !call_make(schedule, s, step, &item)) continue;
            if (!items_add(items, &item)) return false;
        }
    }
    return true;
}

/* ---- where it goes ---- */

/* By round; in a round short arrows first, then from left to right. */
static int by_place(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    const uint32_t keys[][2] = {{x->round, y->round},
                                {x->type == ITEM_LOCAL, y->type == ITEM_LOCAL},
                                {high(x) - low(x), high(y) - low(y)},
                                {low(x), low(y)}};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(keys); i++) {
        if (keys[i][0] != keys[i][1]) return keys[i][0] < keys[i][1] ? -1 : 1;
    }
    return 0;
}

/* Gives each item of a round the first line where its ranks are free; local steps come on lines of their own, after
 * the messages. Returns the number of lines. */
static uint32_t round_place(struct item *items, size_t n)
{
    uint32_t lines = 0, first_local = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        if (items[i].type == ITEM_LOCAL && first_local == UINT32_MAX) first_local = lines;
        uint32_t line = items[i].type == ITEM_LOCAL ? first_local : 0;
        for (size_t j = 0; j < i; j++) {
            const bool meet = low(&items[j]) <= high(&items[i]) && low(&items[i]) <= high(&items[j]);
            if (items[j].line != line || !meet) continue;
            line++; /* look again from the start */
            j = (size_t)-1;
        }
        items[i].line = line;
        if (line + 1 > lines) lines = line + 1;
    }
    return lines;
}

/* Columns between two ranks: what the widest label needs. */
static uint32_t width_of(const struct items *items)
{
    size_t width = 6;
    for (size_t i = 0; i < items->n; i++) {
        const struct item *item = &items->list[i];
        const uint32_t ranks = high(item) - low(item);
        const size_t label = strlen(item->label), room = item->type == ITEM_LOCAL ? 1 : 4;
        const size_t needed = ranks ? (label + room + ranks - 1) / ranks : label + room;
        if (needed > width) width = needed;
    }
    return (uint32_t)width;
}

/* ---- a line ---- */

struct canvas {
    const struct glyphs *glyphs;
    uint32_t ranks, width; /* columns of a rank */
    const char **cells;    /* one line's */
};

static void put(const char **cells, uint32_t at, const char *glyph)
{
    cells[at] = glyph;
}

/* Each character of the text needs a string of its own; one table of them serves all. */
static const char *letter(char c)
{
    static char letters[128][2];
    letters[c & 127][0] = (char)(c & 127);
    return letters[c & 127];
}

static void put_text(const char **cells, uint32_t at, const char *text)
{
    for (uint32_t i = 0; text[i]; i++) put(cells, at + i, letter(text[i]));
}

static void item_put(const struct canvas *canvas, const struct item *item)
{
    const char **cells = canvas->cells;
    const struct glyphs *glyphs = canvas->glyphs;
    const uint32_t width = canvas->width;
    const uint32_t a = low(item) * width + width / 2, b = high(item) * width + width / 2;
    const uint32_t label = (uint32_t)strlen(item->label);
    if (item->type == ITEM_LOCAL || a == b) {
        const uint32_t begin = a > label / 2 ? a - label / 2 : 0;
        put_text(cells, begin, item->label);
        if (item->marked && begin > 0) put(cells, begin - 1, glyphs->wrong);
        return;
    }
    for (uint32_t x = a; x <= b; x++) put(cells, x, item->marked ? glyphs->wrong_line : glyphs->line);
    put_text(cells, (a + b + 1) / 2 - label / 2, item->label);
    if (item->marked) put(cells, (a + b + 1) / 2 - label / 2 - 1, glyphs->wrong);
    if (item->type == ITEM_CALL) {
        put(cells, a, glyphs->open);
        put(cells, b, glyphs->close);
        return;
    }
    const bool rightwards = item->from < item->to;
    const char *head = item->reduced ? glyphs->reduce : rightwards ? glyphs->right : glyphs->left;
    put(cells, rightwards ? a : b, glyphs->tail);
    put(cells, rightwards ? b : a, head);
}

/* Line `line` of a round's items; none: the ranks alone. */
static void line_print(const struct canvas *canvas, const char *margin, const struct item *items, size_t n,
                       uint32_t line)
{
    const uint32_t columns = canvas->ranks * canvas->width;
    for (uint32_t x = 0; x < columns; x++) put(canvas->cells, x, " ");
    for (uint32_t r = 0; r < canvas->ranks; r++) {
        put(canvas->cells, r * canvas->width + canvas->width / 2, canvas->glyphs->rank);
    }
    for (size_t i = 0; i < n; i++) {
        if (items[i].line == line) item_put(canvas, &items[i]);
    }
    printf("%-9s", margin);
    uint32_t used = columns;
    while (used > 0 && canvas->cells[used - 1][0] == ' ') used--;
    for (uint32_t x = 0; x < used; x++) fputs(canvas->cells[x], stdout);
    putchar('\n');
}

static void round_print(const struct canvas *canvas, struct item *items, size_t n, uint32_t n_rounds)
{
    const uint32_t lines = round_place(items, n);
    char margin[24] = "end";
    if (items[0].round < n_rounds) snprintf(margin, sizeof margin, "round %u", items[0].round);
    line_print(canvas, "", NULL, 0, 0);
    for (uint32_t line = 0; line < lines; line++) line_print(canvas, line ? "" : margin, items, n, line);
}

static void head_print(uint32_t ranks, uint32_t width, struct sched_mark mark, const struct glyphs *glyphs)
{
    printf("%-9s", "rank");
    for (uint32_t r = 0; r < ranks; r++) {
        char number[12];
        const int length = snprintf(number, sizeof number, "%u", r), before = (int)width / 2 - length / 2;
        const bool marked = r == mark.rank && before > 0;
        printf("%*s%s%s%*s", before - marked, "", marked ? glyphs->wrong : "", number, (int)width - before - length,
               "");
    }
    putchar('\n');
}

static void legend_print(const struct items *items, const struct glyphs *g)
{
    bool seen[3] = {false}, reduced = false, moved = false, marked = false;
    for (size_t i = 0; i < items->n; i++) {
        seen[items->list[i].type] = true;
        reduced = reduced || items->list[i].reduced;
        moved = moved || strchr(items->list[i].label, ':');
        marked = marked || items->list[i].marked;
    }
    printf("\n");
    if (seen[ITEM_MESSAGE]) printf("%s%s3%s%s chunk 3 is sent and stored", g->tail, g->line, g->line, g->right);
    if (reduced) printf("   %s%s3%s%s and reduced into chunk 3", g->tail, g->line, g->line, g->reduce);
    if (moved) printf("   3:s1 chunk 3 (i3: of the input), stored as scratch 1");
    if (seen[ITEM_LOCAL]) printf("   0=s1 copied, 0+=s1 reduced");
    if (marked) printf("   %s the step that is told of", g->wrong);
    if (seen[ITEM_CALL])
        printf("   %s%s%s a collective of these ranks (*: of some in between)", g->open, g->line, g->close);
    printf("\n");
}

bool sched_unicode(void)
{
    setlocale(LC_CTYPE, "");
    const char *codeset = nl_langinfo(CODESET);
    const bool unicode = strcmp(codeset, "UTF-8") == 0;
    setlocale(LC_CTYPE, "C");
    return unicode;
}

void sched_draw_grid(const struct sched_bundle *bundle, struct sched_mark mark, bool unicode)
{
    struct canvas canvas = {.glyphs = unicode ? &unicode_glyphs : &ascii_glyphs, .ranks = bundle->n};
    struct items items = {0};
    if (!items_collect(bundle, mark, &items)) goto err_items;
    canvas.width = width_of(&items);
    canvas.cells = malloc(((size_t)bundle->n * canvas.width + 1) * sizeof *canvas.cells);
    if (!canvas.cells) goto err_items;
    if (items.n) qsort(items.list, items.n, sizeof *items.list, by_place);
    head_print(bundle->n, canvas.width, mark, canvas.glyphs);
    for (size_t first = 0, end = 0; first < items.n; first = end) {
        while (end < items.n && items.list[end].round == items.list[first].round) end++;
        round_print(&canvas, items.list + first, end - first, bundle->slots[0]->n_rounds);
    }
    legend_print(&items, canvas.glyphs);
err_items:
    free(canvas.cells);
    free(items.list);
}
