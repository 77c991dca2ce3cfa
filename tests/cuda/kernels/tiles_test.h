/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TUTTI_TESTS_CUDA_TILES_TEST_H
#define TUTTI_TESTS_CUDA_TILES_TEST_H

/* For the tests of kernels of tiles: shapes whose rings are smaller than the messages, and scenes, which also see that
 * what is around the results stays as it was. */

#include "cuda/support/rig.h"

#include "base/base.h"

#include <string.h>

enum { EDGE = 64, TILE = GPU_LEAST_TILE }; /* bytes around buffers that nobody may touch */

/* What all ranks do at once: buffers with known bytes, exchanges, and what has to be there afterwards. */
struct scene {
    struct rig *rig;
    struct gpu_exchange x[GPU_MAX_RANKS];
    size_t in_bytes[GPU_MAX_RANKS], out_bytes[GPU_MAX_RANKS];
    unsigned char *in[GPU_MAX_RANKS], *want[GPU_MAX_RANKS]; /* from the first byte of the buffer */
    char *device_in[GPU_MAX_RANKS], *device_out[GPU_MAX_RANKS];
    uint32_t in_skew, out_skew;
    bool in_place;
    const char *name;
};

static uint64_t seed;

static inline uint64_t below(uint64_t n)
{
    return tutti_random64(&seed) % n;
}

/* The cases of moves and reductions take more than seven minutes under racecheck: there a fourth of them, others each
 * time. */
static inline bool is_left_out(void)
{
    return (rig_is_instrumented() || test_is_sampled()) && below(4) != 0;
}

static inline unsigned char *random_bytes(size_t n)
{
    unsigned char *bytes = malloc(n + 8);
    assert_non_null(bytes);
    for (size_t i = 0; i < n; i += 8) {
        const uint64_t v = tutti_random64(&seed);
        memcpy(bytes + i, &v, 8);
    }
    return bytes;
}

static inline size_t room(size_t bytes)
{
    return bytes + 16 + 2 * EDGE;
}

/* Buffers of s->in_bytes and out_bytes. */
static inline void scene_open(struct scene *s)
{
    for (uint32_t r = 0; r < s->rig->n; r++) {
        s->x[r] = (struct gpu_exchange){.call = rig_call(s->rig, r)};
        s->want[r] = random_bytes(room(s->out_bytes[r]));
        s->in[r] = s->in_place ? malloc(room(s->out_bytes[r])) : random_bytes(room(s->in_bytes[r]));
        s->device_out[r] = rig_alloc(s->rig, r, room(s->out_bytes[r]));
        s->device_in[r] = s->in_place ? s->device_out[r] : rig_alloc(s->rig, r, room(s->in_bytes[r]));
        s->x[r].out = s->device_out[r] + EDGE + s->out_skew;
        s->x[r].in = s->in_place ? s->x[r].out : s->device_in[r] + EDGE + s->in_skew;
    }
}

static inline unsigned char *in_of(const struct scene *s, uint32_t r)
{
    return s->in[r] + EDGE + (s->in_place ? s->out_skew : s->in_skew);
}

static inline unsigned char *want_of(const struct scene *s, uint32_t r)
{
    return s->want[r] + EDGE + s->out_skew;
}

/* Brings the buffers to the devices. */
static inline void scene_upload(struct scene *s)
{
    for (uint32_t r = 0; r < s->rig->n; r++) {
        if (s->in_place)
            memcpy(s->in[r], s->want[r], room(s->out_bytes[r]));
        else
            rig_copy(s->rig, r, s->device_in[r], s->in[r], room(s->in_bytes[r]));
        rig_copy(s->rig, r, s->device_out[r], s->want[r], room(s->out_bytes[r]));
    }
}

static inline void scene_launch(const struct scene *s, const char *reducer)
{
    for (uint32_t r = 0; r < s->rig->n; r++) rig_launch_tiles(s->rig, &s->x[r], reducer);
}

static inline void scene_check(const struct scene *s)
{
    for (uint32_t r = 0; r < s->rig->n; r++) {
        const size_t bytes = room(s->out_bytes[r]);
        const unsigned char *want = s->want[r];
        unsigned char *got = malloc(bytes + 1); /* never of nothing, as far as the analyzer knows */
        if (!got || !want) {
            free(got);
            fail();
            return;
        }
        rig_copy(s->rig, r, got, s->device_out[r], bytes);
        for (size_t i = 0; i < bytes; i++) {
            if (got[i] != want[i])
                fail_msg("%s, %u ranks: byte %zd of rank %u's %zu is %u, not %u", s->name, s->rig->n,
                         (ptrdiff_t)i - EDGE - (ptrdiff_t)s->out_skew, r, s->out_bytes[r], got[i], want[i]);
        }
        free(got);
    }
}

static inline void scene_close(struct scene *s)
{
    for (uint32_t r = 0; r < s->rig->n; r++) {
        if (!s->in_place) rig_free(s->rig, r, s->device_in[r]);
        rig_free(s->rig, r, s->device_out[r]);
        free(s->in[r]);
        free(s->want[r]);
    }
}

static const struct rig_shape shapes[] = {
    {.n = 1, .n_blocks = 2, .tile_bytes = TILE, .n_tiles = 2},
    {.n = 2, .n_blocks = 3, .tile_bytes = TILE, .n_tiles = 2},
    {.n = 2, .n_blocks = 1, .tile_bytes = 2 * TILE, .n_tiles = 3, .n_devices = 2},
    {.n = 3, .n_blocks = 2, .tile_bytes = TILE, .n_tiles = 5},
    {.n = 4, .n_blocks = 2, .tile_bytes = 4 * TILE, .n_tiles = 2, .n_devices = 2},
    {.n = 8, .n_blocks = 1, .tile_bytes = TILE, .n_tiles = 2},
};

static inline void open_shape(struct rig *rig, size_t i)
{
    struct rig_shape shape = shapes[i];
    if (shape.n_devices > rig_devices()) shape.n_devices = 1;
    rig_open(rig, &shape);
}

#endif
