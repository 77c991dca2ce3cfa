/* SPDX-License-Identifier: BSD-3-Clause */
/* messages_16 alone: parts for each peer one behind the other, through rings that are smaller than they are, between
 * ranks which have as many of them in a launch as they like, or one by tiles_move_16. */
#include "cuda/support/rig.h"

#include "base/base.h"

#include <string.h>

enum { EDGE = 32, PARTS = 60, MOST = 40 * GPU_LEAST_TILE }; /* EDGE: bytes around parts, which nobody may touch */

/* The same parts in the same order for all ranks, of which each makes launches of runs. */
struct part {
    uint32_t from, to;
    size_t bytes, at[2]; /* where `from` and `to` have it */
};

static uint64_t seed;

static uint64_t below(uint64_t n)
{
    return tutti_random64(&seed) % n;
}

struct scene {
    struct rig rig;
    struct part parts[PARTS];
    size_t bytes[GPU_MAX_RANKS];
    char *device[GPU_MAX_RANKS];
    unsigned char *want[GPU_MAX_RANKS];
};

static void draw(struct scene *s)
{
    memset(s->bytes, 0, sizeof s->bytes);
    for (int i = 0; i < PARTS; i++) {
        struct part *p = &s->parts[i];
        p->from = (uint32_t)below(s->rig.n);
        p->to = (p->from + 1 + (uint32_t)below(s->rig.n - 1)) % s->rig.n;
        p->bytes = 1 + below(below(3) ? 3 * GPU_LEAST_TILE : MOST);
        for (int end = 0; end < 2; end++) {
            size_t *bytes = &s->bytes[end ? p->to : p->from];
            p->at[end] = (*bytes + EDGE + 15) / 16 * 16 + (below(2) ? below(16) : 0);
            *bytes = p->at[end] + p->bytes + EDGE;
        }
    }
}

static void upload(struct scene *s)
{
    for (uint32_t r = 0; r < s->rig.n; r++) {
        s->device[r] = rig_alloc(&s->rig, r, s->bytes[r] + 8);
        s->want[r] = malloc(s->bytes[r] + 8);
        assert_non_null(s->want[r]);
        for (size_t i = 0; i < s->bytes[r]; i += 8) {
            const uint64_t v = tutti_random64(&seed);
            memcpy(s->want[r] + i, &v, 8);
        }
        rig_copy(&s->rig, r, s->device[r], s->want[r], s->bytes[r]);
    }
    for (int i = 0; i < PARTS; i++)
        memcpy(s->want[s->parts[i].to] + s->parts[i].at[1], s->want[s->parts[i].from] + s->parts[i].at[0],
               s->parts[i].bytes);
}

/* A rank's launch: its ends of parts, as lists, and, as long as there is one for each peer, as an exchange. */
struct launch {
    struct gpu_lists lists;
    struct gpu_exchange x;
    uint32_t n, blocks, last[2 * GPU_MAX_RANKS];
    bool single;
};

static void launch_add(const struct scene *s, struct launch *l, const struct part *p, bool receives)
{
    const struct gpu_layout *layout = &s->rig.layout;
    const uint32_t r = receives ? p->to : p->from, q = receives ? p->from : p->to;
    const uint32_t list = receives ? GPU_MAX_RANKS + q : q, part = ++l->n;
    const uint32_t blocks = gpu_tile_blocks(p->bytes, layout->tile_bytes, layout->n_blocks);
    if (blocks > l->blocks) l->blocks = blocks;
    l->lists.parts[part] = (struct gpu_part){(uint64_t)(uintptr_t)s->device[r] + p->at[receives], p->bytes};
    (receives ? l->x.recv : l->x.send)[q] = l->lists.parts[part];
    l->single &= !l->last[list];
    *(l->last[list] ? &l->lists.next[l->last[list]] : &l->lists.first[list]) = (uint8_t)part;
    l->last[list] = part;
}

