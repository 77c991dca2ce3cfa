/* SPDX-License-Identifier: BSD-3-Clause */

/* Every kernel of every instruction set that this machine has, against the reference; and the instruction sets against
 * one another, bit for bit. */

#include "device/cpu/cpu.h"
#include "reference.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_N 4133
#define GUARD 64

static const struct isa {
    const char *name;
    const struct tutti_cpu_kernels *kernels;
} isas[] = {
    {"scalar", &tutti_cpu_scalar},
#if defined(__x86_64__)
    {"avx2", &tutti_cpu_avx2},
    {"avx512", &tutti_cpu_avx512},
#elif defined(__aarch64__)
    {"neon", &tutti_cpu_neon},
#endif
};

/* The n-th instruction set that works here, NULL after the last. */
static const struct isa *isa_at(size_t n)
{
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(isas); i++)
        if (tutti_reduce_find(TUTTI_UINT8, TUTTI_SUM, isas[i].name) == isas[i].kernels->reduce[TUTTI_UINT8][TUTTI_SUM])
            if (n-- == 0) return &isas[i];
    return NULL;
}

static const size_t sizes[] = {0, 1, 2, 3, 5, 8, 15, 16, 31, 32, 33, 61, 64, 65, 127, 257, 1009, MAX_N};

#define BUFFER (MAX_N * 16 + 2 * GUARD + 64)
static unsigned char space_dst[BUFFER], space_left[BUFFER], space_right[BUFFER], wanted[BUFFER], saved[BUFFER];

/* Every NaN that a kernel computes is the one positive quiet one. */
static bool nans_are_canonical(enum tutti_dtype dtype, const void *got, const void *want, size_t n)
{
    enum tutti_dtype part = dtype;
    if (dtype == TUTTI_COMPLEX64) part = TUTTI_FLOAT32;
    if (dtype == TUTTI_COMPLEX128) part = TUTTI_FLOAT64;
    if (part < TUTTI_FLOAT8_E4M3FN) return true;
    const size_t bytes = ref_bytes(part);
    unsigned char canonical[8];
    ref_encode(part, NAN, canonical);
    for (size_t i = 0; i < n * ref_bytes(dtype); i += bytes)
        if (isnan(ref_decode(part, (const unsigned char *)want + i)) &&
            memcmp((const unsigned char *)got + i, canonical, bytes) != 0)
            return false;
    return true;
}

static void expect_equal(enum tutti_dtype dtype, const char *what, const char *isa, const void *got, const void *want,
                         size_t n)
{
    size_t where = 0;
    if (!ref_equal(dtype, got, want, n, &where)) {
        char a[96], b[96];
        ref_print(dtype, (const unsigned char *)got + where * ref_bytes(dtype), a, sizeof a);
        ref_print(dtype, (const unsigned char *)want + where * ref_bytes(dtype), b, sizeof b);
        fail_msg("%s %s on %s: element %zu of %zu is %s, not %s (seed %llu)", isa, what, tutti_dtype_name(dtype), where,
                 n, a, b, (unsigned long long)test_seed());
    }
    if (!nans_are_canonical(dtype, got, want, n))
        fail_msg("%s %s on %s: a NaN is not the canonical one", isa, what, tutti_dtype_name(dtype));
}

static void expect_guards(const unsigned char *dst, size_t bytes, const char *isa)
{
    for (size_t i = 0; i < GUARD; i++)
        if (dst[-1 - (ptrdiff_t)i] != 0xa5 || dst[bytes + i] != 0xa5)
            fail_msg("%s wrote outside of %zu bytes", isa, bytes);
}

