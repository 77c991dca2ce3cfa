/* SPDX-License-Identifier: BSD-3-Clause */

/* A call from its begin to its end: the members meet, so that nobody is within oneCCL for a call that others did not
 * make, or made otherwise; the carrier carries it out on its own memory; what came is copied to the caller's. */

#include "backend/library/oneccl.h"
#include "engine/team/team.h"

#include <sched.h>
#include <string.h>

#define SPINS 30000 /* for a caller that waits past the engine, where there are CPUs to spare; */
#define NAP_NS (100 * UINT64_C(1000))
#define NAPS 20 /* and how often it sleeps where there are none */

enum { MEETS, CARRIED };
struct oneccl_op {
    struct tutti_backend_op base;
    struct oneccl_backend *inst;
    uint64_t number; /* among the instance's calls; 0: it has not begun */
    uint32_t phase;
    uint32_t met;     /* members before this one have posted the call */
    uint32_t awaited; /* and who does not */
    bool listens;     /* at the awaited member's bell */
    bool sleeps;      /* for the carrier */
    size_t in_bytes, out_bytes;
    uint64_t called[2]; /* the signatures of the rank that called something else */
};
_Static_assert(sizeof(struct oneccl_op) <= TUTTI_RUNNER_BYTES, "the engine copies it");

static struct oneccl_op *op_of(struct tutti_runner *runner)
{
    return (struct oneccl_op *)(void *)runner;
}

static struct oneccl_post *post_of(const struct oneccl_op *op, uint32_t r)
{
    return &op->inst->boards->of[r].posts[op->number % 2];
}

static uint64_t call_word(const struct tutti_call_info *info)
{
    return tutti_call_word((uint32_t)info->kind, (uint32_t)info->dtype, (uint32_t)info->op, info->root);
}

/* ---- meeting ---- */

static void post(const struct oneccl_op *op)
{
    const struct tutti_call_info *info = &op->base.call.info;
    struct oneccl_board *board = &op->inst->boards->of[op->inst->me];
    struct oneccl_post *mine = post_of(op, op->inst->me);
    atomic_store_explicit(&mine->seq, op->base.call.seq, memory_order_relaxed);
    atomic_store_explicit(&mine->signature, info->signature, memory_order_relaxed);
    atomic_store_explicit(&mine->call, call_word(info), memory_order_relaxed);
    atomic_store_explicit(&mine->count, info->count, memory_order_relaxed);
    atomic_store_explicit(&mine->number, op->number, memory_order_release);
    tutti_bell_ring(&board->bell);
}

/* DONE: all have posted the same call. */
static enum tutti_advance meet(struct oneccl_op *op)
{
    for (; op->inst->boards && op->met < op->inst->n; op->met++) {
        const struct oneccl_post *theirs = post_of(op, op->met);
        op->awaited = op->met;
        if (atomic_load_explicit(&theirs->number, memory_order_acquire) < op->number) return TUTTI_RUN_BLOCKED;
        if (atomic_load_explicit(&theirs->signature, memory_order_relaxed) == op->base.call.info.signature) continue;
        op->called[0] = atomic_load_explicit(&theirs->call, memory_order_relaxed);
        op->called[1] = atomic_load_explicit(&theirs->count, memory_order_relaxed);
        return TUTTI_RUN_MISMATCH;
    }
    return TUTTI_RUN_DONE;
}

/* ---- carrying ---- */

/* Whether oneCCL works on one buffer for both sides. */
static bool is_one(enum tutti_kind kind)
{
    return kind == TUTTI_ALL_REDUCE || kind == TUTTI_BROADCAST;
}

/* In and out lie apart, each at a cache line; so does the own block of what is gathered. */
static enum tutti_status job_fill(struct oneccl_op *op, struct oneccl_carrier *carrier)
{
    const struct tutti_backend_call *call = &op->base.call;
    struct oneccl_job *job = &carrier->job;
    const bool one = is_one(call->info.kind);
    const size_t out_at = one ? 0 : (op->in_bytes + TUTTI_CACHE_LINE - 1) / TUTTI_CACHE_LINE * TUTTI_CACHE_LINE;
    const size_t block = call->bind.count * tutti_dtype_bytes(call->info.dtype);
    const size_t bytes = out_at + (one && op->out_bytes < block ? block : op->out_bytes);
    TUTTI_TRY(oneccl_carrier_room(carrier, bytes));
    oneccl_job_of(call, job);
    job->in = carrier->memory;
    job->out = carrier->memory + out_at;
    job->said[0] = call->info.signature;
    job->said[1] = call_word(&call->info);
    job->said[2] = call->info.count;
    job->said[3] = op->number;
    if (op->in_bytes) memcpy(job->in, call->bind.input, op->in_bytes);
    return TUTTI_OK;
}

