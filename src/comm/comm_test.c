/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of communicators: creation, blocking and not, timeouts, state, abort from another thread, leaving,
 * destruction in every order. */
#include "ranks.h"
#include "test.h"

#include "base/base.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>
#include <unistd.h>

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

/* ---- non-blocking creation ---- */

static void pending(struct rank *rank)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    config.rank = rank->index;
    config.n_ranks = rank->n;
    config.name = rank->name;
    config.nonblocking = true;
    if (rank->index == 0) tutti_sleep_ns(100 * TUTTI_NS_PER_MS);
    RANK_CHECK_OK(rank, tutti_comm_create(rank->context, &config, &rank->comm));
    RANK_CHECK(rank, tutti_comm_rank(rank->comm) == rank->index && tutti_comm_size(rank->comm) == rank->n);
    if (rank->index) {
        RANK_CHECK_STATUS(rank, TUTTI_PENDING, tutti_comm_state(rank->comm, NULL));
        RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "still being created", tutti_barrier(rank->comm, NULL, NULL));
        RANK_CHECK(rank, tutti_comm_id(rank->comm) == 0);
    }
    enum tutti_status state;
    while ((state = tutti_comm_state(rank->comm, NULL)) == TUTTI_PENDING) tutti_sleep_ns(1 * TUTTI_NS_PER_MS);
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
    uint64_t start = tutti_now_ns();
    RANK_CHECK_OK(rank, tutti_comm_create(rank->context, &config, &rank->comm));
    tutti_sleep_ns(20 * TUTTI_NS_PER_MS);
    RANK_CHECK_STATUS(rank, TUTTI_PENDING, tutti_comm_state(rank->comm, NULL));
    tutti_comm_abort(rank->comm, "tired of waiting");
    enum tutti_status state;
    struct tutti_error error;
    while ((state = tutti_comm_state(rank->comm, &error)) == TUTTI_PENDING) tutti_sleep_ns(1 * TUTTI_NS_PER_MS);
    RANK_CHECK(rank, state == TUTTI_ERR_ABORTED && strstr(error.text, "tired of waiting"));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ABORTED, "tired", tutti_barrier(rank->comm, NULL, NULL));
    tutti_comm_destroy(rank->comm);
    RANK_CHECK_OK(rank, tutti_comm_create(rank->context, &config, &rank->comm));
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    config.nonblocking = false;
    config.timeout_ns = 50 * 1000000;
    RANK_CHECK_ERROR(rank, TUTTI_ERR_TIMEOUT, "1", tutti_comm_create(rank->context, &config, &rank->comm));
    RANK_CHECK(rank, tutti_now_ns() - start < UINT64_C(10000000000));
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
    tutti_sleep_ns((uint64_t)at->ms * TUTTI_NS_PER_MS);
    tutti_comm_abort(at->comm, "the user said stop");
    return NULL;
}

/* All but the last rank wait for it; another thread aborts; then a new communicator is made of all of them. */
static void aborted(struct rank *rank)
{
    struct abort_at at = {rank->comm, 50};
    pthread_t thread;
    int32_t last = rank->n - 1;
    uint64_t start = tutti_now_ns();
    if (rank->index == 0) pthread_create(&thread, NULL, abort_later, &at);
    if (rank->index != last)
        RANK_CHECK_ERROR(rank, TUTTI_ERR_ABORTED, "the user said stop", tutti_barrier(rank->comm, NULL, NULL));
    if (rank->index == last) {
        for (int i = 0; i < 20000 && tutti_comm_state(rank->comm, NULL) == TUTTI_OK; i++)
            tutti_sleep_ns(1 * TUTTI_NS_PER_MS);
        RANK_CHECK_ERROR(rank, TUTTI_ERR_ABORTED, "the user said stop", tutti_barrier(rank->comm, NULL, NULL));
    }
    if (rank->index == 0) pthread_join(thread, NULL);
    RANK_CHECK(rank, tutti_now_ns() - start < UINT64_C(15000000000));
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
    uint64_t start = tutti_now_ns();
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &lonely));
    RANK_CHECK_OK(rank, tutti_comm_flush(lonely, 0));
    if (rank->index == 0) {
        RANK_CHECK_OK(rank, tutti_barrier(lonely, NULL, &work));
        RANK_CHECK_STATUS(rank, TUTTI_PENDING, tutti_comm_flush(lonely, UINT64_C(30000000)));
        RANK_CHECK(rank, tutti_now_ns() - start >= UINT64_C(30000000));
        tutti_comm_abort(lonely, "nobody comes");
        RANK_CHECK_OK(rank, tutti_comm_flush(lonely, 0));
        RANK_CHECK(rank, tutti_work_test(work) == TUTTI_ERR_ABORTED);
        tutti_work_free(work);
    }
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL)); /* a rank that leaves before that ends the call, too */
    tutti_comm_destroy(lonely);
    RANK_CHECK(rank, tutti_now_ns() - start < UINT64_C(15000000000));
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
    if (rank->index == 0) tutti_sleep_ns(50 * TUTTI_NS_PER_MS);
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

/* The limit is the same for all readers of the secret file: a long secret of a file makes a communicator. */
static void long_secret_of_a_file(void **state)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    struct tutti_context *context = NULL;
    struct tutti_comm *comm = NULL;
    char path[] = "/tmp/tutti-secret-XXXXXX";
    int fd = mkstemp(path);
    (void)state;
    if (!tutti_hmac_available()) skip(); /* built without OpenSSL */
    assert_true(fd >= 0);
    for (int i = 0; i < 3000; i++) assert_int_equal(write(fd, "s", 1), 1);
    close(fd);
    const struct tutti_option option = {"secret_file", path};
    if (tutti_context_create(&option, 1, &context) != TUTTI_OK) fail_msg("%s", tutti_last_error()->text);
    config.rank = 0, config.n_ranks = 1;
    if (tutti_comm_create(context, &config, &comm) != TUTTI_OK) fail_msg("%s", tutti_last_error()->text);
    tutti_comm_destroy(comm);
    tutti_context_destroy(context);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_secret_of_a_file),
        cmocka_unit_test(tells_its_facts),
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
