/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice of an algorithm: overrides first, then the candidate that the cost model predicts to be the fastest. Pure:
 * the same answer on all ranks. */
#include "model/choose.h"

#include "algo/algo.h"
#include "model/cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The shape as this algorithm sees it: levels only where it uses them, so that equal schedules are cached once. */
static struct tutti_shape shape_for(const struct tutti_facts *facts, const struct tutti_algorithm *algorithm,
                                    enum tutti_kind kind, uint32_t radix)
{
    struct tutti_shape shape = facts->shape;
    const struct tutti_schedule_ops *ops = algorithm->kinds[kind];
    shape.slot = 0;
    shape.root = 0;
    shape.radix = radix;
    if (ops && !(ops->needs & TUTTI_NEEDS_LEVELS)) {
        shape.n_levels = 0;
        memset(shape.levels, 0, sizeof(shape.levels));
    }
    return shape;
}

/* Why the algorithm may not run the call, as a clause; NULL if it may. */
static const char *objection(const struct tutti_facts *facts, const struct tutti_question *question,
                             const struct tutti_algorithm *algorithm)
{
    const struct tutti_schedule_ops *ops = algorithm->kinds[question->kind];
    if (!ops) return "it does not offer this collective";
    bool reduces = tutti_kind_info(question->kind)->reduces;
    if (reduces && facts->reproducible && !(ops->needs & TUTTI_KEEPS_RANK_ORDER))
        return "it does not fold in rank order, which the option reproducible asks for";
    if (reduces && !question->commutative && (ops->needs & TUTTI_NEEDS_COMMUTATIVE))
        return "it needs an operation that commutes";
    if (question->v && (ops->needs & TUTTI_NEEDS_EQUAL_BLOCKS)) return "it needs blocks of equal size";
    if (question->v && !question->counts_shared && !(ops->needs & TUTTI_OWN_COUNTS_ONLY))
        return "it needs the counts of all ranks, and here each rank knows only its own";
    return NULL;
}

static bool may_run(const struct tutti_facts *facts, const struct tutti_question *question,
                    const struct tutti_algorithm *algorithm, uint32_t radix, struct tutti_shape *shape)
{
    if (objection(facts, question, algorithm)) return false;
    *shape = shape_for(facts, algorithm, question->kind, radix);
    return tutti_algorithm_fits(algorithm, question->kind, shape, NULL, 0);
}

/* ---- overrides ---- */

#define OVERRIDE_MAX 512 /* characters of an entry */

/* Splits the next "kind=algorithm" off *text: false at the end. */
static bool override_next(const char **text, char *entry, size_t capacity)
{
    while (**text == ',' || **text == ' ') ++*text;
    size_t n = strcspn(*text, ", ");
    if (n == 0) return false;
    if (n >= capacity) n = capacity - 1; /* the rest is no algorithm either */
    snprintf(entry, capacity, "%.*s", (int)n, *text);
    *text += n;
    return true;
}

enum tutti_status tutti_overrides_check(const char *text)
{
    char entry[OVERRIDE_MAX];
    while (text && override_next(&text, entry, sizeof(entry))) {
        char *name = strchr(entry, '=');
        enum tutti_kind kind;
        uint32_t radix;
        if (!name) return tutti_fail(TUTTI_ERR_ARGUMENT, "option algorithm: \"%s\" is not collective=algorithm", entry);
        *name++ = '\0';
        if (!tutti_kind_parse(entry, &kind))
            return tutti_fail(TUTTI_ERR_ARGUMENT, "option algorithm: \"%s\" is no collective (all_reduce, ...)", entry);
        const struct tutti_algorithm *algorithm = tutti_algorithm_find(name, &radix);
        if (!algorithm)
            return tutti_fail(TUTTI_ERR_ARGUMENT, "option algorithm: \"%s\" is no algorithm: see `tutti sched list`",
                              name);
        if (!algorithm->kinds[kind])
            return tutti_fail(TUTTI_ERR_ARGUMENT, "option algorithm: %s does not offer %s: see `tutti sched list`",
                              name, entry);
    }
    return TUTTI_OK;
}

/* The entry of this kind, "" if there is none. The last one wins. */
static void override_find(const char *text, enum tutti_kind kind, char *out, size_t capacity)
{
    char entry[OVERRIDE_MAX];
    out[0] = '\0';
    while (text && override_next(&text, entry, sizeof(entry))) {
        char *name = strchr(entry, '=');
        enum tutti_kind found;
        if (!name) continue;
        *name++ = '\0';
        if (tutti_kind_parse(entry, &found) && found == kind) snprintf(out, capacity, "%s", name);
    }
}