/* One call: placement 0 elsewhere, 1 into left, 2 into right. */
static void check_reduce(const struct isa *isa, enum tutti_dtype dtype, enum tutti_op op, size_t n,
                         enum ref_values values, unsigned variant)
{
    const size_t bytes = n * ref_bytes(dtype), placement = variant % 3;
    unsigned char *left = space_left + GUARD + variant / 3 % 4, *right = space_right + GUARD + variant / 5 % 8;
    unsigned char *dst = space_dst + GUARD + variant / 7 % 16;
    memset(space_dst, 0xa5, sizeof space_dst);
    memset(space_left, 0xa5, sizeof space_left);
    memset(space_right, 0xa5, sizeof space_right);
    ref_fill(dtype, values, test_seed() + variant, left, n);
    ref_fill(dtype, values, test_seed() + variant + 1, right, n);
    if (placement == 1) dst = left;
    if (placement == 2) dst = right;
    ref_hop(dtype, op, wanted, left, right, n);
    isa->kernels->reduce[dtype][op](dst, left, right, n);
    expect_equal(dtype, tutti_op_name(op), isa->name, dst, wanted, n);
    expect_guards(dst, bytes, isa->name);
}

static void test_every_pair(void **state)
{
    (void)state;
    unsigned variant = 0;
    const struct isa *isa;
    for (size_t i = 0; (isa = isa_at(i)); i++)
        for (int dtype = 0; dtype < TUTTI_N_DTYPES; dtype++)
            for (int op = 0; op < TUTTI_N_OPS; op++) {
                if (!ref_defined(dtype, op)) continue;
                for (int values = REF_BITS; values <= REF_EDGES; values++)
                    for (size_t k = 0; k < TUTTI_ARRAY_LEN(sizes); k++)
                        check_reduce(isa, dtype, op, sizes[k], values, variant++);
            }
}

/* 8-bit types: every value with every value. */
static void test_all_pairs_of_bytes(void **state)
{
    (void)state;
    static unsigned char left[65536], right[65536], got[65536], want[65536];
    for (size_t i = 0; i < 65536; i++) left[i] = (unsigned char)(i >> 8), right[i] = (unsigned char)i;
    for (enum tutti_dtype dtype = 0; dtype < TUTTI_N_DTYPES; dtype++)
        for (int op = 0; op < TUTTI_N_OPS; op++) {
            if (ref_bytes(dtype) != 1 || !ref_defined(dtype, op)) continue;
            ref_hop(dtype, op, want, left, right, 65536);
            const struct isa *isa;
            for (size_t i = 0; (isa = isa_at(i)); i++) {
                isa->kernels->reduce[dtype][op](got, left, right, 65536);
                expect_equal(dtype, tutti_op_name(op), isa->name, got, want, 65536);
            }
        }
}

/* 16-bit floats: every value, to float32 and back, and with quotients that fall between two of them. */
static void test_all_halves(void **state)
{
    (void)state;
    static const uint32_t divisors[] = {1, 2, 3, 7, 1023, 4097, 16777215};
    static const enum tutti_dtype dtypes[] = {TUTTI_FLOAT16, TUTTI_BFLOAT16};
    static uint16_t in[65536], other[65536], got[65536], want[65536];
    for (size_t i = 0; i < 65536; i++) in[i] = (uint16_t)i;
    for (size_t d = 0; d < TUTTI_ARRAY_LEN(dtypes); d++) {
        const struct isa *isa;
        for (size_t i = 0; (isa = isa_at(i)); i++) {
            for (size_t k = 0; k < TUTTI_ARRAY_LEN(divisors); k++) {
                memcpy(want, in, sizeof in);
                ref_divide(dtypes[d], want, 65536, divisors[k]);
                isa->kernels->divide[dtypes[d]](got, in, 65536, divisors[k]);
                expect_equal(dtypes[d], "division", isa->name, got, want, 65536);
            }
            for (int op = TUTTI_SUM; op <= TUTTI_PROD; op++) {
                ref_fill(dtypes[d], REF_BITS, test_seed() + i, other, 65536);
                ref_hop(dtypes[d], op, want, in, other, 65536);
                isa->kernels->reduce[dtypes[d]][op](got, in, other, 65536);
                expect_equal(dtypes[d], tutti_op_name(op), isa->name, got, want, 65536);
            }
        }
    }
}

