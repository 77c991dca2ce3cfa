/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_DEVICE_CUDA_PLAN_LANES_CUH
#define TUTTI_DEVICE_CUDA_PLAN_LANES_CUH

/* The warp of a block of plan_R that schedules: which step may begin, which of its tiles may be moved, and what peers
 * are told of it (program.h says why that always ends). A lane a channel, and lane `me` for the local steps: it holds
 * the step that its channel has come to. Tiles become jobs in a queue in shared memory, which all movers carry out in
 * its order, each a part of every job. A step is complete when all have done the last of its jobs.
 *
 * Order. What movers store is released to the block with `done`, which this warp acquires before it calls a step
 * complete, posts a job that depends on it, or, after a system fence, tells the peer. What a peer stored is acquired
 * with `arrived` at system scope, before the job that reads it is released with `posted`; rooms that a peer gave back
 * likewise. */

#include "program.h"
#include "streams.cuh"

#include <cstring>

constexpr uint32_t cuda_plan_movers = CUDA_PLAN_THREADS / CUDA_WARP - 1; /* warps; then the one that schedules */
constexpr uint32_t cuda_plan_jobs = CUDA_WARP;                           /* of the queue */
static_assert(cuda_plan_movers == 8, "cuda_plan_done asks so many");
static_assert(sizeof(struct cuda_plan_step) == 32, "a step is two units");

struct cuda_plan_job {
    const char *src, *old; /* old: NULL where nothing is folded */
    char *dst;
    uint32_t bytes, flags;
};
constexpr uint32_t cuda_plan_job_words = sizeof(struct cuda_plan_job) / sizeof(uint32_t);

/* What the warps of a block share. */
struct alignas(16) cuda_plan_board {
    struct cuda_plan_step steps[CUDA_PLAN_STEPS];
    uint32_t jobs[cuda_plan_jobs][cuda_plan_job_words];
    uint8_t owners[cuda_plan_jobs]; /* lanes, whose jobs they are */
    uint32_t posted;                /* jobs, in all */
    uint32_t done[cuda_plan_movers];
    uint32_t halted; /* there will be no more */
};

/* The same in all lanes: the 64 steps from `base` on, a bit each, and the queue. */
struct cuda_plan_window {
    uint32_t base;
    uint64_t complete;
    uint64_t waiting; /* local steps that nobody has begun */
    uint32_t posted, retired;
    uint64_t slice;
};

struct cuda_plan_lane {
    uint32_t step, chunk; /* CUDA_PLAN_NONE: none; the next of its chunks */
    bool open;            /* the step has begun */
    const char *src, *old;
    char *dst;
    uint64_t left; /* bytes of the chunk's slice, from src and dst on */
    uint32_t posted, retired;
    uint32_t count, slot; /* of the ring: tiles before this launch, the next slot */
    uint32_t seen;        /* what the peer has raised */
    char *flag, *raised;  /* where it does, and where this rank does at the peer; NULL: no channel */
};

/* ---- where things are ---- */
struct cuda_plan_place {
    char *at;
    uint64_t bytes; /* of the slice */
};

/* Elements of a chunk of a kind's blocks, and where in its block it begins. */
CUDA_DEVICE uint64_t cuda_plan_cut(const struct cuda_plan &x, const uint64_t *counts, uint32_t chunk, uint64_t *first)
{
    const uint32_t part = chunk % x.per_block;
    const uint64_t count = counts[chunk / x.per_block], each = count / x.per_block, rest = count % x.per_block;
    *first = each * part + (part < rest ? part : rest);
    return each + (part < rest ? 1 : 0);
}

