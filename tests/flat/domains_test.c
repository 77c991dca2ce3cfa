/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of several domains: all_reduce, reduce_scatter and all_gather by every way that knows of them, with every type
 * and operation. The host is made to look as if it had such domains, neighbours or ranks in turn. Inputs are such that
 * results do not depend on how operands are grouped; the order of operands is tried by an operation of the user. */
#include "test.h"

#include "comm/object/comm.h"
#include "ranks.h"
#include "reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA = 512 << 10, GUARD = 64, RANKS_MOST = 12 };

struct world {
    uint32_t n, domains;
    bool cyclic, forked;
    uint32_t n_calls;
};
/* What all ranks call. */
struct plan {
    enum tutti_kind kind;
    enum tutti_dtype dtype;
    int op; /* below 0: the user's */
    size_t count;
    const char *method;
    bool in_place, send_mapped, recv_mapped;
    uint64_t seed;
};
struct buffers {
    unsigned char *arenas[2][2]; /* [send, recv][private, mapped] */
    unsigned char *inputs, *expected;
    unsigned char *send, *recv, *written;
};

/* ---- plans: drawn alike by all ranks ---- */

static size_t draw(uint64_t *state, size_t below)
{
    return (size_t)(tutti_random64(state) % below);
}

static size_t draw_count(uint64_t *state, uint32_t n, size_t element)
{
    static const size_t bytes[] = {0, 1, 64, 4096, 8192, 20000, 4096 * 5, 4096 * 9 + 64};
    size_t count = bytes[draw(state, TUTTI_ARRAY_LEN(bytes))] / element + draw(state, 3);
    size_t most = ((size_t)ARENA - 4 * GUARD) / n / element;
    return count < most ? count : most;
}

static void draw_plan(uint64_t *state, const struct world *w, struct plan *p)
{
    static const enum tutti_kind kinds[] = {TUTTI_ALL_REDUCE, TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER, TUTTI_ALL_GATHER};
    static const char *const methods[] = {"flat:domains", "flat:domains", "flat:mapped-domains", "flat:attach", NULL};
    p->kind = kinds[draw(state, TUTTI_ARRAY_LEN(kinds))];
    do {
        p->dtype = (enum tutti_dtype)draw(state, TUTTI_N_DTYPES);
        p->op = (int)draw(state, TUTTI_N_OPS);
    } while (!ref_defined(p->dtype, (enum tutti_op)p->op));
    if (draw(state, 8) == 0) p->op = -1, p->dtype = TUTTI_UINT64;
    p->count = draw_count(state, w->n, ref_bytes(p->dtype));
    p->method = methods[draw(state, TUTTI_ARRAY_LEN(methods))];
    p->in_place = draw(state, 3) == 0;
    p->send_mapped = draw(state, 2) == 0;
    p->recv_mapped = draw(state, 4) == 0 ? !p->send_mapped : p->send_mapped;
    p->seed = tutti_random64(state);
}

/* ---- one call ---- */

/* Affine maps of 32-bit integers, two in an element, one after the other: does not commute. */
static void compose(const void *left, const void *right, void *out, size_t count, enum tutti_dtype dtype, void *arg)
{
    (void)dtype, (void)arg;
    for (size_t i = 0; i < count; i++) {
        uint32_t l[2], r[2];
        memcpy(l, (const char *)left + 8 * i, 8);
        memcpy(r, (const char *)right + 8 * i, 8);
        const uint32_t both[2] = {l[0] * r[0], l[0] * r[1] + l[1]};
        memcpy((char *)out + 8 * i, both, 8);
    }
}

static void write_two(enum tutti_dtype dtype, unsigned char *out)
{
    if (dtype <= TUTTI_BOOL)
        out[0] = 2; /* little endian */
    else if (dtype == TUTTI_COMPLEX64)
        memcpy(out, &(float){2}, sizeof(float));
    else if (dtype == TUTTI_COMPLEX128)
        memcpy(out, &(double){2}, sizeof(double));
    else
        ref_encode(dtype, 2, out);
}

