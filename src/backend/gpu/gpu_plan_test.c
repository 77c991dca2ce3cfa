/* SPDX-License-Identifier: BSD-3-Clause */

/* What the back end `cuda` makes of calls, carried out in plain C. Results are compared with the reference, whole
 * buffers with what must be untouched around them. */

#include "gpu_steps_test.h"

#include <stdio.h>

#define GUARD 0xa5

/* ---- calls: buffers and what must become of them ---- */

static bool reduces(const struct trial *t)
{
    return tutti_kind_info(t->kind)->reduces;
}
static bool has_input(const struct trial *t, uint32_t me)
{
    bool from_root = t->kind == TUTTI_BROADCAST || t->kind == TUTTI_SCATTER;
    return !from_root || me == t->root;
}
static bool has_output(const struct trial *t, uint32_t me)
{
    if (t->kind == TUTTI_REDUCE || t->kind == TUTTI_GATHER) return me == t->root;
    return t->kind != TUTTI_EXSCAN || me > 0;
}

/* How many elements p has for q, or each for all, and where they are on both sides; v forms are asymmetric. */
static size_t matrix[N][N];
static bool sends_each(const struct trial *t)
{
    return t->kind == TUTTI_SCATTER || t->kind == TUTTI_REDUCE_SCATTER || t->kind == TUTTI_ALL_TO_ALL;
}
static bool receives_each(const struct trial *t)
{
    return t->kind == TUTTI_ALL_GATHER || t->kind == TUTTI_GATHER || t->kind == TUTTI_ALL_TO_ALL;
}

static void draw_matrix(const struct trial *t)
{
    size_t counts[N];
    for (uint32_t q = 0; q < N; q++) counts[q] = !t->v ? t->count : below(3) ? below(t->count + 1) : 0;
    for (uint32_t p = 0; p < N; p++) {
        for (uint32_t q = 0; q < N; q++) {
            bool by_receiver = t->kind == TUTTI_SCATTER || t->kind == TUTTI_REDUCE_SCATTER;
            matrix[p][q] = counts[by_receiver ? q : p];
            if (t->v && t->kind == TUTTI_ALL_TO_ALL) matrix[p][q] = below(2) ? below(t->count + 1) : 0;
        }
    }
}

/* Blocks one after another; with gaps where displacements are given. */
static void place_blocks(uint32_t n, const size_t *counts, size_t *displs, bool gaps)
{
    for (size_t q = 0, at = 0; q < n; q++) {
        at += gaps ? below(3) : 0;
        displs[q] = at;
        at += counts[q];
    }
}

static void tables_fill(const struct trial *t, uint32_t me)
{
    struct rank *r = &ranks[me];
    struct tutti_bind *b = &r->call.bind;
    bool gaps = t->v && t->kind != TUTTI_REDUCE_SCATTER && below(2);
    size_t row[N], column[N];
    for (uint32_t q = 0; q < t->n; q++) row[q] = matrix[me][q], column[q] = matrix[q][me];
    memcpy(r->in_counts, row, sizeof(row));
    memcpy(r->counts, receives_each(t) ? column : row, sizeof(row));
    place_blocks(t->n, r->in_counts, r->in_displs, gaps);
    place_blocks(t->n, r->counts, r->displs, gaps);
    if (!receives_each(t)) memcpy(r->displs, r->in_displs, sizeof(r->displs));
    b->count = sends_each(t) ? matrix[t->n - 1][me] : matrix[me][0];
    if (!t->v) b->count = t->count;
    if (!t->v || !(t->kind == TUTTI_GATHER || t->kind == TUTTI_SCATTER ? me == t->root : true)) return;
    b->counts = r->counts;
    b->displs = gaps ? r->displs : NULL;
    if (t->kind != TUTTI_ALL_TO_ALL) return;
    b->in_counts = r->in_counts;
    b->in_displs = gaps ? r->in_displs : NULL;
}

/* Where the block for or from q begins, in elements. */
static size_t sent_at(const struct trial *t, uint32_t p, uint32_t q)
{
    return sends_each(t) ? ranks[p].in_displs[q] : 0;
}
static size_t received_at(const struct trial *t, uint32_t q, uint32_t p)
{
    return receives_each(t) ? ranks[q].displs[p] : 0;
}

static bool contributes(const struct trial *t, uint32_t p, uint32_t q)
{
    if (t->kind == TUTTI_SCAN) return p <= q;
    if (t->kind == TUTTI_EXSCAN) return p < q;
    if (t->kind == TUTTI_REDUCE || t->kind == TUTTI_GATHER) return q == t->root;
    return has_input(t, p);
}

static uint32_t contributors(const struct trial *t, uint32_t me)
{
    return t->kind == TUTTI_SCAN ? me + 1 : t->kind == TUTTI_EXSCAN ? (me ? me : 1) : t->n;
}

