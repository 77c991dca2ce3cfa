/* SPDX-License-Identifier: BSD-3-Clause */
/* Multicast: where the option asks for it and the machine has it, the contract holds by that method, in graphs and
 * where counts wrap, and a rank that does not come, or dies, is told. Where it is not offered, not asked for or does
 * not work, nobody uses it, and calls are as ever. */

#include "test.h"

#include "../contract/contract.h"
#include "gpu_ranks.h"

#include "backend/cuda/cuda.h"
#include "comm/device/device.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 4, LATE = 1, ROUNDS = 9, WORDS = 3001, FEW = 5 };

struct scene {
    bool asked, there;   /* it is expected on all ranks */
    uint64_t patience_s; /* of which a trial that fails takes a quarter */
    const char *machine; /* what the stand-in's can, of rank LATE alone; NULL: as it is */
    const struct contract_case *cases;
    size_t n;
    _Atomic size_t *by_it; /* calls for which it was chosen, but for v forms; of threads alone */
};

static struct cuda_backend *backend_of(const struct rank *rank)
{
    return (struct cuda_backend *)rank->comm->device->backends[0];
}

/* By a child, as all that asks the driver. */
static bool offered(void)
{
    static int known = -1;
    if (known < 0) known = gpu_ranks_ask(tutti_gpu_has_multicast);
    return known;
}

static void one_dies(struct rank *rank);

static unsigned run_world(uint32_t n, bool forked, struct scene *scene, rank_function function)
{
    const struct tutti_option options[] = {
        {"gpu", "cuda"}, {"cuda", "multicast"}, {"gpu_multicast", scene->asked ? "1" : "0"}};
    const struct ranks_config config = {.n = n,
                                        .forked = forked,
                                        .options = options,
                                        .n_options = 3,
                                        .timeout_ns = scene->patience_s * TUTTI_NS_PER_S,
                                        .may_die = function == one_dies ? 1u << LATE : 0,
                                        .deadline_s = gpu_ranks_deadline_s(),
                                        .arg = scene};
    const unsigned failed = ranks_run(&config, function);
    if (failed) print_message("%u %s\n", n, forked ? "processes" : "threads");
    return failed;
}

static bool begin(struct rank *rank, struct gpu_rank *g)
{
    const struct scene *scene = rank->arg;
    if (scene->machine && rank->index == LATE) setenv("TUTTI_STANDIN_MULTICAST", scene->machine, 1);
    if (!gpu_rank_open(rank, g)) return false;
    const bool there = rank->comm->device && backend_of(rank)->place.cast_bytes > 0;
    if (there == scene->there) return true;
    rank_fail(rank, __FILE__, __LINE__, "multicast is%s there", there ? "" : " not");
    return false;
}

/* Ranks meet before memory of a device is given back. */
static void end(struct gpu_rank *g)
{
    struct rank *rank = g->rank;
    RANK_CHECK_OK(rank, tutti_comm_state(rank->comm, NULL));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    gpu_rank_close(g);
}

/* ---- the contract ---- */

/* Forgets what was chosen for the last call. */
static void count_method(const struct scene *scene, const struct rank *rank)
{
    struct cuda_backend *b = backend_of(rank);
    for (uint32_t i = 0; i < CUDA_CHOICES; i++) *scene->by_it += b->choices[i].method == &cuda_multicast;
    memset(b->choices, 0, sizeof b->choices);
}

static void keep_contract(struct rank *rank)
{
    const struct scene *scene = rank->arg;
    const size_t most = gpu_ranks_stand_in() ? 4099 : SIZE_MAX;
    struct contract_memory memory;
    struct gpu_rank g;
    if (!begin(rank, &g)) return;
    contract_memory_init(&memory, g.gpu, g.stream);
    for (size_t i = 0; i < scene->n && !rank->failure[0]; i++) {
        struct contract_case c = scene->cases[i];
        if (c.at[RANKS] % (MOST_RANKS - 1) + 2 != (uint32_t)rank->n || contract_sizes[c.at[SIZE]] > most) continue;
        c.memory = &memory;
        c.thrifty = true;
        contract_run(rank, &c, NULL);
        if (scene->by_it && !rank->failure[0]) count_method(scene, rank);
    }
    if (rank->failure[0]) return;
    contract_memory_fini(&memory, rank->comm);
    end(&g);
}

