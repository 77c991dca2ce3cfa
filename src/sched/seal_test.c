/* SPDX-License-Identifier: BSD-3-Clause */

/* The sealer against references that share nothing with it: programs of random steps are run as they were written, one
 * step after another, and as they were sealed, in random orders that the masks and the window allow, in place and out
 * of place. Every message and every result must be the same. Masks are compared with a search over all pairs of steps.
 */

#include "sched/sched.h"

#include <stdio.h>
#include <string.h>

#include "test.h"

#define N_CHUNKS 6
#define N_SCRATCH 3
#define N_PEERS 4 /* slot 1 of these */
#define MAX_RAW 400

/* ---- random programs ---- */

struct raw {
    enum tutti_step_op op;
    uint32_t peer, dst_buffer, dst, src_buffer, src, n;
    enum tutti_side side;
};
static struct raw program[MAX_RAW];
static uint32_t n_program;

/* A range that a step may read: DATA at will, SCRATCH where it was written. */
static bool random_source(uint64_t *random, const bool *written, uint32_t *buffer, uint32_t *chunk, uint32_t *n)
{
    *buffer = tutti_random64(random) % 3 ? TUTTI_DATA : TUTTI_SCRATCH;
    uint32_t limit = *buffer == TUTTI_DATA ? N_CHUNKS : N_SCRATCH;
    *chunk = (uint32_t)(tutti_random64(random) % limit);
    *n = 1 + (uint32_t)(tutti_random64(random) % (limit - *chunk));
    for (uint32_t i = 0; *buffer == TUTTI_SCRATCH && i < *n; i++)
        if (!written[*chunk + i]) return false;
    return true;
}

static void random_program(uint64_t *random, uint32_t length)
{
    bool written[N_SCRATCH] = {false};

    for (n_program = 0; n_program < length;) {
        struct raw raw = {.op = (enum tutti_step_op)(tutti_random64(random) % TUTTI_STEP_CALL),
                          .peer = (uint32_t)(tutti_random64(random) % N_PEERS),
                          .side = tutti_random64(random) % 2 ? TUTTI_LEFT : TUTTI_RIGHT};
        bool reduces = raw.op == TUTTI_STEP_RECV_REDUCE || raw.op == TUTTI_STEP_REDUCE;
        bool local = raw.op == TUTTI_STEP_COPY || raw.op == TUTTI_STEP_REDUCE;
        if (raw.peer == 1) continue;
        if (raw.op == TUTTI_STEP_SEND || local)
            if (!random_source(random, written, &raw.src_buffer, &raw.src, &raw.n)) continue;
        if (raw.op != TUTTI_STEP_SEND) {
            uint32_t n = raw.n, limit;
            bool valid = random_source(random, written, &raw.dst_buffer, &raw.dst, &raw.n);
            if (reduces && !valid) continue;
            limit = raw.dst_buffer == TUTTI_DATA ? N_CHUNKS : N_SCRATCH;
            if (local) {
                raw.n = n;
                if (raw.dst + n > limit || (reduces && raw.dst_buffer == TUTTI_SCRATCH)) continue;
                if (raw.src_buffer == raw.dst_buffer && raw.dst < raw.src + n && raw.src < raw.dst + n) continue;
            }
            for (uint32_t i = 0; i < raw.n && raw.dst_buffer == TUTTI_SCRATCH; i++) written[raw.dst + i] = true;
        }
        program[n_program++] = raw;
    }
}

static uint32_t program_chunks(const struct tutti_shape *shape)
{
    (void)shape;
    return N_CHUNKS;
}

static uint32_t program_scratch(const struct tutti_shape *shape)
{
    (void)shape;
    return N_SCRATCH;
}

static uint32_t program_rounds(const struct tutti_shape *shape)
{
    (void)shape;
    return n_program;
}

static void program_round(const struct tutti_shape *shape, uint32_t round, struct tutti_emit *emit)
{
    const struct raw *raw = &program[round];
    enum tutti_buffer src = (enum tutti_buffer)raw->src_buffer, dst = (enum tutti_buffer)raw->dst_buffer;

    (void)shape;
    if (raw->op == TUTTI_STEP_SEND) tutti_emit_send(emit, raw->peer, src, raw->src, raw->n);
    if (raw->op == TUTTI_STEP_RECV) tutti_emit_recv(emit, raw->peer, dst, raw->dst, raw->n);
    if (raw->op == TUTTI_STEP_RECV_REDUCE) tutti_emit_recv_reduce(emit, raw->peer, dst, raw->dst, raw->n, raw->side);
    if (raw->op == TUTTI_STEP_COPY) tutti_emit_copy(emit, dst, raw->dst, src, raw->src, raw->n);
    if (raw->op == TUTTI_STEP_REDUCE) tutti_emit_reduce(emit, dst, raw->dst, src, raw->src, raw->n, raw->side);
}

