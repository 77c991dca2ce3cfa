/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls on device memory that name a schedule: the contract by every algorithm, graphs that are replayed on other data,
 * the option `algorithm`, and what ends them. */

#include "test.h"

#include "contract/contract.h"
#include "cuda/support/gpu_ranks.h"

#include "algo/algo.h"
#include "backend/cuda/run/cuda_backend.h"
#include "comm/device/staging.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

static const uint32_t worlds[] = {1, 2, 3, 4, 8};
enum { N_WORLDS = sizeof worlds / sizeof worlds[0] };

/* ---- the contract ---- */

struct suite {
    const struct contract_case *cases;
    size_t n, most;      /* elements of a block, at most */
    _Atomic size_t *ran; /* by rank 0, with the algorithm that was named; of each algorithm */
};

/* The case's own algorithm, so that all of them meet all kinds. */
static size_t algorithm_of(const struct contract_case *c)
{
    return (c->seed >> 7) % tutti_n_algorithms;
}

static void run_suite(struct rank *rank)
{
    const struct suite *suite = rank->arg;
    struct contract_memory memory;
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    RANK_CHECK(rank, rank->comm->device && rank->comm->device->n > 0);
    contract_memory_init(&memory, g.gpu, g.stream);
    for (size_t i = 0; i < suite->n && !rank->failure[0]; i++) {
        struct contract_case c = suite->cases[i];
        bool refused = false;
        if (worlds[c.at[RANKS] % N_WORLDS] != (uint32_t)rank->n || contract_sizes[c.at[SIZE]] > suite->most) continue;
        c.memory = &memory;
        c.thrifty = true;
        c.algorithm = tutti_algorithms[algorithm_of(&c)]->name;
        contract_run(rank, &c, &refused);
        if (rank->index == 0 && !refused) ++suite->ran[algorithm_of(&c)];
    }
    if (rank->failure[0]) return;
    RANK_CHECK(rank, atomic_load(&rank->comm->device->staging->enqueued) == 0); /* devices did it all */
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    contract_memory_fini(&memory, rank->comm);
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    gpu_rank_close(&g);
}

static void contract(void **state)
{
    (void)state;
    size_t n;
    _Atomic size_t ran[32] = {0};
    for (uint64_t round = 0; round < 2; round++) {
        struct contract_case *cases = contract_pairs(test_seed() + 71 + round, &n);
        assert_non_null(cases);
        struct suite suite = {.cases = cases, .n = n, .most = gpu_ranks_stand_in() ? 4099 : SIZE_MAX, .ran = ran};
        for (uint32_t w = 0; w < N_WORLDS; w++) {
            struct ranks_config config = {
                .n = worlds[w], .timeout_ns = 100 * TUTTI_NS_PER_S, .deadline_s = 400, .arg = &suite};
            assert_int_equal(ranks_run(&config, run_suite), 0);
        }
        free(cases);
    }
    for (size_t a = 0; a < tutti_n_algorithms; a++) {
        uint32_t n_kinds = 0; /* but for the barrier, which has no memory */
        for (int k = 0; k < TUTTI_N_KINDS; k++) n_kinds += k != TUTTI_BARRIER && tutti_algorithms[a]->kinds[k];
        bool flat = strcmp(tutti_algorithms[a]->name, "hierarchical") != 0; /* there are no levels here */
        if (n_kinds > 0 && flat && ran[a] == 0) fail_msg("nothing ran by %s", tutti_algorithms[a]->name);
    }
}

/* ---- graphs, and the option ---- */
enum { WORDS = 20011, REPLAYS = 1000, REPLAYS_IN_TURNS = 100, REPLAYS_STAND_IN = 12 };

struct data {
    uint32_t *host_in, *host_out, *in, *out;
};

static uint32_t word(uint32_t rank, uint32_t round, size_t i)
{
    return (uint32_t)((i + 1) * UINT32_C(2654435761) ^ (round * 977 + rank) * UINT32_C(40503));
}

