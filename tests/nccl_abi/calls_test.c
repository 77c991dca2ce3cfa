/* SPDX-License-Identifier: BSD-3-Clause */
/* libnccl.so.2 on devices: all types and operations against what a few integers say, moves byte by byte, groups of one
 * thread, pinned buffers in the order of a stream, graphs beside eager calls, windows, one-sided calls. Two ranks share
 * a device where there are two. */

#include "test.h"

#include "nccl_abi/nccl.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, N = 501, ROOT = 2 };

/* What rank r brings: 1 or 2, so that sums, products and their halves are exact in all types. */
static int brings(int r, size_t i)
{
    return 1 + (int)(i >> r & 1);
}

static double expected(int type, int op, int factor, size_t i)
{
    double sum = 0, prod = 1, max = 0, min = 2;
    for (int r = 0; r < RANKS; r++) {
        const int value = brings(r, i);
        sum += factor * value;
        prod *= value;
        max = value > max ? value : max;
        min = value < min ? value : min;
    }
    const bool whole = type < FLOAT16;
    const double all[] = {
        [SUM] = sum, [PROD] = prod, [MAX] = max, [MIN] = min, [AVG] = whole ? floor(sum / RANKS) : sum / RANKS};
    return op <= AVG ? all[op] : sum;
}

struct buffers {
    void *in, *out; /* the device's: RANKS * N elements of 8 bytes */
    unsigned char host[RANKS * N * 8];
};

static bool buffers_open(struct buffers *b)
{
    b->in = device_alloc(sizeof b->host);
    b->out = device_alloc(sizeof b->host);
    return b->in && b->out;
}

static void buffers_close(struct rank *rank, struct buffers *b)
{
    CHECK(rank, device_free(rank, 2, (void *[]){b->in, b->out}));
    free(b);
}

static bool put_numbers(struct rank *rank, struct buffers *b, int type, size_t n)
{
    for (size_t i = 0; i < n; i++) number_put(type, b->host, i, brings(rank->index, i));
    return device_write(rank, b->in, b->host, n * type_bytes(type));
}

/* The first element that is not as expected; n: none. first: its index in the whole. */
static size_t wrong(struct rank *rank, struct buffers *b, int type, int op, int factor, size_t first, size_t n)
{
    if (!device_read(rank, b->host, b->out, n * type_bytes(type))) return 0;
    for (size_t i = 0; i < n; i++)
        if (number_get(type, b->host, i) != expected(type, op, factor, first + i)) return i;
    return n;
}

/* ---- reductions ---- */

static void reduce_all(struct rank *rank, struct buffers *b, int type, int op, int factor)
{
    const size_t me = (size_t)rank->index;
    CHECK(rank, put_numbers(rank, b, type, RANKS * N));
    CHECK_OK(rank, nccl.AllReduce(b->in, b->out, RANKS * N, type, op, rank->comm, rank->stream));
    CHECK(rank, wrong(rank, b, type, op, factor, 0, RANKS * N) == RANKS * N);
    CHECK_OK(rank, nccl.ReduceScatter(b->in, b->out, N, type, op, rank->comm, rank->stream));
    CHECK(rank, wrong(rank, b, type, op, factor, me * N, N) == N);
    CHECK_OK(rank, nccl.Reduce(b->in, me == ROOT ? b->out : NULL, N, type, op, ROOT, rank->comm, rank->stream));
    if (me == ROOT) CHECK(rank, wrong(rank, b, type, op, factor, 0, N) == N);
}

static void reductions(struct rank *rank)
{
    struct buffers *b = calloc(1, sizeof *b);
    CHECK(rank, b && buffers_open(b));
    for (int type = 0; type < N_TYPES; type++)
        for (int op = SUM; op <= AVG; op++) reduce_all(rank, b, type, op, 1);
    buffers_close(rank, b);
}

