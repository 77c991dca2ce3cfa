/* SPDX-License-Identifier: BSD-3-Clause */
/* Moves by tiles that go on from where they come: from every root, through rings that are smaller than the messages,
 * between other moves, and with ranks that do not come. What is around the buffers stays as it was. */
#include "cuda/support/rig.h"

#include "base/base.h"

#include <string.h>

enum { EDGE = 64, TILE = GPU_LEAST_TILE }; /* bytes around buffers that nobody may touch */

/* A call of all ranks: a buffer each, what is sent of it, and what has to be there afterwards. */
struct scene {
    struct rig *rig;
    struct gpu_exchange x[GPU_MAX_RANKS];
    size_t bytes;
    uint32_t skew[GPU_MAX_RANKS], root;
    unsigned char *want[GPU_MAX_RANKS]; /* with the edges */
    char *device[GPU_MAX_RANKS];
    const char *name;
};

static uint64_t seed;

static uint64_t below(uint64_t n)
{
    return tutti_random64(&seed) % n;
}

static size_t room(const struct scene *s)
{
    return s->bytes + 16 + 2 * EDGE;
}

static unsigned char *want_of(const struct scene *s, uint32_t r)
{
    return s->want[r] + EDGE + s->skew[r];
}

static void scene_open(struct scene *s, struct rig *rig, size_t bytes, bool aligned)
{
    *s = (struct scene){.rig = rig, .bytes = bytes};
    for (uint32_t r = 0; r < rig->n; r++) {
        s->skew[r] = aligned ? 0 : (uint32_t)below(16);
        s->want[r] = malloc(room(s));
        assert_non_null(s->want[r]);
        for (size_t i = 0; i < room(s); i++) s->want[r][i] = (unsigned char)tutti_random64(&seed);
        s->device[r] = rig_alloc(rig, r, room(s));
        rig_copy(rig, r, s->device[r], s->want[r], room(s));
        s->x[r] = (struct gpu_exchange){.call = rig_call(rig, r)};
        s->x[r].in = s->x[r].out = s->device[r] + EDGE + s->skew[r];
    }
}

/* A share for each rank but the root, which sends it on to the rest; the last ones may be short, or empty. */
static struct gpu_part share(const struct scene *s, uint32_t root, uint32_t r)
{
    const size_t each = (s->bytes / (s->rig->n - 1) + 128) / 128 * 128, at = (r > root ? r - 1 : r) * each;
    const size_t begin = at < s->bytes ? at : s->bytes, left = s->bytes - begin;
    return (struct gpu_part){begin, left < each ? left : each};
}

static void lay_relay(struct scene *s, uint32_t root)
{
    s->name = "relay", s->root = root;
    for (uint32_t r = 0; r < s->rig->n; r++) {
        if (r == root) continue;
        s->x[r].relays = 1 + root;
        s->x[r].recv[root] = s->x[root].send[r] = share(s, root, r);
        for (uint32_t q = 0; q < s->rig->n; q++)
            if (q != root && q != r) s->x[r].send[q] = s->x[q].recv[r] = share(s, root, r);
        memcpy(want_of(s, r), want_of(s, root), s->bytes);
    }
}

/* All to all others, in place. */
static void lay_gather(struct scene *s)
{
    const uint32_t n = s->rig->n;
    const size_t each = s->bytes / n;
    s->name = "gather";
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t q = 0; q < n; q++) {
            s->x[r].send[q] = (struct gpu_part){r * each, each};
            s->x[r].recv[q] = (struct gpu_part){q * each, each};
            if (q != r) memcpy(want_of(s, r) + q * each, want_of(s, q) + q * each, each);
        }
    }
}

static void launch(const struct scene *s, uint32_t r)
{
    rig_launch_tiles(s->rig, &s->x[r], "move");
}

static void launch_all(const struct scene *s)
{
    const uint32_t first = (uint32_t)below(s->rig->n);
    for (uint32_t k = 0; k < s->rig->n; k++) launch(s, (first + k) % s->rig->n);
}

static void check(const struct scene *s)
{
    unsigned char *got = malloc(room(s));
    assert_non_null(got);
    for (uint32_t r = 0; r < s->rig->n; r++) {
        rig_copy(s->rig, r, got, s->device[r], room(s));
        for (size_t i = 0; i < room(s); i++) {
            if (got[i] != s->want[r][i])
                fail_msg("%s of %u ranks, root %u: byte %zd of rank %u's %zu is %u, not %u", s->name, s->rig->n,
                         s->root, (ptrdiff_t)i - EDGE - (ptrdiff_t)s->skew[r], r, s->bytes, got[i], s->want[r][i]);
        }
    }
    free(got);
}