/* Equal bits on every instruction set and in either order of the operands, NaN included. */
static void test_sets_agree_and_commute(void **state)
{
    (void)state;
    const size_t n = MAX_N;
    for (int dtype = 0; dtype < TUTTI_N_DTYPES; dtype++)
        for (int op = 0; op < TUTTI_N_OPS; op++) {
            if (!ref_defined(dtype, op)) continue;
            for (int values = REF_BITS; values <= REF_EDGES; values++) {
                const struct isa *isa;
                ref_fill(dtype, values, test_seed() + 11, space_left, n);
                ref_fill(dtype, values, test_seed() + 12, space_right, n);
                tutti_cpu_scalar.reduce[dtype][op](saved, space_left, space_right, n);
                for (size_t i = 0; (isa = isa_at(i)); i++) {
                    isa->kernels->reduce[dtype][op](space_dst, space_left, space_right, n);
                    if (memcmp(space_dst, saved, n * ref_bytes(dtype)) != 0)
                        fail_msg("%s and scalar differ: %s on %s", isa->name, tutti_op_name(op),
                                 tutti_dtype_name(dtype));
                    isa->kernels->reduce[dtype][op](space_dst, space_right, space_left, n);
                    if (memcmp(space_dst, saved, n * ref_bytes(dtype)) != 0)
                        fail_msg("%s: %s on %s does not commute", isa->name, tutti_op_name(op),
                                 tutti_dtype_name(dtype));
                }
            }
        }
}

static void test_divide(void **state)
{
    (void)state;
    static const uint32_t divisors[] = {1, 2, 3, 7, 127, 128, 255, 65536, 2147483648u, UINT32_MAX};
    unsigned variant = 0;
    const struct isa *isa;
    for (size_t i = 0; (isa = isa_at(i)); i++)
        for (int dtype = 0; dtype < TUTTI_N_DTYPES; dtype++) {
            if (dtype == TUTTI_BOOL) continue;
            for (size_t d = 0; d < TUTTI_ARRAY_LEN(divisors); d++) {
                if (tutti_dtypes[dtype].class == TUTTI_SMALL_FLOAT && divisors[d] >> TUTTI_DIVISOR_SHIFT) continue;
                for (size_t k = 0; k < TUTTI_ARRAY_LEN(sizes) - 1; k++, variant++) {
                    const size_t n = sizes[k];
                    unsigned char *src = space_left + GUARD + variant % 8, *dst = space_dst + GUARD + variant % 5;
                    memset(space_dst, 0xa5, sizeof space_dst);
                    memset(space_left, 0xa5, sizeof space_left);
                    ref_fill(dtype, variant % 3, test_seed() + variant, src, n);
                    memcpy(wanted, src, n * ref_bytes(dtype));
                    ref_divide(dtype, wanted, n, divisors[d]);
                    if (variant % 2) dst = src;
                    isa->kernels->divide[dtype](dst, src, n, divisors[d]);
                    expect_equal(dtype, "division", isa->name, dst, wanted, n);
                    expect_guards(dst, n * ref_bytes(dtype), isa->name);
                }
            }
        }
}

static void test_scale(void **state)
{
    (void)state;
    unsigned variant = 0;
    const struct isa *isa;
    for (size_t i = 0; (isa = isa_at(i)); i++)
        for (int dtype = 0; dtype < TUTTI_N_DTYPES; dtype++) {
            if (dtype == TUTTI_BOOL) continue;
            for (int values = REF_BITS; values <= REF_EDGES; values++)
                for (size_t k = 0; k < TUTTI_ARRAY_LEN(sizes); k++, variant++) {
                    const size_t n = sizes[k];
                    unsigned char factor[16], *src = space_left + GUARD + variant % 8;
                    unsigned char *dst = variant % 2 ? src : space_dst + GUARD + variant % 5;
                    memset(space_dst, 0xa5, sizeof space_dst);
                    memset(space_left, 0xa5, sizeof space_left);
                    ref_fill(dtype, values, test_seed() + variant, src, n);
                    ref_fill(dtype, values, test_seed() - variant, factor, 1);
                    memcpy(wanted, src, n * ref_bytes(dtype));
                    ref_scale(dtype, wanted, n, factor);
                    isa->kernels->scale[dtype](dst, src, n, factor);
                    expect_equal(dtype, "scaling", isa->name, dst, wanted, n);
                    expect_guards(dst, n * ref_bytes(dtype), isa->name);
                }
        }
}