/* In worlds of 2 and more ranks, of which it says how many there were. */
static uint32_t run_contract(bool forked, struct scene *scene)
{
    uint32_t n_worlds = 0;
    for (uint32_t n = 2; n <= MOST_RANKS && n <= gpu_ranks_devices(); n++, n_worlds++)
        assert_int_equal(run_world(n, forked, scene, keep_contract), 0);
    return n_worlds;
}

static void contract(bool forked)
{
    _Atomic size_t by_it = 0;
    struct scene scene = {
        .patience_s = 100, .asked = true, .there = offered(), .by_it = forked || !offered() ? NULL : &by_it};
    scene.cases = contract_pairs(test_seed() + 77 + forked, &scene.n);
    assert_non_null(scene.cases);
    const uint32_t n_worlds = run_contract(forked, &scene);
    if (scene.by_it) assert_true(by_it > 40 * n_worlds); /* 50 to 80 each */
    free((void *)(uintptr_t)scene.cases);
}

static void contract_of_processes(void **state)
{
    (void)state;
    contract(true);
}

static void contract_of_threads(void **state)
{
    (void)state;
    contract(false);
}

/* ---- in rows: in graphs, beside other methods, and where counts wrap ---- */

struct row {
    struct gpu_rank g;
    uint32_t *in, *out, *host; /* host: pinned; what goes in, then what comes out */
};

static uint32_t value(uint32_t rank, uint32_t round, size_t i)
{
    return (uint32_t)tutti_mix64((uint64_t)rank << 48 ^ (uint64_t)round << 32 ^ i);
}

/* In; a sum, a broadcast of it by a rank that differs from round to round, by another method a sum of that, all of
 * them gathered; out. */
static enum tutti_status enqueue(struct row *r, size_t n)
{
    const size_t n_out = n * (size_t)r->g.rank->n;
    struct tutti_call_options by_it = TUTTI_CALL_OPTIONS_INIT, by_lines = TUTTI_CALL_OPTIONS_INIT;
    struct tutti_comm *comm = r->g.rank->comm;
    by_it.stream = by_lines.stream = r->g.stream;
    by_it.algorithm = "cuda:multicast", by_lines.algorithm = "cuda:lines";
    enum tutti_status status = tutti_gpu_copy(r->g.gpu, r->in, r->host, n * 4, r->g.stream);
    if (status >= 0) status = tutti_all_reduce(r->in, r->in, n, TUTTI_UINT32, TUTTI_SUM, comm, &by_it, NULL);
    if (status >= 0) status = tutti_broadcast(r->in, n, TUTTI_UINT32, r->g.rank->n - 1, comm, &by_it, NULL);
    if (status >= 0) status = tutti_all_reduce(r->in, r->in, n, TUTTI_UINT32, TUTTI_SUM, comm, &by_lines, NULL);
    if (status >= 0) status = tutti_all_gather(r->in, r->out, n, TUTTI_UINT32, comm, &by_it, NULL);
    return status < 0 ? status : tutti_gpu_copy(r->g.gpu, r->host + WORDS, r->out, n_out * 4, r->g.stream);
}

static void fill(struct row *r, uint32_t round)
{
    for (size_t i = 0; i < WORDS; i++) r->host[i] = value((uint32_t)r->g.rank->index, round, i);
}

static void compare(const struct row *r, uint32_t round, size_t n)
{
    struct rank *rank = r->g.rank;
    for (size_t i = 0; i < n * (size_t)rank->n; i++) {
        uint32_t want = 0;
        for (uint32_t q = 0; q < (uint32_t)rank->n; q++) want += value(q, round, i % n);
        want *= (uint32_t)rank->n;
        if (r->host[WORDS + i] == want) continue;
        rank_fail(rank, __FILE__, __LINE__, "round %u: word %zu is %08x instead of %08x", round, i, r->host[WORDS + i],
                  want);
        return;
    }
}

