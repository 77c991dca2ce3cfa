/* SPDX-License-Identifier: BSD-3-Clause */

/* How windows and their calls end: a thousand of them, late peers, waits that time out, are aborted, or whose rank was
 * killed; communicators that go under a window; many waits in flight. */

#include "ranks.h"
#include "test.h"

#include "base/base.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MS UINT64_C(1000000)

static const struct tutti_signal_info one_more = {0, TUTTI_SIGNAL_ADD, 1};

/* ---- a thousand windows: nothing is left of them ---- */

/* Sanitizers take memory themselves. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PAGES_MORE SIZE_MAX / 2
#else
#define PAGES_MORE 500 /* a page each would be 750, and as many for each thread */
#endif

static size_t resident_pages(void)
{
    unsigned long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%lu %lu", &all, &resident) != 2) resident = 0;
    if (file) fclose(file);
    return resident;
}

static void many_windows(struct rank *rank)
{
    enum { N = 1000 };
    const int32_t next = (rank->index + 1) % rank->n, before = (rank->index + rank->n - 1) % rank->n;
    void *memory = NULL, *before_all = NULL, *after_all = NULL;
    size_t pages = 0;
    RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, 4096, &memory));
    RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, 4096, &before_all));
    RANK_CHECK_OK(rank, tutti_mem_free(rank->comm, before_all));
    for (int i = 0; i < N; i++) {
        struct tutti_window *window = NULL;
        RANK_CHECK_OK(rank, tutti_window_create(rank->comm, memory, 4096, NULL, &window));
        RANK_CHECK_OK(rank, tutti_put_signal(&i, sizeof i, next, 0, &one_more, window, NULL, NULL));
        RANK_CHECK_OK(rank, tutti_wait_signal(0, TUTTI_COMPARE_EQ, 1, before, window, NULL, NULL));
        RANK_CHECK(rank, *(int *)memory == i);
        tutti_window_destroy(window); /* some are faster */
        if (i == N / 4) pages = resident_pages();
    }
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    RANK_CHECK(rank, resident_pages() < pages + PAGES_MORE);
    /* Processes have their signals where the memory comes from: the last few may still be there. */
    RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, 4096, &after_all));
    if (*(bool *)rank->arg) RANK_CHECK(rank, (uintptr_t)after_all - (uintptr_t)before_all < 64 * (uintptr_t)4096);
}

static void test_many_windows(void **state)
{
    (void)state;
    bool processes = false;
    assert_int_equal(ranks_threads(2, many_windows, &processes), 0);
    processes = ranks_can_fork() && !ranks_on_hosts();
    assert_int_equal(ranks_forked(2, many_windows, &processes), 0);
}

/* ---- one rank destroys its window, or the communicator, while the other calls ---- */

/* arg: whether in memory that other processes do not map. */
static void late_calls(struct rank *rank)
{
    const bool far = *(const bool *)rank->arg || ranks_on_hosts();
    void *memory = *(const bool *)rank->arg ? rank_alloc(rank, 4096) : NULL;
    for (int round = 0; round < 40; round++) {
        struct tutti_window *window = NULL;
        struct tutti_comm *comm = NULL;
        enum tutti_status status = TUTTI_OK;
        const bool keeps = round % 2; /* the communicator */
        RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &comm));
        if (!memory) RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, 4096, &memory));
        RANK_CHECK_OK(rank, tutti_window_create(comm, memory, 4096, NULL, &window));
        if (rank->index == 0) {
            tutti_sleep_ns(rank_random(rank) % (2 * MS));
            if (keeps)
                tutti_window_destroy(window);
            else
                tutti_comm_destroy(comm);
        } else {
            uint64_t word;
            while (status == TUTTI_OK) {
                status = tutti_put_signal(&round, sizeof round, 0, 0, &one_more, window, NULL, NULL);
                if (status == TUTTI_OK) status = tutti_fetch_add(1, &word, 0, 8, window, NULL, NULL);
                if (status == TUTTI_OK) status = tutti_flush(0, window, NULL, NULL);
            }
            /* A message to who has left the communicator ends it. */
            const bool left = far && !keeps && status == TUTTI_ERR_PEER_LEFT;
            if (!left) RANK_CHECK_STATUS(rank, TUTTI_ERR_ARGUMENT, status);
            if (!left) RANK_CHECK(rank, strstr(tutti_last_error()->text, "has destroyed the window") != NULL);
        }
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL)); /* its memory stays until all have destroyed it */
        if (keeps || rank->index == 1) tutti_comm_destroy(comm);
        if (!keeps || rank->index == 1) tutti_window_destroy(window);
    }
}

