/* SPDX-License-Identifier: BSD-3-Clause */
/* Private buffers, through staging memory, in rounds that all ranks walk through together: a rank puts a piece into its
 * slot, takes or folds what the others have put, and, where results are folded in slices, takes the others' slices a
 * round later. There are two cursors: puts run ahead of all else, so that nobody waits for a round that others are only
 * beginning. The leaves of a gather, and of a reduce whose root alone folds (`direct`), put their block and go on.
 *
 * A rank that has put round u has taken all rounds before u - 1, and what is folded of all before u - 2. So where all
 * ranks take from all, slots need no acknowledgements. */
#include "backend/flat/flat.h"

#define AHEAD 2                        /* more gained nothing, not even where ranks share CPUs */
#define SLICE_LEAST ((size_t)1024)     /* of one rank in a round of an all_reduce */
#define WHOLE_MOST ((size_t)12 << 10)  /* of what a rank folds of the others in an all_reduce without slices */
#define MAPPED_LEAST ((size_t)4 << 10) /* a gathered block of less is gone from the leaf sooner when it is copied */

/* What a kind does in a round. */
struct rounds {
    void (*put)(struct flat_op *op, uint64_t u);                 /* fills the own slot */
    bool (*take)(struct flat_op *op, uint64_t u, uint32_t peer); /* uses what the peer has put; false: FAILED */
    void (*fold)(struct flat_op *op, uint64_t u);                /* when all have put */
    void (*out)(struct flat_op *op, uint64_t u, uint32_t peer);  /* takes what the peer has folded */
};

/* ---- blocks: a slot holds a piece for each rank; all_to_all_v begins with a round of tables ---- */

static uint64_t table_rounds(const struct flat_op *op)
{
    return op->tables && op->call.info.kind == TUTTI_ALL_TO_ALL;
}

/* Where the piece for rank r lies in round u: one behind the other, as long as they are; of v forms, whose readers may
 * know no more than their own lengths, at equal distances. */
static size_t place_of(const struct flat_op *op, uint32_t r, uint64_t u)
{
    return r * (op->tables ? op->piece : flat_piece(op, op->bytes, u));
}

static void put_blocks(struct flat_op *op, uint64_t round)
{
    unsigned char *slot = flat_slot_in(op, op->inst->me, round);
    uint64_t u = round - table_rounds(op);
    if (round < table_rounds(op)) {
        flat_table_put(op);
        return;
    }
    for (uint32_t i = op->call.bind.scale ? 0 : 1; i < op->inst->n; i++) {
        uint32_t r = flat_after(op->inst, i);
        size_t at, bytes = flat_piece(op, flat_block_sent(op, r, &at), u);
        if (bytes > 0) flat_take(op, slot + place_of(op, r, u), op->send + at + u * op->piece, bytes);
    }
}

static bool take_block(struct flat_op *op, uint64_t round, uint32_t peer)
{
    uint64_t u = round - table_rounds(op);
    if (round < table_rounds(op)) return flat_table_agrees(op, peer);
    size_t to, from, bytes = flat_piece(op, flat_block(op, peer, &to), u);
    const unsigned char *piece = flat_slot_in(op, peer, round) + place_of(op, op->inst->me, u);
    unsigned char *out = op->recv + to + u * op->piece;
    if (peer == op->inst->me) {
        flat_block_sent(op, peer, &from);
        piece = op->send + from + u * op->piece;
    }
    if (bytes > 0 && out != piece) flat_copy(out, piece, bytes, op->past);
    return true;
}

