/* SPDX-License-Identifier: BSD-3-Clause */
/* What fails on the device without a death: a rank that does not come; ranks that call different things, or one thing
 * on different memory; an abort; and the same in replays of graphs. Every rank sees the same failure, the sentence
 * names who and what, and the device serves the next communicator. */

#include "failures_test.h"

#include <string.h>

struct wrong {
    enum tutti_status status;
    const char *says;
    enum tutti_status (*act)(struct gpu_rank *g, uint32_t *words);
    uint64_t timeout_ns; /* from here on: opening takes a while */
};

static void go_wrong(struct rank *rank)
{
    const struct wrong *wrong = rank->arg;
    struct tutti_error error = {0};
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *words = gpu_rank_words(&g, WORDS);
    if (!words) return;
    connect_all(&g, rank->comm, words);
    tutti_comm_set_timeout(rank->comm, wrong->timeout_ns);
    enum tutti_status status = wrong->act(&g, words);
    if (status == TUTTI_OK) status = outcome(&g, rank->comm, &error);
    if (error.status == TUTTI_OK) error = *tutti_last_error();
    if (status != wrong->status || !strstr(error.text, wrong->says)) {
        rank_fail(rank, __FILE__, __LINE__, "%s \"%s\" instead of %s \"...%s...\"", tutti_status_name(status),
                  error.text, tutti_status_name(wrong->status), wrong->says);
        return;
    }
    struct tutti_comm *again = NULL;
    RANK_CHECK_OK(rank, tutti_comm_shrink(rank->comm, NULL, 0, &again));
    tutti_comm_set_timeout(again, UINT64_C(20000000000));
    RANK_CHECK_OK(rank, call(&g, again, words, WORDS));
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(g.gpu, g.stream));
    RANK_CHECK_OK(rank, tutti_comm_state(again, NULL));
    RANK_CHECK_OK(rank, tutti_barrier(again, NULL, NULL));
    tutti_comm_destroy(again);
}

static enum tutti_status stay_away(struct gpu_rank *g, uint32_t *words)
{
    return g->rank->index == VICTIM ? TUTTI_OK : call(g, g->rank->comm, words, 1000);
}
static enum tutti_status call_within(struct gpu_rank *g, uint32_t *words, uint64_t timeout_ns)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = g->stream;
    options.timeout_ns = timeout_ns;
    return tutti_all_reduce(words, words, 1000, TUTTI_UINT32, TUTTI_SUM, g->rank->comm, &options, NULL);
}
/* The sentence has the deadline of the call that waited, not that of the one behind. */
static enum tutti_status stay_away_from_two(struct gpu_rank *g, uint32_t *words)
{
    if (g->rank->index == VICTIM) return TUTTI_OK;
    enum tutti_status status = call_within(g, words, UINT64_C(1000000000));
    return status < 0 ? status : call_within(g, words, UINT64_C(20000000000));
}
/* What a group fuses waits as long as the least of its deadlines. */
static enum tutti_status stay_away_from_a_group(struct gpu_rank *g, uint32_t *words)
{
    if (g->rank->index == VICTIM) return TUTTI_OK;
    enum tutti_status status = tutti_group_start();
    if (status == TUTTI_OK) status = call_within(g, words, UINT64_C(20000000000));
    if (status == TUTTI_OK) status = call_within(g, words + 1000, UINT64_C(1000000000));
    return status < 0 ? status : tutti_group_end(NULL);
}
static enum tutti_status stay_away_from_a_message(struct gpu_rank *g, uint32_t *words)
{
    if (g->rank->index == VICTIM) return TUTTI_OK;
    enum tutti_status status = receive(g, g->rank->comm, words, UINT64_C(1000000000));
    return status < 0 ? status : call_within(g, words, UINT64_C(20000000000));
}
/* A relay has come, and waits for one that has not; its waiters name the one that has not. */
static enum tutti_status stay_away_from_a_relay(struct gpu_rank *g, uint32_t *words)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = g->stream;
    options.algorithm = "cuda:relay";
    if (g->rank->index == VICTIM) return TUTTI_OK;
    if (g->rank->index == 3) options.timeout_ns = UINT64_C(2000000000);
    return tutti_broadcast(words, 1000, TUTTI_UINT32, VICTIM, g->rank->comm, &options, NULL);
}
static enum tutti_status differ(struct gpu_rank *g, uint32_t *words)
{
    return call(g, g->rank->comm, words, g->rank->index == VICTIM ? 1000 : 2000);
}
static enum tutti_status take_host_memory(struct gpu_rank *g, uint32_t *words)
{
    uint32_t host[1000] = {0};
    if (g->rank->index != VICTIM) return call(g, g->rank->comm, words, 1000);
    return tutti_all_reduce(host, host, 1000, TUTTI_UINT32, TUTTI_SUM, g->rank->comm, NULL, NULL);
}
static enum tutti_status replay_without(struct gpu_rank *g, uint32_t *words)
{
    return replay(g, words, g->rank->index != VICTIM);
}
static enum tutti_status abort_soon(struct gpu_rank *g, uint32_t *words)
{
    if (g->rank->index == VICTIM) {
        tutti_sleep_ns(50000000);
        tutti_comm_abort(g->rank->comm, "enough of it");
        return TUTTI_OK;
    }
    return call(g, g->rank->comm, words, 1000);
}
static enum tutti_status abort_a_replay(struct gpu_rank *g, uint32_t *words)
{
    enum tutti_status status = replay(g, words, g->rank->index != VICTIM);
    if (status < 0 || g->rank->index != VICTIM) return status;
    tutti_sleep_ns(50000000);
    tutti_comm_abort(g->rank->comm, "enough of it");
    return TUTTI_OK;
}

