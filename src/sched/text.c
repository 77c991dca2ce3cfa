/* SPDX-License-Identifier: BSD-3-Clause */

/* The text form of a sealed schedule, one step a line, for tools, tests and mutants. Print and parse are inverse. What
 * is parsed is not trusted: every number is bounded, every range lies inside its buffer, and nothing is allocated but
 * in proportion to the text.
 *
 *     tutti schedule 1
 *     algorithm ring needs 1
 *     all_reduce slot 1 size 4 root 0 radix 0 levels -
 *     chunks 4 scratch 0 rounds 6 hash 2a5be7e0c3f4d112
 *     step 0 round 0 wait 0 send peer 2 src data 0 n 1 fifo 0 extent 0 input
 *     step 1 round 0 wait 0 recv_reduce peer 0 dst data 3 n 1 fifo 0 extent 3 left old
 *     end */

#include "sched/emit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum step_part { HAS_PEER = 1, HAS_SRC = 2, HAS_DST = 4, HAS_SIDE = 8 };

/* What each operation has, in the order in which it is written. */
static const struct {
    const char *name;
    uint32_t parts;
} ops[] = {
    [TUTTI_STEP_SEND] = {"send", HAS_PEER | HAS_SRC},
    [TUTTI_STEP_RECV] = {"recv", HAS_PEER | HAS_DST},
    [TUTTI_STEP_RECV_REDUCE] = {"recv_reduce", HAS_PEER | HAS_DST | HAS_SIDE},
    [TUTTI_STEP_COPY] = {"copy", HAS_SRC | HAS_DST},
    [TUTTI_STEP_REDUCE] = {"reduce", HAS_SRC | HAS_DST | HAS_SIDE},
    [TUTTI_STEP_CALL] = {"call", HAS_SRC | HAS_DST},
};
static const char *const buffers[] = {"data", "scratch", "in"};
static const struct {
    const char *name;
    uint8_t flag;
} flags[] = {{"left", TUTTI_STEP_LEFT}, {"input", TUTTI_STEP_SRC_INPUT}, {"old", TUTTI_STEP_DST_INPUT}};

/* ---- print ---- */

struct text {
    char *at;
    size_t used, capacity;
    bool failed; /* out of memory: the rest is dropped */
};

static void put(struct text *text, const char *format, ...) TUTTI_PRINTF(2, 3);
static void put(struct text *text, const char *format, ...)
{
    va_list args;

    if (text->failed) return;
    va_start(args, format);
    int n = vsnprintf(text->at ? text->at + text->used : NULL, text->capacity - text->used, format, args);
    va_end(args);
    size_t needed = text->used + (size_t)n + 1;
    if (needed > text->capacity) {
        size_t capacity = needed > 2 * text->capacity ? needed + 256 : 2 * text->capacity;
        char *grown = tutti_alloc(capacity);
        text->failed = !grown;
        if (!grown) return;
        if (text->at) memcpy(grown, text->at, text->used);
        tutti_free(text->at);
        text->at = grown, text->capacity = capacity;
        va_start(args, format);
        vsnprintf(text->at + text->used, text->capacity - text->used, format, args);
        va_end(args);
    }
    text->used += (size_t)n;
}

static void put_step(struct text *text, uint32_t i, const struct tutti_step *step)
{
    uint32_t parts = ops[step->op].parts;

    put(text, "step %u round %u wait %" PRIx64 " %s", i, step->round, step->wait, ops[step->op].name);
    if (parts & HAS_PEER || step->op == TUTTI_STEP_CALL) put(text, " peer %u", step->peer);
    if (parts & HAS_DST) put(text, " dst %s %u", buffers[step->dst_buffer], step->dst);
    if (parts & HAS_SRC) put(text, " src %s %u", buffers[step->src_buffer], step->src);
    put(text, " n %u", step->n);
    if (parts & HAS_PEER) put(text, " fifo %u", step->fifo);
    if (step->extent == TUTTI_NO_EXTENT)
        put(text, " extent -");
    else
        put(text, " extent %u", step->extent);
    for (size_t f = 0; f < TUTTI_ARRAY_LEN(flags); f++)
        if (step->flags & flags[f].flag) put(text, " %s", flags[f].name);
    put(text, "\n");
}

