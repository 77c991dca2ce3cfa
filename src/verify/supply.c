/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps on demand for columns: which blocks there are, a cache of those that were generated last, and the searches over
 * them. A search goes backwards from where it is likely to find, so that it looks at few steps. */

#include "verify/column.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FEW_ROUNDS = 256,
    FEW_STEPS = 1 << 17,   /* that few rounds may have together to be one block, if all are like the first */
    STEPS_OF_BLOCK = 32,   /* for rounds of few steps: as many are generated at once */
    MOST_CACHED = 8192,    /* blocks */
    CACHE_BYTES = 1 << 28, /* as far as blocks are as large as the first; twice as many at most */
    SCAN_A_STEP = 8,       /* steps that are looked at in the time in which one is generated */
    ASKED_OFTEN = 32,      /* searches of a whole rank after which its writes are listed, */
    MOST_LISTED = 1 << 24  /* if these are not more */
};

struct tutti_block {
    uint32_t rank, block; /* rank + 1; 0: empty */
    struct tutti_rounds rounds;
};

struct tutti_listed { /* a chunk that a step writes */
    uint8_t buffer;
    uint32_t chunk, block, index;
    struct tutti_step step;
};

enum tutti_status tutti_supply_init(struct tutti_supply *supply, const struct tutti_algorithm *algorithm,
                                    enum tutti_kind kind, const struct tutti_shape *shape,
                                    const struct tutti_schedule *const *sealed)
{
    struct tutti_rounds first = {0};
    *supply = (struct tutti_supply){
        .algorithm = algorithm, .kind = kind, .shape = *shape, .sealed = sealed, .most_work = UINT64_MAX};
    supply->shape.slot = 0;
    if (sealed) {
        supply->n_chunks = sealed[0]->n_chunks, supply->n_rounds = sealed[0]->n_rounds, supply->n_blocks = 1;
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_schedule_rounds(algorithm, kind, &supply->shape, 0, 1, &first));
    supply->n_chunks = first.n_chunks, supply->n_rounds = first.n_rounds;
    snprintf(supply->defect, sizeof supply->defect, "%s", first.defect);
    const uint32_t first_n = first.n;
    const bool whole = first.n_rounds <= FEW_ROUNDS && (uint64_t)first_n * first.n_rounds <= FEW_STEPS;
    const uint64_t bytes = (uint64_t)(first_n + 1) * sizeof *first.steps * (whole ? first.n_rounds + 1 : 1);
    tutti_rounds_fini(&first);
    supply->per_block = supply->n_rounds;
    if (!whole && supply->n_rounds > 1)
        supply->per_block = first_n < STEPS_OF_BLOCK ? STEPS_OF_BLOCK / (first_n + 1) + 1 : 1;
    supply->n_blocks = supply->n_rounds ? (supply->n_rounds + supply->per_block - 1) / supply->per_block : 1;
    supply->n_cache = bytes * MOST_CACHED < CACHE_BYTES ? MOST_CACHED : (uint32_t)(CACHE_BYTES / bytes) + 4;
    supply->cache = tutti_alloc_array(supply->n_cache, sizeof *supply->cache);
    supply->numbers = tutti_alloc_array(shape->size, 2 * sizeof *supply->numbers);
    return supply->cache && supply->numbers ? TUTTI_OK
                                            : tutti_fail(TUTTI_ERR_MEMORY, "no memory to check %u ranks", shape->size);
}

static void cache_empty(struct tutti_supply *supply)
{
    for (uint32_t i = 0; supply->cache && i < supply->n_cache; i++) {
        tutti_rounds_fini(&supply->cache[i].rounds);
        supply->cache[i] = (struct tutti_block){0};
    }
    supply->n_held = 0;
}

void tutti_supply_fini(struct tutti_supply *supply)
{
    cache_empty(supply);
    tutti_free(supply->listed);
    tutti_free(supply->cache);
    tutti_free(supply->numbers);
}

