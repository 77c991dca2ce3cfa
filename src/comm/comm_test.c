/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of communicators: creation, blocking and not, splits into any number of groups, duplicates, timeouts, state,
 * abort from another thread, leaving, destruction in every order. */
#include "ranks.h"
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <tutti/tutti.h>

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* The ranks of a communicator, in order, as ranks of the world. */
static enum tutti_status who(struct tutti_comm *comm, int32_t world_rank, int32_t *out)
{
    return tutti_all_gather(&world_rank, out, 1, TUTTI_INT32, comm, NULL, NULL);
}

static void facts(struct rank *rank)
{
    RANK_CHECK(rank, tutti_comm_rank(rank->comm) == rank->index);
    RANK_CHECK(rank, tutti_comm_size(rank->comm) == rank->n);
    RANK_CHECK(rank, tutti_comm_context(rank->comm) == rank->context);
    RANK_CHECK_OK(rank, tutti_comm_state(rank->comm, NULL));
    uint64_t id = tutti_comm_id(rank->comm), ids[8];
    RANK_CHECK(rank, id != 0);
    RANK_CHECK(rank, tutti_comm_sequence(rank->comm) == 0);
    RANK_CHECK_OK(rank, tutti_all_gather(&id, ids, 1, TUTTI_UINT64, rank->comm, NULL, NULL));
    for (int32_t r = 0; r < rank->n; r++) RANK_CHECK(rank, ids[r] == id);
    RANK_CHECK(rank, tutti_comm_sequence(rank->comm) == 1);
    tutti_comm_set_timeout(rank->comm, 12345);
    RANK_CHECK(rank, tutti_comm_timeout(rank->comm) == 12345);
    tutti_comm_set_timeout(rank->comm, TUTTI_TIMEOUT_DEFAULT);
    RANK_CHECK(rank, tutti_comm_timeout(rank->comm) == UINT64_C(1800) * 1000000000);
    RANK_CHECK(rank, tutti_version() == 0x000100 && !strcmp(tutti_version_text(), "0.1.0"));
}

static void tells_its_facts(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(3, facts, NULL), 0);
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

/* ---- non-blocking creation ---- */

static void pending(struct rank *rank)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    config.rank = rank->index;
    config.n_ranks = rank->n;
    config.name = rank->name;
    config.nonblocking = true;
    if (rank->index == 0) nap_ms(100);
    RANK_CHECK_OK(rank, tutti_comm_create(rank->context, &config, &rank->comm));
    RANK_CHECK(rank, tutti_comm_rank(rank->comm) == rank->index && tutti_comm_size(rank->comm) == rank->n);
    if (rank->index) {
        RANK_CHECK_STATUS(rank, TUTTI_PENDING, tutti_comm_state(rank->comm, NULL));
        RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "still being created", tutti_barrier(rank->comm, NULL, NULL));
        RANK_CHECK(rank, tutti_comm_id(rank->comm) == 0);
    }
    enum tutti_status state;
    while ((state = tutti_comm_state(rank->comm, NULL)) == TUTTI_PENDING) nap_ms(1);
    RANK_CHECK_OK(rank, state);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
}

static void nonblocking(void **state)
{
    (void)state;
    struct ranks_config config = {.n = 4, .no_comm = true};
    assert_int_equal(ranks_run(&config, pending), 0);
    config.forked = true;
    assert_int_equal(ranks_run(&config, pending), 0);
}

/* The others never come: abort ends the creation, destroy ends it, too, and at once. */
static void lonely(struct rank *rank)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    config.rank = 0;
    config.n_ranks = 2;
    config.name = rank->name;
    config.nonblocking = true;
    uint64_t start = now_ns();
    RANK_CHECK_OK(rank, tutti_comm_create(rank->context, &config, &rank->comm));
    nap_ms(20);
    RANK_CHECK_STATUS(rank, TUTTI_PENDING, tutti_comm_state(rank->comm, NULL));
    tutti_comm_abort(rank->comm, "tired of waiting");
    enum tutti_status state;
    struct tutti_error error;
    while ((state = tutti_comm_state(rank->comm, &error)) == TUTTI_PENDING) nap_ms(1);
    RANK_CHECK(rank, state == TUTTI_ERR_ABORTED && strstr(error.text, "tired of waiting"));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ABORTED, "tired", tutti_barrier(rank->comm, NULL, NULL));
    tutti_comm_destroy(rank->comm);
    RANK_CHECK_OK(rank, tutti_comm_create(rank->context, &config, &rank->comm));
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    config.nonblocking = false;
    config.timeout_ns = 50 * 1000000;
    RANK_CHECK_ERROR(rank, TUTTI_ERR_TIMEOUT, "1", tutti_comm_create(rank->context, &config, &rank->comm));
    RANK_CHECK(rank, now_ns() - start < UINT64_C(10000000000));
}

