/* SPDX-License-Identifier: BSD-3-Clause */
/* What goes wrong with calls that go through the host: all ranks are told as on CPUs, streams go on, and devices stay
 * usable. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"
#include "cuda/support/mixed.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 5000 };
#define SECOND UINT64_C(1000000000)

/* The error that ended the communicator, or will within 30 s. */
static enum tutti_status ending(struct rank *rank, struct tutti_error *error)
{
    enum tutti_status status = TUTTI_OK;
    for (int i = 0; i < 3000 && (status = tutti_comm_state(rank->comm, error)) == TUTTI_OK; i++) usleep(10000);
    return status;
}

/* The communicator is dead, the device is not: its streams go on, and copy. */
static void still_usable(struct mixed *m)
{
    struct rank *rank = m->rank;
    uint32_t word = 0x1234 + (uint32_t)rank->index, got = 0, *memory;
    struct tutti_error error;
    enum tutti_status status = ending(rank, &error);
    RANK_CHECK(rank, mixed_sync(m));
    RANK_CHECK(rank, (memory = mixed_put(m, &word, sizeof word)) != NULL);
    RANK_CHECK_STATUS(rank, status,
                      tutti_all_reduce(memory, memory, 1, TUTTI_UINT32, TUTTI_SUM, rank->comm, &m->on[0], NULL));
    if (m->gpu) RANK_CHECK_OK(rank, tutti_cuda_copy(m->gpu, memory, memory, sizeof word, m->streams[0]));
    RANK_CHECK(rank, mixed_get(m, &got, memory, sizeof got) && got == word);
    mixed_free(m, memory);
}

static _Thread_local enum tutti_op operation = TUTTI_SUM;

static void add(const void *left, const void *right, void *out, size_t count, enum tutti_dtype dtype, void *arg)
{
    const float *a = left, *b = right;
    float *sum = out;
    (void)dtype, (void)arg;
    for (size_t i = 0; i < count; i++) sum[i] = a[i] + b[i];
}

/* A call of rank and stream 0, and what it is told: the call itself on the host, the state behind a stream. */
static enum tutti_status call(struct mixed *m, void *memory, size_t count, uint64_t timeout_ns)
{
    struct tutti_call_options options = m->on[0];
    options.timeout_ns = timeout_ns;
    options.label = "gradient";
    return tutti_all_reduce(memory, memory, count, TUTTI_FLOAT32, operation, m->rank->comm, &options, NULL);
}

/* On a stream it is enqueued, unless the failure is known by then. */
#define CHECK_CALL(m, expected, made)                                                                                  \
    do {                                                                                                               \
        enum tutti_status made_ = (made);                                                                              \
        RANK_CHECK((m)->rank, made_ == (expected) || ((m)->gpu && made_ == TUTTI_OK));                                 \
    } while (0)

/* Rank 1 dies when a first call is over; calls of the others are under way, and behind. */
static void death(struct rank *rank)
{
    struct mixed m;
    struct tutti_error error;
    float *memory;
    if (!mixed_open(rank, &m)) return;
    RANK_CHECK(rank, (memory = mixed_put(&m, NULL, COUNT * sizeof *memory)) != NULL);
    RANK_CHECK_OK(rank, call(&m, memory, COUNT, 0));
    RANK_CHECK(rank, mixed_sync(&m));
    if (rank->index == 1) {
        usleep(50000);
        raise(SIGKILL);
    }
    CHECK_CALL(&m, TUTTI_ERR_PEER_DEAD, call(&m, memory, COUNT, 0));
    if (m.gpu) /* it may be known by now */
        (void)call(&m, memory, COUNT, 0);
    RANK_CHECK_STATUS(rank, TUTTI_ERR_PEER_DEAD, ending(rank, &error));
    RANK_CHECK(rank, strstr(error.text, "rank 1") && error.peer == 1);
    still_usable(&m);
    mixed_free(&m, memory);
    if (!rank->failure[0]) mixed_close(&m);
}

