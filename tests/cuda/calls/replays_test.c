/* SPDX-License-Identifier: BSD-3-Clause */
/* Each method in a graph: a call that names it is captured once and replayed many times, on data that changes every
 * time, with eager calls in between. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"

#include <tutti/schedule.h>

#include <stdint.h>

enum { ROOT = 1, REPLAYS = 100, REPLAYS_STAND_IN = 4, EAGER_EVERY = 4, SHARDS = 32 * 6 }; /* for 2 or 3 */

struct way {
    const char *algorithm;
    enum tutti_kind kind;
    size_t words; /* in a block */
    bool window;
};
static const struct way among_three[] = {
    {"cuda:lines", TUTTI_ALL_GATHER, 1031, false},      {"cuda:lines", TUTTI_ALL_REDUCE, 515, false},
    {"cuda:sentinel", TUTTI_ALL_GATHER, 20011, false},  {"cuda:sentinel", TUTTI_REDUCE_SCATTER, 4099, false},
    {"cuda:sentinel2", TUTTI_ALL_REDUCE, 40009, false}, {"cuda:sentinels", TUTTI_ALL_REDUCE, 40009, false},
    {"cuda:tiles", TUTTI_REDUCE_SCATTER, 50021, false}, {"cuda:tiles2", TUTTI_ALL_REDUCE, 100003, false},
    {"cuda:relay", TUTTI_BROADCAST, 100003, false},     {"cuda:direct", TUTTI_ALL_GATHER, 50020, true},
    {"cuda:direct", TUTTI_ALL_REDUCE, 100004, true},    {"cuda:direct", TUTTI_BROADCAST, 100004, true},
    {"cuda:engines", TUTTI_ALL_GATHER, 50021, true},    {"cuda:engines", TUTTI_ALL_REDUCE, 500 * SHARDS, true},
    {"cuda:direct", TUTTI_ALL_TO_ALL, 20012, true},     {"cuda:engines", TUTTI_ALL_TO_ALL, 20011, true},
};
static const struct way between_two[] = {{"cuda:engines", TUTTI_REDUCE_SCATTER, 1000 * SHARDS, true},
                                         {"cuda:engines", TUTTI_BROADCAST, 100003, true}};

struct replayed {
    struct gpu_rank g;
    const struct way *way;
    size_t n_in, n_out;        /* words */
    float *host_in, *host_out; /* pinned */
    float *in, *out;
    struct tutti_window *window;
};

/* Small whole numbers: sums are the same in any order. */
static float value(uint32_t rank, uint32_t round, size_t i)
{
    return (float)((i * 2654435761u + rank * 40503u + round * 9973u) >> 7 & 1023);
}

static float expected(const struct replayed *r, uint32_t round, size_t i)
{
    const uint32_t me = (uint32_t)r->g.rank->index, n = (uint32_t)r->g.rank->n;
    const size_t words = r->way->words;
    float sum = 0;
    if (r->way->kind == TUTTI_BROADCAST) return value(ROOT, round, i);
    if (r->way->kind == TUTTI_ALL_GATHER) return value((uint32_t)(i / words), round, i % words);
    if (r->way->kind == TUTTI_ALL_TO_ALL) return value((uint32_t)(i / words), round, me * words + i % words);
    if (r->way->kind == TUTTI_REDUCE_SCATTER) i += me * words;
    for (uint32_t q = 0; q < n; q++) sum += value(q, round, i);
    return sum;
}

/* In, the call, out. A broadcast has one buffer, which is written before on all ranks: with what the root has, or not.
 */
static enum tutti_status enqueue(struct replayed *r)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    struct tutti_comm *comm = r->g.rank->comm;
    const struct way *way = r->way;
    const bool broadcast = way->kind == TUTTI_BROADCAST;
    options.stream = r->g.stream;
    options.algorithm = way->algorithm;
    enum tutti_status status =
        tutti_cuda_copy(r->g.gpu, broadcast ? r->out : r->in, r->host_in, r->n_in * sizeof(float), r->g.stream);
    if (status >= 0 && broadcast)
        status = tutti_broadcast(r->out, way->words, TUTTI_FLOAT32, ROOT, comm, &options, NULL);
    if (status >= 0 && way->kind == TUTTI_ALL_GATHER)
        status = tutti_all_gather(r->in, r->out, way->words, TUTTI_FLOAT32, comm, &options, NULL);
    if (status >= 0 && way->kind == TUTTI_ALL_TO_ALL)
        status = tutti_all_to_all(r->in, r->out, way->words, TUTTI_FLOAT32, comm, &options, NULL);
    if (status >= 0 && way->kind == TUTTI_ALL_REDUCE)
        status = tutti_all_reduce(r->in, r->out, way->words, TUTTI_FLOAT32, TUTTI_SUM, comm, &options, NULL);
    if (status >= 0 && way->kind == TUTTI_REDUCE_SCATTER)
        status = tutti_reduce_scatter(r->in, r->out, way->words, TUTTI_FLOAT32, TUTTI_SUM, comm, &options, NULL);
    if (status < 0) return status;
    return tutti_cuda_copy(r->g.gpu, r->host_out, r->out, r->n_out * sizeof(float), r->g.stream);
}

