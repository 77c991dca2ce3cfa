/* SPDX-License-Identifier: BSD-3-Clause */
/* The rules of mutants: each a function that plants its fault, and a row in the list at the end. */

#include "verify/mutant_rules.h"

#include <string.h>

enum { TRIES = 24 };

/* ---- lists ---- */

static uint32_t chance(struct tutti_mutant_book *book, uint32_t n)
{
    return n ? (uint32_t)(tutti_random64(&book->random) % n) : 0;
}

static bool list_reserve(struct tutti_mutant_list *list, uint32_t n)
{
    if (n <= list->capacity) return true;
    struct tutti_step *grown = tutti_alloc_array(2 * (size_t)n, sizeof *grown);
    if (!grown) return false;
    if (list->n > 0) memcpy(grown, list->steps, list->n * sizeof *grown);
    tutti_free(list->steps);
    list->steps = grown, list->capacity = 2 * n;
    return true;
}

static void list_remove(struct tutti_mutant_list *list, uint32_t at)
{
    memmove(&list->steps[at], &list->steps[at + 1], (list->n - at - 1) * sizeof *list->steps);
    list->n--;
}

/* Room is kept for as many steps again. */
static void list_insert(struct tutti_mutant_list *list, uint32_t at, struct tutti_step step)
{
    if (list->n == list->capacity) return;
    memmove(&list->steps[at + 1], &list->steps[at], (list->n - at) * sizeof *list->steps);
    list->steps[at] = step;
    list->n++;
}

static void list_swap(struct tutti_mutant_list *list, uint32_t a, uint32_t b)
{
    const struct tutti_step step = list->steps[a];
    const uint32_t round_a = step.round, round_b = list->steps[b].round;
    list->steps[a] = list->steps[b], list->steps[b] = step;
    list->steps[a].round = round_a, list->steps[b].round = round_b;
}

void tutti_mutant_book_fini(struct tutti_mutant_book *book)
{
    for (uint32_t r = 0; r < TUTTI_MUTANT_RANKS; r++) tutti_free(book->ranks[r].steps);
}

/* Steps of a rank as another root, or another slot, would have them. */
static enum tutti_status list_emit(const struct tutti_mutant_book *book, uint32_t slot, uint32_t root,
                                   struct tutti_mutant_list *list, struct tutti_rounds *rounds)
{
    struct tutti_shape shape = book->shape;
    shape.slot = slot, shape.root = root;
    TUTTI_TRY(tutti_schedule_rounds(book->algorithm, book->kind, &shape, 0, UINT32_MAX, rounds));
    if (!list_reserve(list, 2 * rounds->n + 16)) return tutti_fail(TUTTI_ERR_MEMORY, "no memory for a mutant");
    if (rounds->n > 0) memcpy(list->steps, rounds->steps, rounds->n * sizeof *list->steps);
    list->n = rounds->n;
    return TUTTI_OK;
}

enum tutti_status tutti_mutant_book_write(struct tutti_mutant_book *book)
{
    struct tutti_rounds rounds = {0};
    enum tutti_status status = TUTTI_OK;
    book->n_scratch = 0;
    for (uint32_t r = 0; r < book->shape.size && status >= 0; r++) {
        status = list_emit(book, r, book->shape.root, &book->ranks[r], &rounds);
        if (rounds.n_scratch > book->n_scratch) book->n_scratch = rounds.n_scratch;
    }
    book->n_chunks = rounds.n_chunks, book->n_rounds = rounds.n_rounds;
    tutti_rounds_fini(&rounds);
    return status;
}

/* ---- places ---- */

enum wanted { ANY, SEND, RECV, STORE, REDUCING, MESSAGE, LOCAL };

static bool is_wanted(const struct tutti_step *step, enum wanted wanted)
{
    switch (wanted) {
    case SEND:
        return tutti_step_sends(step);
    case RECV:
        return tutti_step_receives(step);
    case STORE:
        return step->op == TUTTI_STEP_RECV;
    case REDUCING:
        return tutti_step_reduces(step);
    case MESSAGE:
        return tutti_step_is_message(step);
    case LOCAL:
        return !tutti_step_is_message(step);
    default:
        return true;
    }
}

