/* SPDX-License-Identifier: BSD-3-Clause */
/* What the back end nccl says of calls that get stuck on the device, over a library that moves nothing: the call that
 * waits, and its deadline, whatever is enqueued behind. */

#include "test.h"

#include "base/base.h"
#include "cuda/support/gpu_ranks.h"
#include "fake_nccl.h"

#include "backend/library/nccl.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS 4096
#define SECOND UINT64_C(1000000000)

/* An act of rank 0, while rank 1 calls nothing; and how that has to end. */
struct stuck {
    enum tutti_status (*act)(struct gpu_rank *g, struct tutti_comm *comm, uint32_t *words);
    enum tutti_status status;
    const char *call, *how;
    bool leaves; /* rank 1 does */
};

static enum tutti_status all_reduce(struct gpu_rank *g, struct tutti_comm *comm, uint32_t *words, size_t n,
                                    uint64_t timeout_ns)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = g->stream;
    options.timeout_ns = timeout_ns;
    return tutti_all_reduce(words, words, n, TUTTI_UINT32, TUTTI_SUM, comm, &options, NULL);
}

static enum tutti_status receive(struct gpu_rank *g, struct tutti_comm *comm, uint32_t *words, uint64_t timeout_ns)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = g->stream;
    options.timeout_ns = timeout_ns;
    return tutti_recv(words, FAKE_NCCL_STUCK, TUTTI_UINT8, 1, 0, comm, &options, NULL, NULL);
}

static enum tutti_status behind(struct gpu_rank *g, struct tutti_comm *comm, uint32_t *words, uint32_t n)
{
    enum tutti_status status = all_reduce(g, comm, words, FAKE_NCCL_STUCK, SECOND);
    for (uint32_t i = 0; i < n && status == TUTTI_OK; i++) status = all_reduce(g, comm, words, 10, 20 * SECOND);
    return status;
}

static enum tutti_status some_behind(struct gpu_rank *g, struct tutti_comm *comm, uint32_t *words)
{
    return behind(g, comm, words, 100);
}

/* The last of which waits until the watch has stopped the first. */
static enum tutti_status many_behind(struct gpu_rank *g, struct tutti_comm *comm, uint32_t *words)
{
    return behind(g, comm, words, 1000);
}

static enum tutti_status message_before(struct gpu_rank *g, struct tutti_comm *comm, uint32_t *words)
{
    enum tutti_status status = receive(g, comm, words, SECOND);
    return status < 0 ? status : all_reduce(g, comm, words, 10, 20 * SECOND);
}

static enum tutti_status message_alone(struct gpu_rank *g, struct tutti_comm *comm, uint32_t *words)
{
    return receive(g, comm, words, 20 * SECOND);
}

static void check_end(struct rank *rank, const struct stuck *stuck, struct gpu_rank *g, struct tutti_comm *comm,
                      uint32_t *words)
{
    struct tutti_error error = {0};
    const uint64_t until = tutti_now_ns() + 10 * SECOND;
    if (stuck->act(g, comm, words) < 0) error = *tutti_last_error();
    while (tutti_comm_state(comm, &error) == TUTTI_OK && tutti_now_ns() < until) tutti_sleep_ns(SECOND / 1000);
    if (error.status != stuck->status || !strstr(error.text, stuck->call) || !strstr(error.text, stuck->how))
        rank_fail(rank, __FILE__, __LINE__, "%s \"%s\" instead of %s \"...%s...%s...\"",
                  tutti_status_name(error.status), error.text, tutti_status_name(stuck->status), stuck->call,
                  stuck->how);
}

static void get_stuck(struct rank *rank)
{
    const struct stuck *stuck = rank->arg;
    struct gpu_rank g;
    struct tutti_comm *comm = NULL;
    if (!gpu_rank_open(rank, &g)) return;
    uint32_t *words = gpu_rank_words(&g, WORDS);
    if (!words) return;
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &comm));
    for (int i = 0; i < 100; i++) RANK_CHECK_OK(rank, all_reduce(&g, comm, words, 10, 20 * SECOND));
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(g.gpu, g.stream));
    if (rank->index == 0) check_end(rank, stuck, &g, comm, words);
    if (rank->failure[0]) return;
    if (rank->index == 1 && stuck->leaves) tutti_comm_destroy(comm);
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    if (rank->index == 0 || !stuck->leaves) tutti_comm_destroy(comm);
}

