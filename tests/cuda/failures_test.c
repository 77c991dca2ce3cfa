/* SPDX-License-Identifier: BSD-3-Clause */
/* What fails on the device: a rank that is killed while others wait for it in a kernel, or in the middle of many calls;
 * a rank that does not come; ranks that call different things, or one thing on different memory; an abort; and the same
 * in replays of graphs. The streams come to their end within a second or two, the sentence names who and what, and the
 * device serves the next communicator. */

#include "test.h"

#include "gpu_ranks.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 40000, VICTIM = 1 };
#define LIMIT_NS (UINT64_C(2000000000) * (gpu_ranks_stand_in() ? 10 : 1))

struct plan {
    const char *says; /* of what waits for the victim */
    uint64_t delay_ns;
    bool receives;              /* the others wait for a message, not in a collective */
    bool gives_back;            /* the others give back memory, for which the driver waits until the device is idle */
    _Atomic uint64_t *death_ns; /* shared by the processes */
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void nap_ns(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

static enum tutti_status call(struct gpu_rank *g, struct tutti_comm *comm, uint32_t *words, size_t n)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = g->stream;
    return tutti_all_reduce(words, words, n, TUTTI_UINT32, TUTTI_SUM, comm, &options, NULL);
}

static enum tutti_status receive(struct gpu_rank *g, struct tutti_comm *comm, uint32_t *words, uint64_t timeout_ns)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = g->stream;
    options.timeout_ns = timeout_ns;
    return tutti_recv(words, 10, TUTTI_UINT32, VICTIM, 0, comm, &options, NULL, NULL);
}

/* The call once more, from a graph of which all ranks have had a replay. */
static enum tutti_status replay(struct gpu_rank *g, uint32_t *words, bool again)
{
    void *graph = NULL;
    enum tutti_status status = tutti_gpu_graph_begin(g->gpu, g->stream);
    if (status >= 0) status = call(g, g->rank->comm, words, 1000);
    if (status >= 0) status = tutti_gpu_graph_end(g->gpu, g->stream, &graph);
    if (status >= 0) status = tutti_gpu_graph_launch(g->gpu, graph, g->stream);
    if (status >= 0) status = tutti_gpu_stream_sync(g->gpu, g->stream);
    if (status >= 0) status = tutti_comm_state(g->rank->comm, NULL);
    if (status >= 0 && again) status = tutti_gpu_graph_launch(g->gpu, graph, g->stream);
    tutti_gpu_graph_destroy(g->gpu, graph); /* a launch under way goes on */
    return status;
}

/* The stream has come to its end; then what the communicator says of it. */
static enum tutti_status outcome(struct gpu_rank *g, struct tutti_comm *comm, struct tutti_error *error)
{
    uint64_t start = now_ns();
    if (tutti_gpu_stream_sync(g->gpu, g->stream) < 0) return tutti_last_error()->status;
    while (tutti_comm_state(comm, error) == TUTTI_OK && now_ns() - start < 10 * LIMIT_NS) nap_ns(1000000);
    return tutti_comm_state(comm, error);
}

/* The device works, in a communicator of those that are left. */
static void goes_on(struct gpu_rank *g, uint32_t *words)
{
    struct rank *rank = g->rank;
    struct tutti_comm *left = NULL;
    int32_t victim = VICTIM;
    RANK_CHECK_OK(rank, tutti_comm_shrink(rank->comm, &victim, 1, &left));
    RANK_CHECK(rank, tutti_comm_device(left) == tutti_comm_device(rank->comm));
    uint32_t mine = UINT32_C(1) << tutti_comm_rank(left), all = 0;
    RANK_CHECK_OK(rank, tutti_gpu_copy_now(g->gpu, words, &mine, 4));
    RANK_CHECK_OK(rank, call(g, left, words, 1));
    RANK_CHECK_OK(rank, tutti_gpu_stream_sync(g->gpu, g->stream));
    RANK_CHECK_OK(rank, tutti_comm_state(left, NULL));
    RANK_CHECK_OK(rank, tutti_gpu_copy_now(g->gpu, &all, words, 4));
    RANK_CHECK(rank, all == (UINT32_C(1) << tutti_comm_size(left)) - 1);
    RANK_CHECK_OK(rank, tutti_barrier(left, NULL, NULL));
    tutti_comm_destroy(left);
}