/* The slice of a chunk. Only input is read, whose const is lost here. */
CUDA_COLD struct cuda_plan_place cuda_plan_find(const struct cuda_plan &x, uint64_t slice, uint32_t buffer, bool input,
                                                uint32_t chunk, uint32_t extent)
{
    const bool in = buffer == CUDA_PLAN_IN || buffer == CUDA_PLAN_KEPT;
    const uint32_t block = chunk / x.per_block;
    char *own = x.own + cuda_block() * x.own_bytes, *base = nullptr;
    uint64_t first = 0, n = x.largest;
    if (buffer != CUDA_PLAN_SCRATCH) {
        n = cuda_plan_cut(x, in ? x.in_counts : x.counts, chunk, &first);
    } else if (extent != UINT32_MAX) {
        n = cuda_plan_cut(x, x.counts, extent, &first);
    }
    if (buffer == CUDA_PLAN_SCRATCH) {
        own += chunk * x.slice_bytes;
    } else if (buffer == CUDA_PLAN_KEPT && x.kept) {
        own += (x.own_kept + chunk) * x.slice_bytes;
    } else if (in || input) {
        base = const_cast<char *>(x.input[block]);
    } else if (x.output[block] != nullptr) {
        base = x.output[block];
    } else {
        own += (x.own_data + chunk) * x.slice_bytes;
    }
    const uint64_t begin = slice * x.slice_bytes, total = n * x.element;
    const uint64_t bytes = begin < total ? total - begin : 0;
    char *at = base ? base + first * x.element + begin : own;
    return cuda_plan_place{at, bytes < x.slice_bytes ? bytes : x.slice_bytes};
}

/* Whether a local step changes nothing. */
CUDA_DEVICE bool cuda_plan_is_idle(const struct cuda_plan &x, const struct cuda_plan_step &step, const char *src,
                                   const char *dst)
{
    if (step.flags & CUDA_PLAN_DIVIDES) return x.call.divisor == 0;
    return src == dst && !(step.flags & CUDA_PLAN_FOLDS) && !(x.call.scales && (step.flags & CUDA_PLAN_SRC_INPUT));
}

/* Finds the slice of the step's next chunk. */
CUDA_COLD void cuda_plan_next_chunk(const struct cuda_plan &x, const struct cuda_plan_step &step, uint64_t slice,
                                    struct cuda_plan_lane *l)
{
    const uint32_t c = l->chunk++, extent = step.extent == UINT32_MAX ? UINT32_MAX : step.extent + c;
    struct cuda_plan_place src = {}, dst = {};
    if (step.act != CUDA_PLAN_RECV) {
        const bool input = step.flags & CUDA_PLAN_SRC_INPUT;
        src = cuda_plan_find(x, slice, step.src_buffer, input, step.src + c, extent);
        l->left = src.bytes;
    }
    if (step.act != CUDA_PLAN_SEND) {
        dst = cuda_plan_find(x, slice, step.dst_buffer, false, step.dst + c, extent);
        if (step.act == CUDA_PLAN_RECV || dst.bytes < src.bytes) l->left = dst.bytes;
    }
    l->src = src.at, l->dst = dst.at, l->old = nullptr;
    if (step.flags & CUDA_PLAN_FOLDS) {
        const bool input = step.flags & CUDA_PLAN_OLD_INPUT;
        l->old = cuda_plan_find(x, slice, step.dst_buffer, input, step.dst + c, extent).at;
    }
    if (step.act == CUDA_PLAN_LOCAL && cuda_plan_is_idle(x, step, src.at, dst.at)) l->left = 0;
}

/* ---- the window ---- */
CUDA_DEVICE bool cuda_plan_is_ready(const struct cuda_plan_board &board, const struct cuda_plan_window &w,
                                    uint32_t step)
{
    const uint32_t place = step - w.base;
    if (step == CUDA_PLAN_NONE || place >= CUDA_PLAN_WINDOW) return false;
    return place == 0 || (board.steps[step].need >> (CUDA_PLAN_WINDOW - place) & ~w.complete) == 0;
}

/* The places of the window for which the lane's answer is yes; each lane has two. */
template <class Answer> CUDA_DEVICE uint64_t cuda_plan_places(Answer answer)
{
    const uint32_t low = cuda_ballot(answer(cuda_lane())), high = cuda_ballot(answer(cuda_lane() + CUDA_WARP));
    return (uint64_t)high << CUDA_WARP | low;
}