enum tutti_status tutti_schedule_print(const struct tutti_schedule *schedule, char **out)
{
    const struct tutti_shape *shape = &schedule->shape;
    const struct tutti_schedule_ops *own = schedule->algorithm->kinds[schedule->kind];
    struct text text = {0};
    char levels[640];

    tutti_shape_levels_text(shape, levels, sizeof(levels));
    put(&text, "tutti schedule 1\nalgorithm %s needs %u\n", schedule->algorithm->name, own ? own->needs : 0);
    put(&text, "%s slot %u size %u root %u radix %u levels %s\n", tutti_kind_name(schedule->kind), shape->slot,
        shape->size, shape->root, shape->radix, levels[0] ? levels : "-");
    put(&text, "chunks %u scratch %u rounds %u hash %" PRIx64 "\n", schedule->n_chunks, schedule->n_scratch,
        schedule->n_rounds, schedule->hash);
    for (uint32_t c = 0; c < schedule->n_calls; c++) {
        const struct tutti_view *view = &schedule->calls[c].view;
        put(&text, "call %u %s base %u stride %u size %u chunk %u chunks %u width %u root %u\n", c,
            tutti_kind_name(schedule->calls[c].kind), view->base, view->stride, view->size, view->chunk, view->n_chunks,
            view->width, view->root);
    }
    for (uint32_t i = 0; i < schedule->n_steps; i++) put_step(&text, i, &schedule->steps[i]);
    if (schedule->defect) put(&text, "defect %s\n", schedule->defect);
    put(&text, "end\n");
    if (text.failed) {
        tutti_free(text.at);
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the text of %u steps", schedule->n_steps);
    }
    *out = text.at;
    return TUTTI_OK;
}

/* ---- parse ---- */

struct parser {
    const char *at, *end;
    uint32_t line;
    enum tutti_status status; /* the first error stays */
    char word[640];           /* the last word */
    uint32_t step_capacity, call_capacity;
    struct tutti_sealed *sealed;
};

static enum tutti_status wrong(struct parser *parser, const char *format, ...) TUTTI_PRINTF(2, 3);
static enum tutti_status wrong(struct parser *parser, const char *format, ...)
{
    char text[160];
    va_list args;

    if (parser->status < 0) return parser->status;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return parser->status = tutti_fail(TUTTI_ERR_ARGUMENT, "schedule text, line %u: %s", parser->line, text);
}

/* The next word of the line to parser->word; "" at its end. */
static const char *word(struct parser *parser)
{
    size_t n = 0;

    parser->word[0] = '\0';
    if (parser->status < 0) return parser->word;
    while (parser->at < parser->end && *parser->at == ' ') parser->at++;
    while (parser->at < parser->end && *parser->at != ' ' && *parser->at != '\n') {
        if (n + 1 == sizeof(parser->word) || *parser->at <= ' ' || *parser->at > '~') {
            wrong(parser, "a word that is too long or not of printable characters");
            n = 0;
            break;
        }
        parser->word[n++] = *parser->at++;
    }
    parser->word[n] = '\0';
    return parser->word;
}

static void end_line(struct parser *parser)
{
    if (*word(parser) != '\0') wrong(parser, "unexpected \"%.40s\"", parser->word);
    if (parser->status == TUTTI_OK && (parser->at == parser->end || *parser->at != '\n'))
        wrong(parser, "the line does not end");
    if (parser->status == TUTTI_OK) parser->at++, parser->line++;
}

static void expect(struct parser *parser, const char *name)
{
    if (strcmp(word(parser), name) != 0) wrong(parser, "expected \"%s\", found \"%.40s\"", name, parser->word);
}

static uint64_t digits(struct parser *parser, uint32_t base, uint64_t limit)
{
    uint64_t value = 0;
    const char *at = word(parser);

    if (*at == '\0') wrong(parser, "expected a number");
    for (; *at && parser->status == TUTTI_OK; at++) {
        const char *all = "0123456789abcdef", *found = memchr(all, *at, base);
        uint64_t digit = found ? (uint64_t)(found - all) : 0;
        if (!found || digit > limit || value > (limit - digit) / base)
            wrong(parser, "\"%.40s\" is not a number of at most %" PRIu64, parser->word, limit);
        else
            value = value * base + digit;
    }
    return parser->status < 0 ? 0 : value;
}