static void scene_close(struct scene *s)
{
    for (uint32_t r = 0; r < s->rig->n; r++) {
        rig_free(s->rig, r, s->device[r]);
        free(s->want[r]);
    }
}

/* Rings hold n_blocks * n_tiles tiles: messages go around them several times. */
static void open_ranks(struct rig *rig, uint32_t n)
{
    const struct rig_shape shape = {.n = n,
                                    .n_blocks = 1 + n % 3,
                                    .tile_bytes = n % 2 ? TILE : 4 * TILE,
                                    .n_tiles = 2 + n / 4,
                                    .n_devices = n % 2 ? 1 : rig_devices()};
    rig_open(rig, &shape);
}

static void relay(struct rig *rig, uint32_t root, size_t bytes, bool aligned)
{
    struct scene s;
    scene_open(&s, rig, bytes, aligned);
    lay_relay(&s, root);
    launch_all(&s);
    rig_sync(rig);
    check(&s);
    scene_close(&s);
}

static void test_every_root(void **state)
{
    (void)state;
    static const size_t sizes[] = {0,        1,        15,       16,           17,        TILE - 1,       TILE,
                                   TILE + 1, TILE + 8, 2 * TILE, 3 * TILE + 5, 17 * TILE, 40 * TILE + 333};
    size_t turn = 0;
    for (uint32_t n = 3; n <= 8; n++) {
        struct rig rig;
        open_ranks(&rig, n);
        for (uint32_t root = 0; root < n; root++) {
            const size_t tries = rig_times(TUTTI_ARRAY_LEN(sizes), 2, n < 6);
            for (size_t i = 0; i < tries; i++, turn++)
                relay(&rig, root, sizes[turn % TUTTI_ARRAY_LEN(sizes)], turn % 2);
        }
        relay(&rig, 0, 24 * TILE, true);
        rig_close(&rig);
    }
}

/* Behind one another without a pause: slots and counts go on, whoever is the root, whatever lies between. */
static void test_calls_in_a_row(void **state)
{
    (void)state;
    enum { CALLS = 16 };
    for (uint32_t n = 3; n <= 5; n += rig_times(1, 1, 2)) {
        struct scene scenes[CALLS];
        struct rig rig;
        open_ranks(&rig, n);
        for (uint32_t c = 0; c < CALLS; c++) {
            scene_open(&scenes[c], &rig, below(12 * TILE), below(2));
            if (c % 3 == 2)
                lay_gather(&scenes[c]);
            else
                lay_relay(&scenes[c], (uint32_t)below(n));
        }
        for (uint32_t c = 0; c < CALLS; c++) launch_all(&scenes[c]);
        rig_sync(&rig);
        for (uint32_t c = 0; c < CALLS; c++) {
            check(&scenes[c]);
            scene_close(&scenes[c]);
        }
        rig_close(&rig);
    }
}

/* All wait for what that rank should send on, or for room there. */
static void test_who_waits_in_vain_says_so(void **state)
{
    (void)state;
    struct rig rig;
    struct scene s;
    open_ranks(&rig, 5);
    scene_open(&s, &rig, 40 * TILE, false);
    lay_relay(&s, 3);
    for (uint32_t r = 0; r < rig.n; r++) {
        s.x[r].call.timeout_ns = 50 * 1000000;
        s.x[r].call.seq = 77;
        if (r != 0) launch(&s, r);
    }
    rig_await(&rig);
    assert_int_equal(rig.control->stop, GPU_TIMEOUT);
    assert_int_equal(rig.control->report, GPU_REPORT(77, 0));
    launch(&s, 0); /* too late: it leaves at once, whatever it finds */
    rig_await(&rig);
    scene_close(&s);
    rig_close(&rig);
}

static void test_the_host_stops_all(void **state)
{
    (void)state;
    struct rig rig;
    struct scene s;
    open_ranks(&rig, 4);
    scene_open(&s, &rig, 100 * TILE, false);
    lay_relay(&s, 1);
    for (uint32_t r = 0; r < rig.n; r++) {
        s.x[r].call.timeout_ns = 0;
        if (r != 2) launch(&s, r);
    }
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
        cmocka_unit_test(test_every_root),
        cmocka_unit_test(test_calls_in_a_row),
        cmocka_unit_test(test_who_waits_in_vain_says_so),
        cmocka_unit_test(test_the_host_stops_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
