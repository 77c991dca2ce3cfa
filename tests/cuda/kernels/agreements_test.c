/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels that agree on the way of a call: calls behind one another, straight and by tiles as it comes, whose addresses
 * are given or looked up; all ranks of a call go one way, which the device counts, by as many blocks as the rank offers
 * that offers the fewest; some by a launch that arrives ahead; counts that wrap; and ranks that come late or never.
 * Whole numbers, so that sums are exact. */
#include "cuda/support/rig.h"
#include "reference.h"

#include "base/base.h"

#include <string.h>
#include <unistd.h>

enum { CALLS = 12, MOST = 3000, THREADS = GPU_TILE_THREADS }; /* floats of a block */

#define LATE_NS (UINT64_C(1000000) * (rig_is_slow() ? 400 : 50))

static uint64_t seed;

static uint64_t below(uint64_t n)
{
    return tutti_random64(&seed) % n;
}

struct side {
    struct gpu_mapped x;
    float *in, *out; /* n blocks each */
    struct gpu_known *known;
};
struct call {
    struct rig *rig;
    bool sums, straight;
    size_t count; /* a block's; a sum is of n of them */
    uint32_t data;
    struct side sides[GPU_MAX_RANKS];
};

static float value(const struct call *c, uint32_t rank, size_t i)
{
    return (float)((i * 7 + rank * 13 + c->data * 29) % 101);
}

static struct gpu_part shard(const struct call *c, uint32_t k)
{
    const uint64_t bytes = c->count * 4 * c->rig->n, each = (c->count * 4 + 127) / 128 * 128;
    const uint64_t at = k * each < bytes ? k * each : bytes;
    return (struct gpu_part){at, bytes - at < each ? bytes - at : each};
}

/* By tiles: a gather, or the first half of an all_reduce. Straight: the same. */
static void lay(struct call *c, uint32_t me)
{
    struct side *s = &c->sides[me];
    struct gpu_mapped *x = &s->x;
    struct gpu_exchange *e = &x->exchange;
    const uint64_t block = c->count * 4;
    memset(x, 0, sizeof *x);
    e->call = x->direct.call = rig_call(c->rig, me);
    e->in = (const char *)s->in, e->out = (char *)s->out;
    if (c->sums) e->out += shard(c, me).at;
    for (uint32_t q = 0; q < c->rig->n; q++) {
        char *to = (char *)s->out + me * block;
        e->send[q] = c->sums ? shard(c, q) : (struct gpu_part){0, block};
        e->recv[q] = c->sums ? (struct gpu_part){0, shard(c, me).bytes} : (struct gpu_part){q * block, block};
        x->direct.send[q] = (struct gpu_part){0, block};
        x->direct.to[q] = q == me ? to : (char *)((uintptr_t)to + GPU_APART);
    }
    e->result_bytes = c->sums ? shard(c, me).bytes : 0;
    x->direct.in = (const char *)s->in, x->direct.alike = 1, x->direct.piece_bytes = 512 << (c->data % 3);
    x->spreads = c->sums;
    x->needs = c->sums ? 1u << GPU_INPUT | 1u << GPU_OUTPUT : 1u << GPU_OUTPUT;
    x->blocks = 1 + (uint32_t)below(c->rig->layout.n_blocks);
}

/* Peers of this process have buffers where their owners have them. Given, or looked up in memory of the host. */
static void place(struct call *c, uint32_t me, uint32_t which, bool is_known)
{
    struct side *s = &c->sides[me];
    struct gpu_place *place = &s->x.places[which];
    struct gpu_known *known = &s->known[which];
    char *buffer = (char *)(which == GPU_INPUT ? s->in : s->out);
    const bool looked_up = below(2);
    for (uint32_t q = 0; q < c->rig->n; q++) {
        known->there[q] = (uint64_t)(uintptr_t)buffer - 64;
        if (is_known && !looked_up) place->there[q] = (uint64_t)(uintptr_t)buffer;
    }
    known->number = 5;
    place->at = 64, place->number = is_known ? 5 : 4;
    if (looked_up) place->known = known;
}

static void call_open(struct call *c, struct rig *rig, bool sums, bool straight)
{
    *c = (struct call){.rig = rig, .sums = sums, .straight = straight, .data = (uint32_t)below(1000)};
    c->count = 4 * (1 + below(MOST / 4));
    const size_t bytes = c->count * 4 * rig->n;
    const uint32_t lacks = (uint32_t)below(rig->n), what = sums ? (uint32_t)below(2) : GPU_OUTPUT;
    for (uint32_t r = 0; r < rig->n; r++) {
        struct side *s = &c->sides[r];
        void *pinned;
        float *data = malloc(bytes);
        assert_non_null(data);
        s->in = rig_alloc(rig, r, bytes), s->out = rig_alloc(rig, r, bytes);
        assert_int_equal(tutti_cuda_alloc_host(rig->gpus[r], GPU_PLACES * sizeof *s->known, &pinned), TUTTI_OK);
        s->known = pinned;
        for (size_t i = 0; i < c->count * rig->n; i++) data[i] = value(c, r, i);
        rig_copy(rig, r, s->in, data, bytes);
        free(data);
        lay(c, r);
        for (uint32_t p = 0; p < GPU_PLACES; p++) place(c, r, p, straight || r != lacks || p != what);
    }
}

