/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls by each method, forced, in windows where it asks for them, on data that change from call to call; and replays
 * of graphs in which each was captured. Numbers are small and whole, so that sums are exact in any order. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"

#include "base/base.h"

#include <string.h>

enum { UNITS = 40, ROUNDS = 6, SHARD = 32 }; /* floats: of 128 bytes */

struct scene {
    struct gpu_rank g;
    struct tutti_window *window;
    float *in, *out, *got;
    struct tutti_call_options options;
    size_t count; /* a block's; all_reduce and broadcast have n blocks, but for `less` elements */
    size_t less;
    bool in_place;  /* all_reduce, too */
    bool capturing; /* the call alone is made */
    void *graph;    /* is launched in place of the call; NULL: there is none */
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
    if (s->capturing) return;
    for (size_t i = 0; i < n; i++) s->got[i] = value(s->g.rank->index, i, round);
    GPU_CHECK_OK(&s->g, tutti_cuda_copy_now(s->g.gpu, to, s->got, n * sizeof(float)));
}

/* The graph in place of a call; false: there is none. */
static bool launches(struct scene *s)
{
    if (s->graph && tutti_cuda_graph_launch(s->g.gpu, s->graph, s->g.stream) < 0)
        rank_fail(s->g.rank, __FILE__, __LINE__, "a graph: %s", tutti_last_error()->text);
    return s->graph != NULL;
}

/* False: there is nothing to compare. */
static bool take(struct scene *s, size_t n)
{
    if (s->capturing || s->g.rank->failure[0]) return false;
    if (tutti_cuda_stream_sync(s->g.gpu, s->g.stream) >= 0 &&
        tutti_cuda_copy_now(s->g.gpu, s->got, s->out, n * sizeof(float)) >= 0)
        return true;
    rank_fail(s->g.rank, __FILE__, __LINE__, "no result: %s", tutti_last_error()->text);
    return false;
}

static void all_reduces(struct scene *s, uint32_t round)
{
    struct rank *rank = s->g.rank;
    size_t n = s->count * (size_t)rank->n - s->less;
    float *in = s->in_place && round % 2 ? s->out : s->in;
    give(s, in, n, round);
    if (!launches(s))
        RANK_CHECK_OK(rank, tutti_all_reduce(in, s->out, n, TUTTI_FLOAT32, TUTTI_SUM, rank->comm, &s->options, NULL));
    if (!take(s, n)) return;
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
    if (!launches(s))
        RANK_CHECK_OK(rank, tutti_all_gather(own, s->out, s->count, TUTTI_FLOAT32, rank->comm, &s->options, NULL));
    if (!take(s, s->count * (size_t)rank->n)) return;
    for (size_t i = 0; i < s->count * (size_t)rank->n; i++)
        RANK_CHECK(rank, s->got[i] == value((int32_t)(i / s->count), i % s->count, round));
}

static void all_to_alls(struct scene *s, uint32_t round)
{
    struct rank *rank = s->g.rank;
    size_t mine = (size_t)rank->index * s->count;
    give(s, s->in, s->count * (size_t)rank->n, round);
    if (!launches(s))
        RANK_CHECK_OK(rank, tutti_all_to_all(s->in, s->out, s->count, TUTTI_FLOAT32, rank->comm, &s->options, NULL));
    if (!take(s, s->count * (size_t)rank->n)) return;
    for (size_t i = 0; i < s->count * (size_t)rank->n; i++)
        RANK_CHECK(rank, s->got[i] == value((int32_t)(i / s->count), mine + i % s->count, round));
}

static void broadcasts(struct scene *s, uint32_t round)
{
    struct rank *rank = s->g.rank;
    int32_t root = (int32_t)round % rank->n;
    size_t n = s->count * (size_t)rank->n - s->less;
    give(s, s->out, n, round);
    if (!launches(s))
        RANK_CHECK_OK(rank, tutti_broadcast(s->out, n, TUTTI_FLOAT32, root, rank->comm, &s->options, NULL));
    if (!take(s, n)) return;
    for (size_t i = 0; i < n; i++) RANK_CHECK(rank, s->got[i] == value(root, i, round));
}

static void reduce_scatters(struct scene *s, uint32_t round)
{
    struct rank *rank = s->g.rank;
    size_t n = s->count, all = n * (size_t)rank->n, mine = n * (size_t)rank->index;
    give(s, s->in, all, round);
    if (!launches(s))
        RANK_CHECK_OK(rank,
                      tutti_reduce_scatter(s->in, s->out, n, TUTTI_FLOAT32, TUTTI_SUM, rank->comm, &s->options, NULL));
    if (!take(s, n)) return;
    for (size_t i = 0; i < n; i++) {
        float want = 0;
        for (int32_t q = 0; q < rank->n; q++) want += value(q, mine + i, round);
        RANK_CHECK(rank, s->got[i] == want);
    }
}

