/* SPDX-License-Identifier: BSD-3-Clause */
/* NCCL and oneCCL without the libraries: why they are not there, as a sentence; and what they are asked for: nothing
 * whose result would be another than tutti's. */

#include "test.h"

#include "backend/library/nccl.h"
#include "backend/library/oneccl.h"

#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- the two libraries ---- */
static const void *nccl_find(char *named)
{
    return nccl_library(named);
}

static const void *oneccl_find(char *named)
{
    struct tutti_config options = {.text = {[TUTTI_OPT_interface] = (char[]){""}}};
    options.text[TUTTI_OPT_oneccl_library] = named;
    return oneccl_library(&options, false);
}

static double nccl_score(enum tutti_kind kind, enum tutti_dtype dtype, int32_t op, uint32_t n, size_t count)
{
    const struct nccl_backend b = {.l = {.base.ops = &tutti_backend_nccl, .watched.n = n}};
    const struct tutti_backend_call call = {
        .info = {.kind = kind, .dtype = dtype, .op = op, .count = count, .root = -1},
        .bind = {.count = count, .dtype = dtype},
    };
    return tutti_backend_nccl.score(&b.l.base, &call);
}

static bool nccl_takes(enum tutti_kind kind, enum tutti_dtype dtype, int32_t op, uint32_t n)
{
    return nccl_score(kind, dtype, op, n, 100) < HUGE_VAL;
}

static int scatter(const void *in, void *out, size_t count, int type, int root, void *comm, void *stream)
{
    (void)in, (void)out, (void)count, (void)type, (void)root, (void)comm, (void)stream;
    return ONECCL_OK;
}
static const struct oneccl_library old, recent = {.scatter = scatter};

static bool oneccl_takes_of(const struct oneccl_library *library, enum tutti_kind kind, enum tutti_dtype dtype,
                            int32_t op, uint32_t n)
{
    const struct tutti_backend_call call = {
        .info = {.kind = kind, .dtype = dtype, .op = op, .count = 100, .root = -1},
        .bind = {.count = 100, .dtype = dtype},
    };
    return oneccl_can(library, &call, n, false);
}

static bool oneccl_takes(enum tutti_kind kind, enum tutti_dtype dtype, int32_t op, uint32_t n)
{
    return oneccl_takes_of(&recent, kind, dtype, op, n);
}

static const struct maker {
    const void *(*find)(char *named);
    bool (*takes)(enum tutti_kind kind, enum tutti_dtype dtype, int32_t op, uint32_t n);
    const char *absent, *wrong; /* sentences */
    bool gathers, averages;
    uint32_t halves_most; /* ranks among which 16-bit floats are reduced */
} makers[] = {
    {nccl_find, nccl_takes, "there is no NCCL here: /no/such/lib.so: cannot open",
     "libc.so.6 is no NCCL of 2.18 or later: it has no ncclGetVersion", true, true, UINT32_MAX},
    {oneccl_find, oneccl_takes, "there is no oneCCL here: /no/such/lib.so: cannot open",
     "libc.so.6 is no oneCCL of 2022.0 or later: it has no onecclCommInitRank", false, false, 2},
};

/* ---- finding ---- */

/* What a process of its own finds, since a library is opened once: 0, or the step that went otherwise. */
static int looks_for(const struct maker *maker, char *named, const char *sentence)
{
    for (int twice = 0; twice < 2; twice++) {
        if (maker->find(named)) return 1;
        if (tutti_last_error()->status != TUTTI_ERR_UNSUPPORTED) return 2;
        if (!strstr(tutti_last_error()->text, sentence)) return 3;
    }
    return 0;
}

static void check_absence(const struct maker *maker, const char *named, const char *sentence)
{
    char name[100];
    int status = -1;
    strcpy(name, named);
    const pid_t child = fork();
    if (child == 0) _exit(looks_for(maker, name, sentence));
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_absence_is_a_sentence(void **state)
{
    (void)state;
    setenv("CCL_ROOT", "/no/such/root", 1); /* the option comes first */
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(makers); i++) {
        check_absence(&makers[i], "/no/such/lib.so", makers[i].absent);
        check_absence(&makers[i], "libc.so.6", makers[i].wrong);
    }
    unsetenv("CCL_ROOT");
}

