/* SPDX-License-Identifier: BSD-3-Clause */

/* Which method serves which range, by the constants that are built in, in windows and elsewhere. */

#include "test.h"

#include "backend/gpu/gpu_plan.h"

#include <string.h>

static void chosen_is(const struct gpu_site *site, struct tutti_backend_call *call, size_t bytes, const char *name)
{
    double ns;
    call->bind.count = bytes / tutti_dtype_bytes(call->info.dtype);
    assert_string_equal(gpu_choose(site, call, "", &ns)->name, name);
    assert_true(ns > 0 && ns < 1e7);
    assert_string_equal(gpu_choose(site, call, "tiles", &ns)->name, "tiles");
    assert_true(ns > 0 && ns < 1e7);
}

/* No rank must need what another lacks: all are asked the same, so all answer alike. */
static void choices(void **state)
{
    struct gpu_site site = {.n = 2, .speed = gpu_speed_known("", 2)};
    struct tutti_backend_call call = {.bind = {.dtype = TUTTI_FLOAT32},
                                      .info = {.kind = TUTTI_ALL_REDUCE, .dtype = TUTTI_FLOAT32, .op = TUTTI_SUM}};
    static const size_t sizes[] = {1024, 65536, (size_t)1 << 20, (size_t)4 << 20, (size_t)1 << 30};
    static const char *const floats[] = {"sentinel", "sentinel", "sentinel", "sentinel", "tiles"},
                             *const others[] = {"lines", "sentinel", "sentinel", "sentinel", "tiles"};
    (void)state;
    memset(site.has, true, sizeof(site.has));
    assert_true(gpu_layout(2, GPU_SCRATCH_DEFAULT, 128, &site.layout, &site.bounce_bytes));
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(sizes); i++) {
        call.info.kind = TUTTI_ALL_REDUCE, call.info.dtype = call.bind.dtype = TUTTI_FLOAT32;
        chosen_is(&site, &call, sizes[i], floats[i]);
        call.info.dtype = call.bind.dtype = TUTTI_INT32;
        chosen_is(&site, &call, sizes[i], others[i]);
        call.info.kind = TUTTI_ALL_GATHER, call.info.dtype = call.bind.dtype = TUTTI_FLOAT32;
        chosen_is(&site, &call, sizes[i], others[i]);
    }
    call.info.kind = TUTTI_BROADCAST, call.info.op = -1, call.info.root = 1;
    chosen_is(&site, &call, (size_t)256 << 20, "tiles");
    site.n = 4, site.speed = gpu_speed_known("", 4);
    assert_true(gpu_layout(4, GPU_SCRATCH_DEFAULT, 128, &site.layout, &site.bounce_bytes));
    chosen_is(&site, &call, (size_t)256 << 10, "sentinel");
    chosen_is(&site, &call, (size_t)1 << 20, "sentinel_relay");
    chosen_is(&site, &call, (size_t)4 << 20, "sentinel_relay");
    chosen_is(&site, &call, (size_t)256 << 20, "relay");
    /* In a window: kernels that store to peers, then copy engines. */
    _Alignas(16) char window[16];
    site.own = window;
    for (uint32_t q = 0; q < 4; q++) site.peers[q] = window;
    call.bind.output = window;
    for (uint32_t k = 0; k < 3; k++) {
        static const enum tutti_kind moves[] = {TUTTI_BROADCAST, TUTTI_ALL_GATHER, TUTTI_ALL_TO_ALL};
        const size_t bytes = (size_t)(k > 0 ? 8 : 512) << 20;
        call.info.kind = moves[k];
        chosen_is(&site, &call, bytes, "direct");
        /* What would be stored to peers in small pieces goes another way. */
        if (k > 0) chosen_is(&site, &call, bytes + 4, "tiles");
        call.bind.output = window + 4;
        chosen_is(&site, &call, bytes, k > 0 ? "tiles" : "relay");
        call.bind.output = window;
    }
    call.info.kind = TUTTI_ALL_REDUCE, call.info.op = TUTTI_SUM;
    chosen_is(&site, &call, (size_t)64 << 20, "direct");
    chosen_is(&site, &call, (size_t)1 << 30, "engines");
    /* What has no way to fold straight in windows as such has that of ordinary memory. */
    call.info.kind = TUTTI_REDUCE_SCATTER, site.maps = true, site.speed = gpu_speed_known("NVIDIA H200", 4);
    chosen_is(&site, &call, (size_t)256 << 20, "mapped");
    site.speed = gpu_speed_known("", 4);
    call.info.kind = TUTTI_ALL_REDUCE, site.maps = false;
    call.bind.output = window + 4;
    chosen_is(&site, &call, (size_t)64 << 20, "tiles2");
    call.bind.output = window;
    site.peers[2]++; /* another rank's lies otherwise */
    chosen_is(&site, &call, (size_t)64 << 20, "tiles2");
    site.own = NULL;
    call.info.op = TUTTI_N_OPS; /* a user's */
    assert_null(gpu_choose(&site, &call, "", NULL));
    call.info.kind = TUTTI_BARRIER, call.info.op = -1;
    assert_null(gpu_choose(&site, &call, "", NULL));
}

