/* SPDX-License-Identifier: BSD-3-Clause */
/* scan and exscan: a prefix of the ranks' order to each. Small: in lines, of which a rank reads those of the ranks
 * below it, or, among many, of those in its group and of the groups below. Private buffers: two ways through staging.
 * In slices each rank makes all prefixes of a slice, so that nobody waits for more than two others in a row; in a chain
 * each takes the prefix of the rank below and hands on its own, which moves less and takes as many steps as there are
 * ranks. Mapped buffers: slices, from all inputs straight to all outputs. Operands keep the order of ranks everywhere.
 */
#include "backend/flat/flat.h"

#define PAUSE_BYTES ((size_t)128 << 10) /* of all ranks' results, made at one go */
#define CHAIN_PIECE 32768.0             /* about what a step of the chain hands over */
#define MAPPED_LEAST ((size_t)4 << 10)

static bool includes_own(const struct flat_op *op)
{
    return op->call.info.kind == TUTTI_SCAN;
}

static bool is_last(const struct flat_op *op)
{
    return op->lane->me + 1 == op->lane->n;
}

static bool is_past(const struct flat_op *op)
{
    return op->bytes >= TUTTI_PAST_CACHE_BYTES && op->send != op->recv;
}

/* ---- lines: level 0 is what ranks give, level 1 what groups give, put there by the last of each ---- */

static uint32_t group_begin(const struct flat_op *op)
{
    return op->lane->me - op->lane->me % flat_group(op->lane);
}

static bool ends_group(const struct flat_op *op)
{
    return (op->lane->me + 1) % flat_group(op->lane) == 0 && !is_last(op);
}

static void put_own(struct flat_op *op)
{
    if (op->n_put > 0) return; /* by flat_tiny */
    _Alignas(TUTTI_CACHE_LINE) unsigned char own[FLAT_LINE_ROOM];
    flat_take(op, own, op->send, op->bytes);
    flat_lines_put(op, 0, own, op->bytes);
}

/* What ranks from, from + step, ... below `end` put at a level, in `sum`. */
static void fold_lines(const struct flat_op *op, uint32_t level, uint32_t from, uint32_t end, uint32_t step,
                       unsigned char *sum)
{
    _Alignas(TUTTI_CACHE_LINE) unsigned char next[FLAT_LINE_ROOM];
    flat_lines_part(op, from, level, 0, op->bytes, sum);
    for (uint32_t r = from + step; r < end; r += step) {
        flat_lines_part(op, r, level, 0, op->bytes, next);
        flat_fold(op, sum, sum, next, op->bytes);
    }
}

/* The prefix inside the group, to the output; the last of a group tells the whole to those above. */
static void fold_group(struct flat_op *op)
{
    _Alignas(TUTTI_CACHE_LINE) unsigned char sum[FLAT_LINE_ROOM];
    uint32_t me = op->lane->me, from = group_begin(op), end = me + includes_own(op);
    if (ends_group(op)) {
        fold_lines(op, 0, from, me + 1, 1, sum);
        flat_lines_put(op, 1, sum, op->bytes);
    }
    if (end == from) return;
    fold_lines(op, 0, from, end, 1, sum);
    memcpy(op->recv, sum, op->bytes);
}

/* The groups below before the prefix inside the own. */
static void fold_groups(struct flat_op *op)
{
    _Alignas(TUTTI_CACHE_LINE) unsigned char sum[FLAT_LINE_ROOM];
    uint32_t from = group_begin(op), group = flat_group(op->lane);
    if (from > 0) {
        fold_lines(op, 1, group - 1, from, group, sum);
        if (op->lane->me + includes_own(op) > from) flat_fold(op, sum, sum, op->recv, op->bytes);
        memcpy(op->recv, sum, op->bytes);
    }
    flat_divide(op, op->recv, op->bytes);
}

static enum tutti_advance in_lines(struct flat_op *op)
{
    FLAT_BEGIN(op->at)
    put_own(op);
    for (op->peer = group_begin(op); op->peer < op->lane->me; op->peer++) FLAT_WAIT(flat_lines_there(op, op->peer, 0));
    fold_group(op);
    for (op->peer = flat_group(op->lane) - 1; op->peer < group_begin(op); op->peer += flat_group(op->lane))
        FLAT_WAIT(flat_lines_there(op, op->peer, 1));
    if (op->recv) fold_groups(op);
    FLAT_END;
}

