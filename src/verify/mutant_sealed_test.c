/* SPDX-License-Identifier: BSD-3-Clause */
/* Wrong schedules that no algorithm could emit: correct ones, altered after they were sealed. So the checker is tested
 * without the sealer's own checks before it, and against a sealer that errs. */

#include "verify/planted_algorithms_test.h"

enum { MAX_WORDS = 4 };

struct mutant {
    const char *name;
    enum base_id base;
    void (*alter)(struct planted_bundle *bundle);
    const char *words[MAX_WORDS];
};

static struct tutti_step *at(struct planted_bundle *bundle, uint32_t slot, uint32_t step)
{
    assert_true(step < bundle->slots[slot]->n_steps);
    return &bundle->slots[slot]->steps[step];
}

/* Steps of the ring at rank r: 2k sends chunk r - k, 2k + 1 receives chunk r - k - 1, in eight rounds k. */

static void clear_read_after_write(struct planted_bundle *bundle)
{
    at(bundle, 2, 2)->wait = 0;
}
static void clear_write_after_read(struct planted_bundle *bundle)
{
    at(bundle, 2, 9)->wait = 0;
}
static void clear_write_after_write(struct planted_bundle *bundle)
{
    at(bundle, 2, 1)->wait = 0;
}
static void shift_mask(struct planted_bundle *bundle)
{
    at(bundle, 3, 4)->wait <<= 1;
}
static void wait_before_first(struct planted_bundle *bundle)
{
    at(bundle, 3, 0)->wait = 1;
}
static void exchange_numbers(struct planted_bundle *bundle)
{
    at(bundle, 1, 0)->fifo = 1;
    at(bundle, 1, 2)->fifo = 0;
}
static void forget_input(struct planted_bundle *bundle)
{
    at(bundle, 1, 0)->flags &= (uint8_t)~TUTTI_STEP_SRC_INPUT;
}
static void read_input_late(struct planted_bundle *bundle)
{
    at(bundle, 1, 2)->flags |= TUTTI_STEP_SRC_INPUT;
}
static void forget_old_input(struct planted_bundle *bundle)
{
    at(bundle, 1, 1)->flags &= (uint8_t)~TUTTI_STEP_DST_INPUT;
}
static void reduce_into_input_twice(struct planted_bundle *bundle)
{
    at(bundle, 2, 1)->flags |= TUTTI_STEP_DST_INPUT;
}
static void change_side(struct planted_bundle *bundle)
{
    at(bundle, 2, 0)->flags ^= TUTTI_STEP_LEFT;
}
static void unknown_flag(struct planted_bundle *bundle)
{
    at(bundle, 0, 3)->flags |= 0x40;
}
static void input_flag_on_receive(struct planted_bundle *bundle)
{
    at(bundle, 0, 1)->flags |= TUTTI_STEP_SRC_INPUT;
}
static void old_input_flag_on_send(struct planted_bundle *bundle)
{
    at(bundle, 0, 0)->flags |= TUTTI_STEP_DST_INPUT;
}
static void side_of_send(struct planted_bundle *bundle)
{
    at(bundle, 0, 0)->flags |= TUTTI_STEP_LEFT;
}
static void peer_out_of_range(struct planted_bundle *bundle)
{
    at(bundle, 4, 6)->peer = 5;
}
static void peer_self(struct planted_bundle *bundle)
{
    at(bundle, 4, 6)->peer = 4;
}
static void no_chunk(struct planted_bundle *bundle)
{
    at(bundle, 4, 7)->n = 0;
}
static void write_out_of_range(struct planted_bundle *bundle)
{
    at(bundle, 4, 7)->dst = 5;
}
static void read_over_the_end(struct planted_bundle *bundle)
{
    at(bundle, 0, 0)->src = UINT32_MAX;
}
static void read_no_buffer(struct planted_bundle *bundle)
{
    at(bundle, 4, 6)->src_buffer = TUTTI_SCRATCH;
}
static void unknown_buffer(struct planted_bundle *bundle)
{
    at(bundle, 4, 6)->src_buffer = 7;
}
static void write_input(struct planted_bundle *bundle)
{
    at(bundle, 1, 2)->dst_buffer = TUTTI_IN;
}
static void unknown_operation(struct planted_bundle *bundle)
{
    at(bundle, 1, 2)->op = 17;
}
static void call_left_over(struct planted_bundle *bundle)
{
    at(bundle, 1, 2)->op = TUTTI_STEP_CALL;
}
static void other_extent(struct planted_bundle *bundle)
{
    at(bundle, 1, 0)->extent = 2;
}
static void extent_out_of_range(struct planted_bundle *bundle)
{
    at(bundle, 1, 0)->extent = 5;
}
static void extent_unknown(struct planted_bundle *bundle)
{
    at(bundle, 1, 0)->extent = TUTTI_NO_EXTENT;
}
static void exchange_ranks(struct planted_bundle *bundle)
{
    struct tutti_schedule *slot = bundle->slots[1];
    bundle->slots[1] = bundle->slots[3];
    bundle->slots[3] = slot;
}
static void other_hash(struct planted_bundle *bundle)
{
    bundle->slots[3]->hash ^= 1;
}
static void other_chunks(struct planted_bundle *bundle)
{
    bundle->slots[3]->n_chunks = 10;
}
static void chunks_not_of_blocks(struct planted_bundle *bundle)
{
    for (uint32_t s = 0; s < bundle->n; s++) bundle->slots[s]->n_chunks = 6;
}
static void other_root(struct planted_bundle *bundle)
{
    bundle->slots[3]->shape.root = 1;
}
static void other_kind(struct planted_bundle *bundle)
{
    bundle->slots[3]->kind = TUTTI_REDUCE;
}
static void rank_missing(struct planted_bundle *bundle)
{
    tutti_schedule_destroy(bundle->slots[--bundle->n]);
}
static void cut_last_step(struct planted_bundle *bundle)
{
    bundle->slots[2]->n_steps--;
}
static void send_to_copy(struct planted_bundle *bundle)
{
    at(bundle, 2, 8)->op = TUTTI_STEP_COPY;
}
static void receive_to_reduction(struct planted_bundle *bundle)
{
    at(bundle, 2, 9)->op = TUTTI_STEP_RECV_REDUCE;
}
static void reduction_without_operation(struct planted_bundle *bundle)
{
    at(bundle, 2, 1)->op = TUTTI_STEP_RECV_REDUCE;
}
static void reduction_to_receive(struct planted_bundle *bundle)
{
    struct tutti_step *step = at(bundle, 3, 3);
    step->op = TUTTI_STEP_RECV;
    step->flags = 0;
}
static void copy_onto_itself(struct planted_bundle *bundle)
{
    struct tutti_step *step = at(bundle, 2, bundle->slots[2]->n_steps - 1);
    step->src_buffer = TUTTI_DATA;
    step->src = step->dst;
}
static void less_scratch(struct planted_bundle *bundle)
{
    bundle->slots[1]->n_scratch = 3;
}
/* Rank 1 receives two operands into one place; its masks say program order, so that no hazard is missing. */
static void scratch_taken_twice(struct planted_bundle *bundle)
{
    for (uint32_t i = 0; i < bundle->slots[1]->n_steps; i++) at(bundle, 1, i)->wait = (UINT64_C(1) << i) - 1;
    at(bundle, 1, 5)->dst = at(bundle, 1, 4)->dst;
}
/* All wait for what comes from the left before they send to the right. */
static void wait_in_circle(struct planted_bundle *bundle)
{
    for (uint32_t s = 0; s < bundle->n; s++) {
        const struct tutti_step send = *at(bundle, s, 0), recv = *at(bundle, s, 1);
        *at(bundle, s, 0) = recv;
        *at(bundle, s, 1) = send;
        at(bundle, s, 1)->wait = 1;
        for (uint32_t i = 2; i < bundle->slots[s]->n_steps; i++) at(bundle, s, i)->wait = (UINT64_C(1) << i) - 1;
    }
}

