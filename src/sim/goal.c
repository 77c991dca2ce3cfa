/* SPDX-License-Identifier: BSD-3-Clause */
/* GOAL, the text of LogGOPSim's toolchain: `num_ranks N`, then a block for each rank, ascending.
 *
 *   num_ranks 2
 *   rank 0 {
 *   l1: calc 100 cpu 0
 *   l2: send 1000b to 1 tag 5 cpu 0 nic 0
 *   l2 requires l1
 *   }
 *   rank 1 {
 *   recv 1000b from 0 tag 5
 *   }
 *
 * `a requires b`: a starts when b has ended; `a irequires b`: when b has begun; both are known above that line. The
 * text may come from anybody: each number is bounded, each name and peer must exist, and the first mistake is a
 * sentence with its line. */

#include "sim/sim.h"

#include <string.h>

#define MOST_NAME 255

struct word {
    const char *at;
    size_t n;
};

/* A label of the rank at hand. */
struct label {
    struct word name;
    uint32_t op;
    uint32_t rank; /* its owner, plus one; 0: the slot is free */
};

struct goal {
    const char *name, *at, *end;
    uint32_t line;
    struct tutti_sim_program *program;
    uint32_t rank;
    struct label *labels; /* by hash; those of earlier ranks count as free */
    size_t capacity, n_labels;
};

#define REFUSE(goal, ...) tutti_fail_at((goal)->name, (goal)->line, __VA_ARGS__)

/* ---- words ---- */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Past white space and comments; false: a comment does not end. */
static bool skip(struct goal *goal)
{
    while (goal->at < goal->end) {
        const char *c = goal->at;
        size_t rest = (size_t)(goal->end - c);
        if (*c == '\n') goal->line++;
        if (*c == ' ' || *c == '\t' || *c == '\r' || *c == '\n') {
            goal->at++;
        } else if (rest >= 2 && c[0] == '/' && c[1] == '/') {
            while (goal->at < goal->end && *goal->at != '\n') goal->at++;
        } else if (rest >= 2 && c[0] == '/' && c[1] == '*') {
            for (goal->at += 2; goal->end - goal->at >= 2 && (goal->at[0] != '*' || goal->at[1] != '/'); goal->at++)
                if (*goal->at == '\n') goal->line++;
            if (goal->end - goal->at < 2) return false;
            goal->at += 2;
        } else {
            break;
        }
    }
    return true;
}

/* The next word, number or sign; n is 0 at the end. */
static enum tutti_status next_word(struct goal *goal, struct word *out)
{
    if (!skip(goal)) return REFUSE(goal, "a comment does not end");
    const char *at = goal->at;
    if (at < goal->end && (is_letter(*at) || is_digit(*at) || *at == '-')) {
        for (at++; at < goal->end && (is_letter(*at) || is_digit(*at) || *at == '_'); at++) continue;
    } else if (at < goal->end) {
        at++;
    }
    *out = (struct word){goal->at, (size_t)(at - goal->at)};
    goal->at = at;
    if (out->n > MOST_NAME) return REFUSE(goal, "a word of more than %d characters", MOST_NAME);
    return TUTTI_OK;
}

static bool is(struct word word, const char *text)
{
    return word.n == strlen(text) && memcmp(word.at, text, word.n) == 0;
}

/* For sentences: %.*s. */
#define SHOWN(word) (int)((word).n < 40 ? (word).n : 40), (word).at

static enum tutti_status expect(struct goal *goal, const char *text)
{
    struct word word;
    TUTTI_TRY(next_word(goal, &word));
    if (is(word, text)) return TUTTI_OK;
    if (word.n == 0) return REFUSE(goal, "the text ends where '%s' is expected", text);
    return REFUSE(goal, "'%.*s' where '%s' is expected", SHOWN(word), text);
}

/* A number up to `most`, with the unit b where that is asked for; -1 as TUTTI_SIM_ANY where wild. */
enum number { PLAIN, BYTES, WILD };
static enum tutti_status number(struct goal *goal, enum number form, const char *what, uint64_t most, uint64_t *out)
{
    struct word word;
    TUTTI_TRY(next_word(goal, &word));
    if (form == WILD && is(word, "-1")) {
        *out = TUTTI_SIM_ANY;
        return TUTTI_OK;
    }
    size_t digits = word.n;
    uint64_t value = 0;
    if (form == BYTES && digits > 1 && word.at[digits - 1] == 'b') digits--;
    if (form == BYTES && digits == word.n && word.n > 0)
        return REFUSE(goal, "'%.*s' where %s with the unit b (1000b) is expected", SHOWN(word), what);
    for (size_t i = 0; i < digits; i++) {
        if (!is_digit(word.at[i]))
            digits = 0;
        else if (value > (UINT64_MAX - 9) / 10)
            return REFUSE(goal, "%s %.*s is too large", what, SHOWN(word));
        else
            value = 10 * value + (uint64_t)(word.at[i] - '0');
    }
    if (digits == 0 && word.n == 0) return REFUSE(goal, "the text ends where %s is expected", what);
    if (digits == 0) return REFUSE(goal, "'%.*s' where %s is expected", SHOWN(word), what);
    if (value > most)
        return REFUSE(goal, "%s %llu is out of range: at most %llu", what, (unsigned long long)value,
                      (unsigned long long)most);
    *out = value;
    return TUTTI_OK;
}

