/* SPDX-License-Identifier: BSD-3-Clause */
/* Every public collective and point-to-point call on threads and processes, blocking and not, in place and not, against
 * sums computed from what each rank is known to have sent. */
#include "base/base.h"
#include "ranks.h"
#include "reference.h"
#include "test.h"

#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>

#define COUNT 257
#define MAX_RANKS 8

/* What rank r sends as element i, for all to know. */
static int64_t value(int32_t rank, size_t i)
{
    uint64_t x = ((uint64_t)rank + 1) * UINT64_C(0x9e3779b97f4a7c15) + i * UINT64_C(0xbf58476d1ce4e5b9);
    return (int64_t)((x ^ (x >> 31)) >> 16);
}

static int64_t sum_to(int32_t end, size_t i)
{
    int64_t sum = 0;
    for (int32_t r = 0; r < end; r++) sum += value(r, i);
    return sum;
}

static void fill(int64_t *to, int32_t rank, size_t first, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = value(rank, first + i);
}

struct buffers {
    int64_t send[MAX_RANKS * COUNT], recv[MAX_RANKS * COUNT];
};

/* Blocking on even turns, a work on odd ones. */
static enum tutti_status finish(enum tutti_status status, struct tutti_work *work)
{
    if (status < 0 || !work) return status;
    status = tutti_work_wait(work, 0);
    struct tutti_error error;
    tutti_work_error(work, &error);
    if (error.status != status) status = TUTTI_ERR_INTERNAL;
    tutti_work_free(work);
    return status;
}
#define CALL(turn, call, ...)                                                                                          \
    do {                                                                                                               \
        struct tutti_work *work_ = NULL;                                                                               \
        enum tutti_status s_ = call(__VA_ARGS__, comm, NULL, (turn) % 2 ? &work_ : NULL);                              \
        RANK_CHECK_OK(rank, finish(s_, work_));                                                                        \
    } while (0)

static void reductions(struct rank *rank, struct buffers *b, int turn)
{
    struct tutti_comm *comm = rank->comm;
    int32_t n = rank->n, me = rank->index, root = (turn + 1) % n;
    size_t block = COUNT / 2;
    fill(b->send, me, 0, COUNT);
    CALL(turn, tutti_all_reduce, b->send, b->recv, COUNT, TUTTI_INT64, TUTTI_SUM);
    for (size_t i = 0; i < COUNT; i++) RANK_CHECK(rank, b->recv[i] == sum_to(n, i));
    fill(b->recv, me, 0, COUNT);
    CALL(turn, tutti_all_reduce, b->recv, b->recv, COUNT, TUTTI_INT64, TUTTI_SUM);
    for (size_t i = 0; i < COUNT; i++) RANK_CHECK(rank, b->recv[i] == sum_to(n, i));

    CALL(turn, tutti_reduce, b->send, me == root ? b->recv : NULL, COUNT, TUTTI_INT64, TUTTI_SUM, root);
    for (size_t i = 0; me == root && i < COUNT; i++) RANK_CHECK(rank, b->recv[i] == sum_to(n, i));

    memset(b->recv, 0x55, sizeof(b->recv));
    CALL(turn, tutti_scan, b->send, b->recv, COUNT, TUTTI_INT64, TUTTI_SUM);
    for (size_t i = 0; i < COUNT; i++) RANK_CHECK(rank, b->recv[i] == sum_to(me + 1, i));
    memset(b->recv, 0x55, sizeof(b->recv));
    CALL(turn, tutti_exscan, b->send, b->recv, COUNT, TUTTI_INT64, TUTTI_SUM);
    for (size_t i = 0; i < COUNT; i++)
        RANK_CHECK(rank, b->recv[i] == (me ? sum_to(me, i) : INT64_C(0x5555555555555555)));

    fill(b->send, me, 0, (size_t)n * block);
    CALL(turn, tutti_reduce_scatter, b->send, b->recv, block, TUTTI_INT64, TUTTI_SUM);
    for (size_t i = 0; i < block; i++) RANK_CHECK(rank, b->recv[i] == sum_to(n, (size_t)me * block + i));
    CALL(turn, tutti_reduce_scatter, b->send, b->send + (size_t)me * block, block, TUTTI_INT64, TUTTI_SUM);
    for (size_t i = 0; i < block; i++)
        RANK_CHECK(rank, b->send[(size_t)me * block + i] == sum_to(n, (size_t)me * block + i));
}