/* Moves the window past what is complete; `fresh` places at its end have new steps then. */
CUDA_DEVICE void cuda_plan_slide(const struct cuda_plan &x, const struct cuda_plan_board &board,
                                 struct cuda_plan_window *w, uint32_t fresh)
{
    for (; w->complete & 1; w->complete >>= 1, w->waiting >>= 1, w->base++) fresh++;
    const uint32_t base = w->base;
    w->waiting |= cuda_plan_places([&](uint32_t place) {
        const uint32_t step = base + place;
        return place + fresh >= CUDA_PLAN_WINDOW && step < x.n_steps && board.steps[step].act == CUDA_PLAN_LOCAL;
    });
}

/* The steps that are over now. */
CUDA_DEVICE void cuda_plan_complete(const struct cuda_plan &x, const struct cuda_plan_board &board,
                                    struct cuda_plan_window *w, struct cuda_plan_lane *l)
{
    const bool open = l->open && l->left == 0 && l->posted == l->retired;
    const bool over = open && l->chunk == board.steps[l->step].n;
    if (!cuda_any(over)) return;
    const uint64_t bit = over ? UINT64_C(1) << (l->step - w->base) : 0;
    uint32_t low = (uint32_t)bit, high = (uint32_t)(bit >> 32);
    for (uint32_t m = 1; m < CUDA_WARP; m *= 2) {
        low |= cuda_shuffle_xor(low, m);
        high |= cuda_shuffle_xor(high, m);
    }
    w->complete |= (uint64_t)high << 32 | low;
    if (over) {
        l->open = false;
        l->step = cuda_lane() == x.call.me ? CUDA_PLAN_NONE : board.steps[l->step].next;
    }
    cuda_plan_slide(x, board, w, 0);
}

/* Gives the local lane one of the steps that may begin. */
CUDA_DEVICE void cuda_plan_pick(const struct cuda_plan &x, const struct cuda_plan_board &board,
                                struct cuda_plan_window *w, struct cuda_plan_lane *l)
{
    if (w->waiting == 0 || cuda_shuffle(l->step, x.call.me) != CUDA_PLAN_NONE) return;
    const struct cuda_plan_window now = *w;
    const uint64_t ready = cuda_plan_places(
        [&](uint32_t place) { return (now.waiting >> place & 1) && cuda_plan_is_ready(board, now, now.base + place); });
    if (ready == 0) return;
    const uint32_t low = (uint32_t)ready, place = low ? cuda_lowest(low) : 32 + cuda_lowest((uint32_t)(ready >> 32));
    w->waiting &= ~(UINT64_C(1) << place);
    if (cuda_lane() == x.call.me) l->step = w->base + place;
}

/* ---- jobs ---- */
CUDA_DEVICE uint32_t cuda_plan_n(uint32_t bits)
{
    uint32_t n = 0;
    for (; bits; bits &= bits - 1) n++;
    return n;
}

/* How many jobs all movers are through with. */
CUDA_DEVICE uint32_t cuda_plan_done(const struct cuda_plan_board &board)
{
    uint32_t least = cuda_acquire_block_u32(&board.done[cuda_lane() % cuda_plan_movers]);
    for (uint32_t m = 1; m < cuda_plan_movers; m *= 2) {
        const uint32_t other = cuda_shuffle_xor(least, m);
        if ((int32_t)(other - least) < 0) least = other;
    }
    cuda_sync_warp(); /* what one lane has acquired all have */
    return cuda_shuffle(least, 0);
}

/* Takes note of jobs that are done, and tells peers. */
CUDA_DEVICE bool cuda_plan_retire(const struct cuda_plan_board &board, struct cuda_plan_window *w,
                                  struct cuda_plan_lane *l)
{
    const uint32_t now = cuda_plan_done(board);
    if (now == w->retired) return false;
    uint32_t mine = 0;
    for (; w->retired != now; w->retired++) mine += board.owners[w->retired % cuda_plan_jobs] == cuda_lane();
    l->retired += mine;
    if (mine > 0 && l->raised) {
        cuda_fence_system();
        cuda_store_u32(l->raised, l->count + l->retired);
    }
    return true;
}

