/* SPDX-License-Identifier: BSD-3-Clause */
/* Children of a fork hold their parents' handles, and change nothing of theirs; a signal handler that interrupts a call
 * can not abort, and does not wait. */
#include "ranks.h"
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <tutti/window.h>
#include <unistd.h>

/* ---- forks ---- */

struct handles {
    struct tutti_comm *comm;
    struct tutti_context *context;
    struct tutti_work *work; /* pending */
    struct tutti_window *window;
    struct tutti_persistent *persistent;
};

#define REFUSED(call)                                                                                                  \
    do {                                                                                                               \
        if ((call) != TUTTI_ERR_ARGUMENT || !strstr(tutti_last_error()->text, "forked off")) return __LINE__;          \
    } while (0)

/* The line of the first claim that does not hold; 0: all do. */
static int use(const struct handles *h)
{
    int32_t value = 1, sum = 0;
    uint64_t before = 0;
    enum tutti_op op;
    struct tutti_comm *comm = NULL;
    struct tutti_window *window = NULL;
    const struct tutti_signal_info signal = {.index = 0, .value = 1};
    REFUSED(tutti_all_reduce(&value, &sum, 1, TUTTI_INT32, TUTTI_SUM, h->comm, NULL, NULL));
    REFUSED(tutti_barrier(h->comm, NULL, NULL));
    REFUSED(tutti_send(&value, 1, TUTTI_INT32, 0, 0, h->comm, NULL, NULL));
    REFUSED(tutti_comm_dup(h->comm, &comm));
    REFUSED(tutti_comm_shrink(h->comm, NULL, 0, &comm));
    REFUSED(tutti_comm_state(h->comm, NULL));
    REFUSED(tutti_comm_flush(h->comm, 1));
    REFUSED(tutti_comm_create(h->context, NULL, &comm));
    REFUSED(tutti_op_create(h->context, NULL, NULL, true, &op) == TUTTI_ERR_ARGUMENT
                ? tutti_op_destroy(h->context, TUTTI_N_OPS)
                : TUTTI_OK);
    REFUSED(tutti_work_wait(h->work, 0));
    REFUSED(tutti_work_test(h->work));
    REFUSED(tutti_window_create(h->comm, &value, sizeof value, NULL, &window));
    REFUSED(tutti_put(&value, sizeof value, 0, 0, h->window, NULL, NULL));
    REFUSED(tutti_signal(&signal, 0, h->window, NULL, NULL));
    REFUSED(tutti_fetch_add(1, &before, 0, 0, h->window, NULL, NULL));
    REFUSED(tutti_persistent_start(h->persistent, NULL));
    tutti_comm_abort(h->comm, "a child's");
    tutti_work_free(h->work);
    tutti_persistent_destroy(h->persistent);
    tutti_window_destroy(h->window);
    tutti_comm_destroy(h->comm);
    tutti_context_destroy(h->context);
    return 0;
}

/* What a child makes itself is its own. */
static int make(void)
{
    const struct tutti_option options[] = {{"transport", "self"}};
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    struct tutti_context *context = NULL;
    struct tutti_comm *comm = NULL;
    int32_t value = 3, sum = 0;
    config.rank = 0, config.n_ranks = 1;
    if (tutti_context_create(options, 1, &context) < 0 || tutti_comm_create(context, &config, &comm) < 0)
        return __LINE__;
    if (tutti_all_reduce(&value, &sum, 1, TUTTI_INT32, TUTTI_SUM, comm, NULL, NULL) < 0 || sum != 3) return __LINE__;
    tutti_comm_destroy(comm);
    tutti_context_destroy(context);
    return 0;
}