static void movements(struct rank *rank, struct buffers *b, int turn)
{
    struct tutti_comm *comm = rank->comm;
    int32_t n = rank->n, me = rank->index, root = (turn + 2) % n;
    if (me == root) fill(b->recv, root, 7, COUNT);
    CALL(turn, tutti_broadcast, b->recv, COUNT, TUTTI_INT64, root);
    for (size_t i = 0; i < COUNT; i++) RANK_CHECK(rank, b->recv[i] == value(root, 7 + i));

    fill(b->send, me, 0, COUNT);
    memset(b->recv, 0, sizeof(b->recv));
    CALL(turn, tutti_all_gather, b->send, b->recv, COUNT, TUTTI_INT64);
    for (int32_t r = 0; r < n; r++)
        for (size_t i = 0; i < COUNT; i++) RANK_CHECK(rank, b->recv[(size_t)r * COUNT + i] == value(r, i));
    memset(b->recv, 0, sizeof(b->recv));
    fill(b->recv + (size_t)me * COUNT, me, 0, COUNT);
    CALL(turn, tutti_all_gather, b->recv + (size_t)me * COUNT, b->recv, COUNT, TUTTI_INT64);
    for (int32_t r = 0; r < n; r++)
        for (size_t i = 0; i < COUNT; i++) RANK_CHECK(rank, b->recv[(size_t)r * COUNT + i] == value(r, i));

    memset(b->recv, 0, sizeof(b->recv));
    CALL(turn, tutti_gather, b->send, me == root ? b->recv : NULL, COUNT, TUTTI_INT64, root);
    for (int32_t r = 0; me == root && r < n; r++)
        for (size_t i = 0; i < COUNT; i++) RANK_CHECK(rank, b->recv[(size_t)r * COUNT + i] == value(r, i));

    for (int32_t r = 0; r < n; r++) fill(b->send + (size_t)r * COUNT, root, (size_t)r * 1000, COUNT);
    memset(b->recv, 0, sizeof(b->recv));
    CALL(turn, tutti_scatter, me == root ? b->send : NULL, b->recv, COUNT, TUTTI_INT64, root);
    for (size_t i = 0; i < COUNT; i++) RANK_CHECK(rank, b->recv[i] == value(root, (size_t)me * 1000 + i));

    for (int32_t r = 0; r < n; r++) fill(b->send + (size_t)r * COUNT, me, (size_t)r * 1000, COUNT);
    memset(b->recv, 0, sizeof(b->recv));
    CALL(turn, tutti_all_to_all, b->send, b->recv, COUNT, TUTTI_INT64);
    for (int32_t r = 0; r < n; r++)
        for (size_t i = 0; i < COUNT; i++)
            RANK_CHECK(rank, b->recv[(size_t)r * COUNT + i] == value(r, (size_t)me * 1000 + i));
    CALL(turn, tutti_all_to_all, b->send, b->send, COUNT, TUTTI_INT64);
    for (int32_t r = 0; r < n; r++)
        for (size_t i = 0; i < COUNT; i++)
            RANK_CHECK(rank, b->send[(size_t)r * COUNT + i] == value(r, (size_t)me * 1000 + i));
    struct tutti_work *work = NULL;
    enum tutti_status status = tutti_barrier(comm, NULL, turn % 2 ? &work : NULL);
    RANK_CHECK_OK(rank, finish(status, work));
}

