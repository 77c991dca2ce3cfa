/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels of tiles that move: every pattern of parts, and parts that go on from where they come, through rings that are
 * smaller than the messages; calls in a row, counts that wrap, and who waits in vain. What is around the results stays
 * as it was. */
#include "tiles_test.h"

/* What the moves of s->x leave behind. */
static void want_moves(struct scene *s)
{
    for (uint32_t r = 0; r < s->rig->n; r++) {
        for (uint32_t q = 0; q < s->rig->n; q++) {
            const struct gpu_part *to = &s->x[r].recv[q];
            assert_int_equal(to->bytes, s->x[q].send[r].bytes);
            if (to->bytes == 0) continue;
            assert_true(to->at + to->bytes <= s->out_bytes[r]);
            memcpy(want_of(s, r) + to->at, in_of(s, q) + s->x[q].send[r].at, to->bytes);
        }
    }
}

/* ---- moves: a pattern says how many bytes p sends to q ---- */
typedef size_t (*pattern)(uint32_t p, uint32_t q, uint32_t n, size_t bytes);

static size_t to_all(uint32_t p, uint32_t q, uint32_t n, size_t bytes)
{
    (void)p, (void)q, (void)n;
    return bytes;
}
static size_t unequal(uint32_t p, uint32_t q, uint32_t n, size_t bytes)
{
    (void)n;
    return (p * 7 + q * 3) % 4 == 0 ? 0 : bytes * (p + q + 1) / (q + 2) + p;
}
static size_t from_first(uint32_t p, uint32_t q, uint32_t n, size_t bytes)
{
    (void)n;
    return p == 0 ? bytes + q : 0;
}
static size_t to_last(uint32_t p, uint32_t q, uint32_t n, size_t bytes)
{
    return q == n - 1 ? bytes + 100 * p : 0;
}
static size_t one_way(uint32_t p, uint32_t q, uint32_t n, size_t bytes)
{
    (void)n;
    return p % 2 == 0 && q == p + 1 ? bytes : 0;
}
static size_t to_next(uint32_t p, uint32_t q, uint32_t n, size_t bytes)
{
    return q == (p + 1) % n ? bytes : 0;
}
static const struct {
    const char *name;
    pattern bytes;
} patterns[] = {
    {"all_to_all", to_all}, {"all_to_all_v", unequal}, {"scatter_v", from_first},
    {"gather_v", to_last},  {"pairs", one_way},        {"ring", to_next},
};

/* Parts lie one after another, with `gap` bytes between them. */
static void lay_parts(struct scene *s, pattern bytes_of, size_t bytes, size_t gap)
{
    for (uint32_t r = 0; r < s->rig->n; r++) {
        s->in_bytes[r] = s->out_bytes[r] = 0;
        for (uint32_t q = 0; q < s->rig->n; q++) {
            s->in_bytes[r] += bytes_of(r, q, s->rig->n, bytes) + gap;
            s->out_bytes[r] += bytes_of(q, r, s->rig->n, bytes) + gap;
        }
    }
    scene_open(s);
    for (uint32_t r = 0; r < s->rig->n; r++) {
        uint64_t in = 0, out = 0;
        for (uint32_t q = 0; q < s->rig->n; q++) {
            const size_t there = bytes_of(r, q, s->rig->n, bytes), back = bytes_of(q, r, s->rig->n, bytes);
            s->x[r].send[q] = (struct gpu_part){in, there};
            s->x[r].recv[q] = (struct gpu_part){out, back};
            in += there + gap;
            out += back + gap;
        }
    }
    scene_upload(s);
    want_moves(s);
}

static void move(struct rig *rig, size_t p, size_t bytes, uint32_t in_skew, uint32_t out_skew)
{
    struct scene s = {.rig = rig, .in_skew = in_skew, .out_skew = out_skew, .name = patterns[p].name};
    lay_parts(&s, patterns[p].bytes, bytes, below(40));
    scene_launch(&s, "move");
    rig_sync(rig);
    scene_check(&s);
    scene_close(&s);
}

/* Sizes around the edges of units, tiles and grids; the rings hold n_blocks * n_tiles tiles. */
static const size_t sizes[] = {1, 15, 16, 17, TILE - 1, TILE, TILE + 16, 3 * TILE + 5, 9 * TILE, 21 * TILE + 333};