/* Rank 0 gives up a call that nobody else makes. */
static void abortion(struct rank *rank)
{
    struct mixed m;
    struct tutti_error error;
    float *memory;
    if (!mixed_open(rank, &m)) return;
    RANK_CHECK(rank, (memory = mixed_put(&m, NULL, COUNT * sizeof *memory)) != NULL);
    if (rank->index == 0) {
        if (m.gpu) RANK_CHECK_OK(rank, call(&m, memory, COUNT, 0));
        usleep(100000);
        tutti_comm_abort(rank->comm, "it is late");
    }
    RANK_CHECK_STATUS(rank, TUTTI_ERR_ABORTED, ending(rank, &error));
    RANK_CHECK(rank, strstr(error.text, "rank 0 aborted") && strstr(error.text, "it is late"));
    still_usable(&m);
    mixed_free(&m, memory);
    if (!rank->failure[0]) mixed_close(&m);
}

/* The last rank calls with another count: all are told so, with both calls. */
static void mismatch(struct rank *rank)
{
    struct mixed m;
    struct tutti_error error;
    float *memory;
    size_t count = rank->index == rank->n - 1 ? COUNT - 1 : COUNT;
    if (!mixed_open(rank, &m)) return;
    RANK_CHECK(rank, (memory = mixed_put(&m, NULL, COUNT * sizeof *memory)) != NULL);
    CHECK_CALL(&m, TUTTI_ERR_MISMATCH, call(&m, memory, count, 0));
    RANK_CHECK_STATUS(rank, TUTTI_ERR_MISMATCH, ending(rank, &error));
    RANK_CHECK(rank, strstr(error.text, "4999") && strstr(error.text, "5000") && strstr(error.text, "all_reduce"));
    still_usable(&m);
    mixed_free(&m, memory);
    if (!rank->failure[0]) mixed_close(&m);
}

/* The last rank does not come: the call's own deadline ends it. It has called nothing, whatever it took to open. */
static void deadline(struct rank *rank)
{
    struct mixed m;
    struct tutti_error error;
    struct tutti_comm *first = rank->comm;
    float *memory;
    if (!mixed_open(rank, &m)) return;
    RANK_CHECK_OK(rank, tutti_comm_dup(first, &rank->comm));
    tutti_comm_destroy(first);
    RANK_CHECK(rank, (memory = mixed_put(&m, NULL, COUNT * sizeof *memory)) != NULL);
    if (rank->index != rank->n - 1) CHECK_CALL(&m, TUTTI_ERR_TIMEOUT, call(&m, memory, COUNT, SECOND / 2));
    RANK_CHECK_STATUS(rank, TUTTI_ERR_TIMEOUT, ending(rank, &error));
    /* Or it shows nothing at all: communicators may share a board. */
    if (!strstr(error.text, "gradient") || strstr(error.text, "completed"))
        rank_fail(rank, __FILE__, __LINE__, "\"%s\"", error.text);
    still_usable(&m);
    mixed_free(&m, memory);
    if (!rank->failure[0]) mixed_close(&m);
}

/* What can not be is refused before anything is enqueued, and the others never hear of it. */
static void refusals(struct rank *rank)
{
    struct mixed m;
    void *graph = NULL;
    float *memory, host[4] = {1, 2, 3, 4}, got[4];
    if (!mixed_open(rank, &m)) return;
    RANK_CHECK(rank, (memory = mixed_put(&m, host, sizeof host)) != NULL);
    if (m.gpu) {
        RANK_CHECK_OK(rank, tutti_cuda_graph_begin(m.gpu, m.streams[0]));
        RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "can not be captured", call(&m, memory, 4, 0));
        RANK_CHECK_OK(rank, tutti_cuda_graph_end(m.gpu, m.streams[0], &graph));
        tutti_cuda_graph_destroy(m.gpu, graph);
        RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "host memory",
                         tutti_all_reduce(memory, host, 4, TUTTI_FLOAT32, TUTTI_SUM, rank->comm, &m.on[0], NULL));
        RANK_CHECK_STATUS(rank, TUTTI_ERR_ARGUMENT, call(&m, memory, SIZE_MAX / 2, 0));
    }
    RANK_CHECK_OK(rank, call(&m, memory, 4, 0));
    RANK_CHECK(rank, mixed_get(&m, got, memory, sizeof got));
    for (int i = 0; i < 4; i++) RANK_CHECK(rank, got[i] == (float)rank->n * host[i]);
    mixed_free(&m, memory);
    mixed_close(&m);
}

