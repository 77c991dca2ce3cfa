/* SPDX-License-Identifier: BSD-3-Clause */
/* See group_calls.h. */
#include "cuda/support/group_calls.h"

#include "backend/backend.h"
#include "device/cpu/reduce.h"
#include "reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what calls mean ---- */

static bool all(uint32_t root, uint32_t from, uint32_t to)
{
    (void)root, (void)from, (void)to;
    return true;
}
static bool to_root(uint32_t root, uint32_t from, uint32_t to)
{
    (void)from;
    return to == root;
}
static bool from_root(uint32_t root, uint32_t from, uint32_t to)
{
    (void)to;
    return from == root;
}
static bool upwards(uint32_t root, uint32_t from, uint32_t to)
{
    (void)root;
    return from <= to;
}
static bool above(uint32_t root, uint32_t from, uint32_t to)
{
    (void)root;
    return from < to;
}

static const struct meaning {
    enum tutti_kind kind;
    bool (*reaches)(uint32_t root, uint32_t from, uint32_t to);
    bool sends_each, receives_each, reduces; /* each: a block of its own for every rank */
} meanings[] = {
    {TUTTI_ALL_REDUCE, all, false, false, true},       {TUTTI_REDUCE, to_root, false, false, true},
    {TUTTI_BROADCAST, from_root, false, false, false}, {TUTTI_ALL_GATHER, all, false, true, false},
    {TUTTI_GATHER, to_root, false, true, false},       {TUTTI_SCATTER, from_root, true, false, false},
    {TUTTI_REDUCE_SCATTER, all, true, false, true},    {TUTTI_ALL_TO_ALL, all, true, true, false},
    {TUTTI_SCAN, upwards, false, false, true},         {TUTTI_EXSCAN, above, false, false, true},
};
enum { N_MEANINGS = sizeof meanings / sizeof *meanings };

static const struct meaning *meaning_of(const struct group_call *c)
{
    const struct meaning *m = meanings;
    while (m->kind != c->kind) m++;
    return m;
}

static size_t block_bytes(const struct group_call *c)
{
    return c->count * ref_bytes(c->dtype);
}

static size_t in_bytes(const struct group_call *c, uint32_t n)
{
    return block_bytes(c) * (meaning_of(c)->sends_each ? n : 1);
}

static size_t out_bytes(const struct group_call *c, uint32_t n)
{
    return block_bytes(c) * (meaning_of(c)->receives_each ? n : 1);
}

static bool sends(const struct group_call *c, uint32_t n, uint32_t rank)
{
    for (uint32_t q = 0; q < n; q++)
        if (meaning_of(c)->reaches(c->root, rank, q)) return true;
    return false;
}

static bool receives(const struct group_call *c, uint32_t n, uint32_t rank)
{
    for (uint32_t q = 0; q < n; q++)
        if (meaning_of(c)->reaches(c->root, q, rank)) return true;
    return false;
}

/* What rank `to` gets, into `result`, which holds its output as it is. */
static void compute(const struct group_plan *plan, const struct group_call *c, uint32_t to, unsigned char *result)
{
    const struct meaning *m = meaning_of(c);
    const void *inputs[GROUP_RANKS];
    uint32_t n = 0;
    unsigned char factor[16] = {0};
    for (uint32_t from = 0; from < plan->shape.ranks; from++) {
        if (!m->reaches(c->root, from, to)) continue;
        const unsigned char *block = plan->memory[from] + c->in_at[from] + (m->sends_each ? to * block_bytes(c) : 0);
        inputs[n++] = block;
        if (!m->reduces) memcpy(result + (m->receives_each ? from * block_bytes(c) : 0), block, block_bytes(c));
    }
    if (!m->reduces || n == 0) return;
    if (c->op == TUTTI_PREMUL_SUM) tutti_factor_encode(c->dtype, c->factor, factor);
    ref_reduce(c->dtype, c->op, inputs, n, c->count, factor, result);
}

static void apply(struct group_plan *plan, const struct group_call *c, unsigned char *room)
{
    const size_t bytes = out_bytes(c, plan->shape.ranks);
    for (uint32_t r = 0; r < plan->shape.ranks; r++) {
        memcpy(room + r * bytes, plan->memory[r] + c->out_at[r], bytes);
        if (receives(c, plan->shape.ranks, r)) compute(plan, c, r, room + r * bytes);
    }
    for (uint32_t r = 0; r < plan->shape.ranks; r++) memcpy(plan->memory[r] + c->out_at[r], room + r * bytes, bytes);
}

void group_plan_apply(struct group_plan *plan)
{
    unsigned char *room = malloc(plan->shape.ranks * plan->bytes + 1);
    for (size_t i = 0; i < plan->n && room; i++) apply(plan, &plan->calls[i], room);
    free(room);
}

/* ---- drawing ---- */

