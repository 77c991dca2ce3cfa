/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract of back ends for host memory by a second one, unlike flat (serial_backend.h): the calls that it takes
 * and those that it refuses are right, it may leave out what the contract lets it leave out, and what one rank can not
 * open or connect, no rank has. */
#include "test.h"

#include "comm/call/call.h"
#include "comm/comm.h"
#include "contract.h"
#include "serial_backend.h"

#include <string.h>

enum { RANKS_MOST = 5, WORDS = 3000 }; /* words: several slices */

static const enum tutti_kind served[] = {TUTTI_ALL_REDUCE, TUTTI_BROADCAST, TUTTI_BARRIER};

static bool is_served(enum tutti_kind kind)
{
    return kind == served[0] || kind == served[1] || kind == served[2];
}

struct batch {
    const struct contract_case *cases;
    size_t n;
};

static void run_batch(struct rank *rank)
{
    const struct batch *batch = rank->arg;
    RANK_CHECK(rank, rank->comm->backend && rank->comm->backend->ops == &serial_backend);
    for (size_t i = 0; i < batch->n && !rank->failure[0]; i++)
        if (batch->cases[i].at[RANKS] % RANKS_MOST + 1 == (uint32_t)rank->n) contract_run(rank, &batch->cases[i], NULL);
    for (uint32_t kind = 0; kind < TUTTI_N_KINDS; kind++)
        RANK_CHECK(rank, (serial_state.n_begun[kind] > 0) == is_served((enum tutti_kind)kind));
}

/* Worlds are processes and threads by turns. */
static void every_call(void **state)
{
    struct batch batch;
    struct contract_case *cases = contract_pairs(test_seed() + 51, &batch.n);
    (void)state;
    assert_non_null(cases);
    batch.cases = cases;
    for (uint32_t n = 1; n <= RANKS_MOST; n++) {
        struct ranks_config config = {.n = n, .forked = n % 2 == 0, .deadline_s = 120, .arg = &batch};
        assert_int_equal(ranks_run(&config, run_batch), 0);
    }
    free(cases);
}

/* ---- in groups of ranks ---- */

static void by_groups(struct rank *rank)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    struct tutti_engine_stats stats;
    uint64_t *words = rank_alloc(rank, WORDS * sizeof *words);
    options.algorithm = "hierarchical";
    for (uint64_t i = 0; i < WORDS; i++) words[i] = i + (uint64_t)rank->index;
    RANK_CHECK_OK(rank, tutti_all_reduce(words, words, WORDS, TUTTI_UINT64, TUTTI_SUM, rank->comm, &options, NULL));
    for (uint64_t i = 0; i < WORDS; i++) RANK_CHECK(rank, words[i] == 4 * i + 6);
    tutti_engine_stats(rank->context->engine, &stats);
    RANK_CHECK(rank, stats.call_steps > 0);
}

static void groups(void **state)
{
    const struct tutti_option levels = {"levels", "2,2"};
    (void)state;
    struct ranks_config config = {.n = 4, .options = &levels, .n_options = 1};
    assert_int_equal(ranks_run(&config, by_groups), 0);
}

/* ---- choosing ---- */

static size_t ways_of(struct tutti_comm *comm, enum tutti_kind kind, struct tutti_way out[TUTTI_MAX_WAYS])
{
    static uint64_t in[4], result[16];
    size_t n = 0;
    struct tutti_call call;
    tutti_call_set(&call, kind, TUTTI_UINT64, TUTTI_SUM, 0, 4, in, result);
    tutti_call_begin(&call, comm, NULL);
    return tutti_explain(&call, out, TUTTI_MAX_WAYS, &n) == TUTTI_OK ? n : 0;
}

/* A back end that has but one way has no list of them. */
static void explained(struct rank *rank)
{
    struct tutti_way ways[TUTTI_MAX_WAYS];
    RANK_CHECK(rank, ways_of(rank->comm, TUTTI_ALL_REDUCE, ways) > 1);
    RANK_CHECK(rank, strcmp(ways[0].name, "serial") == 0 && ways[0].chosen && ways[0].ns == 1000);
    RANK_CHECK(rank, strcmp(ways[1].name, "serial") != 0 && !ways[1].chosen);
    RANK_CHECK(rank, ways_of(rank->comm, TUTTI_ALL_GATHER, ways) > 0);
    RANK_CHECK(rank, strcmp(ways[0].name, "serial") != 0);
}

