/* SPDX-License-Identifier: BSD-3-Clause */
/* The short way of calls that the engine carries out: peers can not tell by which way a call came, so each rank takes
 * whatever way it likes and results are right; what was kept is not used for another call; a sender of small messages
 * is far ahead of who does not listen; and deadlines, aborts and other threads find a call that goes the short way. */
#include "comm/comm.h"
#include "ranks.h"
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define MOST 4096 /* elements */
#define CALLS 400
#define AHEAD 60 /* calls that a root makes before anybody listens */

static struct tutti_option off = {"backends", "off"};

/* All ranks draw the same. */
static uint64_t draw(uint64_t *shared, uint64_t n)
{
    *shared = *shared * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*shared >> 33) % n;
}

static uint32_t n_kept(const struct rank *rank)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < TUTTI_COMM_KEPT; i++) n += rank->comm->kept[i].flight != NULL;
    return n;
}

static int64_t value(int32_t rank, int32_t call, size_t i)
{
    return (int64_t)rank * 1000003 + call * 7919 + (int64_t)i;
}

/* ---- every way beside every other ---- */

enum kind { ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE, SCAN, N_KINDS };

static enum tutti_status make(enum kind kind, const struct rank *rank, const int64_t *send, int64_t *recv, size_t n,
                              int32_t root, const struct tutti_call_options *options, struct tutti_work **work)
{
    switch (kind) {
    case ALL_REDUCE:
        return tutti_all_reduce(send, recv, n, TUTTI_INT64, TUTTI_SUM, rank->comm, options, work);
    case BROADCAST:
        return tutti_broadcast(recv, n, TUTTI_INT64, root, rank->comm, options, work);
    case ALL_GATHER:
        return tutti_all_gather(send, recv, n, TUTTI_INT64, rank->comm, options, work);
    case REDUCE:
        return tutti_reduce(send, recv, n, TUTTI_INT64, TUTTI_SUM, root, rank->comm, options, work);
    default:
        return tutti_scan(send, recv, n, TUTTI_INT64, TUTTI_SUM, rank->comm, options, work);
    }
}

static int64_t expected(enum kind kind, const struct rank *rank, int32_t call, int32_t root, size_t i, size_t n)
{
    const int32_t last = kind == SCAN ? rank->index + 1 : rank->n;
    int64_t sum = 0;
    if (kind == BROADCAST) return value(root, call, i);
    if (kind == ALL_GATHER) return value((int32_t)(i / n), call, i % n);
    for (int32_t r = 0; r < last; r++) sum += value(r, call, i);
    return sum;
}

/* Blocking, with a work that is waited for, attended, or in a group of its own. */
static enum tutti_status go(enum kind kind, struct rank *rank, const int64_t *send, int64_t *recv, size_t n,
                            int32_t root)
{
    static const struct tutti_call_options attended = {.size = sizeof(attended), .premul_value = 1, .attended = true};
    struct tutti_work *work = NULL;
    const uint64_t way = rank_random(rank) % 8;
    if (way > 2) return make(kind, rank, send, recv, n, root, NULL, NULL);
    enum tutti_status status = way == 2 ? tutti_group_start() : TUTTI_OK;
    if (status == TUTTI_OK)
        status = make(kind, rank, send, recv, n, root, way == 1 ? &attended : NULL, way == 2 ? NULL : &work);
    if (status == TUTTI_OK && way == 2) status = tutti_group_end(NULL);
    if (status == TUTTI_OK && work) status = tutti_work_wait(work, 0);
    tutti_work_free(work);
    return status;
}

static void any_way(struct rank *rank)
{
    const size_t room = MOST * (size_t)rank->n;
    int64_t *send = rank_alloc(rank, 2 * MOST * sizeof(*send)), *recv = rank_alloc(rank, 2 * room * sizeof(*recv));
    uint64_t shared = 20261128;
    for (int32_t call = 0; call < CALLS; call++) {
        const enum kind kind = (enum kind)draw(&shared, N_KINDS);
        const size_t n = draw(&shared, 4) ? 1 + draw(&shared, 8) : 1 + draw(&shared, MOST);
        const int32_t root = (int32_t)draw(&shared, (uint64_t)rank->n);
        const size_t which = draw(&shared, 2); /* one of two buffers */
        int64_t *in = send + which * MOST, *out = recv + which * room;
        for (size_t i = 0; i < n; i++) in[i] = out[i] = value(rank->index, call, i);
        RANK_CHECK_OK(rank, go(kind, rank, in, out, n, root));
        if (kind == REDUCE && rank->index != root) continue;
        for (size_t i = 0; i < (kind == ALL_GATHER ? n * (size_t)rank->n : n); i++)
            RANK_CHECK(rank, out[i] == expected(kind, rank, call, root, i, n));
    }
    RANK_CHECK(rank, n_kept(rank) > 0);
    struct tutti_engine_stats stats;
    tutti_engine_stats(rank->context->engine, &stats);
    RANK_CHECK(rank, rank->comm->lanes.n == 0 || stats.call_steps > 0);
}

