/* SPDX-License-Identifier: BSD-3-Clause */
/* What the ranks of tests/hosts do. The arguments are done in their order, on all ranks:
 *
 *     all          every collective over some types and counts, in and out of place; messages; split; dup
 *     loop=SECONDS all_reduces of changing sizes for so long, as rank 0 measures it
 *     large=N      N times: sums of some megabytes, and large messages one behind the other, each way
 *     fail         the same until one fails; then the survivors shrink, and go on
 *     miss=R       for a long time, whatever fails; rank R stops calling
 *     differ=R     the same; rank R waits for another root than all others
 *     slow=R       the same; rank R does something else before each call, for JOB_SLEEP_MS (100) milliseconds
 *     recv         the same, but that all wait for a message that the last rank never sends
 *     survive=S    all_reduces in place on a communicator that survives, until ranks were lost and S seconds have
 *                  passed since then; "smaller <clock> <ranks>", "went <clock> <ranks>", or "ended <clock> <sentence>"
 *
 * All results are compared with tests/reference.c. Each line of the output begins with a word for hosts_test.py:
 * "ready", "done", "failed <clock> <status> <sentence>", "shrunk <clock> <ranks>", "wrong ...". The clock is the
 * monotonic one, which all namespaces of a machine share. The status of the exit is 0 if nothing was wrong. */

#include "reference.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/tutti.h>
#include <unistd.h>

enum { MOST_S = 280, RANKS_MOST = 64 };

struct job {
    struct tutti_comm *comm;
    uint32_t rank, n;
    uint64_t seed; /* the next call's, equal on all ranks */
};
/* One call to check: its block is `count` elements of `dtype`. */
struct call {
    struct job *job;
    enum tutti_dtype dtype;
    enum tutti_op op;
    size_t count, bytes; /* bytes: of an element */
    int32_t root;
    bool in_place;
    void *inputs[RANKS_MOST]; /* each rank's, n * count elements */
    uint8_t *out, *want;      /* n * count elements */
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static _Noreturn void wrong(const char *format, ...)
{
    va_list args;
    printf("wrong ");
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    exit(1);
}

static void check(enum tutti_status status, const char *what)
{
    if (status < 0) wrong("%s: %s", what, tutti_last_error()->text);
}

static void *alloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p) wrong("no memory for %zu bytes", bytes);
    memset(p, 0xa5, bytes);
    return p;
}

/* ---- collectives: each writes call->out, and what it should be to call->want; returns the elements to compare ---- */

static uint8_t *block(const struct call *c, void *base, size_t i)
{
    return (uint8_t *)base + i * c->count * c->bytes;
}

/* The reduction of block i of the first n ranks' inputs. */
static void reduce_block(const struct call *c, size_t i, size_t n, uint8_t *out)
{
    const void *from[RANKS_MOST];
    for (size_t r = 0; r < n; r++) from[r] = block(c, c->inputs[r], i);
    ref_reduce(c->dtype, c->op, from, n, c->count, NULL, out);
}

/* Where this rank sends from: its input, or the output that has a copy of it at block i. */
static const void *source(const struct call *c, size_t i, size_t n_blocks)
{
    void *mine = c->inputs[c->job->rank];
    if (!c->in_place) return mine;
    memcpy(block(c, c->out, i), mine, n_blocks * c->count * c->bytes);
    return block(c, c->out, i);
}

static size_t do_all_reduce(struct call *c)
{
    const void *send = source(c, 0, 1);
    check(tutti_all_reduce(send, c->out, c->count, c->dtype, c->op, c->job->comm, NULL, NULL), "all_reduce");
    reduce_block(c, 0, c->job->n, c->want);
    return c->count;
}

static size_t do_reduce(struct call *c)
{
    const bool here = (uint32_t)c->root == c->job->rank;
    const void *send = here ? source(c, 0, 1) : c->inputs[c->job->rank];
    check(tutti_reduce(send, c->out, c->count, c->dtype, c->op, c->root, c->job->comm, NULL, NULL), "reduce");
    if (here) reduce_block(c, 0, c->job->n, c->want);
    return here ? c->count : 0;
}

static size_t do_broadcast(struct call *c)
{
    memcpy(c->out, c->inputs[c->job->rank], c->count * c->bytes);
    check(tutti_broadcast(c->out, c->count, c->dtype, c->root, c->job->comm, NULL, NULL), "broadcast");
    memcpy(c->want, c->inputs[c->root], c->count * c->bytes);
    return c->count;
}