static void without(struct rank *rank)
{
    uint64_t word = (uint64_t)rank->index;
    RANK_CHECK(rank, !rank->comm->backend);
    RANK_CHECK_OK(rank, tutti_all_reduce(&word, &word, 1, TUTTI_UINT64, TUTTI_SUM, rank->comm, NULL, NULL));
    RANK_CHECK(rank, word == (uint64_t)(rank->n * (rank->n - 1) / 2));
}

static void named_in_call(struct rank *rank)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    uint64_t all[4], word = 1;
    options.algorithm = "serial";
    RANK_CHECK_OK(rank, tutti_all_reduce(&word, &word, 1, TUTTI_UINT64, TUTTI_SUM, rank->comm, &options, NULL));
    RANK_CHECK(rank, word == (uint64_t)rank->n && serial_state.n_begun[TUTTI_ALL_REDUCE] > 0);
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "\"serial\" can not run this call",
                     tutti_all_gather(&word, all, 1, TUTTI_UINT64, rank->comm, &options, NULL));
    options.algorithm = "serial:fast";
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "\"serial:fast\" can not run this call",
                     tutti_barrier(rank->comm, &options, NULL));
    options.algorithm = "flat"; /* is no more in the list */
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "flat", tutti_barrier(rank->comm, &options, NULL));
}

/* By options and calls, as any back end of the list. */
static void named(void **state)
{
    const struct tutti_option known = {"backends", "serial"}, unknown = {"backends", "flat"};
    struct tutti_context *context = NULL;
    struct ranks_config config = {.n = 3, .options = &known, .n_options = 1};
    (void)state;
    assert_int_equal(ranks_run(&config, named_in_call), 0);
    assert_int_equal(tutti_context_create(&unknown, 1, &context), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error()->text, "can be auto, off or one of: serial"));
    config.options = &(struct tutti_option){"backends", "off"};
    assert_int_equal(ranks_run(&config, without), 0);
}

static void explain(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(3, explained, NULL), 0);
}

/* ---- what goes wrong ---- */

static void late(struct rank *rank)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.timeout_ns = 100 * TUTTI_NS_PER_MS;
    if (rank->index == 1) return;
    RANK_CHECK_ERROR(rank, TUTTI_ERR_TIMEOUT, "timed out", tutti_barrier(rank->comm, &options, NULL));
}

static void deadline(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(2, late, NULL), 0);
}

/* That one rank can not open it is agreed by all, who go on without. */
static void one_refuses(void **state)
{
    (void)state;
    for (uint32_t slot = 0; slot < 3; slot++) {
        serial_state.refuses_open = 1 + slot;
        assert_int_equal(ranks_threads(3, without, NULL), 0);
        assert_int_equal(ranks_forked(3, without, NULL), 0);
    }
    serial_state.refuses_open = 0;
}

static void broken(struct rank *rank)
{
    struct tutti_comm *dup = NULL;
    const uint32_t last = (uint32_t)rank->n;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    if (rank->index == 0) serial_state.breaks_connect = last;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    const bool own = rank->index == rank->n - 1;
    RANK_CHECK_ERROR(rank, TUTTI_ERR_SYSTEM, own ? "not to be seen" : "can not connect back end serial",
                     tutti_comm_dup(rank->comm, &dup));
    RANK_CHECK(rank, !dup);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
}

/* What one rank can not connect though it opened it: all ranks are told, and none has a communicator. */
static void one_breaks(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 4; n++) {
        assert_int_equal(ranks_threads(n, broken, NULL), 0);
        serial_state.breaks_connect = 0;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call), cmocka_unit_test(groups),   cmocka_unit_test(explain),
        cmocka_unit_test(named),      cmocka_unit_test(deadline), cmocka_unit_test(one_refuses),
        cmocka_unit_test(one_breaks),
    };
    tutti_backends[TUTTI_BACKEND_flat] = &serial_backend;
    return cmocka_run_group_tests_name("contract serial", tests, NULL, NULL);
}