/* Unequal blocks: rank r's is 11 r elements, so that rank 0 has none. Displacements leave gaps and run backwards. */
static void tables(int32_t n, size_t *counts, size_t *displs)
{
    for (int32_t r = 0; r < n; r++) {
        counts[r] = (size_t)r * 11;
        displs[r] = (size_t)(n - 1 - r) * 100;
    }
}

static void v_shared(struct rank *rank, struct buffers *b, int turn)
{
    struct tutti_comm *comm = rank->comm;
    int32_t n = rank->n, me = rank->index;
    size_t counts[MAX_RANKS], displs[MAX_RANKS], before = 0;
    tables(n, counts, displs);
    fill(b->send, me, 0, COUNT);
    memset(b->recv, 0x55, sizeof(b->recv));
    CALL(turn, tutti_all_gather_v, b->send, b->recv, counts, displs, TUTTI_INT64);
    for (int32_t r = 0; r < n; r++) {
        for (size_t i = 0; i < counts[r]; i++) RANK_CHECK(rank, b->recv[displs[r] + i] == value(r, i));
        RANK_CHECK(rank, b->recv[displs[r] + counts[r]] == INT64_C(0x5555555555555555)); /* the gap */
    }
    CALL(turn, tutti_all_gather_v, b->send, b->recv, counts, NULL, TUTTI_INT64);
    for (int32_t r = 0; r < n; r++) {
        for (size_t i = 0; i < counts[r]; i++) RANK_CHECK(rank, b->recv[before + i] == value(r, i));
        before += counts[r];
    }
    size_t own = 0;
    for (int32_t r = 0; r < me; r++) own += counts[r];
    fill(b->send, me, 0, before);
    CALL(turn, tutti_reduce_scatter_v, b->send, b->recv, counts, TUTTI_INT64, TUTTI_SUM);
    for (size_t i = 0; i < counts[me]; i++) RANK_CHECK(rank, b->recv[i] == sum_to(n, own + i));
}

static void v_private(struct rank *rank, struct buffers *b, int turn)
{
    struct tutti_comm *comm = rank->comm;
    int32_t n = rank->n, me = rank->index, root = (turn + 1) % n;
    size_t counts[MAX_RANKS], displs[MAX_RANKS], in_counts[MAX_RANKS], in_displs[MAX_RANKS];
    tables(n, counts, displs);
    fill(b->send, me, 0, COUNT);
    memset(b->recv, 0, sizeof(b->recv));
    bool here = me == root;
    CALL(turn, tutti_gather_v, b->send, counts[me], here ? b->recv : NULL, here ? counts : NULL, here ? displs : NULL,
         TUTTI_INT64, root);
    for (int32_t r = 0; here && r < n; r++)
        for (size_t i = 0; i < counts[r]; i++) RANK_CHECK(rank, b->recv[displs[r] + i] == value(r, i));
    for (int32_t r = 0; r < n; r++) fill(b->send + displs[r], root, (size_t)r * 1000, counts[r]);
    memset(b->recv, 0, sizeof(b->recv));
    CALL(turn, tutti_scatter_v, here ? b->send : NULL, here ? counts : NULL, here ? displs : NULL, b->recv, counts[me],
         TUTTI_INT64, root);
    for (size_t i = 0; i < counts[me]; i++) RANK_CHECK(rank, b->recv[i] == value(root, (size_t)me * 1000 + i));

    /* From s to d go 3 s + 5 d elements. */
    for (int32_t r = 0; r < n; r++) {
        in_counts[r] = (size_t)(3 * me + 5 * r);
        counts[r] = (size_t)(3 * r + 5 * me);
        in_displs[r] = (size_t)r * COUNT;
        fill(b->send + in_displs[r], me, (size_t)r * 1000, in_counts[r]);
    }
    CALL(turn, tutti_all_to_all_v, b->send, in_counts, in_displs, b->recv, counts, displs, TUTTI_INT64);
    for (int32_t r = 0; r < n; r++)
        for (size_t i = 0; i < counts[r]; i++)
            RANK_CHECK(rank, b->recv[displs[r] + i] == value(r, (size_t)me * 1000 + i));
}

