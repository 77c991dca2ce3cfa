/* SPDX-License-Identifier: BSD-3-Clause */
/* What goes wrong with calls of communicators in which some ranks have a device and some do not, or all have one: with
 * collectives through the host, and with one-sided calls, by kernels where devices reach one another, else by messages.
 * All ranks are told, streams go on, and devices stay usable. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"
#include "cuda/support/mixed.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 5000 };
#define PART ((size_t)(reached ? 1 << 20 : 1 << 18))
static bool reached; /* one-sided calls go by kernels */
static bool mapped;  /* parts are of the host, and mapped by the ranks of it */

/* The error that ended the communicator, or will within 30 s, which has all of these words. */
static enum tutti_status ending(struct rank *rank, struct tutti_error *error)
{
    enum tutti_status status = TUTTI_OK;
    for (int i = 0; i < 3000 && (status = tutti_comm_state(rank->comm, error)) == TUTTI_OK; i++) usleep(10000);
    return status;
}
#define CHECK_ENDS(rank, expected, ...)                                                                                \
    do {                                                                                                               \
        static const char *const words_[] = {__VA_ARGS__};                                                             \
        RANK_CHECK_STATUS(rank, expected, ending(rank, &error));                                                       \
        for (size_t i_ = 0; i_ < TUTTI_ARRAY_LEN(words_); i_++)                                                        \
            if (!strstr(error.text, words_[i_])) rank_fail(rank, __FILE__, __LINE__, "\"%s\"", error.text);            \
    } while (0)

/* ---- collectives: a rank, its memory, and what it calls ---- */

/* The communicator is dead, the device is not: its streams go on, and copy. */
static void goes_on(struct mixed *m)
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
static void death(struct rank *rank, struct mixed *m, float *memory)
{
    struct tutti_error error;
    RANK_CHECK_OK(rank, call(m, memory, COUNT, 0));
    RANK_CHECK(rank, mixed_sync(m));
    if (rank->index == 1) {
        usleep(50000);
        raise(SIGKILL);
    }
    CHECK_CALL(m, TUTTI_ERR_PEER_DEAD, call(m, memory, COUNT, 0));
    if (m->gpu) /* it may be known by now */
        (void)call(m, memory, COUNT, 0);
    CHECK_ENDS(rank, TUTTI_ERR_PEER_DEAD, "rank 1");
    RANK_CHECK(rank, error.peer == 1);
}

/* Rank 0 gives up a call that nobody else makes. */
static void abortion(struct rank *rank, struct mixed *m, float *memory)
{
    struct tutti_error error;
    if (rank->index == 0) {
        if (m->gpu) RANK_CHECK_OK(rank, call(m, memory, COUNT, 0));
        usleep(100000);
        tutti_comm_abort(rank->comm, "it is late");
    }
    CHECK_ENDS(rank, TUTTI_ERR_ABORTED, "rank 0 aborted", "it is late");
}

/* The last rank calls with another count: all are told so, with both calls. */
static void mismatch(struct rank *rank, struct mixed *m, float *memory)
{
    struct tutti_error error;
    size_t count = rank->index == rank->n - 1 ? COUNT - 1 : COUNT;
    CHECK_CALL(m, TUTTI_ERR_MISMATCH, call(m, memory, count, 0));
    CHECK_ENDS(rank, TUTTI_ERR_MISMATCH, "4999", "5000", "all_reduce");
}

/* The last rank does not come: the call's own deadline ends it. It has called nothing, whatever it took to open. */
static void deadline(struct rank *rank, struct mixed *m, float *memory)
{
    struct tutti_error error;
    struct tutti_comm *first = rank->comm;
    RANK_CHECK_OK(rank, tutti_comm_dup(first, &rank->comm));
    tutti_comm_destroy(first);
    if (rank->index != rank->n - 1) CHECK_CALL(m, TUTTI_ERR_TIMEOUT, call(m, memory, COUNT, TUTTI_NS_PER_S / 2));
    CHECK_ENDS(rank, TUTTI_ERR_TIMEOUT, "gradient");
    /* Or it shows nothing at all: communicators may share a board. */
    RANK_CHECK(rank, !strstr(error.text, "completed"));
}

