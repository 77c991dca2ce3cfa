/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions among ranks of several domains (sockets, caches), so that data cross from one to another once: the ranks
 * of a domain fold their own inputs in slices; each rank folds the partial results of its twins, which have its place
 * in the other domains; what came out is spread inside the domain. All in rounds that overlap, through slots of
 * staging.
 *
 * A slot is used again after FLAT_SLOTS rounds, and nobody is asked whether it may be: in step t - 1 a rank waits for
 * what its readers do in their step t - 2 or later, and they read what is replaced in step t before that. */
#include "backend/flat/flat.h"

/* How many steps after a round is staged its partial results, its results and its end are due. */
enum { PARTIAL = 1, RESULT = 2, OUT = 3 };

static bool is_large(const struct flat_op *op)
{
    size_t all = op->call.info.kind == TUTTI_REDUCE_SCATTER ? op->lane->n : 1;
    return op->bytes >= TUTTI_PAST_CACHE_BYTES / all;
}

static bool own_is_staged(const struct flat_op *op)
{
    return op->call.bind.scale != NULL;
}

/* Where this rank's partial results of a round lie, and its result. */
static unsigned char *partial(const struct flat_op *op, uint32_t rank, uint64_t u)
{
    return flat_slot_out(op, rank, u);
}

static unsigned char *result(const struct flat_op *op, uint32_t rank, uint64_t u)
{
    return flat_slot_out(op, rank, u) + op->lane->chunk / 2;
}

static bool is_passed(struct flat_op *op, uint32_t peer, uint64_t n)
{
    return flat_reached(op, peer, flat_flag(op, peer, FLAT_PASSED), op->lane->rounds + n);
}

static bool is_folded(struct flat_op *op, uint32_t peer, uint64_t n)
{
    return flat_reached(op, peer, flat_flag(op, peer, FLAT_FOLDED), op->lane->rounds + n);
}

/* Folds what twins have at `at` of their partial results to some places. */
static void fold_twins(struct flat_op *op, uint64_t u, size_t at, size_t bytes, unsigned char *const *dst,
                       uint32_t n_dst, uint32_t n_past)
{
    const struct flat_lane *lane = op->lane;
    const unsigned char *sources[FLAT_MAX_RANKS];
    for (uint32_t k = 0; k < lane->domains.n; k++) sources[k] = partial(op, flat_twin(lane, k), u);
    if (bytes > 0) flat_fold_all(op, dst, n_dst, n_past, sources, lane->domains.n, at, bytes);
}

/* ---- all_reduce of private buffers ---- */

static size_t slice(const struct flat_op *op, uint64_t u, uint32_t index, size_t *at)
{
    return flat_part(op, flat_piece(op, op->bytes, u), op->lane->domains.size, index, at);
}

static void start_all_reduce(struct flat_op *op)
{
    flat_cut(op, op->bytes, 1);
}

static void stage_slices(struct flat_op *op, uint64_t u)
{
    const struct flat_lane *lane = op->lane;
    unsigned char *slot = flat_slot_in(op, lane->me, u);
    for (uint32_t i = 0; i < lane->domains.size; i++) {
        size_t at, bytes = slice(op, u, i, &at);
        if (bytes == 0 || (i == lane->index && !own_is_staged(op))) continue;
        flat_take(op, slot + at, op->send + u * op->piece + at, bytes);
    }
}

static void first_all_reduce(struct flat_op *op)
{
    stage_slices(op, 0);
}

static void fold_slice(struct flat_op *op, uint64_t u)
{
    const struct flat_lane *lane = op->lane;
    const unsigned char *sources[FLAT_MAX_RANKS];
    size_t at, bytes = slice(op, u, lane->index, &at);
    for (uint32_t i = 0; i < lane->domains.size; i++) {
        uint32_t r = tutti_domain_slot(&lane->domains, lane->domain, i);
        sources[i] = flat_slot_in(op, r, u);
        if (r == lane->me && !own_is_staged(op)) sources[i] = op->send + u * op->piece;
    }
    if (bytes > 0) flat_fold_part(op, partial(op, lane->me, u), sources, lane->domains.size, at, bytes);
}

