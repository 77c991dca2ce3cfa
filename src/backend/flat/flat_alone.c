/* SPDX-License-Identifier: BSD-3-Clause */
/* An instance of one rank: nobody to wait for, nothing to tell, no memory. What is left of a collective is a copy. */
#include "backend/flat/flat_ways.h"

/* Where the one block is, in each buffer: the kinds that have a block for each rank may have displacements. */
static size_t sent_at(const struct flat_op *op)
{
    size_t at = 0;
    if (op->call.info.kind == TUTTI_SCATTER) flat_block(op, 0, &at);
    if (op->call.info.kind == TUTTI_ALL_TO_ALL) flat_block_sent(op, 0, &at);
    return at;
}

static size_t received_at(const struct flat_op *op)
{
    enum tutti_kind kind = op->call.info.kind;
    size_t at = 0;
    if (kind == TUTTI_GATHER || kind == TUTTI_ALL_GATHER || kind == TUTTI_ALL_TO_ALL) flat_block(op, 0, &at);
    return at;
}

/* The root's own buffer is right already; nothing comes before rank 0. */
static bool moves(const struct flat_op *op)
{
    enum tutti_kind kind = op->call.info.kind;
    return kind != TUTTI_BROADCAST && kind != TUTTI_BARRIER && kind != TUTTI_EXSCAN;
}

enum tutti_advance flat_alone(struct flat_op *op)
{
    if (!moves(op)) return TUTTI_RUN_DONE;
    size_t at, bytes = flat_block(op, 0, &at);
    const unsigned char *from = op->send + sent_at(op);
    unsigned char *to = op->recv + received_at(op);
    if (bytes >= TUTTI_PAST_CACHE_BYTES && from != to && !op->call.bind.scale) {
        flat_copy(to, from, bytes, true);
        flat_fence();
    } else if (bytes > 0) {
        flat_take(op, to, from, bytes);
    }
    if (bytes > 0) flat_divide(op, to, bytes);
    return TUTTI_RUN_DONE;
}

bool flat_alone_fit(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    (void)call;
    return inst->n == 1;
}