static unsigned char *input_of(struct rank *r)
{
    return (unsigned char *)(uintptr_t)r->call.bind.input;
}

static void expect(const struct trial *t, uint32_t me)
{
    size_t element = ref_bytes(t->dtype);
    struct rank *r = &ranks[me];
    const void *inputs[N];
    size_t n = 0, own = 0;
    memcpy(r->want, r->out, ROOM);
    for (uint32_t p = 0; p < t->n; p++) {
        if (!contributes(t, p, me)) continue;
        unsigned char *from = input_of(&ranks[p]) + sent_at(t, p, me) * element;
        if (!reduces(t)) memmove(r->want + r->out_at + received_at(t, me, p) * element, from, matrix[p][me] * element);
        inputs[n++] = from, own = matrix[p][me];
    }
    if (reduces(t) && has_output(t, me)) ref_reduce(t->dtype, t->op, inputs, n, own, t->factor, r->want + r->out_at);
}

/* Where the input lies in the output's memory, or the output in the input's, if the call is in place. */
static void bind_buffers(const struct trial *t, uint32_t me)
{
    struct rank *r = &ranks[me];
    struct tutti_bind *b = &r->call.bind;
    size_t element = ref_bytes(t->dtype);
    r->in_at = below(4) * element;
    r->out_at = t->windows ? 64 : below(4) * element;
    b->input = r->in + r->in_at;
    b->output = r->out + r->out_at;
    if (t->kind == TUTTI_BROADCAST) {
        b->input = me == t->root ? b->output : NULL;
    } else if (t->in_place && receives_each(t) && !sends_each(t)) {
        if (has_output(t, me)) b->input = (char *)b->output + r->displs[me] * element;
    } else if (t->in_place && sends_each(t) && !receives_each(t)) {
        b->input = has_input(t, me) ? r->out : NULL;
        r->out_at = has_input(t, me) ? r->in_displs[me] * element : r->out_at;
        b->output = r->out + r->out_at;
    } else if (t->in_place && has_output(t, me)) {
        b->input = b->output;
    }
    if (!has_input(t, me)) b->input = NULL;
    if (!has_output(t, me)) b->output = NULL;
}

static void fill_input(const struct trial *t, uint32_t me)
{
    size_t element = ref_bytes(t->dtype), most = 0;
    if (!has_input(t, me)) return;
    for (uint32_t q = 0; q < t->n; q++) {
        size_t end = sent_at(t, me, q) + matrix[me][q];
        if (end > most) most = end;
    }
    assert_true(most * element + 256 < ROOM);
    if (reduces(t))
        ref_fill_exact(t->dtype, t->op, seed, me, t->n, input_of(&ranks[me]), most);
    else
        ref_fill(t->dtype, REF_BITS, seed + me, input_of(&ranks[me]), most);
}

static void prepare(const struct trial *t)
{
    draw_matrix(t);
    for (uint32_t me = 0; me < t->n; me++) {
        struct rank *r = &ranks[me];
        size_t bounce;
        memset(r->in, GUARD, ROOM);
        memset(r->out, GUARD, ROOM);
        r->call = (struct tutti_backend_call){
            .bind = {.v = t->v, .dtype = t->dtype, .divisor = 1},
            .info = {.kind = t->kind, .dtype = t->dtype, .op = reduces(t) ? (int32_t)t->op : -1, .root = -1}};
        if (tutti_kind_info(t->kind)->rooted) r->call.info.root = (int32_t)t->root;
        memcpy(r->call.factor, t->factor, sizeof(t->factor));
        if (reduces(t) && t->op == TUTTI_AVG)
            r->call.bind.divide = tutti_divide_find(t->dtype), r->call.bind.divisor = contributors(t, me);
        if (reduces(t) && t->op == TUTTI_PREMUL_SUM) r->call.bind.scale = tutti_scale_find(t->dtype);
        r->site = (struct gpu_site){.n = t->n,
                                    .me = me,
                                    .speed = gpu_speed_known("", t->n),
                                    .maps = true,
                                    .bounce_bytes = BOUNCE,
                                    .bounce = (char *)r->bounce};
        memset(r->site.has, true, sizeof(r->site.has));
        assert_true(gpu_layout(t->n, GPU_SCRATCH_DEFAULT, 32, &r->site.layout, &bounce));
        if (t->windows) r->site.own = (char *)r->out;
        for (uint32_t q = 0; q < t->n; q++) r->site.peers[q] = (char *)ranks[q].out;
        tables_fill(t, me);
    }
    for (uint32_t me = 0; me < t->n; me++) bind_buffers(t, me), fill_input(t, me);
    for (uint32_t me = 0; me < t->n; me++) expect(t, me);
    for (uint32_t me = 0; me < t->n; me++) memcpy(ranks[me].was, ranks[me].in, ROOM);
}

