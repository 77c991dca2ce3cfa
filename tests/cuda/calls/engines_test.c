/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls in windows, by copy engines and by kernels that store straight to peers, each forced, on data that change from
 * call to call; captured, too. Numbers are small and whole, so that sums are exact in any order. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"

#include <string.h>

enum { UNITS = 40, ROUNDS = 6, SHARD = 32 }; /* floats: of 128 bytes */

struct scene {
    struct gpu_rank g;
    struct tutti_window *window;
    float *in, *out, *got;
    struct tutti_call_options options;
    size_t count; /* a block's; all_reduce and broadcast have n blocks, but for `less` elements */
    size_t less;
    bool in_place; /* all_reduce, too */
};

static void scene_close(struct scene *s)
{
    struct rank *rank = s->g.rank;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    tutti_window_destroy(s->window);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_mem_free(rank->comm, s->out));
    tutti_cuda_free(s->g.gpu, s->in);
    free(s->got);
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    gpu_rank_close(&s->g);
}

static float value(int32_t rank, size_t i, uint32_t round)
{
    return (float)((i * 7 + (size_t)rank * 13 + round * 29) % 101);
}

static void give(struct scene *s, float *to, size_t n, uint32_t round)
{
    for (size_t i = 0; i < n; i++) s->got[i] = value(s->g.rank->index, i, round);
    GPU_CHECK_OK(&s->g, tutti_cuda_copy_now(s->g.gpu, to, s->got, n * sizeof(float)));
}

static bool take(struct scene *s, size_t n)
{
    return tutti_cuda_stream_sync(s->g.gpu, s->g.stream) >= 0 &&
           tutti_cuda_copy_now(s->g.gpu, s->got, s->out, n * sizeof(float)) >= 0;
}

static void all_reduces(struct scene *s, uint32_t round)
{
    struct rank *rank = s->g.rank;
    size_t n = s->count * (size_t)rank->n - s->less;
    float *in = s->in_place && round % 2 ? s->out : s->in;
    give(s, in, n, round);
    RANK_CHECK_OK(rank, tutti_all_reduce(in, s->out, n, TUTTI_FLOAT32, TUTTI_SUM, rank->comm, &s->options, NULL));
    RANK_CHECK(rank, take(s, n));
    for (size_t i = 0; i < n; i++) {
        float want = 0;
        for (int32_t q = 0; q < rank->n; q++) want += value(q, i, round);
        RANK_CHECK(rank, s->got[i] == want);
    }
}

static void all_gathers(struct scene *s, uint32_t round)
{
    struct rank *rank = s->g.rank;
    float *own = round % 2 ? s->out + (size_t)rank->index * s->count : s->in; /* in place, or not */
    give(s, own, s->count, round);
    RANK_CHECK_OK(rank, tutti_all_gather(own, s->out, s->count, TUTTI_FLOAT32, rank->comm, &s->options, NULL));
    RANK_CHECK(rank, take(s, s->count * (size_t)rank->n));
    for (size_t i = 0; i < s->count * (size_t)rank->n; i++)
        RANK_CHECK(rank, s->got[i] == value((int32_t)(i / s->count), i % s->count, round));
}

static void all_to_alls(struct scene *s, uint32_t round)
{
    struct rank *rank = s->g.rank;
    size_t mine = (size_t)rank->index * s->count;
    give(s, s->in, s->count * (size_t)rank->n, round);
    RANK_CHECK_OK(rank, tutti_all_to_all(s->in, s->out, s->count, TUTTI_FLOAT32, rank->comm, &s->options, NULL));
    RANK_CHECK(rank, take(s, s->count * (size_t)rank->n));
    for (size_t i = 0; i < s->count * (size_t)rank->n; i++)
        RANK_CHECK(rank, s->got[i] == value((int32_t)(i / s->count), mine + i % s->count, round));
}

static void broadcasts(struct scene *s, uint32_t round)
{
    struct rank *rank = s->g.rank;
    int32_t root = (int32_t)round % rank->n;
    size_t n = s->count * (size_t)rank->n - s->less;
    give(s, s->out, n, round);
    RANK_CHECK_OK(rank, tutti_broadcast(s->out, n, TUTTI_FLOAT32, root, rank->comm, &s->options, NULL));
    RANK_CHECK(rank, take(s, n));
    for (size_t i = 0; i < n; i++) RANK_CHECK(rank, s->got[i] == value(root, i, round));
}

/* For blocks of n floats; each rank's lie one behind another in `in`. */
static void reduce_scatters(struct scene *s, float *in, size_t n, uint32_t round)
{
    struct rank *rank = s->g.rank;
    size_t all = n * (size_t)rank->n, mine = n * (size_t)rank->index;
    give(s, in, all, round);
    RANK_CHECK_OK(rank, tutti_reduce_scatter(in, s->out, n, TUTTI_FLOAT32, TUTTI_SUM, rank->comm, &s->options, NULL));
    RANK_CHECK(rank, take(s, n));
    for (size_t i = 0; i < n; i++) {
        float want = 0;
        for (int32_t q = 0; q < rank->n; q++) want += value(q, mine + i, round);
        RANK_CHECK(rank, s->got[i] == want);
    }
}

