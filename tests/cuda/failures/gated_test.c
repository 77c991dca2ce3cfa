/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that devices carry out, of a communicator that survives: of every kind, type and operation, in place and not,
 * many in flight on two streams, with work behind each, while a rank is killed at a random moment. What was behind a
 * call on its stream saw the fold of its contributors, who are the same on all; inputs were intact until then, and
 * buffers belong to their user afterwards, who overwrites them. */
#include "test.h"

#include "cuda/support/gpu_ranks.h"
#include "reference.h"
#include "sched/kind.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 4, CALLS = 40, TURNS = 2, ALL = CALLS * TURNS };

/* What all processes see: a digest of each call's contributors and common result by rank; 0: it did not end. */
static struct board {
    uint64_t digests[ALL][MOST];
    uint64_t seed;
    bool dies; /* else all live */
} * board;

struct call {
    enum tutti_kind kind;
    enum tutti_dtype dtype;
    enum tutti_op op;
    int32_t root;
    size_t count, n_in, n_out; /* elements; what is sent, what comes */
    bool in_place;
    uint64_t seed;
    unsigned char *in, *out, *seen; /* device memory; a copy that the stream makes behind the call */
    struct tutti_work *work;
};

static void *killer(void *arg)
{
    tutti_sleep_ns(*(const uint64_t *)arg);
    kill(getpid(), SIGKILL);
    return NULL;
}

static uint64_t draw(uint64_t *seed, uint64_t below)
{
    return tutti_random64(seed) % below;
}

/* All ranks draw the same. */
static void call_draw(struct call *c, const struct rank *rank, uint64_t *seed)
{
    static const enum tutti_kind kinds[] = {TUTTI_ALL_REDUCE, TUTTI_ALL_REDUCE, TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER,
                                            TUTTI_ALL_GATHER, TUTTI_BROADCAST,  TUTTI_REDUCE,     TUTTI_GATHER};
    static const size_t few[] = {1, 2, 7, 64, 300, 1025, 5000}, many[] = {1, 3, 500, 4097, 9000, 20000};
    const size_t n = (size_t)rank->n;
    *c = (struct call){.kind = kinds[draw(seed, TUTTI_ARRAY_LEN(kinds))], .root = (int32_t)draw(seed, n)};
    do {
        c->dtype = (enum tutti_dtype)draw(seed, TUTTI_N_DTYPES);
        c->op = (enum tutti_op)draw(seed, TUTTI_N_OPS);
    } while (!ref_defined(c->dtype, c->op) || c->op == TUTTI_PREMUL_SUM);
    c->count = gpu_ranks_stand_in() ? few[draw(seed, TUTTI_ARRAY_LEN(few))] : many[draw(seed, TUTTI_ARRAY_LEN(many))];
    c->in_place = draw(seed, 2) && c->kind != TUTTI_GATHER && c->kind != TUTTI_REDUCE;
    c->seed = tutti_random64(seed);
    c->n_in = c->count * (c->kind == TUTTI_REDUCE_SCATTER ? n : 1);
    c->n_out = c->count * (c->kind == TUTTI_ALL_GATHER || c->kind == TUTTI_GATHER ? n : 1);
}

static void input_of(const struct call *c, const struct rank *rank, int32_t of, void *out)
{
    ref_fill_exact(c->dtype, c->op, c->seed, (size_t)of, (size_t)rank->n, out, c->n_in);
}

/* Memory of the call, whose output a call in place has within its input, or the other way round. */
static bool call_open(struct gpu_rank *g, struct call *c, void *stream)
{
    const size_t each = ref_bytes(c->dtype), me = (size_t)g->rank->index;
    const size_t words = (c->count * MOST * each + 3) / 4 + 4;
    unsigned char *host = (unsigned char *)gpu_rank_host_words(g, words);
    c->in = (unsigned char *)gpu_rank_words(g, words), c->seen = (unsigned char *)gpu_rank_words(g, words);
    c->out = c->in_place || c->kind == TUTTI_BROADCAST ? c->in : (unsigned char *)gpu_rank_words(g, words);
    if (g->rank->failure[0]) return false;
    if (c->in_place && c->kind == TUTTI_REDUCE_SCATTER) c->out = c->in + me * c->count * each;
    if (c->in_place && c->kind == TUTTI_ALL_GATHER) c->in = c->out + me * c->count * each;
    input_of(c, g->rank, (int32_t)me, host);
    return tutti_cuda_copy(g->gpu, c->in, host, c->n_in * each, stream) >= 0;
}

