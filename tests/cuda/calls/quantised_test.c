/* SPDX-License-Identifier: BSD-3-Clause */
/* Quantised calls on device memory have the bits of the same calls on host memory, whose bounds are tested there
 * (comm/call/packed_test.c): all wire formats and types, in groups, with works, in graphs whose seeds change. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"
#include "reference.h"

#include <string.h>

enum { MOST = 9000, PAD = 8 };
static const enum tutti_wire wires[] = {TUTTI_WIRE_BFLOAT16, TUTTI_WIRE_FLOAT8_E4M3, TUTTI_WIRE_FLOAT8_E5M2,
                                        TUTTI_WIRE_INT8};
static const enum tutti_dtype dtypes[] = {TUTTI_FLOAT32, TUTTI_FLOAT16, TUTTI_BFLOAT16, TUTTI_FLOAT64};

struct scene {
    struct gpu_rank g;
    struct tutti_call_options options;
    unsigned char *in, *out; /* on the device */
    unsigned char *host, *want, *got;
    size_t bytes;
};

struct call {
    enum tutti_wire wire;
    enum tutti_dtype dtype;
    enum tutti_op op;
    int form; /* 0: all_reduce, 1: reduce_scatter, 2: reduce_scatter_v */
    bool in_place;
    size_t count, at; /* elements; where in the buffers */
    uint32_t block;
    uint64_t seed;
    const uint64_t *seeds;
};

static bool scene_open(struct rank *rank, struct scene *s)
{
    if (!gpu_rank_open(rank, &s->g)) return false;
    const struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    s->options = options;
    s->options.stream = s->g.stream;
    s->bytes = ((size_t)MOST * 8 + 64) * (size_t)rank->n;
    s->in = (unsigned char *)gpu_rank_words(&s->g, s->bytes / 4);
    s->out = (unsigned char *)gpu_rank_words(&s->g, s->bytes / 4);
    s->host = (unsigned char *)gpu_rank_host_words(&s->g, s->bytes / 4);
    s->got = (unsigned char *)gpu_rank_host_words(&s->g, s->bytes / 4);
    s->want = (unsigned char *)gpu_rank_host_words(&s->g, s->bytes / 4);
    return s->in && s->out && s->host && s->got && s->want;
}

static void scene_close(struct scene *s)
{
    tutti_cuda_free(s->g.gpu, s->in);
    tutti_cuda_free(s->g.gpu, s->out);
    tutti_cuda_free_host(s->g.gpu, s->host);
    tutti_cuda_free_host(s->g.gpu, s->got);
    tutti_cuda_free_host(s->g.gpu, s->want);
    gpu_rank_leave(&s->g);
}

static size_t count_of(const struct call *c, int32_t r)
{
    return c->form == 2 ? (c->count * (size_t)(r + 2)) % 613 : c->count;
}

/* Elements that go in; what comes out: how many, and in place, where. */
static size_t taken(const struct call *c, int32_t ranks)
{
    size_t n = 0;
    for (int32_t r = 0; r < ranks; r++) n += count_of(c, r);
    return c->form == 0 ? c->count : n;
}
static size_t place(const struct call *c, int32_t rank)
{
    size_t n = 0;
    for (int32_t r = 0; r < rank && c->form > 0; r++) n += count_of(c, r);
    return n;
}

static enum tutti_status call(struct scene *s, const struct call *c, const void *in, void *out,
                              struct tutti_work **work)
{
    struct tutti_comm *comm = s->g.rank->comm;
    struct tutti_call_options options = s->options;
    size_t counts[16];
    options.wire = c->wire, options.wire_block = c->block;
    options.wire_seed = c->seed, options.wire_seeds = c->seeds;
    for (int32_t r = 0; r < s->g.rank->n; r++) counts[r] = count_of(c, r);
    if (c->form == 0) return tutti_all_reduce(in, out, c->count, c->dtype, c->op, comm, &options, work);
    if (c->form == 1) return tutti_reduce_scatter(in, out, c->count, c->dtype, c->op, comm, &options, work);
    return tutti_reduce_scatter_v(in, out, counts, c->dtype, c->op, comm, &options, work);
}