/* "name N", N at most limit. */
static uint32_t field(struct parser *parser, const char *name, uint32_t limit)
{
    expect(parser, name);
    return (uint32_t)digits(parser, 10, limit);
}

static uint64_t hex_field(struct parser *parser, const char *name)
{
    expect(parser, name);
    return digits(parser, 16, UINT64_MAX);
}

/* Room for one more element of an array; NULL when out of memory. */
static void *more(struct parser *parser, void *array, uint32_t n, uint32_t *capacity, size_t bytes)
{
    if (parser->status < 0 || n < *capacity) return array;
    uint32_t room = *capacity ? 2 * *capacity : 16;
    void *grown = tutti_alloc_array(room, bytes);
    if (!grown) {
        parser->status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for %u steps of a schedule", room);
        return array;
    }
    if (n > 0) memcpy(grown, array, n * bytes);
    tutti_free(array);
    *capacity = room;
    return grown;
}

static void parse_head(struct parser *parser)
{
    struct tutti_sealed *sealed = parser->sealed;
    struct tutti_schedule *schedule = &sealed->schedule;
    struct tutti_shape *shape = &schedule->shape;

    expect(parser, "tutti"), expect(parser, "schedule"), expect(parser, "1"), end_line(parser);
    expect(parser, "algorithm");
    if (*word(parser) == '\0' || strlen(parser->word) >= sizeof(sealed->name))
        wrong(parser, "the name of the algorithm is missing or too long");
    if (parser->status < 0) return;
    memcpy(sealed->name, parser->word, strlen(parser->word) + 1);
    sealed->ops.needs = field(parser, "needs", UINT32_MAX);
    end_line(parser);
    if (!tutti_kind_parse(word(parser), &schedule->kind)) wrong(parser, "unknown kind \"%.40s\"", parser->word);
    shape->slot = field(parser, "slot", TUTTI_MAX_CHUNKS - 1);
    shape->size = field(parser, "size", TUTTI_MAX_CHUNKS);
    shape->root = field(parser, "root", TUTTI_MAX_CHUNKS - 1);
    shape->radix = field(parser, "radix", UINT32_MAX);
    if (shape->slot >= shape->size || shape->root >= shape->size)
        wrong(parser, "slot %u or root %u is not one of %u", shape->slot, shape->root, shape->size);
    expect(parser, "levels");
    if (strcmp(word(parser), "-") != 0 && parser->status == TUTTI_OK) {
        if (*parser->word == '\0')
            wrong(parser, "expected levels");
        else
            parser->status = tutti_shape_parse_levels(shape, parser->word);
    }
    end_line(parser);
    schedule->n_chunks = field(parser, "chunks", TUTTI_MAX_CHUNKS);
    schedule->n_scratch = field(parser, "scratch", TUTTI_MAX_CHUNKS);
    schedule->n_rounds = field(parser, "rounds", TUTTI_MAX_STEPS);
    schedule->hash = hex_field(parser, "hash");
    if (parser->status == TUTTI_OK &&
        (schedule->n_chunks == 0 || schedule->n_chunks % tutti_kind_blocks(schedule->kind, shape->size) != 0))
        wrong(parser, "%u chunks do not make the blocks of %s", schedule->n_chunks, tutti_kind_name(schedule->kind));
    end_line(parser);
}

static void parse_call(struct parser *parser)
{
    struct tutti_schedule *schedule = &parser->sealed->schedule;
    struct tutti_call call = {0};
    struct tutti_view *view = &call.view;

    if (digits(parser, 10, UINT32_MAX) != schedule->n_calls) wrong(parser, "expected call %u", schedule->n_calls);
    if (!tutti_kind_parse(word(parser), &call.kind)) wrong(parser, "unknown kind \"%.40s\"", parser->word);
    view->base = field(parser, "base", TUTTI_MAX_CHUNKS);
    view->stride = field(parser, "stride", TUTTI_MAX_CHUNKS);
    view->size = field(parser, "size", TUTTI_MAX_CHUNKS);
    view->chunk = field(parser, "chunk", TUTTI_MAX_CHUNKS);
    view->n_chunks = field(parser, "chunks", TUTTI_MAX_CHUNKS);
    view->width = field(parser, "width", TUTTI_MAX_CHUNKS);
    view->root = field(parser, "root", TUTTI_MAX_CHUNKS);
    if (view->size == 0 || view->root >= view->size ||
        view->base + (uint64_t)(view->size - 1) * view->stride >= schedule->shape.size)
        wrong(parser, "the call's ranks are not among the %u", schedule->shape.size);
    if (view->n_chunks == 0 || view->width == 0 ||
        view->chunk + (uint64_t)view->n_chunks * view->width > schedule->n_chunks)
        wrong(parser, "the call's chunks are not among the %u", schedule->n_chunks);
    end_line(parser);
    schedule->calls = more(parser, schedule->calls, schedule->n_calls, &parser->call_capacity, sizeof(call));
    if (parser->status == TUTTI_OK) schedule->calls[schedule->n_calls++] = call;
}

