/* SPDX-License-Identifier: BSD-3-Clause */
/* What calls are as exchanges: who sends which part of its input to whom, and what becomes of it there. Pure: pointers
 * are computed with, never read. */
#include "backend/cuda/cuda.h"

#include <string.h>

/* Who sends to whom. */
enum edges { ALL, TO_ROOT, FROM_ROOT, UPWARDS, ABOVE };
static const struct form {
    enum edges edges;
    bool sends_each, receives_each; /* a block of its own for each peer, else one block for all */
    bool folds;
} forms[TUTTI_N_KINDS] = {
    [TUTTI_ALL_REDUCE] = {ALL, false, false, true},       [TUTTI_REDUCE] = {TO_ROOT, false, false, true},
    [TUTTI_BROADCAST] = {FROM_ROOT, false, false, false}, [TUTTI_ALL_GATHER] = {ALL, false, true, false},
    [TUTTI_GATHER] = {TO_ROOT, false, true, false},       [TUTTI_SCATTER] = {FROM_ROOT, true, false, false},
    [TUTTI_REDUCE_SCATTER] = {ALL, true, false, true},    [TUTTI_ALL_TO_ALL] = {ALL, true, true, false},
    [TUTTI_SCAN] = {UPWARDS, false, false, true},         [TUTTI_EXSCAN] = {ABOVE, false, false, true},
};

static bool is_edge(enum edges edges, uint32_t root, uint32_t from, uint32_t to)
{
    const bool is[] = {
        [ALL] = true, [TO_ROOT] = to == root, [FROM_ROOT] = from == root, [UPWARDS] = from <= to, [ABOVE] = from < to};
    return is[edges];
}

/* ---- blocks ---- */

static struct cuda_part block_of(const size_t *counts, const size_t *displs, size_t count, uint32_t q, size_t element)
{
    size_t at = displs ? displs[q] : 0;
    if (!counts) return (struct cuda_part){q * count * element, count * element};
    for (uint32_t p = 0; p < q && !displs; p++) at += counts[p];
    return (struct cuda_part){counts[q] ? at * element : 0, counts[q] * element};
}

/* The one block of a rank that has no others: of v forms it may know no more. */
static size_t own_count(const struct cuda_place *place, const struct tutti_bind *bind)
{
    return bind->v && bind->counts ? bind->counts[place->me] : bind->count;
}

static struct cuda_part sent_to(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t q)
{
    const struct tutti_bind *b = &call->bind;
    size_t element = tutti_dtype_bytes(call->info.dtype);
    if (!forms[call->info.kind].sends_each) return (struct cuda_part){0, own_count(place, b) * element};
    if (!b->v) return block_of(NULL, NULL, b->count, q, element);
    if (call->info.kind == TUTTI_ALL_TO_ALL) return block_of(b->in_counts, b->in_displs, 0, q, element);
    return block_of(b->counts, b->displs, 0, q, element);
}

static struct cuda_part received_from(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t q)
{
    const struct tutti_bind *b = &call->bind;
    size_t element = tutti_dtype_bytes(call->info.dtype);
    if (!forms[call->info.kind].receives_each) return (struct cuda_part){0, own_count(place, b) * element};
    return b->v ? block_of(b->counts, b->displs, 0, q, element) : block_of(NULL, NULL, b->count, q, element);
}

size_t cuda_call_bytes(const struct tutti_backend_call *call)
{
    return call->bind.count * tutti_dtype_bytes(call->info.dtype);
}

bool cuda_sums(const struct tutti_backend_call *call)
{
    return call->info.op == TUTTI_SUM || call->info.op == TUTTI_AVG || call->info.op == TUTTI_PREMUL_SUM;
}

