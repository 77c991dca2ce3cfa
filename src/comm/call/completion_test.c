/* SPDX-License-Identifier: BSD-3-Clause */
/* Notices of completion and the lives of communicators and contexts: what destruction waits for, destruction and abort
 * from within a function, works that outlive their context, groups over several contexts, persistent calls. */
#include "ranks.h"
#include "test.h"

#include "base/base.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#define MS INT64_C(1000000)

/* True once *n is at least `least`; 20 s. */
static bool reaches(_Atomic uint32_t *n, uint32_t least)
{
    for (int i = 0; i < 200000 && atomic_load(n) < least; i++) tutti_sleep_ns(MS / 10);
    return atomic_load(n) >= least;
}

static void count(void *arg)
{
    atomic_fetch_add((_Atomic uint32_t *)arg, 1);
}

static void count_slowly(void *arg)
{
    tutti_sleep_ns(3 * MS);
    count(arg);
}

/* A rank's own context and communicator. */
static void open_own(struct rank *rank, const char *suffix, struct tutti_context **context, struct tutti_comm **comm)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    char name[128];
    snprintf(name, sizeof name, "%.100s-%s", rank->name, suffix);
    config.rank = rank->index;
    config.n_ranks = rank->n;
    config.name = name;
    RANK_CHECK_OK(rank, tutti_context_create(NULL, 0, context));
    RANK_CHECK_OK(rank, tutti_comm_create(*context, &config, comm));
}

/* ---- destruction from outside waits for the functions, which may use what goes afterwards; the context aborts
 * what is left, the communicator lets it end ---- */
static void outside(struct rank *rank)
{
    struct tutti_context *context = NULL;
    struct tutti_comm *comm = NULL;
    struct tutti_work *work;
    int32_t x[6];
    open_own(rank, "outside", &context, &comm);
    if (rank->failure[0]) return;
    _Atomic uint32_t calls = 0;
    for (int i = 0; i < 6; i++) {
        x[i] = rank->index;
        RANK_CHECK_OK(rank, tutti_all_reduce(&x[i], &x[i], 1, TUTTI_INT32, TUTTI_SUM, comm, NULL, &work));
        RANK_CHECK_OK(rank, tutti_work_notify(work, count_slowly, &calls));
        tutti_work_free(work);
    }
    tutti_comm_destroy(comm);
    uint32_t n = atomic_load(&calls);
    tutti_context_destroy(context);
    RANK_CHECK(rank, n == 6);
    for (int i = 0; i < 6; i++) RANK_CHECK(rank, x[i] == rank->n * (rank->n - 1) / 2);
}

static void alone(struct rank *rank)
{
    struct tutti_context *context = NULL;
    struct tutti_comm *comm = NULL;
    struct tutti_work *work;
    int32_t x = 0;
    open_own(rank, "alone", &context, &comm);
    if (rank->failure[0]) return;
    _Atomic uint32_t calls = 0;
    for (int i = 0; i < 6; i++) {
        RANK_CHECK_OK(rank, tutti_recv(&x, 1, TUTTI_INT32, 0, i, comm, NULL, NULL, &work));
        RANK_CHECK_OK(rank, tutti_work_notify(work, count_slowly, &calls));
        tutti_work_free(work);
    }
    tutti_context_destroy(context);
    uint32_t n = atomic_load(&calls);
    tutti_comm_destroy(comm);
    RANK_CHECK(rank, n == 6);
}

static void destroyed_outside(void **state)
{
    (void)state;
    struct ranks_config config = {.n = 2, .no_comm = true, .no_context = true};
    assert_int_equal(ranks_run(&config, outside), 0);
    config.forked = true;
    assert_int_equal(ranks_run(&config, outside), 0);
    config = (struct ranks_config){.n = 1, .no_comm = true, .no_context = true};
    assert_int_equal(ranks_run(&config, alone), 0);
}

/* ---- of another communicator's functions destruction knows nothing ---- */
struct gate {
    _Atomic uint32_t open, passed;
};

static void pass(void *arg)
{
    struct gate *gate = arg;
    reaches(&gate->open, 1);
    count(&gate->passed);
}

