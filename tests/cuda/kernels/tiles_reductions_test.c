/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels of tiles that reduce: every kind of reduction, type and operation, through rings that are smaller than the
 * messages, against the reference; what is around the results stays as it was. */
#include "tiles_test.h"

#include "reference.h"

enum kind { ALL_REDUCE, REDUCE_SCATTER, REDUCE, SCAN, EXSCAN, N_KINDS };
static const char *const kind_names[] = {"all_reduce", "reduce_scatter", "reduce", "scan", "exscan"};

struct reduction {
    enum kind kind;
    enum tutti_dtype dtype;
    enum tutti_op op;
    size_t count; /* elements; of reduce_scatter: of rank 0's block */
    bool exact;   /* data whose reduction is the same in any order */
};

/* Elements of rank r's result, where they begin in the input, and who contributes. */
static size_t result_count(const struct reduction *f, uint32_t r)
{
    if (f->kind == REDUCE && r != 1) return 0;
    if (f->kind == EXSCAN && r == 0) return 0;
    return f->kind == REDUCE_SCATTER ? f->count + r % 3 * 11 : f->count;
}
static size_t result_from(const struct reduction *f, uint32_t r)
{
    size_t from = 0;
    for (uint32_t q = 0; f->kind == REDUCE_SCATTER && q < r; q++) from += result_count(f, q);
    return from;
}
static bool contributes(const struct reduction *f, uint32_t q, uint32_t r)
{
    return f->kind == SCAN ? q <= r : f->kind == EXSCAN ? q < r : true;
}

static const unsigned char *factor_of(const struct reduction *f)
{
    static unsigned char factor[16];
    const double two = 2;
    memset(factor, 0, sizeof factor);
    if (f->dtype == TUTTI_COMPLEX64)
        ref_encode(TUTTI_FLOAT32, two, factor);
    else if (f->dtype == TUTTI_COMPLEX128)
        ref_encode(TUTTI_FLOAT64, two, factor);
    else if (f->dtype < TUTTI_BOOL)
        factor[0] = 2;
    else
        ref_encode(f->dtype, two, factor);
    return factor;
}

static void lay_reduction(struct scene *s, const struct reduction *f)
{
    const uint32_t n = s->rig->n;
    const size_t size = ref_bytes(f->dtype),
                 all = result_from(f, n - 1) + result_count(f, f->kind == REDUCE ? 1 : n - 1);
    for (uint32_t r = 0; r < n; r++) {
        s->in_bytes[r] = all * size;
        s->out_bytes[r] = s->in_place ? s->in_bytes[r] : result_count(f, r) * size;
    }
    scene_open(s);
    for (uint32_t r = 0; r < n; r++) {
        struct gpu_exchange *x = &s->x[r];
        for (uint32_t q = 0; q < n; q++) {
            const uint64_t at = result_from(f, q) * size, bytes = result_count(f, q) * size;
            x->send[q] = (struct gpu_part){at, contributes(f, r, q) ? bytes : 0};
            x->recv[q] = (struct gpu_part){0, contributes(f, q, r) ? result_count(f, r) * size : 0};
        }
        x->recv[r].at = s->in_place ? result_from(f, r) * size : 0;
        x->result_bytes = result_count(f, r) * size;
        x->call.op = f->op;
        x->call.scales = f->op == TUTTI_PREMUL_SUM;
        if (x->call.scales) memcpy(x->call.factor, factor_of(f), 16);
    }
}

static void fill_reduction(struct scene *s, const struct reduction *f)
{
    const uint64_t data = tutti_random64(&seed);
    const size_t n = s->in_bytes[0] / ref_bytes(f->dtype);
    for (uint32_t r = 0; r < s->rig->n; r++) {
        unsigned char *to = s->in_place ? want_of(s, r) : in_of(s, r);
        if (f->exact)
            ref_fill_exact(f->dtype, f->op, data, r, s->rig->n, to, n);
        else
            ref_fill(f->dtype, REF_FINITE, data + r, to, n);
    }
    scene_upload(s);
}