static enum tutti_status enqueue(struct gpu_rank *g, const struct data *d, const char *algorithm, enum tutti_op op)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = g->stream;
    options.algorithm = algorithm;
    enum tutti_status status = tutti_gpu_copy(g->gpu, d->in, d->host_in, WORDS * 4, g->stream);
    if (status >= 0) status = tutti_all_reduce(d->in, d->out, WORDS, TUTTI_UINT32, op, g->rank->comm, &options, NULL);
    if (status >= 0) status = tutti_gpu_copy(g->gpu, d->host_out, d->out, WORDS * 4, g->stream);
    return status;
}

static bool data_open(struct gpu_rank *g, struct data *d)
{
    d->host_in = gpu_rank_host_words(g, WORDS), d->host_out = gpu_rank_host_words(g, WORDS);
    d->in = gpu_rank_words(g, WORDS), d->out = gpu_rank_words(g, WORDS);
    return d->host_in && d->host_out && d->in && d->out;
}

static void fill(const struct rank *rank, const struct data *d, uint32_t round)
{
    for (size_t i = 0; i < WORDS; i++) d->host_in[i] = word((uint32_t)rank->index, round, i);
    memset(d->host_out, 0xa5, WORDS * 4);
}

static void compare(struct rank *rank, const struct data *d, uint32_t round, enum tutti_op op)
{
    for (size_t i = 0; i < WORDS; i++) {
        uint32_t want = 0;
        for (uint32_t r = 0; r < (uint32_t)rank->n; r++)
            want = op == TUTTI_BXOR ? want ^ word(r, round, i) : want + word(r, round, i);
        if (d->host_out[i] == want) continue;
        rank_fail(rank, __FILE__, __LINE__, "round %u: word %zu is %x instead of %x", round, i, d->host_out[i], want);
        return;
    }
}

static void close_all(struct gpu_rank *g, struct data *d)
{
    struct rank *rank = g->rank;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    tutti_gpu_free_host(g->gpu, d->host_in), tutti_gpu_free_host(g->gpu, d->host_out);
    tutti_gpu_free(g->gpu, d->in), tutti_gpu_free(g->gpu, d->out);
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    gpu_rank_close(g);
}

/* Two schedules in one graph, the second one first met in the capture; calls in between by what is chosen. */
static void replay(struct rank *rank)
{
    struct gpu_rank g;
    struct data d = {0};
    void *graph = NULL;
    const uint32_t n = gpu_ranks_times((uint32_t)rank->n, REPLAYS, REPLAYS_IN_TURNS, REPLAYS_STAND_IN);
    if (!gpu_rank_open(rank, &g) || !data_open(&g, &d)) return;
    fill(rank, &d, 0);
    GPU_CHECK_OK(&g, enqueue(&g, &d, "ring", TUTTI_SUM));
    GPU_CHECK_OK(&g, tutti_gpu_stream_sync(g.gpu, g.stream));
    compare(rank, &d, 0, TUTTI_SUM);
    GPU_CHECK_OK(&g, tutti_gpu_graph_begin(g.gpu, g.stream));
    GPU_CHECK_OK(&g, enqueue(&g, &d, "ring", TUTTI_SUM));
    GPU_CHECK_OK(&g, enqueue(&g, &d, "direct_two_shot", TUTTI_BXOR));
    GPU_CHECK_OK(&g, tutti_gpu_graph_end(g.gpu, g.stream, &graph));
    for (uint32_t round = 1; round <= n && !rank->failure[0]; round++) {
        bool eager = round % 3 == 0;
        fill(rank, &d, round);
        if (eager)
            GPU_CHECK_OK(&g, enqueue(&g, &d, NULL, TUTTI_BXOR));
        else
            GPU_CHECK_OK(&g, tutti_gpu_graph_launch(g.gpu, graph, g.stream));
        GPU_CHECK_OK(&g, tutti_gpu_stream_sync(g.gpu, g.stream));
        GPU_CHECK_OK(&g, tutti_comm_state(rank->comm, NULL));
        compare(rank, &d, round, TUTTI_BXOR);
    }
    tutti_gpu_graph_destroy(g.gpu, graph);
    if (!rank->failure[0]) close_all(&g, &d);
}