static void run(struct stuck stuck)
{
    const struct tutti_option options[] = {{"gpu", "nccl"}, {"nccl_library", TEST_FAKE_NCCL}};
    const struct ranks_config config = {.n = 2, .forked = true, .options = options, .n_options = 2, .arg = &stuck};
    assert_int_equal(ranks_run(&config, get_stuck), 0);
}

static void deadlines(void **state)
{
    (void)state;
    run((struct stuck){some_behind, TUTTI_ERR_TIMEOUT, "666 elements", "after 1000 ms on the device", false});
    run((struct stuck){many_behind, TUTTI_ERR_TIMEOUT, "666 elements", "after 1000 ms on the device", false});
    run((struct stuck){message_before, TUTTI_ERR_TIMEOUT, "recv from rank 1 (666 bytes)", "after 1000 ms on the device",
                       false});
}

static void leaving(void **state)
{
    (void)state;
    run((struct stuck){message_alone, TUTTI_ERR_PEER_LEFT, "rank 1 left the communicator",
                       "in recv from rank 1 (666 bytes)", true});
}

/* ---- which library, and on which devices ---- */

/* All on device 0. */
static void share(struct rank *rank)
{
    const char *refusal = rank->arg;
    struct gpu_rank g = {.rank = rank};
    if (refusal) {
        RANK_CHECK_ERROR(rank, TUTTI_ERR_UNSUPPORTED, refusal, tutti_comm_set_device(rank->comm, 0));
        return;
    }
    RANK_CHECK_OK(rank, tutti_comm_set_device(rank->comm, 0));
    RANK_CHECK_OK(rank, tutti_cuda_open(0, &g.gpu));
    RANK_CHECK_OK(rank, tutti_cuda_stream_create(g.gpu, &g.stream));
    uint32_t *words = gpu_rank_words(&g, WORDS);
    if (!words) return;
    RANK_CHECK_OK(rank, all_reduce(&g, rank->comm, words, 10, 20 * SECOND));
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(g.gpu, g.stream));
}

static void run_sharing(const char *version, const char *allowed, const char *refusal)
{
    const struct tutti_option options[] = {{"gpu", "nccl"}, {"nccl_library", TEST_FAKE_NCCL}};
    const struct ranks_config config = {
        .n = 2, .forked = true, .options = options, .n_options = 2, .arg = (void *)(uintptr_t)refusal};
    setenv("TEST_FAKE_NCCL_VERSION", version, 1);
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", allowed, 1);
    assert_int_equal(ranks_run(&config, share), 0);
}

static void sharing(void **state)
{
    const char *refusal = "ranks 0 and 1 share a GPU, which NCCL allows from 2.30 on";
    (void)state;
    if (!ranks_can_fork()) skip(); /* a process keeps the library that it has found */
    run_sharing("22907", "1", refusal);
    run_sharing("23000", "0", refusal);
    run_sharing("23000", "1", NULL);
    unsetenv("TEST_FAKE_NCCL_VERSION");
}

/* In a child, and first, as a process keeps its library. */
static void too_old(void **state)
{
    int status = -1;
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        setenv("TEST_FAKE_NCCL_VERSION", "21705", 1);
        if (nccl_library(TEST_FAKE_NCCL)) _exit(1);
        const bool old = strstr(tutti_last_error()->text, "NCCL 2.17.5 is here, and 2.18 or later is needed");
        setenv("TEST_FAKE_NCCL_VERSION", "21800", 1);
        _exit(old && nccl_library(TEST_FAKE_NCCL) ? 0 : 2);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    gpu_ranks_need_device();
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1); /* where there is one GPU */
    const struct CMUnitTest tests[] = {cmocka_unit_test(too_old), cmocka_unit_test(sharing),
                                       cmocka_unit_test(deadlines), cmocka_unit_test(leaving)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