static const struct mutant mutants[] = {
    {"read after write not awaited",
     RING_ALL_REDUCE,
     clear_read_after_write,
     {"rank 2, round 1, step 2", "sends chunk 1 to rank 3 without waiting for step 1", "lacks a hazard"}},
    {"write after read not awaited",
     RING_ALL_REDUCE,
     clear_write_after_read,
     {"rank 2, round 4, step 9", "without waiting for step 0, which sends chunk 2", "lacks a hazard"}},
    {"write after write not awaited",
     LINEAR_REDUCE,
     clear_write_after_write,
     {"rank 2, round 0, step 1", "without waiting for step 0", "lacks a hazard"}},
    {"a mask off by one",
     RING_ALL_REDUCE,
     shift_mask,
     {"rank 3, round 2, step 4", "without waiting for step 3", "lacks a hazard"}},
    {"a wait for what never was", RING_ALL_REDUCE, wait_before_first, {"rank 3, round 0, step 0", "before the first"}},
    {"messages numbered out of order",
     RING_ALL_REDUCE,
     exchange_numbers,
     {"rank 1, round 0, step 0", "message 1, expected message 0"}},
    {"input taken for written data",
     RING_ALL_REDUCE,
     forget_input,
     {"rank 1, round 0, step 0", "as if it had been written"}},
    {"input read after it was overwritten",
     RING_ALL_REDUCE,
     read_input_late,
     {"rank 1, round 1, step 2", "in place is overwritten"}},
    {"old value taken from nowhere",
     RING_ALL_REDUCE,
     forget_old_input,
     {"rank 1, round 0, step 1", "as if it had been written"}},
    {"a reduction that starts over",
     LINEAR_REDUCE,
     reduce_into_input_twice,
     {"rank 2, round 0, step 1", "in place is overwritten"}},
    {"an operand that changes sides", CHAIN_ALL_REDUCE, change_side, {"ends with chunk 0 combined out of order"}},
    {"an unknown flag", RING_ALL_REDUCE, unknown_flag, {"rank 0, round 1, step 3", "unknown flags 0x44"}},
    {"the input flag on a receive",
     RING_ALL_REDUCE,
     input_flag_on_receive,
     {"rank 0, round 0, step 1", "does not read DATA"}},
    {"the old input flag on a send",
     RING_ALL_REDUCE,
     old_input_flag_on_send,
     {"rank 0, round 0, step 0", "does not reduce into DATA"}},
    {"a side on a send", RING_ALL_REDUCE, side_of_send, {"rank 0, round 0, step 0", "does not reduce"}},
    {"a peer out of range",
     RING_ALL_REDUCE,
     peer_out_of_range,
     {"rank 4, round 3, step 6", "sends to rank 5, but there are only 5 ranks"}},
    {"a message to itself", RING_ALL_REDUCE, peer_self, {"rank 4, round 3, step 6", "sends to itself"}},
    {"no chunk at all", RING_ALL_REDUCE, no_chunk, {"rank 4, round 3, step 7", "no chunk at all"}},
    {"a write out of range",
     RING_ALL_REDUCE,
     write_out_of_range,
     {"rank 4, round 3, step 7", "writes chunk 5, out of range: there are 5"}},
    {"a read far out of range", RING_ALL_REDUCE, read_over_the_end, {"rank 0, round 0, step 0", "out of range"}},
    {"a read of SCRATCH where there is none",
     RING_ALL_REDUCE,
     read_no_buffer,
     {"rank 4, round 3, step 6", "scratch chunk 1, a buffer that does not exist"}},
    {"a read of an unknown buffer",
     RING_ALL_REDUCE,
     unknown_buffer,
     {"rank 4, round 3, step 6", "a buffer that does not exist"}},
    {"a write into the input",
     PAIRWISE_ALL_TO_ALL,
     write_input,
     {"rank 1, round 1, step 2", "writes the user's input"}},
    {"an unknown operation", RING_ALL_REDUCE, unknown_operation, {"rank 1, round 1, step 2", "unknown operation 17"}},
    {"a call that was left over", RING_ALL_REDUCE, call_left_over, {"rank 1, round 1, step 2", "not expanded"}},
    {"a send in the size of another chunk", RING_ALL_REDUCE, other_extent, {"rank 1, round 0, step 0", "another size"}},
    {"a size out of range",
     RING_ALL_REDUCE,
     extent_out_of_range,
     {"rank 1, round 0, step 0", "takes its size from chunk 5, out of range"}},
    {"a size that is not known", RING_ALL_REDUCE, extent_unknown, {"rank 1, round 0, step 0", "another size"}},
    {"two ranks exchanged", RING_ALL_REDUCE, exchange_ranks, {"rank 1", "was given the schedule of rank 3"}},
    {"a schedule of another hash", RING_ALL_REDUCE, other_hash, {"rank 3", "schedule hash"}},
    {"a rank that cuts otherwise",
     RING_ALL_REDUCE,
     other_chunks,
     {"rank 3", "cuts the data into 10 chunks, rank 0 into 5"}},
    {"chunks that make no blocks",
     RING_ALL_GATHER,
     chunks_not_of_blocks,
     {"6 chunks are not a multiple of the 5 blocks"}},
    {"a rank with another root", LINEAR_REDUCE, other_root, {"rank 3", "another shape"}},
    {"a rank in another collective", RING_ALL_REDUCE, other_kind, {"rank 3", "another collective"}},
    {"a rank missing", RING_ALL_REDUCE, rank_missing, {"the schedules of 4 ranks"}},
    {"its own block not copied", RING_ALL_GATHER, cut_last_step, {"rank 2", "never writes chunk 2"}},
    {"the last receive cut off",
     RING_ALL_REDUCE,
     cut_last_step,
     {"rank 1", "to rank 2, which expects only 7 messages"}},
    {"a send turned into a copy", RING_ALL_REDUCE, send_to_copy, {"rank 2"}},
    {"a receive that reduces",
     RING_ALL_REDUCE,
     receive_to_reduction,
     {"rank 2, round 4, step 9", "as if it had been written"}},
    {"a reduction without an operation",
     RING_ALL_GATHER,
     reduction_without_operation,
     {"rank 2, round 0, step 1", "has no operation"}},
    {"a reduction that only stores",
     RING_ALL_REDUCE,
     reduction_to_receive,
     {"ends with a wrong chunk 1", "lacks the contribution of rank 3"}},
    {"a copy onto itself", ROTATED_ALL_GATHER, copy_onto_itself, {"rank 2, round 4", "which overlap"}},
    {"SCRATCH smaller than used",
     DIRECT_ALL_REDUCE,
     less_scratch,
     {"rank 1", "scratch chunk", "out of range: there are 3"}},
    {"SCRATCH read, but never written",
     DIRECT_ALL_REDUCE,
     scratch_taken_twice,
     {"rank 1, round 0", "reads scratch chunk 4, which was never written"}},
    {"a circle of waits",
     RING_ALL_REDUCE,
     wait_in_circle,
     {"deadlock when messages wait for their receives", "a circle of"}},
};