size_t cuda_block_bytes(const struct cuda_place *place, const struct tutti_backend_call *call, bool *known)
{
    const struct tutti_bind *b = &call->bind;
    size_t element = tutti_dtype_bytes(call->info.dtype), most = 0;
    *known = !b->v || call->info.kind == TUTTI_ALL_GATHER || call->info.kind == TUTTI_REDUCE_SCATTER;
    if (!b->v) return cuda_call_bytes(call);
    for (uint32_t q = 0; q < place->n && *known; q++)
        if (b->counts[q] > most) most = b->counts[q];
    return most * element;
}

struct cuda_part cuda_shard(size_t bytes, uint32_t n, uint32_t k)
{
    size_t each = (bytes / n + (bytes % n != 0) + CUDA_SHARD_UNIT - 1) / CUDA_SHARD_UNIT * CUDA_SHARD_UNIT;
    size_t at = k * each < bytes ? k * each : bytes, left = bytes - at;
    return (struct cuda_part){at, left < each ? left : each};
}

/* ---- steps ---- */

void cuda_step_begin(struct cuda_step *step, enum cuda_protocol protocol, const void *in, void *out)
{
    struct cuda_exchange *x = &step->exchange;
    step->act = CUDA_LAUNCH;
    step->protocol = protocol;
    step->folds = step->scales = false;
    step->divisor = step->lane = 0;
    x->in = in, x->out = out;
    x->result_bytes = 0;
    x->relays = x->spreads = 0;
    memset(x->send, 0, sizeof(x->send));
    memset(x->recv, 0, sizeof(x->recv));
}

static void fold(const struct tutti_backend_call *call, struct cuda_step *step)
{
    step->folds = true;
    step->scales = call->bind.scale != NULL;
    step->divisor = call->bind.divide ? call->bind.divisor : 0;
}

/* The own part of a move that is there already. */
static void skip_own(struct cuda_exchange *x, uint32_t me)
{
    if (x->send[me].bytes == 0 || x->in + x->send[me].at != x->out + x->recv[me].at) return;
    x->send[me] = x->recv[me] = (struct cuda_part){0, 0};
}

/* The call as one exchange. */
static void form(const struct cuda_place *place, const struct tutti_backend_call *call, enum cuda_protocol protocol,
                 struct cuda_step *step)
{
    const struct form *f = &forms[call->info.kind];
    uint32_t root = (uint32_t)call->info.root, me = place->me;
    struct cuda_exchange *x = &step->exchange;
    bool any = false;
    cuda_step_begin(step, protocol, call->bind.input, call->bind.output);
    for (uint32_t q = 0; q < place->n; q++) {
        if (is_edge(f->edges, root, me, q)) x->send[q] = sent_to(place, call, q);
        if (!is_edge(f->edges, root, q, me)) continue;
        x->recv[q] = received_from(place, call, q);
        any = true;
    }
    if (!f->folds) {
        skip_own(x, me);
        return;
    }
    fold(call, step);
    x->result_bytes = any ? own_count(place, &call->bind) * tutti_dtype_bytes(call->info.dtype) : 0;
}

void cuda_batch_form(const struct cuda_place *place, const struct tutti_backend_call *call, struct cuda_batch *out)
{
    const struct form *f = &forms[call->info.kind];
    uint32_t root = (uint32_t)call->info.root;
    out->sends = out->receives = 0;
    out->sends_each = f->sends_each, out->receives_each = f->receives_each;
    for (uint32_t q = 0; q < place->n; q++) {
        out->sends |= (uint32_t)is_edge(f->edges, root, place->me, q) << q;
        out->receives |= (uint32_t)is_edge(f->edges, root, q, place->me) << q;
    }
}

static uint32_t blocks_of(const struct cuda_place *place, const struct cuda_part *parts)
{
    uint32_t most = 0;
    for (uint32_t q = 0; q < place->n; q++) {
        uint32_t blocks = cuda_tile_blocks(parts[q].bytes, place->layout.tile_bytes, place->layout.n_blocks);
        if (blocks > most) most = blocks;
    }
    return most;
}

