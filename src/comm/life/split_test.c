/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators made of another one: splits into any number of groups, duplicates; and the levels that groups of ranks
 * have. */
#include "ranks.h"
#include "test.h"

#include <string.h>
#include <tutti/tutti.h>

/* The ranks of a communicator, in order, as ranks of the world. */
static enum tutti_status who(struct tutti_comm *comm, int32_t world_rank, int32_t *out)
{
    return tutti_all_gather(&world_rank, out, 1, TUTTI_INT32, comm, NULL, NULL);
}

/* ---- split ---- */

/* Groups of one colour are ordered by key, then by rank. */
static void check_group(struct rank *rank, struct tutti_comm *group, const int32_t *colours, const int32_t *keys)
{
    int32_t expected[32], n = 0, found[32];
    for (int32_t key = -40; key <= 40; key++)
        for (int32_t r = 0; r < rank->n; r++)
            if (colours[r] == colours[rank->index] && keys[r] == key) expected[n++] = r;
    RANK_CHECK(rank, tutti_comm_size(group) == n);
    RANK_CHECK(rank, expected[tutti_comm_rank(group)] == rank->index);
    RANK_CHECK_OK(rank, who(group, rank->index, found));
    RANK_CHECK(rank, !memcmp(found, expected, (size_t)n * sizeof(int32_t)));
}

static void splits(struct rank *rank)
{
    uint64_t shared = 42; /* the same sequence on all ranks */
    for (int turn = 0; turn < 12 && !rank->failure[0]; turn++) {
        int32_t colours[32], keys[32];
        for (int32_t r = 0; r < rank->n; r++) {
            shared = shared * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            colours[r] = (int32_t)(shared >> 33) % (turn + 1);
            if (colours[r] == 0 && turn % 3 == 1) colours[r] = TUTTI_UNDEFINED;
            keys[r] = (int32_t)(shared >> 40) % 4 - 2;
        }
        struct tutti_comm *group = NULL;
        RANK_CHECK_OK(rank, tutti_comm_split(rank->comm, colours[rank->index], keys[rank->index], &group));
        RANK_CHECK(rank, (group == NULL) == (colours[rank->index] == TUTTI_UNDEFINED));
        if (!group) continue;
        RANK_CHECK(rank, tutti_comm_id(group) != tutti_comm_id(rank->comm));
        check_group(rank, group, colours, keys);
        struct tutti_comm *part = NULL; /* and again, of the group */
        if (!rank->failure[0]) RANK_CHECK_OK(rank, tutti_comm_split(group, tutti_comm_rank(group) % 2, 0, &part));
        int32_t found[32];
        if (!rank->failure[0]) RANK_CHECK_OK(rank, who(part, rank->index, found));
        if (turn % 2) { /* parents first, children first */
            tutti_comm_destroy(group);
            RANK_CHECK_OK(rank, tutti_barrier(part, NULL, NULL));
            tutti_comm_destroy(part);
        } else {
            tutti_comm_destroy(part);
            tutti_comm_destroy(group);
        }
    }
}

static void splits_into_groups(void **state)
{
    (void)state;
    const uint32_t sizes[] = {1, 2, 3, 8, 17};
    for (size_t i = 0; i < 5; i++) assert_int_equal(ranks_threads(sizes[i], splits, NULL), 0);
    assert_int_equal(ranks_forked(4, splits, NULL), 0);
}

