/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine of executor.h. A chunk is three integers: a sum, a word (for which order counts, but not how it is
 * bracketed) and a fold (for which both count), and a number of elements. What is read where nothing is, or in another
 * size than it has, is noise. */

#include "verify/executor.h"

#include <stdio.h>
#include <string.h>

struct value {
    uint64_t sum, word, power, fold, replica;
    uint64_t elements; /* 0: nothing is here */
};
enum state { IDLE, STARTED, SENT, COMPLETE }; /* SENT: a short message that waits in the channel */
struct rank {
    const struct tutti_schedule *schedule;
    struct value *input, *data, *scratch, *in;
    uint8_t *state;
    bool *is_short;
    struct value **mail; /* by step: what a short message holds */
    uint32_t oldest;
    bool come;
};
struct engine {
    struct rank *ranks;
    uint32_t n, n_chunks, per_block, needs;
    enum tutti_kind kind;
    uint32_t root, late; /* late: the rank that comes last, for barriers */
    bool in_place;
    uint64_t random;
    const char *wrong;
    uint32_t wrong_rank;
};

static uint64_t chance(struct engine *e)
{
    e->random = e->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return e->random >> 33;
}

static void fail(struct engine *e, uint32_t rank, const char *why)
{
    if (e->wrong) return;
    e->wrong = why, e->wrong_rank = rank;
}

/* ---- values ---- */

static uint64_t scramble(uint64_t x)
{
    x = (x ^ x >> 31) * UINT64_C(0x7fb5d329728ea185);
    x = (x ^ x >> 27) * UINT64_C(0x81dadef4bc2dd44d);
    return x ^ x >> 33;
}

static struct value own(uint32_t rank, uint32_t chunk, uint64_t elements)
{
    const uint64_t x = scramble(rank * UINT64_C(1000003) + chunk + 17);
    return (struct value){x, x, UINT64_C(0x9e3779b97f4a7c15), scramble(x), x | 1, elements};
}

static struct value combine(struct value a, struct value b)
{
    return (struct value){.sum = a.sum + b.sum,
                          .word = a.word * b.power + b.word,
                          .power = a.power * b.power,
                          .fold = scramble(3 * a.fold + scramble(b.fold)),
                          .replica = scramble(a.replica + b.replica),
                          .elements = a.elements};
}

/* ---- sizes: every block has another one, and every chunk in it ---- */

static uint64_t elements_of(const struct engine *e, uint32_t from, uint32_t chunk)
{
    if (e->needs & TUTTI_NEEDS_EQUAL_BLOCKS) return 100 + chunk % e->per_block;
    return 100 + (uint64_t)from * e->n_chunks + chunk;
}

static uint64_t elements_in_data(const struct engine *e, uint32_t rank, uint32_t chunk)
{
    if (e->kind != TUTTI_ALL_TO_ALL) return elements_of(e, 0, chunk);
    return elements_of(e, chunk / e->per_block, rank * e->per_block + chunk % e->per_block);
}

/* How many elements the i-th chunk of a step has, as its rank counts them. */
static uint64_t elements_of_step(const struct engine *e, uint32_t rank, const struct tutti_step *step, uint32_t i)
{
    if ((e->needs & TUTTI_NEEDS_EQUAL_BLOCKS) && e->per_block == 1) return 100;
    if (tutti_step_reads_src(step) && step->src_buffer == TUTTI_IN) return elements_of(e, rank, step->src + i);
    if (step->extent == TUTTI_NO_EXTENT) return UINT32_MAX; /* as the largest, which none of these is */
    return elements_in_data(e, rank, step->extent + i);
}

/* ---- memory ---- */

static struct value *cell(struct engine *e, uint32_t rank, uint8_t buffer, uint32_t chunk, bool input)
{
    struct rank *r = &e->ranks[rank];
    if (buffer == TUTTI_IN) return &r->in[chunk];
    if (buffer == TUTTI_SCRATCH) return &r->scratch[chunk];
    return input && !e->in_place ? &r->input[chunk] : &r->data[chunk];
}

static struct value load(struct engine *e, uint32_t rank, const struct tutti_step *step, uint8_t buffer, uint32_t chunk,
                         bool input, uint32_t i)
{
    struct value value = *cell(e, rank, buffer, chunk, input);
    const uint64_t elements = elements_of_step(e, rank, step, i);
    if (value.elements != elements) value.sum = value.word = value.fold = value.replica = chance(e) | 1;
    value.elements = elements;
    return value;
}