static void graphs(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 3; n++) {
        struct ranks_config config = {.n = n, .forked = true, .deadline_s = 110};
        assert_int_equal(ranks_run(&config, replay), 0);
    }
}

/* What the back end keeps says that the schedule was run. */
static void run_overridden(struct rank *rank)
{
    struct gpu_rank g;
    struct data d = {0};
    if (!gpu_rank_open(rank, &g) || !data_open(&g, &d)) return;
    fill(rank, &d, 1);
    GPU_CHECK_OK(&g, enqueue(&g, &d, NULL, TUTTI_SUM));
    GPU_CHECK_OK(&g, tutti_gpu_stream_sync(g.gpu, g.stream));
    compare(rank, &d, 1, TUTTI_SUM);
    const struct cuda_backend *b = (const struct cuda_backend *)(const void *)rank->comm->device->backends[0];
    RANK_CHECK(rank, b->programs.n == 1);
    GPU_CHECK_OK(&g, tutti_all_gather(
                         d.in, d.out, WORDS / (size_t)rank->n, TUTTI_UINT32, rank->comm,
                         &(struct tutti_call_options){.size = sizeof(struct tutti_call_options), .stream = g.stream},
                         NULL));
    RANK_CHECK(rank, b->programs.n == 1);
    RANK_CHECK(rank, atomic_load(&rank->comm->device->staging->enqueued) == 0);
    close_all(&g, &d);
}

static void the_option(void **state)
{
    (void)state;
    const struct tutti_option options[] = {{"algorithm", "all_reduce=double_tree"}};
    struct ranks_config config = {.n = 3, .options = options, .n_options = 1, .deadline_s = 60};
    assert_int_equal(ranks_run(&config, run_overridden), 0);
}

/* ---- failures ---- */

struct wrong {
    enum tutti_status status;
    const char *says, *other; /* the schedule that rank 1 names; NULL: it does not call */
    bool aborts;
    uint64_t timeout_ns;
};

static void nap_ns(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

static void go_wrong(struct rank *rank)
{
    const struct wrong *wrong = rank->arg;
    struct tutti_error error = {0};
    struct gpu_rank g;
    struct data d = {0};
    if (!gpu_rank_open(rank, &g) || !data_open(&g, &d)) return;
    const char *algorithm = rank->index == 1 ? wrong->other : "ring";
    if (algorithm) GPU_CHECK_OK(&g, enqueue(&g, &d, algorithm, TUTTI_SUM));
    if (!algorithm && wrong->aborts) {
        nap_ns(50000000);
        tutti_comm_abort(rank->comm, "enough of it");
    }
    GPU_CHECK_OK(&g, tutti_gpu_stream_sync(g.gpu, g.stream));
    for (int i = 0; i < 20000 && tutti_comm_state(rank->comm, &error) == TUTTI_OK; i++) nap_ns(1000000);
    if (error.status != wrong->status || !strstr(error.text, wrong->says))
        rank_fail(rank, __FILE__, __LINE__, "\"%s\" instead of \"...%s...\"", error.text, wrong->says);
}

static void failures(void **state)
{
    (void)state;
    static const struct wrong wrongs[] = {
        {TUTTI_ERR_ABORTED, "enough of it", NULL, true, UINT64_C(30000000000)},
        {TUTTI_ERR_TIMEOUT, "rank 1", NULL, false, UINT64_C(1000000000)},
        {TUTTI_ERR_MISMATCH, "all_reduce", "tree", false, UINT64_C(30000000000)},
    };
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        struct wrong wrong = wrongs[i];
        struct ranks_config config = {
            .n = 2, .forked = true, .timeout_ns = wrong.timeout_ns, .deadline_s = 60, .arg = &wrong};
        assert_int_equal(ranks_run(&config, go_wrong), 0);
    }
}

int main(void)
{
    gpu_ranks_need_device();
    const struct CMUnitTest tests[] = {cmocka_unit_test(failures), cmocka_unit_test(graphs),
                                       cmocka_unit_test(the_option), cmocka_unit_test(contract)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
