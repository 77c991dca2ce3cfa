/* SPDX-License-Identifier: BSD-3-Clause */
/* Packed data: every instruction set computes the same bits, whatever the elements; codes mean what the reference's
 * numbers of that type do. */
#include "device/cpu/cpu.h"
#include "reference.h"
#include "test.h"

#include <math.h>
#include <string.h>

static const char *const sets[] = {"scalar", "avx2", "avx512", "neon", "auto"};
static const enum tutti_dtype dtypes[] = {TUTTI_FLOAT16, TUTTI_BFLOAT16, TUTTI_FLOAT32, TUTTI_FLOAT64};

enum { N = 3001, SOURCES = 3 };

struct buffers {
    unsigned char own[N * 8 + 8], packed[SOURCES][N * 2 + 4096], repacked[N * 2 + 4096], elements[N * 8 + 8];
};

static struct tutti_recode job_of(enum tutti_wire wire, enum tutti_dtype dtype, uint64_t seed, struct buffers *b)
{
    const uint32_t groups[] = {32, 96, 256, 1024};
    struct tutti_recode job = {.packing = {wire, groups[seed % 4]},
                               .dtype = dtype,
                               .n = 1,
                               .own = b->own + seed % 3, /* no alignment */
                               .divisor = 1,
                               .n_parts = 1,
                               .skip = UINT32_MAX,
                               .part = N,
                               .total = N,
                               .end = SIZE_MAX,
                               .stochastic = seed % 2,
                               .seed = seed,
                               .stream = seed * 3};
    job.source_bytes = sizeof(b->packed[0]);
    return job;
}

/* Packs three inputs, sums them both ways with `isa`. */
static void run(const char *isa, enum tutti_wire wire, enum tutti_dtype dtype, enum ref_values values, uint64_t seed,
                struct buffers *b)
{
    memset(b, 0, sizeof(*b));
    for (uint32_t s = 0; s < SOURCES; s++) {
        struct tutti_recode job = job_of(wire, dtype, seed + s, b);
        job.packing.group = job_of(wire, dtype, seed, b).packing.group;
        ref_fill(dtype, values, seed + s, b->own + (seed + s) % 3, N);
        job.repacked = b->packed[s];
        tutti_recode_on_cpu(&job, isa);
    }
    struct tutti_recode job = job_of(wire, dtype, seed, b);
    ref_fill(dtype, values, seed + 9, b->own + seed % 3, N);
    job.n = SOURCES, job.me = 1, job.packed = b->packed;
    job.divisor = (uint32_t)(seed % 2) * 3 + 1;
    job.repacked = b->repacked;
    tutti_recode_on_cpu(&job, isa);
    job.repacked = NULL, job.elements = b->elements;
    tutti_recode_on_cpu(&job, isa);
}

static void all_sets_alike(void **state)
{
    (void)state;
    static struct buffers want, got;
    uint64_t seed = test_seed();
    for (enum tutti_wire wire = TUTTI_WIRE_BFLOAT16; wire < TUTTI_N_WIRES; wire++)
        for (size_t d = 0; d < TUTTI_ARRAY_LEN(dtypes); d++)
            for (int values = REF_BITS; values <= REF_EDGES; values++)
                for (uint32_t again = 0; again < 4; again++, seed++) {
                    run("scalar", wire, dtypes[d], (enum ref_values)values, seed, &want);
                    for (size_t s = 1; s < TUTTI_ARRAY_LEN(sets); s++) {
                        run(sets[s], wire, dtypes[d], (enum ref_values)values, seed, &got);
                        assert_memory_equal(&got, &want, sizeof(got));
                    }
                }
}

/* The codes of 8-bit floats are those of the types: scaled by the group's greatest, which is most of them here. */
static void codes_are_numbers(void **state)
{
    (void)state;
    static const struct {
        enum tutti_wire wire;
        enum tutti_dtype dtype;
        float most;
    } rows[] = {{TUTTI_WIRE_FLOAT8_E4M3, TUTTI_FLOAT8_E4M3FN, 448}, {TUTTI_WIRE_FLOAT8_E5M2, TUTTI_FLOAT8_E5M2, 57344}};
    for (size_t r = 0; r < TUTTI_ARRAY_LEN(rows); r++) {
        float in[256], out[256];
        unsigned char packed[4 + 256 + 16];
        struct tutti_recode job = {.packing = {rows[r].wire, 256},
                                   .dtype = TUTTI_FLOAT32,
                                   .n = 1,
                                   .own = in,
                                   .divisor = 1,
                                   .repacked = packed,
                                   .n_parts = 1,
                                   .skip = 1,
                                   .part = 256,
                                   .total = 256,
                                   .end = 256};
        for (unsigned code = 0; code < 256; code++) {
            const unsigned char byte = (unsigned char)code;
            const double value = ref_decode(rows[r].dtype, &byte);
            in[code] = fabs(value) <= (double)rows[r].most ? (float)value : 0; /* no NaN, no infinity */
        }
        tutti_recode_on_cpu(&job, NULL);
        float scale;
        memcpy(&scale, packed, sizeof(scale));
        assert_true(scale == 1);
        for (unsigned code = 0; code < 256; code++)
            if (in[code] != 0) assert_int_equal(packed[4 + code], code);
        job.me = 1, job.packed = packed, job.repacked = NULL, job.elements = out;
        tutti_recode_on_cpu(&job, NULL);
        assert_memory_equal(in + 1, out + 1, 100 * sizeof(float));
        for (unsigned code = 0; code < 256; code++) assert_true(in[code] == out[code]);
    }
}

static void sizes(void **state)
{
    (void)state;
    const struct tutti_packing int8 = {TUTTI_WIRE_INT8, 256}, bf16 = {TUTTI_WIRE_BFLOAT16, 256};
    assert_int_equal(tutti_packed_bytes(&int8, 0), 0);
    assert_int_equal(tutti_packed_bytes(&int8, 1), 16);
    assert_int_equal(tutti_packed_bytes(&int8, 257), 272);
    assert_int_equal(tutti_packed_bytes(&bf16, 257), 528);
    assert_int_equal(tutti_packed_elements(&int8, 519), 256);
    assert_int_equal(tutti_packed_elements(&int8, 520), 512);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_sets_alike),
        cmocka_unit_test(codes_are_numbers),
        cmocka_unit_test(sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
