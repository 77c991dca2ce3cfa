/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs a plan of MSCCL++ block by block, which gives an order of all operations or the deadlock. On the way vector
 * clocks, of all blocks of all GPUs, prove that whatever two blocks touch, one of them writing, is ordered by
 * semaphores or packets; so every other order gives the same. Each operation is written down as steps of ours as it is
 * run: what is read from or written to a peer becomes a message that both programs have at this point, so they can not
 * deadlock. */

#include "load/mscclpp.h"

#include <stdio.h>
#include <string.h>

#define MOST_CLOCKS (UINT64_C(1) << 25)

struct place {
    uint8_t buffer; /* enum tutti_buffer */
    uint32_t chunk;
};
struct touch { /* a read since the last write */
    uint32_t op, block, older;
};
struct cell {
    uint32_t op, block; /* the last write; NONE */
    uint32_t readers;   /* the last of them; NONE */
    bool defined, packet;
};
struct run {
    const struct tutti_pp *plan;
    struct tutti_plan *out;
    uint32_t *at;      /* by block: how many of its operations are over */
    uint32_t *clocks;  /* by block, then by operation, when it is over: how many of each block's are over */
    uint32_t *signals; /* by end: how many; then the operations, in order */
    uint32_t *waits;   /* by end: how many */
    uint32_t **signalled;
    struct cell *cells;
    uint32_t *likes; /* by cell of SCRATCH: one more than the DATA chunk that it is as large as; 0 */
    size_t *base;    /* by GPU: its cells: DATA (out of place input, then output), SCRATCH, places for what comes in */
    struct touch *touches;
    uint32_t n_touches, touch_capacity;
    uint32_t n_extra; /* chunks of SCRATCH for what comes in */
    uint32_t round;
};

/* ---- chunks ---- */

static bool separate(const struct tutti_pp *plan)
{
    return tutti_kind_info(plan->kind)->separate_in;
}

/* SCRATCH: the plan's own; out of place, but for IN, a copy of the input; what comes in. */
static uint32_t copy_at(const struct run *run, uint32_t gpu)
{
    return run->plan->n_scratch[gpu];
}

static uint32_t extra_at(const struct run *run, uint32_t gpu)
{
    return copy_at(run, gpu) + (run->plan->in_place || separate(run->plan) ? 0 : run->plan->n_in);
}

static uint32_t own(const struct tutti_pp *plan, uint32_t gpu, uint8_t buffer)
{
    const uint32_t n = buffer == TUTTI_MSCCL_INPUT ? plan->n_in : plan->n_out;
    return n < plan->n_chunks ? gpu * n : 0;
}

static struct place place_of(const struct run *run, const struct tutti_pp_access *a)
{
    const struct tutti_pp *plan = run->plan;
    if (a->buffer == TUTTI_MSCCL_SCRATCH) return (struct place){TUTTI_SCRATCH, a->chunk};
    if (a->buffer == TUTTI_MSCCL_INPUT && !plan->in_place)
        return separate(plan) ? (struct place){TUTTI_IN, a->chunk}
                              : (struct place){TUTTI_SCRATCH, copy_at(run, a->gpu) + a->chunk};
    return (struct place){TUTTI_DATA, own(plan, a->gpu, a->buffer) + a->chunk};
}

static struct cell *cell_of(const struct run *run, const struct tutti_pp_access *a, uint32_t k)
{
    const struct place place = place_of(run, a);
    const uint32_t n = run->plan->n_chunks;
    const uint32_t from = place.buffer == TUTTI_DATA ? 0 : place.buffer == TUTTI_IN ? n : 2 * n;
    return &run->cells[run->base[a->gpu] + from + place.chunk + k];
}

/* ---- order ---- */

static uint32_t *clock_of(const struct run *run, uint32_t number)
{
    return run->clocks + (size_t)number * run->plan->n_blocks;
}

