/* SPDX-License-Identifier: BSD-3-Clause */
/* An operation from its begin to its end: its place in the order, the choice of the method, the prologue that all
 * methods share, and the runner that the engine drives. */
#include "backend/flat/flat.h"

#include <sched.h>

/* Loads of a word in one wait: on the caller's thread at most and at least, between turns that it gives up there, and
 * inside the engine, which has others to look after. */
#define SPINS_MOST 1024
#define SPINS_LEAST 32
#define SPINS_TURN 16
#define SPINS_ENGINE 64
/* Turns given up before the engine puts the thread to sleep: one costs less than a microsecond and harms nobody, while
 * to be put to sleep and woken costs many, on both sides. */
#define TURNS 1000
#define TURNS_NS (2 * TUTTI_NS_PER_MS) /* of one call in all, at most */
#define TURNS_LEAST 16
#define TURNS_AGAIN 64 /* operations, after which they are tried again */

static struct flat_op *op_of(struct tutti_runner *runner)
{
    return (struct flat_op *)(void *)runner;
}

static struct flat_area *own_area(const struct flat_instance *inst)
{
    return inst->areas[inst->me];
}

/* ---- the prologue: room in the slots, the first round, the post, the others' posts ---- */

/* The number in a post. all_reduce: rounds that are staged, perhaps in vain. all_to_all: the rounds of its longest
 * block. A v form with a root: the root's rounds, and a leaf's bytes. A scan: its divisor, for others may make its
 * result. */
static uint64_t post_number(const struct flat_op *op)
{
    const struct tutti_bind *bind = &op->call.bind;
    switch (op->call.info.kind) {
    case TUTTI_ALL_REDUCE:
        return op->staged;
    case TUTTI_ALL_TO_ALL:
        return op->n_rounds;
    case TUTTI_GATHER:
    case TUTTI_SCATTER:
        return !bind->v ? 0 : flat_is_root(op) ? op->n_rounds : op->bytes;
    case TUTTI_SCAN:
    case TUTTI_EXSCAN:
        return bind->divide ? bind->divisor : 0;
    default:
        return 0;
    }
}

/* At the root of a v form: whether the peer has, or expects, as many bytes as the root expects or has. */
static bool agrees(const struct flat_op *op, uint32_t peer)
{
    uint64_t facts = atomic_load_explicit(&flat_post_of(op, peer)->facts, memory_order_relaxed);
    size_t at, mine = flat_block(op, peer, &at), theirs = facts >> FLAT_NUMBER_SHIFT;
    if (mine == theirs) return true;
    uint32_t me = op->inst->me;
    return op->call.info.kind == TUTTI_GATHER ? flat_disagree(peer, theirs, me, mine)
                                              : flat_disagree(me, mine, peer, theirs);
}

/* Where blocks go straight from or to the root's buffer, leaves compare themselves. */
static bool compares(const struct flat_op *op)
{
    return op->call.bind.v && op->method->reads == FLAT_ROOT && flat_is_root(op);
}

static bool may_stage_first(const struct flat_op *op)
{
    const bool knows = op->method->reads != FLAT_ROOT || flat_is_root(op);
    return op->method->walk->first && knows && op->likely == op->method;
}

/* Notes what a post says. */
static void read_post(struct flat_op *op, uint32_t peer)
{
    uint64_t facts = atomic_load_explicit(&flat_post_of(op, peer)->facts, memory_order_relaxed);
    op->facts &= facts;
    if (facts >> FLAT_NUMBER_SHIFT > op->most) op->most = facts >> FLAT_NUMBER_SHIFT;
}

static bool read_all_posts(struct flat_op *op)
{
    const struct flat_instance *inst = op->inst;
    for (; op->peer < inst->n; op->peer++) {
        if (op->peer == inst->me) continue;
        if (!flat_posted(op, op->peer)) return false;
        read_post(op, op->peer);
    }
    /* A rank that has begun this operation is done with those before. */
    flat_read_by_all(op->inst, inst->parts);
    if (op->number - 1 > inst->synced) op->inst->synced = op->number - 1;
    return true;
}

static bool read_posts(struct flat_op *op)
{
    if (op->reads == FLAT_ALL) return read_all_posts(op);
    if (op->reads != FLAT_ROOT || flat_is_root(op)) return true;
    if (!flat_posted(op, flat_root(op))) return false;
    op->facts = UINT64_MAX >> (64 - FLAT_NUMBER_SHIFT);
    op->most = 0;
    read_post(op, flat_root(op));
    return true;
}

