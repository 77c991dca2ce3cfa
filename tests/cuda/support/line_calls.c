/* SPDX-License-Identifier: BSD-3-Clause */
/* See line_calls.h. */
#include "cuda/support/line_calls.h"
#include "reference.h"

#include "base/base.h"

#include <stdio.h>
#include <string.h>

enum { EDGE = 64 }; /* bytes around outputs that nobody may touch */

static bool moves(const struct line_spec *spec)
{
    return spec->kind >= KIND_ALL_GATHER;
}

static size_t part_bytes(const struct line_spec *spec)
{
    return spec->count * (moves(spec) ? 1 : ref_bytes(spec->dtype));
}

static size_t room(const struct line_side *side)
{
    return side->out_bytes + 16 + 2 * EDGE;
}

static unsigned char *want_of(const struct line_call *call, uint32_t r)
{
    return call->sides[r].want + EDGE + call->spec.skew_out;
}

static bool is_from(const struct line_spec *spec, uint32_t n, uint32_t from, uint32_t to)
{
    switch (spec->kind) {
    case KIND_REDUCE:
        return to == n - 1;
    case KIND_SCAN:
        return from <= to;
    case KIND_EXSCAN:
        return from < to;
    case KIND_BROADCAST:
        return from == n - 1;
    case KIND_ALL_TO_ALL_V:
        return (from * 5 + to * 3) % 4 != 0;
    default:
        return true;
    }
}

/* A relay's root is the last rank; rank q's share of all that the others have, of which the last ones may be short. */
static struct gpu_part share_of(const struct line_call *call, uint32_t q)
{
    const size_t count = call->spec.count, each = (count + 15) / 16 * 16;
    const size_t all = (call->rig->n - 1) * count - (count > 16 ? call->spec.seed % 17 : 0), at = q * each;
    if (at >= all) return (struct gpu_part){all, 0};
    return (struct gpu_part){at, all - at < each ? all - at : each};
}

static void lay_shares(struct line_call *call, uint32_t r)
{
    struct gpu_exchange *x = &call->sides[r].exchange;
    const uint32_t root = call->rig->n - 1;
    for (uint32_t q = 0; q <= root; q++) {
        if (q != r && q != root) x->send[q] = share_of(call, r == root ? q : r);
        if (q != r && r != root) x->recv[q] = share_of(call, q == root ? r : q);
    }
    x->relays = r == root ? 0 : 1 + root;
}

/* Bytes from one rank to another. */
static size_t bytes_of(const struct line_call *call, uint32_t from, uint32_t to)
{
    const struct line_spec *spec = &call->spec;
    const size_t bytes = part_bytes(spec);
    if (!is_from(spec, call->rig->n, from, to)) return 0;
    return spec->kind == KIND_ALL_TO_ALL_V ? bytes * (from + 2 * to + 1) / (3 * call->rig->n) : bytes;
}

/* The parts of rank r; in place, inputs lie in the output. */
static void lay_parts(struct line_call *call, uint32_t r)
{
    const struct line_spec *spec = &call->spec;
    struct line_side *side = &call->sides[r];
    struct gpu_exchange *x = &side->exchange;
    const bool spread = spec->kind == KIND_REDUCE_SCATTER || spec->kind == KIND_ALL_TO_ALL;
    uint64_t in = 0, out = 0;
    if (spec->kind == KIND_RELAY) lay_shares(call, r);
    for (uint32_t q = 0; q < call->rig->n && spec->kind != KIND_RELAY; q++) {
        x->send[q].bytes = bytes_of(call, r, q), x->recv[q].bytes = bytes_of(call, q, r);
        x->send[q].at = spread ? q * part_bytes(spec) : 0;
        x->recv[q].at = moves(spec) && spec->kind != KIND_BROADCAST ? q * part_bytes(spec) : 0;
        if (spec->kind == KIND_ALL_TO_ALL_V) {
            x->send[q].at = in, x->recv[q].at = out;
            in += x->send[q].bytes + 1, out += x->recv[q].bytes + 3;
        }
        if (spec->in_place && spec->kind == KIND_ALL_GATHER) x->send[q].at = r * part_bytes(spec);
    }
    if (spec->in_place && spec->kind == KIND_REDUCE_SCATTER) x->recv[r].at = r * part_bytes(spec);
    for (uint32_t q = 0; q < call->rig->n; q++) {
        if (x->send[q].at + x->send[q].bytes > side->in_bytes) side->in_bytes = x->send[q].at + x->send[q].bytes;
        if (x->recv[q].at + x->recv[q].bytes > side->out_bytes) side->out_bytes = x->recv[q].at + x->recv[q].bytes;
        if (!moves(spec) && x->recv[q].bytes > 0) x->result_bytes = x->recv[q].bytes;
    }
    if (spec->in_place && side->out_bytes < side->in_bytes) side->out_bytes = side->in_bytes;
}