static void merge(const struct run *run, uint32_t block, uint32_t op)
{
    uint32_t *clock = clock_of(run, block);
    const uint32_t *other = clock_of(run, run->plan->n_blocks + op);
    for (uint32_t b = 0; b < run->plan->n_blocks; b++)
        if (other[b] > clock[b]) clock[b] = other[b];
}

static bool is_before(const struct run *run, uint32_t block, uint32_t other, uint32_t op)
{
    return block == other || clock_of(run, block)[other] > op - run->plan->blocks[other].first;
}

static const char *where(const struct run *run, uint32_t block, uint32_t op, char *out)
{
    const struct tutti_pp_block *b = &run->plan->blocks[block];
    snprintf(out, TUTTI_MSCCL_WHERE, "gpu %u block %u (line %u)", b->gpu, b->id, run->plan->ops[op].line);
    return out;
}

static enum tutti_status race(const struct run *run, uint32_t block, uint32_t op, const char *does,
                              const struct tutti_pp_access *a, uint32_t k, uint32_t other, uint32_t other_op,
                              const char *other_does)
{
    char here[TUTTI_MSCCL_WHERE], there[TUTTI_MSCCL_WHERE];
    return tutti_fail(TUTTI_ERR_ARGUMENT,
                      "%s:%u: race: %s %s %c%u of gpu %u, %s %s it, and neither semaphores nor packets order them",
                      run->plan->file, run->plan->ops[op].line, where(run, block, op, here), does, "ios"[a->buffer],
                      (a->chunk + k) / run->plan->scale, a->gpu, where(run, other, other_op, there), other_does);
}

static enum tutti_status check_read(struct run *run, uint32_t block, uint32_t op, const struct tutti_pp_access *a,
                                    uint32_t k)
{
    struct cell *cell = cell_of(run, a, k);
    char here[TUTTI_MSCCL_WHERE];
    if (cell->defined && cell->packet != a->packet)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%u: %s reads %c%u of gpu %u, which holds %s", run->plan->file,
                          run->plan->ops[op].line, where(run, block, op, here), "ios"[a->buffer],
                          (a->chunk + k) / run->plan->scale, a->gpu, cell->packet ? "packets" : "no packets");
    if (!cell->defined)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%u: %s reads %c%u of gpu %u, which holds nothing", run->plan->file,
                          run->plan->ops[op].line, where(run, block, op, here), "ios"[a->buffer],
                          (a->chunk + k) / run->plan->scale, a->gpu);
    if (cell->op != TUTTI_MSCCL_NONE && !is_before(run, block, cell->block, cell->op))
        return race(run, block, op, "reads", a, k, cell->block, cell->op, "writes");
    if (cell->readers != TUTTI_MSCCL_NONE && run->touches[cell->readers].block == block) {
        run->touches[cell->readers].op = op;
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_msccl_grow((void **)&run->touches, run->n_touches, &run->touch_capacity, sizeof *run->touches));
    run->touches[run->n_touches] = (struct touch){op, block, cell->readers};
    cell->readers = run->n_touches++;
    return TUTTI_OK;
}

static enum tutti_status check_write(struct run *run, uint32_t block, uint32_t op, const struct tutti_pp_access *a,
                                     uint32_t k)
{
    struct cell *cell = cell_of(run, a, k);
    char here[TUTTI_MSCCL_WHERE];
    if (a->packet && cell->defined && cell->packet)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%u: %s writes packets to s%u of gpu %u, where there are some already",
                          run->plan->file, run->plan->ops[op].line, where(run, block, op, here),
                          (a->chunk + k) / run->plan->scale, a->gpu);
    if (cell->op != TUTTI_MSCCL_NONE && !is_before(run, block, cell->block, cell->op))
        return race(run, block, op, "writes", a, k, cell->block, cell->op, "writes");
    for (uint32_t t = cell->readers; t != TUTTI_MSCCL_NONE; t = run->touches[t].older)
        if (!is_before(run, block, run->touches[t].block, run->touches[t].op))
            return race(run, block, op, "writes", a, k, run->touches[t].block, run->touches[t].op, "reads");
    *cell = (struct cell){op, block, TUTTI_MSCCL_NONE, true, a->packet};
    return TUTTI_OK;
}

