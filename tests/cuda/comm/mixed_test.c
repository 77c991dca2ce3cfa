/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators of ranks with and without a device: the contract suite, then what belongs to the way through the host:
 * the order of calls on streams and on the host, messages, user-defined operations, groups, works. */

#include "test.h"

#include "contract/contract.h"
#include "cuda/support/gpu_ranks.h"
#include "cuda/support/mixed.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* ---- the contract ---- */

static struct contract_case *cases;
static size_t n_cases;

static void contract(struct rank *rank)
{
    struct mixed m;
    struct contract_memory memory;
    if (!mixed_open(rank, &m)) return;
    contract_memory_init(&memory, m.gpu, m.streams[0]);
    for (size_t i = 0; i < n_cases && !rank->failure[0]; i++) {
        struct contract_case c = cases[i];
        /* The cases are of 1 to 17 ranks: dealt out to the worlds here. */
        if (c.at[RANKS] % 5 + 1 != (uint32_t)rank->n) continue;
        c.memory = m.gpu ? &memory : NULL;
        c.thrifty = true;
        c.mapped = c.seed >> 5;
        contract_run(rank, &c, NULL);
    }
    if (rank->failure[0]) return;
    contract_memory_fini(&memory, rank->comm);
    mixed_close(&m);
}

/* ---- order ---- */

enum { ROUNDS = 24, COUNT = 3001 };

static int64_t value(int32_t rank, int32_t round, size_t i)
{
    return (int64_t)(i % 1013) * (rank + 1) + 7 * round;
}

static int64_t sum(int32_t n, int32_t round, size_t i)
{
    int64_t total = 0;
    for (int32_t r = 0; r < n; r++) total += value(r, round, i);
    return total;
}

/* Calls that nobody waits for, on two streams in turn; between them calls on host memory, at once. */
static void order(struct rank *rank)
{
    struct mixed m;
    int64_t *buffers[ROUNDS], data[COUNT], told;
    if (!mixed_open(rank, &m)) return;
    for (int32_t t = 0; t < ROUNDS; t++) {
        for (size_t i = 0; i < COUNT; i++) data[i] = value(rank->index, t, i);
        RANK_CHECK(rank, (buffers[t] = mixed_put(&m, data, sizeof data)) != NULL);
    }
    uint64_t before = tutti_comm_sequence(rank->comm);
    for (int32_t t = 0; t < ROUNDS; t++) {
        RANK_CHECK_OK(rank, tutti_all_reduce(buffers[t], buffers[t], COUNT, TUTTI_INT64, TUTTI_SUM, rank->comm,
                                             &m.on[t % MIXED_STREAMS], NULL));
        if (t % 5 != 4) continue;
        told = rank->index + t;
        RANK_CHECK_OK(rank, tutti_all_reduce(&told, &told, 1, TUTTI_INT64, TUTTI_SUM, rank->comm, NULL, NULL));
        RANK_CHECK(rank, told == rank->n * (rank->n - 1) / 2 + t * rank->n);
    }
    for (int32_t t = 0; t < ROUNDS; t++) {
        RANK_CHECK(rank, mixed_get(&m, data, buffers[t], sizeof data));
        for (size_t i = 0; i < COUNT; i++) RANK_CHECK(rank, data[i] == sum(rank->n, t, i));
        mixed_free(&m, buffers[t]);
    }
    RANK_CHECK(rank, tutti_comm_sequence(rank->comm) == before + ROUNDS + ROUNDS / 5);
    RANK_CHECK_OK(rank, tutti_comm_state(rank->comm, NULL));
    mixed_close(&m);
}

static void hold_up(void *arg)
{
    (void)arg;
    struct timespec nap = {.tv_nsec = 300000000};
    nanosleep(&nap, NULL);
}