struct place {
    struct tutti_mutant_list *list;
    uint32_t rank, at;
    struct tutti_step *step;
};

static bool pick(struct tutti_mutant_book *book, enum wanted wanted, struct place *out)
{
    for (uint32_t k = 0; k < TRIES; k++) {
        const uint32_t rank = chance(book, book->shape.size);
        struct tutti_mutant_list *list = &book->ranks[rank];
        if (list->n == 0) continue;
        const uint32_t at = chance(book, list->n);
        *out = (struct place){list, rank, at, &list->steps[at]};
        if (is_wanted(out->step, wanted)) return true;
    }
    return false;
}

/* The other side of a message: the k-th from one rank to another, as they are emitted. */
static bool other_side(struct tutti_mutant_book *book, const struct place *from, struct place *out)
{
    uint32_t number = 0;
    const bool sends = tutti_step_sends(from->step);
    for (uint32_t i = 0; i < from->at; i++) {
        const struct tutti_step *step = &from->list->steps[i];
        number += tutti_step_is_message(step) && tutti_step_sends(step) == sends && step->peer == from->step->peer;
    }
    struct tutti_mutant_list *list = &book->ranks[from->step->peer];
    for (uint32_t i = 0; i < list->n; i++) {
        struct tutti_step *step = &list->steps[i];
        if (!tutti_step_is_message(step) || tutti_step_sends(step) == sends || step->peer != from->rank) continue;
        if (number-- > 0) continue;
        *out = (struct place){list, from->step->peer, i, step};
        return true;
    }
    return false;
}

/* Chunks of the buffer that a step's own side has. */
static uint32_t chunks_of(const struct tutti_mutant_book *book, uint8_t buffer)
{
    return buffer == TUTTI_SCRATCH ? book->n_scratch : book->n_chunks;
}

static bool shift(const struct tutti_mutant_book *book, uint8_t buffer, uint32_t *chunk, uint32_t n)
{
    const uint32_t room = chunks_of(book, buffer);
    if (room <= n) return false;
    *chunk = (*chunk + 1) % (room - n + 1);
    return true;
}

/* ---- what authors get wrong ---- */

static bool drop_step(struct tutti_mutant_book *book)
{
    struct place p;
    if (!pick(book, ANY, &p)) return false;
    list_remove(p.list, p.at);
    return true;
}

static bool drop_message(struct tutti_mutant_book *book)
{
    struct place p, q;
    if (!pick(book, SEND, &p) || !other_side(book, &p, &q)) return false;
    list_remove(p.list, p.at);
    list_remove(q.list, q.at);
    return true;
}

static bool repeat_local(struct tutti_mutant_book *book)
{
    struct place p;
    if (!pick(book, LOCAL, &p)) return false;
    list_insert(p.list, p.at, *p.step);
    return true;
}

static bool repeat_one_side(struct tutti_mutant_book *book)
{
    struct place p;
    if (!pick(book, MESSAGE, &p)) return false;
    list_insert(p.list, p.at, *p.step);
    return true;
}

static bool repeat_message(struct tutti_mutant_book *book)
{
    struct place p, q;
    if (!pick(book, SEND, &p) || !other_side(book, &p, &q)) return false;
    list_insert(p.list, p.at, *p.step);
    list_insert(q.list, q.at, *q.step);
    return true;
}

static bool other_peer(struct tutti_mutant_book *book, enum wanted wanted)
{
    struct place p;
    if (book->shape.size < 3 || !pick(book, wanted, &p)) return false;
    do p.step->peer = (p.step->peer + 1) % book->shape.size;
    while (p.step->peer == p.rank);
    return true;
}