/* Numbers the messages of a block by peer, from 0. */
static void number_messages(struct tutti_supply *supply, struct tutti_step *steps, uint32_t n)
{
    uint32_t *sent = supply->numbers, *received = supply->numbers + supply->shape.size;
    for (uint32_t i = 0; i < n; i++) {
        if (!tutti_step_is_message(&steps[i])) continue;
        steps[i].fifo = (tutti_step_sends(&steps[i]) ? sent : received)[steps[i].peer]++;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (tutti_step_is_message(&steps[i])) sent[steps[i].peer] = received[steps[i].peer] = 0;
    }
}

static enum tutti_status generate(struct tutti_supply *supply, uint32_t rank, uint32_t block, struct tutti_block *out)
{
    struct tutti_shape shape = supply->shape;
    shape.slot = rank;
    if (supply->n_held > 2 * (uint64_t)CACHE_BYTES / sizeof(struct tutti_step)) cache_empty(supply);
    out->rank = 0;
    supply->n_held -= out->rounds.capacity;
    const enum tutti_status status = tutti_schedule_rounds(supply->algorithm, supply->kind, &shape,
                                                           block * supply->per_block, supply->per_block, &out->rounds);
    supply->n_held += out->rounds.capacity;
    TUTTI_TRY(status);
    if (out->rounds.defect[0]) {
        snprintf(supply->defect, sizeof supply->defect, "%s", out->rounds.defect);
        return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s", out->rounds.defect);
    }
    number_messages(supply, out->rounds.steps, out->rounds.n);
    out->rank = rank + 1, out->block = block;
    supply->work += out->rounds.n + 1;
    if (supply->work <= supply->most_work) return TUTTI_OK;
    return tutti_fail(TUTTI_ERR_UNSUPPORTED, "%s %s of %u ranks takes more than %.3g steps to look at",
                      supply->algorithm->name, tutti_kind_name(supply->kind), shape.size, (double)supply->most_work);
}

const struct tutti_step *tutti_supply_steps(struct tutti_supply *supply, uint32_t rank, uint32_t block, uint32_t *n,
                                            enum tutti_status *status)
{
    static const struct tutti_step none;
    if (supply->sealed) {
        *n = supply->sealed[rank]->n_steps;
        return *n ? supply->sealed[rank]->steps : &none;
    }
    struct tutti_block *cached = &supply->cache[(rank + (uint64_t)block * 37) % supply->n_cache];
    if (cached->rank != rank + 1 || cached->block != block) {
        if ((*status = generate(supply, rank, block, cached)) < 0) return NULL;
    }
    *n = cached->rounds.n;
    return *n ? cached->rounds.steps : &none;
}

/* ---- the writes of one rank, of which much is asked ---- */

static int by_chunk(const void *a, const void *b)
{
    const struct tutti_listed *x = a, *y = b;
    if (x->buffer != y->buffer) return x->buffer < y->buffer ? -1 : 1;
    if (x->chunk != y->chunk) return x->chunk < y->chunk ? -1 : 1;
    if (x->block != y->block) return x->block < y->block ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void list_step(struct tutti_supply *supply, uint32_t block, uint32_t index, const struct tutti_step *step)
{
    for (uint32_t i = 0; i < step->n; i++)
        supply->listed[supply->n_listed++] =
            (struct tutti_listed){step->dst_buffer, step->dst + i, block, index, *step};
}

/* Twice over all blocks: to count, then to list. Where they are too many there is no list. */
static enum tutti_status list_writes(struct tutti_supply *supply, uint32_t rank)
{
    enum tutti_status status = TUTTI_OK;
    uint64_t n_writes = 0;
    tutti_free(supply->listed);
    supply->listed = NULL, supply->n_listed = 0, supply->listed_rank = rank;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t b = 0; b < supply->n_blocks; b++) {
            uint32_t n;
            const struct tutti_step *steps = tutti_supply_steps(supply, rank, b, &n, &status);
            if (!steps) return status;
            for (uint32_t i = 0; i < n; i++) {
                if (!tutti_step_writes_dst(&steps[i])) continue;
                if (pass == 0)
                    n_writes += steps[i].n;
                else
                    list_step(supply, b, i, &steps[i]);
            }
        }
        if (pass == 1 || n_writes > MOST_LISTED) break;
        supply->listed = tutti_alloc_array((size_t)n_writes + 1, sizeof *supply->listed);
        if (!supply->listed) return tutti_fail(TUTTI_ERR_MEMORY, "no memory to list %zu writes", (size_t)n_writes);
    }
    if (supply->n_listed > 1) qsort(supply->listed, supply->n_listed, sizeof *supply->listed, by_chunk);
    return TUTTI_OK;
}

