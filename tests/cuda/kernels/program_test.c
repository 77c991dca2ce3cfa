/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedules as programs of kernels plan_R: every algorithm of the table and some of a user's, by the checker's
 * fingerprints as sums of uint64, through rings and private memory that are smaller than the messages. */
#include "cuda/support/rig.h"

#include "algo/algo.h"
#include "backend/cuda/plan/cuda_program.h"
#include "base/base.h"
#include "verify/verify.h"

#include <string.h>

enum { EDGE = 8, TILE = CUDA_LEAST_TILE }; /* elements around outputs that nobody may touch */

struct scene {
    struct rig *rig;
    const struct tutti_algorithm *algorithm;
    enum tutti_kind kind;
    uint32_t root;
    size_t count, own_bytes; /* elements of a block; private memory */
    bool in_place;
    uint64_t seed;
};

struct side { /* of one rank */
    struct tutti_schedule *schedule;
    struct cuda_program *program; /* pinned */
    struct cuda_plan plan;
    size_t in_n, out_n; /* elements */
    uint64_t *in, *want;
    char *device_in, *device_out, *own;
    uint32_t blocks;
};

static uint64_t value(const struct scene *s, uint32_t rank, size_t i)
{
    return tutti_mix64(s->seed + ((uint64_t)rank << 40) + i);
}

static bool reduces(const struct scene *s)
{
    return tutti_kind_info(s->kind)->reduces;
}

/* Elements that the rank passes in and gets out; 0: it has no such buffer. */
static size_t in_elements(const struct scene *s, uint32_t r)
{
    bool all = s->kind == TUTTI_REDUCE_SCATTER || s->kind == TUTTI_ALL_TO_ALL || s->kind == TUTTI_SCATTER;
    if (r != s->root && (s->kind == TUTTI_SCATTER || s->kind == TUTTI_BROADCAST)) return 0;
    return all ? s->count * s->rig->n : s->count;
}

static size_t out_elements(const struct scene *s, uint32_t r)
{
    bool all = s->kind == TUTTI_ALL_GATHER || s->kind == TUTTI_ALL_TO_ALL || s->kind == TUTTI_GATHER;
    if (r != s->root && (s->kind == TUTTI_REDUCE || s->kind == TUTTI_GATHER)) return 0;
    if (s->kind == TUTTI_EXSCAN && r == 0) return 0;
    return all ? s->count * s->rig->n : s->count;
}

static uint64_t sum(const struct scene *s, uint32_t n, size_t i)
{
    uint64_t total = 0;
    for (uint32_t q = 0; q < n; q++) total += value(s, q, i);
    return total;
}

/* Element i of what rank r gets. */
static uint64_t expected(const struct scene *s, uint32_t r, size_t i)
{
    size_t block = s->count > 0 ? i / s->count : 0, within = s->count > 0 ? i % s->count : 0;
    switch (s->kind) {
    case TUTTI_BROADCAST:
        return value(s, s->root, i);
    case TUTTI_SCATTER:
        return value(s, s->root, r * s->count + i);
    case TUTTI_ALL_GATHER:
    case TUTTI_GATHER:
        return value(s, (uint32_t)block, within);
    case TUTTI_ALL_TO_ALL:
        return value(s, (uint32_t)block, r * s->count + within);
    case TUTTI_REDUCE_SCATTER:
        return sum(s, s->rig->n, r * s->count + i);
    case TUTTI_SCAN:
        return sum(s, r + 1, i);
    case TUTTI_EXSCAN:
        return sum(s, r, i);
    default:
        return sum(s, s->rig->n, i);
    }
}

/* In place: elements from the output's first to the input's first; SIZE_MAX: the kind has no such thing here. The
 * larger of the two buffers is the one that is there. */
static ptrdiff_t place(const struct scene *s, uint32_t r)
{
    if (s->kind == TUTTI_ALL_GATHER) return (ptrdiff_t)(r * s->count);
    if (s->kind == TUTTI_REDUCE_SCATTER) return -(ptrdiff_t)(r * s->count);
    return 0;
}