static bool send_elsewhere(struct tutti_mutant_book *book)
{
    return other_peer(book, SEND);
}
static bool receive_from_elsewhere(struct tutti_mutant_book *book)
{
    return other_peer(book, RECV);
}

/* Two sends of a rank, or two receives, exchange peers. */
static bool swap_peers(struct tutti_mutant_book *book)
{
    struct place p;
    if (!pick(book, MESSAGE, &p)) return false;
    for (uint32_t i = 0; i < p.list->n; i++) {
        struct tutti_step *other = &p.list->steps[i];
        if (!tutti_step_is_message(other) || tutti_step_sends(other) != tutti_step_sends(p.step)) continue;
        if (other->peer == p.step->peer) continue;
        const uint32_t peer = other->peer;
        other->peer = p.step->peer, p.step->peer = peer;
        return true;
    }
    return false;
}

static bool shift_sent(struct tutti_mutant_book *book)
{
    struct place p;
    return pick(book, SEND, &p) && shift(book, p.step->src_buffer, &p.step->src, p.step->n);
}

static bool shift_received(struct tutti_mutant_book *book)
{
    struct place p;
    return pick(book, RECV, &p) && shift(book, p.step->dst_buffer, &p.step->dst, p.step->n);
}

static bool shift_both(struct tutti_mutant_book *book)
{
    struct place p, q;
    if (!pick(book, SEND, &p) || !other_side(book, &p, &q)) return false;
    return shift(book, p.step->src_buffer, &p.step->src, p.step->n) &&
           shift(book, q.step->dst_buffer, &q.step->dst, q.step->n);
}

static bool shift_local(struct tutti_mutant_book *book)
{
    struct place p;
    return pick(book, LOCAL, &p) && shift(book, p.step->src_buffer, &p.step->src, p.step->n);
}

static bool wrong_side(struct tutti_mutant_book *book)
{
    struct place p;
    if (!pick(book, REDUCING, &p)) return false;
    p.step->flags ^= TUTTI_STEP_LEFT;
    return true;
}

static bool contribute_twice(struct tutti_mutant_book *book)
{
    struct place p;
    if (!tutti_kind_info(book->kind)->reduces || !pick(book, STORE, &p) || p.step->dst_buffer != TUTTI_DATA)
        return false;
    p.step->op = TUTTI_STEP_RECV_REDUCE;
    return true;
}

static bool lose_contribution(struct tutti_mutant_book *book)
{
    struct place p;
    if (!pick(book, REDUCING, &p)) return false;
    p.step->op = p.step->op == TUTTI_STEP_REDUCE ? TUTTI_STEP_COPY : TUTTI_STEP_RECV;
    p.step->flags = 0;
    return true;
}

static bool reduce_without_operation(struct tutti_mutant_book *book)
{
    struct place p;
    if (tutti_kind_info(book->kind)->reduces || !pick(book, STORE, &p)) return false;
    p.step->op = TUTTI_STEP_RECV_REDUCE;
    return true;
}

/* One rank takes another for the root. */
static bool wrong_root(struct tutti_mutant_book *book)
{
    struct tutti_rounds rounds = {0};
    const uint32_t rank = chance(book, book->shape.size), n = book->shape.size;
    if (!tutti_kind_info(book->kind)->rooted || n < 2) return false;
    const enum tutti_status status =
        list_emit(book, rank, (book->shape.root + 1 + chance(book, n - 1)) % n, &book->ranks[rank], &rounds);
    tutti_rounds_fini(&rounds);
    return status >= 0;
}

/* A rank leaves out its last round. */
static bool round_short(struct tutti_mutant_book *book, uint32_t first, uint32_t last)
{
    bool any = false;
    for (uint32_t r = first; r <= last; r++) {
        struct tutti_mutant_list *list = &book->ranks[r];
        while (list->n > 0 && list->steps[list->n - 1].round + 1 >= book->n_rounds) any = true, list->n--;
    }
    return any;
}

