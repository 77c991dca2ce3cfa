/* SPDX-License-Identifier: BSD-3-Clause */
/* Draws calls: kinds, roots, types, operations, methods, and sizes around those at which methods or rounds change. */
#include "root.h"

#include "reference.h"

#include <stdio.h>
#include <string.h>

enum { LINE = 56, LINES = 16 * 64 - 8, MAPPED = 4096, SPREAD = 32768 };

static size_t below(uint64_t *random, size_t end)
{
    uint64_t drawn = peer_random(random);
    return end > 0 ? (size_t)(drawn % end) : 0;
}

/* Bytes of a block: at a border, just beside it, or anything. */
static size_t draw_bytes(uint64_t *random, const struct root_draw *d, bool blocks)
{
    size_t n = d->n, chunk = d->chunk, part = n > 1 ? chunk / (n - 1) : chunk;
    const size_t borders[] = {0,         1,         LINE,      LINES,         LINES / 2,  MAPPED, 2 * MAPPED,
                              chunk,     chunk / 2, 4 * chunk, 5 * chunk + 8, 9 * chunk,  part,   5 * part,
                              n * 64,    2 * chunk, 64,        SPREAD,        SPREAD * n, 8,      16,
                              3 * chunk, 8192,      100};
    size_t bytes = borders[below(random, sizeof borders / sizeof borders[0])];
    size_t step = below(random, 3) == 0 ? 1 + below(random, 40) : below(random, 2);
    bytes = below(random, 2) || step > bytes ? bytes + step : bytes - step;
    size_t most = (PEER_ARENA / 2 - 4096) / (blocks ? n : 1);
    if (d->most && d->most < most) most = d->most;
    return bytes < most ? bytes : most - below(random, most < 100 ? most : 100);
}

static void draw_op(uint64_t *random, struct root_plan *p)
{
    p->dtype = (enum tutti_dtype)below(random, TUTTI_N_DTYPES);
    p->op = (int)below(random, TUTTI_N_OPS);
    if (below(random, 6) == 0) p->op = -1, p->dtype = TUTTI_UINT64;
    if (p->op >= 0 && !ref_defined(p->dtype, (enum tutti_op)p->op)) p->dtype = TUTTI_FLOAT32, p->op = TUTTI_AVG;
}

static enum root_kind draw_kind(uint64_t *random, bool rooted)
{
    static const enum root_kind kinds[] = {ROOT_BROADCAST, ROOT_REDUCE,  ROOT_GATHER,     ROOT_SCATTER,   ROOT_SCAN,
                                           ROOT_EXSCAN,    ROOT_SCAN,    ROOT_EXSCAN,     ROOT_BROADCAST, ROOT_REDUCE,
                                           ROOT_GATHER,    ROOT_SCATTER, ROOT_ALL_REDUCE, ROOT_BARRIER};
    return kinds[below(random, rooted ? 4 : sizeof kinds / sizeof kinds[0])];
}

void root_plan(uint64_t *random, const struct root_draw *draw, struct root_plan *out)
{
    static const char *const methods[] = {NULL,         NULL,          NULL,         "flat:line",
                                          "flat:stage", "flat:attach", "flat:chain", "flat:direct"};
    static const size_t sixths[] = {6, 0, 1, 3, 6, 5};
    memset(out, 0, sizeof *out);
    out->kind = draw_kind(random, draw->rooted);
    bool blocks = out->kind == ROOT_GATHER || out->kind == ROOT_SCATTER;
    out->v = blocks && below(random, 2) == 0;
    draw_op(random, out);
    out->any_order = !draw->left_to_right;
    out->count = draw_bytes(random, draw, blocks) / ref_bytes(out->dtype);
    for (uint32_t r = 0; r < draw->n; r++)
        out->counts[r] = out->v ? out->count * sixths[below(random, 6)] / 6 : out->count;
    out->root = (uint32_t)below(random, draw->n);
    out->method = methods[below(random, sizeof methods / sizeof methods[0])];
    out->in_place = (enum peer_which)below(random, PEER_N_WHICH);
    out->send_mapped = (enum peer_which)below(random, PEER_N_WHICH);
    out->recv_mapped = (enum peer_which)below(random, PEER_N_WHICH);
    out->async = below(random, 3) == 0;
    out->seed = peer_random(random);
}

void root_print(const struct root_plan *plan, char *out, size_t capacity)
{
    static const char *const kinds[] = {"broadcast", "reduce", "gather",     "scatter",
                                        "scan",      "exscan", "all_reduce", "barrier"};
    static const char *const which[] = {"no", "all", "some"};
    snprintf(out, capacity, "%s%s %s %s count %zu root %u by %s, in place %s, mapped send %s recv %s%s",
             kinds[plan->kind], plan->v ? "_v" : "", tutti_dtype_name(plan->dtype),
             plan->op < 0 ? "user" : tutti_op_name((enum tutti_op)plan->op), plan->count, plan->root,
             plan->method ? plan->method : "choice", which[plan->in_place], which[plan->send_mapped],
             which[plan->recv_mapped], plan->async ? ", asynchronous" : "");
}
