/* SPDX-License-Identifier: BSD-3-Clause */
/* Pinned copies hold every block of a call once, packed and apart, and what travels back touches nothing else. */
#include "comm/call/pinned.h"
#include "test.h"

#include <string.h>

enum { RANKS = 5, BYTES = 4096, TRIALS = 3000 };

static uint64_t state;

static size_t below(size_t n)
{
    return (size_t)(tutti_random64(&state) % n);
}

/* A side of a call, drawn: where its blocks are in the user's buffer, in bytes, in the order of the ranks. */
struct drawn {
    size_t n, at[RANKS], bytes[RANKS];
    size_t counts[RANKS], displs[RANKS]; /* the tables of the call, in elements */
    unsigned char memory[BYTES], before[BYTES];
};

static void draw_bytes(struct drawn *side)
{
    for (size_t i = 0; i < BYTES; i++) side->memory[i] = side->before[i] = (unsigned char)tutti_random64(&state);
}

/* One block, or equal ones, that follow one another. */
static void draw_equal(struct drawn *side, size_t n, size_t bytes)
{
    side->n = n;
    for (size_t b = 0; b < n; b++) side->at[b] = b * bytes, side->bytes[b] = bytes;
    draw_bytes(side);
}

/* Blocks in any order, some empty, some side by side, else with gaps. */
static void draw_table(struct drawn *side, size_t element, bool displaced)
{
    size_t order[RANKS] = {0}, at = 0;
    side->n = RANKS;
    for (size_t b = 0; b < RANKS; b++) {
        size_t other = below(b + 1);
        order[b] = order[other], order[other] = b;
    }
    for (size_t i = 0; i < RANKS; i++) {
        size_t b = displaced ? order[i] : i;
        side->counts[b] = below(3) ? below(20) : 0;
        if (displaced && below(2)) at += below(9);
        side->displs[b] = at;
        side->at[b] = at * element, side->bytes[b] = side->counts[b] * element;
        at += side->counts[b];
    }
    draw_bytes(side);
}

/* ---- what travels ---- */

struct travel {
    char *pinned;
    bool in;
    unsigned char touched[BYTES + 512];
};

static enum tutti_status carry(void *arg, char *device, size_t at, size_t bytes)
{
    struct travel *travel = arg;
    assert_true(bytes > 0 && at + bytes <= sizeof(travel->touched));
    for (size_t i = at; i < at + bytes; i++) assert_int_equal(travel->touched[i]++, 0);
    memcpy(travel->in ? travel->pinned + at : device, travel->in ? device : travel->pinned + at, bytes);
    return TUTTI_OK;
}

/* Blocks packed at `pinned` are what is at the user's. */
static void compare_packed(const struct drawn *side, const char *pinned)
{
    for (size_t b = 0, packed = 0; b < side->n; packed += side->bytes[b], b++)
        assert_memory_equal(pinned + packed, side->before + side->at[b], side->bytes[b]);
}

/* The user's has the packed blocks, and else what it had. */
static void compare_back(const struct drawn *side, const char *pinned)
{
    unsigned char want[BYTES];
    memcpy(want, side->before, BYTES);
    for (size_t b = 0, packed = 0; b < side->n; packed += side->bytes[b], b++)
        memcpy(want + side->at[b], pinned + packed, side->bytes[b]);
    assert_memory_equal(side->memory, want, BYTES);
}

/* At once, or in parts: slices that are cut as the engine cuts them. */
static uint32_t n_parts;

static enum tutti_status each(const struct tutti_call *call, enum tutti_pinned_way way, struct travel *travel)
{
    const struct tutti_layout layout = {.count = call->job.bind.count,
                                        .element = tutti_dtype_bytes(call->job.info.dtype),
                                        .per_block = 1 + n_parts % 3,
                                        .n_slices = 3 * n_parts};
    if (n_parts == 0) return tutti_pinned_each(call, way, NULL, carry, travel);
    for (uint32_t p = 0; p < n_parts; p++) {
        const struct tutti_pinned_part part = {&layout, 2 * p + (p > 0 ? n_parts : 0), 2 * p + 2 + n_parts};
        TUTTI_TRY(tutti_pinned_each(call, way, &part, carry, travel));
    }
    return TUTTI_OK;
}