/* ---- beside calls that are not over: the order is that of the calls ---- */

static void behind_a_long_one(struct rank *rank)
{
    enum { LONG = 1 << 18 };
    int64_t *x = rank_alloc(rank, LONG * sizeof(*x)), y = 0;
    for (int32_t call = 0; call < 20; call++) {
        struct tutti_work *work = NULL;
        for (size_t i = 0; i < LONG; i++) x[i] = value(rank->index, call, i);
        RANK_CHECK_OK(rank, tutti_all_reduce(x, x, LONG, TUTTI_INT64, TUTTI_SUM, rank->comm, NULL, &work));
        for (int32_t i = 0; i < 5; i++) {
            y = rank->index + i;
            RANK_CHECK_OK(rank, tutti_all_reduce(&y, &y, 1, TUTTI_INT64, TUTTI_MAX, rank->comm, NULL, NULL));
            RANK_CHECK(rank, y == rank->n - 1 + i);
        }
        RANK_CHECK_OK(rank, tutti_work_wait(work, 0));
        tutti_work_free(work);
        for (size_t i = 0; i < LONG; i += 997) RANK_CHECK(rank, x[i] == expected(ALL_REDUCE, rank, call, 0, i, LONG));
    }
}

/* ---- a copy of the input is taken at each call ---- */

static void copied_input(struct rank *rank)
{
    const size_t n = (size_t)rank->n;
    int32_t *x = rank_alloc(rank, n * sizeof(*x));
    for (int32_t call = 0; call < 50; call++) {
        for (size_t i = 0; i < n; i++) x[i] = rank->index * 1000 + (int32_t)i + call;
        RANK_CHECK_OK(rank, tutti_all_to_all(x, x, 1, TUTTI_INT32, rank->comm, NULL, NULL));
        for (size_t i = 0; i < n; i++) RANK_CHECK(rank, x[i] == (int32_t)i * 1000 + rank->index + call);
        uint16_t half = (uint16_t)(call % 2 ? 0x3c00 : 0x4000); /* 1, 2 */
        RANK_CHECK_OK(rank, tutti_all_reduce(&half, &half, 1, TUTTI_FLOAT16, TUTTI_AVG, rank->comm, NULL, NULL));
        RANK_CHECK(rank, half == (call % 2 ? 0x3c00 : 0x4000));
    }
}

/* ---- a sender is ahead, and its messages are held in their order, small and large ones ---- */

static _Atomic uint32_t n_made; /* by the root; ranks are threads */

static void ahead(struct rank *rank)
{
    uint8_t *data = rank_alloc(rank, 65536);
    uint64_t shared = 7;
    for (int32_t call = 0; call < AHEAD; call++) {
        data[0] = (uint8_t)(rank->index == 0 ? call : 0);
        RANK_CHECK_OK(rank, tutti_broadcast(data, 1, TUTTI_UINT8, 0, rank->comm, NULL, NULL));
        RANK_CHECK(rank, data[0] == call);
        if (rank->index == 0) atomic_store(&n_made, (uint32_t)call + 1);
        while (rank->index != 0 && atomic_load(&n_made) < AHEAD && !rank->failure[0]) tutti_sleep_ns(1000000);
    }
    for (int32_t call = 0; call < 300; call++) { /* listeners are late now and then */
        const size_t n = 1 + (draw(&shared, 2) ? draw(&shared, 64) : draw(&shared, 65536));
        if (rank->index != 0 && rank_random(rank) % 50 == 0) tutti_sleep_ns(3000000);
        memset(data, rank->index == 0 ? call : 0xff, n);
        RANK_CHECK_OK(rank, tutti_broadcast(data, n, TUTTI_UINT8, 0, rank->comm, NULL, NULL));
        for (size_t i = 0; i < n; i++) RANK_CHECK(rank, data[i] == (uint8_t)call);
    }
}

