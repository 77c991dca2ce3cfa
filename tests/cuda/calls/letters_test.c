/* SPDX-License-Identifier: BSD-3-Clause */
/* Random messages, several for each peer, in groups as each rank has them, eager and captured, against what was sent:
 * none waits for another one, however the others group theirs. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"

#include <string.h>

#define SMALL_SCRATCH "gpu_scratch", "2M" /* its rings hold less than the messages */

struct letter {
    int32_t from, to;
    size_t bytes;
};
/* How a rank makes its calls: all in one group, in as many groups as there are phases, or one by one; of the letters,
 * in their order, a phase is a run. */
enum mode { AT_ONCE, IN_PHASES, ONE_BY_ONE };
struct post {
    uint64_t seed;
    size_t n, most_bytes;
    uint32_t phases;
    bool at_once; /* all ranks */
};
struct mail { /* one after another */
    const struct post *posts;
    uint32_t n;
};

struct event { /* one end of a letter; the memory of those that are sent comes first */
    const struct letter *letter;
    size_t at;
    bool sends, made;
};
struct desk {
    struct gpu_rank g; /* the rank's */
    const struct post *post;
    enum mode mode;
    uint64_t random; /* this rank's own */
    struct letter *letters;
    struct event *events; /* this rank's, in the order of the letters */
    size_t n_events, bytes;
    unsigned char *memory, *want, *got; /* the device's; the host's */
};

static uint64_t below(uint64_t *random, uint64_t n)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*random >> 33) % n;
}

static unsigned char byte_of(size_t letter, uint32_t round, size_t i)
{
    return (unsigned char)((i * 2654435761u + letter * 97 + round * 31) >> 13);
}

/* The same letters on all ranks: none, a few and many bytes, to oneself, too. */
static void draw(struct desk *d)
{
    const uint32_t n = (uint32_t)d->g.rank->n;
    uint64_t random = d->post->seed;
    for (size_t i = 0; i < d->post->n; i++) {
        const size_t most = below(&random, 3) ? d->post->most_bytes : 40;
        d->letters[i].from = (int32_t)below(&random, n);
        d->letters[i].to = (int32_t)below(&random, n);
        d->letters[i].bytes = below(&random, 8) ? (size_t)below(&random, most) : 0;
    }
}

static bool desk_open(struct gpu_rank *g, const struct post *post, struct desk *d)
{
    struct rank *rank = g->rank;
    const uint64_t own = gpu_ranks_by_nccl() ? 0 : (uint64_t)rank->index; /* NCCL wants groups that are alike */
    *d = (struct desk){.g = *g, .post = post, .random = post->seed ^ (uint64_t)(rank->index + 1) << 40};
    d->mode = post->at_once ? AT_ONCE : (enum mode)((post->seed + own) % 3);
    d->letters = rank_alloc(rank, post->n * sizeof *d->letters);
    d->events = rank_alloc(rank, 2 * post->n * sizeof *d->events);
    draw(d);
    for (size_t i = 0; i < post->n; i++) {
        for (int sends = 1; sends >= 0; sends--) {
            if ((sends ? d->letters[i].from : d->letters[i].to) != rank->index) continue;
            d->bytes += below(&d->random, 40);
            d->events[d->n_events++] = (struct event){.letter = &d->letters[i], .at = d->bytes, .sends = sends};
            d->bytes += d->letters[i].bytes;
        }
    }
    d->want = rank_alloc(rank, d->bytes + 1), d->got = rank_alloc(rank, d->bytes + 1);
    d->memory = (unsigned char *)gpu_rank_words(&d->g, d->bytes / 4 + 1);
    return d->memory != NULL;
}

/* Memory before the calls and, with what came, after them. */
static void fill(struct desk *d, uint32_t round, bool came)
{
    memset(d->want, 0x5a, d->bytes);
    for (size_t e = 0; e < d->n_events; e++) {
        const struct event *event = &d->events[e];
        for (size_t i = 0; i < event->letter->bytes && (event->sends || came); i++)
            d->want[event->at + i] = byte_of((size_t)(event->letter - d->letters), round, i);
    }
}