static void fold_result(struct flat_op *op, uint64_t u)
{
    size_t at, bytes = slice(op, u, op->lane->index, &at);
    unsigned char *dst[] = {result(op, op->lane->me, u), op->recv + u * op->piece + at};
    fold_twins(op, u, 0, bytes, dst, 2, is_large(op));
}

static void copy_out(struct flat_op *op, uint64_t u, uint32_t peer)
{
    size_t at, bytes = slice(op, u, tutti_domain_index(&op->lane->domains, peer), &at);
    flat_copy(op->recv + u * op->piece + at, result(op, peer, u), bytes, is_large(op));
}

/* Whether step t has something to do for a round `late` steps before it. */
static bool is_step(const struct flat_op *op, uint64_t late)
{
    return op->round >= late && op->round - late < op->n_rounds;
}

static enum tutti_advance all_reduce(struct flat_op *op)
{
    const struct flat_lane *lane = op->lane;
    FLAT_BEGIN(op->at)
    for (op->round = 0; op->round < op->n_rounds + OUT; op->round++) {
        if (is_step(op, 0) && op->round >= op->staged) {
            stage_slices(op, op->round);
            flat_stage(op);
        }
        if (is_step(op, PARTIAL)) {
            for (op->peer = 1; op->peer < lane->domains.size; op->peer++)
                FLAT_WAIT(flat_staged(op, flat_mate(lane, op->peer), op->round));
            fold_slice(op, op->round - PARTIAL);
            flat_raise(op, FLAT_PASSED, lane->rounds + op->round);
        }
        if (is_step(op, RESULT)) {
            for (op->peer = 0; op->peer < lane->domains.n; op->peer++)
                FLAT_WAIT(is_passed(op, flat_twin(lane, op->peer), op->round - 1));
            fold_result(op, op->round - RESULT);
            flat_raise(op, FLAT_FOLDED, lane->rounds + op->round - 1);
        }
        if (is_step(op, OUT)) {
            for (op->peer = 1; op->peer < lane->domains.size; op->peer++) {
                FLAT_WAIT(is_folded(op, flat_mate(lane, op->peer), op->round - 2));
                copy_out(op, op->round - OUT, flat_mate(lane, op->peer));
            }
            flat_has_read(op, op->round - 2);
        }
    }
    if (is_large(op)) flat_fence();
    FLAT_END;
}

/* ---- all_reduce of mapped buffers: nothing is staged, and results are stored to all of the domain ---- */

static size_t whole_slice(const struct flat_op *op, uint32_t index, size_t *at)
{
    return flat_part(op, op->bytes, op->lane->domains.size, index, at);
}

static void start_mapped(struct flat_op *op)
{
    size_t at;
    flat_cut(op, whole_slice(op, 0, &at), 1);
}

static bool fold_inputs(struct flat_op *op, uint64_t u)
{
    const struct flat_lane *lane = op->lane;
    const unsigned char *sources[FLAT_MAX_RANKS];
    size_t at, bytes = flat_piece(op, whole_slice(op, lane->index, &at), u);
    for (uint32_t i = 0; i < lane->domains.size; i++) {
        sources[i] = flat_peer_send(op, tutti_domain_slot(&lane->domains, lane->domain, i));
        if (!sources[i]) return false;
    }
    at += u * op->piece;
    if (bytes > 0) flat_fold_part(op, partial(op, lane->me, u), sources, lane->domains.size, at, bytes);
    return true;
}

static bool push_result(struct flat_op *op, uint64_t u)
{
    const struct flat_lane *lane = op->lane;
    unsigned char *outputs[FLAT_MAX_RANKS];
    size_t at, bytes = flat_piece(op, whole_slice(op, lane->index, &at), u);
    for (uint32_t i = 0; i < lane->domains.size; i++) {
        unsigned char *output = flat_peer_recv(op, flat_mate(lane, i));
        if (!output) return false;
        outputs[i] = output + at + u * op->piece;
    }
    fold_twins(op, u, 0, bytes, outputs, lane->domains.size, is_large(op) ? lane->domains.size : 0);
    return true;
}

