/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans: steps of all slots as data, their text, and how they are emitted. One table says which fields a statement has;
 * the reader and the writer both follow it. */

#include "sched/plan.h"

#include "sched/emit.h"

#include <string.h>

/* ---- steps ---- */

enum tutti_status tutti_plan_init(struct tutti_plan *plan, enum tutti_kind kind, uint32_t n_slots, uint32_t n_chunks,
                                  uint32_t n_scratch)
{
    *plan = (struct tutti_plan){.kind = kind, .n_slots = n_slots, .n_chunks = n_chunks, .n_scratch = n_scratch};
    if (n_slots == 0 || n_slots > TUTTI_MAX_CHUNKS)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "a plan of %u slots: there may be 1 to %u", n_slots, TUTTI_MAX_CHUNKS);
    if (n_chunks == 0 || n_chunks > TUTTI_MAX_CHUNKS || n_scratch > TUTTI_MAX_CHUNKS)
        return tutti_fail(TUTTI_ERR_ARGUMENT,
                          "a plan of %u chunks and %u of SCRATCH: there may be 1 to %u, and 0 to %u", n_chunks,
                          n_scratch, TUTTI_MAX_CHUNKS, TUTTI_MAX_CHUNKS);
    plan->first = tutti_alloc_array((size_t)n_slots + 1, sizeof(*plan->first));
    return plan->first ? TUTTI_OK : tutti_fail(TUTTI_ERR_MEMORY, "no memory for a plan of %u slots", n_slots);
}

void tutti_plan_fini(struct tutti_plan *plan)
{
    tutti_free(plan->steps);
    tutti_free(plan->first);
    *plan = (struct tutti_plan){0};
}

enum tutti_status tutti_plan_add(struct tutti_plan *plan, const struct tutti_plan_step *step)
{
    if (step->slot >= plan->n_slots)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "slot %u, where there are %u", step->slot, plan->n_slots);
    if (step->round >= TUTTI_MAX_STEPS || plan->n_steps == TUTTI_PLAN_MOST_STEPS)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "more than %u rounds or %u steps", TUTTI_MAX_STEPS,
                          TUTTI_PLAN_MOST_STEPS);
    if (plan->n_steps == plan->capacity) {
        uint32_t capacity = plan->capacity ? 2 * plan->capacity : 64;
        struct tutti_plan_step *grown = tutti_alloc_array(capacity, sizeof(*grown));
        if (!grown) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %u steps of a plan", capacity);
        if (plan->n_steps > 0) memcpy(grown, plan->steps, plan->n_steps * sizeof(*grown));
        tutti_free(plan->steps);
        plan->steps = grown;
        plan->capacity = capacity;
    }
    plan->steps[plan->n_steps++] = *step;
    if (step->round >= plan->n_rounds) plan->n_rounds = step->round + 1;
    return TUTTI_OK;
}

/* Sorts by counting, which keeps the order within a slot. */
enum tutti_status tutti_plan_seal(struct tutti_plan *plan)
{
    struct tutti_plan_step *sorted = tutti_alloc_array(plan->n_steps ? plan->n_steps : 1, sizeof(*sorted));
    if (!sorted) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for %u steps of a plan", plan->n_steps);
    memset(plan->first, 0, ((size_t)plan->n_slots + 1) * sizeof(*plan->first));
    for (uint32_t i = 0; i < plan->n_steps; i++) plan->first[plan->steps[i].slot + 1]++;
    for (uint32_t s = 0; s < plan->n_slots; s++) plan->first[s + 1] += plan->first[s];
    for (uint32_t i = 0; i < plan->n_steps; i++) sorted[plan->first[plan->steps[i].slot]++] = plan->steps[i];
    for (uint32_t s = plan->n_slots; s > 0; s--) plan->first[s] = plan->first[s - 1];
    plan->first[0] = 0;
    tutti_free(plan->steps);
    plan->steps = sorted;
    plan->capacity = plan->n_steps;
    return TUTTI_OK;
}