/* One buffer on two streams, the first of which is late: the second call takes the result of the first. */
static void chained(struct rank *rank)
{
    struct mixed m;
    int64_t one = 1, *buffer, got = 0;
    if (!mixed_open(rank, &m)) return;
    RANK_CHECK(rank, (buffer = mixed_put(&m, &one, sizeof one)) != NULL);
    if (m.gpu) RANK_CHECK_OK(rank, tutti_cuda_host_call(m.gpu, m.streams[0], hold_up, NULL));
    for (int t = 0; t < 2; t++)
        RANK_CHECK_OK(rank, tutti_all_reduce(buffer, buffer, 1, TUTTI_INT64, TUTTI_SUM, rank->comm, &m.on[t], NULL));
    RANK_CHECK(rank, mixed_get(&m, &got, buffer, sizeof got));
    if (got != rank->n * rank->n) rank_fail(rank, __FILE__, __LINE__, "%d instead of %d", (int)got, rank->n * rank->n);
    mixed_free(&m, buffer);
    mixed_close(&m);
}

/* More than may be under way at once: who enqueues waits, and the communicator goes while streams are behind. */
static void many(struct rank *rank)
{
    struct mixed m;
    int32_t one = 1, *buffer, got;
    if (!mixed_open(rank, &m)) return;
    RANK_CHECK(rank, (buffer = mixed_put(&m, &one, sizeof one)) != NULL);
    for (int t = 0; t < 200; t++)
        RANK_CHECK_OK(rank, tutti_all_reduce(buffer, buffer, 1, TUTTI_INT32, TUTTI_MAX, rank->comm, &m.on[0], NULL));
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    RANK_CHECK(rank, mixed_get(&m, &got, buffer, sizeof got) && got == 1);
    mixed_free(&m, buffer);
    mixed_close(&m);
}

/* ---- works and groups ---- */