/* ---- labels ---- */

static struct label *find(const struct goal *goal, struct word name)
{
    size_t at = tutti_hash64(name.at, name.n, 0) & (goal->capacity - 1);
    while (goal->labels[at].rank == goal->rank + 1 &&
           (goal->labels[at].name.n != name.n || memcmp(goal->labels[at].name.at, name.at, name.n) != 0))
        at = (at + 1) & (goal->capacity - 1);
    return &goal->labels[at];
}

static enum tutti_status labels_grow(struct goal *goal)
{
    struct label *old = goal->labels;
    size_t n = goal->capacity;
    goal->capacity = n ? 2 * n : 256;
    goal->labels = tutti_alloc_array(goal->capacity, sizeof(*goal->labels));
    if (!goal->labels) {
        goal->labels = old;
        goal->capacity = n;
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory for the labels of rank %u", goal->rank);
    }
    for (size_t i = 0; i < n; i++)
        if (old[i].rank == goal->rank + 1) *find(goal, old[i].name) = old[i];
    tutti_free(old);
    return TUTTI_OK;
}

static enum tutti_status label_add(struct goal *goal, struct word name, uint32_t op)
{
    if (2 * (goal->n_labels + 1) > goal->capacity) TUTTI_TRY(labels_grow(goal));
    struct label *label = find(goal, name);
    if (label->rank == goal->rank + 1)
        return REFUSE(goal, "label '%.*s' is defined twice in rank %u", SHOWN(name), goal->rank);
    *label = (struct label){name, op, goal->rank + 1};
    goal->n_labels++;
    return TUTTI_OK;
}

static enum tutti_status label_look_up(struct goal *goal, struct word name, uint32_t *out)
{
    const struct label *label = goal->capacity ? find(goal, name) : NULL;
    if (!label || label->rank != goal->rank + 1)
        return REFUSE(goal, "label '%.*s' is not defined above this line in rank %u", SHOWN(name), goal->rank);
    *out = label->op;
    return TUTTI_OK;
}

/* ---- statements ---- */

/* What may follow an operation, in this order. */
static enum tutti_status options(struct goal *goal, bool message, struct tutti_sim_op *op)
{
    static const char *const names[] = {"tag", "cpu", "nic"};
    uint64_t values[3] = {0, 0, 0};
    for (int i = message ? 0 : 1; i < (message ? 3 : 2); i++) {
        struct goal before = *goal;
        struct word word;
        TUTTI_TRY(next_word(goal, &word));
        if (!is(word, names[i])) {
            *goal = before;
            continue;
        }
        bool wild = i == 0 && op->type == TUTTI_SIM_RECV;
        TUTTI_TRY(number(goal, wild ? WILD : PLAIN, names[i], i == 0 ? UINT32_MAX - 1 : UINT8_MAX, &values[i]));
    }
    op->tag = (uint32_t)values[0];
    op->cpu = (uint8_t)values[1];
    op->nic = (uint8_t)values[2];
    return TUTTI_OK;
}

static enum tutti_status operation(struct goal *goal, struct word verb, uint32_t line, uint32_t *out)
{
    bool sends = is(verb, "send"), message = sends || is(verb, "recv");
    struct tutti_sim_op op = {.place = line,
                              .type = sends     ? TUTTI_SIM_SEND
                                      : message ? TUTTI_SIM_RECV
                                                : TUTTI_SIM_CALC};
    uint64_t peer = 0;
    TUTTI_TRY(number(goal, message ? BYTES : PLAIN, message ? "a size" : "a time",
                     message ? UINT64_C(1) << 50 : UINT64_MAX / TUTTI_SIM_PS_PER_NS / 1024, &op.size));
    if (message) {
        TUTTI_TRY(expect(goal, sends ? "to" : "from"));
        TUTTI_TRY(number(goal, sends ? PLAIN : WILD, "rank", goal->program->n_ranks - 1, &peer));
        op.peer = (uint32_t)peer;
    } else {
        op.size *= TUTTI_SIM_PS_PER_NS;
    }
    TUTTI_TRY(options(goal, message, &op));
    return tutti_sim_program_add(goal->program, &op, out);
}

static bool is_verb(struct word word)
{
    return is(word, "send") || is(word, "recv") || is(word, "calc");
}

