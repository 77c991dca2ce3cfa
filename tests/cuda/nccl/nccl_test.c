/* SPDX-License-Identifier: BSD-3-Clause */
/* The back end nccl alone: messages, what a call's algorithm names, its first call, and what goes wrong within the
 * library, which only the stand-in does when it is told to (tests/standin/nccl): each time with the sentence, and the
 * process goes on. What it has in common with cuda is tested by the programs that run once more with TUTTI_GPU=nccl. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"

#include "backend/library/nccl.h"
#include "comm/call/device.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 30001 };
#define SECOND UINT64_C(1000000000)

static uint64_t enqueued(const struct rank *rank)
{
    const struct tutti_comm_device *device = rank->comm->device;
    for (uint32_t b = 0; b < device->n; b++)
        if (strcmp(device->backends[b]->ops->name, "nccl") == 0)
            return atomic_load(&library_of(device->backends[b])->watched.n_enqueued);
    return 0;
}

static enum tutti_status sum(struct gpu_rank *g, struct tutti_comm *comm, uint32_t *words, size_t n, const char *by)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = g->stream;
    options.algorithm = by;
    return tutti_all_reduce(words, words, n, TUTTI_UINT32, TUTTI_SUM, comm, &options, NULL);
}

/* Each word of every rank is 1: it is n then. */
static void check_sum(struct gpu_rank *g, struct tutti_comm *comm, uint32_t *words, const char *by)
{
    struct rank *rank = g->rank;
    uint32_t *host = rank_alloc(rank, WORDS * 4);
    for (size_t i = 0; i < WORDS; i++) host[i] = 1;
    RANK_CHECK_OK(rank, tutti_cuda_copy_now(g->gpu, words, host, WORDS * 4));
    RANK_CHECK_OK(rank, sum(g, comm, words, WORDS, by));
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(g->gpu, g->stream));
    RANK_CHECK_OK(rank, tutti_comm_state(comm, NULL));
    RANK_CHECK_OK(rank, tutti_cuda_copy_now(g->gpu, host, words, WORDS * 4));
    for (size_t i = 0; i < WORDS; i++) RANK_CHECK(rank, host[i] == (uint32_t)tutti_comm_size(comm));
}

static unsigned run(uint32_t n, rank_function function, const char *gpu, void *arg)
{
    const struct tutti_option options[] = {{"gpu", gpu}};
    struct ranks_config config = {
        .n = gpu_ranks_at_most(n), .forked = true, .options = options, .n_options = 1, .arg = arg};
    return ranks_run(&config, function);
}

/* ---- which calls it serves ---- */

static void by_name(struct rank *rank)
{
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *words = gpu_rank_words(&g, WORDS);
    if (!words) return;
    check_sum(&g, rank->comm, words, "nccl");
    RANK_CHECK(rank, rank->failure[0] || enqueued(rank) == 1);
    check_sum(&g, rank->comm, words, "cuda");
    RANK_CHECK(rank, rank->failure[0] || enqueued(rank) == 1);
    check_sum(&g, rank->comm, words, "nccl"); /* behind those of the other one */
    RANK_CHECK(rank, rank->failure[0] || enqueued(rank) == 2);
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "can not run this call", sum(&g, rank->comm, words, 1, "nccl:ring"));
    gpu_rank_leave(&g);
}

static void named_by_calls(void **state)
{
    (void)state;
    assert_int_equal(run(2, by_name, "auto", NULL), 0);
}

static void capture_first(struct rank *rank)
{
    struct gpu_rank g;
    void *graph = NULL;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *words = gpu_rank_words(&g, WORDS);
    if (!words) return;
    GPU_CHECK_OK(&g, tutti_cuda_graph_begin(g.gpu, g.stream));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "can not be captured", sum(&g, rank->comm, words, WORDS, NULL));
    GPU_CHECK_OK(&g, tutti_cuda_graph_end(g.gpu, g.stream, &graph));
    tutti_cuda_graph_destroy(g.gpu, graph);
    check_sum(&g, rank->comm, words, NULL);
    gpu_rank_leave(&g);
}

static void a_captured_first_call(void **state)
{
    (void)state;
    assert_int_equal(run(2, capture_first, "nccl", NULL), 0);
}