static void add(const void *left, const void *right, void *out, size_t count, enum tutti_dtype dtype, void *arg)
{
    const uint32_t *a = left, *b = right;
    uint32_t *sum = out;
    (void)dtype, (void)arg;
    for (size_t i = 0; i < count; i++) sum[i] = a[i] + b[i];
}
/* The caller waits for a work while the communicator fails that has made calls through the host. */
static enum tutti_status abort_behind_the_host(struct gpu_rank *g, uint32_t *words)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    struct tutti_work *work = NULL;
    struct tutti_comm *comm = g->rank->comm;
    enum tutti_op op = TUTTI_SUM;
    options.stream = g->stream;
    enum tutti_status status = tutti_op_create(g->rank->context, add, NULL, true, &op);
    if (status >= 0) status = tutti_all_reduce(words, words, 1000, TUTTI_UINT32, op, comm, &options, NULL);
    if (status >= 0) status = tutti_cuda_stream_sync(g->gpu, g->stream);
    if (status < 0) return status;
    if (g->rank->index == VICTIM) return abort_soon(g, words);
    status = tutti_all_reduce(words, words, 1000, TUTTI_UINT32, TUTTI_SUM, comm, &options, &work);
    if (status >= 0) status = tutti_work_wait(work, UINT64_C(20000000000));
    tutti_work_free(work);
    return status;
}

static void run_wrong(uint32_t n, struct wrong wrong)
{
    struct ranks_config config = {.n = n, .forked = true, .deadline_s = 60, .arg = &wrong};
    assert_int_equal(ranks_run(&config, go_wrong), 0);
}

/* The engine's sentence says what it waits for. */
static const char *awaits_victim(uint32_t n)
{
    return gpu_ranks_across(n) ? "waiting for a message from rank 1" : "waiting for rank 1";
}

/* A communicator may go as soon as the device is idle: a work that is held says how it ended. */
static void destroy_at_once(struct rank *rank)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    struct tutti_work *work = NULL;
    struct tutti_comm *comm = NULL;
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *words = gpu_rank_words(&g, WORDS);
    if (!words) return;
    open_second(&g, words, &comm);
    if (rank->failure[0]) return;
    options.stream = g.stream;
    options.timeout_ns = UINT64_C(1000000000);
    if (rank->index != VICTIM) {
        RANK_CHECK_OK(rank, tutti_all_reduce(words, words, 1000, TUTTI_UINT32, TUTTI_SUM, comm, &options, &work));
        RANK_CHECK_OK(rank, tutti_cuda_stream_sync(g.gpu, g.stream));
        tutti_comm_destroy(comm);
        RANK_CHECK_ERROR(rank, TUTTI_ERR_TIMEOUT, awaits_victim(2), tutti_work_wait(work, UINT64_C(20000000000)));
        tutti_work_free(work);
    }
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    if (rank->index == VICTIM) tutti_comm_destroy(comm);
}

static void works_of_the_gone(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) assert_int_equal(ranks_forked(2, destroy_at_once, NULL), 0);
}

static void deadlines(void **state)
{
    (void)state;
    const bool across = gpu_ranks_across(2);
    run_wrong(2, (struct wrong){TUTTI_ERR_TIMEOUT, "rank 1", stay_away, UINT64_C(1000000000)});
    run_wrong(2, (struct wrong){TUTTI_ERR_TIMEOUT, across ? "after 1000 ms at step" : "after 1000 ms on the device",
                                stay_away_from_two, UINT64_C(20000000000)});
    run_wrong(2, (struct wrong){TUTTI_ERR_TIMEOUT,
                                across ? "rank 0 timed out after 1000 ms: its message never came"
                                       : "rank 0 timed out after 1000 ms on the device, waiting for rank 1",
                                stay_away_from_a_message, UINT64_C(20000000000)});
    if (gpu_ranks_by_nccl() || across) return; /* no deadlines in replays, nothing is fused, no methods */
    run_wrong(2, (struct wrong){TUTTI_ERR_TIMEOUT, "waiting for rank 1", replay_without, UINT64_C(1000000000)});
    run_wrong(2, (struct wrong){TUTTI_ERR_TIMEOUT, "after 1000 ms on the device", stay_away_from_a_group,
                                UINT64_C(20000000000)});
    if (gpu_ranks_across(4)) return;
    run_wrong(4, (struct wrong){TUTTI_ERR_TIMEOUT, "rank 3 timed out after 2000 ms on the device, waiting for rank 1",
                                stay_away_from_a_relay, UINT64_C(20000000000)});
}
static void mismatches(void **state)
{
    (void)state;
    run_wrong(2, (struct wrong){TUTTI_ERR_MISMATCH, "1000 elements", differ, UINT64_C(30000000000)});
    if (gpu_ranks_across(2)) return; /* host memory meets that of devices */
    run_wrong(2, (struct wrong){TUTTI_ERR_MISMATCH, "rank 1 did not", take_host_memory, UINT64_C(30000000000)});
}
static void aborts(void **state)
{
    (void)state;
    run_wrong(2, (struct wrong){TUTTI_ERR_ABORTED, "enough of it", abort_soon, UINT64_C(30000000000)});
    if (!gpu_ranks_across(2))
        run_wrong(2, (struct wrong){TUTTI_ERR_ABORTED, "enough of it", abort_a_replay, UINT64_C(30000000000)});
    run_wrong(2, (struct wrong){TUTTI_ERR_ABORTED, "enough of it", abort_behind_the_host, UINT64_C(30000000000)});
}

int main(void)
{
    gpu_ranks_need_device();
    gpu_ranks_need_two();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(works_of_the_gone),
        cmocka_unit_test(deadlines),
        cmocka_unit_test(mismatches),
        cmocka_unit_test(aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
