/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams that race: calls of several communicators on several streams, in an order that is drawn, whose inputs are
 * rewritten on the stream right behind the call; nothing waits before the end, where of every result a run of words at
 * a place that is drawn is compared, small ones whole. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"

#include "comm/call/staging.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { COMMS = 3, STREAMS = 3, CALLS = 3000, CALLS_STAND_IN = 60, MOST = 70001, RUN = 512 };
static const size_t sizes[] = {1, 33, 257, 5000, MOST};

struct one { /* a call: its number tells its data */
    uint32_t comm, stream, kind;
    size_t words;
    size_t from, n; /* the run of its result that is kept */
};

struct racing {
    struct gpu_rank g;
    struct tutti_comm *comms[COMMS];
    void *streams[STREAMS];
    uint32_t *in[COMMS][STREAMS], *out[COMMS][STREAMS];
    uint32_t *inputs;  /* pinned: CALLS + MOST words, of which call t takes those from t on */
    uint32_t *results; /* pinned: RUN words of each call */
    struct one calls[CALLS];
    uint32_t n_calls;
};

static uint32_t word(uint32_t rank, size_t i)
{
    uint64_t x = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)(rank + 1) * UINT64_C(0xd1342543de82ef95);
    return (uint32_t)((x ^ x >> 31) * UINT64_C(0xbf58476d1ce4e5b9) >> 32);
}

static bool open_all(struct rank *rank, struct racing *r)
{
    size_t out_words = MOST * (size_t)rank->n;
    if (!gpu_rank_open(rank, &r->g)) return false;
    r->n_calls = gpu_ranks_stand_in() ? CALLS_STAND_IN : CALLS;
    r->inputs = gpu_rank_host_words(&r->g, CALLS + MOST);
    r->results = gpu_rank_host_words(&r->g, CALLS * RUN);
    if (!r->inputs || !r->results) return false;
    for (size_t i = 0; i < CALLS + MOST; i++) r->inputs[i] = word((uint32_t)rank->index, i);
    for (uint32_t c = 0; c < COMMS; c++) {
        r->comms[c] = rank->comm;
        if (c > 0 && tutti_comm_dup(rank->comm, &r->comms[c]) < 0) return false;
        for (uint32_t s = 0; s < STREAMS; s++) {
            r->in[c][s] = gpu_rank_words(&r->g, MOST);
            r->out[c][s] = gpu_rank_words(&r->g, out_words);
            if (!r->in[c][s] || !r->out[c][s]) return false;
        }
    }
    for (uint32_t s = 0; s < STREAMS; s++)
        if (tutti_cuda_stream_create(r->g.gpu, &r->streams[s]) < 0) return false;
    return true;
}

static void close_all(struct racing *r)
{
    for (uint32_t c = 0; c < COMMS; c++) {
        for (uint32_t s = 0; s < STREAMS; s++) {
            tutti_cuda_free(r->g.gpu, r->in[c][s]);
            tutti_cuda_free(r->g.gpu, r->out[c][s]);
        }
        tutti_comm_destroy(r->comms[c]);
    }
    r->g.rank->comm = NULL;
    for (uint32_t s = 0; s < STREAMS; s++) tutti_cuda_stream_destroy(r->g.gpu, r->streams[s]);
    tutti_cuda_free_host(r->g.gpu, r->inputs);
    tutti_cuda_free_host(r->g.gpu, r->results);
    gpu_rank_close(&r->g);
}

static enum tutti_status make(struct racing *r, uint32_t t)
{
    const struct one *one = &r->calls[t];
    struct tutti_device *gpu = r->g.gpu;
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    void *stream = options.stream = r->streams[one->stream];
    uint32_t *in = r->in[one->comm][one->stream], *out = r->out[one->comm][one->stream];
    struct tutti_comm *comm = r->comms[one->comm];
    size_t n = one->words;
    enum tutti_status status = tutti_cuda_copy(gpu, in, r->inputs + t, n * 4, stream);
    if (status >= 0 && one->kind == 0)
        status = tutti_all_reduce(in, out, n, TUTTI_UINT32, TUTTI_SUM, comm, &options, NULL);
    if (status >= 0 && one->kind == 1) status = tutti_all_gather(in, out, n, TUTTI_UINT32, comm, &options, NULL);
    if (status >= 0 && one->kind == 2)
        status = tutti_all_reduce(in, out, n, TUTTI_UINT32, TUTTI_BXOR, comm, &options, NULL);
    if (status >= 0) status = tutti_cuda_copy(gpu, r->results + RUN * t, out + one->from, one->n * 4, stream);
    return status;
}

static uint32_t expected(const struct racing *r, uint32_t t, size_t i)
{
    const struct one *one = &r->calls[t];
    uint32_t n_ranks = (uint32_t)r->g.rank->n, result = 0;
    if (one->kind == 1) return word((uint32_t)(i / one->words), t + i % one->words);
    for (uint32_t q = 0; q < n_ranks; q++) result = one->kind == 0 ? result + word(q, t + i) : result ^ word(q, t + i);
    return result;
}

static void compare(struct racing *r)
{
    struct rank *rank = r->g.rank;
    for (uint32_t t = 0; t < r->n_calls; t++) {
        const struct one *one = &r->calls[t];
        for (size_t k = 0; k < one->n; k++) {
            if (r->results[RUN * t + k] == expected(r, t, one->from + k)) continue;
            rank_fail(rank, __FILE__, __LINE__, "call %u (kind %u, %zu words, communicator %u, stream %u): word %zu", t,
                      one->kind, one->words, one->comm, one->stream, one->from + k);
            return;
        }
    }
}