static const struct tutti_schedule_ops program_ops = {.needs = TUTTI_TAKES_RADIX,
                                                      .chunks = program_chunks,
                                                      .scratch = program_scratch,
                                                      .rounds = program_rounds,
                                                      .round = program_round};
static const struct tutti_algorithm program_algorithm = {
    .name = "program", .help = "", .source = "", .kinds = {[TUTTI_ALL_REDUCE] = &program_ops}};

static struct tutti_schedule *seal_program(void)
{
    struct tutti_shape shape = {.slot = 1, .size = N_PEERS};
    struct tutti_schedule *schedule = NULL;

    assert_int_equal(tutti_schedule_seal(&program_algorithm, TUTTI_ALL_REDUCE, &shape, true, &schedule), TUTTI_OK);
    if (schedule->defect) fail_msg("%s", schedule->defect);
    return schedule;
}

/* ---- running ---- */

struct memory {
    uint64_t input[N_CHUNKS], data[N_CHUNKS], scratch[N_SCRATCH];
    bool in_place;
    uint64_t sent[N_PEERS][MAX_RAW][N_CHUNKS]; /* by peer and number */
};

/* Neither commutes nor associates: every difference in order shows. */
static uint64_t combine(uint64_t left, uint64_t right)
{
    return tutti_mix64(left * 3 + tutti_mix64(right + 1));
}

static uint64_t message(uint32_t peer, uint32_t fifo, uint32_t i)
{
    return tutti_mix64(((uint64_t)peer << 40) + ((uint64_t)fifo << 16) + i + 99);
}

static uint64_t *cell(struct memory *memory, uint32_t buffer, bool input, uint32_t chunk)
{
    if (buffer == TUTTI_SCRATCH) return &memory->scratch[chunk];
    return input && !memory->in_place ? &memory->input[chunk] : &memory->data[chunk];
}

/* As written: DATA starts as the input. */
static void run_raw(struct memory *memory)
{
    uint32_t sent[N_PEERS] = {0}, received[N_PEERS] = {0};

    memcpy(memory->data, memory->input, sizeof(memory->data));
    for (uint32_t r = 0; r < n_program; r++) {
        const struct raw *raw = &program[r];
        uint32_t fifo = 0;
        if (raw->op == TUTTI_STEP_SEND) fifo = sent[raw->peer]++;
        if (raw->op == TUTTI_STEP_RECV || raw->op == TUTTI_STEP_RECV_REDUCE) fifo = received[raw->peer]++;
        for (uint32_t i = 0; i < raw->n; i++) {
            bool local = raw->op == TUTTI_STEP_COPY || raw->op == TUTTI_STEP_REDUCE;
            uint64_t *dst = raw->op == TUTTI_STEP_SEND ? &memory->sent[raw->peer][fifo][i]
                                                       : cell(memory, raw->dst_buffer, false, raw->dst + i);
            uint64_t in = local || raw->op == TUTTI_STEP_SEND ? *cell(memory, raw->src_buffer, false, raw->src + i)
                                                              : message(raw->peer, fifo, i);
            if (raw->op == TUTTI_STEP_REDUCE || raw->op == TUTTI_STEP_RECV_REDUCE)
                in = raw->side == TUTTI_LEFT ? combine(in, *dst) : combine(*dst, in);
            *dst = in;
        }
    }
}

static void run_step(struct memory *memory, const struct tutti_step *step)
{
    bool src_input = step->flags & TUTTI_STEP_SRC_INPUT, dst_input = step->flags & TUTTI_STEP_DST_INPUT;

    for (uint32_t i = 0; i < step->n; i++) {
        bool sends = step->op == TUTTI_STEP_SEND;
        bool receives = step->op == TUTTI_STEP_RECV || step->op == TUTTI_STEP_RECV_REDUCE;
        uint64_t in =
            receives ? message(step->peer, step->fifo, i) : *cell(memory, step->src_buffer, src_input, step->src + i);
        if (sends) {
            memory->sent[step->peer][step->fifo][i] = in;
            continue;
        }
        if (step->op == TUTTI_STEP_REDUCE || step->op == TUTTI_STEP_RECV_REDUCE) {
            uint64_t old = *cell(memory, step->dst_buffer, dst_input, step->dst + i);
            in = step->flags & TUTTI_STEP_LEFT ? combine(in, old) : combine(old, in);
        }
        *cell(memory, step->dst_buffer, false, step->dst + i) = in;
    }
}

