/* SPDX-License-Identifier: BSD-3-Clause */

/* A plan says what its author would have emitted: the plan of a schedule, written and read again, gives that schedule.
 * What is wrong in its text is told with its line. */

#include "sched/plan.h"

#include <stdlib.h>
#include <string.h>

#include "test.h"

/* ---- a ring as code, and as a plan ---- */

static uint32_t size_of(const struct tutti_shape *shape)
{
    return shape->size;
}

static uint32_t rounds_of(const struct tutti_shape *shape)
{
    return 2 * (shape->size - 1);
}

static void ring_round(const struct tutti_shape *shape, uint32_t k, struct tutti_emit *emit)
{
    uint32_t p = shape->size, right = (shape->slot + 1) % p, left = (shape->slot + p - 1) % p;
    tutti_emit_send(emit, right, TUTTI_DATA, (shape->slot + 2 * p - k) % p, 1);
    if (k < p - 1)
        tutti_emit_recv_reduce(emit, left, TUTTI_DATA, (left + 2 * p - k) % p, 1, TUTTI_LEFT);
    else
        tutti_emit_recv(emit, left, TUTTI_DATA, (left + 2 * p - k) % p, 1);
}

static const struct tutti_schedule_ops ring_ops = {.chunks = size_of, .rounds = rounds_of, .round = ring_round};
static const struct tutti_algorithm ring = {.name = "ring", .kinds = {[TUTTI_ALL_REDUCE] = &ring_ops}};

static struct tutti_plan planned;
static const struct tutti_plan *the_plan(const struct tutti_schedule_ops *ops, const struct tutti_shape *shape)
{
    (void)ops;
    if (shape->size == planned.n_slots) return &planned;
    tutti_fail(TUTTI_ERR_UNSUPPORTED, "it is for %u ranks", planned.n_slots);
    return NULL;
}
static const struct tutti_schedule_ops plan_ops = {.plan = the_plan};
static const struct tutti_algorithm as_plan = {.name = "ring", .kinds = {[TUTTI_ALL_REDUCE] = &plan_ops}};

static struct tutti_schedule *sealed(const struct tutti_algorithm *algorithm, uint32_t slot, uint32_t size)
{
    struct tutti_schedule *schedule;
    const struct tutti_shape shape = {.slot = slot, .size = size};
    assert_int_equal(tutti_schedule_seal(algorithm, TUTTI_ALL_REDUCE, &shape, true, &schedule), TUTTI_OK);
    return schedule;
}

static void plan_of(const struct tutti_algorithm *algorithm, uint32_t size, struct tutti_plan *out)
{
    for (uint32_t slot = size; slot-- > 0;) { /* in any order */
        struct tutti_schedule *s = sealed(algorithm, slot, size);
        if (slot == size - 1)
            assert_int_equal(tutti_plan_init(out, TUTTI_ALL_REDUCE, size, s->n_chunks, s->n_scratch), TUTTI_OK);
        for (uint32_t i = 0; i < s->n_steps; i++) {
            const struct tutti_step *step = &s->steps[i];
            const struct tutti_plan_step own = {.op = step->op,
                                                .slot = slot,
                                                .round = step->round,
                                                .peer = step->peer,
                                                .dst_buffer = step->dst_buffer,
                                                .dst = step->dst,
                                                .src_buffer = step->src_buffer,
                                                .src = step->src,
                                                .n = step->n,
                                                .side = step->flags & TUTTI_STEP_LEFT ? TUTTI_LEFT : TUTTI_RIGHT};
            assert_int_equal(tutti_plan_add(out, &own), TUTTI_OK);
        }
        tutti_schedule_destroy(s);
    }
    assert_int_equal(tutti_plan_seal(out), TUTTI_OK);
}

static void same_schedule(void **state)
{
    (void)state;
    for (uint32_t size = 2; size < 9; size++) {
        struct tutti_plan plan;
        char *text = NULL;
        size_t bytes = 0;
        plan_of(&ring, size, &plan);
        FILE *file = open_memstream(&text, &bytes);
        assert_true(tutti_plan_write(&plan, file));
        fclose(file);
        tutti_plan_fini(&plan);
        assert_int_equal(tutti_plan_read("text", text, bytes, &planned), TUTTI_OK);
        for (uint32_t slot = 0; slot < size; slot++) {
            struct tutti_schedule *a = sealed(&ring, slot, size), *b = sealed(&as_plan, slot, size);
            assert_null(b->defect);
            assert_int_equal(a->n_steps, b->n_steps);
            assert_int_equal(a->n_chunks, b->n_chunks);
            assert_memory_equal(a->steps, b->steps, a->n_steps * sizeof(*a->steps));
            tutti_schedule_destroy(a);
            tutti_schedule_destroy(b);
        }
        const struct tutti_shape other = {.size = size + 1};
        char reason[160];
        assert_false(tutti_algorithm_fits(&as_plan, TUTTI_ALL_REDUCE, &other, reason, sizeof(reason)));
        assert_non_null(strstr(reason, "it is for"));
        tutti_plan_fini(&planned);
        free(text);
    }
}

