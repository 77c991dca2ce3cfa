/* SPDX-License-Identifier: BSD-3-Clause */
/* The SPIR-V that is shipped, carried out by Intel's OpenCL for CPUs: folds against the reference, and two processes
 * whose kernels wait for one another in memory that both map. Without such a run time: skipped. */
#include "xpu/jobs.h"
#include "xpu/opencl.h"

#include "cuda/support/rig.h"
#include "reference.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SKIPPED = 77, ELEMENTS = 700, RANKS = 5, SPACE = 16 * ELEMENTS + 64 };

static struct opencl *cl;
static uint64_t seed;

/* The module that has all operations of a type. */
static const char *module_of(const char *protocol, enum tutti_dtype dtype)
{
    static char name[64];
    const bool doubles = dtype == TUTTI_FLOAT64 || dtype == TUTTI_COMPLEX128;
    snprintf(name, sizeof name, "%s_%s", protocol, dtype <= TUTTI_BOOL ? "integer" : doubles ? "64" : "float");
    return name;
}

/* ---- folds ---- */
static unsigned char inputs[RANKS][SPACE], got[SPACE], want[SPACE];

struct shape {
    enum tutti_dtype dtype;
    enum tutti_op op;
    uint32_t n;
    size_t count, shift; /* elements; how far from a multiple of 16 everything begins */
};

static void fold_one(void *kernel, const struct shape *s, const void *const *from, const void *factor)
{
    const size_t bytes = s->count * ref_bytes(s->dtype);
    struct gpu_fold x = {.call = {.n = s->n, .me = 0, .op = s->op}, .out = (char *)got + s->shift, .bytes = bytes};
    x.call.divisor = s->op == TUTTI_AVG ? s->n : 0;
    x.call.scales = s->op == TUTTI_PREMUL_SUM;
    memcpy(x.call.factor, factor, sizeof x.call.factor);
    for (uint32_t q = 0; q < s->n; q++) x.from[q] = from[q];
    memset(got, 0x5a, sizeof got);
    opencl_run(cl, kernel, 2, 64, &x, sizeof x);
    for (size_t i = 0; i < s->shift; i++) assert_int_equal(got[i], 0x5a);
    for (size_t i = s->shift + bytes; i < sizeof got; i++) assert_int_equal(got[i], 0x5a);
}

static void check(const struct shape *s)
{
    size_t where = 0;
    const size_t size = ref_bytes(s->dtype);
    if (ref_equal(s->dtype, got + s->shift, want, s->count, &where)) return;
    char a[64], b[64];
    ref_print(s->dtype, got + s->shift + where * size, a, sizeof a);
    ref_print(s->dtype, want + where * size, b, sizeof b);
    fail_msg("%s %s of %u, element %zu of %zu: %s, not %s", tutti_dtype_name(s->dtype), tutti_op_name(s->op), s->n,
             where, s->count, a, b);
}

/* Two inputs of any bits: one hop, whose rounding and NaN are defined. */
static void fold_hop(void *kernel, struct shape s, enum ref_values values)
{
    const void *from[2];
    const unsigned char none[16] = {0};
    s.n = 2;
    for (uint32_t q = 0; q < s.n; q++) {
        ref_fill(s.dtype, values, seed++, inputs[q] + s.shift, s.count);
        from[q] = inputs[q] + s.shift;
    }
    ref_hop(s.dtype, s.op, want, from[0], from[1], s.count);
    fold_one(kernel, &s, from, none);
    check(&s);
}

/* Several inputs, of which every order has one result. */
static void fold_all(void *kernel, struct shape s)
{
    const void *from[RANKS];
    unsigned char factor[16] = {1};
    if (s.dtype > TUTTI_BOOL) memset(factor, 0, sizeof factor);
    if (s.dtype > TUTTI_BOOL && s.dtype < TUTTI_COMPLEX64) ref_encode(s.dtype, 2, factor);
    if (s.dtype >= TUTTI_COMPLEX64) ref_encode(s.dtype == TUTTI_COMPLEX64 ? TUTTI_FLOAT32 : TUTTI_FLOAT64, 2, factor);
    for (uint32_t q = 0; q < s.n; q++) {
        ref_fill_exact(s.dtype, s.op, seed, q, s.n, inputs[q] + s.shift, s.count);
        from[q] = inputs[q] + s.shift;
    }
    seed++;
    fold_one(kernel, &s, from, factor);
    /* others' contributions came scaled */
    static unsigned char plain[RANKS][SPACE];
    const void *scaled[RANKS];
    for (uint32_t q = 0; q < s.n; q++) {
        memcpy(plain[q], from[q], s.count * ref_bytes(s.dtype));
        if (q == 0 && s.op == TUTTI_PREMUL_SUM) ref_scale(s.dtype, plain[q], s.count, factor);
        scaled[q] = plain[q];
    }
    ref_reduce(s.dtype, s.op == TUTTI_PREMUL_SUM ? TUTTI_SUM : s.op, scaled, s.n, s.count, factor, want);
    check(&s);
}