/* ---- each on memory of the rank's kind, after which its device goes on ---- */
static void collective(struct rank *rank, void (*failure)(struct rank *rank, struct mixed *m, float *memory))
{
    struct mixed m;
    float *memory;
    if (!mixed_open(rank, &m)) return;
    RANK_CHECK(rank, (memory = mixed_put(&m, NULL, COUNT * sizeof *memory)) != NULL);
    failure(rank, &m, memory);
    if (rank->failure[0]) return;
    goes_on(&m);
    mixed_free(&m, memory);
    if (!rank->failure[0]) mixed_close(&m);
}
#define COLLECTIVE(name)                                                                                               \
    static void collective_##name(struct rank *rank)                                                                   \
    {                                                                                                                  \
        collective(rank, name);                                                                                        \
    }
COLLECTIVE(death)
COLLECTIVE(abortion)
COLLECTIVE(mismatch)
COLLECTIVE(deadline)

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

/* A death where devices reach one another, and an operation of the user goes through the host. */
static void death_in_operation(struct rank *rank)
{
    RANK_CHECK_OK(rank, tutti_op_create(rank->context, add, NULL, true, &operation));
    collective_death(rank);
}

/* ---- one-sided calls ---- */

struct side {
    struct mixed m;
    struct rank *rank;
    struct tutti_window *window;
    void *part, *buffer;
};

static bool side_open(struct rank *rank, struct side *s)
{
    memset(s, 0, sizeof *s);
    s->rank = rank;
    if (!mixed_open(rank, &s->m)) return false;
    if (mapped && tutti_mem_alloc(s->m.beside, PART, &s->part) < 0) return false;
    if (!reached && !mapped) s->part = mixed_put(&s->m, NULL, PART);
    s->buffer = mixed_put(&s->m, NULL, PART);
    if (s->buffer && (!reached || tutti_mem_alloc(rank->comm, PART, &s->part) == TUTTI_OK) && s->part &&
        tutti_window_create(rank->comm, s->part, PART, NULL, &s->window) == TUTTI_OK)
        return true;
    rank_fail(rank, __FILE__, __LINE__, "no window: %s", tutti_last_error()->text);
    return false;
}

static void side_close(struct side *s)
{
    if (s->rank->failure[0]) return;
    if (s->window) tutti_window_destroy(s->window);
    if (!reached && !mapped) mixed_free(&s->m, s->part);
    mixed_free(&s->m, s->buffer);
    mixed_close(&s->m);
}

/* "rank 1 died", "rank 1 on host h2 left" */
static bool is_lost(const struct tutti_error *error, const char *how)
{
    return strstr(error->text, reached ? "rank 1 " : "closed by peer: rank 1 ") && strstr(error->text, how);
}

/* Calls say how the communicator ended; the device does as before. */
static bool still_usable(struct side *s, enum tutti_status ended)
{
    uint32_t word = 0x1234, got = 0;
    if (!mixed_sync(&s->m) || tutti_put(s->buffer, 4, 0, 0, s->window, &s->m.on[0], NULL) != ended) return false;
    if (!s->m.gpu) return true;
    return tutti_cuda_copy_now(s->m.gpu, s->buffer, &word, sizeof word) == TUTTI_OK &&
           tutti_cuda_copy(s->m.gpu, (char *)s->buffer + 8, s->buffer, sizeof word, s->m.streams[0]) == TUTTI_OK &&
           mixed_get(&s->m, &got, (char *)s->buffer + 8, sizeof got) && got == word;
}

/* A wait for rank `from`: enqueued, or on the host until it ends so. */
static bool waits(struct side *s, uint32_t signal, int32_t from, uint64_t timeout_ns, enum tutti_status ends)
{
    struct tutti_call_options options = s->m.on[0];
    options.timeout_ns = timeout_ns;
    const enum tutti_status status = tutti_wait_signal(signal, TUTTI_COMPARE_GE, 3, from, s->window, &options, NULL);
    return s->m.gpu ? status == TUTTI_OK || status == ends : status == ends;
}

static void late(struct rank *rank)
{
    struct side s;
    struct tutti_error error = {0};
    if (!side_open(rank, &s)) return;
    if (rank->index == 0) RANK_CHECK(rank, waits(&s, 7, 1, 300 * TUTTI_NS_PER_MS, TUTTI_ERR_TIMEOUT));
    if (reached)
        CHECK_ENDS(rank, TUTTI_ERR_TIMEOUT, "wait_signal", "signal 7 is 0 and not >= 3", "waiting for rank 1");
    else
        CHECK_ENDS(rank, TUTTI_ERR_TIMEOUT, "wait_signal (signal 7 >= 3 from rank 1", "the signal is 0");
    RANK_CHECK(rank, still_usable(&s, TUTTI_ERR_TIMEOUT));
    side_close(&s);
}