static void expect(const struct plan *p, uint32_t n, uint32_t me, struct buffers *b)
{
    size_t element = ref_bytes(p->dtype), blocks = p->kind == TUTTI_REDUCE_SCATTER ? n : 1, words = p->count * blocks;
    const void *inputs[RANKS_MOST] = {b->inputs};
    unsigned char factor[16] = {0};
    write_two(p->dtype, factor);
    for (uint32_t r = 0; r < n; r++) {
        unsigned char *input = b->inputs + r * words * element;
        if (p->kind == TUTTI_ALL_GATHER || p->op < 0)
            ref_fill(p->dtype, REF_BITS, p->seed + r, input, words);
        else
            ref_fill_exact(p->dtype, (enum tutti_op)p->op, p->seed, r, n, input, words);
        inputs[r] = input + (blocks > 1 ? me * p->count * element : 0);
    }
    if (p->kind == TUTTI_ALL_GATHER) {
        memcpy(b->expected, b->inputs, n * words * element);
    } else if (p->op >= 0) {
        ref_reduce(p->dtype, (enum tutti_op)p->op, inputs, n, p->count, factor, b->expected);
    } else {
        memcpy(b->expected, inputs[0], p->count * element);
        for (uint32_t r = 1; r < n; r++) compose(b->expected, inputs[r], b->expected, p->count, p->dtype, NULL);
    }
}

static void lay_out(const struct plan *p, uint32_t n, uint32_t me, struct buffers *b)
{
    size_t bytes = p->count * ref_bytes(p->dtype), shift = p->seed & 15;
    size_t sent = bytes * (p->kind == TUTTI_REDUCE_SCATTER ? n : 1);
    b->written = b->arenas[1][p->recv_mapped];
    b->send = b->arenas[0][p->send_mapped] + GUARD + shift;
    b->recv = b->written + GUARD + (shift * 5 & 15);
    if (p->in_place && p->kind == TUTTI_REDUCE_SCATTER)
        b->written = b->arenas[0][p->send_mapped], b->recv = b->send + me * bytes;
    else if (p->in_place)
        b->send = b->recv + (p->kind == TUTTI_ALL_GATHER ? me * bytes : 0);
    memset(b->written, 0x5a, ARENA);
    if (sent > 0) memcpy(b->send, b->inputs + me * sent, sent);
}

static enum tutti_status call(struct rank *rank, const struct plan *p, enum tutti_op user, const struct buffers *b)
{
    struct tutti_call_options o = TUTTI_CALL_OPTIONS_INIT;
    enum tutti_op op = p->op < 0 ? user : (enum tutti_op)p->op;
    o.algorithm = p->method;
    o.premul_value = 2;
    if (p->kind == TUTTI_ALL_REDUCE)
        return tutti_all_reduce(b->send, b->recv, p->count, p->dtype, op, rank->comm, &o, NULL);
    if (p->kind == TUTTI_REDUCE_SCATTER)
        return tutti_reduce_scatter(b->send, b->recv, p->count, p->dtype, op, rank->comm, &o, NULL);
    return tutti_all_gather(b->send, b->recv, p->count, p->dtype, rank->comm, &o, NULL);
}

/* Products of complex numbers differ in the sign of zeros when they are grouped otherwise. */
static void drop_signs_of_zero(enum tutti_dtype dtype, unsigned char *data, size_t count)
{
    float narrow;
    double wide;
    for (unsigned char *at = data; dtype == TUTTI_COMPLEX64 && at < data + 8 * count; at += sizeof narrow)
        memcpy(&narrow, at, sizeof narrow), narrow += 0.0f, memcpy(at, &narrow, sizeof narrow);
    for (unsigned char *at = data; dtype == TUTTI_COMPLEX128 && at < data + 16 * count; at += sizeof wide)
        memcpy(&wide, at, sizeof wide), wide += 0.0, memcpy(at, &wide, sizeof wide);
}

static void run_call(struct rank *rank, const struct plan *p, enum tutti_op user, struct buffers *b)
{
    uint32_t n = (uint32_t)rank->n, me = (uint32_t)rank->index;
    size_t got = p->count * (p->kind == TUTTI_ALL_GATHER ? n : 1), bytes = got * ref_bytes(p->dtype), where = 0;
    char text[160];
    expect(p, n, me, b);
    lay_out(p, n, me, b);
    snprintf(text, sizeof text, "%s %s %s, %zu by %s%s%s%s", tutti_kind_name(p->kind), tutti_dtype_name(p->dtype),
             p->op < 0 ? "user" : tutti_op_name((enum tutti_op)p->op), p->count, p->method ? p->method : "choice",
             p->in_place ? ", in place" : "", p->send_mapped ? ", send mapped" : "",
             p->recv_mapped ? ", recv mapped" : "");
    if (call(rank, p, user, b) != TUTTI_OK) {
        rank_fail(rank, __FILE__, __LINE__, "%s: %s", text, tutti_last_error()->text);
        return;
    }
    if (p->kind != TUTTI_ALL_GATHER) {
        drop_signs_of_zero(p->dtype, b->recv, got);
        drop_signs_of_zero(p->dtype, b->expected, got);
    }
    bool equal = p->kind == TUTTI_ALL_GATHER ? memcmp(b->recv, b->expected, bytes) == 0
                                             : ref_equal(p->dtype, b->recv, b->expected, got, &where);
    if (!equal) rank_fail(rank, __FILE__, __LINE__, "%s: element %zu is wrong", text, where);
}