/* Each replay reads the factor anew. The graph has memory, so ranks meet where that is made and freed. */
static void factor_in_graph(struct rank *rank, struct buffers *b, int type, int op, void *at)
{
    unsigned char factor[8] = {0};
    void *graph = NULL, *ready = NULL;
    CHECK(rank, put_numbers(rank, b, type, N) && driver.capture_begin(rank->stream, 1) == 0);
    CHECK_OK(rank, nccl.AllReduce(b->in, b->out, N, type, op, rank->comm, rank->stream));
    CHECK(rank, driver.capture_end(rank->stream, &graph) == 0 && driver.instantiate(&ready, graph, 0) == 0);
    ranks_meet(rank);
    for (int value = 4; value >= 2; value -= 2) {
        number_put(type, factor, 0, value);
        CHECK(rank, device_write(rank, at, factor, type_bytes(type)) && driver.launch(ready, rank->stream) == 0);
        CHECK(rank, wrong(rank, b, type, SUM, value, 0, N) == N);
    }
    ranks_meet(rank);
    CHECK(rank, driver.exec_destroy(ready) == 0 && driver.graph_destroy(graph) == 0);
    ranks_meet(rank);
}

/* The factor on the host is read at once; the device's when the call runs. */
static void factors(struct rank *rank)
{
    struct buffers *b = calloc(1, sizeof *b);
    unsigned char factor[8] = {0};
    int host = 0, device = 0;
    CHECK(rank, b && buffers_open(b));
    void *at = device_alloc(8);
    CHECK(rank, at);
    for (int type = 0; type < N_TYPES; type++) {
        number_put(type, factor, 0, 1);
        CHECK(rank, device_write(rank, at, factor, type_bytes(type)));
        number_put(type, factor, 0, 2);
        CHECK_OK(rank, nccl.RedOpCreatePreMulSum(&host, factor, type, 1, rank->comm));
        CHECK_OK(rank, nccl.RedOpCreatePreMulSum(&device, at, type, 0, rank->comm));
        CHECK(rank, device_write(rank, at, factor, type_bytes(type)));
        number_put(type, factor, 0, 3);
        reduce_all(rank, b, type, host, 2);
        reduce_all(rank, b, type, device, 2);
        if (type == INT32 || type == BFLOAT16) factor_in_graph(rank, b, type, device, at);
        CHECK_OK(rank, nccl.RedOpDestroy(host, rank->comm));
        CHECK_OK(rank, nccl.RedOpDestroy(device, rank->comm));
    }
    CHECK(rank, device_free(rank, 1, &at));
    buffers_close(rank, b);
}

/* ---- moves: of N bytes a block; block b of rank r holds mark(r, b) ---- */

static unsigned char mark(int r, int b)
{
    return (unsigned char)(16 * r + b + 1);
}

static bool put_marks(struct rank *rank, struct buffers *b, void *to)
{
    for (int block = 0; block < RANKS; block++) memset(b->host + block * N, mark(rank->index, block), N);
    return device_write(rank, to, b->host, RANKS * N);
}

static bool is_marked(struct rank *rank, struct buffers *b, const void *at, int block, unsigned char expected_mark)
{
    if (!device_read(rank, b->host, (const char *)at + block * N, N)) return false;
    for (size_t i = 0; i < N; i++)
        if (b->host[i] != expected_mark) return false;
    return true;
}

static void move_rooted(struct rank *rank, struct buffers *b)
{
    const bool root = rank->index == ROOT;
    CHECK_OK(rank, nccl.Broadcast(root ? b->in : NULL, b->out, N, UINT8, ROOT, rank->comm, rank->stream));
    CHECK(rank, is_marked(rank, b, b->out, 0, mark(ROOT, 0)));
    CHECK(rank, put_marks(rank, b, b->out));
    CHECK_OK(rank, nccl.Bcast(b->out, N, UINT8, ROOT, rank->comm, rank->stream));
    CHECK(rank, is_marked(rank, b, b->out, 0, mark(ROOT, 0)));
    CHECK_OK(rank, nccl.Gather(b->in, root ? b->out : NULL, N, UINT8, ROOT, rank->comm, rank->stream));
    for (int r = 0; r < RANKS && root; r++) CHECK(rank, is_marked(rank, b, b->out, r, mark(r, 0)));
    CHECK_OK(rank, nccl.Scatter(root ? b->in : NULL, b->out, N, UINT8, ROOT, rank->comm, rank->stream));
    CHECK(rank, is_marked(rank, b, b->out, 0, mark(ROOT, rank->index)));
}