/* By kernels all wait, on both streams; by messages rank 1 alone. What is behind a wait never starts. */
static void aborted(struct rank *rank)
{
    struct side s;
    struct tutti_error error = {0};
    struct tutti_work *work = NULL;
    const int32_t from = reached ? TUTTI_ANY_SOURCE : 0;
    if (!side_open(rank, &s)) return;
    const bool waits = reached || rank->index == 1, enqueued = rank->index == 1 && s.m.gpu;
    if (waits) RANK_CHECK_OK(rank, tutti_wait_signal(1, TUTTI_COMPARE_GE, 1, from, s.window, &s.m.on[0], &work));
    if (reached) RANK_CHECK_OK(rank, tutti_wait_signal(1, TUTTI_COMPARE_GE, 1, from, s.window, &s.m.on[1], NULL));
    if (enqueued) RANK_CHECK_OK(rank, tutti_put(s.buffer, PART, 0, 0, s.window, &s.m.on[0], NULL));
    if (enqueued) RANK_CHECK_OK(rank, tutti_get(s.buffer, PART, 0, 0, s.window, &s.m.on[0], NULL));
    RANK_CHECK_OK(rank, tutti_barrier(s.m.beside, NULL, NULL));
    if (rank->index == 0) tutti_comm_abort(rank->comm, "it is late");
    if (waits) RANK_CHECK_STATUS(rank, TUTTI_ERR_ABORTED, tutti_work_wait(work, 0));
    tutti_work_free(work);
    CHECK_ENDS(rank, TUTTI_ERR_ABORTED, "it is late");
    RANK_CHECK(rank, still_usable(&s, TUTTI_ERR_ABORTED));
    side_close(&s);
}

/* Rank 1 leaves, and others wait for it. */
static void left(struct rank *rank)
{
    struct side s;
    struct tutti_error error = {0};
    if (!side_open(rank, &s)) return;
    if (rank->index == 1) {
        tutti_sleep_ns(50 * TUTTI_NS_PER_MS);
        tutti_window_destroy(s.window);
        s.window = NULL;
        tutti_comm_destroy(rank->comm);
        rank->comm = NULL;
        tutti_sleep_ns(300 * TUTTI_NS_PER_MS); /* it is seen before another communicator's calls take its board */
    } else {
        RANK_CHECK(rank, waits(&s, 1, 1, 0, TUTTI_ERR_PEER_LEFT));
        CHECK_ENDS(rank, TUTTI_ERR_PEER_LEFT, "wait_signal (signal 1");
        RANK_CHECK(rank, is_lost(&error, " left") && still_usable(&s, TUTTI_ERR_PEER_LEFT));
    }
    RANK_CHECK_OK(rank, tutti_barrier(s.m.beside, NULL, NULL));
    side_close(&s);
}

/* Rank 1 dies while all wait for it. */
static void death_in_wait(struct rank *rank)
{
    struct side s;
    struct tutti_error error = {0};
    if (!side_open(rank, &s)) return;
    if (rank->index == 1) {
        tutti_sleep_ns(80 * TUTTI_NS_PER_MS);
        raise(SIGKILL);
    }
    RANK_CHECK(rank, waits(&s, 2, 1, 0, TUTTI_ERR_PEER_DEAD));
    CHECK_ENDS(rank, TUTTI_ERR_PEER_DEAD, "wait_signal (signal 2");
    RANK_CHECK(rank, is_lost(&error, " died") && error.peer == 1 && still_usable(&s, TUTTI_ERR_PEER_DEAD));
    side_close(&s);
}

/* ... and while all put into its part, and it into theirs. */
static void death_in_put(struct rank *rank)
{
    struct side s;
    struct tutti_error error = {0};
    const struct tutti_signal_info one = {2, TUTTI_SIGNAL_ADD, 1};
    enum tutti_status status = TUTTI_OK;
    if (!side_open(rank, &s)) return;
    const uint64_t dies_ns = tutti_now_ns() + 100 * TUTTI_NS_PER_MS, until_ns = tutti_deadline_ns(20 * TUTTI_NS_PER_S);
    for (uint32_t i = 0; status == TUTTI_OK && tutti_now_ns() < until_ns; i++) {
        const int32_t peer = rank->index == 1 ? (int32_t)(i % (uint32_t)rank->n) : 1;
        status = tutti_put_signal(s.buffer, i % 2 ? 1000 : PART / 2, peer, 0, &one, s.window, &s.m.on[i % 2], NULL);
        if (i % 8 == 7 && !reached && status == TUTTI_OK) status = tutti_flush(peer, s.window, &s.m.on[i % 2], NULL);
        if (i % 8 == 7 && status == TUTTI_OK) status = mixed_sync(&s.m) ? TUTTI_OK : TUTTI_ERR_SYSTEM;
        if (rank->index == 1 && tutti_now_ns() > dies_ns) raise(SIGKILL);
    }
    RANK_CHECK_STATUS(rank, TUTTI_ERR_PEER_DEAD, status);
    RANK_CHECK_STATUS(rank, TUTTI_ERR_PEER_DEAD, ending(rank, &error));
    RANK_CHECK(rank, is_lost(&error, " died"));
    RANK_CHECK(rank, reached ? strstr(error.text, "one-sided calls") != NULL
                             : strstr(error.text, "put_signal") || strstr(error.text, "flush") ||
                                   strstr(error.text, "messages") || strstr(error.text, "an answer to its access"));
    RANK_CHECK(rank, still_usable(&s, TUTTI_ERR_PEER_DEAD));
    side_close(&s);
}

