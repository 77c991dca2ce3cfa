/* SPDX-License-Identifier: BSD-3-Clause */
/* Graphs: collectives that were captured once are replayed many times, on data that changes every time, with ordinary
 * calls in between, by processes and by threads; calls of one capture on two streams; two communicators in one graph; a
 * communicator that is destroyed behind its replays. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"

#include <string.h>
#include <time.h>

enum { WORDS = 1031, REPLAYS = 10000, REPLAYS_IN_TURNS = 400, REPLAYS_STAND_IN = 40, EAGER_EVERY = 3 };

struct data { /* one rank's: what goes in and what comes out, on the host (pinned) and the device */
    uint32_t *host_in, *host_sum, *host_all, *in, *sum, *all;
};

static bool data_open(struct gpu_rank *g, struct data *d)
{
    size_t n = (size_t)g->rank->n;
    d->host_in = gpu_rank_host_words(g, WORDS);
    d->host_sum = gpu_rank_host_words(g, WORDS);
    d->host_all = gpu_rank_host_words(g, n * WORDS);
    d->in = gpu_rank_words(g, WORDS);
    d->sum = gpu_rank_words(g, WORDS);
    d->all = gpu_rank_words(g, n * WORDS);
    return d->host_in && d->host_sum && d->host_all && d->in && d->sum && d->all;
}

static void data_close(struct gpu_rank *g, struct data *d)
{
    tutti_cuda_free_host(g->gpu, d->host_in);
    tutti_cuda_free_host(g->gpu, d->host_sum);
    tutti_cuda_free_host(g->gpu, d->host_all);
    tutti_cuda_free(g->gpu, d->in);
    tutti_cuda_free(g->gpu, d->sum);
    tutti_cuda_free(g->gpu, d->all);
}

/* Some are all ones, others every time. */
static uint32_t value(uint32_t rank, uint32_t round, size_t i)
{
    if ((i / 8 + rank + round) % 4 == 0) return ~0u;
    uint64_t x = ((uint64_t)round << 32 | rank << 20) + i;
    x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(x >> 24);
}

static void fill(const struct rank *rank, struct data *d, uint32_t round)
{
    for (size_t i = 0; i < WORDS; i++) d->host_in[i] = value((uint32_t)rank->index, round, i);
    memset(d->host_sum, 0xa5, WORDS * 4);
    memset(d->host_all, 0xa5, (size_t)rank->n * WORDS * 4);
}

static void compare(struct rank *rank, const struct data *d, uint32_t round, const char *how)
{
    for (size_t i = 0; i < WORDS; i++) {
        uint32_t sum = 0;
        for (uint32_t r = 0; r < (uint32_t)rank->n; r++) {
            uint32_t want = value(r, round, i);
            sum += want;
            if (d->host_all[r * WORDS + i] == want) continue;
            rank_fail(rank, __FILE__, __LINE__, "%s %u: word %zu of rank %u is %x instead of %x", how, round, i, r,
                      d->host_all[r * WORDS + i], want);
            return;
        }
        if (d->host_sum[i] == sum) continue;
        rank_fail(rank, __FILE__, __LINE__, "%s %u: sum %zu is %x instead of %x", how, round, i, d->host_sum[i], sum);
        return;
    }
}

/* In, two collectives, out; the second one on `other`, which is forked from and joined with the first. */
static enum tutti_status enqueue(struct gpu_rank *g, struct data *d, struct tutti_comm *first,
                                 struct tutti_comm *second, void *other, void *fork, void *join)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    size_t n = (size_t)g->rank->n;
    enum tutti_status status = tutti_cuda_copy(g->gpu, d->in, d->host_in, WORDS * 4, g->stream);
    options.stream = g->stream;
    if (status >= 0 && other != g->stream) status = tutti_cuda_event_record(g->gpu, fork, g->stream);
    if (status >= 0 && other != g->stream) status = tutti_cuda_stream_wait(g->gpu, other, fork);
    if (status >= 0) status = tutti_all_reduce(d->in, d->sum, WORDS, TUTTI_UINT32, TUTTI_SUM, first, &options, NULL);
    options.stream = other;
    if (status >= 0) status = tutti_all_gather(d->in, d->all, WORDS, TUTTI_UINT32, second, &options, NULL);
    if (status >= 0) status = tutti_cuda_copy(g->gpu, d->host_all, d->all, n * WORDS * 4, other);
    if (status >= 0 && other != g->stream) status = tutti_cuda_event_record(g->gpu, join, other);
    if (status >= 0 && other != g->stream) status = tutti_cuda_stream_wait(g->gpu, g->stream, join);
    if (status >= 0) status = tutti_cuda_copy(g->gpu, d->host_sum, d->sum, WORDS * 4, g->stream);
    return status;
}