static void test_late_calls(void **state)
{
    (void)state;
    bool ordinary = false;
    assert_int_equal(ranks_threads(2, late_calls, &ordinary), 0);
    assert_int_equal(ranks_forked(2, late_calls, &ordinary), 0);
    ordinary = true;
    assert_int_equal(ranks_forked(2, late_calls, &ordinary), 0);
}

/* ---- the communicator goes with waits in flight: they end at their deadline, and touch nothing afterwards ---- */

static void abandoned(struct rank *rank)
{
    struct tutti_comm *comm = NULL;
    struct tutti_window *window = NULL;
    struct tutti_work *work[3] = {NULL, NULL, NULL};
    struct tutti_call_options soon = TUTTI_CALL_OPTIONS_INIT;
    uint64_t word[2] = {0, 0};
    soon.timeout_ns = 300 * MS;
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &comm));
    RANK_CHECK_OK(rank, tutti_window_create(comm, word, sizeof word, NULL, &window));
    for (int i = 0; i < 3; i++)
        RANK_CHECK_OK(rank, tutti_wait_signal(0, TUTTI_COMPARE_GE, 1, i - 1, window, &soon, &work[i]));
    tutti_comm_destroy(comm);
    for (int i = 0; i < 3; i++) {
        const enum tutti_status status = tutti_work_wait(work[i], 0);
        RANK_CHECK(rank, status == TUTTI_ERR_TIMEOUT || status == TUTTI_ERR_PEER_LEFT);
        tutti_work_free(work[i]);
    }
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "its communicator was destroyed",
                     tutti_signal(&one_more, 0, window, NULL, NULL));
    tutti_window_destroy(window);
}

static void test_abandoned(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(2, abandoned, NULL), 0);
    assert_int_equal(ranks_forked(2, abandoned, NULL), 0);
}

/* ---- deadline and abort end a wait, and all others with it ---- */

static void timeouts(struct rank *rank)
{
    struct tutti_window *window = NULL;
    struct tutti_work *other = NULL;
    struct tutti_call_options soon = TUTTI_CALL_OPTIONS_INIT;
    soon.timeout_ns = 200 * MS;
    soon.label = "row";
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, NULL, 0, NULL, &window));
    RANK_CHECK_OK(rank, tutti_signal_write(9, 4, window, NULL));
    RANK_CHECK_OK(rank, tutti_wait_signal(1, TUTTI_COMPARE_EQ, 1, TUTTI_ANY_SOURCE, window, NULL, &other));
    if (rank->index == 0)
        RANK_CHECK_ERROR(rank, TUTTI_ERR_TIMEOUT, "wait_signal (signal 9 > 4 from rank 1",
                         tutti_wait_signal(9, TUTTI_COMPARE_GT, 4, 1, window, &soon, NULL));
    if (rank->index == 0) RANK_CHECK(rank, strstr(tutti_last_error()->text, "timed out after 200 ms: the signal is 4"));
    RANK_CHECK_STATUS(rank, TUTTI_ERR_TIMEOUT, tutti_work_wait(other, 0));
    tutti_work_free(other);
    RANK_CHECK_STATUS(rank, TUTTI_ERR_TIMEOUT, tutti_signal(&one_more, 0, window, NULL, NULL));
    tutti_window_destroy(window);
}