void cuda_step_tiles(const struct cuda_place *place, struct cuda_step *step)
{
    uint32_t sending = blocks_of(place, step->exchange.send), receiving = blocks_of(place, step->exchange.recv);
    step->threads = CUDA_TILE_THREADS;
    step->blocks = sending > receiving ? sending : receiving;
}

/* The grid of lines and sentinels: while parts are short, many small blocks, since each starts by itself; then as many
 * threads as there may be, then more for each of them; at last, what else there may be room for in a block's slot:
 * 48 KiB, or too little for as many threads. False: a part is too long. */
static bool grid_for(const struct cuda_place *place, size_t bytes, uint32_t block_bytes, struct cuda_step *step)
{
    static const struct {
        uint32_t threads, units, most;
    } grids[] = {{64, 1, 64},   {128, 1, 64},  {256, 1, 64},  {512, 1, 128},  {512, 2, 128},
                 {512, 3, 128}, {512, 4, 128}, {512, 8, 128}, {512, 16, 128}, {512, 32, 128},
                 {512, 6, 128}, {256, 1, 128}, {128, 1, 128}, {64, 1, 128}};
    size_t units = (bytes + 15) / 16;
    for (size_t g = 0; g < TUTTI_ARRAY_LEN(grids); g++) {
        size_t each = (size_t)grids[g].threads * grids[g].units, blocks = (units + each - 1) / each;
        uint32_t most = grids[g].most < place->layout.n_blocks ? grids[g].most : place->layout.n_blocks;
        if (blocks > most || each * 16 > block_bytes) continue;
        if (!step) return true;
        step->blocks = (uint32_t)blocks;
        step->threads = grids[g].threads;
        step->exchange.units = grids[g].units;
        return true;
    }
    return false;
}

bool cuda_has(const struct cuda_place *place, const struct tutti_backend_call *call, enum cuda_protocol protocol)
{
    return place->has[protocol][forms[call->info.kind].folds ? call->info.dtype : TUTTI_N_DTYPES];
}

/* ---- one exchange ---- */

bool cuda_slot_fits(const struct cuda_place *place, const struct tutti_backend_call *call, enum cuda_protocol protocol,
                    uint32_t slot_bytes)
{
    bool known;
    size_t bytes = cuda_block_bytes(place, call, &known);
    return place->n > 1 && known && cuda_has(place, call, protocol) && grid_for(place, bytes, slot_bytes, NULL);
}

bool cuda_slot_step(const struct cuda_place *place, const struct tutti_backend_call *call, enum cuda_protocol protocol,
                    uint32_t slot_bytes, struct cuda_step *out)
{
    bool known;
    form(place, call, protocol, out);
    return grid_for(place, cuda_block_bytes(place, call, &known), slot_bytes, out);
}

static bool lines_fit(const struct cuda_place *place, const struct tutti_backend_call *call)
{
    return cuda_slot_fits(place, call, CUDA_LINES, place->layout.line_bytes);
}

static bool lines_step(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t i,
                       struct cuda_step *out)
{
    return i == 0 && cuda_slot_step(place, call, CUDA_LINES, place->layout.line_bytes, out);
}

static bool sentinel_fits(const struct cuda_place *place, const struct tutti_backend_call *call)
{
    return cuda_slot_fits(place, call, CUDA_SENTINEL, place->layout.sentinel_bytes);
}

static bool sentinel_step(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t i,
                          struct cuda_step *out)
{
    return i == 0 && cuda_slot_step(place, call, CUDA_SENTINEL, place->layout.sentinel_bytes, out);
}

static bool tiles_fit(const struct cuda_place *place, const struct tutti_backend_call *call)
{
    return place->n > 1 && cuda_has(place, call, CUDA_TILES);
}

static bool tiles_step(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t i,
                       struct cuda_step *out)
{
    if (i > 0) return false;
    form(place, call, CUDA_TILES, out);
    cuda_step_tiles(place, out);
    return true;
}

/* ---- two exchanges ---- */

