/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables of v forms. Where they are private and the two sides of a block disagree, every rank gets a sentence long
 * before the deadline, also when one side has nothing to send or to receive. */
#include "ranks.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/tutti.h>

struct trial {
    const char *what;
    int kind;            /* which call, below */
    int32_t wrong;       /* the rank whose count differs */
    size_t count;        /* instead of 2 */
    const char *at_once; /* what may be said instead */
};

enum { GATHER, SCATTER, SCATTER_ROOT, EXCHANGE };

static enum tutti_status call(struct rank *rank, const struct trial *trial, int64_t *in, int64_t *out)
{
    size_t counts[3] = {2, 2, 2}, rows[3] = {2, 2, 2}, mine = 2;
    bool wrong = rank->index == trial->wrong;
    struct tutti_comm *comm = rank->comm;
    switch (trial->kind) {
    case GATHER:
        if (wrong) mine = trial->count;
        return tutti_gather_v(in, mine, out, counts, NULL, TUTTI_INT64, 0, comm, NULL, NULL);
    case SCATTER:
        if (wrong) mine = trial->count;
        return tutti_scatter_v(in, counts, NULL, out, mine, TUTTI_INT64, 0, comm, NULL, NULL);
    case SCATTER_ROOT:
        if (wrong) counts[1] = trial->count;
        return tutti_scatter_v(in, counts, NULL, out, mine, TUTTI_INT64, 0, comm, NULL, NULL);
    default:
        if (wrong) rows[2] = trial->count;
        return tutti_all_to_all_v(in, rows, NULL, out, counts, NULL, TUTTI_INT64, comm, NULL, NULL);
    }
}

static void disagree(struct rank *rank)
{
    const struct trial *trial = rank->arg;
    int64_t in[200000 / 8], out[64];
    struct timespec from, to;
    memset(in, 0, sizeof(in));
    clock_gettime(CLOCK_MONOTONIC, &from);
    enum tutti_status status = call(rank, trial, in, out);
    /* Ranks whose own part was right may be through; the communicator has failed for them, too. */
    if (status == TUTTI_OK) status = tutti_barrier(rank->comm, NULL, NULL);
    clock_gettime(CLOCK_MONOTONIC, &to);
    /* The engine's sender of nothing is through at once; a back end's ranks tell one another. */
    const char *text = tutti_last_error()->text;
    bool said = strstr(text, trial->what) || (trial->at_once && strstr(text, trial->at_once));
    if (status != TUTTI_ERR_MISMATCH || !said) {
        rank_fail(rank, __FILE__, __LINE__, "%s %d: %s: %s", trial->what, trial->kind, tutti_status_name(status),
                  status < 0 ? tutti_last_error()->text : "");
        return;
    }
    RANK_CHECK(rank, to.tv_sec - from.tv_sec < 15); /* the deadline is 60 s */
}

static void every_disagreement(void **state)
{
    (void)state;
    static struct trial trials[] = {
        {"rank 1 sends 24 bytes to rank 0, which expects 16", GATHER, 1, 3, NULL},
        {"rank 1 sends 8 bytes to rank 0, which expects 16", GATHER, 1, 1, NULL},
        {"rank 1 has completed it and never sent the message that rank 0 expects", GATHER, 1, 0,
         "rank 1 sends 0 bytes to rank 0, which expects 16"},
        {"rank 0 sends 16 bytes to rank 1, which expects 40", SCATTER, 1, 5, NULL},
        {"rank 0 has completed it and never sent the message that rank 1 expects", SCATTER_ROOT, 0, 0,
         "rank 0 sends 0 bytes to rank 1, which expects 16"},
        {"rank 1 sends 40 bytes to rank 2, which expects 16", EXCHANGE, 1, 5, NULL},
        {"rank 1 sends 160000 bytes to rank 2, which expects 16", EXCHANGE, 1, 20000, NULL},
        {"rank 1 has completed it and never sent the message that rank 2 expects", EXCHANGE, 1, 0,
         "rank 1 sends 0 bytes to rank 2, which expects 16"},
    };
    struct tutti_option options[] = {{"compare_after", "200ms"}, {"log", "error"}, {"backends", "off"}};
    for (size_t i = 0; i < sizeof(trials) / sizeof(trials[0]); i++) {
        struct ranks_config config = {
            .n = 3, .options = options, .n_options = 2, .arg = &trials[i], .timeout_ns = UINT64_C(60) * 1000000000};
        assert_int_equal(ranks_run(&config, disagree), 0);
        config.forked = true;
        assert_int_equal(ranks_run(&config, disagree), 0);
        config.n_options = 3;
        assert_int_equal(ranks_run(&config, disagree), 0);
    }
}

