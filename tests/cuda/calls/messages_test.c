/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of groups, eager and captured: on several streams; those that share memory; and what fails among them.
 * Several for a peer: letters_test.c. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"

#include <string.h>
#include <time.h>

/* With scratch so small that its rings hold less than the messages. */
static unsigned run(uint32_t n, rank_function function)
{
    const struct tutti_option options[] = {{"gpu", gpu_ranks_way(n)}, {"gpu_scratch", "2M"}};
    const struct ranks_config config = {
        .n = n, .forked = true, .options = options, .n_options = 2, .deadline_s = gpu_ranks_deadline_s()};
    return n <= gpu_ranks_at_most(n) ? ranks_run(&config, function) : 0;
}

/* ---- streams ---- */

enum { WORDS = 300001, STREAMS = 2 };

struct streams {
    struct gpu_rank g;
    void *of[STREAMS], *fork, *join;
    uint32_t *in, *out, *sent, *came; /* device memory, pinned memory of the host */
    struct tutti_work *works[STREAMS];
};

static uint32_t word(int32_t rank, uint32_t round, size_t i)
{
    return (uint32_t)(i * 2654435761u) ^ (uint32_t)rank << 8 ^ round;
}

static bool streams_open(struct rank *rank, struct streams *s)
{
    *s = (struct streams){.in = NULL};
    if (!gpu_rank_open(rank, &s->g)) return false;
    struct tutti_device *gpu = s->g.gpu;
    s->in = gpu_rank_words(&s->g, WORDS), s->out = gpu_rank_words(&s->g, WORDS);
    s->sent = gpu_rank_host_words(&s->g, WORDS), s->came = gpu_rank_host_words(&s->g, WORDS);
    s->of[0] = s->g.stream;
    return s->in && s->out && s->sent && s->came && tutti_cuda_stream_create(gpu, &s->of[1]) == TUTTI_OK &&
           tutti_cuda_event_create(gpu, false, &s->fork) == TUTTI_OK &&
           tutti_cuda_event_create(gpu, false, &s->join) == TUTTI_OK;
}

static void hold_up(void *arg)
{
    const struct timespec nap = {.tv_nsec = 30000000};
    (void)arg;
    nanosleep(&nap, NULL);
}

/* To the right on the first stream, which is late and overwrites what it has sent; from the left on the other one. */
static void shift(struct streams *s, bool works)
{
    struct rank *rank = s->g.rank;
    struct tutti_device *gpu = s->g.gpu;
    const int32_t right = (rank->index + 1) % rank->n, left = (rank->index + rank->n - 1) % rank->n;
    struct tutti_call_options on[STREAMS] = {TUTTI_CALL_OPTIONS_INIT, TUTTI_CALL_OPTIONS_INIT};
    for (int i = 0; i < STREAMS; i++) on[i].stream = s->of[i];
    GPU_CHECK_OK(&s->g, tutti_cuda_host_call(gpu, s->of[0], hold_up, NULL));
    GPU_CHECK_OK(&s->g, tutti_cuda_copy(gpu, s->in, s->sent, WORDS * 4, s->of[0]));
    RANK_CHECK_OK(rank, tutti_group_start());
    RANK_CHECK_OK(
        rank, tutti_recv(s->out, WORDS, TUTTI_UINT32, left, 0, rank->comm, &on[1], NULL, works ? &s->works[1] : NULL));
    RANK_CHECK_OK(rank,
                  tutti_send(s->in, WORDS, TUTTI_UINT32, right, 0, rank->comm, &on[0], works ? &s->works[0] : NULL));
    RANK_CHECK_OK(rank, tutti_group_end(NULL));
    GPU_CHECK_OK(&s->g, tutti_cuda_copy(gpu, s->in, s->sent + 1, (WORDS - 1) * 4, s->of[0]));
    GPU_CHECK_OK(&s->g, tutti_cuda_copy(gpu, s->came, s->out, WORDS * 4, s->of[1]));
}

static void put(struct streams *s, uint32_t round)
{
    for (size_t i = 0; i < WORDS; i++) s->sent[i] = word(s->g.rank->index, round, i), s->came[i] = 0;
}

