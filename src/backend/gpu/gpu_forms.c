/* SPDX-License-Identifier: BSD-3-Clause */
/* What calls are as exchanges: who sends which part of its input to whom, and what becomes of it there. Pure: pointers
 * are computed with, never read. */
#include "backend/gpu/gpu_plan.h"

#include <string.h>

/* ---- blocks ---- */

/* Whether there is a block for each peer, else one for all. */
static bool sends_each(const struct tutti_backend_call *call)
{
    return tutti_kinds[call->info.kind].send.blocks == TUTTI_ALL_BLOCKS;
}

static bool receives_each(const struct tutti_backend_call *call)
{
    return tutti_kinds[call->info.kind].recv.blocks == TUTTI_ALL_BLOCKS;
}

static struct gpu_part block_of(const size_t *counts, const size_t *displs, size_t count, uint32_t q, size_t element)
{
    size_t at = displs ? displs[q] : 0;
    if (!counts) return (struct gpu_part){q * count * element, count * element};
    for (uint32_t p = 0; p < q && !displs; p++) at += counts[p];
    return (struct gpu_part){counts[q] ? at * element : 0, counts[q] * element};
}

/* The one block of a rank that has no others: of v forms it may know no more. */
static size_t own_count(const struct gpu_site *site, const struct tutti_bind *bind)
{
    return bind->v && bind->counts ? bind->counts[site->me] : bind->count;
}

struct gpu_part gpu_sent_to(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t q)
{
    const struct tutti_bind *b = &call->bind;
    size_t element = tutti_dtype_bytes(call->info.dtype);
    if (!sends_each(call)) return (struct gpu_part){0, own_count(site, b) * element};
    if (!b->v) return block_of(NULL, NULL, b->count, q, element);
    if (call->info.kind == TUTTI_ALL_TO_ALL) return block_of(b->in_counts, b->in_displs, 0, q, element);
    return block_of(b->counts, b->displs, 0, q, element);
}

struct gpu_part gpu_received_from(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t q)
{
    const struct tutti_bind *b = &call->bind;
    size_t element = tutti_dtype_bytes(call->info.dtype);
    if (!receives_each(call)) return (struct gpu_part){0, own_count(site, b) * element};
    return b->v ? block_of(b->counts, b->displs, 0, q, element) : block_of(NULL, NULL, b->count, q, element);
}

size_t gpu_call_bytes(const struct tutti_backend_call *call)
{
    return call->bind.count * tutti_dtype_bytes(call->info.dtype);
}

bool gpu_sums(const struct tutti_backend_call *call)
{
    return call->info.op == TUTTI_SUM || call->info.op == TUTTI_AVG || call->info.op == TUTTI_PREMUL_SUM;
}

size_t gpu_block_bytes(const struct gpu_site *site, const struct tutti_backend_call *call, bool *known)
{
    const struct tutti_bind *b = &call->bind;
    size_t element = tutti_dtype_bytes(call->info.dtype), most = 0;
    *known = !b->v || call->info.kind == TUTTI_ALL_GATHER || call->info.kind == TUTTI_REDUCE_SCATTER;
    if (!b->v) return gpu_call_bytes(call);
    for (uint32_t q = 0; q < site->n && *known; q++)
        if (b->counts[q] > most) most = b->counts[q];
    return most * element;
}

double gpu_pushed_bytes(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    bool known;
    return (double)gpu_block_bytes(site, call, &known) * (site->n - 1);
}

struct gpu_part gpu_shard(size_t bytes, uint32_t n, uint32_t k)
{
    size_t each = (bytes / n + (bytes % n != 0) + GPU_SHARD_UNIT - 1) / GPU_SHARD_UNIT * GPU_SHARD_UNIT;
    size_t at = k * each < bytes ? k * each : bytes, left = bytes - at;
    return (struct gpu_part){at, left < each ? left : each};
}

/* ---- steps ---- */

void gpu_step_begin(struct gpu_step *step, enum gpu_protocol protocol, const void *in, void *out)
{
    struct gpu_exchange *x = &step->exchange;
    step->act = GPU_LAUNCH;
    step->protocol = protocol;
    step->folds = step->scales = false;
    step->divisor = 0;
    step->stream = GPU_CALLERS;
    x->in = in, x->out = out;
    x->result_bytes = 0;
    x->relays = x->spreads = 0;
    memset(x->send, 0, sizeof(x->send));
    memset(x->recv, 0, sizeof(x->recv));
}

void gpu_step_fold(const struct tutti_backend_call *call, struct gpu_step *step)
{
    step->folds = true;
    step->scales = call->info.op == TUTTI_PREMUL_SUM;
    step->divisor = call->bind.divide ? tutti_divisor_contributors(call->bind.divisor) : 0;
}

/* The own part of a move that is there already. */
static void skip_own(struct gpu_exchange *x, uint32_t me)
{
    if (x->send[me].bytes == 0 || x->in + x->send[me].at != x->out + x->recv[me].at) return;
    x->send[me] = x->recv[me] = (struct gpu_part){0, 0};
}