/* Whether the rank's writes are listed, as they are when it has been asked often. */
static enum tutti_status is_listed(struct tutti_supply *supply, uint32_t rank, bool *listed)
{
    *listed = false;
    if (supply->sealed || supply->n_blocks == 1) return TUTTI_OK;
    if (supply->asking != rank) supply->asking = rank, supply->n_asked = 0;
    if (++supply->n_asked == ASKED_OFTEN && !(supply->listed && supply->listed_rank == rank))
        TUTTI_TRY(list_writes(supply, rank));
    *listed = supply->listed && supply->listed_rank == rank;
    return TUTTI_OK;
}

/* The last one of the list before a place. */
static void find_listed(struct tutti_supply *supply, const struct tutti_column_place *before, uint8_t buffer,
                        uint32_t chunk, struct tutti_write *out)
{
    const struct tutti_listed wanted = {buffer, chunk, before->block, before->index, {0}};
    size_t low = 0, high = supply->n_listed;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (by_chunk(&supply->listed[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    supply->work++;
    if (low == 0) return;
    const struct tutti_listed *last = &supply->listed[low - 1];
    if (last->buffer != buffer || last->chunk != chunk) return;
    out->found = true, out->step = last->step;
    out->place = (struct tutti_column_place){before->rank, last->block, last->index};
}

enum tutti_status tutti_supply_last_write(struct tutti_supply *supply, const struct tutti_column_place *before,
                                          uint8_t buffer, uint32_t chunk, uint32_t n_back, struct tutti_write *out)
{
    enum tutti_status status = TUTTI_OK;
    uint32_t end = before->index;
    bool listed = false;
    *out = (struct tutti_write){.looked_at_all = true};
    if (n_back == UINT32_MAX) TUTTI_TRY(is_listed(supply, before->rank, &listed));
    if (listed) {
        find_listed(supply, before, buffer, chunk, out);
        return TUTTI_OK;
    }
    for (uint32_t b = before->block + 1; b > 0; b--, end = UINT32_MAX) {
        uint32_t n;
        out->looked_at_all = before->block + 1 - b < n_back;
        if (!out->looked_at_all) return TUTTI_OK;
        if (b > supply->n_blocks) continue;
        const struct tutti_step *steps = tutti_supply_steps(supply, before->rank, b - 1, &n, &status);
        if (!steps) return status;
        for (uint32_t i = end < n ? end : n; i > 0; i--) {
            const struct tutti_step *step = &steps[i - 1];
            if (!tutti_step_writes_dst(step) || step->dst_buffer != buffer) continue;
            if (chunk < step->dst || chunk - step->dst >= step->n) continue;
            *out = (struct tutti_write){
                .found = true, .place = {before->rank, b - 1, i - 1}, .step = *step, .looked_at_all = true};
            supply->work += (n - i) / SCAN_A_STEP;
            return TUTTI_OK;
        }
        supply->work += n / SCAN_A_STEP;
    }
    return TUTTI_OK;
}

/* The send with this number in a block, searched from an index to both sides. */
static bool send_near(const struct tutti_step *steps, uint32_t n, uint32_t at, uint32_t to, uint32_t fifo,
                      uint32_t *index)
{
    for (uint32_t d = 0; d <= n; d++) {
        const uint32_t sides[] = {at + d, at - d};
        for (uint32_t k = 0; k < 2; k++) {
            if (sides[k] >= n || !tutti_step_sends(&steps[sides[k]])) continue;
            if (steps[sides[k]].peer != to || steps[sides[k]].fifo != fifo) continue;
            *index = sides[k];
            return true;
        }
        if (d > at && at + d >= n) return false;
    }
    return false;
}

/* The send with this number among all of a rank to another. */
static enum tutti_status count_sends(struct tutti_supply *supply, uint32_t from, uint32_t to, uint64_t number,
                                     struct tutti_write *out)
{
    enum tutti_status status = TUTTI_OK;
    for (uint32_t b = 0; b < supply->n_blocks; b++) {
        uint32_t n;
        const struct tutti_step *steps = tutti_supply_steps(supply, from, b, &n, &status);
        if (!steps) return status;
        for (uint32_t i = 0; i < n; i++) {
            if (!tutti_step_sends(&steps[i]) || steps[i].peer != to || number-- > 0) continue;
            *out = (struct tutti_write){.found = true, .place = {from, b, i}, .step = steps[i]};
            return TUTTI_OK;
        }
    }
    return TUTTI_OK;
}

enum tutti_status tutti_supply_send_of(struct tutti_supply *supply, const struct tutti_column_place *recv,
                                       const struct tutti_step *step, struct tutti_write *out)
{
    enum tutti_status status = TUTTI_OK;
    uint32_t n, index;
    *out = (struct tutti_write){0};
    const struct tutti_step *steps = tutti_supply_steps(supply, step->peer, recv->block, &n, &status);
    if (!steps) return status;
    const uint32_t at = recv->index < n ? recv->index : n;
    if ((!supply->exact || supply->n_blocks == 1) && send_near(steps, n, at, recv->rank, step->fifo, &index)) {
        *out = (struct tutti_write){.found = true, .place = {step->peer, recv->block, index}, .step = steps[index]};
        return TUTTI_OK;
    }
    if (supply->n_blocks == 1) return TUTTI_OK;
    uint64_t number = step->fifo; /* among all: those of the blocks before come first */
    for (uint32_t b = 0; b < recv->block; b++) {
        steps = tutti_supply_steps(supply, recv->rank, b, &n, &status);
        if (!steps) return status;
        for (uint32_t i = 0; i < n; i++) number += tutti_step_receives(&steps[i]) && steps[i].peer == step->peer;
    }
    return count_sends(supply, step->peer, recv->rank, number, out);
}

/* Moves on to the next message of a rank with a peer, to it or from it; *n_chunks is 0 at the end. */
static enum tutti_status next_message(struct tutti_supply *supply, struct tutti_column_place *at, uint32_t peer,
                                      bool sends, uint32_t *n_chunks)
{
    enum tutti_status status = TUTTI_OK;
    *n_chunks = 0;
    for (; at->block < supply->n_blocks; at->block++, at->index = 0) {
        uint32_t n;
        const struct tutti_step *steps = tutti_supply_steps(supply, at->rank, at->block, &n, &status);
        if (!steps) return status;
        for (; at->index < n; at->index++) {
            const struct tutti_step *step = &steps[at->index];
            if (!tutti_step_is_message(step) || step->peer != peer || tutti_step_sends(step) != sends) continue;
            *n_chunks = step->n;
            at->index++;
            return TUTTI_OK;
        }
    }
    return TUTTI_OK;
}

enum tutti_status tutti_supply_compare_channel(struct tutti_supply *supply, uint32_t from, uint32_t to, uint32_t *bad)
{
    struct tutti_column_place sent = {.rank = from}, received = {.rank = to};
    for (uint32_t k = 0;; k++) {
        uint32_t a, b;
        TUTTI_TRY(next_message(supply, &sent, to, true, &a));
        TUTTI_TRY(next_message(supply, &received, from, false, &b));
        *bad = a == b ? TUTTI_NO_INDEX : k;
        if (a != b || a == 0) return TUTTI_OK;
    }
}