static void creation_ended(void **state)
{
    (void)state;
    struct ranks_config config = {.n = 1, .no_comm = true};
    assert_int_equal(ranks_run(&config, lonely), 0);
}

/* ---- abort and destroy ---- */

struct abort_at {
    struct tutti_comm *comm;
    int ms;
};
static void *abort_later(void *arg)
{
    const struct abort_at *at = arg;
    nap_ms(at->ms);
    tutti_comm_abort(at->comm, "the user said stop");
    return NULL;
}

/* All but the last rank wait for it; another thread aborts; then a new communicator is made of all of them. */
static void aborted(struct rank *rank)
{
    struct abort_at at = {rank->comm, 50};
    pthread_t thread;
    int32_t last = rank->n - 1;
    uint64_t start = now_ns();
    if (rank->index == 0) pthread_create(&thread, NULL, abort_later, &at);
    if (rank->index != last)
        RANK_CHECK_ERROR(rank, TUTTI_ERR_ABORTED, "the user said stop", tutti_barrier(rank->comm, NULL, NULL));
    if (rank->index == last) {
        for (int i = 0; i < 20000 && tutti_comm_state(rank->comm, NULL) == TUTTI_OK; i++) nap_ms(1);
        RANK_CHECK_ERROR(rank, TUTTI_ERR_ABORTED, "the user said stop", tutti_barrier(rank->comm, NULL, NULL));
    }
    if (rank->index == 0) pthread_join(thread, NULL);
    RANK_CHECK(rank, now_ns() - start < UINT64_C(15000000000));
    struct tutti_comm *again = NULL;
    RANK_CHECK_OK(rank, tutti_comm_shrink(rank->comm, NULL, 0, &again));
    RANK_CHECK(rank, tutti_comm_size(again) == rank->n);
    int32_t one = 1, sum = 0;
    RANK_CHECK_OK(rank, tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, again, NULL, NULL));
    RANK_CHECK(rank, sum == rank->n);
    tutti_comm_destroy(rank->comm);
    rank->comm = again;
}

static void abort_from_a_thread(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(4, aborted, NULL), 0);
    assert_int_equal(ranks_forked(3, aborted, NULL), 0);
}

static void leaves(struct rank *rank)
{
    if (rank->index == 1) return; /* destroys its communicator */
    RANK_CHECK_ERROR(rank, TUTTI_ERR_PEER_LEFT, "rank 1", tutti_barrier(rank->comm, NULL, NULL));
    struct tutti_error error;
    RANK_CHECK(rank, tutti_comm_state(rank->comm, &error) == TUTTI_ERR_PEER_LEFT && error.peer == 1);
}

/* A call that nobody else makes is in flight until it is aborted. */
static void flushed(struct rank *rank)
{
    struct tutti_comm *lonely = NULL;
    struct tutti_work *work = NULL;
    uint64_t start = now_ns();
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &lonely));
    RANK_CHECK_OK(rank, tutti_comm_flush(lonely, 0));
    if (rank->index == 0) {
        RANK_CHECK_OK(rank, tutti_barrier(lonely, NULL, &work));
        RANK_CHECK_STATUS(rank, TUTTI_PENDING, tutti_comm_flush(lonely, UINT64_C(30000000)));
        RANK_CHECK(rank, now_ns() - start >= UINT64_C(30000000));
        tutti_comm_abort(lonely, "nobody comes");
        RANK_CHECK_OK(rank, tutti_comm_flush(lonely, 0));
        RANK_CHECK(rank, tutti_work_test(work) == TUTTI_ERR_ABORTED);
        tutti_work_free(work);
    }
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL)); /* who leaves before that ends the call, too */
    tutti_comm_destroy(lonely);
    RANK_CHECK(rank, now_ns() - start < UINT64_C(15000000000));
    int64_t in = rank->index, out = -1;
    RANK_CHECK_OK(rank, tutti_all_reduce(&in, &out, 1, TUTTI_INT64, TUTTI_SUM, rank->comm, NULL, &work));
    RANK_CHECK_OK(rank, tutti_comm_flush(rank->comm, 0));
    RANK_CHECK(rank, out == rank->n * (rank->n - 1) / 2);
    tutti_work_free(work);
    RANK_CHECK_STATUS(rank, TUTTI_ERR_ARGUMENT, tutti_comm_flush(NULL, 0));
}

static void flushes(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(3, flushed, NULL), 0);
    assert_int_equal(ranks_forked(2, flushed, NULL), 0);
}

static void peer_leaves(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(3, leaves, NULL), 0);
    assert_int_equal(ranks_forked(3, leaves, NULL), 0);
}