static enum tutti_status call_on_device(struct scene *s, const struct call *c, struct tutti_work **work)
{
    const size_t element = ref_bytes(c->dtype), at = c->at * element;
    unsigned char *in = s->in + at, *out = c->in_place ? in + place(c, s->g.rank->index) * element : s->out + at;
    return call(s, c, in, out, work);
}

/* The input of this rank, and what is to come of it, by a call on host memory. */
static void prepare(struct scene *s, const struct call *c, uint64_t data)
{
    const size_t element = ref_bytes(c->dtype), at = c->at * element;
    struct rank *rank = s->g.rank;
    memset(s->host, 0, s->bytes);
    ref_fill(c->dtype, data % 5 ? REF_FINITE : REF_EDGES, data + (uint64_t)rank->index, s->host + at,
             taken(c, rank->n));
    memcpy(s->want, s->host, s->bytes);
    if (!c->in_place) memset(s->want, 0, s->bytes);
    RANK_CHECK_OK(rank,
                  call(s, c, s->host + at, s->want + at + (c->in_place ? place(c, rank->index) * element : 0), NULL));
}

static enum tutti_status copy_in(struct scene *s)
{
    TUTTI_TRY(tutti_cuda_copy(s->g.gpu, s->in, s->host, s->bytes, s->g.stream));
    memset(s->got, 0, s->bytes);
    return tutti_cuda_copy(s->g.gpu, s->out, s->got, s->bytes, s->g.stream);
}

static void compare(struct scene *s, const struct call *c, const char *how)
{
    struct rank *rank = s->g.rank;
    const unsigned char *from = c->in_place ? s->in : s->out;
    RANK_CHECK_OK(rank, tutti_cuda_copy(s->g.gpu, s->got, from, s->bytes, s->g.stream));
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(s->g.gpu, s->g.stream));
    for (size_t i = 0; i < s->bytes; i++) {
        if (s->got[i] == s->want[i]) continue;
        rank_fail(
            rank, __FILE__, __LINE__,
            "%s: form %d, %s, %s, %zu elements at %zu, block %u, in place %d, seed %llu: byte %zu is %x instead of %x",
            how, c->form, tutti_dtype_name(c->dtype), tutti_wire_name(c->wire), c->count, c->at, c->block, c->in_place,
            (unsigned long long)c->seed, i, s->got[i], s->want[i]);
        return;
    }
}

static struct call random_call(uint64_t *state, size_t most)
{
    const uint64_t bits = tutti_random64(state);
    return (struct call){.wire = wires[bits % 4],
                         .dtype = dtypes[bits >> 2 & 3],
                         .op = bits >> 4 & 1 ? TUTTI_AVG : TUTTI_SUM,
                         .form = (int)(bits >> 5 & 0xff) % 3,
                         .in_place = bits >> 13 & 1,
                         .count = 1 + (bits >> 14 & 0xffff) % most,
                         .at = bits >> 30 & 3,
                         .block = (uint32_t[]){0, 32, 160, 1024}[bits >> 32 & 3],
                         .seed = bits >> 34 & 1 ? bits | 1 : 0};
}

static void alike(struct rank *rank)
{
    struct scene s;
    uint64_t state = test_seed() + 77;
    if (!scene_open(rank, &s)) return;
    for (uint32_t i = 0; i < gpu_ranks_times((uint32_t)rank->n, 200, 60, 48) && !rank->failure[0]; i++) {
        const struct call c = random_call(&state, i % 8 == 0 ? MOST : 700);
        struct tutti_work *work = NULL;
        prepare(&s, &c, tutti_random64(&state));
        if (rank->failure[0]) break;
        RANK_CHECK_OK(rank, copy_in(&s));
        if (i % 4 == 1) RANK_CHECK_OK(rank, tutti_group_start());
        RANK_CHECK_OK(rank, call_on_device(&s, &c, i % 4 == 2 ? &work : NULL));
        if (i % 4 == 1) RANK_CHECK_OK(rank, tutti_group_end(NULL));
        if (work) RANK_CHECK_OK(rank, tutti_work_wait(work, 0));
        tutti_work_free(work);
        compare(&s, &c, "eager");
    }
    scene_close(&s);
}

