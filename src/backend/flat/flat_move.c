/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks that are only moved, without staging: straight from the buffer of one rank to that of another. Where a peer's
 * buffer is mapped this rank copies; where it is private the kernel does (`attach`). A method is a list of parts for
 * each rank: it pulls or pushes each of them, from one place to another. At the end all meet, or the root waits for
 * all, for nobody may leave while others read or write its buffers. */
#include "backend/flat/flat.h"

#define PAUSE_BYTES ((size_t)256 << 10) /* moved at one go */
#define READ_BYTES ((size_t)2048 << 10) /* the same, where the kernel reads: the fewer calls, the better */
#define PUSH_BYTES ((size_t)16 << 10)   /* of the own block to each rank in turn: it stays in the first cache */
#define HALVES_LEAST ((size_t)64 << 10)
#define SPREAD_RANKS 4
#define SPREAD_PART ((size_t)32 << 10)

/* Less is gone from who gives it sooner when it is copied. */
#define BROADCAST_LEAST ((size_t)8 << 10)
#define BLOCK_LEAST ((size_t)4 << 10)

struct part {
    uint32_t peer;
    bool push;              /* to the peer's receive buffer; else from its send buffer */
    size_t from, to, bytes; /* places in the buffer of the giver and of the taker */
};

static bool is_attached(const struct flat_op *op)
{
    return op->method->needs & FLAT_ATTACHABLE;
}

/* ---- what is moved ---- */

static size_t push_pieces(const struct flat_op *op)
{
    return (op->bytes + PUSH_BYTES - 1) / PUSH_BYTES;
}

static bool is_pushed(const struct flat_op *op)
{
    return op->call.info.kind == TUTTI_ALL_GATHER && op->method->needs == FLAT_RECV_MAPPED;
}

/* The i-th piece of the own block, to all in turn. */
static struct part pushed_part(const struct flat_op *op, uint64_t i)
{
    size_t at = i / op->inst->n * PUSH_BYTES, left = op->bytes - at;
    size_t to;
    flat_block(op, op->inst->me, &to);
    return (struct part){flat_after(op->inst, (uint32_t)(i % op->inst->n)), true, at, to + at,
                         left < PUSH_BYTES ? left : PUSH_BYTES};
}

/* What this rank gets of the i-th after it. */
static struct part pulled_part(const struct flat_op *op, uint64_t i)
{
    struct part part = {.peer = flat_after(op->inst, (uint32_t)i)};
    part.bytes = flat_block(op, part.peer, &part.to);
    if (op->call.info.kind == TUTTI_ALL_TO_ALL) part.from = flat_table_place(op, part.peer);
    return part;
}

/* The own block of a gather or scatter. In a v form the root has published where it is. */
static size_t own_block(const struct flat_op *op, size_t *at)
{
    return op->call.bind.v && !flat_is_root(op) ? flat_block_published(op, at) : flat_block(op, op->inst->me, at);
}

/* Between two ranks each copies a half, if the root may write to the leaf's buffer. */
static struct part broadcast_part(const struct flat_op *op)
{
    uint32_t leaf = flat_is_root(op) ? 1 - op->inst->me : op->inst->me;
    struct part part = {.peer = flat_root(op), .bytes = op->bytes};
    uint64_t reach = is_attached(op) ? FLAT_ATTACHABLE : FLAT_RECV_MAPPED, facts = 0;
    if (op->inst->n == 2) facts = atomic_load_explicit(&flat_post_of(op, leaf)->facts, memory_order_relaxed);
    size_t half = facts & reach ? op->bytes / 2 / TUTTI_CACHE_LINE * TUTTI_CACHE_LINE : 0;
    if (!flat_is_root(op)) part.bytes -= half;
    if (flat_is_root(op)) part = (struct part){leaf, true, op->bytes - half, op->bytes - half, half};
    return part;
}

static bool is_shared(const struct flat_op *op)
{
    return op->inst->n == 2 && !op->inst->survives && (is_attached(op) || op->bytes >= HALVES_LEAST);
}

