/* SPDX-License-Identifier: BSD-3-Clause */
/* Wrong algorithms. Each is a correct one with a single fault planted in its actions (or in what it claims); the
 * checker must accept it without the fault, and with it refuse, for the right reason. */

#include "verify/planted_algorithms_test.h"

enum { MAX_WORDS = 4 };

struct mutant;
static const struct mutant *planted; /* NULL: no fault */

/* ---- the faults ---- */
enum fault {
    NO_FAULT, /* the claim or the number of rounds is the fault */
    DROP,
    TWICE,
    PEER,      /* peer += value */
    SELF,      /* peer = slot */
    CHUNK,     /* chunk += value, modulo the chunks */
    BEYOND,    /* chunk += value */
    COUNT,     /* n += value */
    SOURCE,    /* src += value, modulo the chunks of SCRATCH */
    BUFFER,    /* buffer = value */
    SIDE,      /* the other side */
    OP,        /* op = value */
    EXCHANGE,  /* source and destination buffers */
    BACKWARDS, /* the actions of the round from the last to the first */
    ROOT_ZERO, /* the root is taken for rank 0 */
    IMPURE,    /* sides change after `value` rounds were asked for */
};
enum { ALL = -1 }; /* slots, rounds, actions */
struct mutant {
    const char *name;
    enum base_id base;
    enum fault fault;
    int32_t slot, round, action, value;
    uint32_t claims, disclaims; /* bits of needs that are added and taken away */
    int32_t rounds;             /* more (or fewer) */
    const char *words[MAX_WORDS];
};
static uint32_t n_asked;

static bool hits(int32_t at, uint32_t value)
{
    return at == ALL || (uint32_t)at == value;
}

static void plant(const struct tutti_shape *s, struct planted_action *a)
{
    const uint32_t value = (uint32_t)planted->value;
    const uint32_t chunks = base->chunks ? base->chunks(s) : tutti_kind_blocks(base->kind, s->size);
    switch (planted->fault) {
    case DROP:
        a->op = PLANTED_NOTHING;
        break;
    case PEER:
        a->peer = (a->peer + s->size + value) % s->size;
        break;
    case SELF:
        a->peer = s->slot;
        break;
    case CHUNK:
        a->chunk = (a->chunk + chunks + value) % chunks;
        break;
    case BEYOND:
        a->chunk += value;
        break;
    case COUNT:
        a->n += value;
        break;
    case SOURCE:
        a->src = (a->src + value) % base->scratch(s);
        break;
    case BUFFER:
        a->buffer = (enum tutti_buffer)value;
        break;
    case SIDE:
        a->side = a->side == TUTTI_LEFT ? TUTTI_RIGHT : TUTTI_LEFT;
        break;
    case OP:
        a->op = (enum planted_op)value;
        break;
    case EXCHANGE: {
        const enum tutti_buffer buffer = a->buffer;
        a->buffer = a->src_buffer, a->src_buffer = buffer;
        break;
    }
    case IMPURE:
        if (n_asked > value) a->side = TUTTI_LEFT;
        break;
    default:
        break;
    }
}

static void round_mutant(const struct tutti_shape *shape, uint32_t k, struct tutti_emit *emit)
{
    struct planted_action actions[PLANTED_ACTIONS];
    struct tutti_shape s = *shape;
    const enum fault fault = planted->fault;
    if (fault == ROOT_ZERO) s.root = 0;
    const uint32_t n = base->actions(&s, k, actions);
    assert_true(n <= PLANTED_ACTIONS);
    n_asked++;
    for (uint32_t i = 0; i < n; i++) {
        const bool here = planted && hits(planted->slot, s.slot) && hits(planted->round, k) && hits(planted->action, i);
        const uint32_t at = fault == BACKWARDS && here ? n - 1 - i : i;
        if (here) plant(&s, &actions[at]);
        planted_emit(emit, &actions[at]);
        if (here && fault == TWICE) planted_emit(emit, &actions[at]);
    }
}

static uint32_t rounds_planted(const struct tutti_shape *s)
{
    return base->rounds(s) + (uint32_t)(planted ? planted->rounds : 0);
}