static void want_gathered(struct call *c)
{
    for (uint32_t r = 0; r < c->job->n; r++) memcpy(block(c, c->want, r), c->inputs[r], c->count * c->bytes);
}

static size_t do_all_gather(struct call *c)
{
    const void *send = source(c, c->job->rank, 1);
    check(tutti_all_gather(send, c->out, c->count, c->dtype, c->job->comm, NULL, NULL), "all_gather");
    want_gathered(c);
    return c->job->n * c->count;
}

static size_t do_gather(struct call *c)
{
    const bool here = (uint32_t)c->root == c->job->rank;
    const void *send = here ? source(c, c->job->rank, 1) : c->inputs[c->job->rank];
    check(tutti_gather(send, c->out, c->count, c->dtype, c->root, c->job->comm, NULL, NULL), "gather");
    if (here) want_gathered(c);
    return here ? c->job->n * c->count : 0;
}

static size_t do_scatter(struct call *c)
{
    check(tutti_scatter(c->inputs[c->job->rank], c->out, c->count, c->dtype, c->root, c->job->comm, NULL, NULL),
          "scatter");
    memcpy(c->want, block(c, c->inputs[c->root], c->job->rank), c->count * c->bytes);
    return c->count;
}

static size_t do_reduce_scatter(struct call *c)
{
    check(tutti_reduce_scatter(c->inputs[c->job->rank], c->out, c->count, c->dtype, c->op, c->job->comm, NULL, NULL),
          "reduce_scatter");
    reduce_block(c, c->job->rank, c->job->n, c->want);
    return c->count;
}

static size_t do_all_to_all(struct call *c)
{
    const void *send = source(c, 0, c->job->n);
    check(tutti_all_to_all(send, c->out, c->count, c->dtype, c->job->comm, NULL, NULL), "all_to_all");
    for (uint32_t r = 0; r < c->job->n; r++)
        memcpy(block(c, c->want, r), block(c, c->inputs[r], c->job->rank), c->count * c->bytes);
    return c->job->n * c->count;
}

static size_t do_scan(struct call *c)
{
    const void *send = source(c, 0, 1);
    check(tutti_scan(send, c->out, c->count, c->dtype, c->op, c->job->comm, NULL, NULL), "scan");
    reduce_block(c, 0, c->job->rank + 1, c->want);
    return c->count;
}

static size_t do_exscan(struct call *c)
{
    const void *send = source(c, 0, 1);
    check(tutti_exscan(send, c->out, c->count, c->dtype, c->op, c->job->comm, NULL, NULL), "exscan");
    if (c->job->rank == 0) return 0;
    reduce_block(c, 0, c->job->rank, c->want);
    return c->count;
}

/* Unequal blocks: rank r has the first (r + shift) % 3 + 1 thirds of a block, or nothing of it. */
static size_t ragged(const struct call *c, uint32_t r)
{
    return (r + (uint32_t)c->root) % 4 == 0 ? 0 : c->count * ((r + 1) % 3 + 1) / 3;
}

static size_t do_all_gather_v(struct call *c)
{
    size_t counts[RANKS_MOST], total = 0;
    for (uint32_t r = 0; r < c->job->n; r++) {
        counts[r] = ragged(c, r);
        memcpy(c->want + total * c->bytes, c->inputs[r], counts[r] * c->bytes);
        total += counts[r];
    }
    check(tutti_all_gather_v(c->inputs[c->job->rank], c->out, counts, NULL, c->dtype, c->job->comm, NULL, NULL),
          "all_gather_v");
    return total;
}

static size_t do_reduce_scatter_v(struct call *c)
{
    size_t counts[RANKS_MOST], total = 0;
    const void *from[RANKS_MOST];
    for (uint32_t r = 0; r < c->job->n; r++) {
        counts[r] = ragged(c, r);
        if (r < c->job->rank) total += counts[r];
    }
    check(tutti_reduce_scatter_v(c->inputs[c->job->rank], c->out, counts, c->dtype, c->op, c->job->comm, NULL, NULL),
          "reduce_scatter_v");
    for (uint32_t r = 0; r < c->job->n; r++) from[r] = (uint8_t *)c->inputs[r] + total * c->bytes;
    ref_reduce(c->dtype, c->op, from, c->job->n, counts[c->job->rank], NULL, c->want);
    return counts[c->job->rank];
}

