/* SPDX-License-Identifier: BSD-3-Clause */
/* What goes wrong with one-sided calls that go by messages from streams and to devices: a signal that does not come, a
 * peer that dies or leaves in a wait and in puts, an abort. All ranks are told with the sentences of the host, streams
 * go on, and devices stay usable. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"
#include "cuda/support/mixed.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { PART = 1 << 18 };

struct side {
    struct mixed m;
    struct rank *rank;
    struct tutti_window *window;
    unsigned char *part, *buffer;
};

static bool side_open(struct rank *rank, struct side *s)
{
    memset(s, 0, sizeof *s);
    s->rank = rank;
    if (!mixed_open(rank, &s->m)) return false;
    s->part = mixed_put(&s->m, NULL, PART), s->buffer = mixed_put(&s->m, NULL, PART);
    if (s->part && s->buffer && tutti_window_create(rank->comm, s->part, PART, NULL, &s->window) == TUTTI_OK)
        return true;
    rank_fail(rank, __FILE__, __LINE__, "no window: %s", tutti_last_error()->text);
    return false;
}

static void side_close(struct side *s)
{
    if (s->rank->failure[0]) return;
    tutti_window_destroy(s->window);
    mixed_free(&s->m, s->part), mixed_free(&s->m, s->buffer);
    mixed_close(&s->m);
}

static enum tutti_status ending(struct rank *rank, struct tutti_error *error)
{
    enum tutti_status status = TUTTI_OK;
    for (int i = 0; i < 3000 && (status = tutti_comm_state(rank->comm, error)) == TUTTI_OK; i++)
        tutti_sleep_ns(10 * TUTTI_NS_PER_MS);
    return status;
}

/* "rank 1 died", "rank 1 on host h2 left" */
static bool is_lost(const struct tutti_error *error, const char *how)
{
    return strstr(error->text, "closed by peer: rank 1 ") && strstr(error->text, how);
}

/* Calls say how the communicator ended; the device does as before. */
static bool still_usable(struct side *s, enum tutti_status ended)
{
    uint32_t word = 0x1234, got = 0;
    if (!mixed_sync(&s->m) || tutti_put(s->buffer, 4, 0, 0, s->window, &s->m.on[0], NULL) != ended) return false;
    if (!s->m.gpu) return true;
    return tutti_cuda_copy_now(s->m.gpu, s->buffer, &word, sizeof word) == TUTTI_OK &&
           tutti_cuda_copy(s->m.gpu, s->buffer + 8, s->buffer, sizeof word, s->m.streams[0]) == TUTTI_OK &&
           mixed_get(&s->m, &got, s->buffer + 8, sizeof got) && got == word;
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
    RANK_CHECK_STATUS(rank, TUTTI_ERR_TIMEOUT, ending(rank, &error));
    RANK_CHECK(rank, strstr(error.text, "wait_signal (signal 7 >= 3 from rank 1") != NULL);
    RANK_CHECK(rank, strstr(error.text, "the signal is 0") != NULL);
    RANK_CHECK(rank, still_usable(&s, TUTTI_ERR_TIMEOUT));
    side_close(&s);
}