static bool rank_round_short(struct tutti_mutant_book *book)
{
    const uint32_t rank = chance(book, book->shape.size);
    return round_short(book, rank, rank);
}
static bool all_round_short(struct tutti_mutant_book *book)
{
    return round_short(book, 0, book->shape.size - 1);
}

/* All ranks do their last round again. */
static bool round_again(struct tutti_mutant_book *book)
{
    bool any = false;
    for (uint32_t r = 0; r < book->shape.size; r++) {
        struct tutti_mutant_list *list = &book->ranks[r];
        const uint32_t n = list->n;
        for (uint32_t i = 0; i < n; i++)
            if (list->steps[i].round + 1 == book->n_rounds) any = true, list_insert(list, list->n, list->steps[i]);
    }
    return any;
}

/* Neighbours exchange places, the later one using what the earlier one touches. */
static bool swap_steps(struct tutti_mutant_book *book)
{
    struct place p;
    if (!pick(book, ANY, &p) || p.at + 1 >= p.list->n) return false;
    const struct tutti_step *a = p.step, *b = &p.list->steps[p.at + 1];
    const bool after = tutti_step_writes_dst(a) && tutti_step_reads_src(b) && a->dst_buffer == b->src_buffer &&
                       a->dst < b->src + b->n && b->src < a->dst + a->n;
    const bool before = tutti_step_reads_src(a) && tutti_step_writes_dst(b) && a->src_buffer == b->dst_buffer &&
                        a->src < b->dst + b->n && b->dst < a->src + a->n;
    if (!after && !before) return false;
    list_swap(p.list, p.at, p.at + 1);
    return true;
}

/* A send goes to the beginning, before what it passes on has come. */
static bool send_early(struct tutti_mutant_book *book)
{
    struct place p;
    if (!pick(book, SEND, &p) || p.at == 0) return false;
    struct tutti_step step = *p.step;
    list_remove(p.list, p.at);
    step.round = 0;
    list_insert(p.list, 0, step);
    return true;
}

static bool receive_late(struct tutti_mutant_book *book)
{
    struct place p;
    if (!pick(book, RECV, &p) || p.at + 1 == p.list->n) return false;
    struct tutti_step step = *p.step;
    step.round = p.list->steps[p.list->n - 1].round;
    list_remove(p.list, p.at);
    list_insert(p.list, p.list->n, step);
    return true;
}

static bool wrong_buffer(struct tutti_mutant_book *book)
{
    struct place p;
    if (book->n_scratch == 0) book->n_scratch = book->n_chunks;
    if (!pick(book, RECV, &p) || p.step->op != TUTTI_STEP_RECV) return false;
    p.step->dst_buffer = p.step->dst_buffer == TUTTI_DATA ? TUTTI_SCRATCH : TUTTI_DATA;
    return p.step->dst + p.step->n <= chunks_of(book, p.step->dst_buffer);
}

static bool read_wrong_buffer(struct tutti_mutant_book *book)
{
    struct place p;
    if (!pick(book, SEND, &p)) return false;
    p.step->src_buffer = p.step->src_buffer == TUTTI_DATA ? TUTTI_SCRATCH : TUTTI_DATA;
    if (book->n_scratch == 0) book->n_scratch = book->n_chunks;
    return p.step->src + p.step->n <= chunks_of(book, p.step->src_buffer);
}

/* Two messages of one pair change places on one side. */
static bool cross_channel(struct tutti_mutant_book *book)
{
    struct place p;
    if (!pick(book, MESSAGE, &p)) return false;
    for (uint32_t i = p.at + 1; i < p.list->n; i++) {
        const struct tutti_step *other = &p.list->steps[i];
        if (!tutti_step_is_message(other) || other->peer != p.step->peer) continue;
        if (tutti_step_sends(other) != tutti_step_sends(p.step)) continue;
        list_swap(p.list, p.at, i);
        return true;
    }
    return false;
}

static bool chunk_more(struct tutti_mutant_book *book, bool both)
{
    struct place p, q;
    if (!pick(book, SEND, &p) || !other_side(book, &p, &q)) return false;
    p.step->n++;
    if (both) q.step->n++;
    return true;
}