bool tutti_overridden(const struct tutti_facts *facts, enum tutti_kind kind)
{
    char name[OVERRIDE_MAX];
    const struct tutti_algorithm *own = facts->own ? facts->own[kind] : NULL;
    override_find(facts->overrides, kind, name, sizeof(name));
    if (name[0] != '\0') return true;
    if (!own) return false;
    const struct tutti_shape shape = shape_for(facts, own, kind, 0);
    return tutti_algorithm_fits(own, kind, &shape, NULL, 0);
}

/* Whether the row is meant by a radix: the one of radices from 1 on by those up to its last one. */
static bool is_row_of(const struct tutti_load_row *row, uint32_t radix)
{
    uint32_t last = 0;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(row->radices) && row->radices[i]; i++) last = row->radices[i];
    return row->radices[0] == 1 ? radix >= 1 && radix <= last : radix != 1;
}

/* Each of the table has one, and who takes it one of its own for radix 1. NULL: it came from a file. */
static const struct tutti_load_row *row_of(enum tutti_kind kind, const struct tutti_algorithm *algorithm,
                                           uint32_t radix)
{
    const struct tutti_load_row *found = NULL;
    for (size_t i = 0; i < tutti_n_load_rows; i++) {
        const struct tutti_load_row *row = &tutti_load_rows[i];
        if (row->kind == kind && row->algorithm == algorithm && is_row_of(row, radix)) found = row; /* the last one */
    }
    return found;
}

static double cost_ns(const struct tutti_facts *facts, const struct tutti_question *question,
                      const struct tutti_load_row *row, const struct tutti_shape *shape)
{
    if (tutti_load_is_near(row) && facts->link == TUTTI_LINK_NET) {
        const struct tutti_load near = tutti_load_at(row, shape, question->bytes, true),
                                far = tutti_load_at(row, shape, question->bytes, false);
        return tutti_cost_of_levels_ns(facts, &near, &far);
    }
    const struct tutti_load load = tutti_load_of(row, shape, question->bytes);
    return tutti_cost_ns(facts, &load);
}

static enum tutti_status choose_override(const struct tutti_facts *facts, const struct tutti_question *question,
                                         const char *name, struct tutti_candidate *out)
{
    uint32_t radix = 0;
    const char *kind = tutti_kind_info(question->kind)->name;
    const struct tutti_algorithm *found = tutti_algorithm_find(name, &radix);
    if (!found) return tutti_fail(TUTTI_ERR_ARGUMENT, "\"%s\" is no algorithm: see `tutti sched list`", name);
    const char *why = objection(facts, question, found);
    if (why) return tutti_fail(TUTTI_ERR_ARGUMENT, "algorithm %s can not run this %s: %s", name, kind, why);
    char reason[200] = "";
    struct tutti_shape wanted = shape_for(facts, found, question->kind, radix);
    if (!tutti_algorithm_fits(found, question->kind, &wanted, reason, sizeof(reason)))
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "algorithm %s can not run this %s: %s", name, kind, reason);
    const struct tutti_load_row *row = row_of(question->kind, found, radix);
    *out = (struct tutti_candidate){found, wanted, row ? cost_ns(facts, question, row, &wanted) : HUGE_VAL};
    return TUTTI_OK;
}

/* ---- the model ---- */

/* The j-th radix of row i as a candidate; false when it may not run the call. */
static bool candidate(const struct tutti_facts *facts, const struct tutti_question *question, size_t i, size_t j,
                      struct tutti_candidate *out)
{
    const struct tutti_load_row *row = &tutti_load_rows[i];
    out->algorithm = row->algorithm;
    if (!may_run(facts, question, row->algorithm, row->radices[j], &out->shape)) return false;
    out->ns = cost_ns(facts, question, row, &out->shape);
    return true;
}

/* A radix beyond the size says nothing new. */
static bool radix_counts(const struct tutti_facts *facts, const struct tutti_load_row *row, size_t j)
{
    return j == 0 || (j < TUTTI_ARRAY_LEN(row->radices) && row->radices[j] && row->radices[j - 1] < facts->shape.size);
}

/* Those that use the levels of the shape, if there are some; else all. */
static size_t candidates(const struct tutti_facts *facts, const struct tutti_question *question, bool leveled,
                         struct tutti_candidate *out, size_t capacity)
{
    size_t n = 0;
    for (size_t i = 0; i < tutti_n_load_rows; i++) {
        const struct tutti_load_row *row = &tutti_load_rows[i];
        if (row->kind != question->kind) continue;
        if (leveled && !(row->algorithm->kinds[row->kind]->needs & TUTTI_NEEDS_LEVELS)) continue;
        for (size_t j = 0; n < capacity && radix_counts(facts, row, j); j++)
            n += candidate(facts, question, i, j, &out[n]);
    }
    return n;
}

size_t tutti_candidates(const struct tutti_facts *facts, const struct tutti_question *question,
                        struct tutti_candidate *out, size_t capacity)
{
    size_t n = facts->shape.n_levels ? candidates(facts, question, true, out, capacity) : 0;
    return n ? n : candidates(facts, question, false, out, capacity);
}