/* ---- steps of ours ---- */

static uint32_t *like_of(const struct run *run, uint32_t gpu, struct place place)
{
    return &run->likes[run->base[gpu] + 2 * (size_t)run->plan->n_chunks + place.chunk];
}

static uint32_t like(const struct run *run, uint32_t gpu, struct place place, uint32_t n)
{
    if (place.buffer != TUTTI_SCRATCH) return place.chunk + 1;
    const uint32_t *likes = like_of(run, gpu, place);
    for (uint32_t i = 1; i < n; i++)
        if (likes[i] != likes[0] + i) return 0;
    return likes[0];
}

static enum tutti_status add(struct run *run, uint32_t gpu, enum tutti_step_op op, uint32_t peer, struct place dst,
                             struct place src, uint32_t n, uint32_t is_like)
{
    const bool stores = dst.buffer == TUTTI_SCRATCH && (op == TUTTI_STEP_RECV || op == TUTTI_STEP_COPY);
    for (uint32_t i = 0; i < n && stores; i++) like_of(run, gpu, dst)[i] = is_like ? is_like + i : 0;
    return tutti_plan_add(run->out, &(struct tutti_plan_step){.op = (uint8_t)op,
                                                              .slot = gpu,
                                                              .round = run->round,
                                                              .peer = peer,
                                                              .dst_buffer = dst.buffer,
                                                              .dst = dst.chunk,
                                                              .src_buffer = src.buffer,
                                                              .src = src.chunk,
                                                              .like = stores ? is_like : 0,
                                                              .n = n});
}

/* From a place of one GPU to a place of another, or of the same. */
static enum tutti_status carry(struct run *run, uint32_t from, struct place src, uint32_t to, struct place dst,
                               uint32_t n)
{
    const uint32_t is_like = like(run, from, src, n);
    if (from == to && src.buffer == dst.buffer && src.chunk == dst.chunk) return TUTTI_OK;
    if (from == to) return add(run, to, TUTTI_STEP_COPY, 0, dst, src, n, is_like);
    TUTTI_TRY(add(run, from, TUTTI_STEP_SEND, to, src, src, n, 0));
    return add(run, to, TUTTI_STEP_RECV, from, dst, dst, n, is_like);
}

static bool overlap(struct place a, struct place b, uint32_t n)
{
    return a.buffer == b.buffer && a.chunk < b.chunk + n && b.chunk < a.chunk + n;
}

/* The sum of what is read, where it is then: in the first source, in the first destination or in a place of its own. */
static enum tutti_status add_sum(struct run *run, uint32_t gpu, const struct tutti_pp_op *op, struct place *sum)
{
    const struct tutti_pp_access *src = &run->plan->accesses[op->first], *dst = src + op->n_src;
    struct place extra = {TUTTI_SCRATCH, extra_at(run, gpu)};
    const struct place first = place_of(run, src);
    *sum = first;
    if (op->n_src == 1 && (src->gpu == gpu || op->n_dst == 1)) return TUTTI_OK;
    bool at_dst = dst->gpu == gpu;
    for (uint32_t k = 1; k < op->n_src && at_dst; k++)
        at_dst = src[k].gpu != gpu || !overlap(place_of(run, &src[k]), place_of(run, dst), op->n);
    *sum = at_dst ? place_of(run, dst) : extra;
    if (!at_dst) extra.chunk += op->n;
    TUTTI_TRY(carry(run, src->gpu, first, gpu, *sum, op->n));
    for (uint32_t k = 1; k < op->n_src; k++) {
        struct place other = place_of(run, &src[k]);
        if (src[k].gpu != gpu) TUTTI_TRY(carry(run, src[k].gpu, other, gpu, extra, op->n));
        if (src[k].gpu != gpu) other = extra;
        TUTTI_TRY(add(run, gpu, TUTTI_STEP_REDUCE, 0, *sum, other, op->n, 0));
    }
    return TUTTI_OK;
}

