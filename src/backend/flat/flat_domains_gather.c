/* SPDX-License-Identifier: BSD-3-Clause */
/* all_gather among ranks of several domains: each rank fetches the blocks of its twins, which have its place in the
 * other domains, and from there the ranks of its domain take them; so every block crosses once to each domain. As in
 * flat_domains_reduce.c nobody is asked whether slots may be used again. That rests on the order in a step: what mates
 * have fetched is taken before more is fetched, so that who sees a rank's fetched round knows that it has taken the one
 * before that. */
#include "backend/flat/flat.h"

#define PIECE_BYTES ((size_t)64 << 10) /* of a mapped block, in a round */

enum { FETCH = 1, TAKE = 2 };

static bool is_large(const struct flat_op *op)
{
    return op->bytes >= TUTTI_PAST_CACHE_BYTES / op->lane->n;
}

static bool is_step(const struct flat_op *op, uint64_t late)
{
    return op->round >= late && op->round - late < op->n_rounds;
}

static bool is_fetched(struct flat_op *op, uint32_t peer, uint64_t n)
{
    return flat_reached(op, peer, flat_flag(op, peer, FLAT_PASSED), op->lane->rounds + n);
}

/* Of rank r's block in round u: its bytes, and where they are in the output. */
static size_t piece_of(const struct flat_op *op, uint32_t r, uint64_t u, size_t *at)
{
    size_t bytes = flat_piece(op, flat_block(op, r, at), u);
    *at += u * op->piece;
    return bytes;
}

static void copy_own(struct flat_op *op, uint64_t u, bool past)
{
    size_t at, bytes = piece_of(op, op->lane->me, u, &at);
    const unsigned char *from = op->send + u * op->piece;
    if (bytes > 0 && op->recv + at != from) flat_copy(op->recv + at, from, bytes, past);
}

/* ---- private buffers ---- */

static void start(struct flat_op *op)
{
    flat_cut(op, op->bytes, op->lane->domains.n - 1);
}

static void stage_own(struct flat_op *op, uint64_t u)
{
    size_t at, bytes = piece_of(op, op->lane->me, u, &at);
    if (bytes > 0) memcpy(flat_slot_in(op, op->lane->me, u), op->send + u * op->piece, bytes);
    copy_own(op, u, is_large(op));
}

static void first(struct flat_op *op)
{
    stage_own(op, 0);
}

/* Where a rank keeps what it fetched of its twin in domain k. */
static unsigned char *kept(const struct flat_op *op, uint32_t rank, uint32_t k, uint64_t u)
{
    uint32_t domain = tutti_domain_of(&op->lane->domains, rank);
    return flat_slot_out(op, rank, u) + (k - (k > domain)) * op->piece;
}

static void fetch(struct flat_op *op, uint64_t u, uint32_t k)
{
    const struct flat_lane *lane = op->lane;
    size_t at, bytes = piece_of(op, flat_twin(lane, k), u, &at);
    if (bytes == 0) return;
    memcpy(kept(op, lane->me, k, u), flat_slot_in(op, flat_twin(lane, k), u), bytes);
    flat_copy(op->recv + at, kept(op, lane->me, k, u), bytes, is_large(op));
}

static void take(struct flat_op *op, uint64_t u, uint32_t mate)
{
    const struct flat_lane *lane = op->lane;
    for (uint32_t k = 0; k < lane->domains.n; k++) {
        uint32_t r = tutti_domain_slot(&lane->domains, k, tutti_domain_index(&lane->domains, mate));
        size_t at, bytes = piece_of(op, r, u, &at);
        const unsigned char *from = r == mate ? flat_slot_in(op, mate, u) : kept(op, mate, k, u);
        if (bytes > 0) flat_copy(op->recv + at, from, bytes, is_large(op));
    }
}