static void compare(struct replayed *r, uint32_t round, const char *how)
{
    for (size_t i = 0; i < r->n_out; i++) {
        const float want = expected(r, round, i);
        if (r->host_out[i] == want) continue;
        rank_fail(r->g.rank, __FILE__, __LINE__, "%s %u of %s by %s: word %zu is %g instead of %g", how, round,
                  tutti_kind_name(r->way->kind), r->way->algorithm, i, (double)r->host_out[i], (double)want);
        return;
    }
}

static void replay(struct replayed *r)
{
    struct gpu_rank *g = &r->g;
    struct rank *rank = g->rank;
    void *graph = NULL;
    GPU_CHECK_OK(g, tutti_cuda_graph_begin(g->gpu, g->stream));
    GPU_CHECK_OK(g, enqueue(r));
    GPU_CHECK_OK(g, tutti_cuda_graph_end(g->gpu, g->stream, &graph));
    const uint32_t n = gpu_ranks_stand_in() ? REPLAYS_STAND_IN : REPLAYS;
    for (uint32_t round = 0; round < n && !rank->failure[0]; round++) {
        const bool eager = round % EAGER_EVERY == 0;
        for (size_t i = 0; i < r->n_in; i++) r->host_in[i] = value((uint32_t)rank->index, round, i);
        if (eager)
            GPU_CHECK_OK(g, enqueue(r));
        else
            GPU_CHECK_OK(g, tutti_cuda_graph_launch(g->gpu, graph, g->stream));
        GPU_CHECK_OK(g, tutti_cuda_stream_sync(g->gpu, g->stream));
        GPU_CHECK_OK(g, tutti_comm_state(rank->comm, NULL));
        compare(r, round, eager ? "call" : "replay");
    }
    tutti_cuda_graph_destroy(g->gpu, graph);
}

/* One allocation, the output first. */
static void replay_way(struct gpu_rank *g, const struct way *way)
{
    struct replayed r = {.g = *g, .way = way, .n_in = way->words, .n_out = way->words};
    void *memory = NULL;
    const size_t n = (size_t)g->rank->n;
    if (way->kind == TUTTI_REDUCE_SCATTER || way->kind == TUTTI_ALL_TO_ALL) r.n_in *= n;
    if (way->kind == TUTTI_ALL_GATHER || way->kind == TUTTI_ALL_TO_ALL) r.n_out *= n;
    const size_t out_bytes = (r.n_out * sizeof(float) + 511) / 512 * 512, bytes = out_bytes + r.n_in * sizeof(float);
    r.host_in = (float *)gpu_rank_host_words(g, r.n_in), r.host_out = (float *)gpu_rank_host_words(g, r.n_out);
    GPU_CHECK_OK(g, tutti_mem_alloc(g->rank->comm, bytes, &memory));
    r.out = memory, r.in = (float *)(void *)((char *)memory + out_bytes);
    if (way->window) GPU_CHECK_OK(g, tutti_window_create(g->rank->comm, memory, bytes, NULL, &r.window));
    GPU_CHECK_OK(g, tutti_barrier(g->rank->comm, NULL, NULL)); /* giving memory back waits for what runs */
    if (r.host_in && r.host_out) replay(&r);
    if (g->rank->failure[0]) return;
    GPU_CHECK_OK(g, tutti_barrier(g->rank->comm, NULL, NULL));
    tutti_window_destroy(r.window);
    GPU_CHECK_OK(g, tutti_barrier(g->rank->comm, NULL, NULL));
    GPU_CHECK_OK(g, tutti_mem_free(g->rank->comm, memory));
    tutti_cuda_free_host(g->gpu, r.host_in);
    tutti_cuda_free_host(g->gpu, r.host_out);
}

static void replay_all(struct rank *rank)
{
    const struct way *ways = rank->n == 2 ? between_two : among_three;
    const size_t n_ways = rank->n == 2 ? TUTTI_ARRAY_LEN(between_two) : TUTTI_ARRAY_LEN(among_three);
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    for (size_t i = 0; i < n_ways && !rank->failure[0]; i++) replay_way(&g, &ways[i]);
    if (rank->failure[0]) return;
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    gpu_rank_close(&g);
}

static void each_method(void **state)
{
    (void)state;
    const struct tutti_option options[] = {{"gpu", "cuda"}};
    for (uint32_t n = 2; n <= 3; n++) {
        struct ranks_config config = {
            .n = n, .forked = true, .deadline_s = gpu_ranks_deadline_s(), .options = options, .n_options = 1};
        assert_int_equal(ranks_run(&config, replay_all), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_method)};
    gpu_ranks_need_device();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