/* Rank s sends ragged(s + d) elements of its block d to rank d. */
static size_t do_all_to_all_v(struct call *c)
{
    const uint32_t n = c->job->n, me = c->job->rank;
    size_t send[RANKS_MOST], at[RANKS_MOST], recv[RANKS_MOST], total = 0;
    for (uint32_t r = 0; r < n; r++) {
        send[r] = ragged(c, me + r), at[r] = r * c->count, recv[r] = ragged(c, r + me);
        memcpy(c->want + total * c->bytes, block(c, c->inputs[r], me), recv[r] * c->bytes);
        total += recv[r];
    }
    check(tutti_all_to_all_v(c->inputs[me], send, at, c->out, recv, NULL, c->dtype, c->job->comm, NULL, NULL),
          "all_to_all_v");
    return total;
}

static const struct {
    const char *name;
    size_t (*run)(struct call *c);
} kinds[] = {{"all_reduce", do_all_reduce},
             {"reduce", do_reduce},
             {"broadcast", do_broadcast},
             {"all_gather", do_all_gather},
             {"gather", do_gather},
             {"scatter", do_scatter},
             {"reduce_scatter", do_reduce_scatter},
             {"all_to_all", do_all_to_all},
             {"scan", do_scan},
             {"exscan", do_exscan},
             {"all_gather_v", do_all_gather_v},
             {"reduce_scatter_v", do_reduce_scatter_v},
             {"all_to_all_v", do_all_to_all_v}};
enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static void one(struct job *job, size_t kind, size_t total, enum tutti_dtype dtype, enum tutti_op op, bool in_place)
{
    struct call c = {.job = job, .dtype = dtype, .op = op, .in_place = in_place, .bytes = ref_bytes(dtype)};
    const bool whole = kind <= 2 || kind == 8 || kind == 9; /* one block for all */
    size_t where = 0;
    c.count = whole ? total : (total + job->n - 1) / job->n;
    c.root = (int32_t)(job->seed++ % job->n);
    const size_t n = whole ? c.count : c.count * job->n;
    c.out = alloc(n * c.bytes), c.want = alloc(n * c.bytes);
    for (uint32_t r = 0; r < job->n; r++) {
        c.inputs[r] = alloc(n * c.bytes);
        ref_fill_exact(dtype, op, job->seed, r, job->n, c.inputs[r], n);
    }
    const size_t compared = kinds[kind].run(&c);
    if (!ref_equal(dtype, c.out, c.want, compared, &where))
        wrong("%s of %zu elements (type %d, operation %d, %s place): element %zu", kinds[kind].name, c.count,
              (int)dtype, (int)op, in_place ? "in" : "out of", where);
    for (uint32_t r = 0; r < job->n; r++) free(c.inputs[r]);
    free(c.out);
    free(c.want);
}

static void collectives(struct job *job)
{
    static const size_t totals[] = {0, 1, 7, 1000, 65537, 300001};
    static const enum tutti_dtype dtypes[] = {TUTTI_FLOAT32, TUTTI_INT64, TUTTI_BFLOAT16, TUTTI_UINT8, TUTTI_FLOAT64};
    static const enum tutti_op ops[] = {TUTTI_SUM, TUTTI_MAX, TUTTI_PROD};
    size_t turn = 0;
    for (size_t t = 0; t < sizeof(totals) / sizeof(totals[0]); t++)
        for (size_t kind = 0; kind < N_KINDS; kind++)
            for (int in_place = 0; in_place < 2; in_place++, turn++)
                one(job, kind, totals[t], dtypes[turn % 5], ops[turn / 5 % 3], in_place);
    check(tutti_barrier(job->comm, NULL, NULL), "barrier");
}

/* ---- messages ---- */

