/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps of copy engines, which reach more than stores of kernels do and leave the SMs alone, but cost microseconds a
 * copy: for the largest calls, whose outputs lie in windows, so that this rank knows where they are on the others. One
 * copy at a time, to peers in rotation, since several at once share what one gets alone. Meetings before and after: no
 * copy begins before the receiver's stream has come to the call, and none goes past it before all copies are there.
 *
 * What stays on this rank is moved by a kernel on the own stream, beside, of few blocks: a copy would take its turn
 * with the others, and SMs as well, since drivers make kernels of large copies within a device.
 *
 * all_reduce needs no scratch: what others send to be folded here lands where their own shards of the result will be in
 * the end. Each shard is cut in halves, so that copies go on without a pause: the first half is folded while the second
 * one is collected, the second while the first is spread. Who spreads a half writes where it landed on the others: they
 * have folded it, which a meeting after it says.
 *
 * Between two, reduce_scatter does without scratch as well: the one contribution that comes lands in the output, and is
 * folded there. It comes in chunks, each half of what is left, so that little is folded behind the last. */
#include "backend/gpu/gpu_plan.h"

#define HALVES 2
#define MOST_CHUNKS 6
#define OWN_BLOCKS 32                 /* of 18 GB/s on H200: half as much again as its links */
#define LAST_CHUNK ((size_t)16 << 20) /* or less, unless there were more chunks: 12 us of folding */

static bool act(struct gpu_step *out, enum gpu_act what, enum gpu_stream stream)
{
    out->act = what;
    out->stream = stream;
    return true;
}

static bool meet(struct gpu_step *out)
{
    return act(out, GPU_MEET, GPU_CALLERS);
}

static bool copy(struct gpu_step *out, char *dst, const char *src, size_t bytes)
{
    act(out, GPU_COPY, GPU_CALLERS);
    out->dst = dst, out->src = src;
    out->bytes = dst == src ? 0 : bytes;
    return true;
}

/* An exchange with nobody, by as few blocks as keep up with what goes to peers: it may take as long. */
static bool keep(const struct gpu_site *site, struct gpu_step *out, char *dst, const char *src, size_t bytes)
{
    gpu_step_begin(out, GPU_TILES, src, dst);
    if (dst != src) out->exchange.send[site->me] = out->exchange.recv[site->me] = (struct gpu_part){0, bytes};
    gpu_step_tiles(site, out);
    if (out->blocks > OWN_BLOCKS) out->blocks = OWN_BLOCKS;
    out->stream = GPU_OWN;
    return true;
}

static uint32_t peer_of(const struct gpu_site *site, uint32_t k)
{
    return (site->me + k) % site->n;
}

/* ---- moves ---- */

/* Around the copies to peers 1 to n - 1, which are steps 3 and later: `own` is what stays, beside. */
static bool around(const struct gpu_site *site, uint32_t i, char *dst, const char *src, size_t bytes,
                   struct gpu_step *own)
{
    if (i == 0) return act(own, GPU_FORK, GPU_CALLERS);
    if (i == 1) return keep(site, own, dst, src, bytes);
    if (i == site->n + 2) return act(own, GPU_JOIN, GPU_CALLERS);
    return (i == 2 || i == site->n + 3) && meet(own);
}

static bool move(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t i, struct gpu_step *out)
{
    const bool own = i < 3 || i > site->n + 1;
    const struct gpu_push push = gpu_push_to(site, call, own ? site->me : peer_of(site, i - 2));
    return own ? around(site, i, push.to, push.from, push.bytes, out) : copy(out, push.to, push.from, push.bytes);
}

/* Between two: among more, chains by `direct` are faster. */
static bool broadcast(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t i,
                      struct gpu_step *out)
{
    char *from = call->bind.output;
    if (i != 1) return i <= 2 && meet(out);
    return copy(out, gpu_site_there(site, call, 1 - site->me, 0), from,
                site->me == (uint32_t)call->info.root ? gpu_call_bytes(call) : 0);
}

/* ---- all_reduce ---- */

static struct gpu_part half_of(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t shard,
                               uint32_t half)
{
    struct gpu_part whole = gpu_shard(gpu_call_bytes(call), site->n, shard),
                    part = gpu_shard(whole.bytes, HALVES, half);
    return (struct gpu_part){whole.at + part.at, part.bytes};
}