/* The first step of the slot that is not of an earlier round. */
static uint32_t begin_of(const struct tutti_plan *plan, uint32_t slot, uint32_t round)
{
    uint32_t low = plan->first[slot], high = plan->first[slot + 1];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (plan->steps[middle].round < round)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void emit_step(const struct tutti_plan_step *s, struct tutti_emit *emit)
{
    enum tutti_buffer dst = (enum tutti_buffer)s->dst_buffer, src = (enum tutti_buffer)s->src_buffer;
    enum tutti_side side = (enum tutti_side)s->side;
    emit->extents.like = s->like;
    switch ((enum tutti_step_op)s->op) {
    case TUTTI_STEP_SEND:
        tutti_emit_send(emit, s->peer, src, s->src, s->n);
        break;
    case TUTTI_STEP_RECV:
        tutti_emit_recv(emit, s->peer, dst, s->dst, s->n);
        break;
    case TUTTI_STEP_RECV_REDUCE:
        tutti_emit_recv_reduce(emit, s->peer, dst, s->dst, s->n, side);
        break;
    case TUTTI_STEP_COPY:
        tutti_emit_copy(emit, dst, s->dst, src, s->src, s->n);
        break;
    case TUTTI_STEP_REDUCE:
        tutti_emit_reduce(emit, dst, s->dst, src, s->src, s->n, side);
        break;
    case TUTTI_STEP_CALL:
        tutti_emit_call(emit, s->kind, &s->view);
        break;
    }
    emit->extents.like = 0;
}

void tutti_plan_emit(const struct tutti_plan *plan, uint32_t slot, uint32_t round, struct tutti_emit *emit)
{
    uint32_t end = plan->first[slot + 1];
    for (uint32_t i = begin_of(plan, slot, round); i < end && plan->steps[i].round == round; i++)
        emit_step(&plan->steps[i], emit);
}

/* ---- text ---- */

/* Fields by letter: p peer; D d destination's buffer and chunk; S s source's; n; x side; k kind; 0 to 6 of the view. */
static const struct statement {
    const char *word, *fields;
} statements[] = {
    [TUTTI_STEP_SEND] = {"send", "pSsn"},
    [TUTTI_STEP_RECV] = {"recv", "pDdn"},
    [TUTTI_STEP_RECV_REDUCE] = {"recv_reduce", "pDdnx"},
    [TUTTI_STEP_COPY] = {"copy", "DdSsn"},
    [TUTTI_STEP_REDUCE] = {"reduce", "DdSsnx"},
    [TUTTI_STEP_CALL] = {"call", "k0123456"},
};
static const char *const buffers[] = {[TUTTI_DATA] = "data", [TUTTI_SCRATCH] = "scratch", [TUTTI_IN] = "in"};
static const char *const sides[] = {[TUTTI_RIGHT] = "right", [TUTTI_LEFT] = "left"};

/* The field that is a number. */
static uint32_t *number_of(struct tutti_plan_step *s, char field)
{
    struct tutti_view *v = &s->view;
    uint32_t *const of_view[] = {&v->base, &v->stride, &v->size, &v->chunk, &v->n_chunks, &v->width, &v->root};
    if (field >= '0' && field <= '6') return of_view[field - '0'];
    return field == 'p' ? &s->peer : field == 'd' ? &s->dst : field == 's' ? &s->src : &s->n;
}

/* The field that is a word of a list; NULL: it is none. */
static uint8_t *word_of(struct tutti_plan_step *s, char field, const char *const **list, uint32_t *n)
{
    *list = field == 'x' ? sides : buffers;
    *n = field == 'x' ? TUTTI_ARRAY_LEN(sides) : TUTTI_ARRAY_LEN(buffers);
    return field == 'x' ? &s->side : field == 'D' ? &s->dst_buffer : field == 'S' ? &s->src_buffer : NULL;
}

enum { MOST_LINE = 200 };

struct text {
    const char *name;
    uint32_t line;
    char copy[MOST_LINE]; /* the line at hand, cut into words */
    char *at;
};

#define REFUSE(text, ...) tutti_fail_at((text)->name, (text)->line, __VA_ARGS__)

/* The next word of the line; "" at its end. */
static const char *next_word(struct text *text)
{
    char *word = text->at + strspn(text->at, " \t\r"), *end = word + strcspn(word, " \t\r");
    text->at = *end ? end + 1 : end;
    *end = '\0';
    return word;
}

static enum tutti_status read_number(struct text *text, const char *what, uint32_t *out)
{
    const char *word = next_word(text);
    uint64_t value = 0;
    size_t n = strlen(word);
    for (size_t i = 0; i < n && n <= 10; i++) {
        if (word[i] < '0' || word[i] > '9') return REFUSE(text, "'%s' where %s is expected", word, what);
        value = 10 * value + (uint64_t)(word[i] - '0');
    }
    if (n == 0) return REFUSE(text, "the line ends where %s is expected", what);
    if (n > 10 || value > UINT32_MAX) return REFUSE(text, "%s %s is too large", what, word);
    *out = (uint32_t)value;
    return TUTTI_OK;
}

static enum tutti_status read_choice(struct text *text, const char *const *list, uint32_t n, uint8_t *out)
{
    const char *word = next_word(text);
    for (uint32_t i = 0; i < n; i++) {
        *out = (uint8_t)i;
        if (strcmp(word, list[i]) == 0) return TUTTI_OK;
    }
    return REFUSE(text, "'%s' where %s or %s is expected", word, list[0], list[1]);
}

static enum tutti_status read_kind(struct text *text, enum tutti_kind *out)
{
    const char *word = next_word(text);
    return tutti_kind_parse(word, out) ? TUTTI_OK : REFUSE(text, "there is no kind '%s'", word);
}

static enum tutti_status read_end(struct text *text)
{
    const char *word = next_word(text);
    return *word ? REFUSE(text, "'%s' where the line should end", word) : TUTTI_OK;
}

static enum tutti_status read_fields(struct text *text, const char *fields, struct tutti_plan_step *step)
{
    static const char *const names[] = {['p'] = "a peer", ['d'] = "a chunk", ['s'] = "a chunk", ['n'] = "a number"};
    const char *const *list;
    uint32_t n;
    for (; *fields; fields++) {
        uint8_t *word = word_of(step, *fields, &list, &n);
        const char *what = *fields >= 'd' ? names[(unsigned char)*fields] : "a number";
        if (*fields == 'k')
            TUTTI_TRY(read_kind(text, &step->kind));
        else if (word)
            TUTTI_TRY(read_choice(text, list, n, word));
        else
            TUTTI_TRY(read_number(text, what, number_of(step, *fields)));
    }
    return read_end(text);
}

/* plan KIND slots N chunks N scratch N */
static enum tutti_status read_head(struct text *text, struct tutti_plan *plan)
{
    static const char *const words[] = {"slots", "chunks", "scratch"};
    uint32_t numbers[TUTTI_ARRAY_LEN(words)];
    enum tutti_kind kind;
    TUTTI_TRY(read_kind(text, &kind));
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(words); i++) {
        const char *word = next_word(text);
        if (strcmp(word, words[i]) != 0) return REFUSE(text, "'%s' where '%s' is expected", word, words[i]);
        TUTTI_TRY(read_number(text, "a number", &numbers[i]));
    }
    TUTTI_TRY(read_end(text));
    if (tutti_plan_init(plan, kind, numbers[0], numbers[1], numbers[2]) >= 0) return TUTTI_OK;
    return REFUSE(text, "%s", tutti_last_error()->text);
}

