/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps of copy engines, which reach more than stores of kernels do and leave the SMs alone, but cost microseconds a
 * copy: for the largest calls, whose outputs lie in windows, so that this rank knows where they are on the others. One
 * copy at a time, to peers in rotation, since several at once share what one gets alone. Meetings before and after: no
 * copy begins before the receiver's stream has come to the call, and none goes past it before all copies are there.
 *
 * all_reduce needs no scratch: what others send to be folded here lands where their own shards of the result will be in
 * the end. It is cut in chunks, so that one is folded while the next is copied. */
#include "backend/cuda.h"

#define CHUNKS 4

static size_t bytes_of(const struct tutti_backend_call *call)
{
    return call->bind.count * tutti_dtype_bytes(call->info.dtype);
}

/* Where a peer has the byte of its output that is `at` in mine. */
static char *there(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t peer, size_t at)
{
    return place->peers[peer] + ((char *)call->bind.output - place->own) + at;
}

static bool meet(struct cuda_step *out)
{
    out->act = CUDA_MEET;
    out->lane = 0;
    return true;
}

static bool copy(struct cuda_step *out, char *dst, const char *src, size_t bytes)
{
    out->act = CUDA_COPY;
    out->lane = 0;
    out->dst = dst, out->src = src;
    out->bytes = dst == src ? 0 : bytes;
    return true;
}

static uint32_t peer_of(const struct cuda_place *place, uint32_t k)
{
    return (place->me + k) % place->n;
}

/* ---- moves ---- */

static bool all_gather(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t i,
                       struct cuda_step *out)
{
    size_t bytes = bytes_of(call), at = place->me * bytes;
    if (i == 0 || i == place->n + 1) return meet(out);
    if (i == place->n) return copy(out, (char *)call->bind.output + at, call->bind.input, bytes);
    return i < place->n && copy(out, there(place, call, peer_of(place, i), at), call->bind.input, bytes);
}

static bool all_to_all(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t i,
                       struct cuda_step *out)
{
    size_t bytes = bytes_of(call), at = place->me * bytes;
    const char *in = call->bind.input;
    uint32_t to = peer_of(place, i);
    if (i == 0 || i == place->n + 1) return meet(out);
    if (i == place->n) return copy(out, (char *)call->bind.output + at, in + at, bytes);
    return i < place->n && copy(out, there(place, call, to, at), in + to * bytes, bytes);
}

/* Shards from the root, then each from its owner to the others. */
static bool broadcast(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t i,
                      struct cuda_step *out)
{
    uint32_t root = (uint32_t)call->info.root, to = peer_of(place, i % place->n);
    struct cuda_part whole = {0, bytes_of(call)}, part = place->n == 2 ? whole : (struct cuda_part){0, 0};
    if (i % place->n == 0 && i <= 2 * place->n) return (place->n > 2 || i < 4) && meet(out);
    if (i > 2 * place->n || (place->n == 2 && i > 2)) return false;
    if (place->n > 2 && i < place->n && place->me == root) part = cuda_shard(whole.bytes, place->n, to);
    if (place->n > 2 && i > place->n && to != root) part = cuda_shard(whole.bytes, place->n, place->me);
    if (place->n == 2 && place->me != root) part.bytes = 0;
    return copy(out, there(place, call, to, part.at), (char *)call->bind.output + part.at, part.bytes);
}

/* ---- all_reduce ---- */

static struct cuda_part chunk_of(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t shard,
                                 uint32_t chunk)
{
    struct cuda_part whole = cuda_shard(bytes_of(call), place->n, shard), part = cuda_shard(whole.bytes, CHUNKS, chunk);
    return (struct cuda_part){whole.at + part.at, part.bytes};
}

static bool fold_chunk(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t chunk,
                       struct cuda_step *out)
{
    const char *in = call->bind.input;
    char *to = call->bind.output;
    for (uint32_t q = 0; q < place->n; q++)
        out->from[q] = (q == place->me ? in : to) + chunk_of(place, call, q, chunk).at;
    struct cuda_part mine = chunk_of(place, call, place->me, chunk);
    cuda_step_begin(out, CUDA_FOLD, in, to + mine.at);
    out->folds = true;
    out->divisor = call->bind.divide ? call->bind.divisor : 0;
    out->exchange.result_bytes = mine.bytes;
    out->threads = 512;
    out->blocks = place->layout.n_blocks;
    out->lane = 1;
    return true;
}