static bool collect(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t half, uint32_t to,
                    struct gpu_step *out)
{
    struct gpu_part part = half_of(site, call, to, half);
    return copy(out, gpu_site_there(site, call, to, half_of(site, call, site->me, half).at),
                (const char *)call->bind.input + part.at, part.bytes);
}

static bool spread(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t half, uint32_t to,
                   struct gpu_step *out)
{
    struct gpu_part mine = half_of(site, call, site->me, half);
    return copy(out, gpu_site_there(site, call, to, mine.at), (char *)call->bind.output + mine.at, mine.bytes);
}

/* Does what the caller says in `from`, on the own stream. */
static void fold(const struct gpu_site *site, const struct tutti_backend_call *call, char *to, size_t bytes,
                 struct gpu_step *out)
{
    gpu_step_begin(out, GPU_FOLD, call->bind.input, to);
    out->folds = true;
    out->divisor = call->bind.divide ? tutti_divisor_contributors(call->bind.divisor) : 0;
    out->exchange.result_bytes = bytes;
    out->threads = 512;
    out->blocks = site->layout.n_blocks;
    out->stream = GPU_OWN;
}

static bool fold_half(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t half,
                      struct gpu_step *out)
{
    const char *in = call->bind.input;
    char *to = call->bind.output;
    struct gpu_part mine = half_of(site, call, site->me, half);
    fold(site, call, to + mine.at, mine.bytes, out);
    for (uint32_t q = 0; q < site->n; q++) out->from[q] = (q == site->me ? in : to) + half_of(site, call, q, half).at;
    return true;
}

/* What is done once, or once for each peer, in this order. Meetings take turns on all ranks: those of the own stream
 * lie between a fork and a join. */
enum deed { MEETING, COLLECTS, FORKS, OWN_MEETING, FOLDS, SPREADS, JOINS };
static const struct stage {
    enum deed deed;
    uint32_t half;
} stages[] = {
    {MEETING, 0}, {COLLECTS, 0},                                     /* outputs may be written */
    {FORKS, 0},   {OWN_MEETING, 0}, {FOLDS, 0},       {COLLECTS, 1}, /* the first half has come */
    {JOINS, 0},   {MEETING, 1},                                      /* and is folded; the second has come */
    {FORKS, 1},   {FOLDS, 1},       {OWN_MEETING, 1}, {SPREADS, 0},  /* and is folded */
    {JOINS, 1},   {SPREADS, 1},     {MEETING, 2},                    /* all is there */
};

static bool all_reduce(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t i,
                       struct gpu_step *out)
{
    for (size_t k = 0; k < TUTTI_ARRAY_LEN(stages); k++) {
        enum deed deed = stages[k].deed;
        uint32_t half = stages[k].half, times = deed == COLLECTS || deed == SPREADS ? site->n - 1 : 1;
        if (i >= times) {
            i -= times;
            continue;
        }
        if (deed == COLLECTS) return collect(site, call, half, peer_of(site, i + 1), out);
        if (deed == SPREADS) return spread(site, call, half, peer_of(site, i + 1), out);
        if (deed == FOLDS) return fold_half(site, call, half, out);
        if (deed == FORKS || deed == JOINS) return act(out, deed == FORKS ? GPU_FORK : GPU_JOIN, GPU_CALLERS);
        return act(out, GPU_MEET, deed == MEETING ? GPU_CALLERS : GPU_OWN);
    }
    return false;
}

/* ---- reduce_scatter between two ---- */

static uint32_t chunks_of(const struct tutti_backend_call *call)
{
    uint32_t n = 2;
    while (n < MOST_CHUNKS && gpu_call_bytes(call) >> (n - 1) > LAST_CHUNK) n++;
    return n;
}

static struct gpu_part chunk(const struct tutti_backend_call *call, uint32_t k)
{
    size_t bytes = gpu_call_bytes(call), left = (bytes >> k) / GPU_SHARD_UNIT * GPU_SHARD_UNIT,
           behind = k + 1 == chunks_of(call) ? 0 : (bytes >> (k + 1)) / GPU_SHARD_UNIT * GPU_SHARD_UNIT;
    return (struct gpu_part){bytes - left, left - behind};
}

static bool send_chunk(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t k,
                       struct gpu_step *out)
{
    uint32_t to = 1 - site->me;
    struct gpu_part part = chunk(call, k);
    return copy(out, gpu_site_there(site, call, to, part.at),
                (const char *)call->bind.input + to * gpu_call_bytes(call) + part.at, part.bytes);
}

