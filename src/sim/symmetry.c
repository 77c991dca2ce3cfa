/* SPDX-License-Identifier: BSD-3-Clause */
/* Few ranks that stand for all. A ring of 131,072 ranks has 10^11 events, but all its ranks do the same: what rank r
 * does with rank p, rank 0 does with rank p - r. Then the program of rank 0 alone tells all.
 *
 * In general, let a group of turns move the ranks, each rank but for the turn by zero to another one. Here: the ranks
 * are cut into G groups of q that follow one another, and a turn by g moves group a to a + g modulo G (a rotation), or
 * to a xor g (flips). Ranks 0 .. q-1 stand for all others. A program is alike in these turns if the operations of the
 * rank (g, i) are those of (0, i), one by one - kind, size, hazards, number within the pair - but for the peer, which
 * is turned by g. Then:
 *
 *   Claim. Under a network that charges a rank by what it does itself and what reaches it, on all ranks alike,
 * operation k of (g, i) begins and ends when operation k of (0, i) does.
 *
 *   Proof. By induction over the instants of a run. Let it hold for all that was before, for all turns. The state of a
 *   rank (what its operations wait for, until when CPU and ports are taken, what waits there in which order) is made by
 *   its own events alone: by begins and ends of its own operations, and by messages that reach it. The former are the
 *   same on (g, i) and (0, i) by the claim. A message that reaches (g, i) as the k-th of its pair from (h, j) was sent
 *   by an operation that, turned by -g, is one of (h - g, j), and reaches (0, i) for the same receive; both sends began
 *   at the same time by the claim, both messages are equally long, so both arrive at the same time. What is left is the
 *   order of events of one instant at one rank. Where it does not follow from what was before, it could depend on the
 *   numbers of ranks: order.h tells where, and the run counts these places. If there are none, the claim holds at the
 *   instant, too.
 *
 * So the run of q ranks is the run of all if messages that leave a class arrive at the class of their peer, for the
 * receive of the turned rank: tutti_sim_program_seal makes the lists in which they meet so. No term of the proof asks
 * what chunks hold; their sizes must be alike.
 *
 * That ranks are alike is looked at, not believed: ranks are sealed and compared step by step. Where there are too many
 * steps for that, some ranks are drawn; then it is a sample, and the caller says so. */

#include "sim/making.h"

#include <string.h>

enum { MOST_CLASSES = 4096, PROBES = 3 };

struct search {
    const struct tutti_algorithm *algorithm;
    enum tutti_kind kind;
    struct tutti_shape shape;
    struct tutti_sim_work work;
    uint64_t most_steps;
    struct tutti_schedule **ranks; /* sealed: the ranks that stand for others */
    uint32_t n_ranks;
    uint64_t n_steps; /* theirs */
    char why[160];
};

static enum tutti_status seal(struct search *search, uint32_t slot, struct tutti_schedule **out)
{
    search->shape.slot = slot;
    TUTTI_TRY(tutti_schedule_seal(search->algorithm, search->kind, &search->shape, true, out));
    if (!(*out)->defect) return TUTTI_OK;
    enum tutti_status status = tutti_fail(TUTTI_ERR_ARGUMENT, "%s", (*out)->defect);
    tutti_schedule_destroy(*out);
    return status;
}

/* Seals ranks until there are n of them. */
static enum tutti_status seal_classes(struct search *search, uint32_t n)
{
    while (search->n_ranks < n) {
        TUTTI_TRY(seal(search, search->n_ranks, &search->ranks[search->n_ranks]));
        search->n_steps += search->ranks[search->n_ranks++]->n_steps;
    }
    return TUTTI_OK;
}

/* ---- alike ---- */

static uint64_t chunk_size(const struct search *search, uint32_t chunk)
{
    const struct tutti_schedule *first = search->ranks[0];
    uint64_t elements = search->work.block_bytes / search->work.element_bytes;
    uint32_t per_block = first->n_chunks / tutti_kind_blocks(search->kind, search->shape.size);
    return elements / per_block + (chunk % per_block < elements % per_block);
}