/* The method by the posts. It was chosen by the own facts already; only where posts differ it is chosen anew. */
static void take_method(struct flat_op *op)
{
    const struct flat_method *method = op->likely;
    if (op->facts != op->chosen_by)
        method = flat_choose(op->inst, &op->inst->by_posts, &op->call, op->bytes, op->facts).method;
    if (op->reads == FLAT_NONE || op->forced || method == op->method) return;
    op->method = method;
    op->n_rounds = 0; /* those of the method that was not taken */
    if (method->walk->start) method->walk->start(op);
}

enum prologue { PROLOGUE_ROOM, PROLOGUE_FIRST, PROLOGUE_POST, PROLOGUE_READ, PROLOGUE_COMPARE };

static enum tutti_advance prologue(struct flat_op *op)
{
    const struct flat_instance *inst = op->inst;
    switch ((enum prologue)op->prologue) {
    case PROLOGUE_ROOM:
        if (!flat_room(op)) return TUTTI_RUN_BLOCKED;
        flat_rounds_place(op, 0);
        if (op->method->walk->start) op->method->walk->start(op);
        if (op->likely->needs & FLAT_ATTACHABLE) flat_attach_touch(op);
        op->prologue = may_stage_first(op) ? PROLOGUE_FIRST : PROLOGUE_POST;
        return prologue(op);
    case PROLOGUE_FIRST:
        if (!flat_round_room(op, 0)) return TUTTI_RUN_BLOCKED;
        op->method->walk->first(op);
        op->staged = 1;
        __attribute__((fallthrough));
    case PROLOGUE_POST:
        op->most = post_number(op);
        flat_post_write(op, op->facts | op->most << FLAT_NUMBER_SHIFT);
        if (op->reads == FLAT_ALL) flat_posts_ahead(op);
        op->peer = 0;
        op->prologue = PROLOGUE_READ;
        __attribute__((fallthrough));
    case PROLOGUE_READ:
        if (!read_posts(op)) return TUTTI_RUN_BLOCKED;
        take_method(op);
        op->peer = 1;
        op->prologue = PROLOGUE_COMPARE;
        __attribute__((fallthrough));
    case PROLOGUE_COMPARE:
        for (; compares(op) && op->peer < inst->n; op->peer++) {
            if (!flat_posted(op, flat_after(inst, op->peer))) return TUTTI_RUN_BLOCKED;
            if (!agrees(op, flat_after(inst, op->peer))) return TUTTI_RUN_FAILED;
        }
    }
    op->peer = 0;
    return TUTTI_RUN_DONE;
}

/* ---- the runner ---- */

static void finish(struct flat_op *op)
{
    struct flat_instance *inst = op->inst;
    struct flat_area *area = own_area(inst);

    tutti_free(op->tables);
    op->tables = NULL;
    if (!area) return; /* alone */
    if (op->symmetric && op->number - 1 > inst->synced) inst->synced = op->number - 1;
    if (op->symmetric) flat_read_by_all(inst, inst->parts);
    if (op->n_rounds > 0) inst->parts = flat_number(op, op->n_rounds);
    atomic_store_explicit(&area->done_seq, op->call.seq, memory_order_relaxed);
    flat_publish(op, &area->done, op->number);
}

/* The awaited peer has posted another call under this number. */
static bool differs(const struct flat_op *op)
{
    uint64_t word = atomic_load_explicit(&flat_post_of(op, op->awaited)->word, memory_order_acquire);
    return (uint32_t)word == (uint32_t)op->word && word != op->word;
}

/* What changes when it gets on. */
static uint64_t place_of(const struct flat_op *op)
{
    return op->round * 4096 + op->peer + ((uint64_t)op->level << 32) + ((uint64_t)op->meet_digit << 40) +
           ((uint64_t)(8 * op->prologue + op->at + 4 * op->meet_level + op->meets) << 48) + op->offset;
}

/* Whether no peer has withdrawn the buffers that this rank read. False: the engine will hear of the failure. */
static bool is_intact(struct flat_op *op)
{
    const struct flat_instance *inst = op->inst;
    const enum tutti_kind kind = op->call.info.kind;
    const bool rooted = tutti_kind_info(kind)->rooted, leaf = rooted && !flat_is_root(op);
    if (rooted && !leaf && kind != TUTTI_GATHER && kind != TUTTI_REDUCE) return true;
    for (uint32_t r = 0; r < inst->n; r++) {
        if (r == inst->me || (leaf && r != flat_root(op)) || flat_is_intact(op, r)) continue;
        op->awaited = r;
        return false;
    }
    return true;
}

/* Buffers of peers may be read, or written to, where they lie. The root of a gather reads a leaf's mapped block by the
 * method that needs nothing. */
static bool reaches_buffers(const struct flat_op *op)
{
    return op->method->needs != 0 || (op->call.info.kind == TUTTI_GATHER && op->reads != FLAT_NONE);
}