/* The own block of all inputs; of an all_reduce that is the whole. */
static void fold_block(struct flat_op *op, uint64_t u)
{
    const struct flat_instance *inst = op->inst;
    const unsigned char *sources[FLAT_MAX_RANKS];
    bool whole = op->call.info.kind == TUTTI_ALL_REDUCE;
    size_t at = 0, block = whole ? op->bytes : flat_block(op, inst->me, &at), bytes = flat_piece(op, block, u);
    size_t place = whole ? 0 : place_of(op, inst->me, u);
    unsigned char *out = op->recv + u * op->piece;
    for (uint32_t r = 0; r < inst->n; r++) sources[r] = flat_slot_in(op, r, u) + place;
    if (!op->call.bind.scale) sources[inst->me] = op->send + at + u * op->piece;
    const struct flat_folding what = {&out, 1, op->past, sources, inst->n, 0};
    if (bytes > 0) flat_fold_all(op, &what, bytes);
}

/* ---- gathered blocks: a slot holds a piece of the own. Each edge of a gather goes its own way: the root reads a
 * leaf's block where it lies if the leaf's post says that it is mapped ---- */

static bool in_place(const struct flat_op *op, uint32_t r)
{
    return op->call.info.kind == TUTTI_GATHER &&
           atomic_load_explicit(&flat_post_of(op, r)->facts, memory_order_relaxed) & FLAT_SEND_MAPPED;
}

static void put_own(struct flat_op *op, uint64_t u)
{
    size_t at, bytes = flat_piece(op, op->bytes, u);
    const unsigned char *from = op->send + u * op->piece;
    bool keeps = op->call.info.kind == TUTTI_ALL_GATHER;
    if (keeps) bytes = flat_piece(op, flat_block(op, op->inst->me, &at), u);
    if (bytes == 0) return;
    flat_take(op, flat_slot_in(op, op->inst->me, u), from, bytes);
    unsigned char *own = keeps ? op->recv + at + u * op->piece : NULL;
    if (own && own != from) flat_copy(own, from, bytes, op->past);
}

static bool take_gathered(struct flat_op *op, uint64_t u, uint32_t peer)
{
    size_t at, whole = flat_block(op, peer, &at), bytes = flat_piece(op, whole, u);
    bool own = peer == op->inst->me;
    if (bytes == 0 || (own && op->call.info.kind == TUTTI_ALL_GATHER)) return true; /* it kept that when it put it */
    const unsigned char *from = flat_slot_in(op, peer, u);
    unsigned char *to = op->recv + at + u * op->piece;
    if (own || in_place(op, peer)) {
        from = flat_peer_part(op, peer, true, 0, whole);
        if (!from) return flat_lost() == TUTTI_RUN_DONE;
        from += u * op->piece;
    }
    if (to != from) flat_copy(to, from, bytes, op->past);
    return true;
}

/* ---- slices: each rank folds its own of all inputs, and the others take what came out ---- */

/* A reduction whose leaves stage their blocks and go on. */
static bool is_direct(const struct flat_op *op)
{
    return op->call.info.kind == TUTTI_REDUCE && op->method->reads == FLAT_ALL_IF_OPEN;
}

/* Whether a rank folds: all do, but of a reduce the root alone, or the leaves, so that the root does not do more than
 * they. */
static bool folds(const struct flat_op *op, uint32_t r)
{
    return op->call.info.kind != TUTTI_REDUCE || (r == flat_root(op)) == is_direct(op);
}

/* The slice of round u that rank r folds. */
static size_t slice_of(const struct flat_op *op, uint64_t u, uint32_t r, size_t *at)
{
    uint32_t n = op->inst->n, i = r, n_folders = n;
    if (op->call.info.kind == TUTTI_REDUCE) {
        n_folders = is_direct(op) ? 1 : n - 1;
        i = is_direct(op) ? 0 : r - (r > flat_root(op));
    }
    *at = 0;
    return folds(op, r) ? flat_part(op, flat_piece(op, op->bytes, u), n_folders, i, at) : 0;
}

static void put_slices(struct flat_op *op, uint64_t u)
{
    unsigned char *slot = flat_slot_in(op, op->inst->me, u);
    const unsigned char *own = op->send + u * op->piece;
    size_t at = 0, some = op->call.bind.scale ? 0 : slice_of(op, u, op->inst->me, &at);
    size_t behind = flat_piece(op, op->bytes, u) - at - some;
    if (at > 0) flat_take(op, slot, own, at);
    if (behind > 0) flat_take(op, slot + at + some, own + at + some, behind);
}