/* Whether the chunks of two steps that are alike otherwise are equally large, one by one. */
static bool sizes_alike(const struct search *search, const struct tutti_step *a, const struct tutti_step *b)
{
    bool in = tutti_step_reads_src(a) && a->src_buffer == TUTTI_IN;
    uint32_t x = in ? a->src : a->extent, y = in ? b->src : b->extent;
    if ((x == TUTTI_NO_EXTENT) != (y == TUTTI_NO_EXTENT)) return false;
    for (uint32_t c = 0; x != TUTTI_NO_EXTENT && c < a->n; c++)
        if (chunk_size(search, x + c) != chunk_size(search, y + c)) return false;
    return true;
}

static bool even(const struct search *search)
{
    uint64_t elements = search->work.block_bytes / search->work.element_bytes;
    return elements % (search->ranks[0]->n_chunks / tutti_kind_blocks(search->kind, search->shape.size)) == 0;
}

/* Whether rank `slot` does what the rank of its class does; else the sentence is written. */
static bool alike(struct search *search, const struct tutti_sim_turn *turn, const struct tutti_schedule *schedule)
{
    uint32_t slot = schedule->shape.slot, class = slot % turn->classes;
    const struct tutti_schedule *mine = search->ranks[class];
    bool same_sizes = even(search);
    uint32_t n = mine->n_steps < schedule->n_steps ? mine->n_steps : schedule->n_steps, i = 0;
    for (; i < n; i++) {
        const struct tutti_step *a = &mine->steps[i], *b = &schedule->steps[i];
        bool buffer = tutti_step_reads_src(a) && (a->src_buffer == TUTTI_IN) != (b->src_buffer == TUTTI_IN);
        if (a->op != b->op || a->n != b->n || a->wait != b->wait || a->fifo != b->fifo || buffer) break;
        if (tutti_step_is_message(a) && tutti_sim_turned(turn, a->peer, slot) != b->peer) break;
        if (!same_sizes && !sizes_alike(search, a, b)) break;
    }
    if (i == mine->n_steps && i == schedule->n_steps) return true;
    snprintf(search->why, sizeof(search->why), "step %u of rank %u is not that of rank %u%s", i, slot, class,
             turn->classes == 1 && !turn->flips ? "" : " in any known turn");
    return false;
}

/* Seals a rank and compares it. */
static enum tutti_status look_at(struct search *search, const struct tutti_sim_turn *turn, uint32_t slot,
                                 bool *is_alike)
{
    struct tutti_schedule *schedule;
    TUTTI_TRY(seal(search, slot, &schedule));
    *is_alike = alike(search, turn, schedule);
    tutti_schedule_destroy(schedule);
    return TUTTI_OK;
}

/* A few ranks that tell most turns that do not hold: of the next group, the last one, and the middle. */
static enum tutti_status probe(struct search *search, const struct tutti_sim_turn *turn, bool *is_alike)
{
    uint32_t groups = turn->world / turn->classes, which[PROBES] = {1, groups - 1, groups / 2};
    *is_alike = true;
    for (int p = 0; p < PROBES; p++)
        for (uint32_t i = 0; i < turn->classes && *is_alike; i++)
            TUTTI_TRY(look_at(search, turn, which[p] * turn->classes + i, is_alike));
    return TUTTI_OK;
}

/* All ranks, or as many as have most_steps steps. */
static enum tutti_status compare(struct search *search, const struct tutti_sim_turn *turn, bool *is_alike,
                                 uint32_t *n_compared)
{
    /* A chunk takes a tenth of the time of a step to seal. */
    uint64_t mean = search->n_steps / turn->classes + search->ranks[0]->n_chunks / 10 + 1,
             most = search->most_steps / mean;
    bool all = most >= turn->world;
    uint32_t n = all ? turn->world : (uint32_t)most;
    for (uint32_t i = 0; i < n && *is_alike; i++) {
        uint32_t slot = all ? i : (uint32_t)(tutti_mix64(i) % turn->world);
        if (slot >= turn->classes) TUTTI_TRY(look_at(search, turn, slot, is_alike));
        if (search->work.progress) search->work.progress(search->work.argument, i + 1, n);
    }
    *n_compared = all ? n : n + PROBES * turn->classes;
    return TUTTI_OK;
}