/* Out of place, so that what is left out is seen: it stays 0. */
static void check_scaled(struct gpu_rank *g, size_t n, enum tutti_op op, double factor)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    double *device = (double *)(void *)gpu_rank_words(g, 4 * n), *host = rank_alloc(g->rank, n * sizeof *host);
    if (!device) return;
    for (size_t i = 0; i < n; i++) host[i] = 1 + (double)i;
    options.stream = g->stream;
    options.premul_value = factor;
    GPU_CHECK_OK(g, tutti_cuda_copy_now(g->gpu, device, host, n * sizeof *host));
    GPU_CHECK_OK(g, tutti_all_reduce(device, device + n, n, TUTTI_FLOAT64, op, g->rank->comm, &options, NULL));
    GPU_CHECK_OK(g, tutti_cuda_stream_sync(g->gpu, g->stream));
    GPU_CHECK_OK(g, tutti_cuda_copy_now(g->gpu, host, device + n, n * sizeof *host));
    for (size_t i = 0; i < n; i++) RANK_CHECK(g->rank, host[i] == factor * (1 + (double)i));
    tutti_cuda_free(g->gpu, device);
}

static void alone(struct rank *rank)
{
    static const size_t counts[] = {1, 4099, 40009, 300007};
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    for (size_t i = 0; i < sizeof counts / sizeof *counts && !rank->failure[0]; i++) {
        check_scaled(&g, counts[i], TUTTI_AVG, 1);
        check_scaled(&g, counts[i], TUTTI_PREMUL_SUM, 2.5);
        RANK_CHECK(rank, enqueued(rank) == i + 1);
    }
    gpu_rank_leave(&g);
}

/* NCCL's kernel for one rank leaves some out. */
static void scaled_alone(void **state)
{
    (void)state;
    assert_int_equal(run(1, alone, "nccl", NULL), 0);
}

/* ---- captured on two streams that know nothing of one another: all members run the calls in one order ---- */

static enum tutti_status capture_two(struct gpu_rank *g, void *other, void *event, uint32_t *words, void **graph)
{
    struct gpu_rank second = {.rank = g->rank, .gpu = g->gpu, .stream = other};
    enum tutti_status status = tutti_cuda_graph_begin(g->gpu, g->stream);
    if (status >= 0) status = tutti_cuda_event_record(g->gpu, event, g->stream);
    if (status >= 0) status = tutti_cuda_stream_wait(g->gpu, other, event);
    for (int i = 0; i < 4 && status >= 0; i++)
        status = sum(i % 2 ? &second : g, g->rank->comm, words + i * WORDS, WORDS, NULL);
    if (status >= 0) status = tutti_cuda_event_record(g->gpu, event, other);
    if (status >= 0) status = tutti_cuda_stream_wait(g->gpu, g->stream, event);
    return status < 0 ? status : tutti_cuda_graph_end(g->gpu, g->stream, graph);
}

static void two_streams(struct rank *rank)
{
    struct gpu_rank g;
    void *other = NULL, *event = NULL, *graph = NULL;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *words = gpu_rank_words(&g, 4 * WORDS), *host = rank_alloc(rank, 4 * WORDS * 4), want = 1;
    if (!words) return;
    check_sum(&g, rank->comm, words, NULL);
    if (rank->failure[0]) return;
    GPU_CHECK_OK(&g, tutti_cuda_stream_create(g.gpu, &other));
    GPU_CHECK_OK(&g, tutti_cuda_event_create(g.gpu, false, &event));
    GPU_CHECK_OK(&g, capture_two(&g, other, event, words, &graph));
    for (size_t i = 0; i < 4 * WORDS; i++) host[i] = 1;
    GPU_CHECK_OK(&g, tutti_cuda_copy_now(g.gpu, words, host, 4 * WORDS * 4));
    for (int round = 0; round < 8; round++, want *= (uint32_t)rank->n)
        GPU_CHECK_OK(&g, tutti_cuda_graph_launch(g.gpu, graph, g.stream));
    GPU_CHECK_OK(&g, tutti_cuda_stream_sync(g.gpu, g.stream));
    RANK_CHECK_OK(rank, tutti_comm_state(rank->comm, NULL));
    GPU_CHECK_OK(&g, tutti_cuda_copy_now(g.gpu, host, words, 4 * WORDS * 4));
    for (size_t i = 0; i < 4 * WORDS; i++) RANK_CHECK(rank, host[i] == want);
    tutti_cuda_graph_destroy(g.gpu, graph);
    tutti_cuda_event_destroy(g.gpu, event);
    tutti_cuda_stream_destroy(g.gpu, other);
    gpu_rank_leave(&g);
}

static void one_order_in_captures(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 3; n++) assert_int_equal(run(n, two_streams, "nccl", NULL), 0);
}

/* ---- messages ---- */