/* ---- slices through staging ---- */

static void start_slices(struct flat_op *op)
{
    uint32_t n = op->lane->n;
    flat_cut(op, (op->bytes + n - 1) / n, n); /* the prefixes of a slice have room in a slot */
    op->piece *= n;
    op->n_rounds = (op->bytes + op->piece - 1) / op->piece;
}

/* Who folds for others must know by how much they divide. */
static uint64_t tell(const struct flat_op *op)
{
    return op->call.bind.divide ? op->call.bind.divisor : 0;
}

static void first(struct flat_op *op)
{
    if (op->n_rounds > 0) flat_take(op, flat_slot_in(op, op->lane->me, 0), op->send, flat_piece(op, op->bytes, 0));
}

/* Slice i of round u. */
static size_t slice_of(const struct flat_op *op, uint64_t u, uint32_t i, size_t *at)
{
    return flat_part(op, flat_piece(op, op->bytes, u), op->lane->n, i, at);
}

/* The prefixes of the own slice, one behind the other, in the slot of results. */
static void make_prefixes(struct flat_op *op, uint64_t u)
{
    const struct flat_lane *lane = op->lane;
    unsigned char *out = flat_slot_out(op, lane->me, u);
    size_t at, bytes = slice_of(op, u, lane->me, &at);
    if (bytes > 0) memcpy(out, flat_slot_in(op, 0, u) + at, bytes);
    for (uint32_t r = 1; bytes > 0 && r + !includes_own(op) < lane->n; r++)
        flat_fold(op, out + r * bytes, out + (r - 1) * bytes, flat_slot_in(op, r, u) + at, bytes);
    flat_raise(op, FLAT_FOLDED, lane->rounds + u + 1);
}

static void copy_out(struct flat_op *op, uint64_t u, uint32_t peer)
{
    size_t at, bytes = slice_of(op, u, peer, &at);
    unsigned char *to = op->recv + u * op->piece + at;
    if (bytes == 0) return;
    const unsigned char *from = flat_slot_out(op, peer, u) + (op->lane->me - !includes_own(op)) * bytes;
    flat_copy(to, from, bytes, is_past(op) && !op->call.bind.divide);
    flat_divide(op, to, bytes);
}

static enum tutti_advance in_slices(struct flat_op *op)
{
    const struct flat_lane *lane = op->lane;
    FLAT_BEGIN(op->at)
    for (op->round = 0; op->round < op->n_rounds + 2; op->round++) {
        if (op->round < op->n_rounds && op->round >= op->staged) {
            FLAT_WAIT(flat_round_room(op, op->round));
            flat_take(op, flat_slot_in(op, lane->me, op->round), op->send + op->round * op->piece,
                      flat_piece(op, op->bytes, op->round));
            flat_stage(op);
        }
        if (op->round >= 1 && op->round <= op->n_rounds) {
            for (op->peer = 1; op->peer < lane->n; op->peer++)
                FLAT_WAIT(flat_staged(op, flat_after(lane, op->peer), op->round));
            make_prefixes(op, op->round - 1);
        }
        if (op->round < 2) continue;
        for (op->peer = 0; op->recv && op->peer < lane->n; op->peer++) {
            FLAT_WAIT(flat_reached(op, flat_after(lane, op->peer),
                                   flat_flag(op, flat_after(lane, op->peer), FLAT_FOLDED),
                                   lane->rounds + op->round - 1));
            copy_out(op, op->round - 2, flat_after(lane, op->peer));
        }
        flat_has_read(op, op->round - 1);
    }
    flat_fence();
    FLAT_END;
}

/* ---- a chain through staging ---- */

static void start_chain(struct flat_op *op)
{
    flat_cut_small(op, op->bytes);
}

/* The rank above has read what this round replaces; before that, all are done with the operations before. */
static bool room(struct flat_op *op, uint64_t round)
{
    uint32_t above = op->lane->me + 1;
    if (is_last(op)) return true;
    if (round < FLAT_SLOTS) return flat_round_room(op, round);
    return flat_reached(op, above, flat_flag(op, above, FLAT_READ), op->lane->rounds + round + 1 - FLAT_SLOTS);
}