static void moves(struct rank *rank)
{
    const int next = (rank->index + 1) % RANKS, last = (rank->index + RANKS - 1) % RANKS;
    struct buffers *b = calloc(1, sizeof *b);
    CHECK(rank, b && buffers_open(b) && put_marks(rank, b, b->in));
    CHECK_OK(rank, nccl.AllGather(b->in, b->out, N, UINT8, rank->comm, rank->stream));
    for (int r = 0; r < RANKS; r++) CHECK(rank, is_marked(rank, b, b->out, r, mark(r, 0)));
    CHECK_OK(rank, nccl.AlltoAll(b->in, b->out, N, UINT8, rank->comm, rank->stream));
    for (int r = 0; r < RANKS; r++) CHECK(rank, is_marked(rank, b, b->out, r, mark(r, rank->index)));
    CHECK_OK(rank, nccl.GroupStart());
    CHECK_OK(rank, nccl.Send(b->in, N, INT8, next, rank->comm, rank->stream));
    CHECK_OK(rank, nccl.Recv(b->out, N, INT8, last, rank->comm, rank->stream));
    CHECK_OK(rank, nccl.Send((char *)b->in + N, 0, FLOAT32, last, rank->comm, rank->stream));
    CHECK_OK(rank, nccl.Recv((char *)b->out + N, 0, FLOAT32, next, rank->comm, rank->stream));
    CHECK_OK(rank, nccl.GroupEnd());
    CHECK(rank, is_marked(rank, b, b->out, 0, mark(last, 0)));
    move_rooted(rank, b);
    CHECK_OK(rank, nccl.AllGather((char *)b->in + rank->index * N, b->in, N, UINT8, rank->comm, rank->stream));
    for (int r = 0; r < RANKS; r++) CHECK(rank, is_marked(rank, b, b->in, r, mark(r, r)));
    buffers_close(rank, b);
}

/* Large enough that the root copies beside the call; eager, captured, and with the next call on what it wrote. */
static void large_broadcast(struct rank *rank)
{
    enum { LARGE = 9 << 20, CHECKED = 4096 };
    unsigned char host[CHECKED];
    void *in = device_alloc(LARGE), *out = device_alloc(LARGE), *graph = NULL, *ready = NULL;
    unsigned char *fill = malloc(LARGE);
    CHECK(rank, in && out && fill);
    memset(fill, rank->index == 1 ? 0x5a : 0, LARGE);
    CHECK(rank, device_write(rank, in, fill, LARGE));
    for (int captured = 0; captured < 2; captured++) {
        CHECK(rank, device_write(rank, out, fill + (rank->index == 1), 1));
        CHECK(rank, !captured || driver.capture_begin(rank->stream, 1) == 0);
        CHECK_OK(rank, nccl.Broadcast(in, out, LARGE, UINT8, 1, rank->comm, rank->stream));
        CHECK_OK(rank, nccl.AllReduce((char *)out + LARGE - CHECKED, (char *)out + LARGE - CHECKED, CHECKED, UINT8, MAX,
                                      rank->comm, rank->stream));
        if (captured) {
            CHECK(rank, driver.capture_end(rank->stream, &graph) == 0 && driver.instantiate(&ready, graph, 0) == 0);
            CHECK(rank, driver.launch(ready, rank->stream) == 0);
        }
        CHECK(rank, device_read(rank, host, (char *)out + LARGE - CHECKED, CHECKED));
        for (size_t i = 0; i < CHECKED; i++) CHECK(rank, host[i] == 0x5a);
        memset(host, 0, CHECKED);
        CHECK(rank, device_write(rank, (char *)out + LARGE - CHECKED, host, CHECKED));
    }
    CHECK(rank, driver.exec_destroy(ready) == 0 && driver.graph_destroy(graph) == 0);
    CHECK(rank, device_free(rank, 2, (void *[]){in, out}));
    free(fill);
}

