/* SPDX-License-Identifier: BSD-3-Clause */
/* tutti/device.cuh in the hands of kernels (kernels/window_cases.cu): all of it at the scopes of threads, warps and
 * blocks, with delays, odd sizes and offsets; what is refused; what a rank that does not come, or dies, does to it. */

#include "test.h"

#include "cuda/kernels/window_cases.h"
#include "cuda/support/gpu_ranks.h"
#include "cuda/support/mixed.h"
#include "cuda/support/test_kernels.h"

#include <signal.h>
#include <string.h>

enum { PART = 1 << 20, THREADS = 64, BLOCKS = 4 };

struct side {
    struct mixed m;
    struct rank *rank;
    struct tutti_window *window;
    struct window_case x; /* for all launches */
};

static void *device_memory(struct side *s, size_t bytes)
{
    void *memory = NULL;
    if (tutti_cuda_alloc(s->m.gpu, bytes, &memory) == TUTTI_OK &&
        tutti_cuda_set(s->m.gpu, memory, 0, bytes) == TUTTI_OK)
        return memory;
    rank_fail(s->rank, __FILE__, __LINE__, "no memory: %s", tutti_last_error()->text);
    return NULL;
}

static bool side_open(struct rank *rank, struct side *s)
{
    void *part = NULL;
    memset(s, 0, sizeof *s);
    s->rank = rank;
    if (!mixed_open(rank, &s->m)) return false;
    s->x.w.size = sizeof s->x.w;
    if (tutti_mem_alloc(rank->comm, PART, &part) < 0 ||
        tutti_window_create(rank->comm, part, PART, NULL, &s->window) < 0 ||
        tutti_window_device(s->window, &s->x.w) < 0) {
        rank_fail(rank, __FILE__, __LINE__, "no window: %s", tutti_last_error()->text);
        return false;
    }
    s->x.source = device_memory(s, PART);
    s->x.wrong = device_memory(s, WINDOW_CALLERS * sizeof(uint32_t));
    return s->x.source && s->x.wrong;
}

static void side_close(struct side *s)
{
    (void)mixed_sync(&s->m);
    (void)tutti_barrier(s->m.beside, NULL, NULL);
    tutti_window_destroy(s->window);
    tutti_cuda_free(s->m.gpu, s->x.source);
    tutti_cuda_free(s->m.gpu, s->x.wrong);
    mixed_close(&s->m);
}

static void *kernel(struct side *s, const char *name)
{
    const char *why = "";
    void *found = test_kernel(s->m.gpu, name, &why);
    if (!found) rank_fail(s->rank, __FILE__, __LINE__, "%s: %s", name, why);
    return found;
}

static bool launch(struct side *s, void *function, uint32_t blocks, uint32_t threads)
{
    const struct tutti_gpu_launch how = {
        .kernel = function, .stream = s->m.streams[0], .blocks = blocks, .threads = threads};
    struct tutti_device_scope scope;
    enum tutti_status status = tutti_cuda_enter(s->m.gpu, &scope);
    if (status >= 0) {
        status = tutti_cuda_launch(s->m.gpu, &how, &s->x);
        tutti_cuda_leave(&scope);
    }
    if (status < 0) rank_fail(s->rank, __FILE__, __LINE__, "launch: %s", tutti_last_error()->text);
    return status >= 0;
}

/* The callers of the scope, as many as the grid has. */
static bool launch_scope(struct side *s, void *function)
{
    static const uint32_t callers[] = {WINDOW_CALLERS, THREADS / 32, BLOCKS};
    s->x.callers = callers[s->x.scope];
    return launch(s, function, s->x.scope == WINDOW_BLOCK ? BLOCKS : 1, THREADS);
}

/* Nothing was wrong, or all callers found `each`. */
static bool found(struct side *s, uint32_t each)
{
    uint32_t wrong[WINDOW_CALLERS] = {0};
    if (!mixed_get(&s->m, wrong, s->x.wrong, sizeof wrong)) return false;
    for (uint32_t i = 0; i < s->x.callers; i++) {
        if (wrong[i] == each) continue;
        rank_fail(s->rank, __FILE__, __LINE__, "scope %u, caller %u, %llu bytes: %u wrong", s->x.scope, i,
                  (unsigned long long)s->x.bytes, wrong[i]);
        return false;
    }
    return true;
}

