/* SPDX-License-Identifier: BSD-3-Clause */
/* See direct_calls.h. */
#include "cuda/support/direct_calls.h"
#include "reference.h"

#include "base/base.h"

#include <string.h>

enum { EDGE = 64 };                              /* bytes around buffers that nobody may touch */
enum place { IN, BEFORE, OUT, AFTER, N_PLACES }; /* places in a rank's memory */

static const char *const kind_names[N_DIRECT_KINDS] = {"gather",       "gather in place",     "all_to_all",
                                                       "all_to_all_v", "broadcast by shares", "broadcast as a chain",
                                                       "all_reduce"};

static uint64_t below(const struct direct_call *call, uint64_t n)
{
    return tutti_random64(call->seed) % n;
}

static size_t room(const struct direct_call *call)
{
    return (call->bytes + 16 + 2 * EDGE + 255) / 256 * 256;
}

static char *place(const struct direct_call *call, uint32_t r, enum place which)
{
    return call->sides[r].memory + which * room(call);
}

static char *out_at(const struct direct_call *call, uint32_t r)
{
    return place(call, r, OUT) + EDGE + call->sides[r].out_skew;
}

static unsigned char *before_of(const struct direct_call *call, uint32_t r)
{
    return call->sides[r].before + EDGE + call->sides[r].out_skew;
}

static unsigned char *want_of(const struct direct_call *call, uint32_t r)
{
    return call->sides[r].want + EDGE + call->sides[r].out_skew;
}

static unsigned char *input_of(const struct direct_call *call, uint32_t r)
{
    const struct direct_side *side = &call->sides[r];
    return call->kind == DIRECT_REDUCE && call->reduction.in_place ? before_of(call, r)
                                                                   : side->in + EDGE + side->in_skew;
}

static unsigned char *random_bytes(const struct direct_call *call, size_t n)
{
    unsigned char *bytes = malloc(n);
    assert_non_null(bytes);
    for (size_t i = 0; i < n; i += 8) {
        const uint64_t v = tutti_random64(call->seed);
        memcpy(bytes + i, &v, 8);
    }
    return bytes;
}

static void open_buffers(struct direct_call *call)
{
    for (uint32_t r = 0; r < call->rig->n; r++) {
        struct direct_side *side = &call->sides[r];
        side->in = random_bytes(call, room(call));
        side->before = random_bytes(call, room(call));
        side->want = random_bytes(call, room(call));
        memcpy(side->want, side->before, room(call));
        side->memory = rig_alloc(call->rig, r, N_PLACES * room(call));
        side->direct.call = side->tiles.call = rig_call(call->rig, r);
    }
}

static void upload(const struct direct_call *call)
{
    for (uint32_t r = 0; r < call->rig->n; r++) {
        rig_copy(call->rig, r, place(call, r, IN), call->sides[r].in, room(call));
        rig_copy(call->rig, r, place(call, r, BEFORE), call->sides[r].before, room(call));
        rig_copy(call->rig, r, place(call, r, OUT), call->sides[r].before, room(call));
    }
}

void direct_call_close(const struct direct_call *call)
{
    for (uint32_t r = 0; r < call->rig->n; r++) {
        rig_free(call->rig, r, call->sides[r].memory);
        free(call->sides[r].in);
        free(call->sides[r].before);
        free(call->sides[r].want);
    }
}

static void copy(const struct direct_call *call, uint32_t r, enum place to, enum place from)
{
    const struct rig *rig = call->rig;
    if (call->bare) return;
    assert_int_equal(
        tutti_cuda_copy(rig->gpus[r], place(call, r, to), place(call, r, from), room(call), rig->streams[r]), TUTTI_OK);
}

void direct_call_launch(const struct direct_call *call, uint32_t r)
{
    copy(call, r, OUT, BEFORE);
    if (call->kind == DIRECT_REDUCE)
        rig_launch_tiles(call->rig, &call->sides[r].tiles, call->reduction.kernel);
    else if (call->grid.blocks > 0)
        rig_launch(call->rig, r, rig_kernel(call->rig, r, "direct", "move"), call->grid.blocks, GPU_DIRECT_THREADS,
                   &call->sides[r].direct);
    copy(call, r, AFTER, OUT);
}