static void messages(struct rank *rank, struct buffers *b)
{
    struct tutti_comm *comm = rank->comm;
    int32_t n = rank->n, me = rank->index, next = (me + 1) % n, previous = (me + n - 1) % n;
    struct tutti_message message = {.source = -7};
    fill(b->send, me, 0, COUNT);
    RANK_CHECK_OK(rank, tutti_sendrecv(b->send, COUNT, next, 5, b->recv, 2 * COUNT, previous, 5, TUTTI_INT64, comm,
                                       NULL, &message, NULL));
    RANK_CHECK(rank, message.source == previous && message.tag == 5 && message.bytes == COUNT * sizeof(int64_t));
    for (size_t i = 0; i < COUNT; i++) RANK_CHECK(rank, b->recv[i] == value(previous, i));
    struct tutti_work *work = NULL;
    RANK_CHECK_OK(rank, tutti_sendrecv(b->send, 1, next, 6, b->recv, 1, TUTTI_ANY_SOURCE, TUTTI_ANY_TAG, TUTTI_INT64,
                                       comm, NULL, &message, &work));
    RANK_CHECK_OK(rank, finish(TUTTI_OK, work));
    RANK_CHECK(rank, message.source == previous && message.tag == 6);
    if (n == 1) return;
    if (me == 0) {
        RANK_CHECK_OK(rank, tutti_send(b->send, 3, TUTTI_INT64, 1, 9, comm, NULL, NULL));
        RANK_CHECK_OK(rank, tutti_send(b->send + 3, COUNT - 3, TUTTI_INT64, 1, 10, comm, NULL, NULL));
    } else if (me == 1) {
        enum tutti_status probed;
        while ((probed = tutti_probe(0, 9, comm, &message)) == TUTTI_AGAIN) {
        }
        RANK_CHECK_OK(rank, probed);
        RANK_CHECK(rank, message.source == 0 && message.tag == 9 && message.bytes == 3 * sizeof(int64_t));
        struct tutti_work *second = NULL; /* by tag, against the order of the sends */
        RANK_CHECK_OK(rank, tutti_recv(b->recv + 3, COUNT - 3, TUTTI_INT64, 0, 10, comm, NULL, NULL, &second));
        RANK_CHECK_OK(rank, tutti_recv(b->recv, 3, TUTTI_INT64, 0, 9, comm, NULL, &message, NULL));
        RANK_CHECK_OK(rank, finish(TUTTI_OK, second));
        for (size_t i = 0; i < COUNT; i++) RANK_CHECK(rank, b->recv[i] == value(0, i));
    }
}

static void everything(struct rank *rank)
{
    struct buffers *b = malloc(sizeof(*b));
    for (int turn = 0; turn < 4 && !rank->failure[0]; turn++) {
        reductions(rank, b, turn);
        if (!rank->failure[0]) movements(rank, b, turn);
        if (!rank->failure[0]) v_shared(rank, b, turn);
        if (!rank->failure[0]) v_private(rank, b, turn);
        if (!rank->failure[0]) messages(rank, b);
    }
    free(b);
}

static void on_threads(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= MAX_RANKS; n++) assert_int_equal(ranks_threads(n, everything, NULL), 0);
}

static void on_processes(void **state)
{
    (void)state;
    const uint32_t sizes[] = {1, 2, 3, 5};
    for (size_t i = 0; i < 4; i++) assert_int_equal(ranks_forked(sizes[i], everything, NULL), 0);
}

/* ---- operations with a parameter ---- */