static enum tutti_advance op_run(struct flat_op *op)
{
    enum tutti_advance run = TUTTI_RUN_DONE;
    if (!op->begun) {
        run = prologue(op);
        op->begun = run == TUTTI_RUN_DONE;
    }
    if (op->begun && !op->over) {
        run = op->method->walk->advance(op);
        op->over = run == TUTTI_RUN_DONE;
    }
    if (op->over && reaches_buffers(op) && !is_intact(op)) return TUTTI_RUN_BLOCKED;
    if (run == TUTTI_RUN_BLOCKED && op->begun && op->method->needs & FLAT_ATTACHABLE) flat_serve(op);
    return run;
}

static enum tutti_advance op_advance(struct tutti_runner *runner)
{
    struct flat_op *op = op_of(runner);
    const uint64_t place = place_of(op);
    const enum tutti_advance run = op_run(op);
    if (run == TUTTI_RUN_DONE) finish(op);
    if (run != TUTTI_RUN_BLOCKED) return run;
    if (op->mismatch || differs(op)) return TUTTI_RUN_MISMATCH;
    return place_of(op) != place ? TUTTI_RUN_MOVED : TUTTI_RUN_BLOCKED;
}

static uint32_t op_awaits(const struct tutti_runner *runner)
{
    return ((const struct flat_op *)(const void *)runner)->awaited;
}

static void op_called(const struct tutti_runner *runner, uint64_t *call, uint64_t *count)
{
    const struct flat_op *op = (const struct flat_op *)(const void *)runner;
    const struct flat_post *post = flat_post_of(op, op->awaited);
    *call = atomic_load_explicit(&post->call, memory_order_relaxed);
    *count = atomic_load_explicit(&post->count, memory_order_relaxed);
}

/* Peers may be reading its buffers, or writing to them. */
static bool is_exposed(const struct flat_op *op)
{
    uint64_t reachable = FLAT_SEND_MAPPED | FLAT_RECV_MAPPED | FLAT_ATTACHABLE;
    if (op->inst->n == 1) return false;
    const struct flat_post *post = flat_post_of(op, op->inst->me);
    if (atomic_load(&post->word) != op->word) return false;
    if (op->begun && op->method->needs != 0) return true;
    if (op->begun) reachable = op->call.info.kind == TUTTI_GATHER && !flat_is_root(op) ? FLAT_SEND_MAPPED : 0;
    return (atomic_load(&post->facts) & reachable) != 0;
}

static void op_cancel(struct tutti_runner *runner)
{
    struct flat_op *op = op_of(runner);
    if (is_exposed(op))
        flat_withdraw(op);
    else
        flat_leave(op->inst);
    tutti_free(op->tables);
    op->tables = NULL;
}

static const struct tutti_runner_ops runner_ops = {
    .advance = op_advance,
    .awaits = op_awaits,
    .called = op_called,
    .sleep_begin = flat_sleep_begin,
    .sleep_end = flat_sleep_end,
    .cancel = op_cancel,
};

/* ---- the back end's calls ---- */

/* The choice, once for an operation: the method by the agreed arguments, the likely one by the own buffers, and the
 * posts that are to be read. */
static void choose(struct flat_op *op)
{
    struct flat_instance *inst = op->inst;
    const enum tutti_kind kind = op->call.info.kind;
    if (flat_is_plain(&op->call) && op->bytes < inst->line_below[kind]) {
        op->method = op->likely = flat_method_named(kind, "line"); /* the first of its kind */
        return;
    }
    op->facts = inst->n > 1 ? flat_facts(op) : 0;
    const struct flat_choice choice = flat_choose(inst, &inst->by_own, &op->call, op->bytes, op->facts);
    op->method = choice.plain;
    op->likely = choice.method;
    op->forced = flat_is_wanted(inst, &op->call, op->method->name);
    op->reads = op->method->reads == FLAT_ALL_IF_OPEN ? (choice.certain ? FLAT_NONE : FLAT_ALL) : op->method->reads;
    if (flat_is_eager(inst, &op->call)) op->reads = FLAT_NONE;
    if (op->method->reads == FLAT_NONE || flat_is_eager(inst, &op->call)) op->facts = 0;
    op->chosen_by = op->facts;
}

enum tutti_status flat_begin(struct tutti_backend *backend, struct tutti_backend_op *begun)
{
    struct flat_instance *inst = (struct flat_instance *)backend;
    struct flat_op *op = (struct flat_op *)(void *)begun;
    const struct tutti_backend_call *call = &op->call;
    const struct tutti_kind_info *kind = tutti_kind_info(call->info.kind);