static void apart(struct rank *rank)
{
    struct tutti_comm *other = NULL;
    struct tutti_work *work = NULL;
    struct gate gate = {0};
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &other));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, &work));
    RANK_CHECK_OK(rank, tutti_work_notify(work, pass, &gate));
    tutti_work_free(work);
    tutti_comm_destroy(other); /* would not return */
    atomic_store(&gate.open, 1);
    RANK_CHECK(rank, reaches(&gate.passed, 1));
}

static void destroyed_apart(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(2, apart, NULL), 0);
}

/* ---- destruction from within a function: of the communicator, of the context, of both; the functions behind it run
 * afterwards ---- */
struct ending {
    struct tutti_context *context;
    struct tutti_comm *comm;
    struct tutti_work *first, *second;
    bool comm_too;
    _Atomic uint32_t *done;
};

static void end_it(void *arg)
{
    struct ending *ending = arg;
    tutti_sleep_ns(2 * MS); /* so that more is queued */
    if (ending->comm_too) tutti_comm_destroy(ending->comm);
    tutti_context_destroy(ending->context);
    if (!ending->comm_too) tutti_comm_destroy(ending->comm);
    tutti_work_free(ending->first);
    count(ending->done);
}

static void end_after(void *arg)
{
    struct ending *ending = arg;
    enum tutti_status status = tutti_work_test(ending->second); /* still whole */
    tutti_work_free(ending->second);
    if (status == TUTTI_OK) count(ending->done);
}

static void within(struct rank *rank)
{
    for (int turn = 0; turn < 4; turn++) {
        /* A context that goes first aborts what the others are not through with. */
        struct ending ending = {.comm_too = rank->n > 1 || turn % 2};
        _Atomic uint32_t done = 0;
        char suffix[16];
        ending.done = &done;
        snprintf(suffix, sizeof suffix, "within%d", turn);
        open_own(rank, suffix, &ending.context, &ending.comm);
        if (rank->failure[0]) return;
        RANK_CHECK_OK(rank, tutti_barrier(ending.comm, NULL, &ending.first));
        RANK_CHECK_OK(rank, tutti_barrier(ending.comm, NULL, &ending.second));
        RANK_CHECK_OK(rank, tutti_work_wait(ending.second, 0));
        RANK_CHECK_OK(rank, tutti_work_wait(ending.first, 0));
        struct tutti_work *first = ending.first, *second = ending.second;
        RANK_CHECK_OK(rank, tutti_work_notify(second, count, &done));
        RANK_CHECK_OK(rank, tutti_work_notify(first, end_it, &ending));
        RANK_CHECK_OK(rank, tutti_work_notify(second, end_after, &ending));
        RANK_CHECK(rank, reaches(&done, 3));
    }
}

static void destroyed_within(void **state)
{
    (void)state;
    struct ranks_config config = {.n = 2, .no_comm = true, .no_context = true};
    assert_int_equal(ranks_run(&config, within), 0);
    config.forked = true;
    assert_int_equal(ranks_run(&config, within), 0);
    config = (struct ranks_config){.n = 1, .no_comm = true, .no_context = true};
    assert_int_equal(ranks_run(&config, within), 0);
}

/* ---- a function destroys its communicator, whose context is private and goes with it, while calls are in flight ----
 */
struct leaving {
    struct tutti_comm *comm;
    _Atomic uint32_t done;
};

static void leave(void *arg)
{
    struct leaving *leaving = arg;
    tutti_comm_destroy(leaving->comm);
    count(&leaving->done);
}

static void private_context(struct rank *rank)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    struct leaving leaving = {.comm = NULL};
    _Atomic uint32_t others = 0;
    struct tutti_work *works[2];
    int32_t x[2] = {1, 1};
    config.rank = rank->index;
    config.n_ranks = rank->n;
    config.name = rank->name;
    RANK_CHECK_OK(rank, tutti_comm_create(NULL, &config, &leaving.comm));
    for (int i = 0; i < 2; i++)
        RANK_CHECK_OK(rank, tutti_all_reduce(&x[i], &x[i], 1, TUTTI_INT32, TUTTI_SUM, leaving.comm, NULL, &works[i]));
    RANK_CHECK_OK(rank, tutti_work_notify(works[1], count, &others));
    RANK_CHECK_OK(rank, tutti_work_notify(works[0], leave, &leaving));
    for (int i = 0; i < 2; i++) tutti_work_free(works[i]);
    RANK_CHECK(rank, reaches(&leaving.done, 1) && reaches(&others, 1));
    RANK_CHECK(rank, x[0] == rank->n && x[1] == rank->n);
}