/* ---- the turn ---- */

static enum tutti_status try_turn(struct search *search, const struct tutti_sim_turn *turn, bool *is_alike,
                                  uint32_t *n_compared)
{
    TUTTI_TRY(seal_classes(search, turn->classes));
    TUTTI_TRY(probe(search, turn, is_alike));
    if (*is_alike) TUTTI_TRY(compare(search, turn, is_alike, n_compared));
    return TUTTI_OK;
}

/* Tries groups of one rank, then those of the levels; rotations, then flips. */
static enum tutti_status find(struct search *search, struct tutti_sim_turn *turn, uint32_t *n_compared)
{
    const struct tutti_shape *shape = &search->shape;
    uint32_t q = 1;
    for (uint32_t l = 0; l <= shape->n_levels; l++) {
        uint32_t groups = shape->size / q;
        bool fits = q <= MOST_CLASSES && groups >= 2 && shape->size % q == 0;
        for (int flips = 0; fits && flips <= ((groups & (groups - 1)) == 0 && groups > 2); flips++) {
            bool is_alike = false;
            *turn = (struct tutti_sim_turn){shape->size, q, flips};
            TUTTI_TRY(try_turn(search, turn, &is_alike, n_compared));
            if (is_alike) return TUTTI_OK;
        }
        if (l == shape->n_levels || shape->levels[l].n_runs != 1) break;
        q *= shape->levels[l].runs[0].size;
    }
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "no rank stands for others: %s",
                      search->why[0] ? search->why : "there are too few");
}

static enum tutti_status make(struct search *search, const struct tutti_sim_turn *turn, struct tutti_sim_program *out)
{
    struct tutti_sim_program program;
    struct making making;
    TUTTI_TRY(tutti_sim_program_init(&program, turn->classes));
    program.turn = *turn;
    enum tutti_status status = tutti_sim_making_open(&making, &search->work, &program);
    for (uint32_t i = 0; i < turn->classes && status >= 0; i++)
        status = tutti_sim_making_add(&making, search->ranks[i], i);
    tutti_sim_making_close(&making);
    if (status >= 0) status = tutti_sim_program_seal(&program);
    if (status < 0)
        tutti_sim_program_fini(&program);
    else
        *out = program;
    return status;
}

/* Makes the blocks so large that all chunks are of one size; false: they are. */
static bool round_up(struct search *search)
{
    if (even(search)) return false;
    uint64_t elements = search->work.block_bytes / search->work.element_bytes;
    uint32_t per_block = search->ranks[0]->n_chunks / tutti_kind_blocks(search->kind, search->shape.size);
    search->work.block_bytes = (elements / per_block + 1) * per_block * search->work.element_bytes;
    return true;
}

enum tutti_status tutti_sim_program_reduce(const struct tutti_algorithm *algorithm, enum tutti_kind kind,
                                           const struct tutti_shape *shape, const struct tutti_sim_work *work,
                                           uint64_t most_steps, bool rounded, struct tutti_sim_program *out,
                                           struct tutti_sim_symmetry *symmetry)
{
    struct search search = {
        .algorithm = algorithm, .kind = kind, .shape = *shape, .work = *work, .most_steps = most_steps};
    struct tutti_sim_turn turn;
    *symmetry = (struct tutti_sim_symmetry){0};
    search.ranks = tutti_alloc_array(MOST_CLASSES, sizeof(*search.ranks));
    if (!search.ranks) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for schedules");
    enum tutti_status status = find(&search, &turn, &symmetry->n_compared);
    if (status == TUTTI_ERR_UNSUPPORTED && rounded && search.n_ranks > 0 && round_up(&search)) {
        symmetry->rounded = true;
        status = find(&search, &turn, &symmetry->n_compared);
    }
    symmetry->block_bytes = search.work.block_bytes;
    if (status >= 0) status = make(&search, &turn, out);
    for (uint32_t i = 0; i < search.n_ranks; i++) tutti_schedule_destroy(search.ranks[i]);
    tutti_free(search.ranks);
    return status;
}