static enum tutti_status move(struct run *run, uint32_t block, uint32_t number)
{
    const struct tutti_pp_op *op = &run->plan->ops[number];
    const struct tutti_pp_access *a = &run->plan->accesses[op->first];
    const uint32_t gpu = run->plan->blocks[block].gpu;
    struct place sum;
    for (uint32_t i = 0; i < op->n_src; i++) {
        for (uint32_t k = 0; k < op->n; k++) {
            const struct cell *cell = cell_of(run, &a[i], k);
            if (a[i].packet && cell->packet && cell->op != TUTTI_MSCCL_NONE) merge(run, block, cell->op);
            TUTTI_TRY(check_read(run, block, number, &a[i], k));
        }
    }
    for (uint32_t i = op->n_src; i < op->n_src + op->n_dst; i++)
        for (uint32_t k = 0; k < op->n; k++) TUTTI_TRY(check_write(run, block, number, &a[i], k));
    TUTTI_TRY(add_sum(run, gpu, op, &sum));
    const uint32_t holder = op->n_src == 1 && op->n_dst == 1 ? a->gpu : gpu;
    for (uint32_t i = op->n_src; i < op->n_src + op->n_dst; i++)
        TUTTI_TRY(carry(run, holder, sum, a[i].gpu, place_of(run, &a[i]), op->n));
    return TUTTI_OK;
}

/* ---- the run ---- */

/* Whether the block's operation can go on: its signal or its packets are there. */
static bool is_ready(const struct run *run, uint32_t block)
{
    const struct tutti_pp_op *op = &run->plan->ops[run->plan->blocks[block].first + run->at[block]];
    if (op->what == TUTTI_PP_WAIT) return run->signals[run->plan->ends[op->end].other] > run->waits[op->end];
    for (uint32_t i = 0; op->what == TUTTI_PP_MOVE && i < op->n_src; i++)
        for (uint32_t k = 0; run->plan->accesses[op->first + i].packet && k < op->n; k++)
            if (!cell_of(run, &run->plan->accesses[op->first + i], k)->defined) return false;
    return true;
}

static enum tutti_status go(struct run *run, uint32_t block)
{
    const struct tutti_pp_block *b = &run->plan->blocks[block];
    const uint32_t number = b->first + run->at[block];
    const struct tutti_pp_op *op = &run->plan->ops[number];
    uint32_t *clock = clock_of(run, block);
    if (op->what == TUTTI_PP_WAIT) {
        const uint32_t signal = run->signalled[run->plan->ends[op->end].other][run->waits[op->end]++];
        if (!op->relaxed && !run->plan->ops[signal].relaxed) merge(run, block, signal);
    }
    if (op->what == TUTTI_PP_SIGNAL) run->signalled[op->end][run->signals[op->end]++] = number;
    if (op->what == TUTTI_PP_MOVE) TUTTI_TRY(move(run, block, number));
    clock[block] = ++run->at[block];
    memcpy(clock_of(run, run->plan->n_blocks + number), clock, run->plan->n_blocks * sizeof *clock);
    return TUTTI_OK;
}

static enum tutti_status stuck(const struct run *run, uint32_t block)
{
    const struct tutti_pp *plan = run->plan;
    const struct tutti_pp_op *op = &plan->ops[plan->blocks[block].first + run->at[block]];
    char here[TUTTI_MSCCL_WHERE];
    where(run, block, plan->blocks[block].first + run->at[block], here);
    if (op->what == TUTTI_PP_WAIT)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%u: deadlock: %s waits for signal %u of gpu %u for ever: %u come%s",
                          plan->file, op->line, here, run->waits[op->end], plan->ends[op->end].peer,
                          run->signals[plan->ends[op->end].other],
                          run->signals[plan->ends[op->end].other] == 1 ? "s" : "");
    return tutti_fail(TUTTI_ERR_ARGUMENT, "%s:%u: deadlock: %s waits for packets for ever", plan->file, op->line, here);
}

