/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of more than 2^32 bytes, and of more than 2^32 in all: what is around these places, at both ends and at random
 * ones is compared; in between lies one byte. By what is chosen, and by what serves windows alone. Where a device has
 * less memory, and on the stand-in, the same of 2^21. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"

#include <string.h>

enum { PLACES = 8, LENGTH = 96 };
#define NEEDED (UINT64_C(40) << 30) /* bytes of a device, which two ranks may share */

/* Collectives that name a method go by it or fail. */
static struct way {
    const char *algorithm; /* NULL: chosen */
    bool in_window;
    bool reduce_scatters; /* by the method, too */
} ways[] = {{NULL, false, true}, {"cuda:direct", true, false}, {"cuda:engines", true, true}};

struct scene {
    struct gpu_rank g;
    const struct way *way;
    struct tutti_window *window; /* over what goes out; NULL: ordinary memory */
    size_t unit, bytes;          /* 2^32, and somewhat more */
    size_t places[PLACES];
    unsigned char *in, *out;
    struct tutti_call_options options;
};

static unsigned char plain(int32_t rank)
{
    return (unsigned char)(3 + 5 * rank);
}

/* What rank has at `at`, counted from the beginning of its data. */
static unsigned char value(const struct scene *s, int32_t rank, size_t at)
{
    for (int p = 0; p < PLACES; p++)
        if (at >= s->places[p] && at - s->places[p] < LENGTH)
            return (unsigned char)((at * 37 + (size_t)rank * 101 + (at >> 9)) ^ (size_t)p);
    return plain(rank);
}

static void give(struct scene *s)
{
    struct gpu_rank *g = &s->g;
    unsigned char piece[LENGTH];
    GPU_CHECK_OK(g, tutti_cuda_set(g->gpu, s->in, plain(g->rank->index), s->bytes));
    for (int p = 0; p < PLACES; p++) {
        for (size_t i = 0; i < LENGTH; i++) piece[i] = value(s, g->rank->index, s->places[p] + i);
        GPU_CHECK_OK(g, tutti_cuda_copy_now(g->gpu, s->in + s->places[p], piece, LENGTH));
    }
}

/* The places of `bytes` of out from `begin` on, and what is right around them; `of`: of one rank, -1: the sum of all.
 */
static void check(struct scene *s, size_t begin, size_t from, size_t bytes, int32_t of)
{
    struct gpu_rank *g = &s->g;
    unsigned char piece[3 * LENGTH];
    for (int p = 0; p < PLACES; p++) {
        size_t low = s->places[p] > from + LENGTH ? s->places[p] - LENGTH : from, high = s->places[p] + 2 * LENGTH;
        if (high > from + bytes) high = from + bytes;
        if (low >= high) continue;
        GPU_CHECK_OK(g, tutti_cuda_copy_now(g->gpu, piece, s->out + begin + (low - from), high - low));
        for (size_t at = low; at < high; at++) {
            unsigned char want = of >= 0 ? value(s, of, at) : 0;
            for (int32_t r = 0; of < 0 && r < g->rank->n; r++) want = (unsigned char)(want + value(s, r, at));
            if (piece[at - low] == want) continue;
            rank_fail(g->rank, __FILE__, __LINE__, "byte %zu of %zu (rank %d): %u instead of %u", at, bytes, (int)of,
                      piece[at - low], want);
            return;
        }
    }
}

static void done(struct scene *s, enum tutti_status status)
{
    GPU_CHECK_OK(&s->g, status);
    GPU_CHECK_OK(&s->g, tutti_cuda_stream_sync(s->g.gpu, s->g.stream));
}

static void reductions(struct scene *s)
{
    struct rank *rank = s->g.rank;
    struct tutti_call_options options = s->options;
    size_t block = s->bytes / (size_t)rank->n, own = (size_t)rank->index * block;
    done(s, tutti_all_reduce(s->in, s->out, s->bytes, TUTTI_UINT8, TUTTI_SUM, rank->comm, &options, NULL));
    check(s, 0, 0, s->bytes, -1);
    if (!s->way->reduce_scatters) options.algorithm = NULL;
    done(s, tutti_reduce_scatter(s->in, s->out, block, TUTTI_UINT8, TUTTI_SUM, rank->comm, &options, NULL));
    check(s, 0, own, block, -1);
}

