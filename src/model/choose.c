/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice of an algorithm: overrides first, then a fixed table of thresholds, read from the top; the first row that
 * applies and whose algorithm may run the call wins. Pure: the same answer on all ranks. */
#include "model/choose.h"

#include "algo/algo.h"

#include <stdio.h>
#include <string.h>

#define K *1024u
#define ANY UINT64_MAX
#define ALL_SIZES UINT32_MAX

enum when { ALWAYS, CROWDED }; /* CROWDED: more ranks on a host than CPUs, so messages cost more than bytes */

struct rule {
    enum tutti_kind kind;
    enum when when;
    uint32_t up_to_size;
    uint64_t up_to_bytes; /* of a block */
    const struct tutti_algorithm *algorithm;
    uint32_t radix; /* 0: the algorithm's own */
};

/* Crowded: a wider tree has fewer ranks that sleep more than once a call, as long as messages go unasked (eager). */
#define WIDE 8

/* An algorithm that lists levels among its needs applies only to leveled shapes: it stands first in its kind. */
static const struct rule rules[] = {
    {TUTTI_ALL_REDUCE, ALWAYS, ALL_SIZES, ANY, &tutti_algorithm_hierarchical, 0},
    {TUTTI_ALL_REDUCE, ALWAYS, 2, 64 K, &tutti_algorithm_direct, 0},
    {TUTTI_ALL_REDUCE, CROWDED, ALL_SIZES, 16 K, &tutti_algorithm_tree, WIDE},
    {TUTTI_ALL_REDUCE, ALWAYS, 4, 8 K, &tutti_algorithm_direct, 0},
    {TUTTI_ALL_REDUCE, ALWAYS, ALL_SIZES, 4 K, &tutti_algorithm_tree, 0},
    {TUTTI_ALL_REDUCE, ALWAYS, ALL_SIZES, 1024 K, &tutti_algorithm_halving_doubling, 0},
    {TUTTI_ALL_REDUCE, ALWAYS, ALL_SIZES, ANY, &tutti_algorithm_ring, 0},
    {TUTTI_ALL_REDUCE, ALWAYS, 8, ANY, &tutti_algorithm_direct_two_shot, 0}, /* order is to be kept from here on */
    {TUTTI_ALL_REDUCE, ALWAYS, ALL_SIZES, ANY, &tutti_algorithm_tree, 0},

    {TUTTI_REDUCE, ALWAYS, ALL_SIZES, ANY, &tutti_algorithm_hierarchical, 0},
    {TUTTI_REDUCE, ALWAYS, 4, 64 K, &tutti_algorithm_direct, 0},
    {TUTTI_REDUCE, ALWAYS, ALL_SIZES, 256 K, &tutti_algorithm_tree, 0},
    {TUTTI_REDUCE, ALWAYS, 64, ANY, &tutti_algorithm_ring, 0},
    {TUTTI_REDUCE, ALWAYS, ALL_SIZES, ANY, &tutti_algorithm_double_tree, 0},
    {TUTTI_REDUCE, ALWAYS, ALL_SIZES, ANY, &tutti_algorithm_tree, 0},

    {TUTTI_BROADCAST, ALWAYS, ALL_SIZES, ANY, &tutti_algorithm_hierarchical, 0},
    {TUTTI_BROADCAST, ALWAYS, ALL_SIZES, 256 K, &tutti_algorithm_tree, 0},
    {TUTTI_BROADCAST, ALWAYS, 64, ANY, &tutti_algorithm_ring, 0},
    {TUTTI_BROADCAST, ALWAYS, ALL_SIZES, ANY, &tutti_algorithm_double_tree, 0},

    {TUTTI_ALL_GATHER, ALWAYS, ALL_SIZES, ANY, &tutti_algorithm_hierarchical, 0},
    {TUTTI_ALL_GATHER, ALWAYS, 4, 64 K, &tutti_algorithm_direct, 0},
    {TUTTI_ALL_GATHER, ALWAYS, ALL_SIZES, 16 K, &tutti_algorithm_bruck, 0},
    {TUTTI_ALL_GATHER, ALWAYS, ALL_SIZES, ANY, &tutti_algorithm_ring, 0},

    {TUTTI_GATHER, ALWAYS, ALL_SIZES, 2 K, &tutti_algorithm_tree, 0},
    {TUTTI_GATHER, ALWAYS, ALL_SIZES, ANY, &tutti_algorithm_direct, 0},

    {TUTTI_SCATTER, ALWAYS, ALL_SIZES, 2 K, &tutti_algorithm_tree, 0},
    {TUTTI_SCATTER, ALWAYS, ALL_SIZES, ANY, &tutti_algorithm_direct, 0},

    {TUTTI_REDUCE_SCATTER, ALWAYS, ALL_SIZES, ANY, &tutti_algorithm_hierarchical, 0},
    {TUTTI_REDUCE_SCATTER, ALWAYS, 4, 256 K, &tutti_algorithm_direct, 0},
    {TUTTI_REDUCE_SCATTER, ALWAYS, ALL_SIZES, 64 K, &tutti_algorithm_halving_doubling, 0},
    {TUTTI_REDUCE_SCATTER, ALWAYS, ALL_SIZES, ANY, &tutti_algorithm_ring, 0},
    {TUTTI_REDUCE_SCATTER, ALWAYS, ALL_SIZES, ANY, &tutti_algorithm_pairwise, 0},

    {TUTTI_ALL_TO_ALL, ALWAYS, 8, ANY, &tutti_algorithm_pairwise, 0},
    {TUTTI_ALL_TO_ALL, ALWAYS, ALL_SIZES, 256, &tutti_algorithm_bruck, 0},
    {TUTTI_ALL_TO_ALL, ALWAYS, ALL_SIZES, ANY, &tutti_algorithm_pairwise, 0},

    {TUTTI_BARRIER, ALWAYS, ALL_SIZES, ANY, &tutti_algorithm_hierarchical, 0},
    {TUTTI_BARRIER, CROWDED, ALL_SIZES, ANY, &tutti_algorithm_tree, WIDE},
    {TUTTI_BARRIER, ALWAYS, ALL_SIZES, ANY, &tutti_algorithm_dissemination, 0},

    {TUTTI_SCAN, ALWAYS, ALL_SIZES, 64 K, &tutti_algorithm_dissemination, 0},
    {TUTTI_SCAN, ALWAYS, ALL_SIZES, ANY, &tutti_algorithm_ring, 0},

    {TUTTI_EXSCAN, ALWAYS, ALL_SIZES, 64 K, &tutti_algorithm_dissemination, 0},
    {TUTTI_EXSCAN, ALWAYS, ALL_SIZES, ANY, &tutti_algorithm_ring, 0},
};

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