/* ---- a driver that keeps who asks it waiting, as while a caller waits in it for room in a stream ---- */

static _Atomic int n_waiting; /* ranks that wait for their streams */
static _Atomic bool asked, in_vain;

enum tutti_status __real_tutti_cuda_event_query(struct tutti_device *gpu, void *event);
enum tutti_status __wrap_tutti_cuda_event_query(struct tutti_device *gpu, void *event);
enum tutti_status __wrap_tutti_cuda_event_query(struct tutti_device *gpu, void *event)
{
    for (int i = 0; atomic_load(&n_waiting) > 0; i++, usleep(1000)) {
        atomic_store(&asked, true);
        if (i < 10000) continue;
        atomic_store(&in_vain, true);
        break;
    }
    return __real_tutti_cuda_event_query(gpu, event);
}

static void be_late(void *arg)
{
    (void)arg;
    for (int i = 0; i < 10000 && !atomic_load(&asked); i++) usleep(1000);
}

/* The stream comes late to a call, which is asked about meanwhile: it goes on before there is an answer. */
static void late_answers(struct rank *rank)
{
    struct mixed m;
    float *memory;
    if (!mixed_open(rank, &m)) return;
    RANK_CHECK(rank, (memory = mixed_put(&m, NULL, COUNT * sizeof *memory)) != NULL);
    RANK_CHECK_OK(rank, call(&m, memory, COUNT, 0));
    RANK_CHECK(rank, mixed_sync(&m));
    if (m.gpu) RANK_CHECK_OK(rank, tutti_cuda_host_call(m.gpu, m.streams[0], be_late, NULL));
    atomic_fetch_add(&n_waiting, 1);
    RANK_CHECK_OK(rank, call(&m, memory, COUNT, 0));
    RANK_CHECK(rank, mixed_sync(&m));
    RANK_CHECK(rank, atomic_load(&asked) || !m.gpu);
    if (atomic_fetch_sub(&n_waiting, 1) == 1) atomic_store(&asked, false);
    RANK_CHECK(rank, !atomic_load(&in_vain));
    mixed_free(&m, memory);
    mixed_close(&m);
}

/* The same where devices reach one another, and an operation of the user goes through the host. */
static void death_in_operation(struct rank *rank)
{
    RANK_CHECK_OK(rank, tutti_op_create(rank->context, add, NULL, true, &operation));
    death(rank);
}

/* ---- in which worlds ---- */

static void deaths(void **state)
{
    static const uint64_t devices[] = {0x1, 0x3, 0x5, 0x7};
    static const rank_function plain = death, in_operation = death_in_operation;
    (void)state;
    if (!ranks_can_fork()) return;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(devices); i++) {
        struct mixed_world world = {
            .n = 3, .devices = devices[i], .forked = true, .host = devices[i] == 0x7, .may_die = 0x2};
        assert_int_equal(mixed_run(&world, &plain, 1), 0);
    }
    struct mixed_world reached = {.n = 3, .devices = 0x7, .forked = true, .may_die = 0x2};
    assert_int_equal(mixed_run(&reached, &in_operation, 1), 0);
}

static const rank_function functions[] = {refusals, abortion, mismatch, deadline, late_answers};

static void run(bool forked)
{
    mixed_run_all(2, forked, functions, TUTTI_ARRAY_LEN(functions));
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(deaths), cmocka_unit_test(processes),
                                       cmocka_unit_test(threads)};
    gpu_ranks_need_device();
    return cmocka_run_group_tests_name("failures of mixed communicators", tests, NULL, NULL);
}
