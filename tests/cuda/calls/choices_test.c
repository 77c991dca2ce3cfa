/* SPDX-License-Identifier: BSD-3-Clause */
/* Ways that option gpu_method asks for wherever they can be had, in windows, and calls between which the choice changes
 * though they look alike: in place, of another type or operation, in windows that are smaller or lie elsewhere on one
 * rank. Whatever is chosen, all ranks choose it, and it is right. */

#include "test.h"

#include "cuda/support/gpu_ranks.h"
#include "reference.h"

#include <string.h>

enum { COUNT = 1536, RANKS_MOST = 3, BYTES_MOST = COUNT * 8, VICTIM = 1 }; /* whole shards, as engines have them */

struct scene {
    struct gpu_rank g;
    struct tutti_call_options options;
    struct tutti_window *window;
    char *in, *memory; /* memory: of which windows are made */
    char *host[RANKS_MOST], *want, *got;
};

static bool scene_open(struct rank *rank, struct scene *s)
{
    static const struct tutti_call_options init = TUTTI_CALL_OPTIONS_INIT;
    *s = (struct scene){.options = init};
    if (!gpu_rank_open(rank, &s->g)) return false;
    s->options.stream = s->g.stream;
    s->options.premul_value = 2;
    s->in = (char *)gpu_rank_words(&s->g, BYTES_MOST / 4);
    for (int32_t q = 0; q < rank->n; q++) s->host[q] = rank_alloc(rank, BYTES_MOST);
    s->want = rank_alloc(rank, BYTES_MOST), s->got = rank_alloc(rank, BYTES_MOST);
    void *memory = NULL;
    const bool opened = s->in && tutti_mem_alloc(rank->comm, BYTES_MOST + 4096, &memory) == TUTTI_OK;
    s->memory = memory;
    return opened;
}

/* The windows before are gone on all ranks. */
static void window_make(struct scene *s, char *base, size_t bytes)
{
    struct rank *rank = s->g.rank;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    tutti_window_destroy(s->window);
    s->window = NULL;
    RANK_CHECK_OK(rank, tutti_barrier(rank->comm, NULL, NULL));
    if (bytes > 0) RANK_CHECK_OK(rank, tutti_window_create(rank->comm, base, bytes, NULL, &s->window));
}

static void scene_close(struct scene *s)
{
    struct rank *rank = s->g.rank;
    if (rank->failure[0]) return;
    window_make(s, NULL, 0);
    RANK_CHECK_OK(rank, tutti_mem_free(rank->comm, s->memory));
    tutti_cuda_free(s->g.gpu, s->in);
    tutti_comm_destroy(rank->comm);
    rank->comm = NULL;
    gpu_rank_close(&s->g);
}

static void reduce(struct scene *s, enum tutti_dtype dtype, enum tutti_op op, char *in, char *out)
{
    struct rank *rank = s->g.rank;
    const size_t bytes = COUNT * ref_bytes(dtype), n = (size_t)rank->n;
    const uint64_t seed = test_seed() + (uint64_t)dtype * 64 + (uint64_t)op;
    const void *inputs[RANKS_MOST];
    unsigned char factor[16] = {0};
    size_t where = 0;
    if (op == TUTTI_PREMUL_SUM) ref_encode(dtype, s->options.premul_value, factor);
    for (size_t q = 0; q < n; q++) {
        ref_fill_exact(dtype, op, seed, q, n, s->host[q], COUNT);
        inputs[q] = s->host[q];
    }
    ref_reduce(dtype, op, inputs, n, COUNT, factor, s->want);
    GPU_CHECK_OK(&s->g, tutti_cuda_copy_now(s->g.gpu, in, s->host[rank->index], bytes));
    RANK_CHECK_OK(rank, tutti_all_reduce(in, out, COUNT, dtype, op, rank->comm, &s->options, NULL));
    RANK_CHECK_OK(rank, tutti_cuda_stream_sync(s->g.gpu, s->g.stream));
    RANK_CHECK_OK(rank, tutti_comm_state(rank->comm, NULL));
    GPU_CHECK_OK(&s->g, tutti_cuda_copy_now(s->g.gpu, s->got, out, bytes));
    if (!ref_equal(dtype, s->got, s->want, COUNT, &where))
        rank_fail(rank, __FILE__, __LINE__, "%s of %s%s: element %zu is wrong", tutti_op_name(op),
                  tutti_dtype_name(dtype), in == out ? " in place" : "", where);
}

/* Out of place and in place, of which copy engines do the former, but for factors. */
static void reductions(struct rank *rank)
{
    static const struct {
        enum tutti_dtype dtype;
        enum tutti_op op;
    } kinds[] = {
        {TUTTI_FLOAT32, TUTTI_SUM}, {TUTTI_FLOAT32, TUTTI_AVG},  {TUTTI_FLOAT32, TUTTI_PREMUL_SUM},
        {TUTTI_FLOAT32, TUTTI_MAX}, {TUTTI_FLOAT64, TUTTI_AVG},  {TUTTI_FLOAT64, TUTTI_PREMUL_SUM},
        {TUTTI_FLOAT16, TUTTI_SUM}, {TUTTI_BFLOAT16, TUTTI_SUM}, {TUTTI_INT32, TUTTI_SUM},
        {TUTTI_UINT64, TUTTI_BXOR}, {TUTTI_INT8, TUTTI_MIN},
    };
    struct scene s;
    if (!scene_open(rank, &s)) return;
    window_make(&s, s.memory, BYTES_MOST);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds && !rank->failure[0]; k++)
        for (int in_place = 0; in_place < 2 && !rank->failure[0]; in_place++)
            reduce(&s, kinds[k].dtype, kinds[k].op, in_place ? s.memory : s.in, s.memory);
    scene_close(&s);
}

