/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that do not do the same: each must get a sentence that names ranks and calls, on every rank, in time; and the
 * process must be able to go on with a new communicator. */

#include "test.h"

#include "ranks.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Thread_local float a[4096], b[4096]; /* ranks are threads */

struct odd_one {
    const char *name;
    enum tutti_status expected;
    const char *said[3]; /* parts of the sentence */
    enum tutti_status (*usual)(struct tutti_comm *comm, const struct tutti_call_options *options);
    enum tutti_status (*odd)(struct tutti_comm *comm, const struct tutti_call_options *options); /* NULL: never calls */
};

#define CALL(name, call)                                                                                               \
    static enum tutti_status name(struct tutti_comm *comm, const struct tutti_call_options *options)                   \
    {                                                                                                                  \
        return call;                                                                                                   \
    }
CALL(sum_1000, tutti_all_reduce(a, b, 1000, TUTTI_FLOAT32, TUTTI_SUM, comm, options, NULL))
CALL(sum_999, tutti_all_reduce(a, b, 999, TUTTI_FLOAT32, TUTTI_SUM, comm, options, NULL))
CALL(max_1000, tutti_all_reduce(a, b, 1000, TUTTI_FLOAT32, TUTTI_MAX, comm, options, NULL))
CALL(int_1000, tutti_all_reduce(a, b, 1000, TUTTI_INT32, TUTTI_SUM, comm, options, NULL))
CALL(from_0, tutti_broadcast(a, 1000, TUTTI_FLOAT32, 0, comm, options, NULL))
CALL(from_1, tutti_broadcast(a, 1000, TUTTI_FLOAT32, 1, comm, options, NULL))
CALL(gather_100, tutti_all_gather(a, b, 100, TUTTI_FLOAT32, comm, options, NULL))
CALL(barrier, tutti_barrier(comm, options, NULL))

static const struct odd_one cases[] = {
    {"another collective", TUTTI_ERR_MISMATCH, {"all_reduce", "broadcast", "rank 2"}, sum_1000, from_0},
    {"another count", TUTTI_ERR_MISMATCH, {"1000", "999", "rank 2"}, sum_1000, sum_999},
    {"another type", TUTTI_ERR_MISMATCH, {"float32", "int32", "rank 2"}, sum_1000, int_1000},
    {"another operation", TUTTI_ERR_MISMATCH, {"sum", "max", "rank 2"}, sum_1000, max_1000},
    {"another root", TUTTI_ERR_MISMATCH, {"root 0", "root 1", "rank 2"}, from_0, from_1},
    {"a barrier instead", TUTTI_ERR_MISMATCH, {"all_gather", "barrier", "rank 2"}, gather_100, barrier},
    {"never calls", TUTTI_ERR_TIMEOUT, {"all_reduce", "rank 2", "#2"}, sum_1000, NULL},
};

static void do_not_agree(struct rank *rank)
{
    const struct odd_one *c = rank->arg;
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.timeout_ns = UINT64_C(1500000000);
    enum tutti_status status =
        barrier(rank->comm, NULL); /* sequence number 1; a quick rank may fail it with 2 already */
    if (status < 0) {
        /* the sentence is there */
    } else if (rank->index != 2) {
        status = c->usual(rank->comm, &options);
    } else if (c->odd) {
        status = c->odd(rank->comm, &options);
    } else {
        const struct timespec nap = {.tv_nsec = 1000000};
        for (int i = 0; i < 20000 && tutti_comm_state(rank->comm, NULL) == TUTTI_OK; i++) nanosleep(&nap, NULL);
        status = barrier(rank->comm, NULL); /* the communicator has failed meanwhile */
    }
    if (status == TUTTI_OK) status = barrier(rank->comm, NULL); /* its own part was done before the others differed */
    const char *text = tutti_last_error()->text;
    bool said = strstr(text, c->said[0]) && strstr(text, c->said[1]) && strstr(text, c->said[2]);
    if (status != c->expected || !said) {
        rank_fail(rank, __FILE__, __LINE__, "%s: %s \"%s\"", c->name, tutti_status_name(status), text);
        return;
    }
    /* life goes on */
    struct tutti_comm *fresh = NULL;
    RANK_CHECK_OK(rank, tutti_comm_shrink(rank->comm, NULL, 0, &fresh));
    status = sum_1000(fresh, NULL);
    tutti_comm_destroy(fresh);
    RANK_CHECK_OK(rank, status);
}

static void mismatches(void **state)
{
    (void)state;
    unsigned failed = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int forked = 0; forked < 2; forked++) {
            struct odd_one copy = cases[i];
            struct ranks_config config = {.n = 4, .forked = forked, .deadline_s = 30, .arg = &copy};
            unsigned now = ranks_run(&config, do_not_agree);
            if (now) print_message("failed: %s (%s)\n", copy.name, forked ? "shm" : "self");
            failed += now;
        }
    }
    assert_int_equal(failed, 0);
}

/* A rank that destroys its communicator while the others wait for it. */
static void leave(struct rank *rank)
{
    if (rank->index == 1) {
        RANK_CHECK_OK(rank, barrier(rank->comm, NULL));
        return;
    }
    enum tutti_status status = barrier(rank->comm, NULL); /* a quick rank may fail it with the next one already */
    if (status == TUTTI_OK) status = barrier(rank->comm, NULL);
    RANK_CHECK_ERROR(rank, TUTTI_ERR_PEER_LEFT, "rank 1", status);
}