/* Whether the lane's next tile has a slot, or has come. */
CUDA_DEVICE bool cuda_plan_may_move(const struct cuda_plan &x, struct cuda_plan_lane *l)
{
    if (!l->open || l->left == 0) return false;
    if (!l->flag) return true;
    const uint32_t next = l->count + l->posted, origin = cuda_lane() < cuda_from ? x.call.layout.n_tiles : 0;
    if (l->seen + origin == next) l->seen = cuda_acquire_u32(l->flag);
    return l->seen + origin != next;
}

CUDA_DEVICE void cuda_plan_job_write(struct cuda_plan_board *board, uint32_t at, const struct cuda_plan_job &job)
{
    uint32_t words[cuda_plan_job_words];
    memcpy(words, &job, sizeof job);
    CUDA_UNROLL for (uint32_t i = 0; i < cuda_plan_job_words; i++) cuda_store_block_u32(&board->jobs[at][i], words[i]);
    board->owners[at] = (uint8_t)cuda_lane();
}

CUDA_DEVICE struct cuda_plan_job cuda_plan_job_read(const struct cuda_plan_board &board, uint32_t at)
{
    struct cuda_plan_job job;
    uint32_t words[cuda_plan_job_words];
    CUDA_UNROLL for (uint32_t i = 0; i < cuda_plan_job_words; i++) words[i] = cuda_load_block_u32(&board.jobs[at][i]);
    memcpy(&job, words, sizeof job);
    return job;
}

CUDA_DEVICE void cuda_plan_post_tile(const struct cuda_plan &x, struct cuda_plan_board *board, uint32_t at,
                                     struct cuda_plan_lane *l)
{
    const struct cuda_plan_step &step = board->steps[l->step];
    const uint32_t most = x.call.layout.tile_bytes, peer = cuda_lane() % cuda_from, me = x.call.me;
    const uint32_t bytes = l->left < most ? (uint32_t)l->left : most;
    const bool local = step.act == CUDA_PLAN_LOCAL;
    const char *src = step.act == CUDA_PLAN_RECV ? cuda_ring(x.call, me, peer, l->slot) : l->src;
    char *dst = step.act == CUDA_PLAN_SEND ? cuda_ring(x.call, peer, me, l->slot) : l->dst;
    cuda_plan_job_write(board, at, cuda_plan_job{src, l->old, dst, bytes, step.flags});
    l->left -= bytes, l->posted++;
    if (l->src) l->src += bytes;
    if (l->old) l->old += bytes;
    if (l->dst) l->dst += bytes;
    if (!local) l->slot = l->slot + 1 == x.call.layout.n_tiles ? 0 : l->slot + 1;
}

/* A tile of each lane that can go on, while there is room; *stuck: lanes that wait for their peers. */
CUDA_DEVICE bool cuda_plan_post(const struct cuda_plan &x, struct cuda_plan_board *board, struct cuda_plan_window *w,
                                struct cuda_plan_lane *l, uint32_t *stuck)
{
    const bool may = cuda_plan_may_move(x, l);
    const uint32_t able = cuda_ballot(may), room = cuda_plan_jobs - (w->posted - w->retired);
    const uint32_t place = cuda_plan_n(able & ((1u << cuda_lane()) - 1)), n = cuda_plan_n(able);
    *stuck = cuda_ballot(l->open && l->left > 0 && !may);
    if (able == 0 || room == 0) return false;
    if (may && place < room) cuda_plan_post_tile(x, board, (w->posted + place) % cuda_plan_jobs, l);
    w->posted += n < room ? n : room;
    cuda_sync_warp();
    if (cuda_lane() == 0) cuda_release_block_u32(&board->posted, w->posted);
    return true;
}