/* ---- one thread, several ranks ---- */

static bool use_device(int device)
{
    void *context = NULL;
    return driver.retain(&context, device) == 0 && driver.current(context) == 0;
}

static void one_thread(struct rank *rank)
{
    comm_t comms[RANKS];
    int devices[RANKS], device = -1;
    struct buffers *all[RANKS];
    struct rank as[RANKS];
    for (int i = 0; i < RANKS; i++) devices[i] = i % driver.n;
    CHECK_RESULT(rank, INVALID_ARGUMENT, nccl.CommInitAll(comms, 1, &driver.n)); /* one too many */
    CHECK_OK(rank, nccl.CommInitAll(comms, RANKS, devices));
    for (int i = 0; i < RANKS; i++) {
        as[i] = (struct rank){.index = i, .n = RANKS};
        CHECK_OK(rank, nccl.CommCuDevice(comms[i], &device));
        CHECK(rank, device == devices[i] && use_device(device) && driver.stream_create(&as[i].stream, 1) == 0);
        CHECK(rank, (all[i] = calloc(1, sizeof **all)) && buffers_open(all[i]));
        CHECK(rank, put_numbers(&as[i], all[i], INT32, N));
    }
    CHECK_OK(rank, nccl.GroupStart());
    for (int i = 0; i < RANKS; i++)
        CHECK_OK(rank, nccl.AllReduce(all[i]->in, all[i]->out, N, INT32, SUM, comms[i], as[i].stream));
    CHECK_OK(rank, nccl.GroupEnd());
    for (int i = 0; i < RANKS; i++) CHECK(rank, wrong(&as[i], all[i], INT32, SUM, 1, 0, N) == N);
    for (int i = 0; i < RANKS; i++) CHECK_OK(rank, nccl.CommDestroy(comms[i]));
    for (int i = 0; i < RANKS; i++) buffers_close(&as[i], all[i]);
    for (int i = 0; i < RANKS; i++) CHECK(rank, driver.stream_destroy(as[i].stream) == 0);
}

/* ---- the order of a stream ---- */

/* Pinned memory that a copy before the call fills, and one behind it reads: nobody waits in between. Ranks meet where
 * they would copy behind such a copy of a peer (nccl.h). */
static void pinned(struct rank *rank)
{
    struct buffers *b = calloc(1, sizeof *b);
    void *in = NULL, *out = NULL;
    int on_stack[N];
    CHECK(rank, b && buffers_open(b) && put_numbers(rank, b, INT32, N));
    CHECK(rank, driver.alloc_host(&in, N * 4, 0) == 0 && driver.alloc_host(&out, N * 4, 0) == 0);
    memset(out, 0, N * 4);
    ranks_meet(rank);
    CHECK(rank, driver.copy((uint64_t)(uintptr_t)in, (uint64_t)(uintptr_t)b->in, N * 4, rank->stream) == 0);
    CHECK_OK(rank, nccl.AllReduce(in, out, N, INT32, SUM, rank->comm, rank->stream));
    CHECK(rank, driver.copy((uint64_t)(uintptr_t)b->out, (uint64_t)(uintptr_t)out, N * 4, rank->stream) == 0);
    CHECK(rank, wrong(rank, b, INT32, SUM, 1, 0, N) == N);
    ranks_meet(rank);
    CHECK_OK(rank, nccl.AllReduce(b->in, out, N, INT32, MAX, rank->comm, rank->stream)); /* one of each */
    CHECK(rank, driver.copy((uint64_t)(uintptr_t)b->out, (uint64_t)(uintptr_t)out, N * 4, rank->stream) == 0);
    CHECK(rank, wrong(rank, b, INT32, MAX, 1, 0, N) == N);
    CHECK_RESULT(rank, INVALID_ARGUMENT, nccl.AllReduce(on_stack, on_stack, N, INT32, SUM, rank->comm, rank->stream));
    CHECK(rank, strstr(nccl.GetLastError(NULL), "pin it"));
    buffers_close(rank, b);
    CHECK(rank, driver.free_host(in) == 0 && driver.free_host(out) == 0); /* once all have come to the end */
}