/* Copies of a chunk, a meeting, and the fold beside the next chunk's copies. */
static bool reduce_chunk(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t chunk,
                         uint32_t i, struct cuda_step *out)
{
    if (i == place->n - 1) return meet(out);
    if (i == place->n + 1) return fold_chunk(place, call, chunk, out);
    out->act = CUDA_FORK;
    if (i == place->n) return true;
    uint32_t to = peer_of(place, i + 1);
    struct cuda_part part = chunk_of(place, call, to, chunk);
    return copy(out, there(place, call, to, chunk_of(place, call, place->me, chunk).at),
                (const char *)call->bind.input + part.at, part.bytes);
}

static bool all_reduce(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t i,
                       struct cuda_step *out)
{
    uint32_t each = place->n + 2, folded = 1 + CHUNKS * each;
    if (i == 0) return meet(out);
    if (i < folded) return reduce_chunk(place, call, (i - 1) / each, (i - 1) % each, out);
    out->act = CUDA_JOIN;
    if (i == folded) return true;
    if (i == folded + 1 || i == folded + 1 + place->n) return meet(out);
    struct cuda_part mine = cuda_shard(bytes_of(call), place->n, place->me);
    return i < folded + 1 + place->n && copy(out, there(place, call, peer_of(place, i - folded - 1), mine.at),
                                             (char *)call->bind.output + mine.at, mine.bytes);
}

/* ---- the method ---- */

typedef bool (*steps)(const struct cuda_place *, const struct tutti_backend_call *, uint32_t, struct cuda_step *);
static const steps steps_of[TUTTI_N_KINDS] = {[TUTTI_ALL_GATHER] = all_gather,
                                              [TUTTI_ALL_TO_ALL] = all_to_all,
                                              [TUTTI_BROADCAST] = broadcast,
                                              [TUTTI_ALL_REDUCE] = all_reduce};

/* Whether buffers are one is told apart by all alike: in place on one rank is in place on all, as windows have it. */
static bool fits(const struct cuda_place *place, const struct tutti_backend_call *call)
{
    enum tutti_kind kind = call->info.kind;
    bool in_place = call->bind.input == call->bind.output;
    if (place->n < 2 || !place->own || call->bind.v || !steps_of[kind]) return false;
    if (kind == TUTTI_ALL_TO_ALL) return !in_place;
    if (kind != TUTTI_ALL_REDUCE) return true;
    return !in_place && !call->bind.scale && place->has[CUDA_FOLD][call->info.dtype] &&
           bytes_of(call) % ((size_t)place->n * CUDA_SHARD_UNIT) == 0;
}

static bool step(const struct cuda_place *place, const struct tutti_backend_call *call, uint32_t i,
                 struct cuda_step *out)
{
    return steps_of[call->info.kind](place, call, i, out);
}

/* Nanoseconds of a copy and of a meeting, bytes a ns; measured on H200. */
#define COPY_NS 7000.0
#define MEET_NS 2500.0
#define COPY_GBS 385.0
#define FOLD_GBS 4200.0

static double cost(const struct cuda_place *place, const struct tutti_backend_call *call)
{
    double others = place->n - 1, bytes = (double)bytes_of(call), shard = bytes / place->n;
    switch (call->info.kind) {
    case TUTTI_ALL_REDUCE:
        return (CHUNKS + 1) * others * COPY_NS + (CHUNKS + 3) * MEET_NS + 2 * others * shard / COPY_GBS +
               shard * (place->n + 1) / CHUNKS / FOLD_GBS;
    case TUTTI_BROADCAST:
        if (place->n == 2) return COPY_NS + 2 * MEET_NS + bytes / COPY_GBS;
        return 2 * others * (COPY_NS + shard / COPY_GBS) + 3 * MEET_NS;
    default:
        return others * (COPY_NS + bytes / COPY_GBS) + 2 * MEET_NS;
    }
}

const struct cuda_method cuda_engines = {"engines", fits, cost, step};