static void aborts(struct rank *rank)
{
    struct tutti_window *window = NULL;
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, NULL, 0, NULL, &window));
    if (rank->index == 1) {
        tutti_sleep_ns(20 * MS);
        tutti_comm_abort(rank->comm, "enough");
    } else {
        RANK_CHECK_ERROR(rank, TUTTI_ERR_ABORTED, "enough",
                         tutti_wait_signal(0, TUTTI_COMPARE_EQ, 1, 1, window, NULL, NULL));
    }
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ABORTED, "enough", tutti_signal(&one_more, 1, window, NULL, NULL));
    tutti_window_destroy(window);
}

static void test_timeouts(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(2, timeouts, NULL), 0);
    assert_int_equal(ranks_forked(2, timeouts, NULL), 0);
    assert_int_equal(ranks_threads(3, aborts, NULL), 0);
    assert_int_equal(ranks_forked(3, aborts, NULL), 0);
}

/* ---- many waits in flight, on two windows; nobody spins meanwhile ---- */

static void many_waits(struct rank *rank)
{
    enum { N = 300 };
    struct tutti_window *windows[2];
    struct tutti_work *works[N];
    struct tutti_window_config config = TUTTI_WINDOW_CONFIG_INIT;
    const int32_t next = (rank->index + 1) % rank->n, before = (rank->index + rank->n - 1) % rank->n;
    config.n_signals = N;
    for (int w = 0; w < 2; w++) RANK_CHECK_OK(rank, tutti_window_create(rank->comm, NULL, 0, &config, &windows[w]));
    for (uint32_t i = 0; i < N; i++)
        RANK_CHECK_OK(rank, tutti_wait_signal(i, TUTTI_COMPARE_GE, i + 1, i % 3 ? before : TUTTI_ANY_SOURCE,
                                              windows[i % 2], NULL, &works[i]));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    struct timespec used[2];
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used[0]);
    tutti_sleep_ns(200 * MS);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used[1]);
    const long ns = (used[1].tv_sec - used[0].tv_sec) * 1000000000 + used[1].tv_nsec - used[0].tv_nsec;
    RANK_CHECK(rank, ns < (long)(60 * MS) * rank->n); /* threads share that clock */
    for (uint32_t i = N; i-- > 0;) {
        const struct tutti_signal_info set = {i, TUTTI_SIGNAL_SET, i + 1};
        RANK_CHECK(rank, tutti_work_test(works[i]) == TUTTI_PENDING || rank->n > 1);
        RANK_CHECK_OK(rank, tutti_signal(&set, next, windows[i % 2], NULL, NULL));
        if (i % 50 == 0) tutti_sleep_ns(MS);
    }
    for (uint32_t i = 0; i < N; i++) {
        RANK_CHECK_OK(rank, tutti_work_wait(works[i], 0));
        tutti_work_free(works[i]);
    }
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    for (int w = 0; w < 2; w++) tutti_window_destroy(windows[w]);
}

static void test_many_waits(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 3; n++) {
        assert_int_equal(ranks_threads(n, many_waits, NULL), 0);
        assert_int_equal(ranks_forked(n, many_waits, NULL), 0);
    }
}

/* ---- a killed rank: who waits for it, in whatever way, and who puts at it, is told; the others go on without it ----
 */

struct death {
    _Atomic uint64_t died_ns, told_ns[4];
    bool ordinary; /* memory that other processes do not map */
};