static uint64_t n_parts(const struct flat_op *op)
{
    if (op->call.info.kind == TUTTI_BROADCAST) return is_shared(op) || !flat_is_root(op);
    if (tutti_kind_info(op->call.info.kind)->rooted) return 1;
    return op->inst->n * (is_pushed(op) ? push_pieces(op) : 1);
}

static struct part part_of(const struct flat_op *op, uint64_t i)
{
    struct part own = {.peer = flat_root(op), .push = op->call.info.kind == TUTTI_GATHER};
    switch (op->call.info.kind) {
    case TUTTI_BROADCAST:
        return is_shared(op) ? broadcast_part(op) : (struct part){.peer = flat_root(op), .bytes = op->bytes};
    case TUTTI_GATHER:
    case TUTTI_SCATTER:
        own.bytes = own_block(op, own.push ? &own.to : &own.from);
        return own;
    default:
        return is_pushed(op) ? pushed_part(op, i) : pulled_part(op, i);
    }
}

/* ---- moving it ---- */

/* Some of a part, from op->offset on. */
static enum tutti_advance move(struct flat_op *op, const struct part *p, size_t bytes)
{
    size_t from = p->from + op->offset, to = p->to + op->offset;
    if (p->peer != op->inst->me && is_attached(op))
        return p->push ? flat_attach_write(op, p->peer, op->send + from, to, bytes)
                       : flat_attach_read(op, p->peer, op->recv + to, from, bytes);
    const unsigned char *source = op->send + p->from;
    unsigned char *out = op->recv + p->to;
    if (p->push) out = flat_peer_part(op, p->peer, false, p->to, p->bytes);
    if (!p->push) source = flat_peer_part(op, p->peer, true, p->from, p->bytes);
    if (!source || !out) return flat_lost();
    if (source != out) flat_copy(out + op->offset, source + op->offset, bytes, op->past);
    return TUTTI_RUN_DONE;
}

/* Part number op->round; others get their turn now and then. */
static enum tutti_advance move_part(struct flat_op *op)
{
    const struct part part = part_of(op, op->round);
    const size_t most = is_attached(op) && !part.push ? READ_BYTES : PAUSE_BYTES;
    while (op->offset < part.bytes) {
        size_t left = part.bytes - op->offset, some = left < most ? left : most;
        enum tutti_advance run = move(op, &part, some);
        if (run != TUTTI_RUN_DONE) return run;
        op->offset += some, op->moved += some;
        if (op->moved < most) continue;
        op->moved = 0;
        return TUTTI_RUN_MOVED;
    }
    return TUTTI_RUN_DONE;
}

/* Whether the peer's table is there: those of a v form between all go through a round of staging. */
static bool has_table(struct flat_op *op)
{
    uint32_t peer = flat_after(op->inst, (uint32_t)op->round);
    return op->n_rounds == 0 || peer == op->inst->me || flat_staged(op, peer, op->n_rounds);
}

static bool agrees(const struct flat_op *op)
{
    size_t at, bytes;
    enum tutti_kind kind = op->call.info.kind;
    if (kind == TUTTI_ALL_TO_ALL) return flat_table_agrees(op, flat_after(op->inst, (uint32_t)op->round));
    if (!op->call.bind.v || flat_is_root(op) || kind == TUTTI_ALL_GATHER) return true;
    bytes = flat_block_published(op, &at);
    if (bytes == op->bytes) return true;
    uint32_t me = op->inst->me, root = flat_root(op);
    return kind == TUTTI_GATHER ? flat_disagree(me, op->bytes, root, bytes) : flat_disagree(root, bytes, me, op->bytes);
}

/* The root of a halved broadcast has to know the leaf's buffer. */
static bool leaf_is_there(struct flat_op *op)
{
    const bool asks = op->call.info.kind == TUTTI_BROADCAST && is_shared(op) && flat_is_root(op);
    return !asks || flat_posted(op, 1 - op->inst->me);
}