static void store(struct engine *e, uint32_t rank, const struct tutti_step *step, uint32_t i, struct value in)
{
    struct value result = in;
    if (tutti_step_reduces(step)) {
        const struct value old =
            load(e, rank, step, step->dst_buffer, step->dst + i, step->flags & TUTTI_STEP_DST_INPUT, i);
        result = step->flags & TUTTI_STEP_LEFT ? combine(in, old) : combine(old, in);
    }
    struct value *to = cell(e, rank, step->dst_buffer, step->dst + i, false);
    *to = result;
    if (in.elements != elements_of_step(e, rank, step, i)) fail(e, rank, "receives another number of bytes");
    if (step->dst_buffer == TUTTI_DATA && in.elements != elements_in_data(e, rank, step->dst + i))
        to->sum = chance(e) | 1; /* part of the chunk is old, or bytes lie beyond it */
}

static struct value source(struct engine *e, uint32_t rank, const struct tutti_step *step, uint32_t i)
{
    return load(e, rank, step, step->src_buffer, step->src + i, step->flags & TUTTI_STEP_SRC_INPUT, i);
}

/* ---- the rules of the engine ---- */

static bool may_start(const struct engine *e, uint32_t rank, uint32_t index)
{
    const struct rank *r = &e->ranks[rank];
    const struct tutti_step *step = &r->schedule->steps[index];
    if (!r->come || r->state[index] != IDLE || index - r->oldest >= TUTTI_WINDOW) return false;
    for (uint32_t j = 0; j < TUTTI_WINDOW && j < index; j++)
        if ((step->wait >> j & 1) && r->state[index - 1 - j] < SENT) return false;
    for (uint32_t k = 0; k < index && tutti_step_sends(step); k++) {
        const struct tutti_step *before = &r->schedule->steps[k];
        if (!tutti_step_sends(before) || before->peer != step->peer || before->fifo > step->fifo) continue;
        if (r->state[k] == IDLE) return false;
        if (r->is_short[k] && r->is_short[index] && r->state[k] == SENT) return false; /* one credit */
    }
    return true;
}

/* The step of a peer that is the other side of a message, or UINT32_MAX. */
static uint32_t other_side(const struct engine *e, uint32_t rank, uint32_t index)
{
    const struct tutti_step *step = &e->ranks[rank].schedule->steps[index];
    if (step->peer >= e->n) return UINT32_MAX;
    const struct tutti_schedule *peer = e->ranks[step->peer].schedule;
    for (uint32_t k = 0; k < peer->n_steps; k++) {
        const struct tutti_step *other = &peer->steps[k];
        if (tutti_step_is_message(other) && tutti_step_sends(other) != tutti_step_sends(step) && other->peer == rank &&
            other->fifo == step->fifo)
            return k;
    }
    return UINT32_MAX;
}

/* SENT is complete for the sender. */
static void complete(struct engine *e, uint32_t rank, uint32_t index, enum state state)
{
    struct rank *r = &e->ranks[rank];
    r->state[index] = (uint8_t)state;
    while (r->oldest < r->schedule->n_steps && r->state[r->oldest] >= SENT) r->oldest++;
}

static void start(struct engine *e, uint32_t rank, uint32_t index)
{
    struct rank *r = &e->ranks[rank];
    const struct tutti_step *step = &r->schedule->steps[index];
    r->state[index] = STARTED;
    if (!tutti_step_sends(step) || !r->is_short[index]) return;
    for (uint32_t i = 0; i < step->n; i++) r->mail[index][i] = source(e, rank, step, i);
    complete(e, rank, index, SENT);
}

/* Moves the data of a receive that has started, if its send is there. */
static bool receive(struct engine *e, uint32_t rank, uint32_t index)
{
    const struct tutti_step *step = &e->ranks[rank].schedule->steps[index];
    const uint32_t other = other_side(e, rank, index);
    if (other == UINT32_MAX) return false;
    struct rank *peer = &e->ranks[step->peer];
    const struct tutti_step *send = &peer->schedule->steps[other];
    if (peer->state[other] != STARTED && !(peer->is_short[other] && peer->state[other] != IDLE)) return false;
    if (send->n != step->n) fail(e, rank, "receives another number of chunks than was sent");
    for (uint32_t i = 0; i < step->n && !e->wrong; i++)
        store(e, rank, step, i, peer->is_short[other] ? peer->mail[other][i] : source(e, step->peer, send, i));
    complete(e, rank, index, COMPLETE);
    complete(e, step->peer, other, COMPLETE);
    return true;
}

