/* SPDX-License-Identifier: BSD-3-Clause */
/* What becomes of the others on the device when a rank is gone: killed while they wait for it in a kernel or in a
 * replay of a graph, or in the middle of many calls; or it has left. The streams come to their end within a second or
 * two, the sentence names who and what, and the device serves the next communicator. */

#include "failures_test.h"

#include "backend/gpu/gpu_backend.h"
#include "comm/call/device.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct plan {
    const char *says;   /* the sentence of what waits for the victim */
    const char *method; /* in a window of all ranks, or `ordinary` memory; NULL: by what is chosen, in the latter */
    bool ordinary;
    uint64_t delay_ns;
    bool ships;                 /* messages in groups, not collectives */
    bool gathers;               /* in place, a third of the words from each rank, instead of a sum */
    bool receives;              /* the others wait for a message, not in a collective */
    bool gives_back;            /* the others give back memory, for which the driver waits until the device is idle */
    _Atomic uint64_t *death_ns; /* shared by the processes */
};

/* The device works, in a communicator of those that are left. */
static void goes_on(struct gpu_rank *g, uint32_t *words)
{
    struct rank *rank = g->rank;
    struct tutti_comm *left = NULL;
    int32_t victim = VICTIM;
    RANK_CHECK_OK(rank, tutti_comm_shrink(rank->comm, &victim, 1, &left));
    RANK_CHECK(rank, tutti_comm_device(left) == tutti_comm_device(rank->comm));
    uint32_t mine = UINT32_C(1) << tutti_comm_rank(left), all = 0;
    RANK_CHECK_OK(rank, tutti_cuda_copy_now(g->gpu, words, &mine, 4));
    RANK_CHECK_OK(rank, call(g, left, words, 1));
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(g->gpu, g->stream));
    RANK_CHECK_OK(rank, tutti_comm_state(left, NULL));
    RANK_CHECK_OK(rank, tutti_cuda_copy_now(g->gpu, &all, words, 4));
    RANK_CHECK(rank, all == (UINT32_C(1) << tutti_comm_size(left)) - 1);
    RANK_CHECK_OK(rank, tutti_barrier(left, NULL, NULL));
    tutti_comm_destroy(left);
}

static void check_death(struct gpu_rank *g, const struct plan *plan, uint32_t *words)
{
    struct rank *rank = g->rank;
    struct tutti_error error = {0};
    enum tutti_status status = outcome(g, rank->comm, &error);
    uint64_t late_ns = tutti_now_ns() - atomic_load(plan->death_ns);
    if (status != TUTTI_ERR_PEER_DEAD || !strstr(error.text, "rank 1") || !strstr(error.text, plan->says) ||
        late_ns > LIMIT_NS) {
        rank_fail(rank, __FILE__, __LINE__, "%s after %llu ms: \"%s\"", tutti_status_name(status),
                  (unsigned long long)late_ns / 1000000, error.text);
        return;
    }
    RANK_CHECK_ERROR(rank, TUTTI_ERR_PEER_DEAD, "rank 1", call(g, rank->comm, words, 10));
    goes_on(g, words);
}

static enum tutti_status call_of(const struct plan *plan, struct gpu_rank *g, uint32_t *words, size_t n)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = g->stream;
    if (!plan->gathers) return call(g, g->rank->comm, words, n);
    if (plan->ordinary) n = 12 + (n - 1) / 12 * 12 < WORDS ? 12 + (n - 1) / 12 * 12 : WORDS / 12 * 12;
    options.overlap = plan->ordinary && n / 12 % 2 == 0;
    return tutti_all_gather(words + (size_t)g->rank->index * (n / 3), words, n / 3, TUTTI_UINT32, g->rank->comm,
                            &options, NULL);
}

/* A call goes by the plan's method, of which all ranks have come back. */
static void open_window(struct gpu_rank *g, const struct plan *plan, uint32_t *words, struct tutti_window **out)
{
    struct rank *rank = g->rank;
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, words, WORDS * sizeof *words, NULL, out));
    RANK_CHECK_OK(rank, call_of(plan, g, words, WORDS));
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(g->gpu, g->stream));
    RANK_CHECK_OK(rank, tutti_comm_state(rank->comm, NULL));
    const struct gpu_backend *backend = (const struct gpu_backend *)rank->comm->device->backends[0];
    for (uint32_t i = 0; i < GPU_CHOICES; i++)
        if (backend->choices[i].method && strcmp(backend->choices[i].method->name, plan->method) == 0) return;
    rank_fail(rank, __FILE__, __LINE__, "no call went by %s", plan->method);
}