/* Where the back end needs one before what is captured. */
static enum tutti_status enqueue_first(struct gpu_rank *g, struct data *d, struct tutti_comm *second)
{
    if (!gpu_ranks_by_nccl()) return TUTTI_OK;
    enum tutti_status status = enqueue(g, d, g->rank->comm, second, g->stream, NULL, NULL);
    return status < 0 ? status : tutti_cuda_stream_sync(g->gpu, g->stream);
}

struct shape {
    bool threads, two_streams, two_communicators;
};

static void replay_with(struct gpu_rank *g, struct data *d, const struct shape *shape, struct tutti_comm *second)
{
    struct rank *rank = g->rank;
    void *graph = NULL, *other = g->stream, *fork = NULL, *join = NULL;
    const uint32_t n =
        gpu_ranks_times(shape->threads ? 1 : (uint32_t)rank->n, REPLAYS, REPLAYS_IN_TURNS, REPLAYS_STAND_IN);
    GPU_CHECK_OK(g, tutti_cuda_event_create(g->gpu, false, &fork));
    GPU_CHECK_OK(g, tutti_cuda_event_create(g->gpu, false, &join));
    if (shape->two_streams) GPU_CHECK_OK(g, tutti_cuda_stream_create(g->gpu, &other));
    GPU_CHECK_OK(g, enqueue_first(g, d, second));
    GPU_CHECK_OK(g, tutti_cuda_graph_begin(g->gpu, g->stream));
    GPU_CHECK_OK(g, enqueue(g, d, rank->comm, second, other, fork, join));
    GPU_CHECK_OK(g, tutti_cuda_graph_end(g->gpu, g->stream, &graph));
    for (uint32_t round = 0, replays = 0; replays < n && !rank->failure[0]; round++) {
        bool eager = round % EAGER_EVERY == 0;
        replays += !eager;
        fill(rank, d, round);
        if (eager)
            GPU_CHECK_OK(g, enqueue(g, d, rank->comm, second, g->stream, fork, join));
        else
            GPU_CHECK_OK(g, tutti_cuda_graph_launch(g->gpu, graph, g->stream));
        GPU_CHECK_OK(g, tutti_cuda_stream_sync(g->gpu, g->stream));
        GPU_CHECK_OK(g, tutti_comm_state(rank->comm, NULL));
        compare(rank, d, round, eager ? "call" : "replay");
    }
    tutti_cuda_graph_destroy(g->gpu, graph);
    if (shape->two_streams) tutti_cuda_stream_destroy(g->gpu, other);
    tutti_cuda_event_destroy(g->gpu, fork);
    tutti_cuda_event_destroy(g->gpu, join);
}

static void replay(struct rank *rank)
{
    const struct shape *shape = rank->arg;
    struct gpu_rank g;
    struct data d = {0};
    struct tutti_comm *second = rank->comm;
    if (!gpu_rank_open(rank, &g)) return;
    if (shape->two_communicators) RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &second));
    if (data_open(&g, &d)) replay_with(&g, &d, shape, second);
    if (second != rank->comm) tutti_comm_destroy(second);
    if (!rank->failure[0]) {
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
        data_close(&g, &d);
    }
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    gpu_rank_close(&g);
}