/* What PyTorch 2 prints for these, written down: an anchor outside both the kernels and the reference. */
static void test_known_values(void **state)
{
    (void)state;
    static const struct {
        enum tutti_dtype dtype;
        enum tutti_op op;
        uint16_t left, right, want;
    } cases[] = {
        {TUTTI_FLOAT8_E4M3FN, TUTTI_SUM, 0x7e, 0x58, 0x7e},  /* 448 + 16 = 464 is a tie: to even, 448 */
        {TUTTI_FLOAT8_E4M3FN, TUTTI_SUM, 0x7e, 0x60, 0x7f},  /* 448 + 32 = 480: no infinity, NaN */
        {TUTTI_FLOAT8_E4M3FN, TUTTI_PROD, 0x01, 0x30, 0x00}, /* 2^-9 * 0.5 is a tie: to even, 0 */
        {TUTTI_FLOAT8_E4M3FN, TUTTI_PROD, 0x03, 0x30, 0x02}, /* 3 * 2^-10 is a tie: to even */
        {TUTTI_FLOAT8_E5M2, TUTTI_SUM, 0x7b, 0x6c, 0x7c},    /* 57344 + 4096 is a tie: to even, infinity */
        {TUTTI_FLOAT8_E5M2, TUTTI_SUM, 0x7b, 0x68, 0x7b},    /* 57344 + 2048 */
        {TUTTI_FLOAT8_E5M2, TUTTI_SUM, 0x7c, 0xfc, 0x7f},    /* inf - inf */
        {TUTTI_FLOAT16, TUTTI_SUM, 0x7bff, 0x4c00, 0x7c00},  /* 65504 + 16 = 65520: infinity */
        {TUTTI_FLOAT16, TUTTI_SUM, 0x7bff, 0x4b80, 0x7bff},  /* 65504 + 15 */
        {TUTTI_FLOAT16, TUTTI_SUM, 0x6800, 0x3c00, 0x6800},  /* 2048 + 1 is a tie */
        {TUTTI_FLOAT16, TUTTI_SUM, 0x6801, 0x3c00, 0x6802},  /* 2050 + 1 is a tie */
        {TUTTI_FLOAT16, TUTTI_PROD, 0x0001, 0x3801, 0x0001}, /* just above half the least subnormal */
        {TUTTI_FLOAT16, TUTTI_MIN, 0x0000, 0x8000, 0x8000},  /* -0 is below +0 */
        {TUTTI_FLOAT16, TUTTI_MAX, 0x7c00, 0xfe01, 0x7e00},  /* NaN wins over infinity */
        {TUTTI_BFLOAT16, TUTTI_SUM, 0x7f7f, 0x7f7f, 0x7f80}, /* twice the greatest */
        {TUTTI_BFLOAT16, TUTTI_SUM, 0x4380, 0x3f80, 0x4380}, /* 256 + 1 is a tie */
        {TUTTI_BFLOAT16, TUTTI_SUM, 0x4381, 0x3f80, 0x4382}, /* 258 + 1 is a tie */
        {TUTTI_INT8, TUTTI_SUM, 0x7f, 0x01, 0x80},           /* wraps */
        {TUTTI_INT16, TUTTI_PROD, 0x4000, 0x0002, 0x8000},   /* wraps */
        {TUTTI_INT8, TUTTI_MIN, 0x80, 0x7f, 0x80},           /* signed */
        {TUTTI_UINT8, TUTTI_MIN, 0x80, 0x7f, 0x7f},          /* unsigned */
        {TUTTI_BOOL, TUTTI_SUM, 0x02, 0x00, 0x01},           /* any byte but 0 is true and becomes 1 */
        {TUTTI_BOOL, TUTTI_BXOR, 0x02, 0x80, 0x00},          {TUTTI_BOOL, TUTTI_PROD, 0x02, 0xff, 0x01},
    };
    for (size_t c = 0; c < TUTTI_ARRAY_LEN(cases); c++) {
        const struct isa *isa;
        const size_t bytes = ref_bytes(cases[c].dtype);
        for (size_t i = 0; (isa = isa_at(i)); i++) {
            uint16_t got = 0;
            isa->kernels->reduce[cases[c].dtype][cases[c].op](&got, &cases[c].left, &cases[c].right, 1);
            if (memcmp(&got, &cases[c].want, bytes) != 0)
                fail_msg("%s: case %zu, %s on %s: %#x, not %#x", isa->name, c, tutti_op_name(cases[c].op),
                         tutti_dtype_name(cases[c].dtype), got, cases[c].want);
        }
    }
}

