/* SPDX-License-Identifier: BSD-3-Clause */
/* See jobs.h. */
#include "xpu/jobs.h"

#include "device/accesses.h"
#include "device/device.h"
#include "reference.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { N = 3001, SOURCES = 3, ROOM = 2 * 3008 + 4096 };
static const enum tutti_dtype dtypes[] = {TUTTI_FLOAT16, TUTTI_BFLOAT16, TUTTI_FLOAT32, TUTTI_FLOAT64};

/* ---- packed data ---- */
static _Alignas(16) unsigned char own[8 * N], packed[SOURCES][ROOM], repacked[2][ROOM], elements[2][8 * N];
static struct tutti_device *cpu;

static void by_kernel(jobs_run run, const struct tutti_recode *job)
{
    char name[64];
    snprintf(name, sizeof name, "recode_%s", tutti_wire_name(job->packing.wire));
    run("recode", name, 3, 256, job, sizeof *job);
}

static void by_cpu(const struct tutti_recode *job)
{
    assert_int_equal(tutti_device_cpu.recode(cpu, job, NULL), TUTTI_OK);
}

/* What is behind the last element has no meaning, nor have codes whose scale is NaN. */
static void same_packed(const struct tutti_recode *job, uint64_t at, uint64_t n)
{
    const bool scaled = job->packing.wire != TUTTI_WIRE_BFLOAT16;
    for (uint64_t first = 0; first < n; first += job->packing.group, at += tutti_packed_group_bytes(&job->packing)) {
        const uint64_t some = n - first < job->packing.group ? n - first : job->packing.group;
        float scale = 1;
        if (scaled) memcpy(&scale, repacked[0] + at, sizeof scale);
        assert_memory_equal(repacked[1] + at, repacked[0] + at,
                            !scaled          ? 2 * some
                            : scale == scale ? sizeof scale + some
                                             : sizeof scale);
    }
}

static void recode_one(jobs_run run, enum tutti_wire wire, enum tutti_dtype dtype, enum ref_values values,
                       uint64_t *seed)
{
    static const uint32_t groups[] = {32, 96, 256, 1024};
    const uint64_t random = tutti_random64(seed);
    struct tutti_recode job = {.packing = {wire, groups[random % 4]}, .dtype = dtype, .n = 1, .divisor = 1};
    job.n_parts = 1 + (uint32_t)(random / 4 % 3), job.skip = random / 16 % 2 ? job.n_parts : 1;
    job.total = 1 + random / 32 % N, job.part = (job.total + job.n_parts - 1) / job.n_parts;
    job.end = job.part, job.stochastic = random >> 40 & 1, job.seed = random, job.stream = random / 3;
    job.own = own, job.source_bytes = ROOM, job.part_bytes = tutti_packed_bytes(&job.packing, job.part);
    for (uint32_t s = 0; s < SOURCES; s++) {
        ref_fill(dtype, values, random + s, own, N);
        job.repacked = packed[s];
        by_cpu(&job);
    }
    job.n = SOURCES, job.me = (uint32_t)(random >> 41) % (SOURCES + 1), job.packed = packed;
    job.divisor = (uint32_t)(random >> 44 & 1) * 3 + 1;
    memset(repacked, 0, sizeof repacked), memset(elements, 0, sizeof elements);
    job.repacked = repacked[0], by_cpu(&job);
    job.repacked = repacked[1], by_kernel(run, &job);
    job.repacked = NULL, job.elements = elements[0], by_cpu(&job);
    job.elements = elements[1], by_kernel(run, &job);
    assert_memory_equal(elements[1], elements[0], sizeof elements[0]);
    for (uint32_t p = 0; p < job.n_parts; p++) same_packed(&job, p * job.part_bytes, tutti_recode_part(&job, p));
}

void jobs_recode(jobs_run run, uint64_t seed, uint32_t times)
{
    assert_int_equal(tutti_device_cpu.open(0, &cpu), TUTTI_OK);
    for (enum tutti_wire wire = TUTTI_WIRE_BFLOAT16; wire < TUTTI_N_WIRES; wire++)
        for (size_t d = 0; d < TUTTI_ARRAY_LEN(dtypes); d++)
            for (int values = REF_BITS; values <= REF_EDGES; values++)
                for (uint32_t i = 0; i < times; i++) recode_one(run, wire, dtypes[d], (enum ref_values)values, &seed);
    tutti_device_cpu.close(cpu);
}

/* ---- sparse blocks ---- */
enum { BLOCKS = 40, BLOCK = 37, OUT = 11 };

/* Blocks of `values` onto those of `out`, which are 0 at first, in their order. False: one has no place. */
static bool add_blocks(const struct tutti_sparse *job, unsigned char *out)
{
    const int64_t *indices = job->indices;
    const size_t bytes = BLOCK * ref_bytes(job->dtype);
    bool all = true;
    memset(out, 0, OUT * bytes);
    for (uint64_t i = 0; i < BLOCKS; i++) {
        unsigned char *to = out + (size_t)indices[i] * bytes;
        const bool has_place = indices[i] >= 0 && indices[i] < OUT;
        all = all && has_place;
        if (has_place) ref_hop(job->dtype, TUTTI_SUM, to, to, (const unsigned char *)job->values + i * bytes, BLOCK);
    }
    return all;
}

