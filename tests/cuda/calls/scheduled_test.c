/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedules on device memory: the contract of the public calls, by algorithms of the table and by users' files, which
 * go past the host but for what the device has no kernels for; a file that is wrong is refused on every rank, and
 * ranks that name different algorithms are told; a capture is replayed on new data. */

#include "test.h"

#include "contract/contract.h"
#include "cuda/support/gpu_ranks.h"
#include "own_folder.h"

#include "comm/call/staging.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4099, WORDS = 1031 };

static char c_file[PATH_MAX], python_file[PATH_MAX], wrong_file[PATH_MAX];

/* What only a user has: all kinds of buffers, exchanges in place, sides, several chunks a message. Each rank sends its
 * whole block to each, and folds from the last to the first. `last` is the step that the wrong one forgets. */
#define FOLD(last)                                                                                                     \
    "#include <tutti/schedule.h>\n"                                                                                    \
    "TUTTI_COLLECTIVE(TUTTI_ALL_REDUCE, \"mine\", 0, 3, 3 * shape->size, 1)\n"                                         \
    "{\n"                                                                                                              \
    "    uint32_t p = shape->size, me = shape->slot;\n"                                                                \
    "    (void)round;\n"                                                                                               \
    "    tutti_emit_copy(emit, TUTTI_SCRATCH, 3 * me, TUTTI_DATA, 0, 3);\n"                                            \
    "    for (uint32_t i = 1; i < p; i++) {\n"                                                                         \
    "        tutti_emit_send(emit, (me + i) % p, TUTTI_SCRATCH, 3 * me, 3);\n"                                         \
    "        tutti_emit_recv(emit, (me + p - i) % p, TUTTI_SCRATCH, (me + p - i) % p * 3, 3);\n"                       \
    "    }\n"                                                                                                          \
    "    tutti_emit_copy(emit, TUTTI_DATA, 0, TUTTI_SCRATCH, 3 * (p - 1), 3);\n"                                       \
    "    for (uint32_t s = p - 1; s-- > " last ";)\n"                                                                  \
    "        tutti_emit_reduce(emit, TUTTI_DATA, 0, TUTTI_SCRATCH, 3 * s, 3, TUTTI_LEFT);\n"                           \
    "}\n"
/* Neighbours swap what they have in place: what comes has no place before what is there has gone. */
#define PYTHON                                                                                                         \
    "import tutti\n"                                                                                                   \
    "@tutti.algorithm('all_reduce', chunks=2)\n"                                                                       \
    "def swaps(rank):\n"                                                                                               \
    "    p, me = rank.size, rank.slot\n"                                                                               \
    "    if p == 1:\n"                                                                                                 \
    "        return\n"                                                                                                 \
    "    if me > 0:\n"                                                                                                 \
    "        rank.send(0, 0, 2)\n"                                                                                     \
    "        rank.recv(0, 0, 2)\n"                                                                                     \
    "    else:\n"                                                                                                      \
    "        for other in range(1, p):\n"                                                                              \
    "            rank.recv_reduce(other, 0, 2)\n"                                                                      \
    "        for other in range(1, p):\n"                                                                              \
    "            rank.send(other, 0, 2)\n"

static const char *const algorithms[] = {"ring",     "halving_doubling", "tree", "bruck",    "direct",
                                         "pairwise", "dissemination",    c_file, python_file};

/* ---- the contract ---- */

struct suite {
    const struct contract_case *cases;
    size_t n;
    _Atomic size_t ran, past; /* by rank 0: cases that were carried out; and not through the host */
};

static uint64_t staged(const struct rank *rank)
{
    return atomic_load(&rank->comm->device->staging->enqueued);
}

static void run_suite(struct rank *rank)
{
    struct suite *suite = rank->arg;
    struct contract_memory memory;
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    contract_memory_init(&memory, g.gpu, g.stream);
    for (size_t i = 0; i < suite->n && !rank->failure[0]; i++) {
        struct contract_case c = suite->cases[i];
        bool refused = false;
        if (contract_sizes[c.at[SIZE]] > MOST || strcmp(contract_call_name(&c), "sendrecv") == 0) continue;
        if (test_is_sampled() && (i / TUTTI_ARRAY_LEN(algorithms)) % 3 != (uint32_t)rank->n - 2) continue;
        const uint64_t before = staged(rank);
        c.algorithm = algorithms[i % TUTTI_ARRAY_LEN(algorithms)];
        c.memory = &memory;
        contract_run(rank, &c, &refused);
        if (rank->index > 0 || refused) continue;
        suite->ran++;
        suite->past += staged(rank) == before;
        const bool narrow = c.at[OP] == TUTTI_AVG && tutti_dtype_bytes((enum tutti_dtype)c.at[DTYPE]) < 4;
        RANK_CHECK(rank, staged(rank) == before || narrow);
    }
    if (rank->failure[0]) return;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    contract_memory_fini(&memory, rank->comm);
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    gpu_rank_close(&g);
}