/* The all_reduce of a graph, with forks to the own stream and back, replayed on changing data. Another one is made at
 * once, on another stream, while it is captured. */
static void replays(struct scene *s)
{
    struct rank *rank = s->g.rank;
    size_t n = s->count * (size_t)rank->n;
    void *graph = NULL, *other = NULL;
    struct tutti_call_options beside = s->options;
    RANK_CHECK_OK(rank, tutti_cuda_stream_create(s->g.gpu, &other));
    beside.stream = other;
    RANK_CHECK_OK(rank, tutti_cuda_graph_begin(s->g.gpu, s->g.stream));
    RANK_CHECK_OK(rank, tutti_all_reduce(s->in, s->out, n, TUTTI_FLOAT32, TUTTI_SUM, rank->comm, &s->options, NULL));
    RANK_CHECK_OK(rank, tutti_all_reduce(s->in, s->out, n, TUTTI_FLOAT32, TUTTI_SUM, rank->comm, &beside, NULL));
    RANK_CHECK_OK(rank, tutti_cuda_graph_end(s->g.gpu, s->g.stream, &graph));
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(s->g.gpu, other));
    tutti_cuda_stream_destroy(s->g.gpu, other);
    for (uint32_t round = 0; round < ROUNDS && !rank->failure[0]; round++) {
        give(s, s->in, n, round);
        RANK_CHECK_OK(rank, tutti_cuda_graph_launch(s->g.gpu, graph, s->g.stream));
        RANK_CHECK(rank, take(s, n));
        for (size_t i = 0; i < n; i++) {
            float want = 0;
            for (int32_t q = 0; q < rank->n; q++) want += value(q, i, round);
            RANK_CHECK(rank, s->got[i] == want);
        }
    }
    tutti_cuda_graph_destroy(s->g.gpu, graph);
}

/* Windows that overlap on one rank could be two things to its peers: there are none, until the other is gone. Then the
 * calls find the one that is left. */
static void one_window_a_place(struct scene *s, size_t n)
{
    struct rank *rank = s->g.rank;
    struct tutti_window *second = NULL;
    void *apart = NULL;
    RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, n * sizeof(float), &apart));
    void *mine = rank->index == 0 ? s->out : apart; /* rank 0 alone has a window */
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, rank->index == 0 ? "overlap another window" : "rank 0 failed",
                     tutti_window_create(rank->comm, mine, SHARD * sizeof(float), NULL, &second));
    tutti_window_destroy(s->window);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, s->out, n * sizeof(float), NULL, &s->window));
    RANK_CHECK_OK(rank, tutti_mem_free(rank->comm, apart));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL)); /* that waits for what runs */
}

/* Engines: whole shards, all_reduce out of place, broadcast (the last kind) between two. Kernels: whatever there is. */
static void all_kinds(struct scene *s)
{
    static void (*const kinds[])(struct scene *, uint32_t) = {all_reduces, all_gathers, all_to_alls, broadcasts};
    static const struct {
        const char *method;
        size_t fewer, less;
        bool in_place;
    } ways[] = {{"cuda:engines", 0, 0, false},
                {"cuda:direct", 0, 0, true},
                {"cuda:direct", 3, 2, true},
                {"cuda:direct", UNITS * SHARD - 1, 0, true}};
    size_t all = s->count;
    for (size_t w = 0; w < sizeof ways / sizeof *ways && !s->g.rank->failure[0]; w++) {
        s->options.algorithm = ways[w].method;
        s->count = all - ways[w].fewer;
        s->less = ways[w].less, s->in_place = ways[w].in_place;

        const size_t n_kinds = sizeof kinds / sizeof *kinds - (w == 0 && s->g.rank->n > 2);
        for (size_t k = 0; k < n_kinds; k++)
            for (uint32_t round = 0; round < ROUNDS && !s->g.rank->failure[0]; round++) kinds[k](s, round);
        s->count = all, s->less = 0;
        if (!ways[w].fewer && !s->g.rank->failure[0]) replays(s);
    }
}

/* Between two a block comes in chunks, the more the larger it is. In place, and among more, there is no room for what
 * comes. */
