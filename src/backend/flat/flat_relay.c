/* SPDX-License-Identifier: BSD-3-Clause */
/* Private buffers, through staging memory, from one rank to the next: each rank waits for what its giver has staged,
 * hands it on to the ranks that take from it, and keeps its part. A broadcast goes from the root to all, or, among many
 * ranks, to the leaders of groups, and from these to their groups. A scatter goes from the root to all, each round with
 * a piece for every leaf. A scan by `chain` goes from rank to rank. A giver need not wait for takers until its slots
 * are full. */
#include "backend/flat/flat.h"

/* The rank from which a rank takes; itself: it is the first. */
static uint32_t giver(const struct flat_op *op, uint32_t rank)
{
    if (flat_is_scan(op->call.info.kind)) return rank > 0 ? rank - 1 : 0;
    return op->call.info.kind == TUTTI_BROADCAST ? flat_giver(op, rank) : flat_root(op);
}

static bool gives_to(const struct flat_op *op, uint32_t rank)
{
    return rank != op->inst->me && giver(op, rank) == op->inst->me;
}

static bool gives(const struct flat_op *op)
{
    uint32_t me = op->inst->me;
    if (flat_is_scan(op->call.info.kind)) return me + 1 < op->inst->n;
    return op->call.info.kind == TUTTI_BROADCAST ? flat_gives(op) : flat_is_root(op);
}

/* Whether the slot of the round may be written. While no slot is used again, all ranks have to be done with the
 * operations before; from then on only the ranks that take from this one matter. */
static bool room(struct flat_op *op, uint64_t round)
{
    const struct flat_instance *inst = op->inst;
    bool star =
        op->call.info.kind == TUTTI_SCATTER || (!flat_is_scan(op->call.info.kind) && flat_group(inst) == inst->n);
    if (round * op->width < FLAT_ALL_PARTS || star) return flat_round_room(op, round);
    for (uint32_t r = 0; r < inst->n; r++)
        if (gives_to(op, r) &&
            !flat_reached(op, r, flat_flag(op, r, FLAT_READ), flat_number(op, round + 1) - FLAT_ALL_PARTS))
            return false;
    return true;
}

/* ---- broadcast ---- */

static void give_copy(struct flat_op *op, uint64_t u)
{
    const unsigned char *source = op->send + u * op->piece;
    if (!flat_is_root(op)) source = flat_slot_in(op, giver(op, op->inst->me), u);
    memcpy(flat_slot_in(op, op->inst->me, u), source, flat_piece(op, op->bytes, u));
}

static void keep_copy(struct flat_op *op, uint64_t u)
{
    uint32_t me = op->inst->me;
    const unsigned char *source = flat_slot_in(op, gives(op) ? me : giver(op, me), u);
    if (!flat_is_root(op)) flat_copy(op->recv + u * op->piece, source, flat_piece(op, op->bytes, u), op->past);
}

/* ---- scatter: slots hold pieces for the leaves, in their order ---- */

static uint32_t index_of(const struct flat_op *op, uint32_t r)
{
    return r - (r > flat_root(op));
}

static void give_pieces(struct flat_op *op, uint64_t u)
{
    unsigned char *slot = flat_slot_in(op, op->inst->me, u);
    for (uint32_t r = 0; r < op->inst->n; r++) {
        size_t at, bytes = flat_piece(op, flat_block(op, r, &at), u);
        if (r != op->inst->me && bytes > 0)
            memcpy(slot + index_of(op, r) * op->piece, op->send + at + u * op->piece, bytes);
    }
}

static void keep_piece(struct flat_op *op, uint64_t u)
{
    uint32_t me = op->inst->me;
    if (flat_is_root(op)) return;
    const unsigned char *piece = flat_slot_in(op, flat_root(op), u) + index_of(op, me) * op->piece;
    flat_copy(op->recv + u * op->piece, piece, flat_piece(op, op->bytes, u), op->past);
}

/* ---- a chain of prefixes: what it keeps it has made when it hands on ---- */

struct link {
    const unsigned char *below, *mine; /* what the rank below handed over, if there is one, and the own */
    unsigned char *above, *out;        /* for the rank above, if there is one, and the result, before it is divided */
    size_t bytes;
    bool past;
};

static void prefix(const struct flat_op *op, unsigned char *out, const struct link *l)
{
    if (l->below)
        flat_fold(op, out, l->below, l->mine, l->bytes);
    else if (out != l->mine)
        memcpy(out, l->mine, l->bytes);
}

static void link_with_own(const struct flat_op *op, const struct link *l)
{
    _Alignas(TUTTI_CACHE_LINE) unsigned char sum[FLAT_BLOCK_BYTES];
    unsigned char *whole = l->past ? sum : l->out;
    prefix(op, whole, l);
    if (l->above) memcpy(l->above, whole, l->bytes);
    if (l->past) flat_copy(l->out, whole, l->bytes, true);
}

static void link_without(const struct flat_op *op, const struct link *l)
{
    if (l->above) prefix(op, l->above, l);
    if (l->below) flat_copy(l->out, l->below, l->bytes, l->past);
}