/* Each block does an operation in turn, as long as one can. */
static enum tutti_status run_all(struct run *run)
{
    const struct tutti_pp *plan = run->plan;
    for (bool any = true; any; run->round++) {
        any = false;
        for (uint32_t b = 0; b < plan->n_blocks; b++) {
            if (run->at[b] == plan->blocks[b].n || !is_ready(run, b)) continue;
            TUTTI_TRY(go(run, b));
            any = true;
        }
    }
    for (uint32_t b = 0; b < plan->n_blocks; b++)
        if (run->at[b] < plan->blocks[b].n) return stuck(run, b);
    for (uint32_t e = 0; e < plan->n_ends; e++)
        if (run->signals[e] != run->waits[plan->ends[e].other])
            return tutti_fail(TUTTI_ERR_ARGUMENT,
                              "%s: gpu %u signals gpu %u %u times on a channel, where that waits %u times: the next "
                              "call would begin too early",
                              plan->file, plan->ends[e].gpu, plan->ends[e].peer, run->signals[e],
                              run->waits[plan->ends[e].other]);
    return TUTTI_OK;
}

/* ---- before and after ---- */

/* What each GPU holds before; out of place the input is read from a copy of it. */
static enum tutti_status begin(struct run *run)
{
    const struct tutti_pp *plan = run->plan;
    const struct tutti_kind_info *info = tutti_kind_info(plan->kind);
    for (size_t c = 0; c < run->base[plan->n_gpus]; c++)
        run->cells[c] = (struct cell){.op = TUTTI_MSCCL_NONE, .readers = TUTTI_MSCCL_NONE};
    for (uint32_t g = 0; g < plan->n_gpus; g++) {
        const struct tutti_pp_access input = {g, TUTTI_MSCCL_INPUT, false, 0};
        const struct place from = {separate(plan) ? TUTTI_IN : TUTTI_DATA, own(plan, g, TUTTI_MSCCL_INPUT)};
        const struct place to = place_of(run, &input);
        if (!tutti_side_is_at(info->send, g, 0)) continue;
        for (uint32_t c = 0; c < plan->n_in; c++) cell_of(run, &input, c)->defined = true;
        if (from.buffer == to.buffer && from.chunk == to.chunk) continue;
        TUTTI_TRY(add(run, g, TUTTI_STEP_COPY, 0, to, from, plan->n_in, from.chunk + 1));
    }
    return TUTTI_OK;
}

/* In place the checker says what is never written; out of place it would take the input for it. */
static enum tutti_status check_written(const struct run *run)
{
    const struct tutti_pp *plan = run->plan;
    for (uint32_t g = 0; g < plan->n_gpus && !plan->in_place; g++) {
        const struct tutti_pp_access output = {g, TUTTI_MSCCL_OUTPUT, false, 0};
        for (uint32_t c = 0; c < plan->n_out && tutti_side_is_at(tutti_kind_info(plan->kind)->recv, g, 0); c++)
            if (!cell_of(run, &output, c)->defined)
                return tutti_fail(TUTTI_ERR_ARGUMENT, "%s: gpu %u never writes o%u of its result", plan->file, g,
                                  c / plan->scale);
    }
    return TUTTI_OK;
}

/* Room for what comes in: the largest operation's sum, and one of its sources. */
static enum tutti_status sizes_find(struct run *run, uint32_t *n_scratch)
{
    const struct tutti_pp *plan = run->plan;
    uint64_t total = 0;
    *n_scratch = 0;
    for (uint32_t i = 0; i < plan->n_ops; i++)
        if (2 * plan->ops[i].n > run->n_extra) run->n_extra = 2 * plan->ops[i].n;
    for (uint32_t i = 0; i < plan->n_ops; i++)
        total += (uint64_t)plan->ops[i].n * (plan->ops[i].n_src + plan->ops[i].n_dst);
    const uint64_t clocks = ((uint64_t)plan->n_ops + plan->n_blocks) * plan->n_blocks;
    if (total > TUTTI_MSCCL_MOST_CHUNKS || clocks > MOST_CLOCKS)
        return tutti_fail(TUTTI_ERR_ARGUMENT, "%s: %u operations in %u thread blocks are too many to be proved",
                          plan->file, plan->n_ops, plan->n_blocks);
    for (uint32_t g = 0; g < plan->n_gpus; g++) {
        const uint32_t n = extra_at(run, g) + run->n_extra;
        run->base[g + 1] = run->base[g] + 2 * (size_t)plan->n_chunks + n;
        if (n > *n_scratch) *n_scratch = n;
    }
    return TUTTI_OK;
}