/* "name BUFFER CHUNK". */
static void parse_place(struct parser *parser, const char *name, uint8_t *buffer, uint32_t *chunk)
{
    uint32_t b = 0;

    expect(parser, name);
    word(parser);
    while (b < TUTTI_ARRAY_LEN(buffers) && strcmp(buffers[b], parser->word) != 0) b++;
    if (b == TUTTI_ARRAY_LEN(buffers)) wrong(parser, "unknown buffer \"%.40s\"", parser->word);
    *buffer = (uint8_t)b;
    *chunk = (uint32_t)digits(parser, 10, TUTTI_MAX_CHUNKS);
}

static void check_place(struct parser *parser, uint8_t buffer, uint32_t chunk, uint32_t n)
{
    const struct tutti_schedule *schedule = &parser->sealed->schedule;
    uint32_t limit = buffer == TUTTI_SCRATCH ? schedule->n_scratch : schedule->n_chunks;

    if (parser->status < 0) return;
    if (buffer == TUTTI_IN && !tutti_kind_info(schedule->kind)->separate_in) limit = 0;
    if (n == 0 || chunk >= limit || n > limit - chunk)
        wrong(parser, "chunks %u to %" PRIu64 " of %s, which has %u", chunk, (uint64_t)chunk + n - 1, buffers[buffer],
              limit);
}

static void parse_flags(struct parser *parser, struct tutti_step *step)
{
    uint32_t parts = ops[step->op].parts, allowed = 0;

    if (parts & HAS_SIDE) allowed |= TUTTI_STEP_LEFT;
    if (parts & HAS_SIDE && step->dst_buffer == TUTTI_DATA) allowed |= TUTTI_STEP_DST_INPUT;
    if (parts & HAS_SRC && step->src_buffer == TUTTI_DATA) allowed |= TUTTI_STEP_SRC_INPUT;
    for (size_t f = 0; *word(parser) != '\0'; f++) {
        while (f < TUTTI_ARRAY_LEN(flags) && strcmp(flags[f].name, parser->word) != 0) f++;
        if (f >= TUTTI_ARRAY_LEN(flags) || !(allowed & flags[f].flag)) {
            wrong(parser, "unexpected \"%.40s\"", parser->word);
            return;
        }
        step->flags |= flags[f].flag;
    }
}

static void check_step(struct parser *parser, const struct tutti_step *step)
{
    const struct tutti_schedule *schedule = &parser->sealed->schedule;
    uint32_t parts = ops[step->op].parts, i = schedule->n_steps;

    if (parts & HAS_PEER && (step->peer >= schedule->shape.size || step->peer == schedule->shape.slot))
        wrong(parser, "peer %u of %u ranks, of which this is %u", step->peer, schedule->shape.size,
              schedule->shape.slot);
    if (step->op == TUTTI_STEP_CALL && step->peer >= schedule->n_calls) wrong(parser, "no call %u", step->peer);
    if (parts & HAS_SRC) check_place(parser, step->src_buffer, step->src, step->n);
    if (parts & HAS_DST) check_place(parser, step->dst_buffer, step->dst, step->n);
    if (parts & HAS_DST && step->dst_buffer == TUTTI_IN) wrong(parser, "IN is read-only");
    if (step->extent != TUTTI_NO_EXTENT) check_place(parser, TUTTI_DATA, step->extent, step->n);
    if (i < TUTTI_WINDOW && step->wait >> i != 0) wrong(parser, "waits for steps before the first");
}