/* A line that is not empty. */
static enum tutti_status read_line(struct text *text, const char *verb, struct tutti_plan *plan,
                                   struct tutti_plan_step *step)
{
    if (strcmp(verb, "round") == 0) {
        step->round++;
        return read_end(text);
    }
    if (strcmp(verb, "slot") == 0) {
        TUTTI_TRY(read_number(text, "a slot", &step->slot));
        if (step->slot >= plan->n_slots) return REFUSE(text, "slot %u, where there are %u", step->slot, plan->n_slots);
        step->round = 0;
        return read_end(text);
    }
    for (uint8_t op = 0; op < TUTTI_ARRAY_LEN(statements); op++) {
        if (strcmp(verb, statements[op].word) != 0) continue;
        struct tutti_plan_step own = {.op = op, .slot = step->slot, .round = step->round};
        if (own.slot >= plan->n_slots) return REFUSE(text, "'%s' before the first slot", verb);
        TUTTI_TRY(read_fields(text, statements[op].fields, &own));
        return tutti_plan_add(plan, &own) < 0 ? REFUSE(text, "%s", tutti_last_error()->text) : TUTTI_OK;
    }
    return REFUSE(text, "there is no statement '%s'", verb);
}

enum tutti_status tutti_plan_read(const char *name, const char *text, size_t bytes, struct tutti_plan *out)
{
    const char *const text_end = text + bytes;
    struct text lines = {.name = name};
    struct tutti_plan_step step = {.slot = UINT32_MAX}; /* where the text is */
    enum tutti_status status = TUTTI_OK;
    *out = (struct tutti_plan){0};
    while (text < text_end && status >= 0) {
        const char *end = memchr(text, '\n', (size_t)(text_end - text));
        size_t n = (size_t)((end ? end : text_end) - text);
        lines.line++;
        lines.at = lines.copy;
        if (n >= MOST_LINE || memchr(text, 0, n)) {
            status = REFUSE(&lines, "a line of more than %d characters, or with a zero byte", MOST_LINE - 1);
            break;
        }
        memcpy(lines.copy, text, n);
        lines.copy[n] = '\0';
        lines.copy[strcspn(lines.copy, "#")] = '\0';
        text = end ? end + 1 : text_end;
        const char *verb = next_word(&lines);
        if (!*verb) continue;
        if (out->n_slots > 0)
            status = read_line(&lines, verb, out, &step);
        else
            status = strcmp(verb, "plan") == 0 ? read_head(&lines, out) : REFUSE(&lines, "'%s' before 'plan'", verb);
    }
    if (status >= 0 && out->n_slots == 0) status = REFUSE(&lines, "%s", "there is no plan in it");
    if (status >= 0) status = tutti_plan_seal(out);
    if (status < 0) tutti_plan_fini(out);
    return status;
}

