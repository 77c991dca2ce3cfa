/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice is total, obeys the needs of what it chooses, is the same for equal questions, and says why not. */
#include "algo/algo.h"
#include "model/choose.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

static const uint64_t bytes_tried[] = {0, 1, 8, 4096, 4097, 65536, 65537, 524289, UINT64_C(1) << 32};

static void levels_of(struct tutti_shape *shape, uint32_t size)
{
    char text[64];
    shape->size = size;
    if (size < 4) return;
    snprintf(text, sizeof(text), "%u,%u", size / 2, size - size / 2);
    assert_int_equal(tutti_shape_parse_levels(shape, text), TUTTI_OK);
}

static void check_answer(const struct tutti_facts *facts, const struct tutti_question *question)
{
    const struct tutti_algorithm *algorithm = NULL, *again = NULL;
    struct tutti_shape shape = {0}, shape_again = {0};
    if (tutti_choose(facts, question, &algorithm, &shape) != TUTTI_OK)
        fail_msg("%s of %u, %s: %s", tutti_kind_name(question->kind), facts->shape.size,
                 facts->reproducible ? "reproducible" : "free", tutti_last_error()->text);
    const struct tutti_schedule_ops *ops = algorithm->kinds[question->kind];
    assert_non_null(ops);
    assert_int_equal(shape.size, facts->shape.size);
    assert_true(tutti_algorithm_fits(algorithm, question->kind, &shape, NULL, 0));
    bool reduces = tutti_kind_info(question->kind)->reduces;
    if (reduces && !question->commutative) assert_false(ops->needs & TUTTI_NEEDS_COMMUTATIVE);
    if (reduces && facts->reproducible) assert_true(ops->needs & TUTTI_KEEPS_RANK_ORDER);
    if (question->v) assert_false(ops->needs & TUTTI_NEEDS_EQUAL_BLOCKS);
    if (question->v && !question->counts_shared) assert_true(ops->needs & TUTTI_OWN_COUNTS_ONLY);
    assert_true(shape.n_levels == 0 || (ops->needs & TUTTI_NEEDS_LEVELS));
    assert_int_equal(tutti_choose(facts, question, &again, &shape_again), TUTTI_OK);
    assert_ptr_equal(algorithm, again);
    assert_memory_equal(&shape, &shape_again, sizeof(shape));
}

static bool has_v(enum tutti_kind kind)
{
    return kind == TUTTI_ALL_GATHER || kind == TUTTI_GATHER || kind == TUTTI_SCATTER || kind == TUTTI_REDUCE_SCATTER ||
           kind == TUTTI_ALL_TO_ALL;
}

static void each_question(const struct tutti_facts *facts, enum tutti_kind kind, uint64_t bytes)
{
    for (int commutative = 0; commutative < 2; commutative++)
        for (int v = 0; v < (has_v(kind) ? 2 : 1); v++) {
            struct tutti_question question = {.kind = kind, .bytes = v ? 0 : bytes, .commutative = commutative, .v = v};
            bool shared = kind == TUTTI_ALL_GATHER || kind == TUTTI_REDUCE_SCATTER;
            question.counts_shared = v && shared;
            if (question.counts_shared) question.bytes = bytes;
            check_answer(facts, &question);
        }
}

static void total(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= 1024; size = size < 20 ? size + 1 : size * 2 - 7)
        for (int variant = 0; variant < 8; variant++) {
            struct tutti_facts facts = {.shape = {.size = size}, .min_cpus = 2, .overrides = ""};
            facts.machine = tutti_machine_default;
            facts.n_host = variant & 1 ? size : 1;
            facts.crowded = facts.n_host > facts.min_cpus;
            facts.reproducible = variant & 2;
            if (variant & 4) levels_of(&facts.shape, size);
            for (int kind = 0; kind < TUTTI_N_KINDS; kind++)
                for (size_t b = 0; b < TUTTI_ARRAY_LEN(bytes_tried); b++)
                    each_question(&facts, (enum tutti_kind)kind, bytes_tried[b]);
        }
}

/* Where ranks outnumber CPUs short messages take a wide tree, since there each sleep costs more than a message. */
static void crowded(void **state)
{
    (void)state;
    const struct tutti_algorithm *algorithm = NULL;
    struct tutti_shape shape = {0};
    struct tutti_facts facts = {.shape = {.size = 64}, .min_cpus = 2, .n_host = 64, .crowded = true};
    facts.machine = tutti_machine_default;
    struct tutti_question question = {.kind = TUTTI_ALL_REDUCE, .bytes = 8, .commutative = true};
    uint32_t wide = 0;
    for (question.bytes = 8; question.bytes <= 16384; question.bytes *= 2) {
        assert_int_equal(tutti_choose(&facts, &question, &algorithm, &shape), TUTTI_OK);
        assert_string_equal(algorithm->name, "tree");
        if (question.bytes == 8) wide = shape.radix;
        assert_int_equal(shape.radix, wide);
    }
    assert_in_range(wide, 3, 63);
    question = (struct tutti_question){.kind = TUTTI_BARRIER, .commutative = true};
    assert_int_equal(tutti_choose(&facts, &question, &algorithm, &shape), TUTTI_OK);
    assert_string_equal(algorithm->name, "tree");
    assert_int_equal(shape.radix, wide);
    facts.crowded = false;
    assert_int_equal(tutti_choose(&facts, &question, &algorithm, &shape), TUTTI_OK);
    assert_string_equal(algorithm->name, "dissemination");
}