static void scaled(struct rank *rank)
{
    struct tutti_comm *comm = rank->comm;
    int32_t n = rank->n, me = rank->index;
    double in[5] = {1, 2, 3, 4, 5}, out[5];
    RANK_CHECK_OK(rank, tutti_all_reduce(in, out, 5, TUTTI_FLOAT64, TUTTI_AVG, comm, NULL, NULL));
    for (int i = 0; i < 5; i++) RANK_CHECK(rank, out[i] == in[i]);
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.premul_value = 0.5;
    RANK_CHECK_OK(rank, tutti_all_reduce(in, out, 5, TUTTI_FLOAT64, TUTTI_PREMUL_SUM, comm, &options, NULL));
    for (int i = 0; i < 5; i++) RANK_CHECK(rank, out[i] == 0.5 * in[i] * n);
    double factor = 1 + me; /* rank me's own factor, by pointer */
    options.premul = &factor;
    struct tutti_work *work = NULL;
    RANK_CHECK_OK(rank, tutti_all_reduce(in, out, 5, TUTTI_FLOAT64, TUTTI_PREMUL_SUM, comm, &options, &work));
    factor = -1; /* it was read at the call */
    RANK_CHECK_OK(rank, finish(TUTTI_OK, work));
    for (int i = 0; i < 5; i++) RANK_CHECK(rank, out[i] == in[i] * n * (n + 1) / 2);
    /* scan divides by those that contribute; integers truncate towards zero */
    int32_t ints[2] = {-7 * (me + 1), 10}, means[2] = {99, 99};
    RANK_CHECK_OK(rank, tutti_scan(ints, means, 2, TUTTI_INT32, TUTTI_AVG, comm, NULL, NULL));
    RANK_CHECK(rank, means[0] == -7 * (me + 1) * (me + 2) / 2 / (me + 1) && means[1] == 10);
    RANK_CHECK_OK(rank, tutti_exscan(ints, means, 2, TUTTI_INT32, TUTTI_AVG, comm, NULL, NULL));
    if (me) RANK_CHECK(rank, means[0] == -7 * me * (me + 1) / 2 / me && means[1] == 10);
    float complex_in[2] = {1, 2}, complex_out[2];
    options.premul = NULL;
    options.premul_value = 3; /* a real factor */
    RANK_CHECK_OK(
        rank, tutti_all_reduce(complex_in, complex_out, 1, TUTTI_COMPLEX64, TUTTI_PREMUL_SUM, comm, &options, NULL));
    RANK_CHECK(rank, complex_out[0] == 3.0f * (float)n && complex_out[1] == 6.0f * (float)n);
}

static void parameters(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 5; n++) assert_int_equal(ranks_threads(n, scaled, NULL), 0);
}

/* Affine maps x -> a x + b modulo 2^32 under composition: associative, not commutative. */
struct affine {
    uint32_t a, b;
};
static void compose(const void *left, const void *right, void *out, size_t count, enum tutti_dtype dtype, void *arg)
{
    (void)dtype;
    const struct affine *f = left, *g = right;
    struct affine *to = out;
    for (size_t i = 0; i < count; i++) {
        struct affine made = {g[i].a * f[i].a, g[i].a * f[i].b + g[i].b}; /* f first, then g */
        to[i] = made;
    }
    __atomic_fetch_add((uint64_t *)arg, count, __ATOMIC_RELAXED);
}

static struct affine map_of(int32_t rank, size_t i)
{
    return (struct affine){(uint32_t)value(rank, i) | 1, (uint32_t)value(rank, i + 99)};
}

static struct affine fold(int32_t first, int32_t end, size_t i)
{
    struct affine whole = {1, 0};
    for (int32_t r = first; r < end; r++) {
        struct affine f = map_of(r, i);
        whole = (struct affine){f.a * whole.a, f.a * whole.b + f.b};
    }
    return whole;
}

static bool equal(struct affine x, struct affine y)
{
    return x.a == y.a && x.b == y.b;
}