static enum tutti_advance mapped_all_reduce(struct flat_op *op)
{
    const struct flat_lane *lane = op->lane;
    FLAT_BEGIN(op->at)
    for (op->round = 0; op->round < op->n_rounds + PARTIAL; op->round++) {
        if (is_step(op, 0)) {
            if (!fold_inputs(op, op->round)) return flat_lost();
            flat_raise(op, FLAT_PASSED, lane->rounds + op->round + 1);
        }
        if (is_step(op, PARTIAL)) {
            for (op->peer = 0; op->peer < lane->domains.n; op->peer++)
                FLAT_WAIT(is_passed(op, flat_twin(lane, op->peer), op->round));
            if (!push_result(op, op->round - PARTIAL)) return flat_lost();
            FLAT_PAUSE();
        }
    }
    flat_fence();
    flat_has_read(op, op->n_rounds);
    FLAT_MEET(op);
    FLAT_END;
}

/* ---- reduce_scatter: a rank folds, of its domain's inputs, the blocks of its twins ---- */

static void start_private_blocks(struct flat_op *op)
{
    flat_cut(op, op->bytes, op->lane->n);
}

static void start_mapped_blocks(struct flat_op *op)
{
    flat_cut(op, op->bytes, op->lane->domains.n);
}

/* Of block r in round u: its bytes, and where they are in the inputs. */
static size_t piece_of(const struct flat_op *op, uint32_t r, uint64_t u, size_t *at)
{
    size_t bytes = flat_piece(op, flat_block(op, r, at), u);
    *at += u * op->piece;
    return bytes;
}

static void stage_blocks(struct flat_op *op, uint64_t u)
{
    const struct flat_lane *lane = op->lane;
    unsigned char *slot = flat_slot_in(op, lane->me, u);
    for (uint32_t r = 0; r < lane->n; r++) {
        size_t at, bytes = piece_of(op, r, u, &at);
        bool own = tutti_domain_index(&lane->domains, r) == lane->index;
        if (bytes > 0 && (!own || own_is_staged(op))) flat_take(op, slot + r * op->piece, op->send + at, bytes);
    }
}

static void first_blocks(struct flat_op *op)
{
    stage_blocks(op, 0);
}

static void fold_staged_blocks(struct flat_op *op, uint64_t u)
{
    const struct flat_lane *lane = op->lane;
    const unsigned char *sources[FLAT_MAX_RANKS];
    for (uint32_t k = 0; k < lane->domains.n; k++) {
        uint32_t twin = flat_twin(lane, k);
        size_t at, bytes = piece_of(op, twin, u, &at);
        for (uint32_t i = 0; i < lane->domains.size; i++) {
            uint32_t r = tutti_domain_slot(&lane->domains, lane->domain, i);
            sources[i] = flat_slot_in(op, r, u) + twin * op->piece;
            if (r == lane->me && !own_is_staged(op)) sources[i] = op->send + at;
        }
        unsigned char *out = partial(op, lane->me, u) + k * op->piece;
        if (bytes > 0) flat_fold_part(op, out, sources, lane->domains.size, 0, bytes);
    }
}

static bool fold_mapped_blocks(struct flat_op *op, uint64_t u)
{
    const struct flat_lane *lane = op->lane;
    const unsigned char *sources[FLAT_MAX_RANKS];
    for (uint32_t k = 0; k < lane->domains.n; k++) {
        size_t at, bytes = piece_of(op, flat_twin(lane, k), u, &at);
        for (uint32_t i = 0; i < lane->domains.size && bytes > 0; i++) {
            sources[i] = flat_peer_part(op, tutti_domain_slot(&lane->domains, lane->domain, i), true, at, bytes);
            if (!sources[i]) return false;
        }
        unsigned char *out = partial(op, lane->me, u) + k * op->piece;
        if (bytes > 0) flat_fold_part(op, out, sources, lane->domains.size, 0, bytes);
    }
    return true;
}

static void fold_block(struct flat_op *op, uint64_t u)
{
    size_t at, bytes = piece_of(op, op->lane->me, u, &at);
    unsigned char *out = op->recv + u * op->piece;
    fold_twins(op, u, op->lane->domain * op->piece, bytes, &out, 1, is_large(op));
}