static bool below_there(struct flat_op *op, uint64_t round)
{
    uint32_t below = op->lane->me - 1;
    return op->lane->me == 0 ||
           flat_reached(op, below, flat_flag(op, below, FLAT_FOLDED), op->lane->rounds + round + 1);
}

/* A block of the result, which `whole` holds before it is divided. */
static void give_out(const struct flat_op *op, size_t at, const unsigned char *whole, size_t bytes)
{
    if (!op->recv || (op->lane->me == 0 && !includes_own(op))) return;
    flat_copy(op->recv + at, whole, bytes, is_past(op) && !op->call.bind.divide);
    flat_divide(op, op->recv + at, bytes);
}

/* What the rank below handed over, then this rank's own: to the rank above, and to the output. */
static void link(struct flat_op *op, uint64_t u)
{
    _Alignas(TUTTI_CACHE_LINE) unsigned char own[FLAT_BLOCK_BYTES], last[FLAT_BLOCK_BYTES];
    uint32_t me = op->lane->me;
    const unsigned char *below = me > 0 ? flat_slot_out(op, me - 1, u) : NULL;
    unsigned char *above = flat_slot_out(op, me, u);
    size_t at = u * op->piece, bytes = flat_piece(op, op->bytes, u);

    for (size_t done = 0; done < bytes; done += FLAT_BLOCK_BYTES) {
        size_t some = bytes - done < FLAT_BLOCK_BYTES ? bytes - done : FLAT_BLOCK_BYTES;
        unsigned char *with = is_last(op) ? last : above + done;
        const unsigned char *mine = op->send + at + done;
        if (op->call.bind.scale) flat_take(op, own, mine, some), mine = own;
        if (below)
            flat_fold(op, with, below + done, mine, some);
        else
            memcpy(with, mine, some);
        give_out(op, at + done, includes_own(op) ? with : below + done, some);
    }
    if (!is_last(op)) flat_raise(op, FLAT_FOLDED, op->lane->rounds + u + 1);
}

static enum tutti_advance in_chain(struct flat_op *op)
{
    FLAT_BEGIN(op->at)
    for (op->round = 0; op->round < op->n_rounds; op->round++) {
        FLAT_WAIT(room(op, op->round));
        FLAT_WAIT(below_there(op, op->round));
        link(op, op->round);
        flat_has_read(op, op->round + 1);
    }
    flat_fence();
    FLAT_END;
}

/* ---- mapped ---- */

static uint32_t divisor_of(const struct flat_op *op, uint32_t r)
{
    return (uint32_t)(atomic_load_explicit(&flat_post_of(op, r)->facts, memory_order_relaxed) >> FLAT_NUMBER_SHIFT);
}

static void store(const struct flat_op *op, uint32_t r, unsigned char *to, const unsigned char *from, size_t bytes)
{
    const struct tutti_bind *bind = &op->call.bind;
    if (bind->divide)
        bind->divide(to, from, bytes / op->element, divisor_of(op, r));
    else
        flat_copy(to, from, bytes, op->bytes >= TUTTI_PAST_CACHE_BYTES);
}

/* A block of all ranks: an input is read before the output is written that may be the same memory. */
static bool sweep(struct flat_op *op, size_t at, size_t bytes)
{
    _Alignas(TUTTI_CACHE_LINE) unsigned char sums[2][FLAT_BLOCK_BYTES];
    for (uint32_t r = 0; r < op->lane->n; r++) {
        const unsigned char *in = flat_peer_part(op, r, true, 0, op->bytes), *before = sums[(r + 1) % 2];
        unsigned char *sum = sums[r % 2], *out = NULL;
        if (r > 0 || includes_own(op)) out = flat_peer_part(op, r, false, 0, op->bytes);
        if (!in || (!out && (r > 0 || includes_own(op)))) return false;
        if (r == 0)
            memcpy(sum, in + at, bytes);
        else
            flat_fold(op, sum, before, in + at, bytes);
        if (out) store(op, r, out + at, includes_own(op) ? sum : before, bytes);
    }
    return true;
}

