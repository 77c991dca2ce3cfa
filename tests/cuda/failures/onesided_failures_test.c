/* SPDX-License-Identifier: BSD-3-Clause */
/* What goes wrong with one-sided calls on devices: a signal that does not come, a peer that dies or leaves in a wait
 * and in puts, an abort. All ranks are told, streams go on, and devices stay usable. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"
#include "cuda/support/mixed.h"

#include <signal.h>
#include <string.h>

enum { PART = 1 << 20 };

struct side {
    struct mixed m;
    struct rank *rank;
    struct tutti_window *window;
    unsigned char *buffer;
};

static bool side_open(struct rank *rank, struct side *s)
{
    void *part = NULL, *buffer = NULL;
    memset(s, 0, sizeof *s);
    s->rank = rank;
    if (!mixed_open(rank, &s->m)) return false;
    if (tutti_mem_alloc(rank->comm, PART, &part) == TUTTI_OK &&
        tutti_window_create(rank->comm, part, PART, NULL, &s->window) == TUTTI_OK &&
        tutti_cuda_alloc(s->m.gpu, PART, &buffer) == TUTTI_OK) {
        s->buffer = buffer;
        return true;
    }
    rank_fail(rank, __FILE__, __LINE__, "no window: %s", tutti_last_error()->text);
    return false;
}

static void side_close(struct side *s)
{
    if (s->rank->failure[0]) return;
    tutti_window_destroy(s->window);
    tutti_cuda_free(s->m.gpu, s->buffer);
    mixed_close(&s->m);
}

static enum tutti_status ending(struct rank *rank, struct tutti_error *error)
{
    enum tutti_status status = TUTTI_OK;
    for (int i = 0; i < 3000 && (status = tutti_comm_state(rank->comm, error)) == TUTTI_OK; i++)
        tutti_sleep_ns(10 * TUTTI_NS_PER_MS);
    return status;
}

/* Calls say how the communicator ended; the device does as before. */
static bool still_usable(struct side *s, enum tutti_status ended)
{
    uint32_t word = 0x1234, got = 0;
    if (!mixed_sync(&s->m) || tutti_put(s->buffer, 4, 0, 0, s->window, &s->m.on[0], NULL) != ended) return false;
    return tutti_cuda_copy_now(s->m.gpu, s->buffer, &word, sizeof word) == TUTTI_OK &&
           tutti_cuda_copy(s->m.gpu, s->buffer + 8, s->buffer, sizeof word, s->m.streams[0]) == TUTTI_OK &&
           mixed_get(&s->m, &got, s->buffer + 8, sizeof got) && got == word;
}

static void late(struct rank *rank)
{
    struct side s;
    struct tutti_error error = {0};
    struct tutti_work *work = NULL;
    if (!side_open(rank, &s)) return;
    struct tutti_call_options options = s.m.on[0];
    options.timeout_ns = 300 * TUTTI_NS_PER_MS;
    if (rank->index == 0) {
        RANK_CHECK_OK(rank, tutti_wait_signal(7, TUTTI_COMPARE_GE, 3, rank->n - 1, s.window, &options, &work));
        RANK_CHECK_STATUS(rank, TUTTI_ERR_TIMEOUT, tutti_work_wait(work, 0));
        tutti_work_free(work);
    }
    RANK_CHECK_STATUS(rank, TUTTI_ERR_TIMEOUT, ending(rank, &error));
    RANK_CHECK(rank, strstr(error.text, "wait_signal") && strstr(error.text, "signal 7 is 0 and not >= 3"));
    RANK_CHECK(rank, strstr(error.text, rank->n == 1 ? "waiting for rank 0" : "waiting for rank 1"));
    RANK_CHECK(rank, still_usable(&s, TUTTI_ERR_TIMEOUT));
    side_close(&s);
}

static void aborted(struct rank *rank)
{
    struct side s;
    struct tutti_error error = {0};
    if (!side_open(rank, &s)) return;
    for (int i = 0; i < 2; i++)
        RANK_CHECK_OK(rank, tutti_wait_signal(1, TUTTI_COMPARE_GE, 1, TUTTI_ANY_SOURCE, s.window, &s.m.on[i], NULL));
    RANK_CHECK_OK(rank, tutti_barrier(s.m.beside, NULL, NULL));
    if (rank->index == 0) tutti_comm_abort(rank->comm, "it is late");
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
        RANK_CHECK_OK(rank, tutti_barrier(s.m.beside, NULL, NULL));
        tutti_cuda_free(s.m.gpu, s.buffer);
        mixed_close(&s.m);
        return;
    }
    RANK_CHECK_OK(rank, tutti_wait_signal(1, TUTTI_COMPARE_GE, 1, 1, s.window, &s.m.on[0], NULL));
    RANK_CHECK_STATUS(rank, TUTTI_ERR_PEER_LEFT, ending(rank, &error));
    RANK_CHECK(rank, strstr(error.text, "rank 1 left") && strstr(error.text, "wait_signal (signal 1)"));
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
    RANK_CHECK_OK(rank, tutti_wait_signal(2, TUTTI_COMPARE_GE, 1, 1, s.window, &s.m.on[0], NULL));
    if (rank->index == 1) {
        tutti_sleep_ns(80 * TUTTI_NS_PER_MS);
        raise(SIGKILL);
    }
    RANK_CHECK_STATUS(rank, TUTTI_ERR_PEER_DEAD, ending(rank, &error));
    RANK_CHECK(rank, strstr(error.text, "rank 1 died") && strstr(error.text, "wait_signal (signal 2)"));
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
        if (i % 8 == 7 && status == TUTTI_OK) status = mixed_sync(&s.m) ? TUTTI_OK : TUTTI_ERR_SYSTEM;
        if (rank->index == 1 && tutti_now_ns() > dies_ns) raise(SIGKILL);
    }
    RANK_CHECK_STATUS(rank, TUTTI_ERR_PEER_DEAD, status);
    RANK_CHECK_STATUS(rank, TUTTI_ERR_PEER_DEAD, ending(rank, &error));
    RANK_CHECK(rank, strstr(error.text, "rank 1 died") && strstr(error.text, "one-sided calls"));
    RANK_CHECK(rank, still_usable(&s, TUTTI_ERR_PEER_DEAD));
    side_close(&s);
}

/* ---- in which worlds ---- */

static void run(bool forked)
{
    static const rank_function ends[] = {late, aborted, left}, dies[] = {death_in_wait, death_in_put};
    for (uint32_t n = 2; n <= 3; n++) {
        struct mixed_world world = {.n = n, .devices = 0x7, .forked = forked};
        for (size_t i = 0; i < TUTTI_ARRAY_LEN(ends); i++)
            if (n == 2 || ends[i] != late) assert_int_equal(mixed_run(&world, &ends[i], 1), 0);
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
    return cmocka_run_group_tests_name("failures of one-sided calls on devices", tests, NULL, NULL);
}