static void default_stream(struct rank *rank)
{
    struct buffers *b = calloc(1, sizeof *b);
    CHECK(rank, b && buffers_open(b) && put_marks(rank, b, b->in));
    CHECK_OK(rank, nccl.AllGather(b->in, b->out, N, UINT8, rank->comm, NULL));
    CHECK(rank, driver.stream_sync(NULL) == 0);
    for (int r = 0; r < rank->n; r++) CHECK(rank, is_marked(rank, b, b->out, r, mark(r, 0)));
    buffers_close(rank, b);
}

static void test_default_stream(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(driver.n < RANKS ? driver.n : RANKS, true, default_stream, NULL), 0); /* one a device */
}

/* The first call is a captured one; eager ones come between replays, each on what the one before has made. */
static void graphs(struct rank *rank)
{
    enum { ROUNDS = 3 };
    struct buffers *b = calloc(1, sizeof *b);
    void *graph = NULL, *ready = NULL;
    uint64_t sum = 0;
    CHECK(rank, b && buffers_open(b));
    for (size_t i = 0; i < N; i++) ((uint64_t *)(void *)b->host)[i] = i + 1;
    CHECK(rank, device_write(rank, b->out, b->host, N * 8));
    CHECK(rank, driver.capture_begin(rank->stream, 1) == 0);
    CHECK_OK(rank, nccl.AllReduce(b->out, b->out, N, UINT64, SUM, rank->comm, rank->stream));
    CHECK_OK(rank, nccl.Broadcast(b->out, b->in, N, UINT64, ROOT, rank->comm, rank->stream));
    CHECK(rank, driver.capture_end(rank->stream, &graph) == 0 && driver.instantiate(&ready, graph, 0) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(rank, driver.launch(ready, rank->stream) == 0);
        CHECK_OK(rank, nccl.AllReduce(b->in, b->out, N, UINT64, SUM, rank->comm, rank->stream));
    }
    CHECK(rank, device_read(rank, b->host, b->out, N * 8));
    for (size_t i = 0; i < N; i++) {
        sum = i + 1;
        for (int round = 0; round < 2 * ROUNDS; round++) sum *= RANKS;
        CHECK(rank, ((uint64_t *)(void *)b->host)[i] == sum);
    }
    CHECK(rank, driver.exec_destroy(ready) == 0 && driver.graph_destroy(graph) == 0);
    buffers_close(rank, b);
}

/* ---- windows ---- */

static void put_around(struct rank *rank, struct buffers *b, window_t window, int round)
{
    const int next = (rank->index + 1) % rank->n, last = (rank->index + rank->n - 1) % rank->n;
    struct wait waits[2] = {{1, last, 0, 0}, {1, next, 1, 0}};
    void *base = NULL;
    CHECK_OK(rank, nccl.WinGetUserPtr(rank->comm, window, &base));
    CHECK_OK(rank, nccl.PutSignal(b->in, N, UINT8, next, window, N * (size_t)round, 0, 0, 0, rank->comm, rank->stream));
    CHECK_OK(rank, nccl.Signal(last, 1, 0, 0, rank->comm, rank->stream));
    CHECK_OK(rank, nccl.WaitSignal(2, waits, rank->comm, rank->stream));
    CHECK(rank, is_marked(rank, b, base, round, mark(last, 0)));
}

