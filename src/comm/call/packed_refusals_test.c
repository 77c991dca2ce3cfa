/* SPDX-License-Identifier: BSD-3-Clause */
/* Quantised calls that are refused, and ranks that do not agree on one. */
#include "ranks.h"
#include "test.h"

#include <math.h>
#include <string.h>
#include <tutti/tutti.h>

static void refused(struct rank *rank)
{
    float a[64] = {0}, b[64];
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    options.wire = TUTTI_WIRE_INT8;
#define REFUSED(status, part, ...) RANK_CHECK_ERROR(rank, status, part, __VA_ARGS__)
    REFUSED(TUTTI_ERR_ARGUMENT, "wire is int8: all_reduce and reduce_scatter",
            tutti_all_gather(a, b, 1, TUTTI_FLOAT32, rank->comm, &options, NULL));
    REFUSED(TUTTI_ERR_UNSUPPORTED, "op is max",
            tutti_all_reduce(a, b, 8, TUTTI_FLOAT32, TUTTI_MAX, rank->comm, &options, NULL));
    REFUSED(TUTTI_ERR_UNSUPPORTED, "int32 can not be quantised",
            tutti_all_reduce(a, b, 8, TUTTI_INT32, TUTTI_SUM, rank->comm, &options, NULL));
    options.wire_block = 33;
    REFUSED(TUTTI_ERR_ARGUMENT, "wire_block is 33",
            tutti_all_reduce(a, b, 8, TUTTI_FLOAT32, TUTTI_SUM, rank->comm, &options, NULL));
    options.wire_block = 2048;
    REFUSED(TUTTI_ERR_ARGUMENT, "wire_block is 2048",
            tutti_all_reduce(a, b, 8, TUTTI_FLOAT32, TUTTI_SUM, rank->comm, &options, NULL));
    options.wire_block = 0, options.algorithm = "ring";
    REFUSED(TUTTI_ERR_ARGUMENT, "algorithm is \"ring\"",
            tutti_all_reduce(a, b, 8, TUTTI_FLOAT32, TUTTI_SUM, rank->comm, &options, NULL));
    options.algorithm = NULL, options.wire = (enum tutti_wire)17;
    REFUSED(TUTTI_ERR_ARGUMENT, "wire 17",
            tutti_all_reduce(a, b, 8, TUTTI_FLOAT32, TUTTI_SUM, rank->comm, &options, NULL));
    options.wire = TUTTI_WIRE_INT8, options.size = offsetof(struct tutti_call_options, wire); /* an older caller's */
    for (size_t i = 0; i < 8; i++) a[i] = 0.3f * (float)i;
    RANK_CHECK_OK(rank, tutti_all_reduce(a, b, 8, TUTTI_FLOAT32, TUTTI_SUM, rank->comm, &options, NULL));
    for (size_t i = 0; i < 8; i++) RANK_CHECK(rank, fabsf(b[i] - a[i] * (float)rank->n) < 1e-5f);
    options.size = sizeof(options);
    RANK_CHECK_OK(rank, tutti_all_reduce(NULL, NULL, 0, TUTTI_FLOAT32, TUTTI_SUM, rank->comm, &options, NULL));
}

/* Ranks that do not agree get a sentence, whatever they differ in. */
static void differs(struct rank *rank)
{
    const int what = *(const int *)rank->arg;
    float a[640] = {0}, b[640];
    struct tutti_call_options options = TUTTI_CALL_OPTIONS_INIT;
    const bool odd = rank->index == 1;
    options.wire = TUTTI_WIRE_INT8;
    if (odd && what == 0) options.wire = TUTTI_WIRE_FLOAT8_E4M3;
    if (odd && what == 1) options.wire = TUTTI_WIRE_NONE;
    if (odd && what == 2) options.wire_block = 64;
    if (odd && what == 3) options.wire_seed = 1;
    enum tutti_status status = tutti_all_reduce(a, b, 640, TUTTI_FLOAT32, odd && what == 4 ? TUTTI_AVG : TUTTI_SUM,
                                                rank->comm, &options, NULL);
    if (status == TUTTI_OK) status = tutti_barrier(rank->comm, NULL, NULL);
    RANK_CHECK_STATUS(rank, TUTTI_ERR_MISMATCH, status);
    RANK_CHECK(rank, strstr(tutti_last_error()->text, "called all_to_all(uint8"));
}

static void refusals(void **state)
{
    (void)state;
    assert_int_equal(ranks_threads(3, refused, NULL), 0);
    for (int what = 0; what < 5; what++) assert_int_equal(ranks_threads(3, differs, &what), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