static void parse_step(struct parser *parser)
{
    struct tutti_schedule *schedule = &parser->sealed->schedule;
    struct tutti_step step = {0};

    if (digits(parser, 10, UINT32_MAX) != schedule->n_steps) wrong(parser, "expected step %u", schedule->n_steps);
    if (schedule->n_steps == TUTTI_MAX_STEPS) wrong(parser, "too many steps");
    step.round = field(parser, "round", schedule->n_rounds);
    step.wait = hex_field(parser, "wait");
    word(parser);
    while (step.op < TUTTI_ARRAY_LEN(ops) && strcmp(ops[step.op].name, parser->word) != 0) step.op++;
    if (step.op == TUTTI_ARRAY_LEN(ops)) {
        wrong(parser, "unknown operation \"%.40s\"", parser->word);
        return;
    }
    uint32_t parts = ops[step.op].parts;
    if (parts & HAS_PEER || step.op == TUTTI_STEP_CALL) step.peer = field(parser, "peer", UINT32_MAX);
    if (parts & HAS_DST) parse_place(parser, "dst", &step.dst_buffer, &step.dst);
    if (parts & HAS_SRC) parse_place(parser, "src", &step.src_buffer, &step.src);
    step.n = field(parser, "n", TUTTI_MAX_CHUNKS);
    if (parts & HAS_PEER) step.fifo = field(parser, "fifo", TUTTI_MAX_STEPS);
    expect(parser, "extent");
    const char *at = parser->at;
    step.extent = TUTTI_NO_EXTENT;
    if (strcmp(word(parser), "-") != 0) {
        parser->at = at;
        step.extent = (uint32_t)digits(parser, 10, TUTTI_MAX_CHUNKS);
    }
    parse_flags(parser, &step);
    check_step(parser, &step);
    end_line(parser);
    schedule->steps = more(parser, schedule->steps, schedule->n_steps, &parser->step_capacity, sizeof(step));
    if (parser->status == TUTTI_OK) schedule->steps[schedule->n_steps++] = step;
}

/* The rest of the line, as it is. */
static void parse_defect(struct parser *parser)
{
    const char *start = parser->at < parser->end ? parser->at + 1 : parser->at; /* the space */
    const char *end = memchr(parser->at, '\n', (size_t)(parser->end - parser->at));

    bool printable = end && end > start;
    for (const char *at = start; printable && at < end; at++) printable = (unsigned char)*at >= ' ';
    if (!printable || parser->sealed->schedule.defect) {
        wrong(parser, "a defect is one sentence");
        return;
    }
    parser->sealed->schedule.defect = tutti_alloc((size_t)(end - start) + 1);
    if (!parser->sealed->schedule.defect)
        parser->status = tutti_fail(TUTTI_ERR_MEMORY, "no memory for a schedule's defect");
    else
        memcpy(parser->sealed->schedule.defect, start, (size_t)(end - start));
    parser->at = end;
    end_line(parser);
}

enum tutti_status tutti_schedule_parse(const char *text, size_t bytes, struct tutti_schedule **out)
{
    struct parser parser = {.at = text, .end = text + bytes, .line = 1, .sealed = tutti_alloc(sizeof(*parser.sealed))};
    struct tutti_sealed *sealed = parser.sealed;

    if (!sealed) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a schedule");
    parse_head(&parser);
    while (parser.status == TUTTI_OK && strcmp(word(&parser), "end") != 0) {
        if (strcmp(parser.word, "step") == 0)
            parse_step(&parser);
        else if (strcmp(parser.word, "call") == 0)
            parse_call(&parser);
        else if (strcmp(parser.word, "defect") == 0)
            parse_defect(&parser);
        else
            wrong(&parser, "expected step, call, defect or end, found \"%.40s\"", parser.word);
    }
    end_line(&parser);
    if (parser.at != parser.end) wrong(&parser, "text after the end");
    if (parser.status < 0) {
        tutti_schedule_destroy(&sealed->schedule);
        return parser.status;
    }
    sealed->stand_in.name = sealed->name;
    sealed->stand_in.help = "read from text";
    sealed->stand_in.source = "";
    sealed->stand_in.kinds[sealed->schedule.kind] = &sealed->ops;
    sealed->schedule.algorithm = &sealed->stand_in;
    *out = &sealed->schedule;
    return TUTTI_OK;
}