/* All ranks to all others, four sizes each; received in another order than they were sent. */
static void messages(struct job *job)
{
    static const size_t sizes[] = {0, 8, 5000, 300000};
    enum { SIZES = 4 };
    const size_t n = (size_t)job->n * SIZES;
    struct tutti_work **works = alloc(2 * n * sizeof(*works));
    uint8_t **buffers = alloc(2 * n * sizeof(*buffers));
    size_t n_works = 0;
    for (size_t i = n; i-- > 0;) {
        const int32_t peer = (int32_t)(i / SIZES), tag = (int32_t)(i % SIZES);
        buffers[i] = alloc(sizes[tag]);
        if ((uint32_t)peer != job->rank)
            check(tutti_recv(buffers[i], sizes[tag], TUTTI_UINT8, peer, tag, job->comm, NULL, NULL, &works[n_works++]),
                  "recv");
    }
    for (size_t i = 0; i < n; i++) {
        const int32_t peer = (int32_t)(i / SIZES), tag = (int32_t)(i % SIZES);
        buffers[n + i] = alloc(sizes[tag]);
        memset(buffers[n + i], (int)(job->rank * 16 + (uint32_t)peer + (uint32_t)tag), sizes[tag]);
        if ((uint32_t)peer != job->rank)
            check(tutti_send(buffers[n + i], sizes[tag], TUTTI_UINT8, peer, tag, job->comm, NULL, &works[n_works++]),
                  "send");
    }
    while (n_works > 0) {
        check(tutti_work_wait(works[--n_works], 0), "messages");
        tutti_work_free(works[n_works]);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t b = 0; i / SIZES != job->rank && b < sizes[i % SIZES]; b++)
            if (buffers[i][b] != (uint8_t)(i / SIZES * 16 + job->rank + i % SIZES))
                wrong("byte %zu of the message %zu from rank %zu", b, i % SIZES, i / SIZES);
    for (size_t i = 0; i < 2 * n; i++) free(buffers[i]);
    free(works);
    free(buffers);
}

/* Messages of one tag, which come in the order in which they were sent, large and small. */
static void ordered(struct job *job, uint64_t round)
{
    static const size_t sizes[] = {3000000, 1, 70000, 65537, 1048577, 8, 0, 600001};
    enum { N = 8 };
    const int32_t to = (int32_t)((job->rank + 1) % job->n), from = (int32_t)((job->rank + job->n - 1) % job->n);
    struct tutti_work *works[2 * N];
    uint8_t *in[N], *out[N];
    for (int i = 0; i < N; i++) {
        in[i] = alloc(sizes[i]), out[i] = alloc(sizes[i]);
        for (size_t b = 0; b < sizes[i]; b++)
            out[i][b] = (uint8_t)(b * 31 + (b >> 11) + job->rank + round + (uint64_t)i);
        check(tutti_recv(in[i], sizes[i], TUTTI_UINT8, from, 5, job->comm, NULL, NULL, &works[i]), "recv");
        check(tutti_send(out[i], sizes[i], TUTTI_UINT8, to, 5, job->comm, NULL, &works[N + i]), "send");
    }
    for (int i = 0; i < 2 * N; i++) {
        check(tutti_work_wait(works[i], 0), "large");
        tutti_work_free(works[i]);
    }
    for (int i = 0; i < N; i++) {
        for (size_t b = 0; b < sizes[i]; b++)
            if (in[i][b] != (uint8_t)(b * 31 + (b >> 11) + (uint32_t)from + round + (uint64_t)i))
                wrong("byte %zu of large message %d of round %llu", b, i, (unsigned long long)round);
        free(in[i]), free(out[i]);
    }
}

/* ---- communicators ---- */

static void sum_check(struct tutti_comm *comm, size_t count)
{
    const int32_t n = tutti_comm_size(comm), rank = tutti_comm_rank(comm);
    int32_t *values = alloc(count * sizeof(*values));
    for (size_t i = 0; i < count; i++) values[i] = rank + (int32_t)i;
    check(tutti_all_reduce(values, values, count, TUTTI_INT32, TUTTI_SUM, comm, NULL, NULL), "all_reduce");
    for (size_t i = 0; i < count; i++)
        if (values[i] != n * (n - 1) / 2 + n * (int32_t)i)
            wrong("sum %zu of %d ranks is %d", i, (int)n, (int)values[i]);
    free(values);
}

static void families(struct job *job)
{
    struct tutti_comm *part, *twin;
    check(tutti_comm_split(job->comm, (int32_t)job->rank % 2, -(int32_t)job->rank, &part), "split");
    const uint32_t size = (job->n + 1 - job->rank % 2) / 2;
    if ((uint32_t)tutti_comm_size(part) != size) wrong("%d ranks of a half", (int)tutti_comm_size(part));
    if ((uint32_t)tutti_comm_rank(part) != size - 1 - job->rank / 2)
        wrong("rank %d in a half", (int)tutti_comm_rank(part));
    check(tutti_comm_dup(part, &twin), "dup");
    sum_check(part, 1001);
    sum_check(twin, 70001);
    tutti_comm_destroy(part);
    sum_check(twin, 3);
    tutti_comm_destroy(twin);
    check(tutti_comm_dup(job->comm, &twin), "dup");
    sum_check(twin, 1);
    tutti_comm_destroy(twin);
}