/* Nobody reads or writes this rank's buffers any more. */
static bool is_released(struct flat_op *op)
{
    const bool rooted = tutti_kind_info(op->call.info.kind)->rooted;
    if (!rooted || (op->call.info.kind == TUTTI_BROADCAST && is_shared(op))) return flat_meet(op) == TUTTI_RUN_DONE;
    return !flat_is_root(op) || flat_left(op);
}

enum move_state { MOVE_TABLE, MOVE_LEAF, MOVE_PARTS, MOVE_END };

enum tutti_advance flat_move(struct flat_op *op)
{
    switch ((enum move_state)op->at) {
    case MOVE_TABLE:
        if (op->n_rounds > 0 && !flat_round_room(op, 0)) return TUTTI_RUN_BLOCKED;
        if (op->n_rounds > 0) flat_table_put(op), flat_stage(op);
        op->at = MOVE_LEAF;
        __attribute__((fallthrough));
    case MOVE_LEAF:
        if (!leaf_is_there(op)) return TUTTI_RUN_BLOCKED;
        op->at = MOVE_PARTS;
        __attribute__((fallthrough));
    case MOVE_PARTS:
        for (; op->round < n_parts(op); op->round++, op->offset = 0) {
            if (!has_table(op)) return TUTTI_RUN_BLOCKED;
            if (!agrees(op)) return TUTTI_RUN_FAILED;
            const enum tutti_advance run = move_part(op);
            if (run != TUTTI_RUN_DONE) return run;
        }
        flat_fence();
        if (op->n_rounds > 0) flat_has_read(op, op->n_rounds);
        op->at = MOVE_END;
        __attribute__((fallthrough));
    case MOVE_END:
        break;
    }
    return is_released(op) ? TUTTI_RUN_DONE : TUTTI_RUN_BLOCKED;
}

/* ---- broadcast of a mapped buffer among many: each fetches a part, and all take the parts from one another, so that
 * not all read the same memory ---- */

/* Where part i of a round is in the buffer, and its bytes. Round u has a part for each rank but the root. */
static size_t spread_part(const struct flat_op *op, uint64_t u, uint32_t i, size_t *at)
{
    size_t begin = (u * (op->inst->n - 1) + i) * SPREAD_PART;
    *at = begin < op->bytes ? begin : op->bytes;
    return op->bytes - *at < SPREAD_PART ? op->bytes - *at : SPREAD_PART;
}

/* The i-th rank after this one that is not the root. */
static uint32_t holder(const struct flat_op *op, uint32_t i)
{
    uint32_t n = op->inst->n - 1, mine = op->inst->me - (op->inst->me > flat_root(op)), at = (mine + i) % n;
    return at + (at >= flat_root(op));
}

/* A part from its holder; from the root where the holder's buffer is private, or is this rank. */
static bool fetch(struct flat_op *op, uint32_t from)
{
    size_t at, bytes = spread_part(op, op->round, from - (from > flat_root(op)), &at);
    bool direct = from == op->inst->me ||
                  !(atomic_load_explicit(&flat_post_of(op, from)->facts, memory_order_relaxed) & FLAT_RECV_MAPPED);
    const unsigned char *source = flat_peer_part(op, direct ? flat_root(op) : from, direct, 0, op->bytes);
    if (source) flat_copy(op->recv + at, source + at, bytes, !direct && op->past);
    return source != NULL;
}

/* A round: the own part, then those of the others. */
static enum tutti_advance spread_round(struct flat_op *op)
{
    if (op->peer == 0) {
        if (!fetch(op, op->inst->me)) return flat_lost();
        flat_stage(op);
        op->peer = 1;
    }
    for (; op->peer < op->inst->n - 1; op->peer++) {
        const uint32_t from = holder(op, op->peer);
        if (!flat_posted(op, from) || !flat_staged(op, from, op->round + 1)) return TUTTI_RUN_BLOCKED;
        if (!fetch(op, from)) return flat_lost();
    }
    op->peer = 0;
    return TUTTI_RUN_DONE;
}