static void check(struct streams *s, uint32_t round)
{
    struct rank *rank = s->g.rank;
    for (int i = 0; i < STREAMS; i++) {
        if (s->works[i]) RANK_CHECK_OK(rank, tutti_work_wait(s->works[i], 0));
        if (s->works[i]) tutti_work_free(s->works[i]);
        s->works[i] = NULL;
        GPU_CHECK_OK(&s->g, tutti_cuda_stream_sync(s->g.gpu, s->of[i]));
    }
    for (size_t i = 0; i < WORDS; i++)
        RANK_CHECK(rank, s->came[i] == word((rank->index + rank->n - 1) % rank->n, round, i));
    RANK_CHECK_OK(rank, tutti_comm_state(rank->comm, NULL));
}

static void tie(struct streams *s, int from, int to, void *event)
{
    GPU_CHECK_OK(&s->g, tutti_cuda_event_record(s->g.gpu, event, s->of[from]));
    GPU_CHECK_OK(&s->g, tutti_cuda_stream_wait(s->g.gpu, s->of[to], event));
}

static void replay(struct streams *s)
{
    void *graph = NULL;
    GPU_CHECK_OK(&s->g, tutti_cuda_graph_begin(s->g.gpu, s->of[0]));
    tie(s, 0, 1, s->fork);
    shift(s, false);
    tie(s, 1, 0, s->join);
    GPU_CHECK_OK(&s->g, tutti_cuda_graph_end(s->g.gpu, s->of[0], &graph));
    for (uint32_t round = 2; round < 4 && !s->g.rank->failure[0]; round++) {
        put(s, round);
        GPU_CHECK_OK(&s->g, tutti_cuda_graph_launch(s->g.gpu, graph, s->of[0]));
        check(s, round);
    }
    tutti_cuda_graph_destroy(s->g.gpu, graph);
}

static void two_streams(struct rank *rank)
{
    struct streams s;
    RANK_CHECK(rank, streams_open(rank, &s));
    for (uint32_t round = 0; round < 2 && !rank->failure[0]; round++) {
        put(&s, round);
        shift(&s, round == 1);
        if (!rank->failure[0]) check(&s, round);
    }
    if (!rank->failure[0] && !gpu_ranks_across((uint32_t)rank->n)) replay(&s);
    if (rank->failure[0]) return;
    tutti_cuda_stream_destroy(s.g.gpu, s.of[1]);
    gpu_rank_leave(&s.g);
}

/* One that is captured beside one that is not is no part of the graph; nothing is started, the communicator lives. */
static void half_captured(struct rank *rank)
{
    struct streams s;
    void *graph = NULL;
    uint64_t capture = 1;
    struct tutti_call_options on[STREAMS] = {TUTTI_CALL_OPTIONS_INIT, TUTTI_CALL_OPTIONS_INIT};
    RANK_CHECK(rank, streams_open(rank, &s));
    for (int i = 0; i < STREAMS; i++) on[i].stream = s.of[i];
    GPU_CHECK_OK(&s.g, tutti_cuda_graph_begin(s.g.gpu, s.of[0]));
    RANK_CHECK_OK(rank, tutti_group_start());
    RANK_CHECK_OK(rank, tutti_recv(s.out, 1, TUTTI_UINT32, rank->index, 0, rank->comm, &on[1], NULL, NULL));
    RANK_CHECK_OK(rank, tutti_send(s.in, 1, TUTTI_UINT32, rank->index, 0, rank->comm, &on[0], NULL));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "not all of which are ", tutti_group_end(NULL));
    GPU_CHECK_OK(&s.g, tutti_cuda_capturing(s.g.gpu, s.of[1], &capture));
    RANK_CHECK(rank, capture == 0);
    GPU_CHECK_OK(&s.g, tutti_cuda_graph_end(s.g.gpu, s.of[0], &graph));
    tutti_cuda_graph_destroy(s.g.gpu, graph);
    put(&s, 0);
    shift(&s, true);
    if (!rank->failure[0]) check(&s, 0);
}

static void streams(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 3; n++) assert_int_equal(run(n, two_streams), 0);
    assert_int_equal(run(1, half_captured), 0);
}

static enum tutti_status ship(struct gpu_rank *g, uint32_t *words, size_t n, int32_t to, int32_t from)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = g->stream;
    return to >= 0 ? tutti_send(words, n, TUTTI_UINT32, to, 0, g->rank->comm, &options, NULL)
                   : tutti_recv(words, n, TUTTI_UINT32, from, 0, g->rank->comm, &options, NULL, NULL);
}

