/* SPDX-License-Identifier: BSD-3-Clause */
/* Algorithms from files on ranks of one process and of several: right ones give the right sums, a wrong one is refused
 * on every rank with its counterexample and costs nothing but the call, and files that differ are told on every rank.
 */

#include "load/load.h"
#include "own_folder.h"
#include "ranks.h"
#include "test.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tutti/tutti.h>
#include <unistd.h>

enum { COUNT = 1000, RANKS = 4 };

/* All to all, each folding in rank order: any operation may be used. `add` is the step that the wrong one forgets. */
#define FOLD(name, add)                                                                                                \
    "#include <tutti/schedule.h>\n"                                                                                    \
    "TUTTI_COLLECTIVE(TUTTI_ALL_REDUCE, \"" name "\", TUTTI_KEEPS_RANK_ORDER, 1, shape->size, 1)\n"                    \
    "{\n"                                                                                                              \
    "    uint32_t p = shape->size, me = shape->slot;\n"                                                                \
    "    (void)round;\n"                                                                                               \
    "    tutti_emit_copy(emit, TUTTI_SCRATCH, me, TUTTI_DATA, 0, 1);\n"                                                \
    "    for (uint32_t i = 1; i < p; i++) {\n"                                                                         \
    "        tutti_emit_send(emit, (me + i) % p, TUTTI_SCRATCH, me, 1);\n"                                             \
    "        tutti_emit_recv(emit, (me + p - i) % p, TUTTI_SCRATCH, (me + p - i) % p, 1);\n"                           \
    "    }\n"                                                                                                          \
    "    tutti_emit_copy(emit, TUTTI_DATA, 0, TUTTI_SCRATCH, 0, 1);\n"                                                 \
    "    for (uint32_t s = 1; s < p; s++) " add                                                                        \
    "        tutti_emit_reduce(emit, TUTTI_DATA, 0, TUTTI_SCRATCH, s, 1, TUTTI_RIGHT);\n"                              \
    "}\n"
#define PYTHON(reduced)                                                                                                \
    "import tutti\n"                                                                                                   \
    "@tutti.algorithm('all_reduce', needs='rank_order', scratch=lambda world: world.size)\n"                           \
    "def py_fold(rank):\n"                                                                                             \
    "    p, me = rank.size, rank.slot\n"                                                                               \
    "    rank.copy(tutti.scratch(me), 0)\n"                                                                            \
    "    for i in range(1, p):\n"                                                                                      \
    "        rank.send((me + i) % p, tutti.scratch(me))\n"                                                             \
    "        rank.recv((me - i) % p, tutti.scratch((me - i) % p))\n"                                                   \
    "    rank.copy(0, tutti.scratch(0))\n"                                                                             \
    "    for s in " reduced ":\n"                                                                                      \
    "        rank.reduce(0, tutti.scratch(s))\n"

static enum tutti_status all_reduce(struct rank *rank, const char *algorithm, int64_t *data)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.algorithm = algorithm;
    for (int64_t i = 0; i < COUNT; i++) data[i] = (i + 1) * (rank->index + 1);
    return tutti_all_reduce(data, data, COUNT, TUTTI_INT64, TUTTI_SUM, rank->comm, algorithm ? &options : NULL, NULL);
}

static bool is_sum(const struct rank *rank, const int64_t *data)
{
    bool right = true;
    for (int64_t i = 0; i < COUNT; i++) right = right && data[i] == (i + 1) * rank->n * (rank->n + 1) / 2;
    return right;
}

/* By path without a word, by the name that loading gives, in C and Python. */
static void right_ones(struct rank *rank)
{
    int64_t data[COUNT];
    const char *name = NULL;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/fold.c", own_folder);
    RANK_CHECK_OK(rank, all_reduce(rank, path, data));
    RANK_CHECK(rank, is_sum(rank, data));
    snprintf(path, sizeof path, "%s/fold.py", own_folder);
    RANK_CHECK_OK(rank, tutti_algorithm_load(path, &name));
    RANK_CHECK(rank, strcmp(name, "py_fold") == 0);
    RANK_CHECK_OK(rank, all_reduce(rank, name, data));
    RANK_CHECK(rank, is_sum(rank, data));
    snprintf(path, sizeof path, "%s/ring.c", own_folder); /* a name of the table's stays that one's */
    RANK_CHECK_OK(rank, tutti_algorithm_load(path, &name));
    RANK_CHECK(rank, strcmp(name, path) == 0);
    RANK_CHECK_OK(rank, all_reduce(rank, name, data));
    RANK_CHECK(rank, is_sum(rank, data));
}

static void test_right(void **state)
{
    (void)state;
    own_file("fold.c", FOLD("fold", ""));
    own_file("ring.c", FOLD("ring", ""));
    own_file("fold.py", PYTHON("range(1, p)"));
    assert_int_equal(ranks_threads(RANKS, right_ones, NULL), 0);
    assert_int_equal(ranks_forked(3, right_ones, NULL), 0);
}

/* The option alone, for calls that say nothing. That it was this algorithm is seen by its being wrong. */
static void wrong_by_option(struct rank *rank)
{
    int64_t data[COUNT];
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "algorithm lazy is refused: lazy all_reduce, size",
                     all_reduce(rank, NULL, data));
    RANK_CHECK_OK(rank, all_reduce(rank, "ring", data)); /* nothing was started: all is as before */
    RANK_CHECK(rank, is_sum(rank, data));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL)); /* a kind that the file does not offer */
}