/* Ordinary memory that all map: large calls go straight, but what has kernels, and buffers that are whole. */
static void ordinary(void **state)
{
    static const enum tutti_kind kinds[] = {TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER, TUTTI_ALL_GATHER, TUTTI_ALL_TO_ALL,
                                            TUTTI_BROADCAST};
    struct gpu_site site = {.n = 4, .speed = gpu_speed_known("NVIDIA H200", 4), .maps = true};
    const size_t large = (size_t)64 << 20;
    (void)state;
    memset(site.has, true, sizeof(site.has));
    assert_true(gpu_layout(4, GPU_SCRATCH_DEFAULT, 128, &site.layout, &site.bounce_bytes));
    for (size_t k = 0; k < TUTTI_ARRAY_LEN(kinds); k++) {
        struct tutti_backend_call call = {
            .bind = {.dtype = TUTTI_FLOAT32},
            .info = {.kind = kinds[k], .dtype = TUTTI_FLOAT32, .op = TUTTI_SUM, .root = 1}};
        const bool has_blocks = k > 0 && k < 4;
        chosen_is(&site, &call, has_blocks ? large : 4 * large, "mapped");
        call.bind.count = 1 << 10;
        assert_string_not_equal(gpu_choose(&site, &call, "", NULL)->name, "mapped");
        site.maps = false;
        call.bind.count = large;
        assert_false(gpu_mapped.fits(&site, &call));
        site.maps = true;
        assert_true(gpu_mapped.fits(&site, &call));
        call.bind.count++;
        assert_int_equal(gpu_mapped.fits(&site, &call), !has_blocks);
        call.bind.count = large, call.info.op = TUTTI_PREMUL_SUM;
        assert_int_equal(gpu_mapped.fits(&site, &call), k > 1);
        call.info.op = TUTTI_MAX;
        assert_int_equal(gpu_mapped.fits(&site, &call), k > 1);
    }
}

/* The method serves calls until all blocks have as much as a slot, or the half of one, has room for, and none that are
 * longer. Calls are of so many parts of that length. */
static void ends_at(const struct gpu_site *site, enum tutti_kind kind, const struct gpu_method *method, uint32_t parts,
                    size_t slot)
{
    struct tutti_backend_call call = {.bind = {.dtype = TUTTI_FLOAT32},
                                      .info = {.kind = kind, .dtype = TUTTI_FLOAT32, .op = TUTTI_SUM}};
    const size_t room = site->layout.n_blocks * slot * parts;
    static struct gpu_step step;
    call.bind.count = room / 4;
    assert_true(method->fits(site, &call));
    assert_true(method->step(site, &call, 0, &step));
    assert_int_equal(step.blocks, site->layout.n_blocks);
    assert_int_equal(step.exchange.units * step.threads * 16, slot);
    for (call.bind.count = 1; call.bind.count < room / 4; call.bind.count += call.bind.count / 3 + 1)
        assert_true(method->fits(site, &call));
    call.bind.count = room / 4 + 1;
    assert_false(method->fits(site, &call));
}

/* What a launch by sentinels that relay has no room for goes by another one, whose grid is that of the rest. */
static void relays_are_cut(const struct gpu_site *site)
{
    const size_t most = (size_t)(site->n - 1) * site->layout.n_blocks * site->layout.sentinel_bytes;
    struct tutti_backend_call call = {.bind = {.dtype = TUTTI_UINT8},
                                      .info = {.kind = TUTTI_BROADCAST, .dtype = TUTTI_UINT8, .op = -1}};
    static struct gpu_step step;
    for (call.bind.count = 1; call.bind.count < 3 * most; call.bind.count += call.bind.count / 3 + 1) {
        size_t sent = 0;
        assert_true(gpu_sentinel_relay.fits(site, &call));
        for (uint32_t i = 0; gpu_sentinel_relay.step(site, &call, i, &step); i++) {
            assert_true(i < 3 && step.blocks <= site->layout.n_blocks);
            for (uint32_t q = 0; q < site->n; q++) {
                assert_true(step.exchange.send[q].bytes <=
                            (size_t)step.blocks * step.threads * step.exchange.units * 16);
                sent += step.exchange.send[q].bytes;
            }
        }
        assert_int_equal(sent, call.bind.count); /* all of it, by the root */
    }
}

