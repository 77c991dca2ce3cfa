/* SPDX-License-Identifier: BSD-3-Clause */
/* The one table of methods, and the choice among those that need nothing of the buffers: the cheapest, or the one that
 * is forced where it fits. */
#include "backend/flat/flat_ways.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* name, kind, what the posts must say, whose; fits, cost, advance[, start[, first]]. */
const struct flat_method flat_methods[] = {
    {"alone", TUTTI_ALL_REDUCE, 0, FLAT_NOBODY, flat_alone_fit, flat_cost_alone, flat_alone, NULL, NULL},
    {"alone", TUTTI_REDUCE, 0, FLAT_NOBODY, flat_alone_fit, flat_cost_alone, flat_alone, NULL, NULL},
    {"alone", TUTTI_BROADCAST, 0, FLAT_NOBODY, flat_alone_fit, flat_cost_alone, flat_alone, NULL, NULL},
    {"alone", TUTTI_ALL_GATHER, 0, FLAT_NOBODY, flat_alone_fit, flat_cost_alone, flat_alone, NULL, NULL},
    {"alone", TUTTI_GATHER, 0, FLAT_NOBODY, flat_alone_fit, flat_cost_alone, flat_alone, NULL, NULL},
    {"alone", TUTTI_SCATTER, 0, FLAT_NOBODY, flat_alone_fit, flat_cost_alone, flat_alone, NULL, NULL},
    {"alone", TUTTI_REDUCE_SCATTER, 0, FLAT_NOBODY, flat_alone_fit, flat_cost_alone, flat_alone, NULL, NULL},
    {"alone", TUTTI_ALL_TO_ALL, 0, FLAT_NOBODY, flat_alone_fit, flat_cost_alone, flat_alone, NULL, NULL},
    {"alone", TUTTI_BARRIER, 0, FLAT_NOBODY, flat_alone_fit, flat_cost_alone, flat_alone, NULL, NULL},
    {"alone", TUTTI_SCAN, 0, FLAT_NOBODY, flat_alone_fit, flat_cost_alone, flat_alone, NULL, NULL},
    {"alone", TUTTI_EXSCAN, 0, FLAT_NOBODY, flat_alone_fit, flat_cost_alone, flat_alone, NULL, NULL},
    {"line", TUTTI_ALL_REDUCE, 0, FLAT_NOBODY, flat_line_fit, flat_cost_line, flat_line, NULL, NULL},
    {"line", TUTTI_REDUCE, 0, FLAT_NOBODY, flat_line_fit, flat_cost_line, flat_line_groups, NULL, NULL},
    {"line", TUTTI_BROADCAST, 0, FLAT_NOBODY, flat_line_fit, flat_cost_line, flat_line_broadcast, NULL, NULL},
    {"line", TUTTI_ALL_GATHER, 0, FLAT_NOBODY, flat_line_fit, flat_cost_line, flat_line, NULL, NULL},
    {"line", TUTTI_GATHER, 0, FLAT_NOBODY, flat_line_fit, flat_cost_line, flat_line_gather, NULL, NULL},
    {"line", TUTTI_SCATTER, 0, FLAT_NOBODY, flat_line_fit, flat_cost_line, flat_line_scatter, NULL, NULL},
    {"line", TUTTI_REDUCE_SCATTER, 0, FLAT_NOBODY, flat_line_fit, flat_cost_line, flat_line, NULL, NULL},
    {"line", TUTTI_ALL_TO_ALL, 0, FLAT_NOBODY, flat_line_fit, flat_cost_line, flat_line, NULL, NULL},
    {"line", TUTTI_BARRIER, 0, FLAT_NOBODY, flat_line_fit, flat_cost_line, flat_line, NULL, NULL},
    {"line", TUTTI_SCAN, 0, FLAT_NOBODY, flat_line_fit, flat_cost_line, flat_line_groups, NULL, NULL},
    {"line", TUTTI_EXSCAN, 0, FLAT_NOBODY, flat_line_fit, flat_cost_line, flat_line_groups, NULL, NULL},
    {"stage", TUTTI_ALL_REDUCE, 0, FLAT_ALL, flat_rounds_fit, flat_cost_stage, flat_rounds, flat_rounds_start,
     flat_rounds_first},
    {"stage", TUTTI_REDUCE, 0, FLAT_ALL, flat_rounds_fit, flat_cost_stage, flat_rounds, flat_rounds_start,
     flat_rounds_first},
    {"stage", TUTTI_BROADCAST, 0, FLAT_ROOT, flat_relay_fit, flat_cost_stage, flat_relay, flat_relay_start,
     flat_relay_first},
    {"stage", TUTTI_ALL_GATHER, 0, FLAT_ALL, flat_rounds_fit, flat_cost_stage, flat_rounds, flat_rounds_start,
     flat_rounds_first},
    {"stage", TUTTI_GATHER, 0, FLAT_ROOT, flat_rounds_fit, flat_cost_stage, flat_rounds, flat_rounds_start, NULL},
    {"stage", TUTTI_SCATTER, 0, FLAT_ROOT, flat_relay_fit, flat_cost_stage, flat_relay, flat_relay_start,
     flat_relay_first},
    {"stage", TUTTI_REDUCE_SCATTER, 0, FLAT_ALL, flat_rounds_fit, flat_cost_stage, flat_rounds, flat_rounds_start,
     flat_rounds_first},
    {"stage", TUTTI_ALL_TO_ALL, 0, FLAT_ALL, flat_rounds_fit, flat_cost_stage, flat_rounds, flat_rounds_start,
     flat_rounds_first},
    {"stage", TUTTI_SCAN, 0, FLAT_ALL, flat_rounds_fit, flat_cost_slices, flat_rounds, flat_rounds_start,
     flat_rounds_first},
    {"stage", TUTTI_EXSCAN, 0, FLAT_ALL, flat_rounds_fit, flat_cost_slices, flat_rounds, flat_rounds_start,
     flat_rounds_first},
    {"direct", TUTTI_REDUCE, 0, FLAT_UNSETTLED, flat_rounds_fit, flat_cost_direct, flat_rounds, flat_rounds_start,
     flat_rounds_first},
    {"chain", TUTTI_SCAN, 0, FLAT_UNSETTLED, flat_relay_fit, flat_cost_chain, flat_relay, flat_relay_start, NULL},
    {"chain", TUTTI_EXSCAN, 0, FLAT_UNSETTLED, flat_relay_fit, flat_cost_chain, flat_relay, flat_relay_start, NULL},
    {"mapped", TUTTI_ALL_REDUCE, FLAT_SEND_MAPPED | FLAT_RECV_MAPPED, FLAT_NOBODY, flat_fold_mapped_fit,
     flat_cost_mapped, flat_fold_mapped, NULL, NULL},
    {"mapped", TUTTI_REDUCE, FLAT_SEND_MAPPED | FLAT_RECV_MAPPED, FLAT_NOBODY, flat_fold_mapped_fit, flat_cost_mapped,
     flat_fold_mapped, NULL, NULL},
    {"mapped", TUTTI_REDUCE_SCATTER, FLAT_SEND_MAPPED, FLAT_NOBODY, flat_fold_mapped_fit, flat_cost_mapped,
     flat_fold_mapped, NULL, NULL},
    {"mapped", TUTTI_SCAN, FLAT_SEND_MAPPED | FLAT_RECV_MAPPED, FLAT_NOBODY, flat_fold_mapped_fit, flat_cost_mapped,
     flat_fold_mapped, NULL, NULL},
    {"mapped", TUTTI_EXSCAN, FLAT_SEND_MAPPED | FLAT_RECV_MAPPED, FLAT_NOBODY, flat_fold_mapped_fit, flat_cost_mapped,
     flat_fold_mapped, NULL, NULL},
    {"mapped", TUTTI_BROADCAST, FLAT_SEND_MAPPED, FLAT_NOBODY, flat_move_fit, flat_cost_mapped, flat_move_broadcast,
     NULL, NULL},
    {"mapped", TUTTI_GATHER, FLAT_RECV_MAPPED, FLAT_NOBODY, flat_move_fit, flat_cost_mapped, flat_move, NULL, NULL},
    {"mapped", TUTTI_SCATTER, FLAT_SEND_MAPPED, FLAT_NOBODY, flat_move_fit, flat_cost_mapped, flat_move, NULL, NULL},
    {"push", TUTTI_ALL_GATHER, FLAT_RECV_MAPPED, FLAT_NOBODY, flat_push_fit, flat_cost_mapped, flat_move, NULL, NULL},
    {"pull", TUTTI_ALL_GATHER, FLAT_SEND_MAPPED, FLAT_NOBODY, flat_move_fit, flat_cost_mapped, flat_move, NULL, NULL},
    {"pull", TUTTI_ALL_TO_ALL, FLAT_SEND_MAPPED | FLAT_APART, FLAT_NOBODY, flat_move_fit, flat_cost_mapped, flat_move,
     flat_move_start, NULL},
    {"swap", TUTTI_ALL_TO_ALL, FLAT_RECV_MAPPED | FLAT_SAME, FLAT_NOBODY, flat_push_fit, flat_cost_mapped, flat_swap,
     NULL, NULL},
    {"attach", TUTTI_ALL_REDUCE, FLAT_ATTACHABLE, FLAT_NOBODY, flat_fold_read_fit, flat_cost_attach, flat_fold_read,
     flat_fold_read_start, NULL},
    {"attach_staged", TUTTI_ALL_REDUCE, FLAT_ATTACHABLE, FLAT_NOBODY, flat_fold_staged_fit, flat_cost_attach_staged,
     flat_fold_staged, flat_fold_staged_start, NULL},
    {"attach", TUTTI_REDUCE, FLAT_ATTACHABLE, FLAT_NOBODY, flat_fold_read_fit, flat_cost_attach, flat_fold_read,
     flat_fold_read_start, NULL},
    {"attach", TUTTI_REDUCE_SCATTER, FLAT_ATTACHABLE, FLAT_NOBODY, flat_fold_read_fit, flat_cost_attach, flat_fold_read,
     flat_fold_read_start, NULL},
    {"attach", TUTTI_ALL_GATHER, FLAT_ATTACHABLE, FLAT_NOBODY, flat_attach_fit, flat_cost_attach, flat_move, NULL,
     NULL},
    {"attach", TUTTI_ALL_TO_ALL, FLAT_ATTACHABLE | FLAT_APART, FLAT_NOBODY, flat_attach_fit, flat_cost_attach,
     flat_move, NULL, NULL},
    {"attach", TUTTI_BROADCAST, FLAT_ATTACHABLE, FLAT_NOBODY, flat_attach_fit, flat_cost_attach, flat_move, NULL, NULL},
    {"attach", TUTTI_GATHER, FLAT_ATTACHABLE, FLAT_NOBODY, flat_attach_fit, flat_cost_attach, flat_move, NULL, NULL},
    {"attach", TUTTI_SCATTER, FLAT_ATTACHABLE, FLAT_NOBODY, flat_attach_fit, flat_cost_attach, flat_move, NULL, NULL},
};
const size_t flat_n_methods = TUTTI_ARRAY_LEN(flat_methods);
_Static_assert(TUTTI_ARRAY_LEN(flat_methods) <= FLAT_METHODS_MOST, "each has a place in what was found");

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