static enum tutti_status call_make(struct call *c, struct tutti_comm *comm, void *stream)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = stream;
    switch (c->kind) {
    case TUTTI_ALL_REDUCE:
        return tutti_all_reduce(c->in, c->out, c->count, c->dtype, c->op, comm, &options, &c->work);
    case TUTTI_REDUCE_SCATTER:
        return tutti_reduce_scatter(c->in, c->out, c->count, c->dtype, c->op, comm, &options, &c->work);
    case TUTTI_ALL_GATHER:
        return tutti_all_gather(c->in, c->out, c->count, c->dtype, comm, &options, &c->work);
    case TUTTI_BROADCAST:
        return tutti_broadcast(c->out, c->count, c->dtype, c->root, comm, &options, &c->work);
    case TUTTI_REDUCE:
        return tutti_reduce(c->in, c->out, c->count, c->dtype, c->op, c->root, comm, &options, &c->work);
    default:
        return tutti_gather(c->in, c->out, c->count, c->dtype, c->root, comm, &options, &c->work);
    }
}

/* What the rank must have, of these contributors. False: nothing is defined here. */
static bool expect(struct rank *rank, const struct call *c, const int32_t *set, size_t n_set, unsigned char *want)
{
    const size_t each = ref_bytes(c->dtype), me = (size_t)rank->index;
    const void *inputs[MOST];
    for (size_t k = 0; k < n_set; k++) {
        void *input = rank_alloc(rank, c->n_in * each + 16);
        input_of(c, rank, set[k], input);
        inputs[k] = input;
    }
    if (c->kind == TUTTI_ALL_REDUCE || c->kind == TUTTI_REDUCE_SCATTER || c->kind == TUTTI_REDUCE) {
        unsigned char *all = rank_alloc(rank, c->n_in * each + 16);
        ref_reduce(c->dtype, c->op, inputs, n_set, c->n_in, NULL, all);
        memcpy(want, all + (c->kind == TUTTI_REDUCE_SCATTER ? me * c->count * each : 0), c->count * each);
        return c->kind != TUTTI_REDUCE || rank->index == c->root;
    }
    memset(want, 0, c->n_out * each);
    for (size_t k = 0; k < n_set; k++) {
        if (c->kind == TUTTI_BROADCAST && set[k] == c->root) memcpy(want, inputs[k], c->count * each);
        if (c->kind != TUTTI_BROADCAST) memcpy(want + (size_t)set[k] * c->count * each, inputs[k], c->count * each);
    }
    return c->kind != TUTTI_GATHER || rank->index == c->root;
}

static bool has(const int32_t *set, size_t n, int32_t rank)
{
    for (size_t k = 0; k < n; k++)
        if (set[k] == rank) return true;
    return false;
}

static void call_check(struct gpu_rank *g, struct tutti_comm *comm, struct call *c, uint64_t *digest)
{
    struct rank *rank = g->rank;
    const size_t each = ref_bytes(c->dtype);
    unsigned char *got = rank_alloc(rank, c->n_out * each + 16), *want = rank_alloc(rank, c->n_out * each + 16);
    int32_t set[MOST];
    size_t n = 0, where = 0;
    const enum tutti_status status = tutti_work_wait(c->work, 0);
    RANK_CHECK_OK(rank, tutti_work_contributors(c->work, comm, set, MOST, &n));
    tutti_work_free(c->work);
    RANK_CHECK(rank, has(set, n, rank->index));
    *digest = tutti_hash64(set, n * sizeof(set[0]), 1) | 1;
    if (tutti_kind_info(c->kind)->rooted && !has(set, n, c->root)) {
        RANK_CHECK(rank, status == TUTTI_ERR_PEER_DEAD);
        return;
    }
    RANK_CHECK_OK(rank, status);
    GPU_CHECK_OK(g, tutti_cuda_copy_now(g->gpu, got, c->seen, c->n_out * each));
    if (!expect(rank, c, set, n, want) || ref_equal(c->dtype, got, want, c->n_out, &where)) return;
    rank_fail(rank, __FILE__, __LINE__, "%s of %zu %s %s%s of %zu contributors: element %zu is wrong",
              tutti_kind_name(c->kind), c->count, tutti_dtype_name(c->dtype),
              tutti_kind_info(c->kind)->reduces ? tutti_op_name(c->op) : "", c->in_place ? " in place" : "", n, where);
}

static struct tutti_comm *open_all(struct rank *rank, struct gpu_rank *g)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    struct tutti_comm *comm = NULL;
    config.rank = rank->index, config.n_ranks = rank->n, config.name = rank->name, config.survive = 1;
    config.timeout_ns = 60 * TUTTI_NS_PER_S;
    if (!gpu_rank_open(rank, g)) return NULL;
    config.device = g->gpu->ordinal;
    if (tutti_comm_create(rank->context, &config, &comm) == TUTTI_OK) return comm;
    rank_fail(rank, __FILE__, __LINE__, "%s", tutti_last_error()->text);
    return NULL;
}