static void dups(struct rank *rank)
{
    struct tutti_comm *dup = NULL;
    int32_t one = 1, sum = 0;
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &dup));
    RANK_CHECK(rank, tutti_comm_rank(dup) == rank->index && tutti_comm_size(dup) == rank->n);
    RANK_CHECK(rank, tutti_comm_timeout(dup) == tutti_comm_timeout(rank->comm));
    /* Calls of the two may interleave in any order; a failure of one leaves the other. */
    struct tutti_work *first = NULL, *second = NULL;
    struct tutti_comm *a = rank->index % 2 ? dup : rank->comm, *b = rank->index % 2 ? rank->comm : dup;
    int32_t sums[2] = {0, 0};
    RANK_CHECK_OK(rank, tutti_all_reduce(&one, &sums[0], 1, TUTTI_INT32, TUTTI_SUM, a, NULL, &first));
    RANK_CHECK_OK(rank, tutti_all_reduce(&one, &sums[1], 1, TUTTI_INT32, TUTTI_SUM, b, NULL, &second));
    RANK_CHECK_OK(rank, tutti_work_wait(second, 0));
    RANK_CHECK_OK(rank, tutti_work_wait(first, 0));
    RANK_CHECK(rank, sums[0] == rank->n && sums[1] == rank->n);
    RANK_CHECK(rank, tutti_work_duration_ns(first) > 0);
    tutti_work_free(first);
    tutti_work_free(second);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL)); /* all are through */
    if (rank->index == 0) tutti_comm_abort(dup, "enough");
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ABORTED, "enough", tutti_barrier(dup, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, rank->comm, NULL, NULL));
    RANK_CHECK(rank, sum == rank->n);
    struct tutti_error error;
    RANK_CHECK(rank, tutti_comm_state(dup, &error) == TUTTI_ERR_ABORTED && strstr(error.text, "enough"));
    RANK_CHECK_OK(rank, tutti_comm_state(rank->comm, &error));
    tutti_comm_destroy(dup);
}

static void duplicates(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(4, dups, NULL), 0);
    assert_int_equal(ranks_forked(3, dups, NULL), 0);
}

/* A rank with wrong arguments does not leave the others waiting. */
static void split_refused(struct rank *rank)
{
    struct tutti_comm *group = NULL;
    int32_t colour = rank->index == 1 ? -5 : 0;
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "rank 1", tutti_comm_split(rank->comm, colour, 0, &group));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL)); /* the parent is whole */
}

static void split_with_a_wrong_rank(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(3, split_refused, NULL), 0);
}

/* ---- levels ---- */

static void leveled(struct rank *rank)
{
    int32_t one = rank->index, sum = -1;
    RANK_CHECK_OK(rank, tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, rank->comm, NULL, NULL));
    RANK_CHECK(rank, sum == rank->n * (rank->n - 1) / 2);
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.algorithm = "hierarchical";
    RANK_CHECK_OK(rank, tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, rank->comm, &options, NULL));
    struct tutti_comm *even = NULL, *mixed = NULL, *host = NULL;
    /* Every other rank: groups of 2, 2, 1, 2 and so on remain regular. */
    RANK_CHECK_OK(rank, tutti_comm_split(rank->comm, rank->index % 2, 0, &even));
    sum = -1;
    RANK_CHECK_OK(rank, tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, even, &options, NULL));
    tutti_comm_destroy(even);
    /* An order that jumps between the groups is flat. */
    int32_t key = rank->index * 7 % rank->n;
    RANK_CHECK_OK(rank, tutti_comm_split(rank->comm, 0, key, &mixed));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_UNSUPPORTED, "hierarchical",
                     tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, mixed, &options, NULL));
    RANK_CHECK_OK(rank, tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, mixed, NULL, NULL));
    RANK_CHECK(rank, sum == rank->n * (rank->n - 1) / 2);
    tutti_comm_destroy(mixed);
    int32_t group = rank->index < 8 ? rank->index / 4 : rank->index < 11 ? 2 : 3; /* one group: flat */
    RANK_CHECK_OK(rank, tutti_comm_split(rank->comm, group, 0, &host));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_UNSUPPORTED, "hierarchical",
                     tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, host, &options, NULL));
    tutti_comm_destroy(host);
}

static void levels(void **state)
{
    (void)state;
    struct tutti_option option = {"levels", "4,4,3,4"};
    struct ranks_config config = {.n = 15, .options = &option, .n_options = 1};
    assert_int_equal(ranks_run(&config, leveled), 0);
}

static void wrong_levels(struct rank *rank)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    config.rank = rank->index;
    config.n_ranks = rank->n;
    config.name = rank->name;
    RANK_CHECK(rank, tutti_comm_create(rank->context, &config, &rank->comm) == TUTTI_ERR_ARGUMENT);
    RANK_CHECK(rank, rank->comm == NULL);
}

static void levels_that_do_not_add_up(void **state)
{
    (void)state;
    struct tutti_option option = {"levels", "4,4"};
    struct ranks_config config = {.n = 3, .options = &option, .n_options = 1, .no_comm = true};
    assert_int_equal(ranks_run(&config, wrong_levels), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_into_groups),        cmocka_unit_test(duplicates),
        cmocka_unit_test(split_with_a_wrong_rank),   cmocka_unit_test(levels),
        cmocka_unit_test(levels_that_do_not_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