/* The victim's window ends within the output: no rank takes it to be in one. */
static void a_smaller_window(struct rank *rank)
{
    const size_t bytes = COUNT * sizeof(float);
    struct scene s;
    if (!scene_open(rank, &s)) return;
    window_make(&s, s.memory, rank->index == VICTIM ? bytes / 2 : bytes);
    for (int i = 0; i < 2 && !rank->failure[0]; i++) reduce(&s, TUTTI_FLOAT32, TUTTI_SUM, s.in, s.memory);
    scene_close(&s);
}

/* Windows that begin at the same place modulo 16 on all ranks, then at the victim's alone. */
static void a_window_elsewhere(struct rank *rank)
{
    struct scene s;
    if (!scene_open(rank, &s)) return;
    for (int apart = 0; apart < 2 && !rank->failure[0]; apart++) {
        char *base = s.memory + (apart && rank->index != VICTIM ? 0 : sizeof(float));
        window_make(&s, base, COUNT * sizeof(float));
        if (!rank->failure[0]) reduce(&s, TUTTI_FLOAT32, TUTTI_SUM, s.in, base);
    }
    scene_close(&s);
}

/* The average of what is near a type's largest is that, though the sum is beyond: by all kinds that reduce. */
static void averages_of_large(struct rank *rank)
{
    static const struct {
        enum tutti_dtype dtype;
        double value;
    } types[] = {{TUTTI_FLOAT16, 60000}, {TUTTI_FLOAT8_E4M3FN, 448}, {TUTTI_FLOAT8_E5M2, 57344}};
    struct scene s;
    if (!scene_open(rank, &s)) return;
    window_make(&s, s.memory, BYTES_MOST);
    for (size_t t = 0; t < TUTTI_ARRAY_LEN(types); t++) {
        const enum tutti_dtype dtype = types[t].dtype;
        const size_t size = ref_bytes(dtype), block = COUNT / (size_t)rank->n;
        for (size_t i = 0; i < COUNT; i++) ref_encode(dtype, types[t].value, s.want + i * size);
        GPU_CHECK_OK(&s.g, tutti_cuda_copy_now(s.g.gpu, s.in, s.want, COUNT * size));
        for (int kind = 0; kind < 3; kind++) {
            const size_t count = kind == 0 ? COUNT : block;
            const enum tutti_status made =
                kind == 0 ? tutti_all_reduce(s.in, s.memory, count, dtype, TUTTI_AVG, rank->comm, &s.options, NULL)
                : kind == 1
                    ? tutti_reduce_scatter(s.in, s.memory, count, dtype, TUTTI_AVG, rank->comm, &s.options, NULL)
                    : tutti_reduce(s.in, s.memory, count, dtype, TUTTI_AVG, 0, rank->comm, &s.options, NULL);
            RANK_CHECK_OK(rank, made);
            RANK_CHECK_OK(rank, tutti_cuda_stream_sync(s.g.gpu, s.g.stream));
            GPU_CHECK_OK(&s.g, tutti_cuda_copy_now(s.g.gpu, s.got, s.memory, count * size));
            if ((kind < 2 || rank->index == 0) && memcmp(s.got, s.want, count * size) != 0)
                rank_fail(rank, __FILE__, __LINE__, "avg of %s %g, kind %d, is %g", tutti_dtype_name(dtype),
                          types[t].value, kind, ref_decode(dtype, s.got));
        }
    }
    scene_close(&s);
}

static void run(const char *method, rank_function function)
{
    const struct tutti_option options[] = {{"gpu", "cuda"}, {"gpu_method", method}};
    for (uint32_t n = 2; n <= RANKS_MOST; n++) {
        struct ranks_config config = {.n = n, .forked = true, .options = options, .n_options = 2};
        assert_int_equal(ranks_run(&config, function), 0);
    }
}

static void by_engines(void **state)
{
    (void)state;
    run("engines", reductions);
    run("engines", a_smaller_window);
}

static void by_stores(void **state)
{
    (void)state;
    run("direct", reductions);
    run("direct", a_smaller_window);
    run("direct", a_window_elsewhere);
}

static void averages(void **state)
{
    static const char *const methods[] = {"sentinel", "sentinel2", "tiles", "tiles2", "direct", "engines", "sentinels"};
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(methods); i++) run(methods[i], averages_of_large);
}

int main(void)
{
    gpu_ranks_need_device();
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_engines), cmocka_unit_test(by_stores),
                                       cmocka_unit_test(averages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