static bool may_be_in_place(enum tutti_kind kind)
{
    return kind == TUTTI_ALL_REDUCE || kind == TUTTI_ALL_GATHER || kind == TUTTI_REDUCE_SCATTER ||
           kind == TUTTI_ALL_TO_ALL || kind == TUTTI_SCAN;
}

static uint64_t *filled(size_t n, uint64_t with)
{
    uint64_t *out = malloc(n * sizeof *out + 8);
    assert_non_null(out);
    for (size_t i = 0; i < n; i++) out[i] = with;
    return out;
}

/* Buffers: want has what is to be in the memory of the output, edges and what is in place included. */
static void side_fill(const struct scene *s, uint32_t r, struct side *side)
{
    bool one = s->in_place || s->kind == TUTTI_BROADCAST;
    ptrdiff_t shift = one ? place(s, r) : 0;
    size_t whole = one && side->in_n > side->out_n ? side->in_n : side->out_n, room = whole + 2 * EDGE;
    size_t out_at = EDGE + (size_t)(shift < 0 ? -shift : 0), in_at = out_at + (size_t)shift;
    uint64_t *before = filled(room, UINT64_C(0x5a5a5a5a5a5a5a5a));
    side->in = filled(side->in_n, 0);
    for (size_t i = 0; i < side->in_n; i++) side->in[i] = value(s, r, i);
    if (one) memcpy(before + in_at, side->in, side->in_n * sizeof *before);
    side->device_out = rig_alloc(s->rig, r, room * sizeof *before);
    rig_copy(s->rig, r, side->device_out, before, room * sizeof *before);
    side->device_in = one ? NULL : rig_alloc(s->rig, r, side->in_n * sizeof *before + 8);
    if (!one && side->in_n > 0) rig_copy(s->rig, r, side->device_in, side->in, side->in_n * sizeof *before);
    for (size_t i = 0; i < side->out_n; i++) before[out_at + i] = expected(s, r, i);
    side->want = before;
    struct tutti_bind bind = {.schedule = side->schedule, .count = s->count, .dtype = TUTTI_UINT64, .divisor = 1};
    char *out = side->device_out + out_at * 8, *in = one ? side->device_out + in_at * 8 : side->device_in;
    bind.output = side->out_n > 0 || s->count == 0 ? out : NULL;
    bind.input = side->in_n > 0 ? in : NULL;
    struct cuda_program_facts facts;
    assert_int_equal(cuda_program_make(side->schedule, side->program, &facts), TUTTI_OK);
    facts.program = side->program;
    struct cuda_program_place where = {s->rig->layout, side->own, s->own_bytes, s->rig->n, r};
    if (cuda_program_bind(&facts, &where, &bind, &side->plan, &side->blocks) < 0)
        fail_msg("%s", tutti_last_error()->text);
    assert_true(side->plan.own_bytes * side->plan.stride <= s->own_bytes);
}

static void side_open(const struct scene *s, uint32_t r, struct side *side)
{
    struct tutti_shape shape = {.slot = r, .size = s->rig->n, .root = s->root};
    void *memory;
    *side = (struct side){.in_n = in_elements(s, r), .out_n = out_elements(s, r)};
    assert_int_equal(tutti_schedule_seal(s->algorithm, s->kind, &shape, true, &side->schedule), TUTTI_OK);
    assert_int_equal(tutti_gpu_alloc_host(s->rig->gpus[r], sizeof *side->program, &memory), TUTTI_OK);
    side->program = memory;
    side->own = rig_alloc(s->rig, r, s->own_bytes);
    side_fill(s, r, side);
    side->plan.call = rig_call(s->rig, r);
    side->plan.call.op = TUTTI_SUM;
}

