/* SPDX-License-Identifier: BSD-3-Clause */
/* What a quantised call consists of, on whatever memory: sizes, steps and jobs. */
#include "comm/request/packed.h"

#include <string.h>

#define PART_UNIT 32 /* parts of an all_reduce are a multiple, so that they begin well aligned */

static size_t elements_before(const struct tutti_request *request, uint32_t rank)
{
    size_t before = 0;
    for (uint32_t r = 0; r < rank; r++) before += request->counts[r];
    return before;
}

/* Packed bytes of all parts; false: too many. */
static bool all_bytes(const struct tutti_request *request, const struct tutti_packed_shape *shape, size_t *out)
{
    if (!request->v) return !__builtin_mul_overflow(shape->part_bytes, shape->n, out);
    *out = 0;
    for (uint32_t r = 0; r < shape->n; r++)
        if (__builtin_add_overflow(*out, tutti_packed_bytes(&shape->packing, request->counts[r]), out)) return false;
    return true;
}

enum tutti_status tutti_packed_shape(const struct tutti_request *request, struct tutti_packed_shape *out)
{
    const uint32_t n = (uint32_t)request->comm->size;
    size_t sent, collected, each = request->count / n + (request->count % n != 0);
    *out = (struct tutti_packed_shape){.packing = {request->options.wire, request->options.wire_block},
                                       .all = request->kind == TUTTI_ALL_REDUCE,
                                       .n = n,
                                       .me = (uint32_t)request->comm->rank};
    out->part = out->all ? (each + PART_UNIT - 1) / PART_UNIT * PART_UNIT : request->count;
    out->total = out->all ? request->count : request->v ? request->count : request->count * n;
    out->part_bytes = tutti_packed_bytes(&out->packing, out->part);
    if (!all_bytes(request, out, &sent) || __builtin_mul_overflow(out->part_bytes, n, &collected) ||
        sent > PTRDIFF_MAX / 4 || collected > PTRDIFF_MAX / 4)
        return tutti_request_fail(request, TUTTI_ERR_MEMORY, "out of memory for %zu packed elements", out->total);
    out->collected = out->sent + sent;
    out->spread = out->collected + collected;
    out->bytes = out->spread + (out->all ? collected : 0);
    return TUTTI_OK;
}

/* ---- steps ---- */

/* What all ranks must agree on, and the steps' own signatures do not tell. */
static uint64_t purpose_of(const struct tutti_request *request)
{
    const struct tutti_call_options *options = &request->options;
    const uint64_t words[] = {
        request->kind,       (uint64_t)request->dtype, (uint64_t)request->op, options->wire,
        options->wire_block, options->wire_seed,       !options->wire_seeds,  request->v ? 0 : request->count};
    uint64_t hash = tutti_hash64(words, sizeof words, 1);
    if (request->v) hash = tutti_hash64(request->counts, (size_t)request->comm->size * sizeof(size_t), hash);
    return hash | 1;
}

static const char *label_of(const struct tutti_request *request)
{
    static const char *const labels[2][TUTTI_N_WIRES] = {
        {[TUTTI_WIRE_BFLOAT16] = "reduce_scatter, bfloat16 on the wire",
         [TUTTI_WIRE_FLOAT8_E4M3] = "reduce_scatter, float8_e4m3 on the wire",
         [TUTTI_WIRE_FLOAT8_E5M2] = "reduce_scatter, float8_e5m2 on the wire",
         [TUTTI_WIRE_INT8] = "reduce_scatter, int8 on the wire"},
        {[TUTTI_WIRE_BFLOAT16] = "all_reduce, bfloat16 on the wire",
         [TUTTI_WIRE_FLOAT8_E4M3] = "all_reduce, float8_e4m3 on the wire",
         [TUTTI_WIRE_FLOAT8_E5M2] = "all_reduce, float8_e5m2 on the wire",
         [TUTTI_WIRE_INT8] = "all_reduce, int8 on the wire"}};
    return request->options.label ? request->options.label
                                  : labels[request->kind == TUTTI_ALL_REDUCE][request->options.wire];
}

/* An all_to_all_v: to each rank its own part, from each the own one. */
static void fill_tables(const struct tutti_request *request, const struct tutti_packed_shape *shape, size_t *tables,
                        struct tutti_request *out)
{
    size_t *const in_counts = tables, *const counts = tables + shape->n;
    for (uint32_t r = 0; r < shape->n; r++) {
        in_counts[r] = tutti_packed_bytes(&shape->packing, request->counts[r]);
        counts[r] = shape->part_bytes;
    }
    out->v = true;
    out->in_counts = in_counts, out->counts = counts;
}