#define LAST_RESORT_NS 1e12

/* A way that is asked for by name and depends on posts: then those that read none come last. */
static bool is_of_posts(const struct flat_instance *inst, const struct tutti_backend_call *call, const char *wanted)
{
    for (size_t i = 0; i < flat_n_methods && *wanted; i++) {
        const struct flat_method *m = &flat_methods[i];
        if (m->kind == call->info.kind && m->needs && strcmp(m->name, wanted) == 0 && m->fits(inst, call)) return true;
    }
    return false;
}

const struct flat_method *flat_choose(const struct flat_instance *inst, const struct tutti_backend_call *call,
                                      double *cost_ns)
{
    const struct flat_method *best = NULL;
    double least = HUGE_VAL;

    const char *wanted = flat_wanted(inst, call);
    bool of_posts = is_of_posts(inst, call, wanted);
    for (size_t i = 0; i < flat_n_methods; i++) {
        const struct flat_method *m = &flat_methods[i];
        if (m->kind != call->info.kind || m->needs || !m->fits(inst, call)) continue;
        bool forced = strcmp(m->name, wanted) == 0;
        double ns = forced ? 0 : of_posts && m->who == FLAT_NOBODY ? LAST_RESORT_NS : flat_cost_of(inst, m, call, 0);
        if (best && ns >= least) continue;
        best = m, least = ns;
    }
    if (cost_ns) *cost_ns = least;
    return best;
}

