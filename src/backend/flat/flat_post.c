/* SPDX-License-Identifier: BSD-3-Clause */
/* Posts: what a rank calls, where its buffers are, and what it says of them. */
#include "backend/flat/flat.h"

static uint64_t locate(const struct flat_op *op, const void *buffer, size_t bytes, uint64_t fact,
                       _Atomic uint64_t *where)
{
    struct tutti_memory *m = op->inst->transport->memory;
    uint64_t offset = (uint64_t)(uintptr_t)buffer;
    bool mapped = bytes == 0 || op->inst->addresses || m->ops->locate(m, buffer, bytes, &offset);
    atomic_store_explicit(where, offset, memory_order_relaxed);
    return mapped ? fact : 0;
}

uint64_t flat_facts(const struct flat_op *op, _Atomic uint64_t *send, _Atomic uint64_t *recv)
{
    uint64_t mapped = locate(op, op->send, flat_send_bytes(op), FLAT_SEND_MAPPED, send) |
                      locate(op, op->recv, flat_recv_bytes(op), FLAT_RECV_MAPPED, recv);
    return mapped | (op->send == op->recv ? FLAT_SAME : FLAT_APART);
}

void flat_post_write(struct flat_op *op, uint64_t facts)
{
    struct flat_post *post = flat_post_of(op, op->inst->me);
    const struct tutti_call_info *info = &op->call.info;
    struct tutti_board board = {
        .kind = (uint8_t)info->kind, .dtype = (uint8_t)info->dtype, .op = (uint8_t)info->op, .root = info->root};
    atomic_store_explicit(&post->in, op->staged, memory_order_relaxed);
    atomic_store_explicit(&post->seq, op->call.seq, memory_order_relaxed);
    uint64_t call = op->call.within ? op->call.outer_call : tutti_call_pack(&board);
    uint64_t count = op->call.within ? op->call.outer_count : info->count;
    atomic_store_explicit(&post->call, call, memory_order_relaxed);
    atomic_store_explicit(&post->count, count, memory_order_relaxed);
    atomic_store_explicit(&post->facts, facts, memory_order_relaxed);
    atomic_store_explicit(&op->inst->areas[op->inst->me]->signatures[op->number % FLAT_DEPTH], info->signature,
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