/* ---- moves ---- */
static void send(struct direct_call *call, uint32_t r, uint32_t q, struct gpu_part part, uint64_t to)
{
    call->sides[r].direct.send[q] = part;
    call->sides[r].direct.to[q] = out_at(call, q) + to;
}

static void lay_gather(struct direct_call *call, size_t each)
{
    const bool there = call->kind == DIRECT_GATHER_IN_PLACE;
    for (uint32_t r = 0; r < call->rig->n; r++) {
        struct direct_side *side = &call->sides[r];
        side->direct.alike = 1;
        side->direct.in = there ? out_at(call, r) + r * each : place(call, r, IN) + EDGE + side->in_skew;
        for (uint32_t q = 0; q < call->rig->n; q++) {
            if (q != r || !there) send(call, r, q, (struct gpu_part){0, each}, r * each);
            memcpy(want_of(call, q) + r * each, there ? before_of(call, r) + r * each : input_of(call, r), each);
        }
    }
}

static void lay_to_all(struct direct_call *call, size_t each)
{
    for (uint32_t r = 0; r < call->rig->n; r++) {
        call->sides[r].direct.in = place(call, r, IN) + EDGE + call->sides[r].in_skew;
        for (uint32_t q = 0; q < call->rig->n; q++) {
            struct gpu_part part = {q * each, each};
            if (call->kind == DIRECT_TO_ALL_V)
                part.bytes = (r * 7 + q * 3) % 4 == 0 ? 0 : each * (r + q + 1) / (2 * call->rig->n);
            if (part.bytes > 0 || call->kind == DIRECT_TO_ALL) send(call, r, q, part, r * each);
            memcpy(want_of(call, q) + r * each, input_of(call, r) + part.at, part.bytes);
        }
    }
}

/* A share for each rank but the root, who passes it on; the last ones may be short, or empty. */
static size_t lay_shares(struct direct_call *call)
{
    const uint32_t n = call->rig->n, root = call->root;
    const size_t grain = below(call, 2) ? 16 : 1, most = ((call->bytes + n - 2) / (n - 1) + grain - 1) / grain * grain;
    for (uint32_t r = 0; r < n; r++) {
        struct gpu_direct *x = &call->sides[r].direct;
        x->in = out_at(call, r);
        x->alike = r != root;
        x->relays = r != root && n > 2 ? 1 + root : 0;
        x->relayed = r == root && n > 2;
        memcpy(want_of(call, r), before_of(call, root), call->bytes);
        for (uint32_t q = 0; q < n; q++) {
            const uint64_t at = gpu_row(root, r == root ? q : r) * most, left = at < call->bytes ? call->bytes - at : 0;
            const struct gpu_part share = {left > 0 ? at : call->bytes, left < most ? left : most};
            if (q != r && q != root) send(call, r, q, share, share.at);
        }
    }
    return most;
}

/* The rank `hop` behind the root relays what the one before sends; the last one sends nothing. */
static size_t lay_chain(struct direct_call *call)
{
    const uint32_t n = call->rig->n;
    for (uint32_t hop = 0; hop < n; hop++) {
        const uint32_t r = (call->root + hop) % n;
        struct gpu_direct *x = &call->sides[r].direct;
        x->in = out_at(call, r);
        memcpy(want_of(call, r), before_of(call, call->root), call->bytes);
        if (hop == n - 1) continue;
        x->alike = (uint32_t)below(call, 2);
        x->relays = hop > 0 ? 1 + (r + n - 1) % n : 0;
        x->relayed = hop + 2 < n;
        send(call, r, (r + 1) % n, (struct gpu_part){0, call->bytes}, 0);
    }
    return call->bytes;
}

/* Grids are those of calls, or whatever all agree on. */
static void choose_grid(struct direct_call *call, uint64_t longest)
{
    call->grid = gpu_direct_grid_of(longest, call->rig->layout.n_blocks);
    if (below(call, 2)) {
        call->grid.piece_bytes = 512 * (1 + (uint32_t)below(call, GPU_PIECE / 512));
        call->grid.blocks = 1 + (uint32_t)below(call, call->rig->layout.n_blocks);
    }
    for (uint32_t r = 0; r < call->rig->n; r++) call->sides[r].direct.piece_bytes = call->grid.piece_bytes;
}