static void check_death(struct gpu_rank *g, const struct plan *plan, uint32_t *words)
{
    struct rank *rank = g->rank;
    struct tutti_error error = {0};
    enum tutti_status status = outcome(g, rank->comm, &error);
    uint64_t late_ns = now_ns() - atomic_load(plan->death_ns);
    if (status != TUTTI_ERR_PEER_DEAD || !strstr(error.text, "rank 1") || !strstr(error.text, plan->says) ||
        late_ns > LIMIT_NS) {
        rank_fail(rank, __FILE__, __LINE__, "%s after %llu ms: \"%s\"", tutti_status_name(status),
                  (unsigned long long)late_ns / 1000000, error.text);
        return;
    }
    RANK_CHECK_ERROR(rank, TUTTI_ERR_PEER_DEAD, "rank 1", call(g, rank->comm, words, 10));
    goes_on(g, words);
}

/* A collective and messages from the victim: nccl connects ranks when they first talk, and waits for them meanwhile. */
static void connect_all(struct gpu_rank *g, uint32_t *words)
{
    struct rank *rank = g->rank;
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = g->stream;
    RANK_CHECK_OK(rank, call(g, rank->comm, words, 1000));
    for (int32_t q = 0; q < rank->n && rank->index == VICTIM; q++)
        if (q != VICTIM) RANK_CHECK_OK(rank, tutti_send(words, 10, TUTTI_UINT32, q, 0, rank->comm, &options, NULL));
    if (rank->index != VICTIM) RANK_CHECK_OK(rank, receive(g, rank->comm, words, 0));
    RANK_CHECK_OK(rank, tutti_gpu_stream_sync(g->gpu, g->stream));
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
    tutti_gpu_free(g->gpu, memory);
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
    if (!words || !other) return;
    connect_all(&g, words);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    nap_ns(50000000); /* all ranks know by then that it is over */
    if (rank->index == VICTIM) {
        nap_ns(plan->delay_ns);
        atomic_store(plan->death_ns, now_ns());
        kill(getpid(), SIGKILL);
    }
    if (plan->gives_back)
        give_back(&g, words, other);
    else
        RANK_CHECK_OK(rank, plan->receives ? receive(&g, rank->comm, words, 0) : call(&g, rank->comm, words, WORDS));
    check_death(&g, plan, words);
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
        nap_ns(plan->delay_ns);
        atomic_store(plan->death_ns, now_ns());
        kill(getpid(), SIGKILL);
    }
    check_death(&g, plan, words);
}

static void *die(void *arg)
{
    const struct plan *plan = arg;
    nap_ns(plan->delay_ns);
    atomic_store(plan->death_ns, now_ns());
    kill(getpid(), SIGKILL);
    return NULL;
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
    if (gpu_ranks_by_nccl()) connect_all(&g, words); /* which takes longer than a victim lives */
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    if (rank->index == VICTIM) RANK_CHECK(rank, pthread_create(&killer, NULL, die, rank->arg) == 0);
    for (uint32_t i = 1; status == TUTTI_OK; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        status = call(&g, rank->comm, words, 1 + (size_t)(random >> 33) % WORDS);
        if (i % ahead == 0 && status == TUTTI_OK) (void)tutti_gpu_stream_sync(g.gpu, g.stream);
    }
    RANK_CHECK(rank, rank->index != VICTIM);
    check_death(&g, plan, words);
}

static void run_deaths(uint32_t n_runs, rank_function function, struct plan plan)
{
    if (!ranks_can_fork()) skip();
    plan.death_ns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t random = test_seed();
    for (uint32_t i = 0; i < n_runs; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        plan.delay_ns = 1000000 + (random >> 17) % 200000000;
        struct ranks_config config = {.n = gpu_ranks_at_most(2 + i % 2),
                                      .forked = true,
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
    run_deaths(2, wait_for_the_dead, (struct plan){.says = " in recv from rank 1 (40 bytes)", .receives = true});
}
static void deaths_within(void **state)
{
    (void)state;
    run_deaths(gpu_ranks_stand_in() ? 2 : 6, call_until_a_death, (struct plan){.says = "all_reduce"});
}

static void deaths_in_replays(void **state)
{
    (void)state;
    run_deaths(2, replay_for_the_dead, (struct plan){.says = "1000 elements"});
}

/* ---- a rank that has left: what it has sent comes, what it has not is not waited for ---- */

/* Another communicator of the same ranks, which has made a call. */
static void open_second(struct gpu_rank *g, uint32_t *words, struct tutti_comm **comm)
{
    struct rank *rank = g->rank;
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, comm));
    RANK_CHECK_OK(rank, call(g, *comm, words, 1000));
    RANK_CHECK_OK(rank, tutti_gpu_stream_sync(g->gpu, g->stream));
}

