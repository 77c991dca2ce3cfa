/* SPDX-License-Identifier: BSD-3-Clause */
/* Large calls, by whatever serves them: in windows and out of them, of round lengths and others, at addresses that are
 * aligned or not, many times what rings hold. Every word is compared. Numbers are small and whole, so that sums are
 * exact in any order. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"

#include "comm/call/staging.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 20000003, MOST_STAND_IN = 70001, PAD = 8 };
static const size_t sizes[] = {70001, 1048583, 4194304, MOST};

struct scene {
    struct gpu_rank g;
    struct tutti_call_options options;
    struct tutti_window *windows[2];
    float *in, *out; /* where the call finds them */
    float *host;
    uint32_t round;
};

static float value(const struct scene *s, int32_t rank, size_t i)
{
    return (float)((i * 7 + (i >> 11) * 3 + (size_t)rank * 13 + s->round * 29) % 101);
}

static float sum(const struct scene *s, size_t i)
{
    float all = 0;
    for (int32_t q = 0; q < s->g.rank->n; q++) all += value(s, q, i);
    return all;
}

/* What kinds of calls give: `count` is of a block where there are blocks. */
struct kind {
    const char *name;
    bool blocks, rooted;
    enum tutti_status (*call)(struct scene *s, size_t count, int32_t root);
    float (*want)(const struct scene *s, size_t count, int32_t root, size_t i);
    bool gives_block; /* else as much as all blocks */
};

#define COMM s->g.rank->comm, &s->options, NULL
static enum tutti_status all_reduce(struct scene *s, size_t count, int32_t root)
{
    (void)root;
    return tutti_all_reduce(s->in, s->out, count, TUTTI_FLOAT32, TUTTI_SUM, COMM);
}
static enum tutti_status reduce(struct scene *s, size_t count, int32_t root)
{
    return tutti_reduce(s->in, s->out, count, TUTTI_FLOAT32, TUTTI_SUM, root, COMM);
}
static enum tutti_status broadcast(struct scene *s, size_t count, int32_t root)
{
    if (s->g.rank->index == root)
        TUTTI_TRY(tutti_cuda_copy(s->g.gpu, s->out, s->in, count * sizeof(float), s->g.stream));
    return tutti_broadcast(s->out, count, TUTTI_FLOAT32, root, COMM);
}
static enum tutti_status all_gather(struct scene *s, size_t count, int32_t root)
{
    (void)root;
    return tutti_all_gather(s->in, s->out, count, TUTTI_FLOAT32, COMM);
}
static enum tutti_status reduce_scatter(struct scene *s, size_t count, int32_t root)
{
    (void)root;
    return tutti_reduce_scatter(s->in, s->out, count, TUTTI_FLOAT32, TUTTI_SUM, COMM);
}
static enum tutti_status all_to_all(struct scene *s, size_t count, int32_t root)
{
    (void)root;
    return tutti_all_to_all(s->in, s->out, count, TUTTI_FLOAT32, COMM);
}

static float want_sum(const struct scene *s, size_t count, int32_t root, size_t i)
{
    (void)count, (void)root;
    return sum(s, i);
}
static float want_roots(const struct scene *s, size_t count, int32_t root, size_t i)
{
    (void)count;
    return value(s, root, i);
}
static float want_theirs(const struct scene *s, size_t count, int32_t root, size_t i)
{
    (void)root;
    return value(s, (int32_t)(i / count), i % count);
}
static float want_my_sum(const struct scene *s, size_t count, int32_t root, size_t i)
{
    (void)root;
    return sum(s, (size_t)s->g.rank->index * count + i);
}
static float want_for_me(const struct scene *s, size_t count, int32_t root, size_t i)
{
    (void)root;
    return value(s, (int32_t)(i / count), (size_t)s->g.rank->index * count + i % count);
}

static const struct kind kinds[] = {
    {"all_reduce", false, false, all_reduce, want_sum, false},
    {"reduce", false, true, reduce, want_sum, false},
    {"broadcast", false, true, broadcast, want_roots, false},
    {"all_gather", true, false, all_gather, want_theirs, false},
    {"reduce_scatter", true, false, reduce_scatter, want_my_sum, true},
    {"all_to_all", true, false, all_to_all, want_for_me, false},
};