/* ---- worlds ---- */

/* What a host with such domains would say, so that the next communicator has them. */
static void places_pretend(struct tutti_comm *comm, const struct world *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        struct tutti_place *place = &comm->family->world.places[i];
        uint32_t domain = w->cyclic ? i % w->domains : i / (w->n / w->domains);
        for (size_t level = 0; level < TUTTI_TOPO_N_LEVELS; level++) place->group[level] = (int16_t)domain;
    }
}

static bool buffers_open(struct rank *rank, struct buffers *b)
{
    for (int side = 0; side < 2; side++) {
        void *mapped = NULL;
        b->arenas[side][0] = rank_alloc(rank, ARENA);
        if (tutti_mem_alloc(rank->comm, ARENA, &mapped) != TUTTI_OK) return false;
        b->arenas[side][1] = mapped;
    }
    b->inputs = rank_alloc(rank, (size_t)ARENA * RANKS_MOST);
    b->expected = rank_alloc(rank, ARENA);
    return true;
}

static void buffers_close(struct rank *rank, struct buffers *b)
{
    for (int side = 0; side < 2; side++) (void)tutti_mem_free(rank->comm, b->arenas[side][1]);
}

static void run_world(struct rank *rank)
{
    const struct world *w = rank->arg;
    struct tutti_comm *first = rank->comm;
    struct buffers b = {.inputs = NULL};
    uint64_t state = test_seed() + w->n * 100 + w->domains * 10 + w->cyclic;
    enum tutti_op user;
    places_pretend(first, w);
    RANK_CHECK_OK(rank, tutti_comm_dup(first, &rank->comm));
    const struct tutti_domains *domains = &rank->comm->facts.domains[TUTTI_TOPO_PACKAGE];
    RANK_CHECK(rank, domains->n == w->domains && domains->cyclic == w->cyclic);
    RANK_CHECK(rank, buffers_open(rank, &b));
    RANK_CHECK_OK(rank, tutti_op_create(rank->context, compose, NULL, false, &user));
    for (uint32_t i = 0; i < w->n_calls && !rank->failure[0]; i++) {
        struct plan plan;
        draw_plan(&state, w, &plan);
        run_call(rank, &plan, user, &b);
    }
    RANK_CHECK_OK(rank, tutti_op_destroy(rank->context, user));
    buffers_close(rank, &b);
    tutti_comm_destroy(first);
}

static void run(struct world w)
{
    const struct tutti_option options[] = {{"staging", "448K"}};
    struct ranks_config config = {.n = w.n,
                                  .forked = w.forked,
                                  .options = options,
                                  .n_options = 1,
                                  .timeout_ns = UINT64_C(60000000000),
                                  .deadline_s = 120,
                                  .arg = &w};
    if (ranks_run(&config, run_world) != 0) fail_msg("seed %llu", (unsigned long long)test_seed());
}

static void threads(void **state)
{
    (void)state;
    for (uint32_t cyclic = 0; cyclic < 2; cyclic++) {
        run((struct world){.n = 4, .domains = 2, .cyclic = cyclic, .n_calls = 120});
        run((struct world){.n = 6, .domains = 2, .cyclic = cyclic, .n_calls = 50});
        run((struct world){.n = 6, .domains = 3, .cyclic = cyclic, .n_calls = 50});
        run((struct world){.n = 8, .domains = 2, .cyclic = cyclic, .n_calls = 30});
        run((struct world){.n = 12, .domains = 3, .cyclic = cyclic, .n_calls = 20});
    }
}

static void processes(void **state)
{
    (void)state;
    run((struct world){.n = 4, .domains = 2, .forked = true, .n_calls = 120});
    run((struct world){.n = 6, .domains = 3, .cyclic = true, .forked = true, .n_calls = 50});
    run((struct world){.n = 8, .domains = 2, .cyclic = true, .forked = true, .n_calls = 30});
    run((struct world){.n = 12, .domains = 3, .forked = true, .n_calls = 20});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads), cmocka_unit_test(processes)};
    return cmocka_run_group_tests_name("flat domains", tests, NULL, NULL);
}