/* Calls go straight between the ranks' memory, which all have mapped by now. */
static void become_known(struct gpu_rank *g, const struct plan *plan, uint32_t *words)
{
    struct rank *rank = g->rank;
    const struct gpu_backend *backend = (const struct gpu_backend *)rank->comm->device->backends[0];
    const uint64_t until = tutti_deadline_ns(20 * TUTTI_NS_PER_S);
    for (int32_t all = 0; all == 0 && !rank->failure[0];) {
        RANK_CHECK_OK(rank, call_of(plan, g, words, WORDS));
        RANK_CHECK_OK(rank, tutti_cuda_stream_sync(g->gpu, g->stream));
        int32_t mine = backend->control->straight > 0;
        RANK_CHECK_OK(rank, tutti_all_reduce(&mine, &all, 1, TUTTI_INT32, TUTTI_MIN, rank->comm, NULL, NULL));
        RANK_CHECK(rank, tutti_now_ns() < until);
        tutti_sleep_ns(TUTTI_NS_PER_MS);
    }
}

struct waiter {
    struct tutti_work *work;
    enum tutti_status status;
};

static void *wait_for(void *arg)
{
    struct waiter *waiter = arg;
    waiter->status = tutti_work_wait(waiter->work, UINT64_C(20000000000));
    return NULL;
}

/* Memory, while another thread waits for a call: the driver keeps everybody waiting who asks. */
static void give_back(struct gpu_rank *g, uint32_t *words, void *memory)
{
    struct rank *rank = g->rank;
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    struct waiter waiter = {.work = NULL};
    pthread_t thread;
    options.stream = g->stream;
    RANK_CHECK_OK(rank,
                  tutti_all_reduce(words, words, WORDS, TUTTI_UINT32, TUTTI_SUM, rank->comm, &options, &waiter.work));
    RANK_CHECK(rank, pthread_create(&thread, NULL, wait_for, &waiter) == 0);
    tutti_cuda_free(g->gpu, memory);
    pthread_join(thread, NULL);
    RANK_CHECK(rank, waiter.status == TUTTI_ERR_PEER_DEAD);
    tutti_work_free(waiter.work);
}

/* The victim's process dies without having come: the others wait in a kernel. */
static void wait_for_the_dead(struct rank *rank)
{
    const struct plan *plan = rank->arg;
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *words = gpu_rank_words(&g, WORDS), *other = gpu_rank_words(&g, WORDS);
    struct tutti_window *window = NULL;
    if (!words || !other) return;
    connect_all(&g, rank->comm, words);
    if (plan->ordinary) become_known(&g, plan, words);
    if (plan->method && !plan->ordinary) open_window(&g, plan, words, &window);
    if (rank->failure[0]) return;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    tutti_sleep_ns(50000000); /* all ranks know by then that it is over */
    if (rank->index == VICTIM) {
        tutti_sleep_ns(plan->delay_ns);
        atomic_store(plan->death_ns, tutti_now_ns());
        kill(getpid(), SIGKILL);
    }
    if (plan->gives_back)
        give_back(&g, words, other);
    else
        RANK_CHECK_OK(rank, plan->receives ? receive(&g, rank->comm, words, 0) : call_of(plan, &g, words, WORDS));
    check_death(&g, plan, words);
    tutti_window_destroy(window);
}

/* The same in a replay, which nobody on the host knows to be under way. */
static void replay_for_the_dead(struct rank *rank)
{
    const struct plan *plan = rank->arg;
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *words = gpu_rank_words(&g, WORDS);
    if (!words) return;
    RANK_CHECK_OK(rank, call(&g, rank->comm, words, WORDS)); /* nccl captures no first one */
    RANK_CHECK_OK(rank, replay(&g, words, rank->index != VICTIM));
    if (rank->index == VICTIM) {
        tutti_sleep_ns(plan->delay_ns);
        atomic_store(plan->death_ns, tutti_now_ns());
        kill(getpid(), SIGKILL);
    }
    check_death(&g, plan, words);
}

static void *die(void *arg)
{
    const struct plan *plan = arg;
    tutti_sleep_ns(plan->delay_ns);
    atomic_store(plan->death_ns, tutti_now_ns());
    kill(getpid(), SIGKILL);
    return NULL;
}