const struct flat_method *flat_choose_by_facts(const struct flat_instance *inst, const struct tutti_backend_call *call,
                                               const struct flat_method *plain, uint64_t facts)
{
    const char *wanted = flat_wanted(inst, call);
    const struct flat_method *best = plain;
    double least = -1;
    for (const struct flat_method *const *m = inst->others[call->info.kind]; *m; m++) {
        if (((*m)->needs & ~facts) != 0 || !(*m)->fits(inst, call)) continue;
        if (wanted[0] && strcmp((*m)->name, wanted) == 0) return *m;
        if (least < 0) least = flat_cost_of(inst, plain, call, facts);
        double ns = flat_cost_of(inst, *m, call, facts);
        if (ns < least) best = *m, least = ns;
    }
    return best;
}

/* What own posts would say of this call's buffers, as if all ranks' were alike. */
static uint64_t facts_of(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    const struct flat_op op = {.inst = (struct flat_instance *)(uintptr_t)inst,
                               .call = *call,
                               .send = call->bind.input,
                               .recv = call->bind.output,
                               .bytes = call->bind.count * tutti_dtype_bytes(call->info.dtype)};
    _Atomic uint64_t send, recv;
    uint64_t facts = flat_facts(&op, &send, &recv);
    return facts | flat_attach_fact(&op, facts);
}