static enum tutti_advance reduce_scatter(struct flat_op *op)
{
    const struct flat_lane *lane = op->lane;
    FLAT_BEGIN(op->at)
    for (op->round = 0; op->round < op->n_rounds + RESULT; op->round++) {
        if (is_step(op, 0) && op->round >= op->staged) {
            stage_blocks(op, op->round);
            flat_stage(op);
        }
        if (is_step(op, PARTIAL)) {
            for (op->peer = 1; op->peer < lane->domains.size; op->peer++)
                FLAT_WAIT(flat_staged(op, flat_mate(lane, op->peer), op->round));
            fold_staged_blocks(op, op->round - PARTIAL);
            flat_raise(op, FLAT_PASSED, lane->rounds + op->round);
        }
        if (is_step(op, RESULT)) {
            for (op->peer = 0; op->peer < lane->domains.n; op->peer++)
                FLAT_WAIT(is_passed(op, flat_twin(lane, op->peer), op->round - 1));
            fold_block(op, op->round - RESULT);
            flat_has_read(op, op->round - 1);
        }
    }
    if (is_large(op)) flat_fence();
    FLAT_END;
}

static enum tutti_advance mapped_reduce_scatter(struct flat_op *op)
{
    const struct flat_lane *lane = op->lane;
    FLAT_BEGIN(op->at)
    for (op->round = 0; op->round < op->n_rounds + PARTIAL; op->round++) {
        if (is_step(op, 0)) {
            if (!fold_mapped_blocks(op, op->round)) return flat_lost();
            flat_raise(op, FLAT_PASSED, lane->rounds + op->round + 1);
        }
        if (is_step(op, PARTIAL)) {
            for (op->peer = 0; op->peer < lane->domains.n; op->peer++)
                FLAT_WAIT(is_passed(op, flat_twin(lane, op->peer), op->round));
            fold_block(op, op->round - PARTIAL);
            FLAT_PAUSE();
        }
    }
    flat_fence();
    flat_has_read(op, op->n_rounds);
    FLAT_MEET(op);
    FLAT_END;
}

/* ---- the methods ---- */

/* Partial results are folded in another order than that of the ranks, unless domains follow one another and the user
 * does not ask for one grouping. */
static bool fits(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return lane->domains.n > 1 && lane->chunk > 0 && !lane->reproducible &&
           (call->commutative || !lane->domains.cyclic);
}

static bool fits_all_reduce(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return fits(lane, call) && !call->bind.v;
}

static bool fits_mapped(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return fits(lane, call) && !call->bind.scale && flat_domains_pay(lane, call);
}

const struct flat_method flat_domains_all_reduce = {.name = "domains",
                                                    .kind = TUTTI_ALL_REDUCE,
                                                    .who = FLAT_ALL,
                                                    .fits = fits_all_reduce,
                                                    .cost_ns = flat_cost_domains,
                                                    .start = start_all_reduce,
                                                    .first = first_all_reduce,
                                                    .advance = all_reduce};
const struct flat_method flat_domains_mapped_all_reduce = {.name = "mapped-domains",
                                                           .kind = TUTTI_ALL_REDUCE,
                                                           .needs = FLAT_SEND_MAPPED | FLAT_RECV_MAPPED,
                                                           .fits = fits_mapped,
                                                           .cost_ns = flat_cost_domains_mapped,
                                                           .start = start_mapped,
                                                           .advance = mapped_all_reduce};
const struct flat_method flat_domains_reduce_scatter = {.name = "domains",
                                                        .kind = TUTTI_REDUCE_SCATTER,
                                                        .who = FLAT_ALL,
                                                        .fits = fits,
                                                        .cost_ns = flat_cost_domains,
                                                        .start = start_private_blocks,
                                                        .first = first_blocks,
                                                        .advance = reduce_scatter};
const struct flat_method flat_domains_mapped_reduce_scatter = {.name = "mapped-domains",
                                                               .kind = TUTTI_REDUCE_SCATTER,
                                                               .needs = FLAT_SEND_MAPPED,
                                                               .fits = fits_mapped,
                                                               .cost_ns = flat_cost_domains_mapped,
                                                               .start = start_mapped_blocks,
                                                               .advance = mapped_reduce_scatter};