static void user_calls(struct rank *rank, enum tutti_op op, struct affine *in, struct affine *out, size_t n)
{
    struct tutti_comm *comm = rank->comm;
    int32_t size = rank->n, me = rank->index, root = size - 1;
    for (size_t i = 0; i < n; i++) in[i] = map_of(me, i);
    RANK_CHECK_OK(rank, tutti_all_reduce(in, out, n, TUTTI_UINT64, op, comm, NULL, NULL));
    for (size_t i = 0; i < n; i++) RANK_CHECK(rank, equal(out[i], fold(0, size, i)));
    RANK_CHECK_OK(rank, tutti_reduce(in, out, n, TUTTI_UINT64, op, root, comm, NULL, NULL));
    for (size_t i = 0; me == root && i < n; i++) RANK_CHECK(rank, equal(out[i], fold(0, size, i)));
    RANK_CHECK_OK(rank, tutti_scan(in, out, n, TUTTI_UINT64, op, comm, NULL, NULL));
    for (size_t i = 0; i < n; i++) RANK_CHECK(rank, equal(out[i], fold(0, me + 1, i)));
    RANK_CHECK_OK(rank, tutti_exscan(in, out, n, TUTTI_UINT64, op, comm, NULL, NULL));
    for (size_t i = 0; me > 0 && i < n; i++) RANK_CHECK(rank, equal(out[i], fold(0, me, i)));
    size_t block = n / (size_t)size;
    RANK_CHECK_OK(rank, tutti_reduce_scatter(in, out, block, TUTTI_UINT64, op, comm, NULL, NULL));
    for (size_t i = 0; i < block; i++) RANK_CHECK(rank, equal(out[i], fold(0, size, (size_t)me * block + i)));
}

static void user_op(struct rank *rank)
{
    uint64_t applied = 0;
    enum tutti_op op, other;
    RANK_CHECK_OK(rank, tutti_op_create(rank->context, compose, &applied, true, &other));
    RANK_CHECK_OK(rank, tutti_op_create(rank->context, compose, &applied, false, &op));
    RANK_CHECK(rank, op != other && (int)op >= TUTTI_N_OPS && !strcmp(tutti_op_name(op), "user"));
    size_t n = 40000;
    struct affine *in = calloc(n, sizeof(*in)), *out = calloc(n, sizeof(*out));
    user_calls(rank, op, in, out, 100);
    if (!rank->failure[0]) user_calls(rank, op, in, out, n);
    free(in);
    free(out);
    if (rank->failure[0]) return;
    RANK_CHECK(rank, rank->n == 1 || applied > 0);
    RANK_CHECK_OK(rank, tutti_op_destroy(rank->context, op));
    struct affine f = {1, 1};
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "no operation",
                     tutti_all_reduce(&f, &f, 1, TUTTI_UINT64, op, rank->comm, NULL, NULL));
    RANK_CHECK_STATUS(rank, TUTTI_ERR_ARGUMENT, tutti_op_destroy(rank->context, op));
    RANK_CHECK_OK(rank, tutti_op_destroy(rank->context, other));
}

static void user_ops(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 7; n++) assert_int_equal(ranks_threads(n, user_op, NULL), 0);
}

/* ---- who passes a barrier finds the calls before it complete, though nobody waited for them ---- */

#define FENCED 4

static void fence(struct rank *rank)
{
    const size_t n = 300000;
    struct tutti_work *work[FENCED], *barrier;
    uint64_t *x = malloc(FENCED * n * sizeof(*x));
    for (int round = 0; round < 4; round++) {
        for (size_t c = 0; c < FENCED; c++) {
            for (size_t i = 0; i < n; i++) x[c * n + i] = (uint64_t)rank->index + c;
            RANK_CHECK_OK(
                rank, tutti_all_reduce(x + c * n, x + c * n, n, TUTTI_UINT64, TUTTI_SUM, rank->comm, NULL, &work[c]));
        }
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, round % 2 ? &barrier : NULL));
        if (round % 2) {
            RANK_CHECK_OK(rank, tutti_work_wait(barrier, 0));
            tutti_work_free(barrier);
        }
        const uint64_t sum = (uint64_t)rank->n * (uint64_t)(rank->n - 1) / 2;
        for (size_t c = 0; c < FENCED; c++) {
            RANK_CHECK(rank, tutti_work_test(work[c]) == TUTTI_OK);
            RANK_CHECK(rank, x[c * n] == sum + c * (uint64_t)rank->n && x[(c + 1) * n - 1] == x[c * n]);
            tutti_work_free(work[c]);
        }
    }
    free(x);
}