static void outlive(struct rank *rank)
{
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
        RANK_CHECK_OK(rank, tutti_gpu_copy_now(g.gpu, words, &(uint32_t){42}, 4));
        RANK_CHECK_OK(rank, tutti_send(words, 10, TUTTI_UINT32, 0, 0, comm, &options, NULL));
        tutti_comm_destroy(comm);
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    } else {
        nap_ns(300000000);
        RANK_CHECK_OK(rank, receive(&g, comm, words, UINT64_C(20000000000)));
        RANK_CHECK_OK(rank, tutti_gpu_stream_sync(g.gpu, g.stream));
        RANK_CHECK_OK(rank, tutti_gpu_copy_now(g.gpu, &word, words, 4));
        RANK_CHECK(rank, word == 42);
        RANK_CHECK_OK(rank, tutti_comm_state(comm, NULL));
        uint64_t start = now_ns();
        RANK_CHECK_OK(rank, receive(&g, comm, words, UINT64_C(20000000000)));
        enum tutti_status status = outcome(&g, comm, &error);
        if (status != TUTTI_ERR_PEER_LEFT || now_ns() - start > LIMIT_NS ||
            !strstr(error.text,
                    "rank 1 left the communicator while rank 0 waited for it in recv from rank 1 (40 bytes)"))
            rank_fail(rank, __FILE__, __LINE__, "%s \"%s\"", tutti_status_name(status), error.text);
        tutti_comm_destroy(comm);
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    }
}

static void leaving(void **state)
{
    (void)state;
    assert_int_equal(ranks_forked(2, outlive, NULL), 0);
}

/* ---- without a death: every rank sees the same failure ---- */

struct wrong {
    enum tutti_status status;
    const char *says;
    enum tutti_status (*act)(struct gpu_rank *g, uint32_t *words);
    uint64_t timeout_ns; /* from here on: opening takes a while */
};

static void go_wrong(struct rank *rank)
{
    const struct wrong *wrong = rank->arg;
    struct tutti_error error = {0};
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *words = gpu_rank_words(&g, WORDS);
    if (!words) return;
    connect_all(&g, words);
    tutti_comm_set_timeout(rank->comm, wrong->timeout_ns);
    enum tutti_status status = wrong->act(&g, words);
    if (status == TUTTI_OK) status = outcome(&g, rank->comm, &error);
    if (error.status == TUTTI_OK) error = *tutti_last_error();
    if (status != wrong->status || !strstr(error.text, wrong->says)) {
        rank_fail(rank, __FILE__, __LINE__, "%s \"%s\" instead of %s \"...%s...\"", tutti_status_name(status),
                  error.text, tutti_status_name(wrong->status), wrong->says);
        return;
    }
    struct tutti_comm *again = NULL;
    RANK_CHECK_OK(rank, tutti_comm_shrink(rank->comm, NULL, 0, &again));
    tutti_comm_set_timeout(again, UINT64_C(20000000000));
    RANK_CHECK_OK(rank, call(&g, again, words, WORDS));
    RANK_CHECK_OK(rank, tutti_gpu_stream_sync(g.gpu, g.stream));
    RANK_CHECK_OK(rank, tutti_comm_state(again, NULL));
    RANK_CHECK_OK(rank, tutti_barrier(again, NULL, NULL));
    tutti_comm_destroy(again);
}