/* In a random order among those that S9 and the masks allow. */
static void run_sealed(struct memory *memory, const struct tutti_schedule *schedule, uint64_t *random)
{
    bool done[2 * MAX_RAW] = {false};
    uint32_t first = 0; /* all before it are complete */

    assert_true(schedule->n_steps <= TUTTI_ARRAY_LEN(done));
    while (first < schedule->n_steps) {
        uint32_t ready[TUTTI_WINDOW], n_ready = 0;
        for (uint32_t i = first; i < schedule->n_steps && i < first + TUTTI_WINDOW; i++) {
            bool clear = !done[i];
            for (uint32_t j = 0; j < TUTTI_WINDOW && j < i; j++)
                if (schedule->steps[i].wait >> j & 1 && !done[i - 1 - j]) clear = false;
            if (clear) ready[n_ready++] = i;
        }
        assert_true(n_ready > 0);
        uint32_t i = ready[tutti_random64(random) % n_ready];
        run_step(memory, &schedule->steps[i]);
        done[i] = true;
        while (first < schedule->n_steps && done[first]) first++;
    }
}

static void compare(const struct memory *expected, const struct memory *found)
{
    assert_memory_equal(expected->data, found->data, sizeof(found->data));
    assert_memory_equal(expected->sent, found->sent, sizeof(found->sent));
}

static void test_sealed_means_what_was_written(void **state)
{
    static struct memory expected, found;
    uint64_t random = test_seed();

    (void)state;
    for (int trial = 0; trial < 400; trial++) {
        random_program(&random, 1 + (uint32_t)(tutti_random64(&random) % 150));
        struct tutti_schedule *schedule = seal_program();
        memset(&expected, 0, sizeof(expected));
        for (uint32_t c = 0; c < N_CHUNKS; c++) expected.input[c] = tutti_random64(&random);
        memset(&found, 0, sizeof(found));
        memcpy(found.input, expected.input, sizeof(found.input));
        run_raw(&expected);
        for (int in_place = 0; in_place < 2; in_place++) {
            found.in_place = in_place;
            for (uint32_t c = 0; c < N_CHUNKS; c++)
                found.data[c] = in_place ? found.input[c] : UINT64_C(0xdeaddeaddeaddead);
            memset(found.sent, 0, sizeof(found.sent));
            run_sealed(&found, schedule, &random);
            compare(&expected, &found);
        }
        tutti_schedule_destroy(schedule);
    }
}

/* ---- masks ---- */

static bool touches(const struct tutti_step *step, bool write, uint32_t buffer, uint32_t chunk)
{
    bool writes = step->op != TUTTI_STEP_SEND;
    bool reads = step->op == TUTTI_STEP_SEND || step->op == TUTTI_STEP_COPY || step->op == TUTTI_STEP_REDUCE;

    if (write) return writes && step->dst_buffer == buffer && chunk - step->dst < step->n;
    return reads && step->src_buffer == buffer && chunk - step->src < step->n;
}

static bool conflict(const struct tutti_step *a, const struct tutti_step *b)
{
    for (uint32_t buffer = TUTTI_DATA; buffer <= TUTTI_SCRATCH; buffer++)
        for (uint32_t c = 0; c < N_CHUNKS; c++)
            if ((touches(a, true, buffer, c) && (touches(b, true, buffer, c) || touches(b, false, buffer, c))) ||
                (touches(a, false, buffer, c) && touches(b, true, buffer, c)))
                return true;
    return false;
}

static void test_masks_equal_search_over_all_pairs(void **state)
{
    uint64_t random = test_seed() + 1;

    (void)state;
    for (int trial = 0; trial < 100; trial++) {
        random_program(&random, 150);
        struct tutti_schedule *schedule = seal_program();
        for (uint32_t i = 0; i < schedule->n_steps; i++) {
            uint64_t wait = 0;
            for (uint32_t j = 0; j < i; j++)
                if (i - j <= TUTTI_WINDOW && conflict(&schedule->steps[i], &schedule->steps[j]))
                    wait |= UINT64_C(1) << (i - 1 - j);
            assert_true(schedule->steps[i].wait == wait);
        }
        tutti_schedule_destroy(schedule);
    }
}