static void windows(struct rank *rank)
{
    const size_t bytes = sizeof((struct buffers *)0)->host;
    struct buffers *b = calloc(1, sizeof *b);
    window_t in = NULL, free_one = NULL, none = NULL;
    void *memory = NULL, *other = NULL, *peer = NULL;
    CHECK(rank, b && buffers_open(b) && put_marks(rank, b, b->in));
    CHECK_OK(rank, nccl.MemAlloc(&memory, bytes));
    CHECK_OK(rank, nccl.MemAlloc(&other, bytes));
    CHECK_RESULT(rank, INVALID_USAGE, nccl.Signal(0, 0, 0, 0, rank->comm, rank->stream));
    CHECK_OK(rank, nccl.CommWindowRegister(rank->comm, memory, bytes, &in, 1));
    CHECK_OK(rank, nccl.CommWindowRegister(rank->comm, other, bytes, &free_one, 0));
    CHECK_RESULT(rank, INVALID_ARGUMENT, nccl.CommWindowRegister(rank->comm, NULL, bytes, &none, 1));
    CHECK(rank, in && free_one && !none);
    for (int round = 0; round < 3; round++) put_around(rank, b, round == 1 ? free_one : in, round);
    CHECK_OK(rank, nccl.GetPeerDevicePointer(in, 8, rank->index, &peer));
    CHECK(rank, peer == (char *)memory + 8);
    CHECK_OK(rank, nccl.GetLsaDevicePointer(in, 16, 0, &peer)); /* the team of one */
    CHECK(rank, peer == (char *)memory + 16);
    CHECK_RESULT(rank, INVALID_ARGUMENT, nccl.GetLsaDevicePointer(in, 0, 1, &peer));
    CHECK_OK(rank, nccl.AllGather(b->in, memory, N, UINT8, rank->comm, rank->stream)); /* within the window */
    for (int r = 0; r < rank->n; r++) CHECK(rank, is_marked(rank, b, memory, r, mark(r, 0)));
    CHECK_OK(rank, nccl.Broadcast(memory, b->out, N, UINT8, ROOT, rank->comm, rank->stream)); /* out of it */
    CHECK(rank, is_marked(rank, b, b->out, 0, mark(0, 0)));
    ranks_meet(rank);
    CHECK_OK(rank, nccl.CommWindowDeregister(rank->comm, in));
    CHECK_OK(rank, nccl.CommWindowDeregister(rank->comm, NULL));
    ranks_meet(rank);
    CHECK_OK(rank, nccl.CommDestroy(rank->comm)); /* with a window that is left */
    rank->comm = NULL;
    ranks_meet(rank);
    CHECK_OK(rank, nccl.MemFree(memory));
    CHECK_OK(rank, nccl.MemFree(other));
    CHECK_RESULT(rank, INVALID_ARGUMENT, nccl.MemFree(other));
    buffers_close(rank, b);
}

enum { WINDOWS = 3 };
struct member { /* one of the ranks of a thread */
    struct rank as;
    struct buffers *b; /* in and out are the first two of */
    void *memory[WINDOWS], *handle;
    window_t windows[WINDOWS];
};

static void settle(struct rank *rank, const struct member *all)
{
    for (int i = 0; i < RANKS; i++) {
        int state = IN_PROGRESS;
        while (state == IN_PROGRESS) CHECK_OK(rank, nccl.CommGetAsyncError(all[i].as.comm, &state));
        CHECK_OK(rank, state);
    }
}

/* The last one is not symmetric. What does not wait for others is allowed in between. */
static void register_all(struct rank *rank, struct member *m, int device)
{
    const size_t bytes = sizeof m->b->host;
    CHECK(rank, use_device(device) && driver.stream_create(&m->as.stream, 1) == 0);
    CHECK(rank, (m->b = calloc(1, sizeof *m->b)));
    for (int k = 0; k < WINDOWS; k++) {
        CHECK_OK(rank, nccl.MemAlloc(&m->memory[k], bytes));
        CHECK_OK(rank, nccl.CommWindowRegister(m->as.comm, m->memory[k], bytes, &m->windows[k], k < 2));
    }
    CHECK_OK(rank, nccl.CommRegister(m->as.comm, m->memory[0], bytes, &m->handle));
    m->b->in = m->memory[0];
    m->b->out = m->memory[1];
}

static void in_windows(struct rank *rank, struct member *all)
{
    for (int i = 0; i < RANKS; i++) {
        for (int k = 0; k < WINDOWS; k++) CHECK(rank, all[i].windows[k]);
        CHECK(rank, put_numbers(&all[i].as, all[i].b, INT32, N));
    }
    CHECK_OK(rank, nccl.GroupStart());
    for (int i = 0; i < RANKS; i++) {
        const struct member *m = &all[i];
        CHECK_OK(rank, nccl.AllReduce(m->b->in, m->b->out, N, INT32, SUM, m->as.comm, m->as.stream));
    }
    CHECK_OK(rank, nccl.GroupEnd());
    for (int i = 0; i < RANKS; i++) CHECK(rank, wrong(&all[i].as, all[i].b, INT32, SUM, 1, 0, N) == N);
}