/* One thing that may happen to a step; false: nothing. */
static bool advance(struct engine *e, uint32_t rank, uint32_t index)
{
    struct rank *r = &e->ranks[rank];
    const struct tutti_step *step = &r->schedule->steps[index];
    if (r->state[index] == IDLE) {
        if (!may_start(e, rank, index)) return false;
        start(e, rank, index);
        return true;
    }
    if (r->state[index] != STARTED || tutti_step_sends(step)) return false;
    if (tutti_step_receives(step)) return receive(e, rank, index);
    struct value values[64];
    for (uint32_t first = 0; first < step->n; first += 64) { /* all is read before it is written, a bit at a time */
        const uint32_t n = step->n - first < 64 ? step->n - first : 64;
        for (uint32_t i = 0; i < n; i++) values[i] = source(e, rank, step, first + i);
        for (uint32_t i = 0; i < n; i++) store(e, rank, step, first + i, values[i]);
    }
    complete(e, rank, index, COMPLETE);
    return true;
}

/* Steps in an order by chance until nothing can happen. */
static void progress(struct engine *e)
{
    for (bool moved = true; moved && !e->wrong;) {
        moved = false;
        const uint32_t first = (uint32_t)(chance(e) % e->n);
        for (uint32_t k = 0; k < e->n; k++) {
            const uint32_t rank = (first + k) % e->n;
            struct rank *r = &e->ranks[rank];
            const uint32_t n_steps = r->schedule->n_steps, window = n_steps - r->oldest;
            if (window == 0) continue;
            const uint32_t n = window < TUTTI_WINDOW ? window : TUTTI_WINDOW, at = (uint32_t)(chance(e) % n);
            const uint32_t oldest = r->oldest;
            for (uint32_t i = 0; i < n && r->oldest == oldest; i++) {
                if (!advance(e, rank, oldest + (at + i) % n)) continue;
                moved = true;
                if (chance(e) % 3 == 0) break;
            }
        }
    }
}

/* ---- the kinds, by the words of their definition ---- */

static bool has_input(const struct engine *e, uint32_t rank, uint32_t block)
{
    if (e->kind == TUTTI_BROADCAST || e->kind == TUTTI_SCATTER) return rank == e->root;
    if (e->kind == TUTTI_ALL_GATHER || e->kind == TUTTI_GATHER) return rank == block;
    return e->kind != TUTTI_ALL_TO_ALL;
}

static void fold(struct value *sum, bool *any, struct value next)
{
    *sum = *any ? combine(*sum, next) : next;
    *any = true;
}

/* What rank must hold in a chunk; false: anything. */
static bool wanted(const struct engine *e, uint32_t rank, uint32_t chunk, struct value *out)
{
    const uint32_t block = chunk / e->per_block;
    const uint64_t elements = elements_in_data(e, rank, chunk);
    bool any = false;
    if (e->kind == TUTTI_BARRIER) return false;
    if (e->kind == TUTTI_BROADCAST || e->kind == TUTTI_SCATTER) {
        *out = own(e->root, chunk, elements);
        return e->kind == TUTTI_BROADCAST || block == rank;
    }
    if (e->kind == TUTTI_ALL_GATHER || e->kind == TUTTI_GATHER) {
        *out = own(block, chunk, elements);
        return e->kind == TUTTI_ALL_GATHER || rank == e->root;
    }
    if (e->kind == TUTTI_ALL_TO_ALL) {
        *out = own(block, rank * e->per_block + chunk % e->per_block, elements);
        return true;
    }
    const bool scans = e->kind == TUTTI_SCAN || e->kind == TUTTI_EXSCAN;
    const uint32_t last = !scans ? e->n : e->kind == TUTTI_SCAN ? rank + 1 : rank;
    for (uint32_t s = 0; s < last; s++) fold(out, &any, own(s, chunk, elements));
    if (e->kind == TUTTI_REDUCE) return rank == e->root;
    if (e->kind == TUTTI_REDUCE_SCATTER) return block == rank;
    return any;
}

static void check(struct engine *e)
{
    for (uint32_t rank = 0; rank < e->n; rank++) {
        if (e->ranks[rank].oldest < e->ranks[rank].schedule->n_steps) fail(e, rank, "never comes to its end");
        for (uint32_t i = 0; i < e->ranks[rank].schedule->n_steps; i++)
            if (e->ranks[rank].state[i] == SENT) fail(e, rank, "sends what nobody receives");
        for (uint32_t c = 0; c < e->n_chunks && !e->wrong; c++) {
            struct value want = {0};
            if (!wanted(e, rank, c, &want)) continue;
            const struct value *got = &e->ranks[rank].data[c];
            if (got->sum != want.sum || got->elements != want.elements) fail(e, rank, "has a wrong result");
            if (!tutti_kind_info(e->kind)->reduces) continue;
            if (!(e->needs & TUTTI_NEEDS_COMMUTATIVE) && got->word != want.word) fail(e, rank, "has a wrong order");
            if ((e->needs & TUTTI_KEEPS_RANK_ORDER) && got->fold != want.fold) fail(e, rank, "has no left fold");
            if (e->kind == TUTTI_ALL_REDUCE && got->replica != e->ranks[0].data[c].replica)
                fail(e, rank, "has other last bits than rank 0");
        }
    }
}

