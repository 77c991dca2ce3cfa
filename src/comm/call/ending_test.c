/* SPDX-License-Identifier: BSD-3-Clause */
/* A communicator is destroyed by another thread while a call on the short way is about to return: destruction waits
 * until the call is out. The linker puts the functions below in the place of two of the engine (folder.cmake), so that
 * the other thread comes at the worst moment, each time. */
#include "comm/call/call.h"
#include "ranks.h"
#include "test.h"

#include <pthread.h>

#define NAP_NS (50 * TUTTI_NS_PER_MS) /* what a destruction that waits for nobody takes, and more */

static const struct tutti_call_options attended = {.size = sizeof(attended), .premul_value = 1.0, .attended = true};

static _Thread_local struct tutti_comm *victim; /* the communicator whose call this thread makes */
static _Thread_local pthread_t destroyer;
static _Thread_local bool gone_inside;       /* the team went while the call still used it */
static _Atomic(struct tutti_team *) watched; /* the victim's; NULL: it was destroyed */

enum tutti_status __real_tutti_work_past(struct tutti_team *team, uint64_t seq, uint64_t start_ns,
                                         struct tutti_work **out);
enum tutti_status __wrap_tutti_work_past(struct tutti_team *team, uint64_t seq, uint64_t start_ns,
                                         struct tutti_work **out);
enum tutti_status __real_tutti_work_finish(struct tutti_work *work);
enum tutti_status __wrap_tutti_work_finish(struct tutti_work *work);
void __real_tutti_team_destroy(struct tutti_team *team);
void __wrap_tutti_team_destroy(struct tutti_team *team);

void __wrap_tutti_team_destroy(struct tutti_team *team)
{
    struct tutti_team *expected = team;
    atomic_compare_exchange_strong(&watched, &expected, NULL);
    __real_tutti_team_destroy(team);
}

static void *destroy(void *comm)
{
    tutti_comm_destroy(comm);
    return NULL;
}

/* Lets another thread try to destroy the communicator; whether it could. */
static bool is_destroyed_meanwhile(void)
{
    atomic_store(&watched, victim->team);
    pthread_create(&destroyer, NULL, destroy, victim);
    victim = NULL;
    tutti_sleep_ns(NAP_NS);
    return gone_inside = !atomic_load(&watched);
}

enum tutti_status __wrap_tutti_work_past(struct tutti_team *team, uint64_t seq, uint64_t start_ns,
                                         struct tutti_work **out)
{
    if (victim && is_destroyed_meanwhile()) return TUTTI_ERR_INTERNAL;
    return __real_tutti_work_past(team, seq, start_ns, out);
}

enum tutti_status __wrap_tutti_work_finish(struct tutti_work *work)
{
    if (victim && is_destroyed_meanwhile()) tutti_log(TUTTI_LOG_WARN, "the team is gone, its work is not");
    return __real_tutti_work_finish(work);
}

/* One call is out before its communicator goes. Rank 0 calls long before the others (first), so that it must wait, or
 * long after them, so that it need not. */
static void end_in_call(struct rank *rank, const struct tutti_call_options *options, bool first)
{
    struct tutti_comm *comm = NULL;
    struct tutti_work *work = NULL, **wanted = options ? &work : NULL;
    int32_t x = rank->index + 1, y = 0;
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &comm));
    RANK_CHECK_OK(rank, tutti_barrier(comm, NULL, NULL));
    gone_inside = false;
    if (first == (rank->index > 0)) tutti_sleep_ns(NAP_NS);
    if (rank->index == 0) victim = comm;
    RANK_CHECK_OK(rank, tutti_all_reduce(&x, &y, 1, TUTTI_INT32, TUTTI_SUM, comm, options, wanted));
    bool ended = rank->index == 0 && !victim;
    if (rank->index == 0) RANK_CHECK(rank, ended);
    victim = NULL;
    RANK_CHECK(rank, !gone_inside);
    if (work) RANK_CHECK_OK(rank, tutti_work_wait(work, 0));
    RANK_CHECK(rank, y == rank->n * (rank->n + 1) / 2);
    tutti_work_free(work);
    if (ended)
        pthread_join(destroyer, NULL);
    else
        tutti_comm_destroy(comm);
}

static void end_attended(struct rank *rank)
{
    end_in_call(rank, &attended, false);
}

static void end_blocking(struct rank *rank)
{
    end_in_call(rank, NULL, true);
}

static void test_attended(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(2, end_attended, NULL), 0);
}

static void test_blocking(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(2, end_blocking, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_attended), cmocka_unit_test(test_blocking)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