static void side_check(const struct scene *s, uint32_t r, const struct side *side)
{
    bool one = s->in_place || s->kind == TUTTI_BROADCAST;
    size_t whole = one && side->in_n > side->out_n ? side->in_n : side->out_n, room = whole + 2 * EDGE;
    ptrdiff_t shift = one ? place(s, r) : 0;
    size_t out_at = EDGE + (size_t)(shift < 0 ? -shift : 0);
    if (!side->want) {
        fail_msg("rank %u was not opened", r);
        return;
    }
    uint64_t *got = filled(room, 0);
    rig_copy(s->rig, r, got, side->device_out, room * sizeof *got);
    for (size_t i = 0; i < room; i++) {
        bool ours = i >= out_at && i < out_at + side->out_n;
        if (got[i] != side->want[i])
            fail_msg("%s %s of %zu, %u ranks, root %u%s: rank %u has %llx %s %zd, not %llx", s->algorithm->name,
                     tutti_kind_name(s->kind), s->count, s->rig->n, s->root, s->in_place ? ", in place" : "", r,
                     (unsigned long long)got[i], ours ? "in its output at" : "outside of it at",
                     (ptrdiff_t)i - (ptrdiff_t)out_at, (unsigned long long)side->want[i]);
    }
    free(got);
}

static void side_close(const struct scene *s, uint32_t r, struct side *side)
{
    if (side->device_in) rig_free(s->rig, r, side->device_in);
    rig_free(s->rig, r, side->device_out);
    rig_free(s->rig, r, side->own);
    tutti_gpu_free_host(s->rig->gpus[r], side->program);
    tutti_schedule_destroy(side->schedule);
    free(side->in);
    free(side->want);
}

static void run(const struct scene *s)
{
    struct side sides[CUDA_MAX_RANKS] = {0};
    for (uint32_t r = 0; r < s->rig->n; r++) side_open(s, r, &sides[r]);
    for (uint32_t r = 0; r < s->rig->n; r++) {
        if (sides[r].blocks == 0) continue;
        void *kernel = rig_kernel(s->rig, r, "plan", reduces(s) ? "uint64" : "move");
        rig_launch(s->rig, r, kernel, sides[r].blocks, CUDA_PLAN_THREADS, &sides[r].plan);
    }
    rig_sync(s->rig);
    for (uint32_t r = 0; r < s->rig->n; r++) side_check(s, r, &sides[r]);
    for (uint32_t r = 0; r < s->rig->n; r++) side_close(s, r, &sides[r]);
}

/* ---- the table ---- */
static uint64_t seed;

static const struct rig_shape shapes[] = {
    {.n = 1, .n_blocks = 2, .tile_bytes = TILE, .n_tiles = 2},
    {.n = 2, .n_blocks = 3, .tile_bytes = TILE, .n_tiles = 2},
    {.n = 3, .n_blocks = 2, .tile_bytes = TILE, .n_tiles = 5},
    {.n = 4, .n_blocks = 4, .tile_bytes = 2 * TILE, .n_tiles = 2},
    {.n = 5, .n_blocks = 1, .tile_bytes = TILE, .n_tiles = 2},
    {.n = 8, .n_blocks = 2, .tile_bytes = TILE, .n_tiles = 2},
};

static bool fits(const struct tutti_algorithm *algorithm, enum tutti_kind kind, uint32_t n)
{
    struct tutti_shape shape = {.size = n};
    return kind != TUTTI_BARRIER && tutti_algorithm_fits(algorithm, kind, &shape, NULL, 0);
}

static void run_sizes(struct rig *rig, const struct tutti_algorithm *algorithm, enum tutti_kind kind)
{
    static const size_t counts[] = {0, 1, 17, 1031, 7000};
    for (size_t c = 0; c < TUTTI_ARRAY_LEN(counts); c++) {
        if (c + 1 < TUTTI_ARRAY_LEN(counts) && tutti_random64(&seed) % rig_times(1, 3, 8) != 0) continue;
        struct scene s = {.rig = rig,
                          .algorithm = algorithm,
                          .kind = kind,
                          .root = tutti_kind_info(kind)->rooted ? (uint32_t)(tutti_random64(&seed) % rig->n) : 0,
                          .count = counts[c] + (counts[c] > 1 ? tutti_random64(&seed) % 5 : 0),
                          .own_bytes = (size_t)(tutti_random64(&seed) % 2 ? 24 : 512) << 10,
                          .seed = tutti_random64(&seed)};
        s.in_place = may_be_in_place(kind) && tutti_random64(&seed) % 2 == 0;
        run(&s);
        s.in_place = !s.in_place;
        if (may_be_in_place(kind) && !rig_is_slow()) run(&s);
    }
}

