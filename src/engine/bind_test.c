/* SPDX-License-Identifier: BSD-3-Clause */

/* Binding against brute force: the address of every single element is written down from the definition (blocks, even
 * parts, even slices, one element after another), and every run, size and slice must agree with that list. */

#include "engine/bind.h"

#include <string.h>

#include "test.h"

static uint64_t state_of_random;

static size_t pick(size_t n)
{
    return (size_t)(tutti_random64(&state_of_random) % n);
}

struct world {
    struct tutti_schedule schedule;
    struct tutti_bind bind;
    struct tutti_layout layout;
    struct tutti_need need;
    size_t counts[8], displs[8], in_counts[8], in_displs[8];
    unsigned char *input, *output, *region;
};

static bool is_v_kind(enum tutti_kind kind)
{
    return kind == TUTTI_ALL_GATHER || kind == TUTTI_GATHER || kind == TUTTI_SCATTER || kind == TUTTI_REDUCE_SCATTER ||
           kind == TUTTI_ALL_TO_ALL;
}

static bool holds_all(enum tutti_kind kind, bool output)
{
    if (kind == TUTTI_ALL_TO_ALL) return true;
    return (kind == TUTTI_ALL_GATHER || kind == TUTTI_GATHER) == output;
}

/* Unequal blocks in random order, with gaps. */
static size_t table(size_t counts[8], size_t displs[8], uint32_t n)
{
    size_t at = 0;
    uint32_t first = (uint32_t)pick(n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t b = (first + i) % n;
        counts[b] = pick(5) ? pick(40) : 0;
        displs[b] = at += pick(3);
        at += counts[b];
    }
    return at;
}

static void world_make(struct world *w, bool v)
{
    static const enum tutti_dtype types[] = {TUTTI_INT8, TUTTI_FLOAT16, TUTTI_INT32, TUTTI_COMPLEX128};
    enum tutti_kind kind = (enum tutti_kind)pick(TUTTI_N_KINDS);
    uint32_t size = 1 + (uint32_t)pick(6), per_block = 1 + (uint32_t)pick(4);
    size_t room = 4096 * 16;

    memset(w, 0, sizeof(*w));
    w->schedule.kind = kind;
    w->schedule.shape = (struct tutti_shape){.slot = (uint32_t)pick(size), .size = size, .root = (uint32_t)pick(size)};
    w->schedule.n_chunks = per_block * tutti_kind_blocks(kind, size);
    w->schedule.n_scratch = (uint32_t)pick(4);
    w->input = malloc(room), w->output = malloc(room);
    w->bind = (struct tutti_bind){.schedule = &w->schedule,
                                  .input = w->input,
                                  .output = pick(4) ? w->output : NULL,
                                  .count = kind == TUTTI_BARRIER ? 0
                                           : pick(3)             ? pick(200)
                                                                 : pick(4),
                                  .dtype = types[pick(4)]};
    if (v && is_v_kind(kind)) {
        table(w->counts, w->displs, size);
        w->bind.v = true, w->bind.counts = w->counts, w->bind.displs = pick(3) ? w->displs : NULL;
        if (kind == TUTTI_ALL_TO_ALL) {
            table(w->in_counts, w->in_displs, size);
            w->bind.in_counts = w->in_counts, w->bind.in_displs = w->in_displs;
        }
    }
    assert_int_equal(tutti_layout_init(&w->layout, &w->bind, 16 + pick(200), &w->need), TUTTI_OK);
    w->region = calloc(1, w->need.bytes ? w->need.bytes : 1); /* not NULL: the test adds to it */
    tutti_layout_fill(&w->layout, &w->bind, &w->need, w->region);
}

static void world_free(struct world *w)
{
    free(w->input);
    free(w->output);
    free(w->region);
}

/* Elements of the i-th of n even parts: written down one after another, dealt to the first ones. */
static size_t share(size_t count, size_t n, size_t i, size_t *first)
{
    size_t at = 0, mine = 0;
    for (size_t k = 0; k <= i; k++) {
        at += mine;
        mine = count / n + (k < count % n);
    }
    *first = at;
    return mine;
}

static size_t count_of(const struct world *w, uint32_t block, bool in)
{
    if (w->schedule.kind == TUTTI_BARRIER) return w->layout.per_block;
    if (in && w->bind.in_counts) return w->in_counts[block];
    return w->bind.counts ? w->counts[block] : w->bind.count;
}

static size_t displ_of(const struct world *w, uint32_t block, bool in)
{
    size_t at = 0;
    if (in && w->schedule.kind == TUTTI_ALL_TO_ALL && w->bind.in_displs) return w->in_displs[block];
    if (w->bind.displs && !(in && w->schedule.kind == TUTTI_ALL_TO_ALL)) return w->displs[block];
    for (uint32_t b = 0; b < block; b++) at += count_of(w, b, in);
    return at;
}