static struct tutti_verdict verify_planted(const struct mutant *mutant, enum base_id id)
{
    planted = mutant;
    base = &bases[id];
    n_asked = 0;
    const struct tutti_schedule_ops ops = {.needs = (base->needs | (mutant ? mutant->claims : 0)) &
                                                    ~(mutant ? mutant->disclaims : 0),
                                           .chunks = base->chunks,
                                           .scratch = base->scratch,
                                           .rounds = rounds_planted,
                                           .round = mutant ? round_mutant : planted_round};
    struct tutti_algorithm algorithm = {.name = base->name};
    algorithm.kinds[base->kind] = &ops;
    const struct tutti_shape shape = {.size = base->size, .root = base->root};
    struct tutti_verdict verdict;
    assert_int_equal(tutti_verify(&algorithm, base->kind, &shape, &verdict), TUTTI_OK);
    return verdict;
}

/* Where the sealer sees it first, its sentence counts. */
static const struct mutant mutants[] = {
    {"a send to the wrong peer", RING_ALL_REDUCE, PEER, 2, 1, 0, 1,
     .words = {"rank 2, round 1", "to rank 4, which expects only 0 messages"}},
    {"a receive from the wrong peer", RING_ALL_REDUCE, PEER, 2, 1, 1, 2,
     .words = {"rank 1", "to rank 2, which expects only 7 messages"}},
    {"a message to itself", RING_ALL_REDUCE, SELF, 2, 1, 0, 0, .words = {"rank 2, round 1", "itself"}},
    {"no round at all", RING_ALL_REDUCE, NO_FAULT, ALL, ALL, ALL, 0, .rounds = -8,
     .words = {"ends with a wrong chunk", "rank 0 alone"}},
    {"a chunk swapped for another", RING_ALL_REDUCE, CHUNK, 2, 1, 0, 1,
     .words = {"rank 3, round 1, step 3", "sends chunk 2", "another size"}},
    {"a block that is passed over", RING_ALL_GATHER, CHUNK, ALL, 3, ALL, 1,
     .words = {"rank 0, after the last round", "chunk 1 of DATA was never written"}},
    {"a block sent for another", RING_ALL_GATHER, CHUNK, 2, 3, 0, 1, .claims = TUTTI_NEEDS_EQUAL_BLOCKS,
     .words = {"rank 3, round 3", "ends with a wrong chunk 4", "expected that of rank 4"}},
    {"a lost reduction", RING_ALL_REDUCE, OP, 3, 1, 1, PLANTED_RECV,
     .words = {"ends with a wrong chunk 1", "lacks the contribution of rank 3"}},
    {"a contribution counted twice", RING_ALL_REDUCE, OP, 3, 5, 1, PLANTED_RECV_REDUCE,
     .words = {"ends with a wrong chunk", "contributions that are not the 5 expected"}},
    {"a missing receive", RING_ALL_REDUCE, DROP, 2, 1, 1, 0,
     .words = {"rank 1", "to rank 2, which expects only 7 messages"}},
    {"a missing send", RING_ALL_REDUCE, DROP, 2, 1, 0, 0,
     .words = {"rank 3", "from rank 2, which sends it only 7 messages"}},
    {"a message too many", RING_ALL_REDUCE, TWICE, 2, 7, 0, 0,
     .words = {"rank 2", "to rank 3, which expects only 8 messages"}},
    {"one round short", RING_ALL_REDUCE, NO_FAULT, ALL, ALL, ALL, 0, .rounds = -1,
     .words = {"rank 3", "ends with a wrong chunk 0", "lacks the contribution of rank 4"}},
    {"a chunk too many in a send", RING_ALL_REDUCE, COUNT, 2, 1, 0, 1,
     .words = {"rank 2, round 1, step 3", "sends chunks 1 to 2 to rank 3, which expects 1 chunk"}},
    {"a chunk too many in a receive", RING_ALL_REDUCE, COUNT, 3, 1, 1, 1,
     .words = {"sends chunk 1 to rank 3, which expects 2 chunks"}},
    {"no chunk at all", RING_ALL_REDUCE, COUNT, 2, 1, 0, -1, .words = {"rank 2, round 1", "0 chunks"}},
    {"a chunk out of range", RING_ALL_REDUCE, BEYOND, 2, 1, 0, 5,
     .words = {"rank 2, round 1", "chunk 6 of DATA, which has 5"}},
    {"order not kept and not said", RING_ALL_REDUCE, NO_FAULT, ALL, ALL, ALL, 0, .disclaims = TUTTI_NEEDS_COMMUTATIVE,
     .words = {"out of order, without TUTTI_NEEDS_COMMUTATIVE"}},
    {"rank order claimed by a ring", RING_ALL_REDUCE, NO_FAULT, ALL, ALL, ALL, 0, .claims = TUTTI_KEEPS_RANK_ORDER,
     .words = {"TUTTI_KEEPS_RANK_ORDER claims"}},
    {"steps that change when asked again", RING_ALL_REDUCE, IMPURE, ALL, ALL, ALL, 40,
     .words = {"pure function of the shape"}},
    {"the same of a single rank", RING_ALL_REDUCE, IMPURE, 3, ALL, ALL, 40,
     .words = {"rank 3", "pure function of the shape"}},
    {"one operand on the wrong side", CHAIN_ALL_REDUCE, SIDE, 2, 0, 0, 0,
     .words = {"ends with chunk 0 combined out of order"}},
    {"steps of a rank in reversed order", CHAIN_ALL_REDUCE, BACKWARDS, 2, 0, ALL, 0,
     .words = {"deadlock when messages wait for their receives", "waits for step"}},
    {"a result that is not passed on", CHAIN_ALL_REDUCE, DROP, 4, 0, 1, 0,
     .words = {"rank 3", "expects chunk 0 from rank 4, which sends it only 0 messages"}},
    {"a prefix on the wrong side", CHAIN_SCAN, SIDE, 3, 0, 0, 0,
     .words = {"rank 3", "combined out of order", "ranks 0 to 3"}},
    {"a prefix passed on too early", CHAIN_SCAN, BACKWARDS, 2, 0, ALL, 0,
     .words = {"rank 3", "ranks 2 to 3 alone", "expected that of ranks 0 to 3"}},
    {"an exclusive scan that includes", CHAIN_EXSCAN, EXCHANGE, 2, 0, 2, 0,
     .words = {"rank 2", "has a contribution of rank 2 too many"}},
    {"an inclusive one where exclusive was asked", CHAIN_EXSCAN, DROP, 3, 0, 2, 0,
     .words = {"rank 4", "has the contribution of rank 3 alone"}},
    {"an operand reduced twice", DIRECT_ALL_REDUCE, TWICE, 1, 0, 11, 0,
     .words = {"rank 1", "has a contribution of rank 2 too many"}},
    {"an operand left out", DIRECT_ALL_REDUCE, DROP, 1, 0, 11, 0,
     .words = {"rank 1", "lacks the contribution of rank 2"}},
    {"an operand taken for another", DIRECT_ALL_REDUCE, SOURCE, 1, 0, 11, 1,
     .words = {"rank 1", "ends with a wrong chunk 0"}},
    {"SCRATCH read before it is written", DIRECT_ALL_REDUCE, BEYOND, 0, 0, 4, -1,
     .words = {"rank 0", "chunk 4 of SCRATCH before it is written"}},
    {"one operand on the wrong side of a fold", DIRECT_ALL_REDUCE, SIDE, 3, 0, 12, 0,
     .words = {"rank 3", "out of order"}},
    {"replicas combined in different trees", CARELESS_ALL_REDUCE, NO_FAULT, ALL, ALL, ALL, 0,
     .words = {"rank 1", "another tree than rank 0", "last bits"}},
    {"the wrong root", LINEAR_BROADCAST, ROOT_ZERO, ALL, ALL, ALL, 0,
     .words = {"rank 0", "holds nothing before it is written"}},
    {"a rank left out of a broadcast", LINEAR_BROADCAST, DROP, 4, 0, 0, 0, .words = {"rank 4", "never written"}},
    {"a reduction in a broadcast", LINEAR_BROADCAST, OP, 4, 0, 0, PLANTED_RECV_REDUCE,
     .words = {"rank 4", "no operation"}},
    {"a root that forgets its own", LINEAR_REDUCE, OP, 2, 0, 0, PLANTED_RECV,
     .words = {"rank 2", "lacks the contribution of rank 2"}},
    {"a result at the wrong rank", LINEAR_REDUCE, ROOT_ZERO, ALL, ALL, ALL, 0,
     .words = {"rank 2", "has the contribution of rank 2 alone", "ranks 0 to 4"}},
    {"a block for another rank, of its size", LINEAR_SCATTER, CHUNK, 2, 0, 0, 1, .claims = TUTTI_NEEDS_EQUAL_BLOCKS,
     .words = {"rank 3", "ends with a wrong chunk 3", "to chunk 4"}},
    {"a block for another rank", LINEAR_SCATTER, CHUNK, 2, 0, 0, 1,
     .words = {"rank 3", "receives chunk 3 from rank 2", "sends chunk 4, of another size"}},
    {"blocks of others where own counts are claimed", CHAIN_GATHER, NO_FAULT, ALL, ALL, ALL, 0,
     .claims = TUTTI_OWN_COUNTS_ONLY, .words = {"cannot know the size of block 4", "own counts only"}},
    {"one block left out", CHAIN_GATHER, COUNT, 2, 0, 1, -1,
     .words = {"rank 2", "sends chunks 2 to 3 to rank 1, which expects 3 chunks"}},
    {"a result in the wrong block", PAIRWISE_REDUCE_SCATTER, CHUNK, 3, ALL, 1, 1, .claims = TUTTI_NEEDS_EQUAL_BLOCKS,
     .words = {"rank 3", "ends with a wrong chunk 3"}},
    {"a contribution to the wrong block", PAIRWISE_REDUCE_SCATTER, CHUNK, 1, 2, 0, 1,
     .words = {"rank 4, round 2", "another size"}},
    {"input and output transposed", PAIRWISE_ALL_TO_ALL, BUFFER, 1, 2, 0, TUTTI_DATA,
     .words = {"rank 1, round 2", "holds nothing before it is written"}},
    {"the block of another destination", PAIRWISE_ALL_TO_ALL, CHUNK, 1, 2, 0, 1,
     .words = {"rank 3, round 2", "receives chunk 1 from rank 1", "sends input chunk 4"}},
    {"the same, where blocks are equal", PAIRWISE_ALL_TO_ALL, CHUNK, 1, 2, 0, 1, .claims = TUTTI_NEEDS_EQUAL_BLOCKS,
     .words = {"rank 3", "ends with a wrong chunk 1"}},
    {"a block relayed, where the relay cannot know its size", RELAY_SCATTER, NO_FAULT, ALL, ALL, ALL, 0,
     .disclaims = TUTTI_NEEDS_EQUAL_BLOCKS,
     .words = {"rank 1", "receives scratch chunk 0 from rank 0", "another size"}},
    {"a relayed block that is kept", RELAY_SCATTER, DROP, 1, 0, 2, 0,
     .words = {"rank 2", "expects chunk 2 from rank 1, which sends it only 0 messages"}},
    {"a rotation off by one", ROTATED_ALL_GATHER, SOURCE, 2, 4, ALL, 1, .claims = TUTTI_NEEDS_EQUAL_BLOCKS,
     .words = {"rank 2", "ends with a wrong chunk", "expected that of rank"}},
    {"a block sent before it has come", ROTATED_ALL_GATHER, BEYOND, 1, 1, 0, 1,
     .words = {"rank 1, round 1", "SCRATCH before it is written"}},
    {"a barrier one round short", DISSEMINATION_BARRIER, NO_FAULT, ALL, ALL, ALL, 0, .rounds = -1,
     .words = {"rank 0", "may leave the barrier before rank"}},
    {"a token passed on before it has come", DISSEMINATION_BARRIER, DROP, 3, 0, 2, 0,
     .words = {"may leave the barrier before rank"}},
};

static void refuse(void **state)
{
    const struct mutant *mutant = *state;
    const struct tutti_verdict verdict = verify_planted(mutant, mutant->base);
    planted_expect(&verdict, bases[mutant->base].name, mutant->words, MAX_WORDS);
}

/* All but the one that is a mutant as it stands. */
static void accept(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < N_BASES; id++) {
        if (id == CARELESS_ALL_REDUCE) continue;
        const struct tutti_verdict verdict = verify_planted(NULL, (enum base_id)id);
        if (!verdict.ok) fail_msg("%s", verdict.text);
    }
}

int main(void)
{
    struct CMUnitTest tests[TUTTI_ARRAY_LEN(mutants) + 1] = {{.name = "without a fault", .test_func = accept}};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(mutants); i++) {
        tests[i + 1] = (struct CMUnitTest){
            .name = mutants[i].name, .test_func = refuse, .initial_state = (void *)(uintptr_t)&mutants[i]};
    }
    return _cmocka_run_group_tests("mutants", tests, TUTTI_ARRAY_LEN(tests), NULL, NULL);
}