static bool sentinel2_fits(const struct cuda_place *place, const struct tutti_backend_call *call)
{
    size_t shard = cuda_shard(cuda_call_bytes(call), place->n, 0).bytes;
    return place->n > 2 && call->info.kind == TUTTI_ALL_REDUCE && cuda_has(place, call, CUDA_SENTINEL2) &&
           grid_for(place, shard, cuda_phase_bytes(&place->layout), NULL);
}

static bool sentinel2_step(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t i,
                           struct cuda_step *out)
{
    size_t bytes = cuda_call_bytes(call);
    if (i > 0) return false;
    cuda_step_begin(out, CUDA_SENTINEL2, call->bind.input, call->bind.output);
    fold(call, out);
    out->exchange.result_bytes = bytes;
    /* Also where the one shard is short: shard_bytes is a multiple of 16. */
    out->exchange.send[0].bytes = (cuda_shard(bytes, place->n, 0).bytes + 15) / 16 * 16;
    return grid_for(place, out->exchange.send[0].bytes, cuda_phase_bytes(&place->layout), out);
}

void cuda_step_fold_shards(const struct cuda_place *place, const struct tutti_backend_call *call, size_t at,
                           size_t bytes, char *to, struct cuda_step *out)
{
    struct cuda_exchange *x = &out->exchange;
    struct cuda_part mine = cuda_shard(bytes, place->n, place->me);
    cuda_step_begin(out, CUDA_TILES, (const char *)call->bind.input + at, to);
    fold(call, out);
    for (uint32_t q = 0; q < place->n; q++) {
        x->send[q] = cuda_shard(bytes, place->n, q);
        x->recv[q] = (struct cuda_part){0, mine.bytes};
    }
    x->result_bytes = mine.bytes;
    cuda_step_tiles(place, out);
}

/* Shards of the buffer go from those who have them to all others. */
static void spread_shards(const struct cuda_place *place, char *buffer, size_t bytes, struct cuda_step *out)
{
    struct cuda_exchange *x = &out->exchange;
    cuda_step_begin(out, CUDA_TILES, buffer, buffer);
    for (uint32_t q = 0; q < place->n; q++) {
        if (q == place->me) continue;
        x->send[q] = cuda_shard(bytes, place->n, place->me);
        x->recv[q] = cuda_shard(bytes, place->n, q);
    }
    cuda_step_tiles(place, out);
}

static bool all_reduce_step(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t i,
                            struct cuda_step *out)
{
    size_t bytes = cuda_call_bytes(call);
    char *to = call->bind.output;
    if (i == 0) cuda_step_fold_shards(place, call, 0, bytes, to + cuda_shard(bytes, place->n, place->me).at, out);
    if (i == 1) spread_shards(place, to, bytes, out);
    return i < 2;
}

/* Members have no place of their own for what they fold but the bounce buffer, so it goes piece by piece. */
static bool reduce_step(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t i,
                        struct cuda_step *out)
{
    size_t bytes = cuda_call_bytes(call);
    size_t most = place->bounce_bytes / CUDA_SHARD_UNIT * CUDA_SHARD_UNIT * place->n, at = i / 2 * most;
    if (at >= bytes) return false;
    size_t piece = bytes - at < most ? bytes - at : most;
    if (i % 2 == 0) {
        cuda_step_fold_shards(place, call, at, piece, place->bounce, out);
        return true;
    }
    uint32_t root = (uint32_t)call->info.root;
    char *to = place->me == root ? (char *)call->bind.output + at : NULL;
    struct cuda_part mine = cuda_shard(piece, place->n, place->me);
    cuda_step_begin(out, CUDA_TILES, place->bounce, to);
    out->exchange.send[root] = (struct cuda_part){0, mine.bytes};
    for (uint32_t q = 0; q < place->n && to; q++) out->exchange.recv[q] = cuda_shard(piece, place->n, q);
    cuda_step_tiles(place, out);
    return true;
}