/* Where element `i` of a block is, by the definition of the kinds. */
static const unsigned char *element_at(const struct world *w, uint32_t block, size_t i, bool input)
{
    enum tutti_kind kind = w->schedule.kind;
    const struct tutti_shape *shape = &w->schedule.shape;
    size_t e = w->layout.element;
    enum tutti_content after = tutti_kind_after(kind, shape, block);
    size_t private_at = 0;

    for (uint32_t b = 0; b < block; b++) private_at += count_of(w, b, false);
    if (input && kind != TUTTI_BARRIER)
        return w->input + ((holds_all(kind, false) && is_v_kind(kind) ? displ_of(w, block, true) : 0) + i) * e;
    if (w->bind.output && after != TUTTI_HOLDS_NOTHING && kind != TUTTI_BARRIER)
        return w->output + ((holds_all(kind, true) && is_v_kind(kind) ? displ_of(w, block, false) : 0) + i) * e;
    return w->region + w->need.data + (private_at + i) * e;
}

/* All element addresses of a place and slice, in order. */
static size_t list_elements(const struct world *w, const struct tutti_operand *place, uint32_t slice,
                            const unsigned char **out)
{
    size_t n = 0;
    for (uint32_t c = place->chunk; c < place->chunk + place->n; c++) {
        uint32_t per = w->layout.per_block, block = c / per;
        size_t in_block, in_chunk;
        size_t chunk = share(count_of(w, block, place->buffer == TUTTI_IN), per, c % per, &in_block);
        size_t part = share(chunk, w->layout.n_slices, slice, &in_chunk);
        bool input = place->input || place->buffer == TUTTI_IN;
        for (size_t i = 0; i < part; i++) out[n++] = element_at(w, block, in_block + in_chunk + i, input);
    }
    return n;
}

static bool may_read_input(const struct world *w, uint32_t chunk, uint32_t n)
{
    enum tutti_kind kind = w->schedule.kind;
    if (kind != TUTTI_ALL_GATHER && kind != TUTTI_GATHER) return kind != TUTTI_ALL_TO_ALL;
    return chunk / w->layout.per_block == w->schedule.shape.slot &&
           (chunk + n - 1) / w->layout.per_block == w->schedule.shape.slot;
}

static void check_place(const struct world *w, const struct tutti_operand *place, uint32_t slice)
{
    static const unsigned char *elements[100000];
    size_t e = w->layout.element, n = list_elements(w, place, slice, elements);

    assert_int_equal(tutti_layout_bytes(&w->layout, place, slice), n * e);
    for (size_t at = 0; at < n;) {
        unsigned char *run;
        size_t limit = 1 + pick(n), got = tutti_layout_run(&w->layout, place, slice, at * e, limit * e, &run);
        assert_true(got > 0 && got % e == 0 && got <= limit * e && at + got / e <= n);
        for (size_t i = 0; i < got / e; i++) assert_ptr_equal(run + i * e, elements[at + i]);
        /* A run ends where the limit is, or where memory or the chunks end. */
        if (got < limit * e && at + got / e < n) assert_ptr_not_equal(elements[at + got / e], run + got);
        at += got / e;
    }
    unsigned char *none;
    assert_int_equal(tutti_layout_run(&w->layout, place, slice, n * e, e, &none), 0);
}

static void check_world(bool v)
{
    struct world w;
    world_make(&w, v);
    for (int i = 0; i < 12; i++) {
        uint32_t chunk = (uint32_t)pick(w.schedule.n_chunks), n = 1 + (uint32_t)pick(w.schedule.n_chunks - chunk);
        struct tutti_operand place = {.buffer = TUTTI_DATA, .chunk = chunk, .n = n, .extent = chunk};
        if (pick(3) == 0 && may_read_input(&w, chunk, n)) place.input = true;
        if (w.schedule.kind == TUTTI_ALL_TO_ALL && pick(2)) place.buffer = TUTTI_IN;
        check_place(&w, &place, (uint32_t)pick(w.layout.n_slices));
    }
    world_free(&w);
}

static void test_equal(void **state)
{
    (void)state;
    for (int i = 0; i < 3000; i++) check_world(false);
}

static void test_unequal(void **state)
{
    (void)state;
    for (int i = 0; i < 3000; i++) check_world(true);
}

