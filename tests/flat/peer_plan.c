/* SPDX-License-Identifier: BSD-3-Clause */
/* Draws calls: kinds, types, operations, methods, and sizes around those at which methods or rounds change. */
#include "peer.h"

#include "backend/flat/flat.h"
#include "reference.h"

#include <stdio.h>
#include <string.h>

enum { LINE = FLAT_LINE_BYTES - 8, LINES = FLAT_LINE_MAX }; /* bytes of data: in the first line, in all */

uint64_t peer_random(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static size_t below(uint64_t *random, size_t end)
{
    return (size_t)(peer_random(random) % end);
}

/* Bytes of a block: at a border, just beside it, or anything. */
static size_t draw_bytes(uint64_t *random, uint32_t n, size_t chunk)
{
    size_t piece = chunk / n > 64 ? chunk / n / 64 * 64 : chunk / n;
    const size_t borders[] = {0,     1,     LINE,          LINES / n, LINES,     64,        8192 / n,         piece,
                              chunk, chunk, 2 * chunk / n, 5 * piece, 9 * piece, 3 * chunk, 5 * chunk + LINE, 4096};
    size_t bytes = borders[below(random, sizeof borders / sizeof borders[0])];
    size_t step = below(random, 3) == 0 ? 1 + below(random, 40) : below(random, 2);
    bytes = below(random, 2) || step > bytes ? bytes + step : bytes - step;
    size_t most = (PEER_ARENA / 2 - 4096) / n;
    return bytes < most ? bytes : most - below(random, 100);
}

/* The rank's count for each other: equal, or, in v forms, from nothing to all of it. */
static void draw_counts(uint64_t *random, uint32_t n, struct peer_plan *p)
{
    static const size_t sixths[] = {6, 0, 1, 3, 6, 5};
    for (uint32_t from = 0; from < n; from++)
        for (uint32_t to = 0; to < n; to++) {
            size_t part = sixths[below(random, 6)];
            p->counts[from][to] = p->v ? p->count * part / 6 : p->count;
        }
    if (!p->v || p->kind == PEER_ALL_TO_ALL) return;
    for (uint32_t from = 0; from < n; from++) /* one table: of what rank `from` gathers, or rank `to` gets reduced */
        for (uint32_t to = 0; to < n; to++)
            p->counts[from][to] = p->kind == PEER_ALL_GATHER ? p->counts[from][0] : p->counts[0][to];
}

static void draw_op(uint64_t *random, struct peer_plan *p)
{
    p->dtype = (enum tutti_dtype)below(random, TUTTI_N_DTYPES);
    p->op = (int)below(random, TUTTI_N_OPS);
    if (below(random, 6) == 0) p->op = -1, p->dtype = TUTTI_UINT64;
    if (p->op >= 0 && !ref_defined(p->dtype, (enum tutti_op)p->op)) p->dtype = TUTTI_FLOAT32, p->op = TUTTI_AVG;
    if (p->kind == PEER_ALL_REDUCE) p->dtype = TUTTI_UINT32, p->op = TUTTI_SUM;
}

void peer_plan(uint64_t *random, uint32_t n, size_t chunk, struct peer_plan *out)
{
    static const enum peer_kind kinds[] = {PEER_ALL_GATHER, PEER_ALL_GATHER, PEER_REDUCE_SCATTER, PEER_REDUCE_SCATTER,
                                           PEER_ALL_TO_ALL, PEER_ALL_TO_ALL, PEER_ALL_REDUCE,     PEER_BARRIER,
                                           PEER_BROADCAST,  PEER_GATHER};
    static const char *const methods[] = {NULL, NULL, NULL, "flat", "flat:line", "flat:stage", "flat:attach"};
    memset(out, 0, sizeof *out);
    out->kind = kinds[below(random, sizeof kinds / sizeof kinds[0])];
    out->v = out->kind < PEER_ALL_REDUCE && below(random, 3) == 0;
    draw_op(random, out);
    out->count = draw_bytes(random, n, chunk) / ref_bytes(out->dtype);
    out->method = methods[below(random, sizeof methods / sizeof methods[0])];
    out->in_place = (enum peer_which)below(random, PEER_N_WHICH);
    out->send_mapped = (enum peer_which)below(random, PEER_N_WHICH);
    out->recv_mapped = (enum peer_which)below(random, PEER_N_WHICH);
    out->async = below(random, 3) == 0;
    out->seed = peer_random(random);
    out->root = (int32_t)below(random, n);
    if (out->v && out->kind == PEER_ALL_TO_ALL) out->in_place = PEER_NO;
    if (out->kind == PEER_BROADCAST) out->in_place = PEER_YES; /* by nature */
    draw_counts(random, n, out);
}

void peer_print(const struct peer_plan *plan, char *out, size_t capacity)
{
    static const char *const kinds[] = {"all_gather", "reduce_scatter", "all_to_all", "all_reduce",
                                        "barrier",    "broadcast",      "gather"};
    static const char *const which[] = {"no", "all", "some"};
    snprintf(out, capacity, "%s%s %s %s count %zu by %s, in place %s, mapped send %s recv %s%s", kinds[plan->kind],
             plan->v ? "_v" : "", tutti_dtype_name(plan->dtype),
             plan->op < 0 ? "user" : tutti_op_name((enum tutti_op)plan->op), plan->count,
             plan->method ? plan->method : "choice", which[plan->in_place], which[plan->send_mapped],
             which[plan->recv_mapped], plan->async ? ", asynchronous" : "");
}
