/* SPDX-License-Identifier: BSD-3-Clause */
/* What remains of a call that its rank has given up: what comes behind it sends nothing that a peer, who may come to
 * that call yet, takes for its data; and what was enqueued of it is over before the communicator is gone. What remains
 * of a communicator: nothing where its ranks could not be one, and all of it where nobody knows what still runs. */

#include "failures_test.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { FEW = 1000, MANY = 40009 };

static enum tutti_status sum(struct gpu_rank *g, struct tutti_comm *comm, uint32_t *in, uint32_t *out, size_t n,
                             const char *algorithm, uint64_t timeout_ns)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = g->stream;
    options.algorithm = algorithm;
    options.timeout_ns = timeout_ns;
    return tutti_all_reduce(in, out, n, TUTTI_UINT32, TUTTI_SUM, comm, &options, NULL);
}

static uint32_t *filled(struct gpu_rank *g, uint32_t value)
{
    uint32_t *words = gpu_rank_words(g, FEW), host[FEW];
    for (int i = 0; i < FEW; i++) host[i] = value;
    if (words && tutti_cuda_copy_now(g->gpu, words, host, sizeof host) == TUTTI_OK) return words;
    rank_fail(g->rank, __FILE__, __LINE__, "%d words of %u", FEW, value);
    return NULL;
}

/* ---- what comes behind ---- */

/* Rank 0 gives up a call, and has another one behind it, while the victim's stream is held up; which comes to the first
 * one then. */
static void come_late(struct gpu_rank *g, const char *algorithm)
{
    enum { FIRST = 3, SECOND = 1000 };
    struct rank *rank = g->rank;
    struct tutti_comm *comm = NULL;
    uint32_t *first = filled(g, FIRST), *second = filled(g, SECOND), *out = filled(g, 0), *other = filled(g, 0);
    uint32_t *gate = gpu_rank_host_words(g, 1), got[FEW];
    if (rank->failure[0]) return;
    *gate = 0;
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &comm));
    if (rank->index == VICTIM) {
        RANK_CHECK_OK(rank, tutti_cuda_stream_wait_word(g->gpu, g->stream, gate, 1));
        RANK_CHECK_OK(rank, sum(g, comm, first, out, FEW, algorithm, 0));
    }
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    if (rank->index != VICTIM) {
        RANK_CHECK_OK(rank, sum(g, comm, first, out, FEW, algorithm, UINT64_C(300000000)));
        RANK_CHECK_OK(rank, sum(g, comm, second, other, FEW, algorithm, 0));
        RANK_CHECK_OK(rank, tutti_cuda_stream_sync(g->gpu, g->stream));
    }
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    __atomic_store_n(gate, 1, __ATOMIC_SEQ_CST);
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(g->gpu, g->stream));
    RANK_CHECK_OK(rank, tutti_cuda_copy_now(g->gpu, got, out, sizeof got));
    for (int i = 0; i < FEW && rank->index == VICTIM && !rank->failure[0]; i++)
        if (got[i] != 0 && got[i] != 2 * FIRST) /* it may have been stopped, too */
            rank_fail(rank, __FILE__, __LINE__, "%s: word %d is %u instead of %d", algorithm, i, got[i], 2 * FIRST);
    tutti_comm_destroy(comm);
}

static void come_late_by_each(struct rank *rank)
{
    static const char *const algorithms[] = {"cuda:lines", "cuda:sentinel", "cuda:tiles"};
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms && !rank->failure[0]; i++)
        come_late(&g, algorithms[i]);
}

static void late_peers(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(2, come_late_by_each, NULL), 0);
}

/* ---- half a call ---- */

static _Thread_local int n_launches; /* this thread's, until one fails; 0: none does */
static _Atomic(uint32_t *) held;     /* what a stream waits for until somebody asks what is over */
static _Atomic bool freed_early;
static _Atomic int n_freed; /* as closing does at last */

enum tutti_status __real_tutti_cuda_launch(struct tutti_device *gpu, const struct tutti_gpu_launch *launch,
                                           const void *args);