/* Every slice of a SCRATCH chunk is as large as that of the DATA chunk it stands for, and they do not overlap. */
static void test_scratch(void **state)
{
    (void)state;
    for (int round = 0; round < 1000; round++) {
        struct world w;
        world_make(&w, round % 2);
        for (uint32_t c = 0; c < w.schedule.n_scratch; c++) {
            uint32_t twin = (uint32_t)pick(w.schedule.n_chunks);
            struct tutti_operand scratch = {.buffer = TUTTI_SCRATCH, .chunk = c, .n = 1, .extent = twin};
            struct tutti_operand data = {.buffer = TUTTI_DATA, .chunk = twin, .n = 1};
            unsigned char *next = w.region + w.need.scratch + c * w.layout.scratch_stride, *run;
            for (uint32_t s = 0; s < w.layout.n_slices; s++) {
                size_t bytes = tutti_layout_bytes(&w.layout, &scratch, s);
                assert_int_equal(bytes, tutti_layout_bytes(&w.layout, &data, s));
                if (bytes == 0) continue;
                assert_int_equal(tutti_layout_run(&w.layout, &scratch, s, 0, bytes, &run), bytes);
                assert_ptr_equal(run, next);
                next += bytes;
            }
            assert_true(next <= w.region + w.need.scratch + (c + 1) * w.layout.scratch_stride);
            assert_true(next <= w.region + w.need.bytes);
        }
        world_free(&w);
    }
}

/* The number of slices is that of all ranks: it does not depend on the slot, nor on what only some ranks know. */
static void test_slices(void **state)
{
    (void)state;
    struct tutti_schedule schedule = {.kind = TUTTI_ALL_REDUCE, .shape = {.size = 4}, .n_chunks = 4};
    struct tutti_bind bind = {.schedule = &schedule, .count = 4001, .dtype = TUTTI_INT32};
    struct tutti_layout layout;
    struct tutti_need need;

    assert_int_equal(tutti_layout_init(&layout, &bind, 1000, &need), TUTTI_OK);
    assert_int_equal(layout.n_slices, 5); /* the largest of 4 chunks has 1001 elements */
    schedule.kind = TUTTI_GATHER;
    bind.v = true;
    assert_int_equal(tutti_layout_init(&layout, &bind, 1000, &need), TUTTI_OK);
    assert_int_equal(layout.n_slices, 1);
    schedule.kind = TUTTI_BARRIER;
    assert_int_equal(tutti_layout_init(&layout, &bind, 1, &need), TUTTI_OK);
    assert_int_equal(layout.n_slices, 1);
}

static void test_overflow(void **state)
{
    (void)state;
    struct tutti_schedule schedule = {.kind = TUTTI_ALL_GATHER, .shape = {.size = 8}, .n_chunks = 8};
    struct tutti_bind bind = {.schedule = &schedule, .count = SIZE_MAX / 8, .dtype = TUTTI_FLOAT64};
    struct tutti_layout layout;
    struct tutti_need need;

    assert_int_equal(tutti_layout_init(&layout, &bind, 1 << 17, &need), TUTTI_ERR_ARGUMENT);
    /* Five gigabytes are not too many, and are cut exactly. */
    bind.count = UINT64_C(5) << 30, bind.dtype = TUTTI_INT8, schedule.kind = TUTTI_ALL_REDUCE, schedule.n_chunks = 6;
    assert_int_equal(tutti_layout_init(&layout, &bind, 1 << 17, &need), TUTTI_OK);
    size_t first, sum = 0;
    for (uint32_t part = 0; part < 6; part++) {
        for (uint32_t s = 0; s < layout.n_slices; s++) {
            size_t n = tutti_layout_part(&layout, 0, part, s, &first);
            assert_int_equal(first, sum);
            assert_true(n <= 1 << 17);
            sum += n;
        }
    }
    assert_int_equal(sum, UINT64_C(5) << 30);
}

static void test_refused(void **state)
{
    (void)state;
    char defect[] = "ring: rank 1 sends to itself";
    struct tutti_schedule schedule = {.kind = TUTTI_ALL_GATHER, .shape = {.size = 8}, .n_chunks = 9};
    struct tutti_bind bind = {.schedule = &schedule, .count = 4, .dtype = TUTTI_INT8};
    struct tutti_layout layout;
    struct tutti_need need;

    assert_int_equal(tutti_layout_init(&layout, &bind, 1 << 17, &need), TUTTI_ERR_INTERNAL);
    schedule.n_chunks = 8, schedule.defect = defect;
    assert_int_equal(tutti_layout_init(&layout, &bind, 1 << 17, &need), TUTTI_ERR_INTERNAL);
    assert_non_null(strstr(tutti_last_error()->text, defect));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal),  cmocka_unit_test(test_unequal),  cmocka_unit_test(test_scratch),
        cmocka_unit_test(test_slices), cmocka_unit_test(test_overflow), cmocka_unit_test(test_refused),
    };
    state_of_random = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