static void moves(struct scene *s)
{
    struct gpu_rank *g = &s->g;
    struct tutti_comm *comm = g->rank->comm;
    int32_t n = g->rank->n, me = g->rank->index, next = (me + 1) % n, last = (me + n - 1) % n;
    size_t block = s->bytes / (size_t)n; /* the blocks of all are more than 2^32 */
    done(s, tutti_cuda_copy(g->gpu, s->out, s->in, me == n - 1 ? s->bytes : 0, g->stream));
    done(s, tutti_broadcast(s->out, s->bytes, TUTTI_UINT8, n - 1, comm, &s->options, NULL));
    check(s, 0, 0, s->bytes, n - 1);
    done(s, tutti_all_gather(s->in, s->out, block, TUTTI_UINT8, comm, &s->options, NULL));
    for (int32_t r = 0; r < n; r++) check(s, (size_t)r * block, 0, block, r);
    done(s, tutti_all_to_all(s->in, s->out, block, TUTTI_UINT8, comm, &s->options, NULL));
    for (int32_t r = 0; r < n; r++) check(s, (size_t)r * block, (size_t)me * block, block, r);
    s->options.algorithm = NULL; /* messages have none */
    done(s, tutti_sendrecv(s->in, s->bytes, next, 0, s->out, s->bytes, last, 0, TUTTI_UINT8, comm, &s->options, NULL,
                           NULL));
    check(s, 0, 0, s->bytes, last);
    GPU_CHECK_OK(g, tutti_comm_state(comm, NULL));
}

/* Whether all ranks' devices have room for it. */
static bool is_roomy(struct rank *rank, int32_t device)
{
    struct tutti_device_facts facts = {.memory_bytes = 0};
    int32_t mine = 0, all = 0;
    mine = tutti_cuda_facts(device, &facts) == TUTTI_OK && facts.memory_bytes >= NEEDED && !gpu_ranks_stand_in();
    return tutti_all_reduce(&mine, &all, 1, TUTTI_INT32, TUTTI_MIN, rank->comm, NULL, NULL) == TUTTI_OK && all;
}

static void open_memory(struct scene *s)
{
    struct rank *rank = s->g.rank;
    void *in = NULL, *out = NULL;
    RANK_CHECK_OK(rank, tutti_cuda_alloc(s->g.gpu, s->bytes, &in));
    if (s->way->in_window) {
        RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, s->bytes, &out));
        RANK_CHECK_OK(rank, tutti_window_create(rank->comm, out, s->bytes, NULL, &s->window));
    } else {
        RANK_CHECK_OK(rank, tutti_cuda_alloc(s->g.gpu, s->bytes, &out));
    }
    s->in = in, s->out = out;
}

static void close_memory(struct scene *s)
{
    struct rank *rank = s->g.rank;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    tutti_cuda_free(s->g.gpu, s->in);
    if (s->window) {
        tutti_window_destroy(s->window);
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
        RANK_CHECK_OK(rank, tutti_mem_free(rank->comm, s->out));
    } else {
        tutti_cuda_free(s->g.gpu, s->out);
    }
}

static void run(struct rank *rank)
{
    struct scene s = {.options = TUTTI_CALL_OPTIONS_INIT};
    const struct way *way = rank->arg;
    if (!gpu_rank_open(rank, &s.g)) return;
    s.way = way;
    s.options.stream = s.g.stream;
    s.options.algorithm = way->algorithm;
    s.unit = is_roomy(rank, s.g.gpu->ordinal) ? (size_t)1 << 32 : (size_t)1 << 21;
    s.bytes = s.unit + 4 * (way->in_window ? 1024 : 1031); /* copy engines serve whole shards */
    const size_t places[PLACES] = {0,          s.unit / 4 - 7,      s.unit / 2 - 40, s.unit / 2 + 3000,
                                   s.unit - 8, s.unit - 5 * LENGTH, s.unit + 1001,   s.bytes - LENGTH};
    memcpy(s.places, places, sizeof places);
    open_memory(&s);
    if (!rank->failure[0]) give(&s);
    if (!rank->failure[0]) reductions(&s);
    if (!rank->failure[0]) moves(&s);
    if (rank->failure[0]) return;
    close_memory(&s);
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    gpu_rank_close(&s.g);
}

static void run_way(size_t i)
{
    struct ranks_config config = {.n = 2, .forked = true, .deadline_s = 100, .arg = &ways[i]};
    assert_int_equal(ranks_run(&config, run), 0);
}

static void ordinary_memory(void **state)
{
    (void)state;
    run_way(0);
}

static void windows(void **state)
{
    (void)state;
    for (size_t i = 1; i < TUTTI_ARRAY_LEN(ways); i++)
        if (!test_is_sampled() || (i + test_seed()) % 2) run_way(i);
}

int main(void)
{
    setenv("TUTTI_STANDIN_SMS", "128", 0); /* calls take as many blocks as on devices */
    gpu_ranks_need_device();
    const struct CMUnitTest tests[] = {cmocka_unit_test(ordinary_memory), cmocka_unit_test(windows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