static void wrong_by_path(struct rank *rank)
{
    int64_t data[COUNT];
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/lazy.py", own_folder);
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "algorithm py_fold is refused: py_fold all_reduce, size",
                     all_reduce(rank, path, data));
    RANK_CHECK_OK(rank, all_reduce(rank, NULL, data));
    RANK_CHECK(rank, is_sum(rank, data));
}

static void test_wrong(void **state)
{
    (void)state;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", own_file("lazy.c", FOLD("lazy", "if (me != 2 || s != 1)")));
    own_file("lazy.py", PYTHON("range(1, p if me != 2 else p - 1)"));
    const struct tutti_option option = {"algorithms", path};
    const struct ranks_config config = {.n = RANKS, .options = &option, .n_options = 1};
    assert_int_equal(ranks_run(&config, wrong_by_option), 0);
    assert_int_equal(ranks_threads(RANKS, wrong_by_path, NULL), 0);
}

/* Each process reads a file of its own, and both are right. */
static void other_files(struct rank *rank)
{
    int64_t data[COUNT];
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/own%d.c", own_folder, (int)rank->index);
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT,
                     rank->index ? "rank 0 has another algorithm" : "rank 1 has another algorithm",
                     all_reduce(rank, path, data));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    snprintf(path, sizeof path, "%s/some%d.c", own_folder, (int)rank->index); /* which one rank has alone */
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, rank->index ? "some1.c can not be read" : "on rank 1 ",
                     all_reduce(rank, path, data));
    snprintf(path, sizeof path, "%s/half%d.c", own_folder, (int)rank->index); /* which is right on one rank alone */
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "algorithm half is refused", all_reduce(rank, path, data));
    RANK_CHECK_OK(rank, all_reduce(rank, NULL, data));
    RANK_CHECK(rank, is_sum(rank, data));
}

static void test_other_files(void **state)
{
    (void)state;
    own_file("own0.c", FOLD("own", ""));
    own_file("own1.c", FOLD("own", "/* the same, as it happens */"));
    own_file("some0.c", FOLD("some", ""));
    own_file("half0.c", FOLD("half", ""));
    own_file("half1.c", FOLD("half", "if (me != 1)"));
    assert_int_equal(ranks_forked(2, other_files, NULL), 0);
}

static void test_contexts(void **state)
{
    (void)state;
    struct tutti_context *context;
    char path[PATH_MAX], text[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s", own_file("typo.c", "int x = y;\n"));
    struct tutti_option option = {"algorithms", path};
    assert_int_equal(tutti_context_create(&option, 1, &context), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "typo.c does not compile"));
    snprintf(text, sizeof text, "all_reduce=%s", own_file("fold.c", FOLD("fold", "")));
    option = (struct tutti_option){"algorithm", text};
    assert_int_equal(tutti_context_create(&option, 1, &context), TUTTI_OK);
    tutti_context_destroy(context);
    snprintf(text, sizeof text, "broadcast=%s", path);
    snprintf(path, sizeof path, "broadcast=%s/fold.c", own_folder);
    option = (struct tutti_option){"algorithm", path};
    assert_int_equal(tutti_context_create(&option, 1, &context), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "does not offer broadcast"));
    assert_true(tutti_algorithm_offers("fold", "all_reduce") && tutti_algorithm_offers("tree:4", "broadcast"));
    assert_false(tutti_algorithm_offers("fold", "broadcast") || tutti_algorithm_offers("fold", "fold"));
    assert_false(tutti_algorithm_offers("no_such", "all_reduce") || tutti_algorithm_offers(NULL, NULL));
    assert_int_equal(tutti_algorithm_load(NULL, NULL), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_algorithm_load("", NULL), TUTTI_ERR_ARGUMENT);
}

/* What has changed is loaded anew, and its name means the new one; what comes back is the old one again. */
static void test_change(void **state)
{
    (void)state;
    const struct tutti_algorithm *first, *second, *third;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", own_file("edit.c", FOLD("edit", "")));
    assert_int_equal(tutti_load(NULL, path, &first), TUTTI_OK);
    own_file("edit.c", FOLD("edit", "/* better */"));
    assert_ptr_equal(tutti_algorithm_find("edit", NULL), first);
    assert_int_equal(tutti_load(NULL, path, &second), TUTTI_OK);
    assert_true(second != first && second->identity != first->identity);
    assert_ptr_equal(tutti_algorithm_find("edit", NULL), second);
    assert_ptr_equal(tutti_algorithm_find(path, NULL), second);
    own_file("edit.c", FOLD("edit", ""));
    assert_int_equal(tutti_load(NULL, path, &third), TUTTI_OK);
    assert_ptr_equal(third, first);
    assert_ptr_equal(tutti_algorithm_find("edit", NULL), first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),    cmocka_unit_test(test_wrong),  cmocka_unit_test(test_other_files),
        cmocka_unit_test(test_contexts), cmocka_unit_test(test_change),
    };
    return cmocka_run_group_tests(tests, own_folder_begin, own_folder_end);
}