/* Captures the call, with forks to the own stream and back; another one is made meanwhile, on another stream. */
static void capture(struct scene *s, void (*kind)(struct scene *, uint32_t), uint32_t round)
{
    struct rank *rank = s->g.rank;
    void *graph = NULL, *other = NULL;
    RANK_CHECK_OK(rank, tutti_cuda_stream_create(s->g.gpu, &other));
    s->capturing = true;
    RANK_CHECK_OK(rank, tutti_cuda_graph_begin(s->g.gpu, s->g.stream));
    kind(s, round);
    s->options.stream = other;
    kind(s, round);
    s->options.stream = s->g.stream;
    s->capturing = false;
    RANK_CHECK_OK(rank, tutti_cuda_graph_end(s->g.gpu, s->g.stream, &graph));
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(s->g.gpu, other));
    tutti_cuda_stream_destroy(s->g.gpu, other);
    s->graph = graph;
}

/* Roots change with each round, places with every second one. */
static void one_kind(struct scene *s, void (*kind)(struct scene *, uint32_t))
{
    const uint32_t step = 2 * (uint32_t)s->g.rank->n;
    for (uint32_t round = 0; round < ROUNDS && !s->g.rank->failure[0]; round++) kind(s, round);
    for (uint32_t first = 0; first < 2 && !s->g.rank->failure[0]; first++) {
        capture(s, kind, first);
        for (uint32_t i = 0; i < ROUNDS / 2 && !s->g.rank->failure[0]; i++) kind(s, first + i * step);
        tutti_cuda_graph_destroy(s->g.gpu, s->graph);
        s->graph = NULL;
    }
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

/* Engines: whole shards, all_reduce out of place, broadcast between two. Direct: whatever there is. The others go to
 * any place, windows too; relays are among three. */
enum { REDUCES = 1, GATHERS = 2, EXCHANGES = 4, BROADCASTS = 8, SCATTERS = 16, MOVES = GATHERS | EXCHANGES };
enum { ALL = REDUCES | MOVES | BROADCASTS };
static const struct method {
    const char *name;
    uint32_t kinds, kinds_among_more;
    size_t fewer, less;
    bool in_place;
} methods[] = {{"cuda:engines", ALL | SCATTERS, REDUCES | MOVES, 0, 0, false},
               {"cuda:direct", ALL, ALL, 0, 0, true},
               {"cuda:direct", ALL, ALL, 3, 2, true},
               {"cuda:direct", ALL, ALL, UNITS *SHARD - 1, 0, true},
               {"cuda:lines", REDUCES | MOVES, REDUCES | MOVES, UNITS *SHARD - 171, 1, true},
               {"cuda:sentinel", MOVES | SCATTERS, MOVES | SCATTERS, 5, 0, true},
               {"cuda:sentinel2", 0, REDUCES, 5, 1, true},
               {"cuda:sentinels", 0, REDUCES, 5, 1, true},
               {"cuda:tiles", MOVES | SCATTERS, MOVES | SCATTERS, 7, 0, true},
               {"cuda:tiles2", 0, REDUCES, 7, 1, true},
               {"cuda:relay", 0, BROADCASTS, 7, 1, true},
               {"cuda:sentinel_relay", 0, BROADCASTS, 5, 1, true}};

static void all_methods(struct scene *s)
{
    static void (*const kinds[])(struct scene *, uint32_t) = {all_reduces, all_gathers, all_to_alls, broadcasts,
                                                              reduce_scatters};
    const size_t all = s->count;
    for (size_t m = 0; m < TUTTI_ARRAY_LEN(methods) && !s->g.rank->failure[0]; m++) {
        const uint32_t served = s->g.rank->n > 2 ? methods[m].kinds_among_more : methods[m].kinds;
        s->options.algorithm = methods[m].name;
        s->count = all - methods[m].fewer;
        s->less = methods[m].less, s->in_place = methods[m].in_place;
        for (size_t k = 0; k < TUTTI_ARRAY_LEN(kinds) && !s->g.rank->failure[0]; k++)
            if (served >> k & 1) one_kind(s, kinds[k]);
    }
    s->count = all, s->less = 0;
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
        for (uint32_t round = 0; round < 2 && !rank->failure[0]; round++)
            s.count = blocks[i], reduce_scatters(&s, round);
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
    if (!rank->failure[0]) all_methods(&s);
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