static void turn(struct gpu_rank *g, struct tutti_comm *comm, struct call *calls, void *const streams[2],
                 uint64_t *seed, uint64_t (*digests)[MOST])
{
    struct rank *rank = g->rank;
    const uint32_t *garbage = gpu_rank_words(g, (1 << 20) + 16);
    for (size_t k = 0; k < CALLS; k++) {
        call_draw(&calls[k], rank, seed);
        RANK_CHECK(rank, call_open(g, &calls[k], streams[k % 3 == 0]));
    }
    for (size_t k = 0; k < CALLS; k++) {
        struct call *c = &calls[k];
        const size_t each = ref_bytes(c->dtype);
        void *stream = streams[k % 3 == 0];
        RANK_CHECK_OK(rank, call_make(c, comm, stream));
        GPU_CHECK_OK(g, tutti_cuda_copy(g->gpu, c->seen, c->out, c->n_out * each, stream));
        GPU_CHECK_OK(g, tutti_cuda_copy(g->gpu, c->in, garbage, c->n_in * each, stream));
    }
    for (size_t k = 0; k < 2; k++) GPU_CHECK_OK(g, tutti_cuda_stream_sync(g->gpu, streams[k]));
    for (size_t k = 0; k < CALLS && !rank->failure[0]; k++) call_check(g, comm, &calls[k], &digests[k][rank->index]);
}

static void killed(struct rank *rank)
{
    struct gpu_rank g;
    struct tutti_comm *comm = open_all(rank, &g);
    uint64_t seed = board->seed, dies_ns;
    const int32_t victim = (int32_t)draw(&seed, (uint64_t)rank->n);
    static struct call calls[CALLS];
    uint32_t first = 1, *one;
    pthread_t thread;
    if (!comm || !(one = gpu_rank_words(&g, 4))) return;
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    void *streams[2] = {g.stream, NULL};
    GPU_CHECK_OK(&g, tutti_cuda_stream_create(g.gpu, &streams[1]));
    options.stream = g.stream;
    /* The devices' own communicator is made behind the first call, most times before the blow. */
    GPU_CHECK_OK(&g, tutti_cuda_copy_now(g.gpu, one, &first, sizeof(first)));
    RANK_CHECK_OK(rank, tutti_all_reduce(one, one, 1, TUTTI_UINT32, TUTTI_SUM, comm, &options, NULL));
    if (draw(&seed, 4)) RANK_CHECK_OK(rank, tutti_barrier(comm, NULL, NULL));
    dies_ns = draw(&seed, (gpu_ranks_stand_in() ? 150 : 40) * TUTTI_NS_PER_MS);
    if (board->dies && rank->index == victim && victim > 0)
        RANK_CHECK(rank, pthread_create(&thread, NULL, killer, &dies_ns) == 0);
    for (size_t t = 0; t < TURNS && !rank->failure[0]; t++)
        turn(&g, comm, calls, streams, &seed, &board->digests[t * CALLS]);
    if (rank->failure[0]) return;
    RANK_CHECK_OK(rank, tutti_barrier(comm, NULL, NULL));
    tutti_comm_destroy(comm);
    tutti_cuda_stream_destroy(g.gpu, streams[1]);
    gpu_rank_close(&g);
}

static void deaths(void **state)
{
    const char *more = getenv("SURVIVE_SEEDS");
    const uint64_t first = test_seed(), n = more ? strtoull(more, NULL, 10) : 8;
    (void)state;
    for (uint64_t k = 0; k < n; k++) {
        const uint32_t size = 2 + (uint32_t)((first + k) % (MOST - 1));
        memset(board, 0, sizeof(*board));
        board->seed = first + k;
        board->dies = k > 0;
        struct ranks_config config = {.n = size,
                                      .forked = true,
                                      .no_comm = true,
                                      .deadline_s = 120,
                                      .may_die = board->dies ? (UINT64_C(1) << size) - 2 : 0};
        if (ranks_run(&config, killed) != 0) fail_msg("seed %llu", (unsigned long long)(first + k));
        for (uint32_t call = 0; call < ALL; call++)
            for (uint32_t r = 1; r < size; r++)
                if (board->digests[ALL - 1][r] && board->digests[call][r] != board->digests[call][0])
                    fail_msg("seed %llu: ranks 0 and %u differ in call %u", (unsigned long long)(first + k), r, call);
    }
}

int main(void)
{
    gpu_ranks_need_device();
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(deaths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