/* Between two ranks it would send as much, in two launches. */
static bool tiles2_fit(const struct cuda_place *place, const struct tutti_backend_call *call)
{
    enum tutti_kind kind = call->info.kind;
    return (kind == TUTTI_ALL_REDUCE || kind == TUTTI_REDUCE) && place->n > 2 && cuda_has(place, call, CUDA_TILES) &&
           place->has[CUDA_TILES][TUTTI_N_DTYPES];
}

static bool tiles2_step(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t i,
                        struct cuda_step *out)
{
    if (call->info.kind == TUTTI_ALL_REDUCE) return all_reduce_step(place, call, i, out);
    return reduce_step(place, call, i, out);
}

/* The same by sentinels, whose slots hold twice what sentinel2 puts into them. Only the kernels of sums are fast enough
 * for it to pay: int32 of 8 MiB took 66 us on four H200. */
static bool sentinels_fit(const struct cuda_place *place, const struct tutti_backend_call *call)
{
    const enum tutti_dtype dtype = call->info.dtype;
    size_t shard = cuda_shard(cuda_call_bytes(call), place->n, 0).bytes;
    if (dtype != TUTTI_FLOAT32 && dtype != TUTTI_FLOAT16 && dtype != TUTTI_BFLOAT16) return false;
    return place->n > 2 && cuda_sums(call) && call->info.kind == TUTTI_ALL_REDUCE &&
           cuda_has(place, call, CUDA_SENTINEL) && place->has[CUDA_SENTINEL][TUTTI_N_DTYPES] &&
           grid_for(place, shard, place->layout.sentinel_bytes, NULL);
}

static bool sentinels_step(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t i,
                           struct cuda_step *out)
{
    size_t shard = cuda_shard(cuda_call_bytes(call), place->n, 0).bytes;
    if (!all_reduce_step(place, call, i, out)) return false;
    out->protocol = CUDA_SENTINEL;
    return grid_for(place, shard, place->layout.sentinel_bytes, out);
}

/* ---- one exchange, in which what comes goes on ---- */

/* Between two ranks it is what `tiles` is. */
static bool relay_fits(const struct cuda_place *place, const struct tutti_backend_call *call)
{
    return place->n > 2 && call->info.kind == TUTTI_BROADCAST && cuda_has(place, call, CUDA_TILES);
}

/* What rank q, another than the root, has from that, and sends on. */
static struct cuda_part share(size_t bytes, uint32_t n, uint32_t root, uint32_t q)
{
    return cuda_shard(bytes, n - 1, cuda_row(root, q));
}

/* The root sends each other rank its share, which that one sends on to the rest as it comes. */
static bool relay_step(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t i,
                       struct cuda_step *out)
{
    const uint32_t n = place->n, me = place->me, root = (uint32_t)call->info.root;
    const size_t bytes = cuda_call_bytes(call);
    struct cuda_exchange *x = &out->exchange;
    if (i > 0) return false;
    cuda_step_begin(out, CUDA_TILES, call->bind.output, call->bind.output);
    for (uint32_t q = 0; q < n; q++) {
        if (q == me) continue;
        if (q != root) x->send[q] = share(bytes, n, root, me == root ? q : me);
        if (me != root) x->recv[q] = share(bytes, n, root, q == root ? me : q);
    }
    if (me != root) x->relays = 1 + root;
    cuda_step_tiles(place, out);
    return true;
}

/* ---- one rank ---- */

static bool alone_fits(const struct cuda_place *place, const struct tutti_backend_call *call)
{
    return place->n == 1 && (!call->bind.scale || cuda_has(place, call, CUDA_TILES));
}

/* What is left is a copy; with a factor it is an exchange among one. */
static bool alone_step(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t i,
                       struct cuda_step *out)
{
    enum tutti_kind kind = call->info.kind;
    if (i > 0 || kind == TUTTI_BROADCAST || kind == TUTTI_EXSCAN) return false;
    struct cuda_part from = sent_to(place, call, 0), to = received_from(place, call, 0);
    if (call->bind.scale) return tiles_step(place, call, i, out);
    out->act = CUDA_COPY;
    out->lane = 0;
    out->src = (const char *)call->bind.input + from.at;
    out->dst = (char *)call->bind.output + to.at;
    out->bytes = out->src == out->dst ? 0 : to.bytes;
    return true;
}

