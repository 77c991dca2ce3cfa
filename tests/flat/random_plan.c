/* SPDX-License-Identifier: BSD-3-Clause */
/* Draws calls: kinds, roots, types, operations, methods, and sizes around those at which methods or rounds change. */
#include "random.h"

#include "backend/flat/flat.h"
#include "reference.h"

#include <stdio.h>
#include <string.h>

enum {
    LINE = FLAT_LINE_BYTES - 8,
    LINES = FLAT_LINE_MAX,
    MAPPED = 4096,
    SPREAD = 32768
}; /* bytes of data: one line, all */

uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static size_t below(uint64_t *random, size_t end)
{
    uint64_t drawn = random_next(random);
    return end > 0 ? (size_t)(drawn % end) : 0;
}

/* Bytes of a block: at a border, just beside it, or anything. */
static size_t draw_bytes(uint64_t *random, const struct random_draw *d, bool blocks)
{
    size_t n = d->n, chunk = d->chunk, part = n > 1 ? chunk / (n - 1) : chunk;
    size_t piece = chunk / n > 64 ? chunk / n / 64 * 64 : chunk / n;
    const size_t borders[] = {0,
                              1,
                              LINE,
                              LINES,
                              LINES / 2,
                              LINES / n,
                              MAPPED,
                              8192,
                              chunk,
                              chunk / 2,
                              4 * chunk,
                              5 * chunk + 8,
                              9 * chunk,
                              part,
                              5 * part,
                              n * 64,
                              2 * chunk,
                              64,
                              SPREAD,
                              SPREAD * n,
                              8,
                              16,
                              3 * chunk,
                              8192 / n,
                              2 * chunk / n,
                              5 * chunk + LINE,
                              piece,
                              5 * piece,
                              9 * piece,
                              100};
    size_t bytes = borders[below(random, sizeof borders / sizeof borders[0])];
    size_t step = below(random, 3) == 0 ? 1 + below(random, 40) : below(random, 2);
    bytes = below(random, 2) || step > bytes ? bytes + step : bytes - step;
    size_t most = (RANDOM_ARENA / 2 - 4096) / (blocks ? n : 1);
    if (d->most && d->most < most) most = d->most;
    return bytes < most ? bytes : most - below(random, most < 100 ? most : 100);
}

static void draw_op(uint64_t *random, struct random_plan *p)
{
    p->dtype = (enum tutti_dtype)below(random, TUTTI_N_DTYPES);
    p->op = (int)below(random, TUTTI_N_OPS);
    if (below(random, 6) == 0) p->op = -1, p->dtype = TUTTI_UINT64;
    if (p->op >= 0 && !ref_defined(p->dtype, (enum tutti_op)p->op)) p->dtype = TUTTI_FLOAT32, p->op = TUTTI_AVG;
}

/* All blocks are equal, or, in v forms, from nothing to all of the count. */
static void draw_counts(uint64_t *random, uint32_t n, struct random_plan *p)
{
    static const size_t sixths[] = {6, 0, 1, 3, 6, 5};
    const struct tutti_kind_info *kind = tutti_kind_info(p->kind);
    for (uint32_t from = 0; from < n; from++)
        for (uint32_t to = 0; to < n; to++)
            p->counts[from][to] = p->v ? p->count * sixths[below(random, 6)] / 6 : p->count;
    if (!p->v || kind->tables == TUTTI_TABLE_EACH_SIDE) return;
    for (uint32_t from = 0; from < n; from++) /* one table: the block of each sender, or of each receiver */
        for (uint32_t to = 0; to < n; to++)
            p->counts[from][to] = kind->send.blocks == TUTTI_ONE_BLOCK ? p->counts[from][0] : p->counts[0][to];
}

void random_plan(uint64_t *random, const struct random_draw *draw, struct random_plan *out)
{
    static const enum tutti_kind rooted[] = {TUTTI_BROADCAST, TUTTI_REDUCE, TUTTI_GATHER, TUTTI_SCATTER};
    static const char *const methods[] = {NULL,         NULL,          NULL,         "flat",       "flat:line",
                                          "flat:stage", "flat:attach", "flat:chain", "flat:direct"};
    memset(out, 0, sizeof *out);
    out->kind = draw->rooted ? rooted[below(random, 4)] : (enum tutti_kind)below(random, TUTTI_N_KINDS);
    const struct tutti_kind_info *kind = tutti_kind_info(out->kind);
    out->v = kind->tables != TUTTI_NO_TABLES && below(random, 2) == 0;
    draw_op(random, out);
    out->any_order = !draw->left_to_right;
    out->count = draw_bytes(random, draw, kind->block_a_slot) / ref_bytes(out->dtype);
    draw_counts(random, draw->n, out);
    out->root = (int32_t)below(random, draw->n);
    out->method = methods[below(random, sizeof methods / sizeof methods[0])];
    out->in_place = (enum random_which)below(random, RANDOM_N_WHICH);
    out->send_mapped = (enum random_which)below(random, RANDOM_N_WHICH);
    out->recv_mapped = (enum random_which)below(random, RANDOM_N_WHICH);
    out->async = below(random, 3) == 0;
    out->seed = random_next(random);
    if (kind->in_place == TUTTI_NEVER_IN_PLACE || (out->v && kind->separate_in)) out->in_place = RANDOM_NO;
    if (kind->in_place == TUTTI_ONE_BUFFER) out->in_place = RANDOM_YES;
}

void random_print(const struct random_plan *plan, char *out, size_t capacity)
{
    static const char *const which[] = {"no", "all", "some"};
    snprintf(out, capacity, "%s%s %s %s count %zu root %d by %s, in place %s, mapped send %s recv %s%s",
             tutti_kind_name(plan->kind), plan->v ? "_v" : "", tutti_dtype_name(plan->dtype),
             plan->op < 0 ? "user" : tutti_op_name((enum tutti_op)plan->op), plan->count, plan->root,
             plan->method ? plan->method : "choice", which[plan->in_place], which[plan->send_mapped],
             which[plan->recv_mapped], plan->async ? ", asynchronous" : "");
}