static void close_all(struct rank *rank, struct member *all)
{
    CHECK_OK(rank, nccl.GroupStart());
    for (int i = 0; i < RANKS; i++) {
        for (int k = 0; k < WINDOWS; k++) CHECK_OK(rank, nccl.CommWindowDeregister(all[i].as.comm, all[i].windows[k]));
        CHECK_OK(rank, nccl.CommDeregister(all[i].as.comm, all[i].handle));
    }
    CHECK_OK(rank, nccl.GroupEnd());
    for (int i = 0; i < RANKS; i++) CHECK_OK(rank, nccl.CommDestroy(all[i].as.comm));
    for (int i = 0; i < RANKS; i++) {
        for (int k = 0; k < WINDOWS; k++) CHECK_OK(rank, nccl.MemFree(all[i].memory[k]));
        CHECK(rank, driver.stream_destroy(all[i].as.stream) == 0);
        free(all[i].b);
    }
}

/* Several windows of each of several ranks are registered in one group, by communicators that block or do not. */
static void windows_of_a_group(struct rank *rank)
{
    struct config config = CONFIG_INIT;
    struct member all[RANKS] = {0};
    config.blocking = *(const int *)rank->arg;
    const int under_way = config.blocking ? OK : IN_PROGRESS;
    CHECK_OK(rank, nccl.GroupStart());
    for (int i = 0; i < RANKS; i++) {
        all[i].as = (struct rank){.index = i, .n = RANKS};
        CHECK(rank, use_device(i % driver.n));
        CHECK_OK(rank, nccl.CommInitRankConfig(&all[i].as.comm, RANKS, rank->id, i, &config));
    }
    CHECK_RESULT(rank, under_way, nccl.GroupEnd());
    settle(rank, all);
    CHECK_OK(rank, nccl.GroupStart());
    for (int i = 0; i < RANKS; i++) register_all(rank, &all[i], i % driver.n);
    CHECK_RESULT(rank, under_way, nccl.GroupEnd());
    settle(rank, all);
    in_windows(rank, all);
    close_all(rank, all);
}

static void test_windows_of_a_group(void **state)
{
    (void)state;
    for (int blocking = 1; blocking >= 0; blocking--)
        assert_int_equal(ranks_run(1, false, windows_of_a_group, &blocking), 0);
}

static void registered(struct rank *rank)
{
    void *memory = NULL, *handle = NULL;
    CHECK_OK(rank, nccl.MemAlloc(&memory, 1));
    CHECK_OK(rank, nccl.CommRegister(rank->comm, memory, 1, &handle));
    CHECK_OK(rank, nccl.CommDeregister(rank->comm, handle));
    CHECK_RESULT(rank, INVALID_ARGUMENT, nccl.CommDeregister(rank->comm, handle)); /* a second time */
    CHECK_RESULT(rank, INVALID_ARGUMENT, nccl.CommDeregister(rank->comm, (void *)(uintptr_t)0xdead));
    CHECK_OK(rank, nccl.CommDeregister(rank->comm, NULL));
    CHECK_OK(rank, nccl.CommRegister(rank->comm, memory, 1, &handle)); /* goes with the communicator */
    CHECK_OK(rank, nccl.MemFree(memory));
}

/* ---- a rank that dies: processes, of which the parent has not used the driver yet ---- */

enum { NO_DEVICE = 77, DIES = 1 };