/* Takes the call to a pinned copy and back. reads, writes: the sides that are read before, and written after it. */
static void travel(const struct tutti_call *call, const struct drawn *sent, bool reads_recv, const struct drawn *got,
                   bool writes_recv)
{
    static char pinned[BYTES + 512];
    static struct travel there, back;
    struct tutti_call staged = *call;
    size_t bytes = tutti_pinned_bytes(call);
    assert_true(bytes <= sizeof pinned);
    memset(pinned, 0, sizeof pinned);
    there = (struct travel){.pinned = pinned, .in = true}, back = (struct travel){.pinned = pinned};
    assert_int_equal(each(call, TUTTI_PINNED_IN, &there), TUTTI_OK);
    tutti_pinned_put(&staged, pinned);
    assert_null(staged.job.bind.displs);
    assert_null(staged.job.bind.in_displs);
    if (sent) compare_packed(sent, staged.job.bind.input ? staged.job.bind.input : pinned);
    if (got && reads_recv) compare_packed(got, staged.job.bind.output ? staged.job.bind.output : pinned);
    if (staged.job.bind.output && writes_recv)
        for (size_t i = (size_t)((char *)staged.job.bind.output - pinned); i < bytes; i++)
            pinned[i] = (char)tutti_random64(&state);
    assert_int_equal(each(call, TUTTI_PINNED_OUT, &back), TUTTI_OK);
    if (sent) assert_memory_equal(sent->memory, sent->before, BYTES);
    if (got && writes_recv) compare_back(got, staged.job.bind.output ? staged.job.bind.output : pinned);
    if (got && !writes_recv) assert_memory_equal(got->memory, got->before, BYTES);
}

/* ---- calls ---- */

static struct drawn in, out;
static struct tutti_comm comm;

static struct tutti_call call_of(enum tutti_kind kind)
{
    comm.rank = (int32_t)below(RANKS), comm.size = RANKS;
    struct tutti_call call;
    const enum tutti_dtype dtype = below(2) ? TUTTI_UINT8 : TUTTI_FLOAT32;
    const int32_t root = (int32_t)below(RANKS);
    tutti_call_set(&call, kind, dtype, TUTTI_SUM, root, below(50), in.memory, out.memory);
    tutti_call_begin(&call, &comm, NULL);
    return call;
}

/* How many blocks each kind has: 0, 1 or all; of rooted ones at the root, and elsewhere. */
static const struct shape {
    enum tutti_kind kind;
    size_t sent, got, sent_elsewhere, got_elsewhere;
} shapes[] = {
    {TUTTI_ALL_REDUCE, 1, 1, 1, 1},
    {TUTTI_REDUCE, 1, 1, 1, 0},
    {TUTTI_ALL_GATHER, 1, RANKS, 1, RANKS},
    {TUTTI_GATHER, 1, RANKS, 1, 0},
    {TUTTI_SCATTER, RANKS, 1, 0, 1},
    {TUTTI_REDUCE_SCATTER, RANKS, 1, RANKS, 1},
    {TUTTI_SCAN, 1, 1, 1, 1},
    {TUTTI_ALL_TO_ALL, RANKS, RANKS, RANKS, RANKS},
    {TUTTI_BARRIER, 0, 0, 0, 0},
};

static void equal_blocks(void **unused)
{
    (void)unused;
    state = test_seed();
    for (int t = 0; t < TRIALS; t++) {
        const struct shape *shape = &shapes[t % (int)TUTTI_ARRAY_LEN(shapes)];
        struct tutti_call call = call_of(shape->kind);
        bool root = !tutti_kind_info(shape->kind)->rooted || call.job.info.root == comm.rank;
        size_t bytes = call.job.bind.count * tutti_dtype_bytes(call.job.info.dtype);
        draw_equal(&in, root ? shape->sent : shape->sent_elsewhere, bytes);
        draw_equal(&out, root ? shape->got : shape->got_elsewhere, bytes);
        travel(&call, &in, false, &out, true);
    }
}