static void test_moves_of_every_pattern(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(shapes); i++) {
        struct rig rig;
        open_shape(&rig, i);
        for (size_t p = 0; p < TUTTI_ARRAY_LEN(patterns); p++) {
            for (size_t b = p % 2; b < TUTTI_ARRAY_LEN(sizes); b += rig_is_slow() ? 2 : 1)
                if (!is_left_out()) move(&rig, p, sizes[b], (uint32_t)below(17) % 16, (uint32_t)below(16));
            if (!is_left_out()) move(&rig, p, 5 * TILE, 0, 0); /* whole units everywhere, when the gap is */
        }
        rig_close(&rig);
    }
}

static void test_moves_at_every_alignment(void **state)
{
    (void)state;
    struct rig rig;
    open_shape(&rig, 1);
    for (uint32_t skew = 0; skew < 16; skew++) {
        if (is_left_out()) continue;
        move(&rig, 0, TILE + 48, skew, 0);
        move(&rig, 0, TILE + 43, 0, skew);
        move(&rig, 0, 2 * TILE + 30, skew, (16 - skew) % 16);
    }
    rig_close(&rig);
}

/* Buffers that are one: gathers read their own part from its place, all_to_all exchanges parts. */
static void move_in_place(struct rig *rig, bool exchanges, size_t bytes, uint32_t skew)
{
    struct scene s = {.rig = rig, .out_skew = skew, .in_place = true, .name = "in place"};
    for (uint32_t r = 0; r < rig->n; r++) s.out_bytes[r] = rig->n * bytes;
    scene_open(&s);
    for (uint32_t r = 0; r < rig->n; r++) {
        for (uint32_t q = 0; q < rig->n; q++) {
            s.x[r].recv[q] = (struct gpu_part){q * bytes, bytes};
            s.x[r].send[q] = exchanges ? s.x[r].recv[q] : (struct gpu_part){r * bytes, bytes};
        }
    }
    scene_upload(&s);
    want_moves(&s);
    scene_launch(&s, "move");
    rig_sync(rig);
    scene_check(&s);
    scene_close(&s);
}

static void test_moves_in_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(shapes); i++) {
        struct rig rig;
        open_shape(&rig, i);
        for (size_t b = 1; b < TUTTI_ARRAY_LEN(sizes); b += 2) {
            if (is_left_out()) continue;
            move_in_place(&rig, true, sizes[b], (uint32_t)below(16));
            move_in_place(&rig, false, sizes[b], (uint32_t)below(16));
        }
        rig_close(&rig);
    }
}

static size_t to_itself(uint32_t p, uint32_t q, uint32_t n, size_t bytes)
{
    (void)n;
    return p == q ? bytes + p : 0;
}

/* By any number of blocks, since nobody else has to agree; then others can agree as before. */
static void test_own_parts_by_few_blocks(void **state)
{
    (void)state;
    struct rig rig;
    open_shape(&rig, 1);
    for (uint32_t blocks = 1; blocks <= rig.layout.n_blocks; blocks++) {
        for (uint32_t skew = 0; skew < 2; skew++) {
            struct scene s = {.rig = &rig, .out_skew = 5 * skew, .name = "own part"};
            lay_parts(&s, to_itself, 37 * TILE + 333, below(40));
            for (uint32_t r = 0; r < rig.n; r++)
                rig_launch(&rig, r, rig_kernel(&rig, r, "tiles", "move"), blocks, GPU_TILE_THREADS, &s.x[r]);
            rig_sync(&rig);
            scene_check(&s);
            scene_close(&s);
        }
        move(&rig, 0, 9 * TILE, 0, 0);
    }
    rig_close(&rig);
}

/* ---- parts that go on: a broadcast of which the root sends each other rank a share ---- */

/* A share for each rank but the root, which sends it on to the rest; the last ones may be short, or empty. */
static struct gpu_part share(uint32_t n, size_t bytes, uint32_t root, uint32_t r)
{
    const size_t each = (bytes / (n - 1) + 128) / 128 * 128, at = (r > root ? r - 1 : r) * each;
    const size_t begin = at < bytes ? at : bytes, left = bytes - begin;
    return (struct gpu_part){begin, left < each ? left : each};
}