static void destroyed_private(void **state)
{
    (void)state;
    struct ranks_config config = {.n = 3, .no_comm = true, .no_context = true};
    for (int turn = 0; turn < 5; turn++) assert_int_equal(ranks_run(&config, private_context), 0);
}

/* ---- abort: from within a function; and what it ends is told ---- */
struct aborting {
    struct tutti_comm *comm;
    struct tutti_work *pending;
    struct tutti_error error;
    _Atomic uint32_t told;
};

static void abort_it(void *arg)
{
    tutti_comm_abort(((struct aborting *)arg)->comm, "a function said so");
}

static void tell(void *arg)
{
    struct aborting *aborting = arg;
    tutti_work_error(aborting->pending, &aborting->error);
    count(&aborting->told);
}

static void abort_within(struct rank *rank)
{
    struct aborting aborting = {.comm = rank->comm};
    struct tutti_work *work = NULL;
    int32_t x = 0;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, &work));
    RANK_CHECK_OK(rank, tutti_recv(&x, 1, TUTTI_INT32, TUTTI_ANY_SOURCE, 5, rank->comm, NULL, NULL, &aborting.pending));
    RANK_CHECK_OK(rank, tutti_work_notify(aborting.pending, tell, &aborting));
    if (rank->index == 0) RANK_CHECK_OK(rank, tutti_work_notify(work, abort_it, &aborting));
    tutti_work_free(work);
    RANK_CHECK(rank, reaches(&aborting.told, 1));
    tutti_work_free(aborting.pending);
    RANK_CHECK(rank, aborting.error.status == TUTTI_ERR_ABORTED && strstr(aborting.error.text, "a function said so"));
}

static void aborted_within(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(3, abort_within, NULL), 0);
    assert_int_equal(ranks_forked(2, abort_within, NULL), 0);
}

/* ---- a work that outlives its context notifies at once, on this thread ---- */
static void outlive(struct rank *rank)
{
    struct tutti_context *context = NULL;
    struct tutti_comm *comm = NULL;
    struct tutti_work *works[2];
    for (int before = 0; before < 2; before++) { /* whether there was a completion thread */
        _Atomic uint32_t calls = 0;
        open_own(rank, before ? "before" : "never", &context, &comm);
        if (rank->failure[0]) return;
        for (int i = 0; i < 2; i++) RANK_CHECK_OK(rank, tutti_barrier(comm, NULL, &works[i]));
        if (before) RANK_CHECK_OK(rank, tutti_work_notify(works[0], count, &calls));
        for (int i = 0; i < 2; i++) RANK_CHECK_OK(rank, tutti_work_wait(works[i], 0));
        tutti_comm_destroy(comm);
        tutti_context_destroy(context);
        for (int i = 0; i < 2; i++) {
            uint32_t n = atomic_load(&calls);
            RANK_CHECK_OK(rank, tutti_work_notify(works[i], count, &calls));
            RANK_CHECK(rank, atomic_load(&calls) == n + 1);
            tutti_work_free(works[i]);
        }
        RANK_CHECK(rank, atomic_load(&calls) == (before ? 3 : 2));
    }
}

static void outlived(void **state)
{
    (void)state;
    struct ranks_config config = {.n = 2, .no_comm = true, .no_context = true};
    assert_int_equal(ranks_run(&config, outlive), 0);
}

/* ---- groups: over two contexts, whichever ends last; and one whose calls have works of their own ---- */
struct whole {
    struct tutti_work *work;
    enum tutti_status status;
    _Atomic uint32_t calls;
};

static void look(void *arg)
{
    struct whole *whole = arg;
    whole->status = tutti_work_test(whole->work);
    count(&whole->calls);
}

