/* SPDX-License-Identifier: BSD-3-Clause */
/* A large all_reduce that survives, where rank 2 of four dies or stops between its two phases: before its share is
 * whole the others do it again, from inputs that are as they were, behind that its contribution counts, and a rank that
 * the others went on without does not take what they have put in the place of its result. Sentences say all_reduce. */
#include "comm/life/survive.h"
#include "ranks.h"
#include "test.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { VICTIM = 2, COUNT = 1 << 19 }; /* 4 MiB */
enum moment { HALF_DONE, WHOLE, LATE };

static struct board {
    enum moment moment;
    int32_t pid;
} * board;

static enum tutti_status make(struct rank *rank, struct tutti_comm **out)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    config.rank = rank->index, config.n_ranks = rank->n, config.name = rank->name, config.survive = 1;
    TUTTI_TRY(tutti_comm_create(rank->context, &config, out));
    tutti_comm_set_timeout(*out, 2 * TUTTI_NS_PER_S);
    return TUTTI_OK;
}

static void fill(uint64_t *data, uint64_t value)
{
    for (size_t i = 0; i < COUNT; i++) data[i] = value + i % 7;
}

static bool holds(const uint64_t *data, uint64_t value, uint64_t n)
{
    for (size_t i = 0; i < COUNT; i++)
        if (data[i] != value + n * (i % 7)) return false;
    return true;
}

/* The victim's part of the next call, up to the moment. */
static void victim(struct rank *rank, struct tutti_comm *comm, uint64_t *data)
{
    struct tutti_survive *s = comm->survive;
    struct tutti_call call = {.comm = comm};
    uint64_t *elsewhere = rank_alloc(rank, COUNT * sizeof(*elsewhere));
    tutti_call_set(&call, TUTTI_ALL_REDUCE, TUTTI_UINT64, TUTTI_SUM, 0, COUNT, data, data);
    (void)tutti_synchrony_call(&s->synchrony, false, true);
    RANK_CHECK_OK(rank, tutti_shares_ready(s, &call));
    if (board->moment == HALF_DONE) {
        struct tutti_call inner;
        tutti_call_set(&inner, TUTTI_REDUCE_SCATTER, TUTTI_UINT64, TUTTI_SUM, 0, COUNT / (size_t)rank->n, data,
                       elsewhere);
        tutti_call_begin(&inner, s->inner, NULL);
        inner.job.info.reduced = COUNT;
        RANK_CHECK_OK(rank, tutti_call_submit(&inner, NULL));
    } else {
        RANK_CHECK_OK(rank, tutti_shares_reduce(s, &call, NULL));
    }
    if (board->moment != LATE) raise(SIGKILL);
    RANK_CHECK_OK(rank, tutti_barrier(s->inner, NULL, NULL));
    board->pid = getpid();
    raise(SIGSTOP);
    RANK_CHECK(rank, !tutti_shares_take(s, &call));
    const enum tutti_status status = tutti_barrier(comm, NULL, NULL);
    RANK_CHECK(rank, status < 0 && strstr(tutti_last_error()->text, "join anew"));
}

static void between_phases(struct rank *rank)
{
    struct tutti_comm *comm = NULL;
    uint64_t *data = rank_alloc(rank, 2 * COUNT * sizeof(*data));
    size_t n = 0;
    RANK_CHECK_OK(rank, make(rank, &comm));
    fill(data, 1);
    fill(data + COUNT, 1);
    /* So much that three have room for theirs in the same memory. */
    RANK_CHECK_OK(rank, tutti_all_reduce(data, data, 2 * COUNT, TUTTI_UINT64, TUTTI_SUM, comm, NULL, NULL));
    RANK_CHECK(rank, holds(data, 4, 4) && holds(data + COUNT, 4, 4));
    for (uint64_t call = 0; call < 4; call++) {
        fill(data, (uint64_t)rank->index + 1);
        if (rank->index == VICTIM) {
            victim(rank, comm, data);
            break;
        }
        RANK_CHECK_OK(rank, tutti_all_reduce(data, data, COUNT, TUTTI_UINT64, TUTTI_SUM, comm, NULL, NULL));
        RANK_CHECK_OK(rank, tutti_work_contributors(NULL, comm, NULL, 0, &n));
        const bool all = call == 0 && board->moment != HALF_DONE;
        RANK_CHECK(rank, n == (all ? 4 : 3) && holds(data, all ? 10 : 7, n));
    }
    if (rank->index == 0 && board->moment == LATE) kill(board->pid, SIGCONT);
    tutti_comm_destroy(comm);
}

/* Rank 2 calls the phase that the others' call begins with. */
static void another_call(struct rank *rank)
{
    struct tutti_comm *comm = NULL;
    uint64_t *data = rank_alloc(rank, COUNT * sizeof(*data)), *part = rank_alloc(rank, COUNT / 4 * sizeof(*part));
    RANK_CHECK_OK(rank, make(rank, &comm));
    fill(data, 1);
    RANK_CHECK_OK(rank, tutti_all_reduce(data, data, COUNT, TUTTI_UINT64, TUTTI_SUM, comm, NULL, NULL));
    const enum tutti_status status =
        rank->index == VICTIM ? tutti_reduce_scatter(data, part, COUNT / 4, TUTTI_UINT64, TUTTI_SUM, comm, NULL, NULL)
                              : tutti_all_reduce(data, data, COUNT, TUTTI_UINT64, TUTTI_SUM, comm, NULL, NULL);
    const char *text = tutti_last_error()->text;
    RANK_CHECK(rank, status == TUTTI_ERR_MISMATCH && strstr(text, "all_reduce(uint64, 524288 elements, sum)") &&
                         strstr(text, "reduce_scatter(uint64, 131072 elements, sum)"));
    tutti_comm_destroy(comm);
}

static void run(enum moment moment)
{
    const struct tutti_option options[] = {{"host_timeout", "1s"}};
    struct ranks_config config = {.n = 4,
                                  .forked = true,
                                  .no_comm = true,
                                  .may_die = moment == LATE ? 0 : 1 << VICTIM,
                                  .options = options,
                                  .n_options = 1};
    if (getenv("RANKS_A_HOST")) skip(); /* nobody maps another's memory */
    board->moment = moment;
    assert_int_equal(ranks_run(&config, between_phases), 0);
}

static void before_its_share_is_whole(void **state)
{
    (void)state;
    run(HALF_DONE);
}

static void behind_its_share(void **state)
{
    (void)state;
    run(WHOLE);
}

static void too_late(void **state)
{
    (void)state;
    run(LATE);
}

static void what_the_user_called(void **state)
{
    const struct ranks_config config = {.n = 4, .forked = true, .no_comm = true};
    (void)state;
    if (getenv("RANKS_A_HOST")) skip();
    assert_int_equal(ranks_run(&config, another_call), 0);
}

int main(void)
{
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(before_its_share_is_whole), cmocka_unit_test(behind_its_share),
                                       cmocka_unit_test(too_late), cmocka_unit_test(what_the_user_called)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