/* The call as one exchange. */
void gpu_step_form(const struct gpu_site *site, const struct tutti_backend_call *call, enum gpu_protocol protocol,
                   struct gpu_step *step)
{
    const enum tutti_kind kind = call->info.kind;
    uint32_t root = (uint32_t)call->info.root, me = site->me;
    struct gpu_exchange *x = &step->exchange;
    bool any = false;
    gpu_step_begin(step, protocol, call->bind.input, call->bind.output);
    for (uint32_t q = 0; q < site->n; q++) {
        if (tutti_kind_flows(kind, root, me, q)) x->send[q] = gpu_sent_to(site, call, q);
        if (!tutti_kind_flows(kind, root, q, me)) continue;
        x->recv[q] = gpu_received_from(site, call, q);
        any = true;
    }
    if (!tutti_kinds[kind].reduces) {
        skip_own(x, me);
        return;
    }
    gpu_step_fold(call, step);
    x->result_bytes = any ? own_count(site, &call->bind) * tutti_dtype_bytes(call->info.dtype) : 0;
}

void gpu_batch_form(const struct gpu_site *site, const struct tutti_backend_call *call, struct gpu_batch *out)
{
    const enum tutti_kind kind = call->info.kind;
    uint32_t root = (uint32_t)call->info.root;
    out->sends = out->receives = 0;
    out->sends_each = sends_each(call), out->receives_each = receives_each(call);
    for (uint32_t q = 0; q < site->n; q++) {
        out->sends |= (uint32_t)tutti_kind_flows(kind, root, site->me, q) << q;
        out->receives |= (uint32_t)tutti_kind_flows(kind, root, q, site->me) << q;
    }
}

static uint32_t blocks_of(const struct gpu_site *site, const struct gpu_part *parts)
{
    uint32_t most = 0;
    for (uint32_t q = 0; q < site->n; q++) {
        uint32_t blocks = gpu_tile_blocks(parts[q].bytes, site->layout.tile_bytes, site->layout.n_blocks);
        if (blocks > most) most = blocks;
    }
    return most;
}

void gpu_step_tiles(const struct gpu_site *site, struct gpu_step *step)
{
    uint32_t sending = blocks_of(site, step->exchange.send), receiving = blocks_of(site, step->exchange.recv);
    step->threads = site->tile_threads;
    step->blocks = sending > receiving ? sending : receiving;
}

/* The grid of lines and sentinels: while parts are short, many small blocks, since each starts by itself; then as many
 * threads as there may be, then more for each of them; at last, what else there may be room for in a block's slot:
 * 48 KiB, or too little for as many threads. False: a part is too long. */
bool gpu_step_grid(const struct gpu_site *site, size_t bytes, uint32_t block_bytes, struct gpu_step *step)
{
    static const struct {
        uint32_t threads, units, most;
    } grids[] = {{64, 1, 64},   {128, 1, 64},  {256, 1, 64},  {512, 1, 128},  {512, 2, 128},
                 {512, 3, 128}, {512, 4, 128}, {512, 8, 128}, {512, 16, 128}, {512, 32, 128},
                 {512, 6, 128}, {256, 1, 128}, {128, 1, 128}, {64, 1, 128}};
    size_t units = (bytes + 15) / 16;
    for (size_t g = 0; g < TUTTI_ARRAY_LEN(grids); g++) {
        size_t each = (size_t)grids[g].threads * grids[g].units, blocks = (units + each - 1) / each;
        uint32_t most = grids[g].most < site->layout.n_blocks ? grids[g].most : site->layout.n_blocks;
        if (blocks > most || each * 16 > block_bytes) continue;
        if (!step) return true;
        step->blocks = (uint32_t)blocks;
        step->threads = grids[g].threads;
        step->exchange.units = grids[g].units;
        return true;
    }
    return false;
}

bool gpu_has(const struct gpu_site *site, const struct tutti_backend_call *call, enum gpu_protocol protocol)
{
    return site->has[protocol][tutti_kinds[call->info.kind].reduces ? call->info.dtype : TUTTI_N_DTYPES];
}

/* ---- windows ---- */

bool gpu_call_in_place(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    const uintptr_t in = (uintptr_t)call->bind.input, out = (uintptr_t)call->bind.output;
    if (call->info.kind != TUTTI_REDUCE_SCATTER) return in == out;
    return out >= in && out - in < site->n * gpu_call_bytes(call);
}

char *gpu_site_there(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t peer, size_t at)
{
    return site->peers[peer] + ((char *)call->bind.output - site->own) + at;
}

struct gpu_push gpu_push_to(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t q)
{
    const size_t bytes = gpu_call_bytes(call);
    return (struct gpu_push){(const char *)call->bind.input + (sends_each(call) ? q * bytes : 0),
                             gpu_site_there(site, call, q, site->me * bytes), bytes};
}