static void test_average_truncates(void **state)
{
    (void)state;
    int8_t small[] = {-7, 7, -1, -128};
    const int8_t small_want[] = {-3, 3, 0, -64};
    int64_t big[] = {INT64_MIN, INT64_MAX, -3};
    const int64_t big_want[] = {INT64_MIN / 2, INT64_MAX / 2, -1};
    tutti_divide_find(TUTTI_INT8)(small, small, 4, 2);
    tutti_divide_find(TUTTI_INT64)(big, big, 3, 2);
    assert_memory_equal(small, small_want, sizeof small);
    assert_memory_equal(big, big_want, sizeof big);
}

static void test_table_and_refusals(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < TUTTI_N_DTYPES; dtype++) {
        for (int op = 0; op < TUTTI_N_OPS; op++) {
            const char *refusal = tutti_reduce_refusal(dtype, op);
            char want[96];
            snprintf(want, sizeof want, "%s is not defined on %s", tutti_op_name(op), tutti_dtype_name(dtype));
            assert_int_equal(ref_defined(dtype, op), refusal == NULL);
            assert_int_equal(ref_defined(dtype, op), tutti_reduce_find(dtype, op, "auto") != NULL);
            for (size_t i = 0; i < TUTTI_ARRAY_LEN(isas); i++)
                assert_int_equal(ref_defined(dtype, op), isas[i].kernels->reduce[dtype][op] != NULL);
            if (refusal) assert_string_equal(refusal, want);
        }
        assert_int_equal(tutti_divide_find(dtype) != NULL, dtype != TUTTI_BOOL);
        assert_int_equal(tutti_scale_find(dtype) != NULL, dtype != TUTTI_BOOL);
    }
    assert_null(tutti_reduce_find(TUTTI_N_DTYPES, TUTTI_SUM, NULL));
    assert_null(tutti_reduce_find(TUTTI_INT8, TUTTI_N_OPS, NULL));
    assert_null(tutti_divide_find(TUTTI_N_DTYPES));
    assert_null(tutti_scale_find((enum tutti_dtype) - 1));
    assert_non_null(tutti_reduce_refusal(TUTTI_N_DTYPES, TUTTI_SUM));
    assert_non_null(tutti_reduce_refusal(TUTTI_INT8, TUTTI_N_OPS));
}

#ifdef __x86_64__
/* Whether /proc/cpuinfo has the word among the flags. */
static bool kernel_tells(const char *flag)
{
    char line[16384], word[32];
    snprintf(word, sizeof word, " %s ", flag);
    FILE *file = fopen("/proc/cpuinfo", "r");
    bool found = false;
    assert_non_null(file);
    while (!found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = ' ';
        found = strncmp(line, "flags", 5) == 0 && strstr(line, word);
    }
    fclose(file);
    return found;
}
#endif