enum tutti_status __wrap_tutti_cuda_launch(struct tutti_device *gpu, const struct tutti_gpu_launch *launch,
                                           const void *args);
enum tutti_status __wrap_tutti_cuda_launch(struct tutti_device *gpu, const struct tutti_gpu_launch *launch,
                                           const void *args)
{
    if (n_launches > 0 && --n_launches == 0) return tutti_fail(TUTTI_ERR_MEMORY, "this launch was to fail");
    return __real_tutti_cuda_launch(gpu, launch, args);
}

static bool let_go(void)
{
    uint32_t *gate = atomic_exchange(&held, NULL);
    if (gate) __atomic_store_n(gate, 1, __ATOMIC_SEQ_CST);
    return gate != NULL;
}

enum tutti_status __real_tutti_cuda_event_query(struct tutti_device *gpu, void *event);
enum tutti_status __wrap_tutti_cuda_event_query(struct tutti_device *gpu, void *event);
enum tutti_status __wrap_tutti_cuda_event_query(struct tutti_device *gpu, void *event)
{
    (void)let_go();
    return __real_tutti_cuda_event_query(gpu, event);
}

void __real_tutti_cuda_free_host(struct tutti_device *gpu, void *pointer);
void __wrap_tutti_cuda_free_host(struct tutti_device *gpu, void *pointer);
void __wrap_tutti_cuda_free_host(struct tutti_device *gpu, void *pointer)
{
    if (let_go()) atomic_store(&freed_early, true);
    atomic_fetch_add(&n_freed, 1);
    __real_tutti_cuda_free_host(gpu, pointer);
}

static enum tutti_status in_two_launches(struct gpu_rank *g, struct tutti_comm *comm, uint32_t *words)
{
    return sum(g, comm, words, words + MANY, MANY, "cuda:tiles2", 0);
}

/* What depends on one another is not fused. */
static enum tutti_status in_a_group(struct gpu_rank *g, struct tutti_comm *comm, uint32_t *words)
{
    enum tutti_status status = tutti_group_start();
    if (status >= 0) status = sum(g, comm, words, words + FEW, FEW, NULL, 0);
    if (status >= 0) status = sum(g, comm, words + FEW, words + 2 * FEW, FEW, NULL, 0);
    return status < 0 ? status : tutti_group_end(NULL);
}

/* Nothing is given back before the first launch of a call whose second one fails. */
static void fail_half_way(struct rank *rank)
{
    enum tutti_status (*const calls[])(struct gpu_rank *, struct tutti_comm *, uint32_t *) = {in_two_launches,
                                                                                              in_a_group};
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *words = gpu_rank_words(&g, 2 * MANY), *gate = gpu_rank_host_words(&g, 1);
    for (size_t i = 0; i < sizeof calls / sizeof *calls && words && gate; i++) {
        struct tutti_comm *comm = NULL;
        RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &comm));
        if (rank->index == 0) {
            *gate = 0;
            RANK_CHECK_OK(rank, tutti_cuda_stream_wait_word(g.gpu, g.stream, gate, 1));
            n_launches = 2;
            RANK_CHECK_ERROR(rank, TUTTI_ERR_MEMORY, "this launch was to fail", calls[i](&g, comm, words));
            atomic_store(&held, gate);
            tutti_comm_destroy(comm);
            RANK_CHECK(rank, !atomic_load(&freed_early));
            RANK_CHECK_OK(rank, tutti_cuda_stream_query(g.gpu, g.stream));
        }
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
        if (rank->index != 0) tutti_comm_destroy(comm);
    }
}

static void half_calls(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(3, fail_half_way, NULL), 0);
}

/* ---- ranks of different builds ---- */

static bool other_build;
static void *scratch; /* that there is */
static int n_scratch; /* that there was */

const char *__real_tutti_cuda_built_for(void);
const char *__wrap_tutti_cuda_built_for(void);
const char *__wrap_tutti_cuda_built_for(void)
{
    return other_build ? "another GPU" : __real_tutti_cuda_built_for();
}

enum tutti_status __real_tutti_cuda_alloc_shared(struct tutti_device *gpu, enum tutti_device_share share, size_t bytes,
                                                 void **out);