void direct_call_move(struct direct_call *call, struct rig *rig, enum direct_kind kind, uint32_t root, size_t bytes,
                      uint64_t *seed)
{
    *call = (struct direct_call){.rig = rig, .kind = kind, .root = root, .seed = seed};
    call->bytes = direct_is_broadcast(kind) ? bytes : rig->n * bytes;
    call->bare = below(call, 3) == 0;
    const bool aligned = below(call, 2);
    for (uint32_t r = 0; r < rig->n && !aligned; r++) {
        call->sides[r].in_skew = (uint32_t)below(call, 16);
        call->sides[r].out_skew = (uint32_t)below(call, 16);
    }
    open_buffers(call);
    if (kind == DIRECT_GATHER || kind == DIRECT_GATHER_IN_PLACE) lay_gather(call, bytes);
    if (kind == DIRECT_TO_ALL || kind == DIRECT_TO_ALL_V) lay_to_all(call, bytes);
    choose_grid(call, kind == DIRECT_SHARES ? lay_shares(call) : kind == DIRECT_CHAIN ? lay_chain(call) : bytes);
    upload(call);
}

/* ---- reductions by tiles, of which each rank folds a shard ---- */
static const unsigned char *factor_of(enum tutti_dtype dtype)
{
    static unsigned char factor[16];
    const enum tutti_dtype real = dtype == TUTTI_COMPLEX64    ? TUTTI_FLOAT32
                                  : dtype == TUTTI_COMPLEX128 ? TUTTI_FLOAT64
                                                              : dtype;
    memset(factor, 0, sizeof factor);
    if (real < TUTTI_BOOL)
        factor[0] = 2;
    else
        ref_encode(real, 2, factor);
    return factor;
}

static struct gpu_part shard(const struct direct_call *call, uint32_t q)
{
    const uint64_t each = ((call->bytes + call->rig->n - 1) / call->rig->n + 15) / 16 * 16;
    const uint64_t at = q * each < call->bytes ? q * each : call->bytes;
    return (struct gpu_part){at, call->bytes - at < each ? call->bytes - at : each};
}

static void lay_reduce(struct direct_call *call)
{
    const uint32_t n = call->rig->n;
    for (uint32_t r = 0; r < n; r++) {
        struct gpu_exchange *x = &call->sides[r].tiles;
        const struct gpu_part own = shard(call, r);
        x->out = out_at(call, r);
        x->in = call->reduction.in_place ? x->out : place(call, r, IN) + EDGE + call->sides[r].in_skew;
        for (uint32_t q = 0; q < n; q++) {
            x->send[q] = shard(call, q);
            x->recv[q] = own;
            if (q != r && !call->reduction.alone) x->spread[q] = out_at(call, q) + own.at;
        }
        x->result_bytes = own.bytes;
        x->spreads = !call->reduction.alone;
        x->call.op = call->reduction.op;
        x->call.divisor = call->reduction.op == TUTTI_AVG ? n : 0;
        x->call.scales = call->reduction.op == TUTTI_PREMUL_SUM;
        if (x->call.scales) memcpy(x->call.factor, factor_of(call->reduction.dtype), sizeof x->call.factor);
    }
}

static void fill(const struct direct_call *call)
{
    const uint64_t data = tutti_random64(call->seed);
    for (uint32_t r = 0; r < call->rig->n; r++) {
        if (call->reduction.exact)
            ref_fill_exact(call->reduction.dtype, call->reduction.op, data, r, call->rig->n, input_of(call, r),
                           call->reduction.count);
        else
            ref_fill(call->reduction.dtype, REF_FINITE, data + r, input_of(call, r), call->reduction.count);
        memcpy(call->sides[r].want, call->sides[r].before, room(call));
    }
}