/* Signals are 0 on all ranks, and all have come. */
static bool meet(struct side *s)
{
    bool well = mixed_sync(&s->m);
    for (uint32_t i = 0; i < WINDOW_CALLERS && well; i++)
        well = tutti_signal_write(i, 0, s->window, &s->m.on[0]) == TUTTI_OK;
    return well && mixed_sync(&s->m) && tutti_barrier(s->m.beside, NULL, NULL) == TUTTI_OK;
}

static void transfers(struct rank *rank)
{
    static const struct {
        uint64_t bytes, stride, offset;
    } sizes[] = {{0, 0, 0}, {1, 1, 3}, {8, 8, 8}, {257, 257, 1}, {4096, 4096, 0}, {4100, 4100, 4}, {10000, 10016, 32}};
    struct side s;
    if (!side_open(rank, &s)) return;
    void *ring = kernel(&s, "case_ring"), *pointers = kernel(&s, "case_pointers");
    RANK_CHECK(rank, ring && pointers);
    const uint32_t step = gpu_ranks_stand_in() ? 2 : 1, from = (uint32_t)(test_seed() % step);
    for (s.x.scope = 0; s.x.scope < WINDOW_SCOPES; s.x.scope++) {
        for (uint32_t i = from; i < TUTTI_ARRAY_LEN(sizes); i += step) {
            s.x.bytes = sizes[i].bytes, s.x.stride = sizes[i].stride, s.x.offset = sizes[i].offset;
            s.x.rounds = gpu_ranks_times((uint32_t)rank->n, 40, 6, 5);
            s.x.seed = i % 2 ? (uint32_t)test_seed() + i : 0;
            RANK_CHECK(rank, meet(&s));
            RANK_CHECK(rank, launch_scope(&s, ring) && found(&s, 0));
            s.x.rounds = 3;
            RANK_CHECK(rank, meet(&s));
            RANK_CHECK(rank, launch_scope(&s, pointers) && found(&s, 0));
        }
    }
    side_close(&s);
}

static void words(struct rank *rank)
{
    struct side s;
    uint64_t got[3];
    if (!side_open(rank, &s)) return;
    void *function = kernel(&s, "case_words");
    RANK_CHECK(rank, function && meet(&s));
    const uint64_t rounds = s.x.rounds = gpu_ranks_times((uint32_t)rank->n, 50, 10, 10), n = (uint64_t)rank->n;
    s.x.callers = 1;
    RANK_CHECK(rank, launch(&s, function, BLOCKS, THREADS) && found(&s, 0));
    RANK_CHECK(rank, meet(&s));
    RANK_CHECK_OK(rank, tutti_get(s.x.source, sizeof got, 0, 0, s.window, &s.m.on[0], NULL));
    RANK_CHECK(rank, mixed_get(&s.m, got, s.x.source, sizeof got));
    RANK_CHECK(rank, got[0] == n * BLOCKS * THREADS * rounds * (rounds + 1) / 2);
    RANK_CHECK(rank, got[1] == 0 && got[2] == n * BLOCKS * (THREADS / 32) * rounds * (rounds + 1) / 2);
    side_close(&s);
}

static void refused(struct rank *rank)
{
    struct side s;
    struct tutti_device_window other = {.size = 1};
    if (!side_open(rank, &s)) return;
    void *function = kernel(&s, "case_refused");
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "TUTTI_DEVICE_WINDOW_INIT", tutti_window_device(s.window, &other));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "NULL", tutti_window_device(s.window, NULL));
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "NULL", tutti_window_device(NULL, &other));
    s.x.callers = 1;
    RANK_CHECK(rank, function && meet(&s) && launch(&s, function, 1, 32) && found(&s, 0));
    side_close(&s);
}

/* ---- what goes wrong ---- */

static enum tutti_status ending(struct rank *rank, struct tutti_error *error)
{
    enum tutti_status status = TUTTI_OK;
    for (int i = 0; i < 3000 && (status = tutti_comm_state(rank->comm, error)) == TUTTI_OK; i++)
        tutti_sleep_ns(10 * TUTTI_NS_PER_MS);
    return status;
}