static bool fold_chunk(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t k,
                       enum gpu_stream stream, struct gpu_step *out)
{
    struct gpu_part part = chunk(call, k);
    char *to = (char *)call->bind.output + part.at;
    fold(site, call, to, part.bytes, out);
    out->from[site->me] = (const char *)call->bind.input + site->me * gpu_call_bytes(call) + part.at;
    out->from[1 - site->me] = to;
    out->stream = stream;
    return true;
}

/* A meeting and the first copy; then, while chunk k is copied, chunk k - 1 has come and is folded; a meeting and the
 * last fold. */
static bool reduce_scatter(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t i,
                           struct gpu_step *out)
{
    static const enum deed round[] = {FORKS, OWN_MEETING, FOLDS, COLLECTS, JOINS};
    const uint32_t each = TUTTI_ARRAY_LEN(round), n = chunks_of(call), k = 1 + (i - 2) / each,
                   last = 2 + (n - 1) * each;
    if (i == 1) return send_chunk(site, call, 0, out);
    if (i == 0 || i == last) return meet(out);
    if (i > last) return i == last + 1 && fold_chunk(site, call, n - 1, GPU_CALLERS, out);
    switch (round[(i - 2) % each]) {
    case OWN_MEETING:
        return act(out, GPU_MEET, GPU_OWN);
    case FOLDS:
        return fold_chunk(site, call, k - 1, GPU_OWN, out);
    case COLLECTS:
        return send_chunk(site, call, k, out);
    case FORKS:
        return act(out, GPU_FORK, GPU_CALLERS);
    default:
        return act(out, GPU_JOIN, GPU_CALLERS);
    }
}

/* ---- the method ---- */

typedef bool (*steps)(const struct gpu_site *, const struct tutti_backend_call *, uint32_t, struct gpu_step *);
static const steps steps_of[TUTTI_N_KINDS] = {[TUTTI_ALL_GATHER] = move,
                                              [TUTTI_ALL_TO_ALL] = move,
                                              [TUTTI_BROADCAST] = broadcast,
                                              [TUTTI_REDUCE_SCATTER] = reduce_scatter,
                                              [TUTTI_ALL_REDUCE] = all_reduce};

/* Whether buffers are one is told apart by all alike: in place on one rank is in place on all, as windows have it. */
static bool fits(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    enum tutti_kind kind = call->info.kind;
    bool in_place = gpu_call_in_place(site, call);
    if ((kind == TUTTI_REDUCE_SCATTER || kind == TUTTI_BROADCAST) && site->n > 2) return false;
    if (site->n < 2 || !site->own || call->bind.v || !steps_of[kind]) return false;
    if (kind == TUTTI_BROADCAST) return true;
    if (kind == TUTTI_ALL_GATHER || kind == TUTTI_ALL_TO_ALL)
        return site->has[GPU_TILES][TUTTI_N_DTYPES] && (kind == TUTTI_ALL_GATHER || !in_place);
    return !in_place && call->info.op != TUTTI_PREMUL_SUM && site->has[GPU_FOLD][call->info.dtype] &&
           gpu_call_bytes(call) % ((size_t)site->n * GPU_SHARD_UNIT) == 0;
}

static bool step(const struct gpu_site *site, const struct tutti_backend_call *call, uint32_t i, struct gpu_step *out)
{
    return steps_of[call->info.kind](site, call, i, out);
}

static double cost(const struct gpu_site *site, const struct tutti_backend_call *call)
{
    const struct gpu_speed *s = site->speed;
    double others = site->n - 1, bytes = (double)gpu_call_bytes(call), shard = bytes / site->n;
    switch (call->info.kind) {
    case TUTTI_ALL_REDUCE:
        return 2 * HALVES * others * s->engine_ns + 3 * s->meet_ns + 2 * others * shard / s->engine_gbs;
    case TUTTI_BROADCAST:
        return s->engine_ns + 2 * s->meet_ns + bytes / s->engine_gbs;
    case TUTTI_REDUCE_SCATTER:
        return (double)chunks_of(call) * s->engine_ns + 2 * s->meet_ns + bytes / s->engine_gbs;
    default:
        return others * (s->engine_ns + bytes / s->engine_gbs) + 2 * s->meet_ns;
    }
}

const struct gpu_method gpu_engines = {"engines", true, fits, cost, step};