/* ---- the warp ---- */
CUDA_DEVICE void cuda_plan_begin(const struct cuda_plan &x, const struct cuda_plan_board &board,
                                 const struct cuda_plan_window &w, struct cuda_plan_lane *l)
{
    if (!l->open && cuda_plan_is_ready(board, w, l->step)) l->open = true, l->chunk = 0, l->left = 0;
    while (l->open && l->left == 0 && l->chunk < board.steps[l->step].n)
        cuda_plan_next_chunk(x, board.steps[l->step], w.slice, l);
    cuda_sync_warp();
}

/* False: leave. */
CUDA_DEVICE bool cuda_plan_idle(const struct cuda_plan &x, uint32_t stuck, struct cuda_waiter *waiter)
{
    bool on = true;
    if (cuda_lane() == 0)
        on = cuda_go_on(waiter, x.call, stuck ? cuda_lowest(stuck) % cuda_from : x.call.me);
    else
        cuda_spin();
    return cuda_all(on);
}

CUDA_DEVICE bool cuda_plan_run_slice(const struct cuda_plan &x, struct cuda_plan_board *board,
                                     struct cuda_plan_window *w, struct cuda_plan_lane *l, uint32_t first,
                                     struct cuda_waiter *waiter)
{
    w->base = 0, w->complete = w->waiting = 0;
    l->step = first, l->open = false;
    cuda_plan_slide(x, *board, w, CUDA_PLAN_WINDOW);
    while (w->base < x.n_steps) {
        uint32_t stuck;
        cuda_plan_pick(x, *board, w, l);
        cuda_plan_begin(x, *board, *w, l);
        const bool posted = cuda_plan_post(x, board, w, l, &stuck);
        const bool retired = cuda_plan_retire(*board, w, l);
        cuda_plan_complete(x, *board, w, l);
        if (!posted && !retired && !cuda_plan_idle(x, stuck, waiter)) return false;
    }
    return true;
}

/* What a lane knows of its ring. The last tiles of the calls before are given back here. */
CUDA_DEVICE struct cuda_plan_lane cuda_plan_open_lane(const struct cuda_call &call)
{
    const struct cuda_layout &layout = call.layout;
    const uint32_t lane = cuda_lane(), peer = lane % cuda_from;
    const bool sends = lane < cuda_from;
    struct cuda_plan_lane l = {};
    if (peer >= call.n || peer == call.me) return l;
    const uint64_t own = cuda_load_u64(cuda_count_at(call, lane));
    l.count = (uint32_t)own, l.slot = (uint32_t)(own >> 32);
    l.flag =
        call.base[call.me] + (sends ? layout.returned : layout.arrived) + cuda_cell(layout, peer) * sizeof(uint32_t);
    l.raised =
        call.base[peer] + (sends ? layout.arrived : layout.returned) + cuda_cell(layout, call.me) * sizeof(uint32_t);
    l.seen = cuda_acquire_u32(l.flag);
    if (!sends) cuda_release_before_u32(l.raised, l.count);
    return l;
}

CUDA_COLD void cuda_plan_schedule(const struct cuda_plan &x, struct cuda_plan_board *board)
{
    struct cuda_plan_lane l = cuda_plan_open_lane(x.call);
    struct cuda_plan_window w = {};
    struct cuda_waiter waiter = {0, 0};
    const uint32_t first = l.flag ? x.program->first[cuda_lane()] : CUDA_PLAN_NONE;
    bool on = true;
    for (w.slice = cuda_block(); on && w.slice < x.n_slices; w.slice += x.stride)
        on = cuda_plan_run_slice(x, board, &w, &l, first, &waiter);
    cuda_sync_warp();
    if (cuda_lane() == 0) cuda_release_block_u32(&board->halted, 1);
    if (on && l.flag)
        cuda_store_u64(cuda_count_at(x.call, cuda_lane()), (uint64_t)l.slot << 32 | (uint32_t)(l.count + l.posted));
}

#endif
