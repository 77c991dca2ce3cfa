/* SPDX-License-Identifier: BSD-3-Clause */
/* An operation from its begin to its end: its place in the order, the prologue that all methods share (room in the
 * slots, the post, what the others' posts say), the method that is chosen by it, and the runner that the engine drives.
 */
#include "backend/flat/flat.h"

#include <sched.h>

/* Looks at a word in one wait: on the caller's thread past the engine at most and at least, between turns that it gives
 * up there, and inside the engine, which has others to look after. */
#define SPINS_HURRY 1024
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

/* ---- the prologue ---- */

static uint64_t own_facts(const struct flat_op *op)
{
    struct flat_post *post = flat_post_of(op, op->inst->me);
    uint64_t facts = flat_facts(op, &post->send, &post->recv);
    return facts | flat_attach_fact(op, facts);
}

/* The number in a post. For all_reduce: whether a round is staged, perhaps in vain; for all_to_all: the rounds of its
 * longest block; for a v form with a root: the root's rounds, and a leaf's bytes; for a scan, since others may make a
 * rank's result: by what it divides. */
static uint64_t told_of(const struct flat_op *op)
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

/* Of a v form with a root, at the root: whether the peer's bytes are those that the root has for it. */
static bool agrees(const struct flat_op *op, uint32_t peer)
{
    uint64_t facts = atomic_load_explicit(&flat_post_of(op, peer)->facts, memory_order_relaxed);
    size_t at, mine = flat_block(op, peer, &at), told = facts >> FLAT_NUMBER_SHIFT;
    if (mine == told) return true;
    uint32_t me = op->inst->me;
    return op->call.info.kind == TUTTI_GATHER ? flat_disagree(peer, told, me, mine)
                                              : flat_disagree(me, mine, peer, told);
}

/* Where blocks are moved straight from or to the root's buffer, leaves see to that themselves. */
static bool compares(const struct flat_op *op)
{
    return op->call.bind.v && op->method->who == FLAT_ROOT && flat_is_root(op);
}

/* What others' facts may take from the own ones so that costs are others: pages are small, a buffer is not mapped. */
static const uint64_t takings[] = {
    0, FLAT_HUGE, FLAT_SEND_MAPPED, FLAT_RECV_MAPPED, FLAT_HUGE | FLAT_SEND_MAPPED, FLAT_HUGE | FLAT_RECV_MAPPED};

/* The method that the facts allow. Others' facts can only take ways away, and make the others cost something else. */
static struct flat_choice choose(const struct flat_op *op)
{
    struct flat_choice choice = {.plain = op->method, .bytes = op->bytes, .facts = op->facts};
    choice.settled = op->method->who == FLAT_UNSETTLED;
    choice.method = flat_choose_by_facts(op->inst, &op->call, op->method, op->facts);
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(takings) && choice.settled; i++)
        choice.settled = flat_choose_by_facts(op->inst, &op->call, op->method, op->facts & ~takings[i]) == op->method;
    return choice;
}

/* Programs repeat their calls, so the last choices are kept: before and after posts were heard. */
static struct flat_choice by_facts(struct flat_op *op, bool heard)
{
    struct flat_choice *known = &op->inst->chosen[op->call.info.kind][heard];
    if (op->forced || op->facts == 0) return (struct flat_choice){.method = op->method, .settled = true};
    if (!flat_is_plain(&op->call)) return choose(op);
    if (known->plain != op->method || known->bytes != op->bytes || known->facts != op->facts) *known = choose(op);
    return *known;
}

static enum flat_who whom_to_ask(const struct flat_op *op)
{
    return flat_is_eager(op->inst, &op->call) ? FLAT_NOBODY : op->method->who;
}

/* By the way that it goes if all others' posts are like its own: whether they are needed at all, makes the output ready
 * for others, and tells whether to stage the first round. Who could go another way does not stage in vain; where the
 * root decides, it alone knows. */
static bool prepare(struct flat_op *op)
{
    const struct flat_choice choice = by_facts(op, false);
    const struct flat_method *likely = choice.method;
    bool knows = op->method->who != FLAT_ROOT || op->call.info.root == (int32_t)op->inst->me;
    if (op->who == FLAT_UNSETTLED) op->who = choice.settled ? FLAT_NOBODY : FLAT_ALL;
    if (likely->needs & FLAT_ATTACHABLE) flat_attach_touch(op);
    return op->method->first && knows && likely == op->method;
}

static void take_way(struct flat_op *op, const struct flat_method *way)
{
    if (way == op->method) return;
    op->method = way;
    op->n_rounds = 0; /* of the method that was not taken */
    if (way->start) way->start(op);
}

/* What a post says that is there. */
static void hear(struct flat_op *op, uint32_t peer)
{
    uint64_t facts = atomic_load_explicit(&flat_post_of(op, peer)->facts, memory_order_relaxed);
    op->facts &= facts;
    if (facts >> FLAT_NUMBER_SHIFT > op->told) op->told = facts >> FLAT_NUMBER_SHIFT;
}

