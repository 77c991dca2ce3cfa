/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting, publishing and posts. A rank waits for a word in a peer's area: it spins a little, then the engine lets it
 * sleep on that peer's event. Publishing is a store; only when the publisher's own area says that somebody sleeps does
 * it make a system call. A rank that goes to sleep counts itself, then fences all processes (membarrier), so that
 * publishers need no fence. Without membarrier, or where all ranks sleep all the time, publishers fence. */
#include "backend/flat/flat.h"
#include "base/bell.h"

#define CALM_NS (300 * TUTTI_NS_PER_MS) /* a rank that is stopped does not keep others for longer */

/* ---- waiting ---- */

static bool reached(const _Atomic uint64_t *word, uint64_t value, bool equal)
{
    uint64_t now = atomic_load_explicit(word, memory_order_acquire);
    return equal ? now == value : now >= value;
}

static bool spin(struct flat_op *op, uint32_t peer, const _Atomic uint64_t *word, uint64_t value, bool equal)
{
    for (uint32_t i = 0; i < op->spins; i++) {
        if (reached(word, value, equal)) return true;
        tutti_cpu_relax();
    }
    op->awaited = peer;
    op->until_word = word, op->until = value, op->until_equal = equal;
    return false;
}

bool flat_spin(struct flat_op *op, uint32_t peer, const _Atomic uint64_t *word, uint64_t value)
{
    return spin(op, peer, word, value, false);
}

bool flat_spin_word(struct flat_op *op, uint32_t peer, const _Atomic uint64_t *word)
{
    if (spin(op, peer, word, op->word, true)) return true;
    uint64_t now = atomic_load_explicit(word, memory_order_acquire);
    if ((uint32_t)now == (uint32_t)op->word && now != op->word) op->mismatch = true;
    return false;
}

/* A line that is read before its owner has written it is transferred twice. So two ranks, which wait for one line only,
 * do not prefetch it. */
#define AHEAD_RANKS 3

void flat_posts_ahead(const struct flat_op *op)
{
    const struct flat_instance *inst = op->inst;
    for (uint32_t i = 1; inst->n >= AHEAD_RANKS && i < inst->n; i++)
        __builtin_prefetch(flat_post_of(op, flat_after(inst, i)));
}

void flat_flags_ahead(const struct flat_op *op, enum flat_flag_name flag)
{
    const struct flat_instance *inst = op->inst;
    for (uint32_t i = 1; inst->n >= AHEAD_RANKS && i < inst->n; i++)
        __builtin_prefetch((const void *)flat_flag(op, flat_after(inst, i), flag));
}

/* The least of the peers' words, each of which is to reach `value`; 0: one has not. */
static uint64_t least_of(struct flat_op *op, uint64_t value,
                         const _Atomic uint64_t *(*word_of)(const struct flat_area *))
{
    const struct flat_instance *inst = op->inst;
    uint64_t least = UINT64_MAX;
    for (uint32_t r = 0; r < inst->n; r++) {
        if (r == inst->me) continue;
        const _Atomic uint64_t *word = word_of(inst->areas[r]);
        if (!flat_reached(op, r, word, value)) return 0;
        uint64_t now = atomic_load_explicit(word, memory_order_relaxed);
        if (now < least) least = now;
    }
    return least == UINT64_MAX ? value : least; /* alone */
}

static const _Atomic uint64_t *done_of(const struct flat_area *area)
{
    return &area->done;
}

static const _Atomic uint64_t *read_of(const struct flat_area *area)
{
    return &area->flags[FLAT_READ].n;
}

bool flat_room(struct flat_op *op)
{
    struct flat_instance *inst = op->inst;
    if (inst->synced + inst->depth >= op->number) return true;
    uint64_t least = least_of(op, op->number - inst->depth, done_of);
    if (least == 0) return false;
    if (least > inst->synced) inst->synced = least;
    return true;
}

bool flat_left(struct flat_op *op)
{
    return least_of(op, op->number, done_of) > 0;
}

bool flat_round_room(struct flat_op *op, uint64_t round)
{
    struct flat_instance *inst = op->inst;
    uint64_t end = flat_number(op, round + 1);
    if (inst->read_by_all + FLAT_ALL_PARTS >= end) return true;
    uint64_t least = least_of(op, end - FLAT_ALL_PARTS, read_of);
    if (least == 0) return false;
    flat_read_by_all(inst, least);
    return true;
}

/* ---- publishing ---- */

/* Sleepers are woken as a tree: the publisher pays for two, and each of them for two more (flat_sleep_end). */
#define WAKES 2