/* To oneself: what has no counterpart of its size is refused. Outside of groups nothing else becomes of it. */
static void to_oneself(struct rank *rank)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    struct tutti_comm *comm = NULL;
    const int32_t me = rank->index;
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *words = gpu_rank_words(&g, WORDS);
    if (!words) return;
    options.stream = g.stream;
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &comm));
    RANK_CHECK_STATUS(rank, TUTTI_ERR_ARGUMENT, tutti_send(words, 4, TUTTI_UINT32, me, 0, comm, &options, NULL));
    RANK_CHECK_STATUS(rank, TUTTI_ERR_ARGUMENT, tutti_recv(words, 4, TUTTI_UINT32, me, 0, comm, &options, NULL, NULL));
    check_sum(&g, comm, words, NULL);
    if (rank->failure[0]) return;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    if (me == 0) {
        RANK_CHECK_OK(rank, tutti_group_start());
        RANK_CHECK_OK(rank, tutti_send(words, 4, TUTTI_UINT32, me, 0, comm, &options, NULL));
        RANK_CHECK_OK(rank, tutti_recv(words + 8, 5, TUTTI_UINT32, me, 0, comm, &options, NULL, NULL));
        RANK_CHECK_STATUS(rank, TUTTI_ERR_ARGUMENT, tutti_group_end(NULL));
    }
    tutti_comm_destroy(comm);
    gpu_rank_leave(&g);
}

static void messages_to_oneself(void **state)
{
    (void)state;
    assert_int_equal(run(2, to_oneself, "nccl", NULL), 0);
    assert_int_equal(run(2, to_oneself, "cuda", NULL), 0);
}

/* ---- what stays ---- */

/* The memory of the host that all ranks map. */
static size_t heap_bytes(void)
{
    struct stat found = {.st_blocks = 0};
    char path[32], link[64];
    for (int fd = 3; fd < 256; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        const ssize_t n = readlink(path, link, sizeof link);
        if (n > 0 && memmem(link, (size_t)n, "tutti-heap", 10) && fstat(fd, &found) == 0) break;
    }
    return (size_t)found.st_blocks * 512;
}

static void come_and_go(struct rank *rank)
{
    enum { TIMES = 100 };
    struct gpu_rank g;
    size_t bytes[3];
    if (!gpu_rank_open(rank, &g)) return;
    for (int i = 0; i < 3 * TIMES; i++) {
        struct tutti_comm *comm = NULL;
        RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &comm));
        tutti_comm_destroy(comm);
        bytes[i / TIMES] = heap_bytes();
    }
    /* Ranks are not in step: what a communicator or two take comes and goes. */
    RANK_CHECK(rank, bytes[0] > 0 && bytes[2] < bytes[0] + TIMES * sizeof(struct nccl_board));
    gpu_rank_leave(&g);
}

static void boards_of_the_gone(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip();
    assert_int_equal(run(2, come_and_go, "nccl", NULL), 0);
}

/* ---- what goes wrong within the library ---- */

struct wrong {
    const char *how; /* rank 1's library, at its second call */
    bool at_first;
    enum tutti_status status;
    const char *says;
    bool scales; /* by a factor that belongs to NCCL's communicator */
};

/* The same ranks, after a failure. */
static void go_on(struct gpu_rank *g, uint32_t *words)
{
    struct rank *rank = g->rank;
    struct tutti_comm *again = NULL;
    RANK_CHECK_OK(rank, tutti_comm_shrink(rank->comm, NULL, 0, &again));
    tutti_comm_set_timeout(again, 20 * SECOND);
    check_sum(g, again, words, NULL);
    if (rank->failure[0]) return;
    RANK_CHECK_OK(rank, tutti_barrier(again, NULL, NULL));
    tutti_comm_destroy(again);
}

static enum tutti_status scaled_sum(struct gpu_rank *g, uint32_t *words)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = g->stream;
    options.premul_value = 2;
    return tutti_all_reduce(words, words, WORDS, TUTTI_FLOAT32, TUTTI_PREMUL_SUM, g->rank->comm, &options, NULL);
}

static void go_wrong(struct rank *rank)
{
    const struct wrong *wrong = rank->arg;
    const struct timespec nap = {.tv_nsec = 1000000};
    struct tutti_error error = {0};
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *words = gpu_rank_words(&g, WORDS);
    if (!words) return;
    if (!wrong->at_first) check_sum(&g, rank->comm, words, NULL);
    tutti_comm_set_timeout(rank->comm, 2 * SECOND);
    if (rank->index == 1) setenv("TUTTI_STANDIN_NCCL", wrong->how, 1);
    const enum tutti_status status = wrong->scales ? scaled_sum(&g, words) : sum(&g, rank->comm, words, WORDS, NULL);
    if (status < 0) error = *tutti_last_error();
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(g.gpu, g.stream));
    while (error.status == TUTTI_OK && tutti_comm_state(rank->comm, &error) == TUTTI_OK) nanosleep(&nap, NULL);
    unsetenv("TUTTI_STANDIN_NCCL");
    if (error.status != wrong->status || !strstr(error.text, wrong->says)) {
        rank_fail(rank, __FILE__, __LINE__, "%s: \"%s\"", tutti_status_name(error.status), error.text);
        return;
    }
    go_on(&g, words);
}