/* Sizes of SCRATCH chunks: a message that is combined with DATA chunk c is as large as c. */
static void test_extents_follow_data(void **state)
{
    (void)state;
    const struct raw steps[] = {
        {.op = TUTTI_STEP_RECV, .peer = 0, .dst_buffer = TUTTI_SCRATCH, .dst = 1, .n = 2},
        {.op = TUTTI_STEP_REDUCE, .dst_buffer = TUTTI_DATA, .dst = 3, .src_buffer = TUTTI_SCRATCH, .src = 1, .n = 2},
        {.op = TUTTI_STEP_RECV, .peer = 2, .dst_buffer = TUTTI_SCRATCH, .dst = 1, .n = 1},
        {.op = TUTTI_STEP_COPY, .dst_buffer = TUTTI_SCRATCH, .dst = 0, .src_buffer = TUTTI_SCRATCH, .src = 1, .n = 1},
        {.op = TUTTI_STEP_SEND, .peer = 3, .src_buffer = TUTTI_SCRATCH, .src = 0, .n = 1},
        {.op = TUTTI_STEP_COPY, .dst_buffer = TUTTI_DATA, .dst = 5, .src_buffer = TUTTI_SCRATCH, .src = 0, .n = 1},
        {.op = TUTTI_STEP_RECV, .peer = 2, .dst_buffer = TUTTI_SCRATCH, .dst = 2, .n = 1}, /* never used */
        {.op = TUTTI_STEP_SEND, .peer = 0, .src_buffer = TUTTI_DATA, .src = 4, .n = 2},
    };
    const uint32_t extents[] = {3, 3, 5, 5, 5, 5, TUTTI_NO_EXTENT, 4};
    uint32_t step = 0;

    memcpy(program, steps, sizeof(steps));
    n_program = TUTTI_ARRAY_LEN(steps);
    struct tutti_schedule *schedule = seal_program();
    for (uint32_t i = 0; i < schedule->n_steps && schedule->steps[i].round < n_program; i++) {
        /* copies of untouched chunks come before the step of their round */
        bool last = i + 1 == schedule->n_steps || schedule->steps[i + 1].round != schedule->steps[i].round;
        if (last) assert_int_equal(schedule->steps[i].extent, extents[step++]);
    }
    assert_int_equal(step, TUTTI_ARRAY_LEN(extents));
    tutti_schedule_destroy(schedule);
}

/* Every allocation fails once: MEMORY, and nothing is left behind (the sanitizers see to that). */
static void test_out_of_memory_is_an_error(void **state)
{
    struct tutti_shape shape = {.slot = 1, .size = N_PEERS};
    uint64_t random = test_seed() + 2;

    (void)state;
    random_program(&random, 200);
    tutti_alloc_fail_at(0);
    tutti_schedule_destroy(seal_program());
    uint64_t n = tutti_alloc_fail_at(0);
    assert_true(n > 5);
    for (uint64_t i = 1; i <= n; i++) {
        struct tutti_schedule *schedule = NULL;
        tutti_alloc_fail_at(i);
        enum tutti_status status = tutti_schedule_seal(&program_algorithm, TUTTI_ALL_REDUCE, &shape, true, &schedule);
        tutti_alloc_fail_at(0);
        assert_int_equal(status, TUTTI_ERR_MEMORY);
        assert_null(schedule);
    }
}

static void test_hash_is_of_the_world(void **state)
{
    struct tutti_shape shape = {.slot = 1, .size = N_PEERS};
    struct tutti_schedule *a = NULL, *b = NULL, *c = NULL;

    (void)state;
    n_program = 0;
    assert_int_equal(tutti_schedule_seal(&program_algorithm, TUTTI_ALL_REDUCE, &shape, true, &a), TUTTI_OK);
    shape.slot = 2;
    assert_int_equal(tutti_schedule_seal(&program_algorithm, TUTTI_ALL_REDUCE, &shape, true, &b), TUTTI_OK);
    shape.radix = 3;
    assert_int_equal(tutti_schedule_seal(&program_algorithm, TUTTI_ALL_REDUCE, &shape, true, &c), TUTTI_OK);
    assert_true(a->hash == b->hash);
    assert_true(a->hash != c->hash);
    tutti_schedule_destroy(a);
    tutti_schedule_destroy(b);
    tutti_schedule_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sealed_means_what_was_written), cmocka_unit_test(test_masks_equal_search_over_all_pairs),
        cmocka_unit_test(test_extents_follow_data),           cmocka_unit_test(test_out_of_memory_is_an_error),
        cmocka_unit_test(test_hash_is_of_the_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