static void every_algorithm(void **state)
{
    (void)state;
    uint32_t n_run = 0;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(shapes); i++) {
        struct rig rig;
        rig_open(&rig, &shapes[i]);
        for (size_t a = 0; a < tutti_n_algorithms; a++) {
            for (enum tutti_kind k = 0; k < TUTTI_N_KINDS; k++) {
                if (!fits(tutti_algorithms[a], k, rig.n)) continue;
                n_run++;
                if (tutti_random64(&seed) % rig_times(1, 1, 6) == 0) run_sizes(&rig, tutti_algorithms[a], k);
            }
        }
        rig_close(&rig);
    }
    assert_true(n_run > 100);
}

/* ---- a user's ---- */

/* Rank 0 takes a block from each other rank before it gives them its own, which it copies first, and they give theirs
 * only then: local steps that are carried out in the program's order alone would wait for ever. */
static uint32_t one_round(const struct tutti_shape *s)
{
    return s->size > 1 ? 2 : 0;
}
static uint32_t crossed_scratch(const struct tutti_shape *s)
{
    return 2 * s->size;
}
static void crossed_round(const struct tutti_shape *s, uint32_t k, struct tutti_emit *e)
{
    uint32_t p = s->size;
    if (s->slot != 0 && k == 0) {
        tutti_emit_recv(e, 0, TUTTI_DATA, 0, 1);
        tutti_emit_send(e, 0, TUTTI_DATA, s->slot, 1);
    }
    for (uint32_t q = 1; q < p && s->slot == 0 && k == 0; q++) {
        tutti_emit_recv(e, q, TUTTI_SCRATCH, q, 1);
        tutti_emit_copy(e, TUTTI_DATA, q, TUTTI_SCRATCH, q, 1);
        tutti_emit_copy(e, TUTTI_SCRATCH, p + q, TUTTI_DATA, 0, 1);
        tutti_emit_send(e, q, TUTTI_SCRATCH, p + q, 1);
    }
    for (uint32_t q = 1; q < p && k == 1; q++) {
        for (uint32_t b = 1; b < p; b++) {
            if (s->slot == 0 && b != q) tutti_emit_send(e, q, TUTTI_DATA, b, 1);
            if (s->slot == q && b != q) tutti_emit_recv(e, 0, TUTTI_DATA, b, 1);
        }
    }
}
static const struct tutti_schedule_ops crossed_ops = {
    .scratch = crossed_scratch, .rounds = one_round, .round = crossed_round};
static const struct tutti_algorithm crossed = {.name = "crossed", .kinds = {[TUTTI_ALL_GATHER] = &crossed_ops}};

/* An all_reduce of several chunks a message: everything goes to the last rank and comes back.
 */
enum { LINE_CHUNKS = 6 };
static uint32_t line_chunks(const struct tutti_shape *s)
{
    (void)s;
    return LINE_CHUNKS;
}
static uint32_t line_scratch(const struct tutti_shape *s)
{
    (void)s;
    return 3;
}
static void line_round(const struct tutti_shape *s, uint32_t k, struct tutti_emit *e)
{
    uint32_t me = s->slot, last = s->size - 1;
    for (uint32_t c = 0; c < LINE_CHUNKS; c += 3) {
        if (k == 0 && me > 0) {
            tutti_emit_recv(e, me - 1, TUTTI_SCRATCH, 0, 3);
            tutti_emit_reduce(e, TUTTI_DATA, c, TUTTI_SCRATCH, 0, 3, TUTTI_LEFT);
        }
        if (k == 0 && me < last) tutti_emit_send(e, me + 1, TUTTI_DATA, c, 3);
        if (k == 1 && me < last) tutti_emit_recv(e, me + 1, TUTTI_DATA, c, 3);
        if (k == 1 && me > 0) tutti_emit_send(e, me - 1, TUTTI_DATA, c, 3);
    }
}
static const struct tutti_schedule_ops line_ops = {
    .chunks = line_chunks, .scratch = line_scratch, .rounds = one_round, .round = line_round};