/* ---- until the time is over, or something fails ---- */

enum { LOOP_MOST = 50000 };
/* Sums of changing sizes; the first value tells whether rank 0 would go on. OK at the end. */
static enum tutti_status loop(struct job *job, double seconds, uint64_t *calls)
{
    static int32_t values[LOOP_MOST];
    const double until = now() + seconds;
    for (bool more = true; more; (*calls)++) {
        const size_t count = *calls % 8 == 7 ? LOOP_MOST : 1 + *calls * 37 % 500;
        for (size_t i = 0; i < count; i++) values[i] = (int32_t)(job->rank + i + *calls);
        values[0] = job->rank == 0 && now() < until;
        const enum tutti_status status =
            tutti_all_reduce(values, values, count, TUTTI_INT32, TUTTI_SUM, job->comm, NULL, NULL);
        if (status < 0) return status;
        for (size_t i = 1; i < count; i++)
            if (values[i] != (int32_t)(job->n * (job->n - 1) / 2 + job->n * (i + *calls)))
                wrong("sum %zu of call %llu", i, (unsigned long long)*calls);
        more = values[0] != 0;
        if (*calls == 0) printf("looping %.6f\n", now());
        usleep(500);
    }
    return TUTTI_OK;
}

static void loop_checked(struct job *job, double seconds)
{
    uint64_t calls = 0;
    check(loop(job, seconds, &calls), "loop");
    printf("looped %.6f %llu calls\n", now(), (unsigned long long)calls);
}

static enum tutti_status loop_on(struct job *job)
{
    uint64_t calls = 0;
    return loop(job, MOST_S, &calls);
}

static enum tutti_status recv_in_vain(struct job *job)
{
    int32_t value;
    printf("looping %.6f\n", now());
    while (job->rank + 1 == job->n) sleep(1);
    return tutti_recv(&value, 1, TUTTI_INT32, (int32_t)job->n - 1, 0, job->comm, NULL, NULL, NULL);
}

static void fail(struct job *job, enum tutti_status (*wait)(struct job *job))
{
    struct tutti_comm *rest = NULL;
    const enum tutti_status status = wait(job);
    if (status == TUTTI_OK) wrong("nothing failed");
    printf("failed %.6f %s %s\n", now(), tutti_status_name(status), tutti_last_error()->text);
    if (tutti_comm_shrink(job->comm, NULL, 0, &rest) < 0) {
        printf("alone %.6f %s\n", now(), tutti_last_error()->text);
        return;
    }
    for (size_t count = 1; count < 100000; count = count * 10 + 1) sum_check(rest, count);
    check(tutti_barrier(rest, NULL, NULL), "barrier");
    printf("shrunk %.6f %d\n", now(), (int)tutti_comm_size(rest));
    tutti_comm_destroy(rest);
}

/* ---- calls that survive ---- */

/* One call, whose result is that of the ranks it names: their number. 0: it ended with an error. */
static size_t survivors_sum(struct job *job, struct tutti_comm *comm, uint64_t call, bool *enough)
{
    static int32_t values[LOOP_MOST];
    const size_t count = call % 8 == 7 ? LOOP_MOST : 1 + call * 37 % 500;
    int32_t ranks[RANKS_MOST], sum = 0, flag = *enough;
    size_t n = 0;
    for (size_t i = 0; i < count; i++) values[i] = (int32_t)(job->rank + i + call);
    if (tutti_all_reduce(values, values, count, TUTTI_INT32, TUTTI_SUM, comm, NULL, NULL) < 0) {
        for (size_t i = 0; i < count; i++)
            if (values[i] != (int32_t)(job->rank + i + call)) wrong("element %zu of a call that failed", i);
        return 0;
    }
    check(tutti_work_contributors(NULL, comm, ranks, RANKS_MOST, &n), "contributors");
    for (size_t k = 0; k < n; k++) sum += ranks[k];
    for (size_t i = 0; i < count; i++)
        if (values[i] != sum + (int32_t)(n * (i + call))) wrong("sum %zu of call %llu", i, (unsigned long long)call);
    if (tutti_all_reduce(&flag, &flag, 1, TUTTI_INT32, TUTTI_MAX, comm, NULL, NULL) < 0) return 0;
    *enough = flag != 0;
    return n;
}

