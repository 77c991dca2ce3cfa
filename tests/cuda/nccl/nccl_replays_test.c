/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that NCCL does not take as they are, in graphs: copies of their buffers stand in, in memory that each replay
 * takes and gives back. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"

#include <string.h>

enum { BLOCK = 5001, ROUNDS = 4, ASTRAY = 2 }; /* words; bytes from where a word may begin */

struct scene {
    struct gpu_rank g;
    char *buffer;
    uint32_t *host;
    size_t words;
    struct tutti_call_options options;
};

static uint32_t value(int32_t from, size_t i, uint32_t round)
{
    return (uint32_t)i * 7 + (uint32_t)from * 1000003 + round * 77777;
}

static enum tutti_status all_to_all_in_place(struct scene *s)
{
    return tutti_all_to_all(s->buffer, s->buffer, BLOCK, TUTTI_UINT32, s->g.rank->comm, &s->options, NULL);
}
static uint32_t swapped(const struct rank *rank, size_t i, uint32_t round)
{
    return value((int32_t)(i / BLOCK), (size_t)rank->index * BLOCK + i % BLOCK, round);
}

static enum tutti_status all_reduce_astray(struct scene *s)
{
    return tutti_all_reduce(s->buffer, s->buffer, s->words, TUTTI_UINT32, TUTTI_SUM, s->g.rank->comm, &s->options,
                            NULL);
}
static uint32_t summed(const struct rank *rank, size_t i, uint32_t round)
{
    uint32_t sum = 0;
    for (int32_t q = 0; q < rank->n; q++) sum += value(q, i, round);
    return sum;
}

static const struct way {
    enum tutti_status (*call)(struct scene *s);
    uint32_t (*want)(const struct rank *rank, size_t i, uint32_t round);
    size_t at;
} ways[] = {{all_to_all_in_place, swapped, 0}, {all_reduce_astray, summed, ASTRAY}};

/* Once as it is, as NCCL captures no first call; then from a graph. */
static void replay(struct scene *s, const struct way *way)
{
    struct gpu_rank *g = &s->g;
    void *graph = NULL;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < s->words; i++) s->host[i] = value(g->rank->index, i, round);
        GPU_CHECK_OK(g, tutti_cuda_copy_now(g->gpu, s->buffer, s->host, s->words * 4));
        GPU_CHECK_OK(g, round ? tutti_cuda_graph_launch(g->gpu, graph, g->stream) : way->call(s));
        GPU_CHECK_OK(g, tutti_cuda_stream_sync(g->gpu, g->stream));
        GPU_CHECK_OK(g, tutti_comm_state(g->rank->comm, NULL));
        GPU_CHECK_OK(g, tutti_cuda_copy_now(g->gpu, s->host, s->buffer, s->words * 4));
        for (size_t i = 0; i < s->words; i++) RANK_CHECK(g->rank, s->host[i] == way->want(g->rank, i, round));
        if (round > 0) continue;
        GPU_CHECK_OK(g, tutti_cuda_graph_begin(g->gpu, g->stream));
        GPU_CHECK_OK(g, way->call(s));
        GPU_CHECK_OK(g, tutti_cuda_graph_end(g->gpu, g->stream, &graph));
    }
    tutti_cuda_graph_destroy(g->gpu, graph);
}

static void replay_each(struct rank *rank)
{
    static const struct tutti_call_options init = TUTTI_CALL_OPTIONS_INIT;
    struct scene s = {.options = init, .words = BLOCK * (size_t)rank->n};
    if (!gpu_rank_open(rank, &s.g)) return;
    char *memory = (char *)gpu_rank_words(&s.g, s.words + 1);
    if (!memory) return;
    s.options.stream = s.g.stream;
    s.host = rank_alloc(rank, s.words * 4);
    for (size_t i = 0; i < sizeof ways / sizeof *ways && !rank->failure[0]; i++) {
        s.buffer = memory + ways[i].at;
        replay(&s, &ways[i]);
    }
    if (rank->failure[0]) return;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    tutti_cuda_free(s.g.gpu, memory);
    gpu_rank_close(&s.g);
}

static void replays_aside(void **state)
{
    const struct tutti_option options[] = {{"gpu", "nccl"}};
    (void)state;
    for (uint32_t n = 2; n <= 3; n++) {
        struct ranks_config config = {.n = gpu_ranks_at_most(n), .forked = true, .options = options, .n_options = 1};
        assert_int_equal(ranks_run(&config, replay_each), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(replays_aside)};
    setenv("TUTTI_GPU", "nccl", 1); /* what needs it, and two devices, is skipped */
    gpu_ranks_need_device();
    gpu_ranks_need_two();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