/* As if each block had made so many calls, and with lines of an earlier age whose flags are those after the wrap. */
static void set_counts(struct row *r, uint32_t count)
{
    const struct cuda_call *call = &backend_of(r->g.rank)->multicast.x.call;
    const struct cuda_layout *layout = &call->layout;
    const size_t slot_words = (size_t)call->n * layout->n_blocks * layout->line_bytes / 2, n_words = layout->begun / 4;
    uint32_t *words = rank_alloc(r->g.rank, layout->bytes);
    char *own = call->base[call->me];
    memset(words, 0, layout->bytes);
    for (size_t i = 0; i < n_words; i++) words[i] = i % 2 ? 1 + (i >= slot_words) : rank_random(r->g.rank) & UINT32_MAX;
    for (uint32_t i = 0; i < call->n * layout->n_blocks; i++) words[layout->begun / 4 + i] = count;
    for (uint32_t i = 0; i < layout->n_blocks; i++) words[layout->called / 4 + 2 * i] = count;
    RANK_CHECK_OK(r->g.rank, tutti_gpu_copy_now(r->g.gpu, own, words, layout->bytes));
}

/* The first one has few words, so that what is planted is there when counts have wrapped. */
static void rounds(struct row *r, uint32_t first, void *graph)
{
    struct rank *rank = r->g.rank;
    for (uint32_t round = first; round < first + ROUNDS && !rank->failure[0]; round++) {
        const bool eager = round % 3 == 0;
        fill(r, round);
        if (eager)
            RANK_CHECK_OK(rank, enqueue(r, round == first ? FEW : WORDS));
        else
            RANK_CHECK_OK(rank, tutti_gpu_graph_launch(r->g.gpu, graph, r->g.stream));
        RANK_CHECK_OK(rank, tutti_gpu_stream_sync(r->g.gpu, r->g.stream));
        RANK_CHECK_OK(rank, tutti_comm_state(rank->comm, NULL));
        compare(r, round, round == first ? FEW : WORDS);
    }
}

static void in_rows(struct rank *rank)
{
    struct row r;
    const size_t n_out = (size_t)rank->n * WORDS;
    void *graph = NULL;
    if (!begin(rank, &r.g)) return;
    r.in = gpu_rank_words(&r.g, WORDS);
    r.out = gpu_rank_words(&r.g, n_out);
    r.host = gpu_rank_host_words(&r.g, WORDS + n_out);
    RANK_CHECK(rank, r.in && r.out && r.host);
    RANK_CHECK_OK(rank, tutti_gpu_graph_begin(r.g.gpu, r.g.stream));
    RANK_CHECK_OK(rank, enqueue(&r, WORDS));
    RANK_CHECK_OK(rank, tutti_gpu_graph_end(r.g.gpu, r.g.stream, &graph));
    for (uint32_t age = 0; age < 3 && !rank->failure[0]; age++) {
        if (age > 0) set_counts(&r, age * 0x80000000u - 3);
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
        rounds(&r, age * ROUNDS, graph);
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    }
    if (rank->failure[0]) return;
    tutti_gpu_graph_destroy(r.g.gpu, graph);
    tutti_gpu_free(r.g.gpu, r.in);
    tutti_gpu_free(r.g.gpu, r.out);
    tutti_gpu_free_host(r.g.gpu, r.host);
    end(&r.g);
}

static void rows(void **state)
{
    (void)state;
    struct scene scene = {.patience_s = 100, .asked = true, .there = true};
    if (!offered()) skip();
    for (uint32_t n = 2; n <= MOST_RANKS && n <= gpu_ranks_devices(); n++)
        assert_int_equal(run_world(n, true, &scene, in_rows), 0);
}

/* ---- by itself, and a rank that is late ---- */

static void is_chosen(struct rank *rank)
{
    struct cuda_backend *b = backend_of(rank);
    struct tutti_backend_call call = {.info = {.kind = TUTTI_BROADCAST, .dtype = TUTTI_FLOAT32}, .bind.count = 4096};
    RANK_CHECK(rank, cuda_choose(&b->place, &call, "", NULL) == &cuda_multicast);
    call.info.kind = TUTTI_SCATTER;
    RANK_CHECK(rank, cuda_choose(&b->place, &call, "multicast", NULL) != &cuda_multicast);
}