static void call_close(const struct call *c)
{
    for (uint32_t r = 0; r < c->rig->n; r++) {
        rig_free(c->rig, r, c->sides[r].in);
        rig_free(c->rig, r, c->sides[r].out);
        tutti_cuda_free_host(c->rig->gpus[r], c->sides[r].known);
    }
}

static void call_launch(struct call *c, uint32_t r)
{
    if (below(2)) {
        rig_launch(c->rig, r, rig_kernel(c->rig, r, "mapped", "arrive"), 1, 32, &c->sides[r].x);
        c->sides[r].x.posted = 1;
    }
    rig_launch(c->rig, r, rig_kernel(c->rig, r, "mapped", c->sums ? "float32_sum" : "move"), c->rig->layout.n_blocks,
               THREADS, &c->sides[r].x);
}

static void call_check(const struct call *c)
{
    const size_t n = c->count * c->rig->n;
    float *got = malloc(n * 4);
    assert_non_null(got);
    for (uint32_t r = 0; r < c->rig->n; r++) {
        rig_copy(c->rig, r, got, c->sides[r].out, n * 4);
        for (size_t i = 0; i < n; i++) {
            float want = c->sums ? 0 : value(c, (uint32_t)(i / c->count), i % c->count);
            for (uint32_t q = 0; q < c->rig->n && c->sums; q++) want += value(c, q, i);
            if (got[i] != want)
                fail_msg("%s %s, %u ranks, count %zu: element %zu of rank %u is %g, not %g",
                         c->sums ? "all_reduce" : "all_gather", c->straight ? "straight" : "by tiles", c->rig->n,
                         c->count, i, r, (double)got[i], (double)want);
        }
    }
    free(got);
}

static void open_ranks(struct rig *rig, uint32_t n)
{
    const struct rig_shape shape = {.n = n,
                                    .n_blocks = n > 8 ? 1 : 3,
                                    .line_bytes = 1024,
                                    .sentinel_bytes = 2048,
                                    .tile_bytes = GPU_LEAST_TILE,
                                    .n_tiles = 2,
                                    .n_devices = n % 2 ? 1 : rig_devices()};
    rig_open(rig, &shape);
}

/* Call by call, or rank by rank. All ranks of a rig count in one place of the host: the last one's count is all ranks'.
 */
static void in_a_row(struct rig *rig)
{
    static struct call calls[CALLS];
    uint64_t n_straight = 0;
    for (uint32_t c = 0; c < CALLS; c++) {
        call_open(&calls[c], rig, below(2), below(3) > 0);
        n_straight += calls[c].straight;
    }
    for (uint32_t i = 0; i < rig->n * CALLS; i++)
        call_launch(&calls[rig->n % 2 ? i % CALLS : i / rig->n], rig->n % 2 ? i / CALLS : i % rig->n);
    rig_sync(rig);
    assert_int_equal(rig->control->straight, n_straight);
    assert_int_equal(rig->control->by_tiles, CALLS - n_straight);
    for (uint32_t c = 0; c < CALLS; c++) {
        call_check(&calls[c]);
        call_close(&calls[c]);
    }
}

static void test_calls_in_a_row(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 8; n += n < 4 ? 1 : 4) {
        struct rig rig;
        open_ranks(&rig, n);
        in_a_row(&rig);
        rig_close(&rig);
    }
}

static void test_counts_wrap(void **state)
{
    (void)state;
    const uint32_t count = UINT32_MAX - 4;
    struct rig rig;
    open_ranks(&rig, 3);
    for (uint32_t r = 0; r < rig.n; r++)
        for (uint32_t b = 0; b < rig.layout.n_blocks; b++)
            rig_copy(&rig, r, rig.scratch[r] + rig.layout.agreements + 4 * b, &count, 4);
    in_a_row(&rig);
    rig_close(&rig);
}

static void test_nobody_ends_before_all_have_come(void **state)
{
    (void)state;
    struct rig rig;
    open_ranks(&rig, 3);
    for (int k = 0; k < 4; k++) {
        struct call c;
        call_open(&c, &rig, k % 2, k / 2);
        for (uint32_t r = 0; r < rig.n; r++) {
            for (uint32_t q = 0; q < r; q++)
                assert_int_equal(tutti_cuda_stream_query(rig.gpus[q], rig.streams[q]), TUTTI_PENDING);
            call_launch(&c, r);
            usleep(rig_is_slow() ? 20000 : 2000);
        }
        rig_sync(&rig);
        call_check(&c);
        call_close(&c);
    }
    rig_close(&rig);
}

static void test_who_waits_in_vain_says_so(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        struct rig rig;
        struct call c;
        open_ranks(&rig, 3);
        call_open(&c, &rig, k % 2, k / 2);
        for (uint32_t r = 0; r < 2; r++) {
            struct gpu_call *call = &c.sides[r].x.exchange.call;
            call->seq = 77, call->timeout_ns = r == 1 ? LATE_NS : 0;
            call_launch(&c, r);
        }
        rig_await(&rig);
        assert_int_equal(rig.control->stop, GPU_TIMEOUT);
        assert_int_equal(rig.control->report, GPU_REPORT(77, 2));
        call_launch(&c, 2); /* too late: it leaves, whatever it finds */
        rig_await(&rig);
        call_close(&c);
        rig_close(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_in_a_row),
        cmocka_unit_test(test_counts_wrap),
        cmocka_unit_test(test_nobody_ends_before_all_have_come),
        cmocka_unit_test(test_who_waits_in_vain_says_so),
    };
    seed = rig_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