/* Into the slot of results, from which others take it, and to the own output. */
static void fold_slice(struct flat_op *op, uint64_t u)
{
    const struct flat_instance *inst = op->inst;
    const unsigned char *sources[FLAT_MAX_RANKS];
    unsigned char *dst[2];
    size_t at, bytes = slice_of(op, u, inst->me, &at);
    bool all = op->call.info.kind == TUTTI_ALL_REDUCE, root = !all && flat_is_root(op);
    uint32_t n_dst = 0;
    for (uint32_t r = 0; r < inst->n; r++) sources[r] = flat_slot_in(op, r, u);
    if (!op->call.bind.scale) sources[inst->me] = op->send + u * op->piece;
    if (!root) dst[n_dst++] = flat_slot_out(op, inst->me, u);
    if (all || root) dst[n_dst++] = op->recv + u * op->piece + at;
    const struct flat_folding what = {dst, n_dst, (all || root) && op->past, sources, inst->n, at};
    if (bytes > 0) flat_fold_all(op, &what, bytes);
    if (!root) flat_raise(op, FLAT_FOLDED, flat_number(op, u + 1));
}

static void take_slice(struct flat_op *op, uint64_t u, uint32_t peer)
{
    size_t at, bytes = slice_of(op, u, peer, &at);
    if (peer == op->inst->me || bytes == 0) return; /* it kept its own when it folded it */
    flat_copy(op->recv + u * op->piece + at, flat_slot_out(op, peer, u), bytes, op->past);
}

/* ---- the walk ---- */

static const struct rounds kinds[TUTTI_N_KINDS] = {
    [TUTTI_ALL_REDUCE] = {put_slices, NULL, fold_slice, take_slice},
    [TUTTI_REDUCE] = {put_slices, NULL, fold_slice, take_slice},
    [TUTTI_ALL_GATHER] = {put_own, take_gathered, NULL, NULL},
    [TUTTI_GATHER] = {put_own, take_gathered, NULL, NULL},
    [TUTTI_REDUCE_SCATTER] = {put_blocks, NULL, fold_block, NULL},
    [TUTTI_ALL_TO_ALL] = {put_blocks, take_block, NULL, NULL},
};

/* A small all_reduce is over sooner when each rank folds all of it: it waits for the others once, not twice. */
static const struct rounds whole = {put_own, NULL, fold_block, NULL};

static const struct rounds *rounds_of(const struct flat_op *op)
{
    bool small = (op->inst->n - 1) * op->bytes <= WHOLE_MOST;
    return op->call.info.kind == TUTTI_ALL_REDUCE && small ? &whole : &kinds[op->call.info.kind];
}

/* At least some rounds of an all_reduce, so that ranks overlap, but not of tiny slices. */
static void cut_slices(struct flat_op *op)
{
    size_t piece = op->inst->chunk, least = 2 * FLAT_BLOCK_BYTES, slices = op->inst->n * SLICE_LEAST;
    if (slices > least) least = slices;
    while (piece >= 2 * least && op->bytes < 4 * piece) piece /= 2;
    op->piece = piece;
    op->n_rounds = (op->bytes + piece - 1) / piece;
    flat_rounds_place(op, op->bytes < piece ? op->bytes : piece);
}

/* In a v form a leaf knows its own block alone: the root's post says how many rounds there are. */
static void cut_gathered(struct flat_op *op)
{
    bool root = flat_is_root(op), v = op->call.bind.v;
    flat_cut(op, v ? SIZE_MAX : op->bytes, 1);
    if (v) op->n_rounds = root ? flat_rounds_of(op, op->bytes) : 0;
    if (v && root && (op->facts & (FLAT_RECV_MAPPED | FLAT_ATTACHABLE))) flat_blocks_publish(op);
    if (op->bytes < MAPPED_LEAST || op->forced) op->facts &= ~(uint64_t)FLAT_SEND_MAPPED;
}