/* Destroy waits for what is in flight; a context's end aborts what is left, and the handles stay valid. */
static void unfinished(struct rank *rank)
{
    struct tutti_comm *dup = NULL, *left = NULL;
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &dup));
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &left));
    int64_t in = rank->index, out = -1;
    struct tutti_work *work = NULL;
    if (rank->index == 0) nap_ms(50);
    RANK_CHECK_OK(rank, tutti_all_reduce(&in, &out, 1, TUTTI_INT64, TUTTI_SUM, dup, NULL, &work));
    tutti_comm_destroy(dup);
    RANK_CHECK_OK(rank, tutti_work_test(work));
    RANK_CHECK(rank, out == rank->n * (rank->n - 1) / 2);
    tutti_work_free(work);
    work = NULL;
    if (rank->index == 0) RANK_CHECK_OK(rank, tutti_barrier(left, NULL, &work)); /* nobody else calls it */
    tutti_context_destroy(rank->context);
    rank->context = NULL;
    if (work) RANK_CHECK(rank, tutti_work_test(work) == TUTTI_ERR_ABORTED);
    tutti_work_free(work);
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ABORTED, "context", tutti_barrier(left, NULL, NULL));
    RANK_CHECK_STATUS(rank, TUTTI_ERR_ABORTED, tutti_comm_state(left, NULL));
    tutti_comm_destroy(left); /* and the first one by the harness */
}

static void context_goes_first(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(3, unfinished, NULL), 0);
    assert_int_equal(ranks_forked(2, unfinished, NULL), 0);
}

/* A communicator of its own makes its own context. */
static void private_context(void **state)
{
    (void)state;
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    struct tutti_comm *comm = NULL, *dup = NULL;
    config.rank = 0;
    config.n_ranks = 1;
    config.name = "private";
    assert_int_equal(tutti_comm_create(NULL, &config, &comm), TUTTI_OK);
    assert_non_null(tutti_comm_context(comm));
    assert_int_equal(tutti_comm_dup(comm, &dup), TUTTI_OK);
    tutti_comm_destroy(comm);
    int32_t in = 5, out = 0;
    assert_int_equal(tutti_all_reduce(&in, &out, 1, TUTTI_INT32, TUTTI_MAX, dup, NULL, NULL), TUTTI_OK);
    assert_int_equal(out, 5);
    tutti_comm_destroy(dup);
    /* Destroyed by hand, it ends its communicators, whose handles stay. */
    assert_int_equal(tutti_comm_create(NULL, &config, &comm), TUTTI_OK);
    tutti_context_destroy(tutti_comm_context(comm));
    assert_int_equal(tutti_barrier(comm, NULL, NULL), TUTTI_ERR_ABORTED);
    tutti_comm_destroy(comm);
    tutti_comm_destroy(NULL);
    tutti_context_destroy(NULL);
    tutti_comm_abort(NULL, "nothing");
}

static void wrong_creations(void **state)
{
    (void)state;
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    struct tutti_context *context = NULL;
    struct tutti_comm *comm = NULL;
    struct tutti_option wrong = {"trasnport", "shm"}, pigeon = {"transport", "carrier_pigeon"},
                        algorithm = {"algorithm", "all_reduce=rong"};
    assert_int_equal(tutti_context_create(&wrong, 1, &context), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "transport"));
    assert_int_equal(tutti_context_create(&pigeon, 1, &context), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "one of auto, self, shm"));
    assert_int_equal(tutti_context_create(&algorithm, 1, &context), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "rong"));
    assert_int_equal(tutti_context_create(NULL, 1, &context), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_context_create(NULL, 0, NULL), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_context_create(NULL, 0, &context), TUTTI_OK);
    config.rank = 3;
    assert_int_equal(tutti_comm_create(context, &config, &comm), TUTTI_ERR_ARGUMENT);
    config.n_ranks = 3;
    assert_int_equal(tutti_comm_create(context, &config, &comm), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "rank 3"));
    config.rank = 0;
    config.n_ranks = 1;
    config.size = 0;
    assert_int_equal(tutti_comm_create(context, &config, &comm), TUTTI_ERR_ARGUMENT);
    config.size = sizeof(config);
    config.name = "";
    assert_int_equal(tutti_comm_create(context, &config, &comm), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_comm_create(context, &config, NULL), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_comm_state(NULL, NULL), TUTTI_ERR_ARGUMENT);
    assert_null(comm);
    tutti_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_its_facts),
        cmocka_unit_test(splits_into_groups),
        cmocka_unit_test(duplicates),
        cmocka_unit_test(split_with_a_wrong_rank),
        cmocka_unit_test(levels),
        cmocka_unit_test(levels_that_do_not_add_up),
        cmocka_unit_test(nonblocking),
        cmocka_unit_test(creation_ended),
        cmocka_unit_test(abort_from_a_thread),
        cmocka_unit_test(peer_leaves),
        cmocka_unit_test(flushes),
        cmocka_unit_test(context_goes_first),
        cmocka_unit_test(private_context),
        cmocka_unit_test(wrong_creations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