void flat_wake(struct flat_area *area)
{
    atomic_fetch_add(&area->event, 1);
    tutti_futex_wake(&area->event, WAKES);
}

void flat_publish(struct flat_op *op, _Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
    flat_notify(op->inst);
}

void flat_leave(struct flat_instance *inst)
{
    struct flat_area *area = inst->areas[inst->me];
    if (!area) return; /* alone */
    atomic_store_explicit(&area->gone, 1, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&area->sleepers, memory_order_relaxed)) flat_wake(area);
}

/* ---- lines: data follow the operation's word, the first of them in the same cache line, so that a hand-over costs one
 * transfer of a line. The word is written last, and data are read after it, so stores of a whole line need not be
 * atomic. ---- */

static struct flat_slot *slot_of(const struct flat_op *op, uint32_t peer, uint32_t level)
{
    return flat_line_slot(op->inst, peer, level, op->number);
}

void flat_lines_put(struct flat_op *op, uint32_t level, const unsigned char *data, size_t bytes)
{
    struct flat_slot *slot = slot_of(op, op->inst->me, level);
    if (bytes > 0) memcpy(slot->data, data, bytes);
    flat_publish(op, &slot->word, op->word);
}

bool flat_lines_there(struct flat_op *op, uint32_t peer, uint32_t level)
{
    const _Atomic uint64_t *word = &slot_of(op, peer, level)->word;
    return atomic_load_explicit(word, memory_order_acquire) == op->word || flat_spin_word(op, peer, word);
}

void flat_line_ahead(const struct flat_op *op, uint32_t peer, uint32_t level)
{
    __builtin_prefetch(slot_of(op, peer, level));
}

void flat_lines_part(const struct flat_op *op, uint32_t peer, uint32_t level, size_t at, size_t bytes,
                     unsigned char *out)
{
    if (bytes > 0) memcpy(out, slot_of(op, peer, level)->data + at, bytes);
}

/* ---- failure ---- */

static bool may_touch(const struct flat_op *op, uint32_t peer)
{
    const struct flat_instance *inst = op->inst;
    struct tutti_control *control = inst->control;
    if (peer == inst->me || atomic_load(&flat_post_of(op, peer)->word) != op->word) return false;
    return atomic_load(&inst->areas[peer]->done) < op->number && !atomic_load(&inst->areas[peer]->gone) &&
           !tutti_life_gone(control->ops->life(control, inst->members[peer]));
}

/* A peer that has not begun this operation sees the post withdrawn. A peer that has begun it will see the failure. Each
 * writes before it reads, so one of them notices. */
void flat_withdraw(struct flat_op *op)
{
    struct flat_instance *inst = op->inst;
    uint64_t deadline = tutti_deadline_ns(CALM_NS);
    atomic_store(&flat_post_of(op, inst->me)->word, 0);
    flat_leave(inst);
    if (!inst->fences) tutti_fence_all();
    for (uint32_t r = 0; r < inst->n; r++)
        while (may_touch(op, r) && tutti_now_ns() < deadline) tutti_sleep_ns(CALM_NS / 10000);
}

void flat_stage(struct flat_op *op)
{
    op->staged++;
    flat_publish(op, &flat_post_of(op, op->inst->me)->in, op->staged);
}

void flat_has_read(struct flat_op *op, uint64_t n)
{
    flat_raise(op, FLAT_READ, n > 0 ? flat_number(op, n) : op->inst->parts);
}

/* ---- sleeping ---- */

bool flat_sleep_begin(struct tutti_runner *runner, _Atomic uint32_t **word, uint32_t *expected)
{
    struct flat_op *op = (struct flat_op *)(void *)runner;
    struct flat_area *area = op->inst->areas[op->awaited];

    if (!op->until_word) return false;
    *word = &area->event;
    *expected = atomic_load(&area->event);
    atomic_fetch_add(&area->sleepers, 1);
    op->asleep = true;
    op->slept_on = *expected;
    if (!op->inst->fences) tutti_fence_all();
    if (op->method->needs & FLAT_ATTACHABLE && flat_is_asked(op)) return false; /* perhaps all wait for this rank */
    return !reached(op->until_word, op->until, op->until_equal);
}

void flat_sleep_end(struct tutti_runner *runner)
{
    struct flat_op *op = (struct flat_op *)(void *)runner;
    if (!op->asleep) return;
    op->asleep = false;
    struct flat_area *area = op->inst->areas[op->awaited];
    bool woken = atomic_load(&area->event) != op->slept_on;
    if (atomic_fetch_sub(&area->sleepers, 1) > 1 && woken) tutti_futex_wake(&area->event, WAKES);
}