static void write_step(const struct tutti_plan_step *step, FILE *file)
{
    struct tutti_plan_step s = *step;
    const char *const *list;
    uint32_t n;
    fputs(statements[s.op].word, file);
    for (const char *field = statements[s.op].fields; *field; field++) {
        const uint8_t *word = word_of(&s, *field, &list, &n);
        if (*field == 'k')
            fprintf(file, " %s", tutti_kind_name(s.kind));
        else if (word)
            fprintf(file, " %s", list[*word]);
        else
            fprintf(file, " %u", *number_of(&s, *field));
    }
    fputc('\n', file);
}

bool tutti_plan_write(const struct tutti_plan *plan, FILE *file)
{
    fprintf(file, "plan %s slots %u chunks %u scratch %u\n", tutti_kind_name(plan->kind), plan->n_slots, plan->n_chunks,
            plan->n_scratch);
    for (uint32_t slot = 0; slot < plan->n_slots; slot++) {
        uint32_t round = 0;
        fprintf(file, "slot %u\n", slot);
        for (uint32_t i = plan->first[slot]; i < plan->first[slot + 1]; i++) {
            for (; round < plan->steps[i].round; round++) fputs("round\n", file);
            write_step(&plan->steps[i], file);
        }
    }
    return !ferror(file);
}