static bool chunk_more_one_side(struct tutti_mutant_book *book)
{
    return chunk_more(book, false);
}
static bool chunk_more_both(struct tutti_mutant_book *book)
{
    return chunk_more(book, true);
}

static bool chunk_out_of_range(struct tutti_mutant_book *book)
{
    struct place p;
    if (!pick(book, ANY, &p)) return false;
    if (tutti_step_writes_dst(p.step)) p.step->dst = chunks_of(book, p.step->dst_buffer);
    if (!tutti_step_writes_dst(p.step)) p.step->src = chunks_of(book, p.step->src_buffer);
    return true;
}

static bool backwards(struct tutti_mutant_book *book)
{
    struct tutti_mutant_list *list = &book->ranks[chance(book, book->shape.size)];
    for (uint32_t i = 0; i < list->n / 2; i++) list_swap(list, i, list->n - 1 - i);
    return list->n > 1;
}

/* Two ranks do what the other should. */
static bool swap_ranks(struct tutti_mutant_book *book)
{
    const uint32_t a = chance(book, book->shape.size), b = (a + 1) % book->shape.size;
    if (a == b || book->ranks[a].n + book->ranks[b].n == 0) return false;
    const struct tutti_mutant_list list = book->ranks[a];
    book->ranks[a] = book->ranks[b], book->ranks[b] = list;
    return true;
}

static bool message_to_itself(struct tutti_mutant_book *book)
{
    struct place p;
    if (!pick(book, MESSAGE, &p)) return false;
    p.step->peer = p.rank;
    return true;
}

/* ---- what a broken sealer does ---- */

static struct tutti_step *pick_sealed(struct tutti_mutant_book *book, enum wanted wanted, uint32_t *rank, uint32_t *at)
{
    for (uint32_t k = 0; k < TRIES; k++) {
        *rank = chance(book, book->shape.size);
        const struct tutti_schedule *schedule = book->sealed[*rank];
        if (schedule->n_steps == 0) continue;
        *at = chance(book, schedule->n_steps);
        if (is_wanted(&schedule->steps[*at], wanted)) return &schedule->steps[*at];
    }
    return NULL;
}

static bool lose_hazard(struct tutti_mutant_book *book)
{
    uint32_t rank, at;
    struct tutti_step *step = pick_sealed(book, ANY, &rank, &at);
    if (!step || !step->wait) return false;
    step->wait &= step->wait - 1;
    return true;
}

static bool lose_hazards(struct tutti_mutant_book *book)
{
    uint32_t rank, at;
    struct tutti_step *step = pick_sealed(book, ANY, &rank, &at);
    if (!step || !step->wait) return false;
    step->wait = 0;
    return true;
}

static bool shift_hazards(struct tutti_mutant_book *book)
{
    uint32_t rank, at;
    struct tutti_step *step = pick_sealed(book, ANY, &rank, &at);
    if (!step || !step->wait) return false;
    step->wait >>= 1;
    return true;
}

static bool other_extent(struct tutti_mutant_book *book)
{
    uint32_t rank, at;
    struct tutti_step *step = pick_sealed(book, ANY, &rank, &at);
    const uint32_t n = book->sealed[0]->n_chunks;
    if (!step || step->extent == TUTTI_NO_EXTENT || n <= step->n) return false;
    step->extent = (step->extent + 1) % (n - step->n + 1);
    return true;
}

static bool other_input_flag(struct tutti_mutant_book *book)
{
    uint32_t rank, at;
    struct tutti_step *step = pick_sealed(book, ANY, &rank, &at);
    if (!step) return false;
    step->flags ^= tutti_step_reduces(step) ? TUTTI_STEP_DST_INPUT : TUTTI_STEP_SRC_INPUT;
    return tutti_step_reads_src(step) || tutti_step_reduces(step);
}