static void go_on(struct rank *rank)
{
    struct tutti_comm *rest = NULL;
    struct tutti_window *window = NULL;
    uint64_t words[8] = {0}, *mapped = NULL;
    void *memory = NULL;
    RANK_CHECK_OK(rank, tutti_comm_shrink(rank->comm, NULL, 0, &rest));
    RANK_CHECK(rank, tutti_comm_size(rest) == rank->n - 1);
    const int32_t n = tutti_comm_size(rest), next = (tutti_comm_rank(rest) + 1) % n;
    RANK_CHECK_OK(rank, tutti_mem_alloc(rest, sizeof words, &memory));
    mapped = memory;
    RANK_CHECK_OK(rank, tutti_window_create(rest, memory, sizeof words, NULL, &window));
    words[0] = 41;
    RANK_CHECK_OK(rank, tutti_put_signal(words, sizeof words, next, 0, &one_more, window, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_wait_signal(0, TUTTI_COMPARE_EQ, 1, TUTTI_ANY_SOURCE, window, NULL, NULL));
    RANK_CHECK(rank, mapped[0] == 41);
    tutti_window_destroy(window);
    tutti_comm_destroy(rest);
}

/* Rank 1 dies: 0 waits for its signal, 2 waits for any, by a work, 3 puts at it. */
static void killed(struct rank *rank)
{
    struct death *death = *(struct death **)rank->arg;
    struct tutti_window *window = NULL;
    struct tutti_work *work = NULL;
    void *memory = NULL;
    enum tutti_status status = TUTTI_OK;
    if (death->ordinary)
        memory = rank_alloc(rank, 1 << 20);
    else
        RANK_CHECK_OK(rank, tutti_mem_alloc(rank->comm, 1 << 20, &memory));
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, memory, 1 << 20, NULL, &window));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    if (rank->index == 1) {
        tutti_sleep_ns(30 * MS);
        atomic_store(&death->died_ns, tutti_now_ns());
        kill(getpid(), SIGKILL);
    }
    if (rank->index == 0) status = tutti_wait_signal(3, TUTTI_COMPARE_GE, 7, 1, window, NULL, NULL);
    if (rank->index == 2) {
        RANK_CHECK_OK(rank, tutti_wait_signal(3, TUTTI_COMPARE_GE, 7, TUTTI_ANY_SOURCE, window, NULL, &work));
        status = tutti_work_wait(work, 0);
        tutti_work_free(work);
    }
    while (rank->index == 3 && status == TUTTI_OK)
        status = tutti_put(memory, rank_random(rank) % (1 << 16), 1, 0, window, NULL, NULL);
    atomic_store(&death->told_ns[rank->index], tutti_now_ns());
    RANK_CHECK_STATUS(rank, TUTTI_ERR_PEER_DEAD, status);
    RANK_CHECK(rank, strstr(tutti_last_error()->text, "connection closed by peer: rank 1"));
    RANK_CHECK(rank, strstr(tutti_last_error()->text, "wait_signal (signal 3 >= 7 from ") ||
                         strstr(tutti_last_error()->text, " in put "));
    RANK_CHECK(rank, tutti_last_error()->peer == 1);
    RANK_CHECK_STATUS(rank, TUTTI_ERR_PEER_DEAD, tutti_put(memory, 8, 0, 0, window, NULL, NULL));
    tutti_window_destroy(window);
    go_on(rank);
}

static uint64_t killed_told_after_ns(bool ordinary)
{
    struct death *death = mmap(NULL, sizeof *death, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct ranks_config config = {.n = 4, .forked = true, .may_die = 1 << 1, .arg = &death};
    uint64_t late_ns = 0;
    assert_true(death != MAP_FAILED);
    death->ordinary = ordinary;
    assert_int_equal(ranks_run(&config, killed), 0);
    for (int r = 0; r < 4; r++) {
        const uint64_t ns = r == 1 ? 0 : death->told_ns[r] - death->died_ns;
        if (ns > late_ns) late_ns = ns;
    }
    munmap(death, sizeof *death);
    return late_ns;
}

/* Within half a second; which a busy machine may miss, but not five times. */
static void test_killed(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip(); /* under ThreadSanitizer, as ranks.h says */
    for (int ordinary = 0; ordinary < 2; ordinary++) {
        uint64_t late_ns = UINT64_MAX;
        for (int i = 0; i < 5 && late_ns > 500 * MS; i++) late_ns = killed_told_after_ns(ordinary == 1);
        if (late_ns > 500 * MS) fail_msg("told after %llu ms", (unsigned long long)(late_ns / MS));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_windows), cmocka_unit_test(test_late_calls), cmocka_unit_test(test_abandoned),
        cmocka_unit_test(test_timeouts),     cmocka_unit_test(test_many_waits), cmocka_unit_test(test_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