/* Told to, calls through the host are cut into pieces. */
static void check_pieces(struct racing *r)
{
    if (!getenv("TUTTI_GPU_PIECE") || !gpu_ranks_across((uint32_t)r->g.rank->n)) return;
    for (uint32_t c = 0; c < COMMS; c++) {
        const struct tutti_staging *staging = r->comms[c]->device->staging;
        const uint32_t n_calls = atomic_load(&staging->enqueued);
        RANK_CHECK(r->g.rank, n_calls > 0 && staging->n_pieces > 2 * n_calls);
    }
}

static struct one draw(uint64_t random, uint32_t n_ranks)
{
    struct one one = {.comm = (uint32_t)(random >> 33) % COMMS,
                      .stream = (uint32_t)(random >> 40) % STREAMS,
                      .kind = (uint32_t)(random >> 48) % 3,
                      .words = sizes[(random >> 56) % (sizeof sizes / sizeof *sizes)]};
    const size_t all = one.words * (one.kind == 1 ? n_ranks : 1);
    one.n = all < RUN ? all : RUN;
    one.from = (random >> 20) % (all - one.n + 1);
    return one;
}

static void race_opened(struct racing *r, uint64_t random)
{
    struct gpu_rank *g = &r->g;
    for (uint32_t t = 0; t < r->n_calls; t++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        r->calls[t] = draw(random, (uint32_t)g->rank->n);
        GPU_CHECK_OK(g, make(r, t));
    }
    for (uint32_t s = 0; s < STREAMS; s++) GPU_CHECK_OK(g, tutti_cuda_stream_sync(g->gpu, r->streams[s]));
    for (uint32_t c = 0; c < COMMS; c++) GPU_CHECK_OK(g, tutti_comm_state(r->comms[c], NULL));
    compare(r);
    check_pieces(r);
}

static void race(struct rank *rank)
{
    struct racing *r = calloc(1, sizeof *r);
    RANK_CHECK(rank, r);
    if (open_all(rank, r)) {
        race_opened(r, *(const uint64_t *)rank->arg);
        if (!rank->failure[0]) {
            RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
            close_all(r);
        }
    } else if (!rank->failure[0]) {
        rank_fail(rank, __FILE__, __LINE__, "opening: %s", tutti_last_error()->text);
    }
    free(r);
}

static void races(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (uint32_t n = 1; n <= gpu_ranks_at_most(3); n++) {
        struct ranks_config config = {.n = n, .forked = true, .deadline_s = 100, .arg = &seed};
        assert_int_equal(ranks_run(&config, race), 0);
    }
}

/* ---- the default stream of each thread, which is another one in each under one handle ---- */

#define OF_THREAD ((void *)(uintptr_t)2)

struct caller {
    struct gpu_rank g;
    uint32_t *in, *between, *out;
    uint32_t *gate; /* pinned: holds up the stream of the rank's own thread */
    enum tutti_status status;
};

static enum tutti_status sum(struct caller *c, uint32_t *in, uint32_t *out)
{
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.stream = OF_THREAD;
    return tutti_all_reduce(in, out, RUN, TUTTI_UINT32, TUTTI_SUM, c->g.rank->comm, &options, NULL);
}

static void *call_behind(void *arg)
{
    struct caller *c = arg;
    c->status = sum(c, c->between, c->out);
    __atomic_store_n(c->gate, 1, __ATOMIC_SEQ_CST);
    if (c->status == TUTTI_OK) c->status = tutti_cuda_stream_sync(c->g.gpu, OF_THREAD);
    return NULL;
}

/* The second thread's call takes what the first one's, which is held up, leaves. */
static void call_from_two_threads(struct rank *rank)
{
    struct caller c = {.status = TUTTI_OK};
    uint32_t host[RUN];
    pthread_t thread;
    if (!gpu_rank_open(rank, &c.g)) return;
    c.in = gpu_rank_words(&c.g, RUN), c.between = gpu_rank_words(&c.g, RUN), c.out = gpu_rank_words(&c.g, RUN);
    c.gate = gpu_rank_host_words(&c.g, 1);
    if (rank->failure[0]) return;
    *c.gate = 0;
    for (uint32_t i = 0; i < RUN; i++) host[i] = 1;
    GPU_CHECK_OK(&c.g, tutti_cuda_copy_now(c.g.gpu, c.in, host, sizeof host));
    RANK_CHECK_OK(rank, sum(&c, c.in, c.out)); /* nccl connects */
    GPU_CHECK_OK(&c.g, tutti_cuda_stream_sync(c.g.gpu, OF_THREAD));
    GPU_CHECK_OK(&c.g, tutti_cuda_stream_wait_word(c.g.gpu, OF_THREAD, c.gate, 1));
    RANK_CHECK_OK(rank, sum(&c, c.in, c.between));
    RANK_CHECK(rank, pthread_create(&thread, NULL, call_behind, &c) == 0);
    pthread_join(thread, NULL);
    RANK_CHECK_OK(rank, c.status);
    GPU_CHECK_OK(&c.g, tutti_cuda_stream_sync(c.g.gpu, OF_THREAD));
    GPU_CHECK_OK(&c.g, tutti_cuda_copy_now(c.g.gpu, host, c.out, sizeof host));
    for (uint32_t i = 0; i < RUN; i++) RANK_CHECK(rank, host[i] == (uint32_t)(rank->n * rank->n));
}

static void streams_of_threads(void **state)
{
    (void)state;
    assert_int_equal(ranks_forked(gpu_ranks_at_most(2), call_from_two_threads, NULL), 0);
}

int main(void)
{
    gpu_ranks_need_device();
    gpu_ranks_need_two();
    const struct CMUnitTest tests[] = {cmocka_unit_test(races), cmocka_unit_test(streams_of_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