void flat_rounds_start(struct flat_op *op)
{
    uint32_t n = op->inst->n;
    switch (op->call.info.kind) {
    case TUTTI_ALL_REDUCE:
        cut_slices(op);
        break;
    case TUTTI_REDUCE:
        is_direct(op) ? flat_cut_small(op, op->bytes, 2) : flat_cut(op, op->bytes, 1);
        break;
    case TUTTI_GATHER:
        cut_gathered(op);
        break;
    case TUTTI_ALL_TO_ALL: /* what is equal on all ranks decides on the length of pieces */
        flat_cut_evenly(op, op->tables ? op->inst->chunk * FLAT_SLOTS : op->bytes, n);
        op->n_rounds = flat_rounds_of(op, op->bytes);
        break;
    default:
        flat_cut_evenly(op, op->bytes, op->call.info.kind == TUTTI_ALL_GATHER ? 1 : n);
    }
}

/* What a rank does in this operation. */
struct role {
    uint64_t n_puts; /* rounds that it puts */
    bool takes, outs;
};

static struct role role_of(const struct flat_op *op)
{
    enum tutti_kind kind = op->call.info.kind;
    struct role role = {op->n_rounds, true, rounds_of(op)->out && op->recv};
    bool root = tutti_kind_info(kind)->rooted && flat_is_root(op);
    if (kind == TUTTI_REDUCE) {
        role.takes = folds(op, op->inst->me);
        role.outs = root && !role.takes;
        if (is_direct(op) && root && !op->call.bind.scale) role.n_puts = 0;
    } else if (kind == TUTTI_GATHER) {
        role.takes = root;
        role.n_puts = root || in_place(op, op->inst->me) ? 0 : flat_rounds_of(op, op->bytes);
    }
    return role;
}

void flat_rounds_first(struct flat_op *op)
{
    if (role_of(op).n_puts + table_rounds(op) > 0) rounds_of(op)->put(op, 0);
}

/* Whether the peer's part of this round is there. The root of a gather waits for no more than it gets. */
static bool is_there(struct flat_op *op, uint32_t peer)
{
    size_t at;
    if (peer == op->inst->me) return true;
    if (op->call.info.kind != TUTTI_GATHER) return flat_posted(op, peer) && flat_staged(op, peer, op->round + 1);
    if (flat_piece(op, flat_block(op, peer, &at), op->round) == 0) return true;
    return flat_posted(op, peer) && (in_place(op, peer) || flat_staged(op, peer, op->round + 1));
}

static bool is_folded(struct flat_op *op, uint32_t peer)
{
    return peer == op->inst->me || flat_reached(op, peer, flat_flag(op, peer, FLAT_FOLDED), flat_number(op, op->round));
}

static bool wants_to_put(const struct flat_op *op, uint64_t n_puts)
{
    return op->staged < n_puts && op->staged < op->round + AHEAD;
}

/* Puts as far ahead as there is room; false: there is none yet for this round. */
static bool put_ahead(struct flat_op *op, const struct rounds *kind, const struct role *role)
{
    while (wants_to_put(op, role->n_puts)) {
        if (!flat_round_room(op, op->staged)) return op->staged > op->round; /* what is there comes first */
        kind->put(op, op->staged);
        flat_stage(op);
    }
    return true;
}

static enum tutti_advance take_round(struct flat_op *op, const struct rounds *kind, const struct role *role)
{
    struct flat_instance *inst = op->inst;
    const bool asks = op->method->reads == FLAT_ALL; /* a rank that puts has taken */
    const uint64_t late = kind->out ? 1 : 0;
    if (op->peer == 0) flat_posts_ahead(op);
    for (; op->peer < inst->n; op->peer++) { /* its own first, while others may still put */
        const uint32_t peer = flat_after(inst, op->peer);
        if (!is_there(op, peer)) return TUTTI_RUN_BLOCKED;
        if (kind->take && !kind->take(op, op->round, peer)) return TUTTI_RUN_FAILED;
    }
    if (asks && op->round >= AHEAD - 1 + late) flat_read_by_all(inst, flat_number(op, op->round - (AHEAD - 1) - late));
    if (kind->fold) kind->fold(op, op->round);
    if (!role->outs && (late || !asks)) flat_has_read(op, op->round + 1);
    return TUTTI_RUN_DONE;
}

