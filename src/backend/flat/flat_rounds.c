/* SPDX-License-Identifier: BSD-3-Clause */
/* Private buffers, through staging memory, in rounds that all ranks walk through together: a rank puts a piece into its
 * slot, takes or folds what the others have put, and, where results are folded in slices, takes the others' slices a
 * round later. Two cursors: puts run ahead of all else, so that nobody waits for a round that others are only
 * beginning. The leaves of a gather, and of a reduce whose root alone folds (`direct`), put their block and go on.
 *
 * Who has put round u has taken all rounds before u - 1, and what is folded of all before u - 2. So where all ranks
 * take from all, slots need no acknowledgements. */
#include "backend/flat/flat_ways.h"

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
    return op->call.info.kind == TUTTI_REDUCE && op->method->who != FLAT_ALL;
}

/* Who folds: all, but of a rooted reduction the root alone, or the leaves, so that the root does not do more than they.
 */
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

/* What this rank folds itself is read where it lies, unless it has to be scaled, or is kept as a prefix. */
static bool own_is_put(const struct flat_op *op)
{
    return op->call.bind.scale || flat_is_scan(op->call.info.kind);
}

static void put_slices(struct flat_op *op, uint64_t u)
{
    unsigned char *slot = flat_slot_in(op, op->inst->me, u);
    const unsigned char *own = op->send + u * op->piece;
    size_t at = 0, some = own_is_put(op) ? 0 : slice_of(op, u, op->inst->me, &at);
    size_t behind = flat_piece(op, op->bytes, u) - at - some;
    if (at > 0) flat_take(op, slot, own, at);
    if (behind > 0) flat_take(op, slot + at + some, own + at + some, behind);
}

/* Into the slot of results for those who take it from there, and to the own output. */
static void fold_slice(struct flat_op *op, uint64_t u)
{
    const struct flat_instance *inst = op->inst;
    const unsigned char *sources[FLAT_MAX_RANKS];
    unsigned char *dst[2];
    size_t at, bytes = slice_of(op, u, inst->me, &at);
    bool all = op->call.info.kind == TUTTI_ALL_REDUCE, root = !all && flat_is_root(op);
    uint32_t n_dst = 0;
    for (uint32_t r = 0; r < inst->n; r++) sources[r] = flat_slot_in(op, r, u);
    if (!own_is_put(op)) sources[inst->me] = op->send + u * op->piece;
    if (!root) dst[n_dst++] = flat_slot_out(op, inst->me, u);
    if (all || root) dst[n_dst++] = op->recv + u * op->piece + at;
    const struct flat_folding what = {dst, n_dst, (all || root) && op->past, sources, inst->n, at};
    if (bytes > 0) flat_fold_all(op, &what, bytes);
    if (!root) flat_raise(op, FLAT_FOLDED, flat_number(op, u + 1));
}

/* The prefixes of the own slice, one behind the other, in the slot of results. */
static void fold_prefixes(struct flat_op *op, uint64_t u)
{
    const struct flat_instance *inst = op->inst;
    unsigned char *out = flat_slot_out(op, inst->me, u);
    size_t at, bytes = slice_of(op, u, inst->me, &at);
    if (bytes > 0) memcpy(out, flat_slot_in(op, 0, u) + at, bytes);
    for (uint32_t r = 1; bytes > 0 && r + !flat_takes_own(op) < inst->n; r++)
        flat_fold(op, out + r * bytes, out + (r - 1) * bytes, flat_slot_in(op, r, u) + at, bytes);
    flat_raise(op, FLAT_FOLDED, flat_number(op, u + 1));
}

static void take_slice(struct flat_op *op, uint64_t u, uint32_t peer)
{
    size_t at, bytes;
    bool prefix = flat_is_scan(op->call.info.kind);
    if (peer == op->inst->me && !prefix) return; /* it kept that when it folded it */
    bytes = slice_of(op, u, peer, &at);
    if (bytes == 0) return;
    const unsigned char *from = flat_slot_out(op, peer, u);
    unsigned char *to = op->recv + u * op->piece + at;
    if (prefix) from += (op->inst->me - !flat_takes_own(op)) * bytes;
    flat_copy(to, from, bytes, op->past && !(prefix && op->call.bind.divide));
    if (prefix) flat_divide(op, to, bytes);
}

/* ---- the walk ---- */