static uint32_t blocks_for(const struct line_spec *spec, uint64_t bytes)
{
    const uint64_t each = (uint64_t)16 * spec->threads * spec->units;
    return bytes > each ? (uint32_t)((bytes + each - 1) / each) : 1;
}

void line_paint_ones(unsigned char *input, size_t bytes, uint64_t seed)
{
    (void)seed;
    memset(input, 0xff, bytes);
}

void line_paint_runs(unsigned char *input, size_t bytes, uint64_t seed)
{
    size_t at = 0;
    while (at < bytes) {
        const size_t most = bytes - at, run = (tutti_random64(&seed) % 64) << tutti_random64(&seed) % 6;
        at += tutti_random64(&seed) % most;
        memset(input + at, 0xff, run < bytes - at ? run : bytes - at);
        at += run + 1;
    }
}

static void fill(const struct line_call *call, void *out, size_t bytes, uint64_t seed)
{
    const struct line_spec *spec = &call->spec;
    if (moves(spec))
        ref_fill(TUTTI_UINT8, REF_BITS, seed, out, bytes);
    else
        ref_fill(spec->dtype, (enum ref_values)spec->values, seed, out, bytes / ref_bytes(spec->dtype));
    if (spec->paint) spec->paint(out, bytes, seed);
}

static void *bytes_alloc(size_t bytes)
{
    void *p = calloc(1, bytes + 16);
    assert_non_null(p);
    return p;
}

/* Inputs on the host; what is in and around outputs before; both on the device. */
static void make_buffers(struct line_call *call, uint32_t r)
{
    const struct line_spec *spec = &call->spec;
    struct line_side *side = &call->sides[r];
    side->in = bytes_alloc(side->in_bytes);
    side->want = bytes_alloc(room(side));
    fill(call, side->in, side->in_bytes, spec->seed + r);
    ref_fill(TUTTI_UINT8, REF_BITS, ~spec->seed + r, side->want, room(side));
    if (spec->in_place) memcpy(want_of(call, r), side->in, side->in_bytes);
    side->device_out = rig_alloc(call->rig, r, room(side));
    side->device_in = rig_alloc(call->rig, r, side->in_bytes + 16);
    rig_copy(call->rig, r, side->device_out, side->want, room(side));
    rig_copy(call->rig, r, side->device_in + spec->skew_in, side->in, side->in_bytes);
    side->exchange.out = side->device_out + EDGE + spec->skew_out;
    side->exchange.in = spec->in_place ? side->exchange.out : side->device_in + spec->skew_in;
}

/* Inputs and factors of those who contribute to rank r's result. */
static void want_result(struct line_call *call, uint32_t r)
{
    const struct line_spec *spec = &call->spec;
    struct gpu_exchange *x = &call->sides[r].exchange;
    const unsigned char *inputs[GPU_MAX_RANKS], *factors[GPU_MAX_RANKS];
    size_t n = 0;
    for (uint32_t q = 0; q < call->rig->n; q++) {
        if (x->recv[q].bytes == 0) continue;
        inputs[n] = call->sides[q].in + call->sides[q].exchange.send[r].at;
        factors[n++] = call->sides[q].exchange.call.factor;
    }
    x->call.divisor = spec->op == TUTTI_AVG ? (uint32_t)n : 0;
    if (n == 0) return;
    unsigned char *result = bytes_alloc(x->result_bytes);
    line_reduce(spec->dtype, spec->op, inputs, factors, n, spec->count, result);
    memcpy(want_of(call, r) + x->recv[r].at, result, x->result_bytes);
    free(result);
}

static void want_moves(struct line_call *call, uint32_t r)
{
    const struct gpu_exchange *x = &call->sides[r].exchange;
    for (uint32_t q = 0; q < call->rig->n; q++) {
        const unsigned char *sent = call->sides[q].in + call->sides[q].exchange.send[r].at;
        if (call->spec.kind == KIND_RELAY) sent = call->sides[call->rig->n - 1].in + x->recv[q].at;
        memcpy(want_of(call, r) + x->recv[q].at, sent, x->recv[q].bytes);
    }
}

/* Shards of a little more than their share, so that the last ones are short or empty. */
static void make_two_shot(struct line_call *call, uint32_t r)
{
    const struct gpu_exchange *x = &call->sides[r].exchange;
    struct gpu_two_shot *shot = &call->sides[r].two_shot;
    *shot = (struct gpu_two_shot){
        .call = x->call, .in = x->in, .out = x->out, .bytes = x->result_bytes, .units = call->spec.units};
    shot->shard_bytes = (shot->bytes / call->rig->n + 16 + 15) / 16 * 16;
    call->blocks = blocks_for(&call->spec, shot->shard_bytes);
    gpu_two_shot_seal(shot);
}