static void wrong_within_the_library(void **state)
{
    (void)state;
    if (!gpu_ranks_stand_in() || !ranks_can_fork()) skip(); /* one process's library goes wrong */
    struct wrong wrongs[] = {
        {"refuses", false, TUTTI_ERR_SYSTEM,
         "failed on rank 1: ncclAllReduce on CUDA device 1: internal error: it was told to refuse", false},
        {"fails", false, TUTTI_ERR_SYSTEM, "failed on rank 1: NCCL on CUDA device 1: remote process exited", false},
        {"connects", false, TUTTI_ERR_TIMEOUT, "timed out", false},
        {"connects", true, TUTTI_ERR_TIMEOUT, "timed out", false},
        {"connects", false, TUTTI_ERR_TIMEOUT, "timed out", true},
    };
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++)
        assert_int_equal(run(2, go_wrong, "nccl", &wrongs[i]), 0);
}

/* One does not come to the first call, which waits for it within the library. */
static void stay_away(struct rank *rank)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    struct tutti_error error = {0};
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *words = gpu_rank_words(&g, WORDS);
    if (!words) return;
    tutti_comm_set_timeout(rank->comm, SECOND);
    if (rank->index != 1)
        RANK_CHECK_ERROR(rank, TUTTI_ERR_TIMEOUT, "waiting for rank 1", sum(&g, rank->comm, words, WORDS, NULL));
    while (tutti_comm_state(rank->comm, &error) == TUTTI_OK) nanosleep(&nap, NULL);
    RANK_CHECK(rank, error.status == TUTTI_ERR_TIMEOUT);
    go_on(&g, words);
}

static void who_stays_away_at_first(void **state)
{
    (void)state;
    assert_int_equal(run(2, stay_away, "nccl", NULL), 0);
}

/* One leaves without a call; the other one's message is none of its business, but the communicator would be. */
static void leave_at_first(struct rank *rank)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    struct tutti_comm *comm = NULL;
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *words = gpu_rank_words(&g, 2 * WORDS);
    if (!words) return;
    options.stream = g.stream;
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &comm));
    if (rank->index == 1) {
        RANK_CHECK_OK(rank, tutti_group_start());
        RANK_CHECK_OK(rank, tutti_send(words, WORDS, TUTTI_UINT32, 1, 0, comm, &options, NULL));
        RANK_CHECK_OK(rank, tutti_recv(words + WORDS, WORDS, TUTTI_UINT32, 1, 0, comm, &options, NULL, NULL));
        RANK_CHECK_ERROR(rank, TUTTI_ERR_PEER_LEFT, "rank 0 left", tutti_group_end(NULL));
    }
    tutti_comm_destroy(comm);
    gpu_rank_leave(&g);
}

static void who_leaves_at_first(void **state)
{
    (void)state;
    assert_int_equal(run(2, leave_at_first, "nccl", NULL), 0);
}

/* One aborts while the other one's library is getting going. */
static void abort_at_first(struct rank *rank)
{
    const struct timespec nap = {.tv_nsec = 300000000};
    struct tutti_comm *comm = NULL;
    struct gpu_rank g;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *words = gpu_rank_words(&g, WORDS);
    if (!words) return;
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &comm));
    tutti_comm_set_timeout(comm, 3 * SECOND);
    if (rank->index == 0) {
        setenv("TUTTI_STANDIN_NCCL_SLOW", "1500", 1);
        RANK_CHECK_ERROR(rank, TUTTI_ERR_ABORTED, "aborted", sum(&g, comm, words, WORDS, NULL));
    } else {
        nanosleep(&nap, NULL);
        tutti_comm_abort(comm, "enough");
    }
    tutti_comm_destroy(comm);
    gpu_rank_leave(&g);
}

static void who_aborts_at_first(void **state)
{
    (void)state;
    if (!gpu_ranks_stand_in()) skip();
    assert_int_equal(run(2, abort_at_first, "nccl", NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_by_calls),          cmocka_unit_test(a_captured_first_call),
        cmocka_unit_test(one_order_in_captures),   cmocka_unit_test(messages_to_oneself),
        cmocka_unit_test(boards_of_the_gone),      cmocka_unit_test(wrong_within_the_library),
        cmocka_unit_test(who_stays_away_at_first), cmocka_unit_test(who_leaves_at_first),
        cmocka_unit_test(who_aborts_at_first),     cmocka_unit_test(scaled_alone),
    };
    setenv("TUTTI_GPU", "nccl", 1); /* what needs it, and two devices, is skipped */
    gpu_ranks_need_device();
    gpu_ranks_need_two();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