/* Two messages to and from every other rank, of as many words or fewer. */
static enum tutti_status ship(struct gpu_rank *g, uint32_t *words, size_t n)
{
    const struct rank *rank = g->rank;
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = g->stream;
    n = 1 + n % (WORDS / 8);
    enum tutti_status status = tutti_group_start();
    for (int32_t i = 0; i < 2 * rank->n; i++) {
        const int32_t q = i / 2;
        if (q == rank->index) continue;
        if (status >= 0) status = tutti_send(words, n, TUTTI_UINT32, q, 0, rank->comm, &options, NULL);
        if (status >= 0)
            status = tutti_recv(words + (1 + i) * (WORDS / 8), n, TUTTI_UINT32, q, 0, rank->comm, &options, NULL, NULL);
    }
    return status >= 0 ? tutti_group_end(NULL) : status;
}

/* The victim dies at any moment of many calls, which all ranks make as fast as they can. */
static void call_until_a_death(struct rank *rank)
{
    const struct plan *plan = rank->arg;
    struct gpu_rank g;
    pthread_t killer;
    uint64_t random = plan->delay_ns;
    const uint32_t ahead = gpu_ranks_stand_in() ? 8 : 64; /* calls that are enqueued at once, and end one by one */
    enum tutti_status status = TUTTI_OK;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *words = gpu_rank_words(&g, WORDS);
    if (!words) return;
    struct tutti_window *window = NULL;
    if (gpu_ranks_by_nccl()) connect_all(&g, rank->comm, words); /* which takes longer than a victim lives */
    if (plan->ordinary) become_known(&g, plan, words);
    if (plan->method && !plan->ordinary) open_window(&g, plan, words, &window);
    if (rank->failure[0]) return;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    if (rank->index == VICTIM) RANK_CHECK(rank, pthread_create(&killer, NULL, die, rank->arg) == 0);
    for (uint32_t i = 1; status == TUTTI_OK; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const size_t n = 1 + (size_t)(random >> 33) % WORDS;
        status = plan->ships ? ship(&g, words, n) : call_of(plan, &g, words, n);
        if (i % ahead == 0 && status == TUTTI_OK) (void)tutti_cuda_stream_sync(g.gpu, g.stream);
    }
    RANK_CHECK(rank, rank->index != VICTIM);
    check_death(&g, plan, words);
    tutti_window_destroy(window);
}

static void run_deaths(uint32_t n_runs, rank_function function, struct plan plan)
{
    if (!ranks_can_fork()) skip();
    plan.death_ns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t random = test_seed();
    for (uint32_t i = 0; i < n_runs; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        plan.delay_ns = 1000000 + (random >> 17) % 200000000;
        const struct tutti_option options[] = {{"gpu_method", plan.method ? plan.method : ""}};
        struct ranks_config config = {.n = gpu_ranks_at_most(2 + i % 2),
                                      .forked = true,
                                      .options = options,
                                      .n_options = 1,
                                      .timeout_ns = UINT64_C(60000000000),
                                      .deadline_s = 60,
                                      .arg = &plan,
                                      .may_die = UINT64_C(1) << VICTIM};
        assert_int_equal(ranks_run(&config, function), 0);
    }
    munmap(plan.death_ns, 4096);
}

static void deaths_before(void **state)
{
    (void)state;
    run_deaths(2, wait_for_the_dead, (struct plan){.says = "40000 elements"});
    run_deaths(1, wait_for_the_dead, (struct plan){.says = "40000 elements", .gives_back = true});
    run_deaths(2, wait_for_the_dead, (struct plan){.says = " in recv from rank 1", .receives = true});
}
static void deaths_within(void **state)
{
    (void)state;
    run_deaths(gpu_ranks_stand_in() ? 2 : 6, call_until_a_death, (struct plan){.says = "all_reduce"});
    run_deaths(gpu_ranks_stand_in() ? 2 : 6, call_until_a_death, (struct plan){.says = "rank 1", .ships = true});
}

/* By what reaches into the victim's memory. */
static void deaths_in_windows(void **state)
{
    (void)state;
    if (gpu_ranks_by_nccl() || gpu_ranks_across(3)) skip(); /* no windows there */
    const struct plan direct = {.says = "all_reduce", .method = "direct"};
    const struct plan engines = {.says = "all_gather", .method = "engines", .gathers = true};
    run_deaths(2, wait_for_the_dead, direct);
    run_deaths(2, call_until_a_death, direct);
    run_deaths(2, wait_for_the_dead, engines);
    run_deaths(2, call_until_a_death, engines);
}

/* Straight between buffers of users. */
static void deaths_in_ordinary_memory(void **state)
{
    (void)state;
    if (gpu_ranks_by_nccl() || gpu_ranks_across(3)) skip();
    const struct plan mapped = {.says = "all_gather", .method = "mapped", .ordinary = true, .gathers = true};
    run_deaths(2, wait_for_the_dead, mapped);
    run_deaths(gpu_ranks_stand_in() ? 4 : 6, call_until_a_death, mapped);
}