static void one_is_late(struct rank *rank)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    struct tutti_error error = {0};
    struct gpu_rank g;
    if (!begin(rank, &g)) return;
    is_chosen(rank);
    uint32_t *words = gpu_rank_words(&g, WORDS);
    RANK_CHECK(rank, words && !rank->failure[0]);
    options.stream = g.stream;
    options.algorithm = "cuda:multicast";
    options.timeout_ns = TUTTI_NS_PER_S;
    if (rank->index != LATE) {
        RANK_CHECK_OK(rank, tutti_all_reduce(words, words, WORDS, TUTTI_UINT32, TUTTI_SUM, rank->comm, &options, NULL));
        RANK_CHECK_OK(rank, tutti_gpu_stream_sync(g.gpu, g.stream));
    }
    while (tutti_comm_state(rank->comm, &error) == TUTTI_OK) tutti_sleep_ns(1000000);
    RANK_CHECK(rank,
               error.status == TUTTI_ERR_TIMEOUT && strstr(error.text, "all_reduce") && strstr(error.text, "rank 1"));
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    tutti_gpu_free(g.gpu, words);
    gpu_rank_close(&g);
}

static void late(void **state)
{
    (void)state;
    struct scene scene = {.patience_s = 100, .asked = true, .there = true};
    if (!offered() || gpu_ranks_devices() < 3) skip();
    assert_int_equal(run_world(3, true, &scene, one_is_late), 0);
}

/* ---- none ---- */

static void some_calls(struct rank *rank)
{
    struct gpu_rank g;
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    if (!begin(rank, &g)) return;
    uint32_t *words = gpu_rank_words(&g, WORDS), *host = rank_alloc(rank, WORDS * 4), sum = 0;
    RANK_CHECK(rank, words);
    for (size_t i = 0; i < WORDS; i++) host[i] = value((uint32_t)rank->index, 0, i);
    RANK_CHECK_OK(rank, tutti_gpu_copy_now(g.gpu, words, host, WORDS * 4));
    options.stream = g.stream;
    RANK_CHECK_OK(rank, tutti_all_reduce(words, words, WORDS, TUTTI_UINT32, TUTTI_SUM, rank->comm, &options, NULL));
    RANK_CHECK_OK(rank, tutti_gpu_stream_sync(g.gpu, g.stream));
    RANK_CHECK_OK(rank, tutti_gpu_copy_now(g.gpu, host, words, WORDS * 4));
    for (uint32_t q = 0; q < (uint32_t)rank->n; q++) sum += value(q, 0, WORDS - 1);
    RANK_CHECK(rank, host[WORDS - 1] == sum);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    tutti_gpu_free(g.gpu, words);
    end(&g);
}

static void not_asked_for(void **state)
{
    (void)state;
    struct scene scene = {.patience_s = 100, .asked = false, .there = false};
    assert_int_equal(run_world(2, true, &scene, some_calls), 0);
}

static void switched_off(void **state)
{
    (void)state;
    struct scene scene = {.patience_s = 100, .asked = true, .there = false};
    const char *before = getenv("NCCL_NVLS_ENABLE");
    char *kept = before ? strdup(before) : NULL;
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    assert_int_equal(run_world(2, true, &scene, some_calls), 0);
    if (kept)
        setenv("NCCL_NVLS_ENABLE", kept, 1);
    else
        unsetenv("NCCL_NVLS_ENABLE");
    free(kept);
}

static void shared_devices(void **state)
{
    (void)state;
    struct scene scene = {.patience_s = 100, .asked = true, .there = false};
    assert_int_equal(run_world(gpu_ranks_devices() + 1, true, &scene, some_calls), 0);
}

/* The machine, or that of one rank, offers none, loses what one device is sent, which the trial finds out, or refuses
 * to add a device or to bind memory. */