/* ---- what they are asked for ---- */

static void test_everything_is_moved(void **state)
{
    (void)state;
    static const enum tutti_kind moves[] = {TUTTI_BROADCAST, TUTTI_ALL_GATHER, TUTTI_SCATTER, TUTTI_ALL_TO_ALL,
                                            TUTTI_GATHER};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(moves); i++)
        for (uint32_t dtype = 0; dtype < TUTTI_N_DTYPES; dtype++) {
            for (size_t m = 0; m < TUTTI_ARRAY_LEN(makers); m++)
                assert_int_equal(makers[m].takes(moves[i], dtype, -1, 3),
                                 moves[i] != TUTTI_GATHER || makers[m].gathers);
            if (moves[i] == TUTTI_SCATTER) assert_false(oneccl_takes_of(&old, moves[i], dtype, -1, 3));
        }
}

/* Written out apart from the tables that decide: what makers document and what was tried, less where it means something
 * else. */
static bool means_the_same(const struct maker *maker, enum tutti_dtype dtype, enum tutti_op op, uint32_t n)
{
    const char *name = tutti_dtype_name(dtype);
    const bool integer = strstr(name, "int") != NULL, complex = strncmp(name, "complex", 7) == 0;
    const bool half = strcmp(name, "float16") == 0 || strcmp(name, "bfloat16") == 0;
    if (strstr(name, "float8") || strcmp(name, "bool") == 0 || strstr(name, "int16")) return false;
    if (half && n > maker->halves_most) return false;
    switch (op) {
    case TUTTI_SUM:
        return true;
    case TUTTI_PROD:
        return !complex;
    case TUTTI_MIN:
    case TUTTI_MAX:
        return integer; /* NaN would be dropped, and ranks would differ */
    case TUTTI_AVG:
        return maker->averages && !integer;
    case TUTTI_PREMUL_SUM: /* alone NCCL's kernel leaves elements out */
        return maker->averages && !integer && !complex && n > 1;
    default:
        return false;
    }
}

static void test_reductions_mean_the_same_or_are_refused(void **state)
{
    (void)state;
    static const enum tutti_kind reduces[] = {TUTTI_ALL_REDUCE, TUTTI_REDUCE, TUTTI_REDUCE_SCATTER};
    for (size_t m = 0; m < TUTTI_ARRAY_LEN(makers); m++)
        for (size_t i = 0; i < TUTTI_ARRAY_LEN(reduces); i++)
            for (uint32_t dtype = 0; dtype < TUTTI_N_DTYPES; dtype++)
                for (uint32_t op = 0; op < TUTTI_N_OPS + 2; op++) /* and handles of users */
                    for (uint32_t n = 1; n < 5; n++)
                        assert_int_equal(makers[m].takes(reduces[i], dtype, (int32_t)op, n),
                                         op < TUTTI_N_OPS && means_the_same(&makers[m], dtype, (enum tutti_op)op, n));
}

static void test_what_they_lack_is_refused(void **state)
{
    (void)state;
    const struct tutti_backend_call of_v = {.info = {.kind = TUTTI_ALL_TO_ALL, .op = -1}, .bind = {.v = true}};
    const struct tutti_backend_call large = {.info = {.kind = TUTTI_ALL_GATHER, .dtype = TUTTI_UINT8, .op = -1},
                                             .bind = {.count = INT32_MAX}};
    for (size_t m = 0; m < TUTTI_ARRAY_LEN(makers); m++) {
        assert_false(makers[m].takes(TUTTI_SCAN, TUTTI_INT32, TUTTI_SUM, 2));
        assert_false(makers[m].takes(TUTTI_EXSCAN, TUTTI_INT32, TUTTI_SUM, 2));
        assert_false(makers[m].takes(TUTTI_BARRIER, TUTTI_UINT8, -1, 2));
    }
    assert_false(oneccl_can(&recent, &of_v, 2, false));
    assert_false(oneccl_can(&recent, &large, 2, false));
}