static void lay_relay(struct scene *s, uint32_t root, size_t bytes)
{
    const uint32_t n = s->rig->n;
    for (uint32_t r = 0; r < n; r++) s->out_bytes[r] = bytes;
    scene_open(s);
    scene_upload(s);
    for (uint32_t r = 0; r < n; r++) {
        if (r == root) continue;
        s->x[r].relays = 1 + root;
        s->x[r].recv[root] = s->x[root].send[r] = share(n, bytes, root, r);
        for (uint32_t q = 0; q < n; q++)
            if (q != root && q != r) s->x[r].send[q] = s->x[q].recv[r] = share(n, bytes, root, r);
        memcpy(want_of(s, r), want_of(s, root), bytes);
    }
}

static void relay(struct rig *rig, uint32_t root, size_t bytes, uint32_t skew)
{
    struct scene s = {.rig = rig, .out_skew = skew, .in_place = true, .name = "relay"};
    lay_relay(&s, root, bytes);
    scene_launch(&s, "move");
    rig_sync(rig);
    scene_check(&s);
    scene_close(&s);
}

static void test_relays_from_every_root(void **state)
{
    (void)state;
    for (size_t i = 3; i < TUTTI_ARRAY_LEN(shapes); i++) {
        struct rig rig;
        open_shape(&rig, i);
        for (uint32_t root = 0; root < rig.n; root++)
            for (size_t b = 0; b < TUTTI_ARRAY_LEN(sizes); b++)
                if (!is_left_out()) relay(&rig, root, sizes[b], (uint32_t)below(2) * (uint32_t)below(16));
        relay(&rig, 0, 0, 0);
        relay(&rig, 0, 24 * TILE, 0);
        rig_close(&rig);
    }
}

/* Calls behind one another without a pause, each with buffers of its own: slots and counts go on. */
static void test_calls_in_a_row(void **state)
{
    (void)state;
    enum { CALLS = 12 };
    struct scene scenes[CALLS];
    struct rig rig;
    open_shape(&rig, 3);
    for (int c = 0; c < CALLS; c++) {
        const size_t p = below(TUTTI_ARRAY_LEN(patterns));
        const bool relays = c % 3 == 1;
        scenes[c] = (struct scene){
            .rig = &rig, .name = patterns[p].name, .out_skew = (uint32_t)below(3) * 8, .in_place = relays};
        if (relays)
            lay_relay(&scenes[c], (uint32_t)below(rig.n), below(12 * TILE));
        else
            lay_parts(&scenes[c], patterns[p].bytes, below(12 * TILE), 0);
    }
    for (int c = 0; c < CALLS; c++) scene_launch(&scenes[c], "move");
    rig_sync(&rig);
    for (int c = 0; c < CALLS; c++) {
        scene_check(&scenes[c]);
        scene_close(&scenes[c]);
    }
    rig_close(&rig);
}

/* Rank 0 sends to 1 and receives from 2 in one call; 1 receives first from 2, then from 0; 2 sends first to 0, then to
 * 1. Whoever waits for room on the way to 1 has to receive from 2 meanwhile. */
static void test_no_part_waits_for_another(void **state)
{
    (void)state;
    enum { BYTES = 30 * TILE };
    struct rig rig;
    struct scene s = {.rig = &rig, .name = "crossed"};
    open_shape(&rig, 3);
    for (uint32_t r = 0; r < rig.n; r++) s.in_bytes[r] = s.out_bytes[r] = (size_t)rig.n * BYTES;
    scene_open(&s);
    /* [rank][call]: 0 has all in one, 2 sends to 0 and then to 1, 1 receives from 2 and then from 0 */
    struct gpu_exchange x[3][2];
    for (uint32_t r = 0; r < 3; r++) x[r][0] = x[r][1] = s.x[r];
    const struct gpu_part from_2 = {2 * (uint64_t)BYTES, BYTES}, from_0 = {0, BYTES}, whole = {0, BYTES};
    x[0][0].send[1] = x[2][0].send[0] = x[2][1].send[1] = whole;
    x[0][0].recv[2] = x[1][0].recv[2] = from_2;
    x[1][1].recv[0] = from_0;
    scene_upload(&s);
    memcpy(want_of(&s, 0) + from_2.at, in_of(&s, 2), BYTES);
    memcpy(want_of(&s, 1) + from_2.at, in_of(&s, 2), BYTES);
    memcpy(want_of(&s, 1), in_of(&s, 0), BYTES);
    for (uint32_t r = 0; r < 3; r++) {
        for (int c = 0; c < 2; c++) rig_launch_tiles(&rig, &x[r][c], "move");
    }
    rig_sync(&rig);
    scene_check(&s);
    scene_close(&s);
    rig_close(&rig);
}