static void test_folds(void **state)
{
    (void)state;
    for (enum tutti_dtype dtype = 0; dtype < TUTTI_N_DTYPES; dtype++) {
        char name[64];
        snprintf(name, sizeof name, "fold_%s_16", tutti_dtype_name(dtype));
        void *kernel = opencl_kernel(cl, module_of("fold", dtype), name);
        for (enum tutti_op op = 0; op < TUTTI_N_OPS; op++) {
            struct shape s = {.dtype = dtype, .op = op, .n = RANKS};
            if (!ref_defined(dtype, op)) continue;
            for (size_t turn = 0; turn < 4; turn++) {
                s.count = turn ? 1 + tutti_random64(&seed) % ELEMENTS : 512;
                s.shift = turn ? tutti_random64(&seed) % 16 / ref_bytes(dtype) * ref_bytes(dtype) : 0;
                if (op != TUTTI_AVG && op != TUTTI_PREMUL_SUM) fold_hop(kernel, s, turn % 2 ? REF_EDGES : REF_BITS);
                fold_all(kernel, s);
            }
        }
    }
}

static void test_fast_folds(void **state)
{
    (void)state;
    static const enum tutti_dtype dtypes[] = {TUTTI_FLOAT32, TUTTI_FLOAT16, TUTTI_BFLOAT16};
    for (size_t d = 0; d < TUTTI_ARRAY_LEN(dtypes); d++) {
        for (uint32_t most = 2; most <= 16; most += 14) {
            char name[64];
            snprintf(name, sizeof name, "fold_%s_sum_%u", tutti_dtype_name(dtypes[d]), most);
            void *kernel = opencl_kernel(cl, "fold_fast", name);
            const struct shape s = {.dtype = dtypes[d], .op = TUTTI_SUM, .n = most == 2 ? 2 : RANKS, .count = 501};
            fold_hop(kernel, s, REF_EDGES);
            fold_all(kernel, s);
        }
    }
}

/* ---- other jobs ---- */
static void run(const char *module, const char *name, uint32_t blocks, uint32_t threads, const void *args,
                size_t args_bytes)
{
    opencl_run(cl, opencl_kernel(cl, module, name), blocks, threads, args, args_bytes);
}

static void test_other_jobs(void **state)
{
    (void)state;
    jobs_recode(run, seed, 2);
    jobs_sparse(run, seed);
    jobs_counted_row(run, seed);
    jobs_windows(run, seed);
}

/* ---- two processes ---- */
enum { BYTES = 120000, SLOT = 4096, CALLS = 18 };

struct both {
    struct gpu_layout layout;
    struct gpu_control control[2];
    char *scratch[2];
    unsigned char in[2][BYTES], out[2][2 * BYTES];
};

/* An all_gather by moves, or an all_reduce by sums, of one block: by tiles, whose rings go round several times, by
 * lines and by sentinels, whose slots it fills. */