/* A whole process that leaves, cleanly. */
static void leaves(void **state)
{
    (void)state;
    for (int forked = 0; forked < 2; forked++) {
        struct ranks_config config = {.n = 3, .forked = forked, .deadline_s = 20};
        assert_int_equal(ranks_run(&config, leave), 0);
    }
}

static void abort_one(struct rank *rank)
{
    enum tutti_status status = barrier(rank->comm, NULL);
    if (rank->index == 2) {
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        tutti_comm_abort(rank->comm, "the user has seen enough");
    }
    if (status == TUTTI_OK) status = barrier(rank->comm, NULL); /* a slow rank may hear of it in the first one */
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ABORTED, "the user has seen enough", status);
    const struct tutti_error *error = tutti_last_error();
    RANK_CHECK(rank, error->peer == 2 && error->seq >= 1);
    RANK_CHECK(rank, strstr(error->text, "rank 2 aborted the communicator after barrier #1 "));
}

static void aborts(void **state)
{
    (void)state;
    for (int forked = 0; forked < 2; forked++) {
        struct ranks_config config = {.n = 4, .forked = forked, .deadline_s = 20};
        assert_int_equal(ranks_run(&config, abort_one), 0);
    }
}

/* A rank that reduces nothing has nothing to send, and where the engine runs it is done at once, unless the others'
 * messages were there before: they find out before their deadline all the same. */
static void nothing_to_send(struct rank *rank)
{
    int32_t data[10] = {0};
    bool engine = rank->arg != NULL || ranks_on_hosts();
    tutti_comm_set_timeout(rank->comm, 4 * UINT64_C(1000000000));
    enum tutti_status status = TUTTI_OK;
    if (rank->index == 1) {
        status = tutti_all_reduce(data, data, 0, TUTTI_INT32, TUTTI_SUM, rank->comm, NULL, NULL);
        RANK_CHECK(rank, status == TUTTI_ERR_MISMATCH || (engine && status == TUTTI_OK));
    }
    for (int i = 0; i < 2 && status == TUTTI_OK; i++)
        status = tutti_all_reduce(data, data, 10, TUTTI_INT32, TUTTI_SUM, rank->comm, NULL, NULL);
    const char *text = tutti_last_error()->text;
    if (status != TUTTI_ERR_MISMATCH) rank_fail(rank, __FILE__, __LINE__, "%s: %s", tutti_status_name(status), text);
    RANK_CHECK(rank, strstr(text, "all_reduce #1"));
    RANK_CHECK(rank,
               strstr(text, "(int32, 0 elements, sum)") || (engine && strstr(text, "rank 1 has completed it")) ||
                   (engine && strstr(text, "a call before without data"))); /* in memory that hosts' ranks share */
}

static void counts_of_nothing(void **state)
{
    (void)state;
    struct tutti_option on = {"backends", "auto"}, off = {"backends", "off"};
    struct ranks_config flat = {.n = 3, .forked = true, .deadline_s = 20, .options = &on, .n_options = 1},
                        engine = flat;
    engine.options = engine.arg = &off;
    assert_int_equal(ranks_run(&flat, nothing_to_send), 0);
    assert_int_equal(ranks_run(&engine, nothing_to_send), 0);
}

/* What a split does inside is told by its name. */
static void split_alone(struct rank *rank)
{
    struct tutti_comm *part = NULL;
    if (rank->index == 1) return;
    RANK_CHECK_ERROR(rank, TUTTI_ERR_PEER_LEFT, "comm_split", tutti_comm_split(rank->comm, 0, 0, &part));
}

static void splits(void **state)
{
    (void)state;
    struct ranks_config config = {.n = 3, .forked = true, .deadline_s = 20};
    assert_int_equal(ranks_run(&config, split_alone), 0);
}

/* A stopped process is not dead: the deadline decides, and the sentence says who did not come. */
static void stop(struct rank *rank)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.timeout_ns = UINT64_C(1000000000);
    RANK_CHECK_OK(rank, barrier(rank->comm, NULL));
    if (rank->index == 1) raise(SIGSTOP); /* the test's parent ends it at the deadline */
    RANK_CHECK_ERROR(rank, TUTTI_ERR_TIMEOUT, "rank 1", barrier(rank->comm, &options));
}

static void stopped(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip(); /* ranks are threads here: the signal would stop the test */
    /* Hosts leave once they know that all heard of the failure, or after 5 s. */
    const uint32_t deadline_s = ranks_on_hosts() ? 15 : 5;
    struct ranks_config config = {.n = 3, .forked = true, .deadline_s = deadline_s, .may_die = 2};
    assert_int_equal(ranks_run(&config, stop), 1); /* the stopped one alone */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mismatches), cmocka_unit_test(leaves), cmocka_unit_test(counts_of_nothing),
        cmocka_unit_test(splits),     cmocka_unit_test(aborts), cmocka_unit_test(stopped),
    };
    return cmocka_run_group_tests_name("faults.mismatch", tests, NULL, NULL);
}