static enum tutti_status run_init(struct run *run, uint32_t *n_scratch)
{
    const struct tutti_pp *plan = run->plan;
    run->base = tutti_alloc_array((size_t)plan->n_gpus + 1, sizeof *run->base);
    if (!run->base) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to run %s", plan->file);
    TUTTI_TRY(sizes_find(run, n_scratch));
    run->at = tutti_alloc_array((size_t)plan->n_blocks + 1, sizeof *run->at);
    run->clocks = tutti_alloc_array(((size_t)plan->n_ops + plan->n_blocks) * plan->n_blocks + 1, sizeof *run->clocks);
    run->signals = tutti_alloc_array((size_t)plan->n_ends + 1, 2 * sizeof *run->signals);
    run->signalled = tutti_alloc_array((size_t)plan->n_ends + 1, sizeof(uint32_t *));
    run->cells = tutti_alloc_array(run->base[plan->n_gpus] + 1, sizeof *run->cells);
    run->likes = tutti_alloc_array(run->base[plan->n_gpus] + 1, sizeof *run->likes);
    if (!run->at || !run->clocks || !run->signals || !run->signalled || !run->cells || !run->likes)
        return tutti_fail(TUTTI_ERR_MEMORY, "no memory to run %s", plan->file);
    run->waits = run->signals + plan->n_ends + 1;
    for (uint32_t e = 0; e < plan->n_ends; e++) {
        const uint32_t block = plan->ends[e].signaller;
        run->signalled[e] =
            tutti_alloc_array(block == TUTTI_MSCCL_NONE ? 1 : plan->blocks[block].n + 1, sizeof **run->signalled);
        if (!run->signalled[e]) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to run %s", plan->file);
    }
    return TUTTI_OK;
}

static void run_fini(struct run *run)
{
    for (uint32_t e = 0; run->signalled && e < run->plan->n_ends; e++) tutti_free(run->signalled[e]);
    tutti_free(run->signalled);
    tutti_free(run->base);
    tutti_free(run->at);
    tutti_free(run->clocks);
    tutti_free(run->signals);
    tutti_free(run->cells);
    tutti_free(run->likes);
    tutti_free(run->touches);
}

enum tutti_status tutti_pp_plan(const struct tutti_pp *plan, struct tutti_plan *out)
{
    struct run run = {.plan = plan, .out = out};
    uint32_t n_scratch = 0;
    *out = (struct tutti_plan){0};
    enum tutti_status status = run_init(&run, &n_scratch);
    if (status >= 0) status = tutti_plan_init(out, plan->kind, plan->n_gpus, plan->n_chunks, n_scratch);
    if (status >= 0) status = begin(&run);
    if (status >= 0) status = run_all(&run);
    if (status >= 0) status = check_written(&run);
    if (status >= 0) status = tutti_plan_seal(out);
    if (status < 0) tutti_plan_fini(out);
    run_fini(&run);
    return status;
}

enum tutti_status tutti_pp_load(const char *file, char *text, size_t bytes, struct tutti_plan *out, char *name)
{
    struct tutti_pp plan;
    TUTTI_TRY(tutti_pp_read(file, text, bytes, &plan));
    const enum tutti_status status = tutti_pp_plan(&plan, out);
    if (status >= 0) snprintf(name, sizeof plan.name, "%s", plan.name);
    tutti_pp_fini(&plan);
    return status;
}
