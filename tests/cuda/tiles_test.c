/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels of tiles: every pattern of parts, through rings that are smaller than the messages, against the reference;
 * what is around the results stays as it was. */
#include "cuda/rig.h"
#include "reference.h"

#include "base/base.h"

#include <string.h>

enum { EDGE = 64, TILE = CUDA_LEAST_TILE }; /* bytes around buffers that nobody may touch */

/* What all ranks do at once: buffers with known bytes, exchanges, and what has to be there afterwards. */
struct scene {
    struct rig *rig;
    struct cuda_exchange x[CUDA_MAX_RANKS];
    size_t in_bytes[CUDA_MAX_RANKS], out_bytes[CUDA_MAX_RANKS];
    unsigned char *in[CUDA_MAX_RANKS], *want[CUDA_MAX_RANKS]; /* from the first byte of the buffer */
    char *device_in[CUDA_MAX_RANKS], *device_out[CUDA_MAX_RANKS];
    uint32_t in_skew, out_skew;
    bool in_place;
    const char *name;
};

static uint64_t seed;

static uint64_t below(uint64_t n)
{
    return tutti_random64(&seed) % n;
}

/* All cases take more than seven minutes under racecheck: there a fourth of them, others each time. */
static bool is_left_out(void)
{
    return rig_is_instrumented() && below(4) != 0;
}

static unsigned char *random_bytes(size_t n)
{
    unsigned char *bytes = malloc(n + 8);
    assert_non_null(bytes);
    for (size_t i = 0; i < n; i += 8) {
        const uint64_t v = tutti_random64(&seed);
        memcpy(bytes + i, &v, 8);
    }
    return bytes;
}

static size_t room(size_t bytes)
{
    return bytes + 16 + 2 * EDGE;
}

/* Buffers of s->in_bytes and out_bytes. */
static void scene_open(struct scene *s)
{
    for (uint32_t r = 0; r < s->rig->n; r++) {
        s->x[r] = (struct cuda_exchange){.call = rig_call(s->rig, r)};
        s->want[r] = random_bytes(room(s->out_bytes[r]));
        s->in[r] = s->in_place ? malloc(room(s->out_bytes[r])) : random_bytes(room(s->in_bytes[r]));
        s->device_out[r] = rig_alloc(s->rig, r, room(s->out_bytes[r]));
        s->device_in[r] = s->in_place ? s->device_out[r] : rig_alloc(s->rig, r, room(s->in_bytes[r]));
        s->x[r].out = s->device_out[r] + EDGE + s->out_skew;
        s->x[r].in = s->in_place ? s->x[r].out : s->device_in[r] + EDGE + s->in_skew;
    }
}

static unsigned char *in_of(const struct scene *s, uint32_t r)
{
    return s->in[r] + EDGE + (s->in_place ? s->out_skew : s->in_skew);
}

static unsigned char *want_of(const struct scene *s, uint32_t r)
{
    return s->want[r] + EDGE + s->out_skew;
}

/* Brings the buffers to the devices. */
static void scene_upload(struct scene *s)
{
    for (uint32_t r = 0; r < s->rig->n; r++) {
        if (s->in_place)
            memcpy(s->in[r], s->want[r], room(s->out_bytes[r]));
        else
            rig_copy(s->rig, r, s->device_in[r], s->in[r], room(s->in_bytes[r]));
        rig_copy(s->rig, r, s->device_out[r], s->want[r], room(s->out_bytes[r]));
    }
}

static void scene_launch(const struct scene *s, const char *reducer)
{
    for (uint32_t r = 0; r < s->rig->n; r++) rig_launch_tiles(s->rig, &s->x[r], reducer);
}

static void scene_check(const struct scene *s)
{
    for (uint32_t r = 0; r < s->rig->n; r++) {
        const size_t bytes = room(s->out_bytes[r]);
        unsigned char *got = malloc(bytes);
        assert_non_null(got);
        rig_copy(s->rig, r, got, s->device_out[r], bytes);
        for (size_t i = 0; i < bytes; i++) {
            if (got[i] != s->want[r][i])
                fail_msg("%s, %u ranks: byte %zd of rank %u's %zu is %u, not %u", s->name, s->rig->n,
                         (ptrdiff_t)i - EDGE - (ptrdiff_t)s->out_skew, r, s->out_bytes[r], got[i], s->want[r][i]);
        }
        free(got);
    }
}