static void link(struct flat_op *op, uint64_t u)
{
    _Alignas(TUTTI_CACHE_LINE) unsigned char scaled[FLAT_BLOCK_BYTES];
    uint32_t me = op->inst->me;
    size_t at = u * op->piece, bytes = flat_piece(op, op->bytes, u);
    bool past = op->past && !op->call.bind.divide, has_result = me > 0 || flat_takes_own(op);

    for (size_t done = 0; done < bytes; done += FLAT_BLOCK_BYTES) {
        size_t some = bytes - done < FLAT_BLOCK_BYTES ? bytes - done : FLAT_BLOCK_BYTES;
        struct link l = {.mine = op->send + at + done, .bytes = some, .past = past};
        if (has_result) l.out = op->recv + at + done; /* else there may be no buffer */
        if (me > 0) l.below = flat_slot_in(op, me - 1, u) + done;
        if (gives(op)) l.above = flat_slot_in(op, me, u) + done;
        if (op->call.bind.scale) flat_take(op, scaled, l.mine, some), l.mine = scaled;
        flat_takes_own(op) ? link_with_own(op, &l) : link_without(op, &l);
        if (has_result) flat_divide(op, l.out, some);
    }
}

static void keep_nothing(struct flat_op *op, uint64_t u)
{
    (void)op, (void)u;
}

/* ---- the walk ---- */

static const struct relay {
    void (*give)(struct flat_op *op, uint64_t u); /* fills the own slot */
    void (*keep)(struct flat_op *op, uint64_t u);
} kinds[TUTTI_N_KINDS] = {[TUTTI_BROADCAST] = {give_copy, keep_copy},
                          [TUTTI_SCATTER] = {give_pieces, keep_piece},
                          [TUTTI_SCAN] = {link, keep_nothing},
                          [TUTTI_EXSCAN] = {link, keep_nothing}};

void flat_relay_start(struct flat_op *op)
{
    bool v = op->call.bind.v, root = flat_is_root(op);
    if (op->call.info.kind != TUTTI_SCATTER) {
        flat_cut_small(op, op->bytes, flat_is_scan(op->call.info.kind) ? flat_chain_pieces(op->inst) : 2);
        return;
    }
    flat_cut(op, v ? SIZE_MAX : op->bytes, op->inst->n - 1);
    if (v) op->n_rounds = root ? flat_rounds_of(op, op->bytes) : 0;
    if (v && root && (op->facts & (FLAT_SEND_MAPPED | FLAT_ATTACHABLE))) flat_blocks_publish(op);
}

void flat_relay_first(struct flat_op *op)
{
    if (op->n_rounds > 0) kinds[op->call.info.kind].give(op, 0);
}

static bool came(struct flat_op *op)
{
    uint32_t from = giver(op, op->inst->me);
    return from == op->inst->me || (flat_posted(op, from) && flat_staged(op, from, op->round + 1));
}

/* Rounds in which there is something for this rank: the root of a scatter has something in all. */
static uint64_t own_rounds(const struct flat_op *op)
{
    return op->call.info.kind == TUTTI_SCATTER && !flat_is_root(op) ? flat_rounds_of(op, op->bytes) : op->n_rounds;
}

/* The root's own block never was in the staging memory. */
static void keep_own(struct flat_op *op)
{
    size_t at, bytes;
    if (op->call.info.kind != TUTTI_SCATTER || !flat_is_root(op)) return;
    bytes = flat_block(op, op->inst->me, &at);
    if (bytes > 0 && op->recv != op->send + at) flat_copy(op->recv, op->send + at, bytes, op->past);
}

enum relay_state { RELAY_TAKE, RELAY_GIVE };

/* One round: it came, it is handed on, and this rank's part is kept. */
static bool relay_round(struct flat_op *op, const struct relay *kind)
{
    const bool last = flat_is_scan(op->call.info.kind) && !gives(op); /* hands nothing on, but makes its result */
    switch ((enum relay_state)op->at) {
    case RELAY_TAKE:
        if (!came(op)) return false;
        op->at = RELAY_GIVE;
        __attribute__((fallthrough));
    case RELAY_GIVE:
        if (op->round >= op->staged && gives(op)) {
            if (!room(op, op->round)) return false;
            kind->give(op, op->round);
            flat_stage(op);
        } else if (last) {
            kind->give(op, op->round);
        }
    }
    kind->keep(op, op->round);
    op->at = RELAY_TAKE;
    return true;
}

enum tutti_advance flat_relay(struct flat_op *op)
{
    const struct relay *kind = &kinds[op->call.info.kind];
    const bool first = giver(op, op->inst->me) == op->inst->me;
    if (op->call.info.kind == TUTTI_SCATTER && op->call.bind.v) op->n_rounds = op->most;
    if (first && op->round == 0) flat_has_read(op, op->n_rounds); /* it reads nothing */
    for (; op->round < own_rounds(op); op->round++) {
        if (!relay_round(op, kind)) return TUTTI_RUN_BLOCKED;
        if (!first) flat_has_read(op, op->round + 1);
    }
    if (own_rounds(op) < op->n_rounds) flat_has_read(op, op->n_rounds);
    keep_own(op);
    if (op->past) flat_fence();
    return TUTTI_RUN_DONE;
}

bool flat_relay_fits(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    (void)call;
    return inst->chunk > 0;
}