static void fenced(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(3, fence, NULL), 0);
    assert_int_equal(ranks_forked(2, fence, NULL), 0);
}

/* ---- one result whatever the algorithm ---- */

struct results {
    float out[4][64];
};

static void fold_in_order(struct rank *rank)
{
    struct results *results = rank->arg;
    float in[64], mine[64];
    const char *names[] = {NULL, "direct", "direct_two_shot", NULL};
    for (size_t i = 0; i < 64; i++) in[i] = (float)value(rank->index, i) * 1e-7f;
    float expected[64];
    for (size_t i = 0; i < 64; i++) {
        expected[i] = (float)value(0, i) * 1e-7f;
        for (int32_t r = 1; r < rank->n; r++) expected[i] += (float)value(r, i) * 1e-7f;
    }
    for (int a = 0; a < 4; a++) {
        struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
        options.algorithm = names[a];
        RANK_CHECK_OK(rank, tutti_all_reduce(in, mine, 64, TUTTI_FLOAT32, TUTTI_SUM, rank->comm, &options, NULL));
        RANK_CHECK(rank, !memcmp(mine, expected, sizeof(mine)));
        if (rank->index == 0) memcpy(results->out[a], mine, sizeof(mine));
    }
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.algorithm = "ring";
    RANK_CHECK_ERROR(rank, TUTTI_ERR_ARGUMENT, "reproducible",
                     tutti_all_reduce(in, mine, 64, TUTTI_FLOAT32, TUTTI_SUM, rank->comm, &options, NULL));
}

static void reproducible(void **state)
{
    (void)state;
    struct results results;
    struct tutti_option option = {"reproducible", "1"};
    struct ranks_config config = {.n = 6, .options = &option, .n_options = 1, .arg = &results};
    assert_int_equal(ranks_run(&config, fold_in_order), 0);
}

/* avg of what is near the type's largest is that, not infinity or NaN, by every algorithm and back end. */
static void averages(struct rank *rank)
{
    const enum tutti_dtype dtypes[] = {TUTTI_FLOAT16, TUTTI_FLOAT8_E4M3FN, TUTTI_FLOAT8_E5M2, TUTTI_BFLOAT16};
    const double largest[] = {60000, 448, 57344, 60000};
    const size_t counts[] = {2, 700, 70000};
    struct tutti_call_options by_engine = TUTTI_CALL_OPTIONS_INIT;
    by_engine.algorithm = rank->n > 1 ? "direct" : NULL;
    for (size_t c = 0; c < 3 * TUTTI_ARRAY_LEN(dtypes); c++) {
        const size_t count = counts[c % 3], n = count * (size_t)rank->n;
        const enum tutti_dtype dtype = dtypes[c / 3];
        const size_t bytes = tutti_dtype_bytes(dtype);
        unsigned char *in = rank_alloc(rank, n * bytes), *out = rank_alloc(rank, n * bytes);
        for (size_t i = 0; i < n; i++) ref_encode(dtype, i % 2 ? -largest[c / 3] : largest[c / 3], in + i * bytes);
        for (int form = 0; form < 5; form++) {
            memset(out, 0, n * bytes);
            RANK_CHECK_OK(rank,
                          form == 0   ? tutti_all_reduce(in, out, count, dtype, TUTTI_AVG, rank->comm, NULL, NULL)
                          : form == 1 ? tutti_all_reduce(in, out, count, dtype, TUTTI_AVG, rank->comm, &by_engine, NULL)
                          : form == 2 ? tutti_reduce_scatter(in, out, count, dtype, TUTTI_AVG, rank->comm, NULL, NULL)
                          : form == 3 ? tutti_scan(in, out, count, dtype, TUTTI_AVG, rank->comm, NULL, NULL)
                                      : tutti_reduce(in, out, count, dtype, TUTTI_AVG, 0, rank->comm, NULL, NULL));
            const size_t first = form == 2 ? (size_t)rank->index * count : 0;
            if (form == 4 && rank->index != 0) continue;
            /* Small floats round at every hop. */
            for (size_t i = 0; i < count; i++) {
                const double got = ref_decode(dtype, out + i * bytes),
                             want = (first + i) % 2 ? -largest[c / 3] : largest[c / 3];
                if (got <= want + largest[c / 3] / 2 && got >= want - largest[c / 3] / 2) continue;
                rank_fail(rank, __FILE__, __LINE__, "%s form %d, element %zu of %zu: %g, not %g",
                          tutti_dtype_name(dtype), form, i, count, got, want);
                return;
            }
        }
    }
}

