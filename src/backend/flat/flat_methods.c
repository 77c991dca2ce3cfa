/* SPDX-License-Identifier: BSD-3-Clause */
/* The one table of methods, and the choice among those that need nothing of the buffers: the cheapest, or the one that
 * is forced where it fits. */
#include "backend/flat/flat.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FLAT_METHODS(X)                                                                                                \
    X(alone_all_reduce)                                                                                                \
    X(alone_reduce)                                                                                                    \
    X(alone_broadcast)                                                                                                 \
    X(alone_all_gather)                                                                                                \
    X(alone_gather)                                                                                                    \
    X(alone_scatter)                                                                                                   \
    X(alone_reduce_scatter)                                                                                            \
    X(alone_all_to_all)                                                                                                \
    X(alone_barrier)                                                                                                   \
    X(alone_scan)                                                                                                      \
    X(alone_exscan)                                                                                                    \
    X(line_all_reduce)                                                                                                 \
    X(line_barrier)                                                                                                    \
    X(stage_all_reduce)                                                                                                \
    X(mapped_all_reduce)                                                                                               \
    X(attach_all_reduce)                                                                                               \
    X(attach_staged_all_reduce)                                                                                        \
    X(line_all_gather)                                                                                                 \
    X(stage_all_gather)                                                                                                \
    X(push_all_gather)                                                                                                 \
    X(pull_all_gather)                                                                                                 \
    X(attach_all_gather)                                                                                               \
    X(line_reduce_scatter)                                                                                             \
    X(stage_reduce_scatter)                                                                                            \
    X(mapped_reduce_scatter)                                                                                           \
    X(attach_reduce_scatter)                                                                                           \
    X(line_all_to_all)                                                                                                 \
    X(stage_all_to_all)                                                                                                \
    X(pull_all_to_all)                                                                                                 \
    X(swap_all_to_all)                                                                                                 \
    X(attach_all_to_all)                                                                                               \
    X(line_broadcast)                                                                                                  \
    X(stage_broadcast)                                                                                                 \
    X(mapped_broadcast)                                                                                                \
    X(attach_broadcast)                                                                                                \
    X(line_reduce)                                                                                                     \
    X(stage_reduce)                                                                                                    \
    X(mapped_reduce)                                                                                                   \
    X(line_gather)                                                                                                     \
    X(stage_gather)                                                                                                    \
    X(mapped_gather)                                                                                                   \
    X(line_scatter)                                                                                                    \
    X(stage_scatter)                                                                                                   \
    X(mapped_scatter)                                                                                                  \
    X(line_scan)                                                                                                       \
    X(stage_scan)                                                                                                      \
    X(chain_scan)                                                                                                      \
    X(mapped_scan)                                                                                                     \
    X(line_exscan)                                                                                                     \
    X(stage_exscan)                                                                                                    \
    X(chain_exscan)                                                                                                    \
    X(mapped_exscan)

#define DECLARE(name) extern const struct flat_method flat_##name;
FLAT_METHODS(DECLARE)
#define ENTRY(name) &flat_##name,
const struct flat_method *const flat_methods[] = {FLAT_METHODS(ENTRY)};
const size_t flat_n_methods = TUTTI_ARRAY_LEN(flat_methods);

static bool is_first_of_name(size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(flat_methods[k]->name, flat_methods[i]->name) == 0) return false;
    return true;
}

enum tutti_status tutti_backend_method_check(const char *method)
{
    char names[200] = "";
    size_t at = 0;
    for (size_t i = 0; i < flat_n_methods && method[0]; i++) {
        if (strcmp(method, flat_methods[i]->name) == 0) return TUTTI_OK;
        if (is_first_of_name(i))
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "", flat_methods[i]->name);
    }
    if (!method[0]) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_ARGUMENT, "option flat is \"%s\" but can be %s", method, names);
}

#define LAST_RESORT_NS 1e12