static enum tutti_status carry(struct oneccl_op *op)
{
    struct oneccl_backend *inst = op->inst;
    if (oneccl_is_lost()) return tutti_fail(TUTTI_ERR_UNSUPPORTED, ONECCL_IS_LOST);
    if (!inst->carrier) TUTTI_TRY(oneccl_carrier_start(&inst->carrier, &inst->like));
    TUTTI_TRY(job_fill(op, inst->carrier));
    oneccl_carrier_ask(inst->carrier);
    op->phase = CARRIED;
    return TUTTI_OK;
}

static void finish(struct oneccl_op *op)
{
    struct oneccl_backend *inst = op->inst;
    const struct tutti_bind *bind = &op->base.call.bind;
    const char *out = inst->carrier->job.out;
    const bool moves = op->base.call.info.kind == TUTTI_BROADCAST && op->base.call.info.root == (int32_t)inst->me;
    if (op->out_bytes && !moves) memcpy(bind->output, out, op->out_bytes);
    if (!inst->boards) return;
    struct oneccl_board *board = &inst->boards->of[inst->me];
    atomic_store_explicit(&board->done_seq, op->base.call.seq, memory_order_relaxed);
    atomic_store_explicit(&board->done, op->number, memory_order_release);
}

/* What the carrier found. */
static enum tutti_advance result_of(struct oneccl_op *op)
{
    const struct oneccl_carrier *c = op->inst->carrier;
    if (c->result != ONECCL_OK) {
        oneccl_carrier_refused(c);
        return TUTTI_RUN_FAILED;
    }
    if (c->differs == c->n) return TUTTI_RUN_DONE;
    const uint64_t *said = &c->heard[(size_t)c->differs * ONECCL_SAID];
    op->awaited = c->differs;
    op->called[0] = said[1], op->called[1] = said[2];
    return TUTTI_RUN_MISMATCH;
}

/* ---- the runner ---- */

static enum tutti_advance op_advance(struct tutti_runner *runner)
{
    struct oneccl_op *op = op_of(runner);
    struct oneccl_backend *inst = op->inst;
    if (op->number == 0) {
        op->number = ++inst->number;
        if (inst->boards) post(op);
    }
    if (op->phase == MEETS) {
        const enum tutti_advance met = meet(op);
        if (met != TUTTI_RUN_DONE) return met;
        if (carry(op) < 0) return TUTTI_RUN_FAILED;
    }
    if (atomic_load_explicit(&inst->carrier->state, memory_order_acquire) == ONECCL_ASKED) return TUTTI_RUN_BLOCKED;
    const enum tutti_advance result = result_of(op);
    if (result == TUTTI_RUN_DONE) finish(op);
    return result;
}

/* Whether the peer needs nothing of this call any more. */
static bool is_done(const struct oneccl_op *op, uint32_t r)
{
    struct tutti_board board;
    const uint64_t seq = op->base.call.seq;
    if (op->inst->boards) return atomic_load(&op->inst->boards->of[r].done) >= op->number;
    if (tutti_team_peek(op->inst->team, r, &board) != TUTTI_OK) return false;
    return board.completed >= seq || (board.state == TUTTI_BOARD_LEFT && board.seq >= seq);
}

/* Within oneCCL any member may be the one; who is gone is named before who is late. */
static uint32_t op_awaits(const struct tutti_runner *runner)
{
    const struct oneccl_op *op = (const struct oneccl_op *)(const void *)runner;
    const struct oneccl_backend *inst = op->inst;
    uint32_t late = inst->n;
    if (op->phase == MEETS || op->called[0]) return op->awaited;
    for (uint32_t r = 0; r < inst->n; r++) {
        if (r == inst->me || is_done(op, r)) continue;
        if (late == inst->n) late = r;
        if (tutti_life_gone(inst->control->ops->life(inst->control, inst->members[r]))) return r;
    }
    return late < inst->n ? late : inst->me;
}

static void op_called(const struct tutti_runner *runner, uint64_t *call, uint64_t *count)
{
    const struct oneccl_op *op = (const struct oneccl_op *)(const void *)runner;
    *call = op->called[0], *count = op->called[1];
}

static bool op_sleep_begin(struct tutti_runner *runner, _Atomic uint32_t **word, uint32_t *expected)
{
    struct oneccl_op *op = op_of(runner);
    if (op->number == 0) return false;
    if (op->phase == CARRIED) {
        struct oneccl_carrier *c = op->inst->carrier;
        *word = &c->state, *expected = ONECCL_ASKED;
        op->sleeps = true;
        atomic_store(&c->caller_sleeps, 1);
        return atomic_load(&c->state) == ONECCL_ASKED;
    }
    struct tutti_bell *bell = &op->inst->boards->of[op->awaited].bell;
    *word = &bell->event, *expected = tutti_bell_listen(bell);
    op->listens = true;
    if (!bell->fences) tutti_fence_all();
    return atomic_load(&post_of(op, op->awaited)->number) < op->number;
}