enum tutti_status __wrap_tutti_cuda_alloc_shared(struct tutti_device *gpu, enum tutti_device_share share, size_t bytes,
                                                 void **out);
enum tutti_status __wrap_tutti_cuda_alloc_shared(struct tutti_device *gpu, enum tutti_device_share share, size_t bytes,
                                                 void **out)
{
    const enum tutti_status status = __real_tutti_cuda_alloc_shared(gpu, share, bytes, out);
    if (status == TUTTI_OK) scratch = *out, n_scratch++;
    return status;
}

void __real_tutti_cuda_free(struct tutti_device *gpu, void *pointer);
void __wrap_tutti_cuda_free(struct tutti_device *gpu, void *pointer);
void __wrap_tutti_cuda_free(struct tutti_device *gpu, void *pointer)
{
    if (pointer == scratch) scratch = NULL;
    __real_tutti_cuda_free(gpu, pointer);
}

/* No peer has mapped its scratch memory, so that no peer has to let go of it. */
static void differ(struct rank *rank)
{
    struct gpu_rank g;
    other_build = rank->index == VICTIM;
    if (!gpu_rank_open(rank, &g)) return;
    RANK_CHECK(rank, n_scratch > 0 && !scratch);
}

static void builds_that_differ(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip();
    assert_int_equal(ranks_forked(2, differ, NULL), 0);
}

/* ---- ranks without devices ---- */

/* Two of three open what nobody will use: its end waits for no peer, as none has seen anything of it. */
static void open_in_vain(struct rank *rank)
{
    struct gpu_rank g;
    if (rank->index == 2)
        RANK_CHECK_OK(rank, tutti_comm_set_device(rank->comm, TUTTI_DEVICE_NONE));
    else if (!gpu_rank_open(rank, &g))
        return;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    tutti_comm_destroy(rank->comm);
    clock_gettime(CLOCK_MONOTONIC, &to);
    rank->comm = NULL;
    RANK_CHECK(rank, (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000 < 900);
}

static void opened_in_vain(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(3, open_in_vain, NULL), 0);
}

/* ---- while something is captured ---- */

/* The device does not say then whether graphs still run. */
static void close_in_a_capture(struct rank *rank)
{
    struct gpu_rank g;
    struct tutti_comm *comm = NULL;
    void *graph = NULL, *other = NULL;
    char text[1000] = "";
    const int said = memfd_create("said", 0), standard = dup(STDERR_FILENO);
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *words = gpu_rank_words(&g, FEW);
    RANK_CHECK(rank, words && said >= 0 && standard >= 0);
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &comm));
    RANK_CHECK_OK(rank, tutti_cuda_graph_begin(g.gpu, g.stream));
    RANK_CHECK_OK(rank, call(&g, comm, words, FEW));
    RANK_CHECK_OK(rank, tutti_cuda_graph_end(g.gpu, g.stream, &graph));
    RANK_CHECK_OK(rank, tutti_cuda_graph_launch(g.gpu, graph, g.stream));
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(g.gpu, g.stream));
    RANK_CHECK_OK(rank, tutti_cuda_stream_create(g.gpu, &other));
    RANK_CHECK_OK(rank, tutti_cuda_graph_begin(g.gpu, other));
    atomic_store(&n_freed, 0);
    dup2(said, STDERR_FILENO);
    tutti_comm_destroy(comm);
    dup2(standard, STDERR_FILENO);
    RANK_CHECK(rank, atomic_load(&n_freed) == 0);
    RANK_CHECK(rank, pread(said, text, sizeof text - 1, 0) > 0 && strstr(text, "their memory stays taken"));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
}

static void closed_in_captures(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip();
    assert_int_equal(ranks_forked(2, close_in_a_capture, NULL), 0);
}

int main(void)
{
    gpu_ranks_need_device();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builds_that_differ), /* processes first: the driver does not survive a fork */
        cmocka_unit_test(closed_in_captures), cmocka_unit_test(opened_in_vain),
        cmocka_unit_test(late_peers),         cmocka_unit_test(half_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