/* ---- the same memory ---- */

enum { SWAPPED = 20000, SWAPS = 3 };

/* Swapped in place as often as it is called, in one group, beside what is swapped once. */
static void swap_in_place(struct rank *rank)
{
    struct gpu_rank g;
    const int32_t peer = 1 - rank->index;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *words = gpu_rank_words(&g, 2 * SWAPPED), *host = rank_alloc(rank, 2 * SWAPPED * 4);
    RANK_CHECK(rank, words);
    for (size_t i = 0; i < 2 * SWAPPED; i++) host[i] = word(rank->index, 0, i);
    GPU_CHECK_OK(&g, tutti_cuda_copy_now(g.gpu, words, host, 2 * SWAPPED * 4));
    RANK_CHECK_OK(rank, tutti_group_start());
    for (uint32_t i = 0; i <= SWAPS; i++) {
        uint32_t *at = words + (i == 1 ? SWAPPED : 0);
        GPU_CHECK_OK(&g, ship(&g, at, SWAPPED, peer, -1));
        GPU_CHECK_OK(&g, ship(&g, at, SWAPPED, -1, peer));
    }
    RANK_CHECK_OK(rank, tutti_group_end(NULL));
    GPU_CHECK_OK(&g, tutti_cuda_stream_sync(g.gpu, g.stream));
    RANK_CHECK_OK(rank, tutti_comm_state(rank->comm, NULL));
    GPU_CHECK_OK(&g, tutti_cuda_copy_now(g.gpu, host, words, 2 * SWAPPED * 4));
    for (size_t i = 0; i < 2 * SWAPPED; i++) RANK_CHECK(rank, host[i] == word(peer, 0, i));
    gpu_rank_leave(&g);
}

static void swaps(void **state)
{
    (void)state;
    if (gpu_ranks_by_nccl()) skip(); /* which does not say what becomes of it */
    assert_int_equal(run(2, swap_in_place), 0);
}

/* ---- a message that never comes ---- */

/* Among several with each peer, the one that rank 2 does not send. */
static void missed(struct rank *rank)
{
    static const char *const said[] = {"recv from rank 2", "400 bytes)", ": rank 0 timed out"};
    const struct timespec nap = {.tv_nsec = 1000000};
    struct gpu_rank g;
    struct tutti_error error = {0};
    uint32_t *words;
    if (!gpu_rank_open(rank, &g) || !(words = gpu_rank_words(&g, 6000))) return;
    tutti_comm_set_timeout(rank->comm, UINT64_C(1500000000));
    RANK_CHECK_OK(rank, tutti_group_start());
    for (int32_t q = 0, i = 0; q < rank->n; q++) {
        if (q == rank->index) continue;
        for (size_t k = 1; k <= 3; k++, i++) {
            if (k < 3 || rank->index != 2 || q != 0) GPU_CHECK_OK(&g, ship(&g, words + 200 * k, 1 + 33 * k, q, -1));
            GPU_CHECK_OK(&g, ship(&g, words + 1000 + 200 * i, 1 + 33 * k, -1, q));
        }
    }
    RANK_CHECK_OK(rank, tutti_group_end(NULL));
    while (tutti_comm_state(rank->comm, &error) == TUTTI_OK) nanosleep(&nap, NULL); /* until the run's deadline */
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        if (error.status != TUTTI_ERR_TIMEOUT || !strstr(error.text, said[i]))
            rank_fail(rank, __FILE__, __LINE__, "%s: \"%s\"", tutti_status_name(error.status), error.text);
    GPU_CHECK_OK(&g, tutti_cuda_stream_sync(g.gpu, g.stream)); /* the device came to its end */
}

static void timeouts(void **state)
{
    (void)state;
    if (gpu_ranks_by_nccl()) skip(); /* which ends none of a group before all: any rank may be the first to tell */
    assert_int_equal(run(3, missed), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(streams), cmocka_unit_test(swaps), cmocka_unit_test(timeouts)};
    gpu_ranks_need_device();
    gpu_ranks_need_two();
    return cmocka_run_group_tests_name("messages of groups", tests, NULL, NULL);
}