static void test_choice_of_set(void **state)
{
    (void)state;
    const tutti_reduce_kernel best = tutti_reduce_find(TUTTI_FLOAT32, TUTTI_SUM, "auto");
    assert_true(best == tutti_reduce_find(TUTTI_FLOAT32, TUTTI_SUM, NULL));
    assert_true(best == tutti_reduce_find(TUTTI_FLOAT32, TUTTI_SUM, "no such set"));
    assert_true(best == tutti_reduce_find(TUTTI_FLOAT32, TUTTI_SUM, tutti_reduce_isa()));
    assert_true(tutti_reduce_find(TUTTI_FLOAT32, TUTTI_SUM, "scalar") ==
                tutti_cpu_scalar.reduce[TUTTI_FLOAT32][TUTTI_SUM]);
#ifdef __x86_64__
    const bool avx2 = kernel_tells("avx2") && kernel_tells("f16c");
    const bool avx512 = avx2 && kernel_tells("avx512f") && kernel_tells("avx512bw") && kernel_tells("avx512dq") &&
                        kernel_tells("avx512vl");
    assert_string_equal(tutti_reduce_isa(), avx512 ? "avx512" : avx2 ? "avx2" : "scalar");
#endif
}

static void test_factors(void **state)
{
    (void)state;
    static const double values[] = {0,      1,   -1,  0.5,  -2,   3,     0.1, 100.7,
                                    -100.7, 448, 1e6, -1e6, 1e30, -1e30, NAN, INFINITY};
    for (size_t v = 0; v < TUTTI_ARRAY_LEN(values); v++) {
        const double value = values[v];
        unsigned char got[16], want[16] = {0};
        for (int dtype = TUTTI_FLOAT8_E4M3FN; dtype < TUTTI_N_DTYPES; dtype++) {
            const enum tutti_dtype part = dtype == TUTTI_COMPLEX64    ? TUTTI_FLOAT32
                                          : dtype == TUTTI_COMPLEX128 ? TUTTI_FLOAT64
                                                                      : (enum tutti_dtype)dtype;
            memset(want, 0, sizeof want); /* the imaginary part */
            ref_encode(part, value, want);
            tutti_factor_encode(dtype, value, got);
            assert_true(ref_equal(dtype, got, want, 1, NULL));
        }
        int8_t i8;
        uint16_t u16;
        int64_t i64;
        uint64_t u64;
        tutti_factor_encode(TUTTI_INT8, value, &i8);
        tutti_factor_encode(TUTTI_UINT16, value, &u16);
        tutti_factor_encode(TUTTI_INT64, value, &i64);
        tutti_factor_encode(TUTTI_UINT64, value, &u64);
        const double whole = isnan(value) ? 0 : trunc(value);
        assert_int_equal(i8, (int)fmax(INT8_MIN, fmin(INT8_MAX, whole)));
        assert_int_equal(u16, (int)fmax(0, fmin(UINT16_MAX, whole)));
        assert_true(i64 == (whole >= 0x1p63 ? INT64_MAX : whole <= -0x1p63 ? INT64_MIN : (int64_t)whole));
        assert_true(u64 == (whole >= 0x1p64 ? UINT64_MAX : whole <= 0 ? 0 : (uint64_t)whole));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pair),
        cmocka_unit_test(test_all_pairs_of_bytes),
        cmocka_unit_test(test_all_halves),
        cmocka_unit_test(test_sets_agree_and_commute),
        cmocka_unit_test(test_divide),
        cmocka_unit_test(test_scale),
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_average_truncates),
        cmocka_unit_test(test_table_and_refusals),
        cmocka_unit_test(test_choice_of_set),
        cmocka_unit_test(test_factors),
    };
    const struct isa *isa;
    for (size_t i = 0; (isa = isa_at(i)); i++) fprintf(stderr, "instruction set: %s\n", isa->name);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
