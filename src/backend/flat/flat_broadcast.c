/* SPDX-License-Identifier: BSD-3-Clause */
/* broadcast: from the root to all, or, among many ranks, to the leaders of groups, who hand on what they got. Small: in
 * lines. Private buffers: rounds through the staging memory of root and leaders; who gives needs not wait for who takes
 * until its slots are full. When the root's buffer is mapped, the others read it in place. Of two ranks both copy a
 * half; among many each fetches a part and all take the parts from one another, so that not all read the same memory.
 */
#include "backend/flat/flat.h"

#define PAUSE_BYTES ((size_t)256 << 10) /* moved at one go */
#define MAPPED_LEAST ((size_t)8 << 10)  /* less is gone from the root sooner when it is copied */
#define HALVES_LEAST ((size_t)64 << 10)
#define SPREAD_RANKS 4
#define SPREAD_PART ((size_t)32 << 10)

/* Whom this rank takes from: its leader, of which the root's is the root. */
static uint32_t giver(const struct flat_op *op)
{
    uint32_t leader = flat_leader(op, op->lane->me);
    return leader == op->lane->me ? flat_root(op) : leader;
}

static bool takes_from(const struct flat_op *op, uint32_t rank, uint32_t from)
{
    uint32_t leader = flat_leader(op, rank);
    return rank != from && (leader == rank ? flat_root(op) == from : leader == from);
}

/* The root, and leaders: the last group may be a leader alone. */
static bool gives(const struct flat_op *op)
{
    uint32_t me = op->lane->me;
    return flat_is_root(op) || (flat_leader(op, me) == me && me + 1 < op->lane->n);
}

/* ---- lines ---- */

static enum tutti_advance in_lines(struct flat_op *op)
{
    FLAT_BEGIN(op->at)
    if (!flat_is_root(op)) {
        FLAT_WAIT(flat_lines_there(op, giver(op), 0));
        flat_lines_part(op, giver(op), 0, 0, op->bytes, op->recv);
    }
    if (gives(op) && op->n_put == 0) flat_lines_put(op, 0, op->recv, op->bytes);
    FLAT_END;
}

/* ---- staging ---- */

static void start(struct flat_op *op)
{
    flat_cut_small(op, op->bytes);
}

static void first(struct flat_op *op)
{
    memcpy(flat_slot_in(op, op->lane->me, 0), op->send, flat_piece(op, op->bytes, 0));
}

/* Before its first slot is used again a rank knows that all are done with the operations before; from then on only
 * those who take from it matter. */
static bool room(struct flat_op *op, uint64_t round)
{
    const struct flat_lane *lane = op->lane;
    if (round < FLAT_SLOTS || flat_group(lane) == lane->n) return flat_round_room(op, round);
    for (uint32_t r = 0; r < lane->n; r++)
        if (takes_from(op, r, lane->me) &&
            !flat_reached(op, r, flat_flag(op, r, FLAT_READ), lane->rounds + round + 1 - FLAT_SLOTS))
            return false;
    return true;
}

static void give(struct flat_op *op, uint64_t u)
{
    const unsigned char *source = flat_is_root(op) ? op->send + u * op->piece : flat_slot_in(op, giver(op), u);
    memcpy(flat_slot_in(op, op->lane->me, u), source, flat_piece(op, op->bytes, u));
    flat_stage(op);
}

static void take(struct flat_op *op, uint64_t u)
{
    const unsigned char *source = flat_slot_in(op, gives(op) ? op->lane->me : giver(op), u);
    flat_copy(op->recv + u * op->piece, source, flat_piece(op, op->bytes, u), op->bytes >= TUTTI_PAST_CACHE_BYTES);
}

static enum tutti_advance staged(struct flat_op *op)
{
    FLAT_BEGIN(op->at)
    if (!flat_is_root(op) && op->n_rounds > 0) FLAT_WAIT(flat_posted(op, giver(op)));
    for (op->round = 0; op->round < op->n_rounds; op->round++) {
        if (!flat_is_root(op)) FLAT_WAIT(flat_staged(op, giver(op), op->round + 1));
        if (gives(op) && op->round >= op->staged) {
            FLAT_WAIT(room(op, op->round));
            give(op, op->round);
        }
        if (!flat_is_root(op)) take(op, op->round);
        flat_has_read(op, op->round + 1);
    }
    if (op->bytes >= TUTTI_PAST_CACHE_BYTES) flat_fence();
    FLAT_END;
}

/* ---- the root's buffer is mapped ---- */

/* Bytes that the root itself copies, at the end: of two ranks each copies a half if it can write to the other's buffer.
 */
static size_t pushed(const struct flat_op *op)
{
    uint32_t leaf = flat_is_root(op) ? 1 - op->lane->me : op->lane->me;
    uint64_t facts = atomic_load_explicit(&flat_post_of(op, leaf)->facts, memory_order_relaxed);
    return facts & FLAT_RECV_MAPPED ? op->bytes / 2 / TUTTI_CACHE_LINE * TUTTI_CACHE_LINE : 0;
}

/* The window at op->offset of what the root holds, to the leaf's buffer; false: it can not be mapped. */
static bool copy_window(struct flat_op *op, size_t end)
{
    uint32_t leaf = flat_is_root(op) ? 1 - op->lane->me : op->lane->me;
    const unsigned char *from = flat_peer_part(op, flat_root(op), true, 0, op->bytes);
    unsigned char *to = flat_peer_part(op, leaf, false, 0, op->bytes);
    size_t some = end - op->offset < PAUSE_BYTES ? end - op->offset : PAUSE_BYTES;
    if (from && to) flat_copy(to + op->offset, from + op->offset, some, op->bytes >= TUTTI_PAST_CACHE_BYTES);
    return from && to;
}