/* Rank 0 forks while rank 1 is in a call, and after every child both still get the right sums. */
static void forks(struct rank *rank)
{
    static _Alignas(64) uint64_t memory[2][8];
    struct handles h = {.comm = rank->comm, .context = rank->context};
    int32_t one = 1, sum = 0, pending = 0;
    RANK_CHECK_OK(rank, tutti_window_create(rank->comm, memory[rank->index % 2], sizeof memory[0], NULL, &h.window));
    RANK_CHECK_OK(rank, tutti_persistent_record());
    RANK_CHECK_OK(rank, tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, rank->comm, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_persistent_end(&h.persistent));
    for (int turn = 0; turn < 4; turn++) {
        if (rank->index == 0) {
            RANK_CHECK_OK(rank, tutti_recv(&pending, 1, TUTTI_INT32, 1, 9, rank->comm, NULL, NULL, &h.work));
            pid_t child = fork();
            if (child == 0) {
                alarm(20);
                int line = use(&h);
                if (line == 0) line = make();
                _exit(line ? 1 + line % 250 : 0);
            }
            int status = -1;
            RANK_CHECK(rank, waitpid(child, &status, 0) == child);
            if (status != 0)
                rank_fail(rank, __FILE__, __LINE__, "a child's claim of line ~%d", WEXITSTATUS(status) - 1);
        }
        RANK_CHECK_OK(rank, tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, rank->comm, NULL, NULL));
        RANK_CHECK(rank, sum == rank->n);
        RANK_CHECK_OK(rank, tutti_persistent_start(h.persistent, NULL));
        if (rank->index == 1) RANK_CHECK_OK(rank, tutti_send(&one, 1, TUTTI_INT32, 0, 9, rank->comm, NULL, NULL));
        if (rank->index == 0) {
            RANK_CHECK_OK(rank, tutti_work_wait(h.work, 0));
            tutti_work_free(h.work);
        }
        RANK_CHECK(rank, rank->index != 0 || pending == 1);
    }
    tutti_persistent_destroy(h.persistent);
    tutti_window_destroy(h.window);
}

static void children_change_nothing(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip();
    assert_int_equal(ranks_forked(2, forks, NULL), 0);
    assert_int_equal(ranks_forked(3, forks, NULL), 0);
}

/* ---- signals ---- */

static struct tutti_comm *interrupted;
static _Atomic int handled; /* 1: refused at once, 2: not */

static void on_signal(int number)
{
    (void)number;
    tutti_comm_abort(interrupted, "from a handler");
    handled =
        tutti_last_error()->status == TUTTI_ERR_ARGUMENT && strstr(tutti_last_error()->text, "comm_abort") ? 1 : 2;
}

static void *interrupt(void *thread)
{
    usleep(100000);
    pthread_kill(*(pthread_t *)thread, SIGUSR1);
    return NULL;
}

/* Rank 0 waits in a call, blocking or by its work, and is interrupted; rank 1 comes late, and all is well. */
static void interrupts(struct rank *rank)
{
    const bool *by_work = rank->arg;
    struct sigaction action = {.sa_handler = on_signal};
    int32_t one = 1, sum = 0;
    struct tutti_work *work = NULL;
    if (rank->index > 0) {
        usleep(400000);
        RANK_CHECK_OK(rank, tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, rank->comm, NULL, NULL));
        return;
    }
    pthread_t self = pthread_self(), other;
    interrupted = rank->comm, handled = 0;
    RANK_CHECK(rank, sigaction(SIGUSR1, &action, NULL) == 0);
    RANK_CHECK(rank, pthread_create(&other, NULL, interrupt, &self) == 0);
    enum tutti_status status =
        tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, rank->comm, NULL, *by_work ? &work : NULL);
    if (status >= 0 && work) status = tutti_work_wait(work, 0);
    tutti_work_free(work);
    pthread_join(other, NULL);
    RANK_CHECK_OK(rank, status);
    RANK_CHECK(rank, sum == rank->n && handled == 1);
}

static void handlers_are_refused(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool by_work = i;
        struct ranks_config config = {.n = 2, .forked = true, .arg = &by_work};
        assert_int_equal(ranks_run(&config, interrupts), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(children_change_nothing),
        cmocka_unit_test(handlers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