size_t flat_candidates(const struct tutti_backend *backend, const struct tutti_backend_call *call,
                       struct tutti_backend_candidate *out, size_t capacity)
{
    const struct flat_instance *inst = (const struct flat_instance *)(const void *)backend;
    const struct flat_method *chosen = flat_choose(inst, call, NULL);
    if (!chosen) return 0; /* what needs something is taken instead of one that needs nothing */
    uint64_t facts = facts_of(inst, call);
    size_t n = 0;

    if (chosen->who != FLAT_NOBODY && !flat_is_eager(inst, call))
        chosen = flat_choose_by_facts(inst, call, chosen, facts);
    for (size_t i = 0; i < flat_n_methods && n < capacity; i++) {
        const struct flat_method *m = &flat_methods[i];
        if (m->kind != call->info.kind || (m->needs & ~facts) || !m->fits(inst, call)) continue;
        out[n++] = (struct tutti_backend_candidate){m->name, flat_cost_of(inst, m, call, facts), false, 0};
    }
    for (size_t i = 0; i < n; i++) out[i].chosen = strcmp(out[i].method, chosen->name) == 0;
    return n;
}

static void list_others(struct flat_instance *inst, enum tutti_kind kind)
{
    uint32_t n = 0;
    for (size_t i = 0; i < flat_n_methods && n < FLAT_OTHERS; i++)
        if (flat_methods[i].kind == kind && flat_methods[i].needs) inst->others[kind][n++] = &flat_methods[i];
}

void flat_choose_plain(struct flat_instance *inst)
{
    for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++) {
        list_others(inst, (enum tutti_kind)kind);
        for (uint32_t c = 0; c < FLAT_SIZE_CLASSES; c++) {
            struct tutti_backend_call call = {.bind = {.count = flat_size_least(c), .dtype = TUTTI_UINT8},
                                              .info = {.kind = (enum tutti_kind)kind, .dtype = TUTTI_UINT8},
                                              .commutative = true};
            inst->plain[kind][c] = flat_choose(inst, &call, NULL);
        }
    }
}

const struct flat_method *flat_method_of(const struct flat_instance *inst, const struct tutti_backend_call *call,
                                         size_t bytes)
{
    const struct flat_method *m = flat_is_plain(call) ? inst->plain[call->info.kind][flat_size_class(bytes)] : NULL;
    return m && m->fits(inst, call) ? m : flat_choose(inst, call, NULL);
}

const char *flat_lasting(const char *name)
{
    for (size_t i = 0; name && i < flat_n_methods; i++)
        if (strcmp(flat_methods[i].name, name) == 0) return flat_methods[i].name;
    return name ? "none" : NULL;
}

const struct flat_method *flat_method_named(enum tutti_kind kind, const char *name)
{
    for (size_t i = 0; i < flat_n_methods; i++)
        if (flat_methods[i].kind == kind && strcmp(flat_methods[i].name, name) == 0) return &flat_methods[i];
    return NULL;
}
