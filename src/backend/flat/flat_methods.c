/* SPDX-License-Identifier: BSD-3-Clause */
/* The one table of methods, and the one choice among them: the cheapest, or the one that is asked for where it fits. A
 * method that needs nothing of any buffer can be chosen before posts are read; the others replace it when all posts
 * that are read have the facts that they need. */
#include "backend/flat/flat.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct flat_walk alone = {flat_alone_fits, flat_cost_alone, flat_alone, NULL, NULL};
static const struct flat_walk line = {flat_line_fits, flat_cost_line, flat_line, NULL, NULL};
static const struct flat_walk line_groups = {flat_line_fits, flat_cost_line, flat_line_groups, NULL, NULL};
static const struct flat_walk line_broadcast = {flat_line_fits, flat_cost_line, flat_line_broadcast, NULL, NULL};
static const struct flat_walk line_gather = {flat_line_fits, flat_cost_line, flat_line_gather, NULL, NULL};
static const struct flat_walk line_scatter = {flat_line_fits, flat_cost_line, flat_line_scatter, NULL, NULL};
static const struct flat_walk rounds = {flat_rounds_fits, flat_cost_stage, flat_rounds, flat_rounds_start,
                                        flat_rounds_first};
static const struct flat_walk rounds_gather = {flat_rounds_fits, flat_cost_stage, flat_rounds, flat_rounds_start, NULL};
static const struct flat_walk rounds_direct = {flat_rounds_fits, flat_cost_direct, flat_rounds, flat_rounds_start,
                                               flat_rounds_first};
static const struct flat_walk relay = {flat_relay_fits, flat_cost_stage, flat_relay, flat_relay_start,
                                       flat_relay_first};
static const struct flat_walk chain = {flat_relay_fits, flat_cost_chain, flat_relay, flat_relay_start, NULL};
static const struct flat_walk fold = {flat_fold_mapped_fits, flat_cost_mapped, flat_fold_mapped, NULL, NULL};
static const struct flat_walk fold_attached = {flat_fold_attached_fits, flat_cost_attach, flat_fold_attached,
                                               flat_fold_attached_start, NULL};
static const struct flat_walk move = {flat_move_fits, flat_cost_mapped, flat_move, flat_move_start, NULL};
static const struct flat_walk push = {flat_push_fits, flat_cost_mapped, flat_move, NULL, NULL};
static const struct flat_walk swap = {flat_push_fits, flat_cost_mapped, flat_swap, NULL, NULL};
static const struct flat_walk move_broadcast = {flat_move_fits, flat_cost_mapped, flat_move_broadcast, NULL, NULL};
static const struct flat_walk attach = {flat_attach_fits, flat_cost_attach, flat_move, NULL, NULL};

#define BOTH_MAPPED (FLAT_SEND_MAPPED | FLAT_RECV_MAPPED)