/* The kernel has left, and the device does as before. */
static bool still_usable(struct side *s, uint32_t each)
{
    uint32_t word = 0x1234, got = 0;
    return found(s, each) && tutti_cuda_copy_now(s->m.gpu, s->x.source, &word, sizeof word) == TUTTI_OK &&
           tutti_cuda_copy_now(s->m.gpu, &got, s->x.source, sizeof got) == TUTTI_OK && got == word;
}

/* A signal that nobody sends: the deadline ends the wait, with the signal in the sentence. */
static void late(struct rank *rank)
{
    struct side s;
    struct tutti_error error = {0};
    if (!side_open(rank, &s)) return;
    void *function = kernel(&s, "case_lost");
    RANK_CHECK(rank, function && meet(&s));
    s.x.scope = (uint32_t)(test_seed() % WINDOW_SCOPES);
    s.x.w.timeout_ns = 300 * TUTTI_NS_PER_MS;
    RANK_CHECK(rank, launch_scope(&s, function));
    RANK_CHECK_STATUS(rank, TUTTI_ERR_TIMEOUT, ending(rank, &error));
    RANK_CHECK(rank, strstr(error.text, "signal 0 is 0 and not > 1000") && strstr(error.text, "waiting for rank"));
    RANK_CHECK(rank, still_usable(&s, 0));
    if (!rank->failure[0]) side_close(&s);
}

/* Rank 1 dies while kernels of all wait. */
static void death(struct rank *rank)
{
    struct side s;
    struct tutti_error error = {0};
    if (!side_open(rank, &s)) return;
    void *function = kernel(&s, "case_lost");
    RANK_CHECK(rank, function && meet(&s));
    s.x.scope = (uint32_t)((test_seed() + 1) % WINDOW_SCOPES);
    RANK_CHECK(rank, launch_scope(&s, function));
    if (rank->index == 1) {
        tutti_sleep_ns(100 * TUTTI_NS_PER_MS);
        raise(SIGKILL);
    }
    RANK_CHECK_STATUS(rank, TUTTI_ERR_PEER_DEAD, ending(rank, &error));
    RANK_CHECK(rank, strstr(error.text, "rank 1") && error.peer == 1);
    RANK_CHECK(rank, still_usable(&s, 0));
    if (!rank->failure[0]) side_close(&s);
}

static void aborted(struct rank *rank)
{
    struct side s;
    struct tutti_error error = {0};
    if (!side_open(rank, &s)) return;
    void *function = kernel(&s, "case_lost");
    RANK_CHECK(rank, function && meet(&s) && launch_scope(&s, function));
    if (rank->index == 0) tutti_comm_abort(rank->comm, "enough");
    RANK_CHECK_STATUS(rank, TUTTI_ERR_ABORTED, ending(rank, &error));
    RANK_CHECK(rank, strstr(error.text, "enough") && still_usable(&s, 0));
    if (!rank->failure[0]) side_close(&s);
}

/* ---- in which worlds ---- */

static void run(bool forked)
{
    static const rank_function functions[] = {transfers, words, refused, late, aborted}, dies = death;
    for (uint32_t n = 1; n <= 3; n++) {
        struct mixed_world world = {.n = n, .devices = 0x7, .forked = forked};
        assert_int_equal(mixed_run(&world, functions, TUTTI_ARRAY_LEN(functions)), 0);
    }
    struct mixed_world world = {.n = 3, .devices = 0x7, .forked = true, .may_die = 1 << 1};
    if (forked && ranks_can_fork()) assert_int_equal(mixed_run(&world, &dies, 1), 0);
}

static void processes(void **state)
{
    (void)state, run(true);
}

static void threads(void **state)
{
    (void)state, run(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(processes), cmocka_unit_test(threads)};
    gpu_ranks_need_device();
    if (!test_kernels_built()) {
        print_message("skipped: there is no nvcc for the kernels of this test\n");
        return 77;
    }
    return cmocka_run_group_tests_name("windows in kernels", tests, NULL, NULL);
}