static void op_sleep_end(struct tutti_runner *runner)
{
    struct oneccl_op *op = op_of(runner);
    if (op->listens) tutti_bell_leave(&op->inst->boards->of[op->awaited].bell);
    if (op->sleeps) atomic_store(&op->inst->carrier->caller_sleeps, 0);
    op->listens = op->sleeps = false;
}

/* The carrier touches nothing of the caller's, so there is nothing to wait for. */
static void op_cancel(struct tutti_runner *runner)
{
    struct oneccl_backend *inst = op_of(runner)->inst;
    inst->lost = true;
    if (inst->carrier) oneccl_carrier_end(inst->carrier, false, 0);
    inst->carrier = NULL;
}

static const struct tutti_runner_ops runner_ops = {
    .advance = op_advance,
    .awaits = op_awaits,
    .called = op_called,
    .sleep_begin = op_sleep_begin,
    .sleep_end = op_sleep_end,
    .cancel = op_cancel,
};

/* ---- the back end's calls ---- */

enum tutti_status oneccl_begin(struct tutti_backend *backend, struct tutti_backend_op *base)
{
    struct oneccl_backend *inst = oneccl_of(backend);
    struct oneccl_op *op = (struct oneccl_op *)(void *)base;
    const struct tutti_backend_call *call = &base->call;
    const struct tutti_kind_info *kind = tutti_kind_info(call->info.kind);
    const uint32_t root = call->info.root < 0 ? 0 : (uint32_t)call->info.root;
    const size_t block = call->bind.count * tutti_dtype_bytes(call->info.dtype);
    memset((char *)op + sizeof op->base, 0, sizeof *op - sizeof op->base);
    base->runner.ops = &runner_ops;
    op->inst = inst;
    op->in_bytes = block * tutti_side_blocks(kind->send, inst->me, root, inst->n);
    op->out_bytes = block * tutti_side_blocks(kind->recv, inst->me, root, inst->n);
    return TUTTI_OK;
}

/* Sleeps at once, for a thread that gives up turns is not always followed by the one that it waits for. */
static void nap(const struct oneccl_op *op)
{
    struct oneccl_carrier *c = op->inst->carrier;
    if (op->phase != CARRIED) {
        sched_yield();
        return;
    }
    atomic_store(&c->caller_sleeps, 1);
    if (atomic_load(&c->state) == ONECCL_ASKED) tutti_futex_wait(&c->state, ONECCL_ASKED, tutti_deadline_ns(NAP_NS));
    atomic_store(&c->caller_sleeps, 0);
}

enum tutti_advance oneccl_run_inline(struct tutti_backend_op *base, const struct tutti_team *team)
{
    struct oneccl_op *op = (struct oneccl_op *)(void *)base;
    const struct oneccl_backend *inst = op->inst;
    if (!inst->boards) return TUTTI_RUN_BLOCKED; /* its number would show on no board */
    for (uint32_t i = 0; i < (inst->like.spins ? SPINS : NAPS); i++) {
        const enum tutti_advance run = op_advance(&op->base.runner);
        if (run != TUTTI_RUN_BLOCKED) return run;
        if (tutti_team_failed(team) || tutti_control_alarmed(inst->control)) break; /* the engine tells */
        if (inst->like.spins)
            tutti_cpu_relax();
        else
            nap(op);
    }
    return TUTTI_RUN_BLOCKED;
}

void oneccl_overlay(struct tutti_backend *backend, uint32_t peer, struct tutti_board *board)
{
    const struct oneccl_backend *inst = oneccl_of(backend);
    if (!inst->boards) return;
    const struct oneccl_board *theirs = &inst->boards->of[peer];
    const uint64_t done = atomic_load_explicit(&theirs->done_seq, memory_order_relaxed);
    for (uint32_t i = 0; i < 2; i++) {
        const struct oneccl_post *at = &theirs->posts[i];
        const uint64_t number = atomic_load_explicit(&at->number, memory_order_acquire);
        const uint64_t seq = atomic_load_explicit(&at->seq, memory_order_relaxed);
        if (number == 0 || seq <= board->seq) continue;
        board->seq = seq;
        board->signature = atomic_load_explicit(&at->signature, memory_order_relaxed);
        board->step = board->n_steps = 0;
        board->peer = -1;
        tutti_call_unpack(atomic_load_explicit(&at->call, memory_order_relaxed),
                          atomic_load_explicit(&at->count, memory_order_relaxed), board);
    }
    if (done > board->completed) board->completed = done;
}