/* ---- what they cost ---- */

/* A busiest rank sends or receives a block for each other one, whatever the kind. */
static double pushed(const struct cuda_place *place, const struct tutti_backend_call *call)
{
    bool known;
    return (double)cuda_block_bytes(place, call, &known) * (place->n - 1);
}

static double lines_cost(const struct cuda_place *place, const struct tutti_backend_call *call)
{
    return place->speed->lines_ns + 2 * pushed(place, call) / place->speed->store_gbs;
}

/* A launch, and what exceptions cost that. */
static double sentinel_launch(const struct cuda_place *place, bool folds, const struct tutti_backend_call *call)
{
    bool is_float = folds && call->info.dtype >= TUTTI_FLOAT8_E4M3FN;
    return place->speed->sentinel_ns + (is_float ? 0 : place->speed->exceptions_ns);
}

static double sentinel_cost(const struct cuda_place *place, const struct tutti_backend_call *call)
{
    return sentinel_launch(place, forms[call->info.kind].folds, call) + pushed(place, call) / place->speed->store_gbs;
}

static double sentinels_cost(const struct cuda_place *place, const struct tutti_backend_call *call)
{
    return sentinel_launch(place, true, call) + sentinel_launch(place, false, call) +
           2 * pushed(place, call) / place->n / place->speed->store_gbs;
}

static double sentinel2_cost(const struct cuda_place *place, const struct tutti_backend_call *call)
{
    return place->speed->sentinel2_ns + 2 * pushed(place, call) / place->n / place->speed->store_gbs;
}

static double tiles_cost(const struct cuda_place *place, const struct tutti_backend_call *call)
{
    return place->speed->tiles_ns + pushed(place, call) / place->speed->tile_gbs;
}

static double tiles2_cost(const struct cuda_place *place, const struct tutti_backend_call *call)
{
    double pieces = 1;
    if (call->info.kind == TUTTI_REDUCE) pieces += pushed(place, call) / (double)(place->bounce_bytes + 1) / place->n;
    return 2 * pieces * place->speed->tiles_ns + 2 * pushed(place, call) / place->n / place->speed->tile_gbs;
}

/* The root sends all of it once, the others less. */
static double relay_cost(const struct cuda_place *place, const struct tutti_backend_call *call)
{
    bool known;
    return place->speed->tiles_ns + (double)cuda_block_bytes(place, call, &known) / place->speed->tile_gbs;
}

static double alone_cost(const struct cuda_place *place, const struct tutti_backend_call *call)
{
    bool known;
    return place->speed->sentinel_ns + (double)cuda_block_bytes(place, call, &known) / place->speed->copy_gbs;
}

const struct cuda_method cuda_alone = {"alone", false, alone_fits, alone_cost, alone_step};
const struct cuda_method cuda_lines = {"lines", false, lines_fit, lines_cost, lines_step};
const struct cuda_method cuda_sentinel = {"sentinel", false, sentinel_fits, sentinel_cost, sentinel_step};
const struct cuda_method cuda_sentinel2 = {"sentinel2", false, sentinel2_fits, sentinel2_cost, sentinel2_step};
const struct cuda_method cuda_sentinels = {"sentinels", false, sentinels_fit, sentinels_cost, sentinels_step};
const struct cuda_method cuda_tiles = {"tiles", false, tiles_fit, tiles_cost, tiles_step};
const struct cuda_method cuda_tiles2 = {"tiles2", false, tiles2_fit, tiles2_cost, tiles2_step};
const struct cuda_method cuda_relay = {"relay", false, relay_fits, relay_cost, relay_step};