/* name, kind, facts that it needs, posts that are read, whether it writes to peers' buffers, walk. */
const struct flat_method flat_methods[] = {
    {"line", TUTTI_ALL_REDUCE, 0, FLAT_NONE, false, &line},
    {"line", TUTTI_REDUCE, 0, FLAT_NONE, false, &line_groups},
    {"line", TUTTI_BROADCAST, 0, FLAT_NONE, false, &line_broadcast},
    {"line", TUTTI_ALL_GATHER, 0, FLAT_NONE, false, &line},
    {"line", TUTTI_GATHER, 0, FLAT_NONE, false, &line_gather},
    {"line", TUTTI_SCATTER, 0, FLAT_NONE, false, &line_scatter},
    {"line", TUTTI_REDUCE_SCATTER, 0, FLAT_NONE, false, &line},
    {"line", TUTTI_ALL_TO_ALL, 0, FLAT_NONE, false, &line},
    {"line", TUTTI_BARRIER, 0, FLAT_NONE, false, &line},
    {"line", TUTTI_SCAN, 0, FLAT_NONE, false, &line_groups},
    {"line", TUTTI_EXSCAN, 0, FLAT_NONE, false, &line_groups},
    {"stage", TUTTI_ALL_REDUCE, 0, FLAT_ALL, false, &rounds},
    {"stage", TUTTI_REDUCE, 0, FLAT_ALL, false, &rounds},
    {"stage", TUTTI_BROADCAST, 0, FLAT_ROOT, false, &relay},
    {"stage", TUTTI_ALL_GATHER, 0, FLAT_ALL, false, &rounds},
    {"stage", TUTTI_GATHER, 0, FLAT_ROOT, false, &rounds_gather},
    {"stage", TUTTI_SCATTER, 0, FLAT_ROOT, false, &relay},
    {"stage", TUTTI_REDUCE_SCATTER, 0, FLAT_ALL, false, &rounds},
    {"stage", TUTTI_ALL_TO_ALL, 0, FLAT_ALL, false, &rounds},
    {"direct", TUTTI_REDUCE, 0, FLAT_ALL_IF_OPEN, false, &rounds_direct},
    {"chain", TUTTI_SCAN, 0, FLAT_ALL_IF_OPEN, false, &chain},
    {"chain", TUTTI_EXSCAN, 0, FLAT_ALL_IF_OPEN, false, &chain},
    {"mapped", TUTTI_ALL_REDUCE, BOTH_MAPPED, FLAT_NONE, true, &fold},
    {"mapped", TUTTI_REDUCE, BOTH_MAPPED, FLAT_NONE, true, &fold},
    {"mapped", TUTTI_REDUCE_SCATTER, FLAT_SEND_MAPPED, FLAT_NONE, false, &fold},
    {"mapped", TUTTI_SCAN, BOTH_MAPPED, FLAT_NONE, true, &fold},
    {"mapped", TUTTI_EXSCAN, BOTH_MAPPED, FLAT_NONE, true, &fold},
    {"mapped", TUTTI_BROADCAST, FLAT_SEND_MAPPED, FLAT_NONE, false, &move_broadcast},
    {"mapped", TUTTI_GATHER, FLAT_RECV_MAPPED, FLAT_NONE, true, &move},
    {"mapped", TUTTI_SCATTER, FLAT_SEND_MAPPED, FLAT_NONE, false, &move},
    {"push", TUTTI_ALL_GATHER, FLAT_RECV_MAPPED, FLAT_NONE, true, &push},
    {"pull", TUTTI_ALL_GATHER, FLAT_SEND_MAPPED, FLAT_NONE, false, &move},
    {"pull", TUTTI_ALL_TO_ALL, FLAT_SEND_MAPPED | FLAT_APART, FLAT_NONE, false, &move},
    {"swap", TUTTI_ALL_TO_ALL, FLAT_RECV_MAPPED | FLAT_SAME, FLAT_NONE, true, &swap},
    {"attach", TUTTI_ALL_REDUCE, FLAT_ATTACHABLE, FLAT_NONE, false, &fold_attached},
    {"attach", TUTTI_REDUCE, FLAT_ATTACHABLE, FLAT_NONE, true, &fold_attached},
    {"attach", TUTTI_REDUCE_SCATTER, FLAT_ATTACHABLE, FLAT_NONE, false, &fold_attached},
    {"attach", TUTTI_ALL_GATHER, FLAT_ATTACHABLE, FLAT_NONE, false, &attach},
    {"attach", TUTTI_ALL_TO_ALL, FLAT_ATTACHABLE | FLAT_APART, FLAT_NONE, false, &attach},
    {"attach", TUTTI_BROADCAST, FLAT_ATTACHABLE, FLAT_NONE, false, &attach},
    {"attach", TUTTI_GATHER, FLAT_ATTACHABLE, FLAT_NONE, true, &attach},
    {"attach", TUTTI_SCATTER, FLAT_ATTACHABLE, FLAT_NONE, false, &attach},
};
const size_t flat_n_methods = TUTTI_ARRAY_LEN(flat_methods);
_Static_assert(TUTTI_ARRAY_LEN(flat_methods) <= FLAT_METHODS_MOST, "each has a place in what was tuned");

/* For all kinds: an instance of one rank. */
static const struct flat_method method_alone = {"alone", TUTTI_ALL_REDUCE, 0, FLAT_NONE, false, &alone};

static bool is_first_of_name(size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(flat_methods[k].name, flat_methods[i].name) == 0) return false;
    return true;
}

enum tutti_status flat_options_check(const struct tutti_config *options)
{
    const char *method = options->text[TUTTI_OPT_flat];
    char names[200] = "";
    size_t at = 0;
    for (size_t i = 0; i < flat_n_methods && method[0]; i++) {
        if (strcmp(method, flat_methods[i].name) == 0) return TUTTI_OK;
        if (is_first_of_name(i))
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "", flat_methods[i].name);
    }
    if (!method[0]) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_ARGUMENT, "option flat is \"%s\" but can be %s", method, names);
}