static enum tutti_advance prologue(struct flat_op *op)
{
    const struct flat_instance *inst = op->inst;
    FLAT_BEGIN(op->begin_at)
    FLAT_WAIT(flat_room(op));
    op->who = whom_to_ask(op);
    op->facts = op->who == FLAT_NOBODY ? 0 : own_facts(op);
    flat_rounds_place(op, 0);
    if (op->method->start) op->method->start(op);
    if (prepare(op)) {
        FLAT_WAIT(flat_round_room(op, 0));
        op->method->first(op);
        op->staged = 1;
    }
    op->told = told_of(op);
    flat_post_write(op, op->facts | op->told << FLAT_NUMBER_SHIFT);
    if (op->who == FLAT_ALL) {
        flat_posts_ahead(op);
        for (op->peer = 0; op->peer < inst->n; op->peer++) {
            if (op->peer == inst->me) continue;
            FLAT_WAIT(flat_posted(op, op->peer));
            hear(op, op->peer);
        }
        /* Who has begun this operation is done with those before. */
        flat_read_by_all(op->inst, inst->parts);
        if (op->number - 1 > inst->synced) op->inst->synced = op->number - 1;
    } else if (op->who == FLAT_ROOT && op->call.info.root != (int32_t)inst->me) {
        FLAT_WAIT(flat_posted(op, (uint32_t)op->call.info.root));
        op->facts = UINT64_MAX >> (64 - FLAT_NUMBER_SHIFT);
        op->told = 0;
        hear(op, (uint32_t)op->call.info.root);
    }
    if (op->who != FLAT_NOBODY) take_way(op, by_facts(op, true).method);
    for (op->peer = 1; compares(op) && op->peer < inst->n; op->peer++) {
        FLAT_WAIT(flat_posted(op, flat_after(inst, op->peer)));
        if (!agrees(op, flat_after(inst, op->peer))) return TUTTI_RUN_FAILED;
    }
    FLAT_END;
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
           ((uint64_t)(op->begin_at + op->at + op->meet_at) << 48) + op->offset;
}

static enum tutti_advance op_advance(struct tutti_runner *runner)
{
    struct flat_op *op = op_of(runner);
    enum tutti_advance run = TUTTI_RUN_DONE;
    uint64_t place = place_of(op);

    if (!op->begun) {
        run = prologue(op);
        op->begun = run == TUTTI_RUN_DONE;
    }
    if (op->begun) run = op->method->advance(op);
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

/* Peers may be reading its buffers, or writing to them. The root of a gather reads a leaf's mapped block where it lies,
 * by the method that needs nothing. */
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
    op->call.method = flat_lasting(call->method);
    TUTTI_TRY(flat_blocks_copy(op));
    op->method = flat_method_of(inst, call, op->bytes);
    op->forced = flat_is_named(inst, call, op->method->name);
    op->number = ++inst->number;
    op->word = flat_word(inst, call->info.signature, op->number);
    op->begun = inst->n == 1; /* nobody reads a post */
    op->symmetric = !kind->rooted && !flat_is_scan(call->info.kind);
    if (!op->symmetric) flat_remember(inst, call->info.signature);
    op->spins = call->within ? 1 : inst->spins; /* the engine has other instances, and messages, to look at */
    op->send = call->bind.input;
    op->recv = call->bind.output;
    op->past = flat_goes_past(op);
    return TUTTI_OK;
}

void flat_resume(struct tutti_backend *backend, struct tutti_backend_op *begun)
{
    struct flat_instance *inst = (struct flat_instance *)backend;
    struct flat_op *op = (struct flat_op *)(void *)begun;
    inst->number--;
    (void)flat_begin(backend, begun); /* no tables: it is plain */
    op->method = flat_method_named(op->call.info.kind, "line");
    op->begun = true;
    op->n_put = 1;
}

/* How long a wait may last adapts. Where turns given up bring what spinning did not, the peer shares this CPU. Where
 * they bring nothing either, as between sessions of some schedulers, sleep comes soon. */
static void learn(struct flat_instance *inst, uint32_t turns, bool done)
{
    if (turns > 0 && !inst->crowded)
        inst->spins = inst->spins > 2 * SPINS_LEAST ? inst->spins / 2 : SPINS_LEAST;
    else if (!inst->crowded && inst->spins < SPINS_HURRY)
        inst->spins++;
    if (!done)
        inst->turns = inst->turns > 4 * TURNS_LEAST ? inst->turns / 4 : TURNS_LEAST;
    else if (turns > 0)
        inst->turns = 2 * turns > inst->turns ? 2 * turns : inst->turns;
    if (inst->turns > TURNS || inst->number % TURNS_AGAIN == 0) inst->turns = TURNS;
}

/* Somebody has failed: who is gone soon may not be read or written to for long. */
static bool is_alarmed(const struct flat_instance *inst)
{
    return tutti_control_alarmed(inst->control);
}

enum tutti_advance flat_hurry(struct tutti_backend_op *begun, const struct tutti_team *team)
{
    struct flat_op *op = (struct flat_op *)(void *)begun;
    uint32_t turns = 0;
    uint64_t until_ns = 0;
    enum tutti_advance run;

    for (;;) {
        run = op_advance(&op->runner);
        if (run == TUTTI_RUN_DONE || run == TUTTI_RUN_MISMATCH || run == TUTTI_RUN_FAILED) break;
        if (tutti_team_failed(team) || is_alarmed(op->inst)) break; /* the engine tells */
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
    if (!area) return; /* alone: nobody waits for it */
    uint64_t done = atomic_load_explicit(&area->done_seq, memory_order_relaxed);

    for (uint32_t i = 0; i < FLAT_DEPTH; i++) {
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