static void that_does_not_work(void **state)
{
    (void)state;
    static const char *const machines[] = {"0", "2", "3", "4"};
    if (!gpu_ranks_stand_in()) skip(); /* no other machine can be told to be broken */
    for (size_t i = 0; i < 2 * sizeof machines / sizeof *machines; i++) {
        struct scene scene = {.patience_s = 16, .asked = true, .there = false};
        if (i % 2) scene.machine = machines[i / 2];
        if (i % 2 == 0) setenv("TUTTI_STANDIN_MULTICAST", machines[i / 2], 1);
        assert_int_equal(run_world(3, true, &scene, some_calls), 0);
        unsetenv("TUTTI_STANDIN_MULTICAST");
    }
}

/* ---- those that come of others, and who dies ---- */

static enum tutti_status sum_of_ones(struct gpu_rank *g, struct tutti_comm *comm, uint32_t *word)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    const uint32_t one = 1;
    options.stream = g->stream;
    options.algorithm = "cuda:multicast";
    TUTTI_TRY(tutti_gpu_copy_now(g->gpu, word, &one, 4));
    TUTTI_TRY(tutti_all_reduce(word, word, 1, TUTTI_UINT32, TUTTI_SUM, comm, &options, NULL));
    return tutti_gpu_stream_sync(g->gpu, g->stream);
}

static void check_sum(struct gpu_rank *g, struct tutti_comm *comm, uint32_t *word)
{
    uint32_t got = 0;
    RANK_CHECK_OK(g->rank, sum_of_ones(g, comm, word));
    RANK_CHECK_OK(g->rank, tutti_comm_state(comm, NULL));
    RANK_CHECK_OK(g->rank, tutti_gpu_copy_now(g->gpu, &got, word, 4));
    RANK_CHECK(g->rank, got == (uint32_t)tutti_comm_size(comm));
}

/* Two of three in one of their own, then one of them dies, and the others go on. */
static void one_dies(struct rank *rank)
{
    struct tutti_comm *pair = NULL, *left = NULL;
    struct tutti_error error = {0};
    const int32_t victim = LATE;
    struct gpu_rank g;
    if (!begin(rank, &g)) return;
    uint32_t *word = gpu_rank_words(&g, 1);
    RANK_CHECK(rank, word);
    RANK_CHECK_OK(rank, tutti_comm_split(rank->comm, rank->index > 0, 0, &pair));
    check_sum(&g, rank->comm, word);
    if (!rank->failure[0] && rank->index > 0) check_sum(&g, pair, word);
    if (rank->failure[0]) return;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    tutti_comm_destroy(pair);
    if (rank->index == LATE) raise(SIGKILL);
    (void)sum_of_ones(&g, rank->comm, word);
    while (tutti_comm_state(rank->comm, &error) == TUTTI_OK) tutti_sleep_ns(1000000);
    RANK_CHECK(rank, error.status == TUTTI_ERR_PEER_DEAD && strstr(error.text, "rank 1"));
    RANK_CHECK_OK(rank, tutti_comm_shrink(rank->comm, &victim, 1, &left));
    check_sum(&g, left, word);
    if (rank->failure[0]) return;
    RANK_CHECK_OK(rank, tutti_barrier(left, NULL, NULL));
    tutti_comm_destroy(left);
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    tutti_gpu_free(g.gpu, word);
    gpu_rank_close(&g);
}

static void death(void **state)
{
    (void)state;
    struct scene scene = {.patience_s = 100, .asked = true, .there = true};
    if (!offered() || gpu_ranks_devices() < 3 || !ranks_can_fork()) skip();
    assert_int_equal(run_world(3, true, &scene, one_dies), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_of_processes),
        cmocka_unit_test(rows),
        cmocka_unit_test(late),
        cmocka_unit_test(not_asked_for),
        cmocka_unit_test(switched_off),
        cmocka_unit_test(shared_devices),
        cmocka_unit_test(that_does_not_work),
        cmocka_unit_test(death),
        cmocka_unit_test(contract_of_threads), /* a driver does not survive a fork */
    };
    if (gpu_ranks_stand_in()) setenv("TUTTI_STANDIN_DEVICES", "4", 1), unsetenv("NCCL_NVLS_ENABLE");
    gpu_ranks_need_device();
    if (!offered()) print_message("multicast is unavailable: the devices do not offer it, or NCCL_NVLS_ENABLE is 0\n");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