/* Whatever rings there are, a launch can fill them: one exchange the slots, two their halves. */
static void rings_are_filled(void **state)
{
    struct gpu_site site;
    (void)state;
    memset(&site, 0, sizeof(site));
    memset(site.has, true, sizeof(site.has));
    for (site.n = 2; site.n <= GPU_MAX_RANKS; site.n++) {
        for (size_t budget = (size_t)4 << 20; budget <= (size_t)1 << 30; budget += budget / 2) {
            for (uint32_t blocks = GPU_LEAST_BLOCKS; blocks <= GPU_MAX_BLOCKS; blocks *= 2) {
                if (!gpu_layout(site.n, budget, blocks, &site.layout, &site.bounce_bytes)) continue;
                site.speed = gpu_speed_known("", site.n);
                ends_at(&site, TUTTI_ALL_GATHER, &gpu_sentinel, 1, site.layout.sentinel_bytes);
                if (site.n == 2) continue;
                ends_at(&site, TUTTI_ALL_REDUCE, &gpu_sentinel2, site.n, gpu_phase_bytes(&site.layout));
                relays_are_cut(&site);
            }
        }
    }
}

/* ---- broadcasts in windows ---- */

/* To how many the rank sends; all of it, if it is to one. */
static uint32_t sends_to(const struct gpu_step *step, size_t bytes)
{
    uint32_t n = 0;
    for (uint32_t q = 0; q < GPU_MAX_RANKS; q++) n += step->direct.to[q] != NULL;
    for (uint32_t q = 0; q < GPU_MAX_RANKS && n == 1; q++)
        assert_int_equal(step->direct.send[q].bytes, step->direct.to[q] ? bytes : 0);
    return n;
}

/* Each rank but the last sends all of it to one, by grids that are equal on all. */
static void broadcast_goes(uint32_t n, uint32_t n_blocks, size_t bytes)
{
    static _Alignas(16) char windows[GPU_MAX_RANKS][16];
    static struct gpu_step step, first;
    const uint32_t root = n / 2;
    struct gpu_site site = {.n = n, .speed = gpu_speed_known("", n)};
    struct tutti_backend_call call = {
        .bind = {.dtype = TUTTI_UINT8, .count = bytes},
        .info = {.kind = TUTTI_BROADCAST, .dtype = TUTTI_UINT8, .op = -1, .root = (int32_t)root}};
    memset(site.has, true, sizeof(site.has));
    assert_true(gpu_layout(n, GPU_SCRATCH_DEFAULT, n_blocks, &site.layout, &site.bounce_bytes));
    for (uint32_t q = 0; q < n; q++) site.peers[q] = windows[q];
    for (site.me = 0; site.me < n; site.me++) {
        site.own = site.peers[site.me];
        call.bind.output = site.own;
        const uint32_t hop = (site.me + n - root) % n;
        assert_true(gpu_direct.fits(&site, &call));
        assert_true(gpu_direct.step(&site, &call, 0, &step));
        if (site.me == 0) first = step;
        assert_int_equal(sends_to(&step, bytes), hop < n - 1);
        assert_int_equal(step.direct.relays, hop > 0 && hop < n - 1 ? 1 + (site.me + n - 1) % n : 0);
        assert_int_equal(step.blocks, first.blocks);
        assert_int_equal(step.direct.piece_bytes, first.direct.piece_bytes);
        assert_true(step.blocks <= n_blocks);
    }
    /* What the root has on its way at once, of what others wait for. */
    const size_t at_once = (size_t)first.blocks * GPU_DIRECT_THREADS / 32 * first.direct.piece_bytes;
    if (n > 2) assert_true(at_once <= (size_t)4 << 20);
}

static void broadcasts_are_chains(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= GPU_MAX_RANKS; n++)
        for (uint32_t n_blocks = 8; n_blocks <= GPU_MAX_BLOCKS; n_blocks *= 2)
            for (size_t bytes = 1; bytes <= (size_t)1 << 30; bytes = 5 * bytes + 3) broadcast_goes(n, n_blocks, bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(choices), cmocka_unit_test(ordinary),
                                       cmocka_unit_test(rings_are_filled), cmocka_unit_test(broadcasts_are_chains)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