static void test_words_tell_of_all(void **state)
{
    struct oneccl_left left[ONECCL_LEFT_MOST];
    char served[400], text[4000] = "";
    (void)state;
    oneccl_say_served(&old, served, sizeof served);
    const size_t n = oneccl_list_left(&old, left, ONECCL_LEFT_MOST);
    assert_true(n > 0 && n < ONECCL_LEFT_MOST);
    for (size_t i = 0; i < n; i++) tutti_append(text, sizeof text, "%s: %s\n", left[i].what, left[i].why);
    for (uint32_t k = 0; k < TUTTI_N_KINDS; k++)
        assert_true(strstr(served, tutti_kinds[k].name) || strstr(text, tutti_kinds[k].name));
    assert_null(strstr(served, ", scatter"));
    assert_non_null(strstr(text, "scatter: before 2022.2: it has none\n"));
    assert_non_null(strstr(text, "bool: it has no such type\n"));
}

static void test_more_takes_longer(void **state)
{
    (void)state;
    for (size_t count = 1; count < (size_t)1 << 28; count *= 4)
        for (uint32_t n = 2; n < 16; n++) {
            const double ns = nccl_score(TUTTI_ALL_REDUCE, TUTTI_FLOAT32, TUTTI_SUM, n, count);
            assert_true(ns > 0 && ns < nccl_score(TUTTI_ALL_REDUCE, TUTTI_FLOAT32, TUTTI_SUM, n, 4 * count));
            assert_true(nccl_score(TUTTI_ALL_GATHER, TUTTI_FLOAT32, -1, n, count) <
                        nccl_score(TUTTI_ALL_GATHER, TUTTI_FLOAT32, -1, n + 1, count));
        }
}

/* ---- the carrier, within a library that never returns ---- */

static _Atomic bool is_within;

static int init(void **comm, size_t n, struct oneccl_id id, int rank)
{
    (void)n, (void)id, (void)rank;
    *comm = &is_within;
    return ONECCL_OK;
}

__attribute__((noinline)) static uint64_t deeper(volatile uint64_t *turn)
{
    return ++*turn;
}

static int spin(void *in, void *out, size_t count, int type, int op, void *comm, void *stream)
{
    volatile uint64_t turn = 0;
    (void)in, (void)out, (void)count, (void)type, (void)op, (void)comm, (void)stream;
    atomic_store(&is_within, true);
    while (deeper(&turn)) {
    }
    return ONECCL_OK;
}

static const char *no_error(void *comm)
{
    (void)comm;
    return "";
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * TUTTI_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* Its caller has its thread back, and the one that is left takes no time. */
static void test_who_is_left_is_stopped(void **state)
{
    static const struct oneccl_library library = {.comm_init = init, .all_reduce = spin, .last_error = no_error};
    const struct oneccl_carrier like = {.library = &library, .n = 2};
    const struct tutti_backend_call call = {.info = {.kind = TUTTI_ALL_REDUCE, .dtype = TUTTI_INT32, .op = TUTTI_SUM},
                                            .bind = {.count = 10, .dtype = TUTTI_INT32}};
    struct oneccl_carrier *carrier = NULL;
    (void)state;
    assert_false(oneccl_is_lost());
    assert_int_equal(oneccl_carrier_start(&carrier, &like), TUTTI_OK);
    assert_int_equal(oneccl_carrier_room(carrier, 40), TUTTI_OK);
    oneccl_job_of(&call, &carrier->job);
    carrier->job.in = carrier->job.out = carrier->memory;
    oneccl_carrier_ask(carrier);
    while (!atomic_load(&is_within)) usleep(1000);
    const int frozen = oneccl_freeze(carrier);
    oneccl_thaw(frozen);
    oneccl_carrier_end(carrier, true, TUTTI_NEVER);
    assert_true(oneccl_is_lost());
    if (frozen < 0) skip(); /* this kernel has no userfaultfd for it */
    usleep(1000);
    const uint64_t before = cpu_ns();
    usleep(200000);
    assert_true(cpu_ns() - before < 50 * TUTTI_NS_PER_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_absence_is_a_sentence),
        cmocka_unit_test(test_everything_is_moved),
        cmocka_unit_test(test_reductions_mean_the_same_or_are_refused),
        cmocka_unit_test(test_what_they_lack_is_refused),
        cmocka_unit_test(test_words_tell_of_all),
        cmocka_unit_test(test_more_takes_longer),
        cmocka_unit_test(test_who_is_left_is_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