/* A graph is launched again and again; the seed lies on the device, and is another one each time. */
static void replayed(struct rank *rank)
{
    struct scene s;
    void *graph;
    uint64_t state = test_seed() + 99, *seed, *host_seed;
    if (!scene_open(rank, &s)) return;
    seed = (uint64_t *)(void *)gpu_rank_words(&s.g, 2);
    host_seed = (uint64_t *)(void *)gpu_rank_host_words(&s.g, 2);
    RANK_CHECK(rank, seed && host_seed);
    for (uint32_t i = 0; i < 8 && !rank->failure[0]; i++) {
        struct call c = random_call(&state, 3000), on_host = c;
        c.seeds = seed, on_host.seeds = host_seed;
        c.in_place = on_host.in_place = false;
        RANK_CHECK_OK(rank, tutti_cuda_graph_begin(s.g.gpu, s.g.stream));
        RANK_CHECK_OK(rank, call_on_device(&s, &c, NULL));
        RANK_CHECK_OK(rank, tutti_cuda_graph_end(s.g.gpu, s.g.stream, &graph));
        for (uint32_t again = 0; again < 4 && !rank->failure[0]; again++) {
            *host_seed = again * 12345 + 1;
            prepare(&s, &on_host, tutti_random64(&state));
            RANK_CHECK_OK(rank, copy_in(&s));
            RANK_CHECK_OK(rank, tutti_cuda_copy(s.g.gpu, seed, host_seed, 8, s.g.stream));
            RANK_CHECK_OK(rank, tutti_cuda_graph_launch(s.g.gpu, graph, s.g.stream));
            compare(&s, &c, "replay");
        }
        tutti_cuda_graph_destroy(s.g.gpu, graph);
    }
    tutti_cuda_free(s.g.gpu, seed);
    tutti_cuda_free_host(s.g.gpu, host_seed);
    scene_close(&s);
}

/* Calls on two streams use one memory of the communicator, one after the other. */
static void two_streams(struct rank *rank)
{
    struct scene s;
    void *streams[2];
    uint64_t state = test_seed() + 5;
    if (!scene_open(rank, &s)) return;
    streams[0] = s.g.stream;
    RANK_CHECK_OK(rank, tutti_cuda_stream_create(s.g.gpu, &streams[1]));
    for (uint32_t i = 0; i < 12 && !rank->failure[0]; i++) {
        struct call c = random_call(&state, 3000);
        c.form = 0, c.in_place = false;
        prepare(&s, &c, tutti_random64(&state));
        RANK_CHECK_OK(rank, copy_in(&s));
        RANK_CHECK_OK(rank, tutti_cuda_stream_sync(s.g.gpu, streams[0]));
        for (uint32_t k = 0; k < 4; k++) {
            s.options.stream = streams[k % 2];
            RANK_CHECK_OK(rank, call_on_device(&s, &c, NULL));
        }
        s.options.stream = streams[0];
        RANK_CHECK_OK(rank, tutti_cuda_stream_sync(s.g.gpu, streams[1]));
        compare(&s, &c, "two streams");
    }
    tutti_cuda_stream_destroy(s.g.gpu, streams[1]);
    scene_close(&s);
}

static void run(rank_function function, uint32_t n)
{
    struct ranks_config config = {.n = gpu_ranks_at_most(n), .forked = true, .timeout_ns = UINT64_C(60000000000)};
    config.deadline_s = gpu_ranks_deadline_s();
    assert_int_equal(ranks_run(&config, function), 0);
}

static void bits_of_the_host(void **state)
{
    (void)state;
    run(alike, 2);
    run(alike, 3);
}

static void graphs(void **state)
{
    (void)state;
    if (gpu_ranks_across(3) || gpu_ranks_by_nccl()) skip();
    run(replayed, 3);
}

static void streams(void **state)
{
    (void)state;
    run(two_streams, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_of_the_host),
        cmocka_unit_test(graphs),
        cmocka_unit_test(streams),
    };
    gpu_ranks_need_device();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
