/* SPDX-License-Identifier: BSD-3-Clause */
/* Cross-memory copies that the kernel refuses in the middle of a call, since the rights of a process have changed: its
 * peer copies for it, through staging memory. A rank asks one peer at a time for one piece: to get it, which the peer
 * puts into its own staging memory, or to give it, which the peer takes from this rank's: places of their own, for
 * others may still read what earlier calls have left in the slots. Who waits for others, at the end of its part or for
 * an answer, serves. From then on the rank's posts say that it can not attach. */
#include "backend/flat/flat.h"

static unsigned char *gift_of(const struct flat_instance *inst, uint32_t rank)
{
    return inst->staging[rank] + 2 * FLAT_SLOTS * inst->chunk;
}
static unsigned char *answer_of(const struct flat_instance *inst, uint32_t rank)
{
    return gift_of(inst, rank) + FLAT_ASK_BYTES;
}

/* ---- serving ---- */

static bool has_taken(const struct flat_instance *inst, uint32_t rank)
{
    const uint64_t answered = atomic_load_explicit(&inst->areas[inst->me]->answered[rank], memory_order_relaxed);
    return atomic_load_explicit(&inst->areas[rank]->ask.taken, memory_order_acquire) >= answered;
}

/* What is asked is checked against the own buffers. From now on this rank's posts say that others can not attach, since
 * of some kinds one post counts. */
static void answer(struct flat_op *op, uint32_t rank, uint64_t word)
{
    struct flat_instance *inst = op->inst;
    const struct flat_ask *ask = &inst->areas[rank]->ask;
    const uint64_t at = atomic_load_explicit(&ask->at, memory_order_relaxed);
    const uint64_t bytes = atomic_load_explicit(&ask->bytes, memory_order_relaxed);
    const bool writes = atomic_load_explicit(&ask->writes, memory_order_relaxed);
    const size_t whole = writes ? flat_recv_bytes(op) : flat_send_bytes(op);
    if (bytes > FLAT_ASK_BYTES || bytes > whole || at > whole - bytes)
        word |= FLAT_ASK_REFUSED;
    else if (writes)
        memcpy(op->recv + at, gift_of(inst, rank), bytes);
    else
        memcpy(answer_of(inst, inst->me), op->send + at, bytes);
    inst->attach = inst->attach_all = false;
    inst->served = rank + 1;
    flat_publish(op, &inst->areas[inst->me]->answered[rank], word);
}

bool flat_serve(struct flat_op *op)
{
    struct flat_instance *inst = op->inst;
    for (uint32_t i = 1; i < inst->n; i++) {
        const uint32_t r = flat_after(inst, i);
        const uint64_t word = flat_asked(op, r);
        if (word == 0) continue;
        if (inst->served > 0 && !has_taken(inst, inst->served - 1)) return false;
        answer(op, r, word);
    }
    return inst->served == 0 || has_taken(inst, inst->served - 1);
}

/* ---- asking ---- */

/* The peer may sleep until somebody else has come. */
static void ask(struct flat_op *op, uint32_t peer, size_t at, size_t bytes, bool write)
{
    struct flat_instance *inst = op->inst;
    struct flat_ask *own = &inst->areas[inst->me]->ask;
    atomic_store_explicit(&own->operation, op->number, memory_order_relaxed);
    atomic_store_explicit(&own->at, at, memory_order_relaxed);
    atomic_store_explicit(&own->bytes, bytes, memory_order_relaxed);
    atomic_store_explicit(&own->writes, write, memory_order_relaxed);
    const uint64_t number = atomic_load_explicit(&own->word, memory_order_relaxed) / FLAT_ASK_PEER + 1;
    flat_publish(op, &own->word, number * FLAT_ASK_PEER + peer);
    for (uint32_t r = 0; r < inst->n; r++) flat_wake(inst->areas[r]);
}

static enum tutti_advance refused(uint32_t peer)
{
    tutti_fail(TUTTI_ERR_PROTOCOL, "rank %u has no such bytes as are asked of it", peer);
    return TUTTI_RUN_FAILED;
}

enum tutti_advance flat_ask(struct flat_op *op, uint32_t peer, unsigned char *here, size_t at, size_t bytes, bool write)
{
    struct flat_instance *inst = op->inst;
    struct flat_ask *own = &inst->areas[inst->me]->ask;
    inst->attach = inst->attach_all = false;
    while (inst->asked < bytes) {
        const size_t left = bytes - inst->asked, some = left < FLAT_ASK_BYTES ? left : FLAT_ASK_BYTES;
        if (!inst->asks) {
            if (write) memcpy(gift_of(inst, inst->me), here + inst->asked, some);
            ask(op, peer, at + inst->asked, some, write);
            inst->asks = true;
        }
        flat_serve(op);
        const _Atomic uint64_t *answered = &inst->areas[peer]->answered[inst->me];
        const uint64_t word = atomic_load_explicit(&own->word, memory_order_relaxed);
        if (!flat_reached(op, peer, answered, word)) return TUTTI_RUN_BLOCKED;
        if (atomic_load_explicit(answered, memory_order_relaxed) & FLAT_ASK_REFUSED) return refused(peer);
        if (!write) memcpy(here + inst->asked, answer_of(inst, peer), some);
        flat_publish(op, &own->taken, word);
        inst->asks = false;
        inst->asked += some;
    }
    if (!flat_serve(op)) return TUTTI_RUN_BLOCKED; /* what this rank answered has its place until it is taken */
    inst->asked = 0;
    return TUTTI_RUN_DONE;
}