/* Results may differ in how they spell NaN, nothing else. */
static void compare(const struct trial *t, uint32_t me)
{
    struct rank *r = &ranks[me];
    if (memcmp(r->in, r->was, ROOM) != 0) complain(t, "its input changed", me);
    if (memcmp(r->out, r->want, ROOM) == 0) return;
    size_t at = 0;
    while (r->out[at] == r->want[at]) at++;
    char what[96];
    snprintf(what, sizeof(what), "byte %zu of the output is 0x%02x, not 0x%02x", at - r->out_at, r->out[at],
             r->want[at]);
    complain(t, what, me);
}

static uint64_t n_run[16];

/* By every method that fits, on the same data. */
static void try_all(const struct trial *t)
{
    static struct rank before[N];
    prepare(t);
    memcpy(before, ranks, t->n * sizeof(*ranks));
    for (size_t m = 0; m < gpu_n_methods; m++) {
        const struct gpu_method *method = gpu_methods[m];
        uint32_t n_fit = 0;
        method_name = method->name;
        for (uint32_t r = 0; r < t->n; r++) n_fit += method->fits(&ranks[r].site, &ranks[r].call);
        if (n_fit == 0) continue;
        if (n_fit < t->n) complain(t, "ranks disagree on whether it fits", 0);
        for (uint32_t r = 1; r < t->n; r++)
            if (method->cost_ns(&ranks[r].site, &ranks[r].call) != method->cost_ns(&ranks[0].site, &ranks[0].call))
                complain(t, "ranks disagree on what it costs", r);
        run(t, method);
        for (uint32_t me = 0; me < t->n; me++) compare(t, me);
        n_run[m]++;
        for (uint32_t me = 0; me < t->n; me++) {
            memcpy(ranks[me].in, before[me].in, ROOM);
            memcpy(ranks[me].out, before[me].out, ROOM);
        }
    }
}

/* ---- the tests ---- */

static const enum tutti_dtype dtypes[] = {TUTTI_UINT8, TUTTI_BFLOAT16, TUTTI_FLOAT32, TUTTI_COMPLEX128};
static const enum tutti_op ops[] = {TUTTI_SUM, TUTTI_AVG, TUTTI_PREMUL_SUM};

/* Nothing, what copy engines may reduce (whole shards), few and many. */
static size_t draw_count(uint32_t n, uint32_t n_blocks, size_t element)
{
    size_t most = (ROOM - 1024) / n_blocks / element, shards = n * GPU_SHARD_UNIT / element;
    if (below(8) == 0) return 0;
    if (below(4) == 0 && shards <= most) return shards * (1 + below(most / shards));
    return below(most > 300 && below(4) ? 300 : most - most / 16);
}

static void draw_trial(struct trial *t, uint32_t n, enum tutti_kind kind, bool v)
{
    memset(t, 0, sizeof(*t));
    t->n = n, t->kind = kind, t->v = v;
    t->root = (uint32_t)below(n);
    t->dtype = dtypes[below(TUTTI_ARRAY_LEN(dtypes))];
    t->op = ops[below(TUTTI_ARRAY_LEN(ops))];
    t->in_place = below(2) && !(v && kind == TUTTI_ALL_TO_ALL);
    t->windows = !v && below(2);
    t->late = below(2);
    t->count = draw_count(n, tutti_kind_blocks(kind, n), ref_bytes(t->dtype));
    if (t->op == TUTTI_PREMUL_SUM) tutti_factor_encode(t->dtype, 2, t->factor);
}

static uint32_t trials(void)
{
    return test_is_sampled() ? 4 : 16;
}

static void all_kinds(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= N; n++) {
        for (uint32_t k = 0; k < TUTTI_N_KINDS; k++) {
            for (uint32_t i = 0; i < trials() && k != TUTTI_BARRIER; i++) {
                struct trial t;
                draw_trial(&t, n, (enum tutti_kind)k, false);
                try_all(&t);
            }
        }
    }
    for (size_t m = 0; m < gpu_n_methods; m++) {
        if (n_run[m] == 0) fail_msg("%s was never tried", gpu_methods[m]->name);
    }
    assert_true(n_relayed[0] > 0 && n_relayed[1] > 0);
}

static void v_forms(void **state)
{
    static const enum tutti_kind kinds[] = {TUTTI_ALL_GATHER, TUTTI_GATHER, TUTTI_SCATTER, TUTTI_REDUCE_SCATTER,
                                            TUTTI_ALL_TO_ALL};
    (void)state;
    for (uint32_t n = 1; n <= N; n++) {
        for (uint32_t k = 0; k < TUTTI_ARRAY_LEN(kinds); k++) {
            for (uint32_t i = 0; i < trials(); i++) {
                struct trial t;
                draw_trial(&t, n, kinds[k], true);
                try_all(&t);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_kinds), cmocka_unit_test(v_forms)};
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