/* Outputs lie alike on all ranks, inputs anywhere. */
void direct_call_reduce(struct direct_call *call, struct rig *rig, const struct direct_reduction *reduction,
                        uint64_t *seed)
{
    const uint32_t grain = (uint32_t)ref_bytes(reduction->dtype);
    *call = (struct direct_call){.rig = rig, .kind = DIRECT_REDUCE, .reduction = *reduction, .seed = seed};
    call->bytes = reduction->count * grain;
    call->bare = below(call, 3) == 0;
    const bool aligned = below(call, 2);
    const uint32_t skew = aligned ? 0 : (uint32_t)below(call, 16) / grain * grain;
    for (uint32_t r = 0; r < rig->n; r++) {
        call->sides[r].in_skew = aligned ? 0 : (uint32_t)below(call, 16) / grain * grain;
        call->sides[r].out_skew = skew;
    }
    open_buffers(call);
    lay_reduce(call);
    fill(call);
    upload(call);
}

/* Exact data: the reference's result. Else one that is close, of shards as their ranks have them; equal on all ranks.
 */
static void want_reduction(const struct direct_call *call)
{
    const void *inputs[GPU_MAX_RANKS];
    size_t where;
    unsigned char *result = malloc(call->bytes);
    assert_non_null(result);
    for (uint32_t r = 0; r < call->rig->n; r++) {
        const struct gpu_part own = shard(call, r);
        inputs[r] = input_of(call, r);
        rig_copy(call->rig, r, result + own.at,
                 place(call, r, call->bare ? OUT : AFTER) + EDGE + call->sides[r].out_skew + own.at, own.bytes);
    }
    if (call->reduction.exact)
        ref_reduce(call->reduction.dtype, call->reduction.op, inputs, call->rig->n, call->reduction.count,
                   factor_of(call->reduction.dtype), result);
    else if (!ref_close(call->reduction.dtype, call->reduction.op, inputs, call->rig->n, call->reduction.count,
                        factor_of(call->reduction.dtype), result, &where))
        fail_msg("%s of %s, %u ranks: element %zu of %zu", tutti_op_name(call->reduction.op),
                 tutti_dtype_name(call->reduction.dtype), call->rig->n, where, call->reduction.count);
    for (uint32_t r = 0; r < call->rig->n; r++) {
        const struct gpu_part whole = {0, call->bytes}, part = call->reduction.alone ? shard(call, r) : whole;
        memcpy(want_of(call, r) + part.at, result + part.at, part.bytes);
    }
    free(result);
}

/* ---- what is there afterwards ---- */
static void check_place(const struct direct_call *call, uint32_t r, enum place which, const unsigned char *want,
                        uint32_t skew)
{
    unsigned char *got = malloc(room(call));
    assert_non_null(got);
    rig_copy(call->rig, r, got, place(call, r, which), room(call));
    for (size_t i = 0; i < room(call); i++) {
        if (got[i] != want[i])
            fail_msg("%s of %u ranks, root %u, grid %u of %u: byte %zd of rank %u's %s, %zu, is %u, not %u",
                     kind_names[call->kind], call->rig->n, call->root, call->grid.blocks, call->grid.piece_bytes,
                     (ptrdiff_t)i - EDGE - (ptrdiff_t)skew, r, which == IN ? "input" : "output", call->bytes, got[i],
                     want[i]);
    }
    free(got);
}

static void check_rank(const struct direct_call *call, uint32_t r, const unsigned char *want)
{
    check_place(call, r, call->bare ? OUT : AFTER, want, call->sides[r].out_skew);
    check_place(call, r, IN, call->sides[r].in, call->sides[r].in_skew);
}

void direct_call_check(const struct direct_call *call)
{
    if (call->kind == DIRECT_REDUCE) want_reduction(call);
    for (uint32_t r = 0; r < call->rig->n; r++) check_rank(call, r, call->sides[r].want);
}

void direct_call_check_untouched(const struct direct_call *call)
{
    assert_true(call->bare);
    for (uint32_t r = 0; r < call->rig->n; r++) check_rank(call, r, call->sides[r].before);
}

void direct_call_run(const struct direct_call *call)
{
    const uint32_t n = call->rig->n, first = (uint32_t)below(call, n);
    for (uint32_t k = 0; k < n; k++) direct_call_launch(call, (first + k) % n);
    rig_sync(call->rig);
    direct_call_check(call);
    direct_call_close(call);
}