/* ---- what was chosen already ---- */

/* Never 0. Sizes that have no place in a key are not kept. */
static uint64_t memo_key(const struct tutti_facts *facts, const struct tutti_question *question)
{
    if (!facts->memo || question->bytes >> 56) return 0;
    return question->bytes << 8 | (uint64_t)(question->kind + 1) << 4 | (uint64_t)question->commutative << 3 |
           (uint64_t)question->v << 2 | (uint64_t)question->counts_shared << 1 | facts->reproducible;
}

static size_t memo_place(uint64_t key)
{
    return tutti_mix64(key) % TUTTI_MEMO_ENTRIES;
}

/* An answer is the time as a float, the radix and the algorithm's place in its table. */
static bool memo_find(const struct tutti_facts *facts, const struct tutti_question *question, uint64_t key,
                      struct tutti_candidate *out)
{
    if (!key) return false;
    const size_t place = memo_place(key);
    const uint64_t answer = atomic_load_explicit(&facts->memo->entries[place].answer, memory_order_relaxed);
    const uint64_t check = atomic_load_explicit(&facts->memo->entries[place].check, memory_order_relaxed);
    if ((check ^ answer) != key) return false;
    const uint32_t bits = (uint32_t)(answer >> 32);
    float ns;
    memcpy(&ns, &bits, sizeof ns);
    out->algorithm = tutti_algorithms[answer & 0xff];
    out->shape = shape_for(facts, out->algorithm, question->kind, (uint32_t)(answer >> 8 & 0xffffff));
    out->ns = (double)ns;
    return true;
}

static void memo_keep(const struct tutti_facts *facts, uint64_t key, struct tutti_candidate *chosen)
{
    if (!key) return;
    const float ns = (float)chosen->ns;
    uint32_t bits, index = 0;
    while (tutti_algorithms[index] != chosen->algorithm) index++;
    memcpy(&bits, &ns, sizeof bits);
    const uint64_t answer = (uint64_t)bits << 32 | (uint64_t)chosen->shape.radix << 8 | index;
    const size_t place = memo_place(key);
    atomic_store_explicit(&facts->memo->entries[place].check, key ^ answer, memory_order_relaxed);
    atomic_store_explicit(&facts->memo->entries[place].answer, answer, memory_order_relaxed);
    chosen->ns = (double)ns; /* the same from now on */
}

/* Lines of tuning files are no orders: one that does not fit the call is passed over. */
static bool choose_found(const struct tutti_facts *facts, const struct tutti_question *question,
                         struct tutti_candidate *out)
{
    const struct tutti_found *found = tutti_found_for(facts->found, question->kind, &facts->shape, question->bytes);
    uint32_t radix = 0;
    const struct tutti_algorithm *algorithm = found ? tutti_algorithm_find(found->name, &radix) : NULL;
    if (!algorithm || !may_run(facts, question, algorithm, radix, &out->shape)) return false;
    out->algorithm = algorithm;
    return true;
}

static enum tutti_status choose(const struct tutti_facts *facts, const struct tutti_question *question,
                                struct tutti_candidate *out)
{
    char override[OVERRIDE_MAX] = "";
    const struct tutti_algorithm *own = facts->own ? facts->own[question->kind] : NULL;
    if (question->algorithm && question->algorithm[0])
        return choose_override(facts, question, question->algorithm, out);
    override_find(facts->overrides, question->kind, override, sizeof(override));
    if (override[0]) return choose_override(facts, question, override, out);

    *out = (struct tutti_candidate){.algorithm = own, .ns = HUGE_VAL};
    if (own && may_run(facts, question, own, 0, &out->shape)) return TUTTI_OK;

    if (choose_found(facts, question, out)) return TUTTI_OK;

    const uint64_t key = memo_key(facts, question);
    if (memo_find(facts, question, key, out)) return TUTTI_OK;
    struct tutti_candidate all[TUTTI_MAX_CANDIDATES], *best = all;
    size_t n = tutti_candidates(facts, question, all, TUTTI_ARRAY_LEN(all));
    for (size_t i = 1; i < n; i++)
        if (all[i].ns < best->ns) best = &all[i];
    if (n == 0)
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "no algorithm runs %s on %u ranks as asked",
                          tutti_kind_info(question->kind)->name, facts->shape.size);
    *out = *best;
    memo_keep(facts, key, out);
    return TUTTI_OK;
}

enum tutti_status tutti_choose(const struct tutti_facts *facts, const struct tutti_question *question,
                               const struct tutti_algorithm **algorithm, struct tutti_shape *shape)
{
    struct tutti_candidate chosen;
    TUTTI_TRY(choose(facts, question, &chosen));
    *algorithm = chosen.algorithm;
    *shape = chosen.shape;
    return TUTTI_OK;
}