    memset((char *)op + offsetof(struct flat_op, inst), 0, sizeof(*op) - offsetof(struct flat_op, inst));
    op->runner.ops = &runner_ops;
    op->inst = inst;
    op->element = tutti_dtype_bytes(call->info.dtype);
    op->bytes = call->bind.count * op->element;
    op->send = call->bind.input;
    op->recv = call->bind.output;
    op->call.method = flat_method_name(call->method);
    TUTTI_TRY(flat_blocks_copy(op));
    choose(op);
    op->number = ++inst->number;
    op->word = flat_word(inst, call->info.signature, op->number);
    op->begun = inst->n == 1; /* nobody reads a post */
    op->symmetric = !kind->rooted && !flat_is_scan(call->info.kind);
    if (!op->symmetric) flat_remember(inst, call->info.signature);
    op->spins = call->within ? 1 : inst->spins; /* the engine has other instances, and messages, to look at */
    op->stride = 1;
    op->past = flat_goes_past(op);
    return TUTTI_OK;
}

void flat_resume(struct tutti_backend *backend, struct tutti_backend_op *begun)
{
    struct flat_instance *inst = (struct flat_instance *)backend;
    struct flat_op *op = (struct flat_op *)(void *)begun;
    inst->number--;
    (void)flat_begin(backend, begun); /* no tables: it is plain */
    op->method = op->likely = flat_method_named(op->call.info.kind, "line");
    op->reads = FLAT_NONE;
    op->begun = true;
    op->n_put = 1;
}

/* How long a wait may last adapts. Where turns given up bring what spinning did not, the peer shares this CPU. Where
 * they bring nothing either, as between sessions of some schedulers, sleep comes soon. */
static void learn(struct flat_instance *inst, uint32_t turns, bool done)
{
    if (turns > 0 && !inst->crowded)
        inst->spins = inst->spins > 2 * SPINS_LEAST ? inst->spins / 2 : SPINS_LEAST;
    else if (!inst->crowded && inst->spins < SPINS_MOST)
        inst->spins++;
    if (!done)
        inst->turns = inst->turns > 4 * TURNS_LEAST ? inst->turns / 4 : TURNS_LEAST;
    else if (turns > 0)
        inst->turns = 2 * turns > inst->turns ? 2 * turns : inst->turns;
    if (inst->turns > TURNS || inst->number % TURNS_AGAIN == 0) inst->turns = TURNS;
}

enum tutti_advance flat_run_inline(struct tutti_backend_op *begun, const struct tutti_team *team)
{
    struct flat_op *op = (struct flat_op *)(void *)begun;
    uint32_t turns = 0;
    uint64_t until_ns = 0;
    enum tutti_advance run;

    for (;;) {
        run = op_advance(&op->runner);
        if (run == TUTTI_RUN_DONE || run == TUTTI_RUN_MISMATCH || run == TUTTI_RUN_FAILED) break;
        if (tutti_team_failed(team) || tutti_control_alarmed(op->inst->control)) break; /* the engine reports it */
        if (run == TUTTI_RUN_MOVED) continue;
        /* A turn lasts as long as others like: the engine is to look after deaths and deadlines soon. */
        if (turns == op->inst->turns || (turns > 0 && tutti_now_ns() >= until_ns)) break;
        if (turns++ == 0) until_ns = tutti_deadline_ns(TURNS_NS);
        sched_yield();
        op->spins = SPINS_TURN;
    }
    learn(op->inst, turns, run == TUTTI_RUN_DONE);
    op->spins = op->inst->crowded ? 1 : SPINS_ENGINE;
    return run == TUTTI_RUN_MOVED ? TUTTI_RUN_BLOCKED : run;
}

void flat_overlay(struct tutti_backend *backend, uint32_t peer, struct tutti_board *board)
{
    const struct flat_instance *inst = (const struct flat_instance *)backend;
    const struct flat_area *area = inst->areas[peer];
    if (!area) return; /* the only rank: nobody waits for it */
    uint64_t done = atomic_load_explicit(&area->done_seq, memory_order_relaxed);

    for (uint32_t i = 0; i < inst->depth; i++) {
        const struct flat_post *post = &area->posts[i];
        uint64_t word = atomic_load_explicit(&post->word, memory_order_acquire);
        uint64_t seq = atomic_load_explicit(&post->seq, memory_order_relaxed);
        if (word == 0 || seq <= board->seq) continue;
        board->seq = seq;
        board->signature = atomic_load_explicit(&area->signatures[i], memory_order_relaxed);
        board->step = board->n_steps = 0;
        board->peer = -1;
        tutti_call_unpack(atomic_load_explicit(&post->call, memory_order_relaxed),
                          atomic_load_explicit(&post->count, memory_order_relaxed), board);
    }
    if (done > board->completed) board->completed = done;
}
