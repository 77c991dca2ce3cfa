/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls on device memory of a communicator that survives: enqueued one behind the other, in place and not, with work
 * and without, while a rank is killed. The stream holds until each is decided, and what is behind it on the stream sees
 * the sum of the contributors. A capture is refused; a stream is not left waiting by a call that fails. */
#include "test.h"

#include "cuda/support/gpu_ranks.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { N = 3, VICTIM = 1, CALLS = 24, WORDS = 30000 };

static void *killer(void *arg)
{
    tutti_sleep_ns(*(const uint64_t *)arg);
    kill(getpid(), SIGKILL);
    return NULL;
}

static bool open_all(struct rank *rank, struct gpu_rank *g, struct tutti_comm **comm)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    config.rank = rank->index, config.n_ranks = rank->n, config.name = rank->name, config.survive = 1;
    config.timeout_ns = 60 * TUTTI_NS_PER_S;
    if (!gpu_rank_open(rank, g)) return false;
    config.device = g->gpu->ordinal;
    if (tutti_comm_create(rank->context, &config, comm) == TUTTI_OK) return true;
    rank_fail(rank, __FILE__, __LINE__, "%s", tutti_last_error()->text);
    return false;
}

static bool is_small(size_t k)
{
    return k % 6 == 5; /* in place, so that the rest stays */
}

/* Each call takes what the one before it left, on the stream alone. */
static void chain(struct rank *rank)
{
    struct gpu_rank g;
    struct tutti_comm *comm = NULL;
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    uint64_t dies_ns = 30 * TUTTI_NS_PER_MS;
    struct tutti_work *works[CALLS] = {NULL};
    int32_t set[N];
    size_t n = 0;
    pthread_t thread;
    if (!open_all(rank, &g, &comm)) return;
    uint32_t *a = gpu_rank_words(&g, WORDS), *b = gpu_rank_words(&g, WORDS), *host = gpu_rank_host_words(&g, WORDS);
    if (rank->failure[0]) return;
    RANK_CHECK(rank, tutti_comm_device(comm) == g.gpu->ordinal);
    for (size_t i = 0; i < WORDS; i++) host[i] = (uint32_t)i;
    options.stream = g.stream;
    GPU_CHECK_OK(&g, tutti_cuda_copy(g.gpu, a, host, WORDS * 4, g.stream));
    if (rank->index == VICTIM) RANK_CHECK(rank, pthread_create(&thread, NULL, killer, &dies_ns) == 0);
    for (size_t k = 0; k < CALLS; k++) {
        const size_t count = is_small(k) ? 10 : WORDS;
        uint32_t *to = k % 2 ? a : b;
        RANK_CHECK_OK(rank, tutti_all_reduce(a, to, count, TUTTI_UINT32, TUTTI_SUM, comm, &options,
                                             k % 4 == 0 ? NULL : &works[k]));
        if (to == b) GPU_CHECK_OK(&g, tutti_cuda_copy(g.gpu, a, b, WORDS * 4, g.stream));
        tutti_sleep_ns(3 * TUTTI_NS_PER_MS);
    }
    RANK_CHECK_OK(rank, tutti_all_reduce(a, a, WORDS, TUTTI_UINT32, TUTTI_MAX, comm, &options, NULL));
    GPU_CHECK_OK(&g, tutti_cuda_copy(g.gpu, host, a, WORDS * 4, g.stream));
    GPU_CHECK_OK(&g, tutti_cuda_stream_sync(g.gpu, g.stream));
    RANK_CHECK_OK(rank, tutti_work_contributors(NULL, comm, set, N, &n));
    RANK_CHECK(rank, n == 2 && set[0] == 0 && set[1] == 2);
    n = N;
    uint32_t factor = 1; /* as the works say; of calls without one: as the one behind it, or before it, says */
    size_t known = N;
    for (size_t k = 0; k < CALLS; k++) {
        if (works[k]) RANK_CHECK_OK(rank, tutti_work_wait(works[k], 0));
        if (works[k]) RANK_CHECK_OK(rank, tutti_work_contributors(works[k], comm, NULL, 0, &n));
        tutti_work_free(works[k]);
        RANK_CHECK(rank, n <= known && n >= 2);
        known = n;
        if (!is_small(k)) factor *= (uint32_t)n; /* where the dead one is left out between the two it may be either */
    }
    for (size_t i = 10; i < WORDS; i++) RANK_CHECK(rank, host[i] == host[10] / 10 * (uint32_t)i);
    RANK_CHECK(rank, host[10] == 10 * factor || host[10] == 10 * (factor / 3 * 2) || host[10] == 10 * (factor / 2 * 3));
    RANK_CHECK_OK(rank, tutti_barrier(comm, NULL, NULL));
    tutti_comm_destroy(comm);
    gpu_rank_close(&g);
}

static void refused(struct rank *rank)
{
    struct gpu_rank g;
    struct tutti_comm *comm = NULL;
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    uint32_t word = 7;
    void *graph = NULL;
    if (!open_all(rank, &g, &comm)) return;
    uint32_t *a = gpu_rank_words(&g, WORDS);
    if (rank->failure[0]) return;
    options.stream = g.stream;
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "one buffer is memory of device",
                     tutti_all_reduce(a, &word, 1, TUTTI_UINT32, TUTTI_SUM, comm, &options, NULL));
    RANK_CHECK_OK(rank, tutti_all_reduce(a, a, 1, TUTTI_UINT32, TUTTI_SUM, comm, &options, NULL));
    GPU_CHECK_OK(&g, tutti_cuda_stream_sync(g.gpu, g.stream));
    GPU_CHECK_OK(&g, tutti_cuda_graph_begin(g.gpu, g.stream));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_UNSUPPORTED, "can not be captured",
                     tutti_all_reduce(a, a, 1, TUTTI_UINT32, TUTTI_SUM, comm, &options, NULL));
    GPU_CHECK_OK(&g, tutti_cuda_graph_end(g.gpu, g.stream, &graph));
    tutti_cuda_graph_destroy(g.gpu, graph);
    const enum tutti_status status = tutti_barrier(comm, NULL, NULL);
    RANK_CHECK(rank, status == TUTTI_OK || rank->index == 1); /* the abort may be faster */
    if (rank->index == 0) tutti_comm_abort(comm, "enough");
    struct tutti_work *work = NULL;
    RANK_CHECK_OK(rank, tutti_all_reduce(a, a, WORDS, TUTTI_UINT32, TUTTI_SUM, comm, &options, &work));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ABORTED, "enough", tutti_work_wait(work, 0));
    tutti_work_free(work);
    GPU_CHECK_OK(&g, tutti_cuda_stream_sync(g.gpu, g.stream)); /* it went on */
    tutti_comm_destroy(comm);
    gpu_rank_close(&g);
}

static void held(void **state)
{
    (void)state;
    struct ranks_config config = {.n = N, .forked = true, .no_comm = true, .may_die = 1 << VICTIM};
    assert_int_equal(ranks_run(&config, chain), 0);
}

static void refusals(void **state)
{
    (void)state;
    struct ranks_config config = {.n = 2, .forked = true, .no_comm = true};
    assert_int_equal(ranks_run(&config, refused), 0);
}

int main(void)
{
    gpu_ranks_need_device();
    const struct CMUnitTest tests[] = {cmocka_unit_test(held), cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