/* What the others have folded in the round before. */
static enum tutti_advance take_folded(struct flat_op *op, const struct rounds *kind)
{
    if (op->peer == 0) flat_flags_ahead(op, FLAT_FOLDED);
    for (; op->peer < op->inst->n; op->peer++) {
        const uint32_t peer = flat_after(op->inst, op->peer + 1); /* its own last */
        if (!is_folded(op, peer)) return TUTTI_RUN_BLOCKED;
        kind->out(op, op->round - 1, peer);
    }
    flat_has_read(op, op->round);
    return TUTTI_RUN_DONE;
}

enum rounds_state { ROUND_PUT, ROUND_TAKE, ROUND_FOLDED };

static enum tutti_advance run_round(struct flat_op *op, const struct rounds *kind, const struct role *role)
{
    const bool takes = role->takes && op->round < op->n_rounds, outs = role->outs && op->round > 0;
    enum tutti_advance run;
    switch ((enum rounds_state)op->at) {
    case ROUND_PUT:
        if (!put_ahead(op, kind, role)) return TUTTI_RUN_BLOCKED;
        op->at = ROUND_TAKE;
        __attribute__((fallthrough));
    case ROUND_TAKE:
        run = takes ? take_round(op, kind, role) : TUTTI_RUN_DONE;
        if (run != TUTTI_RUN_DONE) return run;
        op->at = ROUND_FOLDED;
        op->peer = 0;
        __attribute__((fallthrough));
    case ROUND_FOLDED:
        run = outs ? take_folded(op, kind) : TUTTI_RUN_DONE;
        if (run != TUTTI_RUN_DONE) return run;
    }
    op->at = ROUND_PUT;
    op->peer = 0;
    return TUTTI_RUN_DONE;
}

static enum tutti_advance walk(struct flat_op *op)
{
    const struct rounds *kind = rounds_of(op);
    const struct role role = role_of(op);
    const bool asks = op->method->reads == FLAT_ALL;
    const uint64_t late = kind->out ? 1 : 0;
    if (op->round == 0 && !role.takes && !role.outs) flat_has_read(op, op->n_rounds); /* it reads nothing */
    for (; op->round < op->n_rounds + late; op->round++) {
        const enum tutti_advance run = run_round(op, kind, &role);
        if (run != TUTTI_RUN_DONE) return run;
    }
    if (!late && asks) flat_has_read(op, op->n_rounds);
    if (op->past) flat_fence();
    return TUTTI_RUN_DONE;
}

/* A leaf whose block is read in place waits for the root to be done. */
static enum tutti_advance await_root(struct flat_op *op)
{
    uint32_t root = flat_root(op);
    if (!op->at) flat_has_read(op, op->n_rounds);
    op->at = 1;
    return flat_reached(op, root, &op->inst->areas[root]->done, op->number) ? TUTTI_RUN_DONE : TUTTI_RUN_BLOCKED;
}

enum tutti_advance flat_rounds(struct flat_op *op)
{
    enum tutti_kind kind = op->call.info.kind;
    if (kind == TUTTI_ALL_TO_ALL) op->n_rounds = op->most + table_rounds(op);
    if (kind == TUTTI_GATHER && op->call.bind.v) op->n_rounds = op->most;
    if (kind == TUTTI_GATHER && !flat_is_root(op) && in_place(op, op->inst->me)) return await_root(op);
    return walk(op);
}

bool flat_rounds_fits(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    (void)call;
    return inst->chunk > 0;
}