/* ---- runs ---- */

static void prepare(struct engine *e, uint32_t run)
{
    e->in_place = run & 1;
    e->late = run / 2 % e->n;
    for (uint32_t rank = 0; rank < e->n; rank++) {
        struct rank *r = &e->ranks[rank];
        r->oldest = 0;
        r->come = e->kind != TUTTI_BARRIER || rank != e->late;
        for (uint32_t i = 0; i < r->schedule->n_steps; i++) {
            r->state[i] = IDLE;
            r->is_short[i] = run % 3 == 0 || (run % 3 == 2 && chance(e) % 2);
        }
        for (uint32_t c = 0; c < r->schedule->n_scratch; c++) r->scratch[c] = (struct value){0};
        for (uint32_t c = 0; c < e->n_chunks; c++) {
            const bool has = has_input(e, rank, c / e->per_block);
            r->input[c] = has ? own(rank, c, elements_in_data(e, rank, c)) : (struct value){0};
            r->data[c] = e->in_place ? r->input[c] : (struct value){0};
            r->in[c] = own(rank, c, elements_of(e, rank, c));
        }
    }
}

static void run_once(struct engine *e, uint32_t run)
{
    prepare(e, run);
    progress(e);
    if (e->kind == TUTTI_BARRIER && !e->wrong) {
        for (uint32_t rank = 0; rank < e->n && e->n > 1; rank++)
            if (rank != e->late && e->ranks[rank].oldest == e->ranks[rank].schedule->n_steps)
                fail(e, rank, "leaves before all have come");
        e->ranks[e->late].come = true;
        progress(e);
    }
    if (!e->wrong) check(e);
}

static bool rank_init(struct rank *rank, const struct tutti_schedule *schedule)
{
    const uint32_t n = schedule->n_steps;
    *rank = (struct rank){.schedule = schedule};
    rank->input = tutti_alloc_array(schedule->n_chunks, 3 * sizeof *rank->input);
    rank->scratch = tutti_alloc_array(schedule->n_scratch + 1, sizeof *rank->scratch);
    rank->state = tutti_alloc_array(n + 1, 1);
    rank->is_short = tutti_alloc_array(n + 1, sizeof *rank->is_short);
    rank->mail = tutti_alloc_array(n + 1, sizeof(struct value *));
    if (!rank->input || !rank->scratch || !rank->state || !rank->is_short || !rank->mail) return false;
    rank->data = rank->input + schedule->n_chunks, rank->in = rank->data + schedule->n_chunks;
    for (uint32_t i = 0; i < n; i++) {
        if (!tutti_step_sends(&schedule->steps[i])) continue;
        rank->mail[i] = tutti_alloc_array(schedule->steps[i].n, sizeof(struct value));
        if (!rank->mail[i]) return false;
    }
    return true;
}

static void rank_fini(struct rank *rank)
{
    for (uint32_t i = 0; rank->mail && i < rank->schedule->n_steps; i++) tutti_free(rank->mail[i]);
    tutti_free(rank->input);
    tutti_free(rank->scratch);
    tutti_free(rank->state);
    tutti_free(rank->is_short);
    tutti_free(rank->mail);
}

enum tutti_status tutti_execute(const struct tutti_schedule *const *schedules, uint32_t n, uint32_t n_runs,
                                uint64_t seed, bool *right, char *why, size_t capacity)
{
    const struct tutti_schedule *first = schedules[0];
    struct engine e = {.n = n,
                       .kind = first->kind,
                       .root = first->shape.root,
                       .n_chunks = first->n_chunks,
                       .per_block = first->n_chunks / tutti_kind_blocks(first->kind, n),
                       .needs = first->algorithm->kinds[first->kind]->needs,
                       .random = seed};
    enum tutti_status status = TUTTI_OK;
    e.ranks = tutti_alloc_array(n, sizeof *e.ranks);
    for (uint32_t r = 0; e.ranks && r < n && status == TUTTI_OK; r++)
        if (!rank_init(&e.ranks[r], schedules[r])) status = TUTTI_ERR_MEMORY;
    if (!e.ranks || status < 0) status = tutti_fail(TUTTI_ERR_MEMORY, "no memory to execute %u ranks", n);
    for (uint32_t run = 0; run < n_runs && status >= 0 && !e.wrong; run++) run_once(&e, run);
    for (uint32_t r = 0; e.ranks && r < n; r++) rank_fini(&e.ranks[r]);
    tutti_free(e.ranks);
    *right = status >= 0 && !e.wrong;
    if (e.wrong) snprintf(why, capacity, "rank %u %s", e.wrong_rank, e.wrong);
    return status;
}