static void try_kind(struct scene *s, const struct kind *kind, size_t words)
{
    struct gpu_rank *g = &s->g;
    size_t n = (size_t)g->rank->n, count = kind->blocks ? words / n : words;
    size_t given = kind->gives_block ? count : kind->blocks ? count * n : count;
    int32_t root = (int32_t)(s->round % n);
    for (size_t i = 0; i < words; i++) s->host[i] = value(s, g->rank->index, i);
    GPU_CHECK_OK(g, tutti_cuda_copy_now(g->gpu, s->in, s->host, words * sizeof(float)));
    GPU_CHECK_OK(g, tutti_cuda_set(g->gpu, s->out, 0x55, given * sizeof(float)));
    GPU_CHECK_OK(g, kind->call(s, count, root));
    GPU_CHECK_OK(g, tutti_cuda_stream_sync(g->gpu, g->stream));
    GPU_CHECK_OK(g, tutti_comm_state(g->rank->comm, NULL));
    if (kind->call == reduce && g->rank->index != root) return;
    GPU_CHECK_OK(g, tutti_cuda_copy_now(g->gpu, s->host, s->out, given * sizeof(float)));
    for (size_t i = 0; i < given; i++) {
        float want = kind->want(s, count, root, i);
        if (s->host[i] == want) continue;
        rank_fail(g->rank, __FILE__, __LINE__, "%s of %zu, round %u: word %zu is %g instead of %g", kind->name, count,
                  s->round, i, (double)s->host[i], (double)want);
        return;
    }
}

static void try_all(struct scene *s, float *in, float *out, size_t most)
{
    struct rank *rank = s->g.rank;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (size_t z = 0; z < sizeof sizes / sizeof *sizes && sizes[z] <= most; z++) {
            size_t off = z % 3 == 1 ? 1 : 0;
            s->in = in + off, s->out = out + (z % 3 == 2 ? PAD : off);
            try_kind(s, &kinds[k], sizes[z]);
            s->round++;
            if (rank->failure[0]) return;
        }
    }
}

/* Told to, calls through the host are cut into pieces. */
static void check_pieces(struct rank *rank)
{
    const struct tutti_staging *staging = rank->comm->device->staging;
    const uint32_t n_calls = atomic_load(&staging->enqueued);
    if (!getenv("TUTTI_GPU_PIECE") || !gpu_ranks_across((uint32_t)rank->n)) return;
    if (n_calls == 0 || staging->n_pieces < 8 * n_calls)
        rank_fail(rank, __FILE__, __LINE__, "%u pieces of %u calls", staging->n_pieces, n_calls);
}

static void run(struct rank *rank)
{
    struct scene s = {.options = TUTTI_CALL_OPTIONS_INIT};
    size_t most = gpu_ranks_stand_in() ? MOST_STAND_IN : MOST, bytes = (most + PAD) * sizeof(float);
    void *plain[2] = {NULL, NULL}, *mapped[2] = {NULL, NULL};
    const bool windows = !gpu_ranks_across((uint32_t)rank->n);
    if (!gpu_rank_open(rank, &s.g)) return;
    s.options.stream = s.g.stream;
    s.host = rank_alloc(rank, bytes);
    for (int i = 0; i < 2; i++) {
        RANK_CHECK_OK(rank, tutti_cuda_alloc(s.g.gpu, bytes, &plain[i]));
        RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, bytes, &mapped[i]));
        if (windows) RANK_CHECK_OK(rank, tutti_window_create(rank->comm, mapped[i], bytes, NULL, &s.windows[i]));
    }
    try_all(&s, plain[0], plain[1], most);
    if (!rank->failure[0]) try_all(&s, mapped[0], mapped[1], most);
    check_pieces(rank);
    if (rank->failure[0]) return;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    for (int i = 0; i < 2; i++) tutti_window_destroy(s.windows[i]);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    for (int i = 0; i < 2; i++) {
        tutti_cuda_free(s.g.gpu, plain[i]);
        RANK_CHECK_OK(rank, tutti_mem_free(rank->comm, mapped[i]));
    }
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    gpu_rank_close(&s.g);
}

static void large_calls(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 4; n++) {
        struct ranks_config config = {.n = n, .forked = true, .deadline_s = 110};
        assert_int_equal(ranks_run(&config, run), 0);
    }
}

int main(void)
{
    gpu_ranks_need_device();
    const struct CMUnitTest tests[] = {cmocka_unit_test(large_calls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