static void two(struct rank *rank)
{
    static const size_t blocks[] = {2 * SHARD, 6 * SHARD, 5000 * SHARD, (34 << 18) + 2 * SHARD};
    struct scene s = {.options = TUTTI_CALL_OPTIONS_INIT};
    const size_t most = blocks[sizeof blocks / sizeof *blocks - 1];
    if (!gpu_rank_open(rank, &s.g)) return;
    s.options.stream = s.g.stream;
    s.options.algorithm = "cuda:engines";
    s.got = malloc(most * (size_t)rank->n * sizeof(float));
    s.in = (float *)gpu_rank_words(&s.g, most * (size_t)rank->n);
    if (!s.got || !s.in) return;
    RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, most * (size_t)rank->n * sizeof(float), (void **)&s.out));
    RANK_CHECK_OK(rank,
                  tutti_window_create(rank->comm, s.out, most * (size_t)rank->n * sizeof(float), NULL, &s.window));
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        for (uint32_t round = 0; round < 2 && !rank->failure[0]; round++) reduce_scatters(&s, s.in, blocks[i], round);
    if (rank->failure[0]) return;
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "cuda:engines",
                     tutti_reduce_scatter(s.out, s.out + (size_t)rank->index * SHARD, SHARD, TUTTI_FLOAT32, TUTTI_SUM,
                                          rank->comm, &s.options, NULL));
    scene_close(&s);
}

static void run(struct rank *rank)
{
    struct scene s = {.options = TUTTI_CALL_OPTIONS_INIT, .count = UNITS * SHARD};
    if (!gpu_rank_open(rank, &s.g)) return;
    size_t n = s.count * (size_t)rank->n;
    s.options.stream = s.g.stream;
    s.options.algorithm = "cuda:engines";
    s.got = malloc(n * sizeof(float));
    s.in = (float *)gpu_rank_words(&s.g, n);
    if (!s.got || !s.in) return;
    RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, n * sizeof(float), (void **)&s.out));
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, s.out, n * sizeof(float), NULL, &s.window));
    /* What is named is what is done, or nothing. */
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "cuda:engines",
                     tutti_all_gather(s.out, s.in, 1, TUTTI_FLOAT32, rank->comm, &s.options, NULL));
    one_window_a_place(&s, n);
    if (!rank->failure[0]) all_kinds(&s);
    if (rank->failure[0]) return;
    RANK_CHECK_OK(rank, tutti_comm_state(rank->comm, NULL));
    scene_close(&s);
}

/* Rank 1 goes another way, or its output is in no window, or at another place of it: the others would wait for what it
 * never does. */
enum place { ALIKE, FURTHER, OUTSIDE };
static const struct difference {
    const char *method, *other;
    enum place place;
} differences[] = {{"cuda:engines", "cuda:tiles", OUTSIDE}, /* as long calls go by themselves */
                   {"cuda:direct", "cuda:tiles", OUTSIDE},
                   {"cuda:direct", "cuda:direct", FURTHER},
                   {"cuda:engines", "cuda:direct", ALIKE}};
static void leave_the_window(struct rank *rank)
{
    const struct difference *difference = rank->arg;
    const enum place place = rank->index == 1 ? difference->place : ALIKE;
    struct scene s = {.options = TUTTI_CALL_OPTIONS_INIT};
    struct tutti_error error = {0};
    size_t words = SHARD * (size_t)rank->n, room = (words + 4) * sizeof(float);
    if (!gpu_rank_open(rank, &s.g)) return;
    s.options.stream = s.g.stream;
    s.options.algorithm = rank->index == 1 ? difference->other : difference->method;
    s.in = (float *)gpu_rank_words(&s.g, 2 * words);
    if (!s.in) return;
    RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, room, (void **)&s.out));
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, s.out, room, NULL, &s.window));
    float *out = place == OUTSIDE ? s.in + words : place == FURTHER ? s.out + 4 : s.out;
    enum tutti_status status = tutti_all_gather(s.in, out, SHARD, TUTTI_FLOAT32, rank->comm, &s.options, NULL);
    if (status == TUTTI_OK) (void)tutti_cuda_stream_sync(s.g.gpu, s.g.stream);
    while (status == TUTTI_OK) status = tutti_comm_state(rank->comm, &error); /* until the run's deadline */
    if (error.status == TUTTI_OK) error = *tutti_last_error();
    RANK_CHECK(rank, status == TUTTI_ERR_MISMATCH && strstr(error.text, "another place in a window"));
    tutti_window_destroy(s.window);
    tutti_cuda_free(s.g.gpu, s.in);
}

static void windows_that_differ(void **state)
{
    (void)state;
    struct ranks_config config = {.n = 2, .forked = true};
    for (size_t i = 0; i < sizeof differences / sizeof *differences; i++) {
        struct difference difference = differences[i];
        config.arg = &difference;
        assert_int_equal(ranks_run(&config, leave_the_window), 0);
    }
}

static void in_windows(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 4; n++) {
        struct ranks_config config = {.n = n, .forked = true, .deadline_s = 100};
        assert_int_equal(ranks_run(&config, run), 0);
        if (n == 2) assert_int_equal(ranks_run(&config, two), 0);
    }
}

int main(void)
{
    gpu_ranks_need_device();
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_windows), cmocka_unit_test(windows_that_differ)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