/* ---- the barrier inside operations: a butterfly over the factors of n, one flag a level; after level l each rank
 * knows of all ranks that differ from it in the first l digits only ---- */

enum tutti_advance flat_meet(struct flat_op *op)
{
    struct flat_instance *inst = op->inst;
    if (!op->meets) {
        op->meets = true;
        op->meet_stride = 1;
        inst->barriers++;
        flat_raise(op, FLAT_MET, inst->barriers);
    }
    while (op->meet_level < inst->n_factors) {
        for (; op->meet_digit < flat_radix(inst, op->meet_level); op->meet_digit++) {
            const uint32_t peer = flat_digit_peer(inst, op->meet_level, op->meet_stride, op->meet_digit);
            const _Atomic uint64_t *flag = flat_flag(op, peer, FLAT_MET + op->meet_level);
            if (peer != inst->me && !flat_reached(op, peer, flag, inst->barriers)) return TUTTI_RUN_BLOCKED;
        }
        op->meet_stride *= flat_radix(inst, op->meet_level);
        op->meet_digit = 0;
        if (++op->meet_level < inst->n_factors) flat_raise(op, FLAT_MET + op->meet_level, inst->barriers);
    }
    return TUTTI_RUN_DONE;
}

/* ---- posts: what a rank calls, where its buffers are, and facts about them ---- */

static uint64_t locate(const struct flat_op *op, const void *buffer, size_t bytes, uint64_t fact, uint64_t *where)
{
    struct tutti_memory *m = op->inst->transport->memory;
    *where = (uint64_t)(uintptr_t)buffer;
    return bytes == 0 || op->inst->addresses || m->ops->locate(m, buffer, bytes, where) ? fact : 0;
}

uint64_t flat_facts(struct flat_op *op)
{
    const uint64_t facts = locate(op, op->send, flat_send_bytes(op), FLAT_SEND_MAPPED, &op->send_at) |
                           locate(op, op->recv, flat_recv_bytes(op), FLAT_RECV_MAPPED, &op->recv_at) |
                           (op->send == op->recv ? FLAT_SAME : FLAT_APART);
    return facts | flat_attach_facts(op, facts);
}

void flat_post_write(struct flat_op *op, uint64_t facts)
{
    struct flat_post *post = flat_post_of(op, op->inst->me);
    const struct tutti_call_info *info = &op->call.info;
    struct tutti_board board = {.kind = (uint8_t)tutti_shown_kind(info),
                                .dtype = (uint8_t)info->dtype,
                                .op = (uint8_t)info->op,
                                .root = info->root};
    atomic_store_explicit(&post->in, op->staged, memory_order_relaxed);
    atomic_store_explicit(&post->seq, op->call.seq, memory_order_relaxed);
    uint64_t call = op->call.within ? op->call.outer_call : tutti_call_pack(&board);
    uint64_t count = op->call.within ? op->call.outer_count : info->reduced ? info->reduced : info->count;
    atomic_store_explicit(&post->call, call, memory_order_relaxed);
    atomic_store_explicit(&post->count, count, memory_order_relaxed);
    atomic_store_explicit(&post->send, op->send_at, memory_order_relaxed);
    atomic_store_explicit(&post->recv, op->recv_at, memory_order_relaxed);
    atomic_store_explicit(&post->facts, facts, memory_order_relaxed);
    atomic_store_explicit(&op->inst->areas[op->inst->me]->signatures[flat_turn(op->inst, op->number)], info->signature,
                          memory_order_relaxed);
    flat_publish(op, &post->word, op->word);
}

unsigned char *flat_peer_part(const struct flat_op *op, uint32_t peer, bool send, size_t at, size_t bytes)
{
    struct flat_instance *inst = op->inst;
    if (peer == inst->me) return (send ? (unsigned char *)(uintptr_t)op->send : op->recv) + at;
    const struct flat_post *post = flat_post_of(op, peer);
    uint64_t where = at + atomic_load_explicit(send ? &post->send : &post->recv, memory_order_relaxed);
    if (inst->addresses) return (unsigned char *)(uintptr_t)where;
    return inst->transport->memory->ops->map(inst->transport->memory, inst->members[peer], where, bytes);
}

enum tutti_advance flat_lost(void)
{
    tutti_fail(TUTTI_ERR_SYSTEM, "memory of a peer can not be mapped");
    return TUTTI_RUN_FAILED;
}
