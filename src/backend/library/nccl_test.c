/* SPDX-License-Identifier: BSD-3-Clause */
/* NCCL without a GPU: why it is not there, as a sentence; and what it is asked for: nothing whose result would be
 * another than tutti's. */

#include "test.h"

#include "backend/library/nccl.h"

#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a process of its own finds, since the library is opened once: 0, or the step that went otherwise. */
static int looks_for(const char *named, const char *sentence)
{
    for (int twice = 0; twice < 2; twice++) {
        if (nccl_library(named)) return 1;
        if (tutti_last_error()->status != TUTTI_ERR_UNSUPPORTED) return 2;
        if (!strstr(tutti_last_error()->text, sentence)) return 3;
    }
    return 0;
}

static void check_absence(const char *named, const char *sentence)
{
    int status = -1;
    const pid_t child = fork();
    if (child == 0) _exit(looks_for(named, sentence));
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_absence_is_a_sentence(void **state)
{
    (void)state;
    check_absence("/no/such/libnccl.so", "there is no NCCL here: /no/such/libnccl.so: cannot open");
    check_absence("libc.so.6", "libc.so.6 is no NCCL of 2.18 or later: it has no ncclGetVersion");
}

static double score(enum tutti_kind kind, enum tutti_dtype dtype, int32_t op, uint32_t n, size_t count)
{
    const struct nccl_backend b = {.base.ops = &tutti_backend_nccl, .watched.n = n};
    const struct tutti_backend_call call = {
        .info = {.kind = kind, .dtype = dtype, .op = op, .count = count, .root = -1},
        .bind = {.count = count, .dtype = dtype},
    };
    return tutti_backend_nccl.score(&b.base, &call);
}

static bool can_among(uint32_t n, enum tutti_kind kind, enum tutti_dtype dtype, int32_t op)
{
    return score(kind, dtype, op, n, 100) < HUGE_VAL;
}

static bool can(enum tutti_kind kind, enum tutti_dtype dtype, int32_t op)
{
    return can_among(2, kind, dtype, op);
}

static void test_everything_is_moved(void **state)
{
    (void)state;
    static const enum tutti_kind moves[] = {TUTTI_BROADCAST, TUTTI_ALL_GATHER, TUTTI_GATHER, TUTTI_SCATTER,
                                            TUTTI_ALL_TO_ALL};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(moves); i++)
        for (uint32_t dtype = 0; dtype < TUTTI_N_DTYPES; dtype++) assert_true(can(moves[i], dtype, -1));
}

/* Written out apart from the table that decides: what NCCL documents, less where it means something else. */
static bool means_the_same(enum tutti_dtype dtype, enum tutti_op op)
{
    const char *name = tutti_dtype_name(dtype);
    const bool small = strstr(name, "float8") != NULL, complex = strncmp(name, "complex", 7) == 0;
    const bool floats = strstr(name, "float") != NULL, integer = strstr(name, "int") != NULL;
    if (small || strcmp(name, "bool") == 0 || strstr(name, "int16")) return false;
    switch (op) {
    case TUTTI_SUM:
        return true;
    case TUTTI_PROD:
        return !complex;
    case TUTTI_MIN:
    case TUTTI_MAX:
        return integer; /* NaN would be dropped */
    case TUTTI_AVG:
        return floats || complex;
    case TUTTI_PREMUL_SUM:
        return floats;
    default:
        return false;
    }
}

static void test_reductions_mean_the_same_or_are_refused(void **state)
{
    (void)state;
    static const enum tutti_kind reduces[] = {TUTTI_ALL_REDUCE, TUTTI_REDUCE, TUTTI_REDUCE_SCATTER};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(reduces); i++)
        for (uint32_t dtype = 0; dtype < TUTTI_N_DTYPES; dtype++)
            for (uint32_t op = 0; op < TUTTI_N_OPS + 2; op++) /* and handles of users */
                assert_int_equal(can(reduces[i], dtype, (int32_t)op),
                                 op < TUTTI_N_OPS && means_the_same(dtype, (enum tutti_op)op));
}

static void test_what_it_lacks_is_refused(void **state)
{
    (void)state;
    assert_false(can(TUTTI_SCAN, TUTTI_FLOAT32, TUTTI_SUM));
    assert_false(can(TUTTI_EXSCAN, TUTTI_FLOAT32, TUTTI_SUM));
    assert_false(can(TUTTI_BARRIER, TUTTI_UINT8, -1));
}

static void test_alone_nothing_is_scaled(void **state)
{
    (void)state;
    for (uint32_t dtype = 0; dtype < TUTTI_N_DTYPES; dtype++)
        for (uint32_t op = 0; op < TUTTI_N_OPS; op++)
            assert_int_equal(can_among(1, TUTTI_ALL_REDUCE, dtype, (int32_t)op),
                             op != TUTTI_PREMUL_SUM && means_the_same(dtype, (enum tutti_op)op));
}

static void test_more_takes_longer(void **state)
{
    (void)state;
    for (size_t count = 1; count < (size_t)1 << 28; count *= 4)
        for (uint32_t n = 2; n < 16; n++) {
            const double ns = score(TUTTI_ALL_REDUCE, TUTTI_FLOAT32, TUTTI_SUM, n, count);
            assert_true(ns > 0 && ns < score(TUTTI_ALL_REDUCE, TUTTI_FLOAT32, TUTTI_SUM, n, 4 * count));
            assert_true(score(TUTTI_ALL_GATHER, TUTTI_FLOAT32, -1, n, count) <
                        score(TUTTI_ALL_GATHER, TUTTI_FLOAT32, -1, n + 1, count));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_absence_is_a_sentence),
        cmocka_unit_test(test_everything_is_moved),
        cmocka_unit_test(test_reductions_mean_the_same_or_are_refused),
        cmocka_unit_test(test_what_it_lacks_is_refused),
        cmocka_unit_test(test_alone_nothing_is_scaled),
        cmocka_unit_test(test_more_takes_longer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