static void averages_stay_in_range(void **state)
{
    (void)state;
    const uint32_t sizes[] = {1, 2, 4, 8};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(sizes); i++) assert_int_equal(ranks_threads(sizes[i], averages, NULL), 0);
    assert_int_equal(ranks_forked(4, averages, NULL), 0);
}

/* A call that repeats the last one has its own numbers, label and deadline: rank 1 does not come to the fourth. */
static void repeats(struct rank *rank)
{
    const size_t counts[] = {2, 1024, 300000};
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    for (size_t c = 0; c < TUTTI_ARRAY_LEN(counts); c++) {
        struct tutti_comm *comm = NULL;
        int64_t *in = rank_alloc(rank, counts[c] * sizeof(*in)), *out = rank_alloc(rank, counts[c] * sizeof(*out));
        RANK_CHECK_OK(rank, tutti_comm_dup(rank->comm, &comm));
        options.label = "first", options.timeout_ns = 0;
        for (int64_t turn = 0; turn < 3; turn++) {
            for (size_t i = 0; i < counts[c]; i++) in[i] = (int64_t)i * (rank->index + 1 + turn);
            RANK_CHECK_OK(rank, tutti_all_reduce(in, out, counts[c], TUTTI_INT64, TUTTI_SUM, comm, &options, NULL));
            for (size_t i = 0; i < counts[c]; i++) RANK_CHECK(rank, out[i] == (int64_t)i * (3 + 2 * turn));
        }
        options.label = "second", options.timeout_ns = 200 * TUTTI_NS_PER_MS;
        if (rank->index == 0) {
            const uint64_t start_ns = tutti_now_ns();
            enum tutti_status status =
                tutti_all_reduce(in, out, counts[c], TUTTI_INT64, TUTTI_SUM, comm, &options, NULL);
            RANK_CHECK_STATUS(rank, TUTTI_ERR_TIMEOUT, status);
            RANK_CHECK(rank, tutti_now_ns() - start_ns >= 200 * TUTTI_NS_PER_MS);
            RANK_CHECK(rank, strstr(tutti_last_error()->text, "second") && strstr(tutti_last_error()->text, "#4"));
        }
        RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
        tutti_comm_destroy(comm);
    }
}

static void repeated(void **state)
{
    (void)state;
    assert_int_equal(ranks_forked(2, repeats, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeated),     cmocka_unit_test(averages_stay_in_range),
        cmocka_unit_test(on_threads),   cmocka_unit_test(on_processes),
        cmocka_unit_test(parameters),   cmocka_unit_test(user_ops),
        cmocka_unit_test(reproducible), cmocka_unit_test(fenced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