static enum tutti_status stay_away(struct gpu_rank *g, uint32_t *words)
{
    return g->rank->index == VICTIM ? TUTTI_OK : call(g, g->rank->comm, words, 1000);
}
static enum tutti_status call_within(struct gpu_rank *g, uint32_t *words, uint64_t timeout_ns)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = g->stream;
    options.timeout_ns = timeout_ns;
    return tutti_all_reduce(words, words, 1000, TUTTI_UINT32, TUTTI_SUM, g->rank->comm, &options, NULL);
}
/* The sentence has the deadline of the call that waited, not that of the one behind. */
static enum tutti_status stay_away_from_two(struct gpu_rank *g, uint32_t *words)
{
    if (g->rank->index == VICTIM) return TUTTI_OK;
    enum tutti_status status = call_within(g, words, UINT64_C(1000000000));
    return status < 0 ? status : call_within(g, words, UINT64_C(20000000000));
}
/* What a group fuses waits as long as the least of its deadlines. */
static enum tutti_status stay_away_from_a_group(struct gpu_rank *g, uint32_t *words)
{
    if (g->rank->index == VICTIM) return TUTTI_OK;
    enum tutti_status status = tutti_group_start();
    if (status == TUTTI_OK) status = call_within(g, words, UINT64_C(20000000000));
    if (status == TUTTI_OK) status = call_within(g, words + 1000, UINT64_C(1000000000));
    return status < 0 ? status : tutti_group_end(NULL);
}
static enum tutti_status stay_away_from_a_message(struct gpu_rank *g, uint32_t *words)
{
    if (g->rank->index == VICTIM) return TUTTI_OK;
    enum tutti_status status = receive(g, g->rank->comm, words, UINT64_C(1000000000));
    return status < 0 ? status : call_within(g, words, UINT64_C(20000000000));
}
/* Who relays has come, and waits for one that has not; who waits for it says who has not. */
static enum tutti_status stay_away_from_a_relay(struct gpu_rank *g, uint32_t *words)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = g->stream;
    options.algorithm = "cuda:relay";
    if (g->rank->index == VICTIM) return TUTTI_OK;
    if (g->rank->index == 3) options.timeout_ns = UINT64_C(2000000000);
    return tutti_broadcast(words, 1000, TUTTI_UINT32, VICTIM, g->rank->comm, &options, NULL);
}
static enum tutti_status differ(struct gpu_rank *g, uint32_t *words)
{
    return call(g, g->rank->comm, words, g->rank->index == VICTIM ? 1000 : 2000);
}
static enum tutti_status take_host_memory(struct gpu_rank *g, uint32_t *words)
{
    uint32_t host[1000] = {0};
    if (g->rank->index != VICTIM) return call(g, g->rank->comm, words, 1000);
    return tutti_all_reduce(host, host, 1000, TUTTI_UINT32, TUTTI_SUM, g->rank->comm, NULL, NULL);
}
static enum tutti_status replay_without(struct gpu_rank *g, uint32_t *words)
{
    return replay(g, words, g->rank->index != VICTIM);
}
static enum tutti_status abort_soon(struct gpu_rank *g, uint32_t *words)
{
    if (g->rank->index == VICTIM) {
        nap_ns(50000000);
        tutti_comm_abort(g->rank->comm, "enough of it");
        return TUTTI_OK;
    }
    return call(g, g->rank->comm, words, 1000);
}
static enum tutti_status abort_a_replay(struct gpu_rank *g, uint32_t *words)
{
    enum tutti_status status = replay(g, words, g->rank->index != VICTIM);
    if (status < 0 || g->rank->index != VICTIM) return status;
    nap_ns(50000000);
    tutti_comm_abort(g->rank->comm, "enough of it");
    return TUTTI_OK;
}

static void add(const void *left, const void *right, void *out, size_t count, enum tutti_dtype dtype, void *arg)
{
    const uint32_t *a = left, *b = right;
    uint32_t *sum = out;
    (void)dtype, (void)arg;
    for (size_t i = 0; i < count; i++) sum[i] = a[i] + b[i];
}
/* The caller waits for a work while the communicator fails that has made calls through the host. */
static enum tutti_status abort_behind_the_host(struct gpu_rank *g, uint32_t *words)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    struct tutti_work *work = NULL;
    struct tutti_comm *comm = g->rank->comm;
    enum tutti_op op = TUTTI_SUM;
    options.stream = g->stream;
    enum tutti_status status = tutti_op_create(g->rank->context, add, NULL, true, &op);
    if (status >= 0) status = tutti_all_reduce(words, words, 1000, TUTTI_UINT32, op, comm, &options, NULL);
    if (status >= 0) status = tutti_gpu_stream_sync(g->gpu, g->stream);
    if (status < 0) return status;
    if (g->rank->index == VICTIM) return abort_soon(g, words);
    status = tutti_all_reduce(words, words, 1000, TUTTI_UINT32, TUTTI_SUM, comm, &options, &work);
    if (status >= 0) status = tutti_work_wait(work, UINT64_C(20000000000));
    tutti_work_free(work);
    return status;
}