static void launch_run(const struct scene *s, uint32_t r, const struct launch *l)
{
    if (l->n == 0) return;
    if (l->single && below(2)) return rig_launch_tiles(&s->rig, &l->x, "move");
    void *kernel = s->rig.gpus[r]->ops->gpu->kernel(s->rig.gpus[r], "messages_16");
    rig_launch(&s->rig, r, kernel, l->blocks, GPU_TILE_THREADS, &l->lists);
}

static void rank_run(const struct scene *s, uint32_t r)
{
    const uint64_t most = (uint64_t[]){1, 3, 20, PARTS}[below(4)];
    for (int i = 0; i < PARTS;) {
        struct launch l = {.single = true, .lists.call = rig_call(&s->rig, r), .x.call = rig_call(&s->rig, r)};
        const int end = i + 1 + (int)below(most);
        for (; i < PARTS && i < end; i++) {
            if (s->parts[i].from == r) launch_add(s, &l, &s->parts[i], false);
            if (s->parts[i].to == r) launch_add(s, &l, &s->parts[i], true);
        }
        launch_run(s, r, &l);
    }
}

static void check_and_close(struct scene *s)
{
    for (uint32_t r = 0; r < s->rig.n; r++) {
        unsigned char *got = malloc(s->bytes[r] + 8);
        assert_non_null(got);
        rig_copy(&s->rig, r, got, s->device[r], s->bytes[r]);
        for (size_t i = 0; i < s->bytes[r]; i++)
            if (got[i] != s->want[r][i])
                fail_msg("byte %zu of rank %u's %zu is %u, not %u", i, r, s->bytes[r], got[i], s->want[r][i]);
        free(got);
        free(s->want[r]);
        rig_free(&s->rig, r, s->device[r]);
    }
}

/* As if so many tiles had been sent and received in each ring: as it opens, or so that counts wrap. */
static void set_counts(const struct rig *rig, uint32_t count)
{
    const struct gpu_layout *l = &rig->layout;
    for (uint32_t r = 0; r < rig->n; r++) {
        for (size_t i = 0; i < (size_t)rig->n * l->n_blocks; i++) {
            const uint64_t longs[] = {l->sent, l->received}, words[] = {l->arrived, l->returned};
            for (int k = 0; k < 2; k++) {
                rig_copy(rig, r, rig->scratch[r] + longs[k] + 8 * i, &count, sizeof count);
                rig_copy(rig, r, rig->scratch[r] + words[k] + 4 * i, &count, sizeof count);
            }
        }
    }
}

static void test_lists(void **state)
{
    static const struct rig_shape shapes[] = {
        {.n = 2, .n_blocks = 4, .tile_bytes = 4 * GPU_LEAST_TILE, .n_tiles = 2},
        {.n = 2, .n_blocks = 1, .tile_bytes = GPU_LEAST_TILE, .n_tiles = 3},
        {.n = 3, .n_blocks = 2, .tile_bytes = 2 * GPU_LEAST_TILE, .n_tiles = 2},
        {.n = 5, .n_blocks = 3, .tile_bytes = GPU_LEAST_TILE, .n_tiles = 2},
        {.n = 16, .n_blocks = 2, .tile_bytes = GPU_LEAST_TILE, .n_tiles = 2},
    };
    const int rounds = rig_is_slow() ? 2 : 20;
    (void)state;
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        struct scene s;
        struct rig_shape shape = shapes[k];
        shape.line_bytes = shape.sentinel_bytes = 1024, shape.n_devices = rig_devices();
        if (test_is_sampled() && (k + test_seed()) % 2) continue;
        rig_open(&s.rig, &shape);
        for (int i = 0; i < rounds; i++) {
            if (i == 1) set_counts(&s.rig, UINT32_MAX - 9);
            draw(&s);
            upload(&s);
            for (uint32_t r = 0; r < s.rig.n; r++) rank_run(&s, r);
            rig_sync(&s.rig);
            check_and_close(&s);
        }
        rig_close(&s.rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lists)};
    seed = rig_begin();
    return cmocka_run_group_tests_name("lists of parts", tests, NULL, NULL);
}