/* ---- counts, and ends that are none ---- */
static void set_words(const struct rig *rig, uint32_t r, uint64_t at, size_t n, uint32_t value, size_t stride)
{
    for (size_t i = 0; i < n; i++) rig_copy(rig, r, rig->scratch[r] + at + i * stride, &value, sizeof value);
}

static void test_counts_wrap(void **state)
{
    (void)state;
    struct rig rig;
    open_shape(&rig, 3);
    const struct gpu_layout *l = &rig.layout;
    const size_t rings = (size_t)rig.n * l->n_blocks;
    for (uint32_t r = 0; r < rig.n; r++) {
        const uint32_t near = UINT32_MAX - 3;
        set_words(&rig, r, l->sent, rings, near, sizeof(uint64_t));
        set_words(&rig, r, l->received, rings, near, sizeof(uint64_t));
        set_words(&rig, r, l->arrived, rings, near, sizeof(uint32_t));
        set_words(&rig, r, l->returned, rings, near, sizeof(uint32_t));
    }
    for (int k = 0; k < 3; k++) move(&rig, 0, 3 * TILE, 0, 0);
    move(&rig, 1, 11 * TILE, 0, 0);
    rig_close(&rig);
}

/* Launches all but one: a move to all, or a relay from rank 0. */
static void launch_without(struct scene *s, bool relays, uint32_t missing, uint64_t timeout_ns)
{
    s->in_place = relays;
    if (relays)
        lay_relay(s, 0, 100 * TILE);
    else
        lay_parts(s, to_all, 20 * TILE, 0);
    for (uint32_t r = 0; r < s->rig->n; r++) {
        s->x[r].call.timeout_ns = timeout_ns;
        s->x[r].call.seq = 77;
        if (r != missing) rig_launch_tiles(s->rig, &s->x[r], "move");
    }
}

/* All wait for what that rank should send or send on, or for room there. */
static void test_who_waits_in_vain_says_so(void **state)
{
    (void)state;
    for (int relays = 0; relays < 2; relays++) {
        struct rig rig;
        struct scene s = {.rig = &rig, .name = "rank 1 is missing"};
        open_shape(&rig, 3);
        launch_without(&s, relays, 1, UINT64_C(1000000) * (rig_is_slow() ? 1000 : 50));
        rig_await(&rig);
        assert_int_equal(rig.control->stop, GPU_TIMEOUT);
        assert_int_equal(rig.control->report, GPU_REPORT(77, 1));
        rig_launch_tiles(&rig, &s.x[1], "move"); /* too late: it leaves at once, whatever it finds */
        rig_await(&rig);
        scene_close(&s);
        rig_close(&rig);
    }
}

static void test_the_host_stops_all(void **state)
{
    (void)state;
    struct rig rig;
    struct scene s = {.rig = &rig, .name = "stopped"};
    open_shape(&rig, 4);
    launch_without(&s, true, 2, 0);
    __atomic_store_n(&rig.control->stop, GPU_STOPPED, __ATOMIC_RELEASE);
    rig_await(&rig);
    assert_int_equal(rig.control->report, 0);
    scene_close(&s);
    rig_close(&rig);
}

int main(void)
{
    seed = rig_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moves_of_every_pattern),
        cmocka_unit_test(test_moves_at_every_alignment),
        cmocka_unit_test(test_moves_in_place),
        cmocka_unit_test(test_own_parts_by_few_blocks),
        cmocka_unit_test(test_relays_from_every_root),
        cmocka_unit_test(test_calls_in_a_row),
        cmocka_unit_test(test_no_part_waits_for_another),
        cmocka_unit_test(test_counts_wrap),
        cmocka_unit_test(test_who_waits_in_vain_says_so),
        cmocka_unit_test(test_the_host_stops_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