/* ---- texts ---- */

static void every_statement(void **state)
{
    static const char text[] = "# all of them\nplan all_to_all slots 2 chunks 2 scratch 3\nslot 1\n"
                               "send 0 in 1 1\nround\nrecv 0 scratch 0 2\nrecv_reduce 0 data 0 1 left\n"
                               "slot 0\ncopy data 1 in 1 1 # a copy\nreduce scratch 0 data 1 1 right\n"
                               "call broadcast 0 1 2 0 1 1 1";
    static const char written[] = "plan all_to_all slots 2 chunks 2 scratch 3\nslot 0\n"
                                  "copy data 1 in 1 1\nreduce scratch 0 data 1 1 right\ncall broadcast 0 1 2 0 1 1 1\n"
                                  "slot 1\nsend 0 in 1 1\nround\nrecv 0 scratch 0 2\nrecv_reduce 0 data 0 1 left\n";
    struct tutti_plan plan;
    char *out = NULL;
    size_t bytes = 0;
    (void)state;
    assert_int_equal(tutti_plan_read("text", text, sizeof(text) - 1, &plan), TUTTI_OK);
    FILE *file = open_memstream(&out, &bytes);
    assert_true(tutti_plan_write(&plan, file));
    fclose(file);
    assert_string_equal(out, written);
    free(out);
    tutti_plan_fini(&plan);
}

static void refusals(void **state)
{
#define HEAD "plan all_reduce slots 2 chunks 2 scratch 0\nslot 0\n"
    static const struct {
        const char *text, *sentence;
    } wrong[] = {
        {"", "text:0: there is no plan in it"},
        {"send 1 data 0 1", "text:1: 'send' before 'plan'"},
        {"plan all_reduse slots 2 chunks 2 scratch 0", "text:1: there is no kind 'all_reduse'"},
        {"plan all_reduce slots 0 chunks 2 scratch 0", "text:1: a plan of 0 slots"},
        {"plan all_reduce slots 2 chunks 99999999 scratch 0", "text:1: a plan of 99999999 chunks"},
        {"plan all_reduce slots 2 chunks", "text:1: the line ends where a number is expected"},
        {"plan all_reduce slots 2 chunks 2 scratch 0\nsend 1 data 0 1", "text:2: 'send' before the first slot"},
        {"plan all_reduce slots 2 chunks 2 scratch 0\nslot 2", "text:2: slot 2, where there are 2"},
        {HEAD "jump 1", "text:3: there is no statement 'jump'"},
        {HEAD "send x data 0 1", "text:3: 'x' where a peer is expected"},
        {HEAD "send 1 date 0 1", "text:3: 'date' where data or scratch is expected"},
        {HEAD "send 1 data 99999999999 1", "text:3: a chunk 99999999999 is too large"},
        {HEAD "send 1 data 0", "text:3: the line ends where a number is expected"},
        {HEAD "recv_reduce 1 data 0 1 up", "text:3: 'up' where right or left is expected"},
        {HEAD "send 1 data 0 1 1", "text:3: '1' where the line should end"},
    };
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(wrong); i++) {
        struct tutti_plan plan;
        assert_int_equal(tutti_plan_read("text", wrong[i].text, strlen(wrong[i].text), &plan), TUTTI_ERR_ARGUMENT);
        assert_int_equal(strncmp(tutti_last_error()->text, wrong[i].sentence, strlen(wrong[i].sentence)), 0);
    }
    const struct tutti_plan_step far = {.slot = 1};
    struct tutti_plan one;
    assert_int_equal(tutti_plan_init(&one, TUTTI_BARRIER, 1, 1, 0), TUTTI_OK);
    assert_int_equal(tutti_plan_add(&one, &far), TUTTI_ERR_ARGUMENT);
    tutti_plan_fini(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_schedule),
        cmocka_unit_test(every_statement),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