const struct flat_method *flat_method_named(enum tutti_kind kind, const char *name)
{
    for (size_t i = 0; i < flat_n_methods; i++)
        if (flat_methods[i].kind == kind && strcmp(flat_methods[i].name, name) == 0) return &flat_methods[i];
    return NULL;
}

const char *flat_method_name(const char *name)
{
    for (size_t i = 0; name && i < flat_n_methods; i++)
        if (strcmp(flat_methods[i].name, name) == 0) return flat_methods[i].name;
    return name ? "none" : NULL;
}

bool flat_fits(const struct flat_instance *inst, const struct flat_method *method,
               const struct tutti_backend_call *call)
{
    return method->kind == call->info.kind && !(method->writes && inst->survives) && method->walk->fits(inst, call);
}

/* ---- the choice ---- */

#define LAST_RESORT_NS 1e12

/* A method is asked for by name and depends on posts: then methods that read none come last. */
static bool depends_on_posts(const struct flat_instance *inst, const struct tutti_backend_call *call,
                             const char *wanted)
{
    for (size_t i = 0; i < flat_n_methods && *wanted; i++) {
        const struct flat_method *m = &flat_methods[i];
        if (m->needs && strcmp(m->name, wanted) == 0 && flat_fits(inst, m, call)) return true;
    }
    return false;
}

static void choose_plain(const struct flat_instance *inst, const struct tutti_backend_call *call,
                         struct flat_choice *choice)
{
    const char *wanted = flat_wanted(inst, call);
    const bool last = depends_on_posts(inst, call, wanted);
    choice->ns = HUGE_VAL;
    for (size_t i = 0; i < flat_n_methods; i++) {
        const struct flat_method *m = &flat_methods[i];
        if (m->needs || !flat_fits(inst, m, call)) continue;
        const bool named = strcmp(m->name, wanted) == 0;
        const double ns = named ? 0 : last && m->reads == FLAT_NONE ? LAST_RESORT_NS : flat_cost_of(inst, m, call, 0);
        if (choice->plain && ns >= choice->ns) continue;
        choice->plain = m, choice->ns = ns;
    }
}

/* The method if all posts have these facts. */
static const struct flat_method *choose_by_facts(const struct flat_instance *inst,
                                                 const struct tutti_backend_call *call, const struct flat_method *plain,
                                                 uint64_t facts)
{
    const char *wanted = flat_wanted(inst, call);
    const struct flat_method *best = plain;
    double least = -1;
    for (size_t i = 0; i < flat_n_methods; i++) {
        const struct flat_method *m = &flat_methods[i];
        if (!m->needs || (m->needs & ~facts) != 0 || !flat_fits(inst, m, call)) continue;
        if (wanted[0] && strcmp(m->name, wanted) == 0) return m;
        if (least < 0) least = flat_cost_of(inst, plain, call, facts);
        const double ns = flat_cost_of(inst, m, call, facts);
        if (ns < least) best = m, least = ns;
    }
    return best;
}

/* Facts of this rank that a peer may lack (huge pages, mapped buffers). Each subset is tried, since it can change the
 * cheapest method. */
static const uint64_t lacking[] = {FLAT_HUGE, FLAT_SEND_MAPPED, FLAT_RECV_MAPPED, FLAT_HUGE | FLAT_SEND_MAPPED,
                                   FLAT_HUGE | FLAT_RECV_MAPPED};

static struct flat_choice choose(const struct flat_instance *inst, const struct tutti_backend_call *call, size_t bytes,
                                 uint64_t facts)
{
    struct flat_choice choice = {.bytes = bytes, .facts = facts};
    if (inst->n == 1)
        return (struct flat_choice){&method_alone, &method_alone, flat_cost_alone(inst, call), bytes, facts, true};
    choose_plain(inst, call, &choice);
    choice.method = choice.plain;
    choice.certain = true;
    if (!choice.plain || choice.plain->reads == FLAT_NONE || flat_is_eager(inst, call)) return choice;
    if (flat_is_wanted(inst, call, choice.plain->name)) return choice;
    choice.method = choose_by_facts(inst, call, choice.plain, facts);
    if (choice.plain->reads != FLAT_ALL_IF_OPEN) return choice;
    choice.certain = choice.method == choice.plain;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(lacking) && choice.certain; i++)
        choice.certain = choose_by_facts(inst, call, choice.plain, facts & ~lacking[i]) == choice.plain;
    return choice;
}