static void group_turn(struct rank *rank, struct tutti_comm *comms[2], int first)
{
    struct whole whole = {.status = TUTTI_ERR_INTERNAL};
    int32_t x[2] = {0}, previous = (rank->index + rank->n - 1) % rank->n, next = (rank->index + 1) % rank->n;
    RANK_CHECK_OK(rank, tutti_group_start());
    for (int i = 0; i < 2; i++)
        RANK_CHECK_OK(rank, tutti_recv(&x[i], 1, TUTTI_INT32, previous, 0, comms[i], NULL, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_group_end(&whole.work));
    RANK_CHECK_OK(rank, tutti_work_notify(whole.work, look, &whole));
    for (int k = 0; k < 2; k++) {
        int32_t mine = rank->index;
        RANK_CHECK_OK(rank, tutti_send(&mine, 1, TUTTI_INT32, next, 0, comms[(first + k) % 2], NULL, NULL));
        if (k == 1) break;
        tutti_sleep_ns(MS / 10);
        RANK_CHECK(rank, atomic_load(&whole.calls) == 0);
        RANK_CHECK_OK(rank, tutti_barrier(comms[first], NULL, NULL)); /* nobody sends the second part before that */
    }
    RANK_CHECK(rank, reaches(&whole.calls, 1) && whole.status == TUTTI_OK);
    RANK_CHECK(rank, x[0] == previous && x[1] == previous);
    tutti_work_free(whole.work);
}

static void groups(struct rank *rank)
{
    struct tutti_context *context = NULL;
    struct tutti_comm *comms[2] = {rank->comm, NULL};
    open_own(rank, "second", &context, &comms[1]);
    for (int turn = 0; turn < 20 && !rank->failure[0]; turn++) group_turn(rank, comms, turn % 2);
    struct tutti_work *own = NULL, *rest = NULL;
    _Atomic uint32_t calls = 0;
    RANK_CHECK_OK(rank, tutti_group_start());
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, &own));
    RANK_CHECK_OK(rank, tutti_group_end(&rest));
    RANK_CHECK_OK(rank, tutti_work_notify(own, count, &calls));
    RANK_CHECK_OK(rank, tutti_work_notify(rest, count, &calls));
    tutti_work_free(own);
    tutti_work_free(rest);
    RANK_CHECK(rank, reaches(&calls, 2));
    tutti_comm_destroy(comms[1]);
    tutti_context_destroy(context);
}

static void grouped(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(2, groups, NULL), 0);
    assert_int_equal(ranks_threads(3, groups, NULL), 0);
    assert_int_equal(ranks_forked(2, groups, NULL), 0);
}

/* ---- persistent calls, started again from within the function of the run before ---- */
struct again {
    struct tutti_persistent *persistent;
    struct tutti_work *work;
    int runs;
    enum tutti_status status;
    _Atomic uint32_t over;
};
#define RUNS 50

static void run_again(void *arg)
{
    struct again *again = arg;
    tutti_work_free(again->work);
    again->work = NULL;
    if (again->runs++ < RUNS) {
        enum tutti_status status = tutti_persistent_start(again->persistent, &again->work);
        if (status == TUTTI_OK) status = tutti_work_notify(again->work, run_again, again);
        if (status == TUTTI_OK) return; /* the next one may be at it already */
        again->status = status;
    }
    count(&again->over);
}

static void persistent_turns(struct rank *rank)
{
    struct again again = {.work = NULL, .status = TUTTI_OK};
    int64_t x[3] = {1, 2, 3};
    RANK_CHECK_OK(rank, tutti_persistent_record());
    RANK_CHECK_OK(rank, tutti_all_reduce(x, x, 3, TUTTI_INT64, TUTTI_MAX, rank->comm, NULL, NULL));
    RANK_CHECK_OK(rank, tutti_persistent_end(&again.persistent));
    run_again(&again);
    RANK_CHECK(rank, reaches(&again.over, 1));
    RANK_CHECK(rank, again.status == TUTTI_OK && again.runs == RUNS + 1);
    RANK_CHECK(rank, x[0] == 1 && x[1] == 2 && x[2] == 3);
    tutti_persistent_destroy(again.persistent);
}

static void persistent(void **state)
{
    (void)state;
    assert_int_equal(ranks_forked(2, persistent_turns, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(destroyed_outside), cmocka_unit_test(destroyed_apart), cmocka_unit_test(destroyed_within),
        cmocka_unit_test(destroyed_private), cmocka_unit_test(aborted_within),  cmocka_unit_test(outlived),
        cmocka_unit_test(grouped),           cmocka_unit_test(persistent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