/* From the memory as from scratch, whatever was asked before, also where questions share a place. */
static void remembered(void **state)
{
    (void)state;
    static struct tutti_memo memo;
    struct tutti_facts fresh = {.shape = {.size = 13}, .min_cpus = 16, .n_host = 13, .machine = tutti_machine_default};
    struct tutti_facts facts = fresh;
    uint64_t seed = 3, bytes[40];
    facts.memo = &memo;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(bytes); i++) bytes[i] = tutti_random64(&seed) >> (20 + i);
    for (int round = 0; round < 20000; round++) {
        const struct tutti_algorithm *a, *b;
        struct tutti_shape a_shape, b_shape;
        uint64_t random = tutti_random64(&seed);
        facts.reproducible = fresh.reproducible = random & 1;
        struct tutti_question question = {.kind = (enum tutti_kind)(random >> 8 & 0xff) % TUTTI_N_KINDS,
                                          .bytes = bytes[(random >> 16) % TUTTI_ARRAY_LEN(bytes)],
                                          .commutative = random & 2};
        question.v = has_v(question.kind) && random & 4;
        question.counts_shared =
            question.v && (question.kind == TUTTI_ALL_GATHER || question.kind == TUTTI_REDUCE_SCATTER);
        assert_int_equal(tutti_choose(&facts, &question, &a, &a_shape), TUTTI_OK);
        assert_int_equal(tutti_choose(&fresh, &question, &b, &b_shape), TUTTI_OK);
        assert_ptr_equal(a, b);
        assert_memory_equal(&a_shape, &b_shape, sizeof a_shape);
    }
}

static void expect_refusal(const struct tutti_facts *facts, const struct tutti_question *question,
                           enum tutti_status status, const char *part)
{
    const struct tutti_algorithm *algorithm = NULL;
    struct tutti_shape shape = {0};
    assert_int_equal(tutti_choose(facts, question, &algorithm, &shape), status);
    if (!strstr(tutti_last_error()->text, part)) fail_msg("\"%s\" lacks \"%s\"", tutti_last_error()->text, part);
    assert_null(algorithm);
}

static void overrides(void **state)
{
    (void)state;
    const struct tutti_algorithm *algorithm = NULL;
    struct tutti_shape shape = {0};
    struct tutti_facts facts = {.shape = {.size = 6}, .min_cpus = 8, .n_host = 6, .machine = tutti_machine_default};
    facts.overrides = "all_reduce=ring,broadcast=tree:4";
    struct tutti_question question = {.kind = TUTTI_ALL_REDUCE, .bytes = 8, .commutative = true};
    assert_int_equal(tutti_choose(&facts, &question, &algorithm, &shape), TUTTI_OK);
    assert_string_equal(algorithm->name, "ring");
    question.algorithm = "tree:3"; /* the call's own goes first */
    assert_int_equal(tutti_choose(&facts, &question, &algorithm, &shape), TUTTI_OK);
    assert_string_equal(algorithm->name, "tree");
    assert_int_equal(shape.radix, 3);
    question = (struct tutti_question){.kind = TUTTI_BROADCAST, .commutative = true};
    assert_int_equal(tutti_choose(&facts, &question, &algorithm, &shape), TUTTI_OK);
    assert_string_equal(algorithm->name, "tree");
    assert_int_equal(shape.radix, 4);
}

static void refusals(void **state)
{
    (void)state;
    struct tutti_facts facts = {.shape = {.size = 6}, .min_cpus = 8, .n_host = 6, .machine = tutti_machine_default};
    struct tutti_question question = {.kind = TUTTI_ALL_REDUCE, .commutative = true, .algorithm = "rong"};
    expect_refusal(&facts, &question, TUTTI_ERR_ARGUMENT, "rong");
    question.algorithm = "pairwise";
    expect_refusal(&facts, &question, TUTTI_ERR_ARGUMENT, "does not offer");
    question.algorithm = "ring";
    facts.reproducible = true;
    expect_refusal(&facts, &question, TUTTI_ERR_ARGUMENT, "reproducible");
    facts.reproducible = false;
    question.commutative = false;
    expect_refusal(&facts, &question, TUTTI_ERR_ARGUMENT, "commutes");
    question.commutative = true;
    question.algorithm = "hierarchical";
    expect_refusal(&facts, &question, TUTTI_ERR_UNSUPPORTED, "hierarchical");
    question = (struct tutti_question){.kind = TUTTI_GATHER, .v = true, .commutative = true, .algorithm = "tree"};
    expect_refusal(&facts, &question, TUTTI_ERR_ARGUMENT, "");
}