struct flat_choice flat_choose(const struct flat_instance *inst, struct flat_chosen *chosen,
                               const struct tutti_backend_call *call, size_t bytes, uint64_t facts)
{
    struct flat_choice *last = chosen->last[call->info.kind];
    if (!flat_is_plain(call)) return choose(inst, call, bytes, facts);
    for (uint32_t i = 0; i < FLAT_CHOICES; i++)
        if (last[i].plain && last[i].bytes == bytes && last[i].facts == facts) return last[i];
    return last[chosen->n[call->info.kind]++ % FLAT_CHOICES] = choose(inst, call, bytes, facts);
}

/* ---- what it is for sizes and buffers in general ---- */

static struct tutti_backend_call call_of(enum tutti_kind kind, size_t bytes)
{
    return (struct tutti_backend_call){.bind = {.count = bytes, .dtype = TUTTI_UINT8},
                                       .info = {.kind = kind, .dtype = TUTTI_UINT8},
                                       .commutative = true};
}

static bool is_line_best(const struct flat_instance *inst, const struct flat_method *lines, size_t bytes)
{
    const struct tutti_backend_call call = call_of(lines->kind, bytes);
    struct flat_choice choice = {.bytes = bytes};
    if (!flat_fits(inst, lines, &call)) return false;
    choose_plain(inst, &call, &choice);
    return choice.plain == lines;
}

/* The first size at which they are not the cheapest, or up to 32 less; 0: they never are. Predictions may cross more
 * than once, so larger and larger sizes are looked at, but few: creating a communicator waits for this. */
static size_t line_below(const struct flat_instance *inst, const struct flat_method *lines)
{
    const size_t most = flat_line_max(inst);
    size_t good = 0, bad = 64;
    for (; bad < most && is_line_best(inst, lines, bad); bad *= 4) good = bad;
    if (bad >= most && is_line_best(inst, lines, bad = most)) return most + 1;
    while (bad - good > 32) {
        const size_t middle = good + (bad - good) / 2;
        *(is_line_best(inst, lines, middle) ? &good : &bad) = middle;
    }
    return good > 0 ? good + 1 : 0;
}

void flat_lines_limit(struct flat_instance *inst)
{
    for (uint32_t kind = 0; kind < TUTTI_N_KINDS && inst->n > 1; kind++) {
        const struct flat_method *lines = flat_method_named((enum tutti_kind)kind, "line");
        if (lines) inst->line_below[kind] = line_below(inst, lines);
    }
}

double flat_score(const struct tutti_backend *backend, const struct tutti_backend_call *call)
{
    return choose((const struct flat_instance *)(const void *)backend, call, 0, 0).ns;
}

/* Facts of this rank's buffers. */
static uint64_t facts_of(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    struct flat_op op = {.inst = (struct flat_instance *)(uintptr_t)inst,
                         .call = *call,
                         .send = call->bind.input,
                         .recv = call->bind.output,
                         .bytes = call->bind.count * tutti_dtype_bytes(call->info.dtype)};
    return flat_facts(&op);
}

size_t flat_candidates(const struct tutti_backend *backend, const struct tutti_backend_call *call,
                       struct tutti_backend_candidate *out, size_t capacity)
{
    const struct flat_instance *inst = (const struct flat_instance *)(const void *)backend;
    const uint64_t facts = facts_of(inst, call);
    const struct flat_method *chosen = choose(inst, call, 0, facts).method;
    size_t n = 0;
    if (!chosen) return 0; /* one that needs something replaces one that needs nothing */
    if (inst->n == 1) out[n++] = (struct tutti_backend_candidate){chosen->name, flat_cost_alone(inst, call), true, 0};
    for (size_t i = 0; i < flat_n_methods && n < capacity && inst->n > 1; i++) {
        const struct flat_method *m = &flat_methods[i];
        if ((m->needs & ~facts) || !flat_fits(inst, m, call)) continue;
        out[n++] = (struct tutti_backend_candidate){m->name, flat_cost_of(inst, m, call, facts), m == chosen, 0};
    }
    return n;
}