static enum tutti_advance spread(struct flat_op *op)
{
    const uint64_t per_round = (uint64_t)SPREAD_PART * (op->inst->n - 1);
    for (; !flat_is_root(op) && op->round * per_round < op->bytes; op->round++) {
        const enum tutti_advance run = spread_round(op);
        if (run != TUTTI_RUN_DONE) return run;
    }
    flat_fence();
    return flat_meet(op);
}

enum tutti_advance flat_move_broadcast(struct flat_op *op)
{
    bool spreads = op->inst->n >= SPREAD_RANKS && op->bytes / SPREAD_PART >= op->inst->n - 1;
    return spreads ? spread(op) : flat_move(op);
}

/* ---- all_to_all of mapped buffers in place: each pair swaps, half by half ---- */

static void swap(unsigned char *a, unsigned char *b, size_t bytes)
{
    _Alignas(TUTTI_CACHE_LINE) unsigned char block[FLAT_BLOCK_BYTES];
    for (size_t at = 0; at < bytes; at += sizeof(block)) {
        size_t some = bytes - at < sizeof(block) ? bytes - at : sizeof(block);
        memcpy(block, a + at, some);
        memcpy(a + at, b + at, some);
        memcpy(b + at, block, some);
    }
}

/* This rank's half of what it swaps with the peer, from op->offset on. */
static size_t swap_left(const struct flat_op *op, uint32_t peer, size_t *at)
{
    size_t half = op->bytes / 2, bytes = peer < op->inst->me ? op->bytes - half : half;
    *at = (peer < op->inst->me ? half : 0) + op->offset;
    return bytes > op->offset ? bytes - op->offset : 0;
}

static enum tutti_advance swap_piece(struct flat_op *op, uint32_t peer)
{
    size_t at, bytes = swap_left(op, peer, &at);
    unsigned char *theirs = flat_peer_part(op, peer, false, 0, flat_recv_bytes(op));
    if (!theirs) return flat_lost();
    swap(op->recv + peer * op->bytes + at, theirs + op->inst->me * op->bytes + at,
         bytes < PAUSE_BYTES ? bytes : PAUSE_BYTES);
    return TUTTI_RUN_DONE;
}

enum tutti_advance flat_swap(struct flat_op *op)
{
    size_t at;
    if (op->peer == 0) op->peer = 1;
    for (; op->peer < op->inst->n; op->peer++, op->offset = 0) {
        const uint32_t peer = flat_after(op->inst, op->peer);
        if (swap_left(op, peer, &at) == 0) continue;
        const enum tutti_advance run = swap_piece(op, peer);
        op->offset += PAUSE_BYTES;
        return run == TUTTI_RUN_DONE ? TUTTI_RUN_MOVED : run;
    }
    return flat_meet(op);
}

/* ---- where they fit ---- */

/* v: the places of the blocks, as a round of staging. */
void flat_move_start(struct flat_op *op)
{
    op->n_rounds = op->tables && op->call.info.kind == TUTTI_ALL_TO_ALL;
    flat_rounds_place(op, op->inst->chunk);
}

bool flat_move_fits(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    switch (call->info.kind) {
    case TUTTI_BROADCAST:
        return inst->n > 1 && flat_block_bytes(inst, call) >= BROADCAST_LEAST;
    case TUTTI_GATHER:
    case TUTTI_SCATTER:
        return inst->n > 1 && (!call->bind.v || inst->n <= FLAT_PUBLISHED_RANKS) &&
               flat_block_bytes(inst, call) >= BLOCK_LEAST;
    default:
        return inst->n > 1;
    }
}

/* In v forms displacements may differ between ranks, so nobody knows where its block belongs in their buffers. */
bool flat_push_fits(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    return inst->n > 1 && !call->bind.v;
}

/* In v forms nobody knows where the blocks of others lie, unless each sends only one. */
bool flat_attach_fits(const struct flat_instance *inst, const struct tutti_backend_call *call)
{
    return !inst->addresses && flat_move_fits(inst, call) && !(call->bind.v && call->info.kind == TUTTI_ALL_TO_ALL);
}