/* A line that begins with a label: `label: operation`, or `label requires label`. */
static enum tutti_status labelled(struct goal *goal, struct word name)
{
    struct word word;
    uint32_t line = goal->line, op = 0, other = 0;
    TUTTI_TRY(next_word(goal, &word));
    if (is(word, ":")) {
        TUTTI_TRY(next_word(goal, &word));
        if (!is_verb(word)) return REFUSE(goal, "'%.*s' where send, recv or calc is expected", SHOWN(word));
        TUTTI_TRY(operation(goal, word, line, &op));
        return label_add(goal, name, op);
    }
    bool on_start = is(word, "irequires");
    if (!on_start && !is(word, "requires"))
        return REFUSE(goal, "'%.*s' where ':', requires or irequires is expected after '%.*s'", SHOWN(word),
                      SHOWN(name));
    TUTTI_TRY(label_look_up(goal, name, &op));
    TUTTI_TRY(next_word(goal, &word));
    TUTTI_TRY(label_look_up(goal, word, &other));
    return tutti_sim_program_after(goal->program, other, op, on_start);
}

static enum tutti_status block(struct goal *goal, uint32_t rank)
{
    struct word word;
    uint64_t told;
    TUTTI_TRY(expect(goal, "rank"));
    TUTTI_TRY(number(goal, PLAIN, "rank", UINT32_MAX, &told));
    if (told != rank)
        return REFUSE(goal, "rank %llu where rank %u is expected: each has one block, in order",
                      (unsigned long long)told, rank);
    TUTTI_TRY(expect(goal, "{"));
    goal->rank = rank;
    goal->n_labels = 0;
    tutti_sim_program_rank(goal->program, rank);
    for (;;) {
        TUTTI_TRY(next_word(goal, &word));
        if (is(word, "}")) return TUTTI_OK;
        if (word.n == 0) return REFUSE(goal, "the text ends within the block of rank %u", rank);
        uint32_t op;
        if (is_verb(word))
            TUTTI_TRY(operation(goal, word, goal->line, &op));
        else if (is_letter(*word.at))
            TUTTI_TRY(labelled(goal, word));
        else
            return REFUSE(goal, "'%.*s' where an operation or a label is expected", SHOWN(word));
    }
}

static enum tutti_status whole(struct goal *goal)
{
    uint64_t n_ranks;
    struct word word;
    TUTTI_TRY(expect(goal, "num_ranks"));
    TUTTI_TRY(number(goal, PLAIN, "number of ranks", TUTTI_SIM_MOST_RANKS, &n_ranks));
    if (n_ranks == 0) return REFUSE(goal, "a program has at least one rank");
    TUTTI_TRY(tutti_sim_program_init(goal->program, (uint32_t)n_ranks));
    goal->program->text = true;
    for (uint32_t rank = 0; rank < n_ranks; rank++) TUTTI_TRY(block(goal, rank));
    TUTTI_TRY(next_word(goal, &word));
    if (word.n > 0) return REFUSE(goal, "'%.*s' after the block of the last rank", SHOWN(word));
    return tutti_sim_program_seal(goal->program);
}

enum tutti_status tutti_sim_goal_read(const char *name, const char *text, size_t bytes, struct tutti_sim_program *out)
{
    struct tutti_sim_program program = {0};
    struct goal goal = {.name = name, .at = text, .end = text + bytes, .line = 1, .program = &program};
    enum tutti_status status = whole(&goal);
    tutti_free(goal.labels);
    if (status < 0)
        tutti_sim_program_fini(&program);
    else
        *out = program;
    return status;
}

/* ---- writing ---- */

static void write_op(FILE *file, uint32_t number, const struct tutti_sim_op *op)
{
    if (op->type == TUTTI_SIM_CALC) {
        fprintf(file, "l%u: calc %llu", number, (unsigned long long)((op->size + 500) / TUTTI_SIM_PS_PER_NS));
    } else {
        bool sends = op->type == TUTTI_SIM_SEND;
        fprintf(file, "l%u: %s %llub %s %d tag %d", number, sends ? "send" : "recv", (unsigned long long)op->size,
                sends ? "to" : "from", (int)op->peer, (int)op->tag);
    }
    if (op->cpu) fprintf(file, " cpu %u", op->cpu);
    if (op->nic && op->type != TUTTI_SIM_CALC) fprintf(file, " nic %u", op->nic);
    fputc('\n', file);
}

bool tutti_sim_goal_write(const struct tutti_sim_program *program, FILE *file)
{
    fprintf(file, "num_ranks %u\n", program->n_ranks);
    for (uint32_t rank = 0; rank < program->n_ranks; rank++) {
        uint32_t first = program->first[rank];
        fprintf(file, "rank %u {\n", rank);
        for (uint32_t i = first; i < program->first[rank + 1]; i++) write_op(file, i - first, &program->ops[i]);
        for (uint32_t i = first; i < program->first[rank + 1]; i++) {
            for (uint32_t e = program->ops[i].after; e < program->ops[i + 1].after; e++) {
                bool on_start = program->edges[e] & TUTTI_SIM_ON_START;
                fprintf(file, "l%u %s l%u\n", (program->edges[e] & ~TUTTI_SIM_ON_START) - first,
                        on_start ? "irequires" : "requires", i - first);
            }
        }
        fprintf(file, "}\n");
    }
    return !ferror(file);
}