static enum tutti_advance share(struct flat_op *op)
{
    FLAT_BEGIN(op->at)
    if (flat_is_root(op)) FLAT_WAIT(flat_posted(op, 1 - op->lane->me));
    for (op->offset = flat_is_root(op) ? op->bytes - pushed(op) : 0;
         op->offset < (flat_is_root(op) ? op->bytes : op->bytes - pushed(op)); op->offset += PAUSE_BYTES) {
        if (!copy_window(op, flat_is_root(op) ? op->bytes : op->bytes - pushed(op))) return flat_lost();
        FLAT_PAUSE();
    }
    flat_fence();
    FLAT_MEET(op);
    FLAT_END;
}

static enum tutti_advance pull(struct flat_op *op)
{
    FLAT_BEGIN(op->at)
    for (op->offset = 0; !flat_is_root(op) && op->offset < op->bytes; op->offset += PAUSE_BYTES) {
        const unsigned char *from = flat_peer_part(op, flat_root(op), true, 0, op->bytes);
        size_t left = op->bytes - op->offset, some = left < PAUSE_BYTES ? left : PAUSE_BYTES;
        if (!from) return flat_lost();
        flat_copy(op->recv + op->offset, from + op->offset, some, op->bytes >= TUTTI_PAST_CACHE_BYTES);
        if (left > PAUSE_BYTES) FLAT_PAUSE();
    }
    flat_fence();
    if (flat_is_root(op)) FLAT_WAIT(flat_left(op));
    FLAT_END;
}

/* Of part i of a round, where it is in the buffer, and its bytes. Round u has a part for each rank but the root. */
static size_t part_of(const struct flat_op *op, uint64_t u, uint32_t i, size_t *at)
{
    size_t begin = (u * (op->lane->n - 1) + i) * SPREAD_PART;
    *at = begin < op->bytes ? begin : op->bytes;
    return op->bytes - *at < SPREAD_PART ? op->bytes - *at : SPREAD_PART;
}

/* The i-th rank after this one that is not the root. */
static uint32_t holder(const struct flat_op *op, uint32_t i)
{
    uint32_t n = op->lane->n - 1, mine = op->lane->me - (op->lane->me > flat_root(op)), at = (mine + i) % n;
    return at + (at >= flat_root(op));
}

/* A part from its holder; from the root where the holder's buffer is private, or is this rank. */
static bool fetch(struct flat_op *op, uint32_t from)
{
    size_t at, bytes = part_of(op, op->round, from - (from > flat_root(op)), &at);
    bool direct = from == op->lane->me ||
                  !(atomic_load_explicit(&flat_post_of(op, from)->facts, memory_order_relaxed) & FLAT_RECV_MAPPED);
    const unsigned char *source = flat_peer_part(op, direct ? flat_root(op) : from, direct, 0, op->bytes);
    if (source) flat_copy(op->recv + at, source + at, bytes, !direct && op->bytes >= TUTTI_PAST_CACHE_BYTES);
    return source != NULL;
}

static enum tutti_advance spread(struct flat_op *op)
{
    uint64_t per_round = (uint64_t)SPREAD_PART * (op->lane->n - 1);
    FLAT_BEGIN(op->at)
    for (op->round = 0; !flat_is_root(op) && op->round * per_round < op->bytes; op->round++) {
        if (!fetch(op, op->lane->me)) return flat_lost();
        flat_stage(op);
        for (op->peer = 1; op->peer < op->lane->n - 1; op->peer++) {
            FLAT_WAIT(flat_posted(op, holder(op, op->peer)));
            FLAT_WAIT(flat_staged(op, holder(op, op->peer), op->round + 1));
            if (!fetch(op, holder(op, op->peer))) return flat_lost();
        }
    }
    flat_fence();
    FLAT_MEET(op);
    FLAT_END;
}

static enum tutti_advance mapped(struct flat_op *op)
{
    bool spreads = op->lane->n >= SPREAD_RANKS && op->bytes / SPREAD_PART >= op->lane->n - 1;
    if (op->lane->n == 2 && op->bytes >= HALVES_LEAST) return share(op);
    return spreads ? spread(op) : pull(op);
}

/* ---- fits and costs ---- */

static bool fits_lines(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return lane->n > 1 && flat_block_bytes(lane, call) <= FLAT_LINE_MAX;
}

static bool fits_mapped(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return lane->n > 1 && flat_block_bytes(lane, call) >= MAPPED_LEAST;
}

const struct flat_method flat_line_broadcast = {
    .name = "line", .kind = TUTTI_BROADCAST, .fits = fits_lines, .cost_ns = flat_cost_line, .advance = in_lines};
const struct flat_method flat_stage_broadcast = {.name = "stage",
                                                 .kind = TUTTI_BROADCAST,
                                                 .who = FLAT_ROOT,
                                                 .fits = flat_fits_staging,
                                                 .cost_ns = flat_cost_stage,
                                                 .start = start,
                                                 .first = first,
                                                 .advance = staged};
const struct flat_method flat_mapped_broadcast = {.name = "mapped",
                                                  .kind = TUTTI_BROADCAST,
                                                  .needs = FLAT_SEND_MAPPED,
                                                  .fits = fits_mapped,
                                                  .cost_ns = flat_cost_mapped,
                                                  .advance = mapped};