void tutti_packed_step(const struct tutti_request *request, const struct tutti_packed_shape *shape,
                       enum tutti_packed_step step, char *region, size_t *tables, struct tutti_request *out)
{
    const bool spreads = step == TUTTI_PACKED_SPREAD;
    *out = (struct tutti_request){
        .type = TUTTI_REQUEST_COLLECTIVE,
        .name = request->name,
        .comm = request->comm,
        .kind = spreads ? TUTTI_ALL_GATHER : TUTTI_ALL_TO_ALL,
        .send = region + (spreads ? shape->spread + shape->me * shape->part_bytes : shape->sent),
        .recv = region + (spreads ? shape->spread : shape->collected),
        .count = shape->part_bytes,
        .dtype = TUTTI_UINT8,
        .op = -1,
        .options = request->options,
        .purpose = purpose_of(request),
    };
    out->options.wire = TUTTI_WIRE_NONE;
    out->options.label = label_of(request);
    if (request->v) fill_tables(request, shape, tables, out);
}

/* ---- jobs ---- */

/* step: the first rounds what this rank sends, the second one its part of the result. */
static struct tutti_recode job_of(const struct tutti_request *request, const struct tutti_packed_shape *shape,
                                  enum tutti_packed_step step)
{
    const struct tutti_call_options *options = &request->options;
    return (struct tutti_recode){
        .packing = shape->packing,
        .dtype = request->dtype,
        .n = 1,
        .divisor = 1,
        .n_parts = 1,
        .skip = UINT32_MAX,
        .part_bytes = shape->part_bytes,
        .part = shape->part,
        .total = shape->part,
        .end = SIZE_MAX,
        .stochastic = options->wire_seed != 0 || options->wire_seeds,
        .seed = options->wire_seed,
        .seeds = options->wire_seeds,
        .stream = (uint64_t)shape->me << 1 | (step == TUTTI_PACKED_SPREAD),
    };
}

void tutti_packed_input(const struct tutti_request *request, const struct tutti_packed_shape *shape, uint32_t part,
                        char *region, struct tutti_recode *out)
{
    *out = job_of(request, shape, TUTTI_PACKED_COLLECT);
    out->own = request->send;
    out->repacked = region + shape->sent;
    out->skip = shape->me;
    out->n_parts = shape->n;
    out->total = shape->total;
    if (!request->v) return;
    size_t bytes = 0;
    for (uint32_t r = 0; r < part; r++) bytes += tutti_packed_bytes(&shape->packing, request->counts[r]);
    out->own = (const char *)request->send + elements_before(request, part) * tutti_dtype_bytes(request->dtype);
    out->repacked = region + shape->sent + bytes;
    out->skip = part == shape->me ? 0 : UINT32_MAX;
    out->n_parts = 1;
    out->part = out->total = request->counts[part];
    out->stream |= (uint64_t)part << 32;
}

void tutti_packed_sum(const struct tutti_request *request, const struct tutti_packed_shape *shape, char *region,
                      struct tutti_recode *out)
{
    const size_t before = request->v ? elements_before(request, shape->me) : shape->me * shape->part;
    *out = job_of(request, shape, TUTTI_PACKED_SPREAD);
    out->n = shape->n, out->me = shape->me;
    out->own = (const char *)request->send + before * tutti_dtype_bytes(request->dtype);
    out->packed = region + shape->collected;
    out->source_bytes = shape->part_bytes;
    if (request->op == (int)TUTTI_AVG) out->divisor = shape->n;
    if (!shape->all) {
        out->elements = request->recv;
        return;
    }
    out->repacked = region + shape->spread + shape->me * shape->part_bytes;
    out->total = before >= shape->total ? 0 : shape->total - before;
}

void tutti_packed_result(const struct tutti_request *request, const struct tutti_packed_shape *shape, char *region,
                         struct tutti_recode *out)
{
    *out = job_of(request, shape, TUTTI_PACKED_SPREAD);
    out->me = out->n;
    out->packed = region + shape->spread;
    out->elements = request->recv;
    out->n_parts = shape->n;
    out->total = shape->total;
}