static void make_event(struct desk *d, struct event *event)
{
    struct rank *rank = d->g.rank;
    const struct letter *letter = event->letter;
    unsigned char *memory = d->memory + event->at;
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = d->g.stream;
    event->made = true;
    if (event->sends)
        RANK_CHECK_OK(rank, tutti_send(memory, letter->bytes, TUTTI_UINT8, letter->to, 0, rank->comm, &options, NULL));
    else
        RANK_CHECK_OK(
            rank, tutti_recv(memory, letter->bytes, TUTTI_UINT8, letter->from, 0, rank->comm, &options, NULL, NULL));
}

/* The next one between the same two in the same direction as this one. */
static struct event *next_like(struct desk *d, const struct event *like)
{
    for (size_t e = 0; e < d->n_events; e++) {
        struct event *event = &d->events[e];
        if (!event->made && event->sends == like->sends && event->letter->from == like->letter->from &&
            event->letter->to == like->letter->to)
            return event;
    }
    return NULL;
}

/* Those of so many letters, one group, in any order. */
static void make_group(struct desk *d, size_t first, size_t end)
{
    size_t *order = rank_alloc(d->g.rank, (d->n_events + 1) * sizeof *order), n = 0;
    for (size_t e = 0; e < d->n_events; e++) {
        const size_t letter = (size_t)(d->events[e].letter - d->letters);
        if (letter >= first && letter < end) order[n++] = e;
    }
    RANK_CHECK_OK(d->g.rank, tutti_group_start());
    for (; n > 0; n--) {
        const size_t drawn = (size_t)below(&d->random, n);
        make_event(d, next_like(d, &d->events[order[drawn]]));
        order[drawn] = order[n - 1];
    }
    RANK_CHECK_OK(d->g.rank, tutti_group_end(NULL));
}

static void make_all(struct desk *d)
{
    const size_t n = d->post->n, runs = d->mode == AT_ONCE ? 1 : d->mode == IN_PHASES ? d->post->phases : n;
    for (size_t e = 0; e < d->n_events; e++) d->events[e].made = false;
    for (size_t r = 0; r < runs && !d->g.rank->failure[0]; r++) make_group(d, n * r / runs, n * (r + 1) / runs);
}

static void desk_put(struct desk *d, uint32_t round)
{
    fill(d, round, false);
    GPU_CHECK_OK(&d->g, tutti_cuda_copy_now(d->g.gpu, d->memory, d->want, d->bytes));
}

static void desk_check(struct desk *d, uint32_t round)
{
    struct rank *rank = d->g.rank;
    GPU_CHECK_OK(&d->g, tutti_cuda_stream_sync(d->g.gpu, d->g.stream));
    RANK_CHECK_OK(rank, tutti_comm_state(rank->comm, NULL));
    GPU_CHECK_OK(&d->g, tutti_cuda_copy_now(d->g.gpu, d->got, d->memory, d->bytes));
    fill(d, round, true);
    for (size_t i = 0; i < d->bytes; i++) {
        if (d->got[i] == d->want[i]) continue;
        rank_fail(rank, __FILE__, __LINE__, "seed %llu, round %u, mode %d: byte %zu of %zu is %u, not %u",
                  (unsigned long long)d->post->seed, round, (int)d->mode, i, d->bytes, d->got[i], d->want[i]);
        return;
    }
}

/* Nothing that is enqueued anywhere waits while memory is given back. */
static void desk_close(struct desk *d)
{
    struct rank *rank = d->g.rank;
    if (rank->failure[0]) return;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    tutti_cuda_free(d->g.gpu, d->memory);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
}