static bool other_number(struct tutti_mutant_book *book)
{
    uint32_t rank, at;
    struct tutti_step *step = pick_sealed(book, MESSAGE, &rank, &at);
    if (!step) return false;
    step->fifo++;
    return true;
}

static bool lose_last_step(struct tutti_mutant_book *book)
{
    struct tutti_schedule *schedule = book->sealed[chance(book, book->shape.size)];
    if (schedule->n_steps == 0) return false;
    schedule->n_steps--;
    return true;
}

/* ---- the list ---- */

static const struct {
    struct tutti_mutant_rule rule;
    bool (*apply)(struct tutti_mutant_book *book);
} rules[TUTTI_MUTANT_RULES] = {
    {{"drop step", "a step is left out", false}, drop_step},
    {{"drop message", "a message is left out on both sides", false}, drop_message},
    {{"repeat local", "a copy or reduction is made twice", false}, repeat_local},
    {{"repeat one side", "a send or a receive is made twice", false}, repeat_one_side},
    {{"repeat message", "a message is sent and received twice", false}, repeat_message},
    {{"send elsewhere", "a send goes to another rank", false}, send_elsewhere},
    {{"receive from elsewhere", "a receive is from another rank", false}, receive_from_elsewhere},
    {{"swap peers", "two messages of a rank exchange peers", false}, swap_peers},
    {{"shift sent", "a send takes the next chunk", false}, shift_sent},
    {{"shift received", "a receive stores in the next chunk", false}, shift_received},
    {{"shift both", "both sides of a message take the next chunk", false}, shift_both},
    {{"shift local", "a copy or reduction reads the next chunk", false}, shift_local},
    {{"wrong side", "an operand is on the other side", false}, wrong_side},
    {{"contribute twice", "what should be stored is reduced", false}, contribute_twice},
    {{"lose contribution", "what should be reduced is stored", false}, lose_contribution},
    {{"reduce without operation", "a reduction where there is no operation", false}, reduce_without_operation},
    {{"wrong root", "a rank takes another for the root", false}, wrong_root},
    {{"rank round short", "a rank leaves out its last round", false}, rank_round_short},
    {{"all round short", "all leave out the last round", false}, all_round_short},
    {{"round again", "all do the last round again", false}, round_again},
    {{"swap steps", "two steps with a hazard change places", false}, swap_steps},
    {{"send early", "a send goes before what it waits for", false}, send_early},
    {{"receive late", "a receive comes last", false}, receive_late},
    {{"wrong buffer", "a receive stores in the other buffer", false}, wrong_buffer},
    {{"read wrong buffer", "a send reads the other buffer", false}, read_wrong_buffer},
    {{"cross channel", "two messages of a pair cross", false}, cross_channel},
    {{"chunk more one side", "a send has a chunk more", false}, chunk_more_one_side},
    {{"chunk more both", "a message has a chunk more", false}, chunk_more_both},
    {{"chunk out of range", "a chunk beyond the last", false}, chunk_out_of_range},
    {{"backwards", "the steps of a rank in reversed order", false}, backwards},
    {{"swap ranks", "two ranks do what the other should", false}, swap_ranks},
    {{"message to itself", "a message from a rank to itself", false}, message_to_itself},
    {{"lose hazard", "one wait of a step is lost", true}, lose_hazard},
    {{"lose hazards", "a step waits for nothing", true}, lose_hazards},
    {{"shift hazards", "a step waits for its neighbours' neighbours", true}, shift_hazards},
    {{"other extent", "a step has the size of another chunk", true}, other_extent},
    {{"other input flag", "first touch is mistaken", true}, other_input_flag},
    {{"other number", "a message has the number of the next", true}, other_number},
    {{"lose last step", "the last step of a rank is lost", true}, lose_last_step},
};

const struct tutti_mutant_rule *tutti_mutant_rule(uint32_t rule)
{
    return &rules[rule].rule;
}

bool tutti_mutant_apply(struct tutti_mutant_book *book, uint32_t rule)
{
    return rules[rule].apply(book);
}