void line_call_open(struct line_call *call, struct rig *rig, const struct line_spec *spec)
{
    *call = (struct line_call){.rig = rig, .spec = *spec};
    for (uint32_t r = 0; r < rig->n; r++) {
        struct gpu_exchange *x = &call->sides[r].exchange;
        x->call = rig_call(rig, r);
        x->call.op = spec->op;
        x->units = spec->units;
        x->call.scales = !moves(spec) && spec->op == TUTTI_PREMUL_SUM;
        if (x->call.scales) ref_fill(spec->dtype, REF_FINITE, spec->seed * 31 + r, x->call.factor, 1);
        lay_parts(call, r);
        make_buffers(call, r);
    }
    for (uint32_t r = 0; r < rig->n; r++) {
        if (moves(spec))
            want_moves(call, r);
        else
            want_result(call, r);
        gpu_exchange_seal(&call->sides[r].exchange);
        make_two_shot(call, r);
    }
    if (strcmp(spec->protocol, "sentinel2") != 0) call->blocks = blocks_for(spec, part_bytes(spec));
    assert_true(call->blocks <= rig->layout.n_blocks);
}

void line_call_launch(const struct line_call *call, uint32_t r)
{
    const struct line_spec *spec = &call->spec;
    const struct line_side *side = &call->sides[r];
    char reducer[32] = "move";
    if (!moves(spec))
        snprintf(reducer, sizeof reducer, "%s%s", tutti_dtype_name(spec->dtype), spec->fast ? "_sum" : "");
    void *kernel = rig_kernel(call->rig, r, spec->protocol, reducer);
    if (strcmp(spec->protocol, "sentinel2") == 0)
        rig_launch(call->rig, r, kernel, call->blocks, spec->threads, &side->two_shot);
    else
        rig_launch(call->rig, r, kernel, call->blocks, spec->threads, &side->exchange);
}

static void complain(const struct line_call *call, uint32_t r, const char *where, size_t at)
{
    static const char *const kinds[N_KINDS] = {"all_reduce", "reduce_scatter", "reduce",       "scan",      "exscan",
                                               "all_gather", "all_to_all",     "all_to_all_v", "broadcast", "relay"};
    const struct line_spec *spec = &call->spec;
    fail_msg("%s by %s%s of %zu %s, %s, %u ranks, %u x %u x %u, at %u and %u%s: rank %u, %s %zu", kinds[spec->kind],
             spec->protocol, spec->fast ? " (fast)" : "", spec->count, tutti_dtype_name(spec->dtype),
             tutti_op_name(spec->op), call->rig->n, call->blocks, spec->threads, spec->units, spec->skew_in,
             spec->skew_out, spec->in_place ? ", in place" : "", r, where, at);
}

/* All bytes, but that one NaN is as good as another. */
static void check_rank(const struct line_call *call, uint32_t r)
{
    const struct line_side *side = &call->sides[r];
    const size_t bytes = room(side), at = EDGE + call->spec.skew_out + side->exchange.recv[r].at;
    if (!side->want) {
        fail_msg("rank %u was not opened", r);
        return;
    }
    unsigned char *got = bytes_alloc(bytes);
    rig_copy(call->rig, r, got, side->device_out, bytes);
    if (!moves(&call->spec) && side->exchange.result_bytes > 0) {
        unsigned char *result = bytes_alloc(side->exchange.result_bytes);
        unsigned char *want = bytes_alloc(side->exchange.result_bytes);
        size_t where;
        memcpy(result, got + at, side->exchange.result_bytes);
        memcpy(want, side->want + at, side->exchange.result_bytes);
        if (!ref_equal(call->spec.dtype, result, want, call->spec.count, &where)) {
            char g[64], w[64];
            ref_print(call->spec.dtype, result + where * ref_bytes(call->spec.dtype), g, sizeof g);
            ref_print(call->spec.dtype, want + where * ref_bytes(call->spec.dtype), w, sizeof w);
            print_message("%s, not %s\n", g, w);
            complain(call, r, "element", where);
        }
        memcpy(got + at, want, side->exchange.result_bytes);
        free(result);
        free(want);
    }
    for (size_t i = 0; i < bytes; i++)
        if (got[i] != side->want[i]) complain(call, r, "byte", i);
    free(got);
}

void line_call_check(const struct line_call *call)
{
    for (uint32_t r = 0; r < call->rig->n; r++) check_rank(call, r);
}

void line_call_close(struct line_call *call)
{
    for (uint32_t r = 0; r < call->rig->n; r++) {
        rig_free(call->rig, r, call->sides[r].device_in);
        rig_free(call->rig, r, call->sides[r].device_out);
        free(call->sides[r].in);
        free(call->sides[r].want);
    }
}

void line_call_run(struct rig *rig, const struct line_spec *spec)
{
    struct line_call call;
    line_call_open(&call, rig, spec);
    for (uint32_t r = 0; r < rig->n; r++) line_call_launch(&call, r);
    rig_sync(rig);
    line_call_check(&call);
    line_call_close(&call);
}