/* ---- in which worlds ---- */

static void deaths(void **state)
{
    static const uint64_t devices[] = {0x1, 0x3, 0x5, 0x7};
    static const rank_function plain = collective_death, in_operation = death_in_operation;
    (void)state;
    if (!ranks_can_fork()) return;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(devices); i++) {
        struct mixed_world world = {
            .n = 3, .devices = devices[i], .forked = true, .host = devices[i] == 0x7, .may_die = 0x2};
        assert_int_equal(mixed_run(&world, &plain, 1), 0);
    }
    struct mixed_world all = {.n = 3, .devices = 0x7, .forked = true, .may_die = 0x2};
    assert_int_equal(mixed_run(&all, &in_operation, 1), 0);
}

static const rank_function collectives[] = {refusals, collective_abortion, collective_mismatch, collective_deadline,
                                            late_answers};
static const struct place {
    struct mixed_world world;
    bool reached, as_threads, is_late; /* is_late: of two ranks, since a wait is for the last one */
    bool mapped;
} places[] = {
    {{.n = 2, .devices = 0x7}, true, true, true, false},
    {{.n = 3, .devices = 0x7}, true, true, false, false},
    {{.n = 2, .devices = 0x3, .host = true}, false, true, true, false},
    {{.n = 2, .devices = 0x1}, false, false, true, false},
    {{.n = 3, .devices = 0x2}, false, false, true, false},
    {{.n = 2, .devices = 0x3}, false, true, true, true},
    {{.n = 3, .devices = 0x6}, false, false, false, true},
};
static const struct {
    rank_function call;
    bool dies; /* rank 1 does: in processes alone */
} one_sided[] = {{late, false}, {aborted, false}, {left, false}, {death_in_wait, true}, {death_in_put, true}};

static void run_one_sided(bool forked)
{
    for (size_t w = 0; w < TUTTI_ARRAY_LEN(places); w++) {
        struct mixed_world world = places[w].world;
        world.forked = forked;
        reached = places[w].reached, mapped = places[w].mapped;
        if (reached && gpu_ranks_across(world.n)) continue; /* on several hosts nothing is */
        if (!forked && !places[w].as_threads) continue;
        if (reached)
            unsetenv("TUTTI_GPU_PIECE");
        else
            setenv("TUTTI_GPU_PIECE", "32768", 1); /* large calls are eight pieces */
        for (size_t i = 0; i < TUTTI_ARRAY_LEN(one_sided); i++) {
            world.may_die = one_sided[i].dies ? 1 << 1 : 0;
            if (one_sided[i].dies && (!forked || !ranks_can_fork())) continue;
            if (one_sided[i].call == late && !places[w].is_late) continue;
            assert_int_equal(mixed_run(&world, &one_sided[i].call, 1), 0);
        }
    }
    unsetenv("TUTTI_GPU_PIECE");
}

static void processes(void **state)
{
    (void)state, mixed_run_all(2, true, collectives, TUTTI_ARRAY_LEN(collectives));
}

static void one_sided_processes(void **state)
{
    (void)state, run_one_sided(true);
}

static void threads(void **state)
{
    (void)state, mixed_run_all(2, false, collectives, TUTTI_ARRAY_LEN(collectives));
}

static void one_sided_threads(void **state)
{
    (void)state, run_one_sided(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(deaths), cmocka_unit_test(processes),
                                       cmocka_unit_test(one_sided_processes), cmocka_unit_test(threads),
                                       cmocka_unit_test(one_sided_threads)};
    gpu_ranks_need_device();
    return cmocka_run_group_tests_name("failures of mixed communicators", tests, NULL, NULL);
}