static void exchange(struct both *b, uint32_t me, uint32_t call)
{
    static const struct {
        const char *module, *kernel;
        bool sums;
        uint32_t threads, units;
    } ways[] = {{"tiles", "tiles_move_16", false, 512, 0},       {"tiles_fast", "tiles_float32_sum_2", true, 512, 0},
                {"lines", "lines_move_16", false, 128, 2},       {"lines", "lines_float32_sum_16", true, 128, 2},
                {"sentinel", "sentinel_move_16", false, 128, 2}, {"sentinel", "sentinel_float32_sum_16", true, 128, 2}};
    const size_t way = call % TUTTI_ARRAY_LEN(ways);
    const bool sums = ways[way].sums, odd = call % 4 > 1;
    const uint64_t bytes = (ways[way].units ? SLOT : BYTES) - (odd ? 4 : 0);
    struct gpu_exchange x = {.call = {.n = 2, .me = me, .seq = call, .layout = b->layout, .op = TUTTI_SUM}};
    x.call.control = &b->control[me];
    x.in = (const char *)b->in[me] + (odd ? 4 : 0), x.out = (char *)b->out[me];
    for (uint32_t q = 0; q < 2; q++) {
        x.call.base[q] = b->scratch[q];
        x.send[q] = (struct gpu_part){0, bytes};
        x.recv[q] = (struct gpu_part){sums ? 0 : q * (uint64_t)BYTES, bytes};
    }
    x.result_bytes = sums ? bytes : 0, x.units = ways[way].units;
    opencl_run(cl, opencl_kernel(cl, ways[way].module, ways[way].kernel), 1, ways[way].threads, &x, sizeof x);
    assert_int_equal(b->control[me].stop, 0);
    for (uint32_t q = 0; q < 2 && !sums; q++)
        assert_memory_equal(b->out[me] + q * BYTES, b->in[q] + (odd ? 4 : 0), bytes);
    if (!sums) return;
    static unsigned char sum[BYTES];
    ref_hop(TUTTI_FLOAT32, TUTTI_SUM, sum, b->in[0] + (odd ? 4 : 0), b->in[1] + (odd ? 4 : 0), bytes / 4);
    assert_true(ref_equal(TUTTI_FLOAT32, b->out[me], sum, bytes / 4, NULL));
}

static struct both *both_make(void)
{
    struct both *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(b, MAP_FAILED);
    rig_lay_out(&(struct rig_shape){.n = 2,
                                    .n_blocks = 1,
                                    .line_bytes = SLOT,
                                    .sentinel_bytes = SLOT,
                                    .tile_bytes = GPU_LEAST_TILE,
                                    .n_tiles = 2},
                &b->layout);
    for (uint32_t r = 0; r < 2; r++) {
        b->scratch[r] = mmap(NULL, b->layout.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(b->scratch[r], MAP_FAILED);
        memset(b->scratch[r], 0xff, b->layout.lines); /* sentinels come first */
        ref_fill(TUTTI_FLOAT32, REF_FINITE, seed++, b->in[r], BYTES / 4);
    }
    return b;
}

/* The run time is loaded in each of them, after the fork. */
static void run_rank(struct both *b, uint32_t me)
{
    const char *why;
    alarm(300);
    cl = opencl_open(&why);
    if (!cl) exit(SKIPPED);
    for (uint32_t call = 0; call < CALLS; call++) exchange(b, me, call);
    exit(0);
}

static void test_two_processes(void **state)
{
    struct both *b = *state;
    int status[2];
    pid_t child[2];
    for (uint32_t r = 0; r < 2; r++) {
        child[r] = fork();
        assert_true(child[r] >= 0);
        if (child[r] == 0) run_rank(b, r);
    }
    for (uint32_t r = 0; r < 2; r++) assert_int_equal(waitpid(child[r], &status[r], 0), child[r]);
    for (uint32_t r = 0; r < 2; r++) assert_true(WIFEXITED(status[r]) && WEXITSTATUS(status[r]) == 0);
}

static int make(void **state)
{
    *state = both_make();
    return 0;
}

/* The first argument: which half; the one forks before the run time is loaded, the other one is for the parent. */
int main(int argc, char **argv)
{
    const struct CMUnitTest folds[] = {cmocka_unit_test(test_folds), cmocka_unit_test(test_fast_folds),
                                       cmocka_unit_test(test_other_jobs)};
    const struct CMUnitTest processes[] = {cmocka_unit_test_setup(test_two_processes, make)};
    const char *why;
    seed = test_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    if (argc > 1 && strcmp(argv[1], "processes") == 0) return cmocka_run_group_tests(processes, NULL, NULL);
    cl = opencl_open(&why);
    if (!cl) {
        printf("skipped: %s\n", why);
        return SKIPPED;
    }
    printf("on %s\n", opencl_name(cl));
    return cmocka_run_group_tests(folds, NULL, NULL);
}