static void seal(struct planted_bundle *bundle, enum base_id id, struct tutti_schedule_ops *ops,
                 struct tutti_algorithm *algorithm)
{
    base = &bases[id];
    *ops = (struct tutti_schedule_ops){.needs = base->needs,
                                       .chunks = base->chunks,
                                       .scratch = base->scratch,
                                       .rounds = base->rounds,
                                       .round = planted_round};
    *algorithm = (struct tutti_algorithm){.name = base->name};
    algorithm->kinds[base->kind] = ops;
    const struct tutti_shape shape = {.size = base->size, .root = base->root};
    planted_bundle_seal(bundle, algorithm, base->kind, &shape);
}

static void refuse(void **state)
{
    const struct mutant *mutant = *state;
    struct planted_bundle bundle;
    struct tutti_schedule_ops ops;
    struct tutti_algorithm algorithm;
    seal(&bundle, mutant->base, &ops, &algorithm);
    struct tutti_verdict verdict = planted_bundle_verify(&bundle);
    if (!verdict.ok) fail_msg("refused as it was: %s", verdict.text);
    mutant->alter(&bundle);
    verdict = planted_bundle_verify(&bundle);
    planted_bundle_destroy(&bundle);
    planted_expect(&verdict, base->name, mutant->words, MAX_WORDS);
}

int main(void)
{
    struct CMUnitTest tests[TUTTI_ARRAY_LEN(mutants)];
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(mutants); i++) {
        tests[i] = (struct CMUnitTest){
            .name = mutants[i].name, .test_func = refuse, .initial_state = (void *)(uintptr_t)&mutants[i]};
    }
    return _cmocka_run_group_tests("sealed mutants", tests, TUTTI_ARRAY_LEN(tests), NULL, NULL);
}