static void scene_close(struct scene *s)
{
    for (uint32_t r = 0; r < s->rig->n; r++) {
        if (!s->in_place) rig_free(s->rig, r, s->device_in[r]);
        rig_free(s->rig, r, s->device_out[r]);
        free(s->in[r]);
        free(s->want[r]);
    }
}

/* What the moves of s->x leave behind. */
static void want_moves(struct scene *s)
{
    for (uint32_t r = 0; r < s->rig->n; r++) {
        for (uint32_t q = 0; q < s->rig->n; q++) {
            const struct cuda_part *to = &s->x[r].recv[q];
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
            s->x[r].send[q] = (struct cuda_part){in, there};
            s->x[r].recv[q] = (struct cuda_part){out, back};
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

static const struct rig_shape shapes[] = {
    {.n = 1, .n_blocks = 2, .tile_bytes = TILE, .n_tiles = 2},
    {.n = 2, .n_blocks = 3, .tile_bytes = TILE, .n_tiles = 2},
    {.n = 2, .n_blocks = 1, .tile_bytes = 2 * TILE, .n_tiles = 3, .n_devices = 2},
    {.n = 3, .n_blocks = 2, .tile_bytes = TILE, .n_tiles = 5},
    {.n = 4, .n_blocks = 2, .tile_bytes = 4 * TILE, .n_tiles = 2, .n_devices = 2},
    {.n = 8, .n_blocks = 1, .tile_bytes = TILE, .n_tiles = 2},
};

static void open_shape(struct rig *rig, size_t i)
{
    struct rig_shape shape = shapes[i];
    if (shape.n_devices > rig_devices()) shape.n_devices = 1;
    rig_open(rig, &shape);
}

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
            s.x[r].recv[q] = (struct cuda_part){q * bytes, bytes};
            s.x[r].send[q] = exchanges ? s.x[r].recv[q] : (struct cuda_part){r * bytes, bytes};
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
        scenes[c] = (struct scene){.rig = &rig, .name = patterns[p].name, .out_skew = (uint32_t)below(3) * 8};
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
    struct cuda_exchange x[3][2];
    for (uint32_t r = 0; r < 3; r++) x[r][0] = x[r][1] = s.x[r];
    const struct cuda_part from_2 = {2 * (uint64_t)BYTES, BYTES}, from_0 = {0, BYTES}, whole = {0, BYTES};
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

/* ---- reductions ---- */
enum kind { ALL_REDUCE, REDUCE_SCATTER, REDUCE, SCAN, EXSCAN, N_KINDS };
static const char *const kind_names[] = {"all_reduce", "reduce_scatter", "reduce", "scan", "exscan"};

struct reduction {
    enum kind kind;
    enum tutti_dtype dtype;
    enum tutti_op op;
    size_t count; /* elements; of reduce_scatter: of rank 0's block */
    bool exact;   /* data whose reduction is the same in any order */
};

/* Elements of rank r's result, where they begin in the input, and who contributes. */
static size_t result_count(const struct reduction *f, uint32_t r)
{
    if (f->kind == REDUCE && r != 1) return 0;
    if (f->kind == EXSCAN && r == 0) return 0;
    return f->kind == REDUCE_SCATTER ? f->count + r % 3 * 11 : f->count;
}
static size_t result_from(const struct reduction *f, uint32_t r)
{
    size_t from = 0;
    for (uint32_t q = 0; f->kind == REDUCE_SCATTER && q < r; q++) from += result_count(f, q);
    return from;
}
static bool contributes(const struct reduction *f, uint32_t q, uint32_t r)
{
    return f->kind == SCAN ? q <= r : f->kind == EXSCAN ? q < r : true;
}

static const unsigned char *factor_of(const struct reduction *f)
{
    static unsigned char factor[16];
    const double two = 2;
    memset(factor, 0, sizeof factor);
    if (f->dtype == TUTTI_COMPLEX64)
        ref_encode(TUTTI_FLOAT32, two, factor);
    else if (f->dtype == TUTTI_COMPLEX128)
        ref_encode(TUTTI_FLOAT64, two, factor);
    else if (f->dtype < TUTTI_BOOL)
        factor[0] = 2;
    else
        ref_encode(f->dtype, two, factor);
    return factor;
}

static void lay_reduction(struct scene *s, const struct reduction *f)
{
    const uint32_t n = s->rig->n;
    const size_t size = ref_bytes(f->dtype),
                 all = result_from(f, n - 1) + result_count(f, f->kind == REDUCE ? 1 : n - 1);
    for (uint32_t r = 0; r < n; r++) {
        s->in_bytes[r] = all * size;
        s->out_bytes[r] = s->in_place ? s->in_bytes[r] : result_count(f, r) * size;
    }
    scene_open(s);
    for (uint32_t r = 0; r < n; r++) {
        struct cuda_exchange *x = &s->x[r];
        for (uint32_t q = 0; q < n; q++) {
            const uint64_t at = result_from(f, q) * size, bytes = result_count(f, q) * size;
            x->send[q] = (struct cuda_part){at, contributes(f, r, q) ? bytes : 0};
            x->recv[q] = (struct cuda_part){0, contributes(f, q, r) ? result_count(f, r) * size : 0};
        }
        x->recv[r].at = s->in_place ? result_from(f, r) * size : 0;
        x->result_bytes = result_count(f, r) * size;
        x->call.op = f->op;
        x->call.scales = f->op == TUTTI_PREMUL_SUM;
        if (x->call.scales) memcpy(x->call.factor, factor_of(f), 16);
    }
}

static void fill_reduction(struct scene *s, const struct reduction *f)
{
    const uint64_t data = tutti_random64(&seed);
    const size_t n = s->in_bytes[0] / ref_bytes(f->dtype);
    for (uint32_t r = 0; r < s->rig->n; r++) {
        unsigned char *to = s->in_place ? want_of(s, r) : in_of(s, r);
        if (f->exact)
            ref_fill_exact(f->dtype, f->op, data, r, s->rig->n, to, n);
        else
            ref_fill(f->dtype, REF_FINITE, data + r, to, n);
    }
    scene_upload(s);
}

/* Exact data: the result has to be the reference's. Else it has to be close, and what is around it as it was. */
static void check_reduction(struct scene *s, const struct reduction *f)
{
    const size_t size = ref_bytes(f->dtype);
    for (uint32_t r = 0; r < s->rig->n; r++) {
        const void *inputs[CUDA_MAX_RANKS];
        size_t n_inputs = 0, where, n = result_count(f, r);
        for (uint32_t q = 0; q < s->rig->n; q++) {
            if (contributes(f, q, r)) inputs[n_inputs++] = in_of(s, q) + result_from(f, r) * size;
        }
        if (n == 0 || n_inputs == 0) continue;
        unsigned char *want = want_of(s, r) + s->x[r].recv[r].at;
        const char *result = s->x[r].out + s->x[r].recv[r].at;
        if (f->exact) {
            void *at_odds = malloc(n * size); /* the reference wants whole alignment */
            assert_non_null(at_odds);
            ref_reduce(f->dtype, f->op, inputs, n_inputs, n, factor_of(f), at_odds);
            memcpy(want, at_odds, n * size);
            free(at_odds);
            continue;
        }
        rig_copy(s->rig, r, want, result, n * size);
        if (!ref_close(f->dtype, f->op, inputs, n_inputs, n, factor_of(f), want, &where))
            fail_msg("%s of %s, %s, %u ranks: element %zu of rank %u's %zu", kind_names[f->kind],
                     tutti_dtype_name(f->dtype), tutti_op_name(f->op), s->rig->n, where, r, n);
    }
    scene_check(s);
}

static void reduce(struct rig *rig, const struct reduction *f, const char *kernel, bool in_place)
{
    const uint32_t grain = (uint32_t)ref_bytes(f->dtype);
    struct scene s = {.rig = rig,
                      .in_skew = (uint32_t)below(16) / grain * grain,
                      .out_skew = (uint32_t)below(16) / grain * grain,
                      .in_place = in_place,
                      .name = kernel};
    if (f->kind == REDUCE && rig->n == 1) return;
    lay_reduction(&s, f);
    for (uint32_t r = 0; r < rig->n; r++) {
        uint32_t contributors = 0;
        for (uint32_t q = 0; q < rig->n; q++) contributors += contributes(f, q, r);
        s.x[r].call.divisor = f->op == TUTTI_AVG ? contributors : 0;
    }
    fill_reduction(&s, f);
    scene_launch(&s, kernel);
    rig_sync(rig);
    check_reduction(&s, f);
    scene_close(&s);
}

static void test_fast_sums(void **state)
{
    (void)state;
    static const struct {
        enum tutti_dtype dtype;
        const char *kernel;
    } fast[] = {{TUTTI_FLOAT32, "float32_sum"}, {TUTTI_FLOAT16, "float16_sum"}, {TUTTI_BFLOAT16, "bfloat16_sum"}};
    static const enum tutti_op ops[] = {TUTTI_SUM, TUTTI_AVG, TUTTI_PREMUL_SUM};
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(shapes); i++) {
        struct rig rig;
        open_shape(&rig, i);
        for (size_t k = 0; k < N_KINDS * TUTTI_ARRAY_LEN(fast); k++) {
            const size_t t = (i + k) % TUTTI_ARRAY_LEN(fast);
            struct reduction f = {.kind = (enum kind)(k % N_KINDS),
                                  .dtype = fast[t].dtype,
                                  .op = ops[below(TUTTI_ARRAY_LEN(ops))],
                                  .count = 1 + below(10 * TILE) / ref_bytes(fast[t].dtype),
                                  .exact = k % 2 == 0};
            if (!is_left_out()) reduce(&rig, &f, fast[t].kernel, k % 3 == 0);
        }
        rig_close(&rig);
    }
}

static void test_every_type_and_operation(void **state)
{
    (void)state;
    struct rig rig;
    open_shape(&rig, 3);
    for (int t = 0; t < TUTTI_N_DTYPES; t++) {
        for (int op = 0; op < TUTTI_N_OPS; op++) {
            struct reduction f = {.kind = (enum kind)below(N_KINDS),
                                  .dtype = (enum tutti_dtype)t,
                                  .op = (enum tutti_op)op,
                                  .exact = true};
            f.count = 1 + below(3 * TILE) / ref_bytes(f.dtype);
            if (ref_defined(f.dtype, f.op) && !is_left_out()) reduce(&rig, &f, tutti_dtype_name(f.dtype), below(2));
        }
    }
    rig_close(&rig);
}

/* Sums of 64-bit integers tell every contribution that is missing, taken twice or from somewhere else. */
static void test_fingerprints(void **state)
{
    (void)state;
    for (size_t i = 1; i < TUTTI_ARRAY_LEN(shapes); i++) {
        struct rig rig;
        open_shape(&rig, i);
        for (int k = 0; k < N_KINDS; k++) {
            const struct reduction f = {.kind = (enum kind)k,
                                        .dtype = TUTTI_UINT64,
                                        .op = TUTTI_SUM,
                                        .count = 2000 + below(9000),
                                        .exact = true};
            if (!is_left_out()) reduce(&rig, &f, "uint64", k % 2);
        }
        rig_close(&rig);
    }
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
    const struct cuda_layout *l = &rig.layout;
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

static void test_who_waits_in_vain_says_so(void **state)
{
    (void)state;
    struct rig rig;
    open_shape(&rig, 3);
    struct scene s = {.rig = &rig, .name = "rank 1 is missing"};
    lay_parts(&s, to_all, 20 * TILE, 0);
    for (uint32_t r = 0; r < rig.n; r++) {
        s.x[r].call.timeout_ns = 50 * 1000000;
        s.x[r].call.seq = 77;
        if (r != 1) rig_launch_tiles(&rig, &s.x[r], "move");
    }
    rig_await(&rig);
    assert_int_equal(rig.control->stop, CUDA_TIMEOUT);
    assert_int_equal(rig.control->report, CUDA_REPORT(77, 1));
    rig_launch_tiles(&rig, &s.x[1], "move"); /* too late: it leaves at once, whatever it finds */
    assert_int_equal(tutti_gpu_stream_sync(rig.gpus[1], rig.streams[1]), TUTTI_OK);
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
        cmocka_unit_test(test_calls_in_a_row),
        cmocka_unit_test(test_no_part_waits_for_another),
        cmocka_unit_test(test_fast_sums),
        cmocka_unit_test(test_every_type_and_operation),
        cmocka_unit_test(test_fingerprints),
        cmocka_unit_test(test_counts_wrap),
        cmocka_unit_test(test_who_waits_in_vain_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