/* Without a deadline the other waits on its stream, which goes on when the death is told. */
static void dying(struct rank *rank)
{
    struct buffers *b = calloc(1, sizeof *b);
    int state = OK;
    CHECK(rank, b && use_device(rank->index % driver.n) && driver.stream_create(&rank->stream, 1) == 0);
    CHECK(rank, buffers_open(b) && put_numbers(rank, b, INT32, N));
    CHECK_OK(rank, nccl.CommInitRank(&rank->comm, 2, rank->id, rank->index));
    CHECK_OK(rank, nccl.AllReduce(b->in, b->out, N, INT32, SUM, rank->comm, rank->stream));
    CHECK(rank, driver.stream_sync(rank->stream) == 0);
    if (rank->index == DIES) raise(SIGKILL);
    CHECK_OK(rank, nccl.AllReduce(b->in, b->out, N, INT32, SUM, rank->comm, rank->stream));
    CHECK(rank, driver.stream_sync(rank->stream) == 0);
    while (state == OK) CHECK_OK(rank, nccl.CommGetAsyncError(rank->comm, &state));
    CHECK(rank, state == REMOTE_ERROR && strstr(nccl.GetLastError(NULL), "rank 1"));
    CHECK_RESULT(rank, REMOTE_ERROR, nccl.AllReduce(b->in, b->out, N, INT32, SUM, rank->comm, rank->stream));
    CHECK_OK(rank, nccl.CommAbort(rank->comm));
    CHECK(rank, put_numbers(rank, b, INT32, N)); /* the device is usable */
    buffers_close(rank, b);
    rank->arg = rank; /* came to its end */
}

static int dying_process(int index, const int pipe_ends[2])
{
    struct rank rank = {.index = index, .n = 2};
    driver_open();
    if (!driver.here) return NO_DEVICE;
    alarm(ranks_deadline_s());
    if (index == 0 &&
        (nccl.GetUniqueId(&rank.id) != OK || write(pipe_ends[1], &rank.id, sizeof rank.id) != (ssize_t)sizeof rank.id))
        return 1;
    if (index == DIES && read(pipe_ends[0], &rank.id, sizeof rank.id) != (ssize_t)sizeof rank.id) return 1;
    dying(&rank);
    return rank.arg == NULL;
}

/* The status of rank 0. */
static int death(void)
{
    int ends[2], statuses[2];
    pid_t children[2];
    if (pipe(ends) != 0) return 1;
    for (int i = 0; i < 2; i++)
        if ((children[i] = fork()) == 0) _exit(dying_process(i, ends));
    for (int i = 0; i < 2; i++)
        if (waitpid(children[i], &statuses[i], 0) != children[i]) return 1;
    for (int i = 0; i < 2; i++) close(ends[i]);
    return WIFEXITED(statuses[0]) ? WEXITSTATUS(statuses[0]) : 1;
}

static int death_status;

static void test_death(void **state)
{
    (void)state;
    if (!ranks_can_fork()) skip();
    assert_int_equal(death_status, 0);
}

int main(void)
{
    static struct scene of_reductions = {RANKS, true, reductions}, of_factors = {RANKS, true, factors},
                        of_large_broadcast = {2, true, large_broadcast}, of_moves = {RANKS, true, moves},
                        of_one_thread = {1, false, one_thread}, of_pinned = {RANKS, true, pinned},
                        of_graphs = {RANKS, true, graphs}, of_windows = {RANKS, true, windows},
                        of_registered = {1, true, registered};
    nccl_open();
    death_status = death();
    if (death_status == NO_DEVICE) {
        printf("skipped: no CUDA device\n");
        return 77;
    }
    driver_open();
    const struct CMUnitTest tests[] = {
        {"reductions", scene_play, NULL, NULL, &of_reductions},
        {"factors", scene_play, NULL, NULL, &of_factors},
        {"moves", scene_play, NULL, NULL, &of_moves},
        {"one_thread", scene_play, NULL, NULL, &of_one_thread},
        {"pinned", scene_play, NULL, NULL, &of_pinned},
        cmocka_unit_test(test_default_stream),
        {"graphs", scene_play, NULL, NULL, &of_graphs},
        {"windows", scene_play, NULL, NULL, &of_windows},
        {"registered", scene_play, NULL, NULL, &of_registered},
        {"large_broadcast", scene_play, NULL, NULL, &of_large_broadcast},
        cmocka_unit_test(test_windows_of_a_group),
        cmocka_unit_test(test_death),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