/* Exact data: the result has to be the reference's. Else it has to be close, and what is around it as it was. */
static void check_reduction(struct scene *s, const struct reduction *f)
{
    const size_t size = ref_bytes(f->dtype);
    for (uint32_t r = 0; r < s->rig->n; r++) {
        const void *inputs[GPU_MAX_RANKS];
        size_t n_inputs = 0, where, n = result_count(f, r);
        for (uint32_t q = 0; q < s->rig->n; q++) {
            if (contributes(f, q, r)) inputs[n_inputs++] = in_of(s, q) + result_from(f, r) * size;
        }
        if (n == 0 || n_inputs == 0) continue;
        unsigned char *want = want_of(s, r) + s->x[r].recv[r].at;
        const char *result = s->x[r].out + s->x[r].recv[r].at;
        if (f->exact) {
            void *at_odds = malloc(n * size); /* the reference wants whole alignment */
            assert_non_null(at_odds);
            ref_reduce(f->dtype, f->op, inputs, n_inputs, n, factor_of(f), at_odds);
            memcpy(want, at_odds, n * size);
            free(at_odds);
            continue;
        }
        rig_copy(s->rig, r, want, result, n * size);
        if (!ref_close(f->dtype, f->op, inputs, n_inputs, n, factor_of(f), want, &where))
            fail_msg("%s of %s, %s, %u ranks: element %zu of rank %u's %zu", kind_names[f->kind],
                     tutti_dtype_name(f->dtype), tutti_op_name(f->op), s->rig->n, where, r, n);
    }
    scene_check(s);
}

static void reduce(struct rig *rig, const struct reduction *f, const char *kernel, bool in_place)
{
    const uint32_t grain = (uint32_t)ref_bytes(f->dtype);
    struct scene s = {.rig = rig,
                      .in_skew = (uint32_t)below(16) / grain * grain,
                      .out_skew = (uint32_t)below(16) / grain * grain,
                      .in_place = in_place,
                      .name = kernel};
    if (f->kind == REDUCE && rig->n == 1) return;
    lay_reduction(&s, f);
    for (uint32_t r = 0; r < rig->n; r++) {
        uint32_t contributors = 0;
        for (uint32_t q = 0; q < rig->n; q++) contributors += contributes(f, q, r);
        s.x[r].call.divisor = f->op == TUTTI_AVG ? contributors : 0;
    }
    fill_reduction(&s, f);
    scene_launch(&s, kernel);
    rig_sync(rig);
    check_reduction(&s, f);
    scene_close(&s);
}

static void test_fast_sums(void **state)
{
    (void)state;
    static const struct {
        enum tutti_dtype dtype;
        const char *kernel;
    } fast[] = {{TUTTI_FLOAT32, "float32_sum"}, {TUTTI_FLOAT16, "float16_sum"}, {TUTTI_BFLOAT16, "bfloat16_sum"}};
    static const enum tutti_op ops[] = {TUTTI_SUM, TUTTI_AVG, TUTTI_PREMUL_SUM};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(shapes); i++) {
        struct rig rig;
        open_shape(&rig, i);
        for (size_t k = 0; k < N_KINDS * TUTTI_ARRAY_LEN(fast); k++) {
            const size_t t = (i + k) % TUTTI_ARRAY_LEN(fast);
            struct reduction f = {.kind = (enum kind)(k % N_KINDS),
                                  .dtype = fast[t].dtype,
                                  .op = ops[below(TUTTI_ARRAY_LEN(ops))],
                                  .count = 1 + below(10 * TILE) / ref_bytes(fast[t].dtype),
                                  .exact = k % 2 == 0};
            if (!is_left_out()) reduce(&rig, &f, fast[t].kernel, k % 3 == 0);
        }
        rig_close(&rig);
    }
}

static void test_every_type_and_operation(void **state)
{
    (void)state;
    struct rig rig;
    open_shape(&rig, 3);
    for (int t = 0; t < TUTTI_N_DTYPES; t++) {
        for (int op = 0; op < TUTTI_N_OPS; op++) {
            struct reduction f = {.kind = (enum kind)below(N_KINDS),
                                  .dtype = (enum tutti_dtype)t,
                                  .op = (enum tutti_op)op,
                                  .exact = true};
            f.count = 1 + below(3 * TILE) / ref_bytes(f.dtype);
            if (ref_defined(f.dtype, f.op) && !is_left_out()) reduce(&rig, &f, tutti_dtype_name(f.dtype), below(2));
        }
    }
    rig_close(&rig);
}

int main(void)
{
    seed = rig_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fast_sums),
        cmocka_unit_test(test_every_type_and_operation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