static void survive(struct job *job, double seconds)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    struct tutti_comm *comm;
    double smaller = 0;
    size_t n = job->n;
    config.name = "survive", config.survive = 1, config.device = TUTTI_DEVICE_NONE;
    config.timeout_ns = UINT64_C(20000000000);
    check(tutti_comm_create(NULL, &config, &comm), "create");
    printf("looping %.6f\n", now());
    for (uint64_t call = 0;; call++) {
        bool enough = smaller > 0 && now() > smaller + seconds;
        n = survivors_sum(job, comm, call, &enough);
        if (n == 0) printf("ended %.6f %s\n", now(), tutti_last_error()->text);
        if (n == 0 || enough) break;
        if (n < job->n && smaller == 0) printf("smaller %.6f %zu\n", smaller = now(), n);
        usleep(500);
    }
    if (n > 0) printf("went %.6f %zu\n", now(), n);
    tutti_comm_destroy(comm);
}

/* What tutti doctor is to find out: rank `guilty` calls nothing more, calls something else, or is late. */
static void ill(struct job *job, uint32_t guilty, char how)
{
    static int32_t values[64];
    const double until = now() + MOST_S;
    const char *ms = getenv("JOB_SLEEP_MS");
    enum tutti_status status = TUTTI_OK;
    for (uint64_t calls = 0; status >= 0 && now() < until; calls++) {
        const bool mine = job->rank == guilty && calls >= 5;
        if (calls == 5) printf("looping %.6f\n", now());
        if (mine && how == 'm') sleep(MOST_S);
        if (mine && how == 's') usleep(1000 * (useconds_t)(ms ? atoi(ms) : 100));
        if (mine && how == 'd')
            status = tutti_broadcast(values, 64, TUTTI_INT32, (int32_t)((guilty + 1) % job->n), job->comm, NULL, NULL);
        else if (how == 'd')
            status = tutti_broadcast(values, 64, TUTTI_INT32, (int32_t)guilty, job->comm, NULL, NULL);
        else
            status = tutti_all_reduce(values, values, 64, TUTTI_INT32, TUTTI_MAX, job->comm, NULL, NULL);
    }
    while (now() < until) sleep(1); /* though the communicator has failed */
}

int main(int argc, char **argv)
{
    struct tutti_comm_config config = TUTTI_COMM_CONFIG_INIT;
    struct job job = {.seed = 1};
    const char *seconds = getenv("JOB_TIMEOUT");
    setvbuf(stdout, NULL, _IOLBF, 0);
    alarm(MOST_S);
    config.device = TUTTI_DEVICE_NONE;
    config.timeout_ns = (seconds ? strtoull(seconds, NULL, 10) : 60) * UINT64_C(1000000000);
    if (tutti_comm_create(NULL, &config, &job.comm) < 0) {
        printf("refused %.6f %s\n", now(), tutti_last_error()->text);
        return 1;
    }
    job.rank = (uint32_t)tutti_comm_rank(job.comm), job.n = (uint32_t)tutti_comm_size(job.comm);
    if (job.n > RANKS_MOST) wrong("more than %d ranks", RANKS_MOST);
    printf("ready %.6f\n", now());
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "all") == 0) {
            collectives(&job);
            messages(&job);
            families(&job);
        } else if (strncmp(argv[i], "loop=", 5) == 0) {
            loop_checked(&job, strtod(argv[i] + 5, NULL));
        } else if (strncmp(argv[i], "large=", 6) == 0) {
            for (int k = 0; k < atoi(argv[i] + 6); k++) {
                if (k == 3) printf("looping %.6f\n", now());
                sum_check(job.comm, 3000001);
                ordered(&job, (uint64_t)k);
            }
        } else if (strcmp(argv[i], "fail") == 0) {
            fail(&job, loop_on);
        } else if (strncmp(argv[i], "miss=", 5) == 0 || strncmp(argv[i], "slow=", 5) == 0) {
            ill(&job, (uint32_t)atoi(argv[i] + 5), argv[i][0]);
        } else if (strncmp(argv[i], "differ=", 7) == 0) {
            ill(&job, (uint32_t)atoi(argv[i] + 7), 'd');
        } else if (strncmp(argv[i], "survive=", 8) == 0) {
            survive(&job, strtod(argv[i] + 8, NULL));
        } else if (strcmp(argv[i], "recv") == 0) {
            fail(&job, recv_in_vain);
        } else {
            wrong("no such word: %s", argv[i]);
        }
    }
    tutti_comm_destroy(job.comm);
    printf("done %.6f\n", now());
    return 0;
}