static void aborted(struct rank *rank)
{
    struct side s;
    struct tutti_error error = {0};
    if (!side_open(rank, &s)) return;
    if (rank->index == 1) { /* what is behind a wait never starts */
        const bool enqueued = s.m.gpu != NULL;
        struct tutti_work *work = NULL;
        RANK_CHECK_OK(rank, tutti_wait_signal(1, TUTTI_COMPARE_GE, 1, 0, s.window, &s.m.on[0], &work));
        if (enqueued) RANK_CHECK_OK(rank, tutti_put(s.buffer, PART, 0, 0, s.window, &s.m.on[0], NULL));
        if (enqueued) RANK_CHECK_OK(rank, tutti_get(s.buffer, PART, 0, 0, s.window, &s.m.on[0], NULL));
        RANK_CHECK_OK(rank, tutti_barrier(s.m.beside, NULL, NULL));
        RANK_CHECK_STATUS(rank, TUTTI_ERR_ABORTED, tutti_work_wait(work, 0));
        tutti_work_free(work);
    } else {
        RANK_CHECK_OK(rank, tutti_barrier(s.m.beside, NULL, NULL));
        if (rank->index == 0) tutti_comm_abort(rank->comm, "it is late");
    }
    RANK_CHECK_STATUS(rank, TUTTI_ERR_ABORTED, ending(rank, &error));
    RANK_CHECK(rank, strstr(error.text, "it is late") && still_usable(&s, TUTTI_ERR_ABORTED));
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
        tutti_comm_destroy(rank->comm);
        rank->comm = NULL;
        tutti_sleep_ns(300 * TUTTI_NS_PER_MS); /* it is seen before another communicator's calls take its board */
        RANK_CHECK_OK(rank, tutti_barrier(s.m.beside, NULL, NULL));
        mixed_free(&s.m, s.part), mixed_free(&s.m, s.buffer);
        mixed_close(&s.m);
        return;
    }
    RANK_CHECK(rank, waits(&s, 1, 1, 0, TUTTI_ERR_PEER_LEFT));
    RANK_CHECK_STATUS(rank, TUTTI_ERR_PEER_LEFT, ending(rank, &error));
    RANK_CHECK(rank, is_lost(&error, " left ") && strstr(error.text, "wait_signal (signal 1"));
    RANK_CHECK(rank, still_usable(&s, TUTTI_ERR_PEER_LEFT));
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
    RANK_CHECK_STATUS(rank, TUTTI_ERR_PEER_DEAD, ending(rank, &error));
    RANK_CHECK(rank, is_lost(&error, " died ") && strstr(error.text, "wait_signal (signal 2"));
    RANK_CHECK(rank, error.peer == 1 && still_usable(&s, TUTTI_ERR_PEER_DEAD));
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
        if (i % 8 == 7 && status == TUTTI_OK) status = tutti_flush(peer, s.window, &s.m.on[i % 2], NULL);
        if (i % 8 == 7 && status == TUTTI_OK) status = mixed_sync(&s.m) ? TUTTI_OK : TUTTI_ERR_SYSTEM;
        if (rank->index == 1 && tutti_now_ns() > dies_ns) raise(SIGKILL);
    }
    RANK_CHECK_STATUS(rank, TUTTI_ERR_PEER_DEAD, status);
    RANK_CHECK_STATUS(rank, TUTTI_ERR_PEER_DEAD, ending(rank, &error));
    RANK_CHECK(rank, is_lost(&error, " died "));
    RANK_CHECK(rank, strstr(error.text, "put_signal") || strstr(error.text, "flush") ||
                         strstr(error.text, "an answer to its access"));
    RANK_CHECK(rank, still_usable(&s, TUTTI_ERR_PEER_DEAD));
    side_close(&s);
}

/* ---- in which worlds ---- */

static const struct mixed_world worlds[] = {
    {.n = 2, .devices = 0x3, .host = true},
    {.n = 2, .devices = 0x1},
    {.n = 3, .devices = 0x2},
};

static void run(bool forked)
{
    static const rank_function ends[] = {late, aborted, left}, dies[] = {death_in_wait, death_in_put};
    for (size_t w = 0; w < TUTTI_ARRAY_LEN(worlds); w++) {
        struct mixed_world world = worlds[w];
        world.forked = forked;
        for (size_t i = 0; i < TUTTI_ARRAY_LEN(ends); i++)
            if (forked || w == 0) assert_int_equal(mixed_run(&world, &ends[i], 1), 0);
        world.may_die = 1 << 1;
        for (size_t i = 0; i < TUTTI_ARRAY_LEN(dies) && forked && ranks_can_fork(); i++)
            assert_int_equal(mixed_run(&world, &dies[i], 1), 0);
    }
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
    setenv("TUTTI_GPU_PIECE", "32768", 1); /* large calls are eight pieces */
    return cmocka_run_group_tests_name("failures of windows of devices and hosts", tests, NULL, NULL);
}