void jobs_sparse(jobs_run run, uint64_t seed)
{
    static _Alignas(16) unsigned char values[8 * BLOCKS * BLOCK], want[8 * OUT * BLOCK], got[8 * OUT * BLOCK];
    int64_t indices[BLOCKS];
    int32_t status;
    for (size_t d = 0; d < 2 * TUTTI_ARRAY_LEN(dtypes); d++) {
        char name[64];
        struct tutti_sparse job = {.dtype = dtypes[d / 2], .n = BLOCKS, .block = BLOCK, .n_out = OUT};
        job.values = values, job.indices = indices, job.out = got, job.status = &status;
        ref_fill(job.dtype, d % 2 ? REF_BITS : REF_FINITE, tutti_random64(&seed), values, BLOCKS * BLOCK);
        for (size_t i = 0; i < BLOCKS; i++) indices[i] = (int64_t)(tutti_random64(&seed) % OUT);
        if (d % 2) indices[BLOCKS / 2] = OUT, indices[3] = -1;
        const bool right = add_blocks(&job, want);
        memset(got, 0x5a, sizeof got);
        snprintf(name, sizeof name, "sparse_%s", tutti_dtype_name(job.dtype));
        run(job.dtype == TUTTI_FLOAT64 ? "sparse_64" : "sparse", name, 3, 64, &job, sizeof job);
        assert_int_equal(status, right ? TUTTI_OK : TUTTI_ERR_ARGUMENT);
        assert_true(ref_equal(job.dtype, got, want, OUT * BLOCK, NULL));
    }
}

/* ---- rows of counts ---- */
void jobs_counted_row(jobs_run run, uint64_t seed)
{
    for (uint32_t turn = 0; turn < 8; turn++) {
        uint64_t counts[16], displs[2][16], row[64];
        struct tutti_counted_row x = {.counts = counts, .row = row, .n = 1 + (uint32_t)(tutti_random64(&seed) % 16)};
        for (uint32_t q = 0; q < 16; q++) {
            counts[q] = tutti_random64(&seed) % 50;
            displs[0][q] = tutti_random64(&seed) % 900, displs[1][q] = tutti_random64(&seed) % 900;
        }
        if (turn & 1) x.send_displs = displs[0];
        if (turn & 2) x.recv_displs = displs[1];
        x.send_capacity = turn & 4 ? 1000 : 100, x.recv_capacity = 500;
        run("counted", "counted_row", 1, 32, &x, sizeof x);
        for (uint32_t k = 0; k < counted_words(x.n); k++) assert_int_equal(row[k], counted_word(&x, k));
    }
}

/* ---- windows ---- */
_Static_assert((int)GPU_COMPARE_EQ == (int)TUTTI_COMPARE_EQ && (int)GPU_COMPARE_GE == (int)TUTTI_COMPARE_GE,
               "the kernels' words for enum tutti_compare");
static struct gpu_control control;
static uint32_t stopped;

/* What the host's watch does, until a kernel has reported. */
static void *tick(void *arg)
{
    (void)arg;
    while (!__atomic_load_n(&control.stop, __ATOMIC_ACQUIRE)) {
        __atomic_store_n(&control.now_ns, tutti_now_ns(), __ATOMIC_RELEASE);
        tutti_sleep_ns(TUTTI_NS_PER_MS);
    }
    return NULL;
}

void jobs_windows(jobs_run run, uint64_t seed)
{
    enum { BYTES = 1000 };
    static char from[BYTES + 16], to[BYTES + 16];
    uint64_t word = 5, before = 0;
    uint32_t there = 0;
    pthread_t clock;
    struct tutti_device_alarm alarm = {.stopped = &stopped, .stop = &control.stop, .report = &control.report};
    alarm.late = &control.late, alarm.code = GPU_REPORT(7, 0);
    for (uint32_t change = GPU_CHANGE_SET; change <= GPU_CHANGE_SWAP; change++) {
        const size_t at = tutti_random64(&seed) % 16, bytes = tutti_random64(&seed) % BYTES;
        struct gpu_one_access x = {.alarm = alarm, .to = to + at, .from = from + at / 2, .bytes = bytes, .word = &word};
        x.value = 40 + change, x.expected = 46, x.before = &before, x.there = &there, x.change = change;
        ref_fill(TUTTI_UINT8, REF_BITS, seed, from, sizeof from), memset(to, 0, sizeof to), there = 0;
        run("window", "window_access", 1, 96, &x, sizeof x);
        assert_memory_equal(to + at, from + at / 2, bytes);
        assert_int_equal(to[at + bytes], 0);
        assert_int_equal(there, 1);
        static const uint64_t befores[] = {0, 40, 81}, words[] = {40, 81, 81}; /* 81 is not what the swap expects */
        assert_int_equal(before, befores[change]);
        assert_int_equal(word, words[change]);
    }
    struct gpu_one_await w = {.alarm = alarm, .word = &word, .value = 81, .compare = TUTTI_COMPARE_GE, .from = 3};
    w.index = 2, w.timeout_ns = 20 * TUTTI_NS_PER_MS;
    assert_int_equal(pthread_create(&clock, NULL, tick, NULL), 0);
    run("window", "window_await", 1, 32, &w, sizeof w);
    assert_int_equal(control.stop, 0);
    w.value = 82;
    run("window", "window_await", 1, 32, &w, sizeof w);
    pthread_join(clock, NULL);
    assert_int_equal(control.stop, GPU_TIMEOUT);
    assert_int_equal(control.report, GPU_REPORT(7, 3));
    assert_int_equal(control.late.seen, 81);
    assert_int_equal(control.late.index, 2);
}