static const struct tutti_algorithm line = {.name = "line", .kinds = {[TUTTI_ALL_REDUCE] = &line_ops}};

static void users_algorithms(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI_ARRAY_LEN(shapes); i++) {
        struct tutti_shape shape = {.size = shapes[i].n};
        struct tutti_verdict verdict;
        struct rig rig;
        assert_int_equal(tutti_verify(&crossed, TUTTI_ALL_GATHER, &shape, &verdict), TUTTI_OK);
        if (!verdict.ok) fail_msg("%s", verdict.text);
        assert_int_equal(tutti_verify(&line, TUTTI_ALL_REDUCE, &shape, &verdict), TUTTI_OK);
        if (!verdict.ok) fail_msg("%s", verdict.text);
        rig_open(&rig, &shapes[i]);
        run_sizes(&rig, &crossed, TUTTI_ALL_GATHER);
        run_sizes(&rig, &line, TUTTI_ALL_REDUCE);
        rig_close(&rig);
    }
}

/* ---- what can not be ---- */

static uint32_t many_rounds(const struct tutti_shape *s)
{
    (void)s;
    return CUDA_PLAN_STEPS + 1;
}
static void many_round(const struct tutti_shape *s, uint32_t k, struct tutti_emit *e)
{
    (void)k;
    if (s->slot == 1) tutti_emit_send(e, 0, TUTTI_DATA, 0, 1);
    if (s->slot == 0) tutti_emit_recv(e, 1, TUTTI_DATA, 0, 1);
}
static const struct tutti_schedule_ops many_ops = {.rounds = many_rounds, .round = many_round};
static const struct tutti_algorithm many = {.name = "many", .kinds = {[TUTTI_ALL_REDUCE] = &many_ops}};

/* All ranks refuse, also those whose own program is short; and nothing is kept without bound. */
static void refusals(void **state)
{
    (void)state;
    struct cuda_programs programs = {.memory = malloc(CUDA_PROGRAM_BYTES)};
    struct cuda_program_facts facts;
    struct tutti_schedule *schedule;
    struct tutti_shape shape = {.slot = 2, .size = 3};
    assert_non_null(programs.memory);
    assert_int_equal(tutti_schedule_seal(&many, TUTTI_ALL_REDUCE, &shape, true, &schedule), TUTTI_OK);
    assert_int_equal(cuda_programs_find(&programs, schedule, &facts), TUTTI_ERR_UNSUPPORTED);
    assert_non_null(strstr(tutti_last_error()->text, "up to 256 steps, and many all_reduce has 257"));
    tutti_schedule_destroy(schedule);
    enum tutti_status status = TUTTI_OK;
    uint32_t kept = 0;
    for (uint32_t radix = 2; status == TUTTI_OK && radix < 1000; radix++) {
        shape.radix = radix;
        assert_int_equal(tutti_schedule_seal(&tutti_algorithm_tree, TUTTI_BROADCAST, &shape, true, &schedule),
                         TUTTI_OK);
        for (int again = 0; again < 2 && status == TUTTI_OK; again++)
            status = cuda_programs_find(&programs, schedule, &facts);
        kept += status == TUTTI_OK;
        tutti_schedule_destroy(schedule);
    }
    assert_int_equal(status, TUTTI_ERR_UNSUPPORTED);
    assert_int_equal(kept, CUDA_PROGRAMS);
    assert_non_null(strstr(tutti_last_error()->text, "keeps 256 KiB of schedules"));
    free(programs.memory);
}

int main(void)
{
    seed = rig_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals),
        cmocka_unit_test(users_algorithms),
        cmocka_unit_test(every_algorithm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