static void deaths_in_replays(void **state)
{
    (void)state;
    if (gpu_ranks_across(3)) skip(); /* nothing is captured */
    run_deaths(2, replay_for_the_dead, (struct plan){.says = "1000 elements"});
}

/* ---- a rank that has left: what it has sent comes, what it has not is not waited for ---- */

static void outlive(struct rank *rank)
{
    static const char *const said[] = {"connection closed by peer: rank 1",
                                       " left the communicator while rank 0 waited for it in recv from rank 1",
                                       "40 bytes)"};
    struct gpu_rank g;
    struct tutti_comm *comm = NULL;
    struct tutti_error error = {0};
    uint32_t word = 0;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *words = gpu_rank_words(&g, WORDS);
    if (!words) return;
    open_second(&g, words, &comm);
    if (rank->failure[0]) return;
    if (rank->index == VICTIM) {
        struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
        options.stream = g.stream;
        RANK_CHECK_OK(rank, tutti_cuda_copy_now(g.gpu, words, &(uint32_t){42}, 4));
        RANK_CHECK_OK(rank, tutti_send(words, 10, TUTTI_UINT32, 0, 0, comm, &options, NULL));
        tutti_comm_destroy(comm);
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    } else {
        tutti_sleep_ns(300000000);
        RANK_CHECK_OK(rank, receive(&g, comm, words, UINT64_C(20000000000)));
        RANK_CHECK_OK(rank, tutti_cuda_stream_sync(g.gpu, g.stream));
        RANK_CHECK_OK(rank, tutti_cuda_copy_now(g.gpu, &word, words, 4));
        RANK_CHECK(rank, word == 42);
        RANK_CHECK_OK(rank, tutti_comm_state(comm, NULL));
        uint64_t start = tutti_now_ns();
        RANK_CHECK_OK(rank, receive(&g, comm, words, UINT64_C(20000000000)));
        enum tutti_status status = outcome(&g, comm, &error);
        const uint64_t late_ns = tutti_now_ns() - start;
        for (size_t i = 0; i < sizeof said / sizeof *said; i++)
            if (status != TUTTI_ERR_PEER_LEFT || late_ns > LIMIT_NS || !strstr(error.text, said[i]))
                rank_fail(rank, __FILE__, __LINE__, "%s \"%s\"", tutti_status_name(status), error.text);
        tutti_comm_destroy(comm);
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    }
}

/* A graph waits for a message that is never sent; that calls behind the capture are over says nothing of it. */
static void outlive_in_a_replay(struct rank *rank)
{
    struct gpu_rank g;
    struct tutti_comm *comm = NULL;
    struct tutti_error error = {0};
    void *graph = NULL;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *words = gpu_rank_words(&g, WORDS);
    if (!words) return;
    open_second(&g, words, &comm);
    connect_all(&g, comm, words);
    if (rank->failure[0]) return;
    if (rank->index != VICTIM) {
        RANK_CHECK_OK(rank, tutti_cuda_graph_begin(g.gpu, g.stream));
        RANK_CHECK_OK(rank, receive(&g, comm, words, UINT64_C(10000000000)));
        RANK_CHECK_OK(rank, tutti_cuda_graph_end(g.gpu, g.stream, &graph));
    }
    RANK_CHECK_OK(rank, call(&g, comm, words, 1000));
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(g.gpu, g.stream));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    if (rank->index != VICTIM) {
        RANK_CHECK_OK(rank, tutti_cuda_graph_launch(g.gpu, graph, g.stream));
        if (outcome(&g, comm, &error) != TUTTI_ERR_PEER_LEFT || !strstr(error.text, "in recv from rank 1 (40 bytes)"))
            rank_fail(rank, __FILE__, __LINE__, "%s \"%s\"", tutti_status_name(error.status), error.text);
        tutti_cuda_graph_destroy(g.gpu, graph);
    }
    tutti_comm_destroy(comm);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
}

static void leaving(void **state)
{
    (void)state;
    assert_int_equal(ranks_forked(2, outlive, NULL), 0);
    if (!gpu_ranks_across(2)) assert_int_equal(ranks_forked(2, outlive_in_a_replay, NULL), 0);
}

int main(void)
{
    gpu_ranks_need_device();
    gpu_ranks_need_two();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deaths_before),     cmocka_unit_test(deaths_within),
        cmocka_unit_test(deaths_in_windows), cmocka_unit_test(deaths_in_ordinary_memory),
        cmocka_unit_test(deaths_in_replays), cmocka_unit_test(leaving),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