static enum tutti_advance staged(struct flat_op *op)
{
    const struct flat_lane *lane = op->lane;
    FLAT_BEGIN(op->at)
    for (op->round = 0; op->round < op->n_rounds + TAKE; op->round++) {
        if (is_step(op, 0) && op->round >= op->staged) {
            stage_own(op, op->round);
            flat_stage(op);
        }
        if (is_step(op, TAKE)) {
            for (op->peer = 1; op->peer < lane->domains.size; op->peer++) {
                FLAT_WAIT(is_fetched(op, flat_mate(lane, op->peer), op->round - 1));
                take(op, op->round - TAKE, flat_mate(lane, op->peer));
            }
            flat_has_read(op, op->round - 1);
        }
        if (is_step(op, FETCH)) {
            for (op->peer = 0; op->peer < lane->domains.n; op->peer++) {
                if (op->peer == lane->domain) continue;
                FLAT_WAIT(flat_staged(op, flat_twin(lane, op->peer), op->round));
                fetch(op, op->round - FETCH, op->peer);
            }
            flat_raise(op, FLAT_PASSED, lane->rounds + op->round);
        }
    }
    if (is_large(op)) flat_fence();
    FLAT_END;
}

/* ---- mapped buffers: what is fetched lies in the output, and mates take it from there ---- */

static void start_mapped(struct flat_op *op)
{
    op->piece = PIECE_BYTES;
    op->n_rounds = (op->bytes + op->piece - 1) / op->piece;
}

static bool fetch_mapped(struct flat_op *op, uint64_t u)
{
    const struct flat_lane *lane = op->lane;
    copy_own(op, u, false);
    for (uint32_t k = 0; k < lane->domains.n; k++) {
        size_t at, bytes = piece_of(op, flat_twin(lane, k), u, &at);
        if (k == lane->domain || bytes == 0) continue;
        const unsigned char *from = flat_peer_send(op, flat_twin(lane, k));
        if (!from) return false;
        memcpy(op->recv + at, from + u * op->piece, bytes);
    }
    return true;
}

static bool take_mapped(struct flat_op *op, uint64_t u, uint32_t mate)
{
    const struct flat_lane *lane = op->lane;
    const unsigned char *theirs = flat_peer_recv(op, mate);
    for (uint32_t k = 0; k < lane->domains.n && theirs; k++) {
        uint32_t r = tutti_domain_slot(&lane->domains, k, tutti_domain_index(&lane->domains, mate));
        size_t at, bytes = piece_of(op, r, u, &at);
        if (bytes > 0) flat_copy(op->recv + at, theirs + at, bytes, is_large(op));
    }
    return theirs;
}

static enum tutti_advance mapped(struct flat_op *op)
{
    const struct flat_lane *lane = op->lane;
    FLAT_BEGIN(op->at)
    for (op->round = 0; op->round < op->n_rounds + FETCH; op->round++) {
        if (is_step(op, 0)) {
            if (!fetch_mapped(op, op->round)) return flat_lost();
            flat_raise(op, FLAT_PASSED, lane->rounds + op->round + 1);
        }
        if (is_step(op, FETCH)) {
            for (op->peer = 1; op->peer < lane->domains.size; op->peer++) {
                FLAT_WAIT(is_fetched(op, flat_mate(lane, op->peer), op->round));
                if (!take_mapped(op, op->round - FETCH, flat_mate(lane, op->peer))) return flat_lost();
            }
            FLAT_PAUSE();
        }
    }
    flat_fence();
    flat_has_read(op, op->n_rounds);
    FLAT_MEET(op);
    FLAT_END;
}

static bool fits(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    (void)call;
    return lane->domains.n > 1 && lane->chunk > 0;
}

static bool fits_mapped(const struct flat_lane *lane, const struct tutti_backend_call *call)
{
    return fits(lane, call) && !call->bind.v && flat_domains_pay(lane, call); /* v: displacements may differ */
}

const struct flat_method flat_domains_all_gather = {.name = "domains",
                                                    .kind = TUTTI_ALL_GATHER,
                                                    .who = FLAT_ALL,
                                                    .fits = fits,
                                                    .cost_ns = flat_cost_domains,
                                                    .start = start,
                                                    .first = first,
                                                    .advance = staged};
const struct flat_method flat_domains_mapped_all_gather = {.name = "mapped-domains",
                                                           .kind = TUTTI_ALL_GATHER,
                                                           .needs = FLAT_SEND_MAPPED | FLAT_RECV_MAPPED,
                                                           .fits = fits_mapped,
                                                           .cost_ns = flat_cost_domains_mapped,
                                                           .start = start_mapped,
                                                           .advance = mapped};