/* A way that is asked for by name and depends on posts: then those that read none come last. */
static bool is_of_posts(const struct flat_lane *lane, const struct tutti_backend_call *call, const char *wanted)
{
    for (size_t i = 0; i < flat_n_methods && *wanted; i++) {
        const struct flat_method *m = flat_methods[i];
        if (m->kind == call->info.kind && m->needs && strcmp(m->name, wanted) == 0 && m->fits(lane, call)) return true;
    }
    return false;
}

const struct flat_method *flat_choose(const struct flat_lane *lane, const struct tutti_backend_call *call,
                                      double *cost_ns)
{
    const struct flat_method *best = NULL;
    double least = HUGE_VAL;

    const char *wanted = call->method ? call->method : lane->forced;
    bool of_posts = is_of_posts(lane, call, wanted);
    for (size_t i = 0; i < flat_n_methods; i++) {
        const struct flat_method *m = flat_methods[i];
        if (m->kind != call->info.kind || m->needs || !m->fits(lane, call)) continue;
        bool forced = strcmp(m->name, wanted) == 0;
        double ns = forced ? 0 : of_posts && m->who == FLAT_NOBODY ? LAST_RESORT_NS : m->cost_ns(lane, call);
        if (best && ns >= least) continue;
        best = m, least = ns;
    }
    if (cost_ns) *cost_ns = least;
    return best;
}

/* What own posts would say of this call's buffers, as if all ranks' were alike. */
static uint64_t facts_of(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    const struct flat_op op = {.lane = (struct flat_lane *)(uintptr_t)lane,
                               .call = *call,
                               .send = call->bind.input,
                               .recv = call->bind.output,
                               .bytes = call->bind.count * tutti_dtype_bytes(call->info.dtype)};
    _Atomic uint64_t send, recv;
    return flat_facts(&op, &send, &recv);
}

size_t flat_candidates(const struct tutti_backend *backend, const struct tutti_backend_call *call,
                       struct tutti_backend_candidate *out, size_t capacity)
{
    const struct flat_lane *lane = (const struct flat_lane *)(const void *)backend;
    const struct flat_method *chosen = flat_choose(lane, call, NULL);
    if (!chosen) return 0; /* what needs something is taken instead of one that needs nothing */
    uint64_t facts = chosen->who != FLAT_NOBODY ? facts_of(lane, call) : 0;
    size_t n = 0;

    for (size_t i = 0; i < flat_n_methods && n < capacity; i++) {
        const struct flat_method *m = flat_methods[i];
        if (m->kind != call->info.kind || (m->needs & ~facts) || !m->fits(lane, call)) continue;
        bool instead = m->needs && !chosen->needs; /* the first one that the posts allow */
        if (m->needs & FLAT_ATTACHABLE) instead = instead && m->cost_ns(lane, call) < chosen->cost_ns(lane, call);
        if (instead) chosen = m;
        out[n++] = (struct tutti_backend_candidate){m->name, m->cost_ns(lane, call), false, 0};
    }
    for (size_t i = 0; i < n; i++) out[i].chosen = strcmp(out[i].method, chosen->name) == 0;
    return n;
}

static void list_others(struct flat_lane *lane, enum tutti_kind kind)
{
    uint32_t n = 0;
    for (size_t i = 0; i < flat_n_methods && n < FLAT_OTHERS; i++)
        if (flat_methods[i]->kind == kind && flat_methods[i]->needs) lane->others[kind][n++] = flat_methods[i];
}

void flat_choose_plain(struct flat_lane *lane)
{
    for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++) {
        list_others(lane, (enum tutti_kind)kind);
        for (uint32_t c = 0; c < FLAT_SIZE_CLASSES; c++) {
            struct tutti_backend_call call = {.bind = {.count = flat_size_least(c), .dtype = TUTTI_UINT8},
                                              .info = {.kind = (enum tutti_kind)kind, .dtype = TUTTI_UINT8},
                                              .commutative = true};
            lane->plain[kind][c] = flat_choose(lane, &call, NULL);
        }
    }
}