/* Slow is not wrong: one call is complete on some ranks while an older one waits for a rank that is late. */
static void late(struct rank *rank)
{
    int64_t in = 1, sum = 0, word = 7;
    struct tutti_work *works[2] = {NULL, NULL};
    if (rank->index == 2) nanosleep(&(struct timespec){.tv_sec = 3}, NULL);
    RANK_CHECK_OK(rank, tutti_all_reduce(&in, &sum, 1, TUTTI_INT64, TUTTI_SUM, rank->comm, NULL, &works[0]));
    RANK_CHECK_OK(rank, tutti_broadcast(&word, 1, TUTTI_INT64, 0, rank->comm, NULL, &works[1]));
    for (int i = 1; i >= 0; i--) {
        enum tutti_status status = tutti_work_wait(works[i], 0);
        tutti_work_free(works[i]);
        RANK_CHECK_OK(rank, status);
    }
    RANK_CHECK(rank, sum == rank->n && word == 7);
}

static void late_is_not_wrong(void **state)
{
    (void)state;
    struct tutti_option options[] = {{"compare_after", "100ms"}};
    struct ranks_config config = {.n = 4, .options = options, .n_options = 1};
    assert_int_equal(ranks_run(&config, late), 0);
}

/* Tables are read within the call: afterwards they are the caller's, also where the call begins later. */
static void reuse(struct rank *rank)
{
    enum { BLOCK = 1 << 14 };
    static const size_t n_in = 4 * BLOCK;
    float *in = rank_alloc(rank, n_in * sizeof(*in)), *out = rank_alloc(rank, BLOCK * sizeof(*out)), one = 1, sum = 0;
    size_t counts[4] = {BLOCK, BLOCK, BLOCK, BLOCK};
    struct tutti_work *works[2] = {NULL, NULL};
    for (size_t i = 0; i < n_in; i++) in[i] = 1;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    if (rank->index == 0) nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    RANK_CHECK_OK(rank, tutti_all_reduce(&one, &sum, 1, TUTTI_FLOAT32, TUTTI_SUM, rank->comm, NULL, &works[0]));
    RANK_CHECK_OK(rank, tutti_reduce_scatter_v(in, out, counts, TUTTI_FLOAT32, TUTTI_SUM, rank->comm, NULL, &works[1]));
    for (size_t i = 0; i < 4; i++) counts[i] = rank->index == 1 ? 1 : SIZE_MAX;
    for (size_t i = 0; i < 2; i++) {
        RANK_CHECK_OK(rank, tutti_work_wait(works[i], 0));
        tutti_work_free(works[i]);
    }
    for (size_t i = 0; i < BLOCK; i++) RANK_CHECK(rank, out[i] == (float)rank->n);
}

static void tables_are_the_callers(void **state)
{
    (void)state;
    struct ranks_config config = {.n = 4, .timeout_ns = UINT64_C(10000000000)};
    assert_int_equal(ranks_run(&config, reuse), 0);
}

/* One pointer for both sides is no call in place where this rank receives nothing. */
static void exchange_from_one(struct rank *rank)
{
    static const char *const algorithms[] = {NULL, "pairwise", "direct"};
    for (size_t i = 0; i < sizeof(algorithms) / sizeof(algorithms[0]); i++) {
        struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
        int64_t in[5] = {11, 22, -1, 33, 44}, out[4] = {0}, *recv = rank->index == 0 ? in : out;
        size_t none[2] = {0, 0}, sent[2] = {0, 4}, at[2] = {0, 1}, received[2] = {4, 0};
        bool sends = rank->index == 0; /* all goes from rank 0 to rank 1 */
        options.algorithm = algorithms[i];
        RANK_CHECK_OK(rank, tutti_all_to_all_v(in, sends ? sent : none, sends ? at : NULL, recv,
                                               sends ? none : received, NULL, TUTTI_INT64, rank->comm, &options, NULL));
        RANK_CHECK(rank, in[0] == 11 && in[1] == 22 && in[4] == 44);
        if (!sends) RANK_CHECK(rank, out[0] == 22 && out[1] == -1 && out[2] == 33 && out[3] == 44);
    }
}

static void one_pointer(void **state)
{
    (void)state;
    struct tutti_option options[] = {{"backends", "off"}};
    struct ranks_config config = {.n = 2, .timeout_ns = UINT64_C(10000000000)};
    assert_int_equal(ranks_run(&config, exchange_from_one), 0);
    config.options = options, config.n_options = 1;
    assert_int_equal(ranks_run(&config, exchange_from_one), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_disagreement),
        cmocka_unit_test(late_is_not_wrong),
        cmocka_unit_test(tables_are_the_callers),
        cmocka_unit_test(one_pointer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