/* ---- what ends a call finds it ---- */

static void deadline(struct rank *rank)
{
    const struct tutti_call_options options = {
        .size = sizeof(options), .premul_value = 1, .timeout_ns = 300000000, .label = "short"};
    int32_t x = 1;
    for (int32_t call = 0; call < 3; call++)
        RANK_CHECK_OK(rank, tutti_all_reduce(&x, &x, 1, TUTTI_INT32, TUTTI_MAX, rank->comm, NULL, NULL));
    if (rank->index == 0) {
        RANK_CHECK_ERROR(rank, TUTTI_ERR_TIMEOUT, "all_reduce #4 (int32, 1 element, max, label 'short')",
                         tutti_all_reduce(&x, &x, 1, TUTTI_INT32, TUTTI_MAX, rank->comm, &options, NULL));
    } else {
        struct tutti_error error;
        while (tutti_comm_state(rank->comm, &error) >= 0) tutti_sleep_ns(1000000);
        RANK_CHECK(rank, error.status == TUTTI_ERR_TIMEOUT && strstr(error.text, "timed out after 300 ms"));
    }
}

static void *abort_soon(void *comm)
{
    tutti_sleep_ns(20000000);
    tutti_comm_abort(comm, "enough");
    return NULL;
}

static void aborted(struct rank *rank)
{
    pthread_t thread;
    int32_t x = 1;
    for (int32_t call = 0; call < 3; call++)
        RANK_CHECK_OK(rank, tutti_all_reduce(&x, &x, 1, TUTTI_INT32, TUTTI_MAX, rank->comm, NULL, NULL));
    if (rank->index > 0) { /* these never make the call that is aborted */
        struct tutti_error error;
        while (tutti_comm_state(rank->comm, &error) >= 0) tutti_sleep_ns(1000000);
        return;
    }
    RANK_CHECK(rank, pthread_create(&thread, NULL, abort_soon, rank->comm) == 0);
    enum tutti_status status = tutti_all_reduce(&x, &x, 1, TUTTI_INT32, TUTTI_MAX, rank->comm, NULL, NULL);
    pthread_join(thread, NULL);
    RANK_CHECK(rank, status == TUTTI_ERR_ABORTED && strstr(tutti_last_error()->text, "enough"));
}

/* ---- two communicators of one engine, on two threads ---- */

static void *calls_on(void *arg)
{
    struct tutti_comm *comm = arg;
    for (int32_t call = 0; call < CALLS; call++) {
        int32_t x = call;
        if (tutti_all_reduce(&x, &x, 1, TUTTI_INT32, TUTTI_MAX, comm, NULL, NULL) < 0 || x != call) return comm;
    }
    return NULL;
}

static void two_threads(struct rank *rank)
{
    struct tutti_comm *dup = NULL;
    pthread_t thread;
    void *wrong = NULL;
    RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &dup));
    RANK_CHECK(rank, pthread_create(&thread, NULL, calls_on, dup) == 0);
    void *here = calls_on(rank->comm);
    pthread_join(thread, &wrong);
    RANK_CHECK(rank, !here && !wrong);
    tutti_comm_destroy(dup);
}

static void run(rank_function function, uint32_t n)
{
    struct ranks_config config = {.n = n, .options = &off, .n_options = 1};
    assert_int_equal(ranks_run(&config, function), 0);
}

static void test_any_way(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 5; n++) run(any_way, n);
}
static void test_behind_a_long_one(void **state)
{
    (void)state;
    run(behind_a_long_one, 3);
}
static void test_copied_input(void **state)
{
    (void)state;
    run(copied_input, 4);
}
static void test_ahead(void **state)
{
    (void)state;
    atomic_store(&n_made, 0);
    run(ahead, 2);
    atomic_store(&n_made, 0);
    run(ahead, 5);
}
static void test_deadline(void **state)
{
    (void)state;
    run(deadline, 2);
}
static void test_aborted(void **state)
{
    (void)state;
    run(aborted, 3);
}
static void test_two_threads(void **state)
{
    (void)state;
    run(two_threads, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_way),      cmocka_unit_test(test_behind_a_long_one),
        cmocka_unit_test(test_copied_input), cmocka_unit_test(test_ahead),
        cmocka_unit_test(test_deadline),     cmocka_unit_test(test_aborted),
        cmocka_unit_test(test_two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