/* Replays are under way, on rank 0 in vain for a while, when the communicator goes: it waits for them. */
static void leave_behind_replays(struct rank *rank)
{
    struct gpu_rank g;
    struct data d = {0};
    void *graph = NULL;
    if (!gpu_rank_open(rank, &g) || !data_open(&g, &d)) return;
    GPU_CHECK_OK(&g, enqueue_first(&g, &d, rank->comm));
    GPU_CHECK_OK(&g, tutti_cuda_graph_begin(g.gpu, g.stream));
    GPU_CHECK_OK(&g, enqueue(&g, &d, rank->comm, rank->comm, g.stream, NULL, NULL));
    GPU_CHECK_OK(&g, tutti_cuda_graph_end(g.gpu, g.stream, &graph));
    fill(rank, &d, 7);
    if (rank->index > 0) nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    for (int i = 0; i < 3; i++) GPU_CHECK_OK(&g, tutti_cuda_graph_launch(g.gpu, graph, g.stream));
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    GPU_CHECK_OK(&g, tutti_cuda_stream_query(g.gpu, g.stream));
    compare(rank, &d, 7, "replay");
    tutti_cuda_graph_destroy(g.gpu, graph);
    data_close(&g, &d);
    gpu_rank_close(&g);
}

/* One waits for a rank that replays nothing, with much time left: the communicator's own deadline ends it. */
static void leave_a_replay_in_vain(struct rank *rank)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    struct gpu_rank g;
    struct data d = {0};
    void *graph = NULL;
    if (!gpu_rank_open(rank, &g) || !data_open(&g, &d)) return;
    options.stream = g.stream;
    options.timeout_ns = UINT64_C(1000000000000);
    GPU_CHECK_OK(&g, enqueue_first(&g, &d, rank->comm));
    GPU_CHECK_OK(&g, tutti_cuda_graph_begin(g.gpu, g.stream));
    GPU_CHECK_OK(&g, tutti_all_reduce(d.in, d.sum, WORDS, TUTTI_UINT32, TUTTI_SUM, rank->comm, &options, NULL));
    GPU_CHECK_OK(&g, tutti_cuda_graph_end(g.gpu, g.stream, &graph));
    if (rank->index == 0) {
        GPU_CHECK_OK(&g, tutti_cuda_graph_launch(g.gpu, graph, g.stream));
    } else {
        nanosleep(&(struct timespec){.tv_sec = 3}, NULL);
    }
    tutti_comm_set_timeout(rank->comm, UINT64_C(1000000000));
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    GPU_CHECK_OK(&g, tutti_cuda_stream_sync(g.gpu, g.stream));
    GPU_CHECK_OK(&g, tutti_cuda_copy_now(g.gpu, d.host_in, d.in, WORDS * 4));
    tutti_cuda_graph_destroy(g.gpu, graph);
    /* NCCL ends a communicator behind the graphs that hold its calls; a process had better not exit meanwhile. */
    if (gpu_ranks_by_nccl()) nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    data_close(&g, &d);
    gpu_rank_close(&g);
}

static void run(uint32_t n, struct shape shape)
{
    struct ranks_config config = {.n = n, .forked = !shape.threads, .deadline_s = 110, .arg = &shape};
    assert_int_equal(ranks_run(&config, replay), 0);
}

static void replays(void **state)
{
    (void)state;
    run(2, (struct shape){0});
}
static void replays_of_two_streams(void **state)
{
    (void)state;
    run(2, (struct shape){.two_streams = true});
}
static void replays_of_two_communicators(void **state)
{
    (void)state;
    run(2, (struct shape){.two_streams = true, .two_communicators = true});
}
static void destroyed_behind_replays(void **state)
{
    (void)state;
    struct ranks_config config = {.n = 2, .forked = true};
    if (!gpu_ranks_by_nccl()) /* which ends replays under way with the communicator */
        assert_int_equal(ranks_run(&config, leave_behind_replays), 0);
    assert_int_equal(ranks_run(&config, leave_a_replay_in_vain), 0);
}
static void replays_alone(void **state)
{
    (void)state;
    run(1, (struct shape){0});
}
/* The last one: a driver does not survive a fork. */
static void replays_of_threads(void **state)
{
    (void)state;
    run(2, (struct shape){.threads = true});
    run(2, (struct shape){.threads = true, .two_streams = true, .two_communicators = true});
}

int main(void)
{
    gpu_ranks_need_device();
    gpu_ranks_need_two();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replays),
        cmocka_unit_test(replays_of_two_streams),
        cmocka_unit_test(replays_of_two_communicators),
        cmocka_unit_test(replays_alone),
        cmocka_unit_test(destroyed_behind_replays),
        cmocka_unit_test(replays_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
