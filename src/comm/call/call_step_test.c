/* SPDX-License-Identifier: BSD-3-Clause */

/* Calls inside groups that are carried out whole, in hierarchical schedules: many in flight at once with other ways of
 * carrying out calls, operations that do not commute, and what ranks are told when things go wrong there. What the
 * results must be for every collective and type, tests/contract says. */

#include "comm/comm.h"

#include "ranks.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define N_CALLS 60
#define IN_FLIGHT 12
#define MOST ((size_t)6000) /* elements */

static uint64_t call_steps(const struct rank *rank)
{
    struct tutti_engine_stats stats;
    tutti_engine_stats(rank->context->engine, &stats);
    return stats.call_steps;
}

static unsigned run(const char *levels, uint32_t n, bool forked, rank_function function, uint64_t may_die)
{
    const struct tutti_option options[] = {{"levels", levels}, {"slice", "4K"}, {"eager", "1K"}};
    struct ranks_config config = {.n = n,
                                  .forked = forked,
                                  .options = options,
                                  .n_options = TUTTI_ARRAY_LEN(options),
                                  .deadline_s = 120,
                                  .may_die = may_die};
    return ranks_run(&config, function);
}

/* ---- many in flight ---- */

static const char *const ways[] = {
    "hierarchical", "hierarchical:1", "hierarchical:2", "ring", "by_levels", "flat", NULL};

struct flying {
    struct tutti_work *work;
    uint64_t *send, *recv;
    uint64_t seed;
    size_t count;
    bool reduces;
    int32_t root;
};

static uint64_t value(uint64_t seed, int32_t rank, size_t i)
{
    return tutti_mix64(seed * 31 + (uint64_t)rank * 1000003 + i);
}

static void fly(struct rank *rank, struct flying *f, uint64_t seed)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    uint32_t way = (uint32_t)(seed >> 20) % TUTTI_ARRAY_LEN(ways);

    f->seed = seed;
    f->count = (seed >> 32) % (seed & 1 ? MOST : 40);
    f->reduces = seed & 2;
    f->root = (int32_t)((seed >> 8) % (uint64_t)rank->n);
    for (size_t i = 0; i < f->count; i++) f->send[i] = value(seed, rank->index, i);
    options.algorithm = ways[way];
    if (way == 4 && rank->comm->facts.shape.levels[0].n_runs > 1) options.algorithm = "ring"; /* groups are not equal */
    if (f->reduces) {
        RANK_CHECK_OK(rank, tutti_all_reduce(f->send, f->recv, f->count, TUTTI_UINT64, TUTTI_SUM, rank->comm, &options,
                                             &f->work));
        return;
    }
    if (way >= 1 && way <= 4) options.algorithm = "hierarchical"; /* there is one for broadcast */
    if (rank->index == f->root) memcpy(f->recv, f->send, f->count * sizeof(*f->recv));
    RANK_CHECK_OK(rank, tutti_broadcast(f->recv, f->count, TUTTI_UINT64, f->root, rank->comm, &options, &f->work));
}

static void land(struct rank *rank, struct flying *f)
{
    RANK_CHECK_OK(rank, tutti_work_wait(f->work, 0));
    tutti_work_free(f->work);
    f->work = NULL;
    for (size_t i = 0; i < f->count; i++) {
        uint64_t want = f->reduces ? 0 : value(f->seed, f->root, i);
        for (int32_t r = 0; f->reduces && r < rank->n; r++) want += value(f->seed, r, i);
        RANK_CHECK(rank, f->recv[i] == want);
    }
}

static void flood(struct rank *rank)
{
    uint64_t random = test_seed();
    struct flying all[IN_FLIGHT] = {0};
    uint64_t *memory = calloc(2 * IN_FLIGHT * MOST, sizeof(*memory));

    RANK_CHECK(rank, memory);
    for (size_t i = 0; i < IN_FLIGHT; i++)
        all[i].send = memory + 2 * i * MOST, all[i].recv = memory + (2 * i + 1) * MOST;
    for (uint32_t i = 0; i < N_CALLS && !rank->failure[0]; i++) {
        struct flying *f = &all[i % IN_FLIGHT];
        if (f->work) land(rank, f);
        if (!rank->failure[0]) fly(rank, f, tutti_random64(&random));
        if (rank_random(rank) % 4 == 0) usleep((useconds_t)(rank_random(rank) % 300));
    }
    for (size_t i = 0; i < IN_FLIGHT && !rank->failure[0]; i++)
        if (all[i].work) land(rank, &all[i]);
    free(memory);
    RANK_CHECK(rank, call_steps(rank) > 0);
}

static void many_in_flight(void **state)
{
    (void)state;
    for (int forked = 0; forked < 2; forked++) {
        assert_int_equal(run("2,2", 4, forked, flood, 0), 0);
        assert_int_equal(run("3,5", 8, forked, flood, 0), 0);
        assert_int_equal(run("2,2,2,2;2,2", 8, forked, flood, 0), 0);
    }
}

/* ---- operands in order ---- */

/* Composition of x -> a x + b, packed as a << 32 | b. */
static void compose(const void *left, const void *right, void *out, size_t count, enum tutti_dtype dtype, void *arg)
{
    const uint64_t *l = left, *r = right;
    uint64_t *o = out;
    (void)dtype, (void)arg;
    for (size_t i = 0; i < count; i++) {
        uint32_t la = (uint32_t)(l[i] >> 32), lb = (uint32_t)l[i], ra = (uint32_t)(r[i] >> 32), rb = (uint32_t)r[i];
        o[i] = (uint64_t)(la * ra) << 32 | (uint32_t)(ra * lb + rb);
    }
}