static void contract(void **state)
{
    (void)state;
    struct suite suite = {0};
    struct contract_case *cases = contract_pairs(test_seed() + 91, &suite.n);
    assert_non_null(cases);
    suite.cases = cases;
    for (uint32_t n = 2; n <= 4; n++) {
        struct ranks_config config = {.n = gpu_ranks_at_most(n), .timeout_ns = UINT64_C(100000000000), .arg = &suite};
        config.deadline_s = gpu_ranks_deadline_s();
        assert_int_equal(ranks_run(&config, run_suite), 0);
    }
    print_message("%zu of %zu cases past the host\n", suite.past, suite.ran);
    assert_true(suite.ran >= 30 && suite.past > suite.ran * 3 / 4);
    free(cases);
}

/* ---- files that are wrong, ranks that differ ---- */

static enum tutti_status all_reduce(struct gpu_rank *g, const char *algorithm, uint32_t *data)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.algorithm = algorithm, options.stream = g->stream;
    return tutti_all_reduce(data, data, WORDS, TUTTI_UINT32, TUTTI_SUM, g->rank->comm, &options, NULL);
}

static void wrong(struct rank *rank)
{
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *data = gpu_rank_words(&g, WORDS);
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "algorithm mine is refused: mine all_reduce, size",
                     all_reduce(&g, wrong_file, data));
    GPU_CHECK_OK(&g, all_reduce(&g, c_file, data)); /* nothing was started */
    GPU_CHECK_OK(&g, tutti_cuda_stream_sync(g.gpu, g.stream));
    tutti_cuda_free(g.gpu, data);
    gpu_rank_leave(&g);
}

static void differ(struct rank *rank)
{
    struct gpu_rank g;
    struct tutti_error error;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *data = gpu_rank_words(&g, WORDS);
    (void)tutti_barrier(rank->comm, NULL, NULL);
    (void)all_reduce(&g, rank->index ? "ring" : c_file, data); /* others may have been told already */
    while (tutti_comm_state(rank->comm, &error) >= 0) tutti_sleep_ns(1000000);
    RANK_CHECK(rank, error.status == TUTTI_ERR_MISMATCH && strstr(error.text, "called all_reduce(uint32, 1031 elem"));
}

static void refusals(void **state)
{
    (void)state;
    struct ranks_config config = {.n = gpu_ranks_at_most(3), .forked = true, .timeout_ns = UINT64_C(60000000000)};
    config.deadline_s = gpu_ranks_deadline_s();
    assert_int_equal(ranks_run(&config, wrong), 0);
    assert_int_equal(ranks_run(&config, differ), 0);
}

/* ---- captures ---- */

static void replay(struct rank *rank)
{
    struct gpu_rank g;
    void *graph = NULL;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *data = gpu_rank_words(&g, WORDS), *host = gpu_rank_host_words(&g, WORDS);
    GPU_CHECK_OK(&g, all_reduce(&g, python_file, data));
    GPU_CHECK_OK(&g, tutti_cuda_stream_sync(g.gpu, g.stream));
    GPU_CHECK_OK(&g, tutti_cuda_graph_begin(g.gpu, g.stream));
    GPU_CHECK_OK(&g, all_reduce(&g, python_file, data));
    GPU_CHECK_OK(&g, all_reduce(&g, "ring", data));
    GPU_CHECK_OK(&g, tutti_cuda_graph_end(g.gpu, g.stream, &graph));
    const uint32_t n = (uint32_t)rank->n;
    for (uint32_t round = 0; round < 5 && !rank->failure[0]; round++) {
        for (uint32_t i = 0; i < WORDS; i++) host[i] = (uint32_t)rank->index * 7 + i + round * 1000;
        GPU_CHECK_OK(&g, tutti_cuda_copy(g.gpu, data, host, WORDS * sizeof *host, g.stream));
        GPU_CHECK_OK(&g, tutti_cuda_graph_launch(g.gpu, graph, g.stream));
        if (round % 2) GPU_CHECK_OK(&g, all_reduce(&g, c_file, data));
        GPU_CHECK_OK(&g, tutti_cuda_copy(g.gpu, host, data, WORDS * sizeof *host, g.stream));
        GPU_CHECK_OK(&g, tutti_cuda_stream_sync(g.gpu, g.stream));
        for (uint32_t i = 0; i < WORDS; i++)
            RANK_CHECK(rank, host[i] == (n * (n - 1) / 2 * 7 + n * (i + round * 1000)) * n * (round % 2 ? n : 1));
    }
    tutti_cuda_graph_destroy(g.gpu, graph);
    tutti_cuda_free(g.gpu, data), tutti_cuda_free_host(g.gpu, host);
    gpu_rank_leave(&g);
}

static void captures(void **state)
{
    (void)state;
    struct ranks_config config = {.n = gpu_ranks_at_most(3), .forked = true, .timeout_ns = UINT64_C(60000000000)};
    config.deadline_s = gpu_ranks_deadline_s();
    assert_int_equal(ranks_run(&config, replay), 0);
}

/* ---- files ---- */

static int begin(void **state)
{
    if (own_folder_begin(state) < 0) return -1;
    snprintf(c_file, PATH_MAX, "%s", own_file("mine.c", FOLD("0")));
    snprintf(wrong_file, PATH_MAX, "%s", own_file("wrong.c", FOLD("1")));
    snprintf(python_file, PATH_MAX, "%s", own_file("swaps.py", PYTHON));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refusals), cmocka_unit_test(captures),
                                       cmocka_unit_test(contract)};
    gpu_ranks_need_device();
    gpu_ranks_need_two();
    return cmocka_run_group_tests(tests, begin, own_folder_end);
}