/* Splits the next "kind=algorithm" off *text: false at the end. */
static bool override_next(const char **text, char *entry, size_t capacity)
{
    while (**text == ',' || **text == ' ') ++*text;
    size_t n = strcspn(*text, ", ");
    if (n == 0) return false;
    snprintf(entry, capacity, "%.*s", (int)n, *text);
    *text += n;
    return true;
}

enum tutti_status tutti_overrides_check(const char *text)
{
    char entry[96];
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
    char entry[96];
    out[0] = '\0';
    while (text && override_next(&text, entry, sizeof(entry))) {
        char *name = strchr(entry, '=');
        enum tutti_kind found;
        if (!name) continue;
        *name++ = '\0';
        if (tutti_kind_parse(entry, &found) && found == kind) snprintf(out, capacity, "%s", name);
    }
}

static enum tutti_status choose_override(const struct tutti_facts *facts, const struct tutti_question *question,
                                         const char *name, const struct tutti_algorithm **algorithm,
                                         struct tutti_shape *shape)
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
    *algorithm = found;
    *shape = wanted;
    return TUTTI_OK;
}

/* ---- the table ---- */

static bool rule_applies(const struct rule *rule, const struct tutti_facts *facts,
                         const struct tutti_question *question)
{
    return rule->kind == question->kind && (rule->when == ALWAYS || facts->crowded) &&
           facts->shape.size <= rule->up_to_size && question->bytes <= rule->up_to_bytes;
}

enum tutti_status tutti_choose(const struct tutti_facts *facts, const struct tutti_question *question,
                               const struct tutti_algorithm **algorithm, struct tutti_shape *shape)
{
    char override[64] = "";
    if (question->algorithm && question->algorithm[0])
        return choose_override(facts, question, question->algorithm, algorithm, shape);
    override_find(facts->overrides, question->kind, override, sizeof(override));
    if (override[0]) return choose_override(facts, question, override, algorithm, shape);

    struct tutti_shape fitting;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(rules); i++) {
        if (!rule_applies(&rules[i], facts, question)) continue;
        if (!may_run(facts, question, rules[i].algorithm, rules[i].radix, &fitting)) continue;
        *algorithm = rules[i].algorithm;
        *shape = fitting;
        return TUTTI_OK;
    }
    /* Rare wishes (order kept, counts unknown) that no row meets: any algorithm that can. */
    for (size_t i = 0; i < tutti_n_algorithms; i++) {
        if (!may_run(facts, question, tutti_algorithms[i], 0, &fitting)) continue;
        *algorithm = tutti_algorithms[i];
        *shape = fitting;
        return TUTTI_OK;
    }
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "no algorithm runs %s on %u ranks as asked",
                      tutti_kind_info(question->kind)->name, facts->shape.size);
}