/* Over sockets, where who folds copies first: the two ranks share a long fold, and do not share a short one; a short
 * message goes to all at once, and one that is sent as two halves one way is no quicker for it. */
static void between_hosts(void **state)
{
    (void)state;
    const struct {
        enum tutti_kind kind;
        uint64_t bytes;
        const char *name;
    } cases[] = {{TUTTI_ALL_REDUCE, 8, "direct"},
                 {TUTTI_ALL_REDUCE, 1 << 20, "halving_doubling"},
                 {TUTTI_ALL_REDUCE, 16 << 20, "halving_doubling"},
                 {TUTTI_BROADCAST, 4096, "tree"}};
    struct tutti_facts facts = {.shape = {.size = 2}, .min_cpus = 2, .n_host = 1, .overrides = ""};
    facts.machine = tutti_machine_default;
    facts.link = TUTTI_LINK_NET, facts.slice_bytes = 512 << 10, facts.eager_bytes = 64 << 10;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(cases); i++) {
        const struct tutti_question question = {.kind = cases[i].kind, .bytes = cases[i].bytes, .commutative = true};
        const struct tutti_algorithm *algorithm = NULL;
        struct tutti_shape shape;
        assert_int_equal(tutti_choose(&facts, &question, &algorithm, &shape), TUTTI_OK);
        assert_string_equal(algorithm->name, cases[i].name);
    }
}

/* Hosts of several ranks: the shortest messages, and short ones where ranks outnumber CPUs, have one lead a host; of
 * two ranks a host both exchange some KiB; of longer ones each rank is a lead of a part, and long ones are cut so that
 * each rank of all folds a part. */
static void over_levels(void **state)
{
    (void)state;
    static const struct {
        const char *levels;
        uint32_t size, n_cpus;
        uint64_t bytes;
        const char *name;
        uint32_t radix;
    } cases[] = {{"2x2", 4, 8, 4096, "by_levels", 0},        {"2x2", 4, 8, 8, "hierarchical", 1},
                 {"2x2", 4, 8, 64 << 10, "hierarchical", 2}, {"2x2", 4, 8, 16 << 20, "hierarchical", 0},
                 {"4x2", 8, 8, 4096, "hierarchical", 2},     {"4x2", 8, 2, 4096, "hierarchical", 1},
                 {"4x2", 8, 8, 64 << 10, "hierarchical", 4}, {"4x2", 8, 8, 16 << 20, "hierarchical", 0},
                 {"3,5", 8, 8, 8, "hierarchical", 1},        {"8x8", 64, 8, 64 << 10, "hierarchical", 8}};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(cases); i++) {
        struct tutti_facts facts = {.shape = {.size = cases[i].size}, .n_cpus = cases[i].n_cpus, .overrides = ""};
        const struct tutti_question question = {.kind = TUTTI_ALL_REDUCE, .bytes = cases[i].bytes, .commutative = true};
        const struct tutti_algorithm *algorithm = NULL;
        struct tutti_shape shape;
        facts.machine = tutti_machine_default;
        facts.link = TUTTI_LINK_NET, facts.slice_bytes = 128 << 10, facts.eager_bytes = 64 << 10;
        facts.crowded = cases[i].n_cpus < 8;
        assert_int_equal(tutti_shape_parse_levels(&facts.shape, cases[i].levels), TUTTI_OK);
        assert_int_equal(tutti_choose(&facts, &question, &algorithm, &shape), TUTTI_OK);
        assert_string_equal(algorithm->name, cases[i].name);
        assert_int_equal(shape.radix, cases[i].radix);
    }
}

static void option_checked(void **state)
{
    (void)state;
    assert_int_equal(tutti_overrides_check(NULL), TUTTI_OK);
    assert_int_equal(tutti_overrides_check(""), TUTTI_OK);
    assert_int_equal(tutti_overrides_check("all_reduce=ring,broadcast=tree:4"), TUTTI_OK);
    const char *wrong[] = {"ring",           "all_reduce=",       "all_reduce=rong",
                           "al_reduce=ring", "all_reduce=ring,x", "barrier=pairwise"};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(wrong); i++)
        assert_int_equal(tutti_overrides_check(wrong[i]), TUTTI_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(total),         cmocka_unit_test(remembered),  cmocka_unit_test(crowded),
        cmocka_unit_test(overrides),     cmocka_unit_test(refusals),    cmocka_unit_test(option_checked),
        cmocka_unit_test(between_hosts), cmocka_unit_test(over_levels),
    };
    tutti_algorithms_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