static const struct rounds kinds[TUTTI_N_KINDS] = {
    [TUTTI_ALL_REDUCE] = {put_slices, NULL, fold_slice, take_slice},
    [TUTTI_REDUCE] = {put_slices, NULL, fold_slice, take_slice},
    [TUTTI_SCAN] = {put_slices, NULL, fold_prefixes, take_slice},
    [TUTTI_EXSCAN] = {put_slices, NULL, fold_prefixes, take_slice},
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

/* Of a v form a leaf knows its own block alone: the root's post says how many rounds there are. */
static void cut_gathered(struct flat_op *op)
{
    bool root = flat_is_root(op), v = op->call.bind.v;
    flat_cut(op, v ? SIZE_MAX : op->bytes, 1);
    if (v) op->n_rounds = root ? flat_rounds_of(op, op->bytes) : 0;
    if (v && root && (op->facts & (FLAT_RECV_MAPPED | FLAT_ATTACHABLE))) flat_blocks_tell(op);
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
    case TUTTI_SCAN:
    case TUTTI_EXSCAN: /* a slot holds the prefixes of a slice, which has whole lines */
        flat_cut(op, (op->bytes + n - 1) / n, n);
        op->piece = n * (op->piece > TUTTI_CACHE_LINE ? op->piece : TUTTI_CACHE_LINE);
        flat_rounds_place(op, op->piece);
        op->n_rounds = flat_rounds_of(op, op->bytes);
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

/* Nothing to wait for: of the root of a gather, no more than it gets of the peer in this round. */
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

static enum tutti_advance walk(struct flat_op *op)
{
    struct flat_instance *inst = op->inst;
    const struct rounds *kind = rounds_of(op);
    const struct role role = role_of(op);
    bool asks = op->method->who == FLAT_ALL; /* whoever puts has taken */
    uint64_t late = kind->out ? 1 : 0;

    FLAT_BEGIN(op->at)
    if (!role.takes && !role.outs) flat_has_read(op, op->n_rounds); /* nothing */
    for (op->round = 0; op->round < op->n_rounds + late; op->round++) {
        while (wants_to_put(op, role.n_puts)) {
            if (op->staged > op->round && !flat_round_room(op, op->staged)) break; /* what is there comes first */
            FLAT_WAIT(flat_round_room(op, op->staged));
            kind->put(op, op->staged);
            flat_stage(op);
        }
        if (role.takes && op->round < op->n_rounds) {
            flat_posts_ahead(op);
            for (op->peer = 0; op->peer < inst->n; op->peer++) { /* its own first, while others may still put */
                FLAT_WAIT(is_there(op, flat_after(inst, op->peer)));
                if (kind->take && !kind->take(op, op->round, flat_after(inst, op->peer))) return TUTTI_RUN_FAILED;
            }
            if (asks && op->round >= AHEAD - 1 + late)
                flat_read_by_all(inst, flat_number(op, op->round - (AHEAD - 1) - late));
            if (kind->fold) kind->fold(op, op->round);
            if (!role.outs && (late || !asks)) flat_has_read(op, op->round + 1);
        }
        if (role.outs && op->round > 0) {
            flat_flags_ahead(op, FLAT_FOLDED);
            for (op->peer = 1; op->peer <= inst->n; op->peer++) {
                FLAT_WAIT(is_folded(op, flat_after(inst, op->peer)));
                kind->out(op, op->round - 1, flat_after(inst, op->peer));
            }
            flat_has_read(op, op->round);
        }
    }
    if (!late && asks) flat_has_read(op, op->n_rounds);
    if (op->past) flat_fence();
    FLAT_END;
}

/* A leaf whose block is read in place waits for the root to be done. */
static enum tutti_advance await_root(struct flat_op *op)
{
    uint32_t root = flat_root(op);
    FLAT_BEGIN(op->at)
    flat_has_read(op, op->n_rounds);
    FLAT_WAIT(flat_reached(op, root, &op->inst->areas[root]->done, op->number));
    FLAT_END;
}

enum tutti_advance flat_rounds(struct flat_op *op)
{
    enum tutti_kind kind = op->call.info.kind;
    if (kind == TUTTI_ALL_TO_ALL) op->n_rounds = op->told + table_rounds(op);
    if (kind == TUTTI_GATHER && op->call.bind.v) op->n_rounds = op->told;
    if (kind == TUTTI_GATHER && !flat_is_root(op) && in_place(op, op->inst->me)) return await_root(op);
    return walk(op);
}

bool flat_rounds_fit(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    return inst->chunk > 0 && (!flat_is_scan(call->info.kind) || inst->chunk / inst->n >= TUTTI_CACHE_LINE);
}