static void replay(struct desk *d)
{
    struct gpu_rank *g = &d->g;
    struct rank *rank = g->rank;
    void *graph = NULL;
    GPU_CHECK_OK(g, tutti_cuda_graph_begin(g->gpu, g->stream));
    make_all(d);
    if (rank->failure[0]) return;
    GPU_CHECK_OK(g, tutti_cuda_graph_end(g->gpu, g->stream, &graph));
    for (uint32_t round = 1; round < 4 && !rank->failure[0]; round++) {
        desk_put(d, round);
        if (round == 2)
            make_all(d);
        else
            GPU_CHECK_OK(g, tutti_cuda_graph_launch(g->gpu, graph, g->stream));
        if (!rank->failure[0]) desk_check(d, round);
    }
    tutti_cuda_graph_destroy(g->gpu, graph);
}

static void exchange(struct gpu_rank *g, const struct post *post)
{
    struct rank *rank = g->rank;
    struct desk d;
    RANK_CHECK(rank, desk_open(g, post, &d));
    desk_put(&d, 0);
    make_all(&d);
    if (!rank->failure[0]) desk_check(&d, 0);
    if (!rank->failure[0] && !gpu_ranks_across((uint32_t)rank->n)) replay(&d);
    desk_close(&d);
}

/* A communicator's first call of NCCL waits for all ranks, of whom a post may leave out some. */
static enum tutti_status make_first(struct gpu_rank *g)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = g->stream;
    return tutti_broadcast(gpu_rank_words(g, 1), 1, TUTTI_UINT32, 0, g->rank->comm, &options, NULL);
}

static void letters(struct rank *rank)
{
    const struct mail *mail = rank->arg;
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    if (gpu_ranks_by_nccl()) RANK_CHECK_OK(rank, make_first(&g));
    for (uint32_t i = 0; i < mail->n && !rank->failure[0]; i++) exchange(&g, &mail->posts[i]);
    gpu_rank_leave(&g);
}

static unsigned run(const char *option, const char *value, uint32_t n, const struct post *posts, uint32_t n_posts)
{
    const struct tutti_option options[] = {{"gpu", gpu_ranks_way(n)}, {option, value}};
    struct mail mail = {posts, n_posts};
    const struct ranks_config config = {
        .n = n, .forked = true, .options = options, .n_options = 2, .deadline_s = gpu_ranks_deadline_s(), .arg = &mail};
    return n <= gpu_ranks_at_most(n) ? ranks_run(&config, letters) : 0;
}

/* Fewer for a rank than a launch holds. */
static void random_letters(void **state)
{
    static const uint32_t worlds[] = {1, 2, 3, 4, 5, 8};
    (void)state;
    for (uint32_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
        if (test_is_sampled() && (w + test_seed()) % 3) continue;
        const uint32_t n_posts = gpu_ranks_times(worlds[w], 20, 3, test_is_sampled() ? 2 : 3),
                       more = gpu_ranks_times(worlds[w], 17, 8, 17);
        struct post posts[20];
        for (uint32_t i = 0; i < n_posts; i++)
            posts[i] = (struct post){.seed = test_seed() + i,
                                     .n = 3 + more * worlds[w] * (i % 3),
                                     .most_bytes = 200000 / (1 + worlds[w]),
                                     .phases = 3};
        assert_int_equal(run(SMALL_SCRATCH, worlds[w], posts, n_posts), 0);
    }
}

/* So few blocks that they have tiles of several sizes. */
static void tiles_of_several_sizes(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= (test_is_sampled() ? 2 : 3); n++) {
        const struct post post = {.seed = test_seed() + n, .n = 12 * n, .most_bytes = 1200000, .phases = 2};
        assert_int_equal(run("gpu_blocks", "4", n, &post, 1), 0);
    }
}

/* More than a launch holds. */
static void many_letters(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 3; n++) {
        const struct post post = {.seed = test_seed() + n, .n = 500, .most_bytes = 9000, .at_once = true};
        assert_int_equal(run(SMALL_SCRATCH, n, &post, 1), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_letters),
        cmocka_unit_test(many_letters),
        cmocka_unit_test(tiles_of_several_sizes),
    };
    gpu_ranks_need_device();
    gpu_ranks_need_two();
    return cmocka_run_group_tests_name("letters", tests, NULL, NULL);
}