static void run_wrong(uint32_t n, struct wrong wrong)
{
    struct ranks_config config = {.n = n, .forked = true, .deadline_s = 60, .arg = &wrong};
    assert_int_equal(ranks_run(&config, go_wrong), 0);
}

/* A communicator may go as soon as the device is idle: a work that is held says how it ended. */
static void destroy_at_once(struct rank *rank)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    struct tutti_work *work = NULL;
    struct tutti_comm *comm = NULL;
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *words = gpu_rank_words(&g, WORDS);
    if (!words) return;
    open_second(&g, words, &comm);
    if (rank->failure[0]) return;
    options.stream = g.stream;
    options.timeout_ns = UINT64_C(1000000000);
    if (rank->index != VICTIM) {
        RANK_CHECK_OK(rank, tutti_all_reduce(words, words, 1000, TUTTI_UINT32, TUTTI_SUM, comm, &options, &work));
        RANK_CHECK_OK(rank, tutti_gpu_stream_sync(g.gpu, g.stream));
        tutti_comm_destroy(comm);
        RANK_CHECK_ERROR(rank, TUTTI_ERR_TIMEOUT, "waiting for rank 1", tutti_work_wait(work, UINT64_C(20000000000)));
        tutti_work_free(work);
    }
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    if (rank->index == VICTIM) tutti_comm_destroy(comm);
}

static void works_of_the_gone(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) assert_int_equal(ranks_forked(2, destroy_at_once, NULL), 0);
}

static void deadlines(void **state)
{
    (void)state;
    run_wrong(2, (struct wrong){TUTTI_ERR_TIMEOUT, "rank 1", stay_away, UINT64_C(1000000000)});
    run_wrong(
        2, (struct wrong){TUTTI_ERR_TIMEOUT, "after 1.0 s on the device", stay_away_from_two, UINT64_C(20000000000)});
    run_wrong(2, (struct wrong){TUTTI_ERR_TIMEOUT, "on rank 0 after 1.0 s on the device, waiting for rank 1",
                                stay_away_from_a_message, UINT64_C(20000000000)});
    if (gpu_ranks_by_nccl()) return; /* which has no deadlines in replays, fuses nothing and has no methods */
    run_wrong(2, (struct wrong){TUTTI_ERR_TIMEOUT, "waiting for rank 1", replay_without, UINT64_C(1000000000)});
    run_wrong(2, (struct wrong){TUTTI_ERR_TIMEOUT, "after 1.0 s on the device", stay_away_from_a_group,
                                UINT64_C(20000000000)});
    run_wrong(4, (struct wrong){TUTTI_ERR_TIMEOUT, "on rank 3 after 2.0 s on the device, waiting for rank 1",
                                stay_away_from_a_relay, UINT64_C(20000000000)});
}
static void mismatches(void **state)
{
    (void)state;
    run_wrong(2, (struct wrong){TUTTI_ERR_MISMATCH, "1000 elements", differ, UINT64_C(30000000000)});
    run_wrong(2, (struct wrong){TUTTI_ERR_MISMATCH, "rank 1 did not", take_host_memory, UINT64_C(30000000000)});
}
static void aborts(void **state)
{
    (void)state;
    run_wrong(2, (struct wrong){TUTTI_ERR_ABORTED, "enough of it", abort_soon, UINT64_C(30000000000)});
    run_wrong(2, (struct wrong){TUTTI_ERR_ABORTED, "enough of it", abort_a_replay, UINT64_C(30000000000)});
    run_wrong(2, (struct wrong){TUTTI_ERR_ABORTED, "enough of it", abort_behind_the_host, UINT64_C(30000000000)});
}

int main(void)
{
    gpu_ranks_need_device();
    gpu_ranks_need_two();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deaths_before),     cmocka_unit_test(deaths_within),
        cmocka_unit_test(deaths_in_replays), cmocka_unit_test(leaving),
        cmocka_unit_test(works_of_the_gone), cmocka_unit_test(deadlines),
        cmocka_unit_test(mismatches),        cmocka_unit_test(aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
