/* SPDX-License-Identifier: BSD-3-Clause */

/* What the machine of a group does where torchft's goes wrong, one thing at a time. */

#include "ft/rules/heard_test.h"

#include <string.h>

static struct tutti_manager *two(struct heard *heard, uint32_t retries)
{
    const struct tutti_manager_options options = {"me", "http://me:1", "store:1", 2, retries, 0};
    const struct tutti_manager_out out = out_to(heard);
    struct tutti_manager *m;

    *heard = (struct heard){{0}};
    assert_int_equal(tutti_manager_create(&options, &out, 1, &m), TUTTI_OK);
    return m;
}

static struct tutti_manager_ask at_step(int64_t step)
{
    return (struct tutti_manager_ask){.step = step, .checkpoint_metadata = "m", .handle = "", .deadline_ns = 1000};
}

static void test_the_group_is_at_its_smallest_step(void **state)
{
    struct heard heard;
    struct tutti_manager *m = two(&heard, 0);
    struct tutti_manager_ask ask = at_step(4);

    (void)state;
    assert_null(tutti_manager_metadata(m, 0));
    tutti_manager_ask(m, 0, &ask, 1);
    ask = at_step(5);
    ask.commit_failures = 2;
    ask.shrink_only = true;
    tutti_manager_ask(m, 1, &ask, 2);
    assert_string_equal(heard.text, "ask 4 2 1 0 1000\n");
    assert_string_equal(tutti_manager_metadata(m, 1), "m");
    assert_null(tutti_manager_metadata(m, 2));
    tutti_manager_destroy(m);
}

static void test_ranks_hear_at_once_that_there_is_no_quorum(void **state)
{
    struct heard heard;
    struct tutti_manager *m = two(&heard, 1);
    const struct tutti_manager_ask ask = at_step(1);

    (void)state;
    tutti_manager_ask(m, 0, &ask, 1);
    tutti_manager_ask(m, 1, &ask, 2);
    tutti_manager_unanswered(m, TUTTI_MANAGER_NO_ANSWER, "no", 5);
    assert_int_equal(tutti_manager_due(m), 5 + 100 * MS);
    tutti_manager_tick(m, 5 + 100 * MS);
    tutti_manager_unanswered(m, TUTTI_MANAGER_NO_ANSWER, "no", 6 + 100 * MS);
    assert_string_equal(heard.text, "ask 1 0 0 0 1000\nask 1 0 0 0 1000\nrefused 1 3\nrefused 2 3\n");
    tutti_manager_destroy(m);
}

static void test_other_steps_are_no_vote(void **state)
{
    struct heard heard;
    struct tutti_manager *m = two(&heard, 0);

    (void)state;
    tutti_manager_vote(m, 0, 4, true, 1);
    tutti_manager_vote(m, 1, 5, true, 2);
    tutti_manager_vote(m, 0, 5, true, 3);
    tutti_manager_vote(m, 1, 5, false, 4);
    assert_string_equal(heard.text, "refused 1 0\nrefused 2 0\ndecided 3 0\ndecided 4 0\n");
    tutti_manager_destroy(m);
}

/* A question that was not understood is said once more, and is no failure. */
static void test_a_question_is_repeated(void **state)
{
    struct heard heard;
    struct tutti_manager *m = two(&heard, 0);
    const struct tutti_manager_ask ask = at_step(1);

    (void)state;
    tutti_manager_repeat(m, 4); /* nothing was asked */
    tutti_manager_ask(m, 0, &ask, 1);
    tutti_manager_ask(m, 1, &ask, 2);
    tutti_manager_repeat(m, 5);
    assert_int_equal(tutti_manager_due(m), 5);
    tutti_manager_tick(m, 5);
    tutti_manager_unanswered(m, TUTTI_MANAGER_NO_ANSWER, "no", 6);
    assert_string_equal(heard.text, "ask 1 0 0 0 1000\nask 1 0 0 0 1000\nrefused 1 3\nrefused 2 3\n");
    tutti_manager_destroy(m);
}

static void test_options(void **state)
{
    const struct tutti_manager_out out = {0};
    struct tutti_manager_options options = {"", "", "", 1, 0, 0};
    struct tutti_manager *m;

    (void)state;
    assert_int_equal(tutti_manager_create(&options, &out, 1, &m), TUTTI_ERR_ARGUMENT);
    options.replica_id = "me", options.world_size = 0;
    assert_int_equal(tutti_manager_create(&options, &out, 1, &m), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "world_size of me is 0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_group_is_at_its_smallest_step),
        cmocka_unit_test(test_ranks_hear_at_once_that_there_is_no_quorum),
        cmocka_unit_test(test_other_steps_are_no_vote),
        cmocka_unit_test(test_a_question_is_repeated),
        cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