static uint64_t next(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static size_t below(uint64_t *state, size_t n)
{
    return (size_t)(next(state) % n);
}

/* Mostly alike from call to call, so that there is something to fuse. */
static void draw_kind(struct group_call *c, const struct group_shape *shape, uint64_t *state)
{
    c->kind = meanings[below(state, N_MEANINGS)].kind;
    c->root = (uint32_t)below(state, shape->ranks);
    const bool no_avg = shape->depends || shape->no_avg; /* no order is the same where others' results are used */
    do {
        c->dtype = shape->depends ? TUTTI_UINT32 : (enum tutti_dtype)below(state, TUTTI_N_DTYPES);
        c->op = (enum tutti_op)below(state, TUTTI_N_OPS);
    } while (!ref_defined(c->dtype, c->op) || (no_avg && c->op == TUTTI_AVG));
}

static size_t draw_count(const struct group_shape *shape, size_t element, uint64_t *state)
{
    const size_t most = shape->most_bytes / element;
    const size_t ends[] = {1, 9, 33, most > 300 ? 300 : most, most};
    return below(state, 10) == 0 ? 0 : below(state, ends[below(state, 5)] + 1);
}

/* In place, where that has a place for each rank. */
static void put_in_place(struct group_call *c, uint32_t r, size_t at)
{
    const struct meaning *m = meaning_of(c);
    c->in_at[r] = c->out_at[r] = at;
    if (m->receives_each && !m->sends_each) c->in_at[r] += r * block_bytes(c);
    if (m->sends_each && !m->receives_each) c->out_at[r] += r * block_bytes(c);
}

/* Beside each other, after all that was placed before, at any address. */
static void put_apart(struct group_plan *plan, struct group_call *c, bool in_place, uint64_t *state)
{
    const uint32_t n = plan->shape.ranks;
    const size_t in = in_bytes(c, n), out = out_bytes(c, n), larger = in > out ? in : out;
    const size_t skew = below(state, 2) * below(state, 16), other = below(state, 2) * below(state, 16);
    const size_t at = (plan->bytes + 31) / 16 * 16 + skew;
    for (uint32_t r = 0; r < n; r++) {
        put_in_place(c, r, at);
        if (!in_place) c->in_at[r] = at, c->out_at[r] = (at + in + 31) / 16 * 16 + other;
    }
    plan->bytes = in_place ? at + larger : (at + in + 31) / 16 * 16 + other + out;
}

/* Anywhere in what there is, each rank as it likes. */
static void put_anywhere(struct group_plan *plan, struct group_call *c, bool in_place, uint64_t *state)
{
    const uint32_t n = plan->shape.ranks;
    const size_t in = in_bytes(c, n), out = out_bytes(c, n);
    for (uint32_t r = 0; r < n; r++) {
        put_in_place(c, r, 4 * below(state, (plan->bytes - (in > out ? in : out)) / 4));
        while (!in_place && c->in_at[r] < c->out_at[r] + out && c->out_at[r] < c->in_at[r] + in) {
            c->in_at[r] = 4 * below(state, (plan->bytes - in) / 4);
            c->out_at[r] = 4 * below(state, (plan->bytes - out) / 4);
        }
    }
}

bool group_plan_draw(struct group_plan *plan, const struct group_shape *shape, uint64_t seed)
{
    uint64_t state = seed;
    *plan = (struct group_plan){.shape = *shape, .n = 1 + below(&state, shape->most_calls)};
    plan->calls = calloc(plan->n, sizeof *plan->calls);
    if (!plan->calls) return false;
    if (shape->depends) plan->bytes = 4 * shape->most_bytes * shape->ranks;
    for (size_t i = 0; i < plan->n; i++) {
        struct group_call *c = &plan->calls[i];
        if (i > 0 && (shape->alike || below(&state, 8)))
            *c = plan->calls[i - 1];
        else
            draw_kind(c, shape, &state);
        c->count = draw_count(shape, ref_bytes(c->dtype), &state);
        if (i == 0 || below(&state, 4) == 0) c->factor = (double)(1 + below(&state, 2));
        const bool in_place = c->kind == TUTTI_BROADCAST || below(&state, 3) == 0;
        if (shape->depends)
            put_anywhere(plan, c, in_place, &state);
        else
            put_apart(plan, c, in_place, &state);
    }
    plan->bytes += 32;
    for (uint32_t r = 0; r < shape->ranks; r++)
        if (!(plan->memory[r] = malloc(plan->bytes))) return false;
    return true;
}

void group_plan_free(struct group_plan *plan)
{
    for (uint32_t r = 0; r < plan->shape.ranks; r++) free(plan->memory[r]);
    free(plan->calls);
}

void group_plan_fill(struct group_plan *plan, uint64_t seed)
{
    for (uint32_t r = 0; r < plan->shape.ranks; r++) {
        ref_fill(TUTTI_UINT8, REF_BITS, seed * 64 + r, plan->memory[r], plan->bytes);
        for (size_t i = 0; i < plan->n && !plan->shape.depends; i++) {
            const struct group_call *c = &plan->calls[i];
            const size_t bytes = in_bytes(c, plan->shape.ranks);
            unsigned char *in = plan->memory[r] + c->in_at[r];
            if (meaning_of(c)->reduces)
                ref_fill_exact(c->dtype, c->op, seed + i, r, plan->shape.ranks, in, bytes / ref_bytes(c->dtype));
            else if (i % 4 == 0)
                memset(in, 0xff, bytes);
        }
    }
}

/* ---- making the calls ---- */

void group_call_bind(const struct group_call *c, const struct group_plan *plan, uint32_t rank, unsigned char *base,
                     struct tutti_backend_call *out)
{
    const bool reduces = meaning_of(c)->reduces;
    uint32_t contributors = 0;
    for (uint32_t q = 0; q < plan->shape.ranks; q++) contributors += meaning_of(c)->reaches(c->root, q, rank);
    *out = (struct tutti_backend_call){
        .bind = {.input = base + c->in_at[rank], .output = base + c->out_at[rank], .dtype = c->dtype, .divisor = 1},
        .info = {.kind = c->kind, .dtype = c->dtype, .op = reduces ? (int32_t)c->op : -1, .root = (int32_t)c->root}};
    out->bind.count = out->info.count = c->count;
    tutti_factor_encode(c->dtype, c->factor, out->factor);
    out->bind.factor = out->factor;
    if (reduces && c->op == TUTTI_PREMUL_SUM) out->bind.scale = tutti_scale_find(c->dtype);
    if (!reduces || c->op != TUTTI_AVG) return;
    out->bind.divide = tutti_divide_find(c->dtype);
    out->bind.divisor = contributors;
}

static enum tutti_status make(const struct group_plan *plan, const struct group_call *c, uint32_t rank,
                              unsigned char *base, struct tutti_comm *comm, const struct tutti_call_options *options)
{
    const uint32_t n = plan->shape.ranks;
    unsigned char *in = sends(c, n, rank) ? base + c->in_at[rank] : NULL;
    unsigned char *out = receives(c, n, rank) ? base + c->out_at[rank] : NULL;
    const int32_t root = (int32_t)c->root;
    switch (c->kind) {
    case TUTTI_ALL_REDUCE:
        return tutti_all_reduce(in, out, c->count, c->dtype, c->op, comm, options, NULL);
    case TUTTI_REDUCE:
        return tutti_reduce(in, out, c->count, c->dtype, c->op, root, comm, options, NULL);
    case TUTTI_BROADCAST:
        return tutti_broadcast(base + c->out_at[rank], c->count, c->dtype, root, comm, options, NULL);
    case TUTTI_ALL_GATHER:
        return tutti_all_gather(in, out, c->count, c->dtype, comm, options, NULL);
    case TUTTI_GATHER:
        return tutti_gather(in, out, c->count, c->dtype, root, comm, options, NULL);
    case TUTTI_SCATTER:
        return tutti_scatter(in, out, c->count, c->dtype, root, comm, options, NULL);
    case TUTTI_REDUCE_SCATTER:
        return tutti_reduce_scatter(in, out, c->count, c->dtype, c->op, comm, options, NULL);
    case TUTTI_ALL_TO_ALL:
        return tutti_all_to_all(in, out, c->count, c->dtype, comm, options, NULL);
    case TUTTI_SCAN:
        return tutti_scan(in, out, c->count, c->dtype, c->op, comm, options, NULL);
    default:
        return tutti_exscan(base + c->in_at[rank], out, c->count, c->dtype, c->op, comm, options, NULL);
    }
}

enum tutti_status group_plan_make(const struct group_plan *plan, uint32_t rank, unsigned char *base,
                                  struct tutti_comm *comm, const struct tutti_call_options *options,
                                  struct tutti_work **work)
{
    enum tutti_status status = tutti_group_start();
    if (status < 0) return status;
    for (size_t i = 0; i < plan->n && status >= 0; i++) {
        struct tutti_call_options of_call = *options;
        of_call.premul_value = plan->calls[i].factor;
        status = make(plan, &plan->calls[i], rank, base, comm, &of_call);
    }
    const enum tutti_status ended = tutti_group_end(status < 0 ? NULL : work);
    return status < 0 ? status : ended;
}

/* ---- comparing ---- */

bool group_plan_differs(const struct group_plan *plan, uint32_t rank, const unsigned char *got, char *out,
                        size_t capacity)
{
    const unsigned char *want = plan->memory[rank];
    size_t at = 0, i = plan->n;
    while (at < plan->bytes && got[at] == want[at]) at++;
    if (at == plan->bytes) return false;
    while (i > 0 && (at < plan->calls[i - 1].out_at[rank] ||
                     at >= plan->calls[i - 1].out_at[rank] + out_bytes(&plan->calls[i - 1], plan->shape.ranks)))
        i--;
    if (i == 0) {
        snprintf(out, capacity, "byte %zu is 0x%02x instead of 0x%02x, and no result", at, got[at], want[at]);
        return true;
    }
    const struct group_call *c = &plan->calls[i - 1];
    snprintf(out, capacity, "call %zu of %zu, %s of %zu %s (%s, root %u): byte %zu of the result is 0x%02x, not 0x%02x",
             i - 1, plan->n, tutti_kind_name(c->kind), c->count, tutti_dtype_name(c->dtype), tutti_op_name(c->op),
             c->root, at - c->out_at[rank], got[at], want[at]);
    return true;
}