/* The buffer of a broadcast travels one way, to the root's copy or from the others'; exscan leaves rank 0's alone. */
static void one_sided(void **unused)
{
    (void)unused;
    state = test_seed() + 1;
    for (int t = 0; t < TRIALS; t++) {
        bool broadcast = t % 2;
        struct tutti_call call = call_of(broadcast ? TUTTI_BROADCAST : TUTTI_EXSCAN);
        size_t bytes = call.job.bind.count * tutti_dtype_bytes(call.job.info.dtype);
        bool root = call.job.info.root == comm.rank;
        draw_equal(&in, !broadcast, bytes);
        draw_equal(&out, broadcast || comm.rank > 0, bytes);
        travel(&call, broadcast ? NULL : &in, broadcast && root, &out, !(broadcast && root));
    }
}

/* Every byte travels in one part. */
static void parts(void **unused)
{
    for (n_parts = 1; n_parts < 8; n_parts++) {
        equal_blocks(unused);
        one_sided(unused);
    }
    n_parts = 0;
}

static void tables(void **unused)
{
    (void)unused;
    state = test_seed() + 2;
    for (int t = 0; t < TRIALS; t++) {
        struct tutti_call call = call_of(TUTTI_ALL_TO_ALL);
        size_t element = tutti_dtype_bytes(call.job.info.dtype);
        bool displaced = t % 3;
        draw_table(&in, element, displaced);
        draw_table(&out, element, displaced);
        call.job.bind.v = true;
        call.job.bind.in_counts = in.counts, call.job.bind.in_displs = displaced ? in.displs : NULL;
        call.job.bind.counts = out.counts, call.job.bind.displs = displaced ? out.displs : NULL;
        travel(&call, &in, false, &out, true);
    }
}

/* What a shorter message leaves alone travels there and back. */
static void messages(void **unused)
{
    (void)unused;
    state = test_seed() + 3;
    for (int t = 0; t < TRIALS; t++) {
        enum tutti_call_type type = (enum tutti_call_type)(TUTTI_CALL_SEND + t % 3);
        struct tutti_call call = call_of(TUTTI_ALL_REDUCE);
        size_t element = tutti_dtype_bytes(call.job.info.dtype);
        call.type = type, call.recv_count = below(70);
        draw_equal(&in, 1, call.job.bind.count * element);
        draw_equal(&out, 1, call.recv_count * element);
        travel(&call, type == TUTTI_CALL_RECV ? NULL : &in, true, type == TUTTI_CALL_SEND ? NULL : &out, true);
    }
}

/* Sent blocks may lie on one another, and be more than there is memory. */
static void too_much(void **unused)
{
    (void)unused;
    size_t counts[RANKS], displs[RANKS] = {0};
    struct tutti_call call = call_of(TUTTI_ALL_TO_ALL);
    for (size_t b = 0; b < RANKS; b++) counts[b] = SIZE_MAX / 4;
    call.job.bind.v = true, call.job.info.dtype = TUTTI_UINT8;
    call.job.bind.counts = out.counts, call.job.bind.in_counts = counts, call.job.bind.in_displs = displs;
    assert_true(tutti_pinned_bytes(&call) == SIZE_MAX);
    counts[0] = counts[1] = SIZE_MAX / 2 - 100;
    counts[2] = counts[3] = counts[4] = 0;
    memset(out.counts, 0, sizeof out.counts);
    assert_true(tutti_pinned_bytes(&call) >= SIZE_MAX - 512);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(equal_blocks), cmocka_unit_test(one_sided),
                                       cmocka_unit_test(parts),        cmocka_unit_test(tables),
                                       cmocka_unit_test(messages),     cmocka_unit_test(too_much)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