static void tell(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static void works(struct rank *rank)
{
    struct mixed m;
    int32_t numbers[4], *buffers[4];
    struct tutti_work *work = NULL, *all = NULL;
    _Atomic int n_told = 0;
    if (!mixed_open(rank, &m)) return;
    for (int b = 0; b < 4; b++) {
        numbers[b] = rank->index + b;
        RANK_CHECK(rank, (buffers[b] = mixed_put(&m, &numbers[b], sizeof numbers[b])) != NULL);
    }
    RANK_CHECK_OK(rank,
                  tutti_all_reduce(buffers[0], buffers[0], 1, TUTTI_INT32, TUTTI_SUM, rank->comm, &m.on[0], &work));
    RANK_CHECK_OK(rank, tutti_work_notify(work, tell, &n_told));
    RANK_CHECK_OK(rank, tutti_work_wait(work, 0));
    RANK_CHECK_OK(rank, tutti_work_test(work));
    RANK_CHECK(rank, tutti_work_duration_ns(work) > 0);
    tutti_work_free(work);
    RANK_CHECK_OK(rank, tutti_group_start());
    for (int b = 1; b < 4; b++)
        RANK_CHECK_OK(rank, tutti_all_reduce(buffers[b], buffers[b], 1, TUTTI_INT32, TUTTI_SUM, rank->comm,
                                             &m.on[b % MIXED_STREAMS], NULL));
    RANK_CHECK_OK(rank, tutti_group_end(&all));
    RANK_CHECK_OK(rank, tutti_work_wait(all, 0));
    tutti_work_free(all);
    for (int b = 0; b < 4; b++) {
        RANK_CHECK(rank, mixed_get(&m, &numbers[b], buffers[b], sizeof numbers[b]));
        RANK_CHECK(rank, numbers[b] == rank->n * (rank->n - 1) / 2 + b * rank->n);
    }
    /* Freeing waits for the device, and keeps others waiting who ask the driver for the end of a work there. */
    RANK_CHECK_OK(rank, tutti_barrier(m.beside, NULL, NULL));
    for (int b = 0; b < 4; b++) mixed_free(&m, buffers[b]);
    mixed_close(&m);
    RANK_CHECK(rank, n_told == 1);
}

/* ---- messages ---- */

enum { WORDS = 50000 };

/* To the right with two tags, which are taken in the other order, whoever sent them; the first is short. */
static void messages(struct rank *rank)
{
    static const uint32_t short_words = 100;
    struct mixed m;
    struct tutti_message found[2] = {{0}};
    int32_t right = (rank->index + 1) % rank->n, left = (rank->index + rank->n - 1) % rank->n;
    uint32_t *data = rank_alloc(rank, WORDS * sizeof *data), *out, *in[2];
    if (!mixed_open(rank, &m)) return;
    for (uint32_t i = 0; i < WORDS; i++) data[i] = i + 1000 * (uint32_t)rank->index;
    RANK_CHECK(rank, (out = mixed_put(&m, data, WORDS * 4)) != NULL);
    memset(data, 0x77, WORDS * 4);
    for (int b = 0; b < 2; b++) RANK_CHECK(rank, (in[b] = mixed_put(&m, data, WORDS * 4)) != NULL);
    RANK_CHECK_OK(rank, tutti_group_start());
    RANK_CHECK_OK(rank, tutti_send(out, short_words, TUTTI_UINT32, right, 5, rank->comm, &m.on[0], NULL));
    RANK_CHECK_OK(rank, tutti_send(out, WORDS, TUTTI_UINT32, right, 6, rank->comm, &m.on[0], NULL));
    RANK_CHECK_OK(rank,
                  tutti_recv(in[0], WORDS, TUTTI_UINT32, TUTTI_ANY_SOURCE, 6, rank->comm, &m.on[0], &found[0], NULL));
    RANK_CHECK_OK(rank,
                  tutti_recv(in[1], WORDS, TUTTI_UINT32, left, TUTTI_ANY_TAG, rank->comm, &m.on[0], &found[1], NULL));
    RANK_CHECK_OK(rank, tutti_group_end(NULL));
    for (int b = 0; b < 2; b++) {
        uint32_t n = b == 0 ? WORDS : short_words;
        RANK_CHECK(rank, mixed_get(&m, data, in[b], WORDS * 4));
        RANK_CHECK(rank, found[b].source == left && found[b].tag == 6 - b && found[b].bytes == n * 4);
        for (uint32_t i = 0; i < n; i++) RANK_CHECK(rank, data[i] == i + 1000 * (uint32_t)left);
        for (uint32_t i = n; i < WORDS; i++) RANK_CHECK(rank, data[i] == 0x77777777);
        mixed_free(&m, in[b]);
    }
    mixed_free(&m, out);
    mixed_close(&m);
}

/* To the right on one stream, from the left on the other, more than a sender may be ahead; a sum between them. */
static void streams(struct rank *rank)
{
    struct mixed m;
    int32_t right = (rank->index + 1) % rank->n, left = (rank->index + rank->n - 1) % rank->n;
    uint32_t *data = rank_alloc(rank, WORDS * sizeof *data), *out, *in, *sum;
    if (!mixed_open(rank, &m)) return;
    for (uint32_t i = 0; i < WORDS; i++) data[i] = i + 1000 * (uint32_t)rank->index;
    RANK_CHECK(rank, (out = mixed_put(&m, data, WORDS * 4)) && (in = mixed_put(&m, NULL, WORDS * 4)));
    RANK_CHECK(rank, (sum = mixed_put(&m, (uint32_t[]){1}, 4)) != NULL);
    if (m.gpu) RANK_CHECK_OK(rank, tutti_cuda_host_call(m.gpu, m.streams[0], hold_up, NULL));
    RANK_CHECK_OK(rank, tutti_group_start());
    RANK_CHECK_OK(rank, tutti_send(out, WORDS, TUTTI_UINT32, right, 5, rank->comm, &m.on[0], NULL));
    RANK_CHECK_OK(rank, tutti_all_reduce(sum, sum, 1, TUTTI_UINT32, TUTTI_SUM, rank->comm, &m.on[1], NULL));
    RANK_CHECK_OK(rank, tutti_recv(in, WORDS, TUTTI_UINT32, left, 5, rank->comm, &m.on[1], NULL, NULL));
    RANK_CHECK_OK(rank, tutti_group_end(NULL));
    if (m.gpu) RANK_CHECK_OK(rank, tutti_cuda_copy(m.gpu, out, in, WORDS * 4, m.streams[0])); /* which waits, too */
    RANK_CHECK(rank, mixed_get(&m, data, m.gpu ? out : in, WORDS * 4));
    for (uint32_t i = 0; i < WORDS; i++) RANK_CHECK(rank, data[i] == i + 1000 * (uint32_t)left);
    RANK_CHECK(rank, mixed_get(&m, data, sum, 4) && data[0] == (uint32_t)rank->n);
    mixed_free(&m, sum);
    mixed_free(&m, out);
    mixed_free(&m, in);
    mixed_close(&m);
}

/* ---- operations of users ---- */

/* Functions x -> a x + b over the integers modulo 2^32, one an element: associative, and the order matters. */
static void compose(const void *left, const void *right, void *out, size_t count, enum tutti_dtype dtype, void *arg)
{
    const uint64_t *f = left, *g = right;
    uint64_t *c = out;
    (void)dtype, (void)arg;
    for (size_t i = 0; i < count; i++) {
        const uint32_t a = (uint32_t)(f[i] >> 32), b = (uint32_t)f[i], p = (uint32_t)(g[i] >> 32), q = (uint32_t)g[i];
        c[i] = (uint64_t)(a * p) << 32 | (uint32_t)(a * q + b);
    }
}

static void maps(int32_t rank, uint64_t out[4])
{
    for (uint64_t i = 0; i < 4; i++) out[i] = (uint64_t)(rank + 2) * UINT64_C(0x9e3779b97f4a7c15) + i * i * i;
}

/* Between calls that need no such thing. */
static void users(struct rank *rank)
{
    struct mixed m;
    enum tutti_op op;
    uint64_t own[4], want[4], got[4], *composed, *plain;
    if (!mixed_open(rank, &m)) return;
    RANK_CHECK_OK(rank, tutti_op_create(rank->context, compose, NULL, false, &op));
    maps(rank->index, own);
    maps(0, want);
    for (int32_t r = 1; r < rank->n; r++) {
        maps(r, got);
        compose(want, got, want, 4, TUTTI_UINT64, NULL);
    }
    RANK_CHECK(rank, (composed = mixed_put(&m, own, sizeof own)) && (plain = mixed_put(&m, own, sizeof own)));
    RANK_CHECK_OK(rank, tutti_all_reduce(composed, composed, 4, TUTTI_UINT64, op, rank->comm, &m.on[0], NULL));
    RANK_CHECK_OK(rank, tutti_all_reduce(plain, plain, 4, TUTTI_UINT64, TUTTI_BXOR, rank->comm, &m.on[1], NULL));
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    RANK_CHECK(rank, mixed_get(&m, got, composed, sizeof got) && memcmp(got, want, sizeof got) == 0);
    memset(want, 0, sizeof want);
    for (int32_t r = 0; r < rank->n; r++) {
        maps(r, own);
        for (int i = 0; i < 4; i++) want[i] ^= own[i];
    }
    RANK_CHECK(rank, mixed_get(&m, got, plain, sizeof got) && memcmp(got, want, sizeof got) == 0);
    mixed_free(&m, composed);
    mixed_free(&m, plain);
    mixed_close(&m);
    RANK_CHECK_OK(rank, tutti_op_destroy(rank->context, op));
}

/* ---- all, on processes and on threads ---- */

static const rank_function functions[] = {chained, order, many, works, messages, streams, users, contract};

static void run(bool forked)
{
    cases = contract_pairs(test_seed() + 11 + forked, &n_cases);
    assert_non_null(cases);
    mixed_run_all(1, forked, functions, TUTTI_ARRAY_LEN(functions));
    free(cases);
}

static void processes(void **state)
{
    (void)state, run(true);
}

static void threads(void **state)
{
    (void)state, run(false);
}

/* Where the ranks' own devices reach one another, operations of users alone go through the host. */
static void reached(void **state)
{
    static const rank_function user = users;
    (void)state;
    for (uint32_t n = 1; n <= 3; n++) {
        struct mixed_world world = {.n = n, .devices = 0x7, .forked = true};
        assert_int_equal(mixed_run(&world, &user, 1), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(processes), cmocka_unit_test(reached),
                                       cmocka_unit_test(threads)};
    gpu_ranks_need_device();
    return cmocka_run_group_tests_name("mixed communicators", tests, NULL, NULL);
}