static void in_order(struct rank *rank)
{
    enum { N = 1777 };
    uint64_t *in = rank_alloc(rank, N * sizeof *in), *out = rank_alloc(rank, N * sizeof *out);
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    enum tutti_op op;

    options.algorithm = "hierarchical";
    RANK_CHECK_OK(rank, tutti_op_create(rank->context, compose, NULL, false, &op));
    for (size_t i = 0; i < N; i++) in[i] = value(5, rank->index, i) | UINT64_C(1) << 32;
    RANK_CHECK_OK(rank, tutti_all_reduce(in, out, N, TUTTI_UINT64, op, rank->comm, &options, NULL));
    for (size_t i = 0; i < N; i++) {
        uint64_t want = value(5, 0, i) | UINT64_C(1) << 32;
        for (int32_t r = 1; r < rank->n; r++) {
            uint64_t next = value(5, r, i) | UINT64_C(1) << 32;
            compose(&want, &next, &want, 1, TUTTI_UINT64, NULL);
        }
        RANK_CHECK(rank, out[i] == want);
    }
    RANK_CHECK(rank, call_steps(rank) > 0);
}

static void keeps_order(void **state)
{
    (void)state;
    assert_int_equal(run("3,5", 8, false, in_order, 0), 0);
    assert_int_equal(run("2,2,2,2;2,2", 8, false, in_order, 0), 0);
}

/* ---- when things go wrong ---- */

/* Rank 1 is of the group of ranks 0 to 2, so that its call meets theirs on the lane alone. */
static enum tutti_status sum(struct rank *rank, size_t count, uint64_t timeout_ns)
{
    static _Thread_local uint64_t in[MOST], out[MOST];
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;

    options.algorithm = "hierarchical:1", options.timeout_ns = timeout_ns;
    return tutti_all_reduce(in, out, count, TUTTI_UINT64, TUTTI_SUM, rank->comm, &options, NULL);
}

/* A rank may hear in its first call of what happened to another one in the second. */
static enum tutti_status sum_until_failure(struct rank *rank, uint64_t timeout_ns)
{
    enum tutti_status status = TUTTI_OK;

    for (int i = 0; i < 3 && status == TUTTI_OK; i++) status = sum(rank, MOST, timeout_ns);
    return status;
}

static void differs(struct rank *rank)
{
    RANK_CHECK_ERROR(rank, TUTTI_ERR_MISMATCH, "all_reduce(uint64, 1001 elements, sum)",
                     sum(rank, rank->index == 1 ? 1001 : 1000, 0));
    RANK_CHECK(rank, strstr(tutti_last_error()->text, "all_reduce #1"));
    RANK_CHECK(rank, strstr(tutti_last_error()->text, "called all_reduce(uint64, 1000 elements, sum)"));
}

static void silent(struct rank *rank)
{
    if (rank->index == 1) {
        if (sum(rank, MOST, 0) == TUTTI_OK)
            for (int i = 0; i < 20000 && tutti_comm_state(rank->comm, NULL) == TUTTI_OK; i++) usleep(1000);
        RANK_CHECK(rank, tutti_comm_state(rank->comm, NULL) == TUTTI_ERR_TIMEOUT);
        return;
    }
    /* Rank 0 alone has a deadline: rank 2, which waits for rank 0, would say so. */
    if (rank->index == 0) RANK_CHECK_OK(rank, sum(rank, MOST, 0));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_TIMEOUT, "rank 1 has not called it",
                     sum_until_failure(rank, rank->index == 0 ? UINT64_C(800000000) : 0));
    RANK_CHECK(rank, strstr(tutti_last_error()->text, "all_reduce #2"));
    RANK_CHECK(rank, strstr(tutti_last_error()->text, "waiting for"));
    RANK_CHECK(rank, tutti_last_error()->peer == 1);
}

static void dies(struct rank *rank)
{
    if (rank->index == 1) {
        RANK_CHECK_OK(rank, sum(rank, MOST, 0));
        raise(SIGKILL);
    }
    RANK_CHECK_ERROR(rank, TUTTI_ERR_PEER_DEAD, "rank 1 died", sum_until_failure(rank, 0));
}

static void aborts(struct rank *rank)
{
    if (rank->index == 1) {
        RANK_CHECK_OK(rank, sum(rank, MOST, 0));
        tutti_comm_abort(rank->comm, "enough");
        return;
    }
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ABORTED, "enough", sum_until_failure(rank, 0));
}

static void failures(void **state)
{
    (void)state;
    for (int forked = 0; forked < 2; forked++) {
        assert_int_equal(run("3,1", 4, forked, differs, 0), 0);
        assert_int_equal(run("3,1", 4, forked, silent, 0), 0);
        assert_int_equal(run("3,1", 4, forked, aborts, 0), 0);
    }
    if (ranks_can_fork()) assert_int_equal(run("3,1", 4, true, dies, 1 << 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_in_flight),
        cmocka_unit_test(keeps_order),
        cmocka_unit_test(failures),
    };
    return cmocka_run_group_tests_name("call steps", tests, NULL, NULL);
}