static enum tutti_advance mapped(struct flat_op *op)
{
    size_t at, bytes = flat_part(op, op->bytes, op->lane->n, op->lane->me, &at);
    FLAT_BEGIN(op->at)
    for (op->offset = 0; op->offset < bytes; op->offset += FLAT_BLOCK_BYTES) {
        size_t left = bytes - op->offset;
        if (!sweep(op, at + op->offset, left < FLAT_BLOCK_BYTES ? left : FLAT_BLOCK_BYTES)) return flat_lost();
        if (op->offset / FLAT_BLOCK_BYTES % (PAUSE_BYTES / FLAT_BLOCK_BYTES / op->lane->n + 1) == 0) FLAT_PAUSE();
    }
    flat_fence();
    FLAT_MEET(op);
    FLAT_END;
}

/* ---- fits and costs ---- */

static bool fits_lines(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    bool in_order = !lane->reproducible || flat_group(lane) == lane->n; /* from left to right, not by groups */
    return lane->n > 1 && flat_block_bytes(lane, call) <= FLAT_LINE_MAX && in_order;
}

static bool fits_slices(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return flat_fits_staging(lane, call) && lane->chunk / lane->n >= TUTTI_CACHE_LINE;
}

static bool fits_mapped(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return lane->n > 1 && flat_block_bytes(lane, call) >= MAPPED_LEAST && !call->bind.scale;
}

/* In, through the fold and out, whatever the number of ranks. */
static double cost_slices(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    double bytes = (double)flat_block_bytes(lane, call), pull = tutti_machine_pull(&lane->machine, lane->n);
    double waits = 3 * (double)lane->machine.line_ns + (lane->crowded ? 3.0 * lane->n * lane->machine.yield_ns : 0);
    return waits * (1 + bytes / (double)lane->chunk) + bytes / lane->machine.copy_gbs + bytes / lane->machine.fold_gbs +
           2 * bytes / pull;
}

/* A step for each rank, then everything once more in rounds that overlap. */
static double cost_chain(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    double bytes = (double)flat_block_bytes(lane, call), pull = tutti_machine_pull(&lane->machine, lane->n);
    double piece = bytes / 4 < CHAIN_PIECE ? bytes / 4 : CHAIN_PIECE;
    double hop = 2 * (double)lane->machine.line_ns + (lane->crowded ? (double)lane->machine.yield_ns : 0);
    return (lane->n - 1) * (hop + piece / pull + piece / lane->machine.copy_gbs) + hop * bytes / CHAIN_PIECE +
           bytes / pull + bytes / lane->machine.copy_gbs;
}

#define METHODS(kind_name, kind_value)                                                                                 \
    const struct flat_method flat_line_##kind_name = {                                                                 \
        .name = "line", .kind = (kind_value), .fits = fits_lines, .cost_ns = flat_cost_line, .advance = in_lines};     \
    const struct flat_method flat_stage_##kind_name = {.name = "stage",                                                \
                                                       .kind = (kind_value),                                           \
                                                       .who = FLAT_ALL,                                                \
                                                       .fits = fits_slices,                                            \
                                                       .cost_ns = cost_slices,                                         \
                                                       .start = start_slices,                                          \
                                                       .tell = tell,                                                   \
                                                       .first = first,                                                 \
                                                       .advance = in_slices};                                          \
    const struct flat_method flat_chain_##kind_name = {.name = "chain",                                                \
                                                       .kind = (kind_value),                                           \
                                                       .who = FLAT_ALL,                                                \
                                                       .fits = flat_fits_staging,                                      \
                                                       .cost_ns = cost_chain,                                          \
                                                       .start = start_chain,                                           \
                                                       .tell = tell,                                                   \
                                                       .advance = in_chain};                                           \
    const struct flat_method flat_mapped_##kind_name = {.name = "mapped",                                              \
                                                        .kind = (kind_value),                                          \
                                                        .needs = FLAT_SEND_MAPPED | FLAT_RECV_MAPPED,                  \
                                                        .fits = fits_mapped,                                           \
                                                        .cost_ns = flat_cost_mapped,                                   \
                                                        .advance = mapped};
METHODS(scan, TUTTI_SCAN)
METHODS(exscan, TUTTI_EXSCAN)
