/* SPDX-License-Identifier: BSD-3-Clause */

/* Which method serves which range, by the constants that are built in, in windows and elsewhere. */

#include "test.h"

#include "backend/cuda.h"

#include <string.h>

static void chosen_is(const struct cuda_place *place, struct tutti_backend_call *call, size_t bytes, const char *name)
{
    double ns;
    call->bind.count = bytes / tutti_dtype_bytes(call->info.dtype);
    assert_string_equal(cuda_choose(place, call, "", &ns)->name, name);
    assert_true(ns > 0 && ns < 1e7);
    assert_string_equal(cuda_choose(place, call, "tiles", &ns)->name, "tiles");
    assert_true(ns > 0 && ns < 1e7);
}

/* No rank must need what another lacks: all are asked the same, so all answer alike. */
static void choices(void **state)
{
    struct cuda_place place = {.n = 2, .speed = cuda_speed_known("", 2)};
    struct tutti_backend_call call = {.bind = {.dtype = TUTTI_FLOAT32},
                                      .info = {.kind = TUTTI_ALL_REDUCE, .dtype = TUTTI_FLOAT32, .op = TUTTI_SUM}};
    static const size_t sizes[] = {1024, 65536, (size_t)1 << 20, (size_t)4 << 20, (size_t)1 << 30};
    static const char *const floats[] = {"sentinel", "sentinel", "sentinel", "sentinel", "tiles"},
                             *const others[] = {"lines", "sentinel", "sentinel", "sentinel", "tiles"};
    (void)state;
    memset(place.has, true, sizeof(place.has));
    assert_true(cuda_layout(2, CUDA_SCRATCH_DEFAULT, 128, &place.layout, &place.bounce_bytes));
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(sizes); i++) {
        call.info.kind = TUTTI_ALL_REDUCE, call.info.dtype = call.bind.dtype = TUTTI_FLOAT32;
        chosen_is(&place, &call, sizes[i], floats[i]);
        call.info.dtype = call.bind.dtype = TUTTI_INT32;
        chosen_is(&place, &call, sizes[i], others[i]);
        call.info.kind = TUTTI_ALL_GATHER, call.info.dtype = call.bind.dtype = TUTTI_FLOAT32;
        chosen_is(&place, &call, sizes[i], others[i]);
    }
    call.info.kind = TUTTI_BROADCAST, call.info.op = -1, call.info.root = 1;
    chosen_is(&place, &call, (size_t)256 << 20, "tiles");
    place.n = 4, place.speed = cuda_speed_known("", 4);
    assert_true(cuda_layout(4, CUDA_SCRATCH_DEFAULT, 128, &place.layout, &place.bounce_bytes));
    chosen_is(&place, &call, (size_t)256 << 20, "relay");
    /* In a window: kernels that store to peers, then copy engines. */
    _Alignas(16) char window[16];
    place.own = window;
    for (uint32_t q = 0; q < 4; q++) place.peers[q] = window;
    call.bind.output = window;
    for (uint32_t k = 0; k < 3; k++) {
        static const enum tutti_kind moves[] = {TUTTI_BROADCAST, TUTTI_ALL_GATHER, TUTTI_ALL_TO_ALL};
        call.info.kind = moves[k];
        chosen_is(&place, &call, (size_t)8 << 20, "direct");
        /* What would be stored to peers in small pieces goes another way. */
        if (k > 0) chosen_is(&place, &call, ((size_t)8 << 20) + 4, "tiles");
        call.bind.output = window + 4;
        chosen_is(&place, &call, (size_t)8 << 20, k > 0 ? "tiles" : "relay");
        call.bind.output = window;
    }
    call.info.kind = TUTTI_ALL_REDUCE, call.info.op = TUTTI_SUM;
    chosen_is(&place, &call, (size_t)64 << 20, "direct");
    chosen_is(&place, &call, (size_t)1 << 30, "engines");
    call.bind.output = window + 4;
    chosen_is(&place, &call, (size_t)64 << 20, "tiles2");
    call.bind.output = window;
    place.peers[2]++; /* another rank's lies otherwise */
    chosen_is(&place, &call, (size_t)64 << 20, "tiles2");
    place.own = NULL;
    call.info.op = TUTTI_N_OPS; /* a user's */
    assert_null(cuda_choose(&place, &call, "", NULL));
    call.info.kind = TUTTI_BARRIER, call.info.op = -1;
    assert_null(cuda_choose(&place, &call, "", NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(choices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
